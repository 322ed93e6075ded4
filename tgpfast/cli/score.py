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
from .options import (
    Command,
    add_json,
    add_missing,
    add_output,
    add_progress,
    shows_progress,
)
from .output import check_output, is_standard_output, print_json, print_table, write_table
from .saved_files import load_model

SCORED_MISSING = ("error", "drop", "marginal")  # what to do with rows that lack values
SHOWN_ROWS = 5  # least likely rows that are printed


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="file written by tgpfast fit")
    add_data(parser, "; named columns are matched with the names in the model")
    add_missing(
        parser, SCORED_MISSING, '"drop" gives them no score (nan in SCORES), "marginal" the log '
        "density of the columns that they have",
    )  # fmt: skip
    add_output(parser, "SCORES", "write every row's log density ")
    add_json(parser)
    add_progress(parser)


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    check_output(arguments.output, with_json=arguments.json)
    with open_data(arguments.data) as data:
        source = match_columns(model, data, arguments.columns)
        values, n_missing = score_rows(
            model, source, shows_progress(arguments), arguments.missing
        )
    if arguments.output is not None:
        write_table(arguments.output, values, ["log_density"])
    scored = values[~np.isnan(values)]
    if not len(scored):
        raise ValueError(f"{arguments.data[0]}: no row is complete, so that none has a score")
    facts = _summarize(values, scored) | {"n_missing": n_missing}
    if arguments.json:
        print_json(facts)
    elif arguments.output is None:
        _print_report(facts)
    elif not (arguments.quiet or is_standard_output(arguments.output)):
        print(f"wrote {arguments.output}: {len(values):,} rows")
    is_silent = arguments.json or arguments.quiet or is_standard_output(arguments.output)
    if n_missing and not is_silent:
        print(missing_text(n_missing, arguments.missing))


def missing_text(n_missing: int, missing: str) -> str:
    """What was done with rows that lack values."""
    fate = "scored by the columns that they have" if missing == "marginal" else "not scored"
    return f"{rows_text(n_missing)} with missing values: {fate}"


def score_rows(model: Density, source: Any, show: bool, missing: str) -> tuple[Array, int]:
    """Log density of every row, and the number of rows with missing values.

    Parameters
    ----------
    model : Density
    source : rows
        Their columns are in the order of the model.
    show : bool
        Whether to show a bar.
    missing : {"error", "drop", "marginal"}
        What to do with rows that lack values: "drop" gives them nan.
    """
    model.table = replace(model.table, columns=None)  # columns count by position
    blocks = Blocks(source, keep_missing=missing != "error", dimension=model.dimension)
    options: dict[str, Any] = {"missing": "marginal"} if missing == "marginal" else {}
    parts, n_missing = [], 0
    with Progress(show, "rows", blocks.n_rows) as bar:
        for x, _ in blocks:
            complete = ~np.isnan(x).any(axis=1)
            some = complete | (missing == "marginal")
            values = np.full(len(x), np.nan)
            if some.any():
                values[some] = model.log_density(x[some], **options)
            parts.append(values)
            n_missing += int((~complete).sum())
            bar.add(len(x))
    return np.concatenate(parts), n_missing


def _summarize(values: Array, scored: Array) -> dict[str, Any]:
    lowest = np.argsort(values, kind="stable")[: min(SHOWN_ROWS, len(scored))]
    error = None
    if len(scored) > 1 and np.isfinite(scored).all():  # otherwise the error is not known
        error = float(scored.std(ddof=1) / np.sqrt(len(scored)))
    return {
        "n_rows": len(values), "n_scored": len(scored),
        "mean_log_density": float(scored.mean()), "standard_error": error,
        "lowest": [{"row": int(k), "log_density": float(values[k])} for k in lowest],
    }  # fmt: skip


def _print_report(facts: dict[str, Any]) -> None:
    error = facts["standard_error"]
    error_text = "" if error is None else f"standard error {error:.2g}, "
    mean, rows = facts["mean_log_density"], rows_text(facts["n_scored"])
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
