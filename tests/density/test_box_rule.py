"""Rules over boxes against integrals in closed form."""

import numpy as np
import pytest
from scipy import stats

from tgpfast.density.grids import box_rule
from tgpfast.density.grids.box_rule import BoxRule, integrate_to, tensor_rows, tensor_weights


def integral(rule, function):
    return sum(float(weights @ function(x)) for x, weights in rule.slabs())


def test_panels_integrate_polynomials_and_waves():
    rule = BoxRule.of_axes(np.array([1.0]), np.array([3.0]), [8], [False])
    assert integral(rule, lambda x: x[:, 0] ** 7) == pytest.approx((3.0**8 - 1.0) / 8.0, rel=1e-14)
    many = BoxRule.of_axes(np.array([1.0]), np.array([3.0]), [80], [False])
    exact = (np.sin(60.0 * 3.0) - np.sin(60.0)) / 60.0
    assert integral(many, lambda x: np.cos(60.0 * x[:, 0])) == pytest.approx(exact, abs=1e-12)


def test_the_trapezoidal_rule_is_exact_for_waves_below_the_number_of_steps():
    rule = BoxRule.of_axes(np.array([-1.0]), np.array([1.0]), [9], [True])
    for k in range(1, 9):
        total = integral(rule, lambda x, k=k: np.cos(np.pi * k * x[:, 0]))
        assert total == pytest.approx(0.0, abs=1e-14)
    # negative control: the wave that the steps cannot tell from a constant
    assert abs(integral(rule, lambda x: np.cos(np.pi * 9 * (x[:, 0] + 1.0)))) == pytest.approx(2.0)


def test_slabs_cover_the_box_once(monkeypatch):
    monkeypatch.setattr(box_rule, "SLAB_NODES", 50)
    low, high = np.array([0.0, -1.0, 2.0]), np.array([1.0, 1.0, 5.0])
    rule = BoxRule.of_axes(low, high, [7, 8, 9], [True, False, True])
    assert integral(rule, lambda x: np.ones(len(x))) == pytest.approx(6.0, rel=1e-14)
    rows = np.concatenate([x for x, _ in rule.slabs()])
    assert len(np.unique(rows, axis=0)) == rule.size == len(rows)
    np.testing.assert_array_equal(rows, tensor_rows(rule.nodes))
    np.testing.assert_allclose(
        np.concatenate([w for _, w in rule.slabs()]), tensor_weights(rule.weights)
    )


@pytest.mark.parametrize("direction", [[1.0, 0.0], [0.0, -1.0], [0.6, 0.7], [-2.0, 0.1]])
def test_projections_of_a_gaussian_are_gaussian(direction):
    mean, covariance = np.array([0.3, -0.2]), np.array([[1.0, 0.4], [0.4, 0.5]])
    v, ends = np.array(direction), np.full(2, 9.0)
    rule = BoxRule.of_axes(mean - ends, mean + ends, [60, 60], [True, True])
    line, density = rule.project(stats.multivariate_normal(mean, covariance).pdf, v, 200)
    exact = stats.norm(v @ mean, np.sqrt(v @ covariance @ v))
    np.testing.assert_allclose(density, exact.pdf(line), atol=1e-9)
    places = exact.ppf([0.001, 0.3, 0.5, 0.99])
    np.testing.assert_allclose(integrate_to(line, density, places), exact.cdf(places), atol=1e-7)


def test_projections_of_a_square():
    """Constant between walls: a trapezoid along an oblique direction, flat along an axis."""
    rule = BoxRule.of_axes(np.zeros(2), np.ones(2), [64, 64], [False, False])
    line, density = rule.project(lambda x: np.ones(len(x)), np.array([1.0, 0.0]), 50)
    np.testing.assert_allclose(density, 1.0, rtol=1e-12)
    assert (line[0], line[-1]) == (0.0, 1.0)
    line, density = rule.project(lambda x: np.ones(len(x)), np.array([2.0, 1.0]), 400)
    exact = 0.5 * np.minimum(np.minimum(line, 3.0 - line), 1.0)
    np.testing.assert_allclose(density, exact, rtol=0, atol=1e-12)
    assert integrate_to(line, density, np.array([1.0]))[0] == pytest.approx(0.25, abs=1e-6)


def test_projections_of_a_cube():
    """The sum of three uniform numbers."""
    rule = BoxRule.of_axes(np.zeros(3), np.ones(3), [24] * 3, [False, True, False])
    line, density = rule.project(lambda x: np.ones(len(x)), np.ones(3), 60)
    first, middle = 0.5 * line**2, 0.5 * (-2.0 * line**2 + 6.0 * line - 3.0)
    exact = np.where(line < 1.0, first, np.where(line < 2.0, middle, 0.5 * (3.0 - line) ** 2))
    np.testing.assert_allclose(density, exact, rtol=0, atol=1e-3)


def test_integrals_stop_at_the_ends_of_the_line():
    line = np.linspace(0.0, 1.0, 20)
    found = integrate_to(line, line, np.array([-5.0, 0.5, 2.0]))
    np.testing.assert_allclose(found, [0.0, 0.125, 0.5], atol=1e-14)
