"""`StudentBase`: a multivariate Student t for heavy tails, and its fit by EM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..data.moments import check_full_rank, compute_moments
from ..data.scaling import Scaling
from ..validation import Array, as_floats, positive
from .base import Base, register_base, sample_rows
from .gaussian import GaussianBase
from .quasirandom import sobol_uniforms, to_normals

LEAST_DEGREES, MOST_DEGREES = 0.5, 200.0  # range of the fit: beyond 200 a t is nearly a Gaussian
FIRST_DEGREES = 10.0  # at which EM starts
DEGREES_TOLERANCE, DEGREES_STEPS = 1e-5, 60  # of the logarithm of the degrees; steps at most
STUDENT_EM_STEPS = 500  # at most
STUDENT_EM_TOLERANCE = 1e-8  # gain of the mean log-likelihood, in nats, below which EM stops
# added to the diagonal of the scale matrix, in squared half-widths of the columns (between their
# 5 % and 95 % quantiles): repeated rows would shrink the matrix to zero
STUDENT_RIDGE = 1e-6
LARGE = 16.0  # from here on four terms of Stirling's series have float64's precision
STIRLING = (1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0)  # of 1 / x, 1 / x^3, ...


@register_base
class StudentBase(Base):
    """Multivariate Student t: the fewer degrees of freedom, the heavier its tails.

    Parameters
    ----------
    centre : array-like, (d,)
        Location.
    scale_matrix : array-like, (d, d)
        Symmetric and positive definite. The covariance is degrees / (degrees - 2) times it where
        degrees > 2.
    degrees : float
        Degrees of freedom, > 0. With very many the density is a Gaussian.

    Attributes
    ----------
    mean : array, (d,)
        The location.
    covariance : array, (d, d)
        Below 3 degrees of freedom, that of 3 degrees.

    Raises
    ------
    ValueError
        The shapes do not match, the matrix is not symmetric positive definite, or degrees <= 0.

    Examples
    --------
    >>> import tgpfast
    >>> base = tgpfast.StudentBase([0.0], [[1.0]], degrees=1.0)  # a Cauchy density
    >>> base.log_density([[0.0]]).round(4).tolist()
    [-1.1447]
    """

    kind = "student"

    def __init__(self, centre: Any, scale_matrix: Any, degrees: float) -> None:
        self.degrees = positive("degrees", degrees)
        self.centre = as_floats(centre, "centre", "(d,)", 1)
        self.scale_matrix = as_floats(scale_matrix, "scale_matrix", "(d, d)", 2)
        try:
            self._gaussian = GaussianBase(self.centre, self.scale_matrix)
        except ValueError as error:
            text = str(error).replace("covariance", "scale_matrix").replace("the mean", "centre")
            raise ValueError(text) from None
        self.mean = self.centre
        degrees = max(self.degrees, 3.0)
        self.covariance = self.scale_matrix * (degrees / (degrees - 2.0))

    @classmethod
    def from_data(cls, X: Any, *, sample_weight: Any = None) -> StudentBase:
        """Maximum likelihood by EM, on at most 20,000 random rows drawn in one pass over X.

        Parameters
        ----------
        X : array-like, data frame, path or iterable of blocks
            Rows, as for ``fit``.
        sample_weight : array-like, (n,), default None
            Weights of the rows.

        Returns
        -------
        StudentBase
            With 0.5 to 200 degrees of freedom.

        Raises
        ------
        ValueError
            Names columns that are constant or linearly dependent.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).standard_t(3, size=(2000, 1))
        >>> bool(2 < tgpfast.StudentBase.from_data(x).degrees < 5)
        True
        """
        return cls.by_em(*sample_rows(X, sample_weight))

    @classmethod
    def by_em(
        cls, x: Array, w: Array, *, start: StudentBase | None = None,
        tolerance: float = STUDENT_EM_TOLERANCE,
    ) -> StudentBase:  # fmt: skip
        """EM on rows x with weights w: the E-step gives `_row_weights`, the M-step weighted
        moments; the degrees of freedom maximize the likelihood given the distances (ECME).

        Parameters
        ----------
        x : (n, d) array
        w : (n,) array
        start : StudentBase, default None
            Where EM begins, such as the base of most of the same rows.
        tolerance : float, default 1e-8
            Gain of the mean log-likelihood below which EM ends.

        Returns
        -------
        StudentBase
        """
        check_full_rank(compute_moments(Blocks(x, sample_weight=w)), None)
        share, d = w / w.sum(), x.shape[1]
        centre = share @ x
        matrix = (x - centre).T * share @ (x - centre)
        low, high = np.quantile(x, (0.05, 0.95), axis=0)  # tails may have any variance
        widths = np.where(high > low, 0.25 * (high - low) ** 2, np.diag(matrix))
        ridge = STUDENT_RIDGE * np.diag(widths)
        degrees, last = FIRST_DEGREES, -np.inf
        if start is not None:
            centre, matrix, degrees = start.centre, start.scale_matrix, start.degrees
        for _ in range(STUDENT_EM_STEPS):
            base = cls(centre, matrix, degrees)
            mean = float(share @ base.log_density_at(x))
            if abs(mean - last) < tolerance:
                break
            last = mean
            weights = share * base._row_weights(x)
            centre = weights @ x / weights.sum()
            centered = x - centre
            matrix = (centered.T * weights) @ centered / weights.sum()
            matrix = 0.5 * (matrix + matrix.T) + ridge
            degrees = _fit_degrees(cls(centre, matrix, degrees)._squared_distances(x), share, d)
        return base

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,)."""
        d, nu = self.dimension, self.degrees
        constant = log_gamma_rise(0.5 * nu, 0.5 * d)[0] - 0.5 * d * np.log(nu * np.pi)
        constant -= np.log(np.diag(self._gaussian.cholesky)).sum()
        return np.asarray(constant - 0.5 * (nu + d) * np.log1p(self._squared_distances(x) / nu))

    def _squared_distances(self, x: Array) -> Array:
        """(x - centre)^T scale_matrix^-1 (x - centre) of every row, (n,)."""
        u = self._gaussian.whiten(x)
        return np.asarray(np.einsum("ij,ij->i", u, u))  # einsum overflows to inf without a warning

    def _row_weights(self, x: Array) -> Array:
        """(nu + d) / (nu + squared distance) of every row, (n,)."""
        distances = self._squared_distances(x)
        return np.asarray((self.degrees + self.dimension) / (self.degrees + distances))

    def score_at(self, x: Array) -> Array:
        """Gradient of the log density at checked rows, (n, d)."""
        return self._row_weights(x)[:, None] * self._gaussian.score_at(x)

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in column k, (n,)."""
        slope = np.square(self.score_at(x) * stretch).sum(axis=1)
        curvature = self._row_weights(x) * self._gaussian.laplacian_at(x, stretch)
        return np.asarray(curvature + 2.0 * slope / (self.degrees + self.dimension))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d)."""
        normals = rng.standard_normal((n, self.dimension))
        return self._combine(normals, rng.chisquare(self.degrees, n))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n draws made of scrambled Sobol points, (2^log2_n, d)."""
        from scipy.special import gammaincinv

        points = sobol_uniforms(self.dimension + 1, log2_n, seed)
        chi_squares = 2.0 * gammaincinv(0.5 * self.degrees, points[:, 0])
        return self._combine(to_normals(points[:, 1:]), chi_squares)

    def _combine(self, normals: Array, chi_squares: Array) -> Array:
        """Draws from standard normals (n, d) and chi-square variables of nu degrees (n,)."""
        factors = np.sqrt(self.degrees / chi_squares)[:, None]
        return np.asarray(self.centre + factors * (normals @ self._gaussian.cholesky.T))

    def rescaled(self, scaling: Scaling) -> StudentBase:
        """The same base in the coordinates u = (x - shift) / scale."""
        units = np.outer(scaling.scale, scaling.scale)
        centre = scaling.apply(self.centre[None])[0]
        return StudentBase(centre, self.scale_matrix / units, self.degrees)

    def parameters(self) -> dict[str, Any]:
        """Centre, scale matrix, and the degrees of freedom as an array (1,)."""
        return {
            "centre": self.centre, "scale_matrix": self.scale_matrix,
            "degrees": np.array([self.degrees]),
        }  # fmt: skip

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> StudentBase:
        """The inverse of `parameters`."""
        (degrees,) = parameters["degrees"]
        return cls(parameters["centre"], parameters["scale_matrix"], degrees)

    def __repr__(self) -> str:
        return f"StudentBase(degrees={self.degrees:.4g}, d={self.dimension})"


def log_gamma_rise(a: float, step: float) -> tuple[float, float]:
    """log Gamma(a + step) - log Gamma(a), and its derivative with respect to a.

    The difference of two values of a log-gamma function would cancel where a is large, and the
    import of scipy.special takes as long as a fit of a few hundred rows.

    Parameters
    ----------
    a, step : float
        Above 0.

    Examples
    --------
    >>> value, slope = log_gamma_rise(4.0, 1.0)  # of log 4: Gamma(x + 1) is x Gamma(x)
    >>> math.isclose(value, math.log(4.0)), math.isclose(slope, 0.25)
    (True, True)
    """
    value = slope = 0.0
    while a < LARGE:  # log Gamma(x) = log Gamma(x + 1) - log x
        value -= math.log1p(step / a)
        slope += 1.0 / a - 1.0 / (a + step)
        a += 1.0
    end, grown = a + step, math.log1p(step / a)
    value += (a - 0.5) * grown + step * math.log(end) - step
    slope += grown - 0.5 / end + 0.5 / a
    for k, factor in enumerate(STIRLING):
        power = 2 * k + 1
        value += factor * (end**-power - a**-power)
        slope -= factor * power * (end ** -(power + 1) - a ** -(power + 1))
    return value, slope


def _fit_degrees(distances: Array, share: Array, d: int) -> float:
    """Degrees of freedom that maximize the likelihood of given squared distances.

    The slope of the likelihood in log nu falls through zero; regula falsi with the Illinois rule
    finds where (scipy.optimize takes longer to import than a fit of few rows does).
    """

    def slope(log_nu: float) -> float:
        nu = np.exp(log_nu)
        constant = log_gamma_rise(0.5 * nu, 0.5 * d)[1] - d / nu
        terms = np.log1p(distances / nu) - (nu + d) / nu * (distances / (nu + distances))
        return 0.5 * float(nu * (constant - share @ terms))

    ends = [float(np.log(LEAST_DEGREES)), float(np.log(MOST_DEGREES))]
    slopes = [slope(end) for end in ends]
    if slopes[1] >= 0.0 or slopes[0] <= 0.0:
        return MOST_DEGREES if slopes[1] >= 0.0 else LEAST_DEGREES
    replaced = -1  # the end that was replaced last
    for _ in range(DEGREES_STEPS):
        middle = (ends[0] * slopes[1] - ends[1] * slopes[0]) / (slopes[1] - slopes[0])
        found = slope(middle)
        side = 0 if found > 0.0 else 1
        change, ends[side], slopes[side] = abs(middle - ends[side]), middle, found
        if side == replaced:
            slopes[1 - side] *= 0.5
        replaced = side
        if min(change, ends[1] - ends[0]) < DEGREES_TOLERANCE:
            break
    return float(np.exp(middle))
