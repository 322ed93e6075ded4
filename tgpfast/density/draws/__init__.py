"""Rows drawn from a density or its base: by rejection, by importance, by Markov chains."""
