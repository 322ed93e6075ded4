"""asv: lattice features: sums over rows, MAP, values at points, and the default fit."""

import numpy as np

import tgpfast as tgp


def two_moons(n, seed=0):
    rng = np.random.default_rng(seed)
    angle, upper = rng.uniform(0, np.pi, n), rng.integers(0, 2, n)
    x = np.where(upper, 1 - np.cos(angle), np.cos(angle))
    y = np.where(upper, 0.5 - np.sin(angle), np.sin(angle))
    return np.c_[x, y] + 0.1 * rng.normal(size=(n, 2))


class Lattice:
    """128 x 128 frequencies, two columns."""

    def setup(self):
        self.x = two_moons(100_000)
        self.base = tgp.GaussianBase.from_data(self.x)
        self.features = tgp.LatticeFeatures.for_data(
            self.x, 64, "matern32", 0.3, base=self.base
        )
        self.stats = tgp.accumulate(self.x, self.features)
        self.model = tgp.solve(self.stats, self.base, "map", 1.0)
        self.model.log_density(self.x[:10])

    def time_sums(self):
        tgp.accumulate(self.x, self.features)

    def time_map(self):
        tgp.solve(self.stats, self.base, "map", 1.0)

    def time_log_density(self):
        self.model.log_density(self.x)

    def time_sample(self):
        self.model.sample(100_000, seed=0)


class DefaultFit:
    """``fit(X)`` and one evaluation."""

    params = ([1, 2], [100, 1_000, 10_000, 100_000])
    param_names = ("columns", "rows")

    def setup(self, columns, rows):
        self.x = two_moons(rows)[:, :columns]
        tgp.fit(self.x[:100])

    def time_fit(self, columns, rows):
        tgp.fit(self.x).log_density(self.x[:1])
