"""Highest-density regions and local modes."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from answer_models import SCALE, SHIFT, Product, covariance, mixture, of_base, tilted
from scipy import stats

import tgpfast as tgp
from tgpfast.bases.bounded import UniformBase
from tgpfast.bases.product import ProductBase
from tgpfast.data.column_maps import ColumnMap, ColumnMaps, MappedScaling
from tgpfast.density.columns.marginals import MarginalDensity
from tgpfast.density.draws.replicates import error_of_mean


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_regions_of_a_gaussian_are_exact_and_draws_agree(d):
    """A mixture of two equal components is the same density, and has no closed form here."""
    exact = of_base(tgp.GaussianBase(np.zeros(d), covariance(d))).highest_density_region(0.9)
    square = stats.chi2(d).ppf(0.9)
    density = stats.multivariate_normal(np.zeros(d), covariance(d))
    assert abs(exact.threshold - (density.logpdf(np.zeros(d)) - square / 2)) < 1e-10
    ball = math.pi ** (d / 2) / math.gamma(d / 2 + 1) * square ** (d / 2)
    assert math.isclose(exact.volume, ball * math.sqrt(np.linalg.det(covariance(d))))
    twice = tgp.MixtureBase([0.4, 0.6], np.zeros((2, d)), [covariance(d)] * 2)
    drawn = of_base(twice).highest_density_region(0.9)
    assert abs(drawn.probability - 0.9) < 5 * drawn.standard_error
    assert abs(drawn.volume - exact.volume) < 5 * drawn.volume.standard_error
    assert exact.threshold.standard_error == 0.0
    assert abs(drawn.threshold - exact.threshold) < 5 * drawn.threshold.standard_error < 0.05


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.slow
def test_a_region_holds_its_probability_of_fresh_samples(d):
    model = tilted(d, mixture(d))
    region = model.highest_density_region(0.8)
    share = region.contains(model.sample(40_000, seed=11)).mean()
    assert abs(share - 0.8) < 5 * 0.4 / math.sqrt(40_000)
    assert region.standard_error < 0.003


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5])
def test_regions_are_within_their_errors_of_the_level(d):
    """z-scores over 40 seeds, against the level and the known volume: errors of the volume include
    that of the threshold, and the gap to the level is little more than the error of the check."""
    twice = tgp.MixtureBase([0.4, 0.6], np.zeros((2, d)), [covariance(d)] * 2)
    square = stats.chi2(d).ppf(0.8)
    ball = math.pi ** (d / 2) / math.gamma(d / 2 + 1) * square ** (d / 2)
    volume = ball * math.sqrt(np.linalg.det(covariance(d)))
    model = of_base(twice)
    regions = [model.highest_density_region(0.8, seed=seed) for seed in range(40)]
    of_level = [(r.probability - 0.8) / r.standard_error for r in regions]
    of_volume = [(r.volume - volume) / r.volume.standard_error for r in regions]
    for z in (of_level, of_volume):
        assert abs(np.mean(z)) < 0.6
        assert 0.6 < np.std(z) < 1.5


@pytest.mark.slow
def test_lengths_of_regions_come_from_the_density():
    """Of one column: the places where the density is above the threshold, to rounding."""
    product = Product(3)
    for model in (Product(1).model, product.model.marginal(0)):
        region = model.highest_density_region(0.7)
        inside = np.log(np.maximum(product.p, 1e-300) / SCALE) >= region.threshold
        length = inside.sum() * (product.line[1] - product.line[0]) * SCALE
        assert abs(region.volume - length) < 4e-3
    walls = of_base(UniformBase([0.0], [2.0])).highest_density_region(0.9)
    assert walls.volume == pytest.approx(2.0)
    assert walls.probability == 1.0


def test_errors_of_shares_of_modes_are_never_zero():
    """All draws lead to the one mode: as good as 400 independent draws."""
    found = of_base(tgp.GaussianBase([0.0], [[1.0]])).mode()
    assert found.share[0] == 1.0
    assert 1.0 / 500 < found.standard_error[0] < 1.0 / 300


def test_a_region_of_a_frame():
    model = Product(2, ["a", "b"]).model
    frame = pd.DataFrame({"b": [SHIFT, 99.0], "a": [SHIFT, 99.0]}, index=[3, 4])
    inside = model.highest_density_region(0.99).contains(frame)
    assert inside.to_dict() == {3: True, 4: False}


@pytest.mark.parametrize("d", [1, 2])
def test_a_region_is_drawn(d):
    region = tilted(d).highest_density_region(0.5)
    figure = region.plot()
    assert any("50" in text.get_text() or "49" in text.get_text()
               for legend in figure.legends for text in legend.get_texts())  # fmt: skip
    with pytest.raises(ValueError, match="3 columns cannot be drawn"):
        of_base(tgp.GaussianBase(np.zeros(3), np.eye(3))).highest_density_region(0.5).plot()


def test_modes_of_separate_clusters():
    """Two far components: modes at their means, shares as their weights."""
    means = [[-4.0, 0.0], [4.0, 1.0]]
    base = tgp.MixtureBase([0.3, 0.7], means, [0.5 * np.eye(2)] * 2)
    found = of_base(base).mode()
    assert np.abs(found.value - np.array(means)[::-1]).max() < 1e-5
    assert (np.abs(found.share - [0.7, 0.3]) < 4 * found.standard_error).all()
    assert len(of_base(base).mode(min_share=0.5)) == 1


@pytest.mark.parametrize("d", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_modes_are_maxima(d):
    """The gradient vanishes, and the density falls in every direction."""
    model = tilted(d, mixture(d))
    found = model.mode()
    assert np.abs(model.grad_log_density(found.value)).max() < 1e-5
    directions = np.random.default_rng(0).normal(size=(50, d))
    for place, top in zip(found.value, found.log_density, strict=True):
        assert (model.log_density(place + 0.02 * SCALE * directions) < top).all()
    assert (np.diff(found.log_density) <= 0).all()


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, float("nan")])
def test_levels_outside_zero_and_one_are_refused(level):
    model = of_base(tgp.GaussianBase([0.0], [[1.0]]))
    with pytest.raises(ValueError, match="above 0 and below 1"):
        model.highest_density_region(level)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        model.mode(min_share=level)


@pytest.mark.slow
def test_errors_of_thresholds_contain_those_of_marginals():
    """Points behind the marginal do not change with the seed: the spread of draws misses them."""
    product, level = Product(5), 0.8
    heights = np.sort(product.p / SCALE)[::-1]
    shares = np.cumsum(heights) * SCALE * (product.line[1] - product.line[0])
    truth = math.log(heights[np.searchsorted(shares, level)])
    part = product.model.marginal(0)
    errors = part.log_density(np.linspace(0.0, 10.0, 300)[:, None], return_error=True)[1]
    for seed in range(3):
        threshold = part.highest_density_region(level, seed=seed).threshold
        assert abs(threshold - truth) < 4 * threshold.standard_error
        assert errors.min() < threshold.standard_error < 0.02


@pytest.mark.parametrize("sets", [8, 16])
def test_errors_of_few_sets_give_z_scores_of_deviation_one(sets):
    values = np.random.default_rng(0).normal(size=(sets, 100_000))
    z = values.mean(axis=0) / error_of_mean(values)
    assert abs(z.std() - 1.0) < 0.01
    plain = values.std(axis=0, ddof=1) / math.sqrt(sets)
    assert (values.mean(axis=0) / plain).std() > 1.05  # of the t distribution


def with_wall():
    """The logarithm of the first of two columns."""
    maps = ColumnMap.plain(low=0.0), ColumnMap.plain()
    return MappedScaling(np.zeros(2), np.ones(2), ColumnMaps(maps))


def test_a_wall_without_a_bound_is_a_mode():
    """A log-normal density of deviation 6 is highest at e^-36, on the wall; of deviation 1 inside.
    Beside the wall the other column has the median of what leads there."""
    for deviation in (1.0, 6.0):
        base = tgp.GaussianBase([0.0, 3.0], np.diag([deviation**2, 1.0]))
        found = replace(of_base(base), scaling=with_wall()).mode()
        assert len(found) == found.share[0] == 1
        if deviation == 1.0:
            assert np.allclose(found.value, [[math.exp(-1.0), 3.0]])
            assert np.isfinite(found.log_density).all()
        else:
            assert found.value[0, 0] == 0.0
            assert abs(found.value[0, 1] - 3.0) < 0.3
            assert found.log_density[0] == np.inf


def test_a_flat_density_has_one_mode():
    for base in (
        UniformBase([0.0, 0.0], [1.0, 2.0]),
        ProductBase([UniformBase([0.0], [1.0]), tgp.GaussianBase([0.0], [[1.0]])], [[0], [1]]),
    ):
        found = of_base(base).mode()
        assert len(found) == found.share[0] == 1
    parts = tgp.MixtureBase([0.5, 0.5], [[-5.0], [5.0]], [[[1.0]]] * 2)  # as high, and apart
    assert len(of_base(parts).mode()) == 2


def test_modes_of_marginals_are_found_in_spikes_and_at_walls():
    spike = tgp.MixtureBase([0.9, 0.1], [np.zeros(5), np.full(5, 0.4)],
                            [np.eye(5), 1e-6 * np.eye(5)])  # fmt: skip
    found = MarginalDensity(of_base(spike), [0]).mode()
    assert abs(found.value[0, 0] - 0.4) < 1e-4
    assert abs(found.value[:, 0]).min() < 0.01
    both = tgp.MixtureBase([0.5, 0.5], [[0.0, 0.0], [2.0, 0.0]],
                           [np.diag([36.0, 1.0]), np.diag([0.01, 1.0])])  # fmt: skip
    found = MarginalDensity(replace(of_base(both), scaling=with_wall()), [0]).mode()
    assert found.value[0, 0] < 1e-6
    assert abs(found.value[1, 0] - math.exp(1.99)) < 0.01
