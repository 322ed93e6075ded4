"""Names and ends of the axes of a model's picture, with or without rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import Array
from .plotted_rows import default_names, find_limits

HIDDEN_SHARE = 0.001  # share of a column's probability beyond each end of a picture without rows
TAIL_MARGIN, ROWS_MARGIN = 0.05, 0.1  # around these quantiles and around rows, shares of the range


def name_columns(model: Any) -> list[str]:
    """Names of the model's columns, for axes."""
    names: list[str] | None = model.table.columns
    return default_names(model.dimension) if names is None else names


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
