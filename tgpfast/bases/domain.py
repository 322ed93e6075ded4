"""`Domain`: a box whose axes are open, end at walls, or are periodic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.scaling import Scaling
from ..validation import Array
from .base import Base, RescaledBase

ROUNDINGS = 16.0  # units in the last place that a row at a wall may be off


class Domain:
    """A box whose axes are open, have walls, or are periodic.

    Parameters
    ----------
    low, high : (d,) arrays
        Ends of the axes; -inf and inf where there is no wall.
    periodic : (d,) bools, default none
        Axes whose ends are the same place. Rows beyond the ends are moved by whole periods.

    Raises
    ------
    ValueError
        Low is not below high, or a periodic axis is not finite.

    Examples
    --------
    >>> domain = Domain([0.0, -np.inf], [24.0, np.inf], [True, False])
    >>> domain.wrap(np.array([[25.0, 3.0]])).tolist()
    [[1.0, 3.0]]
    """

    def __init__(self, low: Any, high: Any, periodic: Any = None) -> None:
        self.low, self.high = _as_ends(low, "low"), _as_ends(high, "high")
        self.periodic: NDArray[np.bool_] = np.zeros(len(self.low), bool)
        if periodic is not None:
            self.periodic = np.asarray(periodic).astype(bool)
        if not self.low.shape == self.high.shape == self.periodic.shape or not len(self.low):
            raise ValueError(
                f"low, high and periodic have shapes {self.low.shape}, {self.high.shape} and "
                f"{self.periodic.shape}; expected the same (d,)"
            )
        if not (self.low < self.high).all():
            raise ValueError(f"low={self.low.tolist()} must be below high={self.high.tolist()}")
        with np.errstate(invalid="ignore", over="ignore"):
            if not np.isfinite(self.high - self.low)[self.periodic].all():
                raise ValueError("a periodic axis needs two finite ends")

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.low)

    @property
    def is_bounded(self) -> bool:
        """Whether every axis ends on both sides."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    @property
    def periods(self) -> Array:
        """Period of every axis, (d,); infinite where it has none."""
        none = np.full(self.dimension, np.inf)
        return np.subtract(self.high, self.low, out=none, where=self.periodic)

    @property
    def walls(self) -> tuple[Array, Array]:
        """Ends of the axes where they are walls, -inf and inf elsewhere."""
        return (
            np.where(self.periodic, -np.inf, self.low), np.where(self.periodic, np.inf, self.high)
        )  # fmt: skip

    @property
    def is_walled(self) -> NDArray[np.bool_]:
        """Whether each axis has a wall, (d,)."""
        return np.asarray(np.isfinite(self.walls).any(axis=0))

    @property
    def is_open(self) -> bool:
        """Whether no axis has an end."""
        return bool(np.isinf(self.low).all() and np.isinf(self.high).all())

    def choose(self, columns: Any) -> Domain:
        """The domain of some columns, in the order given."""
        return Domain(self.low[columns], self.high[columns], self.periodic[columns])

    def wrap(self, x: Array) -> Array:
        """Rows moved by whole periods into the domain."""
        if not self.periodic.any():
            return x
        y = x.copy()
        for k in np.flatnonzero(self.periodic):
            low, period = self.low[k], self.high[k] - self.low[k]
            y[:, k] -= period * np.floor((y[:, k] - low) / period)
            y[~((low <= y[:, k]) & (y[:, k] < self.high[k])), k] = low  # roundings
        return y

    def contains(self, x: Array) -> NDArray[np.bool_]:
        """Whether each row lies between the walls, which belong to the domain, as do rows that
        roundings have moved beyond them."""
        low, high = self.walls
        below, above = (
            ROUNDINGS * np.abs(np.spacing(np.where(np.isfinite(end), end, 0.0)))
            for end in (low, high)
        )
        return np.asarray(((low - below <= x) & (x <= high + above)).all(axis=1))

    def rescaled(self, scaling: Scaling) -> Domain:
        """The same domain in other coordinates; maps of columns move walls to infinity."""
        with np.errstate(invalid="ignore"):
            low, high = scaling.apply_bounds(np.stack([self.low, self.high]))
        return Domain(low, high, self.periodic)

    def parameters(self) -> dict[str, Array]:
        """The arguments, by name."""
        return {"low": self.low, "high": self.high, "periodic": self.periodic.astype(float)}


def _as_ends(value: Any, name: str) -> Array:
    ends = np.array(value, dtype=np.float64)
    if ends.ndim != 1 or np.isnan(ends).any():
        raise ValueError(f"{name} must be (d,) numbers, -inf or inf, got {value!r}")
    ends.setflags(write=False)
    return ends


def domain_of(base: Base) -> Domain:
    """Where a base lives; open for bases that do not say it.

    Parameters
    ----------
    base : Base
        Those on domains have an attribute ``domain``.

    Examples
    --------
    >>> from tgpfast import GaussianBase
    >>> domain_of(GaussianBase([0.0], [[1.0]])).is_open
    True
    """
    if isinstance(base, RescaledBase):
        return domain_of(base.original).rescaled(base.scaling)
    known = getattr(base, "domain", None)
    if isinstance(known, Domain):
        return known
    return Domain(np.full(base.dimension, -np.inf), np.full(base.dimension, np.inf))
