"""Draws for importance sampling: from the base, and from Gaussians at modes that the base misses.

The balance heuristic combines both: the weight of a draw is the density of the base over that of
the mixture of both, whichever it came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bases.base import Base
from ..bases.mixture import MixtureBase
from ..bases.quasirandom import logsumexp
from ..kernels.thread_choice import Threads
from ..validation import Array
from .exponent import Tilt

ROUGH_LOG2_DRAWS = 10  # base-2 logarithm of the draws behind a rough log Z
MODE_SEEDS = 1_000  # offset of the seeds of draws at modes, which differ from those of the base


def estimate_rough_log_z(tilt: Tilt, base: Base, threads: Threads) -> float:
    """log Z from a thousand draws of the base; log Z itself is rarely far below."""
    values = tilt.value(base.draw_sobol(ROUGH_LOG2_DRAWS, 0), threads)
    return float(logsumexp(values) - np.log(len(values)))


def widen_base(base: Base) -> MixtureBase:
    """A mixture that reaches beyond the base; its draws show a tilt that grows where the base is
    thin.

    Its components are those of the base and a Gaussian of the base's mean and covariance, all
    wider by 1 + 1 / sqrt(d) standard deviations: more would waste draws in many dimensions.
    """
    square = (1.0 + base.dimension**-0.5) ** 2
    if not isinstance(base, MixtureBase):
        return MixtureBase(np.ones(1), base.mean[None], square * base.covariance[None])
    return MixtureBase(
        np.append(base.weights, 1.0),
        np.concatenate([base.means, base.mean[None]]),
        square * np.concatenate([base.covariances, base.covariance[None]]),
    )


@dataclass(frozen=True, eq=False)
class Proposal:
    """Half of the draws from the base, half from a mixture.

    Parameters
    ----------
    base : Base
    modes : MixtureBase, optional
        Gaussians at modes that the base misses, or a wider base. Without it all draws are from the
        base.
    """

    base: Base
    modes: MixtureBase | None = None

    @property
    def n_modes(self) -> int:
        """Number of modes that get draws of their own."""
        return 0 if self.modes is None else self.modes.n_components

    def sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n quasi-random draws."""
        if self.modes is None:
            return self.base.draw_sobol(log2_n, seed)
        of_modes = self.modes.draw_sobol(log2_n - 1, seed + MODE_SEEDS)
        return np.concatenate([self.base.draw_sobol(log2_n - 1, seed), of_modes])

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws."""
        if self.modes is None:
            return self.base.draw(n, rng)
        n_base = int(rng.binomial(n, 0.5))
        rows = np.concatenate([self.base.draw(n_base, rng), self.modes.draw(n - n_base, rng)])
        return np.asarray(rows[rng.permutation(n)])

    def log_ratio(self, x: Array) -> Array:
        """Log of base over proposal at every row, (n,)."""
        if self.modes is None:
            return np.zeros(len(x))
        gap = self.modes.log_density_at(x) - self.base.log_density_at(x)
        gap[np.isnan(gap)] = -np.inf
        return np.asarray(np.log(2.0) - np.logaddexp(0.0, gap))

    def log_weights(self, tilt: Tilt, x: Array, threads: Threads) -> Array:
        """Log of e^tilt base over proposal at every row, (n,)."""
        return tilt.value(x, threads) + self.log_ratio(x)
