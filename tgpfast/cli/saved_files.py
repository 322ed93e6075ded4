"""Opens saved files, with errors for wrong paths and wrong contents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from ..density.density import Density
from ..density.discrete import DiscreteDensity
from ..density.loading import load


def load_saved(path: Path) -> Any:
    """The object that a ``save`` method wrote to this file."""
    if not path.exists():
        raise FileNotFoundError(f"no such file: {os.fspath(path)!r}; check the path")
    if path.is_dir():
        raise ValueError(f"{os.fspath(path)!r} is a folder; give the path of a file in it")
    return load(path)


def load_model(path: Path) -> Density:
    """A saved model; ValueError for files that hold something else."""
    saved = load_saved(path)
    if not isinstance(saved, Density | DiscreteDensity):
        raise ValueError(
            f"{os.fspath(path)!r} holds {type(saved).__name__}, expected a model: a file written "
            "by tgpfast fit or model.save"
        )
    return cast(Density, saved)  # a discrete density has its methods
