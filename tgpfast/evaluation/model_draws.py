"""Weighted draws from any model that has ``sample`` or ``log_density``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks
from ..data.moments import Moments, check_full_rank, compute_moments
from ..data.scaling import Scaling
from ..validation import Array


@dataclass(frozen=True, eq=False)
class ModelDraws:
    """Draws (n, d) from a model and their weights (n,)."""

    points: Array
    weights: Array

    @property
    def n_effective(self) -> float:
        """Kish's effective number of draws."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))

    def moments(self) -> Moments:
        """Weighted moments of the draws."""
        return compute_moments(Blocks(self.points, sample_weight=self.weights))

    def scaled(self, scaling: Scaling) -> ModelDraws:
        """The draws in other coordinates."""
        return ModelDraws(scaling.apply(self.points), self.weights)


def draw_from_model(model: Any, blocks: Blocks, n: int, seed: int) -> ModelDraws:
    """Draw n rows: by the model's own sampler, else from a Gaussian weighted by log_density.

    Parameters
    ----------
    model : object
        Has ``sample(n, seed)`` or ``log_density(Y)``, or scikit-learn's ``score_samples``.
    blocks : Blocks
        The data, whose moments the Gaussian takes.
    n : int
    seed : int

    Raises
    ------
    TypeError
        If the model has none of these methods.
    ValueError
        If moments are needed of rows that can be read only once.
    """
    if hasattr(model, "weighted_sample"):
        return ModelDraws(*model.weighted_sample(n, seed))
    if hasattr(model, "sample"):
        points = Blocks(_call_sampler(model.sample, n, seed), name="the model's sample").whole()
        return ModelDraws(points, np.ones(len(points)))
    log_density = log_density_of(model)
    if log_density is None:
        raise TypeError(
            f"{type(model).__name__} has neither sample(n, seed) nor log_density(Y); one is needed"
        )
    if not blocks.can_repeat:
        raise ValueError(
            "X can be read only once, and a model without sample(n, seed) needs its moments first; "
            "pass a list of blocks, or a callable"
        )
    return _weight_gaussian_draws(log_density, blocks, n, seed)


def log_density_of(model: Any) -> Callable[[Any], Any] | None:
    """The model's ``log_density``, or ``score_samples`` as scikit-learn calls it, or None."""
    return getattr(model, "log_density", None) or getattr(model, "score_samples", None)


def _weight_gaussian_draws(
    log_density: Callable[[Any], Any], blocks: Blocks, n: int, seed: int
) -> ModelDraws:
    """Draws from a Gaussian with the moments of the data, weighted by the ratio of densities."""
    moments = compute_moments(blocks)
    check_full_rank(moments, blocks.table.columns)
    proposal = GaussianBase(moments.mean, moments.covariance)
    points = proposal.sample(n, seed)
    log_weights = np.asarray(log_density(points), float) - proposal.log_density(points)
    if np.isnan(log_weights).any() or not log_weights.max() > -np.inf:
        raise ValueError(
            "the model's log density is nan somewhere, or -inf wherever there are data"
        )
    return ModelDraws(points, np.exp(log_weights - log_weights.max()))


def _call_sampler(sample: Callable[..., Any], n: int, seed: int) -> Any:
    """Rows of a sampler whose seed is called ``seed``, ``random_state``, or that takes none."""
    try:
        names = set(inspect.signature(sample).parameters)
    except (TypeError, ValueError):  # a compiled function may have no signature
        names = {"seed"}
    word = next((w for w in ("seed", "random_state") if w in names), None)
    rows = sample(n) if word is None else sample(n, **{word: seed})
    return rows[0] if isinstance(rows, tuple) else rows  # scikit-learn returns (rows, labels)
