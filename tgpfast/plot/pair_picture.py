"""All pairs of columns: data, samples, and histograms of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..density.answers.column_choice import find_columns
from ..validation import Array, Seed, as_seed, whole
from .canvas import (
    BLUE,
    VERMILION,
    add_title,
    draw_histograms,
    draw_legend,
    draw_points,
    make_figure,
    simplify_axes,
)
from .model_limits import find_steps, find_values, within_periods
from .plotted_rows import PAIRED_ROWS, choose_rows, draw_rows, find_limits, name_model, read_rows

MOST_COLUMNS = 6  # more panels would be too small to read


def pairs(
    model: Any,
    X: Any = None,
    *,
    columns: Sequence[str | int] | None = None,
    n_shown: int = 1_000,
    n_bins: int = 40,
    seed: Seed = 0,
    title: str | None = None,
    margin: float = 0.05,
) -> Any:
    """Every pair of columns: data below the diagonal, samples above it, histograms on it.

    Parameters
    ----------
    model : object
        With ``sample(n, seed)``.
    X : rows, default None
        With at least two columns, as for ``fit``. Without them, draws of the model are on both
        sides of the diagonal.
    columns : sequence of str or int, default None
        Two to six columns, by name or index; by default the first six.
    n_shown : int, default 1000
        Points in a panel. Histograms take all rows of X, and as many draws, up to 20,000.
    n_bins : int, default 40
        Bins of each histogram, over the range of the data; at most so many in discrete columns,
        where a bin holds one value or several.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the samples and of the choice of rows that are shown.
    title : str, default None
        Title above all panels.
    margin : float, default 0.05
        Margin around the data, as a share of their range.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.pairs(model, X)
    """
    (name,) = named = name_model(model)
    seed = as_seed(seed)
    data = model.sample(PAIRED_ROWS, seed=seed) if X is None else X
    every, names, order = read_rows(named, data)
    n_shown, n_bins = whole("n_shown", n_shown), whole("n_bins", n_bins)
    chosen = _choose_columns(columns, names)
    k = len(chosen)
    n_draws = max(n_shown, min(len(every), PAIRED_ROWS))
    drawn = (every if X is None else draw_rows(model, n_draws, seed, order))[:, chosen]
    x, labels = every[:, chosen], [names[c] for c in chosen]
    ends = within_periods(model, *find_limits(every, margin), every)
    low, high = (end[chosen] for end in ends)
    steps = find_steps(model, len(names))[chosen]
    shown = choose_rows(x, n_shown, seed)
    figure = make_figure(0.6 + 1.75 * k, 0.9 + 1.6 * k)
    panels = figure.subplots(k, k, sharex="col", squeeze=False)
    for (i, j), axes in np.ndenumerate(panels):
        axes.set_xlim(low[j], high[j])
        simplify_axes(axes)
        axes.locator_params(axis="x", nbins=3)
        if i == j:
            bins = _make_bins(float(low[i]), float(high[i]), n_bins, float(steps[i]))
            values = {} if X is None else {"data": (x[:, i], BLUE)}
            draw_histograms(axes, {**values, name: (drawn[:, i], VERMILION)}, bins)
            axes.set_yticks([])
            continue
        axes.set_ylim(low[i], high[i])
        points, color = (shown, BLUE) if i > j and X is not None else (drawn[:n_shown], VERMILION)
        draw_points(axes, points[:, [j, i]], color)
        axes.locator_params(axis="y", nbins=4)
        if j > 0 and not (i == 0 and j == 1):
            axes.tick_params(labelleft=False)
    for i, label in enumerate(labels):
        panels[i, 0].set_ylabel(label, fontsize="small")
        panels[-1, i].set_xlabel(label, fontsize="small")
    legend = {} if X is None else {"data": (BLUE, "o")}
    draw_legend(figure, {**legend, f"samples of {name}": (VERMILION, "o")})
    return add_title(figure, title)


def _make_bins(low: float, high: float, n_bins: int, step: float) -> Array:
    """Edges of bins; where values are multiples of a step, each bin holds equally many of them."""
    if step == 0.0:
        return np.linspace(low, high, n_bins + 1)
    values = find_values(low, high, step)
    each = math.ceil(len(values) / n_bins)
    count = math.ceil(len(values) / each)
    return values[0] + (each * np.arange(count + 1.0) - 0.5) * step


def _choose_columns(columns: Sequence[str | int] | None, names: list[str]) -> list[int]:
    """Numbers of the columns to show."""
    chosen = list(range(min(len(names), MOST_COLUMNS)))
    if columns is not None:
        chosen = find_columns(columns, names, len(names))
    if not 2 <= len(chosen) <= MOST_COLUMNS:
        raise ValueError(
            f"a pair plot needs 2 to {MOST_COLUMNS} different columns, got {len(chosen)}"
        )
    return chosen
