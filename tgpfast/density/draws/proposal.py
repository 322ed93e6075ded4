"""Draws for importance sampling: from the base, and from Gaussians at modes that the base misses.

The balance heuristic combines both: the weight of a draw is the density of the base over that of
the mixture of both, whichever it came from.
"""

from __future__ import annotations

import functools

import numpy as np

from ...bases.base import Base
from ...bases.bounded import BoundedMixtureBase, UniformBase
from ...bases.domain import Domain, domain_of
from ...bases.gaussian import GaussianBase
from ...bases.mixture import MixtureBase
from ...bases.product import ProductBase
from ...bases.quasirandom import logsumexp
from ...bases.wrapped_mixture import limit_widths
from ...kernels.thread_choice import Threads
from ...runtime.records import record
from ...validation import Array
from ..exponents.exponent import Tilt

QUADRATURE_DIMENSIONS = 3  # columns up to which grids are affordable; in more, draws
ROUGH_LOG2_DRAWS = 10  # base-2 logarithm of the draws behind a rough log Z
MOST_IMAGES = 3  # periods on either side: a mode is narrower than half a period
MODE_SEEDS = 1_000  # offset of the seeds of draws at modes, which differ from those of the base


def estimate_rough_log_z(tilt: Tilt, base: Base, threads: Threads) -> float:
    """log Z from a thousand draws of the base; log Z itself is rarely far below."""
    values = tilt.value(base.draw_sobol(ROUGH_LOG2_DRAWS, 0), threads)
    return float(logsumexp(values) - np.log(len(values)))


def widen_base(base: Base) -> Base:
    """A mixture that reaches beyond the base; its draws show a tilt that grows where the base is
    thin.

    Its components are those of the base and a Gaussian of the base's mean and covariance, all
    wider by 1 + 1 / sqrt(d) standard deviations: more would waste draws in many dimensions. In a
    product every factor is widened; a wrapped mixture is widened to half a period at most, and
    any other base on a bounded domain becomes uniform.
    """
    if isinstance(base, ProductBase):
        return ProductBase([widen_base(f) for f in base.factors], [c for _, c in base.each])
    domain = domain_of(base)
    if isinstance(base, BoundedMixtureBase) and not base.has_walls:
        wide = widen_base(base.mixture)
        assert isinstance(wide, MixtureBase)
        return BoundedMixtureBase.confine(limit_widths(wide, domain), domain)
    if not domain.is_open:
        return UniformBase(**domain.parameters()) if domain.is_bounded else base
    square = (1.0 + base.dimension**-0.5) ** 2
    if not isinstance(base, MixtureBase):
        return MixtureBase(np.ones(1), base.mean[None], square * base.covariance[None])
    return MixtureBase(
        np.append(base.weights, 1.0),
        np.concatenate([base.means, base.mean[None]]),
        square * np.concatenate([base.covariances, base.covariance[None]]),
    )


class WrappedModes:
    """A Gaussian mixture wrapped around periodic columns, which are independent of all others.

    Parameters
    ----------
    mixture : MixtureBase
        Components whose periodic columns have no covariance with other columns.
    domain : Domain
    """

    def __init__(self, mixture: MixtureBase, domain: Domain) -> None:
        self.mixture, self.domain = mixture, domain

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n quasi-random draws in the first period."""
        return self.domain.wrap(self.mixture.draw_sobol(log2_n, seed))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws in the first period."""
        return self.domain.wrap(self.mixture.draw(n, rng))

    def log_density_at(self, x: Array) -> Array:
        """Log density of rows, (n,): sums over images of every periodic column."""
        turning = np.flatnonzero(self.domain.periodic).tolist()
        rest = np.flatnonzero(~self.domain.periodic)
        mixture, x = self.mixture, self.domain.wrap(x)
        terms = np.tile(np.log(mixture.weights), (len(x), 1))
        for j, (mean, covariance) in enumerate(
            zip(mixture.means, mixture.covariances, strict=True)
        ):
            if len(rest):
                part = GaussianBase(mean[rest], covariance[np.ix_(rest, rest)])
                terms[:, j] += part.log_density_at(np.ascontiguousarray(x[:, rest]))
            for k in turning:
                images = self.domain.periods[k] * np.arange(-MOST_IMAGES, MOST_IMAGES + 1)
                gaps = (x[:, k, None] - mean[k] - images) / np.sqrt(covariance[k, k])
                constant = 0.5 * np.log(2.0 * np.pi * covariance[k, k])
                terms[:, j] += logsumexp(-0.5 * np.square(gaps), axis=1) - constant
        return np.asarray(logsumexp(terms, axis=1))


@record
class Proposal:
    """Half of the draws from the base, half from a mixture.

    Parameters
    ----------
    base : Base
    modes : MixtureBase, default None
        Gaussians at modes that the base misses, wrapped around the periods of the base; or a wider
        base. Without it all draws are from the base.
    """

    base: Base
    modes: Base | None = None

    @functools.cached_property
    def _wrapped(self) -> Base | WrappedModes | None:
        domain = domain_of(self.base)
        if isinstance(self.modes, MixtureBase) and domain.periodic.any():
            return WrappedModes(self.modes, domain)
        return self.modes

    @property
    def n_modes(self) -> int:
        """Number of modes that get draws of their own."""
        return 0 if self.modes is None else int(getattr(self.modes, "n_components", 1))

    def sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n quasi-random draws."""
        if self._wrapped is None:
            return self.base.draw_sobol(log2_n, seed)
        of_modes = self._wrapped.draw_sobol(log2_n - 1, seed + MODE_SEEDS)
        return np.concatenate([self.base.draw_sobol(log2_n - 1, seed), of_modes])

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws."""
        if self._wrapped is None:
            return self.base.draw(n, rng)
        n_base = int(rng.binomial(n, 0.5))
        rows = np.concatenate([self.base.draw(n_base, rng), self._wrapped.draw(n - n_base, rng)])
        return np.asarray(rows[rng.permutation(n)])

    def log_ratio(self, x: Array) -> Array:
        """Log of base over proposal at every row, (n,)."""
        if self._wrapped is None:
            return np.zeros(len(x))
        gap = self._wrapped.log_density_at(x) - self.base.log_density_at(x)
        gap[np.isnan(gap)] = -np.inf
        return np.asarray(np.log(2.0) - np.logaddexp(0.0, gap))

    def log_weights(self, tilt: Tilt, x: Array, threads: Threads) -> Array:
        """Log of e^tilt base over proposal at every row, (n,)."""
        return tilt.value(x, threads) + self.log_ratio(x)
