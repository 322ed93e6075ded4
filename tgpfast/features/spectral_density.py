"""Spectral densities of the kernels: variances of the modes of a lattice, and the distributions of
random frequencies."""

from __future__ import annotations

import numpy as np

from ..validation import Array, check_choice

KERNELS = ("gaussian", "matern12", "matern32", "matern52")
SMOOTH_KERNELS = ("gaussian", "matern52")  # their functions have a Laplacian
_DEGREES = {"matern12": 1, "matern32": 3, "matern52": 5}  # 2 nu, the degrees of freedom of a t


def spectral_density(
    kernel: str, squared_frequencies: Array, bandwidth: float, d: int
) -> Array:
    """Spectral density of a kernel, up to a constant factor: 1 at frequency zero.

    Gaussian: exp(-|w|^2 l^2 / 2). Matern of smoothness nu: (1 + |w|^2 l^2 / (2 nu))^-(nu + d/2).

    Parameters
    ----------
    kernel : {"gaussian", "matern12", "matern32", "matern52"}
    squared_frequencies : array of |w|^2, radians squared per squared unit of x
    bandwidth : float, l > 0
    d : int, dimension of x

    Returns
    -------
    array of the shape of ``squared_frequencies``

    Examples
    --------
    >>> spectral_density("matern12", np.array([0.0, 3.0]), 1.0, 1).tolist()
    [1.0, 0.25]
    """
    check_choice("kernel", kernel, KERNELS)
    scaled = np.asarray(squared_frequencies, dtype=np.float64) * bandwidth**2
    if kernel == "gaussian":
        return np.exp(-0.5 * scaled)
    degrees = _DEGREES[kernel]
    return np.asarray((1.0 + scaled / degrees) ** (-0.5 * (degrees + d)))


def draw_frequency_scales(kernel: str, n: int, rng: np.random.Generator) -> Array:
    """Factors that turn frequencies drawn from a Gaussian into frequencies of another kernel.

    The spectral density of a Matern kernel is a multivariate t with 2 nu degrees of freedom: a
    Gaussian vector over sqrt(chi^2 / (2 nu)).

    Parameters
    ----------
    kernel : as for `spectral_density`
    n : int, number of frequencies
    rng : numpy Generator

    Returns
    -------
    (n,) array ; ones, without a draw, for the Gaussian kernel
    """
    check_choice("kernel", kernel, KERNELS)
    if kernel == "gaussian":
        return np.ones(n)
    degrees = _DEGREES[kernel]
    return np.sqrt(degrees / rng.chisquare(degrees, n))
