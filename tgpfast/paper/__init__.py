"""Reproduction of the paper: its experiments, its printed figures, the report and toy data.

The paper is John Paisley, Wei Zhang, Brian Barr, "Gaussian Process Tilted Nonparametric Density
Estimation using Fisher Divergence Score Matching", 2025, arXiv 2504.03485.
"""
