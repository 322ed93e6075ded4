"""The closed forms of score matching on arrays: FD (Algorithm 2) and FVPD (Algorithm 4).

`solve` applies them to statistics of all rows, `selection` to sums over a pilot. Both start from
A = ZZ^T * Phi' and b = gamma psi' + |Z|^2 psi, which `statistics.fisher` makes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ..validation import Array
from .linear_systems import cholesky_factor, shifted


def fd_shift(lam: float, bandwidth: float) -> float:
    """What the prior adds to the diagonal of A: (A + lam gamma^2 I) theta = b."""
    return lam * bandwidth**2


def fd_thetas(system: Array, b: Array, lams: Sequence[float], bandwidth: float) -> Array:
    """theta of FD for every lambda, (S, L); nan where rounding leaves the matrix indefinite.

    A Cholesky factor for each lambda takes S^3 / 3 flops; one eigendecomposition, which would serve
    all of them, takes as long as 30.

    Parameters
    ----------
    system : (S, S) array
        A.
    b : (S,) array
    lams : sequence of float
    bandwidth : float
        gamma.

    References
    ----------
    Algorithm 2 of the paper.
    """
    thetas = np.full((len(b), len(lams)), np.nan)
    for k, lam in enumerate(lams):
        with contextlib.suppress(np.linalg.LinAlgError):
            factor = cholesky_factor(shifted(system, fd_shift(lam, bandwidth)))
            thetas[:, k] = cho_solve((factor, True), b, check_finite=False)
    return thetas


def fvpd_system(
    system: Array, b: Array, feature_moments: tuple[Array, Array], bandwidth: float, eta: float,
    *, overwrite: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """(M - lam I, m) of FVPD; neither Sigma-hat nor mu-hat is formed.

    Sigma-hat^-1 = lam I + A / (gamma^2 eta) and Sigma-hat^-1 mu-hat = b / (gamma^2 eta), so that
    M = Sigma_phi + Sigma-hat^-1 and m = mu_phi - b / (gamma^2 eta).

    Parameters
    ----------
    system : (S, S) array
        A.
    b : (S,) array
    feature_moments : (mu_phi, Sigma_phi)
        Mean and covariance of the features under the base.
    bandwidth : float
        gamma.
    eta : float
        Tempering.
    overwrite : bool, default False
        Make M in the memory of A.

    References
    ----------
    Algorithm 4 and Eq. predictive of the paper.
    """
    mu_phi, sigma_phi = feature_moments
    scale = 1.0 / (bandwidth**2 * eta)
    matrix = np.multiply(system, scale, out=system if overwrite else None)
    matrix += sigma_phi
    return matrix, mu_phi - scale * b


def fvpd_exponent(factor: Array, m: Array, phi: Array) -> Array:
    """phi^T M^-1 phi / 2 - phi^T M^-1 m at points whose features are known, (n,).

    Parameters
    ----------
    factor : (S, S) array
        Lower Cholesky factor of M.
    m : (S,) array
    phi : (S, n) array
    """
    half = solve_triangular(factor, phi, lower=True, check_finite=False)
    linear = solve_triangular(factor, m, lower=True, check_finite=False)
    return np.asarray(0.5 * np.einsum("sn,sn->n", half, half) - linear @ half)
