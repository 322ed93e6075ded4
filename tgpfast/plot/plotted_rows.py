"""The numbers behind pictures: models by title, rows in the models' order, limits of axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..validation import Array

# if a value is farther from the central 90 % of the values than OUTLIER_WIDTHS times their width,
# the axis shows only those within KEPT_WIDTHS: a few outliers must not shrink all else to a dot
OUTLIER_WIDTHS, KEPT_WIDTHS = 10.0, 3.0
CONSTANT_RANGE = 1e-10  # range of a column, relative to its values, that a picture cannot show
CONSTANT_MARGIN = 0.25  # least margin of a constant column, relative to its value
PAIRED_ROWS = 20_000  # largest number of draws that are compared with the data


def name_models(models: Any) -> dict[str, Any]:
    """Models by title, from a mapping or from one model."""
    if not isinstance(models, Mapping):
        return name_model(models)
    if not models:
        raise ValueError("models is empty; give at least one")
    return {str(name): model for name, model in models.items()}


def name_model(model: Any) -> dict[str, Any]:
    """One model by its method or class; TypeError if it is no model."""
    if not any(hasattr(model, name) for name in ("log_density", "sample", "marginal_cdf")):
        raise TypeError(
            f"{type(model).__name__} is no model: it has neither log_density nor sample; give "
            "several models as a mapping, title -> model"
        )
    method = getattr(model, "method", None)
    return {method.upper() if isinstance(method, str) else type(model).__name__: model}


def read_rows(
    models: dict[str, Any], X: Any, needed: int | None = None
) -> tuple[Array, list[str], list[str] | None]:
    """(all rows in the models' order of columns, names for the axes, the models' column names).

    Parameters
    ----------
    models : dict of str to model
    X : rows
    needed : int, default None
        The number of columns that the picture needs.
    """
    orders = [getattr(getattr(m, "table", None), "columns", None) for m in models.values()]
    orders = [order for order in orders if order is not None]
    if any(order != orders[0] for order in orders):
        raise ValueError(f"the models have different columns: {orders}")
    columns = orders[0] if orders else None
    blocks = Blocks(X, columns=columns)
    x = blocks.whole()
    d = x.shape[1]
    if needed is not None and d != needed:
        raise ValueError(f"X has {d} columns; a picture needs {needed}")
    for name, model in models.items():
        if getattr(model, "dimension", d) != d:
            raise ValueError(f"X has {d} columns, but {name} is a density of {model.dimension}")
    return x, blocks.table.columns or columns or default_names(d), columns


def default_names(d: int) -> list[str]:
    """Names of columns that have none."""
    return ["x", "y"] if d == 2 else [f"x{k + 1}" for k in range(d)]


def draw_rows(model: Any, n: int, seed: int, columns: list[str] | None) -> Array:
    """n rows drawn from a model."""
    return Blocks(model.sample(n, seed=seed), columns=columns, name="sample").whole()


def choose_rows(x: Array, n: int, seed: int) -> Array:
    """At most n of the rows, at random."""
    return x[np.random.default_rng(seed).permutation(len(x))[:n]]


def find_limits(x: Array, margin: float) -> tuple[Array, Array]:
    """Lower and upper ends of the axis of every column, without outliers, with a margin.

    Parameters
    ----------
    x : ndarray of shape (n, d)
    margin : float
        Margin as a share of the range.
    """
    if not (isinstance(margin, (int, float, np.number)) and 0.0 <= margin < np.inf):
        raise ValueError(f"margin={margin!r}: expected a finite number of at least 0")
    low, high = x.min(axis=0), x.max(axis=0)
    q_low, q_high = np.quantile(x, [0.05, 0.95], axis=0, method="nearest")
    for k, width in enumerate(q_high - q_low):
        if width > 0 and max(q_low[k] - low[k], high[k] - q_high[k]) > OUTLIER_WIDTHS * width:
            reach = KEPT_WIDTHS * width
            near = np.clip(x[:, k], q_low[k] - reach, q_high[k] + reach) == x[:, k]
            low[k], high[k] = x[near, k].min(), x[near, k].max()
    width, size = high - low, np.maximum(np.abs(low), np.abs(high))
    widest = np.maximum(size, 1.0) * max(margin, CONSTANT_MARGIN)
    gap = np.where(width <= CONSTANT_RANGE * size, widest, width * margin)
    return low - gap, high + gap
