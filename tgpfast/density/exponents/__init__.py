"""The learned exponent f(x), summed term by term or by a non-uniform FFT.

`exponent` has those of random features, a sum of cosines and FVPD's quadratic form; `plane_waves`
evaluates both by transforms. `lattice_exponent` has that of lattice features, which is read from a
grid by `lattice_window`.
"""
