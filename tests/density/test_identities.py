"""Identities between answers of one fitted model: chain rule, inverses, whole space, regions; and
the same questions to densities, marginals and conditionals."""

import inspect

import numpy as np
import pytest
from answer_models import Product, covariance, mixture, of_base, tilted

import tgpfast as tgp
from tgpfast.density.columns.discrete import DiscreteDensity
from tgpfast.density.columns.marginals import MarginalDensity
from tgpfast.density.density import Density

SHARED = (
    "cdf", "conditional", "entropy", "expectation", "explain", "grad_log_density",
    "highest_density_region", "kl_divergence", "log_density", "marginal", "median", "mode",
    "mutual_information", "plot", "probability", "quantile", "sample", "save", "summary",
)  # fmt: skip


def fit_lattice(d):
    """A wall in the first column, a bend between the first two, on a lattice."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(1_000, d))
    x[:, 0] = np.abs(x[:, 0])
    x[:, 1] += x[:, 0] ** 2
    return tgp.fit(
        x, support={0: (0, None)}, method="map", lam=1.0, gamma=0.7, kernel="matern52",
        features="lattice",
    )  # fmt: skip


@pytest.fixture(scope="module")
def plane():
    return fit_lattice(2)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def lattice(request):
    return request.getfixturevalue("plane") if request.param == 2 else fit_lattice(3)


def test_chain_rule_on_a_lattice(lattice):
    """log p(x, y) = log p(x) + log p(y | x), and the same with the columns exchanged."""
    d = lattice.dimension
    rows = lattice.sample(3, seed=0)
    for kept in ([0], list(range(1, d))):
        rest = [k for k in range(d) if k not in kept]
        part = lattice.marginal(kept)
        for row in rows:
            given = lattice.conditional({k: row[k] for k in kept})
            total = part.log_density(row[None, kept])[0] + given.log_density(row[None, rest])[0]
            assert abs(total - lattice.log_density(row[None])[0]) < 1e-6


def test_quantiles_invert_distribution_functions(lattice):
    levels = np.array([0.001, 0.3, 0.5, 0.999])
    last = lattice.dimension - 1
    one = lattice.conditional(dict.fromkeys(range(last), 1.0))
    tolerance = 1e-8 if last == 1 else 1e-6
    for model in (lattice.marginal(last), one):
        places = model.quantile(levels)
        assert np.abs(model.cdf(places) - levels).max() < tolerance
        assert np.abs(model.quantile(model.cdf(places)) - places).max() < 1e-4


def test_the_whole_space_has_probability_one(plane):
    assert plane.probability().value == 1.0
    low, high = (plane.probability(*ends) for ends in ((None, {1: 0.7}), ({1: 0.7}, None)))
    assert abs(low + high - 1.0) <= low.standard_error + high.standard_error
    assert abs(plane.expectation(lambda rows: np.ones(len(rows))) - 1.0) < 1e-6
    assert plane.probability(None, {0: 0.0}).value == 0.0  # the wall


@pytest.mark.slow
def test_a_region_of_a_lattice_holds_its_level_of_fresh_rows(plane):
    for model, n in ((plane, 20_000), (plane.marginal(1), 5_000)):
        region = model.highest_density_region(0.8)
        inside = region.contains(model.sample(n, seed=9)).mean()
        spread = np.sqrt(0.8 * 0.2 / n)
        draws = 131_072 if model is plane else 2_048  # behind the threshold
        assert abs(inside - 0.8) < 4 * np.hypot(spread, np.sqrt(0.8 * 0.2 / draws))
        assert abs(region.probability - 0.8) < 5 * max(region.standard_error, 1e-3)


# -- marginals and conditionals ask the same questions --------------------------------------------


def test_all_densities_answer_the_same_questions():
    for kind in (MarginalDensity, DiscreteDensity):
        for name in (*SHARED, "_repr_html_", "settings", "log_normalizer", "dimension", "method"):
            assert hasattr(kind, name), (kind, name)
        for name in SHARED:
            wanted = inspect.signature(getattr(Density, name)).parameters
            found = inspect.signature(getattr(kind, name)).parameters
            # only densities themselves can do without normalizers, and hold statistics to save
            missing = set(wanted) - set(found) - {"normalized", "statistics"}
            assert not missing, (kind, name, missing)


@pytest.mark.slow
def test_conditionals_of_marginals_are_marginals_of_conditionals():
    model = tilted(3, mixture(3), size=0.5)
    one = model.marginal([2, 0]).conditional({1: 4.0})
    two = model.conditional({0: 4.0}).marginal([1])
    at = np.array([[3.0], [6.0]])
    np.testing.assert_allclose(one.log_density(at), two.log_density(at), atol=1e-9)
    joint, single = model.marginal([2, 0]), model.marginal([0])
    chain = single.log_density([[4.0]]) + one.log_density(at)
    np.testing.assert_allclose(
        chain, joint.log_density(np.column_stack([at, [4.0, 4.0]])), atol=1e-6
    )
    with pytest.raises(ValueError, match="one value for each"):
        joint.conditional({1: [4.0, 5.0]})


def test_explained_rows_of_marginals():
    """Half the squared conditional z-score for Gaussians, and differences on a line for a tilt."""
    sigma = covariance(3)
    part = MarginalDensity(of_base(tgp.GaussianBase(np.zeros(3), sigma)), [2, 0])
    precision = np.linalg.inv(sigma[np.ix_([2, 0], [2, 0])])
    rows = np.array([[0.5, 2.0], [-3.0, 0.0]])
    expected = -0.5 * (rows @ precision) ** 2 / np.diag(precision)
    np.testing.assert_allclose(part.explain(rows), expected, atol=1e-5)
    alone = Product(2).model.marginal([0])
    best = alone.log_density(np.linspace(-15.0, 25.0, 4_001)[:, None]).max()
    at = np.array([[2.0], [7.0]])
    np.testing.assert_allclose(alone.explain(at)[:, 0], alone.log_density(at) - best, atol=1e-4)


def test_modes_regions_and_divergences_of_marginals():
    tilt_free = of_base(mixture(3))
    part = MarginalDensity(tilt_free, [0])  # its base has a closed form
    known = tilt_free.marginal([0])
    found, expected = part.mode(), known.mode()
    np.testing.assert_allclose(found.value, expected.value, atol=0.01)
    np.testing.assert_allclose(found.log_density, expected.log_density, atol=1e-4)
    assert found.share.sum() == pytest.approx(1.0)
    assert part.kl_divergence(known).value == pytest.approx(0.0, abs=1e-6)
    region = part.highest_density_region(0.9)
    assert abs(region.volume - known.highest_density_region(0.9).volume) < (
        5 * region.volume.standard_error
    )
    pair = MarginalDensity(of_base(tgp.GaussianBase(np.zeros(3), covariance(3))), [2, 0])
    assert pair.mutual_information(0, 1) == pair.joint.mutual_information(2, 0)
    with pytest.raises(ValueError, match="one column only"):
        pair.mode()
    holes = np.array([[1.0, np.nan]])
    expected = pair.marginal([0]).log_density([[1.0]])
    np.testing.assert_allclose(pair.log_density(holes, missing="marginal"), expected)
