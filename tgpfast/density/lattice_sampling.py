"""Exact draws from a density with lattice features.

The density is a sum of three parts: in the box, drawn from the cells of a regular grid; beyond the
box, where it is the base, from draws of the base; and narrow components of the base, from their own
draws. Rejection corrects the first and the last to the density itself.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.gaussian import Base
from ..features.lattice import LatticeFeatures
from ..validation import Array
from .box_rule import tensor_rows
from .lattice_quadrature import LatticeQuadrature, NarrowPart
from .sampling import BATCH, Propose, _Cells, reject

CELL_NODES = {1: 2**14, 2: 2**20, 3: 2**21}  # of the grid of cells, at most
LEAST_CELLS = 16  # along an axis


@dataclass(frozen=True)
class _CellGrid:
    """A regular grid that includes both ends of every axis, as `_Cells` takes it."""

    axes: list[Array]
    step: Array
    log_mass: Array


class _BoxCells(_Cells):
    """Cells of the box, for e^f base."""

    def __init__(self, quadrature: LatticeQuadrature, base: Base) -> None:
        self.quadrature, self.base = quadrature, base
        features, d = quadrature.features, quadrature.d
        fewer = min(1.0, CELL_NODES[d] / math.prod(quadrature.counts)) ** (1.0 / d)
        counts = [max(LEAST_CELLS, int(fewer * n)) for n in quadrature.counts]
        step = features.lengths / np.array(counts)
        axes = [
            low + h * np.arange(n + 1)
            for low, h, n in zip(features.origin, step, counts, strict=True)
        ]
        values = self._log_density(tensor_rows(axes)) + float(np.log(step).sum())
        grid: Any = _CellGrid(axes, step, values.reshape([n + 1 for n in counts]))
        tilt: Any = quadrature.tilt
        super().__init__(grid, tilt, quadrature.threads)

    def _log_density(self, x: Array) -> Array:
        q = self.quadrature
        return np.asarray(q.tilt.value(x, q.threads) + self.base.log_density_at(x))

    def _weighted(self, nodes: Array, linear: Array) -> tuple[Array, Array]:
        log_weights = self._log_density(nodes) - linear
        log_weights[np.isnan(log_weights)] = -np.inf
        return nodes, log_weights


def draw_from_lattice(
    quadrature: LatticeQuadrature, n: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """n rows from a density, and the effective number of independent rows.

    Parameters
    ----------
    quadrature : LatticeQuadrature of the density
    n : int
    rng : numpy Generator

    Returns
    -------
    rows : (n, d) array, in the model's coordinates; those of periodic axes in their first period
    effective : float; below n where a draw had to be repeated
    """
    q = quadrature
    in_box = q.mass_in_box()
    shares = np.maximum([in_box, q.shared_mass - in_box, *(part.mass for part in q.narrow)], 0.0)
    inside, beyond, *of_narrow = rng.multinomial(n, shares / shares.sum()).tolist()
    found = []
    if q.shared is not None and inside:
        found.append(_draw_by_rejection(_BoxCells(q, q.shared).propose, inside, rng))
    if q.shared is not None and beyond:
        found.append((_draw_beyond(q.features, q.shared, beyond, rng), float(beyond)))
    for part, count in zip(q.narrow, of_narrow, strict=True):
        if count:
            found.append(_draw_by_rejection(functools.partial(_propose_narrow, part), count, rng))
    repeats = sum(len(rows) ** 2 / effective for rows, effective in found)
    return np.concatenate([rows for rows, _ in found])[rng.permutation(n)], n**2 / repeats


def _draw_by_rejection(propose: Propose, n: int, rng: np.random.Generator) -> tuple[Array, float]:
    found = reject(propose, n, rng, excess=0.0)
    assert found is not None
    return found[0], found[1]


def _draw_beyond(
    features: LatticeFeatures, base: Base, n: int, rng: np.random.Generator
) -> Array:
    """Draws of the base that lie beyond the box; about n / (share beyond it) in all."""
    kept, have, tried = [np.empty((0, features.dimension))], 0, 0
    while have < n:
        share = max(have, 1) / max(tried, 1)
        m = int(min(max(1.2 * (n - have) / share, 1_024), BATCH))
        x = base.draw(m, rng)
        beyond = x[_is_beyond(features, x)]
        kept.append(beyond)
        have, tried = have + len(beyond), tried + m
    return np.concatenate(kept)[:n]


def _is_beyond(features: LatticeFeatures, x: Array) -> NDArray[np.bool_]:
    """Whether rows lie outside the box, along axes that are not periodic."""
    ends = np.array([kind != "period" for kind in features.walls])
    low, high = features.origin, features.origin + features.lengths
    return np.asarray((((x < low) | (x > high)) & ends).any(axis=1))


def _propose_narrow(part: NarrowPart, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    x = part.gaussian.draw(n, rng)
    return x, part.tilt.value(x, part.threads)
