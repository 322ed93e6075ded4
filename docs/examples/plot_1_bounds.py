"""
One column with a bound
=======================

Waiting times cannot be negative. ``support`` says so, and the density is zero below 0 and right at
the bound.
"""

import matplotlib.pyplot as plt
import numpy as np

import tgpfast as tgp

rng = np.random.default_rng(0)
waits = rng.exponential(2.0, (1_000, 1))

open_model = tgp.fit(waits)
model = tgp.fit(waits, support={0: (0, None)})

line = np.linspace(-1.0, 10.0, 500)[:, None]
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.hist(waits[:, 0], bins=50, density=True, color="0.85")
axes.plot(line, np.exp(open_model.log_density(line)), label="without a bound")
axes.plot(line, np.exp(model.log_density(line)), label="support={0: (0, None)}")
axes.plot(line, np.where(line < 0, 0.0, np.exp(-line / 2) / 2), "k:", label="truth")
axes.set(xlim=(-1, 10), xlabel="waiting time", ylabel="density")
axes.legend(frameon=False)

# %%
# No sample lies beyond the bound.
print(model.sample(10_000, seed=0).min() >= 0)
