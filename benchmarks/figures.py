"""The required figures of speed, measured in one run: ``python benchmarks/figures.py``.

Prints a table "figure | measured | required | met" and the rows a second behind it. Unless said
otherwise S=1000, d=10, two threads, standard normal rows, everything compiled beforehand; the sides
of a comparison take turns and each counts with its best run. Quiet the machine first.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import importlib.util
import itertools
import json
import math
import operator
import os
import platform
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from scipy.linalg import blas

if __package__:  # imported by asv, which looks at every module here
    from . import measure
else:
    import measure

import tgpfast
from tgpfast import kernels
from tgpfast.data.blocks import Blocks
from tgpfast.runtime import memory
from tgpfast.statistics.costs import COSTS
from tgpfast.statistics.moment_sums import MomentSums
from tgpfast.statistics.spectral_work import SpectralWork

S, D, THREADS = 1000, 10, 2
LEVELS = 10
CHUNK = measure.CHUNK  # rows that the NumPy and PyTorch rivals take at a time
SMALL_ROWS, SMALL_BLOCK = 200_000, 8_192
MASS_ROWS = 65_536
MAP_ROWS, MAP_DRAWS, MAP_LAM = 10_000, 100_000, 0.1
GRADIENT_STEPS, MEASURED_STEPS = 10_000, 100  # of the paper's MAP iteration
KDE_ROWS, KDE_POINTS = 10_000, 4_096
EM_ROWS, EM_COLUMNS, EM_COMPONENTS = 10_000, (2, 6, 10, 28), (5, 20, 80)
EVALUATE_ROWS, RIVAL_DIRECTIONS = 1_000_000, 25  # NumPy's seconds are those of so many, scaled
# (rows, directions) whose memory is compared. The CDFs of the data are held for as many directions
# as 64 MB have room for, over 800; fewer take less
EVALUATE_MEMORY = {
    "evaluate-fewest": (100_000, 500), "evaluate-rows": (1_000_000, 500),
    "evaluate-directions": (100_000, 2_000), "evaluate-most": (100_000, 8_000),
}  # fmt: skip
EVALUATE_QUICK = 50  # times fewer rows and draws
SAME = 1e-9  # relative difference within which a rival's sums are the same as ours
SPECTRAL_REPEATS = 3
SPECTRAL_QUICK = {"n_features": 100, "share": 0.01}
AUTO_ROWS, AUTO_FEATURES = (20_000, 200_000, 1_000_000), (100, 300, 1000)
AUTO_MOST = 20.0  # seconds: an engine that would take longer is not run

MEETS = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclass
class Figure:
    """One line of the table; where value is None a note says why."""

    name: str
    sign: str
    bound: float
    value: float | None = None
    unit: str = ""
    note: str = ""
    digits: str = ".3f"

    def cells(self):
        required = "-" if math.isnan(self.bound) else f"{self.sign} {self.bound:g}{self.unit}"
        if self.value is None:
            return self.name, self.note, required, "-"
        met = "yes" if MEETS[self.sign](self.value, self.bound) else "NO"
        if math.isnan(self.bound):
            met = "-"
        return self.name, f"{self.value:{self.digits}}{self.unit}", required, met


class Run:
    """Options of this run, and the raw speeds that it has measured."""

    def __init__(self, rows, repeats, quick, data=None):
        self.rows, self.repeats, self.quick, self.data = rows, repeats, quick, data
        self.speeds = []

    def compare(self, label, rows, sides, at_least=0.0):
        """Seconds of each side, a dict name -> function; records rows a second."""
        say(f"{label}: {' / '.join(sides)}, {rows:,} rows, best of {self.repeats} ...")
        timed = [measure.timed(run, at_least) for run in sides.values()]
        best = measure.take_turns(timed, self.repeats)
        self.record(label, rows, dict(zip(sides, best, strict=True)))
        return best

    def record(self, label, rows, seconds):
        for side, value in seconds.items():
            self.speeds.append((label, side, f"{rows:,}", f"{value:.4g}", f"{rows / value:,.0f}"))
            say(f"    {side}: {value:.4g} s, {rows / value:,.0f} rows/s")


def say(line):
    print(line, file=sys.stderr, flush=True)


def accumulate_side(x, features, precision="float64", levels=()):
    """A function that runs our pass on two threads."""
    return lambda: tgpfast.accumulate(
        x, features, noise_levels=levels, engine="direct", precision=precision, n_threads=THREADS
    )


# -- against bare BLAS -----------------------------------------------------------------------------


def float64(run):
    yield bare_figure(run, "accumulate float64 / bare dsyrk, rows/s", 0.88, "float64", run.rows)


def mixed(run):
    yield bare_figure(run, "accumulate mixed / bare ssyrk, rows/s", 0.80, "mixed", run.rows)


def noise(run):
    name = f"accumulate noise H={LEVELS} / {2 * LEVELS - 1} bare dsyrk, rows/s"
    yield bare_figure(run, name, 0.80, "float64", run.rows // 4, measure.noise_levels(D, LEVELS))


def bare_figure(run, name, bound, precision, rows, levels=()):
    x, features = measure.normal_rows(rows, D), measure.scott_features(S, D, rows)
    updates = 2 * len(levels) - 1 if len(levels) else 1
    ours, bare = run.compare(
        name, rows,
        {
            "tgpfast": accumulate_side(x, features, precision, levels),
            "bare BLAS": measure.bare_rank_k(S, precision, rows, updates),
        },
    )  # fmt: skip
    return Figure(name, ">=", bound, bare / ours)


# -- against the same sums in NumPy and PyTorch ----------------------------------------------------


def numpy_sums(x, features):
    """The sums of `accumulate`, in float64, chunk by chunk; scaled once at the end."""
    n_features, d = features.frequencies.shape
    frequencies = np.ascontiguousarray((features.frequencies / features.bandwidth).T)
    sum_phi, sum_dphi = np.zeros(n_features), np.zeros(n_features)
    sum_dphi_x, gram = np.zeros((n_features, d)), np.zeros((n_features, n_features))
    sum_x, sum_xx = np.zeros(d), np.zeros((d, d))
    for start in range(0, len(x), CHUNK):
        rows = x[start : start + CHUNK]
        angle = rows @ frequencies
        angle += features.phases
        sine = np.sin(angle)
        cosine = np.cos(angle, out=angle)
        sum_phi += cosine.sum(axis=0)
        sum_dphi += sine.sum(axis=0)
        sum_dphi_x += sine.T @ rows
        gram += sine.T @ sine
        sum_x += rows.sum(axis=0)
        sum_xx += rows.T @ rows
    amplitude = math.sqrt(2.0 / n_features)
    return {
        "sum_phi": amplitude * sum_phi, "sum_dphi": -amplitude * sum_dphi,
        "sum_dphi_x": -amplitude * sum_dphi_x, "gram": amplitude**2 * gram,
        "sum_x": sum_x, "sum_xx": sum_xx,
    }  # fmt: skip


def torch_sums(torch, x, features):
    """`numpy_sums` in PyTorch; x is a tensor."""
    n_features, d = features.frequencies.shape
    frequencies = torch.from_numpy((features.frequencies / features.bandwidth).T.copy())
    phases = torch.from_numpy(features.phases.copy())
    zeros = {"dtype": torch.float64}
    sum_phi, sum_dphi = torch.zeros(n_features, **zeros), torch.zeros(n_features, **zeros)
    sum_dphi_x = torch.zeros((n_features, d), **zeros)
    gram = torch.zeros((n_features, n_features), **zeros)
    sum_x, sum_xx = torch.zeros(d, **zeros), torch.zeros((d, d), **zeros)
    with torch.inference_mode():
        for start in range(0, len(x), CHUNK):
            rows = x[start : start + CHUNK]
            angle = torch.addmm(phases, rows, frequencies)
            sine = torch.sin(angle)
            cosine = angle.cos_()
            sum_phi += cosine.sum(dim=0)
            sum_dphi += sine.sum(dim=0)
            sum_dphi_x.addmm_(sine.T, rows)
            gram.addmm_(sine.T, sine)
            sum_x += rows.sum(dim=0)
            sum_xx.addmm_(rows.T, rows)
    amplitude = math.sqrt(2.0 / n_features)
    return {
        "sum_phi": (amplitude * sum_phi).numpy(), "sum_dphi": (-amplitude * sum_dphi).numpy(),
        "sum_dphi_x": (-amplitude * sum_dphi_x).numpy(), "gram": (amplitude**2 * gram).numpy(),
        "sum_x": sum_x.numpy(), "sum_xx": sum_xx.numpy(),
    }  # fmt: skip


def check_same(stats, sums):
    """A rival that computes something else is no rival."""
    for name, value in sums.items():
        error = measure.relative_error(np.asarray(value), getattr(stats, name))
        if not error < SAME:
            raise RuntimeError(f"{name} of the rival differs from ours by {error:.1e}")


def rival_seconds(run, label, make_rival):
    """Seconds of our pass and of a rival's, after a look at whether they agree."""
    x, features = measure.normal_rows(run.rows, D), measure.scott_features(S, D, run.rows)
    ours, rival = accumulate_side(x, features), make_rival(x, features)
    check_same(ours(), rival())
    return run.compare(label, run.rows, {"tgpfast": ours, label: rival})


def chunked_numpy(run):
    def make_rival(x, features):
        def rival():
            with measure.blas_threads(THREADS):
                return numpy_sums(x, features)

        return rival

    ours, theirs = rival_seconds(run, "chunked NumPy float64", make_rival)
    yield Figure("accumulate float64 / chunked NumPy, rows/s", ">=", 3.0, theirs / ours)


def pytorch(run):
    """In a process of its own: PyTorch brings an OpenMP runtime that would disturb the rest."""
    figure = Figure("accumulate float64 / PyTorch float64, rows/s", ">=", 2.0)
    if importlib.util.find_spec("torch") is None:
        figure.note = "skipped: PyTorch is not installed"
    else:
        label = "PyTorch float64"
        say(f"{label}: in a process of its own, {run.rows:,} rows, best of {run.repeats} ...")
        output = measure.run_child(
            str(Path(__file__).resolve()), "--pytorch-child", "--rows", str(run.rows),
            "--repeats", str(run.repeats),
        )  # fmt: skip
        ours, theirs, version = json.loads(output.splitlines()[-1])
        run.record(f"PyTorch {version} float64", run.rows, {"tgpfast": ours, label: theirs})
        figure.value = theirs / ours
    yield figure


def pytorch_child(run):
    warm_up()
    import torch  # last of all, so that ours runs on the libraries it would have without

    torch.set_num_threads(THREADS)

    def make_rival(x, features):
        rows = torch.from_numpy(x.copy())  # a copy because PyTorch wants writable memory
        return lambda: torch_sums(torch, rows, features)

    ours, theirs = rival_seconds(run, "PyTorch float64", make_rival)
    print(json.dumps([ours, theirs, torch.__version__]))


# -- one compiled backend against the other --------------------------------------------------------


def cython(run):
    missing = [name for name in ("numba", "cython") if name not in kernels.available()]
    for kernel in (*measure.MIXED_KERNELS, *measure.FLOAT64_KERNELS):
        for precision in ("float64", "mixed") if kernel in measure.MIXED_KERNELS else ("float64",):
            name = f"Cython / Numba speed, {kernel} {precision}"
            figure = Figure(name, ">=", 0.85)
            if missing:
                figure.note = f"skipped: no {' and no '.join(missing)}"
            else:
                figure.value = cython_over_numba(run, name, kernel, precision)
            yield figure


def cython_over_numba(run, name, kernel, precision):
    rows = MASS_ROWS if kernel == "marginal_mass" and not run.quick else None
    calls = {
        backend: measure.KernelCall(kernel, backend, precision, S, D, THREADS, rows)
        for backend in ("cython", "numba")
    }
    ours, numbas = run.compare(
        name, calls["cython"].rows, {b: call.run for b, call in calls.items()}, at_least=0.1
    )
    return numbas / ours


# -- evaluation ------------------------------------------------------------------------------------


def tilt(run):
    for backend in ("numba", "cython"):
        name = f"tilt {backend} / numpy.cos(X @ Z.T / g + c) @ theta, rows/s"
        figure = Figure(name, ">=", 8.0)
        if backend not in kernels.available():
            figure.note = f"skipped: no {backend}"
            yield figure
            continue
        call = measure.KernelCall("tilt", backend, "float64", S, D, THREADS, run.rows)
        rival = measure.numpy_tilt(call)
        call.run()
        error = measure.relative_error(rival(), call.result)
        if not error < SAME:
            raise RuntimeError(f"NumPy's values differ from ours by {error:.1e}")
        ours, theirs = run.compare(
            name, run.rows, {backend: call.run, "NumPy": rival}, at_least=0.1
        )
        figure.value = theirs / ours
        yield figure


def quadratic(run):
    rows = run.rows // 4
    for backend in ("numba", "cython"):
        name = f"quadratic_tilt {backend} / bare dgemm of 2 S^2 flops a row, time"
        figure = Figure(name, "<=", 1.3)
        if backend not in kernels.available():
            figure.note = f"skipped: no {backend}"
            yield figure
            continue
        call = measure.KernelCall("quadratic_tilt", backend, "float64", S, D, THREADS, rows)
        bare = measure.bare_gemm(S, rows)
        call.run()
        ours, theirs = run.compare(name, rows, {backend: call.run, "bare BLAS": bare}, at_least=0.1)
        figure.value = ours / theirs
        yield figure


def evaluate(run):
    """`evaluate` against sorting, whose CDFs it must agree with; its memory; its kernel against the
    projections alone."""
    share = EVALUATE_QUICK if run.quick else 1
    backends = [b for b in ("numba", "cython") if b in kernels.available()]
    made = measure.EvaluateRun(EVALUATE_ROWS // share, D, n_draws=measure.N_DRAWS // share)
    label = f"evaluate, {len(made.directions)} directions, {len(made.points):,} draws"
    resolution, exact = made.resolution(RIVAL_DIRECTIONS), made.rival(RIVAL_DIRECTIONS)
    differences = {b: evaluate_differences(made.run(b), exact, resolution) for b in backends}
    scale = len(made.directions) // RIVAL_DIRECTIONS
    rival = f"NumPy: {RIVAL_DIRECTIONS} directions, time x {scale}"
    say(f"{label}: {' / '.join(backends)} / {rival}, best of {run.repeats} ...")
    sides = [measure.timed(lambda b=b: made.run(b)) for b in backends]
    *ours, theirs = measure.take_turns(
        [*sides, measure.timed(lambda: made.rival(RIVAL_DIRECTIONS))], run.repeats
    )
    theirs *= scale
    run.record(label, made.rows, dict(zip([*backends, rival], [*ours, theirs], strict=True)))
    seconds = dict(zip(backends, ours, strict=True))
    for backend in ("numba", "cython"):
        name = f"evaluate {backend} / sorting in NumPy ({rival.partition(': ')[2]}), rows/s"
        if backend not in backends:
            yield Figure(name, ">=", 10.0, note=f"skipped: no {backend}")
            continue
        yield Figure(name, ">=", 10.0, theirs / seconds[backend])
        for what, value, bound in zip(("KS", "WD"), differences[backend], resolution, strict=True):
            shown = f"evaluate {backend}, largest difference of {what} from sorting"
            yield Figure(shown, "<=", bound.max(), value, digits=".1e")
    yield from evaluate_memory(run)
    yield from evaluate_kernel(run, backends)


def evaluate_differences(ours, theirs, resolution):
    """The largest of KS and of WD; none may be beyond what the grids can tell apart."""
    largest = []
    for what, mine, other, bound in zip(("KS", "WD"), ours, theirs, resolution, strict=True):
        difference = np.abs(mine[: len(other)] - other)
        worst = int(np.argmax(difference / bound))
        if not (difference <= bound).all():
            raise RuntimeError(
                f"{what} differs from sorting by {difference[worst]:.1e} along direction {worst}, "
                f"the grid tells {bound[worst]:.1e} apart"
            )
        largest.append(float(difference.max()))
    return largest


def evaluate_memory(run):
    peaks = {key: memory_peak(run, key) for key in EVALUATE_MEMORY}
    for key, (rows, directions) in EVALUATE_MEMORY.items():
        rows //= EVALUATE_QUICK if run.quick else 1
        name = f"evaluate, {rows:,} rows, {directions:,} directions, memory beyond data and draws"
        yield memory_line(name, peaks[key], math.nan)
    for what, many, few in (("rows", "rows", "fewest"), ("directions", "most", "directions")):
        m, n = (EVALUATE_MEMORY[f"evaluate-{key}"][what == "directions"] for key in (many, few))
        figure = Figure(f"evaluate, memory with {m // n} times the {what}", "<=", 1.1)
        of_many, of_few = peaks[f"evaluate-{many}"], peaks[f"evaluate-{few}"]
        if of_many is None:
            figure.note = "skipped: this system does not say"
        else:
            figure.value = of_many / of_few
        yield figure


def evaluate_kernel(run, backends):
    """Shown, not required: projections are what the kernel cannot do without."""
    calls = [measure.KernelCall("marginal_mass", b, rows=MASS_ROWS) for b in backends]
    bare = measure.bare_gemm(measure.N_DIRECTIONS, MASS_ROWS, D)
    for call in calls:
        call.run()
    *ours, theirs = run.compare(
        f"marginal_mass, {measure.N_DIRECTIONS} directions", MASS_ROWS,
        {**{b: call.run for b, call in zip(backends, calls, strict=True)}, "bare dgemm": bare},
        at_least=0.1,
    )  # fmt: skip
    pairs = MASS_ROWS * measure.N_DIRECTIONS
    for side, seconds in zip([*backends, "bare dgemm"], [*ours, theirs], strict=True):
        name = f"marginal_mass {side}, time a row and direction"
        if side == "bare dgemm":
            name = "the projections alone by bare dgemm, time a row and direction"
        yield Figure(name, "<=", math.nan, 1e9 * seconds / pairs, " ns")
    for backend, seconds in zip(backends, ours, strict=True):
        name = f"marginal_mass {backend} / the projections alone by bare dgemm, time"
        yield Figure(name, "<=", math.nan, seconds / theirs)


# -- MAP -------------------------------------------------------------------------------------------


def maximum_posterior(run):
    """Newton's method to convergence against the paper's iteration, each once; the paper's steps
    are extrapolated from a few, without what precedes them (the draws) counted more than once."""
    draws, few = (4_096, 10) if run.quick else (MAP_DRAWS, MEASURED_STEPS)
    label = f"MAP, {draws:,} draws"
    x = measure.clustered_rows(MAP_ROWS, D)
    stats = tgpfast.accumulate(x, measure.scott_features(S, D, MAP_ROWS), n_threads=THREADS)
    base = tgpfast.GaussianBase.from_data(x)

    def learn(solver, n_steps=None, n_draws=draws):
        with warnings.catch_warnings():
            if solver == "gradient":
                warnings.simplefilter("ignore", RuntimeWarning)  # so few steps do not converge
            return tgpfast.solve(
                stats, base, "map", lam=MAP_LAM, solver=solver, n_draws=n_draws, n_steps=n_steps,
                n_threads=THREADS,
            )  # fmt: skip

    say(f"{label}: newton / {few} gradient steps, once each ...")
    learn("gradient", 1, 512)  # compiled before, but its imports were not made
    models = []
    newton, one, several = measure.take_turns(
        [
            measure.timed(lambda: models.append(learn("newton"))),
            measure.timed(lambda: learn("gradient", 1)),
            measure.timed(lambda: learn("gradient", few)),
        ],
        1,
    )
    report = models[0].diagnostics
    if not report["gradient_norm"] <= 1e-6:
        raise RuntimeError(f"newton stopped at a gradient of {report['gradient_norm']:.1e}")
    step = (several - one) / (few - 1)
    paper = one + (GRADIENT_STEPS - 1) * step
    stored = GRADIENT_STEPS * _stored_step(stats, base, draws)
    for side, seconds in (
        (f"newton, {report['steps']} steps to {report['gradient_norm']:.1e}", newton),
        (f"gradient, {few} steps", several),
        (f"gradient, {GRADIENT_STEPS:,} steps, extrapolated", paper),
        (f"the same in NumPy over stored features, {GRADIENT_STEPS:,} steps, extrapolated", stored),
    ):
        say(f"    {side}: {seconds:.4g} s")
        run.speeds.append((label, side, "", f"{seconds:.4g}", ""))
    name = f"MAP by newton to 1e-6 / {GRADIENT_STEPS:,} gradient steps, time"
    yield Figure(name, "<=", 0.1, newton / paper)
    name = f"MAP by newton to 1e-6 / {GRADIENT_STEPS:,} NumPy steps over stored features, time"
    yield Figure(name, "<=", 0.1, newton / stored)


def _stored_step(stats, base, draws):
    """Seconds of one step of the paper's iteration where all features of the draws stay in memory:
    the stronger rival, and 800 MB of it."""
    f, points = stats.features, base.sample(draws, seed=0)
    phi = np.empty((draws, f.n_features))
    for start in range(0, draws, 4_096):
        part = slice(start, start + 4_096)
        phi[part] = np.cos(points[part] @ (f.frequencies / f.bandwidth).T + f.phases)
    phi *= np.sqrt(2.0 / f.n_features)
    theta = np.zeros(f.n_features)

    def step():
        weights = phi @ theta
        weights = np.exp(weights - weights.max())
        return stats.sum_phi - stats.n * (weights / weights.sum()) @ phi - MAP_LAM * theta

    return measure.take_turns([measure.timed(step)], 10)[0]


# -- kernel density estimate -----------------------------------------------------------------------


def kernel_density(run):
    """Shown, not required. Both exact, in log space, with the same kernel."""
    from scipy.stats import gaussian_kde

    points = KDE_POINTS // 8 if run.quick else KDE_POINTS
    x, y = measure.clustered_rows(KDE_ROWS, D), measure.normal_rows(points, D)
    rival = gaussian_kde(x.T)
    ours = tgpfast.ExactKDE(x, covariance=np.cov(x.T), n_threads=THREADS)
    error = measure.relative_error(rival.logpdf(y.T), ours.log_density(y))
    if not error < SAME:
        raise RuntimeError(f"scipy's log density differs from ours by {error:.1e}")
    name = f"ExactKDE / scipy.stats.gaussian_kde.logpdf, {KDE_ROWS:,} rows, points/s"
    mine, theirs = run.compare(
        name, points,
        {"tgpfast": lambda: ours.log_density(y), "scipy": lambda: rival.logpdf(y.T)},
        at_least=0.1,
    )  # fmt: skip
    yield Figure(name, ">=", math.nan, theirs / mine)


# -- Gaussian mixtures -----------------------------------------------------------------------------


def mixture_steps(run):
    """As many steps of EM from the same components: on one thread each, then on two against one."""
    rows = 2_000 if run.quick else EM_ROWS
    for d, K in itertools.product(EM_COLUMNS, EM_COMPONENTS):
        made = measure.MixtureRun(f"{rows}x{d}x{K}")
        name = f"{measure.EM_STEPS} steps of EM, d={d}, K={K}"
        for backend in (b for b in kernels.available() if b != "numpy"):
            sides = {
                f"{backend}, {count} threads": functools.partial(made.run_ours, backend, count)
                for count in (1, THREADS)
            }
            with measure.blas_threads(1):
                one, two, theirs = run.compare(
                    name, rows, sides | {"scikit-learn": made.run_sklearn}
                )
            yield Figure(f"{name} / scikit-learn, {backend}, rows/s", ">=", 5.0, theirs / one)
            yield Figure(f"{name}, two threads / one, {backend}, time", "<", 1.0, two / one)


# -- few features ----------------------------------------------------------------------------------


def few_features(run):
    rows = SMALL_ROWS // 10 if run.quick else SMALL_ROWS
    for n_features in (48, 96):
        name = f"accumulate S={n_features} / features to memory, then BLAS, rows/s"
        x, features = measure.normal_rows(rows, D), measure.scott_features(n_features, D, rows)
        sides = {"tgpfast": accumulate_side(x, features)}
        stats = sides["tgpfast"]()
        with contextlib.ExitStack() as stack:
            for shares, workers in (("features", 1), ("rows", THREADS)):
                if workers > 1 and not concurrent_calls():
                    continue
                rival = stack.enter_context(ThroughMemory(x, features, workers))
                check_same(stats, rival.run())
                sides[f"through memory, threads share {shares}"] = rival.run
            ours, *theirs = run.compare(name, rows, sides, at_least=0.1)
        yield Figure(name, ">=", 1.3, theirs[0] / ours)
        if len(theirs) > 1:  # a stronger rival than asked for: shown, not required
            yield Figure(f"{name}, rows dealt to two workers", ">=", math.nan, theirs[1] / ours)


def concurrent_calls():
    """Whether kernels may be called from several Python threads at once."""
    if kernels.load("auto").NAME != "numba":
        return True
    import numba

    return numba.threading_layer() != "workqueue"


class ThroughMemory:
    """All features to one (S, n) array with our own kernel, then one dsyrk; buffers are reused.

    With one worker `feature_block` runs on two threads, which share out the features of a block. A
    second form has two workers, Python threads, that take turns at blocks of rows: less waiting.
    """

    def __init__(self, x, features, workers):
        self.x, self.features, self.workers = x, features, workers
        self.module = kernels.load("auto")
        n, n_features = len(x), features.n_features
        # a kernel wants C order: a view of all S n entries that starts at column k is in C order
        # too, and its first columns are the columns from k on
        self.flat = np.zeros((n_features + 1) * n)
        self.shape = (n_features, n)
        self.nothing = np.zeros(0)
        self.nothing.flags.writeable = False
        frequencies = features.frequencies / features.bandwidth
        amplitude = math.sqrt(2.0 / n_features)
        self.inputs = (np.zeros(D), frequencies, features.phases.copy(), amplitude)
        self.pool = concurrent.futures.ThreadPoolExecutor(workers)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.pool.shutdown()

    def columns(self, start):
        return self.flat[start : start + math.prod(self.shape)].reshape(self.shape)

    def part(self, worker):
        """Every workers-th block, from this worker's first: features and small sums."""
        (n_features, n), threads = self.shape, THREADS // self.workers
        sums = (np.zeros(n_features), np.zeros(n_features), np.zeros((n_features, D)))
        moments = MomentSums(self.inputs[0])
        phi = np.empty((0, 0))
        with kernels.threads(self.module, threads):
            for start in range(worker * SMALL_BLOCK, n, self.workers * SMALL_BLOCK):
                rows = self.x[start : start + SMALL_BLOCK]
                self.module.feature_block(
                    rows, self.nothing, *self.inputs, self.columns(start), phi, *sums, threads
                )
                moments.add(rows, None)
        return *sums, moments.sum_x, moments.sum_xx

    def run(self):
        parts = list(self.pool.map(self.part, range(self.workers)))
        totals = [sum(part) for part in zip(*parts, strict=True)]
        with measure.blas_threads(THREADS):
            gram = blas.dsyrk(1.0, self.columns(0).T, trans=1)  # the upper triangle
        return dict(
            zip(("sum_phi", "sum_dphi", "sum_dphi_x", "sum_x", "sum_xx"), totals, strict=True),
            gram=gram,
        )


# -- the spectral engine ---------------------------------------------------------------------------


def spectral(run):
    """Each case against its limit, in seconds a row; then its error and its memory."""
    size = SPECTRAL_QUICK if run.quick else {}
    n_features, repeats = size.get("n_features", S), min(run.repeats, SPECTRAL_REPEATS)
    for key, case in measure.SPECTRAL_CASES.items():
        try:
            made = measure.SpectralRun(case, folder=run.data, **size)
        except FileNotFoundError as error:
            yield Figure(
                f"{case.name}, d={case.dimension} / limit", ">=", case.bound,
                note=f"skipped: {error}",
            )  # fmt: skip
            continue
        name = f"{case.name}, d={case.dimension}, {made.rows:,} rows"
        say(f"{name}: tgpfast / limit, best of {repeats} ...")
        first = made.first_run() if case.kind == "fvpd" else None
        made.run()
        ours, limit = measure.take_turns(
            [measure.timed(made.run), measure.timed(made.limit)], repeats
        )
        limit *= made.rows / made.limit_rows
        run.record(f"{name}, S={n_features}", made.rows, {"tgpfast": ours, "limit": limit})
        yield Figure(f"{name} / limit, rows/s", ">=", case.bound, limit / ours)
        if first is not None:
            shown = f"{name} / limit, the first call of a model, rows/s"
            yield Figure(shown, ">=", math.nan, limit / first)
        error = made.error(made.run())
        say(f"    error: {error:.2g}")
        what = "F/n" if case.kind == "statistics" else "log density / its scale"
        yield Figure(f"{name}, error of {what}", "<=", SAME, error, digits=".1e")
        del made
        yield memory_line(f"{name}, memory beyond the data", memory_peak(run, key), 3.0)


def memory_line(name, peak, bound):
    if peak is None:
        return Figure(name, "<", bound, note="skipped: this system does not say", unit=" GB")
    return Figure(name, "<", bound, peak / 1e9, " GB")


def memory_peak(run, key):
    """In a process of its own, since memory that was used before is not taken again."""
    options = ["--quick"] if run.quick else []
    options += ["--data", run.data] if run.data else []
    output = measure.run_child(str(Path(__file__).resolve()), "--memory-child", key, *options)
    peak = json.loads(output.splitlines()[-1])
    if peak is not None:
        say(f"    {key}: memory beyond the data {peak / 1e9:.3g} GB")
    return peak


def memory_child(run, key):
    tgpfast.warmup()
    if key in EVALUATE_MEMORY:
        (rows, directions), share = EVALUATE_MEMORY[key], EVALUATE_QUICK if run.quick else 1
        measure.EvaluateRun(1_000, D, 4, 2_000).run("auto")  # imports what it needs
        made = measure.EvaluateRun(rows // share, D, directions, measure.N_DRAWS // share)
        print(json.dumps(measure.peak_memory(lambda: made.run("auto"))))
        return
    size = SPECTRAL_QUICK if run.quick else {}
    made = measure.SpectralRun(measure.SPECTRAL_CASES[key], folder=run.data, **size)
    print(json.dumps(measure.peak_memory(made.run)))


def auto(run):
    """How often engine="auto" takes a side that is within 25 % of the faster one. A side whose
    estimate is beyond AUTO_MOST is not run: then the other one wins if it took less than that."""
    rows, sizes = ((2_000, 20_000), (20, 60)) if run.quick else (AUTO_ROWS, AUTO_FEATURES)
    cases = [(d, n, k, 0) for d in (1, 2, 3) for n in rows for k in sizes]
    cases += [(d, n, sizes[1], LEVELS) for d in (1, 2, 3) for n in rows[:2]]
    hits, judged = 0, 0
    for d, n, n_features, levels in cases:
        label = f"engine=auto, d={d}, N={n:,}, S={n_features}, H={levels}"
        chosen, seconds = _both_engines(d, n, n_features, levels)
        if chosen is None:
            say(f"{label}: skipped, each engine would take more than {AUTO_MOST:g} s")
            continue
        best = min(seconds.values())
        judged += 1
        hit = seconds[chosen] <= 1.25 * best
        hits += hit
        text = ", ".join(f"{side} {value:.3g} s" for side, value in seconds.items())
        say(f"{label}: took {chosen}; {text}{'' if hit else '  MISSED'}")
        if not hit:
            run.record(f"MISSED: {label}", n, {
                f"{side}{', taken' if side == chosen else ''}": value
                for side, value in seconds.items()
            })  # fmt: skip
    if judged:
        name = f"engine=auto within 25 % of the faster, share of {judged} cases"
        yield Figure(name, ">=", 1.0, hits / judged)


def _both_engines(d, n, n_features, n_levels):
    """(what auto took, seconds of each side that was run); (None, {}) where neither is short."""
    x, features = measure.normal_rows(n, d), measure.scott_features(n_features, d, n)
    levels = measure.noise_levels(d, n_levels) if n_levels else ()
    work = SpectralWork(features, np.asarray(levels, float), False, 1e-9, memory.budget())
    estimates = {
        "direct": n * COSTS.direct_row(n_features, d, n_levels, False),
        "spectral": work.seconds(Blocks(x)),
    }
    if estimates["spectral"] is None:
        estimates["spectral"] = math.inf
    if min(estimates.values()) > AUTO_MOST:
        return None, {}

    def side(engine):
        return lambda: tgpfast.accumulate(
            x, features, noise_levels=levels, engine=engine, n_threads=THREADS
        )

    chosen = side("auto")().provenance["engine"]
    sides = [engine for engine, seconds in estimates.items() if seconds <= AUTO_MOST]
    repeats = 3 if max(estimates[engine] for engine in sides) < 1.0 else 1
    for engine in sides:
        if estimates[engine] < 1.0:
            side(engine)()  # imports and first touches are not counted
    best = measure.take_turns([measure.timed(side(e), 0.02) for e in sides], repeats)
    seconds = dict(zip(sides, best, strict=True))
    if chosen not in seconds:  # it took what it thought the slower: this is a miss
        seconds[chosen] = estimates[chosen]
    for engine in estimates:
        if engine not in seconds:
            seconds[f"{engine} (not run)"] = AUTO_MOST
    return chosen, seconds


# -- fresh processes -------------------------------------------------------------------------------


def imports(run):
    say(f"import: fresh processes, best of {run.repeats} ...")
    statements = (measure.IMPORT_OURS, measure.IMPORT_RIVAL)
    best = measure.take_turns(
        [lambda s=s: measure.import_seconds(s) for s in statements], run.repeats
    )
    for statement, seconds in zip(statements, best, strict=True):
        say(f"    {statement}: {seconds:.4g} s")
        run.speeds.append(("import", statement, "", f"{seconds:.4g}", ""))
    yield Figure("import tgpfast / import numpy, scipy.linalg, time", "<=", 1.3, best[0] / best[1])


def first_call(run):
    for backend, bound in (("numba", 2.0), ("cython", 0.2)):
        figure = Figure(f"first call of a second process, {backend}", "<", bound, unit=" s")
        if backend not in kernels.available():
            figure.note = f"skipped: no {backend}"
        else:
            say(f"{figure.name}: 1,000 rows, best of {run.repeats} ...")
            measure.first_call_seconds(backend)  # the first process fills Numba's cache
            (figure.value,) = measure.take_turns(
                [lambda b=backend: measure.first_call_seconds(b)], run.repeats
            )
            run.record(figure.name, 1000, {backend: figure.value})
        yield figure


# -- the table -------------------------------------------------------------------------------------

FIGURES = {
    "float64": float64, "mixed": mixed, "noise": noise, "numpy": chunked_numpy, "torch": pytorch,
    "cython": cython, "tilt": tilt, "quadratic": quadratic,
    "evaluate": evaluate, "map": maximum_posterior, "kde": kernel_density, "small": few_features,
    "em": mixture_steps,
    "import": imports, "first-call": first_call, "spectral": spectral, "auto": auto,
}  # fmt: skip


def warm_up():
    for backend in kernels.available():
        say(f"compiling {backend} ...")
        tgpfast.warmup(backend)


def cpu_model():
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def blas_of(module):
    found = module.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{found['name']} {found['version']}"


def machine():
    """What a figure cannot be read without."""
    lines = [
        f"CPU: {cpu_model()}, {os.cpu_count()} cores",
        f"Python {platform.python_version()}, tgpfast {tgpfast.__version__}, "
        f"backends {', '.join(kernels.available())}; measured unless said otherwise: "
        f"{kernels.load('auto').NAME}",
        f"numpy {np.__version__} with {blas_of(np)}",
        f"scipy {scipy.__version__} with {blas_of(scipy)}; this is the BLAS that all sides use "
        "except NumPy",
    ]
    if "numba" in kernels.available():
        import numba

        lines.append(f"numba {numba.__version__}, threading layer {numba.threading_layer()}")
    return "\n".join(lines)


def table(header, rows):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, tuple("-" * w for w in widths), *rows]
    return "\n".join(
        " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows, two repeats: a rehearsal")
    parser.add_argument("--rows", type=int, help="rows of a pass; 65,536 (8,192 if quick)")
    parser.add_argument("--repeats", type=int, help="runs of each side; 10 (2 if quick)")
    parser.add_argument("--only", action="append", choices=FIGURES, help="may be repeated")
    parser.add_argument("--data", help="folder of the real data; else TGPFAST_DATA")
    parser.add_argument("--memory-child", help=argparse.SUPPRESS)
    parser.add_argument("--pytorch-child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    rows = given.rows or (8_192 if given.quick else 65_536)
    whole = 4 * measure.BARE_ROWS  # a quarter of the rows, for noise, is in whole blocks of BLAS
    given.rows = whole * max(1, round(rows / whole))
    given.repeats = given.repeats or (2 if given.quick else 10)
    return given


def main():
    given = arguments()
    run = Run(given.rows, given.repeats, given.quick, given.data)
    if given.pytorch_child:
        pytorch_child(run)
        return
    if given.memory_child:
        memory_child(run, given.memory_child)
        return
    warm_up()
    figures = []
    for name in given.only or FIGURES:
        try:
            figures.extend(FIGURES[name](run))
        except Exception as error:  # one failure must not cost the other figures
            say(f"{name} failed: {type(error).__name__}: {error}")
            reason = str(error).partition("\n")[0]
            figures.append(Figure(f"FAILED: {name}", ">=", math.nan, note=reason))
    print(machine())
    print(f"S={S}, d={D}, {THREADS} threads, {run.rows:,} rows, best of {run.repeats}")
    if given.quick:
        print("A quick run: a rehearsal, not figures to be quoted.")
    print()
    print(table(("figure", "measured", "required", "met"), [f.cells() for f in figures]))
    print()
    print(table(("measurement", "side", "rows", "seconds", "rows/s"), run.speeds))


if __name__ == "__main__":
    main()
