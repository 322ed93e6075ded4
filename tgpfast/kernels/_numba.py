"""The kernels in Numba: parallel, cached on disk. What each computes is stated in ``_numpy.py``.

Everything compiled stands in this one file: Numba's cache does not notice when a callee or a
constant of another module changes.

Parallel loops run over ``n_threads`` slots and each slot walks its tasks in a fixed order. A task's
result does not depend on the slot that took it, so results are bit-identical for any thread count.
"""

import math

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.extending import get_cython_function_address, intrinsic, overload

from ..runtime.warnings import FallbackWarning, warn

NAME = "numba"

ROW_TILE = 256  # rows whose angle, sine and cosine stay in the first-level cache
FEATURE_GROUP = 32  # features of one task of feature_block
DIRECTION_GROUP = 4  # directions of one task of marginal_mass: a tile in cache serves them all
POINT_GROUP = 32  # points of one task of log_kernel_sums: a tile of rows in cache serves them all


# Cody-Waite: pi/2 = P1 + P2 + P3; P1 and P2 have 26 bits, so q P1 and q P2 are exact for q < 2^27.
TWO_OVER_PI = 2.0 / math.pi
PIO2_1 = float.fromhex("0x1.921fb5p+0")
PIO2_2 = float.fromhex("0x1.110b46p-26")
PIO2_3 = float.fromhex("0x1.1a62633145c07p-54")
ROUND = 1.5 * 2.0**52  # adding it rounds to an integer, which then stands in the low bits
ANGLE_LIMIT = 2.0**27  # tiles that may reach beyond take the C library's sine and cosine
LOG2_E = 1.0 / math.log(2.0)
LN2_1 = float.fromhex("0x1.62e42fee00000p-1")  # 33 bits: n LN2_1 is exact for every exponent n
LN2_2 = float.fromhex("0x1.a39ef35793c76p-33")
EXP_LOWEST = -708.0  # below, exp is taken as 0 (it is under 4e-308)


def max_threads():
    """Threads this backend can use: NUMBA_NUM_THREADS, by default the cores of the machine."""
    return numba.config.NUMBA_NUM_THREADS


class _GuardedCache:
    """Numba's cache of one kernel, except that a damaged or unwritable one is not an error.

    Numba lets the unpickling error of a truncated index and the OSError of a full disk through to
    the caller; either only means that this process compiles the kernel again.
    """

    def __init__(self, cache):
        self._cache = cache

    def __getattr__(self, name):
        return getattr(self._cache, name)

    def _ignore(self, what, error):
        warn(
            f"Numba's cache in {self._cache.cache_path!r} could not be {what} "
            f"({type(error).__name__}: {error}); the kernel is compiled again. Delete that folder "
            "to stop this warning",
            FallbackWarning,
        )

    def load_overload(self, sig, target_context):
        try:
            return self._cache.load_overload(sig, target_context)
        except Exception as error:  # whatever pickle makes of damaged bytes
            self._ignore("read", error)
            try:
                self._cache.flush()
            except OSError:
                self._cache.disable()
            return None

    def save_overload(self, sig, data):
        try:
            self._cache.save_overload(sig, data)
        except (OSError, EOFError, ValueError) as error:
            self._ignore("written", error)
            self._cache.disable()


def _inner(function=None, *, reassociate=False, inline=False):
    """A helper compiled into its callers. contract: fused multiply-add where the machine has it;
    nsz: the sign of zero is no matter here; reassoc only where a sum must vectorize. inline: copied
    into the caller before compilation, where a call with its counted references would cost."""
    flags = {"contract", "nsz", "reassoc"} if reassociate else {"contract", "nsz"}
    # without forceinline a call may reach the copy that was compiled with the kernel or the one
    # compiled by itself, which round differently: the first process would give other bits than
    # those that find the kernel in the cache
    options = {"inline": "always"} if inline else {"forceinline": True}
    decorate = numba.njit(nogil=True, error_model="numpy", fastmath=flags, **options)
    return decorate(function) if function else decorate


def _kernel(function):
    """Compile an entry point: parallel, without the GIL, cached on disk where a folder allows."""
    options = {"nogil": True, "error_model": "numpy", "parallel": True}
    options["fastmath"] = {"contract", "nsz"}
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to cache in can be found or written: compile in each process
        return numba.njit(**options)(function)
    dispatcher._cache = _GuardedCache(dispatcher._cache)
    return dispatcher


# -- BLAS, from scipy's Cython interface, at a fixed symbol so that compiled code can be cached --


def _blas(name, real, n_matrices):
    symbol = f"tgpfast_{name}"
    address = get_cython_function_address("scipy.linalg.cython_blas", name)
    llvmlite.binding.add_symbol(symbol, address)
    char, size, number = (types.CPointer(t) for t in (types.uint8, types.int32, real))
    if name == "dtrsm":  # side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb
        args = (char, char, char, char, size, size, number, number, size, number, size)
    elif n_matrices == 2:  # gemm: transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
        args = (char, char, size, size, size, number, number, size, number, size, number)
        args = (*args, number, size)
    else:  # syrk: uplo, trans, n, k, alpha, a, lda, beta, c, ldc
        args = (char, char, size, size, number, number, size, number, number, size)
    return types.ExternalFunction(symbol, types.void(*args))


_dgemm = _blas("dgemm", types.float64, 2)
_sgemm = _blas("sgemm", types.float32, 2)
_dsyrk = _blas("dsyrk", types.float64, 1)
_ssyrk = _blas("ssyrk", types.float32, 1)
_dtrsm = _blas("dtrsm", types.float64, 2)


def _product(a, b, k, beta, c, ldc):
    """c (rows of a, rows of b), row-major with leading dimension ldc, = beta c + a b^T.

    a and b are 2-D with k valid columns. Where a and b start at the same place the product is
    symmetric and only its upper triangle is written.
    """
    raise NotImplementedError


@overload(_product)
def _product_overload(a, b, k, beta, c, ldc):
    gemm, syrk = (_dgemm, _dsyrk) if a.dtype == types.float64 else (_sgemm, _ssyrk)

    def product(a, b, k, beta, c, ldc):
        letter = np.empty(3, np.uint8)
        letter[0], letter[1], letter[2] = ord("T"), ord("N"), ord("L")
        # row-major c is column-major c^T = b a^T: m counts b, n counts a
        size = np.empty(5, np.int32)
        size[0], size[1], size[2] = b.shape[0], a.shape[0], k
        size[3], size[4] = a.strides[0] // a.itemsize, ldc
        scale = np.empty(2, a.dtype)
        scale[0], scale[1] = 1.0, beta
        if a.ctypes.data == b.ctypes.data:
            syrk(
                letter[2:].ctypes, letter.ctypes, size.ctypes, size[2:].ctypes, scale.ctypes,
                a.ctypes, size[3:].ctypes, scale[1:].ctypes, c.ctypes, size[4:].ctypes,
            )
        else:
            gemm(
                letter.ctypes, letter[1:].ctypes, size.ctypes, size[1:].ctypes, size[2:].ctypes,
                scale.ctypes, b.ctypes, size[3:].ctypes, a.ctypes, size[3:].ctypes,
                scale[1:].ctypes, c.ctypes, size[4:].ctypes,
            )

    return product


# -- elementary functions that vectorize ---------------------------------------------------------


@intrinsic
def _as_bits(typingctx, value):
    """The bits of a float as an integer of the same width."""
    bits = types.int64 if value == types.float64 else types.int32

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(bits.bitwidth))

    return bits(value), codegen


@intrinsic
def _as_float(typingctx, bits):
    """The float with these bits."""
    real = types.float64 if bits == types.int64 else types.float32

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(real))

    return real(bits), codegen


@_inner
def _sincos_far(angle, n, sine, cosine):
    """As _sincos, for angles of any size."""
    for i in range(n):
        sine[i] = math.sin(angle[i])
        cosine[i] = math.cos(angle[i])


def _sincos(angle, n, sine, cosine):
    """Sine and cosine of n angles, |angle| <= ANGLE_LIMIT: within 2.3e-16 in float64 and 1.2e-7 in
    float32."""
    raise NotImplementedError


@overload(_sincos)
def _sincos_overload(angle, n, sine, cosine):
    return _sincos64 if sine.dtype == types.float64 else _sincos32


@_inner
def _sincos_one(angle):
    # q = rint(2 angle / pi) also stands in the low bits of ``magic``
    magic = angle * TWO_OVER_PI + ROUND
    bits = _as_bits(magic)
    q = magic - ROUND
    r = ((angle - q * PIO2_1) - q * PIO2_2) - q * PIO2_3
    t = r * r
    u = t * t
    s = r + (r * t) * (
        (-1.66666666666666324348e-01 + t * 8.33333333332248946124e-03)
        + u * ((-1.98412698298579493134e-04 + t * 2.75573137070700676789e-06)
        + u * (-2.50507602534068634195e-08 + t * 1.58969099521155010221e-10))
    )
    c = (1.0 - 0.5 * t) + u * (
        (4.16666666666666019037e-02 + t * -1.38888888888741095749e-03)
        + u * ((2.48015872894767294178e-05 + t * -2.75573143513906633035e-07)
        + u * (2.08757232129817482790e-09 + t * -1.13596475577881948265e-11))
    )
    swap = (bits << 63) < 0  # odd quadrants: sine and cosine change places
    a = c if swap else s
    b = s if swap else c
    # bit 1 of q is the sign of the sine, bit 1 of q + 1 that of the cosine
    sine = _as_float(_as_bits(a) ^ ((bits >> 1) << 63))
    return sine, _as_float(_as_bits(b) ^ (((bits + 1) >> 1) << 63))


def _sincos64(angle, n, sine, cosine):
    for i in range(n):
        sine[i], cosine[i] = _sincos_one(angle[i])


_F = np.float32  # float32 constants must be bound as such, or they promote the arithmetic
_S32 = (_F(-1.6666654611e-1), _F(8.3321608736e-3), _F(-1.9515295891e-4))
_C32 = (_F(4.166664568298827e-2), _F(-1.388731625493765e-3), _F(2.443315711809948e-5))
_ONE32, _HALF32 = _F(1.0), _F(0.5)
_I0, _I1, _I31 = np.int32(0), np.int32(1), np.int32(31)


def _sincos32(angle, n, sine, cosine):
    # reduced in float64; two loops, so that the second has lanes of 32 bits only and twice as many
    for i in range(n):
        magic = angle[i] * TWO_OVER_PI + ROUND
        q = magic - ROUND
        # q PIO2_3 < 6e-9 is beyond float32
        sine[i] = np.float32((angle[i] - q * PIO2_1) - q * PIO2_2)
        cosine[i] = _as_float(np.int32(_as_bits(magic)))
    for i in range(n):
        bits, r = _as_bits(cosine[i]), sine[i]
        t = r * r
        up = r + r * t * (_S32[0] + t * (_S32[1] + t * _S32[2]))
        across = _ONE32 - (_HALF32 * t - t * t * (_C32[0] + t * (_C32[1] + t * _C32[2])))
        swap = np.int32(bits << _I31) < _I0
        s = across if swap else up
        c = up if swap else across
        sine[i] = _as_float(np.int32(_as_bits(s) ^ np.int32((bits >> _I1) << _I31)))
        cosine[i] = _as_float(np.int32(_as_bits(c) ^ np.int32(((bits + _I1) >> _I1) << _I31)))


@_inner
def _exp(x):
    """exp(x) for x <= 0, within 2 units in the last place; 0 below EXP_LOWEST."""
    clipped = max(x, EXP_LOWEST)
    n = np.rint(clipped * LOG2_E)
    r = (clipped - n * LN2_1) - n * LN2_2
    p = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120
        + r * (1.0 / 720 + r * (1.0 / 5040 + r * (1.0 / 40320 + r * (1.0 / 362880
        + r * (1.0 / 3628800 + r * (1.0 / 39916800 + r * (1.0 / 479001600))))))))))))
    # n in the low bits of n + 1.5 2^52, moved up, is the exponent of 2^n: float lanes throughout
    shifted = _as_bits(n + ROUND) << 52
    scaled = _as_float(_as_bits(p) + shifted)
    return scaled if x >= EXP_LOWEST else 0.0


# -- feature blocks ------------------------------------------------------------------------------


@_inner
def _linear(xt, n, coefficients, constant, out):
    """out[i] = constant + sum_k coefficients[k] xt[k, i] for i < n."""
    d = coefficients.shape[0]
    out[:n] = constant
    for k in range(0, d - 2, 3):  # three at a time: out is loaded and stored a third as often
        a, b, c = coefficients[k], coefficients[k + 1], coefficients[k + 2]
        row_a, row_b, row_c = xt[k], xt[k + 1], xt[k + 2]
        for i in range(n):
            out[i] += a * row_a[i] + b * row_b[i] + c * row_c[i]
    for k in range(d - d % 3, d):
        row, a = xt[k], coefficients[k]
        for i in range(n):
            out[i] += a * row[i]


@_inner(reassociate=True)
def _store(sine, cosine, n, amplitude, root, dphi, phi, weighted):
    """Write the features of a tile; return the sums of its weighted phi and phi'.

    ``weighted`` receives the float64 values whose products with x are to be summed. root, dphi and
    phi start at the tile's first row; empty root means ones, empty phi that it is not wanted.
    """
    total, dtotal = 0.0, 0.0
    for i in range(n):
        r = root[i] if root.size else 1.0
        value = -amplitude * sine[i] * sine.dtype.type(r)
        dphi[i] = value
        weighted[i] = value * r
        dtotal += value * r
        total += (amplitude * cosine[i]) * (r * r)
    if phi.size:
        for i in range(n):
            r = root[i] if root.size else 1.0
            phi[i] = amplitude * cosine[i] * sine.dtype.type(r)
    return total, dtotal


@numba.njit(  # so that max vectorizes
    nogil=True, error_model="numpy", fastmath={"nnan", "nsz"}, forceinline=True
)
def _reaches(xt, n, reach):
    """reach[k] = max_i |xt[k, i]|, which bounds the angles of a tile; x is known to be finite."""
    for k in range(xt.shape[0]):
        row, largest = xt[k], 0.0
        for i in range(n):
            largest = max(largest, abs(row[i]))
        reach[k] = largest


@_inner
def _transpose(x, origin, start, n, out):
    """out[k, i] = x[start + i, k] - origin[k] for i < n."""
    for i in range(n):
        row = x[start + i]
        for k in range(row.shape[0]):
            out[k, i] = row[k] - origin[k]


@_inner
def _places(frequencies):
    """How many entries are not zero, or 4 where more than three, and the places of the first."""
    count, first, second, third = 0, 0, 0, 0
    for k in range(frequencies.shape[0]):
        if frequencies[k] != 0.0:
            if count == 0:
                first = k
            elif count == 1:
                second = k
            elif count == 2:
                third = k
            else:
                return 4, first, second, third
            count += 1
    return count, first, second, third


@_inner
def _angles(xt, m, frequencies, phase, reach, angle):
    """The angles of one feature over a row tile; returns whether none can pass ANGLE_LIMIT."""
    count, first, second, third = _places(frequencies)
    if count > 3:
        _linear(xt, m, frequencies, phase, angle)
    else:
        a = frequencies[first] if count > 0 else 0.0
        b = frequencies[second] if count > 1 else 0.0
        c = frequencies[third] if count > 2 else 0.0
        row_a, row_b, row_c = xt[first], xt[second], xt[third]
        for i in range(m):
            angle[i] = phase + (a * row_a[i] + b * row_b[i] + c * row_c[i])
    limit = abs(phase)
    for k in range(reach.shape[0]):
        limit += abs(frequencies[k]) * reach[k]
    return limit <= ANGLE_LIMIT


@_inner
def _sincos_feature(xt, m, frequencies, phase, reach, angle, sine, cosine):
    """Sine and cosine of the angles of one feature over a row tile."""
    if _angles(xt, m, frequencies, phase, reach, angle):
        _sincos(angle, m, sine, cosine)
    else:
        _sincos_far(angle, m, sine, cosine)


@_inner
def _feature_tile(
    xt, m, root, frequencies, phases, amplitude, first, stop, start, dphi, phi, sums, work
):
    """Features first..stop of a row tile, to columns start.. of dphi (and phi), and their sums."""
    sum_phi, sum_dphi, sum_dphi_x = sums
    angle, weighted, sine, cosine, reach = work
    scale, nothing = dphi.dtype.type(amplitude), sine[:0]
    _reaches(xt, m, reach)
    for group in range(first, stop, FEATURE_GROUP):
        last = min(group + FEATURE_GROUP, stop)
        for s in range(group, last):
            _sincos_feature(xt, m, frequencies[s], phases[s], reach, angle, sine, cosine)
            total, dtotal = _store(
                sine, cosine, m, scale, root, dphi[s, start:],
                phi[s, start:] if phi.size else nothing, weighted[s - group],
            )
            sum_phi[s] += total
            sum_dphi[s] += dtotal
        if sum_dphi_x.size:
            _product(weighted[: last - group], xt, m, 1.0, sum_dphi_x[group:last], xt.shape[0])


@_inner
def _work(row_tile, d, dphi):
    """Buffers of one slot for _feature_tile."""
    sine, cosine = np.empty(row_tile, dphi.dtype), np.empty(row_tile, dphi.dtype)
    return np.empty(row_tile), np.empty((FEATURE_GROUP, row_tile)), sine, cosine, np.empty(d)


@_kernel
def feature_block(
    x, root_weights, origin, frequencies, phases, amplitude,
    dphi, phi, sum_phi, sum_dphi, sum_dphi_x, n_threads,
):
    n, d = x.shape
    n_features = frequencies.shape[0]
    groups = (n_features + FEATURE_GROUP - 1) // FEATURE_GROUP
    for slot in prange(n_threads):
        xt, work = np.empty((d, ROW_TILE)), _work(ROW_TILE, d, dphi)
        sums = (sum_phi, sum_dphi, sum_dphi_x)
        for start in range(0, n, ROW_TILE):
            m = min(ROW_TILE, n - start)
            _transpose(x, origin, start, m, xt)
            for group in range(slot, groups, n_threads):
                first = group * FEATURE_GROUP
                _feature_tile(
                    xt, m, root_weights[start : start + m], frequencies, phases, amplitude,
                    first, min(first + FEATURE_GROUP, n_features), start, dphi, phi, sums, work,
                )


# -- rank-k updates ------------------------------------------------------------------------------


@_inner
def _n_tiles(n_features, strip):
    strips = (n_features + strip - 1) // strip
    return strips * (strips + 1) // 2


@_inner
def _assign_tiles(n_features, strip, n_threads):
    """The slot of every tile: each goes to the slot with the least work, full ones (2) first."""
    tiles, strips = _n_tiles(n_features, strip), (n_features + strip - 1) // strip
    slots, load = np.empty(tiles, np.int64), np.zeros(n_threads, np.int64)
    for tile in range(tiles):
        slot = np.argmin(load)
        slots[tile] = slot
        load[slot] += 1 if tile >= tiles - strips else 2
    return slots


@_inner
def _tile(index, n_features, strip):
    """(i0, i1, j0, j1) of a tile of the upper triangle; the full ones come before the diagonal."""
    strips = (n_features + strip - 1) // strip
    i = j = index - strips * (strips - 1) // 2
    if i < 0:
        i, j = 0, index
        while j >= strips - 1 - i:
            j -= strips - 1 - i
            i += 1
        j += i + 1
    return (
        i * n_features // strips, (i + 1) * n_features // strips,
        j * n_features // strips, (j + 1) * n_features // strips,
    )


@_inner
def _add_block(block, is_diagonal, c):
    """c += block, float64; only the upper triangle of one on the diagonal."""
    for p in range(c.shape[0]):
        first = p if is_diagonal else 0
        into, row = c[p, first:], block[p, first:]
        for q in range(into.shape[0]):
            into[q] += row[q]


@_kernel
def rank_k(block, n, gram, scratch, n_threads):
    n_features, strip = block.shape[0], scratch.shape[2]
    slots = _assign_tiles(n_features, strip, n_threads)
    for slot in prange(n_threads):
        product = scratch[slot, 0]
        for tile in np.flatnonzero(slots == slot):
            i0, i1, j0, j1 = _tile(tile, n_features, strip)
            _product(block[i0:i1], block[j0:j1], n, 0.0, product, strip)
            _add_block(product, i0 == j0, gram[i0:i1, j0:j1])


@_kernel
def lane_rank_k(
    x, root_weights, origin, frequencies, phases, amplitude, rows,
    sum_phi, sum_dphi, sum_dphi_x, gram, gram_phi, blocks, scratch, n_threads,
):
    n, d = x.shape
    n_features, row_tile = blocks.shape[2], blocks.shape[3]
    lanes = (n + rows - 1) // rows
    wants_phi = gram_phi.size > 0
    for slot in prange(n_threads):
        dphi, block = blocks[slot, 0], blocks[slot, 1]
        phi = block if wants_phi else block[:0]
        xt, work = np.empty((d, row_tile)), _work(row_tile, d, dphi)
        for lane in range(slot, lanes, n_threads):
            sums = (sum_phi[lane], sum_dphi[lane], sum_dphi_x[lane])
            stop = min((lane + 1) * rows, n)
            for start in range(lane * rows, stop, row_tile):
                m = min(row_tile, stop - start)
                _transpose(x, origin, start, m, xt)
                _feature_tile(
                    xt, m, root_weights[start : start + m], frequencies, phases, amplitude,
                    0, n_features, 0, dphi, phi, sums, work,
                )
                beta = 0.0 if start == lane * rows else 1.0
                _product(dphi, dphi, m, beta, scratch[slot, 0], n_features)
                if wants_phi:
                    _product(phi, phi, m, beta, scratch[slot, 1], n_features)
            _add_block(scratch[slot, 0], True, gram[lane])
            if wants_phi:
                _add_block(scratch[slot, 1], True, gram_phi[lane])


# -- evaluation of a learned tilt ----------------------------------------------------------------


@_kernel
def tilt(x, origin, frequencies, phases, coefficients, value, n_threads):
    n, d = x.shape
    n_features = frequencies.shape[0]
    tiles = (n + ROW_TILE - 1) // ROW_TILE
    for slot in prange(n_threads):
        xt, reach, angle = np.empty((d, ROW_TILE)), np.empty(d), np.empty(ROW_TILE)
        total = np.empty(ROW_TILE)
        for tile in range(slot, tiles, n_threads):
            start = tile * ROW_TILE
            m = min(ROW_TILE, n - start)
            _transpose(x, origin, start, m, xt)
            _reaches(xt, m, reach)
            total[:] = 0.0
            for s in range(n_features):
                coefficient = coefficients[s]
                if _angles(xt, m, frequencies[s], phases[s], reach, angle):
                    for i in range(m):
                        total[i] += coefficient * _sincos_one(angle[i])[1]
                else:
                    for i in range(m):
                        total[i] += coefficient * math.cos(angle[i])
            value[start : start + m] = total[:m]


@_kernel
def tilt_gradient(x, origin, frequencies, phases, coefficients, value, gradient, n_threads):
    n, d = x.shape
    n_features = frequencies.shape[0]
    tiles = (n + ROW_TILE - 1) // ROW_TILE
    for slot in prange(n_threads):
        xt, reach, angle = np.empty((d, ROW_TILE)), np.empty(d), np.empty(ROW_TILE)
        sine, cosine, total = np.empty(ROW_TILE), np.empty(ROW_TILE), np.empty(ROW_TILE)
        gt = np.empty((d, ROW_TILE))
        for tile in range(slot, tiles, n_threads):
            start = tile * ROW_TILE
            m = min(ROW_TILE, n - start)
            _transpose(x, origin, start, m, xt)
            _reaches(xt, m, reach)
            total[:] = 0.0
            gt[:] = 0.0
            for s in range(n_features):
                _sincos_feature(xt, m, frequencies[s], phases[s], reach, angle, sine, cosine)
                coefficient = coefficients[s]
                for i in range(m):
                    total[i] += coefficient * cosine[i]
                for k in range(d):
                    row, slope = gt[k], coefficient * frequencies[s, k]
                    if slope != 0.0:
                        for i in range(m):
                            row[i] -= slope * sine[i]
            value[start : start + m] = total[:m]
            for i in range(m):
                for k in range(d):
                    gradient[start + i, k] = gt[k, i]


@_inner
def _solve_rows(factor, block, n):
    """block[:, :n] = factor^-1 block[:, :n], factor lower triangular.

    Row-major block is column-major block^T, which factor^T, upper there, divides from the right.
    """
    letter = np.empty(4, np.uint8)
    letter[0], letter[1], letter[2], letter[3] = ord("R"), ord("U"), ord("N"), ord("N")
    size = np.empty(4, np.int32)
    size[0], size[1], size[2], size[3] = n, factor.shape[0], factor.shape[1], block.shape[1]
    one = np.ones(1)
    _dtrsm(
        letter.ctypes, letter[1:].ctypes, letter[2:].ctypes, letter[3:].ctypes, size.ctypes,
        size[1:].ctypes, one.ctypes, factor.ctypes, size[2:].ctypes, block.ctypes, size[3:].ctypes,
    )


@_kernel
def quadratic_tilt(
    x, origin, frequencies, phases, amplitude, factor, linear, value, blocks, n_threads
):
    n, d = x.shape
    n_features, row_tile = blocks.shape[1], blocks.shape[2]
    tiles = (n + row_tile - 1) // row_tile
    for slot in prange(n_threads):
        xt, reach, angle = np.empty((d, row_tile)), np.empty(d), np.empty(row_tile)
        sine, total, block = np.empty(row_tile), np.empty(row_tile), blocks[slot]
        for tile in range(slot, tiles, n_threads):
            start = tile * row_tile
            m = min(row_tile, n - start)
            _transpose(x, origin, start, m, xt)
            _reaches(xt, m, reach)
            total[:] = 0.0
            for s in range(n_features):
                row, coefficient = block[s], linear[s]
                _sincos_feature(xt, m, frequencies[s], phases[s], reach, angle, sine, row)
                for i in range(m):
                    row[i] *= amplitude
                    total[i] += coefficient * row[i]
            _solve_rows(factor, block, m)
            for s in range(n_features):
                row = block[s]
                for i in range(m):
                    total[i] += 0.5 * row[i] * row[i]
            value[start : start + m] = total[:m]


# -- kernel density estimate ---------------------------------------------------------------------


@numba.njit(  # so that min vectorizes
    nogil=True, error_model="numpy", fastmath={"nnan", "nsz"}, forceinline=True
)
def _least(values, n):
    least = np.inf
    for i in range(n):
        least = min(least, values[i])
    return least


@_inner
def _half_squares(xt, n, point, out):
    """out[i] = |xt[:, i] - point|^2 / 2."""
    row, a = xt[0], point[0]
    for i in range(n):
        out[i] = 0.5 * (row[i] - a) * (row[i] - a)
    for k in range(1, xt.shape[0]):
        row, a = xt[k], point[k]
        for i in range(n):
            out[i] += 0.5 * (row[i] - a) * (row[i] - a)


@_inner(reassociate=True)
def _exp_sum(values, n, least, weights):
    total = 0.0
    for i in range(n):
        total += (weights[i] if weights.size else 1.0) * _exp(least - values[i])
    return total


@_kernel
def log_kernel_sums(y, x, weights, value, n_threads):
    n, d = x.shape
    tiles, groups = (n + ROW_TILE - 1) // ROW_TILE, (y.shape[0] + POINT_GROUP - 1) // POINT_GROUP
    xt, origin = np.empty((tiles, d, ROW_TILE)), np.zeros(d)
    for tile in prange(tiles):
        _transpose(x, origin, tile * ROW_TILE, min(ROW_TILE, n - tile * ROW_TILE), xt[tile])
    for slot in prange(n_threads):
        half, least, total = np.empty(ROW_TILE), np.empty(POINT_GROUP), np.empty(POINT_GROUP)
        for group in range(slot, groups, n_threads):
            first = group * POINT_GROUP
            count = min(POINT_GROUP, y.shape[0] - first)
            least[:] = np.inf
            total[:] = 0.0
            for tile in range(tiles):
                m = min(ROW_TILE, n - tile * ROW_TILE)
                w = weights[tile * ROW_TILE :]
                for p in range(count):
                    _half_squares(xt[tile], m, y[first + p], half)
                    nearest = _least(half, m)
                    if nearest < least[p]:  # sums so far are relative to the nearest row so far
                        total[p] *= _exp(nearest - least[p])
                        least[p] = nearest
                    total[p] += _exp_sum(half, m, least[p], w)
            for p in range(count):
                value[first + p] = math.log(total[p]) - least[p]


# -- weighted marginal CDFs ----------------------------------------------------------------------


@_inner
def _grid_indices(projection, n, low, step, n_grid, index):
    """index[i] = the first j with projection[i] <= low + j step, n_grid if there is none; returns
    whether one lies at either end. What is no number goes to 0: comparisons put it there."""
    for i in range(n):
        t = np.ceil((projection[i] - low) / step)
        t = t if t > 0.0 else 0.0
        index[i] = np.int32(t if t < n_grid else n_grid)
    least, most = np.int32(n_grid), np.int32(0)
    for i in range(n):
        least, most = min(least, index[i]), max(most, index[i])
    return least == 0 or most == np.int32(n_grid)


@_inner
def _add_excess(projection, n, low, high, weights, excess):
    """Adds what rows lie below and above the grid, times their weights, to excess[0] and [1]."""
    for i in range(n):
        w = weights[i] if weights.size else 1.0
        if projection[i] < low:
            excess[0] += w * (low - projection[i])
        elif projection[i] > high:
            excess[1] += w * (projection[i] - high)


@_inner
def _add_weights(index, n, weights, mass, squares):
    """mass[index[i]] += weights[i], and squares[0] their squares unless squares is empty."""
    for i in range(n):
        j, w = np.uint32(index[i]), weights[i] if weights.size else 1.0
        mass[j] += w
        if squares.size:
            squares[0, j] += w * w


@_kernel
def marginal_mass(x, weights, directions, low, step, mass, squares, excess, n_threads):
    n, d = x.shape
    n_grid, n_directions = mass.shape[1] - 1, directions.shape[0]
    tiles = (n + ROW_TILE - 1) // ROW_TILE
    groups = (n_directions + DIRECTION_GROUP - 1) // DIRECTION_GROUP
    xt, origin = np.empty((tiles, d, ROW_TILE)), np.zeros(d)
    for tile in prange(tiles):
        _transpose(x, origin, tile * ROW_TILE, min(ROW_TILE, n - tile * ROW_TILE), xt[tile])
    for slot in prange(n_threads):
        p, index = np.empty(ROW_TILE), np.empty(ROW_TILE, np.int32)
        for group in range(slot, groups, n_threads):
            first = group * DIRECTION_GROUP
            last = min(first + DIRECTION_GROUP, n_directions)
            for tile in range(tiles):
                m, w = min(ROW_TILE, n - tile * ROW_TILE), weights[tile * ROW_TILE :]
                for v in range(first, last):
                    _linear(xt[tile], m, directions[v], 0.0, p)
                    if _grid_indices(p, m, low[v], step[v], float(n_grid), index):
                        high = low[v] + (n_grid - 1) * step[v]
                        _add_excess(p, m, low[v], high, w, excess[v])
                    _add_weights(index, m, w, mass[v], squares[v : v + 1])


# -- a function on a regular grid at any points ----------------------------------------------------

WINDOW_NODES, WINDOW_DEGREE = 8, 9  # along each axis; of the polynomials between nodes
STEP_LIMIT = 300.0  # exponent beyond which the smooth step counts as 0 or 1
END_SLACK = 1e-9  # steps beyond an end that still count as the end: a row at a wall may be rounded


# Numba leaves loops of 8 turns scalar; these are whole loops in one vector register. They take
# arrays by their addresses: slices would have their references counted.

_VECTOR = ir.VectorType(ir.DoubleType(), WINDOW_NODES)


def _load_lanes(builder, address, kind=_VECTOR):
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=8)


def _store_lanes(builder, vector, address):
    builder.store(vector, builder.inttoptr(address, _VECTOR.as_pointer()), align=8)


def _offset(builder, address, offset):
    return builder.add(address, ir.Constant(ir.IntType(64), offset))


def _spread(builder, number):
    """A vector of equal numbers."""
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, _index(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), WINDOW_NODES), [0] * WINDOW_NODES)
    return builder.shuffle_vector(single, single, mask)


def _index(number):
    return ir.Constant(ir.IntType(32), number)


def _multiply_add(builder, a, b, c):
    product = builder.fmul(a, b, flags=("contract",))
    return builder.fadd(product, c, flags=("contract",))


@intrinsic
def _weigh_rows(typingctx, rows, stride, weights, out):
    """out[l] = sum over b < 8 of weights[b] rows[b, l]; stride : bytes from row to row."""

    def codegen(context, builder, signature, args):
        row, stride, weights, out = args
        total = None
        for b in range(WINDOW_NODES):
            number = _load_lanes(builder, _offset(builder, weights, 8 * b), ir.DoubleType())
            weight, values = _spread(builder, number), _load_lanes(builder, row)
            if total is None:
                total = builder.fmul(weight, values)
            else:
                total = _multiply_add(builder, weight, values, total)
            row = builder.add(row, stride)
        _store_lanes(builder, total, out)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def _dot(typingctx, a, b):
    """Sum over l < 8 of a[l] b[l]."""

    def codegen(context, builder, signature, args):
        product = builder.fmul(_load_lanes(builder, args[0]), _load_lanes(builder, args[1]))
        terms = [builder.extract_element(product, _index(lane)) for lane in range(WINDOW_NODES)]
        while len(terms) > 1:  # in pairs
            half = len(terms) // 2
            terms = [builder.fadd(p, q) for p, q in zip(terms[:half], terms[half:], strict=True)]
        return terms[0]

    return types.float64(types.int64, types.int64), codegen


@intrinsic
def _window_value(typingctx, pieces, z, out):
    """out[l] = sum over q <= WINDOW_DEGREE of pieces[q, l] z^q."""

    def codegen(context, builder, signature, args):
        pieces, z, out = args
        _store_lanes(builder, _horner(builder, pieces, _spread(builder, z), 0)[0], out)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64, types.int64), codegen


@intrinsic
def _window_derivatives(typingctx, pieces, z, rate, out):
    """As _window_value, with the first and second derivatives times rate and rate^2 behind it."""

    def codegen(context, builder, signature, args):
        pieces, z, rate, out = args
        value, slope, half = _horner(builder, pieces, _spread(builder, z), 2)
        factor = _spread(builder, rate)
        slope, half = builder.fmul(slope, factor), builder.fmul(builder.fmul(half, factor), factor)
        for power, vector in enumerate((value, slope, builder.fadd(half, half))):
            _store_lanes(builder, vector, _offset(builder, out, 64 * power))
        return context.get_dummy_value()

    return types.void(types.int64, types.float64, types.float64, types.int64), codegen


def _horner(builder, pieces, z, order):
    """Polynomials at z, their first derivatives and half their second, as many as order says."""
    sums = [_load_lanes(builder, _offset(builder, pieces, 64 * WINDOW_DEGREE))]
    sums += [ir.Constant(_VECTOR, [0.0] * WINDOW_NODES)] * order
    for q in range(WINDOW_DEGREE - 1, -1, -1):
        added = [_load_lanes(builder, _offset(builder, pieces, 64 * q)), *sums[:-1]]
        sums = [_multiply_add(builder, a, z, b) for a, b in zip(sums, added, strict=True)]
    return sums


@_inner
def _rise(x, margin):
    """rise(x / margin) and its derivatives in x; 1 where there is no margin."""
    if margin == 0.0:
        return 1.0, 0.0, 0.0
    t = x / margin
    e = 1.0 / t - 1.0 / (1.0 - t) if 0.0 < t < 1.0 else STEP_LIMIT
    if not abs(e) < STEP_LIMIT:
        return (1.0 if t > 0.5 else 0.0), 0.0, 0.0
    q, s = math.exp(e), 1.0 - t
    share = q / ((1.0 + q) * (1.0 + q))
    fall, bend = 1.0 / (t * t) + 1.0 / (s * s), 2.0 / (s * s * s) - 2.0 / (t * t * t)
    second = share * ((q - 1.0) / (1.0 + q) * fall * fall + bend)
    return 1.0 / (1.0 + q), share * fall / margin, second / (margin * margin)


@_inner
def _axis_taper(from_low, low_margin, from_high, high_margin, out):
    """The taper of an axis and its derivatives at these distances from its ends."""
    a, da, dda = _rise(from_low, low_margin)
    b, db, ddb = _rise(from_high, high_margin)
    out[0] = a * b
    out[1] = da * b - a * db
    out[2] = dda * b - 2.0 * da * db + a * ddb


@_inner
def _place_windows(point, axes, pieces, order, at, w, t):
    """Indices of the first coefficients to at, windows to w, tapers to t; axis k of d is in place
    k + 3 - d of each. Returns -1 outside the box, 1 where the taper counts, else 0."""
    d, tapered = point.shape[0], 0
    table, window = np.int64(pieces.ctypes.data), np.int64(w.ctypes.data)
    for k in range(3 - d, 3):
        axis = axes[k + d - 3]
        low, step, nodes, first = axis[0], axis[1], axis[2], axis[3]
        from_low = point[k + d - 3] - low
        s = from_low / step
        if axis[6] != 0.0:
            s -= nodes * math.floor(s / nodes)
        if not (s >= -END_SLACK and s <= nodes + END_SLACK):
            return -1
        u = min(max(s, 0.0), nodes) - first - WINDOW_NODES // 2
        start = math.ceil(u)
        at[k] = np.int64(start) + WINDOW_NODES // 2
        if order > 0:
            _window_derivatives(table, start - u, -1.0 / step, window + 192 * k)
        else:
            _window_value(table, start - u, window + 192 * k)
        t[k, 0], t[k, 1], t[k, 2] = 1.0, 0.0, 0.0
        from_high = step * nodes - from_low
        if (axis[4] > 0.0 and from_low < axis[4]) or (axis[5] > 0.0 and from_high < axis[5]):
            tapered = 1
            _axis_taper(from_low, axis[4], from_high, axis[5], t[k])
    return tapered


@_inner
def _sum_nodes(first, strides, d, w, order, inner, outer, sums):
    """The function to sums[0], its first derivatives to sums[1:4], second to sums[4:7].

    first : address of the first coefficient; strides : of the coefficients, in bytes
    w : the windows, (3 axes, 3 orders, 8); inner, outer : room for the sums over rows, (3 orders,
        8 planes, 8), and over planes, (2, 8)
    """
    window = np.int64(w.ctypes.data)
    to, then = np.int64(inner.ctypes.data), np.int64(outer.ctypes.data)
    if d == 1:
        for power in range(order + 1):
            sums[3 * power] = _dot(first, window + 64 * (6 + power))
        return
    for a in range(WINDOW_NODES if d == 3 else 1):
        for power in range(order + 1):  # inner[power, a] = sum over rows
            plane = first + a * strides[0]
            _weigh_rows(plane, strides[1], window + 64 * (3 + power), to + 64 * (8 * power + a))
    total = to
    if d == 3:
        total = then
        _weigh_rows(to, 64, window, then)
        for power in range(1, order + 1):
            _weigh_rows(to, 64, window + 64 * power, then + 64)
            sums[3 * power - 2] = _dot(then + 64, window + 64 * 6)
    for power in range(1, order + 1):
        slope = to + 64 * 8 * power
        if d == 3:
            _weigh_rows(slope, 64, window, then + 64)
            slope = then + 64
        sums[3 * power - 1] = _dot(slope, window + 64 * 6)
        sums[3 * power] = _dot(total, window + 64 * (6 + power))
    sums[0] = _dot(total, window + 64 * 6)


@_inner
def _apply_taper(t, d, order, sums):
    """The product rule: sums of the function become those of the function times its taper."""
    taper, value = 1.0, sums[0]
    for k in range(3 - d, 3):
        taper *= t[k, 0]
    sums[0] = taper * value
    if order > 0:
        for k in range(3 - d, 3):
            others, slope = 1.0, sums[1 + k]
            for j in range(3 - d, 3):
                if j != k:
                    others *= t[j, 0]
            sums[1 + k] = taper * slope + others * t[k, 1] * value
            bend = 2.0 * t[k, 1] * slope + t[k, 2] * value
            sums[4 + k] = taper * sums[4 + k] + others * bend


@_kernel
def interpolate_lattice(
    x, axes, pieces, coefficients, stretch, value, gradient, laplacian, n_threads
):
    n, d = x.shape
    order = 2 if laplacian.shape[0] else 1 if gradient.shape[0] else 0
    tiles, strides = (n + ROW_TILE - 1) // ROW_TILE, coefficients.strides
    for slot in prange(n_threads):
        at, w, t = np.zeros(3, np.int64), np.empty((3, 3, WINDOW_NODES)), np.empty((3, 3))
        inner, outer = np.empty((3, WINDOW_NODES, WINDOW_NODES)), np.empty((2, WINDOW_NODES))
        sums, begin = np.zeros(7), np.int64(coefficients.ctypes.data)
        for tile in range(slot, tiles, n_threads):
            for i in range(tile * ROW_TILE, min((tile + 1) * ROW_TILE, n)):
                tapered = _place_windows(x[i], axes, pieces, order, at, w, t)
                if tapered < 0:
                    sums[:] = 0.0
                else:
                    first = begin + at[0] * strides[0] + at[1] * strides[1] + 8 * at[2]
                    _sum_nodes(first, strides, d, w, order, inner, outer, sums)
                    if tapered > 0:
                        _apply_taper(t, d, order, sums)
                value[i] = sums[0]
                if order > 0:
                    for k in range(d):
                        gradient[i, k] = sums[1 + k + 3 - d]
                if order > 1:
                    total = 0.0
                    for k in range(d):
                        total += stretch[k] * stretch[k] * sums[4 + k + 3 - d]
                    laplacian[i] = total


# -- Gaussian mixtures -----------------------------------------------------------------------------


@_inner
def _multiply(a, b, n, c):
    """c[:, :n] = a b[:, :n], all row-major: column-major c^T = b^T a^T, where n counts rows of b^T.

    a : (K, P) contiguous; b : (P, tile); c : (K, tile)
    """
    letter = np.full(1, ord("N"), np.uint8)
    size = np.empty(4, np.int32)
    size[0], size[1], size[2], size[3] = n, a.shape[0], a.shape[1], b.shape[1]
    scale = np.array([1.0, 0.0])
    _dgemm(
        letter.ctypes, letter.ctypes, size.ctypes, size[1:].ctypes, size[2:].ctypes, scale.ctypes,
        b.ctypes, size[3:].ctypes, a.ctypes, size[2:].ctypes, scale[1:].ctypes, c.ctypes,
        size[3:].ctypes,
    )


@_inner
def _monomials(xt, n, out):
    """out[p, i] = monomial p of row i, i < n, in the order that ``mixture_sums`` states."""
    d, at = xt.shape[0], 1 + xt.shape[0]
    out[0, :n] = 1.0
    for j in range(d):
        out[1 + j, :n] = xt[j, :n]
    if out.shape[0] == 1 + d:
        return
    full = out.shape[0] > 1 + 2 * d
    for j in range(d):
        left = xt[j]
        for k in range(j, d if full else j + 1):
            right, row = xt[k], out[at]
            for i in range(n):
                row[i] = left[i] * right[i]
            at += 1


@_inner
def _find_labels(terms, n, labels):
    """labels[i] = the first k with the largest terms[k, i]."""
    for i in range(n):
        best = 0
        for k in range(1, terms.shape[0]):
            if terms[k, i] > terms[best, i]:
                best = k
        labels[i] = best


@_inner
def _normalize_terms(terms, n, share, top, total, value):
    """value[i] = log sum_k exp(terms[k, i]); terms[k, i] = share[i] exp(terms[k, i] - value[i]).

    Where every term is -inf, or no number, value is -inf and the terms become 0.
    """
    row = terms[0]
    for i in range(n):
        top[i] = row[i]
        total[i] = 0.0
    for k in range(1, terms.shape[0]):
        row = terms[k]
        for i in range(n):
            top[i] = row[i] if row[i] > top[i] else top[i]
    for i in range(n):
        top[i] = top[i] if top[i] > -np.inf else 0.0
    for k in range(terms.shape[0]):
        row = terms[k]
        for i in range(n):
            row[i] = _exp(row[i] - top[i])
            total[i] += row[i]
    for i in range(n):
        value[i] = top[i] + math.log(total[i]) if total[i] > 0.0 else -np.inf
        total[i] = share[i] / total[i] if total[i] > 0.0 else 0.0
    for k in range(terms.shape[0]):
        row = terms[k]
        for i in range(n):
            row[i] *= total[i]


@_kernel
def mixture_sums(x, share, bounds, coefficients, value, labels, sums, blocks, n_threads):
    lanes, row_tile, d = bounds.shape[0] - 1, blocks.shape[2], x.shape[1]
    for slot in prange(n_threads):
        count = coefficients.shape[2]
        design, terms, origin = blocks[slot, :count], blocks[slot, count:], np.zeros(d)
        xt, top, total = np.empty((d, row_tile)), np.empty(row_tile), np.empty(row_tile)
        size = coefficients.shape[1] // value.shape[0]
        for lane in range(slot, lanes, n_threads):
            chosen = coefficients[lane % coefficients.shape[0]]
            for start in range(bounds[lane], bounds[lane + 1], row_tile):
                m = min(row_tile, bounds[lane + 1] - start)
                _transpose(x, origin, start, m, xt)
                _monomials(xt, m, design)
                _multiply(chosen, design, m, terms)
                if labels.size:
                    _find_labels(terms, m, labels[start:])
                for g in range(value.shape[0]):
                    of_mixture = terms[g * size : (g + 1) * size]
                    _normalize_terms(of_mixture, m, share[start:], top, total, value[g, start:])
                if sums.size:
                    _product(terms, design, m, 1.0, sums[lane], count)


@_inner
def _mixture_terms(xt, n, whitener, shift, constant, z, terms):
    """terms[k, i] = constant[k] - |whitener_k xt[:, i] - shift_k|^2 / 2."""
    for k in range(constant.shape[0]):
        row, a = terms[k], constant[k]
        for i in range(n):
            row[i] = a
        for j in range(xt.shape[0]):
            _linear(xt, n, whitener[k, j, : j + 1], -shift[k, j], z)
            for i in range(n):
                row[i] -= 0.5 * z[i] * z[i]


@_inner
def _mixture_slopes(xt, n, whitener, shift, shares, z, gt):
    """gt[j, i] = -sum_k shares[k, i] (whitener_k^T (whitener_k xt[:, i] - shift_k))_j."""
    gt[:] = 0.0
    for k in range(shift.shape[0]):
        row = shares[k]
        for j in range(xt.shape[0]):
            _linear(xt, n, whitener[k, j, : j + 1], -shift[k, j], z)
            for i in range(n):  # a share of 0 counts as 0, however far its component is
                z[i] = z[i] * row[i] if row[i] > 0.0 else 0.0
            for h in range(j + 1):
                slope, a = gt[h], whitener[k, j, h]
                for i in range(n):
                    slope[i] -= a * z[i]


@_kernel
def mixture_density(x, origin, whitener, shift, constant, value, score, blocks, n_threads):
    (n, d), row_tile = x.shape, blocks.shape[2]
    tiles = (n + row_tile - 1) // row_tile
    for slot in prange(n_threads):
        terms, share = blocks[slot], np.ones(row_tile)
        xt, gt, z = np.empty((d, row_tile)), np.empty((d, row_tile)), np.empty(row_tile)
        top, total = np.empty(row_tile), np.empty(row_tile)
        for tile in range(slot, tiles, n_threads):
            start = tile * row_tile
            m = min(row_tile, n - start)
            _transpose(x, origin, start, m, xt)
            _mixture_terms(xt, m, whitener, shift, constant, z, terms)
            _normalize_terms(terms, m, share, top, total, value[start:])
            if score.size:
                _mixture_slopes(xt, m, whitener, shift, terms, z, gt)
                for i in range(m):
                    for j in range(d):
                        score[start + i, j] = gt[j, i]
