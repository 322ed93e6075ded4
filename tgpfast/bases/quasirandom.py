"""Quasi-random points, and sums in log space, for bases and normalizers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import Array

# distance of the points from 0 and 1, where quantiles are infinite; normals stay within 7.1
SOBOL_MARGIN = 2.0**-40


def sobol_uniforms(d: int, log2_n: int, seed: int) -> Array:
    """2^log2_n scrambled Sobol points of (0, 1)^d."""
    from scipy.stats import qmc  # at first use: scipy.stats is slow to import

    points = qmc.Sobol(d, scramble=True, seed=np.random.default_rng(seed)).random_base2(log2_n)
    return np.clip(points, SOBOL_MARGIN, 1.0 - SOBOL_MARGIN)


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
