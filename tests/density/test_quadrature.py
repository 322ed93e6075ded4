"""The mass of densities in one to three dimensions against integrals that share nothing with it."""

import warnings

import numpy as np
import pytest
from conftest import slow
from scipy.stats import multivariate_t

import tgpfast as tgp
from tgpfast.bases.base import Base
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.density.grids.component_grid import UNSEEN_VARIANCE, ComponentGrid
from tgpfast.density.grids.components import split_base
from tgpfast.density.grids.whitened_grid import affordable_reach, count_nodes
from tgpfast.density.normalizing import quadrature
from tgpfast.density.normalizing.quadrature import Quadrature
from tgpfast.kernels.thread_choice import Threads

BOUND = {1: 1e-6, 2: 1e-6, 3: 1e-3}  # what is promised of log Z


class Logistic(Base):
    """A user's own base: independent logistic columns, heavier than a Gaussian."""

    kind = "logistic"

    def __init__(self, d):
        self.mean, self.covariance = np.zeros(d), np.eye(d) * np.pi**2 / 3

    def log_density_at(self, x):
        return -(x + 2 * np.logaddexp(0.0, -x)).sum(axis=1)

    def score_at(self, x):
        return -np.tanh(0.5 * x)

    def draw(self, n, rng):
        return rng.logistic(size=(n, self.dimension))

    def draw_sobol(self, log2_n, seed):
        from scipy.stats import qmc

        u = qmc.Sobol(self.dimension, seed=seed).random_base2(log2_n)
        return np.log(u + 1e-15) - np.log1p(1e-15 - u)


def base_of(kind, d):
    rng = np.random.default_rng(d)
    if kind == "gaussian":
        root = np.eye(d) + 0.3 * rng.normal(size=(d, d))
        return tgp.GaussianBase(rng.normal(size=d), root @ root.T)
    if kind == "mixture":
        means = rng.normal(size=(3, d)) * 2
        covariances = np.array([s * np.eye(d) for s in (0.02, 0.5, 16.0)])
        return tgp.MixtureBase([0.6, 0.399, 0.001], means, covariances)
    if kind == "student":
        return tgp.StudentBase(np.zeros(d), np.eye(d) * 0.7, 6.0)
    return Logistic(d)


def tilt_of(d, base, *, size=1.0, gamma=0.7, S=20, seed=0):
    features = tgp.Features.draw(S, gamma, np.eye(d), seed=seed)
    theta = size * np.random.default_rng(seed).standard_normal(S)
    return PointTilt(features, theta, base.mean)


def log_mass(tilt, base, *, reach, panels, order=8):
    """log of the integral of e^tilt base by Gauss-Legendre panels on a box about the origin."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    edges = np.linspace(-reach, reach, panels + 1)
    half = 0.5 * np.diff(edges)[:, None]
    axis, share = (edges[:-1, None] + half + half * nodes).ravel(), (half * weights).ravel()
    d, total = base.dimension, -np.inf
    f = tilt.features
    frequencies, amplitude = f.frequencies / f.bandwidth, np.sqrt(2.0 / f.n_features)
    rest = np.zeros((1, 0))
    if d > 1:
        rest = np.stack(np.meshgrid(*[axis] * (d - 1), indexing="ij"), -1).reshape(-1, d - 1)
    of_rest = np.ones(1)
    for _ in range(d - 1):
        of_rest = np.outer(of_rest, share).ravel()
    for first, w in zip(axis, share, strict=True):
        x = np.column_stack([np.full(len(rest), first), rest])
        exponent = amplitude * np.cos(x @ frequencies.T + f.phases) @ tilt.theta
        terms = exponent + base.log_density(x)
        top = terms.max()
        total = np.logaddexp(total, top + np.log(w * float(np.exp(terms - top) @ of_rest)))
    return total


@pytest.mark.parametrize("kind", ["gaussian", slow("mixture"), slow("student"), slow("logistic")])
@pytest.mark.parametrize("d", [1, 2])
def test_the_mass_equals_an_independent_integral(kind, d):
    base = base_of(kind, d)
    tilt = tilt_of(d, base)
    found = Quadrature(tilt, base, Threads())
    if d == 1:
        reach, panels = (200.0, 3000) if kind == "student" else (45.0, 800)
    else:
        reach, panels = (60.0, 150) if kind in ("student", "logistic") else (26.0, 100)
    want = log_mass(tilt, base, reach=reach, panels=panels)
    tail = 0.0
    if kind == "student":  # beyond the box the tilt is bounded
        spread = multivariate_t(np.zeros(d), base.scale_matrix, df=6.0)
        outside = 1.0 - spread.cdf(np.full(d, reach), lower_limit=np.full(d, -reach))
        tail = 3.0 * max(outside, 0.0)
    assert abs(found.value - want) < BOUND[d] + tail
    assert found.error < BOUND[d]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_the_mass_in_three_dimensions(kind):
    base = base_of(kind, 3)
    tilt = tilt_of(3, base, gamma=1.2)
    found = Quadrature(tilt, base, Threads())
    reach, panels = (13.0, 50) if kind == "gaussian" else (12.0, 60)
    if kind == "mixture":  # panels as narrow as its narrowest component would be too many
        narrow = np.array([0.1 * np.eye(3), 0.5 * np.eye(3), 2.0 * np.eye(3)])
        base = tgp.MixtureBase(base.weights, base.means, narrow)
        tilt = tilt_of(3, base, gamma=1.2)
        found = Quadrature(tilt, base, Threads())
    want = log_mass(tilt, base, reach=reach, panels=panels, order=4)
    assert abs(found.value - want) < BOUND[3]
    assert found.error < BOUND[3]


@pytest.mark.parametrize("kind", ["gaussian", "mixture", slow("student")])
def test_a_window_and_draws_beyond_it_give_the_same_mass(kind, monkeypatch):
    """Few nodes: the grids end early, and draws give the rest with an error that holds."""
    base = base_of(kind, 2)
    tilt = tilt_of(2, base, gamma=0.4)
    exact = Quadrature(tilt, base, Threads())
    nodes = {"gaussian": 1_000, "mixture": 3_000, "student": 10_000}[kind]
    monkeypatch.setitem(quadrature.FIRST_NODES, 2, nodes)
    monkeypatch.setitem(quadrature.MOST_QUADRATURE_NODES, 2, 3 * nodes)
    few = Quadrature(tilt, base, Threads())
    assert any(grid.windowed for grid in few.grids)
    assert few.n_nodes < exact.n_nodes / 1.5
    assert 1e-9 < few.error < 0.05
    assert abs(few.value - exact.value) < 5 * few.error + exact.error


@pytest.mark.slow
def test_without_the_draws_beyond_the_window_mass_is_missed(monkeypatch):
    """Negative control of the test above."""
    monkeypatch.setitem(quadrature.FIRST_NODES, 2, 3_000)
    monkeypatch.setitem(quadrature.MOST_QUADRATURE_NODES, 2, 9_000)
    monkeypatch.setattr(ComponentGrid, "sample_tail", lambda self, *args: None)
    base = base_of("student", 2)
    tilt = tilt_of(2, base)
    found = Quadrature(tilt, base, Threads())
    monkeypatch.undo()
    exact = Quadrature(tilt, base, Threads())
    assert abs(found.value - exact.value) > 1e-4 > 1e3 * exact.error


@pytest.mark.slow
def test_mass_where_the_base_is_thin_is_found():
    """The failure of base draws: a tilt that outgrows the base 9 deviations away, with nothing in
    between. A window of cosines makes one tall, narrow peak there."""
    base = tgp.GaussianBase([0.0], [[1.0]])
    waves = np.linspace(0.5, 8.0, 60)[:, None]
    features = tgp.Features(waves, -9.0 * waves[:, 0], 1.0)
    theta = np.full(60, 12.0)  # all in phase at 9
    tilt = PointTilt(features, theta, base.mean)
    found = Quadrature(tilt, base, Threads())
    x = np.linspace(-40, 40, 2_000_001)
    exponent = sum(np.sqrt(2 / 60) * 12.0 * np.cos(w * (x - 9.0)) for w in waves[:, 0])
    terms = exponent - 0.5 * x**2 - 0.5 * np.log(2 * np.pi)
    want = terms.max() + np.log(np.exp(terms - terms.max()).sum() * (x[1] - x[0]))
    assert abs(found.value - want) < 1e-6
    draws = base.sample(131_072, seed=0)
    naive = tilt.value(draws, Threads())
    naive = np.logaddexp.reduce(naive) - np.log(len(naive))
    assert want - naive > 10  # what draws of the base miss


@pytest.mark.slow
def test_an_error_that_draws_cannot_see_is_reported():
    """Far from the data a tilt of large variance has most of its mass in peaks too rare to draw:
    the error says so instead of the spread of the draws."""
    base = tgp.MixtureBase([0.999, 0.001], np.zeros((2, 2)), [0.01 * np.eye(2), 900.0 * np.eye(2)])
    tilt = tilt_of(2, base, size=7.0, gamma=0.05, S=50)
    assert tilt.variance > UNSEEN_VARIANCE
    found = Quadrature(tilt, base, Threads())
    assert found.error > 0.1


@pytest.mark.parametrize("d", [1, 2, 3])
def test_draws_from_beyond_a_radius_follow_the_component(d):
    """Shares and laws of radii against plain draws of the same base."""
    rng = np.random.default_rng(0)
    for base in (base_of("gaussian", d), base_of("student", d), base_of("logistic", d)):
        (component,) = split_base(base)
        w = component.gaussian.whiten(base.draw(200_000, rng))
        r = np.sqrt((w**2).sum(axis=1))
        radius = float(np.quantile(r, 0.9))
        points, log_share = component.draw_outside(radius, 12, 0)
        got = np.sqrt((points**2).sum(axis=1))
        assert (got >= radius * (1 - 1e-9)).all()
        assert np.exp(log_share) == pytest.approx(0.1, rel=0.05)
        for q in (0.25, 0.5, 0.75):
            want = np.quantile(r[r > radius], q)
            assert np.quantile(got, q) == pytest.approx(want, rel=0.05)


@pytest.mark.slow
def test_an_axis_of_any_length_keeps_within_the_nodes():
    """After an outlier of 1e9 one axis is that much longer: the count must not wrap or explode."""
    base = tgp.GaussianBase([0.0, 0.0], [[1e18, 0.0], [0.0, 1.0]])
    tilt = tilt_of(2, base)
    found = Quadrature(tilt, base, Threads())
    assert found.n_nodes <= quadrature.MOST_QUADRATURE_NODES[2]
    assert np.isfinite(found.value)
    assert count_nodes(np.array([1e-12, 1e-12, 1e-12]), 1e3) > 2**63
    for step in ([0.1, 0.1], [1e-9, 0.5], [1e-9, 1e3], [1e-3, 1e-3, 5.0]):
        reach = affordable_reach(np.array(step), 1e5)
        assert 5e2 < count_nodes(np.array(step), reach) < 1e6


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("kind", [slow("gaussian"), "mixture", slow("student")])
def test_marginal_cdfs_equal_those_of_weighted_draws(kind, d):
    base = base_of(kind, d)
    model = tgp.Density("fd", tilt_of(d, base, gamma=1.0), base)
    x = base.sample(400_000, seed=3)
    weights = np.exp(model.tilt.value(x, Threads()))
    effective = weights.sum() ** 2 / (weights @ weights)
    rng = np.random.default_rng(0)
    for _ in range(2):
        v = rng.normal(size=d)
        order = np.argsort(x @ v)
        running = np.cumsum(weights[order]) / weights.sum()
        places = (x @ v)[order][:: len(x) // 50]
        got = model.marginal_cdf(v, places)
        assert np.abs(got - running[:: len(x) // 50]).max() < 2.0 / np.sqrt(effective)
        assert (np.diff(got) > -1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "seed"), [("uniform", 1), ("disc", 2)])
def test_a_default_fit_of_data_with_edges_integrates_to_one(shape, seed):
    """The fits that were silently wrong: mass e^59, samples with five distinct values."""
    rng = np.random.default_rng(seed)
    if shape == "uniform":
        x = rng.uniform(size=(2_500, 1))
        places = np.linspace(-15, 16, 1_000_001)[:, None]
        volume = places[1, 0] - places[0, 0]
    else:
        angle, radius = rng.uniform(0, 2 * np.pi, 2_500), np.sqrt(rng.uniform(size=2_500))
        x = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        axis = np.linspace(-12, 12, 1_601)
        places = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
        volume = (axis[1] - axis[0]) ** 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = tgp.fit(x, n_features=200)
    total = float(np.exp(model.log_density(places)).sum() * volume)
    assert abs(total - 1.0) < 2e-4  # the guard component reaches beyond the places
    draws = model.sample(2_000, seed=0)
    assert len(np.unique(draws[:, 0])) > 1_990
    assert model.settings["verification"]["passed"]
    # no place far from the data is likelier than the data
    far = np.abs(places - x.mean(axis=0)).max(axis=1) > 1.3 * np.abs(x - x.mean(axis=0)).max()
    assert model.log_density(places[far]).max() < np.quantile(model.log_density(x), 0.01)


class Laplace(Logistic):
    """It bends at its center, where the trapezoidal rule converges slowly."""

    kind = "a laplace of test_quadrature"

    def __init__(self, d):
        self.mean, self.covariance = np.zeros(d), 2.0 * np.eye(d)

    def log_density_at(self, x):
        return -(np.abs(x) + np.log(2.0)).sum(axis=1)

    def draw_sobol(self, log2_n, seed):
        return np.random.default_rng(seed).laplace(size=(2**log2_n, self.dimension))


@pytest.mark.slow
def test_a_base_of_unknown_tails_that_bends_gets_a_finer_grid(monkeypatch):
    """Its first grid reaches thousands of deviations: reach is given up for resolution."""
    base = Laplace(1)
    tilt = tilt_of(1, base)
    found = Quadrature(tilt, base, Threads())
    want = log_mass(tilt, base, reach=60.0, panels=4_000)
    assert abs(found.value - want) < BOUND[1]
    assert found.error < BOUND[1]
    assert found.n_nodes <= quadrature.MOST_QUADRATURE_NODES[1]
    # negative control: a grid that keeps its reach has the error that it reports
    monkeypatch.setattr(quadrature, "LEAST_REACH", 1e9)
    monkeypatch.setattr(Quadrature, "_needed_reach", lambda self, component: np.inf)
    wide = Quadrature(tilt, base, Threads())
    assert BOUND[1] < abs(wide.value - want) < wide.error
