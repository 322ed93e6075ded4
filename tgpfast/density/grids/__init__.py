"""Rules and grids for integrals of one to three columns.

Boxes. `box_rule` integrates over a box, and `base_marginals` gives the range and the distribution
functions of bases.

Whitened coordinates. `whitened_grid` places the nodes. `components` splits a base, and
`component_grid` holds one component times e^f; `marginal_cdf` sums it along a direction.
`narrow_part` does both for a Gaussian that the rule of a lattice steps over.
"""
