"""How much memory there is, asked before a large allocation is made."""

from __future__ import annotations

import os

BYTES_PER_UNIT = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
BUDGET_VARIABLE = "TGPFAST_MEMORY_BUDGET"  # bytes, or text such as "2GB"
BUDGET_SHARE = 0.4  # of the available memory: leaves room for the rows and for other programs
BUDGET_WITHOUT_FACTS = 2 * 1024**3  # bytes, where the machine does not say what is available


def available() -> int | None:
    """Return the bytes that this machine can still give without swapping; None if unknown."""
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


def format_bytes(size: float) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> format_bytes(1536)
    '1.5 KiB'
    """
    size = min(size, 1e300)  # an integer may be beyond float64
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB" if size < 1e6 else f"{size:.3g} TiB"


def check(need: int, what: str, remedy: str) -> None:
    """Raise ValueError if an allocation of ``need`` bytes does not fit, before it is tried.

    Parameters
    ----------
    need : int
        Bytes.
    what : str
        What needs them, as the subject of the message.
    remedy : str
        What to do, as the end of the message.
    """
    have = available()
    if have is not None and need > have:
        raise ValueError(
            f"{what} would take {format_bytes(need)} of memory, and {format_bytes(have)} is "
            f"available; {remedy}"
        )


def parse_bytes(size: object) -> int:
    """Return the bytes of a number, or of text such as "500MB" or "2 GiB".

    Examples
    --------
    >>> parse_bytes("2 GiB")
    2147483648
    """
    text = str(size).strip().upper()
    digits = text.rstrip("KMGTIB ")
    try:
        value = float(digits) * BYTES_PER_UNIT[text[len(digits) :].strip()]
    except (ValueError, KeyError):
        raise ValueError(f"{size!r} is not an amount of memory; give bytes, or '2GB'") from None
    if not 0 < value < 2**63:
        raise ValueError(f"{size!r}: expected a positive amount of memory")
    return int(value)


def budget(given: object = None) -> int:
    """Bytes that grids and tables may take.

    Parameters
    ----------
    given : int, float or str, default None
        Bytes, or text such as "2GB". None takes the environment variable TGPFAST_MEMORY_BUDGET, or
        40 % of the memory that is available.
    """
    value = given if given is not None else os.environ.get(BUDGET_VARIABLE)
    if value is not None:
        return parse_bytes(value)
    free = available()
    return int(BUDGET_SHARE * free) if free else BUDGET_WITHOUT_FACTS
