"""A scatter plot colored by density, for millions of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..density.answers.column_choice import find_columns
from ..evaluation.result import rows_text
from ..pipeline.fitting import fit
from ..validation import Array, Seed, as_seed
from .canvas import add_color_bar, add_title, require_matplotlib
from .plane import Plane, picture_log_density
from .plotted_rows import choose_rows, default_names, find_limits

FITTED_ROWS = 20_000  # rows behind the default density; more would hardly change a color
# of that density: nothing is compared, so that it takes a fraction of a second
QUICK_SETTINGS: dict[str, Any] = {
    "features": "lattice", "method": "map", "base": "empirical", "kernel": "matern32", "lam": 0.1,
    "gamma": 0.5,
}  # fmt: skip
SCATTERED_ROWS = 20_000  # most rows that are drawn one by one; pixels are drawn for more
SIDE_PIXELS = 480  # along the longer side of the picture
SCATTER_MARGIN = 0.03  # around the rows, as a share of their range
DENSITY_RANGE = 1e-4  # lowest density with a color of its own, as a share of the highest
COLOR_MAP, DARKEST = "viridis", 0.12  # from the darkest part that is visible on black


def density_scatter(
    X: Any, model: Any = None, *, columns: Any = None, seed: Seed = 0, title: str | None = None
) -> Any:
    """A scatter plot of two columns, colored by their density.

    Up to 20,000 rows are drawn one by one, the densest on top. Of more rows, every pixel shows the
    density at its center, so that the time hardly depends on their number.

    Parameters
    ----------
    X : rows
        As for ``fit``.
    model : Density, default None
        The density of the two columns. By default, one is fitted to 20,000 of the rows with
        settings that take a fraction of a second.
    columns : two of str or int, default None
        The columns to draw, the horizontal one first; needed where X has more than two.
    seed : int, None or numpy.random.Generator, default 0
        Seed of the choice of rows that are fitted.
    title : str, default None
        Title above the panel.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ValueError
        X does not have two columns, and columns are not given.

    Examples
    --------
    >>> import numpy as np, tgpfast.plot
    >>> X = np.random.default_rng(0).normal(size=(50_000, 2))
    >>> figure = tgpfast.plot.density_scatter(X)  # figure.savefig("scatter.png") writes it
    """
    require_matplotlib()
    x, names = _read_columns(X, columns, model)
    low, high = find_limits(x, SCATTER_MARGIN)
    inside = ((x >= low) & (x <= high)).all(axis=1)
    plane = Plane(names, None, x[:0], low, high, int(len(x) - inside.sum()))
    if model is None:
        model = fit(choose_rows(x, FITTED_ROWS, as_seed(seed)), **QUICK_SETTINGS)
    label = rows_text(len(x))
    if plane.n_outside:
        label += f", {plane.n_outside:,} outside the picture"
    figure, (axes,) = plane.make_panels([label])
    draw = _draw_rows if len(x) <= SCATTERED_ROWS else _draw_pixels
    image = draw(axes, x[inside], plane, model)
    add_color_bar(figure, axes, image, "density")
    return add_title(figure, title)


def _read_columns(X: Any, columns: Any, model: Any) -> tuple[Array, list[str]]:
    """The two columns, (n, 2), in the model's order unless columns are given, and their names."""
    order = getattr(getattr(model, "table", None), "columns", None)
    blocks = Blocks(X, columns=order if columns is None else None)
    x, names = blocks.whole(), blocks.table.columns
    d = x.shape[1]
    if d < 2:
        raise ValueError("X has one column; a scatter plot needs two: plot the curve of a model "
                         "with model.plot(X)")
    if columns is None and d != 2:
        raise ValueError(f"X has {d} columns; give the two to draw as columns=")
    chosen = [0, 1] if columns is None else find_columns(columns, names, d)
    if len(chosen) != 2:
        raise ValueError(f"columns={columns!r}: expected two")
    if getattr(model, "dimension", 2) != 2:
        raise ValueError(
            f"the model has {model.dimension} columns; a scatter plot needs two: give the density "
            "of the two with model.marginal(columns)"
        )
    shown = names or default_names(d)
    return np.ascontiguousarray(x[:, chosen], dtype=float), [shown[k] for k in chosen]


def _color_scale(density: Array) -> dict[str, Any]:
    """Colors of densities on a logarithmic scale."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    top = float(density.max(initial=0.0)) or 1.0
    lowest = min(max(float(density.min(initial=top)), DENSITY_RANGE * top), 0.5 * top)
    colors = colormaps[COLOR_MAP](np.linspace(DARKEST, 1.0, 256))
    return {"cmap": ListedColormap(colors), "norm": LogNorm(lowest, top, clip=True)}


def _draw_rows(axes: Any, x: Array, plane: Plane, model: Any) -> Any:
    """Every row as a point, the densest on top."""
    density = np.exp(picture_log_density(model, x))
    order = np.argsort(density)
    size = float(np.clip(20_000.0 / len(x), 2.0, 16.0))  # square points of typography
    return axes.scatter(*x[order].T, c=density[order], s=size, linewidths=0, rasterized=True,
                        **_color_scale(density))  # fmt: skip


def _draw_pixels(axes: Any, x: Array, plane: Plane, model: Any) -> Any:
    """Pixels that hold rows, each with the density at its center; the others are transparent."""
    shape = np.array(plane.panel_size)
    nx, ny = np.maximum(np.rint(SIDE_PIXELS * shape / shape.max()), 2).astype(int)
    step = (plane.high - plane.low) / [nx, ny]
    cell = np.minimum(((x - plane.low) / step).astype(np.int64), [nx - 1, ny - 1])
    row_of = np.full(nx * ny, -1)
    row_of[cell[:, 1] * nx + cell[:, 0]] = np.arange(len(x))  # the last row of each pixel
    filled = np.flatnonzero(row_of >= 0)
    if len(filled) <= SCATTERED_ROWS:  # so few that single pixels would hardly be seen
        return _draw_rows(axes, x[row_of[filled]], plane, model)
    centers = plane.low + (np.stack([filled % nx, filled // nx], axis=1) + 0.5) * step
    density = np.exp(picture_log_density(model, centers))
    image = np.full(nx * ny, np.nan)
    image[filled] = density
    (left, bottom), (right, top) = plane.low, plane.high
    drawn = axes.imshow(image.reshape(ny, nx), origin="lower", extent=(left, right, bottom, top),
                        interpolation="nearest", **_color_scale(density))  # fmt: skip
    plane.set_axes(axes)  # imshow changes the aspect ratio
    return drawn
