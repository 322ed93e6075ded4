"""`Density.update`: new rows -> the same model learned from them too. One pass, and one solve."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..bases.base import Base
from ..bases.domain import Domain, domain_of
from ..bases.gaussian import GaussianBase
from ..bases.mixture import MixtureBase, guard_gaussian
from ..data.blocks import Blocks, as_blocks
from ..data.column_maps import MappedScaling, OutsideSupportError
from ..data.missing_rows import MISSING_ROWS, warn_if_dropped
from ..data.table import column_name
from ..density.density import Density
from ..runtime.warnings import DataWarning, warn
from ..solvers.solver import base_alone, solve
from ..statistics.feature_means import FeatureMeans
from ..statistics.lattice_statistics import LatticeStatistics
from ..statistics.lattice_sums import WallError
from ..statistics.mergeable_sums import check_decay
from ..statistics.required_sums import accumulate_like
from ..validation import Array, check_choice, check_flag
from .axes import Axes, place_rows
from .discrete_columns import find_discrete

MOST_ROWS_BEYOND = 0.05  # share of new rows beyond a lattice, above which a warning says so
OUTDATED_RECORDS = ("base_spread", "verification")  # measurements of the old density


def update_model(
    model: Density, X: Any, sample_weight: Any, decay: float, progress: bool, missing: str
) -> Density:
    """The model learned from its own rows and those of X; see `Density.update`.

    Raises
    ------
    ValueError
        If the model holds no statistics, or new rows lie outside of its support.
    """
    if model.statistics is None:
        raise ValueError(
            "cannot update: this model does not hold the statistics that new rows are added to. "
            "Models of fit and solve hold them; save them with save(path, statistics=True)"
        )
    decay = check_decay(decay)
    run = {**model.threads.options, "progress": check_flag("progress", progress)}
    blocks = as_blocks(
        X, sample_weight=sample_weight, dimension=model.dimension, columns=model.table.columns,
        drop_missing=check_choice("missing", missing, MISSING_ROWS) == "drop",
    )  # fmt: skip
    scaling, domain = model.scaling, domain_of(model.base)
    rows = blocks if scaling.is_identity else blocks.mapped(scaling.apply_inside)
    if domain.periodic.any():
        rows = blocks.mapped(functools.partial(place_rows, scaling, domain))
    try:
        part = _add_rows(model, rows, run)
    except OutsideSupportError:
        _name_row_outside(model, blocks)
        raise
    _warn_if_beyond(model.statistics, part)
    stats, facts = _merge(model, part, decay)
    new = _solve_again(model, stats, _update_base(model, stats), run)
    settings = {**model.settings, **new.settings, **facts}
    if warn_if_dropped(blocks):
        settings["n_missing"] = settings.get("n_missing", 0) + blocks.missing.n_missing
    for name in OUTDATED_RECORDS:
        settings.pop(name, None)
    return new.with_record(
        scaling=model.scaling, table=model.table, settings=settings, selection=model.selection
    )


def _add_rows(model: Density, rows: Blocks, run: dict[str, Any]) -> Any:
    """Statistics of new rows; a row beyond a wall is named in the units of the data."""
    try:
        return accumulate_like(model.statistics, rows, model.base, **run)
    except WallError as error:
        domain, k = domain_of(model.base), error.axis
        half = 0.5 * find_discrete(rows, model).get(k, 0.0)  # fit has widened the walls by it
        low, high = model.scaling.invert(np.array(domain.walls))[:, k]
        name = column_name(k, model.table.columns)
        raise ValueError(
            f"row {error.row - rows.first_row}, column {name} lies outside of its support "
            f"({low + half:g}, {high - half:g}); remove such rows"
        ) from error


def _name_row_outside(model: Density, blocks: Blocks) -> None:
    """ValueError that names the row beyond a wall that a map has met."""
    scaling = model.scaling
    assert isinstance(scaling, MappedScaling)
    given = Domain(scaling.maps.low, scaling.maps.high)
    steps = find_discrete(blocks, model)
    Axes(given, given, model.table.columns, steps).find_row_outside(blocks)


def _warn_if_beyond(old: Any, part: Any) -> None:
    """Warn where new rows lie beyond the box of a lattice, which cannot learn from them."""
    if not isinstance(part, LatticeStatistics):
        return
    # the wave of frequency zero is the taper alone: 1 in the core, 0 beyond the box
    beyond, before = (1.0 - float(s.sum_waves.flat[0].real) / s.n for s in (part, old))
    if beyond > max(MOST_ROWS_BEYOND, 2.0 * before):
        warn(
            f"{beyond:.0%} of the weight of the new rows lies at or beyond the ends of the lattice "
            "that was laid around the first ones; the density there stays that of the base. Fit "
            "anew with all rows",
            DataWarning,
        )


def _merge(model: Density, part: Any, decay: float) -> tuple[Any, dict[str, Any]]:
    """Statistics of all rows, the old ones decayed, with weights rescaled as by one fit; and the
    facts that the model records.
    """
    settings, old = model.settings, model.statistics.decay(decay)
    facts: dict[str, Any] = {"updates": settings.get("updates", 0) + 1, "decay": decay}
    before = settings.get("weight_factor")
    if part.sum_w2 != part.n and settings.get("weights") == "none":
        facts["weights"] = "as given" if before is None else "Kish"
    if before is not None:
        sum_w = old.n / before
        factor = (sum_w + part.n) / (sum_w / before + part.sum_w2)
        old, part = old.times(factor / before), part.times(factor)
        facts["weight_factor"] = factor
    total = old + part
    if "n_rows" in settings:
        facts["n_rows"] = total.n_rows
    return total, facts


def _solve_again(model: Density, stats: Any, base: Base, run: dict[str, Any]) -> Density:
    """The same method with the same settings; the base alone stays so."""
    if model.method == "base":
        if base is model.base:
            warn(
                "this model is its base alone, and the base does not come from stored moments: the "
                "new rows change only the counts, not the density. Fit again with all rows, or fit "
                "with a given lam so that the model can learn",
                DataWarning,
            )
        return base_alone(stats, base, model.threads)
    settings = model.settings
    if "n_draws" in settings:
        run = {**run, "n_draws": settings["n_draws"]}
    try:
        return solve(
            stats, base, model.method, settings["lam"], settings.get("eta"),
            model.diagnostics.get("solver", "auto"), seed=settings.get("seed") or 0,
            start=None if model.method == "fvpd" else model.theta, **run,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(
            f"cannot update with these rows: {error}. Remove outliers, or fit anew"
        ) from error


def _update_base(model: Density, stats: Any) -> Base:
    """From the moments of all rows where it was so before, and they are known; else as it is."""
    has_guard = isinstance(model.base, MixtureBase)
    is_gaussian = isinstance(model.base, GaussianBase) or has_guard
    if model.settings.get("base") != "empirical" or not is_gaussian or isinstance(
        stats, FeatureMeans | LatticeStatistics
    ):
        return model.base
    shift: Array = stats.sum_x / stats.n
    covariance = stats.sum_xx / stats.n - np.outer(shift, shift)
    gaussian = GaussianBase(stats.origin + shift, 0.5 * (covariance + covariance.T))
    return guard_gaussian(gaussian, stats.n) if has_guard else gaussian

