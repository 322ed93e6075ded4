"""Credible bands of FVPD: shape, units, and coverage by simulation."""

import dataclasses
import math

import numpy as np
import pytest
from answer_models import of_base, tilted
from conftest import fixed_fit

import tgpfast as tgp
from tgpfast.data.scaling import Scaling
from tgpfast.density.columns.discrete import DiscreteDensity

CENTERS, WIDTHS, SHARES = np.array([-1.5, 1.0]), np.array([0.6, 0.8]), np.array([0.4, 0.6])


def draw(n, d, rng):
    """Rows of d independent columns, each a mixture of two normals."""
    part = (rng.uniform(size=(n, d)) > SHARES[0]).astype(int)
    return rng.normal(CENTERS[part], WIDTHS[part])


def true_log_density(x):
    z = (x[:, :, None] - CENTERS) / WIDTHS
    parts = SHARES / (WIDTHS * math.sqrt(2.0 * math.pi)) * np.exp(-0.5 * z**2)
    return np.log(parts.sum(axis=2)).sum(axis=1)


def fitted(x, lam, seed=0):
    return fixed_fit(
        x, method="fvpd", lam=lam, gamma=0.5, n_features=100, frequency_covariance="identity",
        seed=seed,
    )  # fmt: skip


def coverage(n, lam, d=1, repeats=8):
    """Share of the true log densities at new rows that lie in a band of 0.9."""
    rng = np.random.default_rng(0)
    shares = []
    for seed in range(repeats):
        model, y = fitted(draw(n, d, rng), lam, seed), draw(200, d, rng)
        band, truth = model.credible_band(y, level=0.9), true_log_density(y)
        shares.append(((band.lower <= truth) & (truth <= band.upper)).mean())
    return float(np.mean(shares))


@pytest.mark.slow
def test_coverage_is_near_its_level_unless_the_fit_is_too_smooth():
    """0.9 is asked for. A strong prior pulls the density to its base, which no band corrects."""
    assert 0.75 < coverage(300, 1.0) < 0.97
    assert 0.75 < coverage(2_000, 1.0) < 0.97
    assert coverage(2_000, 1_000.0, repeats=3) < 0.6


@pytest.mark.slow
def test_bands_hold_the_density_and_narrow_with_rows():
    rng = np.random.default_rng(0)
    y = draw(50, 1, rng)
    few, many = fitted(draw(300, 1, rng), 1.0), fitted(draw(3_000, 1, rng), 1.0)
    wide, narrow = few.credible_band(y), many.credible_band(y)
    assert ((wide.lower < wide.median) & (wide.median < wide.upper)).all()
    assert np.mean(narrow.upper - narrow.lower) < 0.7 * np.mean(wide.upper - wide.lower)
    inner = few.credible_band(y, level=0.5)
    assert ((wide.lower < inner.lower) & (inner.upper < wide.upper)).all()
    values = few.log_density(y)
    assert ((wide.lower <= values) & (values <= wide.upper)).mean() > 0.9


def test_bands_are_in_the_units_of_the_data():
    """Ten times the rows: a tenth of the density, and the same band."""
    one = fitted(draw(300, 1, np.random.default_rng(0)), 1.0)
    scaling = Scaling(10.0 * one.scaling.shift, 10.0 * one.scaling.scale)
    ten = dataclasses.replace(one, scaling=scaling)
    y = np.array([[-1.0], [0.5]])
    gap = one.credible_band(y).upper - ten.credible_band(10.0 * y).upper
    assert np.abs(gap - math.log(10.0)).max() < 1e-6


def test_other_models_have_no_band():
    base = of_base(tgp.GaussianBase(np.zeros(1), np.eye(1)))
    with pytest.raises(ValueError, match=r"its base alone.*a value of lam"):
        base.credible_band([[0.0]])
    for other in (tilted(3).marginal([0]), DiscreteDensity(base, {0: 1.0})):
        with pytest.raises(ValueError, match="joint density"):
            other.credible_band([[0.0]])
    with pytest.raises(ValueError, match=r'method="fvpd".*this one is "fd"'):
        tilted(2).credible_band([[0.0, 0.0]])
    x = draw(300, 2, np.random.default_rng(0))
    model = fitted(x, 1.0)
    with pytest.raises(ValueError, match="conditional"):
        model.conditional({0: 0.0}).credible_band([[0.0]])
    with pytest.raises(ValueError, match=r"level=1\.0"):
        model.credible_band(x[:2], level=1.0)
