"""The model of what the engines cost, and the choice of an engine by it."""

import importlib
from dataclasses import fields, replace

import numpy as np
import pytest
from conftest import set_costs

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.density import waves
from tgpfast.statistics.costs import COSTS, Costs

accumulate_module = importlib.import_module("tgpfast.statistics.accumulation")

NAMES = [f.name for f in fields(Costs)]
OTHER = Costs(**{name: 1e-9 * (k + 1) for k, name in enumerate(NAMES)})
X = np.random.default_rng(0).standard_normal((4_000, 2))
FEATURES = tgp.Features.draw(40, 0.5, np.eye(2), seed=0)

# (d, rows, features, noise levels, seconds of the direct and of the spectral engine), as
# `benchmarks/figures.py auto` measured them on two cores: standard normal rows, Scott's bandwidth
MEASURED = [
    (1, 20_000, 100, 0, 0.00594, 0.0132), (1, 20_000, 300, 0, 0.0273, 0.0284),
    (1, 20_000, 1000, 0, 0.219, 0.134), (1, 200_000, 100, 0, 0.0509, 0.0171),
    (1, 200_000, 300, 0, 0.256, 0.0341), (1, 200_000, 1000, 0, 2.14, 0.161),
    (1, 1_000_000, 100, 0, 0.249, 0.0353), (1, 1_000_000, 300, 0, 1.29, 0.0552),
    (1, 1_000_000, 1000, 0, 10.4, 0.156), (2, 20_000, 100, 0, 0.00548, 0.019),
    (2, 20_000, 300, 0, 0.0276, 0.0389), (2, 20_000, 1000, 0, 0.218, 0.267),
    (2, 200_000, 100, 0, 0.0483, 0.0417), (2, 200_000, 300, 0, 0.25, 0.0967),
    (2, 200_000, 1000, 0, 2.11, 0.322), (2, 1_000_000, 100, 0, 0.252, 0.152),
    (2, 1_000_000, 300, 0, 1.34, 0.183), (2, 1_000_000, 1000, 0, 10.6, 0.43),
    (3, 20_000, 100, 0, 0.00558, 0.0732), (3, 20_000, 300, 0, 0.0279, 0.139),
    (3, 20_000, 1000, 0, 0.222, 0.711), (3, 200_000, 100, 0, 0.0543, 0.24),
    (3, 200_000, 300, 0, 0.271, 0.382), (3, 200_000, 1000, 0, 2.13, 1.19),
    (3, 1_000_000, 100, 0, 0.241, 0.951), (3, 1_000_000, 300, 0, 1.28, 1.21),
    (3, 1_000_000, 1000, 0, 10.6, 2.32), (1, 20_000, 300, 10, 0.479, 0.153),
    (1, 200_000, 300, 10, 4.62, 0.163), (2, 20_000, 300, 10, 0.477, 0.289),
    (2, 200_000, 300, 10, 4.79, 0.457), (3, 20_000, 300, 10, 0.481, 0.743),
    (3, 200_000, 300, 10, 4.93, 1.47),
]  # fmt: skip
MOST_SLOWDOWN = 1.5  # of the chosen engine over the faster one


# -- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 10])
@pytest.mark.parametrize(("levels", "gram_phi"), [(0, False), (0, True), (1, False), (10, True)])
def test_direct_row_is_its_formula(d, levels, gram_phi):
    """S (S + 1) flops for each of 2H - 1 rank-k updates, or one; S features for every level."""
    S, c = 70, OTHER
    updates = max(2 * levels - 1, 1) + gram_phi
    features = S * max(levels, 1)
    expected = c.flop * S * (S + 1) * updates + c.feature * features * (0.9 + d / 20)
    assert c.direct_row(S, d, levels, gram_phi) == pytest.approx(expected, rel=1e-14)
    assert c.direct(1_000, S, d, levels, gram_phi) == pytest.approx(1_000 * expected, rel=1e-14)


def test_rows_of_models_are_their_formulas():
    """A point model takes S cosines; FVPD a triangular solve of S^2 flops."""
    S, c = FEATURES.n_features, OTHER
    assert c.tilt_row(FEATURES) == pytest.approx(c.tilt * S * 1.0, rel=1e-14)
    expected = c.flop * S**2 + c.feature * S
    assert c.quadratic_row(FEATURES) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_transform_is_its_formula(d):
    """Points and targets touch width^d cells; the FFT takes nodes log2 nodes."""
    c, n, m, nodes, width = OTHER, 1_000, 300, 4_096.0, 7
    point = getattr(c, f"point_{d}") + getattr(c, f"cell_{d}") * width**d
    each = c.start + 12 * 4_096 * c.node + point * n + (point + c.target + c.pair) * m
    for spreads in (1, 3):
        expected = spreads * each + c.row * d * n
        assert c.transform(n, m, nodes, width, d, spreads) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("c", [Costs(), OTHER], ids=["shipped", "other"])
def test_more_work_costs_more(c):
    """Every argument of every estimate, on its own, and every constant."""
    direct = {"n": 1_000, "n_features": 50, "d": 2, "n_levels": 2, "gram_phi": False}
    transform = {"n_points": 1_000, "n_targets": 500, "nodes": 4_096.0, "width": 7, "d": 2,
                 "spreads": 1}  # fmt: skip
    for estimate, small in ((Costs.direct, direct), (Costs.transform, transform)):
        for name, value in small.items():
            if name != "d" or estimate is Costs.direct:  # constants of each d are their own
                larger = {**small, name: value + 1}
                assert estimate(c, **larger) > estimate(c, **small), name
    for name in NAMES:
        dearer = replace(c, **{name: 2.0 * getattr(c, name)})
        sums = [
            k.direct(**direct) + k.tilt_row(FEATURES)
            + sum(k.transform(**{**transform, "d": d}) for d in (1, 2, 3))
            for k in (c, dearer)
        ]  # fmt: skip
        assert sums[1] > sums[0], name


# -- the choice ----------------------------------------------------------------------------------

CHEAP_DIRECT = replace(Costs(), flop=1e-16, feature=1e-16)
CHEAP_SPECTRAL = replace(Costs(), flop=1e-7, feature=1e-7)


@pytest.mark.parametrize("levels", [(), (0.0, 0.5)])
@pytest.mark.parametrize(
    ("machine", "expected"), [(CHEAP_DIRECT, "direct"), (CHEAP_SPECTRAL, "spectral")]
)
def test_auto_takes_what_is_cheaper(machine, expected, levels, monkeypatch):
    """Provenance keeps both estimates; the engine with the smaller one runs."""
    monkeypatch.setattr(accumulate_module, "NOT_WORTH_A_LOOK", 0.0)
    set_costs(monkeypatch, **vars(machine))
    stats = tgp.accumulate(X, FEATURES, noise_levels=levels, backend="numpy")
    made = stats.provenance
    assert made["engine"] == expected
    assert made["estimated_direct"] == machine.direct(len(X), 40, 2, len(levels), False)
    assert (made["estimated_spectral"] < made["estimated_direct"]) == (expected == "spectral")


def choose(d, n, n_features, n_levels):
    """The engine that "auto" takes for a case of MEASURED, whose rows are sampled."""
    rows = Blocks(np.random.default_rng(0).standard_normal((20_000, d)))
    rows.n_rows = n
    features = tgp.Features.draw(n_features, n ** (-1.0 / (d + 4)), np.eye(d), seed=0)
    levels = np.linspace(0.0, 1.0 / np.sqrt(d), n_levels, endpoint=False)
    return accumulate_module._choose_engine(
        "auto", rows, features, levels, False, 1e-9, 2**32, "auto", (None, 1)
    )[0]


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


@pytest.mark.parametrize(
    "wrong", [{"flop": 20.0}, {"flop": 0.05}, {"point_3": 0.01, "cell_3": 0.01}]
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


def test_small_passes_are_not_weighed():
    """Where the direct engine is done at once its estimate alone is kept."""
    made = tgp.accumulate(X[:100], FEATURES, backend="numpy").provenance
    assert made["engine"] == "direct"
    assert made["estimated_direct"] < accumulate_module.NOT_WORTH_A_LOOK
    assert "estimated_spectral" not in made


@pytest.mark.parametrize("tilt", [1e-12, 1e-6])
def test_evaluation_follows_the_constants(tilt, monkeypatch):
    """A transform where terms are dear, term by term where they are cheap; the values agree."""
    calls = []
    real = waves.transform
    monkeypatch.setattr(waves, "transform", lambda *a: calls.append(a) or real(*a))
    stats = tgp.accumulate(X, FEATURES, engine="direct", backend="numpy")
    model = tgp.solve(stats, tgp.GaussianBase(np.zeros(2), np.eye(2)), "fd", lam=10.0)
    exact = model.log_density(X[:50], normalized=False)  # too few for a transform
    assert not calls
    set_costs(monkeypatch, tilt=tilt)
    values = model.log_density(X, normalized=False)
    assert bool(calls) == (tilt > 1e-9)
    scale = np.abs(exact).max()
    np.testing.assert_allclose(values[:50], exact, rtol=0.0, atol=1e-9 * scale)
