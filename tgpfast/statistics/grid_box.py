"""Where the grid of a `Spectrum` lies: a box around most of the rows that fits the budget."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime import memory
from ..validation import Array, as_floats
from .chunks import BOX_ROWS
from .spread_grid import OutsideError, SpreadGrid
from .transforms import TRANSFORM_DIMENSIONS, eps_for

BOX_MARGIN = 1.25  # a box made from a sample of the rows is this many times as wide
CORES = (0.999, 0.99, 0.97, 0.9)  # shares of the rows in the box: the first whose grid fits
SMALL_CORES = (0.75, 0.5)  # tried too where a grid has far more nodes than there are rows
FEW_NODES = 2**17  # a grid up to this size, or up to the number of rows, is always taken
ROW_NODES = 16  # nodes that take as long to read as one row outside the grid


def sample_for_box(blocks: Any) -> Any:
    """(m, d) random rows from which the box is chosen; None for a stream."""
    pilot = blocks.pilot(BOX_ROWS)
    return None if pilot is None else pilot[0]


def choose_grid(
    sample: Array, bandlimit: Any, box: Any, tolerance: float, budget: int, n_rows: int | None
) -> SpreadGrid:
    """A grid that fits the budget, and is not much larger than the rows need.

    A few outliers could stretch a grid to millions of nodes; rows outside are summed directly.

    Parameters
    ----------
    sample : (m, d) array
        Some of the rows.
    bandlimit : float or (d,) array
        Radians per unit of x.
    box : pair of (d,) array, or None
        Corners of the box; None chooses it from the sample.
    tolerance : float
        Largest error of F(w) / n.
    budget : int
        Bytes that the grid may take.
    n_rows : int or None
        Number of all rows; None where it is not known.

    Raises
    ------
    OutsideError
        If no grid fits the budget.
    """
    d = sample.shape[1]
    if d > TRANSFORM_DIMENSIONS:
        raise ValueError(
            f"a Spectrum has at most {TRANSFORM_DIMENSIONS} dimensions, X has {d} columns"
        )
    band, eps = _check_bandlimit(bandlimit, d), eps_for(tolerance)
    if box is not None:
        grid = SpreadGrid(band, *_check_box(box, d), eps)
        if grid.memory > budget:
            raise _too_large(grid, budget)
        return grid
    for k, core in enumerate(CORES):
        grid = SpreadGrid(band, *_box_around(sample, core, band), eps)
        if grid.memory <= budget:
            if n_rows is None or grid.nodes <= max(FEW_NODES, n_rows):
                return grid
            smaller = [
                SpreadGrid(band, *_box_around(sample, share, band), eps)
                for share in (*CORES[k:], *SMALL_CORES)
            ]
            return min(smaller, key=lambda grid: _reading_cost(grid, sample, n_rows))
    raise _too_large(grid, budget)


def _check_bandlimit(bandlimit: Any, d: int) -> Array:
    given = np.asarray(bandlimit)
    band = as_floats(np.full(d, given) if given.ndim == 0 else given, "bandlimit", f"({d},)", 1)
    if len(band) != d or not (band > 0).all():
        raise ValueError(f"bandlimit must be positive, a number or ({d},), got {bandlimit!r}")
    return band


def _check_box(box: Any, d: int) -> tuple[Array, Array]:
    if not isinstance(box, (tuple, list, np.ndarray)) or len(box) != 2:
        raise ValueError(f"box must be a pair (low, high), got {box!r}")
    low, high = (as_floats(np.atleast_1d(side), "box", f"({d},)", 1) for side in box)
    if len(low) != d or len(high) != d or not (low < high).all():
        raise ValueError(f"box must be (low, high), each ({d},), with low below high")
    return np.array(low), np.array(high)


def _box_around(sample: Array, core: float, band: Array) -> tuple[Array, Array]:
    """Corners of a box around the median that holds this share of the rows along each axis."""
    middle = np.median(sample, axis=0)
    reach = np.quantile(np.abs(sample - middle), core, axis=0, method="lower")
    reach = BOX_MARGIN * np.maximum(reach, 1.0 / band)  # constant columns need some width
    return middle - reach, middle + reach


def _reading_cost(grid: SpreadGrid, sample: Array, n_rows: int) -> float:
    """What reading this grid, and summing the rows outside, costs, in nodes."""
    return grid.nodes + ROW_NODES * n_rows * (1.0 - float(np.mean(grid.inside(sample))))


def _too_large(grid: SpreadGrid, budget: int) -> OutsideError:
    shape = " x ".join(f"{float(m):.6g}" for m in grid.shape)
    return OutsideError(
        f"a grid of {shape} nodes would take {memory.format_bytes(grid.memory)}, and the budget is "
        f"{memory.format_bytes(budget)}; lower bandlimit (a larger bandwidth), give a smaller box, "
        "or raise budget="
    )
