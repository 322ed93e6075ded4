"""Nonparametric density estimation on CPUs.

``tgpfast.fit(X)`` learns the distribution of the rows of X: a base density times the exponential of
a Gaussian process, which random Fourier features, or for one to three columns a lattice of waves,
approximate. The model scores rows, finds outliers, draws new rows and answers probability
questions.

`fit` rests on two functions: `accumulate` sums `Statistics` over rows, which can be added, saved
and loaded; `solve` computes a density from them.

Importing this package imports what a fit of random or lattice features needs of it, of NumPy and of
``scipy.linalg``; everything else, Numba and optional packages too, is imported at first use.

References
----------
John Paisley, Wei Zhang, Brian Barr. "Gaussian Process Tilted Nonparametric Density Estimation using
Fisher Divergence Score Matching", 2025. arXiv 2504.03485.

Examples
--------
>>> import numpy as np, tgpfast as tgp
>>> X = np.random.default_rng(0).normal(size=(500, 2))
>>> model = tgp.fit(X, method="fd", lam=10.0, gamma="scott", base="empirical",
...                 frequency_covariance="data", n_features=50)
>>> model.log_density(X[:3]).shape, model.sample(10, seed=0).shape
((3,), (10, 2))
"""

import importlib
from typing import TYPE_CHECKING, Any

import scipy.linalg  # noqa: F401 - before our modules: after them its import takes 50 ms longer

from ._version import __version__ as __version__
from .bases.base import Base, register_base
from .bases.gaussian import GaussianBase
from .bases.mixture import MixtureBase
from .bases.student import StudentBase
from .data.blocks import register_collection
from .density.answers.describing import register_plotter
from .density.density import Density, register_updater
from .features.lattice import LatticeFeatures
from .features.random import Features
from .pipeline.fitting import fit
from .pipeline.settings import PAPER
from .runtime.warnings import (
    DataWarning,
    FallbackWarning,
    PoorFitWarning,
    PoorNormalizerWarning,
    PoorSampleWarning,
    PrecisionWarning,
    TGPWarning,
)
from .solvers.solver import solve
from .statistics.accumulation import accumulate
from .statistics.statistics import Statistics

if TYPE_CHECKING:
    from . import cli as cli
    from . import dask as dask
    from . import datasets as datasets
    from . import paper as paper
    from . import plot as plot
    from . import sklearn as sklearn
    from .density.grouped import GroupedDensity
    from .density.loading import load
    from .evaluation.evaluation import evaluate
    from .evaluation.exact_kde import ExactKDE
    from .evaluation.fourier_kde import FourierKDE
    from .pipeline.groups import fit_groups
    from .pipeline.warming import warmup
    from .solvers.learned_base import learn_base
    from .statistics.spectrum import Spectrum

# imported at first use: `fit` does not need them, and some need optional packages
_SUBMODULES = ("cli", "dask", "datasets", "paper", "plot", "sklearn")
_LATER = {  # public name -> module that defines it, which is imported when the name is used
    "ExactKDE": "evaluation.exact_kde",
    "FourierKDE": "evaluation.fourier_kde",
    "GroupedDensity": "density.grouped",
    "Spectrum": "statistics.spectrum",
    "evaluate": "evaluation.evaluation",
    "fit_groups": "pipeline.groups",
    "learn_base": "solvers.learned_base",
    "load": "density.loading",
    "warmup": "pipeline.warming",
}

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
    "LatticeFeatures",
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


if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name in _LATER:
            value = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
            globals()[name] = value  # found without this function from now on
            return value
        if name not in _SUBMODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return importlib.import_module(f".{name}", __name__)
        except ImportError as error:  # hasattr and inspect expect an AttributeError
            raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_LATER})


def _update_model(*arguments: Any) -> Density:
    from .pipeline.updating import update_model

    return update_model(*arguments)


register_updater(_update_model)


def _open_dask_collection(X: Any, **options: Any) -> Any:
    from .dask.partitions import open_partitions  # imports dask, so only when it is needed

    return open_partitions(X, **options)


register_collection(lambda X: hasattr(X, "__dask_graph__"), _open_dask_collection)


def _draw_region(region: Any, X: Any) -> Any:
    from .plot.region_picture import highest_density_region  # imports matplotlib when it draws

    return highest_density_region(region, X)


register_plotter("region", _draw_region)


def _draw_model(model: Any, X: Any, **options: Any) -> Any:
    from .plot.model_picture import plot_model  # imports matplotlib when it draws

    return plot_model(model, X, **options)


register_plotter("density", _draw_model)
