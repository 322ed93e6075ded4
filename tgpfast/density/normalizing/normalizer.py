"""`Normalizer`: log Z = log E[e^tilt] under the base, with its error, all in log space.

In one to three dimensions it comes from quadrature. In more dimensions it comes from quasi-random
draws of the base and of modes that the base misses, and is checked against an annealed estimate
that shares no draw with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...bases.quasirandom import effective_share, logsumexp
from ...kernels.thread_choice import Threads
from ...runtime.warnings import PoorNormalizerWarning, warn
from ...validation import Array
from ..draws.proposal import Proposal
from ..exponents.exponent import Tilt

if TYPE_CHECKING:
    from .lattice_quadrature import LatticeQuadrature
    from .periodic_quadrature import PeriodicQuadrature
    from .quadrature import Quadrature

# Independent scrambles, and the base-2 logarithm of their points. The spread of the scrambles gives
# the error. With 8 of 16,384 points, one in 50 normalizers was off by more than three such errors.
REPLICATES, SOBOL_LOG2_POINTS = 32, 12
# Seed of the first scramble. MAP makes its nodes with the seed of the fit, 0 by default: at the
# same points its densities have less mass than elsewhere, and log Z would be too small.
FIRST_SEED = 2_000_003
DRAWS = REPLICATES * 2**SOBOL_LOG2_POINTS  # 131,072, to which effective sample sizes relate
FIRST_LOG2_POINTS = SOBOL_LOG2_POINTS - 2  # points at first: a quarter
FIRST_ERROR = 1e-3  # error of log Z at which these are enough
LEAST_EFFECTIVE_DRAWS = 1_000.0  # with fewer a normalizer is poor
MOST_LOG_Z_ERROR = 0.1  # with a larger standard error of log Z a normalizer is poor
LEAST_GAP = 0.05  # two estimates of log Z that are nearer do not disagree
MOST_GAP_ERRORS = 4.0  # nor do those that differ by fewer standard errors


@dataclass(frozen=True)
class Normalizer:
    """log Z and how far to trust it.

    Attributes
    ----------
    value : float
        log E[e^tilt] under the base.
    standard_error : float
        Of the value; for quadrature, a bound from refining the grids.
    effective_sample_size : float
        How many of 131,072 draws carry the density. For quadrature, draws of the base:
        131,072 Z^2 / E[e^(2 tilt)]; else all draws, those at modes included.
    method : {"quadrature", "importance", "exact"}
        "exact" where the density is its base alone.
    n_points : int
        Nodes or draws used.
    annealed, annealed_error : float or None
        The independent estimate and its standard error, in more than three dimensions.
    n_modes : int
        Modes that draws of the base would miss, and that got draws of their own.
    """

    value: float
    standard_error: float
    effective_sample_size: float
    method: str
    n_points: int
    annealed: float | None = None
    annealed_error: float | None = None
    n_modes: int = 0

    @property
    def is_poor(self) -> bool:
        """Whether too few points carry the density to trust it, or two estimates disagree."""
        return (
            self.effective_sample_size < LEAST_EFFECTIVE_DRAWS
            or not self.standard_error < MOST_LOG_Z_ERROR
            or self.disagrees
        )

    @property
    def disagrees(self) -> bool:
        """Whether the annealed estimate differs by more than the errors of both allow."""
        if self.annealed is None or self.annealed_error is None:
            return False
        allowed = MOST_GAP_ERRORS * math.hypot(self.standard_error, self.annealed_error)
        return not abs(self.value - self.annealed) <= max(LEAST_GAP, allowed)

    @property
    def effective_share(self) -> float:
        """Effective sample size over 131,072."""
        return self.effective_sample_size / DRAWS


UNTILTED = Normalizer(0.0, 0.0, float(DRAWS), "exact", 0)  # of a density that is its base alone


def warn_if_poor(normalizer: Normalizer) -> None:
    """Warn once of a normalizer that is not reliable: why, and what to do."""
    if not normalizer.is_poor:
        return
    if normalizer.disagrees:
        why = (
            f"two independent estimates of log Z disagree ({normalizer.value:.3g} with error "
            f"{normalizer.standard_error:.2g}, and {normalizer.annealed:.3g} with error "
            f"{normalizer.annealed_error:.2g})"
        )
    elif normalizer.effective_sample_size < LEAST_EFFECTIVE_DRAWS:
        why = (
            f"only {normalizer.effective_sample_size:.3g} of {DRAWS:,} test points carry its mass: "
            "most of it lies where the base has almost none"
        )
    else:
        why = f"log Z is known only to within {normalizer.standard_error:.2g}"
    known = normalizer.method == "quadrature" and normalizer.standard_error < MOST_LOG_Z_ERROR
    what = "samples and probabilities" if known else "normalized values and samples"
    warn(
        f"this density is unreliable: {why}. Do not trust its {what}. "
        'Raise lam (10 times, say) or gamma, or use method="map"',
        PoorNormalizerWarning,
    )


def normalizer_of_quadrature(
    quadrature: Quadrature | LatticeQuadrature | PeriodicQuadrature,
) -> Normalizer:
    """The normalizer that grids give.

    The rules of a lattice, and those around periods, resolve the tilt everywhere, whatever share of
    the base lies where its mass is; all draws count.
    """
    from .quadrature import Quadrature

    share = 1.0
    if isinstance(quadrature, Quadrature):
        share = math.exp(min(2.0 * quadrature.value - quadrature.log_square, 0.0))
    return Normalizer(
        quadrature.value, quadrature.error, share * DRAWS, "quadrature", quadrature.n_nodes
    )


def estimate_by_importance(
    tilt: Tilt, proposal: Proposal, threads: Threads, *, annealed: bool = True
) -> Normalizer:
    """The normalizer from draws of a proposal.

    annealed : whether to make the independent estimate too
    """
    from ..draws.annealing import estimate_by_annealing

    found = _average_points(tilt, proposal, threads, FIRST_LOG2_POINTS)
    if found.standard_error >= FIRST_ERROR:
        found = _average_points(tilt, proposal, threads, SOBOL_LOG2_POINTS)
    value, error = (
        estimate_by_annealing(tilt, proposal.base, threads) if annealed else (None, None)
    )
    return Normalizer(
        found.value, found.standard_error, found.effective_sample_size, "importance",
        found.n_points, value, error, proposal.n_modes,
    )  # fmt: skip


def _average_points(
    tilt: Tilt, proposal: Proposal, threads: Threads, log2_points: int
) -> Normalizer:
    seeds = range(FIRST_SEED, FIRST_SEED + REPLICATES)
    sets = (proposal.sobol(log2_points, seed) for seed in seeds)
    return average_replicates(np.array([proposal.log_weights(tilt, x, threads) for x in sets]))


def average_replicates(log_weights: Array) -> Normalizer:
    """The normalizer from log weights (replicates, n) at independent quasi-random points."""
    parts = logsumexp(log_weights, axis=1) - np.log(log_weights.shape[1])
    value = float(logsumexp(parts) - np.log(len(parts)))
    error = np.std(np.exp(parts - value), ddof=1) / np.sqrt(len(parts))
    effective = effective_share(log_weights) * DRAWS
    return Normalizer(value, float(error), effective, "importance", log_weights.size)
