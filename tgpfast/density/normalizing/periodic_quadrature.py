"""The mass of a density of one to three columns, some of them periodic, with random features.

Around a period, and along open columns where the base falls to nothing at the ends of its range,
the rectangle rule converges exponentially.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ...bases.base import Base
from ...bases.domain import domain_of
from ...bases.part_widths import part_widths
from ...bases.quasirandom import logsumexp
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..draws.box_sampling import make_box_cells
from ..draws.grid_sampling import GridCells
from ..draws.proposal import QUADRATURE_DIMENSIONS
from ..draws.rejection import draw_by_rejection
from ..exponents.exponent import Tilt
from ..grids.base_marginals import find_ends
from ..grids.box_rule import BoxRule, integrate_to
from ..grids.marginal_cdf import RecentDirections
from .quadrature import LOG_Z_TOLERANCE, MOST_QUADRATURE_NODES

FIRST_STEPS_PER_DEVIATION = 1.5  # of the narrowest part of the base, at first
FIRST_STEPS_PER_RADIAN = 0.5  # of the highest frequency of the tilt, at first
LEAST_PERIODIC_STEPS = 16  # along an axis
FINER_RULE = 1.4  # factor of the steps from one rule to the next
CELLS_PER_STEP = 4  # of the grid that draws come from, in one and two columns
LINE_STEPS = 4  # places of a marginal for each step of the rule


def can_integrate(base: Base) -> bool:
    """Whether a base of few columns, some of them periodic, has a range that a rule can cover.

    Parameters
    ----------
    base : Base
    """
    return base.dimension <= QUADRATURE_DIMENSIONS and find_ends(base) is not None


class PeriodicQuadrature:
    """A density on a grid over the first period, and over the range of the base.

    Parameters
    ----------
    tilt : Tilt
        With the periods of the base.
    base : Base
        At most three columns; see `can_integrate`.
    threads : Threads

    Attributes
    ----------
    value : float
        Log of the mass of e^tilt times base.
    error : float
        Its change from a coarser rule.
    n_nodes : int
        Nodes of the last rule.
    """

    def __init__(self, tilt: Tilt, base: Base, threads: Threads) -> None:
        self.tilt, self.base, self.threads = tilt, base, threads
        ends = find_ends(base)
        assert ends is not None
        self.low, self.high = ends
        self._recent = RecentDirections()
        d, length = base.dimension, self.high - self.low
        steps = FIRST_STEPS_PER_DEVIATION / part_widths(base)[1].min(axis=0)
        if not tilt.is_zero:
            steps = steps + FIRST_STEPS_PER_RADIAN * tilt.features.bandlimit
        counts = np.maximum(steps * length, LEAST_PERIODIC_STEPS)
        self.error, last = math.inf, math.inf
        while True:
            whole = [int(count) for count in counts]
            self.rule = BoxRule.of_axes(self.low, self.high, whole, [True] * d)
            self._sum_nodes()
            self.error = abs(math.expm1(min(last - self.value, 700.0)))
            last, counts = self.value, FINER_RULE * counts
            is_last = counts.prod() > MOST_QUADRATURE_NODES[d]
            if self.error <= LOG_Z_TOLERANCE[d] or is_last:
                break

    def _log_density(self, x: Array) -> Array:
        return np.asarray(self.tilt.value(x, self.threads) + self.base.log_density_at(x))

    def _sum_nodes(self) -> None:
        """Set the value and the number of nodes."""
        masses = [
            logsumexp(self._log_density(x) + np.log(weights)) for x, weights in self.rule.slabs()
        ]
        self.value = float(logsumexp(np.array(masses)))
        self.n_nodes = self.rule.size

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, float]:
        """n rows in the first period, and the effective number of independent rows.

        Parameters
        ----------
        n : int
        rng : numpy Generator
        """
        rows, effective = draw_by_rejection(self._cells.propose, n, rng)
        return domain_of(self.base).wrap(rows), effective

    @functools.cached_property
    def _cells(self) -> GridCells:
        finer = CELLS_PER_STEP if self.base.dimension < QUADRATURE_DIMENSIONS else 1
        counts = [finer * count for count in self.rule.counts]
        return make_box_cells(self.low, self.high, counts, self._log_density)

    def marginal_cdf(self, direction: Array, places: Array) -> Array:
        """P(x . direction <= place) for every place, x in the first period, (G,).

        Parameters
        ----------
        direction : (d,) array, not zero
        places : (G,) array
        """
        axis = int(np.argmax(np.abs(direction) * (self.high - self.low)))
        line, density = self._recent.find(direction, lambda: self.rule.project(
            lambda x: np.exp(self._log_density(x) - self.value), direction,
            LINE_STEPS * self.rule.counts[axis],
        ))  # fmt: skip
        total = integrate_to(line, density, line[-1:])[0]
        return np.clip(integrate_to(line, density, places) / total, 0.0, 1.0)
