"""What the engines cost on this machine: a model of seconds, its constants measured or shipped.

``tgpfast calibrate`` measures them once and keeps them in the user's cache folder; until then those
of a two-core machine serve. Only their ratios matter: they choose between engines that agree.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.storage import replacing
from ..features.random import Features

FILE = "costs.json"
FOLDER_VARIABLE = "TGPFAST_CACHE_DIR"
VARIABLES = (FOLDER_VARIABLE, "XDG_CACHE_HOME", "HOME", "USERPROFILE")  # of ``folder``
LOOK_SECONDS = 1.0  # the file is looked at no more often than this


@dataclass(frozen=True)
class Costs:
    """Seconds.

    flop : one multiplication or addition of a rank-k update, on all cores
    feature : sine and cosine of one feature at one point
    tilt : cosine of one feature at one point, times a coefficient
    point_d, cell_d : spreading (or reading) one point, and one grid cell that it touches
    target : the rest of a transform's work on a frequency that is read
    node : one node of an FFT, per log2 of their number
    pair : the work outside the transform on one frequency that is read
    row : the work outside the transform on one coordinate of a point
    start : one transform
    """

    flop: float = 1.35e-11
    feature: float = 2e-9
    tilt: float = 1.1e-9
    point_1: float = 1e-8
    point_2: float = 1e-7
    point_3: float = 1.5e-7
    cell_1: float = 4.5e-9
    cell_2: float = 7e-10
    cell_3: float = 2.8e-10
    target: float = 1.5e-7
    node: float = 2.5e-9
    pair: float = 5e-8
    row: float = 3e-8
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
        return self.tilt * features.n_features * (0.9 + features.dimension / 20.0)

    def quadratic_row(self, features: Features) -> float:
        """One row of FVPD by a triangular solve."""
        S = features.n_features
        return self.flop * S * S + self.feature * S

    def transform(
        self, n_points: int, n_targets: int, nodes: float, width: int, d: int, spreads: int = 1
    ) -> float:
        """``spreads`` type-3 transforms of the same points to the same targets."""
        point = getattr(self, f"point_{d}") + getattr(self, f"cell_{d}") * width**d
        fft = self.node * nodes * np.log2(max(nodes, 2.0))
        each = self.start + fft + point * n_points + (point + self.target + self.pair) * n_targets
        return float(spreads * each + self.row * d * n_points)


def folder() -> Path:
    """Where measured costs are kept: TGPFAST_CACHE_DIR, else the user's cache folder."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tgpfast"


class _Seen(NamedTuple):
    """What was found at a path, and when it was looked at."""

    variables: list[str | None]  # that the path depends on
    path: str
    stamp: tuple[int, int] | None  # of the file's last change, and its size; None: no file
    costs: Costs
    measured: bool
    time: float


_seen: _Seen | None = None


def load_costs() -> Costs:
    """Those measured on this machine, or the shipped ones; a damaged file counts as none.

    Made to be called often: the file is looked at once a second at most, and read when it changed.
    """
    return _look().costs


def costs_source() -> Path | None:
    """The file from which ``load_costs`` has its numbers; None where they are the shipped ones."""
    forget()
    seen = _look()
    return Path(seen.path) if seen.measured else None


def forget() -> None:
    """Look at the file again on the next call, however soon that is."""
    global _seen
    _seen = None


def save_costs(costs: Costs) -> Path:
    """Keep measured costs; returns the file."""
    path = folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write((json.dumps(asdict(costs), indent=1) + "\n").encode())
        forget()
    return path


def delete_costs() -> Path | None:
    """Forget measured costs; returns the file that was deleted, None if there was none."""
    path = folder() / FILE
    forget()
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    return path


def _look() -> _Seen:
    global _seen
    variables = [os.environ.get(name) for name in VARIABLES]
    now, seen = time.monotonic(), _seen
    same = seen is not None and seen.variables == variables
    if seen is not None and same and now - seen.time < LOOK_SECONDS:
        return seen
    path, stamp = os.path.join(folder(), FILE), None
    with contextlib.suppress(OSError):
        status = os.stat(path)
        stamp = (status.st_mtime_ns, status.st_size)
    if seen is not None and same and stamp == seen.stamp:
        _seen = seen._replace(time=now)
    else:
        costs = None if stamp is None else _read(path)
        _seen = _Seen(variables, path, stamp, costs or Costs(), costs is not None, now)
    return _seen


def _read(path: str) -> Costs | None:
    """The costs in a file; None for one that is damaged, or holds what cannot be seconds."""
    try:
        values = json.loads(Path(path).read_text())
        known = {f.name for f in fields(Costs)}
        chosen = {k: float(v) for k, v in values.items() if k in known}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    if not chosen or not all(0.0 < v < 1.0 for v in chosen.values()):
        return None
    return Costs(**chosen)
