"""Data files of every format: selected columns, paths, and files that are written."""

import errno
import json

import numpy as np
import pytest
from conftest import fixed_fit
from file_helpers import ROWS, read, write

from tgpfast.data import files, storage
from tgpfast.data.blocks import Blocks


@pytest.mark.parametrize("columns", [[0, 2], [2, 0], [1], [3, 1, 0], [0, 1, 2, 3]])
def test_columns_of_an_array(tmp_path, columns, monkeypatch):
    """The same columns, as a view or as a stream of blocks."""
    monkeypatch.setattr(files, "BLOCK_ROWS", 3)
    x = np.arange(28.0).reshape(7, 4)
    np.save(tmp_path / "x.npy", x)
    rows, names = read(files.Columns(tmp_path / "x.npy", columns))
    np.testing.assert_array_equal(rows, x[:, columns])
    assert names is None


def test_names_of_digits_are_no_positions(tmp_path):
    """Columns that a model knows by name are asked for by name alone; a user's may be indices."""
    path = write(tmp_path / "t.csv", "a,b\n1,2\n")
    np.savez(tmp_path / "t.npz", X=[[1.0, 2.0]], columns=["a", "b"])
    for file in (path, tmp_path / "t.npz"):
        with pytest.raises(ValueError, match=r"lacks the columns \['1', '0'\]; it has \['a', 'b'"):
            Blocks(file, columns=["1", "0"])
    np.testing.assert_array_equal(read(files.Columns(path, [1, 0]))[0], [[2.0, 1.0]])
    path = write(tmp_path / "t.csv", "x,0,1\nt,3,4\n")
    np.testing.assert_array_equal(Blocks(path, columns=["1", "0"]).whole(), [[4.0, 3.0]])


def test_names_are_sought_among_the_chosen_columns(tmp_path):
    """Not in the rest of the file."""
    path = files.Columns(write(tmp_path / "t.csv", "a,a,b,c\n1,2,3,4\n"), [1, "b"])
    np.testing.assert_array_equal(Blocks(path, columns=["b", "a"]).whole(), [[3.0, 2.0]])
    with pytest.raises(ValueError, match=r"t\.csv lacks the columns \['c'\]; it has \['a', 'b'\]"):
        Blocks(path, columns=["a", "c"])


# -- paths and output ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none.csv", "none.npy", "none.npz", "none.xls"])
def test_a_missing_file(tmp_path, name):
    """Named as it was given."""
    with pytest.raises(FileNotFoundError, match=rf"no such file: .*{name}"):
        read(tmp_path / name)


def test_folders_and_unknown_endings(tmp_path):
    """Neither is opened."""
    with pytest.raises(ValueError, match="is a folder"):
        read(tmp_path)
    for name, message in (("x.xls", r"unknown format '\.xls'"), ("x", "no extension")):
        (tmp_path / name).write_text("1,2\n")
        with pytest.raises(ValueError, match=message + r"; expected one of \.npy"):
            read(tmp_path / name)


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.txt", "x.npy", "x.NPY", "x.CSV"])
def test_written_rows_are_read_back_to_the_bit(tmp_path, name):
    """Names with delimiters, quotes and letters of any script included."""
    rows = np.random.default_rng(0).standard_normal((20, 2)) * [1e-300, 1e17]
    columns = None if name.lower().endswith("npy") else ['a, "b"\t', "größe"]
    files.write_rows(tmp_path / name, rows, columns)
    found, names = read(tmp_path / name)
    np.testing.assert_array_equal(found, rows)
    assert names == (None if columns is None else ['a, "b"', "größe"])  # blanks at ends go
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_json_files_hold_a_list_of_rows(tmp_path):
    path = tmp_path / "x.json"
    files.write_rows(path, [[1.0, np.nan], [0.1, -np.inf]], ["a", "größe"])
    rows = [{"a": 1.0, "größe": None}, {"a": 0.1, "größe": None}]
    assert json.loads(path.read_text(encoding="utf-8")) == rows
    for given, expected in ((np.arange(2.0), [[0.0], [1.0]]), (np.empty((0, 2)), [])):
        files.write_rows(path, given, None)
        assert json.loads(path.read_text(encoding="utf-8")) == expected


def test_a_set_of_files_is_one_table(tmp_path):
    """Formats may differ; columns are matched by name, and a file that lacks one is refused."""
    pytest.importorskip("pyarrow")
    rows = np.random.default_rng(0).standard_normal((30, 3))
    paths = [tmp_path / name for name in ("a.csv", "b.parquet", "c.tsv")]
    files.write_rows(paths[0], rows[:10], ["x", "y", "z"])
    files.write_rows(paths[1], rows[10:20, ::-1], ["z", "y", "x"])
    files.write_rows(paths[2], rows[20:, [1, 0, 2]], ["y", "x", "z"])
    blocks = Blocks(files.FileSet(paths, ["z", "x"]))
    np.testing.assert_array_equal(blocks.whole(), rows[:, [2, 0]])
    assert (blocks.table.columns, blocks.can_repeat) == (["z", "x"], True)
    files.write_rows(paths[2], rows, ["y", "x", "w"])
    with pytest.raises(ValueError, match=r"c\.tsv lacks the columns \['z'\]"):
        Blocks(files.FileSet(paths))
    with pytest.raises(ValueError, match="at least one file"):
        files.FileSet([])


def test_output_is_judged_before_work_starts(tmp_path):
    """Unknown format, no such folder, a folder."""
    (tmp_path / "d.csv").mkdir()
    for name, kind, message in (
        ("x.xls", ValueError, r"'\.xls'; expected one of \.npy"),
        ("x", ValueError, "the name has no extension"),
        ("no/x.csv", FileNotFoundError, "no such folder"), ("d.csv", ValueError, "is a folder"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            files.write_rows(tmp_path / name, ROWS, None)


@pytest.mark.parametrize("name", ["x.npy", "x.csv", "x.tsv"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, name):
    """A disk that fills up on the way."""
    path = tmp_path / name
    files.write_rows(path, ROWS, ["a", "b"])
    before = path.read_bytes()
    np.testing.assert_array_equal(read(path)[0], ROWS)

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        files.write_rows(path, ROWS[:1], ["a", "b"])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [name]


# -- through fit ---------------------------------------------------------------------------------


def test_fit_and_log_density_of_paths(tmp_path):
    """A path gives what the array gives, bit by bit, for csv and npy."""
    x = np.random.default_rng(1).standard_normal((200, 2)) @ [[1.0, 0.3], [0.0, 0.5]]
    expected = fixed_fit(x, n_features=20).log_density(x)
    for name in ("x.csv", "x.npy"):
        path = tmp_path / name
        files.write_rows(path, x, ["u", "v"])
        for given in (path, str(path)):
            model = fixed_fit(given, n_features=20)
            np.testing.assert_array_equal(model.log_density(given), expected)
        assert model.table.columns == (["u", "v"] if name == "x.csv" else None)
        assert model.sample(3).shape == (3, 2)
