"""Sum of phi' s0^T over the rows, s0 the score of the base: what FD needs where the base is not a
Gaussian, whose score is linear and so follows from the statistics that know no base."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import kernels
from .base import Base
from .blocks import Blocks
from .features import Array, Features
from .progress import Progress

ROWS = 4_096  # of a block of features


def sum_scores(
    blocks: Blocks,
    features: Features,
    base: Base,
    *,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Array:
    """(S, d), in one pass over the blocks: O(n S d), little beside the matrix of FD."""
    if blocks.in_parts:
        part = functools.partial(_sum_part, features=features, base=base)
        total: Array = blocks.reduce(part, backend, n_threads, progress)
        return total
    module = kernels.load(backend)
    count = kernels.resolve_threads(module, n_threads)
    S, d = features.frequencies.shape
    frequencies = features.frequencies / features.bandwidth
    phases = features.phases + frequencies @ base.mean
    block = np.empty((S, ROWS))
    total = np.zeros((S, d))
    nothing = np.zeros(0)
    nothing.flags.writeable = False
    unused = np.zeros(S), np.zeros(S), np.zeros((S, d))
    with Progress(progress, "rows", blocks.n_rows) as bar:
        for x, w in blocks:
            score = base._score(x)
            if w is not None:
                score *= w[:, None]
            for start in range(0, len(x), ROWS):
                rows = x[start : start + ROWS]
                with kernels.threads(module, count):
                    module.feature_block(
                        rows, nothing, base.mean, frequencies, phases, np.sqrt(2.0 / S), block,
                        block[:0, :0], *unused, count,
                    )  # fmt: skip
                total += block[:, : len(rows)] @ score[start : start + ROWS]
            bar.add(len(x))
    return total


def _sum_part(blocks: Blocks, threads: Any, features: Features, base: Base) -> Array:
    return sum_scores(
        blocks, features, base, backend=threads.backend, n_threads=threads.n_threads
    )
