"""`accumulate`: seconds a row, time over that of bare BLAS, error of the Gram matrix, memory."""

import numpy as np

import tgpfast
from tgpfast import kernels

from . import measure

KINDS = ["plain", "weighted", "noise"]  # noise: ten levels
PRECISIONS = ["float64", "mixed"]
NAMES = ["kind", "backend", "precision", "n_features", "dimension", "threads"]
BACKENDS = list(kernels.BACKENDS)
COMPILED = ["numba", "cython"]

LEVELS = 10
UPDATES = {"plain": 1, "weighted": 1, "noise": 2 * LEVELS - 1}  # rank-k updates a row
# a tenth of a second or more, in whole blocks of bare BLAS; with lanes, one whole block of ours
ROWS = {48: 65_536, 96: 65_536, 1000: 16_384, 2000: 4_096}
NOISE_ROWS = {48: 16_384, 96: 16_384, 1000: 16_384, 2000: 2_048}
ERROR_ROWS = 1_024  # NumPy does these too
MEMORY_ROWS = 2_048  # eight row tiles: every lane takes its memory


class _Pass:
    param_names = NAMES
    timeout = 300  # NumPy, and the first compilation by Numba

    def setup(self, kind, backend, precision, n_features, dimension, threads):
        if precision != "float64" and (threads == 1 or dimension == 2):
            raise NotImplementedError("one thread and d=2 are measured in float64 only")
        measure.require(backend, threads)
        self.rows = (NOISE_ROWS if kind == "noise" else ROWS)[n_features]
        self.x = measure.normal_rows(self.rows, dimension)
        self.features = measure.scott_features(n_features, dimension, self.rows)
        self.weights, self.levels = None, ()
        if kind == "weighted":
            self.weights = np.random.default_rng(3).uniform(0.5, 1.5, self.rows)
        if kind == "noise":
            self.levels = measure.noise_levels(dimension, LEVELS)
        self.choice = {"backend": backend, "precision": precision, "n_threads": threads}
        self.run(300)  # compiles

    def run(self, rows=None, **choice):
        return tgpfast.accumulate(
            self.x[:rows], self.features, noise_levels=self.levels,
            sample_weight=None if self.weights is None else self.weights[:rows], engine="direct",
            **{**self.choice, **choice},
        )  # fmt: skip


class _Speed(_Pass):
    def track_seconds_per_row(self, *_):
        side = measure.timed(self.run, at_least=0.05)
        return measure.take_turns([side], 5, budget=2.0)[0] / self.rows

    track_seconds_per_row.unit = "s/row"


class Plain(_Speed):
    params = (["plain"], BACKENDS, PRECISIONS, [48, 96, 1000, 2000], [2, 10], [1, 2])


class WeightedAndNoise(_Speed):
    params = (["weighted", "noise"], COMPILED, PRECISIONS, [48, 96, 1000, 2000], [10], [2])


class Comparison(_Pass):
    params = (KINDS, COMPILED, PRECISIONS, [1000, 2000], [10], [2])

    def track_blas_ratio(self, kind, backend, precision, n_features, *_):
        bare = measure.bare_rank_k(n_features, precision, self.rows, UPDATES[kind])
        sides = [measure.timed(run) for run in (self.run, bare)]
        ours, theirs = measure.take_turns(sides, 5, budget=3.0)
        return ours / theirs

    track_blas_ratio.unit = "time / bare BLAS"

    def track_gram_error(self, kind, *_):
        stats = self.run(ERROR_ROWS)
        exact = self.run(ERROR_ROWS, backend="numpy", precision="float64", n_threads=1)
        field = "noise_gram" if kind == "noise" else "gram"
        return measure.relative_error(getattr(stats, field), getattr(exact, field))

    track_gram_error.unit = "relative error"
    track_gram_error.params = (KINDS, COMPILED, PRECISIONS, [96, 2000], [10], [2])

    def peakmem_pass(self, *_):
        self.run(MEMORY_ROWS)
