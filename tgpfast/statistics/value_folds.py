"""`Folds`: which rows belong to which fold of a cross-validation, by their values."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ..data.row_sample import keys_of_values
from ..runtime.records import record
from ..validation import LEAST_NUMBER, Array, Ints, whole

EQUAL_VALUES = 2.0**-20  # standard deviations within which values count as equal
COMMON_SHARE = 0.01  # of the rows: a value that more of them have is split between folds


@record
class Folds:
    """Which rows belong to which fold: random, and the same in every pass.

    Rows with the same values belong to the same fold: held out, they do not reward a density for
    spikes at rows that it was learned from. Values that a large part of the rows has are the
    exception, since without them nothing would be left to learn.

    Attributes
    ----------
    count : int
    steps : (d,) array
        Values that round to the same step count as equal.
    common : array of uint64
        Keys of the values that many rows have; see `keys_of_values`.
    """

    count: int
    steps: Array
    common: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    @classmethod
    def for_sample(cls, count: int, x: Array) -> Folds:
        """Folds for rows of which x (n, d) is a random sample."""
        # a power of two, which roundings of the coordinates do not change, also where deviations
        # are 1 up to rounding
        steps = EQUAL_VALUES * 2.0 ** np.floor(np.log2(1.5 * x.std(axis=0) + LEAST_NUMBER))
        keys, counts = np.unique(keys_of_values(x, steps), return_counts=True)
        return cls(whole("count", count), steps, keys[counts > max(COMMON_SHARE * len(x), 2.0)])

    def of_rows(self, x: Array, row_keys: NDArray[np.uint64]) -> Ints:
        """The fold of every row (n, d), whose numbers have these keys."""
        keys = keys_of_values(x, self.steps)
        if len(self.common):
            keys = np.where(np.isin(keys, self.common), row_keys, keys)
        return np.asarray(keys % np.uint64(self.count), dtype=np.int64)
