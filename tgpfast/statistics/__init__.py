"""Sums over the rows that every estimator is solved from, and the engines that compute them.

Random features. `statistics` has the sums and their formulas, `accumulation` the pass over the
rows, `pass_options` what it was asked for. `engine_choice`, by `costs`, takes one of two engines:
`direct`, term by term, in the precision of `precision_choice`; or `spectral`, by transforms, where
`spectral_work` plans the pass, `spread_grid` holds the points and `fourier_sums` has the formulas.
`spectrum` keeps rows on a grid, in a box from `grid_box`. `feature_means` sums phi alone and
`base_scores` the score of a base, by `transforms` that `transform_plan` chooses. `required_sums`
makes what a method needs, and `fisher` the linear systems.

Lattices. `lattice_sums` is the pass, by `wave_sums`; `lattice_statistics` are its sums, and
`value_folds` says which rows are held out.

Both. `mergeable_sums` add, `moment_sums` need no features, `chunks` gather blocks.
"""
