"""Features of rows: how they are drawn, and how they are evaluated.

`random` has the features of the paper, `evaluation` their values at rows, `delta_weights` the
weights of their products under noise. `lattice` has waves at equispaced frequencies, `lattice_box`
the part of space that they cover, `lattice_transform` the FFTs between waves and nodes of a grid.
`spectral_density` has the kernels of both.
"""
