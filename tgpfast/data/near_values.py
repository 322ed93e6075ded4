"""Values of a column that are one value, written with different accuracy.

A file that was put together from two sources may hold 1.087 in some rows and 1.08653808 in others.
`merge_near_values` finds such values, whatever the units and the shift of the column are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..validation import Array

# Rows for each different value, from which on values count as repeated: continuous columns have
# one, and clusters of continuous values stay as they are.
ROWS_PER_VALUE = 10
# Distance between groups over the width of a group. Two decimals of three values within 1 have 33.
GROUP_DISTANCE = 30.0
# Values of a group: so many ways to write a value. More of them are values of their own.
MOST_VALUES_OF_GROUP = 4
# Groups of several values. With only one, such as 0 and 1 beside 999 for "unknown", the values of
# the group are more likely to differ.
LEAST_GROUPS = 2
# Distance to the next multiple of the smallest gap, in such gaps. Where all values are multiples,
# as with 0, 1, 2, 998 and 999, they are a grid with holes.
OFF_GRID_GAPS = 0.02
MOST_GRID_STEPS = 1e6  # a gap that is a smaller share of the extent comes from rounding


def merge_near_values(values: Array, n_rows: float) -> NDArray[np.int64]:
    """Number the groups of different values that are one value up to rounding.

    Values are one where they repeat often, lie in several groups of few values each, and groups
    are far narrower than the distances between them.

    Parameters
    ----------
    values : (m,) array
        Different values, in increasing order.
    n_rows : float
        Rows that have these values.

    Returns
    -------
    (m,) array of int64
        Number of the group of every value, in increasing order from 0. Values of their own have a
        group each.

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.data.near_values import merge_near_values
    >>> merge_near_values(np.array([0.0, 1.08653808, 1.087, 2.173, 2.17307615]), 500).tolist()
    [0, 1, 1, 2, 2]
    >>> merge_near_values(np.array([0.0, 1.0, 2.0, 998.0, 999.0]), 500).tolist()
    [0, 1, 2, 3, 4]
    """
    alone = np.arange(len(values), dtype=np.int64)
    if len(values) <= LEAST_GROUPS or n_rows < ROWS_PER_VALUE * len(values):
        return alone
    gaps = np.diff(values)
    sizes = np.sort(gaps)
    if _is_grid(values, float(sizes[0])):
        return alone
    # widest groups first; a group is at least as wide as its widest gap
    for k in np.flatnonzero(sizes[1:] >= GROUP_DISTANCE * sizes[:-1])[::-1]:
        groups = np.append(0, np.cumsum(gaps > sizes[k]))
        counts = np.bincount(groups)
        first = np.cumsum(counts) - counts
        widest = float((values[first + counts - 1] - values[first]).max())
        if (
            sizes[k + 1] >= GROUP_DISTANCE * widest
            and counts.max() <= MOST_VALUES_OF_GROUP
            and (counts > 1).sum() >= LEAST_GROUPS
        ):
            return np.asarray(groups, np.int64)
    return alone


def _is_grid(values: Array, least: float) -> bool:
    """Whether all values are multiples of the smallest gap from the first one."""
    steps = (values - values[0]) / least
    return bool(steps[-1] <= MOST_GRID_STEPS) and bool(
        (np.abs(steps - np.rint(steps)) <= OFF_GRID_GAPS).all()
    )
