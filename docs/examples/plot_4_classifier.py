"""
A classifier with probabilities
===============================

``TGPClassifier`` learns one density per class and combines them by Bayes' rule. Far from all rows
``predict_proba`` compares tails, so look at log densities too if unusual rows matter.
"""

import matplotlib.pyplot as plt
import numpy as np

from tgpfast.sklearn import TGPClassifier

rng = np.random.default_rng(0)
t = rng.uniform(0.0, np.pi, 1_200)
y = rng.integers(0, 2, 1_200)
upper = np.column_stack([np.cos(t), np.sin(t)])
lower = np.column_stack([1.0 - np.cos(t), 0.5 - np.sin(t)])
X = np.where(y[:, None] == 0, upper, lower) + 0.2 * rng.standard_normal((1_200, 2))

classifier = TGPClassifier().fit(X[:800], y[:800])
print("share of held-out rows that are right:", classifier.score(X[800:], y[800:]))

side = 120
across, up = np.linspace(-1.8, 2.8, side), np.linspace(-1.3, 1.8, side)
nodes = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
share = classifier.predict_proba(nodes)[:, 1].reshape(side, side)
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
picture = axes.contourf(across, up, share, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.7)
figure.colorbar(picture, label="P(class 1)")
axes.scatter(*X[800:].T, c=y[800:], s=6, cmap="RdBu_r", edgecolors="k", linewidths=0.2)
axes.set_aspect("equal")
