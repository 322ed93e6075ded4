"""Which columns make a row unlikely: its log density against that of each column's best value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...bases.conditioning import split_columns
from ...validation import Array
from ..answers.expectations import log_density_at
from ..answers.local_modes import find_local_modes
from ..answers.tilted_density import TiltedDensity
from .conditionals import PLACES_AT_A_TIME, evaluate_along, search_places

BEST_LINES, BEST_PLACES = 3, 33  # lines around the best place, and places of all but the first
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
    best = [_best_of_one(model, own) if d == 1 else _best_values(model, u, k) for k in range(d)]
    return compare_with_best(own, best)


def compare_with_best(own: Array, best: Sequence[Array]) -> Array:
    """Log densities (n,) of rows less the best ones (n,) for each column, at most 0, (n, d).

    It is 0 where no value of the column helps: the others alone make the density zero.
    """
    highest = np.maximum(np.stack(best, axis=1), own[:, None])
    helps = ~np.isneginf(highest)
    return np.subtract(own[:, None], highest, where=helps, out=np.zeros(highest.shape))


def climb_lines(
    log_density: Callable[[Array], Array], places: Array, n_lines: int, n_places: int
) -> Array:
    """Highest value along a line of places for each row, (n,).

    Parameters
    ----------
    log_density : callable
        Takes places (n, G) and returns values (n, G).
    places : (n, G) array
        Increasing.
    n_lines : int
        Lines: the given one, and others, each between the neighbors of the best place of the one
        before.
    n_places : int
        Places of these other lines.
    """
    rows, top = np.arange(len(places)), np.full(len(places), -np.inf)
    for _ in range(n_lines):
        log_p = log_density(places)
        best = log_p.argmax(axis=1)
        top = np.maximum(top, log_p[rows, best])
        low = places[rows, np.maximum(best - 1, 0)]
        high = places[rows, np.minimum(best + 1, places.shape[1] - 1)]
        places = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, n_places)
    return top


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
        _best_in_batch(model, columns, target, u[start : start + rows, columns])
        for start in range(0, len(u), rows)
    ])  # fmt: skip


def _best_in_batch(model: TiltedDensity, columns: list[int], target: int, at: Array) -> Array:
    column, others = model.scaling.choose([target]), model.scaling.choose(columns)
    of_others = np.broadcast_to(others.log_slope_at(at), len(at))[:, None]

    def log_density(places: Array) -> Array:
        slopes = np.broadcast_to(column.log_slope_at(places.reshape(-1, 1)), places.size)
        log_q = evaluate_along(model, columns, target, at, places)
        return log_q + of_others + slopes.reshape(places.shape)

    places = search_places(model, columns, target, at)
    return climb_lines(log_density, places, BEST_LINES, BEST_PLACES)
