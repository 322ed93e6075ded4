"""`Partitions`: a dask array or data frame with the interface of `Blocks`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dask
import dask.array
import numpy as np

from .. import kernels
from ..data.blocks import Blocks
from ..data.jitter import Jitter
from ..data.missing_rows import MissingCounts
from ..data.row_sample import SAMPLE_ROWS, RowSample, draw_sample
from ..data.rows import as_table, count_columns
from ..data.table import BLOCK_ROWS, Table, is_frame, order_columns
from ..data.weights import check_weights, kish_ratio
from ..density.density import Density
from ..kernels.thread_choice import Threads
from ..runtime.memory import BUDGET_VARIABLE
from ..validation import Array
from . import task_graph, tasks
from .lazy_evaluation import evaluate_lazily
from .task_graph import partition_keys, unique_name

FAN_IN = 8  # results that one task adds; fixed, because the order of a sum changes its bits
TASK_BUDGET = 2**30  # bytes for the grids of a task; fixed, so that machines do not change results


def open_partitions(X: Any, **options: Any) -> Blocks:
    """`Partitions` of a collection; `Blocks` of an xarray array without chunks."""
    if not dask.is_dask_collection(X):
        return Blocks(X, **options)
    return Partitions(X, **options)


@dataclass
class _Findings:
    """What passes found out about a collection; shared by its mapped copies."""

    lengths: list[int] | None
    sample: RowSample | None = None
    sample_size: int = 0  # that was asked for; the sample may have fewer rows


class Partitions(Blocks):
    """The partitions of a dask collection; options as for `Blocks`.

    ``reduce`` runs a pass on the workers. Iteration brings one partition after the other to the
    client, for code that has no pass of its own.
    """

    in_parts = True
    _is_stream = True  # a pass draws the sample
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
        drop_missing: bool = False,
        jitter: Jitter | None = None,
    ) -> None:
        X = order_columns(_check_collection(X, name), columns, name)
        self.name, self.block_rows, self.collection = name, block_rows, X
        names = [str(c) for c in X.columns] if is_frame(X) else None
        self.table = Table(names, "array" if names is None else "pandas")
        self.dimension = count_columns(X, name, dimension) if X.ndim == 2 else 1
        if dimension not in (None, self.dimension):
            raise ValueError(f"{name} has 1 column, expected {dimension}")
        self.budget = os.environ.get(BUDGET_VARIABLE) or TASK_BUDGET
        self._map, self._factor = None, 1.0
        self._passes = [0]
        self._drops, self.jitter, self._missing = drop_missing, jitter, [MissingCounts()]
        self._found = _Findings(None)
        if (known := _known_lengths(X)) is not None:
            self._set_lengths(known)
        self._graph: dict[Any, Any] = {}
        self._parts, self._weight_parts = self._find_keys(X, sample_weight)

    # -- keys of partitions and weights ----------------------------------------------------------

    def _find_keys(self, X: Any, weights: Any) -> tuple[list[Any], list[Any]]:
        """(keys of the partitions, keys of their weights or None for each), added to the graph."""
        self.weight_ratio = 1.0 if weights is None else None
        if not dask.is_dask_collection(weights):
            parts = self._add_to_graph(X)
            return parts, [None] * len(parts) if weights is None else self._split_array(weights)
        if getattr(weights, "ndim", 0) != 1:
            raise ValueError("sample_weight must have one dimension: a dask array or series")
        if is_frame(X):
            parts = self._add_to_graph(self._join_frame_weights(X, weights))
            return parts, [None] * len(parts)
        parts, weight_parts = self._add_to_graph(X), self._add_to_graph(self._match_chunks(weights))
        self._check_number(len(weight_parts), len(parts))
        return parts, weight_parts

    def _add_to_graph(self, X: Any) -> list[Any]:
        """Keys of the partitions of a collection, whose graph is added to ours."""
        keys, graph = partition_keys(X)
        self._graph.update(graph)
        return keys

    def _split_array(self, weights: Any) -> list[Any]:
        """Keys of an array of weights, split like the rows."""
        ends = np.cumsum(self.lengths)
        array = check_weights(weights, int(ends[-1]))
        if not array.any():
            raise ValueError("sample_weight must not be all zero")
        self.weight_ratio = kish_ratio(array)
        name, parts = unique_name("weights"), np.split(array, ends[:-1])
        self._graph.update({f"{name}-{i}": part for i, part in enumerate(parts)})
        return [f"{name}-{i}" for i in range(len(parts))]

    def _join_frame_weights(self, X: Any, weights: Any) -> Any:
        """A frame's partitions with their weights in one expression.

        In two expressions dask would shuffle or sort twice, and rows with equal keys might have
        another order each time.
        """
        is_array = not is_frame(weights)
        if is_array:
            weights = weights.to_dask_dataframe()
        self._check_number(weights.npartitions, X.npartitions)
        return X.map_partitions(
            tasks.join_weights, weights, drop_index=is_array, meta=X._meta,
            enforce_metadata=False, clear_divisions=True,
        )  # fmt: skip

    def _match_chunks(self, weights: Any) -> Any:
        """Weights as a dask array with the chunks of the rows."""
        if is_frame(weights):
            weights = self._series_to_array(weights)
        mine, theirs = self._found.lengths, _known_lengths(weights)
        if mine is None or theirs is None or mine == theirs:
            return weights
        if sum(mine) != sum(theirs):
            raise ValueError(
                f"sample_weight has {sum(theirs)} entries, but {self.name} has {sum(mine)} rows"
            )
        return weights.rechunk((tuple(mine),))

    def _series_to_array(self, weights: Any) -> Any:
        """A series as a dask array with as many chunks as X, if one of two ways gives that.

        By default dask may join partitions, as it did when the user made X from the same frame.
        """
        array = None
        for options in ({}, task_graph.KEEP_PARTITIONS):
            with dask.config.set(options):
                array = weights.to_dask_array()
            if array.numblocks[0] == self.collection.numblocks[0]:
                break
        return array

    def _check_number(self, theirs: int, mine: int) -> None:
        if theirs != mine:
            raise ValueError(
                f"sample_weight has {theirs} partitions, but {self.name} has {mine}; give both the "
                "same, best as columns of one frame: dask may join partitions of other frames"
            )

    # -- lengths ---------------------------------------------------------------------------------

    @property
    def lengths(self) -> list[int]:
        """Rows of each partition, counted on the workers if the chunks do not say."""
        if self._found.lengths is None:
            X, name = self.collection, unique_name("length")
            self._passes[0] += 1
            # one column is enough, and a file need not read more
            keys, graph = partition_keys(
                X[list(X.columns[:1])] if is_frame(X) and X.ndim == 2 else X
            )
            layer = {f"{name}-{i}": (tasks.count_rows, key) for i, key in enumerate(keys)}
            self._set_lengths(self._compute({**graph, **layer, name: (list, list(layer))}, name))
        return self._found.lengths  # type: ignore[return-value]

    def _set_lengths(self, lengths: list[int]) -> None:
        if not sum(lengths):
            raise ValueError(f"{self.name} has no rows; at least one is needed")
        self._found.lengths = [int(n) for n in lengths]

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """Number of rows of all partitions."""
        return sum(self.lengths)

    # -- passes ----------------------------------------------------------------------------------

    @property
    def _facts(self) -> tasks.CollectionFacts:
        return tasks.CollectionFacts(
            self.table, self.name, self.dimension, self._drops, self.jitter
        )

    def reduce(
        self,
        function: Callable[..., Any],
        backend: str = "auto",
        n_threads: int | None = None,
        progress: bool = False,
    ) -> Any:
        """The sum of function(blocks, threads) over all partitions with rows, on the workers.

        Parameters
        ----------
        function : callable
            Takes `Blocks` and `Threads`; returns something that can be added.
        backend : str, default "auto"
        n_threads : int, optional
            Threads of one task, by default 1.
        progress : bool, default False
            Show the progress bar of dask.

        Raises
        ------
        ValueError
            If no row is complete, or all weights are zero. Errors of a pass name its partition.
        """
        threads = Threads(kernels.load(backend).NAME, 1 if n_threads is None else n_threads)
        threads.resolve()  # raises here, not on a worker, if n_threads is wrong
        task = tasks.PassTask(function, threads, self._map, self._factor, self._facts)
        if self.jitter is not None:
            _ = self.lengths  # the numbers of rows among all decide the noise
        self._passes[0] += 1
        layer, key = self._build_pass(task)
        total = self._compute(layer, key, progress)
        self._set_lengths(total.lengths)
        self._missing[0] = total.missing
        if total.value is None:
            raise ValueError(f"{self.name} has no complete rows: all have missing values")
        if getattr(total.value, "n", 1.0) == 0.0:
            raise ValueError("sample_weight must not be all zero")
        return tasks.unpack_sum(total.value)

    def _build_pass(self, task: tasks.PassTask) -> tuple[dict[Any, Any], Any]:
        """(tasks by key, key of the result): one task per partition and a tree of sums."""
        known, name = self._found.lengths, unique_name("pass")
        starts: list[int | None] = [None] * len(self._parts)
        if known is not None:
            starts = np.cumsum([self.first_row, *known]).tolist()
        layer: dict[Any, Any] = {f"{name}-task": task}
        level = [f"{name}-{i}" for i in range(len(self._parts))]
        for i, key in enumerate(level):
            run = functools.partial(tasks.run_partition, index=i, start=starts[i])
            layer[key] = (run, f"{name}-task", self._parts[i], self._weight_parts[i])
        depth = 0
        while len(level) > 1:
            depth += 1
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [f"{name}-sum-{depth}-{i}" for i in range(len(groups))]
            layer.update(
                {key: (tasks.merge_sums, group) for key, group in zip(level, groups, strict=True)}
            )
        return layer, level[0]

    def pilot(self, n: int) -> tuple[Array, Array | None]:
        """At most n random rows and their weights, the same rows as `Blocks.pilot` takes.

        A pass draws them if no sample of that size is known.
        """
        sample = self.sample
        if sample is None:
            if self._found.sample_size < n or self._found.sample is None:
                _ = self.lengths  # the numbers of the rows among all decide which are drawn
                self._found.sample_size = max(n, SAMPLE_ROWS)
                self._found.sample = draw_sample(self.mapped(None), self._found.sample_size)
            sample = self._found.sample
        return self._mapped(*sample.take(n))

    def __iter__(self) -> Iterator[tuple[Array, Array | None]]:
        self._passes[0] += 1
        starts = np.cumsum([self.first_row, *self.lengths]) if self.jitter is not None else None
        for i, pair in enumerate(zip(self._parts, self._weight_parts, strict=True)):
            name = unique_name("rows")
            rows, weights = tasks.split_weights(*self._compute({name: (list, list(pair))}, name))
            if len(rows):
                blocks = self._facts.open_part(rows, weights, i)
                blocks.block_rows = self.block_rows
                blocks.first_row = 0 if starts is None else int(starts[i])
                yield from blocks.mapped(self._map, self._factor) if self._map else blocks

    def evaluated(self, model: Density, method: str, **options: Any) -> Any:
        """model.method(rows) for every partition, lazily; see `evaluate_lazily`."""
        return evaluate_lazily(self.collection, self.name, model, method, **options)

    def _compute(self, layer: dict[Any, Any], key: Any, progress: bool = False) -> Any:
        """The value of a key; an error names the partition that caused it."""
        try:
            return task_graph.compute({**self._graph, **layer}, key, progress)
        except Exception as error:
            if hasattr(error, "partition") or task_graph.is_scheduler_error(error):
                raise
            labels = {key: f"partition {i} of {self.name}" for i, key in enumerate(self._parts)}
            for i, key in enumerate(self._weight_parts):
                if key is not None:
                    labels[key] = f"partition {i} of sample_weight"
            failing = task_graph.find_failing(self._graph, labels)
            if failing is None:
                raise
            raise RuntimeError(
                f"{failing} could not be computed: {type(error).__name__}: {error}"
            ) from error


def _check_collection(X: Any, name: str) -> Any:
    """X as a dask array whose chunks are whole rows, or a dask data frame or series."""
    if not isinstance(X, dask.array.Array) and isinstance(
        getattr(X, "data", None), dask.array.Array
    ):
        X = X.data  # an xarray array
    if not isinstance(X, dask.array.Array):
        meta = getattr(X, "_meta", None)  # no table for an index or a bag
        if hasattr(type(X), "map_partitions") and hasattr(meta, "iloc"):
            return X
        raise TypeError(
            f"{name} is a {type(X).__name__} of dask; an array or a data frame is expected"
        )
    if X.ndim > 2 or X.ndim == 0:
        raise ValueError(f"{name} must have two dimensions, (rows, columns), got {X.shape}")
    as_table(X._meta, name)  # checks the dtype
    if X.ndim == 2 and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    return X


def _known_lengths(X: Any) -> list[int] | None:
    if not hasattr(X, "chunks") or np.isnan(X.chunks[0]).any():
        return None
    return [int(n) for n in X.chunks[0]]
