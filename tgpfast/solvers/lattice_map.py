"""MAP with lattice features (Algorithm 1): Newton's method on grids that are refined as needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.node_masses import BaseGrids
from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes, fast_length
from ..runtime.warnings import PrecisionWarning, warn
from ..statistics.lattice_statistics import LatticeStatistics
from ..validation import positive
from .conjugate_gradients import Operator, norms
from .lattice_posterior import LatticePosteriors, PosteriorPoint, maximize_posteriors
from .problem_checks import check_pair

ROUGH_TOLERANCES = (1e-2, 1e-4)  # of the gradient, at which grids are compared on the way
GRID_REFINEMENT = {1: 2.0, 2: 1.5, 3: 1.25}  # nodes along each axis of a finer grid, as a multiple
NEGLIGIBLE = 1e-14  # of the largest prior variance: such modes move f by 1e-6 of its scale
GRID_TOLERANCE = 1e-4  # change of log Z, and of the relative gradient, on a finer grid
# of lambda: below, tilts reach 1e5 nats, and float64 has no digits left for Newton's equations
LEAST_MAP_LAM = 1e-8
MOST_NODES = {1: 2**20, 2: 2**22, 3: 2**24}  # of a grid, by dimension: a second of work a step


def solve_lattice_map(
    stats: LatticeStatistics,
    base: Base,
    lam: float,
    *,
    shape: Sequence[int] | None = None,
    start: Modes | None = None,
    tolerance: float = 1e-6,
    grid_tolerance: float | None = GRID_TOLERANCE,
    workers: int = 1,
) -> tuple[Modes, dict[str, Any]]:
    """theta of the maximum of the log posterior, and a report.

    Parameters
    ----------
    stats : LatticeStatistics
        With the kernel and the bandwidth of the prior as those of its features.
    base : Base
        In the coordinates of the lattice.
    lam : float
        Precision of the prior on f, at least 1e-8.
    shape : (d,) ints, default twice as many as the waves need
        Nodes of the first grid.
    start : array of the mode shape, default zero
        Modes to begin with, of this lattice or of another one in the same box.
    tolerance : float, default 1e-6
        Norm of the gradient in whitened coordinates over that of the sums over the rows.
    grid_tolerance : float or None, default 1e-4
        The grid is refined until log Z and the relative gradient change by less on a finer one.
        None skips this check.
    workers : int, default 1
        Threads of the FFTs.

    Returns
    -------
    theta : array of the mode shape
    report : dict
        "newton_steps", "cg_products", "gradient_norm", "objective", "shape" of the grid, "log_z",
        and "log_z_error", which is nan if it was not checked.

    References
    ----------
    Algorithm 1 of the paper, whose gradient ascent Newton's method replaces.
    """
    lam, tolerance = check_lam(lam), positive("tolerance", tolerance)
    check_pair(stats, base)
    kept = stats.corner(_modes_that_matter(stats.features))
    run = _Run(kept, lam, BaseGrids(base, kept.features), workers)
    run.begin(tuple(kept.features.grid_shape() if shape is None else shape), start)
    # a grid that is too coarse shows on the way, where solves take little
    goals = {tolerance, *(rough for rough in ROUGH_TOLERANCES if rough > tolerance)}
    for goal in sorted(goals, reverse=True):
        run.solve(goal, grid_tolerance and max(grid_tolerance, goal))
    gradient = run.objective.gradient(run.point)
    report: dict[str, Any] = {
        "newton_steps": run.n_steps, "cg_products": run.n_products,
        "gradient_norm": float(norms(gradient)[0] / run.objective.scale[0]),
        "objective": float(run.point.value[0]),
        "shape": run.objective.shape, "log_z": run.log_z, "log_z_error": run.log_z_error,
    }  # fmt: skip
    _warn_if_poor(report, tolerance, grid_tolerance)
    theta = run.objective.to_theta * run.point.u[0]
    return kept.features.resize_modes(theta, stats.features.n_modes), report


def check_lam(lam: float) -> float:
    """Lambda of MAP on a lattice.

    Raises
    ------
    ValueError
        If it is below LEAST_MAP_LAM.
    """
    if positive("lam", lam) < LEAST_MAP_LAM:
        raise ValueError(
            f"lam={lam:.6g}: expected at least {LEAST_MAP_LAM:g} for MAP on a lattice, since "
            "float64 cannot hold rougher tilts; 0.01 to 100 is usual"
        )
    return lam


class _Run:
    """One solve: the grid in use, the point reached, the work done."""

    objective: LatticePosteriors
    point: PosteriorPoint
    log_z: float

    def __init__(
        self, stats: LatticeStatistics, lam: float, grids: BaseGrids, workers: int
    ) -> None:
        self.stats, self.lam, self.grids, self.workers = stats, lam, grids, workers
        self.n_steps = self.n_products = 0
        # densities of the roughest kernel vary too much within a wavelength
        self.is_preconditioned = stats.features.kernel != "matern12"
        self.log_z_error = math.nan

    def begin(self, shape: tuple[int, ...], start: Modes | None) -> None:
        """Start at some modes on the grid of this shape."""
        f = self.stats.features
        if start is None:
            start = np.zeros(f.mode_shape, f.mode_dtype)
        elif start.shape != f.mode_shape:
            start = _resized(start, f)
        self.objective = self._on_grid(shape)
        self.point = self.objective.at(self.objective.whiten(start[None]))

    def solve(self, tolerance: float, grid_tolerance: float | None) -> None:
        """Go to the optimum, on finer and finer grids until two agree."""
        while True:
            found = maximize_posteriors(
                self.objective, self.point.u, tolerance=tolerance,
                precondition=self._precondition if self.is_preconditioned else None,
            )  # fmt: skip
            self.point, self.is_preconditioned = found.point, found.preconditioning_pays
            self.n_steps += found.steps
            self.n_products += found.products
            self.log_z = float(self.point.log_z[0])
            finer = _finer(self.objective.shape)
            if grid_tolerance is None or finer is None:
                return
            other = self._on_grid(finer)
            there = other.at(self.point.u)
            moved = norms(other.gradient(there) - self.objective.gradient(self.point))
            error = abs(float(there.log_z[0]) - self.log_z)
            self.log_z, self.log_z_error = float(there.log_z[0]), error
            if max(error, float(moved[0] / other.scale[0])) <= grid_tolerance:
                return
            self.objective, self.point = other, there

    def _on_grid(self, shape: tuple[int, ...]) -> LatticePosteriors:
        stats = self.stats
        return LatticePosteriors(
            stats.features, stats.sum_waves[None], np.array([stats.n]), [self.grids.at(shape)],
            self.lam, self.workers,
        )  # fmt: skip

    def _precondition(self, u: Modes) -> Operator:
        """Function r -> about the inverse of minus the Hessian times r."""
        inverse = self._on_grid(self.stats.features.grid_shape(1.0)).preconditioner(u[0])
        return lambda r: inverse(r[0])[None]


def _finer(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """A grid to compare with, or None where it would have too many nodes."""
    factor = GRID_REFINEMENT[len(shape)]
    finer = tuple(fast_length(math.ceil(factor * n)) for n in shape)
    return finer if math.prod(finer) <= MOST_NODES[len(finer)] else None


def _modes_that_matter(features: LatticeFeatures) -> list[int]:
    """The largest k along each axis whose prior variance is not negligible."""
    counts = []
    for axis, (m, step) in enumerate(zip(features.n_modes, features.frequency_steps, strict=True)):
        others = tuple(j for j in range(features.dimension) if j != axis)
        variance = features.prior_variance.max(axis=others)
        matter = np.abs(features.frequencies[axis][variance > NEGLIGIBLE * variance.max()])
        counts.append(min(m, max(1, round(float(matter.max()) / step))))
    return counts


def _resized(start: Modes, features: LatticeFeatures) -> Modes:
    """Modes of another lattice in the same box, as those of this one."""
    # an axis that stores k >= 0 only has m + 1 modes, the others have 2 m + 1
    counts = [
        size - 1 if stored == m + 1 else (size - 1) // 2
        for size, stored, m in zip(
            start.shape, features.mode_shape, features.n_modes, strict=True
        )
    ]
    return features.with_modes(counts).resize_modes(start, features.n_modes)


def _warn_if_poor(
    report: dict[str, Any], tolerance: float, grid_tolerance: float | None
) -> None:
    if report["gradient_norm"] > tolerance:
        warn(
            f"MAP stopped after {report['newton_steps']} steps with a gradient of "
            f"{report['gradient_norm']:.1e} times the norm of the data's sums, above "
            f"{tolerance:g}; raise lam",
            PrecisionWarning,
        )
    if grid_tolerance is not None and not report["log_z_error"] <= grid_tolerance:
        shape = " x ".join(str(n) for n in report["shape"])
        warn(
            f"the error of log Z is still {report['log_z_error']:.2g} on a grid of {shape} nodes, "
            "and a finer grid would be too large. Raise lam or the bandwidth, or use fewer modes",
            PrecisionWarning,
        )
