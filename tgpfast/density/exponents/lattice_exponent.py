"""The learned exponent on lattice features: f(x) = T(x) sum_k theta_k e^{i w_k . (x - origin)}.

It is put on an oversampled grid once and read from there at any point by a short window, with its
gradient and Laplacian. The taper is applied at the point itself.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ... import kernels
from ...features.grid_values import evaluate_grid
from ...features.lattice import LatticeFeatures
from ...features.lattice_box import tapered_sides
from ...features.lattice_transform import Modes
from ...kernels import read_only
from ...kernels.thread_choice import Threads
from ...runtime.records import record
from ...validation import Array
from .lattice_window import wave_errors, window_pieces, window_transform

# nodes for each one that the waves need; the first whose grid has at most CACHED_NODES is taken.
# Largest errors of a wave along one axis, relative to its size: 2e-8, 5e-8 and 4e-7; of its first
# and second derivative, in units of the highest frequency: 2e-7 to 2e-6, and 3e-6 to 1e-5
OVERSAMPLINGS = (4.0, 3.0, 2.2)
CACHED_NODES = 2**20  # 8 MiB: a grid that stays in the cache
WINDOW_WORK = 4.0  # operations for each node of the window, at each point
POINTS_AT_A_TIME = 2**20  # nodes of a lattice evaluated together


@record
class LatticeTilt:
    """The exponent of a density with lattice features; zero outside the box of open axes.

    Parameters
    ----------
    features : LatticeFeatures
    theta : array of ``features.mode_shape``
        Coefficients of the waves.

    Raises
    ------
    ValueError
        Theta has another shape.

    Examples
    --------
    >>> import numpy as np
    >>> features = LatticeFeatures([2.0], 1, [0.0], walls=("period",))
    >>> tilt = LatticeTilt(features, np.array([0.0, 0.5]))  # cos(pi x)
    >>> tilt.value(np.array([[0.0], [0.25], [3.0]]), Threads("numpy")).round(6).tolist()
    [1.0, 0.707107, -1.0]
    """

    features: LatticeFeatures
    theta: Modes

    def __post_init__(self) -> None:
        theta: Modes = np.array(self.theta, dtype=self.features.mode_dtype)
        if theta.shape != self.features.mode_shape:
            raise ValueError(
                f"theta must have shape {self.features.mode_shape}, got {theta.shape}"
            )
        theta.setflags(write=False)
        object.__setattr__(self, "theta", theta)

    def __getstate__(self) -> dict[str, Any]:
        """Without the grid, which is large and can be made again."""
        return {"features": self.features, "theta": self.theta}

    # -- sizes -----------------------------------------------------------------------------------

    @property
    def origin(self) -> Array:
        """Lower corner of the box, (d,)."""
        return self.features.origin

    @property
    def is_zero(self) -> bool:
        """Whether the density is its base alone."""
        return not self.theta.any()

    @functools.cached_property
    def bound(self) -> float:
        """Sum of the sizes of all waves: the absolute value of the exponent exceeds it nowhere."""
        return float((self.features.multiplicity * np.abs(self.theta)).sum())

    @functools.cached_property
    def variance(self) -> float:
        """Mean square of the sum of waves over the box, without the constant one."""
        squares = self._mean_squares.copy()
        squares[(0,) * squares.ndim] = 0.0
        return float(squares.sum())

    @property
    def _mean_squares(self) -> Array:
        """Mean square of every wave over the box: a cosine has half of its size squared."""
        squares = self.features.multiplicity * np.square(np.abs(self.theta))
        for axis, is_cosine in enumerate(self.features.cosine):
            if is_cosine:
                halves = np.where(np.arange(squares.shape[axis]) > 0, 0.5, 1.0)
                squares *= halves.reshape([-1 if k == axis else 1 for k in range(squares.ndim)])
        return squares

    # -- values ----------------------------------------------------------------------------------

    def value(self, u: Array, threads: Threads) -> Array:
        """The exponent at every row, (n,)."""
        if self.is_zero:
            return np.zeros(len(u))
        return self._interpolate(u, threads, 0)[0]

    def gradient(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        """Value (n,) and gradient (n, d)."""
        value, gradient, _ = self._interpolate(u, threads, 1)
        return value, gradient

    def laplacian(self, u: Array, stretch: Array, threads: Threads) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in u_k, (n,)."""
        return self._interpolate(u, threads, 2, stretch)[2]

    def on_lattice(
        self, corner: Array, steps: Array, shape: tuple[int, ...], threads: Threads
    ) -> Array:
        """The exponent at corner + m @ steps for all m in a box of indices, an array of shape.

        Parameters
        ----------
        corner : (d,) array
        steps : (d, d) array
            Row k is the difference between neighbors along index k.
        shape : (d,) ints
        threads : Threads

        Returns
        -------
        array of this shape
        """
        return evaluate_grid(
            lambda index: self.value(corner + index @ steps, threads), shape, POINTS_AT_A_TIME
        )

    def _interpolate(
        self, u: Array, threads: Threads, order: int, stretch: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Value, gradient and Laplacian; those beyond ``order`` are empty."""
        n, d = u.shape
        module, count = threads.resolve(n * WINDOW_WORK * kernels.WINDOW_NODES**d)
        value, gradient = np.empty(n), np.empty((n if order > 0 else 0, d))
        laplacian = np.empty(n if order > 1 else 0)
        axes, pieces, coefficients = self._interpolant
        by = np.ones(d) if stretch is None else np.array(stretch, dtype=np.float64)
        with kernels.threads(module, count):
            module.interpolate_lattice(
                read_only(u), axes, pieces, coefficients, read_only(by), value, gradient,
                laplacian, count,
            )  # fmt: skip
        return value, gradient, laplacian

    @functools.cached_property
    def oversampling(self) -> float:
        """Nodes of the grid for each one that the waves need."""
        for factor in OVERSAMPLINGS:
            if math.prod(self.features.grid_shape(factor)) <= CACHED_NODES:
                break
        return factor

    @functools.cached_property
    def _interpolant(self) -> tuple[Array, Array, Array]:
        """Axes, pieces of the window and coefficients, as ``interpolate_lattice`` takes them."""
        features, pieces = self.features, window_pieces(self.oversampling)
        shape = features.grid_shape(self.oversampling)
        modes = self.theta
        for axis, angles in enumerate(self._angles(shape)):
            divisor = window_transform(pieces, angles)
            modes = modes / divisor.reshape([-1 if k == axis else 1 for k in range(len(shape))])
        coefficients = features.to_grid(modes, shape)
        rows = []
        for axis, (kind, is_cosine) in enumerate(zip(features.walls, features.cosine, strict=True)):
            half = kernels.WINDOW_NODES // 2
            around = [(half, half) if k == axis else (0, 0) for k in range(len(shape))]
            coefficients = np.pad(coefficients, around, mode="symmetric" if is_cosine else "wrap")
            margins = np.asarray(features.margin)[axis] * np.array(tapered_sides(kind))
            step = features.lengths[axis] / shape[axis]
            rows.append([
                features.origin[axis], step, shape[axis], 0.5 if is_cosine else 0.0, *margins,
                float(kind == "period"),
            ])  # fmt: skip
        padded = coefficients.reshape((1,) * (3 - len(shape)) + coefficients.shape)
        return read_only(np.array(rows, dtype=np.float64)), pieces, read_only(padded)

    def _angles(self, shape: tuple[int, ...]) -> list[Array]:
        """Radians a step of the grid, of the waves along each axis."""
        steps = self.features.lengths / np.array(shape)
        return [w * step for w, step in zip(self.features.frequencies, steps, strict=True)]

    @functools.cached_property
    def interpolation_error(self) -> float:
        """Root mean square over the box of the error of values, at most: that of every wave is
        known, and the errors of two waves have no frequency in common."""
        pieces = window_pieces(self.oversampling)
        angles = self._angles(self.features.grid_shape(self.oversampling))
        errors = [wave_errors(pieces, some) for some in angles]
        sizes = functools.reduce(np.multiply.outer, [1.0 + e for e in errors]) - 1.0
        return math.sqrt(float((self._mean_squares * np.square(sizes)).sum()))
