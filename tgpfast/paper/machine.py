"""Facts about the machine on which a measurement was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import datetime, timezone

from .._version import __version__
from ..runtime.memory import format_bytes

PACKAGES = ("numpy", "scipy", "numba", "finufft", "matplotlib")  # their versions are reported


def machine_facts() -> dict[str, str]:
    """Processor, cores, memory, system, versions and date in UTC, as text.

    The facts name neither the host nor the user and contain no paths.
    """
    facts = {
        "processor": read_processor_name(),
        "cores": _count_cores(),
        "memory": _measure_memory(),
        "operating system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "tgpfast": __version__,
    }
    facts.update((package, _find_version(package)) for package in PACKAGES)
    return {**facts, "date": datetime.now(timezone.utc).isoformat(timespec="seconds")}


def read_processor_name(path: str = "/proc/cpuinfo") -> str:
    """The first model name in the file of Linux, else the name that Python knows."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name" and value.strip():
                    return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _count_cores() -> str:
    """Number of logical cores, and how many of them this process may use if fewer."""
    present = os.cpu_count()
    if present is None:
        return "unknown"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    return str(present) if usable >= present else f"{present}, of which {usable} usable"


def _measure_memory() -> str:
    try:
        return format_bytes(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return "unknown"


def _find_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
