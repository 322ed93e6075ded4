"""Which rows are held out: random parts of equal size, the same each time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..validation import Array

# Up to this many rows, every fold is held out in turn; of more rows, one fold is enough.
FEW_ROWS = 3_000
N_FOLDS = 5  # each holds out a fifth of the rows

Mask = NDArray[np.bool_]


class Split(NamedTuple):
    """Rows that are learned from and rows that are held out, with their weights.

    held_weights sum to 1.
    """

    kept: Array
    kept_weights: Array
    held: Array
    held_weights: Array

    @classmethod
    def at(cls, x: Array, weights: Array, held: Mask) -> Split:
        """Rows x (n, d) split by the mask of those held out."""
        return cls(x[~held], weights[~held], x[held], weights[held] / weights[held].sum())


def assign_folds(n_rows: int, n_folds: int) -> NDArray[np.int64]:
    """Number of the fold of every row; folds differ by one row at most.

    Drawn at random, the same each time, which avoids bias on periodically ordered rows.
    """
    return np.asarray(np.random.default_rng(0).permutation(n_rows) % n_folds)


def held_out_masks(n_rows: int) -> list[Mask]:
    """Masks of the rows that are held out, one for each fold."""
    fold = assign_folds(n_rows, N_FOLDS)
    return [fold == k for k in range(N_FOLDS if n_rows <= FEW_ROWS else 1)]


def distinct_rows(pilot: tuple[Array, Array | None]) -> tuple[Array, Array]:
    """Distinct rows of a pilot, in order, and their weights; rows of weight 0 are left out.

    A row that stands on both sides of a split would reward a density for spikes at its rows.
    """
    x, w = pilot
    x, w = (x, np.ones(len(x))) if w is None else (x[w > 0], w[w > 0])
    _, first, which = np.unique(x, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(x):
        return x, w
    order = np.argsort(first)
    return x[first[order]], np.asarray(np.bincount(which.ravel(), w)[order], np.float64)
