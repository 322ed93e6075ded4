"""Integrals of a density over a box, or over all space, in one to three dimensions.

A Gaussian component of the base is integrated in coordinates that whiten it, one after the other:
the box limits each coordinate by those before it. A Student base has the same rule after a
substitution that makes its tails light. Any other base is integrated by a tensor rule over its
range. All rules are Gauss-Legendre; a finer rule gives the error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...bases.base import Base
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase
from ...bases.nested_rule import extend_rule, nested_rule, panel_rule
from ...bases.part_widths import part_widths
from ...bases.student import StudentBase
from ...validation import Array
from ..exponents.exponent import PredictiveTilt, Tilt
from ..exponents.lattice_exponent import LatticeTilt
from ..grids.base_marginals import cover_base, gaussian_components
from ..normalizing.integration import Integrator

BOX_TOLERANCE = {1: 1e-10, 2: 1e-9, 3: 1e-7}  # error of a probability, by columns, to refine to
MOST_BOX_NODES = {1: 2**20, 2: 2**22, 3: 2**23}  # of one part of the base: some seconds of work
LEAST_LOG_MASS = 36.0  # a part of the base that has less than e^-36 of the mass is left out
PEAK_DEVIATIONS = 8.0  # a sum of many waves exceeds so many of its standard deviations nowhere
NODES_PER_DEVIATION = 2.2  # Gauss-Legendre nodes that integrate a Gaussian to 1e-13
NODES_PER_RADIAN = 0.6  # more of them for each radian of the highest frequency: 0.5 and a little
LEAST_NODES = 12  # along an axis
PANEL_NODES_AT_MOST = 64  # of one Gauss-Legendre rule; more nodes come in panels
TILTED_ROUNDING = 1e-10  # relative error of an exponent that is evaluated by transforms
LATTICE_ERRORS = 2.0  # root mean square errors of interpolation that an integral may be off
BOX_REFINEMENT = 1.4  # factor of the nodes along an axis from one rule to the next
MOST_REFINEMENTS = 8  # the last rule has 1.4^8 = 15 times the nodes of the first along an axis
BATCH_NODES = 2**19  # nodes evaluated together
HEAVY_TAIL = 1e-13  # probability beyond the reach of a Student rule
UNKNOWN_REACH = 40.0  # standard deviations covered of a base whose tails are not known

Integrand = Callable[[Array, Array], Array]  # rows, log density of the model -> (n,)
# A rule for one part of the base: how many times more nodes than needed at first along each axis
# -> rows (n, d), and logs of their weights (n,), which include the density of the part.
PartRule = Callable[[float], tuple[Array, Array]]


class Integral(NamedTuple):
    """An integral and a bound on its error."""

    value: float
    error: float


def integrate_in_box(
    integrator: Integrator, low: Array, high: Array, function: Integrand | None = None
) -> Integral:
    """Integral of a function times the density over a box of the model's coordinates.

    Parameters
    ----------
    integrator : Integrator
        Of one to three dimensions.
    low, high : (d,) arrays
        Ends of the box; -inf and inf where it has none.
    function : callable, default None
        Takes rows (n, d) and the log density there (n,), returns (n,); 1 by default.

    Returns
    -------
    Integral
        Its error is the change from a coarser rule, and the error of the normalizer.
    """
    log_z = integrator.log_normalizer
    parts = _rules_of(integrator, low, high)
    if not parts or not (low < high).all():
        return Integral(0.0, 0.0)
    evaluate = functools.partial(_integrate_parts, integrator, log_z.value, function)
    tolerance = BOX_TOLERANCE[len(low)]
    values, sizes = evaluate(parts, 1.0)
    gaps, active = np.full(len(parts), np.inf), np.arange(len(parts))
    for step in range(1, MOST_REFINEMENTS + 1):
        finer, sizes[active] = evaluate([parts[k] for k in active], BOX_REFINEMENT**step)
        gaps[active] = np.abs(finer - values[active])
        values[active] = finer
        scale = max(1.0, abs(float(values.sum())))
        is_affordable = sizes[active] * BOX_REFINEMENT ** len(low) <= MOST_BOX_NODES[len(low)]
        active = active[(gaps[active] > tolerance * scale / len(parts)) & is_affordable]
        if not len(active):
            break
    total = float(values.sum())
    error = float(gaps.sum()) + abs(total) * (log_z.standard_error + rounding_of(integrator.tilt))
    return Integral(total, error)


def _integrate_parts(
    integrator: Integrator, log_z: float, function: Integrand | None,
    parts: Sequence[PartRule], factor: float,
) -> tuple[Array, Array]:  # fmt: skip
    """Integral over each part and its number of nodes, (K,); small parts are evaluated together."""
    values, sizes = np.zeros(len(parts)), np.zeros(len(parts))
    batch, size = list[tuple[int, Array, Array]](), 0

    def flush() -> None:
        x = np.concatenate([rows for _, rows, _ in batch])
        log_weights = np.concatenate([weights for _, _, weights in batch])
        exponent = integrator.tilt.value(x, integrator.threads) - log_z
        terms = np.exp(log_weights + exponent)
        if function is not None:
            values_there = function(x, exponent + integrator.base.log_density_at(x))
            terms *= np.where(terms > 0.0, values_there, 0.0)  # 0 times inf or nan is 0 here
        ends = np.cumsum([0, *(len(rows) for _, rows, _ in batch)])
        for (k, _, _), start, stop in zip(batch, ends, ends[1:], strict=False):
            values[k] += terms[start:stop].sum()

    for k, part in enumerate(parts):
        x, log_weights = part(factor)
        sizes[k] = len(x)
        for start in range(0, len(x), BATCH_NODES):
            some = slice(start, start + BATCH_NODES)
            batch.append((k, x[some], log_weights[some]))
            size += len(x[some])
            if size >= BATCH_NODES:
                flush()
                batch, size = [], 0
    if batch:
        flush()
    return values, sizes


def _rules_of(integrator: Integrator, low: Array, high: Array) -> list[PartRule]:
    base, tilt = integrator.base, integrator.tilt
    excess = find_excess(tilt, integrator.log_normalizer.value)
    if isinstance(base, (GaussianBase, MixtureBase)):
        reach = math.sqrt(2.0 * (LEAST_LOG_MASS + excess))
        return [
            functools.partial(
                place_gaussian, part, math.log(weight), low, high, reach,
                wave_band(tilt, part.cholesky),
            )
            for weight, part in zip(*gaussian_components(base), strict=True)
            if math.log(weight) + _log_mass_bound(part, low, high) + excess > -LEAST_LOG_MASS
        ]  # fmt: skip
    if isinstance(base, StudentBase):
        band = wave_band(tilt, base._gaussian.cholesky)
        return [functools.partial(place_student, base, low, high, band)]
    return [functools.partial(place_tensor, base, low, high, wave_band(tilt, np.eye(len(low))))]


def rounding_of(tilt: Tilt) -> float:
    """Error of the exponent, and so the relative error of an integral of e^tilt."""
    if tilt.is_zero:
        return float(np.finfo(float).eps)
    if isinstance(tilt, LatticeTilt):
        return LATTICE_ERRORS * tilt.interpolation_error + TILTED_ROUNDING
    return TILTED_ROUNDING


def find_excess(tilt: Tilt, log_z: float) -> float:
    """A number that the exponent less log Z hardly exceeds, at least 0."""
    if tilt.is_zero:
        return 0.0
    peak = tilt.bound
    if not isinstance(tilt, PredictiveTilt):
        peak = min(peak, PEAK_DEVIATIONS * math.sqrt(tilt.variance) + math.log(2.0))
    return max(peak - log_z, 0.0)


def wave_band(tilt: Tilt, directions: Array) -> Array:
    """Highest angular frequency of a tilt along every column of ``directions`` (d, k), (k,)."""
    if tilt.is_zero:
        return np.zeros(directions.shape[1])
    features: Any = tilt.features
    if isinstance(features.frequencies, list):  # a lattice: frequencies of every axis
        highest = np.array([np.abs(w).max() for w in features.frequencies])
        return np.asarray(highest @ np.abs(directions))
    # squares of features have twice the band
    order = 2.0 if isinstance(tilt, PredictiveTilt) else 1.0
    z = features.frequencies @ directions / features.bandwidth
    return np.asarray(order * np.abs(z).max(axis=0))


def _log_mass_bound(part: GaussianBase, low: Array, high: Array) -> float:
    """Log of a bound on a Gaussian's mass in a box: the least of its margins."""
    from scipy.special import log_ndtr

    widths = np.sqrt(np.diag(part.covariance))
    a, b = (low - part.mean) / widths, (high - part.mean) / widths
    return float(np.minimum(log_ndtr(b), log_ndtr(-a)).min())


@functools.lru_cache(maxsize=256)
def gauss_legendre(count: int) -> tuple[Array, Array]:
    """About ``count`` nodes on [0, 1] and logs of their weights; many come in equal panels."""
    panels = -(-count // PANEL_NODES_AT_MOST)
    x, w = panel_rule(panels, -(-count // panels))
    return x, np.log(w)


def _choose_rule(band: Array, factor: float, k: int, width: float) -> tuple[Array, Array]:
    """The rule for a range of coordinate k; ``band`` has the highest frequencies of the tilt."""
    return gauss_legendre(_count(width, band[k], factor))


def _count(width: float, band: float, factor: float) -> int:
    needed = (NODES_PER_DEVIATION + NODES_PER_RADIAN * band) * width
    return max(LEAST_NODES, math.ceil(factor * needed))


def _thin(widths: Array, band: Array) -> float:
    """Factor of the nodes along each axis that leaves room for a finer rule."""
    d, counts = len(band), [_count(width, b, 1.0) for width, b in zip(widths, band, strict=True)]
    most = MOST_BOX_NODES[d] / BOX_REFINEMENT**d
    return min(1.0, (most / math.prod(counts)) ** (1.0 / d))


def place_gaussian(
    part: GaussianBase, log_weight: float, low: Array, high: Array, reach: float, band: Array,
    factor: float,
) -> tuple[Array, Array]:  # fmt: skip
    """Rows and log weights for a Gaussian component in a box, one whitened coordinate after the
    other.

    Parameters
    ----------
    part : GaussianBase
    log_weight : float
        Of the component.
    low, high : (d,) arrays
    reach : float
        Standard deviations from where the component is largest in the box.
    band : (d,) array
        Highest frequency of the tilt along the whitened coordinates.
    factor : float
        See `PartRule`.
    """
    factor *= _thin(np.full(len(band), 2.0 * reach), band)
    choose = functools.partial(_choose_rule, band, factor)
    x, log_weights = nested_rule(part, low, high, reach, choose)
    return x, log_weights + log_weight


def place_student(
    base: StudentBase, low: Array, high: Array, band: Array, factor: float
) -> tuple[Array, Array]:
    """Rows and log weights for a Student base in a box: w_k = s_k sinh(v), s_k the scale of w_k
    given those before it.

    Parameters
    ----------
    base : StudentBase
    low, high : (d,) arrays
    band : (d,) array
        Highest frequency of the tilt along the whitened coordinates.
    factor : float
        See `PartRule`.
    """
    from scipy.special import stdtrit

    part, w, log_weights = base._gaussian, np.zeros((1, 0)), np.zeros(1)
    # w_k / s_k has a t distribution of degrees + k; that of w_0 has the heaviest tails
    reach = math.asinh(-float(stdtrit(base.degrees, HEAVY_TAIL)))
    factor *= _thin(np.full(len(band), 2.0 * reach), band)
    for k in range(base.dimension):
        center = part.mean[k] + w @ part.cholesky[k, :k]
        scale = np.sqrt((base.degrees + np.square(w).sum(axis=1)) / (base.degrees + k))
        unit = part.cholesky[k, k] * scale
        ends = (np.arcsinh((end[k] - center) / unit) for end in (low, high))
        a, b = (np.clip(end, -reach, reach) for end in ends)
        rows, log_weights = extend_rule(
            np.column_stack([w, scale]), log_weights, a, b,
            functools.partial(_choose_rule, band, factor, k),
        )  # fmt: skip
        scale, v = rows[:, k:].T
        log_weights += np.log(scale) + np.log(np.cosh(v))
        w = np.column_stack([rows[:, :k], scale * np.sinh(v)])
    x = part.unwhiten(w)
    log_volume = float(np.log(np.diag(part.cholesky)).sum())
    return x, log_weights + log_volume + base.log_density_at(x)


def place_tensor(
    base: Base, low: Array, high: Array, band: Array, factor: float
) -> tuple[Array, Array]:
    """Rows and log weights for any other base in a box: a tensor rule over the part of its range
    that is in the box.

    Parameters
    ----------
    base : Base
    low, high : (d,) arrays
    band : (d,) array
        Highest frequency of the tilt along each axis.
    factor : float
        See `PartRule`.
    """
    ends, widths = cover_base(base, UNKNOWN_REACH), part_widths(base)[1].min(axis=0)
    low, high = np.maximum(low, ends[0]) / widths, np.minimum(high, ends[1]) / widths
    band = band * widths
    factor *= _thin(high - low, band)
    w, log_weights = np.zeros((1, 0)), np.zeros(1)
    for k in range(len(low)):
        a, b = np.full(len(w), low[k]), np.full(len(w), high[k])
        choose = functools.partial(_choose_rule, band, factor, k)
        w, log_weights = extend_rule(w, log_weights, a, b, choose)
    x = w * widths
    return x, log_weights + float(np.log(widths).sum()) + base.log_density_at(x)
