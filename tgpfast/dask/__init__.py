"""Dask arrays and data frames: every pass runs on the workers, and only sums travel.

A pass has one task per partition and a tree of tasks that add their results in the order of the
partitions. The result of a task depends on its partition and on the client's decisions (engine,
precision, backend, threads, memory), but not on the worker. So the result is the same to the bit
for any number of workers, and when a worker dies and its tasks run again.

``tgpfast.fit`` and ``tgpfast.accumulate`` take dask collections directly.
"""

from __future__ import annotations

from typing import Any

try:
    import dask
    import dask.array
except ImportError as error:
    raise ImportError(
        f"tgpfast.dask needs dask, which cannot be imported ({error}); install it with: "
        'pip install "tgpfast[dask]"'
    ) from error

from ..density.density import Density
from ..features.random import Features
from ..pipeline import fitting
from ..statistics import accumulation
from ..statistics.statistics import Statistics
from .partitions import Partitions

__all__ = ["Partitions", "accumulate", "fit"]


def fit(X: Any, **settings: Any) -> Density:
    """Fit a density to a dask array or data frame; ``tgpfast.fit`` takes them as well.

    The first pass gives the moments and a sample of at most 20,000 rows, from which settings and
    precision are chosen; the second pass gives the statistics. With ``moments`` given, the sample
    takes a pass of its own if it is needed. If the lengths of the partitions are unknown, the
    sample differs from that of an array of the same rows. Call ``X.persist()`` first if the rows
    are costly to make. The equations are solved on the client.

    Parameters
    ----------
    X : dask array of shape (n, d), data frame or series
        The lengths of chunks may be unknown.
    **settings
        As for ``tgpfast.fit``. ``sample_weight`` is a dask array or series with the partitions of
        X, such as a column of the same frame, or an array of shape (n,). ``n_threads`` is the
        number of threads of one task, by default 1: a worker runs as many tasks at a time as it
        has threads.

    Returns
    -------
    Density
    """
    return fitting.fit(_check_collection(X), **settings)


def accumulate(X: Any, features: Features, **options: Any) -> Statistics:
    """Sum statistics over a dask array or data frame; ``tgpfast.accumulate`` takes them as well.

    The direct engine adds the results of ``accumulate`` for every partition. The spectral engine
    spreads all partitions on equal grids, adds these, and reads the sum on the client. Unknown
    lengths are counted first. A sample is read if precision or engine is "auto".

    Parameters
    ----------
    X : dask array of shape (n, d), data frame or series
    features : Features
    **options
        As for ``tgpfast.accumulate``; ``sample_weight`` and ``n_threads`` as for `fit`.

    Returns
    -------
    Statistics
    """
    return accumulation.accumulate(_check_collection(X), features, **options)


def _check_collection(X: Any) -> Any:
    if not dask.is_dask_collection(X):
        raise TypeError(
            f"X must be a dask array or data frame, got {type(X).__name__}; tgpfast.fit and "
            "tgpfast.accumulate take other rows"
        )
    return X
