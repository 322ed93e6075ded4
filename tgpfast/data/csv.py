"""Rows of text files: csv and its kin. Plain lines are read by a kernel, which leaves Python's lock
to the pass; what is not plain by numpy's parser, and errors name the line and the column."""

from __future__ import annotations

import codecs
import csv
import functools
import io
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .. import kernels

CHUNK = 16_384  # lines that make a block
PARSED = 4_096  # of these, parsed by numpy at a time
WINDOW = 2**20  # bytes of a file that are held at a time
KERNEL_BYTES = 2**20  # of a file from which on a kernel is worth loading
MOST_POWER = 280  # of ten, that a kernel multiplies by: nothing overflows, nothing is denormal
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "-"))  # in lower case
UNCLOSED = "a quote is not closed; close it on the same line, or drop the line"


class TextRows:
    """Blocks of a text file, read anew at every call."""

    def __init__(self, file: Path, delimiter: str | None) -> None:
        self.file, self.delimiter = file, delimiter
        self.skip = 0  # lines before the first row
        with self._open() as stream:
            header, first = self._beginning(stream)
        fields = self._split(header or first)
        if header and first and self.delimiter is None and len(self._split(first)) == 1:
            fields = [header.strip().strip('"')]  # one column, with blanks in its name
        self.width = len(fields)
        self.chosen: list[int] | None = None
        self.names = None
        if header:
            self.names = [name or f"column_{k}" for k, name in enumerate(fields)]
        self._all_names = self.names

    def choose(self, chosen: list[int] | None) -> None:
        """Read these columns only; None: all."""
        self.chosen = chosen
        if self._all_names is not None and chosen is not None:
            self.names = [self._all_names[k] for k in chosen]

    @property
    def n_columns(self) -> int:
        """Of a block."""
        return self.width if self.chosen is None else len(self.chosen)

    def _open(self) -> Any:
        return self.file.open(encoding="utf-8-sig", newline="")

    def _beginning(self, stream: Any) -> tuple[str, str]:
        """The header's line and the first row's, each "" where there is none."""
        comment = ""
        for number, text in enumerate(self._lines(stream)):
            line = text.strip("\r\n")
            if line.lstrip().startswith("#"):  # as numpy.savetxt writes a header
                comment = line.lstrip().lstrip("#").strip()
                continue
            if self._is_blank(line):
                continue
            if self.delimiter is None:
                self.delimiter = _delimiter(line)
            if _is_header(self._split(line)):
                self.skip = number + 1
                if self._is_open(line):
                    raise ValueError(f"{self.file.name}, line {self.skip}: {UNCLOSED}")
                rest = (t.strip("\r\n") for t in self._lines(stream) if not self._is_blank(t))
                return line, next(rest, "")
            self.skip = number
            named = comment and len(self._split(comment)) == len(self._split(line))
            return comment if named else "", line
        if comment:
            raise ValueError(f"{self.file.name} holds comments and no rows")
        raise ValueError(f"{self.file.name} is empty; expected rows of numbers")

    def _lines(self, stream: Any) -> Iterator[str]:
        try:
            yield from stream
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.file.name} is not UTF-8 text (byte {error.object[error.start]:#04x}: "
                f"{error.reason}); save it as UTF-8"
            ) from None

    def _is_blank(self, line: str) -> bool:
        """Whether a line is no row; one of delimiters is, though they be tabs."""
        return not line.strip(" \r\n" if self.delimiter == "\t" else None)

    def _records(self, lines: list[str]) -> Iterator[list[str]]:
        if self.delimiter is None:
            lines = [" ".join(line.split()) for line in lines]
        try:
            yield from csv.reader(lines, delimiter=self.delimiter or " ", skipinitialspace=True)
        except csv.Error as error:  # a cell of more than 131,072 letters
            raise ValueError(self._other(error)) from None

    def _split(self, line: str) -> list[str]:
        return [cell.strip() for cell in next(self._records([line.strip("\r\n")]))]

    def _is_open(self, line: str) -> bool:
        """Whether a quoted cell goes on in the next line."""
        return '"' in line and len(list(self._records([line, ""]))) == 1

    def __call__(self) -> Iterator[Any]:
        found = False
        at, number = self._first()
        kernel = self._kernel()
        with self.file.open("rb") as stream:
            window = _Window(stream)
            while True:
                block, after = (None, at) if kernel is None else self._plain(kernel, window, at)
                if block is not None and len(block):
                    found, at, number = True, after, number + len(block)
                    yield block
                    continue
                lines, at = self._lines_at(at)
                if not lines:
                    break
                rows = lines
                if any(map(str.isspace, lines)):
                    rows = [text for text in lines if not self._is_blank(text)]
                if rows:
                    found = True
                    yield self._parse(rows, lines, number)
                number += len(lines)
        if not found:
            raise ValueError(f"{self.file.name} has a header and no rows below it")

    def _first(self) -> tuple[int, int]:
        """(place in the file, number from 1) of the first line of rows."""
        with self._open() as stream:
            before = sum(len(x.encode()) for x in itertools.islice(self._lines(stream), self.skip))
        with self.file.open("rb") as binary:
            mark = len(codecs.BOM_UTF8) if binary.read(3) == codecs.BOM_UTF8 else 0
        return mark + before, self.skip + 1

    def _lines_at(self, at: int) -> tuple[list[str], int]:
        """(the lines that make a block, from a place in the file on; the place after them)."""
        with self.file.open("rb") as binary:
            binary.seek(at)
            stream = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            lines = list(itertools.islice(self._lines(stream), CHUNK))
        return lines, at + sum(len(line.encode()) for line in lines)

    # -- plain lines

    def _kernel(self) -> ModuleType | None:
        """The backend that reads plain lines; None where numpy's parser is the quicker."""
        if self.file.stat().st_size < KERNEL_BYTES:
            return None
        try:
            backend: ModuleType = kernels.load()
        except (ImportError, ValueError):  # TGPFAST_BACKEND; the pass may have been told another
            return None
        return None if backend.NAME == "numpy" else backend

    def _plain(self, kernel: ModuleType, window: _Window, at: int) -> tuple[Any, int]:
        """(a block of rows, from a place in the file on, None where a line is not plain; the place
        after it)."""
        places = np.arange(self.width, dtype=np.int64)
        if self.chosen is not None:
            places = np.full(self.width, -1, np.int64)
            places[self.chosen] = np.arange(len(self.chosen))
        delimiter = ord(self.delimiter) if self.delimiter else 0
        left = max(self.file.stat().st_size - at, 0)
        most = left // (self.width + self.n_columns) + 1  # an end for each cell, a digit for some
        block, done = np.empty((min(CHUNK, most), self.n_columns)), 0
        while done < CHUNK:
            text = window.lines(at)
            if text is None:
                return None, at
            if not len(text):
                break
            rows, used = kernel.parse_rows(text, delimiter, places, powers_of_five(), block[done:])
            done, at = done + rows, at + used
            if used < len(text) and done < CHUNK:
                return None, at
        return block[:done], at

    # -- other lines

    def _parse(self, rows: list[str], lines: list[str], first: int) -> Any:
        quotes = '"' in "".join(rows)  # one search, where most files have none
        if quotes and self.delimiter is not None:  # the parser knows no blanks before a quote
            blanks = re.compile(f'(^|{self.delimiter}) +"')
            rows = [blanks.sub(r'\1"', text) if ' "' in text else text for text in rows]
        try:
            # a quote that is not closed must be seen with the lines that follow it
            block = self._numbers(rows, len(rows) if quotes else PARSED)
        except ValueError as error:
            raise ValueError(self._complaint(lines, first) or self._other(error)) from None
        if quotes and (len(block) != len(rows) or self._is_open(rows[-1])):  # lines were joined
            raise ValueError(self._complaint(lines, first))
        if self.chosen is not None:  # the parser looks no further than the columns it wants
            quoted = [text for text in rows if '"' in text]
            ragged = self.delimiter is None or any(
                text.count(self.delimiter) != self.width - 1 for text in rows if '"' not in text
            ) or any(len(cells) != self.width for cells in self._records(quoted))  # fmt: skip
        else:
            ragged = block.shape[1] != self.width
        if ragged or not np.isfinite(block).all():
            complaint = self._complaint(lines, first)
            if complaint:
                raise ValueError(complaint)
        return block

    def _numbers(self, rows: list[str], step: int) -> Any:
        """The table, ``step`` lines at a time. The parser holds Python's lock throughout: whoever
        computes meanwhile gets it in the pauses, and would else wait for all lines."""
        parts = []
        for at in range(0, len(rows), step):
            if at:
                time.sleep(1e-6)
            parts.append(np.loadtxt(
                rows[at : at + step], delimiter=self.delimiter, ndmin=2, comments=None,
                quotechar='"', usecols=self.chosen,
            ))  # fmt: skip
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _other(self, error: Exception) -> str:
        return f"{self.file.name} cannot be read: {str(error).split('; use `usecols`')[0]}"

    def _complaint(self, lines: list[str], first: int) -> str:
        """What is wrong with the first bad line, by its number and the column; "" if nothing."""
        for number, text in enumerate(lines, first):
            if self._is_blank(text):
                continue
            cells, where = self._split(text), f"{self.file.name}, line {number}"
            if self._is_open(text):
                return f"{where}: {UNCLOSED}"
            if len(cells) != self.width:
                return f"{where}: {len(cells)} cells, expected {self.width}; mend or drop the line"
            for k in range(self.width) if self.chosen is None else self.chosen:
                fault = _fault(cells[k])
                if fault:
                    name = str(k) if self._all_names is None else f"{k} ({self._all_names[k]!r})"
                    return f"{where}, column {name}: {fault}"
        return ""


class _Window:
    """Lines of a file as bytes, some at a time; the last gets a line feed where it has none."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._bytes = stream, bytearray(WINDOW)
        self._array = np.frombuffer(self._bytes, np.uint8)
        self._start = self._stop = 0

    def lines(self, at: int) -> Any:
        """Whole lines from a place in the file on: none at its end, None where one is too long."""
        if not self._start <= at < self._stop:
            self._stream.seek(at)
            size = self._stream.readinto(self._bytes)
            if 0 < size < WINDOW and self._bytes[size - 1] != ord("\n"):
                self._bytes[size] = ord("\n")
                size += 1
            self._start, self._stop = at, at + self._bytes.rfind(b"\n", 0, size) + 1
            if size == WINDOW and self._start == self._stop:
                return None
        return self._array[at - self._start : self._stop - self._start]


@functools.cache
def powers_of_five() -> Any:
    """What a kernel multiplies by: see ``parse_rows`` in ``kernels/_numpy.py``."""
    rows = []
    for q in range(-MOST_POWER, MOST_POWER + 1):
        power = 5 ** abs(q)
        spare = power.bit_length() - 128
        if q < 0:
            bits = (1 << (127 + power.bit_length())) // power + 1
        else:
            bits = power >> spare if spare > 0 else power << -spare
        rows.append((bits >> 64, bits & (2**64 - 1)))
    return np.array(rows, np.uint64)


def _delimiter(line: str) -> str | None:
    """The first of tab, semicolon and comma that stands outside quotes; None: blanks."""
    bare = "".join(line.split('"')[::2])
    return next((c for c in "\t;," if c in bare), None)


def _is_header(fields: list[str]) -> bool:
    """Names, not a row with a bad cell: some text, and no number that could not be a name."""
    text = [f for f in fields if not _is_number(f) and f.lower() not in MISSING]
    broken = [f for f in fields if _is_number(f) and not f.lstrip("+-").isdigit()]
    return bool(text) and not any(f.lower() not in MISSING for f in broken)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text  # Python takes more than files should hold


def _fault(cell: str) -> str:
    """Why a cell cannot be used, and what to do; "" if it can."""
    if cell.lower() in MISSING:
        held = f" ({cell!r})" if cell else ""
        return f"a value is missing{held}; fill it or drop the line"
    if _is_number(cell):
        if np.isfinite(float(cell)):
            return ""
        return f"{cell!r} is not a finite number; drop the line"
    if _is_number(cell.replace(",", ".")):
        return f"{cell!r} is not a number; write decimals with a point"
    return f"{cell!r} is not a number; mend it, or leave the column out"
