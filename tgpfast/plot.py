"""Pictures of two-dimensional densities; matplotlib is imported only when one is drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .blocks import Blocks
from .features import Array

DATA, POINT, LINE = "0.6", "#0072B2", "#D55E00"  # grey, blue, vermilion: apart in any colour vision
MASSES = (0.95, 0.75, 0.5, 0.25)  # share of the probability inside each contour
SIDE = 160  # grid points along a side
SHOWN = 3_000  # points drawn in a panel
MARGIN = 0.25  # around the data, as a share of their range


def density_figure(
    models: Mapping[str, Any],
    X: Any,
    *,
    n_shown: int = SHOWN,
    n_grid: int = SIDE,
    seed: int = 0,
    title: str | None = None,
) -> Any:
    """A matplotlib Figure: for every model a column with its contours over the data, and samples.

    Contours enclose 25, 50, 75 and 95 % of the model's probability in the picture.

    Parameters
    ----------
    models : title -> anything with ``log_density(Y)`` and ``sample(n, seed)`` in two dimensions
    X : (n, 2) rows, as for ``fit``
    n_shown : points drawn in a panel, of the data and of each sample
    n_grid : grid points along each side
    """
    Figure = _figure_class()
    if not models:
        raise ValueError("models is empty; give at least one")
    blocks = Blocks(X)
    x = blocks.whole()
    if x.shape[1] != 2:
        raise ValueError(f"X has {x.shape[1]} columns; a picture needs 2")
    names = blocks.table.columns or ["x", "y"]
    low, high = _limits(x)
    shape = (high - low)[1] / (high - low)[0]
    width = 3.1
    figure = Figure(
        figsize=(0.7 + width * len(models), 1.1 + 2 * width * shape), layout="constrained"
    )
    panels = figure.subplots(2, len(models), sharex=True, sharey=True, squeeze=False)
    shown = x[np.random.default_rng(seed).permutation(len(x))[:n_shown]]
    axes_of_grid = [np.linspace(a, b, n_grid) for a, b in zip(low, high, strict=True)]
    for (name, model), (upper, lower) in zip(models.items(), panels.T, strict=True):
        log_density = _on_grid(model, axes_of_grid)
        levels = mass_levels(log_density)
        _points(upper, shown, DATA)
        upper.contour(*axes_of_grid, log_density, levels=levels, colors=LINE, linewidths=1.0,
                      linestyles="solid")
        upper.set_title(name)
        _points(lower, Blocks(model.sample(n_shown, seed=seed)).whole(), POINT)
        lower.set_xlabel(names[0])
    for axes, what in ((panels[0, 0], "data and contours"), (panels[1, 0], "samples")):
        axes.set_ylabel(f"{what}\n{names[1]}")
    for axes in panels.flat:
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.tick_params(labelsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    if title:
        figure.suptitle(title, fontsize="medium")
    return figure


def save(figure: Any, path: str | os.PathLike[str], dpi: int = 120) -> None:
    """Write a figure; the ending says the format."""
    figure.savefig(path, dpi=dpi)


def mass_levels(log_density: Array) -> list[float]:
    """Rising log densities whose superlevel sets on the grid hold the shares MASSES of its mass."""
    ordered = np.sort(log_density, axis=None)[::-1]
    mass = np.cumsum(np.exp(ordered - ordered[0]))
    index = np.searchsorted(mass / mass[-1], MASSES)
    levels = ordered[np.minimum(index, len(ordered) - 1)]
    return [float(v) for v in np.unique(levels)]  # contour refuses equal ones


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            'matplotlib is missing; install it with: pip install "tgpfast[plot]"'
        ) from None
    return Figure


def _limits(x: Array) -> tuple[Array, Array]:
    low, high = x.min(axis=0), x.max(axis=0)
    gap = np.where(high > low, high - low, 1.0) * MARGIN
    return low - gap, high + gap


def _on_grid(model: Any, axes: list[Array]) -> Array:
    nodes = np.stack(np.meshgrid(*axes), axis=-1)
    return np.asarray(model.log_density(nodes.reshape(-1, 2))).reshape(nodes.shape[:2])


def _points(axes: Any, points: Array, colour: str) -> None:
    axes.plot(*points.T, ".", markersize=2.5, alpha=0.5, color=colour, markeredgewidth=0,
              rasterized=True)  # fmt: skip
