"""Which precision the products of the direct engine have: float64, or float32 where that is safe.

The condition of the FD system decides. A sample of the rows is solved both ways, and the change of
the log density is scaled up to all rows.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks
from ..features.evaluation import evaluate_features
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..validation import Array
from .chunks import Rows
from .direct import DTYPES, accumulate_direct
from .fisher import fd_system
from .pass_options import PassOptions
from .statistics import Statistics

MIXED_TOLERANCE = 1e-3  # largest predicted change of a log density that "auto" accepts
FLOAT64_DIMENSIONS = 3  # up to here the FD system is too ill-conditioned for float32 products
TRIAL_ROWS = 5_000  # rows solved in both precisions, at most
TRIAL_SHARE = 8  # a trial has 1/8 of the rows at most: a larger one costs more than it saves
TRIAL_LEAST_ROWS = 1_000  # with fewer trial rows float64 is as fast
TRIAL_LAM = 0.1  # the paper's lambda: the smallest in use, and so the worst conditioned
TRIAL_POINTS = 500  # trial rows, and as many draws of the base, at which densities are compared


def choose_precision(blocks: Blocks, options: PassOptions) -> tuple[str, str]:
    """The precision asked for, or with ``precision="auto"`` mixed where a trial allows it; and the
    reason in words."""
    if options.precision != "auto":
        return options.precision, "asked for"
    features, n_rows = options.features, blocks.n_rows
    if features.dimension <= FLOAT64_DIMENSIONS:
        return "float64", "d <= 3: float32 products spoil ill-conditioned systems"
    if n_rows is not None and n_rows // TRIAL_SHARE < TRIAL_LEAST_ROWS:
        return "float64", "too few rows for mixed precision to pay"
    trial = None if n_rows is None else blocks.pilot(min(TRIAL_ROWS, n_rows // TRIAL_SHARE))
    if n_rows is None or trial is None:
        return "float64", "rows of a stream cannot be sampled ahead"
    change = predict_change(trial, n_rows, features, options.backend, options.n_threads)
    verdict = "below" if change < MIXED_TOLERANCE else "above"
    reason = f"predicted change of log density {change:.1e}, {verdict} {MIXED_TOLERANCE:g}"
    return ("mixed" if change < MIXED_TOLERANCE else "float64"), reason


def predict_change(
    trial: Rows, n_rows: int, features: Features, backend: ModuleType, n_threads: int
) -> float:
    """Largest change of the log density by mixed precision, at trial rows and draws of the base,
    scaled up to all rows; infinite where the trial cannot be solved.

    The condition of the FD system, and with it the effect of a rounding error, grows at most in
    proportion to n at a fixed lambda.
    """
    x, w = trial
    try:
        base = GaussianBase.from_data(x, sample_weight=w)
    except ValueError:  # a degenerate sample has no base to judge by
        return float("inf")
    thetas = []
    for precision in DTYPES:
        stats = accumulate_direct(
            Blocks(x, sample_weight=w), features, np.zeros(0), base.mean, gram_phi=False,
            precision=precision, backend=backend, n_threads=n_threads,
        )  # fmt: skip
        try:
            thetas.append(_solve_fd(stats, base, TRIAL_LAM))
        except np.linalg.LinAlgError:  # not positive definite in this precision
            return float("inf")
    some = x[:: max(1, len(x) // TRIAL_POINTS)]  # evenly: the source may be sorted
    points = np.concatenate([some, base.sample(TRIAL_POINTS, seed=0)])
    threads = Threads(backend.NAME, n_threads)
    phi, _ = evaluate_features(features, points, origin=base.mean, threads=threads)
    change = (thetas[1] - thetas[0]) @ phi
    return float(np.abs(change).max() * n_rows / len(x))


def _solve_fd(stats: Statistics, base: GaussianBase, lam: float) -> Array:
    """theta of FD; LinAlgError where rounding has left the system indefinite."""
    system, b = fd_system(stats, base)
    system[np.diag_indices_from(system)] += lam * stats.features.bandwidth**2
    return np.asarray(cho_solve(cho_factor(system, lower=True, overwrite_a=True), b))
