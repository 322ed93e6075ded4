"""Marginal log densities at rows: integrals over the columns that are left out, row by row.

log q_A(y) = log base_A(y) + log E[e^f(y, b)] - log Z, b from the base given y. Over one or two
columns the expectation is a rule in coordinates that whiten the conditional base, refined until two
rules agree. Over more columns, and over two of a large mixture, it is a mean over quasi-random
draws, whose replicates give the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...bases.base import Base
from ...bases.bounded import BoundedMixtureBase
from ...bases.conditioning import condition_mixture, split_columns
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase, as_mixture
from ...bases.part_widths import part_widths
from ...bases.product import ProductBase
from ...bases.quasirandom import logsumexp
from ...bases.student import StudentBase
from ...validation import Array
from ..answers.box_integrals import (
    BOX_REFINEMENT,
    HEAVY_TAIL,
    NODES_PER_DEVIATION,
    NODES_PER_RADIAN,
    UNKNOWN_REACH,
    find_excess,
    gauss_legendre,
    rounding_of,
    wave_band,
)
from ..answers.tilted_density import TiltedDensity
from ..draws.proposal import QUADRATURE_DIMENSIONS
from ..draws.replicates import error_of_mean
from ..grids.base_marginals import cover_base
from ..grids.box_rule import tensor_rows
from ..grids.whitened_grid import resolving_steps
from .conditional_draws import (
    LEAST_LOG2_POINTS,
    MOST_LINE_LOG2_POINTS,
    PointSets,
    condition_student,
    draw_along_line,
    draw_given,
    is_known_for_rows,
    split_rows,
)

RULE_DIMENSIONS = 2  # columns that rules integrate over; draws integrate over more
RULE_COMPONENTS = 8  # of a mixture of more than three columns, for rules over two columns
MARGINAL_TOLERANCE = 1e-9  # error of a log density at which refining stops
MARGINAL_REFINEMENTS = 5  # at most; each rule has 1.4 times the nodes of the last along an axis
LOG_Z_SHARE = 0.05  # share of the error of log Z at which refining stops too
GRADIENT_REFINEMENT = BOX_REFINEMENT**3  # of the one rule behind gradients
MOST_MARGINAL_NODES = 2**15  # of the rule for one row and component
LEAST_ROW_LOG_SHARE = -40.0  # log of a component's share of a row below which it is left out
MARGINAL_REACH = 7.5  # standard deviations: e^-28 of a Gaussian's mass lies beyond
# Sets of quasi-random draws for each row, where more columns are left out, and base-2 logarithms
# of their sizes: the larger one for rows whose error with the smaller one is not good enough. With
# 8 sets, errors were too small now and then: z-scores up to 5 instead of 2.
DRAW_REPLICATES, DRAW_LOG2_POINTS, MOST_LOG2_POINTS = 16, 5, 8
# The same along a line, and for values that are averaged: larger sets have smaller errors.
LARGE_REPLICATES, LARGE_LOG2_POINTS = 8, 9
# The same along a line for modes: sets, and base-2 logarithm of the draws for one place, roughly.
ROUGH_LINE = 2, 12
GRADIENT_LOG2_POINTS = 12  # of the one set behind gradients
GOOD_DRAW_ERROR = 0.01  # of a log density
DRAW_WORK = 4e8  # features times points behind values that are averaged: a second
POINT_WORK = 60  # features that take as long as making one point
PAIR_WORK = 5  # features that take as long as one component where points have values of their own
BIN_GROUP = 1_000  # of points along discrete columns: none of a base has this number
LOG_2 = math.log(2.0)
HEAVY_STEP = 0.2  # of v in w = sinh(v), along heavy tails

# numbers of rows (P,), nodes (P, G, d), and logs of weights (P, G)
Block = tuple[NDArray[np.int64], Array, Array]


class ConditionalParts(NamedTuple):
    """The base given n rows of values: components with common roots, times a scale of each row.

    degrees : of freedom of a Student base given the values; None for Gaussians
    """

    log_density: Array  # (n,) of the values
    log_shares: Array  # (n, K)
    means: Array  # (n, K, b)
    roots: Array  # (K, b, b)
    scales: Array  # (n,)
    degrees: float | None


def marginal_log_density(
    model: TiltedDensity, kept: list[int], y: Array
) -> tuple[Array, Array]:
    """Log density of some columns, and its error, at rows (n, a) of the model's coordinates.

    kept : columns of the rows, increasing
    """
    log_z = model.log_normalizer
    if uses_draws(model, kept):
        values, errors = _draw_until_good(model, kept, y)
    else:
        values, errors = _refine(model, kept, y)
    values = np.where(np.isnan(values), -np.inf, values)
    return values - log_z.value, errors + log_z.standard_error + rounding_of(model.tilt)


def bin_log_masses(
    model: TiltedDensity, kept: list[int], bins: RowBins, *, is_rough: bool = False
) -> tuple[Array, Array]:
    """Log of the integral of the density of some columns over steps around rows, and its error.

    Points of the steps and draws of the columns that are left out go together, one draw for each
    point: 512 for each row, or 4,096 where the error is not good enough.

    kept : columns of the rows, increasing
    is_rough : whether the values are averaged, which needs fewer draws
    """
    log_z = model.log_normalizer
    if is_rough:
        values, errors = average_logs(rough_bin_sets(model, kept, bins))
    else:
        values, errors = _draw_until_good(model, kept, bins.rows, bins)
    return values - log_z.value, errors + log_z.standard_error


def rough_bin_sets(
    model: TiltedDensity, kept: list[int], bins: RowBins, seed: int = 0
) -> Array:
    """Log masses of the bins by each set of points, not normalized, (R, n); `bin_log_masses`
    averages them."""
    work = PAIR_WORK * count_components(model.base)
    log2_points = choose_log2_points(model, len(bins.rows), work)
    return draw_sets(model, kept, bins.rows, log2_points, seed, bins, LARGE_REPLICATES)


def uses_draws(model: TiltedDensity, kept: list[int]) -> bool:
    """Whether draws integrate the other columns: rules of many columns, or of two for each
    component of a large mixture, have too many nodes."""
    b = model.dimension - len(kept)
    if isinstance(model.base, MixtureBase):
        many = model.base.n_components > RULE_COMPONENTS
    else:  # a rule over the range of all components has as many nodes
        many = isinstance(model.base, (ProductBase, BoundedMixtureBase))
    return b > RULE_DIMENSIONS or (b > 1 and model.dimension > QUADRATURE_DIMENSIONS and many)


def line_log_density(
    model: TiltedDensity, column: int, line: Array, *, is_rough: bool = False
) -> tuple[Array, Array]:
    """Log density of one column, and its error, at places (n,) of the model's coordinates.

    It is as smooth as the density even where it comes from draws, for tables.

    is_rough : whether few draws do, for the places of modes
    """
    kept, y = [column], line[:, None]
    if not uses_draws(model, kept) or not is_known_for_rows(model.base):
        return marginal_log_density(model, kept, y)
    rest = split_columns(model.dimension, kept)[1]
    count, most = ROUGH_LINE if is_rough else (LARGE_REPLICATES, MOST_LINE_LOG2_POINTS)
    points = PointSets(range(count), LARGE_LOG2_POINTS)
    sets = np.full((count, len(y)), -np.inf)
    for part in draw_along_line(model.base, column, line, points, most):
        u = np.empty((*part.draws.shape[:2], model.dimension))
        u[:, :, column], u[:, :, rest] = line[part.places][:, None], part.draws
        log_weights = part.log_density[:, None] - part.log2_points * LOG_2
        masses = _log_masses(model, (part.places, u, log_weights))
        masses = logsumexp(masses.reshape(len(u), count, -1), axis=2)
        sets[:, part.places] = np.logaddexp(sets[:, part.places], masses.T)
    values, errors = average_sets(sets)
    log_z = model.log_normalizer
    return values - log_z.value, errors + log_z.standard_error + rounding_of(model.tilt)


def rough_log_density(
    model: TiltedDensity, kept: list[int], y: Array
) -> tuple[Array, Array]:
    """Log density of some columns, and its error, at rows (n, a) whose values are averaged, so that
    fewer draws do."""
    values, errors = average_logs(rough_sets(model, kept, y))
    log_z = model.log_normalizer
    return values - log_z.value, errors + log_z.standard_error


def rough_sets(model: TiltedDensity, kept: list[int], y: Array, seed: int = 0) -> Array:
    """Log marginal density, not normalized, of rows (n, a) whose values are averaged, by each set
    of points, (R, n). The sets are equal where rules integrate."""
    if is_known_for_rows(model.base) or model.dimension - len(kept) > RULE_DIMENSIONS:
        points = choose_log2_points(model, len(y))
        return draw_sets(model, kept, y, points, seed, count=LARGE_REPLICATES)
    values = marginal_log_density(model, kept, y)[0] + model.log_normalizer.value
    return np.broadcast_to(values, (LARGE_REPLICATES, len(y)))


def choose_log2_points(model: TiltedDensity, n: int, more: float = 0.0) -> int:
    """As many points in each set, for the marginals of n rows, as the work allows.

    more : work for each point beside that of its features, in features
    """
    work = LARGE_REPLICATES * n * (model.tilt.features.n_features + POINT_WORK + more)
    return int(np.clip(math.log2(DRAW_WORK / work), LEAST_LOG2_POINTS, LARGE_LOG2_POINTS))


def marginal_gradient(model: TiltedDensity, kept: list[int], y: Array) -> Array:
    """Gradient of the marginal log density at rows (n, a): the mean of that of the joint one over
    the columns that are left out, given each row."""
    values, total = np.full(len(y), -np.inf), np.zeros(y.shape)
    blocks = list(_blocks(model, kept, y, GRADIENT_REFINEMENT))
    masses = [_log_masses(model, block) for block in blocks]
    for (rows, _, _), mass in zip(blocks, masses, strict=True):
        np.logaddexp.at(values, rows, logsumexp(mass, axis=1))
    for (rows, u, _), mass in zip(blocks, masses, strict=True):
        flat = u.reshape(-1, model.dimension)
        slope = model.tilt.gradient(flat, model.threads)[1] + model.base.score_at(flat)
        shares = np.exp(mass - values[rows][:, None])
        part = np.einsum("pg,pga->pa", shares, slope.reshape(u.shape)[:, :, kept])
        np.add.at(total, rows, part)
    return total


# -- rules -----------------------------------------------------------------------------------------


def _refine(model: TiltedDensity, kept: list[int], y: Array) -> tuple[Array, Array]:
    """Log of the integral of e^f base over the other columns, and its error."""
    # a smaller error than that of log Z is of no use
    tolerance = max(MARGINAL_TOLERANCE, LOG_Z_SHARE * model.log_normalizer.standard_error)
    values, errors = _sum_rule(model, kept, y, 1.0), np.full(len(y), np.inf)
    active = np.arange(len(y))
    for step in range(1, MARGINAL_REFINEMENTS + 1):
        finer = _sum_rule(model, kept, y[active], BOX_REFINEMENT**step)
        with np.errstate(invalid="ignore"):
            gaps = np.abs(finer - values[active])
        errors[active] = np.where(np.isfinite(finer), gaps, 0.0)
        values[active] = finer
        active = active[errors[active] > tolerance]
        if not len(active):
            break
    return values, errors


def _sum_rule(model: TiltedDensity, kept: list[int], y: Array, factor: float) -> Array:
    values = np.full(len(y), -np.inf)
    for block in _blocks(model, kept, y, factor):
        np.logaddexp.at(values, block[0], logsumexp(_log_masses(model, block), axis=1))
    return values


def _log_masses(model: TiltedDensity, block: Block) -> Array:
    _, u, log_weights = block
    exponent = model.tilt.value(u.reshape(-1, model.dimension), model.threads)
    return np.asarray(exponent.reshape(u.shape[:2]) + log_weights)


def _blocks(model: TiltedDensity, kept: list[int], y: Array, factor: float) -> Iterator[Block]:
    """Nodes of all rows and logs of their weights; the base is in the weights."""
    if uses_draws(model, kept):
        points = PointSets([0], GRADIENT_LOG2_POINTS)
        for some in split_rows(np.arange(len(y)), points.n_points):
            yield _draw_block(model, kept, y[some, None], points, some)
    elif isinstance(model.base, (GaussianBase, MixtureBase, StudentBase)):
        yield from _whitened_blocks(model, kept, y, factor)
    else:
        yield from _tensor_blocks(model, kept, y, factor)


def _condition(base: Base, kept: list[int], y: Array) -> ConditionalParts:
    """A Gaussian, a mixture or a Student base given rows."""
    if isinstance(base, (GaussianBase, MixtureBase)):
        parts = condition_mixture(as_mixture(base), kept, y)
        return ConditionalParts(*parts, np.ones(len(y)), None)
    assert isinstance(base, StudentBase)
    log_density, parts, scales, degrees = condition_student(base, kept, y)
    zeros = np.zeros((len(y), 1))
    return ConditionalParts(log_density, zeros, parts.means, parts.cholesky, scales, degrees)


def _whitened_blocks(
    model: TiltedDensity, kept: list[int], y: Array, factor: float
) -> Iterator[Block]:
    rest = split_columns(model.dimension, kept)[1]
    with np.errstate(all="ignore"):
        parts = _condition(model.base, kept, y)
    for k, root in enumerate(parts.roots):
        rows = np.flatnonzero(parts.log_shares[:, k] > LEAST_ROW_LOG_SHARE)
        if not len(rows):
            continue
        directions = np.zeros((model.dimension, len(rest)))
        directions[rest] = root * float(np.median(parts.scales[rows]))
        w, log_weights = _whitened_nodes(model, wave_band(model.tilt, directions), factor, parts)
        offsets = w @ root.T
        for some in split_rows(rows, len(w)):
            u = np.empty((len(some), len(w), model.dimension))
            u[:, :, kept] = y[some][:, None]
            spread = parts.scales[some][:, None, None] * offsets
            u[:, :, rest] = parts.means[some, k][:, None] + spread
            constants = parts.log_density[some] + parts.log_shares[some, k]
            yield some, u, constants[:, None] + log_weights


def _whitened_nodes(
    model: TiltedDensity, band: Array, factor: float, parts: ConditionalParts
) -> tuple[Array, Array]:
    """Nodes (G, b) of the trapezoidal rule and logs of weights (G,), which sum to about 1."""
    b = len(band)
    if parts.degrees is None:
        excess = find_excess(model.tilt, model.log_normalizer.value)
        reach = math.sqrt(MARGINAL_REACH**2 + 2.0 * excess)
        steps = resolving_steps(band) / factor
    else:
        from scipy.special import stdtrit

        reach = math.asinh(-float(stdtrit(parts.degrees, HEAVY_TAIL)))
        steps = np.minimum(HEAVY_STEP, 1.0 / np.maximum(band, 1e-9)) / factor
    steps = np.maximum(steps, 2.0 * reach / MOST_MARGINAL_NODES ** (1.0 / b) / factor**0.5)
    axes = [h * np.arange(-math.ceil(reach / h), math.ceil(reach / h) + 1) for h in steps]
    v = tensor_rows(axes)
    log_cell = float(np.log(steps).sum())
    if parts.degrees is None:
        squares = np.einsum("ij,ij->i", v, v)
        return v, log_cell - 0.5 * squares - 0.5 * b * math.log(2.0 * math.pi)
    w = np.sinh(v)
    unit = StudentBase(np.zeros(b), np.eye(b), parts.degrees)
    return w, log_cell + np.log(np.cosh(v)).sum(axis=1) + unit.log_density_at(w)


def _tensor_blocks(
    model: TiltedDensity, kept: list[int], y: Array, factor: float
) -> Iterator[Block]:
    """The same nodes for all rows, over the range of the base."""
    base, rest = model.base, split_columns(model.dimension, kept)[1]
    low, high = cover_base(base, UNKNOWN_REACH)
    widths = part_widths(base)[1].min(axis=0)
    band = wave_band(model.tilt, np.eye(model.dimension))
    most = MOST_MARGINAL_NODES ** (1.0 / len(rest))
    axes, logs = [], []
    for k in rest:
        per_unit = NODES_PER_DEVIATION / widths[k] + NODES_PER_RADIAN * band[k]
        count = min(math.ceil(per_unit * (high[k] - low[k])), int(most))
        t, log_t = gauss_legendre(math.ceil(factor * max(count, 12)))
        axes.append(low[k] + (high[k] - low[k]) * t)
        logs.append(log_t + math.log(high[k] - low[k]))
    nodes, log_weights = tensor_rows(axes), tensor_rows(logs).sum(axis=1)
    for some in split_rows(np.arange(len(y)), len(nodes)):
        u = np.empty((len(some), len(nodes), model.dimension))
        u[:, :, kept], u[:, :, rest] = y[some][:, None], nodes
        values = base.log_density_at(u.reshape(-1, model.dimension))
        yield some, u, values.reshape(len(some), -1) + log_weights


# -- draws -----------------------------------------------------------------------------------------


class RowBins(NamedTuple):
    """Steps of discrete columns around rows.

    rows : (n, a) centers of the steps, in the units of the data
    columns : columns of the rows that are discrete
    steps : (m,) of their values
    scaling : from the units of the data to the model's coordinates
    """

    rows: Array
    columns: list[int]
    steps: Array
    scaling: Any

    def spread(self, some: NDArray[np.int64], points: PointSets) -> tuple[Array, Array]:
        """Points (P, G, a) of the steps of some rows, in the model's coordinates, and logs of their
        weights (P, G), which are -inf for points outside of the support."""
        offsets = (points.uniforms(len(self.columns), BIN_GROUP) - 0.5) * self.steps
        x = np.repeat(self.rows[some][:, None], len(offsets), axis=1)
        x[:, :, self.columns] += offsets
        flat = x.reshape(-1, x.shape[2])
        with np.errstate(all="ignore"):
            u = self.scaling.apply(flat)
            log_weights = np.broadcast_to(self.scaling.log_slope(flat), len(flat))
        inside = np.isfinite(u).all(axis=1)
        u = np.where(inside[:, None], u, 0.0)
        log_weights = np.where(inside, log_weights, -np.inf) + np.log(self.steps).sum()
        return u.reshape(x.shape), log_weights.reshape(x.shape[:2])


def _draw_until_good(
    model: TiltedDensity, kept: list[int], y: Array, bins: RowBins | None = None
) -> tuple[Array, Array]:
    """Log of the integral of e^f base over the other columns, and over bins, and its error; rows
    with a large error get more draws."""
    values, errors = average_sets(draw_sets(model, kept, y, DRAW_LOG2_POINTS, bins=bins))
    poor = np.flatnonzero(errors > GOOD_DRAW_ERROR)
    if len(poor):
        some = None if bins is None else bins._replace(rows=bins.rows[poor])
        sets = draw_sets(model, kept, y[poor], MOST_LOG2_POINTS, bins=some)
        values[poor], errors[poor] = average_sets(sets)
    return values, errors


def draw_sets(
    model: TiltedDensity, kept: list[int], y: Array, log2_points: int, seed: int = 0,
    bins: RowBins | None = None, count: int = DRAW_REPLICATES,
) -> Array:  # fmt: skip
    """Log of the integral of e^f base over the other columns, (R, n), by each of R = count sets of
    2^log2_points draws of the base given each row, or given points of bins around each row."""
    seeds = range(count * seed, count * (seed + 1))
    points = PointSets(seeds, log2_points)
    sets = np.full((count, len(y)), -np.inf)
    work = points.n_points * (1 if bins is None else 1 + count_components(model.base) // 4)
    for some in split_rows(np.arange(len(y)), work):
        if bins is None:
            block = _draw_block(model, kept, y[some, None], points, some)
        else:
            places, log_weights = bins.spread(some, points)
            _, u, log_base = _draw_block(model, kept, places, points, some)
            block = some, u, log_base + log_weights
        masses = _log_masses(model, block).reshape(len(some), count, -1)
        sets[:, some] = logsumexp(masses, axis=2).T
    return sets


def _draw_block(
    model: TiltedDensity, kept: list[int], y: Array, points: PointSets, rows: NDArray[np.int64]
) -> Block:
    """Draws of the columns that are left out given values y (P, 1 or G, a), and logs of their
    weights, which are those of means over each set."""
    rest = split_columns(model.dimension, kept)[1]
    with np.errstate(all="ignore"):
        log_density, draws = draw_given(model.base, kept, y, points)
    u = np.empty((*draws.shape[:2], model.dimension))
    u[:, :, kept], u[:, :, rest] = y, draws
    return rows, u, np.broadcast_to(log_density - points.log2_points * LOG_2, u.shape[:2])


def count_components(base: Base) -> int:
    """Components of a mixture, or of the largest one in a product."""
    if isinstance(base, ProductBase):
        return max(count_components(factor) for factor in base.factors)
    return base.n_components if isinstance(base, (MixtureBase, BoundedMixtureBase)) else 1


def average_sets(sets: Array) -> tuple[Array, Array]:
    """Logs (n,) of the means of what sets (R, n) are the logs of, and their standard errors."""
    values = logsumexp(sets, axis=0) - math.log(len(sets))
    with np.errstate(invalid="ignore"):
        errors = error_of_mean(np.exp(sets - values))
    return values, np.where(np.isfinite(values), errors, 0.0)


def average_logs(sets: Array) -> tuple[Array, Array]:
    """The same for logs that are averaged over rows: the log of a mean is too low by half the
    square of its error, which is added."""
    values, errors = average_sets(sets)
    return values + 0.5 * np.square(errors), errors
