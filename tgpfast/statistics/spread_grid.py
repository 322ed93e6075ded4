"""Points spread on a fixed grid by finufft's kernel, and Fourier sums read off it (d <= 3).

With g the grid of the data and u that of one point at the center, spread by the same kernel, and
A, B their Fourier sums at a frequency w,

    F(w) = A / B,    sum x_k e^{i w . x} = (A_k - F B_k) / B,

where A_k, B_k are the Fourier sums of the grids times the position of their nodes along axis k.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ..validation import Array
from .chunks import Rows
from .transforms import FINEST_EPS, Complex, kernel_width, quiet_finufft

UPSAMPLING = 2.0  # grid nodes for each node that the band limit needs
READ_SHARE = 0.1  # of eps, asked of the transform that reads: spreading dominates the error
FILL_ROWS = 2**18  # points spread at a time, at least: their coordinates stay in a cache


class OutsideError(ValueError):
    """No grid within the budget holds the rows, or too many of them lie outside its box."""


@dataclass(frozen=True, eq=False)
class SpreadGrid:
    """Where the nodes of a grid lie.

    Attributes
    ----------
    bandlimit : (d,) array
        Largest |frequency| that can be read, in radians per unit of x.
    low, high : (d,) array
        Corners of the box; points outside are not spread.
    eps : float
        Relative error of finufft's kernel.
    """

    bandlimit: Array
    low: Array
    high: Array
    eps: float

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.low)

    @property
    def center(self) -> Array:
        """(d,) center of the box, about which positions are taken."""
        return 0.5 * (self.low + self.high)

    @property
    def spacing(self) -> Array:
        """(d,) distance between neighboring nodes along each axis."""
        return np.pi / (UPSAMPLING * self.bandlimit)

    @property
    def width(self) -> int:
        """Nodes along each axis that a point is spread over."""
        return kernel_width(self.eps, UPSAMPLING)

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each axis: the box, and the kernel beyond its edges."""
        half = 0.5 * (self.high - self.low) / self.spacing + self.width + 1
        return tuple(2 * int(np.ceil(h)) for h in half)

    @property
    def nodes(self) -> float:
        """Number of nodes; a float, since it may be too large for an integer of numpy."""
        return float(np.prod([float(m) for m in self.shape]))

    @property
    def memory(self) -> float:
        """Bytes at most: grids of the data and of a point, one times the position, the transform's
        complex copy and its upsampled one."""
        return self.nodes * (8 + 8 + 8 + 16 + 16 * 2**self.dimension)

    @property
    def fill_rows(self) -> int:
        """Points to spread at a time: at least as many as nodes, which are all added each time."""
        return max(FILL_ROWS, int(self.nodes))

    def inside(self, x: Array) -> NDArray[np.bool_]:
        """(n,) which points lie in the box."""
        return np.asarray(((x >= self.low) & (x <= self.high)).all(axis=1))

    def positions(self, k: int) -> Array:
        """Positions of the nodes along axis k about the center, shaped to multiply a grid."""
        m = self.shape[k]
        at = [1] * self.dimension
        at[k] = m
        return (self.spacing[k] * (np.arange(m) - m // 2)).reshape(at)

    def unit(self) -> Array:
        """The grid of one point at the center."""
        filler = GridFiller(self, 1)
        filler.add(self.center[None], None)
        return filler.grid

    def read(self, grids: Iterable[Array], axes: list[Array], n_threads: int) -> list[Complex]:
        """Fourier sums of grids at the frequencies, one (targets,) array for each grid."""
        points = [axis * h for axis, h in zip(axes, self.spacing, strict=True)]
        eps = max(READ_SHARE * self.eps, FINEST_EPS)
        with quiet_finufft() as finufft:
            plan = finufft.Plan(2, self.shape, 1, eps, 1, nthreads=n_threads, showwarn=0)
            plan.setpts(*points)
            return [plan.execute(grid.astype(np.complex128)) for grid in grids]

    def sums(
        self, grid: Array, axes: list[Array], base: list[Array], n_threads: int
    ) -> tuple[Complex, Complex]:
        """Fourier sums of the points that were spread on a grid.

        Parameters
        ----------
        grid : array
            A filled grid.
        axes, base : list of array
            Frequencies, one array for each axis.

        Returns
        -------
        F : (targets,) complex array
            At the frequencies ``axes``.
        G : (d, targets) complex array
            x_k-weighted sums about the center, at the frequencies ``base``.
        """
        unit = self.unit()
        F, one = self.read((grid, unit), axes, n_threads)
        F /= one
        del one
        moved = (g * self.positions(k) for k in range(self.dimension) for g in (grid, unit))
        found = self.read(chain((grid, unit), moved), base, n_threads)
        data, one = found[:2]
        G = [(a - data / one * b) / one for a, b in zip(found[2::2], found[3::2], strict=True)]
        return F, np.array(G)


class GridFiller:
    """Spread points on a grid, chunk by chunk; buffers and plan are made once.

    Parameters
    ----------
    place : SpreadGrid
    n_threads : int

    Attributes
    ----------
    grid : array
        The spread weights so far.
    weight : float
        Sum of the weights of the points inside the box so far.
    """

    def __init__(self, place: SpreadGrid, n_threads: int) -> None:
        self.place, self.n_threads = place, n_threads
        self.grid = np.zeros(place.shape)
        self.weight = 0.0
        self._part = np.empty(place.shape, np.complex128)
        self._columns = [np.zeros(0)] * place.dimension
        self._ones = np.zeros(0, np.complex128)
        with quiet_finufft() as finufft:
            self._plan = finufft.Plan(
                1, place.shape, 1, place.eps, 1, nthreads=n_threads, upsampfac=UPSAMPLING,
                spreadinterponly=1, showwarn=0,
            )  # fmt: skip

    def add(self, x: Array, w: Array | None) -> Rows:
        """Spread the points in the box; returns those outside, and their weights."""
        columns, strengths = self._fill_columns(x), self._strengths(len(x), w)
        outside = self._outside(columns)
        if outside is None:
            self._spread(columns, strengths)
            self.weight += len(x) if w is None else float(w.sum())
            return x[:0], None if w is None else w[:0]
        # many chunks have a few such rows: spreading zeros for them is cheaper than removing them
        at = np.flatnonzero(outside)
        if len(at) < len(x):
            for column, middle in zip(columns, self.place.center, strict=True):
                column[at] = middle
            strengths[at] = 0.0
            self._spread(columns, strengths)
            self.weight += float(strengths.real.sum())
            if w is None:
                strengths[at] = 1.0  # the buffer of ones is used again
        return x[at], None if w is None else w[at]

    def _outside(self, columns: list[Array]) -> NDArray[np.bool_] | None:
        outside: NDArray[np.bool_] | None = None
        for column, low, high in zip(columns, self.place.low, self.place.high, strict=True):
            if not (low <= column.min() and column.max() <= high):
                beyond = ~((column >= low) & (column <= high))
                outside = beyond if outside is None else outside | beyond
        return outside

    def _fill_columns(self, x: Array) -> list[Array]:
        """The columns of x, in buffers that are used again."""
        if len(self._columns[0]) < len(x):
            self._columns = [np.empty(len(x)) for _ in self._columns]
        columns = [c[: len(x)] for c in self._columns]
        for k, column in enumerate(columns):
            column[:] = x[:, k]
        return columns

    def _strengths(self, n: int, w: Array | None) -> Complex:
        if w is not None:
            return w.astype(np.complex128)
        if len(self._ones) < n:
            self._ones = np.ones(n, np.complex128)
        return self._ones[:n]

    def _spread(self, columns: list[Array], strengths: Complex) -> None:
        """Add points to the grid; their columns are overwritten."""
        place = self.place
        for k, (column, middle) in enumerate(zip(columns, place.center, strict=True)):
            column -= middle
            column *= 2.0 * np.pi / (place.shape[k] * place.spacing[k])
        with quiet_finufft():
            self._plan.setpts(*columns)
            self._plan.execute(strengths, out=self._part)
        self.grid += self._part.real
