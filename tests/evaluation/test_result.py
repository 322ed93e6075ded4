"""The result of `evaluate`: its summaries, errors and text."""

import numpy as np
import pytest

from tgpfast.evaluation.result import (
    ColumnDistance,
    Estimate,
    Evaluation,
    direction_text,
    median_error,
)


def some_evaluation(**changes):
    ks, wd = np.array([0.1, 0.2, 0.6, 0.3]), np.array([1.0, 2.0, 6.0, 9.0])
    fields = {
        "ks": ks, "wd": wd, "ks_error": ks / 10, "wd_error": wd / 10,
        "directions": np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8], [0.8, 0.6]]),
        "columns": ["length", "width"], "n_rows": 100, "n_effective": 100.0,
        "effective_sample_size": 400.0, "units": "standardized", "scale": np.array([2.0, 3.0]),
        "scale_source": "data", "by_column": [
            ColumnDistance(0.1, 1.0, 0.01, 0.1, "length"),
            ColumnDistance(0.2, 2.0, 0.02, 0.2, "width"),
        ],
    }  # fmt: skip
    return Evaluation(**(fields | changes))


def test_median_mean_and_their_errors():
    result = some_evaluation()
    assert result.median == (0.25, 4.0)
    assert result.mean == (pytest.approx(0.3), pytest.approx(4.5))
    assert result.mean_error[0] == pytest.approx(np.std(result.ks, ddof=1) / 2)
    assert result.median_error == (pytest.approx(0.05), pytest.approx(2.0))  # the middle two of 4
    assert result.noise_floor == pytest.approx(0.8276 * np.sqrt(1 / 100 + 1 / 400))
    few = some_evaluation(**{k: getattr(result, k)[:1] for k in ("ks", "wd")})
    assert np.isnan([*few.mean_error, *few.median_error]).all()


def test_the_median_error_is_that_of_repeated_medians():
    rng = np.random.default_rng(0)
    draws = rng.gamma(3.0, size=(2_000, 201))
    errors = [median_error(row) for row in draws[:500]]
    # one error scatters by a third, the mean of 500 by 2 %; the scatter of 2,000 medians by 2 %
    assert np.mean(errors) == pytest.approx(np.median(draws, axis=1).std(), rel=0.1)


def test_worst_directions_by_name():
    result = some_evaluation()
    by_ks, by_wd = result.worst(2), result.worst(1, by="wd")
    assert [w.ks for w in by_ks] == [0.6, 0.3]
    assert by_ks[0].vector == {"length": -0.6, "width": 0.8}
    assert (by_ks[0].wd, by_ks[0].ks_error, by_ks[0].wd_error) == (6.0, pytest.approx(0.06), 0.6)
    assert by_wd[0].vector == {"length": 0.8, "width": 0.6}
    assert len(result.worst(99)) == 4
    assert str(by_ks[0]) == (
        "KS 0.6000 ± 0.0600   WD 6 ± 0.6  along 0.80 width - 0.60 length"
    )
    for bad in ({"by": "x"}, {"n": 0}):
        with pytest.raises(ValueError, match="expected"):
            result.worst(**bad)


def test_summary_says_all():
    lines = some_evaluation(fisher_score=Estimate(-2.5, 0.125, 1234)).summary()
    for words in (
        "median  KS 0.2500 ± 0.0500   WD 4 ± 2", "mean    KS 0.3000", "noise   KS 0.0925",
        "units   standardized: WD is in standard deviations",
        "worst   KS 0.6000", "log-likelihood  not known",
        "Fisher score    -2.5 ± 0.12 (1,234 rows)",
    ):  # fmt: skip
        assert words in lines
    assert str(some_evaluation()) == some_evaluation().summary()
    assert "WD is in the units of the data" in some_evaluation(units="data").summary()


def test_summary_shows_the_worst_columns_and_counts_the_others():
    lines = some_evaluation().summary().splitlines()
    assert [line for line in lines if line.startswith("column")] == [
        "column  KS 0.2000 ± 0.0200   WD 2 ± 0.2  width",
        "column  KS 0.1000 ± 0.0100   WD 1 ± 0.1  length",
    ]
    many = [ColumnDistance(k / 10, 1.0, 0.01, 0.1, f"c{k}") for k in range(8)]
    text = some_evaluation(by_column=many).summary()
    assert [f"c{k}\n" in text for k in range(8)] == [False] * 3 + [True] * 5
    assert "3 more columns are in by_column" in text


def test_text_of_directions():
    text = direction_text
    assert text(np.array([-0.6, 0.8]), ["a", "b"]) == "0.80 b - 0.60 a"
    assert text(np.array([-1.0]), ["a"]) == "-1.00 a"
    assert text(np.array([0.0, 1.0, 0.004]), list("abc")) == "1.00 b"
    assert text(np.array([0.1, -0.9, 0.4, 0.2]), list("abcd")) == "-0.90 b + 0.40 c + 0.20 d + ..."
