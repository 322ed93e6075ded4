"""Rows in: readers of every format, checked blocks, their samples and moments, saved files."""
