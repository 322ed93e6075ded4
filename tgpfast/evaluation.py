"""How near a density is to data. Knows no model, so measures rivals by the same ruler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import kernels
from .base import GaussianBase
from .blocks import Blocks, as_blocks
from .features import Array, as_floats, whole
from .marginals import Distance, Grids, Mass, block_rows, distance
from .notices import tell
from .progress import Progress
from .scaling import check_full_rank, moments_of

MASS_BYTES = 2**26  # of the CDFs that are held at once; more directions take further passes
AT_ONCE = 64  # directions for which the CDFs of the draws are held
PILOT_ROWS = 50_000  # rows that the ends of the grids are found from
FEW = 1_000  # effective draws below which the distances are mostly noise
KS_MEDIAN = 0.8276  # of Kolmogorov's distribution
FISHER_SHARE = 10  # one in so many of the scored rows serves the Fisher score, which costs more


@dataclass(frozen=True)
class Estimate:
    """A mean over rows: its value, its standard error, and how many rows it is of."""

    value: float
    standard_error: float
    n_rows: int

    def __str__(self) -> str:
        return f"{self.value:.6g} ± {self.standard_error:.2g} ({self.n_rows:,} rows)"


@dataclass(frozen=True, eq=False)
class Direction:
    """One direction: its coefficients by column name, and what was measured along it."""

    vector: dict[str, float]
    ks: float
    wd: float
    ks_error: float
    wd_error: float

    def __str__(self) -> str:
        along = direction_text(np.array(list(self.vector.values())), list(self.vector))
        return f"KS {self.ks:.4f} ± {self.ks_error:.4f}  WD {self.wd:.4g}  along {along}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` found. Arrays have one entry for each of the V directions.

    Attributes
    ----------
    ks, wd : Kolmogorov-Smirnov and Wasserstein distances, the latter in the units of the data
    ks_error, wd_error : their standard errors, from the finite numbers of rows and draws
    directions : (V, d) vectors of length 1
    columns : names of the data's columns; x1, x2, ... where they have none
    n_rows : rows of the data
    n_effective : what they count as with their weights (Kish); n_rows without
    effective_sample_size : what the model's weighted draws count as
    log_likelihood : mean log density of the rows, an `Estimate` (.value, .standard_error, .n_rows);
        its error holds that of the model's normaliser. None where the model has no log density
    fisher_score : mean of |grad log q|^2 / 2 + laplacian of log q, an `Estimate`: lower is better.
        In the units of the data: standardise them, or the narrowest column decides. None where the
        model has no gradient and laplacian
    """

    ks: Array
    wd: Array
    ks_error: Array
    wd_error: Array
    directions: Array
    columns: list[str]
    n_rows: int
    n_effective: float
    effective_sample_size: float
    log_likelihood: Estimate | None = None
    fisher_score: Estimate | None = None

    @property
    def median(self) -> tuple[float, float]:
        """(KS, WD)."""
        return float(np.median(self.ks)), float(np.median(self.wd))

    @property
    def mean(self) -> tuple[float, float]:
        """(KS, WD)."""
        return float(self.ks.mean()), float(self.wd.mean())

    @property
    def median_error(self) -> tuple[float, float]:
        """Standard errors of ``median`` as the median over all directions, (KS, WD)."""
        return _median_error(self.ks), _median_error(self.wd)

    @property
    def mean_error(self) -> tuple[float, float]:
        """Standard errors of ``mean`` as the mean over all directions, (KS, WD)."""
        return _mean_error(self.ks), _mean_error(self.wd)

    @property
    def noise_floor(self) -> float:
        """The KS that the model's own law would show in the median, rows and draws being finite."""
        return KS_MEDIAN * float(
            np.sqrt(1.0 / self.n_effective + 1.0 / self.effective_sample_size)
        )

    def worst(self, n: int = 5, by: str = "ks") -> list[Direction]:
        """The directions along which the density is farthest from the data, farthest first.

        Parameters
        ----------
        n : how many
        by : "ks" or "wd"
        """
        if by not in ("ks", "wd"):
            raise ValueError(f"by={by!r}: expected 'ks' or 'wd'")
        n = whole("n", n)
        order = np.argsort(-getattr(self, by), kind="stable")[:n]
        return [
            Direction(
                dict(zip(self.columns, self.directions[k].tolist(), strict=True)),
                *(float(a[k]) for a in (self.ks, self.wd, self.ks_error, self.wd_error)),
            )
            for k in order
        ]

    def summary(self) -> str:
        """A few lines of text."""
        lines = [
            f"{name:<7} KS {pair[0]:.4f} ± {error[0]:.4f}   WD {pair[1]:.4g} ± {error[1]:.2g}"
            for name, pair, error in (
                ("median", self.median, self.median_error), ("mean", self.mean, self.mean_error),
            )
        ]  # fmt: skip
        lines.append(
            f"noise   KS {self.noise_floor:.4f}: the median for a perfect model, with "
            f"{self.n_effective:,.0f} rows and {self.effective_sample_size:,.0f} effective draws"
        )
        lines += [f"worst   {direction}" for direction in self.worst(3)]
        for name, estimate in (
            ("log-likelihood", self.log_likelihood), ("Fisher score", self.fisher_score),
        ):  # fmt: skip
            lines.append(f"{name:<15} {'not known' if estimate is None else estimate}")
        return "\n".join(lines)


def evaluate(
    model: Any,
    X: Any,
    n_directions: int = 500,
    n_grid: int = 10_000,
    n_samples: int = 250_000,
    seed: int = 0,
    *,
    directions: Any = None,
    n_scored: int = 100_000,
    sample_weight: Any = None,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """How far a density is from data: by their marginal CDFs along random directions, as in
    Section 4 of the paper, by held-out log-likelihood and by the Fisher score.

    One pass over X, in memory that depends neither on its rows nor on the number of directions.

    Parameters
    ----------
    model : a density of tgpfast; or anything with ``sample(n, seed)`` (or ``random_state``, or
        neither) that gives rows; or anything with ``log_density(Y)`` (or ``score_samples``), which
        is then measured by weighted draws from a Gaussian with the moments of X
    X : rows, as for ``fit``; best rows that the model has not seen. Partitions of dask come here
        one after the other
    n_directions : uniform on the unit sphere
    n_grid : grid points along each direction, over the range of data and draws
    n_samples : draws from the model
    seed : of directions, draws, and of the rows that are scored
    directions : (V, d) vectors to look along instead of random ones; ``np.eye(d)`` for the columns
    n_scored : rows, taken at random, that log-likelihood and (one in ten of them) the Fisher score
        are means of; 0 leaves both out
    sample_weight : (n,) non-negative
    backend, n_threads : see ``accumulate``
    progress : show a bar on standard error

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(size=(2000, 2))
    >>> result = tgpfast.evaluate(tgpfast.GaussianBase.from_data(x[:1000]), x[1000:], 50)
    >>> result.median[0] < 0.05
    True
    """
    n_directions, n_grid = whole("n_directions", n_directions), whole("n_grid", n_grid)
    n_samples, n_scored = whole("n_samples", n_samples), whole("n_scored", n_scored, 0)
    rng = np.random.default_rng(whole("seed", seed, 0))
    columns = getattr(getattr(model, "table", None), "columns", None)
    dimension = getattr(model, "dimension", None)
    blocks = as_blocks(X, sample_weight=sample_weight, dimension=dimension, columns=columns)
    points, weights = _draws(model, blocks, n_samples, seed)
    d = points.shape[1]
    if blocks.dimension is not None and blocks.dimension != d:
        raise ValueError(f"X has {blocks.dimension} columns, and the model's draws have {d}")
    blocks.dimension, blocks.block_rows = d, block_rows(d)
    v = _directions(directions, n_directions, d, rng)
    rows = _Reservoir(0 if _log_density_of(model) is None else n_scored, rng)
    module = kernels.load(backend)
    # BLAS held to one thread throughout: its idle threads would spin on the cores we need
    with kernels.threads(module, kernels.resolve_threads(module, n_threads)):
        grids = _grids(v, n_grid, points, blocks)
        found = list(_distances(grids, blocks, rows, points, weights, backend, n_threads, progress))
    effective = _kish(weights)
    if effective < FEW <= n_samples:
        tell(
            f"of {n_samples:,} draws only {effective:,.0f} count, so KS and WD err by about "
            f"{0.5 / np.sqrt(effective):.2g} and are mostly noise: the density is far from the "
            "Gaussian it is drawn from. Raise n_samples"
        )
    likelihood, fisher = _scores(model, rows)
    return Evaluation(
        **{name: np.array([getattr(f, name) for f in found]) for name in vars(found[0])},
        directions=v, columns=blocks.table.columns or [f"x{k + 1}" for k in range(d)],
        n_rows=rows.seen, n_effective=rows.n_effective, effective_sample_size=effective,
        log_likelihood=likelihood, fisher_score=fisher,
    )  # fmt: skip


def direction_text(vector: Array, columns: list[str], n: int = 3) -> str:
    """A direction by its largest coefficients: "0.81 length - 0.52 width + ..."."""
    shown = np.flatnonzero(np.abs(vector) >= 0.005)
    order = shown[np.argsort(-np.abs(vector[shown]), kind="stable")]
    signs = ["-" if vector[k] < 0 else "+" for k in order[:n]]
    pairs = zip(signs, order, strict=False)
    text = " ".join(f"{sign} {abs(vector[k]):.2f} {columns[k]}" for sign, k in pairs)
    text = text[2:] if text.startswith("+") else "-" + text[2:]
    return text + (" + ..." if len(order) > n else "")


def _directions(given: Any, n: int, d: int, rng: np.random.Generator) -> Array:
    v: Array = rng.standard_normal((n, d))
    if given is not None:
        v = as_floats(given, "directions", "(V, d)", 2)
    if v.ndim != 2 or v.shape[1] != d or not len(v):
        raise ValueError(f"directions has shape {v.shape}; expected (V, {d}) with V >= 1")
    length = np.linalg.norm(v, axis=1, keepdims=True)
    if not (length > 0).all():
        raise ValueError(f"directions has a vector of length 0 at row {int(np.argmin(length))}")
    return np.ascontiguousarray(v / length)


def _grids(v: Array, n_grid: int, points: Array, blocks: Blocks) -> Grids:
    """From a part of either sample where rows can be had from all over the data: what lies beyond
    both parts is a few draws in 100,000."""
    pilot = blocks.pilot(PILOT_ROWS)
    if pilot is None:
        return Grids.between(v, n_grid, points, None)
    return Grids.between(v, n_grid, points[:PILOT_ROWS], pilot[0])


def _distances(
    grids: Grids, blocks: Blocks, rows: _Reservoir, points: Array, weights: Array, backend: str,
    n_threads: int | None, progress: bool,
) -> Iterator[Distance]:  # fmt: skip
    """Along every direction, in as many passes over the blocks as memory demands; the first one
    gives the reservoir its rows."""
    n, group = len(grids.directions), max(1, MASS_BYTES // (8 * (grids.n_grid + 1)))
    starts = range(0, n, group if blocks.can_repeat else n)
    total = None if blocks.n_rows is None else blocks.n_rows * len(starts)
    with Progress(progress, "rows", total) as bar:
        for start in starts:
            of_data = Mass(grids.part(start, start + starts.step), backend, n_threads)
            for x, w in blocks:
                of_data.add(x, w)
                if start == 0:
                    rows.add(x, w)
                bar.add(len(x))
            for first in range(0, len(of_data.grids.directions), AT_ONCE):
                part = of_data.part(first, first + AT_ONCE)
                of_model = _mass_of_draws(part.grids, points, weights, backend, n_threads)
                for v in range(len(part.grids.directions)):
                    yield distance(part, of_model, v)
            del of_data, part, of_model  # before the next pass takes as much


# -- the model's side ----------------------------------------------------------------------------


def _draws(model: Any, blocks: Blocks, n: int, seed: int) -> tuple[Array, Array]:
    """Draws and their weights."""
    if hasattr(model, "_weighted_sample"):
        points, weights = model._weighted_sample(n, seed)
        return points, weights
    if hasattr(model, "sample"):
        points = Blocks(_call_sample(model.sample, n, seed), name="the model's sample").whole()
        return points, np.ones(len(points))
    log_density = _log_density_of(model)
    if log_density is None:
        raise TypeError(
            f"{type(model).__name__} has neither sample(n, seed) nor log_density(Y); one is needed"
        )
    if not blocks.can_repeat:
        raise ValueError(
            "X can be read only once, and a model without sample(n, seed) needs its moments first; "
            "pass a list of blocks, or a callable"
        )
    moments = moments_of(blocks)
    check_full_rank(moments, blocks.table.columns)
    proposal = GaussianBase(moments.mean, moments.covariance)
    points = proposal.sample(n, seed)
    log_weights = np.asarray(log_density(points), float) - proposal.log_density(points)
    if np.isnan(log_weights).any() or not log_weights.max() > -np.inf:
        raise ValueError("the model's log density is not a number, or is -inf wherever data lie")
    return points, np.exp(log_weights - log_weights.max())


def _call_sample(sample: Callable[..., Any], n: int, seed: int) -> Any:
    """Rows, from a sampler that names its seed as we do, as scikit-learn does, or not at all."""
    try:
        names = set(inspect.signature(sample).parameters)
    except (TypeError, ValueError):
        names = {"seed"}
    word = next((w for w in ("seed", "random_state") if w in names), None)
    rows = sample(n) if word is None else sample(n, **{word: seed})
    return rows[0] if isinstance(rows, tuple) else rows  # mixtures return (rows, labels)


def _log_density_of(model: Any) -> Callable[[Any], Any] | None:
    return getattr(model, "log_density", None) or getattr(model, "score_samples", None)


def _kish(weights: Array) -> float:
    return float(weights.sum() ** 2 / (weights @ weights))


def _mass_of_draws(
    grids: Grids, points: Array, weights: Array, backend: str, n_threads: int | None
) -> Mass:
    mass, size = Mass(grids, backend, n_threads), block_rows(points.shape[1])
    plain = bool((weights == 1.0).all())
    for start in range(0, len(points), size):
        rows = slice(start, start + size)
        mass.add(points[rows], None if plain else weights[rows])
    return mass


# -- the rows that are scored --------------------------------------------------------------------


class _Reservoir:
    """At most k rows of a stream of any length, each equally likely to be among them."""

    def __init__(self, k: int, rng: np.random.Generator) -> None:
        self.k, self.seen, self._rng = int(k), 0, rng
        self._x: list[Array] = []
        self._w: list[Array] = []
        self._sums = np.zeros(2)  # of the weights and of their squares, of all rows

    def add(self, x: Array, w: Array | None) -> None:
        weights = np.ones(len(x)) if w is None else w
        self._sums += weights.sum(), weights @ weights
        room = min(max(self.k - self.seen, 0), len(x))
        if room:
            self._x.append(x[:room].copy())
            self._w.append(weights[:room].copy())
        if room < len(x) and self.k:
            held, held_w = self.rows()
            # row t (from 0) takes the place of one of the k with probability k / (t + 1)
            place = np.floor(
                self._rng.random(len(x) - room) * (self.seen + 1 + np.arange(room, len(x)))
            )
            taken = np.flatnonzero(place < self.k)
            held[place[taken].astype(np.int64)] = x[room + taken]
            held_w[place[taken].astype(np.int64)] = weights[room + taken]
        self.seen += len(x)

    def rows(self) -> tuple[Array, Array]:
        """The rows and their weights."""
        if len(self._x) > 1:
            self._x, self._w = [np.concatenate(self._x)], [np.concatenate(self._w)]
        return self._x[0], self._w[0]

    @property
    def n_effective(self) -> float:
        """What all rows count as with their weights."""
        return float(self._sums[0] ** 2 / self._sums[1])


def _scores(model: Any, rows: _Reservoir) -> tuple[Estimate | None, Estimate | None]:
    """(mean log density, mean Fisher score), each None where the model does not give it."""
    log_density = _log_density_of(model)
    if not rows.k or log_density is None:
        return None, None
    x, w = rows.rows()
    likelihood = _mean(np.asarray(log_density(x), float), w)
    known = getattr(getattr(model, "log_normalizer", None), "standard_error", 0.0)
    likelihood = Estimate(
        likelihood.value, float(np.hypot(likelihood.standard_error, known)), likelihood.n_rows
    )
    if not (hasattr(model, "grad_log_density") and hasattr(model, "laplacian_log_density")):
        return likelihood, None
    some = np.random.default_rng(len(x)).permutation(len(x))[: max(1, rows.k // FISHER_SHARE)]
    slope = np.asarray(model.grad_log_density(x[some]), float)
    terms = 0.5 * np.square(slope).sum(axis=1)
    terms += np.asarray(model.laplacian_log_density(x[some]), float)
    return likelihood, _mean(terms, w[some])


def _mean(values: Array, weights: Array) -> Estimate:
    """Weighted mean, with the standard error of a ratio of sums."""
    total = float(weights.sum())
    mean = float(weights @ values / total)
    n = len(values)
    with np.errstate(invalid="ignore"):
        square = float(np.square(weights * (values - mean)).sum())
    error = np.sqrt(square * n / max(n - 1, 1)) / total
    return Estimate(mean, float(error) if n > 1 else float("nan"), n)


def _mean_error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _median_error(values: Array) -> float:
    """Half the gap between the order statistics a standard deviation of the rank apart."""
    n = len(values)
    if n < 4:
        return float("nan")
    half = 0.5 * np.sqrt(n)
    low, high = int(np.floor(0.5 * n - half)), int(np.ceil(0.5 * n + half)) - 1
    ordered = np.sort(values)
    return float(ordered[min(high, n - 1)] - ordered[max(low, 0)]) / 2.0
