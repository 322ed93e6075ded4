"""`TGPOutlierDetector`: rows are outliers where the density is low."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import OutlierMixin

from ..validation import Array
from .density import TGPDensity

AUTO_SHARE = 0.05  # of the model's mass: less likely rows are outliers if contamination is "auto"
MOST_SHARE = 0.5  # scikit-learn's bound: beyond it, outliers would be the usual rows
# Weighted draws of the model. If a tenth of them is effective, the share below the threshold has a
# standard error of 0.003.
THRESHOLD_DRAWS = 50_000
# Draws that give the threshold of rows with missing values: each is an integral over the missing
# columns. The share of mass below the threshold has a standard error of 0.007.
PATTERN_DRAWS = 1_000
SHARE_ROUNDING = 1e-12  # relative error of a product of a share and a number of rows


class TGPOutlierDetector(OutlierMixin, TGPDensity):
    """Outlier detection: a row is an outlier where the learned log density is below ``offset_``.

    Parameters
    ----------
    contamination : "auto" or float, default "auto"
        A float in (0, 0.5] is the share of the training rows that are outliers. "auto" does not
        presume a share: a row is an outlier if it is less likely than 95 % of the rows that the
        model itself draws.
    method, n_features, lam, gamma, base, scale, effort, backend, n_threads : see `TGPDensity`
    support, period, discrete, random_state, decay, fit_options : see `TGPDensity`
    missing : {"error", "drop"}, default "error"
        "drop" learns from the rows without missing values. A row with missing values is then
        scored by the columns that it has. Its threshold cuts off the same share of the model's
        mass in these columns as ``offset_`` does in all of them, and comes from 1,000 draws of the
        model for each combination of missing columns.

    Attributes
    ----------
    model_ : Density
        The density that ``tgpfast.fit`` returned.
    offset_ : float
        The threshold: ``decision_function(X)`` is ``score_samples(X) - offset_``.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : (d,) array of str
        Names of the columns, where X is a frame.

    Notes
    -----
    Thresholds that rest on rows that the model draws have a random error, which is the same for the
    same rows and the same ``random_state``. In more than three columns, weighted rows and repeated
    rows may give thresholds that differ by this error if the tilt is strong: the draws depend on
    the modes that are found, and rounding may decide on one. With such settings (``lam=1.0`` on
    the 15 rows of 10 columns of the check, for example), scikit-learn's
    ``check_sample_weight_equivalence_on_dense_data`` fails. With default settings all checks pass.

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.sklearn import TGPOutlierDetector
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> detector = TGPOutlierDetector(method="fd", lam=10.0, base="empirical", n_features=50)
    >>> detector.fit(X).predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    def __init__(
        self, *, contamination: Any = "auto", method: Any = "auto", n_features: Any = "auto",
        lam: Any = "auto", gamma: Any = "auto", base: Any = "auto", scale: Any = "auto",
        support: Any = None, period: Any = None, discrete: Any = None, missing: Any = "error",
        effort: Any = "balanced", backend: Any = "auto", n_threads: Any = None,
        random_state: Any = 0, decay: Any = 1.0, fit_options: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            method=method, n_features=n_features, lam=lam, gamma=gamma, base=base, scale=scale,
            support=support, period=period, discrete=discrete, missing=missing, effort=effort,
            backend=backend, n_threads=n_threads, random_state=random_state, decay=decay,
            fit_options=fit_options,
        )  # fmt: skip
        self.contamination = contamination

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TGPOutlierDetector:
        """Learn the density of the rows, and the threshold.

        Parameters
        ----------
        X : array-like, (n, d)
            At least two rows.
        y : None
            Ignored.
        sample_weight : array-like, (n,), default None
            Not negative. A weight of 2 is two rows, a weight of 0 none.

        Returns
        -------
        TGPOutlierDetector
            This estimator.

        Raises
        ------
        ValueError
            If the rows have no density, or an option is wrong.
        """
        share = _check_contamination(self.contamination)
        rows, weights = self._learn(X, sample_weight)
        if self.contamination == "auto":
            self.offset_ = self._find_model_threshold(share)
        else:
            self.offset_ = _find_threshold(self.model_.log_density(rows), weights, share)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TGPOutlierDetector:
        """Learn from more rows, and find the threshold anew.

        Rows are not kept. The threshold is a quantile of the log density of rows that the model
        itself draws: at ``contamination``, or at 0.05 for "auto".

        Parameters
        ----------
        X : array-like, (n, d)
        y : None
            Ignored.
        sample_weight : array-like, (n,), default None
            As for ``fit``.

        Returns
        -------
        TGPOutlierDetector
            This estimator.
        """
        share = _check_contamination(self.contamination)
        if not hasattr(self, "model_"):
            return self.fit(X, sample_weight=sample_weight)
        super().partial_fit(X, sample_weight=sample_weight)
        self.offset_ = self._find_model_threshold(share)
        return self

    def decision_function(self, X: Any) -> Array:
        """Log density above the threshold; negative for outliers.

        Parameters
        ----------
        X : array-like, (n, d)

        Returns
        -------
        (n,) array
        """
        scores = self.score_samples(X)
        return scores - self._find_row_thresholds(self._check_rows(X, reset=False))

    def predict(self, X: Any) -> Array:
        """Return -1 for outliers and 1 for other rows.

        Parameters
        ----------
        X : array-like, (n, d)

        Returns
        -------
        (n,) array of int
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _find_row_thresholds(self, X: Array) -> Array:
        """``offset_``, or for a row with missing values the threshold of the columns it has."""
        holes = np.isnan(X)
        thresholds = np.full(len(X), self.offset_)
        if not holes.any():
            return thresholds
        draws = self.model_.sample(PATTERN_DRAWS, seed=self.model_.settings["seed"])
        share = float(np.mean(self.model_.log_density(draws) < self.offset_))
        for pattern in np.unique(holes[holes.any(axis=1)], axis=0):
            scores = self._log_density(self.model_, np.where(pattern, np.nan, draws))
            thresholds[(holes == pattern).all(axis=1)] = _find_threshold(scores, None, share)
        return thresholds

    def _find_model_threshold(self, share: float) -> float:
        """The log density below which the model has this share of its mass."""
        rows, weights = self.model_._weighted_sample(THRESHOLD_DRAWS, self.model_.settings["seed"])
        return _find_threshold(self.model_.log_density(rows), weights, share)


def _check_contamination(contamination: Any) -> float:
    """The share of outliers; ValueError where it is not valid."""
    if isinstance(contamination, str) and contamination == "auto":
        return AUTO_SHARE
    is_number = isinstance(contamination, (int, float, np.integer, np.floating))
    if not is_number or not 0.0 < contamination <= MOST_SHARE:
        raise ValueError(
            f'contamination={contamination!r}: expected "auto" or a number above 0 and at most '
            f"{MOST_SHARE}"
        )
    return float(contamination)


def _find_threshold(scores: Array, weights: Array | None, share: float) -> float:
    """The largest score that at most this share of the weights is below."""
    order = np.argsort(scores)
    total = np.cumsum(np.ones(len(scores)) if weights is None else weights[order])
    first = np.searchsorted(total, share * total[-1] * (1.0 + SHARE_ROUNDING), side="right")
    return float(scores[order[min(first, len(order) - 1)]])
