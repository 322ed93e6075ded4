"""`choose`: settings with "auto" -> a plan with complete settings, from a sample of the rows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from .. import kernels
from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..features.lattice import LATTICE_DIMENSIONS
from ..features.random import Features, covariance_of_frequencies
from ..runtime.records import record
from ..selection.candidates import (
    BASE_ALONE,
    CONFIRMED_GAIN_ERRORS,
    FREQUENCY_SHAPES,
    LEAST_PILOT_ROWS,
    PILOT_ROWS,
    Pilot,
    SearchSpace,
    Selection,
    required_gain_errors,
    scott_bandwidth,
    select,
)
from ..selection.effort import FULL_LOG2_DRAWS, FULL_MAP_DRAWS
from ..selection.folds import FEW_ROWS, Split, assign_folds, distinct_rows, held_out_masks
from ..selection.refinement import FEATURE_COUNTS, Tempering
from ..selection.sample_split import SampleSplit
from ..selection.scoring import Fold, FoldFeatures, standard_error
from ..selection.verification import LAM_FACTORS
from ..solvers.solver import METHODS
from ..statistics.required_sums import MANY_ROWS
from ..validation import Array, check_bandwidth
from .axes import Axes, check_periodic_settings, has_periodic_features
from .lattice_choosing import choose_lattice_plan
from .lattice_plan import LatticePlan
from .noise import most_noise
from .random_features import RandomFeaturesPlan, RandomFeaturesProblem
from .rows import Rows
from .settings import GRAM_BASES, Settings

# A plan has complete settings, and its accumulate(rows) makes a problem: statistics of all rows,
# with the methods solve, record and list_candidates. Another kind of features brings a plan and a
# problem of its own; `fit` does not change.
Plan = RandomFeaturesPlan | LatticePlan
Problem = RandomFeaturesProblem | LatticePlan

RECONSIDERED_ERRORS = 2.0  # standard errors that a tilt must gain on all rows after the pilot
# methods that tilt a base; other bases serve all methods
METHODS_OF_BASE = {"mixture": ("fd", "fvpd", "map"), "student": ("fd", "map")}
REPEATED_ROWS = 1_000  # copies of few different rows by which a tilt is judged, at most
STREAM_FOLDS = 5  # 1/5 of an iterator's sample is held out to choose lambda
SMALL_SAMPLE = 500  # rows up to which 500 features make the draw of the features matter little
FEW_ROWS_FEATURES = (500, 1000)  # of few rows: up to SMALL_SAMPLE, and above


@record(kw_only=True)
class Choice:
    """Settings after candidates were compared on a pilot.

    Attributes
    ----------
    settings : Settings
        Nothing is "auto"; eta may still be a rule.
    selection : Selection or None
        The comparison; None where rows are too few for one.
    eta_multiple : float
        eta gamma^2, where eta is a rule.
    least_errors : float
        Standard errors that the tilt must gain over the base on all rows: above 0 where the pilot
        preferred the base alone.
    """

    settings: Settings
    selection: Selection | None = None
    eta_multiple: float = 1.0
    least_errors: float = 0.0


def choose(settings: Settings, rows: Rows) -> Plan:
    """Fill in the settings that are "auto" from the data.

    Parameters
    ----------
    settings : Settings
    rows : Rows

    Returns
    -------
    Plan
        With complete settings.
    """
    if not isinstance(settings.gamma, str):
        check_bandwidth(settings.gamma, rows.variance, settings.with_fallbacks().lam)
    if uses_lattice(settings, rows):
        return choose_lattice_plan(settings, rows)
    return choose_random_features(settings, rows)


def hold_threads(settings: Settings, rows: Rows) -> AbstractContextManager[None]:
    """A block that runs BLAS on one thread where rows are few or a lattice may be used: matrices
    are small, and threads of BLAS that wait take the time of others."""
    may_use_lattice = settings.needs_lattice or settings.suits_lattice
    if rows.n <= FEW_ROWS or (rows.dimension <= LATTICE_DIMENSIONS and may_use_lattice):
        return kernels.threads(*settings.threads.resolve())
    return nullcontext()


def uses_lattice(settings: Settings, rows: Rows) -> bool:
    """Whether the features are those of a lattice.

    Raises
    ------
    ValueError
        If only a lattice can do what is asked, and there can be none.
    """
    d, has_sample = rows.dimension, rows.spectrum is None and rows.blocks.sample is not None
    needs_lattice = settings.features == "lattice"
    if not (needs_lattice or has_periodic_features(settings, rows)):
        # bent columns have no walls any more: without other walls no lattice is needed
        needs_lattice = settings.needs_lattice and not Axes.of(settings, rows).is_open
    if needs_lattice:
        why = 'features="lattice"' if settings.features == "lattice" else "support and period"
        if d > LATTICE_DIMENSIONS:
            raise ValueError(
                f"{why}: lattices serve one to {LATTICE_DIMENSIONS} columns, X has {d}"
            )
        given = settings.random_feature_options
        if settings.features == "random":
            given = ["features", *given]
        if given:
            raise ValueError(
                f"{why}: a lattice does not take "
                + ", ".join(f"{name}={getattr(settings, name)!r}" for name in given)
                + "; leave these options out"
            )
        if not has_sample:
            raise ValueError(
                f"{why}: X can be read only once, but the lattice must be placed around the rows "
                "before they are summed; pass a list of blocks, or a callable that returns a fresh "
                "iterator"
            )
        return True
    is_possible = settings.features != "random" and d <= LATTICE_DIMENSIONS and has_sample
    if not (is_possible and settings.suits_lattice):
        return False
    return len(distinct_rows(rows.sample.take(PILOT_ROWS))[0]) >= LEAST_PILOT_ROWS


def choose_random_features(settings: Settings, rows: Rows) -> RandomFeaturesPlan:
    """The plan with random Fourier features."""
    domain = None if rows.split is None else rows.split.domain
    if has_periodic_features(settings, rows):
        check_periodic_settings(settings, domain, rows)
    choice = _choose_from_pilot(settings, rows)
    chosen = choice.settings
    covariance = covariance_of_frequencies(chosen.frequency_covariance, rows.covariance)
    features = Features.draw(
        chosen.n_features, chosen.gamma, covariance, chosen.seed, chosen.kernel,
        chosen.interactions, None if domain is None else domain.periods,
        None if rows.split is None else rows.split.resolution,
    )  # fmt: skip
    if rows.spectrum is not None and rows.split is not None and "lam" in settings.auto:
        chosen = replace(chosen, lam=_choose_stream_lambda(chosen, rows.split, features))
    if chosen.method == "ncfd":
        chosen = replace(chosen, sigma_max=most_noise(chosen, rows))
    return RandomFeaturesPlan(
        asked=settings, settings=chosen, features=features, selection=choice.selection,
        least_errors=choice.least_errors,
        map_draws=FULL_MAP_DRAWS if rows.split is None else rows.split.budget.map_draws,
        tempering=Tempering(
            None if chosen.eta == "1/gamma2" else chosen.eta, choice.eta_multiple
        ),
    )  # fmt: skip


# -- the pilot ------------------------------------------------------------------------------------


def _choose_from_pilot(settings: Settings, rows: Rows) -> Choice:
    """Compare candidates, or take the fallbacks where rows are few or can be read only once."""
    if rows.spectrum is not None or not settings.compared:
        return _fall_back(settings, rows, n_distinct=rows.n)
    sample = rows.split
    if sample is None or len(sample.x) < LEAST_PILOT_ROWS:
        if sample is not None:
            settings.warn_of_few_rows(len(sample.x))
        weights = np.zeros(0) if sample is None else sample.weights
        n_independent = float(weights.sum() ** 2 / (weights @ weights)) if len(weights) else rows.n
        fixed = _fall_back(settings, rows, n_distinct=n_independent)
        return fixed if sample is None else _leave_base_alone(fixed, settings, rows)
    pilot = Pilot(sample)
    selection = select(
        pilot, _search_space(settings, rows, pilot),
        n_features=settings.with_fallbacks().n_features, seed=settings.seed,
        threads=settings.threads, one_standard_error=settings.one_standard_error,
        progress=settings.progress, grows="n_features" in settings.auto,
    )  # fmt: skip
    if selection is None:
        return _leave_base_alone(_fall_back(settings, rows, n_distinct=rows.n), settings, rows)
    return _settings_of_best(selection, settings, rows)


def _fall_back(settings: Settings, rows: Rows, *, n_distinct: float) -> Choice:
    """Settings that suit most data. Copies of few different rows count as those rows once: in
    Scott's bandwidth, and in lambda, which is raised."""
    filled = settings.with_fallbacks()
    n_independent = min(rows.n, n_distinct)
    lam = filled.lam * (rows.n / n_independent if "lam" in settings.auto else 1.0)
    n = n_independent if "gamma" in settings.auto else rows.n
    gamma = filled.gamma
    if gamma == "scott":
        gamma = scott_bandwidth(n, rows.dimension, rows.variance)
    return Choice(settings=replace(filled, lam=lam, gamma=gamma))


def _leave_base_alone(choice: Choice, settings: Settings, rows: Rows) -> Choice:
    """The choice without its tilt, unless held-out rows show that it is better than the base.

    A method or lambda that is given is not questioned.
    """
    if not {"method", "lam"} <= settings.auto or _gains_on_repeated_rows(choice.settings, rows):
        return choice
    return replace(choice, settings=replace(choice.settings, lam=BASE_ALONE))


def _gains_on_repeated_rows(chosen: Settings, rows: Rows) -> bool:
    """Whether FD gains `required_gain_errors` standard errors over its base, when each copy of a
    few different rows is held out in turn. Fewer than LEAST_PILOT_ROWS rows never show that."""
    split = rows.split
    if split is None or rows.n < LEAST_PILOT_ROWS or chosen.base != "empirical":
        return False
    share = split.weights / split.weights.sum()
    copies = np.round(share * min(rows.n, REPEATED_ROWS)).astype(np.int64)
    x = np.repeat(split.x, copies, axis=0)
    gains = []
    for held in held_out_masks(len(x)):
        part = Split.at(x, np.ones(len(x)), held)
        try:
            base = GaussianBase.from_data(part.kept)
        except ValueError:  # without these rows a column has one value
            return False
        fold = Fold(base, part, part.kept, FULL_LOG2_DRAWS, seed=0)
        covariance = covariance_of_frequencies(chosen.frequency_covariance, rows.covariance)
        features = Features.draw(
            chosen.n_features, chosen.gamma, covariance, chosen.seed, chosen.kernel
        )
        block = FoldFeatures(features, fold, chosen.threads)
        score = block.score_thetas(block.fd([chosen.lam * len(x) / rows.n]))[0]
        gains.append(score.gain_over(fold.held_base))
    mean = float(np.mean([gain.mean for gain in gains]))
    return mean > required_gain_errors(len(x)) * standard_error(gains)


def _search_space(settings: Settings, rows: Rows, pilot: Pilot) -> SearchSpace:
    """The values that open settings may take, and the one value of each other setting."""
    filled = settings.with_fallbacks()
    gamma = pilot.scott if filled.gamma == "scott" else filled.gamma
    return SearchSpace(
        bases=_bases(settings, rows),
        methods=settings.methods,
        shapes=frequency_shapes(settings, rows.covariance),
        gammas=None if "gamma" in settings.auto else (gamma,),
        lams=None if "lam" in settings.auto else (filled.lam,),
        etas=None if filled.eta == "1/gamma2" else (filled.eta,),
        eta_multiples=SearchSpace.eta_multiples if "eta" in settings.auto else (1.0,),
        kernels=None if "kernel" in settings.auto else (settings.kernel,),
        interactions=None if "interactions" in settings.auto else (settings.interactions,),
    )


def _bases(settings: Settings, rows: Rows) -> tuple[Any, ...]:
    """Bases that are compared: those that the method serves, or the given one."""
    base = settings.base
    if isinstance(base, Base):
        return (base.rescaled(rows.scaling),)
    if base in GRAM_BASES:
        return ("empirical",)  # the statistics give the final base later
    if base != "auto":
        return (base,)
    kinds = SearchSpace.bases
    if rows.scaling.maps_walls:  # tails of a Student density would have no mean after the map
        kinds = tuple(kind for kind in kinds if kind != "student")
    if settings.method == "auto":
        return kinds
    return tuple(kind for kind in kinds if settings.method in METHODS_OF_BASE.get(kind, METHODS))


def frequency_shapes(settings: Settings, covariance: Array) -> dict[str, Array]:
    """Frequency covariances that are compared, by name: those that differ, or the given one."""
    asked = settings.frequency_covariance
    if not isinstance(asked, str):
        return {"given": covariance_of_frequencies(asked, covariance)}
    found: dict[str, Array] = {}
    for name in FREQUENCY_SHAPES if asked == "auto" else (asked,):
        matrix = covariance_of_frequencies(name, covariance)
        if not any(np.allclose(matrix, other) for other in found.values()):
            found[name] = matrix
    return found


def _settings_of_best(selection: Selection, settings: Settings, rows: Rows) -> Choice:
    """The settings of the best candidate.

    Where the pilot prefers the base alone, and all rows can say otherwise, the best tilt is kept;
    refinement decides.
    """
    best, least_errors = selection.best, 0.0
    holds_out = rows.split is not None and rows.split.holds_out
    may_reconsider = holds_out and not selection.is_brief and settings.method != "ncfd"
    if best.is_base_alone and "lam" in settings.auto and may_reconsider:
        tilt = selection.best_tilt_of(best.base)
        if tilt is not None:
            best, least_errors = tilt, RECONSIDERED_ERRORS
            selection = replace(selection, best=best)
    filled = settings.with_answers(
        method=best.method, base=best.base, lam=best.lam,
        frequency_covariance=best.frequency_covariance,
        gamma="scott" if best.is_base_alone else best.gamma_multiple * selection.scott,
        n_features=_most_features(selection, rows),
        kernel=best.kernel, interactions=best.interactions,
    )  # fmt: skip
    if filled.gamma == "scott":
        filled = replace(filled, gamma=scott_bandwidth(rows.n, rows.dimension, rows.variance))
    if filled.lam == BASE_ALONE and "n_features" in settings.auto:
        filled = replace(filled, n_features=FEATURE_COUNTS[0])
    tempers = best.method == "fvpd" and "eta" in settings.auto and not best.is_base_alone
    return Choice(
        settings=filled, selection=selection, least_errors=least_errors,
        eta_multiple=best.eta_multiple if tempers else 1.0,
    )  # fmt: skip


def _most_features(selection: Selection, rows: Rows) -> int:
    """The number of features that a brief search leads to, or the most that are refined."""
    assert rows.split is not None
    budgeted, usual = rows.split.budget.most_features, most_features(rows.blocks.n_rows)
    if selection.n_features is not None:
        return selection.n_features
    if selection.is_brief and budgeted is not None:
        return budgeted
    if selection.best.method == "fvpd" and usual == FEW_ROWS_FEATURES[0]:
        return FEATURE_COUNTS[0]  # each log density of FVPD costs S^2
    return usual


def most_features(n_rows: int | None) -> int:
    """The largest number of features that a fit of n_rows rows may have.

    n_rows is None where it is unknown. With few rows, all are needed for learning, so that no
    numbers of features are compared. With many, refinement chooses up to this number.
    """
    n = n_rows or MANY_ROWS
    if n <= FEW_ROWS:
        return FEW_ROWS_FEATURES[n > SMALL_SAMPLE]
    return FEATURE_COUNTS[-1] if n < MANY_ROWS else FEATURE_COUNTS[-2]


# -- rows that can be read only once --------------------------------------------------------------


def _choose_stream_lambda(settings: Settings, split: SampleSplit, features: Features) -> float:
    """The lambda, from the fallback up, that rows held out of a kept sample prefer.

    BASE_ALONE where no tilt gains CONFIRMED_GAIN_ERRORS standard errors over the base.
    """
    x, weights = split.x[:PILOT_ROWS], split.weights[:PILOT_ROWS]
    held = assign_folds(len(x), STREAM_FOLDS) == 0
    if settings.method != "fd" or settings.base != "empirical" or held.sum() < 2:
        return float(settings.lam)
    rows = Split.at(x, weights, held)
    base = GaussianBase.from_data(rows.kept, sample_weight=rows.kept_weights)
    fold = Fold(base, rows, rows.kept, FULL_LOG2_DRAWS, seed=0)
    block = FoldFeatures(features, fold, settings.threads)
    lams = [settings.lam * factor for factor in LAM_FACTORS]
    scores = block.score_thetas(block.fd(lams))
    best = max(range(len(lams)), key=lambda k: scores[k].mean)
    gain = scores[best].gain_over(fold.held_base)
    is_sure = gain.mean > CONFIRMED_GAIN_ERRORS * standard_error([gain])
    return float(lams[best]) if is_sure else BASE_ALONE
