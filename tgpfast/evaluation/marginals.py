"""Weighted marginal CDFs along directions, and the distances between two of them with errors.

Rows stream through in blocks; a direction costs its grid, whatever the number of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from ..data.blocks import Blocks
from ..validation import Array, as_floats

BLOCK_BYTES = 2**22  # of rows given to the kernel at once: long enough, and in the shared cache
LEAST_STEP = 1e-300  # a grid of no extent has a step all the same


@dataclass(frozen=True, eq=False)
class Grids:
    """Equally spaced points low[v] + j step[v], j < n_grid, along every direction (V, d)."""

    directions: Array
    low: Array
    step: Array
    n_grid: int

    def __post_init__(self) -> None:
        v = self.directions
        if v.size == 0:
            raise ValueError(f"directions must not be empty, got shape {v.shape}")
        if len(self.low) != len(v) or len(self.step) != len(v):
            raise ValueError(f"low and step must have one entry a direction: {len(v)}")
        if not (self.step > 0).all():
            raise ValueError(f"step must be positive, got {self.step.min()}")
        if not 1 <= self.n_grid < 2**31 - 1:
            raise ValueError(f"n_grid={self.n_grid}: expected at least 1 and below 2^31 - 1")

    @classmethod
    def between(cls, directions: Array, n_grid: int, draws: Array, rows: Array | None) -> Grids:
        """Over the range that ``draws`` and ``rows`` share; over the draws' where rows are None.

        Where only one of two samples has mass beyond an end, the integral of the gap between
        their CDFs out there is what its mass lies beyond, which `Mass` adds up: no grid is needed,
        and an outlier does not coarsen it.
        """
        low, high = _range(draws, directions)
        if rows is not None:
            row_low, row_high = _range(rows, directions)
            inner = np.maximum(low, row_low), np.minimum(high, row_high)
            outer = np.minimum(low, row_low), np.maximum(high, row_high)
            apart = inner[1] <= inner[0]
            low, high = (np.where(apart, o, i) for i, o in zip(inner, outer, strict=True))
        step = (high - low) / max(n_grid - 1, 1)
        least = np.maximum(np.maximum(np.abs(low), np.abs(high)) * 1e-15, LEAST_STEP)
        return cls(directions, low, np.maximum(step, least), n_grid)

    def part(self, start: int, stop: int) -> Grids:
        """Some of the directions."""
        rows = slice(start, stop)
        return Grids(self.directions[rows], self.low[rows], self.step[rows], self.n_grid)


def _range(x: Array, directions: Array) -> tuple[Array, Array]:
    """Least and largest projection of the rows on every direction."""
    low, high = np.full(len(directions), np.inf), np.full(len(directions), -np.inf)
    for first in range(0, len(directions), 512):  # a tile of projections stays in cache
        some = slice(first, first + 512)
        for start in range(0, len(x), 512):
            projection = x[start : start + 512] @ directions[some].T
            np.minimum(low[some], projection.min(axis=0), out=low[some])
            np.maximum(high[some], projection.max(axis=0), out=high[some])
    return low, high


class Mass:
    """Weight of the rows between the points of grids, added up block by block."""

    def __init__(self, grids: Grids, backend: str = "auto", n_threads: int | None = None) -> None:
        self.grids = grids
        self.cells = np.zeros((len(grids.directions), grids.n_grid + 1))
        self.squares = np.zeros((0, grids.n_grid + 1))  # of weights, from the first that come
        self.excess = np.zeros((len(grids.directions), 2))
        self._module = kernels.load(backend)
        self._threads = kernels.resolve_threads(self._module, n_threads)

    def add(self, x: Array, w: Array | None) -> None:
        """Rows (n, d) with their weights, or None for ones."""
        g = self.grids
        if w is not None and not len(self.squares):
            self.squares = self.cells.copy()  # rows so far had weights of one
        inputs = (x, np.zeros(0) if w is None else w, g.directions, g.low, g.step)
        with kernels.threads(self._module, self._threads):
            self._module.marginal_mass(
                *map(_read_only, inputs), self.cells, self.squares, self.excess, self._threads
            )

    def add_all(self, blocks: Iterable[tuple[Array, Array | None]]) -> Mass:
        """Every block of an iterable; returns itself."""
        for x, w in blocks:
            self.add(x, w)
        return self

    def part(self, start: int, stop: int) -> Mass:
        """Some of the directions; shares memory."""
        other = copy.copy(self)
        rows = slice(start, stop)
        other.grids, other.cells = self.grids.part(start, stop), self.cells[rows]
        other.squares, other.excess = self.squares[rows], self.excess[rows]
        return other

    def cdf(self, v: int) -> tuple[Array, float]:
        """(shares up to every grid point and 1 at the end, total weight) of direction v."""
        running = np.cumsum(self.cells[v])
        total = float(running[-1])
        return running / total, total


def _read_only(array: Array) -> Array:
    """Always: Numba compiles a kernel again for an argument that may be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def block_rows(dimension: int) -> int:
    """How many rows to give to the kernel at once."""
    return max(4_096, min(65_536, BLOCK_BYTES // (8 * dimension)))


def marginal_cdfs(
    X: Any,
    directions: Any,
    low: Any,
    step: Any,
    n_grid: int,
    *,
    sample_weight: Any = None,
    backend: str = "auto",
    n_threads: int | None = None,
) -> Array:
    """Weighted empirical CDF of the rows projected on every direction, (V, n_grid).

    Entry (v, j) is the share of weight with x . directions[v] <= low[v] + j step[v], but for the
    rounding of rows that lie on a grid point.

    Parameters
    ----------
    X : rows, as for ``accumulate``
    directions : (V, d)
    low, step : (V,) start and spacing (> 0) of each direction's grid
    n_grid : number of grid points
    """
    v = as_floats(directions, "directions", "(V, d)", 2)
    grids = Grids(v, as_floats(low, "low", "(V,)", 1), as_floats(step, "step", "(V,)", 1), n_grid)
    d = v.shape[1]
    blocks = Blocks(X, sample_weight=sample_weight, dimension=d, block_rows=block_rows(d))
    mass = Mass(grids, backend, n_threads).add_all(blocks)
    return np.stack([mass.cdf(k)[0][:-1] for k in range(len(v))])


@dataclass(frozen=True)
class Distance:
    """KS and Wasserstein distance between two samples along a direction, with standard errors."""

    ks: float
    wd: float
    ks_error: float
    wd_error: float


def distance(of_data: Mass, of_model: Mass, v: int) -> Distance:
    """Between data and a model's draws, both with or without weights, along direction v.

    The errors are those of the two samples, to first order: both distances are linear in the CDFs
    P and Q once the place of the largest gap, and the sign of the gap everywhere, are held fixed.
    Rows beyond the grid enter the error as if they lay at its end.
    """
    step, (p, n), (q, total) = of_data.grids.step[v], of_data.cdf(v), of_model.cdf(v)
    gap = (p - q)[:-1]
    at = int(np.argmax(np.abs(gap)))
    beyond = np.abs(of_data.excess[v] / n - of_model.excess[v] / total)
    wd = float(np.abs(gap[:-1]).sum() * step + beyond.sum())
    # a row in cell j raises P at the nodes from j on: WD rises by h_j = sum of the signs there
    h = np.zeros(len(gap) + 1)
    np.cumsum(np.where(gap[-2::-1] > 0.0, step, -step), out=h[-3::-1])
    ks_variance = wd_variance = 0.0
    for mass, share, weight in ((of_data, p[at], n), (of_model, q[at], total)):
        # variance of a mean of f: sum of w^2 (f - mean)^2 / (sum of w)^2
        cells, squares = mass.cells[v], mass.squares[v] if len(mass.squares) else mass.cells[v]
        below, all_of_them = squares[: at + 1].sum(), squares.sum()
        spread = below * (1.0 - share) ** 2 + (all_of_them - below) * share**2
        ks_variance += spread / weight**2
        wd_variance += squares @ np.square(h - cells @ h / weight) / weight**2
    # where all rows lie on one side, rounding may leave less than nothing
    ks_error, wd_error = np.sqrt(np.maximum([ks_variance, wd_variance], 0.0)).tolist()
    return Distance(float(abs(gap[at])), wd, ks_error, wd_error)
