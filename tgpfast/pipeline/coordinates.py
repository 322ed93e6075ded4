"""`choose_rows_and_plan`: the coordinates that a fit learns in, and the plan there.

`column_scales` bends columns, and `axes` wraps periodic ones. For one to three columns with walls
or periods, several coordinates are compared here, each with a plan of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..data.blocks import Blocks
from ..data.column_maps import MappedScaling, OutsideSupportError
from ..data.moments import moments_and_sample
from ..features.lattice import LATTICE_DIMENSIONS
from ..runtime.records import record
from ..selection.folds import assign_folds, distinct_rows
from ..selection.scale_choice import COMPARED_ROWS, LEAST_COMPARED_ROWS
from .axes import Axes, confine_rows
from .choosing import Plan, choose, uses_lattice
from .column_scales import (
    Bends,
    bend_columns,
    free_columns,
    map_columns,
    smooth_columns,
)
from .lattice_choosing import choose_lattice_plan
from .lattice_inputs import N_LATTICE_FOLDS
from .lattice_plan import LatticePlan
from .rows import Rows
from .settings import Settings

WALL_PARAMETERS = 2.0  # of the map of a column with walls
# Parameters that each knot of a map to a Gaussian counts as: on normal and lognormal columns of 300
# to 5,000 rows, log densities of the rows that it was learned from exceeded those of new rows by
# so much, times the number of knots over that of rows.
KNOT_PARAMETERS = 0.7
# Gain over plain columns, times the number of rows, from which on columns are bent. A gain of g
# nats a row that n rows measure has a standard error of sqrt(2 g / n), so this is 1.4 of its
# errors. Without it, 2 of 10 uniform samples of 500 rows were bent for 0.001 nats.
LEAST_NATS = 4.0


@record
class Trial:
    """Rows in some coordinates, and the plan that suits them best there.

    Attributes
    ----------
    name : str
        What ``model.settings`` calls the coordinates.
    bends : Bends
    plan : LatticePlan
    score : float
        Mean log density of held-out rows, in the units of the data. Less one for each parameter
        of the maps, over the number of rows, since the maps have seen the rows held out.
    """

    name: str
    bends: Bends
    plan: LatticePlan
    score: float


def choose_rows_and_plan(settings: Settings, read: Rows) -> tuple[Rows, Plan]:
    """The rows in the coordinates that suit them, and the plan there.

    One to three columns with walls or periods are learned on a lattice that has them. Where the
    user leaves it open, three kinds of coordinates are compared by rows held out of a sample:
    columns as they are, maps at walls, and maps of all columns without a period to a Gaussian. A
    density with a pole at a wall, or with a long tail, is smooth only after a map.

    Parameters
    ----------
    settings : Settings
    read : Rows
        As `read_rows` returns them.

    Returns
    -------
    rows : Rows
    plan : Plan
    """
    rows = confine_rows(map_columns(read, settings), settings)
    # a row beyond a wall is left to the lattice, which accepts rounding errors and refuses others
    if not _may_bend(settings, rows) or Axes.of(settings, read).are_beyond(read.sample.x):
        return rows, choose(settings, rows)
    pilot, is_whole = _take_pilot(read)
    trials = _compare_coordinates(settings, pilot)
    best = max(trials, key=lambda trial: trial.score)  # the first of equal ones
    if best.score - trials[0].score < LEAST_NATS / pilot.n:
        best = trials[0]
    if best is not trials[0]:
        bent = _with_scale_record(_place(read, settings, best.bends), settings, trials, best)
        try:
            return bent, best.plan if is_whole else choose(settings, bent)
        except OutsideSupportError:  # the lattice accepts rounding errors, and rows without weight
            best = trials[0]
    rows = _with_scale_record(rows, settings, trials, best)
    return rows, best.plan if is_whole else choose(settings, rows)


def _with_scale_record(rows: Rows, settings: Settings, trials: list[Trial], best: Trial) -> Rows:
    """The rows with what ``model.settings`` says of their coordinates."""
    return replace(rows, scale_record={
        "scale": "gaussianize" if best.bends.to_gaussian.any() else "standardize",
        "coordinates": best.name, "coordinate_scores": {t.name: t.score for t in trials},
        **Axes.of(settings, rows).record_support(),
    })  # fmt: skip


def _may_bend(settings: Settings, rows: Rows) -> bool:
    """Whether coordinates are compared: nothing is given that depends on them."""
    return (
        settings.scale == "auto" and (settings.has_support or settings.has_period)
        and rows.dimension <= LATTICE_DIMENSIONS and settings.method in ("auto", "map")
        and {"base", "gamma", "lam"} <= settings.auto and uses_lattice(settings, rows)
        and not rows.has_late_weights
    )  # fmt: skip


def _take_pilot(read: Rows) -> tuple[Rows, bool]:
    """Distinct rows of the sample, and whether they are all rows there are."""
    x, weights = distinct_rows(read.sample.take(COMPARED_ROWS))
    blocks = Blocks(x, sample_weight=weights)
    moments, blocks.sample = moments_and_sample(blocks)
    # weights of repeated rows are counts: maps must not shrink them to Kish's effective number
    moments = replace(moments, n_effective=moments.n * read.weight_factor)
    scaled = blocks.mapped(read.scaling.apply, read.weight_factor)
    is_whole = len(x) == read.blocks.n_rows and not read.blocks.in_parts
    return replace(read, blocks=scaled, moments=moments, split=None), is_whole


def _compare_coordinates(settings: Settings, pilot: Rows) -> list[Trial]:
    """Trials of all coordinates, the plain ones first."""
    axes = Axes.of(settings, pilot)
    free, none = free_columns(settings, pilot, axes), np.zeros(pilot.dimension, bool)
    walled = free & axes.given.is_walled
    smooth = smooth_columns(pilot, free)
    tried = [_try("plain", settings, pilot, Bends(none, none))]
    if len(pilot.blocks.whole()) < LEAST_COMPARED_ROWS:
        return tried
    if walled.any():
        tried.append(_try("bent at walls", settings, pilot, Bends(none, walled)))
    if smooth.any():
        tried.append(_try("gaussianized", settings, pilot, Bends(smooth, walled)))
    return tried


def _try(name: str, settings: Settings, pilot: Rows, bends: Bends) -> Trial:
    """The plan of the pilot in some coordinates, and its score."""
    rows = _place(pilot, settings, bends)
    folds = assign_folds(len(rows.blocks.whole()), N_LATTICE_FOLDS)
    plan = choose_lattice_plan(settings, rows, folds)
    if plan.choice is None:  # rows are too few for a comparison
        return Trial(name, bends, plan, -np.inf)
    held = np.isin(folds, plan.held)
    share = rows.sample_weights[held] / rows.sample_weights[held].sum()
    slopes = np.broadcast_to(rows.scaling.log_slope(rows.sample.x[held]), share.shape)
    n_parameters = 0.0
    if isinstance(rows.scaling, MappedScaling):
        n_parameters = WALL_PARAMETERS * int((bends.at_walls & ~bends.to_gaussian).sum())
        maps = rows.scaling.maps.maps
        n_knots = sum(len(maps[k].knots) for k in np.flatnonzero(bends.to_gaussian))
        n_parameters += KNOT_PARAMETERS * n_knots
    score = plan.choice.best.score + float(share @ slopes) - n_parameters / rows.n
    return Trial(name, bends, plan, score)


def _place(read: Rows, settings: Settings, bends: Bends) -> Rows:
    """Rows with some columns bent, in the first period."""
    if bends.at_walls.any() or bends.to_gaussian.any():
        read = bend_columns(read, settings, Axes.of(settings, read), bends)
    return confine_rows(read, settings)
