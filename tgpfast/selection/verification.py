"""The last look at a density before `fit` returns it: its mass, where it lies, and its margins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.scaling import column_name
from ..density.density import Density
from ..density.normalizer import MOST_LOG_Z_ERROR
from ..validation import Array

DRAWS = 2**15  # of the density, behind far_share and the KS distances
NEAR_ROWS = 5_000  # rows that distances are taken to
FAR_BANDWIDTHS = 3.0  # from every row that count as far,
FAR_QUANTILE = 0.995  # unless so large a share of the rows is nearer to the next row
MOST_FAR = 0.02  # share of the mass that may be farther, beyond that of the rows themselves
KS_FLOORS, KS_SLACK = 2.5, 0.01  # a KS distance may be so many noise floors, and this much more
PROMISED = {1: 1e-6, 2: 1e-6, 3: 1e-3}  # error of log Z, by dimension; a larger one is told
KS_FLOOR = 0.87  # mean KS distance of n draws from their own law, times sqrt(n)
WORSE_KS = 0.01  # than the base's, which speaks against the tilt
ERRORS = 3.0  # standard errors of a share that are allowed for


@dataclass(frozen=True)
class Verification:
    """What was seen, and what of it is wrong.

    far_share : of the density's mass farther from every row than rows are from each other
    ks : largest KS distance between draws and rows over the columns, and ``column`` that has it
    ks_allowed : what noise explains, and a little
    gain : mean log density of rows less that of the base alone
    log_mass_error, log_mass_allowed : error of log Z, and what is promised by dimension
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
        """Whether the tilt is at fault: more than noise lies where no rows are, its mass is not
        known, or rows are less likely than under the base."""
        return (
            self.is_poor
            or not self.log_mass_error < MOST_LOG_Z_ERROR
            or not self.far_share <= self.far_allowed
            or not self.gain > -1e-9
        )

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.misplaces_mass or self.misfits)

    def compared_with(self, base: Verification) -> Verification:
        """The same, allowing as much mass far from the rows as the base alone has, and a little."""
        return replace(self, far_allowed=max(self.far_allowed, base.far_share + MOST_FAR))

    @property
    def misfits(self) -> bool:
        """Whether draws differ from the rows in some column by more than noise."""
        return not self.ks <= self.ks_allowed

    def record(self) -> dict[str, Any]:
        """Plain numbers for ``model.settings``."""
        return {
            "far_share": self.far_share, "far_allowed": self.far_allowed, "ks": self.ks,
            "ks_allowed": self.ks_allowed, "ks_column": self.column, "gain_over_base": self.gain,
            "log_mass_error": self.log_mass_error,
            "passed": self.describe(None) == "",
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
    """Rows in the model's coordinates, against which densities are verified.

    x : (n, d) a random sample of the rows, in any order ; weights : (n,)
    """

    def __init__(self, x: Array, weights: Array) -> None:
        self.x, self.weights = x, weights / weights.sum()
        self.n = float(1.0 / (self.weights @ self.weights))
        some = np.random.default_rng(0).permutation(len(x))[:NEAR_ROWS]
        self.near = x[some]
        self.columns = [_sorted(x[:, k], self.weights) for k in range(x.shape[1])]
        from scipy.spatial import cKDTree

        self.tree = cKDTree(self.near)
        own = self.tree.query(self.near, k=2)[0][:, 1] if len(self.near) > 1 else np.zeros(1)
        self.spacing = float(np.quantile(own, FAR_QUANTILE))
        self.own = own

    def verify(self, model: Density) -> Verification:
        """Look at a density whose coordinates the rows are in."""
        points, weights = model._weighted_points(DRAWS, seed=1)
        weights = weights / weights.sum()
        n_draws = float(1.0 / (weights @ weights))
        far = max(FAR_BANDWIDTHS * model.features.bandwidth, self.spacing)
        share = float(weights @ (self.tree.query(points)[0] > far))
        of_rows = float((self.own > far).mean())
        noise = np.sqrt(max(share * (1.0 - share), 1e-4) * (1.0 / n_draws + 1.0 / self.n))
        distances = [
            _ks(column, _sorted(points[:, k], weights)) for k, column in enumerate(self.columns)
        ]
        worst = int(np.argmax(distances))
        floor = KS_FLOOR * float(np.sqrt(1.0 / self.n + 1.0 / n_draws))
        normalizer = model.log_normalizer
        gain = 0.0
        if not model.tilt.is_zero:
            tilt = model.tilt.value(self.x, model.threads)
            gain = float(self.weights @ tilt) - normalizer.value
        return Verification(
            share, of_rows + MOST_FAR + ERRORS * float(noise), distances[worst],
            KS_FLOORS * floor + KS_SLACK, worst, gain, normalizer.standard_error,
            PROMISED.get(model.dimension, MOST_LOG_Z_ERROR), normalizer.is_poor,
        )  # fmt: skip


def _sorted(values: Array, weights: Array) -> tuple[Array, Array]:
    """Values in order, and the share of the weight up to each."""
    order = np.argsort(values)
    return values[order], np.cumsum(weights[order])


def _ks(a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
    """KS distance of two weighted samples."""
    places = np.concatenate([a[0], b[0]])
    gaps = []
    for side in ("left", "right"):
        values = [
            np.append(0.0, running)[np.searchsorted(place, places, side=side)]
            for place, running in (a, b)
        ]
        gaps.append(float(np.abs(values[0] - values[1]).max()))
    return max(gaps)
