"""What all benchmarks share: sides that take turns, bare BLAS to compare with, kernel calls.

Speeds are the best of several runs, because everything that disturbs a run makes it slower, and the
sides of a comparison take turns, because a machine is not equally fast all the time.
"""

import contextlib
import importlib.util
import math
import os
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import threadpoolctl
from scipy.linalg import blas

if importlib.util.find_spec("tgpfast") is None:  # not installed: measure the checkout around us.
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # PYTHONPATH is dropped by asv

import tgpfast
from tgpfast import kernels
from tgpfast.bases.expectation_maximization import Components, Learner, Rows, run_em
from tgpfast.data.scaling import Scaling
from tgpfast.data.table import BLOCK_ROWS
from tgpfast.kernels.thread_choice import Threads
from tgpfast.statistics import direct
from tgpfast.statistics.transforms import sum_waves

BLAS_THREADS = 2  # of the bare BLAS that we compare with
BARE_ROWS = 2048  # of its ready block
REST = 0.3  # seconds between runs: idle threads of OpenBLAS were seen to spin for over 0.05 s

# with the rank-k updates that they do
GRAM_KERNELS = {"rank_k": 1, "lane_rank_k": 1}
MIXED_KERNELS = ("feature_block", *GRAM_KERNELS)  # exist in float64 and float32
TILT_KERNELS = ("tilt", "tilt_gradient", "quadratic_tilt")
FLOAT64_KERNELS = (*TILT_KERNELS, "log_kernel_sums", "marginal_mass")

# rows of a call, where a block of BLOCK_ROWS would take NumPy too much time or memory
TILT_ROWS, QUADRATIC_ROWS, KDE_POINTS, KDE_ROWS = 16_384, 8_192, 2_048, 8_192
CHUNK = 4096  # rows that the NumPy rivals take at a time

N_DIRECTIONS, N_GRID, N_DRAWS = 500, 10_000, 250_000  # of the paper's evaluation


# -- time ------------------------------------------------------------------------------------------


def timed(run, at_least=0.0):
    """A function that returns the seconds of one call of run, which must have been compiled.

    Where a call is shorter than ``at_least`` seconds, it returns the mean of as many as that takes.
    """

    def seconds(calls):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls

    calls = 1
    if at_least and seconds(1) < at_least:  # the first fills caches, the second says how long
        calls = math.ceil(at_least / seconds(1))
    return lambda: seconds(calls)


def take_turns(sides, repeats, budget=math.inf):
    """The least seconds of each side; a side is a function that returns seconds.

    The sides take turns, ``repeats`` times, or until ``budget`` seconds are used up.
    """
    best = [math.inf] * len(sides)
    end = time.perf_counter() + budget
    for _ in range(repeats):
        for i, side in enumerate(sides):
            time.sleep(REST)
            best[i] = min(best[i], side())
        if time.perf_counter() > end:
            break
    return best


@contextlib.contextmanager
def blas_threads(count):
    """Run the block with ``count`` threads for the BLAS of numpy and of scipy."""
    blas = threadpoolctl.ThreadpoolController().select(user_api="blas")
    with blas.limit(limits=count):
        for library in blas.info():
            if library["num_threads"] != count:
                found = library["num_threads"]
                raise RuntimeError(f"BLAS runs {found} threads, {count} were asked for")
        yield


# -- what we compare with --------------------------------------------------------------------------


def bare_rank_k(n_features, precision, rows, updates=1):
    """A function that does ``updates`` rank-k updates of ``rows`` rows by syrk and nothing else."""
    block_rows = min(BARE_ROWS, rows)
    if rows % block_rows:
        raise ValueError(f"rows={rows}: expected a multiple of {block_rows}")
    dtype = direct.DTYPES[precision]
    values = np.random.default_rng(1).uniform(-1.0, 1.0, (block_rows, n_features))
    block = np.asfortranarray(values * math.sqrt(2.0 / n_features), dtype)
    gram = np.zeros((n_features, n_features), dtype, order="F")
    syrk = {"float64": blas.dsyrk, "mixed": blas.ssyrk}[precision]

    def run(blocks=updates * (rows // block_rows)):
        with blas_threads(BLAS_THREADS):
            for _ in range(blocks):
                syrk(1.0, block, beta=1.0, c=gram, trans=1, overwrite_c=1)

    run(blocks=1)
    if not gram.any():
        raise RuntimeError("syrk copies its matrix: this would not be the bare update")
    return run


def bare_gemm(n_features, rows, dimension=None):
    """A function that multiplies ``rows`` rows by an S x S matrix (S x d, where a dimension is
    given) by dgemm, a block at a time, and nothing else."""
    block_rows = min(BARE_ROWS, rows)
    if rows % block_rows:
        raise ValueError(f"rows={rows}: expected a multiple of {block_rows}")
    rng = np.random.default_rng(1)
    inner = dimension or n_features
    matrix = np.asfortranarray(rng.uniform(-1.0, 1.0, (n_features, inner)))
    block = np.asfortranarray(rng.uniform(-1.0, 1.0, (inner, block_rows)))
    product = np.zeros((n_features, block_rows), order="F")

    def run(blocks=rows // block_rows):
        with blas_threads(BLAS_THREADS):
            for _ in range(blocks):
                blas.dgemm(1.0, matrix, block, beta=0.0, c=product, overwrite_c=1)

    run(blocks=1)
    if not product.any():
        raise RuntimeError("gemm copies its matrix: this would not be the bare product")
    return run


def numpy_tilt(call):
    """A function that returns what a `KernelCall` of tilt computes, as one writes it in NumPy:
    ``np.cos(X @ Z.T / g + c) @ theta``, in chunks that suit it, on the threads of the call."""
    x, _, _, c, theta, _ = call.arguments
    z, g = call.features.frequencies, call.features.bandwidth
    value = np.empty(len(x))

    def run():
        with blas_threads(call.n_threads):
            for start in range(0, len(x), CHUNK):
                part = slice(start, start + CHUNK)
                value[part] = np.cos(x[part] @ z.T / g + c) @ theta
        return value

    return run


def numpy_cosines(x, features, theta):
    """A function that does ``np.cos(X @ Z.T / g + c) @ theta`` in chunks, as one writes it."""
    z, g, c = features.frequencies, features.bandwidth, features.phases

    def run():
        with blas_threads(BLAS_THREADS):
            return np.concatenate([
                np.cos(x[start : start + CHUNK] @ z.T / g + c) @ theta
                for start in range(0, len(x), CHUNK)
            ])  # fmt: skip

    return run


def sorted_marginals(x, points, weights, directions):
    """Along each direction (CDF of the rows, CDF of the weighted points, spacing of the grid), on
    N_GRID points from the least to the largest of both samples, by sorting, as one writes it in
    NumPy. The directions are projected on by one product each for rows and points."""
    with blas_threads(BLAS_THREADS):
        projections = zip(directions @ x.T, directions @ points.T, strict=True)
    for rows, drawn in projections:
        rows, order = np.sort(rows), np.argsort(drawn)
        drawn, running = drawn[order], np.concatenate([[0.0], np.cumsum(weights[order])])
        grid, step = np.linspace(
            min(rows[0], drawn[0]), max(rows[-1], drawn[-1]), N_GRID, retstep=True
        )
        p = np.searchsorted(rows, grid, side="right") / len(rows)
        q = running[np.searchsorted(drawn, grid, side="right")] / running[-1]
        yield p, q, step


def relative_error(result, exact):
    """max |result - exact| / max |exact|, over the upper triangle where the matrices are square."""
    difference = result - exact
    if result.ndim > 1 and result.shape[-1] == result.shape[-2]:
        difference, exact = np.triu(difference), np.triu(exact)
    return float(np.abs(difference).max() / np.abs(exact).max())


# -- what we measure -------------------------------------------------------------------------------


def require(backend, n_threads):
    """Raise NotImplementedError, which asv takes for "skip", where this cannot run."""
    try:
        module = kernels.load(backend)
    except ImportError as error:
        raise NotImplementedError(str(error)) from error
    if kernels.resolve_threads(module, n_threads) != n_threads:
        raise NotImplementedError(f"{backend} has no {n_threads} threads here")


def normal_rows(n, dimension):
    """(n, d) standard normal rows, read-only as `Blocks` hands them to the kernels."""
    x = np.random.default_rng(0).standard_normal((n, dimension))
    x.flags.writeable = False
    return x


def clustered_rows(n, dimension):
    """(n, d) rows in two clusters, with unit variance: a density worth learning; read-only."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, dimension)) * 0.6
    x += np.where(rng.random(n) < 0.4, 0.8, -0.8)[:, None]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x.flags.writeable = False
    return x


def scott_features(n_features, dimension, n):
    """Features for n standard normal rows, with the bandwidth of Scott's rule."""
    gamma = n ** (-1.0 / (dimension + 4))
    return tgpfast.Features.draw(n_features, gamma, np.eye(dimension), seed=0)


def noise_levels(dimension, count=10):
    """Sigmas from 0 up to, not including, the paper's sqrt(tr V) / d, for V = I."""
    return np.linspace(0.0, math.sqrt(dimension) / dimension, count, endpoint=False)


class KernelCall:
    """One call of one kernel, on buffers of the sizes and flags that the package hands to it.

    ``run()`` makes the call; ``rows`` says how many rows it covers (points,
    for log_kernel_sums, each against KDE_ROWS rows); ``features`` are its features;
    ``updates`` how many S x S rank-k updates it does a row.
    """

    def __init__(
        self, kernel, backend, precision="float64", n_features=1000, dimension=10, n_threads=2,
        rows=None,
    ):  # fmt: skip
        self._same = (n_features, dimension, rows)
        self.kernel, self.n_threads = kernel, n_threads
        self.module = kernels.load(backend)
        self.updates = GRAM_KERNELS.get(kernel, 0)
        self.rows = rows or {
            "feature_block": direct.TILE_ROWS, "rank_k": direct.TILE_ROWS,
            "tilt": TILT_ROWS, "tilt_gradient": TILT_ROWS,
            "quadratic_tilt": QUADRATIC_ROWS, "log_kernel_sums": KDE_POINTS,
        }.get(kernel, BLOCK_ROWS)
        self._prepare(n_features, dimension)
        build = getattr(self, f"_{kernel}")  # sets result, the output that is judged
        self.arguments = build(n_features, dimension, direct.DTYPES[precision])

    def run(self):
        with kernels.threads(self.module, self.n_threads):
            getattr(self.module, self.kernel)(*self.arguments, self.n_threads)

    def error(self):
        """Relative error of the result of one call against NumPy in float64."""
        n_features, dimension, rows = self._same
        exact = KernelCall(self.kernel, "numpy", "float64", n_features, dimension, 1, rows)
        for call in (self, exact):
            call.result[:] = 0.0
            call.run()
        if self.kernel == "marginal_mass":  # a row on a grid point may fall to either side of it
            return relative_error(self.result.cumsum(axis=1), exact.result.cumsum(axis=1))
        return relative_error(self.result, exact.result)

    def _prepare(self, S, d):
        features = self.features = scott_features(S, d, BLOCK_ROWS)
        self.nothing = np.zeros(0)
        self.nothing.flags.writeable = False
        self.origin = np.zeros(d)
        frequencies = features.frequencies / features.bandwidth
        phases = features.phases + frequencies @ self.origin
        self.inputs = (self.origin, frequencies, phases, math.sqrt(2.0 / S))
        tiles = -(-self.rows // kernels.ROW_TILE)
        self.lane_rows = kernels.ROW_TILE * -(-tiles // direct.LANES)

    def _features(self, S, d, dtype):
        """dphi and phi of one block, by NumPy."""
        dphi, phi = np.empty((S, self.rows), dtype), np.empty((S, self.rows), dtype)
        kernels.load("numpy").feature_block(
            normal_rows(self.rows, d), self.nothing, *self.inputs, dphi, phi,
            np.zeros(S), np.zeros(S), np.zeros((S, d)), 1,
        )  # fmt: skip
        return dphi, phi

    def _tile_scratch(self, S, dtype):
        side = min(S, direct.GRAM_TILE)
        return np.empty((self.n_threads, 2, side, side), dtype)

    def _feature_block(self, S, d, dtype):
        self.result = np.empty((S, self.rows), dtype)
        sums = (np.zeros(S), np.zeros(S), np.zeros((S, d)))
        phi = np.empty((0, 0), dtype)
        return normal_rows(self.rows, d), self.nothing, *self.inputs, self.result, phi, *sums

    def _rank_k(self, S, d, dtype):
        self.result = np.zeros((S, S))
        dphi, _ = self._features(S, d, dtype)
        return dphi, self.rows, self.result, self._tile_scratch(S, dtype)

    def _lanes(self, S, d, dtype):
        x, lanes = normal_rows(self.rows, d), direct.LANES
        inputs = (x, self.nothing, *self.inputs, self.lane_rows)
        sums = (np.zeros((lanes, S)), np.zeros((lanes, S)), np.zeros((lanes, S, d)))
        self.result = np.zeros((lanes, S, S))
        blocks = np.empty((self.n_threads, 2, S, kernels.ROW_TILE), dtype)
        return inputs, sums, (blocks, np.empty((self.n_threads, 2, S, S), dtype))

    def _lane_rank_k(self, S, d, dtype):
        inputs, sums, buffers = self._lanes(S, d, dtype)
        return *inputs, *sums, self.result, np.zeros((0, 0, 0)), *buffers

    def _tilt(self, S, d, dtype):
        self.result = np.empty(self.rows)
        coefficients = np.random.default_rng(2).standard_normal(S)
        return normal_rows(self.rows, d), *self.inputs[:3], coefficients, self.result

    def _tilt_gradient(self, S, d, dtype):
        *arguments, value = self._tilt(S, d, dtype)
        self.result = np.empty((self.rows, d))
        return *arguments, value, self.result

    def _quadratic_tilt(self, S, d, dtype):
        self.result = np.empty(self.rows)
        rng = np.random.default_rng(2)
        factor = np.tril(rng.standard_normal((S, S)) * (0.5 / math.sqrt(S)), -1)
        factor[np.diag_indices(S)] = rng.uniform(0.5, 2.0, S)
        linear = rng.standard_normal(S)
        factor.flags.writeable = linear.flags.writeable = False
        blocks = np.empty((self.n_threads, S, kernels.ROW_TILE))
        x = normal_rows(self.rows, d)
        return x, *self.inputs, factor, linear, self.result, blocks

    def _log_kernel_sums(self, S, d, dtype):
        self.result = np.empty(self.rows)
        return normal_rows(self.rows, d), normal_rows(KDE_ROWS, d), self.nothing, self.result

    def _marginal_mass(self, S, d, dtype):
        self.result = np.zeros((N_DIRECTIONS, N_GRID + 1))
        directions = np.random.default_rng(2).standard_normal((N_DIRECTIONS, d))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        low, step = np.full(N_DIRECTIONS, -6.0), np.full(N_DIRECTIONS, 12.0 / (N_GRID - 1))
        for array in (directions, low, step):
            array.flags.writeable = False
        grid, none = (directions, low, step), np.zeros((0, N_GRID + 1))
        excess = np.zeros((N_DIRECTIONS, 2))
        return normal_rows(self.rows, d), self.nothing, *grid, self.result, none, excess


class EvaluateRun:
    """`evaluate` of a model whose weighted draws are given, made ready: ``run(backend)`` is ours,
    ``rival(n)`` NumPy's on the first n of the directions. Both give (KS, WD).

    ``pairs`` counts rows and draws, each with every direction.
    """

    def __init__(self, rows, dimension=10, n_directions=N_DIRECTIONS, n_draws=N_DRAWS):
        rng = np.random.default_rng(5)
        self.x = normal_rows(rows, dimension)
        self.points = 0.1 + 1.1 * rng.standard_normal((n_draws, dimension))
        self.weights = np.exp(0.5 * rng.standard_normal(n_draws))
        self.directions = rng.standard_normal((n_directions, dimension))
        self.directions /= np.linalg.norm(self.directions, axis=1, keepdims=True)
        self.rows, self.pairs = rows, (rows + n_draws) * n_directions

    def weighted_sample(self, n, seed):
        """What `evaluate` asks a model for."""
        return self.points, self.weights

    def run(self, backend, n_threads=2):
        found = tgpfast.evaluate(
            self, self.x, n_grid=N_GRID, n_samples=len(self.points), directions=self.directions,
            backend=backend, n_threads=n_threads, units="data",
        )  # fmt: skip
        return found.ks, found.wd

    def rival(self, n):
        found = [
            (np.abs(p - q).max(), np.abs(p - q)[:-1].sum() * step)
            for p, q, step in self._marginals(n)
        ]
        return tuple(np.array(found).T)

    def resolution(self, n):
        """What two grids, neither coarser than NumPy's, may make of (KS, WD): the largest KS of the
        one misses at most what lies in a cell, which is in two cells of the other; a sum of
        |P - Q| over a grid misses at most its spacing times the variation of P - Q, two."""
        found = [
            (2.0 * max(np.diff(p).max(), np.diff(q).max()), 4.0 * step)
            for p, q, step in self._marginals(n)
        ]
        return tuple(np.array(found).T)

    def _marginals(self, n):
        return sorted_marginals(self.x, self.points, self.weights, self.directions[:n])


# -- steps of EM -----------------------------------------------------------------------------------

EM_STEPS = 5


class MixtureRun:
    """Rows of a mixture, and components from which both sides take EM_STEPS steps of EM.

    Parameters
    ----------
    shape : str
        "n x d x K", without spaces.
    """

    def __init__(self, shape):
        self.n, self.d, self.K = map(int, shape.split("x"))
        rng = np.random.default_rng(0)
        centers = rng.normal(0.0, 2.0, (self.K, self.d))
        self.rows = centers[rng.integers(0, self.K, self.n)] + rng.normal(size=(self.n, self.d))
        means = self.rows[rng.choice(self.n, self.K, replace=False)]
        covariances = np.stack([2.0 * np.eye(self.d)] * self.K)
        self.start = Components(np.full(self.K, 1.0 / self.K), means, covariances)

    def run_ours(self, backend, n_threads):
        """Full covariances."""
        threads = Threads(backend, n_threads)
        rows = Rows.from_data(self.rows, np.ones(self.n), Scaling.identity(self.d), threads)
        run_em(rows, Learner(np.full(self.d, 1e-3)), self.start, max_steps=EM_STEPS)

    def run_sklearn(self):
        """As many steps, which scikit-learn is told not to stop early."""
        from sklearn.mixture import GaussianMixture

        model = GaussianMixture(
            self.K, tol=0.0, max_iter=EM_STEPS, weights_init=self.start.weights,
            means_init=self.start.means, init_params="random_from_data", random_state=0,
            precisions_init=np.linalg.inv(self.start.covariances),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has not converged
            model.fit(self.rows)


# -- the spectral engine ---------------------------------------------------------------------------

DATA_VARIABLE = "TGPFAST_DATA"  # a folder with the sets of real data
LEAST_LIMIT_ROWS = 2**15  # of which the limit is timed
N_CHECKED = 200  # frequencies, or points, at which errors are taken
MODEL_ROWS = 16_384  # that a model is learned from whose evaluation is timed


@dataclass(frozen=True)
class SpectralCase:
    """One line of the table of the spectral engine. The limit is what it is compared with: rank-k
    updates ("statistics"), dgemm ("fvpd"), or cosines in NumPy ("point"), in seconds a row."""

    name: str
    kind: str
    dimension: int
    rows: int
    bound: float  # times faster than the limit, at least
    levels: int = 0
    data: str = ""  # a file of the folder; else standard normal rows


SPECTRAL_CASES = {
    "fd-1d": SpectralCase("FD statistics", "statistics", 1, 1_000_000, 20),
    "fd-2d": SpectralCase("FD statistics", "statistics", 2, 1_000_000, 10),
    "fd-2d-10m": SpectralCase("FD statistics", "statistics", 2, 10_000_000, 35),
    "fd-3d": SpectralCase(
        "FD statistics, GPS set", "statistics", 3, 2_000_000, 5, data="cabspotting_2m.npz"
    ),
    "ncfd-2d": SpectralCase("NCFD statistics, H=10", "statistics", 2, 1_000_000, 45, levels=10),
    "fvpd-2d": SpectralCase("FVPD log density", "fvpd", 2, 250_000, 12),
    "point-2d": SpectralCase("point model log density", "point", 2, 1_000_000, 30),
}


def data_folder(given=None):
    """Where the sets of real data are: given, or TGPFAST_DATA; None if neither says."""
    folder = given or os.environ.get(DATA_VARIABLE)
    return Path(folder) if folder else None


class SpectralRun:
    """A case made ready: ``run()`` is ours, ``limit`` what ``limit_rows`` rows take at least.

    share : of the rows of the case. FileNotFoundError where the data of the case are missing.
    """

    def __init__(self, case, n_features=1000, share=1.0, folder=None):
        self.case, rows, d = case, max(2_048, int(share * case.rows)), case.dimension
        if case.data:
            self.x = _standardised(case.data, folder, rows)
            gamma = len(self.x) ** (-1.0 / (d + 4))
            covariance = np.cov(self.x.T)
            self.features = tgpfast.Features.draw(n_features, gamma, covariance, seed=0)
        else:
            self.x = normal_rows(rows, d)
            self.features = scott_features(n_features, d, rows)
        self.rows, self.levels = len(self.x), noise_levels(d, case.levels) if case.levels else ()
        self.limit_rows = BARE_ROWS * -(-min(self.rows, LEAST_LIMIT_ROWS) // BARE_ROWS)
        getattr(self, f"_{case.kind}")(n_features)

    def _statistics(self, n_features):
        updates = max(1, 2 * len(self.levels) - 1)
        self.run = lambda: tgpfast.accumulate(
            self.x, self.features, noise_levels=self.levels, engine="spectral", n_threads=2
        )
        self.error = self._transform_error
        blocks = max(1, self.limit_rows // BARE_ROWS // updates)  # so many do for many updates
        self.limit_rows = blocks * BARE_ROWS
        self.limit = bare_rank_k(n_features, "float64", self.limit_rows, updates)

    def _learn(self, method):
        x = clustered_rows(min(MODEL_ROWS, self.rows), self.case.dimension)
        stats = tgpfast.accumulate(x, self.features, engine="direct", n_threads=2)
        base = tgpfast.GaussianBase.from_data(x)

        def make():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                return tgpfast.solve(stats, base, method, lam=10.0, n_threads=2)

        self.make, self.model = make, make()
        self.run = lambda: self.model.log_density(self.x, normalized=False)
        self.error = self._value_error

    def _fvpd(self, n_features):
        self._learn("fvpd")
        self.limit = bare_gemm(n_features, self.limit_rows)

    def _point(self, n_features):
        self._learn("fd")
        some = np.resize(self.x, (self.limit_rows, self.case.dimension))
        self.limit = numpy_cosines(some, self.features, self.model.theta)

    def first_run(self):
        """Seconds of `run` for a model never asked before: the waves of FVPD are made in it."""
        model = self.make()
        return timed(lambda: model.log_density(self.x, normalized=False))()

    def _value_error(self, values):
        """Largest error at some points, which the model does term by term, over the largest."""
        picked = np.random.default_rng(4).choice(self.rows, N_CHECKED)
        exact = self.model.log_density(self.x[picked], normalized=False)
        return relative_error(values[picked], exact)

    def _transform_error(self, stats):
        """Largest error of F / n, from entries of the Gram matrix and of the sums of every level,
        against sums term by term."""
        f, n, rng = self.features, len(self.x), np.random.default_rng(4)
        S, z, turn = f.n_features, f.frequencies, np.exp(1j * f.phases)
        s, t = rng.integers(0, S, (2, N_CHECKED))
        minus, plus = (self._sums((z[s] + sign * z[t]) / f.bandwidth) for sign in (-1.0, 1.0))
        gram = (turn[s] * np.conj(turn[t]) * minus - turn[s] * turn[t] * plus).real / S
        errors = [np.abs(stats.gram[s, t] - gram).max() * S / 2.0]
        for h in range(len(self.levels)):
            gamma = math.hypot(f.bandwidth, self.levels[h])
            few = rng.integers(0, S, N_CHECKED // len(self.levels))
            phi = (turn[few] * self._sums(z[few] / gamma)).real
            exact = stats.noise_sum_phi[h, few] * math.sqrt(S / 2.0)
            errors.append(np.abs(exact - phi).max())
        return float(max(errors)) / n

    def _sums(self, frequencies):
        module = kernels.load("auto")
        count = kernels.resolve_threads(module, 2)
        return sum_waves(np.ascontiguousarray(frequencies), self.x, None, module, count)


def _standardised(name, folder, rows):
    """Some rows of a set of real data, in order, each column of mean 0 and variance 1."""
    folder = data_folder(folder)
    if folder is None or not (folder / name).exists():
        raise FileNotFoundError(f"no {name}: say where by --data or {DATA_VARIABLE}")
    with np.load(folder / name, allow_pickle=False) as held:
        x = held["X"].astype(float)
    x = x[:: max(1, len(x) // rows)][:rows]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x.flags.writeable = False
    return x


def peak_memory(run):
    """Bytes that the process grows by at most while run() runs; None where it cannot be seen."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return None

    def resident():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    done, before = threading.Event(), resident()
    most = [before]

    def watch():
        while not done.wait(0.002):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = run()
        most[0] = max(most[0], resident())
    finally:
        done.set()
        watcher.join()
    del result
    return most[0] - before


# -- fresh processes -------------------------------------------------------------------------------

IMPORT_OURS = "import tgpfast"
IMPORT_RIVAL = "import numpy, scipy.linalg"  # what we stand on

_IMPORT = """
import time
start = time.perf_counter()
{statement}
print(time.perf_counter() - start)
"""

_FIRST_CALL = """
import time
import numpy as np
import tgpfast
x = np.random.default_rng(0).standard_normal((1000, 10))
features = tgpfast.Features.draw(1000, 1.0, np.eye(10), seed=0)
start = time.perf_counter()
tgpfast.accumulate(x, features, backend={backend!r}, n_threads=2)
print(time.perf_counter() - start)
"""


def child_environment():
    """Our environment, with the tgpfast that we have imported on the path. Bytecode is written, as
    by an install: numpy's is there already, and compiling only ours would tell against us."""
    paths = [str(Path(tgpfast.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


def run_child(*arguments):
    """Standard output of a Python process; RuntimeError with its last complaint if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments], env=child_environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RuntimeError(complaint)
    return done.stdout


def import_seconds(statement):
    """Seconds that an import takes in a fresh process, the start of Python not counted."""
    return float(run_child("-c", _IMPORT.format(statement=statement)))


def first_call_seconds(backend):
    """Seconds of the first accumulate, 1,000 rows, in a fresh process that has imported tgpfast."""
    return float(run_child("-c", _FIRST_CALL.format(backend=backend)))
