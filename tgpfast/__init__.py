"""Nonparametric densities on a CPU: GP-tilted Gaussians learned by score matching.

`fit` learns a density from rows. Below it, `accumulate` turns rows into `Statistics`, sums that
add, save and load, and `solve` turns those into a density. Importing this package imports neither
Numba nor any optional package. Submodules such as ``tgpfast.plot`` are imported at first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__
from .bases.base import Base, register_base
from .bases.gaussian import GaussianBase
from .bases.mixture import MixtureBase
from .bases.student import StudentBase
from .data.blocks import register_collection
from .data.storage import load
from .density.density import Density
from .density.grouped import GroupedDensity
from .evaluation.evaluation import evaluate
from .evaluation.kde import ExactKDE, FourierKDE
from .features.random import Features
from .pipeline import updating as _updating  # noqa: F401 - registers Density.update
from .pipeline.fitting import PAPER, fit
from .pipeline.groups import fit_groups
from .pipeline.warming import warmup
from .runtime.warnings import (
    DataWarning,
    FallbackWarning,
    PoorFitWarning,
    PoorNormalizerWarning,
    PoorSampleWarning,
    PrecisionWarning,
    TGPWarning,
)
from .solvers.learned_base import learn_base
from .solvers.solver import solve
from .statistics.accumulation import accumulate
from .statistics.spectrum import Spectrum
from .statistics.statistics import Statistics

if TYPE_CHECKING:
    from . import cli as cli
    from . import dask as dask
    from . import datasets as datasets
    from . import plot as plot

# imported when they are first asked for: they are not needed by `fit`, or need optional packages
_SUBMODULES = ("cli", "dask", "datasets", "paper", "plot")

__all__ = [
    "PAPER",
    "Base",
    "DataWarning",
    "Density",
    "ExactKDE",
    "FallbackWarning",
    "Features",
    "FourierKDE",
    "GaussianBase",
    "GroupedDensity",
    "MixtureBase",
    "PoorFitWarning",
    "PoorNormalizerWarning",
    "PoorSampleWarning",
    "PrecisionWarning",
    "Spectrum",
    "Statistics",
    "StudentBase",
    "TGPWarning",
    "accumulate",
    "evaluate",
    "fit",
    "fit_groups",
    "learn_base",
    "load",
    "register_base",
    "solve",
    "warmup",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of this module

    def __getattr__(name: str) -> Any:
        if name not in _SUBMODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return importlib.import_module(f".{name}", __name__)
        except ImportError as error:  # hasattr and inspect expect an AttributeError
            raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})


def _open_dask(X: Any, **options: Any) -> Any:
    """Partitions of a dask collection; imports the adapter, and so dask, at first use."""
    return importlib.import_module(".dask", __name__).partitions(X, **options)


register_collection(lambda X: hasattr(X, "__dask_graph__"), _open_dask)
