"""Quasi-random points, and sums in log space: what bases and normalisers share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import Array

TINY = 2.0**-40  # scrambled points may be 0 or 1, where quantiles are infinite


def sobol_uniforms(d: int, log2_n: int, seed: int) -> Array:
    """2^log2_n scrambled Sobol points of (0, 1)^d."""
    from scipy.stats import qmc  # on first use: scipy.stats is slow to import

    points = qmc.Sobol(d, scramble=True, seed=np.random.default_rng(seed)).random_base2(log2_n)
    clipped: Array = np.clip(points, TINY, 1.0 - TINY)
    return clipped


def to_normals(uniforms: Array) -> Array:
    """Standard normal quantiles."""
    from scipy.special import ndtri

    normals: Array = ndtri(uniforms)
    return normals


def sobol_normals(d: int, log2_n: int, seed: int) -> Array:
    """2^log2_n standard normal rows by scrambled Sobol points."""
    return to_normals(sobol_uniforms(d, log2_n, seed))


def logsumexp(values: Array, axis: int | None = None) -> Any:
    """log sum exp; scipy.special, which has one too, would double the time of the import."""
    top = values.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)  # all of them -inf: so is the result
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(values - top).sum(axis=axis))
    return total + top.reshape(np.shape(total))


def effective_share(log_weights: Array) -> float:
    """(sum w)^2 / (n sum w^2) of weights given by their logarithms."""
    total, square = logsumexp(log_weights), logsumexp(2.0 * log_weights)
    return float(np.exp(2.0 * total - square) / log_weights.size)
