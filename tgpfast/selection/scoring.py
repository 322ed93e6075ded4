"""Held-out log-likelihood of candidates: one fold of the rows, its features, and its scores.

Features are evaluated once, at the rows of a fold and at draws from its base and from a wider one.
Every method and lambda is then linear algebra on them, by the functions of `solvers`. The
normalizer of a score comes from draws that took no part in learning. Half of them are from the
wider base, so that a tilt that grows where the base is thin is seen. Scores are ignored where few
draws carry the density, or where the tilt moves mass away from the data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..bases.quasirandom import logsumexp
from ..density.draws.proposal import Proposal, widen_base
from ..features.evaluation import evaluate_features, sum_features
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..solvers.closed_form import fd_thetas, fvpd_exponent, fvpd_system
from ..solvers.linear_systems import cholesky_factor, shifted
from ..solvers.node_posterior import StoredObjective, weighted_gram
from ..solvers.posterior import maximize_by_newton
from ..solvers.product_posterior import NodeProductObjective, products_pay
from ..statistics.fisher import score_matching_system
from ..validation import Array
from .folds import Split

LEAST_EFFECTIVE_SHARE = 0.005  # of the draws that must carry the density; 40 of 8,192
FAR_BANDWIDTHS = 3.0  # distance from every row, in bandwidths, at which features see no row
MOST_FAR_SHARE = 0.02  # of the mass that may lie so far from every row, beyond the base's own
NEAR_ROWS = 5_000  # rows that distances are taken to
TREE_COLUMNS = 6  # columns up to which a tree finds nearest rows faster than products
FEW_DISTANCES = 2**21  # products find so many in less time than the import of a tree takes
MOST_CELLS = 2.0**52  # numbers of cells up to which floats are exact
DISTANCE_BLOCK = 64  # points whose distances to all rows are held at once
PILOT_MAP_STEPS = 15  # Newton steps for each lambda, at most; each starts at the one before
NO_EQUATIONS = np.zeros((0, 0)), np.zeros(0)
PILOT_MAP_GAIN = 1e-4  # gain of the objective for each row below which the ascent ends


@record
class HeldOutScore:
    """What the rows held out in one fold say of a density.

    Attributes
    ----------
    values : (n,) array
        Log densities of the rows held out.
    effective_share : float
        Effective draws for each draw behind the normalizer.
    far_share : float
        Mass farther than FAR_BANDWIDTHS from every row learned from, less that of the base.
    weights : (n,) array
        Of the rows; they sum to 1.
    """

    values: Array
    effective_share: float
    far_share: float
    weights: Array

    @property
    def is_reliable(self) -> bool:
        """Whether enough draws count, and the tilt has not moved mass away from the data."""
        enough = self.effective_share >= LEAST_EFFECTIVE_SHARE
        return enough and self.far_share <= MOST_FAR_SHARE

    @property
    def mean(self) -> float:
        """Held-out log-likelihood per row; -inf where the score is not reliable."""
        return float(self.weights @ self.values) if self.is_reliable else -np.inf

    def gain_over(self, values: Array) -> HeldOutScore:
        """The score with gains over other log densities as its values."""
        return replace(self, values=self.values - values)


def standard_error(scores: Sequence[HeldOutScore]) -> float:
    """Standard error of the mean over folds of their weighted means.

    The values of all folds are one sample: folds of few rows have densities that differ, and so do
    their means.
    """
    values = np.concatenate([score.values for score in scores])
    weights = np.concatenate([score.weights for score in scores]) / len(scores)
    squares = float(weights @ weights)  # 1 over Kish's number of rows
    if squares >= 1.0:
        return math.inf
    away = values - weights @ values
    return math.sqrt(float(np.square(weights) @ np.square(away)) / (1.0 - squares))


def effective_number(scores: Sequence[HeldOutScore]) -> float:
    """Kish's effective number of the rows that are held out in all folds."""
    return len(scores) ** 2 / sum(float(score.weights @ score.weights) for score in scores)


class Draws(NamedTuple):
    """Points (n, d), and the log of the base's density over that of the draws (n,)."""

    points: Array
    log_ratios: Array


@record
class Fold:
    """A base, the rows of one split, and draws from the base and from a wider one.

    Draws, and all that depends on them, are made when a tilt is first scored.

    Attributes
    ----------
    base : Base
        Learned from the rows that are kept.
    split : Split
    nearby : (n, d) array
        Rows that distances of draws are taken to.
    log2_draws : int
        Number of draws, and of nodes, as a power of two; half of them are from a wider base.
    seed : int
    """

    base: Base
    split: Split
    nearby: Array
    log2_draws: int
    seed: int

    @functools.cached_property
    def held_base(self) -> Array:
        """Log density of the base at the rows held out, (n,)."""
        return self.base.log_density_at(self.split.held)

    @functools.cached_property
    def draws(self) -> Draws:
        """Draws behind normalizers."""
        return self._draw(self.seed + 1)

    @functools.cached_property
    def nodes(self) -> Draws:
        """Draws behind the expectations of MAP."""
        return self._draw(self.seed + 2)

    @functools.cached_property
    def distances(self) -> Array:
        """Distance of every draw to the nearest row, (n_draws,)."""
        return distances_to(self.nearby, self.draws.points)

    def _draw(self, seed: int) -> Draws:
        proposal = Proposal(self.base, widen_base(self.base))
        points = proposal.sobol(self.log2_draws, seed)
        return Draws(points, proposal.log_ratio(points))


def distances_to(rows: Array, points: Array) -> Array:
    """Distance of every point to the nearest row, (n,).

    Many rows of few columns are searched by a tree. In many columns a tree visits every row, and
    matrix products are ten times as fast.
    """
    if rows.shape[1] <= TREE_COLUMNS and len(rows) * len(points) > FEW_DISTANCES:
        from scipy.spatial import cKDTree

        return np.asarray(cKDTree(rows).query(points)[0])
    return _distances_by_products(rows, points)


def distances_between(rows: Array) -> Array:
    """Distances of rows to their nearest neighbors, (n,), in any order; one 0 for a single row."""
    if len(rows) < 2:
        return np.zeros(1)
    if rows.shape[1] == 1:
        gaps = np.diff(np.sort(rows[:, 0]))
        return np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    if len(rows) ** 2 > FEW_DISTANCES:
        from scipy.spatial import cKDTree

        return np.asarray(cKDTree(rows).query(rows, k=2)[0][:, 1])
    return _distances_by_products(rows, rows, are_same=True)


def _distances_by_products(rows: Array, points: Array, *, are_same: bool = False) -> Array:
    """Distances to the nearest row; to the nearest other row where both are the same.

    Products, which lose digits of small distances, find the row; its distance is computed anew.
    """
    center = rows.mean(axis=0)
    rows, points = rows - center, points - center
    lengths, nearest = np.square(rows).sum(axis=1), np.empty(len(points), np.intp)
    doubled = -2.0 * rows.T
    for start in range(0, len(points), DISTANCE_BLOCK):
        part = slice(start, start + DISTANCE_BLOCK)
        products = points[part] @ doubled
        products += lengths
        if are_same:
            np.fill_diagonal(products[:, start:], np.inf)
        nearest[part] = products.argmin(axis=1)
    return np.asarray(np.sqrt(np.square(points - rows[nearest]).sum(axis=1)))


def find_far(rows: Array, points: Array, far: float) -> NDArray[np.bool_]:
    """Whether every row is farther than ``far`` from a point, (n,).

    Points in a cell that holds a row are near: the diagonal of a cell is ``far``. In few columns
    these are most points, and only the others need distances.
    """
    side, low = far / math.sqrt(rows.shape[1]), rows.min(axis=0)
    cells, of_rows = np.floor((points - low) / side), np.floor((rows - low) / side)
    counts = of_rows.max(axis=0) + 1.0
    is_far = np.ones(len(points), np.bool_)
    if counts.prod() < MOST_CELLS:
        strides = np.cumprod(counts) / counts
        inside = ((cells >= 0.0) & (cells < counts)).all(axis=1)
        numbers = (of_rows @ strides).astype(np.int64)
        is_far[inside] = ~np.isin((cells[inside] @ strides).astype(np.int64), numbers)
    is_far[is_far] = distances_to(rows, points[is_far]) > far
    return is_far


class PilotSums(NamedTuple):
    """What the methods need of the rows that are kept: FD and FVPD the system, MAP sum phi.

    equations : A and b of Algorithm 2; empty where only MAP is scored
    """

    features: Features
    n: float
    sum_phi: Array
    equations: tuple[Array, Array] = NO_EQUATIONS


class FoldFeatures:
    """Features at the rows and draws of a fold, feature-major, (S, n) each; they score candidates.

    Parameters
    ----------
    features : Features
    fold : Fold
    threads : Threads
    sums : PilotSums, default those of the rows that the fold keeps
    """

    def __init__(
        self, features: Features, fold: Fold, threads: Threads, sums: PilotSums | None = None
    ) -> None:
        self.features, self.fold, self.threads = features, fold, threads
        self.held, self._held_slopes = self._evaluate(fold.split.held)
        self.draws = self._evaluate(fold.draws.points)[0]
        if sums is None:
            split = fold.split
            sums = self._sum(*self._evaluate(split.kept), split.kept, split.kept_weights)
        self.sums = sums

    @functools.cached_property
    def nodes(self) -> Array:
        """The features at the nodes of MAP."""
        return self._evaluate(self.fold.nodes.points)[0]

    def _evaluate(self, x: Array, features: Features | None = None) -> tuple[Array, Array]:
        return evaluate_features(
            features or self.features, x, origin=self.fold.base.mean, threads=self.threads
        )

    def _sum(self, phi: Array, dphi: Array, x: Array, weights: Array) -> PilotSums:
        """The sums of some rows: their Fisher score is theta A theta / 2 - b theta, over gamma^2,
        more than that of the base."""
        pull = dphi @ (self.fold.base.score_at(x) * weights[:, None])
        psi_prime = -np.einsum("sk,sk->s", self.features.frequencies, pull)
        sum_phi = phi @ weights
        equations = score_matching_system(
            self.features, weighted_gram(dphi, weights), sum_phi, psi_prime
        )
        return PilotSums(self.features, float(weights.sum()), sum_phi, equations)

    # -- theta ------------------------------------------------------------------------------------

    def fd(self, lams: Sequence[float]) -> Array:
        """theta of FD for every lambda, (S, L); nan where the matrix is indefinite."""
        return fd_thetas(*self.sums.equations, lams, self.features.bandwidth)

    def posterior(self, lams: Sequence[float]) -> Array:
        """theta of MAP for falling lambdas, each from the one before, (S, L); nan from where
        rounding leaves the Hessian indefinite."""
        phi = self.nodes
        log_mass = self.fold.nodes.log_ratios - np.log(phi.shape[1])
        theta, least_gain = np.zeros(len(phi)), PILOT_MAP_GAIN * self.sums.n
        found = np.full((len(theta), len(lams)), np.nan)
        plain = StoredObjective(self.sums, lams[-1], phi, log_mass)
        objective = NodeProductObjective(plain) if products_pay(plain) else plain
        for k, lam in enumerate(lams):
            objective.lam = lam
            try:
                ascent = maximize_by_newton(
                    objective, theta, PILOT_MAP_STEPS, least_gain=least_gain
                )
            except np.linalg.LinAlgError:
                break
            found[:, k] = theta = ascent.theta
        return found

    # -- scores -----------------------------------------------------------------------------------

    def score_thetas(self, thetas: Array) -> list[HeldOutScore]:
        """The score of every theta, (S, L)."""
        at_draws, at_held = self.draws.T @ thetas, self.held.T @ thetas
        return [self.score(at_held[:, k], at_draws[:, k]) for k in range(thetas.shape[1])]

    def score_fvpd(self, lam: float, eta: float) -> HeldOutScore:
        """The score of FVPD."""
        matrix, m = fvpd_system(
            *self.sums.equations, self._moments, self.features.bandwidth, eta
        )
        try:
            factor = cholesky_factor(shifted(matrix, lam))
        except np.linalg.LinAlgError:
            return self.score(*(np.full(phi.shape[1], np.nan) for phi in (self.held, self.draws)))
        return self.score(*(fvpd_exponent(factor, m, phi) for phi in (self.held, self.draws)))

    def score(self, at_held: Array, at_draws: Array) -> HeldOutScore:
        """The score of an exponent that is known at the rows held out and at the draws."""
        fold = self.fold
        weights, ratios = fold.split.held_weights, fold.draws.log_ratios
        if not (np.isfinite(at_draws).all() and np.isfinite(at_held).all()):
            return HeldOutScore(np.full(len(at_held), -np.inf), 0.0, 1.0, weights)
        at_draws = at_draws + ratios
        total, of_ratios = float(logsumexp(at_draws)), float(logsumexp(ratios))
        shares, of_base = np.exp(at_draws - total), np.exp(ratios - of_ratios)
        is_far = fold.distances > FAR_BANDWIDTHS * self.features.bandwidth
        # over what the same draws make of the base's mass, which is 1: few draws in many columns
        # miss it by as much as small tilts gain
        values = fold.held_base + at_held - (total - of_ratios)
        effective = 1.0 / float(shares @ shares) / len(at_draws)
        return HeldOutScore(values, effective, float((shares - of_base) @ is_far), weights)

    def fisher_scores(self, thetas: Array) -> Array:
        """Held-out Fisher score of every theta (S, L), per row, less that of the base; inf where
        theta is not known."""
        split = self.fold.split
        sums = self._sum(self.held, self._held_slopes, split.held, split.held_weights)
        system, b = sums.equations
        scores = 0.5 * np.einsum("sl,sl->l", thetas, system @ thetas) - b @ thetas
        scores = scores / self.features.bandwidth**2
        return np.asarray(np.where(np.isfinite(scores), scores, np.inf))

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and covariance of the features under the base, the same for every lambda and eta."""
        return self.fold.base.feature_moments(self.features, **self.threads.options)


class PosteriorFeatures(FoldFeatures):
    """The same with no more of the rows that the fold keeps than MAP needs: sum phi.

    `grow` takes more features and rows; what was evaluated and summed before is not visited again.

    Parameters
    ----------
    features : Features
        The most that are taken.
    fold : Fold
    threads : Threads
    n_features : int
        The first so many are taken now.
    n_rows : int
        Of so many rows, the first of those that the fold keeps.
    """

    def __init__(
        self, features: Features, fold: Fold, threads: Threads, n_features: int, n_rows: int
    ) -> None:
        self._most, self._n_rows = features, n_rows
        few, nothing = features.first(n_features), PilotSums(features, 0.0, np.zeros(0))
        super().__init__(few, fold, threads, nothing)
        self._set_sums(self._sum_rows(few, slice(n_rows)))

    def grow(self, n_features: int, n_rows: int) -> None:
        """Take the first so many features and rows, no fewer than before."""
        old, most = self.features, self._most
        sum_phi = self.sums.sum_phi + self._sum_rows(old, slice(self._n_rows, n_rows))
        self._n_rows, n_old = n_rows, old.n_features
        if n_features > n_old:
            new = replace(
                most, frequencies=most.frequencies[n_old:n_features],
                phases=most.phases[n_old:n_features],
            )  # fmt: skip
            # the amplitude of a feature is that of a set of n_features
            shares = [math.sqrt(f.n_features / n_features) for f in (old, new)]

            def join(known: Array, added: Array) -> Array:
                return np.concatenate([shares[0] * known, shares[1] * added])

            fold = self.fold
            self.held = join(self.held, self._evaluate(fold.split.held, new)[0])
            self.draws = join(self.draws, self._evaluate(fold.draws.points, new)[0])
            self.nodes = join(self.nodes, self._evaluate(fold.nodes.points, new)[0])
            sum_phi = join(sum_phi, self._sum_rows(new, slice(n_rows)))
            self.features = most.first(n_features)
        self._set_sums(sum_phi)

    def _sum_rows(self, features: Features, rows: slice) -> Array:
        split = self.fold.split
        return sum_features(
            features, split.kept[rows], split.kept_weights[rows], origin=self.fold.base.mean,
            threads=self.threads,
        )  # fmt: skip

    def _set_sums(self, sum_phi: Array) -> None:
        n = float(self.fold.split.kept_weights[: self._n_rows].sum())
        self.sums = PilotSums(self.features, n, sum_phi)
