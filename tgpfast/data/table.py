"""How a table looked to the caller: the names of its columns and the kind of frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..validation import Array

BLOCK_ROWS = 16_384  # rows of a block: a few MB at most, and so many that Python costs nothing
TABLES = ("array", "pandas", "polars", "pyarrow")


@dataclass(frozen=True, eq=False)
class Table:
    """What rows looked like to the caller: column names, and the kind of frame they came in."""

    columns: list[str] | None = None
    kind: str = "array"  # one of TABLES
    index: Any = None  # of a pandas frame

    @classmethod
    def from_facts(cls, columns: Any, kind: Any, d: int) -> Table:
        """What a file says of a table of d columns, judged."""
        named = isinstance(columns, list) and all(isinstance(c, str) for c in columns)
        if not (columns is None or (named and len(columns) == d)):
            raise ValueError(f"columns must be {d} names")
        if kind not in TABLES or (kind != "array" and columns is None):
            raise ValueError(f"kind of table {kind!r} is not known")
        return cls(columns, kind)

    def frame(self, rows: Array) -> Any:
        """Rows as the caller's kind of table."""
        if self.kind == "array":
            return rows
        module = __import__(self.kind)
        if self.kind == "polars":
            return module.DataFrame(rows, schema=self.columns)
        if self.kind == "pyarrow":
            return module.Table.from_arrays(list(map(module.array, rows.T)), names=self.columns)
        index = self.index if self.index is not None and len(self.index) == len(rows) else None
        return module.DataFrame(rows, columns=self.columns, index=index)

    def series(self, values: Array, name: str) -> Any:
        """One value a row, as the caller's kind of column."""
        if self.kind == "array":
            return values
        module = __import__(self.kind)
        if self.kind == "polars":
            return module.Series(name, values)
        if self.kind == "pyarrow":
            return module.array(values)
        return module.Series(values, index=self.index, name=name)
