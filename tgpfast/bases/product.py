"""`ProductBase`: independent groups of columns, each with a base of its own."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.scaling import Scaling
from ..validation import Array
from .base import Base, load_base, register_base
from .domain import Domain, domain_of


@register_base
class ProductBase(Base):
    """Independent groups of columns, each with a base of its own.

    Parameters
    ----------
    factors : list of Base
        A product among them is replaced by its factors.
    columns : list of lists of int, default None
        Columns of each factor, which together are 0 .. d - 1. By default the columns of the factors
        follow each other.

    Raises
    ------
    ValueError
        There is no factor, or the columns are not 0 .. d - 1 or not those of the factors.

    Examples
    --------
    A Gaussian column beside one that is uniform on [0, 1]:

    >>> from tgpfast.bases.bounded import UniformBase
    >>> from tgpfast.bases.gaussian import GaussianBase
    >>> base = ProductBase([GaussianBase([0.0], [[1.0]]), UniformBase([0.0], [1.0])])
    >>> base.log_density([[0.0, 0.5]]).round(4).tolist()
    [-0.9189]
    """

    kind = "product"
    each: list[tuple[Base, list[int]]]  # factors and their columns

    def __init__(
        self, factors: Sequence[Base], columns: Sequence[Sequence[int]] | None = None
    ) -> None:
        if not factors:
            raise ValueError("a product needs at least one base")
        if columns is None:
            columns = _follow([factor.dimension for factor in factors])
        each = self.each = []
        for factor, mine in zip(factors, columns, strict=True):
            whole = [(factor, [*range(len(mine))])]
            inner = factor.each if isinstance(factor, ProductBase) else whole
            each += [(part, [int(mine[k]) for k in places]) for part, places in inner]
        self.factors = tuple(factor for factor, _ in each)
        widths, places = [f.dimension for f in self.factors], [c for _, c in each]
        d = sum(widths)
        if [len(c) for c in places] != widths or sorted(itertools.chain(*places)) != [*range(d)]:
            raise ValueError(
                f"columns={[list(c) for c in columns]}: expected 0 to {d - 1} once each, and as "
                f"many for each factor as it has columns: {widths}"
            )
        self.mean, self.covariance = np.empty(d), np.zeros((d, d))
        for factor, mine in each:
            self.mean[mine] = factor.mean
            self.covariance[np.ix_(mine, mine)] = factor.covariance

    @functools.cached_property
    def domain(self) -> Domain:
        """The domains of the factors, joined."""
        low, high, periodic = np.empty((3, self.dimension))
        for factor, mine in self.each:
            part = domain_of(factor)
            low[mine], high[mine], periodic[mine] = part.low, part.high, part.periodic
        return Domain(low, high, periodic)

    def log_density_at(self, x: Array) -> Array:
        """Log density of checked rows, (n,)."""
        return np.sum([f.log_density_at(_columns_of(x, c)) for f, c in self.each], axis=0)

    def score_at(self, x: Array) -> Array:
        """Gradient of the log density at checked rows, (n, d)."""
        return self._join([f.score_at(_columns_of(x, c)) for f, c in self.each])

    def laplacian_at(self, x: Array, stretch: Array) -> Array:
        """Sum over k of stretch_k^2 times the second derivative in column k, (n,)."""
        return np.sum([f.laplacian_at(_columns_of(x, c), stretch[c]) for f, c in self.each], axis=0)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n independent draws, (n, d)."""
        return self._join([factor.draw(n, rng) for factor in self.factors])

    def draw_sobol(self, log2_n: int, seed: int) -> Array:
        """2^log2_n draws, quasi-random within each factor, and paired at random."""
        rngs = (np.random.default_rng([seed, j]) for j in range(len(self.factors)))
        return self._join([
            factor.draw_sobol(log2_n, seed)[rng.permutation(2**log2_n)]
            for factor, rng in zip(self.factors, rngs, strict=True)
        ])  # fmt: skip

    def _join(self, parts: Sequence[Array]) -> Array:
        """Arrays (n, columns of a factor), as one of all columns."""
        x = np.empty((len(parts[0]), self.dimension))
        for part, (_, columns) in zip(parts, self.each, strict=True):
            x[:, columns] = part
        return x

    def rescaled(self, scaling: Scaling) -> ProductBase:
        """The same base in the coordinates u = (x - shift) / scale."""
        factors = [
            f.rescaled(Scaling(scaling.shift[c], scaling.scale[c])) for f, c in self.each
        ]
        return ProductBase(factors, [columns for _, columns in self.each])

    def parameters(self) -> dict[str, Array]:
        """Parameters of the factors; number and kind of the factor stand before their names. And
        the columns of all factors, where they do not follow each other."""
        own = {
            f"factor{j}__{factor.kind}__{name}": array
            for j, factor in enumerate(self.factors)
            for name, array in factor.parameters().items()
        }
        order = [*itertools.chain(*(columns for _, columns in self.each))]
        return own if order == sorted(order) else own | {"columns": np.array(order, float)}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> ProductBase:
        """The inverse of `parameters`."""
        groups: dict[tuple[int, str], dict[str, Any]] = {}
        for name, array in parameters.items():
            if name != "columns":
                place, kind, argument = name.split("__")
                groups.setdefault((int(place.removeprefix("factor")), kind), {})[argument] = array
        factors = [load_base(kind, groups[place, kind]) for place, kind in sorted(groups)]
        columns = _follow([factor.dimension for factor in factors])
        if "columns" in parameters:
            order = [int(k) for k in parameters["columns"]]
            columns = [[order[k] for k in places] for places in columns]
        return cls(factors, columns)

    def __repr__(self) -> str:
        return f"ProductBase({', '.join(map(repr, self.factors))})"


def _follow(widths: Sequence[int]) -> list[list[int]]:
    """Columns of factors of these widths that follow each other."""
    ends = [*itertools.accumulate(widths, initial=0)]
    return [[*range(a, b)] for a, b in itertools.pairwise(ends)]


def _columns_of(x: Array, columns: list[int]) -> Array:
    return np.ascontiguousarray(x[:, columns])
