# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernels in Cython with OpenMP. What each computes is stated in ``_numpy.py``; the inner loops
that vectorize are in ``_simd.h``.

Parallel loops run over tasks; the number of the thread that took one (its slot) only says which
scratch buffers it uses, so results are bit-identical for any thread count. Nothing is allocated in
the loops.
"""

from cython.parallel cimport prange, threadid
from libc.math cimport INFINITY, log
from libc.stdint cimport int32_t, int64_t, uint32_t
from scipy.linalg.cython_blas cimport dgemm, dsyrk, dtrsm, sgemm, ssyrk

import os

import numpy as np

cdef extern from "_simd.h" nogil:
    const int TGP_ROW_TILE
    int tgp_level
    int tgp_simd_level()
    void tgp_transpose(const double *, const double *, int64_t, int64_t, double *)
    void tgp_feature_tile_double(
        const double *, int64_t, int64_t, const double *, const double *, const double *, double,
        int64_t, int64_t, int64_t, int64_t, double *, double *, double *, double *, double *)
    void tgp_feature_tile_float(
        const double *, int64_t, int64_t, const double *, const double *, const double *, double,
        int64_t, int64_t, int64_t, int64_t, float *, float *, double *, double *, double *)
    void tgp_add_row_double(const double *, int64_t, double *)
    void tgp_add_row_float(const float *, int64_t, double *)
    void tgp_tilt_tile(
        const double *, int64_t, int64_t, const double *, const double *, const double *, int64_t,
        double *)
    void tgp_tilt_gradient_tile(
        const double *, int64_t, int64_t, const double *, const double *, const double *, int64_t,
        double *, double *)
    void tgp_cosine_tile(
        const double *, int64_t, int64_t, const double *, const double *, double, const double *,
        int64_t, int64_t, double *, double *)
    void tgp_half_norms(const double *, int64_t, int64_t, int64_t, double *)
    void tgp_kernel_tile(
        const double *, int64_t, int64_t, const double *, const double *, double *, double *)
    void tgp_project(
        const double *, int64_t, int64_t, const double *, const double *, double *, double *)
    void tgp_grid_indices(
        const double *, int64_t, double, double, double, int32_t *, int64_t *)
    void tgp_add_weights(const int32_t *, const double *, int64_t, double *, double *)
    void tgp_add_counts(const int32_t *, int64_t, uint32_t *)
    void tgp_move_counts(uint32_t *, int64_t, double *)
    void tgp_add_excess(const double *, const double *, int64_t, double, double, double *)
    void tgp_lattice_tile(
        const double *, int64_t, int64_t, const double *, const double *, const double *,
        const int64_t *, const double *, double *, double *, double *)
    void tgp_monomials(const double *, int64_t, int64_t, int64_t, double *)
    void tgp_find_labels(const double *, int64_t, int64_t, int64_t *)
    void tgp_normalize_terms(double *, int64_t, int64_t, const double *, double *)
    void tgp_mixture_terms(
        const double *, int64_t, int64_t, const double *, const double *, const double *, int64_t,
        double *)
    void tgp_mixture_slopes(
        const double *, int64_t, int64_t, const double *, const double *, const double *, int64_t,
        double *)

cdef extern from *:
    """
    #ifdef _OPENMP
    #define TGP_HAS_OPENMP 1
    #else
    #define TGP_HAS_OPENMP 0
    #endif
    """
    const int TGP_HAS_OPENMP

tgp_level = tgp_simd_level()

NAME = "cython"
OPENMP = bool(TGP_HAS_OPENMP)
SIMD = ("baseline", "avx2", "avx512")[tgp_level]

cdef int64_t FEATURE_GROUP = 256  # features of one task of feature_block, at most
cdef int64_t DIRECTION_GROUP = 4  # directions of one task of marginal_mass
cdef int64_t POINT_GROUP = 32  # points of one task of log_kernel_sums

ctypedef fused real:
    double
    float


def max_threads():
    """Threads this backend can use: the cores this process may run on, or 1 without OpenMP."""
    if not OPENMP:
        return 1
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


cdef inline void product(
    real *a, int64_t n_a, real *b, int64_t n_b, int64_t k, int64_t ld, double beta, real *c, int64_t ldc
) noexcept nogil:
    """c (n_a, n_b), row-major with leading dimension ldc, = beta c + a b^T; where a is b, only the
    upper triangle. Row-major c is column-major c^T = b a^T: m counts b, n counts a."""
    cdef int m = <int>n_b, n = <int>n_a, kk = <int>k, lda = <int>ld, ldcc = <int>ldc
    cdef double dalpha = 1.0, dbeta = beta
    cdef float salpha = 1.0, sbeta = <float>beta
    if real is double:
        if a == b:
            dsyrk(b"L", b"T", &n, &kk, &dalpha, a, &lda, &dbeta, c, &ldcc)
        else:
            dgemm(b"T", b"N", &m, &n, &kk, &dalpha, b, &lda, a, &lda, &dbeta, c, &ldcc)
    else:
        if a == b:
            ssyrk(b"L", b"T", &n, &kk, &salpha, a, &lda, &sbeta, c, &ldcc)
        else:
            sgemm(b"T", b"N", &m, &n, &kk, &salpha, b, &lda, a, &lda, &sbeta, c, &ldcc)


cdef inline void feature_tile(
    const double *xt, int64_t d, int64_t m, const double *root, const double *frequencies,
    const double *phases, double amplitude, int64_t first, int64_t stop, int64_t start, int64_t ld,
    real *dphi, real *phi, double *sum_phi, double *sum_dphi, double *sum_dphi_x
) noexcept nogil:
    if real is double:
        tgp_feature_tile_double(
            xt, d, m, root, frequencies, phases, amplitude, first, stop, start, ld, dphi, phi,
            sum_phi, sum_dphi, sum_dphi_x)
    else:
        tgp_feature_tile_float(
            xt, d, m, root, frequencies, phases, amplitude, first, stop, start, ld, dphi, phi,
            sum_phi, sum_dphi, sum_dphi_x)


cdef void feature_task(
    const double[:, ::1] x, const double *root_weights, const double[::1] origin,
    const double[:, ::1] frequencies, const double[::1] phases, double amplitude, int64_t first,
    int64_t stop, real[:, ::1] dphi, real *phi, double[::1] sum_phi, double[::1] sum_dphi,
    double *sum_dphi_x, double *xt
) noexcept nogil:
    cdef int64_t n = x.shape[0], d = x.shape[1], start, m
    start = 0
    while start < n:
        m = min(<int64_t>TGP_ROW_TILE, n - start)
        tgp_transpose(&x[start, 0], &origin[0], d, m, xt)
        feature_tile(
            xt, d, m, root_weights + start if root_weights != NULL else NULL, &frequencies[0, 0],
            &phases[0], amplitude, first, stop, start, dphi.shape[1], &dphi[0, 0], phi,
            &sum_phi[0], &sum_dphi[0], sum_dphi_x)
        start += TGP_ROW_TILE


def feature_block(
    const double[:, ::1] x, const double[::1] root_weights, const double[::1] origin,
    const double[:, ::1] frequencies, const double[::1] phases, double amplitude,
    real[:, ::1] dphi, real[:, ::1] phi, double[::1] sum_phi, double[::1] sum_dphi,
    double[:, ::1] sum_dphi_x, int64_t n_threads,
):
    # in fours, which tgp_feature_tile takes together whatever the group: the bits stay the same
    cdef int64_t n_features = frequencies.shape[0], slot, group
    cdef int64_t size = min(FEATURE_GROUP, 4 * ((n_features + 8 * n_threads - 1) // (8 * n_threads)))
    cdef int64_t groups = (n_features + size - 1) // size
    cdef double[:, ::1] xt = np.empty((n_threads, x.shape[1] * TGP_ROW_TILE))
    cdef const double *root = &root_weights[0] if root_weights.shape[0] else NULL
    cdef real *cosines = &phi[0, 0] if phi.shape[0] else NULL
    cdef double *products = &sum_dphi_x[0, 0] if sum_dphi_x.shape[0] else NULL
    if x.shape[0] == 0:
        return
    for group in prange(groups, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        feature_task(
            x, root, origin, frequencies, phases, amplitude, group * size,
            min((group + 1) * size, n_features), dphi, cosines, sum_phi, sum_dphi, products,
            &xt[slot, 0])


# -- rank-k updates ------------------------------------------------------------------------------


cdef int64_t n_tiles(int64_t n_features, int64_t strip) noexcept nogil:
    cdef int64_t strips = (n_features + strip - 1) // strip
    return strips * (strips + 1) // 2


cdef void locate_tile(int64_t index, int64_t n_features, int64_t strip, int64_t *to) noexcept nogil:
    """i0, i1, j0, j1 of a tile of the upper triangle; the full tiles come before the diagonal's
    halves, so that dealing them out in turn balances the slots."""
    cdef int64_t strips = (n_features + strip - 1) // strip
    cdef int64_t i = index - strips * (strips - 1) // 2, j
    if i >= 0:
        j = i
    else:
        i = 0
        j = index
        while j >= strips - 1 - i:
            j -= strips - 1 - i
            i += 1
        j += i + 1
    to[0] = i * n_features // strips
    to[1] = (i + 1) * n_features // strips
    to[2] = j * n_features // strips
    to[3] = (j + 1) * n_features // strips


cdef inline void add_row(const real *row, int64_t n, double *into) noexcept nogil:
    """into[i] += row[i]."""
    if real is double:
        tgp_add_row_double(row, n, into)
    else:
        tgp_add_row_float(row, n, into)


cdef void rank_k_task(
    real[:, ::1] block, int64_t n, double[:, ::1] gram, int64_t tile, int64_t strip, real *scratch
) noexcept nogil:
    cdef int64_t to[4]
    cdef int64_t p, first
    locate_tile(tile, block.shape[0], strip, to)
    product(
        &block[to[0], 0], to[1] - to[0], &block[to[2], 0], to[3] - to[2], n, block.shape[1], 0.0,
        scratch, strip)
    for p in range(to[1] - to[0]):
        first = p if to[0] == to[2] else 0
        add_row(scratch + p * strip + first, to[3] - to[2] - first, &gram[to[0] + p, to[2] + first])


def rank_k(
    real[:, ::1] block, int64_t n, double[:, ::1] gram, real[:, :, :, ::1] scratch, int64_t n_threads
):
    cdef int64_t strip = scratch.shape[2], tiles = n_tiles(block.shape[0], strip), slot, tile
    for tile in prange(tiles, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        rank_k_task(block, n, gram, tile, strip, &scratch[slot, 0, 0, 0])


cdef void add_upper(real *scratch, double[:, ::1] gram) noexcept nogil:
    cdef int64_t s, n = gram.shape[0]
    for s in range(n):
        add_row(scratch + s * n + s, n - s, &gram[s, s])


cdef void lane_task(
    const double[:, ::1] x, const double *root_weights, const double[::1] origin,
    const double[:, ::1] frequencies, const double[::1] phases, double amplitude, int64_t first,
    int64_t stop, double[::1] sum_phi, double[::1] sum_dphi, double[:, ::1] sum_dphi_x,
    double[:, ::1] gram, double[:, ::1] gram_phi, bint wants_phi,
    real[:, :, ::1] blocks, real[:, :, ::1] scratch, double *xt
) noexcept nogil:
    """Features and products of rows first..stop."""
    cdef int64_t n = frequencies.shape[0], row_tile = blocks.shape[2], start = first, m
    cdef real *dphi = &blocks[0, 0, 0]
    cdef real *phi = &blocks[1, 0, 0] if wants_phi else NULL
    cdef double beta
    while start < stop:
        m = min(row_tile, stop - start)
        tgp_transpose(&x[start, 0], &origin[0], x.shape[1], m, xt)
        feature_tile(
            xt, x.shape[1], m, root_weights + start if root_weights != NULL else NULL,
            &frequencies[0, 0], &phases[0], amplitude, 0, n, 0, row_tile, dphi, phi,
            &sum_phi[0], &sum_dphi[0], &sum_dphi_x[0, 0])
        beta = 1.0 if start > first else 0.0
        product(dphi, n, dphi, n, m, row_tile, beta, &scratch[0, 0, 0], n)
        if wants_phi:
            product(phi, n, phi, n, m, row_tile, beta, &scratch[1, 0, 0], n)
        start += row_tile
    add_upper(&scratch[0, 0, 0], gram)
    if wants_phi:
        add_upper(&scratch[1, 0, 0], gram_phi)


def lane_rank_k(
    const double[:, ::1] x, const double[::1] root_weights, const double[::1] origin,
    const double[:, ::1] frequencies, const double[::1] phases, double amplitude, int64_t rows,
    double[:, ::1] sum_phi, double[:, ::1] sum_dphi, double[:, :, ::1] sum_dphi_x,
    double[:, :, ::1] gram, double[:, :, ::1] gram_phi, real[:, :, :, ::1] blocks,
    real[:, :, :, ::1] scratch, int64_t n_threads,
):
    cdef int64_t n = x.shape[0], lanes = (n + rows - 1) // rows, slot, lane
    cdef double[:, ::1] xt = np.empty((n_threads, x.shape[1] * TGP_ROW_TILE))
    cdef const double *root = &root_weights[0] if root_weights.shape[0] else NULL
    cdef bint wants_phi = gram_phi.shape[0] > 0
    if blocks.shape[3] > TGP_ROW_TILE:
        raise ValueError(f"blocks of at most {TGP_ROW_TILE} rows expected, got {blocks.shape[3]}")
    if scratch.shape[2] < frequencies.shape[0] or scratch.shape[3] < frequencies.shape[0]:
        raise ValueError(
            f"scratch for {frequencies.shape[0]} features expected, got {scratch.shape[2]}")
    for lane in prange(lanes, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        lane_task(
            x, root, origin, frequencies, phases, amplitude, lane * rows,
            min((lane + 1) * rows, n), sum_phi[lane], sum_dphi[lane], sum_dphi_x[lane],
            gram[lane], gram_phi[lane if wants_phi else 0], wants_phi,
            blocks[slot], scratch[slot], &xt[slot, 0])


# -- evaluation of a learned tilt ----------------------------------------------------------------


def tilt(
    const double[:, ::1] x, const double[::1] origin, const double[:, ::1] frequencies,
    const double[::1] phases, const double[::1] coefficients, double[::1] value, int64_t n_threads,
):
    cdef int64_t n = x.shape[0], d = x.shape[1], tiles = (n + TGP_ROW_TILE - 1) // TGP_ROW_TILE
    cdef int64_t slot, tile, m
    cdef double[:, ::1] xt = np.empty((n_threads, d * TGP_ROW_TILE))
    for tile in prange(tiles, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        m = min(<int64_t>TGP_ROW_TILE, n - tile * TGP_ROW_TILE)
        tgp_transpose(&x[tile * TGP_ROW_TILE, 0], &origin[0], d, m, &xt[slot, 0])
        tgp_tilt_tile(
            &xt[slot, 0], d, m, &frequencies[0, 0], &phases[0], &coefficients[0], phases.shape[0],
            &value[tile * TGP_ROW_TILE])


cdef void gradient_task(
    const double[:, ::1] x, const double[::1] origin, const double[:, ::1] frequencies,
    const double[::1] phases, const double[::1] coefficients, double[::1] value,
    double[:, ::1] gradient, int64_t start, int64_t m, double *xt, double *gt
) noexcept nogil:
    cdef int64_t d = x.shape[1], i, k
    tgp_transpose(&x[start, 0], &origin[0], d, m, xt)
    tgp_tilt_gradient_tile(
        xt, d, m, &frequencies[0, 0], &phases[0], &coefficients[0], phases.shape[0], &value[start],
        gt)
    for i in range(m):
        for k in range(d):
            gradient[start + i, k] = gt[k * TGP_ROW_TILE + i]


def tilt_gradient(
    const double[:, ::1] x, const double[::1] origin, const double[:, ::1] frequencies,
    const double[::1] phases, const double[::1] coefficients, double[::1] value,
    double[:, ::1] gradient, int64_t n_threads,
):
    cdef int64_t n = x.shape[0], d = x.shape[1], tiles = (n + TGP_ROW_TILE - 1) // TGP_ROW_TILE
    cdef int64_t slot, tile
    cdef double[:, ::1] xt = np.empty((n_threads, d * TGP_ROW_TILE))
    cdef double[:, ::1] gt = np.empty((n_threads, d * TGP_ROW_TILE))
    for tile in prange(tiles, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        gradient_task(
            x, origin, frequencies, phases, coefficients, value, gradient, tile * TGP_ROW_TILE,
            min(<int64_t>TGP_ROW_TILE, n - tile * TGP_ROW_TILE), &xt[slot, 0], &gt[slot, 0])


cdef void quadratic_task(
    const double[:, ::1] x, const double[::1] origin, const double[:, ::1] frequencies,
    const double[::1] phases, double amplitude, const double[:, ::1] factor,
    const double[::1] linear, double[::1] value, int64_t start, int64_t m, double[:, ::1] block,
    double *xt
) noexcept nogil:
    # row-major block is column-major block^T, which factor^T, upper there, divides from the right
    cdef int mm = <int>m, n = <int>factor.shape[0], ldb = <int>block.shape[1]
    cdef double one = 1.0
    tgp_transpose(&x[start, 0], &origin[0], x.shape[1], m, xt)
    tgp_cosine_tile(
        xt, x.shape[1], m, &frequencies[0, 0], &phases[0], amplitude, &linear[0], factor.shape[0],
        block.shape[1], &block[0, 0], &value[start])
    dtrsm(b"R", b"U", b"N", b"N", &mm, &n, &one, <double *>&factor[0, 0], &n, &block[0, 0], &ldb)
    tgp_half_norms(&block[0, 0], factor.shape[0], block.shape[1], m, &value[start])


def quadratic_tilt(
    const double[:, ::1] x, const double[::1] origin, const double[:, ::1] frequencies,
    const double[::1] phases, double amplitude, const double[:, ::1] factor,
    const double[::1] linear, double[::1] value, double[:, :, ::1] blocks, int64_t n_threads,
):
    cdef int64_t n = x.shape[0], rows = blocks.shape[2], tiles = (n + rows - 1) // rows, slot, tile
    cdef double[:, ::1] xt = np.empty((n_threads, x.shape[1] * TGP_ROW_TILE))
    if rows > TGP_ROW_TILE:
        raise ValueError(f"blocks of at most {TGP_ROW_TILE} rows expected, got {rows}")
    for tile in prange(tiles, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        quadratic_task(
            x, origin, frequencies, phases, amplitude, factor, linear, value, tile * rows,
            min(rows, n - tile * rows), blocks[slot], &xt[slot, 0])


# -- kernel density estimate ---------------------------------------------------------------------


cdef void kernel_task(
    const double[:, ::1] y, double[:, ::1] xt, int64_t n, const double *weights, int64_t first,
    int64_t stop, double[::1] value, double *least, double *total
) noexcept nogil:
    cdef int64_t tile, p, m
    for p in range(stop - first):
        least[p] = INFINITY
        total[p] = 0.0
    for tile in range(xt.shape[0]):
        m = min(<int64_t>TGP_ROW_TILE, n - tile * TGP_ROW_TILE)
        for p in range(stop - first):
            tgp_kernel_tile(
                &xt[tile, 0], y.shape[1], m, &y[first + p, 0],
                weights + tile * TGP_ROW_TILE if weights != NULL else NULL, &least[p], &total[p])
    for p in range(stop - first):
        value[first + p] = log(total[p]) - least[p]


def log_kernel_sums(
    const double[:, ::1] y, const double[:, ::1] x, const double[::1] weights, double[::1] value,
    int64_t n_threads,
):
    cdef int64_t n = x.shape[0], d = x.shape[1], tiles = (n + TGP_ROW_TILE - 1) // TGP_ROW_TILE
    cdef int64_t groups = (y.shape[0] + POINT_GROUP - 1) // POINT_GROUP, slot, tile, group
    cdef double[:, ::1] xt = np.empty((tiles, d * TGP_ROW_TILE))
    cdef double[:, :, ::1] sums = np.empty((n_threads, 2, POINT_GROUP))
    cdef double[::1] origin = np.zeros(d)
    cdef const double *w = &weights[0] if weights.shape[0] else NULL
    for tile in prange(tiles, nogil=True, schedule="static", num_threads=n_threads):
        tgp_transpose(
            &x[tile * TGP_ROW_TILE, 0], &origin[0], d,
            min(<int64_t>TGP_ROW_TILE, n - tile * TGP_ROW_TILE), &xt[tile, 0])
    for group in prange(groups, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        kernel_task(
            y, xt, n, w, group * POINT_GROUP, min((group + 1) * POINT_GROUP, <int64_t>y.shape[0]),
            value, &sums[slot, 0, 0], &sums[slot, 1, 0])


# -- weighted marginal CDFs ----------------------------------------------------------------------


cdef void mass_task(
    double[:, ::1] xt, int64_t n, const double *weights, const double[:, ::1] directions,
    int64_t first, int64_t last, const double[::1] low, const double[::1] step,
    double[:, ::1] mass, double[:, ::1] squares, double[:, ::1] excess, double *projections,
    int32_t *index, uint32_t[:, ::1] counts
) noexcept nogil:
    cdef int64_t tile, v, m, at_end, n_grid = mass.shape[1] - 1
    cdef const double *w = NULL
    cdef double *p
    for tile in range(xt.shape[0]):
        m = min(<int64_t>TGP_ROW_TILE, n - tile * TGP_ROW_TILE)
        if weights != NULL:
            w = weights + tile * TGP_ROW_TILE
        for v in range(first, last):
            p = projections + ((v - first) % 2) * TGP_ROW_TILE
            if p == projections:  # projections on two directions at a time
                tgp_project(
                    &xt[tile, 0], directions.shape[1], m, &directions[v, 0],
                    &directions[min(v + 1, last - 1), 0], p, p + TGP_ROW_TILE)
            tgp_grid_indices(p, m, low[v], step[v], n_grid, index, &at_end)
            if at_end:
                tgp_add_excess(p, w, m, low[v], low[v] + (n_grid - 1) * step[v], &excess[v, 0])
            if w != NULL:
                tgp_add_weights(
                    index, w, m, &mass[v, 0], &squares[v, 0] if squares.shape[0] else NULL)
            else:
                tgp_add_counts(index, m, &counts[v - first, 0])
    if weights == NULL:
        for v in range(first, last):
            tgp_move_counts(&counts[v - first, 0], n_grid + 1, &mass[v, 0])


def marginal_mass(
    const double[:, ::1] x, const double[::1] weights, const double[:, ::1] directions,
    const double[::1] low, const double[::1] step, double[:, ::1] mass, double[:, ::1] squares,
    double[:, ::1] excess, int64_t n_threads,
):
    cdef int64_t n = x.shape[0], d = x.shape[1], tiles = (n + TGP_ROW_TILE - 1) // TGP_ROW_TILE
    cdef int64_t n_directions = directions.shape[0], slot, tile, group
    cdef int64_t groups = (n_directions + DIRECTION_GROUP - 1) // DIRECTION_GROUP
    cdef double[:, ::1] xt = np.empty((tiles, d * TGP_ROW_TILE))
    cdef double[:, ::1] projections = np.empty((n_threads, 2 * TGP_ROW_TILE))
    cdef int32_t[:, ::1] index = np.empty((n_threads, TGP_ROW_TILE), np.int32)
    cdef uint32_t[:, :, ::1] counts = np.zeros(
        (n_threads, DIRECTION_GROUP, mass.shape[1]), np.uint32)  # half of mass, so in cache
    cdef double[::1] origin = np.zeros(d)
    cdef const double *w = &weights[0] if weights.shape[0] else NULL
    for tile in prange(tiles, nogil=True, schedule="static", num_threads=n_threads):
        tgp_transpose(
            &x[tile * TGP_ROW_TILE, 0], &origin[0], d,
            min(<int64_t>TGP_ROW_TILE, n - tile * TGP_ROW_TILE), &xt[tile, 0])
    for group in prange(groups, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        mass_task(
            xt, n, w, directions, group * DIRECTION_GROUP,
            min((group + 1) * DIRECTION_GROUP, n_directions), low, step, mass, squares, excess,
            &projections[slot, 0], &index[slot, 0], counts[slot])


# -- a function on a regular grid at any points ----------------------------------------------------


def interpolate_lattice(
    const double[:, ::1] x, const double[:, ::1] axes, const double[:, ::1] pieces,
    const double[:, :, ::1] coefficients, const double[::1] stretch, double[::1] value,
    double[:, ::1] gradient, double[::1] laplacian, int64_t n_threads,
):
    cdef int64_t n = x.shape[0], d = x.shape[1], tiles = (n + TGP_ROW_TILE - 1) // TGP_ROW_TILE
    cdef int64_t tile, start
    cdef int64_t ld[3]
    cdef bint sloped = gradient.shape[0] > 0, bent = laplacian.shape[0] > 0
    ld[0], ld[1], ld[2] = coefficients.shape[1] * coefficients.shape[2], coefficients.shape[2], 1
    for tile in prange(tiles, nogil=True, schedule="static", num_threads=n_threads):
        start = tile * TGP_ROW_TILE
        tgp_lattice_tile(
            &x[start, 0], min(<int64_t>TGP_ROW_TILE, n - start), d, &axes[0, 0], &pieces[0, 0],
            &coefficients[0, 0, 0], ld, &stretch[0], &value[start],
            &gradient[start, 0] if sloped else NULL, &laplacian[start] if bent else NULL)


# -- Gaussian mixtures ---------------------------------------------------------------------------


cdef void mixture_lane(
    const double[:, ::1] x, const double *share, int64_t first, int64_t stop,
    const double[:, ::1] coefficients, double[:, ::1] value, int64_t *labels, double *sums,
    double *design, double *xt, const double *origin
) noexcept nogil:
    """Rows first..stop of ``mixture_sums``; labels and sums may be NULL."""
    cdef int n_terms = <int>coefficients.shape[0], count = <int>coefficients.shape[1]
    cdef int tile = TGP_ROW_TILE, m
    cdef double one = 1.0, zero = 0.0
    cdef double *terms = design + count * TGP_ROW_TILE
    cdef int64_t start = first, g, size = coefficients.shape[0] // value.shape[0]
    while start < stop:
        m = <int>min(<int64_t>TGP_ROW_TILE, stop - start)
        tgp_transpose(&x[start, 0], origin, x.shape[1], m, xt)
        tgp_monomials(xt, x.shape[1], m, count, design)
        # row-major terms = coefficients design is column-major design^T coefficients^T
        dgemm(
            b"N", b"N", &m, &n_terms, &count, &one, design, &tile, <double *>&coefficients[0, 0],
            &count, &zero, terms, &tile)
        if labels != NULL:
            tgp_find_labels(terms, n_terms, m, labels + start)
        for g in range(value.shape[0]):
            tgp_normalize_terms(
                terms + g * size * TGP_ROW_TILE, size, m, share + start, &value[g, start])
        if sums != NULL:
            dgemm(
                b"T", b"N", &count, &n_terms, &m, &one, design, &tile, terms, &tile, &one, sums,
                &count)
        start += TGP_ROW_TILE


def mixture_sums(
    const double[:, ::1] x, const double[::1] share, const int64_t[::1] bounds,
    const double[:, :, ::1] coefficients, double[:, ::1] value, int64_t[::1] labels,
    double[:, :, ::1] sums, double[:, :, ::1] blocks, int64_t n_threads,
):
    cdef int64_t lanes = bounds.shape[0] - 1, slot, lane
    cdef double[:, ::1] xt = np.empty((n_threads, x.shape[1] * TGP_ROW_TILE))
    cdef double[::1] origin = np.zeros(x.shape[1])
    cdef int64_t *best = &labels[0] if labels.shape[0] else NULL
    cdef bint wants_sums = sums.shape[0] > 0
    if blocks.shape[2] != TGP_ROW_TILE:
        raise ValueError(f"blocks of {TGP_ROW_TILE} rows expected, got {blocks.shape[2]}")
    if x.shape[0] == 0:
        return
    for lane in prange(lanes, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        mixture_lane(
            x, &share[0], bounds[lane], bounds[lane + 1], coefficients[lane % coefficients.shape[0]],
            value, best, &sums[lane, 0, 0] if wants_sums else NULL, &blocks[slot, 0, 0],
            &xt[slot, 0], &origin[0])


cdef void density_task(
    const double[:, ::1] x, const double[::1] origin, const double[:, :, ::1] whitener,
    const double[:, ::1] shift, const double[::1] constant, double[::1] value, double *score,
    int64_t start, int64_t m, double *terms, double *xt, double *gt
) noexcept nogil:
    cdef int64_t d = x.shape[1], n_terms = constant.shape[0], i, k
    tgp_transpose(&x[start, 0], &origin[0], d, m, xt)
    tgp_mixture_terms(xt, d, m, &whitener[0, 0, 0], &shift[0, 0], &constant[0], n_terms, terms)
    tgp_normalize_terms(terms, n_terms, m, NULL, &value[start])
    if score != NULL:
        tgp_mixture_slopes(xt, d, m, &whitener[0, 0, 0], &shift[0, 0], terms, n_terms, gt)
        for i in range(m):
            for k in range(d):
                score[(start + i) * d + k] = gt[k * TGP_ROW_TILE + i]


def mixture_density(
    const double[:, ::1] x, const double[::1] origin, const double[:, :, ::1] whitener,
    const double[:, ::1] shift, const double[::1] constant, double[::1] value,
    double[:, ::1] score, double[:, :, ::1] blocks, int64_t n_threads,
):
    cdef int64_t n = x.shape[0], d = x.shape[1], tiles = (n + TGP_ROW_TILE - 1) // TGP_ROW_TILE
    cdef int64_t slot, tile
    cdef double[:, ::1] xt = np.empty((n_threads, d * TGP_ROW_TILE))
    cdef double[:, ::1] gt = np.empty((n_threads, d * TGP_ROW_TILE))
    cdef double *slopes = &score[0, 0] if score.shape[0] else NULL
    if blocks.shape[2] != TGP_ROW_TILE:
        raise ValueError(f"blocks of {TGP_ROW_TILE} rows expected, got {blocks.shape[2]}")
    for tile in prange(tiles, nogil=True, schedule="dynamic", num_threads=n_threads):
        slot = threadid()
        density_task(
            x, origin, whitener, shift, constant, value, slopes, tile * TGP_ROW_TILE,
            min(<int64_t>TGP_ROW_TILE, n - tile * TGP_ROW_TILE), &blocks[slot, 0, 0], &xt[slot, 0],
            &gt[slot, 0])
