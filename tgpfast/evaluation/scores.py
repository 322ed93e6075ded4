"""Mean log density and Fisher score of a random sample of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.row_sample import Reservoir
from ..validation import Array
from .model_draws import log_density_of
from .result import Estimate

FISHER_SHARE = 10  # 1/10 of the scored rows enter the Fisher score, which costs more


class ScoredRows:
    """A random sample of at most k rows of a stream of any length.

    It also counts all rows and sums their weights. Rows of weight 0 are not sampled.
    """

    def __init__(self, k: int, rng: np.random.Generator) -> None:
        self.k, self.seen, self._sample = k, 0, Reservoir(k)
        self._first = int(rng.integers(2**62))  # a random number of the first row: a random sample
        self._sum_w = self._sum_w2 = 0.0

    def add(self, x: Array, w: Array | None) -> None:
        """Offer a block of rows and their weights; None means weights of one."""
        weights = np.ones(len(x)) if w is None else w
        self._sum_w += float(weights.sum())
        self._sum_w2 += float(weights @ weights)
        self._sample.add(self._first + self.seen, x, weights)
        self.seen += len(x)

    def rows(self) -> tuple[Array, Array]:
        """The sampled rows and their weights."""
        sample = self._sample.sample()
        assert sample.weights is not None
        return sample.x, sample.weights

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
