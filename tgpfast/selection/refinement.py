"""The second look at settings, with all rows: bandwidth, number of features, and lambda of FD.

The pilot has chosen base, method, a bandwidth and the shape of the frequencies. Every row but few
is now learned from, total minus fold. Bandwidths are read off a `Spectrum`, or take sums of
features alone; the statistics of fewer features are a corner of those of many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import kernels
from ..bases.gaussian import Base, GaussianBase
from ..bases.mixture import EM_ROWS, MixtureBase, expectation_maximisation
from ..bases.student import StudentBase
from ..data.blocks import Blocks
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.fisher import fd_system
from ..statistics.required_sums import RowSums, accumulate_like
from ..validation import Array
from .candidates import (
    BASE_ALONE,
    FEW_ROWS,
    Block,
    Fold,
    Scored,
    dealt,
    distinct,
    standard_error,
)

SIZES = (250, 500, 1000, 2000)  # numbers of features, tried upwards
WORTH_DOUBLING = 0.004  # gain in log-likelihood after which still more are tried
SIZE = 500  # at which bandwidths are compared, and the most that MAP tries before it is solved
NARROWER = (1.0, 2.0**-0.5, 0.5, 2.0**-1.5)  # times the pilot's bandwidth
WORTH_NARROWING = 0.002
HELD = 10  # one row in so many is held out
NEARBY = 5_000  # rows from which it is told what lies far from data
LOG2_DRAWS = 14  # behind the normalisers of FD, whose many lambdas share their features
METHODS = ("fd", "fvpd", "map")


@dataclass(frozen=True, eq=False)
class Settled:
    """Number of features and lambda after the second look, and what was tried."""

    n_features: int
    lam: float
    tried: list[dict[str, float]]


@dataclass(frozen=True, eq=False)
class SecondLook:
    """Rows spread over the data, more than the pilot's: x, their weights, and which of them are
    held out, from the learning of bases as well; none where rows are few."""

    x: Array
    weights: Array
    held: Any

    @classmethod
    def at(cls, rows: Blocks) -> SecondLook | None:
        """None where the rows can be read only once."""
        pilot = rows.pilot(EM_ROWS)
        if pilot is None:
            return None
        x, weights = distinct(pilot)
        return cls(x, weights, (dealt(len(x), HELD) == 0) & (len(x) > FEW_ROWS))

    @property
    def holds_out(self) -> bool:
        """Whether there are rows that bases have not seen."""
        return bool(self.held.any())

    def learned(self, kind: str, *, least: int = 1, seed: int = 0, whole: bool = False) -> Base:
        """A base of the kind, by EM. least : components; whole : from the rows held out too."""
        kept = ~self.held | whole
        if kind == "student":
            return StudentBase._by_em(self.x[kept], self.weights[kept])
        x, weights = self.x[kept], self.weights[kept]
        return MixtureBase._by_em(x, weights, None, seed, least=least)._guarded(x, weights)

    def learned_on(self, base: Base) -> Base:
        """The base, learned also from the rows that were held out."""
        if not self.holds_out or isinstance(base, GaussianBase):
            return base
        if isinstance(base, MixtureBase):
            # the guard, of less than a row, is dropped by the first step
            mixture = expectation_maximisation(self.x, self.weights, 0, 0, base).mixture
            return mixture._guarded(self.x, self.weights)
        return self.learned(base.kind, whole=True)

    def _fold(self, base: Base, x: Array, weights: Array, method: str, seed: int) -> Fold:
        is_map = method == "map"
        nearby = self.x[dealt(len(self.x), -(-len(self.x) // NEARBY)) == 0]
        return Fold.of(
            base, x[:0], x, weights[:0], weights / weights.sum(), nearby=nearby,
            log2_draws=LOG2_DRAWS, log2_nodes=LOG2_DRAWS if is_map else None, seed=seed,
        )  # fmt: skip

    def narrower(
        self, sums: Callable[[Features], RowSums], features: Features, base: Base, method: str, *,
        lams: Sequence[float], temper: float, seed: int, threads: Threads,
        one_standard_error: bool = False,
    ) -> tuple[Features, list[dict[str, float]]]:  # fmt: skip
        """The features with the bandwidth that suits all rows: more rows than the pilot's allow a
        smaller one. Tried downwards, with the first of the features, while it gains.

        sums : features -> what the method needs of all rows
        temper : eta times gamma^2
        one_standard_error : it must gain more than the error of that
        """
        x, weights = self.x[self.held], self.weights[self.held]
        fold = self._fold(base, x, weights, method, seed)
        best, tried = features, []
        last: Scored | None = None
        for few in bandwidth_candidates(features):
            width = few.bandwidth
            total = sums(few)
            rest = _rest(total, x, weights, base, threads)
            with kernels.threads(*threads.resolve()):
                found = _scored(rest, base, method, fold, lams, temper / width**2, threads)
            rows = [_row(few, lam, s) for lam, s in zip(lams, found, strict=True)]
            tried.extend(rows)
            top = max(found, key=lambda s: s.mean)
            if not _is_better(top, last, one_standard_error):
                break
            best, last = replace(features, bandwidth=width), top
        return best, tried

    def settle(
        self, stats: RowSums, base: Base, method: str, *, lams: Sequence[float], eta: float,
        sizes: Sequence[int], seed: int, threads: Threads, one_standard_error: bool = False,
        least_errors: float = 0.0,
    ) -> Settled:  # fmt: skip
        """Sizes are tried upwards, each with every lambda, until one gains less than
        WORTH_DOUBLING; see `_doubled` for MAP.

        The base alone wins unless the tilt gains ``least_errors`` standard errors over it. There
        must be rows held out, or it could not be judged.

        one_standard_error : the largest lambda that comes so near to the best
        """
        most = stats.features.n_features
        if method not in METHODS:
            return Settled(most, lams[0], [])
        x, weights = self.x[self.held], self.weights[self.held]
        rest = _rest(stats, x, weights, base, threads)
        fold = self._fold(base, x, weights, method, seed)
        sizes = [s for s in sizes if s < most] + [most]
        tried: list[dict[str, float]] = []
        best, gain = {"n_features": sizes[0], "lam": lams[0], "score": -np.inf}, 0.0
        winner: Scored | None = None
        small = [s for s in sizes if method != "map" or s <= SIZE] or sizes[:1]
        with kernels.threads(*threads.resolve()):
            for size in small:
                found = _scored(rest.first_features(size), base, method, fold, lams, eta, threads)
                few = stats.features.first(size)
                rows = [_row(few, lam, s) for lam, s in zip(lams, found, strict=True)]
                tried.extend(rows)
                top = max(range(len(rows)), key=lambda k: rows[k]["score"])
                gain = rows[top]["score"] - best["score"]
                if size == small[0] or gain > 0.0:
                    best, winner = rows[top], found[top]
                    if one_standard_error and winner.is_believed:
                        best = {**best, "lam": _largest(lams, found, winner)}
                if size > small[0] and not gain >= WORTH_DOUBLING:
                    break
        if winner is None or not winner.is_believed:
            return Settled(sizes[0], BASE_ALONE, tried)
        over = winner.over(fold.held_base)
        if not over.mean > least_errors * standard_error([over.values], [over]):
            return Settled(sizes[0], BASE_ALONE, tried)
        chosen = int(best["n_features"])
        if method == "map" and chosen == small[-1]:
            chosen = _doubled(chosen, gain, sizes)
        return Settled(chosen, best["lam"], tried)


def bandwidth_candidates(features: Features) -> list[Features]:
    """The first of the features with every bandwidth that is compared, the largest first."""
    few = features.first(SIZE)
    return [replace(few, bandwidth=factor * features.bandwidth) for factor in NARROWER]


def _is_better(top: Scored, last: Scored | None, one_standard_error: bool) -> bool:
    """Than the last, by enough; than none, if it is believed."""
    if last is None or not top.is_believed:
        return top.is_believed
    gain = top.over(last.values)
    error = standard_error([gain.values], [gain]) if one_standard_error else 0.0
    return gain.mean > max(WORTH_NARROWING, error)


def _largest(lams: Sequence[float], found: Sequence[Scored], best: Scored) -> float:
    """The largest lambda within one standard error of the best, row by row."""
    near = []
    for lam, scored in zip(lams, found, strict=True):
        gain = best.over(scored.values)
        if scored.is_believed and gain.mean <= standard_error([gain.values], [gain]):
            near.append(lam)
    return max(near)


def _doubled(size: int, gain: float, sizes: Sequence[int]) -> int:
    """MAP's number of features: its steps are dear, so that beyond SIZE the last gain decides.
    Where that was worth doubling it is doubled again, and where it was worth much, twice."""
    if gain < WORTH_DOUBLING:
        return size
    most = size * (4 if gain >= 4.0 * WORTH_DOUBLING else 2)
    return max(s for s in sizes if s <= max(most, sizes[0]))


def _rest(stats: RowSums, x: Array, weights: Array, base: Base, threads: Threads) -> Any:
    """Total minus fold."""
    run = {"backend": threads.backend, "n_threads": threads.n_threads}
    return stats - accumulate_like(stats, Blocks(x, sample_weight=weights), base, **run)  # type: ignore[operator]


def _scored(
    rest: Any, base: Base, method: str, fold: Fold, lams: Sequence[float], eta: float,
    threads: Threads,
) -> list[Scored]:  # fmt: skip
    """What the rows held out say of every lambda."""
    system = (None, None) if method == "map" else fd_system(rest, base)
    block = Block(rest.features, fold, threads, (rest.n, rest.sum_phi, *system))
    if method == "fvpd":
        return [block.fvpd(lam, eta) for lam in lams]
    return block.of_points((block.fd if method == "fd" else block.posterior)(lams))


def _row(features: Features, lam: float, scored: Scored) -> dict[str, float]:
    return {
        "n_features": features.n_features, "gamma": features.bandwidth, "lam": lam,
        "score": scored.mean, "effective_share": scored.share, "far_share": scored.far,
    }  # fmt: skip
