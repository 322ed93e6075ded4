"""The paper re-run on small files: what is measured, what is written, and what is owned up to."""

import base64
import contextlib
import csv
import inspect
import io
import re
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast import plot
from tgpfast.paper import experiments, figures, published, reproduction
from tgpfast.paper.data_files import DataFile
from tgpfast.paper.data_files import find_data_files as find
from tgpfast.paper.experiments import Measurements, Settings
from tgpfast.paper.reproduction import reproduce
from tgpfast.paper.tables import set_label, time_rows

pytest.importorskip("matplotlib")

TINY = Settings(
    n_features=20, n_seeds=2, n_directions=5, n_samples=500, n_grid=50, kde_features=200,
    toy_rows=200,
)  # fmt: skip
METHODS = ["MAP", "FD", "NCFD", "FVPD"]
NAMES = [f"angle{k}" for k in range(10)]
DISTANCES = [
    "data set", "method", "KS here", "KS paper", "WD here", "WD paper", "KS s.d.", "WD s.d.",
    "effective draws",
]  # fmt: skip
LIKE_MAGIC = np.random.default_rng(0).gamma(2.0, size=(200, 10)) * np.arange(1.0, 11.0)
LIKE_BIKESHARE = np.random.default_rng(1).standard_normal((11_122, 12))  # of the paper's size
SHELLS = np.random.default_rng(2).standard_normal((150, 3)) ** 3
SMALL = np.random.default_rng(3).standard_normal((60, 2))
FIGURES = ("samples", "noise_ladder", "marginal_cdfs", "contours")


def write_csv(path, rows, names):
    lines = [",".join(map(repr, row)) for row in rows.tolist()]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")


def fill(folder):
    """A folder with every case: good, of another size, unknown, broken, constant, no data."""
    folder.mkdir()
    np.savez(folder / "magic.npz", X=LIKE_MAGIC, columns=np.array(NAMES))
    np.save(folder / "bikeshare.npy", LIKE_BIKESHARE)
    rng = np.random.default_rng(4)
    places = rng.standard_normal((300, 2)) + np.array([35.0, -120.0])
    np.save(folder / "california_housing_latlon.npy", places)
    np.save(folder / "mnist_pca2.npy", rng.standard_normal((250, 2)) * [3.0, 2.0])
    np.save(folder / "shells.npy", SHELLS)
    (folder / "higgs.csv").write_text("lepton,jet\n0.5,1.5\n1.0,nan\n2.0,0.1\n")
    (folder / "harth.csv").write_text("x,who\n0.5,anna\n1.0,bert\n")
    write_csv(folder / "power.csv", np.insert(SMALL, 1, 0.1, axis=1), ["amp", "volt", "watt"])
    (folder / "readme.md").write_text("no data")
    (folder / "twitter").mkdir()
    np.save(folder / "twitter" / "twitter.npy", SHELLS)


def table(folder, name):
    """(header, rows as mappings) of a csv file."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        rows = list(reader)
    return reader.fieldnames, rows


def texts(folder):
    """The text of every file that is not a picture; the page without its pictures."""
    found = {p.name: p.read_text("utf-8") for p in folder.iterdir() if p.suffix != ".png"}
    found["report.html"] = re.sub(r"base64,[^\"]+", "base64,", found["report.html"])
    return found


def section(folder, heading):
    """The lines of a section of the markdown, "" where there is none."""
    parts = re.split(r"^## ", (folder / "report.md").read_text("utf-8"), flags=re.MULTILINE)
    return next((p for p in parts if p.startswith(heading + "\n")), "")


@dataclass
class Run:
    data: Path
    output: Path
    page: Path
    drawn: list  # (name of a function of plot, its positional arguments, its others)


def spy_on(name, drawn):
    """A function of plot that notes its arguments, unless another of them has called it."""
    true = getattr(plot, name)

    def spy(*args, **options):
        caller = inspect.stack()[1].filename
        if caller == figures.__file__:
            drawn.append((name, args, options))
        return true(*args, **options)

    return spy


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run on the whole folder, under the suite's rule that warnings are errors."""
    top = tmp_path_factory.mktemp("reproduce")
    fill(top / "data")
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        for name in FIGURES:
            patch.setattr(plot, name, spy_on(name, drawn))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            page = reproduce(top / "data", top / "out" / "report", TINY)
    return Run(top / "data", top / "out" / "report", page, drawn)


@pytest.fixture(scope="module")
def no_data(tmp_path_factory):
    """(folder of the report, what standard error showed) of a run without data."""
    folder = tmp_path_factory.mktemp("no_data")
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        reproduce(None, folder, TINY, progress=True)
    return folder, shown.getvalue()


@pytest.fixture
def tables_only(monkeypatch):
    """Runs without figures."""
    monkeypatch.setattr(reproduction, "list_figures", lambda files, settings: [])


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder with two good sets that the paper does not have; FD stands for MAP, being faster."""
    true = experiments.fit

    def fit(x, *, method, **options):
        return true(x, method="fd" if method == "map" else method, **options)

    monkeypatch.setattr(experiments, "fit", fit)
    monkeypatch.setattr(reproduction, "warmup", lambda: None)
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "apples.npy", SMALL)
    np.save(folder / "pears.npy", SMALL[:50])
    return folder


# -- what is written ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_files_of_a_run(run):
    """A page, its markdown, a csv a table and a png a figure; no more."""
    tables = ["distances_median", "distances_mean", "run_times", "other_sets", "missing",
              "failures", "notices"]  # fmt: skip
    figures = ["california_samples", "california_noise", "magic_cdfs", "contours_mnist_2d",
               "contours_xo", "contours_smile"]  # fmt: skip
    expected = [f"{t}.csv" for t in tables] + [f"{f}.png" for f in figures]
    assert sorted(p.name for p in run.output.iterdir()) == sorted(
        ["report.html", "report.md", *expected]
    )
    assert run.page == run.output / "report.html"
    page, text = run.page.read_text("utf-8"), (run.output / "report.md").read_text("utf-8")
    for name in tables:
        assert f'id="table-{name}"' in page
        assert f"({name}.csv)" in text
    for name in figures:
        picture = (run.output / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert base64.b64encode(picture).decode() in page
        assert f"({name}.png)" in text


@pytest.mark.slow
def test_the_report_does_not_say_where_it_was_made(run, tmp_path):
    """Neither the folders nor anything above them."""
    for name, text in texts(run.output).items():
        for folder in (run.data, run.output, run.output.parent.parent, Path.home(), Path.cwd()):
            if len(folder.parts) > 1:
                assert str(folder) not in text, name
        assert not re.search(r"(?<![\w.])/(tmp|home|root|Users|work|private)/", text), name


# -- the tables -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["median", "mean"])
def test_rows_and_the_papers_figures(run, measure):
    """A row a set and method, in the paper's order; its figures are those of ``published``."""
    header, rows = table(run.output, f"distances_{measure}")
    assert header == DISTANCES
    sets = [published.SETS["Bikeshare"], published.SETS["MAGIC"]]
    labels = ["Bikeshare", "MAGIC (200 x 10; paper 19,020 x 10)"]
    assert [(r["data set"], r["method"]) for r in rows] == [(s, m) for s in labels for m in METHODS]
    for row, (entry, method) in zip(
        rows, [(s, m) for s in sets for m in published.METHOD_NAMES], strict=True
    ):
        paper = getattr(entry, measure)[method]
        assert (float(row["KS paper"]), float(row["WD paper"])) == paper
        assert 1.0 <= float(row["effective draws"]) <= TINY.n_samples


def fresh(rows, method, seed):
    """fit and evaluate with the paper's settings, written out."""
    model = tgp.fit(
        rows, method=method, n_features=20, lam=0.1, gamma="scott", eta="1/gamma2",
        sigma_max="paper", n_noise_levels=10, scale="center", base="empirical",
        frequency_covariance="data", seed=seed,
    )  # fmt: skip
    return tgp.evaluate(
        model, rows, 5, n_grid=50, n_samples=500, seed=seed, n_scored=0, units="data"
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", published.METHOD_NAMES)
def test_figures_are_those_of_fit_and_evaluate(run, method):
    """The mean over seeds, and its deviation, of distances of standardised rows; MAP has seed 0."""
    rows = (LIKE_MAGIC - LIKE_MAGIC.mean(axis=0)) / LIKE_MAGIC.std(axis=0)
    seeds = [0] if method == "map" else [0, 1]
    results = [fresh(rows, method, seed) for seed in seeds]
    for measure in ("median", "mean"):
        values = 100 * np.array([getattr(r, measure) for r in results])
        _, found = table(run.output, f"distances_{measure}")
        (row,) = (r for r in found if "MAGIC" in r["data set"] and r["method"] == method.upper())
        # the same sums: they may differ in the last digits of a mean
        got = [float(row["KS here"]), float(row["WD here"])]
        assert got == pytest.approx(values.mean(axis=0), rel=1e-12)
        if len(seeds) > 1:
            spread = np.abs(values[0] - values[1]) / np.sqrt(2)  # of two values
            assert [float(row["KS s.d."]), float(row["WD s.d."])] == pytest.approx(spread, rel=1e-9)
            assert (spread > 1e-3).all()  # negative control: seeds do make a difference
        else:
            assert row["KS s.d."] == row["WD s.d."] == ""
        draws = np.mean([r.effective_sample_size for r in results])
        assert float(row["effective draws"]) == pytest.approx(draws, rel=1e-12)
    if method == "fd":  # negative control: raw rows have other distances
        raw = fresh(LIKE_MAGIC, method, 0)
        assert abs(raw.median[1] / results[0].median[1] - 1) > 0.1


def test_distances_are_in_the_units_that_the_paper_used(monkeypatch):
    seen = {}
    monkeypatch.setattr(experiments, "evaluate", lambda *args, **options: seen.update(options))
    experiments.evaluate_as_paper(None, None, 0, Settings())
    assert seen["units"] == "data"


@pytest.mark.slow
def test_sets_that_the_paper_does_not_have(run):
    """In a table of their own, with one seed, and nowhere beside the paper's figures."""
    header, rows = table(run.output, "other_sets")
    assert header == ["data set", "rows", "columns", "method", "KS", "WD", "effective draws",
                      "seconds"]  # fmt: skip
    assert [(r["data set"], r["rows"], r["columns"], r["method"]) for r in rows] == [
        ("shells", "150", "3", m) for m in METHODS
    ]
    standardised = (SHELLS - SHELLS.mean(axis=0)) / SHELLS.std(axis=0)
    for row, method in zip(rows, published.METHOD_NAMES, strict=True):
        result = fresh(standardised, method, 0)
        got = [float(row["KS"]), float(row["WD"]), float(row["effective draws"])]
        expected = [*(100 * v for v in result.median), result.effective_sample_size]
        assert got == pytest.approx(expected, rel=1e-12)
        assert float(row["seconds"]) > 0
    for name in ("distances_median", "distances_mean", "run_times"):
        assert "shells" not in texts(run.output)[f"{name}.csv"]


@pytest.mark.slow
def test_run_times(run):
    """Beside the paper's; a ratio only where the work was the same."""
    header, rows = table(run.output, "run_times")
    assert header == ["data set", "rows", "columns", "method", "here", "paper", "paper / here"]
    assert [r["method"] for r in rows] == 2 * METHODS
    for row, method in zip(rows, 2 * list(published.METHOD_NAMES), strict=True):
        of_size = row["data set"] == "Bikeshare"
        entry = published.SETS["Bikeshare" if of_size else "MAGIC"]
        assert (row["rows"], row["columns"]) == (("11122", "12") if of_size else ("200", "10"))
        here, paper = float(row["here"]), float(row["paper"])
        assert here > 0
        assert paper == entry.seconds[method]
        if of_size:
            assert float(row["paper / here"]) == pytest.approx(paper / here, rel=1e-12)
        else:
            assert row["paper / here"] == ""


@pytest.mark.parametrize("shape", [(19_020, 9), (19_019, 10), (19_020, 10)])
def test_only_the_papers_rows_and_columns_are_the_papers_set(shape):
    entry = published.SETS["MAGIC"]
    file = DataFile(Path("magic.csv"), entry, None)
    measured = Measurements(file, shape, seconds={"fd": [0.5, 1.5]})
    same = shape == (19_020, 10)
    assert (set_label(measured, entry) == "MAGIC") == same
    (row,) = time_rows(measured, entry)
    assert row[-3:] == [1.0, 0.28, 0.28 if same else None]


@pytest.mark.slow
def test_csv_gives_what_npz_gives(run, tmp_path, tables_only):
    """The same rows from a text file, to the last bit; also the label and the paper's figures."""
    (tmp_path / "data").mkdir()
    write_csv(tmp_path / "data" / "MAGIC04.CSV", LIKE_MAGIC, NAMES)
    reproduce(tmp_path / "data", tmp_path / "out", TINY)
    for name in ("distances_median", "distances_mean"):
        _, rows = table(run.output, name)
        assert table(tmp_path / "out", name)[1] == [r for r in rows if "MAGIC" in r["data set"]]


@pytest.mark.slow
def test_one_seed_has_no_deviation(tmp_path, tables_only):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "higgs_60.npy", SMALL)
    reproduce(tmp_path / "data", tmp_path / "out", Settings(**{**vars(TINY), "n_seeds": 1}))
    _, rows = table(tmp_path / "out", "distances_median")
    assert {r["data set"] for r in rows} == {"HIGGS (60 x 2; paper 50,000 x 28)"}
    assert {r["KS s.d."] for r in rows} == {r["WD s.d."] for r in rows} == {""}
    assert all(np.isfinite(float(r["KS here"])) for r in rows)


# -- what is not there, and what goes wrong -------------------------------------------------------


@pytest.mark.slow
def test_missing_sets_are_listed_and_never_shown(run):
    """With their sources; files that are there, broken or not, are not among them."""
    header, rows = table(run.output, "missing")
    assert header == ["data set", "source"]
    expected = ["MIMIC2", "Credit", "GasMod", "GasMix", "Twitter"]
    assert [(r["data set"], r["source"]) for r in rows] == [
        (name, published.SETS[name].source) for name in expected
    ]
    elsewhere = {k: v for k, v in texts(run.output).items() if k.endswith(".csv")}
    del elsewhere["missing.csv"]
    for name in expected:
        assert not any(name in text for text in elsewhere.values())


@pytest.mark.slow
def test_failures_are_listed_with_their_reasons(run):
    """A bad value, a text column, a constant column: named as in the file; the others still ran."""
    header, rows = table(run.output, "failures")
    assert header == ["what", "why"]
    why = {r["what"]: r["why"] for r in rows}
    assert list(why) == ["HIGGS", "Power", "HARTH"]
    assert why["HIGGS"].startswith("higgs.csv, line 3, column 1 ('jet'): a value is missing")
    assert why["Power"].startswith("column 1 ('volt') is constant at 0.1, so")
    assert why["HARTH"].startswith("harth.csv, line 2, column 1 ('who'): 'anna' is not a number")
    for name in ("distances_median", "distances_mean", "run_times", "other_sets"):
        text = texts(run.output)[f"{name}.csv"]
        assert not any(failed in text for failed in why)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("two\n  lines"), "two lines"),
        (MemoryError(), "MemoryError"),
        (ImportError("polars is missing"), "polars is missing"),
        (np.linalg.LinAlgError("singular"), "singular"),
        (PermissionError, "[Errno 13] Permission denied: 'apples.npy'"),
    ],
)
def test_one_failure_stops_nothing_else(error, reason, small, tmp_path, monkeypatch, tables_only):
    """Whatever data can bring about; files go by their names."""
    if error is PermissionError:
        error = PermissionError(13, "Permission denied", str(small / "apples.npy"))
    true = experiments.load_standardized

    def standardised(path):
        if path.stem == "apples":
            raise error
        return true(path)

    monkeypatch.setattr(experiments, "load_standardized", standardised)
    reproduce(small, tmp_path / "out", TINY)
    assert table(tmp_path / "out", "failures")[1] == [{"what": "apples", "why": reason}]
    assert {r["data set"] for r in table(tmp_path / "out", "other_sets")[1]} == {"pears"}


@pytest.mark.slow
def test_a_set_that_fails_half_way_has_no_rows(small, tmp_path, monkeypatch, tables_only):
    """Rather none than some of the methods; and the bar still ends with all done."""
    true = experiments.fit

    def fit(x, **options):
        if options["method"] == "ncfd" and len(x) == 60:
            raise ValueError("no")
        return true(x, **options)

    monkeypatch.setattr(experiments, "fit", fit)
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        reproduce(small, tmp_path / "out", TINY, progress=True)
    assert table(tmp_path / "out", "failures")[1] == [{"what": "apples", "why": "no"}]
    assert {r["data set"] for r in table(tmp_path / "out", "other_sets")[1]} == {"pears"}
    painted = shown.getvalue().split("\r")
    assert any("apples, NCFD" in line for line in painted)
    assert "8/8" in painted[-1]  # four models each of apples and of pears


@pytest.mark.parametrize("error", [KeyboardInterrupt, AssertionError, ZeroDivisionError])
def test_faults_of_the_program_are_not_swallowed(error, small, tmp_path, monkeypatch, tables_only):
    """They are neither the data's nor the user's to mend; nothing is written."""

    def standardised(path):
        raise error

    monkeypatch.setattr(experiments, "load_standardized", standardised)
    with pytest.raises(error):
        reproduce(small, tmp_path / "out", TINY)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_figure_that_fails_is_a_failure(tmp_path, monkeypatch):
    """Here three columns where a picture needs two; the other pictures are made."""
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "mnist_2d.npy", SHELLS)
    monkeypatch.setattr(  # one Gaussian in place of each of the four methods
        figures, "fit_as_paper", lambda rows, *_, **__: tgp.GaussianBase.from_data(rows)
    )
    reproduce(tmp_path / "data", tmp_path / "out", TINY)
    ((what, why),) = (tuple(r.values()) for r in table(tmp_path / "out", "failures")[1])
    assert what == "figure MNIST-2D"
    assert "3 columns" in why
    assert sorted(p.name for p in (tmp_path / "out").glob("*.png")) == [
        "contours_smile.png", "contours_xo.png",
    ]  # fmt: skip


@pytest.mark.slow
def test_warnings_become_notices(run):
    """Those of this folder: the Fourier estimate has few effective draws. None was raised."""
    header, rows = table(run.output, "notices")
    assert header == ["times", "notice"]
    (notice,) = (r for r in rows if "10,000 were asked for" in r["notice"])
    assert notice["times"] == "1"
    assert notice["notice"].startswith("figure California: ")


@pytest.mark.slow
def test_notices_are_counted_by_set(small, tmp_path, monkeypatch, tables_only):
    """Once each, with how often: four methods gave each warning; nothing reaches the user."""
    true = experiments.evaluate

    def evaluate(model, x, *rest, **options):
        warnings.warn(f"{len(x)} rows are few", RuntimeWarning, stacklevel=2)
        return true(model, x, *rest, **options)

    monkeypatch.setattr(experiments, "evaluate", evaluate)
    with warnings.catch_warnings(record=True) as escaped:
        warnings.simplefilter("always")
        reproduce(small, tmp_path / "out", TINY)
    assert escaped == []
    assert [tuple(r.values()) for r in table(tmp_path / "out", "notices")[1]] == [
        ("4", "apples: 60 rows are few"), ("4", "pears: 50 rows are few"),
    ]  # fmt: skip


def test_a_clean_run_has_neither_failures_nor_notices(small, tmp_path, tables_only):
    reproduce(small, tmp_path / "out", TINY)
    names = {p.stem for p in (tmp_path / "out").iterdir()}
    assert names == {"report", "other_sets", "missing"}
    assert section(tmp_path / "out", "What could not be run") == ""
    assert section(tmp_path / "out", "Notices") == ""


# -- the figures ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_california_figure_has_all_methods_and_both_estimates(run):
    """One bandwidth for all, and round kernels of that width, as in the paper; lambda 10."""
    ((_, (models, path), options),) = (d for d in run.drawn if d[0] == "samples")
    assert list(models) == [*METHODS, "KDE, 200 features", "KDE, exact"]
    assert path == run.data / "california_housing_latlon.npy"
    assert options["n_shown"] == 10_000
    for name in METHODS:
        assert models[name].method == name.lower()
        assert models[name].settings["lam"] == 10.0
    width = models["FD"].features.bandwidth
    fourier, exact = models["KDE, 200 features"], models["KDE, exact"]
    assert fourier.features.bandwidth == exact.bandwidth == width
    assert fourier.features.n_features == 200
    assert np.array_equal(fourier.features.covariance, np.eye(2))
    assert np.array_equal(exact.covariance, np.eye(2))
    ((_, (ladder, _), _),) = (d for d in run.drawn if d[0] == "noise_ladder")
    assert ladder is models["NCFD"]


@pytest.mark.slow
def test_the_cdf_figure_names_the_columns(run):
    """Ten directions of standardised rows, by FVPD, with the names that the file brought."""
    ((_, (models, rows), options),) = (d for d in run.drawn if d[0] == "marginal_cdfs")
    assert list(models) == ["FVPD"]
    assert models["FVPD"].method == "fvpd"
    assert options["names"] == NAMES
    assert options["n_directions"] == 10
    assert np.allclose(rows.mean(axis=0), 0.0, atol=1e-12)
    assert np.allclose(rows.std(axis=0), 1.0, rtol=1e-12)


@pytest.mark.slow
def test_the_contour_figures(run):
    """Four methods on MNIST-2D, XO and Smile; XO and Smile have the rows that were asked for."""
    drawn = [args for name, args, _ in run.drawn if name == "contours"]
    assert [list(models) for models, _ in drawn] == [METHODS] * 3
    assert drawn[0][1] == run.data / "mnist_pca2.npy"
    assert [rows.shape for _, rows in drawn[1:]] == [(200, 2)] * 2
    assert not np.array_equal(drawn[1][1], drawn[2][1])
    for models, _ in drawn:
        assert {m.settings["lam"] for m in models.values()} == {10.0}
        assert {m.features.n_features for m in models.values()} == {20}


# -- how it was run -------------------------------------------------------------------------------


@pytest.mark.slow
def test_settings_seeds_and_versions_are_recorded(run):
    text = section(run.output, "How this was run")
    facts = dict(re.findall(r"^- ([^:]+): (.*)$", text, flags=re.MULTILINE))
    expected = {
        "n_features": "20", "lam": "0.1", "gamma": "scott", "eta": "1/gamma2", "base": "empirical",
        "sigma_max": "paper", "n_noise_levels": "10", "scale": "center",
        "frequency_covariance": "data", "directions": "5", "grid points": "50",
        "base draws": "500", "features of the Fourier estimate": "200",
        "rows of XO and Smile": "200", "tgpfast": tgp.__version__,
        **{name: version(name) for name in ("numpy", "scipy", "numba", "finufft", "matplotlib")},
    }  # fmt: skip
    assert {k: facts.get(k) for k in expected} == expected
    assert facts["feature seeds"].startswith("0 to 1 ")
    assert facts["seeds of directions and draws"] == "the same as the feature seeds"
    assert int(facts["seconds in all"]) >= 0
    assert "method" not in facts  # all four were
    assert "over 5 random directions" in section(run.output, "Distances between densities and data")


def test_the_defaults_are_the_papers():
    """Section 4: 1000 features, 500 directions, 10^4 grid points, 250k draws; 100k for the KDE."""
    assert Settings() == Settings(1_000, 5, 500, 250_000, 10_000, 100_000, 10_000)


# -- no data, and wrong folders -------------------------------------------------------------------


@pytest.mark.slow
def test_without_data_only_what_is_generated(no_data):
    """XO and Smile; every other set is listed with its source, and there are no tables of it."""
    folder, _ = no_data
    assert sorted(p.name for p in folder.glob("*.png")) == ["contours_smile.png", "contours_xo.png"]
    _, rows = table(folder, "missing")
    figures = [published.ILLUSTRATIONS[name] for name in ("MNIST-2D", "CA House")]
    assert [(r["data set"], r["source"]) for r in rows] == [
        (s.name, s.source) for s in [*published.SETS.values(), *figures]
    ]
    assert {p.stem for p in folder.glob("*.csv")} <= {"missing", "notices"}


@pytest.mark.slow
def test_progress_names_each_step(no_data):
    """On standard error, until all is done."""
    painted = no_data[1].split("\r")[1:]
    named = [re.match(r"figure (\w+)", line) for line in painted]
    assert list(dict.fromkeys(name[1] for name in named if name)) == ["XO", "Smile"]
    assert "100%" in painted[-1]


@pytest.mark.parametrize("what", ["output is a file", "output in a file", "no folder", "a file"])
def test_wrong_folders_are_refused_before_any_work(what, small, tmp_path, monkeypatch):
    """With the remedy, and nothing is made."""
    monkeypatch.setattr(reproduction, "warmup", lambda: pytest.fail("work was begun"))
    taken = tmp_path / "taken"
    taken.write_text("mine")
    data, output, message = {
        "output is a file": (small, taken, "is a file; give a folder"),
        "output in a file": (small, taken / "report", "is a file; give a folder"),
        "no folder": (tmp_path / "nowhere", tmp_path / "out", "is not a folder; give one"),
        "a file": (taken, tmp_path / "out", "is not a folder; give one"),
    }[what]
    with pytest.raises(ValueError, match=message):
        reproduce(data, output, TINY)
    assert taken.read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_no_matplotlib_is_said_before_any_work(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(reproduction, "warmup", lambda: pytest.fail("work was begun"))
    with pytest.raises(ImportError, match="matplotlib is missing; install it with"):
        reproduce(small, tmp_path / "out", TINY)


# -- find -----------------------------------------------------------------------------------------


def test_find_gives_the_papers_sets_first(tmp_path):
    """In the paper's order, then the others by name; other endings and folders are left alone."""
    names = ["zebra.npy", "twitter.csv", "apples.parquet", "HIGGS_18k.NPZ", "magic-gamma.tsv",
             "bikeshare.txt", "california_housing.csv", "mnist_2d.npy"]  # fmt: skip
    for name in [*names, "power.md", "harth.csv.gz", "credit", ".npy"]:
        (tmp_path / name).write_text("")
    (tmp_path / "gasmix.csv").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "gasmod.csv").write_text("")
    found = find(tmp_path)
    assert [(f.name, f.path.name) for f in found] == [
        ("Bikeshare", "bikeshare.txt"), ("MAGIC", "magic-gamma.tsv"), ("HIGGS", "HIGGS_18k.NPZ"),
        ("Twitter", "twitter.csv"), ("apples", "apples.parquet"),
        ("CA House", "california_housing.csv"), ("MNIST-2D", "mnist_2d.npy"),
        ("zebra", "zebra.npy"),
    ]  # fmt: skip
    assert [f.published is not None for f in found] == [True] * 4 + [False] * 4
    assert [f.name for f in found if f.illustration] == ["CA House", "MNIST-2D"]
    assert all(f.label == f.name for f in found)


def test_find_in_an_empty_folder(tmp_path):
    assert find(tmp_path) == []


@pytest.mark.slow
def test_two_files_of_one_set_are_told_apart(tmp_path, tables_only):
    """By their file names, in the tables and among the failures."""
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "shells.npy", SMALL)
    write_csv(folder / "shells.csv", SMALL[:40], ["a", "b"])
    (folder / "magic.csv").write_text("a,b\n1.0,\n")
    (folder / "magic.txt").write_text("")
    labels = ["MAGIC, magic.csv", "MAGIC, magic.txt", "shells, shells.csv", "shells, shells.npy"]
    assert [f.label for f in find(folder)] == labels
    reproduce(folder, tmp_path / "out", TINY)
    assert [r["what"] for r in table(tmp_path / "out", "failures")[1]] == labels[:2]
    rows = [(r["data set"], r["rows"]) for r in table(tmp_path / "out", "other_sets")[1]]
    assert rows == [(labels[2], "40")] * 4 + [(labels[3], "60")] * 4


def test_a_report_does_not_go_into_the_folder_of_the_data(tmp_path):
    with pytest.raises(ValueError, match="holds the data"):
        reproduce(tmp_path, tmp_path / ".")
