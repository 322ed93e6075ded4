"""Hessians of small lattices: a factor of one that is near them makes conjugate gradients short.

Minus the Hessian is I + n D V D in whitened coordinates, with D the root of the prior and V the
covariance of the features under the density. Densities of candidates whose scores are compared
differ little, and so do their V. One V therefore serves every kernel, bandwidth, lambda and fold: a
candidate takes a factor of I + n D V D, and then a few products with its own Hessian.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..validation import Array
from .conjugate_gradients import Operator
from .lattice_posterior import LatticePosteriors

# real numbers in the modes, up to which a factor of the Hessian is faster. With 306 of them a
# factor takes 1 ms and saves nine of ten products, of 0.1 ms each. In larger lattices, factors of
# the lowest modes saved few products
MOST_NUMBERS = 400


def is_small(features: LatticeFeatures) -> bool:
    """Whether a factor of the Hessian takes less time than the products that it saves."""
    return _count_numbers(features) <= MOST_NUMBERS


class FeatureCovariance:
    """The covariance of the features of a lattice under one density.

    Parameters
    ----------
    features : LatticeFeatures
        Only its modes matter.
    density : array of a grid's shape
        Masses of the nodes.
    taper : array of the same shape
    """

    def __init__(self, features: LatticeFeatures, density: Array, taper: Array) -> None:
        size = _count_numbers(features)
        units: Modes = np.eye(size).view(features.mode_dtype).reshape(size, *features.mode_shape)
        waves = features.to_grid(units, density.shape).reshape(size, -1)
        mean = waves @ (density * taper).ravel()
        waves *= (np.sqrt(density) * taper).ravel()
        self.matrix: Array = waves @ waves.T - np.outer(mean, mean)

    def invert_hessians(self, posteriors: LatticePosteriors) -> Operator | None:
        """Function r -> about minus the inverses of the Hessians times r, for posteriors whose
        densities are about this one; None where rounding leaves no factor.

        Parameters
        ----------
        posteriors : LatticePosteriors
            Of the same modes.
        """
        n_parts = len(self.matrix) // posteriors.to_theta.size
        root = np.repeat(posteriors.to_theta.ravel(), n_parts)
        hessian = self.matrix * (float(posteriors.n.mean()) * root[:, None] * root)
        hessian[np.diag_indices_from(hessian)] += 1.0
        # the transpose is the same matrix, in the order of columns that LAPACK overwrites
        factor, failed = lapack.dpotrf(hessian.T, lower=True, overwrite_a=True)
        if failed:
            return None

        def solve(r: Modes) -> Modes:
            parts = r.reshape(len(r), -1).view(np.float64)
            found, _ = lapack.dpotrs(factor, parts.T, lower=True)
            return np.ascontiguousarray(found.T).view(r.dtype).reshape(r.shape)

        return solve


def _count_numbers(features: LatticeFeatures) -> int:
    """Real numbers that the stored modes have."""
    n_parts = np.dtype(features.mode_dtype).itemsize // 8
    return n_parts * int(np.prod(features.mode_shape))
