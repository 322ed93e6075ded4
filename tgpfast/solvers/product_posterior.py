"""MAP by Newton's method whose directions come from conjugate gradients: no S x S Hessian.

A product with the Hessian takes the exponents of a vector at the nodes, and their weighted sum of
features: 4 flops for each feature and node, where the Hessian itself takes S. Where products have
taken as long as a Cholesky factor of the Hessian, one is made, in float32 and of some of the nodes,
which preconditions all later directions.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from .. import kernels
from ..validation import Array
from .linear_systems import cholesky_factor, shifted
from .node_posterior import NodeObjective, StoredObjective, weighted_gram
from .posterior import ProductObjective

# From so many features on Newton's method with products takes 1.4 to 18 times less time than with a
# Cholesky factor for each step; it is faster the more features and the larger lambda.
PRODUCT_FEATURES = 128
# rows over lambda up to which float32 does: with 1e7 directions are rough, with 1e8 they are wrong
PRODUCT_ROWS = 3e6
FLOAT32_NUMBERS = 2**27  # features at nodes that are held in float32, 512 MB
LEAST_DIRECTION_STEPS = 8  # of conjugate gradients, where a factor would take less time
FACTOR_NODES = 4  # nodes for each feature from which the first factor is made
# Flops of a factor, which runs from cache, that take as long as one of a product, which waits for
# memory: float32 products of 1,000 to 4,000 features by 4,096 to 16,384 nodes.
FACTOR_SPEED = 6.5
LEAST_SHIFT = 1e-6  # share of n on the diagonal of a factor, at least: above float32 rounding


class NodeProductObjective(ProductObjective):
    """The same at nodes whose features are held in float32, for products with the Hessian alone.

    ``lam`` may be changed; the features and the preconditioner are kept.

    Parameters
    ----------
    plain : NodeObjective or StoredObjective
        Gives values and gradients, in float64.
    """

    def __init__(self, plain: NodeObjective | StoredObjective) -> None:
        super().__init__(plain, plain.lam)
        self.plain, self.kind, self.n_nodes = plain, plain.kind, plain.n_nodes
        self.log_mass = plain.log_mass
        # every so many nodes are in the next factor
        self._step = max(1, self.n_nodes // (FACTOR_NODES * self.features.n_features))
        self._products = 0  # since the last factor was made

    @functools.cached_property
    def block(self) -> NDArray[Any]:
        """phi at every node, (S, n_nodes)."""
        return self.plain.phi_as(np.float32)

    def at_nodes(self, theta: Array) -> Array:
        """theta^T phi at every node."""
        return self.plain.at_nodes(theta)

    def expected(self, weights: Array) -> Array:
        """sum over nodes of weights times phi, (S,), to float32."""
        return (self.block @ weights.astype(np.float32)).astype(np.float64)

    def curve(self, v: Array, weights: Array) -> Array:
        """Cov[phi] v under the weights, to float32."""
        along = (v.astype(np.float32) @ self.block).astype(np.float64)
        along -= float(weights @ along)
        return self.expected(weights * along)

    def moments(self, log_weights: Array, *, second: bool) -> tuple[Array, Array]:
        """E[phi] in float64, and the weights themselves, which the Hessian is made of."""
        return self.plain.moments(log_weights, second=False)[0], np.exp(log_weights)

    def direction(self, mean: Array, second: Array, gradient: Array) -> Array:
        """Newton's direction; once products have taken as long as a factor, one is made."""
        with kernels.threads(*self.plain.threads.resolve(0.0)):
            if self._products >= self._factor_products():
                self._factorize(second)
            most = max(self._factor_products(), LEAST_DIRECTION_STEPS)
            direction, products = self._solve(second, gradient, most)
        self._products += products
        return direction

    def _factor_products(self) -> float:
        """Products that take as long as the next factor."""
        S = self.features.n_features
        flops = S**2 * (self.n_nodes / self._step + 2.0 * S / 3.0)  # Cholesky runs half as fast
        return flops / (4.0 * self.n_nodes * S * FACTOR_SPEED)

    def _factorize(self, weights: Array) -> None:
        """Precondition by the Hessian at some of the nodes, unless others carry all the weight; the
        next time at twice as many."""
        block, share = self.block[:, :: self._step], weights[:: self._step].astype(np.float32)
        self._products, self._step = 0, max(1, self._step // 2)
        if not share.any():
            return
        share /= share.sum()
        covariance = weighted_gram(block - (block @ share)[:, None], share)
        shift = max(self.lam, LEAST_SHIFT * self.n)
        with contextlib.suppress(np.linalg.LinAlgError):
            factor = cholesky_factor(shifted(float(self.n) * covariance, shift))
            self.precondition = lambda r: np.asarray(
                cho_solve((factor, True), r.astype(np.float32), check_finite=False), np.float64
            )


def products_pay(plain: NodeObjective | StoredObjective) -> bool:
    """Whether products take less time than a Cholesky factor for each step, and float32 does."""
    S = plain.features.n_features
    return (
        S >= PRODUCT_FEATURES and plain.n <= PRODUCT_ROWS * plain.lam
        and S * plain.n_nodes <= FLOAT32_NUMBERS
    )  # fmt: skip
