"""Gaussian mixtures: steps of EM and evaluation, beside scikit-learn's ``GaussianMixture``.

Both sides start from the same means and covariances, take the same number of steps on the same
rows with full covariances, and take turns. A ratio below 0.2 is 5 times as fast.
"""

import warnings

import numpy as np

from tgpfast.bases.expectation_maximization import Components, Learner, Rows, run_em
from tgpfast.bases.mixture import MixtureBase
from tgpfast.bases.mixture_growth import grow_mixture
from tgpfast.data.scaling import Scaling
from tgpfast.kernels.thread_choice import Threads

from . import measure

BACKENDS = ["numba", "cython"]
SHAPES = ["20000x6x20", "20000x10x20", "20000x10x100", "5000x4x60", "10000x28x40"]  # n x d x K
STEPS = 5


class Problem:
    """Rows of a mixture, and components to start from."""

    def __init__(self, shape):
        self.n, self.d, self.K = map(int, shape.split("x"))
        rng = np.random.default_rng(0)
        centers = rng.normal(0.0, 2.0, (self.K, self.d))
        self.rows = centers[rng.integers(0, self.K, self.n)] + rng.normal(size=(self.n, self.d))
        means = self.rows[rng.choice(self.n, self.K, replace=False)]
        covariances = np.stack([2.0 * np.eye(self.d)] * self.K)
        self.start = Components(np.full(self.K, 1.0 / self.K), means, covariances)

    def run_ours(self, backend, n_threads):
        """STEPS steps of EM."""
        threads = Threads(backend, n_threads)
        rows = Rows.from_data(self.rows, np.ones(self.n), Scaling.identity(self.d), threads)
        run_em(rows, Learner(np.full(self.d, 1e-3)), self.start, max_steps=STEPS)

    def run_sklearn(self):
        """As many steps, which scikit-learn is told not to stop early."""
        from sklearn.mixture import GaussianMixture

        model = GaussianMixture(
            self.K, tol=0.0, max_iter=STEPS, weights_init=self.start.weights,
            means_init=self.start.means, init_params="random_from_data", random_state=0,
            precisions_init=np.linalg.inv(self.start.covariances),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has not converged
            model.fit(self.rows)


class Steps:
    """Steps of EM."""

    params = (BACKENDS, SHAPES, [1, 2])
    param_names = ("backend", "shape", "threads")
    timeout = 300  # the first compilation by Numba

    def setup(self, backend, shape, threads):
        measure.require(backend, threads)
        self.made = Problem(shape)
        self.made.run_ours(backend, threads)  # compiles

    def time_steps(self, backend, shape, threads):
        self.made.run_ours(backend, threads)

    def track_ratio_to_sklearn(self, backend, shape, threads):
        """Seconds of ours over seconds of scikit-learn's, whose BLAS has as many threads."""
        with measure.blas_threads(threads):
            ours, theirs = measure.take_turns(
                [
                    measure.timed(lambda: self.made.run_ours(backend, threads)),
                    measure.timed(self.made.run_sklearn),
                ],
                5,
                budget=20.0,
            )
        return ours / theirs

    track_ratio_to_sklearn.unit = "ratio"


class Evaluate:
    """Log density and score of 100,000 rows."""

    params = (BACKENDS, ["100000x6x200", "100000x10x200"], [1, 2])
    param_names = ("backend", "shape", "threads")
    timeout = 300

    def setup(self, backend, shape, threads):
        measure.require(backend, threads)
        made = Problem(shape)
        self.rows, self.mixture = made.rows, MixtureBase(*made.start)
        self.threads = Threads(backend, threads)
        self.mixture.evaluate_at(self.rows[:10], score=True, threads=self.threads)  # compiles

    def time_log_density(self, *_):
        self.mixture.evaluate_at(self.rows, threads=self.threads)

    def time_score(self, *_):
        self.mixture.evaluate_at(self.rows, score=True, threads=self.threads)


class Grow:
    """Growth on a ring, which takes many components: seconds, and nats lost to the truth."""

    params = (BACKENDS, [1, 2])
    param_names = ("backend", "threads")
    timeout = 300

    def setup(self, backend, threads):
        measure.require(backend, threads)
        rng = np.random.default_rng(0)
        angle, noise = rng.uniform(0.0, 2.0 * np.pi, 12_000), rng.normal(0.0, 0.1, 12_000)
        self.rows = (3.0 + noise)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        self.threads = Threads(backend, threads)
        self.run(max_components=2)  # compiles

    def run(self, **options):
        fit, held = self.rows[:8_000], self.rows[8_000:10_000]
        ones = np.ones(8_000)
        return grow_mixture(fit, ones, held, ones[:2_000], threads=self.threads, **options)

    def time_growth(self, *_):
        self.run()

    def track_nats_lost(self, *_):
        """On rows that neither the fit nor the choice of the size has seen."""
        new = self.rows[10_000:]
        radius = np.linalg.norm(new, axis=1)
        normal = -0.5 * np.square((radius - 3.0) / 0.1) - np.log(0.1 * np.sqrt(2.0 * np.pi))
        truth = normal - np.log(2.0 * np.pi * radius)
        return float((truth - self.run().mixture.log_density(new)).mean())

    track_nats_lost.unit = "nats"
