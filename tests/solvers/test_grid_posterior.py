"""MAP by transforms on a grid: the same objective, derivatives and optimum, and many features."""

import numpy as np
import oracle
import pytest
from conftest import fixed_fit, slow

import tgpfast as tgp
from tgpfast.kernels.thread_choice import Threads
from tgpfast.solvers import grid_posterior
from tgpfast.solvers.grid_posterior import GridObjective, make_posterior_grid
from tgpfast.solvers.node_posterior import NodeObjective, make_nodes

pytest.importorskip("finufft")


def make(d, n_features=30, gamma=0.8):
    rng = np.random.default_rng(d)
    x = np.concatenate([rng.normal(-1, 0.5, (300, d)), rng.normal(1, 0.4, (200, d))])
    features = tgp.Features.draw(n_features, gamma, np.eye(d), seed=2)
    return x, tgp.GaussianBase.from_data(x), tgp.accumulate(x, features, engine="direct")


def both(d, lam=2.0):
    _, base, stats = make(d)
    grid = make_posterior_grid(stats.features, base)
    nodes = make_nodes(stats.features, base, 10**7, 0)
    by_transforms = GridObjective(stats, base, lam, grid, Threads())
    return by_transforms, NodeObjective(stats, base, lam, nodes, Threads()), stats, base


@pytest.mark.parametrize("d", [1, 2, slow(3)])
def test_value_and_gradient_equal_those_at_explicit_nodes(d):
    """The same nodes, but for the corners of the box, which hold less than 1e-15 of the base."""
    grid, plain, stats, _ = both(d)
    theta = np.random.default_rng(0).standard_normal(30)
    a, log_a = grid.log_weights(theta)
    b, log_b = plain.log_weights(theta)
    assert log_a == pytest.approx(log_b, abs=1e-9)
    mean_a, mean_b = grid.moments(a, second=False)[0], plain.moments(b, second=False)[0]
    assert np.abs(mean_a - mean_b).max() < 1e-9
    if d == 3:
        return  # 130,000 nodes are too many for the oracle
    x, f = make(d)[0], stats.features
    want = oracle.map_objective(
        x, theta, plain.nodes, np.exp(plain.log_mass), f.frequencies, f.phases, f.bandwidth, 2.0
    )
    assert grid.value(theta, log_a) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("d", [1, slow(2)])
def test_the_direction_solves_the_newton_system(d, monkeypatch):
    grid, plain, stats, _ = both(d)
    theta = 0.3 * np.random.default_rng(0).standard_normal(30)
    weights, _ = grid.log_weights(theta)
    mean, shares = grid.moments(weights, second=True)
    gradient = 1e-14 * np.random.default_rng(1).standard_normal(30)  # small: solved closely
    found = grid.direction(mean, shares, gradient)
    mean_b, second = plain.moments(plain.log_weights(theta)[0], second=True)
    hessian = stats.n * (second - np.outer(mean_b, mean_b)) + 2.0 * np.eye(30)
    residual = np.linalg.norm(hessian @ found - gradient)
    assert residual < 1e-5 * np.linalg.norm(gradient)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2])
def test_the_optimum_is_that_of_the_plain_solver(d, monkeypatch):
    _, base, stats = make(d)
    want = tgp.solve(stats, base, "map", 2.0)
    assert want.diagnostics["nodes"] == "quadrature"
    monkeypatch.setattr(grid_posterior, "TRANSFORM_FEATURES", 1)
    found = tgp.solve(stats, base, "map", 2.0)
    assert found.diagnostics["nodes"] == "quadrature by transforms"
    assert found.diagnostics["gradient_norm"] <= 1e-6
    # gradients of 1e-6 |sum phi| over a Hessian of at least lam
    bound = 2e-6 * np.linalg.norm(stats.sum_phi) / 2.0
    assert np.linalg.norm(found.theta - want.theta) < bound


@pytest.mark.slow
def test_many_features_by_fit():
    """From 2,000 features on, without a matrix of their size."""
    x, _, _ = make(2)
    model = fixed_fit(x, method="map", n_features=2_500, gamma=0.4, lam=5.0)
    assert model.diagnostics["nodes"] == "quadrature by transforms"
    assert model.diagnostics["gradient_norm"] <= 1e-6
    few = fixed_fit(x, method="map", n_features=300, gamma=0.4, lam=5.0)
    assert few.diagnostics["nodes"] == "quadrature"
    # both approximate one Gaussian process; features of their own move log q by some tenths
    assert abs(model.log_density(x).mean() - few.log_density(x).mean()) < 0.1


def test_too_fine_a_grid_is_not_made():
    _, base, stats = make(2)
    fine = tgp.Features.draw(30, 1e-4, np.eye(2), seed=0)
    assert make_posterior_grid(fine, base) is None
    assert not grid_posterior.transforms_pay(fine, base)
    assert make_posterior_grid(stats.features, base, finer=1e4) is None
