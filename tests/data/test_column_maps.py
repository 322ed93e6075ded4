"""Maps of columns: increasing, with an exact inverse and exact derivatives."""

import pickle

import numpy as np
import pytest

from tgpfast.data.column_maps import ColumnMap, ColumnMaps, MappedScaling, OutsideSupportError

WALLS = [(-np.inf, np.inf), (0.0, np.inf), (-np.inf, 2.0), (0.0, 2.0)]


def some_map(low=-np.inf, high=np.inf):
    """A map whose spline is bent, but not much."""
    heights, slopes = np.array([-2.0, -1.5, 0.3, 1.9]), np.array([0.4, 0.9, 1.2, 0.7])
    return ColumnMap(np.array([-2.0, -1.0, 0.0, 1.5]), heights, slopes, low, high, 1e-3)


def some_scaling():
    maps = ColumnMaps(tuple(some_map(*ends) for ends in WALLS))
    return MappedScaling(np.array([0.1, -0.2, 0.3, 0.0]), np.array([1.5, 0.7, 1.0, 2.0]), maps)


@pytest.mark.parametrize("ends", WALLS)
def test_a_map_increases_and_its_inverse_returns_every_value(ends):
    line = some_map(*ends)
    x = np.linspace(0.001, 1.999, 2_001)
    z = line.apply(x)
    assert (np.diff(z) > 0.0).all()
    np.testing.assert_allclose(line.invert(z), x, atol=1e-12)
    far = np.linspace(-12.0, 12.0, 401)  # beyond the knots too
    x = line.invert(far)
    assert (x >= ends[0]).all()
    assert (x <= ends[1]).all()
    np.testing.assert_allclose(line.apply(np.clip(x, -1e6, 1e6))[150:250], far[150:250], atol=1e-9)


@pytest.mark.parametrize("ends", WALLS)
def test_derivatives_are_those_of_differences(ends):
    line, h = some_map(*ends), 1e-6
    x = np.random.default_rng(0).uniform(0.05, 1.95, 300)
    found = line.derivatives(x)
    slope = (line.apply(x + h) - line.apply(x - h)) / (2.0 * h)
    np.testing.assert_allclose(found.slope, slope, rtol=1e-7)
    np.testing.assert_allclose(line.log_slope(x), np.log(found.slope), rtol=0.0, atol=1e-13)
    gradient = (line.log_slope(x + h) - line.log_slope(x - h)) / (2.0 * h)
    np.testing.assert_allclose(found.log_gradient, gradient, atol=1e-7)
    sides = [line.derivatives(x + step).log_gradient for step in (h, -h)]
    np.testing.assert_allclose(
        found.log_curvature, (sides[0] - sides[1]) / (2.0 * h), rtol=1e-6, atol=1e-6
    )


def test_values_beyond_walls_are_infinite_and_those_on_a_wall_are_not():
    line = some_map(0.0, 2.0)
    values = line.apply(np.array([-np.inf, -1e-9, 0.0, 2.0, 2.1, np.inf]))
    assert np.isneginf(values[:2]).all()
    assert np.isposinf(values[-2:]).all()
    np.testing.assert_array_equal(values[2:4], line.apply(np.array([1e-3, 2.0 - 1e-3])))
    assert np.isfinite(line.log_slope(np.array([0.0, 2.0]))).all()


@pytest.mark.parametrize(
    ("heights", "slopes"),
    [([0.0, 1.0, 0.5], [1.0, 1.0, 1.0]), ([0.0, 1.0, 2.0], [1.0, 0.0, 1.0]),
     ([0.0, 1.0, 2.0], [1.0, 9.0, 1.0]), ([0.0, 1.0], [1.0, 1.0])],
)  # fmt: skip
def test_a_map_that_does_not_increase_is_refused(heights, slopes):
    with pytest.raises(ValueError, match="column map"):
        ColumnMap(np.array([0.0, 1.0, 2.0]), np.array(heights), np.array(slopes))


def test_a_mapped_scaling_is_what_its_maps_and_its_scale_make_of_rows():
    scaling = some_scaling()
    x = np.random.default_rng(1).uniform(0.2, 1.8, (50, 4))
    expected = np.stack(
        [(some_map(*ends).apply(x[:, k]) - scaling.shift[k]) / scaling.scale[k]
         for k, ends in enumerate(WALLS)], axis=1,
    )  # fmt: skip
    np.testing.assert_allclose(scaling.apply(x), expected, rtol=1e-14)
    np.testing.assert_allclose(scaling.invert(expected), x, atol=1e-12)
    some = scaling.choose([3, 1])
    np.testing.assert_array_equal(some.apply(x[:, [3, 1]]), expected[:, [3, 1]])
    np.testing.assert_allclose(scaling.log_slope_at(expected), scaling.log_slope(x), atol=1e-12)


def test_scores_and_laplacians_of_a_gaussian_after_maps_are_those_of_differences():
    scaling, h = some_scaling(), 1e-5
    x = np.random.default_rng(2).uniform(0.3, 1.7, (20, 4))

    def log_density(rows):
        return -0.5 * np.square(scaling.apply(rows)).sum(axis=1) + scaling.log_slope(rows)

    u = scaling.apply(x)
    score = scaling.pull_score(x, -u)
    steps = h * np.eye(4)
    sides = [(log_density(x + step), log_density(x - step)) for step in steps]
    np.testing.assert_allclose(
        score, np.stack([(a - b) / (2.0 * h) for a, b in sides], axis=1), atol=1e-6
    )
    laplacian = sum((a + b - 2.0 * log_density(x)) / h**2 for a, b in sides)
    np.testing.assert_allclose(
        scaling.pull_laplacian(x, -u, -np.ones((20, 4))), laplacian, rtol=1e-3, atol=1e-3
    )


def test_rows_outside_are_refused_with_their_column_and_value():
    scaling = some_scaling()
    with pytest.raises(OutsideSupportError, match=r"-3 in column 1.*\(0, inf\)"):
        scaling.apply_inside(np.array([[0.5, -3.0, 0.5, 0.5]]))
    scaling.apply_inside(np.array([[0.5, 0.0, 2.0, 2.0]]))  # walls belong to the support


def test_parameters_make_the_same_maps_and_pickles_too():
    scaling = some_scaling()
    x = np.random.default_rng(3).uniform(0.2, 1.8, (9, 4))
    again = ColumnMaps.from_parameters(scaling.maps.parameters())
    np.testing.assert_array_equal(again.apply(x), scaling.maps.apply(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scaling)).apply(x), scaling.apply(x))
