"""The plan with lattice features, for one to three columns: settings by held-out rows, statistics
of every fold of the rows in one pass, base, and solver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..bases.bounded import (
    BoundedMixtureBase,
    ProductBase,
    UniformBase,
    confine_base,
    confine_gaussian,
)
from ..bases.expectation_maximization import measure_columns
from ..bases.gaussian import GaussianBase
from ..bases.mixture import MixtureBase, average_mixtures
from ..bases.mixture_growth import GrownMixture, grow_mixture
from ..bases.student import StudentBase
from ..bases.von_mises import VonMisesBase, confine_to_circles
from ..data.row_sample import SAMPLE_ROWS
from ..density.density import Density
from ..features.lattice import LatticeFeatures
from ..features.lattice_box import find_core
from ..runtime.records import record
from ..selection.candidates import BASE_ALONE, CAREFUL_ROWS, LEAST_PILOT_ROWS
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
from ..selection.sample_split import narrow_guard
from ..solvers.lattice_map import check_lam
from ..solvers.solver import base_alone, solve
from ..statistics.lattice_statistics import LatticeStatistics
from ..statistics.lattice_sums import accumulate_lattice, accumulate_lattice_folds
from ..statistics.value_folds import Folds
from ..validation import Array
from .discrete_columns import find_discrete
from .domain import Axes
from .noise import most_noise, noise_levels
from .rows import Rows
from .settings import FALLBACK, Settings

N_LATTICE_FOLDS = 5  # each holds out a fifth of the rows, and has sums of its own
# Up to so many rows every fold is held out; up to so many, three of the five; of more rows, one.
# Three instead of one gained 0.001 nats a row on 5,000 and 16,000 rows of ten kinds in one and two
# columns for a third more time, 0.02 to 0.04 in three columns, where mixtures are averaged, for
# twice the time
FULLY_VALIDATED_ROWS, CROSS_VALIDATED_ROWS = 500, 50_000
CONFIRMING_FOLDS = 2  # of those that are not searched, which confirm a gain that may be luck
# most modes along the longest axis, by dimension, and times so many rows to the power 1 / d
MOST_LATTICE_MODES, MODES_PER_ROW = {1: 1024, 2: 128, 3: 10}, {1: 2.0, 2: 2.0, 3: 1.0}
LEAST_MODES = {1: 64, 2: 16, 3: 6}
# the box has margins for this bandwidth, in standard deviations: wider ones see its period
BOX_BANDWIDTH = {1: 1.0, 2: 0.3, 3: 0.3}
# Rows from which a mixture is tried, and tilts of it; in one column tilts describe fewer as well.
# More than the most are not needed.
LEAST_MIXTURE_ROWS, LEAST_TILTED_ROWS = {1: 500, 2: 50, 3: 50}, 500
MOST_MIXTURE_ROWS = {1: 5_000, 2: 5_000, 3: 20_000}
# components of a base, by dimension: in one and two columns the tilt adds what is missing
MIXTURE_COMPONENTS = {1: 8, 2: 8, 3: 160}
# Mixtures, each grown without another fold, whose average is the base. On 100 and 300 rows of six
# kinds in one to three columns it had 0.01 to 0.14 nats more on fresh rows than one of them; five
# had 0.02 more at most.
N_AVERAGED = 3
WORTH_A_MIXTURE = 0.01  # nats a row below the best tilt, within which a mixture is tried as a base
MIXTURE_WORK = {1: 1e8, 2: 1e8, 3: 8e9}  # operations that growing one may take; 1e9 is 0.5 s
# Fewer rows than the first number do not show regions that hold little of the mass, where a rough
# tilt loses without bound: lambda times rows is at least the second. Without it, one of 60 fits of
# 20 rows lost 1.2 nats that held-out rows had not shown; the mean gain fell from 0.12 to 0.11.
UNSEEN_ROWS, LEAST_LAM_ROWS = 50, 20.0
FEW_ROWS_KERNELS = ("gaussian", "matern32")  # few rows do not tell all of them apart
# Of the step of a discrete column: waves down to half a step let the density jump from one value to
# the next. With waves of two steps, alternating probabilities were off by 0.05 nats.
DISCRETE_RESOLUTION = 0.25
STUDENT_TOLERANCE = 1e-6  # nats a row: what is left the tilt adds
LATTICE_BASES = ("student", "empirical", "mixture")
CONFINED = (UniformBase, BoundedMixtureBase, VonMisesBase, ProductBase)  # bases on a domain
# where nothing is compared; the bandwidth in standard deviations
DEFAULT_KERNEL, DEFAULT_BANDWIDTH, DEFAULT_LAM = "matern52", 0.5, 1.0


@record
class Sample:
    """The random sample of the rows, and the fold of each.

    Attributes
    ----------
    x : (n, d) array
        In the model's coordinates.
    weights : (n,) array
    folds : Folds or (n,) ints
        The rule that says which fold a row belongs to, or the fold of every row.
    fold : (n,) ints
    """

    x: Array
    weights: Array
    folds: Folds | NDArray[np.int64]
    fold: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Rows, axes: Axes, labels: NDArray[np.int64] | None = None) -> Sample:
        """The sample of the first pass, moved into the first period of periodic columns.

        labels : folds of the rows, all of which are in the sample; None for those of their values
        """
        x = rows.scaling.apply(rows.sample.x)
        folds: Folds | NDArray[np.int64]
        if labels is None:
            folds = Folds.for_sample(N_LATTICE_FOLDS, x)
            fold = folds.of_rows(x, rows.sample.keys)
        else:
            folds = fold = labels
        return cls(axes.inside(x), rows.sample_weights, folds, fold)

    @property
    def deviation(self) -> float:
        """Root of the mean variance of the columns, with far outliers moved to the end of the core
        of a box."""
        core = np.array([find_core(column) for column in self.x.T]).T
        return math.sqrt(float(np.clip(self.x, *core).var(axis=0).mean())) or 1.0

    def without(self, fold: int) -> tuple[Array, Array]:
        """Rows and weights of the other folds."""
        kept = self.fold != fold
        return self.x[kept], self.weights[kept]

    def held_out(self, folds: list[int]) -> HeldOutRows:
        """The rows of some folds, whose numbers are in order."""
        mine = np.isin(self.fold, folds)
        places = np.searchsorted(folds, self.fold[mine])
        return HeldOutRows(self.x[mine], places, self.weights[mine])


# -- choosing -------------------------------------------------------------------------------------


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
    axes = Axes.of(settings, rows)
    _check_base(settings.base, axes)
    if settings.method in ("auto", "map") and not isinstance(settings.lam, str):
        check_lam(settings.lam)
    sample = Sample.of(rows, axes, labels)
    n_distinct = len(np.unique(sample.x, axis=0))
    few = n_distinct < LEAST_PILOT_ROWS
    if few and settings.compared:
        settings.warn_of_few_rows(n_distinct)
    if settings.method not in ("auto", "map") or not settings.compared or few:
        return _plan_as_given(settings, rows, axes, sample)
    features = _make_lattice(settings, rows, axes, sample)
    held = _held_folds(rows)
    maker = BaseMaker(settings, rows, axes, sample)
    kinds = _base_kinds(settings, rows, axes)
    # a mixture takes longest to make; where the sample is all rows, the tilts say if it is needed
    is_late = "mixture" in kinds[1:] and len(held) > 1 and len(sample.x) < SAMPLE_ROWS
    early = [kind for kind in kinds if not (kind == "mixture" and is_late)]
    bases = {kind: [maker.without(kind, fold) for fold in held] for kind in early}
    folds = _sum_folds(settings, rows, axes, sample.folds, features, held, bases)
    search = LatticeSearch(
        features, folds, held, bases, settings.threads.resolve()[1],
        must_resolve=isinstance(settings.lam, str),
    )  # fmt: skip
    space = _search_space(settings, rows, sample, kinds, features)
    held_rows = sample.held_out(held)
    found = search_settings(search, replace(space, bases=tuple(early)))
    if is_late and _mixture_may_win(search, maker, held_rows):
        mixtures = [maker.without("mixture", fold) for fold in held]
        search.add_base("mixture", mixtures, held_rows.sum_log_densities(mixtures))
    for kind in list(search.bases)[1:]:
        try_base(search, space, found, kind)
    choice = _confirm_gain(decide(search, space, held_rows), search, maker)
    best = choice.best.candidate
    total = sum(search.folds[1:], search.folds[0])
    stats = replace(
        total.corner(search.lattice(best.n_modes).n_modes).with_kernel(best.kernel, best.bandwidth),
        sum_log_bases=np.zeros(0),
    )
    # each component takes a grid of its own in the normalizer of a tilt in three columns
    base = maker.final(best.base, averages=best.is_base_alone or rows.dimension < 3)
    chosen = _with_answers(settings, "map", best.kernel, best.bandwidth, best.lam, best.base)
    theta = choice.best.theta
    return LatticePlan(
        asked=settings, settings=chosen, statistics=stats, base=base, axes=axes, choice=choice,
        start=None if theta is None else theta.mean(axis=0),
        resolution=_resolution(sample, settings, rows), held=held,
    )  # fmt: skip


def _confirm_gain(choice: LatticeChoice, search: LatticeSearch, maker: BaseMaker) -> LatticeChoice:
    """The choice; or the base alone, where folds that were not searched deny a small gain."""
    others = [fold for fold in range(N_LATTICE_FOLDS) if fold not in search.held]
    others = others[:CONFIRMING_FOLDS]
    if not (choice.may_be_luck and others):
        return choice
    kind, fresh = choice.best.candidate.base, search.with_held(others)
    # tilts are compared with their own base: its log density cancels out
    fresh.add_base(kind, [maker.without(kind, fold) for fold in others], np.zeros(len(others)))
    share = len(others) / (len(search.held) + len(others))
    return confirm(choice, fresh, maker.sample.held_out(others), share)


def _check_base(base: Any, axes: Axes) -> None:
    """ValueError for a base that cannot be confined to the domain."""
    known = (*CONFINED, GaussianBase, MixtureBase)
    if axes.is_open or isinstance(base, known) or (isinstance(base, str) and base != "student"):
        return
    name = base if isinstance(base, str) else type(base).__name__
    raise ValueError(
        f"base {name!r} cannot be cut off at walls or wrapped around a period; use "
        'base="empirical", base="mixture" or a GaussianBase'
    )


def _held_folds(rows: Rows) -> list[int]:
    """Numbers of the folds that are held out in turn: fewer of more rows."""
    if rows.n <= FULLY_VALIDATED_ROWS:
        return list(range(N_LATTICE_FOLDS))
    return [0, 1, 2] if rows.n <= CROSS_VALIDATED_ROWS else [0]


def _plan_as_given(settings: Settings, rows: Rows, axes: Axes, sample: Sample) -> LatticePlan:
    """The plan with the settings as given; open ones take values that suit most data."""
    from ..solvers.lattice_score_matching import DENSE_FEATURES

    method = "map" if settings.method == "auto" else settings.method
    kernel = DEFAULT_KERNEL if settings.kernel == "auto" else settings.kernel
    gamma, lam, word = settings.gamma, settings.lam, settings.base
    if isinstance(gamma, str):
        gamma = DEFAULT_BANDWIDTH * sample.deviation
    if isinstance(lam, str):
        lam = DEFAULT_LAM if method == "map" else FALLBACK["lam"]
    if isinstance(word, str) and word == "auto":
        word = "empirical"
    base = BaseMaker(settings, rows, axes, sample).final(word)
    features = _make_lattice(settings, rows, axes, sample).with_kernel(str(kernel), float(gamma))
    levels: Sequence[float] | Array = ()
    if method == "fvpd":
        features = _with_most_features(features, DENSE_FEATURES)
    if method == "ncfd":
        levels = noise_levels(most_noise(settings, rows), settings.n_noise_levels)
    stats = axes.explain(
        lambda: accumulate_lattice(
            rows.blocks, features, base=None if method == "map" else base, noise_levels=levels,
            threads=settings.threads, progress=settings.progress,
        )
    )  # fmt: skip
    chosen = _with_answers(settings, method, str(kernel), float(gamma), float(lam), word)
    return LatticePlan(
        asked=settings, settings=chosen, statistics=stats, base=base, axes=axes, choice=None,
        start=None, resolution=_resolution(sample, settings, rows),
    )  # fmt: skip


def _with_answers(
    settings: Settings, method: str, kernel: str, gamma: float, lam: float, base: Any
) -> Settings:
    """The settings with nothing open."""
    return replace(
        settings, features="lattice", method=method, kernel=kernel, gamma=gamma, lam=lam,
        base=settings.base if isinstance(settings.base, Base) else base,
        eta=None if isinstance(settings.eta, str) else settings.eta,
        n_features=None, frequency_covariance=None, interactions=None,
    )  # fmt: skip


def _make_lattice(settings: Settings, rows: Rows, axes: Axes, sample: Sample) -> LatticeFeatures:
    """The box of the rows, with as many modes as rows and resolution warrant."""
    d = rows.dimension
    modes = MODES_PER_ROW[d] * rows.n ** (1.0 / d)
    modes = 2 ** math.ceil(math.log2(min(max(modes, LEAST_MODES[d]), MOST_LATTICE_MODES[d])))
    gamma = settings.gamma
    width = BOX_BANDWIDTH[d] * sample.deviation if isinstance(gamma, str) else gamma
    features = LatticeFeatures.for_data(
        sample.x, min(modes, MOST_LATTICE_MODES[d]), "matern32", width, support=axes.support,
        period=axes.periods,
    )  # fmt: skip
    origin = np.where(axes.domain.periodic, axes.domain.low, features.origin)
    features = replace(features, origin=origin)
    # no wave is shorter than two steps of a column
    steps = np.maximum(_resolution(sample, settings, rows), 1e-300)
    finest = np.maximum(1.0, np.minimum(np.pi / (steps * features.frequency_steps), modes))
    return features.with_modes(np.minimum(features.n_modes, finest.astype(int)).tolist())


def _with_most_features(features: LatticeFeatures, most: int) -> LatticeFeatures:
    """The lattice with fewer modes, so that it has at most so many features."""
    while features.n_features > most:
        features = features.with_modes([max(1, int(0.9 * m)) for m in features.n_modes])
    return features


def _resolution(sample: Sample, settings: Settings, rows: Rows) -> Array:
    """Steps of the columns in the model's coordinates, (d,); noise hides those of discrete ones."""
    found = np.array(measure_columns(sample.x, sample.weights).resolution)
    for k, step in find_discrete(settings, rows).items():
        found[k] = DISCRETE_RESOLUTION * step / rows.scaling.scale[k]
    return found


def _search_space(
    settings: Settings, rows: Rows, sample: Sample, kinds: Sequence[str],
    features: LatticeFeatures,
) -> LatticeSpace:  # fmt: skip
    """The values that open settings may take, and the one value of each other setting."""
    unit = sample.deviation
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


# -- bases ----------------------------------------------------------------------------------------


def _base_kinds(settings: Settings, rows: Rows, axes: Axes) -> list[str]:
    """Names of the bases that are compared; settings are searched with the first."""
    if isinstance(settings.base, Base):
        return ["given"]
    if settings.base != "auto":
        return [settings.base]
    if axes.domain.periodic.any():
        return ["von_mises", "empirical"]
    if not axes.is_open:
        return ["empirical", "uniform"] if axes.domain.is_bounded else ["empirical"]
    left_out = set()
    if rows.n < LEAST_MIXTURE_ROWS[rows.dimension]:
        left_out.add("mixture")
    if rows.scaling.maps_walls:  # tails of a Student density would have no mean after the map
        left_out.add("student")
    return [kind for kind in LATTICE_BASES if kind not in left_out]


@record
class BaseMaker:
    """Makes bases from rows of the sample, on the domain of the fit; grows each mixture once.

    Attributes
    ----------
    settings : Settings
    rows : Rows
    axes : Axes
    sample : Sample
    """

    settings: Settings
    rows: Rows
    axes: Axes
    sample: Sample
    _known: dict[tuple[str, int], Base] = field(default_factory=dict)
    _grown: list[GrownMixture] = field(default_factory=list)

    def without(self, kind: str, fold: int) -> Base:
        """A base learned without the rows of a fold."""
        if (kind, fold) not in self._known:
            try:
                base = self.make(kind, *self.sample.without(fold))
            except ValueError:  # without the fold a column has one value
                base = self.final(kind)
            self._known[kind, fold] = base
        return self._known[kind, fold]

    def final(self, kind: str, *, averages: bool = True) -> Base:
        """A base learned from the whole sample, or of the moments where it has too few values.

        averages : whether a mixture is the average of those grown without some fold, if several are
        """
        x, weights = self.sample.x, self.sample.weights
        if kind == "mixture" and averages and len(self._grown) >= N_AVERAGED:
            standards, grown = measure_columns(x, weights), self._grown[:N_AVERAGED]
            members = [mixture.refit(x, weights, standards) for mixture in grown]
            return self._confine(average_mixtures(members))
        try:
            return self.make(kind, x, weights)
        except ValueError:
            gaussian = GaussianBase(self.rows.mean, self.rows.covariance)
            return confine_base(gaussian, self.axes.domain)

    def _known_student(self) -> StudentBase | None:
        """A base of most of the same rows: where EM begins does not change where it ends."""
        return next(
            (base for base in self._known.values() if isinstance(base, StudentBase)), None
        )

    def make(self, kind: str, x: Array, weights: Array) -> Base:
        """A base of this kind for some rows."""
        if isinstance(self.settings.base, Base):
            return self._confine(self.settings.base.rescaled(self.rows.scaling))
        if kind == "uniform":
            return UniformBase(**self.axes.domain.parameters())
        if kind == "von_mises":
            return confine_to_circles(x, weights, self.axes.domain)
        base: Base
        if kind == "student":
            base = StudentBase.by_em(
                x, weights, start=self._known_student(), tolerance=STUDENT_TOLERANCE
            )
        elif kind == "mixture":
            self._grown.append(_grow_small_mixture(x, weights, self.settings.seed))
            base = self._grown[-1].refit(x, weights)
        else:
            return confine_gaussian(x, weights, self.axes.domain)
        return self._confine(base)

    def _confine(self, base: Base) -> Base:
        """The base on the domain of the fit."""
        if self.rows.scaling.maps_walls:
            base = narrow_guard(base, self.rows.scaling.mapped_walls)
        return base if isinstance(base, CONFINED) else confine_base(base, self.axes.domain)


def _mixture_may_win(search: LatticeSearch, maker: BaseMaker, rows: HeldOutRows) -> bool:
    """Whether a mixture alone comes close to the best candidate on the rows of one fold.

    Where no tilt gains over the bases alone, the rows have no shape that a mixture could have;
    unless no affordable grid could score some of the tilts.
    """
    best = search.scored[0]
    if best.candidate.is_base_alone and all(math.isfinite(s.score) for s in search.scored):
        return False
    here = rows.of_fold(0)
    mixture = maker.without("mixture", 0).log_density_at(here.x)
    lost = search.row_values(best, here) - mixture
    return bool(here.weights @ lost < WORTH_A_MIXTURE * here.weights.sum())


def _sum_folds(
    settings: Settings, rows: Rows, axes: Axes, folds: Folds | NDArray[np.int64],
    features: LatticeFeatures, held: Sequence[int], bases: dict[str, list[Base]],
) -> list[LatticeStatistics]:  # fmt: skip
    """One pass: the sums of every fold, with the log densities of its own bases. Folds that are
    only learned from have any base's."""
    place = {fold: k for k, fold in enumerate(held)}
    of_folds = [
        [made[place.get(fold, 0)] for made in bases.values()] for fold in range(N_LATTICE_FOLDS)
    ]
    return axes.explain(
        lambda: accumulate_lattice_folds(
            rows.blocks, features, folds, bases=of_folds, threads=settings.threads,
            progress=settings.progress,
        )
    )  # fmt: skip


def _grow_small_mixture(x: Array, weights: Array, seed: int) -> GrownMixture:
    """A mixture grown on some of the rows, one in five of them held out."""
    some = np.random.default_rng(0).permutation(len(x))[: MOST_MIXTURE_ROWS[x.shape[1]]]
    kept, held, d = some[len(some) // 5 :], some[: len(some) // 5], x.shape[1]
    return grow_mixture(
        x[kept], weights[kept], x[held], weights[held], seed=seed,
        max_components=MIXTURE_COMPONENTS[d], max_work=MIXTURE_WORK[d], covariances=("full",),
    )  # fmt: skip


# -- the plan and the problem ---------------------------------------------------------------------


@record(kw_only=True)
class LatticePlan:
    """Complete settings with lattice features, and the sums of all rows.

    It is its own problem: the pass that compares settings makes the statistics.

    Attributes
    ----------
    asked : Settings
        What the user asked for.
    settings : Settings
        What was chosen; complete.
    statistics : LatticeStatistics
    base : Base
    axes : Axes
    choice : LatticeChoice or None
        What was compared.
    start : array of the mode shape or None
        theta at which solving starts.
    resolution : (d,) array
        Steps of the columns, in the model's coordinates.
    held : list of int
        Numbers of the folds that were held out.
    """

    asked: Settings
    settings: Settings
    statistics: LatticeStatistics
    base: Base
    axes: Axes
    choice: LatticeChoice | None
    start: Any
    resolution: Array
    held: list[int] = field(default_factory=list)

    def accumulate(self, rows: Rows) -> LatticePlan:
        """Return this plan: `choose_lattice_plan` has made the sums."""
        return self

    def solve(self, method: str, lam: float) -> Density:
        """The model with this method and lambda; the base alone for BASE_ALONE."""
        if lam == BASE_ALONE:
            return base_alone(self.statistics, self.base, self.settings.threads)
        return solve(
            self.statistics, self.base, method, lam, self.settings.eta, start=self.start,
            backend=self.settings.backend, n_threads=self.settings.n_threads,
        )  # fmt: skip

    def record(self, model: Density, rows: Rows) -> dict[str, Any]:
        """How the settings of a model came about."""
        chosen = self.settings
        record: dict[str, Any] = {
            "features": "lattice", "kernel": chosen.kernel,
            "base": chosen.base if isinstance(chosen.base, str) else "given",
            "base_facts": repr(model.base), **self.axes.record(),
            "resolution": (self.resolution * rows.scaling.scale).tolist(),
            "frequency_covariance": None,
        }  # fmt: skip
        if chosen.method == "ncfd":
            record["n_noise_levels"] = chosen.n_noise_levels
        if self.choice is not None:
            record["held_out_gain"] = self.choice.gain
            record["held_out_gain_error"] = self.choice.gain_error
        if model.method == "base":
            return record | {"gamma_rule": None, "kernel": None}
        return record | {
            "gamma": chosen.gamma,
            "gamma_rule": "selected" if isinstance(self.asked.gamma, str) else "given",
        }

    def candidates(self, settings: dict[str, Any], rows: Rows) -> list[dict[str, Any]] | None:
        """The candidates that were compared, the chosen one first; scores in units of the data."""
        if self.choice is None:
            return None
        chosen, log_volume = self.choice.best, rows.log_volume
        if settings["method"] == "base" and not chosen.candidate.is_base_alone:
            chosen = next(
                s for s in self.choice.scored
                if s.candidate.is_base_alone and s.candidate.base == chosen.candidate.base
            )  # fmt: skip
        table = []
        for scored in [chosen, *(s for s in self.choice.scored if s is not chosen)]:
            c = scored.candidate
            tilted = {"kernel": c.kernel, "gamma": c.bandwidth, "lam": c.lam, "n_modes": c.n_modes}
            if c.is_base_alone:
                tilted = dict.fromkeys(tilted)
            table.append({
                "method": "base" if c.is_base_alone else "map", "base": c.base, **tilted,
                "score": scored.score - log_volume, "chosen": scored is chosen,
            })  # fmt: skip
        return table
