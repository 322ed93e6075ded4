"""Settings chosen from the data: base, frequencies, bandwidth, method, lambda and eta.

A pilot of the rows is cut into folds. For every base, shape of the frequencies and bandwidth, few
features are evaluated once, on the rows and on draws from the base and from a wider one; every
method and lambda is then linear algebra on them. What counts is the held-out log-likelihood, whose
normalizer comes from draws that took no part in learning, half of them from a wider base, so that a
tilt that grows where the base is thin is seen. A score is not believed where few draws carry the
density, or where the tilt moves mass away from the data. The bases alone, lambda being infinite,
are among the candidates.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.linalg.blas import dsyrk

from .. import kernels
from ..bases.gaussian import Base, GaussianBase
from ..bases.mixture import MixtureBase
from ..bases.quasirandom import logsumexp
from ..bases.student import StudentBase
from ..density.proposal import Proposal, widen_base
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..validation import Array

LIKE = {"ncfd": "fd"}  # NCFD takes the settings that suit FD
ROWS = 6_000  # of the pilot
FEW_ROWS, FOLDS = 3_000, 4  # up to so many rows are cut into folds; above, one part is held out
SCREEN_FEATURES = 192  # at most, while candidates are compared
LOG2_DRAWS = 12  # draws behind a normaliser, and as many nodes of MAP
LEAST_SHARE = 0.005  # of the draws that must count, or a score is not believed
FAR, MOST_FAR = 3.0, 0.02  # bandwidths that are far, and the share of mass allowed there
# of Scott's bandwidth, tried first; with those sqrt(2) times the best, and the second look, which
# goes on downwards, 0.2 to 8 are covered
MULTIPLES = tuple((0.2 * 2.0**0.5 * 20.0 ** (np.arange(5) / 4.0)).tolist())
LAMS = tuple((10.0 ** np.arange(-1.0, 4.1, 0.5)).tolist())
BASE_ALONE = 1e30  # a lambda that leaves nothing of the tilt
MAP_LAMS = (100.0, 10.0, 1.0, 0.1)
MAP_STEPS, MAP_GAIN = 15, 1e-4  # Newton steps at most; gain of the mean objective that ends them
TEMPERS = (0.3, 1.0, 3.0)  # times 1 / gamma^2
BETTER = 0.002  # log-likelihood by which a tilt must beat the bases,
ERRORS = 2.0  # and times the standard error of what it gains: many candidates are tried


@dataclass(frozen=True)
class Trial:
    """One candidate: its settings and what held-out rows say of it.

    score : mean held-out log-likelihood a row, in the model's coordinates; -inf if not believed
    error : its standard error
    effective_share : of the draws that carry the density
    far_share : of the density farther than three bandwidths from every row learned from, beyond
        what the base itself has there
    gain_error : standard error of what the tilt gains over its base, row by row
    fisher : held-out Fisher score of FD, a row, less that of its base: the cheap screen
    parts : the scores of the rows held out, one `Scored` a fold; not in the table
    """

    base: str
    method: str
    frequency_covariance: str
    gamma_multiple: float
    lam: float
    eta_multiple: float
    score: float
    error: float
    effective_share: float
    far_share: float = 0.0
    gain_error: float = 0.0
    fisher: float = np.nan
    parts: tuple[Scored, ...] = field(default=(), repr=False, compare=False)

    def error_of_gain(self, other: Trial) -> float:
        """Standard error of the difference of the two scores, row by row; 0 where unknown."""
        pairs = list(zip(self.parts, other.parts, strict=False))
        if not pairs:
            return 0.0
        return standard_error([a.values - b.values for a, b in pairs], list(self.parts))


@dataclass(frozen=True)
class Question:
    """What is open: the values that each setting may take."""

    bases: tuple[Any, ...] = ("empirical", "student", "mixture")
    methods: tuple[str, ...] = ("fd", "fvpd", "map")
    shapes: tuple[Any, ...] = ("data", "identity", "precision")
    gammas: tuple[float, ...] | None = None  # bandwidths; None: multiples of Scott's
    lams: tuple[float, ...] | None = None
    etas: tuple[float, ...] | None = None  # None: multiples of 1 / gamma^2
    tempers: tuple[float, ...] = TEMPERS  # those multiples


@dataclass(frozen=True, eq=False)
class Selection:
    """The best trial, and all of them, best first.

    scott : the bandwidth that multiples are of
    n_components : of the pilot's mixture, or 1
    final : scores of numbers of features and lambdas with all rows
    """

    best: Trial
    trials: list[Trial]
    scott: float
    n_components: int = 1
    final: list[dict[str, float]] = field(default_factory=list)

    def best_tilt_of(self, base: str) -> Trial | None:
        """The best trial that tilts a base, whether it beats that or not; None without one."""
        tilts = [t for t in self.trials if t.base == base and np.isfinite([t.lam, t.score]).all()]
        return max(tilts, key=lambda t: t.score, default=None)

    def table(self, log_volume: float, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """One dictionary for each candidate: the chosen one, then the others, best first.

        The second look and the verification may settle on a method, bandwidth or lambda that no
        trial of the pilot had: then the chosen one is a row of its own, whose score is that of the
        second look, or nan where it was not scored.

        Parameters
        ----------
        log_volume : of the scaling; scores are less by it in the units of the data
        settings : of the model
        """
        names = [f.name for f in fields(Trial) if f.name != "parts"]
        chosen = self.best
        if settings["method"] == "base":
            chosen = next(t for t in self.trials if np.isinf(t.lam) and t.base == chosen.base)
        elif not self._is_of(chosen, settings):
            chosen = self._settled(chosen, settings)
        others = [trial for trial in self.trials if trial is not chosen]
        rows = []
        for trial in [chosen, *others]:
            row = {name: getattr(trial, name) for name in names}
            row.update(score=trial.score - log_volume, chosen=trial is chosen)
            rows.append(row)
        return rows

    def _is_of(self, trial: Trial, settings: dict[str, Any]) -> bool:
        """Whether a trial had the method, lambda and bandwidth of a model."""
        gamma = trial.gamma_multiple * self.scott
        same = np.allclose([trial.lam, gamma], [settings["lam"], settings["gamma"]], rtol=1e-9)
        return bool(same) and LIKE.get(settings["method"], settings["method"]) == trial.method

    def _settled(self, trial: Trial, settings: dict[str, Any]) -> Trial:
        """The trial with the settings that the model has in the end."""
        wanted = [settings[name] for name in ("n_features", "gamma", "lam")]
        scores = [
            row["score"] for row in self.final
            if np.allclose([row[name] for name in ("n_features", "gamma", "lam")], wanted)
        ]  # fmt: skip
        known = bool(scores) and trial.method == settings["method"]
        return replace(
            trial, method=settings["method"], lam=settings["lam"],
            gamma_multiple=settings["gamma"] / self.scott, score=scores[-1] if known else np.nan,
            error=np.nan, gain_error=np.nan, fisher=np.nan,
        )  # fmt: skip


def scott(n: float, d: int, spread: float) -> float:
    """Scott's rule: n^(-1/(d+4)) times the root of the mean variance."""
    return float(n ** (-1.0 / (d + 4)) * np.sqrt(spread))


def select(
    x: Array,
    w: Array,
    question: Question,
    shape_of: Any,
    *,
    n_features: int,
    seed: int,
    threads: Threads,
    one_standard_error: bool = False,
    progress: bool = False,
) -> Selection | None:
    """Compare candidates on rows x, each of which counts w > 0 rows, in the model's coordinates.

    shape_of : name of a frequency covariance -> (d, d)

    None where no base can be learned from the rows that are kept: too few, or in a plane.
    """
    size = min(n_features, SCREEN_FEATURES)
    screen = _Screen(x, w, held_out(len(x)), question, shape_of, size, seed, threads)
    trials: list[Trial] = []
    # BLAS on one thread: the matrices are small, and its idle threads would spin on our cores
    with kernels.threads(*threads.resolve()), Progress(progress, "candidates", None) as bar:
        for trial in screen.run():
            trials.append(trial)
            bar.add(1)
    if not trials:
        return None
    ordered = sorted(trials, key=lambda t: -t.score)
    best = _choice(
        trials, lam_is_open=question.lams is None, one_standard_error=one_standard_error
    )
    mixtures = [fold.base for fold in screen.bases.get("mixture", [])]
    sizes = [m.n_components - 1 for m in mixtures if isinstance(m, MixtureBase)]  # less the guard
    least = max(min(sizes, default=1), 1)
    return Selection(best, ordered, screen._scott(), least)


def held_out(n: int) -> list[Any]:
    """Masks of the rows that are held out, one a fold."""
    index = dealt(n, FOLDS)
    return [index == k for k in range(FOLDS if n <= FEW_ROWS else 1)]


def dealt(n: int, parts: int) -> Any:
    """For n rows the number of the part, of as many rows as the others, that each falls to: by
    chance, the same each time. Regular parts of rows that come in turns would differ in kind."""
    return np.random.default_rng(0).permutation(n) % parts


def _choice(
    trials: Sequence[Trial], *, lam_is_open: bool = True, one_standard_error: bool = False
) -> Trial:
    """The highest score, if it beats every bare base by BETTER and by ERRORS of the gain; the
    best of those otherwise, or, if lambda is given and may not be infinite, where nothing else is
    believed.

    one_standard_error : of all that come within one standard error of the best, row by row, the
        simplest: a bare base, else the largest lambda, else the largest bandwidth
    """
    bare = max((t for t in trials if np.isinf(t.lam)), key=lambda t: t.score)
    tilted = [t for t in trials if np.isfinite(t.lam) and np.isfinite(t.score)]
    if lam_is_open:
        alone = {t.base: t.score for t in trials if np.isinf(t.lam)}
        tilted = [
            t for t in tilted
            if t.score > alone[t.base] + max(BETTER, ERRORS * t.gain_error)
            and t.score > bare.score + max(BETTER, ERRORS * t.error_of_gain(bare))
        ]  # fmt: skip
    best = max(tilted, key=lambda t: t.score, default=bare)
    if not one_standard_error or best is bare:
        return best
    near = [t for t in tilted if t.score >= best.score - t.error_of_gain(best)]
    return max(near, key=lambda t: (t.lam, t.gamma_multiple))


@dataclass(frozen=True, eq=False)
class Scored:
    """Log densities of the rows held out in one fold, their weights, which sum to 1, the share of
    the draws that carry the density, and that of its mass far from data beyond the base's own."""

    values: Array
    share: float
    far: float
    weights: Array

    @property
    def is_believed(self) -> bool:
        """Enough draws count, and the tilt has not moved mass away from the data."""
        return self.share >= LEAST_SHARE and self.far <= MOST_FAR

    @property
    def mean(self) -> float:
        """Held-out log-likelihood a row; -inf where it is not believed."""
        return float(self.weights @ self.values) if self.is_believed else -np.inf

    def over(self, values: Array) -> Scored:
        """The gain over other log densities."""
        return replace(self, values=self.values - values)


def standard_error(values: list[Array], parts: list[Scored]) -> float:
    """Standard error of the mean over folds of weighted means of the values."""
    variance = sum(
        float(np.square(p.weights) @ np.square(v - p.weights @ v))
        for v, p in zip(values, parts, strict=True)
    )
    return float(np.sqrt(variance)) / len(parts)


def distinct(pilot: tuple[Array, Array | None] | None) -> tuple[Array, Array]:
    """Distinct rows of a pilot, in order, and their weights; those of weight 0 are left out.

    A row that stands in both parts of a split would reward a density for spikes at its rows.
    """
    if pilot is None:
        return np.zeros((0, 1)), np.zeros(0)
    x, w = pilot
    x, w = (x, np.ones(len(x))) if w is None else (x[w > 0], w[w > 0])
    _, first, which = np.unique(x, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(x):
        return x, w
    order = np.argsort(first)
    return x[first[order]], np.asarray(np.bincount(which.ravel(), w)[order], np.float64)


def weighted_gram(block: Array, weights: Array) -> Array:
    """sum_i w_i b_i b_i^T over the columns of a block (S, n), by half the flops of a product."""
    upper = dsyrk(1.0, (block * np.sqrt(weights)).T, trans=1)
    return np.asarray(upper + np.triu(upper, 1).T)


def distances_to(rows: Array, points: Array) -> Array:
    """Distance of every point from the nearest row."""
    from scipy.spatial import cKDTree

    return np.asarray(cKDTree(rows).query(points)[0])


@dataclass(frozen=True, eq=False)
class Fold:
    """A base learned from the rows that are kept, and draws from it and from a wider one.

    held_weights : sum to 1
    draws, nodes : (n, d), behind normalizers and behind MAP
    draw_ratios, node_ratios : (n,) log of the base's density over that of the draws
    held_base : log density of the base at the rows held out
    nearest : distance of every draw from the nearest row that is kept
    """

    base: Base
    kept: Array
    held: Array
    kept_weights: Array
    held_weights: Array
    draws: Array
    draw_ratios: Array
    nodes: Array
    node_ratios: Array
    held_base: Array
    nearest: Array

    @classmethod
    def of(
        cls, base: Base, kept: Array, held: Array, kept_weights: Array, held_weights: Array, *,
        nearby: Array, log2_draws: int, log2_nodes: int | None, seed: int,
    ) -> Fold:  # fmt: skip
        """nearby : rows that distances are taken to; log2_nodes : None without MAP."""
        proposal = Proposal(base, widen_base(base))
        draws = proposal.sobol(log2_draws, seed + 1)
        nodes = kept[:0] if log2_nodes is None else proposal.sobol(log2_nodes, seed + 2)
        return cls(
            base, kept, held, kept_weights, held_weights, draws, proposal.log_ratio(draws), nodes,
            proposal.log_ratio(nodes), base.log_density_at(held), distances_to(nearby, draws),
        )  # fmt: skip


def _are_single(folds: list[Fold]) -> bool:
    return all(getattr(fold.base, "n_components", 1) == 1 for fold in folds)


class _Screen:
    def __init__(
        self, x: Array, w: Array, folds: list[Any], question: Question, shape_of: Any,
        n_features: int, seed: int, threads: Threads,
    ) -> None:  # fmt: skip
        self.x, self.w, self.masks, self.question = x, w, folds, question
        self.shape_of, self.n_features = shape_of, n_features
        self.seed, self.threads = seed, threads
        about = x - w @ x / w.sum()
        self.spread = float((w @ np.square(about)).sum() / w.sum() / x.shape[1])
        self.bases: dict[str, list[Fold]] = {}
        self.least_fisher: dict[tuple[str, str, float], float] = {}  # of base, shape, bandwidth

    def run(self) -> Iterator[Trial]:
        """Bases alone; then FD, coarse and fine, on the best two of them; then what is dearer."""
        scores: dict[str, float] = {}
        for kind in self.question.bases:
            name = kind if isinstance(kind, str) else "given"
            try:
                self.bases[name] = [self._fold(kind, mask) for mask in self.masks]
            except ValueError:  # without those held out, rows lie in a plane
                continue
            if name == "mixture" and "empirical" in self.bases and _are_single(self.bases[name]):
                del self.bases[name]  # the Gaussian once more, without what it alone has
                continue
            trial = self._bare(name)
            scores[name] = trial.score
            yield trial
        worthy = sorted(scores, key=lambda k: -scores[k])[:2]
        for name in worthy:
            found: dict[tuple[Any, float], float] = {}
            for gamma in self._gammas():
                for shape in self.question.shapes:
                    for trial in self._cheap(name, shape, gamma):
                        key = shape if isinstance(shape, str) else "given", gamma
                        found[key] = max(found.get(key, -np.inf), trial.score)
                        yield trial
            if self.question.gammas is None and found:
                shape, gamma = max(found, key=lambda k: found[k])
                for factor in (2.0**-0.5, 2.0**0.5):
                    for trial in self._cheap(name, self._shape(shape), gamma * factor):
                        key = shape, gamma * factor
                        found[key] = max(found.get(key, -np.inf), trial.score)
                        yield trial
            order = sorted(found, key=lambda k: -found[k])
            if not order:  # FD was not asked for, or nothing of it passed the screen
                order = [
                    (shape if isinstance(shape, str) else "given", gamma)
                    for gamma in self._gammas() for shape in self.question.shapes
                ]  # fmt: skip
                order.sort(key=lambda k: self.least_fisher.get((name, *k), 0.0))
            guided = "fd" in self.question.methods
            for place, (shape, gamma) in enumerate(order[: 2 if guided else len(order)]):
                fvpd = place == 0 or not guided
                yield from self._dear(name, self._shape(shape), gamma, fvpd=fvpd)

    def _shape(self, name: str) -> Any:
        return name if name != "given" else self.question.shapes[0]

    def _gammas(self) -> tuple[float, ...]:
        if self.question.gammas is not None:
            return self.question.gammas
        return tuple(m * self._scott() for m in MULTIPLES)

    def _scott(self) -> float:
        return scott(float(self.w.sum()), self.x.shape[1], self.spread)

    # -- one fold --------------------------------------------------------------------------------

    def _fold(self, kind: Any, held: Any) -> Fold:
        x, w = self.x[~held], self.w[~held]
        base: Base
        if isinstance(kind, Base):
            base = kind
        elif kind == "student":
            base = StudentBase._by_em(x, w)
        elif kind == "mixture":
            base = MixtureBase._by_em(x, w, None, self.seed)._guarded(x, w)
        else:
            base = GaussianBase.from_data(x, sample_weight=w)
        shares = self.w[held] / self.w[held].sum()
        return Fold.of(
            base, x, self.x[held], w, shares, nearby=x, log2_draws=LOG2_DRAWS + 1,
            log2_nodes=LOG2_DRAWS + 1, seed=self.seed,
        )  # fmt: skip

    def _bare(self, name: str) -> Trial:
        methods = self.question.methods
        method = "fd" if "fd" in methods else methods[0]
        return self._trial(name, method, "identity", np.nan, np.inf, np.nan, [
            Scored(fold.held_base, 1.0, 0.0, fold.held_weights) for fold in self.bases[name]
        ])  # fmt: skip

    def _trial(
        self, base: str, method: str, shape: Any, gamma: float, lam: float, eta: float,
        parts: list[Scored],
    ) -> Trial:  # fmt: skip
        """parts : one a fold."""
        share, far = min(p.share for p in parts), max(p.far for p in parts)
        score, error, gain_error = -np.inf, np.inf, np.inf
        if all(p.is_believed for p in parts):
            score = float(np.mean([p.mean for p in parts]))
            alone = [fold.held_base for fold in self.bases[base]]
            error = standard_error([p.values for p in parts], parts)
            gains = [p.values - b for p, b in zip(parts, alone, strict=True)]
            gain_error = standard_error(gains, parts)
        return Trial(
            base, method, shape if isinstance(shape, str) else "given", gamma / self._scott(), lam,
            eta * gamma**2, score, error, share, far, gain_error, parts=tuple(parts),
        )  # fmt: skip

    # -- candidates ------------------------------------------------------------------------------

    def _blocks(self, name: str, shape: Any, gamma: float) -> list[Block]:
        features = Features.draw(self.n_features, gamma, self.shape_of(shape), self.seed)
        return [Block(features, fold, self.threads) for fold in self.bases[name]]

    def _lams(self, usual: tuple[float, ...]) -> tuple[float, ...]:
        return usual if self.question.lams is None else self.question.lams

    def _cheap(self, name: str, shape: Any, gamma: float) -> Iterator[Trial]:
        """FD for every lambda: the features are evaluated once a fold."""
        if "fd" not in self.question.methods:
            return
        blocks, lams = self._blocks(name, shape, gamma), np.array(self._lams(LAMS))
        thetas = [block.fd(lams.tolist()) for block in blocks]
        fisher = np.mean([b.fisher(t) for b, t in zip(blocks, thetas, strict=True)], axis=0)
        key = name, shape if isinstance(shape, str) else "given", gamma
        self.least_fisher[key] = float(fisher.min())
        # not below that of the base, it has nothing to offer; below, it may still be an artefact
        is_open = self.question.lams is None
        keep = [k for k in range(len(lams)) if fisher[k] < 0.0 or not is_open]
        parts = [b.of_points(t[:, keep]) for b, t in zip(blocks, thetas, strict=True)]
        for place, k in enumerate(keep):
            scored = [p[place] for p in parts]
            trial = self._trial(name, "fd", shape, gamma, float(lams[k]), np.nan, scored)
            yield replace(trial, fisher=float(fisher[k]))

    def _dear(self, name: str, shape: Any, gamma: float, *, fvpd: bool) -> Iterator[Trial]:
        """FVPD and MAP."""
        blocks = self._blocks(name, shape, gamma)
        closed_form = isinstance(self.bases[name][0].base, (GaussianBase, MixtureBase))
        if fvpd and "fvpd" in self.question.methods and closed_form:
            etas = self.question.etas or tuple(t / gamma**2 for t in self.question.tempers)
            for lam in self._lams(LAMS[2:9:2]):
                for eta in etas:
                    parts = [block.fvpd(lam, eta) for block in blocks]
                    yield self._trial(name, "fvpd", shape, gamma, lam, eta, parts)
        if "map" in self.question.methods:
            lams = tuple(sorted(self._lams(MAP_LAMS), reverse=True))
            parts_of = [block.of_points(block.posterior(lams)) for block in blocks]
            for k, lam in enumerate(lams):
                yield self._trial(
                    name, "map", shape, gamma, lam, np.nan, [p[k] for p in parts_of]
                )


class Block:
    """Features at the rows and draws of a fold: feature-major, (S, n) each."""

    def __init__(
        self, features: Features, fold: Fold, threads: Threads, sums: Any = None
    ) -> None:
        self.features, self.fold, self.threads = features, fold, threads
        self.held, self._held_slopes = self._phi(fold.held)
        self.draws = self._phi(fold.draws)[0]
        if sums is not None:
            self.n, self.sum_phi, self.system, self.b = sums
            return
        phi, dphi = self._phi(fold.kept)
        self.n = float(fold.kept_weights.sum())
        self.sum_phi, self.system, self.b = self._fisher_system(
            phi, dphi, fold.kept, fold.kept_weights
        )

    def _fisher_system(
        self, phi: Array, dphi: Array, x: Array, w: Array
    ) -> tuple[Array, Array, Array]:
        """(sum phi, A, b) of some rows: their Fisher score is theta A theta / 2 - b theta, over
        gamma^2, and that of the base."""
        z, gamma = self.features.frequencies, self.features.bandwidth
        sum_phi = phi @ w
        pull = dphi @ (self.fold.base.score_at(x) * w[:, None])
        psi = -np.einsum("sk,sk->s", z, pull)
        b = gamma * psi + np.einsum("sk,sk->s", z, z) * sum_phi
        return sum_phi, (z @ z.T) * weighted_gram(dphi, w), b

    def fisher(self, thetas: Array) -> Array:
        """Held-out Fisher score of every theta (S, L), a row, less that of the base; inf where
        theta is not known."""
        fold = self.fold
        _, system, b = self._fisher_system(
            self.held, self._held_slopes, fold.held, fold.held_weights
        )
        scores = 0.5 * np.einsum("sl,sl->l", thetas, system @ thetas) - b @ thetas
        scores = scores / self.features.bandwidth**2
        return np.asarray(np.where(np.isfinite(scores), scores, np.inf))

    def _phi(self, x: Array) -> tuple[Array, Array]:
        f = self.features
        frequencies = f.frequencies / f.bandwidth
        origin = self.fold.base.mean
        phi, dphi = np.empty((f.n_features, len(x))), np.empty((f.n_features, len(x)))
        rows, nothing = np.ascontiguousarray(x).view(), np.zeros(0)
        rows.flags.writeable = nothing.flags.writeable = False
        S, d = f.frequencies.shape
        module, count = self.threads.resolve()
        with kernels.threads(module, count):
            module.feature_block(
                rows, nothing, np.array(origin), frequencies, f.phases + frequencies @ origin,
                np.sqrt(2.0 / S), dphi, phi, np.zeros(S), np.zeros(S), np.zeros((S, d)), count,
            )  # fmt: skip
        return phi, dphi

    def fd(self, lams: Sequence[float]) -> Array:
        """theta for every lambda, (S, L); nan where rounding leaves the matrix indefinite.

        A Cholesky factor for each of them takes S^3 / 3 flops; one eigendecomposition, which would
        serve all, takes as long as 30.
        """
        thetas = np.full((len(self.b), len(lams)), np.nan)
        for k, lam in enumerate(lams):
            shifted = self.system.copy()
            shifted[np.diag_indices_from(shifted)] += lam * self.features.bandwidth**2
            with contextlib.suppress(LinAlgError):
                factor = cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
                thetas[:, k] = cho_solve(factor, self.b, check_finite=False)
        return thetas

    def posterior(self, lams: Sequence[float]) -> Array:
        """MAP for falling lambdas, each from the one before, (S, L); Newton on the fold's nodes.
        nan from where rounding leaves the matrix indefinite."""
        nodes, theta = self._phi(self.fold.nodes)[0], np.zeros(len(self.sum_phi))
        found, mean_phi = np.full((len(theta), len(lams)), np.nan), self.sum_phi / self.n
        for k, lam in enumerate(lams):
            prior = lam / self.n
            value = self._objective(nodes, theta, mean_phi, prior)
            for _ in range(MAP_STEPS):
                weights = nodes.T @ theta + self.fold.node_ratios
                weights = np.exp(weights - logsumexp(weights))
                mean = nodes @ weights
                spread = weighted_gram(nodes, weights) - np.outer(mean, mean)
                spread[np.diag_indices_from(spread)] += prior
                gradient = mean_phi - mean - prior * theta
                try:
                    step = cho_solve(cho_factor(spread, lower=True, check_finite=False), gradient)
                except LinAlgError:
                    return found
                length = 1.0
                while length > 1e-3:
                    trial = self._objective(nodes, theta + length * step, mean_phi, prior)
                    if trial >= value:
                        break
                    length *= 0.5
                else:
                    break
                theta, gain, value = theta + length * step, trial - value, trial
                if gain < MAP_GAIN:
                    break
            found[:, k] = theta
        return found

    def _objective(self, nodes: Array, theta: Array, mean_phi: Array, prior: float) -> float:
        exponent = nodes.T @ theta + self.fold.node_ratios
        partition = float(logsumexp(exponent)) - np.log(len(exponent))
        return float(theta @ mean_phi) - partition - 0.5 * prior * float(theta @ theta)

    def of_points(self, thetas: Array) -> list[Scored]:
        """What held-out rows say of every theta."""
        at_draws, at_held = self.draws.T @ thetas, self.held.T @ thetas
        return [
            self._scored(at_held[:, k], at_draws[:, k]) for k in range(thetas.shape[1])
        ]

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Of the features under the base: the same for every lambda and eta."""
        return self.fold.base.feature_moments(
            self.features, backend=self.threads.backend, n_threads=self.threads.n_threads
        )

    def fvpd(self, lam: float, eta: float) -> Scored:
        """The same for FVPD."""
        scale = 1.0 / (self.features.bandwidth**2 * eta)
        mu, moments = self._moments
        matrix = moments + scale * self.system
        matrix[np.diag_indices_from(matrix)] += lam
        try:
            factor = cho_factor(matrix, lower=True, check_finite=False)
        except LinAlgError:
            return self._scored(*(np.full(a.shape[1], np.nan) for a in (self.held, self.draws)))
        linear = solve_triangular(
            factor[0], mu - scale * self.b, lower=True, check_finite=False
        )
        values = []
        for phi in (self.held, self.draws):
            half = solve_triangular(factor[0], phi, lower=True, check_finite=False)
            values.append(0.5 * np.einsum("sn,sn->n", half, half) - linear @ half)
        return self._scored(*values)

    def _scored(self, at_held: Array, at_draws: Array) -> Scored:
        weights = self.fold.held_weights
        if not (np.isfinite(at_draws).all() and np.isfinite(at_held).all()):
            return Scored(np.full(len(at_held), -np.inf), 0.0, 1.0, weights)
        ratios = self.fold.draw_ratios
        at_draws = at_draws + ratios
        total = float(logsumexp(at_draws))
        shares, of_base = np.exp(at_draws - total), np.exp(ratios - logsumexp(ratios))
        is_far = self.fold.nearest > FAR * self.features.bandwidth
        values = self.fold.held_base + at_held - (total - np.log(len(at_draws)))
        effective = 1.0 / float(shares @ shares) / len(at_draws)
        far = float(shares @ is_far) - float(of_base @ is_far)
        return Scored(values, effective, far, weights)
