"""`evaluate` with the paper's directions, grid and draws: time, a row and direction, and memory."""

from . import measure

BACKENDS = ["numba", "cython"]  # NumPy's kernel alone is measured among the kernels


class Evaluate:
    params = (BACKENDS, [2, 10], [100_000])
    param_names = ("backend", "dimension", "rows")
    timeout = 300  # the first compilation by Numba

    def setup(self, backend, dimension, rows):
        measure.require(backend, 2)
        measure.EvaluateRun(1_000, dimension, 4, 2_000).run(backend)  # compiles
        self.made = measure.EvaluateRun(rows, dimension)

    def time_evaluate(self, backend, *_):
        self.made.run(backend)

    def track_seconds_per_row_direction(self, backend, *_):
        """Draws are rows too."""
        side = measure.timed(lambda: self.made.run(backend))
        return measure.take_turns([side], 5, budget=5.0)[0] / self.made.pairs

    track_seconds_per_row_direction.unit = "s/(row direction)"

    def peakmem_evaluate(self, backend, *_):
        self.made.run(backend)
