"""Normalizers of many small densities, computed together with fewer points than for one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from ... import kernels
from ...bases.gaussian import GaussianBase
from ...bases.quasirandom import sobol_normals
from ...kernels.thread_choice import Threads
from ...runtime import memory
from ...validation import Array, Ints
from ..draws.modes import find_modes
from ..draws.proposal import QUADRATURE_DIMENSIONS, Proposal
from ..exponents.exponent import PointTilt
from ..grids.component_grid import Lattice
from .normalizer import (
    REPLICATES,
    Normalizer,
    average_replicates,
    estimate_by_importance,
    normalizer_of_quadrature,
)
from .quadrature import Quadrature

GROUP_LOG2_POINTS = 9  # Sobol points of each replicate, in the first attempt
ENOUGH_ERROR = 0.01  # a larger standard error of log Z takes the points of a single density
GRID_BYTES = 2**29  # largest memory of one grid while it is summed

GroupDensity = Callable[[int], tuple[PointTilt, GaussianBase]]


class GroupNormalizers:
    """Normalizers of G groups, each computed at first use.

    Parameters
    ----------
    density_of : callable
        Gives tilt and base of a group by its place.
    n_groups : int
    dimension : int
    known : ndarray of shape (G, 4), default None
        Value, standard error, effective sample size and number of points of each group; rows of
        nan are not known.

    Attributes
    ----------
    known : ndarray of shape (G, 4)
    """

    def __init__(
        self, density_of: GroupDensity, n_groups: int, dimension: int, known: Array | None = None
    ) -> None:
        self._density_of, self._dimension = density_of, dimension
        self.known = np.full((n_groups, 4), np.nan) if known is None else np.array(known)

    def __getitem__(self, g: int) -> Normalizer:
        """A normalizer that is known."""
        value, error, effective, points = self.known[g].tolist()
        method = "quadrature" if self._dimension <= QUADRATURE_DIMENSIONS else "importance"
        return Normalizer(value, error, effective, method, int(points))

    @property
    def is_poor(self) -> NDArray[np.bool_]:
        """Which groups have a known normalizer that is unreliable, (G,)."""
        is_known = ~np.isnan(self.known[:, 0])
        return np.array([known and self[g].is_poor for g, known in enumerate(is_known.tolist())])

    def compute_missing(self, groups: Ints, threads: Threads) -> Ints:
        """Compute the unknown normalizers of these groups; returns which of them are poor."""
        missing = groups[np.isnan(self.known[groups, 0])]
        if not len(missing):
            return missing
        module, count = threads.resolve()
        with kernels.threads(module, count):
            if self._dimension <= QUADRATURE_DIMENSIONS:
                found = self._integrate_grids(missing.tolist(), threads, count)
            else:
                found = self._average_points(missing.tolist(), threads)
        for g, result in zip(missing.tolist(), found, strict=True):
            self.known[g] = (
                result.value, result.standard_error, result.effective_sample_size, result.n_points
            )  # fmt: skip
        return missing[self.is_poor[missing]]

    def _integrate_grids(self, groups: list[int], threads: Threads, count: int) -> list[Normalizer]:
        def integrate(g: int) -> Normalizer:
            tilt, base = self._density_of(g)
            lattice = _tensor_lattice(tilt) if self._dimension == 2 else None
            return normalizer_of_quadrature(Quadrature(tilt, base, threads, lattice))

        # transforms, without a lattice of its own, change the warning filters, which threads share
        most = max(memory.budget() // GRID_BYTES, 1) if self._dimension == 2 else 1
        with ThreadPoolExecutor(min(count, most)) as pool:
            return list(pool.map(integrate, groups))

    def _average_points(self, groups: list[int], threads: Threads) -> list[Normalizer]:
        """By Sobol points that all groups share."""
        points = np.concatenate(
            [sobol_normals(self._dimension, GROUP_LOG2_POINTS, r) for r in range(REPLICATES)]
        )
        return [self._average_one(g, points, threads) for g in groups]

    def _average_one(self, g: int, points: Array, threads: Threads) -> Normalizer:
        """As for a single density, but with an eighth of the points where these are enough."""
        tilt, base = self._density_of(g)
        modes = find_modes(tilt, base, threads)
        if modes is not None:  # draws from the base alone would miss them
            return estimate_by_importance(tilt, Proposal(base, modes), threads)
        values = tilt.value(base.unwhiten(points), threads)
        found = average_replicates(values.reshape(REPLICATES, -1))
        if found.is_poor or found.standard_error > ENOUGH_ERROR:
            found = estimate_by_importance(tilt, Proposal(base), threads, annealed=False)
        return found


def _tensor_lattice(tilt: PointTilt) -> Lattice:
    """The exponent on a lattice in two dimensions, as a product of two matrices: faster than
    transforms for the few features of a group.

    cos(f . (corner + m @ steps) + c) is the real part of a factor for the corner times one factor
    for each index.
    """
    f = tilt.features.frequencies / tilt.features.bandwidth
    strengths = tilt.amplitude * tilt.theta

    def lattice(corner: Array, steps: Array, shape: tuple[int, ...]) -> Array:
        rotated = strengths * np.exp(1j * (tilt.features.phases + f @ corner))
        first = np.exp(1j * np.outer(np.arange(shape[0]), f @ steps[0])) * rotated
        second = np.exp(1j * np.outer(np.arange(shape[1]), f @ steps[1]))
        return np.asarray(first.real @ second.real.T - first.imag @ second.imag.T)

    return lattice
