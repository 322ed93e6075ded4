"""The spectral engine: for d <= 3 every statistic is a Fourier transform of the data.

All of F(w) = sum_i w_i e^{i w . x_i} comes from non-uniform FFTs in O(N + S^2 + grid), where the
direct engine takes O(N S^2); `fourier_sums` has the formulas. Up to one chunk of points, or
where a fixed grid would cost more, each chunk is transformed. Else all points are spread on one
grid, which is read at the end. The few points outside a box, which is chosen by its cost, are left
to the direct engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..features.random import Features
from ..runtime.progress import Progress
from ..runtime.warnings import FallbackWarning, warn
from ..validation import Array
from .chunk_transforms import ChunkTransforms
from .chunks import Chunks, Rows
from .direct import accumulate_direct
from .fourier_sums import FourierSums, statistics_from_fourier_sums, without_moments
from .moment_sums import MomentSums
from .spectral_work import COST_ROWS, SpectralWork
from .spread_grid import GridFiller, SpreadGrid
from .statistics import Statistics
from .transforms import load_finufft

CENTER_ROWS = 10_000  # rows of the first chunk whose median is the center of the points
OUTSIDE_ROWS = 500_000  # points outside that are held before the direct engine sums them
STREAM_CHUNKS = 4  # chunks that a stream is taken to have once it has more than one


def accumulate_spectral(
    blocks: Blocks, features: Features, noise_levels: Array, origin: Array, *, gram_phi: bool,
    tolerance: float, budget: int, backend: ModuleType, n_threads: int, progress: bool = False,
    must_fit: bool = True,
) -> Statistics:  # fmt: skip
    """The statistics of all blocks; arguments as for ``accumulate``, checked.

    Parameters
    ----------
    must_fit : bool, default True
        Whether a chunk that no grid within the budget holds is an error; else the direct engine
        sums it.

    Raises
    ------
    MemoryError
        If the smallest grid of a chunk exceeds the budget, and ``must_fit``.
    """
    load_finufft()
    if blocks.checkpoint is not None:
        warn(
            "the checkpoint does not hold the sums of the spectral engine: this pass starts again "
            "after a stop. --engine direct is slower and holds them",
            FallbackWarning,
        )
    work = SpectralWork(features, noise_levels, gram_phi, tolerance, budget)
    moments = MomentSums(features.dimension, origin, backend, n_threads)
    outside = _OutsideRows(work, origin, backend, n_threads)
    with (
        np.errstate(over="ignore", invalid="ignore"),  # overflow is explained at the end
        Progress(progress, "rows", blocks.n_rows) as bar,
    ):
        place, chunks = _choose_grid(blocks, work)
        counted = _count(chunks, moments, bar)
        if place is None:
            sums, grid_bytes = _transform_chunks(
                counted, work, outside, backend, n_threads, must_fit
            )
        else:
            sums, grid_bytes = _fill_one_grid(counted, work, place, outside, n_threads)
        rest = outside.total()
    provenance = {
        "engine": "spectral", "backend": backend.NAME, "precision": "float64",
        "tolerance": tolerance, "threads": n_threads, "rows_outside": outside.n_rows,
        "grid_bytes": grid_bytes, "one_grid": place is not None,
    }  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        stats = statistics_from_fourier_sums(
            sums, moments, noise_levels, origin, gram_phi, provenance
        )
    if rest is None:
        return stats
    # the moments of every row are in ``stats`` already
    return replace(stats + without_moments(rest), provenance=provenance)


def _count(chunks: Iterable[Rows], moments: MomentSums, bar: Progress) -> Iterator[Rows]:
    """The chunks, each added to the moments and, once used, to the progress bar."""
    for x, w in chunks:
        moments.add(x, w)
        yield x, w
        bar.add(len(x))


def _choose_grid(
    blocks: Blocks, work: SpectralWork
) -> tuple[SpreadGrid | None, Iterable[Rows]]:
    """The grid for all rows, or None for one transform a chunk; and the rows in chunks."""
    chunks = Chunks(blocks)
    if blocks.n_rows is None:
        return _choose_grid_of_stream(chunks, work)
    sample = blocks.pilot(COST_ROWS) if blocks.n_rows > chunks.rows else None
    place = None if sample is None else work.cheaper_grid(sample[0], blocks.n_rows)
    return place, chunks if place is None else Chunks(blocks, place.fill_rows)


def _choose_grid_of_stream(
    chunks: Chunks, work: SpectralWork
) -> tuple[SpreadGrid | None, Iterable[Rows]]:
    """As ``_choose_grid``, from the first chunk; one that is all of the stream needs no grid."""
    whole, rows = chunks.rows, iter(chunks)
    first = next(rows)
    chunks.rows = 1  # the look ahead reads one block, not a whole chunk
    second = next(rows, None)
    if second is None:
        return None, [first]
    some = first[0][:: max(1, len(first[0]) // COST_ROWS)]
    place = work.cheaper_grid(some, STREAM_CHUNKS * len(first[0]))
    chunks.rows = whole if place is None else place.fill_rows
    return place, itertools.chain([first, second], rows)


def _transform_chunks(
    chunks: Iterable[Rows], work: SpectralWork, outside: _OutsideRows, backend: ModuleType,
    n_threads: int, must_fit: bool,
) -> tuple[FourierSums, int]:  # fmt: skip
    """The sums over all chunks, each transformed, and the bytes of the largest grid."""
    sums: ChunkTransforms | None = None
    for x, w in chunks:
        if sums is None:
            center = np.median(x[:: max(1, len(x) // CENTER_ROWS)], axis=0)
            sums = ChunkTransforms(work, center, backend, n_threads, must_fit)
        outside.add(*sums.add(x, w))
    assert sums is not None
    return sums, sums.grid_bytes


def _fill_one_grid(
    chunks: Iterable[Rows], work: SpectralWork, place: SpreadGrid, outside: _OutsideRows,
    n_threads: int,
) -> tuple[FourierSums, int]:  # fmt: skip
    """The sums read off one grid on which all chunks were spread, and its bytes."""
    filler, size = GridFiller(place, n_threads), place.fill_rows
    for x, w in chunks:
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            outside.add(*filler.add(x[rows], None if w is None else w[rows]))
    sums = FourierSums(work.features, work.bandwidths, place.center)
    base = [np.ascontiguousarray(axis) for axis in sums.base.T]
    sums.F, sums.G = place.sums(filler.grid, sums.targets.axes, base, n_threads)
    sums.weight = filler.weight
    return sums, int(place.memory)


class _OutsideRows:
    """Points outside the boxes; the direct engine sums them OUTSIDE_ROWS at a time."""

    def __init__(
        self, work: SpectralWork, origin: Array, backend: ModuleType, n_threads: int
    ) -> None:
        self.inputs = (work.features, work.noise_levels, origin)
        self.options: dict[str, Any] = {
            "gram_phi": work.gram_phi, "precision": "float64", "backend": backend,
            "n_threads": n_threads,
        }  # fmt: skip
        self.n_rows, self._n_held = 0, 0
        self._held: list[Any] = []
        self._sum: Statistics | None = None

    def add(self, x: Array, w: Array | None) -> None:
        """Hold points; those of weight zero are dropped."""
        if w is not None and not w.all():
            x, w = x[w > 0.0], w[w > 0.0]
        if len(x):
            self._held.append(x if w is None else (x, w))
            self.n_rows += len(x)
            self._n_held += len(x)
            if self._n_held > OUTSIDE_ROWS:
                self.total()

    def total(self) -> Statistics | None:
        """The statistics of all points so far; None if there were none."""
        if self._held:
            blocks = Blocks(self._held, dimension=self.inputs[0].dimension)
            part = accumulate_direct(blocks, *self.inputs, **self.options)
            self._sum = part if self._sum is None else self._sum + part
            self._held, self._n_held = [], 0
        return self._sum
