"""Code and commands in README.md and in the documentation run, and the names in them exist."""

import argparse
import inspect
import re
import shlex

import numpy as np
import pytest
from code_blocks import (
    ROOT,
    find_blocks,
    find_commands,
    find_name,
    pages,
    read_page,
    run_blocks,
    without_blocks,
)

import tgpfast as tgp
from tgpfast import cli, sklearn
from tgpfast.cli.command_line import make_parser

README = read_page("README.md")
TEXT = "\n\n".join(read_page(name) for name in pages())


@pytest.mark.slow
def test_python_block_runs(tmp_path):
    assert len(find_blocks(README, "python")) == 1  # .ci/run takes the lines between the fences
    names = run_blocks("README.md", tmp_path)
    model, x = names["model"], names["X"]
    back = tgp.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(back.log_density(x[:3]), model.log_density(x[:3]))


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


@pytest.mark.parametrize("command", sorted(set(find_commands(TEXT))))
def test_every_command_parses(command):
    assert make_parser().parse_args(shlex.split(command)[1:]).run


def test_every_command_is_found():
    names = {command.split()[1] for command in find_commands(TEXT)}
    assert {"demo", "fit", "score", "sample", "info", "paper", "reproduce", "warmup"} <= names


NAMES = set(re.findall(r"\b(?:tgp|tgpfast)\.(\w+(?:\.\w+)*)", TEXT))


@pytest.mark.parametrize("path", sorted(NAMES))
def test_every_name_exists(path):
    assert find_name(path) is not None


def test_every_extra_exists():
    """`pip install "tgpfast[name]"` names an extra of pyproject.toml."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    known = set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))
    named = set(re.findall(r"tgpfast\[(\w+)\]", TEXT))
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


@pytest.mark.parametrize("path", sorted(set(re.findall(r"python (benchmarks/\w+\.py)", TEXT))))
def test_every_script_exists(path):
    assert (ROOT / path).is_file()


def test_every_option_in_the_text_exists():
    """`name=` in backquotes is a parameter of a function, an estimator or a method of Density."""
    words = set(re.findall(r"`(\w+)=[^`]*`", without_blocks(TEXT)))
    functions = [tgp.fit, tgp.accumulate, tgp.evaluate, tgp.fit_groups]
    functions += [sklearn.TGPDensity, sklearn.TGPOutlierDetector, sklearn.TGPClassifier]
    functions += [f for _, f in inspect.getmembers(tgp.Density, inspect.isfunction)]
    known = {name for f in functions for name in inspect.signature(f).parameters}
    known |= {"OPENBLAS_NUM_THREADS"}  # an environment variable
    assert words
    assert words <= known


def test_calls_in_the_text_take_these_options():
    """`tgp.fit(X, method="fd", ...)` and the like bind to the signature."""
    calls = re.findall(r"`tgp\.(\w+)(\([^`]*\))`", " ".join(without_blocks(TEXT).split()))
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
    calls = re.findall(r"`tgp\.fit(\(X, method=[^`]*\))`", " ".join(TEXT.split()))
    (call,) = calls
    model = eval(f"fit{call}", {"fit": tgp.fit, "X": x})
    assert model.selection is None
    once = tgp.fit(iter([x]))
    assert once.selection is None
    for name in ("method", "base", "frequency_covariance"):
        assert once.settings[name] == model.settings[name]
    assert once.settings["lam"] >= model.settings["lam"]
