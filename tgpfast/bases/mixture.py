"""A Gaussian mixture as base, and its fit by expectation maximisation."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Blocks, as_blocks
from ..data.moments import check_full_rank, moments_and_sample, moments_of
from ..data.row_sample import SAMPLE_ROWS
from ..data.scaling import Scaling
from ..data.weights import kish_ratio
from ..features.random import Features
from ..runtime.warnings import PoorFitWarning, warn
from ..validation import Array, as_floats, whole
from .base import Base, register_base
from .gaussian import GaussianBase
from .quasirandom import logsumexp, sobol_uniforms, to_normals

LADDER = (1, 2, 3, 4, 6, 8, 11, 15, 20)  # numbers of components that are tried
EM_ROWS = SAMPLE_ROWS  # rows that a mixture is fitted to
EM_STEPS, EM_TOLERANCE = 300, 3e-5  # steps at most; gain of the mean log-likelihood that ends them
STARTS, AT_A_TIME = 3, 2  # times that EM begins for the number of components that is taken
CLUSTER_STEPS = 30  # of Lloyd's, before EM begins
GUARD = 5.0  # standard deviation of the guard component, in data standard deviations
PIECE = 4_096  # rows whose densities are evaluated at a time
RIDGE = 1e-6  # of the data's variances, added to every component's

State = tuple[Array, Array, Array]  # weights (K,), means (K, d), covariances (K, d, d)


@register_base
@dataclass(frozen=True, eq=False)
class MixtureBase(Base):
    """sum_j weights[j] N(x | means[j], covariances[j]).

    Parameters
    ----------
    weights : (K,) positive; rescaled to sum to 1
    means : (K, d)
    covariances : (K, d, d), symmetric positive definite
    """

    weights: Array
    means: Array
    covariances: Array
    _parts: list[GaussianBase] = field(init=False, repr=False)

    kind = "mixture"

    def __post_init__(self) -> None:
        weights = as_floats(self.weights, "weights", "(K,)", 1)
        means = as_floats(self.means, "means", "(K, d)", 2)
        covariances = as_floats(self.covariances, "covariances", "(K, d, d)", 3)
        K, d = means.shape
        if not K or not d or len(weights) != K or covariances.shape != (K, d, d):
            raise ValueError(
                f"weights {weights.shape}, means {means.shape} and covariances {covariances.shape} "
                "do not go together; expected (K,), (K, d) and (K, d, d)"
            )
        if not (weights > 0).all():
            raise ValueError(f"weights must be positive, got {weights.min()}")
        total = weights.sum()  # off 1 by roundings alone it is left: the same weights, bit by bit
        rounding = 4.0 * K * np.finfo(float).eps
        rescaled = weights if abs(total - 1.0) <= rounding else weights / total
        object.__setattr__(self, "weights", rescaled)
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "covariances", covariances)
        parts = []
        for k in range(K):
            try:
                parts.append(GaussianBase(means[k], covariances[k]))
            except ValueError as error:
                raise ValueError(f"component {k}: {error}") from None
        object.__setattr__(self, "_parts", parts)

    @classmethod
    def from_data(
        cls,
        X: Any,
        n_components: int | None = None,
        *,
        sample_weight: Any = None,
        seed: int = 0,
    ) -> MixtureBase:
        """Fitted by EM to at most 20,000 random rows of X, drawn in one pass over it.

        Parameters
        ----------
        n_components : K, or fewer where some come to have no rows, of which a warning tells; None
            takes the one of 1, 2, 3, 4, 6, ... 20 with the least BIC
        seed : of the first means
        """
        seed = whole("seed", seed, 0)
        blocks = as_blocks(X, sample_weight=sample_weight)
        moments, sample = moments_and_sample(blocks)
        check_full_rank(moments, blocks.table.columns)
        moments.check_range()
        x, w = sample.take(EM_ROWS)
        w = np.ones(len(x)) if w is None else w * kish_ratio(w)
        return cls._by_em(x, w, n_components, seed)

    @classmethod
    def _by_em(
        cls, x: Array, w: Array, n_components: int | None, seed: int, *, least: int = 1
    ) -> MixtureBase:
        """w : how many rows each row counts; least : from where numbers of components are tried,
        where none is given."""
        if n_components is not None:
            n_components = whole("n_components", n_components)
        check_full_rank(moments_of(Blocks(x, sample_weight=w)), None)
        if n_components is not None:
            found = expectation_maximisation(x, w, n_components, seed)
            kept = found.mixture.n_components
            if kept < n_components:
                warn(
                    f"{kept} of {n_components} components are left: the others came to have too "
                    "few rows. Ask for fewer, or let BIC choose (n_components=None)",
                    PoorFitWarning,
                )
            return _told(found)
        n = w.sum()
        best: Climbed | None = None
        lowest, worse = np.inf, 0
        for k in (k for k in LADDER if k >= least):
            if _parameters(k, x.shape[1]) > min(n, len(x)):
                break
            found = expectation_maximisation(x, w, k, seed)
            kept = found.mixture.n_components  # some may have been dropped
            bic = _parameters(kept, x.shape[1]) * np.log(n) - 2.0 * n * found.mean
            worse = worse + 1 if bic >= lowest else 0
            if bic < lowest:
                best, lowest = found, bic
            if worse == 2:
                break
        if best is None:
            best = expectation_maximisation(x, w, 1, seed)
        K, seeds = best.mixture.n_components, [seed + r for r in range(1, STARTS)]
        if K == 1:
            return best.mixture
        # EM finds what lies near its start: the highest of several
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            others = list(pool.map(lambda r: expectation_maximisation(x, w, K, r), seeds))
        return _told(max([best, *others], key=lambda found: found.mean))

    def _guarded(self, x: Array, w: Array) -> MixtureBase:
        """With one more component, of half a row's weight and GUARD times as wide as all rows: one
        outlier among rows to come would else cost more than the mixture gains."""
        if self.n_components == 1:
            return self
        moments = moments_of(Blocks(x, sample_weight=w))
        share = 0.5 / (moments.n + 0.5)
        return MixtureBase(
            np.append((1.0 - share) * self.weights, share),
            np.concatenate([self.means, moments.mean[None]]),
            np.concatenate([self.covariances, GUARD**2 * moments.covariance[None]]),
        )

    @classmethod
    def from_sklearn(cls, mixture: Any) -> MixtureBase:
        """From a fitted ``sklearn.mixture.GaussianMixture`` of any covariance type."""
        try:
            weights, means, given = mixture.weights_, mixture.means_, mixture.covariances_
            kind = mixture.covariance_type
        except AttributeError as error:
            raise TypeError(
                f"expected a fitted GaussianMixture of scikit-learn, got {type(mixture).__name__} "
                f"({error})"
            ) from None
        (K, d), given = np.shape(means), np.asarray(given, float)
        if kind == "tied":
            given = np.broadcast_to(given, (K, d, d))
        elif kind in ("diag", "spherical"):
            given = np.reshape(given, (K, -1, 1)) * np.eye(d)
        return cls(weights, means, given)

    @property
    def n_components(self) -> int:
        """K."""
        return len(self.weights)

    @functools.cached_property
    def mean(self) -> Array:  # type: ignore[override]
        """(d,), of the whole mixture."""
        return np.asarray(self.weights @ self.means)

    @functools.cached_property
    def covariance(self) -> Array:  # type: ignore[override]
        """(d, d), of the whole mixture."""
        about = self.means - self.mean
        within = np.einsum("k,kij->ij", self.weights, self.covariances)
        return np.asarray(within + (about.T * self.weights) @ about)

    @functools.cached_property
    def _whitener(self) -> tuple[Array, Array, Array]:
        """Inverse Cholesky factors (K d, d), what they make of the means, (K d,), from the
        mixture's own mean, and log weight_j / sqrt(det 2 pi covariance_j), (K,)."""
        K, d = self.means.shape
        cholesky = np.stack([p.cholesky for p in self._parts])
        inverse = np.linalg.inv(cholesky)
        shift = np.einsum("kij,kj->ki", inverse, self.means - self.mean)
        constant = np.log(self.weights) - 0.5 * d * np.log(2.0 * np.pi)
        constant -= np.log(np.einsum("kii->ki", cholesky)).sum(axis=1)
        return np.asarray(inverse.reshape(K * d, d)), shift.ravel(), constant

    def _whitened(self, x: Array) -> tuple[Array, Array]:
        """Rows as every component sees them, (K, d, n), and log weight_j N_j(x), (K, n)."""
        inverse, shift, constant = self._whitener
        white = inverse @ (x - self.mean).T - shift[:, None]
        white = white.reshape(self.n_components, self.dimension, len(x))
        with np.errstate(over="ignore"):  # so far that a square overflows: no density
            return white, constant[:, None] - 0.5 * np.square(white).sum(axis=1)

    def log_density_at(self, x: Array) -> Array:
        values = np.empty(len(x))
        for rows in _pieces(len(x)):
            values[rows] = logsumexp(self._whitened(x[rows])[1], axis=0)
        return values

    def _shares(self, terms: Array) -> Array:
        total = logsumexp(terms, axis=0)
        far = np.isneginf(total)  # so far that even logarithms overflow
        shares = np.exp(terms - np.where(far, 0.0, total))
        shares[:, far] = self.weights[:, None]
        return np.asarray(shares)

    def score_at(self, x: Array) -> Array:
        inverse, score = self._whitener[0], np.empty_like(x)
        for rows in _pieces(len(x)):
            white, terms = self._whitened(x[rows])
            white *= self._shares(terms)[:, None, :]
            score[rows] = -(inverse.T @ white.reshape(len(inverse), -1)).T
        return score

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """With p = sum r_j grad_j: sum_j r_j (lap_j + |grad_j - p|^2), stretched."""
        slant = self._whitener[0].reshape(self.n_components, self.dimension, -1) * stretch
        bend, values = -np.square(slant).sum(axis=(1, 2)), np.empty(len(x))
        for rows in _pieces(len(x)):
            white, terms = self._whitened(x[rows])
            shares = self._shares(terms)
            slopes = slant.transpose(0, 2, 1) @ white  # (K, d, n), their signs turned
            slopes -= (shares[:, None, :] * slopes).sum(axis=0)
            with np.errstate(over="ignore"):
                spread = np.square(slopes).sum(axis=1)
            spread[shares == 0.0] = 0.0  # however far
            values[rows] = bend @ shares + (shares * spread).sum(axis=0)
        return values

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        index = rng.choice(self.n_components, size=n, p=self.weights)
        return self._placed(index, rng.standard_normal((n, self.dimension)))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        points = sobol_uniforms(self.dimension + 1, log2_n, seed)
        index = np.searchsorted(np.cumsum(self.weights)[:-1], points[:, 0], side="right")
        return self._placed(index, to_normals(points[:, 1:]))

    def _placed(self, index: Any, normals: Array) -> Array:
        x = np.empty_like(normals)
        for k, part in enumerate(self._parts):
            mine = index == k
            x[mine] = part.mean + normals[mine] @ part.cholesky.T
        return x

    def feature_moments(
        self, features: Features, *, backend: str = "auto", n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """Mean (S,) and covariance (S, S) of phi(x), x from this base: those of the components,
        and the spread of their means."""
        means, covariance = [], np.zeros((features.n_features, features.n_features))
        for share, part in zip(self.weights, self._parts, strict=True):
            mean, within = part.feature_moments(features, backend=backend, n_threads=n_threads)
            covariance += share * within
            means.append(mean)
        mean = self.weights @ np.array(means)
        about = np.array(means) - mean
        covariance += (about.T * self.weights) @ about
        return np.asarray(mean), covariance

    def rescaled(self, scaling: Scaling) -> MixtureBase:
        """The same base in the coordinates that the scaling leads to."""
        by = np.outer(scaling.scale, scaling.scale)
        return MixtureBase(self.weights, scaling.apply(self.means), self.covariances / by)

    def parameters(self) -> dict[str, Any]:
        """Weights, means and covariances."""
        return {"weights": self.weights, "means": self.means, "covariances": self.covariances}

    def __repr__(self) -> str:
        return f"MixtureBase({self.n_components} components, d={self.dimension})"


def _parameters(K: int, d: int) -> float:
    """Of a mixture: weights, means and covariances."""
    return K * (1 + d * (d + 3) / 2) - 1


class Climbed(NamedTuple):
    """What EM came to."""

    mixture: MixtureBase
    mean: float  # log-likelihood of a row
    converged: bool


def _told(found: Climbed) -> MixtureBase:
    """The mixture that is taken; a warning if EM had not converged."""
    if not found.converged:
        warn(
            f"EM with {found.mixture.n_components} components stopped after {EM_STEPS} steps, "
            "before it had converged",
            PoorFitWarning,
        )
    return found.mixture


def _pieces(n: int) -> Iterator[slice]:
    """Slices that cover n rows, each short enough that its products stay in cache."""
    return (slice(start, start + PIECE) for start in range(0, n, PIECE))


def expectation_maximisation(
    x: Array, w: Array, k: int, seed: int, start: MixtureBase | None = None
) -> Climbed:
    """A mixture of k components from rows with weights; it goes on from ``start`` where that is
    given.

    Begins at rows far apart: with the clusters about them for an even seed, and with components as
    wide as the data for an odd one. Components that lose their rows are dropped, and every
    covariance has a ridge of RIDGE times the data's variances, so that none collapses. All in
    coordinates of mean 0 and variance 1, so that products may be summed before means are taken off.
    """
    rng = np.random.default_rng(seed)
    share = w / w.sum()
    centre = share @ x
    spread = np.sqrt(share @ np.square(x - centre))
    y = (x - centre) / spread
    d = y.shape[1]
    upper = np.triu_indices(d)
    # 1, the coordinates and their products: (P, n)
    design = np.concatenate([np.ones((1, len(y))), y.T, y.T[upper[0]] * y.T[upper[1]]])
    if start is not None:
        by = np.outer(spread, spread)
        state = start.weights, (start.means - centre) / spread, start.covariances / by
    else:
        means = _far_apart(y, share, k, rng)
        state = _wide(design, share, means) if seed % 2 else _clustered(design, share, means, upper)
    state, mean, converged = _climb(design, share, state, upper)
    weights, means, covariances = state
    mixture = MixtureBase(weights, centre + means * spread, covariances * np.outer(spread, spread))
    return Climbed(mixture, mean - float(np.log(spread).sum()), converged)


def _climb(
    design: Array, share: Array, state: State, upper: tuple[Any, Any]
) -> tuple[State, float, bool]:
    """(state after EM, mean log-likelihood before its last step, whether that had converged)."""
    last, mean, n = -np.inf, -np.inf, design.shape[1]
    for _ in range(EM_STEPS):
        terms = _coefficients(*state, upper) @ design  # log weight_j N_j, (K, n)
        total = logsumexp(terms, axis=0)
        mean = float(share @ total)
        if mean - last < EM_TOLERANCE:
            return state, mean, True
        terms -= total
        np.exp(terms, out=terms)
        terms *= share
        state = _maximised(terms @ design.T, n, upper)
        # a component that is dropped takes likelihood with it: the others go on from there
        last = mean if len(state[0]) == len(terms) else -np.inf
    return state, mean, False


def _wide(design: Array, share: Array, means: Array) -> State:
    """Components of equal weight about the means, as wide as the data allow for so many."""
    K, d = means.shape
    y = design[1 : d + 1]
    covariance = (y * share) @ y.T * K ** (-2.0 / d) + RIDGE * np.eye(d)
    return np.full(K, 1.0 / K), means, np.repeat(covariance[None], K, axis=0)


def _clustered(design: Array, share: Array, means: Array, upper: tuple[Any, Any]) -> State:
    """The clusters to which Lloyd's steps lead from some means."""
    d, everyone = means.shape[1], np.arange(len(share))
    y, nearest = design[1 : d + 1], np.full(len(share), -1)
    for _ in range(CLUSTER_STEPS):
        distance = 0.5 * np.square(means).sum(axis=1)[:, None] - means @ y
        last, nearest = nearest, distance.argmin(axis=0)
        mine = np.zeros(distance.shape)
        mine[nearest, everyone] = share
        sums = mine @ design.T
        has_rows = sums[:, 0] > 0.0
        means[has_rows] = sums[has_rows, 1 : d + 1] / sums[has_rows, :1]
        if (last == nearest).all():
            break
    return _maximised(sums, len(share), upper)


def _coefficients(
    weights: Array, means: Array, covariances: Array, upper: tuple[Any, Any]
) -> Array:
    """(K, P): log weight_j N_j(y) is linear in 1, y and the products of its coordinates."""
    d = means.shape[1]
    cholesky = np.linalg.cholesky(covariances)
    inverse = np.linalg.inv(cholesky)
    precision = np.einsum("kij,kil->kjl", inverse, inverse)
    linear = np.einsum("kij,kj->ki", precision, means)
    constant = np.log(weights) - 0.5 * d * np.log(2.0 * np.pi)
    constant -= np.log(np.einsum("kii->ki", cholesky)).sum(axis=1)
    constant -= 0.5 * np.einsum("ki,ki->k", linear, means)
    twice = np.where(upper[0] == upper[1], 0.5, 1.0)  # an off-diagonal product stands for two
    quadratic = -twice * precision[:, upper[0], upper[1]]
    return np.concatenate([constant[:, None], linear, quadratic], axis=1)


def _maximised(sums: Array, n: int, upper: tuple[Any, Any]) -> State:
    """(weights, means, covariances) from sums of the design over every component's share of the
    rows, (K, P); the shares sum to 1 in all."""
    d = int(upper[0].max()) + 1
    alive = sums[:, 0] * n > d + 1.0
    if not alive.any():
        alive = sums[:, 0] == sums[:, 0].max()
    weights = sums[alive, 0]
    moments = sums[alive] / weights[:, None]
    means = moments[:, 1 : d + 1]
    covariances = np.empty((len(weights), d, d))
    covariances[:, upper[0], upper[1]] = covariances[:, upper[1], upper[0]] = moments[:, d + 1 :]
    covariances -= means[:, :, None] * means[:, None, :]
    covariances[:, range(d), range(d)] += RIDGE
    return weights / weights.sum(), means, covariances


def _far_apart(x: Array, share: Array, k: int, rng: np.random.Generator) -> Array:
    """k rows, each drawn with probability in proportion to its squared distance from those
    before it; fewer where the rows are fewer."""
    chosen = [x[rng.choice(len(x), p=share)]]
    nearest = np.square(x - chosen[0]).sum(axis=1)
    while len(chosen) < k and (share * nearest).sum() > 0:
        p = share * nearest
        chosen.append(x[rng.choice(len(x), p=p / p.sum())])
        nearest = np.minimum(nearest, np.square(x - chosen[-1]).sum(axis=1))
    return np.array(chosen)
