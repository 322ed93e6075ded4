"""One column: a curve of its density, its credible band and the rows as a rug, or bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..density.exponents.exponent import PredictiveTilt
from ..validation import Array, Seed, as_seed, check_flag
from .canvas import (
    BLUE,
    GRAY,
    VERMILION,
    add_title,
    draw_legend,
    make_figure,
    simplify_axes,
)
from .model_limits import find_edges, find_steps, find_values, name_columns, read_model_rows
from .plotted_rows import choose_rows

DENSITY_PLACES = 501  # enough for a smooth curve
RUG_ROWS = 500  # default number of rows in the rug; more would merge into a bar
RUG_HEIGHT = 0.04  # as a share of the axis
BAR_WIDTH = 0.8  # of a discrete value, as a share of its step
BAND_LEVEL = 0.9  # default posterior probability of the band


def density_curve(
    model: Any,
    X: Any = None,
    *,
    band: bool | None = None,
    level: float = BAND_LEVEL,
    n_shown: int = RUG_ROWS,
    seed: Seed = 0,
    title: str | None = None,
) -> Any:
    """The density of one column, with its credible band and a rug of rows.

    Of a discrete column, bars show the probabilities of values, and points the shares of the rows.

    Parameters
    ----------
    model : Density, MarginalDensity or DiscreteDensity of one column
    X : rows of shape (n,) or (n, 1), default None
        Rows to show as a rug; none by default.
    band : bool, default None
        Whether to draw the credible band; by default if the model was learned by FVPD and is not a
        conditional.
    level : float, default 0.9
        Posterior probability of the band, at each place by itself.
    n_shown : int, default 500
        Rows in the rug.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the choice of rows and of the band.
    title : str, default None
        Title above the panel.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        The model or X has more than one column, or a band is asked for and the model has none.

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.density_curve(model, X)
    """
    seed = as_seed(seed)
    rows, low, high = read_model_rows(model, X, 1, "a curve needs one")
    step = float(find_steps(model, 1)[0])
    if step > 0.0:
        figure, axes, values = draw_bars(model, low[0], high[0], step)
        bars: dict[str, tuple[Any, str]] = {"probability": (BLUE, "s")}
        if rows is not None:
            counts = np.histogram(rows[:, 0], find_edges(values, step))[0]
            axes.plot(values, counts / len(rows), "o", color=VERMILION, markersize=3.5)
            bars["share of the data"] = (VERMILION, "o")
        draw_legend(figure, bars)
        return add_title(figure, title)
    has_band = _has_band(model) if band is None else check_flag("band", band)
    figure, axes, line, _ = draw_density(model, low, high)
    legend: dict[str, tuple[Any, str]] = {"density": (BLUE, "solid")}
    if has_band:
        found = model.credible_band(line[:, None], level=level, seed=seed)
        axes.fill_between(line, np.exp(found.lower), np.exp(found.upper), color=VERMILION,
                          alpha=0.3, linewidth=0)  # fmt: skip
        legend[f"{100 * level:.4g} % credible band"] = (VERMILION, "s")
    if rows is not None:
        axes.vlines(
            choose_rows(rows, n_shown, seed)[:, 0], 0.0, RUG_HEIGHT, color=GRAY, alpha=0.5,
            linewidth=0.6, transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        legend["data"] = (GRAY, "|")
    draw_legend(figure, legend)
    return add_title(figure, title)


def draw_density(model: Any, low: Array, high: Array) -> tuple[Any, Any, Array, Array]:
    """The curve of a density of one column between two ends, (1,) each.

    Returns
    -------
    figure : matplotlib Figure
    axes : matplotlib Axes
    line : (n,) array
        Places of the curve.
    values : (n,) array
        Log density there.
    """
    line = np.linspace(low[0], high[0], DENSITY_PLACES)
    values = np.asarray(model.log_density(line[:, None]), dtype=float)
    figure = make_figure(5.0, 3.2)
    axes = figure.subplots()
    axes.plot(line, np.exp(values), color=BLUE)
    axes.set(xlabel=name_columns(model)[0], ylabel="density", ylim=(0.0, None),
             xlim=(low[0], high[0]))  # fmt: skip
    simplify_axes(axes)
    return figure, axes, line, values


def draw_bars(model: Any, low: float, high: float, step: float) -> tuple[Any, Any, Array]:
    """Probabilities of the values of a discrete column between two ends, as bars.

    Returns
    -------
    figure : matplotlib Figure
    axes : matplotlib Axes
    values : (n,) array
        The values of the bars.
    """
    values = find_values(low, high, step)
    figure = make_figure(5.0, 3.2)
    axes = figure.subplots()
    probabilities = np.exp(np.asarray(model.log_density(values[:, None])))
    axes.bar(values, probabilities, width=BAR_WIDTH * step, color=BLUE, alpha=0.6)
    axes.set(xlabel=name_columns(model)[0], ylabel="probability", ylim=(0.0, None),
             xlim=(values[0] - step, values[-1] + step))  # fmt: skip
    axes.xaxis.get_major_locator().set_params(integer=float(step).is_integer())
    simplify_axes(axes)
    return figure, axes, values


def _has_band(model: Any) -> bool:
    return (
        isinstance(getattr(model, "tilt", None), PredictiveTilt) and "given" not in model.settings
    )
