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
    size = min(size, 1e300)  # integers may be beyond floats
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB" if size < 1e6 else f"{size:.3g} TiB"


def check(need: int, what: str, remedy: str) -> None:
    """ValueError if an allocation of ``need`` bytes does not fit, before it is tried."""
    have = available()
    if have is not None and need > have:
        raise ValueError(
            f"{what} would take {human(need)} of memory, and {human(have)} is available; {remedy}"
        )


def parse(size: object) -> int:
    """Bytes of a number, or of text such as "500MB" or "2 GiB"."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
             "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip
    text = str(size).strip().upper()
    digits = text.rstrip("KMGTIB ")
    try:
        value = float(digits) * units[text[len(digits) :].strip()]
    except (ValueError, KeyError):
        raise ValueError(f"{size!r} is not an amount of memory; give bytes, or '2GB'") from None
    if not 0 < value < 2**63:
        raise ValueError(f"{size!r}: expected a positive amount of memory")
    return int(value)
