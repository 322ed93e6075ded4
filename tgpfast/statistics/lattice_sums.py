"""One pass over the rows: the sums of the waves of a lattice, by non-uniform FFT (d <= 3).

It serves every kernel, bandwidth and lambda, and takes O(rows + modes).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base, check_base
from ..bases.gaussian import GaussianBase
from ..data import storage
from ..data.blocks import Blocks, as_blocks
from ..data.checkpoint import State
from ..data.row_sample import row_keys
from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..validation import Array, positive
from .chunks import Chunks
from .lattice_statistics import (
    POSITIONS,
    LatticeStatistics,
    band_of,
    scores_kind,
    shapes_of_sums,
)
from .moment_sums import RowCounts
from .statistics import check_levels
from .transforms import has_finufft
from .value_folds import Folds
from .wave_sums import WaveSums, required_memory

LATTICE_CHUNK_ROWS = 2**18  # rows of one transform at least; more where the grid is larger
WALL_ROUNDING = 1e-9  # of an axis' length, by which a row may lie beyond a wall


class WallError(ValueError):
    """A row beyond a wall of the lattice.

    Parameters
    ----------
    row : int
        Its number.
    axis : int
    message : str
    """

    def __init__(self, row: int, axis: int, message: str) -> None:
        super().__init__(message)
        self.row, self.axis = row, axis

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.row, self.axis, str(self))


def accumulate_lattice(
    X: Any,
    features: LatticeFeatures,
    *,
    sample_weight: Any = None,
    base: Base | None = None,
    noise_levels: Any = (),
    bases: Sequence[Base] = (),
    tolerance: float = 1e-9,
    budget: Any = None,
    threads: Threads | None = None,
    progress: bool = False,
) -> LatticeStatistics:
    """One pass over the rows: the sums from which every lattice estimator is solved.

    Parameters
    ----------
    X : array, frame, path or iterable of blocks
        Rows as for ``tgpfast.accumulate``, in the coordinates of the lattice; or `Blocks`.
    features : LatticeFeatures
    sample_weight : (n,) array, optional
        Not negative. A weight of 2 is the same as two equal rows.
    base : Base, optional
        The base that score matching (fd, ncfd, fvpd) is to tilt. A Gaussian base makes sums that
        serve every Gaussian. MAP needs none.
    noise_levels : (H,) array, default none
        Sigmas of noise-conditional score matching; in the paper 0 is among them. They need a
        Gaussian base and open axes.
    bases : list of Base, default none
        Bases whose log densities are summed over the rows.
    tolerance : float, default 1e-9
        Largest error of a sum over the sum of weights.
    budget : int or str, default TGPFAST_MEMORY_BUDGET or 40 % of the free memory
        Bytes that the sums may take, or text like "2GB".
    threads : Threads, optional
        Backend and number of threads.
    progress : bool, default False
        Show a bar on standard error.

    Returns
    -------
    LatticeStatistics

    Raises
    ------
    ValueError
        For rows beyond a wall, or a lattice that needs more memory than the budget; the message
        says which lattice would fit.

    Examples
    --------
    >>> import numpy as np
    >>> lattice = LatticeFeatures([8.0], 4, [-4.0])
    >>> stats = accumulate_lattice(np.array([[0.0], [1.0]]), lattice)
    >>> stats.n, stats.modes.shape
    (2.0, (5,))
    """
    (found,) = _accumulate(
        X, features, None, [list(bases)], sample_weight=sample_weight, base=base,
        noise_levels=noise_levels, tolerance=tolerance, budget=budget, threads=threads,
        progress=progress,
    )  # fmt: skip
    return found


def accumulate_lattice_folds(
    X: Any,
    features: LatticeFeatures,
    folds: Folds | NDArray[np.integer[Any]],
    *,
    bases: Sequence[Sequence[Base]] = (),
    **options: Any,
) -> list[LatticeStatistics]:
    """The sums of every fold of the rows, in one pass. Their sum is that of all rows.

    Parameters
    ----------
    X, features
        As for `accumulate_lattice`.
    folds : Folds or (n,) ints
        Which rows belong to which fold; or the number of the fold of each row, from 0.
    bases : list of lists of Base, default none
        For each fold, bases whose log densities are summed over the rows of that fold.
    **options
        As for `accumulate_lattice`.

    Returns
    -------
    list of LatticeStatistics
        One for each fold.
    """
    if isinstance(folds, Folds):
        count = folds.count
    else:
        labels = np.asarray(folds)
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.min(initial=0) < 0:
            raise ValueError("folds must be Folds, or a whole number from 0 for every row")
        count = int(labels.max(initial=0)) + 1
    return _accumulate(X, features, folds, list(bases) or [[]] * count, **options)


def _accumulate(
    X: Any, features: LatticeFeatures, folds: Any, bases: Sequence[Sequence[Base]], *,
    sample_weight: Any = None, base: Base | None = None, noise_levels: Any = (),
    tolerance: float = 1e-9, budget: Any = None, threads: Threads | None = None,
    progress: bool = False,
) -> list[LatticeStatistics]:  # fmt: skip
    """The sums of every fold."""
    if not isinstance(features, LatticeFeatures):
        raise TypeError(f"features must be LatticeFeatures, got {type(features).__name__}")
    tolerance, levels = positive("tolerance", tolerance), check_levels(noise_levels)
    threads = Threads() if threads is None else threads
    _check_base(base, features, levels)
    blocks = as_blocks(X, sample_weight=sample_weight, dimension=features.dimension)
    limit = memory.budget(blocks.budget if budget is None else budget)
    check_memory(features, len(bases), limit, base is not None, len(levels))
    part = functools.partial(
        _sum_part, features=features, folds=folds, bases=bases, base=base, levels=levels,
        tolerance=tolerance,
    )  # fmt: skip
    total: _StatisticsOfFolds = blocks.reduce(part, threads.backend, threads.n_threads, progress)
    return total.parts


def _check_base(base: Base | None, features: LatticeFeatures, levels: Array) -> None:
    if base is not None:
        check_base(base, features.dimension, "the lattice has")
    if len(levels) and not isinstance(base, GaussianBase):
        raise ValueError("noise levels need a Gaussian base")
    if len(levels) and set(features.walls) != {"open"}:
        raise ValueError(
            f"noise levels need open axes, and the lattice has walls={features.walls}: noise would "
            'carry rows through walls; use method="fd" or "map"'
        )


def check_memory(
    features: LatticeFeatures, n_folds: int, budget: int, has_scores: bool = False,
    n_levels: int = 0,
) -> None:  # fmt: skip
    """ValueError, which names a lattice that fits, unless the sums of a pass fit the budget.

    Parameters
    ----------
    features : LatticeFeatures
    n_folds : int
        Sets of sums that are made at once.
    budget : int
        Bytes.
    has_scores : bool, default False
        With sums for score matching.
    n_levels : int, default 0
        Number of noise levels.
    """

    def need(lattice: LatticeFeatures) -> int:
        sizes = shapes_of_sums(lattice, n_levels, has_scores).values()
        numbers = sum(np.prod(size, dtype=float) for size in sizes)
        return int(2 * 16 * n_folds * numbers) + required_memory(
            band_of(lattice, has_scores=has_scores)
        )

    if need(features) <= budget:
        return
    share, fitting = 1.0, features
    while need(fitting) > budget and max(fitting.n_modes) > 1:
        share *= 0.9
        fitting = features.with_modes([max(1, int(share * m)) for m in features.n_modes])
    raise ValueError(
        f"a lattice of n_modes={features.n_modes} needs {memory.format_bytes(need(features))} for "
        f"its sums, and the budget is {memory.format_bytes(budget)}; n_modes={fitting.n_modes} "
        "would fit"
    )


@dataclass
class _StatisticsOfFolds:
    """Sums of every fold, which add fold by fold."""

    parts: list[LatticeStatistics]

    def __add__(self, other: _StatisticsOfFolds) -> _StatisticsOfFolds:
        return _StatisticsOfFolds([a + b for a, b in zip(self.parts, other.parts, strict=True)])


def _sum_part(
    blocks: Blocks, threads: Threads, features: LatticeFeatures, folds: Any,
    bases: Sequence[Sequence[Base]], base: Base | None, levels: Array, tolerance: float,
    progress: bool = False,
) -> _StatisticsOfFolds:  # fmt: skip
    """The pass over all rows, or over one partition."""
    _, n_threads = threads.resolve()
    waves = WaveSums(band_of(features, has_scores=base is not None), tolerance, n_threads)
    sums = _SumsOfFolds(
        [_LatticeSums(features, waves, base, levels, fold_bases) for fold_bases in bases]
    )
    with blocks.track("lattice", sums, progress) as count_rows:
        for x, w in Chunks(blocks, max(LATTICE_CHUNK_ROWS, 4 * waves.n_nodes)):
            row = blocks.first_row + sums.n_rows
            x = _within_walls(x, w, features, row)
            if folds is None:
                sums.folds[0].add(x, w)
            else:
                for fold, rows in enumerate(_rows_of_folds(folds, x, row, len(bases))):
                    if len(rows):
                        sums.folds[fold].add(x[rows], None if w is None else w[rows])
            count_rows(len(x))
    engine = "finufft" if has_finufft() else "exact"
    facts = {"engine": f"lattice/{engine}", "tolerance": tolerance, "threads": n_threads}
    return _StatisticsOfFolds([part.finish(facts) for part in sums.folds])


class _SumsOfFolds:
    """The sums of all folds while a pass runs."""

    def __init__(self, folds: list[_LatticeSums]) -> None:
        self.folds = folds

    @property
    def n_rows(self) -> int:
        """Rows of all folds."""
        return sum(fold.n_rows for fold in self.folds)

    def state(self) -> State:
        """The sums of all folds, for a checkpoint."""
        return {
            f"fold_{k}_{name}": value
            for k, fold in enumerate(self.folds) for name, value in fold.state().items()
        }  # fmt: skip

    def restore(self, state: State) -> None:
        """Take over what ``state`` returned."""
        for k, fold in enumerate(self.folds):
            fold.restore({name: state[f"fold_{k}_{name}"] for name in fold.state()})


def _rows_of_folds(folds: Any, x: Array, first: int, n_folds: int) -> list[NDArray[np.intp]]:
    """Places of the rows of each fold in a chunk."""
    if isinstance(folds, Folds):
        labels = folds.of_rows(x, row_keys(first, len(x)))
    else:
        labels = np.asarray(folds)[first : first + len(x)]
        if len(labels) != len(x):
            raise ValueError(f"folds has {len(folds)} entries, but X has more rows")
    return [np.flatnonzero(labels == fold) for fold in range(n_folds)]


def _within_walls(x: Array, w: Array | None, features: LatticeFeatures, first: int) -> Array:
    """The rows; those that roundings have moved beyond a wall, or that have no weight, at the wall.

    Raises
    ------
    WallError
        Names the first row beyond a wall.
    """
    if not any(features.cosine):
        return x
    ends = features.origin, features.origin + features.lengths
    low = np.where(np.isin(features.walls, ("wall", "wall_below")), ends[0], -np.inf)
    high = np.where(np.isin(features.walls, ("wall", "wall_above")), ends[1], np.inf)
    if (x >= low).all() and (x <= high).all():
        return x
    room = WALL_ROUNDING * features.lengths
    beyond = (x < low - room) | (x > high + room)
    if w is not None:
        beyond[w <= 0.0] = False
    if beyond.any():
        axis, at = (int(i) for i in np.argwhere(beyond.T)[0])
        raise WallError(
            first + at, axis,
            f"row {first + at} has {x[at, axis]:.6g} in column {axis}, beyond a wall of the "
            f"lattice, which reaches from {ends[0][axis]:.6g} to {ends[1][axis]:.6g}",
        )  # fmt: skip
    return np.clip(x, low, high)


class _LatticeSums(RowCounts):
    """The sums of one fold while a pass runs."""

    kept = (*RowCounts.kept, "logs")

    def __init__(
        self, features: LatticeFeatures, waves: WaveSums, base: Base | None, levels: Array,
        bases: Sequence[Base],
    ) -> None:  # fmt: skip
        super().__init__()
        self.features, self.waves, self.base, self.levels = features, waves, base, levels
        self.bases, self.scores_of = bases, scores_kind(base, features)
        self.center = features.origin + 0.5 * features.lengths
        self.logs = np.zeros(len(bases))
        shapes = shapes_of_sums(features, len(levels), base is not None)
        self.sums: dict[str, Modes] = {
            name: np.zeros(shape, features.mode_dtype) for name, shape in shapes.items()
        }

    def add(self, x: Array, w: Array | None) -> None:
        """Add rows and their weights."""
        self.count(x, w)
        weights = np.ones(len(x)) if w is None else w
        for place, base in enumerate(self.bases):
            self.logs[place] += float(weights @ base.log_density_at(x))
        inside = _inside(x, *self.features.core, self.features.walls)
        tapered = weights
        if inside is not None:
            tapered = weights.copy()
            tapered[~inside] *= self.features.taper(x[~inside])
        if self.base is None:
            self._add_modes(x, tapered)
        elif inside is None:
            self._add_core(x, weights)
        else:
            self._add_core(x[inside], weights[inside])
            self._add_modes(x[~inside], tapered[~inside])

    def _add_modes(self, x: Array, strengths: Array) -> None:
        """Add to the sums of MAP alone."""
        if strengths.any():
            self.sums["modes"] += self.waves.sums(x, strengths[None])[0]

    def _add_core(self, x: Array, weights: Array) -> None:
        """Rows where the taper is 1, which score matching takes: add to all sums."""
        if not len(x):
            return
        assert self.base is not None
        offsets = x - self.center
        scores = offsets if self.scores_of == POSITIONS else self.base.score_at(x)
        strengths = np.concatenate([weights[None], scores.T * weights])
        # the derivative of a cosine is a sine
        sines = [None, *(j if c else None for j, c in enumerate(self.features.cosine))]
        plain = self.waves.sums(x, strengths, sines)
        self.sums["modes"] += plain[0]
        self.sums["core_modes"] += plain[0]
        self.sums["core_scores"] += self._narrow(plain)[1:]
        gamma, squares = self.features.bandwidth, self.waves.features.squared_frequencies
        for h, sigma in enumerate(self.levels):
            ratio = gamma / float(np.hypot(gamma, sigma))
            level = plain if sigma == 0.0 else self.waves.sums(
                self.center + ratio * offsets, strengths
            )  # fmt: skip
            damping = ratio**2 * np.exp(-0.5 * (sigma * ratio) ** 2 * squares)
            self.sums["noise_modes"] += damping * level[0]
            narrow = self._narrow(level)
            self.sums["noise_core_modes"][h] += narrow[0]
            self.sums["noise_core_scores"][h] += narrow[1:]

    def _narrow(self, sums: Modes) -> Modes:
        return self.waves.features.resize_modes(sums, self.features.n_modes)

    def state(self) -> State:
        """The sums, for a checkpoint."""
        return super().state() | {n: storage.as_reals(v) for n, v in self.sums.items()}

    def restore(self, state: State) -> None:
        """Take over what ``state`` returned."""
        super().restore(state)
        self.sums = {n: storage.from_reals(state[n], v.dtype) for n, v in self.sums.items()}

    def finish(self, facts: dict[str, Any]) -> LatticeStatistics:
        """The statistics of all rows that were added."""
        return LatticeStatistics(
            self.features, self.n, self.n_rows, self.sum_w2, sum_log_bases=self.logs,
            scores_of=self.scores_of, noise_levels=self.levels, provenance=dict(facts), **self.sums,
        )  # fmt: skip


def _inside(
    x: Array, low: Array, high: Array, walls: Sequence[str]
) -> NDArray[np.bool_] | None:
    """Which rows lie in the core along all tapered axes; None where all do."""
    inside: NDArray[np.bool_] | None = None
    for axis, kind in enumerate(walls):
        if kind in ("wall", "period"):
            continue
        column = x[:, axis]
        if column.min() < low[axis] or column.max() > high[axis]:
            here = (column >= low[axis]) & (column <= high[axis])
            inside = here if inside is None else inside & here
    return inside
