"""Expectation maximization of Gaussian mixtures: rows, components, steps.

Everything here is in standard coordinates, in which every column has median 0 and a robust spread
of 1 (`measure_columns`). There log weight_k N_k(y) is linear in the monomials 1, y_i and y_i y_j,
so that one step is two matrix products per block of rows: coefficients times monomials gives the
terms of every component, and responsibilities times monomials gives the sums from which the next
components follow. Components that are neither tiny nor far away lose no digits that matter: terms
err by 1e-16 times the largest square of a distance over a width.
"""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..data.near_values import merge_near_values
from ..data.scaling import Scaling
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..validation import Array

COVARIANCES = ("full", "diagonal", "tied")
NARROWEST_COMPONENT = 1e-3  # least width of a component, in spreads of the column
# The same where the rows lie in clusters far narrower than the spread: a share of the width that
# holds the nearest sqrt(n) values, which is less than 1e-3 spreads in clusters only
NARROWEST_IN_CLUSTERS = 0.1
# of standard rows: 1e-16 times its square is far below the least variance of a column without
# clusters, 1e-6; within clusters the least width is at least 1e-7 times the largest coordinate
LARGEST_COORDINATE, LEAST_OF_LARGEST = 1e4, 1e-7
SPREAD_OF_QUARTILES = 1.349  # distance between the quartiles of a standard normal
SAME_VALUE = 1e-6  # spreads within which values count as one: they differ by rounding
RESOLUTION_SHARE = 0.1  # share of the rows that may lie closer to another value than the resolution
# Least width of a component, in steps: 95 % of one on a value of a grid lies in the cell of that
# value. Wider ones lose the probability of cells, and narrower ones gain spikes alone.
WIDTH_OF_A_STEP = 0.25
BORROWED_ROWS = 3.0  # rows that the pooled widths count as in the widths of a target
LANE_ROWS, MOST_LANES = 1_024, 16  # rows a lane of the kernel has at least; lanes at most
FEW_MATRICES = 32  # matrices up to which LAPACK inverts faster, one by one
EXP_WORK = 30.0  # operations that the exponential of one term costs


class Components(NamedTuple):
    """Gaussian components: weights (..., K), means (..., K, d), covariances (..., K, d, d)."""

    weights: Array
    means: Array
    covariances: Array

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Components:
        """The components with these indices."""
        return Components(*(array[index] for array in self))

    def join(self, other: Components) -> Components:
        """These components, then others; the weights stay as they are."""
        return Components(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


# -- standard coordinates -------------------------------------------------------------------------


@record
class Standards:
    """Standard coordinates of a table, and the least width of components in them.

    Attributes
    ----------
    scaling : Scaling
        From the units of the data: median to 0, spread to 1.
    floor : (d,) array
        Least width of a component along each column, in standard units: NARROWEST_COMPONENT, less
        where the rows lie in narrow clusters, and at least the width of a step of the column.
    resolution : (d,) array
        Steps of the columns, in units of the data; see `measure_columns`.
    """

    scaling: Scaling
    floor: Array
    resolution: Array


def measure_columns(x: Array, w: Array) -> Standards:
    """Median, spread and resolution of every column.

    The spread is that of the quartiles, at most the standard deviation (which it is where the
    quartiles are equal), and at least 1 / LARGEST_COORDINATE of the way to the farthest row. The
    resolution is the distance to the nearest other value, which RESOLUTION_SHARE of the rows lie
    below: the step of a column of rounded or discrete values, and close to 0 for continuous ones.
    Values closer than SAME_VALUE spreads count as one, and so do values that were written with
    different accuracy (`merge_near_values`).

    Parameters
    ----------
    x : (n, d) array
    w : (n,) array
        Rows that each row counts as.
    """
    d = x.shape[1]
    shift, scale, floor, resolution = np.empty((4, d))
    share = w / w.sum()
    for j in range(d):
        order = np.argsort(x[:, j])
        order = order[share[order] > 0.0]
        values, below = x[order, j], np.cumsum(share[order])
        low, shift[j], high = (_quantile(values, below, q) for q in (0.25, 0.5, 0.75))
        deviation = np.sqrt(share[order] @ np.square(values - shift[j]))
        spread = min(deviation, (high - low) / SPREAD_OF_QUARTILES) or deviation or 1.0
        reach = max(values[-1] - shift[j], shift[j] - values[0])
        scale[j] = max(spread, reach / LARGEST_COORDINATE)
        values = _merge_near(values, SAME_VALUE * scale[j], float(w.sum()))
        resolution[j] = _resolution(values, below, SAME_VALUE * scale[j])
        narrowest, cluster = NARROWEST_COMPONENT, _width_of_nearest(values) / scale[j]
        if cluster > 0.0:  # else values are repeated, and their step is no cluster
            least = LEAST_OF_LARGEST * reach / scale[j]
            narrowest = min(narrowest, max(NARROWEST_IN_CLUSTERS * cluster, least))
        floor[j] = max(narrowest, WIDTH_OF_A_STEP * resolution[j] / scale[j])
    return Standards(Scaling(shift, scale), floor, resolution)


def _merge_near(values: Array, same: float, n_rows: float) -> Array:
    """Sorted values, of which those that are one up to rounding are replaced by the least one.

    same : gap up to which neighboring values count as one
    """
    first = np.flatnonzero(np.diff(values, prepend=-np.inf) > same)
    groups = merge_near_values(values[first], n_rows)
    if len(groups) == groups[-1] + 1:
        return values
    first = first[np.flatnonzero(np.diff(groups, prepend=-1))]
    return np.repeat(values[first], np.diff(first, append=len(values)))


def _width_of_nearest(values: Array) -> float:
    """The median over sorted values of the width that holds the next sqrt(n) of them."""
    count = math.isqrt(len(values))
    return float(np.median(values[count:] - values[: len(values) - count]))


def _quantile(values: Array, below: Array, q: float) -> float:
    """The first value with a share of at least q up to it; 1e-9 is for the rounding of sums."""
    return float(values[min(int(np.searchsorted(below, q - 1e-9)), len(values) - 1)])


def _resolution(values: Array, below: Array, merged: float) -> float:
    """Distance to the nearest other value, below which RESOLUTION_SHARE of the rows lie.

    values : sorted; below : share of the rows up to each; merged : distance within which
    neighboring values count as one. Rows in a run of such neighbors that is longer than that are
    continuous: their distance is 0.
    """
    gaps = np.diff(values)
    cuts = np.flatnonzero(gaps > merged)
    first, last = np.append(0, cuts + 1), np.append(cuts, len(values) - 1)
    steps = np.concatenate([[np.inf], gaps[cuts], [np.inf]])
    nearest = np.minimum(steps[:-1], steps[1:])
    continuous = (values[last] - values[first] > merged) | np.isinf(nearest)
    distance = np.where(continuous, 0.0, nearest)
    order = np.argsort(distance)
    shares = np.diff(below[last], prepend=0.0)[order]
    return _quantile(distance[order], np.cumsum(shares), RESOLUTION_SHARE)


# -- rows -----------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """What the kernel finds: log density of every row, its best component, sums for EM."""

    log_density: Array  # (n,), or (G, n)
    labels: NDArray[np.int64]  # (n,), or (0,)
    sums: Array  # (lanes, K, P) or (lanes, G, K, P), or (0, 0, 0)


@record
class Rows:
    """Rows in standard coordinates.

    Attributes
    ----------
    y : (n, d) array
    share : (n,) array
        Weights, which sum to 1.
    count : float
        Rows that all rows together count as.
    bounds : (lanes + 1,) array of int64
        Where the lanes begin and end; results do not depend on the number of threads.
    threads : Threads
        Backend and number of threads.
    """

    y: Array
    share: Array
    count: float
    bounds: NDArray[np.int64]
    threads: Threads = field(default_factory=Threads)

    @classmethod
    def from_data(cls, x: Array, w: Array, scaling: Scaling, threads: Threads) -> Rows:
        """Rows x (n, d), which count as w (n,) rows each, in units of the data."""
        lanes = int(np.clip(len(x) // LANE_ROWS, 1, MOST_LANES))
        bounds = np.linspace(0, len(x), lanes + 1).astype(np.int64)
        total = float(w.sum())
        return cls(scaling.apply(x), w / total, total, bounds, threads)

    def by_label(self, labels: NDArray[np.int64], n_labels: int) -> Rows:
        """The same rows, sorted by label: lane k has the rows of label k."""
        order = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[order], np.arange(n_labels + 1)).astype(np.int64)
        return Rows(self.y[order], self.share[order], self.count, bounds, self.threads)

    def sum_by_lane(self, values: Array) -> Array:
        """Sum of values over the rows of every lane, each as often as it counts, (lanes,)."""
        lane = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        totals = np.bincount(lane, values * self.share, len(self.bounds) - 1)
        return self.count * np.asarray(totals, float)

    def evaluate(self, coefficients: Array, *, sums: bool = False, labels: bool = False) -> Terms:
        """Mixtures at the rows; see ``mixture_sums`` of the kernels.

        coefficients : (K, P) for one mixture, (lanes, K, P) for one a lane, or (lanes, G, K, P) for
        G a lane: log densities are then (G, n), and sums (lanes, G, K, P). Labels are of one
        mixture.
        """
        K, P = coefficients.shape[-2:]
        several = coefficients.ndim == 4
        G = coefficients.shape[1] if several else 1
        inputs = self.y, self.share, self.bounds, coefficients.reshape(-1, G * K, P)
        lanes, n = len(self.bounds) - 1, len(self.y)
        value, best = np.empty((G, n)), np.empty(n if labels else 0, np.int64)
        added = np.zeros((lanes, G * K, P) if sums else (0, 0, 0))
        module, count = self.threads.resolve(work_of(n, G * K, P, sums=sums))
        blocks = np.empty((count, P + G * K, kernels.ROW_TILE))
        with kernels.threads(module, count):
            module.mixture_sums(
                *map(kernels.read_only, inputs), value, best, added, blocks, count
            )
        if several:
            return Terms(value, best, added.reshape(-1, G, K, P) if sums else added)
        return Terms(value[0], best, added)


def work_of(n: int, K: int, P: int, *, sums: bool) -> float:
    """Floating-point operations of ``Rows.evaluate``."""
    return n * K * (2.0 * P * (2 if sums else 1) + EXP_WORK)


# -- steps ----------------------------------------------------------------------------------------


@record
class Learner:
    """How components follow from sums over rows.

    With N_k the rows of component k, S_k their covariance, F = diag(floor^2) and T_k a target::

        covariance_k = (N_k (S_k + F) + strength T_k) / (N_k + strength - correction)

    F keeps widths above the floor: it is the noise of rows that are known up to the floor only. The
    divisor is never less than half of N_k + strength.
    The target has the pooled correlations of all components, and the component's own widths
    (`find_targets`). For tied covariances there is no target::

        covariance = n (sum_k N_k S_k / n + F) / (n - K)

    Each is the maximum of a penalized likelihood (`penalized_likelihood`), which no step lowers
    while the target stays the same.

    Parameters
    ----------
    floor : (d,) array
        Least widths, in standard units.
    covariances : {"full", "diagonal", "tied"}, default "full"
    strength : float, default 0
        Rows that the target counts as.
    correction : float, default 0
        Rows by which divisors are smaller, which makes components wider. d + 1 undoes the
        narrowness of covariances that are estimated from few rows.
    """

    floor: Array
    covariances: str = "full"
    strength: float = 0.0
    correction: float = 0.0

    @property
    def is_tied(self) -> bool:
        return self.covariances == "tied"

    @functools.cached_property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Columns of the products among the monomials."""
        every = np.arange(len(self.floor))
        if self.covariances == "full":
            left, right = np.triu_indices(len(every))
            return left, right
        return (every[:0], every[:0]) if self.is_tied else (every, every)

    @functools.cached_property
    def halves(self) -> Array:
        """-1/2 for every square among the products; -1 for others, which stand for two, (.., 1)."""
        left, right = self.pairs
        return np.where(left == right, -0.5, -1.0)[:, None]

    @property
    def n_monomials(self) -> int:
        """P: monomials, and parameters of a component."""
        return 1 + len(self.floor) + len(self.pairs[0])

    @property
    def least_rows(self) -> float:
        """Rows below which a component is dropped."""
        d = len(self.floor)
        return 1.0 if self.is_tied else max(1.0, d + 1.0 - self.strength)

    def find_coefficients(self, components: Components, *, blurred: bool = False) -> Array:
        """Coefficients of the monomials in log weight_k N_k, (..., K, P).

        blurred : whether the mean over noise of the floor's widths is taken, as steps need it.
        Tied components lack -y . precision y / 2, which is the same for all (`tied_term`).
        """
        d, covariances = len(self.floor), components.covariances
        weights, means = components.weights.ravel(), components.means.reshape(-1, d).T
        left, right = self.pairs
        if self.covariances == "diagonal":
            variances = np.einsum("...ii->i...", covariances).reshape(d, -1)
            roots = 1.0 / np.sqrt(variances)
            products = inverse = np.square(roots)
            linear = inverse * means
        else:
            # one inverse for all where they are tied
            root = invert_cholesky(covariances.reshape(-1, d, d)[: 1 if self.is_tied else None])
            precision = np.einsum("mik,mjk->ijk", root, root)
            linear = np.einsum("ijk,jk->ik", precision, means)
            products, inverse = precision[left, right], np.einsum("iik->ik", precision)
            roots = np.einsum("iik->ik", root)
        constant = np.log(weights) - 0.5 * d * math.log(2.0 * math.pi)
        constant += np.log(roots).sum(axis=0)
        constant -= 0.5 * (linear * means).sum(axis=0)
        if blurred:
            constant -= 0.5 * np.square(self.floor) @ inverse
        found = np.empty((len(weights), self.n_monomials))
        found[:, 0], found[:, 1 : d + 1] = constant, linear.T
        found[:, d + 1 :] = (self.halves * products).T
        return found.reshape(*components.weights.shape, -1)

    def tied_term(self, rows: Rows, components: Components) -> Array | float:
        """-y . precision y / 2 of every row, (n,); 0 unless covariances are tied."""
        if not self.is_tied:
            return 0.0
        root = invert_cholesky(components.covariances[:1])[:, :, 0]
        return -0.5 * np.square(rows.y @ root.T).sum(axis=1)

    def log_density(self, rows: Rows, components: Components) -> Array:
        """Log density of the mixture at every row, in standard coordinates, (n,)."""
        found = rows.evaluate(self.find_coefficients(components)).log_density
        return found + self.tied_term(rows, components)

    def sum_moments(self, rows: Rows, components: Components) -> tuple[float, Moments]:
        """(mean log density, blurred; counts, means and scatters of the components)."""
        found = rows.evaluate(self.find_coefficients(components, blurred=True), sums=True)
        log_density = found.log_density + self.tied_term(rows, components)
        moments = self.read_moments(found.sums.sum(axis=0), rows.count)
        return float(rows.share @ log_density), moments

    def read_moments(self, sums: Array, count: float) -> Moments:
        """Counts, means and scatters (covariances) from sums of monomials (..., K, P)."""
        d, (left, right) = len(self.floor), self.pairs
        total = np.maximum(sums[..., :1], np.finfo(float).tiny)  # of no row: mean and scatter of 0
        means = sums[..., 1 : d + 1] / total
        scatters = np.zeros((*means.shape, d))
        products = sums[..., d + 1 :] / total - means[..., left] * means[..., right]
        scatters[..., left, right] = scatters[..., right, left] = products
        return Moments(count * sums[..., 0], means, scatters)

    def find_targets(self, moments: Moments) -> Array:
        """Targets (..., K, d, d): pooled correlations, and widths of the component's own.

        log variance is that of the component, counted N_k times, and the harmonic mean of all
        components, counted BORROWED_ROWS times: components of a few rows have no width to speak of.
        """
        d = len(self.floor)
        blurred = moments.scatters + np.diag(np.square(self.floor))
        share = (moments.counts / moments.counts.sum()).ravel()
        pooled = np.einsum("k,kij->ij", share, blurred.reshape(-1, d, d))
        spread = np.sqrt(np.diag(pooled))
        variances = np.einsum("...ii->...i", blurred)
        usual = 1.0 / (share @ (1.0 / variances.reshape(-1, d)))
        counts = moments.counts[..., None]
        log_widths = 0.5 * (counts * np.log(variances) + BORROWED_ROWS * np.log(usual))
        widths = np.exp(log_widths / (counts + BORROWED_ROWS))
        return pooled / np.outer(spread, spread) * widths[..., :, None] * widths[..., None, :]

    def find_covariances(self, moments: Moments, targets: Array) -> Array:
        """Covariances (..., K, d, d) of components with enough rows."""
        counts = moments.counts[..., None, None]
        blurred = moments.scatters + np.diag(np.square(self.floor))
        total = counts * blurred + self.strength * targets
        divisor = counts + self.strength
        return total / np.maximum(divisor - self.correction, 0.5 * divisor)

    def maximize(
        self, rows: Rows, moments: Moments, targets: Array
    ) -> tuple[Components, NDArray[np.bool_]]:
        """(components, which of those before are kept): one M-step.

        targets : (K, d, d); ignored where covariances are tied.
        """
        keep = moments.counts >= self.least_rows
        if not keep.any():
            keep = moments.counts == moments.counts.max()
        kept = Moments(*(array[keep] for array in moments))
        weights = kept.counts / kept.counts.sum()
        if self.is_tied:
            between = (moments.means.T * (moments.counts / rows.count)) @ moments.means
            within = rows_second_moment(rows) - between + np.diag(np.square(self.floor))
            free = max(rows.count - len(weights), 0.5 * rows.count)
            within *= rows.count / free
            covariances = np.broadcast_to(within, (len(weights), *within.shape))
        else:
            covariances = self.find_covariances(kept, targets[keep])
        return Components(weights, kept.means, covariances), keep

    def penalized_likelihood(self, mean: float, count: float, components: Components,
                             targets: Array) -> float:  # fmt: skip
        """What steps raise: count times the blurred mean log density, less the penalty

        sum_k ((strength - correction) log det C_k + strength trace(C_k^-1 T_k)) / 2
        """
        root = invert_cholesky(components.covariances)
        diagonal = np.arange(len(root))
        log_det = -2.0 * np.log(root[diagonal, diagonal]).sum(axis=0)
        if self.is_tied:
            return count * mean + 0.5 * float(log_det.sum())
        trace = np.einsum("mik,mjk,kij->k", root, root, targets)
        penalty = (self.strength - self.correction) * log_det + self.strength * trace
        return count * mean - 0.5 * float(penalty.sum())


class Moments(NamedTuple):
    """Rows of every component (..., K), their means (..., K, d) and covariances (..., K, d, d)."""

    counts: Array
    means: Array
    scatters: Array


def rows_second_moment(rows: Rows) -> Array:
    """Mean of y y^T, (d, d)."""
    return np.asarray((rows.y.T * rows.share) @ rows.y)


def invert_cholesky(covariances: Array) -> Array:
    """Inverse lower Cholesky factors of matrices (..., d, d), as (d, d, K).

    Column by column for all K matrices at once, which for hundreds of small matrices is several
    times as fast as a call of LAPACK for each; for few it is slower.
    """
    d = covariances.shape[-1]
    if covariances.size <= FEW_MATRICES * d * d:
        with contextlib.suppress(np.linalg.LinAlgError):
            roots = np.linalg.inv(np.linalg.cholesky(covariances.reshape(-1, d, d)))
            return np.ascontiguousarray(roots.transpose(1, 2, 0))
    a = np.ascontiguousarray(np.moveaxis(covariances.reshape(-1, d, d), 0, -1))
    factor, inverse = np.zeros_like(a), np.zeros_like(a)
    for j in range(d):
        column = a[j:, j] - np.einsum("imk,mk->ik", factor[j:, :j], factor[j, :j])
        root = np.sqrt(column[0])
        factor[j:, j] = column / root
        inverse[j, :j] = -np.einsum("mk,mik->ik", factor[j, :j], inverse[:j, :j]) / root
        inverse[j, j] = 1.0 / root
    return inverse


@record
class EMRun:
    """Result of `run_em`.

    Attributes
    ----------
    components : Components
    moments : Moments
        Of the last step: the components follow from them.
    history : tuple of float
        Penalized likelihood before every step; empty where the tolerance is -inf.
    converged : bool
        Whether the last step raised the mean log density by less than the tolerance.
    """

    components: Components
    moments: Moments
    history: tuple[float, ...]
    converged: bool


def run_em(
    rows: Rows, learner: Learner, start: Components, *, max_steps: int, tolerance: float = -np.inf
) -> EMRun:
    """Expectation maximization from given components.

    Components with too few rows are dropped on the way. The targets of covariances are those of
    the first step.

    Parameters
    ----------
    rows : Rows
    learner : Learner
    start : Components
    max_steps : int
    tolerance : float, default -inf
        Gain of the penalized likelihood per row that ends the run; -inf takes every step.
    """
    components, last = start, -np.inf
    history: list[float] = []
    targets: Array | None = None
    for _ in range(max_steps):
        mean, moments = learner.sum_moments(rows, components)
        if targets is None:
            targets = learner.find_targets(moments)
        value = -np.inf
        if tolerance > -np.inf:
            value = learner.penalized_likelihood(mean, rows.count, components, targets)
            history.append(value)
            if value - last < tolerance * rows.count:
                return EMRun(components, moments, tuple(history), True)
        components, keep = learner.maximize(rows, moments, targets)
        targets = targets[keep]
        last = value if keep.all() else -np.inf  # dropping a component lowers the likelihood
    return EMRun(components, moments, tuple(history), False)


def one_component(rows: Rows, learner: Learner) -> Components:
    """The Gaussian with the mean and covariance of the rows."""
    mean = rows.share @ rows.y
    about = rows.y - mean
    covariance = (about.T * rows.share) @ about
    if learner.covariances == "diagonal":
        covariance = np.diag(np.diag(covariance))
    covariance = covariance + np.diag(np.square(learner.floor))
    return Components(np.ones(1), mean[None], covariance[None])
