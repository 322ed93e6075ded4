"""Covariances for tables that have too few rows to give a covariance of their own."""

from __future__ import annotations

import numpy as np

from ..data.blocks import Blocks
from ..data.moments import check_full_rank, compute_moments
from ..validation import Array

COUNTED_ROWS = 100  # times d + 1: longer tables are taken to have enough rows that differ
# The least variance within classes, as a share of the column's variance: classes that agree
# within themselves and differ from each other stay 3 % of a standard deviation wide.
LEAST_VARIANCE = 1e-3


def has_fewer_rows(X: Array, least: int) -> bool:
    """Whether fewer than ``least`` rows of X differ from each other.

    Repeated rows count once, so that the answer is the same for repeated and for weighted rows.
    """
    n, d = X.shape
    return n < least or (n < COUNTED_ROWS * (d + 1) and len(np.unique(X, axis=0)) < least)


def is_singular(X: Array, weights: Array) -> bool:
    """Whether the columns are constant or linearly dependent, by the rule of ``tgpfast.fit``."""
    try:
        check_full_rank(compute_moments(Blocks(X, sample_weight=weights)), None)
    except ValueError:
        return True
    return False


def pool_covariance(X: Array, labels: Array, weights: Array) -> Array:
    """Covariance of the rows about the means of their classes, shrunk to its diagonal.

    The diagonal counts as d more rows: (sum_i w_i r_i r_i^T + d D) / (sum_i w_i + d), where r_i
    is a row less the mean of its class, and D has the variances within classes.

    Parameters
    ----------
    X : (n, d) array
    labels : (n,) array of int
        The class of each row.
    weights : (n,) array
        Positive.

    Returns
    -------
    (d, d) array
        Positive definite.

    Raises
    ------
    ValueError
        If a column is constant.
    """
    rows, n, d = X.astype(float), weights.sum(), X.shape[1]
    residuals = np.empty_like(rows)
    for label in np.unique(labels):
        mine = labels == label
        residuals[mine] = rows[mine] - np.average(rows[mine], axis=0, weights=weights[mine])
    center = np.average(rows, axis=0, weights=weights)
    variance = np.average(np.square(rows - center), axis=0, weights=weights)
    if not (np.ptp(rows, axis=0) > 0).all():
        k = int(np.argmin(np.ptp(rows, axis=0)))
        raise ValueError(f"column {k} is constant, so the data have no density in it; drop it")
    scatter = (residuals * weights[:, None]).T @ residuals
    within = np.maximum(np.diag(scatter) / n, LEAST_VARIANCE * variance)
    return (scatter + d * np.diag(within)) / (n + d)
