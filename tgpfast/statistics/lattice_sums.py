"""Sums over the rows of the waves of a lattice: all that its solvers need of the data (d <= 3).

One pass makes them for every kernel, bandwidth and lambda, by non-uniform FFT: O(rows + modes).
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bases.gaussian import Base, GaussianBase
from ..data import storage
from ..data.blocks import Blocks, as_blocks
from ..data.row_sample import row_keys
from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..kernels.thread_choice import Threads
from ..runtime import memory
from ..runtime.progress import Progress
from ..validation import Array, positive, whole
from .chunks import Chunks
from .provenance import merge_provenance
from .statistics import WEIGHT_ROUNDING, check_decay, check_levels
from .transforms import has_finufft
from .wave_sums import WaveSums, required_memory

KIND = "lattice"
POSITIONS = "positions"  # mark of sums weighted by x, which serve every Gaussian base
CHUNK_ROWS = 2**18  # rows of one transform at least; more where the grid is larger than that
WALL_ROUNDING = 1e-9  # of an axis' length, by which a row may lie beyond a wall


@dataclass(frozen=True, eq=False)
class LatticeStatistics:
    """Weighted sums over rows of the waves of a lattice. ``a + b`` is those of both sets of rows,
    ``total - part`` those of the rows left over.

    Attributes
    ----------
    features : LatticeFeatures
        Its kernel and bandwidth do not matter for the sums, except for those of noise levels.
    n : float
        Sum of the weights.
    n_rows : int
    sum_w2 : float
        Sum of the squared weights.
    modes : array of the doubled mode shape
        sum_i w_i T(x_i) e^{-i w_k . (x_i - origin)}, |k_j| <= 2 m_j; cosines on wall axes.
    sum_log_bases : (B,) array
        sum_i w_i log base(x_i) for each of the bases given to the pass.
    core_modes : array of the doubled mode shape, or None
        As ``modes``, over the rows in the core, where T = 1. None unless a base was given.
    core_scores : (d, mode shape) array, or None
        Sums over the rows in the core, weighted by a component of the position about the center of
        the box, or of the base's score; with sines along the wall axis of that component.
    scores_of : str or None
        "positions", or the fingerprint of the base.
    noise_levels : (H,) array
        The sigmas.
    noise_modes : array of the doubled mode shape, or None
        Sum over levels of r^2 exp(-sigma^2 |r w_k|^2 / 2) times the sums of e^{-i r w_k . x},
        r = bandwidth / sqrt(bandwidth^2 + sigma^2).
    noise_core_modes : (H, mode shape) array, or None
        The sums of e^{-i r w_k . x} of every level.
    noise_core_scores : (H, d, mode shape) array, or None
        The same weighted by position.
    provenance : dict
        How the sums were made.
    """

    features: LatticeFeatures
    n: float
    n_rows: int
    sum_w2: float
    modes: Modes
    sum_log_bases: Array = field(default_factory=lambda: np.zeros(0))
    core_modes: Modes | None = None
    core_scores: Modes | None = None
    scores_of: str | None = None
    noise_levels: Array = field(default_factory=lambda: np.zeros(0))
    noise_modes: Modes | None = None
    noise_core_modes: Modes | None = None
    noise_core_scores: Modes | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in SUMS:
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def doubled(self) -> LatticeFeatures:
        """The lattice of ``modes``: twice as many along each axis."""
        return doubled(self.features)

    @functools.cached_property
    def sum_waves(self) -> Modes:
        """``modes`` with |k_j| <= m_j: all that MAP needs of the rows."""
        return self.doubled.resize_modes(self.modes, self.features.n_modes)

    # -- algebra ---------------------------------------------------------------------------------

    def __add__(self, other: object) -> LatticeStatistics:
        if not isinstance(other, LatticeStatistics):
            return NotImplemented
        return self._combined(other, "added", operator.add)

    def __radd__(self, other: object) -> LatticeStatistics:
        if isinstance(other, int) and other == 0:  # so that sum(list_of_statistics) works
            return self
        return NotImplemented

    def __sub__(self, other: object) -> LatticeStatistics:
        if not isinstance(other, LatticeStatistics):
            return NotImplemented
        if other.n_rows > self.n_rows or other.n > self.n * (1.0 + WEIGHT_ROUNDING):
            raise ValueError(
                f"statistics of {other.n_rows:,} rows that weigh {other.n:.6g} cannot be taken "
                f"from those of {self.n_rows:,} rows that weigh {self.n:.6g}"
            )
        return self._combined(other, "subtracted", operator.sub)

    def _combined(self, other: LatticeStatistics, verb: str, operate: Any) -> LatticeStatistics:
        difference = self._difference(other)
        if difference:
            raise ValueError(f"these lattice statistics cannot be {verb}: {difference}")
        sums = {name: _combine(operate, getattr(self, name), getattr(other, name)) for name in SUMS}
        return replace(self, provenance=merge_provenance(self.provenance, other.provenance), **sums)

    def _difference(self, other: LatticeStatistics) -> str:
        """What keeps two statistics from being added, in words; empty if nothing does."""
        if self.features.box_fingerprint != other.features.box_fingerprint:
            return "their lattices differ in box, modes or walls"
        if self.scores_of != other.scores_of:
            return "they were made with different bases"
        if not np.array_equal(self.noise_levels, other.noise_levels):
            mine, theirs = self.noise_levels.tolist(), other.noise_levels.tolist()
            return f"their noise levels are {mine} and {theirs}"
        if len(self.noise_levels) and self.features.bandwidth != other.features.bandwidth:
            return "they have noise levels and different bandwidths"
        if len(self.sum_log_bases) != len(other.sum_log_bases):
            return "they have sums of different numbers of bases"
        return ""

    def decay(self, factor: float) -> LatticeStatistics:
        """The same rows with all weights multiplied by a factor in (0, 1]."""
        return self.times(check_decay(factor))

    def times(self, factor: float) -> LatticeStatistics:
        """The same rows with all weights multiplied by a factor."""
        by = positive("factor", factor)
        sums: dict[str, Any] = {}
        for name in SUMS:
            value = getattr(self, name)
            if name != "n_rows" and value is not None:
                sums[name] = value * (by * by if name == "sum_w2" else by)
        return replace(self, **sums)

    __mul__ = __rmul__ = times

    def with_kernel(self, kernel: str, bandwidth: float) -> LatticeStatistics:
        """The same sums for another prior.

        Raises
        ------
        ValueError
            If there are noise levels: their sums depend on the bandwidth.
        """
        if len(self.noise_levels) and bandwidth != self.features.bandwidth:
            raise ValueError(
                "sums of noise levels belong to one bandwidth; accumulate them again with the other"
            )
        return replace(self, features=self.features.with_kernel(kernel, bandwidth))

    def corner(self, n_modes: int | Sequence[int]) -> LatticeStatistics:
        """The sums of a lattice with fewer modes in the same box.

        Parameters
        ----------
        n_modes : int or (d,) ints
            At most those of these statistics.

        Returns
        -------
        LatticeStatistics
        """
        smaller = self.features.with_modes(n_modes)
        if any(a > b for a, b in zip(smaller.n_modes, self.features.n_modes, strict=True)):
            raise ValueError(
                f"n_modes={smaller.n_modes}: these sums reach {self.features.n_modes} only"
            )
        parts: dict[str, Any] = {}
        for lattice, names in (
            (self.doubled, ("modes", "core_modes", "noise_modes")),
            (self.features, ("core_scores", "noise_core_modes", "noise_core_scores")),
        ):
            aim = doubled(smaller) if lattice is not self.features else smaller
            for name in names:
                value = getattr(self, name)
                if value is not None:
                    parts[name] = lattice.resize_modes(value, aim.n_modes)
        return replace(self, features=smaller, **parts)

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an npz file without pickles; ``tgpfast.load`` reads it."""
        facts, arrays = self._members()
        storage.write(path, KIND, facts, arrays)

    def _members(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(facts, arrays) of a file."""
        f = self.features
        arrays = {"lengths": f.lengths, "origin": f.origin, "margin": np.asarray(f.margin)}
        arrays["noise_levels"] = self.noise_levels
        for name in SUMS:
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                arrays[name] = _as_reals(value)
        facts = {
            "n_modes": list(f.n_modes), "kernel": f.kernel, "bandwidth": f.bandwidth,
            "walls": list(f.walls), "n": self.n, "n_rows": self.n_rows, "sum_w2": self.sum_w2,
            "scores_of": self.scores_of, "provenance": self.provenance,
        }  # fmt: skip
        return facts, arrays

    @classmethod
    def _from_file(
        cls, path: Any, facts: dict[str, Any], arrays: dict[str, Any]
    ) -> LatticeStatistics:
        box = {name: storage.take(arrays, name, None, path)
               for name in ("lengths", "origin", "margin")}  # fmt: skip
        features = LatticeFeatures(
            n_modes=tuple(facts["n_modes"]), kernel=facts["kernel"], bandwidth=facts["bandwidth"],
            walls=tuple(facts["walls"]), **box,
        )  # fmt: skip
        levels = check_levels(storage.take(arrays, "noise_levels", None, path))
        shapes = _shapes(features, len(levels), facts["scores_of"] is not None)
        logs = storage.take(arrays, "sum_log_bases", None, path)
        sums: dict[str, Any] = {"sum_log_bases": logs.reshape(-1)}
        pair = () if features.mode_dtype is np.float64 else (2,)
        for name, shape in shapes.items():
            sums[name] = _from_reals(storage.take(arrays, name, shape + pair, path), features)
        if arrays:
            raise ValueError(f"{os.fspath(path)!r} holds unexpected members: {sorted(arrays)}")
        return cls(
            features, float(facts["n"]), int(facts["n_rows"]), float(facts["sum_w2"]),
            scores_of=facts["scores_of"], noise_levels=levels,
            provenance=dict(facts["provenance"]), **sums,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"LatticeStatistics(n_rows={self.n_rows:,}, n={self.n:.6g}, {self.features!r})"


# the fields that add
SUMS = (
    "n", "n_rows", "sum_w2", "modes", "sum_log_bases", "core_modes", "core_scores", "noise_modes",
    "noise_core_modes", "noise_core_scores",
)  # fmt: skip


def doubled(features: LatticeFeatures) -> LatticeFeatures:
    """The lattice with twice as many modes along each axis."""
    return features.with_modes([2 * m for m in features.n_modes])


def scores_kind(base: Base | None, features: LatticeFeatures) -> str | None:
    """What score sums of a base are marked by: "positions" of a Gaussian on a lattice of waves,
    which serve every Gaussian, else the fingerprint of the base; None without one."""
    if base is None:
        return None
    is_free = isinstance(base, GaussianBase) and not any(features.cosine)
    return POSITIONS if is_free else base.fingerprint


def _combine(operate: Any, mine: Any, theirs: Any) -> Any:
    return None if mine is None else operate(mine, theirs)


def _shapes(
    features: LatticeFeatures, n_levels: int, has_scores: bool
) -> dict[str, tuple[int, ...]]:
    """Shapes of the sums that statistics have."""
    d, wide, narrow = features.dimension, doubled(features).mode_shape, features.mode_shape
    shapes: dict[str, tuple[int, ...]] = {"modes": wide}
    if has_scores:
        shapes |= {"core_modes": wide, "core_scores": (d, *narrow)}
    if n_levels:
        shapes |= {
            "noise_modes": wide, "noise_core_modes": (n_levels, *narrow),
            "noise_core_scores": (n_levels, d, *narrow),
        }  # fmt: skip
    return shapes


def _as_reals(array: Modes) -> Array:
    """Complex numbers as pairs along one more axis."""
    if array.dtype.kind != "c":
        return array
    return np.ascontiguousarray(array).view(np.float64).reshape(*array.shape, 2)


def _from_reals(array: Array, features: LatticeFeatures) -> Modes:
    if features.mode_dtype is np.float64:
        return array
    return np.ascontiguousarray(array).view(np.complex128)[..., 0]


# -- the pass ------------------------------------------------------------------------------------


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
    (2.0, (9,))
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
    folds: int | NDArray[np.integer[Any]],
    *,
    bases: Sequence[Sequence[Base]] = (),
    **options: Any,
) -> list[LatticeStatistics]:
    """The sums of every fold of the rows, in one pass. Their sum is that of all rows.

    Parameters
    ----------
    X, features
        As for `accumulate_lattice`.
    folds : int or (n,) ints
        Number of folds, to which rows belong by `fold_of_rows`; or the number of the fold of each
        row, from 0.
    bases : list of lists of Base, default none
        For each fold, bases whose log densities are summed over the rows of that fold.
    **options
        As for `accumulate_lattice`.

    Returns
    -------
    list of LatticeStatistics
        One for each fold.
    """
    if np.ndim(folds) == 0:
        count = whole("folds", folds)
    else:
        labels = np.asarray(folds)
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.min(initial=0) < 0:
            raise ValueError("folds must be a number of folds, or a whole number from 0 a row")
        count = int(labels.max(initial=0)) + 1
    return _accumulate(X, features, folds, list(bases) or [[]] * count, **options)


def fold_of_rows(first: int, n: int, n_folds: int) -> NDArray[np.int64]:
    """Folds of n rows from the number ``first`` on: random, and the same in every pass."""
    return np.asarray(row_keys(first, n) % np.uint64(n_folds), dtype=np.int64)


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
    blocks = X
    if not isinstance(X, Blocks):
        blocks = as_blocks(X, sample_weight=sample_weight, dimension=features.dimension)
    limit = memory.budget(blocks.budget if budget is None else budget)
    check_memory(features, len(bases), limit, base is not None, len(levels))
    part = functools.partial(
        _sum_part, features=features, folds=folds, bases=bases, base=base, levels=levels,
        tolerance=tolerance,
    )  # fmt: skip
    total: _Folds = blocks.reduce(part, threads.backend, threads.n_threads, progress)
    return total.parts


def _check_base(base: Base | None, features: LatticeFeatures, levels: Array) -> None:
    if base is not None and base.dimension != features.dimension:
        raise ValueError(
            f"base has dimension {base.dimension}, the lattice has {features.dimension}"
        )
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
        sizes = _shapes(lattice, n_levels, has_scores).values()
        numbers = sum(np.prod(size, dtype=float) for size in sizes)
        return int(2 * 16 * n_folds * numbers) + required_memory(doubled(lattice))

    if need(features) <= budget:
        return
    share, fitting = 1.0, features
    while need(fitting) > budget and max(fitting.n_modes) > 1:
        share *= 0.9
        fitting = features.with_modes([max(1, int(share * m)) for m in features.n_modes])
    raise ValueError(
        f"a lattice of n_modes={features.n_modes} needs {memory.human(need(features))} for its "
        f"sums, and the budget is {memory.human(budget)}; n_modes={fitting.n_modes} would fit"
    )


@dataclass
class _Folds:
    """Sums of every fold, which add fold by fold."""

    parts: list[LatticeStatistics]

    def __add__(self, other: _Folds) -> _Folds:
        return _Folds([a + b for a, b in zip(self.parts, other.parts, strict=True)])


def _sum_part(
    blocks: Blocks, threads: Threads, features: LatticeFeatures, folds: Any,
    bases: Sequence[Sequence[Base]], base: Base | None, levels: Array, tolerance: float,
    progress: bool = False,
) -> _Folds:  # fmt: skip
    """The pass over all rows, or over one partition."""
    _, n_threads = threads.resolve()
    waves = WaveSums(doubled(features), tolerance, n_threads)
    sums = [_Sums(features, waves, base, levels, fold_bases) for fold_bases in bases]
    row = blocks.first_row
    with Progress(progress, "rows", blocks.n_rows) as bar:
        for x, w in Chunks(blocks, max(CHUNK_ROWS, 4 * waves.n_nodes)):
            _check_walls(x, features, row)
            if folds is None:
                sums[0].add(x, w)
            else:
                for fold, rows in enumerate(_rows_of_folds(folds, row, len(x), len(sums))):
                    if len(rows):
                        sums[fold].add(x[rows], None if w is None else w[rows])
            row += len(x)
            bar.add(len(x))
    engine = "finufft" if has_finufft() else "exact"
    facts = {"engine": f"lattice/{engine}", "tolerance": tolerance, "threads": n_threads}
    return _Folds([part.finish(facts) for part in sums])


def _rows_of_folds(folds: Any, first: int, n: int, n_folds: int) -> list[NDArray[np.intp]]:
    """Places of the rows of each fold in a chunk."""
    if np.ndim(folds) == 0:
        labels = fold_of_rows(first, n, n_folds)
    else:
        labels = np.asarray(folds)[first : first + n]
        if len(labels) != n:
            raise ValueError(f"folds has {len(folds)} entries, but X has more rows")
    return [np.flatnonzero(labels == fold) for fold in range(n_folds)]


def _check_walls(x: Array, features: LatticeFeatures, first: int) -> None:
    """ValueError that names the first row beyond a wall."""
    for axis, kind in enumerate(features.walls):
        if not kind.startswith("wall"):
            continue
        column, room = x[:, axis], WALL_ROUNDING * features.lengths[axis]
        low, high = features.origin[axis], features.origin[axis] + features.lengths[axis]
        beyond = np.zeros(len(x), bool)
        if kind != "wall_above":
            beyond |= column < low - room
        if kind != "wall_below":
            beyond |= column > high + room
        if beyond.any():
            at = int(np.flatnonzero(beyond)[0])
            raise ValueError(
                f"row {first + at} has {column[at]:.6g} in column {axis}, beyond a wall of the "
                f"lattice, which reaches from {low:.6g} to {high:.6g}"
            )


class _Sums:
    """The sums of one fold while a pass runs."""

    def __init__(
        self, features: LatticeFeatures, waves: WaveSums, base: Base | None, levels: Array,
        bases: Sequence[Base],
    ) -> None:  # fmt: skip
        self.features, self.waves, self.base, self.levels = features, waves, base, levels
        self.bases, self.scores_of = bases, scores_kind(base, features)
        self.center = features.origin + 0.5 * features.lengths
        self.n, self.n_rows, self.sum_w2 = 0.0, 0, 0.0
        self.logs = np.zeros(len(bases))
        shapes = _shapes(features, len(levels), base is not None)
        self.sums: dict[str, Modes] = {
            name: np.zeros(shape, features.mode_dtype) for name, shape in shapes.items()
        }

    def add(self, x: Array, w: Array | None) -> None:
        """Add rows and their weights."""
        weights = np.ones(len(x)) if w is None else w
        self.n += float(weights.sum())
        self.sum_w2 += float(weights @ weights)
        self.n_rows += len(x)
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


storage.register_reader(KIND, LatticeStatistics._from_file)
