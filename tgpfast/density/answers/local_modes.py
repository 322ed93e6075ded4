"""Local modes of a density, by Newton's method from draws, and the share of draws at each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...bases.domain import Domain, domain_of
from ...bases.gaussian import GaussianBase, whitening_gaussian
from ...validation import Array
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
# An end of ascent nearer to a wall than this is on it, in deviations of the column; the density has
# no bound there if it is higher by RISE_AT_WALL nats than at so many deviations from the wall.
AT_WALL, RISE_AT_WALL = 1e-9, 1.0
BEYOND_WALL = 1e6  # coordinate of the model that a map turns into the wall itself
LEVEL_GAP = 1e-7  # nats: places of a flat density differ by less, and so do all places between them
BETWEEN = np.array([0.25, 0.5, 0.75])[:, None]  # of the way from one place to another

LogDensity = Callable[[Array], Array]  # rows of the model's coordinates -> (n,)


@dataclass(frozen=True, eq=False)
class Modes:
    """Local maxima of a density, the highest first.

    Attributes
    ----------
    value : array or frame, (k, d)
        Places, in the units of the data.
    log_density : (k,) array
        Log density there; infinite on walls towards which the density grows without bound. Other
        columns of such a place have the medians of the draws that climb to these walls.
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

    def log_q(x: Array, exponent: Array | None = None) -> Array:
        value = model.tilt.value(x, model.threads) if exponent is None else exponent
        total = value + model.base.log_density_at(x) + model.scaling.log_slope_at(x)
        return np.where(np.isfinite(total), total, -np.inf)

    def evaluate(w: Array) -> tuple[Array, Array]:
        x = gaussian.unwhiten(w)
        value, slope = model.tilt.gradient(x, model.threads)
        total = log_q(x, value)
        slope = slope + model.base.score_at(x) + model.scaling.log_slope_score(x)
        return total, slope @ gaussian.cholesky

    w, top = _climb(evaluate, gaussian.whiten(u))
    domain = domain_of(model.base)
    x = domain.wrap(gaussian.unwhiten(w))
    walls = _find_walls(model, log_q, x)
    for ends in np.unique(walls[walls.any(axis=1)], axis=0):
        same = (walls == ends).all(axis=1)
        x[same] = np.where(ends, BEYOND_WALL * ends, np.median(u[same], axis=0))
        top[same] = np.inf
    places, counts = _join_level(log_q, x, top, *merge_modes(x, top, gaussian, domain))
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


def _find_walls(model: TiltedDensity, log_q: LogDensity, u: Array) -> Array:
    """For rows (n, d) where ascent has ended: -1 or 1 in columns in which they are on a lower or an
    upper wall towards which the density grows without bound, else 0."""
    walls, mapped = np.zeros(u.shape), model.scaling.mapped_walls
    if not mapped.any():
        return walls
    deviations = np.sqrt(np.diag(model.base.covariance))
    rows, highest = model.scaling.invert(u), log_q(u)
    with np.errstate(all="ignore"):
        around = model.scaling.invert(model.base.mean + np.outer([-1.0, 1.0], deviations))
        reach = AT_WALL * (around[1] - around[0])
        for sign in (-1.0, 1.0):
            wall = model.scaling.invert(np.full((1, u.shape[1]), sign * BEYOND_WALL))[0]
            for k in np.flatnonzero(mapped & (np.abs(rows - wall) <= reach).any(axis=0)):
                away = rows.copy()
                away[:, k] = wall[k] - sign * reach[k]
                rise = highest - log_q(model.scaling.apply(away))
                is_near = np.abs(rows[:, k] - wall[k]) <= reach[k]
                walls[is_near & (rise > RISE_AT_WALL), k] = sign
    return walls


def _join_level(
    log_q: LogDensity, x: Array, top: Array, places: NDArray[np.int64], counts: Array
) -> tuple[NDArray[np.int64], Array]:
    """The modes, highest first, without those to which the density is level from one before them:
    places of a flat density are one mode."""
    kept: list[int] = []
    counts = counts.copy()
    for j, k in enumerate(places):
        for i in kept:
            if not top[places[i]] - top[k] <= LEVEL_GAP:
                continue
            between = log_q(x[k] + BETWEEN * (x[places[i]] - x[k]))
            if (between >= top[k] - LEVEL_GAP).all():
                counts[i] += counts[j]
                break
        else:
            kept.append(j)
    return places[kept], counts[kept]


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
