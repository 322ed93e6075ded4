"""The kernel density estimate by random Fourier features, a baseline of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks, as_blocks
from ..data.moments import compute_moments
from ..density.exponents.exponent import PointTilt
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.warnings import PoorSampleWarning, PrecisionWarning, warn
from ..statistics.feature_means import accumulate_feature_means
from ..statistics.statistics import Statistics, check_features
from ..validation import Array, Seed, as_seed, whole, without_far

# rows that `sample` draws from a wide Gaussian for every row asked for, and limits of their number
PROPOSALS_PER_ROW, LEAST_PROPOSALS, MOST_PROPOSALS = 50, 10_000, 2**21
TRANSFORM_TOLERANCE = 1e-10  # relative error of sums that `from_data` makes by a Fourier transform


class FourierKDE:
    """Kernel density estimate from the mean of random features: q(y) = c phi(y)^T (sum phi / n).

    It approximates `ExactKDE`, better with more features, and needs the statistics only. Where the
    approximation is poor it is negative: ``density`` returns the negative values, ``log_density``
    returns -inf with a warning.

    Parameters
    ----------
    stats : Statistics
        From ``accumulate``, with features made by ``Features.draw``.
    backend : str, default "auto"
        See ``accumulate``.
    n_threads : int, default None
        See ``accumulate``.

    Raises
    ------
    TypeError
        If ``stats`` are no `Statistics`.
    ValueError
        If they have no rows, or their features do not know the covariance of their frequencies.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(size=(500, 1))
    >>> features = tgpfast.Features.draw(2_000, 0.5, np.eye(1), seed=0)
    >>> kde = tgpfast.FourierKDE.from_data(x, features)
    >>> exact = tgpfast.ExactKDE(x, bandwidth=0.5, covariance="identity")
    >>> bool(abs(kde.density([[0.0]])[0] - np.exp(exact.log_density([[0.0]])[0])) < 0.05)
    True
    """

    def __init__(
        self, stats: Statistics, *, backend: str = "auto", n_threads: int | None = None
    ) -> None:
        if not isinstance(stats, Statistics):
            raise TypeError(f"stats must be tgpfast.Statistics, got {type(stats).__name__}")
        if stats.n <= 0:
            raise ValueError("the statistics have no rows")
        mean = stats.sum_x / stats.n
        self._center = stats.origin + mean
        self._spread = stats.sum_xx / stats.n - np.outer(mean, mean)
        self._set_up(stats.features, stats.sum_phi / stats.n, backend, n_threads)

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
        """Make the estimate from rows, without the S x S matrix of ``accumulate``.

        The rows are read twice.

        Parameters
        ----------
        X : rows
            As for ``fit``, but no iterator that can be read only once.
        features : Features
            Made by ``Features.draw``, so that the covariance of the frequencies is known.
        sample_weight : array of shape (n,), default None
            Non-negative weights of the rows.
        backend : str, default "auto"
            See ``accumulate``.
        n_threads : int, default None
            See ``accumulate``.

        Returns
        -------
        FourierKDE

        Raises
        ------
        ValueError
            If X can be read only once, or the features do not know the covariance of their
            frequencies.
        """
        d = check_features(features).dimension
        blocks = as_blocks(X, sample_weight=sample_weight, dimension=d)
        if not blocks.can_repeat:
            raise ValueError("X can be read only once, and is read twice; pass a list of blocks")
        moments = compute_moments(blocks)
        self = cls.__new__(cls)
        self._center, self._spread = moments.mean, moments.covariance
        sums = accumulate_feature_means(
            blocks, features, moments.mean, tolerance=TRANSFORM_TOLERANCE, backend=backend,
            n_threads=n_threads,
        )  # fmt: skip
        self._set_up(features, sums.sum_phi / sums.n, backend, n_threads)
        return self

    def _set_up(
        self, features: Features, mean_phi: Array, backend: str, n_threads: int | None
    ) -> None:
        if features.covariance is None:
            raise ValueError(
                "the covariance of the features' frequencies is unknown, and the constant of the "
                "kernel depends on it; make the features with Features.draw"
            )
        # the kernel is exp(-r^T V r / (2 gamma^2)), V the covariance of the frequencies
        sign, log_det = np.linalg.slogdet(features.covariance)
        if sign <= 0:
            raise ValueError("the covariance of the frequencies is singular: there is no density")
        d = features.dimension
        log_volume = 0.5 * d * np.log(2 * np.pi) + d * np.log(features.bandwidth) - 0.5 * log_det
        self.features, self._constant = features, float(np.exp(-log_volume))
        self._tilt = PointTilt(features, mean_phi, self._center)
        self.threads = Threads(backend, n_threads)

    @property
    def dimension(self) -> int:
        """Number of columns d."""
        return self.features.dimension

    def density(self, Y: Any) -> Array:
        """The estimate at every row of Y, which may be negative.

        Parameters
        ----------
        Y : rows
            As for ``fit``.

        Returns
        -------
        ndarray of shape (n,)
            0 for rows so far away that the features overflow.
        """
        parts, variances = [], np.diag(self._spread) + self.features.bandwidth**2
        for y, _ in Blocks(Y, dimension=self.dimension, name="Y"):
            y, far = without_far(y, self._center, variances)
            values = self._constant * self._tilt.value(y, self.threads)
            values[far | ~np.isfinite(values)] = 0.0
            parts.append(values)
        return np.concatenate(parts)

    def log_density(self, Y: Any) -> Array:
        """Logarithm of the estimate at every row of Y.

        Parameters
        ----------
        Y : rows
            As for ``fit``.

        Returns
        -------
        ndarray of shape (n,)
            -inf, with a warning, where the estimate is not positive.
        """
        values = self.density(Y)
        negative = values <= 0.0
        if negative.any():
            warn(
                f"the Fourier estimate is not positive at {int(negative.sum()):,} of "
                f"{len(values):,} rows, where its log density is -inf; use more features, or "
                "ExactKDE",
                PrecisionWarning,
            )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(values, 0.0)))

    def sample(self, n: int, seed: Seed = None) -> Array:
        """Draw rows from the positive part of the estimate, by resampling draws of a wide Gaussian.

        The Gaussian has the mean of the data and twice the covariance of data and kernel together.

        Parameters
        ----------
        n : int
            Number of rows.
        seed : int, None or numpy.random.Generator, default None
            None draws new rows at every call.

        Returns
        -------
        ndarray of shape (n, d)

        Raises
        ------
        ValueError
            If the estimate is not positive at any draw.
        """
        n, seed = whole("n", n), as_seed(seed)
        assert self.features.covariance is not None
        kernel = self.features.bandwidth**2 * np.linalg.inv(self.features.covariance)
        wide = GaussianBase(self._center, 2.0 * (self._spread + 0.5 * (kernel + kernel.T)))
        size = min(max(PROPOSALS_PER_ROW * n, LEAST_PROPOSALS), MOST_PROPOSALS)
        draws = wide.sample(size, seed)
        weights = np.maximum(self.density(draws), 0.0) * np.exp(-wide.log_density_at(draws))
        total = float(weights.sum())
        effective = total**2 / float(weights @ weights) if total > 0 else 0.0
        if effective < n:
            warn(
                f"rows repeat: {n:,} were asked for, and only {effective:.3g} draws are effective; "
                "use ExactKDE.sample",
                PoorSampleWarning,
            )
        if total == 0.0:
            raise ValueError("the estimate is not positive at any draw; use ExactKDE")
        rng = np.random.default_rng(seed + 1)
        return np.asarray(draws[rng.choice(size, size=n, p=weights / total)])

    def __repr__(self) -> str:
        return f"FourierKDE({self.features!r})"
