"""Modes of a tilted density that draws of its base would miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...bases.base import Base
from ...bases.domain import domain_of
from ...bases.gaussian import whitening_gaussian
from ...bases.mixture import MixtureBase
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..exponents.exponent import Tilt
from .proposal import estimate_rough_log_z

# lengths are in standard deviations of the base
MODE_STARTS = 48  # starts of each kind: draws of the base, rows, points between components
START_DISTANCES = (2.0, 4.0)  # factors by which starts are moved outwards; distances along axes
ASCENT_STEPS = 40  # of every start; lengths grow where they succeed, so that far starts arrive too
FIRST_ASCENT_STEP = 0.1  # standard deviations of the base
STEP_GROWTH, STEP_CUT = 1.6, 0.3  # factors of a step after a gain and after a loss
MOST_MODES = 24  # modes that are kept
MODE_DISTANCE = 0.2  # places nearer to each other than this are one mode
HESSIAN_STEP = 1e-3  # of the differences behind a Hessian
MODE_WIDENING = 1.5  # factor of the Laplace covariance of a mode: draws should reach its edges
MODE_EXCESS = 2.0  # log of e^tilt / Z above which draws of the base under-represent a mode
LEAST_MODE_MASS = 1e-6  # share of the mass below which a mode gets no draws
LEAST_MODE_WEIGHT = 0.02  # weight of a mode at least, as a share of the largest one

LogDensity = Callable[[Array], tuple[Array, Array, Array]]  # rows -> log q, exponent, gradient


def find_modes(
    tilt: Tilt, base: Base, threads: Threads, rows: Array | None = None
) -> MixtureBase | None:
    """A mixture with a Gaussian at every mode that draws of the base miss or under-represent.

    Gradient ascent on log q from draws of the base, rows of the data, both moved outwards, points
    along the principal axes, and points between the components of a mixture.

    Parameters
    ----------
    tilt : Tilt
    base : Base
    threads : Threads
    rows : array, (n, d), default None
        Rows of the data in the model's coordinates.

    Returns
    -------
    MixtureBase or None
        None where draws of the base suffice for every mode that was found.
    """
    gaussian = whitening_gaussian(base)

    def log_q(w: Array) -> tuple[Array, Array, Array]:
        x = gaussian.unwhiten(w)
        value, slope = tilt.gradient(x, threads)
        total = value + base.log_density_at(x)
        total[~np.isfinite(total)] = -np.inf
        return total, value, (slope + base.score_at(x)) @ gaussian.cholesky

    w, top, exponent = _ascend(log_q, gaussian.whiten(_make_starts(base, rows)))
    domain = domain_of(base)
    w = gaussian.whiten(domain.wrap(gaussian.unwhiten(w)))
    level = estimate_rough_log_z(tilt, base, threads)
    kept = _select_modes(w, top, np.flatnonzero(exponent > level + MODE_EXCESS))
    if not len(kept):
        return None
    found = [_approximate_mode(lambda v: log_q(v)[2], w[k]) for k in kept]
    log_volume = float(np.log(np.diag(gaussian.cholesky)).sum())
    log_masses = np.array([
        top[k] + volume + log_volume for k, (_, volume) in zip(kept, found, strict=True)
    ])  # fmt: skip
    shares = np.exp(log_masses - max(float(log_masses.max()), level))
    worth = shares > LEAST_MODE_MASS
    if not worth.any():
        return None
    L = gaussian.cholesky
    covariances = np.array([
        L @ (MODE_WIDENING * found[k][0]) @ L.T for k in np.flatnonzero(worth)
    ])  # fmt: skip
    apart = np.logical_or.outer(domain.periodic, domain.periodic) & ~np.eye(len(L), dtype=bool)
    covariances[:, apart] = 0.0
    return MixtureBase(
        np.maximum(shares[worth], LEAST_MODE_WEIGHT * shares.max()),
        gaussian.unwhiten(w[kept[worth]]),
        0.5 * (covariances + covariances.transpose(0, 2, 1)),
    )


def _make_starts(base: Base, rows: Array | None) -> Array:
    rng = np.random.default_rng(0)
    draws = base.draw(MODE_STARTS, rng)
    some = draws[:0] if rows is None else rows[rng.permutation(len(rows))[:MODE_STARTS]]
    starts = [draws, some] + [
        base.mean + factor * (x - base.mean)
        for factor in START_DISTANCES for x in (draws[: MODE_STARTS // 2], some)
    ]  # fmt: skip
    values, vectors = np.linalg.eigh(base.covariance)
    widths = np.sqrt(np.maximum(values[::-1], 0.0))[:MODE_STARTS, None]
    axes = vectors[:, ::-1].T[:MODE_STARTS] * widths
    starts += [
        base.mean + sign * factor * axes for factor in START_DISTANCES for sign in (-1.0, 1.0)
    ]
    if isinstance(base, MixtureBase):
        starts.append(base.means[:MODE_STARTS])
        first, second = rng.integers(base.n_components, size=(2, MODE_STARTS))
        starts.append(0.5 * (base.means[first] + base.means[second]))
    return np.concatenate(starts)


def _ascend(log_q: LogDensity, w: Array) -> tuple[Array, Array, Array]:
    """(places, log q, exponent) after gradient ascent; every start has a step size of its own."""
    top, exponent, slope = log_q(w)
    size = np.full(len(w), FIRST_ASCENT_STEP)
    for _ in range(ASCENT_STEPS):
        length = np.linalg.norm(slope, axis=1)
        trial = w + slope * (size / np.maximum(length, 1e-300))[:, None]
        value, trial_exponent, gradient = log_q(trial)
        gains = value > top
        w[gains], top[gains], exponent[gains] = trial[gains], value[gains], trial_exponent[gains]
        slope[gains] = gradient[gains]
        size = np.where(gains, STEP_GROWTH * size, STEP_CUT * size)
    return w, top, exponent


def _select_modes(w: Array, top: Array, candidates: NDArray[Any]) -> NDArray[np.int64]:
    """Indices of the highest candidates that are apart from each other."""
    kept: list[int] = []
    for k in candidates[np.argsort(-top[candidates])].tolist():
        is_new = all(np.linalg.norm(w[k] - w[j]) > MODE_DISTANCE for j in kept)
        if len(kept) < MOST_MODES and is_new:
            kept.append(k)
    return np.array(kept, dtype=np.int64)


def _approximate_mode(slope: Callable[[Array], Array], place: Array) -> tuple[Array, float]:
    """Covariance (d, d) of Laplace's approximation at a mode, and log of its volume.

    Eigenvalues of minus the Hessian are at least 1, those of the base as a whole.
    """
    d = len(place)
    steps = HESSIAN_STEP * np.eye(d)
    hessian = (slope(place + steps) - slope(place - steps)) / (2.0 * HESSIAN_STEP)
    values, vectors = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    values = np.maximum(np.where(np.isfinite(values), values, 1.0), 1.0)
    covariance = (vectors / values) @ vectors.T
    return covariance, 0.5 * (d * np.log(2.0 * np.pi) - float(np.log(values).sum()))
