"""The command ``tgpfast``: a thin adapter.

A command is one function that adds its options (``_add_...``), one that runs it, and one entry in
COMMANDS. Messages go to standard error, results to standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from . import kernels
from ._version import __version__
from .bases.gaussian import GaussianBase
from .data import files
from .data.storage import load
from .density.density import Density
from .density.grouped import GroupedDensity
from .density.normalizer import DRAWS, Normalizer
from .evaluation.evaluation import evaluate
from .evaluation.kde import ExactKDE
from .paper.datasets import two_moons
from .pipeline.fitting import BASES, FREQUENCIES, PAPER, SCALES, fit
from .pipeline.warming import warmup
from .solvers.solver import METHODS
from .statistics.accumulation import ENGINES, PRECISIONS
from .statistics.calibrate import calibrate
from .statistics.costs import costs_source, delete_costs, load_costs, save_costs
from .statistics.spectrum import Spectrum
from .statistics.statistics import Statistics
from .validation import Array

LOWEST = 5  # rows that `score` shows
HELD_OUT = 5  # `demo` holds out one row in so many
PICTURES = (".png", ".pdf", ".svg")
DEMO_GAMMA = 1.25  # times Scott's rule
DEMO_LAM = 10.0
DEMO_DRAWS = 50_000  # from each model, to measure its distances


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, else a one-line message on standard error and 1.

    2 where the command line itself is wrong, 130 where it is interrupted.
    """
    with _usable_streams():
        try:
            status = _run(argv)
            sys.stdout.flush()
            return status
        except BrokenPipeError:  # the reader of our output has seen enough
            _drop_output()
            return 0
        except OSError as error:  # standard output on a full disk
            _drop_output()
            print(f"tgpfast: standard output: {_plain(error)}", file=sys.stderr)
            return 1
        except SystemExit:  # of the parser, which has printed
            try:
                sys.stdout.flush()
            except OSError:
                _drop_output()
            raise


def _run(argv: Sequence[str] | None) -> int:
    arguments = _parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = _one_line_warnings()
        try:
            arguments.run(arguments)
        except BrokenPipeError:
            raise
        except (ValueError, TypeError, ImportError, OSError, MemoryError) as error:
            print(f"tgpfast: {_plain(error)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("tgpfast: interrupted", file=sys.stderr)
            return 130
    return 0


@contextlib.contextmanager
def _usable_streams() -> Iterator[None]:
    """Standard output and error that take any text: letters that the terminal's encoding lacks are
    written as escapes, and a stream that is closed (None) discards what it is given."""
    with contextlib.ExitStack() as stack:
        redirects = {"stdout": contextlib.redirect_stdout, "stderr": contextlib.redirect_stderr}
        for name, redirect in redirects.items():
            stream = getattr(sys, name)
            if stream is None:
                sink = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(redirect(sink))
            elif hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        yield


def _drop_output() -> None:
    """Send standard output nowhere, so that Python's last flush on exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):  # a stream that has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(error: BaseException) -> str:
    """An exception in one line, without error numbers."""
    if isinstance(error, OSError) and error.strerror:
        named = error.filename is not None
        return f"{os.fspath(error.filename)!r}: {error.strerror}" if named else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _one_line_warnings() -> Callable[..., None]:
    seen = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            seen.add(text)
            print(f"tgpfast: warning: {text}", file=sys.stderr)

    return show


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tgpfast", description="Learn nonparametric densities on a CPU.",
        epilog="Start with: tgpfast demo",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"tgpfast {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (help_line, description, example, add_options, run) in COMMANDS.items():
        command = commands.add_parser(
            name, help=help_line, description=description, epilog=f"example: {example}"
        )
        add_options(command)
        command.set_defaults(run=run)
    return parser


# -- kinds of values -----------------------------------------------------------------------------


def _expected(text: str, what: str, words: Sequence[str]) -> str:
    return f"{text!r}: expected {' or '.join([what, *words])}"


def _number_or(*words: str) -> Callable[[str], float | str]:
    """Parses one of the words, or a number."""

    def parse(text: str) -> float | str:
        if text in words:
            return text
        try:
            return float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(_expected(text, "a number", words)) from None

    return parse


def _count_or(*words: str) -> Callable[[str], int | str]:
    """Parses one of the words, or a whole number of at least 1."""

    def parse(text: str) -> int | str:
        if text in words:
            return text
        try:
            value = int(text)
        except ValueError:
            value = 0
        if value < 1:
            raise argparse.ArgumentTypeError(_expected(text, "a whole number of at least 1", words))
        return value

    return parse


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 0")
    return value


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: expected names or indices, as in x,y or 0,2")
    return names


def _add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns", type=_names, metavar="NAMES",
        help="columns to use, names or indices from 0, separated by commas (default: all)",
    )  # fmt: skip


def _add_progress(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings")
    parser.add_argument(
        "--progress", action="store_true",
        help="show a bar on standard error even where that is not a terminal",
    )  # fmt: skip


def _shows_progress(arguments: argparse.Namespace) -> bool:
    return not arguments.quiet and (arguments.progress or sys.stderr.isatty())


# -- fit -----------------------------------------------------------------------------------------

FIT_OPTIONS = {  # name in the command line's result -> name in `fit`
    "method": "method", "features": "n_features", "lam": "lam", "gamma": "gamma", "eta": "eta",
    "scale": "scale", "base": "base", "frequency_covariance": "frequency_covariance",
    "sigma_max": "sigma_max", "noise_levels": "n_noise_levels", "seed": "seed",
    "threads": "n_threads", "engine": "engine", "backend": "backend", "precision": "precision",
}  # fmt: skip
FIT_DEFAULTS = {name: p.default for name, p in inspect.signature(fit).parameters.items()}


def _add_fit(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="csv, tsv, txt, npy, npz or parquet file of rows")
    add("-o", "--output", type=Path, required=True, metavar="MODEL", help="model to write (.npz)")
    _add_columns(parser)

    def option(flag: str, text: str, **kind: Any) -> None:
        """An option of `fit`; its help ends with the default that `fit` has."""
        default = FIT_DEFAULTS[FIT_OPTIONS[flag.removeprefix("--").replace("-", "_")]]
        add(flag, help=f"{text} (default: {'all' if default is None else default})", **kind)

    number, count = _number_or, _count_or
    option("--method", "learning algorithm; auto compares fd, fvpd and map",
           choices=("auto", *METHODS))  # fmt: skip
    option("--features", "number of random features, or auto", type=count("auto"), metavar="S")
    option("--lam", "precision of the prior, or auto: more is smoother", type=number("auto"),
           metavar="L")  # fmt: skip
    option("--gamma", "bandwidth in scaled coordinates: a number, scott or auto",
           type=number("auto", "scott"), metavar="G")  # fmt: skip
    option("--eta", "tempering of fvpd: a number, 1/gamma2 or auto",
           type=number("auto", "1/gamma2"), metavar="E")  # fmt: skip
    option("--sigma-max", "highest noise of ncfd in scaled coordinates: a number, or paper",
           type=number("paper"), metavar="S")  # fmt: skip
    option("--noise-levels", "number of noise levels of ncfd", type=count(), metavar="H")
    option("--scale", "how columns are scaled first", choices=SCALES)
    option("--base", "the density that is tilted", choices=BASES)
    option("--frequency-covariance", "covariance of the features' frequencies",
           choices=FREQUENCIES)  # fmt: skip
    option("--seed", "seed of the features", type=_seed, metavar="N")
    option("--threads", "number of threads", type=count(), metavar="N")
    option("--engine", "how sums over rows are made: direct, spectral (one to three columns), or "
           "auto, the faster of them", choices=ENGINES)  # fmt: skip
    option("--backend", "compiled loops to use", choices=("auto", *kernels.BACKENDS))
    option("--precision", "precision of the sums over rows", choices=PRECISIONS)
    add("--paper", action="store_true", help="use the settings of the paper's experiments as "
        "defaults; other options override them")  # fmt: skip
    _add_progress(parser)


def _fit(arguments: argparse.Namespace) -> None:
    output = files.check_writable(arguments.output, suffixes=None)
    options: dict[str, Any] = dict(PAPER) if arguments.paper else {}
    given = {name: getattr(arguments, key) for key, name in FIT_OPTIONS.items()}
    options.update({name: value for name, value in given.items() if value is not None})
    data = arguments.data
    if arguments.columns is not None:
        data = files.Columns(data, arguments.columns)
    start = time.perf_counter()
    model = fit(data, **options, progress=_shows_progress(arguments))
    normalizer = model.log_normalizer  # kept in the file, so that scores need not wait for it
    seconds = time.perf_counter() - start
    model.save(output)
    if arguments.quiet:
        return
    settings, names = model.settings, model.table.columns
    auto = settings["auto"]
    tilt = {
        "features": f"{model.features.n_features:,}",
        "gamma": f"{model.features.bandwidth:.4g} ({settings['gamma_rule']})",
        "lambda": f"{settings['lam']:.4g}" + (" (auto)" if "lam" in auto else ""),
    } if model.method != "base" else {}  # fmt: skip
    _print_pairs({
        "rows": f"{settings['n_rows']:,}",
        "columns": f"{model.dimension}" + (f" ({', '.join(names)})" if names else ""),
        "method": model.method if tilt else "base (nothing is tilted: no tilt gained on it)",
        "base": settings.get("base_facts", settings["base"]),
        **tilt,
        "compared": f"{len(model.selection):,} settings" if model.selection else "no settings",
        "seconds": f"{seconds:.2f}",
        "log normaliser": _normalizer_text(normalizer),
        "wrote": output,
    })  # fmt: skip


def _normalizer_text(normalizer: Normalizer) -> str:
    return (
        f"{normalizer.value:.6g}, error {normalizer.standard_error:.1g}, "
        f"{normalizer.effective_sample_size:,.0f} effective samples of {DRAWS:,} "
        f"({normalizer.method})"
    )


# -- score, sample, info -------------------------------------------------------------------------


def _add_score(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="file written by tgpfast fit")
    parser.add_argument("data", type=Path, metavar="DATA", help="file of rows, as for fit; named "
                        "columns are found by the model's names")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="SCORES", help="write every row's log "
                        "density to this csv, tsv, txt or npy file")  # fmt: skip
    _add_columns(parser)


def _score(arguments: argparse.Namespace) -> None:
    model = _load_model(arguments.model)
    if arguments.output is not None:
        files.check_writable(arguments.output)
    data = _columns_for(model, arguments.data, arguments.columns)
    # columns are settled: those of a file without names, or chosen by the user, go by position
    model.table = replace(model.table, columns=None)
    values = np.asarray(model.log_density(data))
    if arguments.output is not None:
        files.write_rows(arguments.output, values, ["log_density"])
        print(f"wrote {arguments.output}: {len(values):,} rows")
        return
    rows = f"{len(values):,} row{'s' if len(values) > 1 else ''}"
    if len(values) > 1 and np.isfinite(values).all():  # else no error is known
        rows = f"standard error {values.std(ddof=1) / np.sqrt(len(values)):.2g}, {rows}"
    print(f"mean log density  {values.mean():.6g}, {rows}\n")
    lowest = np.argsort(values, kind="stable")[:LOWEST]
    _print_table(
        ["lowest rows (from 0)", "log density"],
        [[f"{row:,}", f"{values[row]:.6g}"] for row in lowest],
    )


def _columns_for(model: Density, path: Path, asked: list[str] | None) -> Any:
    """The file, or those of its columns that the user names or the model knows by name."""
    (have, width), names = files.columns_of(path), model.table.columns
    chosen = asked
    if asked is None and names is not None and have is not None and have != names:
        missing = [name for name in names if name not in have]
        if missing:
            raise ValueError(
                f"{path.name} lacks the model's columns {', '.join(missing)}; it has "
                f"{', '.join(have)}: rename them, or choose by --columns"
            )
        chosen = names
    found = width if chosen is None else len(chosen)
    if found != model.dimension:
        source = "--columns names" if asked else f"{path.name} has"
        known = f" ({', '.join(names)})" if names else ""
        raise ValueError(
            f"{source} {found} columns, expected the model's {model.dimension}{known}: choose "
            "them by --columns"
        )
    return path if chosen is None else files.Columns(path, chosen)


def _add_sample(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="file written by tgpfast fit")
    parser.add_argument("-n", "--rows", type=_count_or(), default=1000, metavar="N",
                        help="rows to draw (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="ROWS",
                        help="csv, tsv, txt or npy file to write")  # fmt: skip
    parser.add_argument("--seed", type=_seed, default=0, metavar="N",
                        help="seed of the draws (default: %(default)s)")  # fmt: skip
    _add_progress(parser)


def _sample(arguments: argparse.Namespace) -> None:
    model = _load_model(arguments.model)
    files.check_writable(arguments.output)
    columns = model.table.columns
    model.table = replace(model.table, kind="array")
    show = _shows_progress(arguments)
    rows = model.sample(arguments.rows, seed=arguments.seed, progress=show)
    files.write_rows(arguments.output, rows, columns)
    if not arguments.quiet:
        assert model.sampling is not None
        how = f"drawn by {model.sampling.method}"
        if model.sampling.acceptance_rate is not None:
            how += f", acceptance rate {model.sampling.acceptance_rate:.2f}"
        print(f"wrote {arguments.output}: {len(rows):,} rows, {model.dimension} columns, {how}")


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="what a save() wrote")


def _info(arguments: argparse.Namespace) -> None:
    held = load(_existing(arguments.file))
    for kind, facts_of in FACTS.items():
        if isinstance(held, kind):
            _print_pairs(dict(_flat(facts_of(held))))
            return
    raise ValueError(f"{os.fspath(arguments.file)!r} holds {type(held).__name__}, not known here")


def _model_facts(model: Density) -> dict[str, Any]:
    names, known = model.table.columns, model.integrator.known_normalizer
    facts: dict[str, Any] = {
        "kind": "model", "method": model.method, "dimension": model.dimension,
        "columns": ", ".join(names) if names else "not named",
    }  # fmt: skip
    if model.method != "base":
        facts.update(n_features=model.features.n_features, gamma=model.features.bandwidth)
    facts.update({k: v for k, v in model.settings.items() if k not in facts})
    facts.update(seed=str(model.features.seed), diagnostics=model.diagnostics)
    if known is not None:
        facts["log normaliser"] = _normalizer_text(known)
    return facts


def _statistics_facts(stats: Statistics) -> dict[str, Any]:
    mean = stats.origin + stats.sum_x / (stats.n if stats.n else 1.0)
    return {
        "kind": "statistics", "n_rows": stats.n_rows, "sum of weights": stats.n,
        "dimension": stats.features.dimension, "n_features": stats.features.n_features,
        "gamma": stats.features.bandwidth, "seed": str(stats.features.seed),
        "fingerprint": stats.features.fingerprint, "mean": mean.tolist(),
        "noise_levels": stats.noise_levels.tolist(), "gram_phi": stats.gram_phi is not None,
        "provenance": stats.provenance,
    }  # fmt: skip


def _spectrum_facts(spectrum: Spectrum) -> dict[str, Any]:
    return {
        "kind": "spectrum", "n_rows": spectrum.n_rows, "sum of weights": spectrum.n,
        "dimension": spectrum.dimension, "bandlimit": spectrum.bandlimit.tolist(),
        "box from": spectrum.low.tolist(), "box to": spectrum.high.tolist(),
        "grid": "x".join(map(str, spectrum.grid.shape)), "tolerance": spectrum.tolerance,
        "mean": spectrum.moments().mean.tolist(),
    }  # fmt: skip


def _groups_facts(many: GroupedDensity) -> dict[str, Any]:
    names, labels = many.table.columns, list(map(str, many.labels))
    facts = {
        "kind": "densities of groups", "n_groups": len(many), "dimension": many.dimension,
        "columns": ", ".join(names) if names else "not named",
        "groups": ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else ""),
        "rows of a group": f"{many.n_rows.min():,} to {many.n_rows.max():,}",
        "condition at most": float(many.condition.max()),
    }  # fmt: skip
    return {**facts, **{k: v for k, v in many.settings.items() if k not in facts}}


FACTS: dict[type, Callable[[Any], dict[str, Any]]] = {  # of what a file may hold
    Density: _model_facts, Statistics: _statistics_facts, Spectrum: _spectrum_facts,
    GroupedDensity: _groups_facts,
}  # fmt: skip


def _existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {os.fspath(path)!r}")
    if path.is_dir():
        raise ValueError(f"{os.fspath(path)!r} is a folder; give the path of a file in it")
    return path


def _load_model(path: Path) -> Density:
    held = load(_existing(path))
    if not isinstance(held, Density):
        raise ValueError(
            f"{os.fspath(path)!r} holds {type(held).__name__}, expected a model: a file written "
            "by tgpfast fit or model.save"
        )
    return held


# -- tables --------------------------------------------------------------------------------------


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested mappings as one, with names joined by points."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _print_pairs(pairs: Mapping[str, Any]) -> None:
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        print(f"{name:<{width}}  {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(v) for v in value) or "none"
    return "none" if value is None else str(value)


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    """Columns aligned: the first to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True)]
        print("   ".join(cells))


# -- demo ----------------------------------------------------------------------------------------


def _add_demo(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rows", type=_count_or(), default=20_000, metavar="N",
        help="rows to draw (default: %(default)s)")  # fmt: skip
    add("--features", type=_count_or(), default=300, metavar="S",
        help="number of random features (default: %(default)s)")  # fmt: skip
    add("--seed", type=_seed, default=0, metavar="N",
        help="seed of data and features (default: %(default)s)")  # fmt: skip
    add("-o", "--output", type=Path, default=Path("tgpfast-demo.png"), metavar="PICTURE",
        help="png, pdf or svg file to write (default: %(default)s)")  # fmt: skip


def _demo(arguments: argparse.Namespace) -> None:
    if arguments.rows < 100:
        raise ValueError(f"--rows {arguments.rows}: at least 100 are needed")
    files.check_writable(arguments.output, suffixes=PICTURES)
    x = two_moons(arguments.rows, seed=arguments.seed)
    n_held = len(x) // HELD_OUT
    held, rows = x[:n_held], x[n_held:]
    gamma = DEMO_GAMMA * len(rows) ** (-1.0 / 6.0)  # Scott's rule for standardised columns
    print(
        f"two moons: {len(rows):,} rows to learn from, {n_held:,} held out; "
        f"{arguments.features} features, lambda {DEMO_LAM:g}, gamma {gamma:.3f}\n"
    )
    table, models = [], {}
    for name in ("base", *METHODS, "exact KDE"):
        _note(f"{name} ...")
        start = time.perf_counter()
        model: Any
        if name == "base":
            model = GaussianBase.from_data(rows)
        elif name == "exact KDE":
            model = ExactKDE(rows)
        else:
            model = models[name.upper()] = fit(
                rows, method=name, n_features=arguments.features, lam=DEMO_LAM, gamma=gamma,
                eta="1/gamma2", base="empirical", frequency_covariance="data",
                seed=arguments.seed,
            )  # fmt: skip
        seconds = time.perf_counter() - start
        table.append([name, f"{seconds:.2f}", *_quality(model, held)])
    _note("")
    _print_table(
        ["method", "seconds", "effective", "held-out log-lik.", "KS x100", "WD x100"], table
    )
    print(
        f"\nseconds: to learn; effective: how many of {DRAWS:,} base draws carry the density\n"
        "log-lik.: mean log density of the held-out rows, higher is better\n"
        "KS, WD: median distance to them along 100 directions of standardized columns, lower is "
        "better"
    )
    _draw(models, x, arguments)


def _quality(model: Any, held: Array) -> list[str]:
    effective = "-"
    if isinstance(model, Density):
        effective = f"{model.log_normalizer.effective_sample_size:,.0f}"
    score = float(np.mean(model.log_density(held)))
    found = evaluate(model, held, n_directions=100, n_samples=DEMO_DRAWS, n_scored=0)
    ks, wd = found.median
    return [effective, f"{score:.3f}", f"{100 * ks:.2f}", f"{100 * wd:.2f}"]


def _draw(models: dict[str, Any], x: Array, arguments: argparse.Namespace) -> None:
    from . import plot

    _note("drawing ...")
    title = f"two moons: {len(x):,} rows, {arguments.features} features"
    try:
        figure = plot.density_figure(models, x, seed=arguments.seed, title=title)
    except ImportError as error:
        _note("")
        print(f"\nno picture: {error}")
        return
    plot.save(figure, arguments.output)
    _note("")
    print(f"\nwrote {arguments.output}")


def _note(text: str) -> None:
    """A line on a terminal that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r{text:<40}\r", end="", file=sys.stderr, flush=True)


# -- reproduce -----------------------------------------------------------------------------------


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR",
        help="folder of csv, tsv, txt, npy, npz or parquet files, one data set each, as magic.csv; "
        "without it only what needs no data is run")  # fmt: skip
    add("-o", "--output", type=Path, default=Path("tgpfast-report"), metavar="FOLDER",
        help="folder for report.html, report.md, tables and pictures "
        "(default: %(default)s)")  # fmt: skip
    add("--seeds", type=_count_or(), default=5, metavar="N",
        help="feature seeds for the paper's sets (default: %(default)s)")  # fmt: skip
    add("--features", type=_count_or(), default=1000, metavar="S",
        help="random features (default: %(default)s, the paper's)")  # fmt: skip
    add("--directions", type=_count_or(), default=500, metavar="V",
        help="random directions (default: %(default)s, the paper's)")  # fmt: skip
    add("--samples", type=_count_or(), default=250_000, metavar="N",
        help="base draws behind every distance (default: %(default)s, the paper's)")  # fmt: skip
    _add_progress(parser)


def _reproduce(arguments: argparse.Namespace) -> None:
    from .paper.reproduction import Settings, reproduce

    settings = Settings(
        n_features=arguments.features, n_seeds=arguments.seeds, n_directions=arguments.directions,
        n_samples=arguments.samples,
    )  # fmt: skip
    start = time.perf_counter()
    page = reproduce(
        arguments.data, arguments.output, settings, progress=_shows_progress(arguments)
    )
    if not arguments.quiet:
        print(f"wrote {page} in {time.perf_counter() - start:.0f} s; open it in a browser")


# -- warmup --------------------------------------------------------------------------------------


def _add_warmup(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(kernels.BACKENDS)
    parser.add_argument("--backend", default="auto", help=f"kernels to compile: auto, {names} "
                        "(default: %(default)s)")  # fmt: skip


def _warmup(arguments: argparse.Namespace) -> None:
    ready = warmup(arguments.backend)
    print(f"ready: {ready}")
    if arguments.backend == "auto":  # why not one that it would have preferred
        for name, reason in kernels.missing().items():
            if kernels.BACKENDS.index(name) < kernels.BACKENDS.index(ready):
                print(f"{name} is not used: {reason}", file=sys.stderr)


# -- calibrate -----------------------------------------------------------------------------------


def _add_calibrate(parser: argparse.ArgumentParser) -> None:
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--show", action="store_true", help="print the present constants, and "
                         "where they come from; measure nothing")  # fmt: skip
    instead.add_argument("--reset", action="store_true", help="delete the measured constants, so "
                         "that the shipped ones serve again")  # fmt: skip


def _calibrate(arguments: argparse.Namespace) -> None:
    if arguments.reset:
        gone = delete_costs()
        print(f"deleted {gone}" if gone else "nothing to delete: the shipped constants are in use")
        return
    source = costs_source()
    old = asdict(load_costs())
    origin = f"measured, {source}" if source else "shipped with tgpfast"
    if arguments.show:
        _print_table(["constant", "seconds"], [[name, f"{v:.3g}"] for name, v in old.items()])
        print(f"\n{origin}")
        return
    new = calibrate(lambda line: print(f"measuring {line} ...", file=sys.stderr, flush=True))
    _print_table(
        ["constant", "old", "new"],
        [[name, f"{old[name]:.3g}", f"{value:.3g}"] for name, value in asdict(new).items()],
    )
    print(f"\nseconds; old: {origin}")
    print(f"wrote {save_costs(new)}")


# name -> what it does in a line, in full, an example, its options, its function
COMMANDS: dict[str, tuple[str, str, str, Callable[..., None], Callable[..., None]]] = {
    "fit": (
        "learn a density from a file of rows",
        "Learns the density of the rows of DATA, writes it to MODEL and prints a short report. "
        "The file is read a few times; csv, tsv, txt and npy files are never held in memory whole. "
        "Text files may begin with a line of names; their delimiter is found out.",
        "tgpfast fit data.csv -o model.npz --method fvpd --columns x,y",
        _add_fit, _fit,
    ),
    "score": (
        "log density of rows under a model",
        "Evaluates the log density of every row of DATA. Without -o prints the mean, with its "
        "standard error, and the rows that the model finds least likely.",
        "tgpfast score model.npz held-out.csv -o scores.csv",
        _add_score, _score,
    ),
    "sample": (
        "draw rows from a model",
        "Draws rows from a model, in the units and with the column names of its data.",
        "tgpfast sample model.npz -n 1000 -o rows.csv --seed 1",
        _add_sample, _sample,
    ),
    "info": (
        "what a model or a statistics file holds",
        "Prints the settings a model was learned with, or the facts of saved Statistics.",
        "tgpfast info model.npz",
        _add_info, _info,
    ),
    "demo": (
        "learn a toy density with every method and draw it",
        "Learns two moons by all four methods, prints how long each took and how near it came on "
        "held-out rows, beside the Gaussian base and a kernel density estimate, and, with "
        "matplotlib, writes a picture of data, contours and samples.",
        "tgpfast demo -o moons.png",
        _add_demo, _demo,
    ),
    "reproduce": (
        "re-run the paper's experiments and write a report",
        "Runs the paper's experiments on the data sets found in a folder and writes tables, "
        "figures and one self-contained page, beside the figures that the paper printed. Sets "
        "that are missing are listed with where the originals live.",
        "tgpfast reproduce --data data -o report",
        _add_reproduce, _reproduce,
    ),
    "warmup": (
        "compile the kernels ahead of their first use",
        "Compiles every kernel once; Numba keeps the result on disk, so that later processes "
        "start without waiting. Run it when an image is built.",
        "tgpfast warmup --backend numba",
        _add_warmup, _warmup,
    ),
    "calibrate": (
        "measure what the engines cost on this machine",
        "Measures, in some ten seconds on an idle machine, the constants by which engine=auto "
        "chooses the faster engine, prints the old and the new ones, and keeps them in the user's "
        "cache folder, or in TGPFAST_CACHE_DIR.",
        "tgpfast calibrate --show",
        _add_calibrate, _calibrate,
    ),
}  # fmt: skip
