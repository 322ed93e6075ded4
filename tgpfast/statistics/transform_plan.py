"""Which points to transform on which grid: the plan of one transform, chosen by its cost.

The grid of a transform grows with the extent of the points times that of the frequencies. A few
distant points would make it large, so a plan may leave them outside its box, to be summed directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..validation import Array
from . import costs
from .chunks import BOX_ROWS
from .transforms import UPSAMPLING, kernel_width

FREE_GRID = 1.2  # a plan this many times as slow as one without a grid leaves no point outside
LEAST_HALF_WIDTH = 1e-3  # of a box, in units of one over the largest frequency
COMPLEX_BYTES = 16  # of a double-precision complex number
# half sides of the boxes tried, in units of the distance from the median to the outer tenths
STRETCHES = (100.0, 30.0, 15.0, 9.0, 6.0, 4.5, 3.5, 2.8, 2.2, 1.8, 1.5)


@dataclass(frozen=True)
class TransformPlan:
    """How one set of points is transformed.

    Attributes
    ----------
    low, high : (d,) array
        Corners of the box; points outside are not transformed.
    whole : bool
        Whether all points lie inside.
    grid_bytes : int
        Memory of the grids.
    seconds : float
        Estimated time, points outside included.
    """

    low: Array
    high: Array
    whole: bool
    grid_bytes: int
    seconds: float

    @property
    def middle(self) -> Array:
        """(d,) center of the box."""
        return self.low + 0.5 * (self.high - self.low)  # the sum may overflow

    @property
    def half(self) -> Array:
        """(d,) half sides of the box."""
        return 0.5 * (self.high - self.low)

    def inside(self, y: Array) -> NDArray[np.bool_]:
        """(n,) which points lie in the box."""
        return np.asarray(((y >= self.low) & (y <= self.high)).all(axis=1))


def grid_nodes(half: Array, reach: Array, eps: float) -> tuple[float, float]:
    """Nodes of the inner grid of a type-3 transform, and of its upsampled FFT.

    Parameters
    ----------
    half, reach : (d,) array
        Half sides of the box, and largest |frequency| along each axis.
    eps : float
        As for `transforms.transform`.
    """
    width = kernel_width(eps)
    sides = 2.0 * UPSAMPLING * half * reach / np.pi + width + 1.0
    sides = np.maximum(sides, 2.0 * width)
    return float(np.prod(sides)), float(np.prod(np.maximum(UPSAMPLING * sides, 2.0 * width)))


def plan_transform(
    y: Array, reach: Array, n_targets: int, row_cost: float, eps: float, budget: int, *,
    spreads: int = 1, n: int | None = None,
) -> TransformPlan | None:  # fmt: skip
    """The cheapest plan within the budget, or None if no grid fits.

    Parameters
    ----------
    y : (m, d) array
        The points, or a sample of them.
    reach : (d,) array
        Largest |frequency| among the targets along each axis.
    n_targets : int
        Number of frequencies that are read.
    row_cost : float
        Seconds to sum one point that is left outside, term by term.
    eps : float
        Relative error to ask of finufft.
    budget : int
        Bytes that the grids may take.
    spreads : int, default 1
        Number of transforms of the same points, each with strengths of its own.
    n : int or None, default None
        Number of points that y is a sample of; None if y is all of them.
    """
    n = len(y) if n is None else n

    def seconds(points: float, nodes: float) -> float:
        width = kernel_width(eps)
        return costs.COSTS.transform(int(points), n_targets, nodes, width, len(reach), spreads)

    def plan(low: Array, high: Array, outside: float) -> TransformPlan | None:
        half, middle = LEAST_HALF_WIDTH / reach, low + 0.5 * (high - low)
        # not middle -+ half alone, which may round the outermost points away
        low, high = np.minimum(low, middle - half), np.maximum(high, middle + half)
        inner, fft = grid_nodes(0.5 * (high - low), reach, eps)
        size, total = COMPLEX_BYTES * (inner + fft), seconds(n - outside, fft) + row_cost * outside
        if size > budget:
            return None
        return TransformPlan(low, high, outside == 0, int(size), total)

    best = plan(y.min(axis=0), y.max(axis=0), 0)
    if best is not None and best.seconds < FREE_GRID * seconds(n, 2.0):
        return best
    smaller = (plan(low, high, max(share * n, 1.0)) for low, high, share in _smaller_boxes(y))
    found = [p for p in (best, *smaller) if p is not None]
    return min(found, key=lambda p: p.seconds, default=None)


def _smaller_boxes(y: Array) -> Iterator[tuple[Array, Array, float]]:
    """(low, high, share of the points outside) of boxes around the median, from large to small."""
    y_low, y_high = y.min(axis=0), y.max(axis=0)
    some = y[:: max(1, len(y) // BOX_ROWS)]
    bottom, middle, top = np.quantile(some, [0.1, 0.5, 0.9], axis=0)
    for stretch in STRETCHES:
        low, high = middle - stretch * (middle - bottom), middle + stretch * (top - middle)
        low, high = np.maximum(low, y_low), np.minimum(high, y_high)
        yield low, high, 1.0 - float(((some >= low) & (some <= high)).all(axis=1).mean())
