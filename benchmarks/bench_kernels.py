"""Every kernel of every backend: seconds a row; at S=1000 also error, memory and bare BLAS."""

from tgpfast import kernels

from . import measure

PRECISIONS = ["float64", "mixed"]
NAMES = ["kernel", "backend", "precision", "n_features", "dimension", "threads"]
BACKENDS = list(kernels.BACKENDS)
COMPILED = ["numba", "cython"]


class _Call:
    param_names = NAMES
    timeout = 300  # NumPy at S=2000, and the first compilation by Numba

    def setup(self, kernel, backend, precision, n_features, dimension, threads):
        if threads == 1 and precision != "float64":
            raise NotImplementedError("one thread is measured in float64 only")
        measure.require(backend, threads)
        self.call = measure.KernelCall(kernel, backend, precision, n_features, dimension, threads)
        self.call.run()  # compiles


class _Speed(_Call):
    def track_seconds_per_row(self, *_):
        side = measure.timed(self.call.run, at_least=0.05)
        return measure.take_turns([side], 5, budget=2.0)[0] / self.call.rows

    track_seconds_per_row.unit = "s/row"


class Lanes(_Speed):
    params = (
        ["lane_rank_k"], BACKENDS, PRECISIONS, [48, 96, 1000], [10], [1, 2],
    )  # fmt: skip


class Tiles(_Speed):
    params = (
        ["feature_block", "rank_k"], BACKENDS, PRECISIONS,
        [1000, 2000], [10], [1, 2],
    )  # fmt: skip


class Rows(_Speed):
    """Kernels that know no features."""

    params = (
        ["log_kernel_sums", "marginal_mass"], BACKENDS, ["float64"], [1000], [2, 10],
        [1, 2],
    )  # fmt: skip


class Tilts(_Speed):
    """Kernels that evaluate a learned exponent."""

    params = (list(measure.TILT_KERNELS), BACKENDS, ["float64"], [100, 1000], [2, 10], [1, 2])


class _Truth(_Call):
    def track_error(self, *_):
        return self.call.error()

    track_error.unit = "relative error"

    def peakmem_call(self, *_):
        self.call.run()


class Mixed(_Truth):
    """Kernels that exist in both precisions."""

    params = (list(measure.MIXED_KERNELS), COMPILED, PRECISIONS, [1000], [10], [2])


class Float64(_Truth):
    """Kernels that exist in float64 only."""

    params = (list(measure.FLOAT64_KERNELS), COMPILED, ["float64"], [1000], [10], [2])


class Tilt(_Call):
    params = (["tilt"], COMPILED, ["float64"], [1000], [2, 10], [2])

    def track_numpy_ratio(self, *_):
        rival = measure.numpy_tilt(self.call)
        sides = [measure.timed(run, at_least=0.05) for run in (self.call.run, rival)]
        ours, theirs = measure.take_turns(sides, 5, budget=5.0)
        return theirs / ours

    track_numpy_ratio.unit = "rows/s / np.cos(X @ Z.T / g + c) @ theta"


class Quadratic(_Call):
    params = (["quadratic_tilt"], COMPILED, ["float64"], [1000, 2000], [10], [2])

    def track_gemm_ratio(self, kernel, backend, precision, n_features, *_):
        bare = measure.bare_gemm(n_features, self.call.rows)
        sides = [measure.timed(run, at_least=0.05) for run in (self.call.run, bare)]
        ours, theirs = measure.take_turns(sides, 5, budget=5.0)
        return ours / theirs

    track_gemm_ratio.unit = "time / bare GEMM of 2 S^2 flops a row"


class Gram(_Call):
    """Kernels that BLAS does most of."""

    params = (list(measure.GRAM_KERNELS), COMPILED, PRECISIONS, [1000], [10], [2])

    def track_blas_ratio(self, kernel, backend, precision, n_features, *_):
        bare = measure.bare_rank_k(n_features, precision, self.call.rows, self.call.updates)
        sides = [measure.timed(run, at_least=0.05) for run in (self.call.run, bare)]
        ours, theirs = measure.take_turns(sides, 5, budget=3.0)
        return ours / theirs

    track_blas_ratio.unit = "time / bare BLAS"
