"""Prefetching: another thread makes the next blocks while one is in use."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
# Blocks that wait, or are being made, beside the one in use: more than LEAST_DEPTH only as far as
# they take no more than PREFETCH_BYTES.
LEAST_DEPTH, MOST_DEPTH = 2, 8
PREFETCH_BYTES = 2**23  # 8 MiB
_END = object()  # after the last item


class ReadAhead:
    """An iterable of blocks that another thread shall read ahead of the computation.

    Files and memmaps are read ahead in any case. Your own iterator is not, unless you wrap it in
    this: it may be bound to its thread (a database connection), or run parallel code that must not
    run beside ours.

    Parameters
    ----------
    source : iterable of blocks, or callable
        A callable is called for a fresh iterable at every pass.

    Raises
    ------
    TypeError
        If source is neither an iterable nor a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import tgpfast as tgp
    >>> from tgpfast.data.prefetch import ReadAhead
    >>> blocks = [np.zeros((3, 2)), np.ones((4, 2))]
    >>> features = tgp.Features.draw(5, 1.0, np.eye(2), seed=0)
    >>> tgp.accumulate(ReadAhead(blocks), features).n
    7.0
    """

    def __init__(self, source: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        if not callable(source) and not hasattr(source, "__iter__"):
            raise TypeError(
                f"ReadAhead takes an iterable of blocks, or a callable, got {type(source).__name__}"
            )
        self.source = source


def choose_depth(block_bytes: int | None) -> int:
    """Return how many blocks shall wait; None bytes: the size of a block is not known.

    Small blocks wait in greater number. Where reading takes as long as computing, a pause of one
    would otherwise make the other wait.
    """
    if not block_bytes:
        return LEAST_DEPTH
    return max(LEAST_DEPTH, min(MOST_DEPTH, PREFETCH_BYTES // block_bytes))


def prefetch(items: Iterator[T], depth: int = LEAST_DEPTH) -> Generator[T, None, None]:
    """Yield the items in order, made by a thread that stays at most ``depth`` of them ahead.

    What the iterator raises is raised here, after the items before it. The thread ends with the
    last item, or when this generator is closed, as by leaving its loop; if it is making an item
    then, it ends after that item. NumPy's floating-point error state is that of the caller at the
    first item.
    """
    from concurrent.futures import ThreadPoolExecutor

    error_state: dict[str, Any] = dict(np.geterr())  # each thread has its own

    def make_item() -> Any:
        with np.errstate(**error_state):
            return next(items, _END)

    with ThreadPoolExecutor(1, "tgpfast-read-ahead") as reader:
        ready = deque(reader.submit(make_item) for _ in range(depth))
        try:
            while (item := ready.popleft().result()) is not _END:
                ready.append(reader.submit(make_item))
                yield item
                del item  # not held while the next one is waited for
        finally:
            for future in ready:
                future.cancel()
            if isinstance(items, Generator):
                with contextlib.suppress(RuntimeError):  # Python itself is ending
                    reader.submit(items.close)  # its clean-up belongs to the thread that ran it
