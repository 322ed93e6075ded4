"""From statistics to theta and (M, m): Algorithms 2, 3 and 4 against the oracle."""

import dataclasses
import importlib
import math
import tracemalloc
import warnings

import numpy as np
import oracle
import pytest

import tgpfast as tgp
from tgpfast.solvers.closed_form import fd_thetas, fvpd_exponent, fvpd_system
from tgpfast.solvers.linear_systems import (
    cholesky,
    factorize,
    solve_iteratively,
    solve_system,
)
from tgpfast.statistics.fisher import fd_system, ncfd_system

solve_module = importlib.import_module("tgpfast.solvers.solver")  # tgp.solve is the function

LEVELS = (0.0, 0.4, 1.1)
# The sums err by some 1e-15 of their largest terms and a solution by condition times that; 30 is
# for the length of the sums and for cancellation between the two terms of b.
FACTOR = 30e-15


@dataclasses.dataclass
class Problem:
    """Data, features, a base and their statistics."""

    x: np.ndarray
    weights: np.ndarray | None
    features: tgp.Features
    base: tgp.GaussianBase
    stats: tgp.Statistics

    @property
    def z_c_gamma(self):
        return self.features.frequencies, self.features.phases, self.features.bandwidth

    @property
    def mu_sigma(self):
        return self.base.mean, self.base.covariance


def make(
    d=3, n_features=30, gamma=0.9, n=400, *, weighted=True, origin=None, levels=LEVELS, seed=0
):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + 0.5
    w = rng.uniform(0.5, 1.5, n) if weighted else None
    half = rng.standard_normal((d, d)) / math.sqrt(d)
    base = tgp.GaussianBase(rng.normal(0.3, 0.3, d), half @ half.T + np.eye(d))
    features = tgp.Features.draw(n_features, gamma, np.eye(d), seed=2)
    stats = tgp.accumulate(
        x, features, sample_weight=w, origin=origin, noise_levels=levels, precision="float64"
    )
    return Problem(x, w, features, base, stats)


def scaled(stats, k):
    """The statistics of k copies of the data."""
    names = (
        "n", "sum_w2", "sum_x", "sum_xx", "sum_phi", "sum_dphi", "sum_dphi_x", "gram",
        "noise_gram", "noise_sum_phi", "noise_sum_dphi", "noise_sum_dphi_x",
    )  # fmt: skip
    values = {name: getattr(stats, name) for name in names}
    return dataclasses.replace(
        stats, **{name: None if v is None else k * v for name, v in values.items()}
    )


def relative(found, expected):
    return float(np.abs(found - expected).max() / np.abs(expected).max())


CASES = {
    "d=1": {"d": 1, "n_features": 12, "gamma": 0.8},
    "d=3": {"d": 3},
    "d=6": {"d": 6, "n_features": 50},
    "unweighted": {"weighted": False},
    "origin": {"origin": [0.2, -0.4, 1.0]},
    "one feature": {"d": 2, "n_features": 1},
    "one row": {"n": 1},
    "ill-conditioned": {"d": 1, "n_features": 40, "gamma": 2.0},
}
EASY = {"d=3", "d=6", "unweighted", "origin", "one feature", "one row"}


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    return request.param, make(**CASES[request.param])


# -- Algorithms 2, 3 and 4 against the oracle -----------------------------------------------------


@pytest.mark.parametrize("method", ["fd", "ncfd"])
def test_theta_equals_the_oracle(case, method):
    name, problem = case
    lam = 0.5
    model = tgp.solve(problem.stats, problem.base, method, lam)
    args = (problem.x, *problem.z_c_gamma, lam, *problem.mu_sigma)
    if method == "fd":
        # sigma = 0 in Algorithm 3, which is in long double, is Algorithm 2 (a test of the oracle)
        want = oracle.theta_ncfd(*args, (0.0,), problem.weights)
        system, _ = fd_system(problem.stats, problem.base)
        shift = lam * problem.features.bandwidth**2
    else:
        want = oracle.theta_ncfd(*args, LEVELS, problem.weights)
        system, _ = ncfd_system(problem.stats, problem.base)
        shift = lam * len(LEVELS)
    condition = np.linalg.cond(system + shift * np.eye(len(system)))
    bound = FACTOR * condition
    assert (bound <= 1e-8) or name not in EASY
    assert relative(model.theta, want) <= bound
    assert model.diagnostics["residual"] <= 1e-13
    assert model.diagnostics["added_to_diagonal"] == 0.0
    y = problem.x[:50] + 0.1
    if method == "fd":
        b = fd_system(problem.stats, problem.base)[1]
        thetas = fd_thetas(system, b, (lam, 2 * lam), problem.features.bandwidth)
        assert relative(thetas[:, 0], want) <= bound
        plain = oracle.theta_fd(*args, problem.weights)
        assert relative(model.theta, plain) <= bound
    found = model.log_density(y, normalized=False)
    expected = oracle.log_q(y, want, *problem.z_c_gamma, *problem.mu_sigma)
    # |phi| is about 1, at most sqrt 2
    atol = bound * np.linalg.norm(want) * math.sqrt(2 * len(want)) + 1e-13 * abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("eta", [None, 0.3, 20.0])
def test_fvpd_equals_the_oracle(case, eta):
    name, problem = case
    lam, gamma = 0.5, problem.features.bandwidth
    model = tgp.solve(problem.stats, problem.base, "fvpd", lam, eta)
    tempering = 1.0 / gamma**2 if eta is None else eta
    assert model.settings["eta"] == tempering
    M, m = oracle.fvpd(
        problem.x, *problem.z_c_gamma, lam, tempering, *problem.mu_sigma, problem.weights
    )
    # M and m need no solution of a system: sums of up to 400 terms, and products of factors
    assert relative(model.M, M) <= 1e-13
    assert relative(model.m, m) <= 1e-12
    condition = np.linalg.cond(M)
    bound = FACTOR * condition
    assert (bound <= 1e-8) or name not in EASY
    y = problem.x[:50] + 0.1
    found = model.log_density(y, normalized=False)
    expected = oracle.log_q_fvpd(y, M, m, *problem.z_c_gamma, *problem.mu_sigma)
    linear = np.linalg.norm(np.linalg.solve(M, m)) + np.linalg.norm(np.linalg.inv(M), 2)
    atol = bound * linear * math.sqrt(2 * len(m)) + 1e-13 * abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("overwrite", [False, True])
def test_fvpd_on_arrays_is_that_of_solve(overwrite):
    """M, m and the exponent at points whose features are known."""
    problem, lam, eta = make(), 0.5, 2.0
    model = tgp.solve(problem.stats, problem.base, "fvpd", lam, eta)
    system, b = fd_system(problem.stats, problem.base)
    before, moments = system.copy(), problem.base.feature_moments(problem.features)
    matrix, m = fvpd_system(system, b, moments, 0.9, eta, overwrite=overwrite)
    assert np.array_equal(system, before) is not overwrite
    matrix = matrix + lam * np.eye(len(m))
    assert relative(matrix, model.M) <= 1e-13
    np.testing.assert_array_equal(m, model.m)
    phi = oracle.phi(problem.x[:20], *problem.z_c_gamma).T
    values = fvpd_exponent(np.linalg.cholesky(matrix), m, phi)
    want = [0.5 * p @ np.linalg.solve(matrix, p) - p @ np.linalg.solve(matrix, m) for p in phi.T]
    np.testing.assert_allclose(values, want, rtol=0, atol=FACTOR * np.linalg.cond(matrix))


def test_fd_of_an_indefinite_matrix_is_nan():
    """For that lambda alone."""
    thetas = fd_thetas(-np.eye(3), np.ones(3), (0.5, 3.0), 1.0)
    assert np.isnan(thetas[:, 0]).all()
    np.testing.assert_allclose(thetas[:, 1], 0.5)


def test_the_comparison_notices_a_wrong_lambda():
    """Negative control: a per cent of lambda is far outside the tolerance."""
    problem = make()
    args = (problem.x, *problem.z_c_gamma, 0.505, *problem.mu_sigma)
    want = oracle.theta_ncfd(*args, (0.0,), problem.weights)
    model = tgp.solve(problem.stats, problem.base, "fd", 0.5)
    assert relative(model.theta, want) > 1e-6


def test_eta_default_is_one_over_gamma_squared():
    problem = make(gamma=0.7)
    default = tgp.solve(problem.stats, problem.base, "fvpd", 0.5)
    named = tgp.solve(problem.stats, problem.base, "fvpd", 0.5, 1.0 / 0.7**2)
    other = tgp.solve(problem.stats, problem.base, "fvpd", 0.5, 1.0)
    np.testing.assert_array_equal(default.M, named.M)
    np.testing.assert_array_equal(default.m, named.m)
    assert relative(other.m, default.m) > 0.1


def test_ncfd_without_noise_is_fd():
    problem = make(levels=(0.0,))
    fd = tgp.solve(problem.stats, problem.base, "fd", 0.3)
    ncfd = tgp.solve(problem.stats, problem.base, "ncfd", 0.3)
    # the systems differ by the factor gamma^2 alone
    assert relative(ncfd.theta, fd.theta) <= FACTOR * fd.diagnostics["condition"]


def test_statistics_without_weights_are_those_of_unit_weights():
    problem = make(weighted=False)
    ones = tgp.accumulate(
        problem.x, problem.features, sample_weight=np.ones(400), precision="float64"
    )
    a = tgp.solve(problem.stats, problem.base, "fd", 0.3)
    b = tgp.solve(ones, problem.base, "fd", 0.3)
    assert relative(a.theta, b.theta) <= FACTOR * a.diagnostics["condition"]


def test_settings_record_the_choices():
    problem = make()
    model = tgp.solve(problem.stats, problem.base, "ncfd", 0.25)
    assert model.method == model.settings["method"] == "ncfd"
    assert model.settings["lam"] == 0.25
    assert model.settings["gamma"] == 0.9
    assert model.settings["n"] == problem.stats.n
    assert model.settings["noise_levels"] == list(LEVELS)
    assert model.settings["seed"] == 2
    assert "eta" not in model.settings


# -- optimality -----------------------------------------------------------------------------------


def test_fd_theta_is_the_minimum():
    """Eq. objective + lam |theta|^2 / 2 is quadratic: differences are exact at any step."""
    problem = make(n_features=10, n=200)
    lam, h = 0.4, 0.1
    theta = tgp.solve(problem.stats, problem.base, "fd", lam).theta

    def objective(at):
        fisher = oracle.fisher_objective(
            problem.x, at, *problem.z_c_gamma, *problem.mu_sigma, problem.weights
        )
        return fisher + 0.5 * lam * at @ at

    steps = h * np.eye(10)
    slopes = np.array([(objective(theta + e) - objective(theta - e)) / (2 * h) for e in steps])
    # 200 terms below 100, rounded a few times each: 1e-16 * 2e4 * a few / h
    np.testing.assert_allclose(slopes, 0.0, rtol=0, atol=1e-9)
    assert all(objective(theta + e) > objective(theta) for e in steps)


def noise_gradients(problem, theta, lam, n_replicates, seed):
    """Draws of the gradient in theta of mean_sigma L_sigma + lam |theta|^2 / 2, (replicates, S).

    One draw of the noise for every row and level in each (Eq. noiseobj).
    """
    rng = np.random.default_rng(seed)
    Z, c, gamma = problem.z_c_gamma
    mu, Sigma = problem.mu_sigma
    (n, d), total = problem.x.shape, np.zeros((n_replicates, len(Z)))
    for sigma in LEVELS:
        width, noisy = oracle.gamma_sigma(gamma, sigma), Sigma + sigma**2 * np.eye(d)
        y = (problem.x + sigma * rng.standard_normal((n_replicates, n, d))).reshape(-1, d)
        sine, cosine = oracle.dphi(y, Z, c, width), oracle.phi(y, Z, c, width)
        slope = (sine * theta) @ Z / width - np.linalg.solve(noisy, (y - mu).T).T
        terms = sine * (slope @ Z.T) / width - cosine * (Z**2).sum(axis=1) / width**2
        weighted = terms.reshape(n_replicates, n, -1) * problem.weights[:, None]
        total += weighted.sum(axis=1) / len(LEVELS)
    return total + lam * theta


@pytest.mark.slow
def test_ncfd_has_zero_monte_carlo_gradient():
    """Within 5 standard errors of zero; a theta that is wrong by 5 per cent of |theta| is not."""
    problem = make(n_features=8, n=40)
    lam = 0.5
    theta = tgp.solve(problem.stats, problem.base, "ncfd", lam).theta

    def worst(at):
        draws = noise_gradients(problem, at, lam, 500, seed=7)
        errors = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
        return float(np.abs(draws.mean(axis=0) / errors).max())

    assert worst(theta) <= 5.0
    shift = np.random.default_rng(8).standard_normal(8)
    assert worst(theta + 0.05 * np.linalg.norm(theta) * shift / np.linalg.norm(shift)) > 5.0


@pytest.mark.parametrize("eta", [None, 1.0])
def test_fvpd_tends_to_fd(eta):
    """With k times the data, -M^-1 m and theta_fd differ by C/k, and phi^T M^-1 phi is C/k.

    Both are C/k (1 + e) with |e| <= |Sigma_phi + lam (1 + gamma^2 eta) I| / (k least eigenvalue of
    the data's part of M): the premise is asserted, 0.03 at k = 100, so that ratios are in 10 +- 1.
    """
    problem = make(d=4, n_features=15, gamma=1.0, n=2_000, levels=())
    lam, gamma = 0.1, problem.features.bandwidth
    tempering = 1.0 / gamma**2 if eta is None else eta
    system, _ = fd_system(problem.stats, problem.base)
    least = np.linalg.eigvalsh(system)[0] / (gamma**2 * tempering)
    _, sigma_phi = problem.base.feature_moments(problem.features)
    assert (np.linalg.norm(sigma_phi, 2) + lam * (1 + gamma**2 * tempering)) / (1e2 * least) < 0.03
    phi = oracle.phi(problem.x[:20], *problem.z_c_gamma)
    differences, forms = [], []
    for k in (1e2, 1e3, 1e4):
        stats = scaled(problem.stats, k)
        fd = tgp.solve(stats, problem.base, "fd", lam)
        fvpd = tgp.solve(stats, problem.base, "fvpd", lam, eta)
        M = fvpd.M
        differences.append(np.linalg.norm(-np.linalg.solve(M, fvpd.m) - fd.theta))
        forms.append((phi * np.linalg.solve(M, phi.T).T).sum(axis=1).max())
    for values in (differences, forms):
        ratios = np.array(values[:-1]) / np.array(values[1:])
        assert np.all((ratios > 9.0) & (ratios < 11.0)), ratios
    assert differences[0] > 1e-6  # not rounding


# -- conjugate gradients --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide():
    return make(d=5, n_features=700, n=1_200, levels=(0.0, 0.5))


@pytest.fixture(scope="module")
def small():
    return make(d=5, n_features=64, n=500, levels=())


@pytest.mark.parametrize("method", ["fd", "ncfd"])
def test_cg_equals_cholesky(wide, method):
    exact = tgp.solve(wide.stats, wide.base, method, 1.0, solver="cholesky")
    cg = tgp.solve(wide.stats, wide.base, method, 1.0, solver="cg")
    report = cg.diagnostics
    assert report["solver"] == "cg"
    assert exact.diagnostics["solver"] == "cholesky"
    assert 0.0 < report["residual"] <= 1e-10
    assert 1 <= report["steps"] <= 2_000
    assert report["rank"] == 700 // 8
    # |error| / |theta| <= condition * residual; the 1-norm condition is the larger here
    error = np.linalg.norm(cg.theta - exact.theta) / np.linalg.norm(exact.theta)
    assert error <= exact.diagnostics["condition"] * (report["residual"] + 1e-14)
    system, b = (fd_system if method == "fd" else ncfd_system)(wide.stats, wide.base)
    shift = 1.0 * wide.features.bandwidth**2 if method == "fd" else 2.0
    residual = np.linalg.norm(system @ cg.theta + shift * cg.theta - b) / np.linalg.norm(b)
    # measured, not claimed: rounding of a product of 700 terms is all that may differ
    assert residual == pytest.approx(report["residual"], abs=1e-13)


def test_auto_takes_cg_above_a_number_of_features(small, monkeypatch):
    assert tgp.solve(small.stats, small.base).diagnostics["solver"] == "cholesky"
    monkeypatch.setattr(solve_module, "CG_FEATURES", 63)
    assert tgp.solve(small.stats, small.base, lam=1.0).diagnostics["solver"] == "cg"
    assert tgp.solve(small.stats, small.base, "fvpd").diagnostics["solver"] == "cholesky"
    named = tgp.solve(small.stats, small.base, solver="cholesky")
    assert named.diagnostics["solver"] == "cholesky"
    monkeypatch.setattr(solve_module, "CG_FEATURES", 64)
    assert tgp.solve(small.stats, small.base).diagnostics["solver"] == "cholesky"


def test_cg_is_repeatable_and_seeded(small):
    a, b, other = (
        tgp.solve(small.stats, small.base, lam=1.0, solver="cg", seed=s).theta for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, other)


def test_cg_stopped_early_says_so(small):
    with pytest.warns(RuntimeWarning, match="relative residual of .* after 2 steps"):
        model = tgp.solve(small.stats, small.base, solver="cg", n_steps=2)
    assert model.diagnostics["steps"] == 2
    assert model.diagnostics["residual"] > 1e-6


def test_cg_keeps_its_best_iterate():
    """The residual of an iterate may rise, that of the result may not: more steps never harm."""
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.standard_normal((40, 40)))
    matrix = (q * np.logspace(0, 3, 40)) @ q.T
    matrix, b = 0.5 * (matrix + matrix.T), rng.standard_normal(40)
    residuals = []
    for n_steps in range(1, 26):
        with pytest.warns(RuntimeWarning, match="relative residual"):
            x, report = solve_iteratively(matrix, b, 1e-3, n_steps=n_steps)
        residuals.append(np.linalg.norm(matrix @ x + 1e-3 * x - b) / np.linalg.norm(b))
        assert residuals[-1] == pytest.approx(report["residual"], abs=1e-12)
    falls = -np.diff(residuals)
    assert np.all(falls >= 0.0)
    # after the first that helped, some steps did not, and were not kept
    assert 0.0 in falls[np.argmax(falls > 0.0) :]


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_cg_goes_on_while_the_residual_does_not_fall(gamma):
    """Fewer rows than features and a small lam: the residual rises for more than 50 steps, and
    then falls to what is promised."""
    x = np.random.default_rng(0).standard_normal((50, 4))
    features = tgp.Features.draw(200, gamma, np.eye(4), seed=0)
    stats = tgp.accumulate(x, features, engine="direct", precision="float64")
    model = tgp.solve(stats, tgp.GaussianBase.from_data(x), lam=1e-4, solver="cg")
    assert model.diagnostics["residual"] <= 1e-12 * (1 + 1e-12)


def test_cg_above_what_is_promised_says_so(small):
    """However little above."""
    done = tgp.solve(small.stats, small.base, lam=1.0, solver="cg").diagnostics
    with pytest.warns(RuntimeWarning, match="stopped at a relative residual of"):
        early = tgp.solve(
            small.stats, small.base, lam=1.0, solver="cg", n_steps=done["steps"] - 4
        ).diagnostics
    assert done["residual"] <= 1e-12 < early["residual"] < 1e-6


def test_cg_from_a_start_and_of_nothing():
    rng = np.random.default_rng(1)
    half = rng.standard_normal((30, 60))
    matrix, b = half @ half.T, rng.standard_normal(30)
    exact = np.linalg.solve(matrix + np.eye(30), b)
    x, report = solve_iteratively(matrix, b, 1.0, start=exact)
    assert report["steps"] <= 3
    np.testing.assert_allclose(x, exact, rtol=0, atol=1e-11)
    x, report = solve_iteratively(matrix, np.zeros(30), 1.0)
    assert not x.any()
    assert report["residual"] == 0.0
    assert report["steps"] == 0


# -- conditioning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("log_condition", [0, 3, 6, 9, 12])
def test_condition_is_measured(log_condition):
    """LAPACK's estimate of the 1-norm condition is a lower bound, seldom below a third of it."""
    rng = np.random.default_rng(log_condition)
    q, _ = np.linalg.qr(rng.standard_normal((50, 50)))
    matrix = (q * np.logspace(-log_condition, 0, 50)) @ q.T
    matrix = 0.5 * (matrix + matrix.T)
    want = np.linalg.cond(matrix, 1)
    factor, found = cholesky(matrix.copy())
    assert want / 3 <= found <= 1.01 * want
    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(factor, np.tril(factor))


@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd"])
def test_condition_is_in_the_diagnostics(method):
    problem = make(n_features=40)
    model = tgp.solve(problem.stats, problem.base, method, 0.5)
    if method == "fvpd":
        matrix = model.M
    else:
        matrix, _ = (fd_system if method == "fd" else ncfd_system)(problem.stats, problem.base)
        shift = 0.5 * (0.9**2 if method == "fd" else len(LEVELS))
        matrix = matrix + shift * np.eye(40)
    want = np.linalg.cond(matrix, 1)
    assert want / 3 <= model.diagnostics["condition"] <= 1.01 * want


def nearly_singular():
    """A system of 40 features from 5 rows in one dimension: its rank is 5."""
    return make(d=1, n_features=40, gamma=1.0, n=5, weighted=False, levels=(0.0,))


@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd"])
def test_ill_conditioning_is_warned_about(method):
    """lam at 1/3e13 of the system: above the rounding of its entries, above the limit of 1e13."""
    problem = nearly_singular()
    if method == "fvpd":
        # Sigma_phi, of falling spectrum, is part of M: a base that is narrow makes it negligible
        base = tgp.GaussianBase(problem.base.mean, [[1e-40]])
    else:
        base = problem.base
    gamma = problem.features.bandwidth
    norm = np.abs(fd_system(problem.stats, base)[0]).sum(axis=0).max()
    lam = norm / gamma**2 / 3e13
    with pytest.warns(RuntimeWarning, match="ill-conditioned .condition number .*e.13") as caught:
        model = tgp.solve(problem.stats, base, method, lam, 1.0)
    assert len(caught) == 1
    assert 1e13 < model.diagnostics["condition"] < 1e14
    assert model.diagnostics["added_to_diagonal"] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tgp.solve(problem.stats, base, method, 10 * lam, 1.0)


@pytest.mark.parametrize("method", ["fd", "ncfd"])
def test_lost_definiteness_is_repaired_and_reported(method):
    problem = nearly_singular()
    with pytest.warns(RuntimeWarning, match="was added to the diagonal") as caught:
        model = tgp.solve(problem.stats, problem.base, method, 1e-300)
    assert len(caught) == 1
    added = model.diagnostics["added_to_diagonal"]
    system, b = (fd_system if method == "fd" else ncfd_system)(problem.stats, problem.base)
    scale = np.abs(np.diag(system)).max()
    # the first try is 40 units of rounding of the largest entry, then tens of that
    assert 40 * 2.2e-16 * scale <= added * (1 + 1e-9)
    assert added <= 1e-2 * scale
    assert f"{added:.1e}" in str(caught[0].message)
    assert "lam" in str(caught[0].message)
    theta = model.theta
    assert np.isfinite(theta).all()
    residual = np.linalg.norm(system @ theta + added * theta - b) / np.linalg.norm(b)
    assert residual == pytest.approx(model.diagnostics["residual"], rel=1e-2, abs=1e-12)


def test_nothing_is_added_without_need(monkeypatch):
    """Negative control: a Cholesky that always fails once makes the guard add and warn."""
    matrix = np.diag([1.0, 2.0, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factor, report = factorize(matrix, 0.5)
    assert report["added_to_diagonal"] == 0.0
    np.testing.assert_allclose(factor @ factor.T, matrix + 0.5 * np.eye(3), rtol=1e-15)
    np.testing.assert_array_equal(matrix, np.diag([1.0, 2.0, 3.0]))  # kept
    calls = []

    def failing(attempt):
        calls.append(attempt.copy())
        if len(calls) == 1:
            raise np.linalg.LinAlgError("made to fail")
        return cholesky(attempt)

    monkeypatch.setattr("tgpfast.solvers.linear_systems.cholesky", failing)
    with pytest.warns(RuntimeWarning, match="not positive definite in floating point"):
        _, report = factorize(matrix, 0.5)
    assert report["added_to_diagonal"] == pytest.approx(3 * 2.220446049250313e-16 * 3.5)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (-np.eye(4), "far from positive definite"),
        (np.diag([1.0, 1.0, -0.5]), "far from positive definite"),
        (np.diag([1.0, np.nan, 1.0]), "not finite"),
        (np.diag([1.0, np.inf, 1.0]), "not finite"),
    ],
)
def test_systems_of_no_statistics_are_refused(matrix, match):
    with pytest.raises(ValueError, match=match):
        solve_system(matrix, np.ones(len(matrix)), 0.1, "cholesky", 10, 0)


def test_cholesky_refuses_what_is_not_positive_definite():
    with pytest.raises(np.linalg.LinAlgError, match="leading minor"):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))


# -- bad input ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good():
    return make(n_features=6, n=30, levels=())


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"stats": "file.npz"}, TypeError, "stats must be tgpfast.Statistics, got str"),
        ({"stats": None}, TypeError, "stats must be tgpfast.Statistics"),
        ({"base": "empirical"}, TypeError, "base must be a base of tgpfast, got str"),
        ({"base": (np.zeros(3), np.eye(3))}, TypeError, "base must be a base"),
        ({"base": tgp.GaussianBase([0.0], [[1.0]])}, ValueError, "dimension 1, .* have 3"),
        ({"lam": 0}, ValueError, "lam=0: expected a finite number above 0"),
        ({"lam": -1.0}, ValueError, "lam=-1.0"),
        ({"lam": math.nan}, ValueError, "lam=nan"),
        ({"lam": math.inf}, ValueError, "lam=inf"),
        ({"lam": True}, TypeError, "lam=True: expected a number"),
        ({"lam": "1"}, TypeError, "lam='1': expected a number"),
        ({"lam": None}, TypeError, "lam=None"),
        ({"method": "fvpd", "eta": 0.0}, ValueError, "eta=0.0"),
        ({"method": "fvpd", "eta": -2}, ValueError, "eta=-2"),
        ({"method": "fvpd", "eta": math.nan}, ValueError, "eta=nan"),
        ({"method": "fvpd", "eta": False}, TypeError, "eta=False"),
        ({"eta": -1.0}, ValueError, "eta=-1.0"),
        ({"method": "FD"}, ValueError, "method='FD': expected one of 'fd', 'ncfd', 'fvpd', 'map'"),
        ({"method": None}, ValueError, "method=None"),
        ({"solver": "lu"}, ValueError, "solver='lu': method='fd' takes one of 'auto', 'cholesky'"),
        ({"solver": None}, ValueError, "solver=None"),
        ({"method": "fvpd", "solver": "cg"}, ValueError, "method='fvpd' takes one of"),
        ({"method": "map", "solver": "cg"}, ValueError, "'auto', 'newton', 'gradient'"),
        ({"solver": "newton"}, ValueError, "solver='newton': method='fd'"),
        ({"method": "ncfd"}, ValueError, "needs statistics with noise levels"),
        ({"method": "map", "n_draws": 0}, ValueError, "n_draws=0"),
        ({"method": "map", "n_draws": 1.5}, ValueError, "n_draws=1.5"),
        ({"method": "map", "n_draws": True}, ValueError, "n_draws=True"),
        ({"method": "fvpd", "eta": 1e-320}, ValueError, "loses digits"),
        ({"lam": 5e-324}, ValueError, "loses digits"),
        ({"lam": 1.7e308}, ValueError, "overflows"),
        ({"lam": 10**400}, ValueError, "finite number"),
    ],
)
def test_bad_arguments(good, changes, error, match):
    arguments = {"stats": good.stats, "base": good.base, **changes}
    with pytest.raises(error, match=match):
        tgp.solve(arguments.pop("stats"), arguments.pop("base"), **arguments)


@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd", "map"])
def test_statistics_of_no_rows(good, method):
    none = tgp.Statistics.zero(good.features, noise_levels=LEVELS)
    with pytest.raises(ValueError, match="the statistics have no rows"):
        tgp.solve(none, good.base, method)


def test_the_statistics_are_left_as_they_were():
    """Solving writes into none of its inputs: the same statistics serve the next solve."""
    problem = make(n_features=10)
    before = {
        f.name: np.array(getattr(problem.stats, f.name), copy=True)
        for f in dataclasses.fields(problem.stats)
        if isinstance(getattr(problem.stats, f.name), np.ndarray)
    }
    first = {m: tgp.solve(problem.stats, problem.base, m) for m in ("fd", "ncfd", "fvpd")}
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(problem.stats, name), value, err_msg=name)
    again = tgp.solve(problem.stats, problem.base, "fd")
    np.testing.assert_array_equal(again.theta, first["fd"].theta)


def test_an_iterative_solution_of_nothing_but_the_shift():
    theta, report = solve_iteratively(np.zeros((5, 5)), np.ones(5), 2.0)
    assert np.allclose(theta, 0.5)
    assert report["residual"] < 1e-12


def test_values_that_are_not_finite_are_named():
    matrix = np.eye(3)
    matrix[0, 1] = matrix[1, 0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        factorize(matrix, 1.0)


def test_warnings_point_at_the_callers_line():
    with pytest.warns(RuntimeWarning, match="ill-conditioned") as caught:
        factorize(np.diag([1.0, 1e-15]), 1e-30)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("options", [{"backend": "cuda"}, {"n_threads": 0}])
def test_bad_backend_and_threads_are_errors_before_any_work(options, small):
    with pytest.raises(ValueError, match=next(iter(options))):
        tgp.solve(small.stats, small.base, **options)


@pytest.mark.slow
def test_cg_of_eight_thousand_features_within_memory():
    """What is made beside the statistics: the system, a sketch of rank 1,000 with its factors, and
    vectors; never a second matrix of S x S."""
    n_features = 8_000
    x = np.random.default_rng(0).standard_normal((300, 2))
    features = tgp.Features.draw(n_features, 0.5, np.eye(2), seed=0)
    base = tgp.GaussianBase(np.zeros(2), np.eye(2))
    stats = tgp.accumulate(x, features, engine="direct")
    tracemalloc.start()
    model = tgp.solve(stats, base, lam=10.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.diagnostics["solver"] == "cg"
    assert model.diagnostics["residual"] <= 1e-11
    square, tall = 8 * n_features**2, 8 * n_features * 1_000
    assert peak < square + 8 * tall
    # judged from outside as well
    system, b = fd_system(stats, base)
    residual = system @ model.theta + 10.0 * 0.25 * model.theta - b
    assert np.linalg.norm(residual) <= 1e-11 * np.linalg.norm(b)
