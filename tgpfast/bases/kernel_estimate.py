"""A kernel density estimate as a mixture: one component for each row, all of one covariance."""

from __future__ import annotations

import numpy as np

from ..data.blocks import Blocks
from ..data.moments import compute_moments
from ..validation import Array
from .expectation_maximization import measure_columns
from .mixture import MixtureBase, guard_of
from .quasirandom import logsumexp

# Bandwidths that are compared, over Scott's
BANDWIDTH_MULTIPLES = tuple((2.0 ** np.arange(-3.0, 1.1, 0.5)).tolist())
LEFT_OUT_ROWS = 500  # rows that are left out in turn, at most


def make_kernel_mixture(x: Array, w: Array, covariance: Array) -> MixtureBase:
    """The kernel estimate of rows x (n, d) that count as w (n,) rows each, with a guard."""
    components = np.broadcast_to(covariance, (len(x), *covariance.shape))
    return MixtureBase(w, x, components).with_guard(x, w)


def choose_kernel_covariance(x: Array, w: Array, within: Array) -> Array:
    """The covariance of a kernel, (d, d), that rows left out one by one like best.

    It has the shape of the covariance of the rows or of ``within``, times the square of a
    bandwidth. No kernel is narrower than the resolution of a column.

    Parameters
    ----------
    x : (n, d) array
    w : (n,) array
        Rows that each row counts as.
    within : (d, d) array
        Covariance within the components of a mixture.
    """
    n, d = x.shape
    moments, standards = compute_moments(Blocks(x, sample_weight=w)), measure_columns(x, w)
    chosen = np.random.default_rng(0).permutation(n)[:LEFT_OUT_ROWS]
    floor, scott = standards.floor * standards.scaling.scale, n ** (-1.0 / (d + 4))
    guard = MixtureBase(*(np.asarray(part)[None] for part in guard_of(moments)))
    log_guard = guard.log_density_at(x[chosen]) + np.log(guard_of(moments)[0])
    best, highest = moments.covariance, -np.inf
    for shape in (moments.covariance, within):
        least = float((floor / np.sqrt(np.diag(shape))).max())
        root = np.linalg.cholesky(shape)
        squares = _squares_between(np.linalg.solve(root, x.T).T, chosen)
        constant = np.log(np.diag(root)).sum() + 0.5 * d * np.log(2.0 * np.pi)
        for width in sorted({max(scott * multiple, least) for multiple in BANDWIDTH_MULTIPLES}):
            terms = np.log(w) - squares / (2.0 * width**2)
            logs = logsumexp(terms, axis=1) - np.log(w.sum() - w[chosen])
            logs = logs - constant - d * np.log(width)
            score = float(w[chosen] @ np.logaddexp(logs, log_guard))
            if score > highest:
                best, highest = width**2 * shape, score
    return best


def _squares_between(z: Array, chosen: np.ndarray) -> Array:
    """Squared distances of some rows to all, (m, n); infinite to themselves."""
    lengths = np.square(z).sum(axis=1)
    squares = lengths[chosen, None] + lengths - 2.0 * (z[chosen] @ z.T)
    squares[np.arange(len(chosen)), chosen] = np.inf
    return np.asarray(np.maximum(squares, 0.0))
