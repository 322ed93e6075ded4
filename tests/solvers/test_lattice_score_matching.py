"""FD, NCFD and FVPD on a lattice: against dense systems of a real basis."""

import lattice_oracle as oracle
import numpy as np
import pytest
from conftest import slow
from lattice_bases import BoxBase

import tgpfast as tgp
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.mixture import MixtureBase
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.solvers import lattice_score_matching
from tgpfast.solvers.lattice_score_matching import (
    linear_form,
    solve_lattice_fd,
    solve_lattice_fvpd,
    solve_lattice_ncfd,
)
from tgpfast.statistics.lattice_statistics import doubled
from tgpfast.statistics.lattice_sums import accumulate_lattice

rng = np.random.default_rng(0)
MIXTURE = MixtureBase(
    np.array([0.4, 0.6]), np.array([[-1.0, 0.0], [1.0, 0.3]]),
    np.stack([np.eye(2), 0.6 * np.eye(2)]),
)  # fmt: skip
# name: (features, base, rows)
CASES = {
    "open": (
        LatticeFeatures([9.0], 9, [-4.5], "matern52", 0.6, margin=[1.5]),
        GaussianBase([0.2], [[1.1]]), 1.3 * rng.standard_normal((300, 1)) + 0.1,
    ),
    "wall": (
        LatticeFeatures([2.0], 6, [1.0], "gaussian", 0.3, ("wall",)),
        BoxBase(("exponential", 1.0, 3.0, 0.7)), 1 + 2 * rng.beta(1, 3, (150, 1)),
    ),
    "two open, Gaussian": (
        LatticeFeatures([9.0, 8.0], (3, 4), [-4.5, -4.0], "gaussian", 1.0, margin=[1.5, 1.5]),
        GaussianBase([0.0, 0.1], [[1.0, 0.3], [0.3, 0.8]]), 1.2 * rng.standard_normal((200, 2)),
    ),
    "two open, mixture": (
        LatticeFeatures([9.0, 8.0], (4, 3), [-4.5, -4.0], "matern52", 1.0, margin=[1.5, 1.5]),
        MIXTURE, 1.2 * rng.standard_normal((200, 2)),
    ),
    "wall below and period": (
        LatticeFeatures([6.0, 1.0], (5, 2), [0.0, 0.0], "matern52", 0.7, ("wall_below", "period"),
                        [1.5, 0.0]),
        BoxBase(("exponential", 0.0, np.inf, 1.0), ("uniform", 0.0, 1.0)),
        np.column_stack([rng.exponential(1.0, 200), rng.uniform(size=200)]),
    ),
    "three": (
        LatticeFeatures([1.0, 2.0, 7.0], (2, 2, 2), [0.0, 0.0, -3.5], "gaussian", 0.8,
                        ("wall", "period", "open"), [0.0, 0.0, 1.2]),
        BoxBase(("uniform", 0.0, 1.0), ("uniform", 0.0, 2.0), ("gaussian", 0.0, 0.7)),
        np.column_stack([rng.beta(1, 2, 100), 2 * rng.uniform(size=100),
                         0.8 * rng.standard_normal(100)]),
    ),
}  # fmt: skip
NODES = {1: (1024,), 2: (240, 240), 3: (16, 16, 240)}


def make(name):
    features, base, x = CASES[name]
    w = np.random.default_rng(1).uniform(0.5, 1.5, len(x))
    stats = accumulate_lattice(x, features, sample_weight=w, base=base, tolerance=1e-14)
    return features, base, x, w, stats


def evaluate(features, theta, x):
    """f without taper at points, through the real basis fitted to a grid."""
    shape = features.grid_shape(2.0)
    nodes = np.stack(np.meshgrid(*features.nodes(shape), indexing="ij"), axis=-1)
    phi = oracle.basis_values(nodes.reshape(-1, x.shape[1]), features)
    c = np.linalg.lstsq(phi, features.to_grid(theta, shape).ravel(), rcond=None)[0]
    return oracle.basis_values(x, features) @ c


@pytest.mark.parametrize("name", CASES)
def test_fd_is_the_dense_solve(name):
    features, base, x, w, stats = make(name)
    theta, report = solve_lattice_fd(stats, base, 0.7, tolerance=1e-12)
    want = oracle.fd_coefficients(x, w, features, 0.7, base.score_at)
    f = oracle.basis_values(x[:40], features) @ want
    assert np.abs(evaluate(features, theta, x[:40]) - f).max() < 1e-8 * max(1, np.abs(f).max())
    assert report["residual"] <= 1e-12
    assert report["steps"] > 1
    again, warm = solve_lattice_fd(stats, base, 0.7, tolerance=1e-12, start=theta)
    assert warm["steps"] < report["steps"]
    assert np.abs(again - theta).max() < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_fd_minimizes_the_fisher_objective(name):
    """The objective of the paper (Eq. objective) at theta and around it, by the basis."""
    features, base, x, w, stats = make(name)
    theta, _ = solve_lattice_fd(stats, base, 0.7, tolerance=1e-13)
    inside = oracle.in_core(x, features)
    matrix, vector = oracle.fisher_parts(x[inside], w[inside], features, base.score_at)
    variances = oracle.prior_variances(features)
    shape = features.grid_shape(2.0)
    nodes = np.stack(np.meshgrid(*features.nodes(shape), indexing="ij"), axis=-1)
    phi = oracle.basis_values(nodes.reshape(-1, x.shape[1]), features)
    c = np.linalg.lstsq(phi, features.to_grid(theta, shape).ravel(), rcond=None)[0]

    def objective(c):
        return 0.5 * c @ matrix @ c + vector @ c + 0.35 * np.sum(c**2 / variances)

    best = objective(c)
    for seed in range(5):
        step = np.sqrt(variances) * np.random.default_rng(seed).standard_normal(len(c))
        assert objective(c + 1e-3 * step) > best
        assert objective(c - 1e-3 * step) > best


@pytest.mark.parametrize("name", ["open", slow("two open, Gaussian")])
def test_ncfd_is_the_dense_solve_with_integrated_noise(name):
    features, base, x, w, _ = make(name)
    x, w = x[:80], w[:80]
    levels = (0.0, 0.3, 0.8)
    stats = accumulate_lattice(
        x, features, sample_weight=w, base=base, noise_levels=levels, tolerance=1e-14
    )
    theta, report = solve_lattice_ncfd(stats, base, 0.7, tolerance=1e-12)
    want = oracle.ncfd_coefficients(
        x, w, features, 0.7, base.mean, base.covariance, levels, 40 if name == "open" else 24
    )
    f = oracle.basis_values(x[:40], features) @ want
    assert np.abs(evaluate(features, theta, x[:40]) - f).max() < 1e-8 * max(1, np.abs(f).max())
    assert report["residual"] <= 1e-12
    # with the level zero alone it is FD
    alone = accumulate_lattice(
        x, features, sample_weight=w, base=base, noise_levels=(0.0,), tolerance=1e-14
    )
    plain, _ = solve_lattice_fd(alone, base, 0.7, tolerance=1e-12)
    same, _ = solve_lattice_ncfd(alone, base, 0.7, tolerance=1e-12)
    assert np.abs(plain - same).max() < 1e-9
    assert np.abs(plain - theta).max() > 1e-4  # negative control


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("eta", [None, 0.5])
def test_fvpd_is_the_dense_solve(name, eta):
    features, base, x, w, stats = make(name)
    theta, report = solve_lattice_fvpd(stats, base, 0.7, eta=eta)
    wide = doubled(features)
    assert theta.shape == wide.mode_shape
    y = x[:40]
    got = features.taper(y) * evaluate(wide, theta, y)
    tempering = 1.0 / features.bandwidth**2 if eta is None else eta
    nodes = oracle.quadrature(features, *NODES[x.shape[1]])
    want = oracle.fvpd_exponent(
        y, x, w, features, 0.7, tempering, base.score_at, base.log_density_at, *nodes
    )
    # the base is integrated on a grid that the solver chooses; at a wall to fourth order
    assert np.abs(got - want).max() < (1e-7 if "wall" in name else 1e-8)
    assert report["n_features"] == features.n_features


@pytest.mark.slow
def test_random_features_drawn_from_the_lattice_approach_its_fd():
    x = np.concatenate([rng.normal(-1, 0.4, (200, 1)), rng.normal(1.2, 0.6, (200, 1))])
    base = GaussianBase.from_data(x)
    features = LatticeFeatures([24.0], 40, [-12.0], "gaussian", 0.8, margin=[2.0])
    stats = accumulate_lattice(x, features, base=base)
    theta, _ = solve_lattice_fd(stats, base, 5.0)
    y = np.linspace(-2.0, 2.2, 40)[:, None]
    want = evaluate(features, theta, y)
    shares = features.multiplicity * features.prior_variance
    errors = []
    for size in (100, 1600):
        random = np.random.default_rng(size)
        z = random.choice(features.frequencies[0], size, p=shares / shares.sum())[:, None]
        drawn = tgp.Features(z, random.uniform(0, 2 * np.pi, size), 1.0)
        sums = tgp.accumulate(x, drawn, engine="direct")
        model = tgp.solve(sums, base, method="fd", lam=5.0, solver="cg")
        got = model.log_density(y, normalized=False) - base.log_density_at(y)
        errors.append(float(np.std(got - want)))  # up to a constant
    assert errors[1] < 0.5 * errors[0]
    assert errors[1] < 0.05


def test_gaussian_sums_serve_every_gaussian_base():
    features, base, x, w, stats = make("two open, Gaussian")
    other = GaussianBase([0.5, -0.2], [[1.5, -0.2], [-0.2, 0.7]])
    own = accumulate_lattice(x, features, sample_weight=w, base=other, tolerance=1e-14)
    got, want = linear_form(stats, other), linear_form(own, other)
    assert np.abs(got - want).max() < 1e-10 * np.abs(want).max()
    assert np.abs(linear_form(stats, base) - want).max() > 1e-3 * np.abs(want).max()


def test_corners_and_merged_parts_solve_as_one_pass():
    features, base, x, w, _ = make("two open, mixture")
    parts = [accumulate_lattice(x[i::2], features.with_modes(6), sample_weight=w[i::2], base=base,
                                tolerance=1e-13) for i in range(2)]  # fmt: skip
    merged = sum(parts).corner(features.n_modes)
    whole = accumulate_lattice(x, features, sample_weight=w, base=base, tolerance=1e-13)
    got, _ = solve_lattice_fd(merged, base, 0.7, tolerance=1e-12)
    want, _ = solve_lattice_fd(whole, base, 0.7, tolerance=1e-12)
    assert np.abs(got - want).max() < 1e-9


# -- guards ---------------------------------------------------------------------------------------

SOLVERS = {"fd": solve_lattice_fd, "ncfd": solve_lattice_ncfd, "fvpd": solve_lattice_fvpd}


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("kernel", ["matern12", "matern32"])
def test_rough_kernels_are_refused_by_name(method, kernel):
    _, base, _, _, stats = make("open")
    with pytest.raises(ValueError, match=f"kernel='{kernel}': method='{method}'"):
        SOLVERS[method](stats.with_kernel(kernel, 0.6), base, 1.0)


@pytest.mark.parametrize("method", SOLVERS)
def test_statistics_that_do_not_serve_are_refused(method):
    features, base, x, _, stats = make("two open, mixture")
    solve = SOLVERS[method]
    gaussian = GaussianBase(np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="do not know the score of this GaussianBase"):
        solve(stats, gaussian, 1.0)
    with pytest.raises(ValueError, match="do not know the score of this MixtureBase"):
        solve(accumulate_lattice(x, features), base, 1.0)
    with pytest.raises(ValueError, match="base has dimension 1"):
        solve(stats, GaussianBase([0.0], [[1.0]]), 1.0)
    with pytest.raises(ValueError, match="no rows"):
        solve(stats - stats, base, 1.0)
    with pytest.raises(ValueError, match="lam"):
        solve(stats, base, -1.0)


def test_ncfd_needs_noise_levels():
    _, base, _, _, stats = make("open")
    with pytest.raises(ValueError, match="noise levels"):
        solve_lattice_ncfd(stats, base, 1.0)


def test_fvpd_refuses_large_lattices():
    features = LatticeFeatures([9.0, 8.0], 23, [-4.5, -4.0], "gaussian", 1.0)
    base = GaussianBase(np.zeros(2), np.eye(2))
    stats = accumulate_lattice(rng.standard_normal((10, 2)), features, base=base)
    with pytest.raises(ValueError, match=r"2,209 features; it serves up to 2,000"):
        solve_lattice_fvpd(stats, base, 1.0)


def test_too_few_steps_warn(monkeypatch):
    _, base, _, _, stats = make("two open, Gaussian")
    monkeypatch.setattr(lattice_score_matching, "SCORE_CG_STEPS", 3)
    with pytest.warns(tgp.PrecisionWarning, match="stopped at a relative residual"):
        solve_lattice_fd(stats, base, 0.1)
