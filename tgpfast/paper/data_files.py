"""Finds the paper's data sets in a folder by the names of its files."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..data.blocks import Blocks
from ..data.files import SUFFIXES
from ..data.moments import check_full_rank, compute_moments
from ..validation import Array
from .published import ILLUSTRATIONS, SETS, Illustration, PublishedSet, find_entry


@dataclass(frozen=True)
class DataFile:
    """A data file, and the set of the paper that its name stands for.

    Attributes
    ----------
    path : Path
    published : PublishedSet or None
        The set of the paper's tables that the file holds.
    illustration : Illustration or None
        The set of the paper's figures that the file holds.
    shares_name : bool, default False
        Whether another file of the folder has the same name.
    """

    path: Path
    published: PublishedSet | None
    illustration: Illustration | None
    shares_name: bool = False

    @property
    def name(self) -> str:
        """Name of the set in the paper, else the stem of the file."""
        known = self.published or self.illustration
        return known.name if known else self.path.stem

    @property
    def label(self) -> str:
        """The name; with the file name where two files share the name."""
        return f"{self.name}, {self.path.name}" if self.shares_name else self.name


def find_data_files(folder: Path) -> list[DataFile]:
    """The data files of a folder: the paper's sets first, in the paper's order.

    Raises
    ------
    ValueError
        If the folder does not exist.
    """
    if not folder.is_dir():
        raise ValueError(f"{os.fspath(folder)!r} is not a folder; give one that holds data files")
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    files = [
        DataFile(p, find_entry(p.stem, SETS), find_entry(p.stem, ILLUSTRATIONS)) for p in paths
    ]
    count, order = Counter(f.name for f in files), list(SETS)
    files = [replace(f, shares_name=count[f.name] > 1) for f in files]
    return sorted(files, key=lambda f: order.index(f.name) if f.published else len(order))


def load_standardized(path: Path) -> Array:
    """All rows of a file, with every column scaled to mean 0 and variance 1."""
    blocks = Blocks(path)
    x = blocks.whole()
    check_full_rank(compute_moments(Blocks(x)), blocks.table.columns)
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))
