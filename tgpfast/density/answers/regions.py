"""Highest-density regions: the smallest sets that hold a given share of the probability."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...bases.gaussian import GaussianBase
from ...validation import Array
from ..draws.replicates import AddedTerm
from ..grids.base_marginals import cover_base
from .answer import Answer
from .describing import draw_picture
from .draw_means import mean_over_draws, share_of_draws
from .expectations import draw_log_z, draw_replicates, log_density_at
from .tilted_density import TiltedDensity

# Samples of draws behind a threshold, for one that checks it: then the error of the threshold makes
# the gap between ``level`` and ``probability`` only 15 % larger than the error of the check.
THRESHOLD_SAMPLES = 3
LINE_PLACES = 16_385  # at which the density of one column is compared with a threshold
LINE_DEVIATIONS = 40.0  # of a base with unknown tails
LINE_TAIL = 1e-4  # most probability beyond each of the two quantiles that give the range
# Log densities that differ by less are equal but for rounding: discrete values, and rows of a flat
# density, are then in the region together.
TIE_ROUNDING = 1e-9


class LogDensities(NamedTuple):
    """Log densities of R independent sets of draws, in the units of the data.

    values, weights : (R, n) arrays
    errors : of the values, (R, n) or one for all
    """

    values: Array
    weights: Array
    errors: Array | float


@dataclass(frozen=True, eq=False)
class HighestDensityRegion:
    """The rows whose density is at least a threshold: the smallest set of its probability.

    Attributes
    ----------
    level : float
        The share of the probability that was asked for.
    threshold : Answer
        Log density at the edge of the region, in the units of the data. Its error includes that of
        log densities there.
    probability : Answer
        Share of fresh draws in the region, with its error: what the threshold in fact holds.
    volume : Answer
        Length, area or volume of the region, in the units of the data. Its error includes that of
        the threshold.
    model : Density
        The density.
    """

    level: float
    threshold: Answer
    probability: Answer
    volume: Answer
    model: Any = field(repr=False)

    @property
    def standard_error(self) -> float:
        """Error of the probability."""
        return self.probability.standard_error

    @property
    def method(self) -> str:
        """How threshold, probability and volume were computed: "exact" or "draws"."""
        return self.probability.method

    def contains(self, Y: Any) -> Any:
        """Whether rows lie in the region.

        Parameters
        ----------
        Y : array-like, data frame, path or iterable of blocks
            Rows (n, d) in the units of the data.

        Returns
        -------
        array of bool, (n,); a Series where Y is a data frame

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.highest_density_region(0.9).contains([[5.0, 5.0], [15.0, 5.0]]).tolist()
        [True, False]
        """
        return self.model.log_density(Y) >= self.threshold

    def plot(self, X: Any = None) -> Any:
        """A picture of the region, in one or two columns.

        Parameters
        ----------
        X : rows, default None
            Data to show with the region; draws of the model by default.

        Returns
        -------
        matplotlib Figure
        """
        return draw_picture("region", self, X)


def find_region(model: TiltedDensity, level: float, seed: int) -> HighestDensityRegion:
    """The smallest set that holds a share of the probability."""
    base = model.base
    if model.tilt.is_zero and isinstance(base, GaussianBase) and model.scaling.is_affine:
        return _gaussian_region(model, base, level)
    return region_of_draws(
        model, level, lambda number: _draw_log_densities(model, number), seed,
        lambda number: draw_log_z(model, number, 1.0),
        None if model.dimension > 1 else partial(measure_line, model, level),
    )  # fmt: skip


def region_of_draws(
    model: Any, level: float, draw: Callable[[int], LogDensities], seed: int,
    log_z: Callable[[int], AddedTerm] | None = None,
    measure: Callable[[float], float] | None = None,
) -> HighestDensityRegion:  # fmt: skip
    """The region of a density from its draws.

    Parameters
    ----------
    model : density
    level : float
    draw : callable
        Takes a seed and returns log densities of R independent sets of draws.
    seed : int
        Of the draws that give the threshold, and of fresh ones that check it.
    log_z : callable, default None
        Takes a seed and returns how far log Z of the draws is above that in the log densities.
    measure : callable, default None
        Takes the threshold and returns the volume, where that is known; draws give it by default.
    """
    first = (THRESHOLD_SAMPLES + 1) * seed
    samples = [draw(number) for number in range(first, first + THRESHOLD_SAMPLES)]
    # each sample has a weight of 1
    weights = np.concatenate([one.weights / one.weights.sum() for one in samples])
    log_p = np.concatenate([one.values for one in samples])
    order = np.argsort(-log_p, axis=None)
    heights = log_p.ravel()[order]
    running = np.cumsum(weights.ravel()[order]) / weights.sum()
    threshold = float(heights[_find_share(running, level)]) - TIE_ROUNDING
    edge_error = float(share_of_draws(_is_inside(log_p, threshold), weights)[1][0])
    ends = [_find_share(running, share) for share in (level - edge_error, level + edge_error)]
    errors = np.concatenate([np.broadcast_to(one.errors, one.values.shape) for one in samples])
    errors = errors.ravel()[order[ends[0] : ends[1] + 1]]
    of_edge = math.hypot(0.5 * (heights[ends[0]] - heights[ends[1]]), float(errors.mean()))
    check = first + THRESHOLD_SAMPLES
    log_p, weights, _ = draw(check)  # fresh ones: the edge fits the first
    shares, errors = share_of_draws(_is_inside(log_p, threshold), weights)
    # the spread of the first samples is that of the check: more sets make it surer
    spreads = np.array([edge_error**2 * THRESHOLD_SAMPLES, float(errors[0]) ** 2])
    error_of_share = math.sqrt(float(np.average(spreads, weights=[THRESHOLD_SAMPLES, 1.0])))
    gap = AddedTerm(0.0, np.zeros(len(weights))) if log_z is None else log_z(check)
    if measure is not None:
        found = Answer(measure(threshold), 0.0, "draws")
    else:
        found = _volume_of_draws(log_p, weights, threshold, gap)
    error = math.hypot(found.standard_error, math.exp(gap.value - threshold) * edge_error)
    return HighestDensityRegion(
        level, Answer(threshold, of_edge, "draws"),
        Answer(float(shares[0]), error_of_share, "draws"),
        Answer(found.value, error, "draws"), model,
    )  # fmt: skip


def _find_share(running: Array, share: float) -> int:
    """Number of the first of some running sums, which end at 1, that reaches a share."""
    return min(int(np.searchsorted(running, share)), len(running) - 1)


def _volume_of_draws(
    log_p: Array, weights: Array, threshold: float, log_z: AddedTerm
) -> Answer:
    """Volume where the density is at least a threshold: the mean of 1 over the density there."""
    volumes = np.where(log_p >= threshold, np.exp(-np.maximum(log_p, threshold)), 0.0)
    volumes *= math.exp(log_z.value)
    volume = mean_over_draws(volumes, weights).value
    return mean_over_draws(volumes, weights, AddedTerm(0.0, volume * log_z.deviations))


def measure_line(model: Any, level: float, threshold: float) -> float:
    """Length of the places where the density of one column is at least a threshold.

    It comes from the density itself, not from draws. The density is taken at 16,385 places, and is
    linear between them.

    Parameters
    ----------
    model : density
        Of one column.
    level : float
        Probability of the region.
    threshold : float
        Log density at the ends, in the units of the data.
    """
    joint = getattr(model, "joint", model)
    (k,) = getattr(model, "columns", [0])
    ends = np.array(cover_base(joint.base, LINE_DEVIATIONS))
    low, high = joint.scaling.invert(ends)[:, k]
    tail = min(LINE_TAIL, 0.1 * (1.0 - level))
    middle = model.quantile([tail, 1.0 - tail])
    # a region is not much wider than that; heavy tails would make the steps too long
    reach = middle[1] - middle[0]
    places = np.linspace(
        max(low, middle[0] - reach), min(high, middle[1] + reach), LINE_PLACES
    )
    above = np.asarray(model.log_density(places[:, None]), dtype=float) - threshold
    a, b = above[:-1], above[1:]
    is_cut = (a >= 0.0) != (b >= 0.0)
    inside = np.array((a >= 0.0) & (b >= 0.0), dtype=float)
    inside[is_cut] = np.maximum(a, b)[is_cut] / np.abs(a - b)[is_cut]
    return float(inside.sum() * (places[1] - places[0]))


def _is_inside(log_p: Array, threshold: float) -> Array:
    """1 for draws (R, n) in the region, else 0, (R, n, 1)."""
    return np.asarray(log_p >= threshold, dtype=float)[:, :, None]


def _draw_log_densities(model: TiltedDensity, seed: int) -> LogDensities:
    """Log densities of draws in the units of the data."""
    u, weights = draw_replicates(model, seed)
    log_p = log_density_at(model, u) + model.scaling.log_slope_at(u)
    error = model.log_normalizer.standard_error
    return LogDensities(log_p.reshape(weights.shape), weights, error)


def _gaussian_region(
    model: TiltedDensity, base: GaussianBase, level: float
) -> HighestDensityRegion:
    """An ellipsoid whose squared radius is a quantile of the chi-square distribution."""
    from scipy.special import gammaincinv, gammaln

    d = model.dimension
    half_square = float(gammaincinv(0.5 * d, level))
    top = float(base.log_density_at(base.mean[None])[0]) - model.scaling.log_volume
    log_ball = 0.5 * d * math.log(2.0 * math.pi * half_square) - float(gammaln(0.5 * d + 1.0))
    # e^-top is sqrt(det 2 pi covariance), in the units of the data
    volume = math.exp(log_ball - 0.5 * d * math.log(2.0 * math.pi) - top)
    edge, share, size = (Answer(one, 0.0, "exact") for one in (top - half_square, level, volume))
    return HighestDensityRegion(level, edge, share, size, model)
