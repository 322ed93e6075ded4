"""What commands share: their description, kinds of values, and common options."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.missing_rows import MISSING_ROWS


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes
    ----------
    name : str
    summary : str
        One line for the list of commands.
    description : str
    examples : tuple of str
        Whole command lines.
    add_options : callable
        Adds the options to a parser.
    run : callable
        Runs the command with the parsed arguments.
    aliases : tuple of str, default ()
        Other names.
    flags : mapping of str to str
        Parameters of the Python functions that the command calls -> its options, where names
        differ from those of all commands.
    """

    name: str
    summary: str
    description: str
    examples: tuple[str, ...]
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    aliases: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)


def number_or(*words: str) -> Callable[[str], float | str]:
    """A type of arguments: a number, or one of the words."""

    def parse(text: str) -> float | str:
        if text in words:
            return text
        try:
            return float(text)
        except ValueError:
            raise _type_error(text, "a number", words) from None

    return parse


def count_or(*words: str, least: int = 1) -> Callable[[str], int | str]:
    """A type of arguments: a whole number of at least ``least``, or one of the words."""

    def parse(text: str) -> int | str:
        if text in words:
            return text
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise _type_error(text, f"a whole number of at least {least}", words)
        return value

    return parse


def share(text: str) -> float:
    """A type of arguments: a number above 0 and below 1."""
    value = float(number_or()(text))
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0 and below 1")
    return value


def names(text: str) -> list[str]:
    """A type of arguments: names or indices separated by commas."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r}: expected names or indices, as in x,y or 0,2")
    return found


def _type_error(text: str, what: str, words: Sequence[str]) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r}: expected {' or '.join([what, *words])}")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add MODEL."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="file written by tgpfast fit")


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add --columns."""
    parser.add_argument(
        "--columns", type=names, metavar="NAMES",
        help="columns to use, names or indices from 0, separated by commas (default: all)",
    )  # fmt: skip


def add_output(
    parser: argparse.ArgumentParser, metavar: str, text: str, *, required: bool = False
) -> None:
    """Add -o for a file of rows; ``text`` begins the help."""
    parser.add_argument(
        "-o", "--output", type=Path, required=required, metavar=metavar,
        help=f"{text}to this csv, tsv, txt, npy, parquet or json file; - prints csv",
    )  # fmt: skip


def add_missing(
    parser: argparse.ArgumentParser, choices: Sequence[str] = MISSING_ROWS,
    text: str = '"drop" leaves them out',
) -> None:  # fmt: skip
    """Add --missing; ``text`` explains the choices."""
    parser.add_argument(
        "--missing", choices=choices, default="error",
        help=f"what to do with rows that lack values: {text} (default: error)",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument(
        "--json", action="store_true",
        help="print one JSON document; numbers that are not finite are null",
    )  # fmt: skip


def add_progress(parser: argparse.ArgumentParser) -> None:
    """Add --quiet and --progress."""
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings")
    parser.add_argument(
        "--progress", action="store_true",
        help="show a progress bar on standard error even if that is not a terminal",
    )  # fmt: skip


def shows_progress(arguments: argparse.Namespace) -> bool:
    """Whether to show a progress bar."""
    return not arguments.quiet and (arguments.progress or sys.stderr.isatty())


class AddPairs(argparse.Action):
    """Collects the pairs of all arguments of an option, which may be given several times."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
        option_string: str | None = None,
    ) -> None:  # fmt: skip
        """Append to the pairs so far."""
        known = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*known, *itertools.chain.from_iterable(values)])


def column_ranges(text: str) -> list[tuple[str | int, tuple[float | None, float | None]]]:
    """Read COLUMN=LOW:HIGH, one or several separated by commas; an empty end is none."""
    return [_column_range(part) for part in _split_pairs(text)]


def _column_range(text: str) -> tuple[str | int, tuple[float | None, float | None]]:
    column, value = _column_and_value(text)
    low, colon, high = value.partition(":")
    try:
        if column == "" or not colon:
            raise ValueError
        return column, (float(low) if low else None, float(high) if high else None)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected COLUMN=LOW:HIGH, such as price=0: or share=0:1"
        ) from None


def column_numbers(text: str) -> list[tuple[str | int, float]]:
    """Read COLUMN=NUMBER, one or several separated by commas."""
    return [_column_number(part) for part in _split_pairs(text)]


def column_steps(text: str) -> list[tuple[str | int, float]]:
    """Read columns of step 1, and COLUMN=STEP, separated by commas."""
    return [_column_number(part if "=" in part else f"{part}=1") for part in names(text)]


def _column_number(text: str) -> tuple[str | int, float]:
    column, value = _column_and_value(text)
    try:
        if column == "":
            raise ValueError
        return column, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected COLUMN=NUMBER, such as hour=24"
        ) from None


def _split_pairs(text: str) -> list[str]:
    """Parts at the commas; one in the name of a column stays, as in x,y=3."""
    parts: list[str] = []
    for piece in text.split(","):
        if parts and "=" not in parts[-1]:
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _column_and_value(text: str) -> tuple[str | int, str]:
    """The column, a number where it is one, and what follows the last equals sign."""
    column, _, value = text.rpartition("=")
    return (int(column) if column.isdigit() else column), value
