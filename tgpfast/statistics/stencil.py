"""A derivative from values around a point, for functions whose waves lie in a known band."""

from __future__ import annotations

import functools

import numpy as np

from ..validation import Array

FIT_POINTS = 200  # points of the half band [0, 1] at which the sines are fitted
FINEST_STENCIL = 1e-13  # error below which float64 rounding rules
LEAST_SINES, MOST_SINES = 4, 20  # pairs of offsets tried


@functools.lru_cache
def derivative_stencil(eps: float) -> tuple[Array, Array]:
    """Offsets o and coefficients c with sum_j c_j e^{i o_j y} = i y for |y| <= 1, to about eps.

    Since i y e^{i f y} is the derivative of e^{i f y} in f, these give the derivative of a Fourier
    sum of points in [-1, 1] from its values at f + o_j.

    c_j = -c_-j, so the sum is 2 i sum_j c_j sin(o_j y): sines fitted to y. With o_j = j pi / 2 the
    error falls by a factor of 6 for each j, and the |c_j| add up to less than 2.5.
    """
    y = np.cos(0.5 * np.pi * (np.arange(FIT_POINTS) + 0.5) / FIT_POINTS)
    for size in range(LEAST_SINES, MOST_SINES + 1):
        j = np.arange(1, size + 1)
        sines = 2.0 * np.sin(0.5 * np.pi * np.outer(y, j))
        c = np.linalg.lstsq(sines, y, rcond=1e-14)[0]
        if np.abs(sines @ c - y).max() < 0.3 * max(eps, FINEST_STENCIL):
            break
    return 0.5 * np.pi * np.concatenate([j, -j]), np.concatenate([c, -c])
