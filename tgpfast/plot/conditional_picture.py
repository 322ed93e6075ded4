"""One column given another: mean and bands along a line of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.table import find_column
from ..density.answers.column_choice import check_levels
from ..validation import Array, Seed, as_seed, whole
from .canvas import (
    GRAY,
    SHOWN_POINTS,
    SKY,
    VERMILION,
    add_title,
    draw_legend,
    draw_points,
    make_figure,
    simplify_axes,
)
from .model_limits import find_steps, name_columns, read_model_rows, within_periods
from .plane import picture_log_density
from .plotted_rows import choose_rows

BAND_LEVELS = (0.5, 0.9)  # default probabilities of the bands
LINE_POINTS = 120  # values of the given column
NEAR_ENDS = 0.005  # share of the given column's probability beyond each end of the line
GRID_CELLS = 160  # of the column on the vertical axis, where bands come from a grid
GRID_MARGIN = 0.15  # by which this grid exceeds the axis at both ends, as a share of the axis
BAND_OPACITY = 0.35  # opacity of a band; bands overlap, so that the narrowest is the darkest


def conditional_bands(
    model: Any,
    X: Any = None,
    *,
    column: str | int = 1,
    levels: Sequence[float] = BAND_LEVELS,
    n_shown: int = SHOWN_POINTS,
    seed: Seed = 0,
    title: str | None = None,
) -> Any:
    """Mean and bands of one column given the other, as a regression with its spread.

    Parameters
    ----------
    model : Density or MarginalDensity of two columns
        Of more columns, take ``model.marginal`` of two, or ``model.conditional`` with values of the
        others, first.
    X : rows of shape (n, 2), default None
        Rows to show; none by default.
    column : str or int, default 1
        The column on the vertical axis; the other one is given.
    levels : sequence of float, default (0.5, 0.9)
        Probabilities of the bands, which have equal tails; in (0, 1).
    n_shown : int, default 3000
        Rows that are shown.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the choice of rows.
    title : str, default None
        Title above the panel.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        The model does not have two columns, the column is not known, or a level is not in (0, 1).

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.conditional_bands(model, X, column=1)
    """
    seed, shares = as_seed(seed), np.unique(check_levels("levels", levels))[::-1]
    rows, *ends = read_model_rows(
        model, X, 2,
        "conditional bands need two: take model.marginal of two columns, or give values of the "
        "others with model.conditional, first",
    )  # fmt: skip
    up = find_column(column, model.table.columns, 2)
    across = 1 - up
    line = _place_line(model, across)
    continuous = getattr(model, "dequantized", model)
    if hasattr(continuous, "joint"):  # a marginal density has no table of its conditionals
        table: Any = _ConditionalGrid(continuous, across, line, ends[0][up], ends[1][up])
    else:
        table = model.conditional({across: line})
    figure = make_figure(5.2, 3.8)
    axes = figure.subplots()
    legend: dict[str, tuple[Any, str]] = {}
    if rows is not None:
        shown = choose_rows(rows, whole("n_shown", n_shown), seed)
        draw_points(axes, shown[:, [across, up]], GRAY)
        legend["data"] = (GRAY, "o")
    for k, share in enumerate(shares.tolist()):
        axes.fill_between(line, *table.band(share).T, color=SKY, alpha=BAND_OPACITY, linewidth=0)
        seen = (SKY, 1.0 - (1.0 - BAND_OPACITY) ** (k + 1))  # of bands over each other
        legend[f"{100 * share:.4g} %"] = (seen, "s")
    axes.plot(line, table.mean, color=VERMILION, linewidth=1.8)
    legend["mean"] = (VERMILION, "solid")
    names = name_columns(model)
    axes.set(xlabel=names[across], ylabel=f"{names[up]} given {names[across]}",
             xlim=(ends[0][across], ends[1][across]), ylim=(ends[0][up], ends[1][up]))  # fmt: skip
    simplify_axes(axes)
    draw_legend(figure, legend)
    return add_title(figure, title)


class _ConditionalGrid:
    """Mean and bands of one column given each place of a line, from densities of both on a grid.

    Parameters
    ----------
    model : MarginalDensity of two columns
    across : int
        The given column.
    line : (n,) array
        Its values.
    low, high : float
        Ends of the other column's axis.
    """

    def __init__(self, model: Any, across: int, line: Array, low: float, high: float) -> None:
        margin = GRID_MARGIN * (high - low)
        ends = np.zeros((2, 2))
        ends[:, 1 - across] = low - margin, high + margin
        ends[:, across] = line[0], line[-1]
        low, high = (end[1 - across] for end in within_periods(model, *ends))
        self._step = (high - low) / GRID_CELLS
        self._centers = low + (np.arange(GRID_CELLS) + 0.5) * self._step
        rows = np.empty((len(line), GRID_CELLS, 2))
        rows[:, :, across], rows[:, :, 1 - across] = line[:, None], self._centers
        log_p = picture_log_density(model, rows.reshape(-1, 2)).reshape(len(line), -1)
        shares = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        self._shares = shares / shares.sum(axis=1, keepdims=True)
        self.mean = self._shares @ self._centers

    def band(self, level: float) -> Array:
        """Ends of bands with equal tails, (n, 2)."""
        tails = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        edges = np.append(self._centers - 0.5 * self._step, self._centers[-1] + 0.5 * self._step)
        return np.array([
            np.interp(tails, np.append(0.0, np.cumsum(share)), edges) for share in self._shares
        ])  # fmt: skip


def _place_line(model: Any, across: int) -> Any:
    """Values of the given column, between its quantiles; of a discrete one, values on its grid."""
    low, high = model.quantile([NEAR_ENDS, 1.0 - NEAR_ENDS], column=across)
    line = np.linspace(low, high, LINE_POINTS)
    step = float(find_steps(model, 2)[across])
    return line if step == 0.0 else np.unique(np.rint(line / step)) * step
