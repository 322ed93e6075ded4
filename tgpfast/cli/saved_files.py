"""Opens saved files, with errors for wrong paths and wrong contents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from ..data import files
from ..density.columns.discrete import DiscreteDensity
from ..density.density import Density
from ..density.loading import load


def load_saved(path: Path, kinds: Any = object, expected: str = "") -> Any:
    """The object that a ``save`` method wrote to this file.

    Parameters
    ----------
    path : Path
    kinds : type or tuple of types, default object
        Anything else is a ValueError, whose message ends with ``expected``.
    expected : str, default ""
    """
    saved = load(files.find_file(path, suffixes=None))
    if not isinstance(saved, kinds):
        raise ValueError(
            f"{os.fspath(path)!r} holds {type(saved).__name__}, expected {expected}"
        )
    return saved


def load_model(path: Path) -> Density:
    """A saved model; ValueError for files that hold something else."""
    saved = load_saved(
        path, (Density, DiscreteDensity), "a model: a file written by tgpfast fit or model.save"
    )
    return cast(Density, saved)  # a discrete density has its methods
