"""Finds groups by their labels: one label, or one label per row."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from ..data.labels import as_python_time, check_labels, distinct_labels
from ..validation import Ints

SUGGESTIONS = 3  # similar labels that an error names


class GroupIndex:
    """The places of labels in a list of distinct labels."""

    def __init__(self, labels: list[Any]) -> None:
        self.labels = labels
        self._places = {label: place for place, label in enumerate(labels)}
        for place, label in enumerate(labels):  # equal times of numpy and Python hash differently
            if (time := as_python_time(label)) is not None:
                self._places.setdefault(time, place)

    def find(self, label: Any) -> int | None:
        """The place of a label, or None."""
        try:
            place = self._places.get(label)
            # a pandas time with nanoseconds hashes differently from that of numpy
            if place is None and not getattr(label, "tzinfo", None):
                place = self._places.get(getattr(label, "asm8", label))
            return place
        except TypeError:  # the label is not hashable
            return None

    def find_rows(self, groups: Any, n_rows: int | None) -> Ints:
        """The place of the group of every row, (n,); of shape () if one label is given for all.

        Parameters
        ----------
        groups : one label, or a sequence of n labels
        n_rows : int or None
            Number of rows, if it is known.

        Raises
        ------
        ValueError
            If a label is unknown, or the number of labels is not that of the rows.
        """
        if isinstance(groups, np.ndarray) and groups.ndim == 0:
            groups = groups[()]
        is_single = isinstance(groups, (str, bytes, frozenset)) or not hasattr(groups, "__len__")
        if is_single or self.find(groups) is not None:
            place = self.find(groups)
            if place is None:
                raise ValueError(f"groups: {self.describe_unknown(groups)}")
            return np.array(place)
        values = check_labels(groups)
        if n_rows is not None and len(values) != n_rows:
            raise ValueError(f"groups has {len(values):,} entries, but Y has {n_rows:,} rows")
        try:
            if isinstance(values, np.ndarray):
                distinct, inverse = distinct_labels(values)
                places = np.array([self._places[v] for v in distinct.tolist()], np.int64)
                return np.asarray(places[inverse])
            return np.array([self._places[v] for v in values], np.int64)
        except (KeyError, TypeError):
            return self._find_one_by_one(values)

    def _find_one_by_one(self, values: Any) -> Ints:
        plain = values.tolist() if isinstance(values, np.ndarray) else values
        found = [self.find(v) for v in plain]
        if None in found:
            row = found.index(None)
            raise ValueError(f"groups, row {row}: {self.describe_unknown(plain[row])}")
        return np.array(found, np.int64)

    def describe_unknown(self, label: Any) -> str:
        """The text of an error for an unknown label, with the labels most similar to it."""
        if isinstance(label, str):
            texts = {str(known): known for known in self.labels}
            similar = [texts[t] for t in difflib.get_close_matches(label, texts, SUGGESTIONS)]
        else:
            try:
                similar = sorted(self.labels, key=lambda known: abs(known - label))[:SUGGESTIONS]
            except TypeError:  # labels that cannot be subtracted
                similar = []
        hint = f"; similar labels: {', '.join(map(repr, similar))}" if similar else ""
        return f"no group {label!r} among {len(self.labels):,}{hint}"
