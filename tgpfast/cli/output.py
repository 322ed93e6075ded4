"""Results: aligned text, JSON, and files of rows."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data import files
from ..density.answers.answer import Answer
from ..density.normalizing.normalizer import DRAWS, Normalizer

STANDARD_OUTPUT = Path("-")

WHOLE_FLOATS = 1e15  # whole numbers below this are exact as floats and shown as integers


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        print(f"{name:<{width}}  {_format(value)}")


def print_json(facts: Mapping[str, Any]) -> None:
    """Print facts as one JSON document, in ASCII so that every terminal shows it unchanged."""
    print(json.dumps(_as_json(facts), indent=2, allow_nan=False))


def _as_json(value: Any) -> Any:
    """A value of the types that JSON has: paths and others are text, what is not finite is None."""
    if isinstance(value, Answer):
        value = {name: getattr(value, name) for name in ("value", "standard_error", "method")}
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    elif isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def is_standard_output(path: Path | None) -> bool:
    """Whether rows go to standard output."""
    return path == STANDARD_OUTPUT


def check_output(path: Path | None, *, with_json: bool = False) -> None:
    """Raise an error before any work if rows cannot be written to this path."""
    if is_standard_output(path):
        if with_json:
            raise ValueError("-o - and --json both print; give -o the name of a file")
    elif path is not None:
        files.check_writable(path)


def write_table(path: Path, rows: Any, columns: Sequence[str] | None) -> None:
    """Write rows to a file, or as csv to standard output."""
    if is_standard_output(path):
        files.write_text(sys.stdout, rows, columns)
    else:
        files.write_rows(path, rows, columns)


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


def _normalizer_text(normalizer: Normalizer) -> str:
    """A normalizer with its error and, where it comes from draws, how many count."""
    how = normalizer.method
    if how != "quadrature":
        how += f", {normalizer.effective_sample_size:,.0f} effective points of {DRAWS:,}"
    return f"{normalizer.value:.6g}, error {normalizer.standard_error:.1g} ({how})"


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
    if isinstance(value, Normalizer):
        return _normalizer_text(value)
    return "none" if value is None else str(value)
