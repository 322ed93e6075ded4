"""The paper's baselines: the exact kernel density estimate and its random Fourier approximation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from .. import kernels
from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks, as_blocks
from ..data.moments import Moments, check_full_rank, moments_of
from ..density.exponent import PointTilt
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.warnings import PoorSampleWarning, PrecisionWarning, warn
from ..statistics.feature_means import accumulate_feature_means
from ..statistics.statistics import Statistics
from ..validation import Array, as_floats, positive, whole, without_far

MOST_DRAWS = 2**21  # tried by FourierKDE.sample before it gives up
TOLERANCE = 1e-10  # of the transforms by which from_data may add features up


class ExactKDE:
    """Gaussian kernels on every row: q(y) = sum_i w_i N(y | x_i, bandwidth^2 covariance) / sum w.

    Parameters
    ----------
    X : rows, as for ``fit``, but not of dask: they are kept
    bandwidth : a number, or "scott": n^(-1/(d+4)), n being Kish's effective number of rows
    covariance : (d, d) shape of the kernel, or "data", that of the rows (as in scipy), or
        "identity"; the paper's kernel is bandwidth=gamma with "identity"
    sample_weight : (n,) non-negative
    backend, n_threads : as for ``accumulate``
    """

    def __init__(
        self,
        X: Any,
        *,
        bandwidth: Any = "scott",
        covariance: Any = "data",
        sample_weight: Any = None,
        backend: str = "auto",
        n_threads: int | None = None,
    ) -> None:
        blocks = Blocks(X, sample_weight=sample_weight)
        facts = moments_of(blocks)
        d = len(facts.mean)
        self.table, self.threads = replace(blocks.table, index=None), Threads(backend, n_threads)
        self.bandwidth = (
            facts.n_effective ** (-1.0 / (d + 4))
            if isinstance(bandwidth, str) and bandwidth == "scott"
            else positive("bandwidth", bandwidth, "scott")
        )
        self.covariance = _kernel_covariance(covariance, facts, blocks.table.columns)
        self._centre = facts.mean
        self._cholesky = self.bandwidth * np.linalg.cholesky(self.covariance)
        rows, weights = [], []
        for x, w in blocks:
            keep = slice(None) if w is None else w > 0
            rows.append(self._whiten(x[keep]))
            weights.append(np.ones(len(x)) if w is None else w[keep])
        self._rows = np.concatenate(rows)
        self._weights = np.concatenate(weights)
        self._plain = bool((self._weights == 1.0).all())

    @property
    def dimension(self) -> int:
        """d."""
        return len(self._centre)

    def _whiten(self, x: Array) -> Array:
        white = solve_triangular(self._cholesky, (x - self._centre).T, lower=True).T
        rows = np.ascontiguousarray(white)
        rows.flags.writeable = False
        return rows

    def log_density(self, Y: Any) -> Any:
        """Log density of every row of Y, (n,), exact to rounding; O(n) work a row."""
        blocks = Blocks(Y, dimension=self.dimension, columns=self.table.columns, name="Y")
        module, count = self.threads.resolve()
        constant = np.log(np.diag(self._cholesky)).sum() + 0.5 * self.dimension * np.log(2 * np.pi)
        constant += np.log(self._weights.sum())
        weights = np.zeros(0) if self._plain else self._weights
        rows, weights = self._rows.view(), weights.view()
        rows.flags.writeable = weights.flags.writeable = False
        parts = []
        for y, _ in blocks:
            value = np.empty(len(y))
            with kernels.threads(module, count):
                module.log_kernel_sums(self._whiten(y), rows, weights, value, count)
            parts.append(value - constant)
        return blocks.table.series(np.concatenate(parts), "log_density")

    def sample(self, n: int, seed: int = 0) -> Any:
        """n rows: a row of the data at random, and noise of the kernel's shape."""
        n, rng = whole("n", n), np.random.default_rng(whole("seed", seed, 0))
        share = self._weights / self._weights.sum()
        index = rng.choice(len(self._rows), size=n, p=None if self._plain else share)
        white = self._rows[index] + rng.standard_normal((n, self.dimension))
        return self.table.frame(self._centre + white @ self._cholesky.T)

    def __repr__(self) -> str:
        rows = f"{len(self._rows):,} rows, d={self.dimension}"
        return f"ExactKDE({rows}, bandwidth={self.bandwidth:.4g})"


class FourierKDE:
    """The kernel density estimate read off statistics: q(y) = c phi(y)^T (sum phi / n).

    It approximates `ExactKDE` with the kernel whose Fourier features these are, better the more
    features; it needs no data, and takes negative values where the approximation errs. They are
    shown as they are by ``density``, and are -inf, with a warning, in ``log_density``.

    Parameters
    ----------
    stats : from ``accumulate``, with features made by ``Features.draw``
    """

    def __init__(
        self, stats: Statistics, *, backend: str = "auto", n_threads: int | None = None
    ) -> None:
        if not isinstance(stats, Statistics):
            raise TypeError(f"stats must be tgpfast.Statistics, got {type(stats).__name__}")
        if stats.n <= 0:
            raise ValueError("the statistics are of no rows")
        mean = stats.sum_x / stats.n
        self._centre = stats.origin + mean
        self._spread = stats.sum_xx / stats.n - np.outer(mean, mean)
        self._learn(stats.features, stats.sum_phi / stats.n, backend, n_threads)

    @classmethod
    def from_data(
        cls,
        X: Any,
        features: Features,
        *,
        sample_weight: Any = None,
        backend: str = "auto",
        n_threads: int | None = None,
    ) -> FourierKDE:
        """From rows, read twice; needs no matrix of features by features, and so serves for any
        number of them.

        Parameters
        ----------
        X, sample_weight : as for ``fit``
        features : drawn, so that their covariance is known: ``Features.draw``
        backend, n_threads : as for ``accumulate``
        """
        if not isinstance(features, Features):
            raise TypeError(f"features must be tgpfast.Features, got {type(features).__name__}")
        blocks = as_blocks(X, sample_weight=sample_weight, dimension=features.dimension)
        if not blocks.can_repeat:
            raise ValueError("X can be read only once, and is read twice; pass a list of blocks")
        facts = moments_of(blocks)
        self = cls.__new__(cls)
        self._centre, self._spread = facts.mean, facts.covariance
        sums = accumulate_feature_means(
            blocks, features, facts.mean, tolerance=TOLERANCE, backend=backend,
            n_threads=n_threads,
        )  # fmt: skip
        self._learn(features, sums.sum_phi / sums.n, backend, n_threads)
        return self

    def _learn(
        self, features: Features, mean_phi: Array, backend: str, n_threads: int | None
    ) -> None:
        if features.covariance is None:
            raise ValueError(
                "the features do not know the covariance their frequencies were drawn from, which "
                "the constant of the kernel needs; make them by Features.draw"
            )
        # the kernel is exp(-r^T V r / (2 gamma^2)), V the covariance of the frequencies
        sign, log_det = np.linalg.slogdet(features.covariance)
        if sign <= 0:
            raise ValueError("the covariance of the frequencies is singular: no density results")
        d = features.dimension
        log_volume = 0.5 * d * np.log(2 * np.pi) + d * np.log(features.bandwidth) - 0.5 * log_det
        self.features, self._constant = features, float(np.exp(-log_volume))
        self._tilt = PointTilt(features, mean_phi, self._centre)
        self.threads = Threads(backend, n_threads)

    @property
    def dimension(self) -> int:
        """d."""
        return self.features.dimension

    def density(self, Y: Any) -> Array:
        """The estimate at every row of Y, (n,), negative values included; 0 for rows so far away
        that their phases overflow."""
        parts, variances = [], np.diag(self._spread) + self.features.bandwidth**2
        for y, _ in Blocks(Y, dimension=self.dimension, name="Y"):
            y, far = without_far(y, self._centre, variances)
            values = self._constant * self._tilt.value(y, self.threads)
            values[far | ~np.isfinite(values)] = 0.0
            parts.append(values)
        return np.concatenate(parts)

    def log_density(self, Y: Any) -> Array:
        """Logarithm of the estimate, (n,); -inf, with a warning, where it is not positive."""
        values = self.density(Y)
        negative = values <= 0.0
        if negative.any():
            warn(
                f"the Fourier estimate is not positive at {int(negative.sum()):,} of "
                f"{len(values):,} rows, where its log density is -inf; more features lessen this, "
                "and ExactKDE does not have it",
                PrecisionWarning,
            )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(values, 0.0)))

    def sample(self, n: int, seed: int = 0) -> Array:
        """n rows from the positive part of the estimate, by resampling draws from a wide Gaussian.

        The Gaussian has the mean of the data and twice the covariance of data and kernel together.
        """
        n, seed = whole("n", n), whole("seed", seed, 0)
        assert self.features.covariance is not None
        kernel = self.features.bandwidth**2 * np.linalg.inv(self.features.covariance)
        wide = GaussianBase(self._centre, 2.0 * (self._spread + 0.5 * (kernel + kernel.T)))
        size = min(max(50 * n, 10_000), MOST_DRAWS)
        draws = wide.sample(size, seed)
        weights = np.maximum(self.density(draws), 0.0) * np.exp(-wide.log_density_at(draws))
        total = float(weights.sum())
        effective = total**2 / float(weights @ weights) if total > 0 else 0.0
        if effective < n:
            warn(
                f"{effective:.3g} effective draws for {n:,} asked for, so that rows repeat; use "
                "ExactKDE.sample",
                PoorSampleWarning,
            )
        if total == 0.0:
            raise ValueError("the estimate is nowhere positive at the draws; use ExactKDE")
        rng = np.random.default_rng(seed + 1)
        return np.asarray(draws[rng.choice(size, size=n, p=weights / total)])

    def __repr__(self) -> str:
        return f"FourierKDE({self.features!r})"


def _kernel_covariance(kind: Any, facts: Moments, columns: list[str] | None) -> Array:
    d = len(facts.mean)
    if isinstance(kind, str):
        if kind == "identity":
            return np.eye(d)
        if kind != "data":
            raise ValueError(
                f"covariance={kind!r}: expected 'data', 'identity' or a ({d}, {d}) array"
            )
        check_full_rank(facts, columns)
        return facts.covariance
    given = as_floats(kind, "covariance", f"({d}, {d})", 2)
    if given.shape != (d, d):
        raise ValueError(f"covariance must be ({d}, {d}), got {given.shape}")
    return GaussianBase(np.zeros(d), given).covariance  # judges it
