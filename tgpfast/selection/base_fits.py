"""Bases of every kind that `fit` knows by a word, but for mixtures, learned from rows."""

from __future__ import annotations

from typing import Any

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..bases.student import StudentBase
from ..validation import Array


def fit_base(kind: Any, x: Array, weights: Array) -> Base:
    """A base learned from rows.

    Parameters
    ----------
    kind : "empirical", "student", or a Base, which is returned as it is
    x : (n, d) array
    weights : (n,) array

    Raises
    ------
    ValueError
        If the rows lie in a plane.
    """
    if isinstance(kind, Base):
        return kind
    if kind == "student":
        return StudentBase._by_em(x, weights)
    return GaussianBase.from_data(x, sample_weight=weights)
