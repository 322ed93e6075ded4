"""The density object: its exponent, its normalizer, samples from it, and densities of groups."""
