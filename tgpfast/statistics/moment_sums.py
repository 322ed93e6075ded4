"""Sums over the rows that need no features: counts, weights, x and x x^T."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..data.checkpoint import KeptSums
from ..validation import Array

MOMENT_ROWS = 16_384  # rows of a product: copies of so many stay in a cache


class RowCounts(KeptSums):
    """Number of rows, and sums of their weights, while a pass runs.

    Attributes
    ----------
    n : float
        Sum of the weights.
    n_rows : int
    sum_w2 : float
        Sum of the squared weights.
    """

    kept: ClassVar[tuple[str, ...]] = ("n", "n_rows", "sum_w2")

    def __init__(self) -> None:
        self.n, self.n_rows, self.sum_w2 = 0.0, 0, 0.0

    def count(self, x: Array, w: Array | None) -> None:
        """Count rows and their weights."""
        self.n += len(x) if w is None else float(w.sum())
        self.sum_w2 += len(x) if w is None else float(w @ w)
        self.n_rows += len(x)


class MomentSums(RowCounts):
    """n, n_rows, sum_w2, and sum_x, sum_xx about an origin.

    Parameters
    ----------
    origin : (d,) array
    """

    kept = (*RowCounts.kept, "sum_x", "sum_xx")

    def __init__(self, origin: Array) -> None:
        super().__init__()
        self.origin = np.array(origin)
        self.sum_x, self.sum_xx = np.zeros(len(origin)), np.zeros((len(origin), len(origin)))

    def add(self, x: Array, w: Array | None) -> None:
        """Add rows (n, d) with weights (n,), or None."""
        self.count(x, w)
        for start in range(0, len(x), MOMENT_ROWS):
            rows = slice(start, start + MOMENT_ROWS)
            y = x[rows] - self.origin
            weights = np.ones(len(y)) if w is None else w[rows]
            self.sum_x += weights @ y
            self.sum_xx += (y.T * weights) @ y
