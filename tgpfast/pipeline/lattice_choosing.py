"""`choose_lattice_plan`: settings, base and sums of a lattice, for one to three columns.

One pass makes the sums of every fold of the rows. From them held-out rows choose the settings, and
all of them together are the statistics of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..data.row_sample import SAMPLE_ROWS
from ..features.lattice import LatticeFeatures
from ..selection.candidates import CAREFUL_ROWS, LEAST_PILOT_ROWS
from ..selection.lattice_choice import (
    NARROWEST,
    WIDEST,
    LatticeChoice,
    LatticeSpace,
    confirm,
    decide,
    search_settings,
    try_base,
)
from ..selection.lattice_search import HeldOutRows, LatticeSearch
from ..solvers.lattice_map import check_lam
from ..statistics.lattice_statistics import LatticeStatistics
from ..statistics.lattice_sums import accumulate_lattice, accumulate_lattice_folds
from ..validation import Array
from .lattice_bases import BaseLearner, check_base_fits, list_base_kinds
from .lattice_inputs import N_LATTICE_FOLDS, LatticeInputs
from .lattice_plan import LatticePlan
from .noise import most_noise, noise_levels
from .rows import Rows
from .settings import FALLBACK, Settings

# Every fold is held out up to the first number of rows, three of the five up to the second, and one
# of more rows. Three instead of one gained 0.001 nats a row on 5,000 and 16,000 rows of ten kinds
# in one and two columns for a third more time; 0.02 to 0.04 in three columns, where mixtures are
# averaged, for twice the time.
FULLY_VALIDATED_ROWS, CROSS_VALIDATED_ROWS = 500, 50_000
CONFIRMING_FOLDS = 2  # of those that are not searched, which confirm a gain that may be luck
# Modes along the longest axis, by dimension d: MODES_PER_ROW n^(1/d), within limits
MODES_PER_ROW = {1: 2.0, 2: 2.0, 3: 1.0}
LEAST_MODES, MOST_LATTICE_MODES = {1: 64, 2: 16, 3: 6}, {1: 1024, 2: 128, 3: 10}
# the box has margins for this bandwidth, in standard deviations: wider ones see its period
BOX_BANDWIDTH = {1: 1.0, 2: 0.3, 3: 0.3}
LEAST_TILTED_ROWS = 500  # rows from which tilts of a mixture are tried
WORTH_A_MIXTURE = 0.01  # nats a row below the best tilt, within which a mixture is tried as a base
# Fewer rows than the first number do not show regions that hold little of the mass, where a rough
# tilt loses without bound: lambda times rows is at least the second. Without it, one of 60 fits of
# 20 rows lost 1.2 nats that held-out rows had not shown; the mean gain fell from 0.12 to 0.11.
UNSEEN_ROWS, LEAST_LAM_ROWS = 50, 20.0
FEW_ROWS_KERNELS = ("gaussian", "matern32")  # few rows do not tell all of them apart
# where nothing is compared; the bandwidth in standard deviations
DEFAULT_KERNEL, DEFAULT_BANDWIDTH, DEFAULT_LAM = "matern52", 0.5, 1.0


def choose_lattice_plan(
    settings: Settings, rows: Rows, labels: NDArray[np.int64] | None = None
) -> LatticePlan:
    """The plan with a lattice.

    Parameters
    ----------
    settings : Settings
    rows : Rows
        Of at most three columns, with a sample.
    labels : (n,) ints, default None
        Folds of the rows, all of which are distinct and in the sample.
    """
    inputs = LatticeInputs.of(settings, rows, labels)
    check_base_fits(settings.base, inputs.axes)
    if settings.method in ("auto", "map") and not isinstance(settings.lam, str):
        check_lam(settings.lam)
    n_distinct = len(np.unique(inputs.sample.x, axis=0))
    is_few = n_distinct < LEAST_PILOT_ROWS
    if is_few and settings.compared:
        settings.warn_of_few_rows(n_distinct)
    if settings.method not in ("auto", "map") or not settings.compared or is_few:
        return _plan_as_given(inputs)
    learner = BaseLearner(inputs)
    search, choice = _compare_candidates(inputs, learner)
    best, theta = choice.best.candidate, choice.best.theta
    total = sum(search.folds[1:], search.folds[0])
    stats = replace(
        total.corner(search.lattice(best.n_modes).n_modes).with_kernel(best.kernel, best.bandwidth),
        sum_log_bases=np.zeros(0),
    )
    return LatticePlan(
        asked=settings, statistics=stats, axes=inputs.axes, choice=choice,
        settings=_fill_in(settings, "map", best.kernel, best.bandwidth, best.lam, best.base),
        # each component takes a grid of its own in the normalizer of a tilt in three columns
        base=learner.learn_from_all(best.base, averages=best.is_base_alone or rows.dimension < 3),
        start=None if theta is None else theta.mean(axis=0),
        resolution=inputs.resolution, held=list(search.held),
    )  # fmt: skip


def _compare_candidates(
    inputs: LatticeInputs, learner: BaseLearner
) -> tuple[LatticeSearch, LatticeChoice]:
    """Score settings and bases on the folds that are held out, and decide."""
    settings, sample = inputs.settings, inputs.sample
    features, held, kinds = _make_lattice(inputs), _held_folds(inputs.rows), list_base_kinds(inputs)
    # a mixture takes longest to make; where the sample is all rows, the tilts say if it is needed
    is_late = "mixture" in kinds[1:] and len(held) > 1 and len(sample.x) < SAMPLE_ROWS
    early = [kind for kind in kinds if not (kind == "mixture" and is_late)]
    bases = {kind: [learner.learn_without(kind, fold) for fold in held] for kind in early}
    search = LatticeSearch(
        features, _sum_folds(inputs, features, held, bases), held, bases,
        settings.threads.resolve()[1], must_resolve=isinstance(settings.lam, str),
    )  # fmt: skip
    space, rows = _search_space(inputs, kinds, features), sample.held_out(held)
    found = search_settings(search, replace(space, bases=tuple(early)))
    if is_late and _mixture_may_win(search, learner, rows):
        mixtures = [learner.learn_without("mixture", fold) for fold in held]
        search.add_base("mixture", mixtures, rows.sum_log_densities(mixtures))
    for kind in list(search.bases)[1:]:
        try_base(search, space, found, kind)
    return search, _confirm_gain(decide(search, space, rows), search, learner)


def _confirm_gain(
    choice: LatticeChoice, search: LatticeSearch, learner: BaseLearner
) -> LatticeChoice:
    """The choice; or the base alone, where folds that were not searched deny a small gain."""
    others = [fold for fold in range(N_LATTICE_FOLDS) if fold not in search.held]
    others = others[:CONFIRMING_FOLDS]
    if not (choice.may_be_luck and others):
        return choice
    kind, fresh = choice.best.candidate.base, search.with_held(others)
    bases = [learner.learn_without(kind, fold) for fold in others]
    # tilts are compared with their own base: its log density cancels out
    fresh.add_base(kind, bases, np.zeros(len(others)))
    share = len(others) / (len(search.held) + len(others))
    return confirm(choice, fresh, learner.inputs.sample.held_out(others), share)


def _held_folds(rows: Rows) -> list[int]:
    """Numbers of the folds that are held out in turn: fewer of more rows."""
    if rows.n <= FULLY_VALIDATED_ROWS:
        return list(range(N_LATTICE_FOLDS))
    return [0, 1, 2] if rows.n <= CROSS_VALIDATED_ROWS else [0]


def _plan_as_given(inputs: LatticeInputs) -> LatticePlan:
    """The plan with the settings as given; open ones take values that suit most data."""
    from ..solvers.lattice_score_matching import DENSE_FEATURES

    settings, rows = inputs.settings, inputs.rows
    method = "map" if settings.method == "auto" else settings.method
    kernel = DEFAULT_KERNEL if settings.kernel == "auto" else settings.kernel
    gamma, lam, word = settings.gamma, settings.lam, settings.base
    if isinstance(gamma, str):
        gamma = DEFAULT_BANDWIDTH * inputs.sample.deviation
    if isinstance(lam, str):
        lam = DEFAULT_LAM if method == "map" else FALLBACK["lam"]
    if isinstance(word, str) and word == "auto":
        word = "empirical"
    base = BaseLearner(inputs).learn_from_all(word)
    features = _make_lattice(inputs).with_kernel(str(kernel), float(gamma))
    levels: Sequence[float] | Array = ()
    if method == "fvpd":
        features = _with_most_features(features, DENSE_FEATURES)
    if method == "ncfd":
        levels = noise_levels(most_noise(settings, rows), settings.n_noise_levels)
    with inputs.axes.name_rows_beyond():
        stats = accumulate_lattice(
            rows.blocks, features, base=None if method == "map" else base, noise_levels=levels,
            threads=settings.threads, progress=settings.progress,
        )  # fmt: skip
    return LatticePlan(
        asked=settings, statistics=stats, base=base, axes=inputs.axes, choice=None, start=None,
        settings=_fill_in(settings, method, str(kernel), float(gamma), float(lam), word),
        resolution=inputs.resolution,
    )  # fmt: skip


def _fill_in(
    settings: Settings, method: str, kernel: str, gamma: float, lam: float, base: Any
) -> Settings:
    """The settings with nothing open."""
    return replace(
        settings, features="lattice", method=method, kernel=kernel, gamma=gamma, lam=lam,
        base=settings.base if isinstance(settings.base, Base) else base,
        eta=None if isinstance(settings.eta, str) else settings.eta,
        n_features=None, frequency_covariance=None, interactions=None,
    )  # fmt: skip


def _make_lattice(inputs: LatticeInputs) -> LatticeFeatures:
    """The box of the rows, with as many modes as rows and resolution warrant."""
    rows, sample, axes, gamma = inputs.rows, inputs.sample, inputs.axes, inputs.settings.gamma
    d = rows.dimension
    modes = MODES_PER_ROW[d] * rows.n ** (1.0 / d)
    modes = 2 ** math.ceil(math.log2(min(max(modes, LEAST_MODES[d]), MOST_LATTICE_MODES[d])))
    width = BOX_BANDWIDTH[d] * sample.deviation if isinstance(gamma, str) else gamma
    features = LatticeFeatures.for_data(
        sample.x, min(modes, MOST_LATTICE_MODES[d]), "matern32", width, support=axes.support,
        period=axes.periods,
    )  # fmt: skip
    origin = np.where(axes.domain.periodic, axes.domain.low, features.origin)
    features = replace(features, origin=origin)
    # no wave is shorter than two steps of a column
    steps = np.maximum(inputs.resolution, 1e-300)
    finest = np.maximum(1.0, np.minimum(np.pi / (steps * features.frequency_steps), modes))
    return features.with_modes(np.minimum(features.n_modes, finest.astype(int)).tolist())


def _with_most_features(features: LatticeFeatures, most: int) -> LatticeFeatures:
    """The lattice with fewer modes, so that it has at most ``most`` features."""
    while features.n_features > most:
        features = features.with_modes([max(1, int(0.9 * m)) for m in features.n_modes])
    return features


def _search_space(
    inputs: LatticeInputs, kinds: Sequence[str], features: LatticeFeatures
) -> LatticeSpace:
    """The values that open settings may take, and the one value of each other setting."""
    settings, rows, unit = inputs.settings, inputs.rows, inputs.sample.deviation
    simple = ("uniform", "von_mises", "empirical", kinds[0])
    gamma, lam = settings.gamma, settings.lam
    space = LatticeSpace(
        bandwidths=(NARROWEST * unit, WIDEST * unit) if isinstance(gamma, str) else (gamma, gamma),
        bases=tuple(kinds),
        simplest=next(kind for kind in simple if kind in kinds),
        may_be_base_alone=isinstance(lam, str), max_modes=_modes_of_longest(features),
        tilts_mixtures=rows.n >= LEAST_TILTED_ROWS,
    )  # fmt: skip
    if not isinstance(lam, str):
        space = replace(space, lams=(lam, lam))
    elif rows.n < UNSEEN_ROWS:
        space = replace(space, lams=(max(space.lams[0], LEAST_LAM_ROWS / rows.n), space.lams[1]))
    if settings.kernel != "auto":
        return replace(space, kernels=(settings.kernel,))
    return replace(space, kernels=FEW_ROWS_KERNELS) if rows.n <= CAREFUL_ROWS else space


def _modes_of_longest(features: LatticeFeatures) -> int:
    """Modes that the longest axis would have at the resolution of the finest axis."""
    steps = features.frequency_steps
    return int(float((np.array(features.n_modes) * steps).max() / steps.min()) * (1 + 1e-9))


def _mixture_may_win(search: LatticeSearch, learner: BaseLearner, rows: HeldOutRows) -> bool:
    """Whether a mixture alone comes close to the best candidate on the rows of one fold.

    Where no tilt gains over the bases alone, the rows have no shape that a mixture could have;
    unless no affordable grid could score some of the tilts.
    """
    best = search.scored[0]
    if best.candidate.is_base_alone and all(math.isfinite(s.score) for s in search.scored):
        return False
    here = rows.of_fold(0)
    mixture = learner.learn_without("mixture", 0).log_density_at(here.x)
    lost = search.row_values(best, here) - mixture
    return bool(here.weights @ lost < WORTH_A_MIXTURE * here.weights.sum())


def _sum_folds(
    inputs: LatticeInputs, features: LatticeFeatures, held: Sequence[int],
    bases: dict[str, list[Base]],
) -> list[LatticeStatistics]:  # fmt: skip
    """One pass: the sums of every fold, with the log densities of its own bases. Folds that are
    only learned from have any base's."""
    place = {fold: k for k, fold in enumerate(held)}
    of_folds = [
        [made[place.get(fold, 0)] for made in bases.values()] for fold in range(N_LATTICE_FOLDS)
    ]
    settings = inputs.settings
    with inputs.axes.name_rows_beyond():
        return accumulate_lattice_folds(
            inputs.rows.blocks, features, inputs.sample.folds, bases=of_folds,
            threads=settings.threads, progress=settings.progress,
        )  # fmt: skip
