"""Exact draws from a density on grids.

A grid is chosen by its mass, a cell of it by the mean of its corners, and a place in the cell by
the density that is linear along every axis between the corners. Rejection corrects that to the
density itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..kernels.thread_choice import Threads
from ..validation import Array
from .component_grid import ComponentGrid
from .exponent import Tilt
from .rejection import Propose, sample_by_rejection


def sample_from_grids(
    grids: Sequence[ComponentGrid], tilt: Tilt, threads: Threads, n: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """n rows in the model's coordinates, and the effective number of independent rows."""
    masses = np.array([m for grid in grids for m in (grid.total, grid.tail.log_mass)])
    shares = np.exp(masses - masses.max())
    counts = rng.multinomial(n, shares / shares.sum())
    parts, repeats = [], 0.0
    for k, grid in enumerate(grids):
        proposals: list[Propose] = [
            _CellProposal(grid, tilt, threads), _tail_proposal(grid, tilt, threads)
        ]  # fmt: skip
        for propose, count in zip(proposals, counts[2 * k : 2 * k + 2].tolist(), strict=True):
            if count:
                found = sample_by_rejection(propose, count, rng, excess=0.0)
                assert found is not None
                parts.append(found[0])
                repeats += count**2 / found[1]
    rows = np.concatenate(parts)
    return np.asarray(rows[rng.permutation(n)]), n**2 / repeats


def _tail_proposal(grid: ComponentGrid, tilt: Tilt, threads: Threads) -> Propose:
    """Draws from beyond the window of a grid."""

    def propose(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        seed = int(rng.integers(2**62))
        w, log_weights, _ = grid.draw_tail(tilt, threads, max(n - 1, 1).bit_length(), seed)
        return grid.component.gaussian.unwhiten(w), log_weights + math.log(max(len(w), 1))

    return propose


class _CellProposal:
    """Draws from the cells of a grid, with the density linear along every axis in each cell."""

    def __init__(self, grid: ComponentGrid, tilt: Tilt, threads: Threads) -> None:
        self.grid, self.tilt, self.threads = grid, tilt, threads
        self.top = float(grid.log_mass.max())
        self.density = np.exp(grid.log_mass - self.top)
        cells = self.density
        for axis in range(cells.ndim):
            low, high = _lower_and_upper(cells.ndim, axis)
            cells = cells[low] + cells[high]
        self.shape = cells.shape
        self.running = np.cumsum(cells.ravel())

    def __call__(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """n places, and the log of the density there over the one that is linear in the cells."""
        places = rng.uniform(0.0, self.running[-1], n)
        cell = np.searchsorted(self.running, places, side="right")
        index = np.unravel_index(np.minimum(cell, self.running.size - 1), self.shape)
        d = len(self.shape)
        corners = np.empty((2,) * d + (n,))
        for corner in np.ndindex(*corners.shape[:-1]):
            corners[corner] = self.density[tuple(i + c for i, c in zip(index, corner, strict=True))]
        nodes = np.empty((n, d))
        for k in range(d):
            # the density along this axis, summed over those that follow
            ends = corners.reshape(2, -1, n).sum(axis=1)
            t = linear_quantile(ends[0], ends[1], rng.uniform(size=n))
            corners = corners[0] + t * (corners[1] - corners[0])
            axis = self.grid.axes[k]
            nodes[:, k] = axis[index[k]] + t * (axis[index[k] + 1] - axis[index[k]])
        w = nodes @ self.grid.rotation
        with np.errstate(divide="ignore"):
            linear = np.log(corners) + self.top - self.grid.grid.log_cell
        log_weights = self.grid.log_density(w, self.tilt, self.threads) - linear
        log_weights[np.isnan(log_weights)] = -np.inf
        return self.grid.component.gaussian.unwhiten(w), log_weights


def _lower_and_upper(ndim: int, axis: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Indices of the lower and of the upper neighbours along an axis."""
    low, high = [slice(None)] * ndim, [slice(None)] * ndim
    low[axis], high[axis] = slice(None, -1), slice(1, None)
    return tuple(low), tuple(high)


def linear_quantile(start: Array, stop: Array, u: Array) -> Array:
    """Quantile of the density on [0, 1] that runs linearly from start to stop.

    Where both are zero the density counts as flat.
    """
    root = np.sqrt(start * start + u * (stop * stop - start * start))
    total = start + root
    return np.where(total > 0.0, u * (start + stop) / np.where(total > 0.0, total, 1.0), u)
