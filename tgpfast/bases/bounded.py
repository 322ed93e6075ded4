"""`UniformBase` and `BoundedMixtureBase`: bases on domains with walls or periods.

A Gaussian mixture is confined to a domain by truncation at the walls and by adding its images along
periodic axes.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.scaling import Scaling
from ..validation import Array
from .base import Base, register_base
from .domain import Domain
from .gaussian import GaussianBase
from .mixture import MixtureBase, as_mixture, pool_moments
from .nested_rule import nested_rule, panel_rule
from .quasirandom import logsumexp, sobol_uniforms
from .wrapped_moments import GAUSSIAN_REACH, RULE_NODES, wrap_moments

MASS_DIMENSIONS = 3  # of integrals over a box by tensor rules
WIDEST_COMPONENT = 1.0  # periods: a wider Gaussian is uniform to 3e-9, and has many images
LEAST_MASS = 1e-3  # within the walls, of a component whose columns are correlated
DRAWS_AT_A_TIME = 2**16  # draws made together, at most


@register_base
class UniformBase(Base):
    """The same density everywhere in a bounded domain.

    Parameters
    ----------
    low, high : (d,) arrays
        Ends of the axes, finite.
    periodic : (d,) bools, default none
        Axes whose ends are the same place, as in `Domain`.

    Raises
    ------
    ValueError
        An end is infinite, or low is not below high.

    Examples
    --------
    >>> UniformBase([0.0], [4.0]).log_density([[1.0], [5.0]]).round(4).tolist()
    [-1.3863, -inf]
    """

    kind = "uniform"

    def __init__(self, low: Any, high: Any, periodic: Any = None) -> None:
        self.domain = domain = Domain(low, high, periodic)
        if not domain.is_bounded:
            raise ValueError("a uniform base needs finite low and high")
        self.mean = 0.5 * domain.low + 0.5 * domain.high
        self.covariance = np.diag(np.square(domain.high - domain.low) / 12.0)

    def log_density_at(self, x: Array) -> Array:
        """Minus the log of the volume; -inf beyond walls."""
        inside = self.domain.contains(x)
        return np.where(inside, -float(np.log(self.domain.high - self.domain.low).sum()), -np.inf)

    def score_at(self, x: Array) -> Array:
        """Zeros."""
        return np.zeros_like(x)

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Zeros."""
        return np.zeros(len(x))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d)."""
        return rng.uniform(self.domain.low, self.domain.high, (n, self.dimension))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n scrambled Sobol points of the domain."""
        points = sobol_uniforms(self.dimension, log2_n, seed)
        return self.domain.low + points * (self.domain.high - self.domain.low)

    def parameters(self) -> dict[str, Array]:
        """Low, high and periodic."""
        return self.domain.parameters()

    def rescaled(self, scaling: Scaling) -> UniformBase:
        """The same base in the coordinates u = (x - shift) / scale."""
        return UniformBase(**self.domain.rescaled(scaling).parameters())

    def __repr__(self) -> str:
        return f"UniformBase(low={self.domain.low.tolist()}, high={self.domain.high.tolist()})"


@register_base
class BoundedMixtureBase(Base):
    """A Gaussian mixture on a domain: cut off at walls, wrapped around periodic axes.

    The density between the walls is sum_k weights_k sum_images N(x | mean_k + image, covariance_k)
    over the mixture's mass there. One component is a truncated or wrapped Gaussian. ``mean`` and
    ``covariance`` are those of rows within one period.

    Parameters
    ----------
    weights : (K,) array
        Weights of the mixture without walls.
    means : (K, d) array
        Its means; d <= 3 where there are walls.
    covariances : (K, d, d) array
        Its covariances.
    low, high : (d,) arrays
        Ends of the axes; -inf and inf where there is no wall.
    periodic : (d,) bools, default none
        Axes whose ends are the same place, as in `Domain`.
    has_guard : bool, default False
        Whether the last component is a guard against outliers, as in `MixtureBase`.

    Raises
    ------
    ValueError
        For more than three columns with walls; for a component that is wider than a period, or
        whose columns are correlated and that has almost no mass between the walls.

    Examples
    --------
    A half-normal distribution, and a normal one wrapped around a clock:

    >>> half = BoundedMixtureBase([1.0], [[0.0]], [[[1.0]]], [0.0], [np.inf])
    >>> half.log_density([[0.0], [-1.0]]).round(4).tolist()
    [-0.2258, -inf]
    >>> hours = BoundedMixtureBase([1.0], [[23.0]], [[[4.0]]], [0.0], [24.0], [True])
    >>> bool(np.isclose(*hours.log_density([[22.0], [0.0]])))
    True
    """

    kind = "bounded_mixture"

    def __init__(
        self, weights: Any, means: Any, covariances: Any, low: Any, high: Any,
        periodic: Any = None, *, has_guard: bool = False,
    ) -> None:  # fmt: skip
        self.mixture = MixtureBase(weights, means, covariances, has_guard=has_guard)
        self.domain = Domain(low, high, periodic)
        d = self.mixture.dimension
        if self.domain.dimension != d:
            raise ValueError(f"low has {self.domain.dimension} entries, the means have {d}")
        if d > MASS_DIMENSIONS and self.has_walls:
            raise ValueError(
                f"a mixture with walls has at most {MASS_DIMENSIONS} columns, got {d}; use a "
                "product of bases"
            )
        widths = np.sqrt(np.einsum("kii->ki", self.mixture.covariances))
        if (widths > WIDEST_COMPONENT * self.domain.periods).any():
            raise ValueError("a component is wider than a period; use UniformBase on that axis")
        log_masses, places, spreads = self._find_moments()
        for k in np.flatnonzero((log_masses < math.log(LEAST_MASS)) & ~self._is_diagonal):
            raise ValueError(
                f"component {k} has a share of {math.exp(log_masses[k]):.1e} of its mass "
                "between the walls, and its columns are correlated: remove it"
            )
        self._log_shares = np.log(self.mixture.weights) + log_masses
        self.log_mass = float(logsumexp(self._log_shares))
        self._log_shares -= self.log_mass
        self.mean, self.covariance = pool_moments(np.exp(self._log_shares), places, spreads)

    @classmethod
    def confine(cls, base: Base, domain: Domain) -> BoundedMixtureBase:
        """A Gaussian or a Gaussian mixture on a domain.

        Parameters
        ----------
        base : GaussianBase or MixtureBase
        domain : Domain
            Of the same dimension.

        Returns
        -------
        BoundedMixtureBase

        Raises
        ------
        TypeError
            The base is of another kind.
        """
        if not isinstance(base, (GaussianBase, MixtureBase)):
            raise TypeError(f"expected a GaussianBase or a MixtureBase, got {type(base).__name__}")
        mixture = as_mixture(base)
        return cls(
            **mixture.parameters(), **domain.parameters(), has_guard=mixture.has_guard
        )

    @property
    def has_walls(self) -> bool:
        """Whether an axis ends at a wall, rather than going on from its other end."""
        return bool(self.domain.is_walled.any())

    @property
    def n_components(self) -> int:
        """Number of components, each of them with all of its images."""
        return self.mixture.n_components

    @functools.cached_property
    def _is_diagonal(self) -> NDArray[np.bool_]:
        return np.array([not np.any(c - np.diag(np.diag(c))) for c in self.mixture.covariances])

    def _find_moments(self) -> tuple[Array, Array, Array]:
        """Logs of the masses of the components in the domain, and means and covariances there."""
        mixture = self.mixture
        if not self.has_walls:
            masses = np.zeros(mixture.n_components)
            return masses, *wrap_moments(mixture.means, mixture.covariances, self.domain)
        moments = zip(*map(self._moments_inside, mixture.parts), strict=True)
        log_masses, places, spreads = map(np.array, moments)
        return log_masses, places, spreads

    def _moments_inside(self, part: GaussianBase) -> tuple[float, Array, Array]:
        """Log of a component's mass in the domain, and its mean and covariance there."""
        domain, reach = self.domain, GAUSSIAN_REACH * np.sqrt(np.diag(part.covariance))
        if ((domain.low < part.mean - reach) & (part.mean + reach < domain.high)).all():
            return 0.0, part.mean, part.covariance
        images = (GaussianBase(part.mean + shift, part.covariance) for shift in self._shifts(part))
        rules = [
            nested_rule(image, domain.low, domain.high, GAUSSIAN_REACH, _mass_rule)
            for image in images
        ]
        x, log_weights = map(np.concatenate, zip(*rules, strict=True))
        mass = float(logsumexp(log_weights))
        shares = np.exp(log_weights - mass)
        mean = shares @ x
        return mass, mean, ((x - mean).T * shares) @ (x - mean)

    # -- density ---------------------------------------------------------------------------------

    @functools.cached_property
    def _images(self) -> tuple[MixtureBase, float]:
        """The mixture with its images along periodic axes, and log of the sum of their weights."""
        return self.with_images(self.domain.periodic)

    def with_images(self, axes: NDArray[np.bool_]) -> tuple[MixtureBase, float]:
        """The mixture without walls, with its images along some periodic axes.

        Parameters
        ----------
        axes : (d,) bools
            Along which images are added; none along axes that are not periodic.

        Returns
        -------
        mixture : MixtureBase
            Its weights are rescaled to sum to 1.
        log_total : float
            Log of the sum of the weights before that.
        """
        images = [
            (weight, part.mean + shift, part.covariance)
            for weight, part in zip(self.mixture.weights, self.mixture.parts, strict=True)
            for shift in sorted({tuple(np.where(axes, s, 0.0)) for s in self._shifts(part)})
        ]
        weights, means, covariances = map(np.array, zip(*images, strict=True))
        return MixtureBase(weights, means, covariances), math.log(sum(weights))

    def _shifts(self, part: GaussianBase) -> list[tuple[float, ...]]:
        """Whole periods, by axis, by which a component reaches into the domain."""
        domain, reach = self.domain, GAUSSIAN_REACH * np.sqrt(np.diag(part.covariance))
        shifts = [[0.0] for _ in range(domain.dimension)]
        for k in np.flatnonzero(domain.periodic):
            period = float(domain.high[k] - domain.low[k])
            around = max(reach[k], 0.5 * period)  # the nearest image counts, however far it is
            first = math.ceil((domain.low[k] - around - part.mean[k]) / period)
            last = math.floor((domain.high[k] + around - part.mean[k]) / period)
            shifts[k] = [n * period for n in range(first, last + 1)]
        return list(itertools.product(*shifts))

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,); -inf beyond walls."""
        images, log_total = self._images
        values = images.log_density_at(self.domain.wrap(x)) + (log_total - self.log_mass)
        return np.where(self.domain.contains(x), values, -np.inf)

    def score_at(self, x: Array) -> Array:
        """Gradient of the log density of the mixture with its images, (n, d)."""
        return self._images[0].score_at(self.domain.wrap(x))

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in column k, (n,)."""
        return self._images[0].laplacian_at(self.domain.wrap(x), stretch)

    # -- draws -----------------------------------------------------------------------------------

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d)."""
        if not self.has_walls:
            return self.domain.wrap(self.mixture.draw(n, rng))
        index = rng.choice(len(self._log_shares), size=n, p=np.exp(self._log_shares))
        x = np.empty((n, self.dimension))
        for k, part in enumerate(self.mixture.parts):
            mine, have = np.flatnonzero(index == k), 0
            while have < len(mine):
                m = min(2 * (len(mine) - have) + 16, DRAWS_AT_A_TIME)
                rows, log_weights = self._place(part, rng.uniform(size=(m, self.dimension)))
                if not self._is_diagonal[k]:  # else the weights are all equal
                    rows = rows[np.log(rng.uniform(size=m)) < log_weights]
                rows = rows[: len(mine) - have]
                x[mine[have : have + len(rows)]] = rows
                have += len(rows)
        return self.domain.wrap(x)

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n quasi-random draws; independent ones where columns beside walls are
        correlated."""
        if not self.has_walls:
            return self.domain.wrap(self.mixture.draw_sobol(log2_n, seed))
        if not self._is_diagonal.all():
            return self.draw(2**log2_n, np.random.default_rng(seed))
        points = sobol_uniforms(self.dimension + 1, log2_n, seed)
        running = np.cumsum(np.exp(self._log_shares))
        index = np.searchsorted(running[:-1], points[:, 0], side="right")
        x = np.empty((len(points), self.dimension))
        for k, part in enumerate(self.mixture.parts):
            x[index == k] = self._place(part, points[index == k, 1:])[0]
        return self.domain.wrap(x)

    def _place(self, part: GaussianBase, uniforms: Array) -> tuple[Array, Array]:
        """Rows of a component between the walls from uniforms, one column after the other, and log
        of the weights that correct for the columns that follow: at most 0."""
        from scipy.special import log_ndtr, ndtri_exp

        low, high = self.domain.walls
        w, log_weights = np.empty_like(uniforms), np.zeros(len(uniforms))
        for k in range(self.dimension):
            center = part.mean[k] + w[:, :k] @ part.cholesky[k, :k]
            a, b = ((end - center) / part.cholesky[k, k] for end in (low[k], high[k]))
            upper = a > 0.0  # the tails have digits on the lower side only
            a, b = np.where(upper, -b, a), np.where(upper, -a, b)
            log_a, log_b = log_ndtr(a), log_ndtr(b)
            log_mass = log_b + np.log1p(-np.exp(log_a - log_b))
            quantile = ndtri_exp(np.logaddexp(log_a, np.log(uniforms[:, k]) + log_mass))
            w[:, k] = np.where(upper, -1.0, 1.0) * np.clip(quantile, a, b)
            if k:
                log_weights += log_mass
        return np.clip(part.unwhiten(w), low, high), log_weights

    # -- parameters ------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Array]:
        """Parameters of the mixture without walls, and low, high, periodic."""
        return self.mixture.parameters() | self.domain.parameters()

    def rescaled(self, scaling: Scaling) -> BoundedMixtureBase:
        """The same base in the coordinates u = (x - shift) / scale."""
        return BoundedMixtureBase.confine(
            self.mixture.rescaled(scaling), self.domain.rescaled(scaling)
        )

    def __repr__(self) -> str:
        return (
            f"BoundedMixtureBase({self.mixture.n_components} components, d={self.dimension}, "
            f"low={self.domain.low.tolist()}, high={self.domain.high.tolist()})"
        )


def _mass_rule(k: int, widest: float) -> tuple[Array, Array]:
    x, weights = panel_rule(1, RULE_NODES)
    return x, np.log(weights)


def confine_base(base: Base, domain: Domain) -> Base:
    """A Gaussian or a mixture on a domain; any base as it is where the domain is open.

    Parameters
    ----------
    base : Base
    domain : Domain
    """
    return base if domain.is_open else BoundedMixtureBase.confine(base, domain)
