"""Saved files: an npz archive without pickles, with a checksum.

A file is written whole or not at all, and everything in it is checked on loading.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

FORMAT_VERSION = 1  # of saved files; a later one tells older releases to refuse the file
HEADER = "header"  # the member that holds kind, version and small facts, as JSON
CHECKSUM = "checksum"  # field of the header; the first files of tgpfast have none
DEEPEST_HEADER = 64  # levels of nested lists and dictionaries; our headers have four
REMEDY = "use a backup copy, or make the object again and save it"
# Temporary files of processes that cannot be looked up are removed at this age, a week in seconds.
STALE_SECONDS = 7 * 24 * 3600.0
TEMPORARY_SUFFIX = ".part"
TARGET_CHARACTERS = 32  # of the target's name in a temporary one: names have a greatest length


def write(
    path: str | os.PathLike[str], kind: str, facts: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Write arrays and facts to a file; a crash on the way leaves an old file as it was.

    Parameters
    ----------
    path : str or path-like
    kind : str
        What the file holds, for `load`.
    facts : dict
        Small values that JSON can represent.
    arrays : dict of str to array

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    ValueError
        If the path is a folder, or its parent is a file.
    """
    target = Path(path)
    check_place(target)
    header = json.dumps({CHECKSUM: "", "kind": kind, "version": FORMAT_VERSION, **facts})
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header = header.replace('""', f'"{_checksum(header, arrays)}"', 1)
    members: dict[str, Any] = {HEADER: np.array(header), **arrays}
    with replacing(target) as file:
        np.savez(file, **members)


def _checksum(header: str, arrays: dict[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of the header, whose checksum field is empty, and of all arrays: their
    names, dtypes, shapes and bytes."""
    # a lone surrogate cannot be encoded otherwise; JSON has escaped those of column names
    digest = hashlib.sha256(header.encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {arrays[name].shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def check_place(target: Path) -> None:
    """Raise an error that says what to do unless a file can be put there."""
    if target.is_dir():
        raise ValueError(f"{os.fspath(target)!r} is a folder; give the name of a file")
    parent = target.parent
    if not parent.exists():
        raise FileNotFoundError(
            f"no such folder: {os.fspath(parent)!r}; make it, or write {target.name} elsewhere"
        )
    if not parent.is_dir():
        raise ValueError(f"{os.fspath(parent)!r} is a file; give the path of a folder in its place")


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """Give a file to write that replaces the target, or what it links to, if the block succeeds.

    A reader finds the old file or the new one, whole, also after a crash. The mode of an old file
    is kept. Temporary files that dead processes left beside the target are removed. A target that
    is not a regular file (a pipe, a device) is written directly.
    """
    with _naming(target), _replacing(Path(os.path.realpath(target))) as file:
        yield file


@contextlib.contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Let errors of the system name the target: they name a temporary file, or no file."""
    try:
        yield
    except OSError as error:
        is_ours = error.filename is None or os.fspath(error.filename).endswith(TEMPORARY_SUFFIX)
        if is_ours and error.errno is not None:  # a text alone would be lost
            error.filename, error.filename2 = os.fspath(target), None
        raise


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(target).st_mode
    if mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        with open(target, "wb") as direct:
            yield direct
        return
    _remove_stale(target)
    owner = f"{_machine_id()}-{os.getpid()}"
    prefix = target.name[:TARGET_CHARACTERS]
    temporary = target.parent / f"{prefix}.{owner}-{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    _being_written.add(temporary.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        _being_written.discard(temporary.name)


# -- temporary files of killed saves -------------------------------------------------------------

_being_written: set[str] = set()  # names of the temporary files of this process


@functools.cache
def _machine_id() -> str:
    """Return eight hex digits for the machine, its boot and its process namespace.

    Two processes with the same digits see each other's process ids. Where the system does not tell
    boot and namespace, the name of the host serves.
    """
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("|".join(facts).encode()).hexdigest()[:8]


def _remove_stale(target: Path) -> None:
    """Remove the temporary files that killed processes left beside the target.

    Those of this machine go at once, those of another host or an earlier boot after STALE_SECONDS.
    """
    prefix = re.escape(target.name[:TARGET_CHARACTERS])
    pattern = re.compile(prefix + r"\.(?:([0-9a-f]{8})-(\d{1,10})-)?[0-9a-f]{16}\.part")
    with contextlib.suppress(OSError):  # writing will say what is wrong with the folder
        for name in os.listdir(target.parent):
            found = pattern.fullmatch(name)
            if found is None or name in _being_written:
                continue
            path = target.parent / name
            with contextlib.suppress(OSError):  # removed by another process, or not ours
                if found[1] == _machine_id() and os.name != "nt":
                    is_stale = int(found[2]) == os.getpid() or not _is_alive(int(found[2]))
                else:
                    is_stale = time.time() - path.stat().st_mtime > STALE_SECONDS
                if is_stale:
                    path.unlink()


def _is_alive(pid: int) -> bool:
    """Whether a process has this id. Not for Windows, where os.kill would end it."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it exists and belongs to somebody else
    return True


# -- reading -------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], dict[str, NDArray[Any]]]:
    """Return (kind, facts, arrays) of a file made by ``write``; ValueError for anything else.

    Members are checked before they are read: they must be uncompressed, have distinct names and
    plain dtypes, and be exactly as long as their headers say. Then the checksum is compared.
    """
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(name) as archive:
            arrays = _read_members(archive)
    except (FileNotFoundError, PermissionError, IsADirectoryError, MemoryError):
        raise
    except Exception as error:  # damaged bytes end in errors of many types within zipfile and NumPy
        raise ValueError(
            f"{name!r} is not a file saved by tgpfast, or is damaged: {error}; {REMEDY}"
        ) from error
    if HEADER not in arrays or arrays[HEADER].dtype.kind != "U" or arrays[HEADER].shape != ():
        raise ValueError(f"{name!r} is not a file saved by tgpfast: it has no header")
    text = str(arrays.pop(HEADER))
    kind, facts = _read_header(text, name)
    if CHECKSUM in facts:
        claimed = str(facts.pop(CHECKSUM))
        if claimed != _checksum(text.replace(f'"{claimed}"', '""', 1), arrays):
            raise ValueError(
                f"{name!r} is damaged: its contents do not match its checksum, so members were "
                f"changed or come from another file; {REMEDY}"
            )
    return kind, facts, arrays


def _read_header(text: str, name: str) -> tuple[str, dict[str, Any]]:
    """Return (kind, facts) of a header; ValueError names the file."""
    try:
        facts = json.loads(text)
        kind, version = str(facts.pop("kind")), int(facts.pop("version"))
        if _depth(facts) >= DEEPEST_HEADER:  # too deep to be printed or saved again
            raise RecursionError
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
        raise ValueError(f"{name!r} has a damaged header; {REMEDY}") from None
    if version < 1:
        raise ValueError(f"{name!r} has a damaged header: version {version}; {REMEDY}")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{name!r} has format version {version}, this tgpfast reads up to {FORMAT_VERSION}; "
            "upgrade tgpfast to load it"
        )
    return kind, facts


def _depth(value: Any) -> int:
    """Return the levels of nested lists and dictionaries."""
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, (dict, list)) else 0


_readers: dict[str, Callable[..., Any]] = {}


def register_reader(kind: str, reader: Callable[..., Any]) -> None:
    """Let ``load`` read files of a kind.

    Parameters
    ----------
    kind : str
        As given to ``write``.
    reader : callable
        reader(path, facts, arrays) returns the object.
    """
    _readers[kind] = reader


def load(path: str | os.PathLike[str]) -> Any:
    """Load what a ``save`` method of tgpfast has written: a model, statistics or a spectrum.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    Density, GroupedDensity, Statistics or Spectrum

    Raises
    ------
    ValueError
        If the file is truncated, damaged, of another kind or of a newer version.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import tgpfast as tgp
    >>> stats = tgp.accumulate(np.zeros((3, 1)), tgp.Features([[1.0]], [0.0], 1.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stats.save(f"{folder}/stats.npz")
    ...     tgp.load(f"{folder}/stats.npz").n
    3.0
    """
    kind, facts, arrays = read(path)
    try:
        return restore(kind, path, facts, arrays)
    except (
        ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError
    ) as error:  # fmt: skip
        text = str(error) if isinstance(error, ValueError) else repr(error)
        if repr(os.fspath(path)) not in text:
            text = f"{os.fspath(path)!r} is damaged: {text}"
        raise ValueError(f"{text}; {REMEDY}" if "damaged" in text else text) from error


def restore(kind: str, path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Return the object of a kind that facts and arrays of a file describe."""
    if kind not in _readers:
        raise ValueError(f"{os.fspath(path)!r} holds {kind!r}, which this tgpfast does not know")
    return _readers[kind](path, facts, arrays)


def _read_members(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for info in archive.infolist():
        member = info.filename.removesuffix(".npy")
        if info.filename == member or not member.isidentifier() or member in arrays:
            raise ValueError(f"unexpected member {info.filename!r}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"member {member!r} is compressed")
        with archive.open(info) as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # what numpy writes is read without a warning
            shape, dtype = read_array_layout(file, member)
            if dtype.kind not in "fiubUMm" or not dtype.itemsize:
                raise ValueError(f"member {member!r} has dtype {dtype}")
            size = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if file.tell() + size != info.file_size:
                raise ValueError(f"member {member!r} is not as long as its header says")
        with archive.open(info) as file:
            arrays[member] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def read_array_layout(file: IO[bytes], member: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype in the first bytes of an npy stream; ValueError if damaged.

    The stream is left at the first byte of the array.
    """
    version = np.lib.format.read_magic(file)
    reader = {
        (1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)  # fmt: skip
    if reader is None:
        raise ValueError(f"member {member!r} has array format {version}")
    try:
        shape, _, dtype = reader(file)
    except Exception as error:  # of Python's tokenizer, parser and NumPy's dtypes
        raise ValueError(f"member {member!r} has a damaged array header ({error})") from error
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"member {member!r} has a damaged shape {shape}")
    return shape, dtype


def take(
    arrays: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...] | None, path: Any
) -> NDArray[np.float64]:
    """Remove one float64 array from those read, and return it.

    Parameters
    ----------
    arrays : dict of str to array
    name : str
    shape : tuple of int, or None
        The shape that other arrays imply; None for any.
    path : str or path-like
        Of the file, for messages.

    Raises
    ------
    ValueError
        If the array is missing, or of another dtype or shape.
    """
    array = arrays.pop(name, None)
    if array is None:
        raise ValueError(f"{os.fspath(path)!r} is damaged: it lacks {name!r}")
    if array.dtype != np.float64 or (shape is not None and array.shape != shape):
        raise ValueError(
            f"{os.fspath(path)!r} is damaged: {name!r} is {array.dtype} {array.shape}, "
            f"expected float64 {shape}"
        )
    return np.ascontiguousarray(array)


def as_reals(array: NDArray[Any]) -> NDArray[Any]:
    """Complex numbers as pairs of real ones along one more axis; others as they are."""
    if array.dtype.kind != "c":
        return array
    return np.ascontiguousarray(array).view(np.float64).reshape(*array.shape, 2)


def from_reals(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """A copy of what `as_reals` returned, as an array of this dtype again."""
    if np.dtype(dtype).kind != "c":
        return array.astype(dtype)
    return np.ascontiguousarray(array).view(dtype)[..., 0].copy()


def check_all_taken(arrays: dict[str, Any], path: Any) -> None:
    """ValueError where arrays of a file are left that nothing asked for."""
    if arrays:
        raise ValueError(f"{os.fspath(path)!r} holds unexpected members {sorted(arrays)}")
