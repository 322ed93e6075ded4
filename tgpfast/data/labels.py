"""Labels of groups: checked, and numbered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import Ints


def check_labels(groups: Any) -> Any:
    """Return labels as a one-dimensional array of numbers, or as a list of other values.

    Parameters
    ----------
    groups : (n,) array-like
        One label per row.

    Raises
    ------
    TypeError
        If groups is a single value, such as the name of a column.
    ValueError
        If the shape is wrong, or a label is missing.
    """
    if isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__"):
        raise TypeError(
            f"groups={groups!r}: expected one label per row; to group by a column of a frame, pass "
            "X.drop(columns=[name]) and X[name]"
        )
    if isinstance(groups, np.ma.MaskedArray) and np.ma.getmaskarray(groups).any():
        row = int(np.flatnonzero(np.ma.getmaskarray(groups))[0])
        raise ValueError(f"groups has no label at row {row} (masked); drop such rows first")
    is_array = hasattr(groups, "__array__") or not isinstance(groups, Sequence)
    array: Any = np.asarray(groups) if is_array else _as_array(groups)
    if array.ndim != 1:
        raise ValueError(f"groups must have one label per row, shape (n,), got {array.shape}")
    if array.dtype.kind in "iub":
        return array
    if array.dtype.kind == "f":
        missing = np.flatnonzero(np.isnan(array))
    elif array.dtype.kind in "Mm":
        missing, array = np.flatnonzero(np.isnat(array)), list(array)
    else:
        array = array.tolist()
        missing = np.array([], np.int64)
        try:
            odd = {v for v in set(array) if is_missing(v)}  # distinct labels are few
        except TypeError:
            odd = set()  # unhashable; the caller raises
        if odd or any(v is None for v in array):
            missing = np.array([i for i, v in enumerate(array) if is_missing(v)], np.int64)
    if len(missing):
        row = int(missing[0])
        raise ValueError(
            f"groups has no label at row {row} ({array[row]!r}); {len(missing):,} rows lack one: "
            "drop them or give them a label first"
        )
    return array


def _as_array(labels: Sequence[Any]) -> NDArray[Any]:
    """Return an array of objects, unless all labels are numbers or times of one type.

    numpy would turn 1 beside "a" into text, large integers into floats and tuples into rows, and
    would cut text that ends in NUL.
    """
    kinds = {type(label) for label in labels}
    if len(kinds) == 1:
        (kind,) = kinds
        if kind in (bool, int, float) or issubclass(kind, (np.number, np.bool_, np.datetime64)):
            array = np.asarray(labels)
            if kind is not int or array.dtype.kind in "iu":
                return array
    array = np.empty(len(labels), object)
    array[:] = [str(v) for v in labels] if kinds == {np.str_} else list(labels)
    return array


def is_missing(value: Any) -> bool:
    """Whether a value stands for a missing one: None, nan, NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


def as_python_time(label: Any) -> Any:
    """Return the date, datetime or timedelta that equals a time of numpy; None if there is none."""
    if not isinstance(label, (np.datetime64, np.timedelta64)):
        return None
    value = label.item()
    if np.datetime_data(label.dtype)[0] in ("ns", "ps", "fs", "as"):
        micro = label.astype(f"{label.dtype.kind}8[us]")
        value = micro.item() if micro == label else None
    return value if isinstance(value, (date, timedelta)) else None


def factorize(groups: Any) -> tuple[list[Any], Ints]:
    """Return the distinct labels, and for each row the index of its label.

    Labels are sorted where that is possible; otherwise they stand in the order of appearance.

    Examples
    --------
    >>> factorize(["b", "a", "b"])
    (['a', 'b'], array([1, 0, 1]))
    """
    values = check_labels(groups)
    if len(values) == 0:
        raise ValueError("groups is empty; at least one row is needed")
    if isinstance(values, np.ndarray):
        distinct, codes = distinct_labels(values)
        return distinct.tolist(), codes
    index: dict[Any, int] = {}
    codes = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        try:
            codes[row] = index.setdefault(value, len(index))
        except TypeError:
            raise TypeError(
                f"the label at row {row} of groups is not hashable: {type(value).__name__}"
            ) from None
    labels = list(index)
    try:
        order = sorted(range(len(labels)), key=labels.__getitem__)
    except TypeError:
        return labels, codes
    rank = np.empty(len(labels), np.int64)
    rank[order] = np.arange(len(labels))
    return [labels[i] for i in order], rank[codes]


def distinct_labels(values: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """Return np.unique and its inverse; by counting where integers lie close, which is faster."""
    if values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values) and high < 2**62 and low > -(2**62):
            offsets = values.astype(np.int64) - low
            present = np.bincount(offsets) > 0
            rank = np.cumsum(present) - 1
            return (np.flatnonzero(present) + low), np.asarray(rank[offsets], np.int64)
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct, inverse.astype(np.int64, copy=False)
