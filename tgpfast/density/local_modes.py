"""Local modes of a density, by Newton's method from draws, and the share of draws at each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.bounded import Domain, domain_of
from ..bases.gaussian import GaussianBase, whitening_gaussian
from ..validation import Array
from .draw_means import effective_number
from .tilted_density import TiltedDensity

# lengths are in standard deviations of the base
MODE_DRAWS = 400  # draws from which modes are sought; a share has an error of 2.5 % at most
MODE_STEPS = 80  # at most
FIRST_TRUST = 0.3  # length of the first step at most
TRUST_GROWTH, TRUST_CUT = 1.7, 0.3  # factors of that length after a gain and after a loss
HESSIAN_DIFFERENCE = 1e-5  # of the differences of gradients behind a Hessian
FLAT = 1e-7  # gradient, in nats for each standard deviation, at which ascent ends
SAME_MODE = 0.02  # ends that are nearer to each other are one mode
LEAST_CURVATURE = 1e-6  # eigenvalues of the Hessian are taken as at least so large


@dataclass(frozen=True, eq=False)
class Modes:
    """Local maxima of a density, the highest first.

    Attributes
    ----------
    value : array or frame, (k, d)
        Places, in the units of the data.
    log_density : (k,) array
        Log density there.
    share : (k,) array
        Share of the probability from which ascent leads to each mode.
    standard_error : (k,) array
        Of the shares; of draws that all lead to one mode, one over their effective number.
    method : str
        "ascent".
    """

    value: Any
    log_density: Array
    share: Array
    standard_error: Array
    method: str = "ascent"

    def __len__(self) -> int:
        return len(self.share)


def find_local_modes(model: TiltedDensity, min_share: float, seed: int) -> Modes:
    """All local modes to which at least a share of the probability leads."""
    rng = np.random.default_rng(seed)
    u, weights = model.integrator.weighted_draws(16 * MODE_DRAWS, seed)
    u = u[rng.choice(len(u), MODE_DRAWS, p=weights / weights.sum())]
    gaussian = whitening_gaussian(model.base)

    def evaluate(w: Array) -> tuple[Array, Array]:
        x = gaussian.unwhiten(w)
        value, slope = model.tilt.gradient(x, model.threads)
        total = value + model.base.log_density_at(x) + model.scaling.log_slope_at(x)
        total[~np.isfinite(total)] = -np.inf
        slope = slope + model.base.score_at(x) + model.scaling.log_slope_score(x)
        return total, slope @ gaussian.cholesky

    w, top = _climb(evaluate, gaussian.whiten(u))
    domain = domain_of(model.base)
    x = domain.wrap(gaussian.unwhiten(w))
    places, counts = merge_modes(x, top, gaussian, domain)
    share = counts / MODE_DRAWS
    # draws are chosen among weighted ones, which are as good as so many independent ones
    number = 1.0 / (1.0 / MODE_DRAWS + 1.0 / effective_number(weights))
    kept = np.flatnonzero(share >= min_share)
    kept = kept[np.argsort(-top[places[kept]])]
    if not len(kept):  # a rippled density of many columns has more modes than draws
        kept = np.array([int(np.argmax(top[places]))])
    return Modes(
        model.table.frame(model.scaling.invert(x[places[kept]])),
        top[places[kept]] - model.log_normalizer.value, share[kept],
        np.maximum(np.sqrt(share[kept] * (1.0 - share[kept]) / number), 1.0 / number),
    )  # fmt: skip


def _climb(evaluate: Any, w: Array) -> tuple[Array, Array]:
    """Places and log densities after Newton ascent; every start has a trust radius of its own.

    Negative curvature counts by its size, so that steps lead away from saddles.
    """
    top, slope = evaluate(w)
    trust = np.full(len(w), FIRST_TRUST)
    for _ in range(MODE_STEPS):
        going = np.flatnonzero((np.abs(slope).max(axis=1) > FLAT) & (trust > 1e-12))
        if not len(going):
            break
        step = _newton_step(evaluate, w[going], slope[going])
        length = np.linalg.norm(step, axis=1)
        step *= np.minimum(1.0, trust[going] / np.maximum(length, 1e-300))[:, None]
        value, gradient = evaluate(w[going] + step)
        gains = value >= top[going]
        better = going[gains]
        w[better] += step[gains]
        top[better], slope[better] = value[gains], gradient[gains]
        trust[going] *= np.where(gains, TRUST_GROWTH, TRUST_CUT)
    return w, top


def _newton_step(evaluate: Any, w: Array, slope: Array) -> Array:
    steps = HESSIAN_DIFFERENCE * np.eye(w.shape[1])
    rises = np.stack([evaluate(w + step)[1] - slope for step in steps], axis=1)
    hessians = rises / HESSIAN_DIFFERENCE
    hessians = 0.5 * (hessians + hessians.transpose(0, 2, 1))
    hessians[~np.isfinite(hessians)] = 0.0
    values, vectors = np.linalg.eigh(hessians)
    along = np.einsum("nij,ni->nj", vectors, slope) / np.maximum(np.abs(values), LEAST_CURVATURE)
    return np.asarray(np.einsum("nij,nj->ni", vectors, along))


def merge_modes(
    x: Array, top: Array, gaussian: GaussianBase, domain: Domain
) -> tuple[NDArray[np.int64], Array]:
    """Numbers of the rows that are modes, highest first, and how many rows end at each. Places on
    both sides of a seam are neighbors."""
    places: list[int] = []
    owner = np.empty(len(x), np.int64)
    turning = domain.periodic
    for k in np.argsort(-top):
        if places:
            gaps = x[places] - x[k]
            turns = np.rint(gaps[:, turning] / domain.periods[turning])
            gaps[:, turning] -= turns * domain.periods[turning]
            distances = np.linalg.norm(gaussian.whiten(gaps + gaussian.mean), axis=1)
            nearest = int(np.argmin(distances))
        if not places or distances[nearest] > SAME_MODE:
            places.append(int(k))
            nearest = len(places) - 1
        owner[k] = nearest
    return np.array(places, dtype=np.int64), np.bincount(owner, minlength=len(places)).astype(float)
