"""Distribution functions of a density along one direction."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..bases.quasirandom import logsumexp
from ..kernels.thread_choice import Threads
from ..validation import Array
from .box_rule import integrate_to
from .component_grid import ComponentGrid, Lattice, whitened_band
from .exponent import Tilt
from .whitened_grid import count_nodes, resolving_steps, rotation_to

FINER_ALONG = 4.0  # a grid is so many times finer along the direction of a marginal
COARSEN = 1.25  # factor of the steps of a grid that has too many nodes
TAIL_CDF_LOG2_DRAWS = 16  # base-2 logarithm of the draws behind the tail of a marginal
LEAST_LOG_TAIL = -40.0  # log of the share of the mass below which a tail is left out: e^-40


def weighted_cdf(values: Array, weights: Array, places: Array) -> Array:
    """Share of the weight of the values up to each place, (G,)."""
    order = np.argsort(values)
    running = np.cumsum(weights[order])
    running = np.concatenate([[0.0], running / running[-1]])
    return np.asarray(running[np.searchsorted(values[order], places, side="right")])


def cdf_on_grids(
    grids: Sequence[ComponentGrid],
    log_z: float,
    direction: Array,
    places: Array,
    tilt: Tilt,
    threads: Threads,
    lattice: Lattice,
    most_nodes: int,
) -> Array:
    """P(u . direction <= place) for every place, u in the model's coordinates.

    Parameters
    ----------
    grids : sequence of ComponentGrid
        One for each component of the base.
    log_z : float
        Log of the mass of all of them.
    direction : array, (d,)
    places : array, (G,)
    tilt, threads, lattice
        Those of the grids.
    most_nodes : int
        Number of nodes of a rotated grid at most.
    """
    total = np.zeros(len(places))
    for grid in grids:
        share = math.exp(grid.total - log_z)
        along = grid.component.gaussian.cholesky.T @ direction
        length = float(np.linalg.norm(along))
        offset = float(direction @ grid.component.gaussian.mean)
        if share > 0.0:
            with np.errstate(over="ignore"):
                w = (places - offset) / length
            total += share * _cdf_on_grid(grid, along / length, w, tilt, lattice, most_nodes)
        if grid.tail.log_mass > log_z + LEAST_LOG_TAIL:
            draws, log_weights, _ = grid.draw_tail(tilt, threads, TAIL_CDF_LOG2_DRAWS, 0)
            projection = offset + (draws @ along)
            order = np.argsort(projection)
            running = np.append(0.0, np.cumsum(np.exp(log_weights[order] - log_z)))
            total += running[np.searchsorted(projection[order], places, side="right")]
    # shares that sum to 1 but for rounding
    total[total > 1.0 - 2.0 * len(grids) * np.finfo(float).eps] = 1.0
    return np.clip(total, 0.0, 1.0)


def _cdf_on_grid(
    grid: ComponentGrid, unit: Array, places: Array, tilt: Tilt, lattice: Lattice, most_nodes: int
) -> Array:
    """The CDF of one component along a unit vector: a spline of the sums over a rotated grid."""
    rotation = rotation_to(unit)
    # as much finer than the band requires as the grid that has converged
    first = resolving_steps(whitened_band(tilt, grid.component))
    steps = resolving_steps(whitened_band(tilt, grid.component, rotation))
    steps *= float((grid.steps / first).max())
    steps[0] /= FINER_ALONG
    while count_nodes(steps, grid.reach) > most_nodes:
        steps *= COARSEN
    rotated = ComponentGrid(
        grid.component, lattice, steps, grid.reach, windowed=grid.windowed, rotation=rotation
    )
    axis, mass = rotated.axes[0], rotated.log_mass
    if len(unit) > 1:
        mass = logsumexp(mass.reshape(len(axis), -1), axis=1)
    running = integrate_to(axis, np.exp(mass - mass.max()), np.append(places, axis[-1]))
    return np.clip(running[:-1] / running[-1], 0.0, 1.0)
