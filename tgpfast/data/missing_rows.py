"""Rows with missing values: found, left out and counted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.records import record
from ..runtime.warnings import DataWarning, warn
from ..validation import Array
from .table import column_name, is_frame

MISSING_ROWS = ("error", "drop")  # what to do with them


@record
class MissingCounts:
    """How many rows of a pass had missing values. Counts of different rows add.

    Attributes
    ----------
    n_read : int
        All rows, with and without missing values.
    n_missing : int
        Rows that lack at least one value.
    by_column : tuple of int
        Missing values of each column; empty where there are none.
    """

    n_read: int = 0
    n_missing: int = 0
    by_column: tuple[int, ...] = ()

    def __add__(self, other: MissingCounts) -> MissingCounts:
        pairs = itertools.zip_longest(self.by_column, other.by_column, fillvalue=0)
        return MissingCounts(
            self.n_read + other.n_read, self.n_missing + other.n_missing,
            tuple(mine + theirs for mine, theirs in pairs),
        )  # fmt: skip

    def describe(self, columns: list[str] | None) -> str:
        """One line for a warning."""
        most = int(np.argmax(self.by_column))
        name = column_name(most, None) if columns is None else repr(columns[most])
        return (
            f"dropped {self.n_missing:,} of {self.n_read:,} rows with missing values, most in "
            f"column {name}"
        )


def find_missing(x: Array) -> tuple[NDArray[np.bool_] | None, MissingCounts]:
    """Which rows (n, d) are complete, None if all are, and the counts of the others."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isnan(x.sum()):  # at memory speed; infinite values of both signs give nan too
            return None, MissingCounts(len(x))
    holes = np.isnan(x)
    complete = np.asarray(~holes.any(axis=1))
    if complete.all():
        return None, MissingCounts(len(x))
    by_column = tuple(holes.sum(axis=0).tolist())
    return complete, MissingCounts(len(x), int((~complete).sum()), by_column)


def warn_if_dropped(blocks: Any) -> bool:
    """Whether the last pass left out rows with missing values; warns if so."""
    found: MissingCounts = blocks.missing
    if found.n_missing:
        warn(found.describe(blocks.table.columns), DataWarning)
    return found.n_missing > 0


def fill_objects(X: Any, name: str) -> Any:
    """X with nan where an array or a column of objects has None or NA; other tables as they are.

    Raises
    ------
    TypeError
        An object is neither missing nor a real number.
    """
    if hasattr(X, "iloc") and is_frame(X):
        objects = [k for k, dtype in enumerate(X.dtypes) if getattr(dtype, "kind", "") == "O"]
        if not objects:
            return X
        filled = X.copy(deep=False)
        for k in objects:
            label = f"column {column_name(k, [str(c) for c in X.columns])} of {name}"
            filled.isetitem(k, _as_numbers(X.iloc[:, k].to_numpy(), label))
        return filled
    if isinstance(X, (list, tuple)) and not any(hasattr(one, "__array__") for one in X[:1]):
        X = np.asarray(X)
    return _as_numbers(X, name) if isinstance(X, np.ndarray) and X.dtype == object else X


def _as_numbers(values: NDArray[Any], name: str) -> Array:
    """Objects as floats, nan where a value is missing."""
    from .labels import is_missing

    numbers = np.empty(values.shape)
    for place, value in np.ndenumerate(values):
        if is_missing(value):
            numbers[place] = np.nan
        elif isinstance(value, (int, float, np.number, np.bool_)):
            numbers[place] = value
        else:
            raise TypeError(f"{name} holds {value!r}; expected real numbers, or None where missing")
    return numbers
