"""The normalizer Z of a density with its error, by quadrature or by draws.

`normalizer` has the number and how it comes from draws. One to three columns are integrated by
`quadrature` (random features), `lattice_quadrature` (lattices) or `periodic_quadrature` (random
features with periods). `integration` keeps what a model has integrated, and `group_normalizers`
treats many small densities together.
"""
