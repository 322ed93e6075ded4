"""Tables as the caller has them: names of columns, kinds of frames, and the numbers of a frame."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ..runtime.records import record
from ..validation import Array

BLOCK_ROWS = 16_384  # rows of a block: a few MB at most, and so many that Python costs nothing
KINDS = ("array", "pandas", "polars", "pyarrow")


@record
class Table:
    """How rows looked to the caller, so that results can come in the same form.

    Attributes
    ----------
    columns : list of str, or None
        Names of the columns; None where they have none.
    kind : {"array", "pandas", "polars", "pyarrow"}, default "array"
    index : pandas.Index, or None
        The index of a pandas frame.
    """

    columns: list[str] | None = None
    kind: str = "array"
    index: Any = None

    @classmethod
    def from_rows(cls, X: Any, names: list[str] | None) -> Table:
        """Describe rows; ``names`` are those that a file gives to an array."""
        if not is_frame(X):
            return cls(names)
        columns = [str(c) for c in X.columns]
        if hasattr(X, "iloc"):
            return cls(columns, "pandas", X.index)
        return cls(columns, getattr(X, "frame_kind", "polars"))

    @classmethod
    def from_facts(cls, columns: Any, kind: Any, d: int) -> Table:
        """Return the table of d columns that a saved file describes, or raise ValueError."""
        is_named = isinstance(columns, list) and all(isinstance(c, str) for c in columns)
        if not (columns is None or (is_named and len(columns) == d)):
            raise ValueError(f"columns must be {d} names")
        if kind not in KINDS or (kind != "array" and columns is None):
            raise ValueError(f"kind of table {kind!r} is not known, or has no names of columns")
        return cls(columns, kind)

    def frame(self, rows: Array) -> Any:
        """Return rows (n, d) as the caller's kind of table."""
        if self.kind == "array":
            return rows
        module = __import__(self.kind)
        if self.kind == "polars":
            return module.DataFrame(rows, schema=self.columns)
        if self.kind == "pyarrow":
            return module.Table.from_arrays(list(map(module.array, rows.T)), names=self.columns)
        index = self.index if self.index is not None and len(self.index) == len(rows) else None
        return module.DataFrame(rows, columns=self.columns, index=index)

    def series(self, values: Array, name: str) -> Any:
        """Return one value per row (n,) as the caller's kind of column."""
        if self.kind == "array":
            return values
        module = __import__(self.kind)
        if self.kind == "polars":
            return module.Series(name, values)
        if self.kind == "pyarrow":
            return module.array(values)
        return module.Series(values, index=self.index, name=name)


def column_name(k: int, columns: list[str] | None) -> str:
    """Return "3", or "3 ('age')" where columns have names."""
    return str(k) if columns is None else f"{k} ({columns[k]!r})"


def find_column(column: Any, columns: list[str] | None, d: int, name: str = "column") -> int:
    """The number of a column.

    Parameters
    ----------
    column : str or int
        Name, or number from 0 on.
    columns : list of str, or None
        Names of the columns.
    d : int
        Number of columns.
    name : str, default "column"
        Name of the argument, for messages.

    Raises
    ------
    ValueError
        There is no such column, or several have this name.

    Examples
    --------
    >>> find_column("y", ["x", "y"], 2)
    1
    """
    known = f"0 to {d - 1}" if columns is None else f"{columns}, or a number from 0 to {d - 1}"
    if isinstance(column, str) and columns is not None and column in columns:
        if columns.count(column) > 1:
            raise ValueError(
                f"{name}={column!r}: several columns have this name; give their number"
            )
        return columns.index(column)
    if hasattr(column, "__index__") and not isinstance(column, (bool, np.bool_)):
        number = int(column)
        if 0 <= number < d:
            return number
    raise ValueError(f"{name}={column!r}: there is no such column; expected one of {known}")


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of pandas or polars, or offers what `Blocks` needs of one."""
    return hasattr(X, "columns") and hasattr(X, "__len__")


def name_series(X: Any, columns: list[str] | None) -> Any:
    """A named Series of pandas or polars as a frame of one column; anything else as it is.

    Parameters
    ----------
    X : object
    columns : list of str, or None
        The expected names. A single one replaces the name of the Series: values that were computed
        from a column often keep no name or another one.
    """
    is_series = hasattr(X, "to_frame") and hasattr(X, "name") and not is_frame(X)
    if not is_series or (columns is not None and len(columns) != 1):
        return X
    if columns is not None:
        return X.to_frame(columns[0])
    return X.to_frame() if isinstance(X.name, str) and X.name else X


def order_columns(X: Any, columns: list[str] | None, name: str) -> Any:
    """Return a frame with these columns in this order; anything else as it is.

    Of several columns with the same name, the first one goes to the first place, and so on.
    ValueError lists the columns that the frame lacks.
    """
    if columns is None or not is_frame(X):
        return X
    have = [str(c) for c in X.columns]
    if have == columns:
        return X
    places: dict[str, deque[int]] = {}
    for k, column in enumerate(have):
        places.setdefault(column, deque()).append(k)
    order = [places[c].popleft() if places.get(c) else None for c in columns]
    if None in order:
        missing = [c for c, k in zip(columns, order, strict=True) if k is None]
        raise ValueError(f"{name} lacks the columns {missing}; it has {have}")
    return X.iloc[:, order] if hasattr(X, "iloc") else X[:, order]


def frame_numbers(frame: Any) -> Any:
    """Return the numbers of a frame; TypeError names a column that has none."""
    for k, dtype in enumerate(frame.dtypes):
        if not _is_numeric(dtype):
            raise TypeError(
                f"column {k} ({str(frame.columns[k])!r}) has dtype {dtype}; real numbers are "
                "expected: encode it as numbers or drop it"
            )
    values = frame.to_numpy()
    if values.dtype.kind in "fiub":
        return values
    if not hasattr(frame, "iloc"):  # decimals of polars
        return frame.cast(dict.fromkeys(frame.columns, float)).to_numpy()
    # columns of pandas that may lack values, or numbers beside truth values
    return frame.to_numpy(dtype=np.float64, na_value=np.nan)


def _is_numeric(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # a dtype of polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return dtype.kind in "fiub"
