"""Sum of phi over the rows, all that MAP needs of the data: O(N S) term by term, O(N + S) by a
transform, and no S x S matrix."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import storage
from ..data.blocks import Blocks
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..validation import Array
from . import costs
from .spectral import (
    DIMENSIONS,
    LEAST_EPS,
    SAFETY,
    Plan,
    chunks_of,
    memory_budget,
    plan_chunk,
    transform,
    wave_sums,
)
from .statistics import _merged, check_decay


@dataclass(frozen=True, eq=False)
class FeatureSums:
    """n, and sum_i w_i phi(x_i), (S,); names as in `Statistics`."""

    features: Features
    n: float
    n_rows: int
    sum_w2: float
    sum_phi: Array
    provenance: dict[str, Any]

    def __add__(self, other: FeatureSums) -> FeatureSums:
        """Of the rows of both, whose features are the same."""
        return replace(
            self, n=self.n + other.n, n_rows=self.n_rows + other.n_rows,
            sum_w2=self.sum_w2 + other.sum_w2, sum_phi=self.sum_phi + other.sum_phi,
            provenance=_merged(self.provenance, other.provenance),
        )  # fmt: skip

    def __sub__(self, part: FeatureSums) -> FeatureSums:
        """The sums over the rows left over."""
        return replace(
            self, n=self.n - part.n, n_rows=self.n_rows - part.n_rows,
            sum_w2=self.sum_w2 - part.sum_w2, sum_phi=self.sum_phi - part.sum_phi,
        )  # fmt: skip

    def decay(self, factor: float) -> FeatureSums:
        """As `Statistics.decay`."""
        return self._times(check_decay(factor))

    def _times(self, factor: float) -> FeatureSums:
        return replace(
            self, n=factor * self.n, sum_w2=factor * factor * self.sum_w2,
            sum_phi=factor * self.sum_phi,
        )  # fmt: skip

    def _members(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(facts, arrays) of a file, without those of the features."""
        facts = {
            "n": self.n, "n_rows": self.n_rows, "sum_w2": self.sum_w2,
            "provenance": self.provenance,
        }  # fmt: skip
        return facts, {"sum_phi": self.sum_phi}

    @classmethod
    def _from_members(
        cls, path: Any, features: Features, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> FeatureSums:
        """What ``_members`` gave, read back; the arrays are used up."""
        sum_phi = storage.take(arrays, "sum_phi", (features.n_features,), path)
        if arrays:
            raise ValueError(f"{os.fspath(path)!r} holds unexpected members: {sorted(arrays)}")
        return cls(
            features, float(facts["n"]), int(facts["n_rows"]), float(facts["sum_w2"]), sum_phi,
            dict(facts["provenance"]),
        )  # fmt: skip

    def _first(self, n: int) -> FeatureSums:
        """As `Statistics._first`."""
        by = float(np.sqrt(self.features.n_features / n))
        return replace(self, features=self.features._first(n), sum_phi=by * self.sum_phi[:n])


def sum_features(
    blocks: Blocks,
    features: Features,
    centre: Array,
    *,
    tolerance: float,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> FeatureSums:
    """One pass over the blocks. centre : a point near the data, about which angles are taken."""
    part = functools.partial(
        _sum_part, features=features, centre=centre, tolerance=tolerance,
        budget=memory_budget(blocks.budget),
    )  # fmt: skip
    sums: FeatureSums = blocks.reduce(part, backend, n_threads, progress)
    return sums


def sum_features_of_each(
    blocks: Blocks, several: Sequence[Features], centre: Array, **options: Any
) -> list[FeatureSums]:
    """``sum_features`` of each of several `Features`, in one pass over the blocks."""
    width = several[0].bandwidth
    joined = Features(
        np.concatenate([f.frequencies * (width / f.bandwidth) for f in several]),
        np.concatenate([f.phases for f in several]), width,
    )  # fmt: skip
    total = sum_features(blocks, joined, centre, **options)
    ends = np.cumsum([f.n_features for f in several])
    return [
        replace(
            total, features=f,
            sum_phi=np.sqrt(ends[-1] / f.n_features) * total.sum_phi[end - f.n_features : end],
        )
        for f, end in zip(several, ends, strict=True)
    ]  # fmt: skip


def _sum_part(
    blocks: Blocks, threads: Threads, features: Features, centre: Array, tolerance: float,
    budget: int, progress: bool = False,
) -> FeatureSums:  # fmt: skip
    module, count = threads.resolve()
    frequencies = features.frequencies / features.bandwidth
    F = np.zeros(features.n_features, np.complex128)
    eps = max(SAFETY * tolerance, LEAST_EPS)
    n, n_rows, sum_w2, by_transform = 0.0, 0, 0.0, False
    with Progress(progress, "rows", blocks.n_rows) as bar:
        for x, w in chunks_of(blocks):
            y = x - centre
            plan, inside = plan_sums(y, frequencies, eps, budget)
            if plan is not None:
                weights = np.ones(len(y)) if w is None else w
                columns = [y[inside, k] - m for k, m in enumerate(plan.middle)]
                axes = [np.ascontiguousarray(frequencies[:, k]) for k in range(y.shape[1])]
                part = transform(
                    columns, weights[inside].astype(np.complex128), axes, eps, 2.0, count
                )
                F += part * np.exp(1j * (frequencies @ plan.middle))
                by_transform = True
            if not inside.all():
                rest = None if w is None else w[~inside]
                cosines, sines = wave_sums(frequencies, y[~inside], rest, module, count)
                F += cosines + 1j * sines
            n += len(x) if w is None else float(w.sum())
            sum_w2 += len(x) if w is None else float(w @ w)
            n_rows += len(x)
            bar.add(len(x))
    turn = np.exp(1j * (features.phases + frequencies @ centre))
    sum_phi = np.sqrt(2.0 / features.n_features) * (turn * F).real
    if not np.isfinite(sum_phi).all():
        raise ValueError(
            "the features of some rows are not finite: |x| / bandwidth overflows. Scale the data "
            "or raise the bandwidth"
        )
    provenance = {
        "engine": "spectral" if by_transform else "direct", "backend": module.NAME,
        "precision": "float64", "tolerance": tolerance if by_transform else 0.0,
        "threads": count, "sums": "phi only",
    }  # fmt: skip
    return FeatureSums(features, n, n_rows, sum_w2, sum_phi, provenance)


def plan_sums(
    y: Array, frequencies: Array, eps: float, budget: int
) -> tuple[Plan | None, NDArray[np.bool_]]:
    """(how to transform these points, which of them): None and none where term by term is
    cheaper."""
    plan = _plan(y, frequencies, eps, budget)
    if plan is None:
        return None, np.zeros(len(y), bool)
    return plan, np.ones(len(y), bool) if plan.whole else plan.inside(y)


def _plan(y: Array, frequencies: Array, eps: float, budget: int) -> Plan | None:
    if y.shape[1] > DIMENSIONS or importlib.util.find_spec("finufft") is None:
        return None
    row_cost = costs.COSTS.feature * len(frequencies)
    if row_cost * len(y) < 0.02:
        return None
    reach = np.abs(frequencies).max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        plan = plan_chunk(y, reach, len(frequencies), row_cost, eps, budget, coarse=False)
    return plan if plan is not None and plan.seconds < row_cost * len(y) else None
