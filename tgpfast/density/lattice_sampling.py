"""Exact draws from a density with lattice features.

The density is a sum of three: the taper times it, which lies in the box and is drawn from the cells
of a regular grid; what the taper leaves, near and beyond the ends of open axes, from draws of the
base; and narrow components of the base, from their own draws. Rejection corrects all of them to the
density itself.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bases.gaussian import Base
from ..validation import Array
from .box_rule import tensor_rows
from .lattice_quadrature import LatticeQuadrature, NarrowPart
from .sampling import BATCH, _Cells, reject

CELL_NODES = {1: 2**14, 2: 2**20, 3: 2**21}  # of the grid of cells, at most
LEAST_CELLS = 16  # along an axis


@dataclass(frozen=True)
class _CellGrid:
    """A regular grid that includes both ends of every axis, as `_Cells` takes it."""

    axes: list[Array]
    step: Array
    log_mass: Array


class _BoxCells(_Cells):
    """Cells of the box, for T e^f base."""

    def __init__(self, quadrature: LatticeQuadrature, base: Base) -> None:
        self.quadrature, self.base = quadrature, base
        features = quadrature.features
        most = CELL_NODES[quadrature.d] / math.prod(quadrature.counts)
        counts = [
            max(LEAST_CELLS, int(n * min(1.0, most) ** (1.0 / quadrature.d)))
            for n in quadrature.counts
        ]
        axes = [
            low + length * np.arange(n + 1) / n
            for low, length, n in zip(features.origin, features.lengths, counts, strict=True)
        ]
        step = features.lengths / np.array(counts)
        values = self._log_density(tensor_rows(axes)) + float(np.log(step).sum())
        grid: Any = _CellGrid(axes, step, values.reshape([n + 1 for n in counts]))
        tilt: Any = quadrature.tilt
        super().__init__(grid, tilt, quadrature.threads)

    def _log_density(self, x: Array) -> Array:
        q = self.quadrature
        with np.errstate(divide="ignore"):
            taper = np.log(q.features.taper(x))
        return np.asarray(q.tilt.value(x, q.threads) + taper + self.base.log_density_at(x))

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
    rows : (n, d) array, in the model's coordinates
    effective : float; below n where a draw had to be repeated
    """
    q = quadrature
    masses = [q.sums.windowed, q.shared_mass - q.sums.windowed if q.is_open else 0.0]
    masses += [part.mass for part in q.narrow]
    shares = np.maximum(masses, 0.0)
    counts = rng.multinomial(n, shares / shares.sum()).tolist()
    rows, repeats = [np.empty((0, q.d))], 0.0
    if counts[0]:
        assert q.shared is not None
        found = reject(_BoxCells(q, q.shared).propose, counts[0], rng, excess=0.0)
        assert found is not None
        rows.append(found[0])
        repeats += counts[0] ** 2 / found[1]
    if counts[1]:
        rows.append(_draw_rest(q, counts[1], rng))
        repeats += counts[1]
    for part, count in zip(q.narrow, counts[2:], strict=True):
        if count:
            found = reject(functools.partial(_propose_narrow, part), count, rng, excess=0.0)
            assert found is not None
            rows.append(found[0])
            repeats += count**2 / found[1]
    return np.concatenate(rows)[rng.permutation(n)], n**2 / repeats


def _draw_rest(q: LatticeQuadrature, n: int, rng: np.random.Generator) -> Array:
    """Rows of (1 - T) e^f base: draws of the base, most of which lie in the core and are dropped.

    About n e^peak / Z draws in all, however small the share of these rows is.
    """
    assert q.shared is not None
    top, kept, have, tried = q.sums.rest_peak + 0.1, [], 0, 0
    while have < n:
        share = max(have, 1) / max(tried, 1)
        m = int(min(max(1.2 * (n - have) / share, 1_024), BATCH))
        x = q.shared.draw(m, rng)
        with np.errstate(divide="ignore"):
            log_weights = np.log1p(-q.features.taper(x)) + q.tilt.value(x, q.threads)
        chosen = np.log(rng.uniform(size=m)) < log_weights - top
        kept.append(x[chosen])
        have, tried = have + int(chosen.sum()), tried + m
    return np.concatenate(kept)[:n]


def _propose_narrow(part: NarrowPart, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    x = part.gaussian.draw(n, rng)
    return x, part.tilt.value(x, part.threads)
