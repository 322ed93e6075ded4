"""`VonMisesBase`: the counterpart of a Gaussian on a circle, for one periodic column."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.scaling import Scaling
from ..validation import Array
from .base import Base, register_base
from .confined_gaussian import confine_gaussian
from .domain import Domain
from .product import ProductBase
from .quasirandom import sobol_uniforms

NEGLIGIBLE_DENSITY = 40.0  # nats below the peak: e^-40 of it
TABLE_NODES = 4097  # of the density, from which quantiles follow to 1e-10 standard deviations
QUANTILE_NEWTON_STEPS = 4  # from linear interpolation in the table to a quantile
# spread 1 - R below which the series of the concentration, 1 / (2 spread) + 1/4, is exact to 1e-8
NARROW_SPREAD = 1e-4


@register_base
class VonMisesBase(Base):
    """The von Mises distribution of one periodic column.

    Its density is exp(concentration cos(2 pi (x - center) / P)) / (P I_0(concentration)), with the
    period P = high - low. ``mean`` is the center, and ``covariance`` the variance about it.

    Parameters
    ----------
    center : float or (1,) array
        Where the density is highest.
    concentration : float or (1,) array
        At least 0, which is the uniform distribution. Large ones are close to a Gaussian of
        standard deviation P / (2 pi sqrt(concentration)).
    low, high : float or (1,) array
        Ends of the period that draws lie in.

    Raises
    ------
    ValueError
        Low is not below high, or the concentration is negative.

    Examples
    --------
    >>> hours = VonMisesBase(23.0, 2.0, 0.0, 24.0)
    >>> bool(np.isclose(*hours.log_density([[22.0], [0.0]])))
    True
    """

    kind = "von_mises"

    def __init__(self, center: Any, concentration: Any, low: Any, high: Any) -> None:
        self.domain = Domain(np.reshape(low, -1), np.reshape(high, -1), [True])
        self.concentration = float(np.reshape(concentration, ()))
        if not 0.0 <= self.concentration < math.inf:
            raise ValueError(f"concentration={self.concentration:g}: expected at least 0")
        self.period = float(self.domain.high[0] - self.domain.low[0])
        self.mean = self.domain.wrap(np.array(center, float).reshape(1, 1))[0]
        angles, density = self._table
        square = float(density @ angles**2 / density.sum())
        self.covariance = np.array([[square * (self.period / (2.0 * math.pi)) ** 2]])

    @classmethod
    def from_data(cls, x: Array, weights: Array, low: float, high: float) -> VonMisesBase:
        """The distribution with the center of some rows, and with the length of their mean vector,
        corrected for the number of rows.

        The mean of n unit vectors that have length rho in the mean has R^2 = rho^2 + (1 - rho^2)/n.
        So rho^2 = (n R^2 - 1) / (n - 1), which is 0 where it is negative; n is Kish's effective
        number of rows.

        Parameters
        ----------
        x : (n,) array
        weights : (n,) array
        low, high : float
            Ends of the period.

        Raises
        ------
        ValueError
            All rows are equal, or there is one.
        """
        share, n = weights / weights.sum(), float(weights.sum() ** 2 / np.square(weights).sum())
        angles = 2.0 * np.pi * (x - low) / (high - low)
        middle = float(np.angle(share @ np.exp(1j * angles)))
        spread = float(share @ (2.0 * np.square(np.sin(0.5 * (angles - middle)))))  # 1 - R
        if not (n > 1.0 and spread > 0.0):
            raise ValueError("a von Mises distribution needs different rows")
        lost = min(spread * (2.0 - spread) * n / (n - 1.0), 1.0)  # 1 - rho^2
        center = low + (high - low) * middle / (2.0 * np.pi)
        return cls(center, find_concentration(lost / (1.0 + math.sqrt(1.0 - lost))), low, high)

    def _angles(self, x: Array) -> Array:
        """Angles about the center, (n,)."""
        return (x[:, 0] - self.mean[0]) * (2.0 * math.pi / self.period)

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,)."""
        from scipy.special import i0e

        log_peak = -math.log(self.period * float(i0e(self.concentration)))
        return log_peak - 2.0 * self.concentration * np.square(np.sin(0.5 * self._angles(x)))

    def score_at(self, x: Array) -> Array:
        """Gradient of the log density, (n, 1)."""
        rate = 2.0 * math.pi / self.period
        return -self.concentration * rate * np.sin(self._angles(x))[:, None]

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """stretch^2 times the second derivative of the log density, (n,)."""
        rate = 2.0 * math.pi / self.period * float(stretch[0])
        return -self.concentration * rate**2 * np.cos(self._angles(x))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, 1)."""
        return self._at_angles(rng.vonmises(0.0, self.concentration, n))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n scrambled Sobol points, by quantiles."""
        return self._at_angles(self._quantiles(sobol_uniforms(1, log2_n, seed)[:, 0]))

    def _at_angles(self, angles: Array) -> Array:
        return self.domain.wrap(self.mean + self.period / (2.0 * math.pi) * angles[:, None])

    @functools.cached_property
    def _table(self) -> tuple[Array, Array]:
        """Equispaced angles over the part of the circle that carries the density, and densities of
        the angle up to a constant."""
        reach = math.pi
        if 2.0 * self.concentration > NEGLIGIBLE_DENSITY:
            reach = 2.0 * math.asin(math.sqrt(0.5 * NEGLIGIBLE_DENSITY / self.concentration))
        angles = np.linspace(-reach, reach, TABLE_NODES)
        return angles, np.exp(-2.0 * self.concentration * np.square(np.sin(0.5 * angles)))

    def _quantiles(self, levels: Array) -> Array:
        """Angles below which these shares of the probability lie."""
        from scipy.interpolate import CubicSpline

        nodes, values = self._table
        density = CubicSpline(nodes, values)
        cdf = density.antiderivative()
        at_nodes = cdf(nodes)
        targets = levels * at_nodes[-1]
        angles = np.interp(targets, at_nodes, nodes)
        for _ in range(QUANTILE_NEWTON_STEPS):
            angles = np.clip(angles - (cdf(angles) - targets) / density(angles), *nodes[[0, -1]])
        return np.asarray(angles)

    def parameters(self) -> dict[str, Array]:
        """Center, concentration, low and high, (1,) each."""
        return {
            "center": self.mean, "concentration": np.array([self.concentration]),
            "low": self.domain.low, "high": self.domain.high,
        }  # fmt: skip

    def rescaled(self, scaling: Scaling) -> VonMisesBase:
        """The same base in the coordinates u = (x - shift) / scale."""
        domain, center = self.domain.rescaled(scaling), scaling.apply(self.mean[None])[0]
        return VonMisesBase(center, self.concentration, domain.low, domain.high)

    def __repr__(self) -> str:
        return (
            f"VonMisesBase(center={self.mean[0]:.6g}, concentration={self.concentration:.6g}, "
            f"low={self.domain.low[0]:.6g}, high={self.domain.high[0]:.6g})"
        )


def find_concentration(spread: float) -> float:
    """The concentration of the von Mises distribution whose mean vector has length 1 - spread.

    It solves I_1(concentration) / I_0(concentration) = 1 - spread.

    Parameters
    ----------
    spread : float
        Above 0 and at most 1.

    Examples
    --------
    >>> round(find_concentration(1.0 - 0.6978), 3)
    2.0
    """
    from scipy.optimize import brentq
    from scipy.special import i0e, i1e

    if spread < NARROW_SPREAD:
        return 0.5 / spread + 0.25
    return float(brentq(lambda k: 1.0 - spread - i1e(k) / i0e(k), 0.0, 1.0 / NARROW_SPREAD))


def confine_to_circles(x: Array, weights: Array, domain: Domain) -> Base:
    """A von Mises distribution for each periodic column, and the Gaussian of the others, cut off at
    walls; all of them independent.

    Parameters
    ----------
    x : (n, d) array
        Rows in the domain.
    weights : (n,) array
    domain : Domain
        With a periodic column at least.

    Examples
    --------
    >>> rows = np.array([[23.0, 1.0], [0.5, 2.0], [1.0, 4.0], [22.5, 3.0]])
    >>> domain = Domain([0.0, -np.inf], [24.0, np.inf], [True, False])
    >>> base = confine_to_circles(rows, np.ones(4), domain)
    >>> base.mean.round(2).tolist()
    [23.75, 2.5]
    """
    others = np.flatnonzero(~domain.periodic).tolist()
    rest = confine_gaussian(x[:, others], weights, domain.choose(others)) if others else None
    return multiply_by_circles(rest, x, weights, domain)


def _fit_von_mises(x: Array, weights: Array, domain: Domain) -> Base:
    return VonMisesBase.from_data(x, weights, float(domain.low[0]), float(domain.high[0]))


def multiply_by_circles(
    rest: Base | None, x: Array, weights: Array, domain: Domain,
    fit: Callable[[Array, Array, Domain], Base] = _fit_von_mises,
) -> Base:  # fmt: skip
    """A base of the columns that are not periodic, times a distribution for each other.

    Parameters
    ----------
    rest : Base or None
        None where all columns are periodic.
    x : (n, d) array
        Rows in the domain.
    weights : (n,) array
    domain : Domain
    fit : callable, default a von Mises distribution
        Values of a column (n,), weights and the domain of the column -> its distribution.
    """
    periodic = np.flatnonzero(domain.periodic).tolist()
    factors = [fit(x[:, k], weights, domain.choose([k])) for k in periodic]
    columns = [[k] for k in periodic]
    if rest is not None:
        factors.append(rest)
        columns.append(np.flatnonzero(~domain.periodic).tolist())
    return factors[0] if len(factors) == 1 else ProductBase(factors, columns)
