"""The paper's experiment on one data file: learn by every method, then measure distances."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ..density.density import Density
from ..evaluation.evaluation import evaluate
from ..evaluation.result import Evaluation
from ..pipeline.fitting import fit
from ..pipeline.settings import PAPER
from ..runtime.progress import Progress
from ..validation import Array
from .data_files import DataFile, load_standardized
from .published import METHOD_NAMES


@dataclass(frozen=True)
class Settings:
    """Sizes of the experiments. The defaults are the paper's, but with five seeds instead of one.

    Attributes
    ----------
    n_features : int, default 1000
    n_seeds : int, default 5
        Feature seeds per method on the paper's sets; MAP, which is slow, has one.
    n_directions : int, default 500
        Random directions of the distances.
    n_samples : int, default 250_000
        Draws from the base that stand for the model.
    n_grid : int, default 10_000
        Grid points of a projected CDF.
    kde_features : int, default 100_000
        Features of the Fourier kernel density estimate.
    toy_rows : int, default 10_000
        Rows of XO and of Smile.
    """

    n_features: int = PAPER["n_features"]
    n_seeds: int = 5
    n_directions: int = 500
    n_samples: int = 250_000
    n_grid: int = 10_000
    kde_features: int = 100_000
    toy_rows: int = 10_000


@dataclass(frozen=True)
class Measurements:
    """Results on one data file: method -> one entry per seed."""

    file: DataFile
    shape: tuple[int, int]
    results: dict[str, list[Evaluation]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)


def fit_as_paper(x: Any, method: str, settings: Settings, **changes: Any) -> Density:
    """Fit with the settings of the paper's experiments, except for ``changes``."""
    return fit(x, **{**PAPER, "n_features": settings.n_features, "method": method, **changes})


def measure(file: DataFile, settings: Settings, bar: Progress) -> Measurements:
    """Fit and evaluate every method with every seed on one data file."""
    x = load_standardized(file.path)
    measured = Measurements(file, (x.shape[0], x.shape[1]))
    for method in METHOD_NAMES:
        results, seconds = [], []
        for seed in seeds_of(file, method, settings):
            bar.name_step(f"{file.label}, {METHOD_NAMES[method]}, seed {seed}")
            start = time.perf_counter()
            model = fit_as_paper(x, method, settings, seed=seed)
            seconds.append(time.perf_counter() - start)
            results.append(evaluate_as_paper(model, x, seed, settings))
            bar.add(1)
        measured.results[method], measured.seconds[method] = results, seconds
    return measured


def evaluate_as_paper(model: Density, x: Array, seed: int, settings: Settings) -> Evaluation:
    """Distances in the units of the given rows, without likelihood and Fisher score."""
    return evaluate(
        model, x, settings.n_directions, settings.n_grid, settings.n_samples, seed,
        units="data", n_scored=0,
    )  # fmt: skip


def seeds_of(file: DataFile, method: str, settings: Settings) -> range:
    """Several seeds for the paper's sets; one for others, and for MAP, thirty times slower."""
    return range(settings.n_seeds if file.published and method != "map" else 1)


def count_fits(file: DataFile, settings: Settings) -> int:
    """The number of models of all methods and seeds on one file."""
    return sum(len(seeds_of(file, method, settings)) for method in METHOD_NAMES)
