"""Data files -> rows: npy (mapped, never read whole), npz, csv and its kin (streamed), parquet."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 16_384  # lines of a text file parsed at a time
TEXT = {".csv": None, ".tsv": "\t", ".txt": None}  # suffix -> delimiter, None: found out
SUFFIXES = (".npy", ".npz", ".parquet", *TEXT)


def open_rows(path: str | os.PathLike[str]) -> tuple[Any, list[str] | None]:
    """(rows as an array, a frame, or a callable that streams blocks; column names or None)."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"no such file: {os.fspath(path)!r}")
    suffix = file.suffix.lower()
    if suffix == ".npy":
        try:
            return np.load(file, mmap_mode="r", allow_pickle=False), None
        except ValueError as error:
            raise ValueError(f"{file.name} is not an array of numbers: {error}") from None
    if suffix == ".npz":
        return _from_npz(file)
    if suffix == ".parquet":
        return _from_parquet(file), None
    if suffix in TEXT:
        return _from_text(file, TEXT[suffix])
    raise ValueError(
        f"{file.name}: the ending {suffix!r} is not known; expected one of {', '.join(SUFFIXES)}"
    )


def write_rows(path: str | os.PathLike[str], rows: Any, columns: list[str] | None) -> None:
    """Write rows to npy, or to csv or tsv with a header where there are names."""
    file, suffix = Path(path), Path(path).suffix.lower()
    if suffix == ".npy":
        np.save(file, rows)
        return
    if suffix not in TEXT:
        raise ValueError(f"{file.name}: expected an ending of .npy, {', '.join(TEXT)}")
    delimiter = TEXT[suffix] or ","
    header = delimiter.join(columns) if columns else ""
    np.savetxt(file, rows, fmt="%.17g", delimiter=delimiter, header=header, comments="")


def _from_npz(file: Path) -> tuple[Any, list[str] | None]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from None
    tables = [n for n, a in arrays.items() if a.ndim == 2 and a.dtype.kind in "fiub"]
    for name in ("X", "x", "data"):
        if name in tables:
            tables = [name]
    if len(tables) != 1:
        held = ", ".join(f"{n} {a.shape}" for n, a in arrays.items())
        raise ValueError(f"{file.name} must hold one two-dimensional array, or one named X: {held}")
    table = arrays[tables[0]]
    for name in ("columns", "names", "feature_names"):
        if name in arrays and arrays[name].shape == (table.shape[1],):
            return table, [str(c) for c in arrays[name]]
    return table, None


def _from_parquet(file: Path) -> Any:
    for name in ("polars", "pandas"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        return module.read_parquet(file)
    raise ImportError(f"{file.name}: parquet files need polars or pandas: pip install polars")


def _from_text(file: Path, delimiter: str | None) -> tuple[Any, list[str] | None]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        first = stream.readline().rstrip("\r\n")
    if not first.strip():
        raise ValueError(f"{file.name} is empty, or its first line is")
    if delimiter is None:
        delimiter = next((c for c in ",;\t" if c in first), None)
    cells = first.split(delimiter) if delimiter else first.split()
    fields = [cell.strip().strip('"') for cell in cells]
    columns = None if all(_is_number(f) for f in fields) else fields
    return _TextRows(file, delimiter, columns, len(fields)), columns


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == ""  # a missing value, to be reported with its row and column
    return True


class _TextRows:
    """Blocks of a text file, read anew at every call."""

    def __init__(
        self, file: Path, delimiter: str | None, columns: list[str] | None, width: int
    ) -> None:
        self.file, self.delimiter, self.columns, self.width = file, delimiter, columns, width

    def __call__(self) -> Iterator[Any]:
        with self.file.open(encoding="utf-8-sig", newline="") as stream:
            line = 1
            if self.columns is not None:
                stream.readline()
                line = 2
            while True:
                lines = list(itertools.islice(stream, CHUNK))
                if not lines:
                    return
                rows = [text for text in lines if text.strip()]
                if rows:
                    yield self._parse(rows, lines, line)
                line += len(lines)

    def _parse(self, rows: list[str], lines: list[str], first: int) -> Any:
        try:
            block = np.loadtxt(
                rows, delimiter=self.delimiter, ndmin=2, comments=None, quotechar='"'
            )
        except ValueError as error:
            raise ValueError(self._explain(lines, first, str(error))) from None
        if block.shape[1] != self.width:
            raise ValueError(
                f"{self.file.name}, line {first}: {block.shape[1]} columns, expected {self.width}"
            )
        return block

    def _explain(self, lines: list[str], first: int, message: str) -> str:
        """The first cell that is not a number, by line and column."""
        for number, text in enumerate(lines, first):
            if not text.strip():
                continue
            cells = text.rstrip("\r\n").split(self.delimiter) if self.delimiter else text.split()
            if len(cells) != self.width:
                return (
                    f"{self.file.name}, line {number}: {len(cells)} columns, expected {self.width}"
                )
            for k, cell in enumerate(cells):
                bare = cell.strip().strip('"')
                if bare == "" or not _is_number(bare):
                    name = str(k) if self.columns is None else f"{k} ({self.columns[k]!r})"
                    held = f"{bare!r} is not a number" if bare else "a value is missing"
                    return f"{self.file.name}, line {number}, column {name}: {held}"
        return f"{self.file.name}: {re.sub(r'; use `usecols`.*', '', message)}"
