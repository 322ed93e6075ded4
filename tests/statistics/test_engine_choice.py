"""Which engine ``engine="auto"`` takes: the faster one, by the model of costs alone."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import set_costs

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.statistics import costs
from tgpfast.statistics.costs import COSTS, Costs
from tgpfast.statistics.engine_choice import choose_engine
from tgpfast.statistics.pass_options import PassOptions

X = np.random.default_rng(0).standard_normal((4_000, 2))
FEATURES = tgp.Features.draw(40, 0.5, np.eye(2), seed=0)

CHEAP_DIRECT = replace(Costs(), flop=1e-16, feature=1e-16)
CHEAP_SPECTRAL = replace(Costs(), flop=1e-7, feature=1e-7)

# (d, rows, features, noise levels, seconds of the direct and of the spectral engine), as
# `benchmarks/figures.py --only auto` measured them on two cores with AVX-512: standard normal rows,
# Scott's bandwidth
MEASURED = [
    (1, 20_000, 100, 0, 0.00521, 0.0152), (1, 20_000, 300, 0, 0.0212, 0.0115),
    (1, 20_000, 1000, 0, 0.179, 0.13), (1, 200_000, 100, 0, 0.0453, 0.0275),
    (1, 200_000, 300, 0, 0.194, 0.0709), (1, 200_000, 1000, 0, 1.73, 0.12),
    (1, 1_000_000, 100, 0, 0.168, 0.0998), (1, 1_000_000, 300, 0, 0.969, 0.0735),
    (1, 1_000_000, 1000, 0, 8.62, 0.233), (2, 20_000, 100, 0, 0.00439, 0.0235),
    (2, 20_000, 300, 0, 0.0228, 0.0343), (2, 20_000, 1000, 0, 0.179, 0.164),
    (2, 200_000, 100, 0, 0.0486, 0.0319), (2, 200_000, 300, 0, 0.194, 0.0661),
    (2, 200_000, 1000, 0, 1.72, 0.209), (2, 1_000_000, 100, 0, 0.183, 0.128),
    (2, 1_000_000, 300, 0, 1.05, 0.153), (2, 1_000_000, 1000, 0, 8.52, 0.318),
    (3, 20_000, 100, 0, 0.00542, 0.117), (3, 20_000, 300, 0, 0.0218, 0.192),
    (3, 20_000, 1000, 0, 0.179, 0.616), (3, 200_000, 100, 0, 0.0465, 0.25),
    (3, 200_000, 300, 0, 0.199, 0.435), (3, 200_000, 1000, 0, 1.73, 1.19),
    (3, 1_000_000, 100, 0, 0.192, 0.584), (3, 1_000_000, 300, 0, 0.982, 1.09),
    (3, 1_000_000, 1000, 0, 8.68, 3.71), (1, 20_000, 300, 10, 0.378, 0.0942),
    (1, 200_000, 300, 10, 3.62, 0.131), (2, 20_000, 300, 10, 0.375, 0.173),
    (2, 200_000, 300, 10, 3.59, 0.278), (3, 20_000, 300, 10, 0.386, 0.899),
    (3, 200_000, 300, 10, 3.65, 2.37),
]  # fmt: skip
MOST_SLOWDOWN = 1.5  # of the chosen engine over the faster one


@pytest.mark.parametrize("levels", [(), (0.0, 0.5)])
@pytest.mark.parametrize(
    ("machine", "expected"), [(CHEAP_DIRECT, "direct"), (CHEAP_SPECTRAL, "spectral")]
)
def test_auto_takes_the_faster_engine(machine, expected, levels, monkeypatch):
    """Provenance keeps both estimates; the engine with the smaller one runs."""
    monkeypatch.setattr(costs, "NEGLIGIBLE_SECONDS", 0.0)
    set_costs(monkeypatch, **vars(machine))
    stats = tgp.accumulate(X, FEATURES, noise_levels=levels, backend="numpy")
    made = stats.provenance
    assert made["engine"] == expected
    assert made["estimated_direct"] == len(X) * machine.direct_row(40, 2, len(levels), False)
    assert (made["estimated_spectral"] < made["estimated_direct"]) == (expected == "spectral")


def choose(d, n, n_features, n_levels):
    """The engine that "auto" takes for a case of MEASURED, whose rows are sampled."""
    rows = Blocks(np.random.default_rng(0).standard_normal((20_000, d)))
    rows.n_rows = n
    features = tgp.Features.draw(n_features, n ** (-1.0 / (d + 4)), np.eye(d), seed=0)
    levels = np.linspace(0.0, 1.0 / np.sqrt(d), n_levels, endpoint=False)
    options = PassOptions.check(
        features, noise_levels=levels, origin=None, gram_phi=False, tolerance=1e-9, engine="auto",
        precision="auto", backend="numpy", n_threads=1, progress=False,
    )  # fmt: skip
    return choose_engine(rows, options, budget=2**32).engine


def slow_choices():
    """Cases of MEASURED in which the chosen engine is slower than allowed."""
    return [
        case for case in MEASURED
        if {"direct": case[4], "spectral": case[5]}[choose(*case[:4])]
        > MOST_SLOWDOWN * min(case[4:])
    ]  # fmt: skip


def test_auto_is_within_the_allowed_slowdown_of_the_faster_engine():
    pytest.importorskip("finufft")
    assert slow_choices() == []
    assert {choose(*case[:4]) for case in MEASURED} == {"direct", "spectral"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", [{"flop": 20.0}, {"flop": 0.05}, {"point_3": 50.0, "cell_3": 50.0}]
)
def test_bad_constants_choose_slow_engines(wrong, monkeypatch):
    """Negative control: with constants that are wrong by these factors some choices are slow."""
    pytest.importorskip("finufft")
    set_costs(monkeypatch, **{name: f * getattr(COSTS, name) for name, f in wrong.items()})
    assert slow_choices()


def test_nothing_outside_the_call_decides(tmp_path, monkeypatch):
    """A file of costs in the user's cache, as earlier versions kept it, has no effect."""
    folder = tmp_path / "tgpfast"
    folder.mkdir()
    for path in (folder / "costs.json", tmp_path / "costs.json"):
        path.write_text('{"flop": 1e-3}')
    before = tgp.accumulate(X, FEATURES, backend="numpy").provenance
    monkeypatch.setenv("TGPFAST_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tgp.accumulate(X, FEATURES, backend="numpy").provenance == before


def test_small_passes_need_no_estimate():
    """Where the direct engine takes no time, only its own estimate is kept."""
    made = tgp.accumulate(X[:100], FEATURES, backend="numpy").provenance
    assert made["engine"] == "direct"
    assert made["estimated_direct"] < costs.NEGLIGIBLE_SECONDS
    assert "estimated_spectral" not in made
