"""``tgpfast fit``: learn a density from files of rows."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import kernels
from .._version import __version__
from ..data import files
from ..data.blocks import as_blocks
from ..data.checkpoint import Checkpoint
from ..data.missing_rows import MISSING_ROWS
from ..density.density import Density
from ..density.describing import shorten_base
from ..features.random import name_kernels
from ..features.spectral_density import KERNELS
from ..kernels.thread_choice import Threads
from ..pipeline import fitting
from ..pipeline.settings import BASES, FEATURE_KINDS, FREQUENCIES, PAPER, SCALES, Settings
from ..selection.effort import EFFORTS
from ..solvers.solver import METHODS
from ..statistics.pass_options import ENGINES, PRECISIONS
from .data_source import STANDARD_INPUT, add_data, open_data
from .options import (
    Command,
    add_json,
    add_progress,
    column_number,
    column_range,
    column_steps,
    count_or,
    number_or,
    shows_progress,
)
from .output import print_json, print_pairs

FIT_OPTIONS = {  # name on the command line -> parameter of `fit`
    "method": "method", "features": "n_features", "lam": "lam", "gamma": "gamma", "eta": "eta",
    "scale": "scale", "base": "base", "frequency_covariance": "frequency_covariance",
    "sigma_max": "sigma_max", "noise_levels": "n_noise_levels", "seed": "seed",
    "feature_kind": "features", "kernel": "kernel", "support": "support", "period": "period",
    "threads": "n_threads", "engine": "engine", "backend": "backend", "precision": "precision",
    "effort": "effort", "interactions": "interactions", "missing": "missing",
    "discrete": "discrete",
}  # fmt: skip
NO_DEFAULT = {"--support": "no walls", "--period": "none", "--discrete": "none"}
FIT_DEFAULTS = {name: p.default for name, p in inspect.signature(fitting.fit).parameters.items()}


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_data(parser)
    add("-o", "--output", type=Path, required=True, metavar="MODEL", help="model to write (.npz)")

    def option(flag: str, text: str, **kind: Any) -> None:
        """An option of `fit`; its help ends with the default of `fit`."""
        default = FIT_DEFAULTS[FIT_OPTIONS[flag.removeprefix("--").replace("-", "_")]]
        shown = NO_DEFAULT.get(flag, "all") if default is None else default
        add(flag, help=f"{text} (default: {shown})", **kind)

    number, count = number_or, count_or
    option("--method", "learning algorithm; auto compares fd, fvpd and map",
           choices=("auto", *METHODS))  # fmt: skip
    option("--features", "number of random features, or auto", type=count("auto"), metavar="S")
    option("--feature-kind", "lattice (one to three columns), random, or auto",
           choices=FEATURE_KINDS)  # fmt: skip
    option("--kernel", "kernel of the Gaussian process; auto compares some of them",
           choices=("auto", *KERNELS))  # fmt: skip
    option("--support", "walls of columns, such as price=0: share=0:1",
           type=column_range, nargs="+", metavar="COLUMN=LOW:HIGH")  # fmt: skip
    option("--period", "periods of columns, such as hour=24",
           type=column_number, nargs="+", metavar="COLUMN=P")  # fmt: skip
    option("--lam", "precision of the prior, or auto; a larger value gives a smoother density",
           type=number("auto"), metavar="L")  # fmt: skip
    option("--gamma", "bandwidth in scaled coordinates: a number, scott or auto",
           type=number("auto", "scott"), metavar="G")  # fmt: skip
    option("--eta", "tempering of fvpd: a number, 1/gamma2 or auto",
           type=number("auto", "1/gamma2"), metavar="E")  # fmt: skip
    option("--sigma-max", "highest noise of ncfd in scaled coordinates: a number, or paper",
           type=number("paper"), metavar="S")  # fmt: skip
    option("--noise-levels", "number of noise levels of ncfd", type=count(), metavar="H")
    option("--scale", "how columns are scaled first; gaussianize bends each one to a Gaussian",
           choices=SCALES)  # fmt: skip
    option("--base", "the base density", choices=BASES)
    option("--frequency-covariance", "covariance of the features' frequencies",
           choices=FREQUENCIES)  # fmt: skip
    option("--seed", "seed of the features", type=count(least=0), metavar="N")
    option("--threads", "number of threads", type=count(), metavar="N")
    option("--engine", "how sums over rows are computed: direct, spectral (one to three columns), "
           "or auto, the faster of them", choices=ENGINES)  # fmt: skip
    option("--backend", "compiled kernels to use", choices=("auto", *kernels.BACKENDS))
    option("--precision", "precision of the sums over rows", choices=PRECISIONS)
    option("--effort", "how much work the choice of open settings may take", choices=EFFORTS)
    option("--interactions", "columns of each frequency, or auto", type=count("auto"), metavar="N")
    option("--missing", "what to do with rows that lack values", choices=MISSING_ROWS)
    option("--discrete", "columns of whole numbers, or COLUMN=STEP for multiples of a step",
           type=column_steps, nargs="+", metavar="COLUMN")  # fmt: skip
    add("--paper", action="store_true", help="use the settings of the paper's experiments as "
        "defaults; other options override them")  # fmt: skip
    add("--checkpoint", type=Path, metavar="FILE", help="save sums over rows to this file every "
        "half minute; the same command goes on from there after a stop, to the same model; deleted "
        "at the end")  # fmt: skip
    add_json(parser)
    add_progress(parser)


def _run(arguments: argparse.Namespace) -> None:
    output = files.check_writable(arguments.output, suffixes=None)
    if output.suffix.lower() in files.WRITABLE:
        raise ValueError(
            f"{str(output)!r} has the extension of data, and a model would be written there; give "
            "it a name that ends in .npz"
        )
    if arguments.checkpoint is not None and STANDARD_INPUT in arguments.data:
        raise ValueError(
            "--checkpoint needs data that can be read again, and standard input cannot; save the "
            "rows to a file first"
        )
    options: dict[str, Any] = dict(PAPER) if arguments.paper else {}
    given = {name: getattr(arguments, key) for key, name in FIT_OPTIONS.items()}
    if arguments.discrete is not None:
        given["discrete"] = list(itertools.chain.from_iterable(arguments.discrete))
    options.update({
        name: _map_columns(name, value) if name in ("support", "period", "discrete") else value
        for name, value in given.items() if value is not None
    })  # fmt: skip
    start = time.perf_counter()
    with open_data(arguments.data) as data, _open_checkpoint(arguments, data, options) as saved:
        if arguments.columns is not None:
            data = files.select_columns(data, arguments.columns)
        if saved is not None:
            asked = Settings.from_options(**options)
            data = as_blocks(data, drop_missing=asked.missing == "drop", jitter=asked.jitter)
            data.checkpoint = saved
        model = fitting.fit(data, **options, progress=shows_progress(arguments))
        _ = model.log_normalizer  # saved with the model, so that `tgpfast score` is quick
        seconds = time.perf_counter() - start
        model.save(output)
    if arguments.json:
        print_json(_list_facts(model, seconds, output))
    elif not arguments.quiet:
        _print_report(model, seconds, output)


def _map_columns(option: str, pairs: Sequence[tuple[str | int, Any]]) -> dict[Any, Any]:
    """Column -> value; ValueError where a column is given twice."""
    columns = [column for column, _ in pairs]
    for column in columns:
        if columns.count(column) > 1:
            raise ValueError(f"--{option} {column}: the column is given twice; give it once")
    return dict(pairs)


@contextlib.contextmanager
def _open_checkpoint(
    arguments: argparse.Namespace, data: Any, options: dict[str, Any]
) -> Iterator[Checkpoint | None]:
    """Give the checkpoint that was asked for; its file is deleted if the block succeeds."""
    if arguments.checkpoint is None:
        yield None
        return
    path = files.check_writable(arguments.checkpoint, suffixes=None)
    paths = data.paths if isinstance(data, files.FileSet) else [data]
    facts = [(file.name, file.stat()) for file in paths]
    threads = Threads(options.get("backend", "auto"), options.get("n_threads"))
    backend, n_threads = threads.resolve()
    checkpoint = Checkpoint(path, {
        "data files": [(name, stat.st_size, stat.st_mtime_ns) for name, stat in facts],
        "columns": arguments.columns, "version of tgpfast": __version__,
        "version of numpy": np.__version__, "backend": backend.NAME,
        "number of threads": n_threads, **options,
    })  # fmt: skip
    if checkpoint.n_rows and not arguments.quiet:
        print(
            f"tgpfast: going on after row {checkpoint.n_rows:,} of a pass, from {str(path)!r}",
            file=sys.stderr,
        )
    yield checkpoint
    checkpoint.remove()


def _list_facts(model: Density, seconds: float, output: Path) -> dict[str, Any]:
    """The report for machines; tgpfast info prints every setting."""
    settings = model.settings
    return {
        "n_rows": settings["n_rows"], "dimension": model.dimension,
        "columns": model.table.columns, "method": model.method, "base": settings["base"],
        "n_features": None if model.method == "base" else model.features.n_features,
        "gamma": None if model.method == "base" else model.features.bandwidth,
        "lam": settings["lam"], "n_compared": len(model.selection or ()), "seconds": seconds,
        "log_normalizer": model.log_normalizer, "wrote": output,
    }  # fmt: skip


def _print_report(model: Density, seconds: float, output: Path) -> None:
    settings, names = model.settings, model.table.columns
    tilt = {
        "features": f"{model.features.n_features:,} ({settings['features']}, "
        f"{name_kernels(settings['kernel'])})",
        "gamma": f"{model.features.bandwidth:.4g} ({settings['gamma_rule']})",
        "lambda": f"{settings['lam']:.4g}" + (" (auto)" if "lam" in settings["auto"] else ""),
    } if model.method != "base" else {}  # fmt: skip
    print_pairs({
        "rows": f"{settings['n_rows']:,}",
        "columns": f"{model.dimension}" + (f" ({', '.join(names)})" if names else ""),
        "method": model.method if tilt else "base (no method improved on the base alone)",
        "base": shorten_base(settings.get("base_facts", settings["base"]), model.dimension),
        **tilt,
        "compared": f"{len(model.selection):,} settings" if model.selection else "no settings",
        "seconds": f"{seconds:.2f}",
        "log normalizer": model.log_normalizer,
        "wrote": output,
    })  # fmt: skip


COMMAND = Command(
    "fit",
    "learn a density from files of rows",
    "Learns the density of the rows of DATA, writes it to MODEL and prints a short report. The "
    "data are read several times; csv, tsv, txt and npy files are never held in memory as a whole. "
    "Text files may begin with a line of names; their delimiter is detected.",
    (
        "tgpfast fit data.csv -o model.npz",
        "tgpfast fit data.csv -o model.npz --method map --columns x,y",
        "tgpfast fit 'part-*.csv' -o model.npz --method fd --json",
    ),
    _add_options,
    _run,
    flags={name: "--" + option.replace("_", "-") for option, name in FIT_OPTIONS.items()},
)
