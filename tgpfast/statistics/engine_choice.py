"""Which engine runs a pass: the one that asks for less time by the model of costs."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from ..data.blocks import Blocks
from ..data.started_pass import StartedPass
from ..runtime.records import record
from . import costs
from .pass_options import PassOptions
from .transforms import has_finufft

if TYPE_CHECKING:
    from .spectral_work import SpectralWork

HELD_SHARE = 8  # the rows of a stream that decide the engine take 1/8 of the budget at most


@record
class EngineChoice:
    """The engine, and what is known of the choice.

    Attributes
    ----------
    engine : str
        "direct" or "spectral".
    blocks : Blocks
        The rows to read: for a stream they begin with those that were looked at.
    facts : dict
        Estimated seconds, or the number of rows looked at, for the provenance.
    """

    engine: str
    blocks: Blocks
    facts: dict[str, Any] = field(default_factory=dict)


def choose_engine(blocks: Blocks, options: PassOptions, budget: int) -> EngineChoice:
    """The engine asked for, or with ``engine="auto"`` the faster one.

    Parameters
    ----------
    blocks : Blocks
    options : PassOptions
    budget : int
        Bytes that the grids of the spectral engine may take.

    Raises
    ------
    ValueError
        If the spectral engine is asked for by name and cannot serve.
    """
    if options.engine == "spectral" and options.why_not_spectral:
        raise ValueError(options.why_not_spectral)
    if options.engine != "auto":
        return EngineChoice(options.engine, blocks)
    if options.why_not_spectral or not has_finufft():
        return EngineChoice("direct", blocks)
    work = options.work(budget)
    if blocks.n_rows is None:
        with kernels.threads(options.backend, options.n_threads):  # as in the pass itself
            return _choose_for_stream(blocks, work)
    direct = blocks.n_rows * work.row_cost
    if direct < costs.NEGLIGIBLE_SECONDS:
        return EngineChoice("direct", blocks, {"estimated_direct": direct})
    with np.errstate(over="ignore", invalid="ignore"):  # rows whose squares overflow
        spectral = work.seconds(blocks)
    facts = {"estimated_direct": direct, "estimated_spectral": spectral}
    return EngineChoice(
        "spectral" if spectral is not None and spectral < direct else "direct", blocks, facts
    )


def _choose_for_stream(blocks: Blocks, work: SpectralWork) -> EngineChoice:
    """The choice for rows of unknown number: spectral once so many rows are seen that it is faster
    for these alone. Until then they are held in memory."""
    from .spectral_work import COST_ROWS

    few = int(costs.NEGLIGIBLE_SECONDS / work.row_cost) + 1
    most = work.budget // (HELD_SHARE * 8 * work.features.dimension)
    if few > most:
        return EngineChoice("direct", blocks)
    started = StartedPass(blocks)
    started.read(few)
    if started.n_rows < few:
        return EngineChoice("direct", started.blocks)
    with np.errstate(over="ignore", invalid="ignore"):  # rows whose squares overflow
        enough = work.rows_that_pay(started.sample(COST_ROWS))
    if enough is None or enough > most:
        return EngineChoice("direct", started.blocks)
    started.read(enough)
    engine = "spectral" if started.n_rows >= enough else "direct"
    return EngineChoice(engine, started.blocks, {"rows_looked_at": started.n_rows})
