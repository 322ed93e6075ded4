"""Errors for rows so large that sums over them are not finite."""

from __future__ import annotations

import numpy as np

from ..validation import Array


def check_feature_sums(sum_phi: Array) -> None:
    """ValueError where the angles of some rows overflowed."""
    if not np.isfinite(sum_phi).all():
        raise ValueError(
            "the features of some rows are not finite: |x| / bandwidth overflows. "
            "Scale the data or raise the bandwidth"
        )


def check_moments(sum_x: Array, sum_xx: Array) -> None:
    """ValueError where the squares of some rows overflowed; it names the column."""
    if not (np.isfinite(sum_x).all() and np.isfinite(sum_xx).all()):
        column = int(np.flatnonzero(~np.isfinite(np.diag(sum_xx)))[0])
        raise ValueError(
            f"the sum of squares of column {column} overflows; scale the data, or give an "
            "origin near them"
        )
