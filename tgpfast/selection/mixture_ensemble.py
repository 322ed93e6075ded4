"""Averages of several grown mixtures, with a kernel estimate beside them where rows are few.

With periodic columns there are two kinds: mixtures of all columns, whose components are wrapped
around the periods, and mixtures of the open columns, times a distribution of each periodic column.
The first follow how columns depend on the hour, the second need fewer components where they do not.

A mixture that is grown by splits follows the rows that it happens to hold out. The average of a few
of them, grown without different rows, has a higher held-out likelihood than each: on 15,000 rows of
ten columns (MAGIC) three had -4.15 to -4.29 nats per row, and their average -3.81. Members begin
with one component each: from the mixture of twelve that `compare_scales` has grown, all or the
first of them took as long (0.95 to 0.96 s against 0.97, 5.7 to 5.8 against 5.6), and averages lost
0.07 or 0.01 nats on MAGIC and on 20 clusters of six columns.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..bases.base import Base
from ..bases.bounded import confine_base
from ..bases.domain import Domain
from ..bases.expectation_maximization import measure_columns
from ..bases.kernel_estimate import choose_kernel_covariance, make_kernel_mixture
from ..bases.mixture import MixtureBase, average_mixtures
from ..bases.mixture_growth import GrownMixture, grow_mixture, weighted_mean
from ..kernels.thread_choice import Threads
from ..validation import Array
from .base_fits import check_open_columns
from .effort import Budget
from .folds import Mask, Split, assign_folds, held_out_masks

if TYPE_CHECKING:
    from ..bases.wrapped_mixture import GrownWrappedMixture

ONE_IN_JUDGES = 10  # one row in so many decides on the size of a member
KERNEL_ROWS = 2_000  # rows up to which a kernel estimate is tried: it has a component for each
AVERAGING_LOG2_DRAWS = 9  # draws behind the gain of averaging, as a power of two
# Nats that one draw may gain over one member. Draws of a component for one outlier, which other
# members lack, gained hundreds: 7.5 nats on average, where held-out rows gained 0.3.
LARGEST_AVERAGING_GAIN = 20.0
SHARE_STEPS = 50  # steps of EM for the share of the kernel estimate
# The kernel estimate is slow to evaluate; its gain must exceed so many standard errors of the gain,
# and so many nats per row.
KERNEL_ERRORS, LEAST_KERNEL_GAIN = 2.0, 0.02
# Periodic columns up to which components are wrapped: each doubles their images, at least. On 500
# and 5,000 rows of four angles in six clusters wrapped mixtures gained 0.4 nats over other bases;
# on 1,000 rows of six angles 2.0 nats, in a fit of twice the time.
MOST_WRAPPED_COLUMNS = 6
# Standard errors that components of all columns must gain over a product, where some columns have
# no period. On 60 rows of independent columns they gained up to 2.3 of them by luck, and lost up to
# 0.3 nats at new rows; on 60 rows of dependent columns they gained 3 to 12, and 0.5 to 1.2 nats.
WRAPPING_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class MixtureEnsemble:
    """Mixtures grown on parts of the same rows.

    Attributes
    ----------
    x : (n, d) array
    weights : (n,) array
    budget : Budget
        Number of members, and the work that they may take.
    has_folds : bool, default True
        Whether rows of these score the members; where other rows do, more are learned from.
    seed : int, default 0
        Of the first member.
    threads : Threads
    domain : Domain or None, default None
        Its periodic columns are wrapped around, or have distributions of their own.
    """

    x: Array
    weights: Array
    budget: Budget
    has_folds: bool = field(default=True, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    threads: Threads = field(default_factory=Threads, kw_only=True)
    domain: Domain | None = field(default=None, kw_only=True)

    @property
    def _has_periods(self) -> bool:
        return self.domain is not None and bool(self.domain.periodic.any())

    def _open_columns(self, x: Array) -> Array:
        return x[:, ~self.domain.periodic] if self.domain is not None else x

    @functools.cached_property
    def judged(self) -> list[tuple[Mask, Mask]]:
        """Masks of the rows without which each member is grown, and of those of them that decide on
        its size.

        With folds, half of one decides, so that the other half can score the member.
        """
        n, budget = len(self.x), self.budget
        if not self.has_folds:
            parts = assign_folds(n, ONE_IN_JUDGES)
            return [(parts == k, parts == k) for k in range(budget.n_members)]
        folds = held_out_masks(n)[: budget.n_folds]
        return [(fold, fold & (np.cumsum(fold) % 2 == 1)) for fold in folds]

    @functools.cached_property
    def open_members(self) -> list[GrownMixture]:
        """The mixtures of columns without a period, grown once.

        Raises
        ------
        ValueError
            If the rows lie in a plane, or every column has a period.
        """
        x, w = self._open_columns(self.x), self.weights
        if not x.shape[1]:
            check_open_columns("mixture")
        work = self._work_of_member
        return [
            grow_mixture(
                *(x[~out], w[~out], x[judges], w[judges]), max_work=work, seed=self.seed + k,
                threads=self.threads,
            )
            for k, (out, judges) in enumerate(self.judged)
        ]

    @property
    def _work_of_member(self) -> float:
        has_both = self._may_wrap and self._open_columns(self.x).shape[1] > 0
        kinds = 2 if has_both else 1
        return self.budget.growth_work / (kinds * len(self.judged))

    @property
    def _may_wrap(self) -> bool:
        if self.domain is None or not self._has_periods:
            return False
        return int(self.domain.periodic.sum()) <= MOST_WRAPPED_COLUMNS

    @functools.cached_property
    def wrapped_members(self) -> list[GrownWrappedMixture]:
        """Mixtures of all columns, wrapped around those with a period, grown once."""
        from ..bases.wrapped_mixture import cut_open, grow_wrapped_mixture

        assert self.domain is not None
        x, w, cut = self.x, self.weights, cut_open(self.x, self.weights, self.domain)
        return [
            grow_wrapped_mixture(
                x[~out], w[~out], x[judges], w[judges], cut, max_work=self._work_of_member,
                seed=self.seed + k, threads=self.threads,
            )
            for k, (out, judges) in enumerate(self.judged)
        ]

    @functools.cached_property
    def is_wrapped(self) -> bool:
        """Whether mixtures of all columns gain WRAPPING_ERRORS standard errors at rows that no
        member was fitted to: those that score, or that decide on the size where none scores."""
        if not self._may_wrap or self.domain is None or self.domain.periodic.all():
            return self._may_wrap  # without open columns there is nothing to compare with
        gains, shares = [], []
        for k, (out, judges) in enumerate(self.judged):
            held = out & ~judges if self.has_folds else judges
            apart = self._multiply(
                self.open_members[k].mixture, self.x[~out], self.weights[~out]
            )
            together = self._wrap(self.wrapped_members[k].mixture)
            x = self.x[held]
            gains.append(together.log_density_at(x) - apart.log_density_at(x))
            shares.append(self.weights[held])
        share = np.concatenate(shares)
        gain, error = weighted_mean(np.concatenate(gains), share / share.sum())
        return gain > WRAPPING_ERRORS * error

    @functools.cached_property
    def members(self) -> Sequence[GrownMixture | GrownWrappedMixture]:
        """The mixtures of the kind that is taken."""
        return self.wrapped_members if self.is_wrapped else self.open_members

    @functools.cached_property
    def splits(self) -> list[Split]:
        """With folds: rows that each member is learned from, and rows that score it."""
        return [
            Split.at(self.x, self.weights, out)._replace(
                held=self.x[scored], held_weights=self.weights[scored] / self.weights[scored].sum()
            )
            for out, judges in self.judged
            for scored in [out & ~judges]
        ]

    def fit_without(self, k: int) -> Base:
        """The mixture for fold k, which has not seen the rows that score it."""
        split = self.splits[k]
        return self._complete(self.members[k].mixture, split.kept, split.kept_weights)

    @functools.cached_property
    def averaging_gain(self) -> float:
        """Nats per row by which the average of members is expected to beat one of them.

        ``fit_without`` gives one member, since the others have seen the rows that score it, and
        ``fit`` gives the average, which is better. The gain is the mean over draws of the average
        of its log density less the mean log density of the members: 0.06 to 1.3 on 17 tables of
        120 to 1,200 rows, where test rows gained 0.05 to 1.0. It is 0 beside a kernel estimate.
        No draw gains more than LARGEST_AVERAGING_GAIN over a member.
        """
        members = [member.mixture for member in self.members[: self.budget.n_members]]
        average = average_mixtures(members)
        if average is members[0] or self.kernel is not None:
            return 0.0
        bases, final = [self._wrap(member) for member in members], self._wrap(average)
        draws = final.draw_sobol(AVERAGING_LOG2_DRAWS, self.seed)
        at_average = final.log_density_at(draws)
        gains = [at_average - base.log_density_at(draws) for base in bases]
        return float(np.mean(np.minimum(gains, LARGEST_AVERAGING_GAIN)))

    def fit(self, x: Array, weights: Array) -> Base:
        """The average of members after some steps of EM on rows."""
        n = self.budget.n_members
        if self.is_wrapped:
            members = [member.refit(x, weights) for member in self.wrapped_members[:n]]
        else:
            columns = self._open_columns(x)
            standards = measure_columns(columns, weights)
            members = [
                member.refit(columns, weights, standards) for member in self.open_members[:n]
            ]
        return self._complete(average_mixtures(members), x, weights)

    def _complete(self, mixture: MixtureBase, x: Array, weights: Array) -> Base:
        """The base of all columns with this mixture."""
        if self.is_wrapped:
            return self._wrap(mixture)
        if self._has_periods:
            return self._multiply(mixture, x, weights)
        return self._with_kernel(mixture, x, weights)

    def _wrap(self, mixture: MixtureBase) -> Base:
        """The mixture wrapped around the periods, if it is one of all columns."""
        if self.domain is None or mixture.dimension < self.domain.dimension:
            return mixture
        return confine_base(mixture, self.domain)

    def _multiply(self, mixture: MixtureBase, x: Array, weights: Array) -> Base:
        """A mixture of the open columns, times the distributions of the others."""
        from .circle_fits import multiply_by_fitted_circles

        assert self.domain is not None
        return multiply_by_fitted_circles(mixture, x, weights, self.domain)

    # -- the kernel estimate ----------------------------------------------------------------------

    @functools.cached_property
    def kernel(self) -> tuple[Array, float] | None:
        """Covariance of the kernel, and the share of the kernel estimate in the mixture; None where
        it gains too little on the rows that score."""
        may_help = self.budget.has_kernel and self.has_folds and not self._has_periods
        if not may_help or len(self.x) > KERNEL_ROWS:
            return None
        within = np.mean([m.mixture.covariance_within for m in self.members], axis=0)
        covariance = choose_kernel_covariance(self.x, self.weights, within)
        gaps, shares = [], []
        for member, split in zip(self.members, self.splits, strict=True):
            kernel = make_kernel_mixture(split.kept, split.kept_weights, covariance)
            at_kernel = kernel.log_density_at(split.held)
            gaps.append(at_kernel - member.mixture.log_density_at(split.held))
            shares.append(split.held_weights / len(self.members))
        return _judge_kernel(covariance, np.concatenate(gaps), np.concatenate(shares))

    def _with_kernel(self, mixture: MixtureBase, x: Array, weights: Array) -> MixtureBase:
        if self.kernel is None:
            return mixture
        covariance, share = self.kernel
        kernel = make_kernel_mixture(x, weights, covariance)
        return average_mixtures([mixture, kernel], [1.0 - share, share])


def _judge_kernel(
    covariance: Array, gaps: Array, weights: Array
) -> tuple[Array, float] | None:
    """The covariance with the share that maximizes the likelihood of rows; None where they gain
    less than KERNEL_ERRORS standard errors or LEAST_KERNEL_GAIN.

    gaps : log of the kernel estimate over the mixture, (n,); weights : they sum to 1
    """
    share, ratio = 0.5, np.exp(np.minimum(gaps, 500.0))  # exp(500) is finite
    for _ in range(SHARE_STEPS):
        share = float(weights @ (share * ratio / (1.0 - share + share * ratio)))
    gain, error = weighted_mean(np.log1p(share * (ratio - 1.0)), weights)
    return (covariance, share) if gain > max(KERNEL_ERRORS * error, LEAST_KERNEL_GAIN) else None
