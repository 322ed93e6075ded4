"""Automatic settings: candidates, their scores on held-out rows, refinement and verification."""
