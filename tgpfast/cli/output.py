"""Results as aligned text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..density.normalizer import DRAWS, Normalizer

WHOLE_FLOATS = 1e15  # whole numbers below this are exact as floats and shown as integers


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        print(f"{name:<{width}}  {_format(value)}")


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print aligned columns: the first to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True)]
        print("   ".join(cells))


def flatten(facts: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Names and values of nested mappings, with names joined by points."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def normalizer_text(normalizer: Normalizer) -> str:
    """A normalizer with its error and effective sample size."""
    return (
        f"{normalizer.value:.6g}, error {normalizer.standard_error:.1g}, "
        f"{normalizer.effective_sample_size:,.0f} effective samples of {DRAWS:,} "
        f"({normalizer.method})"
    )


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < WHOLE_FLOATS
        return f"{value:,.0f}" if is_whole else f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_format(v) for v in value) or "none"
    return "none" if value is None else str(value)
