"""Text files: what is read from them, and that errors name the line and the column."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import fixed_fit, slow
from file_helpers import ROWS, read, write

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.data import csv as text_rows
from tgpfast.data import files
from tgpfast.data.blocks import Blocks


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


@pytest.mark.slow
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


def test_a_large_file_is_read_in_windows(tmp_path, monkeypatch):
    """Neither the bytes held at a time nor the rows of a block grow with the file."""
    monkeypatch.setattr(text_rows, "LEAST_PIECE", 1_000)
    monkeypatch.setattr(text_rows, "MOST_PIECE", 1_000)
    monkeypatch.setattr(text_rows, "BLOCK_ROWS", 512)
    x = np.random.default_rng(3).standard_normal((5_000, 3))
    np.savetxt(tmp_path / "t.csv", x, delimiter=",", fmt="%.17g")
    sizes, parse = [], text_rows.TextRows._parse

    def seen(self, window, *rest):
        sizes.append(len(window))
        return parse(self, window, *rest)

    monkeypatch.setattr(text_rows.TextRows, "_parse", seen)
    blocks = [rows for rows, _ in Blocks(tmp_path / "t.csv", block_rows=512)]
    np.testing.assert_array_equal(np.concatenate(blocks), x)
    assert [len(rows) for rows in blocks[:-1]] == [512] * (len(blocks) - 1)
    assert len(sizes) > 30
    assert max(sizes) <= text_rows.WINDOW_PIECES * 1_000 + 100


def test_a_warning_says_what_to_install(tmp_path, monkeypatch):
    """Once, at the line that opens the file, where pyarrow is missing."""
    monkeypatch.undo()
    path = write(tmp_path / "t.csv", "a,b\n1,2\n")
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    text_rows._load_arrow_csv.cache_clear()
    try:
        with pytest.warns(tgp.FallbackWarning, match=r'install "tgpfast\[files\]"') as caught:
            np.testing.assert_array_equal(Blocks(path).whole(), [[1.0, 2.0]])
        assert caught[0].filename == __file__
        read(path)
    finally:
        text_rows._load_arrow_csv.cache_clear()


def test_reading_text_needs_no_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "load", None)  # would raise
    assert len(read(write(tmp_path / "t.csv", "1,2\n3,4\n"))[0]) == 2


@pytest.mark.parametrize("columns", [slow(None), [0, 49_999]])
def test_a_wide_file_of_few_lines(tmp_path, text_reader, columns):
    """Takes the memory of its rows, not of as many as a block may have: 16,384 would take 6.5 GB.

    The peak is that of another process: stopping tracemalloc while threads run can crash Python.
    """
    text = "\n".join(",".join(["1"] * 49_999 + [str(k)]) for k in range(3))
    path = write(tmp_path / "t.csv", text)
    code = f"""
import resource
from tgpfast.data import csv, files
from tgpfast.data.blocks import Blocks
if {text_reader!r} == "numpy":
    csv._load_arrow_csv = lambda: None
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source = {str(path)!r} if {columns} is None else files.Columns({str(path)!r}, {columns})
print(*Blocks(source).whole()[:, -1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    last, kilobytes = ended.stdout.splitlines()
    assert last == "0.0 1.0 2.0"
    assert int(kilobytes) < 2_000_000


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
