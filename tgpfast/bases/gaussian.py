"""`GaussianBase`: the Gaussian that the paper tilts, and coordinates that whiten any base."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from .. import kernels
from ..data.blocks import as_blocks
from ..data.moments import check_full_rank, compute_moments
from ..data.scaling import Scaling
from ..features.delta_weights import delta_weights
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..validation import Array, as_floats
from .base import Base, register_base
from .quasirandom import sobol_normals


@register_base
class GaussianBase(Base):
    """The Gaussian N(x | mean, covariance), the base of the paper.

    It is that of Eq. density.

    Parameters
    ----------
    mean : array-like, (d,)
    covariance : array-like, (d, d)
        Symmetric and positive definite.
    report : dict, default None
        How ``learn_base`` found this base.

    Attributes
    ----------
    cholesky : array, (d, d)
        Lower triangular root L of the covariance, L L^T.

    Raises
    ------
    ValueError
        The shapes do not match, or the covariance is not symmetric positive definite.

    Examples
    --------
    >>> import tgpfast
    >>> base = tgpfast.GaussianBase([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])
    >>> base.dimension
    2
    >>> base.sample(3, seed=0).shape
    (3, 2)
    """

    kind = "gaussian"

    def __init__(
        self, mean: Any, covariance: Any, *, report: dict[str, Any] | None = None
    ) -> None:
        self.mean = mean = as_floats(mean, "mean", "(d,)", 1)
        self.covariance = covariance = as_floats(covariance, "covariance", "(d, d)", 2)
        self.report = report
        if covariance.shape != (len(mean), len(mean)) or len(mean) == 0:
            raise ValueError(
                f"covariance must have shape {(len(mean), len(mean))} to go with the mean, "
                f"got {covariance.shape}"
            )
        root = np.sqrt(np.abs(np.diag(covariance)))  # entries are compared in these units
        if (np.abs(covariance - covariance.T) > 1e-8 * np.outer(root, root)).any():
            raise ValueError("covariance must be symmetric")
        try:
            self.cholesky = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            values = np.linalg.eigvalsh(covariance)
            raise ValueError(
                "covariance must be positive definite; its eigenvalues run from "
                f"{values[0]:.3g} to {values[-1]:.3g}. Remove constant or duplicate columns, or "
                "add to its diagonal"
            ) from None

    @classmethod
    def from_data(cls, X: Any, *, sample_weight: Any = None) -> GaussianBase:
        """The Gaussian with the mean and covariance of the rows of X, in one pass over them.

        Parameters
        ----------
        X : array-like, data frame, path or iterable of blocks
            Rows, as for ``fit``.
        sample_weight : array-like, (n,), default None
            Weights of the rows.

        Returns
        -------
        GaussianBase
            Its covariance is the weighted sum of squares divided by the sum of the weights.

        Raises
        ------
        ValueError
            Names columns that are constant or linearly dependent.

        Examples
        --------
        >>> import tgpfast
        >>> tgpfast.GaussianBase.from_data([[0.0], [2.0]]).covariance.tolist()
        [[1.0]]
        """
        blocks = as_blocks(X, sample_weight=sample_weight)
        moments = compute_moments(blocks)
        check_full_rank(moments, blocks.table.columns)
        return cls(moments.mean, moments.covariance)

    def whiten(self, x: Array) -> Array:
        """Coordinates w = L^-1 (x - mean) of rows, (n, d): mean 0, covariance I.

        Parameters
        ----------
        x : array, (n, d)
        """
        return solve_triangular(
            self.cholesky, (x - self.mean).T, lower=True, check_finite=False
        ).T

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,)."""
        u = self.whiten(x)
        constant = np.log(np.diag(self.cholesky)).sum() + 0.5 * self.dimension * np.log(2 * np.pi)
        return -0.5 * np.einsum("ij,ij->i", u, u) - constant

    def score_at(self, x: Array) -> Array:
        """-covariance^-1 (x - mean) at checked rows, (n, d)."""
        whitened = self.whiten(x).T
        return -solve_triangular(
            self.cholesky, whitened, trans="T", lower=True, check_finite=False
        ).T

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in column k, (n,): a constant."""
        root = solve_triangular(self.cholesky, np.diag(stretch), lower=True, check_finite=False)
        return np.full(len(x), -float(np.square(root).sum()))

    def unwhiten(self, w: Array) -> Array:
        """Rows x = mean + L w of whitened coordinates, (n, d).

        Parameters
        ----------
        w : array, (n, d)
        """
        return self.mean + w @ self.cholesky.T

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d)."""
        return self.unwhiten(rng.standard_normal((n, self.dimension)))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n draws made of scrambled Sobol points, (2^log2_n, d)."""
        return self.unwhiten(sobol_normals(self.dimension, log2_n, seed))

    def feature_moments(
        self, features: Features, *, backend: str = "auto", n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """Mean and covariance of the features phi(x), x from this base, in closed form.

        mu_phi = exp(-z^T Sigma z / (2 gamma^2)) phi(mean), Eq. muphi of the paper; Sigma_phi is
        Eq. sigphi.

        Parameters
        ----------
        features : Features
            S random Fourier features of the same dimension.
        backend : {"auto", "numba", "cython", "numpy"}, default "auto"
        n_threads : int, default None
            All threads by default.

        Returns
        -------
        mu_phi : array, (S,)
        sigma_phi : array, (S, S)

        Raises
        ------
        ValueError
            The features have another dimension.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> features = tgpfast.Features.draw(4, 1.0, np.eye(2), seed=0)
        >>> base = tgpfast.GaussianBase(np.zeros(2), np.eye(2))
        >>> mean, covariance = base.feature_moments(features)
        >>> mean.shape, covariance.shape
        ((4,), (4, 4))
        """
        if features.dimension != self.dimension:
            raise ValueError(
                f"features of dimension {features.dimension} do not go with a base of dimension "
                f"{self.dimension}"
            )
        z, gamma, S = features.frequencies, features.bandwidth, features.n_features
        u = np.ascontiguousarray(z @ self.cholesky) / gamma
        angle = z @ self.mean / gamma + features.phases
        phi, dphi = np.sqrt(2 / S) * np.cos(angle), -np.sqrt(2 / S) * np.sin(angle)
        mu_phi = np.exp(-0.5 * np.einsum("sk,sk->s", u, u)) * phi
        sigma_phi = np.empty((S, S))
        with kernels.threads(*Threads(backend, n_threads).resolve()):  # BLAS on one thread
            for rows, minus, plus in delta_weights(u):
                sigma_phi[rows] = (minus + plus) * np.outer(0.5 * phi[rows], phi)
                sigma_phi[rows] += (minus - plus) * np.outer(0.5 * dphi[rows], dphi)
                sigma_phi[rows] -= np.outer(mu_phi[rows], mu_phi)
        return mu_phi, sigma_phi

    def rescaled(self, scaling: Scaling) -> GaussianBase:
        """The same base in the coordinates u = (x - shift) / scale."""
        covariance = self.covariance / np.outer(scaling.scale, scaling.scale)
        return GaussianBase(scaling.apply(self.mean[None])[0], covariance)

    def parameters(self) -> dict[str, Any]:
        """Mean and covariance."""
        return {"mean": self.mean, "covariance": self.covariance}

    def __repr__(self) -> str:
        return f"GaussianBase(mean={self.mean.tolist()}, covariance={self.covariance.tolist()})"


def whitening_gaussian(base: Base) -> GaussianBase:
    """The Gaussian with the mean and covariance of a base: its coordinates whiten the base."""
    return base if isinstance(base, GaussianBase) else GaussianBase(base.mean, base.covariance)
