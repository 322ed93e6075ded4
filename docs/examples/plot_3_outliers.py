"""
Outliers
========

A row is an outlier where the learned density is low. The detector follows the conventions of
scikit-learn.
"""

import matplotlib.pyplot as plt
import numpy as np

import tgpfast as tgp
from tgpfast.sklearn import TGPOutlierDetector

rng = np.random.default_rng(0)
usual = tgp.datasets.two_moons(1_500)
odd = rng.uniform([-1.5, -1.0], [2.5, 1.5], (40, 2))
X = np.concatenate([usual, odd])

detector = TGPOutlierDetector(contamination=0.03).fit(X)
is_outlier = detector.predict(X) == -1
print(is_outlier[: len(usual)].sum(), "of", len(usual), "usual rows are marked")
print(is_outlier[len(usual) :].sum(), "of", len(odd), "odd rows are marked")

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.scatter(*X[~is_outlier].T, s=4, color="0.6")
axes.scatter(*X[is_outlier].T, s=14, color="#d55e00", label="predict(X) == -1")
axes.legend(frameon=False)
axes.set_aspect("equal")
