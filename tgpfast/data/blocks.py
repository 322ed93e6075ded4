"""Blocks: rows of any source in checked pieces, with their weights.

A block is a C-contiguous float64 array of whole rows, checked for shape, dtype and finite values.
Float64 C-ordered input is passed on as views; nothing is copied whole.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from ..kernels.thread_choice import Threads
from ..runtime.progress import Progress
from ..validation import Array, Ints
from .arrow import as_frame
from .checkpoint import Checkpoint, PassSums
from .jitter import Jitter
from .missing_rows import MissingCounts, fill_objects, find_missing
from .parquet import PAGE_ROWS, ParquetRows
from .prefetch import ReadAhead, choose_depth, prefetch
from .row_sample import (
    SAMPLE_ROWS,
    RowSample,
    choose_rows,
    draw_sample,
    keys_of,
)
from .rows import (
    as_table,
    check_finite,
    count_columns,
    is_on_disk,
    is_stream,
    refuse_distant_rows,
    slice_rows,
)
from .table import BLOCK_ROWS, Table, is_frame, name_series, order_columns
from .weights import check_weights, kish_ratio, slice_weights

Block = tuple[Array, Array | None]  # rows (n, d), and weights (n,) or None


class Blocks:
    """Checked blocks of the rows of X, at each iteration: pairs (rows, weights or None).

    Memmaps, files and what is wrapped in `ReadAhead` are read, converted and checked in another
    thread, a few blocks ahead of the one in use.

    Parameters
    ----------
    X : array, memmap, frame, table, path, iterable or callable
        A two-dimensional array (a one-dimensional one is one column), anything with
        ``__array__``, a frame of pandas or polars, a table of pyarrow, the path of a file, or an
        iterable of such blocks, each of which may be a tuple (block, weights). A callable is
        called for a fresh iterable at every pass.
    sample_weight : (n,) array-like, default None
        Weights, unless they come with the blocks.
    dimension : int, default None
        The expected number of columns.
    block_rows : int, default 16384
        The most rows of a block.
    columns : list of str, default None
        The expected names: a frame or file that has them all is put in that order.
    name : str, default "X"
        Name of the argument, for messages.
    is_part : bool, default False
        Whether these are rows among others, so that weights may all be zero.
    drop_missing : bool, default False
        Whether to leave out rows with nan, None or NA, which are an error otherwise. Rows are then
        numbered without them.
    keep_missing : bool, default False
        Whether to pass on rows with nan, None or NA as they are, with nan.
    jitter : Jitter, default None
        Noise on discrete columns.

    Attributes
    ----------
    n_rows : int or None
        Number of rows; None for a stream until a pass has ended.
    table : Table
        Names of the columns and the kind of frame.
    sample : RowSample or None
        A random sample of the rows, in the units of the source, if one was drawn.
    checkpoint : Checkpoint or None
        Where sums of passes are saved on the way.
    is_prefetched : bool
        Whether another thread makes the blocks: a few of them are then held at a time.
    """

    in_parts = False  # whether passes run by ``reduce``, where the rows are; see `as_blocks`
    budget: Any = None  # bytes for the grids of a pass where the caller names none
    first_row = 0  # number of the first row among all; of partitions of unknown length see `dask`
    sample: RowSample | None = None
    checkpoint: Checkpoint | None = None
    _n_skipped = 0  # rows that the next pass leaves out: a stopped one has summed them
    _is_summed = False  # whether that pass had ended

    def __init__(
        self,
        X: Any,
        *,
        sample_weight: Any = None,
        dimension: int | None = None,
        block_rows: int = BLOCK_ROWS,
        columns: list[str] | None = None,
        name: str = "X",
        is_part: bool = False,
        drop_missing: bool = False,
        keep_missing: bool = False,
        jitter: Jitter | None = None,
    ) -> None:
        self.name, self.dimension, self.block_rows = name, dimension, block_rows
        self._is_part, self._order = is_part, columns
        self._drops, self._keeps, self.jitter = drop_missing, keep_missing, jitter
        self._missing = [MissingCounts()]  # of the last pass; shared by copies
        self._map: Callable[[Array], Array] | None = None
        self._factor = 1.0
        self._started: list[Iterator[Block]] = []  # a pass that has begun; see `continued`
        self._passes = [0]  # shared by copies
        self._is_wrapped = isinstance(X, ReadAhead)
        self.is_prefetched = isinstance(X, (str, os.PathLike, ReadAhead))
        self._source, self.table = self._open(X)
        self._is_stream = is_stream(self._source)
        self.n_rows: int | None = None
        self._weights: Any = None
        if not self._is_stream:
            self._source = as_table(self._source, name)
            self.is_prefetched = is_on_disk(self._source)
            self.dimension = count_columns(self._source, name, dimension)
            if len(self._source) == 0:
                raise ValueError(f"{name} has no rows; at least one is needed")
            if not drop_missing:
                self.n_rows = len(self._source)
        if sample_weight is not None:
            length = None if self._is_stream else len(self._source)
            self._weights = check_weights(sample_weight, length)
            if not (is_part or self._weights.any()):
                raise ValueError("sample_weight must not be all zero")

    def _open(self, X: Any) -> tuple[Any, Table]:
        """Return the rows, unwrapped, opened and with columns in order, and their table."""
        names = None
        if isinstance(X, ReadAhead):
            X = X.source
        refuse_distant_rows(X, self.name)
        if isinstance(X, (str, os.PathLike)):
            from .files import open_rows  # imports the readers of all formats

            X, names = open_rows(X, self._order, keep_missing=self._drops or self._keeps)
        X = order_columns(name_series(as_frame(X), self._order), self._order, self.name)
        if self._drops or self._keeps:
            X = fill_objects(X, self.name)
        return X, Table.from_rows(X, names)

    # -- what is known about the rows

    @property
    def n_passes(self) -> int:
        """How many passes over the rows were started, by these blocks and by copies of them."""
        return self._passes[0]

    @property
    def missing(self) -> MissingCounts:
        """Rows that the last complete pass left out because of missing values."""
        return self._missing[0]

    @property
    def can_repeat(self) -> bool:
        """Whether a second pass gives the rows again; not so for a one-shot iterator."""
        source = self._source
        return not self._is_stream or callable(source) or iter(source) is not source

    @property
    def blocks_stay_valid(self) -> bool:
        """Whether a block keeps its values when the next one is asked for.

        Not so for a user's generator, which may fill one array again and again. What is prefetched
        comes from a file, or is a copy.
        """
        return (
            not self._is_stream or self.is_prefetched or isinstance(self._source, (list, tuple))
        )

    @property
    def weight_ratio(self) -> float | None:
        """sum w / sum w^2, by which Kish's rule multiplies weights; None where weights come with
        the blocks."""
        if self._weights is None:
            return None if self._is_stream else 1.0
        if self._drops and self.can_repeat:  # weights of rows that are left out do not count
            return kish_ratio(np.concatenate([w for _, w in self if w is not None]))
        return kish_ratio(self._weights)

    # -- passes

    def __iter__(self) -> Iterator[Block]:
        if self._started:
            return self._started.pop()
        self._passes[0] += 1
        if self._is_summed:
            return iter(())
        # one block leaves nothing to read while it is in use
        if not (self.is_prefetched and (self._is_stream or len(self._source) > self.block_rows)):
            return self._check_blocks()
        # the thread goes on while a block is in use, and a user's generator may fill it again
        blocks = self._check_blocks()
        return prefetch(copy_blocks(blocks) if self._is_wrapped else blocks, self._prefetch_depth())

    def _prefetch_depth(self) -> int:
        from .csv import TextRows

        columns = self.dimension
        if isinstance(self._source, TextRows):
            columns = self._source.n_columns
        depth = choose_depth(8 * self.block_rows * columns if columns else None)
        if isinstance(self._source, ParquetRows):  # the next page is decoded while one is used up
            depth += -(-PAGE_ROWS // self.block_rows)
        return depth

    def _check_blocks(self) -> Generator[Block, None, None]:
        """Yield the blocks of a pass: checked, without rows that lack values if these are dropped,
        and without those that a stopped pass has summed."""
        total, n_kept, weight_total, missing = 0, 0, 0.0, MissingCounts()
        for table, own_weights, label in self._tables():
            self.dimension = count_columns(table, label, self.dimension)
            for start in range(0, len(table), self.block_rows):
                stop = min(start + self.block_rows, len(table))
                if total < self._n_skipped and not self._drops:
                    total += stop - start
                    n_kept, weight_total = total, float(total)
                    continue
                x = slice_rows(table, start, stop)
                w = self._block_weights(own_weights, start, total, len(x))
                numbers: Any = total
                total += len(x)
                complete, counts = find_missing(x) if self._drops else (None, MissingCounts())
                missing += counts
                if complete is not None:
                    numbers = numbers + np.flatnonzero(complete)
                    x, w = x[complete], None if w is None else w[complete]
                if n_kept < self._n_skipped:  # only now is it known how many rows are kept
                    n_kept, weight_total = n_kept + len(x), weight_total + len(x)
                    continue
                x = self._prepare(x, numbers, self.first_row + n_kept)
                n_kept += len(x)
                weight_total += len(x) if w is None else float(w.sum())
                if len(x):
                    yield self._mapped(x, w)
        self._check_end(total, n_kept, weight_total)
        self._missing[0], self.n_rows = missing, n_kept

    def _check_end(self, total: int, n_kept: int, weight_total: float) -> None:
        """Raise ValueError where the rows of a complete pass, or their weights, are none.

        total, n_kept : number of all rows, and of those without missing values
        weight_total : sum of the weights of the rows that are kept
        """
        if total == 0:
            raise ValueError(
                f"{self.name} has no rows: the iterator of blocks was empty or already used up"
            )
        if n_kept == 0 and not self._is_part:
            raise ValueError(
                f"{self.name} has no complete rows: all {total:,} rows have missing values"
            )
        if self._weights is not None and total != len(self._weights):
            raise ValueError(
                f"sample_weight has {len(self._weights)} entries, but X has {total} rows"
            )
        if not (self._is_part or weight_total > 0.0):
            raise ValueError("sample_weight must not be all zero")

    def _prepare(self, x: Array, numbers: Any, kept_numbers: Any) -> Array:
        """Check rows and add noise to discrete columns.

        numbers : number of the first row in the source, or of every row, for messages
        kept_numbers : the same without rows that are left out, which decides the noise
        """
        checked = np.where(np.isnan(x), 0.0, x) if self._keeps else x
        check_finite(checked, numbers, self.table.columns, self.name)
        if self.jitter is not None:
            x = self.jitter.apply(x, kept_numbers, numbers, self.table.columns)
        x.flags.writeable = False
        return x

    def _block_weights(self, own: Any, start: int, total: int, n: int) -> Array | None:
        """Return the weights of n rows: those that came with them from ``start`` on, or those given
        for all rows from ``total`` on."""
        if own is not None:
            return slice_weights(own, start, start + n)
        if self._weights is None:
            return None
        if total + n > len(self._weights):
            raise ValueError(f"sample_weight has {len(self._weights)} entries, but X has more rows")
        return slice_weights(self._weights, total, total + n)

    def _tables(self) -> Iterator[tuple[Any, Any, str]]:
        """Yield (table, weights that came with it or None, name for messages)."""
        self._hold_if_small()
        if isinstance(self._source, ParquetRows):
            for rows in self._source.iterate(self.block_rows):
                yield rows, None, self.name
        elif not self._is_stream:
            yield self._source, None, self.name
        else:
            items = self._source() if callable(self._source) else self._source
            for index, item in enumerate(items):
                label = f"block {index} of {self.name}"
                yield *self._read_item(item, label), label

    def _read_item(self, item: Any, label: str) -> tuple[Any, Any]:
        """Return the table of a stream's item, with columns in order, and its weights or None."""
        weights = None
        if isinstance(item, tuple):
            if len(item) != 2:
                raise ValueError(f"{label} is a tuple of {len(item)}; expected (rows, weights)")
            item, weights = item
            if self._weights is not None:
                raise ValueError(f"{label} brings weights, but sample_weight was given as well")
        item = as_frame(item)
        if self._drops or self._keeps:
            item = fill_objects(item, label)
        if is_frame(item):
            if self.table.columns is None:
                self.table = Table(self._order or [str(c) for c in item.columns])
            item = order_columns(item, self.table.columns, label)
        table = as_table(item, label)
        return table, None if weights is None else check_weights(weights, len(table))

    def _hold_if_small(self) -> None:
        """Read the rows of a small parquet file, and take them from memory from now on."""
        if isinstance(self._source, ParquetRows) and self._source.is_small:
            self._source, self.is_prefetched = self._source.read_all(), False

    def mapped(self, function: Callable[[Array], Array] | None, factor: float = 1.0) -> Blocks:
        """Return blocks with a function applied to their rows, and weights times a factor.

        None gives the rows in the units of the source, with the weights as they were given.
        """
        other = copy.copy(self)
        other._map, other._factor = function, factor
        return other

    def continued(self, rest: Iterator[Block]) -> Blocks:
        """Return blocks whose next pass goes on with one that has begun: it yields ``rest``."""
        other = copy.copy(self)
        other._started = [rest]
        return other

    def _mapped(self, x: Array, w: Array | None) -> Block:
        if self._map is not None:
            x = np.ascontiguousarray(self._map(x)).view()
            x.flags.writeable = False
        return x, w if w is None or self._factor == 1.0 else w * self._factor

    @contextlib.contextmanager
    def track(
        self, name: str, sums: PassSums, progress: bool = False
    ) -> Iterator[Callable[[int], None]]:
        """Give a function to call with the number of rows just added to the sums of a pass.

        It moves a bar and saves the sums, if there is a checkpoint. Where a stopped fit has saved
        the sums of this pass, they are restored, and the pass leaves their rows out.

        Parameters
        ----------
        name : str
            Of the pass.
        sums : PassSums
        progress : bool, default False
            Whether to show the bar.
        """
        with Progress(progress, "rows", self.n_rows) as bar:
            if self.checkpoint is None:
                yield bar.add
                return
            checkpoint, record = self.checkpoint, self.checkpoint.begin(name, sums)
            bar.add(record.n_rows)

            def add(n_rows: int) -> None:
                bar.add(n_rows)
                checkpoint.add(record, n_rows, sums)

            self._n_skipped, self._is_summed = record.n_rows, record.has_ended
            if record.has_ended:
                self._missing[0] = MissingCounts(**record.missing)
            try:
                yield add
            finally:
                self._n_skipped, self._is_summed = 0, False
            record.n_columns = record.n_columns or self.dimension
            self.n_rows, self.dimension = record.n_rows, record.n_columns
            record.missing = vars(self.missing)
            checkpoint.end(record, sums)

    def reduce(
        self,
        function: Callable[..., Any],
        backend: str = "auto",
        n_threads: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Return function(blocks, threads) of all rows; for partitions, the sum over them.

        With ``progress`` the function is called with ``progress=True``; partitions show dask's bar.
        """
        run = functools.partial(function, progress=True) if progress else function
        return run(self, Threads(backend, n_threads))

    # -- rows at once

    def whole(self) -> Array:
        """Return all rows as one array; for evaluation at points that the caller holds anyway."""
        parts = [x if self.blocks_stay_valid else x.copy() for x, _ in self]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def pilot(self, n: int) -> Block | None:
        """Return at most n random rows and their weights, or None for a stream without a sample.

        They are part of ``sample``, if that has been drawn. Otherwise rows of an array or a frame
        are taken by their numbers, and rows of a large parquet file from places spread over it.
        """
        if self._drops:
            self.draw_sample()  # numbers of complete rows are known only after a pass
        if self.sample is not None:
            return self._mapped(*self.sample.take(n))
        if self._is_stream:
            return None
        self._hold_if_small()
        if isinstance(self._source, ParquetRows):
            return self._select(*self._source.read_spread(n))
        return self.rows_at(choose_rows(len(self._source), n, self._weights))

    def draw_sample(self) -> None:
        """Draw ``sample`` if there is none: by numbers of rows if the rows are at hand, else in a
        pass, unless that would use the rows up."""
        if self.sample is not None or not self.can_repeat:
            return
        if self._is_stream or self._drops or isinstance(self._source, ParquetRows):
            self.sample = draw_sample(self.mapped(None))
        else:
            numbers = choose_rows(len(self._source), SAMPLE_ROWS, self._weights)
            self.sample = RowSample(*self.rows_at(numbers), keys_of(numbers))

    def rows_at(self, numbers: Ints) -> Block:
        """Return rows of an array or a frame, and their weights, by their numbers."""
        source = self._source.iloc if hasattr(self._source, "iloc") else self._source
        return self._select(source[numbers], numbers)

    def _select(self, rows: Any, numbers: Ints) -> Block:
        """Check rows that were taken by their numbers, and add their weights."""
        x = self._prepare(slice_rows(rows, 0, len(rows)), numbers, numbers)
        if self._weights is None:
            return self._mapped(x, None)
        return self._mapped(x, slice_weights(self._weights[numbers], 0, len(x)))


def copy_block(x: Array, w: Array | None) -> Block:
    """Return a block in memory of its own."""
    x = x.copy()
    x.flags.writeable = False
    return x, None if w is None else w.copy()


def copy_blocks(blocks: Generator[Block, None, None]) -> Iterator[Block]:
    """Yield blocks in memory of their own."""
    with contextlib.closing(blocks):
        for block in blocks:
            yield copy_block(*block)


def as_blocks(X: Any, **options: Any) -> Any:
    """Return `Blocks` of X, or X itself if it is one, which its maker has checked. A distributed
    collection becomes partitions, which stay where they are."""
    if isinstance(X, Blocks):
        return X
    for recognizes, opens in _collections:
        if recognizes(X):
            return opens(X, **options)
    return Blocks(X, **options)


_collections: list[tuple[Callable[[Any], bool], Callable[..., Any]]] = []


def register_collection(recognizes: Callable[[Any], bool], opens: Callable[..., Any]) -> None:
    """Let an adapter serve collections whose rows are elsewhere.

    Parameters
    ----------
    recognizes : callable
        Takes what the user passed; True for a collection of the adapter. Must be cheap.
    opens : callable
        Takes the collection and the keywords of `Blocks`; returns an object with its interface.
    """
    _collections.append((recognizes, opens))
