"""`TGPDensity`: a density with the methods of scikit-learn's KernelDensity."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from ..validation import Array
from .estimator import DensityEstimator, draw_seed, weighted_rows


class TGPDensity(DensityMixin, DensityEstimator):
    """Density estimation by ``tgpfast.fit``, with the methods of scikit-learn's KernelDensity.

    Parameters
    ----------
    method, n_features, lam, gamma, base : default "auto"
        As for ``tgpfast.fit``, which chooses those that are "auto" by held-out rows.
    scale : {"auto", "standardize", "gaussianize", "center", "none"}, default "auto"
        As for ``tgpfast.fit``.
    support : dict or None, default None
        Column -> (low, high), as for ``tgpfast.fit``. Columns of ``support``, ``period`` and
        ``discrete`` are numbers, or names where X is a frame.
    period : dict or None, default None
        Column -> period.
    discrete : sequence, dict or None, default None
        Columns of whole numbers, or column -> step.
    missing : {"error", "drop"}, default "error"
        "drop" learns from the rows without missing values, and a DataWarning says how many it left
        out. ``score_samples`` then scores a row by the columns that it has.
    effort : {"fast", "balanced", "thorough"}, default "balanced"
        How much work the choice of open settings may take.
    backend : str, default "auto"
        As for ``tgpfast.fit``.
    n_threads : int or None, default None
        As for ``tgpfast.fit``.
    random_state : int, None, RandomState or Generator, default 0
        The seed of ``tgpfast.fit``. None gives another seed at each fit.
    decay : float, default 1.0
        In (0, 1]. Each ``partial_fit`` first multiplies the weights of all earlier rows by it, so
        that the model forgets.
    fit_options : dict or None, default None
        Other options of ``tgpfast.fit``, such as ``{"kernel": "matern32"}``. Weights mean
        repetition, as in scikit-learn: a weight of 2 is two rows.
        ``{"normalize_weights": True}`` rescales them to Kish's effective number of rows instead.

    Attributes
    ----------
    model_ : Density
        The density that ``tgpfast.fit`` returned: ``model_.conditional``, ``model_.quantile``,
        ``model_.explain``, ``model_.save`` and others.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : (d,) array of str
        Names of the columns, where X is a frame.

    See Also
    --------
    tgpfast.fit : Takes files, streams and Dask collections too.

    Notes
    -----
    Where at most d rows of d columns differ, the base is a Gaussian whose covariance is shrunk to
    its diagonal, and a FallbackWarning is emitted. Constant and linearly dependent columns raise a
    ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.sklearn import TGPDensity
    >>> X = np.random.default_rng(0).normal(5.0, 2.0, size=(500, 1))
    >>> density = TGPDensity(method="fd", lam=10.0, base="empirical", n_features=50).fit(X)
    >>> bool(density.score_samples([[5.0]])[0] > density.score_samples([[11.0]])[0])
    True
    >>> density.sample(3, random_state=0).shape
    (3, 1)
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TGPDensity:
        """Learn the density of the rows.

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
        TGPDensity
            This estimator.

        Raises
        ------
        ValueError
            If the rows have no density, or an option is wrong.
        """
        self._learn(X, sample_weight)
        return self

    def _learn(self, X: Any, sample_weight: Any) -> tuple[Array, Array | None]:
        """Fit, and return the rows and weights that the density is learned from."""
        rows = self._check_rows(X, reset=True, least=2)
        used, weights = self._select_rows(rows, sample_weight)
        self.model_ = self._fit_density(rows[used], weights)
        return rows[used], weights

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TGPDensity:
        """Learn from more rows; the first call, if there was no fit, is a fit.

        Settings and features are chosen by the first rows and kept, so the first batch should be
        large and typical. Rows are not kept.

        Parameters
        ----------
        X : array-like, (n, d)
        y : None
            Ignored.
        sample_weight : array-like, (n,), default None
            As for ``fit``.

        Returns
        -------
        TGPDensity
            This estimator.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, sample_weight=sample_weight)
        rows = self._check_rows(X, reset=False)
        used, weights = self._select_rows(rows, sample_weight)
        self.model_ = self.model_.update(rows[used], sample_weight=weights, decay=self.decay)
        return self

    def score_samples(self, X: Any) -> Array:
        """Log density of every row.

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
        return self._log_density(self.model_, self._check_rows(X, reset=False))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Total log-likelihood of the rows, as that of scikit-learn's KernelDensity.

        Parameters
        ----------
        X : array-like, (n, d)
        y : None
            Ignored.
        sample_weight : array-like, (n,), default None
            Weights of the rows in the sum.

        Returns
        -------
        float
            The sum, not the mean, of ``score_samples(X)``.
        """
        values = self.score_samples(X)
        if sample_weight is None:
            return float(values.sum())
        used, weights = weighted_rows(values, sample_weight)
        return float(np.dot(used, weights))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default 1
        random_state : int, None, RandomState or Generator, default None
            None draws new rows at each call.

        Returns
        -------
        (n_samples, d) array
        """
        check_is_fitted(self)
        return self.model_.sample(n_samples, seed=draw_seed(random_state))
