"""Draws from a learned density: from the base where the density is its base alone, from grids in
one to three dimensions, by rejection of fresh draws, or by MALA. They depend on the seed alone,
never on the number of threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..bases.gaussian import Base
from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..runtime.warnings import PoorSampleWarning, warn
from ..validation import Array
from .annealing import MOVES, Walk
from .exponent import Tilt
from .proposal import Proposal
from .quadrature import QUADRATURE_DIMENSIONS, Grid, Quadrature, window

METHODS = ("auto", "grid", "importance", "mala")
FIRST_DRAWS = 2**14  # from which the bound of the weights is taken
MOST_EXCESS = 0.002  # share of the mass by which weights may exceed that bound: rows that repeat
BATCH = 2**17  # draws made at a time
LEAST_ACCEPTANCE = 0.005  # draws kept below which chains are cheaper
MOST_DRAWS_PER_ROW = 10_000  # of method="importance", after which it gives up
LEAST_SHARE = 0.5  # of the rows asked for: a lower effective number is told
CHAINS, LEAST_CHAINS = 8_192, 4_096  # more rows are drawn from the same chains, later
BURN_IN, THIN = 100, 10  # steps before the first draw, and between draws
LEAST_MOVES = 0.2  # of the steps of chains that must be accepted

Propose = Callable[[int, np.random.Generator], tuple[Array, Array]]  # n -> rows, log weights


@dataclass(frozen=True)
class SamplingReport:
    """How a sample was drawn, and how good it is.

    method : "base" (the density is its base alone), "grid", "importance" or "mala"
    effective_sample_size : number of independent rows that the sample is worth; for chains, of the
        independent ancestors, which bounds the error of mode weights
    acceptance_rate : share of the draws, or of the steps of chains, that were accepted
    n_chains, n_steps : of MALA
    """

    method: str
    effective_sample_size: float | None = None
    acceptance_rate: float | None = None
    n_chains: int | None = None
    n_steps: int | None = None


def draw(
    tilt: Tilt,
    base: Base,
    threads: Threads,
    cover: Quadrature | Proposal,
    n: int,
    *,
    method: str,
    seed: int,
    progress: bool = False,
) -> tuple[Array, SamplingReport]:
    """n rows in the model's coordinates and how they were drawn.

    cover : the grids of the density in one to three dimensions, else the draws that cover it
    """
    rng = np.random.default_rng(seed)
    if tilt.is_zero and method == "auto":
        return base.draw(n, rng), SamplingReport("base", float(n))
    if method == "grid" and base.dimension > QUADRATURE_DIMENSIONS:
        raise ValueError(
            f'method="grid" draws in at most {QUADRATURE_DIMENSIONS} dimensions, and this density '
            f'has {base.dimension}; use "importance" or "mala"'
        )
    if isinstance(cover, Quadrature) and method in ("auto", "grid"):
        rows, effective = draw_from_grids(cover, n, rng)
        return rows, SamplingReport("grid", effective)
    proposal = cover if isinstance(cover, Proposal) else Proposal(base)
    if method in ("auto", "importance"):
        least = LEAST_ACCEPTANCE if method == "auto" else 1.0 / MOST_DRAWS_PER_ROW
        found = _by_rejection(tilt, proposal, threads, n, rng, least, progress)
        if found is not None:
            return found
        if method == "importance":
            raise ValueError(
                'method="importance" would need more than '
                f"{MOST_DRAWS_PER_ROW:,} draws for every row; use method=\"mala\", or raise lam"
            )
    return _by_chains(tilt, base, threads, n, rng, progress)


# -- rejection -----------------------------------------------------------------------------------


def reject(
    propose: Propose, n: int, rng: np.random.Generator, *, excess: float = MOST_EXCESS,
    least: float = 0.0, progress: bool = False,
) -> tuple[Array, float, float] | None:
    """n rows kept from fresh draws in proportion to their weights, the effective number of
    independent rows, and the share of draws that was kept; None where that is below ``least``.

    A draw of weight w is kept w / c times, rounded up or down by chance, so that the expected
    number is exact; c is such that the weights exceed it by a share ``excess`` of their sum only:
    almost all draws are kept at most once.
    """
    rows, log_weights = propose(FIRST_DRAWS, rng)
    top = float(log_weights.max())
    if not np.isfinite(top):
        return None
    log_c = top + math.log(_bound(np.exp(log_weights - top), excess))
    rate = float(np.exp(log_weights - log_c).mean())
    if rate < least:
        return None
    kept, counts, have, tried = [], [], 0, 0
    with Progress(progress, "rows drawn", n) as bar:
        while True:
            copies = np.floor(np.exp(log_weights - log_c) + rng.uniform(size=len(rows)))
            copies = copies.astype(np.int64)
            tried += len(rows)
            chosen = copies > 0
            kept.append(rows[chosen])
            counts.append(copies[chosen])
            new = int(copies.sum())
            bar.add(min(new, max(n - have, 0)))
            have += new
            if have >= n:
                break
            missing = 1.1 * (n - have) / max(have / tried, rate / 10.0)
            rows, log_weights = propose(int(min(max(missing, 1_024), BATCH)), rng)
    number = np.concatenate(counts)
    index = rng.permutation(np.repeat(np.arange(len(number)), number))[:n]
    repeats = np.bincount(index)
    effective = n**2 / float(np.square(repeats).sum())
    return np.concatenate(kept)[index], effective, have / tried


def _bound(weights: Array, share: float) -> float:
    """The least c for which the excess of weights over c is a share of their sum; for none, a
    little more than the largest, since draws to come may exceed it."""
    if share == 0.0:
        return 1.1 * float(weights.max())
    ordered = np.sort(weights)[::-1]
    # excess over the k-th largest: the sum of those above it, less k times that
    excess = np.cumsum(ordered) - np.arange(1, len(ordered) + 1) * ordered
    k = int(np.searchsorted(excess, share * ordered.sum(), side="right")) - 1
    return float(max(ordered[max(k, 0)], 1e-300))


def _by_rejection(
    tilt: Tilt, proposal: Proposal, threads: Threads, n: int, rng: np.random.Generator,
    least: float, progress: bool,
) -> tuple[Array, SamplingReport] | None:  # fmt: skip
    def propose(m: int, rng: np.random.Generator) -> tuple[Array, Array]:
        x = proposal.draw(m, rng)
        return x, proposal.log_weights(tilt, x, threads)

    found = reject(propose, n, rng, least=least, progress=progress)
    if found is None:
        return None
    rows, effective, rate = found
    if effective < LEAST_SHARE * n:
        warn(
            f"the {n:,} rows drawn are worth {effective:.3g} independent ones, since some repeat: "
            "few draws carry this density. Raise lam or gamma",
            PoorSampleWarning,
        )
    return rows, SamplingReport("importance", effective, rate)


# -- grids ---------------------------------------------------------------------------------------


def draw_from_grids(
    quadrature: Quadrature, n: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """n rows from the grids of a density, and the effective number of independent rows.

    A grid is chosen by its mass, a cell of it by the mean of its corners, and a place in the cell
    by the density that is linear along every axis; rejection corrects that to the density itself.
    """
    tilt, threads = quadrature.tilt, quadrature.threads
    masses = np.array([m for g in quadrature.grids for m in (g.total, g.tail)])
    shares = np.exp(masses - masses.max())
    counts = rng.multinomial(n, shares / shares.sum())
    parts, repeats = [], 0.0
    for k, grid in enumerate(quadrature.grids):
        proposals = (_Cells(grid, tilt, threads).propose, _tail_of(grid, tilt, threads))
        for propose, count in zip(proposals, counts[2 * k : 2 * k + 2].tolist(), strict=True):
            if count:
                found = reject(propose, count, rng, excess=0.0)
                assert found is not None
                parts.append(found[0])
                repeats += count**2 / found[1]
    rows = np.concatenate(parts)
    return np.asarray(rows[rng.permutation(n)]), n**2 / repeats


def _tail_of(grid: Grid, tilt: Tilt, threads: Threads) -> Propose:
    def propose(m: int, rng: np.random.Generator) -> tuple[Array, Array]:
        seed = int(rng.integers(2**62))
        w, weights, _ = grid.tail_draws(tilt, threads, max(m - 1, 1).bit_length(), seed)
        return grid.part.frame.unwhiten(w), weights + math.log(max(len(w), 1))

    return propose


class _Cells:
    """The cells of a grid, with the density linear along every axis between its corners."""

    def __init__(self, grid: Grid, tilt: Tilt, threads: Threads) -> None:
        self.grid, self.tilt, self.threads = grid, tilt, threads
        self.top = float(grid.log_mass.max())
        self.density = np.exp(grid.log_mass - self.top)
        cells = self.density
        for axis in range(cells.ndim):
            low, high = _sides(cells.ndim, axis)
            cells = cells[low] + cells[high]
        self.shape = cells.shape
        self.running = np.cumsum(cells.ravel())

    def propose(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Places and the log of the density there over that which is linear in the cells."""
        places = rng.uniform(0.0, self.running[-1], n)
        cell = np.searchsorted(self.running, places, side="right")
        index = np.unravel_index(np.minimum(cell, self.running.size - 1), self.shape)
        d = len(self.shape)
        corners = np.empty((2,) * d + (n,))
        for corner in np.ndindex(*corners.shape[:-1]):
            corners[corner] = self.density[tuple(i + c for i, c in zip(index, corner, strict=True))]
        nodes = np.empty((n, d))
        for k in range(d):
            # the density along this axis, summed over those that follow
            ends = corners.reshape(2, -1, n).sum(axis=1)
            t = _linear_quantile(ends[0], ends[1], rng.uniform(size=n))
            corners = corners[0] + t * (corners[1] - corners[0])
            axis = self.grid.axes[k]
            nodes[:, k] = axis[index[k]] + t * (axis[index[k] + 1] - axis[index[k]])
        with np.errstate(divide="ignore"):
            linear = np.log(corners) + self.top - float(np.log(self.grid.step).sum())
        return self._weighted(nodes, linear)

    def _weighted(self, nodes: Array, linear: Array) -> tuple[Array, Array]:
        grid = self.grid
        w = nodes @ grid.rotation
        x = grid.part.frame.unwhiten(w)
        exact = grid.part.log_density(w) + self.tilt.value(x, self.threads)
        if grid.soft:
            with np.errstate(divide="ignore"):
                exact += np.log(window(np.einsum("ij,ij->i", w, w), grid.reach))
        log_weights = exact - linear
        log_weights[np.isnan(log_weights)] = -np.inf
        return x, log_weights


def _sides(ndim: int, axis: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Indices of the lower and upper neighbours along an axis."""
    whole = [slice(None)] * ndim
    low, high = list(whole), list(whole)
    low[axis], high[axis] = slice(None, -1), slice(1, None)
    return tuple(low), tuple(high)


def _linear_quantile(start: Array, stop: Array, u: Array) -> Array:
    """Quantile of a density on [0, 1] that runs linearly from start to stop (not both zero)."""
    root = np.sqrt(start * start + u * (stop * stop - start * start))
    total = start + root
    return np.where(total > 0.0, u * (start + stop) / np.where(total > 0.0, total, 1.0), u)


# -- Metropolis-adjusted Langevin ----------------------------------------------------------------


def _by_chains(
    tilt: Tilt, base: Base, threads: Threads, n: int, rng: np.random.Generator, progress: bool
) -> tuple[Array, SamplingReport]:
    """Parallel chains in the base's whitened coordinates, led from the base to the density.

    The size of their steps is tuned to an acceptance of 0.574 before the first draw is kept.
    """
    chains = min(max(n, LEAST_CHAINS), CHAINS)
    rounds = -(-n // chains)
    walk = Walk(tilt, base, threads, chains, rng)
    out = np.empty((rounds * chains, base.dimension))
    with Progress(progress, "steps", None) as bar:
        while walk.degree < 1.0:
            walk.heat()
            for _ in range(MOVES):
                walk.step(tune=True)
                bar.add(1)
        for _ in range(BURN_IN):
            walk.step(tune=True)
            bar.add(1)
        walk.accepted = walk.tried = 0
        for done in range(rounds):
            for _ in range(THIN):
                walk.step(tune=False)
                bar.add(1)
            out[done * chains : (done + 1) * chains] = walk.w
    rate = walk.accepted / walk.tried
    if rate < LEAST_MOVES:
        warn(
            f"MALA accepted only {rate:.0%} of its steps, so that its chains hardly move and the "
            "sample is not to be trusted; raise lam or gamma",
            PoorSampleWarning,
        )
    elif walk.n_families < LEAST_SHARE * n:
        warn(
            f"the {n:,} rows come from chains with {walk.n_families:.0f} independent ancestors: "
            "the shares of separate modes are as noisy as in a sample of that size. Raise lam or "
            "gamma",
            PoorSampleWarning,
        )
    report = SamplingReport(
        "mala", min(walk.n_families, float(n)), acceptance_rate=rate, n_chains=chains,
        n_steps=walk.steps,
    )
    rows = walk.frame.unwhiten(out[rng.permutation(len(out))[:n]])
    return rows, report
