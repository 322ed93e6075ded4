"""Sums over the rows that need no features: weights, x and x x^T."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from .. import kernels
from ..features.evaluation import NO_WEIGHTS, read_only
from ..validation import Array

MOMENT_LANES = 64  # parts in which a chunk is summed: fixed, so that threads do not change the sums


class MomentSums:
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
        self.origin, self.backend, self.n_threads = np.array(origin), backend, n_threads
        self.sum_x, self.sum_xx = np.zeros(d), np.zeros((d, d))
        self.n, self.n_rows, self.sum_w2 = 0.0, 0, 0.0

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
        self.n += len(x) if w is None else float(w.sum())
        self.sum_w2 += len(x) if w is None else float(w @ w)
        self.n_rows += len(x)
