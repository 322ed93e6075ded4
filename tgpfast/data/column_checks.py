"""Find columns that a continuous density does not suit.

These are discrete or tied columns, row numbers, and columns that others nearly determine.
`check_columns` examines a sample of the rows and returns notes; `warn_columns` turns the notes into
warnings. Neither changes the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.warnings import DataWarning, warn
from ..validation import Array, as_floats, whole
from .blocks import Blocks
from .jitter import OFF_GRID
from .moments import compute_moments
from .near_values import merge_near_values
from .table import column_name

MOST_ROWS = 20_000  # rows that are examined; shares of a few per cent are then known to 0.2 %
LEAST_ROWS = 20  # with fewer rows nothing is concluded
LEAST_REPEATS = 10  # repeated values that are needed before they count as ties
MOST_DISTINCT = 0.5  # a rounded column is noted where at most this share of its values differ
TIED_SHARE = 0.05  # of rows that repeat a value: a continuous column shows below 0.1 %
FEW_VALUES = 20  # up to this many values a column is called tied rather than rounded
FEW_GROUPS = 50  # up to this many values "one model for each value" is advice one can follow
# Steps below this share of the column's spread are smaller than any bandwidth that `fit` chooses:
# a fifteenth of Scott's rule, which for a billion rows of one column is 1e-3.
FINE_STEP = 5e-4
# The same where the step is only the spacing of single precision: nobody rounded these values.
FINE_SINGLE_STEP = 1e-2
DECIMALS = range(1, 13)  # decimal places to which values may have been rounded
MOST_UNITS = 1e12  # steps from zero, up to which the rounding of floats is far below a step
OFF_LATTICE = 0.02  # distance from a multiple, in steps, that a value may have
ROW_NUMBER_SPAN = (0.9, 2.0)  # range of a row number over n_rows; some rows may have been dropped
ROW_NUMBER_KS = 2.0  # over sqrt(n): an even spread stays below it with a probability of 0.999
EXPECTED_TIES = 5.0  # ties that independent values on the same steps would show in the sample
NEARLY_LINEAR = 1e-6  # 1 - R^2: what the other columns leave is a thousandth of the deviation
ROBUST_RESIDUAL = 1e-2  # median residual over the column's spread: else one outlier makes R^2
MONOTONE = 1e-7  # 1 - |rank correlation|: below it a column is a function of another
RANK_ROWS, RANK_COLUMNS = 2_000, 60  # examined for rank correlations: a fraction of a second
RIDGE = 1e-13  # keeps correlations invertible; far below `moments.SINGULAR`, where `fit` refuses
SPARE_ROWS = 10  # rows beyond the number of columns that a regression needs
PARTNER = 0.05  # share of the largest coefficient, from which a column is named
MOST_WARNINGS = 10  # warnings with one note each; one more warning lists the rest


@dataclass(frozen=True)
class ColumnNote:
    """One finding about one column.

    Attributes
    ----------
    column : int
        Index, from 0.
    name : str or None
        None where columns have no names.
    kind : str
        "integer" (whole numbers that repeat), "rounded" (multiples of a step),
        "tied" (values repeat), "row_number", "nearly_linear" (a linear function of other columns),
        or "nearly_function" (a monotone function of one other column).
    message : str
        What was found and what to do.
    facts : dict
        Numbers behind the message, such as "n_distinct" (values that are one up to rounding count
        once), "n_written" (they count each), "repeated_share", "step".
    """

    column: int
    name: str | None
    kind: str
    message: str
    facts: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """Return plain values for ``model.settings``."""
        return {"column": self.column, "name": self.name, "kind": self.kind, **self.facts}


def check_columns(
    x: Any,
    weights: Any = None,
    columns: Sequence[str] | None = None,
    *,
    n_rows: int | None = None,
) -> list[ColumnNote]:
    """Find columns that a continuous density does not suit.

    Parameters
    ----------
    x : (n, d) array-like
        Finite rows in the units of the data: all rows, or a random sample of them. Of more than
        20,000 rows a random sample of that size is examined.
    weights : (n,) array-like, default None
        Not negative; rows of weight 0 do not count.
    columns : sequence of d names, default None
    n_rows : int, default n
        Number of rows of the data that ``x`` is a sample of. The values of a row number fill a
        range as long as this.

    Returns
    -------
    list of ColumnNote
        In the order of the columns, those of "nearly_linear" and then of "nearly_function" last;
        empty where all is well.

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.data.column_checks import check_columns
    >>> rng = np.random.default_rng(0)
    >>> x = np.column_stack([rng.normal(size=500), rng.poisson(3.0, 500)])
    >>> [(note.name, note.kind) for note in check_columns(x, columns=["size", "count"])]
    [('count', 'integer')]
    """
    x = as_floats(x, "x", "(n, d)", 2) + 0.0  # -0.0 is 0.0
    total = len(x) if n_rows is None else whole("n_rows", n_rows)
    w = np.ones(len(x)) if weights is None else as_floats(weights, "weights", (len(x),))
    if columns is not None and len(columns) != x.shape[1]:
        raise ValueError(f"columns has {len(columns)} names, expected {x.shape[1]}")
    names = None if columns is None else list(columns)
    kept = np.flatnonzero(w > 0)
    if len(kept) > MOST_ROWS:
        kept = np.sort(np.random.default_rng(0).permutation(kept)[:MOST_ROWS])
    x, w = x[kept], w[kept]
    if len(x) < LEAST_ROWS:
        return []
    n_different = count_different_rows(x) if x.shape[1] > 1 else len(x)
    found = (_check_values(k, names, x[:, k], total, n_different) for k in range(x.shape[1]))
    notes = [note for note in found if note is not None] + _check_linear(x, w, names)
    return notes + _check_monotone(x, names, {note.column for note in notes})


def measure_repeats(
    x: Any, columns: Sequence[str] | None = None, steps: Mapping[int, float] | None = None
) -> dict[str, Any]:
    """How often rows and values repeat.

    Parameters
    ----------
    x : (n, d) array-like
        Finite rows in the units of the data: all rows, or a random sample of them.
    columns : sequence of d names, default None
    steps : mapping, default None
        Number of a discrete column -> step to which its values are rounded first.

    Returns
    -------
    dict
        "n_rows", "n_distinct" (different rows), and "columns": for each column "name",
        "n_distinct" (different values), "top_value" (the most frequent one) and "top_share" (its
        share of the rows).

    Examples
    --------
    >>> found = measure_repeats([[0.0, 1.5], [0.0, 1.5], [0.0, 2.5]])
    >>> found["n_rows"], found["n_distinct"], found["columns"][0]["top_share"]
    (3, 2, 1.0)
    """
    x = np.array(x, dtype=float) + 0.0  # -0.0 is 0.0
    for k, step in (steps or {}).items():
        x[:, k] = np.rint(x[:, k] / step) * step + 0.0
    found = []
    for k, v in enumerate(x.T):
        values, counts = np.unique(v, return_counts=True)
        top = int(np.argmax(counts))
        found.append({
            "name": None if columns is None else str(columns[k]), "n_distinct": len(values),
            "top_value": float(values[top]), "top_share": float(counts[top] / len(v)),
        })  # fmt: skip
    return {"n_rows": len(x), "n_distinct": count_different_rows(x), "columns": found}


def warn_columns(notes: Sequence[ColumnNote]) -> None:
    """Emit one warning for each of the first ten notes, and one that lists the others."""
    for note in notes[:MOST_WARNINGS]:
        warn(note.message, DataWarning)
    rest = notes[MOST_WARNINGS:]
    if rest:
        listed = [
            f"{note.column if note.name is None else f'{note.column} ({note.name!r})'}: {note.kind}"
            for note in rest
        ]
        warn(
            f"{len(rest)} more columns do not suit a continuous density: {', '.join(listed)}",
            DataWarning,
        )


# -- one column ----------------------------------------------------------------------------------


def _check_values(
    k: int, names: list[str] | None, v: Array, n_rows: int, n_different: int
) -> ColumnNote | None:
    """Return what the values of column k show by themselves, None where nothing is wrong.

    n_different : number of different rows
    """
    written, repeats_of_written = np.unique(v, return_counts=True)
    if len(written) == 1:
        return None  # constant: `fit` refuses it
    values, counts = _merge_near(written, repeats_of_written)
    n, m, top = len(v), len(values), int(np.argmax(counts))
    facts: dict[str, Any] = {
        "n_rows": n, "n_distinct": m, "n_written": len(written), "repeated_share": 1.0 - m / n,
        "top_value": float(values[top]), "top_share": float(counts[top] / n),
        "step": _lattice_step(values),
    }  # fmt: skip
    rows = f"{n:,} rows" if n == n_rows else f"{n:,} sampled rows"
    label = k if names is None else names[k]
    found = (
        _find_row_number(values, facts, n_rows, rows)
        or _find_steps(values, v, facts, n_different, rows, label)
        or _find_ties(facts, n_different, rows)
    )
    if found is None:
        return None
    return _make_note(k, names, *found, facts)


def _make_note(
    k: int, names: list[str] | None, kind: str, text: str, facts: dict[str, Any]
) -> ColumnNote:
    """Return a note of column k, whose text goes on after the name of the column."""
    name = None if names is None else names[k]
    return ColumnNote(k, name, kind, f"column {column_name(k, names)} {text}", facts)


def _find_row_number(
    values: Array, facts: dict[str, Any], n_rows: int, rows: str
) -> tuple[str, str] | None:
    """Return kind and text of a note where all values differ and number the rows."""
    step = facts["step"]
    if len(values) < facts["n_rows"] or step is None or not _is_row_number(values, step, n_rows):
        return None
    return "row_number", (
        f"looks like a row number: all {rows} have different values, which fill the range from "
        f"{values[0]:.10g} to {values[-1]:.10g} evenly in steps of {step:.6g}. A row number says "
        "nothing about a row. Drop this column"
    )


def _find_steps(
    values: Array, v: Array, facts: dict[str, Any], n_different: int, rows: str, label: int | str
) -> tuple[str, str] | None:
    """Return kind and text of a note where values repeat and are multiples of a step."""
    m, step = len(values), facts["step"]
    are_whole = bool((values == np.rint(values)).all())
    repeats = m <= MOST_DISTINCT * len(v) or (are_whole and _has_ties(m, n_different))
    if step is None or not repeats or _is_fine(step, values, v):
        return None
    continuous = "A fitted density is continuous and may put spikes on repeated values"
    if are_whole:
        groups = "fit one model for each value with fit_groups, " if m <= FEW_GROUPS else ""
        return "integer", (
            f"holds whole numbers: {m:,} different values in {rows}. {continuous}. Drop this "
            f"column, {groups}or {_advise_discrete(label, values, step)}"
        )
    if m <= FEW_VALUES:
        return None
    return "rounded", (
        f"is rounded: its smallest step is {step:.6g}, and {rows} have only {m:,} different "
        f"values. {continuous}. Give the values unrounded, or add uniform noise between "
        f"-{0.5 * step:.6g} and {0.5 * step:.6g} to it"
    )


def _find_ties(facts: dict[str, Any], n_different: int, rows: str) -> tuple[str, str] | None:
    """Return kind and text of a note where one value, or many, have several rows."""
    m, n_written, share = facts["n_distinct"], facts["n_written"], facts["top_share"]
    is_atom = share > TIED_SHARE and round(share * facts["n_rows"]) >= LEAST_REPEATS
    if not is_atom and (facts["step"] is not None or not _has_ties(m, n_different)):
        return None
    found = f"{m:,} different values"
    if n_written > m:
        found += f" up to rounding, written in {n_written:,} ways"
    advice = (
        "A fitted density is continuous and may put spikes on repeated values. Give the values "
        "unrounded, and repeated rows once, with weights"
    )
    if is_atom:
        found += f"; {facts['top_value']:.6g} alone has {share:.0%} of the rows"
        advice = (
            "A density cannot give a share of the rows to one value. Fit the rows with the "
            "repeated values apart, or drop this column"
        )
    return "tied", (
        f"repeats values: {facts['repeated_share']:.0%} of {rows} repeat the value of another "
        f"row ({found}). {advice}"
    )


def _merge_near(values: Array, counts: NDArray[np.int_]) -> tuple[Array, NDArray[np.int_]]:
    """Different values and their counts; of those that are one up to rounding, the most frequent
    one stays and gets their counts."""
    groups = merge_near_values(values, float(counts.sum()))
    first = np.lexsort((-counts, groups))[np.flatnonzero(np.diff(groups, prepend=-1))]
    return values[first], np.bincount(groups, counts).astype(np.int_)


def _advise_discrete(column: int | str, values: Array, step: float) -> str:
    """What to do about a column of whole numbers that are a + step times integers."""
    if np.abs(values / step - np.rint(values / step)).max() > OFF_GRID:
        step = 1.0
    option = f"[{column!r}]" if step == 1.0 else f"{{{column!r}: {step:.6g}}}"
    return f"learn the probabilities of its values with discrete={option}"


def _has_ties(m: int, n_different: int) -> bool:
    """Whether m different values are too few for a continuous column.

    Copies of whole rows, as in a bootstrap sample, do not count: n_different is without them.
    """
    repeats = n_different - m
    return repeats >= LEAST_REPEATS and repeats > TIED_SHARE * n_different


def _lattice_step(values: Array) -> float | None:
    """Return the step s if all values (sorted, different) are a + s times integers, else None."""
    size = float(np.abs(values[[0, -1]]).max())
    for places in (0, *DECIMALS):
        units = values * 10.0**places
        if size * 10.0**places > MOST_UNITS:
            break
        rounded = np.rint(units)
        if (np.abs(units - rounded) <= 4.0 * np.spacing(np.abs(units))).all():
            common = int(np.gcd.reduce(np.diff(rounded.astype(np.int64))))
            return float(common / 10.0**places)
    extent, least = float(values[-1] - values[0]), float(np.diff(values).min())
    if extent / least > MOST_UNITS:
        return None
    step = float(extent / np.rint(extent / least))  # more accurate than the least gap itself
    multiples = (values - values[0]) / step
    return step if np.abs(multiples - np.rint(multiples)).max() < OFF_LATTICE else None


def _is_fine(step: float, values: Array, v: Array) -> bool:
    """Whether the step is too small for a density to notice."""
    single = values.astype(np.float32)
    spacing = float(np.spacing(np.abs(single).max()))
    is_single = step <= spacing and bool((single.astype(float) == values).all())
    return step <= (FINE_SINGLE_STEP if is_single else FINE_STEP) * _spread(v)


def _spread(v: Array) -> float:
    """Return the standard deviation, from quartiles where these differ, against outliers."""
    low, high = np.quantile(v, [0.25, 0.75])
    return float(high - low) / 1.349 if high > low else float(v.std())


def _is_row_number(values: Array, step: float, n_rows: int) -> bool:
    """Whether different values on a lattice fill, evenly, a range of about n_rows steps."""
    n, extent = len(values), values[-1] - values[0]
    span = extent / step + 1.0
    if not ROW_NUMBER_SPAN[0] * n_rows <= span <= ROW_NUMBER_SPAN[1] * n_rows:
        return False
    is_whole = bool((values == np.rint(values)).all())
    if not is_whole and n * n / (2.0 * span) < EXPECTED_TIES:
        return False  # independent values would hardly repeat either
    gap = np.abs((values - values[0]) / extent - np.arange(n) / (n - 1))
    return bool(gap.max() < ROW_NUMBER_KS / np.sqrt(n))


def count_different_rows(x: Array) -> int:
    """Count different rows by a random sum of their bits; two rows collide once in 2^64."""
    bits = np.ascontiguousarray(x).view(np.uint64)
    random = np.random.default_rng(0).integers(0, 2**63, x.shape[1], dtype=np.uint64) * 2 + 1
    mixed = bits ^ (bits >> np.uint64(32))  # the low bits of round numbers are all zero
    return len(np.unique((mixed * random).sum(axis=1, dtype=np.uint64)))


# -- columns together ----------------------------------------------------------------------------


def _check_linear(x: Array, w: Array, names: list[str] | None) -> list[ColumnNote]:
    """Find columns that others nearly determine.

    Each one is left out before the next is searched, so that one relation gives one note.
    """
    moments = compute_moments(Blocks(x, sample_weight=w))
    left = [int(k) for k in np.flatnonzero(moments.deviation > 0)]
    notes = []
    while len(left) > 1 and len(x) >= len(left) + SPARE_ROWS:
        correlation = moments.correlation[np.ix_(left, left)]
        inverse = np.linalg.inv(correlation + RIDGE * np.eye(len(left)))
        unexplained = 1.0 / np.diag(inverse)  # 1 - R^2 of each column on the others
        least = float(unexplained.min())
        if not least < NEARLY_LINEAR:
            break
        j = int(np.flatnonzero(unexplained <= 1.01 * least)[-1])  # the last of equal ones
        coefficients = -inverse[j] / inverse[j, j]  # -1 for the column itself
        z = (x[:, left] - moments.mean[left]) / moments.deviation[left]
        k = left.pop(j)
        if np.median(np.abs(z @ coefficients)) > ROBUST_RESIDUAL * _spread(z[:, j]):
            continue  # outliers, not the bulk of the rows, lie on the plane
        size = np.abs(np.delete(coefficients, j))
        indices = [left[i] for i in np.flatnonzero(size > PARTNER * size.max())]
        of_others = ", ".join(column_name(i, names) for i in indices)
        notes.append(_make_note(
            k, names, "nearly_linear",
            f"is nearly a linear function of column{'s' if len(indices) > 1 else ''} {of_others}: "
            f"1 - R^2 = {least:.1e}. The density is then almost flat in one direction, and its "
            "values lose digits. Drop this column",
            {"n_rows": len(x), "unexplained_share": least, "columns": indices},
        ))  # fmt: skip
    return notes


def _check_monotone(x: Array, names: list[str] | None, noted: set[int]) -> list[ColumnNote]:
    """Find columns that rise or fall with another, by rank correlation; names the later one."""
    some = x[np.random.default_rng(0).permutation(len(x))[:RANK_ROWS]]
    columns = [k for k in range(min(x.shape[1], RANK_COLUMNS)) if k not in noted]
    if len(columns) < 2:
        return []
    ranks = np.argsort(np.argsort(some[:, columns], axis=0), axis=0)
    with np.errstate(invalid="ignore"):
        correlation = np.atleast_2d(np.corrcoef(ranks.T))
    notes = []
    for j in range(1, len(columns)):
        partner = int(np.argmax(np.abs(correlation[j, :j])))
        unexplained = 1.0 - abs(float(correlation[j, partner]))
        if not unexplained < MONOTONE:
            continue
        k, other = columns[j], columns[partner]
        notes.append(_make_note(
            k, names, "nearly_function",
            f"is nearly a function of column {column_name(other, names)}: sorting the rows by one "
            "sorts them by the other. The rows lie on a curve, where a density is a ridge without "
            "width. Drop one of them",
            {"partner": other, "unexplained": unexplained},
        ))  # fmt: skip
    return notes
