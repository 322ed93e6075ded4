"""A Gaussian mixture as base, and its fit to rows."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..data.blocks import Blocks
from ..data.moments import Moments, check_full_rank, moments_of
from ..data.row_sample import SAMPLE_ROWS
from ..data.scaling import Scaling
from ..data.weights import kish_ratio
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.warnings import PoorFitWarning, warn
from ..validation import Array, Seed, as_floats, as_seed, whole
from .base import Base, register_base, sample_rows
from .component_splits import apply_splits, find_splits
from .expectation_maximization import (
    EXP_WORK,
    Components,
    Learner,
    Rows,
    measure_columns,
    one_component,
    run_em,
)
from .gaussian import GaussianBase
from .quasirandom import logsumexp, sobol_uniforms, to_normals

SIZES = (1, 2, 3, 4, 6, 8, 11, 15, 20)  # numbers of components that BIC chooses from
EM_ROWS = SAMPLE_ROWS  # rows that a mixture is fitted to
EM_STEPS, EM_TOLERANCE = 300, 3e-5  # steps at most; gain of the mean log-likelihood that ends them
ROUND_STEPS = 5  # steps of EM after components were split, where the mixture is to grow further
GUARD_WIDTH = 5.0  # standard deviation of the guard component, in data standard deviations
# Rows that the guard component counts as: it costs all other rows together so many nats. Half a row
# was all that eight Gaussians lost, 1.4 standard errors, to a mixture without a guard.
GUARD_ROWS = 0.25
PIECE = 2**18  # numbers of the largest array that the Laplacian of some rows needs


@register_base
class MixtureBase(Base):
    """A Gaussian mixture, sum_j weights[j] N(x | means[j], covariances[j]).

    Parameters
    ----------
    weights : (K,) array
        Positive; rescaled to sum to 1.
    means : (K, d) array
    covariances : (K, d, d) array
        Symmetric positive definite.
    has_guard : bool, default False
        Whether the last component is a guard against outliers (`with_guard`). EM leaves it out.

    Examples
    --------
    >>> import numpy as np
    >>> import tgpfast as tgp
    >>> base = tgp.MixtureBase([0.5, 0.5], [[-2.0], [2.0]], np.ones((2, 1, 1)))
    >>> base.log_density([[0.0]]).round(3)
    array([-2.919])
    """

    kind = "mixture"

    def __init__(
        self, weights: Any, means: Any, covariances: Any, *, has_guard: bool = False
    ) -> None:
        weights = as_floats(weights, "weights", "(K,)", 1)
        self.means = means = as_floats(means, "means", "(K, d)", 2)
        self.covariances = covariances = as_floats(covariances, "covariances", "(K, d, d)", 3)
        self.has_guard = has_guard
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
        self.weights: Array = weights if abs(total - 1.0) <= rounding else weights / total
        self._cholesky = _factor(means, covariances)

    @classmethod
    def from_data(
        cls,
        X: Any,
        n_components: int | None = None,
        *,
        sample_weight: Any = None,
        seed: Seed = 0,
    ) -> MixtureBase:
        """Fitted by EM to at most 20,000 random rows of X, drawn in one pass over it.

        Parameters
        ----------
        X : table
            Anything `fit` takes.
        n_components : int, default None
            K. A warning tells if fewer are left, because some came to have too few rows. None
            takes the one of 1, 2, 3, 4, 6, ... 20 with the least BIC.
        sample_weight : (n,) array, default None
            Rows that each row counts as.
        seed : int, None or numpy.random.Generator, default 0
            For the random directions along which components are split.

        Raises
        ------
        ValueError
            If a column is constant, or columns are linearly dependent.
        """
        seed = as_seed(seed)
        x, w = sample_rows(X, sample_weight)
        w = w * kish_ratio(w)
        check_full_rank(moments_of(Blocks(x, sample_weight=w)), None)
        if n_components is None:
            found = choose_mixture_by_bic(x, w, seed=seed)
        else:
            found = fit_mixture(x, w, whole("n_components", n_components), seed=seed)
            kept = found.mixture.n_components
            if kept < n_components:
                warn(
                    f"{kept} of {n_components} components are left: the others came to have too "
                    "few rows. Ask for fewer, or let BIC choose (n_components=None)",
                    PoorFitWarning,
                )
        if not found.converged:
            warn(
                f"EM with {found.mixture.n_components} components stopped after {EM_STEPS} steps, "
                "before it had converged",
                PoorFitWarning,
            )
        return found.mixture

    def with_guard(self, x: Array, w: Array) -> MixtureBase:
        """The mixture with a guard: a component of GUARD_ROWS rows, GUARD_WIDTH times as wide as
        all rows. Without it one outlier among new rows would cost more than the mixture gains.

        A single component needs no guard.

        Parameters
        ----------
        x : (n, d) array
            The rows that the mixture was fitted to.
        w : (n,) array
            Rows that each of them counts as.
        """
        if self.n_components == 1:
            return self
        weight, mean, covariance = guard_of(moments_of(Blocks(x, sample_weight=w)))
        return MixtureBase(
            np.append((1.0 - weight) * self.weights, weight),
            np.concatenate([self.means, mean[None]]),
            np.concatenate([self.covariances, covariance[None]]),
            has_guard=True,
        )

    def with_narrower_guard(self, factors: Array) -> MixtureBase:
        """The mixture whose guard, if it has one, is narrower.

        Parameters
        ----------
        factors : (d,) array
            Width of the new guard along each column as a share of the old one.
        """
        if not self.has_guard:
            return self
        covariances = self.covariances.copy()
        covariances[-1] *= np.outer(factors, factors)
        return MixtureBase(self.weights, self.means, covariances, has_guard=True)

    def without_guard(self) -> MixtureBase:
        """The mixture without its guard."""
        if not self.has_guard:
            return self
        return MixtureBase(self.weights[:-1], self.means[:-1], self.covariances[:-1])

    @classmethod
    def from_sklearn(cls, mixture: Any) -> MixtureBase:
        """The mixture that scikit-learn has fitted.

        Parameters
        ----------
        mixture : sklearn.mixture.GaussianMixture
            Fitted, of any covariance type.

        Raises
        ------
        TypeError
            If it is not, or not yet fitted.
        """
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
        return pool_moments(self.weights, self.means, self.covariances)[1]

    @property
    def covariance_within(self) -> Array:
        """(d, d): mean covariance of the components besides a guard."""
        bare = self.without_guard()
        return np.asarray(np.einsum("k,kij->ij", bare.weights, bare.covariances))

    @functools.cached_property
    def _parts(self) -> list[GaussianBase]:
        """The components."""
        return [GaussianBase(*pair) for pair in zip(self.means, self.covariances, strict=True)]

    @functools.cached_property
    def _whitener(self) -> tuple[Array, Array, Array]:
        """Inverse Cholesky factors (K, d, d), their products with the means about the mixture's own
        mean, (K, d), and log weight_j / sqrt(det 2 pi covariance_j), (K,)."""
        inverse = np.asarray(np.linalg.inv(self._cholesky), float)
        shift = np.einsum("kij,kj->ki", inverse, self.means - self.mean)
        constant = np.log(self.weights) - 0.5 * self.dimension * np.log(2.0 * np.pi)
        constant -= np.log(np.einsum("kii->ki", self._cholesky)).sum(axis=1)
        return inverse, np.asarray(shift), np.asarray(constant)

    def evaluate_at(
        self, x: Array, *, score: bool = False, threads: Threads | None = None
    ) -> tuple[Array, Array]:
        """Log density and score together.

        Parameters
        ----------
        x : (n, d) array
            Checked rows.
        score : bool, default False
            Whether the score is wanted as well.
        threads : Threads, default None
            Backend and number of threads; by default "auto" and all.

        Returns
        -------
        (n,) array, and (n, d) array, or (0, d) without the score
            Where every square overflows, -inf and 0.
        """
        (n, d), K = x.shape, self.n_components
        values, scores = np.empty(n), np.empty((n if score else 0, d))
        work = n * K * (d * (d + 1.0) * (3 if score else 1) + EXP_WORK)
        module, count = (threads or Threads()).resolve(work)
        blocks = np.empty((count, K, kernels.ROW_TILE))
        inputs = map(kernels.read_only, (x, self.mean, *self._whitener))
        with kernels.threads(module, count):
            module.mixture_density(*inputs, values, scores, blocks, count)
        return values, scores

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows.

        Parameters
        ----------
        x : (n, d) array

        Returns
        -------
        (n,) array
        """
        return self.evaluate_at(x)[0]

    def score_at(self, x: Array) -> Array:
        """Gradient of the log density at checked rows.

        Parameters
        ----------
        x : (n, d) array

        Returns
        -------
        (n, d) array
        """
        values, score = self.evaluate_at(x, score=True)
        far = np.isneginf(values)  # every square overflows: components count by their weights
        if far.any():
            inverse = self._whitener[0]
            white = self._whiten(x[far]) * self.weights[:, None, None]
            score[far] = -np.einsum("kji,kjn->ni", inverse, white)
        return score

    def _whiten(self, x: Array) -> Array:
        """Rows as every component sees them, (K, d, n)."""
        inverse, shift, _ = self._whitener
        return np.asarray(inverse @ (x - self.mean).T - shift[:, :, None])

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Weighted trace of the Hessian of the log density.

        With p = sum r_j grad_j it is sum_j r_j (lap_j + |grad_j - p|^2), stretched.

        Parameters
        ----------
        x : (n, d) array
            Checked rows.
        stretch : (d,) array
            Factors of the columns.

        Returns
        -------
        (n,) array
            Sum over k of stretch_k^2 times the second derivative in column k.
        """
        inverse, _, constant = self._whitener
        slant = inverse * stretch
        bend, values = -np.square(slant).sum(axis=(1, 2)), np.empty(len(x))
        for rows in _pieces(len(x), self.n_components * self.dimension):
            white = self._whiten(x[rows])
            with np.errstate(over="ignore"):
                terms = constant[:, None] - 0.5 * np.square(white).sum(axis=1)
            shares = self._shares(terms)
            slopes = slant.transpose(0, 2, 1) @ white  # (K, d, n), their signs turned
            slopes -= (shares[:, None, :] * slopes).sum(axis=0)
            with np.errstate(over="ignore"):
                spread = np.square(slopes).sum(axis=1)
            spread[shares == 0.0] = 0.0  # however far
            values[rows] = bend @ shares + (shares * spread).sum(axis=0)
        return values

    def _shares(self, terms: Array) -> Array:
        """Responsibilities from log weight_j N_j; the weights where even logarithms overflow."""
        total = logsumexp(terms, axis=0)
        far = np.isneginf(total)
        shares = np.exp(terms - np.where(far, 0.0, total))
        shares[:, far] = self.weights[:, None]
        return np.asarray(shares)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Independent draws.

        Parameters
        ----------
        n : int
        rng : numpy Generator

        Returns
        -------
        (n, d) array
        """
        index = rng.choice(self.n_components, size=n, p=self.weights)
        return self._placed(index, rng.standard_normal((n, self.dimension)))

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """Draws made of scrambled Sobol points, the first coordinate of which picks the component.

        Parameters
        ----------
        log2_n : int
            Logarithm to base 2 of the number of draws.
        seed : int
            Seed of the scrambling.

        Returns
        -------
        (2^log2_n, d) array
        """
        points = sobol_uniforms(self.dimension + 1, log2_n, seed)
        index = np.searchsorted(np.cumsum(self.weights)[:-1], points[:, 0], side="right")
        return self._placed(index, to_normals(points[:, 1:]))

    def _placed(self, index: Any, normals: Array) -> Array:
        """Rows of standard normals, moved to the components with these indices."""
        x = np.empty_like(normals)
        order = np.argsort(index, kind="stable")
        ends = np.searchsorted(index[order], np.arange(self.n_components), side="right")
        for k, mine in enumerate(np.split(order, ends[:-1])):
            x[mine] = self.means[k] + normals[mine] @ self._cholesky[k].T
        return x

    def feature_moments(
        self, features: Features, *, backend: str = "auto", n_threads: int | None = None
    ) -> tuple[Array, Array]:
        """Moments of the features phi(x), x from this base: those of the components, and the spread
        of their means.

        Parameters
        ----------
        features : Features
        backend : str, default "auto"
        n_threads : int, default None

        Returns
        -------
        (S,) array and (S, S) array
            Mean and covariance.
        """
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
        """The same base in other units.

        Parameters
        ----------
        scaling : Scaling
            u = (x - shift) / scale.

        Returns
        -------
        MixtureBase
        """
        by = np.outer(scaling.scale, scaling.scale)
        means, covariances = scaling.apply(self.means), self.covariances / by
        return MixtureBase(self.weights, means, covariances, has_guard=self.has_guard)

    def parameters(self) -> dict[str, Any]:
        """Weights, means and covariances."""
        return {"weights": self.weights, "means": self.means, "covariances": self.covariances}

    def __repr__(self) -> str:
        return f"MixtureBase({self.n_components} components, d={self.dimension})"


def _factor(means: Array, covariances: Array) -> Array:
    """Lower Cholesky factors, (K, d, d); ValueError that names the first component without one."""
    root = np.sqrt(np.abs(np.einsum("kii->ki", covariances)))  # what an entry is measured by
    gap = np.abs(covariances - covariances.transpose(0, 2, 1))
    if (gap <= 1e-8 * root[:, :, None] * root[:, None, :]).all():
        try:
            return np.asarray(np.linalg.cholesky(covariances), float)
        except np.linalg.LinAlgError:
            pass
    for k, pair in enumerate(zip(means, covariances, strict=True)):
        try:
            GaussianBase(*pair)
        except ValueError as error:
            raise ValueError(f"component {k}: {error}") from None
    raise AssertionError("no component is to blame")


def as_mixture(base: GaussianBase | MixtureBase) -> MixtureBase:
    """A Gaussian as a mixture of one component; a mixture as it is."""
    if isinstance(base, MixtureBase):
        return base
    return MixtureBase(np.ones(1), base.mean[None], base.covariance[None])


def pool_moments(weights: Array, means: Array, covariances: Array) -> tuple[Array, Array]:
    """Mean (d,) and covariance (d, d) of a mixture, from those of its components.

    Parameters
    ----------
    weights : (K,) array
    means : (K, d) array
    covariances : (K, d, d) array
    """
    mean = np.asarray(weights @ means)
    about = means - mean
    within = np.einsum("k,kij->ij", weights, covariances)
    return mean, np.asarray(within + (about.T * weights) @ about)


def guard_of(moments: Moments) -> tuple[float, Array, Array]:
    """(weight, mean, covariance) of the guard component for rows with these moments."""
    weight = GUARD_ROWS / (moments.n + GUARD_ROWS)
    return weight, moments.mean, GUARD_WIDTH**2 * moments.covariance


def guard_gaussian(base: GaussianBase, n_rows: float) -> MixtureBase:
    """A Gaussian with the guard of the rows whose moments it has."""
    weight = GUARD_ROWS / (n_rows + GUARD_ROWS)
    return MixtureBase(
        [1.0 - weight, weight], np.stack([base.mean] * 2),
        np.stack([base.covariance, GUARD_WIDTH**2 * base.covariance]), has_guard=True,
    )  # fmt: skip


def average_mixtures(
    mixtures: Sequence[MixtureBase], shares: Sequence[float] | None = None
) -> MixtureBase:
    """The mixture of mixtures. Guards, which must be of the same rows, become one.

    Parameters
    ----------
    mixtures : sequence of MixtureBase
    shares : sequence of float, default None
        Weight of each; by default equal ones.
    """
    if len(mixtures) == 1 or all(mixture.n_components == 1 for mixture in mixtures):
        return mixtures[0]
    shares = [1.0 / len(mixtures)] * len(mixtures) if shares is None else shares
    pairs = list(zip(mixtures, shares, strict=True))
    guards = [(m, share * float(m.weights[-1])) for m, share in pairs if m.has_guard]
    bare = [
        (share * m.weights[:size], m.means[:size], m.covariances[:size])
        for m, share in pairs
        for size in [m.n_components - m.has_guard]
    ]
    if guards:
        last = guards[0][0]
        weight = sum(share for _, share in guards)
        bare.append((np.array([weight]), last.means[-1:], last.covariances[-1:]))
    weights, means, covariances = map(np.concatenate, zip(*bare, strict=True))
    return MixtureBase(weights, means, covariances, has_guard=bool(guards))


def _pieces(n: int, width: int) -> Iterator[slice]:
    """Slices that cover n rows, each of which takes about PIECE numbers, ``width`` a row."""
    size = max(1, PIECE // width)
    return (slice(start, start + size) for start in range(0, n, size))


class FittedMixture(NamedTuple):
    """Result of `fit_mixture`."""

    mixture: MixtureBase
    mean: float  # log-likelihood of a row
    converged: bool


class _Fit:
    """Mixtures of growing size that are fitted to the same rows."""

    def __init__(self, x: Array, w: Array, seed: int) -> None:
        standards = measure_columns(x, w)
        self.scaling, self.learner = standards.scaling, Learner(standards.floor)
        self.rows = Rows.from_data(x, w, self.scaling, Threads())
        self.rng = np.random.default_rng(seed)
        self.components = one_component(self.rows, self.learner)

    def grow(self, size: int) -> None:
        """Split components until there are ``size`` of them, or none can be split."""
        while (K := len(self.components.weights)) < size:
            splits = find_splits(self.rows, self.learner, self.components, self.rng)
            limit = min(-(-K // 2), size - K)
            grown = apply_splits(self.components, splits, splits.gains, limit)
            if len(grown.weights) == K:
                return
            run = run_em(self.rows, self.learner, grown, max_steps=ROUND_STEPS)
            self.components = run.components
            if len(self.components.weights) <= K:
                return

    def finish(self) -> FittedMixture:
        """EM until it has converged."""
        run = run_em(
            self.rows, self.learner, self.components, max_steps=EM_STEPS, tolerance=EM_TOLERANCE
        )
        self.components = run.components
        log_density = self.learner.log_density(self.rows, self.components)
        mean = float(self.rows.share @ log_density) - self.scaling.log_volume
        return FittedMixture(mixture_of(self.components, self.scaling), mean, run.converged)


def components_of(mixture: MixtureBase, scaling: Scaling) -> Components:
    """Components of a mixture, without its guard, in standard coordinates."""
    bare = mixture.without_guard().rescaled(scaling)
    return Components(bare.weights, bare.means, bare.covariances)


def mixture_of(components: Components, scaling: Scaling) -> MixtureBase:
    """The mixture of components in standard coordinates, in units of the data."""
    by = np.outer(scaling.scale, scaling.scale)
    means = scaling.invert(components.means)
    return MixtureBase(components.weights, means, components.covariances * by)


def fit_mixture(x: Array, w: Array, n_components: int, *, seed: int = 0) -> FittedMixture:
    """A mixture with the highest likelihood that EM finds.

    It grows from one component by splits, with a few steps of EM after each round of them, and
    ends with EM until it has converged. No component gets narrower than the floor.

    Parameters
    ----------
    x : (n, d) array
    w : (n,) array
        Rows that each row counts as.
    n_components : int
        K; fewer are left where some come to have too few rows.
    seed : int, default 0
    """
    fit = _Fit(x, w, seed)
    fit.grow(n_components)
    return fit.finish()


def choose_mixture_by_bic(x: Array, w: Array, *, seed: int = 0) -> FittedMixture:
    """The mixture of 1, 2, 3, 4, 6, ... 20 components with the least BIC, grown by splits.

    Sizes are tried until two in a row have a higher BIC than the best, or a size would have more
    parameters than there are rows.
    """
    n, d = float(w.sum()), x.shape[1]
    fit = _Fit(x, w, seed)
    best: FittedMixture | None = None
    lowest, worse = np.inf, 0
    for size in SIZES:
        if _count_parameters(size, d) > min(n, len(x)):
            break
        fit.grow(size)
        found = fit.finish()
        kept = found.mixture.n_components
        bic = _count_parameters(kept, d) * np.log(n) - 2.0 * n * found.mean
        worse = worse + 1 if bic >= lowest else 0
        if bic < lowest:
            best, lowest = found, bic
        if worse == 2:
            break
    return fit.finish() if best is None else best


def _count_parameters(K: int, d: int) -> float:
    """Free parameters of a mixture: weights, means and covariances."""
    return K * (1 + d * (d + 3) / 2) - 1
