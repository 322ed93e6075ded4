"""
Two moons: contours, samples, a test of the fit
===============================================

``fit`` chooses all settings by held-out rows. ``tgpfast.plot`` draws the result.
"""

import tgpfast as tgp

X = tgp.datasets.two_moons(2_000)
model = tgp.fit(X)
print(model)
print("kernel:", model.settings["kernel"], " lambda:", model.settings["lam"])

# %%
# Contours hold 25, 50, 75 and 95 % of the mass. The other panel shows rows that the model drew.
figure = tgp.plot.density_figure(model, X)

# %%
# ``evaluate`` compares the model with rows along random directions. "noise" is what a perfect model
# would show.
fresh = tgp.datasets.two_moons(2_000, seed=1)
print(tgp.evaluate(model, fresh, n_directions=50))
