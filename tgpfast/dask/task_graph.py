"""Task graphs: keys of partitions, running a graph, and finding the partition that failed."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed
from dask.diagnostics import ProgressBar
from dask.highlevelgraph import HighLevelGraph

from .tasks import count_rows

# dask would join partitions of files depending on the columns asked for, so that two expressions
# of the same frame had different partitions
KEEP_PARTITIONS = {"optimization.tune.active": False}
PROBED_PARTITIONS = 64  # partitions that run in parallel when the failing one is searched


def unique_name(what: str) -> str:
    """A key that no other graph has."""
    return f"tgpfast-{what}-{uuid.uuid4().hex}"


def partition_keys(X: Any) -> tuple[list[Any], dict[Any, Any]]:
    """(keys of the partitions, graph that contains them) of a collection."""
    with dask.config.set(KEEP_PARTITIONS):
        parts = list(np.ravel(X.to_delayed()))
    graph = dict(parts[0].__dask_graph__())  # the same for all of them
    keys = [part.key for part in parts]
    missing = [key for key in keys if key not in graph]
    if missing:  # optimized away, because workers hold them
        whole = X.__dask_graph__()
        graph.update({key: whole[key] for key in missing})
    return keys, graph


def compute(graph: dict[Any, Any], key: Any, progress: bool = False) -> Any:
    """The value of a key, by the scheduler that dask would use."""
    task = Delayed(key, HighLevelGraph.from_collections(key, graph, dependencies=()))
    client = _find_client(task) if progress else None
    if client is None:
        with ProgressBar() if progress else contextlib.nullcontext():
            return dask.compute(task)[0]
    from distributed import progress as show_progress

    future = client.compute(task)
    try:
        show_progress(future, notebook=False)
        return future.result()
    finally:
        future.release()  # drops unfinished tasks after an interrupt


def _find_client(task: Delayed) -> Any:
    """The distributed client that dask would use, or None."""
    client = getattr(dask.base.get_scheduler(collections=[task]), "__self__", None)
    return client if hasattr(client, "scheduler_info") else None


def is_scheduler_error(error: BaseException) -> bool:
    """Whether an error comes from the scheduler (a lost worker, a cancellation), not from data."""
    return type(error).__module__.split(".")[0] in ("distributed", "concurrent", "asyncio")


def find_failing(graph: dict[Any, Any], labels: dict[Any, str]) -> str | None:
    """The label of the first partition that cannot be computed, searched after a failed pass.

    Several partitions run in parallel; those of the first failing set run one by one.
    """
    keys = list(labels)
    for at in range(0, len(keys), PROBED_PARTITIONS):
        some = keys[at : at + PROBED_PARTITIONS]
        if _fails(graph, some):
            failing = next((labels[key] for key in some if _fails(graph, [key])), None)
            if failing is not None:
                return failing
    return None


def _fails(graph: dict[Any, Any], keys: list[Any]) -> bool:
    name = unique_name("length")
    layer = {f"{name}-{i}": (count_rows, key) for i, key in enumerate(keys)}
    try:
        compute({**graph, **layer, name: (list, list(layer))}, name)
    except Exception:
        return True
    return False
