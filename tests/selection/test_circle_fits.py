"""Distributions of one periodic column: one peak, several, and none."""

import numpy as np
import pytest
from scipy import special, stats

from tgpfast.bases.bounded import BoundedMixtureBase
from tgpfast.bases.domain import Domain
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.product import ProductBase
from tgpfast.bases.von_mises import VonMisesBase
from tgpfast.selection.circle_fits import (
    _is_suspicious,
    fit_circle,
    multiply_by_fitted_circles,
)

DAY = Domain([0.0], [24.0], [True])
PEAKS = np.array([8.0, 13.0, 23.5])


def busy_hours(n, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(PEAKS[rng.choice(3, n, p=[0.3, 0.3, 0.4])], 1.2) % 24.0


def busy_density(hours):
    turns = hours[:, None] - PEAKS + 24.0 * np.array([-1.0, 0.0, 1.0])[:, None, None]
    return stats.norm(0.0, 1.2).pdf(turns).sum(axis=0) @ [0.3, 0.3, 0.4]


@pytest.mark.parametrize("n", [300, 5_000])
def test_three_peaks_are_followed_around_the_seam(n):
    x, hours = busy_hours(n, 1), np.arange(0.0, 24.0, 0.01)
    base = fit_circle(x, np.ones(n), DAY)
    assert isinstance(base, BoundedMixtureBase)
    expected, found = busy_density(hours), np.exp(base.log_density(hours[:, None]))
    assert found.sum() * 0.01 == pytest.approx(1.0, abs=1e-4)
    assert np.abs(np.cumsum(found - expected)).max() * 0.01 < 1.5 / np.sqrt(n)
    ends = base.log_density([[0.0], [24.0 - 1e-9]])
    assert ends[0] == pytest.approx(ends[1], abs=1e-6)
    # negative control: one von Mises distribution is far off
    simple = VonMisesBase.from_data(x, np.ones(n), 0.0, 24.0)
    gap = np.exp(simple.log_density(hours[:, None])) - expected
    assert np.abs(np.cumsum(gap)).max() * 0.01 > 0.1


@pytest.mark.parametrize("concentration", [0.0, 2.0, 300.0])
def test_one_peak_stays_a_von_mises_distribution(concentration):
    for seed in range(5):
        angles = np.random.default_rng(seed).vonmises(3.0, concentration, 400) % (2.0 * np.pi)
        base = fit_circle(angles, np.ones(400), Domain([0.0], [2.0 * np.pi], [True]))
        assert isinstance(base, VonMisesBase)


@pytest.mark.slow
def test_one_in_a_hundred_von_mises_samples_is_suspicious():
    """By the variances of their waves; a wave of three peaks always is."""
    ones, found = np.ones(200), 0
    for seed in range(1000):
        angles = np.random.default_rng(seed).vonmises(1.0, 1.0, 200)
        base = VonMisesBase.from_data(angles, ones, -np.pi, np.pi)
        found += _is_suspicious(base, angles, ones)
    assert 2 <= found <= 25
    x = busy_hours(200, 0)
    assert _is_suspicious(VonMisesBase.from_data(x, ones, 0.0, 24.0), x, ones)


def test_few_rows_keep_one_peak():
    assert isinstance(fit_circle(busy_hours(40, 0), np.ones(40), DAY), VonMisesBase)


def test_weights_count_as_rows():
    hours = busy_hours(600, 2)
    mostly = np.where(np.abs(hours - 8.0) < 4.0, 1.0, 1e-6)
    base = fit_circle(hours, mostly, DAY)
    near = np.arange(0.0, 24.0, 0.01)
    mean = np.exp(base.log_density(near[:, None]) + 2j * np.pi * near / 24.0).sum() * 0.01
    assert abs(mean - mostly @ np.exp(2j * np.pi * hours / 24.0) / mostly.sum()) < 0.03
    assert abs(mean - np.exp(2j * np.pi * hours / 24.0).mean()) > 0.3


def test_products_have_their_factors_in_their_columns():
    rng = np.random.default_rng(3)
    angle = rng.vonmises(0.0, 2.0, 500)
    x = np.c_[rng.normal(size=500), busy_hours(500, 3), angle]
    domain = Domain([-np.inf, 0.0, -np.pi], [np.inf, 24.0, np.pi], [False, True, True])
    base = multiply_by_fitted_circles(GaussianBase([0.0], [[1.0]]), x, np.ones(500), domain)
    assert isinstance(base, ProductBase)
    assert [columns for _, columns in base.each] == [[1], [2], [0]]
    kinds = [type(factor).__name__ for factor in base.factors]
    assert kinds == ["BoundedMixtureBase", "VonMisesBase", "GaussianBase"]
    turning = base.factors[1]
    expected = turning.concentration * np.cos(angle - turning.mean[0])
    expected -= np.log(2.0 * np.pi * special.i0(turning.concentration))
    np.testing.assert_allclose(turning.log_density(angle[:, None]), expected)
