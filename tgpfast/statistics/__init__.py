"""Sums over rows that every estimator needs, their algebra, and the engines that compute them."""
