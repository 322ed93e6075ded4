"""Rows of npy files, which are mapped and never read whole, and of npz archives."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .storage import read_array_layout

TABLE_NAMES = ("X", "x", "data")  # of the array that is taken from an archive of several
NAMES_OF_COLUMNS = ("columns", "names", "feature_names")  # of the array that names the columns
DEFLATE_RATIO = 1032  # largest ratio of plain to compressed bytes that deflate reaches
ZIP_HEADER_BYTES = 1024  # an allowance for what an archive stores beside the compressed bytes

Layout = tuple[tuple[int, ...], str]  # shape, and kind of the dtype


def open_npy(file: Path) -> Any:
    """Return the array of an npy file as a memmap.

    Raises
    ------
    ValueError
        If the file is damaged, of another kind, or has not one or two dimensions.
    TypeError
        If it does not hold real numbers.
    """
    try:
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # damaged bytes end in errors of many types within NumPy
        raise ValueError(_describe_damage(file, error)) from None
    if not isinstance(rows, np.ndarray):
        rows.close()
        raise ValueError(f"{file.name} is an npz archive; give it the extension .npz")
    if rows.dtype.names:
        raise TypeError(
            f"{file.name} is a structured array ({', '.join(rows.dtype.names)}); expected a table "
            "of one dtype: numpy.lib.recfunctions.structured_to_unstructured makes one"
        )
    if rows.dtype.kind not in "fiub":
        raise TypeError(f"{file.name} has dtype {rows.dtype}; expected real numbers")
    if rows.ndim not in (1, 2):
        raise ValueError(f"{file.name} has shape {rows.shape}; expected (rows, columns)")
    return rows


def _describe_damage(file: Path, error: Exception) -> str:
    with file.open("rb") as stream:
        start = stream.read(6)
    if start != b"\x93NUMPY":
        found = "it does not begin as one" if start else "it is empty"
        return f"{file.name} is not an npy file: {found}; write one with numpy.save"
    if "ickle" in str(error) or "bject" in str(error):
        return (
            f"{file.name} holds Python objects, which are not loaded; expected numbers: save "
            "array.astype(float)"
        )
    return f"{file.name} is damaged or cut short: {error}"


def read_npz(file: Path) -> tuple[Any, list[str] | None]:
    """Return the table of an npz archive, and the names of its columns or None.

    The table is the only two-dimensional array of numbers, or the one named X. ValueError says why
    there is none.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError(
            f"{file.name} cannot be read: it is not an npz archive, or is cut short; write one "
            "with numpy.savez"
        )
    try:
        # opened here, so that it is closed if np.load fails
        with file.open("rb") as binary, np.load(binary, allow_pickle=False) as archive:
            layouts = {name: _read_layout(archive, name) for name in archive.files}
            name = _choose_table(layouts)
            _check_sizes(archive, name)
            table = archive[name]
            for key in NAMES_OF_COLUMNS:
                if layouts.get(key) == (table.shape[-1:], "U") and table.ndim == 2:
                    _check_sizes(archive, key)
                    return table, [str(c) for c in archive[key]]
            return table, None
    except (PermissionError, MemoryError):
        raise
    except Exception as error:  # damaged bytes end in errors of many types within zipfile and NumPy
        raise ValueError(f"{file.name} cannot be read: {error}") from None


def _read_layout(archive: Any, name: str) -> Layout:
    with archive.zip.open(f"{name}.npy") as stream:
        shape, dtype = read_array_layout(stream, name)
    return shape, dtype.kind


def _choose_table(layouts: dict[str, Layout]) -> str:
    if layouts.get("header", ((), ""))[1] == "U":
        raise ValueError("it is a model or statistics saved by tgpfast, not a data file")
    for ndim in (2, 1):
        tables = [n for n, (s, kind) in layouts.items() if len(s) == ndim and kind in "fiub"]
        named = [name for name in TABLE_NAMES if name in tables]
        if named or len(tables) == 1:
            return (named or tables)[0]
        if tables:
            break
    held = ", ".join(f"{name} {shape}" for name, (shape, _) in layouts.items()) or "nothing"
    raise ValueError(
        f"expected one two-dimensional array of numbers, or one named X; it holds {held}"
    )


def _check_sizes(archive: Any, name: str) -> None:
    """Raise ValueError unless an array is as long as its header promises.

    NumPy would allocate what the header says before it reads a byte.
    """
    info = archive.zip.getinfo(f"{name}.npy")
    with archive.zip.open(info) as stream:
        shape, dtype = read_array_layout(stream, name)
        promised = math.prod(shape) * dtype.itemsize
        held = info.file_size - stream.tell()
    if promised != held:
        raise ValueError(
            f"array {name!r} of shape {shape} and dtype {dtype} takes {promised:,} bytes, and the "
            f"archive holds {held:,}: it is damaged; write it again with numpy.savez"
        )
    most = DEFLATE_RATIO * (info.compress_size + ZIP_HEADER_BYTES)
    if promised > most and info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(
            f"array {name!r} takes {promised:,} bytes, more than its {info.compress_size:,} "
            "compressed bytes can hold: it is damaged; write it again with numpy.savez"
        )
