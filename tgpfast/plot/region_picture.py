"""A highest-density region: a filled part of a curve, or a contour around rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..validation import Array
from .canvas import (
    BLUE,
    GRAY,
    SHOWN_POINTS,
    VERMILION,
    draw_legend,
    draw_points,
    fade,
)
from .curve_picture import draw_bars, draw_density
from .model_limits import find_edges, find_steps, find_values, within_periods
from .plane import Plane
from .plotted_rows import find_limits, read_rows

REGION_MARGIN = 0.1  # around the rows, as a share of their range
FILLED = 0.3  # opacity of a region
REGION_SIDE = 160  # grid points along a side of a contour


def highest_density_region(region: Any, X: Any = None) -> Any:
    """The region of a density of one or two columns, with its probability.

    Parameters
    ----------
    region : HighestDensityRegion
        From ``model.highest_density_region(level)``.
    X : rows, default None
        Data to show with the region; 3,000 draws of the model by default.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        The density has more than two columns.

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> region = model.highest_density_region(0.9)
    >>> figure = tgpfast.plot.highest_density_region(region, X)
    """
    model = region.model
    if model.dimension > 2:
        raise ValueError(
            f"a region of {model.dimension} columns cannot be drawn; take a marginal of one or two"
        )
    rows = model.sample(SHOWN_POINTS, seed=0) if X is None else X
    label = f"{100 * region.probability:.1f} % of the probability"
    if model.dimension == 1:
        return _draw_curve(region, rows, label)
    x, names, columns = read_rows({"region": model}, rows, needed=2)
    ends = within_periods(model, *find_limits(x, REGION_MARGIN), x)
    plane = Plane.around(x, ends, names, columns, SHOWN_POINTS, 0)
    figure, (axes,) = plane.make_panels([""])
    shown = "draws" if X is None else plane.data_label
    steps = find_steps(model, 2)
    if steps.any():
        _fill_cells(axes, region, plane, steps)
        draw_points(axes, plane.shown, GRAY)
        draw_legend(figure, {shown: (GRAY, "o"), label: (VERMILION, "s")})
        return figure
    plane.draw_contours(axes, model, REGION_SIDE, [region.threshold])
    draw_legend(figure, {shown: (GRAY, "o"), label: (VERMILION, "solid")})
    return figure


def _fill_cells(axes: Any, region: Any, plane: Plane, steps: Array) -> None:
    """Cells of the region: as wide as the step of a discrete column, narrow along another one."""
    lines = [
        find_values(low, high, step) if step > 0.0 else np.linspace(low, high, REGION_SIDE)
        for low, high, step in zip(plane.low, plane.high, steps, strict=True)
    ]
    nodes = np.stack(np.meshgrid(*lines), axis=-1)
    inside = np.reshape(region.contains(nodes.reshape(-1, 2)), nodes.shape[:2]).astype(float)
    widths = [h if h > 0.0 else line[1] - line[0] for h, line in zip(steps, lines, strict=True)]
    edges = map(find_edges, lines, widths)
    axes.pcolormesh(*edges, inside, cmap=fade(VERMILION, FILLED), vmin=0.0, vmax=1.0)


def _draw_curve(region: Any, rows: Any, label: str) -> Any:
    model = region.model
    x = Blocks(rows, columns=model.table.columns).whole()
    low, high = within_periods(model, *find_limits(x, REGION_MARGIN), x)
    step = float(find_steps(model, 1)[0])
    if step > 0.0:
        figure, axes, values = draw_bars(model, low[0], high[0], step)
        for bar, is_inside in zip(axes.patches, region.contains(values[:, None]), strict=True):
            bar.set_color(VERMILION if is_inside else BLUE)
        draw_legend(figure, {"probability": (BLUE, "s"), label: (VERMILION, "s")})
        return figure
    figure, axes, line, values = draw_density(model, low, high)
    axes.fill_between(
        line, np.exp(values), where=values >= region.threshold, color=VERMILION, alpha=FILLED
    )
    draw_legend(figure, {"density": (BLUE, "solid"), label: (VERMILION, "s")})
    return figure
