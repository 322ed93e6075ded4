"""The check of a density before `fit` returns it: its mass, where it lies, and its margins.

`solve_until_reliable` takes the first model that passes: as chosen, smoother, by MAP, or the base
alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..data.table import column_name
from ..density.density import Density
from ..density.normalizer import MOST_LOG_Z_ERROR
from ..runtime.records import record
from ..validation import Array
from .candidates import BASE_ALONE, LEAST_PILOT_ROWS
from .scoring import (
    FAR_BANDWIDTHS,
    MOST_FAR_SHARE,
    NEAR_ROWS,
    distances_between,
    find_far,
)

# Draws of the density behind far_share and the KS distances, at most, and for each row: their noise
# is small beside that of the rows.
VERIFIED_DRAWS, DRAWS_PER_ROW = 2**15, 64
DRAW_SEED = 4_000_037  # of these draws; rows that a user draws with a small seed are not among them
# A draw is far from the rows beyond FAR_BANDWIDTHS, and beyond this quantile of the distances of
# rows to their nearest neighbors.
SPACING_QUANTILE = 0.995
FAR_ERRORS = 3.0  # standard errors of a share that are allowed for
KS_FLOORS = 2.5  # noise floors that a KS distance may have,
KS_SLACK = 0.01  # and what it may have beyond: differences that hardly show in a plot
KS_FLOOR = 0.87  # mean KS distance of n draws from their own law, times sqrt(n)
WORSE_KS = 0.01  # KS distance beyond that of the base alone, which speaks against the tilt
LEAST_MEAN_GAIN = -1e-9  # mean log density of rows over that of the base: rounding of zero
PROMISED_ERROR = {1: 1e-6, 2: 1e-6, 3: 1e-3}  # of log Z, by dimension; a larger one is reported
LAM_FACTORS = (1.0, 1e1, 1e2, 1e3)  # of lambda, tried in turn
MAP_LAM_FACTORS = (1.0, 1e1)  # of lambda, or of 1 if that is more, tried with MAP


@record
class Verification:
    """Measurements of a density, and their limits.

    Attributes
    ----------
    far_share, far_allowed : float
        Share of the mass farther from every row than rows are from each other.
    ks, ks_allowed : float
        Largest KS distance between rows and draws, rounded to values of the rows, over the columns;
        noise explains the limit.
    column : int
        The column with that distance.
    gain : float
        Mean log density of rows less that of the base alone.
    log_mass_error, log_mass_allowed : float
        Error of log Z, and what is promised by dimension.
    is_poor : bool
        Whether the normalizer is unreliable.
    """

    far_share: float
    far_allowed: float
    ks: float
    ks_allowed: float
    column: int
    gain: float
    log_mass_error: float
    log_mass_allowed: float
    is_poor: bool

    @property
    def misplaces_mass(self) -> bool:
        """Whether the tilt is wrong: more mass than noise explains lies where no rows are, its mass
        is not known, or rows are less likely than under the base."""
        return (
            self.is_poor
            or not self.log_mass_error < MOST_LOG_Z_ERROR
            or not self.far_share <= self.far_allowed
            or not self.gain > LEAST_MEAN_GAIN
        )

    def compared_with(self, base: Verification) -> Verification:
        """The same, allowing a little more mass far from the rows than the base alone has."""
        return replace(self, far_allowed=max(self.far_allowed, base.far_share + MOST_FAR_SHARE))

    @property
    def misfits(self) -> bool:
        """Whether draws differ from the rows in some column by more than noise."""
        return not self.ks <= self.ks_allowed

    def record(self) -> dict[str, Any]:
        """Plain numbers for ``model.settings``."""
        return {
            "far_share": self.far_share, "far_allowed": self.far_allowed, "ks": self.ks,
            "ks_allowed": self.ks_allowed, "ks_column": self.column, "gain_over_base": self.gain,
            "log_mass_error": self.log_mass_error, "passed": self.describe(None) == "",
        }  # fmt: skip

    def describe(self, columns: list[str] | None) -> str:
        """What is wrong, in words; empty where nothing is."""
        found = []
        if self.is_poor:
            found.append("its normalizer is unreliable")
        elif not self.log_mass_error <= self.log_mass_allowed:
            found.append(f"its mass is known only to within {self.log_mass_error:.1g}")
        if not self.far_share <= self.far_allowed:
            found.append(f"{self.far_share:.0%} of its mass lies far from every row")
        if self.misfits:
            found.append(
                f"its samples differ from the data in column {column_name(self.column, columns)} "
                f"(KS distance {self.ks:.3f}, noise explains {self.ks_allowed:.3f})"
            )
        return "; ".join(found)


class Verifier:
    """A random sample of the rows, against which densities are verified.

    Parameters
    ----------
    x : (n, d) array
        In the model's coordinates, in any order.
    weights : (n,) array
        How often each row is repeated. Their sum is the number of rows from which the noise of the
        comparison follows. With fewer than LEAST_PILOT_ROWS different rows, it is Kish's effective
        number, so that copies of a few rows do not pass for many rows.
    """

    def __init__(self, x: Array, weights: Array) -> None:
        self.x, self.weights = x, weights / weights.sum()
        self.n = float(1.0 / (self.weights @ self.weights))
        if len(x) >= LEAST_PILOT_ROWS:
            self.n = max(float(weights.sum()), self.n)
        self.n_draws = min(VERIFIED_DRAWS, 2 ** int(np.ceil(np.log2(DRAWS_PER_ROW * len(x)))))
        self.near = x[np.random.default_rng(0).permutation(len(x))[:NEAR_ROWS]]
        self.columns = [sort_column(x[:, k], self.weights) for k in range(x.shape[1])]
        self.spacings = distances_between(self.near)

    def verify(self, model: Density) -> Verification:
        """Measure a density in whose coordinates the rows are."""
        points, weights = model.integrator.weighted_draws(self.n_draws, seed=DRAW_SEED)
        weights = weights / weights.sum()
        n_draws = float(1.0 / (weights @ weights))
        spacing = float(np.quantile(self.spacings, SPACING_QUANTILE))
        far = max(FAR_BANDWIDTHS * model.features.bandwidth, spacing)
        share = float(weights @ find_far(self.near, points, far))
        of_rows = float((self.spacings > far).mean())
        noise = np.sqrt(max(share * (1.0 - share), 1e-4) * (1.0 / n_draws + 1.0 / self.n))
        distances = [
            ks_distance(column, sort_column(round_to(column[0], points[:, k]), weights))
            for k, column in enumerate(self.columns)
        ]
        worst = int(np.argmax(distances))
        floor = KS_FLOOR * float(np.sqrt(1.0 / self.n + 1.0 / n_draws))
        normalizer = model.log_normalizer
        return Verification(
            share, of_rows + MOST_FAR_SHARE + FAR_ERRORS * float(noise), distances[worst],
            KS_FLOORS * floor + KS_SLACK, worst, self._mean_gain(model),
            normalizer.standard_error, PROMISED_ERROR.get(model.dimension, MOST_LOG_Z_ERROR),
            normalizer.is_poor,
        )  # fmt: skip

    def _mean_gain(self, model: Density) -> float:
        """Mean log density of the rows less that of the base alone."""
        if model.tilt.is_zero:
            return 0.0
        tilt = model.tilt.value(self.x, model.threads)
        return float(self.weights @ tilt) - model.log_normalizer.value


def solve_until_reliable(
    solve: Callable[[str, float], Density], method: str, lam: float, verifier: Verifier | None, *,
    may_change_method: bool,
) -> tuple[Density, Verification | None]:  # fmt: skip
    """The first model that passes verification, and what was measured of it.

    Tried in turn are the model as chosen, with larger lambdas, by MAP, and the base alone, which is
    taken in any case. Re-emits only the accepted model's warnings.

    Parameters
    ----------
    solve : callable
        (method, lam) -> Density; BASE_ALONE as lam gives the base alone.
    method : str
    lam : float
    verifier : Verifier or None
        Without one a model passes if its normalizer is reliable.
    may_change_method : bool
        Whether MAP may be tried.
    """
    of_base: Verification | None = None
    for name, value in _attempts(method, lam, may_change_method=may_change_method):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = solve(name, value)
            of_solving = list(caught)  # not those of the normalizer, which may be another's fault
            verified = None
            if verifier is not None:
                model = model.with_mode_starts(verifier.near)
                verified = verifier.verify(model)
            if value == BASE_ALONE:
                break
            if verifier is None or verified is None:
                if not model.log_normalizer.is_poor:
                    break
                continue
            if not (verified.misplaces_mass or verified.misfits):
                break
            # the tilt is not to blame for what the base does too
            of_base = of_base or verifier.verify(solve(name, BASE_ALONE))
            verified = verified.compared_with(of_base)
            if not verified.misplaces_mass and verified.ks <= of_base.ks + WORSE_KS:
                break
    for warning in of_solving:
        warnings.warn_explicit(
            warning.message, warning.category, warning.filename, warning.lineno
        )
    return model, verified


def _attempts(method: str, lam: float, *, may_change_method: bool) -> list[tuple[str, float]]:
    """(method, lambda) of the models to try, in turn."""
    attempts = [(method, lam * factor) for factor in LAM_FACTORS if lam < BASE_ALONE]
    if may_change_method and method != "map" and lam < BASE_ALONE:
        attempts += [("map", max(lam, 1.0) * factor) for factor in MAP_LAM_FACTORS]
    return [*attempts, (method, BASE_ALONE)]


def sort_column(values: Array, weights: Array) -> tuple[Array, Array]:
    """Values in order, and the share of the weight up to each."""
    order = np.argsort(values)
    return values[order], np.cumsum(weights[order])


def round_to(values: Array, points: Array) -> Array:
    """The nearest of sorted values to each point: no density follows the jumps of a column of
    rounded values, but what it draws around each of them can be compared."""
    return np.asarray(values[np.searchsorted(0.5 * (values[1:] + values[:-1]), points)])


def ks_distance(a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
    """KS distance of two weighted samples, each as `sort_column` gives it."""
    places = np.concatenate([a[0], b[0]])
    gaps = []
    for side in ("left", "right"):
        values = [
            np.append(0.0, running)[np.searchsorted(place, places, side=side)]
            for place, running in (a, b)
        ]
        gaps.append(float(np.abs(values[0] - values[1]).max()))
    return max(gaps)
