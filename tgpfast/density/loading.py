"""`load`, which reads every kind of file that tgpfast saves.

The classes of saved objects register their readers, and bases themselves, when their modules are
imported. `fit` does not need some of these modules; `load` needs them all.
"""

from __future__ import annotations

import os
from typing import Any

from ..bases import von_mises
from ..data.storage import load, register_reader
from ..statistics import spectrum
from . import grouped
from .columns import discrete
from .columns.marginals import MARGINAL_KIND, MarginalDensity
from .density import Density

__all__ = ["discrete", "grouped", "load", "spectrum", "von_mises"]


def _read_marginal(path: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> MarginalDensity:
    joint = Density._from_file(path, facts["joint"], arrays)
    try:
        return MarginalDensity(joint, facts["columns"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)!r} is damaged: {error}") from error


register_reader(MARGINAL_KIND, _read_marginal)
