"""Toy data against facts that follow from their definitions."""

import numpy as np
import pytest
from scipy import stats

from tgpfast.paper import datasets
from tgpfast.paper.datasets import GENERATORS

N = 20_000
RISK = 1e-6  # of a false alarm, from which every bound below is derived


def assert_follows(values, cdf):
    """The empirical CDF is within the Dvoretzky-Kiefer-Wolfowitz bound of the true one."""
    ordered = np.sort(values)
    n = len(ordered)
    rank = np.arange(n + 1) / n
    exact = cdf(ordered)
    gap = max((rank[1:] - exact).max(), (exact - rank[:-1]).max())
    assert gap <= np.sqrt(np.log(2.0 / RISK) / (2.0 * n))


def assert_share(found, n, share):
    """A binomial count lies between its quantiles."""
    low, high = stats.binom.ppf([RISK / 2, 1 - RISK / 2], n, share)
    assert low <= found <= high


def from_ring(radius, noise):
    """CDF of the distance from the centre, with noise on both coordinates: Rice's law."""
    return stats.rice(radius / noise, scale=noise).cdf


# -- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("n", [1, 2, 501, np.int64(7)])
def test_shape_and_kind(name, n):
    """(n, 2) finite doubles, C-ordered and writable, for any kind of integer."""
    x = GENERATORS[name](n)
    assert x.shape == (n, 2)
    assert x.dtype == np.float64
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert np.isfinite(x).all()


@pytest.mark.parametrize("name", GENERATORS)
def test_seeds(name):
    """A seed repeats itself, differs from another, and leaves numpy's global state alone."""
    make = GENERATORS[name]
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert np.array_equal(make(100, seed=5), make(100, seed=5))
    assert np.array_equal(make(100), make(100, seed=0))
    assert not np.isclose(make(100, seed=5), make(100, seed=6)).all(axis=1).any()
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("name", GENERATORS)
def test_rows_are_in_random_order(name):
    """The first half has the distribution of the second: no component comes first."""
    x = GENERATORS[name](4_000)
    for column in x.T:
        assert stats.ks_2samp(column[:2_000], column[2_000:]).pvalue > RISK


def test_the_list_is_complete():
    """Every public function is in GENERATORS, under its name."""
    public = [
        name for name, value in vars(datasets).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == datasets.__name__
    ]  # fmt: skip
    assert sorted(GENERATORS) == sorted(set(public) - {"GENERATORS"})
    assert all(f.__name__ == name and f.__doc__ for name, f in GENERATORS.items())
    assert len(GENERATORS) == 10


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("n", [0, -1, 2.0, "3", True, None, np.array([1.5])])
def test_refuses_other_counts(name, n):
    with pytest.raises(ValueError, match="expected an integer of at least 1"):
        GENERATORS[name](n)


@pytest.mark.parametrize("name", GENERATORS)
def test_seeds_may_be_none_or_a_generator(name):
    """None gives new rows at every call; a Generator moves on, and repeats from the same state."""
    make = GENERATORS[name]
    assert not np.array_equal(make(20, seed=None), make(20, seed=None))
    first, second = (np.random.default_rng(8) for _ in range(2))
    once = make(20, seed=first)
    assert np.array_equal(once, make(20, seed=second))
    assert not np.array_equal(once, make(20, seed=first))


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("seed", [-1, 0.5, "a", True])
def test_refuses_other_seeds(name, seed):
    with pytest.raises(ValueError, match=r"seed=.*: expected an integer of at least 0"):
        GENERATORS[name](5, seed=seed)


@pytest.mark.parametrize(
    "name", ["two_moons", "banana", "rings", "xo", "smile", "spirals", "eight_gaussians"]
)
@pytest.mark.parametrize("noise", [-0.1, np.nan, np.inf, "0.1", None, True, [0.1, 0.2]])
def test_refuses_other_noise(name, noise):
    with pytest.raises(ValueError, match=r"noise=.*: expected a finite number of at least 0"):
        GENERATORS[name](5, noise=noise)
    assert GENERATORS[name](5, noise=0).shape == (5, 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("banana", {"curvature": np.nan}, "curvature=nan: expected a finite number$"),
        ("rings", {"radii": ()}, r"radii=\(\): expected at least one positive number"),
        ("rings", {"radii": "12"}, "radii='12': expected at least one positive number"),
        ("rings", {"radii": 1.0}, "radii=1.0: expected at least one positive number"),
        ("rings", {"radii": (1, 0)}, r"radii\[1\]=0: expected a finite number above 0"),
        ("rings", {"centres": [(0, 0)]}, r"centres must have shape \(3, 2\)"),
        ("rings", {"centres": [(0, 0), (1, 1), (1, np.nan)]}, "centres must be finite"),
        ("rings", {"centres": "abc"}, "centres must be real numbers"),
        ("heavy_tails", {"degrees": 0}, "degrees=0: expected a finite number above 0"),
        ("heavy_tails", {"dimension": 0}, "dimension=0: expected an integer of at least 1"),
        ("pinwheel", {"arms": 0}, "arms=0: expected an integer"),
        ("pinwheel", {"radial": -1}, "radial=-1: expected a finite number of at least 0"),
        ("pinwheel", {"tangential": -1}, "tangential=-1: expected"),
        ("pinwheel", {"rate": np.inf}, "rate=inf: expected a finite number$"),
        ("checkerboard", {"squares": 2.5}, "squares=2.5: expected an integer"),
        ("spirals", {"arms": 0}, "arms=0: expected"),
        ("spirals", {"turns": 0}, "turns=0: expected a finite number above 0"),
        ("eight_gaussians", {"radius": -1}, "radius=-1: expected a finite number above 0"),
    ],
)
def test_refuses_other_options(name, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        GENERATORS[name](5, **options)


# -- each of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7])
def test_two_moons_are_drawn_in_a_fixed_order(seed):
    """Angles, then moons, then noise: the rows that the demo has always shown."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, np.pi, 50)
    lower = rng.integers(0, 2, 50).astype(bool)
    x = np.where(lower, 1.0 - np.cos(t), np.cos(t))
    y = np.where(lower, 0.5 - np.sin(t), np.sin(t))
    expected = np.column_stack([x, y]) + 0.08 * rng.standard_normal((50, 2))
    assert np.array_equal(datasets.two_moons(50, seed=seed), expected)


def test_two_moons():
    """Half each; distances from an arc's centre follow Rice's law, angles are uniform."""
    noise = 0.02  # the arcs are 0.4 apart, 20 times that: every row is told to its arc
    x = datasets.two_moons(N, noise=noise)
    upper = np.abs(np.hypot(*x.T) - 1.0)
    lower = np.abs(np.hypot(*(x - [1.0, 0.5]).T) - 1.0)
    # a circle is met again by the other arc, below it or above it
    is_upper = (upper < 0.15) & ((lower >= 0.15) | (x[:, 1] > 0.25))
    assert_share(is_upper.sum(), N, 0.5)
    for part, centre in ((is_upper, [0.0, 0.0]), (~is_upper, [1.0, 0.5])):
        assert_follows(np.hypot(*(x[part] - centre).T), from_ring(1.0, noise))
    clean = datasets.two_moons(N, noise=0)
    is_upper = np.abs(np.hypot(*clean.T) - 1.0) < 1e-14
    for part, centre, sign in ((is_upper, [0.0, 0.0], 1.0), (~is_upper, [1.0, 0.5], -1.0)):
        along, height = ((clean[part] - centre) * sign).T
        assert (height >= -1e-15).all()
        assert_follows(np.arctan2(height, along), stats.uniform(0.0, np.pi).cdf)


@pytest.mark.parametrize("curvature", [1.0, -0.5, 0.0])
def test_banana(curvature):
    """x is standard normal; what is left of y beside the parabola is the noise."""
    x, y = datasets.banana(N, curvature=curvature, noise=0.3).T
    assert_follows(x, stats.norm.cdf)
    rest = y - curvature * (x**2 - 1.0)
    assert_follows(rest, stats.norm(scale=0.3).cdf)
    assert abs(np.corrcoef(x, rest)[0, 1]) < -stats.norm.ppf(RISK / 2) / np.sqrt(N)


def test_rings_about_the_origin():
    """Distances are a mixture of Rice's laws with shares in proportion to the radii."""
    radii, noise = (1.0, 2.0, 4.0), 0.1
    x = datasets.rings(N, radii=radii, noise=noise)

    def cdf(r):
        return sum(a * from_ring(a, noise)(r) for a in radii) / sum(radii)

    distance = np.hypot(*x.T)
    assert_follows(distance, cdf)
    assert_follows(np.arctan2(*x.T), stats.uniform(-np.pi, 2 * np.pi).cdf)
    # the bound would show shares that ignore the radii
    even = [from_ring(a, noise)(np.sort(distance)) for a in radii]
    assert np.abs(np.mean(even, axis=0) - np.arange(N) / N).max() > 0.1


def test_rings_apart():
    """Each about its own centre, with any kind of sequence."""
    centres = np.array([[-5.0, 0.0], [5.0, 1.0]])
    x = datasets.rings(N, radii=np.array([1.0, 3.0]), centres=centres, noise=0.1)
    left = x[:, 0] < 0
    assert_share(left.sum(), N, 0.25)
    assert_follows(np.hypot(*(x[left] - centres[0]).T), from_ring(1.0, 0.1))
    assert_follows(np.hypot(*(x[~left] - centres[1]).T), from_ring(3.0, 0.1))


@pytest.mark.parametrize("degrees", [1.0, 3.0, 30.0])
@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_heavy_tails(degrees, dimension):
    """Every column is Student's t, its tails too; squared lengths over d follow F(d, degrees)."""
    x = datasets.heavy_tails(N, degrees=degrees, dimension=dimension)
    assert x.shape == (N, dimension)
    law = stats.t(degrees)
    for column in x.T:
        assert_follows(column, law.cdf)
    tail = law.ppf(0.999)
    assert_share((x[:, 0] > tail).sum(), N, 0.001)
    assert_follows((x**2).mean(axis=1), stats.f(dimension, degrees).cdf)


def test_the_heaviest_tails_are_finite():
    """A chi-squared that rounds to 0 gives a large row, not an infinite one."""
    assert np.isfinite(datasets.heavy_tails(2_000, degrees=0.01)).all()
    assert (np.random.default_rng(0).chisquare(0.01, 2_000) == 0.0).any()


def test_xo():
    """Half each; O is a ring about (1.5, 0); X has two strokes across (-1.5, 0), alike."""
    noise = 0.05  # the letters are a unit apart: 10 times that from the middle
    x = datasets.xo(N, noise=noise)
    o = x[:, 0] > 0.0
    assert_share(o.sum(), N, 0.5)
    assert_follows(np.hypot(*(x[o] - [1.5, 0.0]).T), from_ring(1.0, noise))
    across = x[~o] + [1.5, 0.0]
    rising, falling = (across @ [1.0, -1.0]) / np.sqrt(2), (across @ [1.0, 1.0]) / np.sqrt(2)
    far = np.abs(across).max(axis=1) > 0.5  # of the crossing, where the strokes are apart
    on_rising = np.abs(rising[far]) < np.abs(falling[far])
    assert_share(on_rising.sum(), far.sum(), 0.5)
    assert_follows(rising[far][on_rising], stats.norm(scale=noise).cdf)
    assert_follows(falling[far][~on_rising], stats.norm(scale=noise).cdf)
    clean = datasets.xo(N, noise=0)
    stroke = clean[clean[:, 0] < 0.0] + [1.5, 0.0]
    assert np.abs(np.abs(stroke[:, 0]) - np.abs(stroke[:, 1])).max() < 1e-15
    assert_follows(stroke[:, 0], stats.uniform(-1.0, 2.0).cdf)


def test_smile():
    """Face, eyes and mouth, with their shares and places."""
    noise = 0.03
    x = datasets.smile(N, noise=noise)
    distance = np.hypot(*x.T)
    face = distance > 1.6  # mouth at 1.1, eyes at most at 1.24: 12 times the noise away
    mouth = ~face & (x[:, 1] < 0.0)
    eyes = ~face & ~mouth
    left = eyes & (x[:, 0] < 0.0)
    for part, share in ((face, 0.5), (mouth, 0.25), (left, 0.125), (eyes & ~left, 0.125)):
        assert_share(part.sum(), N, share)
    assert_follows(distance[face], from_ring(2.0, noise))
    assert_follows(distance[mouth], from_ring(1.1, noise))
    clean = datasets.smile(N, noise=0)
    radius = np.hypot(*clean.T)
    arc = clean[np.abs(radius - 1.1) < 1e-14]
    degrees = np.degrees(np.arctan2(*arc.T[::-1])) % 360
    degrees = degrees[degrees > 180]  # eyes reach this radius as well
    assert_follows(degrees, stats.uniform(210, 120).cdf)
    discs = clean[(radius < 1.3) & (clean[:, 1] > 0.0)]
    from_eye = np.hypot(np.abs(discs[:, 0]) - 0.7, discs[:, 1] - 0.7)
    assert_follows(from_eye, lambda r: np.minimum(r / 0.25, 1.0) ** 2)


def test_pinwheel():
    """Without width every row is at radius a, and its angle less rate e^a is that of an arm."""
    arms, rate = 7, 0.4
    x = datasets.pinwheel(N, arms=arms, rate=rate, radial=0.1, tangential=0)
    a = np.hypot(*x.T)  # positive: 0 is ten standard deviations away
    assert_follows(a, stats.norm(1.0, 0.1).cdf)
    turns = (np.arctan2(x[:, 1], x[:, 0]) - rate * np.exp(a)) / (2 * np.pi) * arms
    assert np.abs(turns - np.round(turns)).max() < 1e-12
    for count in np.bincount(np.round(turns).astype(int) % arms, minlength=arms):
        assert_share(count, N, 1 / arms)
    straight = datasets.pinwheel(N, arms=1, rate=0.0, radial=0.2, tangential=0.5)
    assert_follows(straight[:, 0], stats.norm(1.0, 0.2).cdf)
    assert_follows(straight[:, 1], stats.norm(0.0, 0.5).cdf)


@pytest.mark.parametrize("squares", [1, 2, 4, 5])
def test_checkerboard(squares):
    """All dark squares are equally full and uniform, all light ones empty."""
    x = datasets.checkerboard(N, squares=squares)
    moved = x + 0.5 * squares
    cell = np.floor(moved).astype(int)
    assert (moved >= 0).all()
    assert (moved <= squares).all()
    column, row = np.minimum(cell, squares - 1).T
    assert ((column + row) % 2 == 0).all()
    numbers = np.unique(column * squares + row, return_counts=True)[1]
    dark = (squares**2 + 1) // 2
    assert len(numbers) == dark
    for count in numbers:
        assert_share(count, N, 1 / dark)
    for inside in (moved - np.floor(moved)).T:
        assert_follows(inside, stats.uniform.cdf)


@pytest.mark.parametrize(("arms", "turns"), [(2, 1.5), (3, 0.5)])
def test_spirals(arms, turns):
    """Without noise the angle is that of the radius and of an arm; squared radii are uniform."""
    x = datasets.spirals(N, arms=arms, turns=turns, noise=0)
    radius = np.hypot(*x.T)
    assert_follows(radius**2, stats.uniform(0.0, 9.0).cdf)
    rest = (np.arctan2(x[:, 1], x[:, 0]) / (2 * np.pi) - turns * radius / 3.0) * arms
    # an angle near the origin is as exact as its coordinates
    assert np.abs(rest - np.round(rest)).max() < 1e-12
    for count in np.bincount(np.round(rest).astype(int) % arms, minlength=arms):
        assert_share(count, N, 1 / arms)
    noisy = datasets.spirals(N, arms=arms, turns=turns, noise=0.1)
    assert_follows((noisy - x).ravel(), stats.norm(scale=0.1).cdf)


def test_eight_gaussians():
    """Rows around the nearest of eight places, equally often, with the stated spread."""
    noise = 0.1
    x = datasets.eight_gaussians(N, radius=3.0, noise=noise)
    angle = np.pi / 4 * np.arange(8)
    places = 3.0 * np.column_stack([np.cos(angle), np.sin(angle)])
    gap = x[:, None] - places
    nearest = np.argmin((gap**2).sum(axis=2), axis=1)
    for count in np.bincount(nearest, minlength=8):
        assert_share(count, N, 1 / 8)
    # places are 2.3 apart, 11 standard deviations from the border
    assert_follows(gap[np.arange(N), nearest].ravel(), stats.norm(scale=noise).cdf)
