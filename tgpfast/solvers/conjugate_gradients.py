"""Conjugate gradients for a symmetric positive definite operator that is known by its products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm

Vector = NDArray[Any]  # real or complex, of any shape; the inner product is Re(conj(u) v)
Operator = Callable[[Vector], Vector]

RESTARTS = 5  # times that a residual found small is computed anew, free of the recurrence's drift
STALL_STEPS = 50  # steps without progress that are allowed whatever the size of the system
PROGRESS = 0.99  # a residual counts as smaller below this share of the best


@dataclass(frozen=True)
class CGResult:
    """Where an iteration ended.

    Attributes
    ----------
    x : array
    steps : int
    residual : float
        |b - A x| / |b|, by the recurrence where the call was rough.
    """

    x: Vector
    steps: int
    residual: float


def conjugate_gradients(
    product: Operator, b: Vector, *, tolerance: float, max_steps: int, start: Vector | None = None,
    precondition: Operator | None = None, is_rough: bool = False,
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
    tolerance : float
        Relative residual to reach.
    max_steps : int
    start : array, default zero
    precondition : callable, default none
        r -> about A^-1 r, positive definite, a new array.
    is_rough : bool, default False
        Trust the residual of the recurrence, without the products that check it: for directions of
        Newton's method.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> found = conjugate_gradients(A.dot, np.array([3.0, 4.0]), tolerance=1e-12, max_steps=10)
    >>> found.x.round(9), found.steps
    (array([1., 1.]), 2)
    """
    x = np.zeros_like(b) if start is None else start.copy()
    r = b.copy() if start is None else b - product(x)
    best, best_x, target = _norm(r), x.copy(), tolerance * _norm(b)
    z = r if precondition is None else precondition(r)
    p, rz = z.copy(), _dot(r, z)
    steps = stalled = restarts = 0
    while steps < max_steps and stalled < max(STALL_STEPS, b.size):
        if best <= target:
            if is_rough or restarts == RESTARTS:
                break
            r, restarts = b - product(best_x), restarts + 1
            best = _norm(r)
            if best <= target:
                break
            x, z = best_x.copy(), r if precondition is None else precondition(r)
            p, rz = z.copy(), _dot(r, z)
        image = product(p)
        steps += 1
        curvature = _dot(p, image)
        if not curvature > 0.0:
            break
        x += (rz / curvature) * p
        r -= (rz / curvature) * image
        size = _norm(r)
        stalled += 1
        if size < PROGRESS * best:
            best, best_x, stalled = size, x.copy(), 0
        z = r if precondition is None else precondition(r)
        previous, rz = rz, _dot(r, z)
        p *= rz / previous
        p += z
    left = best if is_rough else _norm(b - product(best_x))
    return CGResult(best_x, steps, left / (_norm(b) or 1.0))


def _dot(a: Vector, b: Vector) -> float:
    return float(np.vdot(a, b).real)


def _norm(a: Vector) -> float:
    return float(norm(a.ravel()))  # of scipy: squares do not overflow
