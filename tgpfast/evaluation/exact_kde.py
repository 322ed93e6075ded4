"""The exact kernel density estimate, a baseline of the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from .. import kernels
from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks
from ..data.moments import Moments, check_full_rank, compute_moments
from ..features.evaluation import NO_WEIGHTS
from ..kernels import read_only
from ..kernels.thread_choice import Threads
from ..validation import Array, Seed, as_floats, as_seed, positive, whole


class ExactKDE:
    """Kernel density estimate with one Gaussian kernel per row.

    q(y) = sum_i w_i N(y | x_i, bandwidth^2 covariance) / sum_i w_i

    Parameters
    ----------
    X : rows
        As for ``fit``, but no dask collection: the rows are kept in memory.
    bandwidth : float or "scott", default "scott"
        "scott" is n^(-1/(d+4)) with Kish's effective number of rows n.
    covariance : {"data", "identity"} or array of shape (d, d), default "data"
        Shape of the kernel; "data" is the covariance of the rows, as in scipy. The paper's kernel
        has covariance="identity" and bandwidth=gamma.
    sample_weight : array of shape (n,), default None
        Non-negative weights of the rows.
    backend : str, default "auto"
        See ``accumulate``.
    n_threads : int, default None
        See ``accumulate``.

    Attributes
    ----------
    bandwidth : float
    covariance : ndarray of shape (d, d)

    Raises
    ------
    ValueError
        If an option is wrong, or columns are constant or linearly dependent with
        covariance="data".

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> kde = tgpfast.ExactKDE([[0.0], [1.0]], bandwidth=1.0, covariance="identity")
    >>> round(float(np.exp(kde.log_density([[0.5]])[0])), 6)
    0.352065
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
        moments = compute_moments(blocks)
        d = len(moments.mean)
        self.table, self.threads = replace(blocks.table, index=None), Threads(backend, n_threads)
        self.bandwidth = (
            moments.n_effective ** (-1.0 / (d + 4))
            if isinstance(bandwidth, str) and bandwidth == "scott"
            else positive("bandwidth", bandwidth, "scott")
        )
        self.covariance = _kernel_covariance(covariance, moments, blocks.table.columns)
        self._center = moments.mean
        self._cholesky = self.bandwidth * np.linalg.cholesky(self.covariance)
        rows, weights = [], []
        for x, w in blocks:
            keep = slice(None) if w is None else w > 0
            rows.append(self._whiten(x[keep]))
            weights.append(np.ones(len(x)) if w is None else w[keep])
        self._rows = read_only(np.concatenate(rows))
        self._weights = read_only(np.concatenate(weights))
        self._unweighted = bool((self._weights == 1.0).all())

    @property
    def dimension(self) -> int:
        """Number of columns d."""
        return len(self._center)

    def _whiten(self, x: Array) -> Array:
        """Coordinates in which the kernel is a standard Gaussian."""
        return read_only(solve_triangular(self._cholesky, (x - self._center).T, lower=True).T)

    def log_density(self, Y: Any) -> Any:
        """Log density of every row of Y, exact up to rounding.

        The time is proportional to the number of rows of X times that of Y.

        Parameters
        ----------
        Y : rows
            As for ``fit``.

        Returns
        -------
        ndarray of shape (n,), or a series for a frame
        """
        blocks = Blocks(Y, dimension=self.dimension, columns=self.table.columns, name="Y")
        module, count = self.threads.resolve()
        log_volume = np.log(np.diag(self._cholesky)).sum() + 0.5 * self.dimension * np.log(
            2 * np.pi
        )
        weights = NO_WEIGHTS if self._unweighted else self._weights
        parts = []
        for y, _ in blocks:
            value = np.empty(len(y))
            with kernels.threads(module, count):
                module.log_kernel_sums(self._whiten(y), self._rows, weights, value, count)
            parts.append(value - (log_volume + np.log(self._weights.sum())))
        return blocks.table.series(np.concatenate(parts), "log_density")

    def sample(self, n: int, seed: Seed = None) -> Any:
        """Draw rows: a random row of the data plus noise of the kernel.

        Parameters
        ----------
        n : int
            Number of rows.
        seed : int, None or numpy.random.Generator, default None
            None draws new rows at every call.

        Returns
        -------
        ndarray of shape (n, d), or a frame if X was one
        """
        n, rng = whole("n", n), np.random.default_rng(as_seed(seed))
        share = self._weights / self._weights.sum()
        index = rng.choice(len(self._rows), size=n, p=None if self._unweighted else share)
        white = self._rows[index] + rng.standard_normal((n, self.dimension))
        return self.table.frame(self._center + white @ self._cholesky.T)

    def __repr__(self) -> str:
        rows = f"{len(self._rows):,} rows, d={self.dimension}"
        return f"ExactKDE({rows}, bandwidth={self.bandwidth:.4g})"


def _kernel_covariance(kind: Any, moments: Moments, columns: list[str] | None) -> Array:
    d = len(moments.mean)
    if isinstance(kind, str):
        if kind == "identity":
            return np.eye(d)
        if kind != "data":
            raise ValueError(
                f"covariance={kind!r}: expected 'data', 'identity' or a ({d}, {d}) array"
            )
        check_full_rank(moments, columns)
        return moments.covariance
    given = as_floats(kind, "covariance", (d, d))
    return GaussianBase(np.zeros(d), given).covariance  # checks that it is positive definite
