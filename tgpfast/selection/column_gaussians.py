"""Learns the maps of columns to a Gaussian from a sample of the rows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..bases.expectation_maximization import measure_columns
from ..data.column_maps import ColumnMap, ColumnMaps
from ..validation import Array

# Knots for n rows: KNOTS_PER_ROOT n^(1/3), which cost less than they gained on normal, gamma, t
# and uniform columns of 100 to 10,000 rows; more of them follow noise.
KNOTS_PER_ROOT = 2.0
LEAST_KNOTS, MOST_KNOTS = 6, 60  # before those of the tails
# Beyond the first and last knot, further ones follow: the share of the rows beyond each is smaller
# by the factor TAIL_STEP, down to that of TAIL_ROWS rows.
TAIL_STEP, TAIL_ROWS = 4.0, 2.0
LEAST_KNOT_DISTANCE = 5e-3  # between knots, in spreads of the column: bounds the slope at ties
WALL_INSET = 0.5  # steps of a column by which values exactly on a wall are moved inside
LEAST_INSET = 1e-6  # the same in spreads of the column, where it has no steps


def learn_maps(
    x: Array, weights: Array, low: Array, high: Array, *, bends: NDArray[np.bool_]
) -> ColumnMaps:
    """Learn the map of every column.

    Parameters
    ----------
    x : (n, d) array
        Rows in the units of the data, inside the walls.
    weights : (n,) array
        Rows that each row counts as.
    low, high : (d,) array
        Walls, infinite where there is none.
    bends : (d,) array of bool
        Which columns are bent to a Gaussian, whatever their distribution is. Others are bent at
        their walls alone, so that beta and gamma distributions become Gaussian.
    """
    maps = []
    for k, ends in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        plain = ColumnMap.plain(*ends)
        if plain.has_walls:
            plain = ColumnMap.plain(*ends, _measure_inset(plain, x[:, k], weights))
        if bends[k]:
            plain = _gaussianize(plain, x[:, k], weights)
        elif plain.has_walls:
            from .wall_families import bend_by_family

            plain = bend_by_family(plain, x[:, k], weights)
        maps.append(plain)
    return ColumnMaps(tuple(maps))


def _measure_inset(plain: ColumnMap, values: Array, weights: Array) -> float:
    """How far inside of its wall a value on the wall is taken to be."""
    standards = measure_columns(values[:, None], weights)
    size = max(abs(end) for end in (plain.low, plain.high) if math.isfinite(end))
    step, spread = float(standards.resolution[0]), float(standards.scaling.scale[0])
    inset = max(WALL_INSET * step, LEAST_INSET * spread, 4.0 * float(np.spacing(size)))
    return min(inset, 0.25 * (plain.high - plain.low))  # the walls stay apart


def _gaussianize(plain: ColumnMap, values: Array, weights: Array) -> ColumnMap:
    """Add to a map the spline that makes its values Gaussian."""
    y = plain.apply(values)
    standards = measure_columns(y[:, None], weights)
    spread = float(standards.scaling.scale[0])
    least = max(float(standards.resolution[0]), LEAST_KNOT_DISTANCE * spread)
    knots, scores = _place_knots(y, weights, least)
    if len(knots) < 2:
        center = float(standards.scaling.shift[0])
        knots, scores = np.array([center - spread, center + spread]), np.array([-1.0, 1.0])
    heights, slopes = _smooth(knots, scores)
    return ColumnMap(knots, heights, slopes, plain.low, plain.high, plain.inset)


def _place_knots(y: Array, weights: Array, least: float) -> tuple[Array, Array]:
    """Place knots at quantiles that are ``least`` apart, and find their normal scores."""
    from scipy.special import ndtri

    values, which = np.unique(y, return_inverse=True)
    share = np.bincount(which.ravel(), weights) / weights.sum()
    below = np.cumsum(share) - 0.5 * share  # half of the rows at a value count as below it
    levels = _knot_levels(float(weights.sum()))
    places = np.interp(levels, below, values)
    kept = [0]
    for k in range(1, len(places)):
        if places[k] - places[kept[-1]] >= least:
            kept.append(k)
    knots = places[kept]
    scores = ndtri(np.interp(knots, values, below))
    rises = np.append(True, np.diff(np.maximum.accumulate(scores)) > 0.0)
    return knots[rises], scores[rises]


def _knot_levels(n: float) -> Array:
    """Shares of the rows below the knots: closer towards both tails, where shares are small."""
    count = int(np.clip(KNOTS_PER_ROOT * n ** (1.0 / 3.0), LEAST_KNOTS, MOST_KNOTS))
    bulk = np.square(np.sin(0.5 * np.pi * (np.arange(count) + 0.5) / count))
    n_tail = max(0, math.floor(math.log(max(n * bulk[0] / TAIL_ROWS, 1.0), TAIL_STEP)))
    tail = bulk[0] / TAIL_STEP ** np.arange(n_tail, 0, -1)
    return np.concatenate([tail, bulk, 1.0 - tail[::-1]])


def _smooth(knots: Array, scores: Array) -> tuple[Array, Array]:
    """Heights and slopes at the knots of a cubic spline with two continuous derivatives.

    It is Schoenberg's: the coefficients of the B-splines are values, at the means of three
    neighboring knots, of the polygon through the scores. Their increasing order makes the spline
    increase, and its slope is a mean of slopes of the polygon. The last two slopes on each side are
    equal, so that the spline goes on as a line.
    """
    first, last = knots[1] - knots[0], knots[-1] - knots[-2]
    steps = np.arange(1.0, 4.0)
    t = np.concatenate([knots[0] - first * steps[::-1], knots, knots[-1] + last * steps])
    at = (t[1:-3] + t[2:-2] + t[3:-1]) / 3.0
    chords = np.diff(scores) / np.diff(knots)
    polygon = np.interp(at, knots, scores)
    polygon += chords[0] * np.minimum(at - knots[0], 0.0)
    polygon += chords[-1] * np.maximum(at - knots[-1], 0.0)
    slopes = np.diff(polygon) / np.diff(at)
    if len(slopes) > 2:
        slopes[0], slopes[-1] = slopes[1], slopes[-2]
    start = polygon[1] - slopes[0] * (at[1] - at[0])
    coefficients = start + np.append(0.0, np.cumsum(slopes * np.diff(at)))
    before, after = knots - t[2:-4], t[4:-2] - knots  # distances to the knots on either side
    both = before + after
    bends = (slopes[1:] * before**2 - slopes[:-1] * after**2) / (3.0 * both)
    return coefficients[1:-1] + bends, (slopes[:-1] * after + slopes[1:] * before) / both
