"""`tgpfast fit --checkpoint`: a fit that was stopped goes on, to the same bits."""

import numpy as np
import pytest

from tgpfast import cli, load
from tgpfast.data import checkpoint, csv, storage
from tgpfast.data.files import write_rows
from tgpfast.statistics import chunks, lattice_sums

BLOCK = 250  # rows of a block of text
N_ROWS = 1_800
COMMANDS = {  # name -> columns, options, passes in which the fit is stopped
    "lattice": (1, "", ["moments", "lattice"]),
    "lattice fd": (
        1, "--feature-kind lattice --method fd --lam 1 --gamma 0.5 --kernel gaussian --base "
        "empirical", ["lattice"],
    ),
    "map on a mixture": (
        5, "--method map --base mixture --features 30 --lam 1 --gamma scott --effort fast",
        ["moments", "feature means"],
    ),
    "fd on a mixture": (
        4, "--method fd --base mixture --features 30 --lam 1 --gamma scott --effort fast",
        ["direct", "base scores"],
    ),
    "ncfd": (
        4, "--method ncfd --features 20 --lam 1 --gamma scott --noise-levels 3 --base empirical",
        ["direct"],
    ),
    "missing and discrete": (
        4, "--method fd --features 20 --lam 1 --gamma scott --base empirical --missing drop "
        "--discrete c3", ["moments", "direct"],
    ),
}  # fmt: skip

FD = (
    "--method", "fd", "--features", 20, "--lam", 1, "--gamma", "scott", "--base", "empirical",
)  # fmt: skip


def run(*arguments):
    return cli.main([str(a) for a in (*arguments, "--threads", 1)])


@pytest.fixture
def small_blocks(monkeypatch):
    """Files of few rows have several blocks and chunks."""
    monkeypatch.setattr(csv, "BLOCK_ROWS", BLOCK)
    whole = chunks.Chunks
    monkeypatch.setattr(lattice_sums, "Chunks", lambda blocks, rows: whole(blocks, 2 * BLOCK))
    monkeypatch.setattr("tgpfast.statistics.feature_means.TERM_ROWS", 2 * BLOCK)


def write_data(path, d, seed=0, *, is_discrete=False):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N_ROWS, d)) + 3.0 * rng.integers(0, 2, (N_ROWS, 1))
    if is_discrete:
        x[:, -1] = np.rint(x[:, -1])
    write_rows(path, x, [f"c{k}" for k in range(d)])
    return x


def add_holes(path):
    """Take a value of every seventh row."""
    lines = path.read_text().splitlines()
    lines[1::7] = ["," + line.split(",", 1)[1] for line in lines[1::7]]
    path.write_text("\n".join(lines) + "\n")


def stop_in(monkeypatch, name):
    """Save after every block, and stop after the third save of a pass of this name."""
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    write, seen = storage.write, []

    def write_and_stop(path, kind, facts, arrays):
        write(path, kind, facts, arrays)
        if kind == checkpoint.CHECKPOINT_KIND and facts["passes"][-1]["name"] == name:
            seen.append(facts["passes"][-1]["n_rows"])
            if len(seen) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.storage, "write", write_and_stop)
    return seen


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.slow  # fits each model three times
def test_a_stopped_fit_goes_on_to_the_same_bits(tmp_path, monkeypatch, small_blocks, name, capsys):
    d, options, passes = COMMANDS[name]
    options = options.split()
    data, saved = tmp_path / "data.csv", tmp_path / "fit.checkpoint"
    whole, model = tmp_path / "whole.npz", tmp_path / "model.npz"
    write_data(data, d, is_discrete="discrete" in name)
    if "missing" in name:
        add_holes(data)
    assert run("fit", data, "-o", whole, "--quiet", *options) == 0
    command = ("fit", data, "-o", model, "--checkpoint", saved, *options)
    for stopped in passes:
        with monkeypatch.context() as patch:
            seen = stop_in(patch, stopped)
            assert run(*command) == 130
        assert 0 < seen[-1] < N_ROWS
        assert saved.exists()
        assert not model.exists()
    capsys.readouterr()
    parsed = count_parsed(monkeypatch)
    assert run(*command) == 0
    assert "going on after row" in capsys.readouterr().err
    assert model.read_bytes() == whole.read_bytes()
    assert not saved.exists()
    if "missing" not in name:  # such rows must be read to be counted
        assert sum(parsed) < N_ROWS * (2 if len(passes) > 1 else 3)  # not all passes over all rows


def test_rows_that_were_dropped_are_counted_once(tmp_path, monkeypatch, small_blocks, capsys):
    data, saved, model = (tmp_path / name for name in ("data.csv", "saved", "model.npz"))
    write_data(data, 4)
    add_holes(data)
    command = ("fit", data, "-o", model, "--checkpoint", saved, *FD, "--missing", "drop")
    with monkeypatch.context() as patch:
        stop_in(patch, "direct")
        assert run(*command) == 130
    assert run(*command) == 0
    assert "dropped 258 of 1,800 rows" in capsys.readouterr().err
    assert load(model).settings["n_missing"] == 258


def test_the_spectral_engine_says_that_its_sums_are_not_saved(tmp_path, capsys):
    write_data(tmp_path / "data.csv", 1)
    command = ("fit", tmp_path / "data.csv", "-o", tmp_path / "model.npz", *FD)
    command = (*command, "--engine", "spectral")
    assert run(*command) == 0
    assert "checkpoint" not in capsys.readouterr().err
    assert run(*command, "--checkpoint", tmp_path / "saved") == 0
    assert_one_line(capsys, "spectral engine", "--engine direct")


def count_parsed(monkeypatch):
    """Rows that were turned from text into numbers, window by window."""
    parsed, parse = [], csv.TextRows._parse

    def counted(self, window, *rest):
        rows = parse(self, window, *rest)
        parsed.append(len(rows))
        return rows

    monkeypatch.setattr(csv.TextRows, "_parse", counted)
    return parsed


def test_other_data_or_options_are_refused(tmp_path, monkeypatch, small_blocks, capsys):
    data, saved, model = (tmp_path / name for name in ("data.csv", "saved", "model.npz"))
    write_data(data, 4)
    command = ("fit", data, "-o", model, "--checkpoint", saved, *FD)
    with monkeypatch.context() as patch:
        stop_in(patch, "direct")
        assert run(*command) == 130
    before = saved.read_bytes()
    capsys.readouterr()
    assert run(*command, "--seed", 5) == 2
    assert_one_line(capsys, "other seed", "delete it")
    write_data(data, 4, seed=1)
    assert run(*command) == 2
    assert_one_line(capsys, "other data files", "delete it")
    assert saved.read_bytes() == before
    saved.unlink()  # the remedy
    assert run(*command) == 0
    assert run("fit", data, "-o", tmp_path / "other.npz", "--checkpoint", model, *FD) == 2
    assert_one_line(capsys, "not a checkpoint", "name another file")
    assert run("fit", "-", "-o", model, "--checkpoint", saved) == 2
    assert_one_line(capsys, "standard input", "save the rows to a file")


def assert_one_line(capsys, *parts):
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert all(part in lines[0] for part in parts), lines[0]


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "saved"
    path.write_bytes(b"no zip archive")
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.Checkpoint(path, {})


def test_complex_sums_survive_as_pairs():
    value = np.arange(6.0).reshape(2, 3) * (1 + 2j)
    np.testing.assert_array_equal(
        storage.from_reals(storage.as_reals(value), value.dtype), value
    )
