"""What a fitted model records of itself: ``model.settings``, and warnings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .. import kernels
from ..data.column_checks import measure_repeats, warn_columns
from ..data.missing_rows import warn_if_dropped
from ..density.density import Density
from ..runtime.warnings import DataWarning, PoorFitWarning, warn
from ..selection.candidates import BASE_ALONE
from ..selection.verification import Verification
from .choosing import Problem
from .discrete_columns import find_discrete
from .rows import Rows
from .settings import Settings


def finish_model(
    model: Density, verified: Verification | None, problem: Problem, asked: Settings, rows: Rows
) -> Density:
    """The solved model in the units of the data, with its record; warns of what is wrong with it.

    Parameters
    ----------
    model : Density
        In the model's coordinates.
    verified : Verification or None
    problem : Problem
        What it was solved from.
    asked : Settings
        What the user asked for.
    rows : Rows
    """
    settings = {
        **model.settings,
        **_record_weights(asked, problem, rows),
        "backend": kernels.load(asked.backend).NAME,
        **rows.scale_record, "seed": asked.seed, "n": rows.n, "n_rows": problem.statistics.n_rows,
        "dimension": rows.dimension, "auto": sorted(asked.auto), "n_passes": rows.blocks.n_passes,
        **_record_verification(model, verified, problem),
        **_record_missing(asked, rows),
        **problem.record(model, rows),
    }  # fmt: skip
    if rows.column_notes:
        settings["column_notes"] = [note.record() for note in rows.column_notes]
    selection = problem.list_candidates(settings, rows)
    settings["selected"] = selection is not None
    warn_columns(rows.column_notes)
    if verified is not None:
        _warn_of_misfit(verified, rows)
    return _with_repeats(model, asked, rows).with_record(
        scaling=rows.scaling, table=rows.table, settings=settings, selection=selection
    )


def _with_repeats(model: Density, asked: Settings, rows: Rows) -> Density:
    """The model, whose diagnostics say how often rows and values of the sample repeat."""
    sample = rows.blocks.sample
    if sample is None:
        return model
    found = measure_repeats(sample.x, rows.table.columns, find_discrete(asked, rows))
    return replace(model, diagnostics={**model.diagnostics, "repeats": found})


def _record_weights(asked: Settings, problem: Problem, rows: Rows) -> dict[str, Any]:
    """How weights count: "Kish", "as given" or "none", and what they were multiplied by.

    With moments given, weights that come with the rows of an iterator are known only now.
    """
    stats, are_rescaled = problem.statistics, asked.normalize_weights
    are_weighted, are_known = rows.are_weighted, not rows.has_late_weights
    if not are_known and stats.sum_w2 != stats.n:
        if are_rescaled:
            warn(
                "with moments= given, weights that come with the rows count as they are: Kish's "
                "number of rows is not known before; give an array, or normalize_weights=False",
                DataWarning,
            )
        are_weighted, are_rescaled = True, False
    word = "Kish" if are_rescaled else "as given"
    return {
        "weights": word if are_weighted else "none",
        "weight_factor": rows.weight_factor if are_rescaled else None,
    }


def _record_missing(asked: Settings, rows: Rows) -> dict[str, Any]:
    """How many rows were left out because of missing values; warns if there are any."""
    if asked.missing != "drop":
        return {}
    warn_if_dropped(rows.blocks)
    return {"n_missing": rows.blocks.missing.n_missing}


def _record_verification(
    model: Density, verified: Verification | None, problem: Problem
) -> dict[str, Any]:
    """What was measured, and what verification changed."""
    record: dict[str, Any] = {} if verified is None else {"verification": verified.record()}
    chosen = problem.settings
    if chosen.lam == BASE_ALONE:
        return record
    if model.method != chosen.method:
        record["method_before_verification"] = chosen.method
    if model.settings["lam"] not in (chosen.lam, None):
        record["lam_raised_from"] = chosen.lam
    return record


def _warn_of_misfit(verified: Verification, rows: Rows) -> None:
    """One warning for what verification found wrong."""
    found = verified.describe(rows.table.columns)
    if found:
        warn(
            f"this fit is unreliable: {found}. Look for hard edges, spikes, repeated values or "
            "outliers in the data; transform or split such columns, or give more rows",
            PoorFitWarning,
        )
