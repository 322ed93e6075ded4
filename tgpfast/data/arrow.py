"""Arrow tables and record batches, as frames that `Blocks` can cut, order and read."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_frame(X: Any) -> Any:
    """`ArrowFrame` of a table or record batch of pyarrow; anything else as it is."""
    is_arrow = type(X).__module__.split(".")[0] == "pyarrow" and hasattr(X, "num_rows")
    return ArrowFrame(X) if is_arrow and hasattr(X, "take") else X


class ArrowFrame:
    """What `Blocks` asks of a frame: names, types, slices, rows by their numbers, columns in
    another order, and numbers. Nothing is copied before that."""

    kind = "pyarrow"
    ndim = 2

    def __init__(self, table: Any) -> None:
        self.table = table
        self.columns = [str(name) for name in table.schema.names]
        self.shape = (int(table.num_rows), len(self.columns))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """As numpy would have them; what is no number is an object."""
        found = []
        for kind in self.table.schema.types:
            try:
                found.append(np.dtype(kind.to_pandas_dtype()))
            except (ImportError, NotImplementedError, TypeError):  # times with zones ask for pandas
                found.append(np.dtype(object))
        return found

    def __getitem__(self, which: Any) -> ArrowFrame:
        if isinstance(which, tuple):  # all rows, these columns
            return ArrowFrame(self.table.select([int(k) for k in which[1]]))
        if isinstance(which, slice):
            start, stop, _ = which.indices(len(self))
            return ArrowFrame(self.table.slice(start, stop - start))
        return ArrowFrame(self.table.take(which))

    def to_numpy(self) -> Any:
        """(rows, columns) of float64."""
        batches = self.table.to_batches() if hasattr(self.table, "to_batches") else [self.table]
        rows, at = np.empty(self.shape), 0
        for batch in batches:
            fill_numbers(batch, range(self.shape[1]), rows[at : at + batch.num_rows])
            at += batch.num_rows
        return rows


def numbers_of(batch: Any, places: Any) -> Any:
    """Columns of a record batch, by name or place, as one array of float64: true and false as 1.0
    and 0.0, values that are missing as nan."""
    rows = np.empty((batch.num_rows, len(places)))
    fill_numbers(batch, places, rows)
    return rows


def fill_numbers(batch: Any, places: Any, rows: Any) -> None:
    """Write what ``numbers_of`` returns into an array of that shape."""
    for k, place in enumerate(places):
        cells = batch.column(place)
        if str(cells.type) == "bool":
            cells = cells.cast("uint8")
        if cells.null_count or not hasattr(cells, "__dlpack__"):  # from pyarrow 15 on
            rows[:, k] = cells.to_numpy(zero_copy_only=False)  # imports pandas
        else:
            rows[:, k] = np.from_dlpack(cells)
