"""The settings that ``fit`` compared, with their held-out scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from .canvas import (
    BLACK,
    GRAY,
    STYLES,
    VERMILION,
    add_title,
    draw_legend,
    label_first_column,
    make_panels,
    simplify_axes,
)

# colors of bandwidths, from a map of matplotlib, up to the lightest that is visible on white
GAMMA_MAP, LIGHTEST = "viridis", 0.9
METHOD_MARKERS = {"map": "^", "fvpd": "s"}  # of methods that are tried at few lambdas
# range of the axis below the base alone, as a share of the gain over it, and least gain shown
SHARE_BELOW, LEAST_SPAN = 0.5, 0.1

Trial = dict[str, Any]  # one entry of `Density.selection`


def selection(model: Any, *, title: str | None = None) -> Any:
    """Held-out log-likelihood against lambda of all settings that ``fit`` compared.

    There is one panel per base. Lines are FD, one for each bandwidth and frequency covariance;
    markers are MAP and FVPD; the horizontal line is the base alone. A star marks the chosen
    setting, with its standard error. Unreliable scores, and scores far below the base alone, are
    left out.

    Parameters
    ----------
    model : Density
        From ``fit``, with at least one setting chosen from the data.
    title : str, default None
        Title above all panels.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = tgpfast.fit(X, features="random", method="fd", base="empirical", n_features=50)
    >>> figure = tgpfast.plot.selection(model)
    """
    trials = getattr(model, "selection", None)
    if not trials:
        raise ValueError(
            "model.selection is empty: every setting was given or could not be chosen from the "
            'data, so nothing was compared; fit with "auto" for at least one setting'
        )
    bases: dict[str, list[Trial]] = {}
    for trial in trials:  # best first, so the panels are too
        bases.setdefault(trial["base"], []).append(trial)
    titles = [
        f"{name}{' alone' if len(rows) == 1 else ''}: {rows[0]['score']:.4g}"
        for name, rows in bases.items()
    ]
    figure, panels = make_panels(titles, (3.6, 3.4), across=3, sharex=True)
    tilted = [t for t in trials if np.isfinite(t["lam"])]
    colors = _color_gammas({t["gamma_multiple"] for t in tilted})
    styles = dict(zip(sorted({t["frequency_covariance"] for t in tilted}), STYLES, strict=False))
    for rows, axes in zip(bases.values(), panels, strict=True):
        _draw_trials(axes, rows, colors, styles)
        _draw_chosen(axes, rows)
        simplify_axes(axes)
        axes.set(xlabel="lambda", ylim=_score_limits(rows))
        axes.tick_params(labelbottom=True)
    label_first_column(panels, "held-out log-likelihood of a row")
    lams = [t["lam"] for t in tilted] or [1.0]
    panels[0].set(xscale="log", xlim=(min(lams) / 2.0, max(lams) * 4.0))
    methods = [m for m in METHOD_MARKERS if any(t["method"] == m for t in tilted)]
    draw_legend(figure, {
        **{f"{gamma:.2g} Scott": (color, "solid") for gamma, color in colors.items()},
        **{f"{shape} (FD)": (GRAY, style) for shape, style in styles.items()},
        **{method.upper(): (GRAY, METHOD_MARKERS[method]) for method in methods},
        "base alone": (BLACK, "dashdot"), "chosen": (VERMILION, "*"),
    })  # fmt: skip
    return add_title(figure, title)


def _color_gammas(gammas: set[float]) -> dict[float, Any]:
    """Colors of increasing bandwidths, with equal steps for equal ratios."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    place = LogNorm(min(gammas, default=1.0), max(gammas, default=1.0))
    return {gamma: colormaps[GAMMA_MAP](LIGHTEST * float(place(gamma))) for gamma in sorted(gammas)}


def _score_limits(rows: list[Trial]) -> tuple[float, float]:
    """From a little below the base alone to the best: poor candidates may be far lower."""
    scores = [t["score"] for t in rows if np.isfinite(t["score"])] or [0.0]
    alone = [t["score"] for t in rows if np.isinf(t["lam"]) and np.isfinite(t["score"])]
    top, low = max(scores), min(alone or scores)
    span = max(top - low, LEAST_SPAN)
    low, high = low - SHARE_BELOW * span, top + 0.08 * span
    for t in rows:
        if t["chosen"] and np.isfinite(t["error"]):
            low = min(low, t["score"] - 1.2 * t["error"])
            high = max(high, t["score"] + 1.2 * t["error"])
    return low, high


def _draw_trials(
    axes: Any, rows: list[Trial], colors: dict[float, Any], styles: dict[str, str]
) -> None:
    """All candidates of one base."""
    lines: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for t in rows:
        point = (t["lam"], t["score"] if np.isfinite(t["score"]) else np.nan)
        if np.isinf(t["lam"]):
            axes.axhline(point[1], color=BLACK, linestyle="dashdot", linewidth=1.0)
        elif t["method"] == "fd":
            lines.setdefault((t["frequency_covariance"], t["gamma_multiple"]), []).append(point)
        else:
            axes.plot(*point, METHOD_MARKERS[t["method"]], color=colors[t["gamma_multiple"]],
                      markersize=5, markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip
    for (shape, gamma), points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), color=colors[gamma],
                  linestyle=styles[shape], linewidth=1.3,
                  marker="." if len(points) == 1 else None)  # fmt: skip


def _draw_chosen(axes: Any, rows: list[Trial]) -> None:
    """A star with its error; for a base alone at the right, where lambda is infinite."""
    for t in rows:
        if t["chosen"] and np.isfinite(t["score"]):
            alone = np.isinf(t["lam"])
            axes.errorbar(0.95 if alone else t["lam"], t["score"], yerr=t["error"], fmt="*",
                          color=VERMILION, markersize=11, markeredgecolor="white", capsize=3,
                          zorder=5, label="chosen",
                          transform=axes.get_yaxis_transform() if alone else axes.transData,
                          )  # fmt: skip
