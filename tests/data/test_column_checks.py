"""Notes on columns: what is found, what is left alone, and what the messages say."""

import re
import warnings

import numpy as np
import pytest

from tgpfast.data import column_checks
from tgpfast.data.column_checks import check_columns, warn_columns

N = 4_000


def rows(column):
    """A column between two continuous ones."""
    n = len(column)
    rng = np.random.default_rng(n)
    return np.column_stack([rng.standard_normal(n), column, rng.exponential(size=n)])


def kinds(x, **options):
    return [(note.column, note.kind) for note in check_columns(x, **options)]


def rng(seed=0):
    return np.random.default_rng(seed)


# -- what is left alone ---------------------------------------------------------------------------

CONTINUOUS = {
    "normal": lambda r, n: r.standard_normal(n),
    "uniform": lambda r, n: r.uniform(0, 1000, n),
    "exponential": lambda r, n: r.exponential(size=n),
    "cauchy": lambda r, n: r.standard_cauchy(n),
    "lognormal": lambda r, n: np.exp(3 * r.standard_normal(n)),
    "far": lambda r, n: 1e9 + r.standard_normal(n),
    "tiny": lambda r, n: 1e-200 * r.standard_normal(n),
    "huge": lambda r, n: 1e200 * r.standard_normal(n),
    "two modes": lambda r, n: r.standard_normal(n) + 50 * r.integers(0, 2, n),
}


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 21, 50, 1_000, 20_000])
@pytest.mark.parametrize("law", CONTINUOUS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_continuous_columns_give_no_note(law, n, dtype):
    for seed in range(20 if n < 100 else 1):
        if law in ("tiny", "huge", "far") and dtype == np.float32:
            return  # single precision does not hold these
        x = CONTINUOUS[law](rng(seed), n).astype(dtype)
        assert check_columns(rows(x)) == []
        assert check_columns(x[:, None], n_rows=10 * n) == []


@pytest.mark.parametrize("offset", [0, 10, 1_000, 4_000, 100_000])
def test_single_precision_is_not_rounding(offset):
    """At 4,000 a fifth of 20,000 float32 values repeat, with a step that no density notices."""
    x = (offset + rng().standard_normal(20_000)).astype(np.float32)
    assert (len(np.unique(x)) < 18_000) == (offset >= 1_000)
    assert check_columns(rows(x)) == []
    assert check_columns(rng().uniform(size=(20_000, 1)).astype(np.float32), n_rows=10**7) == []


def test_single_precision_that_a_density_notices_is_reported():
    x = (2e6 + rng().standard_normal(20_000)).astype(np.float32)  # steps of an eighth
    (note,) = check_columns(rows(x))
    assert (note.column, note.kind, note.facts["step"]) == (1, "rounded", 0.125)


def test_few_rows_and_fine_steps_give_no_note():
    assert check_columns(rows(np.arange(19.0))) == []  # fewer than 20 rows
    assert check_columns(rows(np.round(rng().standard_normal(200), 3))) == []  # few ties
    assert check_columns(rows(np.round(rng().standard_normal(20_000), 6))) == []
    salary = np.round(50_000 * np.exp(0.5 * rng().standard_normal(20_000)))  # whole, but fine
    assert check_columns(rows(salary)) == []


def test_a_few_repeats_among_few_rows_give_no_note():
    x = rng().standard_normal(30)
    x[:3] = x[5:8]  # 10 % of the rows
    assert check_columns(rows(x)) == []
    x[:3] = x[5]
    assert check_columns(rows(x)) == []


def test_different_rows_are_counted():
    """Round numbers too, whose low bits are all zero."""
    for x in (rng().integers(0, 60, (20_000, 3)).astype(float), rng().standard_normal((500, 2))):
        assert column_checks.count_different_rows(x) == len(np.unique(x, axis=0))


def test_copies_of_whole_rows_are_no_ties():
    """A bootstrap sample repeats rows, and so the values of every column."""
    x = rng().standard_normal((N, 3))
    again = x[rng(1).integers(0, N, N)]
    assert len(np.unique(again[:, 0])) < 0.7 * N
    assert check_columns(again) == []
    again[:, 1] = np.where(again[:, 1] < 0, -1.23, again[:, 1])  # negative control
    assert kinds(again) == [(1, "tied")]


def test_a_constant_column_is_left_to_fit():
    assert check_columns(rows(np.full(N, 3.0))) == []


# -- what is noted --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20, 300, 20_000])
def test_whole_numbers(n):
    x = rows(rng().poisson(3.0, n))
    (note,) = check_columns(x, columns=["a", "rings", "b"])
    assert (note.column, note.name, note.kind) == (1, "rings", "integer")
    m = len(np.unique(x[:, 1]))
    assert note.facts["n_distinct"] == m
    assert note.facts["step"] == 1.0
    assert note.facts["repeated_share"] == pytest.approx(1 - m / n)
    assert note.message.startswith(
        f"column 1 ('rings') holds whole numbers: {m} different values in {n:,} rows"
    )
    assert "with discrete=['rings']" in note.message
    assert "fit_groups" in note.message


def test_whole_numbers_of_which_some_repeat():
    values = rng().integers(0, N, N)
    assert len(np.unique(values)) > 0.5 * N
    assert kinds(rows(values)) == [(1, "integer")]
    assert kinds(values[:, None]) == [(0, "integer")]
    # nobody sees steps that small
    assert check_columns(rows(rng().integers(0, 100 * N, N))) == []


def test_whole_numbers_with_an_outlier_or_in_tens():
    counts = rng().poisson(3.0, N).astype(float)
    counts[7] = 1e7  # the standard deviation is 1e5 steps: quartiles do not see it
    assert kinds(rows(counts)) == [(1, "integer")]
    (tens,) = check_columns(rows(10 * rng().integers(0, 300, N)))
    assert tens.facts["step"] == 10.0
    assert "with discrete={1: 10}" in tens.message
    (odd,) = check_columns(rows(10 * rng().integers(0, 300, N) + 3))
    assert "with discrete=[1]" in odd.message  # no multiples of 10
    assert "fit_groups" not in tens.message  # for 300 values
    assert kinds(rows(rng().integers(0, 2, N))) == [(1, "integer")]
    assert kinds(rng().integers(0, 256, (N, 1))) == [(0, "integer")]


@pytest.mark.parametrize(("step", "n"), [(0.001, 20_000), (0.01, N), (0.25, 300), (0.1, N)])
def test_rounded_values(step, n):
    x = rows(np.round(5 * rng().standard_normal(n) / step / 5) * step)
    (note,) = check_columns(x)
    assert (note.column, note.name, note.kind) == (1, None, "rounded")
    assert note.facts["step"] == pytest.approx(step)
    assert note.message.startswith(f"column 1 is rounded: its smallest step is {step:g}, and")
    assert f"between -{step / 2:g} and {step / 2:g}" in note.message


def test_steps_that_are_not_decimal():
    third = np.round(30 * rng().standard_normal(N)) / 3
    (note,) = check_columns(rows(third))
    assert note.kind == "rounded"
    assert note.facts["step"] == pytest.approx(1 / 3)
    single = np.round(rng().standard_normal(N), 1).astype(np.float32)  # 0.1 is not exact there
    (note,) = check_columns(rows(single))
    assert note.facts["step"] == pytest.approx(0.1, rel=1e-6)


def test_one_value_that_many_rows_have():
    x = rng().exponential(size=N)
    x[rng(1).random(N) < 0.3] = 0.0
    (note,) = check_columns(rows(x))
    assert (note.kind, note.facts["top_value"]) == ("tied", 0.0)
    assert note.facts["top_share"] == pytest.approx((x == 0).mean())
    assert "0 alone has 30% of the rows" in note.message
    few = rng().standard_normal(N)
    few[:40] = 1.7  # 1 % of the rows
    assert check_columns(rows(few)) == []


def test_repeated_values_on_no_lattice():
    levels = rng().standard_normal(700)
    assert kinds(rows(levels[rng(1).integers(0, 700, N)])) == [(1, "tied")]
    few = np.array([0.1, 0.37, 5.2])[rng(1).integers(0, 3, N)]
    (note,) = check_columns(rows(few))
    assert note.kind == "tied"
    assert "3 different values" in note.message
    some = rng().standard_normal(N)
    some[: N // 10] = some[N // 10 : N // 5]  # one in ten repeats another
    assert kinds(rows(some)) == [(1, "tied")]
    assert kinds(some[:, None]) == [(0, "tied")]
    some[: N // 50] = rng(5).standard_normal(N // 50)
    some[N // 25 : N // 10] = rng(6).standard_normal(N // 10 - N // 25)
    assert check_columns(rows(some)) == []  # one in fifty


def test_values_of_different_accuracy_count_once():
    tags = np.array([0.0, 1.08653808, 2.17307615])[rng(1).integers(0, 3, N)]
    both = np.where(rng(2).random(N) < 0.5, tags.round(3), tags)
    (note,) = check_columns(rows(both))
    assert (note.kind, note.facts["n_distinct"], note.facts["n_written"]) == ("tied", 3, 5)
    assert "3 different values up to rounding, written in 5 ways" in note.message
    share = max(np.mean(tags == value) for value in np.unique(tags))
    assert note.facts["top_share"] == pytest.approx(share)
    assert note.facts["top_value"] in both
    (plain,) = check_columns(rows(tags))  # the negative control: one accuracy
    assert plain.facts["n_distinct"] == plain.facts["n_written"] == 3
    assert "3 different values;" in plain.message


# -- row numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [lambda i: i, lambda i: 7.0 - 2.0 * i, lambda i: 0.1 * i + 3])
@pytest.mark.parametrize("n_rows", [20, 500, 200_000])
def test_row_numbers_in_any_order(image, n_rows):
    sample = rng().permutation(n_rows)[:20_000]
    (note,) = check_columns(rows(image(sample)), n_rows=n_rows)
    assert (note.column, note.kind) == (1, "row_number")
    assert "Drop this column" in note.message
    assert ("sampled rows" in note.message) == (n_rows > 20_000)


def test_row_numbers_of_more_rows_than_are_looked_at():
    """The sample is drawn here; steps are seen where some neighbours are in it."""
    assert kinds(rows(np.arange(50_000))) == [(1, "row_number")]
    assert kinds(rows(np.linspace(0.0, 1.0, 50_000))) == [(1, "row_number")]


def test_row_numbers_of_which_some_rows_were_dropped():
    i = np.flatnonzero(rng().random(N) < 0.7)
    assert kinds(rows(i)) == [(1, "row_number")]


def test_different_whole_numbers_that_are_no_row_numbers():
    far = rng().integers(0, 10**9, N)
    assert check_columns(rows(far)) == []  # identifiers over a long range
    sample = rng().permutation(10_000)[:N]
    assert check_columns(rows(sample), n_rows=10_000_000) == []
    sparse = np.round(rng().uniform(size=3_000), 7)  # too few to show ties of such fine steps
    assert len(np.unique(sparse)) == 3_000
    assert check_columns(rows(sparse), n_rows=10**7) == []
    squares = np.arange(200.0) ** 2
    assert check_columns(rows(squares)) == []
    uneven = np.unique(np.concatenate([np.arange(150), 200 + 4 * np.arange(50)]))
    assert check_columns(rows(uneven)) == []


# -- nearly linear --------------------------------------------------------------------------------


def test_a_column_that_others_determine():
    x = rng().standard_normal((N, 4)) * [1.0, 100.0, 0.01, 1.0] + [0, 1e4, 0, 5]
    total = 2 * x[:, 0] - x[:, 1] + 1e-3 * rng(1).standard_normal(N)
    (note,) = check_columns(np.column_stack([x, total]), columns=[*"abcd", "total"])
    assert note.kind == "nearly_linear"
    assert {note.column, *note.facts["columns"]} <= {0, 1, 4}
    assert note.facts["unexplained_share"] == pytest.approx(1e-10, rel=0.2)
    assert "1 - R^2 = " in note.message


def test_a_relation_is_noted_once_and_names_its_columns():
    a, b = rng().standard_normal((2, N))
    x = np.column_stack([a, b, a + b + 3e-4 * rng(1).standard_normal(N)])
    (note,) = check_columns(x, columns=["a", "b", "sum"])
    assert (note.column, note.name) == (2, "sum")
    assert note.message.startswith(
        "column 2 ('sum') is nearly a linear function of columns 0 ('a'), 1 ('b'): 1 - R^2 = 4."
    )
    copy = np.column_stack([a, b, b + 1e-5 * a])
    (note,) = check_columns(copy)
    assert note.message.startswith("column 2 is nearly a linear function of column 1: ")
    exact = check_columns(np.column_stack([a, b, a, b]))  # `fit` refuses these
    assert [note.kind for note in exact] == ["nearly_linear"] * 2
    assert sorted({note.column for note in exact}) == [2, 3]


def test_strong_correlation_and_outliers_are_not_linear_dependence():
    a, b, c = rng().standard_normal((3, N))
    assert check_columns(np.column_stack([a, a + 2e-3 * b])) == []  # 1 - R^2 = 4e-6
    x = np.column_stack([a, b, c])
    x[0] = 1e7  # one row makes the correlations 1
    assert check_columns(x) == []
    assert check_columns(rng().standard_normal((30, 25))) == []  # few rows for the columns
    assert check_columns(rng().standard_normal((30, 31))) == []


def test_weights_decide_which_rows_count():
    a, b = rng().standard_normal((2, N))
    x = np.column_stack([a, a + 1e-5 * b])
    x[: N // 2, 1] = b[: N // 2]
    assert check_columns(x) == []
    w = np.r_[np.zeros(N // 2), np.ones(N // 2)]
    assert kinds(x, weights=w) == [(1, "nearly_linear")]
    tied = rows(np.where(np.arange(N) < N // 2, 0.0, a))
    assert kinds(tied) == [(1, "tied")]
    assert check_columns(tied, weights=w) == []


# -- input and warnings ---------------------------------------------------------------------------


def test_results_repeat_and_input_stays_as_it_is():
    x = rows(rng().poisson(3.0, 30_000).astype(float))
    before = x.copy()
    assert check_columns(x) == check_columns(x)
    np.testing.assert_array_equal(x, before)
    assert check_columns(x)[0].facts["n_rows"] == column_checks.MOST_ROWS


def test_wrong_input():
    x = np.zeros((30, 2))
    with pytest.raises(ValueError, match=r"weights must have shape \(30,\), got \(3,\)"):
        check_columns(x, np.ones(3))
    with pytest.raises(ValueError, match="columns has 1 names, expected 2"):
        check_columns(x, columns=["a"])


def test_one_warning_for_each_note_at_the_callers_line():
    x = rows(rng().poisson(3.0, N))
    notes = check_columns(np.column_stack([x, rng(4).integers(0, 5, N)]))
    with pytest.warns(RuntimeWarning, match="column") as caught:
        warn_columns(notes)
    assert [str(w.message) for w in caught] == [note.message for note in notes]
    assert len(caught) == 2
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_columns([])


def test_many_notes_end_in_one_list():
    x = rng().integers(0, 5, (200, 13))
    notes = check_columns(x, columns=[f"c{k}" for k in range(13)])
    with pytest.warns(RuntimeWarning, match="column") as caught:
        warn_columns(notes)
    assert len(caught) == column_checks.MOST_WARNINGS + 1
    assert re.search(r"3 more columns .*'c10'.*'c11'.*'c12'", str(caught[-1].message))
    with pytest.warns(RuntimeWarning, match="column") as caught:
        warn_columns(check_columns(x))
    assert str(caught[-1].message).endswith(": 10: integer, 11: integer, 12: integer")


def test_a_monotone_function_of_another_column_is_named():
    """Cubes and exponentials, up or down; a noisy copy and an independent column are left alone."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=800)
    noise = rng.normal(size=(2, 800))
    x = np.column_stack([a, a**3, -np.exp(a), a + 0.05 * noise[0], noise[1]])
    notes = check_columns(x, columns=list("abcde"))
    assert [(n.name, n.kind) for n in notes] == [("b", "nearly_function"), ("c", "nearly_function")]
    assert "column 1 ('b')" in notes[0].message
    assert "column 0 ('a')" in notes[0].message
    noisy = np.column_stack([a, a**3 + 0.05 * rng.normal(size=800)])
    assert check_columns(noisy) == []
