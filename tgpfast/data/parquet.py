"""Rows of parquet files, decoded by pyarrow, or by polars where that is all there is."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import itertools
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrow import numbers_of

WHOLE = 2**26  # bytes of float64 up to which the rows of a file are held, once they are decoded
PAGE = 2**17  # rows of a megabyte of float64, the usual page of a column, which is decoded at once
PIECE = 2**18  # rows decoded at a time by polars
PLACES = 64  # of a file, from which a sample of its rows is taken
BATCH = 16_384  # rows decoded at a time where they are not for a pass


def open_parquet(file: Path) -> ParquetRows:
    """The rows of a file, read by what is installed; ImportError says what could be."""
    message = ""
    for name, kind in (("pyarrow.parquet", _ArrowRows), ("polars", _PolarsRows)):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            try:
                return kind(module, file)
            except (ImportError, OSError):
                raise
            except Exception as error:  # each library has its own; the other may know more types
                message = message or str(error).splitlines()[0]
    if message:
        raise ValueError(f"{file.name} is not a parquet file: {message}")
    raise ImportError(f"{file.name}: parquet files need pyarrow, or polars: pip install pyarrow")


class ParquetRows:
    """The rows of a parquet file, as arrays of float64: all in turn, or some. Columns of bool are
    0.0 and 1.0, values that are missing nan.

    columns : names; shape : as of an array; stride : rows that may be decoded at once
    index : names of the columns that were the index of a pandas frame
    """

    columns: list[str]
    shape: tuple[int, int]
    stride: int
    index: set[str]

    def __init__(self, module: Any, file: Path) -> None:
        self.module, self.file = module, file.absolute()  # pyarrow takes x:y for an address

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def is_small(self) -> bool:
        """Whether all rows are best held: most fits go over them more than once."""
        return 8 * self.shape[0] * self.shape[1] <= WHOLE

    @property
    def frame(self) -> str:
        """The kind of frame that results are given in: of a library that is there."""
        found = (name for name in ("polars", "pandas") if importlib.util.find_spec(name))
        return next(found, "array")

    @property
    def data_columns(self) -> list[int]:
        """Places of the columns that are no index."""
        return [k for k, name in enumerate(self.columns) if name not in self.index]

    def chosen(self, places: Sequence[int]) -> ParquetRows:
        """Some columns of the same file."""
        other = copy.copy(self)
        other.columns = [self.columns[k] for k in places]
        other.shape = (len(self), len(other.columns))
        return other

    def whole(self) -> Any:
        """All rows."""
        rows, at = np.empty(self.shape), 0
        for block in self.blocks(BATCH):
            rows[at : at + len(block)] = block
            at += len(block)
        return rows

    def spread(self, n: int) -> tuple[Any, Any]:
        """(about n rows from places spread over the file, their numbers)."""
        rows = len(self)
        count = min(PLACES, n)
        size = n // count
        if rows <= n:
            return self.whole(), np.arange(rows)
        starts = np.unique(np.linspace(0, rows - size, count).astype(int))
        return self._stretches(starts, size), (starts[:, None] + np.arange(size)).ravel()

    def kinds(self) -> list[tuple[str, bool]]:
        """(type, whether it is of real numbers) of every column."""
        raise NotImplementedError

    def blocks(self, size: int) -> Iterator[Any]:
        """All rows in turn, ``size`` at a time."""
        raise NotImplementedError

    def _stretches(self, starts: Any, size: int) -> Any:
        """``size`` rows from each of the starts, which ascend and lie that far apart."""
        raise NotImplementedError


def _index_of(facts: dict[str, Any]) -> set[str]:
    """Names of the index's columns, from what pandas writes of a frame; a range has none."""
    return {name for name in facts.get("index_columns", ()) if isinstance(name, str)}


class _ArrowRows(ParquetRows):
    """Read by pyarrow, in the thread that asks: a pool of threads, as polars has, would take the
    cores of the pass."""

    def __init__(self, module: Any, file: Path) -> None:
        super().__init__(module, file)
        with module.ParquetFile(self.file) as opened:
            facts, self.schema = opened.metadata, opened.schema_arrow
        self.index = _index_of(self.schema.pandas_metadata or {})
        self.columns = [str(c) for c in self.schema.names]
        self.shape, self.stride = (facts.num_rows, len(self.columns)), PAGE
        sizes = [facts.row_group(i).num_rows for i in range(facts.num_row_groups)]
        self.edges = [0, *itertools.accumulate(sizes)]  # of the groups of rows

    def kinds(self) -> list[tuple[str, bool]]:
        types = importlib.import_module("pyarrow").types
        found = [self.schema.field(name).type for name in self.columns]
        tests = (types.is_integer, types.is_floating, types.is_boolean)
        return [(str(kind), any(test(kind) for test in tests)) for kind in found]

    def blocks(self, size: int) -> Iterator[Any]:
        return map(self._numbers, self._batches(size))

    def _stretches(self, starts: Any, size: int) -> Any:
        wanted = (starts[:, None] + np.arange(size)).ravel()
        parts = []
        for group, (at, end) in enumerate(itertools.pairwise(self.edges)):
            low, high = np.searchsorted(wanted, [at, end])
            left = wanted[low:high] - at
            batches = self._batches(BATCH, row_groups=[group])
            while len(left):
                rows = next(batches)
                here = np.searchsorted(left, rows.num_rows)
                if here:
                    parts.append(self._numbers(rows)[left[:here]])
                left = left[here:] - rows.num_rows
            batches.close()
        return np.concatenate(parts)

    def _batches(self, size: int, **options: Any) -> Generator[Any, None, None]:
        # a buffer for each column: else the bytes of a group are read whole, however large it is
        with self.module.ParquetFile(self.file, buffer_size=2**20, pre_buffer=False) as opened:
            yield from opened.iter_batches(size, columns=self.columns, use_threads=False, **options)

    def _numbers(self, batch: Any) -> Any:
        return numbers_of(batch, self.columns)


class _PolarsRows(ParquetRows):
    """Read by polars, by its threads, in pieces: it does not tell the groups of rows."""

    def __init__(self, module: Any, file: Path) -> None:
        super().__init__(module, file)
        scan = module.scan_parquet(self.file)
        self.schema = scan.collect_schema()
        self.columns = [str(c) for c in self.schema.names()]
        self.index = set()
        if hasattr(module, "read_parquet_metadata"):  # not in older ones
            facts = module.read_parquet_metadata(self.file).get("pandas", "{}")
            self.index = _index_of(json.loads(facts))
        n = int(scan.select(module.len()).collect().item())
        self.shape, self.stride = (n, len(self.columns)), PIECE

    def kinds(self) -> list[tuple[str, bool]]:
        found = [self.schema[name] for name in self.columns]
        good = [k.is_integer() or k.is_float() or str(k) == "Boolean" for k in found]
        return [(str(k), bool(g)) for k, g in zip(found, good, strict=True)]

    def blocks(self, size: int) -> Iterator[Any]:
        piece = size * max(1, PIECE // size)
        for at in range(0, len(self), piece):
            rows = self._read(at, piece)
            for start in range(0, len(rows), size):
                yield rows[start : start + size]

    def _stretches(self, starts: Any, size: int) -> Any:
        return np.concatenate([self._read(int(at), size) for at in starts])

    def _read(self, start: int, size: int) -> Any:
        names = self.schema.names()  # by place: some names are patterns to polars
        numbers = self.module.nth([names.index(c) for c in self.columns]).cast(self.module.Float64)
        scan = self.module.scan_parquet(self.file).select(numbers)
        return scan.slice(start, size).collect().to_numpy(order="c")
