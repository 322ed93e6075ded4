"""Rows drawn from a density or its base.

Samples. `rejection` keeps proposed rows; `grid_sampling` and `box_sampling` propose them from cells
of grids, and `annealing` moves Markov chains.

Importance sampling. `proposal` draws from the base and from modes that the base misses, which
`modes` finds. `replicates` has the errors of terms that come from independent sets of draws.
"""
