"""Marginal CDFs along directions against sorting, for every backend; distances and their errors."""

import numpy as np
import oracle
import pytest
from conftest import load_backend

from tgpfast.evaluation.marginals import Grids, ProjectedCDFs, distance
from tgpfast.kernels.thread_choice import Threads

NUMPY = Threads("numpy", 1)


def add_all(cdfs, blocks):
    for x, w in blocks:
        cdfs.add(x, w)
    return cdfs


@pytest.mark.parametrize("name", ["numpy", "numba", "cython"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_sorted_oracle(name, weighted):
    backend = load_backend(name).NAME
    rng = np.random.default_rng(0)
    # eighths, and directions of integers: projections and grid are exact, ties and all
    x = rng.integers(-40, 40, (3000, 3)) / 8.0
    w = rng.integers(0, 5, 3000).astype(float) if weighted else None
    directions = np.array([[1.0, 0.0, 0.0], [1.0, -2.0, 1.0], [0.0, 3.0, 1.0]])
    low, step = np.array([-4.0, -10.0, 2.0]), np.array([0.125, 0.25, 0.5])
    grids = Grids(directions, low, step, 50)
    got = add_all(ProjectedCDFs(grids, Threads(backend, 2)), [(x, w)])
    for v in range(3):
        grid = low[v] + step[v] * np.arange(50)
        cdf, total = got.cdf(v)
        assert np.allclose(cdf[:-1], oracle.marginal_cdf(x, directions[v], grid, w), rtol=1e-14)
        assert total == (3000 if w is None else w.sum())
    halves = [(x[part], None if w is None else w[part]) for part in np.split(np.arange(3000), 2)]
    again = add_all(ProjectedCDFs(grids, Threads(backend, 1)), halves)
    assert np.array_equal(got.cells, again.cells)


# -- distances ------------------------------------------------------------------------------------


def masses(grids, x, points, weights):
    of_data, of_model = (ProjectedCDFs(grids, NUMPY) for _ in range(2))
    of_data.add(x, None)
    of_model.add(points, weights)
    return of_data, of_model


def test_an_outlier_neither_coarsens_the_grid_nor_is_lost():
    """Rows beyond the draws count by what they lie beyond: WD stays exact, the grid fine."""
    rng = np.random.default_rng(0)
    x, points = rng.standard_normal((500, 1)), rng.standard_normal((400, 1))
    x[7], x[8] = 1e6, -2e6
    one = np.ones((1, 1))
    grids = Grids.between(one, 4_000, points, x)
    assert grids.step[0] <= (points.max() - points.min()) / 3_999
    found = distance(*masses(grids, x, points, np.ones(400)), 0)
    ks, wd = oracle.marginal_distances(x, points, one[0])
    assert abs(found.wd - wd) <= 2 * grids.step[0] + 1e-9 * wd
    assert abs(found.ks - ks) <= 2 * (1 / 500 + 1 / 400)
    assert wd > 5_000  # the outliers are most of it


def test_samples_apart_are_measured_over_both():
    x, points = np.array([[0.0], [1.0]]), np.array([[10.0], [11.0], [12.0]])
    grids = Grids.between(np.ones((1, 1)), 1_201, points, x)
    found = distance(*masses(grids, x, points, np.ones(3)), 0)
    assert found.ks == 1.0
    assert abs(found.wd - 10.5) <= grids.step[0]
    assert found.ks_error == 0.0  # no row may come to lie on the other side


def test_a_stream_is_measured_over_the_range_of_the_draws():
    points, x = np.array([[0.0], [4.0]]), np.array([[-3.0], [2.0], [9.0]])
    grids = Grids.between(np.ones((1, 1)), 401, points, None)
    assert (grids.low[0], grids.step[0]) == (0.0, 0.01)
    found = distance(*masses(grids, x, points, np.ones(2)), 0)
    assert abs(found.wd - oracle.marginal_distances(x, points, [1.0])[1]) <= 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_standard_errors_are_those_of_repeated_samples(weighted):
    """Laws that differ: over 300 repetitions the distances scatter as their errors say. The scatter
    of 300 values is known to 1 / sqrt(600) = 4 %, four of which are allowed, and first order adds
    some."""
    rng = np.random.default_rng(3)
    one, found = np.ones((1, 1)), []
    for _ in range(300):
        x = 0.5 + 1.3 * rng.standard_normal((400, 1))
        points = rng.standard_normal((600, 1))
        weights = np.exp(0.4 * points[:, 0]) if weighted else np.ones(600)
        grids = Grids.between(one, 800, points, x)
        found.append(distance(*masses(grids, x, points, weights), 0))
    for name in ("ks", "wd"):
        values = np.array([getattr(f, name) for f in found])
        errors = np.array([getattr(f, f"{name}_error") for f in found])
        ratio = values.std() / np.sqrt(np.mean(errors**2))
        assert 0.75 < ratio < 1.2, (name, ratio)
        # negative control: an error of half the size would be noticed
        assert not 0.75 < 2 * ratio < 1.2


def test_directions_in_parts_give_the_same():
    rng = np.random.default_rng(1)
    x, points, v = rng.normal(size=(50, 3)), rng.normal(size=(60, 3)), rng.normal(size=(7, 3))
    grids = Grids.between(v, 30, points, x)
    whole = add_all(ProjectedCDFs(grids, NUMPY), [(x, None)])
    for start in range(0, 7, 3):
        part = ProjectedCDFs(grids.part(start, start + 3), NUMPY)
        add_all(part, [(x[:20], None), (x[20:], None)])
        np.testing.assert_array_equal(part.cells, whole.cells[start : start + 3])


def test_weights_of_one_that_come_before_others_are_squared_too():
    x, w = np.array([[0.0], [1.0], [2.0]]), np.array([2.0, 3.0, 0.5])
    grids = Grids(np.ones((1, 1)), np.zeros(1), np.ones(1), 3)
    mass = add_all(ProjectedCDFs(grids, NUMPY), [(x, None), (x, w)])
    np.testing.assert_array_equal(mass.cells, [[3.0, 4.0, 1.5, 0.0]])
    np.testing.assert_array_equal(mass.squares, [[1 + 4.0, 1 + 9.0, 1 + 0.25, 0.0]])


def test_a_grid_of_too_many_points_is_refused():
    with pytest.raises(ValueError, match="n_grid"):
        Grids.between(np.ones((1, 1)), 2**31, np.zeros((2, 1)), None)
