"""Blocks of rows gathered into the larger chunks that one transform takes at a time."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..data.blocks import Blocks, copy_block
from ..data.weights import join_weights
from ..validation import Array

Rows = tuple[Array, Array | None]  # rows (n, d) and their weights (n,), None without weights

BOX_ROWS = 50_000  # rows of a sample from which the box of a grid is chosen
FIRST_NUMBERS = 2**22  # coordinates of a stream from which it is chosen: 32 MB
CHUNK_NUMBERS = 2**25  # coordinates of the points of one transform: 256 MB
AHEAD_ROWS = 2**18  # rows of a block that is read ahead: several such blocks are held in memory


def rows_per_chunk(d: int | None) -> int:
    """Rows of d columns that make a full chunk."""
    return CHUNK_NUMBERS // max(d or 1, 1)


class Chunks:
    """Iterate over blocks in chunks of at most ``rows`` rows; a larger block is not cut.

    Parameters
    ----------
    blocks : Blocks
    rows : int or None, default None
        Rows of a chunk, which may be changed during the iteration; None is a full chunk.
    """

    def __init__(self, blocks: Blocks, rows: int | None = None) -> None:
        self.blocks = copy.copy(blocks)
        most = rows_per_chunk(blocks.dimension)
        self.rows = most if rows is None else min(rows, most)
        self.blocks.block_rows = self.rows
        if blocks.is_prefetched and (blocks.n_rows is None or blocks.n_rows > self.rows):
            self.blocks.block_rows = min(self.rows, AHEAD_ROWS)

    def __iter__(self) -> Iterator[Rows]:
        held: list[Rows] = []
        size = 0
        stays_valid = self.blocks.blocks_stay_valid
        for x, w in self.blocks:
            if size and size + len(x) > self.rows:
                yield _join(held)
                held, size = [], 0
            held.append((x, w) if stays_valid else copy_block(x, w))
            size += len(x)
        if held:  # else a checkpoint has all rows
            yield _join(held)


def _join(parts: list[Rows]) -> Rows:
    """One chunk of several blocks."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([x for x, _ in parts]), join_weights(parts)


def place_grid(
    blocks: Blocks, choose: Callable[[Array, int | None], Any]
) -> tuple[Any, Iterable[Rows]]:
    """A grid for all rows, chosen from a sample, and the rows in chunks to fill it with.

    Parameters
    ----------
    blocks : Blocks
    choose : function
        Sample (n, d), and number of all rows or None -> grid, or None where none fits.
    """
    if (pilot := blocks.pilot(BOX_ROWS)) is not None:
        place = choose(pilot[0], blocks.n_rows)
        return place, Chunks(blocks, None if place is None else place.fill_rows)
    size = FIRST_NUMBERS // max(blocks.dimension or 1, 1)
    chunks = Chunks(blocks, size)
    rows = iter(chunks)
    first = next(rows)
    is_all = len(first[0]) < size  # a chunk that is not full is the last
    place = choose(first[0], len(first[0]) if is_all else None)
    if place is not None:
        chunks.rows = place.fill_rows
    return place, itertools.chain([first], rows)
