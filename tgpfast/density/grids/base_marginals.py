"""Marginal distribution functions of bases."""

from __future__ import annotations

import math

import numpy as np

from ...bases.base import Base
from ...bases.bounded import BoundedMixtureBase, UniformBase
from ...bases.conditioning import marginal_base
from ...bases.domain import domain_of
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase, as_mixture
from ...bases.part_widths import part_widths
from ...bases.product import ProductBase
from ...bases.student import StudentBase
from ...bases.von_mises import VonMisesBase
from ...validation import Array
from .box_rule import BoxRule, integrate_to

GAUSSIAN_STEPS = 2.0  # steps of a rule for each deviation of the narrowest part
BASE_REACH_DEVIATIONS = 9.0  # where an open axis ends: e^-40 of a Gaussian's peak
MOST_BASE_NODES = 2**22  # of a projection of a base; beyond, draws serve
BASE_LOG2_DRAWS = 17  # for a base without another way


def gaussian_components(base: GaussianBase | MixtureBase) -> tuple[Array, list[GaussianBase]]:
    """Weights and Gaussians of a Gaussian or of a mixture."""
    mixture = as_mixture(base)
    return mixture.weights, mixture.parts


def base_cdf(base: Base, direction: Array, places: Array) -> Array:
    """P(x . direction <= place) under a base.

    In closed form for Gaussians, mixtures and Student bases; by integration over bounded mixtures
    and products with them; else from 131,072 draws.

    Parameters
    ----------
    base : Base
    direction : (d,) array, not zero
    places : (G,) array

    Returns
    -------
    (G,) array
    """
    from scipy.special import ndtr, stdtr

    with np.errstate(over="ignore"):
        if isinstance(base, (GaussianBase, MixtureBase)):
            total = np.zeros(len(places))
            for share, part in zip(*gaussian_components(base), strict=True):
                width = math.sqrt(float(direction @ part.covariance @ direction))
                total += share * ndtr((places - float(direction @ part.mean)) / width)
            return total
        if isinstance(base, StudentBase):
            width = math.sqrt(float(direction @ base.scale_matrix @ direction))
            gaps = places - float(direction @ base.mean)
            return np.asarray(stdtr(base.degrees, gaps / width))
    if isinstance(base, ProductBase):
        for factor, columns in base.each:
            if np.count_nonzero(direction[columns]) == np.count_nonzero(direction):
                return base_cdf(factor, direction[columns], places)
    used = np.flatnonzero(direction).tolist()
    known = marginal_base(base, used) if len(used) < base.dimension else None
    if known is not None:
        return base_cdf(known, direction[used], places)
    rule = _covering_rule(base)
    if rule is not None:
        count = max(len(nodes) for nodes in rule.nodes)
        line, density = rule.project(
            lambda x: np.exp(base.log_density_at(x)), direction, 2 * count
        )
        return integrate_to(line, density, places) / integrate_to(line, density, line[-1:])
    projections = np.sort(base.draw_sobol(BASE_LOG2_DRAWS, 0) @ direction)
    return np.asarray(np.searchsorted(projections, places, side="right") / len(projections))


def _covering_rule(base: Base) -> BoxRule | None:
    """A rule over all of a base with light tails; None where there is none of moderate size."""
    ends = find_ends(base)
    if ends is None or base.dimension > 3:
        return None
    low, high = ends
    counts = np.ceil(GAUSSIAN_STEPS * (high - low) / part_widths(base)[1].min(axis=0))
    if counts.prod() * 4.0 > MOST_BASE_NODES:
        return None
    return BoxRule.of_axes(low, high, [int(max(n, 16.0)) for n in counts], [False] * base.dimension)


def cover_base(base: Base, deviations: float) -> tuple[Array, Array]:
    """Ends of the range of a base: those of `find_ends`, or so many standard deviations from the
    mean, within the walls and the first period."""
    reach, domain = deviations * np.sqrt(np.diag(base.covariance)), domain_of(base)
    low, high = find_ends(base) or (base.mean - reach, base.mean + reach)
    return np.maximum(low, domain.low), np.minimum(high, domain.high)


def find_ends(base: Base) -> tuple[Array, Array] | None:
    """A box that holds all of a base but e^-40 of its density; None for heavy or unknown tails."""
    if isinstance(base, ProductBase):
        low, high = np.empty(base.dimension), np.empty(base.dimension)
        for factor, columns in base.each:
            ends = find_ends(factor)
            if ends is None:
                return None
            low[columns], high[columns] = ends
        return low, high
    if isinstance(base, UniformBase | VonMisesBase):
        return base.domain.low, base.domain.high
    mixture = base.mixture if isinstance(base, BoundedMixtureBase) else base
    if not isinstance(mixture, (GaussianBase, MixtureBase)):
        return None
    mixture, domain = as_mixture(mixture), domain_of(base)
    reach = BASE_REACH_DEVIATIONS * np.sqrt(np.einsum("kii->ki", mixture.covariances))
    low = np.maximum((mixture.means - reach).min(axis=0), domain.low)
    high = np.minimum((mixture.means + reach).max(axis=0), domain.high)
    return (
        np.where(domain.periodic, domain.low, low), np.where(domain.periodic, domain.high, high)
    )  # fmt: skip
