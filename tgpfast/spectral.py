"""The spectral engine: for d <= 3 every statistic is a Fourier transform of the data (design 1.4).

With F(w) = sum_i w_i e^{i w . x_i} and E_s = e^{i c_s}, as sin a sin b = (cos(a-b) - cos(a+b))/2,

    Phi'_st = Re[E_s conj(E_t) F(f_s - f_t) - E_s E_t F(f_s + f_t)] / S,     f = z / gamma

and Phi with a plus sign; sums of phi and phi' are F at the f_s, and those of phi' x are transforms
of x-weighted points. All of F comes from one non-uniform FFT (type 3): O(N + S^2 + grid), where the
direct engine takes O(N S^2). The grid grows with the extent of the points times that of the
frequencies, so the few points outside a box, chosen by cost, are left to the direct engine.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import kernels, memory
from .blocks import Blocks
from .costs import Costs, load_costs
from .direct import accumulate_direct, required_memory
from .features import Array, Features
from .progress import Progress
from .statistics import Statistics

Complex = NDArray[np.complex128]

DIMENSIONS = 3
CHUNK_ROWS = 2**22  # rows of one transform
SAMPLE_ROWS = 20_000  # from which the scale of the points is taken
WIDEST = 16  # of finufft's kernels
PILOT_ROWS = 20_000  # looked at to estimate the cost
SAFETY = 0.3  # share of the tolerance that is asked of the transform
LEAST_EPS = 1e-14
BUDGET_VARIABLE = "TGPFAST_MEMORY_BUDGET"  # bytes, or "2GB"
BUDGET_SHARE = 0.4  # of the memory available, where nothing is said
# shares of the points that the core box may leave outside
OUTSIDE = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)


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
    """How one chunk is transformed: half sides of the core box, upsampling, grid, cost."""

    half: Array
    outside: int  # points left to the direct engine
    upsampling: float
    grid_bytes: int
    seconds: float


def kernel_width(eps: float, upsampling: float) -> int:
    """Grid points along each axis that finufft spreads a point over."""
    if upsampling == 2.0:
        return int(np.clip(np.ceil(-np.log10(eps / 10.0)), 2, 16))
    return int(np.ceil(-np.log(eps) / (np.pi * np.sqrt(1.0 - 1.0 / upsampling))))


def grid_nodes(half: Array, reach: Array, eps: float, upsampling: float) -> tuple[float, float]:
    """(nodes of the inner grid of a type-3 transform, nodes of its upsampled FFT)."""
    width = kernel_width(eps, upsampling)
    sides = 2.0 * upsampling * half * reach / np.pi + width + 1.0
    sides = np.maximum(sides, 2.0 * width)
    return float(np.prod(sides)), float(np.prod(np.maximum(upsampling * sides, 2.0 * width)))


def plan_chunk(
    y: Array, targets_reach: Array, n_targets: int, row_cost: float, eps: float, budget: int,
    costs: Costs, spreads: int | None = None,
) -> Plan | None:  # fmt: skip
    """The cheapest core box for these points (about the centre) within the budget; None if none
    fits. row_cost : seconds of the direct engine for one point outside; spreads : transforms that
    share the points, by default those of accumulation."""
    size = np.abs(y)
    widest = np.maximum(size.max(axis=0), 1e-3 / targets_reach)
    best = _cheapest(widest, 0, len(y), targets_reach, n_targets, row_cost, eps, budget, costs,
                     spreads)  # fmt: skip
    free = costs.transform(len(y), n_targets, 2.0, kernel_width(eps, 2.0), y.shape[1], spreads)
    if best is not None and best.seconds < 1.2 * free:
        return best  # the grid costs next to nothing: no point need be left outside
    some = size[:: max(1, len(y) // SAMPLE_ROWS)]
    scale = np.maximum(np.quantile(some, 0.9, axis=0), 1e-3 / targets_reach)
    radius = (size / scale).max(axis=1)
    ordered = np.sort(radius)
    for share in OUTSIDE:
        limit = ordered[max(len(y) - 1 - int(np.ceil(share * len(y))), 0)]
        outside = len(y) - int(np.searchsorted(ordered, limit, side="right"))
        half = np.minimum(widest, limit * scale)
        plan = _cheapest(half, outside, len(y), targets_reach, n_targets, row_cost, eps, budget,
                         costs, spreads)  # fmt: skip
        if plan is not None and (best is None or plan.seconds < best.seconds):
            best = plan
    return best


def _cheapest(
    half: Array, outside: int, n: int, reach: Array, n_targets: int, row_cost: float, eps: float,
    budget: int, costs: Costs, spreads: int | None,
) -> Plan | None:  # fmt: skip
    """The better of two upsamplings for one box, of those that fit."""
    plans = []
    for upsampling in (2.0, 1.25):
        width = kernel_width(eps, upsampling)
        inner, fft = grid_nodes(half, reach, eps, upsampling)
        size = 16.0 * (inner + fft)
        if width > WIDEST or size > budget:
            continue
        seconds = costs.transform(n - outside, n_targets, fft, width, len(half), spreads)
        plans.append(Plan(half, outside, upsampling, int(size), seconds + row_cost * outside))
    return min(plans, key=lambda plan: plan.seconds, default=None)


def transform(
    y: Array, strengths: Complex, axes: list[Array], eps: float, upsampling: float, n_threads: int
) -> Complex:
    """sum_i strengths_i e^{i w . y_i} at every target w; strengths (n,) or (m, n)."""
    import finufft

    d = y.shape[1]
    columns = [np.ascontiguousarray(y[:, k]) for k in range(d)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tolerance near rounding; what results is tested
        many = 1 if strengths.ndim == 1 else len(strengths)
        plan = finufft.Plan(
            3, d, many, eps, 1, nthreads=n_threads, upsampfac=upsampling, showwarn=0
        )
        plan.setpts(*columns, **dict(zip("stu", axes, strict=False)))
        result: Complex = plan.execute(strengths)
    return result


class Transforms:
    """F at the targets, and G_k, the x_k-weighted F, at the f_s alone; points about ``centre``."""

    def __init__(self, features: Features, bandwidths: list[float], centre: Array) -> None:
        self.features, self.bandwidths, self.centre = features, bandwidths, centre
        self.targets = Targets(features, bandwidths)
        self.base = np.concatenate([features.frequencies / gamma for gamma in bandwidths])
        self.F = np.zeros(len(self.targets.axes[0]), np.complex128)
        self.G = np.zeros((features.dimension, len(self.base)), np.complex128)
        self.weight = 0.0  # F(0)


class _Accumulator(Transforms):
    """Transforms summed over chunks of points; those outside the core are handed back."""

    def __init__(
        self,
        features: Features,
        bandwidths: list[float],
        centre: Array,
        eps: float,
        budget: int,
        row_cost: float,
        n_threads: int,
    ) -> None:
        super().__init__(features, bandwidths, centre)
        S, d = features.n_features, features.dimension
        self.eps, self.n_threads, self.row_cost = eps, n_threads, row_cost
        self.costs = load_costs()
        self.budget = budget - Targets.memory(S, len(bandwidths), d)
        # both signs of every f_s: strengths x_1 + i x_2 are told apart by F(-f) = conj F(f)
        self.signed = [np.concatenate([self.base[:, k], -self.base[:, k]]) for k in range(d)]
        self.n_outside, self.grid_bytes = 0, 0

    def add(self, x: Array, w: Array | None) -> tuple[Array, Array | None]:
        """Transform a chunk; returns the points (and weights) that were left outside."""
        y = x - self.centre
        plan = plan_chunk(
            y, self.targets.reach, len(self.F), self.row_cost, self.eps, self.budget, self.costs
        )
        if plan is None:
            raise MemoryError
        inside = (np.abs(y) <= plan.half).all(axis=1)
        out = (x[:0], None if w is None else w[:0])
        if not inside.all():
            out = (x[~inside], None if w is None else w[~inside])
            y, w = y[inside], None if w is None else w[inside]
        self.n_outside += len(out[0])
        self.grid_bytes = max(self.grid_bytes, plan.grid_bytes)
        if len(y):
            self._transform(y, w, plan)
        return out

    def _transform(self, y: Array, w: Array | None, plan: Plan) -> None:
        ones = np.ones(len(y)) if w is None else w
        self.weight += float(ones.sum())
        run = {"eps": self.eps, "upsampling": plan.upsampling, "n_threads": self.n_threads}
        self.F += transform(y, ones.astype(np.complex128), self.targets.axes, **run)  # type: ignore[arg-type]
        d = y.shape[1]
        for k in range(0, d, 2):
            packed = np.empty(len(y), np.complex128)
            packed.real = ones * y[:, k]
            packed.imag = ones * y[:, k + 1] if k + 1 < d else 0.0
            both = transform(y, packed, self.signed, **run)  # type: ignore[arg-type]
            plus, minus = both[: self.G.shape[1]], np.conj(both[self.G.shape[1] :])
            self.G[k] += 0.5 * (plus + minus)
            if k + 1 < d:
                self.G[k + 1] += -0.5j * (plus - minus)


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
) -> Statistics:
    """The statistics of all blocks, by transforms in chunks of points; MemoryError where even the
    smallest core box exceeds the budget."""
    bandwidths = bandwidths_of(features, noise_levels)
    S, d = features.n_features, features.dimension
    eps = max(SAFETY * tolerance, LEAST_EPS)
    row_cost = load_costs().direct_row(S, d, len(noise_levels), gram_phi)
    if Targets.memory(S, len(bandwidths), d) + required_memory(
        features, len(noise_levels), gram_phi, "float64", 1
    ) > budget:
        raise MemoryError
    sums: _Accumulator | None = None
    small = SmallSums(d, origin, backend, n_threads)
    outside: list[tuple[Array, Array | None]] = []
    with Progress(progress, "rows", blocks.n_rows) as bar:
        for x, w in chunks_of(blocks):
            if sums is None:
                sums = _Accumulator(
                    features, bandwidths, np.median(x[:: max(1, len(x) // 10_000)], axis=0), eps,
                    budget, row_cost, n_threads,
                )  # fmt: skip
            small.add(x, w)
            left = sums.add(x, w)
            if len(left[0]):
                outside.append(left)
            bar.add(len(x))
    assert sums is not None
    provenance = {
        "engine": "spectral", "backend": backend.NAME, "precision": "float64",
        "tolerance": tolerance, "threads": n_threads, "rows_outside": sums.n_outside,
        "grid_bytes": sums.grid_bytes,
    }  # fmt: skip
    stats = assemble(sums, small, noise_levels, origin, gram_phi, provenance)
    if not outside:
        return stats
    rest = accumulate_direct(
        Blocks([left if left[1] is not None else left[0] for left in outside], dimension=d),
        features, noise_levels, origin, gram_phi=gram_phi, precision="float64", backend=backend,
        n_threads=n_threads,
    )  # fmt: skip
    # moments of every row are in ``stats`` already
    whole = stats + without_moments(rest)
    whole.provenance.clear()
    whole.provenance.update(provenance)
    return whole


def estimate(
    blocks: Blocks, features: Features, noise_levels: Array, gram_phi: bool, tolerance: float,
    budget: int,
) -> float | None:  # fmt: skip
    """Seconds that the spectral engine would take, from a sample of the rows; None if its grids
    would not fit the budget."""
    pilot = blocks.pilot(PILOT_ROWS)
    if pilot is None or blocks.n_rows is None:
        return None
    S, d = features.n_features, features.dimension
    n_levels = 1 + int((noise_levels > 0.0).sum())
    room = budget - Targets.memory(S, n_levels, d)
    y = pilot[0] - np.median(pilot[0], axis=0)
    if not np.isfinite(y).all():
        return None
    costs, eps = load_costs(), max(SAFETY * tolerance, LEAST_EPS)
    row_cost = costs.direct_row(S, d, len(noise_levels), gram_phi)
    scale = blocks.n_rows / len(y)  # a point of the sample stands for so many
    n_targets = n_levels * S * (S + 1)
    plan = plan_chunk(y, features.bandlimit, n_targets, row_cost * scale, eps, room, costs)
    if plan is None:
        return None
    chunks = -(-blocks.n_rows // CHUNK_ROWS)
    width = kernel_width(eps, plan.upsampling)
    _, fft = grid_nodes(plan.half, features.bandlimit, eps, plan.upsampling)
    inside = int(blocks.n_rows - plan.outside * scale)
    once = costs.transform(0, n_targets, fft, width, d)
    points = costs.transform(inside, 0, 0.0, width, d)
    return float(chunks * once + points + row_cost * plan.outside * scale)


def chunks_of(blocks: Blocks) -> Iterator[tuple[Array, Array | None]]:
    """Blocks gathered into chunks of about CHUNK_ROWS."""
    rows: list[Array] = []
    weights: list[Array | None] = []
    size = 0
    large = copy.copy(blocks)
    large.block_rows = CHUNK_ROWS
    for x, w in large:
        if size and size + len(x) > CHUNK_ROWS:
            yield _joined(rows, weights)
            rows, weights, size = [], [], 0
        rows.append(x)
        weights.append(w)
        size += len(x)
    yield _joined(rows, weights)


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
