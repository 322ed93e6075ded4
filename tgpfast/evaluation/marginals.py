"""Weighted CDFs of rows projected on directions, and the distances between two of them.

Rows are read in blocks. The memory for a direction depends on its grid, not on the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..kernels import read_only
from ..kernels.thread_choice import Threads
from ..validation import Array
from .result import Distance

BLOCK_BYTES = 2**22  # bytes of rows per call of the kernel: long calls that fit the shared cache
LEAST_BLOCK_ROWS, MOST_BLOCK_ROWS = 4_096, 65_536  # whatever the number of columns
TILE = 512  # rows per product when ranges are sought: the product stays in cache
MOST_GRID = 2**31 - 1  # the kernels number the cells of a grid by 32-bit integers
LEAST_GRID_STEP = 1e-300  # step of a grid without extent; steps must be positive


@dataclass(frozen=True, eq=False)
class Grids:
    """Equally spaced points low[v] + j step[v], 0 <= j < n_grid, along V directions.

    Attributes
    ----------
    directions : ndarray of shape (V, d)
    low, step : ndarray of shape (V,)
    n_grid : int
    """

    directions: Array
    low: Array
    step: Array
    n_grid: int

    @classmethod
    def between(cls, directions: Array, n_grid: int, draws: Array, rows: Array | None) -> Grids:
        """Grids over the range that ``draws`` and ``rows`` have in common.

        Where only one of two samples has mass beyond an end of the grid, the integral of the gap
        between their CDFs out there is a sum over that mass, which `ProjectedCDFs` collects. So
        the grid need not reach it, and an outlier does not make the grid coarser.

        Parameters
        ----------
        directions : ndarray of shape (V, d)
        n_grid : int
        draws : ndarray of shape (m, d)
        rows : ndarray of shape (n, d) or None
            None for the range of the draws alone.
        """
        if n_grid >= MOST_GRID:
            raise ValueError(f"n_grid={n_grid}: expected at most {MOST_GRID - 1:,}")
        low, high = _projected_range(draws, directions)
        if rows is not None:
            row_low, row_high = _projected_range(rows, directions)
            inner = np.maximum(low, row_low), np.minimum(high, row_high)
            outer = np.minimum(low, row_low), np.maximum(high, row_high)
            disjoint = inner[1] <= inner[0]
            low, high = (np.where(disjoint, o, i) for i, o in zip(inner, outer, strict=True))
        step = (high - low) / max(n_grid - 1, 1)
        least = np.maximum(np.maximum(np.abs(low), np.abs(high)) * 1e-15, LEAST_GRID_STEP)
        return cls(directions, low, np.maximum(step, least), n_grid)

    def part(self, start: int, stop: int) -> Grids:
        """The grids of the directions start to stop."""
        rows = slice(start, stop)
        return Grids(self.directions[rows], self.low[rows], self.step[rows], self.n_grid)


def _projected_range(x: Array, directions: Array) -> tuple[Array, Array]:
    """Smallest and largest projection of the rows on every direction."""
    low, high = np.full(len(directions), np.inf), np.full(len(directions), -np.inf)
    for start in range(0, len(x), TILE):
        projection = x[start : start + TILE] @ directions.T
        low = np.minimum(low, projection.min(axis=0))
        high = np.maximum(high, projection.max(axis=0))
    return low, high


class ProjectedCDFs:
    """Weighted histograms of projected rows, added up block by block; `cdf` normalizes them.

    Parameters
    ----------
    grids : Grids
    threads : Threads
        Backend and number of threads.

    Attributes
    ----------
    cells : ndarray of shape (V, n_grid + 1)
        Weight of the rows between neighboring grid points, and beyond both ends.
    squares : ndarray of shape (V, n_grid + 1), or (0, n_grid + 1) while all weights are one
        The same for squared weights.
    excess : ndarray of shape (V, 2)
        Weight times distance of the rows beyond the lower and the upper end.
    """

    def __init__(self, grids: Grids, threads: Threads) -> None:
        self.grids = grids
        self.cells = np.zeros((len(grids.directions), grids.n_grid + 1))
        self.squares = np.zeros((0, grids.n_grid + 1))
        self.excess = np.zeros((len(grids.directions), 2))
        self._module, self._n_threads = threads.resolve()

    def add(self, x: Array, w: Array | None) -> None:
        """Add rows (n, d) with their weights; None means weights of one."""
        g = self.grids
        if w is not None and not len(self.squares):
            self.squares = self.cells.copy()  # all weights were one before
        inputs = (x, np.zeros(0) if w is None else w, g.directions, g.low, g.step)
        with kernels.threads(self._module, self._n_threads):
            self._module.marginal_mass(
                *map(read_only, inputs), self.cells, self.squares, self.excess, self._n_threads
            )

    def cdf(self, v: int) -> tuple[Array, float]:
        """(CDF at every grid point of direction v and 1 at the end, total weight)."""
        running = np.cumsum(self.cells[v])
        total = float(running[-1])
        return running / total, total


def block_rows(dimension: int) -> int:
    """Number of rows per call of the kernel."""
    return max(LEAST_BLOCK_ROWS, min(MOST_BLOCK_ROWS, BLOCK_BYTES // (8 * dimension)))


def distance(of_data: ProjectedCDFs, of_model: ProjectedCDFs, v: int) -> Distance:
    """Distances between data and the model's draws along direction v.

    The errors are those of both samples to first order: KS and WD are linear in the CDFs P and Q
    if the place of the largest gap and the sign of every gap stay fixed. Rows beyond the grid enter
    the error as if they were at its end.
    """
    step, (p, n), (q, total) = of_data.grids.step[v], of_data.cdf(v), of_model.cdf(v)
    gap = (p - q)[:-1]
    at = int(np.argmax(np.abs(gap)))
    beyond = np.abs(of_data.excess[v] / n - of_model.excess[v] / total)
    wd = float(np.abs(gap[:-1]).sum() * step + beyond.sum())
    # a row in cell j raises P at the points from j on: WD changes by h_j = sum of the signs there
    h = np.zeros(len(gap) + 1)
    np.cumsum(np.where(gap[-2::-1] > 0.0, step, -step), out=h[-3::-1])
    ks_variance = wd_variance = 0.0
    for cdfs, share, weight in ((of_data, p[at], n), (of_model, q[at], total)):
        # variance of a weighted mean of f: sum of w^2 (f - mean)^2 / (sum of w)^2
        cells, squares = cdfs.cells[v], cdfs.squares[v] if len(cdfs.squares) else cdfs.cells[v]
        below, everything = squares[: at + 1].sum(), squares.sum()
        spread = below * (1.0 - share) ** 2 + (everything - below) * share**2
        ks_variance += spread / weight**2
        wd_variance += squares @ np.square(h - cells @ h / weight) / weight**2
    # rounding may give a negative variance where all rows are on one side
    ks_error, wd_error = np.sqrt(np.maximum([ks_variance, wd_variance], 0.0)).tolist()
    return Distance(float(abs(gap[at])), wd, ks_error, wd_error)
