"""Evaluation of a density at a collection: lazy, partition by partition."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.delayed import delayed

from ..data.table import is_frame
from ..density.density import Density
from ..kernels.thread_choice import Threads
from ..validation import Array
from .task_graph import unique_name
from .tasks import hold_threads


@dataclass(frozen=True)
class _ModelCall:
    """A method of a model with its options; one object in the graph, whatever the partitions."""

    model: Density
    method: str
    options: dict[str, Any]
    name: str


def evaluate_lazily(X: Any, name: str, model: Density, method: str, **options: Any) -> Any:
    """model.method(rows) for every partition of X, as a collection with the same partitions.

    Parameters
    ----------
    X : dask array or data frame
    name : str
        Name of X in messages.
    model : Density
    method : str
        A method of the model that takes rows.
    **options
        Its other arguments.
    """
    call = _ModelCall(_copy_for_workers(model), method, options, name)
    task = delayed(call, name=unique_name("model"), traverse=False)
    if is_frame(X) and X.ndim == 2:
        return X.map_partitions(_evaluate_frame, task, meta=_evaluate(call, X._meta, None))
    rows = X.to_dask_array() if hasattr(X, "divisions") else X
    rows = rows if rows.ndim == 2 else rows[:, None]
    if method == "grad_log_density":
        return rows.map_blocks(_evaluate_array, task, dtype=np.float64, meta=np.empty((0, 0)))
    return rows.map_blocks(
        _evaluate_array, task, dtype=np.float64, meta=np.empty((0,)), drop_axis=1
    )


def _copy_for_workers(model: Any) -> Any:
    """A copy with the threads of one task and without statistics, the largest part of a model."""
    own = copy.copy(model)
    if isinstance(model, Density):
        own.threads = Threads(model.threads.backend, model.threads.n_threads or 1)
        own.statistics = None
    elif hasattr(model, "inner"):
        own.inner = _copy_for_workers(model.inner)
    return own


def _evaluate(call: _ModelCall, part: Any, index: int | None) -> Any:
    """The answer of a call for one partition, whose number errors name."""
    function, options = getattr(call.model, call.method), call.options
    if not len(part):  # evaluate a row of zeros for the shape and kind of the answer
        zeros = np.zeros((1, part.shape[1]))
        if is_frame(part):
            rows = type(part)(zeros, columns=part.columns)
            return function(rows, **options)[:0].set_axis(part.index)
        return function(zeros, **options)[:0]
    try:
        with hold_threads(call.model.threads):
            return function(part, **options)
    except (TypeError, ValueError) as error:
        where = "" if index is None else f"partition {index} of {call.name}: "
        raise type(error)(f"{where}{error}") from error


def _evaluate_frame(part: Any, call: _ModelCall, partition_info: Any = None) -> Any:
    return _evaluate(call, part, partition_info["number"] if partition_info else None)


def _evaluate_array(part: Array, call: _ModelCall, block_info: Any = None) -> Any:
    return _evaluate(call, part, block_info[0]["chunk-location"][0] if block_info else None)
