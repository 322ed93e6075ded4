"""The paper's figures, drawn for those data sets that are present."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import plot
from ..data.blocks import Blocks
from ..evaluation.exact_kde import ExactKDE
from ..evaluation.fourier_kde import FourierKDE
from ..features.random import Features
from . import datasets
from .data_files import DataFile, load_standardized
from .experiments import Settings, fit_as_paper
from .published import METHOD_NAMES

FIGURE_LAM = 10.0  # lambda of the paper's California figure; it gives none for the contours
SHOWN_SAMPLES = 10_000  # draws in each panel of the California figure
N_CDFS = 10  # directions in the figure of projected CDFs


@dataclass(frozen=True)
class DrawnFigure:
    """A figure with its file stem and its caption."""

    name: str
    caption: str
    figure: Any


def list_figures(
    files: list[DataFile], settings: Settings
) -> list[tuple[str, Callable[[], list[DrawnFigure]]]]:
    """Titles and drawing functions of the figures for which data are present; XO and Smile always
    are.
    """
    paths = {file.name: file.path for file in files}
    drawn: list[tuple[str, str, Callable[..., list[DrawnFigure]]]] = [
        ("CA House", "California", draw_california),
        ("MAGIC", "projected CDFs", draw_cdfs),
        ("MNIST-2D", "MNIST-2D", functools.partial(draw_contours, "MNIST-2D")),
    ]
    return [
        *((title, functools.partial(draw, paths[name], settings))
          for name, title, draw in drawn if name in paths),
        *((name, functools.partial(draw_contours, name, make(settings.toy_rows), settings))
          for name, make in (("XO", datasets.xo), ("Smile", datasets.smile))),
    ]  # fmt: skip


def draw_california(path: Path, settings: Settings) -> list[DrawnFigure]:
    """Samples of every method and of both kernel estimates; contours of NCFD per noise level."""
    models: dict[str, Any] = {
        name: fit_as_paper(path, method, settings, lam=FIGURE_LAM)
        for method, name in METHOD_NAMES.items()
    }
    ladder = plot.noise_ladder(models["NCFD"], path)
    random, identity = models["FD"].features, np.eye(models["FD"].features.dimension)
    many = Features.draw(settings.kde_features, random.bandwidth, identity, seed=0)
    models[f"KDE, {settings.kde_features:,} features"] = FourierKDE.from_data(path, many)
    models["KDE, exact"] = ExactKDE(path, bandwidth=random.bandwidth, covariance="identity")
    samples = plot.samples(models, path, n_shown=SHOWN_SAMPLES, margin=0.1)
    return [
        DrawnFigure(
            "california_samples",
            f"California housing: samples of every method over the data; lambda {FIGURE_LAM:g}, "
            f"{settings.n_features} features, the same bandwidth for all; the kernel estimates "
            "have spherical kernels",
            samples,
        ),
        DrawnFigure(
            "california_noise",
            "California housing: contours of NCFD for decreasing noise; they enclose 25, 50, 75 "
            "and 95 % of the probability shown",
            ladder,
        ),
    ]


def draw_cdfs(path: Path, settings: Settings) -> list[DrawnFigure]:
    """CDFs of data and FVPD along random directions."""
    x, names = load_standardized(path), Blocks(path).table.columns
    model = fit_as_paper(x, "fvpd", settings)
    figure = plot.marginal_cdfs({"FVPD": model}, x, n_directions=N_CDFS, names=names, units="data")
    caption = f"MAGIC: CDFs of data and FVPD along {N_CDFS} random directions"
    return [DrawnFigure("magic_cdfs", caption, figure)]


def draw_contours(name: str, rows: Any, settings: Settings) -> list[DrawnFigure]:
    """Contours of the four methods over the rows."""
    models = {
        title: fit_as_paper(rows, method, settings, lam=FIGURE_LAM, scale="standardize")
        for method, title in METHOD_NAMES.items()
    }
    caption = (
        f"{name}: contours of the four methods over the data; lambda {FIGURE_LAM:g}, "
        f"{settings.n_features} features; they enclose 25, 50, 75 and 95 % of the probability shown"
    )
    stem = f"contours_{name.lower().replace('-', '_')}"
    return [DrawnFigure(stem, caption, plot.contours(models, rows))]
