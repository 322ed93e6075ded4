"""`calibrate`: measure what the engines cost on this machine (see costs.py), in some ten seconds.

The model is linear in its constants, so those of the transforms are fitted to the times of some of
them: few and many points, few and many targets, narrow and wide kernels, small and large grids.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from types import ModuleType
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from .. import kernels
from ..data.blocks import Blocks
from ..density.exponent import PointTilt
from ..features.random import Features
from ..kernels.thread_choice import Threads
from ..pipeline.warming import warmup
from ..validation import Array
from . import spectral
from .costs import Costs
from .direct import accumulate_direct

# runs of each kind, of which the best counts, since all that disturbs a run makes it slower; short
# ones are repeated for some time, long ones no longer than that
REPEATS, AT_LEAST, AT_MOST = 3, 0.1, 0.5
FURTHEST = 30.0  # times the shipped constants, or one part in so many: beyond lies a mishap
PULL = 0.03  # towards the shipped constants, of a fit whose observations weigh 1

DIRECT_ROWS = {100: 100_000, 300: 40_000, 1000: 8_000}  # by the number of features
TILT_FEATURES, TILT_ROWS = 600, 100_000
FEW, MANY = 1_000, {1: 600_000, 2: 300_000, 3: 150_000}  # points and targets
EPS = (1e-6, 1e-11)
SMALL_SIDE = {1: 1_000.0, 2: 100.0, 3: 20.0}  # extent of the points times that of the targets
LARGE_SIDE = {1: 1_000_000.0, 2: 1_000.0, 3: 60.0}
PAIR_FEATURES, FEW_FEATURES, ROWS, FEW_ROWS = 600, 8, 300_000, 1_000
TOLERANCE = 1e-10  # of those passes: too tight for the coarse grid, so that we know which is used

TRANSFORM = ("point_1", "point_2", "point_3", "cell_1", "cell_2", "cell_3", "target", "node",
             "start")  # constants of a transform alone  # fmt: skip


def calibrate(say: Callable[[str], None] = lambda line: None) -> Costs:
    """The constants of this machine, with all its threads. say : is told what is measured."""
    shipped, module = Costs(), kernels.load("auto")
    count = kernels.resolve_threads(module)
    warmup(module.NAME)
    say("flop, feature: the direct engine")
    found = _direct(module, count, shipped)
    say("tilt: a point model, term by term")
    found.update(_tilt(count, shipped))
    observations = []
    for d in (1, 2, 3):
        say(f"point_{d}, cell_{d}, target, node, start: transforms in {d}-D")
        observations += _observe(d, count)
    found.update(fitted(
        TRANSFORM, shipped,
        lambda costs: [costs.transform(*observed[:-1]) for observed in observations],
        [observed.seconds for observed in observations],
    ))  # fmt: skip
    say("pair, row: the spectral engine around its transforms")
    found.update(_rest(module, count))
    return replace(shipped, **within(found, shipped))


def fitted(
    names: Sequence[str], shipped: Costs, model: Callable[[Costs], list[float]],
    seconds: list[float],
) -> dict[str, float]:  # fmt: skip
    """The constants of these names with which the model, linear in them, gives these seconds.

    Least squares of relative errors, none below zero; what the seconds leave open is as shipped.
    Constants of other names count as zero.
    """
    old = np.array([getattr(shipped, name) for name in names])
    nothing = dict.fromkeys(asdict(shipped), 0.0)
    units = [Costs(**{**nothing, name: v}) for name, v in zip(names, old.tolist(), strict=True)]
    measured = np.maximum(seconds, 1e-12)
    matrix = np.array([model(unit) for unit in units]).T / measured[:, None]
    ratios, _ = nnls(
        np.concatenate([matrix, PULL * np.eye(len(names))]),
        np.concatenate([np.ones(len(measured)), np.full(len(names), PULL)]),
    )
    return dict(zip(names, (ratios * old).tolist(), strict=True))


def within(found: dict[str, float], shipped: Costs) -> dict[str, float]:
    """The constants, none further than FURTHEST from the shipped one."""
    old = asdict(shipped)
    return {
        name: float(np.clip(value, old[name] / FURTHEST, old[name] * FURTHEST))
        for name, value in found.items()
    }


def _best(run: Callable[[], object]) -> float:
    """Seconds of the best call."""
    best, spent, runs = np.inf, 0.0, 0
    while spent < (AT_LEAST if runs >= REPEATS else AT_MOST):
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
        best, spent, runs = min(best, seconds), spent + seconds, runs + 1
    return float(best)


def _each(run: Callable[[int], object], few: int, many: int) -> float:
    """Seconds of one row: what stays when the cost of a call itself is taken away."""
    return (_best(lambda: run(many)) - _best(lambda: run(few))) / (many - few)


# -- the direct engine ---------------------------------------------------------------------------


def _features(n_features: int, d: int = 2) -> Features:
    return Features.draw(n_features, 0.3, np.eye(d), seed=0)


def _rows(n: int, d: int = 2) -> Array:
    return np.clip(np.random.default_rng(0).standard_normal((n, d)), -4.0, 4.0)


def _direct(module: ModuleType, count: int, shipped: Costs) -> dict[str, float]:
    """flop and feature, from few features and from many."""
    seconds = []
    for n_features, n in DIRECT_ROWS.items():
        features, x = _features(n_features), _rows(n)

        def run(rows: int, features: Features = features, x: Array = x) -> object:
            return accumulate_direct(
                Blocks(x[:rows]), features, np.zeros(0), np.zeros(2), gram_phi=False,
                precision="float64", backend=module, n_threads=count,
            )  # fmt: skip

        seconds.append(_each(run, n // 8, n))
    return fitted(
        ("flop", "feature"), shipped,
        lambda costs: [costs.direct_row(n_features, 2, 0, False) for n_features in DIRECT_ROWS],
        seconds,
    )  # fmt: skip


def _tilt(count: int, shipped: Costs) -> dict[str, float]:
    features, x, threads = _features(TILT_FEATURES), _rows(TILT_ROWS), Threads("auto", count)
    tilt = PointTilt(features, np.ones(TILT_FEATURES), np.zeros(2))

    def run(rows: int) -> object:
        return tilt._sum_cosines(x[:rows], tilt.theta, threads)

    each = _each(run, TILT_ROWS // 8, TILT_ROWS)
    return fitted(("tilt",), shipped, lambda costs: [costs.tilt_row(features)], [each])


# -- transforms ----------------------------------------------------------------------------------


class Observation(NamedTuple):
    """One transform, and how long it took."""

    points: int
    targets: int
    nodes: float
    width: int
    d: int
    seconds: float


def _observe(d: int, count: int) -> list[Observation]:
    """Few of everything, then many points, many targets, or a large grid."""
    found = []
    for eps in EPS:
        for points, targets, side in (
            (FEW, FEW, SMALL_SIDE[d]),
            (MANY[d], FEW, SMALL_SIDE[d]),
            (FEW, MANY[d], SMALL_SIDE[d]),
            (FEW, FEW, LARGE_SIDE[d]),
        ):
            found.append(_transform(points, targets, side, eps, d, count))
    return found


def _transform(
    points: int, targets: int, side: float, eps: float, d: int, count: int
) -> Observation:
    """Normal points in [-1, 1]^d and normal frequencies that reach to ``side``."""
    columns, axes = _cloud(points, 1.0, d), _cloud(targets, side, d)
    strengths = np.ones(points, np.complex128)
    seconds = _best(lambda: spectral.transform(columns, strengths, axes, eps, 2.0, count))
    _, nodes = spectral.grid_nodes(np.ones(d), np.full(d, side), eps, 2.0)
    return Observation(points, targets, nodes, spectral.kernel_width(eps, 2.0), d, seconds)


def _cloud(n: int, half: float, d: int) -> list[Array]:
    """Coordinates of normal points that fill a box, its corners among them."""
    y = 0.25 * half * _rows(n, d)
    y[0], y[-1] = -half, half
    return [np.ascontiguousarray(y[:, k]) for k in range(d)]


def _rest(module: ModuleType, count: int) -> dict[str, float]:
    """What a pass takes beside its transform: for each target, and each coordinate of a point."""

    def rest(n_features: int, n: int) -> float:
        features, x, origin = _features(n_features), _rows(n), np.zeros(2)
        eps = spectral.SAFETY * TOLERANCE
        axes = spectral.Targets(features, [features.bandwidth]).axes
        more = _targets(n_features) - len(axes[0])  # those of the stencil
        axes = [np.concatenate([axis, np.resize(axis, more)]) for axis in axes]
        columns, ones = [x[:, 0].copy(), x[:, 1].copy()], np.ones(n, np.complex128)

        def run() -> object:
            return spectral.accumulate_spectral(
                Blocks(x), features, np.zeros(0), origin, gram_phi=False, tolerance=TOLERANCE,
                budget=2**40, backend=module, n_threads=count,
            )  # fmt: skip

        run()
        return _best(run) - _best(
            lambda: spectral.transform(columns, ones, axes, eps, 2.0, count)
        )

    nothing = rest(FEW_FEATURES, FEW_ROWS)
    targets = _targets(PAIR_FEATURES) - _targets(FEW_FEATURES)
    pair = (rest(PAIR_FEATURES, FEW_ROWS) - nothing) / targets
    row = (rest(FEW_FEATURES, ROWS) - nothing) / (2.0 * (ROWS - FEW_ROWS))
    return {"pair": pair, "row": row}


def _targets(n_features: int) -> int:
    """Frequencies that a pass in two dimensions reads."""
    offsets, _ = spectral.stencil(spectral.SAFETY * TOLERANCE)
    return n_features * (n_features + 1 + 2 * len(offsets))
