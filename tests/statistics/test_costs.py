"""What the engines cost: the model, the file of measured constants, and the choice by them."""

import importlib
import json
import os
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.density import plane_waves as waves
from tgpfast.statistics import calibrate as calibration
from tgpfast.statistics import costs, spectral
from tgpfast.statistics.costs import Costs, load_costs, save_costs

accumulate_module = importlib.import_module("tgpfast.statistics.accumulation")

NAMES = [f.name for f in fields(Costs)]
OTHER = Costs(**{name: 1e-9 * (k + 1) for k, name in enumerate(NAMES)})
X = np.random.default_rng(0).standard_normal((4_000, 2))
FEATURES = tgp.Features.draw(40, 0.5, np.eye(2), seed=0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A folder of our own, and nothing remembered before or after."""
    monkeypatch.setenv(costs.FOLDER_VARIABLE, str(tmp_path))
    costs.forget()
    yield tmp_path
    costs.forget()


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


# -- the file ------------------------------------------------------------------------------------


def test_saved_costs_come_back(cache):
    """All constants, to the last bit; without a file the shipped ones, and its source says so."""
    assert load_costs() == Costs()
    assert costs.costs_source() is None
    path = save_costs(OTHER)
    assert path == cache / costs.FILE
    assert load_costs() == OTHER
    assert costs.costs_source() == path
    assert [p.name for p in cache.iterdir()] == [costs.FILE]  # nothing half-written stays
    assert costs.delete_costs() == path
    assert load_costs() == Costs()
    assert costs.delete_costs() is None


def test_a_folder_is_made(cache, monkeypatch):
    """The cache folder need not exist; without the variable it is the user's."""
    monkeypatch.setenv(costs.FOLDER_VARIABLE, str(cache / "a" / "b"))
    assert save_costs(OTHER).parent == cache / "a" / "b"
    monkeypatch.delenv(costs.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "c"))
    assert costs.folder() == cache / "c" / "tgpfast"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(cache))
    monkeypatch.setenv("USERPROFILE", str(cache))
    assert costs.folder() == cache / ".cache" / "tgpfast"


def test_the_variable_is_followed_at_once(cache, monkeypatch):
    """Two folders, asked in turn, without a reset between."""
    folders = [cache / "a", cache / "b"]
    for k, folder in enumerate(folders):
        monkeypatch.setenv(costs.FOLDER_VARIABLE, str(folder))
        save_costs(replace(OTHER, flop=0.1 * (k + 1)))
    for k in (0, 1, 0):
        monkeypatch.setenv(costs.FOLDER_VARIABLE, str(folders[k]))
        assert load_costs().flop == 0.1 * (k + 1)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "3", '"flop"', "{}", '{"other": 1e-9}', '{"flop": "quick"}',
        '{"flop": null}', '{"flop": [1e-9]}', '{"flop": 1' + "0" * 400 + "}", "\x00", "é" * 9,
    ],
)  # fmt: skip
def test_a_damaged_file_counts_as_none(cache, text):
    (cache / costs.FILE).write_bytes(text.encode("latin-1"))
    assert load_costs() == Costs()
    assert costs.costs_source() is None


@pytest.mark.parametrize("value", [0.0, -1e-9, 1.0, float("nan"), float("inf")])
def test_values_that_are_no_seconds_are_ignored(cache, value):
    """And the rest of their file with them."""
    text = json.dumps({**asdict(OTHER), "node": value})
    (cache / costs.FILE).write_text(text)
    assert load_costs() == Costs()


def test_a_file_of_another_version(cache):
    """Constants that it lacks are the shipped ones; those that are not known are passed over."""
    (cache / costs.FILE).write_text('{"flop": 2e-10, "gone": 7}')
    assert load_costs() == replace(Costs(), flop=2e-10)


def test_a_folder_in_place_of_the_file(cache):
    (cache / costs.FILE).mkdir()
    assert load_costs() == Costs()
    with pytest.raises(OSError):  # noqa: PT011 (its kind differs between systems)
        save_costs(OTHER)
    assert [p.name for p in cache.iterdir()] == [costs.FILE]


def test_the_file_is_looked_at_once_a_second(cache, monkeypatch):
    """Not again within it; then its date decides whether it is read; a reset looks at once."""
    now, looks, reads = [100.0], [], []
    real_stat, real_read = os.stat, costs._read
    monkeypatch.setattr(costs.time, "monotonic", lambda: now[0])

    def stat(path, **options):
        if str(path).endswith(costs.FILE):
            looks.append(path)
        return real_stat(path, **options)

    monkeypatch.setattr(costs.os, "stat", stat)
    monkeypatch.setattr(costs, "_read", lambda path: reads.append(path) or real_read(path))
    save_costs(OTHER)
    looks.clear()
    for _ in range(50):
        assert load_costs() == OTHER
    assert (len(looks), len(reads)) == (1, 1)
    (cache / costs.FILE).write_text('{"flop": 0.25}')
    now[0] += 0.9 * costs.LOOK_SECONDS
    assert load_costs() == OTHER  # not looked at yet
    now[0] += 0.2 * costs.LOOK_SECONDS
    assert load_costs().flop == 0.25
    assert (len(looks), len(reads)) == (2, 2)
    now[0] += 2.0 * costs.LOOK_SECONDS
    assert load_costs().flop == 0.25
    assert (len(looks), len(reads)) == (3, 2)  # looked at, and not changed
    (cache / costs.FILE).unlink()
    costs.forget()
    assert load_costs() == Costs()


# -- calibration ---------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    """Sizes at which calibration takes no time, and finds nothing worth keeping."""
    monkeypatch.setenv("TGPFAST_BACKEND", "numpy")
    for name, value in {
        "REPEATS": 1, "AT_LEAST": 0.0, "AT_MOST": 1e-9, "DIRECT_ROWS": {4: 80, 8: 40},
        "TILT_FEATURES": 4, "TILT_ROWS": 80, "FEW": 10, "MANY": {1: 40, 2: 40, 3: 40},
        "SMALL_SIDE": {1: 9.0, 2: 3.0, 3: 2.0}, "LARGE_SIDE": {1: 90.0, 2: 9.0, 3: 4.0},
        "PAIR_FEATURES": 9, "FEW_FEATURES": 3, "ROWS": 200, "FEW_ROWS": 20,
    }.items():  # fmt: skip
        assert hasattr(calibration, name)
        monkeypatch.setattr(calibration, name, value)


def test_calibration_gives_usable_numbers(tiny):
    """Whatever noise it measures: positive, near the shipped ones, fit to be loaded again."""
    lines = []
    found = calibration.calibrate(lines.append)
    for name in NAMES:
        ratio = getattr(found, name) / getattr(Costs(), name)
        assert 0.999 / calibration.FURTHEST < ratio < 1.001 * calibration.FURTHEST, name
        assert any(name in line for line in lines), name  # each is announced
    save_costs(found)
    assert load_costs() == found


@pytest.mark.parametrize(("scale", "expected"), [(0.0, 1 / 30), (-5.0, 1 / 30), (1e9, 30.0)])
def test_mishaps_are_cut(scale, expected):
    """Differences of noisy times may be zero, negative or huge."""
    old = asdict(Costs())
    cut = calibration.within({name: scale * value for name, value in old.items()}, Costs())
    for name, value in old.items():
        assert cut[name] == pytest.approx(expected * value, rel=1e-12)


def exact_observations(truth):
    """Times that follow the model without an error, at the sizes of a calibration."""
    found = []
    for d in (1, 2, 3):
        for eps in calibration.EPS:
            width, many, few = spectral.kernel_width(eps, 2.0), calibration.MANY[d], calibration.FEW
            for points, targets, side in (
                (few, few, calibration.SMALL_SIDE[d]), (many, few, calibration.SMALL_SIDE[d]),
                (few, many, calibration.SMALL_SIDE[d]), (few, few, calibration.LARGE_SIDE[d]),
            ):  # fmt: skip
                nodes = spectral.grid_nodes(np.ones(d), np.full(d, side), eps, 2.0)[1]
                work = (points, targets, nodes, width, d)
                found.append(calibration.Observation(*work, truth.transform(*work)))
    return found


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_a_fit_of_exact_times_finds_the_constants(factor):
    """Of a machine that is slower or faster in one thing: the model is linear, and the sizes of a
    calibration tell its constants apart. Off by the pull towards the shipped ones alone, which
    weighs PULL^2 = 0.0009 against squares of order one; 5 % leave room for what they share."""
    names = calibration.TRANSFORM
    silent = {name: 0.0 for name in NAMES if name not in names}
    for slow in names:
        truth = replace(Costs(), **silent, **{slow: factor * getattr(Costs(), slow)})
        seen = exact_observations(truth)
        found = calibration.fitted(
            names, Costs(), lambda c, seen=seen: [c.transform(*o[:-1]) for o in seen],
            [o.seconds for o in seen],
        )  # fmt: skip
        made = replace(truth, **found)
        for o in seen:
            assert made.transform(*o[:-1]) == pytest.approx(o.seconds, rel=0.05), slow
        if factor == 1.0:
            assert found == pytest.approx({k: getattr(Costs(), k) for k in names}, rel=1e-9)


def test_what_times_leave_open_is_as_shipped():
    """A transform in one dimension says nothing of the others."""
    seen = [o for o in exact_observations(Costs()) if o.d == 1]
    found = calibration.fitted(
        calibration.TRANSFORM, Costs(), lambda c: [c.transform(*o[:-1]) for o in seen],
        [2.0 * o.seconds for o in seen],
    )  # fmt: skip
    for name in ("point_2", "cell_2", "point_3", "cell_3"):
        assert found[name] == pytest.approx(getattr(Costs(), name), rel=1e-9)


# -- the choice ----------------------------------------------------------------------------------

CHEAP_DIRECT = replace(Costs(), flop=1e-16, feature=1e-16)
CHEAP_SPECTRAL = replace(Costs(), flop=1e-7, feature=1e-7)


@pytest.mark.parametrize("levels", [(), (0.0, 0.5)])
@pytest.mark.parametrize(
    ("machine", "expected"), [(CHEAP_DIRECT, "direct"), (CHEAP_SPECTRAL, "spectral")]
)
def test_auto_takes_what_is_cheaper(machine, expected, levels, monkeypatch):
    """By the constants in the file; provenance keeps both estimates, and the smaller one won."""
    monkeypatch.setattr(accumulate_module, "NOT_WORTH_A_LOOK", 0.0)
    save_costs(machine)
    stats = tgp.accumulate(X, FEATURES, noise_levels=levels, backend="numpy")
    made = stats.provenance
    assert made["engine"] == expected
    assert made["estimated_direct"] == machine.direct(len(X), 40, 2, len(levels), False)
    assert (made["estimated_spectral"] < made["estimated_direct"]) == (expected == "spectral")


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
    save_costs(replace(Costs(), tilt=tilt))
    values = model.log_density(X, normalized=False)
    assert bool(calls) == (tilt > 1e-9)
    scale = np.abs(exact).max()
    np.testing.assert_allclose(values[:50], exact, rtol=0.0, atol=1e-9 * scale)
