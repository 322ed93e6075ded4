"""Questions about a density.

Arguments and results. `column_choice` reads columns, bounds and levels, `questions` the arguments
that every kind of density takes, and `answer` is a number with its error. `tilted_density` is what
answers need of a density, and `describing` puts it into words.

Answers. `probabilities` (of `periodic_boxes` too), `expectations`, `regions`, `local_modes` and
`credible` bands: integrals by `box_integrals`, else means by `draw_means`.
"""
