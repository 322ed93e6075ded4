"""`TGPOutlierDetector`: rows are outliers where the density is low."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from ..density.density import Density
from ..features.lattice import LATTICE_DIMENSIONS
from ..runtime.warnings import DataWarning, warn
from ..selection.candidates import LEAST_PILOT_ROWS
from ..validation import Array, positive
from .density import TGPDensity
from .shrinkage import has_fewer_rows
from .smoothing import scott_noise, smooth_density

AUTO_SHARE = 0.05  # of the model's mass: less likely rows are outliers if contamination is "auto"
MOST_SHARE = 0.5  # scikit-learn's bound: beyond it, outliers would be the usual rows
# Weighted draws of the model. If a tenth of them is effective, the share below the threshold has a
# standard error of 0.003.
THRESHOLD_DRAWS = 50_000
LEAST_BASE_SHARE = 0.05  # of draws of the base; their share then has an error of 0.004
MOST_MISSED_MASS = 0.02  # of the model, in modes that draws of the base may miss
# Draws that give the threshold of rows with missing values: each is an integral over the missing
# columns. The share of mass below the threshold has a standard error of 0.007.
PATTERN_DRAWS = 1_000
TILT_PARAMETERS = ("method", "n_features", "lam", "gamma")  # a smoothed density has no tilt
DOMAIN_PARAMETERS = ("support", "period", "discrete")  # noise would cross walls and steps
SHARE_ROUNDING = 1e-12  # relative error of a product of a share and a number of rows


class TGPOutlierDetector(OutlierMixin, TGPDensity):
    """Outlier detection: a row is an outlier where the learned log density is below ``offset_``.

    Parameters
    ----------
    contamination : "auto" or float, default "auto"
        A float in (0, 0.5] is the share of the training rows that are outliers. "auto" does not
        presume a share: a row is an outlier if it scores less than 95 % of the rows that ``model_``
        draws.
    smoothing : "auto" or float, default "auto"
        Standard deviation of Gaussian noise, in those of the columns, with which the density is
        convolved before it scores rows; 0 for none. Training rows often contain outliers, and those
        that lie in small clusters look likely to a density that follows every cluster. "auto" is
        Scott's bandwidth, n^(-1/(d+4)), with more than three columns, and 0 with fewer, and where
        ``method``, ``n_features``, ``lam``, ``gamma``, ``base``, ``support``, ``period`` or
        ``discrete`` is given. With noise the base is a mixture, "auto" in ``scale`` means
        "standardize", and rows of ``partial_fit`` add nothing.
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
    smoothed_ : Density or None
        The density that scores rows: ``model_`` without its tilt, convolved with noise. None where
        ``model_`` scores them.
    offset_ : float
        The threshold: ``decision_function(X)`` is ``score_samples(X) - offset_``.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : (d,) array of str
        Names of the columns, where X is a frame.

    Notes
    -----
    Thresholds that rest on rows that the model draws have a random error, which is the same for the
    same rows and the same ``random_state``. Weighted rows and repeated rows give the same
    threshold. There is one exception: with more than three columns and a tilt so strong that a
    PoorNormalizerWarning calls the density unreliable, draws depend on the modes that are found,
    and rounding may decide on one. With such settings (``lam=1.0`` on the 15 rows of 30 columns of
    the check, for example), scikit-learn's ``check_sample_weight_equivalence_on_dense_data`` may
    fail. With default settings all checks pass.

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
        self, *, contamination: Any = "auto", smoothing: Any = "auto", method: Any = "auto",
        n_features: Any = "auto", lam: Any = "auto", gamma: Any = "auto", base: Any = "auto",
        scale: Any = "auto", support: Any = None, period: Any = None, discrete: Any = None,
        missing: Any = "error", effort: Any = "balanced", backend: Any = "auto",
        n_threads: Any = None, random_state: Any = 0, decay: Any = 1.0, fit_options: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            method=method, n_features=n_features, lam=lam, gamma=gamma, base=base, scale=scale,
            support=support, period=period, discrete=discrete, missing=missing, effort=effort,
            backend=backend, n_threads=n_threads, random_state=random_state, decay=decay,
            fit_options=fit_options,
        )  # fmt: skip
        self.contamination = contamination
        self.smoothing = smoothing

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
            self.offset_ = _find_threshold(self._scorer.log_density(rows), weights, share)
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
        if self.smoothed_ is not None:
            self._check_rows(X, reset=False)
            warn(
                "the smoothed density is that of the first rows, to which further rows add "
                "nothing. Use smoothing=0 and give lam for streams",
                DataWarning,
            )
            return self
        super().partial_fit(X, sample_weight=sample_weight)
        self.offset_ = self._find_model_threshold(share)
        return self

    def score_samples(self, X: Any) -> Array:
        """Log density of every row, by the smoothed density where there is one.

        Parameters
        ----------
        X : array-like, (n, d)

        Returns
        -------
        (n,) array
            Normalized, in the units of X. With ``missing="drop"``, a row with missing values has
            the marginal log density of its other columns.
        """
        check_is_fitted(self)
        return self._log_density(self._scorer, self._check_rows(X, reset=False))

    def decision_function(self, X: Any) -> Array:
        """Log density above the threshold; negative for outliers.

        Parameters
        ----------
        X : array-like, (n, d)

        Returns
        -------
        (n,) array
        """
        return self.score_samples(X) - self._find_row_thresholds(self._check_rows(X, reset=False))

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

    @property
    def _scorer(self) -> Density:
        """The density that scores rows."""
        return self.model_ if self.smoothed_ is None else self.smoothed_

    def _fit_density(self, X: Array, weights: Array | None) -> Density:
        """A density of the rows; where noise is asked for, the smoothed one is kept too."""
        noise = self._find_noise(X)
        self.smoothed_ = None
        if noise == 0.0:
            return super()._fit_density(X, weights)
        if has_fewer_rows(X, max(X.shape[1] + 1, LEAST_PILOT_ROWS)):
            model = super()._fit_density(X, weights)  # whose base is a Gaussian
        else:
            scale = "standardize" if self.scale == "auto" else self.scale
            options = self._fit_options() | {"base": "mixture", "scale": scale}
            model = self._fit_named(X, weights, options)
        rows = model.scaling.apply(X)
        about = rows - np.average(rows, axis=0, weights=weights)
        variances = np.average(np.square(about), axis=0, weights=weights)
        self.smoothed_ = smooth_density(model, noise * np.sqrt(variances))
        return model

    def _find_noise(self, X: Array) -> float:
        """Standard deviation of the noise in those of the columns, 0 for none."""
        given = [name for name in TILT_PARAMETERS if getattr(self, name) != "auto"]
        given += ["base"] * (self.base not in ("auto", "mixture"))
        given += [name for name in DOMAIN_PARAMETERS if getattr(self, name) is not None]
        if isinstance(self.smoothing, str) and self.smoothing == "auto":
            serves = X.shape[1] > LATTICE_DIMENSIONS and not given
            return scott_noise(X) if serves else 0.0
        if self.smoothing == 0:
            return 0.0
        noise = positive("smoothing", self.smoothing, "auto")
        if given:
            raise ValueError(
                f"smoothing={noise:g} makes a smoothed mixture of the rows, which does not take "
                f"{', '.join(given)}; leave that out, or use smoothing=0"
            )
        return noise

    def _find_row_thresholds(self, X: Array) -> Array:
        """``offset_``, or for a row with missing values the threshold of the columns it has."""
        holes = np.isnan(X)
        thresholds = np.full(len(X), self.offset_)
        if not holes.any():
            return thresholds
        draws = self.model_.sample(PATTERN_DRAWS, seed=self.model_.settings["seed"])
        share = float(np.mean(self._scorer.log_density(draws) < self.offset_))
        for pattern in np.unique(holes[holes.any(axis=1)], axis=0):
            scores = self._log_density(self._scorer, np.where(pattern, np.nan, draws))
            thresholds[(holes == pattern).all(axis=1)] = _find_threshold(scores, None, share)
        return thresholds

    def _find_model_threshold(self, share: float) -> float:
        """The log density below which the model has this share of its mass."""
        seed = self.model_.settings["seed"]
        found = weigh_base_draws(self.model_, THRESHOLD_DRAWS, seed)
        if found is None:
            found = self.model_.weighted_sample(THRESHOLD_DRAWS, seed)
        rows, weights = found
        return _find_threshold(self._scorer.log_density(rows), weights, share)


def weigh_base_draws(model: Density, n: int, seed: int) -> tuple[Array, Array] | None:
    """Draws of the base, (n, d), and weights that make them draws of the model, (n,).

    They are smooth functions of the statistics, unlike draws that depend on the modes that are
    found. None where other draws are exact, or where too few of these carry the model's mass.
    """
    integrator = getattr(model, "integrator", None)  # a discrete density has none
    if integrator is None or integrator.tilt.is_zero or integrator.uses_quadrature:
        return None
    u = integrator.base.draw(n, np.random.default_rng(seed))
    values = integrator.tilt.value(u, integrator.threads)
    weights = np.exp(values - values.max())
    mass, effective = weights.sum(), weights.sum() ** 2 / (weights @ weights)
    missed = abs(values.max() + np.log(mass / n) - model.log_normalizer.value)
    if effective < LEAST_BASE_SHARE * n or missed > MOST_MISSED_MASS:
        return None
    return model.scaling.invert(u), weights


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
