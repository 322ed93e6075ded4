"""What a pass of the spectral engine has to do, what it may take, and what it would cost."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ..data.blocks import Blocks
from ..features.random import Features
from ..validation import Array
from . import costs
from .chunks import chunk_count, rows_per_chunk
from .direct import required_memory
from .fourier_sums import Targets, bandwidths_of
from .spread_grid import SpreadGrid
from .transform_plan import TransformPlan, grid_nodes, plan_transform
from .transforms import derivative_stencil, eps_for, kernel_width

COST_ROWS = 20_000  # rows of a sample from which costs are estimated
BOX_MARGIN = 1.25  # a box made from a sample of the rows is this many times as wide
FILL_SHARE = 0.3  # of `Costs.row`, for rows spread on one grid: small chunks use buffers again


@dataclass(frozen=True, eq=False)
class SpectralWork:
    """The sums to make, and the limits within which to make them.

    Attributes
    ----------
    features : Features
    noise_levels : (H,) array
    gram_phi : bool
    tolerance : float
        Largest error of F(w) / n.
    budget : int
        Bytes that frequencies, sums and grids may take.
    """

    features: Features
    noise_levels: Array
    gram_phi: bool
    tolerance: float
    budget: int

    @functools.cached_property
    def bandwidths(self) -> list[float]:
        """gamma, and gamma_sigma of every noise level above zero."""
        return bandwidths_of(self.features, self.noise_levels)

    @property
    def eps(self) -> float:
        """Relative error to ask of finufft."""
        return eps_for(self.tolerance)

    @functools.cached_property
    def row_cost(self) -> float:
        """Seconds of the direct engine for one row."""
        S, d = self.features.frequencies.shape
        return costs.COSTS.direct_row(S, d, len(self.noise_levels), self.gram_phi)

    @property
    def room(self) -> int:
        """Bytes of the budget that are left for grids."""
        S, d = self.features.frequencies.shape
        return self.budget - Targets.memory(S, len(self.bandwidths), d)

    @property
    def fits(self) -> bool:
        """Whether frequencies and statistics fit the budget, whatever the grids."""
        H = len(self.noise_levels)
        return required_memory(self.features, H, self.gram_phi, "float64", 1) <= self.room

    @property
    def n_base(self) -> int:
        """Number of the f_s of all bandwidths."""
        return len(self.bandwidths) * self.features.n_features

    @property
    def n_pairs(self) -> int:
        """Number of targets."""
        return self.n_base * (self.features.n_features + 1)

    @property
    def n_read(self) -> int:
        """Frequencies that a transform of a chunk reads: targets, and neighbors of the f_s."""
        neighbors = len(derivative_stencil(self.eps)[0])
        return self.n_pairs + self.n_base * self.features.dimension * neighbors

    def plan(self, y: Array, n: int, coarse: bool = True) -> TransformPlan | None:
        """How to transform n points, of which y is a sample, at once; None if no grid fits."""
        return plan_transform(
            y, self.features.bandlimit, self.n_read, self.row_cost, self.eps, self.room,
            coarse=coarse, n=n,
        )  # fmt: skip

    def seconds_by_chunks(self, y: Array, n: int) -> float:
        """Seconds of one transform for each chunk of n rows, of which y is a sample; infinite
        where no grid fits."""
        plan = self.plan(y, n)
        if plan is None:
            return np.inf
        d = y.shape[1]
        width = kernel_width(self.eps, plan.upsampling)
        _, fft = grid_nodes(plan.half, self.features.bandlimit, self.eps, plan.upsampling)
        once = costs.COSTS.transform(0, self.n_read, fft, width, d)
        inside = float(plan.inside(y).mean()) * n
        points = costs.COSTS.transform(int(inside), 0, 2.0, width, d)
        return float(chunk_count(n, d) * once + points + self.row_cost * (n - inside))

    def one_grid(self, y: Array, n: int) -> tuple[SpreadGrid | None, float]:
        """The grid for n rows, of which y is a sample, and its seconds; None and infinite where
        none fits."""
        plan = self.plan(y, n, coarse=False)
        if plan is None:
            return None, np.inf
        reach = plan.half * (BOX_MARGIN if plan.whole else 1.0)
        place = SpreadGrid(
            self.features.bandlimit, plan.middle - reach, plan.middle + reach, self.eps
        )
        if place.memory > self.room:
            return None, np.inf
        d, inside = y.shape[1], float(plan.inside(y).mean()) * n
        fft, cost = place.nodes * 2.0**d, costs.COSTS
        points = cost.transform(int(inside), 0, 2.0, place.width, d)
        points -= (1.0 - FILL_SHARE) * cost.row * d * inside
        read = cost.transform(0, self.n_pairs, fft, place.width + 1, d, spreads=2)
        read += cost.transform(0, self.n_base, fft, place.width + 1, d, spreads=2 + 2 * d)
        return place, points + read + self.row_cost * (n - inside)

    def cheaper_grid(self, y: Array, n: int) -> SpreadGrid | None:
        """The grid for n rows, where it costs less than one transform for each chunk."""
        place, seconds = self.one_grid(y, n)
        return place if seconds < self.seconds_by_chunks(y, n) else None

    def seconds(self, blocks: Blocks) -> float | None:
        """Seconds of a pass over blocks, estimated from a sample of the rows; None where no grid
        fits the budget, or the number of rows is not known."""
        pilot = blocks.pilot(COST_ROWS)
        if pilot is None or blocks.n_rows is None:
            return None
        y, n = pilot[0], blocks.n_rows
        seconds = self.seconds_by_chunks(y, n)
        if chunk_count(n, self.features.dimension) > 1:
            seconds = min(seconds, self.one_grid(y, n)[1])
        return seconds if seconds < np.inf else None

    def rows_that_pay(self, y: Array) -> int | None:
        """From how many rows like y, up to one chunk, the spectral engine is faster; None if it is
        not. Further rows are cheaper still, since the transform itself is paid for."""
        n, most = len(y), rows_per_chunk(self.features.dimension)
        while n <= most:
            if self.seconds_by_chunks(y, n) < self.row_cost * n:
                return n
            n *= 2
        return None
