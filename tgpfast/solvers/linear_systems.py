"""Symmetric positive definite systems (matrix + shift I) x = b, by Cholesky or iteration.

Each answer comes with a report: the condition number, the residual, and what was added to the
diagonal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import cho_solve, get_blas_funcs, get_lapack_funcs, norm, solve_triangular

from ..runtime.records import record
from ..runtime.warnings import PrecisionWarning, warn
from ..validation import LEAST_NUMBER, Array
from .conjugate_gradients import conjugate_gradients

SYSTEM_CG_TOLERANCE = 1e-12  # relative residual at which conjugate gradients stop
SYSTEM_CG_STEPS = 2_000  # iterations at most, where the caller names no number
NYSTROM_RANK = 1_000  # of the preconditioner, at most an eighth of S: O(S^2 rank) flops
ILL_CONDITIONED = 1e13  # condition number that leaves fewer than three digits of a solution
MOST_ADDED = 1e-2  # share of the largest entry; a matrix that needs more is not one of rows


def cholesky_factor(matrix: Array) -> Array:
    """Lower Cholesky factor; LinAlgError if the matrix is not positive definite.

    Overwrites the matrix, which is symmetric and C-ordered: LAPACK sees its transpose, itself.
    """
    # the upper factor of the column-major view is the lower factor of the C-ordered array
    return np.asarray(scipy.linalg.cholesky(matrix.T, overwrite_a=True, check_finite=False).T)


def cholesky(matrix: Array) -> tuple[Array, float]:
    """(lower factor, condition number in the 1-norm); LinAlgError if not positive definite.

    Overwrites the matrix, as `cholesky_factor` does.
    """
    largest = float(np.abs(matrix).sum(axis=0).max())
    factor = cholesky_factor(matrix)
    (pocon,) = get_lapack_funcs(("pocon",), (factor,))
    rcond, _ = pocon(factor.T, largest, uplo="U")
    return factor, 1.0 / max(float(rcond), 1e-300)


def shifted(matrix: Array, shift: float) -> Array:
    """A copy of the matrix with the shift added to its diagonal."""
    result = matrix.copy()
    result[np.diag_indices_from(result)] += shift
    return result


def factorize(matrix: Array, shift: float) -> tuple[Array, dict[str, Any]]:
    """Cholesky factor of matrix + shift I and a report of its condition; the matrix is kept.

    Where rounding has left the matrix not positive definite, more is added to the diagonal, ten
    times as much at each try, and a warning says how much.

    Parameters
    ----------
    matrix : (S, S) array
    shift : float

    Returns
    -------
    factor : (S, S) array
        Lower triangular.
    report : dict
        "solver", "condition" and "added_to_diagonal".

    Raises
    ------
    ValueError
        If the matrix is not finite or far from positive definite.
    """
    if not np.isfinite(matrix).all():
        raise ValueError("the system holds values that are not finite: so do the statistics")
    scale = float(np.abs(np.diag(matrix)).max()) + shift
    added = 0.0
    while True:
        try:
            factor, condition = cholesky(shifted(matrix, shift + added))
            break
        except np.linalg.LinAlgError:
            added = 10.0 * added if added else len(matrix) * np.finfo(float).eps * scale
            if not added < MOST_ADDED * scale:
                raise ValueError(
                    "the system is far from positive definite: these are not statistics of rows"
                ) from None
    if added:
        warn(
            "the system is not positive definite in floating point: its smallest eigenvalues are "
            f"lost in the rounding of entries as large as {scale:.1e}. {added:.1e} was added to "
            f"the diagonal, beside the {shift:.1e} of the prior. Raise lam, or accumulate with "
            'precision="float64"',
            PrecisionWarning,
        )
    elif condition > ILL_CONDITIONED:
        warn(
            f"the system is ill-conditioned (condition number {condition:.1e}): few digits of the "
            "solution are certain; raise lam or gamma",
            PrecisionWarning,
        )
    return factor, {"solver": "cholesky", "condition": condition, "added_to_diagonal": added}


def solve_system(
    matrix: Array, b: Array, shift: float, solver: str, n_steps: int, seed: int,
    start: Array | None = None,
) -> tuple[Array, dict[str, Any]]:  # fmt: skip
    """(matrix + shift I)^-1 b and a report. n_steps, seed, start : see `solve_iteratively`."""
    if solver == "cg":
        return solve_iteratively(matrix, b, shift, n_steps=n_steps, seed=seed, start=start)
    factor, report = factorize(matrix, shift)
    x: Array = cho_solve((factor, True), b, check_finite=False)
    residual = matrix @ x + (shift + report["added_to_diagonal"]) * x - b
    report["residual"] = float(norm(residual)) / (float(norm(b)) or 1.0)  # norm: no overflow
    return x, report


def solve_iteratively(
    matrix: Array, b: Array, shift: float, *, n_steps: int = SYSTEM_CG_STEPS, seed: int = 0,
    start: Array | None = None,
) -> tuple[Array, dict[str, Any]]:  # fmt: skip
    """(matrix + shift I)^-1 b by conjugate gradients with a Nystrom preconditioner, and a report.

    Stops at a relative residual of SYSTEM_CG_TOLERANCE; warns where it stops above.

    Parameters
    ----------
    matrix : (S, S) array
    b : (S,) array
    shift : float
    n_steps : int, default SYSTEM_CG_STEPS
    seed : int, default 0
        Of the preconditioner's random sketch.
    start : (S,) array, default zero
    """
    (symv,) = get_blas_funcs(("symv",), (matrix,))

    def times(v: Array) -> Array:
        product: Array = symv(1.0, matrix.T, v)
        product += shift * v
        return product

    precondition = NystromPreconditioner.of(matrix, shift, seed)
    found = conjugate_gradients(
        times, b, tolerance=SYSTEM_CG_TOLERANCE, max_steps=n_steps, start=start,
        precondition=precondition,
    )  # fmt: skip
    if found.residual > SYSTEM_CG_TOLERANCE:
        warn(
            f"conjugate gradients stopped at a relative residual of {found.residual:.1e} after "
            f'{found.steps} steps; raise lam, allow more steps, or use solver="cholesky"',
            PrecisionWarning,
        )
    return found.x, {
        "solver": "cg", "residual": found.residual, "steps": found.steps,
        "rank": len(precondition.values), "condition": precondition.condition,
        "added_to_diagonal": 0.0,
    }  # fmt: skip


@record
class NystromPreconditioner:
    """About (matrix + shift I)^-1, from a sketch U diag(values) U^T of the upper end of the matrix.

    The spectrum of such a matrix falls fast, so that what the sketch leaves is well conditioned.
    """

    U: Array  # (S, r), orthonormal columns
    values: Array  # (r,), falling
    shift: float

    @classmethod
    def of(cls, matrix: Array, shift: float, seed: int) -> NystromPreconditioner:
        """The preconditioner of a matrix; its values are at most the eigenvalues."""
        size = len(matrix), min(NYSTROM_RANK, max(1, len(matrix) // 8))
        sketch = np.linalg.qr(np.random.default_rng(seed).standard_normal(size))[0]
        image = matrix @ sketch
        # enough to make the core positive definite in floating point
        nudge = float(np.sqrt(len(matrix)) * np.finfo(float).eps * norm(image)) + LEAST_NUMBER
        image += nudge * sketch
        core = sketch.T @ image
        factor = np.linalg.cholesky(0.5 * (core + core.T))
        half = solve_triangular(factor, image.T, lower=True, check_finite=False).T
        U, singular, _ = np.linalg.svd(half, full_matrices=False)
        return cls(U, np.maximum(singular**2 - nudge, 0.0), shift)

    @property
    def condition(self) -> float:
        """A lower bound of the condition number of matrix + shift I."""
        return float(self.values[0] + self.shift) / self.shift

    def __call__(self, r: Array) -> Array:
        floor = self.values[-1] + self.shift
        return r + self.U @ ((self.U.T @ r) * (floor / (self.values + self.shift) - 1.0))
