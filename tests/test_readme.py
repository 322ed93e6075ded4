"""Code and commands in README.md run, and the names in it exist."""

import argparse
import copy
import inspect
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast import cli
from tgpfast.cli.command_line import make_parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    """The code blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def without_blocks():
    return re.sub(r"^```\w*\n.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)


def commands():
    """Every `tgpfast ...` in the text and in blocks of the shell."""
    found = re.findall(r"`(tgpfast [a-z][^`]*)`", " ".join(without_blocks().split()))
    lines = [part for block in blocks("sh") for part in re.split(r"\n|&&", block)]
    return found + [line.strip() for line in lines if line.strip().startswith("tgpfast ")]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What the python blocks leave behind: names, and the folder they were run in."""
    folder, names = tmp_path_factory.mktemp("readme"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks("python"):
            exec(compile(block, "README.md", "exec"), names)
    return names, folder


@pytest.mark.slow
def test_python_blocks_run(ran):
    names, folder = ran
    model, x = names["model"], names["X"]
    assert (folder / "model.npz").exists()
    back = tgp.load(folder / "model.npz")
    np.testing.assert_array_equal(back.log_density(x[:3]), model.log_density(x[:3]))
    assert [m.method for m in names["models"]] == ["fd", "fd"]
    assert names["stats"].n_rows == len(x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of dask's reader with pandas 3.1
def test_blocks_for_more_than_one_machine_run(ran, tmp_path, monkeypatch):
    """With the names of the first block, and rows, files and groups as the comments describe."""
    dask = pytest.importorskip("dask")
    pytest.importorskip("dask.dataframe")
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    names, _ = ran
    rng = np.random.default_rng(1)
    monkeypatch.chdir(tmp_path)
    rows = pandas.DataFrame(names["X"][:2_000], columns=["x", "y"])
    city = np.array(["Ulm", "Bonn"])[rng.integers(0, 2, len(names["X"]))]
    names = {**names, "X_more": names["X"][:500] + 0.01, "city": city}
    names["stats"] = copy.deepcopy(names["stats"])  # the block adds to it
    before = names["stats"].n_rows
    Path("rows").mkdir()
    for k in range(2):
        rows[1_000 * k : 1_000 * (k + 1)].to_parquet(f"rows/part-{k}.parquet", index=False)
    (block,) = blocks("py")
    with dask.config.set(scheduler="synchronous"):
        exec(compile(block, "README.md", "exec"), names)
    assert names["stats"].n_rows == before + 500
    assert names["model"].table.columns == ["x", "y"]
    assert np.isfinite(names["many"]["Ulm"].log_density(names["X"][:3])).all()


@pytest.mark.slow
def test_commands_of_the_shell_run(tmp_path, monkeypatch, capsys):
    """The line "From the shell", in its order, on a small file."""
    (line,) = re.findall(r"^From the shell: (.*?)\n\n", README, re.MULTILINE | re.DOTALL)
    found = re.findall(r"`(tgpfast .*?)`", " ".join(line.split()))
    assert [command.split()[1] for command in found] == [
        "fit", "score", "outliers", "query", "sample", "info",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((150, 2)) @ [[1.0, 0.5], [0.0, 0.7]]
    for name in ("data.csv", "new.csv"):
        np.savetxt(name, x, delimiter=",", header="a,b", comments="")
    for command in found:
        assert cli.main(shlex.split(command)[1:]) == 0, command
        for word in re.findall(r"`--(\w+)`", line):
            assert f"--{word}" in _help_of(command.split()[1])
    assert len(np.loadtxt("sample.csv", delimiter=",", skiprows=1)) == 1_000
    assert "mean log density" in capsys.readouterr().out


def _help_of(name):
    (subparsers,) = (
        a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    return subparsers.choices[name].format_help()


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_every_command_parses(command):
    assert make_parser().parse_args(shlex.split(command)[1:]).run


def test_every_command_is_found():
    names = {command.split()[1] for command in commands()}
    assert {"demo", "fit", "score", "sample", "info", "paper", "reproduce", "warmup"} <= names


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\b(?:tgp|tgpfast)((?:\.\w+)+)", README))))
def test_every_name_exists(path):
    thing = tgp
    for name in path.split(".")[1:]:
        if path == ".dask":
            pytest.importorskip("dask")
        thing = getattr(thing, name)


def test_every_extra_exists():
    """`pip install "tgpfast[name]"` names an extra of pyproject.toml."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    known = set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))
    named = set(re.findall(r"tgpfast\[(\w+)\]", README))
    assert {"files", "plot", "dask"} <= named <= known
    assert "cli" not in known  # negative control: it was removed


def test_the_paper_is_cited_everywhere():
    """Authors, title, year and arXiv number, in the README, the package and the citation file."""
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    paper = citation["preferred-citation"]
    names = [f"{a['given-names']} {a['family-names']}" for a in paper["authors"]]
    assert names == ["John Paisley", "Wei Zhang", "Brian Barr"]
    for text in (README, tgp.__doc__, tgp.paper.__doc__):
        words = " ".join(text.split())
        for fact in (*names, paper["title"], str(paper["year"]), "2504.03485"):
            assert fact in words
    assert paper["url"].endswith("2504.03485")


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = set(re.findall(r"\b((?:tgpfast|tests|benchmarks)/[\w/]*(?:\.\w+)?)", CONTRIBUTING))


@pytest.mark.parametrize("path", sorted(PATHS - {"tests/"}))
def test_every_path_for_contributors_exists(path):
    assert (ROOT / path).exists()


def test_paths_for_contributors_are_found():
    """So that the test above cannot pass on nothing."""
    assert {"tgpfast/kernels/_numpy.py", "tests/oracle.py", "tgpfast/solvers/"} <= PATHS
    assert not (ROOT / "tgpfast/kernels/_cuda.py").exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"python (benchmarks/\w+\.py)", README))))
def test_every_script_exists(path):
    assert (ROOT / path).is_file()


def test_every_option_in_the_text_exists():
    """`name=` in backquotes is a parameter of fit, accumulate, evaluate, or update."""
    words = set(re.findall(r"`(\w+)=[^`]*`", without_blocks()))
    functions = (tgp.fit, tgp.accumulate, tgp.evaluate, tgp.Density.update, tgp.fit_groups)
    known = {name for f in functions for name in inspect.signature(f).parameters}
    known |= {"OPENBLAS_NUM_THREADS"}  # an environment variable
    assert words
    assert words <= known


def test_calls_in_the_text_take_these_options():
    """`tgp.fit(X, method="fd", ...)` and the like bind to the signature."""
    calls = re.findall(r"`tgp\.(\w+)(\([^`]*\))`", " ".join(without_blocks().split()))
    assert ("fit", '(X)') in calls
    for name, arguments in calls:
        function = getattr(tgp, name)
        signature = inspect.signature(function)
        eval(f"bind{arguments}", {"bind": signature.bind, "X": None, "model": None})


@pytest.mark.slow
def test_the_call_with_fixed_settings_chooses_nothing():
    """"takes none" of the seconds that choosing takes; rows that are read only once get the same
    settings but for lambda, which may rise."""
    x = np.random.default_rng(0).uniform(size=(2_000, 2))
    calls = re.findall(r"`tgp\.fit(\(X, method=[^`]*\))`", " ".join(README.split()))
    (call,) = calls
    model = eval(f"fit{call}", {"fit": tgp.fit, "X": x})
    assert model.selection is None
    once = tgp.fit(iter([x]))
    assert once.selection is None
    for name in ("method", "base", "frequency_covariance"):
        assert once.settings[name] == model.settings[name]
    assert once.settings["lam"] >= model.settings["lam"]
