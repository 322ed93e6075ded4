"""The experiments of the paper: toy data, reproduction, report, and the published figures."""
