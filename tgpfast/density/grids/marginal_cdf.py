"""Distribution functions of a density along one direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...bases.quasirandom import logsumexp
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..exponents.exponent import Tilt
from .box_rule import integrate_to
from .component_grid import ComponentGrid, Lattice, whitened_band
from .whitened_grid import count_nodes, resolving_steps, rotation_to

FINER_ALONG = 4  # a grid is so many times finer along the direction of a marginal
INTERPOLATED_DIMENSIONS = 3  # columns from which on such a grid takes seconds: it is interpolated
# from a grid so many times finer, which resolves frequencies that the sum over the converged grid
# just leaves out
RESOLVED_ALONG = 2
COARSEN = 1.25  # factor of the steps of a grid that has too many nodes
TAIL_CDF_LOG2_DRAWS = 16  # base-2 logarithm of the draws behind the tail of a marginal
MOST_KEPT_DIRECTIONS = 4  # one for each column of a grid, and one more
LEAST_LOG_TAIL = -40.0  # log of the share of the mass below which a tail is left out: e^-40


class _Part(NamedTuple):
    """One component along a direction."""

    share: float
    offset: float  # projection of its center
    length: float  # of a standard deviation
    line: Array  # places, in standard deviations from the center
    density: Array  # there, up to a factor


class RecentDirections:
    """What was made for the last directions: quantiles ask for one direction again and again.

    Examples
    --------
    >>> recent = RecentDirections()
    >>> axis = np.eye(2)[0]
    >>> recent.find(axis, lambda: "made"), recent.find(axis, lambda: "made again")
    ('made', 'made')
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, Any] = {}

    def find(self, direction: Array, make: Callable[[], Any]) -> Any:
        """What was made for a direction, or what ``make()`` gives.

        Parameters
        ----------
        direction : (d,) array
        make : callable
        """
        key = direction.tobytes()
        if key not in self._kept:
            made = make()
            while len(self._kept) >= MOST_KEPT_DIRECTIONS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = made
        return self._kept[key]


def weighted_cdf(values: Array, weights: Array, places: Array) -> Array:
    """Share of the weight of the values up to each place, (G,)."""
    order = np.argsort(values)
    running = np.cumsum(weights[order])
    running = np.concatenate([[0.0], running / running[-1]])
    return np.asarray(running[np.searchsorted(values[order], places, side="right")])


class GridMarginal:
    """The distribution function of a density on grids along one direction.

    Parameters
    ----------
    grids : sequence of ComponentGrid
        One for each component of the base.
    log_z : float
        Log of the mass of all of them.
    direction : array, (d,)
    tilt, threads, lattice
        Those of the grids.
    most_nodes : int
        Number of nodes of a rotated grid at most.
    """

    def __init__(
        self, grids: Sequence[ComponentGrid], log_z: float, direction: Array, tilt: Tilt,
        threads: Threads, lattice: Lattice, most_nodes: int,
    ) -> None:  # fmt: skip
        self._rounding = 2.0 * len(grids) * float(np.finfo(float).eps)
        self._parts: list[_Part] = []
        self._tails: list[tuple[Array, Array]] = []  # projections in order, and sums of their mass
        for grid in grids:
            share = math.exp(grid.total - log_z)
            along = grid.component.gaussian.cholesky.T @ direction
            length = float(np.linalg.norm(along))
            offset = float(direction @ grid.component.gaussian.mean)
            if share > 0.0:
                line = _sum_across(grid, along / length, tilt, lattice, most_nodes)
                self._parts.append(_Part(share, offset, length, *line))
            if grid.tail.log_mass > log_z + LEAST_LOG_TAIL:
                draws, log_weights, _ = grid.draw_tail(tilt, threads, TAIL_CDF_LOG2_DRAWS, 0)
                projection = offset + (draws @ along)
                order = np.argsort(projection)
                running = np.append(0.0, np.cumsum(np.exp(log_weights[order] - log_z)))
                self._tails.append((projection[order], running))

    def cdf(self, places: Array) -> Array:
        """P(u . direction <= place) for every place, (G,), u in the model's coordinates."""
        total = np.zeros(len(places))
        for part in self._parts:
            with np.errstate(over="ignore"):
                w = (places - part.offset) / part.length
            running = integrate_to(part.line, part.density, np.append(w, part.line[-1]))
            total += part.share * np.clip(running[:-1] / running[-1], 0.0, 1.0)
        for projection, running in self._tails:
            total += running[np.searchsorted(projection, places, side="right")]
        total[total > 1.0 - self._rounding] = 1.0  # shares that sum to 1 but for rounding
        return np.clip(total, 0.0, 1.0)


def _sum_across(
    grid: ComponentGrid, unit: Array, tilt: Tilt, lattice: Lattice, most_nodes: int
) -> tuple[Array, Array]:
    """Places along a unit vector, and the density of one component there up to a factor: sums over
    a rotated grid."""
    rotation = rotation_to(unit)
    # as much finer than the band requires as the grid that has converged
    first = resolving_steps(whitened_band(tilt, grid.component))
    steps = resolving_steps(whitened_band(tilt, grid.component, rotation))
    steps *= float((grid.steps / first).max())
    is_interpolated = len(unit) >= INTERPOLATED_DIMENSIONS
    steps[0] /= RESOLVED_ALONG if is_interpolated else FINER_ALONG
    while count_nodes(steps, grid.reach) > most_nodes:
        steps *= COARSEN
    rotated = ComponentGrid(
        grid.component, lattice, steps, grid.reach, windowed=grid.windowed, rotation=rotation
    )
    axis, mass = rotated.axes[0], rotated.log_mass
    if len(unit) > 1:
        mass = logsumexp(mass.reshape(len(axis), -1), axis=1)
    density = np.exp(mass - mass.max())
    return _interpolate_line(axis, density) if is_interpolated else (axis, density)


def _interpolate_line(axis: Array, density: Array) -> tuple[Array, Array]:
    """The same line with finer steps. The grid resolves all frequencies of the density, which
    vanishes at both ends: its trigonometric interpolant is as exact as a finer grid."""
    n, finer = len(axis), FINER_ALONG // RESOLVED_ALONG
    count = n * finer
    fine = np.fft.irfft(np.fft.rfft(density), count) * finer
    places = axis[0] + (axis[1] - axis[0]) / finer * np.arange(count)
    kept = slice(0, (n - 1) * finer + 1)  # the others lie between the last and the first
    return places[kept], np.maximum(fine[kept], 0.0)
