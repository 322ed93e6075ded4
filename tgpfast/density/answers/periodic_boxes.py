"""Bounds and values of periodic columns, moved into the first period."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...bases.domain import Domain
from ...validation import Array

SEAM_TOLERANCE = 1e-9  # periods: a bound so close to an end of the period is that end


def move_upper_bounds(domain: Domain, values: Array) -> Array:
    """Upper bounds with those of periodic columns moved into the first period, to (low, high].

    Bounds within the period, its ends among them, and infinite ones stay.

    Parameters
    ----------
    domain : Domain
    values : (n, d) array
        In the coordinates of the domain.

    Examples
    --------
    >>> hours = Domain([0.0], [24.0], [True])
    >>> move_upper_bounds(hours, np.array([[0.0], [24.0], [26.0], [48.0]])).ravel().tolist()
    [0.0, 24.0, 2.0, 24.0]
    """
    moved = values.copy()
    for k in np.flatnonzero(domain.periodic).tolist():
        moved[:, k] += _periods_to_add(domain, k, values[:, k], is_upper=True)
    return moved


def split_boxes(
    domain: Domain, low: Array, high: Array
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Boxes within the first period that together cover given boxes.

    A box that crosses the end of a period is split there; one that covers a whole period has no
    bounds in that column. A bound without its counterpart reaches to the end of the first period.

    Parameters
    ----------
    domain : Domain
    low, high : (n, d) arrays
        Ends of the boxes, -inf and inf where there is none.

    Returns
    -------
    low, high : (m, d) arrays
        Ends of the parts.
    box : (m,) ints
        Number of the box that each part belongs to.

    Examples
    --------
    From 22 to 2 of the next day:

    >>> low, high, box = split_boxes(
    ...     Domain([0.0], [24.0], [True]), np.array([[22.0]]), np.array([[26.0]])
    ... )
    >>> low.ravel().tolist(), high.ravel().tolist(), box.tolist()
    ([22.0, -inf], [inf, 2.0], [0, 0])
    """
    low, high, box = low.copy(), high.copy(), np.arange(len(low))
    for k in np.flatnonzero(domain.periodic).tolist():
        end, period = domain.high[k], domain.high[k] - domain.low[k]
        a, b = low[:, k].copy(), high[:, k].copy()
        both = np.isfinite(a) & np.isfinite(b)
        with np.errstate(invalid="ignore"):
            length = b - a
        low[:, k] = a + _periods_to_add(domain, k, a, is_upper=False)
        high[:, k] = b + _periods_to_add(domain, k, b, is_upper=True)
        high[both, k] = low[both, k] + length[both]
        is_whole = both & (length >= period * (1.0 - SEAM_TOLERANCE))
        low[is_whole, k], high[is_whole, k] = -np.inf, np.inf
        crosses = both & ~is_whole & (high[:, k] > end + SEAM_TOLERANCE * period)
        first, second = high[crosses].copy(), low[crosses].copy()
        first[:, k] -= period
        second[:, k] = -np.inf
        high[crosses, k] = np.inf
        low, high = np.concatenate([low, second]), np.concatenate([high, first])
        box = np.concatenate([box, box[crosses]])
    return low, high, box


def _periods_to_add(domain: Domain, k: int, values: Array, *, is_upper: bool) -> Array:
    """What moves values into the first period; 0 for those that are in it, or infinite.

    is_upper : whether values move to (low, high], as upper bounds do; else to [low, high)
    """
    start, period = domain.low[k], domain.high[k] - domain.low[k]
    with np.errstate(invalid="ignore"):
        turns = (values - start) / period
        nearest = np.round(turns)
        turns = np.where(np.abs(turns - nearest) <= SEAM_TOLERANCE, nearest, turns)
        is_inside = ((turns >= 0.0) & (turns <= 1.0)) | ~np.isfinite(values)
        whole = np.ceil(turns) - 1.0 if is_upper else np.floor(turns)
    return np.where(is_inside, 0.0, -period * whole)
