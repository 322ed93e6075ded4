"""The mass of a density in one to three dimensions, on grids that cover every place it could be.

Each component of the base is integrated by the trapezoidal rule in the coordinates that whiten it,
where the rule converges exponentially; every second node gives the error. A grid reaches so far
that what lies beyond could not matter even if the tilt were as large as its bound everywhere. Where
that takes too many nodes, a window ends the grid earlier, and draws give the rest.
"""

from __future__ import annotations

import math

import numpy as np

from ...bases.base import Base
from ...bases.quasirandom import logsumexp
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..draws.grid_sampling import sample_from_grids
from ..draws.proposal import estimate_rough_log_z
from ..exponents.exponent import Tilt
from ..grids.component_grid import ComponentGrid, Lattice, whitened_band
from ..grids.components import Component, split_base
from ..grids.marginal_cdf import GridMarginal, RecentDirections
from ..grids.whitened_grid import affordable_reach, count_nodes, resolving_steps

LOG_Z_TOLERANCE = {1: 1e-8, 2: 1e-7, 3: 1e-4}  # error of log Z, by columns, that ends refinement
BEYOND_GRID = 1e-2  # share of the tolerance that may lie beyond a grid
LEAST_REACH = 7.5  # standard deviations that a component of weight 1 covers: e^-28 lies beyond
FIRST_NODES = {1: 2**16, 2: 2**17, 3: 2**18}  # of one grid at first, by columns
MOST_QUADRATURE_NODES = {1: 2**21, 2: 2**23, 3: 2**24}  # of all grids: some seconds of work
LARGER_GRID = 4  # times as many nodes has a grid that is made to reach farther
FIRST_TAIL_LOG2_DRAWS, MOST_TAIL_LOG2_DRAWS = 12, 16  # base-2 logarithms, of each replicate


class Quadrature:
    """All components of a density on grids.

    Parameters
    ----------
    tilt : Tilt
    base : Base
        At most three columns.
    threads : Threads
    lattice : callable, default None
        Gives the tilt on a lattice from its corner, steps and shape; ``tilt.on_lattice`` by
        default.

    Attributes
    ----------
    grids : list of ComponentGrid
        One for each component of the base.
    value : float
        Log of the mass of e^tilt times base.
    error : float
        Bound on the error of the value.
    log_square : float
        log E[e^(2 tilt)] under the base.
    n_nodes : int
        Number of nodes of all grids.
    """

    def __init__(
        self, tilt: Tilt, base: Base, threads: Threads, lattice: Lattice | None = None
    ) -> None:
        self.tilt, self.threads, self.dimension = tilt, threads, base.dimension
        self.lattice = lattice or (
            lambda corner, steps, shape: tilt.on_lattice(corner, steps, shape, threads)
        )
        self._recent = RecentDirections()
        tolerance = LOG_Z_TOLERANCE[self.dimension]
        # the mass of no component exceeds its weight times e^bound
        least = estimate_rough_log_z(tilt, base, threads)
        self._log_excess = tilt.bound - least - math.log(tolerance * BEYOND_GRID)
        self.grids = [self._make_first_grid(component) for component in split_base(base)]
        self._sum_grids()
        while self.error > tolerance and self._refine():
            self._sum_grids()

    # -- refinement -------------------------------------------------------------------------------

    def _make_first_grid(self, component: Component) -> ComponentGrid:
        steps = resolving_steps(whitened_band(self.tilt, component))
        reach, most = self._needed_reach(component), FIRST_NODES[self.dimension]
        if count_nodes(steps, reach) <= most:
            return self._make_grid(component, steps, reach, windowed=False)
        return self._make_grid(component, steps, affordable_reach(steps, most), windowed=True)

    def _needed_reach(self, component: Component) -> float:
        return max(
            component.find_reach(self._log_excess),
            math.sqrt(max(LEAST_REACH**2 + 2.0 * component.log_weight, 4.0)),
        )

    def _make_grid(
        self, component: Component, steps: Array, reach: float, *, windowed: bool
    ) -> ComponentGrid:
        grid = ComponentGrid(component, self.lattice, steps, reach, windowed=windowed)
        if windowed:
            grid.sample_tail(self.tilt, self.threads, FIRST_TAIL_LOG2_DRAWS)
        return grid

    def _sum_grids(self) -> None:
        """Set the value, its error, the square and the number of nodes."""
        self.n_nodes = sum(grid.log_mass.size for grid in self.grids)
        masses = [m for grid in self.grids for m in (grid.total, grid.tail.log_mass)]
        self.value = float(logsumexp(np.array(masses)))
        squares = [s for grid in self.grids for s in (grid.log_square, grid.tail.log_square)]
        self.log_square = float(logsumexp(np.array(squares)))
        gaps = sum(math.exp(min(grid.log_gap - self.value, 700.0)) for grid in self.grids)
        tails = [math.exp(min(grid.tail.log_error - self.value, 300.0)) for grid in self.grids]
        self.error = gaps + math.sqrt(sum(t * t for t in tails))

    def _refine(self) -> bool:
        """Replace the grid with the largest error by a better one.

        Returns False where too few nodes are left. The other grids are not tried then: they would
        not make the sum of the errors much smaller.
        """
        k = int(np.argmax([max(grid.log_gap, grid.tail.log_error) for grid in self.grids]))
        grid = self.grids[k]
        component, steps, size = grid.component, grid.steps, grid.log_mass.size
        needed = self._needed_reach(component)
        room = MOST_QUADRATURE_NODES[self.dimension] - (self.n_nodes - size)
        if grid.log_gap >= grid.tail.log_error:
            reach = grid.reach
            if size * 2**self.dimension > room:
                # where tails are not known the first grid is very wide: make it narrower instead
                reach *= 0.5
                if needed < math.inf or reach < LEAST_REACH:
                    return False
            self.grids[k] = self._make_grid(component, 0.5 * steps, reach, windowed=grid.windowed)
        elif LARGER_GRID * size <= room:
            windowed = count_nodes(steps, needed) > LARGER_GRID * size
            reach = affordable_reach(steps, float(LARGER_GRID * size)) if windowed else needed
            self.grids[k] = self._make_grid(component, steps, reach, windowed=windowed)
        elif grid.tail.log2_draws < MOST_TAIL_LOG2_DRAWS:
            grid.sample_tail(self.tilt, self.threads, grid.tail.log2_draws + 2)
        else:
            return False
        return True

    # -- what else the grids give -----------------------------------------------------------------

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, float]:
        """n rows in the model's coordinates, and the effective number of independent rows."""
        return sample_from_grids(self.grids, self.tilt, self.threads, n, rng)

    def marginal_cdf(self, direction: Array, places: Array) -> Array:
        """P(u . direction <= place) for every place, u in the model's coordinates, (G,).

        The sums over grids that are turned to the direction are kept for the next calls.
        """
        marginal: GridMarginal = self._recent.find(direction, lambda: GridMarginal(
            self.grids, self.value, direction, self.tilt, self.threads, self.lattice,
            MOST_QUADRATURE_NODES[self.dimension],
        ))  # fmt: skip
        return marginal.cdf(places)
