"""``tgpfast warmup``: compile the kernels before their first use."""

from __future__ import annotations

import argparse
import sys

from .. import kernels
from ..pipeline import warming
from .options import Command


def _add_options(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(kernels.BACKENDS)
    parser.add_argument("--backend", default="auto", help=f"kernels to compile: auto, {names} "
                        "(default: %(default)s)")  # fmt: skip


def _run(arguments: argparse.Namespace) -> None:
    ready = warming.warmup(arguments.backend)
    print(f"ready: {ready}")
    if arguments.backend == "auto":  # explain why a preferred backend is not used
        for name, reason in kernels.missing().items():
            if kernels.BACKENDS.index(name) < kernels.BACKENDS.index(ready):
                print(f"{name} is not used: {reason}", file=sys.stderr)


COMMAND = Command(
    "warmup",
    "compile the kernels before their first use",
    "Compiles every kernel once. Numba keeps the result on disk, so that later processes start "
    "without waiting. Run it when you build an image.",
    "tgpfast warmup --backend numba",
    _add_options,
    _run,
)
