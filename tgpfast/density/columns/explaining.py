"""Which columns make a row unlikely: its log density against that of each column's best value."""

from __future__ import annotations

import numpy as np

from ...bases.conditioning import split_columns
from ...validation import Array
from ..answers.expectations import log_density_at
from ..answers.local_modes import find_local_modes
from ..answers.tilted_density import TiltedDensity
from .conditionals import PLACES_AT_A_TIME, evaluate_along, search_places

REFINEMENTS, REFINED_CELLS = 2, 32  # rounds, and cells around the best place of the round before
LEAST_MODE_SHARE = 0.001  # share of the probability of a mode of one column that counts


def explain_rows(model: TiltedDensity, u: Array) -> Array:
    """log q(u) - max over t of log q(u with column k at t), for every row and column, (n, d).

    Parameters
    ----------
    model : Density
    u : array, (n, d)
        Rows in the model's coordinates.
    """
    d = model.dimension
    with np.errstate(over="ignore", invalid="ignore"):
        own = model.base.log_density_at(u) + model.tilt.value(u, model.threads)
        own = own + model.scaling.log_slope_at(u)
    own = np.where(np.isnan(own), -np.inf, own)
    columns = [_best_of_one(model, own) if d == 1 else _best_values(model, u, k) for k in range(d)]
    best = np.maximum(np.stack(columns, axis=1), own[:, None])
    # no value of the column helps where the others alone make the density zero
    return np.where(np.isneginf(best), 0.0, own[:, None] - np.where(np.isneginf(best), 0.0, best))


def _best_of_one(model: TiltedDensity, own: Array) -> Array:
    """The highest value of a density of one column, not normalized, for every row."""
    modes = find_local_modes(model, LEAST_MODE_SHARE, 0)
    place = model.scaling.apply(np.asarray(modes.value, dtype=float)[:1])
    top = log_density_at(model, place) + model.scaling.log_slope_at(place)
    return np.full(len(own), float(top[0]) + model.log_normalizer.value)


def _best_values(model: TiltedDensity, u: Array, target: int) -> Array:
    """Highest log density, not normalized, along one column, for every row."""
    columns = split_columns(model.dimension, [target])[1]
    count = search_places(model, columns, target, u[:1, columns]).shape[1]
    rows = max(1, PLACES_AT_A_TIME // count)
    return np.concatenate([
        _climb_lines(model, columns, target, u[start : start + rows, columns])
        for start in range(0, len(u), rows)
    ])  # fmt: skip


def _climb_lines(model: TiltedDensity, columns: list[int], target: int, at: Array) -> Array:
    """The best place of a line of each row, then of finer lines between its neighbors."""
    rows = np.arange(len(at))
    places = search_places(model, columns, target, at)
    top = np.full(len(at), -np.inf)
    column, others = model.scaling.choose([target]), model.scaling.choose(columns)
    of_others = np.broadcast_to(others.log_slope_at(at), len(at))[:, None]
    for _ in range(REFINEMENTS + 1):
        log_q = evaluate_along(model, columns, target, at, places) + of_others
        slopes = column.log_slope_at(places.reshape(-1, 1))
        log_q += np.broadcast_to(slopes, places.size).reshape(places.shape)
        k = log_q.argmax(axis=1)
        top = np.maximum(top, log_q[rows, k])
        low = places[rows, np.maximum(k - 1, 0)]
        high = places[rows, np.minimum(k + 1, places.shape[1] - 1)]
        places = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, REFINED_CELLS + 1)
    return top
