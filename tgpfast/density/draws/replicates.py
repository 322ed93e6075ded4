"""Terms whose errors come from independent sets of draws, the replicates."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...validation import Array


class AddedTerm(NamedTuple):
    """A term that is added to a mean, and depends on the same sets of draws.

    value : by all sets
    deviations : (R,) how far each set moves the value, to first order
    """

    value: float
    deviations: Array

    @property
    def standard_error(self) -> float:
        """That of the term alone."""
        return float(self.deviations.std(ddof=1)) / math.sqrt(len(self.deviations))
