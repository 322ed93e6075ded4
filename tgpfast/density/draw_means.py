"""Means over replicates of quasi-random draws, with their standard errors."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..validation import Array
from .answers import Answer


def error_of_mean(values: Array) -> Array:
    """Standard error of the mean along the first axis of values of R independent sets.

    The spread of few sets is itself uncertain: a mean over the plain error has the t distribution
    of R - 1 degrees. The error is larger by its standard deviation, so that z-scores have 1.

    Examples
    --------
    >>> float(error_of_mean(np.arange(5.0)))
    1.0
    """
    R = len(values)
    widening = math.sqrt((R - 1.0) / max(R - 3.0, 1.0))
    return np.asarray(widening * values.std(axis=0, ddof=1) / math.sqrt(R))


class AddedTerm(NamedTuple):
    """A term that is added to a mean, and depends on the same sets of draws.

    value : by all sets
    deviations : (R,) how far each set moves the value, to first order
    """

    value: float
    deviations: Array

    @property
    def standard_error(self) -> float:
        """That of the term alone."""
        return float(error_of_mean(self.deviations))


def mean_over_draws(values: Array, weights: Array, added: AddedTerm | None = None) -> Answer:
    """The weighted mean, with the standard error that the spread of the replicates gives.

    Parameters
    ----------
    values, weights : (R, n) arrays
        Of R independent sets of draws.
    added : AddedTerm, default None
        The error is that of the sum, in which errors of both may cancel.

    Returns
    -------
    Answer
        The error of a share that is 0 or 1 among the draws is one over their effective number.

    Examples
    --------
    >>> mean_over_draws(np.array([[0.0, 2.0], [1.0, 3.0]]), np.ones((2, 2))).standard_error
    0.5
    """
    means, deviations = _deviate(values[:, :, None], weights)
    mean, deviations = float(means[0]), deviations[:, 0]
    if added is not None:
        mean, deviations = mean + added.value, deviations + added.deviations
    error = float(error_of_mean(deviations))
    if error == 0.0 and values.any() and not (values == values.flat[0]).all():
        error = 1.0 / effective_number(weights)
    return Answer(mean, error, "draws")


def means_over_draws(values: Array, weights: Array) -> tuple[Array, Array]:
    """Weighted means (k,) of columns of values (R, n, k), and their standard errors (k,)."""
    means, deviations = _deviate(values, weights)
    return means, error_of_mean(deviations)


def _deviate(values: Array, weights: Array) -> tuple[Array, Array]:
    """Weighted means (k,) of columns of values (R, n, k), and how far each set moves them, (R, k).

    The mean is a ratio of sums; deviations are the residuals of the replicates' sums.
    """
    totals = weights.sum(axis=1)
    sums = np.einsum("rn,rnk->rk", weights, values)
    means = sums.sum(axis=0) / totals.sum()
    return means, (sums - totals[:, None] * means) / totals.mean()


def share_of_draws(inside: Array, weights: Array) -> tuple[Array, Array]:
    """Shares (k,) of the weight for which columns of ``inside`` (R, n, k) are 1, and their errors.

    The error of a share that is 0 or 1 among the draws is one over their effective number.
    """
    shares, errors = means_over_draws(inside, weights)
    least = np.where((shares <= 0.0) | (shares >= 1.0), 1.0 / effective_number(weights), 0.0)
    return shares, np.maximum(errors, least)


def effective_number(weights: Array) -> float:
    """Kish's effective number of draws."""
    return float(weights.sum() ** 2 / np.square(weights).sum())
