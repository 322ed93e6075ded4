"""KS and Wasserstein distances along random directions; knows no model, so measures rivals too."""

from __future__ import annotations

from dataclasses import dataclass
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
        rows = X if isinstance(X, Blocks) else Blocks(
            X, sample_weight=sample_weight, dimension=v.shape[1]
        )
        for x, w in rows:
            if w is not None:
                w.flags.writeable = False
            module.marginal_mass(x, nothing if w is None else w, v, starts, steps, mass, count)
    cdf: Array = np.cumsum(mass, axis=1)
    total = cdf[:, -1:].copy()
    return cdf[:, :-1] / total


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Distances between data and a density along random directions (Section 4 of the paper).

    ks : (V,) Kolmogorov-Smirnov distance along each direction
    wd : (V,) Wasserstein distance along each direction, in the units of the data
    directions : (V, d) unit vectors
    effective_sample_size : of the density's weighted sample
    """

    ks: Array
    wd: Array
    directions: Array
    effective_sample_size: float

    @property
    def median(self) -> tuple[float, float]:
        """(KS, WD)."""
        return float(np.median(self.ks)), float(np.median(self.wd))

    @property
    def mean(self) -> tuple[float, float]:
        """(KS, WD)."""
        return float(self.ks.mean()), float(self.wd.mean())

    def summary(self) -> str:
        """Two lines of text."""
        lines = [
            f"{name:<7} KS {pair[0]:.4f}  WD {pair[1]:.4f}"
            for name, pair in (("median", self.median), ("mean", self.mean))
        ]
        return "\n".join(lines)


def evaluate(
    model: Any,
    X: Any,
    n_directions: int = 500,
    n_grid: int = 10_000,
    n_samples: int = 250_000,
    seed: int = 0,
    *,
    sample_weight: Any = None,
    backend: str = "auto",
    n_threads: int | None = None,
) -> Evaluation:
    """How far a density is from data, by their marginal CDFs along random directions.

    Parameters
    ----------
    model : a density of tgpfast (base draws weighted by the tilt), or anything with
        ``sample(n, seed)`` that gives rows
    X : rows, as for ``fit``; read twice
    n_directions : uniform on the unit sphere
    n_grid : grid points along each direction, over the range of data and sample
    n_samples : draws from the model
    """
    for name, value in (
        ("n_directions", n_directions), ("n_grid", n_grid), ("n_samples", n_samples),
    ):  # fmt: skip
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
            raise ValueError(f"{name}={value!r}: expected an integer of at least 1")
    points, weights = _draws(model, n_samples, seed)
    columns = getattr(getattr(model, "table", None), "columns", None)
    blocks = Blocks(X, sample_weight=sample_weight, dimension=points.shape[1], columns=columns)
    if not blocks.can_repeat:
        raise ValueError("X can be read only once, and evaluate reads it twice; pass a list")
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((n_directions, points.shape[1]))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    low, high = _range(Blocks(points), v)
    data_low, data_high = _range(blocks, v)
    low, high = np.minimum(low, data_low), np.maximum(high, data_high)
    step = (high - low) / max(n_grid - 1, 1)
    step = np.where(step > 0, step, np.maximum(np.abs(low), 1.0) * 1e-12)
    options: dict[str, Any] = {"backend": backend, "n_threads": n_threads}
    of_data = marginal_cdfs(blocks, v, low, step, n_grid, **options)
    of_model = marginal_cdfs(points, v, low, step, n_grid, sample_weight=weights, **options)
    gap = np.abs(of_data - of_model)
    effective = float(weights.sum() ** 2 / (weights @ weights))
    return Evaluation(gap.max(axis=1), gap.sum(axis=1) * step, v, effective)


def _draws(model: Any, n: int, seed: int) -> tuple[Array, Array]:
    if hasattr(model, "_weighted_sample"):
        points, weights = model._weighted_sample(n, seed)
        return points, weights
    if not hasattr(model, "sample"):
        raise TypeError(f"{type(model).__name__} has no sample(n, seed) to evaluate it by")
    points = Blocks(model.sample(n, seed)).whole()
    return points, np.ones(len(points))


def _range(blocks: Blocks, directions: Array) -> tuple[Array, Array]:
    """Least and largest projection on every direction."""
    low, high = np.full(len(directions), np.inf), np.full(len(directions), -np.inf)
    for x, _ in blocks:
        for start in range(0, len(x), 1_024):
            projection = x[start : start + 1_024] @ directions.T
            low = np.minimum(low, projection.min(axis=0))
            high = np.maximum(high, projection.max(axis=0))
    return low, high
