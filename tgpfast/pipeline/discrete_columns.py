"""Discrete columns of a `fit`: their steps, their walls, and the density of discrete values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..data.blocks import Blocks
from ..data.table import column_name, find_column
from ..density.density import Density
from .rows import Rows
from .settings import Settings


def find_discrete(noisy: Settings | Blocks, rows: Rows | Density) -> dict[int, float]:
    """Steps of the discrete columns, by their numbers.

    Parameters
    ----------
    noisy : Settings or Blocks
        Whose ``jitter`` is the noise on discrete columns.
    rows : Rows or Density
        With the names and the number of the columns.

    Raises
    ------
    ValueError
        There is no such column.
    """
    jitter = noisy.jitter
    return {} if jitter is None else jitter.find_steps(rows.table.columns, rows.dimension)


def widen_walls(settings: Settings, rows: Rows) -> Settings:
    """The settings with walls of discrete columns moved half a step outwards, where the noise ends.

    What is wrong with the walls is left to the code that reads them.

    Parameters
    ----------
    settings : Settings
    rows : Rows
    """
    steps, walls = find_discrete(settings, rows), settings.support
    if not steps or not isinstance(walls, Mapping):
        return settings
    return replace(settings, support={key: _widen(key, pair, steps, rows)
                                      for key, pair in walls.items()})  # fmt: skip


def _widen(key: Any, pair: Any, steps: dict[int, float], rows: Rows) -> Any:
    try:
        low, high = pair
        step = steps.get(find_column(key, rows.table.columns, rows.dimension), 0.0)
        return (
            None if low is None else float(low) - 0.5 * step,
            None if high is None else float(high) + 0.5 * step,
        )
    except (TypeError, ValueError):
        return pair


def as_discrete(model: Density, settings: Settings, rows: Rows) -> Density:
    """The density of discrete values that a density of rows with noise gives; without discrete
    columns, the density itself.

    Parameters
    ----------
    model : Density
    settings : Settings
    rows : Rows
    """
    steps = find_discrete(settings, rows)
    if not steps:
        return model
    from ..density.columns.discrete import DiscreteDensity

    names = rows.table.columns
    model.settings["discrete"] = {column_name(k, names): step for k, step in steps.items()}
    return cast(Density, DiscreteDensity(model, steps))  # it has the methods of a density
