"""What all sums over rows have in common: they add, subtract and take other weights."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..data import storage
from ..validation import Array, as_floats, positive

WEIGHT_ROUNDING = 1e-9  # relative: a part may seem to weigh this much more than the whole
MOST_FACTS = 8  # distinct texts of one fact that are kept

# (a fact of one, the same of the other, how they differ with {} for each of them)
Comparisons = Iterable[tuple[Any, Any, str]]

T = TypeVar("T", bound="MergeableSums")


@dataclass(frozen=True, eq=False)
class MergeableSums:
    """Weighted sums over rows. ``a + b`` is those of both sets of rows, ``total - part`` those of
    the rows left over.

    Attributes
    ----------
    features : Features or LatticeFeatures
    n : float
        Sum of the weights.
    n_rows : int
    sum_w2 : float
        Sum of the squared weights.
    provenance : dict
        How the sums were made.
    """

    not_added: ClassVar[tuple[str, ...]] = ("features", "provenance")  # fields that are no sums

    features: Any
    n: float
    n_rows: int
    sum_w2: float
    provenance: dict[str, Any] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @classmethod
    def sum_names(cls) -> list[str]:
        """Names of the fields that add."""
        return [f.name for f in fields(cls) if f.name not in cls.not_added]

    def _compared(self: T, other: T) -> Comparisons:
        """What must be equal so that two sums can be added, and what to say where it is not."""
        return [(self.features, other.features, "their features differ")]

    def __add__(self: T, other: object) -> T:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._combine(other, "added", operator.add)

    def __radd__(self: T, other: object) -> T:
        if isinstance(other, int) and other == 0:  # so that sum(list_of_sums) works
            return self
        return NotImplemented

    def __sub__(self: T, other: object) -> T:
        if not isinstance(other, type(self)):
            return NotImplemented
        if other.n_rows > self.n_rows:
            raise ValueError(
                f"statistics of {other.n_rows:,} rows cannot be subtracted from those of "
                f"{self.n_rows:,}"
            )
        if other.n > self.n * (1.0 + WEIGHT_ROUNDING):
            raise ValueError(
                f"statistics of rows that weigh {other.n:.6g} cannot be subtracted from those of "
                f"rows that weigh {self.n:.6g}; use the same weights and the same decay() for both"
            )
        return self._combine(other, "subtracted", operator.sub)

    def _combine(self: T, other: T, verb: str, operate: Callable[[Any, Any], Any]) -> T:
        for mine, theirs, difference in self._compared(other):
            if mine != theirs:
                text = difference.format(mine, theirs)
                raise ValueError(f"these statistics cannot be {verb}: {text}")
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in self.sum_names()}
        sums = {name: operate(a, b) for name, (a, b) in pairs.items() if a is not None}
        return replace(self, provenance=merge_provenance(self.provenance, other.provenance), **sums)

    def to_members(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Facts and arrays to save, without those of the features."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "features"}
        arrays = {n: storage.as_reals(v) for n, v in values.items() if isinstance(v, np.ndarray)}
        marks = [n for n in self.not_added if n in values and n not in arrays]
        return {n: values[n] for n in ("n", "n_rows", "sum_w2", *marks)}, arrays

    def decay(self: T, factor: float) -> T:
        """The same rows with all weights multiplied by a factor; ``n_rows`` stays as it is.

        Parameters
        ----------
        factor : float
            Above 0 and at most 1.
        """
        return self.times(check_decay(factor))

    def times(self: T, factor: float) -> T:
        """The same rows with all weights multiplied by a factor.

        Parameters
        ----------
        factor : float
            Above 0.
        """
        by = positive("factor", factor)
        sums = {name: getattr(self, name) for name in self.sum_names() if name != "n_rows"}
        scaled = {name: value * by for name, value in sums.items() if value is not None}
        return self if by == 1.0 else replace(self, **{**scaled, "sum_w2": self.sum_w2 * by * by})

    __mul__ = __rmul__ = times


def read_counts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that all sums have, from the facts of a file."""
    return {
        "n": float(facts["n"]), "n_rows": int(facts["n_rows"]), "sum_w2": float(facts["sum_w2"]),
        "provenance": dict(facts["provenance"]),
    }  # fmt: skip


def check_decay(factor: Any) -> float:
    """The factor, if it is a number above 0 and at most 1."""
    value = float(as_floats(factor, "decay", "()", 0))
    if not 0.0 < value <= 1.0:
        raise ValueError(f"decay={value}: expected a number above 0, and at most 1")
    return value


def as_list(fact: Any) -> list[Any]:
    """The values of a fact of the provenance: several where merged sums differ in it."""
    return fact if isinstance(fact, list) else [fact]


def merge_provenance(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The facts of both.

    Where they differ: a sorted list of the distinct values. Of numbers only the least, the least
    that is not zero and the greatest are kept, since a stream would bring more and more of them.

    Examples
    --------
    >>> merge_provenance({"engine": "direct", "threads": 1}, {"engine": "direct", "threads": 2})
    {'engine': 'direct', 'threads': [1, 2]}
    """
    merged: dict[str, Any] = {}
    for key in sorted(a.keys() | b.keys()):
        values = [v for side in (a, b) if key in side for v in as_list(side[key])]
        numbers = [v for v in values if type(v) in (int, float)]
        others = {repr(v): v for v in values if type(v) not in (int, float)}
        distinct = [v for _, v in sorted(others.items())][:MOST_FACTS]
        if numbers:
            distinct += sorted({min(numbers), min(filter(None, numbers), default=0), max(numbers)})
        merged[key] = distinct[0] if len(distinct) == 1 else distinct
    return merged
