"""The direct engine: features of a block of rows, then one BLAS rank-k update; O(N S^2), any d.

The Gram matrix is summed in one of two shapes, chosen by the number of features alone, so that
results never depend on the number of threads. Up to LANE_FEATURES features the rows of a block are
cut into lanes, each with a Gram matrix of its own; above it one Gram matrix is cut into tiles.
`kernels/_numpy.py` says more.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..data.blocks import Blocks
from ..features.delta_weights import add_noise_level
from ..features.evaluation import NO_WEIGHTS, Angles
from ..features.random import Features
from ..kernels import read_only
from ..validation import Array
from .moment_sums import MomentSums
from .statistics import LevelSums, Statistics, make_statistics

LANE_FEATURES = 1024  # above it a Gram matrix for each lane (8 MB here) would take too much memory
LANES = 8  # parts of a block; more threads than this are of use only above LANE_FEATURES
WIDE_LANES, WIDE_FEATURES = 4, 512  # lanes above so many features: each costs an S x S matrix
GRAM_TILE = 512  # side of the tiles of a Gram matrix; BLAS is near its peak from about 250
TILE_ROWS = 1024  # rows of the feature block from which tiles are computed
MIRROR_TILE = 256  # side of the tiles by which triangles are mirrored: they fit a cache

DTYPES = {"float64": np.float64, "mixed": np.float32}  # of the products; sums are float64


def required_memory(
    features: Features, n_levels: int, gram_phi: bool, precision: str, threads: int
) -> int:
    """Bytes that a pass takes beside the rows: statistics, lanes or tiles, blocks of features.

    Parameters
    ----------
    features : Features
    n_levels : int
        Number of noise levels.
    gram_phi : bool
    precision : str
        "float64" or "mixed".
    threads : int
    """
    S, lanes = features.n_features, lane_count(features.n_features)
    item = np.dtype(DTYPES[precision]).itemsize
    has_noise = n_levels > 0
    sums = 8 * S * (features.dimension + 2) * (n_levels + 1)
    matrices = 8 * S * S * (lanes * (1 + gram_phi + 2 * has_noise) + has_noise)
    if lanes == 1:
        scratch = 2 * S * TILE_ROWS * item + 2 * threads * GRAM_TILE**2 * item
        return matrices + scratch + sums
    return matrices + 8 * S * S * (1 + gram_phi) + 2 * threads * S * S * item + sums * (1 + lanes)


def lane_count(n_features: int) -> int:
    """Lanes for this many features; 1 means tiles."""
    if n_features > LANE_FEATURES:
        return 1
    return WIDE_LANES if n_features > WIDE_FEATURES else LANES


def accumulate_direct(
    blocks: Blocks, features: Features, noise_levels: Array, origin: Array, *, gram_phi: bool,
    precision: str, backend: ModuleType, n_threads: int, progress: bool = False,
) -> Statistics:  # fmt: skip
    """The statistics of all blocks; `Statistics` has the formulas.

    Parameters
    ----------
    blocks : Blocks
    features : Features
    noise_levels : (H,) array
    origin : (d,) array
    gram_phi : bool
    precision : str
        "float64" or "mixed".
    backend : module
        A kernel module, as `kernels.load` returns it.
    n_threads : int
    progress : bool, default False
    """
    sums = _DirectSums(
        features, noise_levels, origin, gram_phi, DTYPES[precision], backend, n_threads
    )
    with (
        kernels.threads(backend, n_threads),
        np.errstate(over="ignore", invalid="ignore"),  # overflow is explained at the end
        blocks.track("direct", sums, progress) as count,
    ):
        for x, w in blocks:
            sums.add(x, w)
            count(len(x))
    provenance = {
        "engine": "direct", "backend": backend.NAME, "precision": precision,
        "tolerance": 0.0, "threads": n_threads,
    }  # fmt: skip
    return sums.finish(provenance)


class _DirectSums(MomentSums):
    """Buffers of a pass. The first axis of Gram matrices is the lane; that of sums of features the
    noise level, then the lane. With tiles there is one lane."""

    kept = (
        *MomentSums.kept, "sum_phi", "sum_dphi", "sum_dphi_x", "gram", "gram_phi", "noise_gram",
    )  # fmt: skip

    def __init__(
        self, features: Features, noise_levels: Array, origin: Array, gram_phi: bool, dtype: Any,
        backend: ModuleType, n_threads: int,
    ) -> None:  # fmt: skip
        super().__init__(origin)
        S, d, H = features.n_features, features.dimension, len(noise_levels)
        self.features, self.noise_levels = features, noise_levels
        self.backend, self.n_threads = backend, n_threads
        self.lanes = lane_count(S)
        lanes = self.lanes
        # memory of zeros is taken when it is written: a lane that gets no rows takes none
        self.sum_phi, self.sum_dphi = np.zeros((2, 1 + H, lanes, S))
        self.sum_dphi_x = np.zeros((1 + H, lanes, S, d))
        self.gram = np.zeros((lanes, S, S))
        self.gram_phi = np.zeros((lanes, S, S) if gram_phi else (0, 0, 0))
        self.noise_gram = np.zeros((S, S) if H else (0, 0))
        self.of_level = np.zeros((2, lanes, S, S) if (noise_levels > 0.0).any() else (2, 0, 0, 0))
        if self.lanes > 1:
            self.blocks, side = np.empty((n_threads, 2, S, kernels.ROW_TILE), dtype), S
        else:
            self.blocks, side = np.empty((2, S, TILE_ROWS), dtype), GRAM_TILE
        self.scratch: NDArray[Any] = np.empty((n_threads, 2, side, side), dtype)

    def _small(self, level: int) -> LevelSums:
        """The sums of phi, phi' and phi' x^T of one noise level; 0 is the data themselves."""
        return self.sum_phi[level], self.sum_dphi[level], self.sum_dphi_x[level]

    def add(self, x: Array, w: Array | None) -> None:
        """Add the rows of one block: the data themselves, then every noise level above zero."""
        super().add(x, w)
        root = NO_WEIGHTS if w is None else read_only(np.sqrt(w))
        gamma = self.features.bandwidth
        self._add_features(x, root, gamma, self._small(0), self.gram, self.gram_phi)
        for level, sigma in enumerate(self.noise_levels, 1):
            if sigma > 0.0:
                self.of_level[:] = 0.0
                wider = float(np.hypot(gamma, sigma))
                self._add_features(x, root, wider, self._small(level), *self.of_level)
                used = self._used_lanes(len(x))
                gram, gram_phi = (_add_symmetric_lanes(lanes, used) for lanes in self.of_level)
                add_noise_level(self.features, sigma, gram, gram_phi, self.noise_gram)

    def _lane_rows(self, n: int) -> int:
        """Rows of a lane: an equal share of the block in whole row tiles."""
        tiles = -(-n // kernels.ROW_TILE)
        return kernels.ROW_TILE * -(-tiles // self.lanes)

    def _used_lanes(self, n: int) -> int:
        """Lanes that n rows can have reached."""
        return min(self.lanes, -(-n // kernels.ROW_TILE))

    def _add_features(
        self, x: Array, root: Array, gamma: float, small: LevelSums, gram: Array,
        gram_phi: Array,
    ) -> None:  # fmt: skip
        """Add the sums of features with the bandwidth gamma."""
        angles = Angles.of(self.features, self.origin, gamma)
        if self.lanes > 1:
            self.backend.lane_rank_k(
                x, root, *angles, self._lane_rows(len(x)), *small, gram, gram_phi, self.blocks,
                self.scratch, self.n_threads,
            )  # fmt: skip
            return
        dphi, phi = self.blocks if gram_phi.size else (self.blocks[0], self.blocks[1, :0, :0])
        for start in range(0, len(x), TILE_ROWS):
            part = slice(start, min(start + TILE_ROWS, len(x)))
            self.backend.feature_block(
                x[part], root[part], *angles, dphi, phi, *(s[0] for s in small), self.n_threads
            )
            for block, matrices in ((dphi, gram), (phi, gram_phi)):
                if matrices.size:
                    self.backend.rank_k(
                        block, part.stop - start, matrices[0], self.scratch, self.n_threads
                    )

    def finish(self, provenance: dict[str, Any]) -> Statistics:
        """Add the lanes in order and mirror the triangles."""
        used = self._used_lanes(self.n_rows)
        levels: list[Any] = [
            [_add_lanes(lanes, used) for lanes in self._small(level)]
            for level in (0, *(1 + np.flatnonzero(self.noise_levels)))
        ]
        gram = _add_symmetric_lanes(self.gram, used)
        gram_phi = _add_symmetric_lanes(self.gram_phi, used) if self.gram_phi.size else None
        return make_statistics(
            self.features, self, levels, self.noise_levels, gram, gram_phi, self.noise_gram,
            provenance,
        )  # fmt: skip


def _add_lanes(lanes: Array, used: int) -> Array:
    """Sum over the first lanes, in order."""
    total = lanes[0].copy()
    for lane in lanes[1:used]:
        total += lane
    return total


def _add_symmetric_lanes(lanes: Array, used: int) -> Array:
    """Sum over the first lanes, in order, of upper triangles, as full matrices. It goes by tiles,
    so that the lower triangles of the lanes, which are never written, take no memory."""
    n, side = lanes.shape[1], MIRROR_TILE
    matrix = np.empty((n, n))
    for i in range(0, n, side):
        rows = slice(i, i + side)
        strip = _add_lanes(lanes[:, rows, i:], used)
        corner = strip[:, :side]
        corner[:] = np.triu(corner) + np.triu(corner, 1).T
        matrix[rows, i:] = strip
        matrix[i + side :, rows] = strip[:, side:].T
    return matrix
