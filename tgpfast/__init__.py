"""Nonparametric densities on a CPU: GP-tilted Gaussians learned by score matching.

`fit` learns a density from rows. Below it, `accumulate` turns rows into `Statistics`, sums that
add, save and load, and `solve` turns those into a density. Importing this package imports neither
Numba nor any optional package.
"""

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

__version__ = "0.1.0"

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
