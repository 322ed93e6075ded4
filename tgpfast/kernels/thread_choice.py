"""Which backend evaluates, and on how many threads: what a density carries with it."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from .. import kernels


@dataclass(frozen=True)
class Threads:
    """Which backend evaluates, on how many threads; None is all of them."""

    backend: str = "auto"
    n_threads: int | None = None

    def resolve(self) -> tuple[ModuleType, int]:
        """(module, count)."""
        module: ModuleType = kernels.load(self.backend)
        return module, kernels.resolve_threads(module, self.n_threads)
