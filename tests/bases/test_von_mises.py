"""The von Mises base against formulas and integrals of scipy, and products of scattered columns."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from tgpfast.bases.base import describe_base, load_base
from tgpfast.bases.bounded import UniformBase
from tgpfast.bases.conditioning import condition_base, marginal_base
from tgpfast.bases.domain import Domain
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.product import ProductBase
from tgpfast.bases.von_mises import VonMisesBase, confine_to_circles, find_concentration
from tgpfast.data.scaling import Scaling


@pytest.mark.parametrize("concentration", [0.0, 0.3, 2.0, 50.0, 1e6])
def test_density_matches_its_formula_and_repeats_itself(concentration):
    base = VonMisesBase(23.0, concentration, 0.0, 24.0)
    x = np.array([[22.9], [23.0], [23.001], [23.2]])
    angle = 2 * np.pi * (x[:, 0] - 23.0) / 24.0
    normalizer = np.log(24.0 * special.i0e(concentration))
    expected = concentration * (np.cos(angle) - 1.0) - normalizer
    np.testing.assert_allclose(base.log_density(x), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(base.log_density(x + 48.0), base.log_density(x), rtol=1e-7)
    step = 1e-5 * 24.0 / np.sqrt(1.0 + concentration)
    above, below = base.log_density(x + step), base.log_density(x - step)
    scale = 1.0 + concentration
    np.testing.assert_allclose(
        base.score(x)[:, 0], (above - below) / (2 * step), atol=1e-5 * scale, rtol=1e-6
    )
    second = (base.score(x + step) - base.score(x - step))[:, 0] / (2 * step)
    found = base.laplacian_at(x, np.ones(1))
    np.testing.assert_allclose(found, second, rtol=1e-6, atol=1e-7 * scale)


@pytest.mark.parametrize("concentration", [0.0, 1.5, 300.0])
def test_draws_follow_the_density(concentration):
    base = VonMisesBase(0.2, concentration, -1.0, 1.0)
    line = np.linspace(-1.0, 1.0, 20_001)
    cdf = integrate.cumulative_trapezoid(np.exp(base.log_density(line[:, None])), line, initial=0.0)
    assert cdf[-1] == pytest.approx(1.0, abs=1e-7)
    draws = base.sample(4_000, seed=1)[:, 0]
    assert stats.kstest(draws, lambda x: np.interp(x, line, cdf)).pvalue > 1e-3
    places = np.sort(base.draw_sobol(12, 3)[:, 0])
    gap = np.abs(np.interp(places, line, cdf) - (np.arange(4096) + 0.5) / 4096).max()
    assert gap < 1e-3
    assert places.min() >= -1.0
    assert places.max() < 1.0


def test_spread_is_that_of_angles_about_the_center():
    base = VonMisesBase(0.0, 0.0, 0.0, 12.0)
    assert base.covariance[0, 0] == pytest.approx(12.0, rel=1e-3)  # 12^2 / 12
    narrow = VonMisesBase(0.0, 1e4, 0.0, 2 * np.pi)
    assert narrow.covariance[0, 0] == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("concentration", [1e-3, 0.7, 9.0, 3e3, 1e5, 1e8])
def test_concentration_of_a_mean_vector(concentration):
    spread = 1.0 - special.i1e(concentration) / special.i0e(concentration)
    assert find_concentration(spread) == pytest.approx(concentration, rel=2e-7)


def test_fit_corrects_the_length_of_the_mean_vector_for_few_rows():
    rng = np.random.default_rng(0)
    lengths = []
    for _ in range(400):
        x = rng.vonmises(3.0, 1.0, 20) % (2 * np.pi)
        fitted = VonMisesBase.from_data(x, np.ones(20), 0.0, 2 * np.pi).concentration
        lengths.append((special.i1e(fitted) / special.i0e(fitted)) ** 2)
    plain = (special.i1e(1.0) / special.i0e(1.0)) ** 2
    assert np.mean(lengths) == pytest.approx(plain, abs=0.02)  # without: too large by 0.04
    with pytest.raises(ValueError, match="differ"):
        VonMisesBase.from_data(np.ones(5), np.ones(5), 0.0, 2.0)
    with pytest.raises(ValueError, match="concentration"):
        VonMisesBase(0.0, -1.0, 0.0, 1.0)


def _product():
    gaussian = GaussianBase([1.0, -1.0], [[2.0, 0.6], [0.6, 1.0]])
    return ProductBase([VonMisesBase(0.3, 2.0, 0.0, 1.0), gaussian], [[1], [2, 0]])


def test_columns_of_a_product_may_be_scattered():
    base, x = _product(), np.random.default_rng(0).normal(size=(6, 3))
    expected = stats.multivariate_normal([1.0, -1.0], [[2.0, 0.6], [0.6, 1.0]]).logpdf(x[:, [2, 0]])
    expected += 2.0 * np.cos(2 * np.pi * (x[:, 1] - 0.3)) - np.log(special.i0(2.0))
    np.testing.assert_allclose(base.log_density(x), expected)
    shifted = x + 1e-6 * np.eye(3)[0]
    slope = (base.log_density(shifted) - base.log_density(x)) / 1e-6
    np.testing.assert_allclose(base.score(x)[:, 0], slope, atol=1e-4)
    draws = base.sample(20_000, seed=0)
    np.testing.assert_allclose(np.cov(draws[:, [2, 0]].T), [[2.0, 0.6], [0.6, 1.0]], atol=0.08)
    scaling = Scaling(np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.5, 4.0]))
    moved = base.rescaled(scaling)
    np.testing.assert_allclose(
        moved.log_density(scaling.apply(x)), expected + np.log(4.0), rtol=1e-12
    )
    again = load_base(*describe_base(base))
    np.testing.assert_array_equal(again.log_density(x), base.log_density(x))
    for wrong in ([[0], [1, 1]], [[0, 1], [2]]):
        with pytest.raises(ValueError, match="columns"):
            ProductBase(base.factors, wrong)


def test_products_of_products_are_flat():
    inner = ProductBase([UniformBase([0.0], [2.0]), GaussianBase([0.0], [[1.0]])])
    base = ProductBase([VonMisesBase(0.5, 1.0, 0.0, 1.0), inner], [[1], [2, 0]])
    assert [columns for _, columns in base.each] == [[1], [2], [0]]
    x = np.array([[0.4, 0.2, 1.9]])
    apart = base.factors[0].log_density([[0.2]]) + inner.log_density([[1.9, 0.4]])
    np.testing.assert_allclose(base.log_density(x), apart)


def test_marginals_and_conditionals_of_scattered_columns():
    base, x = _product(), np.array([[0.4, 0.2, 1.9]])
    gaussian = stats.multivariate_normal([1.0, -1.0], [[2.0, 0.6], [0.6, 1.0]])
    two = marginal_base(base, [2, 1])  # any order
    expected = stats.norm(1.0, np.sqrt(2.0)).logpdf(1.9) + base.factors[0].log_density([[0.2]])
    np.testing.assert_allclose(two.log_density(x[:, [2, 1]]), expected)
    given = condition_base(base, [0], np.array([0.4]))
    expected = gaussian.logpdf([1.9, 0.4]) - stats.norm(-1.0, 1.0).logpdf(0.4)
    expected += base.factors[0].log_density([[0.2]])
    np.testing.assert_allclose(given.log_density([[0.2, 1.9]]), expected)
    alone = condition_base(base, [1], np.array([7.2]))
    np.testing.assert_allclose(alone.log_density(x[:, [0, 2]]), gaussian.logpdf([1.9, 0.4]))


def test_confine_to_circles_keeps_correlations_of_open_columns():
    rng = np.random.default_rng(2)
    open_rows = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], 500)
    x = np.insert(open_rows, 1, rng.vonmises(3.0, 4.0, 500) % (2 * np.pi), axis=1)
    inf = np.inf
    domain = Domain([-inf, 0.0, -inf], [inf, 2 * np.pi, inf], [False, True, False])
    base = confine_to_circles(x, np.ones(500), domain)
    assert base.covariance[0, 2] == pytest.approx(0.8, abs=0.1)
    assert base.mean[1] == pytest.approx(3.0, abs=0.1)
    alone = confine_to_circles(x[:, 1:2], np.ones(500), domain.choose([1]))
    assert isinstance(alone, VonMisesBase)
