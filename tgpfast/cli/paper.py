"""``tgpfast paper``: run the paper's experiments and write a report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ..paper import reproduction
from ..paper.experiments import Settings
from .options import Command, add_progress, count_or, shows_progress


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR",
        help="folder of csv, tsv, txt, npy, npz or parquet files, one data set each, as magic.csv; "
        "without it, only the experiments on generated data run")  # fmt: skip
    add("-o", "--output", type=Path, default=Path("tgpfast-report"), metavar="FOLDER",
        help="folder for report.html, report.md, tables and pictures "
        "(default: %(default)s)")  # fmt: skip
    add("--seeds", type=count_or(), default=Settings.n_seeds, metavar="N",
        help="feature seeds for the paper's sets (default: %(default)s)")  # fmt: skip
    add("--features", type=count_or(), default=Settings.n_features, metavar="S",
        help="random features (default: %(default)s, the paper's)")  # fmt: skip
    add("--directions", type=count_or(), default=Settings.n_directions, metavar="V",
        help="random directions (default: %(default)s, the paper's)")  # fmt: skip
    add("--samples", type=count_or(), default=Settings.n_samples, metavar="N",
        help="base draws per distance (default: %(default)s, the paper's)")  # fmt: skip
    add_progress(parser)


def _run(arguments: argparse.Namespace) -> None:
    settings = Settings(
        n_features=arguments.features, n_seeds=arguments.seeds, n_directions=arguments.directions,
        n_samples=arguments.samples,
    )  # fmt: skip
    start = time.perf_counter()
    page = reproduction.reproduce(
        arguments.data, arguments.output, settings, progress=shows_progress(arguments)
    )
    if not arguments.quiet:
        print(f"wrote {page} in {time.perf_counter() - start:.0f} s; open it in a browser")


COMMAND = Command(
    "paper",
    "run the paper's experiments and write a report",
    "Runs the paper's experiments on the data sets in a folder. Writes tables, figures and one "
    "self-contained page, beside the figures that the paper prints. Missing sets are listed with "
    "the place of the original data.",
    ("tgpfast paper --data data -o report",),
    _add_options,
    _run,
    aliases=("reproduce",),
)
