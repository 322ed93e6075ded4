"""Integrals of smooth functions over a box in one to three dimensions, and their projections."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...bases.nested_rule import panel_rule
from ...runtime.records import record
from ...validation import Array

PANEL_NODES = 16  # of a Gauss-Legendre panel
PANEL_WASTE = 1.5  # Gauss-Legendre nodes for each equispaced one that resolves as much
SLAB_NODES = 2**18  # evaluated together
LEAST_LINE = 256  # places of a projection: it has kinks where corners of the box are passed


@record
class BoxRule:
    """Nodes and weights along every axis of a box; the rule is their tensor product.

    Attributes
    ----------
    low, high : (d,) arrays
        Ends of the box.
    counts : tuple of int
        Equal steps along each axis that the rule resolves as much as.
    nodes, weights : tuple of arrays
        One for each axis.
    """

    low: Array
    high: Array
    counts: tuple[int, ...]
    nodes: tuple[Array, ...]
    weights: tuple[Array, ...]

    @classmethod
    def of_axes(
        cls, low: Array, high: Array, counts: Sequence[int], periodic: Sequence[bool]
    ) -> BoxRule:
        """A rule that resolves as much as these numbers of equal steps.

        Parameters
        ----------
        low, high : (d,) arrays
        counts : (d,) ints
        periodic : (d,) bools
            Axes at whose ends the function vanishes, or continues on the other side, smoothly. They
            get the trapezoidal rule, the others Gauss-Legendre panels.

        Returns
        -------
        BoxRule
        """
        nodes, weights = [], []
        for a, b, count, is_periodic in zip(low, high, counts, periodic, strict=True):
            if is_periodic:
                x, w = np.arange(count) / count, np.full(count, 1.0 / count)
            else:
                x, w = _panels(count)
            nodes.append(a + (b - a) * x)
            weights.append((b - a) * w)
        return cls(np.asarray(low), np.asarray(high), tuple(counts), tuple(nodes), tuple(weights))

    @property
    def dimension(self) -> int:
        """d."""
        return len(self.nodes)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return math.prod(len(x) for x in self.nodes)

    def slabs(self) -> Iterator[tuple[Array, Array]]:
        """Parts of the rule: rows (n, d) and their weights (n,)."""
        planes = max(1, SLAB_NODES // math.prod(len(x) for x in self.nodes[1:]))
        for start in range(0, len(self.nodes[0]), planes):
            part = slice(start, start + planes)
            rows = tensor_rows([self.nodes[0][part], *self.nodes[1:]])
            yield rows, tensor_weights([self.weights[0][part], *self.weights[1:]])

    def project(
        self, function: Callable[[Array], Array], direction: Array, count: int
    ) -> tuple[Array, Array]:
        """The density of x . direction, for x in the box with density ``function``.

        Along one axis x follows from the place and from the other axes. The function may jump to
        zero at the ends of the box.

        Parameters
        ----------
        function : callable
            Rows (n, d) -> (n,).
        direction : (d,) array, not zero
        count : int
            Steps along the axis that is left out.

        Returns
        -------
        places, density : (n,) arrays
        """
        v, reach = direction, np.abs(direction) * (self.high - self.low)
        axis = int(np.argmax(reach))
        turned = sorted((k for k in range(self.dimension) if k != axis and v[k]), key=reach.take)
        # the last of the axes that turn with the place is cut where x leaves the box
        inner, flat = turned[-1:], [k for k in range(self.dimension) if k != axis and not v[k]]
        outer = turned[:-1] + flat
        panels = {k: self._panels_along(k) for k in turned}
        pairs = [panels.get(k, (self.nodes[k], self.weights[k])) for k in outer]
        nodes, weights = tensor_rows([x for x, _ in pairs]), tensor_weights([w for _, w in pairs])
        t, w = _panels(self.counts[inner[0]]) if inner else (np.zeros(1), np.ones(1))
        ends = np.array([v * self.low, v * self.high])
        first, last = float(ends.min(axis=0).sum()), float(ends.max(axis=0).sum())
        places = np.linspace(first, last, int((last - first) / reach[axis] * count) + LEAST_LINE)
        density, rows = np.empty(len(places)), max(1, SLAB_NODES // (len(nodes) * len(t)))
        for start in range(0, len(places), rows):
            part = slice(start, start + rows)
            left = (places[part, None] - nodes @ v[outer])[:, :, None]  # for the two that remain
            x = np.empty((*left.shape[:2], len(t), self.dimension))
            x[..., outer] = nodes[:, None, :]
            span = np.ones((1, 1))
            if inner:
                low, span = self._cut(inner[0], axis, v, left[:, :, 0])
                x[..., inner[0]] = low[:, :, None] + span[:, :, None] * t
                left = left - v[inner[0]] * x[..., inner[0]]
            x[..., axis] = np.clip(left / v[axis], self.low[axis], self.high[axis])
            values = function(x.reshape(-1, self.dimension)).reshape(x.shape[:3])
            density[part] = (span * (values @ w)) @ weights
        return places, density / abs(float(v[axis]))

    def _panels_along(self, axis: int) -> tuple[Array, Array]:
        x, w = _panels(self.counts[axis])
        length = self.high[axis] - self.low[axis]
        return self.low[axis] + length * x, length * w

    def _cut(self, inner: int, axis: int, v: Array, left: Array) -> tuple[Array, Array]:
        """Begin and length of the part of one axis that leaves another within the box, where the
        two products with the direction sum to ``left``."""
        ends = [(left - v[axis] * end) / v[inner] for end in (self.low[axis], self.high[axis])]
        low = np.maximum(np.minimum(*ends), self.low[inner])
        high = np.minimum(np.maximum(*ends), self.high[inner])
        return low, np.maximum(high - low, 0.0)


def tensor_rows(axes: Sequence[Array]) -> Array:
    """All combinations of coordinates, (n, d), the last axis fastest; (1, 0) without axes."""
    if not axes:
        return np.zeros((1, 0))
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def tensor_weights(weights: Sequence[Array]) -> Array:
    """Products of all combinations of weights, (n,), the last axis fastest."""
    return functools.reduce(np.multiply.outer, weights, np.ones(())).ravel()


def integrate_to(line: Array, density: Array, places: Array) -> Array:
    """Integral of a smooth function, given at the points of a line, from its first point to each
    place."""
    from scipy.interpolate import make_interp_spline

    running = make_interp_spline(line, density, k=5).antiderivative()
    return np.asarray(running(np.clip(places, line[0], line[-1])) - running(line[0]))


@functools.lru_cache(maxsize=64)
def _panels(count: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [0, 1] that resolve as much as ``count`` equal steps."""
    return panel_rule(max(1, math.ceil(PANEL_WASTE * count / PANEL_NODES)), PANEL_NODES)
