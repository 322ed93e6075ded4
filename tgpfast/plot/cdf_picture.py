"""CDFs of data and models along directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..data.moments import compute_moments
from ..data.scaling import Scaling
from ..evaluation.evaluation import DISTANCE_UNITS, choose_directions
from ..evaluation.result import direction_text
from ..validation import Array, Seed, as_seed, check_choice, whole
from .canvas import (
    BLACK,
    add_title,
    curve_styles,
    draw_legend,
    draw_text,
    label_first_column,
    make_panels,
    require_matplotlib,
    simplify_axes,
)
from .plotted_rows import draw_rows, find_limits, name_models, read_rows


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
    seed: Seed = 0,
    title: str | None = None,
) -> Any:
    """CDFs of data and models along random directions, one panel per direction.

    Each panel gives the KS distance of every model, the largest gap at the points of its grid.
    With units="standardized" the horizontal axes are in standard deviations from the mean.

    Parameters
    ----------
    models : model, or mapping of str to model
        Models with ``marginal_cdf(direction, grid)`` or ``sample(n, seed)``.
    X : rows
        As for ``fit``.
    n_directions : int, default 10
        Random directions, the same as those of ``evaluate`` with this seed and these units.
    directions : array of shape (V, d), default None
        Directions to take instead, such as the worst that ``evaluate`` found, in the coordinates
        that ``units`` names.
    n_grid : int, default 400
        Points along each direction, over the range of the data.
    n_samples : int, default 20_000
        Draws from a model that has no ``marginal_cdf``.
    names : sequence of str, default None
        Names of the columns, for rows without names.
    units : {"standardized", "data"}, default "standardized"
        "standardized" divides columns by their standard deviations first.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the directions and of the draws.
    title : str, default None
        Title above all panels.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.marginal_cdfs(model, X, n_directions=5)
    """
    require_matplotlib()
    named, seed = name_models(models), as_seed(seed)
    check_choice("units", units, DISTANCE_UNITS)
    x, found, columns = read_rows(named, X)
    names = found if names is None else [str(name) for name in names]
    if len(names) != x.shape[1]:
        raise ValueError(f"names has {len(names)} entries, expected {x.shape[1]}")
    n_grid, n_samples = whole("n_grid", n_grid, 2), whole("n_samples", n_samples)
    rng, n_directions = np.random.default_rng(seed), whole("n_directions", n_directions)
    v = choose_directions(directions, n_directions, x.shape[1], rng)
    scaling = _standardize(x) if units == "standardized" else Scaling.identity(x.shape[1])
    drawn = {
        name: scaling.apply(draw_rows(model, n_samples, seed, columns))
        for name, model in named.items()
        if not hasattr(model, "marginal_cdf")
    }
    titles = [direction_text(direction, names, 2) for direction in v]
    figure, panels = make_panels(titles, (2.7, 2.2), across=5, sharey=True)
    styles = curve_styles(named)
    x = scaling.apply(x)
    for direction, axes in zip(v, panels, strict=True):
        projected = x @ direction
        low, high = find_limits(projected[:, None], 0.05)
        grid = np.linspace(low[0], high[0], n_grid)
        curves = {
            name: _empirical_cdf(drawn[name] @ direction, grid)
            if name in drawn
            else _model_cdf(model, direction, grid, scaling)
            for name, model in named.items()
        }
        _draw_panel(axes, grid, _empirical_cdf(projected, grid), curves, styles)
    label_first_column(panels, "CDF")
    entries = {name: (style["color"], style["linestyle"]) for name, style in styles.items()}
    draw_legend(figure, {"data": (BLACK, "solid"), **entries})
    return add_title(figure, title)


def _standardize(x: Array) -> Scaling:
    moments = compute_moments(Blocks(x))
    return Scaling(moments.mean, np.where(moments.deviation > 0, moments.deviation, 1.0))


def _empirical_cdf(values: Array, grid: Array) -> Array:
    return np.searchsorted(np.sort(values), grid, side="right") / len(values)


def _model_cdf(model: Any, direction: Array, grid: Array, scaling: Scaling) -> Array:
    """The model's CDF along a direction in scaled coordinates z."""
    along = direction / scaling.scale  # z . direction = x . along - shift . along
    return np.asarray(model.marginal_cdf(along, grid + scaling.shift @ along))


def _draw_panel(
    axes: Any, grid: Array, of_data: Array, curves: dict[str, Array],
    styles: dict[str, dict[str, str]],
) -> None:  # fmt: skip
    """The CDFs of one direction, with the KS distance of every model."""
    axes.plot(grid, of_data, color=BLACK, linewidth=2.2, label="data")
    several = len(curves) > 1
    lines = [("KS", BLACK)] if several else []
    for name, cdf in curves.items():
        axes.plot(grid, cdf, linewidth=1.3, label=name, **styles[name])
        distance = f"{np.abs(cdf - of_data).max():.3f}"
        lines.append((f"{name if several else 'KS'} {distance}", styles[name]["color"]))
    draw_text(axes, lines)
    axes.set(xlim=(grid[0], grid[-1]), ylim=(-0.02, 1.02))
    axes.title.set_fontsize("small")
    simplify_axes(axes)
