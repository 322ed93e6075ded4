"""Log densities of rows with missing entries: the marginal of the columns that are present."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.blocks import Blocks
from ...validation import Array

MISSING_POLICIES = ("error", "marginal")


def score_incomplete_rows(model: Any, Y: Any) -> Any:
    """Log density of every row, by the marginal of the columns that it has; nan is missing.

    A row without any entry has a log density of 0. Densities of rows with different columns have
    different units: compare them within a pattern.

    Parameters
    ----------
    model : Density
    Y : rows (n, d)
        As for ``log_density``.
    """
    names = model.table.columns
    blocks = Blocks(Y, dimension=model.dimension, columns=names, name="Y", keep_missing=True)
    x = blocks.whole()
    values = np.zeros(len(x))
    patterns, owners = np.unique(~np.isnan(x), axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        rows = np.flatnonzero(owners.ravel() == k)
        values[rows] = _score(model, x[rows], np.flatnonzero(pattern).tolist())
    return blocks.table.series(values, "log_density")


def _score(model: Any, x: Array, columns: list[int]) -> Array:
    if not columns:
        return np.zeros(len(x))
    part = model if len(columns) == model.dimension else model.marginal(columns)
    return np.asarray(part.log_density(np.ascontiguousarray(x[:, columns])), dtype=float)
