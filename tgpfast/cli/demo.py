"""``tgpfast demo``: what `fit` learns and answers, beside the four methods of the paper."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import plot
from ..bases.gaussian import GaussianBase
from ..data import files
from ..density.density import Density
from ..density.normalizing.normalizer import DRAWS
from ..evaluation.evaluation import evaluate
from ..evaluation.exact_kde import ExactKDE
from ..paper.datasets import two_moons
from ..pipeline.fitting import fit
from ..plot.canvas import BLACK, SKY, VERMILION, draw_legend
from ..solvers.solver import METHODS
from ..validation import Array
from .options import Command, count_or
from .output import print_pairs, print_table
from .plot import PICTURES

LEAST_DEMO_ROWS = 100  # fewer leave too few held-out rows to compare methods
HELD_OUT_SHARE = 5  # one row in so many is held out
GAMMA_FACTOR = 1.25  # times Scott's rule
LAM = 10.0  # lambda of the paper's methods: smooth enough for a few hundred rows
N_DIRECTIONS, N_DRAWS = 100, 50_000  # that measure the distances of each model
AUTOMATIC = "fit(X)"  # the model whose settings are all chosen from the data
GIVEN = 1.0  # value of the first column in the question about the second
SHOWN_LEVEL = 0.9  # probability of the region and of the interval
ANSWER_SIDE, ANSWER_OPACITY = 160, 0.5  # grid points along a side of the region; how it is drawn


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rows", type=count_or(), default=20_000, metavar="N",
        help="rows to draw (default: %(default)s)")  # fmt: skip
    add("--features", type=count_or(), default=300, metavar="S",
        help="number of random features of the paper's methods (default: %(default)s)")  # fmt: skip
    add("--seed", type=count_or(least=0), default=0, metavar="N",
        help="seed of data and features (default: %(default)s)")  # fmt: skip
    add("-o", "--output", type=Path, default=Path("tgpfast-demo.png"), metavar="PICTURE",
        help="png, pdf or svg file to write (default: %(default)s)")  # fmt: skip


def _run(arguments: argparse.Namespace) -> None:
    if arguments.rows < LEAST_DEMO_ROWS:
        raise ValueError(f"--rows {arguments.rows}: at least {LEAST_DEMO_ROWS} are needed")
    files.check_writable(arguments.output, suffixes=PICTURES)
    x = two_moons(arguments.rows, seed=arguments.seed)
    n_held_out = len(x) // HELD_OUT_SHARE
    held_out, rows = x[:n_held_out], x[n_held_out:]
    gamma = GAMMA_FACTOR * len(rows) ** (-1.0 / 6.0)  # Scott's rule for standardized columns
    print(
        f"two moons: {len(rows):,} rows to learn from, {n_held_out:,} held out; the paper's "
        f"methods have {arguments.features} features, lambda {LAM:g}, gamma {gamma:.3f}\n"
    )
    table, models = [], {}
    for name in (AUTOMATIC, *METHODS, "base", "exact KDE"):
        _show_status(f"{name} ...")
        start = time.perf_counter()
        model = _learn(name, rows, gamma, arguments)
        seconds = time.perf_counter() - start
        table.append([name, f"{seconds:.2f}", *measure_quality(model, held_out)])
        if name == AUTOMATIC:
            _show_status("")
            answers = Answers.of(model)
            _print_answers(model, answers)
        if isinstance(model, Density):
            models[name.upper() if name in METHODS else name] = model
    _show_status("")
    print_table(
        ["method", "seconds", "effective", "held-out log-lik.", "KS x100", "WD x100"], table
    )
    print(
        f"\nseconds: time to learn; effective: how many of {DRAWS:,} base draws carry the density\n"
        "log-lik.: mean log density of the held-out rows, higher is better\n"
        f"KS, WD: median distance to them along {N_DIRECTIONS} directions of standardized columns, "
        "lower is better"
    )
    _draw(models, x, answers, arguments)


def _learn(name: str, rows: Array, gamma: float, arguments: argparse.Namespace) -> Any:
    if name == AUTOMATIC:
        return fit(rows, seed=arguments.seed)
    if name == "base":
        return GaussianBase.from_data(rows)
    if name == "exact KDE":
        return ExactKDE(rows)
    return fit(
        rows, method=name, n_features=arguments.features, lam=LAM, gamma=gamma, eta="1/gamma2",
        base="empirical", frequency_covariance="data", seed=arguments.seed,
    )  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """What the demo asks a model.

    Attributes
    ----------
    region : HighestDensityRegion
        With the probability SHOWN_LEVEL.
    low, high : float
        Ends of the interval with that probability of y given x = GIVEN, with equal tails.
    mean : float
        Of y given x = GIVEN.
    """

    region: Any
    low: float
    high: float
    mean: float

    @classmethod
    def of(cls, model: Density) -> Answers:
        """Ask a model of two columns."""
        rest = model.conditional({0: GIVEN})
        low, high = rest.quantile([(1.0 - SHOWN_LEVEL) / 2.0, (1.0 + SHOWN_LEVEL) / 2.0])
        mean = float(rest.expectation(lambda y: y[:, 0]))
        return cls(model.highest_density_region(SHOWN_LEVEL), float(low), float(high), mean)


def _print_answers(model: Density, answers: Answers) -> None:
    """Print what the model is, and answers to three questions."""
    region, share = answers.region, f"{SHOWN_LEVEL:.0%}"
    print_pairs({
        "model = tgp.fit(X)": str(model),
        f"region with {share} of the mass": f"area {region.volume:.3g}, where the log density is "
        f"above {region.threshold:.3g}",
        f"y given x = {GIVEN:g}": f"mean {answers.mean:.3g}, {share} between {answers.low:.3g} and "
        f"{answers.high:.3g}",
        "P(x < 0 and y > 0.5)": f"{model.probability([None, 0.5], [0.0, None]):.4g}",
    })  # fmt: skip
    print()


def measure_quality(model: Any, held_out: Array) -> list[str]:
    """Effective draws, held-out log-likelihood, KS and WD of a model, as text."""
    effective = "-"
    if isinstance(model, Density):
        effective = f"{model.log_normalizer.effective_sample_size:,.0f}"
    score = float(np.mean(model.log_density(held_out)))
    found = evaluate(model, held_out, n_directions=N_DIRECTIONS, n_samples=N_DRAWS, n_scored=0)
    ks, wd = found.median
    return [effective, f"{score:.3f}", f"{100 * ks:.2f}", f"{100 * wd:.2f}"]


def _draw(
    models: dict[str, Any], x: Array, answers: Answers, arguments: argparse.Namespace
) -> None:
    _show_status("drawing ...")
    title = f"two moons: {len(x):,} rows; fit(X), and the paper's methods"
    try:
        figure = plot.density_figure(models, x, seed=arguments.seed, title=title)
    except ImportError as error:
        _show_status("")
        print(f"\nno picture: {error}")
        return
    _draw_answers(figure, answers)
    plot.save(figure, arguments.output)
    _show_status("")
    print(f"\nwrote {arguments.output}")


def _draw_answers(figure: Any, answers: Answers) -> None:
    """Add the region and the interval to the first panel."""
    axes, region = figure.axes[0], answers.region
    limits = (axes.get_xlim(), axes.get_ylim())
    sides = [np.linspace(low, high, ANSWER_SIDE) for low, high in limits]
    nodes = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    values = region.model.log_density(nodes).reshape(ANSWER_SIDE, ANSWER_SIDE)
    if values.max() > region.threshold:
        axes.contourf(*sides, values, levels=[region.threshold, np.inf], colors=[SKY],
                      alpha=ANSWER_OPACITY)  # fmt: skip
    axes.plot([GIVEN, GIVEN], [answers.low, answers.high], color=BLACK, linewidth=2.0)
    axes.plot([GIVEN], [answers.mean], color=BLACK, marker="o", markersize=5)
    share = f"{100 * SHOWN_LEVEL:.0f} %"
    draw_legend(figure, {
        "contours around 25, 50, 75, 95 %": (VERMILION, "solid"),
        f"fit(X): region with {share} of the mass": (SKY, "s"),
        f"fit(X): mean and {share} of y given x = {GIVEN:g}": (BLACK, "o"),
    })  # fmt: skip


def _show_status(text: str) -> None:
    """A line on a terminal that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r{text:<40}\r", end="", file=sys.stderr, flush=True)


COMMAND = Command(
    "demo",
    "learn a toy density, ask it questions and draw it",
    "Learns two moons by fit(X), which chooses all settings, and prints answers of the model. Then "
    "it prints how long this and the four methods of the paper took and how well they fit held-out "
    "rows, beside the Gaussian base and a kernel density estimate. If matplotlib is installed, it "
    "writes a picture of data, contours and samples, with the answers.",
    ("tgpfast demo", "tgpfast demo --rows 5000 -o moons.png"),
    _add_options,
    _run,
)
