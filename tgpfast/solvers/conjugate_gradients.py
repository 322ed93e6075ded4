"""Conjugate gradients for a symmetric positive definite operator that is known by its products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm

from ..runtime.records import record
from ..validation import Array

Vector = NDArray[Any]  # real or complex, of any shape; the inner product is Re(conj(u) v)
Operator = Callable[[Vector], Vector]

RESTARTS = 5  # recomputations of a small residual from its definition, as the recurrence drifts
STALL_STEPS = 50  # steps without progress that are allowed whatever the size of the system
LEAST_SQUARE = 1e-280  # of a norm; smaller squares have lost digits
PROGRESS = 0.99  # a residual counts as smaller below this share of the best


@record
class CGResult:
    """Where an iteration ended.

    Attributes
    ----------
    x : array
    steps : int
        Of the slowest system.
    residual : float
        |b - A x| / |b|, the largest of all systems; by the recurrence where the call was rough.
    """

    x: Vector
    steps: int
    residual: float


def conjugate_gradients(
    product: Operator, b: Vector, *, tolerance: float | Array, max_steps: int,
    start: Vector | None = None, precondition: Operator | None = None, is_rough: bool = False,
    is_batch: bool = False,
) -> CGResult:  # fmt: skip
    """Solve A x = b until |b - A x| <= tolerance |b|.

    Also stops after ``max_steps``, where rounding makes a curvature that is not positive, and where
    the residual has not fallen for as many steps as there are unknowns. Returns the best iterate:
    the residual of a single one may rise for long.

    Parameters
    ----------
    product : callable
        v -> A v, a new array.
    b : array, real or complex, of any shape
    tolerance : float, or (B,) array for a batch
        Relative residual to reach.
    max_steps : int
    start : array, default zero
    precondition : callable, default none
        r -> about A^-1 r, positive definite, a new array.
    is_rough : bool, default False
        Trust the residual of the recurrence, without the products that check it: for directions of
        Newton's method.
    is_batch : bool, default False
        The first axis of b counts systems of their own, which run together.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> found = conjugate_gradients(A.dot, np.array([3.0, 4.0]), tolerance=1e-12, max_steps=10)
    >>> found.x.round(9), found.steps
    (array([1., 1.]), 2)
    """
    options: dict[str, Any] = {"tolerance": tolerance, "max_steps": max_steps, "is_rough": is_rough}
    if is_batch:
        return _solve_batch(product, b, start, precondition, **options)
    found = _solve_batch(
        lambda v: product(v[0])[None], b[None], None if start is None else start[None],
        None if precondition is None else lambda r: precondition(r[0])[None], **options,
    )  # fmt: skip
    return CGResult(found.x[0], found.steps, found.residual)


def _solve_batch(
    product: Operator, b: Vector, start: Vector | None, precondition: Operator | None, *,
    tolerance: float | Array, max_steps: int, is_rough: bool,
) -> CGResult:  # fmt: skip
    """`conjugate_gradients` of systems that run together."""

    def apply(operator: Operator, v: Array) -> Array:
        return _as_reals(operator(v.view(b.dtype).reshape(b.shape)))

    def invert_roughly(r: Array) -> Array:
        return r if precondition is None else apply(precondition, r)

    # vectors are rows of real numbers, and numbers of each system are lists: faster for few systems
    right = _as_reals(b)
    x = np.zeros_like(right) if start is None else _as_reals(start).copy()
    r = right.copy() if start is None else right - apply(product, x)
    best, best_x, sizes = norms(r).tolist(), x.copy(), norms(right)
    target = (tolerance * sizes).tolist()
    z = invert_roughly(r)
    p, rz = z.copy(), _inner(r, z).tolist()
    steps = stalled = restarts = 0
    while steps < max_steps and stalled < max(STALL_STEPS, b[0].size):
        if _all_below(best, target):
            if is_rough or restarts == RESTARTS:
                break
            r, restarts = right - apply(product, best_x), restarts + 1
            best = norms(r).tolist()
            if _all_below(best, target):
                break
            x, z = best_x.copy(), invert_roughly(r)
            p, rz = z.copy(), _inner(r, z).tolist()
        image = apply(product, p)
        steps += 1
        curvature = _inner(p, image).tolist()
        if not any(c > 0.0 for c in curvature):
            break
        length = _ratios(rz, curvature)
        x += length * p
        image *= length
        r -= image
        z = invert_roughly(r)
        previous, rz = rz, _inner(r, z).tolist()
        squares = rz if precondition is None else _inner(r, r).tolist()
        stalled += 1
        for row, square in enumerate(squares):
            if square < (PROGRESS * best[row]) ** 2:
                best[row], stalled = math.sqrt(square), 0
                best_x[row] = x[row]
        p *= _ratios(rz, previous)
        p += z
    left = np.array(best) if is_rough else norms(right - apply(product, best_x))
    residual = float((left / np.where(sizes > 0.0, sizes, 1.0)).max())
    return CGResult(best_x.view(b.dtype).reshape(b.shape), steps, residual)


def _all_below(values: list[float], limits: list[float]) -> bool:
    return all(value <= limit for value, limit in zip(values, limits, strict=True))


def _ratios(a: list[float], b: list[float]) -> Array:
    """a / b as a column, and zero where b is not positive."""
    return np.array([[x / y if y > 0.0 else 0.0] for x, y in zip(a, b, strict=True)])


def inner_products(a: Vector, b: Vector) -> Array:
    """Re(conj(a_j) b_j) summed over all but the first axis, (B,)."""
    return _inner(_as_reals(a), _as_reals(b))


def norms(a: Vector) -> Array:
    """Norms over all but the first axis, (B,); squares do not overflow."""
    flat = _as_reals(a)
    with np.errstate(over="ignore"):
        squares = _inner(flat, flat)
    if ((squares > LEAST_SQUARE) & np.isfinite(squares)).all():
        return np.sqrt(squares)
    return np.array([norm(row, check_finite=False) for row in flat])


def _inner(a: Array, b: Array) -> Array:
    """Inner products of the rows of two matrices."""
    return np.einsum("ij,ij->i", a, b)


def columns(values: Array, like: Vector) -> Array:
    """(B,) numbers in a shape that multiplies arrays (B, ...)."""
    return values.reshape((-1,) + (1,) * (like.ndim - 1))


def _as_reals(a: Vector) -> Array:
    """Rows of real numbers, (B, n); those of complex numbers are their parts."""
    flat = np.ascontiguousarray(a).reshape(len(a), -1)
    return flat.view(np.float64) if flat.dtype.kind == "c" else flat
