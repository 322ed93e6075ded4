"""Data files: what is read from them, and that errors name the line and the column."""

import errno
import io
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from conftest import fixed_fit

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.data import csv as text_rows
from tgpfast.data import files, storage
from tgpfast.data import parquet as parquet_rows
from tgpfast.data.blocks import Blocks

ROWS = np.array([[1.0, -2.5], [3.0, 4e-3], [5.0, 6.0]])


@pytest.fixture(autouse=True, params=["pyarrow", "numpy"])
def text_reader(request, monkeypatch):
    """Which of the two turns text into numbers."""
    if request.param == "numpy":
        monkeypatch.setattr(text_rows, "_load_arrow_csv", lambda: None)
    return request.param


def shrink_windows(monkeypatch, lines):
    """Let about so many lines of a text file be parsed at a time."""
    monkeypatch.setattr(text_rows, "LEAST_PIECE", 1)
    monkeypatch.setattr(text_rows, "PIECE_ROWS", lines)
    monkeypatch.setattr(text_rows, "WINDOW_PIECES", 1)


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def read(path):
    """All rows and the names, through the reader that everything uses."""
    blocks = Blocks(path)
    return blocks.whole(), blocks.table.columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("1,-2.5\n3,4e-3\n5,6\n", None),
        ("1,-2.5\n3,4e-3\n5,6", None),
        ("a,b\n1,-2.5\n3,4e-3\n5,6\n", ["a", "b"]),
        ("a,b\r\n1,-2.5\r\n3,4e-3\r\n5,6\r\n", ["a", "b"]),
        ("\ufeffa,b\n1,-2.5\n3,4e-3\n5,6\n", ["a", "b"]),
        ("\ufeff1,-2.5\n3,4e-3\n5,6\n", None),
        ('"a","b"\n"1","-2.5"\n3,4e-3\n5,6\n', ["a", "b"]),
        ('"a, in m","b ""x"""\n1,-2.5\n3,4e-3\n5,6\n', ["a, in m", 'b "x"']),
        ("a;b\n1;-2.5\n3;4e-3\n5;6\n", ["a", "b"]),
        ('"a,1";b\n1;-2.5\n3;4e-3\n5;6\n', ["a,1", "b"]),
        ("a\tb\n1\t-2.5\n3\t4e-3\n5\t6\n", ["a", "b"]),
        ("a b\n1 -2.5\n3   4e-3\n5 6\n", ["a", "b"]),
        ("\n\na,b\n\n1,-2.5\n  \n3,4e-3\n5,6\n\n\n", ["a", "b"]),
        ("a , b\n 1 , -2.5\n3, 4e-3\n5 ,6\n", ["a", "b"]),
        ("# a,b\n1,-2.5\n3,4e-3\n5,6\n", ["a", "b"]),
        ("# made by a machine\n# in 2020\na,b\n1,-2.5\n3,4e-3\n5,6\n", ["a", "b"]),
        ("# made by a machine\n1,-2.5\n3,4e-3\n5,6\n", None),
        ("2019,b\n1,-2.5\n3,4e-3\n5,6\n", ["2019", "b"]),
        (",b\n1,-2.5\n3,4e-3\n5,6\n", ["column_0", "b"]),
        ("é,ß\n1,-2.5\n3,4e-3\n5,6\n", ["é", "ß"]),
        ("0,1\n1,-2.5\n3,4e-3\n5,6\n", ["0", "1"]),  # as pandas numbers columns
        ("# 0,1\n1,-2.5\n3,4e-3\n5,6\n", ["0", "1"]),
    ],
)
def test_text_in_its_many_forms(tmp_path, text, columns):
    """Delimiter, header, quotes, byte order mark, line ends and blank lines are found out."""
    rows, names = read(write(tmp_path / "t.csv", text))
    np.testing.assert_array_equal(rows, ROWS)
    assert names == columns


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1], [1, 1]],  # whole numbers throughout: no sign of a header
        [[0, 2], [0.5, 1.5]],
        [[1, 2], [0.5, 1.5]],
        [[0], [0.5]],  # one column: a series may well begin at 0
    ],
)
def test_a_first_line_of_whole_numbers_is_a_row(tmp_path, rows):
    """Unless it is exactly 0, 1, ... above a row with decimals."""
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    found, names = read(write(tmp_path / "t.csv", text))
    np.testing.assert_array_equal(found, rows)
    assert names is None


def test_a_frame_without_names_written_by_pandas(tmp_path):
    """A model of the frame reads the file by the same names."""
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).standard_normal((100, 3))
    model = fixed_fit(pandas.DataFrame(x), n_features=10)
    pandas.DataFrame(x).to_csv(tmp_path / "t.csv", index=False)
    assert len(read(tmp_path / "t.csv")[0]) == 100
    found = np.asarray(model.log_density(tmp_path / "t.csv"))
    np.testing.assert_allclose(found, np.asarray(model.log_density(x)), rtol=1e-12)


def test_one_column_whose_name_has_blanks(tmp_path):
    """No delimiter and one number a line is one column."""
    rows, names = read(write(tmp_path / "t.csv", "height in cm\n1.5\n2.5\n"))
    np.testing.assert_array_equal(rows, [[1.5], [2.5]])
    assert names == ["height in cm"]


def test_numbers_at_the_edge(tmp_path):
    """Whole numbers beyond 64 bits, long exponents and 17 digits are read to the last bit."""
    cells = ["123456789012345678901234567890", "-1.7976931348623157e308", "5e-324",
             "0.1000000000000000055", "+.5", "1E+05"]  # fmt: skip
    rows, _ = read(write(tmp_path / "t.csv", ",".join(cells) + "\n"))
    np.testing.assert_array_equal(rows[0], [float(c) for c in cells])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n\n3,x\n", r"t\.csv, line 4, column 1 \('b'\): 'x' is not a number"),
        ("1,2\n3,x\n", r"line 2, column 1: 'x' is not a number"),
        ("1.5,x\n3,4\n", r"line 1, column 1: 'x' is not a number"),  # not taken for names
        ("1,NA\n3,4\n", r"line 1, column 1: a value is missing \('NA'\)"),
        ("a,b\n1,2\n,4\n", r"line 3, column 0 \('a'\): a value is missing; fill it"),
        ("a,b\n1,2\n3,nan\n", r"line 3, column 1 \('b'\): a value is missing \('nan'\)"),
        ("a,b\n1,inf\n", r"line 2, column 1 \('b'\): 'inf' is not a finite"),
        ("a,b\n1,1e400\n", r"line 2, column 1 \('b'\): '1e400' is not a finite"),
        ("a,b\n1,1_000\n", r"line 2, column 1 \('b'\): '1_000' is not a number"),
        ("a;b\n1;2,5\n", r"line 2, column 1 \('b'\): '2,5' .* decimals with a point"),
        ("a,b\n1,2\n3\n", r"line 3: 1 cells, expected 2"),
        ("a,b\n1,2,3\n4,5,6\n", r"line 2: 3 cells, expected 2"),
        ("a,b\r\n1,2\r\n\r\n3,4,5\r\n", r"line 4: 3 cells, expected 2"),
        ("a,b\n", r"t\.csv has a header and no rows"),
        ("# a,b\n", r"t\.csv holds comments and no rows"),
        ("", r"t\.csv is empty"),
        ("\n \n", r"t\.csv is empty"),
    ],
)
def test_bad_text_names_line_and_column(tmp_path, text, message):
    """What is wrong, the file's line from 1, the column by index and name, and the remedy."""
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "t.csv", text))


def test_lines_are_counted_across_windows(tmp_path, monkeypatch):
    """A bad cell in a later window is named by the line of the whole file."""
    shrink_windows(monkeypatch, 1)
    for end in ("\n", "\r\n", "\r"):
        lines = ["a,b", *["1,2"] * 14, "", *["3,4"] * 14, "5,?"]
        with pytest.raises(ValueError, match=r"line 31, column 1 \('b'\): a value is missing"):
            read(write(tmp_path / "t.csv", end.join(lines)))
        rows, _ = read(write(tmp_path / "t.csv", end.join(lines[:-1])))
        np.testing.assert_array_equal(rows, [[1.0, 2.0]] * 14 + [[3.0, 4.0]] * 14)


LINES = [
    "1,2,x", "-0.5,+.25,y z", "1e-3,2.5E+10, #", "0.1,123456789.123456789,", " 7 ,\t8\t,'",
    "-0,000000000000000000000001.5,~", "1.7976931348623157e308,5e-324,far", '"3",4,"q,q"', "5,6,é",
    "0.30000000000000004440892098500626,12345678901234567890,long", "   ", "1e-300,0e999,z",
]  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("lines_at_once", [1, 5, 1000])
@pytest.mark.parametrize("columns", [[0, 1], ["b"], ["b", "a"]])
def test_blocks_of_text_do_not_depend_on_who_reads_them(
    tmp_path, monkeypatch, end, lines_at_once, columns
):
    """Plain lines, others, and both in turn; some longer than what is held of the file."""
    monkeypatch.setattr(text_rows, "BLOCK_ROWS", 4)
    shrink_windows(monkeypatch, lines_at_once)
    rng = np.random.default_rng(5)
    for odd in (0, 1, 2, 5):
        lines = [LINES[k] for k in rng.integers(0, 7, 40)]
        for at in rng.integers(0, 40, odd):
            lines[at] = LINES[rng.integers(7, len(LINES))]
        for last in ("", end, end + end):
            path = write(tmp_path / "t.csv", end.join(["\ufeffa,b,c", *lines]) + last)
            want = [
                [float(cell.strip('"')) for cell in line.split(",")[:2]]
                for line in lines if line.strip()
            ]  # fmt: skip
            want = np.array(want)[:, [0, 1] if columns == [0, 1] else [1, 0][: len(columns)]]
            blocks = [x for x, _ in Blocks(files.Columns(path, columns), block_rows=4)]
            np.testing.assert_array_equal(np.concatenate(blocks), want)
            bits = np.concatenate(blocks).view(np.int64)
            assert np.array_equal(bits, np.ascontiguousarray(want).view(np.int64))
            assert all(len(block) == 4 for block in blocks[:-1])


def test_plain_lines_are_not_read_cell_by_cell(tmp_path, monkeypatch):
    """Only the window that has an odd line, here one of blanks, is."""
    shrink_windows(monkeypatch, 1)  # windows of four lines, as long as the first
    given, parse = [], text_rows.TextRows._parse_cells

    def seen(self, window, number):
        given.append(number)
        return parse(self, window, number)

    monkeypatch.setattr(text_rows.TextRows, "_parse_cells", seen)
    lines = ["a,b", *["1,2"] * 5, "   ", *["5,6"] * 6, ""]
    assert len(read(write(tmp_path / "t.csv", "\n".join(lines)))[0]) == 11
    assert len(given) == 1
    assert 2 < given[0] <= 7


def test_a_warning_says_what_to_install(tmp_path, monkeypatch):
    """Once, at the line that opens the file, where pyarrow is missing."""
    monkeypatch.undo()
    path = write(tmp_path / "t.csv", "a,b\n1,2\n")
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    text_rows._load_arrow_csv.cache_clear()
    try:
        with pytest.warns(tgp.FallbackWarning, match=r'install "tgpfast\[files\]"') as caught:
            np.testing.assert_array_equal(read(path)[0], [[1.0, 2.0]])
        assert caught[0].filename == __file__
        read(path)
    finally:
        text_rows._load_arrow_csv.cache_clear()


def test_reading_text_needs_no_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "load", None)  # would raise
    assert len(read(write(tmp_path / "t.csv", "1,2\n3,4\n"))[0]) == 2


@pytest.mark.parametrize("columns", [None, [0, 49_999]])
def test_a_wide_file_of_few_lines(tmp_path, columns):
    """Takes the memory of its rows, not of as many as a block may have."""
    text = "\n".join(",".join(["1"] * 49_999 + [str(k)]) for k in range(3))
    path = write(tmp_path / "t.csv", text)
    tracemalloc.start()
    try:
        rows, _ = read(path if columns is None else files.Columns(path, columns))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(rows[:, -1], [0.0, 1.0, 2.0])
    assert most < 60e6  # 16,384 such rows: 6.5 GB


@pytest.mark.parametrize("columns", [None, ["b"]])
@pytest.mark.parametrize("row", ["7", "7,8,9", "7,x", "7,"])
def test_a_bad_line_in_a_later_part_of_a_block(tmp_path, monkeypatch, row, columns):
    """Lines are parsed some at a time; each part by itself may be of one width."""
    shrink_windows(monkeypatch, 1)
    text = "a,b\n1,2\n3,4\n5,6\n\n5,6\n"
    path = write(tmp_path / "t.csv", text)
    wanted = path if columns is None else files.Columns(path, columns)
    want = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [5.0, 6.0]])
    np.testing.assert_array_equal(read(wanted)[0], want if columns is None else want[:, 1:])
    write(path, text + row + "\n")
    with pytest.raises(ValueError, match=r"t\.csv, line 7"):
        read(wanted)


@pytest.mark.parametrize("chunk", [1, 2, 100])
@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        ('a,t\n1,"q\n2,r\n3,s\n', ["a"], 2),
        ('a,t\n1,5" pipe\n2,"r\n3,s\n', ["a"], 3),
        ('a,t\n1,p\n2,r\n3, "s', ["a"], 4),
        ('a,t\n1,"q\n2,r\n3,"s\n4,u\n', ["a"], 2),  # the second quote closes the first
        ('a,t\n1,"q\n2,r"\n3,s\n', ["a"], 2),  # a cell of two lines
        ('a t\n1 "q\n2 r\n', ["a"], 2),
        ('a,"t\n1,q\n2,r\n', ["a"], 1),
        ('a,b\n1,2\n3,"4\n5,6\n', None, 3),
        ('a,b\n1,2\n3,"4\n', None, 3),
        ('a,b\n1,2\n3,"4\n"\n5,6\n', None, 3),
    ],
)
def test_a_quote_that_is_not_closed(tmp_path, monkeypatch, text, columns, line, chunk):
    """Its line is named, and no line is joined to another, wherever windows end."""
    shrink_windows(monkeypatch, chunk)
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(ValueError, match=rf"t\.csv, line {line}: a quote is not closed"):
        read(path if columns is None else files.Columns(path, columns))


def test_a_line_of_tabs_is_a_row_without_values(tmp_path):
    """As one of commas is; it is not left out in silence."""
    for name, text in (("t.tsv", "a\tb\n1\t2\n\t\n"), ("t.csv", "a,b\n1,2\n,\n")):
        with pytest.raises(ValueError, match=r"line 3, column 0 \('a'\): a value is missing"):
            read(write(tmp_path / name, text))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_that_is_not_utf8(tmp_path, encoding):
    """Said in words, not as a traceback of a decoder."""
    with pytest.raises(ValueError, match=r"t\.csv is not UTF-8 text .* save it as UTF-8"):
        read(write(tmp_path / "t.csv", "größe,b\n1,2\n", encoding))


def test_blocks_of_a_csv_can_be_read_twice(tmp_path):
    """The same rows at each pass, with names, and the rows are counted."""
    blocks = Blocks(write(tmp_path / "t.csv", "a,b\n1,-2.5\n3,4e-3\n5,6\n"))
    assert blocks.can_repeat
    first, second = blocks.whole(), blocks.whole()
    np.testing.assert_array_equal(first, ROWS)
    np.testing.assert_array_equal(second, ROWS)
    assert blocks.table.columns == ["a", "b"]
    assert blocks.n_rows == 3


# -- columns -------------------------------------------------------------------------------------

WIDE = "id,a,b,c\nx1,1,2,3\nx2,4,5,6\n"


@pytest.mark.parametrize(
    ("columns", "rows", "names"),
    [
        (["a", "c"], [[1, 3], [4, 6]], ["a", "c"]),
        (["c", "a"], [[3, 1], [6, 4]], ["c", "a"]),
        ([2], [[2], [5]], ["b"]),
        (["3", "b"], [[3, 2], [6, 5]], ["c", "b"]),
    ],
)
def test_columns_of_a_csv(tmp_path, columns, rows, names):
    """Chosen by name or index, in the order asked for; text elsewhere does not matter."""
    found, have = read(files.Columns(write(tmp_path / "t.csv", WIDE), columns))
    np.testing.assert_array_equal(found, rows)
    assert have == names


@pytest.mark.parametrize("columns", [[0, 2], [2, 0], [1], [3, 1, 0], [0, 1, 2, 3]])
def test_columns_of_an_array(tmp_path, columns, monkeypatch):
    """The same columns, as a view or as a stream of blocks."""
    monkeypatch.setattr(files, "BLOCK_ROWS", 3)
    x = np.arange(28.0).reshape(7, 4)
    np.save(tmp_path / "x.npy", x)
    rows, names = read(files.Columns(tmp_path / "x.npy", columns))
    np.testing.assert_array_equal(rows, x[:, columns])
    assert names is None


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (WIDE, ["d"], r"t\.csv has no column 'd'; it has id, a, b, c \(indices 0 to 3\)"),
        (WIDE, ["4"], r"no column '4'"),
        (WIDE, ["-1"], r"no column '-1'"),
        (WIDE, ["a", "1"], r"column 'a' of t\.csv was asked for twice"),
        (WIDE, ["id", "a"], r"line 2, column 0 \('id'\): 'x1' is not a number"),
        ("1,2\n3,4\n", ["a"], r"no column 'a'; it has indices 0 to 1, no names"),
        ("a,a\n1,2\n", ["a"], r"2 columns named 'a'; give their indices, 0 or 1"),
        (WIDE + "x3,7,8,9,10\n", ["a"], r"line 4: 5 cells, expected 4"),
        (WIDE + "x3,7\n", ["a"], r"line 4: 2 cells, expected 4"),
        (WIDE, [], r"at least one"),
    ],
)
def test_columns_that_cannot_be_had(tmp_path, text, columns, message):
    """The file's columns are listed; rows of another width are refused though unused."""
    with pytest.raises(ValueError, match=message):
        read(files.Columns(write(tmp_path / "t.csv", text), columns))


def test_a_quoted_delimiter_is_no_extra_cell(tmp_path):
    """The quick count of delimiters is not the last word on a row's width."""
    path = write(tmp_path / "t.csv", 'id,a\n"x, y",1\n"z",2\n')
    np.testing.assert_array_equal(read(files.Columns(path, ["a"]))[0], [[1.0], [2.0]])


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('t,a,b\n 5" pipe,1,2\n6" x 7",3,4\n', [[1, 2], [3, 4]]),  # no quote begins the cell
        ('t,a,b\n"p ""q"", r",1,2\n"","3",4\n', [[1, 2], [3, 4]]),
        ('t,u,a,b\nx, "p,7,8",1,2\n "y,9",z, 3, "4"\n', [[1, 2], [3, 4]]),
        ('t a b\n"p 7" 1  2\n  q 3 "4"\n', [[1, 2], [3, 4]]),
    ],
)
def test_quotes_and_the_cells_after_them(tmp_path, text, rows):
    """A cell is the same for the parser and for the check of widths, with blanks before a quote."""
    path = files.Columns(write(tmp_path / "t.csv", text), ["a", "b"])
    np.testing.assert_array_equal(read(path)[0], rows)


def test_a_quoted_delimiter_does_not_fill_a_short_row(tmp_path):
    """Though the number of delimiters is right."""
    path = write(tmp_path / "t.csv", 't,a,b\nx,1,2\n"x,y",3\n')
    with pytest.raises(ValueError, match="line 3: 2 cells, expected 3"):
        read(files.Columns(path, ["a"]))


def test_a_very_long_cell(tmp_path, text_reader):
    """Is passed over, or refused by the file's name where Python must look at its quotes."""
    path = tmp_path / "t.csv"
    for quote in ("", '"'):
        write(path, f"a,t\n1,{quote}{'x' * 140_000}{quote}\n")
        if quote or text_reader == "numpy":
            with pytest.raises(ValueError, match=r"t\.csv cannot be read: field larger than"):
                read(files.Columns(path, ["a"]))
        else:
            np.testing.assert_array_equal(read(files.Columns(path, ["a"]))[0], [[1.0]])


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


# -- npy and npz ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "f4", ">f8", "i2", "u8", "?"])
def test_npy_of_numbers(tmp_path, dtype):
    """Any real dtype; the file is mapped."""
    x = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    rows, names = read(tmp_path / "x.npy")
    np.testing.assert_array_equal(rows, x.astype(float))
    assert names is None
    assert isinstance(files.open_rows(tmp_path / "x.npy")[0], np.memmap)


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (np.array([[1j]]), TypeError, "dtype complex128; expected real numbers"),
        (np.array([["a"]]), TypeError, "expected real numbers"),
        (np.array([[1, None]]), ValueError, "holds Python objects"),
        (np.zeros(2, dtype=[("a", "f8")]), TypeError, r"structured array \(a\)"),
        (np.zeros((2, 2, 2)), ValueError, r"shape \(2, 2, 2\); expected \(rows, columns\)"),
    ],
)
def test_npy_of_something_else(tmp_path, array, kind, message):
    """The dtype or shape found, and what was expected."""
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(kind, match=r"x\.npy.*" + message):
        read(tmp_path / "x.npy")


def test_npy_that_is_damaged(tmp_path):
    """Empty, of another kind, cut short, or an archive under the wrong name."""
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((100, 2)))
    whole = path.read_bytes()
    for content, message in (
        (b"", "is not an npy file: it is empty"), (b"1,2\n3,4\n", "is not an npy file"),
        (whole[:900], "damaged or cut short"), (whole[:20], "damaged or cut short"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(path)
    np.savez(tmp_path / "x.npz", X=ROWS)
    path.write_bytes((tmp_path / "x.npz").read_bytes())
    with pytest.raises(ValueError, match=r"npz archive; give it the extension \.npz"):
        read(path)


@pytest.mark.parametrize(
    ("arrays", "names"),
    [
        ({"anything": ROWS}, None),
        ({"X": ROWS, "other": np.zeros((4, 4))}, None),
        ({"data": ROWS, "labels": np.zeros(3)}, None),
        ({"X": ROWS, "columns": np.array(["a", "b"])}, ["a", "b"]),
        ({"X": ROWS, "columns": np.array(["a", "b", "c"])}, None),  # not of these columns
        ({"X": ROWS, "objects": np.array([None], dtype=object)}, None),  # never loaded
    ],
)
def test_npz_takes_the_table(tmp_path, arrays, names):
    """The only table, or the one named X; names beside it where they fit."""
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        rows, columns = read(tmp_path / "x.npz")
        np.testing.assert_array_equal(rows, ROWS)
        assert columns == names


def npy_bytes(shape, content=b"\0" * 24):
    """An npy file whose header promises float64 of this shape."""
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + content


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [(2**43, 2), (2**31, 2**31), (4,), (1, 2), (2**70, 3)])
def test_npz_that_promises_more_than_it_holds(tmp_path, shape, compression):
    """146 TiB, say: no memory is asked for."""
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("X.npy", npy_bytes(shape))
    with pytest.raises(ValueError, match=r"x\.npz cannot be read: .*X.*24.*numpy\.savez"):
        read(path)
    with pytest.raises(ValueError, match=r"x\.npz cannot be read"):
        tgp.fit(path)


def test_npz_whose_directory_promises_too_much(tmp_path):
    """The directory of the archive may be as wrong as the array's header."""
    path, size = tmp_path / "x.npz", 2**31
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", npy_bytes((size // 8, 1)))
        archive.infolist()[0].file_size = len(npy_bytes((1,), b"")) + size
    with pytest.raises(ValueError, match=r"x\.npz cannot be read: .* compressed bytes can hold"):
        read(path)


@pytest.mark.parametrize("shape", [(2**43, 2), (2**70, 3)])
def test_npy_that_promises_more_than_it_holds(tmp_path, shape):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_bytes(shape))
    with pytest.raises(ValueError, match=r"x\.npy is damaged or cut short"):
        read(path)


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_random_damage_of_a_binary_file_is_a_value_error(tmp_path, name):
    rng, path = np.random.default_rng(5), tmp_path / name
    np.save(path, ROWS) if name == "x.npy" else np.savez(path, X=ROWS)
    whole, refused = path.read_bytes(), 0
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(content) if name == "x.npz" else 128)
            content[at] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        try:
            read(path)
        except (ValueError, TypeError):
            refused += 1
    assert refused >= 75


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


def test_npz_without_one_table(tmp_path):
    """What the archive holds is listed; a saved model is recognised; a damaged file is said so."""
    path = tmp_path / "x.npz"
    np.savez(path, a=ROWS, b=ROWS)
    with pytest.raises(ValueError, match=r"expected one .* or one named X; it holds a \(3, 2\), b"):
        read(path)
    np.savez(path, a=np.array(["x"]))
    with pytest.raises(ValueError, match="expected one two-dimensional"):
        read(path)
    tgp.Statistics.zero(tgp.Features.draw(3, 1.0, np.eye(2), seed=0)).save(path)
    with pytest.raises(ValueError, match="saved by tgpfast, not a data file"):
        read(path)
    whole = path.read_bytes()
    for content in (whole[:200], b"", b"PK\x03\x04 nothing"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.npz cannot be read"):
            read(path)


# -- parquet -------------------------------------------------------------------------------------


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
