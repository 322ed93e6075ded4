"""Densities of some columns, and answers about columns.

Marginals. `marginals` has their class; `marginal_rules` integrates the other columns out, by rules
or by `conditional_draws`. `missing_values` scores rows by the columns that they have.

Conditionals. `conditionals` holds columns at values, where `restriction` is what remains of the
exponent. `explaining` moves one column at a time, and `information` compares columns.

Discrete columns. `discrete` has their class, and `bin_masses` the probabilities of their values.
"""
