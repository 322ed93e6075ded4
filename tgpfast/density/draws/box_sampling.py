"""Draws from a tilted base in a box, by cells of a regular grid, and of the base beyond the box."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...bases.base import Base
from ...features.lattice import LatticeFeatures
from ...validation import Array
from ..grids.box_rule import tensor_rows
from .grid_sampling import GridCells
from .rejection import MOST_BATCH

MOST_TRIED = 2**23  # draws of a base in all, about a second: one in so many lies beyond the box
CELL_NODES = {1: 2**14, 2: 2**20, 3: 2**21}  # of the grid of cells, at most, by columns
LEAST_CELLS = 16  # along an axis


def make_box_cells(
    low: Array, high: Array, counts: Sequence[int], log_density: Callable[[Array], Array]
) -> GridCells:
    """Cells of a regular grid over a box, from which rows are drawn.

    Parameters
    ----------
    low, high : (d,) arrays
        Ends of the box.
    counts : (d,) ints
        Cells along each axis; fewer are made where they would be too many.
    log_density : callable
        Rows (n, d) -> (n,); need not be normalized.
    """
    d = len(counts)
    fewer = min(1.0, CELL_NODES[d] / math.prod(counts)) ** (1.0 / d)
    shape = [max(LEAST_CELLS, int(fewer * n)) for n in counts]
    steps = (high - low) / np.array(shape)
    axes = [low[k] + steps[k] * np.arange(n + 1) for k, n in enumerate(shape)]
    values = log_density(tensor_rows(axes)).reshape([n + 1 for n in shape])
    return GridCells(values, low, steps, log_density)


def draw_beyond_box(
    features: LatticeFeatures, base: Base, n: int, rng: np.random.Generator
) -> Array:
    """Draws of a base that lie beyond the box of a lattice, along axes that are not periodic.

    It takes about n / (share of the base beyond the box) draws in all. There are fewer than n where
    that is more than MOST_TRIED: the base has almost nothing there.
    """
    ends = np.array([kind != "period" for kind in features.walls])
    low, high = features.origin, features.origin + features.lengths

    def is_beyond(x: Array) -> NDArray[np.bool_]:
        return np.asarray((((x < low) | (x > high)) & ends).any(axis=1))

    kept, have, tried = [np.empty((0, features.dimension))], 0, 0
    while have < n and tried < MOST_TRIED:
        share = max(have, 1) / max(tried, 1)
        m = int(min(max(1.2 * (n - have) / share, 1_024), MOST_BATCH))
        x = base.draw(m, rng)
        kept.append(x[is_beyond(x)])
        have, tried = have + len(kept[-1]), tried + m
    return np.concatenate(kept)[:n]
