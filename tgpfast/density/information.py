"""Mutual information of groups of columns: on a grid for one to three columns, else by draws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..bases.bounded import BoundedMixtureBase, ProductBase, UniformBase
from ..bases.conditioning import marginal_base
from ..bases.gaussian import GaussianBase
from ..bases.student import StudentBase
from ..validation import Array
from .answers import Answer
from .base_marginals import find_ends, part_widths
from .box_integrals import HEAVY_TAIL, UNKNOWN_REACH, wave_band
from .box_rule import BoxRule
from .draw_means import mean_over_draws
from .expectations import log_density_at
from .integration import ANSWER_REPLICATES
from .marginal_rules import DRAW_LOG2_POINTS, DRAW_REPLICATES, average_sets, draw_sets
from .quadrature import QUADRATURE_DIMENSIONS
from .tilted_density import TiltedDensity

STEPS_PER_DEVIATION = 1.5  # steps of the first rule for each deviation of the base's narrowest part
LEAST_STEPS = 24  # along an axis
INFORMATION_REFINEMENT = 1.5  # factor of the steps along an axis from one rule to the next
INFORMATION_TOLERANCE = {2: 1e-9, 3: 1e-6}  # change at which refining stops, in nats
MOST_INFORMATION_NODES = 2**20  # of a rule: some tenths of a second
POOR_GRID = 0.01  # nats: where rules differ by more, draws are better
INFORMATION_LOG2_DRAWS = 11  # base-2 logarithm of the draws of rows
LEAST_LOG2_POINTS = 4  # base-2 logarithm of the points of each set behind a marginal of a row
MOST_WORK = 6e8  # features times points, for all rows and groups: some seconds
POINT_WORK = 60  # features that take as long as making one point
GROUPS = 3  # marginals of a row: of both groups, and of each


def find_information(model: TiltedDensity, a: list[int], b: list[int], seed: int) -> Answer:
    """Mutual information of two groups of columns: E[log q_ab - log q_a - log q_b], in nats."""
    if model.tilt.is_zero and isinstance(model.base, GaussianBase):
        logs = [
            float(np.linalg.slogdet(model.base.covariance[np.ix_(some, some)])[1])
            for some in (a, b, a + b)
        ]
        return Answer(0.5 * (logs[0] + logs[1] - logs[2]), 0.0, "exact")
    if model.dimension <= QUADRATURE_DIMENSIONS:
        found = _refine_grid(model, a, b)
        if found is not None and found.standard_error < POOR_GRID:
            return found
    return _average_information(model, a, b, seed)


# -- grids -----------------------------------------------------------------------------------------


def _refine_grid(model: TiltedDensity, a: list[int], b: list[int]) -> Answer | None:
    """Rules are refined until two agree; None where no two rules of moderate size resolve it."""
    d, last, found = model.dimension, math.nan, None
    counts = _first_counts(model)
    while True:
        rule = _make_rule(model.base, counts)
        if rule.size > MOST_INFORMATION_NODES:
            return found
        value, mass = _sum_information(model, rule, a, b)
        if math.isfinite(last):
            lost = abs(mass - 1.0)  # mass between the nodes, or beyond them
            found = Answer(value, abs(value - last) + lost * (1.0 + abs(value)), "quadrature")
            if abs(value - last) <= INFORMATION_TOLERANCE[d]:
                return found
        last, counts = value, np.ceil(INFORMATION_REFINEMENT * counts)


def _sum_information(
    model: TiltedDensity, rule: BoxRule, a: list[int], b: list[int]
) -> tuple[float, float]:
    """The information by a rule whose nodes give the margins too, and the mass on them."""
    shape, d = [len(x) for x in rule.nodes], model.dimension
    density = np.concatenate([np.exp(log_density_at(model, x)) for x, _ in rule.slabs()])
    density = density.reshape(shape)
    both = sorted(a + b)
    for axis in reversed(range(d)):
        if axis not in both:
            density = np.tensordot(density, rule.weights[axis], axes=(axis, 0))
    place = {axis: i for i, axis in enumerate(both)}
    masses = density.copy()
    for axis in both:
        along = np.ones(len(both), int)
        along[place[axis]] = -1
        masses *= rule.weights[axis].reshape(along)
    total = float(masses.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(density)
        for some in (a, b):
            others = tuple(place[axis] for axis in both if axis not in some)
            cells = masses.sum(axis=others, keepdims=True)
            for axis in some:
                along = np.ones(len(both), int)
                along[place[axis]] = -1
                cells = cells / rule.weights[axis].reshape(along)
            ratio = ratio - np.log(cells)
        terms = np.where(masses > 0.0, masses * ratio, 0.0)
    return float(terms.sum()) / total + math.log(total), total


def _first_counts(model: TiltedDensity) -> Array:
    """Steps along each axis that resolve the base and the waves of the tilt."""
    low, high = _find_range(model.base)
    widths = np.ones(model.dimension)
    if not isinstance(model.base, StudentBase):
        widths = part_widths(model.base)[1].min(axis=0)
    band = wave_band(model.tilt, np.eye(model.dimension))
    steps = (high - low) * (STEPS_PER_DEVIATION / widths + band / math.pi)
    return np.ceil(np.maximum(steps, LEAST_STEPS))


def _find_range(base: Base) -> tuple[Array, Array]:
    """Ends of the axes: of v in u = center + scale sinh(v) for heavy tails, else of u."""
    if isinstance(base, StudentBase):
        from scipy.special import stdtrit

        reach = math.asinh(-float(stdtrit(base.degrees, HEAVY_TAIL)))
        return np.full(base.dimension, -reach), np.full(base.dimension, reach)
    spread = UNKNOWN_REACH * np.sqrt(np.diag(base.covariance))
    return find_ends(base) or (base.mean - spread, base.mean + spread)


def _make_rule(base: Base, counts: Array) -> BoxRule:
    """The trapezoidal rule along axes without walls, Gauss-Legendre panels along the others."""
    low, high = _find_range(base)
    rule = BoxRule.of_axes(low, high, [int(n) for n in counts], (~_find_walls(base)).tolist())
    if not isinstance(base, StudentBase):
        return rule
    scales = np.sqrt(np.diag(base.scale_matrix))
    return replace(
        rule,
        nodes=tuple(m + s * np.sinh(v) for m, s, v in zip(base.mean, scales, rule.nodes,
                                                          strict=True)),
        weights=tuple(s * np.cosh(v) * w for s, v, w in zip(scales, rule.nodes, rule.weights,
                                                            strict=True)),
    )  # fmt: skip


def _find_walls(base: Base) -> NDArray[np.bool_]:
    """Which axes have walls, at which the density may be positive, (d,)."""
    if isinstance(base, ProductBase):
        return np.concatenate([_find_walls(factor) for factor in base.factors])
    if isinstance(base, UniformBase | BoundedMixtureBase):
        domain = base.domain
        return np.asarray((np.isfinite(domain.low) | np.isfinite(domain.high)) & ~domain.periodic)
    return np.zeros(base.dimension, bool)


# -- draws -----------------------------------------------------------------------------------------


def _average_information(model: TiltedDensity, a: list[int], b: list[int], seed: int) -> Answer:
    """The mean over draws of rows. Sets of points for the marginals of the rows give an error too.

    The log of a mean of draws is too low by half the square of its error, which is added.
    """
    u, weights = model.integrator.weighted_draws(2**INFORMATION_LOG2_DRAWS, seed)
    values, of_sets = np.zeros(len(u)), np.zeros((DRAW_REPLICATES, len(u)))
    for sign, some in ((1.0, a + b), (-1.0, a), (-1.0, b)):
        sets = _marginal_sets(model, sorted(some), u)
        mean, errors = average_sets(sets)
        values += sign * (mean + 0.5 * np.square(errors))
        of_sets += sign * sets
    # log Z and its error are in q_ab, q_a and q_b alike
    constant = model.log_normalizer.value
    carried = weights > 0.0
    values, of_sets = np.where(carried, values, 0.0), np.where(carried, of_sets, 0.0)
    shape = ANSWER_REPLICATES, -1
    found = mean_over_draws(values.reshape(shape), weights.reshape(shape))
    means = of_sets @ weights / weights.sum()
    of_points = float(means.std(ddof=1)) / math.sqrt(DRAW_REPLICATES)
    error = math.hypot(found.standard_error, of_points, model.log_normalizer.standard_error)
    return Answer(found.value + constant, error, found.method)


def _marginal_sets(model: TiltedDensity, kept: list[int], u: Array) -> Array:
    """Log marginal density, not normalized, at rows of the model's coordinates, by each set of
    points, (R, n); the sets are equal where it is known."""
    known = marginal_base(model.base, kept) if model.tilt.is_zero else None
    y = np.ascontiguousarray(u[:, kept])
    if known is not None:
        values = known.log_density_at(y)
    elif len(kept) == model.dimension:
        values = log_density_at(model, u) + model.log_normalizer.value
    else:
        return draw_sets(model, kept, y, _choose_log2_points(model, len(u)))
    return np.broadcast_to(values, (DRAW_REPLICATES, len(u)))


def _choose_log2_points(model: TiltedDensity, n: int) -> int:
    """As many points for the marginals of n rows as the work allows."""
    of_point = model.tilt.features.n_features + POINT_WORK
    work = GROUPS * DRAW_REPLICATES * n * of_point
    return int(np.clip(math.log2(MOST_WORK / work), LEAST_LOG2_POINTS, DRAW_LOG2_POINTS))
