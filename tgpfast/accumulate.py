"""`accumulate`: rows -> Statistics. Judges options, chooses engine and precision, runs the pass."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from . import kernels, memory
from .base import GaussianBase
from .blocks import Blocks
from .direct import DTYPES, accumulate_direct, required_memory
from .features import Features
from .solve import fd_theta
from .statistics import Statistics, check_levels, check_origin
from .tilt import PointTilt, Threads

ENGINES = ("auto", "direct")
PRECISIONS = ("auto", *DTYPES)

MIXED_TOLERANCE = 1e-3  # largest predicted change of a log density that precision="auto" accepts
PILOT_ROWS = 5_000
PILOT_SHARE = 8  # the pilot takes at most one row in eight, or it would cost more than it saves
PILOT_LEAST = 1_000  # with fewer pilot rows than this float64 is as quick
PILOT_LAM = 0.1  # the paper's lambda: the smallest in use, and so the worst conditioned


def accumulate(
    X: Any,
    features: Features,
    *,
    noise_levels: Any = (),
    sample_weight: Any = None,
    origin: Any = None,
    gram_phi: bool = False,
    tolerance: float = 1e-9,
    engine: str = "auto",
    precision: str = "auto",
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool = False,
) -> Statistics:
    """One pass over the rows of X: the sums from which every estimator is solved.

    The sums are listed under `Statistics`. They are the same bit by bit for any ``n_threads``, and
    memory does not grow with the number of rows.

    Parameters
    ----------
    X : (n, d) array, memmap or data frame, or an iterable of such blocks; items of an iterable
        may be tuples (block, weights). One-dimensional arrays are one column
    features : the `Features` to evaluate
    noise_levels : sigmas of noise-conditional score matching, 0 among them; none by default
    sample_weight : (n,) non-negative; a weight of 2 is the same as two equal rows
    origin : (d,) point about which sums of x are taken; near the data it avoids cancellation
    gram_phi : also sum phi phi^T, which held-out likelihoods of FVPD need
    tolerance : largest error of F(w) / n, for engines that approximate; the direct one does not
    engine : "auto" or "direct"
    precision : "float64"; "mixed" (float32 sines, cosines and products, float64 sums; about twice
        as fast); "auto" takes mixed only where d > 3 and a pilot of at most 5,000 rows, solved
        both ways at lambda = 0.1, predicts that log densities change by less than 1e-3 at the
        full n; `provenance` keeps the choice and the reason
    backend : "auto", "numba", "cython" or "numpy"
    n_threads : threads to use; by default all of the backend's
    progress : show a bar on standard error

    Raises
    ------
    TypeError, ValueError : for input that cannot be used, naming row and column; nothing is changed
    ImportError : for a backend asked for by name that is not installed
    """
    if not isinstance(features, Features):
        raise TypeError(f"features must be tgpfast.Features, got {type(features).__name__}")
    _one_of("engine", engine, ENGINES)
    _one_of("precision", precision, PRECISIONS)
    if not (isinstance(tolerance, (int, float)) and tolerance > 0):
        raise ValueError(f"tolerance must be a positive number, got {tolerance!r}")
    levels = check_levels(noise_levels)
    centre = check_origin(origin, features.dimension)
    module = kernels.load(backend)
    count = kernels.resolve_threads(module, n_threads)
    memory.check(
        required_memory(features, len(levels), gram_phi, "float64", count),
        f"a pass with {features.n_features:,} features",
        "use fewer features",
    )
    blocks = X  # from fit, which has judged them
    if not isinstance(X, Blocks):
        blocks = Blocks(X, sample_weight=sample_weight, dimension=features.dimension)
    reason = "asked for"
    if precision == "auto":
        precision, reason = _choose_precision(blocks, features, module, count)
    stats = accumulate_direct(
        blocks, features, levels, centre, gram_phi=gram_phi, precision=precision, backend=module,
        n_threads=count, progress=progress,
    )  # fmt: skip
    stats.provenance["precision_reason"] = reason
    return stats


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        expected = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{name}={value!r}: expected one of {expected}")


def _choose_precision(
    blocks: Blocks, features: Features, module: ModuleType, n_threads: int
) -> tuple[str, str]:
    """("float64" or "mixed", why)."""
    if features.dimension <= 3:
        return "float64", "d <= 3: float32 products spoil ill-conditioned systems"
    if blocks.n_rows is None:
        return "float64", "rows of a stream cannot be sampled ahead"
    size = min(PILOT_ROWS, blocks.n_rows // PILOT_SHARE)
    if size < PILOT_LEAST:
        return "float64", "too few rows for mixed precision to pay"
    change = _predicted_change(blocks, features, size, module, n_threads)
    verdict = "below" if change < MIXED_TOLERANCE else "above"
    reason = f"predicted change of log density {change:.1e}, {verdict} {MIXED_TOLERANCE:g}"
    return ("mixed" if change < MIXED_TOLERANCE else "float64"), reason


def _predicted_change(
    blocks: Blocks, features: Features, size: int, module: ModuleType, n_threads: int
) -> float:
    """Largest change of the log density on pilot rows and base samples, scaled up to all rows.

    The condition of the FD system, and with it the effect of a rounding error, grows at most in
    proportion to n at a fixed lambda.
    """
    x, w = blocks.pilot(size)  # type: ignore[misc]
    try:
        base = GaussianBase.from_data(x, sample_weight=w)
    except ValueError:  # degenerate pilot: no base to judge by
        return float("inf")
    thetas = []
    for precision in DTYPES:
        stats = accumulate_direct(
            Blocks(x, sample_weight=w), features, np.zeros(0), base.mean, gram_phi=False,
            precision=precision, backend=module, n_threads=n_threads,
        )  # fmt: skip
        try:
            thetas.append(fd_theta(stats, base, PILOT_LAM))
        except np.linalg.LinAlgError:  # not positive definite in this precision
            return float("inf")
    points = np.concatenate([x[:500], base.sample(500)])
    change = PointTilt(features, thetas[1] - thetas[0], base.mean)
    gap = np.abs(change.value(points, Threads(module.NAME, n_threads))).max()
    assert blocks.n_rows is not None
    return float(gap * blocks.n_rows / len(x))
