"""Data files -> rows: npy (mapped, never read whole), npz, csv and its kin (streamed), parquet (a
piece at a time where it is large)."""

from __future__ import annotations

import contextlib
import copy
import csv
import importlib
import importlib.util
import itertools
import os
import re
import time
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 16_384  # lines of a text file that make a block
PARSED = 4_096  # of these, parsed at a time
TEXT = {".csv": None, ".tsv": "\t", ".txt": None}  # suffix -> delimiter, None: found out
SUFFIXES = (".npy", ".npz", ".parquet", *TEXT)
WRITABLE = (".npy", *TEXT)
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "-"))  # in lower case
WHOLE_PARQUET = 2**25  # bytes of a file up to which it is read at once
PIECE = 2**18  # rows of a parquet file decoded at a time, where its own groups are not known
PAGE = 2**17  # rows of a megabyte of float64, the usual page of a column, which is decoded at once
PIECES = 64  # places of a parquet file from which a sample of its rows is taken
TABLE_NAMES = ("X", "x", "data")  # of the array taken from an npz that holds several
COLUMN_NAMES = ("columns", "names", "feature_names")
UNCLOSED = "a quote is not closed; close it on the same line, or drop the line"


class Columns(os.PathLike[str]):
    """Some columns of a file, by name or by index from 0; stands wherever a path is taken.

    A csv file may hold text in the others.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str | int]) -> None:
        self.path, self.columns = path, list(columns)
        if not self.columns:
            raise ValueError("columns: at least one name or index is needed")

    def __fspath__(self) -> str:
        return os.fspath(self.path)


def open_rows(
    path: str | os.PathLike[str], order: list[str] | None = None
) -> tuple[Any, list[str] | None]:
    """(rows as an array, as `ParquetRows`, or as a callable that streams blocks; names or None).

    order : names of the columns to read, and no others, of a file that has names
    """
    file = _existing(path)
    suffix = file.suffix.lower()
    if suffix in TEXT:
        text = _TextRows(file, TEXT[suffix])
        text.choose(_choice(path, order, text.names, text.width))
        return text, text.names
    if suffix == ".parquet":
        table = _from_parquet(file, path, order)
        return table, table.columns
    rows, names = _from_npy(file) if suffix == ".npy" else _from_npz(file)
    chosen = _choice(path, order, names, 1 if rows.ndim == 1 else rows.shape[1])
    if chosen is None:
        return rows, names
    table = rows.reshape(len(rows), -1)
    return _chosen(table, chosen), None if names is None else [names[k] for k in chosen]


def columns_of(path: str | os.PathLike[str]) -> tuple[list[str] | None, int]:
    """(names of a file's columns, None where it has none; how many they are)."""
    file = _existing(path)
    suffix = file.suffix.lower()
    if suffix in TEXT:
        text = _TextRows(file, TEXT[suffix])
        return text.names, text.width
    if suffix == ".parquet":
        found = _parquet(file).columns
        return found, len(found)
    rows, names = _from_npy(file) if suffix == ".npy" else _from_npz(file)
    return names, 1 if rows.ndim == 1 else int(rows.shape[1])


def check_writable(path: str | os.PathLike[str], suffixes: Sequence[str] | None = WRITABLE) -> Path:
    """The path, if a file can be put there and has a known ending (None: any), else an error."""
    file = Path(path)
    if suffixes is not None and file.suffix.lower() not in suffixes:
        given = f"the ending {file.suffix!r} is not known" if file.suffix else "it has no ending"
        raise ValueError(f"{file.name}: {given}; expected one of {', '.join(suffixes)}")
    if file.is_dir():
        raise ValueError(f"{os.fspath(path)!r} is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise FileNotFoundError(
            f"no such folder: {os.fspath(file.parent)!r}; make it, or write {file.name} elsewhere"
        )
    return file


def write_rows(path: str | os.PathLike[str], rows: Any, columns: Sequence[str] | None) -> None:
    """Write rows to npy, or to csv or tsv with a header where there are names."""
    file = check_writable(path)
    suffix = file.suffix.lower()
    if suffix == ".npy":
        with file.open("wb") as binary:  # np.save of a path would add a second ending to .NPY
            np.save(binary, rows)
        return
    delimiter = TEXT[suffix] or ","
    with file.open("w", encoding="utf-8", newline="") as stream:
        if columns is not None:
            csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerow(columns)
        np.savetxt(stream, rows, fmt="%.17g", delimiter=delimiter)


def _existing(path: str | os.PathLike[str]) -> Path:
    file = Path(os.fspath(path))
    if not file.exists():
        raise FileNotFoundError(f"no such file: {os.fspath(path)!r}")
    if file.is_dir():
        raise ValueError(f"{os.fspath(path)!r} is a folder; give the path of a file in it")
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        given = f"the ending {file.suffix!r} is not known" if suffix else "it has no ending"
        raise ValueError(f"{file.name}: {given}; expected one of {', '.join(SUFFIXES)}")
    return file


def _choice(
    path: str | os.PathLike[str], order: list[str] | None, names: list[str] | None, width: int
) -> list[int] | None:
    """Positions of the columns to read; None: all, as they are."""
    name, chosen = Path(path).name, None
    if isinstance(path, Columns):
        chosen = _indices(path.columns, names, width, name)
    if order is None or names is None:
        return chosen
    have = names if chosen is None else [names[k] for k in chosen]
    if have == order:
        return chosen
    missing = [c for c in order if c not in have]
    if missing:  # a name of digits is no index here
        raise ValueError(f"{name} lacks the columns {missing}; it has {have}")
    places = _indices(order, have, len(have), name)
    return places if chosen is None else [chosen[k] for k in places]


def _indices(
    wanted: Sequence[str | int], names: list[str] | None, width: int, file_name: str
) -> list[int]:
    """Positions of columns asked for by name or index; a name goes before an index."""
    found = []
    for column in wanted:
        label = str(column).strip()
        places = [k for k, name in enumerate(names or ()) if name == column]
        places = places or [k for k, name in enumerate(names or ()) if name == label]
        if len(places) > 1:
            raise ValueError(
                f"{file_name} has {len(places)} columns named {label!r}; give their indices, "
                f"{' or '.join(map(str, places))}"
            )
        if places:
            found.append(places[0])
        elif label.isascii() and label.isdigit() and int(label) < width:
            found.append(int(label))
        else:
            have = f"indices 0 to {width - 1}" + (", no names" if names is None else "")
            if names is not None:
                have = f"{', '.join(names)} ({have})"
            raise ValueError(f"{file_name} has no column {label!r}; it has {have}")
    repeated = [k for k in found if found.count(k) > 1]
    if repeated:
        name = repeated[0] if names is None else repr(names[repeated[0]])
        raise ValueError(f"column {name} of {file_name} was asked for twice; name it once")
    return found


def _chosen(table: Any, chosen: list[int]) -> Any:
    """Some columns of an array: a view where they are evenly spaced, else a stream of blocks."""
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    if step > 0 and chosen == list(range(chosen[0], chosen[-1] + 1, step)):
        return table[:, chosen[0] : chosen[-1] + 1 : step]
    return lambda: (table[i : i + CHUNK][:, chosen] for i in range(0, len(table), CHUNK))


# -- binary files --------------------------------------------------------------------------------


def _from_npy(file: Path) -> tuple[Any, None]:
    try:
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(_unreadable(file, error)) from None
    if not isinstance(rows, np.ndarray):
        rows.close()
        raise ValueError(f"{file.name} is an npz archive; give it the ending .npz")
    return _judged(rows, file.name), None


def _unreadable(file: Path, error: Exception) -> str:
    with file.open("rb") as stream:
        start = stream.read(6)
    if start != b"\x93NUMPY":
        found = "it is empty" if not start else "it does not begin as one"
        return f"{file.name} is not an npy file: {found}; write one with numpy.save"
    if "ickle" in str(error) or "bject" in str(error):
        return (
            f"{file.name} holds Python objects, which are not loaded; expected numbers: save "
            "array.astype(float)"
        )
    return f"{file.name} is damaged or cut short: {error}"


def _judged(rows: Any, name: str) -> Any:
    if rows.dtype.names:
        raise TypeError(
            f"{name} is a structured array ({', '.join(rows.dtype.names)}); expected a table of "
            "one dtype: numpy.lib.recfunctions.structured_to_unstructured makes one"
        )
    if rows.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {rows.dtype}; expected real numbers")
    if rows.ndim not in (1, 2):
        raise ValueError(f"{name} has shape {rows.shape}; expected (rows, columns)")
    return rows


def _from_npz(file: Path) -> tuple[Any, list[str] | None]:
    if not zipfile.is_zipfile(file):
        raise ValueError(
            f"{file.name} cannot be read: it is no npz archive, or is cut short; write one with "
            "numpy.savez"
        )
    try:
        with np.load(file, allow_pickle=False) as archive:
            shapes = {name: _shape(archive, name) for name in archive.files}
            held = ", ".join(f"{n} {s}" for n, (s, _) in shapes.items()) or "nothing"
            if shapes.get("header", (None, ""))[1] == "U":
                raise ValueError("it is a model or statistics saved by tgpfast, not a data file")
            name = _table_name(shapes)
            if name is None:
                raise ValueError(
                    "expected one two-dimensional array of numbers, or one named X; "
                    f"it holds {held}"
                )
            table = archive[name]
            for key in COLUMN_NAMES:
                if shapes.get(key) == (table.shape[-1:], "U") and table.ndim == 2:
                    return table, [str(c) for c in archive[key]]
            return table, None
    except (ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from None


def _shape(archive: Any, name: str) -> tuple[tuple[int, ...], str]:
    """Shape and kind of a member, from its first bytes."""
    with archive.zip.open(f"{name}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    return shape, dtype.kind


def _table_name(shapes: dict[str, tuple[tuple[int, ...], str]]) -> str | None:
    for ndim in (2, 1):
        tables = [n for n, (s, kind) in shapes.items() if len(s) == ndim and kind in "fiub"]
        for name in TABLE_NAMES:
            if name in tables:
                return name
        if len(tables) == 1:
            return tables[0]
        if tables:
            return None
    return None


def _from_parquet(
    file: Path, path: str | os.PathLike[str], order: list[str] | None
) -> ParquetRows:
    rows = _parquet(file)
    chosen = _choice(path, order, rows.columns, len(rows.columns))
    if chosen is not None:
        rows = rows.chosen(chosen)
    for name, (kind, good) in zip(rows.columns, rows.kinds(), strict=True):
        if not good:
            raise TypeError(
                f"{file.name}: column {name!r} is of type {kind}; expected real numbers: leave "
                "it out, or convert it"
            )
    if not len(rows):
        raise ValueError(f"{file.name} has no rows; at least one is needed")
    return rows


def _parquet(file: Path) -> ParquetRows:
    for name, kind in (("pyarrow.parquet", _ArrowRows), ("polars", _PolarsRows)):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            try:
                return kind(module, file)
            except (ImportError, OSError):
                raise
            except Exception as error:  # each library has its own
                message = str(error).splitlines()[0]
                raise ValueError(f"{file.name} is not a parquet file: {message}") from None
    raise ImportError(f"{file.name}: parquet files need pyarrow, or polars: pip install pyarrow")


class ParquetRows:
    """The rows of a parquet file, as arrays of float64: all in turn, or some. Columns of bool are
    0.0 and 1.0, values that are missing nan.

    columns : names; shape : as of an array; stride : rows that may be decoded at once
    """

    columns: list[str]
    shape: tuple[int, int]
    stride: int

    def __init__(self, module: Any, file: Path) -> None:
        self.module, self.file = module, file

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def is_small(self) -> bool:
        """Whether all rows are best held at once: most fits go over them more than once."""
        return self.file.stat().st_size <= WHOLE_PARQUET

    @property
    def frame(self) -> str:
        """The kind of frame that results are given in: of a library that is there."""
        found = (name for name in ("polars", "pandas") if importlib.util.find_spec(name))
        return next(found, "array")

    def chosen(self, places: Sequence[int]) -> ParquetRows:
        """Some columns of the same file."""
        other = copy.copy(self)
        other.columns = [self.columns[k] for k in places]
        other.shape = (len(self), len(other.columns))
        return other

    def whole(self) -> Any:
        """All rows."""
        return np.concatenate(list(self.blocks(self.stride)))

    def spread(self, n: int) -> tuple[Any, Any]:
        """(about n rows from places spread over the file, their numbers)."""
        rows = len(self)
        count = min(PIECES, n)
        size = n // count
        if rows <= n:
            return self.whole(), np.arange(rows)
        starts = np.unique(np.linspace(0, rows - size, count).astype(int))
        return self._stretches(starts, size), (starts[:, None] + np.arange(size)).ravel()

    def kinds(self) -> list[tuple[str, bool]]:
        """(type, whether it is of real numbers) of every column."""
        raise NotImplementedError

    def blocks(self, size: int) -> Iterator[Any]:
        """All rows in turn, ``size`` at a time."""
        raise NotImplementedError

    def _stretches(self, starts: Any, size: int) -> Any:
        """``size`` rows from each of the starts, which ascend and lie that far apart."""
        raise NotImplementedError


class _ArrowRows(ParquetRows):
    """Read by pyarrow, in the thread that asks: a pool of threads, as polars has, would take the
    cores of the pass."""

    def __init__(self, module: Any, file: Path) -> None:
        super().__init__(module, file)
        with module.ParquetFile(file) as opened:
            facts, self.schema = opened.metadata, opened.schema_arrow
        of_frame = (self.schema.pandas_metadata or {}).get("index_columns", ())  # no data of ours
        self.columns = [str(c) for c in self.schema.names if c not in of_frame]
        self.shape, self.stride = (facts.num_rows, len(self.columns)), PAGE
        sizes = [facts.row_group(i).num_rows for i in range(facts.num_row_groups)]
        self.edges = [0, *itertools.accumulate(sizes)]  # of the groups of rows

    def kinds(self) -> list[tuple[str, bool]]:
        types = importlib.import_module("pyarrow").types
        found = [self.schema.field(name).type for name in self.columns]
        tests = (types.is_integer, types.is_floating, types.is_boolean)
        return [(str(kind), any(test(kind) for test in tests)) for kind in found]

    def blocks(self, size: int) -> Iterator[Any]:
        return map(self._numbers, self._batches(size))

    def _stretches(self, starts: Any, size: int) -> Any:
        wanted = (starts[:, None] + np.arange(size)).ravel()
        parts = []
        for group, (at, end) in enumerate(itertools.pairwise(self.edges)):
            low, high = np.searchsorted(wanted, [at, end])
            left = wanted[low:high] - at
            batches = self._batches(CHUNK, row_groups=[group])
            while len(left):
                rows = next(batches)
                here = np.searchsorted(left, rows.num_rows)
                if here:
                    parts.append(self._numbers(rows)[left[:here]])
                left = left[here:] - rows.num_rows
            batches.close()
        return np.concatenate(parts)

    def _batches(self, size: int, **options: Any) -> Generator[Any, None, None]:
        # a buffer for each column: else the bytes of a group are read whole, however large it is
        with self.module.ParquetFile(self.file, buffer_size=2**20, pre_buffer=False) as opened:
            yield from opened.iter_batches(size, columns=self.columns, use_threads=False, **options)

    def _numbers(self, batch: Any) -> Any:
        rows = np.empty((batch.num_rows, len(self.columns)))
        for k, name in enumerate(self.columns):
            cells = batch.column(name)
            if str(cells.type) == "bool":
                cells = cells.cast("uint8")
            if cells.null_count or not hasattr(cells, "__dlpack__"):  # from pyarrow 15 on
                rows[:, k] = cells.to_numpy(zero_copy_only=False)  # imports pandas
            else:
                rows[:, k] = np.from_dlpack(cells)
        return rows


class _PolarsRows(ParquetRows):
    """Read by polars, by its threads, in pieces: it does not tell the groups of rows."""

    def __init__(self, module: Any, file: Path) -> None:
        super().__init__(module, file)
        scan = module.scan_parquet(file)
        self.schema = scan.collect_schema()
        self.columns = [str(c) for c in self.schema.names()]
        n = int(scan.select(module.len()).collect().item())
        self.shape, self.stride = (n, len(self.columns)), PIECE

    def kinds(self) -> list[tuple[str, bool]]:
        found = [self.schema[name] for name in self.columns]
        good = [k.is_integer() or k.is_float() or str(k) == "Boolean" for k in found]
        return [(str(k), bool(g)) for k, g in zip(found, good, strict=True)]

    def blocks(self, size: int) -> Iterator[Any]:
        piece = size * max(1, PIECE // size)
        for at in range(0, len(self), piece):
            rows = self._read(at, piece)
            for start in range(0, len(rows), size):
                yield rows[start : start + size]

    def _stretches(self, starts: Any, size: int) -> Any:
        return np.concatenate([self._read(int(at), size) for at in starts])

    def _read(self, start: int, size: int) -> Any:
        numbers = self.module.col(self.columns).cast(self.module.Float64)
        scan = self.module.scan_parquet(self.file).select(numbers)
        return scan.slice(start, size).collect().to_numpy(order="c")


# -- text ----------------------------------------------------------------------------------------


class _TextRows:
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
        with self._open() as stream:
            source = self._lines(stream)
            number = self.skip + 1  # lines are counted from 1
            for _ in itertools.islice(source, self.skip):
                pass
            while lines := list(itertools.islice(source, CHUNK)):
                rows = lines
                if any(map(str.isspace, lines)):
                    rows = [text for text in lines if not self._is_blank(text)]
                if rows:
                    found = True
                    yield self._parse(rows, lines, number)
                number += len(lines)
        if not found:
            raise ValueError(f"{self.file.name} has a header and no rows below it")

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
