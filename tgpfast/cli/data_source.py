"""Data as the command line names them: files, folders, patterns and standard input."""

from __future__ import annotations

import argparse
import contextlib
import glob
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..data import files
from ..density.density import Density
from .options import add_columns

STANDARD_INPUT = "-"
SPOOLED_NAME = "standard-input.csv"  # file that holds the rows of standard input, in messages too


def add_data(
    parser: argparse.ArgumentParser, text: str = "", *, is_optional: bool = False
) -> None:
    """Add DATA and --columns; ``text`` ends the help of DATA."""
    parser.add_argument(
        "data", nargs="*" if is_optional else "+", metavar="DATA",
        help=f"{', '.join(s[1:] for s in files.SUFFIXES)} files of rows, folders of them, patterns "
        f"such as 'part-*.csv', or - for csv from standard input{text}",
    )  # fmt: skip
    add_columns(parser)


@contextlib.contextmanager
def open_data(names: Sequence[str]) -> Iterator[Any]:
    """Give the path of the only file, or a `FileSet` of all of them.

    Standard input is copied to a temporary file, since most commands read rows more than once.

    Parameters
    ----------
    names : sequence of str
        Files, folders, patterns, or "-".

    Raises
    ------
    FileNotFoundError
        If no file matches a pattern.
    ValueError
        If a folder has no data file, or "-" is given twice.
    """
    if list(names).count(STANDARD_INPUT) > 1:
        raise ValueError("- is given twice, but standard input can be read once; give it once")
    with contextlib.ExitStack() as stack:
        paths: list[Path] = []
        for name in names:
            if name == STANDARD_INPUT:
                paths.append(stack.enter_context(_spool_input()))
            else:
                paths += _find_paths(name)
        yield paths[0] if len(paths) == 1 else files.FileSet(paths)


@contextlib.contextmanager
def _spool_input() -> Iterator[Path]:
    """Give a temporary file that holds the bytes of standard input."""
    with tempfile.TemporaryDirectory(prefix="tgpfast-") as folder:
        spooled = Path(folder) / SPOOLED_NAME
        with spooled.open("wb") as file:
            if sys.stdin is not None:  # a closed stream has no rows
                shutil.copyfileobj(sys.stdin.buffer, file)
        yield spooled


def _find_paths(name: str) -> list[Path]:
    """The files that a name stands for."""
    path = Path(name)
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in files.SUFFIXES)
        if not found:
            raise ValueError(
                f"{name!r} has no data files; expected files that end in one of "
                f"{', '.join(files.SUFFIXES)}"
            )
        return found
    if path.exists() or not glob.has_magic(name):
        return [path]  # a missing file is an error of the reader
    matches = sorted(glob.glob(name, recursive=True))
    if not matches:
        raise FileNotFoundError(f"no file matches {name!r}; check the pattern")
    return [Path(match) for match in matches]


def match_columns(model: Density, source: Any, asked: list[str] | None) -> Any:
    """The data, or the columns of them that the user asked for or that have the model's names.

    Their order is that of the model, which then need not know their names.
    """
    (present, width), names = files.columns_of(source), model.table.columns
    chosen = asked
    if asked is None and names is not None and present is not None and present != names:
        missing = [name for name in names if name not in present]
        if missing:
            raise ValueError(
                f"{source.name} lacks the model's columns {', '.join(missing)}; it has "
                f"{', '.join(present)}: rename them, or choose by --columns"
            )
        chosen = names
    found = width if chosen is None else len(chosen)
    if found != model.dimension:
        origin = "--columns names" if asked else f"{source.name} has"
        known = f" ({', '.join(names)})" if names else ""
        raise ValueError(
            f"{origin} {found} columns, expected the model's {model.dimension}{known}: choose "
            "them by --columns"
        )
    return source if chosen is None else files.select_columns(source, chosen)
