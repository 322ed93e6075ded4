"""The window by which a function on a regular grid is read between its nodes.

A wave e^{i w x} on a grid of step 1 is read as sum_j c e^{i w j} window(j - x), c one over the
window's Fourier transform at w. What remains is aliasing: the transform at w + 2 pi r over that at
w, for r other than 0, so the window's transform must fall fast. A Kaiser-Bessel window of order 1
does, and is continuous; it is stored as polynomials between nodes.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ...kernels import WINDOW_DEGREE, WINDOW_NODES
from ...validation import Array

SHAPE = 0.975  # beta over the one whose transform ends just beyond the waves: least error
BESSEL_TERMS = 60  # terms of the series; the others are below 1e-17 of the sum for x up to 30
ERROR_PLACES = 65  # places between two nodes at which the error of a wave is computed


@functools.lru_cache(maxsize=8)
def window_pieces(oversampling: float) -> Array:
    """Polynomials of the window for waves up to 1 / (2 oversampling) of the grid's frequency.

    window(t) = s I_1(beta s) / I_1(beta), s = sqrt(1 - (t / 4)^2), |t| <= 4.

    Parameters
    ----------
    oversampling : float
        Nodes of the grid over twice the largest wave number.

    Returns
    -------
    (10, 8) array
        The window at l - 4 + z is sum_q pieces[q, l] z^q for 0 <= z < 1.
    """
    half = 0.5 * WINDOW_NODES
    beta = SHAPE * math.pi * WINDOW_NODES * (1.0 - 0.5 / oversampling)
    # places that include both ends, so that neighboring pieces meet
    z = 0.5 - 0.5 * np.cos(np.pi * np.arange(WINDOW_DEGREE + 1) / WINDOW_DEGREE)
    place = (np.arange(WINDOW_NODES) + z[:, None] - half) / half
    s = np.sqrt(np.maximum(1.0 - np.square(place), 0.0))
    values = s * bessel_i1(beta * s) / bessel_i1(np.array([beta]))
    pieces = np.asarray(np.linalg.solve(np.vander(z, increasing=True), values), np.float64)
    pieces.setflags(write=False)
    return pieces


def bessel_i1(x: Array) -> Array:
    """Modified Bessel function I_1 of 0 <= x <= 30, by its series, whose terms are not negative.

    The import of scipy.special takes as long as the rest of a first fit of one column.
    """
    quarter = 0.25 * np.square(x)
    terms = 1.0 / np.cumprod([1.0, *(k * (k + 1.0) for k in range(1, BESSEL_TERMS))])
    value: Array = 0.5 * x * np.polynomial.polynomial.polyval(quarter, terms)
    return value


def window_transform(pieces: Array, angles: Array) -> Array:
    """Integral of window(t) cos(angle t) for every angle, in radians a step."""
    nodes, weights = np.polynomial.legendre.leggauss(2 * (WINDOW_DEGREE + 1))
    z, weights = 0.5 + 0.5 * nodes, 0.5 * weights
    values = np.vander(z, len(pieces), increasing=True) @ pieces
    place = np.arange(WINDOW_NODES) + z[:, None] - 0.5 * WINDOW_NODES
    integrand = np.cos(np.multiply.outer(angles, place))
    return np.asarray(np.einsum("azl,zl,z->a", integrand, values, weights))


def wave_errors(pieces: Array, angles: Array) -> Array:
    """Largest error, between two nodes, of a wave of size 1 for every angle, in radians a step."""
    z = np.linspace(0.0, 1.0, ERROR_PLACES)
    values = np.vander(z, len(pieces), increasing=True) @ pieces
    place = np.arange(WINDOW_NODES) + z[:, None] - 0.5 * WINDOW_NODES
    waves = np.exp(1j * np.multiply.outer(angles, place))
    read = np.einsum("azl,zl->az", waves, values) / window_transform(pieces, angles)[:, None]
    return np.asarray(np.abs(read - 1.0).max(axis=1))
