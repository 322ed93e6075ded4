"""The kernels in plain NumPy: the statement of what the compiled twins compute.

Names, arguments and results are those of ``_numba.py`` and ``_cython.pyx``. Signatures read
in -> out -> scratch -> n_threads; output and scratch buffers belong to the caller, outputs are
added to unless said otherwise, and only the upper triangle of a Gram matrix is defined. Every
kernel does its Gram matrices in the dtype of the feature blocks, float64 or float32, and adds to
float64.

Two shapes of the same sums. With many features the Gram matrix is cut into tiles that threads
share (``feature_block``, then ``rank_k``). With few it is cheaper to cut the rows into lanes
(``lane_rank_k``): lane l owns rows ``l * rows`` to ``(l + 1) * rows`` of x and slice l of every
output, and a block of its features goes from cache straight into BLAS. Tiles and lanes are fixed by
the caller, never by the thread count; that makes results repeat bit by bit.

This module runs on one thread and ignores scratch.
"""

import numpy as np
from scipy.linalg import solve_triangular

from . import WINDOW_NODES

NAME = "numpy"


def max_threads():
    """Threads this backend can use: one; BLAS is held to one thread around it."""
    return 1


def feature_block(
    x, root_weights, origin, frequencies, phases, amplitude,
    dphi, phi, sum_phi, sum_dphi, sum_dphi_x, n_threads,
):
    """Random Fourier features of a block of n rows, and their small sums.

    With a_si = frequencies_s . (x_i - origin) + phases_s and r = root_weights (1 where empty)::

        dphi[s, i]     = -amplitude sin(a_si) r_i           i < n; phi' of the paper, times r
        phi[s, i]      =  amplitude cos(a_si) r_i           i < n; skipped where phi is empty
        sum_phi[s]    +=  amplitude sum_i cos(a_si) r_i^2
        sum_dphi[s]   += -amplitude sum_i sin(a_si) r_i^2
        sum_dphi_x[s] += -amplitude sum_i sin(a_si) r_i^2 (x_i - origin)

    Angles are reduced in float64 whatever the dtype of dphi, and all sums are float64.

    x : (n, d) float64; root_weights : (n,) or (0,) float64; origin : (d,) float64
    frequencies : (S, d) float64, z / gamma; phases : (S,) float64; amplitude : sqrt(2 / S)
    dphi : (S, >= n) float64 or float32; phi : the same, or (0, 0)
    sum_phi, sum_dphi : (S,) float64; sum_dphi_x : (S, d) float64, or (0, d) to skip it
    Compiled kernels of angles multiply only the columns that a frequency involves, if at most three
    """
    n = len(x)
    centered = x - origin
    angle = frequencies @ centered.T + phases[:, None]
    sine = np.sin(angle).astype(dphi.dtype) * dphi.dtype.type(-amplitude)
    cosine = np.cos(angle).astype(dphi.dtype) * dphi.dtype.type(amplitude)
    root = root_weights if len(root_weights) else np.ones(1)
    dphi[:, :n] = sine * root.astype(dphi.dtype)
    if phi.size:
        phi[:, :n] = cosine * root.astype(dphi.dtype)
    weighted = dphi[:, :n] * root
    sum_phi += (cosine * (root * root)).sum(axis=1)
    sum_dphi += weighted.sum(axis=1)
    if sum_dphi_x.size:
        sum_dphi_x += weighted @ centered


def rank_k(block, n, gram, scratch, n_threads):
    """``gram += block[:, :n] block[:, :n]^T``.

    block : (S, >= n) float64 or float32; gram : (S, S) float64
    scratch : (n_threads, 2, tile, tile) of the block's dtype; tile is the side of the tiles
    """
    gram += block[:, :n] @ block[:, :n].T


def lane_rank_k(
    x, root_weights, origin, frequencies, phases, amplitude, rows,
    sum_phi, sum_dphi, sum_dphi_x, gram, gram_phi, blocks, scratch, n_threads,
):
    """``feature_block`` and ``rank_k`` of every lane: Phi' to gram, and Phi to gram_phi.

    As in feature_block, with outputs per lane: sum_phi, sum_dphi : (lanes, S);
    sum_dphi_x : (lanes, S, d); gram : (lanes, S, S); gram_phi : the same, or (0, 0, 0)
    blocks : (n_threads, 2, S, row_tile), whose dtype is that of the products
    scratch : (n_threads, 2, S, S) of that dtype
    """
    for lane, start in enumerate(range(0, len(x), rows)):
        take = slice(start, start + rows)
        dphi = np.empty((len(frequencies), len(x[take])), blocks.dtype)
        phi = np.empty_like(dphi)
        feature_block(
            x[take], root_weights[take], origin, frequencies, phases, amplitude,
            dphi, phi, sum_phi[lane], sum_dphi[lane], sum_dphi_x[lane], n_threads,
        )
        gram[lane] += dphi @ dphi.T
        if gram_phi.size:
            gram_phi[lane] += phi @ phi.T


def tilt(x, origin, frequencies, phases, coefficients, value, n_threads):
    """A sum of cosines at every row, written over value (a_si as in feature_block)::

        value[i] = sum_s coefficients_s cos(a_si)

    x : (n, d); origin : (d,); frequencies : (S, d); phases, coefficients : (S,); value : (n,);
    all float64
    """
    for part in _parts(len(x)):
        angle = (x[part] - origin) @ frequencies.T + phases
        np.matmul(np.cos(angle), coefficients, out=value[part])


def _parts(n):
    """Slices of some rows: arrays of rows by features stay small."""
    return [slice(start, start + 2048) for start in range(0, n, 2048)]


def tilt_gradient(x, origin, frequencies, phases, coefficients, value, gradient, n_threads):
    """As ``tilt``, with its gradient, written over gradient (n, d)::

        gradient[i] = -sum_s coefficients_s sin(a_si) frequencies_s
    """
    for part in _parts(len(x)):
        angle = (x[part] - origin) @ frequencies.T + phases
        np.matmul(np.cos(angle), coefficients, out=value[part])
        np.matmul(np.sin(angle) * -coefficients, frequencies, out=gradient[part])


def quadratic_tilt(
    x, origin, frequencies, phases, amplitude, factor, linear, value, blocks, n_threads
):
    """The exponent of the Fisher variational predictive distribution, written over value::

        value[i] = |factor^-1 phi_i|^2 / 2 + linear . phi_i,   phi_is = amplitude cos(a_si)

    x, origin, frequencies, phases, value : as in ``tilt``
    factor : (S, S) lower triangular, C-ordered; what stands above its diagonal is not read
    linear : (S,); blocks : (n_threads, S, row_tile) scratch; all float64
    """
    for part in _parts(len(x)):
        phi = amplitude * np.cos((x[part] - origin) @ frequencies.T + phases).T
        half = solve_triangular(factor, phi, lower=True, check_finite=False)
        value[part] = 0.5 * np.einsum("si,si->i", half, half) + linear @ phi


def log_kernel_sums(y, x, weights, value, n_threads):
    """Gaussian kernels of unit width around the rows of x, summed at every row of y in log space::

        value[i] = log sum_j weights_j exp(-|y_i - x_j|^2 / 2)

    y : (m, d); x : (n, d), at least one row; weights : (n,) above zero, or (0,) for ones;
    value : (m,); all float64. Distances whose square overflows give -inf
    """
    for start in range(0, len(y), 256):
        part = slice(start, start + 256)
        square = np.zeros((len(y[part]), len(x)))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # infinite distances
            for k in range(x.shape[1]):
                square += np.square(y[part, k, None] - x[:, k])
            least = square.min(axis=1, keepdims=True)
            gap = np.nan_to_num(least - square, nan=-np.inf, neginf=-np.inf)
            terms = np.exp(0.5 * gap)
            total = terms @ weights if len(weights) else terms.sum(axis=1)
            value[part] = np.log(total) - 0.5 * least[:, 0]


def marginal_mass(x, weights, directions, low, step, mass, squares, excess, n_threads):
    """Weight of the rows between neighboring grid points, along every direction.

    The grid of direction v is ``low[v] + j * step[v]``, j = 0 .. G - 1. A row whose projection
    p = x . directions[v] is first reached at grid point j = ceil((p - low) / step), p <= grid[j],
    adds its weight to mass[v, j]; rows beyond the last grid point add to mass[v, G]. The running
    sum of mass[v, :G] is the weighted marginal CDF at the grid, times the total weight. The squares
    of the weights are added to ``squares`` likewise, unless it is empty. What a row lies below the
    first grid point, times its weight, is added to excess[v, 0], and what it lies above the last
    one to excess[v, 1]: the integrals of the CDF below, and of 1 - CDF above.

    x : (n, d); weights : (n,) or (0,) for ones; directions : (V, d); low, step : (V,), step > 0;
    mass : (V, G + 1), G < 2^31; squares : like mass, or (0, G + 1), as it must be without weights;
    excess : (V, 2); all float64
    """
    n_grid = mass.shape[1] - 1
    w = weights if len(weights) else np.ones(len(x))
    for v, direction in enumerate(directions):
        projection = x @ direction
        with np.errstate(over="ignore"):
            place = np.ceil((projection - low[v]) / step[v])
        index = np.fmin(np.fmax(place, 0.0), n_grid).astype(np.int64)  # what is no number goes to 0
        mass[v] += np.bincount(index, w, n_grid + 1)
        if len(squares):
            squares[v] += np.bincount(index, w * w, n_grid + 1)
        high = low[v] + (n_grid - 1) * step[v]
        excess[v, 0] += w @ np.maximum(low[v] - projection, 0.0)
        excess[v, 1] += w @ np.maximum(projection - high, 0.0)


STEP_LIMIT = 300.0  # exponent beyond which the smooth step counts as 0 or 1 (e^-300)
END_SLACK = 1e-9  # steps beyond an end that still count as the end: a row at a wall may be rounded


def interpolate_lattice(
    x, axes, pieces, coefficients, stretch, value, gradient, laplacian, n_threads
):
    """A function by its coefficients on a regular grid, times a taper, written over the outputs.

    With s_k = (x_k - low_k) / step_k, modulo nodes_k where the axis is periodic::

        g(x) = sum_j coefficients[j] prod_k window(j_k + first_k - s_k)
        f(x) = g(x) prod_k rise((x_k - low_k) / low_margin_k) rise((high_k - x_k) / high_margin_k)
        value = f,  gradient[k] = df/dx_k,  laplacian = sum_k stretch_k^2 d^2f/dx_k^2

    where high = low + step nodes. rise(t) is 0 up to t = 0, 1 from t = 1 on, and
    1 / (1 + exp(1 / t - 1 / (1 - t))) between; 1 where the margin is 0. On an axis that is not
    periodic, f is 0 outside [low_k, high_k]. Rows with an entry that is not finite give 0.

    x : (n, d), d <= 3
    axes : (d, 7), for each axis: low, step, nodes, first, low_margin, high_margin, and 1 if it is
        periodic, else 0
    pieces : (10, 8), window(l - 4 + z) = sum_q pieces[q, l] z^q for 0 <= z < 1
    coefficients : 3-D. The last d axes hold nodes_k + 8 entries each, of nodes -4 ... nodes_k + 3;
        axes before them have one entry
    stretch : (d,), read for the laplacian only
    value : (n,); gradient : (n, d), or (0, d) to leave it out; laplacian : (n,), or (0,), and then
        a gradient is needed too; all float64
    """
    d, flat = x.shape[1], coefficients.ravel()
    strides = [stride // flat.itemsize for stride in coefficients.strides][3 - d :]
    order = 2 if len(laplacian) else 1 if len(gradient) else 0
    for part in _parts(len(x)):
        rows, index = x[part], 0
        inside, windows, tapers = np.ones(len(rows), bool), [], []
        for k in range(d):
            first, z, is_inside = _window_place(rows[:, k], axes[k])
            inside &= is_inside
            windows.append(_window_values(pieces, z, axes[k, 1], order))
            tapers.append(_axis_taper(np.where(is_inside, rows[:, k], axes[k, 0]), axes[k]))
            place = (first[:, None] + np.arange(WINDOW_NODES)) * strides[k]
            index = np.expand_dims(index, -1) + place.reshape(len(rows), *[1] * k, WINDOW_NODES)
        nodes = flat[index]
        constant = _contract(nodes, windows, [0] * d)
        value[part] = np.where(inside, constant * _product_rule(tapers, [0] * d), 0.0)
        bends = np.zeros(len(rows))
        for k in range(d if order else 0):
            once, twice = [[power if j == k else 0 for j in range(d)] for power in (1, 2)]
            slope = _contract(nodes, windows, once)
            taper, rise = _product_rule(tapers, [0] * d), _product_rule(tapers, once)
            gradient[part, k] = np.where(inside, slope * taper + constant * rise, 0.0)
            if order == 2:
                bend = _contract(nodes, windows, twice) * taper + 2.0 * slope * rise
                bends += stretch[k] ** 2 * (bend + constant * _product_rule(tapers, twice))
        if order == 2:
            laplacian[part] = np.where(inside, bends, 0.0)


def _window_place(x, axis):
    """(index of the first coefficient that counts, z, whether x lies in the box).

    Divisions, so that no compiler fuses them with what follows: all backends get the same bits.
    """
    low, step, nodes, first, _, _, periodic = axis
    with np.errstate(over="ignore", invalid="ignore"):
        s = (x - low) / step
        if periodic:
            s = s - nodes * np.floor(s / nodes)
    inside = (s >= -END_SLACK) & (s <= nodes + END_SLACK)
    u = np.clip(np.where(inside, s, 0.0), 0.0, nodes) - first - WINDOW_NODES // 2
    start = np.ceil(u)
    return start.astype(np.int64) + WINDOW_NODES // 2, start - u, inside


def _window_values(pieces, z, step, order):
    """The window at its nodes, (n, 8), and as many derivatives in x as ``order`` says."""
    values = []
    for power in range(order + 1):
        total = np.zeros((len(z), WINDOW_NODES))
        for q in range(len(pieces) - 1, power - 1, -1):
            total = total * z[:, None] + np.prod(np.arange(q - power + 1.0, q + 1.0)) * pieces[q]
        values.append(total * (-1.0 / step) ** power)
    return values


def _contract(nodes, windows, powers):
    """Sum over the nodes of every row, with the windows' derivatives of these orders."""
    for window, power in zip(windows[::-1], powers[::-1], strict=True):
        nodes = np.einsum("n...l,nl->n...", nodes, window[power])
    return nodes


def _product_rule(tapers, powers):
    return np.prod([taper[power] for taper, power in zip(tapers, powers, strict=True)], axis=0)


def _axis_taper(x, axis):
    """The taper of an axis at every x, with its first and second derivative."""
    low, step, nodes, _, low_margin, high_margin, _ = axis
    a, da, dda = _rise(x - low, low_margin)
    b, db, ddb = _rise(step * nodes - (x - low), high_margin)
    return a * b, da * b - a * db, dda * b - 2.0 * da * db + a * ddb


def _rise(x, margin):
    """rise(x / margin) of ``interpolate_lattice`` with its first two derivatives in x."""
    if margin == 0.0:
        return np.ones(len(x)), np.zeros(len(x)), np.zeros(len(x))
    t = x / margin
    between = (t > 0.0) & (t < 1.0)
    r = np.where(between, t, 0.5)
    exponent = 1.0 / r - 1.0 / (1.0 - r)
    between &= np.abs(exponent) < STEP_LIMIT
    q = np.exp(np.where(between, exponent, 0.0))
    fall = 1.0 / (r * r) + 1.0 / ((1.0 - r) * (1.0 - r))  # minus the exponent's derivative
    bend = 2.0 / ((1.0 - r) * (1.0 - r) * (1.0 - r)) - 2.0 / (r * r * r)
    share = q / ((1.0 + q) * (1.0 + q))
    second = share * ((q - 1.0) / (1.0 + q) * fall * fall + bend)
    return (
        np.where(between, 1.0 / (1.0 + q), np.where(t > 0.5, 1.0, 0.0)),
        np.where(between, share * fall / margin, 0.0),
        np.where(between, second / (margin * margin), 0.0),
    )


def mixture_sums(x, share, bounds, coefficients, value, labels, sums, blocks, n_threads):
    """Gaussian mixtures at the rows of every lane, and the sums from which EM learns them.

    Lane l has rows bounds[l] to bounds[l + 1], and the mixtures coefficients[l], or coefficients[0]
    where only one is given. There are G mixtures of K / G components each, one after the other; g
    is the mixture of k. log weight_k N_k(x) is linear in the monomials m(x) of degree 0 to 2::

        t_ki        = coefficients[l, k] . m(x_i)
        value[g, i] = log sum of exp(t_ki) over the k of mixture g  written over
        labels[i]   = the first k with the largest t_ki            written over
        sums[l, k] += share_i exp(t_ki - value_gi) m(x_i)

    x : (n, d); share : (n,), weights of the rows; bounds : (lanes + 1,) int64, not decreasing
    coefficients : (lanes or 1, K, P). m(x) is 1 and x for P = 1 + d, then the squares as well for
        P = 1 + 2 d, or all products x_j x_k, j <= k, row by row, for P = 1 + d + d (d + 1) / 2
    value : (G, n), K a multiple of G; labels : (n,) int64, or (0,) to skip them
    sums : (lanes, K, P), or (0, 0, 0) to skip them
    blocks : (n_threads, P + K, row_tile) scratch; x, t and the sums must be finite
    """
    for lane in range(len(bounds) - 1):
        chosen = coefficients[lane % len(coefficients)]
        for start in range(bounds[lane], bounds[lane + 1], 2048):
            part = slice(start, min(start + 2048, bounds[lane + 1]))
            design = _monomials(x[part], chosen.shape[1])
            terms = chosen @ design.T
            each = terms.reshape(len(value), -1, terms.shape[1])
            for of_mixture, found in zip(each, value, strict=True):
                found[part] = _log_sum(of_mixture)
            if len(labels):
                labels[part] = terms.argmax(axis=0)
            if len(sums):
                shares = np.exp(each - value[:, None, part]) * share[part]
                sums[lane] += shares.reshape(terms.shape) @ design


def _monomials(x, count):
    """(n, count): 1, the columns, and what products of two ``mixture_sums`` says."""
    d = x.shape[1]
    left, right = np.triu_indices(d) if count > 1 + 2 * d else (np.arange(d), np.arange(d))
    products = x[:, left] * x[:, right] if count > 1 + d else x[:, :0]
    return np.concatenate([np.ones((len(x), 1)), x, products], axis=1)


def _log_sum(terms):
    """log sum_k exp(terms[k]); -inf where every term is -inf."""
    top = terms.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - top).sum(axis=0)) + top


def mixture_density(x, origin, whitener, shift, constant, value, score, blocks, n_threads):
    """Log density of a Gaussian mixture at every row, and its gradient, both written over::

        z_ki     = whitener_k (x_i - origin) - shift_k
        t_ki     = constant_k - |z_ki|^2 / 2
        value[i] = log sum_k exp(t_ki)
        score[i] = -sum_k exp(t_ki - value_i) whitener_k^T z_ki

    Rows so far away that every square overflows have the value -inf and the score 0.

    x : (n, d); origin : (d,); whitener : (K, d, d), inverse Cholesky factors of the covariances;
    what stands above their diagonals is not read; shift : (K, d); constant : (K,); value : (n,)
    score : (n, d), or (0, d) to skip it; blocks : (n_threads, K, row_tile) scratch; all float64
    """
    lower = np.tril(whitener)
    for part in _parts(len(x)):
        with np.errstate(over="ignore", invalid="ignore"):
            z = lower @ (x[part] - origin).T - shift[:, :, None]
            terms = constant[:, None] - 0.5 * np.square(z).sum(axis=1)
        terms[np.isnan(terms)] = -np.inf
        value[part] = _log_sum(terms)
        if len(score):
            shares = np.exp(terms - np.where(np.isneginf(value[part]), 0.0, value[part]))[:, None]
            # a share of 0 counts as 0, however far its component is
            slopes = np.multiply(z, shares, out=np.zeros_like(z), where=shares > 0.0)
            score[part] = -np.einsum("kji,kjn->ni", lower, slopes)
