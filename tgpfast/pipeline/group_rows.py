"""Rows sorted by group, with the moments of every group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.blocks import Blocks
from ..data.table import Table
from ..validation import Array, Ints


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Moments of all groups.

    Attributes
    ----------
    means : ndarray of shape (G, d)
        In the units of the data.
    covariances : ndarray of shape (G, d, d)
        Divided by the weight n of the group, in multiples of ``unit``.
    unit : ndarray of shape (d,)
        Powers of two near the largest deviation of each column, so that squares stay in range.
    """

    means: Array
    covariances: Array
    unit: Array


class SortedRows:
    """The rows of all groups, one group after the other.

    Attributes
    ----------
    x : ndarray of shape (d, n_rows)
        Columns of the rows; group g has the rows ``slice(*spans[g])``.
    w : ndarray of shape (n_rows,)
    n : ndarray of shape (G,)
        Total weight of each group.
    counts : ndarray of shape (G,)
        Rows of each group.
    lost_freedom : ndarray of shape (G,)
        Degrees of freedom that the estimated mean of a group takes; 1 without weights.
    table : Table
    weighted : bool
    """

    def __init__(
        self, x: Array, w: Array, counts: Ints, table: Table, weighted: bool, lost_freedom: Array
    ) -> None:
        self.x, self.w, self.counts, self.table, self.weighted = x, w, counts, table, weighted
        self.lost_freedom = lost_freedom
        stops = np.cumsum(counts)
        self.n: Array = np.add.reduceat(w, stops - counts)
        self.spans = list(zip((stops - counts).tolist(), stops.tolist(), strict=True))

    def center(self) -> GroupMoments:
        """Subtract the mean of its group from every row and divide by a common unit, in place."""
        x, w = self.x, self.w
        starts = [start for start, _ in self.spans]
        means = np.add.reduceat(x * w if self.weighted else x, starts, axis=1).T / self.n[:, None]
        for (start, stop), mean, n in zip(self.spans, means, self.n.tolist(), strict=True):
            part = x[:, start:stop]
            part -= mean[:, None]
            # a second pass over centered rows removes the rounding error of the first
            better = mean + part @ w[start:stop] / n
            part -= (better - mean)[:, None]
            mean[:] = better
        spread = np.maximum(x.max(axis=1), -x.min(axis=1))
        unit = np.exp2(np.round(np.log2(np.where(spread > 0, spread, 1.0))))
        x /= unit[:, None]
        covariances = np.empty((len(means), len(x), len(x)))
        for g, (start, stop) in enumerate(self.spans):
            part = x[:, start:stop]
            covariances[g] = (part * w[start:stop] if self.weighted else part) @ part.T
        covariances /= self.n[:, None, None]
        return GroupMoments(means, 0.5 * (covariances + covariances.transpose(0, 2, 1)), unit)


def sort_rows(
    X: Any, sample_weight: Any, labels: list[Any], codes: Ints, normalize: bool
) -> SortedRows:
    """Read all rows into memory, sorted by group.

    Parameters
    ----------
    X : rows
    sample_weight : array of shape (n,) or None
    labels : list
        Distinct labels.
    codes : ndarray of shape (n,)
        Index into ``labels`` of every row.
    normalize : bool
        Rescale the weights of each group to sum to Kish's effective number of rows.
    """
    blocks = Blocks(X, sample_weight=sample_weight)
    # numpy sorts 16-bit integers by counting, which is faster
    keys = codes.astype(np.uint16) if len(labels) <= 2**16 else codes
    order = np.argsort(keys, kind="stable")
    x, w, weighted = _read_in_order(blocks, order)
    counts, lost_freedom = np.bincount(codes, minlength=len(labels)), np.ones(len(labels))
    if weighted:
        sorted_codes = codes[order]
        w, lost_freedom = _prepare_weights(w, sorted_codes, counts, labels, normalize)
        keep = w > 0
        if not keep.all():
            x, w = x[keep], w[keep]
            counts = np.bincount(sorted_codes[keep], minlength=len(labels))
    x, counts = np.ascontiguousarray(x.T), counts.astype(np.int64)
    return SortedRows(x, w, counts, blocks.table, weighted, lost_freedom)


def _read_in_order(blocks: Blocks, order: Ints) -> tuple[Array, Array, bool]:
    """(rows, weights, whether weights were given), with the rows in this order."""
    n = len(order)
    if blocks.n_rows is not None:
        _check_length(n, blocks.n_rows)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    x, w, at, weighted = np.zeros((0, 0)), np.ones(n), 0, False
    for part, weights in blocks:
        if at + len(part) > n:
            raise ValueError(f"groups has {n:,} entries, but X has more rows")
        if at == 0:
            x = np.empty((n, part.shape[1]))
        here = place[at : at + len(part)]
        x[here] = part  # whole rows, so that each costs one cache miss
        if weights is not None:
            w[here], weighted = weights, True
        at += len(part)
    _check_length(n, at)
    return x, w, weighted


def _check_length(n_labels: int, n_rows: int) -> None:
    if n_labels != n_rows:
        raise ValueError(f"groups has {n_labels:,} entries, but X has {n_rows:,} rows")


def _prepare_weights(
    w: Array, codes: Ints, counts: Ints, labels: list[Any], normalize: bool
) -> tuple[Array, Array]:
    """(weights, degrees of freedom that each mean takes) of sorted rows."""
    largest = np.maximum.reduceat(w, np.cumsum(counts) - counts)
    if (largest <= 0).any():
        empty = labels[int(np.flatnonzero(largest <= 0)[0])]
        raise ValueError(f"the weights of group {empty!r} are all zero; drop its rows")
    # division by a power of two near the largest weight: squares stay in range, no bit changes
    power = np.frexp(largest)[1]
    v = np.ldexp(w, -power[codes])
    total, square = (np.bincount(codes, u, len(labels)) for u in (v, v * v))
    if normalize:
        return v * (total / square)[codes], np.ones(len(labels))
    return w, np.minimum(np.ldexp(square / total, power), 1.0)
