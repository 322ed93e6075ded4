"""The oracle against numerical derivatives, seeded Monte Carlo and plain loops."""

import math

import numpy as np
import oracle
import pytest
import scipy.stats

S, D, GAMMA = 6, 3, 0.8


def draw(seed, n=40):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(S, D))
    c = rng.uniform(0.0, 2.0 * np.pi, S)
    x = rng.normal(size=(n, D)) + 0.5
    weights = rng.uniform(0.2, 3.0, n)
    return rng, x, Z, c, weights


def draw_base(rng):
    half = rng.normal(size=(D, D))
    return rng.normal(size=D), half @ half.T + np.eye(D)


def assert_monte_carlo(samples, expected, n_errors=5.0):
    """The mean of samples (m, ...) is within n_errors standard errors of expected.

    5 standard errors: one entry in 2 million would be outside by chance, and the seeds are fixed.
    """
    mean = samples.mean(axis=0)
    standard_error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    worst = np.max(np.abs(mean - expected) / standard_error)
    assert worst <= n_errors, f"{worst:.1f} standard errors"


# -- features -------------------------------------------------------------------------------------


def test_phi_and_its_derivatives_against_finite_differences():
    # phi' and phi'' are derivatives in the angle, so move c. Central differences of step h err by
    # h^2/6 |f'''| + 1.1e-16 |f|/h and h^2/12 |f''''| + 4 * 1.1e-16 |f|/h^2; |f| <= sqrt(2/S) < 1.
    _, x, Z, c, _ = draw(1)
    h = 1e-4
    up, here, down = (oracle.phi(x, Z, c + e, GAMMA) for e in (h, 0.0, -h))
    first, second = (up - down) / (2 * h), (up - 2 * here + down) / h**2
    np.testing.assert_allclose(oracle.dphi(x, Z, c, GAMMA), first, rtol=0, atol=h**2 / 6 + 3e-12)
    np.testing.assert_allclose(oracle.ddphi(x, Z, c, GAMMA), second, rtol=0, atol=h**2 / 12 + 6e-8)


@pytest.mark.parametrize("sigma", [0.0, 0.7])
def test_features_against_math(sigma):
    _, x, Z, c, _ = draw(2)
    width = math.sqrt(GAMMA**2 + sigma**2)
    for i in (0, 7, 39):
        for s in range(S):
            angle = math.fsum(Z[s] * x[i] / width) + c[s]
            cosine, sine = math.sqrt(2 / S) * math.cos(angle), -math.sqrt(2 / S) * math.sin(angle)
            # |angle| < 20, wrong by a few units of 2^-52 times that
            assert oracle.phi_sigma(x, Z, c, GAMMA, sigma)[i, s] == pytest.approx(cosine, abs=2e-14)
            assert oracle.dphi_sigma(x, Z, c, GAMMA, sigma)[i, s] == pytest.approx(sine, abs=2e-14)
    assert oracle.gamma_sigma(GAMMA, sigma) == pytest.approx(width, rel=1e-15)


def test_features_approximate_the_gaussian_kernel():
    # Definition 2: phi(x)^T phi(y) -> exp(-|x - y|^2 / 2 gamma^2); S terms of at most 2/S each
    rng = np.random.default_rng(3)
    n_features = 200_000
    Z, c = rng.normal(size=(n_features, 2)), rng.uniform(0, 2 * np.pi, n_features)
    x = np.array([[0.1, -0.4], [0.5, 0.3]])
    a, b = oracle.phi(x, Z, c, GAMMA)
    expected = math.exp(-((x[0] - x[1]) ** 2).sum() / (2 * GAMMA**2))
    assert_monte_carlo(n_features * a * b, expected)


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_against_loops(weighted):
    _, x, Z, c, weights = draw(4, n=9)
    weights = weights if weighted else None
    origin = np.array([0.3, -2.0, 1.0])
    loops = {
        "n": 0.0, "n_rows": 0, "sum_w2": 0.0, "sum_x": np.zeros(D), "sum_xx": np.zeros((D, D)),
        "sum_phi": np.zeros(S), "sum_dphi": np.zeros(S), "sum_dphi_x": np.zeros((S, D)),
        "gram": np.zeros((S, S)), "gram_phi": np.zeros((S, S)),
    }  # fmt: skip
    for i, row in enumerate(x):
        w = weights[i] if weighted else 1.0
        away = row - origin
        angle = [float(Z[s] @ row) / GAMMA + c[s] for s in range(S)]
        cosine = np.array([math.sqrt(2 / S) * math.cos(a) for a in angle])
        sine = np.array([-math.sqrt(2 / S) * math.sin(a) for a in angle])
        terms = {
            "n": w, "n_rows": 1, "sum_w2": w * w, "sum_x": w * away,
            "sum_xx": w * np.outer(away, away), "sum_phi": w * cosine, "sum_dphi": w * sine,
            "sum_dphi_x": w * np.outer(sine, away), "gram": w * np.outer(sine, sine),
            "gram_phi": w * np.outer(cosine, cosine),
        }  # fmt: skip
        loops = {name: value + terms[name] for name, value in loops.items()}
    found = oracle.statistics(x, Z, c, GAMMA, weights, origin)
    assert found.keys() == loops.keys()
    for name, value in loops.items():
        # 9 terms below 50, each wrong by some 30 units of 1.1e-16: 2e-12 is ten times that
        np.testing.assert_allclose(found[name], value, rtol=0, atol=2e-12, err_msg=name)


def test_weights_mean_repetition():
    _, x, Z, c, _ = draw(5, n=12)
    repeats = np.arange(12) % 4
    once = oracle.statistics(x, Z, c, GAMMA, weights=repeats.astype(float))
    many = oracle.statistics(np.repeat(x, repeats, axis=0), Z, c, GAMMA)
    for name in many.keys() - {"n_rows", "sum_w2"}:
        np.testing.assert_allclose(once[name], many[name], rtol=0, atol=1e-13, err_msg=name)


def test_origin_shifts_only_the_sums_with_x():
    _, x, Z, c, weights = draw(6)
    origin = np.array([5.0, -1.0, 0.25])
    raw = oracle.statistics(x, Z, c, GAMMA, weights)
    shifted = oracle.statistics(x, Z, c, GAMMA, weights, origin)
    n, sum_x = raw["n"], raw["sum_x"]
    expected = dict(raw)
    expected["sum_x"] = sum_x - n * origin
    expected["sum_dphi_x"] = raw["sum_dphi_x"] - np.outer(raw["sum_dphi"], origin)
    expected["sum_xx"] = (
        raw["sum_xx"] - np.outer(sum_x, origin) - np.outer(origin, sum_x)
        + n * np.outer(origin, origin)
    )  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(shifted[name], value, rtol=0, atol=1e-11, err_msg=name)


def test_noise_sums_without_noise_are_the_plain_sums():
    _, x, Z, c, weights = draw(7)
    origin = np.array([1.0, 2.0, -0.5])
    plain = oracle.statistics(x, Z, c, GAMMA, weights, origin)
    levels = (0.0,)
    for name, found in (
        ("sum_phi", oracle.noise_sum_phi(x, Z, c, GAMMA, levels, weights)),
        ("sum_dphi", oracle.noise_sum_dphi(x, Z, c, GAMMA, levels, weights)),
        ("sum_dphi_x", oracle.noise_sum_dphi_x(x, Z, c, GAMMA, levels, weights, origin)),
    ):
        np.testing.assert_allclose(found, plain[name][None], rtol=0, atol=1e-13, err_msg=name)
    # Delta^+- = 1: A = Phi' / gamma^2, and Phi drops out
    found = oracle.noise_gram(x, Z, c, GAMMA, levels, weights)
    np.testing.assert_allclose(found, plain["gram"] / GAMMA**2, rtol=0, atol=1e-13)


def test_noise_sums_per_level_use_that_level_alone():
    _, x, Z, c, weights = draw(8)
    levels = (0.0, 0.4, 1.1)
    sums = oracle.noise_sum_phi(x, Z, c, GAMMA, levels, weights)
    assert sums.shape == (3, S)
    for h, sigma in enumerate(levels):
        expected = weights @ oracle.phi_sigma(x, Z, c, GAMMA, sigma)
        np.testing.assert_allclose(sums[h], expected, rtol=0, atol=1e-13)
    total = sum(oracle.noise_gram(x, Z, c, GAMMA, (sigma,), weights) for sigma in levels)
    found = oracle.noise_gram(x, Z, c, GAMMA, levels, weights)
    np.testing.assert_allclose(found, total, rtol=0, atol=1e-12)


# -- expectations by Monte Carlo ------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 1.2])
def test_table_of_expectations(sigma):
    rng, x, Z, c, _ = draw(9)
    _, Sigma = draw_base(rng)
    x = x[0]
    xi = sigma * rng.normal(size=(100_000, D))
    cosine = oracle.phi_sigma(x + xi, Z, c, GAMMA, sigma)
    sine = oracle.dphi_sigma(x + xi, Z, c, GAMMA, sigma)
    assert_monte_carlo(cosine, oracle.expected_phi(x, Z, c, GAMMA, sigma))
    assert_monte_carlo(sine, oracle.expected_dphi(x, Z, c, GAMMA, sigma))
    outer = sine[:, :, None] * sine[:, None, :]
    assert_monte_carlo(outer, oracle.expected_dphi_outer(x, Z, c, GAMMA, sigma))
    pull = np.linalg.solve(Sigma + sigma**2 * np.eye(D), xi.T).T @ Z.T
    assert_monte_carlo(pull * sine, oracle.expected_cross(x, Z, c, GAMMA, sigma, Sigma))


def test_noise_gram_is_the_expected_gram_of_noisy_data():
    # sum over levels of sum_i w_i E[phi'_sigma(x_i + xi) phi'_sigma(x_i + xi)^T] / gamma_sigma^2
    rng, x, Z, c, weights = draw(10, n=4)
    levels = (0.5, 0.9)
    samples = np.zeros((50_000, S, S))
    for sigma in levels:
        for row, weight in zip(x, weights, strict=True):
            noisy = row + sigma * rng.normal(size=(len(samples), D))
            sine = oracle.dphi_sigma(noisy, Z, c, GAMMA, sigma)
            scale = weight / oracle.gamma_sigma(GAMMA, sigma) ** 2
            samples += scale * sine[:, :, None] * sine[:, None, :]
    assert_monte_carlo(samples, oracle.noise_gram(x, Z, c, GAMMA, levels, weights))


def test_mu_phi_and_sigma_phi():
    rng, _, Z, c, _ = draw(11)
    mu, Sigma = draw_base(rng)
    y = rng.multivariate_normal(mu, Sigma, size=100_000)
    cosine = oracle.phi(y, Z, c, GAMMA)
    mean = oracle.mu_phi(Z, c, GAMMA, mu, Sigma)
    assert_monte_carlo(cosine, mean)
    deviation = cosine - mean
    outer = deviation[:, :, None] * deviation[:, None, :]
    assert_monte_carlo(outer, oracle.sigma_phi(Z, c, GAMMA, mu, Sigma))


def test_monte_carlo_notices_a_wrong_formula():
    rng, x, Z, c, _ = draw(12)
    x, sigma = x[0], 0.6
    xi = sigma * rng.normal(size=(100_000, D))
    cosine = oracle.phi_sigma(x + xi, Z, c, GAMMA, sigma)
    with pytest.raises(AssertionError, match="standard errors"):  # delta forgotten
        assert_monte_carlo(cosine, oracle.phi_sigma(x[None], Z, c, GAMMA, sigma)[0])
    sine = oracle.dphi_sigma(x + xi, Z, c, GAMMA, sigma)
    at_x = oracle.phi_sigma(x[None], Z, c, GAMMA, sigma)[0]
    swapped = oracle.expected_dphi_outer(x, Z, c, GAMMA, sigma) + 2.0 / S * np.outer(at_x, at_x)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_monte_carlo(sine[:, :, None] * sine[:, None, :], swapped)


# -- the Fisher divergence solution ---------------------------------------------------------------


def test_gradient_and_laplacian_against_finite_differences_of_log_q():
    # step h: errors h^2/6 f''' and h^2/12 f'''' of values near 1 with frequencies |z|/gamma < 4,
    # so < 2e-7 and < 5e-7 per axis; rounding 1e-15 * 30 / h and / h^2: 3e-10 and 3e-6
    rng, x, Z, c, _ = draw(13, n=8)
    mu, Sigma = draw_base(rng)
    theta = rng.normal(size=S)
    h = 1e-4

    def log_q(points):
        return oracle.log_q(points, theta, Z, c, GAMMA, mu, Sigma)

    gradient = np.empty((8, D))
    laplacian = np.zeros(8)
    for k in range(D):
        step = h * np.eye(D)[k]
        up, here, down = log_q(x + step), log_q(x), log_q(x - step)
        gradient[:, k] = (up - down) / (2 * h)
        laplacian += (up - 2 * here + down) / h**2
    found = oracle.grad_log_q(x, theta, Z, c, GAMMA, mu, Sigma)
    np.testing.assert_allclose(found, gradient, rtol=0, atol=5e-7)
    found = oracle.laplacian_log_q(x, theta, Z, c, GAMMA, mu, Sigma)
    np.testing.assert_allclose(found, laplacian, rtol=0, atol=2e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [0.1, 10.0])
def test_theta_fd_is_stationary(lam, weighted):
    rng, x, Z, c, weights = draw(14, n=200)
    weights = weights if weighted else None
    mu, Sigma = draw_base(rng)
    theta = oracle.theta_fd(x, Z, c, GAMMA, lam, mu, Sigma, weights)

    def objective(at):
        penalty = 0.5 * lam * at @ at
        return oracle.fisher_objective(x, at, Z, c, GAMMA, mu, Sigma, weights) + penalty

    # quadratic in theta: central differences have no truncation error at any step; their rounding
    # is 1.1e-16 * (sum of |terms|, some 200 of size < 50) * a few / h
    h = 0.1
    steps = h * np.eye(S)
    gradient = np.array([(objective(theta + e) - objective(theta - e)) / (2 * h) for e in steps])
    np.testing.assert_allclose(gradient, 0.0, rtol=0, atol=1e-9)
    # and not because the objective is flat: away from theta it rises
    away = np.array([(objective(theta + e) - objective(theta)) for e in steps])
    assert np.all(away > 1e-3)


def test_psi_prime_from_the_base_free_statistics():
    # design 1.1: psi'_s = z_s^T Sigma^-1 (sum phi'_s x - mu sum phi'_s)
    rng, x, Z, c, weights = draw(15)
    mu, Sigma = draw_base(rng)
    origin = np.array([2.0, 0.0, -1.0])
    sums = oracle.statistics(x, Z, c, GAMMA, weights, origin)
    away = sums["sum_dphi_x"] - np.outer(sums["sum_dphi"], mu - origin)
    expected = (Z * np.linalg.solve(Sigma, away.T).T).sum(axis=1)
    found = oracle.psi_prime(x, Z, c, GAMMA, mu, Sigma, weights)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


# -- the noise conditional, predictive and MAP solutions ------------------------------------------


def test_long_double_solver():
    rng = np.random.default_rng(16)
    half = rng.normal(size=(9, 12))
    matrix, x = half @ half.T, rng.normal(size=(9, 2))
    # matrix @ x, 9 terms, is rounded to 1e-16 of them, and the solution to condition times that
    atol = 20 * 1e-16 * np.linalg.cond(matrix)
    np.testing.assert_allclose(oracle._solve(matrix, matrix @ x).astype(float), x, 0, atol)
    factor = oracle._cholesky(matrix)
    np.testing.assert_allclose((factor @ factor.T).astype(float), matrix, 0, 1e-13)
    with pytest.raises(np.linalg.LinAlgError, match="pivot 1"):
        oracle._cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.parametrize("weighted", [False, True])
def test_fd_is_ncfd_without_noise(weighted):
    # Section 3.2: Algorithm 2 is the special case sigma in {0}
    rng, x, Z, c, weights = draw(17, n=100)
    weights = weights if weighted else None
    mu, Sigma = draw_base(rng)
    found = oracle.theta_ncfd(x, Z, c, GAMMA, 0.3, mu, Sigma, (0.0,), weights)
    expected = oracle.theta_fd(x, Z, c, GAMMA, 0.3, mu, Sigma, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_noise_system_from_the_table_of_expectations():
    # the gradient of L_sigma at the end of Section 3.2, with the four expectations of Table 1
    rng, x, Z, c, weights = draw(18, n=10)
    mu, Sigma = draw_base(rng)
    levels, lam = (0.0, 0.5, 1.3), 0.7
    matrix, b = lam * len(levels) * np.eye(S), np.zeros(S)
    for sigma in levels:
        width, noisy = oracle.gamma_sigma(GAMMA, sigma), Sigma + sigma**2 * np.eye(D)
        for row, w in zip(x, weights, strict=True):
            outer = oracle.expected_dphi_outer(row, Z, c, GAMMA, sigma)
            matrix += w * (Z @ Z.T) * outer / width**2
            pull = Z @ np.linalg.solve(noisy, row - mu)
            b += w * (Z**2).sum(axis=1) * oracle.expected_phi(row, Z, c, GAMMA, sigma) / width**2
            b += w * oracle.expected_dphi(row, Z, c, GAMMA, sigma) * pull / width
            b += w * oracle.expected_cross(row, Z, c, GAMMA, sigma, Sigma) / width
    found = oracle.noise_system(x, Z, c, GAMMA, lam, mu, Sigma, levels, weights)
    # 30 terms of a few tens, each rounded some ten times
    np.testing.assert_allclose(found[0].astype(float), matrix, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found[1].astype(float), b, rtol=0, atol=1e-11)
    theta = oracle.theta_ncfd(x, Z, c, GAMMA, lam, mu, Sigma, levels, weights)
    np.testing.assert_allclose(matrix @ theta, b, rtol=0, atol=1e-10)


def test_posterior_is_the_gaussian_of_the_tempered_fisher_objective():
    # ln q(theta) = -L / eta - lam |theta|^2 / 2 + constant: its gradient vanishes at mu-hat and its
    # second derivatives are -Sigma-hat^-1; quadratic, so that differences are exact at any step
    rng, x, Z, c, weights = draw(19)
    mu, Sigma = draw_base(rng)
    lam, eta, h = 0.4, 2.5, 0.5
    mean, covariance = oracle.posterior(x, Z, c, GAMMA, lam, eta, mu, Sigma, weights)
    mean, covariance = mean.astype(float), covariance.astype(float)

    def log_posterior(at):
        fisher = oracle.fisher_objective(x, at, Z, c, GAMMA, mu, Sigma, weights)
        return -fisher / eta - 0.5 * lam * at @ at

    steps, here = h * np.eye(S), log_posterior(mean)
    up = np.array([log_posterior(mean + e) for e in steps])
    down = np.array([log_posterior(mean - e) for e in steps])
    # rounding of the objective, below 1e4: 1e-12 of absolute error over h and h^2
    np.testing.assert_allclose((up - down) / (2 * h), 0.0, rtol=0, atol=1e-10)
    precision = np.linalg.inv(covariance)
    second = np.array(
        [[log_posterior(mean + a + b) - up[i] - up[j] + here for j, b in enumerate(steps)]
         for i, a in enumerate(steps)]
    ) / h**2  # fmt: skip
    np.testing.assert_allclose(-second, precision, rtol=0, atol=1e-9)


def test_predictive_density_integrates_theta_out():
    # one feature in one dimension: the integral over theta that precedes Eq. predictive, on a grid
    rng = np.random.default_rng(20)
    Z, c, x = np.array([[1.3]]), np.array([0.4]), rng.normal(size=(3, 1)) + 0.2
    mu, Sigma, lam, eta = np.array([0.1]), np.array([[1.4]]), 0.8, 3.0
    M, m = oracle.fvpd(x, Z, c, GAMMA, lam, eta, mu, Sigma)
    mean, covariance = (float(v.squeeze()) for v in oracle.posterior(
        x, Z, c, GAMMA, lam, eta, mu, Sigma
    ))  # fmt: skip
    theta = np.linspace(mean - 12 * covariance**0.5, mean + 12 * covariance**0.5, 4_001)
    mu_phi = oracle.mu_phi(Z, c, GAMMA, mu, Sigma)[0]
    sigma_phi = oracle.sigma_phi(Z, c, GAMMA, mu, Sigma)[0, 0]
    y = np.linspace(-3.0, 3.0, 7)[:, None]
    away = oracle.phi(y, Z, c, GAMMA)[:, 0] - mu_phi
    exponent = theta * away[:, None] - 0.5 * theta**2 * sigma_phi
    exponent = exponent - 0.5 * (theta - mean) ** 2 / covariance
    expected = np.log(np.exp(exponent).sum(axis=1))
    expected = expected + oracle.log_q(y, np.zeros(1), Z, c, GAMMA, mu, Sigma)
    found = oracle.log_q_fvpd(y, M, m, Z, c, GAMMA, mu, Sigma)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 2e3])
def test_map_gradient_is_the_derivative_of_the_objective(scale):
    # at scale 2e3 exp(theta^T phi) overflows; central differences of step h err by h^2 n / 6 at
    # most (third cumulants of features below 1) and by 1e-16 |F| / h
    rng, x, Z, c, weights = draw(21)
    nodes, node_weights = rng.normal(size=(50, D)), rng.uniform(0.1, 1.0, 50)
    theta, h = scale * rng.normal(size=S), 1e-4

    def objective(at):
        return oracle.map_objective(x, at, nodes, node_weights, Z, c, GAMMA, 0.6, weights)

    found = oracle.map_gradient(x, theta, nodes, node_weights, Z, c, GAMMA, 0.6, weights)
    steps = h * np.eye(S)
    expected = [(objective(theta + e) - objective(theta - e)) / (2 * h) for e in steps]
    atol = h**2 * weights.sum() / 6 + 4e-16 * abs(objective(theta)) / h
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_map_objective_by_hand():
    x, nodes = np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]])
    Z, c, theta = np.array([[1.0], [2.0]]), np.array([0.0, 0.5]), np.array([0.3, -0.2])

    def features(at):
        return np.array([math.cos(at / GAMMA), math.cos(2 * at / GAMMA + 0.5)])

    gain = theta @ (features(0.0) + 3.0 * features(1.0))
    mass = 0.25 * math.exp(theta @ features(0.0)) + 0.75 * math.exp(theta @ features(2.0))
    expected = gain - 4.0 * math.log(mass) - 0.5 * 2.0 * 0.13
    found = oracle.map_objective(
        x, theta, nodes, np.array([0.25, 0.75]), Z, c, GAMMA, 2.0, np.array([1.0, 3.0])
    )
    assert found == pytest.approx(expected, rel=1e-14)


# -- the base -------------------------------------------------------------------------------------


def test_base_objective_is_the_fisher_objective():
    rng, x, Z, c, weights = draw(22)
    mu, Sigma = draw_base(rng)
    theta, P = rng.normal(size=S), np.linalg.inv(Sigma)
    found = oracle.base_objective(x, theta, P, P @ mu, Z, c, GAMMA, 0.9, weights)
    fisher = oracle.fisher_objective(x, theta, Z, c, GAMMA, mu, Sigma, weights)
    assert found == pytest.approx(fisher + 0.45 * theta @ theta, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_base_updates_are_stationary(weighted):
    # Eq. objective is quadratic in mu at fixed Sigma and in P = Sigma^-1 at fixed mu
    rng, x, Z, c, weights = draw(23)
    weights = weights if weighted else None
    mu, Sigma = draw_base(rng)
    theta, P, h = rng.normal(size=S), np.linalg.inv(Sigma), 0.1
    best = oracle.mu_update(x, theta, Z, c, GAMMA, Sigma, weights)

    def of_mu(at):
        return oracle.base_objective(x, theta, P, P @ at, Z, c, GAMMA, 0.0, weights)

    slopes = [(of_mu(best + e) - of_mu(best - e)) / (2 * h) for e in h * np.eye(D)]
    np.testing.assert_allclose(slopes, 0.0, rtol=0, atol=1e-10)
    assert all(of_mu(best + e) > of_mu(best) for e in h * np.eye(D))
    precision = oracle.precision_update(x, theta, Z, c, GAMMA, mu, weights)
    np.testing.assert_allclose(precision, precision.T, rtol=1e-12)

    def of_precision(at):
        return oracle.base_objective(x, theta, at, at @ mu, Z, c, GAMMA, 0.0, weights)

    for a in range(D):
        for b in range(a, D):
            step = np.zeros((D, D))
            step[a, b] = step[b, a] = h
            up, down = of_precision(precision + step), of_precision(precision - step)
            assert abs(up - down) / (2 * h) <= 1e-10
            assert up > of_precision(precision)


# -- marginal CDFs --------------------------------------------------------------------------------


def test_marginal_cdf_by_counting():
    x = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [2.0, -1.0], [-3.0, 4.0]])
    weights = np.array([0.5, 1.0, 2.0, 0.25, 0.25])
    direction = np.array([1.0, 0.5])  # projections 0.5, 1, 1, 1.5, -1
    grid = np.array([-2.0, -1.0, 0.0, 1.0, 1.25, 1.5, 9.0])
    counted = [sum(w for p, w in zip(x @ direction, weights, strict=True) if p <= g) for g in grid]
    np.testing.assert_array_equal(oracle.marginal_weight(x, direction, grid, weights), counted)
    np.testing.assert_array_equal(
        oracle.marginal_cdf(x, direction, grid, weights), np.array(counted) / 4.0
    )
    np.testing.assert_array_equal(
        oracle.marginal_cdf(x, direction, grid), [0.0, 0.2, 0.2, 0.8, 0.8, 1.0, 1.0]
    )


def test_marginal_excess_and_distances_by_hand():
    x, y = np.array([[0.0], [1.0], [5.0]]), np.array([[1.0], [3.0]])
    one = np.ones(1)
    assert oracle.marginal_excess(x, one, np.array([0.5, 2.0])) == (0.5, 3.0)
    assert oracle.marginal_excess(x, one, np.array([0.5, 2.0]), [2.0, 1.0, 0.5]) == (1.0, 1.5)
    # P - Q is 1/3 on [0, 1), 2/3 - 1/2 on [1, 3), 2/3 - 1 on [3, 5)
    assert oracle.marginal_distances(x, y, one) == (pytest.approx(1 / 3), pytest.approx(4 / 3))
    # with weights (1, 1, 2): 1/4, then 1/2 - 1/2, then 1/2 - 1
    weighted = oracle.marginal_distances(x, y, one, [1.0, 1.0, 2.0])
    assert weighted == (pytest.approx(0.5), pytest.approx(0.25 + 1.0))


def test_fisher_score_of_a_normal_law_is_minus_half_its_dimension():
    x = np.random.default_rng(0).standard_normal((200_000, 3))
    terms = 0.5 * np.square(x).sum(axis=1) - 3.0
    assert_monte_carlo(terms, np.array(-1.5))
    assert oracle.fisher_score(-x, np.full(len(x), -3.0)) == pytest.approx(terms.mean(), rel=1e-12)


# -- bases beyond one Gaussian --------------------------------------------------------------------


def draw_mixture(rng, K=3):
    shares = rng.dirichlet(np.full(K, 5.0))
    half = rng.normal(size=(K, D, D)) / 2
    return shares, rng.normal(size=(K, D)), half @ half.transpose(0, 2, 1) + 0.5 * np.eye(D)


def any_base(kind, rng):
    """(log density, score, Hessian, parameters) of the oracle."""
    if kind == "mixture":
        return (
            oracle.mixture_log_density, oracle.mixture_score, oracle.mixture_hessian,
            draw_mixture(rng),
        )  # fmt: skip
    functions = oracle.student_log_density, oracle.student_score, oracle.student_hessian
    return *functions, (*draw_base(rng), 3.5)


def test_log_densities_of_mixture_and_student_against_scipy():
    rng, x, *_ = draw(20)
    shares, means, covariances = draw_mixture(rng)
    parts = [
        p * scipy.stats.multivariate_normal(m, C).pdf(x)
        for p, m, C in zip(shares, means, covariances, strict=True)
    ]
    got = oracle.mixture_log_density(x, shares, means, covariances)
    # squared distances below 1e3 with covariances of condition below 100: some 1e-13 of them
    np.testing.assert_allclose(got, np.log(sum(parts)), rtol=0, atol=1e-10)
    mu, Sigma = draw_base(rng)
    for nu in (0.7, 3.0, 50.0):
        want = scipy.stats.multivariate_t(mu, Sigma, df=nu).logpdf(x)
        np.testing.assert_allclose(
            oracle.student_log_density(x, mu, Sigma, nu), want, rtol=0, atol=1e-10
        )


@pytest.mark.parametrize("kind", ["mixture", "student"])
def test_score_and_hessian_of_bases_against_finite_differences(kind):
    # central differences of step h = 1e-5: h^2/6 times a third derivative, below 1e3 here, plus
    # the rounding of a value below 100 by 1e-14, over h: 2e-8 + 1e-7
    rng, x, *_ = draw(21)
    log_density, score, hessian, parameters = any_base(kind, rng)
    h = 1e-5
    for k, step in enumerate(h * np.eye(D)):
        slope = log_density(x + step, *parameters) - log_density(x - step, *parameters)
        got = score(x, *parameters)[:, k]
        np.testing.assert_allclose(got, slope / (2 * h), rtol=0, atol=2e-7)
        bend = score(x + step, *parameters) - score(x - step, *parameters)
        got = hessian(x, *parameters)[:, k]
        np.testing.assert_allclose(got, bend / (2 * h), rtol=0, atol=2e-7)


def test_moments_of_a_mixture_by_monte_carlo():
    rng, _, Z, c, _ = draw(22)
    shares, means, covariances = draw_mixture(rng)
    index = rng.choice(len(shares), 100_000, p=shares)
    noise = np.einsum("nij,nj->ni", np.linalg.cholesky(covariances)[index],
                      rng.standard_normal((len(index), D)))  # fmt: skip
    x = means[index] + noise
    mean, covariance = oracle.mixture_moments(shares, means, covariances)
    assert_monte_carlo(x, mean)
    assert_monte_carlo(np.einsum("ni,nj->nij", x - mean, x - mean), covariance)
    mean, covariance = oracle.mixture_feature_moments(Z, c, GAMMA, shares, means, covariances)
    features = oracle.phi(x, Z, c, GAMMA)
    assert_monte_carlo(features, mean)
    assert_monte_carlo(np.einsum("ns,nt->nst", features - mean, features - mean), covariance)
    v, grid = np.array([0.3, -1.0, 0.5]), np.array([-2.0, -0.5, 0.3, 1.5])
    below = (x @ v)[:, None] <= grid
    want = oracle.mixture_marginal_cdf(v, grid, shares, means, covariances)
    assert_monte_carlo(below.astype(float), want)


@pytest.mark.parametrize("kind", ["mixture", "student"])
def test_theta_fd_any_is_where_the_objective_is_flat(kind):
    rng, x, Z, c, weights = draw(23)
    _, score, hessian, parameters = any_base(kind, rng)
    s0, trace = score(x, *parameters), np.trace(hessian(x, *parameters), axis1=1, axis2=2)
    best = oracle.theta_fd_any(x, Z, c, GAMMA, 0.3, s0, weights)

    def at(theta):
        return oracle.fisher_objective_any(x, theta, Z, c, GAMMA, 0.3, s0, trace, weights)

    # quadratic, so that central differences are exact for any step, but for rounding
    scale = abs(at(best)) + 1.0
    for step in np.eye(S):
        assert abs(at(best + step) - at(best - step)) / 2 <= 1e-11 * scale
        assert at(best + step) > at(best)


def test_theta_fd_any_of_a_gaussian_is_algorithm_2():
    rng, x, Z, c, weights = draw(24)
    mu, Sigma = draw_base(rng)
    score = -np.linalg.solve(Sigma, (x - mu).T).T
    want = oracle.theta_fd(x, Z, c, GAMMA, 0.3, mu, Sigma, weights)
    got = oracle.theta_fd_any(x, Z, c, GAMMA, 0.3, score, weights)
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_em_step_raises_the_likelihood_and_is_exact_for_one_component():
    rng, x, _, _, weights = draw(25, n=80)
    mean, covariance = np.average(x, axis=0, weights=weights), np.cov(
        x.T, aweights=weights, ddof=0
    )
    found = oracle.em_step(x, weights, [1.0], np.zeros((1, D)), np.eye(D)[None], 0.25)
    np.testing.assert_allclose(found[1][0], mean, rtol=1e-12)
    np.testing.assert_allclose(found[2][0], covariance + 0.25 * np.eye(D), rtol=1e-12)
    state = draw_mixture(rng)
    for _ in range(5):
        before = weights @ oracle.mixture_log_density(x, *state)
        state = oracle.em_step(x, weights, *state, 0.0)
        assert weights @ oracle.mixture_log_density(x, *state) > before
