"""`LatticePlan`: complete settings with lattice features, and the sums of all rows."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ..bases.base import Base
from ..density.density import Density
from ..runtime.records import record
from ..selection.candidates import BASE_ALONE
from ..selection.lattice_choice import LatticeChoice
from ..solvers.solver import base_alone, solve
from ..statistics.lattice_statistics import LatticeStatistics
from ..validation import Array
from .axes import Axes
from .rows import Rows
from .settings import Settings


@record(kw_only=True)
class LatticePlan:
    """Complete settings with lattice features, and the sums of all rows.

    It is its own problem: the pass that compares settings makes the statistics.

    Attributes
    ----------
    asked : Settings
        What the user asked for.
    settings : Settings
        What was chosen; complete.
    statistics : LatticeStatistics
    base : Base
    axes : Axes
    choice : LatticeChoice or None
        What was compared.
    start : array of the mode shape or None
        theta at which solving starts.
    resolution : (d,) array
        Steps of the columns, in the model's coordinates.
    held : list of int
        Numbers of the folds that were held out.
    """

    asked: Settings
    settings: Settings
    statistics: LatticeStatistics
    base: Base
    axes: Axes
    choice: LatticeChoice | None
    start: Any
    resolution: Array
    held: list[int] = field(default_factory=list)

    def accumulate(self, rows: Rows) -> LatticePlan:
        """Return this plan: `choose_lattice_plan` has made the sums."""
        return self

    def solve(self, method: str, lam: float) -> Density:
        """The model with this method and lambda; the base alone for BASE_ALONE."""
        if lam == BASE_ALONE:
            return base_alone(self.statistics, self.base, self.settings.threads)
        return solve(
            self.statistics, self.base, method, lam, self.settings.eta, start=self.start,
            backend=self.settings.backend, n_threads=self.settings.n_threads,
        )  # fmt: skip

    def record(self, model: Density, rows: Rows) -> dict[str, Any]:
        """How the settings of a model came about."""
        chosen = self.settings
        record: dict[str, Any] = {
            "features": "lattice", "kernel": chosen.kernel,
            "base": chosen.base if isinstance(chosen.base, str) else "given",
            "base_facts": repr(model.base), **self.axes.record(),
            "resolution": (self.resolution * rows.scaling.scale).tolist(),
            "frequency_covariance": None,
        }  # fmt: skip
        if chosen.method == "ncfd":
            record["n_noise_levels"] = chosen.n_noise_levels
        if self.choice is not None:
            record["held_out_gain"] = self.choice.gain
            record["held_out_gain_error"] = self.choice.gain_error
        if model.method == "base":
            return record | {"gamma_rule": None, "kernel": None}
        return record | {
            "gamma": chosen.gamma,
            "gamma_rule": "selected" if isinstance(self.asked.gamma, str) else "given",
        }

    def list_candidates(self, settings: dict[str, Any], rows: Rows) -> list[dict[str, Any]] | None:
        """The candidates that were compared, the chosen one first; scores in units of the data."""
        if self.choice is None:
            return None
        chosen, log_volume = self.choice.best, rows.log_volume
        if settings["method"] == "base" and not chosen.candidate.is_base_alone:
            chosen = next(
                s for s in self.choice.scored
                if s.candidate.is_base_alone and s.candidate.base == chosen.candidate.base
            )  # fmt: skip
        table = []
        for scored in [chosen, *(s for s in self.choice.scored if s is not chosen)]:
            c = scored.candidate
            tilted = {"kernel": c.kernel, "gamma": c.bandwidth, "lam": c.lam, "n_modes": c.n_modes}
            if c.is_base_alone:
                tilted = dict.fromkeys(tilted)
            table.append({
                "method": "base" if c.is_base_alone else "map", "base": c.base, **tilted,
                "score": scored.score - log_volume, "chosen": scored is chosen,
            })  # fmt: skip
        return table
