"""Boxes across the seam of a period, against integrals of the density by scipy."""

import numpy as np
import pytest
from scipy import integrate

import tgpfast as tgp
from tgpfast.bases.domain import Domain
from tgpfast.density.answers.periodic_boxes import split_boxes


@pytest.fixture(scope="module")
def hours():
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(23.0, 1.5, 300), rng.normal(9.0, 2.0, 200)] % 24
    return tgp.fit(x, period={0: 24.0})


@pytest.fixture(scope="module")
def hours_and_heights():
    rng = np.random.default_rng(1)
    hour = rng.vonmises(0.0, 1.0, 800)
    x = np.c_[np.cos(hour) + 0.5 * rng.normal(size=800), hour / (2 * np.pi) * 24 % 24]
    return tgp.fit(x, period={1: 24.0}, method="map", lam=1.0, gamma=1.0)


def mass(model, low, high):
    """Integral of a density of one column, read in the first period only."""
    def density(v):
        return float(np.exp(model.log_density([[v % 24.0]])[0]))

    return integrate.quad(density, low, high, limit=200, points=[24.0], epsabs=1e-10)[0]


@pytest.mark.parametrize(("low", "high"), [(22, 26), (46, 50), (-2, 2), (3, 5), (-30, -20)])
def test_boxes_across_the_seam_have_the_mass_of_their_parts(hours, low, high):
    found = hours.probability(low, high)
    start = low % 24
    assert found == pytest.approx(mass(hours, start, start + high - low), abs=1e-7)
    assert found.standard_error < 1e-6


def test_a_whole_period_is_everything(hours):
    for low, high in ((0, 24), (5, 29), (5, 500), (-24, 0)):
        assert hours.probability(low, high) == pytest.approx(1.0, abs=1e-9)
    assert hours.probability(5, 28.5) < 1.0 - 1e-4
    assert hours.probability(22, None) == pytest.approx(mass(hours, 22, 24), abs=1e-7)
    assert hours.probability(None, 26) == pytest.approx(mass(hours, 0, 2), abs=1e-7)
    with pytest.raises(ValueError, match="above upper"):
        hours.probability(22, 2)


def test_distribution_functions_move_values_into_the_first_period(hours):
    np.testing.assert_allclose(hours.cdf([0.0, 24.0, 48.0, -24.0]), [0.0, 1.0, 1.0, 1.0], atol=1e-9)
    np.testing.assert_allclose(hours.cdf([25.0, -23.0]), hours.cdf([1.0, 1.0]), atol=1e-12)
    at = hours.quantile([0.1, 0.5, 0.9])
    np.testing.assert_allclose(hours.cdf(at), [0.1, 0.5, 0.9], atol=1e-7)


def test_two_columns_split_only_the_periodic_one(hours_and_heights):
    model = hours_and_heights
    found = model.probability([0.5, 22.0], [None, 26.0])
    parts = model.probability([0.5, 22.0], [None, 24.0]), model.probability([0.5, 0.0], [None, 2.0])
    assert found == pytest.approx(sum(parts), abs=1e-9)
    inside = model.sample(40_000, seed=0)
    share = np.mean((inside[:, 0] > 0.5) & ((inside[:, 1] > 22) | (inside[:, 1] < 2)))
    assert found == pytest.approx(share, abs=0.012)
    np.testing.assert_allclose(
        model.cdf([[0.5, 27.0]]), model.probability(None, [0.5, 3.0]), atol=1e-9
    )


def test_conditionals_take_values_of_any_period(hours_and_heights):
    model, y = hours_and_heights, [[0.0], [1.0]]
    here, there = model.conditional({1: 1.5}), model.conditional({1: 49.5})
    np.testing.assert_allclose(here.log_density(y), there.log_density(y), atol=1e-9)
    table = model.conditional({1: [1.5, 49.5]})
    assert table.mean[0] == pytest.approx(table.mean[1], abs=1e-9)


def test_boxes_of_two_periodic_columns_have_four_parts():
    domain = Domain([0.0, 0.0], [1.0, 1.0], [True, True])
    low, high, box = split_boxes(domain, np.array([[0.8, 0.7]]), np.array([[1.3, 1.1]]))
    assert box.tolist() == [0, 0, 0, 0]
    volume = (np.minimum(high, 1.0) - np.maximum(low, 0.0)).prod(axis=1).sum()
    assert volume == pytest.approx(0.5 * 0.4)
