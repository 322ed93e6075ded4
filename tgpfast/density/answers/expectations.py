"""Expectations under a density: of any function, entropy, and divergence from another density."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase
from ...validation import Array
from ..draws.proposal import QUADRATURE_DIMENSIONS
from ..draws.replicates import AddedTerm
from ..exponents.exponent import Tilt
from ..normalizing.integration import ANSWER_LOG2_POINTS, ANSWER_REPLICATES
from .answer import Answer
from .box_integrals import integrate_in_box
from .draw_means import mean_over_draws
from .tilted_density import TiltedDensity

EXPECTATION_METHODS = ("auto", "quadrature", "draws")
# Components of a mixture of three columns up to which "auto" integrates, in a few seconds: the time
# grows with their square, to five minutes for 160 of them.
INTEGRATED_COMPONENTS = 8

RowFunction = Callable[[Array, Array], Array]  # rows in model's coordinates, log density -> (n,)


def expect(
    model: TiltedDensity, function: RowFunction, method: str, seed: int,
    added: AddedTerm | None = None,
) -> Answer:  # fmt: skip
    """Mean of a function of rows and log densities, both in the model's coordinates.

    added : a term that depends on the same draws, such as `draw_log_z` gives
    """
    uses_grid = model.integrator.uses_quadrature
    if method == "quadrature" and not uses_grid:
        raise ValueError(
            f'method="quadrature" serves at most {QUADRATURE_DIMENSIONS} columns, and this density '
            f'has {model.dimension}, or periods and heavy tails; use "draws"'
        )
    if method == "auto" and has_many_components(model):
        method = "draws"
    if method == "draws" or not uses_grid:
        return _expect_by_draws(model, function, seed, added)
    infinite = False

    def watched(u: Array, log_p: Array) -> Array:
        nonlocal infinite
        values = function(u, log_p)
        infinite = infinite or bool(np.isinf(values[np.isfinite(log_p)]).any())
        return np.where(np.isinf(values), 0.0, values)

    d = model.dimension
    found = integrate_in_box(model.integrator, np.full(d, -np.inf), np.full(d, np.inf), watched)
    if infinite:  # draws tell whether that happens where there is mass
        return _expect_by_draws(model, function, seed, added)
    if added is None:
        return Answer(found.value, found.error, "quadrature")
    error = math.hypot(found.error, added.standard_error)
    return Answer(found.value + added.value, error, "quadrature")


def _expect_by_draws(
    model: TiltedDensity, function: RowFunction, seed: int, added: AddedTerm | None
) -> Answer:
    u, weights = draw_replicates(model, seed)
    log_p = log_density_at(model, u)
    values = function(u, log_p)
    carried = weights.ravel() > 0.0
    if np.isinf(values[carried]).any():
        return Answer(float(values[carried & np.isinf(values)][0]), 0.0, "draws")
    values = np.where(carried, values, 0.0)
    return mean_over_draws(values.reshape(weights.shape), weights, added)


def is_drawn(model: Any) -> bool:
    """Whether log Z of a density comes from draws."""
    return not (model.tilt.is_zero or model.integrator.uses_quadrature)


def draw_log_z(model: Any, seed: int, count: float) -> AddedTerm:
    """What to add to a mean that has ``count`` times log Z, so that log Z is that of the draws of
    the seed; nothing where log Z does not come from draws."""
    if not is_drawn(model):
        return AddedTerm(0.0, np.zeros(ANSWER_REPLICATES))
    own = model.integrator.log_z_of_replicates(seed)
    gap = own.value - model.log_normalizer.value
    return AddedTerm(count * gap, count * own.deviations)


def draw_replicates(model: TiltedDensity, seed: int) -> tuple[Array, Array]:
    """Draws (R n, d) in the model's coordinates and weights (R, n) of R independent sets."""
    integrator, shape = model.integrator, (ANSWER_REPLICATES, 2**ANSWER_LOG2_POINTS)
    if integrator.uses_quadrature:
        u, weights = integrator.weighted_draws(math.prod(shape), seed)
        return u, weights.reshape(shape)
    sets, weights = integrator.replicates(seed)
    return sets.reshape(-1, model.dimension), weights


def has_many_components(model: TiltedDensity) -> bool:
    """Whether the base is a mixture whose integrals in three columns would take long."""
    if model.dimension < QUADRATURE_DIMENSIONS or not isinstance(model.base, MixtureBase):
        return False
    return model.base.n_components > INTEGRATED_COMPONENTS


def log_density_at(model: TiltedDensity, u: Array) -> Array:
    """Normalized log density at rows of the model's coordinates, in those coordinates, (n,)."""
    exponent = model.tilt.value(u, model.threads) - model.log_normalizer.value
    values = exponent + model.base.log_density_at(u)
    return np.where(np.isnan(values), -np.inf, values)


def expect_of_rows(
    model: TiltedDensity, function: Callable[[Any], Any], method: str, seed: int
) -> Answer:
    """Mean of a user's function of rows in the units of the data."""

    def of_rows(u: Array, log_p: Array) -> Array:
        values = np.asarray(function(model.table.frame(model.scaling.invert(u))), dtype=float)
        if values.shape != (len(u),):
            raise ValueError(
                f"function returned shape {values.shape} for {len(u)} rows; expected one number "
                f"for each row, ({len(u)},)"
            )
        return values

    return expect(model, of_rows, method, seed)


def entropy_of(model: TiltedDensity, seed: int) -> Answer:
    """E[-log q], in nats, in the units of the data."""
    scaling = model.scaling
    if model.tilt.is_zero and isinstance(model.base, GaussianBase) and scaling.is_affine:
        roots = float(np.log(np.diag(model.base.cholesky)).sum())
        constant = 0.5 * model.dimension * (1.0 + math.log(2.0 * math.pi))
        return Answer(roots + constant + scaling.log_volume, 0.0, "exact")
    log_z = draw_log_z(model, seed, 1.0)
    found = expect(model, lambda u, log_p: -log_p - scaling.log_slope_at(u), "auto", seed, log_z)
    if is_drawn(model):
        return found
    error = found.standard_error + model.log_normalizer.standard_error
    return Answer(found.value, error, found.method)


def divergence_of(model: TiltedDensity, other: Any, seed: int) -> Answer:
    """Kullback-Leibler divergence E[log q - log other] from a density to another one, in nats."""
    exact = _gaussian_divergence(model, other)
    if exact is not None:
        return Answer(exact, 0.0, "exact")

    def log_ratio(u: Array, log_p: Array) -> Array:
        rows = model.table.frame(model.scaling.invert(u))
        theirs = np.asarray(other.log_density(rows), dtype=float)
        mine = log_p + model.scaling.log_slope_at(u)
        return np.where(np.isfinite(mine), mine - theirs, 0.0)

    log_z, errors = draw_log_z(model, seed, -1.0), []
    if isinstance(getattr(other, "tilt", None), Tilt) and is_drawn(other):
        # the same points for both: errors that both have cancel
        theirs = draw_log_z(other, seed, 1.0)
        log_z = AddedTerm(log_z.value + theirs.value, log_z.deviations + theirs.deviations)
    else:
        errors.append(find_log_z_error(other))
    found = expect(model, log_ratio, "auto", seed, log_z)
    if not is_drawn(model):
        errors.append(model.log_normalizer.standard_error)
    return Answer(found.value, math.hypot(found.standard_error, *errors), found.method)


def find_log_z_error(other: Any) -> float:
    """Standard error of log Z of a density; 0 for those of other packages."""
    return getattr(getattr(other, "log_normalizer", None), "standard_error", 0.0)


def _gaussian_divergence(model: TiltedDensity, other: Any) -> float | None:
    """The closed form where both densities are Gaussians; None elsewhere."""
    tilts = (model.tilt, getattr(other, "tilt", None))
    if not all(tilt is not None and tilt.is_zero for tilt in tilts):
        return None
    if not (isinstance(model.base, GaussianBase) and isinstance(other.base, GaussianBase)):
        return None
    if not (model.scaling.is_affine and other.scaling.is_affine):
        return None
    (m, C), (n, D) = (_gaussian_in_data_units(one) for one in (model, other))
    inverse = np.linalg.inv(D)
    log_ratio = np.linalg.slogdet(D)[1] - np.linalg.slogdet(C)[1]
    gap = n - m
    return float(0.5 * (np.sum(inverse * C) + gap @ inverse @ gap - len(m) + log_ratio))


def _gaussian_in_data_units(model: Any) -> tuple[Array, Array]:
    scale = model.scaling.scale
    mean = model.scaling.invert(model.base.mean[None])[0]
    return mean, model.base.covariance * np.outer(scale, scale)
