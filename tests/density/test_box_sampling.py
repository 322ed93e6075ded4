"""Draws from cells of a box, and of a base beyond it."""

import numpy as np
import pytest
from scipy import stats

from tgpfast.bases.bounded import UniformBase
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.product import ProductBase
from tgpfast.density.draws import box_sampling
from tgpfast.density.draws.box_sampling import draw_beyond_box, make_box_cells
from tgpfast.features.lattice import LatticeFeatures

LEAST_P = 1e-4  # of tests with a fixed seed
N = 20_000


def linear_cells(counts, low, high):
    """Cells of a density that is linear along every axis: the proposal is the density."""
    return make_box_cells(low, high, counts, lambda x: np.log((1.0 + x - low).prod(axis=1)))


@pytest.mark.parametrize("counts", [[20], [20, 30], [16, 17, 18]])
def test_a_density_that_is_linear_needs_no_correction(counts):
    d = len(counts)
    low, high = np.arange(1.0, d + 1.0), np.arange(1.0, d + 1.0) + 2.0
    x, log_weights = linear_cells(counts, low, high).propose(N, np.random.default_rng(0))
    np.testing.assert_allclose(log_weights, 0.0, atol=1e-12)
    for k in range(d):
        t = x[:, k] - low[k]  # density (1 + t) / 4 on [0, 2]
        assert stats.kstest(t, lambda s: (s + 0.5 * s * s) / 4.0).pvalue > LEAST_P


def test_weights_correct_the_proposal():
    """Weighted draws of coarse cells have the mean and the mass of the density."""
    low, high = np.zeros(1), np.array([3.0])
    cells = make_box_cells(low, high, [16], lambda x: -np.square(x[:, 0] - 1.0) / 0.08)
    x, log_weights = cells.propose(200_000, np.random.default_rng(1))
    weights = np.exp(log_weights)
    assert weights @ x[:, 0] / weights.sum() == pytest.approx(1.0, abs=2e-3)
    assert abs(x[:, 0].std() - 0.2) > 3e-3  # negative control: without the weights it is wider
    spread = np.sqrt(weights @ np.square(x[:, 0] - 1.0) / weights.sum())
    assert spread == pytest.approx(0.2, abs=1e-3)


def test_places_without_density_have_no_weight():
    cells = make_box_cells(
        np.zeros(1), np.ones(1), [16], lambda x: np.where(x[:, 0] < 0.52, 0.0, -np.inf)
    )
    x, log_weights = cells.propose(N, np.random.default_rng(0))
    assert np.isneginf(log_weights[x[:, 0] > 0.52]).all()
    assert (x < 0.6).all()


def test_the_number_of_cells_is_limited(monkeypatch):
    monkeypatch.setitem(box_sampling.CELL_NODES, 2, 400)
    cells = linear_cells([200, 400], np.zeros(2), np.ones(2))
    shape = cells.shape
    assert np.prod(shape) <= 2 * 400
    assert min(shape) >= box_sampling.LEAST_CELLS


def test_draws_beyond_the_box_are_those_of_the_base():
    features = LatticeFeatures([2.0, 1.0], 2, [-1.0, 0.0], walls=("open", "period"))
    base = ProductBase([GaussianBase([0.0], [[1.0]]), UniformBase([0.0], [1.0], [True])])
    x = draw_beyond_box(features, base, N, np.random.default_rng(0))
    assert x.shape == (N, 2)
    assert (np.abs(x[:, 0]) > 1.0).all()
    tail = stats.norm.sf(1.0)

    def cdf(places):
        below = stats.norm.cdf(np.minimum(places, -1.0))
        above = np.maximum(stats.norm.cdf(places) - stats.norm.cdf(1.0), 0.0)
        return (below + above) / (2.0 * tail)

    assert stats.kstest(x[:, 0], cdf).pvalue > LEAST_P
    assert stats.kstest(x[:, 1], "uniform").pvalue > LEAST_P
    assert len(draw_beyond_box(features, base, 0, np.random.default_rng(0))) == 0
