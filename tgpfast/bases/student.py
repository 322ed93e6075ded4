"""A multivariate Student t as base, for heavy tails, and its fit by expectation maximisation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.blocks import Blocks, as_blocks
from ..data.moments import check_full_rank, moments_and_sample, moments_of
from ..data.row_sample import SAMPLE_ROWS
from ..data.scaling import Scaling
from ..validation import Array, as_floats, positive
from .gaussian import Base, GaussianBase
from .quasirandom import sobol_uniforms, to_normals

LEAST_DEGREES, MOST_DEGREES = 0.5, 200.0  # between which they are sought
EM_ROWS, EM_STEPS, EM_TOLERANCE = SAMPLE_ROWS, 500, 1e-8
RIDGE = 1e-6  # of the bulk's squared width, added to the scales, which repeated rows would shrink


@dataclass(frozen=True, eq=False)
class StudentBase(Base):
    """Student t with ``degrees`` of freedom: heavier tails the fewer, a Gaussian in the limit.

    Parameters
    ----------
    centre : (d,) location
    scale_matrix : (d, d), symmetric positive definite; the covariance is degrees / (degrees - 2)
        times it, where that exists
    degrees : of freedom, > 0
    """

    centre: Array
    scale_matrix: Array
    degrees: float

    kind = "student"

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", positive("degrees", self.degrees))
        object.__setattr__(self, "centre", as_floats(self.centre, "centre", "(d,)", 1))
        matrix = as_floats(self.scale_matrix, "scale_matrix", "(d, d)", 2)
        object.__setattr__(self, "scale_matrix", matrix)
        try:
            self._normal  # noqa: B018 - judges both
        except ValueError as error:
            text = str(error).replace("covariance", "scale_matrix").replace("the mean", "centre")
            raise ValueError(text) from None

    @classmethod
    def from_data(cls, X: Any, *, sample_weight: Any = None) -> StudentBase:
        """Maximum likelihood by EM on at most 20,000 random rows of X, in one pass over it."""
        blocks = as_blocks(X, sample_weight=sample_weight)
        moments, sample = moments_and_sample(blocks)
        check_full_rank(moments, blocks.table.columns)
        moments.check_range()
        x, w = sample.take(EM_ROWS)
        return cls._by_em(x, np.ones(len(x)) if w is None else w)

    @classmethod
    def _by_em(cls, x: Array, w: Array) -> StudentBase:
        """Each row counts (nu + d) / (nu + its squared distance); nu from its own equation."""
        check_full_rank(moments_of(Blocks(x, sample_weight=w)), None)
        share, d = w / w.sum(), x.shape[1]
        centre = share @ x
        matrix = (x - centre).T * share @ (x - centre)
        low, high = np.quantile(x, (0.05, 0.95), axis=0)  # tails may have any variance
        ridge = RIDGE * np.diag(np.where(high > low, 0.25 * (high - low) ** 2, np.diag(matrix)))
        degrees, last = 10.0, -np.inf
        for _ in range(EM_STEPS):
            base = cls(centre, matrix, degrees)
            mean = float(share @ base.log_density_at(x))
            if abs(mean - last) < EM_TOLERANCE:
                break
            last = mean
            pull = share * base._pull(x)
            centre = pull @ x / pull.sum()
            about = x - centre
            matrix = (about.T * pull) @ about / pull.sum()
            matrix = 0.5 * (matrix + matrix.T) + ridge
            degrees = _degrees(cls(centre, matrix, degrees)._distance(x), share, d)
        return base

    @functools.cached_property
    def _normal(self) -> GaussianBase:
        return GaussianBase(self.centre, self.scale_matrix)

    @property
    def mean(self) -> Array:  # type: ignore[override]
        """(d,), the location."""
        return self.centre

    @property
    def covariance(self) -> Array:  # type: ignore[override]
        """(d, d): the covariance, or, where there is none, that of the bulk."""
        return self.scale_matrix * (max(self.degrees, 3.0) / (max(self.degrees, 3.0) - 2.0))

    def log_density_at(self, x: Array) -> Array:
        from scipy.special import betaln, gammaln

        d, nu = self.dimension, self.degrees
        # gammaln((nu + d) / 2) - gammaln(nu / 2), which would cancel where nu is large
        constant = gammaln(0.5 * d) - betaln(0.5 * nu, 0.5 * d) - 0.5 * d * np.log(nu * np.pi)
        constant -= np.log(np.diag(self._normal.cholesky)).sum()
        return np.asarray(constant - 0.5 * (nu + d) * np.log1p(self._distance(x) / nu))

    def _distance(self, x: Array) -> Array:
        """Squared, in units of the scale matrix, (n,)."""
        u = self._normal.whiten(x)
        return np.asarray(np.einsum("ij,ij->i", u, u))  # far rows overflow to inf, quietly

    def _pull(self, x: Array) -> Array:
        """(nu + d) / (nu + squared distance), (n,)."""
        return np.asarray((self.degrees + self.dimension) / (self.degrees + self._distance(x)))

    def score_at(self, x: Array) -> Array:
        return self._pull(x)[:, None] * self._normal.score_at(x)

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        slope = np.square(self.score_at(x) * stretch).sum(axis=1)
        bend = 2.0 * slope / (self.degrees + self.dimension)
        return np.asarray(self._pull(x) * self._normal.laplacian_at(x, stretch) + bend)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        normals = rng.standard_normal((n, self.dimension))
        return self._placed(normals, rng.chisquare(self.degrees, n))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        from scipy.special import gammaincinv

        points = sobol_uniforms(self.dimension + 1, log2_n, seed)
        squares = 2.0 * gammaincinv(0.5 * self.degrees, points[:, 0])
        return self._placed(to_normals(points[:, 1:]), squares)

    def _placed(self, normals: Array, squares: Array) -> Array:
        wide = np.sqrt(self.degrees / squares)[:, None]
        return np.asarray(self.centre + wide * (normals @ self._normal.cholesky.T))

    def rescaled(self, scaling: Scaling) -> StudentBase:
        """The same base in the coordinates that the scaling leads to."""
        by = np.outer(scaling.scale, scaling.scale)
        centre = scaling.apply(self.centre[None])[0]
        return StudentBase(centre, self.scale_matrix / by, self.degrees)

    def parameters(self) -> dict[str, Array]:
        return {
            "base_centre": self.centre, "base_scale_matrix": self.scale_matrix,
            "base_degrees": np.array([self.degrees]),
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"StudentBase(degrees={self.degrees:.4g}, d={self.dimension})"


def _degrees(distance: Array, share: Array, d: int) -> float:
    """Degrees of freedom of the greatest likelihood for given squared distances."""
    from scipy.optimize import minimize_scalar
    from scipy.special import gammaln

    def loss(log_nu: float) -> float:
        nu = np.exp(log_nu)
        terms = 0.5 * (nu + d) * np.log1p(distance / nu)
        constant = gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu) - 0.5 * d * np.log(nu)
        return float(share @ terms - constant)

    bounds = (np.log(LEAST_DEGREES), np.log(MOST_DEGREES))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
