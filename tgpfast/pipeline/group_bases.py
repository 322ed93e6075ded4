"""Gaussian bases of all groups: their own covariances, shrunk towards the pooled one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.moments import Moments, check_full_rank
from ..data.table import column_name
from ..validation import Array
from .group_rows import GroupMoments, SortedRows

# a group with this many times (d + 1) rows keeps its own covariance; with d + 1 rows or fewer it
# takes the pooled one
OWN_COVARIANCE_ROWS = 10.0
LEAST_SHARE_OF_VARIANCE = 1e-6  # of the pooled variance, that a base has in every direction
LEAST_POOLED_VARIANCE = 1e-290  # of a column: LEAST_SHARE_OF_VARIANCE of it must not underflow
CONSTANT_DEVIATION = 2.0**-50  # of a column, relative to its values, that is rounding alone


@dataclass(frozen=True, eq=False)
class GroupBases:
    """Bases of all groups, in scaled coordinates u = (x - mean) / scale.

    Attributes
    ----------
    means : ndarray of shape (G, d)
        In the units of the data.
    scale : ndarray of shape (d,)
    pooled : ndarray of shape (d, d)
        Pooled within-group covariance.
    covariances : ndarray of shape (G, d, d)
    shrinkage : ndarray of shape (G,)
        Share of the pooled covariance in each base.
    """

    means: Array
    scale: Array
    pooled: Array
    covariances: Array
    shrinkage: Array


def estimate_bases(rows: SortedRows, scale: str, base: str) -> GroupBases:
    """Center and scale the rows in place, and estimate the base of every group.

    Parameters
    ----------
    rows : SortedRows
    scale : {"standardize", "center"}
    base : {"empirical", "pooled"}

    Raises
    ------
    ValueError
        If the rows have no density, or their squares leave the range of float64.
    """
    moments = rows.center()
    deviation, correlation = _pool_covariances(rows, moments)
    divisor = deviation if scale == "standardize" else np.ones(len(deviation))
    with np.errstate(over="ignore", invalid="ignore"):
        pooled = correlation * np.outer(deviation / divisor, deviation / divisor)
        own = moments.covariances * np.outer(moments.unit / divisor, moments.unit / divisor)
    if not (np.isfinite(pooled).all() and np.isfinite(own).all()):
        raise ValueError('the squares of some rows overflow; use scale="standardize"')
    if np.diag(pooled).min() < LEAST_POOLED_VARIANCE:
        raise ValueError('the squares of some columns underflow; use scale="standardize"')
    rows.x /= (divisor / moments.unit)[:, None]
    if base == "pooled":
        covariances, shrinkage = np.repeat(pooled[None], len(own), axis=0), np.ones(len(own))
    else:
        covariances, shrinkage = shrink_covariances(own, pooled, rows.n)
    return GroupBases(moments.means, divisor, pooled, covariances, shrinkage)


def _pool_covariances(rows: SortedRows, moments: GroupMoments) -> tuple[Array, Array]:
    """(deviations, correlations) of V = sum_g n_g S_g / sum_g (n_g - lost_freedom_g).

    The deviations are in the units of the data.
    """
    unit, columns = moments.unit, rows.table.columns
    freedom = float(np.maximum(rows.n - rows.lost_freedom, 0.0).sum())
    total = np.einsum("g,gij->ij", rows.n, moments.covariances)
    if not total.any():
        raise ValueError(
            "no group has two different rows, so no density can be learned; check that groups has "
            "the label of each row"
        )
    if freedom <= 0:
        raise ValueError(
            "no group has two rows of similar weight, so no density can be learned: in each group "
            "one row outweighs all others"
        )
    root = np.sqrt(np.diag(total) / freedom)
    typical = np.median(np.abs(moments.means), axis=0)
    constant = np.flatnonzero(unit * root <= typical * CONSTANT_DEVIATION)
    if len(constant):
        name = column_name(int(constant[0]), columns)
        raise ValueError(
            f"column {name} is constant within every group, so the data have no density in it; "
            "drop it"
        )
    correlation = total / freedom / np.outer(root, root)
    np.fill_diagonal(correlation, 1.0)
    pooled = Moments(
        float(rows.n.sum()), max(freedom, 2.0), np.median(moments.means, axis=0), unit * root,
        correlation,
    )  # fmt: skip
    check_full_rank(pooled, columns)
    return pooled.deviation, correlation


def shrink_covariances(own: Array, pooled: Array, n: Array) -> tuple[Array, Array]:
    """C_g = (1 - a_g) S_g + a_g V, and a_g.

    a_g falls from 1 at n_g = d + 1 to 0 at n_g = OWN_COVARIANCE_ROWS (d + 1). It is larger if the
    variance in some direction would otherwise be below LEAST_SHARE_OF_VARIANCE of that of V.

    Parameters
    ----------
    own : ndarray of shape (G, d, d)
        Covariances S_g of the groups.
    pooled : ndarray of shape (d, d)
        Pooled covariance V.
    n : ndarray of shape (G,)
        Total weights of the groups.
    """
    d, floor = len(pooled), LEAST_SHARE_OF_VARIANCE
    none, all_own = 1.0, 1.0 / OWN_COVARIANCE_ROWS  # (d + 1) / n at both ends
    share = np.clip(((d + 1) / n - all_own) / (none - all_own), 0.0, 1.0)
    inverse = np.linalg.inv(np.linalg.cholesky(pooled))
    least = np.linalg.eigvalsh(inverse @ own @ inverse.T)[:, 0]
    share = np.where(least < floor, np.maximum(share, (floor - least) / (1.0 - least)), share)
    a = share[:, None, None]
    return (1.0 - a) * own + a * pooled, share
