"""Figures, panels, colors, points, lines and legends: everything that knows matplotlib."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..data.storage import replacing
from ..validation import Array

# colors of Okabe and Ito, distinct in any color vision
BLACK, BLUE, VERMILION = "#000000", "#0072B2", "#D55E00"
SKY = "#56B4E9"  # for areas: it shows on white and on black
CURVES = (VERMILION, BLUE, "#009E73", "#E69F00", "#CC79A7", SKY)  # one per model
STYLES = ("solid", "dashed", "dotted")  # for more models than colors
GRAY = "0.6"
ACROSS = 4  # panels in a row
DIGIT_INCHES, TICK_GAP = 0.075, 0.2  # width of a digit of a tick label, and between two labels
SHOWN_POINTS = 3_000  # default number of points in a panel
COLOR_BAR_INCHES = 1.2  # width of a color bar with its labels


def require_matplotlib() -> Any:
    """The Figure class of matplotlib; ImportError with the remedy if it is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            'matplotlib is missing; install it with: pip install "tgpfast[plot]"'
        ) from None
    return Figure


def save(figure: Any, path: str | os.PathLike[str], dpi: int = 120) -> None:
    """Write a figure to a file. If that fails, an old file stays as it was.

    Parameters
    ----------
    figure : matplotlib Figure
    path : str or path
        The extension gives the format.
    dpi : int, default 120
        Dots per inch.

    Examples
    --------
    >>> import os, tempfile
    >>> from matplotlib.figure import Figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Figure(), os.path.join(folder, "picture.png"))
    ...     os.listdir(folder)
    ['picture.png']
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if not kind:
        figure.savefig(path, dpi=dpi)  # matplotlib adds an extension
        return
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=dpi, format=kind)


def make_figure(width: float, height: float) -> Any:
    """An empty figure; sizes in inches."""
    return require_matplotlib()(figsize=(width, height), layout="constrained")


def make_panels(
    titles: list[str], size: tuple[float, float], *, across: int = ACROSS, **options: Any
) -> tuple[Any, list[Any]]:
    """(figure, one panel per title), in even rows of at most ``across`` panels."""
    rows = -(-len(titles) // across)
    columns = -(-len(titles) // rows)
    figure = make_figure(0.7 + size[0] * columns, 0.9 + (size[1] + 0.3) * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axes in grid[len(titles) :]:
        axes.remove()
    panels = grid[: len(titles)]
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize="medium")
    return figure, panels


def simplify_axes(axes: Any) -> None:
    """Small tick labels, no frame at the top and at the right."""
    axes.tick_params(labelsize="small")
    axes.spines[["top", "right"]].set_visible(False)


def thin_ticks(axes: Any, width: float) -> None:
    """As few ticks along a horizontal axis that their labels do not touch.

    Parameters
    ----------
    axes : matplotlib Axes
        With its limits.
    width : float
        Of the axes, in inches.
    """
    from matplotlib.ticker import MaxNLocator

    ticks = axes.xaxis.get_major_locator()
    if not isinstance(ticks, MaxNLocator):
        return
    labels = axes.xaxis.get_major_formatter().format_ticks(axes.get_xticks())
    inches = DIGIT_INCHES * max(map(len, labels), default=0) + TICK_GAP
    room = max(int(width / inches), 2)
    if len(labels) > room:
        ticks.set_params(nbins=room)


def label_first_column(panels: list[Any], label: str) -> None:
    """Label the vertical axis of the panels at the left."""
    for axes in panels:
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(label)


def add_title(figure: Any, title: str | None) -> Any:
    """The figure, with a title above all panels if there is one."""
    if title:
        figure.suptitle(title, fontsize="large")
        figure.get_layout_engine().set(h_pad=0.07)  # inches between it and the panels' titles
        figure.set_figheight(figure.get_figheight() + 0.45)
    return figure


def add_color_bar(figure: Any, axes: Any, image: Any, label: str) -> None:
    """A labeled color bar of an image, for which the figure becomes wider."""
    figure.set_figwidth(figure.get_figwidth() + COLOR_BAR_INCHES)
    bar = figure.colorbar(image, ax=axes, label=label, shrink=0.9)
    bar.ax.tick_params(labelsize="small")
    bar.outline.set_visible(False)


def draw_points(axes: Any, points: Array, color: str) -> None:
    """Points (n, 2), larger if they are few."""
    size = float(np.clip(2.5 * (SHOWN_POINTS / len(points)) ** 0.25, 1.2, 6.0))
    axes.plot(*points.T, ".", markersize=size, alpha=0.5, color=color, markeredgewidth=0,
              rasterized=True)  # fmt: skip


def fade(color: str, opacity: float = 1.0) -> Any:
    """A map of colors from nothing to one color: low values show the background, be it white or
    black."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    return LinearSegmentedColormap.from_list(
        "fade", [to_rgba(color, 0.0), to_rgba(color, opacity)]
    )


def draw_histograms(axes: Any, values: dict[str, tuple[Array, str]], bins: Array) -> None:
    """Outlines of histograms over each other, name -> (values, color); shares per unit."""
    for name, (value, color) in values.items():
        heights = np.histogram(value, bins)[0] / (len(value) * np.diff(bins))
        axes.stairs(heights, bins, color=color, label=name, linewidth=1.3)


def draw_legend(parent: Any, entries: dict[str, tuple[Any, str]]) -> None:
    """A legend below a figure or inside axes: name -> (color, marker or style of a line)."""
    from matplotlib.lines import Line2D

    handles = []
    for name, (color, style) in entries.items():
        look: dict[str, Any] = {"linestyle": style, "linewidth": 1.8}
        if len(style) == 1:
            look = {"linestyle": "", "marker": style, "markersize": 4 if style == "o" else 6}
        handles.append(Line2D([], [], color=color, label=name, **look))
    place: dict[str, Any] = {"loc": "best"}
    if hasattr(parent, "savefig"):  # a figure: as few lines as its width allows
        width = 0.7 + 0.075 * max(len(name) for name in entries)  # rough inches of an entry
        across = max(1, min(len(entries), int(parent.get_figwidth() / width)))
        place = {"loc": "outside lower center", "ncols": across}
    parent.legend(handles=handles, frameon=False, fontsize="small", **place)


def draw_titled_legend(axes: Any, title: str | None) -> None:
    """The legend of the labeled lines, under lines of text."""
    axes.legend(fontsize="small", frameon=False, loc="upper left", title=title,
                title_fontsize="small", alignment="left")  # fmt: skip


def draw_text(axes: Any, lines: list[tuple[str, str]], corner: str = "lower right") -> None:
    """Lines of (text, color) in a corner of the axes."""
    top, left = corner.startswith("upper"), corner.endswith("left")
    for k, (text, color) in enumerate(lines if top else lines[::-1]):
        y = 0.97 - 0.09 * k if top else 0.04 + 0.09 * k
        axes.text(0.04 if left else 0.97, y, text, color=color, fontsize="x-small",
                  transform=axes.transAxes, ha="left" if left else "right",
                  va="top" if top else "bottom")  # fmt: skip


def curve_styles(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """A distinct color and line style for each name."""
    return {
        name: {
            "color": CURVES[k % len(CURVES)],
            "linestyle": STYLES[k // len(CURVES) % len(STYLES)],
        }
        for k, name in enumerate(names)
    }
