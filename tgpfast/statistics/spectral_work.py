"""What a pass of the spectral engine has to do, what it may take, and what it would cost."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ..data.blocks import Blocks
from ..features.random import Features
from ..validation import Array
from . import costs
from .chunks import rows_per_chunk
from .direct import required_memory
from .fourier_sums import bandwidths_of, target_memory
from .spread_grid import SpreadGrid
from .transform_plan import plan_transform
from .transforms import eps_for

COST_ROWS = 20_000  # rows of a sample from which costs are estimated
PRODUCT_SECONDS = 1e-10  # of one frequency and one node in `SpreadGrid.read_weighted`
SAMPLE_MARGIN = 1.1  # a box around a sample is this many times as wide, for the other rows
ASSUMED_ROWS = 2**24  # of a stream whose length is not known


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
        return self.budget - target_memory(S, len(self.bandwidths), d)

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

    def one_grid(self, y: Array, n: int) -> tuple[SpreadGrid | None, float]:
        """The grid for n rows, of which y is a sample, and the seconds of a pass; None and infinite
        where none fits."""
        d = self.features.dimension
        plan = plan_transform(
            y, self.features.bandlimit, self.n_pairs, self.row_cost, self.eps, self.room,
            n=n,
        )  # fmt: skip
        if plan is None:
            return None, np.inf
        reach = plan.half * (SAMPLE_MARGIN if plan.whole and len(y) < n else 1.0)
        place = SpreadGrid(
            self.features.bandlimit, plan.middle - reach, plan.middle + reach, self.eps
        )
        if place.memory > self.room:
            return None, np.inf
        inside, fft, cost = float(plan.inside(y).mean()) * n, place.nodes * 2.0**d, costs.COSTS
        seconds = cost.transform(int(inside), 0, 2.0, place.width, d)
        seconds += cost.transform(0, self.n_pairs, fft, place.width + 1, d)
        seconds += PRODUCT_SECONDS * self.n_base * place.nodes
        return place, seconds + self.row_cost * (n - inside)

    def place(self, y: Array, n: int | None) -> SpreadGrid | None:
        """The grid for n rows, or many where n is None, of which y is a sample."""
        return self.one_grid(y, ASSUMED_ROWS if n is None else n)[0]

    def seconds(self, blocks: Blocks) -> float | None:
        """Seconds of a pass over blocks, estimated from a sample of the rows; None where no grid
        fits the budget, or the number of rows is not known."""
        pilot = blocks.pilot(COST_ROWS)
        if pilot is None or blocks.n_rows is None:
            return None
        seconds = self.one_grid(pilot[0], blocks.n_rows)[1]
        return seconds if seconds < np.inf else None

    def rows_that_pay(self, y: Array) -> int | None:
        """From how many rows like y, up to one chunk, the spectral engine is faster; None if it is
        not. Further rows are cheaper still, since the transform itself is paid for."""
        n, most = len(y), rows_per_chunk(self.features.dimension)
        while n <= most:
            if self.one_grid(y, n)[1] < self.row_cost * n:
                return n
            n *= 2
        return None
