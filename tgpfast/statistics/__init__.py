"""Sums over the rows that every estimator is solved from, and the engines that compute them.

Read `statistics` for the sums, `accumulation` for the pass over the rows, `direct` and `spectral`
for the two engines, `spectrum` for rows kept on a grid, `fisher` for the systems made of the sums.
"""
