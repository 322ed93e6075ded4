"""The marker that the Numba kernels of this version have been compiled for this processor.

Only ``tgpfast warmup`` writes it. With it, backend="auto" is Numba; without it, "auto" makes nobody
wait for the compiler where the Cython kernels are built.
"""

import hashlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from .._version import __version__


def find_marker():
    """Return the path of the marker, or None: not compiled, or for another version or processor."""
    name = marker_name()
    places = [folder / name for folder in _folders()] if name is not None else []
    return next(filter(Path.is_file, places), None)


def write_marker():
    """Write the marker in the first folder that allows it; return its path, else None."""
    name = marker_name()
    for folder in _folders() if name is not None else ():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text('backend="auto" runs Numba; `tgpfast warmup` wrote this\n')
        except OSError:
            continue
        return folder / name
    return None


def marker_name():
    """Return the file name, a hash of all that compiled code depends on; None without Numba."""
    try:
        numba = importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        return None
    source = Path(__file__).with_name("_numba.py").read_bytes()
    facts = (__version__, numba, sys.version, _processor(), hashlib.sha256(source).hexdigest())
    return f"tgpfast-compiled-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


def _folders():
    """Where Numba keeps its cache: the folder that the user names, else beside the source, else
    the user's own."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(os.environ["NUMBA_CACHE_DIR"])]
    own = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return [Path(__file__).with_name("__pycache__"), Path(own) / "tgpfast"]


def _processor():
    """Name and features of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.machine(), platform.processor()
    facts = (line for line in lines if line.startswith(("model name", "flags", "Features")))
    return platform.machine(), *facts
