"""Sums over the rows that need no features: counts, weights, x and x x^T."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

import numpy as np

from .. import kernels
from ..data.checkpoint import KeptSums
from ..features.evaluation import NO_WEIGHTS, read_only
from ..validation import Array

MOMENT_LANES = 64  # parts in which a chunk is summed: fixed, so that threads do not change the sums


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
    """n, n_rows, sum_w2, and sum_x, sum_xx about an origin, added up chunk by chunk.

    Parameters
    ----------
    d : int
        Columns.
    origin : (d,) array
    backend : module
        A kernel module.
    n_threads : int
    """

    def __init__(self, d: int, origin: Array, backend: ModuleType, n_threads: int) -> None:
        super().__init__()
        self.origin, self.backend, self.n_threads = np.array(origin), backend, n_threads
        self.sum_x, self.sum_xx = np.zeros(d), np.zeros((d, d))

    def add(self, x: Array, w: Array | None) -> None:
        """Add rows (n, d) with weights (n,), or None."""
        root = NO_WEIGHTS if w is None else read_only(np.sqrt(w))
        rows = -(-len(x) // MOMENT_LANES)
        part_x = np.zeros((MOMENT_LANES, x.shape[1]))
        part_xx = np.zeros((MOMENT_LANES, x.shape[1], x.shape[1]))
        with kernels.threads(self.backend, self.n_threads):
            self.backend.moments(x, root, self.origin, rows, part_x, part_xx, self.n_threads)
        self.sum_x += part_x.sum(axis=0)
        self.sum_xx += part_xx.sum(axis=0)
        self.count(x, w)
