"""Arrow tables and record batches, as frames that `Blocks` can slice, order and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..validation import Array


def as_frame(X: Any) -> Any:
    """Return a table or record batch of pyarrow as an `ArrowFrame`; anything else as it is."""
    is_arrow = type(X).__module__.split(".")[0] == "pyarrow" and hasattr(X, "num_rows")
    return ArrowFrame(X) if is_arrow and hasattr(X, "take") else X


class ArrowFrame:
    """An Arrow table with the interface that `Blocks` expects of a frame.

    It has names, dtypes, slices, rows by their numbers, and columns in another order. Numbers are
    copied only by ``to_numpy``.

    Parameters
    ----------
    table : pyarrow.Table or pyarrow.RecordBatch
    """

    frame_kind = "pyarrow"
    ndim = 2

    def __init__(self, table: Any) -> None:
        self.table = table
        self.columns = [str(name) for name in table.schema.names]
        self.shape = (int(table.num_rows), len(self.columns))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """The dtypes that numpy would have; object for columns that hold no numbers."""
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

    def to_numpy(self) -> Array:
        """Return all rows as float64."""
        batches = self.table.to_batches() if hasattr(self.table, "to_batches") else [self.table]
        rows, at = np.empty(self.shape), 0
        for batch in batches:
            fill_numbers(batch, range(self.shape[1]), rows[at : at + batch.num_rows])
            at += batch.num_rows
        return rows


def fill_numbers(batch: Any, columns: Sequence[str | int], rows: Array) -> None:
    """Write columns of a record batch, by name or place, into ``rows``, (n, columns) of float64.

    True and False become 1.0 and 0.0, missing values nan.
    """
    for k, column in enumerate(columns):
        cells = batch.column(column)
        if str(cells.type) == "bool":
            cells = cells.cast("uint8")
        if cells.null_count or not hasattr(cells, "__dlpack__"):  # which pyarrow has from 15 on
            rows[:, k] = cells.to_numpy(zero_copy_only=False)  # imports pandas
        else:
            rows[:, k] = np.from_dlpack(cells)
