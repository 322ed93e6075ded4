"""The MAP objective on a quadrature grid by transforms: no S x S matrix, for many features, d <= 3.

In the base's whitened coordinates the nodes are w_m = h m. The exponent at all of them is one
type-1 transform of the S coefficients; expectations of the features are one type-2 transform of the
nodes' weights; a product with the Hessian is one of each. Newton's direction comes from conjugate
gradients on those products.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np

from ..bases.gaussian import Base, GaussianBase
from ..bases.quasirandom import logsumexp
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.transforms import load_finufft
from ..validation import Array

REACH = 8.5  # half the side of the grid in standard deviations of the base
FEATURES = 2_000  # from here on transforms replace the Hessian matrix
MOST_NODES = 2**23
EPS = 1e-11
CG_STEPS = 400


def grid_for(
    features: Features, base: GaussianBase, finer: float
) -> tuple[Array, list[int]] | None:
    """(steps, half numbers of nodes) along the whitened axes; None where too many are needed."""
    u = features.frequencies @ base.cholesky / features.bandwidth
    step = np.pi / (2.0 * np.abs(u).max(axis=0) + 6.0) / finer
    halves = [int(np.ceil(REACH / h)) for h in step]
    if np.prod([2.0 * k + 1.0 for k in halves]) > MOST_NODES:
        return None
    return step, halves


def serves(features: Features, base: Base) -> bool:
    """Whether MAP of these features should go by transforms."""
    return (
        isinstance(base, GaussianBase)
        and features.n_features >= FEATURES
        and base.dimension <= 3
        and importlib.util.find_spec("finufft") is not None
        and grid_for(features, base, 1.0) is not None
    )


class Posterior:
    """F(theta) = theta^T sum phi - n log E_base[exp theta^T phi] - lam |theta|^2 / 2, but for the
    expectation, which is its children's.

    sums : anything with ``features``, ``n`` and ``sum_phi``
    """

    def __init__(self, sums: Any, lam: float) -> None:
        self.features, self.lam, self.n, self.psi = sums.features, lam, sums.n, sums.sum_phi

    def value(self, theta: Array, log_partition: float) -> float:
        """F(theta)."""
        prior = 0.5 * self.lam * float(theta @ theta)
        return float(theta @ self.psi) - self.n * log_partition - prior


class GridObjective(Posterior):
    """F and its derivatives, as `maximum_posterior.Objective`, by transforms."""

    kind = "quadrature by transforms"

    def __init__(
        self,
        sums: Any,
        base: GaussianBase,
        lam: float,
        threads: Threads,
        step: Array,
        halves: list[int],
    ) -> None:
        finufft = load_finufft()
        super().__init__(sums, lam)
        f = self.features
        self.shape = tuple(2 * k + 1 for k in halves)
        self.n_nodes = int(np.prod(self.shape))
        axes = [h * np.arange(-k, k + 1) for h, k in zip(step, halves, strict=True)]
        log_mass: Array = np.zeros(())
        for axis, h in zip(axes, step, strict=True):
            part = -0.5 * axis**2 + np.log(h) - 0.5 * np.log(2.0 * np.pi)
            log_mass = log_mass[..., None] + part
        self.log_mass = log_mass.ravel()
        frequencies = f.frequencies / f.bandwidth
        points = (frequencies @ base.cholesky) * step
        columns = [np.ascontiguousarray(points[:, k]) for k in range(points.shape[1])]
        turn = np.exp(1j * (f.phases + frequencies @ base.mean))
        self._turn = np.sqrt(2.0 / f.n_features) * turn
        _, count = threads.resolve()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._to_nodes = finufft.Plan(1, self.shape, 1, EPS, 1, nthreads=count, showwarn=0)
            self._to_nodes.setpts(*columns)
            self._to_features = finufft.Plan(2, self.shape, 1, EPS, 1, nthreads=count, showwarn=0)
            self._to_features.setpts(*columns)

    def at_nodes(self, theta: Array) -> Array:
        """theta^T phi at every node."""
        values = self._to_nodes.execute(theta * self._turn)
        return np.ascontiguousarray(values.real).ravel()

    def expected(self, weights: Array) -> Array:
        """sum over nodes of weights times phi, (S,)."""
        grid = weights.reshape(self.shape).astype(np.complex128)
        return np.asarray((self._turn * self._to_features.execute(grid)).real)

    def log_weights(self, theta: Array) -> tuple[Array, float]:
        """log of the nodes' shares of e^(theta phi) under the base, and log E[e^(theta phi)]."""
        terms = self.at_nodes(theta) + self.log_mass
        total = float(logsumexp(terms))
        return terms - total, total

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi], and the weights themselves, which the Hessian is made of."""
        weights = np.exp(log_weights)
        return self.expected(weights), weights

    def direction(self, mean: Array, weights: Array, gradient: Array) -> Array:
        """Newton's direction: (n Cov[phi] + lam I)^-1 gradient by conjugate gradients, the closer
        the smaller the gradient is."""

        def times(v: Array) -> Array:
            along = self.at_nodes(v)
            along -= float(weights @ along)
            return self.n * self.expected(weights * along) + self.lam * v

        norm = float(np.linalg.norm(gradient))
        aim = norm * min(0.1, np.sqrt(norm / (float(np.linalg.norm(self.psi)) or 1.0)))
        x, r = np.zeros_like(gradient), gradient.copy()
        p, rr = r.copy(), norm**2
        for _ in range(CG_STEPS):
            if np.sqrt(rr) <= aim:
                break
            q = times(p)
            alpha = rr / float(p @ q)
            x += alpha * p
            r -= alpha * q
            new = float(r @ r)
            p = r + (new / rr) * p
            rr = new
        return x
