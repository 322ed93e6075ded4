"""Sums over the modes of a lattice at all nodes of a regular grid, and back: by FFT, and by one
product with a matrix for each axis where that is faster.

Every axis has cosines ("wall" axes) or complex waves. A real function is stored by half of its
waves: the last wave axis keeps k = 0..m, every other one k = 0..m, -m..-1; a cosine axis keeps
k = 0..m. Nodes are at j / N of a wave's period, and at (j + 1/2) / N between two walls.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import Array

PARALLEL_NODES = 2**17  # fewer take less time than handing work to threads
# multiplications a node, up to which products with matrices are faster than FFTs. In microseconds,
# matrices against FFTs: 8 against 30 with 8 x 8 modes and 32 x 32 nodes, 23 against 41 with 16 x 16
# and 64 x 64 (70 a node), 120 against 85 with 32 x 32 and 128 x 128 (130 a node)
MOST_MULTIPLICATIONS = 80
Modes = NDArray[Any]  # complex128, or float64 where every axis is a cosine axis


def wave_numbers(n_modes: Sequence[int], cosine: Sequence[bool]) -> list[NDArray[np.int64]]:
    """The stored k along each axis."""
    half = half_axis(cosine)
    return [
        np.arange(m + 1) if is_cosine or axis == half
        else np.concatenate([np.arange(m + 1), np.arange(-m, 0)])
        for axis, (m, is_cosine) in enumerate(zip(n_modes, cosine, strict=True))
    ]  # fmt: skip


def half_axis(cosine: Sequence[bool]) -> int | None:
    """The last axis with waves, of which k >= 0 is stored; None where all have cosines."""
    waves = [axis for axis, is_cosine in enumerate(cosine) if not is_cosine]
    return waves[-1] if waves else None


class LatticeTransform:
    """Transforms between the modes of a lattice and the nodes of one grid.

    Not for use by several threads at once: buffers are used again.

    Parameters
    ----------
    n_modes : (d,) ints
        Largest k along each axis.
    cosine : (d,) bools
        Whether an axis has cosines.
    steps : (d,) floats
        Angular frequency of k = 1.
    shape : (d,) ints
        Nodes along each axis: more than 2 m of waves, more than m of cosines.
    workers : int, default 1
        Threads of each transform.
    """

    def __init__(
        self, n_modes: Sequence[int], cosine: Sequence[bool], steps: Sequence[float],
        shape: Sequence[int], workers: int = 1,
    ) -> None:  # fmt: skip
        self.n_modes, self.cosine, self.shape = tuple(n_modes), tuple(cosine), tuple(shape)
        self.dimension = len(self.shape)
        self.workers = workers if math.prod(self.shape) >= PARALLEL_NODES else 1
        for m, is_cosine, nodes in zip(self.n_modes, self.cosine, self.shape, strict=True):
            least = m + 1 if is_cosine else 2 * m + 1
            if nodes < least:
                raise ValueError(
                    f"a grid of {nodes} nodes does not resolve {m} modes; use {least} or more"
                )
        self.half = half_axis(self.cosine)
        self._steps = tuple(steps)
        self.mode_shape = tuple(len(k) for k in wave_numbers(self.n_modes, self.cosine))
        self._padded: dict[int, Modes] = {}
        self._uses_matrices = self._multiplications() <= MOST_MULTIPLICATIONS

    @functools.cached_property
    def _frequencies(self) -> list[Any]:
        """Angular frequencies along each axis, in shapes that multiply modes."""
        return [
            (step * k).reshape([-1 if i == axis else 1 for i in range(self.dimension)])
            for axis, (step, k) in enumerate(
                zip(self._steps, wave_numbers(self.n_modes, self.cosine), strict=True)
            )
        ]

    @functools.cached_property
    def _halves(self) -> Any:
        """Factors of modes: scipy's cosine and sine series have a factor of 2 on all but the
        constant term."""
        halves: Any = 1.0
        for axis, is_cosine in enumerate(self.cosine):
            if is_cosine:
                halves = halves * np.where(self._frequencies[axis] > 0.0, 0.5, 1.0)
        return halves

    def _multiplications(self) -> float:
        """Real multiplications a node that matrices take, for one function."""
        sizes, total = list(self.mode_shape), 0.0
        for axis in [k for k in range(self.dimension) if k != self.half]:
            sizes[axis] = self.shape[axis]
            of_numbers = (1 if self.half is None else 2) * (1 if self.cosine[axis] else 2)
            total += of_numbers * math.prod(sizes) * self.mode_shape[axis]
        if self.half is not None:
            total += 2.0 * math.prod(self.shape) * self.mode_shape[self.half]
        return total / math.prod(self.shape)

    def to_grid(self, theta: Modes, derivative: int | None = None) -> Array:
        """f = sum_k theta_k wave_k at every node, or its derivative along an axis.

        Parameters
        ----------
        theta : array of the mode shape
            Leading axes, if there are more, are kept: several functions at once.
        derivative : int, default None
            Axis of the derivative.

        Returns
        -------
        array of the grid's shape
        """
        values = theta
        if derivative is not None:
            factor = self._frequencies[derivative]
            values = values * (-factor if self.cosine[derivative] else 1j * factor)
        if self._uses_matrices and (derivative is None or not self.cosine[derivative]):
            return self._multiply_to_grid(values)
        from scipy import fft  # slow to import, and small lattices do without

        if any(self.cosine):
            values = values * self._halves
        for axis in range(self.dimension):
            if axis != self.half:
                values = self._axis_to_grid(values, axis, axis == derivative)
        if self.half is not None:
            values = fft.irfft(
                values, self.shape[self.half], self.half - self.dimension, norm="forward",
                workers=self.workers,
            )  # fmt: skip
        return np.asarray(values)

    def from_grid(self, values: Array, derivative: int | None = None) -> Modes:
        """sum_j values_j conj(wave_k(x_j)) for every mode: the adjoint of ``to_grid`` in the inner
        product of `LatticeFeatures.inner`.

        Parameters
        ----------
        values : array of the grid's shape
            Real; leading axes are kept.
        derivative : int, default None
            Axis of the derivative whose adjoint is wanted.

        Returns
        -------
        array of the mode shape
        """
        modes: Modes = values
        if self._uses_matrices and (derivative is None or not self.cosine[derivative]):
            modes = self._multiply_from_grid(values)
            return modes if derivative is None else modes * (-1j * self._frequencies[derivative])
        from scipy import fft

        if self.half is not None:
            modes = fft.rfft(modes, axis=self.half - self.dimension, workers=self.workers)
            modes = self._cut(modes, self.half, slice(self.n_modes[self.half] + 1))
        for axis in reversed(range(self.dimension)):
            if axis != self.half:
                modes = self._axis_from_grid(modes, axis, axis == derivative)
        if derivative is not None:
            factor = self._frequencies[derivative]
            modes = modes * (-factor if self.cosine[derivative] else -1j * factor)
        return modes

    def _multiply_to_grid(self, values: Modes) -> Array:
        """``to_grid`` by matrices."""
        for axis in range(self.dimension):
            if axis != self.half:
                matrix = _waves(self.n_modes[axis], self.shape[axis], self.cosine[axis])
                values = self._multiply(matrix, values, axis)
        if self.half is None:
            return values
        m, nodes = self.n_modes[self.half], self.shape[self.half]
        if self.half == self.dimension - 1:
            parts = np.ascontiguousarray(values).reshape(-1, m + 1).view(np.float64)
            return (parts @ _parts_to_nodes(m, nodes)).reshape(*values.shape[:-1], nodes)
        twice = np.where(np.arange(m + 1) > 0, 2.0, 1.0)
        values = self._multiply(_waves(m, nodes, False)[:, : m + 1] * twice, values, self.half)
        return np.ascontiguousarray(values.real)

    def _multiply_from_grid(self, values: Array) -> Modes:
        """``from_grid`` by matrices."""
        modes: Modes = values
        if self.half is not None:
            m, nodes = self.n_modes[self.half], self.shape[self.half]
            if self.half == self.dimension - 1:
                parts = values.reshape(-1, nodes) @ _nodes_to_parts(m, nodes)
                modes = parts.view(np.complex128).reshape(*values.shape[:-1], m + 1)
            else:
                matrix = _waves(m, nodes, False, adjoint=True)[: m + 1]
                modes = self._multiply(matrix, values, self.half)
        for axis in reversed(range(self.dimension)):
            if axis != self.half:
                matrix = _waves(self.n_modes[axis], self.shape[axis], self.cosine[axis], True)
                modes = self._multiply(matrix, modes, axis)
        return modes

    def _multiply(self, matrix: NDArray[Any], values: Modes, axis: int) -> Modes:
        """The product of a matrix with every column along an axis of the lattice."""
        if axis == self.dimension - 1:
            return values @ matrix.T
        if axis == self.dimension - 2:
            return np.matmul(matrix, values)
        at = values.ndim - self.dimension + axis
        lead, rest = values.shape[:at], values.shape[at + 1 :]
        flat = np.matmul(matrix, values.reshape(*lead, matrix.shape[1], -1))
        return flat.reshape(*lead, len(matrix), *rest)

    def _axis_to_grid(self, values: Modes, axis: int, sine: bool) -> Modes:
        from scipy import fft

        m, at = self.n_modes[axis], axis - self.dimension  # leading axes are kept
        shape = list(values.shape)
        shape[at] = self.shape[axis]
        if self.cosine[axis] and sine:
            sines = np.zeros(shape, values.dtype)
            self._cut(sines, axis, slice(m))[...] = self._cut(values, axis, slice(-m, None))
            return np.asarray(fft.dst(sines, 3, axis=at, workers=self.workers))
        padded = self._padded.get(axis)
        if padded is None or padded.shape != tuple(shape) or padded.dtype != values.dtype:
            padded = self._padded[axis] = np.zeros(shape, values.dtype)
        self._cut(padded, axis, slice(m + 1))[...] = self._cut(values, axis, slice(m + 1))
        if self.cosine[axis]:
            return np.asarray(fft.dct(padded, 3, axis=at, workers=self.workers))
        self._cut(padded, axis, slice(-m, None))[...] = self._cut(values, axis, slice(-m, None))
        return np.asarray(fft.ifft(padded, axis=at, norm="forward", workers=self.workers))

    def _axis_from_grid(self, values: Modes, axis: int, sine: bool) -> Modes:
        from scipy import fft

        m, at = self.n_modes[axis], axis - self.dimension
        if not self.cosine[axis]:
            waves = fft.fft(values, axis=at, workers=self.workers)
            kept = self._cut(waves, axis, slice(m + 1)), self._cut(waves, axis, slice(-m, None))
            return np.concatenate(kept, axis=at)
        if not sine:
            cosines = fft.dct(values, 2, axis=at, workers=self.workers)
            return np.asarray(0.5 * self._cut(cosines, axis, slice(m + 1)))
        sines = fft.dst(values, 2, axis=at, workers=self.workers)
        nothing = np.zeros_like(self._cut(values, axis, slice(1)))
        return np.concatenate([nothing, 0.5 * self._cut(sines, axis, slice(m))], axis=at)

    def _cut(self, array: Modes, axis: int, part: slice) -> Modes:
        """A part along an axis of the lattice, as a view."""
        places: tuple[Any, ...] = (part, *(slice(None),) * (self.dimension - 1 - axis))
        return array[(..., *places)]


def fast_length(n: int) -> int:
    """The smallest number >= n without prime factors above 5, at which FFTs are fast.

    As `scipy.fft.next_fast_len` for real transforms, whose module is slow to import.

    Examples
    --------
    >>> [fast_length(n) for n in (1, 7, 17, 1021)]
    [1, 8, 18, 1024]
    """
    best, odd = 2 * n, 1
    while odd < best:  # odd numbers without other factors than 3 and 5
        factor = odd
        while factor < best:
            best = min(best, factor << (-(-n // factor) - 1).bit_length())
            factor *= 3
        odd *= 5
    return best


# -- matrices of small lattices ------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _waves(m: int, nodes: int, cosine: bool, adjoint: bool = False) -> NDArray[Any]:
    """Waves of one axis at the nodes, (nodes, modes), or the adjoint."""
    numbers = wave_numbers([m, m], [cosine, cosine])[0]  # all of them, since the last has half
    if cosine:
        matrix = np.cos(np.pi * np.outer(np.arange(nodes) + 0.5, numbers) / nodes)
    else:
        matrix = np.exp(2j * np.pi / nodes * (np.outer(np.arange(nodes), numbers) % nodes))
    return np.ascontiguousarray(matrix.conj().T) if adjoint else matrix


@functools.lru_cache(maxsize=64)
def _parts_to_nodes(m: int, nodes: int) -> Array:
    """Matrix (2 m + 2, nodes) by which the parts of the modes k = 0..m become a real function."""
    waves = _waves(m, nodes, False)[:, : m + 1] * np.where(np.arange(m + 1) > 0, 2.0, 1.0)
    return np.ascontiguousarray(waves.conj()).view(np.float64).T.copy()


@functools.lru_cache(maxsize=64)
def _nodes_to_parts(m: int, nodes: int) -> Array:
    """Matrix (nodes, 2 m + 2) by which a real function becomes the parts of the modes k = 0..m."""
    return np.ascontiguousarray(_waves(m, nodes, False)[:, : m + 1].conj()).view(np.float64)
