"""A narrow Gaussian component of a base under a lattice's tilt, on a grid of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...bases.gaussian import GaussianBase
from ...kernels.thread_choice import Threads
from ...validation import Array
from ..exponents.lattice_exponent import LatticeTilt
from .box_rule import SLAB_NODES, integrate_to, tensor_rows, tensor_weights
from .marginal_cdf import RecentDirections
from .whitened_grid import GAUSSIAN_BAND, rotation_to

TAIL = 25.0  # log of the share of a component's mass that may lie beyond its grid
RULE_REFINEMENT = 1.5  # from one rule to the next, along every axis
FINER_ALONG_LINE = 2.0  # steps of a marginal density for each step of the rule


class NarrowPart:
    """A Gaussian component on a grid of its own: its mass under e^f, and its marginals.

    Parameters
    ----------
    share : float
        Weight of the component.
    gaussian : GaussianBase
    tilt : LatticeTilt
    threads : Threads
    peak : float
        The largest value of the tilt; masses are divided by e^peak.

    Attributes
    ----------
    mass, square : float
        share E[e^(f - peak)] and share E[e^(2 (f - peak))].
    error : float
        Of the mass: its change from the grid before; infinite before `refine`.
    n_nodes : int
        Nodes of the last grid.
    """

    def __init__(
        self, share: float, gaussian: GaussianBase, tilt: LatticeTilt, threads: Threads, peak: float
    ) -> None:
        self.share, self.gaussian, self.tilt, self.threads = share, gaussian, tilt, threads
        self.peak, self.reach = peak, math.sqrt(2.0 * (TAIL + max(peak, 0.0)))
        # highest frequency of the tilt in whitened coordinates, and that of a Gaussian
        waves = np.array([w.max() for w in tilt.features.frequencies])
        band = float(np.linalg.norm(waves @ np.abs(gaussian.cholesky)))
        self.step = math.pi / (band + GAUSSIAN_BAND)
        self._integrate()
        self.error = math.inf

    def refine(self, tolerance: float, most: int) -> None:
        """Integrate on finer grids until the mass errs by at most this share of it.

        Parameters
        ----------
        tolerance : float
        most : int
            Nodes of a grid, at most.
        """
        while self.error > tolerance * self.mass:
            if (2.0 * self.reach / self.step * RULE_REFINEMENT) ** self.d > most:
                break
            last = self.mass
            self.step /= RULE_REFINEMENT
            self._integrate()
            self.error = abs(self.mass - last)

    def _integrate(self) -> None:
        self._recent = RecentDirections()  # sums across another grid
        weights, growth = self._values([self._axis(self.step)] * self.d, np.eye(self.d))
        self.n_nodes = growth.size
        self.mass, self.square = float(weights @ growth), float(weights @ np.square(growth))

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.gaussian.dimension

    def _axis(self, step: float) -> Array:
        half = math.ceil(self.reach / step)
        return np.asarray(self.reach / half * np.arange(-half, half + 1), dtype=np.float64)

    def _values(self, axes: Sequence[Array], rotation: Array) -> tuple[Array, Array]:
        """Weights of the whitened nodes, which sum to the share, and e^(f - peak) there."""
        w = tensor_rows(axes)
        growth = np.empty(len(w))
        for start in range(0, len(w), SLAB_NODES):
            part = slice(start, start + SLAB_NODES)
            x = self.gaussian.unwhiten(w[part] @ rotation)
            growth[part] = np.exp(self.tilt.value(x, self.threads) - self.peak)
        sides = [np.exp(-0.5 * np.square(axis)) * (axis[1] - axis[0]) for axis in axes]
        constant = self.share / math.sqrt(2.0 * math.pi) ** self.d
        return constant * tensor_weights(sides), growth

    def cdf(self, direction: Array, places: Array) -> Array:
        """Mass, divided by e^peak, of rows x with x . direction up to every place."""
        length, line, margin = self._recent.find(direction, lambda: self._sum_across(direction))
        with np.errstate(over="ignore"):
            w = (places - float(direction @ self.gaussian.mean)) / length
        return integrate_to(line, margin, w)

    def _sum_across(self, direction: Array) -> tuple[float, Array, Array]:
        """Length of a standard deviation along a direction, whitened places, and the density."""
        along = self.gaussian.cholesky.T @ direction
        length = float(np.linalg.norm(along))
        line, other = self._axis(self.step / FINER_ALONG_LINE), self._axis(self.step)
        weights, growth = self._values([line, *[other] * (self.d - 1)], rotation_to(along / length))
        margin = (weights * growth).reshape(len(line), -1).sum(axis=1) / (line[1] - line[0])
        return length, line, margin

    def propose(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """n draws of the component, and f there: their log weights."""
        x = self.gaussian.draw(n, rng)
        return x, self.tilt.value(x, self.threads)
