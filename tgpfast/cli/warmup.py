"""``tgpfast warmup``: compile the kernels before their first use."""

from __future__ import annotations

import argparse
import os
import sys
import time

from .. import kernels
from ..kernels.compiled_marker import write_marker
from ..pipeline import warming
from .options import Command


def _add_options(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(kernels.BACKENDS)
    parser.add_argument("--backend", default="auto", help=f"kernels to compile: auto, {names} "
                        "(default: %(default)s)")  # fmt: skip


def _run(arguments: argparse.Namespace) -> None:
    asked, missing = arguments.backend, kernels.missing()
    if asked == "auto" and not os.environ.get("TGPFAST_BACKEND") and "numba" not in missing:
        asked = "numba"
    start = time.perf_counter()
    ready = warming.warmup(asked)
    print(f"{ready} is ready after {time.perf_counter() - start:.1f} s")
    if ready == "numba" and write_marker() is None:
        print("no folder can be written to note this: set NUMBA_CACHE_DIR", file=sys.stderr)
    kernels.preference.cache_clear()
    print(f'backend="auto" now runs {kernels.load().NAME}')
    if arguments.backend == "auto":  # explain why a preferred backend is not used
        for name, reason in missing.items():
            if kernels.BACKENDS.index(name) < kernels.BACKENDS.index(ready):
                print(f"{name} is not used: {reason}", file=sys.stderr)


COMMAND = Command(
    "warmup",
    "compile the kernels before their first use",
    "Compiles every kernel once. Numba keeps the result on disk, so that later processes start "
    'without waiting, and from then on backend="auto" is Numba. Run it when you build an image.',
    ("tgpfast warmup --backend numba",),
    _add_options,
    _run,
)
