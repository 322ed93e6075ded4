"""The MAP objective at fixed nodes: features evaluated pass by pass, or stored once.

Nodes are a quadrature grid where one of affordable size resolves the features (d <= 3), scrambled
Sobol draws otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, get_blas_funcs

from .. import kernels
from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks
from ..density.draws.proposal import QUADRATURE_DIMENSIONS
from ..density.exponents.exponent import PointTilt
from ..features.evaluation import evaluate_features, sum_features
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.direct import accumulate_direct
from ..validation import Array
from .linear_systems import cholesky_factor, shifted
from .posterior import PosteriorObjective

NEGLIGIBLE_WEIGHT = 1e-18  # nodes whose weight is this share of the largest are left out of a pass
NODES_PER_DRAW = 4  # a grid may have so many nodes for each draw that the user allows
# Rows over lambda up to which float32 products do for the curvature: it only steers the steps.
FLOAT32_ROWS = 3e5


class Nodes(NamedTuple):
    """Points, the logarithms of the base's mass at each, and their kind."""

    points: Array
    log_mass: Array
    kind: str


def make_nodes(
    features: Features, base: Base, n_draws: int, seed: int, *, finer: float = 1.0
) -> Nodes:
    """Nodes of the base: a grid whose step resolves products of a few features, or draws.

    Parameters
    ----------
    features : Features
    base : Base
    n_draws : int
        Number of draws; a grid may have NODES_PER_DRAW times as many nodes.
    seed : int
        Of the draws.
    finer : float, default 1.0
        Factor by which the step of the grid is smaller than usual.
    """
    if base.dimension <= QUADRATURE_DIMENSIONS and isinstance(base, GaussianBase):
        from .grid_posterior import GRID_REACH, make_posterior_grid

        grid = make_posterior_grid(features, base, finer=finer, most_nodes=NODES_PER_DRAW * n_draws)
        if grid is not None:
            points, log_mass = grid.nodes_within(GRID_REACH)
            return Nodes(base.unwhiten(points), log_mass, "quadrature")
    points = base.draw_sobol(int(np.ceil(np.log2(max(n_draws, 2)))), seed)[:n_draws]
    return Nodes(points, np.full(len(points), -np.log(len(points))), "sobol")


def _turn(features: Features) -> Features:
    """Features with phases turned back by a quarter: -sin(a - pi/2) = cos(a), so that a pass that
    makes phi' and sums phi' phi'^T makes phi and sums phi phi^T."""
    return Features(features.frequencies, features.phases - 0.5 * np.pi, features.bandwidth)


class NodeObjective(PosteriorObjective):
    """F and its derivatives at nodes; the features are evaluated anew in every pass."""

    def __init__(self, sums: Any, base: Base, lam: float, nodes: Nodes, threads: Threads) -> None:
        super().__init__(sums, lam)
        self.threads, self.origin = threads, base.mean
        self.nodes, self.log_mass, self.kind = nodes
        self.n_nodes = len(self.nodes)
        self._turned = _turn(self.features)

    def phi_as(self, dtype: type) -> NDArray[Any]:
        """phi at every node, (S, n_nodes), as float32 or float64."""
        phi: NDArray[Any] = np.empty((self.features.n_features, self.n_nodes), dtype)
        return evaluate_features(
            self._turned, self.nodes, origin=self.origin, threads=self.threads,
            out=(phi[:0, :0], phi),
        )[1]  # fmt: skip

    def at_nodes(self, theta: Array) -> Array:
        """theta^T phi at every node."""
        return PointTilt(self.features, theta, self.origin).value(self.nodes, self.threads)

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi] (S,) and, where asked for, E[phi phi^T] (S, S) under the weights."""
        keep = log_weights > log_weights.max() + np.log(NEGLIGIBLE_WEIGHT)
        weights = np.exp(log_weights[keep])
        mean = sum_features(
            self.features, self.nodes[keep], weights / weights.sum(), origin=self.origin,
            threads=self.threads,
        )  # fmt: skip
        if not second:
            return mean, np.zeros((0, 0))
        module, count = self.threads.resolve()
        is_rough = self.n < FLOAT32_ROWS * self.lam
        sums = accumulate_direct(
            Blocks(self.nodes[keep], sample_weight=weights), self._turned, np.zeros(0),
            self.origin, gram_phi=False, precision="mixed" if is_rough else "float64",
            backend=module, n_threads=count,
        )  # fmt: skip
        return mean, sums.gram / sums.n


class StoredObjective(PosteriorObjective):
    """F and its derivatives at few nodes whose features are held in memory.

    Parameters
    ----------
    sums : anything with ``features``, ``n`` and ``sum_phi``
    lam : float
    phi : (S, n_nodes) array
        The features at the nodes.
    log_mass : (n_nodes,) array
        Logarithm of the base's mass at each node.
    """

    kind = "stored"

    def __init__(self, sums: Any, lam: float, phi: Array, log_mass: Array) -> None:
        super().__init__(sums, lam)
        self.phi, self.log_mass, self.n_nodes = phi, log_mass, len(log_mass)
        self.threads = Threads()

    def phi_as(self, dtype: type) -> NDArray[Any]:
        """phi at every node, (S, n_nodes), as float32 or float64."""
        return self.phi.astype(dtype)

    def at_nodes(self, theta: Array) -> Array:
        """theta^T phi at every node."""
        return self.phi.T @ theta

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi] (S,) and, where asked for, E[phi phi^T] (S, S) under the weights."""
        weights = np.exp(log_weights)
        return self.phi @ weights, weighted_gram(self.phi, weights) if second else np.zeros((0, 0))

    def direction(self, mean: Array, second: Array, gradient: Array) -> Array:
        """Newton's direction; LinAlgError where rounding leaves the Hessian indefinite."""
        hessian = shifted(self.n * (second - np.outer(mean, mean)), self.lam)
        return cho_solve(
            (cholesky_factor(hessian), True), gradient, check_finite=False
        )


class StoredNodeObjective(StoredObjective):
    """The same for `Nodes`; the diagonal is raised where rounding leaves the Hessian indefinite."""

    def __init__(self, sums: Any, base: Base, lam: float, nodes: Nodes, threads: Threads) -> None:
        phi = NodeObjective(sums, base, lam, nodes, threads).phi_as(np.float64)
        super().__init__(sums, lam, phi, nodes.log_mass)
        self.kind, self.threads = nodes.kind, threads

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi] (S,) and, where asked for, E[phi phi^T] (S, S) under the weights."""
        with kernels.threads(*self.threads.resolve(0.0)):
            return super().moments(log_weights, second=second)

    direction = PosteriorObjective.direction



def weighted_gram(block: NDArray[Any], weights: NDArray[Any]) -> Array:
    """sum_i w_i b_i b_i^T over the columns of a block (S, n), in its dtype, by half the flops of a
    product."""
    half = block * np.sqrt(weights)
    (syrk,) = get_blas_funcs(("syrk",), (half,))
    upper = syrk(1.0, half.T, trans=1)
    return np.asarray(upper + np.triu(upper, 1).T)
