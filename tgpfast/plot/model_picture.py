"""The picture of a model that suits its number of columns; behind ``model.plot``."""

from __future__ import annotations

from typing import Any

from ..validation import check_flag
from .cell_picture import has_cells, probability_cells
from .curve_picture import density_curve
from .pair_picture import pairs
from .region_contours import region_contours

# Options that a picture of cells respects: it shows all rows, so that it chooses none.
CELL_OPTIONS = {"n_shown", "seed", "title"}
QUICK_COLUMNS, QUICK_ROWS = 3, 500  # of a quick picture of pairs


def plot_model(model: Any, X: Any = None, *, quick: bool = False, **options: Any) -> Any:
    """A curve of one column, contours of two, pairs of more. Bars of one discrete column, cells of
    two; contours of discrete columns are those of the density of rows with noise.

    Parameters
    ----------
    model : Density, MarginalDensity or DiscreteDensity
    X : rows, default None
        Data to show with the model.
    quick : bool, default False
        Leave out what takes long: the credible band, the probability of regions by draws, and
        columns after the third.
    **options
        Those of `density_curve`, `region_contours`, `probability_cells` or `pairs`. With options
        that only `region_contours` has, contours are drawn instead of cells.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.plot_model(model, X)  # model.plot(X) does the same
    """
    if CELL_OPTIONS.issuperset(options) and has_cells(model, X):
        return probability_cells(model, X, title=options.get("title"))
    if check_flag("quick", quick):
        few = {"columns": range(QUICK_COLUMNS), "n_shown": QUICK_ROWS}
        options |= {1: {"band": False}, 2: {"by_draws": False}}.get(model.dimension, few)
    if model.dimension == 1:
        return density_curve(model, X, **options)
    if model.dimension == 2:
        model = getattr(model, "dequantized", model)
        return region_contours(model, X, **options)
    return pairs(model, X, **options)
