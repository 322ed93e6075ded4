"""Names and ends of the axes of a model's picture, with or without rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import Array
from .plotted_rows import default_names, find_limits, name_model, read_rows

HIDDEN_SHARE = 0.001  # share of a column's probability beyond each end of a picture without rows
TAIL_MARGIN, ROWS_MARGIN = 0.05, 0.1  # around these quantiles and around rows, shares of the range


def name_columns(model: Any) -> list[str]:
    """Names of the model's columns, for axes."""
    names: list[str] | None = model.table.columns
    return default_names(model.dimension) if names is None else names


def read_model_rows(
    model: Any, X: Any, d: int, needs: str
) -> tuple[Array | None, Array, Array]:
    """The rows of X, None without any, and the ends of the axes; see `find_model_limits`.

    Parameters
    ----------
    model : Density or MarginalDensity
    X : rows of d columns, or None
    d : int
        Columns that the picture can show.
    needs : str
        What it needs, for the error where the model has another number of columns.
    """
    named = name_model(model)
    if model.dimension != d:
        raise ValueError(f"the model has {model.dimension} columns; {needs}")
    rows = None if X is None else read_rows(named, X, needed=d)[0]
    return rows, *find_model_limits(model, rows)


def find_model_limits(model: Any, rows: Array | None) -> tuple[Array, Array]:
    """Ends of the axes, (d,) each: around the rows, or around most of the probability.

    Parameters
    ----------
    model : Density or MarginalDensity
    rows : ndarray of shape (n, d), or None
    """
    if rows is not None:
        return find_limits(rows, ROWS_MARGIN)
    ends = np.asarray(model.quantile([HIDDEN_SHARE, 1.0 - HIDDEN_SHARE])).reshape(2, -1)
    gap = TAIL_MARGIN * (ends[1] - ends[0])
    return ends[0] - gap, ends[1] + gap
