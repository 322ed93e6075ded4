"""The code of the documentation's pages runs, and the API reference has every public name."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from code_blocks import ROOT, find_blocks, pages, read_page, run_blocks

import tgpfast as tgp
from tgpfast import cli, datasets, plot, sklearn
from tgpfast.cli.command_line import COMMANDS
from tgpfast.data.files import write_rows

RUN = [name for name in pages() if name != "README.md" and find_blocks(read_page(name), "python")]
API = read_page("docs/api.rst")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_python_blocks_run(name, tmp_path):
    assert run_blocks(name, tmp_path)


def test_pages_with_code_are_found():
    """So that the test above cannot pass on nothing."""
    assert {"docs/index.md", "docs/tutorial.md", "docs/big_data.md"} <= set(RUN)


@pytest.mark.slow
def test_sums_of_parts_are_sums_of_all_rows(tmp_path):
    names = run_blocks("docs/how_it_works.md", tmp_path)
    assert [model.method for model in names["models"]] == ["fd", "fd"]
    assert names["stats"].n_rows == len(names["X"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of dask's reader with pandas 3.1
def test_the_block_for_clusters_runs(tmp_path, monkeypatch):
    """With parquet files in the folder that it names."""
    dask = pytest.importorskip("dask")
    pytest.importorskip("dask.dataframe")
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    rows = pandas.DataFrame(datasets.two_moons(2_000), columns=["x", "y"])
    Path("rows").mkdir()
    for k in range(2):
        rows[1_000 * k : 1_000 * (k + 1)].to_parquet(f"rows/part-{k}.parquet", index=False)
    (block,) = find_blocks(read_page("docs/big_data.md"), "py")
    names = {"tgp": tgp}
    with dask.config.set(scheduler="synchronous"):
        exec(compile(block, "docs/big_data.md", "exec"), names)
    assert names["model"].table.columns == ["x", "y"]
    assert np.isfinite(names["model"].log_density(rows[:3])).all()


@pytest.mark.slow
def test_sums_are_updated_as_the_page_says():
    """``stats += rows``, ``stats.decay`` and ``stats - fold``, which the page has in its text."""
    text = read_page("docs/big_data.md")
    for words in ("`stats += rows`", "`stats.decay(0.99)`", "`stats - fold`"):
        assert words in text
    x = datasets.two_moons(600)
    features = tgp.Features.draw(20, bandwidth=0.5, covariance=np.eye(2), seed=0)
    stats, fold = tgp.accumulate(x[:300], features), tgp.accumulate(x[:100], features)
    stats += x[300:]
    assert stats.n_rows == 600
    assert (stats - fold).n_rows == 500
    assert stats.decay(0.5).n == pytest.approx(300.0)


@pytest.mark.slow
def test_the_commands_of_the_shell_run(tmp_path, monkeypatch, capsys):
    """Every line of the blocks of the command line's page, in order."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    x = datasets.two_moons(400)
    for name, rows in {"data": x, "new": x[:100], "part-1": x[:200], "part-2": x[200:]}.items():
        write_rows(f"{name}.csv", rows, ["x", "y"])
    with open("holes.csv", "w") as file:
        file.write(Path("data.csv").read_text() + "1.0,\n")
    rng = np.random.default_rng(0)
    shop = [rng.exponential(2.0, 200), rng.normal(23.0, 2.0, 200) % 24, rng.poisson(4.0, 200)]
    write_rows("shop.csv", np.column_stack(shop), ["price", "hour", "visits"])
    features = tgp.Features.draw(20, bandwidth=0.5, covariance=np.eye(2), seed=0)
    for name, rows in {"a": x[:150], "b": x[150:]}.items():
        tgp.accumulate(rows, features).save(f"{name}.npz")
    blocks = "\n".join(find_blocks(read_page("docs/command_line.md"), "sh"))
    lines = [shlex.split(line, comments=True) for line in blocks.splitlines() if line]
    assert {words[1] for words in lines} == set(COMMANDS) - {
        "demo", "paper", "warmup", "completion"
    }
    for words in lines:
        assert cli.main(words[1:]) == 0, (words, capsys.readouterr().err)
    assert tgp.load("sum.npz").n_rows == 400
    assert not Path("fit.checkpoint").exists()


def listed(module):
    """Names that the API reference lists under a module."""
    parts = re.split(r"^\.\. currentmodule:: (\S+)$", API, flags=re.MULTILINE)[1:]
    sections = zip(parts[::2], parts[1::2], strict=True)
    text = "".join(body for name, body in sections if name == module)
    return set(re.findall(r"^(?:   |\.\. py:data:: )(\w+)$", text, re.MULTILINE))


def functions_of(module):
    """Public names but for constants, such as colors, and a check that plot functions share."""
    return {name for name in module.__all__ if not name.isupper()} - {"require_matplotlib"}


def test_the_reference_lists_every_public_name():
    assert listed("tgpfast") == functions_of(tgp) | {"PAPER"}
    assert listed("tgpfast.plot") == functions_of(plot)
    assert listed("tgpfast.sklearn") == functions_of(sklearn)
    assert listed("tgpfast.datasets") == set(datasets.GENERATORS)


def test_pictures_are_small():
    """Below 100 kB each: the README shows one, and all are kept in the repository."""
    sizes = [path.stat().st_size for path in (ROOT / "docs/pictures").glob("*.png")]
    assert sizes
    assert max(sizes) < 100_000


@pytest.mark.parametrize("name", pages())
def test_links_between_pages_lead_somewhere(name):
    text = read_page(name)
    folder = (ROOT / name).parent
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
        assert (folder / target).exists(), target
