"""The distribution of one periodic column: a von Mises distribution, or one of several peaks."""

from __future__ import annotations

import functools

import numpy as np

from ..bases.base import Base
from ..bases.bounded import BoundedMixtureBase
from ..bases.domain import Domain
from ..bases.mixture import average_mixtures
from ..bases.mixture_growth import weighted_mean
from ..bases.von_mises import VonMisesBase, multiply_by_circles
from ..bases.wrapped_mixture import cut_open, grow_wrapped_mixture
from ..validation import Array
from .folds import assign_folds

CIRCLE_FOLDS = 5  # parts of the rows, CIRCLE_MEMBERS of which are held out in turn
CIRCLE_MEMBERS = 2  # mixtures that are grown, and averaged
LEAST_CIRCLE_ROWS = 50  # rows below which the one peak of a von Mises distribution is kept
CIRCLE_ROWS = 2_000  # rows that mixtures are grown on, at most; more of them refine these
CIRCLE_WORK = 1e9  # floating-point operations of the growth of a member, at most
CIRCLE_ERRORS = 2.0  # standard errors that a mixture must gain over a von Mises distribution
HARMONICS = np.arange(2, 9)  # waves a period by which rows are compared with that distribution
# Chi-square of two degrees of freedom of one wave from which on mixtures are tried: 1 % of von
# Mises samples have one.
SUSPICIOUS_SQUARE = 12.0
LEAST_WAVE_VARIANCE = 1e-12  # of a wave, below which roundings count
KEPT_FITS = 8  # each fold has three bases, with the same rows


def multiply_by_fitted_circles(
    rest: Base | None, x: Array, weights: Array, domain: Domain
) -> Base:
    """A base of the columns that are not periodic, times the distribution of each other column that
    suits its rows (`fit_circle`); see `multiply_by_circles`."""
    return multiply_by_circles(rest, x, weights, domain, fit_circle)


def fit_circle(x: Array, weights: Array, domain: Domain) -> Base:
    """A von Mises distribution, or a mixture of wrapped Gaussians where rows that are held out
    gain CIRCLE_ERRORS standard errors by it.

    Parameters
    ----------
    x : (n,) array
        One periodic column.
    weights : (n,) array
    domain : Domain
        Of this column.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rush = np.append(rng.normal(8.0, 1.0, 200), rng.normal(17.0, 1.0, 200))
    >>> base = fit_circle(rush, np.ones(400), Domain([0.0], [24.0], [True]))
    >>> type(base).__name__
    'BoundedMixtureBase'
    """
    ends = float(domain.low[0]), float(domain.high[0])
    return _fit_bytes(np.ascontiguousarray(x).tobytes(), weights.tobytes(), *ends)


@functools.lru_cache(maxsize=KEPT_FITS)
def _fit_bytes(values: bytes, counts: bytes, low: float, high: float) -> Base:
    """`fit_circle`, whose last results are kept."""
    x, weights, domain = np.frombuffer(values), np.frombuffer(counts), Domain([low], [high], [True])
    simple = VonMisesBase.from_data(x, weights, low, high)
    if len(x) < LEAST_CIRCLE_ROWS or not _is_suspicious(simple, x, weights):
        return simple
    column, cut = x[:, None], cut_open(x[:, None], weights, domain)
    few = np.random.default_rng(0).permutation(len(x))[:CIRCLE_ROWS]
    folds, members, gains, shares = assign_folds(len(few), CIRCLE_FOLDS), [], [], []
    for k in range(CIRCLE_MEMBERS):
        kept, held = few[folds != k], few[folds == k]
        try:
            grown = grow_wrapped_mixture(
                column[kept], weights[kept], column[held], weights[held], cut,
                max_work=CIRCLE_WORK, seed=k,
            )  # fmt: skip
            rival = VonMisesBase.from_data(x[kept], weights[kept], low, high)
        except ValueError:  # without these rows the column has one value
            return simple
        wrapped = BoundedMixtureBase.confine(grown.mixture, domain)
        gains.append(wrapped.log_density_at(column[held]) - rival.log_density_at(column[held]))
        shares.append(weights[held])
        members.append(grown)
    share = np.concatenate(shares)
    gain, error = weighted_mean(np.concatenate(gains), share / share.sum())
    if gain <= CIRCLE_ERRORS * error:
        return simple
    average = average_mixtures([member.refit(column, weights) for member in members])
    return BoundedMixtureBase.confine(average, domain)


def _is_suspicious(base: VonMisesBase, x: Array, weights: Array) -> bool:
    """Whether the rows have a wave that a von Mises distribution does not explain.

    Under it, with angles from the center, the mean of exp(i m angle) is I_m / I_0 of the
    concentration, which is c_m here. The variances of its parts are (1 + c_2m) / 2 - c_m^2 and
    (1 - c_2m) / 2.
    """
    from scipy.special import ive

    share = weights / weights.sum()
    angles = (x - base.mean[0]) * (2.0 * np.pi / base.period)
    gaps = share @ np.exp(1j * HARMONICS * angles[:, None])
    of_none = ive(0, base.concentration)
    expected, doubled = (ive(m, base.concentration) / of_none for m in (HARMONICS, 2 * HARMONICS))
    cosines = np.maximum(0.5 * (1.0 + doubled) - np.square(expected), LEAST_WAVE_VARIANCE)
    sines = np.maximum(0.5 * (1.0 - doubled), LEAST_WAVE_VARIANCE)
    squares = np.square(gaps.real - expected) / cosines + np.square(gaps.imag) / sines
    return bool(squares.max() > SUSPICIOUS_SQUARE * (share @ share))
