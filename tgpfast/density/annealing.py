"""Metropolis-adjusted Langevin chains led from the base to a tilted density by degrees.

The exponent is turned on gradually, exp{t tilt} base, t from 0 to 1. Between degrees the chains are
resampled, so that every mode gets its share, and move. The mean weights of the degrees multiply to
an estimate of Z.
"""

from __future__ import annotations

import numpy as np

from ..bases.gaussian import Base, GaussianBase
from ..bases.quasirandom import effective_share, logsumexp
from ..kernels.thread_choice import Threads
from ..validation import Array
from .exponent import PredictiveTilt, Tilt

MOVES = 8  # steps at every degree
KEEP = 0.9  # share of the chains that must count when the tilt is turned on by another degree
LEAST_RISE = 0.005  # of the degree, however few chains count then: at most 200 degrees
ACCEPTANCE = 0.574  # the acceptance rate at which MALA mixes fastest
GROUPS = 8  # of chains that never mix, whose spread is the error of log Z
CHAINS = 1_024  # of an estimate of log Z; half as many for FVPD, whose gradient costs S^2


def anneal(tilt: Tilt, base: Base, threads: Threads, *, seed: int = 0) -> tuple[float, float]:
    """An estimate of log Z and its standard error, from chains alone."""
    n = CHAINS // 2 if isinstance(tilt, PredictiveTilt) else CHAINS
    walk = Walk(tilt, base, threads, n, np.random.default_rng(seed), groups=GROUPS)
    while walk.degree < 1.0:
        walk.heat()
        for _ in range(MOVES):
            walk.step(tune=True)
    top = float(walk.log_z.max())
    shares = np.exp(walk.log_z - top)
    mean = float(shares.mean())
    error = float(np.std(shares, ddof=1) / np.sqrt(GROUPS)) / mean
    return top + float(np.log(mean)), error


class Walk:
    """Chains on exp{degree tilt(x)} base(x) in the coordinates w that whiten the base as a whole:
    x = frame.mean + L w. ``log_z`` has one estimate of log Z for each group of chains; chains are
    resampled within their group."""

    def __init__(
        self, tilt: Tilt, base: Base, threads: Threads, n: int, rng: np.random.Generator, *,
        groups: int = 1,
    ) -> None:  # fmt: skip
        self.tilt, self.base, self.threads, self.rng = tilt, base, threads, rng
        self.is_plain = isinstance(base, GaussianBase)  # then the base is -|w|^2 / 2
        self.frame = base if isinstance(base, GaussianBase) else GaussianBase(
            base.mean, base.covariance
        )
        self.w = (
            rng.standard_normal((n, base.dimension))
            if self.is_plain
            else self.frame.whiten(base.draw(n, rng))
        )
        self.groups, self.log_z = np.array_split(np.arange(n), groups), np.zeros(groups)
        self.family = np.arange(n)  # the first draw that each chain descends from
        self.degree, self.size = 0.0, 1.0 / base.dimension ** (1.0 / 6.0)
        self.accepted = self.tried = self.steps = 0
        self.value, self.slope, self.base_value, self.base_slope = self._evaluate(self.w)

    def _evaluate(self, w: Array) -> tuple[Array, Array, Array, Array]:
        """Tilt, its gradient, the base's log density, its gradient, in whitened coordinates."""
        x = self.frame.unwhiten(w)
        value, gradient = self.tilt.gradient(x, self.threads)
        slope = gradient @ self.frame.cholesky
        if self.is_plain:
            return value, slope, -0.5 * _squares(w), -w
        of_base = self.base.log_density_at(x), self.base.score_at(x) @ self.frame.cholesky
        return value, slope, *of_base

    def heat(self) -> None:
        """Raise the degree as far as KEEP of the chains still count, and resample."""
        most = 1.0 - self.degree
        rise = most
        if effective_share(rise * self.value) < KEEP:
            low, high = 0.0, most
            for _ in range(40):
                rise = 0.5 * (low + high)
                if effective_share(rise * self.value) < KEEP:
                    high = rise
                else:
                    low = rise
        rise = min(max(rise, LEAST_RISE), most)
        self.degree = 1.0 if rise == most else self.degree + rise
        index = np.empty(len(self.w), dtype=np.int64)
        for k, group in enumerate(self.groups):
            weights = rise * self.value[group]
            self.log_z[k] += float(logsumexp(weights)) - np.log(len(group))
            index[group] = group[resample(weights, len(group), self.rng)]
        self.family = self.family[index]
        self.w, self.value, self.slope = self.w[index], self.value[index], self.slope[index]
        self.base_value, self.base_slope = self.base_value[index], self.base_slope[index]

    @property
    def n_families(self) -> float:
        """Effective number of independent ancestors; bounds the error of mode weights."""
        return float(len(self.family) ** 2 / np.square(np.bincount(self.family)).sum())

    def step(self, *, tune: bool) -> None:
        """One proposal of every chain: w + (e^2/2) grad + e xi; tune : adapt the size e."""
        w, e = self.w, self.size
        noise = self.rng.standard_normal(w.shape)
        drift = self.degree * self.slope + self.base_slope
        proposal = w + 0.5 * e**2 * drift + e * noise
        value, slope, base_value, base_slope = self._evaluate(proposal)
        back = (w - proposal - 0.5 * e**2 * (self.degree * slope + base_slope)) / e
        ratio = self.degree * (value - self.value) + (base_value - self.base_value)
        ratio -= 0.5 * (_squares(back) - _squares(noise))
        accept = np.log(self.rng.uniform(size=len(w))) < ratio
        w[accept], self.slope[accept] = proposal[accept], slope[accept]
        self.value[accept], self.base_value[accept] = value[accept], base_value[accept]
        self.base_slope[accept] = base_slope[accept]
        self.steps += 1
        self.accepted, self.tried = self.accepted + int(accept.sum()), self.tried + len(w)
        if tune:
            self.size *= float(np.exp(0.5 * (accept.mean() - ACCEPTANCE)))


def resample(log_weights: Array, n: int, rng: np.random.Generator) -> Array:
    """Indices of n draws in proportion to the weights, by systematic resampling, shuffled."""
    running = np.cumsum(np.exp(log_weights - log_weights.max()))
    places = (np.arange(n) + rng.uniform()) * (running[-1] / n)
    index = np.minimum(np.searchsorted(running, places, side="right"), len(running) - 1)
    return np.asarray(rng.permutation(index))


def _squares(rows: Array) -> Array:
    squares: Array = np.einsum("ij,ij->i", rows, rows)
    return squares
