"""How well a density fits: distances, likelihood and Fisher score; kernel density baselines."""
