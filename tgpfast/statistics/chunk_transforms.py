"""Fourier sums of chunks of points, one transform for each chunk."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from ..validation import Array
from .chunks import Rows
from .fourier_sums import FourierSums
from .spectral_work import SpectralWork
from .transform_plan import FINE, TransformPlan
from .transforms import Complex, derivative_stencil, sum_waves, transform

COARSE_CHECKS = 64  # frequencies at which the result of a coarse grid is summed term by term
COARSE_SHARE = 0.1  # of the tolerance, which the result of a coarse grid must keep there


class CoarseGridError(Exception):
    """The result of a coarse grid missed its tolerance; a fine grid must be used."""


class ChunkTransforms(FourierSums):
    """Fourier sums added up over chunks; points outside the box of a chunk are handed back.

    Parameters
    ----------
    work : SpectralWork
    center : (d,) array
        Point near the data, about which points are taken.
    backend : module
        A kernel module.
    n_threads : int
    must_fit : bool, default True
        Whether a chunk that no grid within the budget holds is an error; else all of it is handed
        back.
    """

    def __init__(
        self, work: SpectralWork, center: Array, backend: ModuleType, n_threads: int,
        must_fit: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(work.features, work.bandwidths, center)
        self.work, self.backend, self.n_threads = work, backend, n_threads
        self.must_fit = must_fit
        self.coarse, self.grid_bytes = True, 0

    def add(self, x: Array, w: Array | None) -> Rows:
        """Transform a chunk; returns the points, and their weights, that were left outside.

        Raises
        ------
        MemoryError
            If no grid fits, and ``must_fit``.
        """
        if w is not None and not w.all():
            x, w = x[w > 0.0], w[w > 0.0]
        if not len(x):
            return x, w
        y = x - self.center
        plan = self.work.plan(y, len(y), coarse=self.coarse)
        if plan is None and self.must_fit:
            raise MemoryError
        if plan is None:
            return x, w
        inside = np.ones(len(y), bool) if plan.whole else plan.inside(y)
        try:
            if inside.any():
                part = y if plan.whole else y[inside]
                self._transform(part, w if w is None or plan.whole else w[inside], plan)
        except CoarseGridError:
            self.coarse = False
            return self.add(x, w)
        self.grid_bytes = max(self.grid_bytes, plan.grid_bytes)
        return x[~inside], None if w is None else w[~inside]

    def _transform(self, y: Array, w: Array | None, plan: TransformPlan) -> None:
        """Add F and its derivative G, both from one transform: the derivative follows from F at the
        neighbors of every f_s."""
        strengths = np.ones(len(y), np.complex128) if w is None else w.astype(np.complex128)
        axes = self._axes_with_neighbors(plan)
        columns = [y[:, k] - middle for k, middle in enumerate(plan.middle)]
        result = transform(
            columns, strengths, axes, self.work.eps, plan.upsampling, self.n_threads
        )
        del columns
        result *= np.exp(1j * sum(axis * m for axis, m in zip(axes, plan.middle, strict=True)))
        if plan.upsampling < FINE and not self._is_accurate(y, w, result[: len(self.F)]):
            raise CoarseGridError
        self.weight += float(strengths.real.sum())
        self.F += result[: len(self.F)]
        self.G += self._derivatives(result, plan)

    def _axes_with_neighbors(self, plan: TransformPlan) -> list[Array]:
        """The targets, then for each axis the f_s moved along it by every offset of the stencil."""
        offsets, _ = derivative_stencil(self.work.eps)
        extra: list[list[Array]] = [[] for _ in plan.half]
        for k, half in enumerate(plan.half):
            for j, axis in enumerate(extra):
                near = self.base[:, j, None] + (offsets / half if j == k else 0.0 * offsets)
                axis.append(near.ravel())
        pairs = zip(self.targets.axes, extra, strict=True)
        return [np.concatenate([main, *more]) for main, more in pairs]

    def _derivatives(self, result: Complex, plan: TransformPlan) -> Complex:
        """G about the center: with m the middle of the box, e^{i f m} (G about m + m F)."""
        offsets, coefficients = derivative_stencil(self.work.eps)
        neighbors = result[len(self.F) :].reshape(len(plan.half), len(self.base), -1)
        turns = np.exp(-1j * plan.middle[:, None] * (offsets / plan.half[:, None]))
        slopes = np.einsum("kbj,kj->kb", neighbors, turns * coefficients)
        here = self.at_base(result)
        return -1j * plan.half[:, None] * slopes + plan.middle[:, None] * here

    def _is_accurate(self, y: Array, w: Array | None, F: Complex) -> bool:
        """Whether some entries of F, picked evenly, agree with sums term by term. Coarse grids err
        by less than the tolerance on spread-out points, but not on a few that coincide."""
        picked = np.linspace(0, len(F) - 1, COARSE_CHECKS).astype(int)
        frequencies = np.stack([axis[picked] for axis in self.targets.axes], axis=1)
        exact = sum_waves(frequencies, y, w, self.backend, self.n_threads)
        error = np.abs(exact - F[picked]).max()
        total = float(len(y) if w is None else w.sum())
        return bool(error <= COARSE_SHARE * self.work.tolerance * total)
