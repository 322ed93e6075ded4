"""Entropies and information of groups of columns: on grids up to three columns, else by draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...bases.base import Base
from ...bases.bounded import BoundedMixtureBase, UniformBase
from ...bases.conditioning import marginal_base
from ...bases.gaussian import GaussianBase
from ...bases.product import ProductBase
from ...bases.student import StudentBase
from ...validation import Array
from ..answers.answer import Answer
from ..answers.box_integrals import HEAVY_TAIL, UNKNOWN_REACH, wave_band
from ..answers.draw_means import mean_over_draws
from ..answers.expectations import draw_log_z, draw_replicates, is_drawn, log_density_at
from ..answers.tilted_density import TiltedDensity
from ..draws.proposal import QUADRATURE_DIMENSIONS
from ..draws.replicates import error_of_mean
from ..grids.base_marginals import find_ends, part_widths
from ..grids.box_rule import BoxRule
from .marginal_rules import LARGE_REPLICATES, average_logs, rough_sets

STEPS_PER_DEVIATION = 1.5  # steps of the first rule for each deviation of the base's narrowest part
LEAST_STEPS = 24  # along an axis
INFORMATION_REFINEMENT = 1.5  # factor of the steps along an axis from one rule to the next
INFORMATION_TOLERANCE = {2: 1e-9, 3: 1e-6}  # change at which refining stops, in nats
MOST_INFORMATION_NODES = 2**20  # of a rule: some tenths of a second
POOR_GRID = 0.01  # nats: where rules differ by more, draws are better
INFORMATION_LOG2_DRAWS = 12  # base-2 logarithm of the draws of rows whose marginals are integrals

Term = tuple[float, list[int]]  # sign, and columns of a marginal


def find_information(model: TiltedDensity, a: list[int], b: list[int], seed: int) -> Answer:
    """Mutual information of two groups of columns: E[log q_ab - log q_a - log q_b], in nats."""
    if model.tilt.is_zero and isinstance(model.base, GaussianBase):
        logs = [
            float(np.linalg.slogdet(model.base.covariance[np.ix_(some, some)])[1])
            for some in (a, b, a + b)
        ]
        return Answer(0.5 * (logs[0] + logs[1] - logs[2]), 0.0, "exact")
    terms = [(1.0, a + b), (-1.0, a), (-1.0, b)]
    return mean_log_marginals(model, terms, seed)


def mean_log_marginals(model: TiltedDensity, terms: list[Term], seed: int) -> Answer:
    """Mean of a sum of log marginal densities, times signs, in the model's coordinates.

    terms : the first one has the columns of all others
    """
    if model.dimension <= QUADRATURE_DIMENSIONS:
        found = _refine_grid(model, terms)
        if found is not None and found.standard_error < POOR_GRID:
            return found
    return _average_log_marginals(model, terms, seed)


# -- grids -----------------------------------------------------------------------------------------


def _refine_grid(model: TiltedDensity, terms: list[Term]) -> Answer | None:
    """Rules are refined until two agree; None where no two rules of moderate size resolve it."""
    d, last, found = model.dimension, math.nan, None
    counts = _first_counts(model)
    while True:
        rule = _make_rule(model.base, counts)
        if rule.size > MOST_INFORMATION_NODES:
            return found
        value, mass = _sum_log_marginals(model, rule, terms)
        if math.isfinite(last):
            lost = abs(mass - 1.0)  # mass between the nodes, or beyond them
            found = Answer(value, abs(value - last) + lost * (1.0 + abs(value)), "quadrature")
            if abs(value - last) <= INFORMATION_TOLERANCE[d]:
                return found
        last, counts = value, np.ceil(INFORMATION_REFINEMENT * counts)


def _sum_log_marginals(
    model: TiltedDensity, rule: BoxRule, terms: list[Term]
) -> tuple[float, float]:
    """The mean by a rule whose nodes give the margins too, and the mass on them."""
    density = np.concatenate([np.exp(log_density_at(model, x)) for x, _ in rule.slabs()])
    density = density.reshape([len(x) for x in rule.nodes])
    both = sorted(terms[0][1])
    for axis in reversed(range(model.dimension)):
        if axis not in both:
            density = np.tensordot(density, rule.weights[axis], axes=(axis, 0))
    place = {axis: i for i, axis in enumerate(both)}

    def weights_along(axis: int) -> Array:
        along = np.ones(len(both), int)
        along[place[axis]] = -1
        return rule.weights[axis].reshape(along)

    masses = density.copy()
    for axis in both:
        masses *= weights_along(axis)
    total, logs = float(masses.sum()), np.zeros(masses.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        for sign, some in terms:
            others = tuple(place[axis] for axis in both if axis not in some)
            cells = masses.sum(axis=others, keepdims=True) / total
            for axis in some:
                cells = cells / weights_along(axis)
            logs = logs + sign * np.log(cells)
        summed = np.where(masses > 0.0, masses * logs, 0.0)
    return float(summed.sum()) / total, total


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
        found = np.zeros(base.dimension, bool)
        for factor, columns in base.each:
            found[columns] = _find_walls(factor)
        return found
    if isinstance(base, UniformBase | BoundedMixtureBase):
        domain = base.domain
        return np.asarray((np.isfinite(domain.low) | np.isfinite(domain.high)) & ~domain.periodic)
    return np.zeros(base.dimension, bool)


# -- draws -----------------------------------------------------------------------------------------


def _average_log_marginals(model: TiltedDensity, terms: list[Term], seed: int) -> Answer:
    """The mean over draws of rows.

    What is known of the log marginals, those of the base at least, is averaged over 131,072 draws;
    the rest, which varies less, over 4,096 draws, whose marginals are integrals. Sets of points for
    these integrals give an error too.
    """
    known = [(sign, _known_part(model, sorted(some))) for sign, some in terms]
    u, weights = draw_replicates(model, seed)
    values = _sum_known(known, u)
    left = [(sign, sorted(some)) for sign, some in terms if not _is_known(model, some)]
    # how often log Z is subtracted: closed forms of margins, without a tilt, have none
    count = sum(sign for sign, _ in terms)
    log_z = draw_log_z(model, seed, -count)
    if not left:
        return mean_over_draws(values.reshape(weights.shape), weights, log_z)
    few, of_few = model.integrator.weighted_draws(2**INFORMATION_LOG2_DRAWS, seed)
    rest = -_sum_known([(sign, _known_part(model, some)) for sign, some in left], few)
    of_sets = np.zeros((LARGE_REPLICATES, len(few)))
    for sign, some in left:
        sets = rough_sets(model, some, np.ascontiguousarray(few[:, some]), seed)
        rest += sign * average_logs(sets)[0]
        of_sets += sign * sets
    carried = of_few > 0.0
    rest, of_sets = np.where(carried, rest, 0.0), np.where(carried, of_sets, 0.0)
    # the exponent varies as the rest does: its part in the rest is averaged over the many draws
    exponents = model.tilt.value(few, model.threads)
    slope = _find_slope(exponents, rest, of_few)
    values += slope * model.tilt.value(u, model.threads)
    found = mean_over_draws(values.reshape(weights.shape), weights, log_z)
    remainder = mean_over_draws((rest - slope * exponents)[:, None], of_few[:, None])
    means = of_sets @ of_few / of_few.sum()
    normalizer = model.log_normalizer
    errors_of = [
        found.standard_error, remainder.standard_error,
        float(error_of_mean(means)),
    ]  # fmt: skip
    if not is_drawn(model):
        errors_of.append(abs(count) * normalizer.standard_error)
    value = found.value + remainder.value - sum(sign for sign, _ in left) * normalizer.value
    return Answer(value, math.hypot(*errors_of), "draws")


def _find_slope(x: Array, y: Array, weights: Array) -> float:
    """Slope of y in x by weighted least squares."""
    x, share = x - np.average(x, weights=weights), weights / weights.sum()
    variance = float(share @ np.square(x))
    return float(share @ (x * y)) / variance if variance > 0.0 else 0.0


def _is_known(model: TiltedDensity, some: list[int]) -> bool:
    """Whether the marginal density of some columns has a closed form."""
    if len(some) == model.dimension:
        return True
    return model.tilt.is_zero and marginal_base(model.base, sorted(some)) is not None


def _known_part(model: TiltedDensity, kept: list[int]) -> Callable[[Array], Array]:
    """The log marginal density where it is known, else that of the base, else zero, as a function
    of rows (n, d) of the model's coordinates."""
    if len(kept) == model.dimension:
        return lambda u: log_density_at(model, u)
    margin = marginal_base(model.base, kept)
    if margin is None:
        return lambda u: np.zeros(len(u))
    return lambda u: margin.log_density_at(np.ascontiguousarray(u[:, kept]))


def _sum_known(known: list[tuple[float, Callable[[Array], Array]]], u: Array) -> Array:
    total = np.zeros(len(u))
    for sign, part in known:
        total += sign * part(u)
    return np.where(np.isfinite(total), total, 0.0)  # where the density is zero, so is the weight
