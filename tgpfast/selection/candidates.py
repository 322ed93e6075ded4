"""Settings compared on a pilot: base, frequencies, bandwidth, method, lambda and eta.

A pilot of the rows is cut into folds, and every candidate is scored by the log-likelihood of the
rows held out (`scoring`). The bases alone, whose lambda is infinite, are among the candidates.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..bases.base import Base
from ..bases.product import ProductBase
from ..features.random import Features, Interactions, Kernel, as_listed
from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..runtime.records import record
from ..validation import Array
from .base_fits import fit_base
from .effort import CAREFUL_ROWS
from .folds import Split, held_out_masks
from .sample_split import SampleSplit
from .scoring import (
    Fold,
    FoldFeatures,
    HeldOutScore,
    PosteriorFeatures,
    effective_number,
    standard_error,
)

PILOT_ROWS = 4_500  # rows that candidates are learned from, at most
LEAST_PILOT_ROWS = 20  # distinct rows from which settings are chosen from the data
WORTHY_BASES = 2  # bases that are tilted: the best so many by themselves,
# unless the best beats the next one by so many standard errors of the difference in a brief search
SURE_ERRORS = 3.0
GUIDED_SETTINGS = 2  # shapes and bandwidths for which MAP is scored: the best so many of FD
# Multiples of Scott's bandwidth that are scored first. The best of them is also scored sqrt(2)
# times smaller and larger, so that 0.2 to 8 are covered; refinement goes on downwards.
GAMMA_MULTIPLES = tuple((0.2 * 2.0**0.5 * 20.0 ** (np.arange(5) / 4.0)).tolist())
PILOT_LAMS = tuple((10.0 ** np.arange(-1.0, 4.1, 0.5)).tolist())  # of FD
FVPD_LAMS = PILOT_LAMS[2:9:2]  # of FVPD, which also varies eta
MAP_LAMS = (100.0, 10.0, 1.0, 0.1)  # of MAP, falling
ETA_MULTIPLES = (0.3, 1.0, 3.0)  # of 1 / gamma^2
# Columns and kernels of a mixed set, in turn: half of its features are of one column
MIXED = (1, 2, 1, 3), ("matern32", "gaussian", "matern32", "matern32")
# Settings of the features that a brief search tries with MAP: columns of a frequency, kernel, and
# bandwidth in standard deviations of the columns. In the order of what they gained per second on
# grown mixtures of 12 tables of 5 to 28 columns: 0.064, 0.055, 0.049, 0.048, 0.044 and 0.044 nats
# per row, less for the rest; all took equally long.
BRIEF_SETTINGS = (
    (2, "gaussian", 1.0), (1, "matern32", 0.2), (1, "matern32", 0.7), (3, "matern32", 1.2),
    (1, "matern32", 0.07), (*MIXED, 0.7), (2, "matern32", 0.7), (None, "matern32", 2.0),
    (None, "gaussian", 2.0),
)  # fmt: skip
BRIEF_LAMS = (10.0, 1.0, 0.1)  # of MAP in a brief search, falling
RUNG_SHARES = (0.5, 1.0)  # of features and rows, in the rounds of successive halving
FREQUENCY_SHAPES = ("data", "identity", "precision")  # names of frequency covariances
# Nats per row that a tilt must gain before more features are tried: tilts that gained 0.03 gained
# 0.003 at most by 2,000 features, which took as long as the search.
WORTH_GROWING = 0.05
LEAST_GAIN = 0.002  # log-likelihood per row by which a tilt must beat the bases
# standard errors of its gain by which it must beat them too: the best of many tilts that are no
# better than their base gains two by luck
LEAST_GAIN_ERRORS = 3.0
# Held-out rows for each degree of freedom of such an error: what one row gains by another that was
# learned from, the other gains by it in turn, and so few rows err together. With one row each, 80
# fits of 20 weighted rows had four tilts, two of which lost 0.01 and 0.12 nats.
ROWS_PER_FREEDOM = 3.0
CONFIRMED_GAIN_ERRORS = 2.0  # the same where rows that were not searched confirm the gain
# Share of the gain of averaging, measured on draws of the average, that a mixture is credited with.
# Members are refitted to all rows, which makes them more alike, and other bases gain by more rows
# too. Against them the average lost about half of that gain on fresh rows, over 66 fits of 24
# tables: with full credit, 7 of the mixtures taken were 0.06 to 0.6 nats below a simple base.
AVERAGING_SHARE = 0.5
BASE_ALONE = math.inf  # the lambda that leaves nothing of the tilt
SEARCHED_AS = {"ncfd": "fd"}  # NCFD takes the settings that suit FD


@record
class Candidate:
    """One set of settings, and what rows held out say of it.

    Attributes
    ----------
    base, method, frequency_covariance : str
    gamma_multiple : float
        Bandwidth over Scott's.
    lam : float
        Infinite for a base alone.
    eta_multiple : float
        eta gamma^2; nan unless the method is "fvpd".
    score : float
        Mean held-out log-likelihood per row, in the model's coordinates; -inf if not reliable. With
        few rows that of a mixture has the gain of averaging added (`Pilot.expected_gain`).
    error : float
        Standard error of the score.
    effective_share : float
        Effective draws for each draw behind the normalizer, the least over folds.
    far_share : float
        Mass farther than three bandwidths from every row learned from, less that of the base, the
        most over folds.
    gain_error : float
        Standard error of the gain of the tilt over its base, row by row.
    fisher : float
        Held-out Fisher score of FD per row less that of the base, which screens lambdas.
    kernel : str or tuple of str
    interactions : int, None or tuple of these
        Columns that each frequency involves; None is all. Tuples for mixed kinds.
    folds : tuple of HeldOutScore
        One for each fold; not in the table.
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
    kernel: Kernel = "gaussian"
    interactions: Interactions = None
    folds: tuple[HeldOutScore, ...] = field(default=(), repr=False, compare=False)

    @property
    def is_base_alone(self) -> bool:
        """Whether nothing is tilted."""
        return math.isinf(self.lam)

    def error_of_gain(self, other: Candidate) -> float:
        """Standard error of the difference of two scores, row by row; 0 where unknown."""
        pairs = list(zip(self.folds, other.folds, strict=False))
        if not pairs:
            return 0.0
        return standard_error([mine.gain_over(theirs.values) for mine, theirs in pairs])


@record(kw_only=True)
class SearchSpace:
    """The values that each setting may take.

    Attributes
    ----------
    shapes : mapping
        Name of a frequency covariance -> (d, d) array.
    bases : tuple of str or Base
    methods : tuple of str
    gammas : tuple of float, default multiples of Scott's bandwidth
    lams : tuple of float, default those that suit each method
    etas : tuple of float, default multiples of 1 / gamma^2
    eta_multiples : tuple of float
        Those multiples.
    kernels : tuple of str or None, default None
        None leaves them to the search: a full one takes the Gaussian kernel.
    interactions : tuple of int or None, default None
        Columns that a frequency involves. None leaves them to the search: a full one takes all.
    """

    shapes: Mapping[str, Array]
    bases: tuple[Any, ...] = ("empirical", "student", "mixture")
    methods: tuple[str, ...] = ("fd", "fvpd", "map")
    gammas: tuple[float, ...] | None = None
    lams: tuple[float, ...] | None = None
    etas: tuple[float, ...] | None = None
    eta_multiples: tuple[float, ...] = ETA_MULTIPLES
    kernels: tuple[str, ...] | None = None
    interactions: tuple[int | None, ...] | None = None

    @property
    def may_be_brief(self) -> bool:
        """Whether a brief search, which is by MAP, leaves nothing out: only MAP is asked for, or
        method and base are open."""
        is_open = {"fd", "map"} <= set(self.methods) and "mixture" in self.bases
        return is_open or set(self.methods) == {"map"}

    def lams_or(self, usual: tuple[float, ...]) -> tuple[float, ...]:
        """The lambdas that are given, else the usual ones of a method."""
        return usual if self.lams is None else self.lams

    def etas_at(self, gamma: float) -> tuple[float, ...]:
        """The values of eta that are scored with a bandwidth."""
        return self.etas or tuple(multiple / gamma**2 for multiple in self.eta_multiples)


@record
class Pilot:
    """Rows that candidates are compared on.

    A sample that holds rows out judges by these, and learns from some of those that it keeps; bases
    are learned from all of them. Of any other sample, parts are held out in turn.

    Attributes
    ----------
    sample : SampleSplit
        Distinct rows in the model's coordinates.
    most_rows : int, default PILOT_ROWS
        Rows that are learned from, at most, where the sample holds some out.
    """

    sample: SampleSplit
    most_rows: int = PILOT_ROWS

    @functools.cached_property
    def rows(self) -> tuple[Array, Array]:
        """Rows that are learned from, (n, d), and the rows that each one counts as, (n,)."""
        if not self.sample.holds_out:
            return self.sample.x, self.sample.weights
        split = self.sample.split(self.most_rows)
        return split.kept, split.kept_weights

    def splits(self, *, with_mixtures: bool) -> list[Split]:
        """Rows that are learned from and rows that are held out, fold by fold.

        with_mixtures : whether some of the rows held out decide on the size of a mixture
        """
        if self.sample.holds_out:
            return [self.sample.split(self.most_rows)]
        if with_mixtures:
            return self.sample.ensemble.splits
        x, weights = self.rows
        masks = held_out_masks(len(x))[: self.sample.budget.n_folds]
        return [Split.at(x, weights, mask) for mask in masks]

    def learn_base(self, kind: Any, fold: int, split: Split) -> Base:
        """A base for one of the splits."""
        if self.sample.holds_out and isinstance(kind, str):
            return self.sample.fit_base(kind)
        if isinstance(kind, str) and kind == "mixture":
            return self.sample.ensemble.fit_without(fold)
        return fit_base(
            kind, split.kept, split.kept_weights, domain=self.sample.domain,
            has_guard=self.sample.guards_gaussian,
        )  # fmt: skip

    def expected_gain(self, kind: str) -> float:
        """Nats per row by which the base of the final model is expected to beat those of the folds,
        beyond what all bases gain by more rows: 0 except for mixtures, which are averaged in the
        end."""
        is_averaged = kind == "mixture" and not self.sample.holds_out
        return AVERAGING_SHARE * self.sample.ensemble.averaging_gain if is_averaged else 0.0

    @property
    def deviation(self) -> float:
        """Root of the mean variance of the columns."""
        x, weights = self.rows
        w = weights / weights.sum()
        return float(np.sqrt((w @ np.square(x - w @ x)).mean()))

    @functools.cached_property
    def scott(self) -> float:
        """Scott's bandwidth for these rows."""
        x, weights = self.rows
        return scott_bandwidth(float(weights.sum()), x.shape[1], self.deviation**2)


def scott_bandwidth(n: float, d: int, variance: float) -> float:
    """Scott's rule: n^(-1/(d+4)) times the root of the mean variance of the columns."""
    return float(n ** (-1.0 / (d + 4)) * np.sqrt(variance))


@record
class Selection:
    """The best candidate, and all of them.

    Attributes
    ----------
    best : Candidate
    candidates : list of Candidate
        The highest score first.
    scott : float
        The bandwidth that multiples are of.
    is_brief : bool, default False
        Whether the search was brief: it learned from all rows of the sample that are kept, with a
        few settings, and nothing is refined after it.
    n_features : int or None, default None
        Features of the model that rows held out prefer to those of the budget.
    """

    best: Candidate
    candidates: list[Candidate]
    scott: float
    is_brief: bool = False
    n_features: int | None = None

    def best_tilt_of(self, base: str) -> Candidate | None:
        """The best candidate that tilts a base, whether it beats that or not; None without one."""
        tilts = [
            c for c in self.candidates if c.base == base and np.isfinite([c.lam, c.score]).all()
        ]
        return max(tilts, key=lambda c: c.score, default=None)

    def table(
        self, settings: Mapping[str, Any], refined: Sequence[Mapping[str, Any]], log_volume: float
    ) -> list[dict[str, Any]]:
        """One dictionary for each candidate: the chosen one, then the others, best first.

        Refinement and verification may settle on a method, bandwidth or lambda that no candidate
        had. Then the chosen one is a row of its own, whose score is that of the refinement, or nan
        where that did not score it.

        Parameters
        ----------
        settings : mapping
            Of the model.
        refined : sequence of mappings
            What the refinement scored: "n_features", "gamma", "lam" and "score" of each.
        log_volume : float
            Of the scaling; scores are less by it in the units of the data.
        """
        names = [f.name for f in fields(Candidate) if f.name != "folds"]
        chosen = self.best
        if settings["method"] == "base":
            chosen = next(c for c in self.candidates if c.is_base_alone and c.base == chosen.base)
        elif not self._has_settings(chosen, settings):
            chosen = self._with_settings(chosen, settings, refined)
        others = [c for c in self.candidates if c is not chosen]
        return [
            {name: as_listed(getattr(c, name)) for name in names}
            | {"method": "base" if c.is_base_alone else c.method}
            | {"score": c.score - log_volume, "chosen": c is chosen}
            for c in [chosen, *others]
        ]

    def _has_settings(self, candidate: Candidate, settings: Mapping[str, Any]) -> bool:
        """Whether a candidate had the method, lambda and bandwidth of a model."""
        gamma = candidate.gamma_multiple * self.scott
        same = np.allclose([candidate.lam, gamma], [settings["lam"], settings["gamma"]], rtol=1e-9)
        method = settings["method"]
        return bool(same) and SEARCHED_AS.get(method, method) == candidate.method

    def _with_settings(
        self, candidate: Candidate, settings: Mapping[str, Any],
        refined: Sequence[Mapping[str, Any]],
    ) -> Candidate:  # fmt: skip
        """The candidate with the settings that the model has in the end."""
        names = ("n_features", "gamma", "lam")
        wanted = [settings[name] for name in names]
        scores = [
            row["score"] for row in refined if np.allclose([row[name] for name in names], wanted)
        ]
        is_known = bool(scores) and candidate.method == settings["method"]
        return replace(
            candidate, method=settings["method"], lam=settings["lam"],
            gamma_multiple=settings["gamma"] / self.scott,
            score=scores[-1] if is_known else np.nan, error=np.nan, gain_error=np.nan,
            fisher=np.nan,
        )  # fmt: skip


def select(
    pilot: Pilot, space: SearchSpace, *, n_features: int, seed: int, threads: Threads,
    one_standard_error: bool = False, progress: bool = False, grows: bool = False,
) -> Selection | None:  # fmt: skip
    """Compare candidates on a pilot.

    Parameters
    ----------
    pilot : Pilot
    space : SearchSpace
    n_features : int
        Of the model; candidates have those of the pilot's budget at most.
    seed : int
        Of the features and draws.
    threads : Threads
    one_standard_error : bool, default False
        See `choose_candidate`.
    progress : bool, default False
        Show a bar on standard error.
    grows : bool, default False
        Whether the number of features is chosen too, where the best is a tilt by MAP.

    Returns
    -------
    Selection or None
        None where no base can be learned from the rows that are kept: too few, or in a plane.
    """
    search = CandidateSearch(
        pilot, space, n_features=min(n_features, pilot.sample.budget.screen_features), seed=seed,
        threads=threads,
    )  # fmt: skip
    candidates: list[Candidate] = []
    # BLAS on one thread: the matrices are small, and its idle threads would spin on our cores
    with kernels.threads(*threads.resolve()), Progress(progress, "candidates", None) as bar:
        for candidate in search.run():
            candidates.append(candidate)
            bar.add(1)
    if not candidates:
        return None
    best = choose_candidate(
        candidates, lam_is_open=space.lams is None, one_standard_error=one_standard_error,
        is_careful=len(pilot.rows[0]) <= CAREFUL_ROWS and set(space.methods) > {"map"},
        n_rows=effective_number(candidates[0].folds),
    )  # fmt: skip
    ordered = sorted(candidates, key=lambda c: -c.score)
    size = None
    own = max((c.score for c in candidates if c.is_base_alone and c.base == best.base), default=0.0)
    if grows and best.method == "map" and best.score - own > WORTH_GROWING:
        with kernels.threads(*threads.resolve()):
            size = search.grow_features(best)
    return Selection(best, ordered, search.pilot.scott, search.is_brief, size)


def choose_candidate(
    candidates: Sequence[Candidate], *, lam_is_open: bool = True, one_standard_error: bool = False,
    is_careful: bool = False, n_rows: float = math.inf,
) -> Candidate:  # fmt: skip
    """The highest score among candidates that are kept.

    A tilt is kept only if its gain over its own base, and over the best base alone, exceeds
    LEAST_GAIN and `required_gain_errors` standard errors of that gain. Without one the best
    base alone is chosen.

    Parameters
    ----------
    candidates : sequence of Candidate
    lam_is_open : bool, default True
        False where lambda is given: every tilt is kept then, and a base alone, whose lambda is
        another, is chosen only where no tilt has a reliable score.
    one_standard_error : bool, default False
        Pick the smoothest tilt within one standard error of the best, row by row: the largest
        lambda, and of those the largest bandwidth.
    is_careful : bool, default False
        For few rows, where lambda is open: keep only MAP, and ask of its m tilts a gain of
        sqrt(2 log m) standard errors, which the best of m gains has by luck alone.
    n_rows : float, default inf
        Rows from which the standard errors were estimated: Kish's effective number.
    """
    alone = [c for c in candidates if c.is_base_alone]
    best_alone = max(alone, key=lambda c: c.score)
    tilts = [c for c in candidates if not c.is_base_alone and np.isfinite(c.score)]
    if lam_is_open:
        own, errors = {c.base: c.score for c in alone}, required_gain_errors(n_rows)
        if is_careful:
            tilts = [c for c in tilts if c.method == "map"]
            errors = max(errors, math.sqrt(2.0 * math.log(max(len(tilts), 1))))
        tilts = [
            c for c in tilts
            if c.score - own[c.base] > max(LEAST_GAIN, errors * c.gain_error)
            and c.score - best_alone.score > max(LEAST_GAIN, errors * c.error_of_gain(best_alone))
        ]  # fmt: skip
    best = max(tilts, key=lambda c: c.score, default=best_alone)
    if not one_standard_error or best is best_alone:
        return best
    near = [c for c in tilts if c.score >= best.score - c.error_of_gain(best)]
    return max(near, key=lambda c: (c.lam, c.gamma_multiple))


def required_gain_errors(n_rows: float) -> float:
    """Standard errors, estimated from so many rows, that a gain must exceed.

    LEAST_GAIN_ERRORS for many rows. The error that few rows give is itself uncertain: a Student
    variable exceeds the result as rarely as a normal one exceeds LEAST_GAIN_ERRORS. That quantile
    is Wallace's approximation, which errs upwards, by 0.3 % from ten degrees of freedom on: the
    exact one needs scipy.special, whose import takes as long as a fit of a few rows.

    Examples
    --------
    >>> [round(required_gain_errors(n), 2) for n in (20, 200, 1e9)]
    [5.12, 3.12, 3.0]
    """
    if not math.isfinite(n_rows):
        return LEAST_GAIN_ERRORS
    degrees = max(n_rows / ROWS_PER_FREEDOM - 1.0, 1.0)
    normal = LEAST_GAIN_ERRORS * (8.0 * degrees + 3.0) / (8.0 * degrees + 1.0)
    return math.sqrt(degrees * math.expm1(normal**2 / degrees))


class FeatureSetting(NamedTuple):
    """What features are drawn with: name of a frequency covariance, bandwidth, kernel, columns."""

    shape: str
    gamma: float
    kernel: Kernel = "gaussian"
    interactions: Interactions = None


class CandidateSearch:
    """Scores candidates on the folds of a pilot.

    ``folds`` holds, for every base that could be learned, one `Fold` for each fold of the rows.
    """

    def __init__(
        self, pilot: Pilot, space: SearchSpace, *, n_features: int, seed: int, threads: Threads
    ) -> None:
        self.budget, self.domain = pilot.sample.budget, pilot.sample.domain
        self.is_brief = self.budget.n_brief is not None and space.may_be_brief
        # sums of features, which a brief search needs alone, can afford all rows
        self.pilot = replace(pilot, most_rows=len(pilot.sample.x)) if self.is_brief else pilot
        self.space = space
        self.n_features, self.seed, self.threads = n_features, seed, threads
        self.splits = self.pilot.splits(with_mixtures="mixture" in space.bases)
        self.folds: dict[str, list[Fold]] = {}

    def run(self) -> Iterator[Candidate]:
        """The bases alone, then tilts of the best of them."""
        self.folds = self.learn_bases()
        alone = [self.score_base(name) for name in self.folds]
        yield from alone
        for candidate in self._worthy(alone):
            if self.is_brief:
                yield from self.score_briefly(candidate)
            else:
                yield from self.score_tilts(candidate.base)

    def _worthy(self, alone: Sequence[Candidate]) -> list[Candidate]:
        """The best bases, which are tilted."""
        bases = sorted(alone, key=lambda c: -c.score)[:WORTHY_BASES]
        if not self.is_brief or not bases:
            return bases
        best = bases[0]
        return [
            c for c in bases
            if c is best or best.score - c.score < SURE_ERRORS * best.error_of_gain(c)
        ]  # fmt: skip

    def score_briefly(self, alone: Candidate) -> Iterator[Candidate]:
        """MAP with the first of BRIEF_SETTINGS, as many as the budget allows, by successive
        halving: all with few features and rows, and the better half with twice as many of both.

        If rows gain by the best of them, a smaller and a larger bandwidth follow. The search ends
        where rows gain by none.
        """
        settings = self._brief_settings()[: self.budget.n_brief]
        scores: dict[FeatureSetting, float] = {}
        blocks: dict[FeatureSetting, list[PosteriorFeatures]] = {}
        for share in RUNG_SHARES[-len(settings).bit_length() :]:
            scores.clear()
            for setting in settings:
                if setting not in blocks:
                    blocks[setting] = self._posterior_features(alone.base, setting, share)
                for block in blocks[setting]:
                    block.grow(*self._sizes(block.fold, share))
                candidates = list(
                    self.score_posterior(alone.base, setting, BRIEF_LAMS, blocks[setting])
                )
                scores.update(_best_score(setting, candidates))
                yield from candidates
            if max(scores.values()) <= alone.score:
                return
            settings = sorted(scores, key=lambda s: -scores[s])[: max(len(settings) // 2, 1)]
        if self.budget.n_brief != 1 and max(scores.values()) > alone.score + LEAST_GAIN:
            for setting in self._fine_settings(scores):
                yield from self.score_posterior(alone.base, setting, BRIEF_LAMS)

    def _brief_settings(self) -> list[FeatureSetting]:
        kernels, columns = self.space.kernels, self.space.interactions
        settings = dict.fromkeys(
            FeatureSetting(
                "identity" if "identity" in self.space.shapes else next(iter(self.space.shapes)),
                self.space.gammas[0] if self.space.gammas else width * self.pilot.deviation,
                kernels[0] if kernels else kernel, columns[0] if columns else among,
            )
            for among, kernel, width in BRIEF_SETTINGS
        )  # fmt: skip
        return list(settings)

    def grow_features(self, best: Candidate) -> int | None:
        """The number of features by which rows held out gain most over the budget's, with the
        settings of the best tilt; None where none gains more than one standard error, or the
        budget has no larger numbers."""
        setting = FeatureSetting(
            best.frequency_covariance, best.gamma_multiple * self.pilot.scott, best.kernel,
            best.interactions,
        )
        found, most, first, misses = None, 0.0, list[HeldOutScore](), -1
        larger = self.budget.larger_counts
        for count in (self.budget.most_features, *larger) if larger else ():
            self.n_features = count or self.n_features
            blocks = self._posterior_features(best.base, setting)
            scores = [block.score_thetas(block.posterior([best.lam]))[0] for block in blocks]
            misses += 1
            if all(score.is_reliable for score in scores):
                first = first or scores
                gains = [a.gain_over(b.values) for a, b in zip(scores, first, strict=True)]
                gain = float(np.mean([g.mean for g in gains]))
                if gain > max(most, standard_error(gains)):
                    found, most, misses = count, gain, 0
            if misses == 2 or not first:
                break
        return found

    def learn_bases(self) -> dict[str, list[Fold]]:
        """Every base of the search space, learned without each fold in turn.

        A base is left out where the rows that remain lie in a plane. So is a mixture of one
        component beside the Gaussian, which it repeats.
        """
        found: dict[str, list[Fold]] = {}
        for kind in self.space.bases:
            name = kind if isinstance(kind, str) else "given"
            try:
                folds = [self._learn_fold(kind, fold) for fold in range(len(self.splits))]
            except ValueError:
                continue
            is_single = all(_count_components(f.base) == 1 for f in folds)
            if not (name == "mixture" and is_single and "empirical" in found):
                found[name] = folds
        return found

    def _learn_fold(self, kind: Any, fold: int) -> Fold:
        split = self.splits[fold]
        base = self.pilot.learn_base(kind, fold, split)
        nearby = split.kept[:PILOT_ROWS]
        return Fold(base, split, nearby, self.budget.log2_draws, self.seed)

    def score_tilts(self, base: str) -> Iterator[Candidate]:
        """FD with every setting of the features; then FVPD and MAP, which take longer, with the
        best of those. FD guides them also where it is not asked for, unless only MAP is."""
        is_asked, is_guided = "fd" in self.space.methods, set(self.space.methods) != {"map"}
        coarse = self._coarse_settings()
        scores: dict[FeatureSetting, float] = {}  # where some lambda passed the screen
        fisher = dict.fromkeys(coarse, 0.0)
        for setting in coarse if is_guided else ():
            candidates, fisher[setting] = self.score_closed_form(base, setting)
            scores.update(_best_score(setting, candidates))
            yield from candidates if is_asked else ()
        for setting in self._fine_settings(scores):
            candidates, _ = self.score_closed_form(base, setting)
            scores.update(_best_score(setting, candidates))
            yield from candidates if is_asked else ()
        order = sorted(scores, key=lambda s: -scores[s]) or sorted(coarse, key=lambda s: fisher[s])
        for place, setting in enumerate(order[:GUIDED_SETTINGS] if is_guided else order):
            yield from self.score_iterative(base, setting, with_fvpd=place == 0 or not is_asked)

    def _coarse_settings(self) -> list[FeatureSetting]:
        scott = self.pilot.scott
        gammas = self.space.gammas or tuple(multiple * scott for multiple in GAMMA_MULTIPLES)
        kernel = self.space.kernels[0] if self.space.kernels else "gaussian"
        columns = self.space.interactions[0] if self.space.interactions else None
        return [
            FeatureSetting(shape, gamma, kernel, columns)
            for gamma in gammas
            for shape in self.space.shapes
        ]

    def _fine_settings(self, scores: Mapping[FeatureSetting, float]) -> list[FeatureSetting]:
        """Beside the best of the coarse ones; none where bandwidths are given."""
        if self.space.gammas is not None or not scores:
            return []
        best = max(scores, key=lambda s: scores[s])
        return [best._replace(gamma=best.gamma * factor) for factor in (2.0**-0.5, 2.0**0.5)]

    # -- candidates ------------------------------------------------------------------------------

    def score_base(self, base: str) -> Candidate:
        """The base alone."""
        methods = self.space.methods
        method = "fd" if "fd" in methods else methods[0]
        scores = [
            HeldOutScore(fold.held_base, 1.0, 0.0, fold.split.held_weights)
            for fold in self.folds[base]
        ]
        nothing = FeatureSetting("identity", np.nan)
        return self.candidate(base, method, nothing, scores, lam=BASE_ALONE)

    def score_closed_form(
        self, base: str, setting: FeatureSetting
    ) -> tuple[list[Candidate], float]:
        """FD for every lambda, the features being evaluated once for each fold; and the least
        held-out Fisher score.

        A lambda whose Fisher score is not below that of the base has nothing to offer, and is left
        out unless it is given. One below may still put mass where no rows are.
        """
        blocks, lams = self._features(base, setting), self.space.lams_or(PILOT_LAMS)
        thetas = [block.fd(lams) for block in blocks]
        fisher = np.mean(
            [b.fisher_scores(t) for b, t in zip(blocks, thetas, strict=True)], axis=0
        )
        kept = [k for k in range(len(lams)) if fisher[k] < 0.0 or self.space.lams is not None]
        scores = [b.score_thetas(t[:, kept]) for b, t in zip(blocks, thetas, strict=True)]
        candidates = [
            self.candidate(base, "fd", setting, of_folds, lam=lams[k], fisher=float(fisher[k]))
            for k, of_folds in zip(kept, zip(*scores, strict=True), strict=True)
        ]
        return candidates, float(fisher.min())

    def score_iterative(
        self, base: str, setting: FeatureSetting, *, with_fvpd: bool
    ) -> Iterator[Candidate]:
        """FVPD, where its moments of the base have a closed form, and MAP."""
        blocks = self._features(base, setting)
        has_moments = self.folds[base][0].base.has_feature_moments
        if with_fvpd and has_moments and "fvpd" in self.space.methods:
            for lam in self.space.lams_or(FVPD_LAMS):
                for eta in self.space.etas_at(setting.gamma):
                    scores = [block.score_fvpd(lam, eta) for block in blocks]
                    yield self.candidate(base, "fvpd", setting, scores, lam=lam, eta=eta)
        if "map" in self.space.methods:
            yield from self.score_posterior(base, setting, MAP_LAMS, blocks)

    def score_posterior(
        self, base: str, setting: FeatureSetting, usual: tuple[float, ...],
        blocks: Sequence[FoldFeatures] | None = None,
    ) -> Iterator[Candidate]:  # fmt: skip
        """MAP for every lambda, each from the one before.

        usual : lambdas where none are given; blocks : the features, where they were made before
        """
        lams = sorted(self.space.lams_or(usual), reverse=True)
        if blocks is None:
            blocks = self._posterior_features(base, setting)
        of_blocks = [block.score_thetas(block.posterior(lams)) for block in blocks]
        for lam, folds in zip(lams, zip(*of_blocks, strict=True), strict=True):
            yield self.candidate(base, "map", setting, folds, lam=lam)

    def candidate(
        self, base: str, method: str, setting: FeatureSetting, folds: Sequence[HeldOutScore], *,
        lam: float, eta: float = np.nan, fisher: float = np.nan,
    ) -> Candidate:  # fmt: skip
        """A candidate with its scores, one for each fold."""
        score, error, gain_error = -np.inf, np.inf, np.inf
        if all(fold.is_reliable for fold in folds):
            score, error = float(np.mean([fold.mean for fold in folds])), standard_error(folds)
            score += self.pilot.expected_gain(base)
            gain_error = standard_error([
                fold.gain_over(of_base.held_base)
                for fold, of_base in zip(folds, self.folds[base], strict=True)
            ])  # fmt: skip
        return Candidate(
            base, method, setting.shape, setting.gamma / self.pilot.scott, lam,
            eta * setting.gamma**2, score, error, min(f.effective_share for f in folds),
            max(f.far_share for f in folds), gain_error, fisher, setting.kernel,
            setting.interactions, tuple(folds),
        )  # fmt: skip

    def _draw(self, setting: FeatureSetting) -> Features:
        return Features.draw(
            self.n_features, setting.gamma, self.space.shapes[setting.shape], self.seed,
            setting.kernel, setting.interactions,
            None if self.domain is None else self.domain.periods, self.pilot.sample.resolution,
        )  # fmt: skip

    def _features(self, base: str, setting: FeatureSetting) -> list[FoldFeatures]:
        """The features of every fold."""
        features = self._draw(setting)
        return [FoldFeatures(features, fold, self.threads) for fold in self.folds[base]]

    def _posterior_features(
        self, base: str, setting: FeatureSetting, share: float = 1.0
    ) -> list[PosteriorFeatures]:
        """A share of the features of every fold, for MAP alone, and the same share of its rows,
        as far as their order is random."""
        features = self._draw(setting)
        return [
            PosteriorFeatures(features, fold, self.threads, *self._sizes(fold, share))
            for fold in self.folds[base]
        ]

    def _sizes(self, fold: Fold, share: float) -> tuple[int, int]:
        """Numbers of features and of rows that a share of them is."""
        rows = share if self.pilot.sample.holds_out else 1.0
        return math.ceil(share * self.n_features), math.ceil(rows * len(fold.split.kept))


def _count_components(base: Base) -> int:
    """Components of a mixture, or of a mixture in a product; 1 for other bases."""
    factors = base.factors if isinstance(base, ProductBase) else (base,)
    return max(getattr(factor, "n_components", 1) for factor in factors)


def _best_score(
    setting: FeatureSetting, candidates: Sequence[Candidate]
) -> dict[FeatureSetting, float]:
    """The setting with its best score; nothing where no candidate passed the screen."""
    return {setting: max(c.score for c in candidates)} if candidates else {}
