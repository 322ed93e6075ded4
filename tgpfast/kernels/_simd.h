/* The inner loops of _cython.pyx: plain C that the compiler vectorizes, once per instruction set.
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


/* Sine and cosine of one angle, |angle| <= TGP_ANGLE_LIMIT; without branches, so that loops vectorize.
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

/* out[r d + k] += sum_i v[r TGP_ROW_TILE + i] xt[k TGP_ROW_TILE + i], r < rows: four rows of v by two
 * coordinates at a time, eight products for six loads */
TGP_INLINE void tgp_add_products(const double *TGP_RESTRICT v, int64_t rows,
                                 const double *TGP_RESTRICT xt, int64_t d, int64_t n,
                                 double *TGP_RESTRICT out)
{
    for (int64_t r = 0; r < rows; r += 4) { /* short of four rows, the last is done again, unused */
        const double *p = v + r * TGP_ROW_TILE, *q = r + 1 < rows ? p + TGP_ROW_TILE : p;
        const double *s = r + 2 < rows ? q + TGP_ROW_TILE : q;
        const double *t = r + 3 < rows ? s + TGP_ROW_TILE : s;
        for (int64_t k = 0; k < d; k += 2) {
            const double *a = xt + k * TGP_ROW_TILE, *b = k + 1 < d ? a + TGP_ROW_TILE : a;
            double pa = 0, qa = 0, sa = 0, ta = 0, pb = 0, qb = 0, sb = 0, tb = 0;
#pragma omp simd reduction(+ : pa, qa, sa, ta, pb, qb, sb, tb)
            for (int64_t i = 0; i < n; i++) {
                pa += p[i] * a[i];
                qa += q[i] * a[i];
                sa += s[i] * a[i];
                ta += t[i] * a[i];
                pb += p[i] * b[i];
                qb += q[i] * b[i];
                sb += s[i] * b[i];
                tb += t[i] * b[i];
            }
            double sums[8] = {pa, pb, qa, qb, sa, sb, ta, tb};
            for (int64_t h = 0; h < 4 && r + h < rows; h++)
                for (int64_t c = 0; c < 2 && k + c < d; c++)
                    out[(r + h) * d + k + c] += sums[2 * h + c];
        }
    }
}

/* at[0], at[1], at[2] = places of the entries of f that are not zero; returns their number, or 4 where
 * there are more than three. */
TGP_INLINE int64_t tgp_places(const double *f, int64_t d, int64_t *at)
{
    int64_t count = 0;
    for (int64_t k = 0; k < d; k++)
        if (f[k] != 0.0) {
            if (count == 3) return 4;
            at[count++] = k;
        }
    return count;
}

/* out[i] = phase + f . xt[:, i]; returns how many of them lie beyond TGP_ANGLE_LIMIT. Up to three
 * entries of f that are not zero, or the last three of more, are multiplied in the last loop, which
 * saves a load and a store. */
TGP_INLINE int64_t tgp_angles(const double *TGP_RESTRICT xt, int64_t d, int64_t n, const double *f,
                              double phase, double *TGP_RESTRICT out)
{
    int64_t at[3] = {0, 0, 0}, count = tgp_places(f, d, at), far = 0;
    if (count > 3) {
        for (int64_t j = 0; j < 3; j++) at[j] = d - 3 + j;
        tgp_linear(xt, TGP_ROW_TILE, d - 3, n, f, phase, out);
    } else
        for (int64_t i = 0; i < n; i++) out[i] = phase;
    const double *x = xt + at[0] * TGP_ROW_TILE, *y = xt + at[1] * TGP_ROW_TILE;
    const double *z = xt + at[2] * TGP_ROW_TILE;
    double a = count > 0 ? f[at[0]] : 0.0, b = count > 1 ? f[at[1]] : 0.0;
    double e = count > 2 ? f[at[2]] : 0.0;
    for (int64_t i = 0; i < n; i++) {
        out[i] += a * x[i] + b * y[i] + e * z[i];
        far += !(fabs(out[i]) <= TGP_ANGLE_LIMIT);
    }
    return far;
}

/* Features first..stop of one row tile: to columns start.. of dphi (and of phi, unless NULL), and
 * their sums (sum_dphi_x unless NULL). root is NULL for unit weights. Angles that may reach beyond TGP_ANGLE_LIMIT are left
 * to the C library. */
#define TGP_FEATURE_TILE(REAL)                                                                     \
TGP_INLINE void tgp_feature_tile_##REAL##_body(                                                    \
    const double *xt, int64_t d, int64_t m, const double *root, const double *frequencies,         \
    const double *phases, double amplitude, int64_t first, int64_t stop, int64_t start,            \
    int64_t ld, REAL *dphi, REAL *phi, double *sum_phi, double *sum_dphi, double *sum_dphi_x)      \
{                                                                                                  \
    double partial[TGP_ROW_TILE], weighted[4 * TGP_ROW_TILE];                                      \
    REAL sine[TGP_ROW_TILE], cosine[TGP_ROW_TILE], scale = (REAL)amplitude;                        \
    for (int64_t s = first; s < stop; s++) {                                                       \
        REAL *TGP_RESTRICT to = dphi + s * ld + start;                                             \
        double *TGP_RESTRICT mine = weighted + (s - first) % 4 * TGP_ROW_TILE;                     \
        double total = 0, dtotal = 0;                                                              \
        int64_t far = tgp_angles(xt, d, m, frequencies + s * d, phases[s], partial);               \
        if (far)                                                                                   \
            for (int64_t i = 0; i < m; i++) {                                                      \
                sine[i] = (REAL)sin(partial[i]);                                                   \
                cosine[i] = (REAL)cos(partial[i]);                                                 \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < m; i++) tgp_sincos_##REAL(partial[i], sine + i, cosine + i);   \
        if (root) {                                                                                \
            for (int64_t i = 0; i < m; i++) {                                                      \
                to[i] = -scale * sine[i] * (REAL)root[i];                                          \
                mine[i] = (double)to[i] * root[i];                                                 \
            }                                                                                      \
            TGP_SIMD_SUM                                                                           \
            for (int64_t i = 0; i < m; i++) {                                                      \
                dtotal += mine[i];                                                                 \
                total += (double)(scale * cosine[i]) * (root[i] * root[i]);                        \
            }                                                                                      \
            if (phi)                                                                               \
                for (int64_t i = 0; i < m; i++)                                                    \
                    phi[s * ld + start + i] = scale * cosine[i] * (REAL)root[i];                   \
        } else {                                                                                   \
            TGP_SIMD_SUM                                                                           \
            for (int64_t i = 0; i < m; i++) {                                                      \
                REAL value = -scale * sine[i];                                                     \
                to[i] = value;                                                                     \
                mine[i] = (double)value;                                                           \
                dtotal += (double)value;                                                           \
                total += (double)(scale * cosine[i]);                                              \
            }                                                                                      \
            if (phi)                                                                               \
                for (int64_t i = 0; i < m; i++) phi[s * ld + start + i] = scale * cosine[i];       \
        }                                                                                          \
        sum_phi[s] += total;                                                                       \
        sum_dphi[s] += dtotal;                                                                     \
        if (sum_dphi_x && ((s - first) % 4 == 3 || s == stop - 1)) {                               \
            int64_t rows = (s - first) % 4 + 1;                                                    \
            tgp_add_products(weighted, rows, xt, d, m, sum_dphi_x + (s + 1 - rows) * d);           \
        }                                                                                          \
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

/* into[i] += row[i] */
#define TGP_ADD_ROW(REAL)                                                                          \
TGP_INLINE void tgp_add_row_##REAL##_body(const REAL *TGP_RESTRICT row, int64_t n,                 \
                                          double *TGP_RESTRICT into)                               \
{                                                                                                  \
    for (int64_t i = 0; i < n; i++) into[i] += (double)row[i];                                     \
}                                                                                                  \
TGP_DISPATCH(tgp_add_row_##REAL, (const REAL *row, int64_t n, double *into), (row, n, into))

TGP_ADD_ROW(double)
TGP_ADD_ROW(float)

/* value[i] = sum_s coefficients[s] cos(a_si), i < m, a row tile */
TGP_INLINE void tgp_tilt_tile_body(const double *TGP_RESTRICT xt, int64_t d, int64_t m,
    const double *TGP_RESTRICT frequencies, const double *TGP_RESTRICT phases,
    const double *TGP_RESTRICT coefficients, int64_t n_features, double *TGP_RESTRICT value)
{
    double angle[TGP_ROW_TILE], sine, cosine;
    for (int64_t i = 0; i < m; i++) value[i] = 0.0;
    for (int64_t s = 0; s < n_features; s++) {
        double coefficient = coefficients[s];
        if (tgp_angles(xt, d, m, frequencies + s * d, phases[s], angle))
            for (int64_t i = 0; i < m; i++) value[i] += coefficient * cos(angle[i]);
        else
            for (int64_t i = 0; i < m; i++) {
                tgp_sincos_double(angle[i], &sine, &cosine);
                value[i] += coefficient * cosine;
            }
    }
}
TGP_DISPATCH(tgp_tilt_tile,
    (const double *xt, int64_t d, int64_t m, const double *frequencies, const double *phases,
     const double *coefficients, int64_t n_features, double *value),
    (xt, d, m, frequencies, phases, coefficients, n_features, value))

/* As tgp_tilt_tile, with gt[k TGP_ROW_TILE + i] = -sum_s coefficients[s] sin(a_si) frequencies[s, k] */
TGP_INLINE void tgp_tilt_gradient_tile_body(const double *TGP_RESTRICT xt, int64_t d, int64_t m,
    const double *TGP_RESTRICT frequencies, const double *TGP_RESTRICT phases,
    const double *TGP_RESTRICT coefficients, int64_t n_features, double *TGP_RESTRICT value,
    double *TGP_RESTRICT gt)
{
    double angle[TGP_ROW_TILE], slopes[4 * TGP_ROW_TILE], sine, cosine;
    int64_t at[3];
    for (int64_t i = 0; i < m; i++) value[i] = 0.0;
    for (int64_t i = 0; i < d * TGP_ROW_TILE; i++) gt[i] = 0.0;
    for (int64_t group = 0; group < n_features; group += 4) {
        int64_t count = group + 4 < n_features ? 4 : n_features - group;
        for (int64_t t = 0; t < count; t++) {
            double coefficient = coefficients[group + t];
            double *TGP_RESTRICT slope = slopes + t * TGP_ROW_TILE;
            if (tgp_angles(xt, d, m, frequencies + (group + t) * d, phases[group + t], angle))
                for (int64_t i = 0; i < m; i++) {
                    value[i] += coefficient * cos(angle[i]);
                    slope[i] = -coefficient * sin(angle[i]);
                }
            else
                for (int64_t i = 0; i < m; i++) {
                    tgp_sincos_double(angle[i], &sine, &cosine);
                    value[i] += coefficient * cosine;
                    slope[i] = -coefficient * sine;
                }
        }
        int64_t few = 0; /* products, where frequencies of few columns are taken one by one */
        for (int64_t t = 0; t < count; t++) {
            int64_t columns = tgp_places(frequencies + (group + t) * d, d, at);
            few += columns > 3 ? d : columns;
        }
        if (few < d) {
            for (int64_t t = 0; t < count; t++) {
                const double *f = frequencies + (group + t) * d, *p = slopes + t * TGP_ROW_TILE;
                int64_t columns = tgp_places(f, d, at);
                for (int64_t j = 0; j < columns; j++) {
                    double *TGP_RESTRICT row = gt + at[j] * TGP_ROW_TILE, a = f[at[j]];
                    for (int64_t i = 0; i < m; i++) row[i] += a * p[i];
                }
            }
            continue;
        }
        for (int64_t k = 0; k < d; k++) {
            const double *f = frequencies + group * d + k;
            const double *p = slopes, *q = p + TGP_ROW_TILE, *r = q + TGP_ROW_TILE, *t = r + TGP_ROW_TILE;
            double *TGP_RESTRICT row = gt + k * TGP_ROW_TILE;
            if (count == 4) {
                double a = f[0], b = f[d], c = f[2 * d], e = f[3 * d];
                for (int64_t i = 0; i < m; i++)
                    row[i] += (a * p[i] + b * q[i]) + (c * r[i] + e * t[i]);
            } else
                for (int64_t h = 0; h < count; h++)
                    for (int64_t i = 0; i < m; i++) row[i] += f[h * d] * slopes[h * TGP_ROW_TILE + i];
        }
    }
}
TGP_DISPATCH(tgp_tilt_gradient_tile,
    (const double *xt, int64_t d, int64_t m, const double *frequencies, const double *phases,
     const double *coefficients, int64_t n_features, double *value, double *gt),
    (xt, d, m, frequencies, phases, coefficients, n_features, value, gt))

/* phi[s ld + i] = amplitude cos(a_si), value[i] = sum_s linear[s] phi_si */
TGP_INLINE void tgp_cosine_tile_body(const double *TGP_RESTRICT xt, int64_t d, int64_t m,
    const double *TGP_RESTRICT frequencies, const double *TGP_RESTRICT phases, double amplitude,
    const double *TGP_RESTRICT linear, int64_t n_features, int64_t ld, double *TGP_RESTRICT phi,
    double *TGP_RESTRICT value)
{
    double angle[TGP_ROW_TILE], sine, cosine;
    for (int64_t i = 0; i < m; i++) value[i] = 0.0;
    for (int64_t s = 0; s < n_features; s++) {
        double *TGP_RESTRICT row = phi + s * ld;
        double coefficient = linear[s];
        if (tgp_angles(xt, d, m, frequencies + s * d, phases[s], angle))
            for (int64_t i = 0; i < m; i++) row[i] = amplitude * cos(angle[i]);
        else
            for (int64_t i = 0; i < m; i++) {
                tgp_sincos_double(angle[i], &sine, &cosine);
                row[i] = amplitude * cosine;
            }
        for (int64_t i = 0; i < m; i++) value[i] += coefficient * row[i];
    }
}
TGP_DISPATCH(tgp_cosine_tile,
    (const double *xt, int64_t d, int64_t m, const double *frequencies, const double *phases,
     double amplitude, const double *linear, int64_t n_features, int64_t ld, double *phi,
     double *value),
    (xt, d, m, frequencies, phases, amplitude, linear, n_features, ld, phi, value))

/* value[i] += sum_s block[s ld + i]^2 / 2 */
TGP_INLINE void tgp_half_norms_body(const double *TGP_RESTRICT block, int64_t n_features, int64_t ld,
                                    int64_t m, double *TGP_RESTRICT value)
{
    for (int64_t s = 0; s < n_features; s++) {
        const double *TGP_RESTRICT row = block + s * ld;
        for (int64_t i = 0; i < m; i++) value[i] += 0.5 * row[i] * row[i];
    }
}
TGP_DISPATCH(tgp_half_norms,
    (const double *block, int64_t n_features, int64_t ld, int64_t m, double *value),
    (block, n_features, ld, m, value))

/* Adds the rows of a tile to the kernel sum of one point: total is relative to exp(-least), where
 * least is half the squared distance of the nearest row so far. weights NULL: ones. */
TGP_INLINE void tgp_kernel_tile_body(const double *TGP_RESTRICT xt, int64_t d, int64_t m,
    const double *point, const double *TGP_RESTRICT weights, double *least, double *total)
{
    double half[TGP_ROW_TILE], nearest = INFINITY, sum = 0.0, floor;
    for (int64_t i = 0; i < m; i++) half[i] = 0.5 * (xt[i] - point[0]) * (xt[i] - point[0]);
    for (int64_t k = 1; k < d; k++) {
        const double *TGP_RESTRICT row = xt + k * TGP_ROW_TILE;
        double a = point[k];
        for (int64_t i = 0; i < m; i++) half[i] += 0.5 * (row[i] - a) * (row[i] - a);
    }
#pragma omp simd reduction(min : nearest)
    for (int64_t i = 0; i < m; i++) nearest = half[i] < nearest ? half[i] : nearest;
    if (nearest < *least) {
        *total *= tgp_exp(nearest - *least);
        *least = nearest;
    }
    floor = *least;
    if (weights) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < m; i++) sum += weights[i] * tgp_exp(floor - half[i]);
    } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < m; i++) sum += tgp_exp(floor - half[i]);
    }
    *total += sum;
}
TGP_DISPATCH(tgp_kernel_tile,
    (const double *xt, int64_t d, int64_t m, const double *point, const double *weights,
     double *least, double *total),
    (xt, d, m, point, weights, least, total))

/* p[i] = sum_k f[k] xt[k TGP_ROW_TILE + i] and q[i] the same with g, five coordinates at a time, each
 * loaded once for both */
TGP_INLINE void tgp_project_body(const double *TGP_RESTRICT xt, int64_t d, int64_t n, const double *f,
    const double *g, double *TGP_RESTRICT p, double *TGP_RESTRICT q)
{
    int64_t k = d % 5;
    if (k) {
        tgp_linear(xt, TGP_ROW_TILE, k, n, f, 0.0, p);
        tgp_linear(xt, TGP_ROW_TILE, k, n, g, 0.0, q);
    } else
        for (int64_t i = 0; i < n; i++) p[i] = q[i] = 0.0;
    for (; k < d; k += 5) {
        const double *a = xt + k * TGP_ROW_TILE, *b = a + TGP_ROW_TILE, *c = b + TGP_ROW_TILE;
        const double *e = c + TGP_ROW_TILE, *h = e + TGP_ROW_TILE;
        double fa = f[k], fb = f[k + 1], fc = f[k + 2], fe = f[k + 3], fh = f[k + 4];
        double ga = g[k], gb = g[k + 1], gc = g[k + 2], ge = g[k + 3], gh = g[k + 4];
        for (int64_t i = 0; i < n; i++) {
            p[i] += fa * a[i] + fb * b[i] + fc * c[i] + fe * e[i] + fh * h[i];
            q[i] += ga * a[i] + gb * b[i] + gc * c[i] + ge * e[i] + gh * h[i];
        }
    }
}
TGP_DISPATCH(tgp_project,
    (const double *xt, int64_t d, int64_t n, const double *f, const double *g, double *p, double *q),
    (xt, d, n, f, g, p, q))

/* index[i] = the first j with projection[i] <= low + j step, n_grid if there is none; *at_end says
 * whether one lies at either end. What is no number goes to 0: comparisons put it there. */
TGP_INLINE void tgp_grid_indices_body(const double *TGP_RESTRICT projection, int64_t n, double low,
    double step, double n_grid, int32_t *TGP_RESTRICT index, int64_t *at_end)
{
    for (int64_t i = 0; i < n; i++) {
        double t = ceil((projection[i] - low) / step);
        t = t > 0.0 ? t : 0.0;
        index[i] = (int32_t)(t < n_grid ? t : n_grid);
    }
    int32_t last = (int32_t)n_grid, least = last, most = 0;
    for (int64_t i = 0; i < n; i++) {
        least = index[i] < least ? index[i] : least;
        most = index[i] > most ? index[i] : most;
    }
    *at_end = least == 0 || most == last;
}
TGP_DISPATCH(tgp_grid_indices,
    (const double *projection, int64_t n, double low, double step, double n_grid, int32_t *index,
     int64_t *at_end),
    (projection, n, low, step, n_grid, index, at_end))

/* xt[k TGP_ROW_TILE + i] = x[i d + k] - origin[k] */
static inline void tgp_transpose(const double *TGP_RESTRICT x, const double *TGP_RESTRICT origin,
                                 int64_t d, int64_t n, double *TGP_RESTRICT xt)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < d; k++) xt[k * TGP_ROW_TILE + i] = x[i * d + k] - origin[k];
}

/* mass[index[i]] += weights[i], and squares their squares unless it is NULL */
static void tgp_add_weights(const int32_t *TGP_RESTRICT index, const double *TGP_RESTRICT weights,
                            int64_t n, double *TGP_RESTRICT mass, double *TGP_RESTRICT squares)
{
    if (squares)
        for (int64_t i = 0; i < n; i++) {
            int64_t j = index[i];
            double w = weights[i];
            mass[j] += w;
            squares[j] += w * w;
        }
    else
        for (int64_t i = 0; i < n; i++) mass[index[i]] += weights[i];
}

static void tgp_add_counts(const int32_t *index, int64_t n, uint32_t *counts)
{
    for (int64_t i = 0; i < n; i++) counts[index[i]]++;
}

/* mass[j] += counts[j], which are set to zero */
static void tgp_move_counts(uint32_t *counts, int64_t n, double *mass)
{
    for (int64_t j = 0; j < n; j++) {
        mass[j] += counts[j];
        counts[j] = 0;
    }
}

/* Adds what the rows lie below and above the grid, times their weights, to excess[0] and [1]. */
static void tgp_add_excess(const double *projection, const double *weights, int64_t n, double low,
                           double high, double *excess)
{
    for (int64_t i = 0; i < n; i++) {
        double w = weights ? weights[i] : 1.0;
        if (projection[i] < low)
            excess[0] += w * (low - projection[i]);
        else if (projection[i] > high)
            excess[1] += w * (projection[i] - high);
    }
}

/* -- a function on a regular grid at any points ------------------------------------------------- */

#define TGP_WINDOW_NODES 8 /* along each axis; loops over them are one or two vector registers */
#define TGP_WINDOW_DEGREE 9 /* of the polynomials between nodes */
#define TGP_STEP_LIMIT 300.0 /* exponent beyond which the smooth step counts as 0 or 1 */
#define TGP_END_SLACK 1e-9 /* steps beyond an end that still count as the end */

/* w[0..7] = the window at its nodes for one z; the next eight its derivatives in x, and the last
 * eight its second derivatives, if order says so */
TGP_INLINE void tgp_window(const double *TGP_RESTRICT pieces, double z, double step, int order,
                           double *TGP_RESTRICT w)
{
    double a[TGP_WINDOW_NODES], b[TGP_WINDOW_NODES], c[TGP_WINDOW_NODES], r = -1.0 / step;
    for (int l = 0; l < TGP_WINDOW_NODES; l++) {
        a[l] = pieces[TGP_WINDOW_DEGREE * TGP_WINDOW_NODES + l];
        b[l] = c[l] = 0.0;
    }
    for (int q = TGP_WINDOW_DEGREE - 1; q >= 0; q--) {
#pragma omp simd
        for (int l = 0; l < TGP_WINDOW_NODES; l++) {
            if (order > 1) c[l] = c[l] * z + b[l];
            if (order > 0) b[l] = b[l] * z + a[l];
            a[l] = a[l] * z + pieces[q * TGP_WINDOW_NODES + l];
        }
    }
    for (int l = 0; l < TGP_WINDOW_NODES; l++) {
        w[l] = a[l];
        if (order > 0) w[TGP_WINDOW_NODES + l] = r * b[l];
        if (order > 1) w[2 * TGP_WINDOW_NODES + l] = 2.0 * r * r * c[l];
    }
}

/* out[l] = sum over b < 8 of weights[b] rows[b ld + l] */
TGP_INLINE void tgp_weigh_rows(const double *rows, int64_t ld, const double *weights, double *out)
{
    double total[TGP_WINDOW_NODES] = {0.0};
    for (int b = 0; b < TGP_WINDOW_NODES; b++) {
        double weight = weights[b];
#pragma omp simd
        for (int l = 0; l < TGP_WINDOW_NODES; l++) total[l] += weight * rows[b * ld + l];
    }
    for (int l = 0; l < TGP_WINDOW_NODES; l++) out[l] = total[l];
}

/* rise(x / margin) and its derivatives in x; 1 where there is no margin */
static inline void tgp_rise(double x, double margin, double *TGP_RESTRICT out)
{
    double t = margin > 0.0 ? x / margin : 1.0;
    double e = t > 0.0 && t < 1.0 ? 1.0 / t - 1.0 / (1.0 - t) : TGP_STEP_LIMIT;
    out[0] = t > 0.5 ? 1.0 : 0.0;
    out[1] = out[2] = 0.0;
    if (fabs(e) < TGP_STEP_LIMIT) {
        double q = exp(e), s = 1.0 - t, share = q / ((1.0 + q) * (1.0 + q));
        double fall = 1.0 / (t * t) + 1.0 / (s * s), bend = 2.0 / (s * s * s) - 2.0 / (t * t * t);
        out[0] = 1.0 / (1.0 + q);
        out[1] = share * fall / margin;
        out[2] = share * ((q - 1.0) / (1.0 + q) * fall * fall + bend) / (margin * margin);
    }
}

/* The taper of an axis and its derivatives at these distances from its ends */
static inline void tgp_axis_taper(double from_low, double low_margin, double from_high,
                                  double high_margin, double *TGP_RESTRICT out)
{
    double a[3], b[3];
    tgp_rise(from_low, low_margin, a);
    tgp_rise(from_high, high_margin, b);
    out[0] = a[0] * b[0];
    out[1] = a[1] * b[0] - a[0] * b[1];
    out[2] = a[2] * b[0] - 2.0 * a[1] * b[1] + a[0] * b[2];
}

TGP_INLINE double tgp_dot(const double *TGP_RESTRICT a, const double *TGP_RESTRICT b)
{
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (int l = 0; l < TGP_WINDOW_NODES; l++) total += a[l] * b[l];
    return total;
}

/* The function at one point to sums[0], its first derivatives to sums[1..3], second to sums[4..6].
 * Window w[k] belongs to axis k of the coefficients. */
TGP_INLINE void tgp_sum_nodes(const double *first, const int64_t *ld, int d, double (*w)[24],
                              int order, double *sums)
{
    enum { W = TGP_WINDOW_NODES };
    double inner[3][W * W], outer[W], last[W];
    const double *total = d == 1 ? first : d == 2 ? inner[0] : outer;
    if (d > 1)
        for (int a = 0; a < (d > 2 ? W : 1); a++)
            for (int power = 0; power <= order; power++)
                tgp_weigh_rows(first + a * ld[0], ld[1], w[1] + W * power, inner[power] + W * a);
    if (d > 2) tgp_weigh_rows(inner[0], W, w[0], outer);
    sums[0] = tgp_dot(total, w[2]);
    for (int power = 1; power <= order; power++) {
        sums[3 * power] = tgp_dot(total, w[2] + W * power);
        if (d > 2) {
            tgp_weigh_rows(inner[power], W, w[0], last);
            sums[3 * power - 1] = tgp_dot(last, w[2]);
            tgp_weigh_rows(inner[0], W, w[0] + W * power, last);
            sums[3 * power - 2] = tgp_dot(last, w[2]);
        } else if (d > 1)
            sums[3 * power - 1] = tgp_dot(inner[power], w[2]);
    }
}

/* The product rule: sums of the function become those of the function times its taper */
static inline void tgp_apply_taper(double (*t)[3], int d, int order, double *sums)
{
    double taper = 1.0, value = sums[0];
    for (int k = 3 - d; k < 3; k++) taper *= t[k][0];
    sums[0] = taper * value;
    for (int k = 3 - d; k < 3 && order > 0; k++) {
        double others = 1.0, slope = sums[1 + k];
        for (int j = 3 - d; j < 3; j++) others *= j == k ? 1.0 : t[j][0];
        sums[1 + k] = taper * slope + others * t[k][1] * value;
        sums[4 + k] = taper * sums[4 + k] + others * (2.0 * t[k][1] * slope + t[k][2] * value);
    }
}

/* f at one point as in tgp_sum_nodes; zeros outside the box */
TGP_INLINE void tgp_lattice_point(const double *x, int d, const double *axes, const double *pieces,
    const double *coefficients, const int64_t *ld, int order, double *sums)
{
    enum { W = TGP_WINDOW_NODES };
    double w[3][3 * W], t[3][3];
    const double *first = coefficients;
    int tapered = 0;
    for (int k = 3 - d; k < 3; k++) {
        const double *axis = axes + 7 * (k + d - 3);
        double step = axis[1], nodes = axis[2], from_low = x[k + d - 3] - axis[0];
        double s = from_low / step, from_high = step * nodes - from_low;
        if (axis[6] != 0.0) s -= nodes * floor(s / nodes);
        if (!(s >= -TGP_END_SLACK && s <= nodes + TGP_END_SLACK)) return;
        s = s < 0.0 ? 0.0 : s > nodes ? nodes : s;
        double u = s - axis[3] - W / 2, start = ceil(u);
        first += ((int64_t)start + W / 2) * ld[k];
        tgp_window(pieces, start - u, step, order, w[k]);
        t[k][0] = 1.0;
        t[k][1] = t[k][2] = 0.0;
        if ((axis[4] > 0.0 && from_low < axis[4]) || (axis[5] > 0.0 && from_high < axis[5])) {
            tapered = 1;
            tgp_axis_taper(from_low, axis[4], from_high, axis[5], t[k]);
        }
    }
    tgp_sum_nodes(first, ld, d, w, order, sums);
    if (tapered) tgp_apply_taper(t, d, order, sums);
}

TGP_INLINE void tgp_lattice_rows(
    const double *x, int64_t n, int d, const double *axes, const double *pieces,
    const double *coefficients, const int64_t *ld, const double *stretch, int order, double *value,
    double *gradient, double *laplacian)
{
    for (int64_t i = 0; i < n; i++) {
        double sums[7] = {0.0};
        tgp_lattice_point(x + i * d, d, axes, pieces, coefficients, ld, order, sums);
        value[i] = sums[0];
        if (order > 0)
            for (int k = 0; k < d; k++) gradient[i * d + k] = sums[1 + k + 3 - d];
        if (order > 1) {
            double total = 0.0;
            for (int k = 0; k < d; k++) total += stretch[k] * stretch[k] * sums[4 + k + 3 - d];
            laplacian[i] = total;
        }
    }
}

/* Some points; gradient and laplacian may be NULL. Every call names d and the order of derivatives
 * as constants, so that each combination is compiled by itself. ld : distance between neighbors
 * along the three axes of the coefficients */
TGP_INLINE void tgp_lattice_tile_body(
    const double *x, int64_t n, int64_t d, const double *axes, const double *pieces,
    const double *coefficients, const int64_t *ld, const double *stretch, double *value,
    double *gradient, double *laplacian)
{
#define TGP_ROWS(D, ORDER)                                                                         \
    tgp_lattice_rows(x, n, D, axes, pieces, coefficients, ld, stretch, ORDER, value,       \
                     gradient, laplacian)
#define TGP_ORDERS(D) \
    if (laplacian) TGP_ROWS(D, 2); else if (gradient) TGP_ROWS(D, 1); else TGP_ROWS(D, 0)
    if (d == 1) { TGP_ORDERS(1); }
    else if (d == 2) { TGP_ORDERS(2); }
    else { TGP_ORDERS(3); }
#undef TGP_ORDERS
#undef TGP_ROWS
}
TGP_DISPATCH(tgp_lattice_tile,
    (const double *x, int64_t n, int64_t d, const double *axes, const double *pieces,
     const double *coefficients, const int64_t *ld, const double *stretch, double *value,
     double *gradient, double *laplacian),
    (x, n, d, axes, pieces, coefficients, ld, stretch, value, gradient, laplacian))

/* out[p TGP_ROW_TILE + i] = monomial p of row i, i < n: 1, the coordinates, and for count above 1 + d
 * the squares, or all products where there are more than d of them */
TGP_INLINE void tgp_monomials_body(const double *TGP_RESTRICT xt, int64_t d, int64_t n, int64_t count,
                                   double *TGP_RESTRICT out)
{
    double *TGP_RESTRICT row = out + (1 + d) * TGP_ROW_TILE;
    for (int64_t i = 0; i < n; i++) out[i] = 1.0;
    memcpy(out + TGP_ROW_TILE, xt, d * TGP_ROW_TILE * sizeof(double));
    if (count == 1 + d) return;
    for (int64_t j = 0; j < d; j++) {
        int64_t end = count > 1 + 2 * d ? d : j + 1;
        const double *left = xt + j * TGP_ROW_TILE;
        for (int64_t k = j; k < end; k++, row += TGP_ROW_TILE) {
            const double *right = xt + k * TGP_ROW_TILE;
            for (int64_t i = 0; i < n; i++) row[i] = left[i] * right[i];
        }
    }
}
TGP_DISPATCH(tgp_monomials,
    (const double *xt, int64_t d, int64_t n, int64_t count, double *out), (xt, d, n, count, out))

/* labels[i] = the first k with the largest terms[k TGP_ROW_TILE + i] */
static void tgp_find_labels(const double *terms, int64_t n_terms, int64_t n, int64_t *labels)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t best = 0;
        for (int64_t k = 1; k < n_terms; k++)
            if (terms[k * TGP_ROW_TILE + i] > terms[best * TGP_ROW_TILE + i]) best = k;
        labels[i] = best;
    }
}

/* value[i] = log sum_k exp(terms[k TGP_ROW_TILE + i]), which become share[i] exp(term - value[i]);
 * share NULL: ones. Where every term is -inf, or no number, value is -inf and the terms become 0. */
TGP_INLINE void tgp_normalize_terms_body(double *TGP_RESTRICT terms, int64_t n_terms, int64_t n,
                                         const double *TGP_RESTRICT share, double *TGP_RESTRICT value)
{
    double top[TGP_ROW_TILE], total[TGP_ROW_TILE];
    for (int64_t i = 0; i < n; i++) {
        top[i] = terms[i];
        total[i] = 0.0;
    }
    for (int64_t k = 1; k < n_terms; k++) {
        const double *TGP_RESTRICT row = terms + k * TGP_ROW_TILE;
        for (int64_t i = 0; i < n; i++) top[i] = row[i] > top[i] ? row[i] : top[i];
    }
    for (int64_t i = 0; i < n; i++) top[i] = top[i] > -INFINITY ? top[i] : 0.0;
    for (int64_t k = 0; k < n_terms; k++) {
        double *TGP_RESTRICT row = terms + k * TGP_ROW_TILE;
        for (int64_t i = 0; i < n; i++) {
            row[i] = tgp_exp(row[i] - top[i]);
            total[i] += row[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        value[i] = total[i] > 0.0 ? top[i] + log(total[i]) : -INFINITY;
        total[i] = total[i] > 0.0 ? (share ? share[i] : 1.0) / total[i] : 0.0;
    }
    for (int64_t k = 0; k < n_terms; k++) {
        double *TGP_RESTRICT row = terms + k * TGP_ROW_TILE;
        for (int64_t i = 0; i < n; i++) row[i] *= total[i];
    }
}
TGP_DISPATCH(tgp_normalize_terms,
    (double *terms, int64_t n_terms, int64_t n, const double *share, double *value),
    (terms, n_terms, n, share, value))

/* terms[k TGP_ROW_TILE + i] = constant[k] - |whitener_k xt[:, i] - shift_k|^2 / 2 */
TGP_INLINE void tgp_mixture_terms_body(const double *TGP_RESTRICT xt, int64_t d, int64_t n,
    const double *whitener, const double *shift, const double *constant, int64_t n_terms,
    double *TGP_RESTRICT terms)
{
    double z[TGP_ROW_TILE];
    for (int64_t k = 0; k < n_terms; k++) {
        double *TGP_RESTRICT row = terms + k * TGP_ROW_TILE;
        for (int64_t i = 0; i < n; i++) row[i] = constant[k];
        for (int64_t j = 0; j < d; j++) {
            tgp_linear(xt, TGP_ROW_TILE, j + 1, n, whitener + (k * d + j) * d, -shift[k * d + j], z);
            for (int64_t i = 0; i < n; i++) row[i] -= 0.5 * z[i] * z[i];
        }
    }
}
TGP_DISPATCH(tgp_mixture_terms,
    (const double *xt, int64_t d, int64_t n, const double *whitener, const double *shift,
     const double *constant, int64_t n_terms, double *terms),
    (xt, d, n, whitener, shift, constant, n_terms, terms))

/* gt[j TGP_ROW_TILE + i] = -sum_k shares[k, i] (whitener_k^T (whitener_k xt[:, i] - shift_k))_j */
TGP_INLINE void tgp_mixture_slopes_body(const double *TGP_RESTRICT xt, int64_t d, int64_t n,
    const double *whitener, const double *shift, const double *TGP_RESTRICT shares, int64_t n_terms,
    double *TGP_RESTRICT gt)
{
    double z[TGP_ROW_TILE];
    for (int64_t i = 0; i < d * TGP_ROW_TILE; i++) gt[i] = 0.0;
    for (int64_t k = 0; k < n_terms; k++) {
        const double *TGP_RESTRICT row = shares + k * TGP_ROW_TILE;
        for (int64_t j = 0; j < d; j++) {
            const double *factors = whitener + (k * d + j) * d;
            tgp_linear(xt, TGP_ROW_TILE, j + 1, n, factors, -shift[k * d + j], z);
            /* a share of 0 counts as 0, however far its component is */
            for (int64_t i = 0; i < n; i++) z[i] = row[i] > 0.0 ? z[i] * row[i] : 0.0;
            for (int64_t h = 0; h <= j; h++) {
                double *TGP_RESTRICT slope = gt + h * TGP_ROW_TILE;
                double a = factors[h];
                for (int64_t i = 0; i < n; i++) slope[i] -= a * z[i];
            }
        }
    }
}
TGP_DISPATCH(tgp_mixture_slopes,
    (const double *xt, int64_t d, int64_t n, const double *whitener, const double *shift,
     const double *shares, int64_t n_terms, double *gt),
    (xt, d, n, whitener, shift, shares, n_terms, gt))

#endif
