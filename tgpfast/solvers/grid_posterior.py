"""The MAP objective on a quadrature grid by transforms: no S x S matrix, for many features, d <= 3.

In the base's whitened coordinates the nodes are w_m = h m. The exponent at all of them is one
type-1 transform of the S coefficients; expectations of the features are one type-2 transform of the
nodes' weights; a product with the Hessian is one of each. Newton's direction comes from conjugate
gradients on those products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..density.grids.whitened_grid import WhitenedGrid, resolving_steps
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.transforms import has_finufft, quiet_finufft
from ..validation import Array
from .posterior import ProductObjective

GRID_REACH = 8.5  # half the side of the grid, in standard deviations: 2e-17 of the mass is beyond
TRANSFORM_FEATURES = 2_000  # from here on transforms are faster than a Cholesky of the Hessian
MOST_GRID_NODES = 2**23  # 64 MB for each array over the grid
TRANSFORM_EPS = 1e-11  # relative error of a transform, far below the tolerance of the gradient


def make_posterior_grid(
    features: Features, base: GaussianBase, *, finer: float = 1.0,
    most_nodes: float = MOST_GRID_NODES,
) -> WhitenedGrid | None:  # fmt: skip
    """The grid that resolves products of two features; None where it has too many nodes.

    finer : factor by which its step is smaller
    """
    u = features.frequencies @ base.cholesky / features.bandwidth
    steps = resolving_steps(2.0 * np.abs(u).max(axis=0)) / finer
    halves = [int(np.ceil(GRID_REACH / h)) for h in steps]
    if np.prod([2.0 * k + 1.0 for k in halves]) > most_nodes:
        return None
    return WhitenedGrid(steps, halves)


def transforms_pay(features: Features, base: Base) -> bool:
    """Whether MAP of these features should go by transforms."""
    return (
        isinstance(base, GaussianBase)
        and features.n_features >= TRANSFORM_FEATURES
        and base.dimension <= 3
        and has_finufft()
        and make_posterior_grid(features, base) is not None
    )


class GridObjective(ProductObjective):
    """F and its derivatives on all nodes of a grid, by transforms."""

    kind = "quadrature by transforms"

    def __init__(
        self, sums: Any, base: GaussianBase, lam: float, grid: WhitenedGrid, threads: Threads
    ) -> None:
        super().__init__(sums, lam)
        f = self.features
        self.shape = tuple(2 * k + 1 for k in grid.halves)
        self.n_nodes = int(np.prod(self.shape))
        self.log_mass = grid.log_mass.ravel()
        frequencies = f.frequencies / f.bandwidth
        points = (frequencies @ base.cholesky) * grid.steps
        self._turn = np.sqrt(2.0 / f.n_features) * np.exp(1j * (f.phases + frequencies @ base.mean))
        self._to_nodes = _plan(1, self.shape, points, threads)
        self._to_features = _plan(2, self.shape, points, threads)

    def at_nodes(self, theta: Array) -> Array:
        """theta^T phi at every node."""
        return np.ascontiguousarray(self._to_nodes.execute(theta * self._turn).real).ravel()

    def expected(self, weights: Array) -> Array:
        """sum over nodes of weights times phi, (S,)."""
        grid = weights.reshape(self.shape).astype(np.complex128)
        return np.asarray((self._turn * self._to_features.execute(grid)).real)


def _plan(kind: int, shape: tuple[int, ...], points: Array, threads: Threads) -> Any:
    """A transform between S points (S, d), in radians, and a grid of this shape."""
    with quiet_finufft() as finufft:
        plan = finufft.Plan(
            kind, shape, 1, TRANSFORM_EPS, 1, nthreads=threads.resolve()[1], showwarn=0
        )
        plan.setpts(*(np.ascontiguousarray(column) for column in points.T))
    return plan
