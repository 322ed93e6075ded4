"""Checks of arguments: what is accepted, and errors that name the argument and what it was."""

import numpy as np
import pytest

from tgpfast.validation import (
    FAR,
    as_floats,
    as_seed,
    check_bandwidth,
    check_choice,
    check_derivative,
    check_flag,
    positive,
    whole,
    without_far,
)


@pytest.mark.parametrize("value", [1, 3, np.int8(3), np.uint64(7), 10**30])
def test_integers_are_whole(value):
    assert whole("n", value) == int(value)


@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, np.float64(2.0), "2", None, [1]])
def test_what_is_no_positive_integer_is_named(value):
    with pytest.raises(ValueError, match=r"^n=.*: expected an integer of at least 1$"):
        whole("n", value)


def test_the_least_integer_is_a_choice():
    assert whole("n", 0, 0) == 0
    with pytest.raises(ValueError, match="n=4: expected an integer of at least 5"):
        whole("n", 4, 5)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(2.0), np.int64(3), 1e300, 1e-300])
def test_positive_numbers(value):
    assert positive("lam", value) == float(value)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (0.0, ValueError, "above 0"), (-1, ValueError, "above 0"), (np.nan, ValueError, "above 0"),
        (np.inf, ValueError, "above 0"), (10**400, ValueError, "above 0"),
        (1e-310, ValueError, "loses digits"), (1e308, ValueError, "overflows"),
        (True, TypeError, "expected a number or 'auto'"), ("1", TypeError, "or 'auto'"),
        (None, TypeError, "or 'auto'"), ([1.0], TypeError, "or 'auto'"),
    ],
)  # fmt: skip
def test_what_is_no_positive_number_is_named(value, kind, message):
    with pytest.raises(kind, match=f"^lam=.*{message}"):
        positive("lam", value, "auto")


def test_small_arrays_are_copied_and_frozen():
    given = np.array([1, 2], dtype=np.int16)
    found = as_floats(given, "mean", "(d,)", 1)
    given[0] = 9
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 3.0


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ([[1.0]], ValueError, r"must have shape \(d,\), got \(1, 1\)"),
        ([1.0, np.nan], ValueError, r"must be finite, got nan at index \(1,\)"),
        (["a"], TypeError, "must be real numbers"), ([1j], TypeError, "got dtype complex"),
        ([True], TypeError, "got dtype bool"),
    ],
)  # fmt: skip
def test_small_arrays_that_are_wrong_are_named(value, kind, message):
    with pytest.raises(kind, match=f"^mean .*{message}"):
        as_floats(value, "mean", "(d,)", 1)


def test_words_are_listed():
    assert check_choice("method", "fd", ("fd", "map")) == "fd"
    for value in ("FD", "", None, 1, ["fd"]):
        with pytest.raises(ValueError, match=r"^method=.*: expected one of 'fd', 'map'$"):
            check_choice("method", value, ("fd", "map"))


def test_flags_are_true_or_false():
    assert check_flag("progress", np.False_) is False
    for value in (0, 1, None, "yes", np.array(True)):
        with pytest.raises(TypeError, match=r"^progress=.*: expected True or False$"):
            check_flag("progress", value)


def test_seeds():
    """Integers stay, a generator gives its next number, None a fresh one."""
    assert as_seed(0) == 0
    assert as_seed(np.int64(5)) == 5
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    assert as_seed(first) == as_seed(second)
    assert as_seed(first) == as_seed(second) != as_seed(first)
    assert as_seed(None) != as_seed(None)
    for value in (-1, 1.5, "1", True):
        with pytest.raises(ValueError, match=r"^seed=.*: expected an integer of at least 0, None"):
            as_seed(value)


@pytest.mark.parametrize("gamma", [1e-7, 1e9])
def test_bandwidths_beyond_the_rows(gamma):
    check_bandwidth(1.0, 4.0, 1.0)
    with pytest.raises(ValueError, match=r"^gamma=.* standard deviation of 2;"):
        check_bandwidth(gamma, 4.0, 1.0)


def test_penalties_beyond_float64():
    with pytest.raises(ValueError, match=r"^lam=1e\+300: lam gamma\^2 is beyond"):
        check_bandwidth(1e6, 1.0, 1e300)


def test_rows_far_away_are_moved_to_the_mean():
    u, mean = np.array([[0.0], [1e200], [np.inf], [1.0]]), np.array([0.5])
    rows, far = without_far(u, mean, np.ones(1))
    assert far.tolist() == [False, True, True, False]
    assert rows.ravel().tolist() == [0.0, 0.5, 0.5, 1.0]
    assert u[1, 0] == 1e200
    near = u[[0, 3]] * 0.5 * FAR
    assert without_far(near, mean, np.ones(1))[0] is near
    with pytest.raises(ValueError, match=r"^Y, row 101: the gradient is not finite"):
        check_derivative("gradient", rows, far, 100)
    check_derivative("gradient", rows, np.zeros(4, bool), 100)
