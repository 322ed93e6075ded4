"""Cells of two discrete columns, colored by the probability of their pair of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..validation import Array
from .canvas import SKY, VERMILION, add_color_bar, add_title, draw_legend, fade
from .model_limits import find_edges, find_steps, find_values, name_columns, read_model_rows
from .plane import Plane

MOST_SHOWN_CELLS = 2_500  # of a picture of pairs of values; more would be too small to see
LEAST_SHARE = 1e-4  # of the most probable cell: cells at the ends with less are left out
LARGEST_DOT = 0.6  # diameter of the dot of the most frequent pair, as a share of a cell
POINTS_PER_INCH = 72.0


def has_cells(model: Any, X: Any = None) -> bool:
    """Whether a model has two discrete columns, with few enough values for cells.

    Parameters
    ----------
    model : density
    X : rows, default None
        Rows of the picture.
    """
    if model.dimension != 2 or not find_steps(model, 2).all():
        return False
    _, low, high = read_model_rows(model, X, 2, "cells need two")
    return math.prod(len(line) for line in _find_values(model, low, high)) <= MOST_SHOWN_CELLS


def probability_cells(model: Any, X: Any = None, *, title: str | None = None) -> Any:
    """A cell for every pair of values of two discrete columns; probable ones have a strong color.

    Parameters
    ----------
    model : DiscreteDensity of two discrete columns
    X : rows of shape (n, 2), default None
        Rows to show: the area of a dot is the share of the rows with this pair of values.
    title : str, default None
        Title above the panel.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        The model or X does not have two columns, one of them is not discrete, or there are more
        than 2,500 pairs of values.

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).poisson([3.0, 5.0], size=(500, 2))
    >>> model = tgpfast.fit(X, discrete=[0, 1], method="fd", lam=10.0, n_features=50)
    >>> figure = tgpfast.plot.probability_cells(model, X)
    """
    rows, low, high = read_model_rows(model, X, 2, "cells need two")
    steps = find_steps(model, 2)
    if not steps.all():
        raise ValueError("cells need two discrete columns: fit with discrete=[...] of both")
    lines = _find_values(model, low, high)
    if math.prod(len(line) for line in lines) > MOST_SHOWN_CELLS:
        raise ValueError(
            f"{len(lines[0])} x {len(lines[1])} pairs of values are too many cells; expected at "
            f"most {MOST_SHOWN_CELLS:,}. Draw region_contours of model.dequantized"
        )
    nodes = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
    values = np.exp(np.asarray(model.log_density(nodes), dtype=float))
    lines, values = _trim(lines, values.reshape([len(line) for line in lines]), rows)
    ends = [np.array([line[side] for line in lines]) for side in (0, -1)]
    plane = Plane(
        name_columns(model), model.table.columns, np.empty((0, 2)), ends[0] - 0.5 * steps,
        ends[1] + 0.5 * steps, 0,
    )  # fmt: skip
    figure, (axes,) = plane.make_panels([""])
    edges = map(find_edges, lines, steps)
    image = axes.pcolormesh(*edges, values.T, vmin=0.0, cmap=fade(SKY))
    for axis, step in zip((axes.xaxis, axes.yaxis), steps, strict=True):
        axis.get_major_locator().set_params(integer=float(step).is_integer())
    add_color_bar(figure, axes, image, "probability")
    if rows is not None:
        _draw_dots(axes, rows, steps, plane)
        draw_legend(figure, {"share of the data (area)": (VERMILION, "o")})
    return add_title(figure, title)


def _find_values(model: Any, low: Array, high: Array) -> list[Array]:
    """Values of both columns between the ends of the axes."""
    return [
        find_values(a, b, step) for a, b, step in zip(low, high, find_steps(model, 2), strict=True)
    ]


def _trim(
    lines: list[Array], values: Array, rows: Array | None
) -> tuple[list[Array], Array]:
    """Without values at the ends that have no row and almost no probability."""
    for k in range(2):
        seen = values.max(axis=1 - k) > LEAST_SHARE * values.max()
        if rows is not None:
            seen |= (lines[k] >= rows[:, k].min()) & (lines[k] <= rows[:, k].max())
        places = np.flatnonzero(seen)
        kept = slice(places[0], places[-1] + 1)
        lines[k], values = lines[k][kept], values[kept] if k == 0 else values[:, kept]
    return lines, values


def _draw_dots(axes: Any, rows: Array, steps: Array, plane: Plane) -> None:
    """A dot for every pair of values of the rows; its area is the share of the rows."""
    pairs, counts = np.unique(np.rint(rows / steps), axis=0, return_counts=True)
    cell = float((np.array(plane.panel_size) / ((plane.high - plane.low) / steps)).min())
    largest = (LARGEST_DOT * cell * POINTS_PER_INCH) ** 2
    axes.scatter(*(pairs * steps).T, s=largest * counts / counts.max(), color=VERMILION,
                 linewidths=0)  # fmt: skip
