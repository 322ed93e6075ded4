"""Pictures of densities."""

import io
import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import fixed_fit, slow
from scipy.stats import multivariate_normal

import tgpfast as tgp
from tgpfast import plot
from tgpfast.bases.product import ProductBase
from tgpfast.bases.von_mises import VonMisesBase
from tgpfast.data.scaling import Scaling
from tgpfast.data.table import Table
from tgpfast.density.columns.discrete import DiscreteDensity
from tgpfast.density.density import Density
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.plot import scatter_picture
from tgpfast.plot.canvas import curve_styles
from tgpfast.plot.cell_picture import has_cells
from tgpfast.plot.plotted_rows import find_limits

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


@pytest.mark.slow
def test_a_figure_of_two_models(tmp_path):
    """Two labelled panels a model, of unlike ranges; the file is a picture."""
    pytest.importorskip("matplotlib")
    models = {"base": tgp.GaussianBase.from_data(X), "KDE": tgp.ExactKDE(X)}
    figure = plot.density_figure(models, X, n_shown=100, n_grid=30, title="a title")
    assert len(figure.axes) == 4
    assert [axes.get_title() for axes in figure.axes] == ["base", "KDE", "", ""]
    for axes in figure.axes:
        assert axes.get_aspect() == "auto"
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


# -- more pictures ---------------------------------------------------------------------------------

FIVE = np.random.default_rng(1).standard_normal((400, 5)) @ np.diag([1.0, 2.0, 1.0, 0.5, 1.0])
NAMES = ["length", "width", "size", "angle", "distance"]


def png(figure):
    """The figure as rendered; warnings of matplotlib are errors here."""
    file = io.BytesIO()
    figure.savefig(file, dpi=40, format="png")
    return file.getvalue()


def assert_renders(figure):
    assert png(figure)[:4] == b"\x89PNG"


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


class Normal:
    """A rival: independent normals, by log density and samples alone."""

    def __init__(self, mean, spread):
        self.mean, self.spread = np.array(mean, float), np.array(spread, float)

    def log_density(self, Y):
        u = (np.asarray(Y) - self.mean) / self.spread
        return -0.5 * (u**2).sum(axis=1) - np.log(self.spread * np.sqrt(2 * np.pi)).sum()

    def sample(self, n, seed=0):
        rng = np.random.default_rng(seed)
        return self.mean + self.spread * rng.standard_normal((n, len(self.mean)))


RIVAL = Normal([10.0, -3.0], [2.0, 0.5])


@pytest.fixture(scope="module")
def learned():
    """One model a method, of the same rows."""
    options = {"n_features": 30, "lam": 10.0}
    return {name: fixed_fit(X, method=name, **options) for name in ("fd", "ncfd", "fvpd")}


@pytest.fixture(scope="module")
def five():
    """A model of five named columns, and its frame."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(FIVE, columns=NAMES)
    return fixed_fit(frame, n_features=20, lam=100.0), frame


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "rows", "across"), [(1, 1, 1), (4, 1, 4), (5, 2, 3), (8, 2, 4), (9, 3, 3)]
)
@pytest.mark.parametrize("picture", [plot.contours, plot.samples])
def test_panels_wrap_into_even_rows(picture, count, rows, across):
    """At most four in a row; labels at the left and wherever nothing is below."""
    pytest.importorskip("matplotlib")
    models = {f"m{k}": RIVAL for k in range(count)}
    options = {"n_grid": 12} if picture is plot.contours else {"data_panel": False}
    figure = picture(models, X, n_shown=20, **options)
    assert titles(figure) == list(models)
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (rows, across)
    for k, axes in enumerate(figure.axes):
        assert axes.get_ylabel() == ("y" if k % across == 0 else "")
        assert axes.get_xlabel() == ("x" if k + across >= count else "")
    assert_renders(figure)


def test_contours_are_where_they_should_be():
    """Every drawn line has the stated share of a normal's mass inside: its radius is known."""
    pytest.importorskip("matplotlib")
    unit = np.random.default_rng(3).standard_normal((500, 2))
    figure = plot.contours(Normal([0, 0], [1, 1]), unit, n_grid=200, margin=0.5)
    assert titles(figure) == ["Normal"]
    (lines,) = figure.axes[0].collections
    paths = [path for path in lines.get_paths() if len(path.vertices)]
    assert len(paths) == len(plot.MASSES)
    limits = np.array([figure.axes[0].get_xlim(), figure.axes[0].get_ylim()])
    step, reach = np.ptp(limits, axis=1).max() / 199, np.abs(limits).min()
    for path, share in zip(paths, plot.MASSES, strict=True):
        radius, exact = np.hypot(*path.vertices.T), np.sqrt(-2 * np.log1p(-share))
        # the nodes inside a circle stand for an area between circles half a diagonal of a cell in
        # and out; r^2 / 2 as a straight line between nodes is off by step^2 / 8 at most; and the
        # mass beyond the picture, less than e^(-reach^2 / 2), moves r^2 / 2 by its share
        slack = step / np.sqrt(2) + (step**2 / 8 + np.exp(-(reach**2) / 2) / (1 - share)) / exact
        assert np.abs(radius - exact).max() < slack < 0.1
    assert legend_of(figure) == ["data", "contours around 25, 50, 75, 95 %"]


def test_samples_lie_over_the_data():
    """Blue data, vermilion samples on top of them, and last the data alone."""
    pytest.importorskip("matplotlib")
    figure = plot.samples({"a": RIVAL}, X, n_shown=50, title="over")
    assert titles(figure) == ["a", "data"]
    colours = [[line.get_color() for line in axes.lines] for axes in figure.axes]
    assert colours == [[plot.BLUE, plot.VERMILION], [plot.BLUE]]
    assert np.array_equal(figure.axes[0].lines[1].get_xdata(), RIVAL.sample(50, 0)[:, 0])
    assert legend_of(figure) == ["data", "samples"]
    assert figure.get_suptitle() == "over"
    rows = {tuple(row) for row in X}
    assert all(tuple(p) in rows for p in zip(*figure.axes[1].lines[0].get_data(), strict=True))


def test_colours_are_distinct():
    """More models than colours differ by the style of their lines."""
    names = [f"m{k}" for k in range(len(plot.CURVES) * len(plot.STYLES))]
    styles = curve_styles(names).values()
    assert len({(s["color"], s["linestyle"]) for s in styles}) == len(names)
    assert len(set(plot.CURVES)) == len(plot.CURVES)
    assert plot.BLACK not in plot.CURVES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stretch", "aspect"), [([1.0, 1.0], 1.0), ([1.0, 100.0], "auto"), ([1e6, 1e-6], "auto")]
)
def test_aspect_follows_the_ranges(stretch, aspect):
    """Equal for like ranges; else free, and the figure keeps a sensible size."""
    pytest.importorskip("matplotlib")
    x = np.random.default_rng(0).uniform(0, 1, (100, 2)) * stretch
    model = Normal(x.mean(axis=0), x.std(axis=0))
    for figure in (
        plot.contours(model, x, n_grid=10),
        plot.density_figure({"a": model}, x, n_grid=10, n_shown=10),
    ):
        assert {axes.get_aspect() for axes in figure.axes} == {aspect}
        assert max(figure.get_size_inches()) < 12
        assert_renders(figure)


def test_outliers_do_not_shrink_the_picture():
    """Limits leave out what is far away, and the legend says how many rows."""
    pytest.importorskip("matplotlib")
    x = np.vstack([X, [[1e6, -3.0], [10.0, -1e9]]])
    figure = plot.contours(RIVAL, x, n_grid=12, n_shown=20)
    assert legend_of(figure)[0] == "data (2 rows outside the picture)"
    assert np.ptp(figure.axes[0].get_xlim()) < 4 * np.ptp(X[:, 0])
    near = plot.contours(RIVAL, X, n_grid=12, n_shown=20)
    assert legend_of(near)[0] == "data"
    one = plot.contours(RIVAL, x[:-1], n_grid=12, n_shown=20)
    assert legend_of(one)[0] == "data (1 row outside the picture)"


@pytest.mark.parametrize(
    "x",
    [
        slow(np.array([[0.0, 1.0], [1.0, 1.0]])),
        slow(np.array([[0.0, 1.0]])),
        slow(np.full((20, 2), 1e17)),
        slow(np.array([[1e-9, 3.0], [1e-9, 3.0 + 1e-15]])),
        np.where(np.arange(100)[:, None] < 97, 0.0, 1.0) * [1.0, 5.0],
    ],
)
@pytest.mark.slow
def test_few_rows_and_constant_columns(x):
    """Axes have a width, and hold all rows."""
    pytest.importorskip("matplotlib")
    low, high = find_limits(x, 0.0)
    assert (high > low).all()
    assert ((x >= low) & (x <= high)).all()
    model = Normal(x.mean(axis=0), np.maximum(x.std(axis=0), 1.0))
    for picture in (plot.contours, plot.samples, plot.marginal_cdfs, plot.pairs):
        assert_renders(picture(model, x))


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        (lambda y: np.zeros(len(y)), False),
        (lambda y: np.full(len(y), -np.inf), False),
        (lambda y: np.where(np.hypot(*(y - [10.0, -3.0]).T) < 1.0, 0.0, -np.inf), True),
        (lambda y: -1e6 * ((y - X[0]) ** 2).sum(axis=1), True),
        (lambda y: np.where(y[:, 0] > 10.0, np.nan, -(y[:, 1] ** 2)), True),
    ],
)
def test_densities_that_vanish_or_are_flat(values, drawn):
    """Without a warning, and with contours only where there is something to enclose."""
    pytest.importorskip("matplotlib")
    figure = plot.contours(SimpleNamespace(log_density=values), X, n_grid=30)
    assert len(figure.axes[0].collections) == drawn
    assert_renders(figure)


@pytest.mark.parametrize("slope", [0.0, 0.05])
def test_nodes_without_density_leave_no_holes(slope):
    """A disc has a closed line about it; it would be cut where a contour shuns such nodes."""
    pytest.importorskip("matplotlib")

    def disc(y):
        r = np.hypot(*(y - [10.0, -3.0]).T)
        return np.where(r < 1.0, -slope * r**2, -np.inf)

    axes = plot.contours(SimpleNamespace(log_density=disc), X, n_grid=80).axes[0]
    (lines,) = axes.collections
    outermost = lines.get_paths()[0].vertices
    assert np.array_equal(outermost[0], outermost[-1])
    step = max(np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())) / 79
    radius = np.hypot(*(outermost - [10.0, -3.0]).T)
    # 95 % of a disc lie within sqrt(0.95), a little less with the slope; and a cell to either side
    assert np.abs(radius - (1.0 if slope == 0 else np.sqrt(0.95))).max() < 1.5 * step


def test_noise_ladder(learned):
    """Five levels down to 0 unless told; the last panel is the model itself."""
    pytest.importorskip("matplotlib")
    model = learned["ncfd"]
    top = model.settings["sigma_max"]
    figure = plot.noise_ladder(model, X, n_grid=20, n_shown=20)
    assert titles(figure) == [f"sigma = {v:.3g}" for v in np.linspace(top, 0.0, 5)]
    last, itself = figure.axes[-1], plot.contours(model, X, n_grid=20, n_shown=20).axes[0]
    assert np.allclose(last.collections[0].levels, itself.collections[0].levels, rtol=1e-9)
    assert titles(plot.noise_ladder(model, X, sigmas=[0.5, 0.1], n_grid=9)) == [
        "sigma = 0.5", "sigma = 0.1",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="sigmas is empty"):
        plot.noise_ladder(model, X, sigmas=[])
    with pytest.raises(ValueError, match="at_noise needs a model"):
        plot.noise_ladder(learned["fd"], X)
    with pytest.raises(TypeError, match="Normal has no at_noise"):
        plot.noise_ladder(RIVAL, X)


def test_noise_ladder_of_statistics():
    """A model by ``solve`` starts at the highest of its levels."""
    pytest.importorskip("matplotlib")
    features = tgp.Features.draw(20, 0.7, np.eye(2))
    stats = tgp.accumulate(X - X.mean(axis=0), features, noise_levels=[0.0, 0.4])
    model = tgp.solve(stats, tgp.GaussianBase(np.zeros(2), np.eye(2)), "ncfd", lam=10.0)
    figure = plot.noise_ladder(model, X - X.mean(axis=0), n_grid=9)
    assert titles(figure)[0] == "sigma = 0.4"


@pytest.mark.parametrize("units", ["standardized", "data"])
def test_marginal_cdfs_of_named_columns(five, units):
    """A panel a direction of ``evaluate``, named by its two largest terms; KS as computed."""
    pytest.importorskip("matplotlib")
    model, frame = five
    figure = plot.marginal_cdfs({"FD": model, "rival": Normal([0] * 5, [1] * 5)}, frame,
                                n_directions=3, seed=4, n_samples=500, units=units)  # fmt: skip
    shift, scale = (FIVE.mean(0), FIVE.std(0)) if units == "standardized" else (0.0, 1.0)
    rival = Normal([0] * 5, [1] * 5)
    v = tgp.evaluate(rival, FIVE, 3, 50, 50, seed=4, n_scored=0, units=units).directions
    for direction, axes in zip(v, figure.axes, strict=True):
        first, second = np.argsort(-np.abs(direction))[:2]
        sign = "-" if direction[second] < 0 else "+"
        assert axes.get_title() == (
            f"{direction[first]:.2f} {NAMES[first]} {sign} "
            f"{abs(direction[second]):.2f} {NAMES[second]} + ..."
        )
        data, *curves = axes.lines
        assert [line.get_label() for line in axes.lines] == ["data", "FD", "rival"]
        grid = data.get_xdata()
        of_data = ((FIVE - shift) / scale @ direction <= grid[:, None]).mean(axis=1)
        assert np.allclose(data.get_ydata(), of_data, atol=1.5 / len(FIVE))  # a tie at most
        assert np.allclose(curves[0].get_ydata(), model.marginal_cdf(
            direction / scale, grid + (shift / scale + np.zeros(5)) @ direction
        ))  # fmt: skip
        drawn = (Normal([0] * 5, [1] * 5).sample(500, 4) - shift) / scale @ direction
        assert np.allclose(curves[1].get_ydata(), (drawn <= grid[:, None]).mean(axis=1), atol=3e-3)
        texts = [text.get_text() for text in axes.texts]
        for line in curves:
            ks = np.abs(line.get_ydata() - data.get_ydata()).max()
            assert f"{line.get_label()} {ks:.3f}" in texts
    assert len({line.get_color() for line in figure.axes[0].lines}) == 3
    assert legend_of(figure) == ["data", "FD", "rival"]
    assert_renders(figure)


def test_marginal_cdfs_along_given_directions():
    """As they are given, whole where they have two terms."""
    pytest.importorskip("matplotlib")
    figure = plot.marginal_cdfs(RIVAL, X, directions=[[1.0, 0.0], [-0.6, -0.8]], n_samples=200)
    assert titles(figure) == ["1.00 x", "-0.80 y - 0.60 x"]
    assert figure.axes[0].texts[0].get_text().startswith("KS 0.")
    with pytest.raises(ValueError, match="units='paper': expected one of 'standardized', 'data'"):
        plot.marginal_cdfs(RIVAL, X, units="paper")
    for bad in ([[1.0]], [[0.0, 0.0]], np.zeros((0, 2))):
        with pytest.raises(ValueError, match="directions has"):
            plot.marginal_cdfs(RIVAL, X, directions=bad)


def test_marginal_cdfs_with_names_given(five):
    """For rows that have none, as for those that have; as many names as columns."""
    pytest.importorskip("matplotlib")
    options = {"directions": [[0.6, -0.8], [0.0, 1.0]], "n_samples": 200}
    figure = plot.marginal_cdfs(RIVAL, X, names=["length", "depth"], **options)
    assert titles(figure) == ["-0.80 depth + 0.60 length", "1.00 depth"]
    assert titles(plot.marginal_cdfs(RIVAL, X, **options)) == ["-0.80 y + 0.60 x", "1.00 y"]
    curves = [[line.get_ydata() for line in axes.lines] for axes in figure.axes]
    plain = plot.marginal_cdfs(RIVAL, X, **options)
    assert np.array_equal(curves, [[line.get_ydata() for line in a.lines] for a in plain.axes])
    numbers = plot.marginal_cdfs(RIVAL, X, names=[1990, 2000], **options)  # as frames may have
    assert titles(numbers) == ["-0.80 2000 + 0.60 1990", "1.00 2000"]
    model, frame = five
    renamed = plot.marginal_cdfs(model, frame, names=list("abcde"), directions=np.eye(5)[:2])
    assert titles(renamed) == ["1.00 a", "1.00 b"]
    for names in (["length"], [], ["a", "b", "c"]):
        with pytest.raises(ValueError, match=f"names has {len(names)} entries, expected 2"):
            plot.marginal_cdfs(RIVAL, X, names=names)


def test_marginal_cdfs_in_one_dimension():
    pytest.importorskip("matplotlib")
    figure = plot.marginal_cdfs(Normal([10], [2]), X[:, 0], n_directions=1, n_samples=100)
    assert titles(figure) in (["1.00 x1"], ["-1.00 x1"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "expected"),
    [(None, NAMES), (["size", "width"], ["size", "width"]), ([4, "length", 1],
     ["distance", "length", "width"])],
)  # fmt: skip
def test_pairs(five, columns, expected):
    """Data below the diagonal, samples above, both on it; names at the edges."""
    pytest.importorskip("matplotlib")
    model, frame = five
    figure = plot.pairs(model, frame, columns=columns, n_shown=30, n_bins=10)
    k = len(expected)
    grid = np.array(figure.axes, dtype=object).reshape(k, k)
    assert [axes.get_xlabel() for axes in grid[-1]] == expected
    assert [axes.get_ylabel() for axes in grid[:, 0]] == expected
    drawn = model.sample(400, seed=0)[expected].to_numpy()
    for i in range(k):
        for j in range(k):
            if i == j:
                data, sample = grid[i, i].patches
                assert (data.get_edgecolor() != sample.get_edgecolor()) is True
                heights, edges, _ = data.get_data()
                inside = np.histogram(frame[expected[i]], edges)[0].sum() / len(frame)
                assert np.isclose((heights * np.diff(edges)).sum(), inside)
                continue
            (points,) = grid[i, j].lines
            assert points.get_color() == (plot.BLUE if i > j else plot.VERMILION)
            assert len(points.get_xdata()) == 30
            if i < j:
                assert np.array_equal(points.get_xdata(), drawn[:30, j])
                assert np.array_equal(points.get_ydata(), drawn[:30, i])
    assert legend_of(figure) == ["data", "samples of FD"]
    assert_renders(figure)


@pytest.mark.slow
def test_pairs_takes_at_most_six_columns():
    pytest.importorskip("matplotlib")
    x = np.random.default_rng(0).standard_normal((50, 8))
    model = Normal([0] * 8, [1] * 8)
    assert len(plot.pairs(model, x).axes) == 36
    for columns in (range(7), [0], "x1"):
        with pytest.raises(ValueError, match="needs 2 to 6 different columns"):
            plot.pairs(model, x, columns=columns)
    for columns in ([0, 8], [0, -1], ["x1", "x9"]):
        with pytest.raises(ValueError, match="no such column; expected one of"):
            plot.pairs(model, x, columns=columns)
    with pytest.raises(ValueError, match="each one once"):
        plot.pairs(model, x, columns=[1, 1])
    with pytest.raises(ValueError, match="needs 2 to 6"):
        plot.pairs(Normal([0], [1]), x[:, :1])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fd", "fvpd"])
def test_diagnostics(learned, method):
    """Four panels with data, three without; the printed numbers are the model's."""
    pytest.importorskip("matplotlib")
    model = learned[method]
    figure = plot.diagnostics(model, X, n_draws=500, n_shown=50)
    assert titles(figure) == [
        "weight of the heaviest draws", "log weights", "log density", "where the weight lies",
    ]  # fmt: skip
    weights = model.weighted_sample(500, 0)[1]
    effective = weights.sum() ** 2 / (weights**2).sum()
    text = figure.axes[0].get_legend().get_title().get_text()
    assert f"effective draws {effective:,.0f} of 500" in text
    assert f"log Z {model.log_normalizer.value:.4g}" in text
    assert model.log_normalizer.method in text
    even, curve = figure.axes[0].lines
    ordered = np.sort(weights)[::-1]
    rank = np.round(curve.get_xdata() * 500).astype(int)
    assert np.allclose(curve.get_ydata(), np.cumsum(ordered)[rank - 1] / ordered.sum())
    assert (curve.get_ydata() >= even.get_ydata() - 1e-12).all()
    half = figure.axes[3].get_legend().get_texts()[1].get_text()
    count = int(half.split()[0].replace(",", ""))
    assert ordered[:count].sum() >= 0.5 * ordered.sum() > ordered[: count - 1].sum()
    assert_renders(figure)
    assert titles(plot.diagnostics(model, n_draws=500)) == [
        "weight of the heaviest draws", "log weights", "where the weight lies",
    ]  # fmt: skip


def test_diagnostics_of_other_shapes(five):
    """One column has no map; names come from the model where there are no data."""
    pytest.importorskip("matplotlib")
    one = fixed_fit(X[:, :1], n_features=10, lam=10.0)
    assert len(plot.diagnostics(one, X[:, :1], n_draws=200).axes) == 3
    assert len(plot.diagnostics(one, n_draws=1).axes) == 2
    figure = plot.diagnostics(five[0], n_draws=200)
    assert figure.axes[2].get_xlabel() == "length"
    with pytest.raises(TypeError, match="Normal has no weighted draws"):
        plot.diagnostics(RIVAL, X)


def test_low_log_densities_are_counted(learned):
    """A long tail does not squeeze the histogram, and is told."""
    pytest.importorskip("matplotlib")
    x = np.vstack([X, [[300.0, -3.0]]])
    figure = plot.diagnostics(learned["fd"], x, n_draws=200)
    values, left = learned["fd"].log_density(x), figure.axes[2].get_xlim()[0]
    count = (values < left).sum()
    assert 1 <= count < 10
    text = figure.axes[2].get_legend().get_title().get_text()
    assert f"{count} row{'s' if count > 1 else ''} of the data farther left" in text.splitlines()
    assert_renders(figure)


@pytest.mark.slow
def test_weights_that_underflow_are_counted(learned, monkeypatch):
    """Zeros have no logarithm, and are told."""
    pytest.importorskip("matplotlib")
    weights = np.array([1.0, 0.5, 0.0, 0.0, 1e-300])
    monkeypatch.setattr(learned["fd"], "weighted_sample", lambda n, seed: (X[:5], weights),
                        raising=False)  # fmt: skip
    figure = plot.diagnostics(learned["fd"], n_draws=5)
    assert [t.get_text() for t in figure.axes[1].texts] == ["2 draws have weight 0"]
    assert_renders(figure)


def test_frames_are_put_in_the_models_order(five):
    """Columns are found by name; two models that disagree are refused."""
    pytest.importorskip("matplotlib")
    model, frame = five
    straight = plot.pairs(model, frame, n_shown=20)
    turned = plot.pairs(model, frame[NAMES[::-1]], n_shown=20)
    for a, b in zip(straight.axes, turned.axes, strict=True):
        assert a.get_xlabel() == b.get_xlabel()
        for p, q in zip(a.lines, b.lines, strict=True):
            assert np.array_equal(p.get_xydata(), q.get_xydata())
    other = tgp.ExactKDE(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match="the models have different columns"):
        plot.marginal_cdfs({"a": model, "b": other}, frame)


def test_one_model_is_named_by_its_method(learned):
    pytest.importorskip("matplotlib")
    assert titles(plot.contours(learned["fvpd"], X, n_grid=10)) == ["FVPD"]
    assert titles(plot.density_figure(RIVAL, X, n_grid=10, n_shown=9)) == ["Normal", ""]


# -- what fit compared -----------------------------------------------------------------------------


def compared(score, lam=10.0, gamma=1.0, base="empirical", chosen=False, **other):
    return {
        "base": base, "method": "fd", "frequency_covariance": "data", "gamma_multiple": gamma,
        "lam": lam, "eta_multiple": np.nan, "score": score, "error": 0.05, "effective_share": 0.3,
        "far_share": 0.0, "gain_error": 0.02, "fisher": np.nan, "chosen": chosen,
    } | other  # fmt: skip


def table():
    """Two bases, two bandwidths, two covariances, MAP and FVPD, hopeless and lost candidates."""
    rows = [
        compared(-2.0 + gamma / 10 - abs(np.log10(lam) - 1), lam, gamma, frequency_covariance=shape)
        for lam in (1.0, 10.0, 100.0) for gamma in (0.7, 1.4) for shape in ("data", "identity")
    ]  # fmt: skip
    rows += [
        compared(-2.1, method="map"), compared(-2.2, 31.0, method="fvpd", eta_multiple=1.0),
        compared(-1e4, 0.1, 0.7), compared(-np.inf, 0.01, 0.7),
        compared(-2.5, np.inf, np.nan), compared(-2.6, np.inf, np.nan, base="student"),
    ]  # fmt: skip
    rows.sort(key=lambda row: -row["score"])
    rows[0]["chosen"] = True
    return rows


@pytest.mark.slow
def test_selection_shows_every_candidate():
    """A panel a base; a line a bandwidth and covariance; markers, the base alone and the star."""
    pytest.importorskip("matplotlib")
    rows = table()
    figure = plot.selection(SimpleNamespace(selection=rows), title="compared")
    assert titles(figure) == ["empirical: -1.86", "student alone: -2.6"]
    assert figure.get_suptitle() == "compared"
    left, right = figure.axes
    assert (left.get_xscale(), left.get_xlabel()) == ("log", "lambda")
    assert left.get_ylabel() == "held-out log-likelihood of a row"
    curves = [line for line in left.lines if len(line.get_xdata()) > 2]
    assert len(curves) == 4
    assert len({tuple(c.get_color()) for c in curves}) == 2
    assert len({c.get_linestyle() for c in curves}) == 2
    for curve in curves:
        assert (np.diff(curve.get_xdata()) > 0).all()
    assert {line.get_marker() for line in left.lines} >= {"^", "s", "*"}
    assert [set(line.get_ydata()) for line in right.lines] == [{-2.6}]  # the base alone
    (star,) = (line for line in left.lines if line.get_marker() == "*")
    best = next(row for row in rows if row["chosen"])
    assert star.get_xydata().tolist() == [[best["lam"], best["score"]]]
    (container,) = left.containers
    (bar,) = container[2][0].get_segments()
    np.testing.assert_allclose(bar[:, 1], [best["score"] - 0.05, best["score"] + 0.05])
    entries = legend_of(figure)
    assert entries == [
        "0.7 Scott", "1 Scott", "1.4 Scott", "data (FD)", "identity (FD)", "MAP", "FVPD",
        "base alone", "chosen",
    ]  # fmt: skip
    assert_renders(figure)


def test_hopeless_candidates_do_not_stretch_the_axis():
    """Limits follow the bases alone and the best; scores that were not believed are left out."""
    pytest.importorskip("matplotlib")
    figure = plot.selection(SimpleNamespace(selection=table()))
    low, high = figure.axes[0].get_ylim()
    assert -3.0 < low < -2.6
    assert -1.86 < high < -1.7
    low, high = figure.axes[1].get_ylim()
    assert -2.7 < low < -2.6 < high < -2.5
    for line in figure.axes[0].lines:
        assert not np.isinf(np.asarray(line.get_ydata(), float)).any()


@pytest.mark.slow
def test_a_base_alone_may_be_what_was_chosen():
    """Its star is at the right, where lambda is infinite; one candidate is picture enough."""
    pytest.importorskip("matplotlib")
    alone = compared(-2.0, np.inf, np.nan, chosen=True)
    for rows in ([alone], [alone, compared(-2.1)], [alone, compared(-np.inf)]):
        figure = plot.selection(SimpleNamespace(selection=rows))
        (star,) = (line for line in figure.axes[0].lines if line.get_marker() == "*")
        assert star.get_xydata().tolist() == [[0.95, -2.0]]
        low, high = figure.axes[0].get_ylim()
        assert low < -2.05 < -1.95 < high  # with its error
        assert_renders(figure)


@pytest.mark.slow
def test_selection_of_a_fit(tmp_path):
    """As learned, and as loaded."""
    pytest.importorskip("matplotlib")
    model = fixed_fit(X, n_features=10, lam="auto", gamma="auto")
    figure = plot.selection(model)
    assert titles(figure) == [f"empirical: {model.selection[0]['score']:.4g}"]
    model.save(tmp_path / "model.npz")
    assert png(plot.selection(tgp.load(tmp_path / "model.npz"))) == png(figure)


def test_nothing_was_compared(learned):
    pytest.importorskip("matplotlib")
    for model in (learned["fd"], RIVAL):
        with pytest.raises(ValueError, match="every setting was given"):
            plot.selection(model)


# -- refusals --------------------------------------------------------------------------------------

OF_MODELS = [plot.density_figure, plot.contours, plot.samples, plot.marginal_cdfs]


@pytest.mark.parametrize("picture", OF_MODELS)
def test_models_that_are_none(picture):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="models is empty; give at least one"):
        picture({}, X)
    with pytest.raises(TypeError, match="list is no model"):
        picture([RIVAL], X)


@pytest.mark.parametrize("picture", OF_MODELS[:3])
def test_other_numbers_of_columns(picture):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="X has 1 columns; a picture needs 2"):
        picture({"base": None}, X[:, :1])
    with pytest.raises(ValueError, match="X has 2 columns, but a is a density of 5"):
        picture({"a": tgp.GaussianBase(np.zeros(5), np.eye(5))}, X)


@pytest.mark.parametrize(
    ("picture", "options", "message"),
    [
        (plot.contours, {"n_grid": 1}, "n_grid=1: expected an integer of at least 2"),
        (plot.contours, {"n_shown": 0}, "n_shown=0: expected an integer of at least 1"),
        (plot.contours, {"margin": -0.1}, "margin=-0.1: expected a finite number"),
        (plot.contours, {"margin": "x"}, "margin='x': expected a finite number"),
        (plot.samples, {"n_shown": 1.5}, "n_shown=1.5: expected an integer"),
        (plot.marginal_cdfs, {"n_directions": 0}, "n_directions=0: expected an integer"),
        (plot.marginal_cdfs, {"n_samples": True}, "n_samples=True: expected an integer"),
        (plot.pairs, {"n_bins": 0}, "n_bins=0: expected an integer"),
    ],
)
def test_other_options(picture, options, message):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match=message):
        picture(RIVAL, X, **options)


@pytest.mark.parametrize("picture", [*OF_MODELS, plot.pairs, plot.diagnostics])
def test_without_matplotlib(monkeypatch, picture):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install"):
        picture(tgp.GaussianBase.from_data(X), X)


# -- pictures of one density -----------------------------------------------------------------------


def gaussian_model(d, names=None):
    """A density with known regions and conditionals: standard normal columns, correlation 0.6."""
    covariance = np.full((d, d), 0.6) + 0.4 * np.eye(d)
    features = tgp.Features(np.zeros((1, d)), np.zeros(1), 1.0)
    tilt = PointTilt(features, np.zeros(1), np.zeros(d))
    return tgp.Density("base", tilt, tgp.GaussianBase(np.zeros(d), covariance), table=Table(names))


def test_a_scatter_plot_of_many_rows(monkeypatch):
    """Every pixel with a row has the density at its center; the others have none."""
    monkeypatch.setattr(scatter_picture, "SCATTERED_ROWS", 1_000)
    pytest.importorskip("matplotlib")
    pandas = pytest.importorskip("pandas")
    model = gaussian_model(2)
    rows = np.asarray(model.sample(30_000, seed=0))
    frame = pandas.DataFrame(np.column_stack([rows[:, 1], np.zeros(30_000), rows[:, 0]]),
                             columns=["depth", "other", "length"])  # fmt: skip
    figure = plot.density_scatter(frame, model, columns=["length", "depth"])
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("length", "depth")
    assert (axes.get_title(), bar.get_ylabel()) == ("30,000 rows", "density")
    (image,) = axes.images
    values = np.ma.filled(image.get_array(), np.nan)
    left, right, bottom, top = image.get_extent()
    counts, y, x = np.histogram2d(rows[:, 1], rows[:, 0], bins=values.shape,
                                  range=[(bottom, top), (left, right)])  # fmt: skip
    assert np.array_equal(np.isfinite(values), counts > 0)
    i, j = np.argwhere(counts > 0)[::50].T
    centers = np.stack([(x[j] + x[j + 1]) / 2, (y[i] + y[i + 1]) / 2], axis=1)
    np.testing.assert_allclose(values[i, j], np.exp(model.log_density(centers)), rtol=1e-9)
    assert_renders(figure)


def test_rows_with_ties_are_points():
    """Few pixels are filled: each distinct row is a point."""
    pytest.importorskip("matplotlib")
    model = gaussian_model(2)
    rows = np.asarray(model.sample(25_000, seed=0)).round(1)
    (points,) = plot.density_scatter(rows, model).axes[0].collections
    assert set(map(tuple, points.get_offsets())) == set(map(tuple, rows))


@pytest.mark.slow
def test_a_scatter_plot_fits_a_density_of_its_own():
    """Few rows are points, the densest last; outliers are counted."""
    pytest.importorskip("matplotlib")
    x = np.vstack([X, [[1e6, -3.0]]])
    axes = plot.density_scatter(x).axes[0]
    assert axes.get_title() == "301 rows, 1 outside the picture"
    (points,) = axes.collections
    colors = points.get_array()
    assert len(colors) == 300
    assert (np.diff(colors) >= 0).all()
    last = points.get_offsets()[-1]
    assert np.abs((last - X.mean(axis=0)) / X.std(axis=0)).max() < 1.5
    with pytest.raises(ValueError, match="X has 5 columns; give the two to draw"):
        plot.density_scatter(FIVE)
    with pytest.raises(ValueError, match="expected two"):
        plot.density_scatter(FIVE, columns=[0])
    with pytest.raises(ValueError, match="the model has 3 columns"):
        plot.density_scatter(X, gaussian_model(3))


@pytest.mark.slow
def test_a_curve_with_band_and_rug():
    pytest.importorskip("matplotlib")
    rows = np.random.default_rng(0).normal(5.0, 2.0, size=(800, 1))
    model = fixed_fit(rows, method="fvpd", lam=1.0, n_features=20)
    figure = model.plot(rows, n_shown=50)
    (axes,) = figure.axes
    curve = axes.lines[0]
    line = curve.get_xdata()
    np.testing.assert_allclose(curve.get_ydata(), np.exp(model.log_density(line[:, None])))
    band, rug = axes.collections
    found = model.credible_band(line[:, None])
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(np.exp(found.upper).max())
    assert len(rug.get_segments()) == 50
    assert legend_of(figure) == ["density", "90 % credible band", "data"]
    assert axes.get_xlabel() == "x1"
    assert_renders(figure)
    other = gaussian_model(1, ["length"])
    assert legend_of(other.plot()) == ["density"]
    assert other.plot().axes[0].get_xlabel() == "length"
    with pytest.raises(ValueError, match="credible_band needs a model"):
        other.plot(band=True)
    with pytest.raises(ValueError, match="a curve needs one"):
        plot.density_curve(gaussian_model(2))


@pytest.mark.parametrize("by_draws", [True, False])
def test_regions_have_their_probability_on_the_label(by_draws):
    """Of a normal, the region of p is an ellipse of squared radius -2 log(1 - p)."""
    pytest.importorskip("matplotlib")
    model = gaussian_model(2, ["length", "depth"])
    figure = model.plot(levels=[0.5, 0.9], by_draws=by_draws)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("length", "depth")
    assert {text.get_text() for text in axes.texts} == {"50 %", "90 %"}
    lines = axes.collections[-1]
    precision = np.linalg.inv(model.base.covariance)
    for path, share in zip(lines.get_paths(), [0.9, 0.5], strict=True):
        squares = np.einsum("ni,ij,nj->n", path.vertices, precision, path.vertices)
        assert squares == pytest.approx(-2.0 * np.log1p(-share), rel=0.03)
    assert_renders(figure)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        model.plot(levels=[1.5])
    with pytest.raises(ValueError, match="contours need two"):
        plot.region_contours(gaussian_model(1))


def test_conditional_bands_of_a_normal():
    """Mean 0.6 x, standard deviation 0.8: known quantiles."""
    pytest.importorskip("matplotlib")
    model = gaussian_model(2, ["length", "depth"])
    rows = np.asarray(model.sample(100, seed=0))
    figure = plot.conditional_bands(model, rows, column="length", levels=[0.9])
    (axes,) = figure.axes
    assert axes.get_xlabel() == "depth"
    assert axes.get_ylabel() == "length given depth"
    points, mean = axes.lines
    assert set(map(tuple, points.get_xydata())) == set(map(tuple, rows[:, ::-1]))
    np.testing.assert_allclose(mean.get_ydata(), 0.6 * mean.get_xdata(), atol=1e-5)
    x, y = axes.collections[0].get_paths()[0].vertices.T
    assert np.abs(y - 0.6 * x).max() == pytest.approx(0.8 * 1.6448536, abs=1e-3)
    assert legend_of(figure) == ["data", "90 %", "mean"]
    assert_renders(figure)
    with pytest.raises(ValueError, match="no such column"):
        plot.conditional_bands(model, column="width")
    with pytest.raises(ValueError, match="give values of the others"):
        plot.conditional_bands(gaussian_model(3))


def test_plot_picks_by_dimension():
    """Conditionals and marginals too; more than two columns are pairs of draws."""
    pytest.importorskip("matplotlib")
    model = gaussian_model(3, ["a", "b", "c"])
    figure = model.plot(n_shown=20)
    assert len(figure.axes) == 9
    assert legend_of(figure) == ["samples of BASE"]
    assert {line.get_color() for axes in figure.axes for line in axes.lines} == {plot.VERMILION}
    assert legend_of(model.plot(model.sample(30, seed=1), n_shown=20))[0] == "data"
    assert model.marginal("b").plot().axes[0].get_xlabel() == "b"
    two = model.conditional({"a": 1.0}).plot().axes[0]
    assert (two.get_xlabel(), two.get_ylabel()) == ("b", "c")
    tilted = fixed_fit(X, n_features=10)
    assert tilted.marginal([1]).plot().axes[0].get_ylabel() == "density"


def test_pictures_keep_to_a_dark_background():
    """Text has the color of the style, so that it can be read."""
    pytest.importorskip("matplotlib")
    from matplotlib import style
    from matplotlib.colors import to_rgba

    with style.context("dark_background"):
        axes = gaussian_model(2).plot(by_draws=False).axes[0]
    assert axes.xaxis.label.get_color() == "white"
    assert axes.texts
    assert all(to_rgba(text.get_color()) == to_rgba("white") for text in axes.texts)


@pytest.fixture(scope="module")
def hours_and_counts():
    """Independent columns: an hour around midnight, a Poisson count and a normal."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([
        rng.normal(0.0, 3.0, 500) % 24.0, rng.poisson(3.0, 500), rng.normal(size=500)
    ])  # fmt: skip
    scales = np.array([1.0, 1.0, 2.0])
    base = ProductBase([VonMisesBase(0.0, 1.6, 0.0, 24.0), tgp.GaussianBase(
        [3.0, 0.0], np.diag([3.0, 1.0]))])  # fmt: skip
    tilt = PointTilt(tgp.Features(np.zeros((1, 3)), np.zeros(1), 1.0), np.zeros(1), np.zeros(3))
    model = Density("base", tilt, base.rescaled(Scaling(np.zeros(3), 1.0 / scales)),
                    scaling=Scaling(np.zeros(3), 1.0 / scales))  # fmt: skip
    return rows, DiscreteDensity(model, {1: 1.0})


@pytest.mark.slow
def test_periodic_columns_stay_in_their_period(hours_and_counts):
    """With rows and without, alone and among others; rows of other periods widen the axis."""
    pytest.importorskip("matplotlib")
    rows, model = hours_and_counts
    for hours in (None, rows[:, :1]):
        low, high = model.marginal(0).plot(hours).axes[0].get_xlim()
        assert 0.0 <= low < 0.1
        assert 23.9 < high <= 24.0
    assert model.marginal(0).plot(rows[:, :1] + 24.0).axes[0].get_xlim()[1] > 40.0
    low, high = model.plot(rows).axes[0].get_xlim()
    assert (low, high) == (pytest.approx(0.0), pytest.approx(24.0))
    assert model.plot(rows).axes[8].get_xlim()[0] < rows[:, 2].min()  # an open column has a margin


@pytest.mark.slow
def test_bars_and_bins_of_discrete_columns(hours_and_counts):
    """Bars are probabilities, points shares of rows; each bin holds the same number of values."""
    pytest.importorskip("matplotlib")
    rows, model = hours_and_counts
    counts = model.marginal(1)
    axes = counts.plot(rows[:, 1:2]).axes[0]
    bars = {round(bar.get_x() + 0.5 * bar.get_width()): bar.get_height() for bar in axes.patches}
    for k in (0, 3, 7):
        assert bars[k] == pytest.approx(np.exp(counts.log_density([[k]])[0]))
    (points,) = axes.lines
    share = dict(zip(*points.get_data(), strict=True))
    assert share[3.0] == pytest.approx((rows[:, 1] == 3).mean())
    assert model.marginal(1).plot().axes[0].get_ylabel() == "probability"
    few, many = (model.plot(rows, n_bins=n).axes[4].patches[0].get_data() for n in (3, 40))
    np.testing.assert_allclose(np.diff(many.edges), 1.0)
    np.testing.assert_allclose(many.edges % 1.0, 0.5)
    assert len(few.values) <= 3
    assert np.ptp(np.diff(few.edges)) < 1e-12
    assert len(model.marginal([0, 1]).plot(rows[:, :2]).axes) == 1


@pytest.mark.slow
def test_the_region_of_an_hour_keeps_to_one_period(hours_and_counts):
    """Alone, and beside another column."""
    pytest.importorskip("matplotlib")
    rows, model = hours_and_counts
    for columns in ([0], [0, 2]):
        region = model.marginal(columns).highest_density_region(0.5)
        axes = region.plot(rows[:, columns]).axes[0]
        assert axes.get_xlim() == (pytest.approx(0.0), pytest.approx(24.0))


@pytest.mark.slow
def test_bands_given_a_count(hours_and_counts):
    """The mean of an independent normal, at every whole number."""
    pytest.importorskip("matplotlib")
    _, model = hours_and_counts
    pair = model.conditional({0: 6.0})
    (line,) = plot.conditional_bands(pair, column=1).axes[0].lines
    given, means = line.get_data()
    np.testing.assert_array_equal(given, np.arange(given[0], given[-1] + 1))
    np.testing.assert_allclose(means, 0.0, atol=1e-3)


@pytest.mark.slow
def test_bands_of_a_marginal_density():
    """Two correlated normals, beside two other columns that a tilt bends."""
    pytest.importorskip("matplotlib")
    covariance = np.diag([1.0, 4.0, 1.0, 1.0])
    covariance[0, 1] = covariance[1, 0] = 1.2
    features = tgp.Features(np.array([[0.0, 0.0, 1.0, 0.5]]), np.zeros(1), 1.0)
    tilt = PointTilt(features, np.full(1, 0.4), np.zeros(4))
    model = Density("fd", tilt, tgp.GaussianBase(np.zeros(4), covariance))
    axes = plot.conditional_bands(model.marginal([0, 1]), levels=(0.9,)).axes[0]
    given, means = axes.lines[0].get_data()
    np.testing.assert_allclose(means, 1.2 * given, atol=0.02)
    spread = 1.6449 * np.sqrt(4.0 - 1.2**2)
    band = axes.collections[0].get_paths()[0].vertices
    at = np.argmin(np.abs(given))
    heights = band[np.isclose(band[:, 0], given[at]), 1]
    assert heights.max() == pytest.approx(1.2 * given[at] + spread, abs=0.05)
    assert heights.min() == pytest.approx(1.2 * given[at] - spread, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(0.0, 1.0), (-122.514, -122.35)])
def test_labels_of_ticks_do_not_touch(ends):
    """Not even those of a narrow range far from zero, in a picture that is drawn."""
    pytest.importorskip("matplotlib")
    x = np.random.default_rng(0).uniform([ends[0], 0.0], [ends[1], 24.0], size=(300, 2))
    model = fixed_fit(x)
    figure = plot.region_contours(model, x)
    figure.savefig(io.BytesIO(), format="png")
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    boxes = [
        label.get_window_extent() for label in axes.get_xticklabels()
        if low <= label.get_position()[0] <= high
    ]  # fmt: skip
    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_a_scatter_plot_needs_two_columns():
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="needs two"):
        plot.density_scatter(X[:, :1])
    with pytest.raises(ValueError, match=r"model\.marginal"):
        plot.density_scatter(np.zeros((5, 3)), gaussian_model(3), columns=[0, 1])


def two_counts(step=1.0):
    """Two correlated counts in steps, with names."""
    base = tgp.GaussianBase(np.array([4.0, 2.0]) * step, step**2 * np.array([[3.0, 1], [1, 2.0]]))
    tilt = PointTilt(tgp.Features(np.zeros((1, 2)), np.zeros(1), 1.0), np.zeros(1), np.zeros(2))
    model = Density("base", tilt, base, table=Table(["visits", "orders"]))
    return DiscreteDensity(model, {0: step, 1: step})


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_cells_of_two_discrete_columns(step):
    """Every cell has the probability of its pair of values, which scipy gives; dots are shares."""
    pytest.importorskip("matplotlib")
    model = two_counts(step)
    rows = np.array([[4.0, 2.0]] * 8 + [[2.0, 1.0]] * 2) * step
    figure = model.plot(rows)
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("visits", "orders")
    assert bar.get_ylabel() == "probability"
    cells, dots = axes.collections
    edges = cells.get_coordinates()
    middles = 0.5 * (edges[1:, 1:] + edges[:-1, :-1])
    np.testing.assert_allclose(middles / step, np.rint(middles / step), atol=1e-12)
    law = multivariate_normal(model.base.mean, model.base.covariance)
    shown = np.asarray(cells.get_array()).reshape(middles.shape[:2])
    for i, j in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        low, high = middles[i, j] - 0.5 * step, middles[i, j] + 0.5 * step
        assert shown[i, j] == pytest.approx(law.cdf(high, lower_limit=low), rel=1e-4)
    areas = dict(zip(map(tuple, dots.get_offsets() / step), dots.get_sizes(), strict=True))
    assert areas[4.0, 2.0] == pytest.approx(4.0 * areas[2.0, 1.0])
    whole = model.plot(title="counts")  # without rows: almost all the probability
    assert np.asarray(whole.axes[0].collections[0].get_array()).sum() > 0.99


def test_contours_of_two_discrete_columns():
    """Where contours are asked for, or where there are too many values for cells."""
    pytest.importorskip("matplotlib")
    model = two_counts()
    assert len(model.plot(levels=(0.5,), by_draws=False).axes) == 1
    assert has_cells(model)
    fine = DiscreteDensity(model.inner, {0: 0.01, 1: 0.01})
    assert not has_cells(fine)
    with pytest.raises(ValueError, match="too many cells; expected at most 2,500"):
        plot.probability_cells(fine)
    with pytest.raises(ValueError, match="two discrete columns"):
        plot.probability_cells(model.dequantized)
    with pytest.raises(ValueError, match="cells need two"):
        plot.probability_cells(model.marginal(0))


def test_regions_of_discrete_columns():
    """Bars and cells of the region are those that `contains` names."""
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_hex

    model = two_counts()
    counts = model.marginal(0)
    region = counts.highest_density_region(0.7)
    bars = region.plot().axes[0].patches
    middles = np.array([bar.get_x() + 0.5 * bar.get_width() for bar in bars])
    is_marked = [to_hex(bar.get_facecolor()) == plot.VERMILION.lower() for bar in bars]
    assert is_marked == region.contains(np.rint(middles)[:, None]).tolist()
    assert 0 < sum(is_marked) < len(bars)
    region = model.highest_density_region(0.7)
    cells = region.plot().axes[0].collections[0]
    shown = np.asarray(cells.get_array())
    assert shown.sum() == pytest.approx(region.volume, abs=4 * region.volume.standard_error)
    half = DiscreteDensity(model.inner, {0: 1.0})  # the other column is continuous
    assert half.highest_density_region(0.7).plot().axes[0].collections[0].get_array().sum() > 100
