"""``tgpfast plot``: a picture of a model beside rows."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import plot
from ..data import files
from ..data.blocks import Blocks
from .data_source import add_data, match_columns, open_data
from .options import Command, add_missing, add_model, count_or
from .saved_files import load_model

PICTURES = (".png", ".pdf", ".svg")
# pictures by number of columns; more columns have that of pairs
DRAWN: dict[int, Callable[..., Any]] = {
    1: functools.partial(plot.marginal_cdfs, directions=[[1.0]], units="data"),
    2: plot.density_figure,
}


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_data(parser, "; without it, the model alone is drawn", is_optional=True)
    add_missing(parser)
    add = parser.add_argument
    add("-o", "--output", type=Path, required=True, metavar="PICTURE",
        help="png, pdf or svg file to write")  # fmt: skip
    add("--seed", type=count_or(least=0), default=0, metavar="N",
        help="seed of the samples and of the choice of rows shown (default: %(default)s)")


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    files.check_writable(arguments.output, suffixes=PICTURES)
    if arguments.data:
        with open_data(arguments.data) as data:
            source = match_columns(model, data, arguments.columns)
            if arguments.missing == "drop":
                source = functools.partial(_complete_rows, source)
            figure = _draw_beside(model, source, arguments)
    else:
        figure = model.plot()
    plot.save(figure, arguments.output)
    print(f"wrote {arguments.output}")


def _complete_rows(source: Any) -> Iterator[Any]:
    """The rows without missing values, in blocks."""
    for x, _ in Blocks(source, drop_missing=True):
        yield x.copy()


def _draw_beside(model: Any, source: Any, arguments: argparse.Namespace) -> Any:
    """The picture of a model and of rows."""
    model = getattr(model, "dequantized", model)
    model.table = replace(model.table, columns=None, kind="array")
    return DRAWN.get(model.dimension, plot.pairs)(model, source, seed=arguments.seed)


COMMAND = Command(
    "plot",
    "draw a model beside rows",
    "Draws a model beside the rows of DATA, or the model alone. One column of DATA: the "
    "distribution functions of both. Two columns: data with contours of the density, and samples. "
    "More columns: every pair of the first six, data below the diagonal and samples above it.",
    (
        "tgpfast plot model.npz data.csv -o model.png",
        "tgpfast plot model.npz -o model.png",
    ),
    _add_options,
    _run,
)
