"""Rows in: readers of every format, checked blocks, their samples and moments, saved files.

In the order in which rows flow: `files` opens `csv`, `npy` and `parquet`; `arrow` and `table` read
frames; `rows` checks what was given; `blocks` cuts it into checked blocks, with `weights`, without
`missing_rows`, with `jitter` on discrete columns, made ahead of use by `prefetch`. `row_sample` and
`moments` summarize the rows. `column_checks`, with `near_values`, finds columns that a density does
not suit. `scaling` and `column_maps` map rows to the coordinates of the model. `storage` writes and
reads saved files, `checkpoint` those of a fit that was stopped. `labels` numbers groups.
"""
