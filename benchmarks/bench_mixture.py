"""Gaussian mixtures: steps of EM and evaluation, beside scikit-learn's ``GaussianMixture``.

Both sides start from the same means and covariances, take the same number of steps on the same
rows with full covariances, and take turns. A ratio below 0.2 is 5 times as fast.
"""

import numpy as np

from tgpfast.bases.mixture import MixtureBase
from tgpfast.bases.mixture_growth import grow_mixture
from tgpfast.kernels.thread_choice import Threads

from . import measure

BACKENDS = ["numba", "cython"]
SHAPES = ["20000x6x20", "20000x10x20", "20000x10x100", "5000x4x60", "10000x28x40"]  # n x d x K


class Steps:
    """Steps of EM."""

    params = (BACKENDS, SHAPES, [1, 2])
    param_names = ("backend", "shape", "threads")
    timeout = 300  # the first compilation by Numba

    def setup(self, backend, shape, threads):
        measure.require(backend, threads)
        self.made = measure.MixtureRun(shape)
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
        made = measure.MixtureRun(shape)
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
