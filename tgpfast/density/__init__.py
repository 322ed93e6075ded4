"""The density object: its exponent, its normalizer, samples from it, and densities of groups.

Folders, each of which uses only those before it:

- ``exponents``: the learned exponent f;
- ``grids``: rules and grids for integrals of one to three columns;
- ``draws``: draws of rows, for samples and for importance sampling;
- ``normalizing``: the normalizer Z with its error;
- ``answers``: probabilities, quantiles, expectations, regions, modes, descriptions;
- ``columns``: marginals, conditionals and discrete columns.

The modules beside them are what users hold: `Density`, its samples, its files, and groups.
"""
