"""Pictures of densities; matplotlib is imported only when one is drawn.

Every function returns a matplotlib Figure: ``figure.savefig(path)`` or `save` writes it, a notebook
shows it. ``models`` is a mapping, title -> model, or one model; a model is anything with
``log_density(Y)`` or ``sample(n, seed)``, whichever the picture needs.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .data.blocks import Blocks
from .data.scaling import Scaling, moments_of
from .data.storage import replacing
from .evaluation.evaluation import UNITS
from .evaluation.result import direction_text
from .validation import Array, as_floats, whole

# Okabe and Ito's colours, which are apart in any colour vision
BLACK, BLUE, VERMILION = "#000000", "#0072B2", "#D55E00"
CURVES = (VERMILION, BLUE, "#009E73", "#E69F00", "#CC79A7", "#56B4E9")  # one a model
STYLES = ("solid", "dashed", "dotted")  # for more models than colours
DATA, POINT, LINE = "0.6", BLUE, VERMILION  # of contours over data: grey, blue, vermilion
MASSES = (0.95, 0.75, 0.5, 0.25)  # share of the probability inside each contour
SIDE = 160  # grid points along a side
SHOWN = 3_000  # points drawn in a panel
MARGIN = 0.25  # around the data, as a share of their range
ACROSS = 4  # panels in a row
PANEL = 3.1  # longer side of a panel, in inches
MOST_PAIRS = 6  # columns of a pair plot
LIKE = 5.0  # ratio of ranges up to which both axes have the same scale
FAR, NEAR = 10.0, 3.0  # see _limits
GAMMAS, LIGHTEST = "viridis", 0.9  # colours of bandwidths, up to one that is seen on white
POINT_METHODS = {"map": "^", "fvpd": "s"}  # markers of methods that are tried at few lambdas
BELOW, LEAST_SPAN = 0.5, 0.1  # shown below a base alone, as a share of what is gained over it


# -- two dimensions ------------------------------------------------------------------------------


def density_figure(
    models: Any,
    X: Any,
    *,
    n_shown: int = SHOWN,
    n_grid: int = SIDE,
    seed: int = 0,
    title: str | None = None,
    margin: float = MARGIN,
) -> Any:
    """For every model a column of two panels: its contours over the data, and samples.

    Contours enclose 25, 50, 75 and 95 % of the model's probability in the picture.

    Parameters
    ----------
    models : title -> anything with ``log_density(Y)`` and ``sample(n, seed)``, or one such
    X : (n, 2) rows, as for ``fit``
    n_shown : points drawn in a panel, of the data and of each sample
    n_grid : grid points along each side
    seed : of the samples, and of the choice of rows shown
    margin : around the data, as a share of their range
    """
    Figure = _figure_class()
    named = _named(models)
    plane = _Plane.of(named, X, n_shown, seed, margin)
    width, height = plane.panel_size
    figure = Figure(
        figsize=(0.7 + width * len(named), 1.1 + 2 * height), layout="constrained"
    )
    panels = figure.subplots(2, len(named), sharex=True, sharey=True, squeeze=False)
    for (name, model), (upper, lower) in zip(named.items(), panels.T, strict=True):
        plane.draw_contours(upper, model, n_grid)
        upper.set_title(name)
        _points(lower, _draw(model, n_shown, seed, plane.columns), POINT)
        lower.set_xlabel(plane.names[0])
    for axes, what in ((panels[0, 0], "data and contours"), (panels[1, 0], "samples")):
        axes.set_ylabel(f"{what}\n{plane.names[1]}")
    for axes in panels.flat:
        plane.dress(axes)
    return _titled(figure, title)


def contours(
    models: Any,
    X: Any,
    *,
    n_shown: int = SHOWN,
    n_grid: int = SIDE,
    seed: int = 0,
    title: str | None = None,
    margin: float = MARGIN,
) -> Any:
    """Contours over the data, a panel a model; they enclose 25, 50, 75 and 95 % of what is shown.

    Parameters
    ----------
    models : title -> anything with ``log_density(Y)``, or one such
    X, n_shown, n_grid, seed, margin : as for ``density_figure``
    """
    _figure_class()
    named = _named(models)
    plane = _Plane.of(named, X, n_shown, seed, margin)
    figure, panels = plane.panels(list(named))
    for model, axes in zip(named.values(), panels, strict=True):
        plane.draw_contours(axes, model, n_grid)
    _contour_legend(figure, plane)
    return _titled(figure, title)


def samples(
    models: Any,
    X: Any,
    *,
    n_shown: int = SHOWN,
    seed: int = 0,
    title: str | None = None,
    margin: float = MARGIN,
    data_panel: bool = True,
) -> Any:
    """Samples over the data, a panel a model, and last the data alone.

    Parameters
    ----------
    models : title -> anything with ``sample(n, seed)``, or one such
    X, n_shown, seed, margin : as for ``density_figure``
    data_panel : whether the last panel is there
    """
    _figure_class()
    named = _named(models)
    plane = _Plane.of(named, X, n_shown, seed, margin)
    figure, panels = plane.panels([*named, "data"] if data_panel else list(named))
    for axes in panels:
        _points(axes, plane.shown, BLUE)
    for model, axes in zip(named.values(), panels, strict=False):
        _points(axes, _draw(model, n_shown, seed, plane.columns), VERMILION)
    _legend(figure, {plane.data_label: (BLUE, "o"), "samples": (VERMILION, "o")})
    return _titled(figure, title)


def noise_ladder(
    model: Any,
    X: Any,
    *,
    sigmas: Any = None,
    n_shown: int = SHOWN,
    n_grid: int = SIDE,
    seed: int = 0,
    title: str | None = None,
    margin: float = MARGIN,
) -> Any:
    """Contours of a noise-conditional density for decreasing noise, a panel a level.

    Parameters
    ----------
    model : a density learned with method="ncfd"
    sigmas : levels in the order of the panels, in the model's coordinates; by default five, from
        the highest that the model was learned for down to 0
    X, n_shown, n_grid, seed, margin : as for ``density_figure``
    """
    if not hasattr(model, "at_noise"):
        raise TypeError(f"{type(model).__name__} has no at_noise(sigma); NCFD models have it")
    if sigmas is None:
        levels = model.settings.get("noise_levels", [0.0])
        levels = np.linspace(model.settings.get("sigma_max", max(levels)), 0.0, 5)
    else:
        levels = as_floats(sigmas, "sigmas", "(L,)", 1)
        if not len(levels):
            raise ValueError("sigmas is empty; give at least one")
    models = {f"sigma = {level:.3g}": model.at_noise(level) for level in levels}
    return contours(
        models, X, n_shown=n_shown, n_grid=n_grid, seed=seed, title=title, margin=margin
    )


# -- any dimension -------------------------------------------------------------------------------


def marginal_cdfs(
    models: Any,
    X: Any,
    *,
    n_directions: int = 10,
    directions: Any = None,
    n_grid: int = 400,
    n_samples: int = 20_000,
    names: Sequence[str] | None = None,
    units: str = "standardized",
    seed: int = 0,
    title: str | None = None,
) -> Any:
    """CDFs of data and models along random directions, one panel for each direction.

    Each panel gives the KS distance of every model: the largest gap at the points of its grid. With
    units="standardized" the horizontal axes are in standard deviations from the mean.

    Parameters
    ----------
    models : title -> anything with ``marginal_cdf(direction, grid)`` or else ``sample(n, seed)``,
        or one such
    X : rows, as for ``fit``
    n_directions : uniform on the unit sphere; those of ``evaluate`` with this seed and these units
    directions : (V, d) to take instead, such as the worst that ``evaluate`` has found, in the
        coordinates that ``units`` names
    n_grid : points along each direction, over the range of the data
    n_samples : drawn from a model that has no ``marginal_cdf``
    names : of the columns, for rows that do not bring any
    units : "standardized": columns are divided by their standard deviations first; "data": they are
        taken as they are
    """
    _figure_class()
    named = _named(models)
    if units not in UNITS:
        raise ValueError(f"units={units!r}: expected one of {', '.join(map(repr, UNITS))}")
    x, found, columns = _rows(named, X)
    names = found if names is None else [str(name) for name in names]
    if len(names) != x.shape[1]:
        raise ValueError(f"names has {len(names)} entries, expected {x.shape[1]}")
    n_grid, n_samples = whole("n_grid", n_grid, 2), whole("n_samples", n_samples)
    if directions is None:
        count = whole("n_directions", n_directions)
        v = np.random.default_rng(seed).standard_normal((count, x.shape[1]))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
    else:
        v = as_floats(directions, "directions", "(V, d)", 2)
        if v.shape[1] != x.shape[1] or not len(v) or not np.abs(v).max(axis=1).all():
            raise ValueError(
                f"directions must have shape (V, {x.shape[1]}) and none be zero, got {v.shape}"
            )
    drawn = {
        name: _draw(model, n_samples, seed, columns)
        for name, model in named.items()
        if not hasattr(model, "marginal_cdf")
    }
    figure, panels = _panels(
        [direction_text(direction, names, 2) for direction in v], (2.7, 2.2), across=5, sharey=True
    )
    styles = _curve_styles(named)
    scaling = Scaling.identity(x.shape[1])
    if units == "standardized":
        moments = moments_of(Blocks(x))
        scaling = Scaling(moments.mean, np.where(moments.deviation > 0, moments.deviation, 1.0))
    x, drawn = scaling.apply(x), {name: scaling.apply(rows) for name, rows in drawn.items()}
    for direction, axes in zip(v, panels, strict=True):
        projected = x @ direction
        low, high = _limits(projected[:, None], 0.05)
        grid = np.linspace(low[0], high[0], n_grid)
        of_data = _empirical_cdf(projected, grid)
        axes.plot(grid, of_data, color=BLACK, linewidth=2.2, label="data")
        lines = []
        for name, model in named.items():
            if name in drawn:
                cdf = _empirical_cdf(drawn[name] @ direction, grid)
            else:
                in_data = direction / scaling.scale  # z . v = x . in_data - shift . in_data
                places = grid + scaling.shift @ in_data
                cdf = np.asarray(model.marginal_cdf(in_data, places))
            axes.plot(grid, cdf, linewidth=1.3, label=name, **styles[name])
            ks = f"{np.abs(cdf - of_data).max():.3f}"
            lines.append((f"{name} {ks}" if len(named) > 1 else f"KS {ks}", styles[name]["color"]))
        if len(named) > 1:
            lines.insert(0, ("KS", BLACK))
        _lines_of_text(axes, lines)
        axes.set(xlim=(low[0], high[0]), ylim=(-0.02, 1.02))
        axes.title.set_fontsize("small")
        _plain(axes)
    for axes in panels:
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("CDF")
    curves = {name: (style["color"], style["linestyle"]) for name, style in styles.items()}
    _legend(figure, {"data": (BLACK, "solid"), **curves})
    return _titled(figure, title)


def pairs(
    model: Any,
    X: Any,
    *,
    columns: Sequence[str | int] | None = None,
    n_shown: int = 1_000,
    n_bins: int = 40,
    seed: int = 0,
    title: str | None = None,
    margin: float = 0.05,
) -> Any:
    """Every pair of columns: data below the diagonal, samples above it, histograms of both on it.

    Parameters
    ----------
    model : anything with ``sample(n, seed)``
    X : rows of at least two columns, as for ``fit``
    columns : two to six of them, by name or index; the first six unless given
    n_shown : points drawn in a panel; histograms take all rows of X, and as many draws, but not
        more than 20,000
    n_bins : of each histogram, over the range of the data
    """
    _figure_class()
    (name,) = named = _single(model)
    x, names, order = _rows(named, X)
    n_shown, n_bins = whole("n_shown", n_shown), whole("n_bins", n_bins)
    chosen = _chosen(columns, names)
    k = len(chosen)
    drawn = _draw(model, max(n_shown, min(len(x), 20_000)), seed, order)[:, chosen]
    x, labels = x[:, chosen], [names[c] for c in chosen]
    low, high = _limits(x, margin)
    shown = _shown(x, n_shown, seed)
    figure = _figure_class()(figsize=(0.6 + 1.75 * k, 0.9 + 1.6 * k), layout="constrained")
    panels = figure.subplots(k, k, sharex="col", squeeze=False)
    for i in range(k):
        for j in range(k):
            axes = panels[i, j]
            axes.set_xlim(low[j], high[j])
            if i == j:
                bins = np.linspace(low[i], high[i], n_bins + 1)
                _steps(axes, {"data": (x[:, i], BLUE), name: (drawn[:, i], VERMILION)}, bins)
                axes.set_yticks([])
            else:
                axes.set_ylim(low[i], high[i])
                _points(axes, (shown if i > j else drawn[:n_shown])[:, [j, i]],
                        BLUE if i > j else VERMILION)  # fmt: skip
                if j > 0 and not (i == 0 and j == 1):
                    axes.tick_params(labelleft=False)
            _plain(axes)
            axes.locator_params(axis="x", nbins=3)
            if i != j:
                axes.locator_params(axis="y", nbins=4)
    for i, label in enumerate(labels):
        panels[i, 0].set_ylabel(label, fontsize="small")
        panels[-1, i].set_xlabel(label, fontsize="small")
    _legend(figure, {"data": (BLUE, "o"), f"samples of {name}": (VERMILION, "o")})
    return _titled(figure, title)


def diagnostics(
    model: Any,
    X: Any = None,
    *,
    n_draws: int = 50_000,
    n_shown: int = SHOWN,
    seed: int = 0,
    title: str | None = None,
) -> Any:
    """How evenly the draws from the base carry a density, and where those lie that carry it.

    Panels: the share of the weight that the heaviest draws hold, with the effective sample size
    and the normaliser; a histogram of the log weights; with X, histograms of the log density of
    data and of samples; from two columns on, the draws that hold half of the weight.

    Parameters
    ----------
    model : a density of tgpfast
    X : rows, as for ``fit``; without it the third panel is left out
    n_draws : from the base
    n_shown : points drawn in a panel
    """
    _figure_class()
    if not hasattr(model, "_weighted_sample"):
        raise TypeError(f"{type(model).__name__} has no weighted draws; densities of tgpfast have")
    n_draws, n_shown = whole("n_draws", n_draws), whole("n_shown", n_shown)
    named = _single(model)
    if X is None:
        x, columns = None, getattr(model.table, "columns", None)
        names = columns or _default_names(model.dimension)
    else:
        x, names, columns = _rows(named, X)
    points, weights = model._weighted_sample(n_draws, seed)
    order = np.argsort(-weights, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    titles = ["weight of the heaviest draws", "log weights"]
    if x is not None:
        titles.append("log density")
    if model.dimension > 1:
        titles.append("where the weight lies")
    figure, panels = _panels(titles, (3.6, 3.0), across=2 if len(titles) == 4 else 3)
    for axes in panels:
        _plain(axes)
    remaining = iter(panels)
    _draw_shares(next(remaining), share, float(weights.sum() ** 2 / (weights @ weights)),
                 model.log_normalizer)  # fmt: skip
    _draw_log_weights(next(remaining), weights)
    if x is not None:
        drawn = _draw(model, min(max(len(x), 1_000), 20_000), seed, columns)
        values = {
            "data": (np.asarray(model.log_density(x)), BLUE),
            "samples": (np.asarray(model.log_density(drawn)), VERMILION),
        }
        _draw_log_densities(next(remaining), values)
    if model.dimension > 1:
        half = int(np.searchsorted(share, 0.5)) + 1
        axes = next(remaining)
        heavy = points[order[:half]][:, :2]
        around = points if x is None else x
        behind = "draws from the base" if x is None else "data"
        _points(axes, _shown(around[:, :2], n_shown, seed), BLUE)
        _points(axes, _shown(heavy, n_shown, seed), VERMILION)
        low, high = _limits(np.concatenate([around[:, :2], heavy]), 0.05)
        axes.set(xlabel=names[0], ylabel=names[1], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        label = f"{half:,} draws with half of the weight"
        _legend(axes, {behind: (BLUE, "o"), label: (VERMILION, "o")})
    return _titled(figure, title)


def selection(model: Any, *, title: str | None = None) -> Any:
    """What ``fit`` compared: held-out log-likelihood against lambda, a panel a base.

    Lines are FD, one for each bandwidth and frequency covariance; markers are MAP and FVPD; the
    level line is the base alone. A star marks what was chosen, with its standard error. Scores that
    were not believed, and those far below the bases, are left out.

    Parameters
    ----------
    model : from ``fit``, with at least one setting that was chosen from the data
    """
    _figure_class()
    trials = getattr(model, "selection", None)
    if not trials:
        raise ValueError(
            "model.selection is empty: every setting was given or could not be chosen from the "
            'data, so that nothing was compared; fit with "auto" for at least one of them'
        )
    bases: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:  # best first, and so are the panels
        bases.setdefault(trial["base"], []).append(trial)
    names = [
        f"{name}{' alone' if len(rows) == 1 else ''}: {rows[0]['score']:.4g}"
        for name, rows in bases.items()
    ]
    figure, panels = _panels(names, (3.6, 3.4), across=3, sharex=True)
    tilted = [t for t in trials if np.isfinite(t["lam"])]
    colours = _gamma_colours({t["gamma_multiple"] for t in tilted})
    shapes = sorted({t["frequency_covariance"] for t in tilted})
    styles = dict(zip(shapes, STYLES, strict=False))
    for rows, axes in zip(bases.values(), panels, strict=True):
        _draw_trials(axes, rows, colours, styles)
        _plain(axes)
        axes.set(xlabel="lambda", ylim=_score_limits(rows))
        axes.tick_params(labelbottom=True)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("held-out log-likelihood of a row")
    lams = [t["lam"] for t in tilted] or [1.0]
    panels[0].set(xscale="log", xlim=(min(lams) / 2.0, max(lams) * 4.0))
    methods = [m for m in POINT_METHODS if any(t["method"] == m for t in tilted)]
    _legend(figure, {
        **{f"{gamma:.2g} Scott": (colour, "solid") for gamma, colour in colours.items()},
        **{f"{shape} (FD)": (DATA, style) for shape, style in styles.items()},
        **{method.upper(): (DATA, POINT_METHODS[method]) for method in methods},
        "base alone": (BLACK, "dashdot"), "chosen": (VERMILION, "*"),
    })  # fmt: skip
    return _titled(figure, title)


def _gamma_colours(gammas: Iterable[float]) -> dict[float, Any]:
    """Colours of rising bandwidths, even steps for even ratios."""
    from matplotlib import colormaps

    ordered = sorted(gammas)
    places = np.log(ordered)
    span = float(np.ptp(places)) if len(ordered) > 1 else 1.0
    scale = colormaps[GAMMAS]
    return {
        gamma: scale(LIGHTEST * float(place - places[0]) / span)
        for gamma, place in zip(ordered, places, strict=True)
    }


def _score_limits(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """From a little below the base alone up to the best: bad candidates may be anywhere."""
    scores = [t["score"] for t in rows if np.isfinite(t["score"])] or [0.0]
    alone = [t["score"] for t in rows if np.isinf(t["lam"]) and np.isfinite(t["score"])]
    top, low = max(scores), min(alone or scores)
    span = max(top - low, LEAST_SPAN)
    low, high = low - BELOW * span, top + 0.08 * span
    for t in rows:
        if t["chosen"] and np.isfinite(t["error"]):
            low = min(low, t["score"] - 1.2 * t["error"])
            high = max(high, t["score"] + 1.2 * t["error"])
    return low, high


def _draw_trials(
    axes: Any, rows: list[dict[str, Any]], colours: dict[float, Any], styles: dict[str, str]
) -> None:
    """The candidates of one base."""
    lines: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for t in rows:
        point = (t["lam"], t["score"] if np.isfinite(t["score"]) else np.nan)
        if np.isinf(t["lam"]):
            axes.axhline(point[1], color=BLACK, linestyle="dashdot", linewidth=1.0)
        elif t["method"] == "fd":
            lines.setdefault((t["frequency_covariance"], t["gamma_multiple"]), []).append(point)
        else:
            axes.plot(*point, POINT_METHODS[t["method"]], color=colours[t["gamma_multiple"]],
                      markersize=5, markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip
    for (shape, gamma), points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), color=colours[gamma],
                  linestyle=styles[shape], linewidth=1.3,
                  marker="." if len(points) == 1 else None)  # fmt: skip
    for t in rows:
        if t["chosen"] and np.isfinite(t["score"]):
            alone = np.isinf(t["lam"])  # at the right: there lambda is infinite
            axes.errorbar(0.95 if alone else t["lam"], t["score"], yerr=t["error"], fmt="*",
                          color=VERMILION, markersize=11, markeredgecolor="white", capsize=3,
                          zorder=5, label="chosen",
                          transform=axes.get_yaxis_transform() if alone else axes.transData,
                          )  # fmt: skip


def _draw_shares(axes: Any, share: Array, effective: float, normalizer: Any) -> None:
    n = len(share)
    part = np.arange(1, n + 1) / n
    keep = np.unique(np.geomspace(1, n, 400).astype(int)) - 1  # enough for a smooth curve
    axes.plot(part[keep], part[keep], color=DATA, linewidth=1.3, label="equal weights")
    axes.plot(part[keep], share[keep], color=VERMILION, linewidth=2.0, label="these weights")
    axes.set(xscale="log", xlim=(1.0 / n, 1.0) if n > 1 else (0.5, 1.0), ylim=(0.0, 1.02),
             xlabel="share of the draws, heaviest first", ylabel="share of the weight")  # fmt: skip
    text = (
        f"effective draws {effective:,.0f} of {n:,}\n({100 * effective / n:.3g} %)\n"
        f"log Z {normalizer.value:.4g}, error {normalizer.standard_error:.1g}\n"
        f"({normalizer.method})"
    )
    axes.legend(fontsize="small", frameon=False, loc="upper left", title=text,
                title_fontsize="small", alignment="left")  # fmt: skip


def _draw_log_weights(axes: Any, weights: Array) -> None:
    positive = weights[weights > 0]
    values = np.log(positive / positive.max())
    low, high = _limits(values[:, None], 0.05)
    _steps(axes, {"base draws": (values, VERMILION)}, np.linspace(low[0], high[0], 61))
    axes.set(xlabel="log weight, less that of the heaviest", ylabel="share of draws per unit",
             xlim=(low[0], high[0]))  # fmt: skip
    if len(positive) < len(weights):
        _lines_of_text(axes, [(f"{len(weights) - len(positive):,} draws weigh 0", BLACK)],
                       corner="upper left")  # fmt: skip


def _draw_log_densities(axes: Any, values: dict[str, tuple[Array, str]]) -> None:
    everything = np.concatenate([value for value, _ in values.values()])
    finite = everything[np.isfinite(everything)]
    # a tail of a few rows would leave no room for the rest
    near = finite[finite >= np.quantile(finite, 0.002)] if len(finite) else np.zeros(1)
    low, high = _limits(near[:, None], 0.05)
    _steps(axes, values, np.linspace(low[0], high[0], 61))
    axes.set(xlabel="log density", ylabel="share of rows per unit", xlim=(low[0], high[0]))
    lower = {name: int((value < low[0]).sum()) for name, (value, _) in values.items()}
    lines = [f"{_rows_text(k)} of the {name} farther left" for name, k in lower.items() if k]
    axes.legend(fontsize="small", frameon=False, loc="upper left", title="\n".join(lines) or None,
                title_fontsize="small", alignment="left")  # fmt: skip


# -- what all of them share ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Plane:
    """Two columns of data, and what all panels that are drawn over them have in common."""

    names: list[str]
    columns: list[str] | None  # of the models, in which order frames are put
    shown: Array
    low: Array
    high: Array
    n_outside: int

    @classmethod
    def of(
        cls, models: dict[str, Any], X: Any, n_shown: int, seed: int, margin: float
    ) -> _Plane:
        n_shown = whole("n_shown", n_shown)
        x, names, columns = _rows(models, X, needed=2)
        low, high = _limits(x, margin)
        outside = int(((x < low) | (x > high)).any(axis=1).sum())
        return cls(names, columns, _shown(x, n_shown, seed), low, high, outside)

    @property
    def is_equal(self) -> bool:
        """Whether a unit is as long on both axes."""
        width, height = self.high - self.low
        return bool(width <= LIKE * height and height <= LIKE * width)

    @property
    def panel_size(self) -> tuple[float, float]:
        """Inches, with room for a title."""
        width, height = self.high - self.low
        shape = height / width if self.is_equal else 0.8
        return max(PANEL / np.sqrt(max(shape, 1.0)), 1.8), PANEL * min(shape, np.sqrt(shape))

    @property
    def data_label(self) -> str:
        if not self.n_outside:
            return "data"
        return f"data ({_rows_text(self.n_outside)} outside the picture)"

    def panels(self, titles: list[str]) -> tuple[Any, list[Any]]:
        """A dressed panel a title."""
        figure, panels = _panels(titles, self.panel_size, sharex=True, sharey=True)
        for axes in panels:
            self.dress(axes)
            if axes.get_subplotspec().is_first_col():
                axes.set_ylabel(self.names[1])
        across = panels[0].get_gridspec().ncols
        for axes in panels[-across:]:  # nothing is below them
            axes.set_xlabel(self.names[0])
            axes.tick_params(labelbottom=True)
        return figure, panels

    def dress(self, axes: Any) -> None:
        (left, bottom), (right, top) = self.low, self.high
        aspect = "equal" if self.is_equal else "auto"
        axes.set(xlim=(left, right), ylim=(bottom, top), aspect=aspect)
        _plain(axes)

    def draw_contours(self, axes: Any, model: Any, n_grid: int) -> None:
        n_grid = whole("n_grid", n_grid, 2)
        _points(axes, self.shown, DATA)
        sides = [np.linspace(a, b, n_grid) for a, b in zip(self.low, self.high, strict=True)]
        nodes = np.stack(np.meshgrid(*sides), axis=-1)
        values = np.asarray(model.log_density(nodes.reshape(-1, 2)), dtype=float)
        values = values.reshape(nodes.shape[:2])
        levels = mass_levels(values)
        if levels:  # a node without density would cut holes into the lines about it
            values = np.where(np.isfinite(values), values, levels[0] - 10.0)
        levels = [v for v in levels if values.min() < v < values.max()]
        if levels:
            axes.contour(*sides, values, levels=levels, colors=LINE, linewidths=1.0,
                         linestyles="solid")  # fmt: skip


def save(figure: Any, path: str | os.PathLike[str], dpi: int = 120) -> None:
    """Write a figure; the ending says the format. Where that fails, the old file stays."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if not kind:
        figure.savefig(path, dpi=dpi)  # matplotlib adds an ending
        return
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=dpi, format=kind)


def mass_levels(log_density: Array) -> list[float]:
    """Rising log densities whose superlevel sets on the grid hold the shares MASSES of its mass.

    Each is halfway to the next lower value on the grid, so that no node lies on a contour.
    None where the grid holds no finite value.
    """
    ordered = np.sort(log_density[np.isfinite(log_density)], axis=None)[::-1]
    if not len(ordered):
        return []
    mass = np.cumsum(np.exp(ordered - ordered[0]))
    index = np.minimum(np.searchsorted(mass / mass[-1], MASSES), len(ordered) - 1)
    distinct = np.unique(ordered)
    place = np.searchsorted(distinct, ordered[index])
    below = np.where(place > 0, distinct[place - 1], distinct[0] - 1.0)
    levels = 0.5 * distinct[place] + 0.5 * below
    return [float(v) for v in np.unique(levels)]  # contour refuses equal ones


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            'matplotlib is missing; install it with: pip install "tgpfast[plot]"'
        ) from None
    return Figure


def _named(models: Any) -> dict[str, Any]:
    """title -> model, for one model as well."""
    if isinstance(models, Mapping):
        if not models:
            raise ValueError("models is empty; give at least one")
        return {str(name): model for name, model in models.items()}
    return _single(models)


def _single(model: Any) -> dict[str, Any]:
    if not any(hasattr(model, name) for name in ("log_density", "sample", "marginal_cdf")):
        raise TypeError(
            f"{type(model).__name__} is no model: it has neither log_density nor sample; several "
            "models are given as a mapping, title -> model"
        )
    method = getattr(model, "method", None)
    return {method.upper() if isinstance(method, str) else type(model).__name__: model}


def _rows(
    models: dict[str, Any], X: Any, needed: int | None = None
) -> tuple[Array, list[str], list[str] | None]:
    """All rows in the models' order of columns, names for the axes, and the models' names."""
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
    return x, blocks.table.columns or columns or _default_names(d), columns


def _default_names(d: int) -> list[str]:
    return ["x", "y"] if d == 2 else [f"x{k + 1}" for k in range(d)]


def _chosen(columns: Sequence[str | int] | None, names: list[str]) -> list[int]:
    """Indices of the columns of a pair plot."""
    if columns is None:
        chosen = list(range(min(len(names), MOST_PAIRS)))
    else:
        chosen = []
        for column in [columns] if isinstance(columns, str) else columns:
            if isinstance(column, str):
                index = names.index(column) if column in names else -1
            else:
                index = operator.index(column)
            if not 0 <= index < len(names):
                raise ValueError(f"columns: {column!r} is not among {', '.join(names)}")
            chosen.append(index)
    if not 2 <= len(chosen) <= MOST_PAIRS or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"a pair plot needs 2 to {MOST_PAIRS} different columns, got {len(chosen)}"
        )
    return chosen


def _rows_text(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _draw(model: Any, n: int, seed: int, columns: list[str] | None) -> Array:
    """Rows from a model."""
    return Blocks(model.sample(n, seed=seed), columns=columns, name="sample").whole()


def _shown(x: Array, n: int, seed: int) -> Array:
    """At most n of the rows, at random."""
    return x[np.random.default_rng(seed).permutation(len(x))[:n]]


def _limits(x: Array, margin: float) -> tuple[Array, Array]:
    """Least and largest value of every column, with a margin.

    Where values lie farther from the middle nine tenths than FAR times their width, only those
    within NEAR times count: a few outliers must not shrink all else to a dot.
    """
    if not (isinstance(margin, (int, float, np.number)) and 0.0 <= margin < np.inf):
        raise ValueError(f"margin={margin!r}: expected a finite number of at least 0")
    low, high = x.min(axis=0), x.max(axis=0)
    q_low, q_high = np.quantile(x, [0.05, 0.95], axis=0, method="nearest")
    for k, width in enumerate(q_high - q_low):
        if width > 0 and max(q_low[k] - low[k], high[k] - q_high[k]) > FAR * width:
            near = np.clip(x[:, k], q_low[k] - NEAR * width, q_high[k] + NEAR * width) == x[:, k]
            low[k], high[k] = x[near, k].min(), x[near, k].max()
    width, size = high - low, np.maximum(np.abs(low), np.abs(high))
    constant = width <= 1e-10 * size  # to a picture, whose axis needs a width
    gap = np.where(constant, np.maximum(size, 1.0) * max(margin, MARGIN), width * margin)
    return low - gap, high + gap


def _panels(
    titles: list[str], size: tuple[float, float], *, across: int = ACROSS, **options: Any
) -> tuple[Any, list[Any]]:
    """A figure, and a panel a title in rows of at most ``across``, as even as can be."""
    rows = -(-len(titles) // across)
    columns = -(-len(titles) // rows)
    figure = _figure_class()(
        figsize=(0.7 + size[0] * columns, 0.9 + (size[1] + 0.3) * rows), layout="constrained"
    )
    grid = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axes in grid[len(titles) :]:
        axes.remove()
    panels = grid[: len(titles)]
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize="medium")
    return figure, panels


def _plain(axes: Any) -> None:
    axes.tick_params(labelsize="small")
    axes.spines[["top", "right"]].set_visible(False)


def _titled(figure: Any, title: str | None) -> Any:
    if title:
        figure.suptitle(title, fontsize="large")
        figure.get_layout_engine().set(h_pad=0.07)  # inches: apart from the titles of panels
        figure.set_figheight(figure.get_figheight() + 0.45)
    return figure


def _points(axes: Any, points: Array, colour: str) -> None:
    size = float(np.clip(2.5 * (SHOWN / len(points)) ** 0.25, 1.2, 6.0))
    axes.plot(*points.T, ".", markersize=size, alpha=0.5, color=colour, markeredgewidth=0,
              rasterized=True)  # fmt: skip


def _steps(axes: Any, values: dict[str, tuple[Array, str]], bins: Array) -> None:
    """Histograms as outlines over each other, of shares of all values per unit."""
    for name, (value, colour) in values.items():
        heights = np.histogram(value, bins)[0] / (len(value) * np.diff(bins))
        axes.stairs(heights, bins, color=colour, label=name, linewidth=1.3)


def _contour_legend(figure: Any, plane: _Plane) -> None:
    masses = ", ".join(f"{100 * mass:.0f}" for mass in sorted(MASSES))
    _legend(figure, {plane.data_label: (DATA, "o"),
                     f"contours around {masses} %": (LINE, "solid")})  # fmt: skip


def _legend(parent: Any, entries: dict[str, tuple[Any, str]]) -> None:
    """name -> (colour, a marker or the style of a line); below a figure, inside axes."""
    from matplotlib.lines import Line2D

    handles = []
    for name, (colour, style) in entries.items():
        look: dict[str, Any] = {"linestyle": style, "linewidth": 1.8}
        if len(style) == 1:
            look = {"linestyle": "", "marker": style, "markersize": 4 if style == "o" else 6}
        handles.append(Line2D([], [], color=colour, label=name, **look))
    place: dict[str, Any] = {"loc": "best"}
    if hasattr(parent, "savefig"):  # in as few lines as its width allows
        width = 0.7 + 0.075 * max(len(name) for name in entries)  # inches of an entry, about
        across = max(1, min(len(entries), int(parent.get_figwidth() / width)))
        place = {"loc": "outside lower center", "ncols": across}
    parent.legend(handles=handles, frameon=False, fontsize="small", **place)


def _curve_styles(names: Iterable[str]) -> dict[str, dict[str, str]]:
    return {
        name: {
            "color": CURVES[k % len(CURVES)],
            "linestyle": STYLES[k // len(CURVES) % len(STYLES)],
        }
        for k, name in enumerate(names)
    }


def _lines_of_text(
    axes: Any, lines: list[tuple[str, str]], corner: str = "lower right"
) -> None:
    """Coloured lines of text in a corner of the axes."""
    top, left = corner.startswith("upper"), corner.endswith("left")
    for k, (text, colour) in enumerate(lines if top else lines[::-1]):
        y = 0.97 - 0.09 * k if top else 0.04 + 0.09 * k
        axes.text(0.04 if left else 0.97, y, text, color=colour, fontsize="x-small",
                  transform=axes.transAxes, ha="left" if left else "right",
                  va="top" if top else "bottom")  # fmt: skip


def _empirical_cdf(values: Array, grid: Array) -> Array:
    return np.searchsorted(np.sort(values), grid, side="right") / len(values)
