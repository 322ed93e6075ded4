"""Whether statistics, a base and a method go together."""

from __future__ import annotations

from typing import Any

from ..bases.base import check_base
from ..features.random import Kernel
from ..features.spectral_density import SMOOTH_KERNELS
from ..statistics.feature_means import FeatureMeans
from ..statistics.lattice_statistics import LatticeStatistics
from ..statistics.statistics import Statistics


def check_pair(stats: Any, base: Any, *, sums_serve: bool = False) -> None:
    """TypeError or ValueError unless these are statistics of some rows and a base for them.

    sums_serve : whether sums of features alone, which `fit` makes for MAP, will do
    """
    serves = (Statistics, LatticeStatistics, *((FeatureMeans,) if sums_serve else ()))
    if not isinstance(stats, serves):
        raise TypeError(f"stats must be tgpfast.Statistics, got {type(stats).__name__}")
    check_base(base, stats.features.dimension, "the statistics have")
    if stats.n <= 0:
        raise ValueError("the statistics have no rows")


def check_kernel(kernel: Kernel, method: str) -> None:
    """ValueError where a method needs the Laplacian of functions that have none."""
    kernels = {kernel} if isinstance(kernel, str) else set(kernel)
    if method != "map" and not kernels <= set(SMOOTH_KERNELS):
        expected = ", ".join(map(repr, SMOOTH_KERNELS))
        raise ValueError(
            f'kernel={kernel!r}: method={method!r} takes one of {expected}, whose functions have a '
            'Laplacian; method="map" takes every kernel'
        )
