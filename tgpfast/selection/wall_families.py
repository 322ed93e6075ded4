"""Beta distributions between walls, as smooth maps of a column to a Gaussian.

With y the log of the distance to a wall, or of the ratio of the distances to two, the family is

    log f(y) = a z - (a + b) log(1 + e^z) - log B(a, b),  z = y - m

It has the densities of beta distributions between two walls (m is 0), and beta prime
distributions beside one, which with a large b are gamma distributions: exponential ones among them.
Poles and zeros at a wall are powers of the distance to it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from ..data.column_maps import ColumnMap
from ..validation import Array

LEAST_SHAPE, MOST_SHAPE = 0.02, 1e4  # of a and b; a gamma distribution has the largest b
FIRST_SHAPE = 50.0  # of b beside one wall, at which the search begins
KNOT_SCORES = np.linspace(-8.0, 8.0, 65)  # normal scores of the knots: 1e-15 of the mass is beyond
TINY = 1e-280  # quantiles below are those of the leading power


class BetaFamily(NamedTuple):
    """A distribution of the family: shapes ``a`` and ``b``, and the log ``m`` of its unit."""

    a: float
    b: float
    m: float

    def log_density(self, y: Array) -> Array:
        """Log f at y, (n,)."""
        from scipy.special import betaln

        z = y - self.m
        total = (self.a + self.b) * np.logaddexp(0.0, z)
        return np.asarray(self.a * z - total - betaln(self.a, self.b))

    def quantile(self, scores: Array) -> Array:
        """The y below which the shares Phi(scores) of the mass lie, (n,)."""
        from scipy.special import log_ndtr

        below = _lower_quantile(self.a, self.b, log_ndtr(np.minimum(scores, 0.0)))
        above = -_lower_quantile(self.b, self.a, log_ndtr(np.minimum(-scores, 0.0)))
        return self.m + np.where(scores < 0.0, below, above)


def _lower_quantile(a: float, b: float, log_share: Array) -> Array:
    """The z below which small shares of the mass lie, given by their logs."""
    from scipy.special import betaincinv, betaln

    ratio = betaincinv(a, b, np.exp(log_share))
    leading = (log_share + math.log(a) + betaln(a, b)) / a
    with np.errstate(divide="ignore"):
        return np.where(ratio > TINY, np.log(ratio) - np.log1p(-ratio), leading)


def fit_family(y: Array, weights: Array, *, has_unit: bool) -> BetaFamily:
    """The most likely distribution of the family.

    Parameters
    ----------
    y : (n,) array
    weights : (n,) array
    has_unit : bool
        Whether m is to be learned: beside one wall it is, between two it is 0.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).beta(0.5, 0.5, 20_000)
    >>> found = fit_family(np.log(x / (1.0 - x)), np.ones(20_000), has_unit=False)
    >>> round(found.a, 1), round(found.b, 1), found.m
    (0.5, 0.5, 0.0)
    """
    from scipy.optimize import minimize
    from scipy.special import betaln, digamma, expit

    share = weights / weights.sum()
    center = float(share @ y)

    def loss(point: Array) -> tuple[float, Array]:
        a, b = np.exp(point[:2])
        z = y - (point[2] if has_unit else 0.0)
        rise, bend = float(share @ z), float(share @ np.logaddexp(0.0, z))
        both = digamma(a + b)
        slopes = [
            -a * (rise - bend - digamma(a) + both), b * (bend + digamma(b) - both),
            a - (a + b) * float(share @ expit(z)),
        ]  # fmt: skip
        return float(betaln(a, b) - a * rise + (a + b) * bend), np.array(slopes[: len(point)])

    shapes = (math.log(LEAST_SHAPE), math.log(MOST_SHAPE))
    first, bounds = [0.0, 0.0], [shapes, shapes]
    if has_unit:
        unit = center + math.log(FIRST_SHAPE)
        first, bounds = [0.0, math.log(FIRST_SHAPE), unit], [*bounds, (center - 30, center + 30)]
    found = minimize(loss, np.array(first), jac=True, method="L-BFGS-B", bounds=bounds)
    a, b = np.exp(found.x[:2])
    return BetaFamily(float(a), float(b), float(found.x[2]) if has_unit else 0.0)


def bend_by_family(plain: ColumnMap, values: Array, weights: Array) -> ColumnMap:
    """Add to the map of a column with walls the spline that makes the family Gaussian.

    Parameters
    ----------
    plain : ColumnMap
        With walls, and no spline.
    values : (n,) array
        Of the column.
    weights : (n,) array

    Returns
    -------
    ColumnMap
        The given one where the family cannot be fitted.
    """
    y = plain.apply(values)
    if math.isfinite(plain.low):
        family = fit_family(y, weights, has_unit=not math.isfinite(plain.high))
    else:  # y grows towards the wall, and the family away from it
        flipped = fit_family(-y, weights, has_unit=True)
        family = BetaFamily(flipped.b, flipped.a, -flipped.m)
    knots = family.quantile(KNOT_SCORES)
    log_slopes = family.log_density(knots) + 0.5 * KNOT_SCORES**2 + 0.5 * math.log(2.0 * math.pi)
    try:
        return dataclasses.replace(
            plain, knots=knots, heights=KNOT_SCORES.copy(), slopes=np.exp(log_slopes)
        )
    except ValueError:  # shapes at their limits, where quantiles coincide
        return plain
