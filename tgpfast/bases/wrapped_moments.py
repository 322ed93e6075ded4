"""Moments of Gaussians whose rows are moved into one period."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ..validation import Array
from .domain import Domain
from .nested_rule import panel_rule

RULE_NODES = 40  # Gauss-Legendre nodes along an axis: the mass of a Gaussian to 1e-14
GAUSSIAN_REACH = 9.0  # standard deviations: e^-40 of a Gaussian's peak


def wrap_moments(means: Array, covariances: Array, domain: Domain) -> tuple[Array, Array]:
    """Means (K, d) and covariances (K, d, d) of Gaussians whose rows are moved by whole periods
    into the domain.

    By Stein's lemma Cov(y, wrap(x)) = Cov(y, x) (1 - P sum of the density of x at the ends of all
    periods), where y is a column without a period. The covariance of two periodic columns is
    integrated numerically.

    Parameters
    ----------
    means : (K, d) array
    covariances : (K, d, d) array
    domain : Domain
        Without walls.

    Examples
    --------
    >>> domain = Domain([0.0], [24.0], [True])
    >>> places, squares = wrap_moments(np.array([[0.0]]), np.array([[[1.0]]]), domain)
    >>> places.round(6).tolist()  # half of the rows are close to 24
    [[12.0]]
    """
    places, spreads = means.copy(), covariances.copy()
    periodic = np.flatnonzero(domain.periodic).tolist()
    for k in periodic:
        deviations = np.sqrt(covariances[:, k, k])
        places[:, k], variances, factors = _wrap_column(
            means[:, k], deviations, float(domain.low[k]), float(domain.periods[k])
        )
        spreads[:, k] *= factors[:, None]
        spreads[:, :, k] *= factors[:, None]
        spreads[:, k, k] = variances
    for j, k in itertools.combinations(periodic, 2):
        covariance = _integrate_product(means, covariances, places, domain, j, k)
        spreads[:, j, k] = spreads[:, k, j] = np.where(
            covariances[:, j, k] == 0.0, 0.0, covariance
        )
    return places, spreads


def _integrate_product(
    means: Array, covariances: Array, places: Array, domain: Domain, j: int, k: int
) -> Array:
    """Covariances of two periodic columns, (K,): over column j by a rule in every period that a
    Gaussian reaches, over column k in closed form.

    places : (K, d) means in the domain
    """
    slopes = covariances[:, j, k] / covariances[:, j, j]
    rest = np.sqrt(covariances[:, k, k] - slopes * covariances[:, j, k])
    deviations, period = np.sqrt(covariances[:, j, j]), float(domain.periods[j])
    reach = GAUSSIAN_REACH * deviations
    low, high = means[:, j] - reach, means[:, j] + reach
    first = math.floor(float((low - domain.low[j]).min()) / period)
    last = math.ceil(float((high - domain.low[j]).max()) / period)
    t, weights = panel_rule(1, RULE_NODES)
    total = np.zeros(len(means))
    for m in range(first, last):
        ends = domain.low[j] + period * np.array([m, m + 1.0])
        start, stop = np.clip(low, *ends), np.clip(high, *ends)
        x = start[:, None] + (stop - start)[:, None] * t
        gaps = x - means[:, j, None]
        density = np.exp(-0.5 * np.square(gaps / deviations[:, None]))
        density /= math.sqrt(2.0 * math.pi) * deviations[:, None]
        centers = means[:, k, None] + slopes[:, None] * gaps
        wrapped = _wrap_column(
            centers.ravel(), np.repeat(rest, len(t)), float(domain.low[k]),
            float(domain.periods[k]),
        )[0].reshape(x.shape)  # fmt: skip
        terms = density * (x - period * m - places[:, j, None]) * (wrapped - places[:, k, None])
        total += (stop - start) * (terms @ weights)
    return total


def _wrap_column(
    means: Array, deviations: Array, low: float, period: float
) -> tuple[Array, Array, Array]:
    """Means and variances of Gaussians moved into [low, low + period), and the factors of their
    covariances with other columns, (K,) each."""
    from scipy.special import ndtr

    reach = GAUSSIAN_REACH * deviations
    first = math.floor(float((means - reach - low).min()) / period)
    last = math.ceil(float((means + reach - low).max()) / period)
    cells = np.arange(first, max(last, first + 1))
    edges = low + period * np.arange(first, cells[-1] + 2)
    z = (edges - means[:, None]) / deviations[:, None]
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2.0 * math.pi)
    mass = np.diff(ndtr(z), axis=1)
    about = -deviations[:, None] * np.diff(density, axis=1)  # integrals of x - mean
    square = np.square(deviations)[:, None] * (mass - np.diff(z * density, axis=1))
    places = means - period * (mass @ cells)
    gaps = (means - places)[:, None] - period * cells
    variances = (square + 2.0 * gaps * about + np.square(gaps) * mass).sum(axis=1)
    return places, variances, 1.0 - period / deviations * density.sum(axis=1)
