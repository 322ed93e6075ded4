"""Sum of phi' s0^T over the rows, s0 the score of the base: what FD needs where the base is not a
Gaussian, whose score is linear and so follows from the statistics that know no base.

O(N S d) term by term; O(N + S) by a transform whose strengths are the scores.
"""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np

from .. import kernels
from ..bases.gaussian import Base
from ..data.blocks import Blocks
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..validation import Array
from .feature_sums import plan_sums
from .spectral import LEAST_EPS, SAFETY, chunks_of, memory_budget, transform

ROWS = 4_096  # of a block of features


def sum_scores(
    blocks: Blocks,
    features: Features,
    base: Base,
    *,
    tolerance: float = 1e-9,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Array:
    """(S, d), in one pass over the blocks. tolerance : as for ``accumulate``."""
    part = functools.partial(
        _sum_part, features=features, base=base, tolerance=tolerance,
        budget=memory_budget(blocks.budget),
    )  # fmt: skip
    total: Array = blocks.reduce(part, backend, n_threads, progress)
    return total


def _sum_part(
    blocks: Blocks, threads: Threads, features: Features, base: Base, tolerance: float,
    budget: int, progress: bool = False,
) -> Array:  # fmt: skip
    module, count = threads.resolve()
    S, d = features.frequencies.shape
    frequencies = features.frequencies / features.bandwidth
    phases = features.phases + frequencies @ base.mean
    axes = [np.ascontiguousarray(frequencies[:, k]) for k in range(d)]
    eps, total = max(SAFETY * tolerance, LEAST_EPS), np.zeros((S, d))
    with Progress(progress, "rows", blocks.n_rows) as bar:
        for x, w in chunks_of(blocks):
            score = base.score_at(x)
            if w is not None:
                score *= w[:, None]
            y = x - base.mean
            plan, inside = plan_sums(y, frequencies, eps, budget)
            if plan is not None:
                columns = [y[inside, k] - m for k, m in enumerate(plan.middle)]
                turn = np.exp(1j * (phases + frequencies @ plan.middle))
                for k in range(d):
                    strengths = score[inside, k].astype(np.complex128)
                    waves = transform(columns, strengths, axes, eps, 2.0, count)
                    total[:, k] -= np.sqrt(2.0 / S) * (turn * waves).imag
            if not inside.all():
                total += _term_by_term(
                    x[~inside], score[~inside], base.mean, frequencies, phases, module, count
                )
            bar.add(len(x))
    return total


def _term_by_term(
    x: Array, score: Array, origin: Array, frequencies: Array, phases: Array, module: ModuleType,
    n_threads: int,
) -> Array:  # fmt: skip
    S, d = frequencies.shape
    block, total = np.empty((S, min(ROWS, len(x)))), np.zeros((S, d))
    nothing = np.zeros(0)
    nothing.flags.writeable = False
    unused = np.zeros(S), np.zeros(S), np.zeros((S, d))
    with kernels.threads(module, n_threads):
        for start in range(0, len(x), ROWS):
            rows = np.ascontiguousarray(x[start : start + ROWS]).view()
            rows.flags.writeable = False
            module.feature_block(
                rows, nothing, origin, frequencies, phases, np.sqrt(2.0 / S), block, block[:0, :0],
                *unused, n_threads,
            )  # fmt: skip
            total += block[:, : len(rows)] @ score[start : start + ROWS]
    return total
