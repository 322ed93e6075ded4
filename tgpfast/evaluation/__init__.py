"""Measures of a model on rows: KS, Wasserstein, likelihood; kernel density estimates as rivals."""
