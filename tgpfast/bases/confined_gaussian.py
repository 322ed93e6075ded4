"""The Gaussian of some rows on a domain: cut off at walls, wrapped around periods."""

from __future__ import annotations

import math

import numpy as np

from ..validation import Array
from .base import Base
from .bounded import BoundedMixtureBase, UniformBase, confine_base
from .domain import Domain
from .gaussian import GaussianBase
from .product import ProductBase

# Deviations of the rows by which the mean of a truncated Gaussian may lie beyond a wall; also its
# largest width.
MOST_BEYOND = 30.0
WIDEST_WRAPPED = 0.25  # periods: wider Gaussians are as good as uniform once wrapped


def confine_gaussian(x: Array, weights: Array, domain: Domain) -> Base:
    """The Gaussian of some rows, cut off at walls and wrapped around periods.

    Along periodic axes the moments are those of rows unwrapped about their circular mean. Where
    rows spread over more than WIDEST_WRAPPED of a period, the base is uniform along that axis.
    Along axes with walls it is the Gaussian that is most likely once it is cut off. Axes of these
    two kinds are independent of the others.

    Parameters
    ----------
    x : (n, d) array
        Rows in the domain.
    weights : (n,) array
    domain : Domain

    Examples
    --------
    Hours around midnight:

    >>> hours = np.array([[23.0], [0.5], [1.0], [22.5], [0.0]])
    >>> base = confine_gaussian(hours, np.ones(5), Domain([0.0], [24.0], [True]))
    >>> bool(base.log_density([[0.0]])[0] > base.log_density([[12.0]])[0])
    True
    """
    unwrapped, periods = x.copy(), domain.high - domain.low
    for k in np.flatnonzero(domain.periodic).tolist():
        turns = np.exp(2j * np.pi * (x[:, k] - domain.low[k]) / periods[k])
        middle = domain.low[k] + periods[k] * np.angle(weights @ turns) / (2.0 * np.pi)
        unwrapped[:, k] -= periods[k] * np.round((x[:, k] - middle) / periods[k])
    gaussian = GaussianBase.from_data(unwrapped, sample_weight=weights)
    means, deviations = gaussian.mean.copy(), np.sqrt(np.diag(gaussian.covariance))
    is_wide = domain.periodic & (deviations > WIDEST_WRAPPED * periods)
    if not (is_wide | domain.is_walled).any():
        return confine_base(gaussian, domain)
    factors: list[Base] = []
    for k in range(domain.dimension):
        one = domain.choose([k])
        if is_wide[k]:
            factors.append(UniformBase(**one.parameters()))
            continue
        if domain.is_walled[k]:
            means[k], deviations[k] = fit_truncated(
                means[k], deviations[k], domain.low[k], domain.high[k]
            )
        along = GaussianBase(means[k : k + 1], deviations[k : k + 1, None] ** 2)
        factors.append(BoundedMixtureBase.confine(along, one))
    return factors[0] if len(factors) == 1 else ProductBase(factors)


def fit_truncated(mean: float, deviation: float, low: float, high: float) -> tuple[float, float]:
    """Mean and deviation of the Gaussian that, cut off at walls, is most likely for rows with these
    moments. Its mean lies at most MOST_BEYOND deviations of the rows beyond a wall, where it is
    close to an exponential distribution.

    Parameters
    ----------
    mean, deviation : float
        Of the rows.
    low, high : float
        Walls; infinite where there is none.
    """
    from scipy.optimize import minimize
    from scipy.special import log_ndtr

    def loss(point: Array) -> float:
        m, s = float(point[0]), math.exp(float(point[1]))
        a, b = (low - m) / s, (high - m) / s
        # on the side where the tail is small, so that the difference loses no digits
        upper, lower = (-a, -b) if a > 0.0 else (b, a)
        log_upper, log_lower = log_ndtr(upper), log_ndtr(lower)
        log_mass = log_upper + math.log1p(-min(math.exp(log_lower - log_upper), 1.0 - 1e-16))
        return math.log(s) + 0.5 * (deviation**2 + (mean - m) ** 2) / s**2 + float(log_mass)

    reach = MOST_BEYOND * deviation
    limits = (max(low - reach, mean - 10.0 * reach), min(high + reach, mean + 10.0 * reach))
    first, size = np.array([mean, math.log(deviation)]), np.diag([0.5 * deviation, 0.3])
    found = minimize(
        loss, first, method="Nelder-Mead",
        bounds=[limits, (math.log(0.5 * deviation), math.log(MOST_BEYOND * deviation))],
        options={"initial_simplex": [first, *(first + size)], "xatol": 1e-4, "fatol": 1e-8},
    )  # fmt: skip
    return float(found.x[0]), math.exp(float(found.x[1]))
