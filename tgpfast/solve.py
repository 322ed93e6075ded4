"""Statistics and a base -> parameters of the density. Sees no data and no backend."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve

from .base import GaussianBase
from .features import Array
from .statistics import Statistics


def fd_system(stats: Statistics, base: GaussianBase) -> tuple[Array, Array]:
    """A = ZZ^T * Phi' and b = gamma psi' + |Z|^2 psi of Algorithm 2: (lam gamma^2 I + A) theta = b.

    psi'_s = z_s^T Sigma^-1 (sum phi'_s x - mu sum phi'_s), from sums taken about the origin.
    """
    z, gamma = stats.features.frequencies, stats.features.bandwidth
    about_mean = stats.sum_dphi_x - np.outer(stats.sum_dphi, base.mean - stats.origin)
    scaled = cho_solve((base._cholesky, True), about_mean.T).T
    psi_prime = np.einsum("sk,sk->s", z, scaled)
    b = gamma * psi_prime + np.einsum("sk,sk->s", z, z) * stats.sum_phi
    return (z @ z.T) * stats.gram, b


def fd_theta(stats: Statistics, base: GaussianBase, lam: float) -> Array:
    """theta of Fisher-divergence score matching (Algorithm 2)."""
    system, b = fd_system(stats, base)
    system[np.diag_indices_from(system)] += lam * stats.features.bandwidth**2
    theta: Array = solve(system, b, assume_a="pos", overwrite_a=True)
    return theta
