"""Maximum a posteriori theta of lattice features: Newton's method by FFTs on a regular grid.

    J(theta) = sum_i w_i f(x_i) - n log Z(theta) - lam/2 sum_k |theta_k|^2 / s_k

is concave (the objective of Algorithm 1). The data enter through the sums of the waves alone. In
whitened coordinates theta_k = sqrt(s_k / lam) u_k minus the Hessian is
I + n C^1/2 (diag p - p p^T) C^1/2, p the density at the nodes: a product is two FFTs. Conjugate
gradients solve for the step, preconditioned where p is smooth enough (`lattice_preconditioner`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import fft

from ..bases.base import Base
from ..bases.node_masses import BaseGrids, NodeMasses
from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..runtime.warnings import PrecisionWarning, warn
from ..statistics.lattice_statistics import LatticeStatistics
from ..validation import Array, positive
from .conjugate_gradients import Operator, conjugate_gradients
from .lattice_preconditioner import LevelPreconditioner

NEWTON_STEPS, CG_STEPS = 100, 1_000
FORCING = 0.3  # largest relative residual of a Newton direction; sqrt(gradient norm) if smaller
LEAST_STEP = 1e-10  # of a line search
SUFFICIENT = 1e-4  # share of the expected gain that a step must make
ROUNDING = 1e-13  # of the objective, below which no step can be told from another
ROUGH_TOLERANCE = 1e-2  # of the gradient, at which grids are compared for the first time
REFINEMENT = {1: 2.0, 2: 1.5, 3: 1.25}  # nodes along each axis of a finer grid, as a multiple
NEGLIGIBLE = 1e-14  # of the largest prior variance: such modes move f by 1e-6 of its scale
# a preconditioned solve that takes more is not worth its cost: the density varies too much within
# a wavelength. Smooth ones took 20 to 60 steps, plain solves 100 to 600
PRECONDITIONED_STEPS = 70
GRID_TOLERANCE = 1e-4  # change of log Z, and of the relative gradient, on a finer grid
MOST_NODES = {1: 2**20, 2: 2**22, 3: 2**24}  # of a grid, by dimension: a second of work a step


def solve_lattice_map(
    stats: LatticeStatistics,
    base: Base,
    lam: float,
    *,
    shape: Sequence[int] | None = None,
    start: Modes | None = None,
    tolerance: float = 1e-6,
    least_gain: float = 0.0,
    grid_tolerance: float | None = GRID_TOLERANCE,
    grids: BaseGrids | None = None,
    workers: int = 1,
) -> tuple[Modes, dict[str, Any]]:
    """theta of the maximum of the log posterior, and a report.

    Parameters
    ----------
    stats : LatticeStatistics
        With the kernel and the bandwidth of the prior as those of its features.
    base : Base
        In the coordinates of the lattice.
    lam : float > 0
        Precision of the prior on f.
    shape : (d,) ints, default twice as many as the waves need
        Nodes of the first grid.
    start : array of the mode shape, default zero
        Modes to begin with, of this lattice or of another one in the same box.
    tolerance : float, default 1e-6
        Norm of the gradient in whitened coordinates over that of the sums over the rows.
    least_gain : float, default 0.0
        Stop also when a Newton step gains less than this, in nats a row; for settings that are only
        compared. 1e-5 takes about half of the work.
    grid_tolerance : float or None, default 1e-4
        The grid is refined until log Z and the relative gradient change by less on a finer one.
        None skips this check.
    grids : BaseGrids, optional
        The base on grids, to be used again by other solves in this box.
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
    lam, tolerance = positive("lam", lam), positive("tolerance", tolerance)
    if not stats.n > 0.0:
        raise ValueError("the statistics are of no rows")
    if base.dimension != stats.features.dimension:
        raise ValueError(
            f"base has dimension {base.dimension}, the lattice has {stats.features.dimension}"
        )
    kept = stats.corner(_modes_that_matter(stats.features))
    run = _Run(kept, lam, BaseGrids(base, kept.features) if grids is None else grids, workers)
    run.begin(tuple(kept.features.grid_shape() if shape is None else shape), start)
    # a grid that is too coarse shows early, before the optimum has put spikes between its nodes
    for goal in sorted({max(tolerance, ROUGH_TOLERANCE), tolerance}, reverse=True):
        run.solve(goal, least_gain, grid_tolerance)
    report: dict[str, Any] = {
        "newton_steps": run.n_steps, "cg_products": run.n_products,
        "gradient_norm": run.objective.gradient_norm(run.point), "objective": run.point.value,
        "shape": run.objective.shape, "log_z": run.log_z, "log_z_error": run.log_z_error,
    }  # fmt: skip
    _warn_if_poor(report, tolerance if least_gain == 0.0 else np.inf, grid_tolerance)
    theta = run.objective.theta(run.point.u)
    return kept.features.resize_modes(theta, stats.features.n_modes), report


def held_out_score(
    theta: Modes, held: LatticeStatistics, sum_log_base: float, log_z: float
) -> float:
    """Mean log density of held-out rows from their sums alone.

    Parameters
    ----------
    theta : array of the mode shape
    held : LatticeStatistics
        Of the rows held out.
    sum_log_base : float
        Sum over these rows of weight times log density of the base.
    log_z : float
        Log normalizer of the model.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.statistics.lattice_sums import accumulate_lattice
    >>> lattice = LatticeFeatures([8.0], 4, [-4.0])
    >>> held = accumulate_lattice(np.array([[0.0], [1.0]]), lattice)
    >>> held_out_score(np.zeros(lattice.mode_shape, complex), held, -3.0, 0.0)
    -1.5
    """
    tilt = held.features.inner(theta, held.sum_waves)
    return (tilt + sum_log_base) / held.n - log_z


@dataclass(frozen=True, eq=False)
class Point:
    """The objective at one point.

    Attributes
    ----------
    u : array of the mode shape
        Whitened coordinates.
    value : float
        The objective.
    log_z : float
    p : array of the grid's shape
        Masses of the nodes, which sum to the share of the box.
    """

    u: Modes
    value: float
    log_z: float
    p: Array


class GridPosterior:
    """The objective and its derivatives in whitened coordinates, on one grid.

    u_k = theta_k sqrt(lam multiplicity_k / s_k), so that the prior is |u|^2 / 2.
    """

    def __init__(
        self, stats: LatticeStatistics, masses: NodeMasses, lam: float, workers: int = 1
    ) -> None:
        self._features = f = stats.features
        self.n, self.shape, self._masses = stats.n, masses.shape, masses
        self._transform = f.transform(masses.shape, workers)
        self._to_theta = np.sqrt(f.prior_variance / (lam * f.multiplicity))
        self._from_sums = self._to_theta * f.multiplicity
        self._data = self._from_sums * stats.sum_waves
        self.scale = float(np.linalg.norm(self._data)) or 1.0

    def theta(self, u: Modes) -> Modes:
        """Coefficients of whitened coordinates."""
        return self._to_theta * u

    def whiten(self, theta: Modes) -> Modes:
        """Whitened coordinates of coefficients; zero where the prior has no variance."""
        return np.divide(
            theta, self._to_theta, out=np.zeros_like(theta), where=self._to_theta > 0.0
        )

    def at(self, u: Modes) -> Point:
        """The objective at u."""
        exponent = self._transform.to_grid(self._to_theta * u)
        exponent *= self._masses.taper
        log_z, p = self._masses.log_partition(exponent)
        value = np.vdot(u, self._data).real - self.n * log_z - 0.5 * np.vdot(u, u).real
        return Point(u, float(value) if np.isfinite(log_z) else -np.inf, log_z, p)

    def _expected_waves(self, p: Array) -> Modes:
        """Whitened mean of the features under p."""
        return self._from_sums * self._transform.from_grid(p * self._masses.taper)

    def gradient(self, point: Point) -> Modes:
        """Gradient of the objective."""
        gradient = self._data - point.u
        gradient -= self.n * self._expected_waves(point.p)
        return gradient

    def gradient_norm(self, point: Point) -> float:
        """Norm of the gradient over that of the sums over the rows."""
        return float(np.linalg.norm(self.gradient(point))) / self.scale

    def curvature(self, point: Point) -> Operator:
        """Function v -> minus the Hessian times v."""
        mean, n = self._expected_waves(point.p), self.n
        weights = n * point.p * np.square(self._masses.taper)

        def product(v: Modes) -> Modes:
            values = self._transform.to_grid(self._to_theta * v)
            values *= weights
            image = self._transform.from_grid(values)
            image = image * self._from_sums
            image += v
            image -= (n * float(np.vdot(mean, v).real)) * mean
            return image

        return product


    def preconditioner(self, point: Point) -> Operator:
        """Function r -> about the inverse of ``curvature`` times r."""
        density = self.n * point.p.size * point.p * np.square(self._masses.taper)
        symbol = np.square(self._to_theta) * self._features.mean_squares
        return LevelPreconditioner(self._features, symbol, density, workers=self._transform.workers)


class _Run:
    """One solve: the grid in use, the point reached, the work done."""

    objective: GridPosterior
    point: Point
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
        self.point = self.objective.at(self.objective.whiten(start))

    def solve(self, tolerance: float, least_gain: float, grid_tolerance: float | None) -> None:
        """Go to the optimum, on finer and finer grids until two agree."""
        while True:
            self._newton(tolerance, least_gain)
            self.log_z = self.point.log_z
            finer = _finer(self.objective.shape)
            if grid_tolerance is None or finer is None:
                return
            other = self._on_grid(finer)
            there = other.at(self.point.u)
            moved = other.gradient(there) - self.objective.gradient(self.point)
            self.log_z, self.log_z_error = there.log_z, abs(there.log_z - self.point.log_z)
            if max(self.log_z_error, float(np.linalg.norm(moved)) / other.scale) <= grid_tolerance:
                return
            self.objective, self.point = other, there

    def _on_grid(self, shape: tuple[int, ...]) -> GridPosterior:
        return GridPosterior(self.stats, self.grids.at(shape), self.lam, self.workers)

    def _direction(self, gradient: Modes, tolerance: float) -> Modes:
        """The inverse of the curvature times the gradient, to a relative residual."""
        product, x = self.objective.curvature(self.point), None
        if self.is_preconditioned:
            coarse = self._on_grid(self.stats.features.grid_shape(1.0))
            found = conjugate_gradients(
                product, gradient, tolerance=tolerance, max_steps=PRECONDITIONED_STEPS,
                precondition=coarse.preconditioner(coarse.at(self.point.u)), is_rough=True,
            )  # fmt: skip
            self.n_products += found.steps
            x = found.x
            if found.residual <= tolerance:
                return x
            self.is_preconditioned = False
        found = conjugate_gradients(
            product, gradient, tolerance=tolerance, max_steps=CG_STEPS, start=x, is_rough=True
        )
        self.n_products += found.steps
        return found.x

    def _newton(self, tolerance: float, least_gain: float) -> None:
        """Newton's method with conjugate gradients and a backtracking line search."""
        objective = self.objective
        for _ in range(NEWTON_STEPS):
            gradient = objective.gradient(self.point)
            norm = float(np.linalg.norm(gradient)) / objective.scale
            if norm <= tolerance:
                return
            # as close as quadratic convergence can use, but no closer than the goal needs
            close = FORCING if least_gain > 0.0 else min(FORCING, norm**0.5)
            direction = self._direction(gradient, max(close, 0.3 * tolerance / norm))
            slope = float(np.vdot(gradient, direction).real)
            better = _search_line(objective, self.point, direction, slope)
            if better is None:  # rounding
                return
            self.point = better
            self.n_steps += 1
            if 0.5 * slope <= least_gain * objective.n:
                return


def _search_line(
    objective: GridPosterior, point: Point, direction: Modes, slope: float
) -> Point | None:
    """The first point of a shrinking sequence that gains enough; None where none does."""
    length = 1.0
    while length >= LEAST_STEP:
        trial = objective.at(point.u + length * direction)
        gain = SUFFICIENT * length * slope - ROUNDING * abs(point.value)
        if trial.value >= point.value + gain:
            return trial
        length *= 0.5
    return None


def _finer(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """A grid to compare with, or None where it would have too many nodes."""
    by = REFINEMENT[len(shape)]
    finer = tuple(fft.next_fast_len(math.ceil(by * n), True) for n in shape)
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
    counts = [
        size - 1 if size_is_half else (size - 1) // 2
        for size, size_is_half in zip(start.shape, _is_half(features), strict=True)
    ]
    return features.with_modes(counts).resize_modes(start, features.n_modes)


def _is_half(features: LatticeFeatures) -> list[bool]:
    """Whether an axis stores k >= 0 only."""
    return [size == m + 1 for size, m in zip(features.mode_shape, features.n_modes, strict=True)]


def _warn_if_poor(
    report: dict[str, Any], tolerance: float, grid_tolerance: float | None
) -> None:
    if report["gradient_norm"] > tolerance:
        warn(
            f"MAP stopped after {report['newton_steps']} steps at a gradient of "
            f"{report['gradient_norm']:.1e} of that of the data, above {tolerance:g}; raise lam",
            PrecisionWarning,
        )
    if grid_tolerance is not None and not report["log_z_error"] <= grid_tolerance:
        shape = " x ".join(str(n) for n in report["shape"])
        warn(
            f"log Z is known to {report['log_z_error']:.2g} only on a grid of {shape} nodes, and a "
            "finer one would be too large. Raise lam or the bandwidth, or use fewer modes",
            PrecisionWarning,
        )
