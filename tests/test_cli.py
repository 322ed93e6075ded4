"""The command line: what a person sees."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import fixed_fit

import tgpfast as tgp
from tgpfast import __version__, cli, kernels
from tgpfast.cli import command_line, demo, score
from tgpfast.data import files
from tgpfast.data.blocks import Blocks
from tgpfast.paper import reproduction
from tgpfast.paper.experiments import Settings
from tgpfast.pipeline import fitting

X = np.random.default_rng(0).standard_normal((300, 2)) @ [[1.0, 0.4], [0.0, 0.6]] + [5.0, -1.0]
FAST = ["--features", "20", "--backend", "numpy"]
FIXED_OPTIONS = [  # FIXED of conftest
    "--method", "fd", "--lam", "10", "--gamma", "scott", "--eta", "1/gamma2", "--base", "empirical",
    "--frequency-covariance", "data",
]  # fmt: skip
FAST += FIXED_OPTIONS


@pytest.fixture
def data(tmp_path):
    """A csv file with two columns of numbers and one of text before them."""
    path = tmp_path / "data.csv"
    rows = "".join(f"r{i},{a!r},{b!r}\n" for i, (a, b) in enumerate(X.tolist()))
    path.write_text("id,u,v\n" + rows)
    return path


@pytest.fixture
def model(data, tmp_path):
    """A model of both columns of numbers, written by the command line."""
    path = tmp_path / "model.npz"
    assert cli.main(["fit", str(data), "-o", str(path), "--columns", "u,v", "--quiet", *FAST]) == 0
    return path


def run(*arguments):
    return cli.main([str(a) for a in arguments])


def pairs(text):
    """The lines of an aligned table of names and values."""
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


# -- fit -----------------------------------------------------------------------------------------


def test_fit_reports_and_writes_what_fit_gives(data, tmp_path, capsys):
    """The report is plain; the model is the one of `fit`, bit by bit."""
    output = tmp_path / "m.npz"
    assert run("fit", data, "-o", output, "--columns", "u,2", *FAST) == 0
    out, err = capsys.readouterr()
    report = pairs(out)
    assert report["rows"] == "300"
    assert report["columns"] == "2 (u, v)"
    assert report["method"] == "fd"
    assert report["gamma"].endswith("(scott)")
    assert report["lambda"] == "10"
    assert float(report["seconds"]) >= 0.0
    assert report["log normalizer"].endswith("(quadrature)")
    assert report["wrote"] == str(output)
    assert err == ""  # not a terminal: no bar
    saved, expected = tgp.load(output), fixed_fit(X, n_features=20, backend="numpy")
    np.testing.assert_array_equal(saved.theta, expected.theta)
    assert saved.table.columns == ["u", "v"]
    assert saved.integrator.known_normalizer is not None  # scores need not wait for it


def test_the_report_does_not_list_every_number_of_a_base(data, tmp_path, capsys, monkeypatch):
    real = fitting.fit

    def fit(*arguments, **options):
        model = real(*arguments, **options)
        model.settings["base_facts"] = "ProductBase(" + 30 * "GaussianBase(), " + ")"
        return model

    monkeypatch.setattr(fitting, "fit", fit)
    assert run("fit", data, "-o", tmp_path / "m.npz", "--columns", "u,v", *FAST) == 0
    assert pairs(capsys.readouterr().out)["base"] == "ProductBase(d=2)"


def test_a_model_is_not_written_over_data(data, capsys):
    before = data.read_text()
    assert run("fit", data, "-o", data, "--columns", "u,v", *FAST) == 2
    assert "extension of data" in capsys.readouterr().err
    assert data.read_text() == before


def test_rows_with_missing_values_are_dropped(tmp_path, capsys):
    path, output = tmp_path / "holes.csv", tmp_path / "m.npz"
    path.write_text("u,v\n" + "".join(f"{a!r},{b!r}\n" for a, b in X.tolist()) + "1.5,\n")
    assert run("fit", path, "-o", output, *FAST) != 0
    err = capsys.readouterr().err
    assert "a value is missing" in err
    assert "use --missing drop" in err
    assert run("fit", path, "-o", output, "--missing", "drop", *FAST) == 0
    assert "dropped 1 of 301 rows" in capsys.readouterr().err
    assert tgp.load(output).settings["n_missing"] == 1


@pytest.mark.slow
def test_a_picture_leaves_rows_with_missing_values_out(model, tmp_path, capsys):
    rows = X.copy()
    rows[3, 1] = np.nan
    np.save(tmp_path / "holes.npy", rows)
    line = ["plot", model, tmp_path / "holes.npy", "-o", tmp_path / "m.png"]
    assert run(*line) == 2
    err = capsys.readouterr().err
    assert "holes.npy holds nan at row 3" in err
    assert err.endswith("first, or pass --missing drop\n")
    assert run(*line, "--missing", "drop") == 0
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("option", ["--support u=0: u=1:", "--period 0=9 0=8", "--discrete v v",
                                    "--discrete v,v"])
def test_a_column_of_a_domain_is_given_once(option, data, tmp_path, capsys):
    line = ["fit", data, "-o", tmp_path / "m.npz", "--columns", "u,v", *option.split()]
    assert run(*line) == 2
    assert "the column is given twice; give it once" in capsys.readouterr().err


def test_discrete_columns_are_separated_by_spaces_or_commas(tmp_path, capsys):
    rows = np.random.default_rng(0).poisson(4.0, (200, 2))
    np.savetxt(tmp_path / "k.csv", rows, delimiter=",", header="a,b", comments="", fmt="%d")
    for option in (["a", "b"], ["a,b"], ["a=1", "b"], ["a,b=1"]):
        line = ["fit", tmp_path / "k.csv", "-o", tmp_path / "m.npz", "--quiet", *FAST]
        assert run(*line, "--discrete", *option) == 0
        assert tgp.load(tmp_path / "m.npz").discrete == {"a": 1.0, "b": 1.0}


def test_too_large_a_sample_is_refused(model, tmp_path, capsys):
    assert run("sample", model, "-n", 10**14, "-o", tmp_path / "o.csv") == 2
    assert "a sample of 100,000,000,000,000 rows would take" in capsys.readouterr().err
    assert not (tmp_path / "o.csv").exists()


def test_questions_name_wrong_columns(model, capsys):
    for line, message in (
        ("--given w=1", "--given w: there is no such column; expected one of u, v, or a number"),
        ("--given u=1 --cdf u=2", "--cdf u: --given holds this column at a value"),
        ("--cdf u=2 0=2", "--cdf u: the column is given twice"),
        ("--quantile 1.5", "--quantile 1.5: expected numbers above 0 and below 1"),
        ("--given u=nan", "--given: 'u' is nan"),
    ):
        assert run("query", model, *line.split()) == 2
        assert message in capsys.readouterr().err


def test_discrete_columns_from_fit_to_samples(tmp_path, capsys):
    path, output = tmp_path / "counts.csv", tmp_path / "m.npz"
    counts = np.random.default_rng(0).poisson(4.0, 300)
    path.write_text("k,y\n" + "".join(f"{k},{y}\n" for k, y in zip(counts, X[:, 0], strict=True)))
    assert run("fit", path, "-o", output, "--discrete", "k", "--quiet", *FAST) == 0
    assert run("sample", output, "-n", "20", "-o", tmp_path / "rows.csv", "--seed", "1") == 0
    rows = np.loadtxt(tmp_path / "rows.csv", delimiter=",", skiprows=1)
    assert (rows[:, 0] == np.rint(rows[:, 0])).all()
    assert run("score", output, path) == run("info", output) == 0
    assert run("query", output, "--given", "k=4", "--cdf", "y=5") == 0
    assert run("plot", output, path, "-o", tmp_path / "picture.png") == 0
    capsys.readouterr()


def test_options_reach_fit(monkeypatch, tmp_path):
    """Each option arrives under its name and as what it means; those not given do not."""
    seen = {}

    def fit(source, **options):
        seen.update(options, source=source)
        raise ValueError("seen")

    monkeypatch.setattr(fitting, "fit", fit)
    line = (
        "fit x.csv --method fvpd --features 7 --lam 0.5 --gamma scott --eta 2e-1 --scale center "
        "--base learned --frequency-covariance identity --seed 3 --threads 2 --backend numpy "
        "--precision mixed --progress"
    )
    assert run(*line.split(), "-o", tmp_path / "m.npz") == 2
    assert str(seen.pop("source")) == "x.csv"
    assert seen == {
        "method": "fvpd", "n_features": 7, "lam": 0.5, "gamma": "scott", "eta": 0.2,
        "scale": "center", "base": "learned", "frequency_covariance": "identity", "seed": 3,
        "n_threads": 2, "backend": "numpy", "precision": "mixed", "progress": True,
    }  # fmt: skip
    seen.clear()
    run("fit", "x.csv", "-o", tmp_path / "m.npz")
    assert seen.pop("source")
    assert seen == {"progress": False}
    run("fit", "x.csv", "-o", tmp_path / "m.npz", "--paper", "--lam", "auto", "--gamma", "1")
    assert {k: seen[k] for k in tgp.PAPER} == {**tgp.PAPER, "lam": "auto", "gamma": 1.0}


def test_progress_and_quiet(data, tmp_path, capsys, monkeypatch):
    """A bar on a terminal or when asked for, never with --quiet; then nothing is printed."""
    rest = ["fit", data, "-o", tmp_path / "m.npz", "--columns", "u,v", *FAST]
    run(*rest, "--progress")
    assert "300/300" in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    run(*rest)
    assert "300/300" in capsys.readouterr().err
    run(*rest, "--quiet", "--progress")
    assert capsys.readouterr() == ("", "")
    for command in (["score"], ["outliers", "-o", tmp_path / "o.csv"]):
        line = [command[0], tmp_path / "m.npz", data, *command[1:]]
        run(*line)
        out, err = capsys.readouterr()
        assert "300 rows" in out
        assert "rows/s" in err
        run(*line, "--quiet")
        assert capsys.readouterr().err == ""


# -- score, sample, info -------------------------------------------------------------------------


@pytest.mark.parametrize("n_sorted", [7, 1_000])
def test_lowest_values_and_their_mean_in_blocks(n_sorted, monkeypatch):
    """As one sort of all values gives them: equal ones in order, nan last, -inf first."""
    monkeypatch.setattr(score, "SORTED_ROWS", n_sorted)
    values = np.random.default_rng(0).integers(0, 9, 100).astype(float) + 1e6
    values[[3, 50]] = np.nan
    for n in (0, 1, 5, 40, 98):
        expected = np.argsort(values, kind="stable")[:n]
        np.testing.assert_array_equal(score.find_lowest(values, n), expected)
    facts, known = score._summarize(values), values[~np.isnan(values)]
    assert facts["n_scored"] == 98
    assert facts["mean_log_density"] == pytest.approx(known.mean(), rel=1e-15)
    assert facts["standard_error"] == pytest.approx(known.std(ddof=1) / 98**0.5, rel=1e-9)
    values[7] = -np.inf
    facts = score._summarize(values)
    assert (facts["mean_log_density"], facts["standard_error"]) == (-np.inf, None)
    assert facts["lowest"][0]["row"] == 7
    assert score._summarize(np.full(9, np.nan))["n_scored"] == 0


def test_score_prints_the_mean_and_the_lowest_rows(model, data, capsys):
    """Mean and standard error as numpy gives them; the five rows of least density, lowest first."""
    assert run("score", model, data) == 0
    lines = capsys.readouterr().out.splitlines()
    values = tgp.load(model).log_density(X)
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert lines[0] == (
        f"mean log density  {values.mean():.6g}, standard error {error:.2g}, 300 rows"
    )
    assert [int(line.split()[0]) for line in lines[3:]] == np.argsort(values)[:5].tolist()


@pytest.mark.parametrize("name", ["s.csv", "s.npy"])
def test_score_writes_every_row(model, data, tmp_path, name):
    """One log density a row, to the last bit."""
    assert run("score", model, data, "-o", tmp_path / name) == 0
    rows, columns = files.open_rows(tmp_path / name)
    rows = next(rows())[:, 0] if callable(rows) else rows
    np.testing.assert_array_equal(rows, tgp.load(model).log_density(X))
    assert columns == (["log_density"] if name == "s.csv" else None)


@pytest.mark.slow
def test_rows_with_missing_values_are_scored_or_left_out(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    model = tgp.fit(rows, method="fd", lam=10.0, n_features=20, base="empirical")
    rows.iloc[[3, 7], 1] = np.nan
    model.save(tmp_path / "model.npz")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    files, scores = (tmp_path / "model.npz", tmp_path / "rows.csv"), tmp_path / "scores.csv"
    assert run("score", *files) != 0
    assert "a value is missing" in capsys.readouterr().err
    for missing, fate in (("drop", "not scored"), ("marginal", "scored by the columns")):
        assert run("score", *files, "--missing", missing, "-o", scores) == 0
        assert f"2 rows with missing values: {fate}" in capsys.readouterr().out
        found = np.genfromtxt(scores, skip_header=1)
        expected = np.array(model.log_density(rows, missing="marginal"))
        if missing == "drop":
            expected[[3, 7]] = np.nan
        assert np.allclose(found, expected, equal_nan=True)
        assert run("score", *files, "--missing", missing) == 0
        assert f"{198 if missing == 'drop' else 200} rows\n" in capsys.readouterr().out
        assert run("score", *files, "--missing", missing, "-o", scores, "--quiet") == 0
        assert capsys.readouterr().out == ""
    assert run("outliers", *files, "--missing", "drop", "-n", "500", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["n_missing"] == 2
    assert len(document["outliers"]) == 198
    assert run("evaluate", *files, "--missing", "drop", "--json", "--samples", "2000") == 0
    assert json.loads(capsys.readouterr().out)["n_missing"] == 2


def test_score_finds_columns_by_name(model, tmp_path, capsys):
    """Shuffled columns give the same scores; nameless ones go by position or --columns."""
    files.write_rows(tmp_path / "a.csv", X[:, ::-1], ["v", "u"])
    files.write_rows(tmp_path / "b.csv", X, ["p", "q"])
    np.save(tmp_path / "c.npy", X)
    np.save(tmp_path / "d.npy", np.column_stack([X[:, 1], X[:, 0], X[:, 0]]))
    texts = []
    for name, *rest in (
        ("a.csv",), ("b.csv", "--columns", "p,q"), ("c.npy",), ("d.npy", "--columns", "2,0"),
    ):  # fmt: skip
        assert run("score", model, tmp_path / name, *rest) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    for name, *rest, message in (
        ("b.csv", "b.csv lacks the model's columns u, v; it has p, q"),
        ("d.npy", "d.npy has 3 columns, expected the model's 2 (u, v)"),
        ("d.npy", "--columns", "0", "--columns names 1 columns, expected the model's 2"),
    ):
        assert run("score", model, tmp_path / name, *rest) == 2
        assert message in capsys.readouterr().err


def test_sample_writes_named_columns(model, tmp_path, capsys):
    """The rows of `model.sample` with the names of the data; the seed decides."""
    for name in ("o.csv", "o.npy"):
        assert run("sample", model, "-n", 7, "-o", tmp_path / name, "--seed", 4) == 0
        assert "7 rows, 2 columns, drawn by grid" in capsys.readouterr().out
    expected = tgp.load(model).sample(7, seed=4)
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), expected)
    rows, columns = files.open_rows(tmp_path / "o.csv")
    np.testing.assert_array_equal(next(rows()), expected)
    assert columns == ["u", "v"]
    found = document(capsys, "sample", model, "-n", 7, "-o", tmp_path / "o.json", "--seed", 4)
    assert (found["n_rows"], found["sampling"]["method"]) == (7, "grid")
    written = json.loads((tmp_path / "o.json").read_text())
    assert written == [{"u": u, "v": v} for u, v in expected.tolist()]


def test_sample_of_a_model_learned_from_a_frame(tmp_path, monkeypatch):
    """Written as rows with their names, also where pandas is not installed."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["u", "v"])
    fixed_fit(frame, n_features=10, backend="numpy").save(tmp_path / "m.npz")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert run("sample", tmp_path / "m.npz", "-n", 3, "-o", tmp_path / "o.csv", "--quiet") == 0
    assert (tmp_path / "o.csv").read_text().startswith("u,v\n")


def test_info_of_a_model(model, capsys):
    """Every setting, aligned, nested ones by their path."""
    assert run("info", model) == 0
    facts = pairs(capsys.readouterr().out)
    assert facts["kind"] == "model"
    assert facts["columns"] == "u, v"
    assert facts["n_features"] == "20"
    assert facts["gamma_rule"] == "scott"
    assert facts["provenance.backend"] == "numpy"
    assert set(tgp.load(model).settings) <= {name.split(".")[0] for name in facts}


def test_info_of_a_spectrum_and_of_groups(tmp_path, capsys):
    """Whatever a ``save`` wrote."""
    pytest.importorskip("finufft")
    tgp.Spectrum.from_data(X, 3.0).save(tmp_path / "s.npz")
    assert run("info", tmp_path / "s.npz") == 0
    facts = pairs(capsys.readouterr().out)
    assert (facts["kind"], facts["n_rows"], facts["bandlimit"]) == ("spectrum", "300", "3, 3")
    city = np.repeat(["Bonn", "Ulm", "Köln"], 100)
    tgp.fit_groups(X, city, n_features=8).save(tmp_path / "g.npz")
    assert run("info", tmp_path / "g.npz") == 0
    facts = pairs(capsys.readouterr().out)
    assert (facts["n_groups"], facts["groups"]) == ("3", "Bonn, Köln, Ulm")
    assert facts["rows of a group"] == "100 to 100"


def test_info_of_statistics(tmp_path, capsys):
    """Rows, features, noise levels and how they were made."""
    features = tgp.Features.draw(5, 0.5, np.eye(2), seed=1234)
    stats = tgp.accumulate(X, features, noise_levels=(0.0, 0.25), backend="numpy")
    stats.save(tmp_path / "s.npz")
    assert run("info", tmp_path / "s.npz") == 0
    facts = pairs(capsys.readouterr().out)
    assert facts["kind"] == "statistics"
    assert facts["n_rows"] == "300"
    assert facts["noise_levels"] == "0, 0.25"
    assert facts["seed"] == "1234"
    assert facts["fingerprint"] == features.fingerprint
    assert run("score", tmp_path / "s.npz", "x.csv") == 2
    assert "holds Statistics, expected a model" in capsys.readouterr().err


# -- query, outliers, merge, evaluate --------------------------------------------------------------


def document(capsys, *arguments):
    """The JSON document that a command prints, and nothing else."""
    capsys.readouterr()
    assert run(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_query_gives_the_answers_of_the_model(model, capsys):
    """Columns by name or number, of the model itself and of the other columns given some."""
    saved = tgp.load(model)
    found = document(capsys, "query", model, "--probability", "u=4:6", "1=:-1")["probability"]
    truth = saved.probability([4.0, None], [6.0, -1.0])
    assert found == {
        "value": truth.value, "standard_error": truth.standard_error, "method": truth.method,
    }  # fmt: skip
    found = document(capsys, "query", model, "--cdf", "u=5")["probability"]
    assert found["value"] == pytest.approx(saved.cdf([5.0], columns="u")[0], abs=1e-7)
    columns = document(capsys, "query", model, "--quantile", "0.1", "0.9")["columns"]
    assert columns["v"] == {
        "quantiles": dict(zip(["0.1", "0.9"], saved.quantile([0.1, 0.9], column=1), strict=True))
    }
    given, rest = document(capsys, "query", model, "--given", "u=6"), saved.conditional({"u": 6.0})
    assert given["given"] == {"u": 6.0}
    assert list(given["columns"]) == ["v"]
    assert given["columns"]["v"]["mean"]["value"] == rest.expectation(lambda rows: rows[:, 0])
    assert given["columns"]["v"]["quantiles"]["0.5"] == rest.quantile(0.5)
    assert run("query", model, "--given", "u=6", "--probability", "v=0:") == 0
    value = rest.probability([0.0], None).value
    assert capsys.readouterr().out.startswith(f"probability  {value:.6g}, error ")


@pytest.mark.parametrize("option", ["--cdf u=5{}v=-1", "--probability u=4:6{}1=:-1"])
def test_pairs_of_a_question_are_separated_by_spaces_or_commas(option, model, capsys):
    """Or given in several options; a comma before the equals sign belongs to a name."""
    flag, pairs = option.split()
    apart, together = pairs.format(" ").split(), [pairs.format(",")]
    truth = document(capsys, "query", model, flag, *apart)
    assert document(capsys, "query", model, flag, *together) == truth
    assert document(capsys, "query", model, flag, apart[0], flag, apart[1]) == truth
    assert run("query", model, "--given", "u,w=1") == 2
    assert "--given u,w: there is no such column" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("query", model, "--given", "u=1,5")
    assert "'5': expected COLUMN=NUMBER" in capsys.readouterr().err


def test_columns_held_fixed_are_separated_by_spaces_or_commas(tmp_path, capsys):
    np.save(tmp_path / "x.npy", X @ [[1.0, 0.0, 1.0], [0.0, 1.0, 2.0]] + np.c_[0 * X, X[::-1, 0]])
    assert run("fit", tmp_path / "x.npy", "-o", tmp_path / "m.npz", "--quiet", *FAST) == 0
    for given in (["0=5", "1=-1"], ["0=5,1=-1"]):
        found = document(capsys, "query", tmp_path / "m.npz", "--given", *given)
        assert found["given"] == {"0": 5.0, "1": -1.0}


def test_query_numbers_columns_as_the_data_do(tmp_path, capsys):
    """Also those that are left when a column before them is held fixed."""
    np.save(tmp_path / "x.npy", X @ [[1.0, 0.0, 1.0], [0.0, 1.0, 2.0]] + np.c_[0 * X, X[::-1, 0]])
    assert run("fit", tmp_path / "x.npy", "-o", tmp_path / "m.npz", "--quiet", *FAST) == 0
    found = document(capsys, "query", tmp_path / "m.npz", "--given", "0=5", "--cdf", "2=3")
    rest = tgp.load(tmp_path / "m.npz").conditional({0: 5.0})
    assert found["probability"]["value"] == rest.probability(None, {1: 3.0}).value


@pytest.mark.slow
def test_outliers_are_the_rows_of_lowest_density(model, data, tmp_path, capsys):
    """By number, by share and by the model's own region; as text, JSON, csv, parquet and npy."""
    values = tgp.load(model).log_density(X)
    order = np.argsort(values)
    found = document(capsys, "outliers", model, data, "-n", 3)
    assert found["n_rows"] == 300
    for k, row in zip(order[:3], found["outliers"], strict=True):
        assert row == {
            "row": k, "log_density": values[k], "values": {"u": X[k, 0], "v": X[k, 1]},
        }  # fmt: skip
    for name in ("o.csv", "o.parquet", "o.npy"):
        assert run("outliers", model, data, "--share", "0.05", "-o", tmp_path / name) == 0
        rows = np.concatenate([x.copy() for x, _ in Blocks(tmp_path / name)])
        np.testing.assert_array_equal(rows, np.c_[order, values[order], X[order]][:15])
    capsys.readouterr()
    assert run("outliers", model, data, "--outside", "0.9", "-o", "-") == 0
    header, *lines = capsys.readouterr().out.splitlines()
    outside = ~tgp.load(model).highest_density_region(0.9).contains(X)
    assert header == "row,log_density,u,v"
    assert sorted(int(line.split(",")[0]) for line in lines) == np.flatnonzero(outside).tolist()
    assert run("outliers", model, data) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == str(order[0])
    assert run("outliers", model, data, "-o", "-", "--json") == 2
    assert "-o - and --json" in capsys.readouterr().err


def test_merge_adds_statistics(model, tmp_path, capsys):
    """Of the same features; a model, or other features, are refused with a remedy."""
    features = [tgp.Features.draw(5, 0.5, np.eye(2), seed=seed) for seed in (0, 1)]
    parts = [tgp.accumulate(x, features[0], backend="numpy") for x in (X[:100], X[100:])]
    for name, part in zip("ab", parts, strict=True):
        part.save(tmp_path / f"{name}.npz")
    a, b, total = (tmp_path / name for name in ("a.npz", "b.npz", "sum.npz"))
    assert run("merge", a, b, "-o", total) == 0
    assert capsys.readouterr().out == f"wrote {total}: 300 rows of 2 files\n"
    np.testing.assert_array_equal(tgp.load(total).gram, (parts[0] + parts[1]).gram)
    tgp.accumulate(X, features[1], backend="numpy").save(b)
    for other, message in ((b, "does not fit the files before it"), (model, "holds Density")):
        assert run("merge", a, other, "-o", total) == 2
        assert message in capsys.readouterr().err


def test_evaluate_prints_what_evaluate_finds(model, data, capsys):
    options = ["--directions", 5, "--samples", 2000, "--seed", 3]
    rows = files.Columns(data, ["u", "v"])
    truth = tgp.evaluate(tgp.load(model), rows, n_directions=5, n_samples=2000, seed=3)
    found = document(capsys, "evaluate", model, data, *options)
    assert (found["median"]["ks"], found["median"]["wd"]) == truth.median
    assert found["log_likelihood"]["value"] == truth.log_likelihood.value
    assert [column["name"] for column in found["by_column"]] == ["u", "v"]
    assert run("evaluate", model, data, *options) == 0
    assert "log-likelihood" in capsys.readouterr().out


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.slow
def test_plot_draws_any_number_of_columns(d, tmp_path, capsys):
    """The example of the help draws two columns."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((100, d)))
    x, fitted, picture = (tmp_path / name for name in ("x.npy", "m.npz", "m.png"))
    assert run("fit", x, "-o", fitted, "--quiet", *FAST) == 0
    assert run("plot", fitted, x, "-o", picture) == 0
    assert capsys.readouterr().out == f"wrote {picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_documents_of_fit_info_and_score(model, data, tmp_path, capsys):
    """One JSON document each; what is not finite is null."""
    line = ["fit", data, "-o", tmp_path / "m.npz", "--columns", "u,v", *FAST]
    found = document(capsys, *line)
    assert (found["n_rows"], found["columns"], found["method"]) == (300, ["u", "v"], "fd")
    assert found["log_normalizer"]["value"] == tgp.load(model).log_normalizer.value
    found = document(capsys, "info", model)
    assert (found["kind"], found["provenance"]["backend"]) == ("model", "numpy")
    values = tgp.load(model).log_density(X)
    found = document(capsys, "score", model, data)
    assert (found["n_rows"], found["mean_log_density"]) == (300, values.mean())
    np.save(tmp_path / "far.npy", [[1e200, 0.0]])
    assert document(capsys, "score", model, tmp_path / "far.npy")["mean_log_density"] is None


# -- several files and standard input --------------------------------------------------------------


def test_folders_patterns_and_standard_input_give_the_rows_of_one_file(
    model, data, tmp_path, capsys, monkeypatch
):
    """In the order of the names; columns are matched by name in every file."""
    folder = tmp_path / "parts"
    folder.mkdir()
    files.write_rows(folder / "1.csv", X[:100], ["u", "v"])
    files.write_rows(folder / "2.csv", X[100:250, ::-1], ["v", "u"])
    np.save(folder / "3.npy", X[250:])
    (folder / "notes.md").write_text("not data")
    truth = document(capsys, "outliers", model, data)
    parts = [folder / name for name in ("1.csv", "2.csv", "3.npy")]
    for given in ([folder], parts, [folder / "[12].csv", parts[2]]):
        assert document(capsys, "outliers", model, *given) == truth
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.read_bytes())))
    assert document(capsys, "outliers", model, "-") == truth
    assert run("outliers", model, "-", "-") == 2
    assert "- is given twice" in capsys.readouterr().err
    assert run("fit", folder, "-o", tmp_path / "m.npz", "--quiet", *FAST) == 0
    many = tgp.load(tmp_path / "m.npz")
    np.testing.assert_allclose(many.theta, tgp.load(model).theta, rtol=1e-9, atol=1e-12)
    assert many.table.columns == ["u", "v"]


def test_files_that_do_not_fit_each_other(model, tmp_path, capsys):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :1])
    (tmp_path / "empty").mkdir()
    for given, message in (
        (["a.npy", "b.npy"], "b.npy has 1 columns, but a.npy has 2; leave one of them out"),
        (["none-*.csv"], "no file matches"), (["empty"], "has no data files; expected files"),
    ):  # fmt: skip
        assert run("score", model, *(tmp_path / name for name in given)) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert message in err


# -- errors and warnings -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fit none.csv -o m.npz", "no such file: 'none.csv'"),
        ("fit data.csv -o m.npz", "data.csv, line 2, column 0 ('id'): 'r0' is not a number"),
        ("fit data.csv -o m.npz --columns u,w", "data.csv has no column 'w'; it has id, u, v"),
        ("fit data.csv -o no/m.npz", "no such folder: 'no'"),
        ("fit data.csv -o . --columns u", "'.' is a folder; give the name of a file"),
        ("fit data.csv -o m.npz --columns u --lam 0", "--lam 0.0: expected a finite number"),
        ("fit data.csv -o m.npz --columns u --gamma nan", "--gamma nan: expected a finite number"),
        ("fit data.xls -o m.npz", "data.xls: unknown format '.xls'; expected one of"),
        ("fit model.npz -o m.npz", "model.npz cannot be read: it is a model or statistics"),
        ("score none.npz data.csv", "no such file: 'none.npz'"),
        ("score . data.csv", "'.' is a folder"),
        ("score data.csv data.csv", "'data.csv' is not a file saved by tgpfast"),
        ("score model.npz none.csv", "no such file: 'none.csv'"),
        ("score model.npz data.csv -o s.xls", "s.xls: unknown format '.xls'"),
        ("score model.npz data.csv --columns id,u", "line 2, column 0 ('id'): 'r0'"),
        ("sample model.npz -o o", "o: the name has no extension; expected one of .npy"),
        ("info none.npz", "no such file: 'none.npz'"),
        ("info data.csv", "'data.csv' is not a file saved by tgpfast"),
        ("merge model.npz -o s.npz", "'model.npz' holds Density, expected statistics: save what"),
        ("merge a.npz ./a.npz -o s.npz", "'a.npz' is given twice, and its rows would count twice"),
        ("demo --rows 3", "--rows 3: at least 100 are needed"),
        ("demo -o no/x.png", "no such folder: 'no'"),
        ("demo -o x.bmp", "x.bmp: unknown format '.bmp'; expected one of .png"),
        ("warmup --backend cuda", "'cuda': expected one of"),
    ],
)
def test_errors_are_one_line(model, line, message, capsys, monkeypatch):
    """What was given, what was expected, what to do; status 2 and nothing on standard output."""
    monkeypatch.chdir(model.parent)
    (model.parent / "data.xls").write_text("")
    before = sorted(p.name for p in model.parent.iterdir())
    capsys.readouterr()
    assert run(*line.split()) == 2
    out, err = capsys.readouterr()
    assert err.startswith("tgpfast: ")
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert sorted(p.name for p in model.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fit", "tgpfast fit: the following arguments are required: DATA, -o/--output"),
        ("fit x -o m --gamma big", "--gamma: 'big': expected a number or auto or scott"),
        ("fit x -o m --lam ten", "--lam: 'ten': expected a number or auto"),
        ("fit x -o m --features 1.5", "--features: '1.5': expected a whole number of at least 1"),
        ("fit x -o m --threads 0", "--threads: '0': expected a whole number of at least 1"),
        ("fit x -o m --seed -1", "--seed: '-1': expected a whole number of at least 0"),
        ("fit x -o m --columns a,,b", "--columns: 'a,,b': expected names or indices"),
        ("fit x -o m --method em", "--method: invalid choice: 'em'"),
        ("sample m -o o.csv -n none", "-n/--rows: 'none': expected a whole number"),
        ("fit x -o m --methd map", "fit: unrecognized arguments: --methd map (perhaps --method?)"),
        ("sample m -o o.csv 7 8", "tgpfast sample: unrecognized arguments: 7 8; see"),
        ("dream", "invalid choice: 'dream'"),
        ("", "the following arguments are required: COMMAND; see tgpfast --help"),
    ],
)
def test_a_wrong_command_line_is_one_line(line, message, capsys):
    """Status 2, the option, what it takes, and where help is."""
    with pytest.raises(SystemExit) as caught:
        run(*line.split())
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert "--help" in err
    assert err.count("\n") == 1


def test_warnings_are_one_line_and_not_repeated(data, tmp_path, capsys, monkeypatch):
    """No source line, each text once, and the filters are left as they were."""
    real = fitting.fit

    def fit(*arguments, **options):
        for _ in range(2):
            warnings.warn("the first\nof its kind", RuntimeWarning, stacklevel=1)
        return real(*arguments, **options)

    monkeypatch.setattr(fitting, "fit", fit)
    before = list(warnings.filters), warnings.showwarning
    assert run("fit", data, "-o", tmp_path / "m.npz", "--columns", "u", "--quiet", *FAST) == 0
    assert capsys.readouterr() == ("", "tgpfast: warning: the first of its kind\n")
    assert (list(warnings.filters), warnings.showwarning) == before


def test_a_poor_normaliser_warns(tmp_path, capsys):
    """The warning of the library itself, on a fit whose mass lies far from the data."""
    np.save(tmp_path / "x.npy", np.repeat([-3.0, 3.0], 150) + 0.3 * (X[:, 0] - 5.0))
    options = [*FAST, "--lam", "1e-3", "--gamma", "2"]
    assert run("fit", tmp_path / "x.npy", "-o", tmp_path / "m.npz", *options) == 0
    err = capsys.readouterr().err
    assert err.startswith("tgpfast: warning: this density is unreliable")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "tgpfast: interrupted\n"),
        (ValueError("two\n  lines"), 2, "tgpfast: two lines\n"),
        (PermissionError(13, "Permission denied", "m.npz"), 2,
         "tgpfast: 'm.npz': Permission denied; change its permissions, or choose another place\n"),
        (MemoryError(), 2, "tgpfast: MemoryError\n"),
    ],
)  # fmt: skip
def test_what_can_go_wrong_on_the_way(error, status, message, tmp_path, capsys, monkeypatch):
    """One line and a status for each; a mistake of ours is not hidden."""

    def fit(*arguments, **options):
        raise error

    monkeypatch.setattr(fitting, "fit", fit)
    assert run("fit", "x.csv", "-o", tmp_path / "m.npz") == status
    assert capsys.readouterr().err == message
    error = AssertionError()
    with pytest.raises(AssertionError):
        run("fit", "x.csv", "-o", tmp_path / "m.npz")


def test_debug_prints_the_trace(model, capsys):
    assert run("query", model, "--given", "z=1") == 2
    message = capsys.readouterr().err
    assert "there is no such column; expected one of" in message
    assert run("query", model, "--given", "z=1", "--debug") == 2
    trace = capsys.readouterr().err
    assert trace.startswith("Traceback")
    assert trace.endswith(message)


# -- demo, paper, warmup, help --------------------------------------------------------------------


@pytest.mark.slow
def test_demo_prints_a_table_and_draws(tmp_path, capsys, monkeypatch):
    """Answers of `fit`; a row for each method, base and kernel estimate; then the picture."""
    monkeypatch.setattr(demo, "N_DRAWS", 2_000)
    picture = tmp_path / "demo.png"
    assert run("demo", "--rows", 200, "--features", 10, "-o", picture) == 0
    out = capsys.readouterr().out
    answers, table = (part.splitlines() for part in out.split("\n\n")[1:3])
    assert [re.split(r"  +", line)[0] for line in answers] == [
        "model = tgp.fit(X)", "region with 90% of the mass", "y given x = 1",
        "P(x < 0 and y > 0.5)",
    ]  # fmt: skip
    names = [re.split(r"  +", line)[0] for line in table[1:]]
    assert names == ["fit(X)", "fd", "ncfd", "fvpd", "map", "base", "exact KDE"]
    assert len({len(line) for line in table}) == 1  # aligned
    for line in table[1:]:
        seconds, *_, score, ks, wd = re.split(r"  +", line)[1:]
        assert float(seconds) >= 0.0
        assert -4.0 < float(score) < 0.0
        assert 0.0 < float(ks) <= 100.0
        assert float(wd) > 0.0
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "no picture" in out
    else:
        assert picture.stat().st_size > 10_000
        assert out.endswith(f"wrote {picture}\n")


@pytest.mark.slow
def test_demo_without_matplotlib(tmp_path, capsys, monkeypatch):
    """The table all the same, and what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(demo, "measure_quality", lambda model, rows: ["-", "0", "0", "0"])
    assert run("demo", "--rows", 100, "--features", 5, "-o", tmp_path / "demo.png") == 0
    assert 'no picture: matplotlib is missing; install it with: pip install "tgpfast[plot]"' in (
        capsys.readouterr().out
    )


TINY = ["--features", 20, "--seeds", 2, "--directions", 5, "--samples", 500]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with one small set; runs draw no figures."""
    monkeypatch.setattr(reproduction, "list_figures", lambda files, settings: [])
    (tmp_path / "sets").mkdir()
    np.save(tmp_path / "sets" / "shells.npy", X[:80])
    return tmp_path / "sets"


@pytest.mark.slow
def test_paper_writes_a_page_and_says_where(folder, tmp_path, capsys):
    """One line on standard output; nothing else, as there is no terminal."""
    pytest.importorskip("matplotlib")
    output = tmp_path / "out"
    assert run("paper", "--data", folder, "-o", output, *TINY) == 0
    out, err = capsys.readouterr()
    page = output / "report.html"
    assert re.fullmatch(
        rf"wrote {re.escape(str(page))} in \d+ s; open it in a browser\n", out
    )
    assert err == ""
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert "shells,80,2,FVPD," in (output / "other_sets.csv").read_text()


@pytest.mark.slow
def test_paper_progress_and_quiet(folder, tmp_path, capsys):
    """A bar where it is asked for; with --quiet nothing at all, and the report all the same."""
    pytest.importorskip("matplotlib")
    line = ["paper", "--data", folder, "-o", tmp_path / "out", *TINY]
    assert run(*line, "--progress") == 0
    err = capsys.readouterr().err
    assert "shells, MAP, seed 0" in err  # the bar is drawn ten times a second
    assert "100%" in err.split("\r")[-1]
    (tmp_path / "out" / "report.html").unlink()
    assert run(*line, "--quiet", "--progress") == 0
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "out" / "report.html").exists()


def test_paper_options_reach_it(monkeypatch, tmp_path, capsys):
    """Each under its name; those not given are the paper's, and no data are none."""
    seen = []
    monkeypatch.setattr(
        reproduction, "reproduce", lambda *a, **k: seen.append((*a, k)) or tmp_path / "p.html"
    )
    assert run("paper", "--data", "sets", "-o", "out", *TINY) == 0
    assert run("reproduce", "--progress") == 0  # the former name
    (data, output, settings, options), (no_data, default, of_paper, shown) = seen
    assert (str(data), str(output)) == ("sets", "out")
    assert (no_data, str(default)) == (None, "tgpfast-report")
    assert settings == Settings(20, 2, 5, 500)
    assert of_paper == Settings()
    assert (options, shown) == ({"progress": False}, {"progress": True})
    assert str(tmp_path / "p.html") in capsys.readouterr().out


def test_paper_refuses_wrong_folders_in_a_line(folder, tmp_path, capsys):
    """The data that are not there, the report where a file is; nothing is made."""
    pytest.importorskip("matplotlib")
    (tmp_path / "taken").write_text("mine")
    for data, output, message in (
        (tmp_path / "nowhere", tmp_path / "out", f"{str(tmp_path / 'nowhere')!r} is not a folder"),
        (folder, tmp_path / "taken", f"{str(tmp_path / 'taken')!r} is a file; give a folder"),
    ):
        assert run("paper", "--data", data, "-o", output, *TINY) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"tgpfast: {message}")
        assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "taken").read_text() == "mine"


def test_paper_without_matplotlib(folder, tmp_path, capsys, monkeypatch):
    """Said in a line, before any work."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(reproduction, "warmup", lambda: pytest.fail("work was begun"))
    assert run("reproduce", "--data", folder, "-o", tmp_path / "out", *TINY) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tgpfast: matplotlib is missing")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--seeds", "--features", "--directions", "--samples"])
def test_paper_counts_are_counts(option, capsys):
    with pytest.raises(SystemExit) as caught:
        run("paper", option, "0")
    assert caught.value.code == 2
    assert "expected a whole number of at least 1" in capsys.readouterr().err


def test_paper_help_teaches(capsys):
    """What goes in, what comes out, and that the defaults are the paper's."""
    with pytest.raises(SystemExit) as caught:
        run("paper", "--help")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "--data DIR", "csv, tsv, txt, npy, npz or parquet", "as magic.csv",
        "(default: tgpfast-report)", "(default: 1000, the paper's)",
        "(default: 500, the paper's)", "(default: 250000, the paper's)", "(default: 5)",
        "Missing sets are listed with the place of the original data", "--quiet", "--progress",
        "example: tgpfast paper --data data -o report",
    ):  # fmt: skip
        assert words in text


def test_warmup_says_which_backend(capsys):
    assert cli.main(["warmup", "--backend", "numpy"]) == 0
    ready, runs = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"numpy is ready after \d+\.\d s", ready)
    assert runs == f'backend="auto" now runs {kernels.load().NAME}'


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_every_command_teaches(name, capsys):
    """Help has a description and examples that parse; the list of commands has a line."""
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    command = command_line.COMMANDS[name]
    for example in command.examples:
        assert re.search(rf"^(example:)? +{re.escape(example)}$", out, re.MULTILINE)
        words = shlex.split(example)
        arguments = command_line.make_parser().parse_args(words[words.index("tgpfast") + 1 :])
        assert arguments.run is command.run
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert re.search(rf"^ +{name}\s", capsys.readouterr().out, re.MULTILINE)


RUN_ELSEWHERE = ("demo", "paper", "warmup")  # tests above run them with less work


@pytest.fixture(scope="module")
def example_folder(tmp_path_factory):
    """The files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    parts = {"data": X, "new": X[:50], "part-1": X[:150], "part-2": X[150:]}
    for name, rows in parts.items():
        files.write_rows(folder / f"{name}.csv", rows - [4.0, -2.0], ["x", "y"])
    fixed_fit(folder / "data.csv", n_features=20, backend="numpy").save(folder / "model.npz")
    features = tgp.Features.draw(5, 0.5, np.eye(2), seed=0)
    for name in "ab":
        tgp.accumulate(X, features, backend="numpy").save(folder / f"{name}.npz")
    return folder


@pytest.mark.parametrize(
    "example",
    [e for c in command_line.COMMANDS.values() if c.name not in RUN_ELSEWHERE for e in c.examples],
)
@pytest.mark.slow
def test_examples_of_the_help_run(example, example_folder, tmp_path, capsys, monkeypatch):
    """As they stand in the help; `cat FILE |` gives the file to standard input."""
    shutil.copytree(example_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    first, pipe, rest = example.partition(" | ")
    if pipe:
        content = (example_folder / first.removeprefix("cat ")).read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert run(*shlex.split(rest or first)[1:]) == 0
    out, err = capsys.readouterr()
    assert out or "-o" in example
    assert "Traceback" not in err


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["tgpfast", "qu"], "query"),
        (["tgpfast", "query", "m.npz", "--prob"], "--probability"),
        (["tgpfast", "fit", "x.csv", "--method", "f"], "fd fvpd"),
        (["tgpfast", "completion", ""], "bash zsh"),
        (["tgpfast", "score", "mod"], ""),
    ],
)
def test_bash_completes(line, expected, capsys):
    """Commands, options and choices; for other words bash completes names of files."""
    assert run("completion", "bash") == 0
    script = capsys.readouterr().out
    words = " ".join(shlex.quote(word) for word in line)
    script += f"COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _tgpfast\n"
    script += 'echo "${COMPREPLY[*]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (expected, "")
    assert run("completion", "zsh") == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"tgpfast {__version__}\n"


@pytest.mark.slow
def test_python_dash_m():
    result = subprocess.run(
        [sys.executable, "-m", "tgpfast", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"tgpfast {__version__}\n"


def test_fit_takes_engine_and_noise(tmp_path):
    import numpy as np

    import tgpfast

    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((300, 2)))
    command = ["fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "m.npz"), "--features", "20"]
    command += FIXED_OPTIONS
    options = ["--method", "ncfd", "--sigma-max", "0.5", "--noise-levels", "3"]
    assert cli.main([*command, *options, "--engine", "direct"]) == 0
    model = tgpfast.load(tmp_path / "m.npz")
    assert model.settings["noise_levels"] == pytest.approx([0.0, 0.5 / 3, 1.0 / 3])
    assert model.settings["provenance"]["engine"] == "direct"


@pytest.mark.parametrize(
    "option",
    [["--gamma", "1e-300"], ["--gamma", "1e300"], ["--lam", "5e-324"], ["--features", "9" * 400],
     ["--method", "ncfd", "--sigma-max", "1e200"]],
)
def test_numbers_out_of_range_are_one_line(option, data, tmp_path, capsys):
    assert run("fit", data, "--columns", "u,v", "-o", tmp_path / "m.npz", *FAST, *option) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.match(r"tgpfast: .*(expected|would take)", err)
    assert err.count("\n") == 1


# -- standard streams ----------------------------------------------------------------------------


def shell(command, **environment):
    """A command for bash in a process of its own; TGPFAST stands for the command line."""
    command = command.replace("TGPFAST", f"{sys.executable} -m tgpfast")
    return subprocess.run(
        ["bash", "-c", "set -o pipefail; " + command], capture_output=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


@pytest.mark.slow
@needs_bash
@pytest.mark.parametrize("command", ["info {model}", "--help"])
@pytest.mark.parametrize("output", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(command, output, model):
    result = shell(f"TGPFAST {command.format(model=model)} {output}")
    assert result.returncode == 0
    assert result.stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["info"], ["fit", "--help"]])
def test_a_reader_that_has_left_is_no_error(arguments, model):
    """As `head` does: nobody reads the pipe any more."""
    reader, writer = os.pipe()
    os.close(reader)
    if arguments == ["info"]:
        arguments = ["info", str(model)]
    command = [sys.executable, "-m", "tgpfast", *arguments]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert result.returncode == 0
    assert result.stderr == b""


@pytest.mark.slow
def test_an_error_that_nobody_reads_keeps_its_status(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tgpfast", "info", str(tmp_path / "none.npz"), "--debug"]
    result = subprocess.run(command, stderr=writer, check=False)
    os.close(writer)
    assert result.returncode == 2


@pytest.mark.slow
@needs_bash
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_full_standard_output_is_one_line(model):
    result = shell(f"TGPFAST info {model} > /dev/full")
    assert result.returncode == 2
    assert result.stderr.startswith(b"tgpfast: ")
    assert b"No space left on device; free some space" in result.stderr
    assert result.stderr.count(b"\n") == 1


@pytest.mark.slow
@needs_bash
@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}],
)
def test_names_that_the_terminal_cannot_show(environment, tmp_path):
    """In results and in messages: as escapes."""
    path = tmp_path / "data.csv"
    path.write_text("\u00e9,\u6f22\n" + "\n".join(f"{a},{b}" for a, b in X), encoding="utf-8")
    done = shell(f"TGPFAST fit {path} -o {tmp_path}/m.npz {' '.join(FAST)}", **environment)
    assert done.returncode == 0, done.stderr
    assert rb"2 (\xe9, \u6f22)" in done.stdout
    assert rb"\xe9, \u6f22" in shell(f"TGPFAST info {tmp_path}/m.npz", **environment).stdout
    path.write_text("a,b\n1,2\n")
    done = shell(f"TGPFAST score {tmp_path}/m.npz {path}", **environment)
    assert done.returncode == 2
    assert rb"lacks the model's columns \xe9, \u6f22" in done.stderr


@pytest.mark.slow
@needs_bash
@pytest.mark.parametrize("command", ["sample {model} -o {file}", "score {model} {data} -o {file}"])
@pytest.mark.parametrize("ending", [".csv", ".npy"])
def test_a_full_disk_leaves_the_old_file(command, ending, model, data, tmp_path):
    """A limit on the size of files fails as a full disk does."""
    file = tmp_path / f"rows{ending}"
    file.write_bytes(b"old")
    before = sorted(os.listdir(tmp_path))
    command = "TGPFAST " + command.format(model=model, data=data, file=file)
    result = shell(f"trap '' XFSZ; ulimit -f 1; {command}")
    assert result.returncode == 2
    assert result.stderr.startswith(b"tgpfast: ")
    assert result.stderr.count(b"\n") == 1
    assert file.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.slow
@needs_bash
def test_numba_without_its_compiler(tmp_path):
    """Another backend runs, and `warmup` says why; asked for by name, Numba says what to do."""
    np.save(tmp_path / "x.npy", X)
    fast = [word for word in FAST if word not in ("--backend", "numpy")]
    command = f"TGPFAST fit {tmp_path}/x.npy -o {tmp_path}/m.npz {' '.join(fast)}"
    done = shell(command, NUMBA_DISABLE_JIT="1", TGPFAST_BACKEND="")
    assert done.returncode == 0, done.stderr
    assert tgp.load(tmp_path / "m.npz").settings["provenance"]["backend"] != "numba"
    done = shell("TGPFAST warmup", NUMBA_DISABLE_JIT="1", TGPFAST_BACKEND="")
    assert done.returncode == 0
    assert b"numba is not used" in done.stderr
    done = shell(command + " --backend numba", NUMBA_DISABLE_JIT="1")
    assert done.returncode == 2
    assert b"NUMBA_DISABLE_JIT" in done.stderr or b"No module" in done.stderr


def test_walls_and_periods_are_given_by_column(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = np.c_[rng.uniform(0, 24, 300), rng.exponential(size=300)]
    np.savetxt(tmp_path / "x.csv", rows, delimiter=",", header="hour,price", comments="")
    out = str(tmp_path / "m.npz")
    command = ["fit", str(tmp_path / "x.csv"), "-o", out, "--support", "price=0:", "--period"]
    assert run(*command, "hour=24") == 0
    model = tgp.load(out)
    assert model.settings["period"] == {"0 ('hour')": 24.0}
    assert model.log_density([[3.0, -1.0]])[0] == -np.inf
    with pytest.raises(SystemExit):
        run(*command, "hour")
    assert "COLUMN=NUMBER" in capsys.readouterr().err
