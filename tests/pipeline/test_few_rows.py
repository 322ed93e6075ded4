"""Default fits of few different rows: a tilt must be shown to be better than its base."""

import numpy as np
import pytest

import tgpfast as tgp

pytestmark = pytest.mark.filterwarnings("ignore::tgpfast.FallbackWarning")  # of few rows

LEVELS = np.exp(np.linspace(0.0, 3.0, 15))


def skewed_levels(n, seed=1):
    """Rows at 15 places, dense on the left: a Gaussian is far from them."""
    return np.random.default_rng(seed).choice(LEVELS, (n, 1))


@pytest.mark.parametrize("d", [1, 2, 4])
def test_fewer_than_twenty_rows_are_given_their_base_alone(d):
    x = np.random.default_rng(3).exponential(size=(19, d))
    model = tgp.fit(x)
    assert model.method == "base"
    assert model.settings["lam"] is None
    base = np.cov(x.T, bias=True).reshape(d, d)  # one Gaussian with the moments of the rows
    peak = -0.5 * (d * np.log(2.0 * np.pi) + np.linalg.slogdet(base)[1])
    if d > 3:  # less the weight of its guard, a quarter of a row, which is five times as wide
        peak += np.log1p(0.25 / 19.25 * (5.0**-d - 1.0))
    assert model.log_density(x.mean(axis=0)[None])[0] == pytest.approx(peak, abs=1e-9)


def test_a_guarded_base_learns_from_new_rows():
    x = np.random.default_rng(3).exponential(size=(49, 4))
    model = tgp.fit(x[:19])
    assert model.base.has_guard
    after = model.update(x[19:])
    want = model.scaling.apply(x).mean(axis=0)
    np.testing.assert_allclose(after.base.means, [want, want])
    assert after.base.weights[1] == pytest.approx(0.25 / 49.25)


@pytest.mark.parametrize("given", [{"method": "fd"}, {"lam": 10.0}])
def test_a_method_or_lambda_that_is_given_is_not_questioned(given):
    x = np.random.default_rng(3).exponential(size=(15, 2))
    assert tgp.fit(x, **given).method != "base"


@pytest.mark.slow
@pytest.mark.parametrize(("n", "is_tilted"), [(19, False), (1_000, True)])
@pytest.mark.filterwarnings("ignore::tgpfast.DataWarning")
def test_copies_of_few_rows_show_whether_a_tilt_is_better(n, is_tilted):
    """On rows of another seed the tilt that is kept gains 0.2 nats."""
    model = tgp.fit(skewed_levels(n))
    assert (model.method != "base") == is_tilted
    fresh = skewed_levels(10_000, seed=2)
    base = model.base.log_density(model.scaling.apply(fresh)) + model.scaling.log_slope(fresh)
    gain = (model.log_density(fresh) - base).mean()
    assert gain > 0.15 if is_tilted else gain == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.filterwarnings("ignore::tgpfast.DataWarning")
def test_a_rounded_gaussian_is_not_worse_than_its_base(seed):
    """A fixed tilt of 20 such rows lost up to 0.05 nats of each fresh row."""
    rng = np.random.default_rng([seed, 20])
    model = tgp.fit(rng.standard_normal((20, 1)).round(1))
    fresh = rng.standard_normal((10_000, 1))
    base = model.base.log_density(model.scaling.apply(fresh)) + model.scaling.log_slope(fresh)
    gains = model.log_density(fresh) - base
    assert gains.mean() >= -gains.std() / 100.0


def test_a_tilt_of_twenty_rows_is_smooth():
    """Rows of a sawtooth: held-out ones of 20 do not show where a rough tilt leaves no mass; one
    of lambda 0.2 lost 1.2 nats of each fresh row, and said that it had gained 0.8."""

    def sawtooth(rng, n):
        return rng.integers(0, 4, (n, 1)) + np.sqrt(rng.uniform(size=(n, 1)))

    seed = [104, 20, 1, sum(map(ord, "sawtooth"))]
    model = tgp.fit(sawtooth(np.random.default_rng(seed), 20))
    fresh = sawtooth(np.random.default_rng(5), 10_000)
    base = model.base.log_density(model.scaling.apply(fresh)) + model.scaling.log_slope(fresh)
    assert (model.log_density(fresh) - base).mean() > -0.01
