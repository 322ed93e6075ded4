"""Quasi-random draws of some columns of a base, given many rows of values of the others at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ...bases.base import Base
from ...bases.bounded import BoundedMixtureBase, UniformBase
from ...bases.conditioning import (
    MixtureParts,
    SplitMixture,
    condition_base,
    condition_mixture,
    marginal_base,
    split_columns,
)
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase, as_mixture
from ...bases.product import ProductBase
from ...bases.quasirandom import sobol_uniforms, to_normals
from ...bases.student import StudentBase
from ...validation import Array

NODES_AT_A_TIME = 2**19  # evaluated together
LEAST_LOG2_POINTS = 4  # base-2 logarithm of the points of a set, or of a stratum, at least
# Of the strata of large mixtures: 4 points in each of 8 sets still tell the error.
LEAST_STRATUM_LOG2_POINTS = 2
MOST_LINE_LOG2_POINTS = 16  # base-2 logarithm of the draws for one place of a line, roughly at most
LEAST_LINE_LOG_SHARE = -18.0  # log of a component's share below which a place of a line ignores it


class PointSets(NamedTuple):
    """Independent sets of 2^log2_points quasi-random points each, one set for each seed."""

    seeds: Sequence[int]
    log2_points: int

    @property
    def n_points(self) -> int:
        """Number of points of all sets."""
        return len(self.seeds) * 2**self.log2_points

    def uniforms(self, d: int, group: int = 0) -> Array:
        """Points of (0, 1)^d, (n_points, d), those of one set after another. Groups of columns are
        paired at random: two scramblings of one sequence are not independent."""
        return np.concatenate([
            sobol_uniforms(d, self.log2_points, seed)[self._order(seed, group)]
            for seed in self.seeds
        ])  # fmt: skip

    def draws(self, base: Base, group: int = 0) -> Array:
        """Draws of a base, (n_points, d)."""
        return np.concatenate([
            base.draw_sobol(self.log2_points, seed)[self._order(seed, group)]
            for seed in self.seeds
        ])  # fmt: skip

    def _order(self, seed: int, group: int) -> NDArray[np.int64]:
        count = 2**self.log2_points
        if group == 0:
            return np.arange(count)
        return np.random.default_rng([seed, group]).permutation(count)


def draw_given(
    base: Base, kept: list[int], y: Array, sets: PointSets, group: int = 0
) -> tuple[Array, Array]:
    """Log densities of values under the base, (n, P), and draws of the other columns, (n, G, b).

    Parameters
    ----------
    base : Base
    kept : list of int
        Columns whose values are given, increasing.
    y : (n, P, a) array
        Values: P = 1 where all draws of a row have the same values, or G, one for each draw.
    sets : PointSets
        G points; all rows have the same ones, so that draws are alike in rows that are alike.
    group : int, default 0
        Points of other groups are independent.
    """
    n, P, _ = y.shape
    rest = split_columns(base.dimension, kept)[1]
    if not kept:
        draws = sets.draws(base, group)
        return np.zeros((n, P)), np.broadcast_to(draws, (n, *draws.shape))
    if not rest:
        log_density = base.log_density_at(y.reshape(n * P, -1)).reshape(n, P)
        return log_density, np.empty((n, sets.n_points, 0))
    if isinstance(base, ProductBase):
        return _draw_of_product(base, kept, y, sets, group)
    if isinstance(base, (GaussianBase, MixtureBase)):
        return _draw_of_mixture(as_mixture(base), kept, y, sets, group)
    if isinstance(base, StudentBase):
        return _draw_of_student(base, kept, y, sets, group)
    if isinstance(base, UniformBase):
        domains = [base.domain.choose([k]) for k in range(base.dimension)]
        product = ProductBase([UniformBase(**one.parameters()) for one in domains])
        return _draw_of_product(product, kept, y, sets, group)
    if is_wrapped_mixture(base):
        return _draw_of_wrapped(base, kept, y, sets, group)
    return _draw_row_by_row(base, kept, y, sets, group)


def is_known_for_rows(base: Base) -> bool:
    """Whether draws of all rows are made together."""
    if isinstance(base, ProductBase):
        return all(len(c) == 1 or is_known_for_rows(factor) for factor, c in base.each)
    known = isinstance(base, (GaussianBase, MixtureBase, StudentBase, UniformBase))
    return known or is_wrapped_mixture(base)


def is_wrapped_mixture(base: Base) -> TypeGuard[BoundedMixtureBase]:
    """Whether a base is a mixture with periods and without walls."""
    return isinstance(base, BoundedMixtureBase) and not base.has_walls


def unwrap_columns(base: BoundedMixtureBase, kept: list[int]) -> tuple[MixtureBase, float]:
    """A wrapped mixture as one that has images along some columns, and log of the sum of the
    weights of these images. Rows of the mixture may lie in any period of the other columns."""
    return base.with_images(base.domain.periodic & np.isin(np.arange(base.dimension), kept))


def _draw_of_product(
    base: ProductBase, kept: list[int], y: Array, sets: PointSets, group: int
) -> tuple[Array, Array]:
    rest = split_columns(base.dimension, kept)[1]
    log_density, draws = np.zeros(y.shape[:2]), np.empty((len(y), sets.n_points, len(rest)))
    for j, (factor, mine) in enumerate(base.each):
        given = [k for k in mine if k in kept]
        free = [rest.index(k) for k in mine if k not in kept]
        inner = sorted(mine.index(k) for k in given)
        values = y[:, :, [kept.index(mine[i]) for i in inner]]
        log_p, found = draw_given(factor, inner, values, sets, group + j)
        log_density += log_p
        draws[:, :, free] = found
    return log_density, draws


def _draw_of_mixture(
    base: MixtureBase, kept: list[int], y: Array, sets: PointSets, group: int
) -> tuple[Array, Array]:
    n, P, a = y.shape
    flat, split = y.reshape(n * P, a), SplitMixture(base, kept)
    uniforms = sets.uniforms(split.means.shape[1] + 1, group)
    first, normals = uniforms[:, 0], to_normals(uniforms[:, 1:])
    shares = split.log_joint(flat)
    top = shares.max(axis=1, keepdims=True)
    np.exp(np.subtract(shares, np.where(np.isfinite(top), top, 0.0), out=shares), out=shares)
    ends = np.cumsum(shares, axis=1, out=shares).reshape(n, P, -1)
    with np.errstate(divide="ignore"):
        log_density = (top[:, 0] + np.log(ends.reshape(n * P, -1)[:, -1])).reshape(n, P)
    index = _choose_components(ends, first)
    places = np.broadcast_to(y, (n, sets.n_points, a)).reshape(-1, a)
    draws = split.means_of(places, index.ravel())
    _add_offsets(draws, split.cholesky, normals, index)
    return log_density, draws.reshape(n, sets.n_points, -1)


def _choose_components(ends: Array, uniforms: Array) -> NDArray[np.int64]:
    """Component of each draw, (n, G), from running sums of their shares, (n, 1 or G, K), which need
    not end at 1, and points of (0, 1), (G,)."""
    targets = uniforms * ends[:, :, -1]  # (n, G)
    if ends.shape[1] == 1:  # by bisection: G times K comparisons a row would take gigabytes
        each = [np.searchsorted(row[0, :-1], t) for row, t in zip(ends, targets, strict=True)]
        return np.array(each, dtype=np.int64).reshape(targets.shape)
    return np.asarray((targets[:, :, None] > ends[:, :, :-1]).sum(axis=2), dtype=np.int64)


def _add_offsets(
    draws: Array, roots: Array, normals: Array, index: NDArray[np.int64]
) -> None:
    """Add to draws (n G, b), component by component, its root times the normals (G, b)."""
    chosen = index.ravel()
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=len(roots)))[:-1]
    for root, mine in zip(roots, np.split(order, ends), strict=True):
        if len(mine):
            draws[mine] += normals[mine % len(normals)] @ root.T


def _draw_of_wrapped(
    base: BoundedMixtureBase, kept: list[int], y: Array, sets: PointSets, group: int
) -> tuple[Array, Array]:
    images, log_total = unwrap_columns(base, kept)
    rest = split_columns(base.dimension, kept)[1]
    of_kept, of_rest = base.domain.choose(kept), base.domain.choose(rest)
    inside = of_kept.wrap(y.reshape(-1, len(kept))).reshape(y.shape)
    log_density, draws = _draw_of_mixture(images, kept, inside, sets, group)
    return log_density + log_total, of_rest.wrap(draws.reshape(-1, len(rest))).reshape(draws.shape)


def _draw_of_student(
    base: StudentBase, kept: list[int], y: Array, sets: PointSets, group: int
) -> tuple[Array, Array]:
    from scipy.special import gammaincinv

    n, P, a = y.shape
    flat = y.reshape(n * P, a)
    log_density, parts, scales, degrees = condition_student(base, kept, flat)
    uniforms = sets.uniforms(parts.means.shape[2] + 1, group)
    squares = 2.0 * gammaincinv(0.5 * degrees, uniforms[:, 0])
    normals = to_normals(uniforms[:, 1:]) * np.sqrt(degrees / squares)[:, None]
    spread = scales.reshape(n, P, 1) * (normals @ parts.cholesky[0].T)
    return log_density.reshape(n, P), parts.means.reshape(n, P, -1) + spread


def condition_student(
    base: StudentBase, kept: list[int], y: Array
) -> tuple[Array, MixtureParts, Array, float]:
    """A Student base given rows (n, a): log density of the rows, center and root of the rest,
    factors of the root for each row, and degrees of freedom."""
    margin = marginal_base(base, kept)
    assert isinstance(margin, StudentBase)
    gaussian = as_mixture(GaussianBase(base.centre, base.scale_matrix))
    degrees = base.degrees + len(kept)
    scales = np.sqrt((base.degrees + margin._squared_distances(y)) / degrees)
    return margin.log_density_at(y), condition_mixture(gaussian, kept, y), scales, degrees


def _draw_row_by_row(
    base: Base, kept: list[int], y: Array, sets: PointSets, group: int
) -> tuple[Array, Array]:
    """For bases whose conditionals are known for one row at a time."""
    n, P, a = y.shape
    margin = marginal_base(base, kept)
    if margin is None:
        raise TypeError(
            f"marginals of {len(kept)} of {base.dimension} columns are not known for a "
            f"{type(base).__name__}; leave out at most 2 columns"
        )
    log_density = margin.log_density_at(y.reshape(n * P, a)).reshape(n, P)
    draws = np.zeros((n, sets.n_points, base.dimension - a))
    for row, place in np.argwhere(np.isfinite(log_density)):
        found = sets.draws(condition_base(base, kept, y[row, place]), group)
        if P == 1:
            draws[row] = found
        else:
            draws[row, place] = found[place]
    return log_density, draws


# -- one column along a line -----------------------------------------------------------------------


class LineDraws(NamedTuple):
    """Draws of one stratum given some places of a line.

    places : (P,) numbers of the places
    log_density : (P,) of the stratum at these places
    draws : (P, G, d - 1) of the other columns
    log2_points : of each set
    """

    places: NDArray[np.int64]
    log_density: Array
    draws: Array
    log2_points: int


def draw_along_line(
    base: Base, column: int, line: Array, sets: PointSets,
    most_log2_points: int = MOST_LINE_LOG2_POINTS,
) -> Iterator[LineDraws]:  # fmt: skip
    """Draws of the other columns given places (n,) of one column.

    Each component of a mixture is a stratum with as many draws for all places, so that sums over
    draws are smooth functions of the places.
    """
    rest = split_columns(base.dimension, [column])[1]
    parts = base.each if isinstance(base, ProductBase) else [(base, list(range(base.dimension)))]
    at = next(j for j, (_, mine) in enumerate(parts) if column in mine)
    factor, mine = parts[at]
    places, log_total = line[:, None], 0.0
    if is_wrapped_mixture(factor) and len(mine) > 1:
        own_place = [mine.index(column)]
        places = factor.domain.choose(own_place).wrap(places)
        factor, log_total = unwrap_columns(factor, own_place)
    if not (isinstance(factor, MixtureBase) and factor.n_components > 1 and len(mine) > 1):
        for some in split_rows(np.arange(len(line)), sets.n_points):
            log_density, draws = draw_given(base, [column], line[some, None, None], sets)
            yield LineDraws(some, log_density[:, 0], draws, sets.log2_points)
        return
    own = [rest.index(k) for k in mine if k != column]
    with np.errstate(all="ignore"):
        given = condition_mixture(factor, [mine.index(column)], places)
    means = np.sqrt(np.exp(given.log_shares).mean(axis=0))
    least = _least_log2_points(factor.n_components * len(sets.seeds), most_log2_points)
    for k, root in enumerate(given.cholesky):
        rows = np.flatnonzero(given.log_shares[:, k] > LEAST_LINE_LOG_SHARE)
        if not len(rows):
            continue
        log2_points = round(math.log2(max(means[k] / means.sum(), 1e-9)) + sets.log2_points)
        stratum = PointSets(sets.seeds, max(least, log2_points))
        offsets = to_normals(stratum.uniforms(len(own))) @ root.T
        others = np.empty((stratum.n_points, len(rest)))
        for j, (other, columns) in enumerate(parts):
            if j != at:
                others[:, [rest.index(i) for i in columns]] = stratum.draws(other, j + 1)
        for some in split_rows(rows, stratum.n_points):
            draws = np.tile(others, (len(some), 1, 1))
            draws[:, :, own] = given.means[some, k][:, None] + offsets
            log_density = log_total + given.log_density[some] + given.log_shares[some, k]
            yield LineDraws(some, log_density, draws, stratum.log2_points)


def _least_log2_points(n_sets: int, most: int) -> int:
    """Base-2 logarithm of the points in each set of a stratum: fewer of more sets."""
    affordable = most - math.ceil(math.log2(n_sets))
    return min(max(affordable, LEAST_STRATUM_LOG2_POINTS), LEAST_LOG2_POINTS)


def split_rows(rows: NDArray[np.int64], work: int) -> list[NDArray[np.int64]]:
    """Rows in batches that are evaluated together; ``work`` nodes for each row."""
    size = max(1, NODES_AT_A_TIME // work)
    return [rows[start : start + size] for start in range(0, len(rows), size)]
