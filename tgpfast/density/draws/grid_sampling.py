"""Exact draws from a density on grids.

A grid is chosen by its mass, a cell of it by the mean of its corners, and a place in the cell by
the density that is linear along every axis between the corners. Rejection corrects that to the
density itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...kernels.thread_choice import Threads
from ...validation import Array
from ..exponents.exponent import Tilt
from .rejection import Propose, draw_by_rejection, shuffle_parts

if TYPE_CHECKING:
    from ..grids.component_grid import ComponentGrid


def sample_from_grids(
    grids: Sequence[ComponentGrid], tilt: Tilt, threads: Threads, n: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """n rows in the model's coordinates, and the effective number of independent rows."""
    masses = np.array([m for grid in grids for m in (grid.total, grid.tail.log_mass)])
    shares = np.exp(masses - masses.max())
    counts = rng.multinomial(n, shares / shares.sum())
    parts = []
    for k, grid in enumerate(grids):
        proposals: list[Propose] = [
            _cell_proposal(grid, tilt, threads), _tail_proposal(grid, tilt, threads)
        ]  # fmt: skip
        for propose, count in zip(proposals, counts[2 * k : 2 * k + 2].tolist(), strict=True):
            if count:
                parts.append(draw_by_rejection(propose, count, rng))
    return shuffle_parts(parts, rng)


def _tail_proposal(grid: ComponentGrid, tilt: Tilt, threads: Threads) -> Propose:
    """Draws from beyond the window of a grid."""

    def propose(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        seed = int(rng.integers(2**62))
        w, log_weights, _ = grid.draw_tail(tilt, threads, max(n - 1, 1).bit_length(), seed)
        return grid.component.gaussian.unwhiten(w), log_weights + math.log(max(len(w), 1))

    return propose


def _cell_proposal(grid: ComponentGrid, tilt: Tilt, threads: Threads) -> Propose:
    """Draws from the cells of a grid, and the log of the density there over the one that is linear
    in the cells."""
    gaussian, low = grid.component.gaussian, np.array([axis[0] for axis in grid.axes])
    cells = GridCells(
        grid.log_mass, low, grid.steps,
        lambda w: grid.log_density(w, tilt, threads) + grid.grid.log_cell,
    )  # fmt: skip

    def propose(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        w, log_weights = cells.propose(n, rng)
        return gaussian.unwhiten(w), log_weights

    return propose


class GridCells:
    """Cells of a regular grid of one to three dimensions.

    A cell is chosen by the mean of the density at its corners, and a place in it by the density
    that is linear along every axis between them.

    Parameters
    ----------
    values : array of the shape of the grid
        Log density at the nodes; need not be normalized.
    low, steps : (d,) arrays
        The first node, and the steps of the grid.
    log_density : callable
        Places (n, d) -> (n,), in the units of the values.
    """

    def __init__(
        self, values: Array, low: Array, steps: Array, log_density: Callable[[Array], Array]
    ) -> None:
        self.low, self.steps, self.log_density = low, steps, log_density
        self.top = float(values.max())
        cells = self.density = np.exp(values - self.top)
        for _ in cells.shape:  # axes take turns; in the end they are in order again
            cells = np.moveaxis(cells[:-1] + cells[1:], 0, -1)
        self.shape, self.running = cells.shape, np.cumsum(cells.ravel())

    def propose(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """n places, and the log of the density there over the one that is linear in the cells."""
        index, t, linear = self._draw(n, rng)
        places = self.low + self.steps * (index + t)
        log_weights = self.log_density(places) - linear
        log_weights[np.isnan(log_weights)] = -np.inf
        return places, log_weights

    def _draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Array, Array]:
        """Lower corners of n cells (n, d), places in them (n, d) from 0 to 1, and the log of the
        density there that is linear in the cells (n,)."""
        cell = np.searchsorted(self.running, rng.uniform(0.0, self.running[-1], n), side="right")
        index = np.unravel_index(np.minimum(cell, self.running.size - 1), self.shape)
        corners = np.empty((2,) * len(index) + (n,))
        for corner in np.ndindex(*corners.shape[:-1]):
            corners[corner] = self.density[tuple(i + c for i, c in zip(index, corner, strict=True))]
        t = np.empty((n, len(index)))
        for k in range(len(index)):
            # the density along this axis, summed over those that follow
            ends = corners.reshape(2, -1, n).sum(axis=1)
            t[:, k] = linear_quantile(ends[0], ends[1], rng.uniform(size=n))
            corners = corners[0] + t[:, k] * (corners[1] - corners[0])
        with np.errstate(divide="ignore"):
            return np.stack(index, axis=-1), t, np.log(corners) + self.top


def linear_quantile(start: Array, stop: Array, u: Array) -> Array:
    """Quantile of the density on [0, 1] that runs linearly from start to stop.

    Where both are zero the density counts as flat.
    """
    root = np.sqrt(start * start + u * (stop * stop - start * start))
    total = start + root
    return np.where(total > 0.0, u * (start + stop) / np.where(total > 0.0, total, 1.0), u)
