"""log Z = log E[e^tilt] under the base, with its error, all in log space.

Quadrature for a Gaussian of one or two dimensions: the trapezoidal rule in its own, whitened,
coordinates converges exponentially for these smooth integrands, and every second node gives the
error for free. Scrambled Sobol points otherwise, in independent replicates whose spread is the
error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .base import Base, GaussianBase
from .features import Array
from .normals import logsumexp
from .notices import tell
from .threads import Threads
from .tilt import PredictiveTilt, Tilt

QUADRATURE_DIMENSIONS = 2
TOLERANCE = 1e-6  # change of log Z on halving the step at which quadrature stops
REACH, REACH_MOST = 8.5, 60.0  # half the side of the grid in standard deviations, and its limit
EDGE = 1e-12  # share of the mass on the grid's edge that calls for a wider one
REPLICATES, LOG2_POINTS = 8, 14  # independent scrambles, and points in each (as a power of two)
DRAWS = REPLICATES * 2**LOG2_POINTS  # 131,072: what effective sample sizes are counted of
CLOSE = 1e-3  # error of log Z at which a quarter of the points will do for FVPD
LEAST_SAMPLE, MOST_ERROR = 100.0, 0.1  # beyond either, the normaliser is called poor

LogTilt = Callable[[Array], Array]  # rows of whitened coordinates -> exponent


@dataclass(frozen=True)
class Normalizer:
    """log Z and how far to trust it.

    value : log E[e^tilt] under the base
    standard_error : of the value; for quadrature, the change on halving the step
    effective_sample_size : how many of 131,072 draws from the base would carry the density, in
        whatever way it was integrated: 131,072 Z^2 / E[e^(2 tilt)]
    method : "quadrature" or "sobol"
    n_points : nodes or draws used
    """

    value: float
    standard_error: float
    effective_sample_size: float
    method: str
    n_points: int

    @property
    def is_poor(self) -> bool:
        """Whether too few points carry the density to trust it."""
        return self.effective_sample_size < LEAST_SAMPLE or not self.standard_error < MOST_ERROR

    @property
    def effective_share(self) -> float:
        """Effective draws for each draw from the base."""
        return self.effective_sample_size / DRAWS


def by_quadrature(base: Base) -> bool:
    """Whether integrals against this base are taken on a grid."""
    return base.dimension <= QUADRATURE_DIMENSIONS and isinstance(base, GaussianBase)


def log_normalizer(tilt: Tilt, base: Base, threads: Threads) -> Normalizer:
    """log Z; warns where its effective sample size is too low to be trusted."""
    if isinstance(base, GaussianBase) and by_quadrature(base):
        result = Grid(tilt, base, threads).normalizer
    else:
        result = by_sobol(tilt, base, threads)
    if result.is_poor:
        tell(
            f"the normaliser rests on {result.effective_sample_size:.3g} effective samples of "
            f"{DRAWS:,}: nearly all of the learned mass lies where the base has "
            "almost none, most often in artefacts far from the data, so that normalised densities "
            f"(error of log Z {result.standard_error:.2g}) and samples are not to be trusted. "
            'Raise lam (10 times, say) or gamma, or try method="fvpd" or a wider base'
        )
    return result


def log_tilt(tilt: Tilt, base: GaussianBase, threads: Threads) -> LogTilt:
    """The tilt as a function of whitened coordinates: x = mean + L w."""
    return lambda w: tilt.value(base._unwhiten(w), threads)


def effective_share(log_weights: Array) -> float:
    """(sum w)^2 / (n sum w^2) of weights given by their logarithms."""
    total, square = logsumexp(log_weights), logsumexp(2.0 * log_weights)
    return float(np.exp(2.0 * total - square) / log_weights.size)


def by_sobol(tilt: Tilt, base: Base, threads: Threads) -> Normalizer:
    """log Z by scrambled Sobol points of any base."""
    if isinstance(tilt, PredictiveTilt):  # S^2 flops a point: few, if they do
        first = _by_points(tilt, base, threads, LOG2_POINTS - 2)
        if first.standard_error < CLOSE:
            return first
    return _by_points(tilt, base, threads, LOG2_POINTS)


def _by_points(tilt: Tilt, base: Base, threads: Threads, log2_points: int) -> Normalizer:
    values = np.array(
        [tilt.value(base._sobol(log2_points, seed), threads) for seed in range(REPLICATES)]
    )
    return from_replicates(values)


def from_replicates(values: Array) -> Normalizer:
    """log Z of exponents at independent replicates of Sobol points, (replicates, points)."""
    parts = logsumexp(values, axis=1) - np.log(values.shape[1])
    value = float(logsumexp(parts) - np.log(len(parts)))
    spread = np.std(np.exp(parts - value), ddof=1) / np.sqrt(len(parts))
    sample = effective_share(values) * DRAWS
    return Normalizer(value, float(spread), sample, "sobol", values.size)


class Grid:
    """The density on a tensor grid of whitened coordinates, fine enough to integrate it.

    ``axes`` are the nodes along each coordinate, ``log_mass`` the log of density times cell volume,
    relative to the base: it sums to Z. ``rotation`` (d, d) turns the grid: w = nodes @ rotation.
    """

    def __init__(
        self,
        tilt: Tilt,
        base: GaussianBase,
        threads: Threads,
        *,
        rotation: Array | None = None,
        finer: float = 1.0,
    ) -> None:
        d = base.dimension
        self.rotation = np.eye(d) if rotation is None else rotation
        exponent = log_tilt(tilt, base, threads)
        u = tilt.features.frequencies @ base._cholesky @ self.rotation.T
        band = np.abs(u).max(axis=0) / tilt.features.bandwidth
        step = np.pi / (band + 6.0) / finer  # 6: the Gaussian's own band limit
        S = tilt.features.n_features
        most = 1e12 / S**2 if isinstance(tilt, PredictiveTilt) else 4e9 / S
        most = min(max(most, 1e5), 1.6e7)  # nodes: some seconds of work at most
        reach = REACH
        while True:
            halves = [2 * int(np.ceil(0.5 * reach / h)) for h in step]
            n_nodes = int(np.prod([2 * k + 1 for k in halves]))
            if n_nodes > most:
                step = step * (n_nodes / most) ** (1.0 / d)
                halves = [2 * int(np.ceil(0.5 * reach / h)) for h in step]
            self.axes = [h * np.arange(-k, k + 1) for h, k in zip(step, halves, strict=True)]
            self.log_mass = self._evaluate(exponent, step)
            total = float(logsumexp(self.log_mass))
            if self._edge_share(total) > EDGE and reach < REACH_MOST:
                reach *= 1.5
                continue
            coarse = self.log_mass[(slice(None, None, 2),) * d]
            error = abs(float(logsumexp(coarse) + d * np.log(2.0)) - total)
            if error < TOLERANCE or self.log_mass.size * 2**d > most:
                break
            step = 0.5 * step
        # relative to draws from the base: E[e^(2 tilt)] by the same quadrature
        gaussian = self._log_gaussian(step)
        square = float(logsumexp(2.0 * self.log_mass - gaussian))
        share = float(np.exp(min(2.0 * total - square, 0.0)))
        n_nodes = self.log_mass.size
        self.normalizer = Normalizer(total, error, share * DRAWS, "quadrature", n_nodes)

    def _evaluate(self, exponent: LogTilt, step: Array) -> Array:
        nodes = np.stack(np.meshgrid(*self.axes, indexing="ij"), axis=-1)
        shape = nodes.shape[:-1]
        values = exponent(nodes.reshape(-1, len(self.axes)) @ self.rotation).reshape(shape)
        return values + self._log_gaussian(step)

    def _log_gaussian(self, step: Array) -> Array:
        total: Array = np.zeros(())
        for axis, h in zip(self.axes, step, strict=True):
            part = -0.5 * axis**2 - 0.5 * np.log(2.0 * np.pi) + np.log(h)
            total = total[..., None] + part
        return total

    def _edge_share(self, total: float) -> float:
        share = 0.0
        for k in range(self.log_mass.ndim):
            for side in (0, -1):
                share += float(np.exp(logsumexp(np.take(self.log_mass, side, axis=k)) - total))
        return share
