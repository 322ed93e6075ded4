"""The MAP objective (Algorithm 1) and its two maximizers; where expectations come from is open.

    F(theta) = theta^T sum phi - n log E_base[exp theta^T phi] - lam |theta|^2 / 2

is concave. The data enter through n and sum phi alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from ..bases.quasirandom import logsumexp
from ..features.random import Features
from ..runtime.progress import Progress
from ..validation import Array
from .conjugate_gradients import Operator, conjugate_gradients
from .linear_systems import factorize

MAP_TOLERANCE = 1e-6  # norm of the gradient, relative to that of sum phi, that ends an ascent
ARMIJO = 1e-4  # share of the slope that a step of the line search must gain
ROUNDING = 1e-13  # relative rounding of F, within which a step cannot be judged
LEAST_LENGTH = 1e-10  # shortest step of the line search; without a gain the ascent ends
DIRECTION_STEPS = 400  # conjugate gradients for one Newton direction, at most
# Relative residual of a direction, at most; it falls with the root of the gradient, so that
# Newton's method still converges faster than linearly.
DIRECTION_RESIDUAL = 0.1


class Ascent(NamedTuple):
    """Where an ascent ended.

    gradient_norm : relative to the norm of sum phi
    """

    theta: Array
    steps: int
    gradient_norm: float
    objective: float


class PosteriorObjective:
    """F(theta) but for the expectation under the base, which subclasses take over their nodes.

    Parameters
    ----------
    sums : Statistics, FeatureMeans or anything with ``features``, ``n`` and ``sum_phi``
    lam : float
        Precision of the prior.
    """

    solver = "newton"  # as reported
    kind: str  # of the nodes, as reported
    n_nodes: int
    log_mass: Array  # log of the base's mass at every node

    def __init__(self, sums: Any, lam: float) -> None:
        self.features: Features = sums.features
        self.n: float = sums.n
        self.sum_phi: Array = sums.sum_phi
        self.lam = lam

    def value(self, theta: Array, log_partition: float) -> float:
        """F(theta), given log E[exp theta^T phi]."""
        prior = 0.5 * self.lam * float(theta @ theta)
        return float(theta @ self.sum_phi) - self.n * log_partition - prior

    def gradient(self, theta: Array, mean: Array) -> Array:
        """Gradient of F, given E[phi] under the tilted base."""
        return self.sum_phi - self.n * mean - self.lam * theta

    @property
    def scale(self) -> float:
        """Norm of sum phi, the unit of gradient norms."""
        return float(np.linalg.norm(self.sum_phi)) or 1.0

    def at_nodes(self, theta: Array) -> Array:
        """theta^T phi at every node, as a new array."""
        raise NotImplementedError

    def log_weights(self, theta: Array) -> tuple[Array, float]:
        """log of the nodes' shares of e^(theta phi) under the base, and log E[e^(theta phi)]."""
        terms = self.at_nodes(theta) + self.log_mass
        total = float(logsumexp(terms))
        return terms - total, total

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi] (S,) and, where asked for, E[phi phi^T] (S, S) under the weights."""
        raise NotImplementedError

    def direction(self, mean: Array, second: Array, gradient: Array) -> Array:
        """Newton's direction, (n Cov[phi] + lam I)^-1 gradient; more is added to the diagonal where
        rounding leaves the Hessian indefinite."""
        factor, _ = factorize(self.n * (second - np.outer(mean, mean)), self.lam)
        return cho_solve((factor, True), gradient, check_finite=False)


class ProductObjective(PosteriorObjective):
    """F, whose Hessian is known by its products."""

    solver = "newton-cg"
    precondition: Operator | None = None

    def expected(self, weights: Array) -> Array:
        """sum over nodes of weights times phi, (S,)."""
        raise NotImplementedError

    def curve(self, v: Array, weights: Array) -> Array:
        """Cov[phi] v under the weights."""
        along = self.at_nodes(v)
        along -= float(weights @ along)
        return self.expected(weights * along)

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi], and the weights themselves, which the Hessian is made of."""
        weights = np.exp(log_weights)
        return self.expected(weights), weights

    def direction(self, mean: Array, second: Array, gradient: Array) -> Array:
        """Newton's direction by conjugate gradients. second : the weights of the nodes."""
        return self._solve(second, gradient, DIRECTION_STEPS)[0]

    def _solve(self, weights: Array, gradient: Array, most_steps: float) -> tuple[Array, int]:
        """Newton's direction, and the products that it took."""
        found = conjugate_gradients(
            lambda v: self.n * self.curve(v, weights) + self.lam * v, gradient,
            tolerance=min(DIRECTION_RESIDUAL, np.sqrt(np.linalg.norm(gradient) / self.scale)),
            max_steps=int(most_steps), is_rough=True, precondition=self.precondition,
        )  # fmt: skip
        return found.x, found.steps


def maximize_by_newton(
    objective: PosteriorObjective, theta: Array, n_steps: int, *, least_gain: float = -np.inf,
    progress: bool = False,
) -> Ascent:  # fmt: skip
    """Newton's method with a backtracking line search.

    Parameters
    ----------
    objective : PosteriorObjective
    theta : (S,) array
        Where the ascent starts.
    n_steps : int
        At most.
    least_gain : float, default none
        The ascent also ends after a step that gains less than this.
    progress : bool, default False
        Show a bar on standard error.
    """
    log_weights, partition = objective.log_weights(theta)
    value, steps, norm = objective.value(theta, partition), 0, np.inf
    with Progress(progress, "Newton steps", None) as bar:
        while True:
            mean, second = objective.moments(log_weights, second=True)
            gradient = objective.gradient(theta, mean)
            norm = float(np.linalg.norm(gradient)) / objective.scale
            if norm <= MAP_TOLERANCE or steps == n_steps:
                break
            direction = objective.direction(mean, second, gradient)
            found = _search_line(objective, theta, value, direction, float(gradient @ direction))
            if found is None:
                break
            gain = found[1] - value
            theta, value, log_weights = found
            steps += 1
            bar.add(1)
            if gain < least_gain:
                break
    return Ascent(theta, steps, norm, value)


def _search_line(
    objective: PosteriorObjective, theta: Array, value: float, direction: Array, slope: float
) -> tuple[Array, float, Array] | None:
    """(theta, F, log weights) after the longest of the steps 1, 1/2, 1/4, ... that gains enough."""
    length = 1.0
    while length >= LEAST_LENGTH:
        trial = theta + length * direction
        log_weights, partition = objective.log_weights(trial)
        trial_value = objective.value(trial, partition)
        if trial_value >= value + ARMIJO * length * slope - ROUNDING * abs(value):
            return trial, trial_value, log_weights
        length *= 0.5
    return None


def maximize_by_gradient(
    objective: PosteriorObjective, theta: Array, n_steps: int, *, progress: bool = False
) -> Ascent:
    """The paper's iteration: theta <- (1 - rho lam) theta + rho (psi_1 - n psi_2).

    rho = 1 / (lam + n): the Hessian is at most lam + n E|phi|^2, and |phi|^2 is about 1.
    """
    rho = 1.0 / (objective.lam + objective.n)
    steps = 0
    with Progress(progress, "steps", n_steps) as bar:
        while True:
            log_weights, partition = objective.log_weights(theta)
            mean, _ = objective.moments(log_weights, second=False)
            gradient = objective.gradient(theta, mean)
            norm = float(np.linalg.norm(gradient)) / objective.scale
            value = objective.value(theta, partition)
            if norm <= MAP_TOLERANCE or steps == n_steps:
                return Ascent(theta, steps, norm, value)
            theta = theta + rho * gradient
            steps += 1
            bar.add(1)
