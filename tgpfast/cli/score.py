"""``tgpfast score``: log density of rows under a model."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data import files
from ..density.density import Density
from ..evaluation.result import rows_text
from ..validation import Array
from .options import Command, add_columns
from .output import print_table
from .saved_files import load_model

SHOWN_ROWS = 5  # least likely rows that are printed


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="file written by tgpfast fit")
    add("data", type=Path, metavar="DATA", help="file of rows, as for fit; named columns are "
        "matched with the names in the model")  # fmt: skip
    add("-o", "--output", type=Path, metavar="SCORES", help="write every row's log density to "
        "this csv, tsv, txt or npy file")  # fmt: skip
    add_columns(parser)


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    if arguments.output is not None:
        files.check_writable(arguments.output)
    data = _choose_columns(model, arguments.data, arguments.columns)
    # the columns are in order now; without names the model takes them by position
    model.table = replace(model.table, columns=None)
    values = np.asarray(model.log_density(data))
    if arguments.output is None:
        _print_report(values)
        return
    files.write_rows(arguments.output, values, ["log_density"])
    print(f"wrote {arguments.output}: {len(values):,} rows")


def _print_report(values: Array) -> None:
    error = ""
    if len(values) > 1 and np.isfinite(values).all():  # otherwise the error is not known
        error = f"standard error {values.std(ddof=1) / np.sqrt(len(values)):.2g}, "
    print(f"mean log density  {values.mean():.6g}, {error}{rows_text(len(values))}\n")
    lowest = np.argsort(values, kind="stable")[:SHOWN_ROWS]
    print_table(
        ["lowest rows (from 0)", "log density"],
        [[f"{row:,}", f"{values[row]:.6g}"] for row in lowest],
    )


def _choose_columns(model: Density, path: Path, asked: list[str] | None) -> Any:
    """The file, or the columns of it that the user asked for or that have the model's names."""
    (present, width), names = files.columns_of(path), model.table.columns
    chosen = asked
    if asked is None and names is not None and present is not None and present != names:
        missing = [name for name in names if name not in present]
        if missing:
            raise ValueError(
                f"{path.name} lacks the model's columns {', '.join(missing)}; it has "
                f"{', '.join(present)}: rename them, or choose by --columns"
            )
        chosen = names
    found = width if chosen is None else len(chosen)
    if found != model.dimension:
        source = "--columns names" if asked else f"{path.name} has"
        known = f" ({', '.join(names)})" if names else ""
        raise ValueError(
            f"{source} {found} columns, expected the model's {model.dimension}{known}: choose "
            "them by --columns"
        )
    return path if chosen is None else files.Columns(path, chosen)


COMMAND = Command(
    "score",
    "log density of rows under a model",
    "Evaluates the log density of every row of DATA. Without -o it prints the mean, with its "
    "standard error, and the rows that the model finds least likely.",
    "tgpfast score model.npz held-out.csv -o scores.csv",
    _add_options,
    _run,
)
