"""``tgpfast merge``: add saved statistics."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ..data import files
from ..statistics.lattice_statistics import LatticeStatistics
from ..statistics.spectrum import Spectrum
from ..statistics.statistics import Statistics
from .options import Command, add_json
from .output import print_json
from .saved_files import load_saved

MERGEABLE = (Statistics, LatticeStatistics, Spectrum)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE",
        help="files that the save() of Statistics or Spectrum wrote, of the same features")
    add("-o", "--output", type=Path, required=True, metavar="SUM", help="file to write (.npz)")
    add_json(parser)


def _run(arguments: argparse.Namespace) -> None:
    output = files.check_writable(arguments.output, suffixes=None)
    paths = [os.path.realpath(path) for path in arguments.files]
    for path, where in zip(arguments.files, paths, strict=True):
        if paths.count(where) > 1:
            raise ValueError(
                f"{os.fspath(path)!r} is given twice, and its rows would count twice; give it once"
            )
    total: Any = None
    for path in arguments.files:  # one by one: two files at most are in memory
        part = load_saved(
            path, MERGEABLE,
            "statistics: save what tgpfast.accumulate or tgpfast.Spectrum.from_data returns",
        )  # fmt: skip
        try:
            total = part if total is None else total + part
        except (TypeError, ValueError) as error:
            fault = f"{os.fspath(path)!r} does not fit the files before it"
            raise ValueError(f"{fault}: {error}") from error
    total.save(output)
    if arguments.json:
        print_json({"n_files": len(arguments.files), "n_rows": total.n_rows, "wrote": output})
    else:
        print(f"wrote {output}: {total.n_rows:,} rows of {len(arguments.files):,} files")


COMMAND = Command(
    "merge",
    "add saved statistics",
    "Adds statistics that were made from different rows with the same features, on one machine or "
    "several. The sum is that of all rows; tgpfast.solve makes a model of it.",
    ("tgpfast merge a.npz b.npz -o sum.npz",),
    _add_options,
    _run,
)
