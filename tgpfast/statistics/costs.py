"""A model of the seconds that each engine takes, by which ``engine="auto"`` chooses.

The constants are shipped with the package. They were fitted to passes on two
machines of two cores, with AVX2 and with AVX-512; only their ratios matter, since they choose
between engines whose results agree.
"""

from __future__ import annotations

import numpy as np

from ..features.random import Features
from ..runtime.records import record


@record
class Costs:
    """Seconds of elementary operations, with all cores of the machine in use.

    Attributes
    ----------
    flop : float
        One multiplication or addition of a rank-k update.
    feature : float
        Sine and cosine of one feature at one point.
    tilt : float
        Cosine of one feature at one point, times a coefficient.
    point_1, point_2, point_3 : float
        Spreading (or reading) one point in one, two or three dimensions.
    cell_1, cell_2, cell_3 : float
        One grid cell that such a point touches.
    target : float
        Work inside the transform on one frequency that is read, beyond spreading.
    node : float
        One node of an FFT, per log2 of the number of nodes.
    pair : float
        Work outside the transform on one frequency that is read.
    row : float
        Work outside the transform on one coordinate of a point.
    start : float
        Overhead of one transform.
    """

    flop: float = 8.6e-12
    feature: float = 1.7e-9
    tilt: float = 5e-10
    point_1: float = 9e-9
    point_2: float = 5.4e-8
    point_3: float = 1.8e-7
    cell_1: float = 2.8e-9
    cell_2: float = 4.9e-10
    cell_3: float = 1.1e-10
    target: float = 5.6e-8
    node: float = 7.2e-10
    pair: float = 2.8e-8
    row: float = 2.1e-8
    start: float = 5.7e-3

    def direct_row(self, n_features: int, d: int, n_levels: int, gram_phi: bool) -> float:
        """Seconds of the direct engine for one row."""
        updates = 1 + gram_phi + 2 * max(n_levels - 1, 0)
        work = self.flop * n_features * (n_features + 1) * updates
        return work + self.feature * n_features * (1 + max(n_levels - 1, 0)) * (0.9 + d / 20.0)

    def tilt_row(self, features: Features) -> float:
        """Seconds to evaluate a point model at one row, term by term."""
        return self.tilt * features.n_features * (0.9 + features.dimension / 20.0)

    def quadratic_row(self, features: Features) -> float:
        """Seconds to evaluate an FVPD model at one row by a triangular solve."""
        S = features.n_features
        return self.flop * S * S + self.feature * S

    def transform(
        self, n_points: int, n_targets: int, nodes: float, width: int, d: int, spreads: int = 1
    ) -> float:
        """Seconds of several type-3 transforms of the same points to the same targets.

        Parameters
        ----------
        n_points, n_targets : int
            Points that are spread, and frequencies that are read.
        nodes : float
            Nodes of the upsampled FFT.
        width : int
            Grid cells along each axis that a point is spread over.
        d : int
            Dimensions, 1 to 3.
        spreads : int, default 1
            Number of transforms, each with strengths of its own.
        """
        point = getattr(self, f"point_{d}") + getattr(self, f"cell_{d}") * width**d
        fft = self.node * nodes * np.log2(max(nodes, 2.0))
        each = self.start + fft + point * n_points + (point + self.target + self.pair) * n_targets
        return float(spreads * each + self.row * d * n_points)


NEGLIGIBLE_SECONDS = 0.02  # of the direct engine; a shorter pass is not worth an estimate
COSTS = Costs()  # those in use; read as ``costs.COSTS``, so that tests replace them in one place
