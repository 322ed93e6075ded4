"""Data files -> rows: npy (mapped, never read whole), npz, csv and its kin (streamed), parquet
(streamed where it is large)."""

from __future__ import annotations

import csv
import io
import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .csv import TextRows
from .parquet import ParquetRows
from .storage import array_layout, replacing
from .table import BLOCK_ROWS

TEXT = {".csv": None, ".tsv": "\t", ".txt": None}  # suffix -> delimiter, None: found out
SUFFIXES = (".npy", ".npz", ".parquet", *TEXT)
WRITABLE = (".npy", *TEXT)
TABLE_NAMES = ("X", "x", "data")  # of the array taken from an npz that holds several
COLUMN_NAMES = ("columns", "names", "feature_names")
DEFLATE_RATIO = 1032  # largest ratio of plain to compressed bytes


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
        text = TextRows(file, TEXT[suffix])
        chosen = _choice(path, order, text.names, text.width)
        if chosen is not None:
            text.select(chosen)
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
        text = TextRows(file, TEXT[suffix])
        return text.names, text.width
    if suffix == ".parquet":
        parquet = ParquetRows(file)
        found = [parquet.columns[k] for k in parquet.data_columns]
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
    """Write rows to npy, or to csv or tsv with a header where there are names. Where that fails,
    on a full disk say, the old file stays as it is."""
    file = check_writable(path)
    suffix = file.suffix.lower()
    with replacing(file) as binary:
        if suffix == ".npy":
            # not the file itself: NumPy would write past Python, and not notice a full disk
            np.save(SimpleNamespace(write=binary.write), rows)
            return
        delimiter = TEXT[suffix] or ","
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        try:
            if columns is not None:
                csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerow(columns)
            np.savetxt(stream, rows, fmt="%.17g", delimiter=delimiter)
        finally:
            stream.detach()  # writes what is left, and does not close the file below it


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
    starts = range(0, len(table), BLOCK_ROWS)
    return lambda: (table[i : i + BLOCK_ROWS][:, chosen] for i in starts)


# -- binary files --------------------------------------------------------------------------------


def _from_npy(file: Path) -> tuple[Any, None]:
    try:
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # damaged bytes end in errors of many types within NumPy
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
        # a file opened here is closed also where np.load fails
        with file.open("rb") as binary, np.load(binary, allow_pickle=False) as archive:
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
            _check_sizes(archive, name)
            table = archive[name]
            for key in COLUMN_NAMES:
                if shapes.get(key) == (table.shape[-1:], "U") and table.ndim == 2:
                    _check_sizes(archive, key)
                    return table, [str(c) for c in archive[key]]
            return table, None
    except (PermissionError, MemoryError):
        raise
    except Exception as error:  # damaged bytes end in errors of many types within zipfile and NumPy
        raise ValueError(f"{file.name} cannot be read: {error}") from None


def _shape(archive: Any, name: str) -> tuple[tuple[int, ...], str]:
    """Shape and kind of a member, from its first bytes."""
    with archive.zip.open(f"{name}.npy") as stream:
        shape, dtype = array_layout(stream, name)
    return shape, dtype.kind


def _check_sizes(archive: Any, name: str) -> None:
    """ValueError unless a member is as long as its header promises; NumPy would take memory for
    what the header says before it reads a byte."""
    info = archive.zip.getinfo(f"{name}.npy")
    with archive.zip.open(info) as stream:
        shape, dtype = array_layout(stream, name)
        promised = math.prod(shape) * dtype.itemsize
        held = info.file_size - stream.tell()
    if promised != held:
        raise ValueError(
            f"array {name!r} of shape {shape} and dtype {dtype} takes {promised:,} bytes, and the "
            f"archive holds {held:,}: it is damaged; write it again with numpy.savez"
        )
    # deflate shrinks by at most 1032 times, so that a larger promise is a false one
    if promised > DEFLATE_RATIO * (info.compress_size + 1024) and info.compress_type in (
        zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED,
    ):  # fmt: skip
        raise ValueError(
            f"array {name!r} takes {promised:,} bytes, more than its {info.compress_size:,} "
            "compressed bytes can hold: it is damaged; write it again with numpy.savez"
        )


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
    rows = ParquetRows(file)
    chosen = _choice(path, order, rows.columns, len(rows.columns))
    if chosen is None and order is None and rows.index_columns:
        chosen = rows.data_columns  # an index is no column, unless it is asked for by name
    names = rows.columns
    if chosen is not None:
        rows = rows.select(chosen)
    for name in rows.columns:
        if names.count(name) > 1:
            raise ValueError(
                f"{file.name} has {names.count(name)} columns named {name!r}, which cannot be told "
                "apart; rename them"
            )
    for name, (kind, good) in zip(rows.columns, rows.column_types(), strict=True):
        if not good:
            raise TypeError(
                f"{file.name}: column {name!r} is of type {kind}; expected real numbers: leave "
                "it out, or convert it"
            )
    if not len(rows):
        raise ValueError(f"{file.name} has no rows; at least one is needed")
    return rows
