"""Questions about a density: probabilities, quantiles, means, modes and regions."""
