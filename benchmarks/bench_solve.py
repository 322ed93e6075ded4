"""From statistics to a density and its uses: solve, MAP, normaliser, sample, and all of `fit`."""

import warnings

import tgpfast
from tgpfast.density.normalizing.integration import Integrator

from . import measure

METHODS = ["fd", "ncfd", "fvpd"]
ROWS = 8_192  # behind the statistics; solving does not look at them again
LARGE, LARGE_ROWS = 8_000, 2_048
N_SAMPLES = 10_000


def statistics(n_features, dimension, rows, levels=()):
    x = measure.clustered_rows(rows, dimension)
    features = measure.scott_features(n_features, dimension, rows)
    return tgpfast.accumulate(x, features, noise_levels=levels, engine="direct", n_threads=2)


def learn(stats, method, **options):
    """`solve` with the base of clustered_rows, without its advice on what is hard on purpose."""
    base = tgpfast.GaussianBase(stats.sum_x / stats.n, stats.sum_xx / stats.n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tgpfast.solve(stats, base, method, n_threads=2, **options)


FIXED = {"lam": 10.0, "gamma": "scott", "eta": "1/gamma2", "base": "empirical",
         "frequency_covariance": "data"}  # fmt: skip


class _Timed:
    timeout = 600

    def seconds(self, repeats=5, budget=10.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return measure.take_turns([measure.timed(self.run)], repeats, budget)[0]


class Solve(_Timed):
    params = (METHODS, [1000])
    param_names = ("method", "n_features")

    def setup(self, method, n_features):
        levels = measure.noise_levels(10, 2) if method == "ncfd" else ()
        stats = statistics(n_features, 10, ROWS, levels)
        self.run = lambda: learn(stats, method, lam=10.0)
        self.run()

    def track_seconds(self, *_):
        return self.seconds()

    track_seconds.unit = "s"


class SolveLarge(_Timed):
    """Conjugate gradients at S=8000."""

    def setup(self):
        stats = statistics(LARGE, 10, LARGE_ROWS)
        self.run = lambda: learn(stats, "fd", lam=10.0, solver="cg")

    def track_seconds(self):
        return self.seconds(repeats=2)

    track_seconds.unit = "s"

    def track_residual(self):
        return self.run().diagnostics["residual"]

    track_residual.unit = "relative residual"

    def peakmem_solve(self):
        self.run()


class MaximumPosterior(_Timed):
    """Newton's method to convergence, on 100,000 draws from the base."""

    params = (["newton"], [1000])
    param_names = ("solver", "n_features")

    def setup(self, solver, n_features):
        stats = statistics(n_features, 10, ROWS)
        learn(stats, "map", solver=solver, n_draws=512, n_steps=1)  # compiles
        self.run = lambda: learn(stats, "map", lam=10.0, solver=solver, n_draws=100_000)

    def track_seconds(self, *_):
        return self.seconds(repeats=1)

    track_seconds.unit = "s"


class Normalizer(_Timed):
    params = (["fd", "fvpd"], [2, 10])
    param_names = ("method", "dimension")

    def setup(self, method, dimension):
        model = learn(statistics(1000, dimension, ROWS), method, lam=10.0)
        model.log_density(measure.normal_rows(2, dimension), normalized=False)  # compiles
        self.run = lambda: Integrator(model.tilt, model.base, model.threads).log_normalizer

    def track_seconds(self, *_):
        return self.seconds(repeats=3)

    track_seconds.unit = "s"


class Sample(_Timed):
    params = (["grid", "importance", "mala"], [2, 10])
    param_names = ("method", "dimension")

    def setup(self, method, dimension):
        if method == "grid" and dimension > 2:
            raise NotImplementedError("grids are for one and two dimensions")
        model = learn(statistics(1000, dimension, ROWS), "fd", lam=10.0)
        model.grad_log_density(measure.normal_rows(2, dimension))  # compiles
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            _ = model.log_normalizer  # measured by itself, above
        self.run = lambda: model.sample(N_SAMPLES, seed=0, method=method)

    def track_seconds_per_draw(self, *_):
        return self.seconds(repeats=2) / N_SAMPLES

    track_seconds_per_draw.unit = "s/draw"


class Fit(_Timed):
    """End to end: moments, scaling, statistics, solve; "auto" chooses its settings first."""

    params = (("auto", *METHODS), [2, 10], [16_384])
    param_names = ("method", "dimension", "rows")

    def setup(self, method, dimension, rows):
        x = measure.clustered_rows(rows, dimension)
        tgpfast.warmup()
        fixed = {} if method == "auto" else FIXED
        self.run = lambda: tgpfast.fit(x, method=method, n_threads=2, **fixed)

    def track_seconds(self, *_):
        return self.seconds(repeats=2)

    track_seconds.unit = "s"

    def peakmem_fit(self, *_):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            self.run()
