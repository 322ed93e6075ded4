"""Names and ends of the axes of a model's picture, with or without rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..bases.domain import domain_of
from ..data.column_maps import MappedScaling
from ..data.jitter import OFF_GRID
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
    """Ends of the axes, (d,) each: around the rows, or around most of the probability. No axis of a
    periodic column leaves the period that samples lie in.

    Parameters
    ----------
    model : Density, MarginalDensity or DiscreteDensity
    rows : ndarray of shape (n, d), or None
    """
    if rows is not None:
        low, high = find_limits(rows, ROWS_MARGIN)
        return within_periods(model, low, high, rows)
    ends = np.asarray(model.quantile([HIDDEN_SHARE, 1.0 - HIDDEN_SHARE])).reshape(2, -1)
    gap = TAIL_MARGIN * (ends[1] - ends[0])
    return within_periods(model, ends[0] - gap, ends[1] + gap)


def within_periods(
    model: Any, low: Array, high: Array, rows: Array | None = None
) -> tuple[Array, Array]:
    """Ends of axes, those of periodic columns within the period that samples lie in. Columns with
    rows in other periods keep their ends.

    Parameters
    ----------
    model : object
    low, high : ndarray of shape (d,)
    rows : ndarray of shape (n, d), or None
    """
    first, last = find_periods(model, len(low))
    if rows is not None:
        beyond = (rows.min(axis=0) < first) | (rows.max(axis=0) > last)
        first, last = np.where(beyond, -np.inf, first), np.where(beyond, np.inf, last)
    return np.maximum(low, first), np.minimum(high, last)


def find_periods(model: Any, d: int) -> tuple[Array, Array]:
    """Ends of the period that samples lie in, (d,) each, in the units of the data; infinite for
    columns without a period, and for models that are no densities of this package."""
    first, last = np.full(d, -np.inf), np.full(d, np.inf)
    columns = np.arange(d)
    discrete = getattr(model, "inner", None)  # of a density of discrete columns
    if discrete is not None:
        columns, model = np.array(model.columns), discrete
    if hasattr(model, "joint"):  # of a marginal density
        columns, model = np.array(model.columns)[columns], model.joint
    if not (hasattr(model, "base") and hasattr(model, "scaling")):
        return first, last
    domain, scaling = domain_of(model.base), model.scaling
    affine = scaling.affine if isinstance(scaling, MappedScaling) else scaling
    for i, k in enumerate(columns.tolist()):
        if domain.periodic[k]:
            ends = np.array([domain.low[k], domain.high[k]])
            first[i], last[i] = ends * affine.scale[k] + affine.shift[k]
    return first, last


def find_values(low: float, high: float, step: float) -> Array:
    """Values of a discrete column between two ends; the nearest one if there is none."""
    first, last = math.ceil(low / step - OFF_GRID), math.floor(high / step + OFF_GRID)
    middle = round(0.5 * (low + high) / step)
    return np.arange(min(first, middle), max(last, middle) + 1.0) * step


def find_edges(line: Array, width: float) -> Array:
    """Edges of cells of one width around the places of a line, (n + 1,)."""
    return np.append(line, line[-1] + width) - 0.5 * width


def find_steps(model: Any, d: int) -> Array:
    """Steps of discrete columns, (d,); 0 for the others."""
    steps = getattr(model, "own_steps", {})
    return np.array([steps.get(k, 0.0) for k in range(d)])
