"""Discrete columns of a `fit`: their steps, and the density of discrete values."""

from __future__ import annotations

from typing import cast

from ..data.blocks import Blocks
from ..data.table import column_name
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
