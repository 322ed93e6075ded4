"""Points spread on a fixed grid by finufft's kernel, and Fourier sums read off it (d <= 3).

With g the grid of the data and u that of one point at the centre, spread by the same kernel, and
A, B their Fourier sums at a frequency w,

    F(w) = A / B,    sum x_k e^{i w . x} = (A_k - F B_k) / B,

where A_k, B_k are those of the grids times the position of their nodes along axis k.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import Array

Complex = NDArray[np.complex128]

UPSAMPLING = 2.0  # grid nodes for every one that the band limit needs
LEAST_EPS = 1e-14
READ_SHARE = 0.1  # of eps, asked of the transform that reads
FILL_ROWS = 2**18  # points spread at a time: their coordinates stay in a cache


def load_finufft() -> ModuleType:
    """The transforms; ImportError with the remedy where they are missing."""
    try:
        import finufft
    except ImportError as error:
        raise ImportError(
            f'the spectral engine needs finufft, which cannot be imported ({error}); install it '
            'with: pip install finufft, or use engine="direct"'
        ) from error
    module: ModuleType = finufft
    return module


def kernel_width(eps: float, upsampling: float) -> int:
    """Grid points along each axis that finufft spreads a point over."""
    if upsampling == 2.0:
        return int(np.clip(np.ceil(-np.log10(eps / 10.0)), 2, 16))
    return int(np.ceil(-np.log(eps) / (np.pi * np.sqrt(1.0 - 1.0 / upsampling))))


@dataclass(frozen=True, eq=False)
class SpreadGrid:
    """Where the nodes lie: bandlimit, low and high are (d,), eps is the kernel's tolerance."""

    bandlimit: Array
    low: Array
    high: Array
    eps: float

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.low)

    @property
    def centre(self) -> Array:
        """The middle of the box, about which positions are taken."""
        return 0.5 * (self.low + self.high)

    @property
    def spacing(self) -> Array:
        """Distance of the nodes along each axis."""
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
        """How many they are; a float, for one too large to be made."""
        return float(np.prod([float(m) for m in self.shape]))

    @property
    def memory(self) -> float:
        """Bytes at most: grids of the data and of a point, one times the position, the transform's
        complex copy and its upsampled one."""
        return self.nodes * (8 + 8 + 8 + 16 + 16 * 2**self.dimension)

    @property
    def fill_rows(self) -> int:
        """Points to spread at a time: as many as nodes at least, which are all added each time."""
        return max(FILL_ROWS, int(self.nodes))

    def positions(self, k: int) -> Array:
        """Positions of the nodes along axis k about the centre, to multiply a grid by."""
        m = self.shape[k]
        at = [1] * self.dimension
        at[k] = m
        return (self.spacing[k] * (np.arange(m) - m // 2)).reshape(at)

    def unit(self) -> Array:
        """The grid of one point at the centre."""
        filling = Filling(self, 1)
        filling.add(self.centre[None], None)
        return filling.grid

    def read(self, grids: Iterable[Array], axes: list[Array], n_threads: int) -> list[Complex]:
        """Fourier sums of grids at the frequencies, (targets,) each."""
        points = [axis * h for axis, h in zip(axes, self.spacing, strict=True)]
        eps = max(READ_SHARE * self.eps, LEAST_EPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = load_finufft().Plan(2, self.shape, 1, eps, 1, nthreads=n_threads, showwarn=0)
            plan.setpts(*points)
            return [plan.execute(grid.astype(np.complex128)) for grid in grids]

    def sums(
        self, grid: Array, axes: list[Array], base: list[Array], n_threads: int
    ) -> tuple[Complex, Complex]:
        """F at the frequencies ``axes``, and the x_k-weighted F about the centre, (d, targets), at
        those of ``base``, of a filled grid."""
        unit = self.unit()
        F, one = self.read((grid, unit), axes, n_threads)
        F /= one
        del one
        moved = (g * self.positions(k) for k in range(self.dimension) for g in (grid, unit))
        found = self.read(_chained((grid, unit), moved), base, n_threads)
        data, one = found[:2]
        G = [(a - data / one * b) / one for a, b in zip(found[2::2], found[3::2], strict=True)]
        return F, np.array(G)


def _chained(*parts: Iterable[Array]) -> Iterable[Array]:
    for part in parts:
        yield from part


class Filling:
    """A grid being filled: ``grid`` grows by every ``add``; buffers and plan are made once."""

    def __init__(self, place: SpreadGrid, n_threads: int) -> None:
        self.place, self.n_threads = place, n_threads
        self.grid = np.zeros(place.shape)
        self.weight = 0.0  # of the points inside
        self._part = np.empty(place.shape, np.complex128)
        self._columns = [np.zeros(0)] * place.dimension
        self._ones = np.zeros(0, np.complex128)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a tolerance near rounding
            self._plan = load_finufft().Plan(
                1, place.shape, 1, place.eps, 1, nthreads=n_threads, upsampfac=UPSAMPLING,
                spreadinterponly=1, showwarn=0,
            )  # fmt: skip

    def add(self, x: Array, w: Array | None) -> NDArray[np.bool_] | None:
        """Spread the points in the box; which were outside, None where none was."""
        outside: NDArray[np.bool_] | None = None
        columns = self._filled(x)
        for column, low, high in zip(columns, self.place.low, self.place.high, strict=True):
            if not (low <= column.min() and column.max() <= high):
                beyond = ~((column >= low) & (column <= high))
                outside = beyond if outside is None else outside | beyond
        strengths = self._strengths(len(x), w)
        if outside is None:
            self._spread(columns, strengths)
            self.weight += len(x) if w is None else float(w.sum())
            return None
        # most chunks of many have a few such rows: cheaper to spread nothing for them than to
        # take them out
        at = np.flatnonzero(outside)
        if len(at) < len(x):
            for column, middle in zip(columns, self.place.centre, strict=True):
                column[at] = middle
            strengths[at] = 0.0
            self._spread(columns, strengths)
            self.weight += float(strengths.real.sum())
            if w is None:
                strengths[at] = 1.0
        return outside

    def _filled(self, x: Array) -> list[Array]:
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
        place = self.place
        turns: list[Any] = [
            2.0 * np.pi / (m * h) for m, h in zip(place.shape, place.spacing, strict=True)
        ]
        for column, middle, turn in zip(columns, place.centre, turns, strict=True):
            column -= middle
            column *= turn
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._plan.setpts(*columns)
            self._plan.execute(strengths, out=self._part)
        self.grid += self._part.real
