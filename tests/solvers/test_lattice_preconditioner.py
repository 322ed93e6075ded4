"""The preconditioner of lattices: exact for a constant density, useful for a smooth one."""

import numpy as np
import pytest

from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.node_masses import BaseGrids
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.solvers import lattice_posterior
from tgpfast.solvers.conjugate_gradients import conjugate_gradients
from tgpfast.solvers.lattice_map import solve_lattice_map
from tgpfast.solvers.lattice_posterior import LatticePosteriors
from tgpfast.solvers.lattice_preconditioner import LevelPreconditioner
from tgpfast.statistics.lattice_sums import accumulate_lattice


def draw_modes(features, seed):
    return features.from_grid(np.random.default_rng(seed).standard_normal(features.grid_shape()))


@pytest.mark.parametrize("walls", [("open",), ("wall",), ("open", "wall"), ("period", "open")])
def test_a_constant_density_is_inverted_exactly(walls):
    d = len(walls)
    features = LatticeFeatures([2.0, 3.0][:d], [5, 4][:d], [0.0] * d, "matern32", 0.5, walls)
    density = np.full(features.grid_shape(1.0), 700.0)
    precondition = LevelPreconditioner(features, features.prior_variance, density, 2.0)
    r = draw_modes(features, 0)
    # in the coordinates of the solvers every mode is a function of mean square 1
    want = r / (2.0 + 700.0 * features.prior_variance)
    assert np.abs(precondition(r) - want).max() < 1e-12 * np.abs(want).max()


def test_it_is_symmetric_and_positive():
    features = LatticeFeatures([2.0, 3.0], (6, 5), [0.0, 0.0], "matern32", 0.5)
    shape = features.grid_shape(1.0)
    density = np.exp(3.0 * np.random.default_rng(1).standard_normal(shape)) - 0.1
    precondition = LevelPreconditioner(features, 1e4 * features.prior_variance, density)
    # the inner product of coordinates that are scaled by the root of the multiplicity
    root = np.sqrt(features.multiplicity)
    a, b = (root * draw_modes(features, seed) for seed in (2, 3))
    left, right = (np.vdot(x, precondition(y)).real for x, y in ((a, b), (b, a)))
    assert left == pytest.approx(right, rel=1e-10)
    assert np.vdot(a, precondition(a)).real > 0.0


@pytest.mark.parametrize("density", [0.0, -1.0])
def test_without_density_or_prior_it_divides_by_the_shift(density):
    features = LatticeFeatures([2.0], 4, [0.0], "gaussian", 0.5)
    grid, r = np.full(features.grid_shape(1.0), density), draw_modes(features, 4)
    got = LevelPreconditioner(features, features.prior_variance, grid, 3.0)(r)
    assert np.abs(got - r / 3.0).max() < np.abs(r).max()
    without = LevelPreconditioner(features, np.zeros(features.mode_shape), grid + 5.0, 3.0)(r)
    assert np.abs(without - r / 3.0).max() < 1e-12 * np.abs(r).max()


def smooth_case():
    x = np.random.default_rng(5).standard_normal((3000, 2))
    base = GaussianBase(np.zeros(2), 1.3 * np.eye(2))
    features = LatticeFeatures.for_data(x, 12, "matern32", 0.5, base=base)
    return accumulate_lattice(x, features), base


def test_it_saves_most_products_where_the_density_is_smooth():
    stats, base = smooth_case()
    lam, grids = 0.05, BaseGrids(base, stats.features)
    theta, _ = solve_lattice_map(stats, base, lam, grid_tolerance=None)
    objective, coarse = (
        LatticePosteriors(
            stats.features, stats.sum_waves[None], np.array([stats.n]),
            [grids.at(stats.features.grid_shape(o))], lam,
        )
        for o in (2.0, 1.0)
    )  # fmt: skip
    point = objective.at(objective.whiten(theta[None]))
    product, b = objective.curvature(point), objective.whiten(stats.sum_waves[None])
    options = {"tolerance": 1e-6, "max_steps": 2000, "is_rough": True}
    plain = conjugate_gradients(product, b, **options)
    inverse = coarse.preconditioner(point.u[0])
    quick = conjugate_gradients(
        product, b, precondition=lambda r: inverse(r[0])[None], **options
    )
    assert quick.steps < 0.4 * plain.steps
    assert np.linalg.norm(product(quick.x) - b) <= 1.1e-6 * np.linalg.norm(b)


def test_map_goes_on_without_it_where_it_does_not_help(monkeypatch):
    stats, base = smooth_case()
    want, report = solve_lattice_map(stats, base, 0.05, tolerance=1e-9)
    monkeypatch.setattr(lattice_posterior, "PRECONDITIONED_STEPS", 3)
    got, plain = solve_lattice_map(stats, base, 0.05, tolerance=1e-9)
    assert np.abs(got - want).max() < 1e-7
    assert plain["cg_products"] > report["cg_products"]
