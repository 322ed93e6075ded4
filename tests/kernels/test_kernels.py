"""Every kernel of every backend against the oracle, within bounds derived from the arithmetic.

Notation of the bounds: u = 2^-53 and v are the unit roundoffs of float64 and of the products'
dtype (v = u or 2^-24). Bounds are first-order and worst-case, valid for any order of summation and
with or without fused multiply-add; k roundings in a row count as k u. Nothing is tuned to pass.

Angle. The kernel adds, in float64, a phase p = c + f.o and d products f_k (x_k - o_k), f = z/gamma.
Rounded once each: f, x_k - o_k, the product, p itself; and d additions. So
    |angle error| <= u [(d + 3) sum_k |f_k| |x_k - o_k| + (d + 1) |p|].
Feature. r A cos(angle), with |cos'| <= 1: the angle's error, the error of sincos (2.3e-16 in
float64, 1.2e-7 in float32, as the kernels promise), then A, r and two products rounded in the
products' dtype, sqrt(2/S), sqrt(w) and the oracle's result rounded in float64:
    |feature error| <= A r (|angle error| + sincos + 4 v + 3 u).
Sum of n features. Float64 terms A w cos(angle) [x_k - o_k]; up to 8 float64 roundings in a term's
weights and factors and in the result, n additions:
    |sum error| <= sum_i A w_i [|x_ik - o_k|] (|angle error| + sincos + 4 v + (n + 8) u).
Gram. With E the feature errors and F = |features| + E, products of k rows in the products' dtype:
    |gram error| <= E F^T + F E^T + (k + 2) v F F^T.
Delta. exp(-|u_s -+ u_t|^2 / 2) has the exponent +-u_s.u_t - h_s - h_t, h = |u|^2/2, every term of
which is at most L = h_s + h_t: u_s.u_t and h err by d u L, their sum by u L, the difference by
2 u L, and u itself, rounded once, moves |u_s -+ u_t|^2 / 2 by at most 4 u L; exp errs by 2 units in
the last place, at most 4 u:
    |Delta error| / Delta <= (2 d + 7) u L + 4 u.
Tilt. sum_s b_s cos(angle): the errors of the angle and of sincos, a product, S additions, the
oracle's result. Its gradient has one more product, and a frequency f that was rounded once:
    |tilt error|     <= sum_s |b_s| (|angle error| + sincos + (S + 2) u)
    |gradient error| <= sum_s |b_s| |f_s| (|angle error| + sincos + (S + 4) u).
Quadratic tilt. h = L^-1 phi by substitution, blocked or not, with divisions or with reciprocals,
solves (L + D) h = phi exactly for some |D| <= (S + 2) u |L|. With e the error of phi, and then 2 S
additions, two products and a sum, and the oracle's result:
    |h error|     <= |L^-1| (e + (S + 2) u |L| |h|)
    |value error| <= |h|.|h error| + |l|.e + (2 S + 4) u (|h|^2 / 2 + |l|.|phi|).
Kernel sums. q = |y - x|^2 / 2: a difference, which counts twice, a product, d additions. Its
distance to the least q is at most q, and so are all the steps by which a running sum follows a
falling least; exp errs by 4 u, the weight's product by u. There are n additions, and at most one
step a tile of 256 rows, each of an exp and a product. A term of share p in the sum moves its
logarithm by p times its relative error. The logarithm itself errs by 2 units in the last place, and
two roundings follow. What exp takes as 0 is below 4e-308 of the nearest term:
    |value error| <= sum_j p_j ((d + 4) u q_j) + (n + 5 (n / 256 + 2)) u
                     + 4 u |value + least q| + 2 u |value|.
"""

import ctypes
import functools
import inspect
import math
from decimal import Decimal, localcontext

import conftest
import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import oracle
import pytest
import scipy.linalg.cython_blas

from tgpfast.features.delta_weights import add_noise_level
from tgpfast.features.random import Features

U = 2.0**-53
ROUNDOFF = {np.float64: U, np.float32: 2.0**-24}
SINCOS = {np.float64: 2.3e-16, np.float32: 1.2e-7}
# Where long double is no wider than double, the oracle errs as much as the kernel.
ORACLE = 1.0 if np.finfo(np.longdouble).eps < 2.0**-60 else 2.0
GAMMA = 0.7
SIGMA = 0.9

COMPILED = ["numba", "cython"]
DTYPES = [np.float64, np.float32]
FEATURES = (1, 2, 7, 65, 300)  # one, a pair, odd, one more than a group of 64, several groups
DIMENSIONS = (1, 2, 3, 4, 10)
ROWS = (1, 255, 256, 257, 1000)  # around the row tile of 256
# S x n in full; d by a Latin square, so that every (S, d) and (n, d) is there; weights in turn
CASES = [
    pytest.param(
        n_features, DIMENSIONS[(i + 2 * j) % 5], n, (i + j) % 2 == 1,
        id=f"S{n_features}-d{DIMENSIONS[(i + 2 * j) % 5]}-n{n}{'-weighted' * ((i + j) % 2)}",
    )
    for i, n_features in enumerate(FEATURES)
    for j, n in enumerate(ROWS)
]  # fmt: skip

every_case = pytest.mark.parametrize(("n_features", "d", "n", "weighted"), CASES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float64", "float32"])
compiled_only = pytest.mark.parametrize("kernels", COMPILED, indirect=True)


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread():
    """scipy's BLAS, which compiled kernels call from their own threads, on one thread."""
    blas = ctypes.CDLL(scipy.linalg.cython_blas.__file__)
    if not hasattr(blas, "scipy_openblas_set_num_threads"):  # another BLAS: only slower
        yield
        return
    before = blas.scipy_openblas_get_num_threads()
    blas.scipy_openblas_set_num_threads(1)
    yield
    blas.scipy_openblas_set_num_threads(before)


# -- problems, their references and their bounds --------------------------------------------------


class Problem:
    """Inputs of the kernels, and what the oracle says of them, at one bandwidth gamma_sigma."""

    def __init__(self, n_features, d, n, weighted, sigma):
        rng = np.random.default_rng([n_features, d, n, weighted])
        self.Z = rng.normal(size=(n_features, d))
        self.c = rng.uniform(0.0, 2.0 * np.pi, n_features)
        self.origin = rng.normal(scale=3.0, size=d)
        self.x = 0.6 * self.origin + rng.normal(scale=1.5, size=(n, d))
        self.weights = rng.uniform(0.1, 4.0, n) if weighted else None
        if weighted:
            self.weights[n // 2 :: 7] = 0.0
        self.sigma = sigma
        # what a caller passes: each rounded once from the exact value
        width = np.sqrt(np.longdouble(GAMMA) ** 2 + np.longdouble(sigma) ** 2)
        exact = self.Z.astype(np.longdouble) / width
        self.frequencies = exact.astype(np.float64)
        self.phases = (self.c + exact @ self.origin.astype(np.longdouble)).astype(np.float64)
        self.u = (exact * sigma).astype(np.float64)
        self.factor = float(0.5 / width**2)
        self.amplitude = math.sqrt(2.0 / n_features)
        self.root_weights = np.sqrt(self.weights) if weighted else np.empty(0)

    @property
    def inputs(self):
        """The first six arguments of every kernel that makes features."""
        return (
            self.x, self.root_weights, self.origin, self.frequencies, self.phases, self.amplitude
        )  # fmt: skip

    @property
    def weights_or_ones(self):
        return np.ones(len(self.x)) if self.weights is None else self.weights

    @functools.cached_property
    def dphi(self):
        """Root-weighted phi', (S, n)."""
        features = oracle.dphi_sigma(self.x, self.Z, self.c, GAMMA, self.sigma)
        return features.T * np.sqrt(self.weights_or_ones)

    @functools.cached_property
    def phi(self):
        features = oracle.phi_sigma(self.x, self.Z, self.c, GAMMA, self.sigma)
        return features.T * np.sqrt(self.weights_or_ones)

    @functools.cached_property
    def angle_error(self):
        d = self.x.shape[1]
        products = np.abs(self.frequencies) @ np.abs(self.x - self.origin).T
        return U * ((d + 3) * products + (d + 1) * np.abs(self.phases)[:, None])

    def feature_error(self, dtype):
        relative = self.angle_error + SINCOS[dtype] + 4 * ROUNDOFF[dtype] + 3 * U
        return self.amplitude * np.sqrt(self.weights_or_ones) * relative

    def sum_errors(self, dtype, take=slice(None)):
        """Bounds of sum_phi, sum_dphi, sum_dphi_x over these rows."""
        weights = self.weights_or_ones[take]
        relative = self.angle_error[:, take] + SINCOS[dtype] + 4 * ROUNDOFF[dtype]
        terms = self.amplitude * weights * (relative + (len(weights) + 8) * U)
        single = terms.sum(axis=1)
        return single, single, terms @ np.abs(self.x[take] - self.origin)

    @functools.cached_property
    def deltas(self):
        """Delta^- + Delta^+."""
        minus = oracle.delta_minus(self.Z, GAMMA, self.sigma)
        return minus + oracle.delta_plus(self.Z, GAMMA, self.sigma)

    def rows(self, take):
        return self.x[take], None if self.weights is None else self.weights[take]

    def sums(self, take=slice(None)):
        """The oracle's sum_phi, sum_dphi, sum_dphi_x over these rows."""
        x, weights = self.rows(take)
        arguments = (x, self.Z, self.c, GAMMA, (self.sigma,), weights)
        return (
            oracle.noise_sum_phi(*arguments)[0],
            oracle.noise_sum_dphi(*arguments)[0],
            oracle.noise_sum_dphi_x(*arguments, self.origin)[0],
        )

    def grams(self, take=slice(None)):
        """The oracle's Phi' and Phi over these rows, at sigma = 0."""
        assert self.sigma == 0.0
        x, weights = self.rows(take)
        arguments = (x, self.Z, self.c, GAMMA, weights)
        return oracle.gram(*arguments), oracle.gram_phi(*arguments)

    def noise_gram(self, take=slice(None)):
        x, weights = self.rows(take)
        return oracle.noise_gram(x, self.Z, self.c, GAMMA, (self.sigma,), weights)


def delta_error(u):
    """Relative error of Delta^-+ (S, S); see the top of the file."""
    half = 0.5 * (u**2).sum(axis=1)
    return (2 * u.shape[1] + 7) * U * (half[:, None] + half) + 4 * U


@functools.cache
def gram_error(p, dtype, name, start=0, stop=None):
    """Bound of the Gram matrix of features ``name`` (dphi or phi) over rows start..stop."""
    error = p.feature_error(dtype)[:, start:stop]
    size = np.abs(getattr(p, name)[:, start:stop]) + error
    cross = error @ size.T
    return cross + cross.T + (error.shape[1] + 2) * ROUNDOFF[dtype] * (size @ size.T)


@functools.cache
def noise_gram_error(p, dtype, start=0, stop=None):
    """factor (Delta^- + Delta^+) (the two Gram errors + relative error x their sizes).

    8 u: the factor, two sums of Deltas, three products, the sum, the oracle's result.
    """
    relative = delta_error(p.u) + 8 * U
    total = 0.0
    for name in ("dphi", "phi"):
        error = gram_error(p, dtype, name, start, stop)
        size = np.abs(getattr(p, name)[:, start:stop])
        total = total + error + relative * (size @ size.T + error)
    return p.factor * p.deltas * total


@functools.cache
def problem(n_features, d, n, weighted, sigma=0.0):
    return Problem(n_features, d, n, weighted, sigma)


@functools.cache
def reference(n_features, d, n, weighted, sigma, start, stop):
    """Of these rows: the oracle's sums, and its Gram matrices (sigma = 0) or its noise_gram."""
    p, take = problem(n_features, d, n, weighted, sigma), slice(start, stop)
    return p.sums(take), p.noise_gram(take) if sigma else p.grams(take)


def lanes_of(n, rows):
    return [(start, min(start + rows, n)) for start in range(0, n, rows)]


def assert_within(actual, reference, bound):
    """|actual - reference| <= bound everywhere; NaN never is."""
    error = np.abs(np.asarray(actual, dtype=np.float64) - reference)
    inside = error <= ORACLE * np.asarray(bound)
    if not np.all(inside):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.broadcast_to(error / bound, error.shape)
        raise AssertionError(
            f"{np.sum(~inside)} of {error.size} outside; worst error {np.max(error):.3g}, "
            f"{np.max(ratio):.3g} times its bound"
        )


def assert_upper_within(actual, reference, bound):
    upper = np.triu_indices(len(actual))
    assert_within(actual[upper], reference[upper], bound[upper])


# -- calls with buffers as a caller makes them ----------------------------------------------------
# What need not be initialised holds NaN, so that any use of it shows.


def gram_buffer(n_features, lanes=None):
    """Zeros in the upper triangle, which is added to; NaN below it, which means nothing."""
    shape = (n_features, n_features) if lanes is None else (lanes, n_features, n_features)
    return np.zeros(shape) + np.where(np.tri(n_features, k=-1, dtype=bool), np.nan, 0.0)


def scratch_buffer(dtype, n_threads, side):
    return np.full((n_threads, 2, side, side), np.nan, dtype)


def sums_buffers(n_features, d, lanes=None):
    lead = () if lanes is None else (lanes,)
    return [np.zeros((*lead, *shape)) for shape in ((n_features,), (n_features,), (n_features, d))]


def call_feature_block(kernels, p, dtype, n_threads=1, wants_phi=True, spare=3):
    """dphi, phi, [sum_phi, sum_dphi, sum_dphi_x]; the blocks have ``spare`` columns too many."""
    n_features, n = len(p.Z), len(p.x)
    dphi = np.full((n_features, n + spare), np.nan, dtype)
    phi = np.full_like(dphi, np.nan) if wants_phi else np.empty((0, 0), dtype)
    sums = sums_buffers(n_features, p.x.shape[1])
    kernels.feature_block(*p.inputs, dphi, phi, *sums, n_threads)
    return dphi, phi, sums


def call_lane_rank_k(kernels, p, dtype, rows, row_tile, n_threads=1, wants_phi=True):
    """gram, gram_phi, [sum_phi, sum_dphi, sum_dphi_x], each with a leading axis of lanes."""
    n_features, lanes = len(p.Z), -(-len(p.x) // rows)
    sums = sums_buffers(n_features, p.x.shape[1], lanes)
    gram = gram_buffer(n_features, lanes)
    gram_phi = gram_buffer(n_features, lanes) if wants_phi else np.empty((0, 0, 0))
    blocks = np.full((n_threads, 2, n_features, row_tile), np.nan, dtype)
    scratch = scratch_buffer(dtype, n_threads, n_features)
    kernels.lane_rank_k(*p.inputs, rows, *sums, gram, gram_phi, blocks, scratch, n_threads)
    return gram, gram_phi, sums


def noise_gram_of(p, gram, gram_phi):
    """The noise level of a problem, from the upper triangles of its Gram matrices."""
    features, result = Features(p.Z, p.c, GAMMA), np.zeros_like(gram)
    whole = (np.triu(m) + np.triu(m, 1).T for m in (gram, gram_phi))
    add_noise_level(features, p.sigma, *whole, result)
    return result


def layout_of(n_features, n):
    """Tile side, lane rows, row tile, threads: all sizes appear, and all pairs of n with rows."""
    i, j = FEATURES.index(n_features), ROWS.index(n)
    tile = (8, 64, 512, 33, 100)[(i + 3 * j) % 5]
    rows = (64, 256, 300, 1000, 2048)[(i + j) % 5]
    row_tile = (256, 32, 100, 255, 1)[(2 * i + j) % 5]
    return tile, rows, row_tile, 1 + (i + j) % 3


# -- kernels against the oracle -------------------------------------------------------------------


@every_dtype
@every_case
def test_feature_block(kernels, n_features, d, n, weighted, dtype):
    p = problem(n_features, d, n, weighted)
    *_, n_threads = layout_of(n_features, n)
    dphi, phi, sums = call_feature_block(kernels, p, dtype, n_threads)
    error = p.feature_error(dtype)
    assert_within(dphi[:, :n], p.dphi, error)
    assert_within(phi[:, :n], p.phi, error)
    references, _ = reference(n_features, d, n, weighted, 0.0, 0, n)
    for found, expected, bound in zip(sums, references, p.sum_errors(dtype), strict=True):
        assert_within(found, expected, bound)
    # columns beyond n are not touched
    assert np.isnan(dphi[:, n:]).all()
    assert np.isnan(phi[:, n:]).all()


@every_dtype
@every_case
def test_sums_of_a_block_are_float64_sums_of_what_it_holds(
    kernels, n_features, d, n, weighted, dtype
):
    # sharper than the oracle can be in float32: with the block itself exact, the weighted sums
    # have n additions and three products (root, x - origin and its rounding) in float64
    p = problem(n_features, d, n, weighted)
    dphi, phi, (sum_phi, sum_dphi, sum_dphi_x) = call_feature_block(kernels, p, dtype)
    held = dphi[:, :n].astype(np.longdouble) * (p.root_weights if weighted else 1.0)
    away = p.x.astype(np.longdouble) - p.origin
    slack = (n + 4) * U
    assert_within(sum_dphi, held.sum(axis=1), slack * np.abs(held).sum(axis=1))
    assert_within(sum_dphi_x, held @ away, slack * (np.abs(held) @ np.abs(away)))
    if not weighted:  # with weights phi holds a root rounded to its dtype, sum_phi does not
        cosines = phi[:, :n].astype(np.longdouble)
        assert_within(sum_phi, cosines.sum(axis=1), slack * np.abs(cosines).sum(axis=1))


@every_dtype
def test_feature_block_without_phi_gives_the_same(kernels, dtype):
    for weighted in (False, True):
        p = problem(65, 3, 257, weighted)
        dphi, _, sums = call_feature_block(kernels, p, dtype)
        alone, phi, sums_alone = call_feature_block(kernels, p, dtype, wants_phi=False)
        assert phi.shape == (0, 0)
        np.testing.assert_array_equal(alone, dphi)
        for a, b in zip(sums, sums_alone, strict=True):
            np.testing.assert_array_equal(a, b)


@every_dtype
@every_case
def test_rank_k(kernels, n_features, d, n, weighted, dtype):
    p = problem(n_features, d, n, weighted)
    tile, _, _, n_threads = layout_of(n_features, n)
    _, (gram_dphi, gram_phi) = reference(n_features, d, n, weighted, 0.0, 0, n)
    dphi, phi, _ = call_feature_block(kernels, p, dtype)
    for block, name, expected in ((dphi, "dphi", gram_dphi), (phi, "phi", gram_phi)):
        gram = gram_buffer(n_features)
        kernels.rank_k(block, n, gram, scratch_buffer(dtype, n_threads, tile), n_threads)
        assert_upper_within(gram, expected, gram_error(p, dtype, name))


@every_dtype
@pytest.mark.parametrize("tile", [1, 2, 7, 16, 64, 65, 200])
def test_rank_k_tiles(kernels, tile, dtype):
    # integers: sums of at most 40 products below 17 are exact in either dtype, so no tolerance
    rng = np.random.default_rng(tile)
    for n_features in (1, 2, 7, 65):
        values = rng.integers(-4, 5, size=(n_features, 50)).astype(dtype)
        for n in (1, 40):
            gram = gram_buffer(n_features)
            kernels.rank_k(values, n, gram, scratch_buffer(dtype, 2, tile), 2)
            upper = np.triu_indices(n_features)
            exact = values[:, :n].astype(int) @ values[:, :n].astype(int).T
            np.testing.assert_array_equal(gram[upper], exact[upper])


@every_dtype
@every_case
def test_lane_rank_k(kernels, n_features, d, n, weighted, dtype):
    p = problem(n_features, d, n, weighted)
    _, rows, row_tile, n_threads = layout_of(n_features, n)
    gram, gram_phi, sums = call_lane_rank_k(kernels, p, dtype, rows, row_tile, n_threads)
    for lane, (start, stop) in enumerate(lanes_of(n, rows)):
        references, grams = reference(n_features, d, n, weighted, 0.0, start, stop)
        bounds = p.sum_errors(dtype, slice(start, stop))
        for found, expected, bound in zip(sums, references, bounds, strict=True):
            assert_within(found[lane], expected, bound)
        assert_upper_within(gram[lane], grams[0], gram_error(p, dtype, "dphi", start, stop))
        assert_upper_within(gram_phi[lane], grams[1], gram_error(p, dtype, "phi", start, stop))


@every_dtype
def test_lane_rank_k_without_phi_gives_the_same(kernels, dtype):
    p = problem(65, 3, 257, True)
    gram, _, sums = call_lane_rank_k(kernels, p, dtype, 100, 64)
    alone, _, sums_alone = call_lane_rank_k(kernels, p, dtype, 100, 64, wants_phi=False)
    np.testing.assert_array_equal(alone, gram)
    for a, b in zip(sums, sums_alone, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@every_dtype
@every_case
def test_rank_k_of_a_noise_level(kernels, n_features, d, n, weighted, dtype):
    p = problem(n_features, d, n, weighted, SIGMA)
    tile, _, _, n_threads = layout_of(n_features, n)
    grams = gram_buffer(n_features), gram_buffer(n_features)
    for block, gram in zip(call_feature_block(kernels, p, dtype)[:2], grams, strict=True):
        kernels.rank_k(block, n, gram, scratch_buffer(dtype, n_threads, tile), n_threads)
    _, expected = reference(n_features, d, n, weighted, SIGMA, 0, n)
    assert_within(noise_gram_of(p, *grams), expected, noise_gram_error(p, dtype))


@every_dtype
@every_case
def test_lane_rank_k_of_a_noise_level(kernels, n_features, d, n, weighted, dtype):
    p = problem(n_features, d, n, weighted, SIGMA)
    _, rows, row_tile, n_threads = layout_of(n_features, n)
    gram, gram_phi, sums = call_lane_rank_k(kernels, p, dtype, rows, row_tile, n_threads)
    for lane, (start, stop) in enumerate(lanes_of(n, rows)):
        references, expected = reference(n_features, d, n, weighted, SIGMA, start, stop)
        bounds = p.sum_errors(dtype, slice(start, stop))
        for found, of_lane, bound in zip(sums, references, bounds, strict=True):
            assert_within(found[lane], of_lane, bound)
        found = noise_gram_of(p, gram[lane], gram_phi[lane])
        assert_within(found, expected, noise_gram_error(p, dtype, start, stop))


# -- kernels that evaluate ------------------------------------------------------------------------
# Their outputs are written over: the buffers hold NaN before, and stand between guards that must
# stay as they are. Inputs are read-only where the package hands them so.

GUARD, GUARD_ROWS = -12345.0, 9


def frozen(values):
    """A read-only float64 copy in C order."""
    array = np.array(values, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array


class Guarded:
    """A NaN-filled array of this shape with GUARD_ROWS rows of guards on either side."""

    def __init__(self, *shape):
        self._whole = np.full((shape[0] + 2 * GUARD_ROWS, *shape[1:]), GUARD)
        self.array = self._whole[GUARD_ROWS : GUARD_ROWS + shape[0]]
        self.array[:] = np.nan

    def checked(self):
        """The array, once the guards have been looked at."""
        np.testing.assert_array_equal(self._whole[:GUARD_ROWS], GUARD)
        np.testing.assert_array_equal(self._whole[GUARD_ROWS + len(self.array) :], GUARD)
        return self.array


def call_tilt(kernels, angles, coefficients, n_threads=1):
    """value (n,); ``angles`` is (x, origin, frequencies, phases)."""
    x, *rest = angles
    value = Guarded(len(x))
    kernels.tilt(frozen(x), *rest, coefficients, value.array, n_threads)
    return value.checked()


def call_tilt_gradient(kernels, angles, coefficients, n_threads=1):
    """value (n,), gradient (n, d)."""
    x, *rest = angles
    value, gradient = Guarded(len(x)), Guarded(*x.shape)
    kernels.tilt_gradient(frozen(x), *rest, coefficients, value.array, gradient.array, n_threads)
    return value.checked(), gradient.checked()


def call_quadratic_tilt(
    kernels, angles, amplitude, factor, linear, n_threads=1, row_tile=256
):  # fmt: skip
    """value (n,); what stands above the diagonal of the factor is made NaN."""
    x, *rest = angles
    value = Guarded(len(x))
    lower = np.where(np.tri(len(factor), dtype=bool), factor, np.nan)
    blocks = np.full((n_threads, len(factor), row_tile), np.nan)
    kernels.quadratic_tilt(
        frozen(x), *rest, amplitude, frozen(lower), frozen(linear), value.array, blocks, n_threads
    )
    return value.checked()


def call_log_kernel_sums(kernels, y, x, weights=(), n_threads=1):
    """value (m,)."""
    value = Guarded(len(y))
    kernels.log_kernel_sums(frozen(y), frozen(x), frozen(weights), value.array, n_threads)
    return value.checked()


class TiltProblem:
    """Coefficients and a factor for the features of a `Problem`, and what they should give."""

    def __init__(self, n_features, d, n):
        p = self.p = problem(n_features, d, n, False)
        rng = np.random.default_rng([n_features, d, n, 31])
        self.angles = (p.x, p.origin, p.frequencies, p.phases)
        self.coefficients = rng.normal(size=n_features)
        self.linear = rng.normal(size=n_features)
        below = rng.normal(scale=0.5 / math.sqrt(n_features), size=(n_features, n_features))
        self.factor = np.tril(below, -1) + np.diag(rng.uniform(0.5, 2.0, n_features))

    @functools.cached_property
    def exact_angles(self):
        """(S, n) in long double."""
        p, long = self.p, np.longdouble
        return p.Z.astype(long) / long(GAMMA) @ p.x.T.astype(long) + p.c.astype(long)[:, None]

    @functools.cached_property
    def value(self):
        return self.coefficients.astype(np.longdouble) @ np.cos(self.exact_angles)

    @functools.cached_property
    def gradient(self):
        slopes = -self.coefficients[:, None] * np.sin(self.exact_angles)
        return slopes.T @ (self.p.Z.astype(np.longdouble) / np.longdouble(GAMMA))

    @functools.cached_property
    def value_error(self):
        slack = SINCOS[np.float64] + (len(self.coefficients) + 2) * U
        return np.abs(self.coefficients) @ (self.p.angle_error + slack)

    @functools.cached_property
    def gradient_error(self):
        slack = SINCOS[np.float64] + (len(self.coefficients) + 4) * U
        terms = np.abs(self.coefficients)[:, None] * (self.p.angle_error + slack)
        return terms.T @ np.abs(self.p.frequencies)

    @functools.cached_property
    def halves(self):
        """phi and factor^-1 phi, (S, n) in long double, by forward substitution."""
        phi = np.sqrt(np.longdouble(2) / len(self.factor)) * np.cos(self.exact_angles)
        return phi, forward_substitution(self.factor, phi)

    @functools.cached_property
    def quadratic(self):
        phi, h = self.halves
        return (h * h).sum(axis=0) / 2 + self.linear.astype(np.longdouble) @ phi

    @functools.cached_property
    def quadratic_error(self):
        phi, h = (np.abs(a).astype(np.float64) for a in self.halves)
        n_features, lower = len(self.factor), np.abs(self.factor)
        inverse = np.abs(scipy.linalg.solve_triangular(self.factor, np.eye(n_features), lower=True))
        e = self.p.feature_error(np.float64)
        h_error = inverse @ (e + (n_features + 2) * U * (lower @ h))
        sizes = 0.5 * (h * h).sum(axis=0) + np.abs(self.linear) @ phi
        return (
            (h * h_error).sum(axis=0) + np.abs(self.linear) @ e + (2 * n_features + 4) * U * sizes
        )


def forward_substitution(factor, right):
    """factor^-1 right in long double, row by row."""
    solution = np.array(right, dtype=np.longdouble)
    for s, row in enumerate(factor.astype(np.longdouble)):
        solution[s] = (solution[s] - row[:s] @ solution[:s]) / row[s]
    return solution


@functools.cache
def tilt_problem(n_features, d, n):
    return TiltProblem(n_features, d, n)


every_tilt = pytest.mark.parametrize(
    ("n_features", "d", "n"), [pytest.param(*c.values[:3], id=c.id.split("-w")[0]) for c in CASES]
)


@every_tilt
def test_tilt(kernels, n_features, d, n):
    t = tilt_problem(n_features, d, n)
    *_, n_threads = layout_of(n_features, n)
    found = call_tilt(kernels, t.angles, t.coefficients, n_threads)
    assert_within(found, t.value, t.value_error)


@every_tilt
def test_tilt_gradient(kernels, n_features, d, n):
    t = tilt_problem(n_features, d, n)
    *_, n_threads = layout_of(n_features, n)
    value, gradient = call_tilt_gradient(kernels, t.angles, t.coefficients, n_threads)
    assert_within(value, t.value, t.value_error)
    assert_within(gradient, t.gradient, t.gradient_error)


@every_tilt
def test_quadratic_tilt(kernels, n_features, d, n):
    t = tilt_problem(n_features, d, n)
    _, _, row_tile, n_threads = layout_of(n_features, n)
    found = call_quadratic_tilt(
        kernels, t.angles, t.p.amplitude, t.factor, t.linear, n_threads, row_tile
    )
    assert_within(found, t.quadratic, t.quadratic_error)


@pytest.mark.parametrize("reach", [1.0, 1e9])
@pytest.mark.parametrize("d", [3, 9, 40])
def test_frequencies_of_few_columns(kernels, d, reach):
    """Of 0 to 5 columns each, in any order, in all kernels of angles; with angles of every size.

    One column that is lost, or taken twice, changes a value by about 1.
    """
    rng = np.random.default_rng(d)
    n_features, n = 37, 300
    z = rng.normal(size=(n_features, d))
    for s, row in enumerate(z):
        row[rng.permutation(d)[s % 6 :]] = 0.0
    x, phases, b = rng.normal(size=(n, d)), rng.uniform(0.0, 6.0, n_features), np.ones(n_features)
    x *= np.where(np.arange(d) == 1, reach, 1.0)
    long = np.longdouble
    angle = x.astype(long) @ z.T.astype(long) + phases.astype(long)
    slopes = -np.sin(angle)
    atol = 1e-15 * (10.0 + np.abs(angle).max()) * n_features
    angles = (x, np.zeros(d), z, phases)
    np.testing.assert_allclose(call_tilt(kernels, angles, b), np.cos(angle).sum(axis=1), atol=atol)
    value, gradient = call_tilt_gradient(kernels, angles, b)
    np.testing.assert_allclose(value, np.cos(angle).sum(axis=1), atol=atol)
    np.testing.assert_allclose(gradient, slopes @ z, atol=4.0 * atol)
    found = call_quadratic_tilt(kernels, angles, 1.0, np.eye(n_features), b)
    np.testing.assert_allclose(
        found, (0.5 * np.cos(angle) ** 2 + np.cos(angle)).sum(axis=1), atol=2.0 * atol
    )
    dphi, phi = np.empty((2, n_features, n))
    sums, inputs = sums_buffers(n_features, d), (frozen(x), np.empty(0), *angles[1:], 1.0)
    kernels.feature_block(*inputs, dphi, phi, *sums, 1)
    np.testing.assert_allclose(phi.T, np.cos(angle), atol=atol)
    np.testing.assert_allclose(dphi.T, slopes, atol=atol)
    np.testing.assert_allclose(sums[2], slopes.T @ x, atol=n * reach * atol)
    # products with x are left out on request, and the rest stays the same
    again, few = np.empty_like(dphi), sums_buffers(n_features, d)
    kernels.feature_block(*inputs, again, phi, *few[:2], np.empty((0, d)), 1)
    np.testing.assert_array_equal(again, dphi)
    for found, expected in zip(few[:2], sums[:2], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_quadratic_tilt_of_an_ill_conditioned_factor(kernels):
    # the bound follows the factor: columns that grow from 1 to 1e-6 cost digits, and no more
    # than |L^-1| |L| says
    t = TiltProblem(65, 3, 257)
    t.factor = t.factor * np.geomspace(1.0, 1e-6, 65)
    found = call_quadratic_tilt(kernels, t.angles, t.p.amplitude, t.factor, t.linear)
    assert_within(found, t.quadratic, t.quadratic_error)
    assert np.max(t.quadratic_error / np.abs(t.quadratic)) < 1e-9


@compiled_only
def test_quadratic_tilt_with_one_row_a_tile_gives_the_same_to_rounding(kernels):
    t = tilt_problem(65, 3, 257)
    for row_tile in (1, 2, 200):
        found = call_quadratic_tilt(
            kernels, t.angles, t.p.amplitude, t.factor, t.linear, 2, row_tile
        )
        assert_within(found, t.quadratic, t.quadratic_error)


# -- kernel sums ----------------------------------------------------------------------------------

POINTS = (1, 31, 32, 33, 100)  # around the group of 32 points that share a tile of rows
KERNEL_CASES = [
    pytest.param(
        m, n, DIMENSIONS[(i + 2 * j) % 5], (i + j) % 2 == 1,
        id=f"m{m}-n{n}-d{DIMENSIONS[(i + 2 * j) % 5]}{'-weighted' * ((i + j) % 2)}",
    )
    for i, m in enumerate(POINTS)
    for j, n in enumerate(ROWS)
]  # fmt: skip


def kernel_sums(y, x, weights=()):
    """log sum_j w_j exp(-|y_i - x_j|^2 / 2) in long double, and the bound of its error."""
    y, x = np.asarray(y, np.longdouble), np.asarray(x, np.longdouble)
    w = np.asarray(weights, np.longdouble) if len(weights) else np.ones(len(x), np.longdouble)
    half = np.zeros((len(y), len(x)), np.longdouble)
    for k in range(x.shape[1]):
        half += (y[:, k, None] - x[:, k]) ** 2 / 2
    least = half.min(axis=1)
    terms = np.exp(least[:, None] - half) * w
    total = terms.sum(axis=1)
    value = np.log(total) - least
    n, d = x.shape
    spread = (terms * half).sum(axis=1) / total  # the mean of q under the shares
    bound = (d + 4) * spread + n + 5 * (n / 256 + 2) + 4 * np.abs(value + least) + 2 * np.abs(value)
    return value, U * bound.astype(np.float64)


@functools.cache
def kernel_problem(m, n, d, weighted):
    """y, x, weights; the last points lie away from all rows."""
    rng = np.random.default_rng([m, n, d, weighted, 5])
    x = rng.normal(size=(n, d))
    y = rng.normal(scale=1.5, size=(m, d))
    y[m // 2 :] *= 10.0
    weights = rng.uniform(0.1, 4.0, n) if weighted else np.empty(0)
    return y, x, weights, *kernel_sums(y, x, weights)


@pytest.mark.parametrize(("m", "n", "d", "weighted"), KERNEL_CASES)
def test_log_kernel_sums(kernels, m, n, d, weighted):
    y, x, weights, value, bound = kernel_problem(m, n, d, weighted)
    for n_threads in (1, 3):
        found = call_log_kernel_sums(kernels, y, x, weights, n_threads)
        assert_within(found, value, bound)


def test_log_kernel_sums_of_far_points_are_finite(kernels):
    # at 40 a plain sum of exponentials underflows; at 1e150 the square is still finite
    x = np.random.default_rng(1).normal(size=(300, 2))
    for distance in (10.0, 40.0, 1e3, 1e8, 1e150):
        y = np.array([[distance, 0.0], [0.0, -distance], [distance, distance / 2]])
        found = call_log_kernel_sums(kernels, y, x)
        assert np.isfinite(found).all()
        assert_within(found, *kernel_sums(y, x))


def test_log_kernel_sums_of_one_row_are_the_exponent(kernels):
    # eighths: squares and their sum are exact, and log 1 = 0
    rng = np.random.default_rng(2)
    for d in DIMENSIONS:
        y, x = rng.integers(-80, 81, size=(40, d)) / 8.0, rng.integers(-80, 81, size=(1, d)) / 8.0
        found = call_log_kernel_sums(kernels, y, x, n_threads=2)
        np.testing.assert_array_equal(found, -0.5 * np.square(y - x).sum(axis=1))
        quarter = call_log_kernel_sums(kernels, y, x, [0.25])
        exact = math.log(0.25) - 0.5 * np.square(y - x).sum(axis=1)
        assert_within(quarter, exact, 4 * U * math.log(4.0) + 2 * U * np.abs(exact))


@pytest.mark.parametrize("n", ROWS)
def test_log_kernel_sums_of_equal_rows(kernels, n):
    # every term is exp(0) = 1, so the sum is exact: log n - q
    x, y = np.full((n, 3), 0.5), np.array([[0.5, 0.5, 0.5], [1.5, -2.5, 30.5]])
    exact = math.log(n) - np.array([0.0, 0.5 * (1.0 + 9.0 + 900.0)])
    for n_threads in (1, 2):
        found = call_log_kernel_sums(kernels, y, x, n_threads=n_threads)
        assert_within(found, exact, 4 * U * math.log(n) + 2 * U * np.abs(exact))
    twice = call_log_kernel_sums(kernels, y, x, np.full(n, 2.0))
    assert_within(twice, exact + math.log(2), 4 * U * math.log(2 * n) + 3 * U * np.abs(exact) + U)


def test_log_kernel_sums_of_distances_that_underflow(kernels):
    # squares of 1e-200 are 0 and terms 1e4 below the nearest are 0: neither matters
    x = np.array([[0.0], [3e-200], [-1e-170], [200.0]])
    y = np.array([[1e-200], [0.0], [200.0]])
    with np.errstate(under="ignore"):
        found = call_log_kernel_sums(kernels, y, x)
        assert_within(found, *kernel_sums(y, x))
    assert_within(found, [math.log(3.0), math.log(3.0), 0.0], 4 * U * math.log(3.0))


def test_log_kernel_sums_follow_a_falling_least(kernels):
    # tiles ever nearer, then ever farther: a running sum must be rescaled each time, and the
    # nearest row stands in the first, a middle and the last tile
    distance = np.abs(np.arange(5 * 256) // 256 - 2.0) * 30.0 + np.arange(5 * 256) % 7
    for x in (distance, distance[::-1], np.sort(distance), np.sort(distance)[::-1]):
        y = np.array([[0.0], [-3.0], [45.0]])
        weights = np.linspace(0.5, 2.0, len(x))
        found = call_log_kernel_sums(kernels, y, x[:, None], weights, 2)
        assert_within(found, *kernel_sums(y, x[:, None], weights))


def test_log_kernel_sums_of_weight_zero(kernels):
    # rows of weight zero beside others add nothing; where there are no others the sum is -inf
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(40, 2))
    weights = rng.uniform(0.5, 1.0, 300)
    weights[::3] = 0.0
    found = call_log_kernel_sums(kernels, y, x, weights)
    value, bound = kernel_sums(y, x[weights > 0], weights[weights > 0])
    assert_within(found, value, bound + 100 * U)  # 100 additions of zero more
    np.testing.assert_array_equal(call_log_kernel_sums(kernels, y, x, np.zeros(300)), -np.inf)


# -- (a) sine and cosine --------------------------------------------------------------------------


def sincos(kernels, angles, dtype):
    """Sine and cosine as feature_block has them: one feature of frequency 1, phase 0, size 1."""
    n = len(angles)
    sine, cosine = np.full((1, n), np.nan, dtype), np.full((1, n), np.nan, dtype)
    zero, nothing = np.zeros(1), np.empty(0)
    kernels.feature_block(
        np.ascontiguousarray(angles, dtype=np.float64)[:, None], nothing, zero, np.ones((1, 1)),
        zero, 1.0, sine, cosine, np.zeros(1), np.zeros(1), np.zeros((1, 1)), 1,
    )  # fmt: skip
    return -sine[0], cosine[0]


def near(values, steps=3):
    """The values and their neighbours, ``steps`` floats away on either side."""
    values = np.asarray(values, dtype=np.float64)
    found = [values]
    up = down = values
    for _ in range(steps):
        up, down = np.nextafter(up, np.inf), np.nextafter(down, -np.inf)
        found += [up, down]
    return np.concatenate(found)


def angle_sets():
    rng = np.random.default_rng(20)
    limit = 2.0**27
    inside = limit - rng.uniform(0, 1000, 3000)
    quadrants = np.concatenate([np.arange(400), rng.integers(0, int(limit / 1.6), 3000)])
    # nearest to a multiple of pi/2 that float64 has (6381956970095103 2^797), and its like
    hard = [math.ldexp(6381956970095103, 797), math.ldexp(5945061262043136, -32), 1e22]
    return {
        "dense": np.concatenate([np.linspace(-100, 100, 40_001), rng.uniform(-100, 100, 20_000)]),
        "quadrants": near(np.concatenate([quadrants, -quadrants]) * (math.pi / 2)),
        "octants": near((np.arange(-4000, 4000) + 0.5) * (math.pi / 2), 1),
        "wide": rng.uniform(-limit, limit, 20_000),
        "to the limit": np.concatenate([inside, -inside, [limit, -limit]]),
        "beyond the limit": np.concatenate([near([limit], 9)[1::2], limit + inside, -2 * inside]),
        "across the limit": np.concatenate([near([limit, -limit], 9), rng.uniform(-9, 9, 600)]),
        # in order of size: a kernel may choose its path by the largest angle of a row tile
        "far": np.geomspace(limit, 2.0**60, 20_000),
        "huge": np.concatenate([10.0 ** rng.uniform(10, 300, 5000), hard, [1e10, 1e300, -1e300]]),
        "tiny": np.concatenate([[0.0, -0.0, 5e-324, -5e-324], 10.0 ** -rng.uniform(0, 320, 999)]),
    }  # fmt: skip


ANGLES = angle_sets()


@every_dtype
@pytest.mark.parametrize("name", ANGLES)
def test_sincos(kernels, name, dtype):
    angles = ANGLES[name]
    sine, cosine = sincos(kernels, angles, dtype)
    expected_sine = np.array([math.sin(a) for a in angles])
    expected_cosine = np.array([math.cos(a) for a in angles])
    assert_within(sine, expected_sine, SINCOS[dtype])
    assert_within(cosine, expected_cosine, SINCOS[dtype])
    assert np.max(np.abs(sine)) <= 1.0 + SINCOS[dtype]


@every_dtype
def test_sincos_of_zero_and_denormals(kernels, dtype):
    angles = np.array([0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.2250738585072014e-308])
    sine, cosine = sincos(kernels, angles, dtype)
    np.testing.assert_array_equal(cosine, np.ones(6, dtype))
    np.testing.assert_array_equal(sine[:2], np.zeros(2, dtype))  # either zero: nsz
    np.testing.assert_allclose(sine, angles.astype(dtype), rtol=0, atol=1e-323)


@every_dtype
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_sincos_of_no_number_is_nan_and_stays_in_its_row(kernels, bad, dtype):
    angles = np.linspace(-3, 3, 300)
    angles[[0, 150, 299]] = bad
    with np.errstate(invalid="ignore"):
        sine, cosine = sincos(kernels, angles, dtype)
    good = np.isfinite(angles)
    assert np.isnan(sine[~good]).all()
    assert np.isnan(cosine[~good]).all()
    assert_within(sine[good], np.sin(angles[good]), SINCOS[dtype] + 2 * U)
    assert_within(cosine[good], np.cos(angles[good]), SINCOS[dtype] + 2 * U)


@pytest.mark.parametrize("name", ANGLES)
def test_sincos_in_tilts(kernels, name):
    # one feature of frequency 1, phase 0 and coefficient 1: the tilt is the cosine, its gradient
    # minus the sine, and the quadratic tilt with L = l = 1 is c^2 / 2 + c
    angles = ANGLES[name]
    sine = np.array([math.sin(a) for a in angles])
    cosine = np.array([math.cos(a) for a in angles])
    one, zero = np.ones(1), np.zeros(1)
    inputs = (angles[:, None], zero, np.ones((1, 1)), zero)
    bound = SINCOS[np.float64]
    assert_within(call_tilt(kernels, inputs, one), cosine, bound)
    value, gradient = call_tilt_gradient(kernels, inputs, one)
    assert_within(value, cosine, bound)
    assert_within(gradient[:, 0], -sine, bound)
    found = call_quadratic_tilt(kernels, inputs, 1.0, np.ones((1, 1)), one)
    # the derivative in c is at most 2; the square and the sum are rounded, here and there
    assert_within(found, 0.5 * cosine**2 + cosine, 2 * bound + 4 * U)


@functools.cache
def exact_angles(n_features, d):
    """Inputs whose angles are exact in any order, and these, some beyond 2^27 and some not.

    x holds eighths below 2^7, frequencies are at most 3 2^k, k <= 24, and d is at most 10: sums of
    multiples of 1/8 below 2^36.
    """
    rng = np.random.default_rng([n_features, d, 6])
    x = rng.integers(-1000, 1001, size=(300, d)) / 8.0
    x[256:] /= 128.0 * 8.0  # the second tile is near throughout
    x[256:] = np.round(x[256:] * 8.0) / 8.0
    size = 2.0 ** rng.integers(0, 25, size=n_features)
    frequencies = rng.integers(-3, 4, size=(n_features, d)) * size[:, None]
    phases = rng.integers(-16, 17, size=n_features) / 8.0
    angles = frequencies @ x.T + phases[:, None]
    sine = np.array([[math.sin(a) for a in row] for row in angles])
    cosine = np.array([[math.cos(a) for a in row] for row in angles])
    return (x, np.zeros(d), frequencies, phases), angles, sine, cosine


@pytest.mark.parametrize(("n_features", "d"), [(7, 1), (7, 2), (65, 3), (65, 4), (30, 10)])
def test_tilts_of_near_and_far_features(kernels, n_features, d):
    # the angle's error is zero here, so the bounds are those of sincos and of the sums alone: a
    # feature reduced as if it were near, when it is far, would be all wrong
    inputs, angles, sine, cosine = exact_angles(n_features, d)
    far = np.abs(angles[:, :256]).max(axis=1) > 2.0**27
    assert far.any()
    assert not far.all()
    rng = np.random.default_rng(n_features)
    b, frequencies = rng.normal(size=n_features), inputs[2]
    each = np.abs(b) * (SINCOS[np.float64] + (n_features + 4) * U)
    value, gradient = call_tilt_gradient(kernels, inputs, b, 2)
    assert_within(value, b @ cosine, each.sum())
    assert_within(gradient, -(sine.T * b) @ frequencies, each @ np.abs(frequencies))
    assert_within(call_tilt(kernels, inputs, b, 2), b @ cosine, each.sum())
    # L = 1: half the squared cosines, and b of them
    found = call_quadratic_tilt(kernels, inputs, 1.0, np.eye(n_features), b, 2)
    errors = (1.0 + np.abs(b)) * (SINCOS[np.float64] + (2 * n_features + 4) * U)
    assert_within(found, 0.5 * (cosine**2).sum(axis=0) + b @ cosine, errors.sum())


# -- (b) the exponential in the shares of a mixture -----------------------------------------------


def exponents(low, high, count=300):
    """Numbers from -high to -low."""
    return -np.linspace(low, high, count)


def exps(kernels, exponent):
    """exp(e) / (1 + exp(e)): the share of the second of two components, log densities 0 and e."""
    n = len(exponent)
    coefficients = np.array([[[0.0, 0.0], [0.0, 1.0]]])  # of the monomials 1 and x
    sums = np.zeros((n, 2, 2))
    kernels.mixture_sums(
        exponent[:, None], np.ones(n), np.arange(n + 1), coefficients, np.empty((1, n)),
        np.empty(0, np.int64), sums, np.full((1, 4, 256), np.nan), 1,
    )  # fmt: skip
    return sums[:, 1, 0]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1e-6), (0.0, 1.0), (0.0, 40.0), (40.0, 700.0)])
def test_exp_relative_error(kernels, low, high):
    exponent = exponents(low, high)
    with localcontext() as context:
        context.prec = 40
        exact = [1 / (1 + (-Decimal(e)).exp()) for e in exponent]
        found = exps(kernels, exponent)
        relative = np.array([
            float(abs(Decimal(f) / e - 1)) for f, e in zip(found, exact, strict=True)
        ])  # fmt: skip
    # 2 units in the last place of exp, 2 of the sum, the quotient and the product; NumPy's kernel
    # takes exp of a difference instead of a quotient, and rounds the difference
    slack = 8 * U + (U * np.abs(exponent) if kernels.NAME == "numpy" else 0.0)
    assert np.all(relative <= slack)


def test_exp_underflow(kernels):
    # between -708 and -745 a backend may return 0 or the exact value, which is below 4e-308
    found = exps(kernels, exponents(708.5, 745.0))
    assert np.all(found >= 0.0)
    assert np.all(found < 4e-308)


@pytest.mark.parametrize("high", [2e3, 1e5, 1e16, 1e30])
def test_exp_far_below_is_zero(kernels, high):
    np.testing.assert_array_equal(exps(kernels, exponents(746.0, high)), 0.0)


# -- (c) threads ----------------------------------------------------------------------------------


def all_outputs(kernels, p, dtype, n_threads):
    """Every array that every kernel makes, with the meaningless lower triangles cut off."""
    n_features, n = len(p.Z), len(p.x)
    dphi, phi, sums = call_feature_block(kernels, p, dtype, n_threads, spare=0)
    yield from (dphi, phi, *sums)
    gram = gram_buffer(n_features)
    kernels.rank_k(dphi, n, gram, scratch_buffer(dtype, n_threads, 40), n_threads)
    yield np.triu(gram)
    gram, gram_phi, sums = call_lane_rank_k(kernels, p, dtype, 90, 64, n_threads)
    yield from (np.triu(gram), np.triu(gram_phi), *sums)
    mass = np.zeros((7, 51))
    low, step = np.full(7, -9.0), np.full(7, 0.37)
    directions = np.random.default_rng(4).normal(size=(7, p.x.shape[1]))
    excess, squares = np.zeros((7, 2)), np.zeros((7, 51))
    grid = directions, low, step
    kernels.marginal_mass(p.x, p.weights_or_ones, *grid, mass, squares, excess, n_threads)
    yield from (mass, squares, excess)
    t = tilt_problem(n_features, p.x.shape[1], n)
    yield call_tilt(kernels, t.angles, t.coefficients, n_threads)
    yield from call_tilt_gradient(kernels, t.angles, t.coefficients, n_threads)
    yield call_quadratic_tilt(kernels, t.angles, 0.1, t.factor, t.linear, n_threads, 64)
    for weights in ((), p.weights_or_ones):
        yield call_log_kernel_sums(kernels, 1.3 * p.x[:200], p.x, weights, n_threads)


@pytest.mark.slow
@compiled_only
@every_dtype
@pytest.mark.parametrize(
    ("n_features", "d", "n", "weighted"),
    [(300, 3, 1000, True), (65, 10, 257, False), (7, 2, 1000, True)],
)
def test_results_are_the_same_for_any_number_of_threads(kernels, n_features, d, n, weighted, dtype):
    p = problem(n_features, d, n, weighted)
    first = list(all_outputs(kernels, p, dtype, 1))
    assert all(np.isfinite(a).all() for a in first)
    for n_threads in (1, 2, 3, 3, 2):
        again = list(all_outputs(kernels, p, dtype, n_threads))
        assert len(again) == len(first)
        for a, b in zip(first, again, strict=True):
            assert np.array_equal(a, b)


# -- (d) buffers are added to ---------------------------------------------------------------------


def assert_added(found, start, added, size, slack):
    """found = start + added, up to ``slack`` roundings of |start| + size."""
    assert_within(found, start + added, slack * U * (np.abs(start) + size))


@every_dtype
@pytest.mark.parametrize("weighted", [False, True])
def test_feature_block_adds_to_its_sums_and_overwrites_its_blocks(kernels, weighted, dtype):
    p = problem(65, 3, 1000, weighted)
    _, _, plain = call_feature_block(kernels, p, dtype)
    rng = np.random.default_rng(5)
    start = [rng.normal(scale=1e3, size=a.shape) for a in plain]
    sums = [a.copy() for a in start]
    dphi, phi = np.full((65, 1000), np.nan, dtype), np.full((65, 1000), np.nan, dtype)
    kernels.feature_block(*p.inputs, dphi, phi, *sums, 2)
    assert np.isfinite(dphi).all()
    assert np.isfinite(phi).all()
    weights = p.weights_or_ones
    sizes = [p.amplitude * weights.sum()] * 2
    sizes.append(p.amplitude * (weights @ np.abs(p.x - p.origin)))
    for found, begin, added, size in zip(sums, start, plain, sizes, strict=True):
        # row tiles are added one by one: at most 4 (of 256 rows), plus the two sums compared
        assert_added(found, begin, added, size, 4 + 2)


@every_dtype
def test_rank_k_adds_in_float64(kernels, dtype):
    # 2^30 + products of size 10: a float32 anywhere between would lose them
    p = problem(65, 3, 257, False)
    dphi, _, _ = call_feature_block(kernels, p, dtype, spare=0)
    n, upper = 257, np.triu_indices(65)
    start = np.full((65, 65), 2.0**30)
    size = (np.abs(p.dphi) @ np.abs(p.dphi).T)[upper]
    scratch = scratch_buffer(dtype, 2, 16)
    # float64 products may be added one at a time: n roundings of 2^30; otherwise one
    slack = 2 + (n if dtype == np.float64 else 0)

    plain, found = gram_buffer(65), start.copy()
    kernels.rank_k(dphi, n, plain, scratch, 2)
    kernels.rank_k(dphi, n, found, scratch, 2)
    assert_added(found[upper], 2.0**30, plain[upper], size, slack)

@every_dtype
def test_lane_rank_k_adds_to_its_lanes(kernels, dtype):
    p = problem(65, 3, 257, True)
    n_features, n, rows, row_tile, lanes = 65, 257, 100, 64, 3
    plain_gram, plain_phi, plain = call_lane_rank_k(kernels, p, dtype, rows, row_tile)
    upper = (slice(None), *np.triu_indices(n_features))
    scratch = scratch_buffer(dtype, 1, n_features)
    blocks = np.full((1, 2, n_features, row_tile), np.nan, dtype)
    weight = p.weights_or_ones.sum()
    sizes = [p.amplitude * weight] * 2 + [p.amplitude * weight * np.abs(p.x - p.origin).max()]
    start = 2.0**30

    gram, gram_phi = (np.full((lanes, n_features, n_features), start) for _ in range(2))
    sums = [a + start for a in sums_buffers(n_features, 3, lanes)]
    kernels.lane_rank_k(*p.inputs, rows, *sums, gram, gram_phi, blocks, scratch, 1)
    size = 2 * p.amplitude**2 * weight
    # float64 products are added as they come, float32 ones once a lane
    slack = 2 + (n if dtype == np.float64 else 0)
    assert_added(gram[upper], start, plain_gram[upper], size, slack)
    assert_added(gram_phi[upper], start, plain_phi[upper], size, slack)
    for found, added, bound in zip(sums, plain, sizes, strict=True):
        assert_added(found, start, added, bound, 2 + 2)  # two row tiles a lane


@every_dtype
def test_no_rows_change_nothing(kernels, dtype):
    p = Problem(7, 2, 1, False, SIGMA)
    p.x = np.empty((0, 2))
    _, _, sums = call_feature_block(kernels, p, dtype)
    for found in sums:
        np.testing.assert_array_equal(found, 0.0)
    mass, _, excess = call_marginal_mass(kernels, p.x, (), np.eye(2), np.zeros(2), np.ones(2), 3)
    np.testing.assert_array_equal(mass, 0.0)
    np.testing.assert_array_equal(excess, 0.0)


def test_no_rows_have_no_values(kernels):
    p, ones = Problem(7, 2, 1, False, 0.0), np.ones(7)
    angles = (np.empty((0, 2)), p.origin, p.frequencies, p.phases)
    assert call_tilt(kernels, angles, ones, 2).shape == (0,)
    value, gradient = call_tilt_gradient(kernels, angles, ones, 2)
    assert value.shape == (0,)
    assert gradient.shape == (0, 2)
    assert call_quadratic_tilt(kernels, angles, 1.0, np.eye(7), ones, 2).shape == (0,)
    assert call_log_kernel_sums(kernels, np.empty((0, 2)), p.x, n_threads=2).shape == (0,)


# -- (e) marginal CDFs ----------------------------------------------------------------------------


def call_marginal_mass(kernels, x, weights, directions, low, step, n_grid, n_threads=1):
    mass, excess = np.zeros((len(directions), n_grid + 1)), np.zeros((len(directions), 2))
    weights = np.asarray(weights, float)
    squares = np.zeros((len(directions) if len(weights) else 0, n_grid + 1))
    kernels.marginal_mass(x, weights, directions, low, step, mass, squares, excess, n_threads)
    return mass, squares, excess


def assert_is_marginal(mass, squares, excess, x, weights, directions, low, step):
    """The running sums of mass are exactly the oracle's; what lies beyond the grid comes last."""
    weights = np.asarray(weights) if len(weights) else None
    n_grid = mass.shape[1] - 1
    for v, direction in enumerate(directions):
        grid = low[v] + np.arange(n_grid) * step[v]
        expected = oracle.marginal_weight(x, direction, grid, weights)
        assert np.array_equal(np.cumsum(mass[v, :-1]), expected)
        assert mass[v].sum() == oracle.total_weight(x, weights)
        assert tuple(excess[v]) == oracle.marginal_excess(x, direction, grid, weights)
        if weights is not None:
            expected = oracle.marginal_weight(x, direction, grid, weights**2)
            assert np.array_equal(np.cumsum(squares[v, :-1]), expected)


def eighths(low, high):
    """Dyadic rationals: every product and sum below is exact, whatever its order."""
    return st.integers(8 * low, 8 * high).map(lambda i: i / 8)


@st.composite
def marginals(draw):
    d, n = draw(st.integers(1, 5)), draw(st.integers(1, 40))
    n_directions, n_grid = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    x = draw(hnp.arrays(np.float64, (n, d), elements=eighths(-4, 4)))
    directions = draw(hnp.arrays(np.float64, (n_directions, d), elements=eighths(-2, 2)))
    low = draw(hnp.arrays(np.float64, n_directions, elements=eighths(-12, 3)))
    step = draw(hnp.arrays(np.float64, n_directions, elements=eighths(1, 24).map(lambda s: s / 8)))
    weights = draw(
        st.one_of(
            st.just(np.empty(0)), hnp.arrays(np.float64, n, elements=eighths(0, 5))
        )
    )  # fmt: skip
    return x, weights, directions, low, step, n_grid


@pytest.mark.slow
@hypothesis.settings(max_examples=100)
@hypothesis.given(case=marginals(), n_threads=st.integers(1, 3))
def test_marginal_mass_is_exact_on_dyadic_data(kernels, case, n_threads):
    *inputs, n_grid = case
    found = call_marginal_mass(kernels, *inputs, n_grid, n_threads)
    assert_is_marginal(*found, *inputs)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_marginal_mass_across_row_tiles(kernels, n, weighted):
    rng = np.random.default_rng([n, weighted])
    for d in DIMENSIONS:
        x = rng.integers(-32, 33, size=(n, d)) / 8.0
        weights = rng.integers(0, 65, size=n) / 16.0 if weighted else np.empty(0)
        directions = rng.integers(-8, 9, size=(5, d)) / 4.0
        low, step = rng.integers(-64, 0, size=5) / 8.0, rng.integers(1, 9, size=5) / 32.0
        found = call_marginal_mass(kernels, x, weights, directions, low, step, 100, 2)
        assert_is_marginal(*found, x, weights, directions, low, step)


@pytest.mark.slow
@pytest.mark.parametrize("n_directions", range(1, 10))
def test_marginal_mass_of_any_number_of_directions(kernels, n_directions):
    """Directions go in pairs and groups, x in stretches of coordinates; none may be forgotten."""
    rng = np.random.default_rng(n_directions)
    for d in (1, 2, 3, 4, 5, 6, 9, 10, 11):
        x = rng.integers(-32, 33, size=(300, d)) / 8.0
        directions = rng.integers(-8, 9, size=(n_directions, d)) / 4.0
        low, step = np.full(n_directions, -9.0), np.full(n_directions, 0.25)
        found = call_marginal_mass(kernels, x, (), directions, low, step, 60, 2)
        assert_is_marginal(*found, x, (), directions, low, step)


def test_marginal_mass_on_grid_points(kernels):
    """Rows at fl(low + fl(j step)) with a step of many bits: (p - low) / step is j but for a few
    roundings, so the row counts from node j or j + 1 on, and from j if it lies a little below."""
    low, step, n_grid = -1.0 / 3.0, 0.1 / 7.0, 2000
    grid = low + np.arange(n_grid) * step
    below = grid - 4e-16 * np.abs(grid).max()
    for points, late in ((grid, 1), (below, 0)):
        mass, *_ = call_marginal_mass(
            kernels, points[:, None].copy(), (), np.ones((1, 1)), np.array([low]),
            np.array([step]), n_grid,
        )  # fmt: skip
        seen, all_of_them = np.cumsum(mass[0, :-1]), np.arange(1.0, n_grid + 1)
        assert (seen <= all_of_them).all()
        assert (seen >= all_of_them - late).all()


def test_marginal_mass_beyond_both_ends(kernels):
    x = np.array([[-1e300], [-5.0], [0.0], [0.5], [1.0], [1.5], [2.0], [2.5], [1e300]])
    weights = 2.0 ** np.arange(9)
    grid = np.zeros(1), np.ones(1), 3  # 0, 1, 2, and beyond
    mass, squares, excess = call_marginal_mass(kernels, x, weights, np.ones((1, 1)), *grid)
    np.testing.assert_array_equal(mass, [[1 + 2 + 4, 8 + 16, 32 + 64, 128 + 256]])
    np.testing.assert_array_equal(squares, [[1 + 4 + 16, 64 + 256, 1024 + 4096, 2**14 + 2**16]])
    np.testing.assert_array_equal(excess, [[1e300 + 2 * 5, 256e300 + 128 * 0.5]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_marginal_mass_stays_in_its_array_whatever_it_is_given(kernels, bad):
    """Blocks refuse such rows, but a projection may overflow: no index may leave the grid."""
    x = np.array([[bad], [1.0]])
    mass, *_ = call_marginal_mass(
        kernels, x, (), np.ones((1, 1)), np.zeros(1), np.full(1, 1e-300), 3
    )
    np.testing.assert_array_equal(mass, [[0, 0, 0, 2] if bad > 0 else [1, 0, 0, 1]])


def test_marginal_mass_of_random_data_and_weights(kernels):
    # no row is near enough to a grid point for the rounding of its projection to matter (seeded);
    # the weights' sums err by at most n u each
    rng = np.random.default_rng(8)
    x, weights = rng.normal(size=(1000, 10)), rng.uniform(0.0, 2.0, 1000)
    directions = rng.normal(size=(20, 10))
    low, step = np.full(20, -4.0), np.full(20, 8.0 / 99)
    mass, squares, excess = call_marginal_mass(kernels, x, weights, directions, low, step, 100, 3)
    grid = -4.0 + np.arange(100) * (8.0 / 99)
    for v, direction in enumerate(directions):
        expected = oracle.marginal_weight(x, direction, grid, weights)
        assert_within(np.cumsum(mass[v, :-1]), expected, (1000 + 100) * U * weights.sum())
        expected = oracle.marginal_weight(x, direction, grid, weights**2)
        bound = (1000 + 100) * U * (weights**2).sum()
        assert_within(np.cumsum(squares[v, :-1]), expected, bound)
        expected = oracle.marginal_excess(x, direction, grid, weights)
        reach = np.abs(x @ direction).max() + 4.0
        assert_within(excess[v], np.array(expected), (1000 + 10) * U * weights.sum() * reach)


def test_marginal_mass_adds(kernels):
    x, ones = np.array([[0.5], [1.5]]), np.ones((1, 1))
    mass, excess = np.array([[4.0, 8.0, 16.0]]), np.array([[3.0, 5.0]])
    grid, none = (ones, np.zeros(1), np.ones(1)), np.empty((0, 3))
    kernels.marginal_mass(x, np.empty(0), *grid, mass, none, excess, 1)
    np.testing.assert_array_equal(mass, [[4.0, 9.0, 17.0]])
    np.testing.assert_array_equal(excess, [[3.0, 5.5]])


# -- (f) the same names, the same arguments -------------------------------------------------------

PUBLIC = {
    "max_threads", "feature_block", "rank_k", "lane_rank_k", "tilt", "tilt_gradient",
    "quadratic_tilt", "log_kernel_sums", "marginal_mass", "interpolate_lattice", "mixture_sums",
    "mixture_density",
}  # fmt: skip


def public_functions(module):
    """Name -> function of what the module defines itself (imports live in other modules)."""
    return {
        name: getattr(value, "py_func", value)
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and value.__module__ == module.__name__
    }


def test_backends_have_the_same_names_and_arguments(kernels):
    plain = public_functions(conftest.load_backend("numpy"))
    functions = public_functions(kernels)
    assert plain.keys() == functions.keys() == PUBLIC
    for name, function in functions.items():
        assert list(inspect.signature(function).parameters) == list(
            inspect.signature(plain[name]).parameters
        ), name
    assert f"tgpfast.kernels._{kernels.NAME}" == kernels.__name__
    assert kernels.max_threads() >= 1


def test_a_missing_backend_skips_unless_it_is_required(monkeypatch):
    monkeypatch.setenv("TGPFAST_REQUIRE_BACKENDS", "numpy")
    with pytest.raises(pytest.skip.Exception, match="'absent' does not import"):
        conftest.load_backend("absent")
    monkeypatch.setenv("TGPFAST_REQUIRE_BACKENDS", "numpy, absent")
    with pytest.raises(pytest.fail.Exception, match="'absent' is required"):
        conftest.load_backend("absent")


# -- (g) negative controls: a wrong reference is noticed ------------------------------------------


@pytest.fixture(params=DTYPES, ids=["float64", "float32"])
def measured(request, kernels):
    """A problem, its dtype, and what feature_block and rank_k make of it."""
    dtype, p = request.param, problem(65, 3, 257, True, SIGMA)
    dphi, phi, sums = call_feature_block(kernels, p, dtype, spare=0)
    grams = gram_buffer(65), gram_buffer(65)
    for block, gram in zip((dphi, phi), grams, strict=True):
        kernels.rank_k(block, 257, gram, scratch_buffer(dtype, 1, 64), 1)
    return p, dtype, dphi, phi, sums, noise_gram_of(p, *grams)


def test_the_comparison_passes_what_is_right(measured):
    p, dtype, dphi, phi, sums, gram = measured
    assert_within(dphi, p.dphi, p.feature_error(dtype))
    assert_within(phi, p.phi, p.feature_error(dtype))
    assert_within(sums[2], p.sums()[2], p.sum_errors(dtype)[2])
    assert_upper_within(gram, p.noise_gram(), noise_gram_error(p, dtype))


def test_swapped_sine_and_cosine_are_noticed(measured):
    p, dtype, dphi, phi, _, _ = measured
    for found, wrong in ((dphi, p.phi), (phi, p.dphi), (dphi, -p.dphi)):
        with pytest.raises(AssertionError, match="outside"):
            assert_within(found, wrong, p.feature_error(dtype))


def test_a_dropped_origin_is_noticed(measured):
    p, dtype, dphi, _, sums, _ = measured
    about_zero = oracle.noise_sum_dphi_x(p.x, p.Z, p.c, GAMMA, (SIGMA,), p.weights)[0]
    with pytest.raises(AssertionError, match="outside"):
        assert_within(sums[2], about_zero, p.sum_errors(dtype)[2])
    shifted = oracle.dphi_sigma(p.x - p.origin, p.Z, p.c, GAMMA, SIGMA).T
    with pytest.raises(AssertionError, match="outside"):
        assert_within(dphi, shifted * np.sqrt(p.weights), p.feature_error(dtype))


def test_a_forgotten_weight_is_noticed(measured):
    p, dtype, dphi, _, sums, _ = measured
    unweighted = oracle.dphi_sigma(p.x, p.Z, p.c, GAMMA, SIGMA).T
    with pytest.raises(AssertionError, match="outside"):
        assert_within(dphi, unweighted, p.feature_error(dtype))
    for wrong in (np.ones_like(p.weights), np.sqrt(p.weights), p.weights**2):
        found = oracle.noise_sum_phi(p.x, p.Z, p.c, GAMMA, (SIGMA,), wrong)[0]
        with pytest.raises(AssertionError, match="outside"):
            assert_within(sums[0], found, p.sum_errors(dtype)[0])


def test_swapped_deltas_are_noticed(measured):
    p, dtype, *_, gram = measured
    minus = oracle.delta_minus(p.Z, GAMMA, SIGMA)
    plus = oracle.delta_plus(p.Z, GAMMA, SIGMA)
    sines, cosines = p.dphi @ p.dphi.T, p.phi @ p.phi.T
    right = p.factor * ((minus + plus) * sines + (minus - plus) * cosines)
    assert_upper_within(gram, right, noise_gram_error(p, dtype) + 1e-13)  # the control's control
    for wrong in (
        p.factor * ((minus + plus) * sines + (plus - minus) * cosines),
        p.factor * ((minus - plus) * sines + (minus + plus) * cosines),
        2.0 * right,
    ):
        with pytest.raises(AssertionError, match="outside"):
            assert_upper_within(gram, wrong, noise_gram_error(p, dtype))


@every_dtype
def test_a_lane_off_by_one_row_is_noticed(kernels, dtype):
    p = problem(65, 3, 257, False)
    gram, _, sums = call_lane_rank_k(kernels, p, dtype, 100, 64)
    wrong = slice(101, 201)
    with pytest.raises(AssertionError, match="outside"):
        assert_within(sums[0][1], p.sums(wrong)[0], p.sum_errors(dtype, wrong)[0])
    with pytest.raises(AssertionError, match="outside"):
        assert_upper_within(gram[1], p.grams(wrong)[0], gram_error(p, dtype, "dphi", 101, 201))
    short = p.grams(slice(100, 199))[0]
    with pytest.raises(AssertionError, match="outside"):
        assert_upper_within(gram[1], short, gram_error(p, dtype, "dphi", 100, 200))


def test_bounds_are_narrow():
    # float64 results with an error of float32 size, and float32 ones a thousand times worse,
    # are outside; so is a NaN
    p = problem(65, 3, 257, False)
    right = p.grams()[0]
    for dtype, factor in ((np.float64, 1.0 + 1e-9), (np.float32, 1.0 + 1e-3)):
        for features in (p.dphi, p.phi):
            with pytest.raises(AssertionError, match="outside"):
                assert_within(features * factor, features, p.feature_error(dtype))
        with pytest.raises(AssertionError, match="outside"):
            assert_upper_within(right * factor, right, gram_error(p, dtype, "dphi"))
        spoilt = right.copy()
        spoilt[3, 5] = np.nan
        with pytest.raises(AssertionError, match="outside"):
            assert_upper_within(spoilt, right, gram_error(p, dtype, "dphi"))


def test_a_strict_inequality_in_the_cdf_is_noticed(kernels):
    x = np.array([[0.0], [1.0], [1.0], [2.0]])
    low, step, one = np.zeros(1), np.ones(1), np.ones((1, 1))
    ones = np.ones(4)
    mass, squares, excess = call_marginal_mass(kernels, x, ones, one, low, step, 3)
    assert_is_marginal(mass, squares, excess, x, ones, one, low, step)
    strict = np.array([[0.0, 1.0, 2.0, 1.0]])  # p < grid instead of p <= grid
    for wrong in ((strict, squares, excess), (mass, strict, excess), (mass, squares, excess + 1.0)):
        with pytest.raises(AssertionError):
            assert_is_marginal(*wrong, x, ones, one, low, step)


def test_a_wrong_tilt_is_noticed(kernels):
    t = tilt_problem(65, 3, 257)
    p, b, cosine, sine = t.p, t.coefficients, np.cos(t.exact_angles), np.sin(t.exact_angles)
    value, gradient = call_tilt_gradient(kernels, t.angles, b)
    assert_within(value, t.value, t.value_error)
    assert_within(gradient, t.gradient, t.gradient_error)
    shifted = p.frequencies @ (p.x - p.origin).T + p.c[:, None]  # a phase not turned to the origin
    for wrong in (
        b @ sine, -t.value, np.roll(b, 1) @ cosine, b[:-1] @ cosine[:-1], b @ np.cos(shifted),
        t.value * (1.0 + 1e-9) + 1e-9, np.roll(t.value, 1),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match="outside"):
            assert_within(value, wrong, t.value_error)
    for wrong in (
        -t.gradient, t.gradient * GAMMA, t.gradient[:, ::-1], np.roll(t.gradient, 1, axis=0),
        t.gradient * (1.0 + 1e-9) + 1e-9, (-b[:, None] * cosine).T @ p.frequencies,
    ):  # fmt: skip
        with pytest.raises(AssertionError, match="outside"):
            assert_within(gradient, wrong, t.gradient_error)


def test_far_angles_reduced_in_float64_alone_are_noticed():
    # what the far path is for: 2 pi has an error of 2e-16, times as many turns as there are
    _, angles, _, cosine = exact_angles(65, 3)
    reduced = np.cos(np.remainder(angles, 2.0 * math.pi))
    near = np.abs(angles) < 1.0
    assert_within(reduced[near], cosine[near], 10 * U)
    far = np.abs(angles) > 2.0**27
    ones = np.ones(len(angles))
    with pytest.raises(AssertionError, match="outside"):
        assert_within(reduced[far], cosine[far], SINCOS[np.float64])
    with pytest.raises(AssertionError, match="outside"):
        assert_within(ones @ reduced, ones @ cosine, len(ones) * (SINCOS[np.float64] + 69 * U))


def test_a_wrong_quadratic_tilt_is_noticed(kernels):
    t = tilt_problem(65, 3, 257)
    phi, h = t.halves
    found = call_quadratic_tilt(kernels, t.angles, t.p.amplitude, t.factor, t.linear)
    assert_within(found, t.quadratic, t.quadratic_error)
    square, linear = (h * h).sum(axis=0), t.linear @ phi
    transposed = scipy.linalg.solve(t.factor.T, phi.astype(np.float64))
    for wrong in (
        square + linear, 0.5 * square - linear, 0.5 * square, linear,
        0.5 * (phi * h).sum(axis=0) + linear, 0.5 * (transposed**2).sum(axis=0) + linear,
        t.quadratic * (1.0 + 1e-9),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match="outside"):
            assert_within(found, wrong, t.quadratic_error)


def test_wrong_kernel_sums_are_noticed(kernels):
    y, x, weights, value, bound = kernel_problem(100, 257, 2, True)
    found = call_log_kernel_sums(kernels, y, x, weights)
    assert_within(found, value, bound)
    for wrong in (
        kernel_sums(y, x)[0], kernel_sums(y, x, weights**2)[0], kernel_sums(y, x, weights[::-1])[0],
        kernel_sums(y, x[:-1], weights[:-1])[0], 2.0 * value, value + 1e-9,
    ):  # fmt: skip
        with pytest.raises(AssertionError, match="outside"):
            assert_within(found, wrong, bound)
    # what a plain sum makes of the same points: none of its terms is left at the far ones
    square = np.square(y[:, None] - x).sum(axis=2)
    with np.errstate(divide="ignore", under="ignore"):
        plain = np.log(np.exp(-0.5 * square) @ weights)
    assert np.isneginf(plain).any()
    with np.errstate(invalid="ignore"), pytest.raises(AssertionError, match="outside"):
        assert_within(plain, value, bound)


def test_guards_notice_a_write_beyond_the_output():
    for row in (GUARD_ROWS - 1, -GUARD_ROWS):
        spoilt = Guarded(5, 2)
        spoilt.checked()
        spoilt._whole[row, 1] = 0.0
        with pytest.raises(AssertionError):
            spoilt.checked()
