"""Symmetric matrices stored as their upper triangles: half the bytes."""

from __future__ import annotations

import numpy as np

from ..validation import Array


def pack_triangle(matrix: Array) -> Array:
    """The upper triangle of a matrix, row by row.

    Examples
    --------
    >>> import numpy as np
    >>> pack_triangle(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    n = len(matrix)
    triangle = np.empty(n * (n + 1) // 2)
    at = 0
    for i in range(n):
        triangle[at : at + n - i] = matrix[i, i:]
        at += n - i
    return triangle


def unpack_triangle(triangle: Array, n: int) -> Array:
    """The symmetric (n, n) matrix whose upper triangle ``pack_triangle`` returned."""
    matrix = np.empty((n, n))
    at = 0
    for i in range(n):
        matrix[i, i:] = triangle[at : at + n - i]
        matrix[i:, i] = triangle[at : at + n - i]
        at += n - i
    return matrix
