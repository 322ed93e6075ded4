"""Bases on domains with walls or periods, and products of bases of several kinds.

A domain is a box whose axes are open, end at walls, or are periodic. A Gaussian mixture is confined
to it by truncation at the walls and by adding its images along periodic axes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.scaling import Scaling
from ..validation import Array
from .base import Base, RescaledBase, load_base, register_base
from .gaussian import GaussianBase
from .mixture import MixtureBase, as_mixture, pool_moments
from .nested_rule import nested_rule, panel_rule
from .quasirandom import logsumexp, sobol_uniforms

MASS_DIMENSIONS = 3  # of integrals over a box by tensor rules
RULE_NODES = 40  # Gauss-Legendre nodes along an axis: the mass of a Gaussian to 1e-14
GAUSSIAN_REACH = 9.0  # standard deviations: e^-40 of a Gaussian's peak
WIDEST_COMPONENT = 1.0  # periods: a wider Gaussian is uniform to 3e-9, and has many images
LEAST_MASS = 1e-3  # within the walls, of a component whose columns are correlated
ROUNDINGS = 16.0  # units in the last place that a row at a wall may be off
DRAWS_AT_A_TIME = 2**16  # draws made together, at most
MOST_BEYOND = 30.0  # deviations of the rows: means of Gaussians that are cut off, and their widths
WIDEST_WRAPPED = 0.25  # periods: wider Gaussians are as good as uniform once wrapped


class Domain:
    """A box whose axes are open, have walls, or are periodic.

    Parameters
    ----------
    low, high : (d,) arrays
        Ends of the axes; -inf and inf where there is no wall.
    periodic : (d,) bools, default none
        Axes whose ends are the same place. Rows beyond the ends are moved by whole periods.

    Raises
    ------
    ValueError
        Low is not below high, or a periodic axis is not finite.

    Examples
    --------
    >>> domain = Domain([0.0, -np.inf], [24.0, np.inf], [True, False])
    >>> domain.wrap(np.array([[25.0, 3.0]])).tolist()
    [[1.0, 3.0]]
    """

    def __init__(self, low: Any, high: Any, periodic: Any = None) -> None:
        self.low, self.high = _as_ends(low, "low"), _as_ends(high, "high")
        self.periodic: NDArray[np.bool_] = np.zeros(len(self.low), bool)
        if periodic is not None:
            self.periodic = np.asarray(periodic).astype(bool)
        if not self.low.shape == self.high.shape == self.periodic.shape or not len(self.low):
            raise ValueError(
                f"low, high and periodic have shapes {self.low.shape}, {self.high.shape} and "
                f"{self.periodic.shape}; expected the same (d,)"
            )
        if not (self.low < self.high).all():
            raise ValueError(f"low={self.low.tolist()} must be below high={self.high.tolist()}")
        with np.errstate(invalid="ignore", over="ignore"):
            if not np.isfinite(self.high - self.low)[self.periodic].all():
                raise ValueError("a periodic axis needs two finite ends")

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.low)

    @property
    def is_bounded(self) -> bool:
        """Whether every axis ends on both sides."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    @property
    def periods(self) -> Array:
        """Period of every axis, (d,); infinite where it has none."""
        none = np.full(self.dimension, np.inf)
        return np.subtract(self.high, self.low, out=none, where=self.periodic)

    @property
    def walls(self) -> tuple[Array, Array]:
        """Ends of the axes where they are walls, -inf and inf elsewhere."""
        return (
            np.where(self.periodic, -np.inf, self.low), np.where(self.periodic, np.inf, self.high)
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        """Whether no axis has an end."""
        return bool(np.isinf(self.low).all() and np.isinf(self.high).all())

    def choose(self, columns: Any) -> Domain:
        """The domain of some columns, in the order given."""
        return Domain(self.low[columns], self.high[columns], self.periodic[columns])

    def wrap(self, x: Array) -> Array:
        """Rows moved by whole periods into the domain."""
        if not self.periodic.any():
            return x
        y = x.copy()
        for k in np.flatnonzero(self.periodic):
            low, period = self.low[k], self.high[k] - self.low[k]
            y[:, k] -= period * np.floor((y[:, k] - low) / period)
            y[~((low <= y[:, k]) & (y[:, k] < self.high[k])), k] = low  # roundings
        return y

    def contains(self, x: Array) -> NDArray[np.bool_]:
        """Whether each row lies between the walls, which belong to the domain, as do rows that
        roundings have moved beyond them."""
        low, high = self.walls
        below, above = (
            ROUNDINGS * np.abs(np.spacing(np.where(np.isfinite(end), end, 0.0)))
            for end in (low, high)
        )
        return np.asarray(((low - below <= x) & (x <= high + above)).all(axis=1))

    def rescaled(self, scaling: Scaling) -> Domain:
        """The same domain in the coordinates u = (x - shift) / scale."""
        low, high = (scaling.apply(end[None])[0] for end in (self.low, self.high))
        return Domain(low, high, self.periodic)

    def parameters(self) -> dict[str, Array]:
        """The arguments, by name."""
        return {"low": self.low, "high": self.high, "periodic": self.periodic.astype(float)}


def _as_ends(value: Any, name: str) -> Array:
    ends = np.array(value, dtype=np.float64)
    if ends.ndim != 1 or np.isnan(ends).any():
        raise ValueError(f"{name} must be (d,) numbers, -inf or inf, got {value!r}")
    ends.setflags(write=False)
    return ends


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
        return bool(np.isfinite(self.domain.walls).any())

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
        moments = zip(*map(self._moments_inside, mixture._parts), strict=True)
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
            for weight, part in zip(self.mixture.weights, self.mixture._parts, strict=True)
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
        for k, part in enumerate(self.mixture._parts):
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
        for k, part in enumerate(self.mixture._parts):
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


def wrap_moments(means: Array, covariances: Array, domain: Domain) -> tuple[Array, Array]:
    """Means (K, d) and covariances (K, d, d) of Gaussians whose rows are moved by whole periods
    into the domain.

    By Stein's lemma Cov(y, wrap(x)) = Cov(y, x) (1 - P sum of the density of x at the ends of all
    periods), where y is a column without a period. Two correlated periodic columns take a rule.

    Parameters
    ----------
    means : (K, d) array
    covariances : (K, d, d) array
    domain : Domain
        Without walls.

    Examples
    --------
    >>> domain = Domain([0.0], [24.0], [True])
    >>> places, squares = wrap_moments(np.array([[0.0]]), np.array([[[1.0]]]), domain)
    >>> places.round(6).tolist()  # half of the rows are close to 24
    [[12.0]]
    """
    places, spreads = means.copy(), covariances.copy()
    turning = np.flatnonzero(domain.periodic).tolist()
    for k in turning:
        deviations = np.sqrt(covariances[:, k, k])
        places[:, k], variances, factors = _wrap_column(
            means[:, k], deviations, float(domain.low[k]), float(domain.periods[k])
        )
        spreads[:, k] *= factors[:, None]
        spreads[:, :, k] *= factors[:, None]
        spreads[:, k, k] = variances
    for j, k in itertools.combinations(turning, 2):
        slopes = covariances[:, j, k] / covariances[:, j, j]
        rest = np.sqrt(covariances[:, k, k] - slopes * covariances[:, j, k])
        deviations, period = np.sqrt(covariances[:, j, j]), float(domain.periods[j])
        reach = GAUSSIAN_REACH * deviations
        first = math.floor(float((means[:, j] - reach - domain.low[j]).min()) / period)
        last = math.ceil(float((means[:, j] + reach - domain.low[j]).max()) / period)
        products = np.zeros(len(means))
        t, weights = panel_rule(1, RULE_NODES)
        for m in range(first, last):
            # nodes of the part of this period that a component reaches
            ends = domain.low[j] + period * np.array([m, m + 1.0])
            a = np.clip(means[:, j] - reach, *ends)
            x = a[:, None] + (np.clip(means[:, j] + reach, *ends) - a)[:, None] * t
            z = (x - means[:, j, None]) / deviations[:, None]
            density = np.exp(-0.5 * np.square(z)) / (math.sqrt(2.0 * math.pi) * deviations[:, None])
            centers = means[:, k, None] + slopes[:, None] * (x - means[:, j, None])
            found = _wrap_column(
                centers.ravel(), np.repeat(rest, len(t)), float(domain.low[k]),
                float(domain.periods[k]),
            )[0].reshape(x.shape)  # fmt: skip
            terms = density * (x - period * m - places[:, j, None]) * (found - places[:, k, None])
            products += (np.clip(means[:, j] + reach, *ends) - a) * (terms @ weights)
        spreads[:, j, k] = spreads[:, k, j] = np.where(covariances[:, j, k] == 0.0, 0.0, products)
    return places, spreads


def _wrap_column(
    means: Array, deviations: Array, low: float, period: float
) -> tuple[Array, Array, Array]:
    """Means and variances of Gaussians moved into [low, low + period), and the factors of their
    covariances with other columns, (K,) each."""
    from scipy.special import ndtr

    reach = GAUSSIAN_REACH * deviations
    first = math.floor(float((means - reach - low).min()) / period)
    last = math.ceil(float((means + reach - low).max()) / period)
    cells = np.arange(first, max(last, first + 1))
    edges = low + period * np.arange(first, cells[-1] + 2)
    z = (edges - means[:, None]) / deviations[:, None]
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2.0 * math.pi)
    mass = np.diff(ndtr(z), axis=1)
    about = -deviations[:, None] * np.diff(density, axis=1)  # integrals of x - mean
    square = np.square(deviations)[:, None] * (mass - np.diff(z * density, axis=1))
    places = means - period * (mass @ cells)
    gaps = (means - places)[:, None] - period * cells
    variances = (square + 2.0 * gaps * about + np.square(gaps) * mass).sum(axis=1)
    return places, variances, 1.0 - period / deviations * density.sum(axis=1)


def confine_base(base: Base, domain: Domain) -> Base:
    """A Gaussian or a mixture on a domain; any base as it is where the domain is open.

    Parameters
    ----------
    base : Base
    domain : Domain
    """
    return base if domain.is_open else BoundedMixtureBase.confine(base, domain)


def confine_gaussian(x: Array, weights: Array, domain: Domain) -> Base:
    """The Gaussian of some rows, cut off at walls and wrapped around periods.

    Along periodic axes the moments are those of rows unwrapped about their circular mean. Where
    rows spread over more than WIDEST_WRAPPED of a period, the base is uniform along that axis.
    Along axes with walls it is the Gaussian that is most likely once it is cut off. Axes of these
    two kinds are independent of the others.

    Parameters
    ----------
    x : (n, d) array
        Rows in the domain.
    weights : (n,) array
    domain : Domain

    Examples
    --------
    Hours around midnight:

    >>> hours = np.array([[23.0], [0.5], [1.0], [22.5], [0.0]])
    >>> base = confine_gaussian(hours, np.ones(5), Domain([0.0], [24.0], [True]))
    >>> bool(base.log_density([[0.0]])[0] > base.log_density([[12.0]])[0])
    True
    """
    unwrapped, periods = x.copy(), domain.high - domain.low
    for k in np.flatnonzero(domain.periodic).tolist():
        turns = np.exp(2j * np.pi * (x[:, k] - domain.low[k]) / periods[k])
        middle = domain.low[k] + periods[k] * np.angle(weights @ turns) / (2.0 * np.pi)
        unwrapped[:, k] -= periods[k] * np.round((x[:, k] - middle) / periods[k])
    gaussian = GaussianBase.from_data(unwrapped, sample_weight=weights)
    means, deviations = gaussian.mean.copy(), np.sqrt(np.diag(gaussian.covariance))
    is_wide = domain.periodic & (deviations > WIDEST_WRAPPED * periods)
    is_walled = np.isfinite(domain.walls[0]) | np.isfinite(domain.walls[1])
    if not (is_wide | is_walled).any():
        return confine_base(gaussian, domain)
    factors: list[Base] = []
    for k in range(domain.dimension):
        one = domain.choose([k])
        if is_wide[k]:
            factors.append(UniformBase(**one.parameters()))
            continue
        if is_walled[k]:
            means[k], deviations[k] = fit_truncated(
                means[k], deviations[k], domain.low[k], domain.high[k]
            )
        along = GaussianBase(means[k : k + 1], deviations[k : k + 1, None] ** 2)
        factors.append(BoundedMixtureBase.confine(along, one))
    return factors[0] if len(factors) == 1 else ProductBase(factors)


def fit_truncated(mean: float, deviation: float, low: float, high: float) -> tuple[float, float]:
    """Mean and deviation of the Gaussian that, cut off at walls, is most likely for rows with these
    moments. Its mean lies at most MOST_BEYOND deviations of the rows beyond a wall: about there it
    is an exponential law.

    Parameters
    ----------
    mean, deviation : float
        Of the rows.
    low, high : float
        Walls; infinite where there is none.
    """
    from scipy.optimize import minimize
    from scipy.special import log_ndtr

    def loss(point: Array) -> float:
        m, s = float(point[0]), math.exp(float(point[1]))
        a, b = (low - m) / s, (high - m) / s
        # on the side where the tail is small, so that the difference loses no digits
        upper, lower = (-a, -b) if a > 0.0 else (b, a)
        log_upper, log_lower = log_ndtr(upper), log_ndtr(lower)
        log_mass = log_upper + math.log1p(-min(math.exp(log_lower - log_upper), 1.0 - 1e-16))
        return math.log(s) + 0.5 * (deviation**2 + (mean - m) ** 2) / s**2 + float(log_mass)

    reach = MOST_BEYOND * deviation
    limits = (max(low - reach, mean - 10.0 * reach), min(high + reach, mean + 10.0 * reach))
    first, size = np.array([mean, math.log(deviation)]), np.diag([0.5 * deviation, 0.3])
    found = minimize(
        loss, first, method="Nelder-Mead",
        bounds=[limits, (math.log(0.5 * deviation), math.log(MOST_BEYOND * deviation))],
        options={"initial_simplex": [first, *(first + size)], "xatol": 1e-4, "fatol": 1e-8},
    )  # fmt: skip
    return float(found.x[0]), math.exp(float(found.x[1]))


@register_base
class ProductBase(Base):
    """Independent groups of columns, each with a base of its own.

    Parameters
    ----------
    factors : list of Base
        A product among them is replaced by its factors.
    columns : list of lists of int, default None
        Columns of each factor, which together are 0 .. d - 1. By default the columns of the factors
        follow each other.

    Raises
    ------
    ValueError
        There is no factor, or the columns are not 0 .. d - 1 or not those of the factors.

    Examples
    --------
    A Gaussian column beside one that is uniform on [0, 1]:

    >>> base = ProductBase([GaussianBase([0.0], [[1.0]]), UniformBase([0.0], [1.0])])
    >>> base.log_density([[0.0, 0.5]]).round(4).tolist()
    [-0.9189]
    """

    kind = "product"
    each: list[tuple[Base, list[int]]]  # factors and their columns

    def __init__(
        self, factors: Sequence[Base], columns: Sequence[Sequence[int]] | None = None
    ) -> None:
        if not factors:
            raise ValueError("a product needs at least one base")
        if columns is None:
            columns = _follow([factor.dimension for factor in factors])
        each = self.each = []
        for factor, mine in zip(factors, columns, strict=True):
            whole = [(factor, [*range(len(mine))])]
            inner = factor.each if isinstance(factor, ProductBase) else whole
            each += [(part, [int(mine[k]) for k in places]) for part, places in inner]
        self.factors = tuple(factor for factor, _ in each)
        widths, places = [f.dimension for f in self.factors], [c for _, c in each]
        d = sum(widths)
        if [len(c) for c in places] != widths or sorted(itertools.chain(*places)) != [*range(d)]:
            raise ValueError(
                f"columns={[list(c) for c in columns]}: expected 0 to {d - 1} once each, and as "
                f"many for each factor as it has columns: {widths}"
            )
        self.mean, self.covariance = np.empty(d), np.zeros((d, d))
        for factor, mine in each:
            self.mean[mine] = factor.mean
            self.covariance[np.ix_(mine, mine)] = factor.covariance

    @functools.cached_property
    def domain(self) -> Domain:
        """The domains of the factors, joined."""
        low, high, periodic = np.empty((3, self.dimension))
        for factor, mine in self.each:
            part = domain_of(factor)
            low[mine], high[mine], periodic[mine] = part.low, part.high, part.periodic
        return Domain(low, high, periodic)

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,)."""
        return np.sum([f.log_density_at(_columns_of(x, c)) for f, c in self.each], axis=0)

    def score_at(self, x: Array) -> Array:
        """Gradient of the log density at checked rows, (n, d)."""
        return self._join([f.score_at(_columns_of(x, c)) for f, c in self.each])

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in column k, (n,)."""
        return np.sum([f.laplacian_at(_columns_of(x, c), stretch[c]) for f, c in self.each], axis=0)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d)."""
        return self._join([factor.draw(n, rng) for factor in self.factors])

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n draws, quasi-random within each factor, and paired at random."""
        rngs = (np.random.default_rng([seed, j]) for j in range(len(self.factors)))
        return self._join([
            factor.draw_sobol(log2_n, seed)[rng.permutation(2**log2_n)]
            for factor, rng in zip(self.factors, rngs, strict=True)
        ])  # fmt: skip

    def _join(self, parts: Sequence[Array]) -> Array:
        """Arrays (n, columns of a factor), as one of all columns."""
        x = np.empty((len(parts[0]), self.dimension))
        for part, (_, columns) in zip(parts, self.each, strict=True):
            x[:, columns] = part
        return x

    def rescaled(self, scaling: Scaling) -> ProductBase:
        """The same base in the coordinates u = (x - shift) / scale."""
        factors = [
            f.rescaled(Scaling(scaling.shift[c], scaling.scale[c])) for f, c in self.each
        ]
        return ProductBase(factors, [columns for _, columns in self.each])

    def parameters(self) -> dict[str, Array]:
        """Parameters of the factors; number and kind of the factor stand before their names. And
        the columns of all factors, where they do not follow each other."""
        own = {
            f"factor{j}__{factor.kind}__{name}": array
            for j, factor in enumerate(self.factors)
            for name, array in factor.parameters().items()
        }
        order = [*itertools.chain(*(columns for _, columns in self.each))]
        return own if order == sorted(order) else own | {"columns": np.array(order, float)}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> ProductBase:
        """The inverse of `parameters`."""
        groups: dict[tuple[int, str], dict[str, Any]] = {}
        for name, array in parameters.items():
            if name != "columns":
                place, kind, argument = name.split("__")
                groups.setdefault((int(place.removeprefix("factor")), kind), {})[argument] = array
        factors = [load_base(kind, groups[place, kind]) for place, kind in sorted(groups)]
        columns = _follow([factor.dimension for factor in factors])
        if "columns" in parameters:
            order = [int(k) for k in parameters["columns"]]
            columns = [[order[k] for k in places] for places in columns]
        return cls(factors, columns)

    def __repr__(self) -> str:
        return f"ProductBase({', '.join(map(repr, self.factors))})"


def domain_of(base: Base) -> Domain:
    """Where a base lives; open for bases that do not say it.

    Parameters
    ----------
    base : Base
        Those on domains have an attribute ``domain``.

    Examples
    --------
    >>> domain_of(GaussianBase([0.0], [[1.0]])).is_open
    True
    """
    if isinstance(base, RescaledBase):
        return domain_of(base.original).rescaled(base.scaling)
    known = getattr(base, "domain", None)
    if isinstance(known, Domain):
        return known
    return Domain(np.full(base.dimension, -np.inf), np.full(base.dimension, np.inf))


def _follow(widths: Sequence[int]) -> list[list[int]]:
    """Columns of factors of these widths that follow each other."""
    ends = [*itertools.accumulate(widths, initial=0)]
    return [[*range(a, b)] for a, b in itertools.pairwise(ends)]


def _columns_of(x: Array, columns: list[int]) -> Array:
    return np.ascontiguousarray(x[:, columns])
