"""Counts of the rows and weights of a pass."""

from __future__ import annotations

from typing import ClassVar

from ..data.checkpoint import KeptSums
from ..validation import Array


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
