"""`TGPClassifier`: one density per class, combined by Bayes' rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..density.density import Density
from ..runtime.warnings import FallbackWarning, warn
from ..statistics.mergeable_sums import check_decay
from ..validation import Array, as_floats
from .estimator import DensityEstimator
from .shrinkage import has_fewer_rows, is_singular, pool_covariance

ROWS_PER_COLUMN = 2  # times d + 1: with fewer rows a covariance is too noisy to classify with
PRIOR_ROUNDING = 1e-6  # by which the sum of given priors may differ from 1


class TGPClassifier(ClassifierMixin, DensityEstimator):
    """Classification by one density per class and Bayes' rule.

    P(class | x) is proportional to prior(class) q(x | class), where q(. | class) is the density
    that ``tgpfast.fit`` learns from the rows of the class.

    Parameters
    ----------
    priors : array-like, (n_classes,), default None
        Probabilities of the classes, in the order of ``classes_``. None takes the shares of the
        training rows.
    method, n_features, lam, gamma, base, scale, effort, backend, n_threads : see `TGPDensity`
    support, period, discrete, random_state, decay, fit_options : see `TGPDensity`
    missing : {"error", "drop"}, default "error"
        "drop" learns from the rows without missing values. ``predict`` compares the densities of
        the columns that a row has.

    Attributes
    ----------
    classes_ : (n_classes,) array
        The labels, sorted.
    densities_ : list of Density or None
        One per class; None for a class without rows, whose probability is 0.
    class_count_ : (n_classes,) array
        Sum of the weights of the rows of each class.
    priors_ : (n_classes,) array
        Probabilities of the classes.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : (d,) array of str
        Names of the columns, where X is a frame.

    Notes
    -----
    A class has too few rows if fewer than 2 (d + 1) of them differ. Its base is a Gaussian about
    its own mean, with the covariance that all classes share, shrunk to its diagonal. The same
    serves a class in which a column is constant. A FallbackWarning names such classes.

    Examples
    --------
    >>> import numpy as np
    >>> from tgpfast.sklearn import TGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0.0, 1.0, (200, 2)), rng.normal(3.0, 1.0, (200, 2))])
    >>> y = np.repeat(["low", "high"], 200)
    >>> classifier = TGPClassifier(method="fd", lam=10.0, base="empirical", n_features=50)
    >>> classifier.fit(X, y).predict([[0.0, 0.0], [3.0, 3.0]]).tolist()
    ['low', 'high']
    """

    def __init__(
        self, *, priors: Any = None, method: Any = "auto", n_features: Any = "auto",
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
        self.priors = priors

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TGPClassifier:
        """Learn one density per class.

        Parameters
        ----------
        X : array-like, (n, d)
        y : array-like, (n,)
            Labels.
        sample_weight : array-like, (n,), default None
            Not negative. A weight of 2 is two rows, a weight of 0 none.

        Returns
        -------
        TGPClassifier
            This estimator.

        Raises
        ------
        ValueError
            If a class has no density, or an option is wrong.
        """
        rows, labels = self._check_rows(X, reset=True, least=2, y=y)
        check_classification_targets(labels)
        self._start(np.unique(labels))
        return self._learn(rows, labels, sample_weight)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> TGPClassifier:
        """Learn from more rows.

        The first rows of a class choose its settings, which are kept. Only the rows of classes
        that have too few are kept, until there are enough.

        Parameters
        ----------
        X : array-like, (n, d)
        y : array-like, (n,)
            Labels.
        classes : array-like, (n_classes,), default None
            All labels that will come; needed by the first call.
        sample_weight : array-like, (n,), default None
            As for ``fit``.

        Returns
        -------
        TGPClassifier
            This estimator.

        Raises
        ------
        ValueError
            If classes are missing in the first call or differ later, or a label is unknown.
        """
        is_first = not hasattr(self, "priors_")  # the last attribute that learning sets
        if is_first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        known = np.unique(classes) if is_first or classes is not None else self.classes_
        if not is_first and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes={classes!r}: expected {self.classes_.tolist()} as before")
        rows, labels = self._check_rows(X, reset=is_first, y=y)
        unknown = np.setdiff1d(labels, known)
        if len(unknown):
            raise ValueError(f"y has {unknown.tolist()}, which classes does not have")
        if is_first:
            self._start(known)
        return self._learn(rows, labels, sample_weight)

    def predict(self, X: Any) -> Array:
        """Return the most probable label of every row.

        Parameters
        ----------
        X : array-like, (n, d)

        Returns
        -------
        (n,) array
        """
        best = np.argmax(self._joint_log_density(X), axis=1)  # first: it names what is not fitted
        return self.classes_[best]

    def predict_log_proba(self, X: Any) -> Array:
        """Log probability of every class for every row.

        Parameters
        ----------
        X : array-like, (n, d)

        Returns
        -------
        (n, n_classes) array
            Columns in the order of ``classes_``.
        """
        joint = self._joint_log_density(X)
        return joint - logsumexp(joint, axis=1, keepdims=True)

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class for every row.

        Parameters
        ----------
        X : array-like, (n, d)

        Returns
        -------
        (n, n_classes) array
            Columns in the order of ``classes_``; rows sum to 1.
        """
        return np.exp(self.predict_log_proba(X))

    def _joint_log_density(self, X: Any) -> Array:
        """log prior + log density, (n, n_classes); the prior alone where every density is 0."""
        check_is_fitted(self, "priors_")
        rows = self._check_rows(X, reset=False)
        with np.errstate(divide="ignore"):
            log_priors = np.log(self.priors_)
        joint = np.full((len(rows), len(self.classes_)), -np.inf)
        for k, density in enumerate(self.densities_):
            if density is not None:
                joint[:, k] = log_priors[k] + self._log_density(density, rows)
        joint[np.isneginf(joint).all(axis=1)] = log_priors
        return joint

    def _start(self, classes: Array) -> None:
        """Forget everything but the labels."""
        self.classes_ = classes
        self.densities_: list[Density | None] = [None] * len(classes)
        self.class_count_ = np.zeros(len(classes))
        self._kept: LabeledRows | None = None  # rows of classes that have too few

    def _learn(self, X: Array, y: Array, sample_weight: Any) -> TGPClassifier:
        """Fit or update the density of every class that has rows; then the priors."""
        decay = check_decay(self.decay)
        used, weights = self._select_rows(X, sample_weight)
        labels = np.searchsorted(self.classes_, y[used])
        table = LabeledRows(X[used], labels, np.ones(len(labels)) if weights is None else weights)
        counts = np.bincount(labels, table.weights, len(self.classes_))
        class_count = decay * self.class_count_ + counts
        priors = _check_priors(self.priors, class_count)
        densities = list(self.densities_)
        if self._kept is not None:  # these classes are fitted anew
            table = self._kept.joined(table, decay)
            for k in np.unique(self._kept.labels):
                densities[k] = None
        is_new = np.array([density is None for density in densities])
        fitted, kept = self._fit_new(table, np.flatnonzero(is_new))
        for k in np.unique(table.labels):
            density, rows = densities[k], table.of([k])
            densities[k] = fitted[k] if density is None else density.update(
                rows.X, sample_weight=rows.given_weights, decay=decay
            )
        self.densities_, self._kept = densities, kept
        self.class_count_, self.priors_ = class_count, priors
        return self

    def _fit_new(
        self, table: LabeledRows, classes: Any
    ) -> tuple[dict[int, Density], LabeledRows | None]:
        """Densities of those of the classes that have rows, and rows of classes with too few."""
        options, least = self._fit_options(), ROWS_PER_COLUMN * (table.X.shape[1] + 1)
        groups = {int(k): table.of([k]) for k in classes if k in table.labels}
        small = [k for k, rows in groups.items() if has_fewer_rows(rows.X, least)]
        flat = [k for k, r in groups.items() if k not in small and is_singular(r.X, r.weights)]
        covariance: Any = None
        if small or flat:
            covariance = pool_covariance(table.X, table.labels, table.weights)
            warn(
                f"classes {self.classes_[small + flat].tolist()} have fewer than {least} rows that "
                "differ, or constant or dependent columns: their bases are Gaussians with the "
                "covariance that all classes share. Give more rows, or drop columns",
                FallbackWarning,
            )
        densities = {}
        for k, rows in groups.items():
            if k in small or k in flat:
                densities[k] = self._fit_with_covariance(rows.X, rows.weights, covariance, options)
            else:
                densities[k] = self._fit_named(rows.X, rows.given_weights, options)
        return densities, table.of(small) if small else None


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Rows (n, d), the numbers of their classes (n,) and their weights (n,)."""

    X: Array
    labels: Array
    weights: Array

    @property
    def given_weights(self) -> Array | None:
        """The weights; None where they are all 1."""
        return self.weights if (self.weights != 1.0).any() else None

    def of(self, classes: Any) -> LabeledRows:
        """The rows of some classes."""
        mine = np.isin(self.labels, classes)
        return LabeledRows(self.X[mine], self.labels[mine], self.weights[mine])

    def joined(self, later: LabeledRows, decay: float) -> LabeledRows:
        """These rows, their weights multiplied by decay, and later ones."""
        return LabeledRows(
            np.concatenate([self.X, later.X]), np.concatenate([self.labels, later.labels]),
            np.concatenate([decay * self.weights, later.weights]),
        )  # fmt: skip


def _check_priors(priors: Any, class_count: Array) -> Array:
    """Probabilities of the classes; ValueError where those given are not valid."""
    if priors is None:
        return class_count / class_count.sum()
    given = as_floats(priors, "priors", "(n_classes,)", 1)
    if len(given) != len(class_count):
        raise ValueError(f"priors has {len(given)} entries; there are {len(class_count)} classes")
    if (given < 0).any() or abs(given.sum() - 1.0) > PRIOR_ROUNDING:
        raise ValueError(f"priors={given.tolist()}: expected probabilities that sum to 1")
    return given
