"""`Rows`: the data of one `fit` after the first pass: moments, a sample, and the model's units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bases.base import Base
from ..data.blocks import Blocks, StartedPass, as_blocks
from ..data.column_checks import ColumnNote, check_columns
from ..data.moments import (
    Moments,
    check_full_rank,
    given_moments,
    moments_and_sample,
    moments_of,
)
from ..data.row_sample import RowSample
from ..data.scaling import Scaling
from ..data.table import Table, column_name
from ..runtime.records import record
from ..selection.sample_split import SampleSplit
from ..statistics.transforms import TRANSFORM_DIMENSIONS
from ..validation import Array
from .settings import STANDARD_SCALES, Settings

if TYPE_CHECKING:
    from ..statistics.spectrum import Spectrum

STREAM_FIRST_ROWS = 1_000  # of an iterator read once; their spread is taken for that of all rows
# The grid of such an iterator resolves Scott's bandwidth for so many rows, with frequencies up to
# so many standard deviations of their distribution.
STREAM_ROWS, STREAM_FREQUENCIES = 1e6, 5.0


@record(kw_only=True)
class Rows:
    """The rows of one `fit`, and what the first pass over them found.

    Attributes
    ----------
    blocks : Blocks
        The rows in the model's coordinates, with the weights that count.
    table : Table
        Names of the columns, and the kind of table that samples are returned as.
    moments : Moments
        In the units of the data, or of the columns after their maps.
    scaling : Scaling
        Between the units of the data and the model's coordinates.
    weight_factor : float
        What the weights were multiplied by.
    are_weighted : bool
        Whether rows are known to count differently.
    has_late_weights : bool
        Whether weights may come with the rows in the next pass, the moments being given.
    split : SampleSplit or None
        A random sample; None where no setting is chosen from one, or rows can be read only once.
    column_notes : list of ColumnNote
        Columns for which a density is a poor description.
    spectrum : Spectrum or None
        Of rows that can be read only once: all that is left of them.
    scale_record : dict
        What ``model.settings`` says of the coordinates.
    """

    blocks: Blocks
    table: Table
    moments: Moments
    scaling: Scaling
    weight_factor: float
    are_weighted: bool
    has_late_weights: bool
    split: SampleSplit | None
    column_notes: list[ColumnNote]
    spectrum: Spectrum | None
    scale_record: dict[str, Any] = field(default_factory=dict)

    @property
    def sample(self) -> RowSample:
        """Rows drawn in the first pass, in the units of the data; only where there are some."""
        assert self.blocks.sample is not None
        return self.blocks.sample

    @property
    def sample_weights(self) -> Array:
        """Rows that each row of the sample counts as, (n,)."""
        given = self.sample.weights
        return self.weight_factor * (np.ones(len(self.sample.x)) if given is None else given)

    def measure_sample(self, place: Callable[[Array], Array]) -> Moments:
        """Moments of the sample after a map of its rows; the numbers of rows are those of all."""
        found = moments_of(Blocks(place(self.sample.x), sample_weight=self.sample.weights))
        return replace(found, n=self.moments.n, n_effective=self.moments.n_effective)

    @property
    def n(self) -> float:
        """Number of rows that they count as: the sum of the weights."""
        return self.moments.n * self.weight_factor

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.moments.mean)

    @property
    def mean(self) -> Array:
        """(d,), in the model's coordinates."""
        return self.scaling.affine.apply(self.moments.mean[None])[0]

    @property
    def covariance(self) -> Array:
        """(d, d), in the model's coordinates."""
        deviation = self.moments.deviation / self.scaling.scale
        return self.moments.correlation * np.outer(deviation, deviation)

    @property
    def variance(self) -> float:
        """Mean variance of the columns, in the model's coordinates."""
        return float(np.trace(self.covariance)) / self.dimension

    @property
    def log_volume(self) -> float:
        """What log densities in the model's coordinates exceed those in the units of the data by,
        on average over the sample where columns are bent."""
        sample = self.blocks.sample
        if self.scaling.is_affine or sample is None:
            return self.scaling.log_volume
        return -float(np.average(self.scaling.log_slope(sample.x), weights=sample.weights))


def read_rows(X: Any, settings: Settings, sample_weight: Any = None, moments: Any = None) -> Rows:
    """Read the data once, for their moments and a random sample.

    Parameters
    ----------
    X, sample_weight, moments : see `fit`
    settings : Settings

    Raises
    ------
    ValueError
        If the rows have no density: a constant column, columns that depend on each other.
    """
    blocks = as_blocks(
        X, sample_weight=sample_weight, drop_missing=settings.missing == "drop",
        jitter=settings.jitter,
    )  # fmt: skip
    spectrum = None
    if moments is not None:
        found = given_moments(moments, blocks.dimension)
        found = replace(found, n_effective=found.n * (blocks.weight_ratio or 1.0))
    elif blocks.can_repeat:
        bar = settings.progress and (blocks.in_parts or blocks.is_prefetched)
        found, blocks.sample = moments_and_sample(blocks, progress=bar)
    else:
        spectrum = _read_once(blocks, settings)
        found = spectrum.moments()
    if settings.needs_sample:
        blocks.draw_sample()  # the first pass drew none where moments= was given
    _check_moments(found, settings.base, blocks)
    scaling = make_scaling(settings.scale, found)
    factor = found.n_effective / found.n if settings.normalize_weights else 1.0
    scaled = blocks.mapped(scaling.apply, factor)
    return Rows(
        blocks=scaled, table=replace(blocks.table, index=None), moments=found, scaling=scaling,
        weight_factor=factor, spectrum=spectrum,
        are_weighted=sample_weight is not None or found.n != found.n_effective,
        has_late_weights=moments is not None and blocks.weight_ratio is None,
        split=split_sample(scaled, settings) if settings.needs_sample else None,
        column_notes=_check_columns(blocks) if settings.auto else [],
    )  # fmt: skip


def split_sample(blocks: Blocks, settings: Settings) -> SampleSplit | None:
    """The sample, with the effort that mixtures may take to grow on it."""
    return SampleSplit.of(
        blocks, seed=settings.seed, threads=settings.threads, effort=settings.effort,
        may_guard=settings.base == "auto" and settings.method in ("auto", "map"),
    )  # fmt: skip


def make_scaling(scale: str, moments: Moments) -> Scaling:
    """The map to the model's coordinates that a word stands for."""
    d = len(moments.mean)
    if scale in STANDARD_SCALES:
        return Scaling(moments.mean, moments.deviation)
    moments.check_range()
    return Scaling.identity(d) if scale == "none" else Scaling(moments.mean, np.ones(d))


def _read_once(blocks: Blocks, settings: Settings) -> Spectrum:
    """Read an iterator of up to three columns into a grid, and keep a sample of its rows."""
    from ..statistics.spectrum import Spectrum

    started = StartedPass(blocks)
    started.read(STREAM_FIRST_ROWS)
    first = started.sample(STREAM_FIRST_ROWS)
    d, spread = first.shape[1], first.std(axis=0)
    if d > TRANSFORM_DIMENSIONS or not (spread > 0).all():
        raise ValueError(
            "X can be read only once, and fit reads its data twice; pass a list of blocks, a "
            "callable that returns a fresh iterator, or moments=(n, mean, covariance)"
        )
    band = 2.0 * STREAM_FREQUENCIES * STREAM_ROWS ** (1.0 / (d + 4)) / spread
    reservoir = started.keep_sample()
    spectrum = Spectrum.from_data(
        started.blocks, band, backend=settings.backend, n_threads=settings.n_threads,
        progress=settings.progress,
    )  # fmt: skip
    blocks.sample = reservoir.sample()
    return spectrum


def _check_moments(moments: Moments, base: Any, blocks: Blocks) -> None:
    """ValueError where the rows have no density, or a given base does not go with them."""
    if not isinstance(base, Base):
        check_full_rank(moments, blocks.table.columns)
    elif base.dimension != len(moments.mean):
        raise ValueError(f"base has dimension {base.dimension}, X has {len(moments.mean)} columns")
    elif (moments.deviation <= 0).any():
        k = int(np.flatnonzero(moments.deviation <= 0)[0])
        raise ValueError(f"column {column_name(k, blocks.table.columns)} is constant; drop it")


def _check_columns(blocks: Blocks) -> list[ColumnNote]:
    """Columns for which a density is a poor description: discrete, tied, row numbers."""
    sample = blocks.sample
    if sample is None:
        return []
    return check_columns(
        sample.x, sample.weights, blocks.table.columns, n_rows=blocks.n_rows or len(sample.x)
    )
