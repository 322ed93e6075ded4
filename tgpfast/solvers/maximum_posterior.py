"""Maximum a posteriori theta (the objective of Algorithm 1). The data enter through sum phi alone.

    F(theta) = theta^T sum phi - n log E_base[exp theta^T phi] - lam |theta|^2 / 2

is concave. The expectation is over fixed nodes: a quadrature grid where one of affordable size
resolves the features (d <= 3), scrambled Sobol draws otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from ..bases.gaussian import Base, GaussianBase
from ..bases.quasirandom import logsumexp
from ..data.blocks import Blocks
from ..density.exponent import PointTilt, weighted_features
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..runtime.warnings import PrecisionWarning, warn
from ..statistics.direct import accumulate_direct
from ..validation import Array
from .grid_posterior import REACH, GridObjective, Posterior, grid_for, serves
from .linear_systems import factorize

TOLERANCE = 1e-6  # of the gradient, relative to that of sum phi
NEWTON_STEPS, GRADIENT_STEPS = 100, 10_000
NEGLIGIBLE = 1e-18  # nodes whose weight is this share of the largest are left out of a pass
QUADRATURE_DIMENSIONS = 3
ROUGH = 3e5  # times lambda: up to so many rows float32 products do for the curvature
NOTHING_LEFT = 1e15  # times n: a lambda that leaves theta below rounding
GAP, MOST_GAP = 1e-6, 0.1  # of log E between two sets of nodes: to refine a grid, to warn


def map_theta(
    stats: Any,
    base: Base,
    lam: float,
    *,
    solver: str,
    n_draws: int,
    n_steps: int | None,
    seed: int,
    threads: Threads,
    progress: bool,
) -> tuple[Array, dict[str, Any]]:
    """theta and a report: nodes, iterations, gradient norm relative to |sum phi|.

    stats : Statistics, or anything with its ``features``, ``n`` and ``sum_phi``
    """
    if lam > NOTHING_LEFT * stats.n:
        none = {"steps": 0, "gradient_norm": 0.0, "objective": 0.0, "nodes": "none", "n_nodes": 0}
        return np.zeros(stats.features.n_features), {"solver": solver, "partition_gap": 0.0, **none}
    run = _newton if solver == "newton" else _gradient
    steps = n_steps or (NEWTON_STEPS if solver == "newton" else GRADIENT_STEPS)
    theta, finer, total = np.zeros(stats.features.n_features), 1.0, 0
    by_transforms = solver == "newton" and serves(stats.features, base)

    def at(seed: int, finer: float) -> Objective | GridObjective:
        grid = None
        if by_transforms and isinstance(base, GaussianBase):
            grid = grid_for(stats.features, base, finer)
        if grid is not None and isinstance(base, GaussianBase):
            return GridObjective(stats, base, lam, threads, *grid)
        return Objective(stats, base, lam, n_draws, seed, threads, finer=finer)

    objective = at(seed, finer)
    while True:
        theta, report = run(objective, theta, steps - total, progress)
        total += report["steps"]
        # a sharp tilt may hide peaks between the nodes: look at it on others
        finer *= 2.0
        other = at(seed + 1, finer)
        gap = abs(other.log_weights(theta)[1] - objective.log_weights(theta)[1])
        refines = objective.kind == other.kind != "sobol"
        if gap <= GAP or not refines or total >= steps:
            break
        objective = other
    report.update(
        solver=solver, steps=total, nodes=objective.kind, n_nodes=objective.n_nodes,
        partition_gap=gap,
    )  # fmt: skip
    if gap > MOST_GAP:
        warn(
            f"log E[exp theta phi] differs by {gap:.2g} between two sets of {other.n_nodes:,} "
            "nodes: they are too few for so sharp a density, and the optimum follows them. Raise "
            "n_draws, lam or gamma",
            PrecisionWarning,
        )
    if report["gradient_norm"] > TOLERANCE:
        more = "" if solver == "newton" else '; solver="newton" converges in a few dozen steps'
        warn(
            f"MAP stopped after {report['steps']} steps at a gradient of "
            f"{report['gradient_norm']:.1e} of |sum phi|, above {TOLERANCE:g}{more}",
            PrecisionWarning,
        )
    return theta, report


class Objective(Posterior):
    """F and its derivatives at fixed nodes of the base."""

    def __init__(
        self,
        stats: Any,
        base: Base,
        lam: float,
        n_draws: int,
        seed: int,
        threads: Threads,
        *,
        finer: float = 1.0,
    ) -> None:
        super().__init__(stats, lam)
        self.threads, self.origin = threads, base.mean
        self.nodes, self.log_mass, self.kind = _nodes(
            stats.features, base, n_draws, seed, finer
        )
        self.n_nodes = len(self.nodes)
        # -sin(a - pi/2) = cos(a): with phases turned back by a quarter the pass that sums phi' and
        # phi' phi'^T sums phi and phi phi^T
        f = stats.features
        self._turned = Features(f.frequencies, f.phases - 0.5 * np.pi, f.bandwidth)

    def log_weights(self, theta: Array) -> tuple[Array, float]:
        """log of the nodes' shares of e^(theta phi) under the base, and log E[e^(theta phi)]."""
        terms = PointTilt(self.features, theta, self.origin).value(self.nodes, self.threads)
        terms += self.log_mass
        total = float(logsumexp(terms))
        return terms - total, total

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi] (S,) and, where asked for, E[phi phi^T] (S, S) under the weights."""
        keep = log_weights > log_weights.max() + np.log(NEGLIGIBLE)
        weights = np.exp(log_weights[keep])
        mean = weighted_features(
            self.features, self.nodes[keep], weights / weights.sum(), self.origin, self.threads
        )
        if not second:
            return mean, np.zeros((0, 0))
        module, count = self.threads.resolve()
        # the curvature only steers the steps: it may be rounded where its condition allows
        rough = self.n < ROUGH * self.lam
        sums = accumulate_direct(
            Blocks(self.nodes[keep], sample_weight=weights), self._turned, np.zeros(0),
            self.origin, gram_phi=False, precision="mixed" if rough else "float64",
            backend=module, n_threads=count,
        )  # fmt: skip
        return mean, sums.gram / sums.n

    def direction(self, mean: Array, second: Array, gradient: Array) -> Array:
        """Newton's direction, (n Cov[phi] + lam I)^-1 gradient."""
        factor, _ = factorize(self.n * (second - np.outer(mean, mean)), self.lam)
        direction: Array = cho_solve((factor, True), gradient, check_finite=False)
        return direction


def _nodes(
    features: Features, base: Base, n_draws: int, seed: int, finer: float
) -> tuple[Array, Array, str]:
    """(nodes, log weights, kind). The grid's step resolves products of a few features."""
    d = base.dimension
    if d <= QUADRATURE_DIMENSIONS and isinstance(base, GaussianBase):
        u = features.frequencies @ base.cholesky / features.bandwidth
        step = np.pi / (2.0 * np.abs(u).max(axis=0) + 6.0) / finer
        halves = [int(np.ceil(REACH / h)) for h in step]
        if np.prod([2.0 * k + 1.0 for k in halves]) <= 4 * n_draws:
            axes = [h * np.arange(-k, k + 1) for h, k in zip(step, halves, strict=True)]
            nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
            square = np.einsum("ij,ij->i", nodes, nodes)
            log_mass = -0.5 * square + float(np.log(step).sum()) - 0.5 * d * np.log(2.0 * np.pi)
            inside = square <= REACH**2  # the corners hold nothing
            return base.unwhiten(nodes[inside]), log_mass[inside], "quadrature"
    points = base.draw_sobol(int(np.ceil(np.log2(max(n_draws, 2)))), seed)[:n_draws]
    return points, np.full(len(points), -np.log(len(points))), "sobol"


def _newton(
    objective: Objective | GridObjective, theta: Array, n_steps: int, progress: bool
) -> tuple[Array, dict[str, Any]]:
    """Newton's method with a backtracking line search."""
    psi, n, lam = objective.psi, objective.n, objective.lam
    scale = float(np.linalg.norm(psi)) or 1.0
    log_weights, partition = objective.log_weights(theta)
    value, steps, norm = objective.value(theta, partition), 0, np.inf
    with Progress(progress, "Newton steps", None) as bar:
        while True:
            mean, second = objective.moments(log_weights, second=True)
            gradient = psi - n * mean - lam * theta
            norm = float(np.linalg.norm(gradient)) / scale
            if norm <= TOLERANCE or steps == n_steps:
                break
            direction = objective.direction(mean, second, gradient)
            slope, length = float(gradient @ direction), 1.0
            while True:
                trial = theta + length * direction
                trial_weights, trial_partition = objective.log_weights(trial)
                trial_value = objective.value(trial, trial_partition)
                # the last term is the rounding of F itself, below which no step can be told
                if trial_value >= value + 1e-4 * length * slope - 1e-13 * abs(value):
                    break
                length *= 0.5
                if length < 1e-10:
                    return theta, {"steps": steps, "gradient_norm": norm, "objective": value}
            theta, value, log_weights = trial, trial_value, trial_weights
            steps += 1
            bar.add(1)
    return theta, {"steps": steps, "gradient_norm": norm, "objective": value}


def _gradient(
    objective: Objective | GridObjective, theta: Array, n_steps: int, progress: bool
) -> tuple[Array, dict[str, Any]]:
    """The paper's iteration: theta <- (1 - rho lam) theta + rho (psi_1 - n psi_2).

    rho = 1 / (lam + n): the Hessian is at most lam + n E|phi|^2, and |phi|^2 is about 1.
    """
    psi, n, lam = objective.psi, objective.n, objective.lam
    scale = float(np.linalg.norm(psi)) or 1.0
    rho = 1.0 / (lam + n)
    norm, steps, value = np.inf, 0, -np.inf
    with Progress(progress, "steps", n_steps) as bar:
        while True:
            log_weights, partition = objective.log_weights(theta)
            mean, _ = objective.moments(log_weights, second=False)
            gradient = psi - n * mean - lam * theta
            norm = float(np.linalg.norm(gradient)) / scale
            value = objective.value(theta, partition)
            if norm <= TOLERANCE or steps == n_steps:
                break
            theta = theta + rho * gradient
            steps += 1
            bar.add(1)
    return theta, {"steps": steps, "gradient_norm": norm, "objective": value}
