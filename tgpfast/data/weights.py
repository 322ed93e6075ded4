"""Checks of sample weights, and Kish's ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..validation import Array

# The largest weight must lie between these, so that sums of squares neither vanish nor overflow.
LARGEST_WEIGHT_RANGE = (1e-140, 1e140)


def check_weights(weights: Any, n_rows: int | None) -> Any:
    """Return weights as a one-dimensional array, or raise an error.

    All weights are checked at once, since an error after half a pass would waste that pass.

    Parameters
    ----------
    weights : (n,) array-like of real numbers
        Finite and not negative.
    n_rows : int or None
        The expected n; None where it is not known yet.

    Raises
    ------
    TypeError
        If weights are masked or not real numbers.
    ValueError
        If the shape, the length, a value or the size of the values is wrong.
    """
    array = np.asarray(weights)
    if isinstance(weights, np.ma.MaskedArray) or array.dtype.kind not in "fiub":
        raise TypeError(f"sample_weight must be real numbers, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"sample_weight must have one dimension, got shape {array.shape}")
    if n_rows is not None and len(array) != n_rows:
        raise ValueError(f"sample_weight has {len(array)} entries, but X has {n_rows} rows")
    bad = np.flatnonzero(~((array >= 0) & (array < np.inf)))
    if len(bad):
        raise ValueError(
            f"sample_weight must be finite and not negative, got {array[bad[0]]} at row {bad[0]}"
        )
    largest = float(array.max(initial=0.0))
    least, most = LARGEST_WEIGHT_RANGE
    if largest > 0.0 and not least < largest < most:
        raise ValueError(
            f"sample_weight is {largest:.3g} at most, and its squares are beyond float64; divide "
            "it by its largest entry"
        )
    return array


def slice_weights(weights: Any, start: int, stop: int) -> Array:
    """Return the weights of rows start to stop as contiguous float64."""
    return np.ascontiguousarray(weights[start:stop], dtype=np.float64)


def join_weights(parts: Sequence[tuple[Any, Array | None]]) -> Array | None:
    """Return the weights of several blocks, given as (rows, weights), or None if none has any.

    Beside blocks with weights, rows without have a weight of 1.
    """
    if all(w is None for _, w in parts):
        return None
    return np.concatenate([np.ones(len(x)) if w is None else w for x, w in parts])


def kish_ratio(weights: Any) -> float:
    """Return sum w / sum w^2: times this, weights sum to Kish's effective number of rows."""
    w = np.asarray(weights, dtype=np.float64)
    return float(w.sum() / (w @ w))
