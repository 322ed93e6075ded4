"""The paper's experiments, re-run on a folder of data files and written up beside its figures."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import plot
from ..data.blocks import Blocks
from ..data.files import SUFFIXES
from ..data.scaling import check_full_rank, moments_of
from ..density.density import Density
from ..evaluation.evaluation import Evaluation, evaluate
from ..evaluation.kde import ExactKDE, FourierKDE
from ..features.random import Features
from ..pipeline.fitting import fit
from ..pipeline.settings import PAPER
from ..pipeline.warming import warmup
from ..runtime.progress import Steps
from ..validation import Array
from . import datasets, published
from .published import Illustration, PublishedSet
from .report import Report, _check_folder, machine_facts

FIGURE_LAM = 10.0  # of the paper's California figure; it names none for its contours
KDE_FEATURES = 100_000  # of its Fourier estimate
FIGURE_SAMPLES = 10_000
TOY_ROWS = 10_000  # of XO and Smile
N_CDFS = 10
NAMES = {"map": "MAP", "fd": "FD", "ncfd": "NCFD", "fvpd": "FVPD"}


@dataclass(frozen=True)
class Settings:
    """How much is run; the defaults are the paper's, with five seeds where it had one."""

    n_features: int = PAPER["n_features"]
    n_seeds: int = 5
    n_directions: int = 500
    n_samples: int = 250_000
    n_grid: int = 10_000
    kde_features: int = KDE_FEATURES
    toy_rows: int = TOY_ROWS


@dataclass(frozen=True)
class DataFile:
    """A file of the folder, and the set of the paper that its name says it holds."""

    path: Path
    published: PublishedSet | None
    illustration: Illustration | None
    shares_name: bool = False  # with another file of the folder

    @property
    def name(self) -> str:
        known = self.published or self.illustration
        return known.name if known else self.path.stem

    @property
    def label(self) -> str:
        """The name, with the file's where two files of the folder have the same."""
        return f"{self.name}, {self.path.name}" if self.shares_name else self.name


@dataclass
class Runs:
    """What was measured on one set: method -> one entry a seed."""

    file: DataFile
    shape: tuple[int, int]
    results: dict[str, list[Evaluation]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)


def find(folder: Path) -> list[DataFile]:
    """The data files of a folder, those of the paper first and in its order."""
    if not folder.is_dir():
        raise ValueError(f"{os.fspath(folder)!r} is not a folder; give one that holds data files")
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    files = [
        DataFile(p, published.match(p.stem), published.match_illustration(p.stem)) for p in paths
    ]
    count, order = Counter(f.name for f in files), list(published.SETS)
    files = [replace(f, shares_name=count[f.name] > 1) for f in files]
    return sorted(files, key=lambda f: order.index(f.name) if f.published else len(order))


def reproduce(
    data: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    progress: bool = False,
) -> Path:
    """Run every experiment whose data are there; returns the path of the page.

    Parameters
    ----------
    data : folder of csv, npy, npz or parquet files, one set each, named as in `published`; other
        sets are measured too. None: only what needs no data
    output : folder for the report
    settings : how much is run
    progress : show a bar with the time left on standard error
    """
    plot._figure_class()  # an hour's work must not end in a missing package,
    _check_folder(Path(output))  # nor in a file where the folder should be
    if data is not None and Path(output).resolve() == Path(data).resolve():
        raise ValueError(
            f"{os.fspath(output)!r} holds the data; give the report another folder, or its tables "
            "would be read as data next time"
        )
    asked = settings or Settings()
    files = [] if data is None else find(Path(data))
    experiment = _Experiment(asked, files, progress)
    return experiment.run().write(output)


class _Experiment:
    """One run: a list of pieces of work, each with a guess at its seconds, and their report."""

    def __init__(self, settings: Settings, files: list[DataFile], progress: bool) -> None:
        self.settings, self.files, self.progress = settings, files, progress
        self.report = Report(
            "GP-tilted density estimation: the paper, re-run",
            "Every figure marked as the paper's is copied from its tables; every other one was "
            "measured by this run.",
        )
        self.notices: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self.runs: list[Runs] = []

    def run(self) -> Report:
        warmup()
        start = time.perf_counter()
        measured = [f for f in self.files if f.illustration is None]
        figures = self._figures()
        total = sum(seconds for _, seconds, _ in figures) + sum(map(self._guess_all, measured))
        drawn: list[tuple[str, str, Any]] = []
        with Steps(self.progress, total) as bar:
            for file in measured:
                end = bar.done + self._guess_all(file)
                with self._kept_going(file.label):
                    self._measure(file, bar)
                bar.drop(end - bar.done)  # what a set that failed leaves undone
            for name, seconds, draw in figures:
                with self._kept_going(f"figure {name}"), bar.step(f"figure {name}", seconds):
                    drawn += draw()
        self._write_tables()
        self._write_figures(drawn)
        self._write_notes(time.perf_counter() - start)
        return self.report

    @contextlib.contextmanager
    def _kept_going(self, what: str) -> Iterator[None]:
        """A set that cannot be used is reported; warnings are counted, not shown one by one."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            try:
                yield
            except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
                self.failures[what] = self._reason(error)
        self.notices.update(f"{what}: {warning.message}" for warning in caught)

    def _reason(self, error: Exception) -> str:
        """In one line, with files by their names: a report tells nobody where it was made."""
        text = " ".join(str(error).split()) or type(error).__name__
        for file in self.files:
            text = text.replace(os.fspath(file.path), file.path.name)
        return text

    # -- the tables ------------------------------------------------------------------------------

    def _seeds(self, file: DataFile, method: str) -> range:
        """One for MAP, which takes thirty times longer than the others."""
        return range(self.settings.n_seeds if file.published and method != "map" else 1)

    def _guess(self, file: DataFile, method: str) -> float:
        """Seconds of one seed, roughly: what matters is that the parts are in proportion."""
        n = max(file.path.stat().st_size / 80, 1.0)
        once = min(n / 70_000 * (self.settings.n_features / 1_000) ** 2, 4.0)
        learn = {"map": 15.0, "fd": once, "ncfd": 12.0 * once, "fvpd": once + 4.0}
        return 1.5 + learn[method]

    def _guess_all(self, file: DataFile) -> float:
        """Seconds of one set with all its methods and seeds."""
        return sum(self._guess(file, m) * len(self._seeds(file, m)) for m in NAMES)

    def _measure(self, file: DataFile, bar: Steps) -> None:
        x = _standardised(file.path)
        runs = Runs(file, x.shape)
        for method in published.METHODS:
            runs.results[method], runs.seconds[method] = [], []
            guess = self._guess(file, method)
            for seed in self._seeds(file, method):
                with bar.step(f"{file.label}, {NAMES[method]}, seed {seed}", guess):
                    start = time.perf_counter()
                    model = self._fit(x, method, seed=seed)
                    runs.seconds[method].append(time.perf_counter() - start)
                    runs.results[method].append(self._evaluate(model, x, seed))
        self.runs.append(runs)

    def _fit(self, x: Any, method: str, **changes: Any) -> Density:
        options = {**PAPER, "n_features": self.settings.n_features, "method": method, **changes}
        return fit(x, **options)

    def _evaluate(self, model: Any, x: Array, seed: int) -> Evaluation:
        s = self.settings
        return evaluate(
            model, x, s.n_directions, s.n_grid, s.n_samples, seed, units="data", n_scored=0
        )

    def _write_tables(self) -> None:
        known = [r for r in self.runs if r.file.published]
        others = [r for r in self.runs if not r.file.published]
        if known:
            self.report.add_section(
                "Distances between densities and data",
                f"KS and Wasserstein distance, x100, over {self.settings.n_directions} random "
                "directions, columns standardised first. Here: the mean over feature seeds "
                f"0 to {self.settings.n_seeds - 1} (for MAP, which is slow, seed 0), and their "
                "standard deviation. Smaller is nearer. The paper gives one run each.",
            )
            for measure in ("median", "mean"):
                self.report.add_table(
                    f"distances_{measure}", f"The {measure} over directions, here and in the paper",
                    ["data set", "method", "KS here", "KS paper", "WD here", "WD paper",
                     "KS s.d.", "WD s.d.", "effective draws"],
                    [row for runs in known for row in _distance_rows(runs, measure)],
                )  # fmt: skip
            self.report.add_section(
                "Run times",
                "Seconds to learn from rows in memory, the mean over seeds; the paper's were "
                "taken on its own machine. Its MAP takes 10,000 gradient steps; here Newton steps "
                "run until the gradient is small.",
            )
            self.report.add_table(
                "run_times", "Seconds, here and in the paper",
                ["data set", "rows", "columns", "method", "here", "paper", "paper / here"],
                [row for runs in known for row in _time_rows(runs)],
            )  # fmt: skip
        if others:
            self.report.add_section(
                "Sets that the paper does not have",
                "The same settings, one seed; rows of the folder's other files.",
            )
            self.report.add_table(
                "other_sets", "Median distances x100 and seconds to learn",
                ["data set", "rows", "columns", "method", "KS", "WD", "effective draws", "seconds"],
                [row for runs in others for row in _other_rows(runs)],
            )  # fmt: skip

    # -- the figures -----------------------------------------------------------------------------

    def _figures(self) -> list[tuple[str, float, Callable[[], list[tuple[str, str, Any]]]]]:
        """(name, guess at its seconds, what draws it): for the data that are there."""
        found: list[tuple[str, float, Callable[[], list[tuple[str, str, Any]]]]] = []
        paths = {f.name: f.path for f in self.files}
        if "CA House" in paths:
            found.append(("California", 40.0, lambda: self._california(paths["CA House"])))
        if "MAGIC" in paths:
            found.append(("projected CDFs", 12.0, lambda: self._cdfs(paths["MAGIC"])))
        toys: dict[str, Any] = {
            "XO": lambda: datasets.xo(self.settings.toy_rows),
            "Smile": lambda: datasets.smile(self.settings.toy_rows),
        }
        if "MNIST-2D" in paths:
            toys = {"MNIST-2D": lambda: paths["MNIST-2D"], **toys}
        for name, rows in toys.items():
            found.append((name, 15.0, lambda n=name, r=rows: self._contours(n, r())))  # type: ignore[misc]
        return found

    def _california(self, path: Path) -> list[tuple[str, str, Any]]:
        models: dict[str, Any] = {
            NAMES[method]: self._fit(path, method, lam=FIGURE_LAM) for method in published.METHODS
        }
        features = models["FD"].features
        round_kernel = np.eye(features.dimension)
        wide = Features.draw(self.settings.kde_features, features.bandwidth, round_kernel, seed=0)
        ladder = plot.noise_ladder(models["NCFD"], path)
        models[f"KDE, {self.settings.kde_features:,} features"] = FourierKDE.from_data(path, wide)
        models["KDE, exact"] = ExactKDE(
            path, bandwidth=features.bandwidth, covariance="identity"
        )
        samples = plot.samples(models, path, n_shown=FIGURE_SAMPLES, margin=0.1)
        return [
            ("california_samples", "California housing: samples of every method over the data; "
             f"lambda {FIGURE_LAM:g}, {self.settings.n_features} features, one bandwidth for all; "
             "the kernel estimates have round kernels",
             samples),
            ("california_noise", "California housing: NCFD's contours for decreasing noise; they "
             "enclose 25, 50, 75 and 95 % of what is shown", ladder),
        ]  # fmt: skip

    def _cdfs(self, path: Path) -> list[tuple[str, str, Any]]:
        x, names = _standardised(path), Blocks(path).table.columns
        model = self._fit(x, "fvpd")
        figure = plot.marginal_cdfs(
            {"FVPD": model}, x, n_directions=N_CDFS, names=names, units="data"
        )
        caption = f"MAGIC: CDFs of data and FVPD along {N_CDFS} random directions"
        return [("magic_cdfs", caption, figure)]

    def _contours(self, name: str, rows: Any) -> list[tuple[str, str, Any]]:
        models = {
            NAMES[method]: self._fit(rows, method, lam=FIGURE_LAM, scale="standardize")
            for method in published.METHODS
        }
        figure = plot.contours(models, rows)
        caption = (
            f"{name}: contours of the four methods over the data; lambda {FIGURE_LAM:g}, "
            f"{self.settings.n_features} features; they enclose 25, 50, 75 and 95 % of the "
            "probability shown"
        )
        return [(f"contours_{name.lower().replace('-', '_')}", caption, figure)]

    def _write_figures(self, drawn: list[tuple[str, str, Any]]) -> None:
        if drawn:
            self.report.add_section("Figures")
        for name, caption, figure in drawn:
            self.report.add_figure(name, caption, figure)

    # -- what else a reader must know ------------------------------------------------------------

    def _write_notes(self, seconds: float) -> None:
        have = {f.name for f in self.files}
        missing = [[s.name, s.source] for s in published.SETS.values() if s.name not in have]
        missing += [
            [s.name, s.source]
            for s in published.ILLUSTRATIONS.values()
            if s.name not in have and not s.generated
        ]
        if missing:
            self.report.add_section(
                "Data that were not there",
                "Skipped. Put a file of the name, such as magic.csv, into the folder.",
            )
            self.report.add_table(
                "missing", "Where the originals live", ["data set", "source"], missing
            )
        if self.failures:
            self.report.add_section("What could not be run")
            self.report.add_table(
                "failures", "Sets and figures, and why", ["what", "why"],
                [[k, v] for k, v in self.failures.items()],
            )  # fmt: skip
        if self.notices:
            self.report.add_section("Notices", "Warnings of this run, once each.")
            self.report.add_table(
                "notices", "How often, and what", ["times", "notice"],
                [[count, text] for text, count in self.notices.items()],
            )  # fmt: skip
        self.report.add_section("How this was run")
        s = self.settings
        self.report.add_facts(
            "Settings",
            {
                **{k: v for k, v in PAPER.items() if k != "method"}, "n_features": s.n_features,
                "feature seeds": f"0 to {s.n_seeds - 1} for the paper's sets, else 0; MAP 0",
                "seeds of directions and draws": "as the features'",
                "directions": s.n_directions, "grid points": s.n_grid, "base draws": s.n_samples,
                "features of the Fourier estimate": s.kde_features,
                "rows of XO and Smile": s.toy_rows,
                "preparation": "columns standardised, but for the California figures",
                "seconds in all": f"{seconds:.0f}",
            },
        )  # fmt: skip
        self.report.add_facts("Machine and versions", machine_facts())


def _standardised(path: Path) -> Array:
    """All rows, every column with mean 0 and variance 1."""
    blocks = Blocks(path)
    x = blocks.whole()
    check_full_rank(moments_of(Blocks(x)), blocks.table.columns)  # with the file's names and values
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def _label(runs: Runs) -> str:
    """The set's name; with its number of rows where the paper had others."""
    known = runs.file.published
    if known is None or (known.n_rows, known.n_columns) == runs.shape:
        return runs.file.label
    rows, columns = runs.shape
    return f"{runs.file.label} ({rows:,} x {columns}; paper {known.n_rows:,} x {known.n_columns})"


def _distance_rows(runs: Runs, measure: str) -> Iterator[list[Any]]:
    known = runs.file.published
    assert known is not None
    for method, results in runs.results.items():
        here = 100.0 * np.array([getattr(r, measure) for r in results])
        ks, wd = here.mean(axis=0).tolist()
        spread = here.std(axis=0, ddof=1).tolist() if len(here) > 1 else [None, None]
        of_paper = getattr(known, measure)[method]
        yield [
            _label(runs), NAMES[method], ks, of_paper[0], wd, of_paper[1], *spread,
            float(np.mean([r.effective_sample_size for r in results])),
        ]  # fmt: skip


def _time_rows(runs: Runs) -> Iterator[list[Any]]:
    known = runs.file.published
    assert known is not None
    for method, seconds in runs.seconds.items():
        here, of_paper = float(np.mean(seconds)), known.seconds[method]
        equal_work = runs.shape == (known.n_rows, known.n_columns)
        ratio = of_paper / here if equal_work else None
        yield [_label(runs), *runs.shape, NAMES[method], here, of_paper, ratio]


def _other_rows(runs: Runs) -> Iterator[list[Any]]:
    for method, (result,) in runs.results.items():
        ks, wd = result.median
        yield [
            runs.file.label, *runs.shape, NAMES[method], 100.0 * ks, 100.0 * wd,
            result.effective_sample_size, runs.seconds[method][0],
        ]  # fmt: skip
