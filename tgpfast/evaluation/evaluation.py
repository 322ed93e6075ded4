"""Distances between a density and data. Works with any model that has log_density or sample."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import kernels
from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks, as_blocks
from ..data.moments import check_full_rank, moments_of
from ..data.scaling import Scaling
from ..runtime.progress import Progress
from ..runtime.warnings import PoorSampleWarning, warn
from ..validation import Array, as_floats, whole
from .marginals import Distance, Grids, Mass, block_rows, distance

MASS_BYTES = 2**26  # of the CDFs that are held at once; more directions take further passes
AT_ONCE = 64  # directions for which the CDFs of the draws are held
PILOT_ROWS = 50_000  # rows from which the ends of the grids and the columns' scales are taken
FEW = 1_000  # effective draws below which the distances are mostly noise
KS_MEDIAN = 0.8276  # of Kolmogorov's distribution
FISHER_SHARE = 10  # one in so many of the scored rows serves the Fisher score, which costs more
UNITS = ("standardized", "data")
LEAST_EFFECTIVE = 1.5  # rows or draws, counted by weight; below it no error can be estimated
SHOWN_COLUMNS = 5  # columns in the summary, worst first


@dataclass(frozen=True)
class Estimate:
    """A mean over rows: its value, its standard error, and how many rows it is of."""

    value: float
    standard_error: float
    n_rows: int

    def __str__(self) -> str:
        rows = "1 row" if self.n_rows == 1 else f"{self.n_rows:,} rows"
        return f"{self.value:.6g}{_plus_minus(self.standard_error, '.2g')} ({rows})"


@dataclass(frozen=True)
class ColumnDistance:
    """One column by itself: its name, and the distances between its data and the model's."""

    name: str
    ks: float
    wd: float
    ks_error: float
    wd_error: float

    def __str__(self) -> str:
        return f"{_distance_text(self)}  {self.name}"


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
        return f"{_distance_text(self)}  along {along}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` found. Arrays have one entry for each of the V directions.

    ``print(evaluation)`` prints ``summary()``.

    Attributes
    ----------
    ks, wd : Kolmogorov-Smirnov and Wasserstein distances. The Wasserstein distance is in standard
        deviations of the columns with units="standardized", in the units of the data otherwise
    ks_error, wd_error : their standard errors, from the finite numbers of rows and draws; nan where
        one row or one effective draw does not give any
    directions : (V, d) vectors of length 1, in the coordinates that ``units`` names
    columns : names of the data's columns; x1, x2, ... where they have none
    by_column : one `ColumnDistance` for each column by itself, in the order of the columns
    units : "standardized" or "data"
    scale : (d,) what each column was divided by; ones with units="data"
    scale_source : where ``scale`` comes from: "data" (standard deviations of the rows), "model"
        (the scaling that the model was fitted with), "draws" (standard deviations of the model's
        draws), or "none" with units="data"
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
    by_column: list[ColumnDistance]
    units: str
    scale: Array
    scale_source: str
    log_likelihood: Estimate | None = None
    fisher_score: Estimate | None = None

    def __str__(self) -> str:
        return self.summary()

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
        """A few lines of text: distances over the directions, then the worst directions and
        columns, then log-likelihood and Fisher score. Unknown errors are left out."""
        lines = [
            f"{name:<7} {_pair_text(pair, error)}"
            for name, pair, error in (
                ("median", self.median, self.median_error), ("mean", self.mean, self.mean_error),
            )
        ]  # fmt: skip
        unit = "standard deviations" if self.units == "standardized" else "the units of the data"
        lines.append(f"units   {self.units}: WD is in {unit}")
        lines.append(
            f"noise   KS {self.noise_floor:.4f}: the median for a perfect model, with "
            f"{self.n_effective:,.0f} rows and {self.effective_sample_size:,.0f} effective draws"
        )
        lines += [f"worst   {direction}" for direction in self.worst(3)]
        by_ks = sorted(self.by_column, key=lambda column: -column.ks)
        lines += [f"column  {column}" for column in by_ks[:SHOWN_COLUMNS]]
        if len(by_ks) > SHOWN_COLUMNS:
            lines.append(f"        {len(by_ks) - SHOWN_COLUMNS} more columns are in by_column")
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
    units: str = "standardized",
    n_scored: int = 100_000,
    sample_weight: Any = None,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Measure how far a density is from data: by the marginal CDFs along random directions, as in
    Section 4 of the paper, and of every column; by held-out log-likelihood and Fisher score.

    Reads X once, in memory that depends neither on its rows nor on the number of directions. With
    units="standardized" a list of blocks, or a callable, is read once more for the columns' scales.

    Parameters
    ----------
    model : a density of tgpfast; or anything with ``sample(n, seed)`` (or ``random_state``, or
        neither) that gives rows; or anything with ``log_density(Y)`` (or ``score_samples``), which
        is then measured by weighted draws from a Gaussian with the moments of X
    X : rows, as for ``fit``; best rows that the model has not seen. Partitions of dask come here
        one after the other
    n_directions : uniform on the unit sphere of the coordinates that ``units`` names; each column
        is measured as well, by itself
    n_grid : grid points along each direction, over the range of data and draws
    n_samples : draws from the model
    seed : of directions, draws, and of the rows that are scored
    directions : (V, d) vectors to look along instead of random ones, in the coordinates that
        ``units`` names
    units : "standardized": every column is first divided by its standard deviation, so that columns
        of a small scale count as much as the others. The standard deviations are those of X, from
        at most 50,000 rows spread over it. An iterator that can be read only once has none
        beforehand: then the scaling that the model was fitted with serves, or else the standard
        deviations of the model's draws. "data": the units of X, as in the paper; the columns of
        the largest scale then decide. Log-likelihood and Fisher score are always in the units of X
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
    if units not in UNITS:
        raise ValueError(f"units={units!r}: expected one of {', '.join(map(repr, UNITS))}")
    rng = np.random.default_rng(whole("seed", seed, 0))
    columns = getattr(getattr(model, "table", None), "columns", None)
    dimension = getattr(model, "dimension", None)
    blocks = as_blocks(X, sample_weight=sample_weight, dimension=dimension, columns=columns)
    points, weights = _draws(model, blocks, n_samples, seed)
    d = points.shape[1]
    if blocks.dimension is not None and blocks.dimension != d:
        raise ValueError(f"X has {blocks.dimension} columns, and the model's draws have {d}")
    blocks.dimension, blocks.block_rows = d, block_rows(d)
    pilot = blocks.pilot(PILOT_ROWS)
    scaling, source = _scaling(units, model, blocks, pilot, points, weights)
    points = scaling.apply(points)
    v = _directions(directions, n_directions, d, rng)
    rows = _Reservoir(0 if _log_density_of(model) is None else n_scored, rng)
    module = kernels.load(backend)
    # BLAS held to one thread throughout: its idle threads would spin on the cores we need
    with kernels.threads(module, kernels.resolve_threads(module, n_threads)):
        axes = np.concatenate([v, np.eye(d)])
        if pilot is None:
            grids = Grids.between(axes, n_grid, points, None)
        else:  # a part of either sample: what lies beyond both is a few draws in 100,000
            part = scaling.apply(pilot[0])
            grids = Grids.between(axes, n_grid, points[:PILOT_ROWS], part)
        del pilot
        found = list(
            _distances(
                grids, blocks, scaling, rows, points, weights, backend, n_threads, progress
            )
        )
    effective = _kish(weights)
    if min(rows.n_effective, effective) < LEAST_EFFECTIVE:
        found = [replace(f, ks_error=np.nan, wd_error=np.nan) for f in found]
    if effective < FEW <= n_samples:
        warn(
            f"of {n_samples:,} draws only {effective:,.0f} count, so KS and WD err by about "
            f"{0.5 / np.sqrt(effective):.2g} and are mostly noise: the density is far from the "
            "Gaussian it is drawn from. Raise n_samples",
            PoorSampleWarning,
        )
    likelihood, fisher = _scores(model, rows)
    names = blocks.table.columns or [f"x{k + 1}" for k in range(d)]
    along, by_column = found[: len(v)], found[len(v) :]
    return Evaluation(
        **{name: np.array([getattr(f, name) for f in along]) for name in vars(found[0])},
        directions=v, columns=names,
        by_column=[
            ColumnDistance(name, **vars(f)) for name, f in zip(names, by_column, strict=True)
        ],
        units=units, scale=scaling.scale, scale_source=source, n_rows=rows.seen,
        n_effective=rows.n_effective, effective_sample_size=effective,
        log_likelihood=likelihood, fisher_score=fisher,
    )  # fmt: skip


def _plus_minus(error: float, digits: str) -> str:
    """" ± 0.01", or nothing where the error is not known."""
    return f" ± {error:{digits}}" if np.isfinite(error) else ""


def _pair_text(pair: tuple[float, float], error: tuple[float, float]) -> str:
    ks = f"KS {pair[0]:.4f}{_plus_minus(error[0], '.4f')}"
    return f"{ks}   WD {pair[1]:.4g}{_plus_minus(error[1], '.2g')}"


def _distance_text(found: ColumnDistance | Direction) -> str:
    return _pair_text((found.ks, found.wd), (found.ks_error, found.wd_error))


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


def _scaling(
    units: str, model: Any, blocks: Blocks, pilot: tuple[Array, Array | None] | None,
    points: Array, weights: Array,
) -> tuple[Scaling, str]:  # fmt: skip
    """The map from data to the coordinates of the directions, and where its scale comes from. The
    centre changes no distance."""
    d = points.shape[1]
    if units == "data":
        return Scaling.identity(d), "none"
    if pilot is not None:
        w = pilot[1] if pilot[1] is not None and pilot[1].any() else None
        moments, source = moments_of(Blocks(pilot[0], sample_weight=w)), "data"
    elif blocks.can_repeat:
        moments, source = moments_of(blocks), "data"
    else:
        known = getattr(model, "scaling", None)
        if isinstance(known, Scaling) and not bool((known.scale == 1.0).all()):
            return known, "model"
        moments, source = moments_of(Blocks(points, sample_weight=weights)), "draws"
    scale = moments.deviation
    if not (scale > 0).all():  # a constant column has the scale of the draws, if they have any
        of_draws = moments_of(Blocks(points, sample_weight=weights)).deviation
        scale = np.where(scale > 0, scale, np.where(of_draws > 0, of_draws, 1.0))
    return Scaling(moments.mean, scale), source


def _distances(
    grids: Grids, blocks: Blocks, scaling: Scaling, rows: _Reservoir, points: Array,
    weights: Array, backend: str, n_threads: int | None, progress: bool,
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
                of_data.add(scaling.apply(x), w)
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
    # some libraries, scipy among them, give a number for one row
    likelihood = _mean(np.atleast_1d(np.asarray(log_density(x), float)), w)
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
