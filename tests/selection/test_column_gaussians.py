"""Learned maps of columns: Gaussian after them, smooth, and bounded at ties."""

import numpy as np
import pytest
from scipy import interpolate, stats

from tgpfast.selection.column_gaussians import _smooth, learn_maps

OPEN = np.array([-np.inf]), np.array([np.inf])


def learn(values, low=-np.inf, high=np.inf, weights=None):
    weights = np.ones(len(values)) if weights is None else weights
    ends = np.array([low]), np.array([high])
    return learn_maps(values[:, None], weights, *ends, bends=np.ones(1, bool)).maps[0]


def log_density(line, values):
    return stats.norm.logpdf(line.apply(values)) + line.log_slope(values)


@pytest.mark.parametrize("n", [100, 1_000, 10_000])
@pytest.mark.parametrize(
    "law", [stats.norm(3.0, 2.0), stats.gamma(2.0), stats.t(3), stats.lognorm(1.0)]
)
def test_columns_become_gaussian_and_their_density_is_near_the_true_one(law, n):
    line = learn(law.rvs(n, random_state=np.random.default_rng(n)))
    fresh = law.rvs(5_000, random_state=np.random.default_rng(1))
    assert stats.kstest(line.apply(fresh), "norm").statistic < 1.6 / np.sqrt(n) + 0.02
    loss = law.logpdf(fresh).mean() - log_density(line, fresh).mean()
    assert loss < 10.0 / n ** (2.0 / 3.0)


def test_the_density_integrates_to_one_with_and_without_walls():
    rng = np.random.default_rng(0)
    for values, low, high in ((rng.normal(size=500), -np.inf, np.inf),
                              (rng.exponential(size=500), 0.0, np.inf),
                              (rng.beta(0.5, 0.5, 500), 0.0, 1.0)):  # fmt: skip
        line = learn(values, low, high)
        places = np.linspace(-9.0, 9.0, 200_001)  # of the line: dense where the density is steep
        x = line.invert(places)
        mass = np.exp(log_density(line, x))[:-1] @ np.diff(x)
        assert mass == pytest.approx(1.0, abs=2e-3)


def test_the_spline_has_two_continuous_derivatives():
    line = learn(np.random.default_rng(0).gamma(2.0, size=2_000))
    sides = [line.derivatives(line.knots + step) for step in (-1e-9, 1e-9)]
    for left, right in zip(sides[0][:2], sides[1][:2], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


def test_knots_of_rounded_and_repeated_values_are_no_closer_than_their_step():
    rng = np.random.default_rng(0)
    whole = learn(rng.integers(0, 8, 5_000).astype(float))
    assert np.diff(whole.knots).min() >= 1.0
    spiked = np.where(rng.random(5_000) < 0.4, 0.0, rng.normal(size=5_000))
    line = learn(spiked)
    assert line.slopes.max() < 100.0  # without the bound, a share of 0.4 at one value is 1e9
    assert np.abs(line.apply(spiked)).max() < 5.0


def test_weights_count_as_repeated_rows():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=400), rng.integers(1, 4, 400).astype(float)
    weighted = learn(values, weights=weights)
    repeated = learn(np.repeat(values, weights.astype(int)))
    places = np.linspace(-2.0, 2.0, 9)
    np.testing.assert_allclose(weighted.apply(places), repeated.apply(places), atol=0.1)


def test_columns_that_are_not_bent_stay():
    x = np.random.default_rng(0).exponential(size=(200, 2))
    ends = np.array([-np.inf, 0.0]), np.full(2, np.inf)
    maps = learn_maps(x, np.ones(200), *ends, bends=np.zeros(2, bool))
    np.testing.assert_array_equal(maps.apply(x)[:, 0], x[:, 0])
    assert maps.maps[1].low == 0.0


@pytest.mark.parametrize("n", [2, 3, 12])
def test_the_spline_is_that_of_schoenberg(n):
    """Its coefficients are values of the polygon at means of three knots, a line at both ends."""
    rng = np.random.default_rng(n)
    knots, scores = np.cumsum(rng.uniform(0.1, 2.0, n)), np.cumsum(rng.uniform(0.1, 1.0, n))
    first, last = knots[1] - knots[0], knots[-1] - knots[-2]
    t = np.concatenate([
        knots[0] - first * np.array([3.0, 2.0, 1.0]), knots,
        knots[-1] + last * np.array([1.0, 2.0, 3.0]),
    ])  # fmt: skip
    at = interpolate.BSpline.construct_fast(t, np.eye(n + 2), 3)
    heights, slopes = _smooth(knots, scores)
    means = (t[1:-3] + t[2:-2] + t[3:-1]) / 3.0
    polygon = interpolate.make_interp_spline(knots, scores, k=1)(means)
    rises = np.diff(polygon) / np.diff(means)
    if n > 2:
        rises[0], rises[-1] = rises[1], rises[-2]
    start = polygon[1] - rises[0] * (means[1] - means[0])
    coefficients = start + np.append(0.0, np.cumsum(rises * np.diff(means)))
    np.testing.assert_allclose(heights, at(knots) @ coefficients, rtol=1e-12)
    np.testing.assert_allclose(slopes, at(knots, 1) @ coefficients, rtol=1e-12)
