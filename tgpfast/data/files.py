"""Data files: the reader for each format, sets of files, selected columns, files to write."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from .csv import TextRows
from .npy import open_npy, read_npz
from .parquet import ParquetRows, write_parquet
from .storage import check_place, replacing
from .table import BLOCK_ROWS

TEXT = {".csv": None, ".tsv": "\t", ".txt": None}  # extension -> delimiter; None: to be found
SUFFIXES = (".npy", ".npz", ".parquet", *TEXT)
WRITABLE = (".npy", ".parquet", ".json", *TEXT)


class Columns(os.PathLike[str]):
    """Some columns of a file. It can stand wherever a path is taken.

    Columns of a csv or parquet file that are not selected may hold text.

    Parameters
    ----------
    path : str or path-like
    columns : sequence of str or int
        Names, or indices from 0.

    Raises
    ------
    ValueError
        If columns is empty.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str | int]) -> None:
        self.path, self.columns = path, list(columns)
        if not self.columns:
            raise ValueError("columns: at least one name or index is needed")

    def __fspath__(self) -> str:
        return os.fspath(self.path)


class FileSet(os.PathLike[str]):
    """The rows of several files, one file after the other. It can stand wherever a path is taken.

    Files that have names of columns must have those of the first file, in any order. Files without
    names must have as many columns as the first file.

    Parameters
    ----------
    paths : sequence of str or path-like
        At least one file.
    columns : sequence of str or int, default None
        Names of the columns to read, or indices from 0; all by default.

    Raises
    ------
    ValueError
        If there is no path.

    Examples
    --------
    >>> FileSet(["a.csv", "b.csv"]).name
    'a.csv and 1 more'
    """

    def __init__(
        self, paths: Sequence[str | os.PathLike[str]], columns: Sequence[str | int] | None = None
    ) -> None:
        self.paths, self.columns = [Path(path) for path in paths], columns
        if not self.paths:
            raise ValueError("paths: at least one file is needed")

    def __fspath__(self) -> str:
        return os.fspath(self.paths[0])

    @property
    def name(self) -> str:
        """The name of the first file and the number of the others, for messages."""
        return f"{self.paths[0].name} and {len(self.paths) - 1} more"

    def open(
        self, order: list[str] | None, *, keep_missing: bool = False
    ) -> tuple[Any, list[str] | None]:
        """Open the files as `open_rows` does; the first lines of all are checked here."""
        _, names = self.open_file(self.paths[0], order)
        width = columns_of(self.paths[0])[1]
        for file in self.paths[1:]:
            self.open_file(file, names)
            found = columns_of(file)[1]
            if names is None and self.columns is None and found != width:
                raise ValueError(
                    f"{file.name} has {found} columns, but {self.paths[0].name} has {width}; "
                    "leave one of them out"
                )
        return functools.partial(self._iterate, names, keep_missing), names

    def open_file(
        self, file: Path, order: list[str] | None, keep_missing: bool = False
    ) -> tuple[Any, list[str] | None]:
        """Open one of the files as `open_rows` does."""
        path = file if self.columns is None else Columns(file, self.columns)
        return open_rows(path, order, keep_missing=keep_missing)

    def _iterate(self, names: list[str] | None, keep_missing: bool) -> Iterator[Any]:
        """Yield the rows of all files in blocks; ``names`` are the columns to read, where files
        have names."""
        for file in self.paths:
            rows, _ = self.open_file(file, names, keep_missing)
            if isinstance(rows, ParquetRows):
                yield from rows.iterate(BLOCK_ROWS)
            elif callable(rows):
                yield from rows()
            else:
                yield rows


def select_columns(path: str | os.PathLike[str], columns: Sequence[str | int]) -> Any:
    """Return some columns of a file or of a `FileSet`, as something that stands for a path."""
    if isinstance(path, FileSet):
        return FileSet(path.paths, columns)
    return Columns(path, columns)


def open_rows(
    path: str | os.PathLike[str], order: list[str] | None = None, *, keep_missing: bool = False
) -> tuple[Any, list[str] | None]:
    """Open a data file, or several.

    Parameters
    ----------
    path : str, path-like, Columns or FileSet
    order : list of str, default None
        Names of the columns to read, and no others, of a file that has names.
    keep_missing : bool, default False
        Whether cells of a text file without a value are nan; they are an error otherwise.

    Returns
    -------
    rows : array, ParquetRows, or callable that streams blocks
    names : list of str, or None
        None where the file has no names.
    """
    if isinstance(path, FileSet):
        return path.open(order, keep_missing=keep_missing)
    rows, names, width = _open(find_file(path))
    if isinstance(rows, TextRows):
        rows.keeps_missing = keep_missing
    places = _select_columns(path, order, names, width)
    if isinstance(rows, ParquetRows):
        rows = _select_numbers(rows, places, order)
        return rows, rows.columns
    if places is None:
        return rows, names
    if isinstance(rows, TextRows):
        rows.columns = places
    else:
        rows = _take_columns(rows.reshape(len(rows), -1), places)
    return rows, None if names is None else [names[k] for k in places]


def columns_of(path: str | os.PathLike[str]) -> tuple[list[str] | None, int]:
    """Return the names of a file's columns, None where it has none, and their number.

    Those of a `FileSet` are the columns of its first file.
    """
    rows, names, width = _open(find_file(path))
    if isinstance(rows, ParquetRows):
        names = [rows.columns[k] for k in rows.data_columns]
    return names, width if names is None else len(names)


def _open(file: Path) -> tuple[Any, list[str] | None, int]:
    """Return the rows of a file, the names of its columns or None, and their number."""
    suffix = file.suffix.lower()
    if suffix in TEXT:
        text = TextRows(file, TEXT[suffix])
        return text, text.names, text.width
    if suffix == ".parquet":
        parquet = ParquetRows(file)
        return parquet, parquet.columns, len(parquet.columns)
    rows, names = (open_npy(file), None) if suffix == ".npy" else read_npz(file)
    return rows, names, 1 if rows.ndim == 1 else int(rows.shape[1])


def check_writable(path: str | os.PathLike[str], suffixes: Sequence[str] | None = WRITABLE) -> Path:
    """Return the path if a file can be put there and its extension is known (None: any)."""
    file = Path(path)
    if suffixes is not None:
        _check_suffix(file, suffixes)
    check_place(file)
    return file


def write_rows(path: str | os.PathLike[str], rows: Any, columns: Sequence[str] | None) -> None:
    """Write rows to npy, parquet or json; or to csv, tsv or txt, with names in the first line.

    If that fails, on a full disk for example, an old file stays as it is.
    """
    file = check_writable(path)
    suffix = file.suffix.lower()
    with replacing(file) as binary:
        if suffix == ".npy":
            # not the file itself: NumPy would write past Python, and not notice a full disk
            np.save(SimpleNamespace(write=binary.write), rows)
            return
        if suffix == ".parquet":
            write_parquet(binary, rows, columns, file)
            return
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        try:
            if suffix == ".json":
                write_json(stream, rows, columns)
            else:
                write_text(stream, rows, columns, TEXT[suffix] or ",")
        finally:
            stream.detach()  # writes what is left, and does not close the file below it


def write_text(
    stream: IO[str], rows: Any, columns: Sequence[str] | None, delimiter: str = ","
) -> None:
    """Write rows as lines of text, after a line of names where there are any."""
    if columns is not None:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerow(columns)
    np.savetxt(stream, rows, fmt="%.17g", delimiter=delimiter)


def write_json(stream: IO[str], rows: Any, columns: Sequence[str] | None) -> None:
    """Write rows as a list of objects, or of lists where columns have no names.

    One row takes one line. Numbers that are not finite are null.
    """
    table = np.asarray(rows)
    table = table[:, None] if table.ndim == 1 else table
    for k, row in enumerate(table):
        cells = [x if math.isfinite(x) else None for x in row.tolist()]
        line = cells if columns is None else dict(zip(columns, cells, strict=True))
        stream.write(("[\n" if k == 0 else ",\n") + json.dumps(line))
    stream.write("\n]\n" if len(table) else "[]\n")


def find_file(
    path: str | os.PathLike[str], suffixes: Sequence[str] | None = SUFFIXES
) -> Path:
    """Return the path if there is such a file and its extension is known (None: any)."""
    file = Path(os.fspath(path))
    if not file.exists():
        raise FileNotFoundError(f"no such file: {os.fspath(path)!r}; check the path")
    if file.is_dir():
        raise ValueError(f"{os.fspath(path)!r} is a folder; give the path of a file in it")
    if suffixes is not None:
        _check_suffix(file, suffixes)
    return file


def _check_suffix(file: Path, suffixes: Sequence[str]) -> None:
    if file.suffix.lower() not in suffixes:
        fault = f"unknown format {file.suffix!r}" if file.suffix else "the name has no extension"
        raise ValueError(f"{file.name}: {fault}; expected one of {', '.join(suffixes)}")


# -- columns -------------------------------------------------------------------------------------


def _select_columns(
    path: str | os.PathLike[str], order: list[str] | None, names: list[str] | None, width: int
) -> list[int] | None:
    """Return the places of the columns to read; None: all, as they are."""
    name, places = Path(path).name, None
    if isinstance(path, Columns):
        places = _find_columns(path.columns, names, width, name)
    if order is None or names is None:
        return places
    have = names if places is None else [names[k] for k in places]
    if have == order:
        return places
    missing = [c for c in order if c not in have]
    if missing:  # here a name of digits is not an index
        raise ValueError(f"{name} lacks the columns {missing}; it has {have}")
    found = _find_columns(order, have, len(have), name)
    return found if places is None else [places[k] for k in found]


def _find_columns(
    wanted: Sequence[str | int], names: list[str] | None, width: int, file_name: str
) -> list[int]:
    """Return the places of columns given by name or index; a name comes before an index."""
    found = [_find_column(column, names or [], width, file_name) for column in wanted]
    repeated = [k for k in found if found.count(k) > 1]
    if repeated:
        name = repeated[0] if names is None else repr(names[repeated[0]])
        raise ValueError(f"column {name} of {file_name} was asked for twice; name it once")
    return found


def _find_column(column: str | int, names: list[str], width: int, file_name: str) -> int:
    label = str(column).strip()
    places = [k for k, name in enumerate(names) if name == column]
    places = places or [k for k, name in enumerate(names) if name == label]
    if len(places) > 1:
        raise ValueError(
            f"{file_name} has {len(places)} columns named {label!r}; give their indices, "
            f"{' or '.join(map(str, places))}"
        )
    if places:
        return places[0]
    if label.isascii() and label.isdigit() and int(label) < width:
        return int(label)
    indices = f"indices 0 to {width - 1}"
    have = f"{', '.join(names)} ({indices})" if names else f"{indices}, no names"
    raise ValueError(f"{file_name} has no column {label!r}; it has {have}")


def _take_columns(table: Any, places: list[int]) -> Any:
    """Return a view of the columns where they are evenly spaced, else a stream of blocks."""
    step = places[1] - places[0] if len(places) > 1 else 1
    if step > 0 and places == list(range(places[0], places[-1] + 1, step)):
        return table[:, places[0] : places[-1] + 1 : step]
    starts = range(0, len(table), BLOCK_ROWS)
    return lambda: (table[i : i + BLOCK_ROWS][:, places] for i in starts)


def _select_numbers(
    rows: ParquetRows, places: list[int] | None, order: list[str] | None
) -> ParquetRows:
    """Return the selected columns of a parquet file; they must have numbers and distinct names."""
    names, file = rows.columns, rows.file.name
    if places is None and order is None and rows.index_columns:
        places = rows.data_columns  # an index is not a column, unless it is asked for by name
    if places is not None:
        rows = rows.select(places)
    for name in rows.columns:
        if names.count(name) > 1:
            raise ValueError(
                f"{file} has {names.count(name)} columns named {name!r}, which cannot be told "
                "apart; rename them"
            )
    for name, (kind, is_number) in zip(rows.columns, rows.column_types(), strict=True):
        if not is_number:
            raise TypeError(
                f"{file}: column {name!r} is of type {kind}; expected real numbers: leave "
                "it out, or convert it"
            )
    if not len(rows):
        raise ValueError(f"{file} has no rows; at least one is needed")
    return rows
