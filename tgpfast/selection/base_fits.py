"""Bases of every kind that `fit` knows by a word, learned from rows."""

from __future__ import annotations

from typing import Any

from ..bases.base import Base
from ..bases.bounded import Domain
from ..bases.gaussian import GaussianBase
from ..bases.mixture_growth import GrownMixture, grow_mixture
from ..bases.student import StudentBase
from ..bases.von_mises import multiply_by_circles
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
    max_work: float = GROWTH_WORK, domain: Domain | None = None,
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
    domain : Domain, optional
        Its periodic columns have von Mises distributions, and the kind is that of the others.

    Raises
    ------
    ValueError
        If the rows lie in a plane, or a kind has no columns.
    """
    if isinstance(kind, Base):
        return kind
    if domain is not None and domain.periodic.any():
        options: dict[str, Any] = {"seed": seed, "threads": threads, "max_work": max_work}
        rest = x[:, ~domain.periodic]
        if not rest.shape[1]:
            check_open_columns(kind)
            return multiply_by_circles(None, x, weights, domain)
        return multiply_by_circles(fit_base(kind, rest, weights, **options), x, weights, domain)
    if kind == "student":
        return StudentBase._by_em(x, weights)
    if kind == "mixture":
        grown = grow_on(x, weights, seed=seed, threads=threads, max_work=max_work)
        return grown.refit(x, weights)
    return GaussianBase.from_data(x, sample_weight=weights)


def check_open_columns(kind: str) -> None:
    """ValueError for a kind of base that needs columns without a period, where there are none."""
    if kind != "empirical":
        raise ValueError(
            f'base="{kind}" describes columns without a period, and all have one; use '
            'base="empirical"'
        )


def grow_on(
    x: Array, weights: Array, *, seed: int = 0, threads: Threads | None = None,
    max_work: float = GROWTH_WORK,
) -> GrownMixture:  # fmt: skip
    """A mixture grown on most of the rows; the others decide on its size. See `fit_base`."""
    folds = assign_folds(len(x), GROWTH_FOLDS[len(x) > FEW_ROWS])
    split = Split.at(x, weights, folds == 0)
    return grow_mixture(*split, max_work=max_work, seed=seed, threads=threads)
