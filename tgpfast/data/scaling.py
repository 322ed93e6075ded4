"""The affine map between the units of the data and those of the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..validation import Array


@dataclass(frozen=True, eq=False)
class Scaling:
    """u = (x - shift) / scale: x in the units of the data, u in those of the model.

    Attributes
    ----------
    shift, scale : (d,) array
        Scales are positive.

    Examples
    --------
    >>> import numpy as np
    >>> scaling = Scaling(np.array([1.0]), np.array([2.0]))
    >>> scaling.apply(np.array([[5.0]]))
    array([[2.]])
    """

    shift: Array
    scale: Array

    @classmethod
    def identity(cls, d: int) -> Scaling:
        """Return the scaling that changes nothing: the coordinates of ``solve``."""
        return cls(np.zeros(d), np.ones(d))

    @property
    def is_identity(self) -> bool:
        """Whether the scaling changes nothing."""
        return not self.shift.any() and bool((self.scale == 1.0).all())

    @property
    def log_volume(self) -> float:
        """Sum of log scale: log density in x = log density in u - log_volume."""
        return float(np.log(self.scale).sum())

    def apply(self, x: Array) -> Array:
        """Map rows (n, d) of the data to the units of the model."""
        return x if self.is_identity else (x - self.shift) / self.scale

    def invert(self, u: Array) -> Array:
        """Map rows (n, d) of the model to the units of the data."""
        return u if self.is_identity else u * self.scale + self.shift
