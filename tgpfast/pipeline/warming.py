"""`warmup`: compile ahead, so that the first real call does not wait for it."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..bases.expectation_maximization import Rows
from ..bases.gaussian import GaussianBase
from ..bases.mixture import MixtureBase
from ..density.exponents.exponent import PointTilt, PredictiveTilt
from ..density.exponents.lattice_exponent import LatticeTilt
from ..evaluation.exact_kde import ExactKDE
from ..evaluation.marginals import Grids, ProjectedCDFs
from ..features.lattice import LatticeFeatures
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..statistics.accumulation import accumulate
from ..statistics.direct import DTYPES, LANE_FEATURES


def warmup(backend: str = "auto") -> str:
    """Run every kernel once on a handful of rows.

    Numba compiles on the first use of a kernel and keeps the result on disk: call this once when an
    image is built or a service starts. The other backends have nothing to compile.

    Parameters
    ----------
    backend : {"auto", "numba", "cython", "numpy"}, default "auto"

    Returns
    -------
    str
        Name of the backend that ran.

    Examples
    --------
    >>> import tgpfast
    >>> tgpfast.warmup("numpy")
    'numpy'
    """
    name = kernels.load(backend).NAME
    x = np.linspace(0.0, 1.0, 4).reshape(2, 2)
    base = GaussianBase(np.zeros(2), np.eye(2))
    for n_features in (2, LANE_FEATURES + 1):
        features = Features.draw(n_features, 1.0, np.eye(2), seed=0)
        for precision in DTYPES:
            accumulate(
                x, features, noise_levels=(0.0, 1.0), gram_phi=True, precision=precision,
                backend=name,
            )  # fmt: skip
    features, threads, zeros = Features.draw(2, 1.0, np.eye(2), seed=0), Threads(name), np.zeros(2)
    base.feature_moments(features, backend=name)
    tilt = PointTilt(features, np.ones(2), zeros)
    tilt.value(x, threads)
    tilt.gradient(x, threads)
    PredictiveTilt(features, np.eye(2), zeros, zeros).value(x, threads)
    lattice = LatticeFeatures(np.ones(2), (1, 1), zeros)
    LatticeTilt(lattice, np.ones(lattice.mode_shape)).value(x, threads)
    ExactKDE(x, bandwidth=1.0, covariance="identity", backend=name).log_density(x)
    ProjectedCDFs(Grids(np.eye(2), zeros, np.ones(2), 4), threads).add(x, None)
    mixture = MixtureBase(np.ones(1), zeros[None], np.eye(2)[None])
    mixture.evaluate_at(x, score=True, threads=threads)
    Rows(x, np.ones(2), 2.0, np.array([0, 2]), threads).evaluate(np.ones((1, 3)), sums=True)
    return str(name)
