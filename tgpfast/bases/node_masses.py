"""A base on the nodes of a lattice's grid: what e^f is integrated against."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..features.grid_values import evaluate_grid
from ..features.lattice import LatticeFeatures
from ..features.lattice_box import tapered_sides
from ..runtime import memory
from ..runtime.records import record
from ..validation import Array
from .base import Base
from .part_widths import least_widths

GRID_ARRAYS = 8  # of a grid's size, that solving on it takes
BLOCK_NODES = 2**18  # nodes at which a base is evaluated at a time
MOST_LOST = 0.05  # mass beyond walls and periods, where a base must have none
UNRESOLVED = 2.5  # deviations of a part in a cell, from which on nodes may miss much of it
# deviations of a part in a cell, up to which sums of a Gaussian err by less than 0.2 %
RESOLVED_CELL = 1.7
STEPS_OF_PART = 2  # of a finer grid, for each deviation of the narrowest part of a base
MOST_FINE_NODES = 2**20  # of that grid
LEAST_CORRECTION = 0.1  # factor of a node's mass; below, the grid does not resolve the base


@record
class NodeMasses:
    """Log masses of a base on a regular grid: log Z = log(outside + sum e^(f + log_masses)).

    That is the rule for log(1 + integral over the box of (e^f - 1) base), whose integrand vanishes
    smoothly at open ends, so that it converges exponentially.

    Attributes
    ----------
    log_masses : array of the grid's shape
        Log of density times cell volume.
    outside : float
        1 minus the sum of the masses; at least 0.
    taper : array of the grid's shape
        T.
    """

    log_masses: Array
    outside: float
    taper: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each axis."""
        return self.log_masses.shape


def log_partition(exponents: Array, masses: Sequence[NodeMasses]) -> tuple[Array, Array]:
    """log Z of each exponent, (B,), and the masses of the nodes over Z, (B, grid).

    Parameters
    ----------
    exponents : (B, grid) array
        f at the nodes, without the taper. It is overwritten, and is the second result.
    masses : B NodeMasses
    """
    for terms, of_base in zip(exponents, masses, strict=True):
        terms *= of_base.taper
        terms += of_base.log_masses
    axes, outside = tuple(range(1, exponents.ndim)), np.array([m.outside for m in masses])
    each = (slice(None), *(None,) * len(axes))
    with np.errstate(divide="ignore", invalid="ignore"):  # none outside, or a grid too coarse
        top = np.fmax(exponents.max(axis=axes), np.log(outside))
        exponents -= top[each]
        np.exp(exponents, out=exponents)
        total = exponents.sum(axis=axes) + outside * np.exp(-top)
        exponents /= total[each]
        return np.where(total > 0.0, np.log(total) + top, -np.inf), exponents


@record
class BaseGrids:
    """One base on grids of the same box; each shape is evaluated once.

    Parameters
    ----------
    base : Base
    features : LatticeFeatures
        Only its box matters.
    tapers : dict, default {}
        T on grids of the box, by shape; bases of one box may share it.
    """

    base: Base
    features: LatticeFeatures
    tapers: dict[tuple[int, ...], Array] = field(default_factory=dict, repr=False)
    _known: dict[tuple[int, ...], NodeMasses] = field(default_factory=dict, repr=False)

    def at(self, shape: Sequence[int]) -> NodeMasses:
        """The masses on the grid of this shape."""
        key = tuple(int(n) for n in shape)
        if key not in self._known:
            if key not in self.tapers:
                self.tapers[key] = self.features.taper_on(self.features.nodes(key))
            self._known[key] = node_masses(self.base, self.features, key, self.tapers[key])
        return self._known[key]

    @functools.cached_property
    def _least_widths(self) -> Array:
        return least_widths(self.base)

    def resolving_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape, or multiples of it along axes where cells are too wide for the base, as many
        as are affordable."""
        shape = _resolving_shape(self._least_widths, self.features, shape)
        cells = self.features.lengths / np.array(shape)
        too_wide = cells > RESOLVED_CELL * self._least_widths
        doubled = np.where(too_wide, 2, 1) * np.array(shape)
        is_affordable = np.prod(doubled, dtype=float) <= MOST_FINE_NODES
        return tuple(doubled.tolist()) if is_affordable else shape

    def resolve_base(self, shape: Sequence[int]) -> bool:
        """Whether sums over the grid of this shape are about integrals against the base."""
        cells = self.features.lengths / np.array(shape)
        return bool((cells <= RESOLVED_CELL * self._least_widths).all())


def node_masses(
    base: Base, features: LatticeFeatures, shape: Sequence[int], taper: Array | None = None
) -> NodeMasses:
    """The masses of a base on the regular grid of a lattice.

    At walls the rule is corrected for the slope of the base, since its even extension has a kink
    there (the first term of Euler and Maclaurin's formula for the midpoint rule). A base with parts
    far narrower than a cell is taken from a finer grid, whose masses go to the nodes around them in
    proportion to their distances: e^f is then interpolated linearly.

    Parameters
    ----------
    base : Base
        In the coordinates of the lattice. Beyond walls, and beyond one period, it must have no
        mass.
    features : LatticeFeatures
    shape : (d,) ints
        Nodes along each axis.
    taper : array of this shape, default None
        T at the nodes, where it is known.

    Returns
    -------
    NodeMasses

    Raises
    ------
    ValueError
        If the base has mass beyond walls or beyond a period, or the grid exceeds the memory.
    """
    memory.check(
        GRID_ARRAYS * 8 * int(np.prod(shape, dtype=float)),
        f"a grid of {' x '.join(map(str, shape))} nodes", "use fewer modes",
    )  # fmt: skip
    log_masses = _log_masses(base, features, shape)
    outside = 1.0 - float(np.exp(log_masses).sum())
    if not any(any(tapered_sides(kind)) for kind in features.walls) and outside > MOST_LOST:
        raise ValueError(
            f"{outside:.1%} of the base's mass lies outside of a box with walls={features.walls}; "
            "use a base that is uniform, truncated or wrapped there"
        )
    if taper is None:
        taper = features.taper_on(features.nodes(shape))
    # below zero it is an error of the rule, with which the posterior would not be concave
    return NodeMasses(log_masses, max(outside, 0.0), taper)


def _log_masses(base: Base, features: LatticeFeatures, shape: Sequence[int]) -> Array:
    """Log masses of the nodes, from a finer grid where this one does not resolve the base."""
    finer = _resolving_shape(least_widths(base), features, shape)
    masses = _log_masses_of_rule(base, features, finer)
    if finer == tuple(shape):
        return masses
    masses = np.exp(masses)
    for axis, (many, few) in enumerate(zip(finer, shape, strict=True)):
        if many > few:
            gather = _gathering(many, few, is_cosine=features.cosine[axis])
            rest = np.moveaxis(masses, axis, 0)
            gathered = gather @ rest.reshape(many, -1)
            masses = np.moveaxis(gathered.reshape(few, *rest.shape[1:]), 0, axis)
    with np.errstate(divide="ignore"):
        return np.log(masses)


def _resolving_shape(
    widths: Array, features: LatticeFeatures, shape: Sequence[int]
) -> tuple[int, ...]:
    """The shape, or multiples of it along axes where the narrowest parts of a base are far narrower
    than a cell, as many as there is room for."""
    cells = features.lengths / np.array(shape)
    factors = cells / widths
    factors = np.where(factors > UNRESOLVED, np.ceil(STEPS_OF_PART * factors), 1.0)
    over = np.prod(factors * shape) / MOST_FINE_NODES
    finer = factors > 1.0
    if over > 1.0 and finer.any():
        factors[finer] = np.maximum(np.floor(factors[finer] / over ** (1.0 / finer.sum())), 1.0)
    return tuple(int(n * factor) for n, factor in zip(shape, factors, strict=True))


def _gathering(many: int, few: int, *, is_cosine: bool) -> Any:
    """Sparse matrix (few, many) that divides each of many nodes between the two of few around
    it."""
    from scipy.sparse import csr_matrix

    ratio, fine = few / many, np.arange(many)
    place = np.clip((fine + 0.5) * ratio - 0.5, 0.0, few - 1.0) if is_cosine else fine * ratio
    left = np.floor(place).astype(np.int64)
    share = place - left
    right = np.minimum(left + 1, few - 1) if is_cosine else (left + 1) % few
    entries = np.concatenate([1.0 - share, share])
    return csr_matrix(
        (entries, (np.concatenate([left, right]), np.concatenate([fine, fine]))), shape=(few, many)
    )


def _log_masses_of_rule(base: Base, features: LatticeFeatures, shape: Sequence[int]) -> Array:
    """Log of density times cell volume at the nodes, corrected at walls."""
    axes = features.nodes(shape)
    log_masses = _log_density(base, axes) + np.log(features.cell_volume(shape))
    for axis, kind in enumerate(features.walls):
        if features.cosine[axis]:
            for is_tapered, is_upper in zip(tapered_sides(kind), (False, True), strict=True):
                if not is_tapered:
                    _correct_wall(log_masses, base, features, axes, axis, is_upper)
    return log_masses


def _log_density(base: Base, axes: Sequence[Array]) -> Array:
    """Log density on the tensor grid of coordinates."""

    def log_density_of(index: NDArray[np.int64]) -> Array:
        places = [axis[i] for axis, i in zip(axes, index.T, strict=True)]
        return base.log_density_at(np.stack(places, axis=1))

    return evaluate_grid(log_density_of, tuple(len(axis) for axis in axes), BLOCK_NODES)


def _correct_wall(
    log_masses: Array, base: Base, features: LatticeFeatures, axes: Sequence[Array], axis: int,
    is_upper: bool,
) -> None:  # fmt: skip
    """Multiply the masses of the two layers of nodes at a wall.

    The midpoint rule misses h^2/24 b'(wall) c(wall), c = e^f; as c is even about the wall,
    c(wall) = (9 c_0 - c_1) / 8 to fourth order.
    """
    n, length = log_masses.shape[axis], float(features.lengths[axis])
    if n < 2:
        return
    h, wall = length / n, features.origin[axis] + (length if is_upper else 0.0)
    at_wall = [np.array([wall]) if j == axis else x for j, x in enumerate(axes)]
    shape = tuple(len(x) for x in at_wall)
    nodes = np.stack(np.meshgrid(*at_wall, indexing="ij"), axis=-1).reshape(-1, len(axes))
    slope = (base.score_at(nodes)[:, axis] * (h / 24.0)).reshape(shape)
    if not is_upper:
        slope = -slope
    log_wall = base.log_density_at(nodes).reshape(shape) + np.log(features.cell_volume(
        log_masses.shape
    ))  # fmt: skip
    for layer, share in ((0, 9.0 / 8.0), (1, -1.0 / 8.0)):
        at = n - 1 - layer if is_upper else layer
        place = (slice(None),) * axis + (slice(at, at + 1),)
        with np.errstate(over="ignore", invalid="ignore"):
            factor = 1.0 + share * slope * np.exp(log_wall - log_masses[place])
        log_masses[place] += np.log(np.where(factor > LEAST_CORRECTION, factor, 1.0))

