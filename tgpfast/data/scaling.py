"""The map between the units of the data and those of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..runtime.records import record
from ..validation import Array


@record
class Scaling:
    """u = (x - shift) / scale: x in the units of the data, u in those of the model.

    `column_maps.MappedScaling` is the one that bends columns too.

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

    is_affine = True  # the map is shift and scale alone

    @classmethod
    def identity(cls, d: int) -> Scaling:
        """Return the scaling that changes nothing: the coordinates of ``solve``."""
        return cls(np.zeros(d), np.ones(d))

    @property
    def is_identity(self) -> bool:
        """Whether the scaling changes nothing."""
        return not self.shift.any() and bool((self.scale == 1.0).all())

    @property
    def mapped_walls(self) -> NDArray[np.bool_]:
        """Columns whose walls are mapped to infinity, (d,)."""
        return np.zeros(len(self.shift), bool)

    @property
    def maps_walls(self) -> bool:
        """Whether walls of some column are mapped to infinity."""
        return bool(self.mapped_walls.any())

    @property
    def affine(self) -> Scaling:
        """Shift and scale, which act on columns that are mapped to the line."""
        return self

    @property
    def unscaled(self) -> Scaling:
        """Return the same maps of columns, without shift and scale."""
        return replace(self, shift=np.zeros(len(self.shift)), scale=np.ones(len(self.scale)))

    @property
    def log_volume(self) -> float:
        """Sum of log scale: log density in x = log density in u - log_volume."""
        return float(np.log(self.scale).sum())

    def choose(self, columns: Sequence[int]) -> Scaling:
        """Return the scaling of some columns."""
        return Scaling(self.shift[columns], self.scale[columns])

    def apply(self, x: Array) -> Array:
        """Map rows (n, d) of the data to the units of the model."""
        return x if self.is_identity else (x - self.shift) / self.scale

    def apply_inside(self, x: Array) -> Array:
        """As `apply`; refuses rows outside of the walls, of which there are none here."""
        return self.apply(x)

    def invert(self, u: Array) -> Array:
        """Map rows (n, d) of the model to the units of the data."""
        return u if self.is_identity else u * self.scale + self.shift

    # -- columns that are bent: none here

    def bends(self, column: int) -> bool:
        """Whether a map bends this column."""
        return False

    def apply_bounds(self, ends: Array) -> Array:
        """Map ends (n, d) of boxes as `apply` maps rows; those at walls go to infinity."""
        return self.apply(ends)

    def to_line(self, column: int, values: Array) -> Array:
        """Map values of one column to what `affine` scales."""
        return values

    def from_line(self, column: int, values: Array) -> Array:
        """Invert `to_line`."""
        return values

    def log_slope(self, x: Array) -> Array | float:
        """Return log |du/dx| at rows x: log density in x = log density in u + log_slope."""
        return -self.log_volume

    def log_slope_at(self, u: Array) -> Array | float:
        """Return log |du/dx| at rows u of the model."""
        return -self.log_volume

    def log_slope_score(self, u: Array) -> Array | float:
        """Return the gradient in u of `log_slope_at`, (n, d); 0 where it is constant."""
        return 0.0

    def pull_score(self, x: Array, score: Array) -> Array:
        """Return the gradient of a log density in x from that in u, (n, d)."""
        return score / self.scale
