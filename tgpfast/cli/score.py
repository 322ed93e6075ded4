"""``tgpfast score``: log density of rows under a model."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..density.density import Density
from ..evaluation.result import rows_text
from ..runtime.progress import Progress
from ..validation import Array
from .data_source import add_data, match_columns, open_data
from .options import Command, add_json, add_output, add_progress, shows_progress
from .output import check_output, is_standard_output, print_json, print_table, write_table
from .saved_files import load_model

SHOWN_ROWS = 5  # least likely rows that are printed


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="file written by tgpfast fit")
    add_data(parser, "; named columns are matched with the names in the model")
    add_output(parser, "SCORES", "write every row's log density ")
    add_json(parser)
    add_progress(parser)


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    check_output(arguments.output, with_json=arguments.json)
    with open_data(arguments.data) as data:
        source = match_columns(model, data, arguments.columns)
        values = score_rows(model, source, shows_progress(arguments))
    if arguments.output is not None:
        write_table(arguments.output, values, ["log_density"])
    facts = _summarize(values)
    if arguments.json:
        print_json(facts)
    elif arguments.output is None:
        _print_report(facts)
    elif not (arguments.quiet or is_standard_output(arguments.output)):
        print(f"wrote {arguments.output}: {len(values):,} rows")


def score_rows(model: Density, source: Any, show: bool) -> Array:
    """Log densities of rows whose columns are in the order of the model; shows a bar if asked."""
    model.table = replace(model.table, columns=None)  # columns count by position
    blocks = Blocks(source, dimension=model.dimension)
    with Progress(show, "rows", blocks.n_rows) as bar:
        parts = []
        for x, _ in blocks:
            parts.append(np.asarray(model.log_density(x)))
            bar.add(len(x))
    return np.concatenate(parts)


def _summarize(values: Array) -> dict[str, Any]:
    lowest = np.argsort(values, kind="stable")[:SHOWN_ROWS]
    error = None
    if len(values) > 1 and np.isfinite(values).all():  # otherwise the error is not known
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return {
        "n_rows": len(values), "mean_log_density": float(values.mean()), "standard_error": error,
        "lowest": [{"row": int(k), "log_density": float(values[k])} for k in lowest],
    }  # fmt: skip


def _print_report(facts: dict[str, Any]) -> None:
    error = facts["standard_error"]
    error_text = "" if error is None else f"standard error {error:.2g}, "
    mean, rows = facts["mean_log_density"], rows_text(facts["n_rows"])
    print(f"mean log density  {mean:.6g}, {error_text}{rows}\n")
    print_table(
        ["lowest rows (from 0)", "log density"],
        [[f"{row['row']:,}", f"{row['log_density']:.6g}"] for row in facts["lowest"]],
    )


COMMAND = Command(
    "score",
    "log density of rows under a model",
    "Evaluates the log density of every row of DATA. Without -o it prints the mean, with its "
    "standard error, and the rows that the model finds least likely.",
    (
        "tgpfast score model.npz new.csv",
        "tgpfast score model.npz new.csv -o scores.csv",
        "cat new.csv | tgpfast score model.npz - --json",
    ),
    _add_options,
    _run,
)
