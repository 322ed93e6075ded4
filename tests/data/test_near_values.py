"""Values that were written with different accuracy: which are one value, and which are not."""

import numpy as np
import pytest

from tgpfast.data.near_values import (
    GROUP_DISTANCE,
    MOST_VALUES_OF_GROUP,
    ROWS_PER_VALUE,
    merge_near_values,
)

ROWS = 5_000
TAGS = np.array([0.0, 1.08653808, 1.087, 2.173, 2.17307615])  # of HIGGS
WRITTEN = np.array([1.0 / 7.0, 0.9, 1.61803398875, 2.71828182846])


def merged(values, n_rows=ROWS):
    return merge_near_values(np.unique(values), n_rows).tolist()


def is_left_alone(values, n_rows=ROWS):
    return merged(values, n_rows) == list(range(len(np.unique(values))))


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e9, 1e-9])
@pytest.mark.parametrize("shift", [0.0, 0.3, -1e3])
def test_values_with_more_and_fewer_decimals_are_one_in_any_units(scale, shift):
    found = merged(scale * (TAGS + shift))
    assert found == ([0, 1, 1, 2, 2] if scale > 0 else [0, 0, 1, 1, 2])


@pytest.mark.parametrize("decimals", [(2, 3), (2, 6), (3, 9), (2, 4, 6)])
def test_values_with_several_numbers_of_decimals(decimals):
    values = np.unique(np.concatenate([WRITTEN.round(places) for places in decimals]))
    nearest = np.abs(values[:, None] - WRITTEN).argmin(axis=1)
    assert merge_near_values(values, ROWS).tolist() == nearest.tolist()


def test_grids_stay_as_they_are():
    for step in (1.0, 0.1, 1.0 / 3.0):
        assert is_left_alone(step * np.arange(20))
        assert is_left_alone(step * np.array([0, 1, 2, 3, 50, 51, 100]))  # with holes
        assert is_left_alone(7.7 + step * np.array([0, 1, 2, 998, 999]))  # codes of "unknown"


def test_one_group_of_near_values_is_not_enough():
    assert is_left_alone([0.0, 1.1, 999.3])
    assert merged([0.0, 1.1, 999.3, 1000.7]) == [0, 0, 1, 1]


def test_groups_of_many_values_are_values_of_their_own():
    rng = np.random.default_rng(0)
    for count in (MOST_VALUES_OF_GROUP, MOST_VALUES_OF_GROUP + 1):
        near = np.sort(1e-3 * rng.uniform(size=(2, count)), axis=1)
        x = np.concatenate([near[0], 1.0 + near[1]])
        assert is_left_alone(x) == (count > MOST_VALUES_OF_GROUP)


def test_groups_that_are_not_far_apart_stay_as_they_are():
    for factor in (0.9, 1.1):
        width = 1.0 / (factor * GROUP_DISTANCE + 1.0)  # distance between groups: 1 - width
        x = np.array([0.0, 0.37 * width, 1.0, 1.0 + width])
        assert is_left_alone(x) == (factor < 1.0)


def test_values_that_hardly_repeat_stay_as_they_are():
    for n_rows in (ROWS_PER_VALUE * len(TAGS) - 1, ROWS_PER_VALUE * len(TAGS)):
        assert is_left_alone(TAGS, n_rows) == (n_rows < ROWS_PER_VALUE * len(TAGS))


def test_one_and_two_values():
    assert is_left_alone([3.0])
    assert is_left_alone([3.0, 3.001])
