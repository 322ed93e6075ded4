"""The only judge of user input: array, memmap, frame, file or iterator of blocks -> clean blocks.

A block is a C-contiguous float64 array of whole rows, checked for shape, dtype and finite values,
with its weights beside it. Float64 C-ordered input is passed on as views; nothing is copied whole.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from ..kernels.thread_choice import Threads
from ..validation import Array
from .arrow import as_frame
from .csv import TextRows
from .files import open_rows
from .parquet import PAGE_ROWS, ParquetRows
from .prefetch import AHEAD_BYTES, DEPTH, MOST_DEPTH, ReadAhead, ahead
from .row_sample import (
    SAMPLE_ROWS,
    Ints,
    Reservoir,
    RowSample,
    choose_rows,
    draw_sample,
    keys_of,
)
from .table import BLOCK_ROWS, Table

LEAST_WEIGHT = 1e-140  # of the largest weight: sums of squares must neither vanish nor overflow


class Blocks:
    """Checked blocks of rows of X, each time it is iterated: pairs (x, w), w None without weights.

    X may be a two-dimensional array (one-dimensional is taken as one column), a memmap, anything
    with ``__array__``, a frame of pandas or polars, a table of pyarrow, the path of a file, or an
    iterable of such blocks; each of its items may be a tuple (block, weights). A callable is called
    for a fresh iterable at every pass. Memmaps, files and what is wrapped in `ReadAhead` are read,
    converted and checked in another thread, a few blocks ahead of the one in use. ``dimension`` is
    the expected number of columns, ``columns`` their names: a frame that has them all is put in
    that order. ``n_rows`` is None until an iterator is spent; ``table`` remembers names and kind.
    ``is_part`` says that these are rows among others, so that weights may all be zero.
    """

    in_parts = False  # whether passes run by ``reduce``, where the rows are; see `as_blocks`
    budget: Any = None  # bytes for the grids of a pass where the caller names none
    first_row = 0  # number of the first row among all; of partitions of unknown length see `dask`
    sample: RowSample | None = None  # drawn by a pass, in the units of the source; see `pilot`

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
    ) -> None:
        self.dimension = dimension
        self._is_part = is_part
        self.name = name
        names = None
        self._ahead = isinstance(X, (str, os.PathLike, ReadAhead))
        self._keeps = isinstance(X, ReadAhead)  # the reader goes on while a block is in use
        if isinstance(X, ReadAhead):
            X = X.source
        _refuse_what_is_not_here(X, name)
        if isinstance(X, (str, os.PathLike)):
            X, names = open_rows(X, columns)
        X = _in_order(as_frame(X), columns, name)
        self.table = _table_of(X, names)
        self._order = columns
        self.block_rows = block_rows
        self.n_rows: int | None = None
        self._source: Any = X
        self._streams = _is_stream(X)
        self._weights: Any = None
        self._map: Callable[[Array], Array] | None = None
        self._factor = 1.0
        self._begun: list[Iterator[tuple[Array, Array | None]]] = []
        self._passes = [0]  # shared by copies
        if not self._streams:
            self._source = _as_table(X, name)
            self._ahead = _on_disk(self._source)
            self.dimension = _columns(self._source, name, dimension)
            self.n_rows = len(self._source)
            if self.n_rows == 0:
                raise ValueError(f"{name} has no rows; at least one is needed")
        if sample_weight is not None:
            self._weights = _as_weights(sample_weight, self.n_rows)
            if not (is_part or self._weights.any()):
                raise ValueError("sample_weight must not be all zero")

    def __iter__(self) -> Iterator[tuple[Array, Array | None]]:
        if self._begun:
            return self._begun.pop()
        self._passes[0] += 1
        # one block leaves nothing to read while it is worked on
        several = self._streams or len(self._source) > self.block_rows
        if not (self._ahead and several):
            return self._checked()
        made = _each_copied(self._checked()) if self._keeps else self._checked()
        return ahead(made, self._depth())

    def _depth(self) -> int:
        """Blocks to stay ahead. Of few columns several: where reading takes as long as computing,
        a pause of the one would be a wait of the other."""
        columns, depth = self.dimension, DEPTH
        if isinstance(self._source, TextRows):
            columns = self._source.n_columns
        if columns:
            depth = max(DEPTH, min(MOST_DEPTH, AHEAD_BYTES // (8 * self.block_rows * columns)))
        if isinstance(self._source, ParquetRows):  # while rows are used up, the next are decoded
            depth += -(-PAGE_ROWS // self.block_rows)
        return depth

    @property
    def n_passes(self) -> int:
        """How many passes over the rows were begun, by these blocks and by copies of them."""
        return self._passes[0]

    @property
    def reads_ahead(self) -> bool:
        """Whether the rows are made in another thread: a few blocks are then held at a time."""
        return self._ahead

    @property
    def lasting(self) -> bool:
        """Whether a block stays as it is when the next is asked for: a generator of the user's may
        fill one array again and again. What is read ahead is a file's, or a copy."""
        return not self._streams or self._ahead or isinstance(self._source, (list, tuple))

    @property
    def weight_ratio(self) -> float | None:
        """sum w / sum w^2, by which Kish's rule multiplies weights; None where they come with the
        rows."""
        if self._weights is None:
            return None if self._streams else 1.0
        return ratio_of(self._weights)

    def begun(self) -> Begun:
        """A pass over a stream of which some rows can be looked at before the rest is read."""
        return Begun(self)

    def _checked(self) -> Generator[tuple[Array, Array | None], None, None]:
        total, weight_total = 0, 0.0
        for table, own_weights, label in self._tables():
            self.dimension = _columns(table, label, self.dimension)
            for start in range(0, len(table), self.block_rows):
                stop = min(start + self.block_rows, len(table))
                x = _as_rows(table, start, stop)
                _check_finite(x, total, self.table.columns, self.name)
                w = None
                if own_weights is not None:
                    w = _weight_rows(own_weights, start, stop)
                elif self._weights is not None:
                    if total + len(x) > len(self._weights):
                        raise ValueError(
                            f"sample_weight has {len(self._weights)} entries, but X has more rows"
                        )
                    w = _weight_rows(self._weights, total, total + len(x))
                total += len(x)
                weight_total += len(x) if w is None else float(w.sum())
                yield self._mapped(x, w)
        if total == 0:
            raise ValueError(
                f"{self.name} has no rows: the iterator of blocks was empty or already used up"
            )
        if self._weights is not None and total != len(self._weights):
            entries = len(self._weights)
            raise ValueError(f"sample_weight has {entries} entries, but X has {total} rows")
        if not (self._is_part or weight_total > 0.0):
            raise ValueError("sample_weight must not be all zero")
        self.n_rows = total

    def _tables(self) -> Iterator[tuple[Any, Any, str]]:
        if isinstance(self._source, ParquetRows):
            yield from ((rows, None, self.name) for rows in self._decoded(self._source))
            return
        if not self._streams:
            yield self._source, None, self.name
            return
        items = self._source() if callable(self._source) else self._source
        for index, item in enumerate(items):
            label = f"block {index} of {self.name}"
            weights = None
            if isinstance(item, tuple):
                if len(item) != 2:
                    raise ValueError(f"{label} is a tuple of {len(item)}; expected (rows, weights)")
                item, weights = item
                if self._weights is not None:
                    raise ValueError(f"{label} brings weights, but sample_weight was given as well")
            item = as_frame(item)
            if _is_frame(item):
                if self.table.columns is None:
                    self.table = Table(self._order or [str(c) for c in item.columns])
                item = _in_order(item, self.table.columns, label)
            table = _as_table(item, label)
            if weights is not None:
                weights = _as_weights(weights, len(table))
            yield table, weights, label

    def _decoded(self, source: ParquetRows) -> Iterator[Array]:
        """Blocks of a parquet file; a small one is held after its first pass."""
        if not source.is_small:
            yield from source.iterate(self.block_rows)
            return
        held, at = np.empty(source.shape), 0
        for rows in source.iterate(self.block_rows):
            held[at : at + len(rows)] = rows
            yield held[at : at + len(rows)]
            at += len(rows)
        self._hold(held)

    def _hold(self, rows: Array) -> None:
        self._source, self._ahead = rows, False

    def mapped(self, function: Callable[[Array], Array], factor: float = 1.0) -> Blocks:
        """The same blocks with a function applied to their rows and their weights multiplied."""
        other = copy.copy(self)
        other._map, other._factor = function, factor
        return other

    def _mapped(self, x: Array, w: Array | None) -> tuple[Array, Array | None]:
        if self._map is not None:
            x = np.ascontiguousarray(self._map(x)).view()
            x.flags.writeable = False
        return x, w if w is None or self._factor == 1.0 else w * self._factor

    @property
    def can_repeat(self) -> bool:
        """Whether a second pass over the rows gives them again: not so for a one-shot iterator."""
        return not self._streams or callable(self._source) or iter(self._source) is not self._source

    def reduce(
        self,
        function: Callable[..., Any],
        backend: str = "auto",
        n_threads: int | None = None,
        progress: bool = False,
    ) -> Any:
        """function(blocks, threads) of all rows: for partitions, the sum over them. Where progress
        is asked for, the function is given ``progress=True``; partitions show dask's bar."""
        run = functools.partial(function, progress=True) if progress else function
        return run(self, Threads(backend, n_threads))

    def whole(self) -> Array:
        """All rows as one array; for evaluation at points that the caller holds anyway."""
        parts = [x if self.lasting else x.copy() for x, _ in self]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def pilot(self, n: int) -> tuple[Array, Array | None] | None:
        """At most n random rows and their weights.

        Part of ``sample``, where that has been drawn. Else rows of an array or a frame by
        their numbers, rows from places spread over a large parquet file, and None for a stream.
        """
        if self.sample is not None:
            return self._mapped(*self.sample.take(n))
        if self._streams:
            return None
        if isinstance(self._source, ParquetRows) and self._source.is_small:
            self._hold(self._source.read_all())
        if isinstance(self._source, ParquetRows):
            rows, numbers = self._source.read_spread(n)
            x = _as_rows(rows, 0, len(rows))
            _check_finite(x, numbers, self.table.columns, self.name)
            weights = None if self._weights is None else self._weights[numbers]
            return self._mapped(x, None if weights is None else _weight_rows(weights, 0, len(x)))
        return self.rows_at(choose_rows(len(self._source), n, self._weights))

    def draw_sample(self) -> None:
        """Draw ``sample`` where there is none: by numbers of rows if the rows are at hand, else in
        a pass, unless that would use the rows up."""
        if self.sample is not None or not self.can_repeat:
            return
        if self._streams or isinstance(self._source, ParquetRows):
            self.sample = draw_sample(self)
        else:
            numbers = choose_rows(len(self._source), SAMPLE_ROWS, self._weights)
            self.sample = RowSample(*self.rows_at(numbers), keys_of(numbers))

    def rows_at(self, numbers: Ints) -> tuple[Array, Array | None]:
        """Some rows of an array or a frame, and their weights, by their numbers."""
        source = self._source.iloc if hasattr(self._source, "iloc") else self._source
        x = _as_rows(source[numbers], 0, len(numbers))
        _check_finite(x, numbers, self.table.columns, self.name)
        if self._weights is None:
            return self._mapped(x, None)
        return self._mapped(x, _weight_rows(self._weights[numbers], 0, len(x)))


class Begun:
    """The first rows of a pass, looked at and held until ``blocks`` are read, which begin with
    them: nothing is read twice. ``ended`` says that there are no more."""

    def __init__(self, blocks: Blocks) -> None:
        self._rest, self._lasting = iter(blocks), blocks.lasting
        self._held: deque[tuple[Array, Array | None]] = deque()
        self.n_rows, self.ended = 0, False
        self.blocks = copy.copy(blocks)
        self.blocks._begun = [itertools.chain(self._given(), self._rest)]

    def read(self, n: int) -> None:
        """Read on until n rows are held, or all."""
        while self.n_rows < n and not self.ended:
            block = next(self._rest, None)
            if block is None:
                self.ended = True
            else:
                self._held.append(block if self._lasting else copied(*block))
                self.n_rows += len(block[0])

    def sample(self, n: int) -> Array:
        """At most n random rows of those held."""
        numbers = choose_rows(self.n_rows, n)
        return np.concatenate([x for x, _ in self._held])[numbers]

    def keep_sample(self) -> Reservoir:
        """A reservoir that is filled while ``blocks`` are read."""
        reservoir, (rest,) = Reservoir(), self.blocks._begun

        def kept() -> Iterator[tuple[Array, Array | None]]:
            first = 0
            for x, w in rest:
                reservoir.add(first, x, w)
                first += len(x)
                yield x, w

        self.blocks._begun = [kept()]
        return reservoir

    def _given(self) -> Iterator[tuple[Array, Array | None]]:
        while self._held:
            yield self._held.popleft()


def copied(x: Array, w: Array | None) -> tuple[Array, Array | None]:
    """A block in memory of its own."""
    x = x.copy()
    x.flags.writeable = False
    return x, None if w is None else w.copy()


def _each_copied(
    blocks: Generator[tuple[Array, Array | None], None, None],
) -> Iterator[tuple[Array, Array | None]]:
    with contextlib.closing(blocks):
        for block in blocks:
            yield copied(*block)


def _refuse_what_is_not_here(X: Any, name: str) -> None:
    """TypeError for a collection of dask, a sparse matrix and a lazy frame: rows must be here."""
    remedy = ""
    if hasattr(X, "__dask_graph__") and X.__dask_graph__() is not None:
        remedy = f"{name}.compute(), or a sample of the rows if that is too much"
    elif hasattr(type(X), "toarray"):  # not X: a frame has its columns as attributes
        remedy = f"{name}.toarray()"
    elif hasattr(type(X), "collect"):
        remedy = f"{name}.collect()"
    if remedy:
        kind = f"{type(X).__module__.split('.')[0]}'s {type(X).__name__}"
        raise TypeError(f"{name} is {kind}, and its rows are needed here at once: pass {remedy}")


def as_blocks(X: Any, **options: Any) -> Any:
    """`Blocks` of X; for a distributed collection its partitions, which stay where they are."""
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


def _on_disk(table: Any) -> bool:
    """Whether the rows are read from a file when they are asked for: of a memmap, or parquet."""
    if isinstance(table, ParquetRows):
        return True
    while isinstance(table, np.ndarray):
        if isinstance(table, np.memmap):
            return True
        table = table.base
    return False


def _is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars data frame, or looks like one."""
    return hasattr(X, "columns") and hasattr(X, "__len__")


def _table_of(X: Any, names: list[str] | None) -> Table:
    if isinstance(X, ParquetRows):
        return Table(names, X.frame_kind)
    if not _is_frame(X):
        return Table(names)
    columns = [str(c) for c in X.columns]
    if hasattr(X, "iloc"):
        return Table(columns, "pandas", X.index)
    return Table(columns, getattr(X, "kind", "polars"))


def _in_order(X: Any, columns: list[str] | None, name: str) -> Any:
    """A frame with the wanted columns in the wanted order; anything else as it is."""
    if columns is None or not _is_frame(X):
        return X
    have = [str(c) for c in X.columns]
    if have == columns:
        return X
    places: dict[str, deque[int]] = {}  # of a name, which several columns may have, each in turn
    for k, c in enumerate(have):
        places.setdefault(c, deque()).append(k)
    order = [places[c].popleft() if places.get(c) else None for c in columns]
    if None in order:
        missing = [c for c, k in zip(columns, order, strict=True) if k is None]
        raise ValueError(f"{name} lacks the columns {missing}; it has {have}")
    return X.iloc[:, order] if hasattr(X, "iloc") else X[:, order]


def _is_stream(X: Any) -> bool:
    if isinstance(X, (str, bytes, dict, set, memoryview)) or hasattr(X, "__array__"):
        return False
    if _is_frame(X):
        return False
    if isinstance(X, (list, tuple)):  # of blocks, or of rows
        first = X[0] if len(X) else None
        first = first[0] if isinstance(first, tuple) and len(first) == 2 else first
        return _is_frame(first) or (isinstance(first, np.ndarray) and first.ndim == 2)
    return callable(X) or hasattr(X, "__iter__")


def _as_table(X: Any, name: str) -> Any:
    """X itself where rows can be sliced off it (array, frame), else X as an array."""
    if _is_frame(X):
        return X
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, and masked values have no density; "
            "fill them or drop their rows, then pass .data"
        )
    if isinstance(X, (str, bytes, dict, set)) or X is None:
        kind = type(X).__name__
        raise TypeError(f"{name} must be an array of rows or an iterator of blocks, got {kind}")
    try:
        array = np.asanyarray(X) if isinstance(X, np.ndarray) else np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} is not a table of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        remedy = {
            "c": "fit real and imaginary parts as two columns",
            "O": "convert it with .astype(float)",
            "M": "convert times to numbers first",
        }.get(array.dtype.kind, "give columns of real numbers")
        raise TypeError(f"{name} has dtype {array.dtype}; real numbers are expected: {remedy}")
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, (rows, columns), got {array.shape}")
    return array


def _columns(table: Any, name: str, expected: int | None) -> int:
    found = table.shape[1]
    if found == 0:
        raise ValueError(f"{name} has no columns")
    if expected is not None and found != expected:
        hint = ""
        if found == 1 and isinstance(table.shape[0], int) and table.shape[0] == expected:
            hint = f"; for a single row pass it as shape (1, {expected})"
        raise ValueError(f"{name} has {found} columns, expected {expected}{hint}")
    return int(found)


def _as_rows(table: Any, start: int, stop: int) -> Array:
    part = table.iloc[start:stop] if hasattr(table, "iloc") else table[start:stop]
    values = _values(part) if _is_frame(part) else part
    rows = np.ascontiguousarray(np.asarray(values), dtype=np.float64).view()
    rows.flags.writeable = False  # always: Numba compiles a kernel again for a read-only argument
    return rows


def _values(frame: Any) -> Any:
    """Of a pandas or polars frame, numbers; TypeError names a column that has none."""
    dtypes = list(frame.dtypes)
    for k, dtype in enumerate(dtypes):
        if not _is_number(dtype):
            raise TypeError(
                f"column {k} ({str(frame.columns[k])!r}) has dtype {dtype}; real numbers are "
                "expected: encode it as numbers or drop it"
            )
    values = frame.to_numpy()
    if values.dtype.kind in "fiub":
        return values
    if not hasattr(frame, "iloc"):
        return frame.cast(dict.fromkeys(frame.columns, float)).to_numpy()  # decimals of polars
    # columns of pandas that may lack values, or numbers beside truth values
    return frame.to_numpy(dtype=np.float64, na_value=np.nan)


def _is_number(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # of polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return dtype.kind in "fiub"


def _check_finite(x: Array, rows: Any, columns: list[str] | None, label: str) -> None:
    """ValueError names the first value that is not; rows : number of the first row, or of all."""
    # one pass at memory speed: a sum is finite unless a value is not, or it overflows
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(x.sum()) or np.isfinite(x).all():
            return
    row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
    name = f" ({columns[column]!r})" if columns is not None else ""
    number = rows[row] if isinstance(rows, np.ndarray) else rows + row
    raise ValueError(
        f"{label} holds {x[row, column]} at row {number}, column {column}{name}; "
        "drop or fill such rows first"
    )


def _as_weights(weights: Any, n_rows: int | None) -> Any:
    array = np.asarray(weights)
    if isinstance(weights, np.ma.MaskedArray) or array.dtype.kind not in "fiub":
        raise TypeError(f"sample_weight must be real numbers, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"sample_weight must have one dimension, got shape {array.shape}")
    if n_rows is not None and len(array) != n_rows:
        raise ValueError(f"sample_weight has {len(array)} entries, but X has {n_rows} rows")
    # judged whole and at once: an error after half a pass would waste it
    bad = np.flatnonzero(~((array >= 0) & (array < np.inf)))
    if len(bad):
        raise ValueError(
            f"sample_weight must be finite and not negative, got {array[bad[0]]} at row {bad[0]}"
        )
    top = float(array.max(initial=0.0))
    if top > 0.0 and not LEAST_WEIGHT < top < 1.0 / LEAST_WEIGHT:
        raise ValueError(
            f"sample_weight is {top:.3g} at most, and its squares are beyond float64; divide it by "
            "its largest entry"
        )
    return array


def ratio_of(weights: Any) -> float:
    """sum w / sum w^2."""
    w = np.asarray(weights, dtype=np.float64)
    return float(w.sum() / (w @ w))


def _weight_rows(weights: Any, start: int, stop: int) -> Array:
    return np.ascontiguousarray(weights[start:stop], dtype=np.float64)

