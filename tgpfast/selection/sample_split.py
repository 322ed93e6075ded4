"""The sample of the rows of one `fit`: the part that is held out, and bases learned without it."""

from __future__ import annotations

import functools
from dataclasses import field

import numpy as np

from ..bases.base import Base
from ..bases.bounded import BoundedMixtureBase
from ..bases.domain import Domain
from ..bases.expectation_maximization import measure_columns
from ..bases.gaussian import GaussianBase
from ..bases.mixture import EM_ROWS, GUARD_WIDTH, MixtureBase
from ..bases.product import ProductBase
from ..data.blocks import Blocks
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..statistics.transforms import TRANSFORM_DIMENSIONS
from ..validation import Array
from .base_fits import fit_base
from .effort import Budget
from .folds import FEW_ROWS, Mask, Split, assign_folds, distinct_rows
from .mixture_ensemble import MixtureEnsemble

REFINEMENT_FOLDS = 10  # one of ten rows of the sample is held out
# Width of the guard of a mixture along columns whose walls maps take to infinity, as a share of the
# usual one: one standard deviation of the column. Ten deviations after the map of a price are
# millions of it, and a density t^p at a distance t from a wall is t^((1 + p) / w^2 - 1) in a guard
# w deviations wide, which has a pole for wide ones.
MAPPED_GUARD = 1.0 / GUARD_WIDTH


@record
class SampleSplit:
    """Distinct rows of a random sample, and which of them are held out of all learning.

    Attributes
    ----------
    x : (n, d) array
        In the model's coordinates.
    weights : (n,) array
    held : (n,) array of bool
        One row in REFINEMENT_FOLDS; none where rows are few.
    seed : int, default 0
        Of the growth of a mixture.
    threads : Threads
    budget : Budget
        Of the growth of mixtures.
    domain : Domain or None, default None
        Its periodic columns have bases of their own.
    mapped_walls : (d,) array of bool or None, default None
        Columns whose walls maps have taken to infinity. Guards of mixtures are narrower there.
    may_guard : bool, default False
        Whether a Gaussian may have a guard component.
    """

    x: Array
    weights: Array
    held: Mask
    seed: int = field(default=0, kw_only=True)
    threads: Threads = field(default_factory=Threads, kw_only=True)
    budget: Budget = field(default_factory=Budget, kw_only=True)
    domain: Domain | None = field(default=None, kw_only=True)
    mapped_walls: Mask | None = field(default=None, kw_only=True)
    may_guard: bool = field(default=False, kw_only=True)
    _mixtures: dict[bool, Base] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, rows: Blocks, *, seed: int = 0, threads: Threads | None = None,
        effort: str = "balanced", may_guard: bool = False,
    ) -> SampleSplit | None:  # fmt: skip
        """A sample of the rows; None where they can be read only once and none was kept."""
        pilot = rows.pilot(EM_ROWS)
        if pilot is None:
            return None
        x, weights = distinct_rows(pilot)
        held = (assign_folds(len(x), REFINEMENT_FOLDS) == 0) & (len(x) > FEW_ROWS)
        budget = Budget.for_rows(effort, len(x), x.shape[1])
        return cls(
            x, weights, held, seed=seed, threads=threads or Threads(), budget=budget,
            may_guard=may_guard,
        )  # fmt: skip

    @property
    def holds_out(self) -> bool:
        """Whether there are rows that bases have not seen."""
        return bool(self.held.any())

    @property
    def guards_gaussian(self) -> bool:
        """Whether a Gaussian has a guard component, as mixtures have: with few rows one outlier
        among new ones would cost more than all others gain. Lattices need a plain one."""
        return self.may_guard and not self.holds_out and self.x.shape[1] > TRANSFORM_DIMENSIONS

    @functools.cached_property
    def resolution(self) -> Array:
        """Steps of the columns, (d,), close to 0 for continuous ones."""
        return measure_columns(self.x, self.weights).resolution

    @functools.cached_property
    def ensemble(self) -> MixtureEnsemble:
        """Mixtures grown once, without the rows held out; every other one is a refit of them."""
        kept = ~self.held
        return MixtureEnsemble(
            self.x[kept], self.weights[kept], self.budget, has_folds=not self.holds_out,
            seed=self.seed, threads=self.threads, domain=self.domain,
        )  # fmt: skip

    def fit_base(self, kind: str, *, use_all: bool = False) -> Base:
        """A base learned without the rows held out, unless ``use_all``; see `base_fits`."""
        use_all = use_all or not self.holds_out
        kept = ~self.held | use_all
        narrow = self.mapped_walls
        if kind != "mixture":
            base = fit_base(
                kind, self.x[kept], self.weights[kept], domain=self.domain,
                has_guard=self.guards_gaussian,
            )  # fmt: skip
            return base if narrow is None else narrow_guard(base, narrow)
        if use_all not in self._mixtures:
            base = self.ensemble.fit(self.x[kept], self.weights[kept])
            self._mixtures[use_all] = base if narrow is None else narrow_guard(base, narrow)
        return self._mixtures[use_all]

    def refit_base(self, base: Base) -> Base:
        """A base of `fit_base`, learned again, also from the rows that were held out.

        A Gaussian stays: it has the moments of all rows already.
        """
        if not self.holds_out or isinstance(base, GaussianBase):
            return base
        return self.fit_base(self._kind_of(base), use_all=True)

    def _kind_of(self, base: Base) -> str:
        """The word for a base of `fit_base`: that of the columns without a period."""
        is_product = isinstance(base, ProductBase)
        if is_product and self.domain is not None and self.domain.periodic.all():
            return "empirical"
        rest = base.factors[-1] if isinstance(base, ProductBase) else base
        is_mixture = isinstance(rest, MixtureBase | BoundedMixtureBase)
        return "mixture" if is_mixture else rest.kind

    def split(self, most_kept: int) -> Split:
        """At most ``most_kept`` random rows of those that are kept, and all that are held out."""
        chosen = np.random.default_rng(0).permutation(np.flatnonzero(~self.held))[:most_kept]
        held = self.weights[self.held]
        return Split(
            self.x[chosen], self.weights[chosen], self.x[self.held], held / held.sum()
        )


def narrow_guard(base: Base, mapped_walls: Mask) -> Base:
    """The base with guards of its mixtures that are narrower along some columns.

    Parameters
    ----------
    base : Base
    mapped_walls : (d,) array of bool
        Columns whose walls are mapped to infinity.
    """
    if isinstance(base, ProductBase):
        factors = [narrow_guard(factor, mapped_walls[columns]) for factor, columns in base.each]
        return ProductBase(factors, [columns for _, columns in base.each])
    factors_of_columns = np.where(mapped_walls, MAPPED_GUARD, 1.0)
    if isinstance(base, BoundedMixtureBase):
        return BoundedMixtureBase.confine(
            base.mixture.with_narrower_guard(factors_of_columns), base.domain
        )
    if isinstance(base, MixtureBase):
        return base.with_narrower_guard(factors_of_columns)
    return base
