"""The experiments of the paper: toy data, reproduction, report, and the published figures.

The paper is John Paisley, Wei Zhang, Brian Barr, "Gaussian Process Tilted Nonparametric Density
Estimation using Fisher Divergence Score Matching", 2025, arXiv 2504.03485.
"""
