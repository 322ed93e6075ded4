"""The direct engine: features of a block, then one BLAS rank-k update, O(N S^2), for any dimension.

Two shapes of the same sums, chosen by the number of features alone so that results never depend on
the thread count (kernels/_numpy.py says more): up to LANE_FEATURES the rows of a block are cut into
LANES lanes, each with a Gram matrix of its own; above it, one Gram matrix is cut into tiles.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..data.blocks import Blocks
from ..features.random import Features
from ..runtime.progress import Progress
from ..validation import Array
from .overflow import check_feature_sums, check_moments
from .statistics import Statistics

LANE_FEATURES = 1024  # above it a Gram matrix a lane (8 MB here) would cost too much memory
LANES = 8  # threads beyond this are of use only above LANE_FEATURES
WIDE_LANES, WIDE_FEATURES = 4, 512  # fewer above this: a lane is made, filled and added up once
TILE = 512  # side of the tiles of a Gram matrix; BLAS is near its peak from about 250
TILE_ROWS = 1024  # rows of a feature block that tiles are made from

DTYPES = {"float64": np.float64, "mixed": np.float32}  # of the products; sums are float64


def required_memory(
    features: Features, n_levels: int, gram_phi: bool, precision: str, threads: int
) -> int:
    """Bytes that a pass takes beside the data: statistics, lanes or tiles, blocks."""
    S, item = features.n_features, np.dtype(DTYPES[precision]).itemsize
    matrices = 1 + gram_phi + (n_levels > 0)
    sums = 8 * S * (features.dimension + 2) * (n_levels + 1)
    if S <= LANE_FEATURES:
        scratch = 2 * threads * S * S * item
        return 8 * S * S * matrices * (1 + lane_count(S)) + scratch + sums * (1 + lane_count(S))
    return 8 * S * S * matrices + 2 * S * TILE_ROWS * item + 2 * threads * TILE**2 * item + sums


def lane_count(n_features: int) -> int:
    """Lanes for this many features; 1 means tiles."""
    if n_features > LANE_FEATURES:
        return 1
    return WIDE_LANES if n_features > WIDE_FEATURES else LANES


def accumulate_direct(
    blocks: Blocks,
    features: Features,
    noise_levels: Array,
    origin: Array,
    *,
    gram_phi: bool,
    precision: str,
    backend: ModuleType,
    n_threads: int,
    progress: bool = False,
) -> Statistics:
    """The statistics of all blocks; formulas in design section 1 and in `Statistics`."""
    sums = _Sums(features, noise_levels, origin, gram_phi, DTYPES[precision], backend, n_threads)
    n, n_rows, sum_w2 = 0.0, 0, 0.0
    with (
        kernels.threads(backend, n_threads),
        np.errstate(over="ignore", invalid="ignore"),  # overflow is explained at the end
        Progress(progress, "rows", blocks.n_rows) as bar,
    ):
        for x, w in blocks:
            sums.add(x, np.zeros(0) if w is None else np.sqrt(w))
            n += len(x) if w is None else float(w.sum())
            sum_w2 += len(x) if w is None else float(w @ w)
            n_rows += len(x)
            bar.add(len(x))
    provenance = {
        "engine": "direct", "backend": backend.NAME, "precision": precision,
        "tolerance": 0.0, "threads": n_threads,
    }  # fmt: skip
    return sums.finish(n, n_rows, sum_w2, provenance)


class _Sums:
    """Buffers of a pass. Axis 0 of every sum is the lane; with tiles there is one."""

    def __init__(
        self,
        features: Features,
        noise_levels: Array,
        origin: Array,
        gram_phi: bool,
        dtype: Any,
        backend: ModuleType,
        n_threads: int,
    ) -> None:
        S, d, H = features.n_features, features.dimension, len(noise_levels)
        self.features, self.noise_levels, self.origin = features, noise_levels, np.array(origin)
        self.backend, self.n_threads = backend, n_threads
        self.lanes = lane_count(S)
        self.amplitude = float(np.sqrt(2.0 / S))
        lanes = self.lanes
        # zeros come from the system untouched: a lane that gets no rows takes no memory
        self.sum_x, self.sum_xx = np.zeros((LANES, d)), np.zeros((LANES, d, d))
        self.small = [
            (np.zeros((lanes, S)), np.zeros((lanes, S)), np.zeros((lanes, S, d)))
            for _ in range(1 + H)
        ]
        self.gram = np.zeros((lanes, S, S))
        self.gram_phi = np.zeros((lanes, S, S) if gram_phi else (0, 0, 0))
        self.noise_gram = np.zeros((lanes, S, S) if H else (0, 0, 0))
        if self.lanes > 1:
            self.blocks = np.empty((n_threads, 2, S, kernels.ROW_TILE), dtype)
            side = S if H or dtype == np.float32 else 1
        else:
            self.blocks = np.empty((2, S, TILE_ROWS), dtype)
            side = min(S, TILE)
        self.scratch: NDArray[Any] = np.empty((n_threads, 2, side, side), dtype)

    def add(self, x: Array, root_weights: Array) -> None:
        """Add the rows of one block: level 0 always, then every level above it."""
        root_weights.flags.writeable = False
        rows = self._lane_rows(len(x))
        self.backend.moments(
            x, root_weights, self.origin, rows, self.sum_x, self.sum_xx, self.n_threads
        )
        self._add_level(x, root_weights, self.features.bandwidth, None, self.small[0])
        for sigma, small in zip(self.noise_levels, self.small[1:], strict=True):
            if sigma > 0.0:
                self._add_level(
                    x, root_weights, float(np.hypot(self.features.bandwidth, sigma)), sigma, small
                )

    def _lane_rows(self, n: int) -> int:
        """Rows of a lane: an equal share of the block in whole row tiles."""
        tiles = -(-n // kernels.ROW_TILE)
        return kernels.ROW_TILE * -(-tiles // max(self.lanes, WIDE_LANES))

    def _add_level(
        self, x: Array, root: Array, gamma: float, sigma: Any, small: tuple[Array, ...]
    ) -> None:
        """One noise level, whose bandwidth is gamma_sigma; sigma None is the data itself."""
        frequencies = self.features.frequencies / gamma
        phases = self.features.phases + frequencies @ self.origin
        inputs = (self.origin, frequencies, phases, self.amplitude)
        fold: tuple[Any, ...] = ()
        if sigma is not None:
            fold = (self.features.frequencies * (sigma / gamma), 0.5 / gamma**2)
        if self.lanes > 1:
            rows, buffers = self._lane_rows(len(x)), (self.blocks, self.scratch, self.n_threads)
            if fold:
                self.backend.lane_noise_rank_k(
                    x, root, *inputs, rows, *fold, *small, self.noise_gram, *buffers
                )
            else:
                self.backend.lane_rank_k(
                    x, root, *inputs, rows, *small, self.gram, self.gram_phi, *buffers
                )
            return
        dphi = self.blocks[0]
        phi = self.blocks[1] if fold or self.gram_phi.size else self.blocks[1, :0, :0]
        tail = (self.scratch, self.n_threads)
        for start in range(0, len(x), TILE_ROWS):
            part = slice(start, min(start + TILE_ROWS, len(x)))
            n = part.stop - start
            self.backend.feature_block(
                x[part], root[part], *inputs, dphi, phi, *(s[0] for s in small), self.n_threads
            )
            if fold:
                self.backend.noise_rank_k(dphi, phi, n, *fold, self.noise_gram[0], *tail)
                continue
            self.backend.rank_k(dphi, n, self.gram[0], *tail)
            if self.gram_phi.size:
                self.backend.rank_k(phi, n, self.gram_phi[0], *tail)

    def finish(
        self, n: float, n_rows: int, sum_w2: float, provenance: dict[str, Any]
    ) -> Statistics:
        """Lanes added in order, triangles mirrored."""
        levels = self.noise_levels
        used = min(self.lanes, -(-n_rows // kernels.ROW_TILE))
        small = [tuple(_total(s, used) for s in level) for level in self.small]
        sum_x, sum_xx = _total(self.sum_x, LANES), _total(self.sum_xx, LANES)
        check_feature_sums(small[0][0])
        check_moments(sum_x, sum_xx)
        gram = _symmetric(self.gram, used)
        gram_phi = _symmetric(self.gram_phi, used) if self.gram_phi.size else None
        noise_gram = None
        if len(levels):
            noise_gram = _symmetric(self.noise_gram, used)
            for h in np.flatnonzero(levels == 0.0):
                # Delta = 1 there, so Phi drops out and Phi' has been summed already
                small[h + 1] = tuple(s.copy() for s in small[0])
                noise_gram += gram / self.features.bandwidth**2
        S, d = self.features.frequencies.shape
        noise = [np.array([level[i] for level in small[1:]]) for i in range(3)]
        return Statistics(
            features=self.features, n=float(n), n_rows=n_rows, sum_w2=float(sum_w2),
            origin=self.origin, sum_x=sum_x, sum_xx=sum_xx,
            sum_phi=small[0][0], sum_dphi=small[0][1], sum_dphi_x=small[0][2],
            gram=gram, gram_phi=gram_phi, noise_levels=levels, noise_gram=noise_gram,
            noise_sum_phi=noise[0].reshape(-1, S), noise_sum_dphi=noise[1].reshape(-1, S),
            noise_sum_dphi_x=noise[2].reshape(-1, S, d), provenance=provenance,
        )  # fmt: skip


def _total(lanes: Array, used: int) -> Array:
    """Sum over the first lanes, in order."""
    total = lanes[0].copy()
    for lane in lanes[1:used]:
        total += lane
    return total


def _symmetric(lanes: Array, used: int) -> Array:
    """Sum over the first lanes, in order, of upper triangles, as full matrices; by tiles that fit a
    cache, so that the lower triangles of the lanes, never written, take no memory."""
    n, side = lanes.shape[1], 256
    matrix = np.empty((n, n))
    for i in range(0, n, side):
        rows = slice(i, i + side)
        strip = _total(lanes[:, rows, i:], used)
        corner = strip[:, :side]
        corner[:] = np.triu(corner) + np.triu(corner, 1).T
        matrix[rows, i:] = strip
        matrix[i + side :, rows] = strip[:, side:].T
    return matrix
