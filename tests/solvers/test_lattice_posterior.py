"""MAP on a lattice: against a dense solve on another quadrature, and its derivatives."""

import itertools

import lattice_oracle as oracle
import numpy as np
import pytest
from lattice_bases import BoxBase
from scipy import integrate

import tgpfast as tgp
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.node_masses import BaseGrids, log_partition, node_masses
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.features.spectral_density import KERNELS
from tgpfast.solvers import lattice_map
from tgpfast.solvers.lattice_map import solve_lattice_map
from tgpfast.solvers.lattice_posterior import LatticePosteriors, maximize_posteriors
from tgpfast.statistics.lattice_sums import accumulate_lattice

# name: (features, base, rows)
rng = np.random.default_rng(0)
CASES = {
    "open": (
        LatticeFeatures([9.0], 9, [-4.5], "matern32", 0.6, margin=[1.5]),
        GaussianBase([0.2], [[1.1]]), rng.standard_normal((200, 1)) + 0.1,
    ),
    "period": (
        LatticeFeatures([3.0], 7, [0.5], "matern12", 0.6, ("period",)),
        BoxBase(("uniform", 0.0, 3.0)), 0.5 + 3 * rng.beta(2, 5, (150, 1)),
    ),
    "wall": (
        LatticeFeatures([2.0], 8, [1.0], "gaussian", 0.3, ("wall",)),
        BoxBase(("uniform", 1.0, 3.0)), 1 + 2 * rng.beta(1, 3, (150, 1)),
    ),
    "wall below": (
        LatticeFeatures([6.0], 8, [0.0], "matern52", 0.7, ("wall_below",), [1.5]),
        BoxBase(("exponential", 0.0, np.inf, 1.0)), rng.exponential(0.8, (150, 1)),
    ),
    "two open": (
        LatticeFeatures([9.0, 8.0], (3, 4), [-4.5, -4.0], "gaussian", 1.0, margin=[1.5, 1.5]),
        GaussianBase([0.0, 0.1], [[1.0, 0.3], [0.3, 0.8]]), rng.standard_normal((150, 2)),
    ),
    "wall and open": (
        LatticeFeatures([2.0, 8.0], (4, 3), [0.0, -4.0], "matern32", 0.8, ("wall", "open"),
                        [0.0, 1.5]),
        BoxBase(("uniform", 0.0, 2.0), ("gaussian", 0.0, 1.0)),
        np.column_stack([2 * rng.beta(1, 2, 150), rng.standard_normal(150)]),
    ),
    "three": (
        LatticeFeatures([1.0, 2.0, 7.0], (2, 1, 2), [0.0, 0.0, -3.5], "matern32", 0.8,
                        ("period", "wall", "open"), [0.0, 0.0, 1.2]),
        BoxBase(("uniform", 0.0, 1.0), ("uniform", 0.0, 2.0), ("gaussian", 0.0, 0.7)),
        np.column_stack([rng.uniform(size=80), 2 * rng.beta(1, 2, 80),
                         0.7 * rng.standard_normal(80)]),
    ),
}  # fmt: skip
NODES = {1: (1024,), 2: (240, 240), 3: (32, 16, 240)}


def make(name, weights=False):
    features, base, x = CASES[name]
    w = np.random.default_rng(1).uniform(0.5, 1.5, len(x)) if weights else np.ones(len(x))
    return features, base, x, w


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_theta_and_log_z_are_those_of_the_dense_solve(name):
    features, base, x, w = make(name, weights=True)
    lam = 0.5
    stats = accumulate_lattice(x, features, sample_weight=w, tolerance=1e-14)
    # a base with a slope at its wall: fourth order
    finer = {"wall below": (64,), "three": (4, 4, 20)}.get(name, (12, 12))
    shape = [k * n for k, n in zip(finer, features.grid_shape(), strict=False)]
    theta, report = solve_lattice_map(
        stats, base, lam, shape=shape, tolerance=1e-12, grid_tolerance=1e-8
    )
    quadrature = oracle.quadrature(features, *NODES[len(features.lengths)])
    want, log_z = oracle.map_coefficients(x, w, features, lam, base.log_density_at, *quadrature)
    y = x[:30]
    got = features.taper(y) * evaluate(features, theta, y)
    assert np.abs(got - oracle.exponent(y, features, want)).max() < 1e-8
    assert report["log_z"] == pytest.approx(log_z, abs=1e-8)
    assert report["gradient_norm"] <= 1e-12
    assert report["log_z_error"] <= 1e-8


def evaluate(features, theta, x):
    """f without taper at points, through a fine grid of the real basis."""
    shape = features.grid_shape(3.0)
    nodes = np.stack(np.meshgrid(*features.nodes(shape), indexing="ij"), axis=-1)
    phi = oracle.basis_values(nodes.reshape(-1, x.shape[1]), features)
    c = np.linalg.lstsq(phi, features.to_grid(theta, shape).ravel(), rcond=None)[0]
    return oracle.basis_values(x, features) @ c


@pytest.mark.parametrize("name", CASES)
def test_gradient_and_curvature_match_differences(name):
    features, base, x, _ = make(name)
    stats = accumulate_lattice(x, features, tolerance=1e-14)
    masses = node_masses(base, features, features.grid_shape())
    objective = LatticePosteriors(
        features, stats.sum_waves[None], np.array([stats.n]), [masses], 0.3
    )
    random = np.random.default_rng(2)

    def draw():
        modes = features.from_grid(random.standard_normal(features.grid_shape()))
        return modes[None] / np.linalg.norm(modes)

    u, v, step = draw(), draw(), 1e-4
    up, down = (objective.at(u + s * v) for s in (step, -step))
    point = objective.at(u)
    slope = np.vdot(objective.gradient(point), v).real
    assert slope == pytest.approx((up.value - down.value)[0] / (2 * step), rel=1e-6, abs=1e-6)
    change = (objective.gradient(up) - objective.gradient(down)) / (2 * step)
    assert np.abs(objective.curvature(point)(v) + change).max() < 1e-5 * np.abs(change).max()


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_is_solved_and_fits_better_than_the_base(kernel):
    x = np.concatenate([rng.normal(-1, 0.2, (300, 1)), rng.normal(1, 0.5, (300, 1))])
    base = GaussianBase.from_data(x)
    features = LatticeFeatures.for_data(x, 24, kernel, 0.4, base=base)
    held = x[::5]
    kept = np.delete(x, np.s_[::5], axis=0)
    theta, report = solve_lattice_map(accumulate_lattice(kept, features), base, 0.5)
    values = features.taper(held) * evaluate(features, theta, held)
    assert np.mean(values) - report["log_z"] > 0.2
    # the sums of the held-out rows give the sum of the exponents
    sums = accumulate_lattice(held, features).sum_waves
    assert features.inner(theta, sums) == pytest.approx(values.sum(), rel=1e-8)


def test_random_features_drawn_from_the_lattice_approach_its_density():
    """Frequencies drawn from the lattice's own spectral density: log q agrees as S grows."""
    x = np.concatenate([rng.normal(-1, 0.4, (200, 1)), rng.normal(1.2, 0.6, (200, 1))])
    base = GaussianBase.from_data(x)
    features = LatticeFeatures([24.0], 40, [-12.0], "matern32", 0.8, margin=[2.0])
    lam = 2.0
    theta, report = solve_lattice_map(accumulate_lattice(x, features), base, lam)
    y = np.linspace(-2.5, 2.5, 40)[:, None]
    want = evaluate(features, theta, y) + base.log_density_at(y) - report["log_z"]
    shares = features.multiplicity * features.prior_variance
    errors = []
    for size in (100, 1600):
        random = np.random.default_rng(size)
        z = random.choice(features.frequencies[0], size, p=shares / shares.sum())[:, None]
        drawn = tgp.Features(z, random.uniform(0, 2 * np.pi, size), 1.0)
        stats = tgp.accumulate(x, drawn, engine="direct")
        model = tgp.solve(stats, base, method="map", lam=lam)
        errors.append(float(np.sqrt(np.mean((model.log_density(y) - want) ** 2))))
    assert errors[1] < 0.5 * errors[0]
    assert errors[1] < 0.03


@pytest.mark.parametrize("data", ["smooth", "hard edges"])
def test_the_mass_is_one_by_adaptive_integration(data):
    x = rng.standard_normal((400, 1)) if data == "smooth" else rng.uniform(size=(400, 1))
    base = GaussianBase.from_data(x)
    features = LatticeFeatures.for_data(x, 30, "matern32", 0.2, base=base)
    theta, report = solve_lattice_map(accumulate_lattice(x, features), base, 0.2)

    def density(y):
        at = np.array([[y]])
        f = float(features.taper(at)[0] * sum_of_waves(features, theta, at)[0])
        return np.exp(f + base.log_density_at(at)[0] - report["log_z"])

    deviation = float(np.sqrt(base.covariance[0, 0]))
    low, high = features.core[0][0], features.core[1][0]
    ends = [base.mean[0] - 12 * deviation, features.origin[0], *np.linspace(low, high, 30),
            features.origin[0] + features.lengths[0], base.mean[0] + 12 * deviation]  # fmt: skip
    mass = sum(integrate.quad(density, a, b, epsabs=1e-10)[0] for a, b in itertools.pairwise(ends))
    assert mass == pytest.approx(1.0, abs=1e-6)


def sum_of_waves(features, theta, x):
    """f without taper, on a lattice of waves in one dimension."""
    waves = np.exp(1j * np.outer(x[:, 0] - features.origin[0], features.frequencies[0]))
    return (waves @ (features.multiplicity * theta)).real


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bandwidth", [0.2, 1.0])
def test_the_box_hardly_changes_the_density_of_the_rows(kernel, bandwidth):
    """Neither wrap-around nor taper: a box five times as long gives the same log density."""
    random = np.random.default_rng(5)
    x = np.concatenate([random.normal(-2, 0.3, (300, 1)), random.uniform(-2, 2, (200, 1)),
                        random.normal(2, 0.3, (100, 1))])  # fmt: skip
    base = GaussianBase.from_data(x)
    box = LatticeFeatures.for_data(x, 150, kernel, bandwidth, base=base)
    length, margin = box.lengths[0], box.margin[0]
    large = LatticeFeatures(
        [5 * length], 750, box.origin - 2 * length, kernel, bandwidth, margin=[2 * length + margin]
    )
    tight = LatticeFeatures(
        [length - 1.9 * margin], 150, box.origin + 0.95 * margin, kernel, bandwidth,
        margin=[0.05 * margin],
    )  # fmt: skip

    def tilt(features):
        theta, report = solve_lattice_map(accumulate_lattice(x, features), base, 0.5)
        return features.taper(x) * sum_of_waves(features, theta, x) - report["log_z"]

    want = tilt(large)
    assert np.abs(tilt(box) - want).max() < 5e-3
    # negative control: with hardly any margin the ends of the core touch
    assert np.abs(tilt(tight) - want).max() > 2 * np.abs(tilt(box) - want).max()


# -- how it is solved -----------------------------------------------------------------------------


def sharp_case():
    """A density of narrow bumps, which a grid of twice the band limit does not resolve."""
    x = np.concatenate([rng.normal(c, 0.01, (400, 1)) for c in (-1.0, 0.1, 1.3)])
    base = GaussianBase.from_data(x)
    features = LatticeFeatures.for_data(x, 30, "matern12", 0.3, base=base)
    return accumulate_lattice(x, features), base


def test_the_grid_is_refined_until_two_agree():
    stats, base = sharp_case()
    first = stats.features.grid_shape()
    plain, unchecked = solve_lattice_map(stats, base, 0.02, grid_tolerance=None)
    assert unchecked["shape"] == first
    assert np.isnan(unchecked["log_z_error"])
    theta, report = solve_lattice_map(stats, base, 0.02, grid_tolerance=1e-6)
    assert report["shape"][0] > first[0]
    assert report["log_z_error"] <= 1e-6
    finest = node_masses(base, stats.features, (20_000,))

    def log_z(modes):
        exponent = finest.taper * stats.features.to_grid(modes, finest.shape)
        return log_partition(exponent[None], [finest])[0][0]

    assert abs(log_z(theta) - report["log_z"]) < 1e-6
    # negative control: without the check the normalizer is off
    assert abs(log_z(plain) - unchecked["log_z"]) > 1e-4


def test_a_grid_that_cannot_be_refined_warns(monkeypatch):
    stats, base = sharp_case()
    monkeypatch.setitem(lattice_map.MOST_NODES, 1, 200)
    with pytest.warns(tgp.PrecisionWarning, match="too large"):
        solve_lattice_map(stats, base, 0.02, grid_tolerance=1e-12)


def test_too_few_steps_warn(monkeypatch):
    stats, base = sharp_case()
    monkeypatch.setattr("tgpfast.solvers.lattice_posterior.NEWTON_STEPS", 1)
    with pytest.warns(tgp.PrecisionWarning, match="MAP stopped"):
        solve_lattice_map(stats, base, 0.02, grid_tolerance=None)


def test_warm_starts_give_the_same_optimum_in_fewer_steps():
    features, base, x, _ = make("two open")
    stats = accumulate_lattice(x, features)
    cold, first = solve_lattice_map(stats, base, 0.1, tolerance=1e-9)
    near, _ = solve_lattice_map(stats, base, 0.15)
    warm, second = solve_lattice_map(stats, base, 0.1, start=near, tolerance=1e-9)
    assert second["newton_steps"] < first["newton_steps"]
    assert np.abs(warm - cold).max() < 1e-6
    # also from a smaller lattice, or a larger one, in the same box
    small, _ = solve_lattice_map(stats.corner(2), base, 0.1)
    for start in (small, features.resize_modes(near, (6, 6))):
        again, _ = solve_lattice_map(stats, base, 0.1, start=start, tolerance=1e-9)
        assert np.abs(again - cold).max() < 1e-6


def test_least_gain_stops_early():
    features, base, x, _ = make("two open")
    stats = accumulate_lattice(x, features)
    masses = node_masses(base, features, features.grid_shape())
    posteriors = LatticePosteriors(
        features, stats.sum_waves[None], np.array([stats.n]), [masses], 0.1
    )
    full, early = (
        maximize_posteriors(
            posteriors, np.zeros_like(posteriors.data), tolerance=1e-9, least_gain=gain
        )
        for gain in (0.0, 1e-3)
    )
    assert early.steps < full.steps
    assert 0.0 <= (full.point.value[0] - early.point.value[0]) / stats.n < 2e-3


def test_grids_of_a_base_are_made_once_and_workers_do_not_matter():
    features, base, x, _ = make("two open")
    stats, grids = accumulate_lattice(x, features), BaseGrids(base, features)
    theta, _ = solve_lattice_map(stats, base, 0.2)
    assert grids.at(features.grid_shape()) is grids.at(features.grid_shape())
    again, _ = solve_lattice_map(stats, base, 0.2, workers=2)
    assert np.abs(theta - again).max() < 1e-10


def test_weights_are_repetitions_and_outliers_count():
    features, base, x, _ = make("open")
    twice, _ = solve_lattice_map(
        accumulate_lattice(np.repeat(x, 2, axis=0), features), base, 0.2, tolerance=1e-10
    )
    weighted, _ = solve_lattice_map(
        accumulate_lattice(x, features, sample_weight=np.full(len(x), 2.0)), base, 0.2,
        tolerance=1e-10,
    )  # fmt: skip
    assert np.abs(twice - weighted).max() < 1e-8
    # rows outside of the box pull mass out of it
    far = np.concatenate([x, np.full((50, 1), 40.0)])
    _, report = solve_lattice_map(accumulate_lattice(far, features), base, 0.2)
    inside = solve_lattice_map(accumulate_lattice(x, features), base, 0.2)[1]
    assert report["log_z"] < inside["log_z"]


def test_a_prior_without_variance_at_high_frequencies_is_solved():
    """exp(-w^2 l^2 / 2) is exactly zero there."""
    features = LatticeFeatures([9.0], 60, [-4.5], "gaussian", 1.5)
    assert features.prior_variance.min() == 0.0
    _, base, x, _ = make("open")
    theta, report = solve_lattice_map(accumulate_lattice(x, features), base, 0.2)
    assert theta.shape == features.mode_shape
    assert report["shape"][0] < features.grid_shape()[0]  # modes without variance take no nodes
    assert np.isfinite(theta).all()
    again, _ = solve_lattice_map(accumulate_lattice(x, features), base, 0.2, start=theta)
    assert np.abs(again - theta).max() < 1e-6


def test_bad_input_is_refused():
    features, base, x, _ = make("open")
    stats = accumulate_lattice(x, features)
    with pytest.raises(ValueError, match="lam"):
        solve_lattice_map(stats, base, 0.0)
    with pytest.raises(ValueError, match="no rows"):
        solve_lattice_map(stats - stats, base, 1.0)
    with pytest.raises(ValueError, match="base has dimension 2"):
        solve_lattice_map(stats, GaussianBase(np.zeros(2), np.eye(2)), 1.0)


# -- the base on a grid ---------------------------------------------------------------------------


def test_a_base_that_leaks_through_walls_is_refused():
    features = LatticeFeatures([2.0], 4, [0.0], walls=("wall",))
    with pytest.raises(ValueError, match="outside of a box with walls"):
        node_masses(GaussianBase([1.0], [[1.0]]), features, (64,))
    # negative control: a base that fits, and open ends
    node_masses(BoxBase(("uniform", 0.0, 2.0)), features, (64,))
    node_masses(GaussianBase([1.0], [[1.0]]), LatticeFeatures([2.0], 4, [0.0]), (64,))


def test_a_grid_that_exceeds_the_memory_is_refused():
    features = LatticeFeatures([1.0] * 3, 2, [0.0] * 3)
    with pytest.raises(ValueError, match="use fewer modes"):
        node_masses(GaussianBase(np.zeros(3), np.eye(3)), features, (10**5,) * 3)


def test_slopes_at_walls_are_corrected():
    """An exponential base between walls: the error falls with the fourth power of the step."""
    features = LatticeFeatures([2.0], 3, [0.0], walls=("wall",))
    base = BoxBase(("exponential", 0.0, 2.0, 1.5))
    theta = np.array([0.2, 0.5, -0.3, 0.4])
    fine = np.polynomial.legendre.leggauss(200)
    x, w = 1.0 + fine[0], fine[1]
    f = sum(c * np.cos(np.pi * k * x / 2.0) for k, c in enumerate(theta))
    want = np.log(np.sum(w * np.exp(f + base.log_density_at(x[:, None]))))
    errors = []
    for n in (16, 32, 64):
        masses = node_masses(base, features, (n,))
        exponent = features.to_grid(theta, (n,))[None]
        errors.append(abs(log_partition(exponent, [masses])[0][0] - want))
    assert errors[2] < 1e-7
    assert errors[0] / errors[1] > 10
    # negative control: the plain midpoint rule
    h = 2.0 / 64
    mid = h * (np.arange(64) + 0.5)
    plain = h * np.exp(features.to_grid(theta, (64,)) + base.log_density_at(mid[:, None]))
    assert abs(np.log(plain.sum()) - want) > 100 * errors[2]


def test_the_mass_of_a_base_that_a_grid_does_not_resolve_is_not_negative():
    features = LatticeFeatures([10.0], 4, [-5.0])
    masses = node_masses(GaussianBase([0.0], [[1e-4]]), features, (20,))
    assert masses.outside == 0.0
    log_z, p = log_partition(np.full((1, 20), 800.0), [masses])
    assert np.isfinite(log_z)
    assert p.sum() == pytest.approx(1.0)


def test_log_partition_of_a_negative_mass_is_minus_infinity():
    features = LatticeFeatures([4.0], 3, [-2.0])
    masses = node_masses(GaussianBase([0.0], [[0.04]]), features, (64,))
    object.__setattr__(masses, "outside", -0.005)
    assert log_partition(np.full((1, 64), -50.0), [masses])[0][0] == -np.inf


def test_posteriors_solved_together_are_those_solved_one_by_one():
    features, base, x, _ = make(next(iter(CASES)))
    parts = [accumulate_lattice(some, features) for some in (x, x[::3], x[1::2])]
    masses = node_masses(base, features, features.grid_shape())
    sums, n = np.array([p.sum_waves for p in parts]), np.array([p.n for p in parts])
    together = LatticePosteriors(features, sums, n, [masses] * 3, 0.3)
    found = maximize_posteriors(together, np.zeros_like(sums), tolerance=1e-9)
    assert found.gradient_norm.max() <= 1e-9
    for k in range(3):
        alone = LatticePosteriors(features, sums[k : k + 1], n[k : k + 1], [masses], 0.3)
        one = maximize_posteriors(alone, np.zeros_like(sums[:1]), tolerance=1e-9)
        assert np.abs(one.theta[0] - found.theta[k]).max() < 1e-6 * np.abs(one.theta).max()
    # other rows have other optima
    assert np.abs(found.theta[0] - found.theta[1]).max() > 1e-3 * np.abs(found.theta).max()
