"""Draws that cover a tilted density: of its base, and of Gaussians at modes that the base misses.

The two are combined by the balance heuristic: a draw counts by the density of the base over that of
the mixture of both, whichever it came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bases.gaussian import Base, GaussianBase
from ..bases.mixture import MixtureBase
from ..bases.quasirandom import logsumexp
from ..kernels.thread_choice import Threads
from ..validation import Array
from .exponent import Tilt


def rough_log_z(tilt: Tilt, base: Base, threads: Threads) -> float:
    """log Z as a thousand draws of the base see it: log Z itself is rarely far below."""
    values = tilt.value(base.draw_sobol(10, 0), threads)
    return float(logsumexp(values) - np.log(len(values)))


def widened(base: Base) -> MixtureBase:
    """A mixture that reaches beyond the base: its components, and a Gaussian of its own mean and
    covariance, all wider by 1 + 1 / sqrt(d) deviations; more would waste draws in many dimensions.

    Draws of it show a tilt that grows where the base is thin.
    """
    square = (1.0 + base.dimension**-0.5) ** 2
    if isinstance(base, GaussianBase) or not isinstance(base, MixtureBase):
        return MixtureBase(np.ones(1), base.mean[None], square * base.covariance[None])
    return MixtureBase(
        np.append(base.weights, 1.0),
        np.concatenate([base.means, base.mean[None]]),
        square * np.concatenate([base.covariances, base.covariance[None]]),
    )


@dataclass(frozen=True, eq=False)
class Proposal:
    """Half of the draws from the base, half from a mixture beside it: Gaussians at modes that the
    base misses, or a wider base. All from the base without one."""

    base: Base
    modes: MixtureBase | None = None

    def sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n quasi-random draws."""
        if self.modes is None:
            return self.base.draw_sobol(log2_n, seed)
        of_modes = self.modes.draw_sobol(log2_n - 1, seed + 1_000)
        return np.concatenate([self.base.draw_sobol(log2_n - 1, seed), of_modes])

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws."""
        if self.modes is None:
            return self.base.draw(n, rng)
        of_base = int(rng.binomial(n, 0.5))
        rows = np.concatenate([
            self.base.draw(of_base, rng), self.modes.draw(n - of_base, rng)
        ])  # fmt: skip
        return np.asarray(rows[rng.permutation(n)])

    def log_ratio(self, x: Array) -> Array:
        """log of base over proposal at every row."""
        if self.modes is None:
            return np.zeros(len(x))
        gap = self.modes.log_density_at(x) - self.base.log_density_at(x)
        gap[np.isnan(gap)] = -np.inf
        return np.asarray(np.log(2.0) - np.logaddexp(0.0, gap))

    def log_weights(self, tilt: Tilt, x: Array, threads: Threads) -> Array:
        """log of e^tilt base over proposal at every row."""
        return tilt.value(x, threads) + self.log_ratio(x)
