"""``tgpfast info``: the contents of a saved file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..density.columns.discrete import DiscreteDensity
from ..density.density import Density
from ..density.grouped import GroupedDensity
from ..statistics.lattice_statistics import LatticeStatistics
from ..statistics.spectrum import Spectrum
from ..statistics.statistics import Statistics
from .options import Command, add_json
from .output import flatten, print_json, print_pairs
from .saved_files import load_saved

SHOWN_LABELS = 5  # labels of groups that are printed


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="file that a save() wrote")
    add_json(parser)


def _run(arguments: argparse.Namespace) -> None:
    saved = load_saved(arguments.file)
    for kind, describe in DESCRIPTIONS.items():
        if isinstance(saved, kind):
            facts = describe(saved)
            if arguments.json:
                print_json(facts)
            else:
                print_pairs(dict(flatten(facts)))
            return
    raise ValueError(
        f"{os.fspath(arguments.file)!r} holds {type(saved).__name__}, which tgpfast info cannot "
        "describe; load it with tgpfast.load"
    )


def _describe_model(model: Density) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "kind": "model", "method": model.method, "dimension": model.dimension,
        "columns": model.table.columns,
    }  # fmt: skip
    if model.method != "base":
        facts.update(n_features=model.features.n_features, gamma=model.features.bandwidth)
    facts.update({k: v for k, v in model.settings.items() if k not in facts})
    facts.update(seed=str(model.settings.get("seed")), diagnostics=model.diagnostics)
    known = model.integrator.known_normalizer  # do not compute it only to print it
    if known is not None:
        facts["log normalizer"] = known
    return facts


def _describe_lattice(stats: LatticeStatistics) -> dict[str, Any]:
    return {
        "kind": "statistics of a lattice", "n_rows": stats.n_rows, "sum of weights": stats.n,
        "dimension": stats.features.dimension, "n_features": stats.features.n_features,
        "n_modes": list(stats.features.n_modes), "kernel": stats.features.kernel,
        "gamma": stats.features.bandwidth, "walls": list(stats.features.walls),
        "noise_levels": stats.noise_levels.tolist(), "provenance": stats.provenance,
    }  # fmt: skip


def _describe_statistics(stats: Statistics) -> dict[str, Any]:
    mean = stats.origin + stats.sum_x / (stats.n if stats.n else 1.0)
    return {
        "kind": "statistics", "n_rows": stats.n_rows, "sum of weights": stats.n,
        "dimension": stats.features.dimension, "n_features": stats.features.n_features,
        "gamma": stats.features.bandwidth, "seed": str(stats.features.seed),
        "fingerprint": stats.features.fingerprint, "mean": mean.tolist(),
        "noise_levels": stats.noise_levels.tolist(), "gram_phi": stats.gram_phi is not None,
        "provenance": stats.provenance,
    }  # fmt: skip


def _describe_spectrum(spectrum: Spectrum) -> dict[str, Any]:
    return {
        "kind": "spectrum", "n_rows": spectrum.n_rows, "sum of weights": spectrum.n,
        "dimension": spectrum.dimension, "bandlimit": spectrum.bandlimit.tolist(),
        "box from": spectrum.low.tolist(), "box to": spectrum.high.tolist(),
        "grid": "x".join(map(str, spectrum.grid.shape)), "tolerance": spectrum.tolerance,
        "mean": spectrum.moments().mean.tolist(),
    }  # fmt: skip


def _describe_groups(groups: GroupedDensity) -> dict[str, Any]:
    labels = list(map(str, groups.labels))
    facts = {
        "kind": "densities of groups", "n_groups": len(groups), "dimension": groups.dimension,
        "columns": groups.table.columns,
        "groups": ", ".join(labels[:SHOWN_LABELS]) + (", ..." * (len(labels) > SHOWN_LABELS)),
        "rows of a group": f"{groups.n_rows.min():,} to {groups.n_rows.max():,}",
        "condition at most": float(groups.condition.max()),
    }  # fmt: skip
    return {**facts, **{k: v for k, v in groups.settings.items() if k not in facts}}


DESCRIPTIONS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Density: _describe_model, DiscreteDensity: _describe_model, Statistics: _describe_statistics,
    LatticeStatistics: _describe_lattice, Spectrum: _describe_spectrum,
    GroupedDensity: _describe_groups,
}  # fmt: skip

COMMAND = Command(
    "info",
    "contents of a saved model or statistics file",
    "Prints the settings of a saved model or GroupedDensity, or the facts of saved Statistics or "
    "of a saved Spectrum.",
    ("tgpfast info model.npz", "tgpfast info model.npz --json"),
    _add_options,
    _run,
)
