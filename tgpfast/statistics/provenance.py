"""How sums were made: facts that are kept with them, and merged when they are added."""

from __future__ import annotations

from typing import Any

MOST_FACTS = 8  # distinct texts of one fact that are kept


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
        values: list[Any] = []
        for side in (a, b):
            if key in side:
                values.extend(side[key] if isinstance(side[key], list) else [side[key]])
        numbers = [v for v in values if type(v) in (int, float)]
        others = {repr(v): v for v in values if type(v) not in (int, float)}
        distinct = [v for _, v in sorted(others.items())][:MOST_FACTS]
        if numbers:
            distinct += sorted({min(numbers), min(filter(None, numbers), default=0), max(numbers)})
        merged[key] = distinct[0] if len(distinct) == 1 else distinct
    return merged
