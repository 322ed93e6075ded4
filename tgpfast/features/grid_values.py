"""`evaluate_grid`: values of a function at all nodes of a regular grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..validation import Array, Ints


def evaluate_grid(
    function: Callable[[Ints], Array], shape: Sequence[int], most_nodes: int
) -> Array:
    """Values of a function at all nodes of a regular grid, in parts that fit the memory.

    Parameters
    ----------
    function : callable
        Takes index vectors of nodes (n, d), returns (n,).
    shape : d ints
        Nodes along each axis.
    most_nodes : int
        Nodes that are evaluated together, at most.

    Returns
    -------
    array of ``shape``
    """
    values = np.empty(math.prod(shape))
    for start in range(0, len(values), most_nodes):
        some = np.arange(start, min(start + most_nodes, len(values)))
        values[some] = function(np.stack(np.unravel_index(some, tuple(shape)), axis=-1))
    return values.reshape(shape)
