"""Beta families as maps at walls, against scipy's distributions."""

import numpy as np
import pytest
from scipy import special, stats

from tgpfast.data.column_maps import ColumnMap
from tgpfast.selection import wall_families
from tgpfast.selection.wall_families import BetaFamily, bend_by_family, fit_family


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 5.0), (0.05, 3.0), (400.0, 1.0)])
def test_density_and_quantiles_are_those_of_a_beta_distribution(a, b):
    family, scores = BetaFamily(a, b, 0.7), np.linspace(-6.0, 6.0, 25)
    law = stats.beta(a, b)
    ratio = special.expit(family.quantile(scores) - 0.7)
    inside = (ratio > 1e-200) & (1.0 - ratio > 1e-9)
    shares = np.where(scores < 0, law.cdf(ratio), 1.0 - law.sf(ratio))
    np.testing.assert_allclose(shares[inside], special.ndtr(scores[inside]), rtol=1e-6)
    y = 0.7 + np.linspace(-3.0, 3.0, 9)
    x = special.expit(y - 0.7)
    np.testing.assert_allclose(
        family.log_density(y), law.logpdf(x) + np.log(x) + np.log1p(-x), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("law", "low", "high"),
    [(stats.beta(0.5, 0.5), 0.0, 1.0), (stats.expon(scale=3.0), 0.0, np.inf),
     (stats.gamma(0.5), 0.0, np.inf), (stats.betaprime(2.0, 3.0), 0.0, np.inf)],
)  # fmt: skip
def test_columns_become_gaussian_and_mirrored_ones_the_same(law, low, high):
    x, ones = law.rvs(4_000, random_state=0), np.ones(4_000)
    x = np.clip(x, 1e-14, 1.0 - 1e-14) if high == 1.0 else x
    bent = bend_by_family(ColumnMap.plain(low, high), x, ones)
    u = bent.apply(x)
    assert stats.kstest(u, "norm").pvalue > 0.05
    assert stats.kstest(ColumnMap.plain(low, high).apply(x), "norm").pvalue < 1e-6  # logs alone
    mirrored = bend_by_family(ColumnMap.plain(-high, -low), -x, ones)
    np.testing.assert_allclose(mirrored.apply(-x), -u, atol=1e-6)
    # the density that a Gaussian gives after the map, with its Jacobian, is about the true one
    places = law.ppf(np.linspace(0.02, 0.98, 25))
    found = stats.norm.logpdf(bent.apply(places)) + bent.log_slope(places)
    np.testing.assert_allclose(found, law.logpdf(places), atol=0.15)


def test_the_spline_follows_the_family():
    x = stats.beta(0.5, 2.0).rvs(500, random_state=1)
    bent = bend_by_family(ColumnMap.plain(0.0, 1.0), x, np.ones(500))
    family = fit_family(special.logit(x), np.ones(500), has_unit=False)
    places = stats.beta(family.a, family.b).ppf(np.linspace(0.001, 0.999, 200))
    found = stats.norm.logpdf(bent.apply(places)) + bent.log_slope(places)
    np.testing.assert_allclose(
        found, stats.beta(family.a, family.b).logpdf(places), atol=2e-3
    )


def test_the_fit_is_a_maximum_and_weights_are_repetitions():
    y = np.log(stats.gamma(2.0).rvs(300, random_state=2))
    best = fit_family(y, np.ones(300), has_unit=True)
    top = best.log_density(y).mean()
    for other in (best._replace(a=1.1 * best.a), best._replace(m=best.m + 0.1)):
        assert other.log_density(y).mean() < top
    weights = np.where(np.arange(300) < 100, 2.0, 1.0)
    twice = fit_family(np.concatenate([y, y[:100]]), np.ones(400), has_unit=True)
    assert fit_family(y, weights, has_unit=True).a == pytest.approx(twice.a, rel=1e-3)


def test_a_family_without_distinct_quantiles_leaves_the_logs(monkeypatch):
    monkeypatch.setattr(
        wall_families, "fit_family", lambda *a, **k: BetaFamily(np.inf, 1.0, 0.0)
    )
    plain = ColumnMap.plain(0.0, 1.0)
    with np.errstate(all="ignore"):
        assert bend_by_family(plain, np.array([0.2, 0.7]), np.ones(2)) is plain
