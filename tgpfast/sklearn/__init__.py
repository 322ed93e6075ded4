"""Estimators that follow the conventions of scikit-learn.

`TGPDensity` learns a density, `TGPOutlierDetector` marks unlikely rows, and `TGPClassifier`
compares one density per class. They work in pipelines and grid searches, and they can be cloned
and pickled. This submodule needs scikit-learn; the rest of tgpfast does not.

Examples
--------
>>> import numpy as np, tgpfast
>>> X = np.random.default_rng(0).normal(size=(200, 2))
>>> density = tgpfast.sklearn.TGPDensity(method="fd", lam=10.0, base="empirical", n_features=50)
>>> density.fit(X).score_samples(X[:3]).shape
(3,)
"""

try:
    import sklearn as _sklearn  # noqa: F401 - only to say what to install
except ImportError as error:
    raise ImportError(
        f"tgpfast.sklearn needs scikit-learn, which cannot be imported ({error}); install it "
        'with: pip install "tgpfast[sklearn]"'
    ) from error

from .classifier import TGPClassifier
from .density import TGPDensity
from .outlier_detector import TGPOutlierDetector

__all__ = ["TGPClassifier", "TGPDensity", "TGPOutlierDetector"]
