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
from .transforms import WIDEST_KERNEL, kernel_width

FINE, COARSE = 2.0, 1.25  # upsampling factors that finufft offers
COARSE_ROWS = 100_000  # fewer points do not repay the coarse grid, whose result must be checked
FREE_GRID = 1.2  # a plan this many times as slow as one without a grid leaves no point outside
LEAST_HALF_WIDTH = 1e-3  # of a box, in units of one over the largest frequency
COMPLEX_BYTES = 16
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
    upsampling : float
        2.0, or 1.25 for a coarse grid.
    grid_bytes : int
        Memory of the grids.
    seconds : float
        Estimated time, points outside included.
    """

    low: Array
    high: Array
    whole: bool
    upsampling: float
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


def grid_nodes(half: Array, reach: Array, eps: float, upsampling: float) -> tuple[float, float]:
    """Nodes of the inner grid of a type-3 transform, and of its upsampled FFT.

    Parameters
    ----------
    half, reach : (d,) array
        Half sides of the box, and largest |frequency| along each axis.
    eps, upsampling : float
        As for `transforms.transform`.
    """
    width = kernel_width(eps, upsampling)
    sides = 2.0 * upsampling * half * reach / np.pi + width + 1.0
    sides = np.maximum(sides, 2.0 * width)
    return float(np.prod(sides)), float(np.prod(np.maximum(upsampling * sides, 2.0 * width)))


@dataclass(frozen=True)
class _Workload:
    """What the transform has to do, whatever its box; arguments as for ``plan_transform``."""

    n: int
    reach: Array
    n_targets: int
    row_cost: float
    eps: float
    budget: int
    spreads: int
    upsamplings: tuple[float, ...]

    def cheapest(self, low: Array, high: Array, outside: float) -> TransformPlan | None:
        """The cheapest plan with this box, outside which so many points lie; None if none fits."""
        least = LEAST_HALF_WIDTH / self.reach
        middle, half = low + 0.5 * (high - low), np.maximum(0.5 * (high - low), least)
        plans = []
        for upsampling in self.upsamplings:
            width = kernel_width(self.eps, upsampling)
            inner, fft = grid_nodes(half, self.reach, self.eps, upsampling)
            size = COMPLEX_BYTES * (inner + fft)
            if width <= WIDEST_KERNEL and size <= self.budget:
                seconds = self.seconds(int(self.n - outside), fft, width)
                plans.append(TransformPlan(
                    middle - half, middle + half, outside == 0, upsampling, int(size),
                    seconds + self.row_cost * outside,
                ))  # fmt: skip
        return min(plans, key=lambda plan: plan.seconds, default=None)

    def seconds(self, n: int, nodes: float, width: int) -> float:
        """Seconds to transform n points on a grid of so many nodes."""
        d = len(self.reach)
        return costs.COSTS.transform(n, self.n_targets, nodes, width, d, self.spreads)


def plan_transform(
    y: Array, reach: Array, n_targets: int, row_cost: float, eps: float, budget: int, *,
    spreads: int = 1, coarse: bool = True, n: int | None = None,
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
    coarse : bool, default True
        Whether a coarse grid may be chosen, whose result the caller must check.
    n : int or None, default None
        Number of points that y is a sample of; None if y is all of them.
    """
    n = len(y) if n is None else n
    upsamplings = (FINE, COARSE) if coarse and n >= COARSE_ROWS else (FINE,)
    work = _Workload(n, reach, n_targets, row_cost, eps, budget, spreads, upsamplings)
    best = work.cheapest(y.min(axis=0), y.max(axis=0), 0)
    without_grid = work.seconds(n, 2.0, kernel_width(eps, FINE))
    if best is not None and best.seconds < FREE_GRID * without_grid:
        return best
    for low, high, share in _smaller_boxes(y):
        plan = work.cheapest(low, high, max(share * n, 1.0))
        if plan is not None and (best is None or plan.seconds < best.seconds):
            best = plan
    return best


def _smaller_boxes(y: Array) -> Iterator[tuple[Array, Array, float]]:
    """(low, high, share of the points outside) of boxes around the median, from large to small."""
    y_low, y_high = y.min(axis=0), y.max(axis=0)
    some = y[:: max(1, len(y) // BOX_ROWS)]
    bottom, middle, top = np.quantile(some, [0.1, 0.5, 0.9], axis=0)
    for stretch in STRETCHES:
        low, high = middle - stretch * (middle - bottom), middle + stretch * (top - middle)
        low, high = np.maximum(low, y_low), np.minimum(high, y_high)
        yield low, high, 1.0 - float(((some >= low) & (some <= high)).all(axis=1).mean())
