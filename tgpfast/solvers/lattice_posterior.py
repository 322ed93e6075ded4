"""The posteriors of lattice features and their maxima, several on one grid at a time.

    J(theta) = sum_i w_i f(x_i) - n log Z(theta) - lam/2 sum_k |theta_k|^2 / s_k

is concave (the objective of Algorithm 1). The data enter through the sums of the waves alone. In
whitened coordinates u_k = theta_k sqrt(lam multiplicity_k / s_k) the prior is |u|^2 / 2, and minus
the Hessian is I + n C^1/2 (diag p - p p^T) C^1/2, p the density at the nodes: a product is two
FFTs.

Posteriors that share the grid, such as those of the folds of a cross-validation, run together, so
that small grids do not pay for a Python call each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.node_masses import NodeMasses, log_partition
from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..runtime.records import record
from ..validation import Array
from .conjugate_gradients import Operator, columns, conjugate_gradients, inner_products, norms
from .lattice_preconditioner import LevelPreconditioner
from .posterior import ARMIJO, LEAST_LENGTH, ROUNDING

NEWTON_STEPS, CG_STEPS = 100, 1_000  # at most; a dozen Newton steps are usual
FORCING = 0.3  # largest relative residual of a Newton direction; sqrt(gradient norm) if smaller
# a preconditioned solve that takes more is not worth its cost: the density varies too much within
# a wavelength. Smooth ones took 20 to 60 steps, plain solves 100 to 600
PRECONDITIONED_STEPS = 70


@record
class PosteriorPoint:
    """B posteriors at one u each.

    Attributes
    ----------
    u : (B, mode shape) array
        Whitened coordinates.
    value : (B,) array
        The objectives.
    log_z : (B,) array
    p : (B, grid) array
        Masses of the nodes, which sum to the share of the box.
    """

    u: Modes
    value: Array
    log_z: Array
    p: Array

    def select(self, which: Any) -> PosteriorPoint:
        """Some of the posteriors."""
        return PosteriorPoint(
            self.u[which], self.value[which], self.log_z[which], self.p[which]
        )

    def replace_by(self, which: NDArray[np.intp], other: PosteriorPoint, kept: Any) -> None:
        """Replace some of the posteriors by some of another set."""
        for name in ("u", "value", "log_z", "p"):
            getattr(self, name)[which] = getattr(other, name)[kept]


class LatticePosteriors:
    """The objectives of B sets of rows and their derivatives, on one grid.

    Parameters
    ----------
    features : LatticeFeatures
        With the kernel and bandwidth of the prior.
    sums : (B, mode shape) array
        Sums of the tapered waves over the rows.
    n : (B,) array
        Sums of weights.
    masses : B NodeMasses
        Bases on the grid.
    lam : float
        Precision of the prior.
    workers : int, default 1
        Threads of each FFT.
    """

    def __init__(
        self, features: LatticeFeatures, sums: Modes, n: Array, masses: Sequence[NodeMasses],
        lam: float, workers: int = 1,
    ) -> None:  # fmt: skip
        self.features, self.masses, self.n = features, list(masses), n
        self.taper, self.transform = masses[0].taper, features.transform(masses[0].shape, workers)
        self.to_theta = np.sqrt(features.prior_variance / (lam * features.multiplicity))
        self.from_sums = self.to_theta * features.multiplicity
        self.data = self.from_sums * sums
        self.scale = norms(self.data)
        self.scale[self.scale == 0.0] = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each axis."""
        return self.masses[0].shape

    def select(self, which: NDArray[np.intp]) -> LatticePosteriors:
        """Some of the posteriors."""
        if len(which) == len(self.n):
            return self
        part = object.__new__(LatticePosteriors)
        part.__dict__.update(self.__dict__)
        part.masses = [self.masses[k] for k in which]
        for name in ("n", "data", "scale"):
            setattr(part, name, getattr(self, name)[which])
        return part

    def whiten(self, theta: Modes) -> Modes:
        """Whitened coordinates of coefficients; zero where the prior has no variance."""
        return np.divide(
            theta, self.to_theta, out=np.zeros_like(theta), where=self.to_theta > 0.0
        )

    def at(self, u: Modes) -> PosteriorPoint:
        """The objectives at u."""
        log_z, p = self.log_partition(self.to_theta * u)
        value = inner_products(u, self.data) - self.n * log_z - 0.5 * inner_products(u, u)
        return PosteriorPoint(u, np.where(np.isfinite(log_z), value, -np.inf), log_z, p)

    def log_partition(self, theta: Modes) -> tuple[Array, Array]:
        """log Z (B,) of coefficients, and the masses of the nodes over Z (B, grid)."""
        return log_partition(self.transform.to_grid(theta), self.masses)

    def _expected(self, point: PosteriorPoint) -> Modes:
        """Whitened means of the tapered waves under the densities of a point."""
        return self.from_sums * self.transform.from_grid(point.p * self.taper)

    def gradient(self, point: PosteriorPoint) -> Modes:
        """Gradients of the objectives."""
        expected = self._expected(point)
        return self.data - point.u - columns(self.n, expected) * expected

    def curvature(self, point: PosteriorPoint) -> Operator:
        """Function v -> minus the Hessians times v."""
        expected = self._expected(point)
        scaled = columns(self.n, expected) * expected
        curvature = columns(self.n, point.p) * (point.p * np.square(self.taper))

        def product(v: Modes) -> Modes:
            values = self.transform.to_grid(self.to_theta * v)
            values *= curvature
            image = self.from_sums * self.transform.from_grid(values)
            image += v
            image -= columns(inner_products(expected, v), v) * scaled
            return image

        return product

    def preconditioner(self, u: Modes) -> Operator:
        """Function r -> about the inverse of ``curvature`` times r, for the first posterior at u.

        The grid must be ``features.grid_shape(1.0)``.
        """
        p = self.at(u[None]).p[0]
        density = float(self.n[0]) * p.size * p * np.square(self.taper)
        symbol = np.square(self.to_theta) * self.features.mean_squares
        return LevelPreconditioner(
            self.features, symbol, density, workers=self.transform.workers
        )


@record
class PosteriorMaximum:
    """The maxima of B posteriors.

    Attributes
    ----------
    point : PosteriorPoint
    theta : (B, mode shape) array
    gradient_norm : (B,) array
        Relative to the sums over the rows, before the last step.
    steps : int
        Newton steps of the slowest posterior.
    products : int
        Hessian products of all.
    preconditioning_pays : bool
        Whether the preconditioner, if there was one, served to the end.
    """

    point: PosteriorPoint
    theta: Modes
    gradient_norm: Array
    steps: int
    products: int
    preconditioning_pays: bool


def maximize_posteriors(
    posteriors: LatticePosteriors, start: Modes, *, tolerance: float = 1e-6,
    least_gain: float = 0.0, precondition: Callable[[Modes], Operator] | None = None,
) -> PosteriorMaximum:  # fmt: skip
    """The maxima, by Newton's method with a backtracking line search; its directions by
    conjugate gradients.

    Parameters
    ----------
    posteriors : LatticePosteriors
    start : (B, mode shape) array
        u to begin with.
    tolerance : float, default 1e-6
        Norm of the gradient in whitened coordinates over that of the sums over the rows.
    least_gain : float, default 0.0
        Also stop after a step that promised to gain less than this, in nats a row: for candidates
        whose scores are compared.
    precondition : callable, default None
        u of the posteriors that are left -> their preconditioner, a function of as many vectors.
    """
    now = posteriors.at(start.copy())  # whose entries are replaced one by one
    norm = np.full(len(posteriors.n), np.inf)
    left, products, steps = np.arange(len(norm)), 0, 0
    while len(left):
        some, point = posteriors.select(left), now.select(left)
        gradient = some.gradient(point)
        norm[left] = norms(gradient) / some.scale
        goes = norm[left] > tolerance
        if steps == NEWTON_STEPS or not goes.any():
            break
        if not goes.all():
            left, gradient, point = left[goes], gradient[goes], point.select(goes)
            some = posteriors.select(left)
        forcing = np.full(len(left), FORCING)
        if least_gain == 0.0:  # as close as quadratic convergence can use, no closer than needed
            forcing = np.minimum(forcing, np.sqrt(norm[left]))
            forcing = np.maximum(forcing, 0.3 * tolerance / norm[left])
        inverse = None if precondition is None else precondition(point.u)
        direction, count, pays = _solve_newton(some.curvature(point), gradient, forcing, inverse)
        precondition = precondition if pays else None
        products += count * len(left)
        steps += 1
        promised = inner_products(gradient, direction)
        stuck = _search_lines(posteriors, now, left, direction, promised)
        left = left[~stuck & (promised > 2.0 * least_gain * some.n)]
    return PosteriorMaximum(
        now, posteriors.to_theta * now.u, norm, steps, products, precondition is not None
    )


def _solve_newton(
    product: Operator, gradient: Modes, accuracy: Array, inverse: Operator | None
) -> tuple[Modes, int, bool]:
    """Newton's directions, products taken, and whether the preconditioner was worth it."""
    start, used = None, 0
    if inverse is not None:
        first = conjugate_gradients(
            product, gradient, tolerance=accuracy, max_steps=PRECONDITIONED_STEPS,
            precondition=inverse, is_rough=True, is_batch=True,
        )  # fmt: skip
        if first.residual <= accuracy[0]:
            return first.x, first.steps, True
        start, used = first.x, first.steps
    found = conjugate_gradients(
        product, gradient, tolerance=accuracy, max_steps=CG_STEPS, start=start, is_rough=True,
        is_batch=True,
    )  # fmt: skip
    return found.x, used + found.steps, False


def _search_lines(
    posteriors: LatticePosteriors, now: PosteriorPoint, which: NDArray[np.intp], direction: Modes,
    promised: Array,
) -> NDArray[np.bool_]:  # fmt: skip
    """Move ``now`` along the directions, as far as it gains; True where it does not gain."""
    length, todo = np.ones(len(which)), np.arange(len(which))
    stuck = np.zeros(len(which), bool)
    while len(todo):
        at = which[todo]
        trial = posteriors.select(at).at(
            now.u[at] + columns(length[todo], direction) * direction[todo]
        )
        needed = ARMIJO * length[todo] * promised[todo] - ROUNDING * np.abs(now.value[at])
        good = trial.value >= now.value[at] + needed
        now.replace_by(at[good], trial, good)
        length[todo] *= 0.5
        ends = length[todo] < LEAST_LENGTH
        stuck[todo[~good & ends]] = True
        todo = todo[~good & ~ends]
    return stuck
