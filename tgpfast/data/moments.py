"""Count, mean and covariance of the rows in one pass, and the check that they have full rank."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

from ..runtime.records import record
from ..validation import LEAST_SCALE, MOST_SCALE, Array, as_floats, positive
from .blocks import Blocks
from .checkpoint import KeptSums, State
from .row_sample import SAMPLE_ROWS, Reservoir, RowSample
from .table import column_name

SINGULAR = 1e-10  # least eigenvalue of a correlation matrix that still counts as full rank
INVOLVED = 0.1  # share of a singular direction's largest entry, from which a column is named


@record
class Moments:
    """Weighted count, mean and covariance (divided by n) of the rows.

    The covariance is kept as standard deviations and correlations: at scales of 1e150 its entries
    would overflow.

    Attributes
    ----------
    n : float
        Sum of the weights.
    n_effective : float
        Kish's effective number of rows, (sum w)^2 / sum w^2.
    mean : (d,) array
    deviation : (d,) array
        Standard deviations.
    correlation : (d, d) array
    """

    n: float
    n_effective: float
    mean: Array
    deviation: Array
    correlation: Array

    @property
    def covariance(self) -> Array:
        """(d, d), in the units of the data; ValueError where float64 cannot hold it."""
        self.check_range()
        return self.correlation * np.outer(self.deviation, self.deviation)

    def check_range(self) -> None:
        """Raise ValueError if squares of a column overflow or lose digits."""
        bad = np.flatnonzero((self.deviation < LEAST_SCALE) | (self.deviation > MOST_SCALE))
        if len(bad):
            raise ValueError(
                f"column {bad[0]} has a standard deviation of {self.deviation[bad[0]]:.3g}, and "
                "float64 does not hold its square; divide the columns by numbers that bring them "
                "near 1"
            )


class RunningMoments(KeptSums):
    """`Moments` of the rows that were added so far; those of different rows add.

    Rows are taken about the first one, in units of the first block's spread, so that neither far
    offsets nor extreme scales cost digits. Partial sums merge by the pairwise formula.

    Parameters
    ----------
    size : int
        Rows of the random sample.
    first_row : int
        Number of the first row among all.

    Attributes
    ----------
    n, sum_w2 : float
        Sums of the weights and of their squares.
    center, unit : (d,) array
        The sums below are those of (x - center) / unit; units are powers of two.
    mean : (d,) array
    scatter : (d, d) array
        Sum of w (y - mean) (y - mean)^T, y = (x - center) / unit.
    sample : Reservoir
        Random rows, none where its size is 0.
    """

    kept = ("n", "sum_w2", "center", "unit", "mean", "scatter", "next_row")

    def __init__(self, size: int, first_row: int) -> None:
        self.n, self.sum_w2, self.mean, self.scatter = 0.0, 0.0, np.zeros(0), np.zeros((0, 0))
        self.center = self.unit = np.zeros(0)
        self.sample, self.next_row = Reservoir(size), first_row

    def add(self, x: Array, w: Array | None) -> None:
        """Add rows and their weights."""
        self.sample.add(self.next_row, x, w)
        self.next_row += len(x)
        weights = np.ones(len(x)) if w is None else w
        m = float(weights.sum())
        if not len(self.center):
            self.center, d = x[0].copy(), x.shape[1]
            spread = np.abs(x - self.center).max(axis=0)
            spread = np.where(spread > 0, spread, np.maximum(np.abs(self.center), 1.0))
            self.unit = np.exp2(np.round(np.log2(spread)))  # a power of two: no rounding
            self.mean, self.scatter = np.zeros(d), np.zeros((d, d))
        if m == 0.0:
            return
        n, y = self.n, (x - self.center) / self.unit
        block_mean = weights @ y / m
        y -= block_mean
        gap = block_mean - self.mean
        self.scatter += (y.T * weights) @ y + np.outer(gap, gap) * (n * m / (n + m))
        self.mean = self.mean + gap * (m / (n + m))
        self.n += m
        self.sum_w2 += float(weights @ weights)

    def __add__(self, other: RunningMoments) -> RunningMoments:
        total = copy.copy(other if self.n == 0.0 else self)
        total.sample = self.sample + other.sample
        if self.n == 0.0 or other.n == 0.0:
            return total
        total.unit = np.maximum(self.unit, other.unit)  # powers of two: no rounding
        mine, theirs = self.unit / total.unit, other.unit / total.unit
        mean = self.mean * mine
        gap = other.mean * theirs + (other.center - self.center) / total.unit - mean
        scatter = self.scatter * np.outer(mine, mine) + other.scatter * np.outer(theirs, theirs)
        total.n, total.sum_w2 = self.n + other.n, self.sum_w2 + other.sum_w2
        total.scatter = scatter + np.outer(gap, gap) * (self.n * other.n / total.n)
        total.mean = mean + gap * (other.n / total.n)
        return total

    def moments(self) -> Moments:
        """Return the moments in the units of the data."""
        n, center, unit, mean, scatter = self.n, self.center, self.unit, self.mean, self.scatter
        root = np.sqrt(np.diag(scatter) / n)
        correlation = _normalize(scatter / n, root)
        correlation = 0.5 * (correlation + correlation.T)
        np.fill_diagonal(correlation, np.where(root > 0, 1.0, 0.0))
        # x - center errs by half a unit in the last place of x: that is rounding, no spread
        noise = np.abs(center + unit * mean) * 2.0**-52
        deviation = np.where(unit * root > noise, unit * root, 0.0)
        return Moments(n, n * n / self.sum_w2, center + unit * mean, deviation, correlation)

    def state(self) -> State:
        """The sums and the rows that are kept."""
        return super().state() | self.sample.state()

    def restore(self, state: State) -> None:
        """Take over what ``state`` returned."""
        super().restore(state)
        self.sample.restore(state)


def compute_moments(blocks: Blocks) -> Moments:
    """Compute the moments in one pass over the blocks."""
    sums: RunningMoments = blocks.reduce(_sum_moments)
    return sums.moments()


def moments_and_sample(
    blocks: Blocks, *, progress: bool = False, size: int = SAMPLE_ROWS
) -> tuple[Moments, RowSample]:
    """Compute the moments and draw at most ``size`` random rows, in one pass over the blocks.

    With ``progress``, partitions show dask's bar.
    """
    part = functools.partial(_sum_moments, size=size)
    sums: RunningMoments = blocks.reduce(part, progress=progress)
    return sums.moments(), sums.sample.sample()


def _sum_moments(
    blocks: Blocks, threads: Any, size: int = 0, progress: bool = False
) -> RunningMoments:
    """Sum the rows, and sample ``size`` of them."""
    sums = RunningMoments(size, blocks.first_row)
    with blocks.track("moments", sums, progress) as count:
        for x, w in blocks:
            sums.add(x, w)
            count(len(x))
    return sums


def check_given_moments(moments: Any, dimension: int | None) -> Moments:
    """Check a user's (n, mean, covariance), and return it as `Moments`."""
    try:
        n, mean, covariance = moments
    except (TypeError, ValueError):
        raise ValueError("moments must be a tuple (n, mean, covariance)") from None
    n = positive("moments: n", n)
    mean = as_floats(np.atleast_1d(mean), "moments: mean", "(d,)", 1)
    covariance = as_floats(np.atleast_2d(covariance), "moments: covariance", "(d, d)", 2)
    d = len(mean) if dimension is None else dimension
    if len(mean) != d or covariance.shape != (d, d):
        raise ValueError(
            f"moments: mean {mean.shape} and covariance {covariance.shape} do not go with {d} "
            "columns"
        )
    variance = np.diag(covariance)
    if (variance < 0).any():
        raise ValueError("moments: covariance has a negative variance")
    root = np.sqrt(variance)
    return Moments(n, n, mean, root, _normalize(covariance, root))


def _normalize(covariance: Array, deviation: Array) -> Array:
    """Divide by standard deviations; rows and columns of a deviation of 0 stay as they are."""
    safe = np.where(deviation > 0, deviation, 1.0)
    return np.asarray(covariance / np.outer(safe, safe))


def check_full_rank(moments: Moments, columns: list[str] | None) -> None:
    """Raise ValueError that names the columns where the covariance is singular, and the remedy."""
    wild = np.flatnonzero(~np.isfinite(moments.mean) | ~np.isfinite(moments.deviation))
    if len(wild):
        raise ValueError(
            f"column {column_name(int(wild[0]), columns)} has values so large that their "
            "differences overflow; remove such rows, or divide the column by a number that brings "
            "it near 1"
        )
    _check_spread(moments, columns)
    d = len(moments.mean)
    values, vectors = np.linalg.eigh(moments.correlation)
    if values[0] > SINGULAR:
        return
    if moments.n_effective <= d:
        raise ValueError(
            f"{moments.n_effective:.0f} rows do not span {d} columns: the covariance is singular. "
            f"Give at least {d + 1} rows, fewer columns, or base=GaussianBase(mean, covariance)"
        )
    size = np.abs(vectors[:, 0])
    involved = np.flatnonzero(size > INVOLVED * size.max())
    names = ", ".join(column_name(int(k), columns) for k in involved)
    raise ValueError(
        f"columns {names} are linearly dependent (least eigenvalue of the correlations "
        f"{values[0]:.1e}), so the rows lie almost in a plane and have no density; drop one of "
        "these columns, or remove an outlier that makes them look dependent"
    )


def _check_spread(moments: Moments, columns: list[str] | None) -> None:
    """Raise ValueError for a constant column."""
    constant = np.flatnonzero(moments.deviation <= 0)
    if not len(constant):
        return
    if moments.n_effective < 1.5:
        raise ValueError(
            "one row (or one row with weight) has no spread, so no density can be learned; "
            f"at least {len(moments.mean) + 1} different rows are needed"
        )
    k = int(constant[0])
    raise ValueError(
        f"column {column_name(k, columns)} is constant at {moments.mean[k]:.6g}, so the data "
        "have no density in it; drop it"
    )
