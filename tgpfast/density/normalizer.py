"""log Z = log E[e^tilt] under the base, with its error, all in log space.

In one to three dimensions by quadrature on grids that cover every place where the density could
be. In more dimensions from quasi-random draws of the base and of the modes that the base misses,
checked against an annealed estimate that shares no draw with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..bases.gaussian import Base
from ..bases.quasirandom import effective_share, logsumexp
from ..kernels.thread_choice import Threads
from ..runtime.warnings import PoorNormalizerWarning, warn
from ..validation import Array
from .annealing import anneal
from .exponent import PredictiveTilt, Tilt
from .modes import find_modes
from .proposal import Proposal
from .quadrature import QUADRATURE_DIMENSIONS, Quadrature

REPLICATES, LOG2_POINTS = 8, 14  # independent scrambles, and points in each (as a power of two)
DRAWS = REPLICATES * 2**LOG2_POINTS  # 131,072: what effective sample sizes are counted of
CLOSE = 1e-3  # error of log Z at which a quarter of the points will do for FVPD
LEAST_SAMPLE = 1_000.0  # effective draws below which a normalizer is called poor
MOST_ERROR = 0.1  # of log Z above which it is called poor
LEAST_GAP, MOST_ERRORS = 0.05, 4.0  # two estimates disagree beyond this, and so many errors


@dataclass(frozen=True)
class Normalizer:
    """log Z and how far to trust it.

    value : log E[e^tilt] under the base
    standard_error : of the value; for quadrature, a bound from refining the grids
    effective_sample_size : how many of 131,072 draws carry the density: of the base for quadrature,
        131,072 Z^2 / E[e^(2 tilt)]; elsewhere of all draws, those at modes included
    method : "quadrature", "importance", or "exact" where the density is its base alone
    n_points : nodes or draws used
    annealed, annealed_error : the independent estimate, in more than three dimensions, and its
        standard error; None elsewhere
    n_modes : modes that draws of the base would miss, and that got draws of their own
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
            self.effective_sample_size < LEAST_SAMPLE
            or not self.standard_error < MOST_ERROR
            or self.disagrees
        )

    @property
    def disagrees(self) -> bool:
        """Whether the annealed estimate differs by more than the errors of both allow."""
        if self.annealed is None or self.annealed_error is None:
            return False
        allowed = MOST_ERRORS * math.hypot(self.standard_error, self.annealed_error)
        return not abs(self.value - self.annealed) <= max(LEAST_GAP, allowed)

    @property
    def effective_share(self) -> float:
        """Effective draws for each draw."""
        return self.effective_sample_size / DRAWS


EXACT = Normalizer(0.0, 0.0, float(DRAWS), "exact", 0)


def by_quadrature(base: Base) -> bool:
    """Whether integrals against this base are taken on grids."""
    return base.dimension <= QUADRATURE_DIMENSIONS


def log_normalizer(tilt: Tilt, base: Base, threads: Threads) -> Normalizer:
    """log Z; warns where it is not to be trusted."""
    if tilt.is_zero:
        result = EXACT
    elif by_quadrature(base):
        result = of_quadrature(Quadrature(tilt, base, threads))
    else:
        result = by_importance(tilt, Proposal(base, find_modes(tilt, base, threads)), threads)
    warn_if_poor(result)
    return result


def warn_if_poor(result: Normalizer) -> None:
    """One warning for a normalizer that is not to be trusted: why, and what to do."""
    if not result.is_poor:
        return
    if result.disagrees:
        why = (
            f"two independent estimates of log Z disagree ({result.value:.3g} with error "
            f"{result.standard_error:.2g}, and {result.annealed:.3g} with error "
            f"{result.annealed_error:.2g})"
        )
    elif result.effective_sample_size < LEAST_SAMPLE:
        why = (
            f"only {result.effective_sample_size:.3g} of {DRAWS:,} effective samples carry its "
            "mass, most of which lies where the base has almost none"
        )
    else:
        why = f"log Z is known only to within {result.standard_error:.2g}"
    known = result.method == "quadrature" and result.standard_error < MOST_ERROR
    what = "samples and probabilities" if known else "normalized values and samples"
    warn(
        f"this density is unreliable: {why}. Do not trust its {what}. "
        'Raise lam (10 times, say) or gamma, or use method="map"',
        PoorNormalizerWarning,
    )


def of_quadrature(quadrature: Quadrature) -> Normalizer:
    """The normalizer that grids give."""
    share = math.exp(min(2.0 * quadrature.value - quadrature.log_square, 0.0))
    return Normalizer(
        quadrature.value, quadrature.error, share * DRAWS, "quadrature", quadrature.n_nodes
    )


def by_importance(
    tilt: Tilt, proposal: Proposal, threads: Threads, *, annealed: bool = True
) -> Normalizer:
    """log Z from draws of a proposal; annealed : with the independent estimate beside it."""
    n_modes = 0 if proposal.modes is None else proposal.modes.n_components
    result = None
    if isinstance(tilt, PredictiveTilt):  # S^2 flops a point: few, if they do
        result = _by_points(tilt, proposal, threads, LOG2_POINTS - 2)
    if result is None or result.standard_error >= CLOSE:
        result = _by_points(tilt, proposal, threads, LOG2_POINTS)
    value, error = anneal(tilt, proposal.base, threads) if annealed else (None, None)
    return Normalizer(
        result.value, result.standard_error, result.effective_sample_size, "importance",
        result.n_points, value, error, n_modes,
    )  # fmt: skip


def _by_points(tilt: Tilt, proposal: Proposal, threads: Threads, log2_points: int) -> Normalizer:
    sets = (proposal.sobol(log2_points, seed) for seed in range(REPLICATES))
    return from_replicates(np.array([proposal.log_weights(tilt, x, threads) for x in sets]))


def from_replicates(values: Array) -> Normalizer:
    """log Z of log weights at independent replicates of quasi-random points, (replicates, n)."""
    parts = logsumexp(values, axis=1) - np.log(values.shape[1])
    value = float(logsumexp(parts) - np.log(len(parts)))
    spread = np.std(np.exp(parts - value), ddof=1) / np.sqrt(len(parts))
    sample = effective_share(values) * DRAWS
    return Normalizer(value, float(spread), sample, "importance", values.size)
