"""Bases of every kind that `fit` knows by a word, learned from rows."""

from __future__ import annotations

from typing import Any

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..bases.mixture_growth import GrownMixture, grow_mixture
from ..bases.student import StudentBase
from ..kernels.thread_choice import Threads
from ..validation import Array
from .folds import FEW_ROWS, Split, assign_folds

# Of few rows one in GROWTH_FOLDS[0] decides on the size of a mixture, of many one in
# GROWTH_FOLDS[1]: with a tenth of 100 rows the size was luck.
GROWTH_FOLDS = (5, 10)
# Operations that the growth of a mixture may take: some 3 s on one core. With a tenth of that, the
# mixture of 15,000 rows of 10 columns lost 1.7 nats per row.
GROWTH_WORK = 4e10


def fit_base(
    kind: Any, x: Array, weights: Array, *, seed: int = 0, threads: Threads | None = None,
    max_work: float = GROWTH_WORK,
) -> Base:  # fmt: skip
    """A base learned from rows.

    Parameters
    ----------
    kind : "empirical", "student", "mixture", or a Base, which is returned as it is
    x : (n, d) array
    weights : (n,) array
    seed : int, default 0
        Of the directions along which the components of a mixture are split.
    threads : Threads, optional
    max_work : float, default 4e10
        Floating-point operations that the growth of a mixture may take.

    Raises
    ------
    ValueError
        If the rows lie in a plane.
    """
    if isinstance(kind, Base):
        return kind
    if kind == "student":
        return StudentBase._by_em(x, weights)
    if kind == "mixture":
        grown = grow_on(x, weights, seed=seed, threads=threads, max_work=max_work)
        return grown.refit(x, weights)
    return GaussianBase.from_data(x, sample_weight=weights)


def grow_on(
    x: Array, weights: Array, *, seed: int = 0, threads: Threads | None = None,
    max_work: float = GROWTH_WORK,
) -> GrownMixture:  # fmt: skip
    """A mixture grown on most of the rows; the others decide on its size. See `fit_base`."""
    folds = assign_folds(len(x), GROWTH_FOLDS[len(x) > FEW_ROWS])
    split = Split.at(x, weights, folds == 0)
    return grow_mixture(*split, max_work=max_work, seed=seed, threads=threads)
