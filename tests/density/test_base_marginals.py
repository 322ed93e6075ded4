"""Marginal distribution functions of bases against their draws and against scipy.stats."""

import numpy as np
import pytest
from scipy import stats

from tgpfast.bases.bounded import BoundedMixtureBase, UniformBase
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.mixture import MixtureBase
from tgpfast.bases.part_widths import part_widths
from tgpfast.bases.product import ProductBase
from tgpfast.bases.student import StudentBase
from tgpfast.density.grids import base_marginals
from tgpfast.density.grids.base_marginals import base_cdf

LEAST_P = 1e-4  # of tests with a fixed seed
GAUSSIAN = GaussianBase([0.1, -0.2], [[1.0, 0.6], [0.6, 2.0]])
STUDENT = StudentBase([0.1, -0.2], [[1.0, 0.6], [0.6, 2.0]], 3.0)
MIXTURE = MixtureBase([0.3, 0.7], [[0.0, 1.0], [2.0, 0.0]], [np.eye(2), 0.2 * np.eye(2)])
BOUNDED = BoundedMixtureBase(
    MIXTURE.weights, MIXTURE.means, MIXTURE.covariances, [0.0, -np.inf], [np.inf, np.inf]
)
UNIFORM = UniformBase([0.0], [1.0])
BASES = [
    GAUSSIAN, MIXTURE, STUDENT, BOUNDED, UniformBase([0.0, -1.0], [1.0, 3.0]),
    ProductBase([GaussianBase([0.0], [[1.0]]), UNIFORM]),
    ProductBase([StudentBase([0.0], [[1.0]], 2.0), UNIFORM]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("direction", [[1.0, 0.0], [0.0, -2.0], [0.8, -0.5]])
def test_draws_follow_the_distribution_function(base, direction):
    v = np.array(direction)
    projections = base.draw(20_000, np.random.default_rng(0)) @ v
    assert stats.kstest(projections, lambda places: base_cdf(base, v, places)).pvalue > LEAST_P
    ends = base_cdf(base, v, np.array([-np.inf, np.inf]))
    np.testing.assert_allclose(ends, [0.0, 1.0], atol=1e-8)


def test_closed_forms():
    v, places = np.array([0.8, -0.5]), np.linspace(-3.0, 3.0, 11)
    width = np.sqrt(v @ GAUSSIAN.covariance @ v)
    expected = stats.norm(v @ GAUSSIAN.mean, width).cdf(places)
    np.testing.assert_allclose(base_cdf(GAUSSIAN, v, places), expected, rtol=1e-12)
    width = np.sqrt(v @ STUDENT.scale_matrix @ v)
    expected = stats.t(3.0, v @ STUDENT.mean, width).cdf(places)
    np.testing.assert_allclose(base_cdf(STUDENT, v, places), expected, rtol=1e-12)


def test_integrated_forms():
    """A truncated column beside an open one, and the sum of a uniform and a normal number."""
    base = BoundedMixtureBase([1.0], [[0.2, 0.0]], [np.eye(2)], [0.0, -np.inf], [2.0, np.inf])
    places = np.linspace(-0.5, 2.5, 13)
    exact = stats.truncnorm(-0.2, 1.8, 0.2).cdf(places)
    np.testing.assert_allclose(base_cdf(base, np.array([1.0, 0.0]), places), exact, atol=1e-7)
    both = ProductBase([GaussianBase([0.0], [[1.0]]), UNIFORM])
    grid = (np.arange(20_000) + 0.5) / 20_000
    expected = [stats.norm.cdf(place - grid).mean() for place in places]
    np.testing.assert_allclose(base_cdf(both, np.ones(2), places), expected, atol=1e-6)


def test_a_column_of_a_product_is_that_of_its_factor():
    product = ProductBase([STUDENT, UNIFORM])
    places = np.linspace(-3.0, 3.0, 5)
    expected = base_cdf(STUDENT, np.array([1.0, 0.5]), places)
    np.testing.assert_array_equal(base_cdf(product, np.array([1.0, 0.5, 0.0]), places), expected)


def test_draws_serve_where_a_rule_would_be_too_large(monkeypatch):
    v, places = np.array([1.0, 0.3]), np.linspace(0.0, 3.0, 7)
    integrated = base_cdf(BOUNDED, v, places)
    monkeypatch.setattr(base_marginals, "MOST_BASE_NODES", 10)
    by_draws = base_cdf(BOUNDED, v, places)
    assert (by_draws != integrated).any()
    np.testing.assert_allclose(by_draws, integrated, atol=5e-3)


def test_widths_of_parts():
    shares, widths = part_widths(GAUSSIAN)
    conditional = np.sqrt([1.0 - 0.36 / 2.0, 2.0 - 0.36])
    np.testing.assert_allclose(widths, [conditional])
    np.testing.assert_array_equal(shares, [1.0])
    shares, widths = part_widths(ProductBase([BOUNDED, UNIFORM]))
    np.testing.assert_allclose(shares, MIXTURE.weights)
    root = np.sqrt(1.0 / 12.0)
    np.testing.assert_allclose(widths, [[1.0, 1.0, root], [0.2**0.5, 0.2**0.5, root]])
