"""Masses of a base on the nodes of a grid, against integrals by scipy."""

import numpy as np
import pytest
from scipy import integrate, stats

from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.mixture import MixtureBase
from tgpfast.bases.node_masses import RESOLVED_CELL, BaseGrids, log_partition, node_masses
from tgpfast.bases.part_widths import least_widths
from tgpfast.bases.student import StudentBase
from tgpfast.features.lattice import LatticeFeatures

BOX = LatticeFeatures.for_data(np.linspace(-1.0, 1.0, 50)[:, None], 8, "gaussian", 0.5)
WALLS = LatticeFeatures.for_data(
    np.linspace(-1.0, 1.0, 50)[:, None], 8, "gaussian", 0.5, support=[(-1.5, 1.5)]
)


def _smooth(x):
    """A tilt of moderate slope."""
    return 0.4 * np.sin(1.3 * x) - 0.2 * x


def _log_z(features, base, shape):
    nodes = features.nodes(shape)[0]
    masses = node_masses(base, features, shape)
    return float(log_partition(_smooth(nodes)[None].copy(), [masses])[0][0])


@pytest.mark.parametrize("center", [0.013, -0.41, 0.77])
@pytest.mark.parametrize("width", [1e-4, 3e-3, 0.4])
def test_log_partition_holds_for_a_base_narrower_than_a_cell(center, width):
    base = GaussianBase([center], [[width**2]])
    taper = float(BOX.taper_on([np.array([center])])[0])
    expected = np.log(
        integrate.quad(
            lambda t: np.exp(_smooth(center + width * t)) * stats.norm.pdf(t), -9.0, 9.0
        )[0]
    )
    assert taper == 1.0
    assert _log_z(BOX, base, (64,)) == pytest.approx(expected, abs=3e-3)


def test_log_partition_converges_as_the_grid_is_refined():
    base = StudentBase([0.2], [[1e-5]], 3.0)
    errors = [abs(_log_z(BOX, base, (n,)) - _log_z(BOX, base, (4096,))) for n in (16, 64, 256)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4


@pytest.mark.parametrize("degrees", [0.5, 1.0, 2.0, 4.0, 10.0, 200.0])
def test_sums_over_cells_that_resolve_a_student_base_are_its_integrals(degrees):
    """The density is that of scipy; the error of the sum is largest with a node at the peak."""
    scale = 0.01
    base = StudentBase([0.0], [[scale**2]], degrees)
    width = least_widths(base)[0]
    steps = np.arange(-200_000, 200_001)

    def excess(cell):
        mass = cell * stats.t(degrees).pdf(cell * steps / scale).sum() / scale
        return mass - (1.0 - 2.0 * stats.t(degrees).sf(cell * 200_000.5 / scale))

    assert 0.0 < excess(RESOLVED_CELL * width) < 0.003
    assert excess(2.0 * RESOLVED_CELL * width) > 0.02  # negative control


@pytest.mark.parametrize("cell", [0.5, 1.0, 1.8, 2.2, 2.6, 7.0])  # in widths of the base
def test_a_resolving_shape_resolves_the_base(cell):
    width = float(BOX.lengths[0]) / (64 * cell)
    for base in (
        GaussianBase([0.1], [[width**2]]), StudentBase([0.1], [[4.5 * width**2]], 1.0)
    ):  # fmt: skip
        assert least_widths(base)[0] == pytest.approx(width)
        grids = BaseGrids(base, BOX)
        assert grids.resolve_base((64,)) == (cell < RESOLVED_CELL)
        assert grids.resolve_base(grids.resolving_shape((64,)))


def test_density_at_the_nodes_alone_would_miss_the_base():
    """The negative control: without the finer grid no node sees the base."""
    base = GaussianBase([0.013], [[1e-8]])
    nodes = BOX.nodes((64,))[0]
    at_nodes = np.exp(base.log_density_at(nodes[:, None])).sum() * BOX.cell_volume((64,))
    assert at_nodes < 1e-10
    assert np.exp(node_masses(base, BOX, (64,)).log_masses).sum() == pytest.approx(1.0, abs=1e-9)


def test_masses_at_walls_stay_within_the_box():
    base = MixtureBase([0.5, 0.5], [[-1.4], [1.4]], [[[1e-6]], [[1e-6]]])
    masses = np.exp(node_masses(base, WALLS, (16,)).log_masses)
    assert masses.sum() == pytest.approx(1.0, abs=1e-9)
    assert masses[0] == pytest.approx(0.5, abs=0.1)


def test_a_base_that_the_grid_resolves_has_its_density_at_the_nodes():
    base = GaussianBase([0.1], [[0.3]])
    nodes = BOX.nodes((64,))[0][:, None]
    expected = base.log_density_at(nodes) + np.log(BOX.cell_volume((64,)))
    np.testing.assert_array_equal(node_masses(base, BOX, (64,)).log_masses, expected)


def test_two_columns_share_a_cell_by_position():
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2))
    features = LatticeFeatures.for_data(rows, 4, "gaussian", 0.5)
    base = GaussianBase([0.3, -0.2], [[1e-4, 5e-5], [5e-5, 1e-4]])
    masses = np.exp(node_masses(base, features, (32, 24)).log_masses)
    grid = np.meshgrid(*features.nodes((32, 24)), indexing="ij")
    assert masses.sum() == pytest.approx(1.0, abs=1e-9)
    assert [(masses * axis).sum() for axis in grid] == pytest.approx([0.3, -0.2], abs=1e-9)


def test_a_ridge_that_no_grid_resolves_is_known_as_such():
    rows = np.random.default_rng(0).standard_normal((200, 2))
    features = LatticeFeatures.for_data(rows, 8, "gaussian", 0.5)
    ridge = GaussianBase([0.0, 0.0], [[1.0, 1.0 - 5e-9], [1.0 - 5e-9, 1.0]])
    wide = GaussianBase([0.0, 0.0], [[1.0, 0.9], [0.9, 1.0]])
    assert not BaseGrids(ridge, features).resolve_base((32, 32))
    assert BaseGrids(wide, features).resolve_base((32, 32))
