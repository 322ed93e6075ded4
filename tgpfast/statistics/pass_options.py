"""The options of one pass over the rows, checked once."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import kernels
from ..features.random import Features
from ..runtime import memory
from ..runtime.records import record
from ..validation import Array, check_choice, check_flag, positive
from .direct import DTYPES, required_memory
from .statistics import check_features, check_levels, check_origin
from .transforms import TRANSFORM_DIMENSIONS

if TYPE_CHECKING:
    from .spectral_work import SpectralWork

ENGINES = ("auto", "direct", "spectral")
PRECISIONS = ("auto", *DTYPES)
FINEST_TOLERANCE = 1e-13  # of the spectral engine: float64 keeps no more digits of F(w) / n


@record
class PassOptions:
    """What ``accumulate`` was asked for; ``check`` makes it.

    Attributes
    ----------
    features : Features
    noise_levels : (H,) array
    origin : (d,) array
    gram_phi : bool
    tolerance : float
    engine, precision : str
    backend : module
        The kernel module.
    asked_threads : int or None
        Threads that the caller asked for; partitions of a distributed collection get these.
    n_threads : int
        Threads of a pass in this process.
    progress : bool
    """

    features: Features
    noise_levels: Array
    origin: Array
    gram_phi: bool
    tolerance: float
    engine: str
    precision: str
    backend: ModuleType
    asked_threads: int | None
    n_threads: int
    progress: bool

    @classmethod
    def check(
        cls, features: Any, *, noise_levels: Any, origin: Any, gram_phi: Any, tolerance: Any,
        engine: Any, precision: Any, backend: str, n_threads: int | None, progress: bool,
    ) -> PassOptions:  # fmt: skip
        """The options, or TypeError or ValueError for one that cannot be used."""
        features = check_features(features)
        module = kernels.load(backend)
        options = cls(
            features, check_levels(noise_levels), check_origin(origin, features.dimension),
            check_flag("gram_phi", gram_phi), positive("tolerance", tolerance),
            check_choice("engine", engine, ENGINES),
            check_choice("precision", precision, PRECISIONS),
            module, n_threads, kernels.resolve_threads(module, n_threads), progress,
        )  # fmt: skip
        memory.check(
            required_memory(
                features, len(options.noise_levels), options.gram_phi, "float64", options.n_threads
            ),
            f"a pass with {features.n_features:,} features", "use fewer features",
        )  # fmt: skip
        return options

    def work(self, budget: int) -> SpectralWork:
        """The work of the spectral engine, within ``budget`` bytes."""
        from .spectral_work import SpectralWork

        return SpectralWork(
            self.features, self.noise_levels, self.gram_phi, self.tolerance, budget
        )

    @property
    def sums(self) -> tuple[Features, Array, Array]:
        """What both engines take first: features, noise levels and origin."""
        return self.features, self.noise_levels, self.origin

    @property
    def why_not_spectral(self) -> str:
        """Why the spectral engine cannot serve; empty if it can."""
        d = self.features.dimension
        if d > TRANSFORM_DIMENSIONS:
            return (
                f'engine="spectral" serves up to {TRANSFORM_DIMENSIONS} dimensions, and these '
                f'features have {d}; use engine="direct" or "auto"'
            )
        if self.precision == "mixed":
            return (
                'precision="mixed" needs the direct engine; drop precision= or engine="spectral"'
            )
        if self.tolerance < FINEST_TOLERANCE:
            return (
                f"tolerance={self.tolerance:g}: float64 keeps {FINEST_TOLERANCE:g} at best; use "
                'that, or engine="direct"'
            )
        return ""
