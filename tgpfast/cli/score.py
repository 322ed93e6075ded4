"""``tgpfast score``: log density of rows under a model."""

from __future__ import annotations

import argparse
from dataclasses import replace
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
    add_model,
    add_output,
    add_progress,
    shows_progress,
)
from .output import check_output, is_standard_output, print_json, print_table, write_table
from .saved_files import load_model

SCORED_MISSING = ("error", "drop", "marginal")  # what to do with rows that lack values
SHOWN_ROWS = 5  # least likely rows that are printed
SORTED_ROWS = 1_000_000  # values that are sorted or summed at once: 8 MB, and as much for indices


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
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
    facts = _summarize(values) | {"n_missing": n_missing}
    check_scored(arguments, facts["n_scored"])
    if arguments.json:
        print_json(facts)
    elif arguments.output is None:
        _print_report(facts)
    elif not (arguments.quiet or is_standard_output(arguments.output)):
        print(f"wrote {arguments.output}: {len(values):,} rows")
    report_missing(arguments, n_missing)


def check_scored(arguments: argparse.Namespace, n_scored: int) -> None:
    """ValueError unless a row has a score."""
    if not n_scored:
        raise ValueError(f"{arguments.data[0]}: no row is complete, so that none has a score")


def report_missing(arguments: argparse.Namespace, n_missing: int) -> None:
    """Print what was done with rows that lack values, unless the output is for machines."""
    is_silent = arguments.json or arguments.quiet or is_standard_output(arguments.output)
    if n_missing and not is_silent:
        is_scored = arguments.missing == "marginal"
        fate = "scored by the columns that they have" if is_scored else "not scored"
        print(f"{rows_text(n_missing)} with missing values: {fate}")


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
    return _join(parts), n_missing


def _join(parts: list[Array]) -> Array:
    """One array of all parts, each of which is freed when it is copied."""
    joined = np.empty(sum(map(len, parts)))
    stop = len(joined)
    while parts:
        part = parts.pop()
        joined[stop - len(part) : stop] = part
        stop -= len(part)
    return joined


def find_lowest(values: Array, n: int) -> Any:
    """Numbers of the n lowest values, lowest first; nan is the highest, and equal values keep
    their order.

    Indices of all values would take as much memory as the values.

    Examples
    --------
    >>> find_lowest(np.array([3.0, 1.0, np.nan, 2.0]), 2)
    array([1, 3])
    """
    found = np.empty(0, dtype=np.intp)
    step = max(SORTED_ROWS, n)
    for start in range(0, len(values), step):
        numbers = np.concatenate([found, np.arange(start, min(start + step, len(values)))])
        found = numbers[np.argsort(values[numbers], kind="stable")[:n]]
    return found


def _summarize(values: Array) -> dict[str, Any]:
    """Number, mean and lowest of the values that are not nan, in one pass over them."""
    n, total, moment = 0, 0.0, 0.0  # moment: sum of squares about the mean
    for start in range(0, len(values), SORTED_ROWS):
        block = values[start : start + SORTED_ROWS]
        block = block[~np.isnan(block)]
        if not len(block):
            continue
        with np.errstate(invalid="ignore"):  # -inf where a density is zero
            gap = block.mean() - (total / n if n else 0.0)
            moment += len(block) * block.var() + gap * gap * n * len(block) / (n + len(block))
            n, total = n + len(block), total + block.sum()
    lowest = find_lowest(values, min(SHOWN_ROWS, n))
    error = None
    if n > 1 and np.isfinite(moment):  # otherwise the error is not known
        error = float(np.sqrt(moment / (n - 1) / n))
    return {
        "n_rows": len(values), "n_scored": n,
        "mean_log_density": total / n if n else None, "standard_error": error,
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
