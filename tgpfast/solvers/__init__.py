"""Solvers that turn sums into coefficients: closed forms, maximum a posteriori, linear systems."""
