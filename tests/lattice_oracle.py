"""Lattice estimators by dense linear algebra on a real basis, written from the formulas alone.

A lattice is anything with lengths, origin, n_modes, walls, margin, kernel and bandwidth. The basis
has a cosine and a sine for every pair of waves k, -k, times a cosine for every wall axis.
"""

import itertools
import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve

DEGREES = {"matern12": 1.0, "matern32": 3.0, "matern52": 5.0}


def is_wall(lattice, axis):
    return lattice.walls[axis].startswith("wall")


def waves(x, lattice, k):
    """prod_j of e^{-i 2 pi k_j u_j}, or cos(pi k_j u_j) with walls, of every row; u in units of L.
    """
    u = (x - lattice.origin) / lattice.lengths
    terms = np.ones(len(x), complex)
    for j, number in enumerate(k):
        if is_wall(lattice, j):
            terms *= np.cos(np.pi * number * u[:, j])
        else:
            terms *= np.exp(-2j * np.pi * number * u[:, j])
    return terms


def wave_sum(x, w, lattice, k):
    """Sum over the rows of weights times waves."""
    return np.sum(w * waves(x, lattice, k))


def taper(x, lattice):
    value = np.ones(len(x))
    for j, kind in enumerate(lattice.walls):
        low, high = lattice.origin[j], lattice.origin[j] + lattice.lengths[j]
        ends = []
        if kind in ("open", "wall_above"):
            ends.append((x[:, j] - low) / lattice.margin[j])
        if kind in ("open", "wall_below"):
            ends.append((high - x[:, j]) / lattice.margin[j])
        for t in ends:
            value *= [_step(float(s)) for s in t]
    return value


def _step(t):
    if t <= 0.002:  # exp(-500)
        return 0.0
    if t >= 0.998:
        return 1.0
    rise, fall = math.exp(-1.0 / t), math.exp(-1.0 / (1.0 - t))
    return rise / (rise + fall)


def taper_along(x, lattice, axis):
    """The factor of the taper of one axis, and its first two derivatives: (n,) each."""
    low, high = lattice.origin[axis], lattice.origin[axis] + lattice.lengths[axis]
    value, first, second = np.ones(len(x)), np.zeros(len(x)), np.zeros(len(x))
    ends = {"open": (1, -1), "wall_above": (1,), "wall_below": (-1,)}
    for sign in ends.get(lattice.walls[axis], ()):
        t = sign * (x - (low if sign == 1 else high)) / lattice.margin[axis]
        value[t <= 0.002] = 0.0
        near = np.flatnonzero((t > 0.002) & (t < 0.998))  # of one end: margins do not overlap
        r, s = t[near], 1.0 - t[near]
        z1, z2 = -(r**-2) - s**-2, 2.0 * r**-3 - 2.0 * s**-3  # derivatives of z = 1/r - 1/s
        step = np.array([_step(float(one)) for one in r])
        slope = -step * (1.0 - step)  # of 1 / (1 + e^z) by z
        value[near] = step
        first[near] = sign * slope * z1 / lattice.margin[axis]
        second[near] = slope * (z2 - (1.0 - 2.0 * step) * z1**2) / lattice.margin[axis] ** 2
    return value, first, second


def in_core(x, lattice):
    inside = np.ones(len(x), bool)
    for j, kind in enumerate(lattice.walls):
        if kind in ("open", "wall_above"):
            inside &= x[:, j] >= lattice.origin[j] + lattice.margin[j]
        if kind in ("open", "wall_below"):
            inside &= x[:, j] <= lattice.origin[j] + lattice.lengths[j] - lattice.margin[j]
    return inside


def basis_list(lattice):
    """(k, "cos" or "sin") of every real basis function; waves k and -k are one pair."""
    ranges = [
        range(m + 1) if is_wall(lattice, j) else range(-m, m + 1)
        for j, m in enumerate(lattice.n_modes)
    ]
    waves = [j for j in range(len(ranges)) if not is_wall(lattice, j)]
    found = []
    for k in itertools.product(*ranges):
        signs = [k[j] for j in waves if k[j] != 0]
        if not signs:
            found.append((k, "cos"))
        elif signs[0] > 0:
            found += [(k, "cos"), (k, "sin")]
    return found


def frequencies(lattice):
    """(S, d) of the basis functions."""
    unit = [
        (np.pi if is_wall(lattice, j) else 2 * np.pi) / lattice.lengths[j]
        for j in range(len(lattice.n_modes))
    ]
    return np.array([k for k, _ in basis_list(lattice)]) * np.array(unit)


def kernel_correlation(kernel, distances, bandwidth):
    """Correlation of f at two points, by their distance."""
    r = np.asarray(distances) / bandwidth
    if kernel == "gaussian":
        return np.exp(-0.5 * r * r)
    r = np.sqrt({"matern12": 1, "matern32": 3, "matern52": 5}[kernel]) * r
    polynomial = {"matern12": 1.0, "matern32": 1.0 + r, "matern52": 1.0 + r + r * r / 3.0}[kernel]
    return polynomial * np.exp(-r)


def prior_variances(lattice):
    """Variance of the coefficient of every basis function at lambda = 1."""
    d, nu2 = len(lattice.n_modes), DEGREES.get(lattice.kernel)
    squares = np.square(frequencies(lattice) * lattice.bandwidth).sum(axis=1)
    density = np.exp(-squares / 2) if nu2 is None else (1 + squares / nu2) ** (-(nu2 + d) / 2)
    # a pair of waves, or a cosine between walls, stands for two signs of its k
    signs, total = [], 0.0
    for (k, part), s in zip(basis_list(lattice), density, strict=True):
        walls = sum(1 for j, number in enumerate(k) if number and is_wall(lattice, j))
        is_pair = any(number and not is_wall(lattice, j) for j, number in enumerate(k))
        signs.append(2.0 ** (walls + is_pair))
        if part == "cos":
            total += signs[-1] * s
    return density * np.array(signs) / total


def basis_values(x, lattice):
    """Values of the basis functions, (n, S), without taper."""
    y, w = x - lattice.origin, frequencies(lattice)
    values = np.empty((len(x), len(w)))
    for s, (_, part) in enumerate(basis_list(lattice)):
        waves, walls = _split(lattice)
        angle = y[:, waves] @ w[s, waves]
        values[:, s] = np.cos(angle) if part == "cos" else np.sin(angle)
        for j in walls:
            values[:, s] *= np.cos(w[s, j] * y[:, j])
    return values


def basis(x, lattice):
    """Values (n, S), gradients (n, S, d) and second derivatives (n, S, d) without taper."""
    y, w, values = x - lattice.origin, frequencies(lattice), basis_values(x, lattice)
    curves = -values[:, :, None] * w**2
    slopes = np.empty_like(curves)
    for s, (_, part) in enumerate(basis_list(lattice)):
        waves, walls = _split(lattice)
        angle = y[:, waves] @ w[s, waves]
        wave = np.cos(angle) if part == "cos" else np.sin(angle)
        turned = -np.sin(angle) if part == "cos" else np.cos(angle)
        cosines = {j: np.cos(w[s, j] * y[:, j]) for j in walls}
        for j in waves:
            slopes[:, s, j] = w[s, j] * turned * math.prod(cosines.values())
        for j in walls:
            rest = math.prod(c for i, c in cosines.items() if i != j)
            slopes[:, s, j] = -w[s, j] * np.sin(w[s, j] * y[:, j]) * rest * wave
    return values, slopes, curves


def _split(lattice):
    """(wave axes, wall axes)."""
    axes = range(len(lattice.n_modes))
    waves = [j for j in axes if not is_wall(lattice, j)]
    return waves, [j for j in axes if is_wall(lattice, j)]


def exponent(x, lattice, coefficients):
    return taper(x, lattice) * (basis_values(x, lattice) @ coefficients)


def quadrature(lattice, *n):
    """Nodes (N, d) and weights of the composite Gauss-Legendre rule in the box; n : nodes along
    each axis, multiples of 16."""
    at, weight = np.polynomial.legendre.leggauss(16)
    axes, masses = [], []
    for low, length, nodes in zip(lattice.origin, lattice.lengths, n, strict=True):
        panels = nodes // 16
        h = length / panels
        starts = low + h * np.arange(panels)
        axes.append((starts[:, None] + 0.5 * h * (at + 1)).ravel())
        masses.append(np.tile(0.5 * h * weight, panels))
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    total = np.array([1.0])
    for mass in masses:
        total = np.multiply.outer(total, mass).ravel()
    return nodes, total


def map_objective(x, w, lattice, lam, log_base, nodes, masses):
    """Function coefficients -> (value, gradient, Hessian, log Z) of the log posterior."""
    n, variances = w.sum(), prior_variances(lattice)
    psi = (w * taper(x, lattice)) @ basis_values(x, lattice)
    phi = basis_values(nodes, lattice) * taper(nodes, lattice)[:, None]
    mass = masses * np.exp(log_base(nodes))
    outside = 1.0 - mass.sum()

    def evaluate(c):
        terms = mass * np.exp(phi @ c)
        z = outside + terms.sum()
        p = terms / z
        mean = p @ phi
        value = psi @ c - n * np.log(z) - 0.5 * lam * np.sum(c**2 / variances)
        gradient = psi - n * mean - lam * c / variances
        hessian = -n * ((phi * p[:, None]).T @ phi - np.outer(mean, mean)) - np.diag(
            lam / variances
        )
        return value, gradient, hessian, np.log(z)

    return evaluate


def map_coefficients(x, w, lattice, lam, log_base, nodes, masses, steps=60):
    """(coefficients, log Z) of the maximum of the log posterior."""
    evaluate = map_objective(x, w, lattice, lam, log_base, nodes, masses)
    c = np.zeros(len(basis_list(lattice)))
    root = np.sqrt(prior_variances(lattice) / lam)  # whitened: the Hessian is well scaled
    value, gradient, hessian, log_z = evaluate(c)
    for _ in range(steps):
        scaled = -hessian * np.outer(root, root)
        step = root * np.linalg.solve(scaled, root * gradient)
        size = 1.0
        while evaluate(c + size * step)[0] < value - 1e-9 * abs(value):
            size /= 2
        c = c + size * step
        value, gradient, hessian, log_z = evaluate(c)
        if np.abs(root * gradient).max() < 1e-11 * w.sum():
            break
    return c, log_z


def fisher_parts(x, w, lattice, score):
    """Matrix sum w grad phi grad phi^T and vector sum w (grad phi . s0 + Laplacian phi)."""
    _, slopes, curves = basis(x, lattice)
    return fisher_sums(w, slopes, curves, score(x))


def fisher_sums(w, slopes, curves, score):
    """Matrix and vector of `fisher_parts`, from derivatives of the features at the rows."""
    matrix = sum((slopes[:, :, j] * w[:, None]).T @ slopes[:, :, j] for j in range(score.shape[1]))
    vector = np.einsum("isj,ij->s", slopes, score * w[:, None]) + w @ curves.sum(axis=2)
    return matrix, vector


def solve_whitened(matrix, vector, variances, lam):
    """(matrix + lam / variances)^-1 vector."""
    root = np.sqrt(variances / lam)
    system = matrix * np.outer(root, root) + np.eye(len(root))
    return root * cho_solve(cho_factor(system), root * vector)


def fd_coefficients(x, w, lattice, lam, score):
    """Minimum of the Fisher objective over the rows in the core (Algorithm 2)."""
    inside = in_core(x, lattice)
    matrix, vector = fisher_parts(x[inside], w[inside], lattice, score)
    return solve_whitened(matrix, -vector, prior_variances(lattice), lam)


def ncfd_coefficients(x, w, lattice, lam, mean, covariance, levels, n_hermite=40):
    """Minimum of the noise-conditional objective, noise by Gauss-Hermite quadrature (Eq. noiseobj).

    The exponent of level sigma is f(c + (x - c) gamma / gamma_sigma), c the center of the box.
    """
    inside = in_core(x, lattice)
    x, w = x[inside], w[inside]
    d = x.shape[1]
    center = lattice.origin + 0.5 * lattice.lengths
    at, weight = np.polynomial.hermite_e.hermegauss(n_hermite)
    offsets = np.stack(np.meshgrid(*[at] * d, indexing="ij"), axis=-1).reshape(-1, d)
    shares = np.prod(np.stack(np.meshgrid(*[weight] * d, indexing="ij"), axis=-1), axis=-1).ravel()
    shares /= shares.sum()
    size = len(basis_list(lattice))
    matrix, vector = np.zeros((size, size)), np.zeros(size)
    for sigma in levels:
        ratio = lattice.bandwidth / math.hypot(lattice.bandwidth, sigma)
        precision = np.linalg.inv(covariance + sigma**2 * np.eye(d))
        # every row at every node of the noise
        y = (x + sigma * offsets[:, None]).reshape(-1, d)
        _, slopes, curves = basis(center + ratio * (y - center), lattice)
        one, other = fisher_sums(
            np.outer(shares, w).ravel(), ratio * slopes, ratio**2 * curves, -(y - mean) @ precision
        )
        matrix += one
        vector += other
    return solve_whitened(matrix, -vector, prior_variances(lattice), lam * len(levels))


def fvpd_exponent(y, x, w, lattice, lam, eta, score, log_base, nodes, masses):
    """The exponent of Algorithm 4 at rows y, taper included."""
    inside = in_core(x, lattice)
    matrix, vector = fisher_parts(x[inside], w[inside], lattice, score)
    phi = basis_values(nodes, lattice) * taper(nodes, lattice)[:, None]
    p = masses * np.exp(log_base(nodes))
    mean = p @ phi
    covariance = (phi * p[:, None]).T @ phi - np.outer(mean, mean)
    root = np.sqrt(prior_variances(lattice) / lam)
    big = (covariance + matrix / eta) * np.outer(root, root) + np.eye(len(root))
    small = root * (mean + vector / eta)
    at = basis_values(y, lattice) * root
    solved = np.linalg.solve(big, at.T).T
    quadratic = 0.5 * np.sum(at * solved, axis=1)
    return taper(y, lattice) * (quadratic - solved @ small)
