"""Nonparametric densities on a CPU: GP-tilted Gaussians learned by score matching.

`fit` learns a density from rows. Below it, `accumulate` turns rows into `Statistics`, sums that
add, save and load, and `solve` turns those into a density. Importing this package imports neither
Numba nor any optional package. Submodules such as ``tgpfast.plot`` are imported at first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .accumulate import accumulate
from .base import GaussianBase
from .density import Density
from .evaluation import evaluate
from .features import Features
from .fit import PAPER, fit
from .grouped_density import GroupedDensity
from .groups import fit_groups
from .kde import ExactKDE, FourierKDE
from .learn_base import learn_base
from .mixture_base import MixtureBase
from .solve import solve
from .spectrum import Spectrum
from .statistics import Statistics
from .storage import load
from .student_base import StudentBase
from .warmup import warmup

if TYPE_CHECKING:
    from . import cli as cli
    from . import dask as dask
    from . import datasets as datasets
    from . import plot as plot
    from . import published as published
    from . import report as report
    from . import reproduce as reproduce

__version__ = "0.1.0"

# imported when they are first asked for: they are not needed by `fit`, or need optional packages
_SUBMODULES = ("cli", "dask", "datasets", "plot", "published", "report", "reproduce")

__all__ = [
    "PAPER",
    "Density",
    "ExactKDE",
    "Features",
    "FourierKDE",
    "GaussianBase",
    "GroupedDensity",
    "MixtureBase",
    "Spectrum",
    "Statistics",
    "StudentBase",
    "accumulate",
    "evaluate",
    "fit",
    "fit_groups",
    "learn_base",
    "load",
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
