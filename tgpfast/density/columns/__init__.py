"""Densities of some columns: marginals, conditionals and discrete columns."""
