"""Draws from a learned density: exactly from a grid (a Gaussian base of d <= 2), by importance
resampling, or by MALA. They depend on the seed alone, never on the number of threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Base, GaussianBase
from .features import Array
from .normalizer import (
    QUADRATURE_DIMENSIONS,
    Grid,
    Normalizer,
    by_quadrature,
    effective_share,
)
from .notices import tell
from .progress import Progress
from .threads import Threads
from .tilt import Tilt

METHODS = ("auto", "grid", "importance", "mala")
REFINE = 4  # grid cells a node's step is cut into before drawing
DEPTH = 42.0  # nodes whose log density is this far below the highest get no draws: e^-42 = 6e-19
OVERSAMPLE = 20  # effective base draws for every draw kept by importance resampling
MOST_DRAWS = 2**21  # base draws at most; where more would be needed, chains are cheaper
CHAINS, LEAST_CHAINS = 8_192, 4_096  # more rows are drawn from the same chains, later
MOVES, BURN_IN, THIN = 8, 100, 10  # steps at every degree, before the first draw, between draws
KEEP = 0.9  # share of the chains that must count when the tilt is turned on by another degree
ACCEPTANCE = 0.574  # the acceptance rate at which MALA mixes fastest
LEAST_ACCEPTANCE = 0.2


@dataclass(frozen=True)
class SamplingReport:
    """How a sample was drawn: method, and what tells its quality."""

    method: str
    # importance: base draws that count; MALA: of the first draws, as many as the shares of their
    # descendants amount to: shares of modes that chains do not move between err as of so many
    effective_sample_size: float | None = None
    acceptance_rate: float | None = None  # MALA, after burn-in
    n_chains: int | None = None
    n_steps: int | None = None


def draw(
    tilt: Tilt,
    base: Base,
    threads: Threads,
    normalizer: Normalizer | None,
    n: int,
    *,
    method: str,
    seed: int,
    progress: bool = False,
) -> tuple[Array, SamplingReport]:
    """n rows in the model's coordinates and how they were drawn."""
    rng = np.random.default_rng(seed)
    if method == "auto":
        method = _choose(base, normalizer, n)
    if method == "grid":
        return _from_grid(tilt, base, threads, n, rng)
    if method == "importance":
        return _by_importance(tilt, base, threads, normalizer, n, rng)
    return _by_chains(tilt, base, threads, n, rng, progress)


def _choose(base: Base, normalizer: Normalizer | None, n: int) -> str:
    if by_quadrature(base):
        return "grid"
    assert normalizer is not None
    enough = OVERSAMPLE * n <= normalizer.effective_share * MOST_DRAWS
    return "importance" if enough else "mala"


# -- grid ----------------------------------------------------------------------------------------


def _from_grid(
    tilt: Tilt, base: Base, threads: Threads, n: int, rng: np.random.Generator
) -> tuple[Array, SamplingReport]:
    """Inverse CDF of the log density's spline, made linear between the nodes of a finer grid."""
    if base.dimension > QUADRATURE_DIMENSIONS:
        raise ValueError(
            f'method="grid" draws in at most {QUADRATURE_DIMENSIONS} dimensions, and this density '
            f'has {base.dimension}; use "importance" or "mala"'
        )
    if not isinstance(base, GaussianBase):
        raise ValueError(
            f'method="grid" draws from densities with a Gaussian base, and this one has a '
            f'{type(base).__name__}; use "importance" or "mala"'
        )
    grid = Grid(tilt, base, threads, finer=2.0)
    axes, log_density = _refined(grid)
    density = np.exp(log_density - log_density.max())
    if density.ndim == 1:
        density, axes = density[:, None], [axes[0], np.zeros(1)]
        cells = 0.5 * (density[1:] + density[:-1])
    else:
        rows = density[1:] + density[:-1]
        cells = 0.25 * (rows[:, 1:] + rows[:, :-1])
    running = np.cumsum(cells.ravel())
    cell = np.searchsorted(running, rng.uniform(0.0, running[-1], n), side="right")
    i, j = np.divmod(np.minimum(cell, cells.size - 1), cells.shape[1])
    along = rng.uniform(size=(n, 2))
    if base.dimension == 1:
        t = _linear_quantile(density[i, 0], density[i + 1, 0], along[:, 0])
        w = (axes[0][i] + t * (axes[0][i + 1] - axes[0][i]))[:, None]
    else:
        a, b = density[i, j], density[i, j + 1]
        c, e = density[i + 1, j], density[i + 1, j + 1]
        t = _linear_quantile(a + b, c + e, along[:, 0])
        s = _linear_quantile(a + t * (c - a), b + t * (e - b), along[:, 1])
        w = np.column_stack([
            axes[0][i] + t * (axes[0][i + 1] - axes[0][i]),
            axes[1][j] + s * (axes[1][j + 1] - axes[1][j]),
        ])  # fmt: skip
    return base._unwhiten(w), SamplingReport("grid")


def _refined(grid: Grid) -> tuple[list[Array], Array]:
    """Axes and log density between the nodes that carry mass, REFINE times finer."""
    from scipy.interpolate import make_interp_spline

    crops, kept = [], []
    for k, axis in enumerate(grid.axes):
        other = tuple(i for i in range(grid.log_mass.ndim) if i != k)
        mass = np.flatnonzero(grid.log_mass.max(axis=other) > grid.log_mass.max() - DEPTH)
        first, last = max(mass[0] - 6, 0), min(mass[-1] + 6, len(axis) - 1)
        crops.append(slice(first, last + 1))
        kept.append(axis[first : last + 1])
    values, axes = grid.log_mass[tuple(crops)], []
    for k, axis in enumerate(kept):
        fine = np.linspace(axis[0], axis[-1], REFINE * (len(axis) - 1) + 1)
        values = make_interp_spline(axis, values, k=5, axis=k)(fine)
        axes.append(fine)
    return axes, values


def _linear_quantile(start: Array, stop: Array, u: Array) -> Array:
    """Quantile of a density on [0, 1] that runs linearly from start to stop (not both zero)."""
    root = np.sqrt(start * start + u * (stop * stop - start * start))
    total = start + root
    return np.where(total > 0.0, u * (start + stop) / np.where(total > 0.0, total, 1.0), u)


# -- importance resampling -----------------------------------------------------------------------


def _by_importance(
    tilt: Tilt,
    base: Base,
    threads: Threads,
    normalizer: Normalizer | None,
    n: int,
    rng: np.random.Generator,
) -> tuple[Array, SamplingReport]:
    """Base draws kept in proportion to e^tilt, by systematic resampling."""
    share = 0.01
    if normalizer is not None:
        share = max(normalizer.effective_share, 1e-6)
    size = int(np.clip(OVERSAMPLE * n / share, 1_024, MOST_DRAWS))
    x = base._draw(size, rng)
    log_weights = tilt.value(x, threads)
    effective = effective_share(log_weights) * size
    if effective < n:
        tell(
            f"importance resampling has {effective:.3g} effective base draws for {n:,} asked for, "
            'so that rows repeat; use method="mala", or raise lam'
        )
    return x[_resample(log_weights, n, rng)], SamplingReport("importance", effective)


def _resample(log_weights: Array, n: int, rng: np.random.Generator) -> Array:
    """Indices of n draws in proportion to the weights, by systematic resampling, shuffled."""
    running = np.cumsum(np.exp(log_weights - log_weights.max()))
    places = (np.arange(n) + rng.uniform()) * (running[-1] / n)
    index = np.minimum(np.searchsorted(running, places, side="right"), len(running) - 1)
    return np.asarray(rng.permutation(index))


# -- Metropolis-adjusted Langevin ----------------------------------------------------------------


def _by_chains(
    tilt: Tilt,
    base: Base,
    threads: Threads,
    n: int,
    rng: np.random.Generator,
    progress: bool,
) -> tuple[Array, SamplingReport]:
    """Parallel chains in the base's whitened coordinates, led from the base to the density.

    The exponent is turned on by degrees, exp{t tilt} base, t from 0 to 1; between them the chains
    are resampled, so that every mode gets its share, and move. A step of size e proposes
    w + (e^2/2) grad + e xi; e is tuned to an acceptance of 0.574 before the first draw is kept.
    """
    d = base.dimension
    chains = min(max(n, LEAST_CHAINS), CHAINS)
    rounds = -(-n // chains)
    walk = _Walk(tilt, base, threads, chains, rng)
    out = np.empty((rounds * chains, d))
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
    if rate < LEAST_ACCEPTANCE:
        tell(
            f"MALA accepted only {rate:.0%} of its steps, so that its chains hardly move and the "
            "sample is not to be trusted; raise lam or gamma"
        )
    report = SamplingReport(
        "mala", walk.n_families, acceptance_rate=rate, n_chains=chains, n_steps=walk.steps
    )
    rows = walk.frame._unwhiten(out[rng.permutation(len(out))[:n]])
    return rows, report


class _Walk:
    """Chains on exp{degree tilt(x)} base(x) in the coordinates w that whiten the base as a whole:
    x = frame.mean + L w."""

    def __init__(
        self, tilt: Tilt, base: Base, threads: Threads, n: int, rng: np.random.Generator
    ) -> None:
        self.tilt, self.base, self.threads, self.rng = tilt, base, threads, rng
        self.is_plain = isinstance(base, GaussianBase)  # then the base is -|w|^2 / 2
        self.frame = base if isinstance(base, GaussianBase) else GaussianBase(
            base.mean, base.covariance
        )
        self.w = (
            rng.standard_normal((n, base.dimension))
            if self.is_plain
            else self.frame._whiten(base._draw(n, rng))
        )
        self.family = np.arange(n)  # the first draw that each chain descends from
        self.degree, self.size = 0.0, 1.0 / base.dimension ** (1.0 / 6.0)
        self.accepted = self.tried = self.steps = 0
        self.value, self.slope, self.base_value, self.base_slope = self._evaluate(self.w)

    def _evaluate(self, w: Array) -> tuple[Array, Array, Array, Array]:
        """Tilt, its gradient, the base's log density, its gradient, in whitened coordinates."""
        x = self.frame._unwhiten(w)
        value, gradient = self.tilt.gradient(x, self.threads)
        slope = gradient @ self.frame._cholesky
        if self.is_plain:
            return value, slope, -0.5 * _squares(w), -w
        of_base = self.base._log_density(x), self.base._score(x) @ self.frame._cholesky
        return value, slope, *of_base

    def heat(self) -> None:
        """Raise the degree as far as KEEP of the chains still count, and resample."""
        most = 1.0 - self.degree
        rise = most
        if effective_share(rise * self.value) < KEEP:
            low, high = 0.0, most
            for _ in range(40):
                rise = 0.5 * (low + high)
                if effective_share(rise * self.value) < KEEP:
                    high = rise
                else:
                    low = rise
        self.degree = 1.0 if rise == most else self.degree + rise
        index = _resample(rise * self.value, len(self.w), self.rng)
        self.family = self.family[index]
        self.w, self.value, self.slope = self.w[index], self.value[index], self.slope[index]
        self.base_value, self.base_slope = self.base_value[index], self.base_slope[index]

    @property
    def n_families(self) -> float:
        """How many families of equal size would have such shares."""
        return float(len(self.family) ** 2 / np.square(np.bincount(self.family)).sum())

    def step(self, *, tune: bool) -> None:
        """One proposal of every chain."""
        w, e = self.w, self.size
        noise = self.rng.standard_normal(w.shape)
        drift = self.degree * self.slope + self.base_slope
        proposal = w + 0.5 * e**2 * drift + e * noise
        value, slope, base_value, base_slope = self._evaluate(proposal)
        back = (w - proposal - 0.5 * e**2 * (self.degree * slope + base_slope)) / e
        ratio = self.degree * (value - self.value) + (base_value - self.base_value)
        ratio -= 0.5 * (_squares(back) - _squares(noise))
        accept = np.log(self.rng.uniform(size=len(w))) < ratio
        w[accept], self.slope[accept] = proposal[accept], slope[accept]
        self.value[accept], self.base_value[accept] = value[accept], base_value[accept]
        self.base_slope[accept] = base_slope[accept]
        self.steps += 1
        self.accepted, self.tried = self.accepted + int(accept.sum()), self.tried + len(w)
        if tune:
            self.size *= float(np.exp(0.5 * (accept.mean() - ACCEPTANCE)))


def _squares(rows: Array) -> Array:
    squares: Array = np.einsum("ij,ij->i", rows, rows)
    return squares
