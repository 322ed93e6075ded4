"""Symmetric positive definite systems (matrix + shift I) x = b, with what the user must know of
them: condition, residual, and anything that had to be added to the diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_solve, get_blas_funcs, get_lapack_funcs, norm, solve_triangular

from ..runtime.warnings import PrecisionWarning, warn
from ..validation import Array

CG_TOLERANCE, CG_STEPS = 1e-12, 2_000
CG_RANK = 1_000  # of the Nystrom preconditioner, at most an eighth of S
ILL_CONDITIONED = 1e13  # above it fewer than three digits of a solution are left


def cholesky(matrix: Array) -> tuple[Array, float]:
    """(lower factor, condition number in the 1-norm); LinAlgError if not positive definite.

    Overwrites the matrix, which is symmetric and C-ordered: LAPACK sees its transpose, itself.
    """
    largest = float(np.abs(matrix).sum(axis=0).max())
    potrf, pocon = get_lapack_funcs(("potrf", "pocon"), (matrix,))
    # the upper factor of the column-major view is the lower factor of the C-ordered array
    upper, info = potrf(matrix.T, lower=False, overwrite_a=True, clean=True)
    if info > 0:
        raise np.linalg.LinAlgError(f"leading minor {info} is not positive")
    rcond, _ = pocon(upper, largest, uplo="U")
    return upper.T, 1.0 / max(float(rcond), 1e-300)


def factorize(matrix: Array, shift: float) -> tuple[Array, dict[str, Any]]:
    """Cholesky factor of matrix + shift I, with its condition measured; the matrix is kept.

    Where rounding has left it not positive definite, more is added to the diagonal, ten times as
    much at each try; the user is told how much and why.
    """
    n = len(matrix)
    if not np.isfinite(matrix).all():
        raise ValueError("the system holds values that are not finite: so do the statistics")
    scale = float(np.abs(np.diag(matrix)).max()) + shift
    added = 0.0
    while True:
        attempt = matrix.copy()
        attempt[np.diag_indices(n)] += shift + added
        try:
            factor, condition = cholesky(attempt)
            break
        except np.linalg.LinAlgError:
            added = 10.0 * added if added else n * np.finfo(float).eps * scale
            if not added < 1e-2 * scale:
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
    """(matrix + shift I)^-1 b and a report; start : of "cg"."""
    if solver == "cg":
        return conjugate_gradients(matrix, b, shift, n_steps=n_steps, seed=seed, start=start)
    factor, report = factorize(matrix, shift)
    x: Array = cho_solve((factor, True), b, check_finite=False)
    residual = matrix @ x + (shift + report["added_to_diagonal"]) * x - b
    report["residual"] = float(norm(residual)) / (float(norm(b)) or 1.0)  # norm: no overflow
    return x, report


def conjugate_gradients(
    matrix: Array, b: Array, shift: float, *, n_steps: int = CG_STEPS, seed: int = 0,
    start: Array | None = None,
) -> tuple[Array, dict[str, Any]]:  # fmt: skip
    """(matrix + shift I)^-1 b by conjugate gradients, with a randomised Nystrom preconditioner.

    The spectrum of the matrix falls fast, so that a low-rank sketch U diag(values) U^T of its upper
    end leaves a well-conditioned remainder. Stops at a relative residual of 1e-12; if it has not
    fallen for S steps, or there are no more, above that, which is told.
    """
    U, values = _nystrom(matrix, min(CG_RANK, max(1, len(b) // 8)), seed)
    floor = (values[-1] if len(values) else 0.0) + shift

    def precondition(r: Array) -> Array:
        along = U.T @ r
        return r + U @ (along * (floor / (values + shift) - 1.0))

    (symv,) = get_blas_funcs(("symv",), (matrix,))

    def times(v: Array) -> Array:
        product: Array = symv(1.0, matrix.T, v)
        product += shift * v
        return product

    x = np.zeros_like(b) if start is None else start.copy()
    r = b - times(x) if start is not None else b.copy()
    aim = CG_TOLERANCE * float(norm(b))
    best, best_x, stalled, steps = float(norm(r)), x.copy(), 0, 0
    z = precondition(r)
    p, rz = z.copy(), float(r @ z)
    restarts = 0
    # the residual may rise for long; without rounding S steps would be all that it takes
    while steps < n_steps and stalled < max(50, len(b)):
        if best <= aim:  # by the recurrence; what rounding has drifted is put back
            r = b - times(best_x)
            best = float(norm(r))
            restarts += 1
            if best <= aim or restarts > 5:
                break
            x, z = best_x.copy(), precondition(r)
            p, rz = z.copy(), float(r @ z)
        q = times(p)
        alpha = rz / float(p @ q)
        x += alpha * p
        r -= alpha * q
        steps += 1
        size = float(norm(r))
        if size < 0.99 * best:
            best, best_x, stalled = size, x.copy(), 0
        else:
            stalled += 1
        z = precondition(r)
        new = float(r @ z)
        p = z + (new / rz) * p
        rz = new
    left = float(norm(b - times(best_x)))
    residual = left / (float(norm(b)) or 1.0)
    if left > aim:
        warn(
            f"conjugate gradients stopped at a relative residual of {residual:.1e} after {steps} "
            'steps; raise lam, allow more steps, or use solver="cholesky"',
            PrecisionWarning,
        )
    top = float(values[0]) if len(values) else 0.0
    report = {
        "solver": "cg", "residual": residual, "steps": steps, "rank": len(values),
        "condition": (top + shift) / shift, "added_to_diagonal": 0.0,
    }  # fmt: skip
    return best_x, report


def _nystrom(matrix: Array, rank: int, seed: int) -> tuple[Array, Array]:
    """Orthonormal U (S, r) and values (r,), falling, of a randomised approximation from below."""
    sketch = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(matrix), rank)))[0]
    image = matrix @ sketch
    if not image.any():
        return np.zeros((len(matrix), 0)), np.zeros(0)
    # enough to make the core positive definite in floating point
    nudge = float(np.sqrt(len(matrix)) * np.finfo(float).eps * norm(image))
    image += nudge * sketch
    core = sketch.T @ image
    factor = np.linalg.cholesky(0.5 * (core + core.T))
    half = solve_triangular(factor, image.T, lower=True, check_finite=False).T
    U, singular, _ = np.linalg.svd(half, full_matrices=False)
    return U, np.maximum(singular**2 - nudge, 0.0)
