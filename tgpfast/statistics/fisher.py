"""The linear systems of score matching, from statistics alone (Algorithms 2 and 3 of the paper).

Notation: Z (S, d) holds the frequencies, gamma is the bandwidth, * multiplies element by element.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..features.random import Features
from ..validation import Array
from .statistics import Statistics

STRIP_ROWS = 512  # rows of ZZ^T computed at a time: 4 MB for 1,000 features


def fd_system(stats: Statistics, base: Base) -> tuple[Array, Array]:
    """A and b of (lam gamma^2 I + A) theta = b, the system of FD.

    A = ZZ^T * Phi' and b = gamma psi' + |Z|^2 psi, with psi = sum phi and
    psi'_s = -z_s^T sum phi'_s s0(x), where s0 is the score of the base. For a Gaussian base psi' is
    z_s^T Sigma^-1 (sum phi'_s x - mu sum phi'_s).

    Parameters
    ----------
    stats : Statistics
        For a base that is not Gaussian, made by ``accumulate(..., base=base)``.
    base : Base

    Returns
    -------
    A : (S, S) array
    b : (S,) array

    References
    ----------
    Algorithm 2 of the paper.
    """
    z = stats.features.frequencies
    if isinstance(base, GaussianBase):
        psi_prime = _psi_prime(
            z, stats.sum_dphi, stats.sum_dphi_x, stats, base.cholesky, base.mean
        )
    elif stats.sum_dphi_score is None or stats.score_base != base.fingerprint:
        raise ValueError(
            f"these statistics lack the score of this {type(base).__name__}; make them by "
            "accumulate(..., base=base)"
        )
    else:
        psi_prime = -np.einsum("sk,sk->s", z, stats.sum_dphi_score)
    return score_matching_system(stats.features, stats.gram, stats.sum_phi, psi_prime)


def score_matching_system(
    features: Features, gram: Array, sum_phi: Array, psi_prime: Array
) -> tuple[Array, Array]:
    """A = ZZ^T * Phi' and b = gamma psi' + |Z|^2 psi, from Phi', psi and psi'."""
    z, gamma = features.frequencies, features.bandwidth
    return _times_outer(gram, z), gamma * psi_prime + np.einsum("sk,sk->s", z, z) * sum_phi


def ncfd_system(stats: Statistics, base: Base) -> tuple[Array, Array]:
    """ZZ^T * A and b of (lam H I + ZZ^T * A) theta = b, the system of NCFD.

    Parameters
    ----------
    stats : Statistics
        With noise levels.
    base : Base
        A `GaussianBase`.

    Returns
    -------
    matrix : (S, S) array
    b : (S,) array

    References
    ----------
    Algorithm 3 of the paper.
    """
    if not isinstance(base, GaussianBase):
        raise ValueError(
            f'method="ncfd" needs a GaussianBase, and this is a {type(base).__name__}; use "fd", '
            '"map" or, with a mixture, "fvpd"'
        )
    if stats.noise_gram is None:
        raise ValueError(
            'method="ncfd" needs statistics with noise levels: accumulate(..., noise_levels=...)'
        )
    z, b = stats.features.frequencies, np.zeros(stats.features.n_features)
    norms = np.einsum("sk,sk->s", z, z)
    for h, sigma in enumerate(stats.noise_levels):
        gamma = np.hypot(stats.features.bandwidth, sigma)
        delta = np.exp(-0.5 * (sigma / gamma) ** 2 * norms)
        noisy = np.linalg.cholesky(base.covariance + sigma**2 * np.eye(base.dimension))
        psi_prime = _psi_prime(
            z, stats.noise_sum_dphi[h], stats.noise_sum_dphi_x[h], stats, noisy, base.mean
        )
        # |Z (I - sigma^2 Sigma_sigma^-1)^(1/2)|^2 = z^T (Sigma Sigma_sigma^-1) z
        shrunk = norms - sigma**2 * np.einsum("sk,ks->s", z, cho_solve((noisy, True), z.T))
        b += delta * (psi_prime / gamma + shrunk * stats.noise_sum_phi[h] / gamma**2)
    return _times_outer(stats.noise_gram, z), b


def _psi_prime(
    z: Array, sum_dphi: Array, sum_dphi_x: Array, stats: Statistics, cholesky: Array, mean: Array
) -> Array:
    """z_s^T C^-1 (sum phi'_s x - mean sum phi'_s), where C = cholesky cholesky^T."""
    about_mean = sum_dphi_x - np.outer(sum_dphi, mean - stats.origin)
    return np.einsum("sk,ks->s", z, cho_solve((cholesky, True), about_mean.T))


def _times_outer(gram: Array, z: Array) -> Array:
    """ZZ^T * gram, strip by strip: one S x S array is allocated, not two."""
    system = np.empty_like(gram)
    for start in range(0, len(z), STRIP_ROWS):
        rows = slice(start, start + STRIP_ROWS)
        np.matmul(z[rows], z.T, out=system[rows])
        system[rows] *= gram[rows]
    return system
