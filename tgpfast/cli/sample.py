"""``tgpfast sample``: draw rows from a model."""

from __future__ import annotations

import argparse
from dataclasses import replace

from .options import (
    Command,
    add_json,
    add_model,
    add_output,
    add_progress,
    count_or,
    shows_progress,
)
from .output import check_output, is_standard_output, print_json, write_table
from .saved_files import load_model


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add = parser.add_argument
    add("-n", "--rows", type=count_or(), default=1000, metavar="N",
        help="rows to draw (default: %(default)s)")  # fmt: skip
    add_output(parser, "ROWS", "write the rows ", required=True)
    add("--seed", type=count_or(least=0), default=0, metavar="N",
        help="seed of the draws (default: %(default)s)")  # fmt: skip
    add_json(parser)
    add_progress(parser)


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    check_output(arguments.output, with_json=arguments.json)
    columns = model.table.columns
    model.table = replace(model.table, kind="array")
    rows = model.sample(arguments.rows, seed=arguments.seed, progress=shows_progress(arguments))
    write_table(arguments.output, rows, columns)
    assert model.sampling is not None
    if arguments.json:
        print_json({
            "n_rows": len(rows), "columns": columns, "sampling": model.sampling,
            "wrote": arguments.output,
        })  # fmt: skip
    elif not arguments.quiet and not is_standard_output(arguments.output):
        how = f"drawn by {model.sampling.method}"
        if model.sampling.acceptance_rate is not None:
            how += f", acceptance rate {model.sampling.acceptance_rate:.2f}"
        print(f"wrote {arguments.output}: {len(rows):,} rows, {model.dimension} columns, {how}")


COMMAND = Command(
    "sample",
    "draw rows from a model",
    "Draws rows from a model, in the units and with the column names of its data.",
    (
        "tgpfast sample model.npz -n 1000 -o rows.csv --seed 1",
        "tgpfast sample model.npz -n 3 -o -",
    ),
    _add_options,
    _run,
    flags={"n": "--rows"},
)
