"""Highest-density regions and local modes."""

import math

import numpy as np
import pandas as pd
import pytest
from answer_models import SCALE, SHIFT, Product, covariance, mixture, of_base, tilted
from scipy import stats

import tgpfast as tgp
from tgpfast.bases.bounded import UniformBase


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
    assert abs(drawn.threshold - exact.threshold) < 0.05


@pytest.mark.parametrize("d", [1, 2, 3])
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
