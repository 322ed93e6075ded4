"""Score matching with lattice features: Algorithms 2, 3 and 4 of the paper, by FFTs.

With F_k = sum_i w_i e^{-i w_k . x_i} the quadratic part of the Fisher objective,

    sum_i w_i |grad f(x_i)|^2 = sum_{k,l} (w_k . w_l) theta_k conj(theta_l) F_{l-k},

is a Toeplitz form for each axis: on a grid that resolves F, a product multiplies each derivative of
f by node weights whose sums are F, and goes back. Rows in the margins, where the taper is not 1,
are left out. Score matching needs the Laplacian of f, so that the kernel must be smooth.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..bases.node_masses import BaseGrids, NodeMasses
from ..features.lattice import LatticeFeatures
from ..features.lattice_transform import Modes
from ..runtime import memory
from ..runtime.warnings import PrecisionWarning, warn
from ..statistics.lattice_statistics import (
    POSITIONS,
    LatticeStatistics,
    doubled,
    scores_kind,
)
from ..validation import Array, positive
from .conjugate_gradients import conjugate_gradients
from .lattice_pairs import FeaturePairs
from .lattice_preconditioner import LevelPreconditioner
from .problem_checks import check_kernel, check_pair

# Relative residual at which conjugate gradients stop, and steps after which they give up.
CG_TOLERANCE, SCORE_CG_STEPS = 1e-10, 20_000
SMOOTHING = 4.0  # width of a Gaussian that smooths the rows, times the highest frequency
BASE_NODES = {1: 1024, 2: 256, 3: 64}  # along each axis, by dimension, to integrate a base on
DENSE_FEATURES = 2_000  # largest lattice of FVPD: a complex matrix of 64 MB, some seconds


def solve_lattice_fd(
    stats: LatticeStatistics,
    base: Base,
    lam: float,
    *,
    start: Modes | None = None,
    tolerance: float = CG_TOLERANCE,
    workers: int = 1,
) -> tuple[Modes, dict[str, Any]]:
    """theta of Fisher divergence score matching (Algorithm 2), and a report.

    Parameters
    ----------
    stats : LatticeStatistics
        Made with ``base=base``, or with any Gaussian for a Gaussian base.
    base : Base
        In the coordinates of the lattice.
    lam : float > 0
        Precision of the prior on f.
    start : array of the mode shape, default zero
        Modes to begin with.
    tolerance : float, default 1e-10
        Relative residual of conjugate gradients.
    workers : int, default 1
        Threads of the FFTs.

    Returns
    -------
    theta : array of the mode shape
    report : dict
        "solver", "steps" and "residual".

    Raises
    ------
    ValueError
        For kernels without a Laplacian, or statistics that do not hold the base's score.
    """
    lam = positive("lam", lam)
    _check(stats, base, "fd")
    assert stats.core_modes is not None
    linear = linear_form(stats, base)
    return _solve(stats.features, stats.core_modes, linear, lam, 1.0, start, tolerance, workers)


def solve_lattice_ncfd(
    stats: LatticeStatistics,
    base: Base,
    lam: float,
    *,
    start: Modes | None = None,
    tolerance: float = CG_TOLERANCE,
    workers: int = 1,
) -> tuple[Modes, dict[str, Any]]:
    """theta of noise-conditional score matching (Algorithm 3), and a report.

    At noise sigma the exponent is f(c + (x - c) r), r = gamma / sqrt(gamma^2 + sigma^2), c the
    center of the box. Noise damps the waves: E e^{i r w . xi} = exp(-sigma^2 r^2 |w|^2 / 2). The
    Toeplitz forms of all levels add up to one, so that a product costs what one of FD does.

    Parameters
    ----------
    stats : LatticeStatistics
        Made with noise levels.
    base : GaussianBase
    lam, start, tolerance, workers
        As for `solve_lattice_fd`.

    Returns
    -------
    theta, report
        As of `solve_lattice_fd`.

    Raises
    ------
    ValueError
        For a base that is not Gaussian, statistics without noise levels, and as `solve_lattice_fd`.
    """
    lam = positive("lam", lam)
    _check(stats, base, "ncfd")
    if stats.noise_modes is None or not isinstance(base, GaussianBase):
        raise ValueError(
            'method="ncfd" needs a Gaussian base and statistics with noise levels: '
            "accumulate_lattice(..., base=base, noise_levels=...)"
        )
    linear = noisy_linear_form(stats, base)
    n_levels = float(len(stats.noise_levels))
    return _solve(
        stats.features, stats.noise_modes, linear, lam, n_levels, start, tolerance, workers
    )


def linear_form(stats: LatticeStatistics, base: Base) -> Modes:
    """Modes L with inner(theta, L) = sum_i w_i (grad f . s0 + Laplacian of f)(x_i), s0 the score of
    the base, over the rows in the core."""
    f = stats.features
    assert stats.core_modes is not None
    assert stats.core_scores is not None
    plain = stats.band.resize_modes(stats.core_modes, f.n_modes)
    scores = stats.core_scores
    if stats.scores_of == POSITIONS:
        precision = np.linalg.inv(base.covariance)
        scores = _gaussian_scores(f, plain, scores, precision, base.mean)
    return -f.squared_frequencies * plain + _along_gradient(f, scores, 1.0)


def noisy_linear_form(stats: LatticeStatistics, base: GaussianBase) -> Modes:
    """The sum over noise levels of the expectation of `linear_form` under the noise."""
    f, d = stats.features, stats.features.dimension
    assert stats.noise_core_modes is not None
    assert stats.noise_core_scores is not None
    total: Modes = np.zeros(f.mode_shape, f.mode_dtype)
    for sigma, plain, positions in zip(
        stats.noise_levels, stats.noise_core_modes, stats.noise_core_scores, strict=True
    ):
        ratio = f.bandwidth / float(np.hypot(f.bandwidth, sigma))
        precision = np.linalg.inv(base.covariance + sigma**2 * np.eye(d))
        scores = _gaussian_scores(f, plain, positions, precision, base.mean)
        # |w|^2 - sigma^2 w^T P w, of frequencies r w
        shrunk = ratio**2 * _quadratic(f, np.eye(d) - sigma**2 * precision)
        damping = np.exp(-0.5 * (sigma * ratio) ** 2 * f.squared_frequencies)
        total += damping * (_along_gradient(f, scores, ratio) - shrunk * plain)
    return total


def _gaussian_scores(
    f: LatticeFeatures, plain: Modes, positions: Modes, precision: NDArray[Any], mean: Array
) -> Modes:
    """Sums weighted by the score -P (x - mean), from those weighted by x about the center."""
    shift = f.origin + 0.5 * f.lengths - mean
    return -np.tensordot(precision, positions + np.multiply.outer(shift, plain), 1)


def _along_gradient(f: LatticeFeatures, scores: Modes, ratio: float) -> Modes:
    """Modes G with inner(theta, G) = sum_i grad f . s_i, from sums weighted by the s_i."""
    total: Modes = np.zeros(f.mode_shape, f.mode_dtype)
    for axis, (frequency, is_cosine) in enumerate(zip(f.frequencies, f.cosine, strict=True)):
        factor = ratio * frequency.reshape([-1 if j == axis else 1 for j in range(f.dimension)])
        total += (-factor if is_cosine else -1j * factor) * scores[axis]
    return total


def _quadratic(f: LatticeFeatures, matrix: NDArray[Any]) -> Array:
    """w_k^T matrix w_k of every mode."""
    w = np.stack(np.meshgrid(*f.frequencies, indexing="ij"))
    return np.asarray(np.einsum("i...,ij,j...->...", w, matrix, w))


def _solve(
    f: LatticeFeatures, sums: Modes, linear: Modes, lam: float, shift: float, start: Modes | None,
    tolerance: float, workers: int,
) -> tuple[Modes, dict[str, Any]]:  # fmt: skip
    """(shift lam / s + Toeplitz form of the sums)^-1 (-linear), in whitened coordinates."""
    wide = doubled(f)
    shape = wide.grid_shape(1.0)  # more than the sums need: no wave is taken for another
    weights, transform = wide.grid_weights(sums, shape, workers), f.transform(shape, workers)
    to_theta = np.sqrt(f.prior_variance / (lam * f.multiplicity))
    from_sums = to_theta * f.multiplicity

    def product(v: Modes) -> Modes:
        theta, image = to_theta * v, np.zeros_like(v)
        for axis in range(f.dimension):
            values = transform.to_grid(theta, axis)
            values *= weights
            image += transform.from_grid(values, axis)
        image *= from_sums
        image += shift * v
        return image

    first = None
    if start is not None:
        first = np.divide(start, to_theta, out=np.zeros_like(start), where=to_theta > 0.0)
    symbol = f.squared_frequencies * np.square(to_theta) * f.mean_squares
    precondition = LevelPreconditioner(f, symbol, _smooth_density(f, sums), shift, workers)
    found = conjugate_gradients(
        product, -from_sums * linear, tolerance=tolerance, max_steps=SCORE_CG_STEPS, start=first,
        precondition=precondition,
    )  # fmt: skip
    if found.residual > tolerance:
        warn(
            f"conjugate gradients stopped at a relative residual of {found.residual:.1e} after "
            f"{found.steps} steps, above {tolerance:g}; raise lam",
            PrecisionWarning,
        )
    return to_theta * found.x, {"solver": "cg", "steps": found.steps, "residual": found.residual}


def _smooth_density(f: LatticeFeatures, sums: Modes) -> Array:
    """Density of the rows, 1 on average for one row, smoothed, on the grid of a preconditioner."""
    shape = f.grid_shape(1.0)
    widths = SMOOTHING / (0.5 * f.bandlimit)
    parts = [np.exp(-0.5 * (w * h) ** 2) for w, h in zip(f.frequencies, widths, strict=True)]
    damping = functools.reduce(np.multiply.outer, parts)
    narrow = doubled(f).resize_modes(sums, f.n_modes)
    return f.grid_weights(damping * narrow, shape) * math.prod(shape)


def _check(stats: LatticeStatistics, base: Base, method: str) -> None:
    """ValueError unless score matching can run from these statistics."""
    check_kernel(stats.features.kernel, method)
    check_pair(stats, base)
    if stats.scores_of != scores_kind(base, stats.features):
        raise ValueError(
            f"these statistics do not know the score of this {type(base).__name__}; make them by "
            "accumulate_lattice(..., base=base)"
        )


# -- FVPD -----------------------------------------------------------------------------------------


def solve_lattice_fvpd(
    stats: LatticeStatistics,
    base: Base,
    lam: float,
    *,
    eta: float | None = None,
    workers: int = 1,
) -> tuple[Modes, dict[str, Any]]:
    """The Fisher variational predictive distribution (Algorithm 4), and a report.

    The exponent phi^T M^-1 phi / 2 - phi^T M^-1 m is a function on the lattice with twice as many
    modes, whose coefficients are returned; in the margins all of it is tapered by T. M is dense.

    Parameters
    ----------
    stats, base, lam
        As for `solve_lattice_fd`.
    eta : float > 0, default 1 / bandwidth^2
        Tempering.
    workers : int, default 1
        Threads of the FFTs.

    Returns
    -------
    theta : array of the mode shape of ``doubled(stats.features)``
    report : dict
        "solver" and "n_features".

    Raises
    ------
    ValueError
        For more than 2,000 features, and as `solve_lattice_fd`.
    """
    lam = positive("lam", lam)
    f = stats.features
    _check(stats, base, "fvpd")
    if f.n_features > DENSE_FEATURES:
        raise ValueError(
            f'method="fvpd" on a lattice solves a dense system of {f.n_features:,} features; it '
            f'serves up to {DENSE_FEATURES:,}. Use fewer modes, or method="fd" or "map"'
        )
    n_bytes = 8 * 16 * f.n_features**2  # matrices of complex numbers, some of them indices
    memory.check(n_bytes, f"fvpd with {f.n_features:,} features", "use fewer modes")
    eta = 1.0 / f.bandwidth**2 if eta is None else positive("eta", eta)
    pairs, wide = FeaturePairs(f), doubled(f)
    shape = [max(n, BASE_NODES[f.dimension]) for n in wide.grid_shape()]
    masses = BaseGrids(base, f).at(shape)
    matrix, small = _predictive_parts(stats, base, eta, masses, pairs, workers)
    root = np.sqrt(pairs.to_vector(f.prior_variance.astype(f.mode_dtype)).real / lam)
    matrix *= np.outer(root, root)
    matrix[np.diag_indices_from(matrix)] += 1.0
    factor = cho_factor(matrix, lower=True, overwrite_a=True)
    inverse = cho_solve(factor, np.diag(root).astype(matrix.dtype), overwrite_b=True)
    inverse *= root[:, None]
    theta = f.resize_modes(pairs.from_vector(-(inverse @ small)), wide.n_modes)
    theta += 0.5 * pairs.quadratic_form(inverse)
    return theta, {"solver": "cholesky", "n_features": f.n_features}


def _predictive_parts(
    stats: LatticeStatistics, base: Base, eta: float, masses: NodeMasses, pairs: FeaturePairs,
    workers: int,
) -> tuple[Modes, Modes]:  # fmt: skip
    """M without the prior's part, and m, of Eq. predictive: Sigma_phi + sum grad phi grad phi^T /
    eta, mu_phi + linear form / eta."""
    f = stats.features
    assert stats.core_modes is not None
    density = np.exp(masses.log_masses) * masses.taper
    mean = pairs.to_vector(f.from_grid(density, workers))
    matrix = pairs.sum_products(doubled(f).from_grid(density * masses.taper, workers))
    matrix -= np.outer(mean, mean.conj())
    matrix += pairs.sum_slope_products(stats.core_modes) / eta
    return matrix, mean + pairs.to_vector(linear_form(stats, base)) / eta
