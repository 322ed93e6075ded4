"""Bends columns by increasing maps: as `scale` and `support` ask, or as held-out rows prefer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..data.column_checks import MOST_DISTINCT
from ..data.column_maps import ColumnMaps, MappedScaling, OutsideSupportError
from ..data.moments import check_full_rank
from ..data.scaling import Scaling
from ..features.lattice import LATTICE_DIMENSIONS
from ..runtime.records import record
from ..selection.column_gaussians import learn_maps
from ..selection.folds import distinct_rows
from ..selection.scale_choice import COMPARED_ROWS, ScaleScores, compare_scales
from .axes import Axes
from .discrete_columns import find_discrete
from .rows import Rows, make_scaling, split_sample
from .settings import Settings

MOST_TOP_SHARE = 0.05  # share of the rows at one value, from which on it is a spike
SMOOTH_VALUES = 1_000  # different values of a sample, from which on steps of a column are narrow


def map_columns(rows: Rows, settings: Settings) -> Rows:
    """The rows in the coordinates that ``scale`` and ``support`` ask for.

    Walls bend columns where no lattice serves them, that is with more than three columns or with
    scale="gaussianize". Periodic columns are never bent. Discrete columns are bent only at their
    walls.

    Parameters
    ----------
    rows : Rows
        As `read_rows` returns them.
    settings : Settings

    Raises
    ------
    ValueError
        Names a row outside of the walls, or an option that does not go with maps.
    """
    gaussianize = settings.scale == "gaussianize"
    has_walls = settings.has_support and (gaussianize or rows.dimension > LATTICE_DIMENSIONS)
    if gaussianize or has_walls:
        _check_options(settings, rows)
    may_compare = _may_compare(settings, rows)
    word = "standardize" if settings.scale == "auto" else settings.scale
    if not (gaussianize or has_walls or may_compare):
        return replace(rows, scale_record={"scale": word})
    axes = Axes.of(settings, rows)
    rows.blocks.draw_sample()  # the first pass drew none where moments= was given
    if axes.are_beyond(rows.sample.x):
        axes.find_row_outside(rows.blocks)
    record: dict[str, Any] = axes.record_support() if has_walls else {}
    free = free_columns(settings, rows, axes)
    bends = free & gaussianize
    if may_compare:
        smooth = smooth_columns(rows, free)
        scores = _compare(rows, axes, smooth, settings)
        if scores is not None:
            record["scale_scores"] = scores.record()
            if scores.prefers_gaussianize:
                word, bends = "gaussianize", smooth
    record = {"scale": word, **record}
    if not (has_walls or bends.any()):
        return replace(rows, scale_record=record)
    bent = bend_columns(rows, settings, axes, Bends(bends, np.full(rows.dimension, has_walls)))
    return replace(bent, scale_record=record)


@record
class Bends:
    """Which columns are bent.

    Attributes
    ----------
    to_gaussian : (d,) array of bool
        By splines, after which they are Gaussian.
    at_walls : (d,) array of bool
        By the maps of `wall_families`, where they have walls.
    """

    to_gaussian: NDArray[np.bool_]
    at_walls: NDArray[np.bool_]


def bend_columns(rows: Rows, settings: Settings, axes: Axes, bends: Bends) -> Rows:
    """The rows with some columns bent by maps that are learned from the sample.

    Parameters
    ----------
    rows : Rows
        With a sample.
    settings : Settings
    axes : Axes
    bends : Bends
    """
    low, high = axes.given.walls
    low, high = np.where(bends.at_walls, low, -np.inf), np.where(bends.at_walls, high, np.inf)
    maps = learn_maps(
        rows.sample.x, rows.sample_weights, low, high, bends=bends.to_gaussian
    )
    return _apply_maps(rows, settings, maps)


@contextlib.contextmanager
def name_outside_rows(rows: Rows, settings: Settings) -> Iterator[None]:
    """A block that names the row where a pass over mapped rows meets one outside of its walls.

    `map_columns` checks the rows of the sample. The pass for the statistics checks the others, so
    that no further pass is needed.

    Parameters
    ----------
    rows : Rows
        As `read_rows` returns them.
    settings : Settings

    Raises
    ------
    ValueError
        Names the row and its column.
    """
    try:
        yield
    except OutsideSupportError:
        Axes.of(settings, rows).find_row_outside(rows.blocks)
        raise


def _may_compare(settings: Settings, rows: Rows) -> bool:
    """Whether scale="auto" compares coordinates: nothing is given that depends on them."""
    return (
        settings.scale == "auto" and rows.dimension > LATTICE_DIMENSIONS
        and {"base", "gamma", "frequency_covariance"} <= settings.auto
        and settings.method != "ncfd" and rows.blocks.can_repeat
        and rows.blocks.sample is not None and not rows.has_late_weights
    )  # fmt: skip


def free_columns(settings: Settings, rows: Rows, axes: Axes) -> NDArray[np.bool_]:
    """Columns that maps may bend: neither periodic nor discrete.

    A bent column would lose its period, and discrete values would get unequal steps.

    Parameters
    ----------
    settings : Settings
    rows : Rows
    axes : Axes
    """
    free = ~axes.given.periodic
    free[list(find_discrete(settings, rows))] = False
    return free


def smooth_columns(rows: Rows, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Columns without wide steps or spikes: maps would turn equal steps of rounded values and whole
    numbers into unequal ones, which no wave follows. None where most columns have steps: there a
    tilt gains far more than the mixtures that are compared.

    Parameters
    ----------
    rows : Rows
    free : (d,) array of bool
        Columns that maps may bend.
    """
    smooth = free.copy()
    for note in rows.column_notes:
        has_steps = (
            note.facts.get("n_distinct", SMOOTH_VALUES) < SMOOTH_VALUES
            and note.facts["repeated_share"] >= 1.0 - MOST_DISTINCT
        )
        if has_steps or note.facts.get("top_share", 0.0) > MOST_TOP_SHARE:
            smooth[note.column] = False
    return smooth & (smooth.sum() > 0.5 * free.sum())


def _compare(
    rows: Rows, axes: Axes, smooth: NDArray[np.bool_], settings: Settings
) -> ScaleScores | None:
    """Scores of both coordinates of the columns without a period, on some rows of the sample."""
    x, weights = distinct_rows(rows.sample.take(COMPARED_ROWS))
    on_line = ~axes.given.periodic
    low, high = (ends[on_line] for ends in axes.given.walls)
    return compare_scales(
        x[:, on_line], weights * rows.weight_factor, low, high, smooth[on_line],
        seed=settings.seed, threads=settings.threads,
    )  # fmt: skip


def _check_options(settings: Settings, rows: Rows) -> None:
    """ValueError for what does not go with bent columns."""
    why = 'scale="gaussianize"' if settings.scale == "gaussianize" else "support"
    if isinstance(settings.base, Base):
        raise ValueError(
            f"{why} bends columns, and a given base stays in the units of the data; use "
            'base="auto", or leave base out'
        )
    if rows.spectrum is not None or not rows.blocks.can_repeat:
        raise ValueError(
            f"{why}: X can be read only once, but the maps of its columns must be learned before "
            "the statistics; pass a list of blocks, or a callable that returns a fresh iterator"
        )


def _apply_maps(rows: Rows, settings: Settings, maps: ColumnMaps) -> Rows:
    """The rows after their maps, with the moments that they have then."""
    d = rows.dimension
    bent = MappedScaling(np.zeros(d), np.ones(d), maps)
    moments = rows.measure_sample(bent.apply_inside)
    check_full_rank(moments, rows.table.columns)
    affine: Scaling = make_scaling(settings.scale, moments)
    scaling = MappedScaling(affine.shift, affine.scale, maps)
    factor = moments.n_effective / moments.n if settings.normalize_weights else 1.0
    blocks = rows.blocks.mapped(scaling.apply_inside, factor)
    split = split_sample(blocks, settings) if settings.needs_sample else None
    if split is not None:
        split = replace(split, mapped_walls=scaling.mapped_walls)
    return replace(
        rows, blocks=blocks, moments=moments, scaling=scaling, weight_factor=factor,
        has_late_weights=False, are_weighted=moments.n != moments.n_effective,
        split=split,
    )  # fmt: skip
