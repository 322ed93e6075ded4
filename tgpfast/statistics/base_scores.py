"""Sum of phi' s0^T over the rows, where s0 is the score of the base.

FD needs it where the base is not a Gaussian. (The score of a Gaussian is linear in x, so that the
other statistics are enough.) O(N S d) term by term; O(N + S) by a transform whose strengths are the
scores.
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
from ..runtime import memory
from ..runtime.progress import Progress
from ..validation import Array
from .chunks import Chunks
from .feature_means import plan_sums
from .transform_plan import FINE, TransformPlan
from .transforms import eps_for, transform

SCORE_ROWS = 4_096  # rows of a block of features


def accumulate_base_scores(
    blocks: Blocks, features: Features, base: Base, *, tolerance: float = 1e-9,
    backend: str = "auto", n_threads: int | None = None, progress: bool = False,
) -> Array:  # fmt: skip
    """sum_i w_i phi'(x_i) s0(x_i)^T, (S, d), in one pass over the blocks.

    Parameters
    ----------
    blocks : Blocks
    features : Features
    base : Base
        Its ``score_at`` is s0.
    tolerance, backend, n_threads, progress
        As for ``accumulate``.
    """
    part = functools.partial(
        _accumulate_part, features=features, base=base, tolerance=tolerance,
        budget=memory.budget(blocks.budget),
    )  # fmt: skip
    total: Array = blocks.reduce(part, backend, n_threads, progress)
    return total


def _accumulate_part(
    blocks: Blocks, threads: Threads, features: Features, base: Base, tolerance: float,
    budget: int, progress: bool = False,
) -> Array:  # fmt: skip
    """The sum over all rows, or over one partition."""
    module, count = threads.resolve()
    frequencies = features.frequencies / features.bandwidth
    phases = features.phases + frequencies @ base.mean
    eps, total = eps_for(tolerance), np.zeros(features.frequencies.shape)
    with Progress(progress, "rows", blocks.n_rows) as bar:
        for x, w in Chunks(blocks):
            score = base.score_at(x)
            if w is not None:
                score *= w[:, None]
            y = x - base.mean
            plan, inside = plan_sums(y, frequencies, eps, budget)
            if plan is not None:
                _subtract_transforms(
                    total, y[inside], score[inside], plan, frequencies, phases, eps, count
                )
            if not inside.all():
                total += _sum_term_by_term(
                    x[~inside], score[~inside], base.mean, frequencies, phases, module, count
                )
            bar.add(len(x))
    return total


def _subtract_transforms(
    total: Array, y: Array, score: Array, plan: TransformPlan, frequencies: Array, phases: Array,
    eps: float, n_threads: int,
) -> None:  # fmt: skip
    """total += sum phi' score^T, one transform for each coordinate: phi' = -sqrt(2 / S) sin a."""
    S, d = frequencies.shape
    columns = [y[:, k] - m for k, m in enumerate(plan.middle)]
    axes = [np.ascontiguousarray(frequencies[:, k]) for k in range(d)]
    turn = np.exp(1j * (phases + frequencies @ plan.middle))
    for k in range(d):
        strengths = score[:, k].astype(np.complex128)
        waves = transform(columns, strengths, axes, eps, FINE, n_threads)
        total[:, k] -= np.sqrt(2.0 / S) * (turn * waves).imag


def _sum_term_by_term(
    x: Array, score: Array, origin: Array, frequencies: Array, phases: Array, module: ModuleType,
    n_threads: int,
) -> Array:  # fmt: skip
    S, d = frequencies.shape
    block, total = np.empty((S, min(SCORE_ROWS, len(x)))), np.zeros((S, d))
    nothing = np.zeros(0)
    nothing.flags.writeable = False
    unused = np.zeros(S), np.zeros(S), np.zeros((S, d))
    with kernels.threads(module, n_threads):
        for start in range(0, len(x), SCORE_ROWS):
            rows = np.ascontiguousarray(x[start : start + SCORE_ROWS]).view()
            rows.flags.writeable = False
            module.feature_block(
                rows, nothing, origin, frequencies, phases, np.sqrt(2.0 / S), block, block[:0, :0],
                *unused, n_threads,
            )  # fmt: skip
            total += block[:, : len(rows)] @ score[start : start + SCORE_ROWS]
    return total
