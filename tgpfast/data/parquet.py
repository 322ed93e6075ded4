"""Rows of parquet files, decoded by pyarrow."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import itertools
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..validation import Array
from .arrow import fill_numbers
from .table import BLOCK_ROWS

HELD_BYTES = 2**26  # float64 rows of a file up to this size are held once they are decoded
PAGE_ROWS = 2**17  # rows that pyarrow may decode at once: a page of a column has about 1 MB
PLACES = 64  # places of a file from which a sample of its rows is taken
COLUMN_BUFFER = 2**20  # bytes of a column read at once; without it pyarrow reads a whole row group


class ParquetRows:
    """The rows of a parquet file as float64: flags are 0.0 and 1.0, missing values nan.

    Nothing but the metadata is read before the rows are asked for. pyarrow decodes in the calling
    thread, so that its pool does not take the cores of the computation.

    Parameters
    ----------
    file : Path

    Attributes
    ----------
    columns : list of str
        Names of the columns that are read.
    shape : (int, int)
        Number of rows and of these columns.
    index_columns : set of str
        Columns that were the index of a pandas frame.

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    ValueError
        If pyarrow cannot read the file.
    """

    def __init__(self, file: Path) -> None:
        # absolute, since pyarrow takes a name such as x:y for an address
        self._module, self.file = _load_arrow_parquet(file), file.absolute()
        try:
            with self._module.ParquetFile(self.file) as opened:
                facts, self._schema = opened.metadata, opened.schema_arrow
        except (PermissionError, MemoryError):
            raise
        except Exception as error:  # damaged bytes end in errors of many types within pyarrow
            reason = str(error).splitlines()[0]
            raise ValueError(f"{file.name} is not a parquet file: {reason}") from None
        pandas_facts = self._schema.pandas_metadata or {}
        # an index that is a range is not stored as a column
        self.index_columns = {
            name for name in pandas_facts.get("index_columns", ()) if isinstance(name, str)
        }
        self.columns = [str(name) for name in self._schema.names]
        self.shape = (facts.num_rows, len(self.columns))
        sizes = [facts.row_group(i).num_rows for i in range(facts.num_row_groups)]
        self._group_edges = [0, *itertools.accumulate(sizes)]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def is_small(self) -> bool:
        """Whether all rows are best held: most fits read them more than once."""
        return 8 * self.shape[0] * self.shape[1] <= HELD_BYTES

    @property
    def frame_kind(self) -> str:
        """The kind of table that results come in: of a library that is installed."""
        found = (name for name in ("polars", "pandas") if importlib.util.find_spec(name))
        return next(found, "array")

    @property
    def data_columns(self) -> list[int]:
        """Places of the columns that are no index."""
        return [k for k, name in enumerate(self.columns) if name not in self.index_columns]

    def select(self, places: Sequence[int]) -> ParquetRows:
        """Return the rows with only these columns, in this order."""
        other = copy.copy(self)
        other.columns = [self.columns[k] for k in places]
        other.shape = (len(self), len(other.columns))
        return other

    def column_types(self) -> list[tuple[str, bool]]:
        """Return (name of the type, whether it is one of real numbers) of every column."""
        types = importlib.import_module("pyarrow").types
        found = [self._schema.field(name).type for name in self.columns]
        tests = (types.is_integer, types.is_floating, types.is_boolean)
        return [(str(kind), any(test(kind) for test in tests)) for kind in found]

    def iterate(self, size: int) -> Iterator[Array]:
        """Yield all rows, ``size`` at a time."""
        return map(self._numbers, self._batches(size))

    def read_all(self) -> Array:
        """Return all rows."""
        return np.concatenate(list(self.iterate(BLOCK_ROWS)))

    def read_spread(self, n: int) -> tuple[Array, Any]:
        """Return at most n rows from places spread over the file, and their numbers."""
        if len(self) <= n:
            return self.read_all(), np.arange(len(self))
        count = min(PLACES, n)
        size = n // count
        starts = np.unique(np.linspace(0, len(self) - size, count).astype(int))
        numbers = (starts[:, None] + np.arange(size)).ravel()
        return self._read_rows(numbers), numbers

    def _read_rows(self, numbers: Any) -> Array:
        """Return rows by their numbers, which ascend."""
        parts = []
        for group, (start, stop) in enumerate(itertools.pairwise(self._group_edges)):
            low, high = np.searchsorted(numbers, [start, stop])
            wanted = numbers[low:high] - start
            batches = self._batches(BLOCK_ROWS, row_groups=[group])
            while len(wanted):
                batch = next(batches)
                n_here = np.searchsorted(wanted, batch.num_rows)
                if n_here:
                    parts.append(self._numbers(batch)[wanted[:n_here]])
                wanted = wanted[n_here:] - batch.num_rows
            batches.close()
        return np.concatenate(parts)

    def _batches(self, size: int, **options: Any) -> Generator[Any, None, None]:
        with self._module.ParquetFile(
            self.file, buffer_size=COLUMN_BUFFER, pre_buffer=False
        ) as opened:
            yield from opened.iter_batches(size, columns=self.columns, use_threads=False, **options)

    def _numbers(self, batch: Any) -> Array:
        rows = np.empty((batch.num_rows, len(self.columns)))
        fill_numbers(batch, self.columns, rows)
        return rows


def write_parquet(
    stream: IO[bytes], rows: Any, columns: Sequence[str] | None, file: Path
) -> None:
    """Write rows (n,) or (n, d) as float64 columns; nameless ones are column_0, column_1, ...

    ``file`` is named in messages.
    """
    writer, pyarrow = _load_arrow_parquet(file), importlib.import_module("pyarrow")
    table = np.asarray(rows, dtype=float)
    table = table.reshape(len(table), -1)
    names = [f"column_{k}" for k in range(table.shape[1])] if columns is None else list(columns)
    writer.write_table(pyarrow.table(list(map(pyarrow.array, table.T)), names=names), stream)


def _load_arrow_parquet(file: Path) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError(
            f"{file.name}: parquet files need pyarrow; install it with: "
            'pip install "tgpfast[files]"'
        ) from None
