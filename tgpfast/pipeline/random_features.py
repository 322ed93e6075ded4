"""The plan with random Fourier features: statistics of all rows, refinement, base, and solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.bounded import domain_of
from ..bases.expectation_maximization import measure_columns
from ..bases.gaussian import GaussianBase
from ..density.density import Density
from ..features.random import Features, as_listed
from ..runtime.records import record
from ..selection.candidates import BASE_ALONE, PILOT_LAMS, Selection
from ..selection.effort import FULL_MAP_DRAWS
from ..selection.refinement import (
    FEATURE_COUNTS,
    NARROWER_MULTIPLES,
    Refined,
    Refinement,
    RefinementTrial,
    Tempering,
    bandwidth_candidates,
)
from ..solvers.solver import base_alone, solve
from ..statistics.accumulation import accumulate
from ..statistics.feature_means import FeatureMeans
from ..statistics.required_sums import MANY_ROWS, RequiredSums, RowSums
from ..statistics.statistics import Statistics
from ..validation import Array
from .domain import Axes
from .noise import noise_levels
from .rows import Rows
from .settings import EM_BASES, GRAM_BASES, Settings
from .start_base import (
    ScaledBase,
    check_base_serves,
    make_start_base,
    measure_spread,
    scale_base,
    split_for_scales,
)

# Draws behind MAP's expectations from MANY_ROWS rows on, at most, where settings are chosen from
# the data: a pass over the draws is one of many, and the features are fewer.
MANY_ROWS_MAP_DRAWS = 2**14
SPECTRAL_TOLERANCE = 1e-9  # of the sums of the spectral engine, relative to n
LEAST_SPECTRAL_TOLERANCE = 1e-13  # smallest tolerance used, relative to n
LOG_TOLERANCE = 1e-4  # change of a log density that its errors may cause


@record(kw_only=True)
class RandomFeaturesPlan:
    """Complete settings with random Fourier features.

    Attributes
    ----------
    asked : Settings
        What the user asked for.
    settings : Settings
        What was chosen from the pilot.
    features : Features
    tempering : Tempering
        eta of FVPD.
    selection : Selection or None
        The candidates that were compared.
    least_errors : float
        See `choosing.Choice`.
    map_draws : int
        Draws behind MAP's expectations where settings are chosen from the data.
    """

    asked: Settings
    settings: Settings
    features: Features
    tempering: Tempering
    selection: Selection | None
    least_errors: float
    map_draws: int = FULL_MAP_DRAWS

    @property
    def noise_levels(self) -> Array:
        """sigma = h sigma_max / H, h = 0 .. H - 1, of NCFD; none of other methods."""
        if self.settings.method != "ncfd":
            return np.zeros(0)
        return noise_levels(self.settings.sigma_max, self.settings.n_noise_levels)

    def accumulate(self, rows: Rows) -> RandomFeaturesProblem:
        """Make the base and the sums of all rows; refine bandwidth, number of features and lambda
        with them."""
        chosen = self.settings
        base = make_start_base(chosen, rows)
        check_base_serves(base, chosen.method, from_spectrum=rows.spectrum is not None)
        refined = Refined(self.features.n_features, self.features.bandwidth, chosen.lam)
        if rows.spectrum is not None:
            stats: Any = rows.spectrum.scaled_statistics(
                self.features, self.noise_levels, rows.scaling, origin=rows.mean,
                weight=rows.weight_factor, **chosen.threads.options,
            )  # fmt: skip
        elif self._refines(rows):
            stats, refined = self._refine(self._sums(rows, base), rows)
        else:
            stats = self._sums(rows, base)(self.features)
        # sums of features alone do not depend on the base, nor does a base alone
        is_free = isinstance(stats, FeatureMeans) or refined.lam == BASE_ALONE
        if rows.split is not None and chosen.base in EM_BASES and is_free:
            base = rows.split.refit_base(base)
        problem = RandomFeaturesProblem(
            asked=self.asked, statistics=stats, base=base, selection=self.selection,
            trials=refined.trials, map_draws=self.map_draws,
            settings=replace(
                chosen, lam=refined.lam, n_features=stats.features.n_features,
                gamma=stats.features.bandwidth, eta=self.tempering.at(stats.features.bandwidth),
                n_noise_levels=len(self.noise_levels),
            ),
        )  # fmt: skip
        return problem.with_scaled_base(rows) if chosen.base == "scaled" else problem

    def _sums(self, rows: Rows, base: Base) -> RequiredSums:
        """Features -> what the method needs of all rows."""
        chosen = self.settings
        # MAP needs the sum of the features alone
        means_only = (
            chosen.method == "map" and chosen.engine == "auto"
            and not (isinstance(chosen.base, str) and chosen.base in GRAM_BASES)
        )  # fmt: skip
        return RequiredSums(
            rows.blocks, base, chosen.method, rows.mean, self.noise_levels,
            means_only=means_only, engine=chosen.engine, precision=chosen.precision,
            progress=chosen.progress, tolerance=self._tolerance(rows.n), threads=chosen.threads,
        )  # fmt: skip

    def _tolerance(self, n: float) -> float:
        """Tolerance of the spectral engine that keeps log densities within LOG_TOLERANCE, also
        where refinement takes a smaller lambda or bandwidth.

        An error e of F/n moves log densities by about the condition of the system times e. The
        largest eigenvalue is at most the trace, about n E|z|^2 / S; the least is the prior's.
        """
        lam, width = self.settings.lam, self.features.bandwidth
        if self.selection is not None:
            lam = min(lam, PILOT_LAMS[0]) if "lam" in self.asked.auto else lam
            width *= NARROWER_MULTIPLES[-1] if "gamma" in self.asked.auto else 1.0
        z = self.features.frequencies
        top = n * float(np.einsum("sk,sk->", z, z)) / self.features.n_features
        condition = 1.0 + top / (lam * width**2)
        return float(
            np.clip(LOG_TOLERANCE / condition, LEAST_SPECTRAL_TOLERANCE, SPECTRAL_TOLERANCE)
        )

    # -- refinement -------------------------------------------------------------------------------

    def _refines(self, rows: Rows) -> bool:
        """Whether settings are compared on all rows but those held out."""
        return (
            self.selection is not None and not self.selection.is_brief
            and self.settings.lam != BASE_ALONE and rows.split is not None and rows.split.holds_out
        )  # fmt: skip

    def _refine(self, sums: RequiredSums, rows: Rows) -> tuple[Any, Refined]:
        """Statistics with the bandwidth, number of features and lambda that suit all rows.

        Settings that were given stay.
        """
        assert rows.split is not None
        chosen, auto = self.settings, self.asked.auto
        refinement = Refinement(
            split=rows.split, base=sums.base, method=chosen.method, lams=self._refined_lams(),
            tempering=self.tempering, seed=chosen.seed, threads=chosen.threads,
            one_standard_error=chosen.one_standard_error,
        )  # fmt: skip
        features = self.features
        trials: tuple[RefinementTrial, ...] = ()
        is_periodic = domain_of(sums.base).periodic.any()  # whole waves fit one bandwidth only
        if "gamma" in auto and not is_periodic:
            sums = sums.for_bandwidths(
                features, bandwidth_candidates(features, rows.split.resolution)
            )
            if sums.are_cheap:
                narrowed = refinement.refine_bandwidth(sums, features)
                features, trials = replace(features, bandwidth=narrowed.bandwidth), narrowed.trials
        stats = sums(features)
        counts = FEATURE_COUNTS if "n_features" in auto else ()
        refined = Refined(features.n_features, features.bandwidth, chosen.lam)
        if counts or len(refinement.lams) > 1 or self.least_errors > 0.0:
            refined = refinement.refine_size_and_lambda(
                stats, counts, least_errors=self.least_errors
            )
            stats = stats.first_features(refined.n_features)
        lam = refined.lam if "lam" in auto else chosen.lam
        return stats, replace(refined, lam=lam, trials=(*trials, *refined.trials))

    def _refined_lams(self) -> tuple[float, ...]:
        """Lambdas that are compared on all rows: the pilot's, and others where they cost little."""
        lam, method = self.settings.lam, self.settings.method
        if "lam" not in self.asked.auto:
            return (lam,)
        return {"fd": PILOT_LAMS, "map": (10.0 * lam, lam)}.get(method, (lam,))


@record(kw_only=True)
class RandomFeaturesProblem:
    """Statistics of all rows and a base; `solve` gives the density for a method and lambda.

    Attributes
    ----------
    asked : Settings
        What the user asked for.
    settings : Settings
        What was chosen; complete.
    statistics : Statistics or FeatureMeans
    base : Base
    selection : Selection or None
        The candidates that were compared on the pilot.
    trials : tuple of RefinementTrial
        What was compared on all rows.
    map_draws : int
        Draws behind MAP's expectations where settings are chosen from the data.
    scaled : ScaledBase or None
        How base="scaled" was found.
    """

    asked: Settings
    settings: Settings
    statistics: RowSums
    base: Base
    selection: Selection | None
    trials: tuple[RefinementTrial, ...]
    map_draws: int = FULL_MAP_DRAWS
    scaled: ScaledBase | None = None

    @property
    def solve_options(self) -> dict[str, Any]:
        """Options of ``solve`` but for lambda."""
        options = {
            "eta": self.settings.eta, "solver": self.settings.solver, "seed": self.settings.seed,
            **self.settings.threads.options,
        }  # fmt: skip
        if self.selection is not None:
            few = self.statistics.n_rows < MANY_ROWS
            options["n_draws"] = self.map_draws if few else min(self.map_draws, MANY_ROWS_MAP_DRAWS)
        return options

    def solve(self, method: str, lam: float) -> Density:
        """The model with this method and lambda; the base alone for BASE_ALONE."""
        base, stats = self.base, self.statistics
        if lam == BASE_ALONE:
            return base_alone(stats, base, self.settings.threads)
        if self.settings.base == "learned" and isinstance(base, GaussianBase):
            from ..solvers.learned_base import learn_base

            # together with theta, so for every lambda anew
            base = learn_base(stats, base, lam)  # type: ignore[arg-type]
        return solve(
            stats, base, method, lam, progress=self.settings.progress, **self.solve_options  # type: ignore[arg-type]
        )

    def with_scaled_base(self, rows: Rows) -> RandomFeaturesProblem:
        """The same with the scale of the base that rows held out prefer.

        The statistics do not depend on the base: one pass over the rows kept serves all scales.
        """
        assert isinstance(self.base, GaussianBase)
        assert isinstance(self.statistics, Statistics)
        split, chosen = split_for_scales(rows), self.settings
        stats = accumulate(
            split.kept, self.statistics.features, noise_levels=self.statistics.noise_levels,
            origin=self.base.mean, sample_weight=split.kept_weights, **chosen.threads.options,
        )  # fmt: skip
        kept = replace(self, statistics=stats, settings=replace(chosen, progress=False))
        scaled = scale_base(
            self.base, split,
            lambda base: replace(kept, base=base).solve(chosen.method, chosen.lam),
        )  # fmt: skip
        return replace(self, base=scaled.base, scaled=scaled)

    # -- the record -------------------------------------------------------------------------------

    def record(self, model: Density, rows: Rows) -> dict[str, Any]:
        """How the settings of a model came about."""
        record = self._record_base(model, rows)
        if self.settings.method == "ncfd":
            record["sigma_max"] = self.settings.sigma_max
            record["n_noise_levels"] = self.settings.n_noise_levels
        if self.selection is not None:
            record["one_standard_error"] = self.settings.one_standard_error
            record["effort"] = self.settings.effort
        if self.trials:
            record["lam_tried"] = self._record_trials(rows)
        if model.method == "base":
            return record | dict.fromkeys(
                ("gamma_rule", "frequency_covariance", "kernel", "interactions")
            )
        return record | {
            "gamma": self.settings.gamma, "eta": self.settings.eta,
            "gamma_rule": self._gamma_rule,
            "frequency_covariance": _word(self.settings.frequency_covariance),
            "kernel": as_listed(self.settings.kernel),
            "interactions": as_listed(self.settings.interactions),
        }  # fmt: skip

    @property
    def _gamma_rule(self) -> str:
        """Where the bandwidth comes from: "selected", "scott" or "given"."""
        if "gamma" in self.asked.auto:
            return "scott" if self.selection is None else "selected"
        return "scott" if self.asked.gamma == "scott" else "given"

    def _record_base(self, model: Density, rows: Rows) -> dict[str, Any]:
        name = _word(self.settings.base)
        if name == "learned" and model.method == "base":
            name = "empirical"  # a base is learned together with a tilt
        record: dict[str, Any] = {"base": name, **Axes.of(self.asked, rows).record()}
        if name == "mixture" and rows.blocks.sample is not None:
            # steps of the columns, which bound the widths of components; in units of any size
            x, largest = rows.sample.x, np.abs(rows.sample.x).max(axis=0)
            steps = measure_columns(x / largest, rows.sample_weights).resolution
            record["resolution"] = (largest * steps).tolist()
        if not isinstance(model.base, GaussianBase):
            record["base_facts"] = repr(model.base)
        if name == "learned":
            assert isinstance(model.base, GaussianBase)
            record["base_report"] = model.base.report
            record["base_spread"] = measure_spread(model, rows)
        if self.scaled is not None:
            record["base_scale"] = self.scaled.factor
            record["base_scales_tried"] = self.scaled.scores
        return record

    def _record_trials(self, rows: Rows) -> list[dict[str, float]]:
        """What was compared on all rows; scores in the units of the data."""
        log_volume = rows.log_volume
        records = [trial.record() for trial in self.trials]
        return [{**row, "score": row["score"] - log_volume} for row in records]

    def candidates(self, settings: dict[str, Any], rows: Rows) -> list[dict[str, Any]] | None:
        """The candidates that were compared on the pilot, the chosen one first."""
        if self.selection is None:
            return None
        return self.selection.table(
            settings, [trial.record() for trial in self.trials], rows.log_volume
        )


def _word(value: Any) -> str:
    """A setting that is a word as it is; "given" for an array or an object."""
    return value if isinstance(value, str) else "given"
