"""Sum of phi' s0^T over the rows, where s0 is the score of the base.

FD needs it where the base is not a Gaussian. (The score of a Gaussian is linear in x, so that the
other statistics are enough.) O(N S d) term by term; O(N + S) by a transform whose strengths are the
scores.
"""

from __future__ import annotations

import functools

import numpy as np

from .. import kernels
from ..bases.base import Base
from ..data.blocks import Blocks
from ..data.checkpoint import KeptSums
from ..features.evaluation import Angles, feature_blocks
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..validation import Array
from .chunks import Chunks
from .feature_means import plan_sums, rows_per_sum, transform_inside
from .transforms import eps_for


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
    return blocks.reduce(part, backend, n_threads, progress)


def _accumulate_part(
    blocks: Blocks, threads: Threads, features: Features, base: Base, tolerance: float,
    budget: int, progress: bool = False,
) -> Array:  # fmt: skip
    """The sum over all rows, or over one partition."""
    _, count = threads.resolve()
    angles = Angles.of(features, base.mean)
    eps, sums = eps_for(tolerance), _ScoreSums(features)
    with blocks.track("base scores", sums, progress) as count_rows:
        for x, w in Chunks(blocks, rows_per_sum(features)):
            score = base.score_at(x)
            if w is not None:
                score *= w[:, None]
            y = x - base.mean
            plan, inside = plan_sums(y, angles.frequencies, eps, budget)
            if plan is not None:
                waves = transform_inside(
                    y[inside], score[inside].T, plan, angles.frequencies, eps, count
                )
                # phi' = -sqrt(2/S) sin a
                sums.total -= angles.amplitude * (np.exp(1j * angles.phases) * waves).imag.T
            if not inside.all():
                sums.total += _sum_term_by_term(
                    x[~inside], score[~inside], features, base.mean, threads
                )
            count_rows(len(x))
    return sums.total


class _ScoreSums(KeptSums):
    """The sum while a pass runs."""

    kept = ("total",)

    def __init__(self, features: Features) -> None:
        self.total = np.zeros(features.frequencies.shape)


def _sum_term_by_term(
    x: Array, score: Array, features: Features, origin: Array, threads: Threads
) -> Array:
    """sum phi' score^T, (S, d)."""
    total = np.zeros(features.frequencies.shape)
    with kernels.threads(*threads.resolve()):  # BLAS on one thread: its sums do not depend on them
        for rows, _, dphi in feature_blocks(features, x, origin=origin, threads=threads):
            total += dphi @ score[rows]
    return total
