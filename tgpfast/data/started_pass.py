"""`StartedPass`: look at the first rows of a stream before deciding how to read the rest."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

import numpy as np

from ..validation import Array
from .blocks import Block, Blocks, copy_block
from .row_sample import Reservoir, choose_rows


class StartedPass:
    """A pass whose first rows can be looked at before the rest is read.

    The rows that were looked at are held until ``blocks`` are read, which begin with them. Nothing
    is read twice.

    Parameters
    ----------
    blocks : Blocks

    Attributes
    ----------
    blocks : Blocks
        All rows of the pass.
    n_rows : int
        Number of rows read so far.
    has_ended : bool
        Whether there are no more rows.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._rest, self._must_copy = iter(blocks), not blocks.blocks_stay_valid
        self._held: deque[Block] = deque()
        self.n_rows, self.has_ended = 0, False
        self.blocks = blocks.continued(itertools.chain(self._release(), self._rest))

    def read(self, n: int) -> None:
        """Read on until n rows are held, or all."""
        while self.n_rows < n and not self.has_ended:
            block = next(self._rest, None)
            if block is None:
                self.has_ended = True
            else:
                self._held.append(copy_block(*block) if self._must_copy else block)
                self.n_rows += len(block[0])

    def sample(self, n: int) -> Array:
        """Return at most n random rows of those held."""
        return np.concatenate([x for x, _ in self._held])[choose_rows(self.n_rows, n)]

    def keep_sample(self) -> Reservoir:
        """Return a reservoir that fills while ``blocks`` are read."""
        reservoir, rest = Reservoir(), iter(self.blocks)

        def fill() -> Iterator[Block]:
            first = 0
            for x, w in rest:
                reservoir.add(first, x, w)
                first += len(x)
                yield x, w

        self.blocks = self.blocks.continued(fill())
        return reservoir

    def _release(self) -> Iterator[Block]:
        while self._held:
            yield self._held.popleft()
