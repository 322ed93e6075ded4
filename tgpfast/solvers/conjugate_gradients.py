"""Conjugate gradients for a symmetric positive definite operator that is given by its products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]  # real or complex, of any shape; the inner product is the real part
Operator = Callable[[Vector], Vector]
RESTARTS = 5  # times that the true residual may replace the recursive one, which rounding spoils


@dataclass(frozen=True)
class CGResult:
    """A solution.

    Attributes
    ----------
    x : array
    steps : int
        Products made.
    residual : float
        |b - A x| / |b|.
    """

    x: Vector
    steps: int
    residual: float


def conjugate_gradients(
    product: Operator,
    b: Vector,
    *,
    tolerance: float,
    max_steps: int,
    start: Vector | None = None,
    precondition: Operator | None = None,
    is_rough: bool = False,
) -> CGResult:
    """Solve A x = b until |b - A x| <= tolerance |b|.

    Parameters
    ----------
    product : callable
        v -> A v, a new array.
    b : array
        Real or complex, of any shape.
    tolerance : float
        Relative residual to reach.
    max_steps : int
    start : array, default zero
        The x to begin with.
    precondition : callable, optional
        r -> M^-1 r, a new array, M an approximation of A.
    is_rough : bool, default False
        Trust the residual of the recursion, without the products that check it. For directions of
        Newton's method.

    Returns
    -------
    CGResult
        Of fewer steps where rounding makes a curvature that is not positive.
    """
    x = np.zeros_like(b) if start is None else start.copy()
    r = b.copy() if start is None else b - product(x)
    scale = _norm(b) or 1.0
    steps, restarts = int(start is not None), 0
    while True:
        x, r, steps, ended = _run(product, precondition, x, r, tolerance * scale, steps, max_steps)
        if is_rough or restarts == RESTARTS:
            break
        r = b - product(x)
        steps, restarts = steps + 1, restarts + 1
        if ended or steps >= max_steps or _norm(r) <= tolerance * scale:
            break
    return CGResult(x, steps, _norm(r) / scale)


def _run(
    product: Operator, precondition: Operator | None, x: Vector, r: Vector, aim: float, steps: int,
    max_steps: int,
) -> tuple[Vector, Vector, int, bool]:  # fmt: skip
    """(x, recursive residual, steps so far, whether a curvature was not positive)."""
    if _norm(r) <= aim:
        return x, r, steps, False
    z = r if precondition is None else precondition(r)
    direction, rz = z.copy(), _dot(r, z)
    while steps < max_steps:
        image = product(direction)
        steps += 1
        curvature = _dot(direction, image)
        if not curvature > 0.0:
            return x, r, steps, True
        length = rz / curvature
        x += length * direction
        r -= length * image
        if _norm(r) <= aim:
            break
        z = r if precondition is None else precondition(r)
        new = _dot(r, z)
        direction *= new / rz
        direction += z
        rz = new
    return x, r, steps, False


def _dot(a: Vector, b: Vector) -> float:
    return float(np.vdot(a, b).real)


def _norm(a: Vector) -> float:
    return float(np.sqrt(_dot(a, a)))
