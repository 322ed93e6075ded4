"""The learned exponent of a density: a sum of cosines, or FVPD's quadratic form in the features.

Both answer the same three questions at rows u of the model's coordinates: value, gradient and
Laplacian. The angles are taken about ``origin``, near the data, so that far offsets cost no digits.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg.blas import dtrsm

from .. import kernels
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics import costs
from ..validation import Array
from .waves import Waves, at_points, on_lattice, point_waves, quadratic_waves, usable

BLAS_FEATURES = 400  # from here on threads of BLAS pay in the triangular solves
WAVE_SECONDS = 4e-7  # to make one of the S^2 waves of FVPD
LATTICE_ROWS = 2**18  # nodes of a lattice evaluated together where no transform serves
BLOCK = 2_048  # rows of the S x rows arrays of FVPD's derivatives


def _read_only(array: Array) -> Array:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False  # always: Numba compiles a kernel again for a read-only argument
    return view


def _angles(features: Features, origin: Array) -> tuple[Array, Array, Array]:
    """(origin, frequencies, phases) such that the angle is frequencies . (x - origin) + phases.

    Fresh arrays, writable as those of the direct engine: one compiled kernel serves both.
    """
    frequencies = features.frequencies / features.bandwidth
    return np.array(origin), frequencies, features.phases + frequencies @ origin


class _Evaluated:
    """Value and gradient by a transform where that is cheaper, term by term otherwise."""

    features: Features
    origin: Array

    @property
    def amplitude(self) -> float:
        """sqrt(2 / S)."""
        return float(np.sqrt(2.0 / self.features.n_features))

    def value(self, u: Array, threads: Threads) -> Array:
        """The exponent at every row, (n,)."""
        if self.is_zero:
            return np.zeros(len(u))
        fast = self._by_waves(u, threads, 1.0, lambda v: self._terms(v, threads)[:, None], False)
        return self._terms(u, threads) if fast is None else fast

    def gradient(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        """Value (n,) and gradient (n, d)."""
        fast = self._by_waves(
            u, threads, self._slope_cost, lambda v: np.column_stack(self._slopes(v, threads)), True
        )
        if fast is None:
            return self._slopes(u, threads)
        return fast[:, 0], np.ascontiguousarray(fast[:, 1:])

    def on_lattice(
        self, corner: Array, steps: Array, shape: tuple[int, ...], threads: Threads
    ) -> Array:
        """The exponent at corner + m @ steps for all m in a box of indices, an array of shape.

        steps : (d, d), one row for each index
        """
        nodes = math.prod(shape)
        if self.is_zero:
            return np.zeros(shape)
        if self._pays(nodes * self._row_cost):
            fast = on_lattice(self.waves, corner - self.origin, steps, shape)
            if fast is not None:
                return fast
        values = np.empty(nodes)
        for start in range(0, nodes, LATTICE_ROWS):
            some = np.arange(start, min(start + LATTICE_ROWS, nodes))
            index = np.stack(np.unravel_index(some, shape), axis=-1)
            values[some] = self._terms(corner + index @ steps, threads)
        return values.reshape(shape)

    def _by_waves(
        self,
        u: Array,
        threads: Threads,
        factor: float,
        direct: Callable[[Array], Array],
        gradient: bool,
    ) -> Array | None:
        if not usable(self.features.dimension, len(u)):
            return None
        row_cost = factor * self._row_cost
        if not self._pays(len(u) * row_cost):
            return None
        return at_points(
            self.waves, u - self.origin, threads, row_cost, lambda rows: direct(u[rows]),
            gradient=gradient,
        )  # fmt: skip

    # of the children: ``waves``; seconds of one row term by term, and of its gradient as a multiple
    # of that; whether so many seconds repay the making of the waves; both term by term
    _slope_cost: float

    @property
    def is_zero(self) -> bool:
        """Whether the density is its base alone."""
        return False

    @functools.cached_property
    def bound(self) -> float:
        """A number that the absolute value of the exponent exceeds nowhere."""
        raise NotImplementedError

    @functools.cached_property
    def variance(self) -> float:
        """Of the exponent over all space: what it is like far from all rows."""
        return 0.5 * float(np.square(np.abs(self.waves.strengths)).sum())

    @functools.cached_property
    def waves(self) -> Waves:
        raise NotImplementedError

    @property
    def _row_cost(self) -> float:
        raise NotImplementedError

    def _pays(self, seconds: float) -> bool:
        return True

    def _terms(self, u: Array, threads: Threads) -> Array:
        raise NotImplementedError

    def _slopes(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class PointTilt(_Evaluated):
    """theta^T phi(x)."""

    features: Features
    theta: Array
    origin: Array

    @functools.cached_property
    def waves(self) -> Waves:
        """The same function as plane waves, for evaluation by a transform."""
        return point_waves(self.features, self.theta, self.origin)

    @property
    def _row_cost(self) -> float:
        return costs.COSTS.tilt_row(self.features)

    @property
    def is_zero(self) -> bool:
        """Whether the density is its base alone."""
        return not self.theta.any()

    @functools.cached_property
    def bound(self) -> float:
        """sqrt(2 / S) sum |theta|."""
        return self.amplitude * float(np.abs(self.theta).sum())

    _slope_cost = 1.5

    def _terms(self, u: Array, threads: Threads) -> Array:
        return self._cosines(u, self.amplitude * self.theta, threads)

    def _slopes(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        module, count = threads.resolve()
        value, gradient = np.empty(len(u)), np.empty((len(u), self.features.dimension))
        with kernels.threads(module, count):
            module.tilt_gradient(
                _read_only(u), *_angles(self.features, self.origin),
                self.amplitude * self.theta, value, gradient, count,
            )  # fmt: skip
        return value, gradient

    def laplacian(self, u: Array, stretch: Array, threads: Threads) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in u_k, (n,)."""
        norms = _norms(self.features, stretch)
        return self._cosines(u, -self.amplitude * self.theta * norms, threads)

    def _cosines(self, u: Array, coefficients: Array, threads: Threads) -> Array:
        module, count = threads.resolve()
        value = np.empty(len(u))
        with kernels.threads(module, count):
            module.tilt(
                _read_only(u), *_angles(self.features, self.origin), coefficients, value, count,
            )  # fmt: skip
        return value


@dataclass(frozen=True, eq=False)
class PredictiveTilt(_Evaluated):
    """phi^T M^-1 phi / 2 - phi^T M^-1 m, with M = factor factor^T."""

    features: Features
    factor: Array  # (S, S) lower triangular
    m: Array
    origin: Array
    linear: Array = field(init=False, repr=False)  # -M^-1 m

    def __post_init__(self) -> None:
        object.__setattr__(self, "linear", -self._divide(self.m[:, None])[:, 0])

    @property
    def M(self) -> Array:
        """Sigma_phi + Sigma-hat^-1 (Eq. predictive), from its Cholesky factor."""
        matrix: Array = self.factor @ self.factor.T
        return matrix

    @functools.cached_property
    def waves(self) -> Waves:
        """The same function as plane waves, for evaluation by a transform."""
        inverse = self._divide(np.eye(self.features.n_features))
        return quadratic_waves(self.features, inverse, self.linear, self.origin)

    @property
    def _row_cost(self) -> float:
        return costs.COSTS.quadratic_row(self.features)

    @functools.cached_property
    def bound(self) -> float:
        """lambda_max(M^-1) + sqrt(2) |M^-1 m|, since |phi|^2 <= 2."""
        from scipy.linalg import eigh

        least = eigh(self.M, eigvals_only=True, subset_by_index=[0, 0], check_finite=False)[0]
        return 1.0 / float(least) + float(np.sqrt(2.0) * np.linalg.norm(self.linear))

    _slope_cost = 2.0

    def _pays(self, seconds: float) -> bool:
        """The waves are made once: an inverse, and S^2 of them in memory."""
        return "waves" in self.__dict__ or seconds > self.features.n_features**2 * WAVE_SECONDS

    def _terms(self, u: Array, threads: Threads) -> Array:
        return self._forms(u, threads)

    def _forms(self, u: Array, threads: Threads) -> Array:
        module, count = threads.resolve()
        value = np.empty(len(u))
        blocks = np.empty((count, self.features.n_features, kernels.ROW_TILE))
        with kernels.threads(module, count):
            module.quadratic_tilt(
                _read_only(u), *_angles(self.features, self.origin), self.amplitude,
                _read_only(self.factor), _read_only(self.linear), value, blocks, count,
            )  # fmt: skip
        return value

    def _slopes(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        """The gradient is J^T (M^-1 phi - M^-1 m), J = diag(phi') Z / gamma."""
        value, gradient = np.empty(len(u)), np.empty((len(u), self.features.dimension))
        frequencies = self.features.frequencies / self.features.bandwidth
        with self._blas(threads):
            for part, phi, dphi in self._features(u, threads):
                pull = self._divide(phi)
                value[part] = np.einsum("si,si->i", phi, 0.5 * pull + self.linear[:, None])
                pull += self.linear[:, None]
                pull *= dphi
                gradient[part] = pull.T @ frequencies
        return value, gradient

    def _blas(self, threads: Threads) -> contextlib.AbstractContextManager[None]:
        """BLAS on one thread for few features: its waiting threads cost more than they do."""
        if self.features.n_features >= BLAS_FEATURES:
            return contextlib.nullcontext()
        module, count = threads.resolve()
        hold: contextlib.AbstractContextManager[None] = kernels.threads(module, count)
        return hold

    def laplacian(self, u: Array, stretch: Array, threads: Threads) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in u_k, (n,).

        The trace of J^T M^-1 J is the quadratic form phi'^T (ZZ^T/gamma^2 * M^-1) phi'.
        """
        z = self.features.frequencies * stretch / self.features.bandwidth
        mixed = (z @ z.T) * self._divide(np.eye(self.features.n_features))
        norms, value = _norms(self.features, stretch), np.empty(len(u))
        for part, phi, dphi in self._features(u, threads):
            pull = self._divide(phi) + self.linear[:, None]
            value[part] = np.einsum("si,si->i", dphi, mixed @ dphi) - norms @ (phi * pull)
        return value

    def _divide(self, block: Array) -> Array:
        """M^-1 block, through BLAS on the transposes, so that C-ordered arrays are not copied."""
        upper = self.factor.T
        half = dtrsm(1.0, upper, block.T, side=1)
        whole: Array = dtrsm(1.0, upper, half, side=1, trans_a=1, overwrite_b=1).T
        return whole

    def _features(self, u: Array, threads: Threads) -> Iterator[tuple[slice, Array, Array]]:
        """(rows, phi, phi') of blocks of rows, (S, n) each."""
        for part, phi, dphi, _ in _feature_blocks(self.features, u, None, self.origin, threads):
            yield part, phi, dphi


Tilt = PointTilt | PredictiveTilt


def _norms(features: Features, stretch: Array) -> Array:
    """|stretch * z_s|^2 / gamma^2, (S,)."""
    z = features.frequencies * stretch / features.bandwidth
    norms: Array = np.einsum("sk,sk->s", z, z)
    return norms


def weighted_features(
    features: Features, u: Array, weights: Array, origin: Array, threads: Threads
) -> Array:
    """Sum of weights_i phi(u_i), (S,)."""
    total = np.zeros(features.n_features)
    for _, _, _, sums in _feature_blocks(features, u, weights, origin, threads):
        total += sums
    return total


def _feature_blocks(
    features: Features, u: Array, weights: Array | None, origin: Array, threads: Threads
) -> Iterator[tuple[slice, Array, Array, Array]]:
    """(rows, phi, phi', weighted sum of phi) of blocks of rows; the arrays are used again."""
    module, count = threads.resolve()
    S, d = features.frequencies.shape
    amplitude, rows = float(np.sqrt(2.0 / S)), min(BLOCK, len(u))
    root = _read_only(np.zeros(0) if weights is None else np.sqrt(weights))
    phi, dphi = np.empty((S, rows)), np.empty((S, rows))
    for start in range(0, len(u), BLOCK):
        part = slice(start, min(start + BLOCK, len(u)))
        sums = np.zeros(S)
        with kernels.threads(module, count):
            module.feature_block(
                _read_only(u[part]), root[part], *_angles(features, origin), amplitude, dphi, phi,
                sums, np.zeros(S), np.zeros((S, d)), count,
            )  # fmt: skip
        n = part.stop - start
        yield part, phi[:, :n], dphi[:, :n], sums
