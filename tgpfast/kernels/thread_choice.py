"""The backend and the number of threads that a pass or a density uses."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from .. import kernels


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

    def resolve(self) -> tuple[ModuleType, int]:
        """Return the module of the backend and the number of threads that it will use."""
        module: ModuleType = kernels.load(self.backend)
        return module, kernels.resolve_threads(module, self.n_threads)
