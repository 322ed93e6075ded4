"""Benchmarks: asv modules ``bench_*``, and ``figures.py``, the table of required figures.

``asv run --python=same --quick`` in this folder; ``python benchmarks/figures.py`` from the root.
"""

from . import measure  # first of all: it finds tgpfast where that is not installed

__all__ = ["measure"]
