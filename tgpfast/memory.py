"""How much memory there is, asked before a large allocation is made."""

from __future__ import annotations

import os


def available() -> int | None:
    """Bytes that this machine can still give without swapping; None where it does not say."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def human(size: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def check(need: int, what: str, remedy: str) -> None:
    """ValueError if an allocation of ``need`` bytes does not fit, before it is tried."""
    have = available()
    if have is not None and need > have:
        raise ValueError(
            f"{what} would take {human(need)} of memory, and {human(have)} is available; {remedy}"
        )
