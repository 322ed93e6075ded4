"""MAP (Algorithm 1): objective, gradient, optimum and nodes, against the oracle and scipy."""

import dataclasses
import math

import numpy as np
import oracle
import pytest
import scipy.optimize
from conftest import BACKENDS, load_backend, slow

import tgpfast as tgp
from tgpfast.kernels.thread_choice import Threads
from tgpfast.solvers import maximum_posterior, node_posterior
from tgpfast.solvers.node_posterior import NodeObjective, StoredObjective, make_nodes
from tgpfast.solvers.posterior import MAP_TOLERANCE, maximize_by_newton
from tgpfast.solvers.product_posterior import NodeProductObjective, products_pay

BASES = {
    1: ([0.3], [[1.4]]),
    2: ([0.3, -0.2], [[1.4, 0.4], [0.4, 0.9]]),
    3: ([0.3, -0.2, 0.1], [[1.4, 0.4, 0.0], [0.4, 0.9, -0.2], [0.0, -0.2, 1.1]]),
    4: ([0.3, -0.2, 0.1, 0.5], np.diag([1.4, 0.9, 1.1, 0.7]) + 0.1),
}


def make(d, n_features=12, gamma=1.2, n=300, *, weighted=True, seed=0):
    """(x, weights, statistics, base): half of the rows in a bump away from the base's mean."""
    rng = np.random.default_rng(seed)
    x = 0.5 * rng.standard_normal((n, d)) + np.where(rng.random((n, 1)) < 0.5, 1.2, -0.6)
    w = rng.uniform(0.5, 1.5, n) if weighted else None
    features = tgp.Features.draw(n_features, gamma, np.eye(d), seed=3)
    stats = tgp.accumulate(x, features, sample_weight=w, precision="float64")
    return x, w, stats, tgp.GaussianBase(*BASES[d])


def parts(stats):
    f = stats.features
    return f.frequencies, f.phases, f.bandwidth


def at_nodes(stats, base, lam, n_draws, seed):
    nodes = make_nodes(stats.features, base, n_draws, seed)
    return NodeObjective(stats, base, lam, nodes, Threads())


def gradient_of(objective, theta):
    log_weights, _ = objective.log_weights(theta)
    mean, _ = objective.moments(log_weights, second=False)
    return objective.sum_phi - objective.n * mean - objective.lam * theta


# -- objective and derivatives --------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_objective_and_gradient_equal_the_oracle(d, scale):
    """At the objective's own nodes; at scale 300 exp(theta^T phi) would overflow."""
    x, w, stats, base = make(d)
    objective = at_nodes(stats, base, 0.4, 2_000, 5)
    theta = scale * np.random.default_rng(1).standard_normal(12)
    _, partition = objective.log_weights(theta)
    args = (x, theta, objective.nodes, np.exp(objective.log_mass), *parts(stats), 0.4, w)
    # F: n terms of |theta| rounded at 1e-16, some 20 times over
    size = stats.n * (1.0 + np.linalg.norm(theta)) + 0.4 * theta @ theta
    assert objective.value(theta, partition) == pytest.approx(
        oracle.map_objective(*args), abs=20e-16 * size
    )
    # the shares err by the rounding of theta^T phi, relative
    atol = 20e-16 * stats.n * (1.0 + np.linalg.norm(theta))
    np.testing.assert_allclose(
        gradient_of(objective, theta), oracle.map_gradient(*args), rtol=0, atol=atol
    )


@pytest.mark.parametrize("d", [2, 4])
def test_gradient_is_the_derivative(d):
    """Central differences of step h err by h^2 n / 6 (cumulants of phi are below 1) + rounding."""
    _, _, stats, base = make(d)
    objective = at_nodes(stats, base, 0.4, 2_000, 5)
    theta, h = np.random.default_rng(2).standard_normal(12), 1e-4

    def value(at):
        return objective.value(at, objective.log_weights(at)[1])

    numerical = [(value(theta + e) - value(theta - e)) / (2 * h) for e in h * np.eye(12)]
    atol = h**2 * stats.n / 6 + 20e-16 * stats.n * (1 + np.linalg.norm(theta)) / h
    np.testing.assert_allclose(gradient_of(objective, theta), numerical, rtol=0, atol=atol)


@pytest.mark.parametrize(("lam", "error"), [(0.4, 2.0**-23), (1e-4, 2.0**-46)])
def test_second_moments_are_those_of_the_weighted_nodes(lam, error):
    """E[phi] and E[phi phi^T] of the pass with turned phases equal plain weighted sums; the second
    in float32 where lam keeps the curvature well conditioned."""
    _, _, stats, base = make(2)
    objective = at_nodes(stats, base, lam, 2_000, 5)
    log_weights, _ = objective.log_weights(np.random.default_rng(3).standard_normal(12))
    assert np.exp(log_weights).sum() == pytest.approx(1.0, abs=1e-12)
    phi, share = oracle.phi(objective.nodes, *parts(stats)), np.exp(log_weights)
    mean, second = objective.moments(log_weights, second=True)
    alone, nothing = objective.moments(log_weights, second=False)
    # nodes below 1e-18 of the largest are left out: a few thousand of them are below 1e-14
    np.testing.assert_allclose(mean, share @ phi, rtol=0, atol=1e-14)
    np.testing.assert_allclose(alone, share @ phi, rtol=0, atol=1e-14)
    # shares of 1 in all of products of at most 2/S, each of which is rounded four times
    want = (phi.T * share) @ phi
    np.testing.assert_allclose(second, want, rtol=0, atol=4 * 2 / 12 * error)
    assert (np.abs(second - want).max() > 1e-12) == (lam == 0.4)
    assert nothing.size == 0


@pytest.mark.parametrize("d", [1, 2, slow(3)])
def test_quadrature_nodes_integrate_the_base(d):
    """Mass 1, the base's mean and covariance, and E[phi] of Eq. muphi, to the reach of the grid."""
    _, _, stats, base = make(d)
    objective = at_nodes(stats, base, 0.4, 100_000, 0)
    assert objective.kind == "quadrature"
    mass, away = np.exp(objective.log_mass), objective.nodes - base.mean
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(mass @ away, 0.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose((away.T * mass) @ away, base.covariance, rtol=0, atol=1e-11)
    expected = oracle.mu_phi(*parts(stats), base.mean, base.covariance)
    found = mass @ oracle.phi(objective.nodes, *parts(stats))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


# -- the optimum ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [slow(1), slow(2), 4])
def test_newton_converges(d):
    x, w, stats, base = make(d)
    model = tgp.solve(stats, base, "map", 0.4, n_draws=2_000, seed=5)
    report = model.diagnostics
    assert report["solver"] == "newton"
    assert report["gradient_norm"] <= MAP_TOLERANCE == 1e-6
    assert 1 <= report["steps"] <= 30
    objective = at_nodes(stats, base, 0.4, 2_000, 5)
    args = (objective.nodes, np.exp(objective.log_mass), *parts(stats), 0.4, w)
    gradient = oracle.map_gradient(x, model.theta, *args)
    relative = np.linalg.norm(gradient) / np.linalg.norm(stats.sum_phi)
    assert relative <= 1e-6
    assert relative == pytest.approx(report["gradient_norm"], abs=1e-12)
    assert report["objective"] == pytest.approx(oracle.map_objective(x, model.theta, *args))
    # negative control: away from the optimum the gradient is far above the tolerance
    away = oracle.map_gradient(x, 1.01 * model.theta, *args)
    assert np.linalg.norm(away) > 1e-5 * np.linalg.norm(stats.sum_phi)


def precisions(monkeypatch):
    """Those of every curvature that is summed from now on."""
    seen, plain = [], node_posterior.accumulate_direct

    def watched(*args, precision, **options):
        seen.append(precision)
        return plain(*args, precision=precision, **options)

    monkeypatch.setattr(node_posterior, "accumulate_direct", watched)
    monkeypatch.setattr(maximum_posterior, "STORED_NUMBERS", 0)  # or the features would be kept
    return seen


def test_features_kept_in_memory_give_the_same_optimum(monkeypatch):
    """F is concave with modulus lam: both are within |gradient| / lam of the one optimum."""
    _, _, stats, base = make(4)
    kept = tgp.solve(stats, base, "map", 3.0, n_draws=1_000)
    seen = precisions(monkeypatch)
    passes = tgp.solve(stats, base, "map", 3.0, n_draws=1_000)
    assert seen
    norms = [each.diagnostics["gradient_norm"] for each in (kept, passes)]
    assert max(norms) <= MAP_TOLERANCE
    bound = sum(norms) * np.linalg.norm(stats.sum_phi) / 3.0
    assert np.linalg.norm(kept.theta - passes.theta) <= bound
    assert np.linalg.norm(kept.theta) > 100 * bound
    assert kept.diagnostics["nodes"] == passes.diagnostics["nodes"] == "sobol"


@pytest.mark.parametrize("share", [slow(0.999), 100.0])
def test_a_rough_curvature_leads_to_the_same_optimum(share, monkeypatch):
    """Up to 3e5 lam rows: both are within |gradient| / lam of the one optimum, in as many steps."""
    _, _, stats, base = make(4)
    lam = stats.n / (share * node_posterior.FLOAT32_ROWS) if share < 1 else share
    seen = precisions(monkeypatch)
    rough = tgp.solve(stats, base, "map", lam, n_draws=1_000, seed=1)
    assert set(seen) == {"mixed"}
    seen.clear()
    monkeypatch.setattr(node_posterior, "FLOAT32_ROWS", 0.0)
    fine = tgp.solve(stats, base, "map", lam, n_draws=1_000, seed=1)
    assert set(seen) == {"float64"}
    norms = [each.diagnostics["gradient_norm"] for each in (rough, fine)]
    assert max(norms) <= MAP_TOLERANCE
    bound = sum(norms) * np.linalg.norm(stats.sum_phi) / lam
    assert 0 < np.linalg.norm(rough.theta - fine.theta) <= bound
    assert abs(rough.diagnostics["steps"] - fine.diagnostics["steps"]) <= 1


@pytest.mark.slow
def test_more_rows_take_a_curvature_in_float64(monkeypatch):
    _, _, stats, base = make(4)
    seen = precisions(monkeypatch)
    lam = stats.n / node_posterior.FLOAT32_ROWS  # not below
    tgp.solve(stats, base, "map", lam * (1 - 1e-12), n_draws=1_000, seed=1)
    assert set(seen) == {"float64"}


@pytest.mark.slow
def test_newton_equals_the_papers_iteration():
    """F is concave with modulus lam: both are within |gradient| / lam of the one optimum."""
    _, _, stats, base = make(1, n_features=4, n=40)
    lam = 4.0
    newton = tgp.solve(stats, base, "map", lam, solver="newton")
    slow = tgp.solve(stats, base, "map", lam, solver="gradient")
    assert slow.diagnostics["solver"] == "gradient"
    assert slow.diagnostics["gradient_norm"] <= 1e-6
    assert slow.diagnostics["steps"] > newton.diagnostics["steps"]
    norms = newton.diagnostics["gradient_norm"] + slow.diagnostics["gradient_norm"]
    bound = norms * np.linalg.norm(stats.sum_phi) / lam
    assert np.linalg.norm(newton.theta - slow.theta) <= bound
    assert np.linalg.norm(newton.theta) > 100 * bound


def test_gradient_step_is_the_papers():
    """One step from zero is rho (psi_1 - n psi_2) with rho = 1 / (lam + n)."""
    _, _, stats, base = make(2)
    with pytest.warns(RuntimeWarning, match='solver="newton" converges'):
        model = tgp.solve(stats, base, "map", 0.4, solver="gradient", n_steps=1)
    gradient = stats.sum_phi - stats.n * oracle.mu_phi(*parts(stats), base.mean, base.covariance)
    np.testing.assert_allclose(model.theta, gradient / (0.4 + stats.n), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_optimum_in_one_dimension_equals_scipy():
    """Dense quadrature and a quasi-Newton method that share nothing with the package."""
    x, w, stats, base = make(1, n_features=6)
    lam, width = 0.5, math.sqrt(base.covariance[0, 0])
    nodes = base.mean + width * np.linspace(-10.0, 10.0, 2_001)[:, None]
    masses = np.exp(-0.5 * ((nodes[:, 0] - base.mean[0]) / width) ** 2)
    masses /= masses.sum()
    phi, psi = oracle.phi(nodes, *parts(stats)), oracle.sum_phi(x, *parts(stats), w)

    def loss(theta):
        terms = np.exp(phi @ theta) * masses
        total = terms.sum()
        value = theta @ psi - w.sum() * math.log(total) - 0.5 * lam * theta @ theta
        return -value, -(psi - w.sum() * (terms / total) @ phi - lam * theta)

    found = scipy.optimize.minimize(
        loss, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 1_000}
    )
    model = tgp.solve(stats, base, "map", lam)
    assert model.diagnostics["nodes"] == "quadrature"
    left = np.linalg.norm(found.jac)
    left += model.diagnostics["gradient_norm"] * np.linalg.norm(psi)
    assert left / lam < 1e-3 * np.linalg.norm(found.x)
    assert np.linalg.norm(model.theta - found.x) <= left / lam + 1e-10 * w.sum() / lam


@pytest.mark.slow
def test_line_search_refuses_steps_that_overshoot(monkeypatch):
    """Data far out in the base's tail and a weak prior: some full steps would lower the objective.

    Those are refused, and the objective rises at every accepted step.
    """
    rng = np.random.default_rng(4)
    x = 3.5 + 0.05 * rng.standard_normal((2_000, 1))
    features = tgp.Features.draw(20, 0.7, np.eye(1), seed=3)
    stats = tgp.accumulate(x, features, precision="float64")
    tried, accepted = [], []
    plain_value, plain_moments = NodeObjective.value, NodeObjective.moments

    def value(self, theta, partition):
        tried.append(plain_value(self, theta, partition))
        return tried[-1]

    def moments(self, log_weights, *, second):
        accepted.append(tried[-1])
        return plain_moments(self, log_weights, second=second)

    monkeypatch.setattr(NodeObjective, "value", value)
    monkeypatch.setattr(NodeObjective, "moments", moments)
    base = tgp.GaussianBase([0.0], [[1.0]])
    objective = at_nodes(stats, base, 1e-3, 10_000, 0)
    ascent = maximize_by_newton(objective, np.zeros(20), 100)
    assert ascent.gradient_norm <= 1e-6
    assert len(accepted) == ascent.steps + 1
    assert len(tried) > len(accepted)
    # equal up to the rounding of F once converged
    assert np.all(np.diff(accepted) >= -1e-12 * np.abs(accepted[-1]))
    assert ascent.objective == accepted[-1]


@pytest.mark.parametrize("d", [2, 4])
def test_stored_features_give_the_same_objective(d):
    """Value, moments, direction and optimum are those of features evaluated pass by pass."""
    _, _, stats, base = make(d)
    lam, theta = 1e-4, np.random.default_rng(1).standard_normal(12)  # curvature in float64
    plain = at_nodes(stats, base, lam, 2_000, 5)
    phi = oracle.phi(plain.nodes, *parts(stats)).T
    stored = StoredObjective(stats, lam, phi, plain.log_mass)
    found, want = (o.log_weights(theta) for o in (stored, plain))
    np.testing.assert_allclose(found[0], want[0], rtol=0, atol=1e-12)
    assert found[1] == pytest.approx(want[1], abs=1e-12)
    (mean, second), (mean_b, second_b) = (o.moments(want[0], second=True) for o in (stored, plain))
    np.testing.assert_allclose(mean, mean_b, rtol=0, atol=1e-13)
    np.testing.assert_allclose(second, second_b, rtol=0, atol=1e-13)
    assert stored.moments(want[0], second=False)[1].size == 0
    gradient = plain.gradient(theta, mean_b)
    a, b = (o.direction(mean_b, second_b, gradient) for o in (stored, plain))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    a, b = (maximize_by_newton(o, np.zeros(12), 100).theta for o in (stored, plain))
    assert np.linalg.norm(a - b) <= 2e-6 * np.linalg.norm(stats.sum_phi) / lam
    # a gain that is asked for ends the ascent before its gradient vanishes
    early = maximize_by_newton(stored, np.zeros(12), 100, least_gain=np.inf)
    assert early.steps == 1
    assert early.objective < stored.value(a, stored.log_weights(a)[1])
    with pytest.raises(np.linalg.LinAlgError):
        stored.direction(mean, -second, gradient)


# -- nodes, reports, threads, backends ------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "n_draws", "kind"),
    [(1, 1_000, "quadrature"), slow(2, 20_000, "quadrature"), slow(3, 100_000, "quadrature"),
     (4, 4_000, "sobol"), (3, 4_000, "sobol")],
)  # fmt: skip
def test_nodes_are_recorded(d, n_draws, kind):
    """Quadrature where a grid of at most 4 n_draws nodes serves (d <= 3), Sobol draws elsewhere."""
    _, _, stats, base = make(d, n_features=5, gamma=1.5)
    report = tgp.solve(stats, base, "map", 5.0, n_draws=n_draws).diagnostics
    assert report["nodes"] == kind
    assert report["partition_gap"] < 0.1
    if kind == "sobol":
        assert report["n_nodes"] == n_draws
    else:
        assert report["n_nodes"] <= 4 * n_draws


@pytest.mark.slow
def test_draws_are_seeded_and_quadrature_needs_no_seed():
    for d, differ in ((2, False), (4, True)):
        _, _, stats, base = make(d, n_features=5)
        a, b, c = (
            tgp.solve(stats, base, "map", 5.0, n_draws=5_000, seed=s).theta for s in (1, 1, 2)
        )
        np.testing.assert_array_equal(a, b)
        assert np.array_equal(a, c) != differ


def test_sobol_draws_approach_quadrature(monkeypatch):
    """The same problem with draws in place of the grid: within the error of 2^14 Sobol points."""
    _, _, stats, base = make(2, n_features=5)
    exact = tgp.solve(stats, base, "map", 5.0).theta
    monkeypatch.setattr(node_posterior, "QUADRATURE_DIMENSIONS", 1)
    model = tgp.solve(stats, base, "map", 5.0, n_draws=2**14)
    assert model.diagnostics["nodes"] == "sobol"
    # plain draws would move the gradient by n / sqrt(2^14) and theta by at most that / lam; Sobol
    # points do better by a factor of ten at least
    assert np.linalg.norm(model.theta - exact) <= 0.1 * stats.n / 128 / 5.0


@pytest.mark.parametrize("solver", ["newton", "gradient"])
def test_stopping_early_warns_and_reports(solver):
    _, _, stats, base = make(2)
    with pytest.warns(RuntimeWarning, match="MAP stopped after 1 steps") as caught:
        model = tgp.solve(stats, base, "map", 0.4, solver=solver, n_steps=1)
    assert len(caught) == 1
    assert model.diagnostics["steps"] == 1
    assert model.diagnostics["gradient_norm"] > 1e-6
    assert f"{model.diagnostics['gradient_norm']:.1e}" in str(caught[0].message)


def test_data_enter_through_sum_phi_alone():
    """Other rows with the same n and sum phi give the same theta, bit for bit."""
    _, _, stats, base = make(4)
    other = dataclasses.replace(
        stats, gram=np.zeros_like(stats.gram), sum_dphi=np.zeros_like(stats.sum_dphi),
        sum_xx=np.eye(4), sum_x=np.ones(4),
    )  # fmt: skip
    a, b = (tgp.solve(s, base, "map", 0.4, n_draws=2_000).theta for s in (stats, other))
    np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_change_nothing(backend, d):
    load_backend(backend)
    _, _, stats, base = make(d)
    thetas = [
        tgp.solve(
            stats, base, "map", 0.4, n_draws=3_000, backend=backend, n_threads=count
        ).theta
        for count in (1, 2, 3)
    ]  # fmt: skip
    for theta in thetas[1:]:
        np.testing.assert_array_equal(theta, thetas[0])


@pytest.mark.parametrize("d", [2, 4])
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_backends_agree(backend, d, monkeypatch):
    """To rounding, magnified by the condition of the Hessian, n / lam at most, over a few steps;
    not rounded to float32, where they end elsewhere within the tolerance."""
    load_backend(backend)
    monkeypatch.setattr(node_posterior, "FLOAT32_ROWS", 0.0)
    _, _, stats, base = make(d)
    found, want = (
        tgp.solve(stats, base, "map", 0.4, n_draws=3_000, backend=b)
        for b in (backend, "numpy")
    )  # fmt: skip
    assert found.diagnostics["steps"] == want.diagnostics["steps"]
    bound = 100e-16 * stats.n / 0.4 * np.linalg.norm(want.theta)
    np.testing.assert_allclose(found.theta, want.theta, rtol=0, atol=bound)


def test_progress_is_shown_on_request(capsys):
    _, _, stats, base = make(1, n_features=4)
    tgp.solve(stats, base, "map", 1.0)
    assert capsys.readouterr().err == ""
    tgp.solve(stats, base, "map", 1.0, progress=True)
    captured = capsys.readouterr()
    assert "Newton steps" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("d", "spread", "lam", "gamma"),
    [(1, 0.02, 0.1, 0.1), (1, 0.02, 10.0, 0.1), slow(2, 0.1, 1.0, 0.5)],
)
def test_the_grid_is_refined_until_it_resolves_the_density(d, spread, lam, gamma):
    """Data much narrower than the features: peaks of e^tilt between coarse nodes would be missed.

    The normalizer, which has a grid of its own, must agree, and the model must come near the
    Gaussian that the data were drawn from.
    """
    x = 0.5 + spread * np.random.default_rng(4).standard_normal((2_000, d))
    features = tgp.Features.draw(100, gamma, np.eye(d), seed=3)
    stats = tgp.accumulate(x, features, precision="float64")
    model = tgp.solve(stats, tgp.GaussianBase(np.zeros(d), np.eye(d)), "map", lam)
    assert model.diagnostics["partition_gap"] < 1e-5
    fitted = tgp.GaussianBase.from_data(x).log_density(x).mean()
    assert model.log_density(x).mean() > fitted - 0.2


def test_too_few_draws_are_told():
    _, _, stats, base = make(1, n_features=5, gamma=1.5)
    with pytest.warns(RuntimeWarning, match="two sets of 3 nodes.*Raise n_draws"):
        model = tgp.solve(stats, base, "map", 5.0, n_draws=3, seed=1)
    assert model.diagnostics["partition_gap"] > 0.1


@pytest.mark.parametrize("n_steps", [0, -1, 1.5, "a", True])
def test_bad_numbers_of_steps(n_steps):
    _, _, stats, base = make(1, n_features=5, gamma=1.5)
    with pytest.raises(ValueError, match="n_steps"):
        tgp.solve(stats, base, "map", 5.0, n_steps=n_steps)


# -- directions by conjugate gradients ------------------------------------------------------------


@pytest.mark.parametrize("stored", [True, slow(False)])
@pytest.mark.parametrize("lam", [3.0, slow(30.0)])
def test_conjugate_gradients_reach_the_optimum_of_the_oracle(lam, stored, monkeypatch):
    """F is concave with modulus lam: both maximizers are within |gradient| / lam of the optimum."""
    x, w, stats, base = make(4, n_features=150)
    monkeypatch.setattr(maximum_posterior, "STORED_NUMBERS", 2**24 if stored else 0)
    options = {"n_draws": 1_000, "seed": 5}
    found = tgp.solve(stats, base, "map", lam, **options)
    dense = tgp.solve(stats, base, "map", lam, solver="newton", **options)
    assert (found.diagnostics["solver"], dense.diagnostics["solver"]) == ("newton-cg", "newton")
    objective = at_nodes(stats, base, lam, 1_000, 5)
    args = (objective.nodes, np.exp(objective.log_mass), *parts(stats), lam, w)
    scale, norms = np.linalg.norm(stats.sum_phi), []
    for model in (found, dense):
        norm = np.linalg.norm(oracle.map_gradient(x, model.theta, *args)) / scale
        assert norm <= MAP_TOLERANCE
        assert norm == pytest.approx(model.diagnostics["gradient_norm"], abs=1e-12)
        want = oracle.map_objective(x, model.theta, *args)
        assert model.diagnostics["objective"] == pytest.approx(want)
        norms.append(norm)
    bound = sum(norms) * scale / lam
    assert np.linalg.norm(found.theta - dense.theta) <= bound
    assert np.linalg.norm(dense.theta) > 100 * bound


def test_a_product_is_that_of_the_hessian():
    """To float32; the preconditioner inverts it, once half of the nodes are in its factor."""
    _, _, stats, base = make(4, n_features=20)
    plain = at_nodes(stats, base, 0.4, 400, 5)
    objective = NodeProductObjective(plain)
    weights = np.exp(plain.log_weights(np.random.default_rng(1).standard_normal(20))[0])
    phi = oracle.phi(plain.nodes, *parts(stats))
    mean = weights @ phi
    covariance = (phi.T * weights) @ phi - np.outer(mean, mean)
    v = np.random.default_rng(2).standard_normal(20)
    np.testing.assert_allclose(objective.curve(v, weights), covariance @ v, rtol=0, atol=1e-7)
    hessian = stats.n * covariance + 0.4 * np.eye(20)
    errors = []
    for _ in range(3):
        objective._factorize(weights)
        errors.append(np.linalg.norm(objective.precondition(hessian @ v) - v) / np.linalg.norm(v))
    assert errors[-1] < 1e-3 < errors[0]


def test_few_features_or_a_tiny_lambda_take_a_factor_for_each_step():
    """float32 products with the Hessian would be lost in rounding there."""
    for n_features, lam, pays in ((150, 1.0, True), (100, 1.0, False), (150, 1e-5, False)):
        _, _, stats, base = make(4, n_features=n_features)
        assert products_pay(at_nodes(stats, base, lam, 100, 5)) == pays


@pytest.mark.slow
def test_a_factor_is_made_once_products_have_taken_as_long(monkeypatch):
    """A small lambda takes many products; none needs a factor with a large one."""
    made = []
    plain = NodeProductObjective._factorize
    monkeypatch.setattr(
        NodeProductObjective, "_factorize", lambda *args: (made.append(1), plain(*args))
    )
    _, _, stats, base = make(4, n_features=400)
    for lam, expected in ((1e3, False), (1e-2, True)):
        made.clear()
        objective = NodeProductObjective(at_nodes(stats, base, lam, 1_000, 5))
        assert maximize_by_newton(objective, np.zeros(400), 100).gradient_norm <= MAP_TOLERANCE
        assert bool(made) == expected
