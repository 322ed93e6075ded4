"""Pictures of densities."""

import sys

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast import plot

X = np.random.default_rng(0).standard_normal((300, 2)) * [2.0, 0.5] + [10.0, -3.0]


def test_levels_enclose_the_stated_mass():
    """On a fine grid over a standard normal a share p lies above -log(2 pi) + log(1 - p)."""
    side = np.linspace(-6.0, 6.0, 601)
    log_density = -0.5 * (side[:, None] ** 2 + side**2) - np.log(2.0 * np.pi)
    expected = [-np.log(2.0 * np.pi) + np.log1p(-p) for p in plot.MASSES]
    # a cell holds at most density x 0.02^2, and a level moves by that over the mass outside it
    np.testing.assert_allclose(plot.mass_levels(log_density), expected, atol=0.02**2 / 0.05)
    assert expected == sorted(expected)


@pytest.mark.parametrize("values", [np.zeros((4, 4)), np.where(np.eye(4) > 0, 0.0, -1e308)])
def test_levels_of_flat_and_extreme_densities(values):
    """Rising and finite, as contour demands, even if fewer."""
    levels = plot.mass_levels(values)
    assert levels
    assert np.isfinite(levels).all()
    assert (np.diff(levels) > 0).all()


def test_a_figure_of_two_models(tmp_path):
    """Two labelled panels a model with equal aspect; the file is a picture."""
    pytest.importorskip("matplotlib")
    models = {"base": tgp.GaussianBase.from_data(X), "KDE": tgp.ExactKDE(X)}
    figure = plot.density_figure(models, X, n_shown=100, n_grid=30, title="a title")
    assert len(figure.axes) == 4
    assert [axes.get_title() for axes in figure.axes] == ["base", "KDE", "", ""]
    for axes in figure.axes:
        assert axes.get_aspect() == 1.0
        assert len(axes.lines[0].get_xdata()) == 100
        assert axes.get_xlim()[0] < X[:, 0].min()
    assert figure.axes[0].get_ylabel() == "data and contours\ny"
    assert figure.axes[2].get_xlabel() == "x"
    plot.save(figure, tmp_path / "p.png", dpi=50)
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_columns_of_a_frame_label_the_axes():
    """Names in, names on the axes, for a model that returns frames."""
    pytest.importorskip("matplotlib")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["length", "depth"])
    figure = plot.density_figure({"KDE": tgp.ExactKDE(frame)}, frame, n_shown=50, n_grid=20)
    assert figure.axes[1].get_xlabel() == "length"
    assert figure.axes[1].get_ylabel() == "samples\ndepth"


def test_refusals():
    """No models, or not two columns."""
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="models is empty"):
        plot.density_figure({}, X)
    with pytest.raises(ValueError, match="X has 1 columns; a picture needs 2"):
        plot.density_figure({"base": None}, X[:, :1])


def test_without_matplotlib(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install"):
        plot.density_figure({"base": tgp.GaussianBase.from_data(X)}, X)
