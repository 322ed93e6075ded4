"""The mass and the marginals of one Gaussian component under a lattice's tilt."""

import numpy as np
import pytest
from scipy import stats

from tgpfast.bases.gaussian import GaussianBase
from tgpfast.density.exponents.lattice_exponent import LatticeTilt
from tgpfast.density.grids.narrow_part import NarrowPart
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.kernels.thread_choice import Threads

THREADS = Threads("auto", 1)
FEATURES = LatticeFeatures([8.0, 8.0], (6, 6), [-4.0, -4.0])
GAUSSIAN = GaussianBase([0.3, -0.4], [[0.04, 0.02], [0.02, 0.03]])


@pytest.fixture(scope="module")
def tilt():
    rng = np.random.default_rng(0)
    white = rng.normal(size=FEATURES.grid_shape())
    return LatticeTilt(FEATURES, 0.06 * FEATURES.from_grid(white) / np.sqrt(white.size))


def make(tilt, share=0.2, peak=1.5):
    part = NarrowPart(share, GAUSSIAN, tilt, THREADS, peak)
    part.refine(1e-9, 2**20)
    return part


def draws(tilt, n=400_000):
    x = GAUSSIAN.draw(n, np.random.default_rng(1))
    return x, np.exp(tilt.value(x, THREADS))


def test_mass_and_square_are_expectations(tilt):
    part = make(tilt)
    _, weights = draws(tilt)
    error = 5.0 * weights.std() / np.sqrt(len(weights))
    assert part.mass * np.exp(1.5) / 0.2 == pytest.approx(weights.mean(), abs=error)
    assert part.square * np.exp(3.0) / 0.2 == pytest.approx(np.square(weights).mean(), rel=0.02)
    assert part.error <= 1e-9 * part.mass
    assert part.n_nodes > 100


def test_without_a_tilt_the_mass_is_the_share():
    part = make(LatticeTilt(FEATURES, np.zeros(FEATURES.mode_shape)), peak=0.0)
    assert part.mass == pytest.approx(0.2, rel=1e-10)
    assert part.square == pytest.approx(0.2, rel=1e-10)


@pytest.mark.parametrize("direction", [[1.0, 0.0], [0.5, -2.0]])
def test_marginals_are_those_of_weighted_draws(tilt, direction):
    part, v = make(tilt), np.array(direction)
    x, weights = draws(tilt)
    places = np.quantile(x @ v, [0.0, 0.1, 0.5, 0.9, 1.0])
    expected = [weights[x @ v <= place].sum() / weights.sum() for place in places]
    np.testing.assert_allclose(part.cdf(v, places) / part.mass, expected, atol=5e-3)
    ends = part.cdf(v, np.array([-np.inf, np.inf]))
    np.testing.assert_allclose(ends, [0.0, part.mass], rtol=1e-8, atol=1e-12)


def test_a_limit_of_nodes_leaves_the_error_open(tilt):
    part = NarrowPart(0.2, GAUSSIAN, tilt, THREADS, 1.5)
    part.refine(1e-9, 10)
    assert part.error == np.inf


def test_proposals_are_draws_with_the_tilt_as_log_weight(tilt):
    x, log_weights = make(tilt).propose(5_000, np.random.default_rng(2))
    np.testing.assert_array_equal(log_weights, tilt.value(x, THREADS))
    assert stats.kstest(GAUSSIAN.whiten(x)[:, 1], "norm").pvalue > 1e-4
