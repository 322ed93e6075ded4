"""The learned exponent f of a density: a sum of cosines, or FVPD's quadratic form in the features.

Both answer the same questions at rows u of the model's coordinates: value, gradient and Laplacian.
Angles are taken about ``origin``, near the data, so that data far from zero lose no digits.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.blas import dtrsm

from ... import kernels
from ...features.evaluation import Angles, feature_blocks
from ...features.grid_values import evaluate_grid
from ...features.random import Features
from ...kernels import read_only
from ...kernels.thread_choice import COSINE_WORK, Threads
from ...runtime.records import record
from ...validation import Array
from .lattice_exponent import LatticeTilt

if TYPE_CHECKING:
    from .plane_waves import PlaneWaves

BLAS_FEATURES = 400  # with fewer features one thread of BLAS solves triangular systems faster
WAVE_SECONDS = 4e-7  # time to make one of the S^2 waves of FVPD
LATTICE_CHUNK_NODES = 2**18  # nodes of a lattice evaluated together term by term


class Exponent(abc.ABC):
    """A learned exponent f(u). Evaluates by a transform where that is faster, else term by term."""

    features: Features
    origin: Array

    # -- the interface of densities ---------------------------------------------------------------

    @property
    def amplitude(self) -> float:
        """Factor sqrt(2 / S) of the features."""
        return float(np.sqrt(2.0 / self.features.n_features))

    @property
    def is_zero(self) -> bool:
        """Whether the density is its base alone."""
        return False

    @property
    @abc.abstractmethod
    def bound(self) -> float:
        """A number that |f| exceeds nowhere."""

    @functools.cached_property
    def variance(self) -> float:
        """Variance of f over all space: its size far from all rows."""
        return 0.5 * float(np.square(np.abs(self.waves.strengths)).sum())

    def value(self, u: Array, threads: Threads) -> Array:
        """f at every row of u, (n,)."""
        if self.is_zero:
            return np.zeros(len(u))
        found = self._by_transform(u, threads, gradient=False)
        return self.value_directly(u, threads) if found is None else found[:, 0]

    def gradient(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        """f (n,) and its gradient (n, d) at every row of u."""
        found = self._by_transform(u, threads, gradient=True)
        if found is None:
            return self.gradient_directly(u, threads)
        return found[:, 0], np.ascontiguousarray(found[:, 1:])

    @abc.abstractmethod
    def laplacian(self, u: Array, stretch: Array, threads: Threads) -> Array:
        """Sum over k of stretch_k^2 times the second derivative of f in u_k, (n,)."""

    def on_lattice(
        self, corner: Array, steps: Array, shape: tuple[int, ...], threads: Threads
    ) -> Array:
        """f at corner + m @ steps for all index vectors m of a box, an array of ``shape``.

        steps : array, (d, d); row k is the difference between neighbors along index k
        """
        from .plane_waves import evaluate_waves_on_lattice

        if self.is_zero:
            return np.zeros(shape)
        if self._repays_waves(math.prod(shape) * self.row_seconds):
            found = evaluate_waves_on_lattice(self.waves, corner - self.origin, steps, shape)
            if found is not None:
                return found
        return evaluate_grid(
            lambda index: self.value_directly(corner + index @ steps, threads), shape,
            LATTICE_CHUNK_NODES,
        )  # fmt: skip

    # -- transforms -------------------------------------------------------------------------------

    gradient_cost: float  # time of value and gradient, in times of a value

    @functools.cached_property
    @abc.abstractmethod
    def waves(self) -> PlaneWaves:
        """The same function as plane waves about the origin."""

    @property
    @abc.abstractmethod
    def row_seconds(self) -> float:
        """Time of a value at one row, term by term."""

    @abc.abstractmethod
    def value_directly(self, u: Array, threads: Threads) -> Array:
        """f at every row, (n,), term by term."""

    @abc.abstractmethod
    def gradient_directly(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        """f (n,) and its gradient (n, d) at every row, term by term."""

    def _repays_waves(self, seconds: float) -> bool:
        """Whether saving up to so much time repays the making of the waves."""
        return True

    def _by_transform(self, u: Array, threads: Threads, *, gradient: bool) -> Array | None:
        """Values (n, 1), or with gradients (n, 1 + d); None where a transform does not serve."""
        from .plane_waves import evaluate_waves, transform_is_usable

        if not transform_is_usable(self.features.dimension, len(u)):
            return None
        row_seconds = self.row_seconds * (self.gradient_cost if gradient else 1.0)
        if not self._repays_waves(len(u) * row_seconds):
            return None

        def evaluate_directly(rows: Array) -> Array:
            if gradient:
                return np.column_stack(self.gradient_directly(u[rows], threads))
            return self.value_directly(u[rows], threads)[:, None]

        return evaluate_waves(
            self.waves, u - self.origin, threads, row_seconds, evaluate_directly, gradient=gradient
        )


@record
class PointTilt(Exponent):
    """f(x) = theta^T phi(x), the exponent of FD, NCFD and MAP (Eq. density of the paper).

    Parameters
    ----------
    features : Features
    theta : array, (S,)
    origin : array, (d,)
        A point near the data.
    """

    features: Features
    theta: Array
    origin: Array

    gradient_cost = 1.5

    @property
    def is_zero(self) -> bool:
        """Whether the density is its base alone."""
        return not self.theta.any()

    @functools.cached_property
    def bound(self) -> float:
        """sqrt(2 / S) sum |theta|."""
        return self.amplitude * float(np.abs(self.theta).sum())

    @functools.cached_property
    def waves(self) -> PlaneWaves:
        """The same function as S plane waves about the origin."""
        from .plane_waves import waves_of_point

        return waves_of_point(self.features, self.theta, self.origin)

    @property
    def row_seconds(self) -> float:
        """Time of a value at one row, term by term."""
        from ...statistics import costs

        return costs.COSTS.tilt_row(self.features)

    def value_directly(self, u: Array, threads: Threads) -> Array:
        """f at every row, (n,), term by term."""
        return self._sum_cosines(u, self.amplitude * self.theta, threads)

    def gradient_directly(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        """f (n,) and its gradient (n, d), Eq. nabx without the base, term by term."""
        (n, d), S = u.shape, self.features.n_features
        module, count = threads.resolve(n * S * (COSINE_WORK + 4.0 * d))
        value, gradient = np.empty(n), np.empty((n, d))
        with kernels.threads(module, count):
            module.tilt_gradient(
                read_only(u), *Angles.of(self.features, self.origin)[:3],
                self.amplitude * self.theta, value, gradient, count,
            )  # fmt: skip
        return value, gradient

    def laplacian(self, u: Array, stretch: Array, threads: Threads) -> Array:
        """Sum over k of stretch_k^2 times the second derivative of f in u_k, (n,), Eq. nabxx."""
        norms = _squared_norms(self.features, stretch)
        return self._sum_cosines(u, -self.amplitude * self.theta * norms, threads)

    def _sum_cosines(self, u: Array, coefficients: Array, threads: Threads) -> Array:
        (n, d), S = u.shape, self.features.n_features
        module, count = threads.resolve(n * S * (COSINE_WORK + 2.0 * d))
        value = np.empty(n)
        with kernels.threads(module, count):
            module.tilt(
                read_only(u), *Angles.of(self.features, self.origin)[:3], coefficients, value,
                count,
            )  # fmt: skip
        return value


@record
class PredictiveTilt(Exponent):
    """f(x) = phi^T M^-1 phi / 2 - phi^T M^-1 m, the exponent of FVPD (Eq. predictive).

    Parameters
    ----------
    features : Features
    factor : array, (S, S)
        Lower triangular Cholesky factor of M.
    m : array, (S,)
    origin : array, (d,)
        A point near the data.

    Attributes
    ----------
    linear : array, (S,)
        -M^-1 m.
    """

    features: Features
    factor: Array
    m: Array
    origin: Array

    gradient_cost = 2.0

    @functools.cached_property
    def linear(self) -> Array:
        """-M^-1 m, (S,)."""
        return np.asarray(-self._solve(self.m[:, None])[:, 0])

    @property
    def M(self) -> Array:
        """Sigma_phi + Sigma-hat^-1 (Eq. predictive), from its Cholesky factor."""
        return self.factor @ self.factor.T

    @functools.cached_property
    def bound(self) -> float:
        """lambda_max(M^-1) + sqrt(2) |M^-1 m|, since |phi|^2 <= 2."""
        from scipy.linalg import eigh

        least = eigh(self.M, eigvals_only=True, subset_by_index=[0, 0], check_finite=False)[0]
        return 1.0 / float(least) + float(np.sqrt(2.0) * np.linalg.norm(self.linear))

    @functools.cached_property
    def waves(self) -> PlaneWaves:
        """The same function as S^2 plane waves about the origin."""
        from .plane_waves import waves_of_quadratic

        inverse = self._solve(np.eye(self.features.n_features))
        return waves_of_quadratic(self.features, inverse, self.linear, self.origin)

    @property
    def row_seconds(self) -> float:
        """Time of a value at one row, term by term."""
        from ...statistics import costs

        return costs.COSTS.quadratic_row(self.features)

    def _repays_waves(self, seconds: float) -> bool:
        """The waves are made once: an inverse, and S^2 of them in memory."""
        return "waves" in self.__dict__ or seconds > self.features.n_features**2 * WAVE_SECONDS

    def value_directly(self, u: Array, threads: Threads) -> Array:
        """f at every row, (n,), by a triangular solve."""
        S = self.features.n_features
        module, count = threads.resolve(len(u) * S * (COSINE_WORK + S))
        value = np.empty(len(u))
        blocks = np.empty((count, S, kernels.ROW_TILE))
        with kernels.threads(module, count):
            module.quadratic_tilt(
                read_only(u), *Angles.of(self.features, self.origin),
                read_only(self.factor), read_only(self.linear), value, blocks, count,
            )  # fmt: skip
        return value

    def gradient_directly(self, u: Array, threads: Threads) -> tuple[Array, Array]:
        """f (n,) and its gradient J^T (M^-1 phi - M^-1 m), J = diag(phi') Z / gamma, (n, d)."""
        value, gradient = np.empty(len(u)), np.empty((len(u), self.features.dimension))
        frequencies = self.features.frequencies / self.features.bandwidth
        with self._limit_blas(threads):
            for rows, phi, dphi in self._feature_blocks(u, threads):
                solved = self._solve(phi)
                value[rows] = np.einsum("si,si->i", phi, 0.5 * solved + self.linear[:, None])
                solved += self.linear[:, None]
                solved *= dphi
                gradient[rows] = solved.T @ frequencies
        return value, gradient

    def laplacian(self, u: Array, stretch: Array, threads: Threads) -> Array:
        """Sum over k of stretch_k^2 times the second derivative of f in u_k, (n,).

        The trace of J^T M^-1 J is the quadratic form phi'^T (ZZ^T/gamma^2 * M^-1) phi'.
        """
        z = self.features.frequencies * stretch / self.features.bandwidth
        mixed = (z @ z.T) * self._solve(np.eye(self.features.n_features))
        norms, value = _squared_norms(self.features, stretch), np.empty(len(u))
        for rows, phi, dphi in self._feature_blocks(u, threads):
            slope = self._solve(phi) + self.linear[:, None]
            value[rows] = np.einsum("si,si->i", dphi, mixed @ dphi) - norms @ (phi * slope)
        return value

    def _feature_blocks(self, u: Array, threads: Threads) -> Iterator[tuple[slice, Array, Array]]:
        """(rows, phi (S, n), phi' (S, n)) of blocks of rows."""
        return feature_blocks(self.features, u, origin=self.origin, threads=threads)

    def _solve(self, block: Array) -> Array:
        """M^-1 block, by BLAS on the transposes, so that C-ordered arrays are not copied."""
        upper = self.factor.T
        half = dtrsm(1.0, upper, block.T, side=1)
        return dtrsm(1.0, upper, half, side=1, trans_a=1, overwrite_b=1).T

    def _limit_blas(self, threads: Threads) -> contextlib.AbstractContextManager[None]:
        """BLAS on one thread for few features: its waiting threads cost more than they do."""
        if self.features.n_features >= BLAS_FEATURES:
            return contextlib.nullcontext()
        return kernels.threads(*threads.resolve())


Tilt = PointTilt | PredictiveTilt | LatticeTilt


def _squared_norms(features: Features, stretch: Array) -> Array:
    """|stretch * z_s|^2 / gamma^2, (S,)."""
    z = features.frequencies * stretch / features.bandwidth
    return np.einsum("sk,sk->s", z, z)
