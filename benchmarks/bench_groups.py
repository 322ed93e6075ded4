"""`fit_groups`: seconds a group, time against a loop over `fit`, evaluation, memory."""

import functools
import warnings

import numpy as np

import tgpfast

from . import measure

BACKENDS = ["numba", "cython"]
GROUPS, ROWS, FEATURES = 200, 500, 128
LOOPED = 10  # groups of the loop over `fit`, which takes its time
GAMMA = 0.5


class Groups:
    params = (BACKENDS, [2, 6])
    param_names = ("backend", "dimension")
    timeout = 300  # the first compilation by Numba

    def setup(self, backend, dimension):
        measure.require(backend, 2)
        self.x = measure.clustered_rows(GROUPS * ROWS, dimension)
        labels = np.repeat(np.arange(GROUPS), ROWS)
        self.labels = np.random.default_rng(1).permutation(labels)
        self.made = self.fit(backend)  # compiles
        self.made.log_density(self.x[:10], self.labels[:10], normalized=False)

    def fit(self, backend):
        return tgpfast.fit_groups(
            self.x, self.labels, n_features=FEATURES, gamma=GAMMA, backend=backend, n_threads=2
        )

    def loop(self, backend):
        """`fit` of some of the groups, with the settings of `fit_groups`."""
        for label in range(LOOPED):
            tgpfast.fit(
                self.x[self.labels == label], method="fd", lam=10.0, gamma=GAMMA,
                base="empirical", frequency_covariance="identity", n_features=FEATURES,
                backend=backend, n_threads=2,
            )  # fmt: skip

    def track_seconds_per_group(self, backend, *_):
        side = measure.timed(lambda: self.fit(backend))
        return measure.take_turns([side], 5, budget=5.0)[0] / GROUPS

    track_seconds_per_group.unit = "s/group"

    def track_times_faster_than_a_loop(self, backend, *_):
        self.loop(backend)
        sides = [measure.timed(functools.partial(run, backend)) for run in (self.fit, self.loop)]
        ours, theirs = measure.take_turns(sides, 3, budget=10.0)
        return (theirs / LOOPED) / (ours / GROUPS)

    track_times_faster_than_a_loop.unit = "time of a loop / ours"

    def track_seconds_per_row_evaluated(self, *_):
        side = measure.timed(
            lambda: self.made.log_density(self.x, self.labels, normalized=False)
        )
        return measure.take_turns([side], 5, budget=5.0)[0] / len(self.x)

    track_seconds_per_row_evaluated.unit = "s/row"

    def track_seconds_per_normalizer(self, *_):
        some = np.arange(20)

        def find():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                self.made._find(some)

        return measure.take_turns([measure.timed(find)], 3, budget=5.0)[0] / len(some)

    track_seconds_per_normalizer.unit = "s/group"

    def track_error_of_theta(self, *_):
        """Against `solve` of one group alone, relative."""
        u = (self.x[self.labels == 3] - self.made.means[3]) / self.made.scale
        stats = tgpfast.accumulate(
            u, self.made.features, engine="direct", precision="float64", backend="numpy"
        )
        alone = tgpfast.solve(stats, self.made[3].base, "fd", lam=10.0)
        return measure.relative_error(self.made.theta[3], alone.theta)

    track_error_of_theta.unit = "relative error"

    def peakmem_fit(self, backend, *_):
        self.fit(backend)
