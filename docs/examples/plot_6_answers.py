"""
Answers: a conditional and a region
===================================

The model of two columns gives the density of one column where the other is known, and the smallest
region that holds 90 % of the probability.
"""

import matplotlib.pyplot as plt
import numpy as np

import tgpfast as tgp

rng = np.random.default_rng(0)
size = rng.gamma(4.0, 20.0, 1_500)
price = 3.0 * size + (20.0 + 0.5 * size) * rng.standard_normal(1_500)
X = np.column_stack([size, price])
model = tgp.fit(X, support={0: (0, None)})
print("P(size < 60, price > 150) =", model.probability([None, 150.0], [60.0, None]))

# %%
# Mean and 90 % band of the price for every size.
sizes = np.linspace(20.0, 180.0, 40)
table = model.conditional({0: sizes})
low, high = table.band(0.9).T
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.scatter(*X.T, s=3, color="0.7")
axes.plot(sizes, table.mean, label="mean price")
axes.fill_between(sizes, low, high, alpha=0.25, label="90 % of the prices")
axes.set(xlabel="size", ylabel="price", xlim=(0, 190), ylim=(-50, 750))
axes.legend(frameon=False)

# %%
# The region with the highest density.
region = model.highest_density_region(0.9)
print("share of the rows inside:", region.contains(X).mean().round(3))
picture = region.plot(X)
