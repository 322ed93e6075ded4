"""Runs one command: parses options, prints errors and warnings in one line, sets the status."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TextIO

from .._version import __version__
from . import (
    completion,
    demo,
    evaluate,
    fit,
    info,
    merge,
    outliers,
    paper,
    plot,
    query,
    sample,
    score,
    warmup,
)
from .flag_names import name_data, name_flags

COMMANDS = {
    module.COMMAND.name: module.COMMAND
    for module in (
        fit, score, sample, evaluate, plot, query, outliers, merge, info, demo, warmup, paper,
        completion,
    )
}  # fmt: skip
FAILED = 2  # status of every error that one line explains; a mistake of ours ends with Python's 1

REMEDIES = {  # for errors of the system
    errno.EACCES: "change its permissions, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "free some space, or write elsewhere",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, default None
        Arguments; by default those of the process.

    Returns
    -------
    int
        0 on success; 2 if the command line, the data or a file is wrong; 130 if interrupted. Every
        failure prints one line on standard error, after the trace if --debug is given.
    """
    with _open_streams():
        try:
            status = _run(argv)
            sys.stdout.flush()
            return status
        except BrokenPipeError:  # the reader of our output has closed it
            _discard(sys.stdout)
            return 0
        except OSError as error:  # standard output is on a full disk
            _discard(sys.stdout)
            print(f"tgpfast: standard output: {describe_error(error)}", file=sys.stderr)
            return FAILED
        except SystemExit:  # raised by the parser after it has printed
            try:
                sys.stdout.flush()
            except OSError:
                _discard(sys.stdout)
            raise


def _run(argv: Sequence[str] | None) -> int:
    arguments, unknown = make_parser().parse_known_args(argv)
    if unknown:
        arguments.parser.refuse(unknown)
    typed = [part for word in argv or sys.argv[1:] for part in (word, os.path.basename(word))]

    data = getattr(arguments, "data", None)
    rows = str(data[0]) if isinstance(data, list) and len(data) == 1 else "DATA"

    def in_our_words(text: str) -> str:
        return name_data(name_flags(text, COMMANDS[arguments.command].flags, typed), rows)

    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = _make_warning_printer(in_our_words)
        try:
            arguments.run(arguments)
        except BrokenPipeError:
            raise
        except (ValueError, TypeError, ImportError, OSError, MemoryError) as error:
            try:
                if arguments.debug:
                    traceback.print_exc()
                print(f"tgpfast: {in_our_words(describe_error(error))}", file=sys.stderr)
            except BrokenPipeError:  # nobody reads; the status tells
                _discard(sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            print("tgpfast: interrupted", file=sys.stderr)
            return 130
    return 0


@contextlib.contextmanager
def _open_streams() -> Iterator[None]:
    """Make standard output and error accept any text.

    Characters that the terminal's encoding lacks are escaped. A closed stream (None) discards its
    text.
    """
    with contextlib.ExitStack() as stack:
        redirects = {"stdout": contextlib.redirect_stdout, "stderr": contextlib.redirect_stderr}
        for name, redirect in redirects.items():
            stream = getattr(sys, name)
            if stream is None:
                sink = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(redirect(sink))
            elif hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        yield


def _discard(stream: TextIO) -> None:
    """Redirect a stream to nowhere, so that Python's last flush does not fail again: its status
    would be 120."""
    with contextlib.suppress(OSError, ValueError):  # the stream has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def describe_error(error: BaseException) -> str:
    """An exception in one line, without error numbers; what to do about those of the system."""
    if isinstance(error, OSError) and error.strerror:
        has_name = error.filename is not None
        text = f"{os.fspath(error.filename)!r}: {error.strerror}" if has_name else error.strerror
        remedy = REMEDIES.get(error.errno or 0)
        return text if remedy is None else f"{text}; {remedy}"
    return " ".join(str(error).split()) or type(error).__name__


def _make_warning_printer(rewrite: Callable[[str], str]) -> Callable[..., None]:
    """A replacement of ``warnings.showwarning`` that prints each text once, in one line."""
    seen = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = rewrite(" ".join(str(message).split()))
        if text not in seen:
            seen.add(text)
            print(f"tgpfast: warning: {text}", file=sys.stderr)

    return show


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(FAILED, f"{self.prog}: {message}; see {self.prog} --help\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with an error that names arguments that are not known, and a similar option."""
        similar = difflib.get_close_matches(unknown[0], self._option_string_actions, 1)
        hint = f" (perhaps {similar[0]}?)" if similar else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


class _Help(argparse.HelpFormatter):
    """Help that keeps every example on a line of its own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example") else super()._fill_text(text, width, indent)


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; ``parse_args(...).run`` is the function of the command."""
    parser = _Parser(
        prog="tgpfast", description="Learn the distribution of data on a CPU.",
        epilog="Start with: tgpfast demo",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"tgpfast {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        own = commands.add_parser(
            command.name, aliases=command.aliases, help=command.summary, formatter_class=_Help,
            description=command.description, epilog=_examples_text(command.examples),
        )  # fmt: skip
        command.add_options(own)
        own.add_argument("--debug", action="store_true", help="print the trace of an error")
        own.set_defaults(
            run=command.run, command=command.name, parser=own, parsers=commands.choices
        )
    return parser


def _examples_text(examples: Sequence[str]) -> str:
    if len(examples) == 1:
        return f"example: {examples[0]}"
    return "\n  ".join(["examples:", *examples])
