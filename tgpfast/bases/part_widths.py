"""How narrow the parts of a base are: what a grid must resolve."""

from __future__ import annotations

import numpy as np

from ..validation import Array
from .base import Base
from .bounded import BoundedMixtureBase
from .mixture import MixtureBase
from .product import ProductBase
from .student import StudentBase

# A Student density of scale s and v degrees needs cells as small as a Gaussian of deviation
# s sqrt(v / (v + 3.5)), for sums over a grid that err by 0.2 %: its peak is sharper than a
# Gaussian's. By its characteristic function, to 4 %, for 0.5 degrees and more.
SHARPNESS = 3.5


def part_widths(base: Base) -> tuple[Array, Array]:
    """Shares of a base's parts, (K,), and their deviations along each axis with the other columns
    held fixed, (K, d)."""
    if isinstance(base, ProductBase):
        shares, widths = np.ones(1), np.zeros((1, base.dimension))
        for factor, columns in base.each:
            more, wide = part_widths(factor)
            shares = np.multiply.outer(shares, more).ravel()
            widths = np.repeat(widths, len(more), axis=0)
            widths[:, columns] = np.tile(wide, (len(widths) // len(more), 1))
        return shares, widths
    mixture = base.mixture if isinstance(base, BoundedMixtureBase) else base
    if isinstance(mixture, MixtureBase):
        shares, covariances = mixture.weights, mixture.covariances
    else:
        shares, covariances = np.ones(1), base.covariance[None]
    precision = np.linalg.inv(covariances)
    return shares, 1.0 / np.sqrt(np.einsum("kii->ki", precision))


def least_widths(base: Base) -> Array:
    """Deviations along each axis, (d,), of the narrowest Gaussian that a grid must resolve for its
    sums to be about integrals against the base."""
    if isinstance(base, StudentBase):
        precision = np.diag(np.linalg.inv(base.scale_matrix))
        return np.asarray(np.sqrt(base.degrees / (base.degrees + SHARPNESS) / precision))
    return np.asarray(part_widths(base)[1].min(axis=0))
