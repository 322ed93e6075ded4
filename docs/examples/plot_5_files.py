"""
Files and updates
=================

``fit`` reads files in blocks: memory does not grow with the number of rows. ``update`` adds rows to
a model that is saved with its statistics.
"""

import tempfile
from pathlib import Path

import numpy as np

import tgpfast as tgp

folder = Path(tempfile.mkdtemp())
january = tgp.datasets.banana(3_000, seed=1)
np.save(folder / "january.npy", january)

model = tgp.fit(folder / "january.npy", lam=0.1)  # a given lambda keeps the tilt
model.save(folder / "model.npz", statistics=True)

# %%
# A month later, somewhere else: the new rows are all that is needed.
february = tgp.datasets.banana(3_000, seed=2) + np.array([0.8, 0.0])
old = tgp.load(folder / "model.npz")
new = old.update(february, decay=0.2)  # older rows keep 0.2 of their weight

figure = tgp.plot.contours({"january": old, "with february": new}, february)

# %%
# Later rows are more likely under the updated model.
later = tgp.datasets.banana(3_000, seed=3) + np.array([0.8, 0.0])
print("before:", old.log_density(later).mean().round(3))
print("after: ", new.log_density(later).mean().round(3))
