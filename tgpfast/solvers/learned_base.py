"""The Gaussian base learned together with the tilt, from the statistics alone.

The regularised Fisher objective

    L = sum_i |grad log q(x_i)|^2 / 2 + sum_i laplacian log q(x_i) + lam |theta|^2 / 2

is jointly quadratic in theta, P = Sigma^-1 and h = P mu. Eliminating theta leaves a system of size
d (d + 3) / 2. Where its P is not positive definite, the paper's coordinate steps descend instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_continuous_lyapunov

from ..bases.gaussian import GaussianBase
from ..statistics.fisher import fd_system
from ..statistics.statistics import Statistics
from ..validation import Array, positive
from .linear_systems import factorize
from .solver import check_pair

LEAST_SHARE = 1e-8  # of the largest eigenvalue, below which P does not count as positive definite
STEPS, STOP = 200, 1e-10  # coordinate rounds at most; stop at this relative fall of the objective


def learn_base(stats: Statistics, base: GaussianBase, lam: float = 0.1) -> GaussianBase:
    """The base that, with its own theta, minimises the regularised Fisher objective.

    Parameters
    ----------
    stats : from ``accumulate``
    base : where coordinate descent starts, if it is needed
    lam : precision of the prior on theta, > 0

    Returns
    -------
    GaussianBase ; its ``report`` says how it was found ("joint" or "coordinate"), the objective,
    and every step that was refused
    """
    check_pair(stats, base)
    if not isinstance(base, GaussianBase):
        raise TypeError(f"learn_base learns a GaussianBase, and this is a {type(base).__name__}")
    lam = positive("lam", lam)
    problem = _Problem(stats, lam)
    P, h = problem.joint()
    values = np.linalg.eigvalsh(P)
    if values[0] > LEAST_SHARE * abs(values[-1]):
        mean, covariance = problem.mean_covariance(P, h)
        report: dict[str, Any] = {"method": "joint", "objective": problem.objective(P, h)}
        return GaussianBase(mean, covariance, report=report)
    return coordinate_descent(stats, base, lam, problem=problem)


def coordinate_descent(
    stats: Statistics,
    base: GaussianBase,
    lam: float,
    *,
    n_rounds: int = STEPS,
    problem: _Problem | None = None,
) -> GaussianBase:
    """The paper's steps in turn (theta; mu, Eq. mu_update; Sigma, Eq. sig_update), each accepted
    only where the objective does not rise and Sigma stays positive definite."""
    problem = problem or _Problem(stats, lam)
    P = cho_solve((base.cholesky, True), np.eye(base.dimension))
    h = P @ (base.mean - problem.centre)
    objectives, refused, converged = [problem.objective(P, h)], [], False
    for number in range(n_rounds):
        theta = problem.theta(P, h)
        new_h = P @ problem.mu_step(theta, P)
        value = problem.objective_at(theta, P, new_h)
        if value <= problem.objective_at(theta, P, h):
            h = new_h
        else:
            refused.append({"round": number, "step": "mu", "reason": "the objective would rise"})
        mu = np.linalg.solve(P, h)
        before, target = problem.objective_at(theta, P, P @ mu), problem.sigma_step(theta, mu)
        length, reasons = 1.0, dict[str, None]()
        while length > 1e-6:
            # on the way from P to the step's target the objective falls: it is convex in P
            trial = P + length * (target - P)
            values = np.linalg.eigvalsh(trial)
            if values[0] > LEAST_SHARE * values[-1] > 0.0:
                if problem.objective_at(theta, trial, trial @ mu) <= before:
                    break
                reasons["the objective would rise"] = None
            else:
                reasons["Sigma would not be positive definite"] = None
            length *= 0.5
        if length < 1.0:
            taken = length if length > 1e-6 else 0.0
            why = ", then ".join(reasons)
            refused.append({"round": number, "step": "Sigma", "reason": why, "taken": taken})
        if length > 1e-6:
            P, h = trial, trial @ mu
        objectives.append(problem.objective(P, h))
        if objectives[-2] - objectives[-1] <= STOP * abs(objectives[-1]):
            converged = True
            break
    mean, covariance = problem.mean_covariance(P, h)
    report = {
        "method": "coordinate", "objective": objectives[-1], "objectives": objectives,
        "refused": refused, "converged": converged,
    }  # fmt: skip
    return GaussianBase(mean, covariance, report=report)


def _check_rank(scatter: Array, squares: Array) -> None:
    """ValueError where the rows do not span their space: the objective has no minimum then."""
    values = np.linalg.eigvalsh(scatter)
    if not values[0] > 1e-12 * max(float(squares.max()), 0.0):
        raise ValueError(
            "the rows of these statistics do not span their space (scatter matrix with "
            f"eigenvalues from {values[0]:.2e} to {values[-1]:.2e}), so that no covariance can be "
            "learned; drop constant or dependent columns, or give more rows"
        )


class _Problem:
    """The objective in (theta, P, h), with x taken about the mean of the data (``centre``)."""

    def __init__(self, stats: Statistics, lam: float) -> None:
        if stats.n <= 0:
            raise ValueError("the statistics are of no rows")
        self.z, self.gamma = stats.features.frequencies, stats.features.bandwidth
        self.n, self.lam, d = stats.n, lam, stats.features.dimension
        shift = stats.sum_x / stats.n
        self.centre = stats.origin + shift
        self.sum_xx = stats.sum_xx - stats.n * np.outer(shift, shift)
        _check_rank(self.sum_xx, np.diag(stats.sum_xx))
        self.sum_dphi = stats.sum_dphi
        self.sum_dphi_x = stats.sum_dphi_x - np.outer(stats.sum_dphi, shift)
        self.linear = np.einsum("sk,sk->s", self.z, self.z) * stats.sum_phi / self.gamma**2
        system, _ = fd_system(stats, GaussianBase(np.zeros(d), np.eye(d)))
        self.system = system / self.gamma**2  # of theta, with lam I
        self.factor = factorize(self.system, lam)[0]
        self.pairs = [(a, b) for a in range(d) for b in range(a, d)]

    def cross(self, P: Array, h: Array) -> Array:
        """The coefficient of theta that comes from the base: (z_s^T P sum phi'_s x - z_s^T h sum
        phi'_s) / gamma, (S,)."""
        pull = np.einsum("sk,sk->s", self.z @ P, self.sum_dphi_x)
        cross: Array = (pull - (self.z @ h) * self.sum_dphi) / self.gamma
        return cross

    def theta(self, P: Array, h: Array) -> Array:
        """The theta-step (Algorithm 2)."""
        theta: Array = cho_solve((self.factor, True), self.linear + self.cross(P, h))
        return theta

    def base_part(self, P: Array, h: Array) -> float:
        """The objective at theta = 0; sums of x about their mean vanish."""
        square = 0.5 * np.einsum("ij,jk,ki->", P, self.sum_xx, P) + 0.5 * self.n * float(h @ h)
        return float(square) - self.n * float(np.trace(P))

    def objective_at(self, theta: Array, P: Array, h: Array) -> float:
        """L(theta, P, h)."""
        quadratic = 0.5 * float(theta @ (self.system @ theta)) + 0.5 * self.lam * theta @ theta
        return float(quadratic - theta @ (self.linear + self.cross(P, h)) + self.base_part(P, h))

    def objective(self, P: Array, h: Array) -> float:
        """L at the theta that minimises it."""
        return self.objective_at(self.theta(P, h), P, h)

    def joint(self) -> tuple[Array, Array]:
        """(P, h) of the joint optimum, by a Schur complement on the block of theta."""
        d, pairs = self.z.shape[1], self.pairs
        size = len(pairs) + d
        columns = np.empty((len(self.z), size))
        quadratic, right = np.zeros((size, size)), np.zeros(size)
        basis = []
        for j, (a, b) in enumerate(pairs):
            E = np.zeros((d, d))
            E[a, b] = E[b, a] = 1.0
            basis.append(E)
            columns[:, j] = self.cross(E, np.zeros(d))
            right[j] = self.n * np.trace(E)
        for k in range(d):
            columns[:, len(pairs) + k] = self.cross(np.zeros((d, d)), np.eye(d)[k])
            quadratic[len(pairs) + k, len(pairs) + k] = self.n
        flat = np.array(basis).reshape(len(pairs), -1)  # tr(E S F) is the product of E S and F
        scaled = (np.array(basis) @ self.sum_xx).reshape(len(pairs), -1)
        block = scaled @ flat.T
        quadratic[: len(pairs), : len(pairs)] = 0.5 * (block + block.T)
        solved = cho_solve((self.factor, True), np.column_stack([columns, self.linear]))
        reduced = quadratic - columns.T @ solved[:, :size]
        unknown = np.linalg.lstsq(
            0.5 * (reduced + reduced.T), right + columns.T @ solved[:, size], rcond=None
        )[0]
        P = np.zeros((d, d))
        for j, (a, b) in enumerate(pairs):
            P[a, b] = P[b, a] = unknown[j]
        return P, unknown[len(pairs) :]

    def mu_step(self, theta: Array, P: Array) -> Array:
        """Eq. mu_update, about the centre: -Sigma Z^T (theta * sum phi' / n) / gamma."""
        pull = self.z.T @ (theta * self.sum_dphi) / (self.n * self.gamma)
        return np.asarray(-np.linalg.solve(P, pull))

    def sigma_step(self, theta: Array, mu: Array) -> Array:
        """The precision that solves the Lyapunov equation of Eq. sig_update."""
        spread = self.sum_xx / self.n + np.outer(mu, mu)
        upsilon = theta[:, None] * (self.sum_dphi_x - np.outer(self.sum_dphi, mu)) / self.n
        cross = self.z.T @ upsilon
        Q = 2.0 * np.eye(len(mu)) + (cross + cross.T) / self.gamma
        P = solve_continuous_lyapunov(spread, Q)
        return 0.5 * (P + P.T)

    def mean_covariance(self, P: Array, h: Array) -> tuple[Array, Array]:
        covariance = np.linalg.inv(P)
        return self.centre + np.linalg.solve(P, h), 0.5 * (covariance + covariance.T)
