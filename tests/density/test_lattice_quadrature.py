"""Mass, marginals and draws of densities with lattice features, against independent integrals.

The integrals here have nodes of their own (Gauss-Legendre panels over all of the base's range) and
take the exponent from the sum over its waves, not from the interpolation that is tested.
"""

import functools
import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import tgpfast.density.normalizing.lattice_quadrature as lattice_quadrature
from tgpfast.bases.bounded import BoundedMixtureBase, UniformBase
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.mixture import MixtureBase
from tgpfast.bases.product import ProductBase
from tgpfast.bases.student import StudentBase
from tgpfast.density.exponents.lattice_exponent import LatticeTilt
from tgpfast.density.normalizing.lattice_quadrature import LATTICE_TOLERANCE, LatticeQuadrature
from tgpfast.density.normalizing.normalizer import normalizer_of_quadrature
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.kernels.thread_choice import Threads

INF = np.inf
LEAST_P = 1e-4  # of tests with a fixed seed
THREADS = Threads("auto", 1)


def make_tilt(walls, n_modes, lengths, origin, lam=0.2, kernel="matern12", seed=0):
    """A rough function: a draw of the prior."""
    rng = np.random.default_rng(seed)
    features = LatticeFeatures(lengths, n_modes, origin, kernel, 0.3, walls)
    white = rng.normal(size=features.grid_shape(2.0))
    theta = features.from_grid(white) / np.sqrt(white.size)
    return LatticeTilt(features, theta * np.sqrt(features.prior_variance / lam))


LINE = make_tilt(("open",), 40, [8.0], [-4.0], lam=0.1)
PLANE = make_tilt(("open", "open"), (12, 10), [8.0, 7.0], [-4.0, -3.0])
CLOSED = make_tilt(("wall", "period"), (12, 10), [1.0, 2.0], [0.0, 0.0])
HALF = make_tilt(("wall_below", "open"), (12, 10), [4.0, 8.0], [0.0, -4.0])
SPACE = make_tilt(
    ("open", "period", "wall"), (6, 4, 4), [8.0, 2.0, 1.0], [-4.0, 0.0, 0.0], kernel="matern32"
)

# name -> tilt, base, and where an independent integral begins and ends
CASES = {
    "line": (LINE, GaussianBase([0.0], [[1.0]]), [-9.0], [9.0]),
    "line, base beyond the box": (LINE, GaussianBase([1.0], [[25.0]]), [-50.0], [50.0]),
    "line, mixture with a narrow part": (
        LINE, MixtureBase([0.7, 0.3], [[0.0], [0.71]], [[[1.0]], [[1e-4]]]), [-9.0], [9.0]
    ),
    "plane": (PLANE, GaussianBase([0.0, 0.5], [[1.0, 0.5], [0.5, 1.0]]), [-9.0] * 2, [9.0] * 2),
    "plane, narrow parts": (
        PLANE,
        MixtureBase(
            [0.5, 0.3, 0.2], [[0.0, 0.0], [0.7, 0.2], [3.5, 3.5]],
            [np.eye(2), [[0.01, 0.008], [0.008, 0.01]], 0.02 * np.eye(2)],
        ),
        [-9.0] * 2, [9.0] * 2,
    ),
    "walls and periods, uniform": (
        CLOSED, UniformBase([0.0, 0.0], [1.0, 2.0], [False, True]), [0.0, 0.0], [1.0, 2.0]
    ),
    "walls and periods, sloped base": (
        CLOSED,
        BoundedMixtureBase(
            [1.0], [[0.2, 1.9]], [[[0.2, 0.05], [0.05, 0.1]]], [0.0, 0.0], [1.0, 2.0], [False, True]
        ),
        [0.0, 0.0], [1.0, 2.0],
    ),
    "one wall": (
        HALF,
        BoundedMixtureBase([1.0], [[0.2, 0.3]], [[[2.0, 0.5], [0.5, 1.0]]], [0.0, -INF], [INF] * 2),
        [0.0, -8.0], [14.0, 9.0],
    ),
    "space": (
        SPACE,
        ProductBase([
            GaussianBase([0.0], [[1.0]]), UniformBase([0.0], [2.0], [True]),
            BoundedMixtureBase([1.0], [[0.2]], [[[0.1]]], [0.0], [1.0]),
        ]),
        [-8.0, 0.0, 0.0], [8.0, 2.0, 1.0],
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


@functools.cache
def quadrature(name):
    tilt, base, _, _ = CASES[name]
    return LatticeQuadrature(tilt, base, THREADS)


class Panels:
    """An independent rule: panels of 12 Gauss-Legendre nodes, about one for each half wave."""

    def __init__(self, tilt, low, high):
        features = tilt.features
        t, w = np.polynomial.legendre.leggauss(12)
        self.axes, self.weights = [], []
        for k, (a, b) in enumerate(zip(low, high, strict=True)):
            count = int(np.ceil(1.3 * (b - a) * features.frequencies[k].max() / np.pi)) + 2
            if features.dimension == 3:
                count = max(4, count // 2)
            ends = np.linspace(a, b, count + 1)
            half = 0.5 * (ends[1] - ends[0])
            self.axes.append((0.5 * (ends[:-1] + ends[1:])[:, None] + half * t).ravel())
            self.weights.append(np.tile(half * w, count))
        self.x = np.stack(np.meshgrid(*self.axes, indexing="ij"), axis=-1)
        self.x = self.x.reshape(-1, features.dimension)
        self.volume = functools.reduce(np.multiply.outer, self.weights).ravel()


def exact_tilt(tilt, axes):
    """The tapered sum over all waves on a tensor grid, from the definition."""
    features = tilt.features
    block = features.multiplicity * tilt.theta
    inside = []
    for k, x in enumerate(axes):
        phase = np.multiply.outer(x - features.origin[k], features.frequencies[k])
        waves = np.cos(phase) if features.cosine[k] else np.exp(1j * phase)
        block = np.moveaxis(np.tensordot(waves, block, axes=(1, k)), 0, k)
        share = (x - features.origin[k]) / features.lengths[k]
        is_periodic = features.walls[k] == "period"
        inside.append(np.where(is_periodic | ((share >= 0.0) & (share <= 1.0)), 1.0, 0.0))
    taper = features.taper_on(axes)
    return np.real(block) * taper * functools.reduce(np.multiply.outer, inside)


@functools.cache
def integrals(name):
    """The rule, e^f base at its nodes times their volumes, and e^{2f} base."""
    tilt, base, low, high = CASES[name]
    rule = Panels(tilt, low, high)
    f = exact_tilt(tilt, rule.axes).ravel()
    density = rule.volume * np.exp(base.log_density_at(rule.x))
    return rule, density * np.exp(f), density * np.exp(2.0 * f)


@every_case
def test_the_mass_is_that_of_an_independent_integral(name):
    q = quadrature(name)
    _, mass, square = integrals(name)
    d = q.d
    assert q.value == pytest.approx(np.log(mass.sum()), abs=1e-6)
    assert abs(q.value - np.log(mass.sum())) <= q.error + 1e-7  # the other integral errs too
    assert q.error <= LATTICE_TOLERANCE[d]
    assert q.log_square == pytest.approx(np.log(square.sum()), abs=1e-4)


def test_the_mass_in_one_dimension_by_adaptive_integration():
    tilt, base, low, high = CASES["line, base beyond the box"]

    def density(x):
        rows = np.array([[x]])
        return np.exp(exact_tilt(tilt, [rows[:, 0]])[0] + base.log_density_at(rows)[0])

    ends = np.concatenate([low, np.linspace(-4.0, 4.0, 81), high])
    total = sum(quad(density, a, b, epsabs=1e-12)[0] for a, b in itertools.pairwise(ends))
    assert quadrature("line, base beyond the box").value == pytest.approx(np.log(total), abs=1e-8)


def test_heavy_tails_stay_those_of_the_base():
    """Student tails, and a box that leaves a seventh of the base outside."""
    base = StudentBase([0.0], [[2.0]], 2.0)
    q = LatticeQuadrature(LINE, base, THREADS)
    inside = quad(
        lambda x: np.exp(LINE.value(np.array([[x]]), THREADS)[0] + base.log_density_at([[x]])[0]),
        -4.0, 4.0, limit=400,
    )[0]  # fmt: skip
    outside = 2.0 * stats.t(2.0, 0.0, np.sqrt(2.0)).cdf(-4.0)
    assert outside > 0.1
    assert np.exp(q.value) == pytest.approx(inside + outside, rel=1e-7)
    rows, _ = q.draw(20_000, np.random.default_rng(0))
    count = int((np.abs(rows) > 4.0).sum())
    assert stats.binomtest(count, 20_000, outside / np.exp(q.value)).pvalue > LEAST_P


def test_no_tilt_has_the_mass_of_the_base():
    features = LatticeFeatures([4.0], 3, [-2.0])
    q = LatticeQuadrature(
        LatticeTilt(features, np.zeros(4)), GaussianBase([0.0], [[1.0]]), THREADS
    )
    assert q.value == pytest.approx(0.0, abs=1e-15)
    assert q.log_square == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("level", [-900.0, -20.0, 300.0])
def test_large_exponents_neither_overflow_nor_vanish(level):
    """Between walls a constant shifts log Z by itself."""
    tilt, base, _, _ = CASES["walls and periods, uniform"]
    theta = tilt.theta.copy()
    theta[0, 0] += level
    q = LatticeQuadrature(LatticeTilt(tilt.features, theta), base, THREADS)
    before = quadrature("walls and periods, uniform").value
    assert q.value - level == pytest.approx(before, abs=1e-7)
    assert q.error < 1e-7


# -- errors are honest ----------------------------------------------------------------------------


def test_too_few_nodes_show_in_the_error(monkeypatch):
    tilt, base, _, _ = CASES["plane"]
    resolved = quadrature("plane").value  # kept for other tests: made with all nodes
    monkeypatch.setitem(lattice_quadrature.LATTICE_NODES, 2, 1_200)
    q = LatticeQuadrature(tilt, base, THREADS)
    true = abs(q.value - resolved)
    assert q.n_nodes < 2_000
    assert LATTICE_TOLERANCE[2] < true <= q.error


def test_parts_that_no_rule_resolves_show_in_the_error():
    """Between walls narrow components stay on the rule; one is too narrow for any."""
    tilt = make_tilt(("wall",), 12, [1.0], [0.0])
    domain, places = ([0.0], [1.0]), [[0.45], [0.51]]
    too_narrow = BoundedMixtureBase([0.6, 0.4], places, [[[0.0025]], [[1e-14]]], *domain)
    assert LatticeQuadrature(tilt, too_narrow, THREADS).error >= 0.4
    resolved = BoundedMixtureBase([0.6, 0.4], places, [[[0.0025]], [[1e-6]]], *domain)
    q = LatticeQuadrature(tilt, resolved, THREADS)
    assert q.error < 1e-8
    wide = BoundedMixtureBase([1.0], places[:1], [[[0.0025]]], *domain)
    of_wide = np.exp(LatticeQuadrature(tilt, wide, THREADS).value)
    expected = np.log(0.6 * of_wide + 0.4 * np.exp(tilt.value(np.array([[0.51]]), THREADS)[0]))
    assert q.value == pytest.approx(expected, abs=1e-4)  # e^f is flat over the narrow one


def test_narrow_gaussians_have_grids_of_their_own():
    q = quadrature("plane, narrow parts")
    assert 1 <= len(q.narrow) <= 2
    alone = LatticeQuadrature(PLANE, GaussianBase([0.4, 0.3], 1e-8 * np.eye(2)), THREADS)
    assert alone.shared is None
    f = PLANE.value(np.array([[0.4, 0.3]]), THREADS)[0]
    assert alone.value == pytest.approx(f, abs=1e-6)
    rows, _ = alone.draw(500, np.random.default_rng(0))
    assert np.abs(rows - [0.4, 0.3]).max() < 1e-3
    cdf = alone.marginal_cdf(np.array([1.0, 0.0]), np.array([0.3999, 0.4, 0.4001]))
    np.testing.assert_allclose(cdf, stats.norm.cdf([-1.0, 0.0, 1.0]), atol=1e-3)


def test_a_normalizer_comes_from_the_rules():
    result = normalizer_of_quadrature(quadrature("plane"))
    assert result.method == "quadrature"
    assert result.effective_share == 1.0  # the rules resolve the tilt wherever it has mass
    assert result.standard_error == quadrature("plane").error
    assert result.n_points == quadrature("plane").n_nodes


def test_dimensions_must_agree():
    with pytest.raises(ValueError, match="features of dimension 1 do not go with a base of"):
        LatticeQuadrature(LINE, GaussianBase(np.zeros(2), np.eye(2)), THREADS)


# -- marginals and draws --------------------------------------------------------------------------


def directions(d):
    return [*np.eye(d), np.array([1.0, -0.6, 0.4])[:d], np.array([0.2, 1.0, 0.9])[:d]]


@every_case
def test_marginals_are_those_of_an_independent_integral(name):
    """Means of x . v over (-inf, place] along the axes: the panels give them exactly there."""
    q = quadrature(name)
    rule, mass, _ = integrals(name)
    shape = tuple(len(axis) for axis in rule.axes)
    for k, axis in enumerate(rule.axes):
        other = tuple(j for j in range(q.d) if j != k)
        margin = mass.reshape(shape).sum(axis=other).reshape(-1, 12).sum(axis=1)
        panels = len(axis) // 12
        low, high = CASES[name][2][k], CASES[name][3][k]
        places = np.linspace(low, high, panels + 1)[1:]
        expected = np.cumsum(margin) / mass.sum()
        found = q.marginal_cdf(np.eye(q.d)[k], places)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 if q.d < 3 else 1e-4)


@every_case
@pytest.mark.slow
def test_draws_have_the_marginals(name):
    q = quadrature(name)
    rows, effective = q.draw(8_000, np.random.default_rng(5))
    assert rows.shape == (8_000, q.d)
    assert effective > 7_000
    assert np.isfinite(CASES[name][1].log_density_at(rows)).all()
    for v in directions(q.d):
        cdf = functools.partial(q.marginal_cdf, v)
        assert stats.kstest(rows @ v, cdf).pvalue > LEAST_P, v


def test_the_draws_of_another_density_are_noticed():
    """Negative control: draws of the base against the marginals of the density."""
    base = CASES["plane"][1]
    rows = base.draw(8_000, np.random.default_rng(5))
    pvalues = [
        stats.kstest(rows @ v, functools.partial(quadrature("plane").marginal_cdf, v)).pvalue
        for v in directions(2)
    ]
    assert min(pvalues) < 1e-10


def test_draws_depend_on_the_seed_alone():
    q = quadrature("plane")
    one, two = (q.draw(300, np.random.default_rng(s))[0] for s in (1, 1))
    other = q.draw(300, np.random.default_rng(2))[0]
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_places_and_directions_of_any_size():
    q = quadrature("plane")
    places = np.array([INF, -INF, 0.3, 1e300])
    cdf = q.marginal_cdf(np.array([0.0, 1.0]), places)
    np.testing.assert_allclose(cdf[[0, 1, 3]], [1.0, 0.0, 1.0], atol=1e-9)
    longer = q.marginal_cdf(np.array([0.0, -7.0]), -7.0 * places[2:3])
    np.testing.assert_allclose(longer, 1.0 - cdf[2:3], atol=1e-6)


def test_few_cosines_are_integrated_as_well_as_many():
    """Their first rules have the same nodes, whose agreement would show no error."""
    theta = np.array([0.0, 2.5, -3.0, 1.5, 2.0])
    features = LatticeFeatures([2.0], (4,), [-1.0], walls=("wall",))
    found = LatticeQuadrature(LatticeTilt(features, theta), UniformBase([-1.0], [1.0]))
    x = (np.arange(200_000) + 0.5) / 200_000  # midpoints, between walls at 0 and 1
    truth = np.log(np.exp(np.cos(np.pi * np.outer(x, np.arange(5))) @ theta).mean())
    assert abs(found.value - truth) < max(found.error, 1e-8)
