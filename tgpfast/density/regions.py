"""Highest-density regions: the smallest sets that hold a given share of the probability."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..bases.gaussian import GaussianBase
from ..validation import Array
from .answers import Answer
from .describing import draw_picture
from .draw_means import mean_over_draws, share_of_draws
from .expectations import draw_replicates, log_density_at
from .tilted_density import TiltedDensity


@dataclass(frozen=True, eq=False)
class HighestDensityRegion:
    """The rows whose density is at least a threshold: the smallest set of its probability.

    Attributes
    ----------
    level : float
        The share of the probability that was asked for.
    threshold : float
        Log density at the edge of the region, in the units of the data.
    probability : Answer
        Share of fresh draws in the region, with its error: what the threshold in fact holds.
    volume : Answer
        Length, area or volume of the region, in the units of the data, with its error.
    model : Density
        The density.
    """

    level: float
    threshold: float
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
    return region_of_draws(model, level, lambda number: _draw_log_densities(model, number), seed)


def region_of_draws(
    model: Any, level: float, draw: Callable[[int], tuple[Array, Array]], seed: int
) -> HighestDensityRegion:
    """The region of a density from its draws.

    Parameters
    ----------
    model : density
    level : float
    draw : callable
        Takes a seed and returns log densities (R, n) of R independent sets of draws, in the units
        of the data, and weights (R, n).
    seed : int
        Of the draws that give the threshold, and of fresh ones that check it.
    """
    log_p, weights = draw(2 * seed)
    order = np.argsort(-log_p, axis=None)
    running = np.cumsum(weights.ravel()[order]) / weights.sum()
    edge = order[min(int(np.searchsorted(running, level)), len(order) - 1)]
    threshold = float(log_p.ravel()[edge])
    log_p, weights = draw(2 * seed + 1)  # fresh ones: the edge fits the first
    inside = log_p >= threshold
    shares, errors = share_of_draws(inside[:, :, None].astype(float), weights)
    volumes = np.zeros(inside.shape)
    volumes[inside] = np.exp(-log_p[inside])
    return HighestDensityRegion(
        level, threshold, Answer(float(shares[0]), float(errors[0]), "draws"),
        mean_over_draws(volumes, weights), model,
    )  # fmt: skip


def _draw_log_densities(model: TiltedDensity, seed: int) -> tuple[Array, Array]:
    """Log densities of draws in the units of the data, and weights of the draws, (R, n) each."""
    u, weights = draw_replicates(model, seed)
    log_p = log_density_at(model, u) + model.scaling.log_slope_at(u)
    return log_p.reshape(weights.shape), weights


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
    return HighestDensityRegion(
        level, top - half_square, Answer(level, 0.0, "exact"), Answer(volume, 0.0, "exact"), model
    )
