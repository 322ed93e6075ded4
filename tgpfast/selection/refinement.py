"""Settings refined on all rows: bandwidth, number of features, and lambda.

The pilot has chosen base, method, a bandwidth and the shape of the frequencies. Now every row but
few is learned from: the statistics of all rows minus those of the rows held out. Bandwidths are
read off a `Spectrum`, or take sums of features alone. Statistics of fewer features are a corner of
those of many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import kernels
from ..bases.base import Base
from ..data.blocks import Blocks
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..statistics.fisher import fd_system
from ..statistics.required_sums import RowSums, accumulate_like
from ..validation import Array
from .candidates import BASE_ALONE
from .folds import Split, assign_folds
from .sample_split import SampleSplit
from .scoring import (
    NEAR_ROWS,
    NO_EQUATIONS,
    Fold,
    FoldFeatures,
    HeldOutScore,
    PilotSums,
    standard_error,
)

REFINED_METHODS = ("fd", "fvpd", "map")  # NCFD has densities at several levels of noise
FEATURE_COUNTS = (250, 500, 1000, 2000)  # numbers of features, tried upwards
WORTH_DOUBLING = 0.004  # gain in log-likelihood per row after which more features are tried
# Features with which bandwidths are compared, and the most that MAP tries before it is solved.
COMPARED_FEATURES = 500
NARROWER_MULTIPLES = (1.0, 2.0**-0.5, 0.5, 2.0**-1.5)  # of the pilot's bandwidth, tried downwards
WORTH_NARROWING = 0.002  # gain in log-likelihood per row after which a smaller one is tried
REFINEMENT_LOG2_DRAWS = 14  # draws behind a normalizer, and nodes of MAP, as a power of two


@record
class Tempering:
    """eta of FVPD: a number, or a multiple of 1 / gamma^2.

    value : float or None
    multiple : float, used where value is None
    """

    value: float | None = None
    multiple: float = 1.0

    def at(self, bandwidth: float) -> float:
        """eta for a bandwidth."""
        return self.multiple / bandwidth**2 if self.value is None else self.value


@record
class RefinementTrial:
    """Features with one lambda, and what the rows held out say of them."""

    features: Features
    lam: float
    score: HeldOutScore

    def record(self) -> dict[str, float]:
        """Plain numbers for ``model.settings``; the score is in the model's coordinates."""
        return {
            "n_features": self.features.n_features, "gamma": self.features.bandwidth,
            "lam": self.lam, "score": self.score.mean,
            "effective_share": self.score.effective_share, "far_share": self.score.far_share,
        }  # fmt: skip


@record
class Refined:
    """Number of features, bandwidth and lambda that suit all rows, and what was tried."""

    n_features: int
    bandwidth: float
    lam: float
    trials: tuple[RefinementTrial, ...] = ()


@record(kw_only=True)
class Refinement:
    """What stays as it is while settings are refined.

    Attributes
    ----------
    split : SampleSplit
        With rows held out.
    base : Base
        Learned without them.
    method : str
    lams : tuple of float
        Lambdas that are scored.
    tempering : Tempering
    seed : int
    threads : Threads
    one_standard_error : bool
        Whether a larger lambda or bandwidth is preferred within one standard error.
    """

    split: SampleSplit
    base: Base
    method: str
    lams: tuple[float, ...]
    tempering: Tempering
    seed: int
    threads: Threads
    one_standard_error: bool = False

    def make_fold(self) -> Fold:
        """The rows held out, with draws of the base."""
        x, weights, held = self.split.x, self.split.weights, self.split.held
        none = x[:0], weights[:0]
        split = Split(*none, x[held], weights[held] / weights[held].sum())
        nearby = x[assign_folds(len(x), -(-len(x) // NEAR_ROWS)) == 0]
        return Fold(self.base, split, nearby, REFINEMENT_LOG2_DRAWS, self.seed)

    def without_held(self, stats: RowSums) -> Any:
        """The statistics of all rows minus those of the rows held out."""
        held = self.split.held
        rows = Blocks(self.split.x[held], sample_weight=self.split.weights[held])
        return stats - accumulate_like(stats, rows, self.base, **self.threads.options)

    def score(self, rest: Any, fold: Fold) -> list[RefinementTrial]:
        """What the rows held out say of every lambda.

        rest : statistics without the rows held out
        """
        equations = NO_EQUATIONS if self.method == "map" else fd_system(rest, self.base)
        sums = PilotSums(rest.features, rest.n, rest.sum_phi, equations)
        block = FoldFeatures(rest.features, fold, self.threads, sums)
        if self.method == "fvpd":
            eta = self.tempering.at(rest.features.bandwidth)
            scores = [block.score_fvpd(lam, eta) for lam in self.lams]
        else:
            learn = block.fd if self.method == "fd" else block.posterior
            scores = block.score_thetas(learn(self.lams))
        return [
            RefinementTrial(rest.features, lam, score)
            for lam, score in zip(self.lams, scores, strict=True)
        ]

    # -- bandwidth --------------------------------------------------------------------------------

    def refine_bandwidth(
        self, sums: Callable[[Features], RowSums], features: Features
    ) -> Refined:
        """The bandwidth that suits all rows: more rows than the pilot's allow a smaller one.

        Bandwidths are tried downwards, with the first of the features, while they gain.

        Parameters
        ----------
        sums : callable
            Features -> what the method needs of all rows.
        features : Features
            With the pilot's bandwidth.
        """
        fold, trials = self.make_fold(), list[RefinementTrial]()
        best: RefinementTrial | None = None
        for few in bandwidth_candidates(features, self.split.resolution):
            rest = self.without_held(sums(few))
            with kernels.threads(*self.threads.resolve()):
                found = self.score(rest, fold)
            trials.extend(found)
            top = max(found, key=lambda t: t.score.mean)
            if not self._is_worth_narrowing(top, best):
                break
            best = top
        width = features.bandwidth if best is None else best.features.bandwidth
        return Refined(features.n_features, width, self.lams[0], tuple(trials))

    def _is_worth_narrowing(self, top: RefinementTrial, best: RefinementTrial | None) -> bool:
        """Whether a trial is better than the best so far by enough; reliable, without one."""
        if best is None or not top.score.is_reliable:
            return top.score.is_reliable
        gain = top.score.gain_over(best.score.values)
        error = standard_error([gain]) if self.one_standard_error else 0.0
        return gain.mean > max(WORTH_NARROWING, error)

    # -- number of features and lambda ------------------------------------------------------------

    def refine_size_and_lambda(
        self, stats: RowSums, counts: Sequence[int], *, least_errors: float = 0.0
    ) -> Refined:
        """The number of features and the lambda that suit all rows.

        Numbers of features are tried upwards, each with every lambda, until one gains less than
        WORTH_DOUBLING. The base alone wins unless the tilt gains ``least_errors`` standard errors
        over it.

        Parameters
        ----------
        stats : Statistics or FeatureMeans
            Of all rows and the most features.
        counts : sequence of int
            Numbers of features to try; those of ``stats`` are tried too.
        least_errors : float, default 0.0
        """
        most, width = stats.features.n_features, stats.features.bandwidth
        if self.method not in REFINED_METHODS:
            return Refined(most, width, self.lams[0])
        fold, rest = self.make_fold(), self.without_held(stats)
        counts = [count for count in counts if count < most] + [most]
        scored = [c for c in counts if self.method != "map" or c <= COMPARED_FEATURES] or counts[:1]
        with kernels.threads(*self.threads.resolve()):
            trials, best, gain = self._grow(rest, fold, scored)
        if not self._beats_base(best, fold, least_errors):
            return Refined(counts[0], width, BASE_ALONE, tuple(trials))
        size = best.features.n_features
        if self.method == "map" and size == scored[-1]:
            size = extrapolate_size(size, gain, counts)
        return Refined(size, width, best.lam, tuple(trials))

    def _grow(
        self, rest: Any, fold: Fold, counts: Sequence[int]
    ) -> tuple[list[RefinementTrial], RefinementTrial, float]:
        """All trials, the best of them, and what the last number of features gained."""
        trials = list[RefinementTrial]()
        best: RefinementTrial | None = None
        for count in counts:
            found = self.score(rest.first_features(count), fold)
            trials.extend(found)
            top = max(found, key=lambda t: t.score.mean)
            gain = top.score.mean - (-np.inf if best is None else best.score.mean)
            is_first = best is None
            if best is None or gain > 0.0:
                best = replace(top, lam=self._smoothest_lam(found, top))
            if not is_first and not gain >= WORTH_DOUBLING:
                break
        assert best is not None
        return trials, best, gain

    def _smoothest_lam(self, found: Sequence[RefinementTrial], top: RefinementTrial) -> float:
        """The best lambda, or with one_standard_error the largest so near to it, row by row."""
        if not (self.one_standard_error and top.score.is_reliable):
            return top.lam
        near = []
        for trial in found:
            gain = top.score.gain_over(trial.score.values)
            if trial.score.is_reliable and gain.mean <= standard_error([gain]):
                near.append(trial.lam)
        return max(near)

    def _beats_base(self, best: RefinementTrial, fold: Fold, least_errors: float) -> bool:
        if not best.score.is_reliable:
            return False
        gain = best.score.gain_over(fold.held_base)
        return gain.mean > least_errors * standard_error([gain])


def bandwidth_candidates(features: Features, steps: Array) -> list[Features]:
    """The first of the features with every bandwidth that is compared, the largest first: those
    with which no wave becomes shorter than two steps of a column."""
    few = features.first(COMPARED_FEATURES)
    least = min(1.0, float((features.bandlimit * steps).max()) / (2.0 * np.pi))
    return [
        replace(few, bandwidth=m * features.bandwidth) for m in NARROWER_MULTIPLES if m >= least
    ]


def extrapolate_size(size: int, gain: float, counts: Sequence[int]) -> int:
    """MAP's number of features beyond those that were scored, since its steps take long.

    Where the last gain was worth doubling, the number is doubled once more; where it was worth
    four times as much, twice.
    """
    if gain < WORTH_DOUBLING:
        return size
    most = size * (4 if gain >= 4.0 * WORTH_DOUBLING else 2)
    return max(count for count in counts if count <= max(most, counts[0]))
