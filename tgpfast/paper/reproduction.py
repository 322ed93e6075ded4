"""Runs the paper's experiments on a folder of data files and writes the report."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .. import plot
from ..pipeline.settings import PAPER
from ..pipeline.warming import warmup
from ..runtime.progress import Progress
from . import published
from .data_files import DataFile, find_data_files
from .experiments import Measurements, Settings, count_fits, measure
from .figures import DrawnFigure, list_figures
from .machine import machine_facts
from .published import Illustration, PublishedSet
from .report import Report, check_report_folder
from .tables import add_tables


def reproduce(
    data: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    progress: bool = False,
) -> Path:
    """Run every experiment whose data are present and write a report.

    Parameters
    ----------
    data : path of a folder, or None
        The folder holds one csv, npy, npz or parquet file per data set. Files are recognized by
        the names in `published`; other files are measured too. None runs only the experiments on
        generated data.
    output : path of a folder
        Where to write the report; created if necessary.
    settings : Settings, default None
        Sizes of the experiments; by default the paper's.
    progress : bool, default False
        Show a progress bar with the time left on standard error.

    Returns
    -------
    Path
        The html page of the report.

    Raises
    ------
    ValueError
        If ``data`` is no folder, or the report cannot be written to ``output``.
    ImportError
        If matplotlib is missing.
    """
    plot.require_matplotlib()  # before an hour of work, not after it
    check_report_folder(Path(output))
    if data is not None and Path(output).resolve() == Path(data).resolve():
        raise ValueError(
            f"{os.fspath(output)!r} holds the data; write the report to another folder, or the "
            "next run would read its tables as data"
        )
    files = [] if data is None else find_data_files(Path(data))
    return _run_experiments(files, settings or Settings(), progress).write(output)


def _run_experiments(files: list[DataFile], settings: Settings, progress: bool) -> Report:
    """Measure every data file, draw every figure, and collect both in a report."""
    warmup()
    start = time.perf_counter()
    log = _Log(files)
    to_measure, figures = [f for f in files if not f.illustration], list_figures(files, settings)
    total = sum(count_fits(file, settings) for file in to_measure) + len(figures)
    measured: list[Measurements] = []
    drawn: list[DrawnFigure] = []
    with Progress(progress, "steps", total) as bar:
        for file in to_measure:
            end = bar.done + count_fits(file, settings)
            with log.record(file.label):
                measured.append(measure(file, settings, bar))
            bar.add(end - bar.done)  # the remaining fits of a file that failed
        for name, draw in figures:
            title = f"figure {name}"
            bar.name_step(title)
            with log.record(title):
                drawn += draw()
            bar.add(1)
    report = Report(
        "GP-tilted density estimation: the paper reproduced",
        "Figures marked as the paper's are copied from its tables. All others were measured by "
        "this run.",
    )
    add_tables(report, measured, settings)
    _add_figures(report, drawn)
    _add_missing_sets(report, files)
    log.add_to(report)
    _add_settings(report, settings, time.perf_counter() - start)
    return report


class _Log:
    """Failures and warnings of the experiments: one failure does not stop the others."""

    def __init__(self, files: list[DataFile]) -> None:
        self.files = files
        self.failures: dict[str, str] = {}
        self.warnings: Counter[str] = Counter()

    @contextlib.contextmanager
    def record(self, what: str) -> Iterator[None]:
        """Turn errors caused by data into an entry, and count warnings instead of showing them."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            try:
                yield
            except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
                self.failures[what] = self._describe(error)
        self.warnings.update(f"{what}: {warning.message}" for warning in caught)

    def _describe(self, error: Exception) -> str:
        """One line, with file names instead of paths: a report must not show local folders."""
        text = " ".join(str(error).split()) or type(error).__name__
        for file in self.files:
            text = text.replace(os.fspath(file.path), file.path.name)
        return text

    def add_to(self, report: Report) -> None:
        if self.failures:
            report.add_section("What could not be run")
            report.add_table(
                "failures", "Data sets and figures that failed, and why", ["what", "why"],
                list(self.failures.items()),
            )  # fmt: skip
        if self.warnings:
            report.add_section("Notices", "Each warning of this run, once.")
            report.add_table(
                "notices", "Warnings and how often they occurred", ["times", "notice"],
                [(count, text) for text, count in self.warnings.items()],
            )  # fmt: skip


def _add_figures(report: Report, drawn: list[DrawnFigure]) -> None:
    if drawn:
        report.add_section("Figures")
    for figure in drawn:
        report.add_figure(figure.name, figure.caption, figure.figure)


def _add_missing_sets(report: Report, files: list[DataFile]) -> None:
    present = {file.name for file in files}
    needed: list[PublishedSet | Illustration] = [
        *published.SETS.values(),
        *(s for s in published.ILLUSTRATIONS.values() if not s.generated),
    ]
    missing = [(s.name, s.source) for s in needed if s.name not in present]
    if missing:
        report.add_section(
            "Missing data sets",
            "These sets were skipped. To include one, put a file with its name, such as magic.csv, "
            "into the folder.",
        )
        report.add_table(
            "missing", "Where to find the original data", ["data set", "source"], missing
        )


def _add_settings(report: Report, settings: Settings, seconds: float) -> None:
    report.add_section("How this was run")
    report.add_facts(
        "Settings",
        {
            **{name: value for name, value in PAPER.items() if name != "method"},
            "n_features": settings.n_features,
            "feature seeds": f"0 to {settings.n_seeds - 1} for the paper's sets; 0 for other sets "
            "and for MAP",
            "seeds of directions and draws": "the same as the feature seeds",
            "directions": settings.n_directions,
            "grid points": settings.n_grid,
            "base draws": settings.n_samples,
            "features of the Fourier estimate": settings.kde_features,
            "rows of XO and Smile": settings.toy_rows,
            "preparation": "columns are standardized, except for the California figures",
            "seconds in all": f"{seconds:.0f}",
        },
    )
    report.add_facts("Machine and versions", machine_facts())
