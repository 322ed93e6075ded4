"""`Density.update`: new rows -> the same model learned from them too. One pass, and one solve."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.gaussian import Base, GaussianBase
from ..data.blocks import as_blocks
from ..density.density import Density, register_updater
from ..density.exponent import PointTilt
from ..runtime.warnings import DataWarning, warn
from ..solvers.solver import base_alone, solve
from ..statistics.feature_sums import FeatureSums
from ..statistics.statistics import check_decay
from ..statistics.sums import sums_like
from ..validation import Array


def updated(model: Density, X: Any, sample_weight: Any, decay: float, progress: bool) -> Density:
    """See `Density.update`."""
    if model.statistics is None:
        raise ValueError(
            "this model does not hold the statistics it was learned from, to which new rows are "
            "added: those of fit and solve do, and files written with save(path, statistics=True)"
        )
    stats: Any = model.statistics
    decay = check_decay(decay)
    scaling = model.scaling
    blocks = as_blocks(
        X, sample_weight=sample_weight, dimension=model.dimension, columns=model.table.columns
    )
    rows = blocks if scaling.is_identity else blocks.mapped(scaling.apply)
    run: dict[str, Any] = {
        "backend": model.threads.backend, "n_threads": model.threads.n_threads,
        "progress": progress,
    }  # fmt: skip
    part: Any = sums_like(stats, rows, model.base, **run)
    settings, old = model.settings, stats.decay(decay)
    before = settings.get("weight_factor")
    facts: dict[str, Any] = {"updates": settings.get("updates", 0) + 1, "decay": decay}
    if part.sum_w2 != part.n and settings.get("weights") == "none":
        facts["weights"] = "as given" if before is None else "Kish"
    if before is not None:  # rescaled as by a fit of all rows
        sum_w = old.n / before
        factor = (sum_w + part.n) / (sum_w / before + part.sum_w2)
        old, part = old._times(factor / before), part._times(factor)
        facts["weight_factor"] = factor
    total = old + part
    base = _base_of(model, total)
    if model.method == "base":
        new = base_alone(total, base, model.threads)
        if base is model.base:
            warn(
                "this model is its base alone, which was not made from moments and stays as it is: "
                "the new rows change nothing but counts. Fit anew, or with a lam of your own, to "
                "learn",
                DataWarning,
            )
    else:
        try:
            new = solve(
                total, base, model.method, settings["lam"], settings.get("eta"),
                model.diagnostics.get("solver", "auto"),
                start=model.theta if isinstance(model.tilt, PointTilt) else None,
                seed=settings.get("seed") or 0, **run,
                **({"n_draws": settings["n_draws"]} if "n_draws" in settings else {}),
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(
                f"cannot update with these rows: {error}. Remove outliers, or fit anew"
            ) from error
    new.scaling, new.table, new.selection = scaling, model.table, model.selection
    if "n_rows" in settings:
        facts["n_rows"] = total.n_rows
    new.settings = {**settings, **new.settings, **facts}
    for name in ("base_spread", "verification"):  # of the density before
        new.settings.pop(name, None)
    return new


def _base_of(model: Density, stats: Any) -> Base:
    """From the moments of all rows where it was so before, and they are known; else as it is."""
    if model.settings.get("base") != "empirical" or isinstance(stats, FeatureSums):
        return model.base
    shift: Array = stats.sum_x / stats.n
    covariance = stats.sum_xx / stats.n - np.outer(shift, shift)
    return GaussianBase(stats.origin + shift, 0.5 * (covariance + covariance.T))


register_updater(updated)
