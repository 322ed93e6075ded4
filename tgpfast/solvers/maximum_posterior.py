"""Maximum a posteriori theta (the objective of Algorithm 1).

The expectation under the base is taken over fixed nodes. After the ascent a second set of nodes
checks it: a sharp tilt may hide peaks between the nodes, and then a grid is refined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..kernels.thread_choice import Threads
from ..runtime.warnings import PrecisionWarning, warn
from ..validation import Array
from .grid_posterior import GridObjective, make_posterior_grid, transforms_pay
from .node_posterior import NodeObjective, StoredNodeObjective, make_nodes
from .posterior import MAP_TOLERANCE, PosteriorObjective, maximize_by_gradient, maximize_by_newton
from .product_posterior import NodeProductObjective, products_pay

# steps at most, where the caller names no number
MAP_STEPS = {"auto": 100, "newton": 100, "gradient": 10_000}
NOTHING_LEFT = 1e15  # with lambda above this multiple of n, theta is below rounding
REFINED_GAP = 1e-6  # of log E between two grids, above which the finer one is solved on
STORED_NUMBERS = 2**24  # features at nodes that are held in memory, 128 MB
WARNED_GAP = 0.1  # of log E between two sets of nodes, above which the user is warned


def map_theta(
    stats: Any, base: Base, lam: float, *, solver: str, n_draws: int, n_steps: int | None,
    seed: int, threads: Threads, progress: bool,
) -> tuple[Array, dict[str, Any]]:  # fmt: skip
    """theta and a report: nodes, iterations, gradient norm relative to |sum phi|.

    Parameters
    ----------
    stats : Statistics or anything with its ``features``, ``n`` and ``sum_phi``
    base : Base
    lam : float
    solver : "auto", "newton" or "gradient"
        "auto" is Newton's method, by conjugate gradients where these are faster ("newton-cg").
    n_draws : int
        Draws from the base behind its expectations, where no grid serves.
    n_steps : int or None
        Iterations at most, over all grids.
    seed : int
        Of the draws.
    threads : Threads
    progress : bool

    References
    ----------
    Algorithm 1 of the paper.
    """
    theta, is_newton = np.zeros(stats.features.n_features), solver != "gradient"
    if lam > NOTHING_LEFT * stats.n:
        return theta, {
            "solver": PosteriorObjective.solver if is_newton else solver, "partition_gap": 0.0,
            "steps": 0, "gradient_norm": 0.0, "objective": 0.0, "nodes": "none", "n_nodes": 0,
        }  # fmt: skip
    objective_at = _objectives(stats, base, lam, n_draws, threads, solver)
    maximize: Any = maximize_by_newton if is_newton else maximize_by_gradient
    most_steps, finer, steps = n_steps or MAP_STEPS[solver], 1.0, 0
    objective = objective_at(seed, finer)
    while True:
        ascent = maximize(objective, theta, most_steps - steps, progress=progress)
        theta, steps, finer = ascent.theta, steps + ascent.steps, 2.0 * finer
        other = objective_at(seed + 1, finer)
        gap = abs(other.log_weights(theta)[1] - objective.log_weights(theta)[1])
        can_refine = objective.kind == other.kind != "sobol"
        if gap <= REFINED_GAP or not can_refine or steps >= most_steps:
            break
        objective = other
    report = {
        "solver": objective.solver if is_newton else solver, "partition_gap": gap, "steps": steps,
        "gradient_norm": ascent.gradient_norm, "objective": ascent.objective,
        "nodes": objective.kind, "n_nodes": objective.n_nodes,
    }  # fmt: skip
    _warn_of_ascent(report, other.n_nodes)
    return theta, report


def _objectives(
    stats: Any, base: Base, lam: float, n_draws: int, threads: Threads, solver: str
) -> Callable[[int, float], PosteriorObjective]:
    """(seed, finer) -> the objective: on a grid by transforms where that pays, else at nodes."""
    by_transforms = solver != "gradient" and transforms_pay(stats.features, base)

    def objective_at(seed: int, finer: float) -> PosteriorObjective:
        if by_transforms and isinstance(base, GaussianBase):
            grid = make_posterior_grid(stats.features, base, finer=finer)
            if grid is not None:
                return GridObjective(stats, base, lam, grid, threads)
        nodes = make_nodes(stats.features, base, n_draws, seed, finer=finer)
        is_small = stats.features.n_features * len(nodes.points) <= STORED_NUMBERS
        make = StoredNodeObjective if is_small else NodeObjective
        plain = make(stats, base, lam, nodes, threads)
        return NodeProductObjective(plain) if solver == "auto" and products_pay(plain) else plain

    return objective_at


def _warn_of_ascent(report: dict[str, Any], n_nodes: int) -> None:
    """Warn where two sets of nodes disagree, and where the ascent has not converged."""
    if report["partition_gap"] > WARNED_GAP:
        warn(
            f"log E[exp theta phi] differs by {report['partition_gap']:.2g} between two sets of "
            f"{n_nodes:,} nodes: too few nodes for so sharp a density, so theta depends on where "
            "the nodes lie. Raise n_draws, lam or gamma",
            PrecisionWarning,
        )
    if report["gradient_norm"] > MAP_TOLERANCE:
        is_newton = report["solver"] != "gradient"
        more = "; raise lam" if is_newton else '; solver="newton" converges in a few dozen steps'
        warn(
            f"MAP stopped after {report['steps']} steps with a gradient of "
            f"{report['gradient_norm']:.1e} times |sum phi|, above {MAP_TOLERANCE:g}{more}",
            PrecisionWarning,
        )
