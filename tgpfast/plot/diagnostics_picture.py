"""How well draws from the base represent a density."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..density.normalizing.normalizer import Normalizer
from ..evaluation.result import rows_text
from ..validation import Array, Seed, as_seed, whole
from .canvas import (
    BLACK,
    BLUE,
    GRAY,
    SHOWN_POINTS,
    VERMILION,
    add_title,
    draw_histograms,
    draw_legend,
    draw_points,
    draw_text,
    draw_titled_legend,
    make_panels,
    require_matplotlib,
    simplify_axes,
)
from .plotted_rows import (
    PAIRED_ROWS,
    choose_rows,
    default_names,
    draw_rows,
    find_limits,
    name_model,
    read_rows,
)

N_BINS = 60  # of a histogram: narrow enough for its shape, wide enough for 3,000 rows
LOG_CURVE_POINTS = 400  # enough for a smooth curve on a logarithmic axis
HIDDEN_TAIL = 0.002  # share of log densities that may lie left of the axis
LEAST_DRAWS = 1_000  # draws whose log density is compared with that of the data


def diagnostics(
    model: Any,
    X: Any = None,
    *,
    n_draws: int = 50_000,
    n_shown: int = SHOWN_POINTS,
    seed: Seed = 0,
    title: str | None = None,
) -> Any:
    """How evenly the draws from the base carry a density, and where the heaviest draws lie.

    The panels are: the share of the weight in the heaviest draws, with the effective sample size
    and the normalizer; a histogram of the log weights; with X, histograms of the log density of
    data and samples; and, for two or more columns, the draws with half of the weight.

    Parameters
    ----------
    model : Density
    X : rows, default None
        As for ``fit``; without it the third panel is left out.
    n_draws : int, default 50_000
        Draws from the base.
    n_shown : int, default 3000
        Points in a panel.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the draws and of the choice of rows that are shown.
    title : str, default None
        Title above all panels.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.diagnostics(model, X, n_draws=5_000)
    """
    require_matplotlib()
    if not hasattr(model, "weighted_sample"):
        raise TypeError(f"{type(model).__name__} has no weighted draws; densities of tgpfast have")
    n_draws, n_shown = whole("n_draws", n_draws), whole("n_shown", n_shown)
    seed, x, columns = as_seed(seed), None, getattr(model.table, "columns", None)
    names = columns or default_names(model.dimension)
    if X is not None:
        x, names, columns = read_rows(name_model(model), X)
    points, weights = model.weighted_sample(n_draws, seed)
    order = np.argsort(-weights, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    titles = [
        "weight of the heaviest draws", "log weights", *["log density"] * (x is not None),
        *["where the weight lies"] * (model.dimension > 1),
    ]  # fmt: skip
    figure, panels = make_panels(titles, (3.6, 3.0), across=2 if len(titles) == 4 else 3)
    for axes in panels:
        simplify_axes(axes)
    effective = float(weights.sum() ** 2 / (weights @ weights))
    _draw_shares(panels[0], share, effective, model.log_normalizer)
    _draw_log_weights(panels[1], weights)
    if x is not None:
        drawn = draw_rows(model, min(max(len(x), LEAST_DRAWS), PAIRED_ROWS), seed, columns)
        _draw_log_densities(panels[2], {
            "data": (np.asarray(model.log_density(x)), BLUE),
            "samples": (np.asarray(model.log_density(drawn)), VERMILION),
        })  # fmt: skip
    if model.dimension > 1:
        heavy = points[order[: int(np.searchsorted(share, 0.5)) + 1]]
        label, others = ("draws from the base", points) if x is None else ("data", x)
        _draw_heavy(panels[-1], heavy[:, :2], label, others[:, :2], names, n_shown, seed)
    return add_title(figure, title)


def _draw_shares(axes: Any, share: Array, effective: float, normalizer: Normalizer) -> None:
    """Share of the weight against the share of the draws, heaviest first."""
    n = len(share)
    part = np.arange(1, n + 1) / n
    keep = np.unique(np.geomspace(1, n, LOG_CURVE_POINTS).astype(int)) - 1
    axes.plot(part[keep], part[keep], color=GRAY, linewidth=1.3, label="equal weights")
    axes.plot(part[keep], share[keep], color=VERMILION, linewidth=2.0, label="these weights")
    axes.set(xscale="log", xlim=(1.0 / n, 1.0) if n > 1 else (0.5, 1.0), ylim=(0.0, 1.02),
             xlabel="share of the draws, heaviest first", ylabel="share of the weight")  # fmt: skip
    draw_titled_legend(
        axes,
        f"effective draws {effective:,.0f} of {n:,}\n({100 * effective / n:.3g} %)\n"
        f"log Z {normalizer.value:.4g}, error {normalizer.standard_error:.1g}\n"
        f"({normalizer.method})",
    )


def _draw_log_weights(axes: Any, weights: Array) -> None:
    positive = weights[weights > 0]
    values = np.log(positive / positive.max())
    low, high = find_limits(values[:, None], 0.05)
    draw_histograms(
        axes, {"base draws": (values, VERMILION)}, np.linspace(low[0], high[0], N_BINS + 1)
    )
    axes.set(xlabel="log weight, relative to the heaviest", ylabel="share of draws per unit",
             xlim=(low[0], high[0]))  # fmt: skip
    if len(positive) < len(weights):
        draw_text(
            axes, [(f"{len(weights) - len(positive):,} draws have weight 0", BLACK)],
            corner="upper left",
        )  # fmt: skip


def _draw_log_densities(axes: Any, values: dict[str, tuple[Array, str]]) -> None:
    everything = np.concatenate([value for value, _ in values.values()])
    finite = everything[np.isfinite(everything)]
    near = finite[finite >= np.quantile(finite, HIDDEN_TAIL)] if len(finite) else np.zeros(1)
    low, high = find_limits(near[:, None], 0.05)
    draw_histograms(axes, values, np.linspace(low[0], high[0], N_BINS + 1))
    axes.set(xlabel="log density", ylabel="share of rows per unit", xlim=(low[0], high[0]))
    lower = {name: int((value < low[0]).sum()) for name, (value, _) in values.items()}
    lines = [f"{rows_text(n)} of the {name} farther left" for name, n in lower.items() if n]
    draw_titled_legend(axes, "\n".join(lines) or None)


def _draw_heavy(
    axes: Any, heavy: Array, label: str, others: Array, names: list[str], n_shown: int, seed: int
) -> None:
    """The draws with half of the weight, over the data or all draws; first two columns."""
    draw_points(axes, choose_rows(others, n_shown, seed), BLUE)
    draw_points(axes, choose_rows(heavy, n_shown, seed), VERMILION)
    low, high = find_limits(np.concatenate([others, heavy]), 0.05)
    axes.set(xlabel=names[0], ylabel=names[1], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    draw_legend(axes, {
        label: (BLUE, "o"), f"{len(heavy):,} draws with half of the weight": (VERMILION, "o"),
    })  # fmt: skip
