"""A plane of two columns, over which panels draw contours and points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..evaluation.result import rows_text
from ..validation import Array, whole
from .canvas import (
    GRAY,
    VERMILION,
    draw_legend,
    draw_points,
    label_first_column,
    make_panels,
    simplify_axes,
    thin_ticks,
)
from .plotted_rows import choose_rows, find_limits, read_rows

MASSES = (0.95, 0.75, 0.5, 0.25)  # share of the probability inside each contour
PANEL_INCHES = 3.1  # longer side of a panel
UNSEEN = 10.0  # nats below the lowest contour, where a node without density is put
EQUAL_RANGES = 2.5  # ratio of the ranges up to which both axes have the same scale: no strips


@dataclass(frozen=True, eq=False)
class Plane:
    """Two columns of data, and the facts that all panels over them share.

    Attributes
    ----------
    names : list of str
        Names of the axes.
    columns : list of str or None
        The models' column names.
    shown : ndarray of shape (n_shown, 2)
        Rows that are drawn.
    low, high : ndarray of shape (2,)
        Ends of the axes.
    n_outside : int
        Rows outside the axes.
    """

    names: list[str]
    columns: list[str] | None
    shown: Array
    low: Array
    high: Array
    n_outside: int

    @classmethod
    def of(cls, models: dict[str, Any], X: Any, n_shown: int, seed: int, margin: float) -> Plane:
        """The plane of X, which must have two columns."""
        x, names, columns = read_rows(models, X, needed=2)
        return cls.around(x, find_limits(x, margin), names, columns, n_shown, seed)

    @classmethod
    def around(
        cls, x: Array, ends: tuple[Array, Array], names: list[str], columns: list[str] | None,
        n_shown: int, seed: int,
    ) -> Plane:  # fmt: skip
        """The plane between two ends, with some of the rows x (n, 2)."""
        outside = int(((x < ends[0]) | (x > ends[1])).any(axis=1).sum())
        shown = choose_rows(x, whole("n_shown", n_shown), seed)
        return cls(names, columns, shown, *ends, outside)

    @property
    def is_equal(self) -> bool:
        """Whether a unit has the same length on both axes."""
        width, height = self.high - self.low
        return bool(width <= EQUAL_RANGES * height and height <= EQUAL_RANGES * width)

    @property
    def panel_size(self) -> tuple[float, float]:
        """(width, height) of a panel in inches."""
        width, height = self.high - self.low
        shape = height / width if self.is_equal else 0.8
        return (
            max(PANEL_INCHES / np.sqrt(max(shape, 1.0)), 1.8),
            PANEL_INCHES * min(shape, np.sqrt(shape)),
        )

    @property
    def data_label(self) -> str:
        """The data in a legend, with the number of rows outside the picture."""
        if not self.n_outside:
            return "data"
        return f"data ({rows_text(self.n_outside)} outside the picture)"

    def make_panels(self, titles: list[str]) -> tuple[Any, list[Any]]:
        """(figure, one panel per title) with labeled axes."""
        figure, panels = make_panels(titles, self.panel_size, sharex=True, sharey=True)
        for axes in panels:
            self.set_axes(axes)
        label_first_column(panels, self.names[1])
        across = panels[0].get_gridspec().ncols
        for axes in panels[-across:]:  # panels with no other panel below
            axes.set_xlabel(self.names[0])
            axes.tick_params(labelbottom=True)
        return figure, panels

    def set_axes(self, axes: Any) -> None:
        """Set limits and aspect ratio."""
        (left, bottom), (right, top) = self.low, self.high
        axes.set(xlim=(left, right), ylim=(bottom, top),
                 aspect="equal" if self.is_equal else "auto")  # fmt: skip
        simplify_axes(axes)
        thin_ticks(axes, self.panel_size[0])

    def evaluate(self, model: Any, n_grid: int) -> tuple[list[Array], Array]:
        """Points along both sides, and the log density on their grid, (n_grid, n_grid)."""
        n_grid = whole("n_grid", n_grid, 2)
        sides = [np.linspace(a, b, n_grid) for a, b in zip(self.low, self.high, strict=True)]
        nodes = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
        return sides, picture_log_density(model, nodes).reshape(n_grid, n_grid)

    def draw_contours(
        self, axes: Any, model: Any, n_grid: int, levels: list[float] | None = None
    ) -> None:
        """The rows, and contours of the model: at some log densities, or around the shares MASSES.
        """
        draw_points(axes, self.shown, GRAY)
        sides, values = self.evaluate(model, n_grid)
        values, levels = visible_levels(values, mass_levels(values) if levels is None else levels)
        if levels:
            axes.contour(*sides, values, levels=levels, colors=VERMILION, linewidths=1.0,
                         linestyles="solid")  # fmt: skip

    def draw_contour_legend(self, figure: Any) -> None:
        """A legend of the data and the contours."""
        masses = ", ".join(f"{100 * mass:.0f}" for mass in sorted(MASSES))
        draw_legend(figure, {self.data_label: (GRAY, "o"),
                             f"contours around {masses} %": (VERMILION, "solid")})  # fmt: skip


def picture_log_density(model: Any, rows: Array) -> Array:
    """Log density of rows (n, 2), as accurate as a picture of many rows needs it."""
    evaluate = getattr(model, "rough_log_density", model.log_density)
    return np.asarray(evaluate(rows), dtype=float)


def visible_levels(values: Array, levels: Iterable[float]) -> tuple[Array, list[float]]:
    """Values for contours, and the levels that they cross, increasing.

    A node without density would cut holes into the lines around it; it gets a value below them.
    """
    ordered = sorted(levels)
    filled = np.where(np.isfinite(values), values, ordered[0] - UNSEEN if ordered else 0.0)
    return filled, [v for v in ordered if filled.min() < v < filled.max()]


def mass_levels(log_density: Array, masses: Sequence[float] = MASSES) -> list[float]:
    """Log densities whose superlevel sets hold shares of the mass on a grid.

    Each level is halfway to the next lower value on the grid, so that no node lies on a contour.

    Parameters
    ----------
    log_density : ndarray
        Values on a grid, of any shape.
    masses : sequence of float, default (0.95, 0.75, 0.5, 0.25)
        The shares.

    Returns
    -------
    list of float
        Increasing and distinct; empty if no value is finite.

    Examples
    --------
    >>> import numpy as np
    >>> levels = mass_levels(np.log([0.1, 0.2, 0.3, 0.4]), (0.5,))  # 0.4 and 0.3 hold half
    >>> np.exp(levels).round(2).tolist()
    [0.24]
    """
    ordered = np.sort(log_density[np.isfinite(log_density)], axis=None)[::-1]
    if not len(ordered):
        return []
    mass = np.cumsum(np.exp(ordered - ordered[0]))
    index = np.minimum(np.searchsorted(mass / mass[-1], masses), len(ordered) - 1)
    distinct = np.unique(ordered)
    place = np.searchsorted(distinct, ordered[index])
    below = np.where(place > 0, distinct[place - 1], distinct[0] - 1.0)
    levels = 0.5 * distinct[place] + 0.5 * below
    return [float(v) for v in np.unique(levels)]
