"""``tgpfast outliers``: the rows that a model finds least likely."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..density.density import Density
from ..validation import Array
from .data_source import add_data, match_columns, open_data
from .options import (
    Command,
    add_json,
    add_missing,
    add_model,
    add_output,
    add_progress,
    count_or,
    share,
    shows_progress,
)
from .output import check_output, is_standard_output, print_json, print_table, write_table
from .saved_files import load_model
from .score import check_scored, find_lowest, report_missing, score_rows

DEFAULT_ROWS = 10  # rows that are listed if nothing else is asked for


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_data(parser)
    add = parser.add_mutually_exclusive_group().add_argument
    add("-n", "--rows", type=count_or(), metavar="N",
        help=f"list the N rows of lowest log density (without options: {DEFAULT_ROWS})")
    add("--share", type=share, metavar="S",
        help="list this share of the rows, those of lowest log density")
    add("--outside", type=share, metavar="P",
        help="list the rows outside the region of highest density that has probability P under "
        "the model, such as 0.99")  # fmt: skip
    add_missing(parser)
    add_output(parser, "OUTLIERS", "write the listed rows, with their numbers and log densities, ")
    add_json(parser)
    add_progress(parser)


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    check_output(arguments.output, with_json=arguments.json)
    with open_data(arguments.data) as data:
        source = match_columns(model, data, arguments.columns)
        names = model.table.columns or [f"column_{k}" for k in range(model.dimension)]
        values, n_missing = score_rows(
            model, source, shows_progress(arguments), arguments.missing
        )
        numbers = _find_lowest(model, values, arguments)
        rows = _read_rows(source, numbers)
    if arguments.output is not None:
        table = np.column_stack([numbers, values[numbers], rows])
        write_table(arguments.output, table, ["row", "log_density", *names])
    check_scored(arguments, len(values) - n_missing)
    if arguments.json:
        _print_document(values, n_missing, numbers, rows, names)
    elif arguments.output is None:
        print_table(
            ["row (from 0)", "log density", *names],
            [[f"{k:,}", f"{values[k]:.6g}", *(f"{cell:.6g}" for cell in row)]
             for k, row in zip(numbers, rows, strict=True)],
        )  # fmt: skip
    elif not (arguments.quiet or is_standard_output(arguments.output)):
        print(f"wrote {arguments.output}: {len(numbers):,} of {len(values):,} rows")
    report_missing(arguments, n_missing)


def _find_lowest(model: Density, values: Array, arguments: argparse.Namespace) -> Any:
    """Numbers of the rows to list, lowest log density first."""
    n_scored = int(np.count_nonzero(~np.isnan(values)))
    n_listed = arguments.rows or DEFAULT_ROWS
    if arguments.outside is not None:
        threshold = model.highest_density_region(arguments.outside).threshold
        n_listed = int(np.count_nonzero(values < threshold))
    elif arguments.share is not None:
        n_listed = max(1, round(arguments.share * n_scored))
    return find_lowest(values, min(n_listed, n_scored))


def _read_rows(source: Any, numbers: Any) -> Array:
    """The rows with these numbers, in their order, from a second pass over the data."""
    wanted, found, first = np.sort(numbers), [], 0
    for x, _ in Blocks(source, keep_missing=True):
        start, stop = np.searchsorted(wanted, [first, first + len(x)])
        found.append(x[wanted[start:stop] - first])
        first += len(x)
    return np.concatenate(found)[np.searchsorted(wanted, numbers)]


def _print_document(
    values: Array, n_missing: int, numbers: Any, rows: Array, names: list[str]
) -> None:
    print_json({
        "n_rows": len(values),
        "n_missing": n_missing,
        "outliers": [
            {"row": k, "log_density": values[k], "values": dict(zip(names, row, strict=True))}
            for k, row in zip(numbers, rows, strict=True)
        ],
    })  # fmt: skip


COMMAND = Command(
    "outliers",
    "the rows that a model finds least likely",
    "Lists the rows of DATA that have the lowest log density under a model, lowest first. Rows "
    "are numbered from 0 over all files. The data are read twice, in blocks; only one number a row "
    "is held in memory.",
    (
        "tgpfast outliers model.npz data.csv -n 5",
        "tgpfast outliers model.npz data.csv --share 0.01 -o outliers.csv",
        "tgpfast outliers model.npz data.csv --outside 0.99 -o -",
    ),
    _add_options,
    _run,
    flags={"level": "--outside"},
)
