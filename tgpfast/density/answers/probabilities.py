"""Probabilities of boxes, distribution functions and quantiles of a density."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ...bases.conditioning import marginal_base
from ...bases.domain import domain_of
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase
from ...bases.student import StudentBase
from ...validation import Array
from ..draws.proposal import QUADRATURE_DIMENSIONS
from ..grids.base_marginals import base_cdf
from ..normalizing.integration import Integrator
from ..normalizing.quadrature import LOG_Z_TOLERANCE
from .answer import Answer
from .box_integrals import integrate_in_box
from .draw_means import share_of_draws
from .expectations import has_many_components
from .periodic_boxes import split_boxes
from .tilted_density import TiltedDensity, zero_tilt

CLOSED_FORMS = (GaussianBase, MixtureBase, StudentBase)  # bases whose margins are known functions
BOXES_AT_A_TIME = 64  # boxes that are compared with all draws together
# places at which a distribution function is inverted first, in standard deviations: 0.004 apart in
# the middle, 0.1 at the ends
FIRST_PLACES = np.sinh(np.linspace(-4.0, 4.0, 2_049))
WIDER = 16.0  # factor of the distances where quantiles are farther away
ROUND_PLACES, ROUNDS = 65, 2  # places between the two neighbors of each quantile, in rounds


class ColumnCDF(NamedTuple):
    """Distribution function of one column, in the units of the data.

    function : callable, places (G,) -> probabilities (G,)
    error : callable, places (G,) -> errors (G,)
    method : "exact", "quadrature" or "draws"
    """

    function: Callable[[Array], Array]
    error: Callable[[Array], Array]
    method: str


# -- one column ------------------------------------------------------------------------------------


def column_cdf(model: TiltedDensity, column: int, seed: int = 0) -> ColumnCDF:
    """The distribution function of a column."""
    if model.scaling.is_affine:
        return _line_cdf(model, column, seed)
    on_line, to_line = _line_cdf(model, column, seed), partial(model.scaling.to_line, column)
    return ColumnCDF(
        lambda x: on_line.function(to_line(x)), lambda x: on_line.error(to_line(x)), on_line.method
    )


def _line_cdf(model: TiltedDensity, column: int, seed: int) -> ColumnCDF:
    """The distribution function of a column after its map: what shift and scale act on."""
    scaling = model.scaling.affine
    shift, scale = scaling.shift[column], scaling.scale[column]
    axis = np.eye(model.dimension)[column]
    if model.tilt.is_zero and not _is_drawn(model):
        is_closed = isinstance(model.base, CLOSED_FORMS)
        size = 0.0 if is_closed else LOG_Z_TOLERANCE[1]
        return ColumnCDF(
            lambda x: base_cdf(model.base, axis, (x - shift) / scale),
            lambda x: np.full(len(x), size), "exact" if is_closed else "quadrature",
        )  # fmt: skip
    if model.integrator.uses_quadrature and not has_many_components(model):
        size = max(model.log_normalizer.standard_error, LOG_Z_TOLERANCE[model.dimension])
        return ColumnCDF(
            lambda x: model.integrator.marginal_cdf(axis, x, scaling),
            lambda x: np.full(len(x), size), "quadrature",
        )  # fmt: skip
    return _cdf_of_draws(model, column, seed)


def _is_drawn(model: TiltedDensity) -> bool:
    """Whether the margins of a base are known from draws only: they are an unknown function, and
    no rule of moderate size covers it."""
    return marginal_base(model.base, [0]) is None and not model.integrator.uses_quadrature


def _cdf_of_draws(model: TiltedDensity, column: int, seed: int) -> ColumnCDF:
    """Linear between the draws, so that it can be inverted."""
    u, weights = model.integrator.replicates(seed)
    values = u[:, :, column] * model.scaling.scale[column] + model.scaling.shift[column]
    order = np.argsort(values, axis=None)
    line, mass = values.ravel()[order], weights.ravel()[order]
    running = (np.cumsum(mass) - 0.5 * mass) / mass.sum()

    def error(x: Array) -> Array:
        found = np.empty(len(x))
        for start in range(0, len(x), BOXES_AT_A_TIME):
            part = slice(start, start + BOXES_AT_A_TIME)
            inside = (values[:, :, None] <= x[part]).astype(float)
            found[part] = share_of_draws(inside, weights)[1]
        return found

    return ColumnCDF(lambda x: np.interp(x, line, running, left=0.0, right=1.0), error, "draws")


def find_quantiles(model: TiltedDensity, column: int, levels: Array, seed: int = 0) -> Array:
    """Values of a column below which the shares ``levels`` of the probability lie, (Q,)."""
    cdf = _line_cdf(model, column, seed).function
    middle = float(model.base.mean[column]) * model.scaling.scale[column]
    middle += float(model.scaling.shift[column])
    width = math.sqrt(float(model.base.covariance[column, column])) * model.scaling.scale[column]
    return model.scaling.from_line(column, invert_cdf(cdf, levels, middle, float(width)))


def invert_cdf(
    cdf: Callable[[Array], Array], levels: Array, middle: float, width: float
) -> Array:
    """Places at which an increasing function has given values, to about 1e-12 widths.

    Parameters
    ----------
    cdf : callable, (G,) -> (G,)
    levels : (Q,) array
        In (0, 1).
    middle, width : float
        Where to begin the search.
    """
    places = middle + width * FIRST_PLACES
    values = cdf(places)
    while not (values[0] < levels.min() and values[-1] > levels.max()):
        with np.errstate(over="ignore"):
            width *= WIDER
            more = middle + width * FIRST_PLACES
        if not np.isfinite(more[[0, -1]]).all():
            raise ValueError(f"quantiles of {levels.tolist()} are beyond the range of float64")
        more = more[(more < places[0]) | (more > places[-1])]
        places, values = np.append(places, more), np.append(values, cdf(more))
        order = np.argsort(places)
        places, values = places[order], values[order]
    lines, values = (np.broadcast_to(v, (len(levels), len(v))) for v in (places, values))
    steps = np.linspace(0.0, 1.0, ROUND_PLACES)
    rows = np.arange(len(levels))
    for _ in range(ROUNDS):
        k = np.clip((values <= levels[:, None]).sum(axis=1) - 1, 0, lines.shape[1] - 2)
        a, b = lines[rows, k], lines[rows, k + 1]
        lines = a[:, None] + (b - a)[:, None] * steps
        values = cdf(lines.ravel()).reshape(lines.shape)
    return np.array([
        np.interp(level, np.maximum.accumulate(v), x)
        for level, v, x in zip(levels, values, lines, strict=True)
    ])  # fmt: skip


# -- boxes -----------------------------------------------------------------------------------------


def box_probability(model: TiltedDensity, low: Array, high: Array, seed: int = 0) -> Answer:
    """Probability of a box; its ends, (d,) each, in the units of the data, may be infinite."""
    values, errors, method = box_probabilities(model, low[None], high[None], seed)
    return Answer(float(values[0]), float(errors[0]), method)


def box_probabilities(
    model: TiltedDensity, low: Array, high: Array, seed: int = 0
) -> tuple[Array, Array, str]:
    """Probabilities (n,) of boxes with ends (n, d), their errors (n,), and the method.

    A box that crosses the seam of a period is the sum of its parts; see `split_boxes`.
    """
    low, high = (_scaled(model, ends) for ends in (low, high))
    domain, n = domain_of(model.base), len(low)
    if not domain.periodic.any():
        return _scaled_probabilities(model, low, high, seed)
    low, high, box = split_boxes(domain, low, high)
    values, errors, method = _scaled_probabilities(model, low, high, seed)
    shares, total_errors = np.zeros(n), np.zeros(n)
    np.add.at(shares, box, values)
    np.add.at(total_errors, box, errors)
    return np.minimum(shares, 1.0), total_errors, method


def _scaled_probabilities(
    model: TiltedDensity, low: Array, high: Array, seed: int
) -> tuple[Array, Array, str]:
    """The same for boxes within one period, in the model's coordinates."""
    bounded = np.flatnonzero(np.isfinite(low).any(axis=0) | np.isfinite(high).any(axis=0))
    n = len(low)
    if not len(bounded):
        return (low < high).all(axis=1).astype(float), np.zeros(n), "exact"
    integrator = model.integrator
    if model.tilt.is_zero and len(bounded) < model.dimension:
        # columns without bounds do not matter: integrate over the others alone
        known = marginal_base(model.base, bounded.tolist())
        if known is not None and known.dimension <= QUADRATURE_DIMENSIONS:
            integrator = Integrator(zero_tilt(known.dimension), known, model.threads)
            low, high = low[:, bounded], high[:, bounded]
    base = integrator.base
    if integrator.tilt.is_zero and base.dimension == 1 and isinstance(base, CLOSED_FORMS):
        values = [base_cdf(base, np.ones(1), ends[:, 0]) for ends in (low, high)]
        return np.maximum(values[1] - values[0], 0.0), np.zeros(n), "exact"
    if integrator.uses_quadrature and not (
        integrator is model.integrator and has_many_components(model)
    ):
        found = [integrate_in_box(integrator, a, b) for a, b in zip(low, high, strict=True)]
        shares = np.clip([one.value for one in found], 0.0, 1.0)
        return shares, np.array([one.error for one in found]), "quadrature"
    return *_shares_of_draws(integrator, low, high, seed), "draws"


def _scaled(model: TiltedDensity, ends: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(model.scaling.apply_bounds(ends))


def _shares_of_draws(
    integrator: Integrator, low: Array, high: Array, seed: int
) -> tuple[Array, Array]:
    u, weights = integrator.replicates(seed)
    shares, errors = np.empty(len(low)), np.empty(len(low))
    for start in range(0, len(low), BOXES_AT_A_TIME):
        part = slice(start, start + BOXES_AT_A_TIME)
        inside = np.ones((*weights.shape, len(low[part])), bool)
        for k in range(u.shape[2]):
            places = u[:, :, k, None]
            inside &= (low[part, k] < places) & (places <= high[part, k])
        shares[part], errors[part] = share_of_draws(inside.astype(float), weights)
    return shares, errors

