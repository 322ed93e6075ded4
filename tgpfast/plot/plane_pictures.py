"""Pictures of densities of two columns: contours, samples, and contours per noise level."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import Seed, as_floats, as_seed
from .canvas import (
    BLUE,
    SHOWN_POINTS,
    VERMILION,
    add_title,
    draw_legend,
    draw_points,
    make_figure,
)
from .plane import Plane
from .plotted_rows import draw_rows, name_models

SIDE = 160  # default number of grid points along a side
MARGIN = 0.25  # default margin around the data, as a share of their range
LADDER_LEVELS = 5  # default number of noise levels


def density_figure(
    models: Any,
    X: Any,
    *,
    n_shown: int = SHOWN_POINTS,
    n_grid: int = SIDE,
    seed: Seed = 0,
    title: str | None = None,
    margin: float = MARGIN,
) -> Any:
    """Two panels for every model: its contours over the data, and its samples.

    The contours enclose 25, 50, 75 and 95 % of the model's probability in the picture.

    Parameters
    ----------
    models : model, or mapping of str to model
        Models with ``log_density(Y)`` and ``sample(n, seed)``.
    X : rows of shape (n, 2)
        As for ``fit``.
    n_shown : int, default 3000
        Points in a panel, of the data and of each sample.
    n_grid : int, default 160
        Grid points along each side.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the samples and of the choice of rows that are shown.
    title : str, default None
        Title above all panels.
    margin : float, default 0.25
        Margin around the data, as a share of their range.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.density_figure({"FD": model}, X, n_grid=40)
    """
    named, seed = name_models(models), as_seed(seed)
    plane = Plane.of(named, X, n_shown, seed, margin)
    width, height = plane.panel_size
    figure = make_figure(0.7 + width * len(named), 1.1 + 2 * height)
    panels = figure.subplots(2, len(named), sharex=True, sharey=True, squeeze=False)
    for (name, model), (upper, lower) in zip(named.items(), panels.T, strict=True):
        plane.draw_contours(upper, model, n_grid)
        upper.set_title(name)
        draw_points(lower, draw_rows(model, n_shown, seed, plane.columns), BLUE)
        lower.set_xlabel(plane.names[0])
    for axes, what in ((panels[0, 0], "data and contours"), (panels[1, 0], "samples")):
        axes.set_ylabel(f"{what}\n{plane.names[1]}")
    for axes in panels.flat:
        plane.set_axes(axes)
    return add_title(figure, title)


def contours(
    models: Any,
    X: Any,
    *,
    n_shown: int = SHOWN_POINTS,
    n_grid: int = SIDE,
    seed: Seed = 0,
    title: str | None = None,
    margin: float = MARGIN,
) -> Any:
    """Contours over the data, one panel per model.

    The contours enclose 25, 50, 75 and 95 % of the model's probability in the picture.

    Parameters
    ----------
    models : model, or mapping of str to model
        Models with ``log_density(Y)``.
    X : rows of shape (n, 2)
        As for ``fit``.
    n_shown, n_grid, seed, title, margin
        As for `density_figure`.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.contours({"FD": model}, X, n_grid=40)
    """
    named = name_models(models)
    plane = Plane.of(named, X, n_shown, as_seed(seed), margin)
    figure, panels = plane.make_panels(list(named))
    for model, axes in zip(named.values(), panels, strict=True):
        plane.draw_contours(axes, model, n_grid)
    plane.draw_contour_legend(figure)
    return add_title(figure, title)


def samples(
    models: Any,
    X: Any,
    *,
    n_shown: int = SHOWN_POINTS,
    seed: Seed = 0,
    title: str | None = None,
    margin: float = MARGIN,
    data_panel: bool = True,
) -> Any:
    """Samples over the data, one panel per model, and a last panel with the data alone.

    Parameters
    ----------
    models : model, or mapping of str to model
        Models with ``sample(n, seed)``.
    X : rows of shape (n, 2)
        As for ``fit``.
    n_shown, seed, title, margin
        As for `density_figure`.
    data_panel : bool, default True
        Whether to draw the last panel.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.samples({"FD": model}, X)
    """
    named, seed = name_models(models), as_seed(seed)
    plane = Plane.of(named, X, n_shown, seed, margin)
    figure, panels = plane.make_panels([*named, "data"] if data_panel else list(named))
    for axes in panels:
        draw_points(axes, plane.shown, BLUE)
    for model, axes in zip(named.values(), panels, strict=False):
        draw_points(axes, draw_rows(model, n_shown, seed, plane.columns), VERMILION)
    draw_legend(figure, {plane.data_label: (BLUE, "o"), "samples": (VERMILION, "o")})
    return add_title(figure, title)


def noise_ladder(
    model: Any,
    X: Any,
    *,
    sigmas: Any = None,
    n_shown: int = SHOWN_POINTS,
    n_grid: int = SIDE,
    seed: Seed = 0,
    title: str | None = None,
    margin: float = MARGIN,
) -> Any:
    """Contours of a noise-conditional density for decreasing noise, one panel per level.

    Parameters
    ----------
    model : Density
        Learned with method="ncfd".
    X : rows of shape (n, 2)
        As for ``fit``.
    sigmas : sequence of float, default None
        Noise levels in the order of the panels, in the model's coordinates. By default five, from
        the highest that the model was learned for down to 0.
    n_shown, n_grid, seed, title, margin
        As for `density_figure`.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = tgpfast.fit(X, method="ncfd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.noise_ladder(model, X, n_grid=40)
    """
    if not hasattr(model, "at_noise"):
        raise TypeError(f"{type(model).__name__} has no at_noise(sigma); NCFD models have it")
    if sigmas is None:
        levels = model.settings.get("noise_levels", [0.0])
        highest = model.settings.get("sigma_max", max(levels))
        levels = np.linspace(highest, 0.0, LADDER_LEVELS)
    else:
        levels = as_floats(sigmas, "sigmas", "(L,)", 1)
        if not len(levels):
            raise ValueError("sigmas is empty; give at least one")
    models = {f"sigma = {level:.3g}": model.at_noise(level) for level in levels}
    return contours(
        models, X, n_shown=n_shown, n_grid=n_grid, seed=seed, title=title, margin=margin
    )
