"""Terms whose errors come from independent sets of draws, the replicates."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...validation import Array


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
