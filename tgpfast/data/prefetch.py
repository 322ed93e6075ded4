"""Reading ahead: the next blocks are made in a thread of their own while one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
DEPTH = 2  # blocks that wait, or are being made, beside the one in use, at least
MOST_DEPTH = 8
AHEAD_BYTES = 2**23  # of the blocks that wait, beyond that least


class ReadAhead:
    """An iterable of blocks that ``fit`` and ``accumulate`` shall read ahead, in another thread.

    Files and memmaps are read ahead in any case. A user's own iterator is not unless it is wrapped
    in this, since it may be bound to its thread (a database connection), or run parallel code that
    must not run beside ours: ``tgpfast.fit(ReadAhead(blocks))``.

    Parameters
    ----------
    source : an iterable of blocks, or a callable that gives a fresh one at every pass
    """

    def __init__(self, source: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        if not callable(source) and not hasattr(source, "__iter__"):
            kind = type(source).__name__
            raise TypeError(f"ReadAhead takes an iterable of blocks, or a callable, got {kind}")
        self.source = source


def ahead(items: Iterator[T], depth: int = DEPTH) -> Generator[T, None, None]:
    """The items, in order, made by a thread that stays at most ``depth`` of them ahead.

    What the iterator raises is raised here, after the items before it. The thread ends with the
    last item, or when this generator is closed (as by leaving its loop): at once, or where it is
    making an item, after that. Floating-point warnings are as they are here at the first item.
    """
    ready: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    room = threading.Semaphore(depth)
    stopped = threading.Event()
    state: dict[str, Any] = dict(np.geterr())  # each thread has its own

    def read() -> None:
        try:
            with np.errstate(**state):
                room.acquire()
                while not stopped.is_set():
                    ready.put((next(items), None))
                    room.acquire()
        except BaseException as error:  # StopIteration among them: the end
            ready.put((None, error))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()  # here: a generator's clean-up belongs to the thread that ran it

    # a daemon: a traceback may keep this generator alive, which must not keep Python from ending
    thread = threading.Thread(target=read, name="tgpfast-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            room.release()
            yield item  # type: ignore[misc]
            del item  # not held while the next one is waited for
    finally:
        stopped.set()
        room.release()
        thread.join()
