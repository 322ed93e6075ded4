"""What a chooser returns: a plan, which turns rows into a problem, which turns lambda into a model.

`choose` picks the chooser. Another kind of features brings a chooser of its own, whose plan has its
own statistics and its own solver; `fit` does not change.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..density.density import Density
from .rows import Rows
from .settings import Settings


class Problem(Protocol):
    """Statistics of all rows, and how to solve them.

    Attributes
    ----------
    settings : Settings
        Complete: nothing is "auto".
    statistics : Statistics, FeatureMeans or another kind that adds
    """

    @property
    def settings(self) -> Settings: ...

    @property
    def statistics(self) -> Any: ...

    def solve(self, method: str, lam: float) -> Density:
        """The model with this method and lambda; lam=BASE_ALONE gives the base alone."""

    def record(self, model: Density, rows: Rows) -> dict[str, Any]:
        """How the settings of a solved model came about, for ``model.settings``."""

    def candidates(self, settings: dict[str, Any], rows: Rows) -> list[dict[str, Any]] | None:
        """What was compared, for ``model.selection``; None where nothing was.

        settings : those that the model records
        """


class Plan(Protocol):
    """Complete settings, chosen from a sample of the rows."""

    def accumulate(self, rows: Rows) -> Problem:
        """Statistics of all rows. These may refine the settings once more."""
