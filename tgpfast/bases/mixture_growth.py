"""Mixtures of up to several hundred components, grown by splits as long as held-out rows gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..data.blocks import Blocks
from ..data.moments import Moments, check_full_rank, compute_moments
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..validation import Array
from .component_splits import LEADING_AXES, PAIR_STEPS, apply_splits, find_splits
from .expectation_maximization import (
    COVARIANCES,
    Components,
    Learner,
    Rows,
    Standards,
    measure_columns,
    one_component,
    run_em,
    work_of,
)
from .gaussian import GaussianBase
from .mixture import ROUND_STEPS, MixtureBase, components_of, guard_of, mixture_of

MAX_COMPONENTS = 300  # besides the guard
MAX_WORK = 1e11  # floating-point operations, some seconds on one core
# rows of a component, divided by d + 1, below which tied or diagonal covariances may be better
FEW_ROWS_PER_COLUMN = 3.0
PATIENCE = 3  # rounds in a row without a gain after which growth ends
STRENGTH_FACTORS = (0.5, 2.0)  # by which the strength of shrinkage may change in a round
POLISH_STEPS, POLISH_ROUNDS = 2, 10  # steps of EM between looks at held-out rows; looks at most
REFIT_STEPS = 4  # steps of EM that adapt a grown mixture to more rows


@record
class GrownMixture:
    """Result of `grow_mixture`.

    Attributes
    ----------
    mixture : MixtureBase
        Fitted to the rows that were not held out; with a guard unless it has one component.
    covariances : str
        "full", "diagonal" or "tied".
    strength : float
        Strength of shrinkage of the covariances, in rows.
    work : float
        Floating-point operations that growth took.
    """

    mixture: MixtureBase
    covariances: str
    strength: float
    work: float

    def refit(self, x: Array, w: Array, standards: Standards | None = None) -> MixtureBase:
        """The mixture after REFIT_STEPS steps of EM on other rows, with a guard of these rows.

        Parameters
        ----------
        x : (n, d) array
        w : (n,) array
            Rows that each row counts as.
        standards : Standards, default measured
            ``measure_columns(x, w)``, where several mixtures are refitted to the same rows.
        """
        standards = standards or measure_columns(x, w)
        rows = Rows.from_data(x, w, standards.scaling, Threads())
        correction = x.shape[1] + 1.0
        learner = Learner(
            standards.floor, self.covariances, strength=self.strength, correction=correction
        )
        start = components_of(self.mixture, standards.scaling)
        run = run_em(rows, learner, start, max_steps=REFIT_STEPS)
        return mixture_of(run.components, standards.scaling).with_guard(x, w)


def grow_mixture(
    x: Array, w: Array, held_x: Array, held_w: Array, *, max_components: int = MAX_COMPONENTS,
    max_work: float = MAX_WORK, covariances: Sequence[str] = COVARIANCES, seed: int = 0,
    threads: Threads | None = None,
) -> GrownMixture:  # fmt: skip
    """The mixture with the highest likelihood of held-out rows, among those on a path of splits.

    Growth begins with one Gaussian. Every round splits up to half of the components: those for
    which the rows, and the held-out rows, gain most. Some steps of EM on the rows follow, and the
    strength of shrinkage is halved or doubled if held-out rows gain. Growth ends after PATIENCE
    rounds without a gain. The best mixture of the path gets more steps of EM, as long as held-out
    rows gain.

    Parameters
    ----------
    x : (n, d) array
    w : (n,) array
        Rows that each row counts as.
    held_x : (m, d) array
        Rows that decide on the size, and that the mixture is not fitted to.
    held_w : (m,) array
    max_components : int, default 300
    max_work : float, default 1e11
        Floating-point operations that growth may take. The result does not depend on the machine.
    covariances : sequence of {"full", "diagonal", "tied"}, default all three, in this order
        Forms of covariances, each on a path of its own with the work that is left. Those after the
        first one are tried only if the components come to have few rows.
    seed : int, default 0
        For the random directions along which components are split.
    threads : Threads, default None
        Backend and number of threads.

    Returns
    -------
    GrownMixture

    Raises
    ------
    ValueError
        If a column is constant, or columns are linearly dependent.

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.bases.mixture_growth import grow_mixture
    >>> x = np.random.default_rng(0).normal(size=(500, 2)) ** 3
    >>> grown = grow_mixture(x[:400], np.ones(400), x[400:], np.ones(100))
    >>> grown.mixture.n_components > 2
    True
    >>> final = grown.refit(x, np.ones(500))
    """
    moments = compute_moments(Blocks(x, sample_weight=w))
    check_full_rank(moments, None)
    standards, threads = measure_columns(x, w), threads or Threads()
    scaling, d = standards.scaling, x.shape[1]
    rows = Rows.from_data(x, w, scaling, threads)
    held = Rows.from_data(held_x, held_w, scaling, threads)
    guard = _Guard.at_rows(moments, held_x, scaling.log_volume)
    paths: list[_Path] = []
    for form in covariances:
        if paths and paths[0].has_ample_rows:
            break
        learner = Learner(standards.floor, form, strength=float(d), correction=d + 1.0)
        work = paths[-1].work if paths else 0.0
        path = _Path(rows, held, guard, learner, np.random.default_rng(seed), work)
        path.grow(max_components, max_work)
        path.polish(max_work)
        paths.append(path)
    state = _choose_form([path.best for path in paths], held, guard)
    mixture = mixture_of(state.components, scaling).with_guard(x, w)
    return GrownMixture(
        mixture, state.learner.covariances, state.learner.strength, paths[-1].work
    )


@record
class _Guard:
    """The guard component at held-out rows: log (1 - its weight), and log weight N there."""

    log_rest: float
    log_density: Array

    @classmethod
    def at_rows(cls, moments: Moments, held_x: Array, log_volume: float) -> _Guard:
        weight, mean, covariance = guard_of(moments)
        found = GaussianBase(mean, covariance).log_density_at(held_x)
        return cls(float(np.log1p(-weight)), np.log(weight) + found + log_volume)

    def add(self, log_density: Array) -> Array:
        """Log density of a mixture at the held-out rows, with the guard added."""
        return np.asarray(np.logaddexp(log_density + self.log_rest, self.log_density))


@record
class _State:
    """Components, how they were learned, and the mean log density of held-out rows."""

    components: Components
    learner: Learner
    held_out: float

    @property
    def size(self) -> int:
        return len(self.components.weights)

    def log_density(self, held: Rows, guard: _Guard) -> Array:
        """Log density of held-out rows, with the guard unless there is one component."""
        found = self.learner.log_density(held, self.components)
        return found if self.size == 1 else guard.add(found)


def _choose_form(states: list[_State], held: Rows, guard: _Guard) -> _State:
    """The state that held-out rows like best; full covariances unless others gain more than one
    standard error of the difference."""
    best = max(states, key=lambda state: state.held_out)
    for full in (state for state in states if state.learner.covariances == "full"):
        gain = best.log_density(held, guard) - full.log_density(held, guard)
        mean, error = weighted_mean(gain, held.share)
        if mean <= error:
            return full
    return best


def weighted_mean(values: Array, share: Array) -> tuple[float, float]:
    """(mean, its standard error) of values with weights that sum to 1."""
    mean = float(share @ values)
    return mean, float(np.sqrt(np.square(share) @ np.square(values - mean)))


class _Path:
    """Growth with one form of covariances. ``work`` counts the operations of earlier paths too."""

    def __init__(self, rows: Rows, held: Rows, guard: _Guard, learner: Learner,
                 rng: np.random.Generator, work: float) -> None:  # fmt: skip
        self.rows, self.held, self.guard, self.rng, self.work = rows, held, guard, rng, work
        self.best = self.last = self._judge(one_component(rows, learner), learner)

    @property
    def has_ample_rows(self) -> bool:
        """Whether components of the best mixture have enough rows for covariances of their own."""
        return self.rows.count > FEW_ROWS_PER_COLUMN * (self.rows.y.shape[1] + 1) * self.best.size

    def grow(self, max_components: int, max_work: float) -> None:
        """Rounds of splits until held-out rows have not gained for PATIENCE of them."""
        idle = 0
        while idle < PATIENCE:
            K = self.last.size
            limit = min(-(-K // 2), max_components - K)
            if limit < 1 or self.work + self._work_of_round(K + limit) > max_work:
                return
            grown = self._split(limit)
            if len(grown.weights) == K:
                return
            self.last = self._learn(grown)
            idle += 1
            if self.last.held_out > self.best.held_out:
                self.best, idle = self.last, 0

    def polish(self, max_work: float) -> None:
        """More steps of EM from the best mixture, as long as held-out rows gain."""
        for _ in range(POLISH_ROUNDS):
            learner, best = self.best.learner, self.best
            if self.work + POLISH_STEPS * self._work(best.size, learner) > max_work:
                return
            run = run_em(self.rows, learner, best.components, max_steps=POLISH_STEPS)
            self.work += POLISH_STEPS * self._work(best.size, learner)
            state = self._judge(run.components, learner)
            if state.held_out <= best.held_out:
                return
            self.best = state

    def _split(self, limit: int) -> Components:
        """The last components, of which those that gain most are split."""
        components, learner = self.last.components, self.last.learner
        splits = find_splits(
            self.rows, learner, components, self.rng, held=self.held, guard=self.guard.log_density
        )
        held_gains = splits.held_gains * (self.rows.count / self.held.count)
        scores = held_gains + splits.gains - learner.n_monomials  # less what noise alone gains
        self.work += self._work_of_splits(learner)
        return apply_splits(components, splits, scores, limit)

    def _learn(self, grown: Components) -> _State:
        """EM from components; then the strength of shrinkage that suits held-out rows best."""
        learner = self.last.learner
        run = run_em(self.rows, learner, grown, max_steps=ROUND_STEPS)
        self.work += ROUND_STEPS * self._work(len(grown.weights), learner)
        states = [self._judge(run.components, learner)]
        for factor in STRENGTH_FACTORS if not learner.is_tied else ():
            other = replace(learner, strength=factor * learner.strength)
            components, _ = other.maximize(self.rows, run.moments, other.find_targets(run.moments))
            states.append(self._judge(components, other))
        return max(states, key=lambda state: state.held_out)

    def _judge(self, components: Components, learner: Learner) -> _State:
        """The components with the mean log density of the held-out rows."""
        K = len(components.weights)
        self.work += work_of(len(self.held.y), K, learner.n_monomials, sums=False)
        values = _State(components, learner, np.nan).log_density(self.held, self.guard)
        return _State(components, learner, float(self.held.share @ values))

    def _work(self, K: int, learner: Learner) -> float:
        """Operations of a step of EM."""
        return work_of(len(self.rows.y), K, learner.n_monomials, sums=True)

    def _work_of_splits(self, learner: Learner) -> float:
        look = work_of(len(self.held.y), 2, learner.n_monomials, sums=False)
        return (LEADING_AXES + 2) * (PAIR_STEPS * self._work(2, learner) + look)

    def _work_of_round(self, K: int) -> float:
        """Operations of a round that leads to K components."""
        learner = self.last.learner
        looks = (1 + len(STRENGTH_FACTORS)) * work_of(
            len(self.held.y), K, learner.n_monomials, sums=False
        )
        return self._work_of_splits(learner) + ROUND_STEPS * self._work(K, learner) + looks
