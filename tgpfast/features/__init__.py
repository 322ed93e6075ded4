"""Random Fourier features: frequencies, phases and the bandwidth."""
