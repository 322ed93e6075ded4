"""Marginal log densities at rows: integrals over the columns that are left out, row by row.

log q_A(y) = log base_A(y) + log E[e^f(y, b)] - log Z, b from the base given y. Over one or two
columns the expectation is a rule in coordinates that whiten the conditional base, refined until two
rules agree. Over more columns, and over two of a large mixture, it is a mean over quasi-random
draws, whose replicates give the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..bases.conditioning import (
    as_mixture,
    condition_base,
    condition_mixture,
    marginal_base,
    split_columns,
)
from ..bases.gaussian import GaussianBase
from ..bases.mixture import MixtureBase
from ..bases.part_widths import part_widths
from ..bases.quasirandom import logsumexp, sobol_uniforms, to_normals
from ..bases.student import StudentBase
from ..validation import Array
from .base_marginals import cover_base
from .box_integrals import (
    BOX_REFINEMENT,
    HEAVY_TAIL,
    NODES_PER_DEVIATION,
    NODES_PER_RADIAN,
    UNKNOWN_REACH,
    find_peak,
    gauss_legendre,
    rounding_of,
    wave_band,
)
from .box_rule import tensor_rows
from .quadrature import QUADRATURE_DIMENSIONS
from .tilted_density import TiltedDensity
from .whitened_grid import resolving_steps

RULE_DIMENSIONS = 2  # columns that rules integrate over; draws integrate over more
RULE_COMPONENTS = 8  # of a mixture of more than three columns, for rules over two columns
MARGINAL_TOLERANCE = 1e-9  # error of a log density at which refining stops
MARGINAL_REFINEMENTS = 5
LOG_Z_SHARE = 0.05  # share of the error of log Z at which refining stops too
GRADIENT_REFINEMENT = BOX_REFINEMENT**3  # of the one rule behind gradients
MOST_MARGINAL_NODES = 2**15  # of the rule for one row and component
LEAST_ROW_LOG_SHARE = -40.0  # log of a component's share of a row below which it is left out
MARGINAL_REACH = 7.5  # standard deviations: e^-28 of a Gaussian's mass lies beyond
NODES_AT_A_TIME = 2**19  # evaluated together
# Sets of quasi-random draws for each row, where more columns are left out, and base-2 logarithms
# of their sizes: the larger one for rows whose error with the smaller one is not good enough.
DRAW_REPLICATES, DRAW_LOG2_POINTS, MOST_LOG2_POINTS = 8, 6, 9
GOOD_DRAW_ERROR = 0.01  # of a log density
LEAST_LOG2_POINTS = 4  # base-2 logarithm of the points of each set behind values that are averaged
DRAW_WORK = 4e8  # features times points behind values that are averaged: a second
POINT_WORK = 60  # features that take as long as making one point
LEAST_LINE_LOG_SHARE = -18.0  # log of a component's share below which a place of a line ignores it
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
    if _uses_draws(model, kept):
        values, errors = _draw_until_good(model, kept, y)
    else:
        values, errors = _refine(model, kept, y)
    values = np.where(np.isnan(values), -np.inf, values)
    return values - log_z.value, errors + log_z.standard_error + rounding_of(model.tilt)


def _uses_draws(model: TiltedDensity, kept: list[int]) -> bool:
    """Whether draws integrate: rules of two columns would be needed for each component."""
    b = model.dimension - len(kept)
    many = isinstance(model.base, MixtureBase) and model.base.n_components > RULE_COMPONENTS
    return b > RULE_DIMENSIONS or (b > 1 and model.dimension > QUADRATURE_DIMENSIONS and many)


def line_log_density(model: TiltedDensity, column: int, line: Array) -> tuple[Array, Array]:
    """Log density of one column, and its error, at places (n,) of the model's coordinates.

    It is as smooth as the density even where it comes from draws, for tables.
    """
    kept, y, base = [column], line[:, None], model.base
    is_mixture = isinstance(base, (GaussianBase, MixtureBase))
    if model.dimension - 1 <= RULE_DIMENSIONS or not is_mixture:
        return marginal_log_density(model, kept, y)
    sets = np.full((DRAW_REPLICATES, len(y)), -np.inf)
    for seed, values in enumerate(sets):
        for block in _stratified_blocks(model, kept, y, seed):
            np.logaddexp.at(values, block[0], logsumexp(_log_masses(model, block), axis=1))
    values, errors = average_sets(sets)
    log_z = model.log_normalizer
    return values - log_z.value, errors + log_z.standard_error + rounding_of(model.tilt)


def rough_log_density(model: TiltedDensity, kept: list[int], y: Array) -> Array:
    """Log density of some columns at rows (n, a) whose values are averaged, so that fewer draws do.

    The log of a mean of draws is too low by half the square of its error, which is added.
    """
    values, errors = average_sets(rough_sets(model, kept, y))
    return np.asarray(values + 0.5 * np.square(errors) - model.log_normalizer.value)


def rough_sets(model: TiltedDensity, kept: list[int], y: Array, seed: int = 0) -> Array:
    """Log marginal density, not normalized, of rows (n, a) whose values are averaged, by each set
    of points, (R, n). The sets are equal where rules integrate."""
    is_known = isinstance(model.base, (GaussianBase, MixtureBase, StudentBase))
    if is_known or model.dimension - len(kept) > RULE_DIMENSIONS:
        return draw_sets(model, kept, y, choose_log2_points(model, len(y)), seed)
    values = marginal_log_density(model, kept, y)[0] + model.log_normalizer.value
    return np.broadcast_to(values, (DRAW_REPLICATES, len(y)))


def choose_log2_points(model: TiltedDensity, n: int) -> int:
    """As many points in each set, for the marginals of n rows, as the work allows."""
    work = DRAW_REPLICATES * n * (model.tilt.features.n_features + POINT_WORK)
    return int(np.clip(math.log2(DRAW_WORK / work), LEAST_LOG2_POINTS, MOST_LOG2_POINTS))


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
    return np.asarray(exponent.reshape(log_weights.shape) + log_weights)


def _blocks(model: TiltedDensity, kept: list[int], y: Array, factor: float) -> Iterator[Block]:
    """Nodes of all rows and logs of their weights; the base is in the weights."""
    if _uses_draws(model, kept):
        parts = _condition_rows(model.base, kept, y)
        yield from _draw_blocks(model, kept, y, parts, MOST_LOG2_POINTS + 3, 0)
    elif isinstance(model.base, (GaussianBase, MixtureBase, StudentBase)):
        yield from _whitened_blocks(model, kept, y, factor)
    else:
        yield from _tensor_blocks(model, kept, y, factor)


def _condition(base: Base, kept: list[int], y: Array) -> ConditionalParts | None:
    """The base given rows; None where it is of another class."""
    if isinstance(base, (GaussianBase, MixtureBase)):
        parts = condition_mixture(as_mixture(base), kept, y)
        return ConditionalParts(*parts, np.ones(len(y)), None)
    if not isinstance(base, StudentBase):
        return None
    margin = marginal_base(base, kept)
    assert isinstance(margin, StudentBase)
    gaussian = as_mixture(GaussianBase(base.centre, base.scale_matrix))
    parts = condition_mixture(gaussian, kept, y)
    degrees = base.degrees + len(kept)
    scales = np.sqrt((base.degrees + margin._squared_distances(y)) / degrees)
    zeros = np.zeros((len(y), 1))
    log_density = margin.log_density_at(y)
    return ConditionalParts(log_density, zeros, parts.means, parts.cholesky, scales, degrees)


def _whitened_blocks(
    model: TiltedDensity, kept: list[int], y: Array, factor: float
) -> Iterator[Block]:
    rest = split_columns(model.dimension, kept)[1]
    with np.errstate(all="ignore"):
        parts = _condition(model.base, kept, y)
    assert parts is not None
    for k, root in enumerate(parts.roots):
        rows = np.flatnonzero(parts.log_shares[:, k] > LEAST_ROW_LOG_SHARE)
        if not len(rows):
            continue
        directions = np.zeros((model.dimension, len(rest)))
        directions[rest] = root * float(np.median(parts.scales[rows]))
        w, log_weights = _whitened_nodes(model, wave_band(model.tilt, directions), factor, parts)
        offsets = w @ root.T
        size = max(1, NODES_AT_A_TIME // len(w))
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
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
        excess = 0.0
        if not model.tilt.is_zero:
            excess = max(find_peak(model.tilt) - model.log_normalizer.value, 0.0)
        reach = math.sqrt(MARGINAL_REACH**2 + 2.0 * excess)
        steps = resolving_steps(band) / factor
    else:
        reach = math.asinh(HEAVY_TAIL ** (-1.0 / parts.degrees))
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
    size = max(1, NODES_AT_A_TIME // len(nodes))
    for start in range(0, len(y), size):
        some = np.arange(start, min(start + size, len(y)))
        u = np.empty((len(some), len(nodes), model.dimension))
        u[:, :, kept], u[:, :, rest] = y[some][:, None], nodes
        values = base.log_density_at(u.reshape(-1, model.dimension))
        yield some, u, values.reshape(len(some), -1) + log_weights


# -- draws -----------------------------------------------------------------------------------------


def _draw_until_good(model: TiltedDensity, kept: list[int], y: Array) -> tuple[Array, Array]:
    """Log of the integral of e^f base over the other columns, and its error; rows with a large
    error get more draws."""
    values, errors = average_sets(draw_sets(model, kept, y, DRAW_LOG2_POINTS))
    poor = np.flatnonzero(errors > GOOD_DRAW_ERROR)
    if len(poor):
        sets = draw_sets(model, kept, y[poor], MOST_LOG2_POINTS)
        values[poor], errors[poor] = average_sets(sets)
    return values, errors


def draw_sets(
    model: TiltedDensity, kept: list[int], y: Array, log2_points: int, seed: int = 0
) -> Array:
    """Log of the integral of e^f base over the other columns, (R, n), by each of R = 8 sets of
    2^log2_points draws of the base given each row."""
    parts = _condition_rows(model.base, kept, y)
    sets = np.full((DRAW_REPLICATES, len(y)), -np.inf)
    for k, values in enumerate(sets):
        for block in _draw_blocks(model, kept, y, parts, log2_points, DRAW_REPLICATES * seed + k):
            values[block[0]] = logsumexp(_log_masses(model, block), axis=1)
    return sets


def average_sets(sets: Array) -> tuple[Array, Array]:
    """Logs (n,) of the means of what sets (R, n) are the logs of, and their standard errors."""
    values = logsumexp(sets, axis=0) - math.log(len(sets))
    with np.errstate(invalid="ignore"):
        spread = np.exp(sets - values).std(axis=0, ddof=1) / math.sqrt(DRAW_REPLICATES)
    return values, np.where(np.isfinite(values), spread, 0.0)


def _condition_rows(base: Base, kept: list[int], y: Array) -> ConditionalParts | list[Base | None]:
    """The base given rows; where it is known one row at a time, a list of bases, None for rows
    without a density."""
    with np.errstate(all="ignore"):
        parts = _condition(base, kept, y)
    if parts is not None:
        return parts
    log_density = _known_margin(base, kept).log_density_at(y)
    return [condition_base(base, kept, row) if np.isfinite(value) else None
            for row, value in zip(y, log_density, strict=True)]  # fmt: skip


def _known_margin(base: Base, kept: list[int]) -> Base:
    margin = marginal_base(base, kept)
    if margin is None:
        raise TypeError(
            f"marginals of {len(kept)} of {base.dimension} columns are not known for a "
            f"{type(base).__name__}; leave out at most {RULE_DIMENSIONS} columns"
        )
    return margin


def _stratified_blocks(
    model: TiltedDensity, kept: list[int], y: Array, seed: int
) -> Iterator[Block]:
    """Draws of each component of the base given each row: as many for all rows, so that sums over
    them are smooth functions of the rows."""
    base, rest = model.base, split_columns(model.dimension, kept)[1]
    assert isinstance(base, (GaussianBase, MixtureBase))
    with np.errstate(all="ignore"):
        parts = condition_mixture(as_mixture(base), kept, y)
    means = np.sqrt(np.exp(parts.log_shares).mean(axis=0))
    for k, root in enumerate(parts.cholesky):
        rows = np.flatnonzero(parts.log_shares[:, k] > LEAST_LINE_LOG_SHARE)
        log2_points = math.log2(max(means[k] / means.sum(), 1e-9)) + MOST_LOG2_POINTS
        log2_points = max(LEAST_LOG2_POINTS, round(log2_points))
        offsets = to_normals(sobol_uniforms(len(rest), log2_points, seed)) @ root.T
        size = max(1, NODES_AT_A_TIME // len(offsets))
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            u = np.empty((len(some), len(offsets), model.dimension))
            u[:, :, kept] = y[some][:, None]
            u[:, :, rest] = parts.means[some, k][:, None] + offsets
            constants = parts.log_density[some] + parts.log_shares[some, k]
            constants = constants - math.log(len(offsets))
            yield some, u, np.broadcast_to(constants[:, None], u.shape[:2])


def _draw_blocks(
    model: TiltedDensity, kept: list[int], y: Array, parts: ConditionalParts | list[Base | None],
    log2_points: int, seed: int,
) -> Iterator[Block]:  # fmt: skip
    """2^log2_points draws of the base given each row, the same uniforms for all rows."""
    rest = split_columns(model.dimension, kept)[1]
    if isinstance(parts, list):
        yield from _draw_row_by_row(model, kept, y, parts, log2_points, seed)
        return
    uniforms = sobol_uniforms(len(rest) + 1, log2_points, seed)
    normals = to_normals(uniforms[:, 1:])
    first, count = uniforms[:, 0], len(uniforms)
    if parts.degrees is not None:
        from scipy.special import gammaincinv

        squares = 2.0 * gammaincinv(0.5 * parts.degrees, first)
        normals = normals * np.sqrt(parts.degrees / squares)[:, None]
    size = max(1, NODES_AT_A_TIME // (count * len(rest)))
    for start in range(0, len(y), size):
        some = np.arange(start, min(start + size, len(y)))
        ends = np.cumsum(np.exp(parts.log_shares[some]), axis=1)[:, :-1]
        index = (first[None, :, None] > ends[:, None, :]).sum(axis=2)
        u = np.empty((len(some), count, model.dimension))
        u[:, :, kept] = y[some][:, None]
        offsets = _apply_roots(parts.roots, index, normals)
        means = np.take_along_axis(parts.means[some], index[:, :, None], axis=1)
        u[:, :, rest] = means + parts.scales[some][:, None, None] * offsets
        constants = parts.log_density[some] - math.log(count)
        yield some, u, np.broadcast_to(constants[:, None], (len(some), count))


def _apply_roots(roots: Array, index: NDArray[np.int64], normals: Array) -> Array:
    """roots[index[p, g]] @ normals[g] for all rows p and points g, (P, G, b)."""
    if len(roots) == 1:
        return np.broadcast_to(normals @ roots[0].T, (*index.shape, normals.shape[1]))
    turned = np.einsum("kij,gj->gki", roots, normals)  # (G, K, b)
    return np.asarray(turned[np.arange(len(normals)), index])


def _draw_row_by_row(
    model: TiltedDensity, kept: list[int], y: Array, given: list[Base | None], log2_points: int,
    seed: int,
) -> Iterator[Block]:  # fmt: skip
    """For bases whose conditionals are known one at a time."""
    rest = split_columns(model.dimension, kept)[1]
    log_density = _known_margin(model.base, kept).log_density_at(y)
    for row, base in enumerate(given):
        if base is not None:
            draws = base.draw_sobol(log2_points, seed)
            u = np.empty((1, len(draws), model.dimension))
            u[:, :, kept], u[:, :, rest] = y[row], draws
            constant = log_density[row] - math.log(len(draws))
            yield np.array([row]), u, np.full((1, len(draws)), constant)
