"""Parquet files: types, names, an index, columns of text, damage."""

import sys

import numpy as np
import pytest
from conftest import fixed_fit
from file_helpers import ROWS, read

from tgpfast.data import files
from tgpfast.data import parquet as parquet_rows
from tgpfast.data.blocks import Blocks


@pytest.fixture
def polars():
    """Polars, which writes the files that pyarrow reads."""
    pytest.importorskip("pyarrow.parquet")
    return pytest.importorskip("polars")


def test_parquet(tmp_path, polars):
    """Names, rows and chosen columns; a column of text and a file of another kind are named."""
    path = tmp_path / "x.parquet"
    frame = polars.DataFrame({"id": ["p", "q", "r"], "a": ROWS[:, 0], "b": [1, 2, 3]})
    frame.write_parquet(path)
    rows, names = read(files.Columns(path, ["b", "a"]))
    np.testing.assert_array_equal(rows, np.column_stack([[1, 2, 3], ROWS[:, 0]]))
    assert names == ["b", "a"]
    assert files.columns_of(path) == (["id", "a", "b"], 3)
    with pytest.raises(TypeError, match=r"x\.parquet: column 'id' is of type large_string"):
        read(path)
    path.write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"x\.parquet is not a parquet file"):
        read(path)


@pytest.mark.parametrize("whole", [0, parquet_rows.HELD_BYTES])
def test_flags_in_a_parquet_file(tmp_path, monkeypatch, polars, whole):
    """Are 0 and 1 beside numbers; a missing one is named."""
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", whole)
    data = {"a": ROWS[:, 0], "f": [True, False, True], "k": [7, 8, 9]}
    polars.DataFrame(data).write_parquet(tmp_path / "x.parquet", row_group_size=2)
    expected = np.column_stack([ROWS[:, 0], [1, 0, 1], [7, 8, 9]])
    np.testing.assert_array_equal(read(tmp_path / "x.parquet")[0], expected)
    np.testing.assert_array_equal(Blocks(tmp_path / "x.parquet").pilot(3)[0], expected)
    data = {"f": [True, None, True], "k": [7, 8, 9]}
    polars.DataFrame(data).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"nan at row 1, column 0 \('f'\)"):
        read(tmp_path / "x.parquet")


@pytest.mark.parametrize("whole", [0, parquet_rows.HELD_BYTES])
def test_every_type_of_number_in_a_parquet_file(tmp_path, monkeypatch, polars, whole):
    """Is float64 to us, rounded where it must be; a name may begin as another does."""
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", whole)
    large = 2**63 - 1
    data = {
        "a": polars.Series([1, -2, 3], dtype=polars.Int8),
        "a.b": polars.Series([large, 0, -large], dtype=polars.Int64),
        "u": polars.Series([2 * large, 7, 0], dtype=polars.UInt64),
        "f": polars.Series([0.1, 1e30, -2.5], dtype=polars.Float32),
        "g": [0.1, 1e300, -5e-324],
    }
    polars.DataFrame(data).write_parquet(tmp_path / "x.parquet")
    expected = np.column_stack([np.array(list(column), dtype=float) for column in data.values()])
    rows, names = read(tmp_path / "x.parquet")
    np.testing.assert_array_equal(rows, expected)
    assert names == list(data)
    one = files.Columns(tmp_path / "x.parquet", ["a"])
    np.testing.assert_array_equal(read(one)[0], expected[:, :1])


def test_a_parquet_file_with_a_colon_in_its_name(tmp_path, monkeypatch, polars):
    """Is a file, no address."""
    monkeypatch.chdir(tmp_path)
    for name in ("run12:30.parquet", "s3:x.parquet"):
        polars.DataFrame({"a": ROWS[:, 0]}).write_parquet(tmp_path / name)
        np.testing.assert_array_equal(read(name)[0][:, 0], ROWS[:, 0])


def test_an_index_in_a_parquet_file(tmp_path):
    """Of a pandas frame: no column of it, but one that can be asked for."""
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    path, index = tmp_path / "x.parquet", pandas.Index([0.5, 1.5, 2.5], name="t")
    pandas.DataFrame(ROWS, columns=["a", "b"], index=index).to_parquet(path)
    rows, names = read(path)
    np.testing.assert_array_equal(rows, ROWS)
    assert (names, files.columns_of(path)) == (["a", "b"], (["a", "b"], 2))
    rows, names = read(files.Columns(path, ["t", "a"]))
    np.testing.assert_array_equal(rows, np.column_stack([index, ROWS[:, 0]]))
    assert names == ["t", "a"]
    np.testing.assert_array_equal(Blocks(path, columns=["b", "t"]).whole()[:, 1], index)


def test_columns_of_one_name_in_a_parquet_file(tmp_path):
    """Cannot be told apart; others are read."""
    arrow = pytest.importorskip("pyarrow")
    parquet, path = pytest.importorskip("pyarrow.parquet"), tmp_path / "x.parquet"
    columns = [arrow.array(column) for column in (*ROWS.T, ROWS[:, 0])]
    parquet.write_table(arrow.Table.from_arrays(columns, ["a", "b", "a"]), path)
    np.testing.assert_array_equal(read(files.Columns(path, ["b"]))[0], ROWS[:, 1:])
    for given in (path, files.Columns(path, [0]), files.Columns(path, [1, 2])):
        with pytest.raises(ValueError, match=r"x\.parquet has 2 columns named 'a'.*; rename them"):
            read(given)
    with pytest.raises(ValueError, match=r"2 columns named 'a'; give their indices"):
        read(files.Columns(path, ["a"]))


def test_names_that_look_like_patterns(tmp_path, polars):
    data = {"^a$": [1.0, 2.0], "a": [3.0, 4.0], "*": [5.0, 6.0]}
    polars.DataFrame(data).write_parquet(tmp_path / "x.parquet")
    for name, values in data.items():
        found = read(files.Columns(tmp_path / "x.parquet", [name]))
        np.testing.assert_array_equal(found[0][:, 0], values)
        assert found[1] == [name]


def test_a_parquet_file_is_small_by_its_rows(tmp_path, monkeypatch):
    """Not by its bytes, which may be few for many rows."""
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": np.zeros(100_000)}).write_parquet(tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 50_000
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", 799_999)
    assert not files.open_rows(tmp_path / "x.parquet")[0].is_small
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", 800_000)
    assert files.open_rows(tmp_path / "x.parquet")[0].is_small


def test_parquet_without_a_library_of_frames(tmp_path, monkeypatch):
    """Pyarrow alone reads it, and results are arrays."""
    pytest.importorskip("polars").DataFrame({"a": ROWS[:, 0]}).write_parquet(tmp_path / "x.parquet")
    pytest.importorskip("pyarrow")
    for name in ("polars", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    table = Blocks(tmp_path / "x.parquet").table
    assert (table.columns, table.kind) == (["a"], "array")


@pytest.mark.parametrize("whole", [0, parquet_rows.HELD_BYTES])
def test_a_column_of_text_that_a_model_does_not_know(tmp_path, monkeypatch, polars, whole):
    """Is left unread in parquet and csv, as in a frame; what is lacking is named."""
    monkeypatch.setattr(parquet_rows, "HELD_BYTES", whole)
    x = np.random.default_rng(1).standard_normal((100, 2))
    frame = polars.DataFrame({" b": x[:, 1], "c": ["p"] * 100, "a": x[:, 0]})
    frame.write_parquet(tmp_path / "x.parquet")
    frame.rename({" b": "b"}).write_csv(tmp_path / "x.csv")
    for name, columns in (("x.parquet", ["a", " b"]), ("x.csv", ["a", "b"])):
        model = fixed_fit(polars.DataFrame(x, schema=columns), n_features=10)
        found = np.asarray(model.log_density(tmp_path / name))
        np.testing.assert_array_equal(found, np.asarray(model.log_density(x)))
        with pytest.raises(ValueError, match=rf"{name} lacks the columns \['d'\]"):
            Blocks(tmp_path / name, columns=["a", "d"])


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    """The error says what to install."""
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'pip install "tgpfast\[files\]"'):
        read(tmp_path / "x.parquet")


def test_random_damage_of_a_parquet_file_is_a_value_error(tmp_path, polars):
    rng, path = np.random.default_rng(5), tmp_path / "x.parquet"
    polars.DataFrame({"a": ROWS[:, 0]}).write_parquet(path)
    whole = path.read_bytes()
    for _ in range(40):
        content = bytearray(whole)
        content[rng.integers(len(content) - 60, len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        try:
            files.columns_of(path)
        except ValueError as error:
            assert "x.parquet is not a parquet file" in str(error)  # noqa: PT017
