"""The sum of phi over the rows: all that MAP and the Fourier KDE need of the data.

O(N S) term by term, O(N + S) by a transform, and no S x S matrix.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data import storage
from ..data.blocks import Blocks
from ..features.evaluation import Angles
from ..features.random import Features
from ..kernels.thread_choice import COSINE_WORK, Threads
from ..runtime import memory
from ..validation import Array
from .chunks import Chunks
from .mergeable_sums import MergeableSums, read_counts
from .moment_sums import RowCounts
from .statistics import check_feature_sums
from .transforms import (
    TRANSFORM_DIMENSIONS,
    Complex,
    eps_for,
    has_finufft,
    sum_waves,
    transform,
)

if TYPE_CHECKING:
    from .transform_plan import TransformPlan

TERM_ROWS = 2**16  # rows of a chunk that is summed term by term: more would only take memory


@dataclass(frozen=True, eq=False)
class FeatureMeans(MergeableSums):
    """The sum of the features over the rows, which is n times their mean.

    Attributes
    ----------
    features : Features
    sum_phi : (S,) array
        sum_i w_i phi(x_i).
    """

    features: Features
    sum_phi: Array

    def first_features(self, n: int) -> FeatureMeans:
        """The sums of the first n features, whose amplitude sqrt(2 / n) is larger.

        Parameters
        ----------
        n : int
            At most the number of features.

        Returns
        -------
        FeatureMeans
        """
        factor = float(np.sqrt(self.features.n_features / n))
        return replace(self, features=self.features.first(n), sum_phi=factor * self.sum_phi[:n])

    @classmethod
    def from_members(
        cls, path: Any, features: Features, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> FeatureMeans:
        """What ``to_members`` returned, read from a file.

        Parameters
        ----------
        path : str or path
            The file, for error messages.
        features : Features
        facts : dict
        arrays : dict
            Emptied: each array is taken out of it.

        Returns
        -------
        FeatureMeans

        Raises
        ------
        ValueError
            If the file is damaged.
        """
        sum_phi = storage.take(arrays, "sum_phi", (features.n_features,), path)
        storage.check_all_taken(arrays, path)
        return cls(features=features, sum_phi=sum_phi, **read_counts(facts))


def accumulate_feature_means(
    blocks: Blocks, features: Features, origin: Array, *, tolerance: float, backend: str = "auto",
    n_threads: int | None = None, progress: bool = False,
) -> FeatureMeans:  # fmt: skip
    """Sum the features in one pass over the blocks.

    Parameters
    ----------
    blocks : Blocks
    features : Features
    origin : (d,) array
        A point near the data, about which angles are taken.
    tolerance : float
        Largest error of the mean of e^{i f . x} where a transform computes it.
    backend : str, default "auto"
    n_threads : int or None, default None
    progress : bool, default False
    """
    part = functools.partial(
        _accumulate_part, features=features, origin=origin, tolerance=tolerance,
        budget=memory.budget(blocks.budget),
    )  # fmt: skip
    return blocks.reduce(part, backend, n_threads, progress)


def accumulate_feature_means_of_each(
    blocks: Blocks, several: Sequence[Features], origin: Array, **options: Any
) -> list[FeatureMeans]:
    """``accumulate_feature_means`` of each of several `Features`, in one pass over the blocks."""
    width = several[0].bandwidth
    joined = Features(
        np.concatenate([f.frequencies * (width / f.bandwidth) for f in several]),
        np.concatenate([f.phases for f in several]), width,
    )  # fmt: skip
    total = accumulate_feature_means(blocks, joined, origin, **options)
    ends = np.cumsum([f.n_features for f in several])
    return [
        replace(
            total, features=f,
            sum_phi=np.sqrt(ends[-1] / f.n_features) * total.sum_phi[end - f.n_features : end],
        )
        for f, end in zip(several, ends, strict=True)
    ]  # fmt: skip


def _accumulate_part(
    blocks: Blocks, threads: Threads, features: Features, origin: Array, tolerance: float,
    budget: int, progress: bool = False,
) -> FeatureMeans:  # fmt: skip
    """The sums over all rows, or over one partition."""
    S, n_known = features.n_features, blocks.n_rows
    work = math.inf if n_known is None else n_known * S * COSINE_WORK
    module, count = threads.resolve(work)
    angles, sums = Angles.of(features, origin), _WaveSums(S)
    frequencies, eps = angles.frequencies, eps_for(tolerance)
    with blocks.track("feature means", sums, progress) as count_rows:
        for x, w in Chunks(blocks, rows_per_sum(features)):
            y = x - origin
            plan, inside = plan_sums(y, frequencies, eps, budget)
            if plan is not None:
                weights = np.ones(len(y)) if w is None else w
                (part,) = transform_inside(
                    y[inside], [weights[inside]], plan, frequencies, eps, count
                )
                sums.waves += part
                sums.by_transform = True
            if not inside.all():
                rest = None if w is None else w[~inside]
                sums.waves += sum_waves(frequencies, y[~inside], rest, module, count)
            sums.count(x, w)
            count_rows(len(x))
    sum_phi = angles.amplitude * (np.exp(1j * angles.phases) * sums.waves).real
    check_feature_sums(sum_phi)
    provenance = {
        "engine": "spectral" if sums.by_transform else "direct", "backend": module.NAME,
        "precision": "float64", "tolerance": tolerance if sums.by_transform else 0.0,
        "threads": count, "sums": "phi only",
    }  # fmt: skip
    return FeatureMeans(
        features, sums.n, sums.n_rows, sums.sum_w2, sum_phi, provenance=provenance
    )


class _WaveSums(RowCounts):
    """Sums of e^{i f . x} while a pass runs."""

    kept = (*RowCounts.kept, "waves", "by_transform")

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.waves, self.by_transform = np.zeros(n_features, np.complex128), False


def transform_inside(
    y: Array, strengths: Iterable[Array], plan: TransformPlan, frequencies: Array, eps: float,
    n_threads: int,
) -> list[Complex]:  # fmt: skip
    """Fourier sums of points inside the box of a plan, (S,) for each set of strengths (n,)."""
    columns = [y[:, k] - m for k, m in enumerate(plan.middle)]
    axes = [np.ascontiguousarray(axis) for axis in frequencies.T]
    turn = np.exp(1j * (frequencies @ plan.middle))
    sets = (strength.astype(np.complex128) for strength in strengths)
    return [turn * transform(columns, s, axes, eps, n_threads) for s in sets]


def rows_per_sum(features: Features) -> int | None:
    """Rows of a chunk; None is as many as one transform takes."""
    return TERM_ROWS if features.dimension > TRANSFORM_DIMENSIONS else None


def plan_sums(
    y: Array, frequencies: Array, eps: float, budget: int
) -> tuple[TransformPlan | None, NDArray[np.bool_]]:
    """How to transform points, and which of them; None and no point where sums term by term are
    faster."""
    plan = _faster_plan(y, frequencies, eps, budget)
    if plan is None:
        return None, np.zeros(len(y), bool)
    return plan, np.ones(len(y), bool) if plan.whole else plan.inside(y)


def _faster_plan(
    y: Array, frequencies: Array, eps: float, budget: int
) -> TransformPlan | None:
    if y.shape[1] > TRANSFORM_DIMENSIONS or not has_finufft():
        return None
    from . import costs
    from .transform_plan import plan_transform

    row_cost = costs.COSTS.feature * len(frequencies)
    if row_cost * len(y) < costs.NEGLIGIBLE_SECONDS:
        return None
    reach = np.abs(frequencies).max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        plan = plan_transform(y, reach, len(frequencies), row_cost, eps, budget)
    return plan if plan is not None and plan.seconds < row_cost * len(y) else None
