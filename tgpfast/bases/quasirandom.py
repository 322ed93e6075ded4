"""Quasi-random points, and sums in log space, for bases and normalizers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import Array

SOBOL_BITS = 40  # of a point: normals stay within 7.1
# distance of the points from 0 and 1, where quantiles are infinite
SOBOL_MARGIN = 2.0 ** -(SOBOL_BITS + 1)
# Of each coordinate after the first a primitive polynomial, whose bits are its coefficients, and
# the first direction numbers: Joe and Kuo (2008), "Constructing Sobol sequences with better
# two-dimensional projections". More coordinates come from scipy.stats, which takes 0.3 s to import
SOBOL_TABLE = """
3: 1; 7: 1 3; 11: 1 3 1; 13: 1 1 1; 19: 1 1 3 3; 25: 1 3 5 13; 37: 1 1 5 5 17; 41: 1 1 5 5 5;
47: 1 1 7 11 19; 55: 1 1 5 1 1; 59: 1 1 1 3 11; 61: 1 3 5 5 31; 67: 1 3 3 9 7 49;
91: 1 1 1 15 21 21; 97: 1 3 1 13 27 49; 103: 1 1 1 15 7 5; 109: 1 3 1 15 13 25; 115: 1 1 5 5 19 61;
131: 1 3 7 11 23 15 103; 137: 1 3 7 13 13 15 69; 143: 1 1 3 13 7 35 63; 145: 1 3 5 9 1 25 53;
157: 1 3 1 13 9 35 107; 167: 1 3 1 5 27 61 31; 171: 1 1 5 11 19 41 61; 185: 1 3 5 3 3 13 69;
191: 1 1 7 13 1 19 1; 193: 1 3 7 5 13 19 59; 203: 1 1 3 9 25 29 41; 211: 1 3 5 13 23 1 55;
213: 1 3 7 3 13 59 17; 229: 1 3 1 3 5 53 69; 239: 1 1 5 5 23 33 13; 241: 1 1 7 7 1 61 123;
247: 1 1 7 9 13 61 49; 253: 1 3 3 5 3 55 33
"""
MOST_TABLED = SOBOL_TABLE.count(":") + 1  # coordinates


def sobol_uniforms(d: int, log2_n: int, seed: int) -> Array:
    """2^log2_n scrambled Sobol points of (0, 1)^d.

    The scrambling is that of Matousek (1998): random lower triangular matrices over two elements,
    and a random shift. Each point is uniform.
    """
    rng = np.random.default_rng(seed)
    if d > MOST_TABLED:
        from scipy.stats import qmc  # at first use: scipy.stats is slow to import

        points = qmc.Sobol(d, scramble=True, seed=rng).random_base2(log2_n)
        return np.clip(points, SOBOL_MARGIN, 1.0 - SOBOL_MARGIN)
    directions = _scramble(sobol_directions(d, log2_n), rng)
    points = np.empty((2**log2_n, d), np.uint64)
    points[0] = rng.integers(0, 2**SOBOL_BITS, d, np.uint64)
    for k, direction in enumerate(directions):
        points[2**k : 2 ** (k + 1)] = points[: 2**k] ^ direction
    return (points + 0.5) * 2.0**-SOBOL_BITS


def sobol_directions(d: int, count: int) -> NDArray[np.uint64]:
    """(count, d) direction numbers: bits of a number are those of the fraction, highest first."""
    columns = [[1] * count]
    for entry in SOBOL_TABLE.split(";")[: d - 1]:
        polynomial, first = entry.split(":")
        coefficients, numbers = int(polynomial), [int(m) for m in first.split()]
        degree = len(numbers)
        for k in range(degree, count):
            numbers.append(numbers[k - degree])
            for lag in range(1, degree + 1):
                if coefficients >> (degree - lag) & 1:
                    numbers[k] ^= numbers[k - lag] << lag
        columns.append(numbers[:count])
    shifts = np.array([SOBOL_BITS - 1 - k for k in range(count)], np.uint64)
    return np.array(columns, np.uint64).T << shifts[:, None]


def _scramble(
    directions: NDArray[np.uint64], rng: np.random.Generator
) -> NDArray[np.uint64]:
    """Direction numbers times a random triangular matrix with a unit diagonal, for each axis."""
    scrambled = np.zeros_like(directions)
    for place in range(len(directions)):  # no direction has lower bits
        bit = 2 ** (SOBOL_BITS - 1 - place)
        column = rng.integers(bit, 2 * bit, directions.shape[1], np.uint64)
        scrambled ^= np.where(directions & np.uint64(bit), column, np.uint64(0))
    return scrambled


def to_normals(uniforms: Array) -> Array:
    """Standard normal quantiles of numbers in (0, 1)."""
    from scipy.special import ndtri

    return ndtri(uniforms)


def sobol_normals(d: int, log2_n: int, seed: int) -> Array:
    """2^log2_n standard normal rows, (2^log2_n, d), by scrambled Sobol points."""
    return to_normals(sobol_uniforms(d, log2_n, seed))


def logsumexp(values: Array, axis: int | None = None) -> Any:
    """log sum exp; that of scipy.special would double the time of the import."""
    top = values.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)  # where all are -inf, so is the result
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(values - top).sum(axis=axis))
    return total + top.reshape(np.shape(total))


def effective_share(log_weights: Array) -> float:
    """Kish's effective number of draws over their number, (sum w)^2 / (n sum w^2)."""
    total, square = logsumexp(log_weights), logsumexp(2.0 * log_weights)
    return float(np.exp(2.0 * total - square) / log_weights.size)
