"""Held-out log-likelihoods of lattice densities, from sums over the folds of the rows.

The sums of every fold are known (`accumulate_lattice_folds`), so that no candidate reads the data:
the sums of the rows learned from are the total less the fold, and the held-out log-likelihood is
linear in the sums of the fold. Its normalizer is taken on a finer grid than the one that the
candidate was learned on, which sees spikes between the nodes. All folds run in one call, and every
candidate starts from the solution of the nearest one before.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..bases.base import Base
from ..bases.node_masses import BaseGrids, NodeMasses, log_partition
from ..features.lattice import OVERSAMPLING, LatticeFeatures
from ..features.lattice_transform import Modes
from ..runtime.records import record
from ..solvers.conjugate_gradients import Operator, inner_products
from ..solvers.lattice_posterior import LatticePosteriors, maximize_posteriors
from ..solvers.small_lattice import FeatureCovariance, is_small
from ..statistics.lattice_statistics import LatticeStatistics
from ..validation import Array
from .candidates import BASE_ALONE

FINER = {1: 2.0, 2: 2.0, 3: 1.5}  # nodes along an axis of the finer grid, as a multiple
SEARCH_GAIN = 1e-4  # nats a row that a Newton step promises where a candidate is solved enough
# Rows drawn from the base that count beside the held-out ones in the gain of a tilt. Few rows
# seldom lie where a tilt lowers the base, and their gains look alike: without them no bar up to 3.5
# standard errors kept 50 exponential rows in two columns from losing 0.1 nats
PRIOR_ROWS = 1.0


@dataclass(frozen=True)
class LatticeCandidate:
    """Settings of a lattice density.

    Attributes
    ----------
    kernel : str
    bandwidth : float
    lam : float
        BASE_ALONE for the base alone.
    n_modes : int
        Along the longest axis.
    base : str
        Name of the base.
    """

    kernel: str
    bandwidth: float
    lam: float
    n_modes: int
    base: str

    @property
    def is_base_alone(self) -> bool:
        """Whether there is no tilt."""
        return self.lam == BASE_ALONE

    @property
    def smoothness(self) -> tuple[float, float]:
        """Larger is smoother, roughly: by the variance of f's slope under the prior."""
        return (self.lam * self.bandwidth, -float(self.n_modes))


@record
class ScoredCandidate:
    """A candidate and what held-out rows say of it.

    Attributes
    ----------
    candidate : LatticeCandidate
    score : float
        Mean held-out log-likelihood of a row.
    theta : (folds, mode shape) array, or None for a base alone
    log_z : (folds,) array, or None
        On the finer grid.
    """

    candidate: LatticeCandidate
    score: float
    theta: Modes | None = None
    log_z: Array | None = None


@record
class HeldOutRows:
    """A sample of the held-out rows, by which standard errors of differences are estimated.

    Attributes
    ----------
    x : (n, d) array
    fold : (n,) ints
        Place of each row's fold among those held out.
    weights : (n,) array
    """

    x: Array
    fold: NDArray[np.int64]
    weights: Array

    def of_fold(self, place: int) -> HeldOutRows:
        """The rows of one fold."""
        mine = self.fold == place
        return HeldOutRows(self.x[mine], self.fold[mine], self.weights[mine])

    def sum_log_densities(self, bases: Sequence[Base]) -> Array:
        """Sums over each fold of the log density of its base."""
        parts = [self.of_fold(place) for place in range(len(bases))]
        return np.array([
            float(part.weights @ base.log_density_at(part.x))
            for part, base in zip(parts, bases, strict=True)
        ])  # fmt: skip

    @property
    def effective_number(self) -> float:
        """Number of rows of equal weight whose mean is as uncertain."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))

    def standard_error(self, values: Array) -> float:
        """Standard error of the weighted mean of values at the rows."""
        share = self.weights / self.weights.sum()
        return math.sqrt(float(np.square(share) @ np.square(values - float(share @ values))))

    def expected_gain(
        self, gain: float, gains: Array, of_base: tuple[float, float]
    ) -> tuple[float, float]:
        """Mean and standard deviation of the expected gain of a tilt, given these rows.

        The distribution of the rows has a Dirichlet process prior with PRIOR_ROWS rows of the base.

        Parameters
        ----------
        gain : float
            Mean over the rows.
        gains : (n,) array
            Of each row.
        of_base : (mean, mean square)
            Of the gain under the base.
        """
        n, (mean, square) = self.effective_number, of_base
        total = n + PRIOR_ROWS
        found = (n * gain + PRIOR_ROWS * mean) / total
        squares = n * (n * self.standard_error(gains) ** 2 + gain**2) + PRIOR_ROWS * square
        variance = max(squares / total - found**2, 0.0) / (total + 1.0)
        return found, math.sqrt(variance)


@dataclass(eq=False)
class LatticeSearch:
    """Scores candidates on the folds of the rows.

    Attributes
    ----------
    features : LatticeFeatures
        The box, and the most modes.
    folds : list of LatticeStatistics
        Sums of every fold.
    held : list of int
        Numbers of the folds that are held out in turn.
    bases : dict
        Name -> one base for each held-out fold, learned without its rows. The sums of log densities
        of ``folds`` are in the order of this dictionary.
    workers : int, default 1
        Threads of each FFT.
    must_resolve : bool, default True
        Score tilts of a base that no affordable grid resolves as minus infinity.

    ``log_base`` has the sums of the log density of each base over each held-out fold.
    """

    features: LatticeFeatures
    folds: Sequence[LatticeStatistics]
    held: Sequence[int]
    bases: dict[str, list[Base]]
    workers: int = 1
    must_resolve: bool = True
    log_base: dict[str, Array] = field(init=False)
    _scored: dict[LatticeCandidate, ScoredCandidate] = field(default_factory=dict)
    _parts: dict[int, tuple[LatticeFeatures, Modes, Modes, Array]] = field(default_factory=dict)
    _tapers: dict[tuple[int, ...], Array] = field(default_factory=dict)
    _covariances: dict[tuple[int, ...], FeatureCovariance] = field(default_factory=dict)

    @functools.cached_property
    def held_n(self) -> Array:
        """Sums of weights of the held-out folds."""
        return np.array([self.folds[k].n for k in self.held])

    def __post_init__(self) -> None:
        self.log_base = {
            name: np.array([self.folds[k].sum_log_bases[place] for k in self.held])
            for place, name in enumerate(self.bases)
        }
        self._grids = {name: self._grids_of(bases) for name, bases in self.bases.items()}

    def _grids_of(self, bases: Sequence[Base]) -> list[BaseGrids]:
        return [BaseGrids(base, self.features, self._tapers) for base in bases]

    def add_base(self, name: str, bases: list[Base], log_base: Array) -> None:
        """Add a base to those that can be scored.

        Parameters
        ----------
        name : str
        bases : list of Base
            One for each held-out fold, learned without its rows.
        log_base : (folds,) array
            Sums of its log density over each held-out fold.
        """
        self.bases[name], self.log_base[name] = bases, log_base
        self._grids[name] = self._grids_of(bases)

    def with_held(self, held: Sequence[int]) -> LatticeSearch:
        """A search with these folds held out, without bases and candidates."""
        workers, must_resolve = self.workers, self.must_resolve
        return LatticeSearch(
            self.features, self.folds, held, {}, workers, must_resolve=must_resolve
        )  # fmt: skip

    def lattice(self, n_modes: int) -> LatticeFeatures:
        """The lattice with this number of modes along its longest axis."""
        return self._part(n_modes)[0]

    def _part(self, n_modes: int) -> tuple[LatticeFeatures, Modes, Modes, Array]:
        """(lattice, sums learned from, sums held out, weights learned from) of the held-out
        folds."""
        if n_modes not in self._parts:
            self._parts[n_modes] = self._make_part(n_modes)
        return self._parts[n_modes]

    def _make_part(self, n_modes: int) -> tuple[LatticeFeatures, Modes, Modes, Array]:
        steps = self.features.frequency_steps  # the longest axis has the smallest
        counts = np.ceil(n_modes * steps.min() / steps * (1.0 - 1e-9)).astype(int)
        lattice = self.features.with_modes(np.minimum(counts, self.features.n_modes).tolist())
        sums = np.array([
            self.features.resize_modes(part.sum_waves, lattice.n_modes) for part in self.folds
        ])  # fmt: skip
        held, n = sums[list(self.held)], sum(part.n for part in self.folds)
        return lattice, sums.sum(axis=0) - held, held, n - self.held_n

    def posteriors(self, candidate: LatticeCandidate) -> LatticePosteriors:
        """The posteriors of the rows learned from."""
        lattice, sums, _, n = self._part(candidate.n_modes)
        shape = lattice.grid_shape(OVERSAMPLING)
        masses = [one.at(shape) for one in self._grids[candidate.base]]
        return LatticePosteriors(
            lattice.with_kernel(candidate.kernel, candidate.bandwidth), sums, n, masses,
            candidate.lam, self.workers,
        )  # fmt: skip

    def _fine_masses(self, candidate: LatticeCandidate) -> list[NodeMasses] | None:
        """The bases of the folds on a finer grid than that of the posteriors, which also resolves
        them: a tilt could hide what it takes from a narrow ridge between nodes. None where the
        bases must be resolved, and no affordable grid does."""
        lattice, grids = self.lattice(candidate.n_modes), self._grids[candidate.base]
        shape = lattice.grid_shape(FINER[lattice.dimension] * OVERSAMPLING)
        shape = tuple(np.max([one.resolving_shape(shape) for one in grids], axis=0).tolist())
        if self.must_resolve and not all(one.resolve_base(shape) for one in grids):
            return None
        return [one.at(shape) for one in grids]

    def score(self, candidate: LatticeCandidate) -> ScoredCandidate:
        """The held-out log-likelihood of a candidate; each is computed once."""
        known = self._scored.get(candidate)
        if known is None:
            alone = candidate.is_base_alone
            known = self._score_base(candidate) if alone else self._score_tilt(candidate)
            self._scored[candidate] = known
        return known

    def _score_base(self, candidate: LatticeCandidate) -> ScoredCandidate:
        total = self.log_base[candidate.base].sum() / self.held_n.sum()
        return ScoredCandidate(candidate, float(total))

    def _score_tilt(self, candidate: LatticeCandidate) -> ScoredCandidate:
        posteriors = self.posteriors(candidate)
        masses = self._fine_masses(candidate)
        if masses is None:
            nothing = np.zeros_like(posteriors.data)
            return ScoredCandidate(candidate, -np.inf, nothing, np.zeros(len(self.held)))
        start = posteriors.whiten(self._start(candidate))
        found = maximize_posteriors(
            posteriors, start, least_gain=SEARCH_GAIN,
            precondition=self._inverse_hessians(posteriors),
        )  # fmt: skip
        self._learn_covariance(posteriors, found.point.p)
        theta = found.theta
        lattice, _, held, _ = self._part(candidate.n_modes)
        fine = lattice.transform(masses[0].shape, self.workers)
        log_z = log_partition(fine.to_grid(theta), masses)[0]
        tilt = inner_products(lattice.multiplicity * theta, held)
        sums = tilt + self.log_base[candidate.base] - self.held_n * log_z
        score = float(sums.sum() / self.held_n.sum())
        return ScoredCandidate(candidate, score if np.isfinite(score) else -np.inf, theta, log_z)

    def _inverse_hessians(
        self, posteriors: LatticePosteriors
    ) -> Callable[[Modes], Operator] | None:
        """What preconditions the posteriors, from the density of an earlier candidate."""
        known = self._covariances.get(posteriors.features.n_modes)
        inverse = None if known is None else known.invert_hessians(posteriors)
        return None if inverse is None else lambda u: inverse

    def _learn_covariance(self, posteriors: LatticePosteriors, densities: Array) -> None:
        """Keep the covariance of the features under the first density of a small lattice."""
        f = posteriors.features
        density = densities.mean(axis=0)
        if f.n_modes not in self._covariances and is_small(f) and np.isfinite(density).all():
            self._covariances[f.n_modes] = FeatureCovariance(f, density, posteriors.taper)

    def _start(self, candidate: LatticeCandidate) -> Modes:
        """The solution of the nearest candidate that was scored; else zero."""

        def distance(other: LatticeCandidate) -> float:
            return (
                abs(math.log(other.lam / candidate.lam))
                + 2.0 * abs(math.log(other.bandwidth / candidate.bandwidth))
                + 2.0 * abs(math.log(other.n_modes / candidate.n_modes))
                + 2.0 * (other.kernel != candidate.kernel) + 4.0 * (other.base != candidate.base)
            )  # fmt: skip

        tilted = [c for c in self._scored if not c.is_base_alone]
        nearest = min(tilted, key=distance, default=None)
        lattice = self.lattice(candidate.n_modes)
        if nearest is None:
            return np.zeros((len(self.held), *lattice.mode_shape), lattice.mode_dtype)
        theta = self._scored[nearest].theta
        assert theta is not None
        return self.lattice(nearest.n_modes).resize_modes(theta, lattice.n_modes)

    def row_values(self, scored: ScoredCandidate, rows: HeldOutRows) -> Array:
        """Log density at held-out rows, (n,), by linear interpolation on the finer grid: enough for
        standard errors."""
        values = np.empty(len(rows.x))
        for place, base in enumerate(self.bases[scored.candidate.base]):
            mine = np.flatnonzero(rows.fold == place)
            values[mine] = base.log_density_at(rows.x[mine])
        masses = None if scored.theta is None else self._fine_masses(scored.candidate)
        if masses is None or scored.theta is None or scored.log_z is None:
            return values
        lattice, shape = self.lattice(scored.candidate.n_modes), masses[0].shape
        tilt = lattice.transform(shape, self.workers).to_grid(scored.theta) * masses[0].taper
        steps = lattice.lengths / shape
        low = np.array([nodes[0] for nodes in lattice.nodes(shape)]) - steps
        for axis, is_cosine in enumerate(lattice.cosine):
            around = [(1, 1) if k == axis + 1 else (0, 0) for k in range(tilt.ndim)]
            tilt = np.pad(tilt, around, mode="edge" if is_cosine else "wrap")
        for place in range(len(tilt)):
            mine = np.flatnonzero(rows.fold == place)
            values[mine] += _interpolate(tilt[place], (rows.x[mine] - low) / steps)
            values[mine] -= scored.log_z[place]
        return values

    def gains_under_base(self, scored: ScoredCandidate) -> tuple[float, float]:
        """Mean and mean square of the gain of a tilt at rows drawn from its base, over folds."""
        masses = self._fine_masses(scored.candidate)
        if masses is None or scored.theta is None or scored.log_z is None:
            return 0.0, 0.0
        fine = self.lattice(scored.candidate.n_modes).transform(masses[0].shape, self.workers)
        means, squares = np.zeros((2, len(masses)))
        tilts = fine.to_grid(scored.theta)
        for place, (tilt, of_base) in enumerate(zip(tilts, masses, strict=True)):
            tilt = tilt * of_base.taper
            shares = tilt * np.exp(of_base.log_masses)
            means[place], squares[place] = shares.sum(), (shares * tilt).sum()
        squares += scored.log_z**2 - 2.0 * scored.log_z * means
        return float((means - scored.log_z).mean()), float(squares.mean())

    @property
    def scored(self) -> list[ScoredCandidate]:
        """All candidates so far, best first."""
        return sorted(self._scored.values(), key=lambda s: -s.score)


def _interpolate(values: Array, places: Array) -> Array:
    """Linear interpolation on a grid at places in units of its nodes, (n, d); 0 beyond the grid."""
    last = np.array(values.shape) - 1.0
    inside = ((places >= 0.0) & (places <= last)).all(axis=1)
    left = np.clip(np.floor(places), 0.0, last - 1.0)
    share, found = places - left, np.zeros(len(places))
    for corner in itertools.product((0, 1), repeat=values.ndim):
        nodes = values[tuple((left + corner).astype(np.intp).T)]
        found += nodes * np.where(corner, share, 1.0 - share).prod(axis=1)
    return np.where(inside, found, 0.0)
