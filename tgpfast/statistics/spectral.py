"""The spectral engine: for d <= 3 every statistic is a Fourier transform of the data.

All of F(w) = sum_i w_i e^{i w . x_i} comes from one non-uniform FFT in O(N + S^2 + grid), where the
direct engine takes O(N S^2); `fourier_sums` has the formulas. All points are spread on one grid,
which is read at the end. The few points outside its box, which is chosen by its cost, are left to
the direct engine.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..features.random import Features
from ..runtime.progress import Progress
from ..runtime.warnings import FallbackWarning, warn
from ..validation import Array
from .chunks import place_grid
from .direct import accumulate_direct
from .fourier_sums import FourierSums, statistics_from_fourier_sums, without_moments
from .moment_sums import MomentSums
from .spectral_work import SpectralWork
from .spread_grid import GridFiller
from .statistics import Statistics
from .transforms import load_finufft

OUTSIDE_ROWS = 500_000  # points outside that are held before the direct engine sums them


def accumulate_spectral(
    blocks: Blocks, features: Features, noise_levels: Array, origin: Array, *, gram_phi: bool,
    tolerance: float, budget: int, backend: ModuleType, n_threads: int, progress: bool = False,
    must_fit: bool = True,
) -> Statistics:  # fmt: skip
    """The statistics of all blocks; arguments as for ``accumulate``, checked.

    Parameters
    ----------
    must_fit : bool, default True
        Whether it is an error if no grid fits the budget; else the direct engine sums the rows.

    Raises
    ------
    MemoryError
        If the smallest grid exceeds the budget, and ``must_fit``.
    """
    load_finufft()
    if blocks.checkpoint is not None:
        warn(
            "the checkpoint does not hold the sums of the spectral engine: this pass starts again "
            "after a stop. --engine direct is slower and holds them",
            FallbackWarning,
        )
    work = SpectralWork(features, noise_levels, gram_phi, tolerance, budget)
    moments = MomentSums(origin)
    outside = _OutsideRows(work, origin, backend, n_threads)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is explained at the end
        place, chunks = place_grid(blocks, work.place)
        if place is None and must_fit:
            raise MemoryError
        if place is None:
            return outside.sum(Blocks(chunks, dimension=features.dimension), progress)
        filler = GridFiller(place, n_threads)
        with Progress(progress, "rows", blocks.n_rows) as bar:
            for x, w in chunks:
                moments.add(x, w)
                outside.add(*filler.add(x, w))
                bar.add(len(x))
        rest = outside.total()
        sums = FourierSums(features, work.bandwidths, place.center)
        sums.read(place, filler.grid, n_threads, weight=filler.weight)
        provenance = {
            "engine": "spectral", "backend": backend.NAME, "precision": "float64",
            "tolerance": tolerance, "threads": n_threads, "rows_outside": outside.n_rows,
            "grid_bytes": int(place.memory),
        }  # fmt: skip
        stats = statistics_from_fourier_sums(sums, moments, noise_levels, gram_phi, provenance)
    if rest is None:
        return stats
    # the moments of every row are in ``stats`` already
    return replace(stats + without_moments(rest), provenance=provenance)


class _OutsideRows:
    """Points outside the box; the direct engine sums them OUTSIDE_ROWS at a time."""

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

    def sum(self, blocks: Blocks, progress: bool = False) -> Statistics:
        """The statistics of blocks by the direct engine."""
        return accumulate_direct(blocks, *self.inputs, progress=progress, **self.options)

    def total(self) -> Statistics | None:
        """The statistics of all points so far; None if there were none."""
        if self._held:
            part = self.sum(Blocks(self._held, dimension=self.inputs[0].dimension))
            self._sum = part if self._sum is None else self._sum + part
            self._held, self._n_held = [], 0
        return self._sum
