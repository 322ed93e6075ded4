"""`DensityEstimator`: what the estimators share: parameters, checks of rows, one call of fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..bases.gaussian import GaussianBase
from ..density.density import Density
from ..pipeline.fitting import fit
from ..runtime.warnings import FallbackWarning, warn
from ..validation import Array, as_seed
from .shrinkage import has_fewer_rows, pool_covariance

FIT_PARAMETERS = (
    "method", "n_features", "lam", "gamma", "base", "scale", "backend", "n_threads",
)  # fmt: skip
NOT_IN_FIT_OPTIONS = (*FIT_PARAMETERS, "X", "sample_weight", "moments", "seed")
ROW_TYPES = (np.float64, np.float32)  # tgpfast.fit takes both; scikit-learn converts the others


class DensityEstimator(BaseEstimator):
    """Parameters of ``tgpfast.fit`` with the conventions of scikit-learn; see `TGPDensity`."""

    def __init__(
        self, *, method: Any = "auto", n_features: Any = "auto", lam: Any = "auto",
        gamma: Any = "auto", base: Any = "auto", scale: Any = "auto", backend: Any = "auto",
        n_threads: Any = None, random_state: Any = 0, decay: Any = 1.0, fit_options: Any = None,
    ) -> None:  # fmt: skip
        self.method = method
        self.n_features = n_features
        self.lam = lam
        self.gamma = gamma
        self.base = base
        self.scale = scale
        self.backend = backend
        self.n_threads = n_threads
        self.random_state = random_state
        self.decay = decay
        self.fit_options = fit_options

    def _check_rows(self, X: Any, *, reset: bool, least: int = 1, **options: Any) -> Any:
        """Rows, and labels where ``y`` is given, checked as scikit-learn does."""
        return validate_data(
            self, X, reset=reset, dtype=ROW_TYPES, ensure_min_samples=least, **options
        )

    def _fit_options(self) -> dict[str, Any]:
        """The options of ``tgpfast.fit``."""
        given = self.fit_options or {}
        for name in NOT_IN_FIT_OPTIONS:
            if name in given:
                raise ValueError(f"fit_options has {name!r}: this estimator sets it otherwise")
        options = {name: getattr(self, name) for name in FIT_PARAMETERS}
        seed = draw_seed(self.random_state)
        return {"normalize_weights": False, "seed": seed, **options, **given}

    def _fit_density(self, X: Array, weights: Array | None) -> Density:
        """A density of the rows; a shrunk covariance serves where they do not span the columns."""
        d = X.shape[1]
        if not has_fewer_rows(X, d + 1):
            return fit(X, sample_weight=weights, **self._fit_options())
        ones = np.ones(len(X)) if weights is None else weights
        covariance = pool_covariance(X, np.zeros(len(X)), ones)
        warn(
            f"fewer than {d + 1} rows differ, too few for the covariance of {d} columns: the base "
            "is a Gaussian whose covariance is shrunk to its diagonal. Give more rows",
            FallbackWarning,
        )
        return fit_with_covariance(X, ones, covariance, self._fit_options())


def fit_with_covariance(
    X: Array, weights: Array, covariance: Array, options: dict[str, Any]
) -> Density:
    """Fit a density whose base is a Gaussian of this covariance about the mean of the rows."""
    mean = np.average(X, axis=0, weights=weights)
    moments = (float(weights.sum()), mean, covariance)
    base = GaussianBase(mean, covariance)
    return fit(X, sample_weight=weights, **{**options, "moments": moments, "base": base})


def weighted_rows(X: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Rows whose weight is not zero, and their weights; None where none are given."""
    if sample_weight is None:
        return X, None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weights < 0).any() or not weights.any():
        raise ValueError("sample_weight: expected numbers of at least 0 that are not all 0")
    is_used = weights > 0
    return (X, weights) if is_used.all() else (X[is_used], weights[is_used])


def draw_seed(random_state: Any) -> int:
    """Return an integer seed; scikit-learn takes a RandomState too."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return as_seed(random_state, "random_state")
