"""The Gaussian base that the features tilt: log density, score, samples, moments of features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from . import kernels
from .blocks import Blocks
from .features import Array, Features, as_floats
from .scaling import check_full_rank, moments_of


@dataclass(frozen=True, eq=False)
class GaussianBase:
    """N(x | mean, covariance).

    Parameters
    ----------
    mean : (d,) array
    covariance : (d, d) array, symmetric positive definite
    report : dict, optional: how ``learn_base`` found it
    """

    mean: Array
    covariance: Array
    report: dict[str, Any] | None = field(default=None, kw_only=True, repr=False)
    _cholesky: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        mean = as_floats(self.mean, "mean", "(d,)", 1)
        covariance = as_floats(self.covariance, "covariance", "(d, d)", 2)
        if covariance.shape != (len(mean), len(mean)) or len(mean) == 0:
            raise ValueError(
                f"covariance must have shape {(len(mean), len(mean))} to go with the mean, "
                f"got {covariance.shape}"
            )
        if not np.allclose(covariance, covariance.T, rtol=1e-8, atol=0.0):
            raise ValueError("covariance must be symmetric")
        try:
            cholesky = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            values = np.linalg.eigvalsh(covariance)
            raise ValueError(
                "covariance must be positive definite; its eigenvalues run from "
                f"{values[0]:.3g} to {values[-1]:.3g}. Remove constant or duplicate columns, or "
                "add to its diagonal"
            ) from None
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)
        object.__setattr__(self, "_cholesky", cholesky)

    @classmethod
    def from_data(cls, X: Any, *, sample_weight: Any = None) -> GaussianBase:
        """Weighted mean and covariance (divided by n) of X, in one pass over its blocks."""
        blocks = Blocks(X, sample_weight=sample_weight)
        moments = moments_of(blocks)
        check_full_rank(moments, blocks.table.columns)
        return cls(moments.mean, moments.covariance)

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.mean)

    def _rows(self, X: Any) -> Array:
        return Blocks(X, dimension=self.dimension).whole()

    def _whiten(self, x: Array) -> Array:
        whitened: Array = solve_triangular(
            self._cholesky, (x - self.mean).T, lower=True, check_finite=False
        ).T
        return whitened

    def log_density(self, X: Any) -> Array:
        """log N(x | mean, covariance) of every row, (n,)."""
        return self._log_density(self._rows(X))

    def _log_density(self, x: Array) -> Array:
        u = self._whiten(x)
        constant = np.log(np.diag(self._cholesky)).sum() + 0.5 * self.dimension * np.log(2 * np.pi)
        return -0.5 * np.einsum("ij,ij->i", u, u) - constant

    def score(self, X: Any) -> Array:
        """Gradient of the log density, -covariance^-1 (x - mean), (n, d)."""
        return self._score(self._rows(X))

    def _score(self, x: Array) -> Array:
        whitened = self._whiten(x).T
        gradient: Array = -solve_triangular(self._cholesky, whitened, trans="T", lower=True).T
        return gradient

    def sample(self, n: int, seed: int = 0) -> Array:
        """n independent draws, (n, d)."""
        rng = np.random.default_rng(seed)
        return self.mean + rng.standard_normal((n, self.dimension)) @ self._cholesky.T

    def feature_moments(
        self, features: Features, *, backend: str = "auto", n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """Mean mu_phi (S,) and covariance Sigma_phi (S, S) of phi(x), x from this base.

        mu_phi = exp(-z^T Sigma z / (2 gamma^2)) phi(mean) (Eq. muphi); Sigma_phi is Eq. sigphi.
        """
        if features.dimension != self.dimension:
            raise ValueError(
                f"features of dimension {features.dimension} do not go with a base of dimension "
                f"{self.dimension}"
            )
        z, gamma, S = features.frequencies, features.bandwidth, features.n_features
        u = np.ascontiguousarray(z @ self._cholesky) / gamma
        angle = z @ self.mean / gamma + features.phases
        phi, dphi = np.sqrt(2 / S) * np.cos(angle), -np.sqrt(2 / S) * np.sin(angle)
        mu_phi = np.exp(-0.5 * np.einsum("sk,sk->s", u, u)) * phi
        sigma_phi = np.empty((S, S))
        module = kernels.load(backend)
        count = kernels.resolve_threads(module, n_threads)
        with kernels.threads(module, count):
            module.sigma_phi(u, phi, dphi, mu_phi, sigma_phi, count)
        return mu_phi, sigma_phi

    def __repr__(self) -> str:
        return f"GaussianBase(mean={self.mean.tolist()}, covariance={self.covariance.tolist()})"
