"""Probabilities of discrete values: integrals of a density over the steps around them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...bases.quasirandom import logsumexp, sobol_uniforms
from ...validation import Array
from ..draws.replicates import error_of_mean
from .conditionals import PLACES_AT_A_TIME

# Nodes along each discrete column, by the number of such columns: the next rule is used for the
# rows for which two rules disagree.
RULES = {1: (3, 5, 8, 16, 32, 64), 2: (3, 5, 8, 16, 32), 3: (3, 4, 6, 12)}
MASS_TOLERANCE = 1e-8  # difference of two log masses at which a rule is good enough
BIN_REPLICATES, LOG2_POINTS = 8, 5  # sets of quasi-random points for more columns, and their sizes

LogDensity = Callable[[Array], Array]


def integrate_bins(
    log_density: LogDensity, rows: Array, columns: Sequence[int], steps: Array,
    tolerance: float = MASS_TOLERANCE,
) -> tuple[Array, Array]:  # fmt: skip
    """Log of the integral of a density over a box around each row, (n,), and its errors.

    The box has the side ``steps`` along the columns, and no extent along the others. Up to three
    columns, Gauss-Legendre rules are refined until two of them agree; more columns take 256
    quasi-random points.

    Parameters
    ----------
    log_density : callable
        Takes rows (n, d) and returns log densities (n,).
    rows : (n, d) array
        Centers of the boxes.
    columns : sequence of int
        Discrete columns.
    steps : (m,) array
        Steps of their values.
    tolerance : float, default 1e-8
        Difference of two log masses at which a rule is good enough.
    """
    m = len(columns)
    volume = float(np.log(steps).sum())
    if m == 0:
        return np.asarray(log_density(rows)), np.zeros(len(rows))
    if m not in RULES:
        values, errors = _integrate_by_draws(log_density, rows, columns, steps)
        return values + volume, errors
    values, errors = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
    going = np.arange(len(rows))
    for count in RULES[m]:
        nodes, log_weights = make_rule(m, count)
        found = logsumexp(
            evaluate_around(log_density, rows[going], columns, nodes * steps) + log_weights, axis=1
        )
        with np.errstate(invalid="ignore"):
            gap = np.abs(found - values[going])
        errors[going] = np.where(np.isneginf(found), 0.0, gap)
        values[going] = found
        going = going[errors[going] > tolerance]
        if not len(going):
            break
    return values + volume, errors


def make_rule(m: int, count: int) -> tuple[Array, Array]:
    """Nodes (count^m, m) of a Gauss-Legendre rule on [-1/2, 1/2]^m, and logs of their weights."""
    line, weights = np.polynomial.legendre.leggauss(count)
    nodes = np.array(list(itertools.product(0.5 * line, repeat=m)))
    products = np.array([math.prod(one) for one in itertools.product(0.5 * weights, repeat=m)])
    return nodes, np.log(products)


def evaluate_around(
    function: Callable[[Array], Array], rows: Array, columns: Sequence[int], offsets: Array
) -> Array:
    """Values (n, Q, ...) of a function at rows (n, d) moved by offsets (Q, m) along columns."""
    batch, parts = max(1, PLACES_AT_A_TIME // len(offsets)), []
    for start in range(0, len(rows), batch):
        some = rows[start : start + batch]
        places = np.repeat(some[:, None, :], len(offsets), axis=1)
        places[:, :, list(columns)] += offsets
        values = np.asarray(function(places.reshape(-1, rows.shape[1])))
        parts.append(values.reshape(len(some), len(offsets), *values.shape[1:]))
    return np.concatenate(parts)


def _integrate_by_draws(
    log_density: LogDensity, rows: Array, columns: Sequence[int], steps: Array
) -> tuple[Array, Array]:
    """The mean over quasi-random points, with the standard error of the replicates."""
    m = len(columns)
    points = np.concatenate([
        sobol_uniforms(m, LOG2_POINTS, seed) for seed in range(BIN_REPLICATES)
    ])  # fmt: skip
    log_q = evaluate_around(log_density, rows, columns, (points - 0.5) * steps)
    top = log_q.max(axis=1)
    safe = np.where(np.isfinite(top), top, 0.0)
    means = np.exp(log_q - safe[:, None]).reshape(len(rows), BIN_REPLICATES, -1).mean(axis=2)
    mean = means.mean(axis=1)
    error = error_of_mean(means.T)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(mean) + safe, np.where(mean > 0.0, error / mean, 0.0)


def merge_equal_rows(rows: Array) -> tuple[Array, NDArray[np.int64]]:
    """The different rows, and for each row its number among them."""
    different, owners = np.unique(rows, axis=0, return_inverse=True)
    return different, owners.reshape(len(rows)).astype(np.int64, copy=False)
