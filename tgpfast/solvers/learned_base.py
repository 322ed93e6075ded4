"""The Gaussian base learned together with the tilt, from the statistics alone.

The regularized Fisher objective

    L = sum_i |grad log q(x_i)|^2 / 2 + sum_i laplacian log q(x_i) + lam |theta|^2 / 2

is jointly quadratic in theta, P = Sigma^-1 and h = P mu. Eliminating theta leaves a system of size
d (d + 3) / 2. Where its P is not positive definite, the paper's coordinate steps descend instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_continuous_lyapunov

from ..bases.gaussian import GaussianBase
from ..statistics.fisher import fd_system
from ..statistics.statistics import Statistics
from ..validation import Array, positive
from .linear_systems import factorize
from .problem_checks import check_pair

# Least eigenvalue over the largest, below which P does not count as positive definite.
LEAST_EIGENVALUE_SHARE = 1e-8
DESCENT_ROUNDS = 200  # of coordinate steps, at most
DESCENT_STOP = 1e-10  # relative fall of the objective in one round that ends the descent
LEAST_SIGMA_STEP = 1e-6  # share of a Sigma-step below which none of it is taken
LEAST_SCATTER = 1e-12  # least eigenvalue of the scatter, over the largest sum of squares
RISES = "the objective would rise"


def learn_base(stats: Statistics, base: GaussianBase, lam: float = 0.1) -> GaussianBase:
    """The base that, with its own theta, minimizes the regularized Fisher objective.

    Parameters
    ----------
    stats : Statistics
        From ``accumulate``.
    base : GaussianBase
        Where coordinate descent starts, if it is needed.
    lam : float, default 0.1
        Precision of the prior on theta, > 0.

    Returns
    -------
    GaussianBase
        Its ``report`` says how it was found ("joint" or "coordinate"), the objective, and every
        step that was refused.

    Raises
    ------
    TypeError
        If the base is no `GaussianBase`.
    ValueError
        If lam is not positive, or the rows of the statistics do not span their space.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(3.0, 1.0, (500, 1))
    >>> stats = tgpfast.accumulate(x, tgpfast.Features.draw(20, 1.0, np.eye(1)))
    >>> base = tgpfast.learn_base(stats, tgpfast.GaussianBase.from_data(x), lam=1.0)
    >>> base.report["method"]
    'joint'

    References
    ----------
    Eq. mu_update and Eq. sig_update of the paper, solved jointly.
    """
    check_pair(stats, base)
    if not isinstance(base, GaussianBase):
        raise TypeError(f"learn_base learns a GaussianBase, and this is a {type(base).__name__}")
    objective = JointObjective(stats, positive("lam", lam))
    P, h = objective.joint()
    if not _is_definite(P):
        return descend_by_coordinates(objective, base)
    report = {"method": "joint", "objective": objective.objective(P, h)}
    return GaussianBase(*objective.mean_covariance(P, h), report=report)


def descend_by_coordinates(
    objective: JointObjective, base: GaussianBase, *, n_rounds: int = DESCENT_ROUNDS
) -> GaussianBase:
    """The paper's steps in turn: theta; mu, Eq. mu_update; Sigma, Eq. sig_update.

    A step is accepted only where the objective does not rise and Sigma stays positive definite.
    """
    P = cho_solve((base.cholesky, True), np.eye(base.dimension))
    h = P @ (base.mean - objective.center)
    objectives, refused, converged = [objective.objective(P, h)], [], False
    for number in range(n_rounds):
        theta = objective.theta(P, h)
        for step, take in (("mu", _take_mu_step), ("Sigma", _take_sigma_step)):
            P, h, refusal = take(objective, theta, P, h)
            if refusal:
                refused.append({"round": number, "step": step, **refusal})
        objectives.append(objective.objective(P, h))
        if objectives[-2] - objectives[-1] <= DESCENT_STOP * abs(objectives[-1]):
            converged = True
            break
    report = {
        "method": "coordinate", "objective": objectives[-1], "objectives": objectives,
        "refused": refused, "converged": converged,
    }  # fmt: skip
    return GaussianBase(*objective.mean_covariance(P, h), report=report)


class Step(NamedTuple):
    """P and h after a coordinate step, and why it was refused or cut, where it was."""

    P: Array
    h: Array
    refusal: dict[str, Any] | None


def _take_mu_step(objective: JointObjective, theta: Array, P: Array, h: Array) -> Step:
    new_h = P @ objective.mu_step(theta, P)
    if objective.objective_at(theta, P, new_h) <= objective.objective_at(theta, P, h):
        return Step(P, new_h, None)
    return Step(P, h, {"reason": RISES})


def _take_sigma_step(objective: JointObjective, theta: Array, P: Array, h: Array) -> Step:
    """The whole step, or a half, a quarter, ... of the way: the objective is convex in P."""
    mu = np.asarray(np.linalg.solve(P, h), np.float64)
    before, target = objective.objective_at(theta, P, P @ mu), objective.sigma_step(theta, mu)
    length, reasons = 1.0, dict[str, None]()
    while length > LEAST_SIGMA_STEP:
        trial = P + length * (target - P)
        if not _is_definite(trial):
            reasons["Sigma would not be positive definite"] = None
        elif objective.objective_at(theta, trial, trial @ mu) > before:
            reasons[RISES] = None
        else:
            break
        length *= 0.5
    if length == 1.0:
        return Step(trial, trial @ mu, None)
    why = {"reason": ", then ".join(reasons)}
    if length > LEAST_SIGMA_STEP:
        return Step(trial, trial @ mu, why | {"taken": length})
    return Step(P, h, why | {"taken": 0.0})


def _is_definite(P: Array) -> bool:
    values = np.linalg.eigvalsh(P)
    return bool(values[0] > LEAST_EIGENVALUE_SHARE * abs(values[-1]) > 0.0)


def _check_rank(scatter: Array, squares: Array) -> None:
    """ValueError where the rows do not span their space: the objective has no minimum then."""
    values = np.linalg.eigvalsh(scatter)
    if not values[0] > LEAST_SCATTER * max(float(squares.max()), 0.0):
        raise ValueError(
            "the rows of these statistics do not span their space (scatter matrix with "
            f"eigenvalues from {values[0]:.2e} to {values[-1]:.2e}), so that no covariance can be "
            "learned; drop constant or dependent columns, or give more rows"
        )


class JointObjective:
    """The objective in (theta, P, h), with x taken about the mean of the data (``center``)."""

    def __init__(self, stats: Statistics, lam: float) -> None:
        self.z, self.gamma = stats.features.frequencies, stats.features.bandwidth
        self.n, self.lam, d = stats.n, lam, stats.features.dimension
        shift = stats.sum_x / stats.n
        self.center = stats.origin + shift
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
        return (pull - (self.z @ h) * self.sum_dphi) / self.gamma

    def theta(self, P: Array, h: Array) -> Array:
        """The theta-step (Algorithm 2)."""
        return cho_solve((self.factor, True), self.linear + self.cross(P, h))

    def objective_at(self, theta: Array, P: Array, h: Array) -> float:
        """L(theta, P, h)."""
        quadratic = 0.5 * float(theta @ (self.system @ theta)) + 0.5 * self.lam * theta @ theta
        # of the base alone; sums of x about their mean vanish
        square = 0.5 * np.einsum("ij,jk,ki->", P, self.sum_xx, P) + 0.5 * self.n * float(h @ h)
        of_base = float(square) - self.n * float(np.trace(P))
        return float(quadratic - theta @ (self.linear + self.cross(P, h)) + of_base)

    def objective(self, P: Array, h: Array) -> float:
        """L at the theta that minimizes it."""
        return self.objective_at(self.theta(P, h), P, h)

    def joint(self) -> tuple[Array, Array]:
        """(P, h) of the joint optimum, by a Schur complement on the block of theta."""
        d, pairs = self.z.shape[1], self.pairs
        basis, none = _symmetric_basis(d, pairs), np.zeros((d, d))
        columns = np.column_stack(
            [self.cross(E, np.zeros(d)) for E in basis] + [self.cross(none, e) for e in np.eye(d)]
        )
        size = len(pairs) + d
        quadratic, right = np.zeros((size, size)), np.zeros(size)
        right[: len(pairs)] = self.n * np.trace(basis, axis1=1, axis2=2)
        flat = basis.reshape(len(pairs), -1)  # tr(E S F) is the product of E S and F
        block = (basis @ self.sum_xx).reshape(len(pairs), -1) @ flat.T
        quadratic[: len(pairs), : len(pairs)] = 0.5 * (block + block.T)
        quadratic[len(pairs) :, len(pairs) :] = self.n * np.eye(d)
        solved = cho_solve((self.factor, True), np.column_stack([columns, self.linear]))
        reduced = quadratic - columns.T @ solved[:, :size]
        unknown = np.linalg.lstsq(
            0.5 * (reduced + reduced.T), right + columns.T @ solved[:, size], rcond=None
        )[0]
        return np.einsum("j,jab->ab", unknown[: len(pairs)], basis), unknown[len(pairs) :]

    def mu_step(self, theta: Array, P: Array) -> Array:
        """Eq. mu_update, about the center: -Sigma Z^T (theta * sum phi' / n) / gamma."""
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
        """Mean and covariance of the base with this P and h."""
        covariance = np.linalg.inv(P)
        return self.center + np.linalg.solve(P, h), 0.5 * (covariance + covariance.T)


def _symmetric_basis(d: int, pairs: list[tuple[int, int]]) -> Array:
    """(len(pairs), d, d): the symmetric matrices with ones at (a, b) and (b, a)."""
    basis = np.zeros((len(pairs), d, d))
    for E, (a, b) in zip(basis, pairs, strict=True):
        E[a, b] = E[b, a] = 1.0
    return basis
