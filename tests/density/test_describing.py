"""How densities show themselves, and which columns they blame for an unlikely row."""

import re
import sys

import numpy as np
import pytest
from answer_models import covariance, mixture, of_base, tilted
from conftest import fixed_fit

import tgpfast as tgp
from tgpfast.density.answers import describing

pandas = pytest.importorskip("pandas")


def test_explained_rows_of_a_gaussian():
    """Given the others a column is normal: the loss is half its squared conditional z-score."""
    sigma = covariance(3)
    model = of_base(tgp.GaussianBase([1.0, 2.0, 3.0], sigma), ["a", "b", "c"])
    rows = np.random.default_rng(0).normal(size=(20, 3)) * 4.0
    precision = np.linalg.inv(sigma)
    expected = -0.5 * ((rows - [1.0, 2.0, 3.0]) @ precision) ** 2 / np.diag(precision)
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"], index=range(5, 25))
    found = model.explain(frame[["c", "a", "b"]])
    assert list(found.columns) == ["a", "b", "c"]
    assert list(found.index) == list(frame.index)
    np.testing.assert_allclose(found.to_numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("d", [1, 2])
def test_explained_rows_of_a_tilt(d):
    """Against the log density on a fine line along each column."""
    model = tilted(d, mixture(d))
    rows = model.sample(6, seed=0)
    found = model.explain(rows)
    line = np.linspace(-25.0, 35.0, 20_001)
    for row, losses in zip(rows, found, strict=True):
        for k in range(d):
            along = np.tile(row, (len(line), 1))
            along[:, k] = line
            best = model.log_density(along).max()
            assert losses[k] == pytest.approx(model.log_density([row])[0] - best, abs=1e-4)
    assert (found <= 0.0).all()


def test_a_row_outside_the_support():
    """The column outside has -inf; the other cannot help."""
    x = np.random.default_rng(0).uniform(0.1, 0.9, size=(300, 2))
    model = tgp.fit(x, support={0: (0.0, 1.0), 1: (0.0, 1.0)}, features="lattice", method="map",
                    lam=10.0, kernel="gaussian", gamma=1.0, base="empirical")  # fmt: skip
    assert model.explain([[2.0, 0.5]]).tolist() == [[-np.inf, 0.0]]


def test_one_line_has_what_matters():
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["p", "q"])
    model = fixed_fit(frame, n_features=20)
    before = repr(model)
    assert "log_z_error" not in before  # showing a model does not compute its normalizer
    for part in ("method='fd'", "d=2", "kernel='gaussian'", "base=GaussianBase", "n_rows=300",
                 "columns=['p', 'q']"):  # fmt: skip
        assert part in before
    model.log_normalizer  # noqa: B018 - computes it
    assert re.search(r"log_z_error=[0-9.e-]+\)$", repr(model))
    assert "given={'p': 0.5}" in repr(model.conditional({"p": 0.5}))
    assert repr(of_base(mixture(2))) == "Density(method='base', d=2, MixtureBase alone)"
    many = of_base(tgp.GaussianBase(np.zeros(9), np.eye(9)), list("abcdefghi"))
    assert "'f', ...]" in repr(many)


def test_a_poor_normalizer_is_told(monkeypatch):
    model = tilted(2)
    assert "unreliable" not in repr(model)
    assert "UNRELIABLE" not in model.summary()
    monkeypatch.setattr(type(model.log_normalizer), "is_poor", True)
    assert "unreliable" in repr(model)
    assert "UNRELIABLE" in model.summary()


def test_summary_of_joint_conditional_and_marginal():
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("pqr"))
    model = fixed_fit(frame, n_features=20)
    lines = dict(line.split(maxsplit=1) for line in model.summary().splitlines())
    assert lines["density"] == "of 3 columns: p, q, r"
    assert lines["rows"] == "300"
    assert lines["exponent"].startswith("20 features, gaussian kernel")
    assert lines["normalizer"].startswith("log Z = ")
    assert re.search(r"given +p 0.5", model.conditional({"p": 0.5}).summary())
    marginal = model.marginal(["p", "r"]).summary()
    assert marginal.startswith("marginal")
    assert "of 2 columns: p, r" in marginal


def test_summary_says_what_a_tilt_would_gain_where_the_base_is_taken():
    x = np.random.default_rng(0).normal(size=(200, 1))
    model = tgp.fit(x, method="fd", lam=10.0, n_features=20, base="empirical")
    gain = {"held_out_gain": 0.02, "held_out_gain_error": 0.015}
    model.settings.update(gain, scale="gaussianize", coordinates="gaussianized")
    assert "the tilt gains 0.02 nats" in model.summary()
    assert "gaussianize\n" in model.summary()
    model.method = "base"
    assert "the best tilt would gain 0.02 nats" in model.summary()


def test_summary_warns_of_rounded_columns():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"p": rng.normal(size=2000).round(1), "q": rng.normal(size=2000)})
    with pytest.warns(tgp.DataWarning, match="rounded"):
        model = fixed_fit(frame, n_features=20)
    assert re.search(r"beware +p is rounded\n", model.summary())


def test_summary_names_the_solver_once():
    """And none where the base is taken alone, which nothing solves for."""
    x = np.random.default_rng(0).normal(size=(200, 2))
    assert re.search(r"^solver +cholesky, condition ", fixed_fit(x).summary(), re.MULTILINE)
    assert "solver" not in of_base(tgp.GaussianBase(np.zeros(2), np.eye(2)), None).summary()


@pytest.mark.slow
def test_html_is_escaped_and_has_a_picture(monkeypatch):
    """A name of a column cannot bring in elements; without matplotlib the table stays."""
    name = "<script>&"
    model = of_base(tgp.GaussianBase([0.0], [[1.0]]), [name])
    page = model._repr_html_()
    assert "&lt;script&gt;&amp;" in page
    assert "<script" not in page
    assert page.count('src="data:image/png;base64,') == 1
    assert model.sampling is None  # showing a model draws nothing
    more = of_base(tgp.GaussianBase(np.zeros(4), np.eye(4)))
    assert "<img" in more._repr_html_()
    assert more.sampling is None
    assert "<img" in tilted(2).marginal([0])._repr_html_()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "<table>" in model._repr_html_()
    assert "<img" not in model._repr_html_()
    with pytest.raises(ImportError, match="pip install"):
        model.plot()


def test_pictures_that_would_take_long_are_left_out_of_html(monkeypatch):
    """Those of one or two columns of four; of three they are cheap enough."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setitem(describing._plotters, "density", lambda model, X, **options: figure())
    assert "<img" in tilted(3).marginal([0, 1])._repr_html_()
    assert "<img" not in tilted(4).marginal([0])._repr_html_()
    assert "<img" in tilted(4)._repr_html_()


def test_the_registered_function_draws(monkeypatch):
    monkeypatch.setattr(describing, "_plotters", {})
    model = tilted(2)
    with pytest.raises(ImportError, match="import tgpfast first"):
        model.plot()
    describing.register_plotter("density", lambda model, X, **options: (model, X, options))
    assert model.plot([[0.0, 0.0]], title="t") == (model, [[0.0, 0.0]], {"title": "t"})
