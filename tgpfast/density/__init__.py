"""The density object. Its folders use only those before them:

`exponents`: the learned exponent f;
`grids`: rules and grids for integrals of one to three columns;
`draws`: rows drawn for samples and for importance sampling;
`normalizing`: the normalizer Z with its error;
`answers`: probabilities, quantiles, expectations, regions, modes, descriptions;
`columns`: marginals, conditionals and discrete columns.

The modules beside them are what users hold. `density` has `Density`, whose methods `answering` has
in part; `sampling` draws from it; `saving` and `loading` are its files. `grouped` has the densities
of many groups, `group_index` finds them by label, and `group_files` checks what was read.
"""
