"""The backend and the number of threads that a pass or a density uses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .. import kernels

# Floating-point operations, about 4 ms, below which one thread is faster: on a busy machine a
# parallel region waits for a time slice of 4 ms or more.
SMALL_WORK = 1e8
COSINE_WORK = 40.0  # operations that a cosine and its sine cost


@dataclass(frozen=True)
class Threads:
    """A backend and a number of threads, as the user asked for them.

    Attributes
    ----------
    backend : {"auto", "numba", "cython", "numpy"}, default "auto"
    n_threads : int or None, default None
        None: all threads that the backend has.
    """

    backend: str = "auto"
    n_threads: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """``backend`` and ``n_threads`` by name, for functions that take both."""
        return {"backend": self.backend, "n_threads": self.n_threads}

    def resolve(self, work: float = math.inf) -> tuple[ModuleType, int]:
        """Return the module of the backend and the number of threads that it will use.

        Parameters
        ----------
        work : float, default inf
            Floating-point operations of the call; below SMALL_WORK one thread does it.
        """
        module: ModuleType = kernels.load(self.backend)
        count: int = kernels.resolve_threads(module, self.n_threads)
        return module, 1 if work < SMALL_WORK else count
