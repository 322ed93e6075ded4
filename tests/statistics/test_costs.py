"""The model of what the engines cost."""

from dataclasses import fields, replace

import numpy as np
import pytest
from conftest import set_costs

import tgpfast as tgp
from tgpfast.density.exponents import plane_waves as waves
from tgpfast.statistics.costs import Costs

NAMES = [f.name for f in fields(Costs)]
OTHER = Costs(**{name: 1e-9 * (k + 1) for k, name in enumerate(NAMES)})
X = np.random.default_rng(0).standard_normal((4_000, 2))
FEATURES = tgp.Features.draw(40, 0.5, np.eye(2), seed=0)


@pytest.mark.parametrize("d", [1, 2, 3, 10])
@pytest.mark.parametrize(("levels", "gram_phi"), [(0, False), (0, True), (1, False), (10, True)])
def test_direct_row_is_its_formula(d, levels, gram_phi):
    """S (S + 1) flops for each of 2H - 1 rank-k updates, or one; S features for every level."""
    S, c = 70, OTHER
    updates = max(2 * levels - 1, 1) + gram_phi
    features = S * max(levels, 1)
    expected = c.flop * S * (S + 1) * updates + c.feature * features * (0.9 + d / 20)
    assert c.direct_row(S, d, levels, gram_phi) == pytest.approx(expected, rel=1e-14)
    assert c.direct_row(S, d, levels, gram_phi) == pytest.approx(expected, rel=1e-14)


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
    direct = {"n_features": 50, "d": 2, "n_levels": 2, "gram_phi": False}
    transform = {"n_points": 1_000, "n_targets": 500, "nodes": 4_096.0, "width": 7, "d": 2,
                 "spreads": 1}  # fmt: skip
    for estimate, small in ((Costs.direct_row, direct), (Costs.transform, transform)):
        for name, value in small.items():
            if name != "d" or estimate is Costs.direct_row:  # each d has constants of its own
                larger = {**small, name: value + 1}
                assert estimate(c, **larger) > estimate(c, **small), name
    for name in NAMES:
        slower = replace(c, **{name: 2.0 * getattr(c, name)})
        sums = [
            1_000 * k.direct_row(**direct) + k.tilt_row(FEATURES)
            + sum(k.transform(**{**transform, "d": d}) for d in (1, 2, 3))
            for k in (c, slower)
        ]  # fmt: skip
        assert sums[1] > sums[0], name


@pytest.mark.parametrize("tilt", [1e-12, 1e-6])
def test_evaluation_follows_the_constants(tilt, monkeypatch):
    """A transform where terms are slow, term by term where they are fast; the values agree."""
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
