"""The tables of the report: distances and run times, beside those that the paper prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .experiments import Measurements, Settings
from .published import METHOD_NAMES, PublishedSet
from .report import Report


def add_tables(report: Report, measured: list[Measurements], settings: Settings) -> None:
    """Add the tables of all measurements to the report."""
    known = [(m, m.file.published) for m in measured if m.file.published]
    others = [m for m in measured if not m.file.published]
    if known:
        _add_comparison(report, known, settings)
    if others:
        report.add_section(
            "Sets that the paper does not have",
            "The other files of the folder, with the same settings and one seed.",
        )
        report.add_table(
            "other_sets", "Median distances x100 and seconds to learn",
            ["data set", "rows", "columns", "method", "KS", "WD", "effective draws", "seconds"],
            [row for m in others for row in _other_rows(m)],
        )  # fmt: skip


def _add_comparison(
    report: Report, known: list[tuple[Measurements, PublishedSet]], settings: Settings
) -> None:
    """Distances and run times on the paper's sets."""
    report.add_section(
        "Distances between densities and data",
        f"KS and Wasserstein distances, x100, over {settings.n_directions} random directions. "
        "Columns are standardized first. \"Here\" is the mean over the feature seeds 0 to "
        f"{settings.n_seeds - 1} (MAP, which is slow, has seed 0 only), with its standard "
        "deviation. A smaller distance is better. The paper reports one run per method.",
    )
    for statistic in ("median", "mean"):
        report.add_table(
            f"distances_{statistic}", f"The {statistic} over directions, here and in the paper",
            ["data set", "method", "KS here", "KS paper", "WD here", "WD paper",
             "KS s.d.", "WD s.d.", "effective draws"],
            [row for m, paper in known for row in _distance_rows(m, paper, statistic)],
        )  # fmt: skip
    report.add_section(
        "Run times",
        "Seconds to learn from rows in memory, the mean over seeds. The paper's times are those "
        "of its own machine. Its MAP takes 10,000 gradient steps; here Newton steps run until the "
        "gradient is small.",
    )
    report.add_table(
        "run_times", "Seconds, here and in the paper",
        ["data set", "rows", "columns", "method", "here", "paper", "paper / here"],
        [row for m, paper in known for row in time_rows(m, paper)],
    )  # fmt: skip


def set_label(measured: Measurements, paper: PublishedSet) -> str:
    """The name of the set; with both sizes where they differ from the paper's."""
    if (paper.n_rows, paper.n_columns) == measured.shape:
        return measured.file.label
    rows, columns = measured.shape
    return (
        f"{measured.file.label} ({rows:,} x {columns}; paper {paper.n_rows:,} x {paper.n_columns})"
    )


def _distance_rows(
    measured: Measurements, paper: PublishedSet, statistic: str
) -> Iterator[list[Any]]:
    label = set_label(measured, paper)
    for method, results in measured.results.items():
        here = 100.0 * np.array([getattr(r, statistic) for r in results])
        ks, wd = here.mean(axis=0).tolist()
        deviations = here.std(axis=0, ddof=1).tolist() if len(here) > 1 else [None, None]
        paper_ks, paper_wd = getattr(paper, statistic)[method]
        draws = float(np.mean([r.effective_sample_size for r in results]))
        yield [label, METHOD_NAMES[method], ks, paper_ks, wd, paper_wd, *deviations, draws]


def time_rows(measured: Measurements, paper: PublishedSet) -> Iterator[list[Any]]:
    """Rows of the table of run times; the ratio only where the paper had the same data."""
    label = set_label(measured, paper)
    same_size = measured.shape == (paper.n_rows, paper.n_columns)
    for method, seconds in measured.seconds.items():
        here, there = float(np.mean(seconds)), paper.seconds[method]
        ratio = there / here if same_size else None
        yield [label, *measured.shape, METHOD_NAMES[method], here, there, ratio]


def _other_rows(measured: Measurements) -> Iterator[list[Any]]:
    for method, (result,) in measured.results.items():
        ks, wd = result.median
        yield [
            measured.file.label, *measured.shape, METHOD_NAMES[method], 100.0 * ks, 100.0 * wd,
            result.effective_sample_size, measured.seconds[method][0],
        ]  # fmt: skip
