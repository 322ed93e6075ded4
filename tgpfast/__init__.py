"""Nonparametric densities on a CPU: GP-tilted Gaussians learned by score matching.

`accumulate` turns rows into `Statistics`, sums that add, save and load; every estimator is solved
from them. Importing this package imports neither Numba nor any optional package.
"""

from .accumulate import accumulate
from .base import GaussianBase
from .features import Features
from .statistics import Statistics
from .storage import load
from .warmup import warmup

__version__ = "0.1.0"

__all__ = ["Features", "GaussianBase", "Statistics", "accumulate", "load", "warmup"]
