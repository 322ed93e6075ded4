"""Bases of every kind that `fit` knows by a word, but for mixtures, learned from rows."""

from __future__ import annotations

from typing import Any

from ..bases.base import Base
from ..bases.bounded import Domain
from ..bases.gaussian import GaussianBase
from ..bases.student import StudentBase
from ..validation import Array


def fit_base(kind: Any, x: Array, weights: Array, *, domain: Domain | None = None) -> Base:
    """A base learned from rows.

    Parameters
    ----------
    kind : "empirical", "student", or a Base, which is returned as it is
    x : (n, d) array
    weights : (n,) array
    domain : Domain, default None
        Its periodic columns have distributions of their own, and the kind is that of the others.

    Raises
    ------
    ValueError
        If the rows lie in a plane, or a kind has no columns.
    """
    if isinstance(kind, Base):
        return kind
    if domain is not None and domain.periodic.any():
        from .circle_fits import multiply_by_fitted_circles

        rest = x[:, ~domain.periodic]
        if not rest.shape[1]:
            check_open_columns(kind)
            return multiply_by_fitted_circles(None, x, weights, domain)
        return multiply_by_fitted_circles(fit_base(kind, rest, weights), x, weights, domain)
    if kind == "student":
        return StudentBase.by_em(x, weights)
    return GaussianBase.from_data(x, sample_weight=weights)


def check_open_columns(kind: str) -> None:
    """ValueError for a kind of base that needs columns without a period, where there are none."""
    if kind != "empirical":
        raise ValueError(
            f'base="{kind}" describes columns without a period, and all have one; use '
            'base="empirical"'
        )
