"""``tgpfast evaluate``: how well a model fits rows."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import replace
from typing import Any

from ..evaluation import evaluation
from ..evaluation.result import Evaluation
from .data_source import add_data, match_columns, open_data
from .options import (
    Command,
    add_json,
    add_missing,
    add_model,
    add_progress,
    count_or,
    shows_progress,
)
from .output import print_json
from .saved_files import load_model


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_data(parser, "; best rows that the model has not seen")
    defaults, add = inspect.signature(evaluation.evaluate).parameters, parser.add_argument
    add("--directions", type=count_or(), default=defaults["n_directions"].default, metavar="V",
        help="random directions of the distances (default: %(default)s)")  # fmt: skip
    add("--samples", type=count_or(), default=defaults["n_samples"].default, metavar="N",
        help="draws from the model (default: %(default)s)")  # fmt: skip
    add("--seed", type=count_or(least=0), default=defaults["seed"].default, metavar="N",
        help="seed of directions and draws (default: %(default)s)")  # fmt: skip
    add_missing(parser)
    add_json(parser)
    add_progress(parser)


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    with open_data(arguments.data) as data:
        source = match_columns(model, data, arguments.columns)
        model.table = replace(model.table, columns=None)
        found = evaluation.evaluate(
            model, source, n_directions=arguments.directions, n_samples=arguments.samples,
            seed=arguments.seed, missing=arguments.missing, progress=shows_progress(arguments),
        )  # fmt: skip
    if arguments.json:
        print_json(_list_facts(found))
    else:
        print(found.summary())


def _list_facts(found: Evaluation) -> dict[str, Any]:
    names = ("ks", "wd")
    return {
        "n_rows": found.n_rows,
        "n_missing": found.n_missing,
        "log_likelihood": found.log_likelihood,
        "fisher_score": found.fisher_score,
        "median": dict(zip(names, found.median, strict=True)),
        "mean": dict(zip(names, found.mean, strict=True)),
        "noise_floor": found.noise_floor,
        "units": found.units,
        "by_column": found.by_column,
        "worst": found.worst(),
    }


COMMAND = Command(
    "evaluate",
    "how well a model fits rows",
    "Compares a model with the rows of DATA: Kolmogorov-Smirnov and Wasserstein distances along "
    "random directions and in every column, mean log density and Fisher score.",
    ("tgpfast evaluate model.npz new.csv", "tgpfast evaluate model.npz new.csv --json"),
    _add_options,
    _run,
    flags={"n_directions": "--directions", "n_samples": "--samples"},
)
