"""Points spread on a fixed grid by finufft's kernel, and Fourier sums read off it (d <= 3).

With A the Fourier sum of the grid at a frequency w, and B = prod_k B_k(w_k) that of one point at
the center, spread by the same kernel,

    F(w) = A / B,    sum x_k e^{i w . x} = A_k / B + i F B_k' / B_k,

where A_k is the Fourier sum of the grid times the position of its nodes along axis k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebval
from numpy.typing import NDArray

from ..validation import Array
from .chunks import Rows
from .transforms import FINEST_EPS, UPSAMPLING, Complex, kernel_width, quiet_finufft

READ_SHARE = 0.1  # of eps, asked of the transform that reads: spreading dominates the error
PRODUCT_NUMBERS = 2**17  # complex numbers of a product with the first axis: they stay in a cache
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
        return self.low + 0.5 * (self.high - self.low)  # the sum may overflow

    @property
    def spacing(self) -> Array:
        """(d,) distance between neighboring nodes along each axis."""
        return np.pi / (UPSAMPLING * self.bandlimit)

    @property
    def width(self) -> int:
        """Nodes along each axis that a point is spread over."""
        return kernel_width(self.eps)

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
        """Bytes at most: grids of the data and of a point, the transform's complex copy and its
        upsampled one."""
        return self.nodes * (8 + 8 + 16 + 16 * 2**self.dimension)

    @property
    def fill_rows(self) -> int:
        """Points to spread at a time: at least as many as nodes, which are all added each time."""
        return max(FILL_ROWS, int(self.nodes))

    def inside(self, x: Array) -> NDArray[np.bool_]:
        """(n,) which points lie in the box."""
        return np.asarray(((x >= self.low) & (x <= self.high)).all(axis=1))

    def read(self, grid: Array, axes: list[Array], n_threads: int) -> Complex:
        """(targets,) Fourier sums of a grid at the frequencies."""
        eps = max(READ_SHARE * self.eps, FINEST_EPS)
        with quiet_finufft() as finufft:
            plan = finufft.Plan(2, self.shape, 1, eps, 1, nthreads=n_threads, showwarn=0)
            plan.setpts(*(axis * h for axis, h in zip(axes, self.spacing, strict=True)))
            return np.asarray(plan.execute(grid.astype(np.complex128)))

    def read_weighted(self, grid: Array, axes: list[Array]) -> Complex:
        """(d, targets) Fourier sums of a grid times the positions of its nodes along each axis, by
        products with one axis after the other; for few frequencies."""
        n, size = len(axes[0]), max(1, int(PRODUCT_NUMBERS * self.shape[0] / self.nodes))
        out = np.empty((self.dimension, n), np.complex128)
        for part in (slice(start, start + size) for start in range(0, n, size)):
            total: Any = None
            for axis, h, m in zip(axes, self.spacing, self.shape, strict=True):
                places = h * (np.arange(m) - m // 2)
                wave = np.exp(1j * np.outer(axis[part], places))
                pair = wave, wave * places
                if total is None:  # real products: twice as fast as complex ones
                    real = np.concatenate([f(w) for w in pair for f in (np.real, np.imag)])
                    a, b, c, e = (real @ grid.reshape(m, -1)).reshape(4, len(wave), -1)
                    total, moved = a + 1j * b, [c + 1j * e]
                    continue
                moved = [np.einsum("cnr,cn->cr", v, wave) for v in _cut(moved, m)]
                (total,) = _cut([total], m)
                moved.append(np.einsum("cnr,cn->cr", total, pair[1]))
                total = np.einsum("cnr,cn->cr", total, wave)
            out[:, part] = [v[:, 0] for v in moved]
        return out

    def kernel(self) -> list[tuple[Array, int, float]]:
        """What one point at the center adds to the nodes: a product of one function for each axis.

        Each function is even except at one node, at the edge of its support. For each: coefficients
        of the Fourier sum of its even part, in cosines of multiples of the angle; the number of
        that node; and the excess there.
        """
        one = replace(self, low=self.center, high=self.center)  # the smallest grid
        filler, middle, w = GridFiller(one, 1), [m // 2 for m in one.shape], self.width
        filler.add(one.center[None], None)
        parts = []
        for k, m in enumerate(middle):
            at: Any = (*middle[:k], slice(m - w, m + w + 1), *middle[k + 1 :])
            line = filler.grid[at] * filler.grid[tuple(middle)] ** (1 / self.dimension - 1)
            more = line[:w][::-1] - line[w + 1 :]
            edge = int(np.argmax(np.abs(more)))
            parts.append((np.r_[line[w], 2.0 * line[w + 1 :]], edge + 1, float(more[edge])))
        return parts

    def sums(
        self, grid: Array, axes: list[Array], weighted: NDArray[np.int64], n_threads: int
    ) -> tuple[Complex, Complex]:
        """Fourier sums of the points that were spread on a grid.

        Parameters
        ----------
        grid : array
            A filled grid.
        axes : list of array
            Frequencies, one array for each axis.
        weighted : int array
            Numbers of the frequencies at which ``G`` is wanted.

        Returns
        -------
        F : (targets,) complex array
        G : (d, len(weighted)) complex array
            x_k-weighted sums about the center.
        """
        kernel = self.kernel()
        F = self.read(grid, axes, n_threads)
        for axis, h, part in zip(axes, self.spacing, kernel, strict=True):
            F /= _kernel_sum(axis * h, *part)
        base = [axis[weighted] for axis in axes]
        G = self.read_weighted(grid, base)
        ratios = []
        for axis, h, part in zip(base, self.spacing, kernel, strict=True):
            value = _kernel_sum(axis * h, *part)
            G /= value
            ratios.append(h * _kernel_slope(axis * h, *part) / value)
        G += 1j * np.array(ratios) * F[weighted]
        return F, G


def _kernel_sum(angles: Array, cosines: Array, edge: int, more: float) -> Complex:
    """The Fourier sum of a part of `SpreadGrid.kernel` at these angles."""
    return np.asarray(chebval(np.cos(angles), cosines) + more * np.exp(-1j * edge * angles))


def _kernel_slope(angles: Array, cosines: Array, edge: int, more: float) -> Complex:
    """Derivative of the spreading kernel."""
    even = np.sin(angles) * chebval(np.cos(angles), chebder(cosines))
    return np.asarray(-even - 1j * edge * more * np.exp(-1j * edge * angles))


def _cut(arrays: list[Complex], m: int) -> list[Complex]:
    """Arrays (targets, m * rest) as (targets, m, rest)."""
    return [v.reshape(len(v), m, -1) for v in arrays]


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
        self.place, self.grid, self.weight = place, np.zeros(place.shape), 0.0
        self._part = np.empty(place.shape, np.complex128)
        with quiet_finufft() as finufft:
            self._plan = finufft.Plan(
                1, place.shape, 1, place.eps, 1, nthreads=n_threads, upsampfac=UPSAMPLING,
                spreadinterponly=1, showwarn=0,
            )  # fmt: skip

    def add(self, x: Array, w: Array | None) -> Rows:
        """Spread the points in the box; returns those outside, and their weights."""
        place, strengths = self.place, np.ones(len(x), np.complex128)
        if w is not None:
            strengths[:] = w
        outside = np.flatnonzero(~place.inside(x))
        if len(outside) < len(x):
            turns = 2.0 * np.pi / (np.array(place.shape) * place.spacing)
            angles = ((x - place.center) * turns).T.copy()
            angles[:, outside] = strengths[outside] = 0.0  # cheaper than to remove a few rows
            with quiet_finufft():
                self._plan.setpts(*angles)
                self._plan.execute(strengths, out=self._part)
            self.grid += self._part.real
            self.weight += float(strengths.real.sum())
        return x[outside], None if w is None else w[outside]
