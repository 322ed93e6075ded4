"""What the features tilt: any density with a score. Here what all have in common, and the Gaussian;
mixtures and heavy tails have files of their own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from .. import kernels
from ..data.blocks import Blocks, as_blocks
from ..data.moments import check_full_rank, moments_of
from ..data.scaling import Scaling
from ..features.random import Features
from ..validation import Array, as_floats, check_derivative, whole, without_far
from .quasirandom import sobol_normals


class Base:
    """A density that can be tilted. Children give the methods that begin with an underscore, which
    take checked rows, and ``mean`` and ``covariance``, of the whole, about which others compute."""

    kind: ClassVar[str]
    mean: Array
    covariance: Array

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.mean)

    @property
    def fingerprint(self) -> str:
        """Hash of the parameters."""
        digest = hashlib.sha256(self.kind.encode())
        for array in self.parameters().values():
            digest.update(repr(array.shape).encode() + array.astype("<f8").tobytes())
        return digest.hexdigest()

    def _rows(self, X: Any) -> Array:
        return Blocks(X, dimension=self.dimension).whole()

    def log_density(self, X: Any) -> Array:
        """Log density of every row, (n,); -inf where the square of a distance overflows."""
        x, far = without_far(self._rows(X), self.mean, np.diag(self.covariance))
        values = self.log_density_at(x)
        values[far] = -np.inf
        return values

    def score(self, X: Any) -> Array:
        """Gradient of the log density, (n, d).

        ValueError names the first row that is so far away that it is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            score = self.score_at(self._rows(X))
        check_derivative("score", score, np.zeros(len(score), bool), 0)
        return score

    def sample(self, n: int, seed: int = 0) -> Array:
        """n independent draws, (n, d)."""
        return self.draw(whole("n", n, 0), np.random.default_rng(whole("seed", seed, 0)))

    def feature_moments(
        self, features: Features, *, backend: str = "auto", n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """Mean mu_phi (S,) and covariance Sigma_phi (S, S) of phi(x), x from this base."""
        raise ValueError(
            f"{type(self).__name__} has no closed form for the moments of features, which "
            'method="fvpd" needs; use "fd" or "map"'
        )

    def log_density_at(self, x: Array) -> Array:
        raise NotImplementedError

    def score_at(self, x: Array) -> Array:
        raise NotImplementedError

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Sum over k of stretch_k^2 times the second derivative of the log density, (n,)."""
        raise NotImplementedError

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        raise NotImplementedError

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n draws made of scrambled Sobol points."""
        raise NotImplementedError

    def parameters(self) -> dict[str, Array]:
        """The parameters, by the names they are saved under."""
        raise NotImplementedError

    def rescaled(self, scaling: Scaling) -> Base:
        """The same base in the coordinates that the scaling leads to."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class GaussianBase(Base):
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
    cholesky: Array = field(init=False, repr=False)

    kind = "gaussian"

    def __post_init__(self) -> None:
        mean = as_floats(self.mean, "mean", "(d,)", 1)
        covariance = as_floats(self.covariance, "covariance", "(d, d)", 2)
        if covariance.shape != (len(mean), len(mean)) or len(mean) == 0:
            raise ValueError(
                f"covariance must have shape {(len(mean), len(mean))} to go with the mean, "
                f"got {covariance.shape}"
            )
        root = np.sqrt(np.abs(np.diag(covariance)))  # what an entry is measured by
        if (np.abs(covariance - covariance.T) > 1e-8 * np.outer(root, root)).any():
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
        object.__setattr__(self, "cholesky", cholesky)

    @classmethod
    def from_data(cls, X: Any, *, sample_weight: Any = None) -> GaussianBase:
        """Weighted mean and covariance (divided by n) of X, in one pass over its blocks."""
        blocks = as_blocks(X, sample_weight=sample_weight)
        moments = moments_of(blocks)
        check_full_rank(moments, blocks.table.columns)
        return cls(moments.mean, moments.covariance)

    def whiten(self, x: Array) -> Array:
        whitened: Array = solve_triangular(
            self.cholesky, (x - self.mean).T, lower=True, check_finite=False
        ).T
        return whitened

    def log_density_at(self, x: Array) -> Array:
        u = self.whiten(x)
        constant = np.log(np.diag(self.cholesky)).sum() + 0.5 * self.dimension * np.log(2 * np.pi)
        return -0.5 * np.einsum("ij,ij->i", u, u) - constant

    def score_at(self, x: Array) -> Array:
        whitened = self.whiten(x).T
        gradient: Array = -solve_triangular(
            self.cholesky, whitened, trans="T", lower=True, check_finite=False
        ).T
        return gradient

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        root = solve_triangular(self.cholesky, np.diag(stretch), lower=True, check_finite=False)
        return np.full(len(x), -float(np.square(root).sum()))

    def unwhiten(self, w: Array) -> Array:
        return self.mean + w @ self.cholesky.T

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        return self.unwhiten(rng.standard_normal((n, self.dimension)))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        return self.unwhiten(sobol_normals(self.dimension, log2_n, seed))

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
        u = np.ascontiguousarray(z @ self.cholesky) / gamma
        angle = z @ self.mean / gamma + features.phases
        phi, dphi = np.sqrt(2 / S) * np.cos(angle), -np.sqrt(2 / S) * np.sin(angle)
        mu_phi = np.exp(-0.5 * np.einsum("sk,sk->s", u, u)) * phi
        sigma_phi = np.empty((S, S))
        module = kernels.load(backend)
        count = kernels.resolve_threads(module, n_threads)
        with kernels.threads(module, count):
            module.sigma_phi(u, phi, dphi, mu_phi, sigma_phi, count)
        return mu_phi, sigma_phi

    def rescaled(self, scaling: Scaling) -> GaussianBase:
        """The same base in the coordinates that the scaling leads to."""
        covariance = self.covariance / np.outer(scaling.scale, scaling.scale)
        return GaussianBase(scaling.apply(self.mean[None])[0], covariance)

    def parameters(self) -> dict[str, Array]:
        return {"mean": self.mean, "base_covariance": self.covariance}

    def __repr__(self) -> str:
        return f"GaussianBase(mean={self.mean.tolist()}, covariance={self.covariance.tolist()})"
