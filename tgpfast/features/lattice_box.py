"""The box of a lattice: which part of space the waves cover, and the taper at its open ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..validation import Array

# "wall_below" and "wall_above" have one wall, at the lower or the upper end, and one open end
AXIS_KINDS = ("open", "wall", "period", "wall_below", "wall_above")
KINDS_OF_WALLS = {  # (is there a wall below, one above) -> kind of the axis
    (False, False): "open", (True, True): "wall", (True, False): "wall_below",
    (False, True): "wall_above",
}  # fmt: skip
OUTLIERS = 0.005  # share of the rows at either end that may lie outside the core
REACH = 0.5  # how far the core extends beyond them at most, in units of the range in between
BASE_REACH = 3.0  # standard deviations of the base that the core covers, within the same limit
PADDING = 2.5  # bandwidths from the core to the end of the box; see `choose_box`
STEP_END = 1e-3  # of the margin: closer to its ends the step is 0 or 1 in float64
LEAST_MARGIN = 0.1  # of the core's length: the taper is no steeper


def tapered_sides(kind: str) -> tuple[bool, bool]:
    """Whether the lower and the upper end of an axis are tapered."""
    return kind in ("open", "wall_above"), kind in ("open", "wall_below")


def taper_step(t: Array) -> Array:
    """A smooth step from 0 at t <= 0 to 1 at t >= 1: 1 / (1 + exp(1/t - 1/(1-t))) between.

    All its derivatives are zero at both ends.
    """
    inside = np.clip(t, STEP_END, 1.0 - STEP_END)
    return np.asarray(np.exp(-np.logaddexp(0.0, 1.0 / inside - 1.0 / (1.0 - inside))))


def choose_box(
    rows: Array,
    bandwidth: float,
    base: Any = None,
    support: Sequence[tuple[float | None, float | None] | None] | None = None,
    period: Sequence[float | None] | None = None,
) -> tuple[Array, Array, Array, tuple[str, ...]]:
    """A box for the rows: its core covers all of them unless some are far outliers.

    Along an open axis the core reaches from the smallest to the largest row, and covers three
    standard deviations of the base, but extends beyond the central 99 % of the rows by at most half
    of their range at either end. A margin of 2.5 bandwidths, or a tenth of the core if that is
    more, is added at each open end. So f at the two ends of the core, which are neighbors around
    the period, is correlated by k(5 bandwidths) at most: 4e-6 (Gaussian), 8e-4 (Matern 5/2), 2e-3
    (Matern 3/2) or 7e-3 (Matern 1/2). Together with the taper this moves log densities at the rows
    by less than 5e-3 nats.

    Parameters
    ----------
    rows : (n, d) array
        A sample of the rows.
    bandwidth : float
    base : Base, default None
        With ``mean`` (d,) and ``covariance`` (d, d).
    support : list of (low, high) or None, default None
        Walls of each axis; None, alone or in a pair, where there is none.
    period : list of float or None, default None
        Period of each axis; None where there is none.

    Returns
    -------
    origin, lengths, margin : (d,) arrays
    kinds : tuple of str

    Raises
    ------
    ValueError
        For walls in the wrong order, rows beyond a wall, or both walls and a period.
    """
    d = rows.shape[1]
    walls = [(None, None) if pair is None else pair for pair in support or [None] * d]
    periods = list(period or [None] * d)
    origin, lengths, margin = np.empty(d), np.empty(d), np.zeros(d)
    kinds = []
    for axis in range(d):
        of_base = None if base is None else (base.mean[axis], base.covariance[axis, axis])
        low, high = find_core(rows[:, axis], of_base)
        wall_low, wall_high = _check_walls(walls[axis], periods[axis], rows[:, axis], axis)
        if periods[axis] is not None:
            kinds.append("period")
            origin[axis], lengths[axis] = float(rows[:, axis].min()), periods[axis]
            continue
        low = low if wall_low is None else wall_low
        high = high if wall_high is None else wall_high
        kinds.append(KINDS_OF_WALLS[wall_low is not None, wall_high is not None])
        sides = tapered_sides(kinds[-1])
        if any(sides):
            margin[axis] = max(PADDING * bandwidth, LEAST_MARGIN * (high - low))
        origin[axis] = low - sides[0] * margin[axis]
        lengths[axis] = high + sides[1] * margin[axis] - origin[axis]
    return origin, lengths, margin, tuple(kinds)


def find_core(x: Array, base: tuple[float, float] | None = None) -> tuple[float, float]:
    """(low, high) of the core along one axis; see `choose_box`.

    Parameters
    ----------
    x : (n,) array
        A sample of the rows.
    base : (mean, variance), default None
        Of the base along this axis.
    """
    low, high = float(x.min()), float(x.max())
    inner_low, inner_high = (float(q) for q in np.quantile(x, [OUTLIERS, 1.0 - OUTLIERS]))
    if base is not None:
        mean, reach = base[0], BASE_REACH * np.sqrt(base[1])
        low, high = min(low, float(mean - reach)), max(high, float(mean + reach))
    if inner_high > inner_low:
        reach = REACH * (inner_high - inner_low)
        low, high = max(low, inner_low - reach), min(high, inner_high + reach)
    if not high > low:  # one value: any width about it
        width = max(abs(low), 1.0)
        low, high = low - width, high + width
    return low, high


def _check_walls(
    pair: tuple[float | None, float | None], period: float | None, x: Array, axis: int
) -> tuple[float | None, float | None]:
    low, high = pair
    if period is not None:
        if low is not None or high is not None:
            raise ValueError(f"column {axis} has both a period and a support; give one of them")
        if not 0.0 < period < np.inf:
            raise ValueError(f"column {axis}: the period must be positive, got {period}")
        return None, None
    if low is not None and high is not None and not low < high:
        raise ValueError(f"column {axis}: support ({low}, {high}) must be in ascending order")
    if (low is not None and x.min() < low) or (high is not None and x.max() > high):
        raise ValueError(
            f"column {axis} has rows outside of its support ({low}, {high}): they run from "
            f"{x.min():.6g} to {x.max():.6g}"
        )
    return low, high
