"""The tasks that run on workers: a pass over one partition, and the sum of several results."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import kernels
from ..data.blocks import Blocks
from ..data.jitter import Jitter
from ..data.missing_rows import MissingCounts
from ..data.table import Table
from ..kernels.thread_choice import Threads
from ..statistics.statistics import Statistics
from ..validation import Array

UNKNOWN_LENGTH = 2**40  # row numbers reserved for a partition whose length is not known


class WeightedPart(NamedTuple):
    """A partition of a frame, together with its weights."""

    rows: Any
    weights: Any


def join_weights(rows: Any, weights: Any, drop_index: bool) -> WeightedPart:
    """Rows and weights of a partition; without the index of the weights if it means nothing."""
    return WeightedPart(rows, weights.to_numpy() if drop_index else weights)


def split_weights(part: Any, weights: Any) -> tuple[Any, Any]:
    """(rows, weights) of a `WeightedPart`, or of a partition whose weights are separate."""
    return part if isinstance(part, WeightedPart) else (part, weights)


def count_rows(part: Any) -> int:
    """Number of rows of a partition."""
    return len(split_weights(part, None)[0])


@dataclass(frozen=True)
class CollectionFacts:
    """The facts about a collection that every partition needs: its table, name and columns."""

    table: Table
    name: str
    dimension: int | None
    drop_missing: bool = False
    jitter: Jitter | None = None

    def label(self, index: int) -> str:
        """Name of a partition in messages."""
        return f"partition {index} of {self.name}"

    def open_part(self, rows: Any, weights: Any, index: int) -> Blocks:
        """Blocks of a partition, which check its rows."""
        return Blocks(
            rows, sample_weight=weights, dimension=self.dimension, columns=self.table.columns,
            name=self.label(index), is_part=True, drop_missing=self.drop_missing,
            jitter=self.jitter,
        )  # fmt: skip


@dataclass(frozen=True)
class PassTask:
    """A pass over partitions: the function, its threads, and the map applied to rows before."""

    function: Callable[[Blocks, Threads], Any]
    threads: Threads
    map: Callable[[Array], Array] | None
    factor: float
    facts: CollectionFacts


@dataclass(frozen=True)
class PartialSum:
    """The result of some partitions: their lengths, their sum (None if they have no rows), and
    the rows that were left out."""

    lengths: list[int]
    value: Any
    missing: MissingCounts = field(default_factory=MissingCounts)

    def __sizeof__(self) -> int:
        """Bytes including arrays: by default a worker would not count them."""
        return object.__sizeof__(self) + _count_bytes(self.value) + 32 * len(self.lengths)


def _count_bytes(value: Any) -> int:
    """Bytes of the arrays in a sum."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return sum(_count_bytes(v) for v in getattr(value, "__dict__", {}).values())


def run_partition(
    task: PassTask, part: Any, weights: Any, index: int, start: int | None
) -> PartialSum:
    """Run a pass over one partition. ``start`` is the number of its first row, if known."""
    rows, weights = split_weights(part, weights)
    with _label_errors(task.facts, index, start):
        _check_weights(rows, weights, index, task.facts)
        if not len(rows):
            return PartialSum([0], None)
        blocks = task.facts.open_part(rows, weights, index)
        blocks.first_row = index * UNKNOWN_LENGTH if start is None else start
        if task.map is not None:
            blocks = blocks.mapped(task.map, task.factor)
        if task.facts.drop_missing and not any(True for _ in blocks):
            return PartialSum([len(rows)], None, blocks.missing)
        with hold_threads(task.threads):
            total = pack_sum(task.function(blocks, task.threads))
        return PartialSum([len(rows)], total, blocks.missing)


def merge_sums(sums: list[PartialSum]) -> PartialSum:
    """Add results in the given order."""
    lengths = [n for part in sums for n in part.lengths]
    values = [part.value for part in sums if part.value is not None]
    total = values[0] if values else None
    for value in values[1:]:
        try:
            total = total + value
        except Exception as error:
            error.partition = None  # type: ignore[attr-defined]
            raise
    return PartialSum(lengths, total, sum((part.missing for part in sums), MissingCounts()))


def _check_weights(rows: Any, weights: Any, index: int, facts: CollectionFacts) -> None:
    """ValueError if the weights do not belong to the rows, as far as lengths and index show."""
    if weights is None:
        return
    if len(weights) != len(rows):
        raise ValueError(
            f"{facts.label(index)} has {len(rows)} rows, but sample_weight has {len(weights)} "
            "there"
        )
    mine, theirs = getattr(rows, "index", None), getattr(weights, "index", None)
    if mine is None or theirs is None or mine.equals(theirs):
        return
    if set(mine) == set(theirs):
        raise ValueError(
            f"sample_weight has the rows of {facts.name} in another order, by their index; make it "
            "a column of the same frame, or reset its index if each weight is at its row"
        )


@contextlib.contextmanager
def _label_errors(facts: CollectionFacts, index: int, start: int | None) -> Iterator[None]:
    """Add the partition, and the row among all if it is known, to errors about rows."""
    try:
        yield
    except Exception as error:
        text, label = str(error), facts.label(index)
        if type(error) not in (ValueError, TypeError):
            error.partition = index  # type: ignore[attr-defined]
            raise  # not "from error": distributed would follow an error that is its own cause
        if label not in text:
            text = f"{label}: {text}"
        row = re.search(r"at row (\d+)", text)
        if start and row:
            text += f" (row {start + int(row[1])} of all)"
        labeled = type(error)(text)
        labeled.partition = index  # type: ignore[attr-defined]
        raise labeled from error


_workqueue_lock = threading.Lock()


@contextlib.contextmanager
def hold_threads(threads: Threads) -> Iterator[None]:
    """Limit Numba and BLAS to the threads of a task while it runs."""
    module, count = threads.resolve()
    with contextlib.ExitStack() as stack:
        if module.NAME == "numba" and _needs_lock():
            stack.enter_context(_workqueue_lock)
        stack.enter_context(kernels.threads(module, count))
        yield


def _needs_lock() -> bool:
    """Whether two threads in Numba would end the process, as its "workqueue" layer does."""
    import numba

    try:
        return bool(numba.threading_layer() == "workqueue")
    except ValueError:  # the layer is chosen by the first parallel loop
        return True


def pack_sum(value: Any) -> Any:
    """`Statistics` with triangles instead of symmetric matrices; other sums as they are."""
    return value.pack() if isinstance(value, Statistics) else value


def unpack_sum(value: Any) -> Any:
    """The inverse of `pack_sum`."""
    return value.unpack() if isinstance(value, Statistics) else value
