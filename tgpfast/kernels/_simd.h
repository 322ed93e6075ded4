/* The inner loops of _cython.pyx: plain C that the compiler vectorises, once per instruction set.
 *
 * What each computes is stated in _numpy.py; constants and order of operations are those of
 * _numba.py. Every loop is written once, as an always-inlined body; TGP_DISPATCH compiles that body
 * for the baseline and for AVX2 and AVX-512 and picks by the running CPU. (GCC's target_clones would
 * do it too, but its "arch=haswell" clone is never picked on AMD, and needs glibc.)
 */
#ifndef TGP_SIMD_H
#define TGP_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define TGP_INLINE static inline __attribute__((always_inline))
#define TGP_RESTRICT __restrict__
#else
#define TGP_INLINE static inline
#define TGP_RESTRICT
#endif

#if defined(__GNUC__) && defined(__x86_64__)
/* 0: SSE2, 1: AVX2 with fused multiply-add, 2: AVX-512 */
static int tgp_simd_level(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl"))
        return 2;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0;
}
#define TGP_DISPATCH(name, parameters, arguments)                                                  \
    static void name##_base parameters { name##_body arguments; }                                  \
    __attribute__((target("avx2,fma"))) static void name##_avx2 parameters { name##_body arguments; } \
    __attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"))) static void name##_avx512        \
        parameters { name##_body arguments; }                                                      \
    static void name parameters                                                                    \
    {                                                                                              \
        if (tgp_level == 2) name##_avx512 arguments;                                               \
        else if (tgp_level == 1) name##_avx2 arguments;                                            \
        else name##_base arguments;                                                                \
    }
#else
static int tgp_simd_level(void) { return 0; }
#define TGP_DISPATCH(name, parameters, arguments) \
    static void name parameters { name##_body arguments; }
#endif
static int tgp_level = 0; /* set once when the module is imported */

#define TGP_ROW_TILE 256 /* rows whose angle, sine and cosine stay in the first-level cache */

/* pi/2 in three parts; the first two have 26 bits, so their products with q < 2^27 are exact */
#define TGP_TWO_OVER_PI 0x1.45f306dc9c883p-1
#define TGP_PIO2_1 0x1.921fb5p+0
#define TGP_PIO2_2 0x1.110b46p-26
#define TGP_PIO2_3 0x1.1a62633145c07p-54
#define TGP_ROUND 0x1.8p52 /* adding it rounds to an integer, which then stands in the low bits */
#define TGP_ANGLE_LIMIT 0x1p27 /* beyond it the C library's sine and cosine take over */
#define TGP_LOG2_E 0x1.71547652b82fep+0
#define TGP_LN2_1 0x1.62e42feep-1 /* 33 bits */
#define TGP_LN2_2 0x1.a39ef35793c76p-33
#define TGP_EXP_LOWEST -708.0

static inline int64_t tgp_bits_double(double x) { int64_t b; memcpy(&b, &x, 8); return b; }
static inline double tgp_float_double(int64_t b) { double x; memcpy(&x, &b, 8); return x; }
static inline int32_t tgp_bits_float(float x) { int32_t b; memcpy(&b, &x, 4); return b; }
static inline float tgp_float_float(int32_t b) { float x; memcpy(&x, &b, 4); return x; }


/* Sine and cosine of one angle, |angle| <= TGP_ANGLE_LIMIT; without branches, so that loops vectorise.
 * q = rint(2 angle / pi) stands in the low bits of magic: bit 0 swaps sine and cosine, bit 1 of q is
 * the sign of the sine, bit 1 of q + 1 that of the cosine. */
TGP_INLINE void tgp_sincos_double(double angle, double *s, double *c)
{
    double magic = angle * TGP_TWO_OVER_PI + TGP_ROUND;
    int64_t bits = tgp_bits_double(magic);
    double q = magic - TGP_ROUND;
    double r = ((angle - q * TGP_PIO2_1) - q * TGP_PIO2_2) - q * TGP_PIO2_3;
    double t = r * r, u = t * t;
    double sine = r + (r * t) * ((-1.66666666666666324348e-01 + t * 8.33333333332248946124e-03)
        + u * ((-1.98412698298579493134e-04 + t * 2.75573137070700676789e-06)
        + u * (-2.50507602534068634195e-08 + t * 1.58969099521155010221e-10)));
    double cosine = (1.0 - 0.5 * t) + u * ((4.16666666666666019037e-02
        + t * -1.38888888888741095749e-03)
        + u * ((2.48015872894767294178e-05 + t * -2.75573143513906633035e-07)
        + u * (2.08757232129817482790e-09 + t * -1.13596475577881948265e-11)));
    int64_t bs = tgp_bits_double(sine), bc = tgp_bits_double(cosine);
    int64_t mix = (bs ^ bc) & -(bits & 1);
    *s = tgp_float_double(bs ^ mix ^ (int64_t)((uint64_t)(bits & 2) << 62));
    *c = tgp_float_double(bc ^ mix ^ (int64_t)((uint64_t)((bits + 1) & 2) << 62));
}

TGP_INLINE void tgp_sincos_float(double angle, float *s, float *c)
{
    double magic = angle * TGP_TWO_OVER_PI + TGP_ROUND;
    int32_t bits = (int32_t)tgp_bits_double(magic);
    double q = magic - TGP_ROUND;
    float r = (float)((angle - q * TGP_PIO2_1) - q * TGP_PIO2_2); /* the third part is under 6e-9 */
    float t = r * r;
    float sine = r + r * t * (-1.6666654611e-1f + t * (8.3321608736e-3f + t * -1.9515295891e-4f));
    float cosine = 1.0f - (0.5f * t - t * t * (4.166664568298827e-2f
        + t * (-1.388731625493765e-3f + t * 2.443315711809948e-5f)));
    int32_t bs = tgp_bits_float(sine), bc = tgp_bits_float(cosine), mix = (bs ^ bc) & -(bits & 1);
    *s = tgp_float_float(bs ^ mix ^ (int32_t)((uint32_t)(bits & 2) << 30));
    *c = tgp_float_float(bc ^ mix ^ (int32_t)((uint32_t)((bits + 1) & 2) << 30));
}

/* exp(x) for x <= 0, within 2 units in the last place; 0 below TGP_EXP_LOWEST */
TGP_INLINE double tgp_exp(double x)
{
    double clipped = x > TGP_EXP_LOWEST ? x : TGP_EXP_LOWEST;
    double magic = clipped * TGP_LOG2_E + TGP_ROUND;
    double n = magic - TGP_ROUND;
    double r = (clipped - n * TGP_LN2_1) - n * TGP_LN2_2;
    double p = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120
        + r * (1.0 / 720 + r * (1.0 / 5040 + r * (1.0 / 40320 + r * (1.0 / 362880
        + r * (1.0 / 3628800 + r * (1.0 / 39916800 + r * (1.0 / 479001600))))))))))));
    uint64_t bits = (uint64_t)tgp_bits_double(p) + ((uint64_t)tgp_bits_double(magic) << 52);
    double value = tgp_float_double((int64_t)bits);
    return x >= TGP_EXP_LOWEST ? value : 0.0;
}

/* out[i] = constant + sum_k f[k] xt[k ld + i], i < n */
TGP_INLINE void tgp_linear(const double *TGP_RESTRICT xt, int64_t ld, int64_t d, int64_t n,
                           const double *f, double constant, double *TGP_RESTRICT out)
{
    int64_t k = 1;
    for (int64_t i = 0; i < n; i++) out[i] = constant + f[0] * xt[i];
    for (; k + 3 <= d; k += 3) { /* three at a time: out is loaded and stored a third as often */
        const double *a = xt + k * ld, *b = a + ld, *c = b + ld;
        double fa = f[k], fb = f[k + 1], fc = f[k + 2];
        for (int64_t i = 0; i < n; i++) out[i] += fa * a[i] + fb * b[i] + fc * c[i];
    }
    for (; k < d; k++) {
        const double *a = xt + k * ld;
        double fa = f[k];
        for (int64_t i = 0; i < n; i++) out[i] += fa * a[i];
    }
}

/* out[k] += sum_i v[i] xt[k ld + i] */
TGP_INLINE void tgp_add_products(const double *TGP_RESTRICT v, const double *TGP_RESTRICT xt,
                                 int64_t ld, int64_t d, int64_t n, double *TGP_RESTRICT out)
{
    int64_t k = 0;
    for (; k + 4 <= d; k += 4) { /* four at a time: v is loaded a quarter as often */
        const double *a = xt + k * ld, *b = a + ld, *c = b + ld, *e = c + ld;
        double sa = 0, sb = 0, sc = 0, se = 0;
#pragma omp simd reduction(+ : sa, sb, sc, se)
        for (int64_t i = 0; i < n; i++) {
            sa += v[i] * a[i];
            sb += v[i] * b[i];
            sc += v[i] * c[i];
            se += v[i] * e[i];
        }
        out[k] += sa; out[k + 1] += sb; out[k + 2] += sc; out[k + 3] += se;
    }
    for (; k < d; k++) {
        const double *a = xt + k * ld;
        double sa = 0;
#pragma omp simd reduction(+ : sa)
        for (int64_t i = 0; i < n; i++) sa += v[i] * a[i];
        out[k] += sa;
    }
}

/* Features first..stop of one row tile: to columns start.. of dphi (and of phi, unless NULL), and
 * their sums. root is NULL for unit weights. */
#define TGP_FEATURE_TILE(REAL)                                                                     \
TGP_INLINE void tgp_feature_tile_##REAL##_body(                                                    \
    const double *xt, int64_t d, int64_t m, const double *root, const double *frequencies,         \
    const double *phases, double amplitude, int64_t first, int64_t stop, int64_t start,            \
    int64_t ld, REAL *dphi, REAL *phi, double *sum_phi, double *sum_dphi, double *sum_dphi_x)      \
{                                                                                                  \
    double angle[TGP_ROW_TILE], weighted[TGP_ROW_TILE];                                            \
    REAL sine[TGP_ROW_TILE], cosine[TGP_ROW_TILE], scale = (REAL)amplitude;                        \
    for (int64_t s = first; s < stop; s++) {                                                       \
        REAL *TGP_RESTRICT to = dphi + s * ld + start;                                             \
        int64_t far = 0;                                                                           \
        double total = 0, dtotal = 0;                                                              \
        tgp_linear(xt, TGP_ROW_TILE, d, m, frequencies + s * d, phases[s], angle);                 \
        for (int64_t i = 0; i < m; i++) far += !(fabs(angle[i]) <= TGP_ANGLE_LIMIT);               \
        if (far)                                                                                   \
            for (int64_t i = 0; i < m; i++) {                                                      \
                sine[i] = (REAL)sin(angle[i]);                                                     \
                cosine[i] = (REAL)cos(angle[i]);                                                   \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < m; i++) tgp_sincos_##REAL(angle[i], sine + i, cosine + i);     \
        if (root) {                                                                                \
            for (int64_t i = 0; i < m; i++) {                                                      \
                to[i] = -scale * sine[i] * (REAL)root[i];                                          \
                weighted[i] = (double)to[i] * root[i];                                             \
            }                                                                                      \
            TGP_SIMD_SUM                                                                           \
            for (int64_t i = 0; i < m; i++) {                                                      \
                dtotal += weighted[i];                                                             \
                total += (double)(scale * cosine[i]) * (root[i] * root[i]);                        \
            }                                                                                      \
            if (phi)                                                                               \
                for (int64_t i = 0; i < m; i++)                                                    \
                    phi[s * ld + start + i] = scale * cosine[i] * (REAL)root[i];                   \
        } else {                                                                                   \
            for (int64_t i = 0; i < m; i++) {                                                      \
                to[i] = -scale * sine[i];                                                          \
                weighted[i] = (double)to[i];                                                       \
            }                                                                                      \
            TGP_SIMD_SUM                                                                           \
            for (int64_t i = 0; i < m; i++) {                                                      \
                dtotal += weighted[i];                                                             \
                total += (double)(scale * cosine[i]);                                              \
            }                                                                                      \
            if (phi)                                                                               \
                for (int64_t i = 0; i < m; i++) phi[s * ld + start + i] = scale * cosine[i];       \
        }                                                                                          \
        sum_phi[s] += total;                                                                       \
        sum_dphi[s] += dtotal;                                                                     \
        tgp_add_products(weighted, xt, TGP_ROW_TILE, d, m, sum_dphi_x + s * d);                    \
    }                                                                                              \
}                                                                                                  \
TGP_DISPATCH(tgp_feature_tile_##REAL,                                                              \
    (const double *xt, int64_t d, int64_t m, const double *root, const double *frequencies,        \
     const double *phases, double amplitude, int64_t first, int64_t stop, int64_t start,           \
     int64_t ld, REAL *dphi, REAL *phi, double *sum_phi, double *sum_dphi, double *sum_dphi_x),    \
    (xt, d, m, root, frequencies, phases, amplitude, first, stop, start, ld, dphi, phi, sum_phi,   \
     sum_dphi, sum_dphi_x))

#define TGP_SIMD_SUM _Pragma("omp simd reduction(+ : total, dtotal)")
TGP_FEATURE_TILE(double)
TGP_FEATURE_TILE(float)

/* minus, plus [i] = exp(-|u_s -+ u_t|^2 / 2), t = first + i, i < n; half = |u|^2 / 2, ut = u^T (d, S) */
TGP_INLINE void tgp_delta_row_body(const double *TGP_RESTRICT u, const double *TGP_RESTRICT ut,
    const double *TGP_RESTRICT half, int64_t n_features, int64_t d, int64_t s, int64_t first,
    int64_t n, double *TGP_RESTRICT minus, double *TGP_RESTRICT plus)
{
    const double *theirs = half + first;
    double mine = half[s];
    tgp_linear(ut + first, n_features, d, n, u + s * d, 0.0, minus);
    for (int64_t i = 0; i < n; i++) {
        double inner = minus[i], level = mine + theirs[i];
        double a = inner - level, b = -inner - level;
        minus[i] = tgp_exp(a < 0.0 ? a : 0.0);
        plus[i] = tgp_exp(b < 0.0 ? b : 0.0);
    }
}
TGP_DISPATCH(tgp_delta_row,
    (const double *u, const double *ut, const double *half, int64_t n_features, int64_t d, int64_t s,
     int64_t first, int64_t n, double *minus, double *plus),
    (u, ut, half, n_features, d, s, first, n, minus, plus))

/* out[i] += factor ((minus + plus) sines + (minus - plus) cosines) */
#define TGP_FOLD(REAL)                                                                             \
TGP_INLINE void tgp_fold_##REAL##_body(const double *TGP_RESTRICT minus,                           \
    const double *TGP_RESTRICT plus, const REAL *TGP_RESTRICT sines,                               \
    const REAL *TGP_RESTRICT cosines, int64_t n, double factor, double *TGP_RESTRICT out)          \
{                                                                                                  \
    for (int64_t i = 0; i < n; i++)                                                                \
        out[i] += factor * ((minus[i] + plus[i]) * (double)sines[i]                                \
                            + (minus[i] - plus[i]) * (double)cosines[i]);                          \
}                                                                                                  \
TGP_DISPATCH(tgp_fold_##REAL,                                                                      \
    (const double *minus, const double *plus, const REAL *sines, const REAL *cosines, int64_t n,   \
     double factor, double *out),                                                                  \
    (minus, plus, sines, cosines, n, factor, out))

TGP_FOLD(double)
TGP_FOLD(float)

/* out[t] = (minus + plus) p phi[t] + (minus - plus) q dphi[t] - m mu[t] */
TGP_INLINE void tgp_sigma_row_body(const double *TGP_RESTRICT minus, const double *TGP_RESTRICT plus,
    double p, const double *TGP_RESTRICT phi, double q, const double *TGP_RESTRICT dphi, double m,
    const double *TGP_RESTRICT mu, int64_t n, double *TGP_RESTRICT out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (minus[i] + plus[i]) * (p * phi[i]) + (minus[i] - plus[i]) * (q * dphi[i]) - m * mu[i];
}
TGP_DISPATCH(tgp_sigma_row,
    (const double *minus, const double *plus, double p, const double *phi, double q,
     const double *dphi, double m, const double *mu, int64_t n, double *out),
    (minus, plus, p, phi, q, dphi, m, mu, n, out))

/* into[i] += row[i] */
TGP_INLINE void tgp_add_row_body(const float *TGP_RESTRICT row, int64_t n, double *TGP_RESTRICT into)
{
    for (int64_t i = 0; i < n; i++) into[i] += (double)row[i];
}
TGP_DISPATCH(tgp_add_row, (const float *row, int64_t n, double *into), (row, n, into))

/* sum_x[k] += sum_i r_i^2 xt[k, i], sum_xx[k, j] += sum_i r_i^2 xt[k, i] xt[j, i]; root NULL: r = 1 */
TGP_INLINE void tgp_moment_tile_body(const double *xt, int64_t d, int64_t m, const double *root,
                                     double *sum_x, double *sum_xx)
{
    double weighted[TGP_ROW_TILE];
    for (int64_t k = 0; k < d; k++) {
        const double *row = xt + k * TGP_ROW_TILE;
        double total = 0;
        if (root)
            for (int64_t i = 0; i < m; i++) weighted[i] = row[i] * (root[i] * root[i]);
        else
            for (int64_t i = 0; i < m; i++) weighted[i] = row[i];
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < m; i++) total += weighted[i];
        sum_x[k] += total;
        tgp_add_products(weighted, xt, TGP_ROW_TILE, d, m, sum_xx + k * d);
    }
}
TGP_DISPATCH(tgp_moment_tile,
    (const double *xt, int64_t d, int64_t m, const double *root, double *sum_x, double *sum_xx),
    (xt, d, m, root, sum_x, sum_xx))

/* projection[i] = sum_k v[k] xt[k TGP_ROW_TILE + i]; the exported form of tgp_linear */
TGP_INLINE void tgp_project_body(const double *xt, int64_t d, int64_t n, const double *v, double *out)
{
    tgp_linear(xt, TGP_ROW_TILE, d, n, v, 0.0, out);
}
TGP_DISPATCH(tgp_project, (const double *xt, int64_t d, int64_t n, const double *v, double *out),
    (xt, d, n, v, out))

/* xt[k TGP_ROW_TILE + i] = x[i d + k] - origin[k] */
static inline void tgp_transpose(const double *x, const double *origin, int64_t d, int64_t n, double *xt)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < d; k++) xt[k * TGP_ROW_TILE + i] = x[i * d + k] - origin[k];
}

/* low + j step, rounded as the caller rounds it: product first, then sum, never fused */
static inline double tgp_grid_point(double low, double step, int64_t j)
{
#ifdef __FP_FAST_FMA /* this machine's baseline has a fused multiply-add, which C compilers use */
    volatile double offset = (double)j * step;
#else
    double offset = (double)j * step;
#endif
    return low + offset;
}

/* The first j with projection <= low + j step; n_grid if there is none. */
static inline int64_t tgp_grid_index(double projection, double low, double step, int64_t n_grid)
{
    double guess = ceil((projection - low) / step);
    int64_t j = guess > 0.0 ? (guess < (double)n_grid ? (int64_t)guess : n_grid) : 0;
    while (j > 0 && projection <= tgp_grid_point(low, step, j - 1)) j--;
    while (j < n_grid && projection > tgp_grid_point(low, step, j)) j++;
    return j;
}

static inline void tgp_add_mass(const double *projection, const double *weights, int64_t n, double low,
                         double step, int64_t n_grid, double *mass)
{
    if (weights)
        for (int64_t i = 0; i < n; i++)
            mass[tgp_grid_index(projection[i], low, step, n_grid)] += weights[i];
    else
        for (int64_t i = 0; i < n; i++)
            mass[tgp_grid_index(projection[i], low, step, n_grid)] += 1.0;
}

#endif
