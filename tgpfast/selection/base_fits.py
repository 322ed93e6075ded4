"""Bases of every kind that `fit` knows by a word, learned from rows."""

from __future__ import annotations

from typing import Any

from ..bases.base import Base
from ..bases.gaussian import GaussianBase
from ..bases.mixture import MixtureBase, fit_mixture
from ..bases.student import StudentBase
from ..validation import Array


def fit_base(
    kind: Any, x: Array, weights: Array, *, seed: int = 0, least_components: int = 1
) -> Base:
    """A base learned from rows.

    Parameters
    ----------
    kind : "empirical", "student", "mixture", or a Base, which is returned as it is
    x : (n, d) array
    weights : (n,) array
    seed : int, default 0
        Of the starts of a mixture.
    least_components : int, default 1
        Of a mixture, the guard component not counted.

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
        mixture = MixtureBase._by_em(x, weights, None, seed, least=least_components)
        return mixture.with_guard(x, weights)
    return GaussianBase.from_data(x, sample_weight=weights)


def refit_base(base: Base, x: Array, weights: Array) -> Base:
    """The base learned again from more rows, starting at what it is.

    A Gaussian stays: it has the moments of all rows already.
    """
    if isinstance(base, GaussianBase):
        return base
    if isinstance(base, MixtureBase):
        mixture = fit_mixture(x, weights, base.n_components, start=base).mixture
        return mixture.with_guard(x, weights)
    return fit_base(base.kind, x, weights)


def n_fitted_components(base: Base) -> int:
    """Components of a mixture without its guard; 1 for other bases."""
    return base.without_guard().n_components if isinstance(base, MixtureBase) else 1
