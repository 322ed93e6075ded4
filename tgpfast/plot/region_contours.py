"""Contours of highest-density regions, each labeled with its probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..density.answers.column_choice import check_levels
from ..validation import Array, Seed, as_seed, check_flag
from .canvas import (
    BLUE,
    GRAY,
    SHOWN_POINTS,
    SKY,
    add_title,
    draw_legend,
    draw_points,
)
from .model_limits import name_columns, read_model_rows
from .plane import Plane, mass_levels, visible_levels

REGION_LEVELS = (0.5, 0.75, 0.95)  # default probabilities of the regions
CONTOUR_SIDE = 120  # default number of grid points along a side
REGION_OPACITY = 0.3  # opacity of each region; they overlap, so that the innermost is the darkest
LABEL_MARGIN = 0.12  # between labels and the edges of the picture, as a share of its sides


def region_contours(
    model: Any,
    X: Any = None,
    *,
    levels: Sequence[float] = REGION_LEVELS,
    by_draws: bool | None = None,
    n_shown: int = SHOWN_POINTS,
    n_grid: int = CONTOUR_SIDE,
    seed: Seed = 0,
    title: str | None = None,
) -> Any:
    """Highest-density regions of two columns, with the probability of each on its contour.

    Parameters
    ----------
    model : Density or MarginalDensity of two columns
    X : rows of shape (n, 2), optional
        Rows to show; none by default.
    levels : sequence of float, default (0.5, 0.75, 0.95)
        Probabilities of the regions, in (0, 1).
    by_draws : bool, default None
        Whether ``model.highest_density_region`` gives the thresholds and the probabilities on the
        labels; otherwise they hold for the part of the density in the picture, on its grid. By
        default wherever the model has this method.
    n_shown : int, default 3000
        Rows that are shown.
    n_grid : int, default 120
        Grid points along each side.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the choice of rows and of the draws.
    title : str, default None
        Title above the panel.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        The model or X does not have two columns, or a level is not in (0, 1).

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = tgpfast.fit(X, method="fd", lam=10.0, n_features=50, base="empirical")
    >>> figure = tgpfast.plot.region_contours(model, X, levels=(0.5, 0.9))
    """
    seed, shares = as_seed(seed), np.unique(check_levels("levels", levels))[::-1]
    rows, *ends = read_model_rows(model, X, 2, "contours need two")
    plane = Plane.around(
        np.empty((0, 2)) if rows is None else rows, (ends[0], ends[1]), name_columns(model),
        model.table.columns, n_shown, seed,
    )  # fmt: skip
    figure, (axes,) = plane.make_panels([""])
    if X is not None:
        draw_points(axes, plane.shown, GRAY)
        draw_legend(figure, {plane.data_label: (GRAY, "o"),
                             "highest-density regions": (BLUE, "solid")})  # fmt: skip
    sides, values = plane.evaluate(model, n_grid)
    has_regions = hasattr(model, "highest_density_region")
    if has_regions if by_draws is None else check_flag("by_draws", by_draws):
        found = _regions_by_draws(model, shares, seed)
    else:
        found = _regions_on_grid(values, shares)
    _draw_regions(axes, sides, values, found)
    return add_title(figure, title)


def _regions_by_draws(model: Any, shares: Array, seed: int) -> dict[float, float]:
    """Probability of each region by its threshold, thresholds increasing."""
    regions = [model.highest_density_region(float(p), seed=seed) for p in shares]
    return {region.threshold: float(region.probability) for region in regions}


def _regions_on_grid(values: Array, shares: Array) -> dict[float, float]:
    return {level: share for share in shares.tolist() for level in mass_levels(values, (share,))}


def _draw_regions(
    axes: Any, sides: list[Array], values: Array, regions: dict[float, float]
) -> None:
    """Filled regions, and lines with labels; those outside the values on the grid are left out."""
    values, seen = visible_levels(values, regions)
    for threshold in seen:
        axes.contourf(*sides, values, levels=[threshold, values.max() + 1.0], colors=[SKY],
                      alpha=REGION_OPACITY)  # fmt: skip
    if seen:
        lines = axes.contour(*sides, values, levels=seen, colors=BLUE, linewidths=1.0,
                             linestyles="solid")  # fmt: skip
        axes.clabel(lines, fmt={v: f"{100 * regions[v]:.3g} %" for v in seen},
                    fontsize="small", colors=[axes.xaxis.label.get_color()],
                    manual=_place_labels(lines, sides))  # fmt: skip


def _place_labels(lines: Any, sides: list[Array]) -> list[tuple[float, float]]:
    """One place for each contour: on its longest line, away from the edges of the picture and far
    from the other labels."""
    low, high = np.array([(side[0], side[-1]) for side in sides]).T
    extent = high - low
    places: list[Array] = []
    for path in lines.get_paths():
        vertices = np.asarray(max(path.to_polygons(closed_only=False), key=len))
        from_edges = np.minimum(vertices - low, high - vertices) / extent
        free = (from_edges > LABEL_MARGIN).all(axis=1)
        vertices = vertices[free] if free.any() else vertices
        if places:
            gaps = (vertices[:, None] - np.array(places)) / extent
            best = np.hypot(*np.moveaxis(gaps, -1, 0)).min(axis=1).argmax()
        else:
            best = vertices[:, 1].argmax()
        places.append(vertices[best])
    return [(float(x), float(y)) for x, y in places]
