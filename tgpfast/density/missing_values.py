"""Log densities of rows with missing entries: the marginal of the columns that are present."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.arrow import as_frame
from ..data.rows import as_table, count_columns, is_stream, slice_rows
from ..data.table import Table, column_name, order_columns
from ..validation import Array

MISSING_POLICIES = ("error", "marginal")


def score_incomplete_rows(model: Any, Y: Any) -> Any:
    """Log density of every row, by the marginal of the columns that it has; nan is missing.

    A row without any entry has a log density of 0. Densities of rows with different columns have
    different units: compare them within a pattern.

    Parameters
    ----------
    model : Density
    Y : array-like or data frame, (n, d)
        In memory.
    """
    if isinstance(Y, (str, bytes)) or hasattr(Y, "__fspath__") or is_stream(Y):
        raise TypeError(
            'missing="marginal" needs rows in memory: an array or a data frame; read the file or '
            "the stream first"
        )
    names = model.table.columns
    source = order_columns(as_frame(Y), names, "Y")
    table = as_table(source, "Y")
    count_columns(table, "Y", model.dimension)
    x = slice_rows(table, 0, len(table))
    if np.isinf(x).any():
        row, column = (int(i) for i in np.argwhere(np.isinf(x))[0])
        raise ValueError(
            f"Y holds {x[row, column]} at row {row}, column {column_name(column, names)}; "
            "give nan where a value is missing"
        )
    values = np.zeros(len(x))
    present = ~np.isnan(x)
    patterns, owners = np.unique(present, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        rows = np.flatnonzero(owners.ravel() == k)
        values[rows] = _score(model, x[rows], np.flatnonzero(pattern).tolist())
    return Table.from_rows(source, None).series(values, "log_density")


def _score(model: Any, x: Array, columns: list[int]) -> Array:
    if not columns:
        return np.zeros(len(x))
    part = model if len(columns) == model.dimension else model.marginal(columns)
    return np.asarray(part.log_density(np.ascontiguousarray(x[:, columns])), dtype=float)
