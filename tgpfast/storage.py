"""Files: an npz without pickles, written whole or not at all, and distrusted when read."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1
HOMES = {  # kind -> module and class
    "statistics": ("tgpfast.statistics", "Statistics"),
    "density": ("tgpfast.density", "Density"),
    "spectrum": ("tgpfast.spectrum", "Spectrum"),
    "groups": ("tgpfast.grouped_density", "GroupedDensity"),
}
HEADER = "header"  # the member that holds kind, version and small facts, as JSON


def write(
    path: str | os.PathLike[str], kind: str, facts: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Write arrays and JSON-able facts; a crash on the way leaves the old file whole."""
    target = Path(path)
    header = json.dumps({"kind": kind, "version": FORMAT_VERSION, **facts})
    members: dict[str, Any] = {HEADER: np.array(header), **arrays}
    with replacing(target) as file:
        np.savez(file, **members)


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of the target, or of what that links to, when all has
    gone well: a reader, or a crash, finds the old file or the new one, whole. An old file's mode is
    kept."""
    target = Path(os.path.realpath(target))
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(target).st_mode)
    # a name may be as long as names can be
    temporary = target.parent / f"{target.name[:32]}.{secrets.token_hex(8)}.part"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], dict[str, NDArray[Any]]]:
    """(kind, facts, arrays) of a file made by ``write``; ValueError for anything else.

    Members are checked before their bytes are taken in: stored uncompressed, of distinct names, of
    plain dtypes, and exactly as long as their headers say.
    """
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(name) as archive:
            arrays = _members(archive, name)
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, ValueError) as error:
        # RuntimeError: a member that claims to be encrypted; OSError: offsets outside the file
        if isinstance(error, (PermissionError, IsADirectoryError)):
            raise
        raise ValueError(
            f"{name!r} is not a file saved by tgpfast, or is damaged: {error}"
        ) from error
    if HEADER not in arrays or arrays[HEADER].dtype.kind != "U" or arrays[HEADER].shape != ():
        raise ValueError(f"{name!r} is not a file saved by tgpfast: it has no header")
    try:
        facts = json.loads(str(arrays.pop(HEADER)))
        kind, version = str(facts.pop("kind")), int(facts.pop("version"))
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
        raise ValueError(f"{name!r} has a damaged header") from None
    if version < 1:
        raise ValueError(f"{name!r} has a damaged header: version {version}")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{name!r} has format version {version}, this tgpfast reads up to {FORMAT_VERSION}; "
            "upgrade tgpfast to load it"
        )
    return kind, facts, arrays


def load(path: str | os.PathLike[str]) -> Any:
    """Whatever was saved to this file by a ``save`` method of tgpfast.

    ValueError says what is wrong with a file that is truncated, of another kind, of a newer version
    or doctored.
    """
    kind, facts, arrays = read(path)
    if kind not in HOMES:
        raise ValueError(f"{os.fspath(path)!r} holds {kind!r}, which this tgpfast does not know")
    module, name = HOMES[kind]
    return getattr(importlib.import_module(module), name)._from_file(path, facts, arrays)


def _members(archive: zipfile.ZipFile, name: str) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for info in archive.infolist():
        member = info.filename.removesuffix(".npy")
        if info.filename == member or not member.isidentifier() or member in arrays:
            raise ValueError(f"unexpected member {info.filename!r}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"member {member!r} is compressed")
        with archive.open(info) as file:
            version = np.lib.format.read_magic(file)
            reader = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }.get(version)
            if reader is None:
                raise ValueError(f"member {member!r} has array format {version}")
            shape, _, dtype = reader(file)
            if dtype.kind not in "fiubUMm":
                raise ValueError(f"member {member!r} has dtype {dtype}")
            size = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if file.tell() + size != info.file_size:
                raise ValueError(f"member {member!r} is not as long as its header says")
        with archive.open(info) as file:
            arrays[member] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def take(
    arrays: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...] | None, path: Any
) -> NDArray[np.float64]:
    """One float64 array out of those read, of the shape that its neighbours imply."""
    array = arrays.pop(name, None)
    if array is None:
        raise ValueError(f"{os.fspath(path)!r} is damaged: it lacks {name!r}")
    if array.dtype != np.float64 or (shape is not None and array.shape != shape):
        raise ValueError(
            f"{os.fspath(path)!r} is damaged: {name!r} is {array.dtype} {array.shape}, "
            f"expected float64 {shape}"
        )
    return np.ascontiguousarray(array)
