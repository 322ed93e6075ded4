"""Rows with missing values are left out the same way for every source."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pyarrow.parquet
import pytest

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.data.missing_rows import MissingCounts, fill_objects, find_missing

OPTIONS = {"method": "fd", "lam": 10.0, "n_features": 20, "base": "empirical"}


@pytest.fixture(scope="module")
def rows():
    """400 rows of two columns; 30 lack "age", 10 of these and 5 more lack "size"."""
    x = np.random.default_rng(0).normal(size=(400, 2))
    x[50:350:10, 1] = np.nan
    x[50:150:10, 0] = np.nan
    x[:5, 0] = np.nan
    return x


def sources(x, folder):
    """The same rows as every kind of source."""
    frame = pd.DataFrame(x, columns=["size", "age"])
    frame.to_csv(folder / "rows.csv", index=False)
    (folder / "words.csv").write_text(
        "size,age\n" + "".join(
            ",".join("NA" if np.isnan(v) else repr(float(v)) for v in row) + "\n" for row in x
        )
    )  # fmt: skip
    frame.to_parquet(folder / "rows.parquet", index=False)
    np.save(folder / "rows.npy", x)
    objects = [[None if np.isnan(v) else v for v in row] for row in x.tolist()]
    return {
        "array": x, "list": objects, "objects": np.array(objects, dtype=object), "frame": frame,
        "frame of objects": frame.astype(object).where(frame.notna(), None),
        "nullable": frame.convert_dtypes(), "polars": polars.from_pandas(frame),
        "pyarrow": pyarrow.Table.from_pandas(frame), "csv": folder / "rows.csv",
        "csv with NA": folder / "words.csv", "parquet": folder / "rows.parquet",
        "npy": folder / "rows.npy", "blocks": [x[:45], x[45:46], x[46:]],
        "frames": [frame[:200], frame[200:]], "factory": lambda: iter([x[:3], x[3:]]),
    }  # fmt: skip


def test_every_source_gives_the_complete_rows(rows, tmp_path):
    expected = rows[~np.isnan(rows).any(axis=1)]
    for name, source in sources(rows, tmp_path).items():
        blocks = Blocks(source, drop_missing=True)
        for _ in range(2):  # both passes
            np.testing.assert_allclose(blocks.whole(), expected, atol=1e-15, err_msg=name)
        found = blocks.missing
        assert (found.n_read, found.n_missing, found.by_column) == (400, 35, (15, 30)), name
        assert blocks.n_rows == 365
        np.testing.assert_allclose(blocks.pilot(400)[0], expected, atol=1e-15, err_msg=name)


def test_missing_values_are_an_error_by_default(rows, tmp_path):
    for name, source in sources(rows, tmp_path).items():
        with pytest.raises((ValueError, TypeError)):
            print(name, Blocks(source).whole())
    with pytest.raises(ValueError, match="row 0, column 0"):
        tgp.fit(rows, **OPTIONS)


def test_fit_drops_rows_and_their_weights(rows):
    complete = ~np.isnan(rows).any(axis=1)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 400)
    expected = tgp.fit(rows[complete], sample_weight=weights[complete], **OPTIONS)
    frame = pd.DataFrame(rows, columns=["size", "age"])
    text = "dropped 35 of 400 rows with missing values, most in column 'age'"
    with pytest.warns(tgp.DataWarning, match=text) as told:
        model = tgp.fit(frame, sample_weight=weights, missing="drop", **OPTIONS)
    assert len(told) == 1
    assert (model.settings["n_missing"], model.settings["n_rows"]) == (35, 365)
    assert model.settings["weight_factor"] == expected.settings["weight_factor"]
    np.testing.assert_array_equal(model.theta, expected.theta)


def test_given_moments_count_the_weights_of_complete_rows(rows):
    complete = ~np.isnan(rows).any(axis=1)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 400)
    moments = 365.0, np.zeros(2), np.eye(2)
    expected = tgp.fit(rows[complete], sample_weight=weights[complete], moments=moments, **OPTIONS)
    with pytest.warns(tgp.DataWarning, match="dropped 35"):
        model = tgp.fit(rows, sample_weight=weights, moments=moments, missing="drop", **OPTIONS)
    assert model.settings["weight_factor"] == pytest.approx(expected.settings["weight_factor"])
    np.testing.assert_allclose(model.theta, expected.theta)


def test_complete_rows_give_no_warning(rows):
    x = rows[~np.isnan(rows).any(axis=1)]
    model = tgp.fit(x, missing="drop", **OPTIONS)
    assert model.settings["n_missing"] == 0
    np.testing.assert_array_equal(model.theta, tgp.fit(x, **OPTIONS).theta)


def test_other_faults_stay_errors(rows, tmp_path):
    with pytest.raises(ValueError, match="all 3 rows have missing values"):
        tgp.fit(np.full((3, 2), np.nan), missing="drop", **OPTIONS)
    wrong = rows.copy()
    wrong[301, 0] = np.inf
    with pytest.raises(ValueError, match="inf at row 301, column 0"):
        tgp.fit(wrong, missing="drop", **OPTIONS)
    (tmp_path / "text.csv").write_text("a,b\n1.5,2\n,3\nx,4\n")
    with pytest.raises(ValueError, match=r"line 4, column 0 .*'x' is not a number"):
        tgp.fit(tmp_path / "text.csv", missing="drop", **OPTIONS)
    with pytest.raises(TypeError, match="holds 'x'"):
        fill_objects(np.array([[1.0, "x"]], dtype=object), "X")
    with pytest.raises(ValueError, match="missing='keep'"):
        tgp.fit(rows, missing="keep", **OPTIONS)


def test_counts_add():
    total = MissingCounts(5) + MissingCounts(4, 2, (1, 2)) + MissingCounts(3, 1, (1, 0))
    assert (total.n_read, total.n_missing, total.by_column) == (12, 3, (2, 2))


@pytest.fixture(scope="module")
def incomplete():
    """A model of two columns, and new rows of which a few lack values."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(300, 2)) @ [[1.0, 0.5], [0.0, 1.0]], columns=["a", "b"])
    model = tgp.fit(rows, method="fd", lam=10.0, n_features=30, base="empirical")
    holed = rows.copy()
    holed.iloc[::9, 1] = np.nan
    holed.iloc[4, 0] = np.nan
    return model, holed


def test_updates_leave_out_rows_with_missing_values(incomplete):
    """The same model as from the complete rows; the number is recorded and adds up."""
    model, holed = incomplete
    complete = holed.dropna()
    with pytest.raises(ValueError, match="nan at row 0"):
        model.update(holed)
    with pytest.raises(ValueError, match="missing='mean'"):
        model.update(holed, missing="mean")
    with pytest.warns(tgp.DataWarning, match="dropped 35 of 300 rows"):
        new = model.update(holed, missing="drop")
    expected = model.update(complete)
    assert (new.log_density(complete) == expected.log_density(complete)).all()
    assert new.settings["n_rows"] == 300 + len(complete)
    with pytest.warns(tgp.DataWarning, match="dropped 35"):
        assert new.update(holed, missing="drop").settings["n_missing"] == 70


def test_evaluations_leave_out_rows_with_missing_values(incomplete):
    model, holed = incomplete
    options = {"n_directions": 5, "n_samples": 2_000}
    with pytest.raises(ValueError, match="nan at row 0"):
        tgp.evaluate(model, holed, **options)
    with pytest.warns(tgp.DataWarning, match="dropped 35 of 300 rows"):
        found = tgp.evaluate(model, holed, missing="drop", **options)
    expected = tgp.evaluate(model, holed.dropna(), **options)
    assert found.n_missing == 35
    assert expected.n_missing == 0
    assert found.n_rows == expected.n_rows == 265
    assert found.log_likelihood.value == pytest.approx(expected.log_likelihood.value, rel=1e-12)


def test_files_with_missing_values_are_scored_by_marginals(incomplete, tmp_path):
    model, holed = incomplete
    holed.to_csv(tmp_path / "rows.csv", index=False)
    found = np.asarray(model.log_density(tmp_path / "rows.csv", missing="marginal"))
    assert np.allclose(found, model.log_density(holed, missing="marginal"), rtol=0, atol=1e-12)
    one = holed.iloc[[0], [0]]
    assert abs(found[0] - model.marginal("a").log_density(one)[0]) < 1e-8


def test_infinite_rows_are_complete():
    """Their sum is nan, as that of rows with missing values is."""
    complete, counts = find_missing(np.array([[np.inf], [-np.inf]]))
    assert complete is None
    assert (counts.n_read, counts.n_missing) == (2, 0)
