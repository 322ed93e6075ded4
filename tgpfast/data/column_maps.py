"""Increasing maps of columns to the line: logs at walls, and splines to a Gaussian.

Every map is smooth, has an inverse and exact derivatives, and is linear beyond its last knots.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime.records import record
from ..validation import Array
from .scaling import Scaling

MOST_NEWTON_STEPS = 60  # of the inverse; halving a bracket so often leaves no digit open
SPLINE_ARRAYS = ("knots", "heights", "slopes")  # of a map, in the order of its arguments
INVERSE_TOLERANCE = 4.0 * np.finfo(float).eps  # of the inverse, over the size of its values


class OutsideSupportError(ValueError):
    """A row outside of the walls of its columns."""


class Derivatives(NamedTuple):
    """Derivatives of a map T at values of a column, (n,) each.

    slope : T'
    log_gradient, log_curvature : first and second derivative of log T'
    """

    slope: Array
    log_gradient: Array
    log_curvature: Array


@record
class ColumnMap:
    """An increasing map of one column: a log where there is a wall, then a cubic spline.

    With t = x - low, y is log t with a wall below, -log(high - x) with a wall above, the log of
    their ratio with both, and x with none. The map is s(y), where the spline s has given heights
    and slopes at its knots, and is linear beyond them.

    Parameters
    ----------
    knots : (m,) array
        Increasing values of y, at least two.
    heights, slopes : (m,) array
        Of the spline at the knots.
    low, high : float, default -inf and inf
        Walls, in the units of the column.
    inset : float, default 0.0
        Values exactly on a wall are taken as so far inside.

    Raises
    ------
    ValueError
        The map does not increase strictly, or a number is not valid.

    Examples
    --------
    >>> import numpy as np
    >>> line = ColumnMap.plain(low=0.0)
    >>> line.apply(np.array([1.0, np.e])).tolist()
    [0.0, 1.0]
    """

    knots: Array
    heights: Array
    slopes: Array
    low: float = -math.inf
    high: float = math.inf
    inset: float = 0.0

    def __post_init__(self) -> None:
        sizes = {np.shape(part) for part in (self.knots, self.heights, self.slopes)}
        if len(sizes) != 1 or np.ndim(self.knots) != 1 or len(self.knots) < 2:
            raise ValueError("a column map needs as many knots as heights and slopes, at least two")
        parts = np.concatenate([self.knots, self.heights, self.slopes, [self.inset]])
        if not np.isfinite(parts).all() or not self.low < self.high or self.inset < 0.0:
            raise ValueError("a column map needs finite knots, heights and slopes, and low < high")
        with np.errstate(all="ignore"):
            rises = (np.diff(self.knots) > 0).all() and self._least_slope > 0.0
        if not rises:
            raise ValueError("a column map must increase strictly")

    @classmethod
    def plain(cls, low: float = -math.inf, high: float = math.inf, inset: float = 0.0) -> ColumnMap:
        """Return the map without a spline: the log at walls, or the identity."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.ones(2), low, high, inset)

    @property
    def has_walls(self) -> bool:
        """Whether there is a wall."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    @functools.cached_property
    def _coefficients(self) -> tuple[Array, Array, Array]:
        """Chord slopes, and the coefficients of squares and cubes, of every piece."""
        width = np.diff(self.knots)
        chord = np.diff(self.heights) / width
        first, last = self.slopes[:-1], self.slopes[1:]
        return chord, (3.0 * chord - 2.0 * first - last) / width, (
            (first + last - 2.0 * chord) / width**2
        )

    @functools.cached_property
    def is_identity(self) -> bool:
        """Whether the map changes nothing."""
        is_line = bool((self.slopes == 1.0).all() and (self.knots == self.heights).all())
        return is_line and not self.has_walls

    @property
    def _least_slope(self) -> float:
        """The least derivative of the spline: at a knot, or at the vertex of a parabola."""
        _, square, cube = self._coefficients
        vertex = np.where(cube > 0.0, -square / np.where(cube > 0.0, 3.0 * cube, 1.0), -1.0)
        inside = (vertex > 0.0) & (vertex < np.diff(self.knots))
        bends = self.slopes[:-1] + vertex * (2.0 * square + 3.0 * cube * vertex)
        return float(np.concatenate([self.slopes, bends[inside]]).min())

    # -- the map and its inverse

    def apply(self, values: Array) -> Array:
        """Map values (n,) to the line; values below the walls to -inf, above them to inf."""
        if self.is_identity:
            return values
        y = self._unwall(values)
        k, h = self._locate(np.clip(y, self.knots[0], self.knots[-1]))
        _, square, cube = self._coefficients
        found = self.heights[k] + h * (self.slopes[k] + h * (square[k] + h * cube[k]))
        found += self.slopes[0] * np.minimum(y - self.knots[0], 0.0)
        found += self.slopes[-1] * np.maximum(y - self.knots[-1], 0.0)
        return np.asarray(found)

    def invert(self, line: Array) -> Array:
        """Map places (n,) of the line to values of the column, by Newton's method."""
        if self.is_identity:
            return line
        y = self._invert_spline(np.clip(line, self.heights[0], self.heights[-1]))
        y = y + np.minimum(line - self.heights[0], 0.0) / self.slopes[0]
        return self._wall(y + np.maximum(line - self.heights[-1], 0.0) / self.slopes[-1])

    def log_slope(self, values: Array) -> Array:
        """Return log T' at values (n,); 0 outside of the walls."""
        if self.is_identity:
            return np.zeros(len(values))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(self._spline_slopes(self._unwall(values))[0])
            for distance, _ in self._distances(values):
                found -= np.log(distance)
                if math.isfinite(self.high - self.low):
                    found += 0.5 * math.log(self.high - self.low)  # once for each of two walls
        return np.where(np.isfinite(found), found, 0.0)

    def derivatives(self, values: Array) -> Derivatives:
        """Return T', and the first two derivatives of log T', at values (n,) inside the walls."""
        slope, bend, twist = self._spline_slopes(self._unwall(values))
        ratio = bend / slope
        rise = np.full(len(values), 0.0 if self.has_walls else 1.0)  # dy/dx
        curve, log_gradient, log_curvature = np.zeros((3, len(values)))  # d2y/dx2, of log dy/dx
        with np.errstate(all="ignore"):
            for t, sign in self._distances(values):
                rise += 1.0 / t
                curve -= sign / t**2
                log_gradient -= sign / t
                log_curvature += 1.0 / t**2
            log_gradient += ratio * rise
            log_curvature += (twist / slope - ratio**2) * rise**2 + ratio * curve
        return Derivatives(slope * rise, log_gradient, log_curvature)

    def _inside(self, values: Array) -> Array:
        """Values on a wall moved inside."""
        moved = np.where(values == self.low, self.low + self.inset, values)
        return np.where(values == self.high, self.high - self.inset, moved)

    def _distances(self, values: Array) -> list[tuple[Array, float]]:
        """Distance to each wall, and the direction away from it: 1 or -1."""
        x = self._inside(values)
        found = [(x - self.low, 1.0)] if math.isfinite(self.low) else []
        return [*found, (self.high - x, -1.0)] if math.isfinite(self.high) else found

    def _unwall(self, values: Array) -> Array:
        """Y of values of the column."""
        if not self.has_walls:
            return values
        y = np.zeros(len(values))
        with np.errstate(divide="ignore", invalid="ignore"):
            for t, sign in self._distances(values):
                y += sign * np.log(t)
        return np.where(values < self.low, -np.inf, np.where(values > self.high, np.inf, y))

    def _wall(self, y: Array) -> Array:
        """Values of the column at y."""
        if not self.has_walls:
            return y
        with np.errstate(over="ignore"):
            if math.isinf(self.high):
                return self.low + np.exp(y)
            if math.isinf(self.low):
                return self.high - np.exp(-y)
            small = (self.high - self.low) / (1.0 + np.exp(np.abs(y)))  # to the nearer wall
        return np.where(y < 0.0, self.low + small, self.high - small)

    def _locate(self, y: Array) -> tuple[Any, Array]:
        """Piece of every y, and the distance from its first knot."""
        k = np.clip(np.searchsorted(self.knots, y, side="right") - 1, 0, len(self.knots) - 2)
        return k, y - self.knots[k]

    def _spline_slopes(self, y: Array) -> tuple[Array, Array, Array]:
        """First, second and third derivative of the spline."""
        k, h = self._locate(np.clip(y, self.knots[0], self.knots[-1]))
        _, square, cube = self._coefficients
        is_line = (y < self.knots[0]) | (y > self.knots[-1])
        slope = self.slopes[k] + h * (2.0 * square[k] + 3.0 * h * cube[k])
        bend = np.where(is_line, 0.0, 2.0 * square[k] + 6.0 * h * cube[k])
        return slope, bend, np.where(is_line, 0.0, 6.0 * cube[k])

    def _invert_spline(self, z: Array) -> Array:
        """Y at heights z within those of the knots; a bracket guards Newton's steps."""
        k = np.clip(np.searchsorted(self.heights, z, side="right") - 1, 0, len(self.knots) - 2)
        chord, square, cube = (part[k] for part in self._coefficients)
        slope, rise = self.slopes[k], z - self.heights[k]
        low, high = np.zeros(len(z)), np.diff(self.knots)[k]
        h = np.clip(rise / chord, low, high)
        tolerance = INVERSE_TOLERANCE * np.maximum(high, np.abs(self.knots[k]))
        for _ in range(MOST_NEWTON_STEPS):
            gap = h * (slope + h * (square + h * cube)) - rise
            low, high = np.where(gap <= 0.0, h, low), np.where(gap >= 0.0, h, high)
            new = h - gap / (slope + h * (2.0 * square + 3.0 * h * cube))
            new = np.where((new < low) | (new > high), 0.5 * (low + high), new)
            step, h = np.abs(new - h), new
            if (step <= tolerance).all():
                break
        return np.asarray(self.knots[k] + h)


@record
class ColumnMaps:
    """One `ColumnMap` for every column.

    Parameters
    ----------
    maps : sequence of ColumnMap
    """

    maps: tuple[ColumnMap, ...]

    @property
    def low(self) -> Array:
        """Lower walls (d,), -inf where there is none."""
        return np.array([one.low for one in self.maps])

    @property
    def high(self) -> Array:
        """Upper walls (d,), inf where there is none."""
        return np.array([one.high for one in self.maps])

    def apply(self, x: Array) -> Array:
        """Map rows (n, d) to the line, column by column."""
        return np.stack([one.apply(x[:, k]) for k, one in enumerate(self.maps)], axis=1)

    def invert(self, line: Array) -> Array:
        """Map rows (n, d) of the line to the units of the data."""
        return np.stack([one.invert(line[:, k]) for k, one in enumerate(self.maps)], axis=1)

    def log_slope(self, x: Array) -> Array:
        """Return the log of the product of slopes at rows x, (n,); 0 outside of the walls."""
        return np.asarray(sum(one.log_slope(x[:, k]) for k, one in enumerate(self.maps)))

    def derivatives(self, x: Array) -> Derivatives:
        """Return the derivatives of every column at rows x, (n, d) each."""
        each = [one.derivatives(x[:, k]) for k, one in enumerate(self.maps)]
        return Derivatives(*(np.stack(part, axis=1) for part in zip(*each, strict=True)))

    def choose(self, columns: Iterable[int]) -> ColumnMaps:
        """Return the maps of some columns."""
        return ColumnMaps(tuple(self.maps[k] for k in columns))

    def parameters(self) -> dict[str, Array]:
        """Return what describes the maps, as arrays of a file."""
        joined = {
            name: np.concatenate([getattr(one, name) for one in self.maps])
            for name in SPLINE_ARRAYS
        }
        sizes = np.array([float(len(one.knots)) for one in self.maps])
        inset = np.array([one.inset for one in self.maps])
        return {**joined, "sizes": sizes, "low": self.low, "high": self.high, "inset": inset}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> ColumnMaps:
        """Return the maps that `parameters` describes.

        Raises
        ------
        KeyError, TypeError, ValueError
            The parameters do not describe maps.
        """
        ends = np.cumsum(parameters["sizes"]).astype(int)[:-1]
        parts = zip(*(np.split(parameters[name], ends) for name in SPLINE_ARRAYS), strict=True)
        others = zip(*(parameters[name].tolist() for name in ("low", "high", "inset")), strict=True)
        return cls(tuple(ColumnMap(*a, *b) for a, b in zip(parts, others, strict=True)))


@record
class MappedScaling(Scaling):
    """u = (T(x) - shift) / scale with an increasing map T of every column.

    Attributes
    ----------
    shift, scale : (d,) array
        Of the columns after their maps.
    maps : ColumnMaps

    Examples
    --------
    >>> import numpy as np
    >>> maps = ColumnMaps((ColumnMap.plain(low=0.0),))
    >>> MappedScaling(np.zeros(1), np.ones(1), maps).apply(np.array([[1.0], [-1.0]])).tolist()
    [[0.0], [-inf]]
    """

    maps: ColumnMaps

    is_identity = is_affine = False  # maps bend columns

    @property
    def mapped_walls(self) -> NDArray[np.bool_]:
        """Columns that have walls, (d,)."""
        return np.array([one.has_walls for one in self.maps.maps])

    @property
    def affine(self) -> Scaling:
        """Shift and scale, which act on columns that are mapped to the line."""
        return Scaling(self.shift, self.scale)

    def choose(self, columns: Sequence[int]) -> MappedScaling:
        """Return the scaling of some columns."""
        return MappedScaling(self.shift[columns], self.scale[columns], self.maps.choose(columns))

    def apply(self, x: Array) -> Array:
        """Map rows (n, d) of the data to the units of the model; infinite outside of the walls."""
        return self.affine.apply(self.maps.apply(x))

    def apply_inside(self, x: Array) -> Array:
        """As `apply`.

        Raises
        ------
        OutsideSupportError
            Names the column and the value of a row outside of the walls.
        """
        outside = (x < self.maps.low) | (x > self.maps.high)
        if outside.any():
            row, k = (int(i) for i in np.argwhere(outside)[0])
            low, high = self.maps.low[k], self.maps.high[k]
            raise OutsideSupportError(
                f"a row has {x[row, k]:g} in column {k}, outside of its support ({low:g}, "
                f"{high:g}); remove such rows"
            )
        return self.apply(x)

    def invert(self, u: Array) -> Array:
        """Map rows (n, d) of the model to the units of the data."""
        return self.maps.invert(self.affine.invert(u))

    def apply_bounds(self, ends: Array) -> Array:
        """Map ends (n, d) of boxes; those at walls, which rows are taken to lie inside of, to
        infinity."""
        at_low, at_high = ends <= self.maps.low, ends >= self.maps.high
        return np.where(at_low, -np.inf, np.where(at_high, np.inf, self.apply(ends)))

    def bends(self, column: int) -> bool:
        """Whether a map bends this column."""
        return not self.maps.maps[column].is_identity

    def to_line(self, column: int, values: Array) -> Array:
        """Map ends of one column to what `affine` scales, those at walls to infinity."""
        one = self.maps.maps[column]
        found = np.where(values >= one.high, np.inf, one.apply(values))
        return np.where(values <= one.low, -np.inf, found)

    def from_line(self, column: int, values: Array) -> Array:
        """Invert `to_line`."""
        return self.maps.maps[column].invert(values)

    def log_slope(self, x: Array) -> Array:
        """Return log |du/dx| at rows x, (n,)."""
        return self.maps.log_slope(x) - self.log_volume

    def log_slope_at(self, u: Array) -> Array:
        """Return log |du/dx| at rows u of the model, (n,)."""
        return self.log_slope(self.invert(u))

    def log_slope_score(self, u: Array) -> Array:
        """Return the gradient in u of `log_slope_at`, (n, d)."""
        found = self.maps.derivatives(self.invert(u))
        return found.log_gradient * self.scale / found.slope

    def pull_score(self, x: Array, score: Array) -> Array:
        """Return the gradient of a log density in x from that in u, (n, d)."""
        found = self.maps.derivatives(x)
        return score * found.slope / self.scale + found.log_gradient

    def pull_laplacian(self, x: Array, score: Array, curvature: Array) -> Array:
        """Return the Laplacian of a log density in x, (n,).

        score, curvature : (n, d) array
            First and second derivatives in u, column by column.
        """
        found = self.maps.derivatives(x)
        slope = found.slope / self.scale
        terms = slope * (curvature * slope + score * found.log_gradient) + found.log_curvature
        return np.asarray(terms.sum(axis=1))
