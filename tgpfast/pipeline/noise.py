"""Noise levels of NCFD (Algorithm 3 of the paper)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import LEAST_SCALE, MOST_SCALE, Array, as_floats
from .rows import Rows
from .settings import Settings


def noise_levels(sigma_max: float, n_levels: int) -> Array:
    """sigma = h sigma_max / H, h = 0 .. H - 1; one level of 0 without noise."""
    count = n_levels if sigma_max > 0 else 1
    return sigma_max * np.arange(count) / count


def most_noise(settings: Settings, rows: Rows) -> float:
    """sigma_max of NCFD as a number; "paper" is sqrt(tr V) / d.

    Raises
    ------
    ValueError
        If it is negative, or beyond the range of bandwidths.
    """
    asked: Any = settings.sigma_max
    if isinstance(asked, str) and asked == "paper":
        asked = np.sqrt(rows.dimension * rows.variance) / rows.dimension
    sigma = float(as_floats(asked, "sigma_max", "()", 0))
    least = settings.n_noise_levels * LEAST_SCALE
    if sigma < 0:
        raise ValueError(f"sigma_max={sigma}: expected a number of at least 0")
    if sigma > 0 and not least <= sigma <= MOST_SCALE:
        raise ValueError(
            f"sigma_max={sigma:.6g}: expected 0, or a number from {least:g} to "
            f"{MOST_SCALE:g}; about 1 in scaled coordinates is usual"
        )
    return sigma
