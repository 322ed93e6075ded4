"""`DensityEstimator`: what the estimators share: parameters, checks of rows, one call of fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..bases.gaussian import GaussianBase
from ..data.blocks import Blocks
from ..data.jitter import Jitter
from ..data.missing_rows import MISSING_ROWS, find_missing
from ..data.table import Table
from ..density.density import Density
from ..pipeline.fitting import fit
from ..runtime.warnings import DataWarning, FallbackWarning, warn
from ..validation import Array, as_seed, check_choice
from .shrinkage import has_fewer_rows, pool_covariance

FIT_PARAMETERS = (
    "method", "n_features", "lam", "gamma", "base", "scale", "support", "period", "discrete",
    "effort", "backend", "n_threads",
)  # fmt: skip
NOT_IN_FIT_OPTIONS = (*FIT_PARAMETERS, "X", "sample_weight", "moments", "seed", "missing")
ROW_TYPES = (np.float64, np.float32)  # tgpfast.fit takes both; scikit-learn converts the others


class DensityEstimator(BaseEstimator):
    """Parameters of ``tgpfast.fit`` with the conventions of scikit-learn; see `TGPDensity`."""

    def __init__(
        self, *, method: Any = "auto", n_features: Any = "auto", lam: Any = "auto",
        gamma: Any = "auto", base: Any = "auto", scale: Any = "auto", support: Any = None,
        period: Any = None, discrete: Any = None, missing: Any = "error", effort: Any = "balanced",
        backend: Any = "auto", n_threads: Any = None, random_state: Any = 0, decay: Any = 1.0,
        fit_options: Any = None,
    ) -> None:  # fmt: skip
        self.method = method
        self.n_features = n_features
        self.lam = lam
        self.gamma = gamma
        self.base = base
        self.scale = scale
        self.support = support
        self.period = period
        self.discrete = discrete
        self.missing = missing
        self.effort = effort
        self.backend = backend
        self.n_threads = n_threads
        self.random_state = random_state
        self.decay = decay
        self.fit_options = fit_options

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "drop"
        return tags

    @property
    def _names(self) -> list[str] | None:
        """Names of the columns; None where the rows came without."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else names.tolist()

    def _check_rows(self, X: Any, *, reset: bool, least: int = 1, **options: Any) -> Any:
        """Rows, and labels where ``y`` is given, checked as scikit-learn does."""
        drops = check_choice("missing", self.missing, MISSING_ROWS) == "drop"
        return validate_data(
            self, X, reset=reset, dtype=ROW_TYPES, ensure_min_samples=least,
            ensure_all_finite="allow-nan" if drops else True, **options,
        )  # fmt: skip

    def _select_rows(self, X: Array, sample_weight: Any) -> tuple[Any, Array | None]:
        """The rows to learn from, as an index, and their weights, None where none are given.

        Rows of weight 0 are left out, and so are rows with missing values, which a DataWarning
        counts.
        """
        used, weights = weighted_rows(np.arange(len(X)), sample_weight)
        complete, counts = find_missing(X[used])
        if complete is not None:
            if not complete.any():
                raise ValueError("every row has missing values; give at least one complete row")
            warn(counts.describe(self._names), DataWarning)
            used, weights = used[complete], None if weights is None else weights[complete]
        return (slice(None) if len(used) == len(X) else used), weights

    def _log_density(self, density: Density, X: Array) -> Array:
        """Log density of the columns that a row has, which are all unless ``missing`` is "drop"."""
        return density.log_density(X, missing="marginal" if self.missing == "drop" else "error")

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
            return self._fit_named(X, weights, self._fit_options())
        ones = np.ones(len(X)) if weights is None else weights
        covariance = pool_covariance(X, np.zeros(len(X)), ones)
        warn(
            f"fewer than {d + 1} rows differ, too few for the covariance of {d} columns: the base "
            "is a Gaussian whose covariance is shrunk to its diagonal. Give more rows",
            FallbackWarning,
        )
        return self._fit_with_covariance(X, ones, covariance, self._fit_options())

    def _fit_named(self, X: Array, weights: Array | None, options: dict[str, Any]) -> Density:
        """Call ``tgpfast.fit``; the density knows the names of the columns."""
        rows = Blocks(X, sample_weight=weights, jitter=Jitter.of(self.discrete, options["seed"]))
        rows.table = Table(self._names)
        return fit(rows, sample_weight=weights, **options)

    def _fit_with_covariance(
        self, X: Array, weights: Array, covariance: Array, options: dict[str, Any]
    ) -> Density:
        """Fit a density whose base is a Gaussian of this covariance about the mean of the rows."""
        mean = np.average(X, axis=0, weights=weights)
        moments = (float(weights.sum()), mean, covariance)
        return self._fit_named(
            X, weights, {**options, "moments": moments, "base": GaussianBase(mean, covariance)}
        )


def weighted_rows(X: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Rows whose weight is not zero, and their weights; None where none are given.

    Raises
    ------
    ValueError
        If a weight is negative, or all are 0.
    """
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
