"""Weighted marginal CDFs along directions. Knows no model, so it measures rivals too."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import kernels
from .blocks import Blocks
from .features import Array, as_floats


def marginal_cdfs(
    X: Any,
    directions: Any,
    low: Any,
    step: Any,
    n_grid: int,
    *,
    sample_weight: Any = None,
    backend: str = "auto",
    n_threads: int | None = None,
) -> Array:
    """Weighted empirical CDF of the rows projected on every direction, (V, n_grid).

    Entry (v, j) is the share of weight with x . directions[v] <= low[v] + j step[v]. Rows stream
    through in blocks; no array of rows by directions is made.

    Parameters
    ----------
    X : rows, as for ``accumulate``
    directions : (V, d)
    low, step : (V,) start and spacing (> 0) of each direction's grid
    n_grid : number of grid points
    """
    v = as_floats(directions, "directions", "(V, d)", 2)
    if v.size == 0:
        raise ValueError(f"directions must not be empty, got shape {v.shape}")
    starts, steps = as_floats(low, "low", "(V,)", 1), as_floats(step, "step", "(V,)", 1)
    if len(starts) != len(v) or len(steps) != len(v):
        raise ValueError(f"low and step must have one entry a direction: {len(v)}")
    if not (steps > 0).all():
        raise ValueError(f"step must be positive, got {steps.min()}")
    if n_grid < 1:
        raise ValueError(f"n_grid must be at least 1, got {n_grid}")
    module = kernels.load(backend)
    count = kernels.resolve_threads(module, n_threads)
    mass, nothing = np.zeros((len(v), n_grid + 1)), np.zeros(0)
    nothing.flags.writeable = False
    with kernels.threads(module, count):
        for x, w in Blocks(X, sample_weight=sample_weight, dimension=v.shape[1]):
            if w is not None:
                w.flags.writeable = False
            module.marginal_mass(x, nothing if w is None else w, v, starts, steps, mass, count)
    cdf: Array = np.cumsum(mass, axis=1)
    total = cdf[:, -1:].copy()
    return cdf[:, :-1] / total
