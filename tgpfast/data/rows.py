"""What users pass as rows: recognized, checked, and made into contiguous float64 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import Array
from .parquet import ParquetRows
from .table import column_name, frame_numbers, is_frame

# what to do about arrays of other dtypes, by the kind of the dtype
DTYPE_REMEDIES = {
    "c": "fit real and imaginary parts as two columns",
    "O": "convert it with .astype(float)",
    "M": "convert times to numbers first",
}

TAKES_MISSING = "fit, update or evaluate"  # functions with the option ``missing``, for messages


def refuse_distant_rows(X: Any, name: str) -> None:
    """Raise TypeError for a dask collection, a sparse matrix or a lazy frame, whose rows are not in
    memory as they are."""
    remedy = ""
    if hasattr(X, "__dask_graph__") and X.__dask_graph__() is not None:
        remedy = f"{name}.compute(), or a sample of the rows if that is too much"
    elif hasattr(type(X), "toarray"):  # asked of the type: a frame has its columns as attributes
        remedy = f"{name}.toarray()"
    elif hasattr(type(X), "collect"):
        remedy = f"{name}.collect()"
    if remedy:
        kind = f"{type(X).__module__.split('.')[0]}'s {type(X).__name__}"
        raise TypeError(f"{name} is {kind}, and its rows are needed here at once: pass {remedy}")


def is_stream(X: Any) -> bool:
    """Whether X is an iterable of blocks, or a callable that returns one, rather than one table."""
    if isinstance(X, (str, bytes, dict, set, memoryview)) or hasattr(X, "__array__"):
        return False
    if is_frame(X):
        return False
    if isinstance(X, (list, tuple)):  # of blocks, or of rows
        first = X[0] if len(X) else None
        first = first[0] if isinstance(first, tuple) and len(first) == 2 else first
        return is_frame(first) or (isinstance(first, np.ndarray) and first.ndim == 2)
    return callable(X) or hasattr(X, "__iter__")


def is_on_disk(table: Any) -> bool:
    """Whether rows are read from a file when they are asked for: a memmap or a parquet file."""
    if isinstance(table, ParquetRows):
        return True
    while isinstance(table, np.ndarray):
        if isinstance(table, np.memmap):
            return True
        table = table.base
    return False


def as_table(X: Any, name: str) -> Any:
    """Return X itself if rows can be sliced off it (an array or a frame), else X as an array.

    TypeError or ValueError says why X is not a table of real numbers.
    """
    if is_frame(X):
        return X
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, and masked values have no density; "
            "fill them or drop their rows, then pass .data"
        )
    if isinstance(X, (str, bytes, dict, set)) or X is None:
        raise TypeError(
            f"{name} must be an array of rows or an iterator of blocks, got {type(X).__name__}"
        )
    try:
        array = np.asanyarray(X) if isinstance(X, np.ndarray) else np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} is not a table of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        remedy = DTYPE_REMEDIES.get(array.dtype.kind, "give columns of real numbers")
        raise TypeError(f"{name} has dtype {array.dtype}; real numbers are expected: {remedy}")
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, (rows, columns), got {array.shape}")
    return array


def count_columns(table: Any, name: str, expected: int | None) -> int:
    """Return the number of columns; ValueError unless it is as expected."""
    found = table.shape[1]
    if found == 0:
        raise ValueError(f"{name} has no columns")
    if expected is not None and found != expected:
        hint = ""
        if found == 1 and isinstance(table.shape[0], int) and table.shape[0] == expected:
            hint = f"; for a single row pass it as shape (1, {expected})"
        raise ValueError(f"{name} has {found} columns, expected {expected}{hint}")
    return int(found)


def slice_rows(table: Any, start: int, stop: int) -> Array:
    """Return rows start to stop as read-only contiguous float64, without a copy where possible."""
    part = table.iloc[start:stop] if hasattr(table, "iloc") else table[start:stop]
    values = frame_numbers(part) if is_frame(part) else part
    rows = np.ascontiguousarray(np.asarray(values), dtype=np.float64).view()
    rows.flags.writeable = False  # always: Numba compiles a kernel again for a read-only argument
    return rows


def check_finite(x: Array, numbers: Any, columns: list[str] | None, name: str) -> None:
    """Raise ValueError that names the first value that is not finite.

    Parameters
    ----------
    x : (n, d) array
    numbers : int or (n,) array
        Number of the first row among all, or of every row.
    columns : list of str, or None
    name : str
        Name of the argument that the rows came from.
    """
    # one pass at memory speed: a sum is finite unless a value is not, or it overflows
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(x.sum()) or np.isfinite(x).all():
            return
    row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
    number = numbers[row] if isinstance(numbers, np.ndarray) else numbers + row
    remedy = ""
    if np.isnan(x[row, column]):
        remedy = f', or pass missing="drop" to {TAKES_MISSING}'
    raise ValueError(
        f"{name} holds {x[row, column]} at row {number}, column {column_name(column, columns)}; "
        f"drop or fill such rows first{remedy}"
    )
