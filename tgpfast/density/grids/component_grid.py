"""One component of a base times e^tilt on a regular grid, and what lies beyond the grid.

A grid either covers all mass that could matter, or a smooth window ends it earlier; draws of the
component from beyond the window then estimate the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...bases.quasirandom import logsumexp
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..exponents.exponent import Tilt
from .box_rule import tensor_rows
from .components import Component
from .whitened_grid import WhitenedGrid, even_halves

TILE_NODES = 2**22  # nodes evaluated by one transform: 1 GB at most
WINDOW_MIDDLE = 0.75  # where the window falls to 1/2, as a share of the reach
WINDOW_WIDTH = 0.06  # how fast it falls, as a share of the reach
TAIL_START = 0.5  # share of the reach from which draws are taken: the window is 1 - 1e-9 there
TAIL_REPLICATES = 8  # independent sets of quasi-random draws; their spread gives the error
# variance of the tilt far from the data above which most of its mass there is in peaks that are
# too rare to be drawn: the mean of e^tilt is e^(variance / 2), but draws see less
UNSEEN_VARIANCE = 8.0

Lattice = Callable[[Array, Array, tuple[int, ...]], Array]  # corner, steps, shape -> exponent


class Tail(NamedTuple):
    """Estimates beyond the window of a grid, all as logarithms: -inf where nothing is beyond.

    log_mass : of e^tilt times the component
    log_error : of the standard error of that mass
    log_square : of the mass with e^(2 tilt)
    log2_draws : base-2 logarithm of the number of draws of each replicate
    """

    log_mass: float = -math.inf
    log_error: float = -math.inf
    log_square: float = -math.inf
    log2_draws: int = 0


def window(squares: Array, reach: float) -> Array:
    """1 near the center and 0 from ``reach`` on, as a function of squared distances.

    It is smooth, so that the trapezoidal rule stays accurate.
    """
    from scipy.special import erfc

    distances = np.sqrt(squares) - WINDOW_MIDDLE * reach
    return np.asarray(0.5 * erfc(distances / (WINDOW_WIDTH * reach)))


def whitened_band(
    tilt: Tilt, component: Component, rotation: Array | None = None
) -> Array:
    """Highest angular frequency of the tilt along the axes of a component's grid, (d,)."""
    f = tilt.features
    u = f.frequencies @ component.gaussian.cholesky / f.bandwidth
    if rotation is not None:
        u = u @ rotation.T
    return np.asarray(np.abs(u).max(axis=0))


class ComponentGrid:
    """One component times e^tilt on a grid of whitened coordinates.

    Parameters
    ----------
    component : Component
    lattice : callable
        Gives the tilt on a lattice from its corner, steps and shape.
    steps : array, (d,)
        Distances of neighboring nodes.
    reach : float
        Distance from the center at which the grid ends.
    windowed : bool
        Whether a window ends the grid before all mass is covered.
    rotation : array, (d, d), default None
        Turns the grid: whitened coordinates are nodes @ rotation.

    Attributes
    ----------
    log_mass : array of the shape of the grid
        Log of e^tilt times component times window times cell volume. It sums to ``total``.
    total, coarse_total : float
        Log of the sum over all nodes, and over every second node with a cell 2^d times as large.
    log_square : float
        Log of the sum with e^(2 tilt).
    tail : Tail
        What lies beyond the window; see ``sample_tail``.
    """

    def __init__(
        self, component: Component, lattice: Lattice, steps: Array, reach: float, *,
        windowed: bool, rotation: Array | None = None,
    ) -> None:  # fmt: skip
        d = component.dimension
        self.component, self.reach, self.windowed = component, reach, windowed
        self.rotation = np.eye(d) if rotation is None else rotation
        self.grid = WhitenedGrid(steps, even_halves(steps, reach))
        self.axes, self.steps = self.grid.axes, steps
        self.log_mass, self.log_square = self._evaluate(lattice)
        self.total = float(logsumexp(self.log_mass))
        every_second = self.log_mass[(slice(None, None, 2),) * d]
        self.coarse_total = float(logsumexp(every_second)) + d * math.log(2.0)
        self.tail = Tail()

    def _evaluate(self, lattice: Lattice) -> tuple[Array, float]:
        """Log masses of the nodes, and log of their sum with e^(2 tilt), tile by tile."""
        shape = self.grid.shape
        values, square = np.empty(shape), -math.inf
        gaussian = self.component.gaussian
        steps = np.diag(self.steps) @ self.rotation @ gaussian.cholesky.T
        rows = max(1, TILE_NODES // math.prod(shape[1:]))
        for start in range(0, shape[0], rows):
            tile = [self.axes[0][start : start + rows], *self.axes[1:]]
            first = np.array([axis[0] for axis in tile]) @ self.rotation
            corner = gaussian.unwhiten(first[None])[0]
            exponent = lattice(corner, steps, tuple(len(axis) for axis in tile))
            mass = self._log_component(tile)
            mass += exponent
            values[start : start + rows] = mass
            mass += exponent
            square = float(np.logaddexp(square, logsumexp(mass)))
        return values, square

    def _log_component(self, tile: list[Array]) -> Array:
        """Log of component times window times cell volume at the nodes of a tile."""
        squares = functools.reduce(np.add.outer, [np.square(axis) for axis in tile])
        if self.component.base is None:
            mass = self.component.log_gaussian(squares)
        else:
            w = tensor_rows(tile) @ self.rotation
            mass = self.component.log_density(w).reshape(squares.shape)
        mass += self.grid.log_cell
        if self.windowed:
            with np.errstate(divide="ignore"):
                mass += np.log(window(squares, self.reach))
        return mass

    def log_density(self, w: Array, tilt: Tilt, threads: Threads) -> Array:
        """Log of e^tilt times component times window at rows of whitened coordinates, (n,)."""
        values = self.component.log_density(w)
        values = values + tilt.value(self.component.gaussian.unwhiten(w), threads)
        if self.windowed:
            with np.errstate(divide="ignore"):
                values += np.log(window(np.einsum("ij,ij->i", w, w), self.reach))
        return values

    @property
    def log_gap(self) -> float:
        """Log of the error of the mass: its change when every second node is left out."""
        if self.total == self.coarse_total:
            return -math.inf
        high = max(self.total, self.coarse_total)
        return high + math.log(-math.expm1(-abs(self.total - self.coarse_total)))

    def draw_tail(
        self, tilt: Tilt, threads: Threads, log2_n: int, seed: int
    ) -> tuple[Array, Array, Array]:
        """Draws from beyond the window.

        Returns
        -------
        w : array, (n, d)
            Whitened coordinates.
        log_weights : array, (n,)
            They sum to the mass beyond the window.
        exponent : array, (n,)
            The tilt at the draws.
        """
        start = TAIL_START * self.reach
        w, log_probability = self.component.draw_outside(start, log2_n, seed)
        if not len(w):
            return w, np.zeros(0), np.zeros(0)
        with np.errstate(divide="ignore"):
            outside = np.log(1.0 - window(np.einsum("ij,ij->i", w, w), self.reach))
        exponent = tilt.value(self.component.gaussian.unwhiten(w), threads)
        log_weights = exponent + outside + log_probability + self.component.log_weight
        return w, log_weights - math.log(len(w)), exponent

    def sample_tail(self, tilt: Tilt, threads: Threads, log2_n: int) -> None:
        """Estimate ``tail`` from replicates of 2^log2_n draws."""
        sets = [
            self.draw_tail(tilt, threads, log2_n, seed)[1:] for seed in range(TAIL_REPLICATES)
        ]
        masses = np.array([logsumexp(s) if len(s) else -np.inf for s, _ in sets])
        squares = np.array([logsumexp(s + t) if len(s) else -np.inf for s, t in sets])
        top = float(masses.max())
        if not np.isfinite(top):
            self.tail = Tail(log2_draws=log2_n)
            return
        shares = np.exp(masses - top)
        spread = float(np.std(shares, ddof=1)) / math.sqrt(TAIL_REPLICATES)
        log_error = top + math.log(max(spread, 1e-300))
        if tilt.variance > UNSEEN_VARIANCE:
            possible = self.component.log_weight + 0.5 * tilt.variance
            possible += self.component.draw_outside(TAIL_START * self.reach, 4, 0)[1]
            log_error = float(np.logaddexp(log_error, possible))
        self.tail = Tail(
            top + math.log(float(shares.mean())), log_error,
            float(logsumexp(squares)) - math.log(TAIL_REPLICATES), log2_n,
        )  # fmt: skip
