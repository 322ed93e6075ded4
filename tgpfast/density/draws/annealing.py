"""Metropolis-adjusted Langevin chains that are annealed from the base to a tilted density.

The chains target exp{t tilt} base, with t raised from 0 to 1. At each rise they are resampled, so
that every mode gets its share, and then move. The mean weights of the rises multiply to an estimate
of Z (annealed importance sampling with resampling).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...bases.base import Base
from ...bases.gaussian import whitening_gaussian
from ...bases.quasirandom import effective_share, logsumexp
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..exponents.exponent import PredictiveTilt, Tilt

MOVES_PER_RISE = 8  # steps of the chains after each rise of t
KEPT_SHARE = 0.9  # effective share of the chains that a rise of t leaves
LEAST_RISE = 0.005  # of t, even if fewer chains count: at most 200 rises
TARGET_ACCEPTANCE = 0.574  # the acceptance rate at which MALA mixes fastest
STEP_ADAPTATION = 0.5  # change of the log of the step size per unit of acceptance
CHAIN_GROUPS = 8  # groups of chains that never mix; their spread gives the error of log Z
# Seed of the chains. Rows that a user draws with a small seed could be the first states of the
# chains: the tilt has learned from these rows, and log Z would be too large.
CHAIN_SEED = 3_000_017
LOG_Z_CHAINS = 1_024  # chains of an estimate of log Z; half for FVPD, whose gradient costs S^2


def estimate_by_annealing(
    tilt: Tilt, base: Base, threads: Threads, *, seed: int = CHAIN_SEED
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


class States(NamedTuple):
    """Places of chains, and what is known there.

    Attributes
    ----------
    w : (n, d) array
        Whitened coordinates.
    value, slope : (n,) and (n, d) array
        The tilt and its gradient.
    base_value, base_slope : (n,) and (n, d) array
        The log density of the base and its gradient.
    """

    w: Array
    value: Array
    slope: Array
    base_value: Array
    base_slope: Array


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
    states : States
        Of the chains.
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
        self.groups, self.log_z = np.array_split(np.arange(n), n_groups), np.zeros(n_groups)
        self.ancestors = np.arange(n)
        self.inverse_temperature, self.step_size = 0.0, 1.0 / base.dimension ** (1.0 / 6.0)
        self.n_accepted = self.n_tried = self.n_steps = 0
        self.states = self._evaluate(self.gaussian.whiten(base.draw(n, rng)))

    @property
    def is_annealed(self) -> bool:
        """Whether the chains target the density itself."""
        return self.inverse_temperature >= 1.0

    @property
    def n_effective_ancestors(self) -> float:
        """Effective number of independent ancestors; bounds the error of mode weights."""
        return float(len(self.ancestors) ** 2 / np.square(np.bincount(self.ancestors)).sum())

    def _evaluate(self, w: Array) -> States:
        x, root = self.gaussian.unwhiten(w), self.gaussian.cholesky
        value, gradient = self.tilt.gradient(x, self.threads)
        return States(
            w, value, gradient @ root, self.base.log_density_at(x), self.base.score_at(x) @ root
        )

    def raise_inverse_temperature(self) -> None:
        """Raise t as far as KEPT_SHARE of the chains still count, and resample them."""
        most = 1.0 - self.inverse_temperature
        rise = self._find_rise(most)
        self.inverse_temperature = 1.0 if rise == most else self.inverse_temperature + rise
        index = np.empty(len(self.ancestors), dtype=np.int64)
        for k, group in enumerate(self.groups):
            log_weights = rise * self.states.value[group]
            self.log_z[k] += float(logsumexp(log_weights)) - np.log(len(group))
            index[group] = group[resample(log_weights, len(group), self.rng)]
        self.ancestors = self.ancestors[index]
        self.states = States(*(array[index] for array in self.states))

    def _find_rise(self, most: float) -> float:
        from scipy.optimize import brentq

        def spare_share(rise: float) -> float:
            return effective_share(rise * self.states.value) - KEPT_SHARE

        rise = brentq(spare_share, 0.0, most) if spare_share(most) < 0.0 else most
        return min(max(float(rise), LEAST_RISE), most)

    def step(self, *, tune: bool) -> None:
        """One move of every chain, w + (e^2/2) gradient + e noise, accepted by Metropolis' rule.

        tune : whether to adapt the step size e
        """
        now, e, t = self.states, self.step_size, self.inverse_temperature
        noise = self.rng.standard_normal(now.w.shape)
        drift = t * now.slope + now.base_slope
        new = self._evaluate(now.w + 0.5 * e**2 * drift + e * noise)
        back = (now.w - new.w - 0.5 * e**2 * (t * new.slope + new.base_slope)) / e
        log_ratio = t * (new.value - now.value) + (new.base_value - now.base_value)
        log_ratio -= 0.5 * (_squared_lengths(back) - _squared_lengths(noise))
        accept = np.log(self.rng.uniform(size=len(noise))) < log_ratio
        for array, moved in zip(now, new, strict=True):
            array[accept] = moved[accept]
        self.n_steps += 1
        self.n_accepted += int(accept.sum())
        self.n_tried += len(noise)
        if tune:
            self.step_size *= float(np.exp(STEP_ADAPTATION * (accept.mean() - TARGET_ACCEPTANCE)))


def resample(log_weights: Array, n: int, rng: np.random.Generator) -> Array:
    """Indices of n draws in proportion to the weights, by systematic resampling, shuffled."""
    running = np.cumsum(np.exp(log_weights - log_weights.max()))
    places = (np.arange(n) + rng.uniform()) * (running[-1] / n)
    index = np.minimum(np.searchsorted(running, places, side="right"), len(running) - 1)
    return np.asarray(rng.permutation(index))


def _squared_lengths(rows: Array) -> Array:
    return np.einsum("ij,ij->i", rows, rows)
