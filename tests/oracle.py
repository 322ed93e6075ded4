"""The paper in plain NumPy, one small function per equation: the oracle of every test.

Written from the paper, not from ``tgpfast``, and slow on purpose. Equations and algorithms are
cited by their labels in the paper: Eq. phiprime, Algorithm 2, Table 1.

Shapes: x (n, d) data; Z (S, d) frequencies z_s; c (S,) phases; gamma the bandwidth; sigma a noise
level; mu (d,), Sigma (d, d) the Gaussian base; weights (n,) or None for ones; origin (d,) or None
for zero, about which the x-weighted sums are taken. Features are always evaluated at x itself.
Angles and sums are taken in ``np.longdouble``, results are rounded to float64 once.
"""

import math

import numpy as np
import scipy.linalg

_LONG = np.longdouble


def _long(values):
    return np.asarray(values, dtype=_LONG)


def _rounded(values):
    return np.asarray(values, dtype=np.float64)


def _weights(x, weights):
    return np.ones(len(x), dtype=_LONG) if weights is None else _long(weights)


def _centred(x, origin):
    return _long(x) if origin is None else _long(x) - _long(origin)


# -- features -------------------------------------------------------------------------------------


def _angles(x, Z, c, gamma):
    """z_s^T x_i / gamma + c_s, (n, S): the argument of Definition 2 and Eq. phiprime."""
    return _long(x) @ (_long(Z).T / _LONG(gamma)) + _long(c)


def _phi(x, Z, c, gamma):
    return np.sqrt(_LONG(2) / len(Z)) * np.cos(_angles(x, Z, c, gamma))


def _dphi(x, Z, c, gamma):
    return -np.sqrt(_LONG(2) / len(Z)) * np.sin(_angles(x, Z, c, gamma))


def phi(x, Z, c, gamma):
    """phi_s(x_i) = sqrt(2/S) cos(z_s^T x_i / gamma + c_s), (n, S). Definition 2."""
    return _rounded(_phi(x, Z, c, gamma))


def dphi(x, Z, c, gamma):
    """phi'_s(x_i) = -sqrt(2/S) sin(z_s^T x_i / gamma + c_s), (n, S). Eq. phiprime."""
    return _rounded(_dphi(x, Z, c, gamma))


def ddphi(x, Z, c, gamma):
    """phi''_s(x_i) = -sqrt(2/S) cos(z_s^T x_i / gamma + c_s), (n, S). Eq. phiprime."""
    return _rounded(-_phi(x, Z, c, gamma))


def _gamma_sigma(gamma, sigma):
    return np.sqrt(_LONG(gamma) ** 2 + _LONG(sigma) ** 2)


def gamma_sigma(gamma, sigma):
    """gamma_sigma = sqrt(gamma^2 + sigma^2), below Eq. phisig."""
    return float(_gamma_sigma(gamma, sigma))


def phi_sigma(x, Z, c, gamma, sigma):
    """phi_sigma(x_i) = sqrt(2/S) cos(Z x_i / gamma_sigma + c), (n, S). Eq. phisig."""
    return _rounded(_phi(x, Z, c, _gamma_sigma(gamma, sigma)))


def dphi_sigma(x, Z, c, gamma, sigma):
    """phi'_sigma(x_i) = -sqrt(2/S) sin(Z x_i / gamma_sigma + c), (n, S). Eq. phisigprime."""
    return _rounded(_dphi(x, Z, c, _gamma_sigma(gamma, sigma)))


# -- sufficient statistics (design, 1.1) ----------------------------------------------------------


def total_weight(x, weights=None):
    """n = sum_i w_i: N of every algorithm."""
    return float(_weights(x, weights).sum())


def sum_w2(x, weights=None):
    """sum_i w_i^2."""
    return float((_weights(x, weights) ** 2).sum())


def sum_x(x, weights=None, origin=None):
    """sum_i w_i (x_i - origin), (d,)."""
    return _rounded(_weights(x, weights) @ _centred(x, origin))


def sum_xx(x, weights=None, origin=None):
    """sum_i w_i (x_i - origin)(x_i - origin)^T, (d, d)."""
    centred = _centred(x, origin)
    return _rounded((centred.T * _weights(x, weights)) @ centred)


def sum_phi(x, Z, c, gamma, weights=None):
    """psi = sum_i w_i phi(x_i), (S,). Algorithm 2; psi_1 of Algorithm 1."""
    return _rounded(_weights(x, weights) @ _phi(x, Z, c, gamma))


def sum_dphi(x, Z, c, gamma, weights=None):
    """sum_i w_i phi'(x_i), (S,). Eq. mu_update."""
    return _rounded(_weights(x, weights) @ _dphi(x, Z, c, gamma))


def sum_dphi_x(x, Z, c, gamma, weights=None, origin=None):
    """sum_i w_i phi'(x_i) (x_i - origin)^T, (S, d): the part of psi' that needs the data."""
    return _rounded((_dphi(x, Z, c, gamma).T * _weights(x, weights)) @ _centred(x, origin))


def _gram_dphi(x, Z, c, gamma, weights):
    features = _dphi(x, Z, c, gamma)
    return (features.T * _weights(x, weights)) @ features


def _gram_phi(x, Z, c, gamma, weights):
    features = _phi(x, Z, c, gamma)
    return (features.T * _weights(x, weights)) @ features


def gram(x, Z, c, gamma, weights=None):
    """Phi' = sum_i w_i phi'(x_i) phi'(x_i)^T, (S, S). Algorithm 2."""
    return _rounded(_gram_dphi(x, Z, c, gamma, weights))


def gram_phi(x, Z, c, gamma, weights=None):
    """Phi = sum_i w_i phi(x_i) phi(x_i)^T, (S, S). Algorithm 3 at sigma = 0."""
    return _rounded(_gram_phi(x, Z, c, gamma, weights))


def statistics(x, Z, c, gamma, weights=None, origin=None):
    """All the statistics of design 1.1, under the names that ``Statistics`` gives them."""
    return {
        "n": total_weight(x, weights),
        "n_rows": len(x),
        "sum_w2": sum_w2(x, weights),
        "sum_x": sum_x(x, weights, origin),
        "sum_xx": sum_xx(x, weights, origin),
        "sum_phi": sum_phi(x, Z, c, gamma, weights),
        "sum_dphi": sum_dphi(x, Z, c, gamma, weights),
        "sum_dphi_x": sum_dphi_x(x, Z, c, gamma, weights, origin),
        "gram": gram(x, Z, c, gamma, weights),
        "gram_phi": gram_phi(x, Z, c, gamma, weights),
    }


# -- noise conditional statistics (design, 1.2 and 3) ---------------------------------------------


def _delta(Z, gamma, sigma):
    ratio = _LONG(sigma) / _gamma_sigma(gamma, sigma)
    return np.exp(-0.5 * ratio**2 * (_long(Z) ** 2).sum(axis=1))


def _delta_pairs(Z, gamma, sigma, sign):
    ratio, Z = _LONG(sigma) / _gamma_sigma(gamma, sigma), _long(Z)
    square = np.zeros((len(Z), len(Z)), dtype=_LONG)
    for k in range(Z.shape[1]):
        square += (Z[:, k, None] + sign * Z[None, :, k]) ** 2
    return np.exp(-0.5 * ratio**2 * square)


def delta(Z, gamma, sigma):
    """delta_sigma(s) = exp(-(sigma/gamma_sigma)^2 |z_s|^2 / 2), (S,). Eq. del1."""
    return _rounded(_delta(Z, gamma, sigma))


def delta_plus(Z, gamma, sigma):
    """Delta^+(s, t) = exp(-(sigma/gamma_sigma)^2 |z_s + z_t|^2 / 2), (S, S). Eq. del2."""
    return _rounded(_delta_pairs(Z, gamma, sigma, 1))


def delta_minus(Z, gamma, sigma):
    """Delta^-(s, t) = exp(-(sigma/gamma_sigma)^2 |z_s - z_t|^2 / 2), (S, S). Eq. del3."""
    return _rounded(_delta_pairs(Z, gamma, sigma, -1))


def noise_gram(x, Z, c, gamma, noise_levels, weights=None):
    """A of Algorithm 3, (S, S): summed over the levels, without ZZ^T::

    sum_sigma [(Delta^- + Delta^+) * Phi'_sigma + (Delta^- - Delta^+) * Phi_sigma]
              / (2 gamma_sigma^2)
    """
    total = np.zeros((len(Z), len(Z)), dtype=_LONG)
    for sigma in noise_levels:
        width = _gamma_sigma(gamma, sigma)
        minus, plus = _delta_pairs(Z, gamma, sigma, -1), _delta_pairs(Z, gamma, sigma, 1)
        sines = _gram_dphi(x, Z, c, width, weights)
        cosines = _gram_phi(x, Z, c, width, weights)
        total += ((minus + plus) * sines + (minus - plus) * cosines) / (2 * width**2)
    return _rounded(total)


def noise_sum_phi(x, Z, c, gamma, noise_levels, weights=None):
    """psi_sigma = sum_i w_i phi_sigma(x_i), (H, S). Algorithm 3."""
    return np.array(
        [sum_phi(x, Z, c, _gamma_sigma(gamma, sigma), weights) for sigma in noise_levels]
    )


def noise_sum_dphi(x, Z, c, gamma, noise_levels, weights=None):
    """sum_i w_i phi'_sigma(x_i), (H, S), without delta. Part of psi'_sigma of Algorithm 3."""
    return np.array(
        [sum_dphi(x, Z, c, _gamma_sigma(gamma, sigma), weights) for sigma in noise_levels]
    )


def noise_sum_dphi_x(x, Z, c, gamma, noise_levels, weights=None, origin=None):
    """sum_i w_i phi'_sigma(x_i) (x_i - origin)^T, (H, S, d), without delta. Algorithm 3."""
    return np.array(
        [sum_dphi_x(x, Z, c, _gamma_sigma(gamma, sigma), weights, origin) for sigma in noise_levels]
    )


# -- Table 1: expectations over y = x + xi, xi ~ N(0, sigma^2 I), at one point x (d,) --------------


def expected_phi(x, Z, c, gamma, sigma):
    """E[phi_sigma(y)] = delta * phi_sigma(x), (S,). Table 1, row 1."""
    return delta(Z, gamma, sigma) * phi_sigma(x[None], Z, c, gamma, sigma)[0]


def expected_dphi(x, Z, c, gamma, sigma):
    """E[phi'_sigma(y)] = delta * phi'_sigma(x), (S,). Table 1, row 2."""
    return delta(Z, gamma, sigma) * dphi_sigma(x[None], Z, c, gamma, sigma)[0]


def expected_dphi_outer(x, Z, c, gamma, sigma):
    """E[phi'_sigma(y) phi'_sigma(y)^T], (S, S). Table 1, row 3."""
    cosine = phi_sigma(x[None], Z, c, gamma, sigma)[0]
    sine = dphi_sigma(x[None], Z, c, gamma, sigma)[0]
    minus, plus = delta_minus(Z, gamma, sigma), delta_plus(Z, gamma, sigma)
    return 0.5 * (minus - plus) * np.outer(cosine, cosine) + 0.5 * (minus + plus) * np.outer(
        sine, sine
    )


def expected_cross(x, Z, c, gamma, sigma, Sigma):
    """E[(Z Sigma_sigma^-1 xi) * phi'_sigma(y)], (S,). Table 1, row 4.

    -(sigma^2 / gamma_sigma) delta * |Z Sigma_sigma^(-1/2)|^2 * phi_sigma(x)
    """
    inverse = scipy.linalg.inv(np.asarray(Sigma) + sigma**2 * np.eye(Z.shape[1]))
    norms = np.einsum("sk,kl,sl->s", Z, inverse, Z)
    return -(sigma**2) / gamma_sigma(gamma, sigma) * norms * expected_phi(x, Z, c, gamma, sigma)


# -- moments of the features under the base (Eqs. muphi, sigphi) ----------------------------------


def _base_delta_pairs(Z, gamma, Sigma, sign):
    """Delta^+ (sign 1), Delta^- (sign -1): exp(-(z_s +- z_t)^T Sigma (z_s +- z_t) / 2 gamma^2)."""
    Z, Sigma = _long(Z), _long(Sigma)
    result = np.empty((len(Z), len(Z)), dtype=_LONG)
    for s in range(len(Z)):
        pair = Z[s] + sign * Z
        result[s] = np.exp(-0.5 * ((pair @ Sigma) * pair).sum(axis=1) / _LONG(gamma) ** 2)
    return result


def _mu_phi(Z, c, gamma, mu, Sigma):
    form = ((_long(Z) @ _long(Sigma)) * _long(Z)).sum(axis=1)
    return np.exp(-0.5 * form / _LONG(gamma) ** 2) * _phi(np.asarray(mu)[None], Z, c, gamma)[0]


def mu_phi(Z, c, gamma, mu, Sigma):
    """mu_phi(s) = exp(-z_s^T Sigma z_s / (2 gamma^2)) phi_s(mu), (S,). Eq. muphi."""
    return _rounded(_mu_phi(Z, c, gamma, mu, Sigma))


def sigma_phi(Z, c, gamma, mu, Sigma):
    """Sigma_phi, (S, S). Eq. sigphi::

    (Delta^- + Delta^+)/2 * phi(mu) phi(mu)^T + (Delta^- - Delta^+)/2 * phi'(mu) phi'(mu)^T
        - mu_phi mu_phi^T
    """
    minus, plus = _base_delta_pairs(Z, gamma, Sigma, -1), _base_delta_pairs(Z, gamma, Sigma, 1)
    cosine = _phi(np.asarray(mu)[None], Z, c, gamma)[0]
    sine = _dphi(np.asarray(mu)[None], Z, c, gamma)[0]
    mean = _mu_phi(Z, c, gamma, mu, Sigma)
    return _rounded(
        0.5 * (minus + plus) * np.outer(cosine, cosine)
        + 0.5 * (minus - plus) * np.outer(sine, sine)
        - np.outer(mean, mean)
    )


# -- the tilted density and its Fisher divergence (Eqs. density, nabx, nabxx, objective) -----------


def log_q(x, theta, Z, c, gamma, mu, Sigma):
    """theta^T phi(x_i) + ln N(x_i | mu, Sigma), (n,): Eq. density without its normaliser."""
    centred = np.asarray(x) - mu
    quadratic = (centred * scipy.linalg.solve(Sigma, centred.T, assume_a="pos").T).sum(axis=1)
    log_det = np.linalg.slogdet(Sigma)[1]
    constant = -0.5 * (Z.shape[1] * math.log(2 * math.pi) + log_det)
    return phi(x, Z, c, gamma) @ theta - 0.5 * quadratic + constant


def grad_log_q(x, theta, Z, c, gamma, mu, Sigma):
    """sum_s theta_s phi'_s(x_i) z_s / gamma - Sigma^-1 (x_i - mu), (n, d). Eq. nabx."""
    pull = scipy.linalg.solve(Sigma, (np.asarray(x) - mu).T, assume_a="pos").T
    return (dphi(x, Z, c, gamma) * theta) @ Z / gamma - pull


def laplacian_log_q(x, theta, Z, c, gamma, mu, Sigma):
    """sum_s theta_s phi''_s(x_i) |z_s|^2 / gamma^2 - tr Sigma^-1, (n,). Trace of Eq. nabxx."""
    norms = (Z**2).sum(axis=1)
    trace = np.trace(scipy.linalg.inv(Sigma))
    return ddphi(x, Z, c, gamma) @ (theta * norms) / gamma**2 - trace


def fisher_objective(x, theta, Z, c, gamma, mu, Sigma, weights=None):
    """sum_i w_i [|grad ln q(x_i)|^2 / 2 + laplacian ln q(x_i)]. Eq. objective."""
    gradient = grad_log_q(x, theta, Z, c, gamma, mu, Sigma)
    laplacian = laplacian_log_q(x, theta, Z, c, gamma, mu, Sigma)
    terms = 0.5 * (gradient**2).sum(axis=1) + laplacian
    return float(_weights(x, weights) @ terms)


def psi_prime(x, Z, c, gamma, mu, Sigma, weights=None):
    """psi' = sum_i w_i phi'(x_i) * Z Sigma^-1 (x_i - mu), (S,). Algorithm 2."""
    pull = scipy.linalg.solve(Sigma, (np.asarray(x) - mu).T, assume_a="pos").T
    return _rounded(_weights(x, weights) @ (_dphi(x, Z, c, gamma) * _long(pull @ Z.T)))


def theta_fd(x, Z, c, gamma, lam, mu, Sigma, weights=None):
    """The Fisher divergence solution, (S,). Algorithm 2::

    (lam gamma^2 I + ZZ^T * Phi')^-1 (gamma psi' + |Z|^2 * psi)
    """
    matrix = lam * gamma**2 * np.eye(len(Z)) + (Z @ Z.T) * gram(x, Z, c, gamma, weights)
    right = gamma * psi_prime(x, Z, c, gamma, mu, Sigma, weights)
    right = right + (Z**2).sum(axis=1) * sum_phi(x, Z, c, gamma, weights)
    return scipy.linalg.solve(matrix, right, assume_a="pos")


# -- the noise conditional solution (Algorithm 3) -------------------------------------------------


def _cholesky(matrix):
    """Lower factor L of a positive definite matrix, L L^T: column by column, in longdouble."""
    rest, factor = _long(matrix).copy(), np.zeros_like(_long(matrix))
    for k in range(len(rest)):
        if not rest[k, k] > 0:
            raise np.linalg.LinAlgError(f"pivot {k} is {float(rest[k, k])}")
        column = rest[k:, k] / np.sqrt(rest[k, k])
        factor[k:, k] = column
        rest[k:, k:] -= np.outer(column, column)
    return factor


def _solve(matrix, right):
    """matrix^-1 right, (S,) or (S, r), of a positive definite matrix in longdouble."""
    factor = _cholesky(matrix)
    x = _long(right).copy()
    for k in range(len(factor)):
        x[k] = (x[k] - factor[k, :k] @ x[:k]) / factor[k, k]
    for k in reversed(range(len(factor))):
        x[k] = (x[k] - factor[k + 1 :, k] @ x[k + 1 :]) / factor[k, k]
    return x


def _norms(Z, M):
    """z_s^T M z_s, (S,): |Z M^(1/2)|^2 of the paper."""
    return ((_long(Z) @ _long(M)) * _long(Z)).sum(axis=1)


def noise_system(x, Z, c, gamma, lam, mu, Sigma, noise_levels, weights=None):
    """lam H I + ZZ^T * A, (S, S), and b, (S,). Algorithm 3::

    b = sum_sigma delta * psi'_sigma / gamma_sigma
        + |Z (I - sigma^2 Sigma_sigma^-1)^(1/2)|^2 * delta * psi_sigma / gamma_sigma^2
    """
    d, b = Z.shape[1], np.zeros(len(Z), dtype=_LONG)
    A = np.zeros((len(Z), len(Z)), dtype=_LONG)
    for sigma in noise_levels:
        width, small = _gamma_sigma(gamma, sigma), _delta(Z, gamma, sigma)
        minus, plus = _delta_pairs(Z, gamma, sigma, -1), _delta_pairs(Z, gamma, sigma, 1)
        sines, cosines = _dphi(x, Z, c, width), _phi(x, Z, c, width)
        w = _weights(x, weights)[:, None]
        A += (minus + plus) * ((sines * w).T @ sines) / (2 * width**2)
        A += (minus - plus) * ((cosines * w).T @ cosines) / (2 * width**2)
        inverse = _solve(_long(Sigma) + _LONG(sigma) ** 2 * np.eye(d), np.eye(d))
        pull = (_long(x) - _long(mu)) @ inverse @ _long(Z).T
        b += small * (w * sines * pull).sum(axis=0) / width
        shrunk = _norms(Z, np.eye(d) - _LONG(sigma) ** 2 * inverse)
        b += shrunk * small * (w * cosines).sum(axis=0) / width**2
    matrix = _LONG(lam) * len(noise_levels) * np.eye(len(Z)) + (_long(Z) @ _long(Z).T) * A
    return matrix, b


def theta_ncfd(x, Z, c, gamma, lam, mu, Sigma, noise_levels, weights=None):
    """The noise conditional solution (lam H I + ZZ^T * A)^-1 b, (S,). Algorithm 3."""
    return _rounded(_solve(*noise_system(x, Z, c, gamma, lam, mu, Sigma, noise_levels, weights)))


# -- the Fisher variational predictive distribution (Algorithm 4) ---------------------------------


def posterior(x, Z, c, gamma, lam, eta, mu, Sigma, weights=None):
    """mu-hat (S,) and Sigma-hat (S, S) of q(theta), in longdouble. Eq. posterior::

    Sigma-hat = (lam I + ZZ^T * Phi' / (gamma^2 eta))^-1
    mu-hat = (lam gamma^2 eta I + ZZ^T * Phi')^-1 (gamma psi' + |Z|^2 * psi)
    """
    gamma, lam, eta, eye = _LONG(gamma), _LONG(lam), _LONG(eta), np.eye(len(Z))
    gram = (_long(Z) @ _long(Z).T) * _gram_dphi(x, Z, c, gamma, weights)
    pull = _solve(Sigma, (_long(x) - _long(mu)).T).T @ _long(Z).T
    w = _weights(x, weights)
    right = gamma * (w @ (_dphi(x, Z, c, gamma) * pull))
    right = right + _norms(Z, np.eye(Z.shape[1])) * (w @ _phi(x, Z, c, gamma))
    covariance = _solve(lam * eye + gram / (gamma**2 * eta), eye)
    return _solve(lam * gamma**2 * eta * eye + gram, right), covariance


def fvpd(x, Z, c, gamma, lam, eta, mu, Sigma, weights=None):
    """M (S, S) and m (S,). Algorithm 4, Eq. predictive::

    M = Sigma_phi + Sigma-hat^-1,  m = mu_phi - Sigma-hat^-1 mu-hat
    """
    mean, covariance = posterior(x, Z, c, gamma, lam, eta, mu, Sigma, weights)
    M = sigma_phi(Z, c, gamma, mu, Sigma) + _solve(covariance, np.eye(len(Z)))
    m = _mu_phi(Z, c, gamma, mu, Sigma) - _solve(covariance, mean)
    return _rounded(M), _rounded(m)


def log_q_fvpd(x, M, m, Z, c, gamma, mu, Sigma):
    """phi^T M^-1 phi / 2 - phi^T M^-1 m + ln N(x_i | mu, Sigma), (n,). Eq. predictive."""
    features = _phi(x, Z, c, gamma)
    solved = _solve(M, features.T).T
    tilt = (solved * features).sum(axis=1) / 2 - solved @ _long(m)
    return _rounded(tilt + log_q(x, np.zeros(len(Z)), Z, c, gamma, mu, Sigma))


# -- maximum a posteriori (Algorithm 1), with E over the base as a sum over nodes zeta_j ----------


def _map_terms(theta, nodes, node_weights, Z, c, gamma):
    """phi(zeta_j) (J, S), the log of w_j exp(theta^T phi(zeta_j)) less its top, and the top."""
    features = _phi(nodes, Z, c, gamma)
    logs = features @ _long(theta) + np.log(_long(node_weights))
    return features, logs - logs.max(), logs.max()


def map_objective(x, theta, nodes, node_weights, Z, c, gamma, lam, weights=None):
    """theta^T psi_1 - n ln sum_j w_j exp(theta^T phi(zeta_j)) - lam |theta|^2 / 2. Algorithm 1.

    nodes (J, d) with node_weights w_j (J,): 1/J for draws from the base.
    """
    _, logs, top = _map_terms(theta, nodes, node_weights, Z, c, gamma)
    log_partition = top + np.log(np.exp(logs).sum())
    theta, w = _long(theta), _weights(x, weights)
    gain = theta @ (w @ _phi(x, Z, c, gamma))
    return float(gain - w.sum() * log_partition - _LONG(lam) * (theta @ theta) / 2)


def map_gradient(x, theta, nodes, node_weights, Z, c, gamma, lam, weights=None):
    """psi_1 - n psi_2 - lam theta, (S,): the direction of the iteration of Algorithm 1."""
    features, logs, _ = _map_terms(theta, nodes, node_weights, Z, c, gamma)
    share, w = np.exp(logs) / np.exp(logs).sum(), _weights(x, weights)
    psi_1 = w @ _phi(x, Z, c, gamma)
    return _rounded(psi_1 - w.sum() * (share @ features) - _LONG(lam) * _long(theta))


# -- the base (Eqs. mu_update, sig_update) --------------------------------------------------------


def base_objective(x, theta, P, h, Z, c, gamma, lam, weights=None):
    """Eq. objective + lam |theta|^2 / 2 at Sigma = P^-1, mu = P^-1 h: quadratic in (theta, P, h).

    Unlike ``fisher_objective`` it is defined for every symmetric P.
    """
    theta, gamma, Z = _long(theta), _LONG(gamma), _long(Z)
    sines, cosines = _dphi(x, Z, c, gamma), _phi(x, Z, c, gamma)
    gradient = (sines * theta) @ Z / gamma - (_long(x) @ _long(P) - _long(h))
    laplacian = -cosines @ (theta * (Z**2).sum(axis=1)) / gamma**2 - np.trace(_long(P))
    terms = (gradient**2).sum(axis=1) / 2 + laplacian
    return float(_weights(x, weights) @ terms + _LONG(lam) * (theta @ theta) / 2)


def mu_update(x, theta, Z, c, gamma, Sigma, weights=None):
    """mean(x) - Sigma Z^T (theta * mean(phi')) / gamma, (d,). Eq. mu_update."""
    share = _weights(x, weights) / _weights(x, weights).sum()
    slope = _long(theta) * (share @ _dphi(x, Z, c, gamma))
    return _rounded(share @ _long(x) - _long(Sigma) @ (_long(Z).T @ slope) / _LONG(gamma))


def precision_update(x, theta, Z, c, gamma, mu, weights=None):
    """Sigma^-1, (d, d), by the Kronecker form (Sbar x I + I x Sbar)^-1 vec(Q). Eq. sig_update."""
    share = (_weights(x, weights) / _weights(x, weights).sum())[:, None]
    away, d = _long(x) - _long(mu), Z.shape[1]
    spread = (share * away).T @ away
    upsilon = (share * _dphi(x, Z, c, gamma) * _long(theta)).T @ away
    Q = 2 * np.eye(d) + (_long(Z).T @ upsilon + upsilon.T @ _long(Z)) / _LONG(gamma)
    system = np.kron(spread, np.eye(d)) + np.kron(np.eye(d), spread)
    return _rounded(_solve(system, Q.reshape(-1)).reshape(d, d))


# -- marginal CDFs (Section 4, the P_N of KS and WD) ----------------------------------------------


def marginal_weight(x, direction, grid, weights=None):
    """sum of w_i over the rows with x_i . direction <= grid_j, (G,), by sorting."""
    projection = np.asarray(x) @ direction
    order = np.argsort(projection, kind="stable")
    running = np.concatenate([np.zeros(1, _LONG), np.cumsum(_weights(x, weights)[order])])
    return _rounded(running[np.searchsorted(projection[order], grid, side="right")])


def marginal_cdf(x, direction, grid, weights=None):
    """P(x . direction <= grid_j) of the weighted data, (G,)."""
    return marginal_weight(x, direction, grid, weights) / total_weight(x, weights)


def marginal_excess(x, direction, grid, weights=None):
    """sum of w_i times what row i lies below the first, and above the last grid point."""
    projection, w = (np.asarray(x) @ direction).astype(_LONG), _weights(x, weights)
    below, above = np.maximum(grid[0] - projection, 0), np.maximum(projection - grid[-1], 0)
    return float(w @ below), float(w @ above)


def marginal_distances(x, y, direction, x_weights=None, y_weights=None):
    """(KS, WD) between two weighted samples along a direction, exactly: sup |P - Q| over all of
    their points, and the integral of |P - Q| between them."""
    points = np.unique(np.concatenate([np.asarray(x) @ direction, np.asarray(y) @ direction]))
    gap = marginal_cdf(x, direction, points, x_weights)
    gap = np.abs(gap - marginal_cdf(y, direction, points, y_weights))
    return float(gap.max()), float(gap[:-1] @ np.diff(points))


# -- the Fisher score (Eq. FDobj, divided by the number of rows) ---------------------------------


def fisher_score(gradient, laplacian, weights=None):
    """Mean over the rows of |grad log q|^2 / 2 + trace of the Hessian of log q."""
    terms = 0.5 * np.square(gradient.astype(_LONG)).sum(axis=1) + laplacian
    return float(_weights(terms, weights) @ terms / _weights(terms, weights).sum())


# -- bases beyond one Gaussian: log density, score s0 and its Jacobian ----------------------------


def _gaussian_parts(x, mu, Sigma):
    """ln N(x_i | mu, Sigma), (n,); its gradient, (n, d); its Hessian, (d, d)."""
    inverse = scipy.linalg.inv(np.asarray(Sigma))
    away = np.asarray(x) - mu
    pull = away @ inverse
    log_det = np.linalg.slogdet(Sigma)[1]
    constant = -0.5 * (away.shape[1] * math.log(2 * math.pi) + log_det)
    return constant - 0.5 * (pull * away).sum(axis=1), -pull, -inverse


def mixture_log_density(x, shares, means, covariances):
    """ln sum_j shares_j N(x_i | means_j, covariances_j), (n,)."""
    parts = zip(shares, means, covariances, strict=True)
    logs = np.array([math.log(p) + _gaussian_parts(x, m, C)[0] for p, m, C in parts])
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).sum(axis=0))


def mixture_responsibilities(x, shares, means, covariances):
    """r_ij = shares_j N_j(x_i) / sum_k shares_k N_k(x_i), (n, K)."""
    total = mixture_log_density(x, shares, means, covariances)
    parts = zip(shares, means, covariances, strict=True)
    return np.stack(
        [np.exp(math.log(p) + _gaussian_parts(x, m, C)[0] - total) for p, m, C in parts], axis=1
    )


def mixture_score(x, shares, means, covariances):
    """sum_j r_ij grad ln N_j(x_i), (n, d)."""
    r = mixture_responsibilities(x, shares, means, covariances)
    slopes = [_gaussian_parts(x, m, C)[1] for m, C in zip(means, covariances, strict=True)]
    return np.einsum("nj,jnd->nd", r, np.array(slopes))


def mixture_hessian(x, shares, means, covariances):
    """sum_j r_ij (H_j + g_ij g_ij^T) - g_i g_i^T, (n, d, d)."""
    r = mixture_responsibilities(x, shares, means, covariances)
    total = 0.0
    for j, (m, C) in enumerate(zip(means, covariances, strict=True)):
        _, g, H = _gaussian_parts(x, m, C)
        total = total + r[:, j, None, None] * (H + g[:, :, None] * g[:, None, :])
    g = mixture_score(x, shares, means, covariances)
    return total - g[:, :, None] * g[:, None, :]


def mixture_moments(shares, means, covariances):
    """Mean (d,) and covariance (d, d) of the mixture: E x and E xx^T - E x E x^T."""
    mean = sum(p * np.asarray(m) for p, m in zip(shares, means, strict=True))
    parts = zip(shares, means, covariances, strict=True)
    second = sum(p * (np.asarray(C) + np.outer(m, m)) for p, m, C in parts)
    return mean, second - np.outer(mean, mean)


def mixture_feature_moments(Z, c, gamma, shares, means, covariances):
    """Mean (S,) and covariance (S, S) of phi(x), x from the mixture: E phi, E phi phi^T less the
    product of the means, each a share-weighted sum of Eqs. muphi and sigphi."""
    first, second = np.zeros(len(Z), _LONG), np.zeros((len(Z), len(Z)), _LONG)
    for p, m, C in zip(shares, means, covariances, strict=True):
        mean = _mu_phi(Z, c, gamma, m, C)
        first += p * mean
        second += p * (_long(sigma_phi(Z, c, gamma, m, C)) + np.outer(mean, mean))
    return _rounded(first), _rounded(second - np.outer(first, first))


def mixture_marginal_cdf(direction, grid, shares, means, covariances):
    """P(x . direction <= grid_j) of the mixture, (G,): a sum of normal CDFs."""
    total, v = np.zeros(len(grid)), np.asarray(direction)
    for p, m, C in zip(shares, means, covariances, strict=True):
        deviation = math.sqrt(v @ np.asarray(C) @ v)
        total += [p * 0.5 * math.erfc((v @ m - g) / (deviation * math.sqrt(2.0))) for g in grid]
    return total


def student_log_density(x, centre, matrix, nu):
    """ln of Gamma((nu+d)/2) / (Gamma(nu/2) (nu pi)^(d/2) |matrix|^(1/2)) (1 + q/nu)^(-(nu+d)/2),
    q the squared distance, (n,)."""
    away = np.asarray(x) - centre
    d = away.shape[1]
    q = (away @ scipy.linalg.inv(np.asarray(matrix)) * away).sum(axis=1)
    constant = math.lgamma((nu + d) / 2) - math.lgamma(nu / 2) - d / 2 * math.log(nu * math.pi)
    return constant - np.linalg.slogdet(matrix)[1] / 2 - (nu + d) / 2 * np.log1p(q / nu)


def student_score(x, centre, matrix, nu):
    """-(nu + d) / (nu + q_i) matrix^-1 (x_i - centre), (n, d)."""
    away = np.asarray(x) - centre
    pull = away @ scipy.linalg.inv(np.asarray(matrix))
    return -((nu + away.shape[1]) / (nu + (pull * away).sum(axis=1)))[:, None] * pull


def student_hessian(x, centre, matrix, nu):
    """-(nu + d) [matrix^-1 / (nu + q_i) - 2 p_i p_i^T / (nu + q_i)^2], p = matrix^-1 (x - centre),
    (n, d, d)."""
    away, inverse = np.asarray(x) - centre, scipy.linalg.inv(np.asarray(matrix))
    pull = away @ inverse
    s = (nu + (pull * away).sum(axis=1))[:, None, None]
    return -(nu + away.shape[1]) * (inverse / s - 2 * pull[:, :, None] * pull[:, None, :] / s**2)


def em_step(x, weights, shares, means, covariances, ridge):
    """(shares, means, covariances) after one step of EM for a Gaussian mixture, row by row."""
    r = _long(mixture_responsibilities(x, shares, means, covariances))
    r = r * (_weights(x, weights) / _weights(x, weights).sum())[:, None]
    new_shares = r.sum(axis=0)
    new_means, new_covariances = [], []
    for j, total in enumerate(new_shares):
        mean = (r[:, j] @ _long(x)) / total
        away = _long(x) - mean
        new_means.append(mean)
        new_covariances.append((r[:, j] * away.T) @ away / total + ridge * np.eye(x.shape[1]))
    return _rounded(new_shares), _rounded(new_means), _rounded(new_covariances)


# -- Fisher divergence with any base: it enters through s0(x_i) (n, d) and its trace (n,) alone ----


def fisher_objective_any(x, theta, Z, c, gamma, lam, score, laplacian, weights=None):
    """sum_i w_i [|grad ln q(x_i)|^2 / 2 + laplacian ln q(x_i)] + lam |theta|^2 / 2 with
    grad ln q = sum_s theta_s phi'_s z_s / gamma + s0. Eq. objective with any base."""
    Z, theta, gamma = _long(Z), _long(theta), _LONG(gamma)
    gradient = (_dphi(x, Z, c, gamma) * theta) @ Z / gamma + _long(score)
    trace = -_phi(x, Z, c, gamma) @ (theta * (Z**2).sum(axis=1)) / gamma**2 + _long(laplacian)
    terms = (gradient**2).sum(axis=1) / 2 + trace
    return float(_weights(x, weights) @ terms + _LONG(lam) * (theta @ theta) / 2)


def sum_dphi_score(x, Z, c, gamma, score, weights=None):
    """sum_i w_i phi'(x_i) s0(x_i)^T, (S, d)."""
    return _rounded((_dphi(x, Z, c, gamma).T * _weights(x, weights)) @ _long(score))


def theta_fd_any(x, Z, c, gamma, lam, score, weights=None):
    """The minimiser of ``fisher_objective_any``, (S,)::

    (lam I + ZZ^T * Phi' / gamma^2)^-1 (-sum_i w_i phi' * (Z s0) / gamma + |Z|^2 * psi / gamma^2)
    """
    matrix = lam * np.eye(len(Z)) + (Z @ Z.T) * gram(x, Z, c, gamma, weights) / gamma**2
    right = (Z**2).sum(axis=1) * sum_phi(x, Z, c, gamma, weights) / gamma**2
    right = right - (Z * sum_dphi_score(x, Z, c, gamma, score, weights)).sum(axis=1) / gamma
    return scipy.linalg.solve(matrix, right, assume_a="pos")
