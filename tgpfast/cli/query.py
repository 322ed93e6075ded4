"""``tgpfast query``: probabilities, quantiles and conditionals of a model."""

from __future__ import annotations

import argparse
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..density.answers.answer import Answer
from ..density.density import Density
from .options import (
    AddPairs,
    Command,
    add_json,
    add_model,
    column_numbers,
    column_ranges,
    number_or,
)
from .output import print_json, print_pairs, print_table
from .saved_files import load_model

SUMMARY_LEVELS = (0.05, 0.5, 0.95)  # quantiles that are shown if no question is asked


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    pairs: dict[str, Any] = {"action": AddPairs, "nargs": "+"}
    parser.add_argument(
        "--given", type=column_numbers, metavar="COLUMN=VALUE", **pairs,
        help="hold columns at these values, as in x=1,y=2 or x=1 y=2; the answer is about the "
        "other columns",
    )  # fmt: skip
    add = parser.add_mutually_exclusive_group().add_argument
    add("--probability", type=column_ranges, metavar="COLUMN=LOW:HIGH", **pairs,
        help="probability that the columns lie between these bounds; an end may be left out, as "
        "in price=10:")  # fmt: skip
    add("--cdf", type=column_numbers, metavar="COLUMN=VALUE", **pairs,
        help="probability that the columns are at most these values")  # fmt: skip
    add("--quantile", type=number_or(), nargs="+", metavar="Q",
        help="values below which these shares of the probability lie, for every column")
    add_json(parser)


def _run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    names = model.table.columns or [str(k) for k in range(model.dimension)]
    # names for all columns, since numbers would change when others are held fixed
    model.table = replace(model.table, columns=names, kind="array")
    facts: dict[str, Any] = {}
    if arguments.given:
        given = _name_columns(model, "--given", arguments.given, names)
        facts["given"], model = given, model.conditional(given)
    if arguments.probability or arguments.cdf:
        facts["probability"] = _find_probability(model, arguments, names)
    else:
        facts["columns"] = _describe_columns(
            model, arguments.quantile or SUMMARY_LEVELS, with_mean=not arguments.quantile
        )
    if arguments.json:
        print_json(facts)
    elif "probability" in facts:
        print_pairs({"probability": _answer_text(facts["probability"])})
    else:
        _print_columns(facts["columns"])


def _name_columns(
    model: Density, option: str, pairs: Sequence[tuple[str | int, Any]], names: list[str]
) -> dict[Any, Any]:
    """Values by the names of their columns; ValueError names the option and a wrong column."""
    assert model.table.columns is not None
    found: dict[Any, Any] = {}
    for column, value in pairs:
        is_number = isinstance(column, int) and str(column) not in names and column < len(names)
        name = names[int(column)] if is_number else str(column)
        if name not in names:
            raise ValueError(
                f"{option} {name}: there is no such column; expected one of "
                f"{', '.join(names)}, or a number from 0 to {len(names) - 1}"
            )
        if name not in model.table.columns:
            raise ValueError(
                f"{option} {name}: --given holds this column at a value; ask about the others"
            )
        if name in found:
            raise ValueError(f"{option} {name}: the column is given twice; give it once")
        found[name] = value
    return found


def _find_probability(model: Density, arguments: argparse.Namespace, names: list[str]) -> Answer:
    if arguments.cdf:
        return model.probability(None, _name_columns(model, "--cdf", arguments.cdf, names))
    bounds = _name_columns(model, "--probability", arguments.probability, names)
    lower = {name: low for name, (low, _) in bounds.items()}
    return model.probability(lower, {name: high for name, (_, high) in bounds.items()})


def _describe_columns(
    model: Density, levels: Sequence[float], *, with_mean: bool
) -> dict[str, dict[str, Any]]:
    """Mean and quantiles of every column, by its name."""
    found: dict[str, dict[str, Any]] = {}
    assert model.table.columns is not None
    for k, name in enumerate(model.table.columns):
        quantiles = model.quantile(levels, column=k).tolist()
        found[name] = {"quantiles": dict(zip(map(str, levels), quantiles, strict=True))}
        if with_mean:
            found[name]["mean"] = model.expectation(operator.itemgetter((slice(None), k)))
    return found


def _print_columns(columns: dict[str, dict[str, Any]]) -> None:
    first = next(iter(columns.values()))
    header = ["column", *(["mean"] if "mean" in first else []), *first["quantiles"]]
    print_table(header, [
        [name, *(f"{value:.6g}" for value in (
            *([facts["mean"]] if "mean" in facts else []), *facts["quantiles"].values()
        ))]
        for name, facts in columns.items()
    ])  # fmt: skip


def _answer_text(answer: Answer) -> str:
    return f"{answer.value:.6g}, error {answer.standard_error:.1g} ({answer.method})"


COMMAND = Command(
    "query",
    "probabilities, quantiles and conditionals of a model",
    "Answers one question about a model, in the units of its data. Without a question it prints "
    "the mean and the 5, 50 and 95 % quantiles of every column. Columns are named, or numbered "
    "from 0; spaces or commas separate them.",
    (
        "tgpfast query model.npz --probability x=0:1,y=:2",
        "tgpfast query model.npz --quantile 0.05 0.5 0.95",
        "tgpfast query model.npz --given x=1.5",
        "tgpfast query model.npz --given x=1.5 --cdf y=2 --json",
    ),
    _add_options,
    _run,
    flags={"q": "--quantile", "given": "--given", "lower": "LOW", "upper": "HIGH"},
)
