"""Dask arrays and data frames: each pass runs where the partitions are, and only sums travel.

A pass is one task a partition and a tree that adds their results, FAN_IN at a time, in the order of
the partitions. What a task computes depends on its partition and on what the client has decided
(engine, precision, backend, threads, memory), and never on which worker runs it or when: results
are the same bits for any number of workers, and when a worker dies and its tasks run again.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from . import kernels
from .data.blocks import Blocks
from .data.row_sample import SAMPLE_ROWS, draw_sample
from .data.rows import as_table, count_columns
from .data.table import BLOCK_ROWS, Table, is_frame, order_columns
from .data.weights import check_weights, kish_ratio
from .density.density import Density
from .features.random import Features
from .kernels.thread_choice import Threads
from .pipeline.fitting import fit as _fit
from .runtime import memory
from .statistics.accumulation import accumulate as _accumulate
from .statistics.statistics import Statistics
from .statistics.triangles import pack_triangle, unpack_triangle
from .validation import Array

try:
    import dask
    import dask.array
    from dask.delayed import Delayed, delayed
    from dask.highlevelgraph import HighLevelGraph
except ImportError as error:
    raise ImportError(
        f'tgpfast.dask needs dask, which cannot be imported ({error}); install it with: '
        'pip install "tgpfast[dask]"'
    ) from error

FAN_IN = 8  # results that one task of the tree adds; fixed, or the order of the sums would change
PART_BUDGET = 2**30  # bytes for the grids of a task; fixed, so that no machine decides the result
PART_NUMBERS = 2**40  # row numbers set aside for a partition while lengths are not known
SYMMETRIC = ("gram", "gram_phi", "noise_gram")
PROBED = 64  # partitions tried at a time when the one that failed is looked for
# dask would else join partitions of files, by the columns that are asked for: other partitions than
# the user's, and than those of another expression of the same frame
AS_THEY_ARE = {"optimization.tune.active": False}


def fit(X: Any, **settings: Any) -> Density:
    """`tgpfast.fit` of a dask array or data frame; ``tgpfast.fit`` takes them as well.

    Reads the partitions on the workers for moments and, in the same pass, for a sample of at most
    20,000 rows that settings and precision are chosen by; then for statistics. With ``moments``
    given, the sample takes a pass of its own, if one is needed. Where the lengths of partitions are
    not known, the sample differs from that of an array of the same rows.
    What is costly to make is better kept by the workers (``X.persist()``). ``n_threads`` is that of
    one task, 1 by default: a worker runs as many tasks at a time as it has threads. The equations
    are solved here.

    Parameters
    ----------
    X : dask array (n, d), data frame or series; lengths of chunks may be unknown
    settings : as for ``tgpfast.fit``; ``sample_weight`` is a dask array or series with the
        partitions of X, such as a column of the same frame, or an array (n,)
    """
    return _fit(_collection(X), **settings)


def accumulate(X: Any, features: Features, **options: Any) -> Statistics:
    """`tgpfast.accumulate` of a dask array or data frame; ``tgpfast.accumulate`` takes them too.

    The direct engine gives the tree of sums of ``accumulate`` of each partition, bit by bit. The
    spectral one spreads all partitions on equal grids, adds these, and reads them off here. Lengths
    that are not known are counted first, and a sample is read where precision or engine are "auto".

    Parameters
    ----------
    X, sample_weight, n_threads : as for ``fit``
    features, options : as for ``tgpfast.accumulate``
    """
    return _accumulate(_collection(X), features, **options)


def _collection(X: Any) -> Any:
    if not dask.is_dask_collection(X):
        raise TypeError(
            f"X must be a dask array or data frame, got {type(X).__name__}; tgpfast.fit and "
            "tgpfast.accumulate take other rows"
        )
    return X


def partitions(X: Any, **options: Any) -> Blocks:
    """What ``blocks.as_blocks`` returns for anything with a dask graph."""
    if not dask.is_dask_collection(X):  # an array of xarray that holds no chunks
        return Blocks(X, **options)
    return Partitions(X, **options)


class Partitions(Blocks):
    """The partitions of a collection, as a pass sees them; options as for `Blocks`.

    ``reduce`` runs a pass on the workers. Iterating brings one partition after the other here: for
    what has no pass of its own.
    """

    in_parts = True
    can_repeat = True
    is_prefetched = False
    blocks_stay_valid = True
    weight_ratio: float | None = None

    def __init__(
        self,
        X: Any,
        *,
        sample_weight: Any = None,
        dimension: int | None = None,
        block_rows: int = BLOCK_ROWS,
        columns: list[str] | None = None,
        name: str = "X",
    ) -> None:
        X = _whole_rows(X, name)
        X = order_columns(X, columns, name)
        self.name, self.block_rows = name, block_rows
        self.collection = X
        names = [str(c) for c in X.columns] if is_frame(X) else None
        self.table = Table(names, "array" if names is None else "pandas")
        self.dimension = count_columns(X, name, dimension) if X.ndim == 2 else 1
        if dimension not in (None, self.dimension):
            raise ValueError(f"{name} has 1 column, expected {dimension}")
        self.budget = os.environ.get(memory.BUDGET_VARIABLE) or PART_BUDGET
        self._map, self._factor = None, 1.0
        self._passes = [0]
        # lengths, and a sample with its size; shared by what ``mapped`` returns
        self._seen: dict[str, Any] = {"lengths": _known_lengths(X), "drawn": (0, None)}
        if self._seen["lengths"] is not None and not sum(self._seen["lengths"]):
            raise ValueError(f"{name} has no rows; at least one is needed")
        self._graph: dict[Any, Any] = {}
        self._parts, self._weight_parts = self._keys_of(X, sample_weight)

    def _keys_of(self, X: Any, weights: Any) -> tuple[list[Any], list[Any]]:
        """Keys of the partitions, in the graph, and of their weights."""
        self.weight_ratio = 1.0 if weights is None else None
        if not dask.is_dask_collection(weights):
            parts = self._enter(X)
            return parts, [None] * len(parts) if weights is None else self._cut(weights)
        if getattr(weights, "ndim", 0) != 1:
            raise ValueError("sample_weight must have one dimension: a dask array or series")
        if is_frame(X):
            parts = self._enter(self._pairs(X, weights))
            return parts, [None] * len(parts)
        parts, weight_parts = self._enter(X), self._enter(self._like_rows(weights))
        self._check_number(len(weight_parts), len(parts))
        return parts, weight_parts

    def _enter(self, X: Any) -> list[Any]:
        """Keys of the partitions of a collection, whose graph joins the others."""
        keys, graph = _keyed(X)
        self._graph.update(graph)
        return keys

    def _cut(self, weights: Any) -> list[Any]:
        """Keys of an array of weights, cut like the rows."""
        ends = np.cumsum(self.lengths)
        array = check_weights(weights, int(ends[-1]))
        if not array.any():
            raise ValueError("sample_weight must not be all zero")
        self.weight_ratio = kish_ratio(array)
        name, parts = _name("weights"), np.split(array, ends[:-1])
        self._graph.update({f"{name}-{i}": part for i, part in enumerate(parts)})
        return [f"{name}-{i}" for i in range(len(parts))]

    def _pairs(self, X: Any, weights: Any) -> Any:
        """A frame's partitions with their weights, in one expression. By themselves dask would
        shuffle or sort each anew, and rows of equal keys may come in another order each time."""
        numbered = not is_frame(weights)
        if numbered:  # an array has no index of its own
            weights = weights.to_dask_dataframe()
        self._check_number(weights.npartitions, X.npartitions)
        return X.map_partitions(
            _Pair.of, weights, numbered=numbered, meta=X._meta, enforce_metadata=False,
            clear_divisions=True,
        )  # fmt: skip

    def _like_rows(self, weights: Any) -> Any:
        """Weights of an array, as one with its chunks."""
        if is_frame(weights):
            weights = self._as_array(weights)
        mine, theirs = self._seen["lengths"], _known_lengths(weights)
        if mine is None or theirs is None or mine == theirs:
            return weights
        if sum(mine) != sum(theirs):
            raise ValueError(
                f"sample_weight has {sum(theirs)} entries, but {self.name} has {sum(mine)} rows"
            )
        return weights.rechunk((tuple(mine),))

    def _as_array(self, weights: Any) -> Any:
        """A series as dask makes it an array, which may join partitions, as it did when X was made
        one; or with the partitions it has, where these are as many as those of X."""
        made = None
        for options in ({}, AS_THEY_ARE):
            with dask.config.set(options):
                made = weights.to_dask_array()
            if made.numblocks[0] == self.collection.numblocks[0]:
                break
        return made

    def _check_number(self, theirs: int, mine: int) -> None:
        if theirs != mine:
            raise ValueError(
                f"sample_weight has {theirs} partitions, but {self.name} has {mine}; give both the "
                "same, best as columns of one frame, of which dask may else join other partitions"
            )

    # -- what is known ---------------------------------------------------------------------------

    @property
    def lengths(self) -> list[int]:
        """Rows of each partition; counted where chunks do not say."""
        if self._seen["lengths"] is None:
            X, name = self.collection, _name("length")
            self._passes[0] += 1
            # one column is enough, and the only one that a file need give
            keys, graph = _keyed(X[list(X.columns[:1])] if is_frame(X) and X.ndim == 2 else X)
            layer = {f"{name}-{i}": (_length, key) for i, key in enumerate(keys)}
            self._learn(self._compute({**graph, **layer, name: (list, list(layer))}, name))
        known: list[int] = self._seen["lengths"]
        return known

    def _learn(self, lengths: list[int]) -> None:
        if not sum(lengths):
            raise ValueError(f"{self.name} has no rows; at least one is needed")
        self._seen["lengths"] = [int(n) for n in lengths]

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """Of all partitions."""
        return sum(self.lengths)

    # -- passes ----------------------------------------------------------------------------------

    def reduce(
        self,
        function: Callable[..., Any],
        backend: str = "auto",
        n_threads: int | None = None,
        progress: bool = False,
    ) -> Any:
        """function(blocks, threads) of every partition that has rows, on the workers, and the sum
        of what it returns by a tree of fixed shape."""
        threads = Threads(kernels.load(backend).NAME, 1 if n_threads is None else n_threads)
        threads.resolve()  # judges n_threads here
        job = _Job(
            function, threads, self._map, self._factor, self.table, self.name, self.dimension
        )
        self._passes[0] += 1
        known = self._seen["lengths"]
        starts = [None] * len(self._parts) if known is None else np.cumsum([0, *known]).tolist()
        name = _name("pass")
        layer: dict[Any, Any] = {f"{name}-job": job}
        level = [f"{name}-{i}" for i in range(len(self._parts))]
        for i, key in enumerate(level):
            run = functools.partial(_run, index=i, start=starts[i])
            layer[key] = (run, f"{name}-job", self._parts[i], self._weight_parts[i])
        depth = 0
        while len(level) > 1:
            depth += 1
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [f"{name}-sum-{depth}-{i}" for i in range(len(groups))]
            layer.update({key: (_merge, group) for key, group in zip(level, groups, strict=True)})
        total = self._compute(layer, level[0], progress)
        self._learn(total.lengths)
        if getattr(total.value, "n", 1.0) == 0.0:
            raise ValueError("sample_weight must not be all zero")
        return _unpacked(total.value)

    def pilot(self, n: int) -> tuple[Array, Array | None]:
        """At most n random rows and their weights, as `Blocks.pilot` takes them; drawn in a pass
        where there is no sample of that size."""
        sample = self.sample
        if sample is None:
            drawn, known = self._seen["drawn"]
            if drawn < n:
                size = max(n, SAMPLE_ROWS)
                _ = self.lengths  # the rows' numbers among all decide
                known = draw_sample(self._unmapped(), size)
                self._seen["drawn"] = (size, known)
            sample = known
        return self._mapped(*sample.take(n))

    def draw_sample(self) -> None:
        """Draw ``sample`` in a pass, where there is none."""
        if self.sample is None:
            self.sample = draw_sample(self)

    def _unmapped(self) -> Partitions:
        other = copy.copy(self)
        other._map, other._factor = None, 1.0
        return other

    def __iter__(self) -> Iterator[tuple[Array, Array | None]]:
        self._passes[0] += 1
        for i, (part, weights) in enumerate(zip(self._parts, self._weight_parts, strict=True)):
            name = _name("rows")
            rows, own = _Pair.apart(*self._compute({name: (list, [part, weights])}, name))
            if len(rows):
                local = _local(rows, own, i, self.table, self.name, self.dimension)
                local.block_rows = self.block_rows
                yield from local.mapped(self._map, self._factor) if self._map else local

    def evaluated(self, model: Density, method: str, **options: Any) -> Any:
        """model.method(rows) of every partition, lazily, with the partitions of the collection."""
        own = copy.copy(model)
        own.threads = Threads(model.threads.backend, model.threads.n_threads or 1)
        own.statistics = None  # which nothing asks for, and which are most of a model
        asked = _Evaluation(own, method, options, self.name)
        task, X = delayed(asked, name=_name("model"), traverse=False), self.collection
        if is_frame(X) and X.ndim == 2:
            meta = _answer(asked, X._meta, None)
            return X.map_partitions(_answer_frame, task, meta=meta)
        rows = X.to_dask_array() if hasattr(X, "divisions") else X
        rows = rows if rows.ndim == 2 else rows[:, None]
        single = method != "grad_log_density"
        return rows.map_blocks(
            _answer_array, task, dtype=np.float64, meta=np.empty((0,) if single else (0, 0)),
            **({"drop_axis": 1} if single else {}),
        )  # fmt: skip

    # -- running ---------------------------------------------------------------------------------

    def _compute(self, layer: dict[Any, Any], key: Any, progress: bool = False) -> Any:
        try:
            return _compute(_delayed({**self._graph, **layer}, key), progress)
        except Exception as error:
            if hasattr(error, "partition") or _is_of_scheduler(error):
                raise
            guilty = self._guilty()
            if guilty is None:
                raise
            raise RuntimeError(
                f"{guilty} could not be computed: {type(error).__name__}: {error}"
            ) from error

    def _guilty(self) -> str | None:
        """The first partition that cannot be computed, looked for after a pass has failed: some at
        a time, which run in parallel, then one by one among these."""
        keys = {key: f"partition {i} of {self.name}" for i, key in enumerate(self._parts)}
        for i, key in enumerate(self._weight_parts):
            if key is not None:
                keys[key] = f"partition {i} of sample_weight"
        tried = list(keys)
        for at in range(0, len(tried), PROBED):
            some = tried[at : at + PROBED]
            if self._fails(some):
                guilty = next((keys[key] for key in some if self._fails([key])), None)
                if guilty is not None:
                    return guilty
        return None

    def _fails(self, keys: list[Any]) -> bool:
        name = _name("length")
        layer = {f"{name}-{i}": (_length, key) for i, key in enumerate(keys)}
        try:
            _compute(_delayed({**self._graph, **layer, name: (list, list(layer))}, name), False)
        except Exception:
            return True
        return False


# -- the client -----------------------------------------------------------------------------------


def _whole_rows(X: Any, name: str) -> Any:
    """X as a dask array cut along rows alone, or a dask data frame or series."""
    if not isinstance(X, dask.array.Array) and isinstance(
        getattr(X, "data", None), dask.array.Array
    ):
        X = X.data  # of xarray
    if not isinstance(X, dask.array.Array):
        meta = getattr(X, "_meta", None)  # of an index or a bag it is no table
        if hasattr(type(X), "map_partitions") and hasattr(meta, "iloc"):
            return X
        raise TypeError(
            f"{name} is a {type(X).__name__} of dask; an array or a data frame is expected"
        )
    if X.ndim > 2 or X.ndim == 0:
        raise ValueError(f"{name} must have two dimensions, (rows, columns), got {X.shape}")
    as_table(X._meta, name)  # judges the dtype
    if X.ndim == 2 and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    return X


def _known_lengths(X: Any) -> list[int] | None:
    if not hasattr(X, "chunks") or np.isnan(X.chunks[0]).any():
        return None
    return [int(n) for n in X.chunks[0]]


def _keyed(X: Any) -> tuple[list[Any], dict[Any, Any]]:
    """Keys of the partitions, and a graph that has them."""
    with dask.config.set(AS_THEY_ARE):
        parts = list(np.ravel(X.to_delayed()))
    graph = dict(parts[0].__dask_graph__())  # one for all of them
    keys = [part.key for part in parts]
    missing = [key for key in keys if key not in graph]
    if missing:  # kept by workers: what stands for them has been optimised away
        whole = X.__dask_graph__()
        graph.update({key: whole[key] for key in missing})
    return keys, graph


def _name(what: str) -> str:
    return f"tgpfast-{what}-{uuid.uuid4().hex}"


def _delayed(graph: dict[Any, Any], key: Any) -> Delayed:
    return Delayed(key, HighLevelGraph.from_collections(key, graph, dependencies=()))


def _client(task: Delayed) -> Any:
    """The distributed client that dask would use, None where it would not."""
    get = dask.base.get_scheduler(collections=[task])
    client = getattr(get, "__self__", None)
    return client if hasattr(client, "scheduler_info") else None


def _compute(task: Delayed, progress: bool) -> Any:
    client = _client(task) if progress else None
    if client is None:
        bar: Any = contextlib.nullcontext()
        if progress:
            from dask.diagnostics import ProgressBar

            bar = ProgressBar()
        with bar:
            return dask.compute(task)[0]
    from distributed import progress as show

    future = client.compute(task)
    try:
        show(future, notebook=False)
        return future.result()
    finally:
        future.release()  # what has not run when interrupted is dropped


def _is_of_scheduler(error: BaseException) -> bool:
    """A worker lost, a pass cancelled: no fault of a partition."""
    return type(error).__module__.split(".")[0] in ("distributed", "concurrent", "asyncio")


# -- the workers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """What the tasks of one pass share."""

    function: Callable[[Blocks, Threads], Any]
    threads: Threads
    map: Callable[[Array], Array] | None
    factor: float
    table: Table
    name: str
    dimension: int | None


@dataclass(frozen=True)
class _Sum:
    """What travels: lengths of the partitions, and their sum, None of no rows."""

    lengths: list[int]
    value: Any

    def __sizeof__(self) -> int:
        """By which a worker judges what it holds; else arrays within would count as nothing."""
        return object.__sizeof__(self) + _bytes_of(self.value) + 32 * len(self.lengths)


def _bytes_of(value: Any) -> int:
    """Bytes of the arrays in a sum."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return sum(_bytes_of(v) for v in getattr(value, "__dict__", {}).values())


class _Pair(NamedTuple):
    """A partition of a frame, and its weights."""

    rows: Any
    weights: Any

    @staticmethod
    def of(rows: Any, weights: Any, numbered: bool) -> _Pair:
        return _Pair(rows, weights.to_numpy() if numbered else weights)

    @staticmethod
    def apart(part: Any, weights: Any) -> tuple[Any, Any]:
        return part if isinstance(part, _Pair) else (part, weights)


def _length(part: Any) -> int:
    return len(_Pair.apart(part, None)[0])


def _local(
    part: Any, weights: Any, index: int, table: Table, name: str, dimension: int | None
) -> Blocks:
    return Blocks(
        part, sample_weight=weights, dimension=dimension, columns=table.columns,
        name=f"partition {index} of {name}", is_part=True,
    )  # fmt: skip


def _check_weights(part: Any, weights: Any, index: int, name: str) -> None:
    """ValueError where weights are not those of the rows, as far as can be seen."""
    if weights is None:
        return
    if len(weights) != len(part):
        raise ValueError(
            f"partition {index} of {name} has {len(part)} rows, but sample_weight has "
            f"{len(weights)} there"
        )
    mine, theirs = getattr(part, "index", None), getattr(weights, "index", None)
    if mine is None or theirs is None or mine.equals(theirs):
        return
    if set(mine) == set(theirs):
        raise ValueError(
            f"sample_weight has the rows of {name} in another order, by their index; make it a "
            "column of the same frame (or reset its index, if each weight does stand at its row)"
        )


def _run(job: _Job, part: Any, weights: Any, index: int, start: int | None) -> _Sum:
    """The pass over one partition."""
    part, weights = _Pair.apart(part, weights)
    with _labelling(index, start, job.name):
        _check_weights(part, weights, index, job.name)
        if not len(part):
            return _Sum([0], None)
        blocks = _local(part, weights, index, job.table, job.name, job.dimension)
        blocks.first_row = index * PART_NUMBERS if start is None else start
        if job.map is not None:
            blocks = blocks.mapped(job.map, job.factor)
        with _held(job.threads):
            return _Sum([len(part)], _packed(job.function(blocks, job.threads)))


def _merge(sums: list[_Sum]) -> _Sum:
    """In the order given."""
    lengths = [n for part in sums for n in part.lengths]
    values = [part.value for part in sums if part.value is not None]
    total = values[0] if values else None
    for value in values[1:]:
        try:
            total = total + value
        except Exception as error:
            error.partition = None  # type: ignore[attr-defined]
            raise
    return _Sum(lengths, total)


@contextlib.contextmanager
def _labelling(index: int, start: int | None, name: str) -> Iterator[None]:
    """Errors carry the number of their partition; those of ours also in their text, with the row
    among all where one is told."""
    try:
        yield
    except Exception as error:
        text, label = str(error), f"partition {index} of {name}"
        if type(error) not in (ValueError, TypeError):
            error.partition = index  # type: ignore[attr-defined]
            raise  # the same error: as its own cause it would send distributed round and round
        if label not in text:
            text = f"{label}: {text}"
        row = re.search(r"at row (\d+)", text)
        if start and row:
            text += f" (row {start + int(row[1])} of all)"
        told = type(error)(text)
        told.partition = index  # type: ignore[attr-defined]
        raise told from error


_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def _held(threads: Threads) -> Iterator[None]:
    """Numba and BLAS held to the threads of a task, for the whole of it."""
    module, count = threads.resolve()
    with contextlib.ExitStack() as stack:
        if module.NAME == "numba" and _one_task_only():
            stack.enter_context(_one_at_a_time)
        stack.enter_context(kernels.threads(module, count))
        yield


def _one_task_only() -> bool:
    """Numba's "workqueue" ends the process when two threads enter it; others may be entered."""
    import numba

    try:
        return bool(numba.threading_layer() == "workqueue")
    except ValueError:  # none is chosen before the first parallel loop
        return True


def _packed(value: Any) -> Any:
    """Statistics with triangles in place of symmetric matrices; these add as the others do."""
    if not isinstance(value, Statistics):
        return value
    matrices = {name: getattr(value, name) for name in SYMMETRIC}
    halves: dict[str, Any] = {k: pack_triangle(m) for k, m in matrices.items() if m is not None}
    return replace(value, **halves)


def _unpacked(value: Any) -> Any:
    if not isinstance(value, Statistics):
        return value
    S, triangles = value.features.n_features, {name: getattr(value, name) for name in SYMMETRIC}
    whole: dict[str, Any] = {
        k: unpack_triangle(t, S) for k, t in triangles.items() if t is not None
    }
    return replace(value, **whole)


# -- evaluation -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Evaluation:
    """A model and what is asked of it: once in a graph."""

    model: Density
    method: str
    options: dict[str, Any]
    name: str


def _answer(task: _Evaluation, part: Any, index: int | None) -> Any:
    if not len(part):
        zeros = np.zeros((1, part.shape[1]))
        if is_frame(part):
            rows = type(part)(zeros, columns=part.columns)
            return getattr(task.model, task.method)(rows, **task.options)[:0].set_axis(part.index)
        return getattr(task.model, task.method)(zeros, **task.options)[:0]
    try:
        with _held(task.model.threads):
            return getattr(task.model, task.method)(part, **task.options)
    except (TypeError, ValueError) as error:
        where = "" if index is None else f"partition {index} of {task.name}: "
        raise type(error)(f"{where}{error}") from error


def _answer_frame(part: Any, task: _Evaluation, partition_info: Any = None) -> Any:
    return _answer(task, part, partition_info["number"] if partition_info else None)


def _answer_array(part: Array, task: _Evaluation, block_info: Any = None) -> Any:
    return _answer(task, part, block_info[0]["chunk-location"][0] if block_info else None)
