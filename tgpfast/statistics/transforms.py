"""Fourier sums of points: F(w) = sum_i strength_i e^{i w . y_i} at many frequencies w.

``transform`` computes them by a non-uniform FFT of type 3 (finufft), for one to three dimensions;
``sum_waves`` computes them term by term.
"""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..features.evaluation import NO_WEIGHTS, Angles
from ..kernels import read_only
from ..validation import Array

Complex = NDArray[np.complex128]

TRANSFORM_DIMENSIONS = 3  # finufft has transforms of one, two and three dimensions
FINEST_EPS = 1e-14  # smallest relative error asked of finufft: float64 rounds above it
EPS_SHARE = 0.18  # of the tolerance, asked of finufft, which erred by up to 5.4 times as much
UPSAMPLING = 2.0  # nodes of finufft's grids for each node that a band limit needs
SERIAL_SIZE = 30_000  # points and targets together; below this size one thread is faster
WAVE_ROWS = 4_096  # rows of a block of waves, at most
WAVE_NUMBERS = 2**23  # numbers in a block of waves, at most: 64 MB


def has_finufft() -> bool:
    """Whether finufft can be found; it is not imported."""
    return importlib.util.find_spec("finufft") is not None


def load_finufft() -> ModuleType:
    """finufft; ImportError with the remedy where it is missing."""
    try:
        import finufft
    except ImportError as error:
        raise ImportError(
            f"the spectral engine needs finufft, which cannot be imported ({error}); install it "
            'with: pip install finufft, or use engine="direct"'
        ) from error
    return finufft


@contextlib.contextmanager
def quiet_finufft() -> Iterator[ModuleType]:
    """finufft without its warnings about a tolerance near rounding; callers check results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield load_finufft()


def eps_for(tolerance: float) -> float:
    """The relative error to ask of finufft so that F(w) / n errs by less than the tolerance."""
    return max(EPS_SHARE * tolerance, FINEST_EPS)


def kernel_width(eps: float) -> int:
    """Grid cells along each axis that finufft spreads a point over."""
    return int(np.clip(np.ceil(-np.log10(eps / 10.0)), 2, 16))


def transform(
    columns: list[Array], strengths: Complex, axes: list[Array], eps: float, n_threads: int
) -> Complex:
    """F(w) = sum_i strengths_i e^{i w . y_i} at every target w.

    Parameters
    ----------
    columns : list of (n,) array
        Coordinates of the points y, one array for each dimension.
    strengths : (n,) complex array
    axes : list of (m,) array
        Coordinates of the targets w, one array for each dimension.
    eps : float
        Relative error to ask of finufft.
    n_threads : int

    Returns
    -------
    (m,) complex array
    """
    if len(strengths) + len(axes[0]) < SERIAL_SIZE:
        n_threads = 1
    with quiet_finufft() as finufft:
        plan = finufft.Plan(
            3, len(columns), 1, eps, 1, nthreads=n_threads, upsampfac=UPSAMPLING, showwarn=0
        )
        plan.setpts(*columns, **dict(zip("stu", axes, strict=False)))
        result: Complex = plan.execute(strengths)
    return result


def sum_waves(
    frequencies: Array, y: Array, w: Array | None, backend: ModuleType, n_threads: int
) -> Complex:
    """Sums of w e^{i f . y} over the rows, term by term, (m,).

    Parameters
    ----------
    frequencies : (m, d) array
    y : (n, d) array
    w : (n,) array or None
        Weights of the rows; None is 1 for all.
    backend : module
        A kernel module, as `kernels.load` returns it.
    n_threads : int
    """
    m, d = frequencies.shape
    cosines, sines = np.zeros(m), np.zeros(m)
    angles = Angles(np.zeros(d), frequencies, np.zeros(m), 1.0)
    size = max(kernels.ROW_TILE, min(WAVE_ROWS, len(y), WAVE_NUMBERS // m))
    block = np.empty((m, size))
    with kernels.threads(backend, n_threads):
        for start in range(0, len(y), size):
            part = slice(start, start + size)
            root = NO_WEIGHTS if w is None else read_only(np.sqrt(w[part]))
            backend.feature_block(
                read_only(y[part]), root, *angles, block, block[:0, :0], cosines, sines,
                np.empty((0, d)), n_threads,
            )  # fmt: skip
    return cosines - 1j * sines
