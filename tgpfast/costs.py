"""What the engines cost on this machine: a model of seconds, its constants measured or shipped.

``tgpfast calibrate`` measures them once and keeps them in the user's cache folder; until then those
of a two-core machine serve. Only their ratios matter: they choose between engines that agree.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from .features import Features

FILE = "costs.json"
FOLDER_VARIABLE = "TGPFAST_CACHE_DIR"


@dataclass(frozen=True)
class Costs:
    """Seconds.

    flop : one multiply-add of a rank-k update, on all cores
    feature : sine and cosine of one feature at one point
    point_d, cell_d : spreading (or reading) one point, and one grid cell that it touches
    target : the rest of the work on a frequency that is read
    node : one node of an FFT, per log2 of their number
    pair : the rest of the work on one pair of features
    start : one transform
    """

    flop: float = 1.4e-11
    feature: float = 1.3e-9
    point_1: float = 1e-8
    point_2: float = 1e-7
    point_3: float = 1.5e-7
    cell_1: float = 4.5e-9
    cell_2: float = 7e-10
    cell_3: float = 2.8e-10
    target: float = 1.5e-7
    node: float = 2.5e-9
    pair: float = 5e-8
    start: float = 8e-3

    def direct_row(self, n_features: int, d: int, n_levels: int, gram_phi: bool) -> float:
        """One row by the direct engine."""
        updates = 1 + gram_phi + 2 * max(n_levels - 1, 0)
        work = self.flop * n_features * (n_features + 1) * updates
        return work + self.feature * n_features * (1 + max(n_levels - 1, 0)) * (0.9 + d / 20.0)

    def direct(self, n: int, n_features: int, d: int, n_levels: int, gram_phi: bool) -> float:
        """A pass of the direct engine over n rows."""
        return n * self.direct_row(n_features, d, n_levels, gram_phi)

    def tilt_row(self, features: Features) -> float:
        """One row of a point model, term by term."""
        return self.feature * features.n_features * (0.9 + features.dimension / 20.0)

    def quadratic_row(self, features: Features) -> float:
        """One row of FVPD by a triangular solve."""
        S = features.n_features
        return self.flop * S * S + self.feature * S

    def transform(
        self, n_points: int, n_targets: int, nodes: float, width: int, d: int, spreads: int = 1
    ) -> float:
        """Type-3 transforms of points to targets, ``spreads`` of them."""
        point = getattr(self, f"point_{d}") + getattr(self, f"cell_{d}") * width**d
        fft = self.node * nodes * np.log2(max(nodes, 2.0))
        return float(
            spreads * (self.start + fft + point * n_points)
            + (point + self.target + self.pair) * n_targets
        )


def folder() -> Path:
    """Where measured costs are kept: TGPFAST_CACHE_DIR, else the user's cache folder."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tgpfast"


def load_costs() -> Costs:
    """Those measured on this machine, or the shipped ones; a damaged file counts as none."""
    try:
        values = json.loads((folder() / FILE).read_text())
        known = {f.name for f in fields(Costs)}
        chosen = {k: float(v) for k, v in values.items() if k in known}
        if all(0.0 < v < 1.0 for v in chosen.values()):
            return Costs(**chosen)
    except (OSError, ValueError, TypeError, AttributeError):
        pass
    return Costs()


def save_costs(costs: Costs) -> Path:
    """Keep measured costs; returns the file."""
    path = folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(costs), indent=1) + "\n")
    return path


def seconds(function: object, repeats: int = 3) -> float:
    """Best time of some calls."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()  # type: ignore[operator]
        best = min(best, time.perf_counter() - start)
    return float(best)
