"""Rows of text files: csv, tsv and columns between blanks, streamed in bounded memory.

pyarrow turns text into numbers. Where pyarrow is not installed, numpy does, several times slower.
Either one gets a few megabytes of whole lines at a time. What it refuses is read cell by cell in
Python, which accepts it or names the line, the column and the fault.
"""

from __future__ import annotations

import codecs
import csv
import functools
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.warnings import FallbackWarning, warn
from ..validation import Array
from .arrow import ArrowFrame
from .table import BLOCK_ROWS

# Bytes that a thread of pyarrow parses at a time: fewer cost too many calls, more leave the cache.
LEAST_PIECE, MOST_PIECE = 2**18, 2**22
PIECE_ROWS = 256  # rows of a piece where lines are long: pyarrow has a cost for each column
WINDOW_PIECES = 8  # pieces that are read from the file, and parsed in parallel, at a time
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "-"))  # in lower case
# The same as pyarrow needs them, which compares case by case.
MISSING_CELLS = [cell for word in sorted(MISSING)
                 for cell in (word, word.upper(), word.capitalize())] + ["NaN"]  # fmt: skip
UNCLOSED = "a quote is not closed; close it on the same line, or drop the line"


class TextRows:
    """The rows of a text file as blocks of numbers; each call reads the file again.

    A row is one line: a quoted cell cannot go on in the next line. Blank lines are skipped, and so
    are lines before the first row that begin with "#". The first line that is left is a header if
    it has a cell of text and no number with decimals. A header is also a line of exactly
    0, 1, ..., d - 1 (d of at least 2) above a row that has decimals: pandas writes this for a frame
    without names. Without a header, a comment with as many cells as the first row gives the names,
    as ``numpy.savetxt(header=...)`` writes them.

    Parameters
    ----------
    file : Path
    delimiter : str or None
        None takes the first of tab, semicolon and comma in the first line outside of quotes. If
        there is none of them, blanks delimit the cells.

    Attributes
    ----------
    names : list of str, or None
        Names of the selected columns; None where the file has no header.
    columns : list of int
        The selected columns: those to read, in this order; all at first. The others may hold text.
    width : int
        Number of columns of the file.
    keeps_missing : bool, default False
        Whether cells without a value are nan; they are an error otherwise.

    Raises
    ------
    ValueError
        If the file is empty, not UTF-8, or has an unclosed quote in its header. The blocks raise
        it for lines of another width and cells that are not finite numbers.
    """

    def __init__(self, file: Path, delimiter: str | None) -> None:
        self.keeps_missing = False
        _load_arrow_csv()  # warns here, in the caller's thread, where pyarrow is missing
        self.file, self.delimiter = file, delimiter
        self._offset, self._first_line = 0, 1  # of the first row
        with file.open("rb") as stream:
            if stream.read(3) == codecs.BOM_UTF8:
                self._offset = 3
        header, first = self._find_first_row()
        self._line_bytes = max(len(header), len(first))
        cells = self._split(header or first)
        if header and first and self.delimiter is None and len(self._split(first)) == 1:
            cells = [header.strip().strip('"')]  # one column, with blanks in its name
        self.width = len(cells)
        self.columns = list(range(self.width))
        self._all_names = None
        if header:
            self._all_names = [name or f"column_{k}" for k, name in enumerate(cells)]

    @property
    def names(self) -> list[str] | None:
        """Names of the selected columns; None where the file has no header."""
        return None if self._all_names is None else [self._all_names[k] for k in self.columns]

    @property
    def n_columns(self) -> int:
        """Number of the selected columns."""
        return len(self.columns)

    def __call__(self) -> Iterator[Array]:
        """Yield all rows in blocks of BLOCK_ROWS; the last block may be shorter."""
        return _regroup(self._parse_all(), BLOCK_ROWS)

    # -- the first lines

    def _find_first_row(self) -> tuple[str, str]:
        """Return the lines of the header and of the first row, each "" where there is none."""
        comment, lines = "", self._beginning()
        for number, start, stop, line in lines:
            if line.lstrip().startswith("#"):
                comment = line.strip().lstrip("#").strip()
                continue
            if self.delimiter is None:
                self.delimiter = _find_delimiter(line)
            cells = self._split(line)
            second = next((text for *_, text in lines), "")  # of the line below
            if _are_names(cells) or (
                _are_numbers_of_columns(cells) and any(map(_has_decimals, self._split(second)))
            ):
                if self._is_open(line):
                    raise ValueError(f"{self.file.name}, line {number}: {UNCLOSED}")
                self._offset, self._first_line = stop, number + 1
                return line, second
            self._offset, self._first_line = start, number
            has_names = comment and len(self._split(comment)) == len(cells)
            return comment if has_names else "", line
        held = "holds comments and no rows" if comment else "is empty; expected rows of numbers"
        raise ValueError(f"{self.file.name} {held}")

    def _beginning(self) -> Iterator[tuple[int, int, int, str]]:
        """Yield (number from 1, first byte, byte after the last, text) of lines that are not
        blank."""
        number, at = 0, self._offset
        for window in self._windows(LEAST_PIECE):
            for raw in window.splitlines(keepends=True):
                number, start, at = number + 1, at, at + len(raw)
                line = raw.decode().strip("\r\n")
                if not self._is_blank(line):
                    yield number, start, at, line

    # -- bytes

    def _windows(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of whole lines, about ``size`` of them at a time, or one longer line."""
        with self.file.open("rb") as stream:
            stream.seek(self._offset)
            rest = b""
            while piece := stream.read(size):
                window = rest + piece
                end = window.rfind(b"\n") + 1 or window.rfind(b"\r", 0, -1) + 1
                rest = window[end:]
                if end:
                    yield self._check_utf8(window[:end])
            if rest:
                yield self._check_utf8(rest) + b"\n"

    def _check_utf8(self, window: bytes) -> bytes:
        if not window.isascii():
            try:
                window.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self.file.name} is not UTF-8 text (byte {window[error.start]:#04x}: "
                    f"{error.reason}); save it as UTF-8"
                ) from None
        return window

    # -- numbers

    def _parse_all(self) -> Iterator[Array]:
        """Yield the rows of one window after the other."""
        piece = max(min(PIECE_ROWS * self._line_bytes, MOST_PIECE), LEAST_PIECE)
        piece = max(piece, 4 * self._line_bytes)  # pyarrow refuses lines longer than a piece
        parse = self._make_arrow_parser(piece) if _load_arrow_csv() else self._parse_by_numpy
        number, is_empty = self._first_line, True
        for window in self._windows(WINDOW_PIECES * piece):
            rows = self._parse(window, number, parse)
            number += _count_lines(window)
            is_empty = is_empty and not len(rows)
            yield rows
        if is_empty:
            raise ValueError(f"{self.file.name} has a header and no rows below it; add some")

    def _parse(self, window: bytes, number: int, parse: Callable[[bytes], Array]) -> Array:
        """Return the rows of a window, whose first line has this number."""
        n_lines = None
        if b'"' in window:  # one that is not closed would join lines
            lines = [line for line in map(bytes.decode, window.splitlines())
                     if not self._is_blank(line)]  # fmt: skip
            n_lines = len(lines)
            if self._is_open(lines[-1]):
                return self._parse_cells(window, number)
        if self.delimiter is None:
            window = b"".join(b" ".join(line.split()) + b"\n" for line in window.splitlines())
        elif n_lines is not None:  # the parsers do not expect blanks before a quote
            window = re.sub(rb"(?m)(^|" + self.delimiter.encode() + rb') +"', rb'\1"', window)
        try:
            rows = parse(window)
        except ValueError:  # the parent of pyarrow's errors too
            return self._parse_cells(window, number)
        is_right = rows.shape[1] == self.n_columns and n_lines in (None, len(rows))
        is_number = np.isfinite(rows)
        if is_right and (is_number.all() or (self.keeps_missing and not np.isinf(rows).any())):
            return rows
        return self._parse_cells(window, number)

    def _make_arrow_parser(self, piece: int) -> Callable[[bytes], Array]:
        arrow, arrow_csv = importlib.import_module("pyarrow"), _load_arrow_csv()
        names = [f"f{k}" for k in range(self.width)]
        wanted = [names[k] for k in self.columns]
        options = {
            "read_options": arrow_csv.ReadOptions(column_names=names, block_size=piece),
            "parse_options": arrow_csv.ParseOptions(delimiter=self.delimiter or " "),
            "convert_options": arrow_csv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(wanted, arrow.float64()),
                null_values=MISSING_CELLS if self.keeps_missing else [], check_utf8=False,
            ),
        }  # fmt: skip

        def parse(window: bytes) -> Array:
            return ArrowFrame(arrow_csv.read_csv(arrow.BufferReader(window), **options)).to_numpy()

        return parse

    def _parse_by_numpy(self, window: bytes) -> Array:
        if b'"' in window or self.n_columns < self.width or not window.strip():
            raise ValueError("numpy does not check the columns that it leaves out")
        lines = [line.decode() for line in window.splitlines()]
        rows = np.loadtxt(lines, delimiter=self.delimiter, ndmin=2, comments=None)
        return rows[:, self.columns] if rows.shape[1] == self.width else rows

    # -- cells, one by one

    def _parse_cells(self, window: bytes, number: int) -> Array:
        """Return the rows of a window; ValueError names the first line or cell at fault."""
        rows = []
        for n, raw in enumerate(window.splitlines(), number):
            line = raw.decode()
            if self._is_blank(line):
                continue
            cells = self._split(line)
            if self._is_open(line):
                raise ValueError(f"{self.file.name}, line {n}: {UNCLOSED}")
            if len(cells) != self.width:
                raise ValueError(
                    f"{self.file.name}, line {n}: {len(cells)} cells, expected {self.width}; "
                    "correct or drop the line"
                )
            rows.append([self._read_cell(cells[k], n, k) for k in self.columns])
        return np.array(rows, dtype=float).reshape(-1, self.n_columns)

    def _read_cell(self, cell: str, number: int, column: int) -> float:
        """Return the number of a cell; nan where a value is missing and that is kept."""
        if self.keeps_missing and cell.lower() in MISSING:
            return float("nan")
        if _is_number(cell) and np.isfinite(float(cell)):
            return float(cell)
        name = "" if self._all_names is None else f" ({self._all_names[column]!r})"
        raise ValueError(
            f"{self.file.name}, line {number}, column {column}{name}: {_describe_fault(cell)}"
        )

    def _is_blank(self, line: str) -> bool:
        """Whether a line has no cells. A line of delimiters only has cells, which are empty."""
        return not line.strip(" \r\n" if self.delimiter == "\t" else None)

    def _split(self, line: str) -> list[str]:
        return [cell.strip() for cell in next(self._records([line]), [])]

    def _is_open(self, line: str) -> bool:
        """Whether a quoted cell goes on in the next line."""
        return '"' in line and len(list(self._records([line, ""]))) == 1

    def _records(self, lines: list[str]) -> Iterator[list[str]]:
        if self.delimiter is None:
            lines = [" ".join(line.split()) for line in lines]
        try:
            yield from csv.reader(lines, delimiter=self.delimiter or " ", skipinitialspace=True)
        except csv.Error as error:  # a cell of more than 131,072 characters
            raise ValueError(f"{self.file.name} cannot be read: {error}") from None


@functools.cache
def _load_arrow_csv() -> Any:
    """Return the module pyarrow.csv, or None and a warning where it is not installed."""
    try:
        return importlib.import_module("pyarrow.csv")
    except ImportError:
        warn(
            "pyarrow is not installed, so numpy reads text files, several times slower; "
            'install it with: pip install "tgpfast[files]"',
            FallbackWarning,
        )
        return None


def _regroup(parts: Iterable[Array], size: int) -> Iterator[Array]:
    """Yield the rows of the parts in blocks of ``size`` rows; the last block may be shorter."""
    held: list[Array] = []
    n_held = 0
    for part in parts:
        held.append(part)
        n_held += len(part)
        if n_held >= size:
            rows = np.concatenate(held)
            for start in range(0, n_held - size + 1, size):
                yield rows[start : start + size]
            n_held %= size
            held = [rows[len(rows) - n_held :]]
    if n_held:
        yield np.concatenate(held)


def _count_lines(window: bytes) -> int:
    # bytes.count takes a third of the time of parsing where what it counts is frequent
    n_lines = int(np.count_nonzero(np.frombuffer(window, np.uint8) == ord("\n")))
    if b"\r" in window:
        n_lines += window.count(b"\r") - window.count(b"\r\n")
    return n_lines


def _find_delimiter(line: str) -> str | None:
    """Return the first of tab, semicolon and comma that stands outside quotes; None: blanks."""
    bare = "".join(line.split('"')[::2])
    return next((c for c in "\t;," if c in bare), None)


def _are_names(cells: list[str]) -> bool:
    """Whether cells have some text, and no number with decimals: that is a row with a bad cell."""
    has_text = any(not _is_number(cell) and cell.lower() not in MISSING for cell in cells)
    return has_text and not any(map(_has_decimals, cells))


def _are_numbers_of_columns(cells: list[str]) -> bool:
    """Whether cells are 0, 1, ..., at least two of them, which pandas writes for names."""
    return len(cells) > 1 and cells == [str(k) for k in range(len(cells))]


def _has_decimals(cell: str) -> bool:
    """Whether a cell is a number, and not an integer, which may be a name."""
    return _is_number(cell) and not cell.lstrip("+-").isdigit() and cell.lower() not in MISSING


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell  # Python takes more than files should hold


def _describe_fault(cell: str) -> str:
    """Say why a cell is not a finite number, and what to do."""
    if cell.lower() in MISSING:
        held = f" ({cell!r})" if cell else ""
        return f'a value is missing{held}; fill it, drop the line, or use missing="drop"'
    if _is_number(cell):
        return f"{cell!r} is not a finite number; drop the line"
    if _is_number(cell.replace(",", ".")):
        return f"{cell!r} is not a number; write decimals with a point"
    return f"{cell!r} is not a number; correct it, or leave the column out (shell: --columns)"
