"""The mass of a density in one to three dimensions, on grids that cover every place it could be.

The base is a sum of parts: a mixture has one for each component, every other base is one part. Each
part is integrated by the trapezoidal rule in the coordinates that whiten it, where the rule
converges exponentially; every second node gives the error. A grid reaches so far that what lies
beyond it could not matter even if the tilt were as large as its bound everywhere. Where that takes
too many nodes, a smooth window ends the grid earlier, and draws of the part from beyond the window
give the rest, with its standard error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..bases.gaussian import Base, GaussianBase
from ..bases.mixture import MixtureBase
from ..bases.quasirandom import logsumexp, sobol_uniforms, to_normals
from ..bases.student import StudentBase
from ..kernels.thread_choice import Threads
from ..validation import Array
from .exponent import Tilt
from .proposal import rough_log_z

QUADRATURE_DIMENSIONS = 3
BAND_OF_BASE = 6.0  # angular frequency up to which a standard Gaussian has a spectrum worth a node
TOLERANCE = {1: 1e-8, 2: 1e-7, 3: 1e-4}  # error of log Z, by dimension, at which refining stops
NEGLIGIBLE = 1e-2  # share of the tolerance that may lie beyond a grid
LEAST_REACH = 7.5  # whitened units that a part of share 1 covers at least: e^-28 lies beyond
FIRST_NODES = {1: 2**16, 2: 2**17, 3: 2**18}  # of one grid, before any is enlarged
MOST_NODES = {1: 2**21, 2: 2**23, 3: 2**24}  # of all grids together: some seconds of work
TILE_NODES = 2**22  # evaluated by one transform: 1 GB at most
WINDOW, WINDOW_WIDTH = 0.75, 0.06  # where the window falls to 1/2, and how fast, in reaches
BEYOND = 0.5  # reach from which draws are taken: the window is 1 - 1e-9 there
REPLICATES = 8  # independent sets of quasi-random draws, whose spread is the error
LOG2_DRAWS = 12  # draws in each of them at first, as a power of two; 4 times as many on demand
MOST_LOG2_DRAWS = 16
FINER_ALONG = 4.0  # times as fine is a grid along the direction of a marginal
FARTHEST = 1e100  # whitened units: draws from still farther out are put there
DEEP = 8.0  # variance of the tilt far out above which draws may miss what carries its mass

Lattice = Callable[[Array, Array, tuple[int, ...]], Array]  # corner, steps, shape -> exponent


@dataclass(frozen=True, eq=False)
class Part:
    """One term of the base, and the Gaussian whose coordinates whiten it.

    base : the density of the term; None where it is the Gaussian itself
    """

    log_share: float
    frame: GaussianBase
    base: Base | None = None

    @classmethod
    def of(cls, base: Base) -> list[Part]:
        """The terms of a base."""
        if isinstance(base, GaussianBase):
            return [cls(0.0, base)]
        if isinstance(base, MixtureBase):
            return [
                cls(float(np.log(share)), part)
                for share, part in zip(base.weights, base._parts, strict=True)
            ]
        return [cls(0.0, GaussianBase(base.mean, base.covariance), base)]

    @property
    def log_volume(self) -> float:
        """Log determinant of the map from whitened coordinates."""
        return float(np.log(np.diag(self.frame.cholesky)).sum())

    def log_density(self, w: Array) -> Array:
        """Log of share times density, in whitened coordinates, of every row."""
        if self.base is None:
            return self.log_gaussian(np.einsum("ij,ij->i", w, w))
        values = self.base.log_density_at(self.frame.unwhiten(w))
        return np.asarray(self.log_share + self.log_volume + values)

    def log_gaussian(self, squares: Array) -> Array:
        """The same of a Gaussian part, from squared distances."""
        constant = self.log_share - 0.5 * self.frame.dimension * math.log(2.0 * math.pi)
        return constant - 0.5 * squares

    def beyond(self, radius: float, log2_n: int, seed: int) -> tuple[Array, float]:
        """Quasi-random draws of the part from outside a ball, whitened, and log of the share of
        the part's mass that lies there."""
        from scipy.special import betainc, betaincinv, gammaincc, gammainccinv

        d = self.frame.dimension
        if self.base is not None and not isinstance(self.base, StudentBase):
            w = self.frame.whiten(self.base.draw_sobol(log2_n, seed))
            outside = w[np.einsum("ij,ij->i", w, w) > radius**2]
            return outside, float(np.log(max(len(outside), 1e-300) / len(w)))
        u = sobol_uniforms(d + 1, log2_n, seed)
        if self.base is None:
            share = float(gammaincc(0.5 * d, 0.5 * radius**2))
            squares = 2.0 * gammainccinv(0.5 * d, u[:, 0] * share)
        else:
            # nu / (nu + r^2) has a beta distribution, r in units of the scale matrix
            nu = self.base.degrees
            unit = self.base.scale_matrix[0, 0] / self.base.covariance[0, 0]
            share = float(betainc(0.5 * nu, 0.5 * d, nu / (nu + radius**2 / unit)))
            ratio = np.maximum(betaincinv(0.5 * nu, 0.5 * d, u[:, 0] * share), 1e-300)
            squares = unit * nu * (1.0 / ratio - 1.0)
        squares = np.minimum(squares, FARTHEST**2)
        normals = to_normals(u[:, 1:])
        normals /= np.linalg.norm(normals, axis=1)[:, None]
        return normals * np.sqrt(squares)[:, None], float(np.log(max(share, 1e-300)))

    def rigorous_reach(self, log_excess: float) -> float:
        """The radius beyond which the part's mass is below e^-log_excess; inf where it has tails
        that no grid covers."""
        from scipy.special import gammainccinv

        if self.base is not None and not isinstance(self.base, StudentBase):
            return math.inf
        aim = log_excess + self.log_share
        d = self.frame.dimension
        if isinstance(self.base, StudentBase):
            # of the tail (nu / r^2)^(nu / 2), up to a factor that is near 1
            nu = self.base.degrees
            return math.sqrt(nu) * math.exp(min(max(aim, 0.0) / nu, 300.0))
        if aim > 600.0:  # beyond the range of the function: r^2 / 2 is close to aim
            return math.sqrt(2.0 * aim + 4.0 * d * math.log(aim))
        return math.sqrt(2.0 * float(gammainccinv(0.5 * d, math.exp(-max(aim, 0.1)))))


def window(squares: Array, reach: float) -> Array:
    """1 near the centre and 0 from ``reach`` on, smooth, so that the rule stays accurate; of
    squared distances."""
    from scipy.special import erfc

    return np.asarray(0.5 * erfc((np.sqrt(squares) - WINDOW * reach) / (WINDOW_WIDTH * reach)))


class Grid:
    """One part times e^tilt on a tensor grid of whitened coordinates.

    ``axes`` are the nodes along each coordinate, ``log_mass`` the log of density times cell volume:
    it sums to the mass of the part. ``rotation`` (d, d) turns the grid: w = nodes @ rotation.
    ``soft`` says that a window ends the grid before all mass is covered; ``tail`` is then the log
    of the mass beyond it, and ``tail_error`` the log of the error of that.
    """

    def __init__(
        self, part: Part, lattice: Lattice, step: Array, reach: float, *, soft: bool,
        rotation: Array | None = None,
    ) -> None:  # fmt: skip
        d = part.frame.dimension
        self.part, self.lattice, self.soft, self.reach = part, lattice, soft, reach
        self.rotation = np.eye(d) if rotation is None else rotation
        self.step = step
        halves = half_nodes(step, reach)
        self.axes = [h * np.arange(-k, k + 1) for h, k in zip(step, halves, strict=True)]
        self.log_mass, self.log_square = self._evaluate()
        self.total = float(logsumexp(self.log_mass))
        every_second = self.log_mass[(slice(None, None, 2),) * d]
        self.coarse = float(logsumexp(every_second)) + d * math.log(2.0)
        self.tail = self.tail_error = self.tail_square = -math.inf

    def _evaluate(self) -> tuple[Array, float]:
        """Log masses of the nodes, and log of the sum of share e^(2 tilt)."""
        shape = tuple(len(axis) for axis in self.axes)
        values, square = np.empty(shape), -math.inf
        steps = np.diag(self.step) @ self.rotation @ self.part.frame.cholesky.T
        rows = max(1, TILE_NODES // math.prod(shape[1:]))
        for start in range(0, shape[0], rows):
            tile = [self.axes[0][start : start + rows], *self.axes[1:]]
            first = np.array([axis[0] for axis in tile]) @ self.rotation
            corner = self.part.frame.unwhiten(first[None])[0]
            exponent = self.lattice(corner, steps, tuple(len(axis) for axis in tile))
            squares = functools.reduce(np.add.outer, [np.square(axis) for axis in tile])
            if self.part.base is None:
                mass = self.part.log_gaussian(squares)
            else:
                nodes = np.stack(np.meshgrid(*tile, indexing="ij"), axis=-1)
                w = nodes.reshape(-1, len(self.axes)) @ self.rotation
                mass = self.part.log_density(w).reshape(exponent.shape)
            mass += float(np.log(self.step).sum())
            if self.soft:
                with np.errstate(divide="ignore"):
                    mass += np.log(window(squares, self.reach))
            mass += exponent
            values[start : start + rows] = mass
            mass += exponent
            square = float(np.logaddexp(square, logsumexp(mass)))
        return values, square

    def log_gap(self) -> float:
        """Log of the error of the grid's mass: its change when every second node is left out."""
        if self.total == self.coarse:
            return -math.inf
        high = max(self.total, self.coarse)
        return high + math.log(-math.expm1(-abs(self.total - self.coarse)))

    def tail_draws(
        self, tilt: Tilt, threads: Threads, log2_n: int, seed: int
    ) -> tuple[Array, Array, Array]:
        """Whitened draws from beyond the window, their log weights, which sum to its mass, and the
        tilt there."""
        w, log_share = self.part.beyond(BEYOND * self.reach, log2_n, seed)
        if not len(w):
            return w, np.zeros(0), np.zeros(0)
        with np.errstate(divide="ignore"):
            kept = np.log(1.0 - window(np.einsum("ij,ij->i", w, w), self.reach))
        exponent = tilt.value(self.part.frame.unwhiten(w), threads)
        log_weights = exponent + kept + log_share + self.part.log_share - math.log(len(w))
        return w, log_weights, exponent

    def sample_tail(self, tilt: Tilt, threads: Threads, log2_n: int) -> None:
        """Estimate what lies beyond the window."""
        self.tail_log2_n = log2_n
        sets = [self.tail_draws(tilt, threads, log2_n, seed)[1:] for seed in range(REPLICATES)]
        masses = np.array([logsumexp(s) if len(s) else -np.inf for s, _ in sets])
        squares = np.array([logsumexp(s + t) if len(s) else -np.inf for s, t in sets])
        top = float(masses.max())
        if not np.isfinite(top):
            return
        shares = np.exp(masses - top)
        self.tail = top + math.log(float(shares.mean()))
        spread = float(np.std(shares, ddof=1)) / math.sqrt(REPLICATES)
        self.tail_error = top + math.log(max(spread, 1e-300))
        if tilt.variance > DEEP:  # what carries the mass out there is too rare to be drawn
            possible = self.part.log_share + 0.5 * tilt.variance
            possible += self.part.beyond(BEYOND * self.reach, 4, 0)[1]
            self.tail_error = float(np.logaddexp(self.tail_error, possible))
        self.tail_square = float(logsumexp(squares)) - math.log(REPLICATES)


def half_nodes(step: Array, reach: float) -> list[int]:
    """Even numbers of nodes on either side of the centre, so that every second grid ends alike."""
    return [2 * int(np.ceil(0.5 * min(reach / h, 2.0**40))) for h in step]


def count_nodes(step: Array, reach: float) -> int:
    """Of a grid; as a Python integer, which does not overflow."""
    return math.prod(2 * k + 1 for k in half_nodes(step, reach))


def affordable_reach(step: Array, most: float) -> float:
    """The reach at which a grid of the given steps has about ``most`` nodes."""
    steps = np.sort(np.asarray(step, dtype=float))
    d = len(steps)
    # an axis has at least 5 nodes, however long its step
    for used in range(d, 0, -1):
        reach = 0.5 * (most / 5.0 ** (d - used) * float(np.prod(steps[:used]))) ** (1.0 / used)
        if used == 1 or reach >= 2.0 * steps[used - 1]:
            return float(reach)
    raise AssertionError


@dataclass(eq=False)
class Quadrature:
    """All parts of a density on grids.

    Attributes
    ----------
    grids : one `Grid` for each part of the base
    value : log of the mass of e^tilt base
    error : bound on the error of the value
    log_square : log E[e^(2 tilt)] under the base
    n_nodes : of all grids
    """

    tilt: Tilt
    base: Base
    threads: Threads
    lattice: Lattice | None = None
    grids: list[Grid] = field(init=False)
    value: float = field(init=False)
    error: float = field(init=False)

    def __post_init__(self) -> None:
        self.d = d = self.base.dimension
        if self.lattice is None:
            self.lattice = lambda c, s, n: self.tilt.on_lattice(c, s, n, self.threads)
        self.tolerance, self.most = TOLERANCE[d], MOST_NODES[d]
        # the mass of no part exceeds its share times e^bound
        first = rough_log_z(self.tilt, self.base, self.threads)
        self.log_excess = self.tilt.bound - first - math.log(self.tolerance * NEGLIGIBLE)
        self.grids = [self._first_grid(part) for part in Part.of(self.base)]
        self._sum()
        while self.error > self.tolerance and self._improved():
            self._sum()

    def band(self, part: Part, rotation: Array | None = None) -> Array:
        """Highest angular frequency of the tilt along the whitened axes."""
        f = self.tilt.features
        u = f.frequencies @ part.frame.cholesky / f.bandwidth
        if rotation is not None:
            u = u @ rotation.T
        return np.asarray(np.abs(u).max(axis=0))

    def _first_grid(self, part: Part) -> Grid:
        step = np.pi / (self.band(part) + BAND_OF_BASE)
        needed = self._needed(part)
        most = FIRST_NODES[self.d]
        if count_nodes(step, needed) <= most:
            return self._grid(part, step, needed, soft=False)
        return self._grid(part, step, affordable_reach(step, most), soft=True)

    def _needed(self, part: Part) -> float:
        return max(
            part.rigorous_reach(self.log_excess),
            math.sqrt(max(LEAST_REACH**2 + 2.0 * part.log_share, 4.0)),
        )

    def _grid(self, part: Part, step: Array, reach: float, *, soft: bool) -> Grid:
        assert self.lattice is not None
        grid = Grid(part, self.lattice, step, reach, soft=soft)
        if soft:
            grid.sample_tail(self.tilt, self.threads, LOG2_DRAWS)
        return grid

    def _sum(self) -> None:
        self.n_nodes = sum(grid.log_mass.size for grid in self.grids)
        masses = [m for grid in self.grids for m in (grid.total, grid.tail)]
        self.value = float(logsumexp(np.array(masses)))
        squares = [s for grid in self.grids for s in (grid.log_square, grid.tail_square)]
        self.log_square = float(logsumexp(np.array(squares)))
        gaps = sum(math.exp(min(grid.log_gap() - self.value, 700.0)) for grid in self.grids)
        tails = [math.exp(min(grid.tail_error - self.value, 300.0)) for grid in self.grids]
        self.error = gaps + math.sqrt(sum(t * t for t in tails))

    def _improved(self) -> bool:
        """Replace the grid whose error is the largest by a better one; False where the nodes do not
        allow it. Other grids would not make the sum of the errors much smaller."""
        errors = [max(grid.log_gap(), grid.tail_error) for grid in self.grids]
        k = int(np.argmax(errors))
        grid = self.grids[k]
        size = grid.log_mass.size
        room = self.most - (self.n_nodes - size)
        if grid.log_gap() >= grid.tail_error:
            if size * 2**self.d > room:
                return False
            self.grids[k] = self._grid(grid.part, 0.5 * grid.step, grid.reach, soft=grid.soft)
        elif 4 * size <= room:
            reach, soft = affordable_reach(grid.step, 4.0 * size), True
            needed = self._needed(grid.part)
            if count_nodes(grid.step, needed) <= 4 * size:
                reach, soft = needed, False
            self.grids[k] = self._grid(grid.part, grid.step, reach, soft=soft)
        elif grid.tail_log2_n < MOST_LOG2_DRAWS:
            grid.sample_tail(self.tilt, self.threads, grid.tail_log2_n + 2)
        else:
            return False
        return True

    # -- what else the grids give ----------------------------------------------------------------

    def marginal_cdf(self, direction: Array, places: Array) -> Array:
        """P(u . direction <= place) for every place, u in the model's coordinates."""
        total = np.zeros(len(places))
        for grid in self.grids:
            share = math.exp(grid.total - self.value)
            along = grid.part.frame.cholesky.T @ direction
            length = float(np.linalg.norm(along))
            offset = float(direction @ grid.part.frame.mean)
            if share > 0.0:
                with np.errstate(over="ignore"):
                    w = (places - offset) / length
                total += share * self._cdf_of(grid, along / length, w)
            if grid.tail > self.value - 40.0:
                w, log_weights, _ = grid.tail_draws(self.tilt, self.threads, MOST_LOG2_DRAWS, 0)
                projection = offset + (w @ along)
                order = np.argsort(projection)
                running = np.append(0.0, np.cumsum(np.exp(log_weights[order] - self.value)))
                total += running[np.searchsorted(projection[order], places, side="right")]
        return np.clip(total, 0.0, 1.0)

    def _cdf_of(self, grid: Grid, unit: Array, places: Array) -> Array:
        """The CDF of a part along a unit vector: a grid turned that way, a spline of its sums."""
        from scipy.interpolate import make_interp_spline

        assert self.lattice is not None
        rotation = np.linalg.qr(np.column_stack([unit, np.eye(self.d)]))[0].T
        rotation[0] = unit  # the same up to its sign
        # as much finer than the bare band as the grid that has converged
        first = np.pi / (self.band(grid.part) + BAND_OF_BASE)
        step = np.pi / (self.band(grid.part, rotation) + BAND_OF_BASE)
        step *= float((grid.step / first).max())
        step[0] /= FINER_ALONG
        while count_nodes(step, grid.reach) > self.most:
            step *= 1.25
        turned = Grid(
            grid.part, self.lattice, step, grid.reach, soft=grid.soft, rotation=rotation
        )
        axis = turned.axes[0]
        other = tuple(range(1, self.d))
        mass = turned.log_mass if not other else logsumexp(
            turned.log_mass.reshape(len(axis), -1), axis=1
        )
        density = np.exp(mass - mass.max())
        running = make_interp_spline(axis, density, k=5).antiderivative()
        low, high = running(axis[0]), running(axis[-1])
        inside = np.clip(places, axis[0], axis[-1])
        return np.clip((running(inside) - low) / (high - low), 0.0, 1.0)
