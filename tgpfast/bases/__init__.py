"""Base densities, which get tilted: Gaussian, mixture, Student t, and the protocol for your own."""
