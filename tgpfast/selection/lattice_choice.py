"""Kernel, bandwidth, lambda, modes and base of a lattice density, by held-out log-likelihood."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..bases.part_widths import part_widths
from ..features.lattice import LatticeFeatures
from ..features.spectral_density import KERNELS
from ..runtime.records import record
from .candidates import BASE_ALONE, CONFIRMED_GAIN_ERRORS, required_gain_errors
from .lattice_search import HeldOutRows, LatticeCandidate, LatticeSearch, ScoredCandidate

FIRST_MODES = {1: 16, 2: 8, 3: 4}  # along the longest axis, by dimension: the coarsest level
SEARCH_MODES = {1: 64, 2: 16, 3: 6}  # most at which kernels are compared: more take long
FIRST_KERNEL, FIRST_LAM = "matern32", 0.5
FIRST_BANDWIDTH = 1.0 / 12.0  # of WIDEST
NARROWEST, WIDEST = 0.02, 6.0  # bandwidths that are tried, in standard deviations
LEAST_LAM, MOST_LAM = 4e-3, 1e4  # lambdas that are tried: below, solves take long and spikes win
WORTH_RESOLVING = 0.01  # nats a row that a finer level must gain for another one to be tried
WORTH_DOUBLING_MODES = 0.002  # the same once kernel, bandwidth and lambda are known
COARSE_STEPS, FINE_STEPS = (2.0, 4.0), (2.0**0.5, 2.0)  # factors of bandwidth and lambda
RETUNED_MODES = {1: 512, 2: 32, 3: 8}  # most at which bandwidth and lambda are searched again
FINE_TRIES, RETUNING_TRIES = 5, 3  # candidates of one fine pattern search at most
# successive halving: kernels kept, factors of bandwidth and lambda, candidates for each kernel
HALVING = ((4, COARSE_STEPS, 2), (2, COARSE_STEPS, 4), (1, FINE_STEPS, FINE_TRIES))
# The smoothest candidate wins that scores at most ALLOWED_ERRORS standard errors below the best,
# and at most as much as ALLOWED_PARAMETERS parameters are worth: 1 / n nats a row each.
ALLOWED_ERRORS, ALLOWED_PARAMETERS = 0.5, 2.0
# components of a mixture up to which tilts of it are tried in three dimensions, where each takes a
# grid of its own in the normalizer, 0.1 s
MOST_TILTED_PARTS = 24
SMOOTHER = 4.0  # factor of lambda, by which it is raised for another base
WORTH_ANOTHER_BASE = 0.001  # nats a row that a base other than the preferred one must gain
NEGLIGIBLE_GAIN = 2e-5  # nats a row that do not count as better
# standard errors that a tilt must gain where no rows are left that could confirm it. With 3, eight
# of 168 fits of up to 500 rows lost true gains of 0.06 to 0.6 nats; with 2.5, two were losses
UNCONFIRMED_GAIN_ERRORS = 2.75
SURE_GAIN_ERRORS = 5.0  # standard errors that the best of many candidates does not gain by luck


@record
class LatticeSpace:
    """The values that each setting may take; one value each where the user has given it.

    Attributes
    ----------
    kernels : tuple of str
    bandwidths, lams : (least, most)
    bases : tuple of str
        Names. The first is the one that settings are searched with: that with the heaviest tails,
        since rows beyond the box have its density.
    simplest : str
        The base that is preferred as a density of its own.
    max_modes : int
        Largest number of modes along the longest axis.
    may_be_base_alone : bool
    tilts_mixtures : bool
        Whether tilts of mixtures are tried where other bases are too.
    """

    kernels: tuple[str, ...] = KERNELS
    bandwidths: tuple[float, float] = (NARROWEST, WIDEST)
    lams: tuple[float, float] = (LEAST_LAM, MOST_LAM)
    bases: tuple[str, ...] = ("empirical",)
    simplest: str = "empirical"
    max_modes: int = 128
    may_be_base_alone: bool = True
    tilts_mixtures: bool = True


@record
class LatticeChoice:
    """The chosen candidate, and all that were scored.

    Attributes
    ----------
    best : ScoredCandidate
    scored : list of ScoredCandidate
        Best first.
    gain : float
        Held-out log-likelihood of a row of the best tilt less that of the base alone that it was
        compared with; nan where none was tried.
    gain_error : float
        Its standard error.
    alone : ScoredCandidate or None, default None
        The base that is taken alone if the tilt is not; None where none was tried.
    """

    best: ScoredCandidate
    scored: list[ScoredCandidate]
    gain: float
    gain_error: float
    alone: ScoredCandidate | None = None

    @property
    def may_be_luck(self) -> bool:
        """Whether the best of many candidates, none better than the base, might gain as much."""
        is_tilt = self.alone is not None and self.best is not self.alone
        return is_tilt and self.gain < SURE_GAIN_ERRORS * self.gain_error


def search_settings(search: LatticeSearch, space: LatticeSpace) -> LatticeCandidate:
    """The best tilt of the first base in `space.bases`; every base alone is scored too.

    The number of modes is raised while one plain candidate gains. There, bandwidth and lambda are
    searched for every kernel, and more finely for the two best; then more modes are tried with what
    was found.

    Parameters
    ----------
    search : LatticeSearch
    space : LatticeSpace
    """
    for base in space.bases:
        _score_alone(search, space, base)
    first = _first_candidate(space, search.features)
    coarse = replace(space, max_modes=min(space.max_modes, SEARCH_MODES[search.features.dimension]))
    best = _raise_modes(search, coarse, first, WORTH_RESOLVING)
    found = [search.score(replace(best, kernel=kernel)) for kernel in space.kernels]
    for kept, steps, tries in HALVING:
        found = sorted(found, key=lambda s: -s.score)[:kept]
        found = [_pattern_search(search, space, s.candidate, steps, tries) for s in found]
    best = max(found, key=lambda s: s.score).candidate
    return _raise_modes(search, space, best, WORTH_DOUBLING_MODES, refines=True)


def try_base(
    search: LatticeSearch, space: LatticeSpace, best: LatticeCandidate, base: str
) -> None:
    """Score another base, alone and with the best tilt and smoother ones, on a coarse lattice; and
    with all modes where it gains there.

    Parameters
    ----------
    search : LatticeSearch
    space : LatticeSpace
    best : LatticeCandidate
        The best tilt of the first base.
    base : str
        Name of the other one.
    """
    _score_alone(search, space, base)
    n_parts = max(len(part_widths(one)[0]) for one in search.bases[base])
    is_slow = search.features.dimension == 3 and n_parts > MOST_TILTED_PARTS
    is_skipped = is_slow or (base == "mixture" and not space.tilts_mixtures)
    if space.may_be_base_alone and is_skipped:
        return
    n_modes = min(best.n_modes, SEARCH_MODES[search.features.dimension])
    coarse = next(
        s for s in search.scored
        if not s.candidate.is_base_alone and s.candidate.n_modes == n_modes
        and s.candidate.base == best.base
    )  # fmt: skip
    top = search.score(replace(coarse.candidate, base=base))
    while top.candidate.lam < space.lams[1]:  # a better base needs less of a tilt
        lam = min(SMOOTHER * top.candidate.lam, space.lams[1])
        found = search.score(replace(top.candidate, lam=lam))
        if found.score <= top.score:
            break
        top = found
    if top.score <= coarse.score + WORTH_ANOTHER_BASE:
        return
    if best.n_modes > n_modes:
        search.score(replace(best, base=base, lam=max(best.lam, top.candidate.lam)))
    elif top is search.scored[0]:
        _pattern_search(search, space, top.candidate, FINE_STEPS, FINE_TRIES)


def _score_alone(search: LatticeSearch, space: LatticeSpace, base: str) -> None:
    if space.may_be_base_alone:
        search.score(LatticeCandidate(space.kernels[0], 1.0, BASE_ALONE, 1, base))


def _first_candidate(space: LatticeSpace, features: LatticeFeatures) -> LatticeCandidate:
    kernel = FIRST_KERNEL if FIRST_KERNEL in space.kernels else space.kernels[0]
    bandwidth = float(np.clip(FIRST_BANDWIDTH * space.bandwidths[1], *space.bandwidths))
    return LatticeCandidate(
        kernel, bandwidth, float(np.clip(FIRST_LAM, *space.lams)),
        min(FIRST_MODES[features.dimension], space.max_modes), space.bases[0],
    )  # fmt: skip


def _raise_modes(
    search: LatticeSearch, space: LatticeSpace, candidate: LatticeCandidate, worth: float,
    *, refines: bool = False,
) -> LatticeCandidate:  # fmt: skip
    """The candidate with the number of modes from which doubling gains less than ``worth``.

    refines : whether bandwidth and lambda are searched again after each doubling
    """
    score = search.score(candidate).score
    while candidate.n_modes < space.max_modes:
        finer = replace(candidate, n_modes=min(2 * candidate.n_modes, space.max_modes))
        gained = search.score(finer).score - score
        if not gained >= worth:
            break
        candidate = finer
        if refines and candidate.n_modes <= RETUNED_MODES[search.features.dimension]:
            candidate = _pattern_search(search, space, finer, FINE_STEPS, RETUNING_TRIES).candidate
        score = search.score(candidate).score
    return candidate


def _pattern_search(
    search: LatticeSearch, space: LatticeSpace, candidate: LatticeCandidate,
    steps: tuple[float, float], tries: int,
) -> ScoredCandidate:  # fmt: skip
    """Move bandwidth and lambda by fixed factors to the first neighbor that is better."""
    wide, strong = steps
    moves = (
        (1.0, 1.0 / strong), (1.0, strong), (1.0 / wide, 1.0), (wide, 1.0), (wide, 1.0 / strong),
        (1.0 / wide, strong),
    )  # fmt: skip
    best, left = search.score(candidate), tries
    while left > 0:
        for of_bandwidth, of_lam in moves:
            now = best.candidate
            bandwidth, lam = now.bandwidth * of_bandwidth, now.lam * of_lam
            if not (_within(bandwidth, space.bandwidths) and _within(lam, space.lams)):
                continue
            trial = search.score(replace(now, bandwidth=bandwidth, lam=lam))
            left -= 1
            if trial.score > best.score + NEGLIGIBLE_GAIN:
                best = trial
                break
            if left <= 0:
                break
        else:
            break
    return best


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] * (1.0 - 1e-9) <= value <= limits[1] * (1.0 + 1e-9)


def decide(search: LatticeSearch, space: LatticeSpace, rows: HeldOutRows) -> LatticeChoice:
    """The smoothest candidate near the best tilt, if that beats its own base and the best base
    alone by enough; else the best base alone.

    Parameters
    ----------
    search : LatticeSearch
        With the candidates.
    space : LatticeSpace
    rows : HeldOutRows

    Raises
    ------
    ValueError
        If every candidate has a density of zero at some row.
    """
    if not math.isfinite(search.scored[0].score):
        raise ValueError(
            "the base is zero at some rows; give one that is positive wherever rows may lie"
        )
    tilts = [s for s in search.scored if not s.candidate.is_base_alone]
    alone = [s for s in search.scored if s.candidate.is_base_alone]
    best = _prefer_base(search, space.bases[0], rows, tilts)
    bare = _prefer_base(search, space.simplest, rows, alone) if alone else None
    values, needed = search.row_values(best, rows), CONFIRMED_GAIN_ERRORS
    if len(search.held) == len(search.folds):  # none is left that could confirm the gain
        luck = math.sqrt(2.0 * math.log(len(tilts)))  # errors that the best of so many gains
        needed = max(luck, required_gain_errors(rows.effective_number, UNCONFIRMED_GAIN_ERRORS))
    gain, error = math.nan, math.nan
    if bare is not None:
        own = [s for s in alone if s.candidate.base == best.candidate.base]
        for other in (bare, *own):  # what would be taken instead, and what the tilt tilts
            gain = best.score - other.score
            error = rows.standard_error(values - search.row_values(other, rows))
            if not gain > needed * error:
                return LatticeChoice(bare, search.scored, gain, error, bare)
    most = ALLOWED_PARAMETERS / float(search.held_n.sum())
    near = [best]
    for other in tilts:
        gap = best.score - other.score
        if not 0.0 < gap <= most or other.candidate.base != best.candidate.base:
            continue
        if gap <= ALLOWED_ERRORS * rows.standard_error(values - search.row_values(other, rows)):
            near.append(other)
    chosen = max(near, key=lambda s: s.candidate.smoothness)
    return LatticeChoice(chosen, search.scored, gain, error, bare)


def confirm(
    choice: LatticeChoice, search: LatticeSearch, rows: HeldOutRows, share: float
) -> LatticeChoice:
    """The choice if its tilt gains CONFIRMED_GAIN_ERRORS standard errors over its base once rows
    that took no part in the search count too; else the base alone.

    Parameters
    ----------
    choice : LatticeChoice
    search : LatticeSearch
        Of other folds than those that were searched.
    rows : HeldOutRows
        Of these folds.
    share : float
        Of these rows among them and those of the search.
    """
    assert choice.alone is not None
    found = search.score(choice.best.candidate)
    alone = search.score(replace(choice.best.candidate, lam=BASE_ALONE))
    error = rows.standard_error(search.row_values(found, rows) - search.row_values(alone, rows))
    gain = share * (found.score - alone.score) + (1.0 - share) * choice.gain
    error = math.hypot(share * error, (1.0 - share) * choice.gain_error)
    return choice if gain > CONFIRMED_GAIN_ERRORS * error else replace(choice, best=choice.alone)


def _prefer_base(
    search: LatticeSearch, preferred: str, rows: HeldOutRows, scored: list[ScoredCandidate]
) -> ScoredCandidate:
    """The best candidate; that of the preferred base where another does not gain enough."""
    best = scored[0]
    other = next((s for s in scored if s.candidate.base == preferred), best)
    if other is best:
        return best
    difference = search.row_values(best, rows) - search.row_values(other, rows)
    needed = max(WORTH_ANOTHER_BASE, rows.standard_error(difference))
    return other if best.score - other.score < needed else best
