"""Mean log density and Fisher score of a random sample of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..validation import Array
from .model_draws import log_density_of
from .result import Estimate

FISHER_SHARE = 10  # one in so many of the scored rows enters the Fisher score, which costs more


class ScoredRows:
    """A uniform sample of at most k rows of a stream of any length (reservoir sampling).

    It also counts all rows and sums their weights.
    """

    def __init__(self, k: int, rng: np.random.Generator) -> None:
        self.k, self.seen, self._rng = k, 0, rng
        self._x: list[Array] = []
        self._w: list[Array] = []
        self._sum_w = self._sum_w2 = 0.0

    def add(self, x: Array, w: Array | None) -> None:
        """Offer a block of rows and their weights; None means weights of one."""
        weights = np.ones(len(x)) if w is None else w
        self._sum_w += float(weights.sum())
        self._sum_w2 += float(weights @ weights)
        room = min(max(self.k - self.seen, 0), len(x))
        if room:
            self._x.append(x[:room].copy())
            self._w.append(weights[:room].copy())
        if room < len(x) and self.k:
            held, held_weights = self.rows()
            # row t (from 0) replaces one of the k rows with probability k / (t + 1)
            place = np.floor(
                self._rng.random(len(x) - room) * (self.seen + 1 + np.arange(room, len(x)))
            )
            taken = np.flatnonzero(place < self.k)
            held[place[taken].astype(np.int64)] = x[room + taken]
            held_weights[place[taken].astype(np.int64)] = weights[room + taken]
        self.seen += len(x)

    def rows(self) -> tuple[Array, Array]:
        """The sampled rows and their weights."""
        if len(self._x) > 1:
            self._x, self._w = [np.concatenate(self._x)], [np.concatenate(self._w)]
        return self._x[0], self._w[0]

    @property
    def n_effective(self) -> float:
        """Kish's effective number of all rows."""
        return self._sum_w**2 / self._sum_w2


def score_rows(model: Any, sample: ScoredRows) -> tuple[Estimate | None, Estimate | None]:
    """(mean log density, mean Fisher score); None for what the model does not have."""
    log_density = log_density_of(model)
    if not sample.k or log_density is None:
        return None, None
    x, w = sample.rows()
    # some libraries, such as scipy, return a scalar for one row
    values = np.atleast_1d(np.asarray(log_density(x), float))
    normalizer_error = getattr(getattr(model, "log_normalizer", None), "standard_error", 0.0)
    likelihood = _weighted_mean(values, w, normalizer_error)
    if not (hasattr(model, "grad_log_density") and hasattr(model, "laplacian_log_density")):
        return likelihood, None
    chosen = np.random.default_rng(len(x)).permutation(len(x))[: max(1, sample.k // FISHER_SHARE)]
    gradient = np.asarray(model.grad_log_density(x[chosen]), float)
    laplacian = np.asarray(model.laplacian_log_density(x[chosen]), float)
    return likelihood, _weighted_mean(0.5 * np.square(gradient).sum(axis=1) + laplacian, w[chosen])


def _weighted_mean(values: Array, weights: Array, other_error: float = 0.0) -> Estimate:
    """Weighted mean, with the standard error of a ratio of sums and an independent other error."""
    n, total = len(values), float(weights.sum())
    mean = float(weights @ values / total)
    if n == 1:
        return Estimate(mean, float("nan"), n)
    with np.errstate(invalid="ignore"):  # values may be -inf
        square = float(np.square(weights * (values - mean)).sum())
    error = np.sqrt(square * n / (n - 1)) / total
    return Estimate(mean, float(np.hypot(error, other_error)), n)
