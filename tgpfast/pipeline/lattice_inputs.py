"""What the choice of a lattice starts from: settings, rows, axes, and a sample in folds."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from ..bases.expectation_maximization import measure_columns
from ..features.lattice_box import find_core
from ..runtime.records import record
from ..selection.lattice_search import HeldOutRows
from ..statistics.value_folds import Folds
from ..validation import Array
from .axes import Axes
from .discrete_columns import find_discrete
from .rows import Rows
from .settings import Settings

N_LATTICE_FOLDS = 5  # each holds out a fifth of the rows, and has sums of its own
# Of the step of a discrete column: waves down to half a step let the density jump from one value to
# the next. With waves of two steps, alternating probabilities were off by 0.05 nats.
DISCRETE_RESOLUTION = 0.25


@record
class FoldedSample:
    """The random sample of the rows, and the fold of each.

    Attributes
    ----------
    x : (n, d) array
        In the model's coordinates.
    weights : (n,) array
    folds : Folds or (n,) ints
        The rule that says which fold a row belongs to, or the fold of every row.
    fold : (n,) ints
    """

    x: Array
    weights: Array
    folds: Folds | NDArray[np.int64]
    fold: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Rows, axes: Axes, labels: NDArray[np.int64] | None = None) -> FoldedSample:
        """The sample of the first pass, moved into the first period of periodic columns.

        labels : folds of the rows, all of which are in the sample; None for those of their values
        """
        x = rows.scaling.apply(rows.sample.x)
        folds: Folds | NDArray[np.int64]
        if labels is None:
            folds = Folds.for_sample(N_LATTICE_FOLDS, x)
            fold = folds.of_rows(x, rows.sample.keys)
        else:
            folds = fold = labels
        return cls(axes.move_inside(x), rows.sample_weights, folds, fold)

    @property
    def deviation(self) -> float:
        """Root of the mean variance of the columns, with far outliers moved to the end of the core
        of a box."""
        core = np.array([find_core(column) for column in self.x.T]).T
        return math.sqrt(float(np.clip(self.x, *core).var(axis=0).mean())) or 1.0

    def without(self, fold: int) -> tuple[Array, Array]:
        """Rows and weights of the other folds."""
        kept = self.fold != fold
        return self.x[kept], self.weights[kept]

    def held_out(self, folds: list[int]) -> HeldOutRows:
        """The rows of some folds, whose numbers are in order."""
        mine = np.isin(self.fold, folds)
        places = np.searchsorted(folds, self.fold[mine])
        return HeldOutRows(self.x[mine], places, self.weights[mine])


@record
class LatticeInputs:
    """What the choice of a lattice starts from.

    Attributes
    ----------
    settings : Settings
        What the user asked for.
    rows : Rows
        Of at most three columns, with a sample.
    axes : Axes
    sample : FoldedSample
    """

    settings: Settings
    rows: Rows
    axes: Axes
    sample: FoldedSample

    @classmethod
    def of(
        cls, settings: Settings, rows: Rows, labels: NDArray[np.int64] | None = None
    ) -> LatticeInputs:
        """The inputs of a fit.

        labels : folds of the rows, all of which are in the sample; None for those of their values
        """
        axes = Axes.of(settings, rows)
        return cls(settings, rows, axes, FoldedSample.of(rows, axes, labels))

    @functools.cached_property
    def resolution(self) -> Array:
        """Steps of the columns in the model's coordinates, (d,); noise hides those of discrete
        ones."""
        found = np.array(measure_columns(self.sample.x, self.sample.weights).resolution)
        for k, step in find_discrete(self.settings, self.rows).items():
            found[k] = DISCRETE_RESOLUTION * step / self.rows.scaling.scale[k]
        return found
