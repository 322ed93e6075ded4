"""Inverse Hessians of small lattices: against dense matrices of products, and what they save."""

import numpy as np
import pytest

from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.node_masses import node_masses
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.solvers.lattice_posterior import LatticePosteriors, maximize_posteriors
from tgpfast.solvers.small_lattice import FeatureCovariance, is_small
from tgpfast.statistics.lattice_sums import accumulate_lattice


def make_posteriors(walls=("open", "open"), n_modes=(5, 4), lam=0.1, copies=2):
    d = len(walls)
    features = LatticeFeatures([9.0] * d, n_modes[:d], [-4.5] * d, "matern32", 0.6, walls)
    rows = 0.8 * np.random.default_rng(0).standard_normal((400, d))
    stats = accumulate_lattice(rows, features)
    base = GaussianBase(np.zeros(d), np.eye(d))
    masses = node_masses(base, features, features.grid_shape())
    sums = np.repeat(stats.sum_waves[None], copies, axis=0)
    return LatticePosteriors(features, sums, np.full(copies, 400.0), [masses] * copies, lam)


@pytest.mark.parametrize(
    "walls", [("open",), ("period", "open"), ("open", "wall"), ("wall", "wall")]
)
def test_at_its_own_density_it_inverts_the_hessian(walls):
    posteriors = make_posteriors(walls)
    noise = np.random.default_rng(1).standard_normal((2, *posteriors.shape))
    u = 0.01 * posteriors.whiten(posteriors.to_theta * posteriors.transform.from_grid(noise))
    point = posteriors.at(np.repeat(u[:1], 2, axis=0))
    covariance = FeatureCovariance(posteriors.features, point.p[0], posteriors.taper)
    inverse = covariance.invert_hessians(posteriors)
    assert inverse is not None
    v = posteriors.gradient(posteriors.at(u))
    image = posteriors.curvature(point)(v)
    assert np.abs(inverse(image) - v).max() < 1e-9 * np.abs(v).max()
    # the negative control: at another density it does not
    other = FeatureCovariance(posteriors.features, np.roll(point.p[0], 3), posteriors.taper)
    wrong = other.invert_hessians(posteriors)
    assert wrong is not None
    assert np.abs(wrong(image) - v).max() > 1e-3 * np.abs(v).max()


def test_a_density_near_the_maximum_saves_most_products():
    posteriors = make_posteriors(n_modes=(8, 8), lam=0.02)
    start = np.zeros_like(posteriors.data)
    plain = maximize_posteriors(posteriors, start, tolerance=1e-6, least_gain=1e-9)
    near = maximize_posteriors(posteriors, start, least_gain=1e-2).point.p.mean(axis=0)
    covariance = FeatureCovariance(posteriors.features, near, posteriors.taper)
    inverse = covariance.invert_hessians(posteriors)
    quick = maximize_posteriors(
        posteriors, start, tolerance=1e-6, least_gain=1e-9, precondition=lambda u: inverse
    )
    assert quick.preconditioning_pays
    assert quick.products < 0.4 * plain.products
    np.testing.assert_allclose(quick.point.value, plain.point.value, rtol=0, atol=1e-3)


def test_only_small_lattices_are_factored():
    sizes = {8: True, 16: False}
    for m, want in sizes.items():
        assert is_small(LatticeFeatures([1.0, 1.0], m, [0.0, 0.0])) is want
