"""Columns by name or number, values by column, and shares, as users give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...data.table import column_name, find_column
from ...validation import Array


def find_columns(
    chosen: Any, columns: list[str] | None, d: int, name: str = "columns"
) -> list[int]:
    """The numbers of one or several columns, in the order given.

    Parameters
    ----------
    chosen : str, int or sequence of them
    columns, d, name : as for `tgpfast.data.table.find_column`

    Raises
    ------
    ValueError
        There is no such column, a column is given twice, or none is given.

    Examples
    --------
    >>> find_columns(["y", 0], ["x", "y"], 2)
    [1, 0]
    """
    several = [chosen] if isinstance(chosen, str) or hasattr(chosen, "__index__") else list(chosen)
    numbers = [find_column(column, columns, d, name) for column in several]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"{name}={chosen!r}: expected at least one column, and each one once")
    return numbers


def read_bounds(
    bounds: Any, columns: list[str] | None, d: int, *, open_end: float, name: str
) -> Array:
    """Bounds of all columns, (d,), infinite where none is given.

    Parameters
    ----------
    bounds : None, number, sequence or mapping
        One entry for each column, None where it has no bound; or bounds by column.
    columns, d : as for `tgpfast.data.table.find_column`
    open_end : float
        -inf or inf, the bound of columns without one.
    name : str
        Name of the argument, for messages.

    Examples
    --------
    >>> read_bounds({"y": 1}, ["x", "y"], 2, open_end=-np.inf, name="lower").tolist()
    [-inf, 1.0]
    """
    found = np.full(d, open_end)
    if bounds is None:
        return found
    if isinstance(bounds, Mapping):
        pairs = [(find_column(key, columns, d, name), value) for key, value in bounds.items()]
    else:
        entries: Sequence[Any] = [bounds] if np.ndim(bounds) == 0 else list(bounds)
        if len(entries) != d:
            raise ValueError(
                f"{name} has {len(entries)} entries, expected {d}, one for each column: None where "
                "it has no bound, or a mapping from columns to bounds"
            )
        pairs = list(enumerate(entries))
    numbers = [k for k, _ in pairs]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{name}={bounds!r}: a column is given twice; give each one once")
    for k, value in pairs:
        if value is None:
            continue
        try:
            found[k] = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"{name}={bounds!r}: expected numbers or None, got {value!r}") from None
    if np.isnan(found).any():
        raise ValueError(f"{name}={bounds!r}: nan is no bound; give None for no bound")
    return found


def read_values(given: Any, columns: list[str] | None, d: int, name: str) -> dict[int, float]:
    """Values by the number of their column, in the order of the columns.

    Parameters
    ----------
    given : mapping
        From columns to numbers; at least one column, and not all.
    columns, d : as for `tgpfast.data.table.find_column`
    name : str
        Name of the argument, for messages.

    Examples
    --------
    >>> read_values({"y": 3}, ["x", "y"], 2, "given")
    {1: 3.0}
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a mapping from columns to values, got {given!r}")
    values: dict[int, float] = {}
    for column, value in given.items():
        number = find_column(column, columns, d, name)
        if number in values:
            raise ValueError(f"{name}: column {column!r} is given twice")
        try:
            values[number] = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"{name}: {column!r} is {value!r}, expected a number") from None
        if not np.isfinite(values[number]):
            raise ValueError(f"{name}: {column!r} is {value!r}, expected a finite number")
    if not 0 < len(values) < d:
        raise ValueError(
            f"{name} has values of {len(values)} of {d} columns; expected at least one, and not all"
        )
    return dict(sorted(values.items()))


def read_box(
    lower: Any, upper: Any, names: list[str] | None, d: int
) -> tuple[Array, Array]:
    """Lower and upper bounds of all columns, (d,) each, as `read_bounds` reads them; ValueError
    where a lower bound is above the upper one."""
    low = read_bounds(lower, names, d, open_end=-np.inf, name="lower")
    high = read_bounds(upper, names, d, open_end=np.inf, name="upper")
    if not (low <= high).all():
        k = int(np.flatnonzero(low > high)[0])
        raise ValueError(
            f"column {column_name(k, names)}: lower={low[k]:g} is above upper={high[k]:g}; swap "
            "them. Where the column has a period and the box crosses its end, add the period to "
            "the upper bound"
        )
    return low, high


def check_levels(name: str, value: Any) -> Array:
    """Shares of the probability, (Q,); ValueError unless all are in (0, 1).

    Examples
    --------
    >>> check_levels("q", 0.5).tolist()
    [0.5]
    """
    levels = np.atleast_1d(np.asarray(value))
    if levels.dtype.kind not in "fiu" or levels.ndim != 1:
        raise TypeError(f"{name}={value!r}: expected a number in (0, 1), or several, (Q,)")
    if not len(levels):
        raise ValueError(f"{name}={value!r}: expected at least one number in (0, 1)")
    levels = levels.astype(float)
    if not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(f"{name}={value!r}: expected numbers above 0 and below 1")
    return levels


def check_level(name: str, value: Any) -> float:
    """One share of the probability; ValueError unless it is in (0, 1).

    Examples
    --------
    >>> check_level("level", 0.5)
    0.5
    """
    if np.ndim(value) != 0:
        raise TypeError(f"{name}={value!r}: expected one number in (0, 1)")
    return float(check_levels(name, value)[0])
