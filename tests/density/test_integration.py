"""What a density keeps of its integrals when it is copied, pickled, changed or recorded."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from conftest import fixed_fit, slow

import tgpfast as tgp
from tgpfast.data.blocks import Table
from tgpfast.data.scaling import Scaling
from tgpfast.density.draws.proposal import Proposal
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.density.normalizing.integration import Integrator
from tgpfast.density.normalizing.quadrature import Quadrature
from tgpfast.kernels.thread_choice import Threads


def make_model(d=2, theta=0.7, **fields):
    rng = np.random.default_rng(1)
    features = tgp.Features.draw(15, 0.8, np.eye(d), seed=2)
    base = tgp.GaussianBase(rng.normal(size=d), np.eye(d) + 0.2)
    tilt = PointTilt(features, theta * rng.standard_normal(15), base.mean)
    return tgp.Density("fd", tilt, base, **fields)


def count_integrals(monkeypatch):
    """A list that grows with every quadrature that is made."""
    made, plain = [], Quadrature.__init__

    def counted(self, *args):
        made.append(args)
        plain(self, *args)

    monkeypatch.setattr(Quadrature, "__init__", counted)
    return made


def test_a_density_is_made_with_all_its_fields():
    stats = tgp.accumulate(np.eye(2), make_model().features)
    fields = {
        "settings": {"lam": 1.0}, "diagnostics": {"solver": "none"}, "statistics": stats,
        "scaling": Scaling(np.ones(2), np.full(2, 3.0)), "table": Table(columns=["a", "b"]),
        "threads": Threads("numpy", 1), "selection": [{"lam": 1.0}],
    }  # fmt: skip
    model = make_model(**fields)
    for name, value in fields.items():
        assert getattr(model, name) is value
    assert model.sampling is None
    assert make_model().scaling.is_identity


def test_other_units_and_records_keep_the_normalizer(monkeypatch):
    made, model = count_integrals(monkeypatch), make_model()
    assert model.integrator.known_normalizer is None
    z = model.log_normalizer
    other = model.with_record(
        scaling=Scaling(np.ones(2), np.array([2.0, 5.0])), table=Table(columns=["a", "b"]),
        settings={"lam": 3.0}, selection=None,
    )  # fmt: skip
    assert other.log_normalizer is z
    assert other.settings == {"lam": 3.0}
    assert model.settings == {}
    x = np.array([[1.0, -2.0], [4.0, 0.5]])
    np.testing.assert_allclose(
        other.log_density(1.0 + x * [2.0, 5.0]), model.log_density(x) - np.log(10.0), rtol=1e-12
    )
    assert len(made) == 1


@pytest.mark.parametrize("changed", ["tilt", "base", "threads"])
def test_another_density_gets_another_normalizer(changed, monkeypatch):
    made, model = count_integrals(monkeypatch), make_model()
    value = model.log_normalizer.value
    change = {
        "tilt": dataclasses.replace(model.tilt, theta=2.0 * model.tilt.theta),
        "base": tgp.GaussianBase(model.base.mean, 2.0 * model.base.covariance),
        "threads": Threads("numpy", 1),
    }[changed]
    other = dataclasses.replace(model, **{changed: change})
    assert other.integrator.known_normalizer is None
    assert (abs(other.log_normalizer.value - value) > 1e-6) == (changed != "threads")
    assert len(made) == 2


@pytest.mark.parametrize("d", [2, slow(5)])
@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
def test_copies_answer_alike(way, d, monkeypatch):
    """Without the grids, which are large; with the modes, on which draws depend."""
    model, y = make_model(d), np.random.default_rng(0).normal(size=(20, d))
    values, draws = model.log_density(y), model.sample(30, seed=1)
    cdf = model.marginal_cdf(np.ones(d), [0.0, 1.0])
    if way == "pickle":
        data = pickle.dumps(model)
        assert len(data) < 50_000
        other = pickle.loads(data)
    else:
        other = getattr(copy, way)(model)
    assert other.integrator.known_normalizer == model.log_normalizer
    np.testing.assert_array_equal(other.log_density(y), values)
    np.testing.assert_array_equal(other.sample(30, seed=1), draws)
    np.testing.assert_array_equal(other.marginal_cdf(np.ones(d), [0.0, 1.0]), cdf)


@pytest.mark.slow
def test_rows_may_show_modes_that_nothing_else_shows():
    """A narrow peak along no axis: only ascent from beside it finds it."""
    d, rng = 5, np.random.default_rng(0)
    place = np.array([5.0, -4.0, 6.0, 5.0, -5.0])
    z = 2.0 * rng.standard_normal((400, d))
    tilt = PointTilt(tgp.Features(z, -(z @ place), 1.0), np.full(400, 5.0), np.zeros(d))
    model = tgp.Density("fd", tilt, tgp.GaussianBase(np.zeros(d), np.eye(d)))
    near = model.with_mode_starts(place + 0.1 * rng.standard_normal((3, d)))
    assert np.linalg.norm(near.integrator.proposal.modes.means - place, axis=1).min() < 0.5
    assert model.integrator.known_proposal is None  # the model itself stays as it was
    plain = make_model(2)
    assert plain.with_mode_starts(np.zeros((3, 2))).integrator is plain.integrator  # grids: no need


def test_what_is_known_is_not_computed_again(monkeypatch):
    made, model = count_integrals(monkeypatch), make_model()
    z = model.log_normalizer
    made.clear()
    known = Integrator(
        model.tilt, model.base, model.threads, proposal=Proposal(model.base), normalizer=z
    )
    again = dataclasses.replace(model, integrator=known)
    assert again.log_normalizer is z
    again.sample(10, seed=0, method="importance")
    assert made == []
    again.sample(10, seed=0)
    assert len(made) == 1  # now grids are needed


def test_noise_leaves_statistics_and_selection_behind():
    """They are those of the density without noise: it must not be updated with them."""
    x = np.random.default_rng(0).normal(size=(200, 1))
    model = fixed_fit(x, method="ncfd", n_features=8)
    assert model.statistics is not None
    noisy = model.at_noise(0.3)
    assert noisy.statistics is None
    assert noisy.selection is None
    with pytest.raises(ValueError, match="statistics"):
        noisy.update(x)
