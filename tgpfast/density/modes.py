"""Modes of a tilted density: where its mass may be though draws of the base never land there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..bases.gaussian import Base, GaussianBase
from ..bases.mixture import MixtureBase
from ..kernels.thread_choice import Threads
from ..validation import Array
from .exponent import Tilt
from .proposal import rough_log_z

STARTS = 48  # of each kind: draws of the base, rows of the data, points between components
PUSHES = (2.0, 4.0)  # times as far from the mean are rows pushed outwards; deviations along axes
STEPS = 40  # of ascent
FIRST_STEP = 0.1  # of ascent, in deviations of the base
MOST_MODES = 24  # kept
APART = 0.2  # deviations of the base between modes that count as two
HESSIAN_STEP = 1e-3  # of the differences behind a Hessian, in deviations of the base
WIDER = 1.5  # times its Laplace covariance has the Gaussian at a mode
EXCESS = 2.0  # log of tilt over Z above which draws of the base under-represent a mode
LEAST_SHARE = 1e-6  # of the mass that a mode must have to be worth draws
LEAST_WEIGHT = 0.02  # of the weightiest mode's, which every mode has

LogDensity = Callable[[Array], tuple[Array, Array, Array]]  # rows -> log q, exponent, gradient


def find_modes(
    tilt: Tilt, base: Base, threads: Threads, rows: Array | None = None
) -> MixtureBase | None:
    """A mixture with a Gaussian at every mode that draws of the base would miss or under-represent.

    Gradient ascent on log q from draws of the base, rows of the data, both pushed outwards, points
    along the principal axes, and points between the components of a mixture.

    Parameters
    ----------
    rows : (n, d) some rows of the data in the model's coordinates, if there are any

    Returns
    -------
    MixtureBase, or None where the base covers every mode that was found
    """
    frame = base if isinstance(base, GaussianBase) else GaussianBase(base.mean, base.covariance)
    starts = frame.whiten(_starts(base, rows))

    def log_q(w: Array) -> tuple[Array, Array, Array]:
        x = frame.unwhiten(w)
        value, slope = tilt.gradient(x, threads)
        total = value + base.log_density_at(x)
        total[~np.isfinite(total)] = -np.inf
        return total, value, (slope + base.score_at(x)) @ frame.cholesky

    w, top, exponent = _ascend(log_q, starts)
    level = rough_log_z(tilt, base, threads)
    under = np.flatnonzero(exponent > level + EXCESS)
    under = under[np.argsort(-top[under])]
    kept: list[int] = []
    for k in under.tolist():
        if len(kept) < MOST_MODES and all(np.linalg.norm(w[k] - w[j]) > APART for j in kept):
            kept.append(k)
    if not kept:
        return None
    covariances, log_masses = [], []
    for k in kept:
        covariance, log_volume = _laplace(lambda v: log_q(v)[2], w[k])
        covariances.append(WIDER * covariance)
        log_masses.append(top[k] + log_volume + float(np.log(np.diag(frame.cholesky)).sum()))
    mass = np.array(log_masses)
    shares = np.exp(mass - max(float(mass.max()), level))
    worth = shares > LEAST_SHARE
    if not worth.any():
        return None
    weights = np.maximum(shares[worth], LEAST_WEIGHT * shares.max())
    L = frame.cholesky
    places = [L @ c @ L.T for c, is_worth in zip(covariances, worth, strict=True) if is_worth]
    means = frame.unwhiten(w[np.array(kept)[worth]])
    return MixtureBase(weights, means, np.array([0.5 * (c + c.T) for c in places]))


def _starts(base: Base, rows: Array | None) -> Array:
    rng = np.random.default_rng(0)
    draws = base.draw(STARTS, rng)
    some = draws[:0] if rows is None else rows[rng.permutation(len(rows))[:STARTS]]
    parts = [draws, some]
    for factor in PUSHES:
        parts += [base.mean + factor * (p - base.mean) for p in (draws[: STARTS // 2], some)]
    values, vectors = np.linalg.eigh(base.covariance)
    axes = vectors[:, ::-1].T[:STARTS] * np.sqrt(np.maximum(values[::-1], 0.0))[:STARTS, None]
    parts += [base.mean + sign * factor * axes for factor in PUSHES for sign in (-1.0, 1.0)]
    if isinstance(base, MixtureBase):
        parts.append(base.means[:STARTS])
        first, second = rng.integers(base.n_components, size=(2, STARTS))
        parts.append(0.5 * (base.means[first] + base.means[second]))
    return np.concatenate(parts)


def _ascend(log_q: LogDensity, w: Array) -> tuple[Array, Array, Array]:
    """(places, log q, exponent) after ascent; every start has its own step, which grows while it
    gains and shrinks where it does not."""
    top, exponent, slope = log_q(w)
    size = np.full(len(w), FIRST_STEP)
    for _ in range(STEPS):
        length = np.linalg.norm(slope, axis=1)
        move = slope * (size / np.maximum(length, 1e-300))[:, None]
        trial = w + move
        value, of_tilt, gradient = log_q(trial)
        gains = value > top
        w[gains], top[gains], exponent[gains] = trial[gains], value[gains], of_tilt[gains]
        slope[gains] = gradient[gains]
        size = np.where(gains, 1.6 * size, 0.3 * size)
    return w, top, exponent


def _laplace(slope: Callable[[Array], Array], place: Array) -> tuple[Array, float]:
    """Covariance of the Gaussian that a mode looks like, whitened, and log of its volume.

    Eigenvalues of minus the Hessian are held above 1, the base's own as a whole.
    """
    d = len(place)
    steps = HESSIAN_STEP * np.eye(d)
    hessian = (slope(place + steps) - slope(place - steps)) / (2.0 * HESSIAN_STEP)
    values, vectors = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    values = np.maximum(np.where(np.isfinite(values), values, 1.0), 1.0)
    covariance = (vectors / values) @ vectors.T
    return covariance, 0.5 * (d * np.log(2.0 * np.pi) - float(np.log(values).sum()))
