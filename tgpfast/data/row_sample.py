"""A random sample of rows, the same for every kind of source.

Each row has a key: a hash of its number. The sample consists of the rows with the smallest keys. It
depends neither on the length of blocks nor on the source, and a smaller sample is part of a larger
one. Rows stay in the order of the source. A sample of few rows has all of them, so that a weight of
2 gives the same result as the row twice.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.records import record
from ..validation import Array, Ints
from .checkpoint import State
from .weights import join_weights

SAMPLE_ROWS = 20_000  # rows of the sample that settings are chosen by
HASHED_ROWS = 2**18  # row numbers hashed at a time where no rows are read: 2 MB of them
NO_LIMIT = np.uint64(2**64 - 1)


@record
class RowSample:
    """Rows drawn uniformly without replacement, in the order of the source.

    Attributes
    ----------
    x : (n, d) array
    weights : (n,) array, or None
        None for rows without weights. Rows of weight 0 are never drawn.
    keys : (n,) array of uint64
        See ``row_keys``.
    """

    x: Array
    weights: Array | None
    keys: NDArray[np.uint64]

    def take(self, n: int) -> tuple[Array, Array | None]:
        """Return n of the rows, or all, and their weights: a smaller sample of the same kind."""
        if n >= len(self.x):
            return self.x, self.weights
        kept = _smallest(self.keys, n)
        rows = self.x[kept]
        rows.flags.writeable = False
        return rows, None if self.weights is None else self.weights[kept]


def row_keys(first: int, n: int) -> NDArray[np.uint64]:
    """Return the keys of n rows from the number ``first`` on: outputs of SplitMix64."""
    return keys_of(np.arange(first, first + n))


def keys_of(numbers: Ints) -> NDArray[np.uint64]:
    """Return the keys of rows by their numbers."""
    z = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def keys_of_values(x: Array, steps: Array) -> NDArray[np.uint64]:
    """Return a key for every row (n, d), by its values alone, rounded to steps (d,)."""
    keys = np.zeros(len(x), np.uint64)
    for column, step in zip(x.T, steps, strict=True):
        keys = keys_of(keys ^ np.rint(column / step).astype(np.int64).view(np.uint64))
    return keys


def _smallest(keys: NDArray[np.uint64], n: int) -> NDArray[np.bool_]:
    """Return a mask of the n smallest keys."""
    return np.asarray(keys <= np.partition(keys, n - 1)[n - 1])


class Reservoir:
    """Keeps the rows with the smallest keys among those added, in the order of adding.

    Reservoirs of different rows add. Memory is that of one and a half samples and one block.

    Parameters
    ----------
    size : int, default 20000
        The most rows that are kept; 0 keeps none and has no sample.
    """

    def __init__(self, size: int = SAMPLE_ROWS) -> None:
        self.size = size
        self._limit = NO_LIMIT  # rows with larger keys are not among the smallest
        self._held = 0
        self._parts: list[tuple[NDArray[np.uint64], Any, Array | None]] = []

    def add(self, first: int, x: Any, w: Array | None) -> None:
        """Add rows x, numbered from ``first`` on, and their weights. Kept rows are copied."""
        if not self.size:
            return
        keys = row_keys(first, len(x))
        keep = keys <= self._limit
        if w is not None:
            keep &= w > 0.0
        if keep.any() or not self._parts:  # an empty part still has the number of columns
            self._append(keys[keep], x[keep], None if w is None else w[keep])

    def __add__(self, other: Reservoir) -> Reservoir:
        total = Reservoir(self.size)
        for part in (*self._parts, *other._parts):
            total._append(*part)
        if total._parts:
            total._reduce()
        return total

    def _append(self, keys: NDArray[np.uint64], x: Any, w: Array | None) -> None:
        self._parts.append((keys, x, w))
        self._held += len(keys)
        if self._held > 3 * self.size // 2:
            self._reduce()

    def _reduce(self) -> None:
        """Drop the rows that are not among the smallest."""
        keys, x, w = self._join_parts()
        if len(keys) > self.size:
            kept = _smallest(keys, self.size)
            keys, x, w = keys[kept], x[kept], None if w is None else w[kept]
            self._limit = keys.max()
        self._parts, self._held = [(keys, x, w)], len(keys)

    def _join_parts(self) -> tuple[NDArray[np.uint64], Any, Array | None]:
        keys, rows, weights = zip(*self._parts, strict=True)
        w = join_weights(list(zip(rows, weights, strict=True)))
        return np.concatenate(keys), np.concatenate(rows), w

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are held."""
        return sum(a.nbytes for part in self._parts for a in part if a is not None)

    def state(self) -> State:
        """What a checkpoint saves: the rows that are kept, their keys and weights."""
        keys, x, w = np.zeros(0, np.uint64), np.zeros((0, 0)), None
        if self._parts:
            self._reduce()
            keys, x, w = self._parts[0]
        return {"keys": keys, "rows": x, "weights": np.zeros(0) if w is None else w}

    def restore(self, state: State) -> None:
        """Take over what ``state`` returned."""
        keys, x, w = state["keys"], state["rows"], state["weights"]
        if len(keys):
            self._parts, self._held = [(keys, x, w if len(w) else None)], len(keys)
            self._reduce()

    def sample(self) -> RowSample:
        """Return the rows that are kept."""
        self._reduce()
        keys, x, w = self._parts[0]
        rows = np.ascontiguousarray(x).view()
        rows.flags.writeable = False
        return RowSample(rows, w, keys)


def choose_rows(n_rows: int, size: int, weights: Any = None) -> Ints:
    """Return the numbers, ascending, of the rows that a `Reservoir` would keep of n_rows."""
    chosen = Reservoir(size)
    for at in range(0, n_rows, HASHED_ROWS):
        numbers = np.arange(at, min(at + HASHED_ROWS, n_rows))
        w = None if weights is None else np.asarray(weights[at : at + HASHED_ROWS])
        chosen.add(at, numbers, w)
    return np.asarray(chosen.sample().x, dtype=np.int64)


def draw_sample(blocks: Any, size: int = SAMPLE_ROWS) -> RowSample:
    """Draw a sample in one pass over the blocks."""
    total: Reservoir = blocks.reduce(functools.partial(_fill_reservoir, size=size))
    return total.sample()


def _fill_reservoir(blocks: Any, threads: Any, size: int) -> Reservoir:
    rows, at = Reservoir(size), blocks.first_row
    for x, w in blocks:
        rows.add(at, x, w)
        at += len(x)
    return rows
