"""The spectral engine: for d <= 3 every statistic is a Fourier transform of the data (design 1.4).

With F(w) = sum_i w_i e^{i w . x_i} and E_s = e^{i c_s}, as sin a sin b = (cos(a-b) - cos(a+b))/2,

    Phi'_st = Re[E_s conj(E_t) F(f_s - f_t) - E_s E_t F(f_s + f_t)] / S,     f = z / gamma

and Phi with a plus sign; sums of phi and phi' are F at the f_s, and those of phi' x its gradient
there. All of F comes from one non-uniform FFT (type 3): O(N + S^2 + grid), where the
direct engine takes O(N S^2). The grid grows with the extent of the points times that of the
frequencies, so the few points outside a box, chosen by cost, are left to the direct engine.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..data.blocks import Blocks, copy_block
from ..features.random import Features
from ..runtime import memory
from ..runtime.progress import Progress
from ..validation import Array
from . import costs
from .direct import accumulate_direct, check_sums, required_memory
from .spread_grid import LEAST_EPS, Complex, Filling, SpreadGrid, kernel_width, load_finufft
from .statistics import Statistics

DIMENSIONS = 3
CHUNK_NUMBERS = 2**25  # coordinates of the points of one transform: 256 MB
AHEAD_ROWS = 2**18  # of the blocks that are read ahead: several are held
SAMPLE_ROWS = 50_000  # from which the box is chosen
ONE_THREAD = 30_000  # points and targets below which waking another thread costs more than it does
OUTSIDE_ROWS = 500_000  # points outside that are held before the direct engine takes them
WIDEST = 16  # of finufft's kernels
PILOT_ROWS = 20_000  # looked at to estimate the cost
SAFETY = 0.18  # share of the tolerance asked of a transform: it erred by 5.4 times that at worst
COARSE_ROWS = 100_000  # fewer points are not worth the coarse grid, which must be checked
CHECKS = 64  # frequencies at which F of a coarse grid is summed term by term
CHECK_SHARE = 0.1  # of the tolerance, which those must keep
STREAM_CHUNKS = 4  # that a stream is taken to have when it has more than one
FILL_SHARE = 0.3  # of the cost of a row outside the transform: in small chunks, buffers used again
MARGIN = 1.25  # a box made from a sample of the rows is this much wider
BUDGET_VARIABLE = "TGPFAST_MEMORY_BUDGET"  # bytes, or "2GB"
BUDGET_SHARE = 0.4  # of the memory available, where nothing is said
# half sides of the boxes tried, in units of the way from the median to the tenths at either end
STRETCHES = (100.0, 30.0, 15.0, 9.0, 6.0, 4.5, 3.5, 2.8, 2.2, 1.8, 1.5)


def memory_budget(given: Any = None) -> int:
    """Bytes that the engine may take: given, or TGPFAST_MEMORY_BUDGET, or 40 % of what is free."""
    value = given if given is not None else os.environ.get(BUDGET_VARIABLE)
    if value is None:
        free = memory.available()
        return int(BUDGET_SHARE * free) if free else 2 * 1024**3
    return memory.parse(value)


def bandwidths_of(features: Features, noise_levels: Array) -> list[float]:
    """gamma, and gamma_sigma of every noise level above zero."""
    gamma = features.bandwidth
    return [gamma, *(float(np.hypot(gamma, s)) for s in noise_levels if s > 0.0)]


class Targets:
    """The frequencies at which F is wanted: for every bandwidth, f_s, then f_s - f_t (s < t), then
    f_s + f_t (s <= t). Those with the signs turned are the conjugates."""

    def __init__(self, features: Features, bandwidths: list[float]) -> None:
        z, S = features.frequencies, features.n_features
        self.n_features, self.bandwidths = S, bandwidths
        pairs = S * (S - 1) // 2
        self.level_size = S + pairs + pairs + S
        self.axes = [np.empty(len(bandwidths) * self.level_size) for _ in range(z.shape[1])]
        for k, axis in enumerate(self.axes):
            unit = axis[: self.level_size]
            unit[:S] = z[:, k]
            at = S
            for s in range(S - 1):
                unit[at : at + S - 1 - s] = z[s, k] - z[s + 1 :, k]
                at += S - 1 - s
            for s in range(S):
                unit[at : at + S - s] = z[s, k] + z[s:, k]
                at += S - s
            for h, gamma in reversed(list(enumerate(bandwidths))):
                axis[h * self.level_size : (h + 1) * self.level_size] = unit / gamma
        self.reach = np.array([np.abs(axis).max() for axis in self.axes])

    def level(self, F: Complex, h: int) -> tuple[Complex, Complex, Complex]:
        """(F(f_s), packed differences, packed sums) of one bandwidth."""
        S, first = self.n_features, h * self.level_size
        cut = first + S + S * (S - 1) // 2
        return F[first : first + S], F[first + S : cut], F[cut : first + self.level_size]

    @staticmethod
    def memory(n_features: int, n_levels: int, d: int) -> int:
        """Bytes of the targets, of F twice, and of the transform's own copies."""
        return n_levels * n_features * (n_features + 1) * (8 * d * 2 + 16 * 2 + 8)


@dataclass(frozen=True)
class Plan:
    """How one chunk is transformed: corners of the core box, upsampling, grid, cost."""

    low: Array
    high: Array
    whole: bool  # no point lies outside
    upsampling: float
    grid_bytes: int
    seconds: float

    @property
    def middle(self) -> Array:
        return 0.5 * (self.low + self.high)

    @property
    def half(self) -> Array:
        return 0.5 * (self.high - self.low)

    def inside(self, y: Array) -> NDArray[np.bool_]:
        """Which points lie in the box."""
        return np.asarray(((y >= self.low) & (y <= self.high)).all(axis=1))


def grid_nodes(half: Array, reach: Array, eps: float, upsampling: float) -> tuple[float, float]:
    """(nodes of the inner grid of a type-3 transform, nodes of its upsampled FFT)."""
    width = kernel_width(eps, upsampling)
    sides = 2.0 * upsampling * half * reach / np.pi + width + 1.0
    sides = np.maximum(sides, 2.0 * width)
    return float(np.prod(sides)), float(np.prod(np.maximum(upsampling * sides, 2.0 * width)))


def plan_chunk(
    y: Array, targets_reach: Array, n_targets: int, row_cost: float, eps: float, budget: int,
    spreads: int = 1, coarse: bool = True, n: int | None = None,
) -> Plan | None:  # fmt: skip
    """The cheapest core box for these points (about the centre) within the budget; None if none
    fits. row_cost : seconds of the direct engine for one point outside; spreads : transforms that
    share the points; coarse : whether a grid that must be checked may be chosen; n : how many
    points y, if it is a sample, stands for."""
    n = len(y) if n is None else n
    upsamplings = (2.0, 1.25) if coarse and n >= COARSE_ROWS else (2.0,)
    least = 1e-3 / targets_reach  # a box needs some width

    def cheapest(low: Array, high: Array, outside: float) -> Plan | None:
        middle, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), least)
        plans = []
        for upsampling in upsamplings:
            width = kernel_width(eps, upsampling)
            inner, fft = grid_nodes(half, targets_reach, eps, upsampling)
            size = 16.0 * (inner + fft)
            if width <= WIDEST and size <= budget:
                seconds = costs.COSTS.transform(
                    int(n - outside), n_targets, fft, width, len(low), spreads
                )
                plans.append(Plan(
                    middle - half, middle + half, outside == 0, upsampling, int(size),
                    seconds + row_cost * outside,
                ))  # fmt: skip
        return min(plans, key=lambda plan: plan.seconds, default=None)

    y_low, y_high = y.min(axis=0), y.max(axis=0)
    best = cheapest(y_low, y_high, 0)
    free = costs.COSTS.transform(n, n_targets, 2.0, kernel_width(eps, 2.0), y.shape[1], spreads)
    if best is not None and best.seconds < 1.2 * free:
        return best  # the grid costs next to nothing: no point need be left outside
    some = y[:: max(1, len(y) // SAMPLE_ROWS)]
    bottom, middle, top = np.quantile(some, [0.1, 0.5, 0.9], axis=0)
    for stretch in STRETCHES:
        low, high = middle - stretch * (middle - bottom), middle + stretch * (top - middle)
        low, high = np.maximum(low, y_low), np.minimum(high, y_high)
        out = 1.0 - float(((some >= low) & (some <= high)).all(axis=1).mean())
        plan = cheapest(low, high, max(out * n, 1.0))
        if plan is not None and (best is None or plan.seconds < best.seconds):
            best = plan
    return best


def transform(
    columns: list[Array], strengths: Complex, axes: list[Array], eps: float, upsampling: float,
    n_threads: int,
) -> Complex:  # fmt: skip
    """sum_i strengths_i e^{i w . y_i} at every target w; points and targets by coordinate."""
    finufft = load_finufft()
    if len(strengths) + len(axes[0]) < ONE_THREAD:
        n_threads = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tolerance near rounding; what results is checked
        plan = finufft.Plan(
            3, len(columns), 1, eps, 1, nthreads=n_threads, upsampfac=upsampling, showwarn=0
        )
        plan.setpts(*columns, **dict(zip("stu", axes, strict=False)))
        result: Complex = plan.execute(strengths)
    return result


class Work:
    """What a pass is to find, and what it may cost."""

    def __init__(
        self, features: Features, noise_levels: Array, gram_phi: bool, tolerance: float,
        budget: int,
    ) -> None:  # fmt: skip
        self.features, self.bandwidths = features, bandwidths_of(features, noise_levels)
        S, d = features.n_features, features.dimension
        self.eps = max(SAFETY * tolerance, LEAST_EPS)
        self.row_cost = costs.COSTS.direct_row(S, d, len(noise_levels), gram_phi)
        self.room = budget - Targets.memory(S, len(self.bandwidths), d)
        self.n_base = len(self.bandwidths) * S
        self.n_pairs = self.n_base * (S + 1)

    def plan(self, y: Array, n: int, coarse: bool = True) -> Plan | None:
        """How to transform n points, of which y are some, at once."""
        neighbours = self.n_base * self.features.dimension * len(stencil(self.eps)[0])
        return plan_chunk(
            y, self.features.bandlimit, self.n_pairs + neighbours, self.row_cost, self.eps,
            self.room, coarse=coarse, n=n,
        )  # fmt: skip

    def seconds_by_chunks(self, y: Array, n: int) -> float:
        """A transform a chunk, of n rows of which y are some; infinite where none fits."""
        plan = self.plan(y, n)
        if plan is None:
            return np.inf
        d = y.shape[1]
        width = kernel_width(self.eps, plan.upsampling)
        _, fft = grid_nodes(plan.half, self.features.bandlimit, self.eps, plan.upsampling)
        targets = self.n_pairs + self.n_base * d * len(stencil(self.eps)[0])
        once = costs.COSTS.transform(0, targets, fft, width, d)
        inside = float(plan.inside(y).mean()) * n
        points = costs.COSTS.transform(int(inside), 0, 2.0, width, d)
        return float(-(-n * d // CHUNK_NUMBERS) * once + points + self.row_cost * (n - inside))

    def one_grid(self, y: Array, n: int) -> tuple[SpreadGrid | None, float]:
        """(the grid for n rows of which y are some, seconds); None and infinite where none fits."""
        plan = self.plan(y, n, coarse=False)
        if plan is None:
            return None, np.inf
        reach = plan.half * (MARGIN if plan.whole else 1.0)
        place = SpreadGrid(
            self.features.bandlimit, plan.middle - reach, plan.middle + reach, self.eps
        )
        if place.memory > self.room:
            return None, np.inf
        d, inside = y.shape[1], float(plan.inside(y).mean()) * n
        fft, cost = place.nodes * 2.0**d, costs.COSTS
        points = cost.transform(int(inside), 0, 2.0, place.width, d)
        points -= (1.0 - FILL_SHARE) * cost.row * d * inside
        read = cost.transform(0, self.n_pairs, fft, place.width + 1, d, spreads=2)
        read += cost.transform(0, self.n_base, fft, place.width + 1, d, spreads=2 + 2 * d)
        return place, points + read + self.row_cost * (n - inside)


class Transforms:
    """F at the targets, and G_k, the x_k-weighted F, at the f_s alone; points about ``centre``."""

    def __init__(self, features: Features, bandwidths: list[float], centre: Array) -> None:
        self.features, self.bandwidths, self.centre = features, bandwidths, centre
        self.targets = Targets(features, bandwidths)
        self.base = np.concatenate([features.frequencies / gamma for gamma in bandwidths])
        self.F = np.zeros(len(self.targets.axes[0]), np.complex128)
        self.G = np.zeros((features.dimension, len(self.base)), np.complex128)
        self.weight = 0.0  # F(0)

    def at_base(self, F: Complex) -> Complex:
        """F at the f_s of every bandwidth, out of F at all targets."""
        size, S = self.targets.level_size, self.features.n_features
        levels = range(len(self.bandwidths))
        return np.concatenate([F[h * size : h * size + S] for h in levels])


class _Accumulator(Transforms):
    """Transforms summed over chunks of points; those outside the core are handed back."""

    def __init__(
        self, work: Work, centre: Array, backend: ModuleType, n_threads: int, must_fit: bool = True
    ) -> None:
        super().__init__(work.features, work.bandwidths, centre)
        self.work, self.backend, self.n_threads = work, backend, n_threads
        self.must_fit = must_fit
        self.coarse, self.grid_bytes = True, 0

    def add(self, x: Array, w: Array | None) -> tuple[Array, Array | None]:
        """Transform a chunk; returns the points (and weights) that were left outside."""
        if w is not None and not w.all():
            x, w = x[w > 0.0], w[w > 0.0]
        if not len(x):
            return x, w
        y, weights = x - self.centre, w
        plan = self.work.plan(y, len(y), coarse=self.coarse)
        if plan is None and self.must_fit:
            raise MemoryError
        if plan is None:
            return x, w
        out = (x[:0], None if w is None else w[:0])
        if not plan.whole:
            inside = plan.inside(y)
            out = (x[~inside], None if w is None else w[~inside])
            y, w = y[inside], None if w is None else w[inside]
        if len(y):
            try:
                self._transform(y, w, plan)
            except CoarseGridError:
                self.coarse = False
                return self.add(x, weights)
        self.grid_bytes = max(self.grid_bytes, plan.grid_bytes)
        return out

    def _transform(self, y: Array, w: Array | None, plan: Plan) -> None:
        """F, and by its derivative G, from one transform: i y e^{i f y} is the derivative of
        e^{i f y} in f, which the stencil takes from F at the neighbours of every f_s."""
        ones = np.ones(len(y), np.complex128) if w is None else w.astype(np.complex128)
        offsets, coefficients = stencil(self.work.eps)
        extra: list[list[Array]] = [[] for _ in range(y.shape[1])]
        for k, half in enumerate(plan.half):
            for j, axis in enumerate(extra):
                near = self.base[:, j, None] + (offsets / half if j == k else 0.0 * offsets)
                axis.append(near.ravel())
        pairs = zip(self.targets.axes, extra, strict=True)
        axes = [np.concatenate([main, *more]) for main, more in pairs]
        columns = [y[:, k] - middle for k, middle in enumerate(plan.middle)]
        result = transform(columns, ones, axes, self.work.eps, plan.upsampling, self.n_threads)
        del columns
        result *= np.exp(1j * sum(axis * m for axis, m in zip(axes, plan.middle, strict=True)))
        if plan.upsampling < 2.0 and not self._holds(y, w, result[: len(self.F)]):
            raise CoarseGridError
        self.weight += float(ones.real.sum())
        self.F += result[: len(self.F)]
        # about the middle of the box: e^{i f m} (G + m F) is G about the centre
        neighbours = result[len(self.F) :].reshape(len(plan.half), len(self.base), -1)
        turns = np.exp(-1j * plan.middle[:, None] * (offsets / plan.half[:, None]))
        slopes = np.einsum("kbj,kj->kb", neighbours, turns * coefficients)
        here = self.at_base(result)
        self.G += -1j * plan.half[:, None] * slopes + plan.middle[:, None] * here

    def _holds(self, y: Array, w: Array | None, F: Complex) -> bool:
        """Whether some of F, picked evenly, agree with sums term by term. Coarse grids err less
        than the tolerance on any spread of points, but not on a few that coincide."""
        picked = np.linspace(0, len(F) - 1, CHECKS).astype(int)
        frequencies = np.stack([axis[picked] for axis in self.targets.axes], axis=1)
        cosines, sines = wave_sums(frequencies, y, w, self.backend, self.n_threads)
        error = np.abs(cosines + 1j * sines - F[picked]).max()
        total = float(len(y) if w is None else w.sum())
        return bool(error <= CHECK_SHARE * self.work.eps / SAFETY * total)


class CoarseGridError(Exception):
    """A coarse grid has missed the tolerance; the fine one must do."""


def wave_sums(
    frequencies: Array, y: Array, w: Array | None, backend: ModuleType, n_threads: int
) -> tuple[Array, Array]:
    """Sums of w cos(f . y) and w sin(f . y) over the rows, term by term, (m,) each."""
    m, d = frequencies.shape
    cosines, sines = np.zeros(m), np.zeros(m)
    size = max(kernels.ROW_TILE, min(4_096, len(y), 2**23 // m))  # 64 MB, but a tile at least
    block = np.empty((m, size))
    with kernels.threads(backend, n_threads):
        for start in range(0, len(y), size):
            rows = np.ascontiguousarray(y[start : start + size])
            rows.flags.writeable = False
            root = np.zeros(0) if w is None else np.sqrt(w[start : start + size])
            root.flags.writeable = False
            backend.feature_block(
                rows, root, np.zeros(d), frequencies, np.zeros(m), 1.0, block, block[:0, :0],
                cosines, sines, np.zeros((m, d)), n_threads,
            )  # fmt: skip
    return cosines, -sines


@functools.lru_cache
def stencil(eps: float) -> tuple[Array, Array]:
    """(offsets, coefficients) with sum_j c_j e^{i o_j y} = i y for |y| <= 1, to about eps: the
    derivative of a function whose waves lie within a known band, from its values around a point.

    c_j = -c_-j, so the sum is 2 i sum_j c_j sin(o_j y): sines fitted to y. With o_j = j pi / 2 the
    error falls by a factor of 6 for each j, and the |c_j| add up to less than 2.5.
    """
    y = np.cos(0.5 * np.pi * (np.arange(200) + 0.5) / 200)
    for size in range(4, 21):
        j = np.arange(1, size + 1)
        sines = 2.0 * np.sin(0.5 * np.pi * np.outer(y, j))
        c = np.linalg.lstsq(sines, y, rcond=1e-14)[0]
        if np.abs(sines @ c - y).max() < 0.3 * max(eps, 1e-13):
            break
    return 0.5 * np.pi * np.concatenate([j, -j]), np.concatenate([c, -c])


def accumulate_spectral(
    blocks: Blocks,
    features: Features,
    noise_levels: Array,
    origin: Array,
    *,
    gram_phi: bool,
    tolerance: float,
    budget: int,
    backend: ModuleType,
    n_threads: int,
    progress: bool = False,
    must_fit: bool = True,
) -> Statistics:
    """The statistics of all blocks; MemoryError where the smallest core box exceeds the budget, or,
    unless ``must_fit``, the direct engine for such chunks.

    Up to one chunk of points, or where a fixed grid would cost more: a transform a chunk. Else all
    are spread on one grid, from which the sums are read at the end.
    """
    load_finufft()
    work = Work(features, noise_levels, gram_phi, tolerance, budget)
    small = SmallSums(features.dimension, origin, backend, n_threads)
    outside = _Outside(features, noise_levels, origin, gram_phi, backend, n_threads)
    with (
        np.errstate(over="ignore", invalid="ignore"),  # overflow is explained at the end
        Progress(progress, "rows", blocks.n_rows) as bar,
    ):
        place, chunks = _arranged(blocks, work)

        def counted() -> Iterator[tuple[Array, Array | None]]:
            for x, w in chunks:
                small.add(x, w)
                yield x, w
                bar.add(len(x))

        if place is None:
            sums, grid_bytes = _by_chunks(
                counted(), work, outside, backend, n_threads, must_fit
            )
        else:
            sums, grid_bytes = _on_grid(counted(), work, place, outside, n_threads)
        rest = outside.total()
    provenance = {
        "engine": "spectral", "backend": backend.NAME, "precision": "float64",
        "tolerance": tolerance, "threads": n_threads, "rows_outside": outside.n_rows,
        "grid_bytes": grid_bytes, "one_grid": place is not None,
    }  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        stats = assemble(sums, small, noise_levels, origin, gram_phi, provenance)
    if rest is None:
        return stats
    # moments of every row are in ``stats`` already
    return replace(stats + without_moments(rest), provenance=provenance)


def _arranged(
    blocks: Blocks, work: Work
) -> tuple[SpreadGrid | None, Iterable[tuple[Array, Array | None]]]:
    """(the grid for all rows, or None for a transform a chunk; the rows in chunks)."""
    chunks = Chunks(blocks)
    whole = chunks.rows
    if blocks.n_rows is not None:
        sample = blocks.pilot(PILOT_ROWS) if blocks.n_rows > whole else None
        if sample is not None:
            place = _cheaper_grid(work, sample[0], blocks.n_rows)
            if place is not None:
                return place, Chunks(blocks, place.fill_rows)
        return None, chunks
    rows = iter(chunks)
    first = next(rows)
    chunks.rows = 1  # a look ahead shall not gather another chunk
    second = next(rows, None)
    if second is None:
        return None, [first]
    some = first[0][:: max(1, len(first[0]) // PILOT_ROWS)]
    place = _cheaper_grid(work, some, STREAM_CHUNKS * len(first[0]))
    chunks.rows = whole if place is None else place.fill_rows
    return place, itertools.chain([first, second], rows)


def _cheaper_grid(work: Work, sample: Array, n: int) -> SpreadGrid | None:
    """The grid for n rows, where it costs less than a transform a chunk."""
    place, seconds = work.one_grid(sample, n)
    return place if seconds < work.seconds_by_chunks(sample, n) else None


def _by_chunks(
    chunks: Iterable[tuple[Array, Array | None]], work: Work, outside: _Outside,
    backend: ModuleType, n_threads: int, must_fit: bool,
) -> tuple[Transforms, int]:  # fmt: skip
    """(sums of a transform a chunk, bytes of the largest grid)."""
    sums: _Accumulator | None = None
    for x, w in chunks:
        if sums is None:
            centre = np.median(x[:: max(1, len(x) // 10_000)], axis=0)
            sums = _Accumulator(work, centre, backend, n_threads, must_fit)
        outside.add(*sums.add(x, w))
    assert sums is not None
    return sums, sums.grid_bytes


def _on_grid(
    chunks: Iterable[tuple[Array, Array | None]], work: Work, place: SpreadGrid, outside: _Outside,
    n_threads: int,
) -> tuple[Transforms, int]:  # fmt: skip
    """(sums read off one grid on which all chunks were spread, its bytes)."""
    filling, size = Filling(place, n_threads), place.fill_rows
    for x, w in chunks:
        for start in range(0, len(x), size):
            part = x[start : start + size]
            weights = None if w is None else w[start : start + size]
            left = filling.add(part, weights)
            if left is not None:
                outside.add(part[left], None if weights is None else weights[left])
    sums = Transforms(work.features, work.bandwidths, place.centre)
    base = [np.ascontiguousarray(axis) for axis in sums.base.T]
    sums.F, sums.G = place.sums(filling.grid, sums.targets.axes, base, n_threads)
    sums.weight = filling.weight
    return sums, int(place.memory)


class _Outside:
    """Points outside the core, for the direct engine, which takes them OUTSIDE_ROWS at a time."""

    def __init__(
        self, features: Features, noise_levels: Array, origin: Array, gram_phi: bool,
        backend: ModuleType, n_threads: int,
    ) -> None:  # fmt: skip
        self.inputs = (features, noise_levels, origin)
        self.options: dict[str, Any] = {
            "gram_phi": gram_phi, "precision": "float64", "backend": backend,
            "n_threads": n_threads,
        }  # fmt: skip
        self.n_rows, self._held = 0, 0
        self._rows: list[Any] = []
        self._sum: Statistics | None = None

    def add(self, x: Array, w: Array | None) -> None:
        if w is not None and not w.all():
            x, w = x[w > 0.0], w[w > 0.0]
        if len(x):
            self._rows.append(x if w is None else (x, w))
            self.n_rows += len(x)
            self._held += len(x)
            if self._held > OUTSIDE_ROWS:
                self.total()

    def total(self) -> Statistics | None:
        """The statistics of all of them; None if there were none."""
        if self._rows:
            blocks = Blocks(self._rows, dimension=self.inputs[0].dimension)
            part = accumulate_direct(blocks, *self.inputs, **self.options)
            self._sum = part if self._sum is None else self._sum + part
            self._rows, self._held = [], 0
        return self._sum


def fits(features: Features, noise_levels: Array, gram_phi: bool, budget: int) -> bool:
    """Whether the targets and the statistics fit a budget, whatever the points."""
    levels = len(bandwidths_of(features, noise_levels))
    need = Targets.memory(features.n_features, levels, features.dimension)
    need += required_memory(features, len(noise_levels), gram_phi, "float64", 1)
    return need <= budget


def estimate(
    blocks: Blocks, features: Features, noise_levels: Array, gram_phi: bool, tolerance: float,
    budget: int,
) -> float | None:  # fmt: skip
    """Seconds that the spectral engine would take, from a sample of the rows; None if its grids
    would not fit the budget."""
    pilot = blocks.pilot(PILOT_ROWS)
    if pilot is None or blocks.n_rows is None:
        return None
    work, n, y = Work(features, noise_levels, gram_phi, tolerance, budget), blocks.n_rows, pilot[0]
    seconds = work.seconds_by_chunks(y, n)
    if n * features.dimension > CHUNK_NUMBERS:
        seconds = min(seconds, work.one_grid(y, n)[1])
    return seconds if seconds < np.inf else None


def rows_that_pay(
    y: Array, features: Features, noise_levels: Array, gram_phi: bool, tolerance: float,
    budget: int,
) -> int | None:  # fmt: skip
    """From how many rows like y, up to one chunk, the spectral engine is the quicker; None where it
    is not. What comes after them is cheaper yet: the transform itself is paid for."""
    work = Work(features, noise_levels, gram_phi, tolerance, budget)
    n, most = len(y), CHUNK_NUMBERS // features.dimension
    while n <= most:
        if work.seconds_by_chunks(y, n) < work.row_cost * n:
            return n
        n *= 2
    return None


class Chunks:
    """Blocks gathered into chunks of up to ``rows`` rows, which may be changed on the way; a single
    block that has more is not cut. By default CHUNK_NUMBERS numbers."""

    def __init__(self, blocks: Blocks, rows: int | None = None) -> None:
        self.blocks = copy.copy(blocks)
        most = CHUNK_NUMBERS // max(blocks.dimension or 1, 1)
        self.rows = most if rows is None else min(rows, most)
        self.blocks.block_rows = self.rows
        if blocks.is_prefetched and (blocks.n_rows is None or blocks.n_rows > self.rows):
            self.blocks.block_rows = min(self.rows, AHEAD_ROWS)

    def __iter__(self) -> Iterator[tuple[Array, Array | None]]:
        rows: list[Array] = []
        weights: list[Array | None] = []
        size = 0
        stays_valid = self.blocks.blocks_stay_valid
        for x, w in self.blocks:
            if size and size + len(x) > self.rows:
                yield _joined(rows, weights)
                rows, weights, size = [], [], 0
            x, w = (x, w) if stays_valid else copy_block(x, w)
            rows.append(x)
            weights.append(w)
            size += len(x)
        yield _joined(rows, weights)


def chunks_of(blocks: Blocks) -> Iterator[tuple[Array, Array | None]]:
    """Blocks gathered into chunks of about CHUNK_NUMBERS."""
    return iter(Chunks(blocks))


def _joined(rows: list[Array], weights: list[Array | None]) -> tuple[Array, Array | None]:
    if len(rows) == 1:
        return rows[0], weights[0]
    if all(w is None for w in weights):
        return np.concatenate(rows), None
    filled = [np.ones(len(x)) if w is None else w for x, w in zip(rows, weights, strict=True)]
    return np.concatenate(rows), np.concatenate(filled)


class SmallSums:
    """n, sum x and sum x x^T about the origin, which need no transform."""

    def __init__(self, d: int, origin: Array, backend: ModuleType, n_threads: int) -> None:
        self.origin, self.backend, self.n_threads = np.array(origin), backend, n_threads
        self.sum_x, self.sum_xx = np.zeros(d), np.zeros((d, d))
        self.n, self.n_rows, self.sum_w2 = 0.0, 0, 0.0

    def add(self, x: Array, w: Array | None) -> None:
        root = np.zeros(0) if w is None else np.sqrt(w)
        root.flags.writeable = False
        lanes = 64
        rows = -(-len(x) // lanes)
        part_x = np.zeros((lanes, x.shape[1]))
        part_xx = np.zeros((lanes, x.shape[1], x.shape[1]))
        with kernels.threads(self.backend, self.n_threads):
            self.backend.moments(x, root, self.origin, rows, part_x, part_xx, self.n_threads)
        self.sum_x += part_x.sum(axis=0)
        self.sum_xx += part_xx.sum(axis=0)
        self.n += len(x) if w is None else float(w.sum())
        self.sum_w2 += len(x) if w is None else float(w @ w)
        self.n_rows += len(x)


def assemble(
    sums: Transforms, small: SmallSums, noise_levels: Array, origin: Array, gram_phi: bool,
    provenance: dict[str, Any],
) -> Statistics:  # fmt: skip
    features, z = sums.features, sums.features.frequencies
    S, d = z.shape
    amplitude, shift = np.sqrt(2.0 / S), sums.centre - origin
    levels = []  # (sum phi, sum phi', sum phi' x) of every bandwidth
    for h, gamma in enumerate(sums.bandwidths):
        E = np.exp(1j * (features.phases + z @ sums.centre / gamma))
        base = E * sums.targets.level(sums.F, h)[0]
        weighted = E * sums.G[:, h * S : (h + 1) * S]
        total = -amplitude * base.imag
        levels.append((
            amplitude * base.real, total, -amplitude * weighted.imag.T + np.outer(total, shift)
        ))  # fmt: skip
    check_sums(levels[0][0], small.sum_x, small.sum_xx)
    gram, cosines = _grams(sums, 0, gram_phi)
    noise_gram, noisy = np.zeros((S, S) if len(noise_levels) else (0, 0)), 0
    per_level = []
    for sigma in noise_levels:
        if sigma > 0.0:
            noisy += 1
            per_level.append(levels[noisy])
            _add_noise(sums, noisy, float(sigma), noise_gram)
        else:
            per_level.append(tuple(part.copy() for part in levels[0]))
            noise_gram += gram / features.bandwidth**2
    parts = [np.array([level[i] for level in per_level]) for i in range(3)]
    return Statistics(
        features=features, n=float(small.n), n_rows=small.n_rows, sum_w2=float(small.sum_w2),
        origin=np.array(origin), sum_x=small.sum_x, sum_xx=small.sum_xx, sum_phi=levels[0][0],
        sum_dphi=levels[0][1], sum_dphi_x=levels[0][2], gram=gram, gram_phi=cosines,
        noise_levels=noise_levels, noise_gram=noise_gram if len(noise_levels) else None,
        noise_sum_phi=parts[0].reshape(-1, S),
        noise_sum_dphi=parts[1].reshape(-1, S), noise_sum_dphi_x=parts[2].reshape(-1, S, d),
        provenance=dict(provenance),
    )  # fmt: skip


def _rows_of(sums: Transforms, h: int) -> Iterator[tuple[int, Array, Array]]:
    """(s, Re[E_s conj(E_t) F(f_s - f_t)], Re[E_s E_t F(f_s + f_t)]) for t = s .. S - 1."""
    features, gamma = sums.features, sums.bandwidths[h]
    E = np.exp(1j * (features.phases + features.frequencies @ sums.centre / gamma))
    _, differences, totals = sums.targets.level(sums.F, h)
    S, at, to = features.n_features, 0, 0
    minus = np.empty(S)
    for s in range(S):
        count = S - s
        minus[0] = sums.weight  # F(0)
        minus[1:count] = (E[s] * np.conj(E[s + 1 :]) * differences[at : at + count - 1]).real
        plus = (E[s] * E[s:] * totals[to : to + count]).real
        yield s, minus[:count], plus
        at += count - 1
        to += count


def _grams(sums: Transforms, h: int, gram_phi: bool) -> tuple[Array, Array | None]:
    S = sums.features.n_features
    gram = np.empty((S, S))
    cosines = np.empty((S, S)) if gram_phi else None
    for s, minus, plus in _rows_of(sums, h):
        gram[s, s:] = gram[s:, s] = (minus - plus) / S
        if cosines is not None:
            cosines[s, s:] = cosines[s:, s] = (minus + plus) / S
    return gram, cosines


def _add_noise(sums: Transforms, h: int, sigma: float, noise_gram: Array) -> None:
    """(Delta^- Re[difference] - Delta^+ Re[sum]) / (S gamma_sigma^2), the sum of both products."""
    S, gamma = sums.features.n_features, sums.bandwidths[h]
    u = sums.features.frequencies * (sigma / gamma)
    half = 0.5 * np.einsum("sk,sk->s", u, u)
    for s, minus, plus in _rows_of(sums, h):
        inner, level = u[s:] @ u[s], half[s] + half[s:]
        row = np.exp(np.minimum(inner - level, 0.0)) * minus
        row -= np.exp(np.minimum(-inner - level, 0.0)) * plus
        row /= S * gamma**2
        noise_gram[s, s:] += row
        noise_gram[s + 1 :, s] += row[1:]


def without_moments(stats: Statistics) -> Statistics:
    """The sums over features only: those of x and of the weights are zero."""
    d = stats.features.dimension
    return replace(
        stats, n=0.0, n_rows=0, sum_w2=0.0, sum_x=np.zeros(d), sum_xx=np.zeros((d, d))
    )
