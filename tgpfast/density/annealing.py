"""Metropolis-adjusted Langevin chains that are annealed from the base to a tilted density.

The chains target exp{t tilt} base, with t raised from 0 to 1. At each rise they are resampled, so
that every mode gets its share, and then move. The mean weights of the rises multiply to an estimate
of Z (annealed importance sampling with resampling).
"""

from __future__ import annotations

import numpy as np

from ..bases.base import Base
from ..bases.gaussian import GaussianBase, whitening_gaussian
from ..bases.quasirandom import effective_share, logsumexp
from ..kernels.thread_choice import Threads
from ..validation import Array
from .exponent import PredictiveTilt, Tilt

MOVES_PER_RISE = 8  # steps of the chains after each rise of t
KEPT_SHARE = 0.9  # effective share of the chains that a rise of t leaves
LEAST_RISE = 0.005  # of t, even if fewer chains count: at most 200 rises
RISE_BISECTIONS = 40  # which find the rise to 1e-12
TARGET_ACCEPTANCE = 0.574  # the acceptance rate at which MALA mixes fastest
STEP_ADAPTATION = 0.5  # change of the log of the step size per unit of acceptance
CHAIN_GROUPS = 8  # groups of chains that never mix; their spread gives the error of log Z
LOG_Z_CHAINS = 1_024  # chains of an estimate of log Z; half for FVPD, whose gradient costs S^2


def estimate_by_annealing(
    tilt: Tilt, base: Base, threads: Threads, *, seed: int = 0
) -> tuple[float, float]:
    """An estimate of log Z and its standard error that shares no draw with other estimates."""
    n = LOG_Z_CHAINS // 2 if isinstance(tilt, PredictiveTilt) else LOG_Z_CHAINS
    rng = np.random.default_rng(seed)
    chains = AnnealedChains(tilt, base, threads, n, rng, n_groups=CHAIN_GROUPS)
    while not chains.is_annealed:
        chains.raise_inverse_temperature()
        for _ in range(MOVES_PER_RISE):
            chains.step(tune=True)
    top = float(chains.log_z.max())
    shares = np.exp(chains.log_z - top)
    mean = float(shares.mean())
    error = float(np.std(shares, ddof=1) / np.sqrt(CHAIN_GROUPS)) / mean
    return top + float(np.log(mean)), error


class AnnealedChains:
    """Parallel chains on exp{t tilt(x)} base(x), in coordinates w that whiten the base as a whole.

    Parameters
    ----------
    tilt : Tilt
    base : Base
    threads : Threads
    n : int
        Number of chains.
    rng : Generator
    n_groups : int, default 1
        Chains are resampled within their group.

    Attributes
    ----------
    w : array, (n, d)
        Whitened coordinates of the chains.
    inverse_temperature : float
        t, from 0 to 1.
    log_z : array, (n_groups,)
        Estimates of log Z, one for each group, up to the present t.
    ancestors : int array, (n,)
        The first draw that each chain descends from.
    step_size : float
    n_accepted, n_tried, n_steps : int
        Moves accepted, moves proposed, steps of all chains.
    """

    def __init__(
        self, tilt: Tilt, base: Base, threads: Threads, n: int, rng: np.random.Generator, *,
        n_groups: int = 1,
    ) -> None:  # fmt: skip
        self.tilt, self.base, self.threads, self.rng = tilt, base, threads, rng
        self.gaussian = whitening_gaussian(base)
        if self._is_gaussian:
            self.w = rng.standard_normal((n, base.dimension))
        else:
            self.w = self.gaussian.whiten(base.draw(n, rng))
        self.groups, self.log_z = np.array_split(np.arange(n), n_groups), np.zeros(n_groups)
        self.ancestors = np.arange(n)
        self.inverse_temperature, self.step_size = 0.0, 1.0 / base.dimension ** (1.0 / 6.0)
        self.n_accepted = self.n_tried = self.n_steps = 0
        self._value, self._slope, self._base_value, self._base_slope = self._evaluate(self.w)

    @property
    def _is_gaussian(self) -> bool:
        return isinstance(self.base, GaussianBase)  # then the base is -|w|^2 / 2

    @property
    def is_annealed(self) -> bool:
        """Whether the chains target the density itself."""
        return self.inverse_temperature >= 1.0

    @property
    def n_effective_ancestors(self) -> float:
        """Effective number of independent ancestors; bounds the error of mode weights."""
        return float(len(self.ancestors) ** 2 / np.square(np.bincount(self.ancestors)).sum())

    def _evaluate(self, w: Array) -> tuple[Array, Array, Array, Array]:
        """Tilt, its gradient, log density of the base, its gradient, in whitened coordinates."""
        x = self.gaussian.unwhiten(w)
        value, gradient = self.tilt.gradient(x, self.threads)
        slope = gradient @ self.gaussian.cholesky
        if self._is_gaussian:
            return value, slope, -0.5 * _squared_lengths(w), -w
        base_slope = self.base.score_at(x) @ self.gaussian.cholesky
        return value, slope, self.base.log_density_at(x), base_slope

    def raise_inverse_temperature(self) -> None:
        """Raise t as far as KEPT_SHARE of the chains still count, and resample them."""
        most = 1.0 - self.inverse_temperature
        rise = self._find_rise(most)
        self.inverse_temperature = 1.0 if rise == most else self.inverse_temperature + rise
        index = np.empty(len(self.w), dtype=np.int64)
        for k, group in enumerate(self.groups):
            log_weights = rise * self._value[group]
            self.log_z[k] += float(logsumexp(log_weights)) - np.log(len(group))
            index[group] = group[resample(log_weights, len(group), self.rng)]
        self.ancestors = self.ancestors[index]
        self.w, self._value, self._slope = self.w[index], self._value[index], self._slope[index]
        self._base_value, self._base_slope = self._base_value[index], self._base_slope[index]

    def _find_rise(self, most: float) -> float:
        rise = most
        if effective_share(rise * self._value) < KEPT_SHARE:
            low, high = 0.0, most
            for _ in range(RISE_BISECTIONS):
                rise = 0.5 * (low + high)
                if effective_share(rise * self._value) < KEPT_SHARE:
                    high = rise
                else:
                    low = rise
        return min(max(rise, LEAST_RISE), most)

    def step(self, *, tune: bool) -> None:
        """One move of every chain, w + (e^2/2) gradient + e noise, accepted by Metropolis' rule.

        tune : whether to adapt the step size e
        """
        w, e, t = self.w, self.step_size, self.inverse_temperature
        noise = self.rng.standard_normal(w.shape)
        drift = t * self._slope + self._base_slope
        proposal = w + 0.5 * e**2 * drift + e * noise
        value, slope, base_value, base_slope = self._evaluate(proposal)
        back = (w - proposal - 0.5 * e**2 * (t * slope + base_slope)) / e
        log_ratio = t * (value - self._value) + (base_value - self._base_value)
        log_ratio -= 0.5 * (_squared_lengths(back) - _squared_lengths(noise))
        accept = np.log(self.rng.uniform(size=len(w))) < log_ratio
        w[accept], self._slope[accept] = proposal[accept], slope[accept]
        self._value[accept], self._base_value[accept] = value[accept], base_value[accept]
        self._base_slope[accept] = base_slope[accept]
        self.n_steps += 1
        self.n_accepted += int(accept.sum())
        self.n_tried += len(w)
        if tune:
            change = STEP_ADAPTATION * (accept.mean() - TARGET_ACCEPTANCE)
            self.step_size *= float(np.exp(change))


def resample(log_weights: Array, n: int, rng: np.random.Generator) -> Array:
    """Indices of n draws in proportion to the weights, by systematic resampling, shuffled."""
    running = np.cumsum(np.exp(log_weights - log_weights.max()))
    places = (np.arange(n) + rng.uniform()) * (running[-1] / n)
    index = np.minimum(np.searchsorted(running, places, side="right"), len(running) - 1)
    return np.asarray(rng.permutation(index))


def _squared_lengths(rows: Array) -> Array:
    return np.einsum("ij,ij->i", rows, rows)
