"""An approximate inverse of the systems of a lattice: circulant inverses between levels of density.

In whitened coordinates the systems are c I + C^1/2 diag(q) C^1/2, with C diagonal in the modes and
the density q diagonal at the nodes. For a constant q the inverse is 1 / (c + q S), diagonal in the
modes. Where q varies little within a wavelength, the inverse of its local value serves:

    M^-1 = sum_i R_i F* h_i(q) F R_i,    R_i = (c + q_i S)^-1/2,

with levels q_i and weights h_i(q(x)) that interpolate in log q and sum to 1. A single level, the
mean of q, is the circulant preconditioner; it needs more products than none at all, since densities
vary by orders of magnitude.
"""

from __future__ import annotations

import math

import numpy as np

from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..validation import LEAST_NUMBER, Array

LEVEL_RATIO = 100.0  # of neighboring levels: fewer levels cost less, more approximate better
LEAST_LEVEL = 0.5  # of q S / c: below, the system is about c I


class LevelPreconditioner:
    """The function r -> M^-1 r.

    Parameters
    ----------
    features : LatticeFeatures
    symbol : array of the mode shape
        S, such that the system is c + q S for a constant q.
    density : array of the shape ``features.grid_shape(1.0)``
        q at the nodes, about; negative values count as zero.
    shift : float, default 1.0
        c.
    workers : int, default 1
        Threads of the FFTs.
    """

    def __init__(
        self, features: LatticeFeatures, symbol: Array, density: Array, shift: float = 1.0,
        workers: int = 1,
    ) -> None:  # fmt: skip
        self._transform = features.transform(density.shape, workers)
        # a prior without variance makes a system of c I alone
        lowest = LEAST_LEVEL * shift / max(float(symbol.max()), LEAST_NUMBER)
        highest = max(float(density.max()), lowest)
        count = math.ceil(math.log(highest / lowest) / math.log(LEVEL_RATIO)) + 1
        levels = highest * LEVEL_RATIO ** -np.arange(float(count))
        within = np.clip(density, levels[-1], highest)
        place = np.log(highest / within) / math.log(LEVEL_RATIO)
        each = (slice(None), *(None,) * density.ndim)
        self._weights = np.maximum(0.0, 1.0 - np.abs(place - np.arange(float(count))[each]))
        roots = 1.0 / np.sqrt(shift + levels[each] * symbol)
        self._to_nodes = roots / np.sqrt(features.mean_squares)
        self._to_modes = self._to_nodes * (features.multiplicity / density.size)

    def __call__(self, r: Modes) -> Modes:
        values = self._transform.to_grid(self._to_nodes * r)
        values *= self._weights
        modes = self._transform.from_grid(values)
        modes = modes * self._to_modes
        return modes.sum(axis=0)
