"""Whether columns are better bent to a Gaussian: two small mixtures, judged by rows held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.mixture_growth import grow_mixture, weighted_mean
from ..data.column_maps import ColumnMaps
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..validation import Array
from .column_gaussians import learn_maps
from .folds import FEW_ROWS, assign_folds

COMPARED_FOLDS = 5, 10  # one row in so many is held out, of few rows and of more
COMPARED_ROWS = 5_000  # at most; more of them take longer and decide the same
LEAST_COMPARED_ROWS = 50  # of fewer rows, a fifth says nothing
# Components and operations of each mixture, at most: a fifth of the time of a fit. More components
# gained more on the tables that were tried, in the coordinates that a dozen preferred.
COMPARED_COMPONENTS, COMPARED_WORK = 12, 1e9
ROWS_PER_COMPONENT = 16  # at least, of these mixtures
LEAST_SCALE_GAIN_ERRORS = 1.0  # standard errors of the gain, beyond which columns are bent


@record
class ScaleScores:
    """Mean log densities of held-out rows, in the units of the data, in both coordinates.

    Attributes
    ----------
    standardize, gaussianize : float
    gain_error : float
        Standard error of the difference.
    """

    standardize: float
    gaussianize: float
    gain_error: float

    @property
    def prefers_gaussianize(self) -> bool:
        """Whether bent columns gain more than an error."""
        return self.gaussianize - self.standardize > LEAST_SCALE_GAIN_ERRORS * self.gain_error

    def record(self) -> dict[str, float]:
        """Plain numbers for ``model.settings``."""
        return dict(self.__dict__)


def compare_scales(
    x: Array, weights: Array, low: Array, high: Array, bends: NDArray[np.bool_], *, seed: int,
    threads: Threads,
) -> ScaleScores | None:  # fmt: skip
    """Score mixtures of standardized and of gaussianized columns on the same held-out rows.

    Parameters
    ----------
    x : (n, d) array
        A random sample of distinct rows, in random order, in the units of the data.
    weights : (n,) array
    low, high : (d,) array
        Walls, infinite where there is none.
    bends : (d,) array of bool
        Which columns are bent.
    seed : int
    threads : Threads

    Returns
    -------
    ScaleScores or None
        None where rows are too few, or a mixture cannot be learned.
    """
    if len(x) < LEAST_COMPARED_ROWS or not bends.any():
        return None
    held = assign_folds(len(x), COMPARED_FOLDS[len(x) > FEW_ROWS]) == 0
    parts = x[~held], weights[~held], x[held], weights[held]
    options: dict[str, Any] = {"seed": seed, "threads": threads}
    try:
        scores = [
            _score(learn_maps(*parts[:2], low, high, bends=bends & bent), parts, **options)
            for bent in (False, True)
        ]
    except ValueError:  # of columns that depend on each other
        return None
    share = weights[held] / weights[held].sum()
    _, error = weighted_mean(scores[1] - scores[0], share)
    return ScaleScores(float(share @ scores[0]), float(share @ scores[1]), error)


def _score(
    maps: ColumnMaps, parts: tuple[Array, ...], *, seed: int, threads: Threads
) -> Array:
    """Log densities of held-out rows by a mixture of the columns after their maps."""
    x, w, held_x, held_w = parts
    line = maps.apply(held_x)
    grown = grow_mixture(
        maps.apply(x), w, line, held_w, max_work=COMPARED_WORK, covariances=("full",), seed=seed,
        max_components=min(COMPARED_COMPONENTS, max(2, len(x) // ROWS_PER_COMPONENT)),
        threads=threads,
    )  # fmt: skip
    return np.asarray(grown.mixture.log_density_at(line) + maps.log_slope(held_x))
