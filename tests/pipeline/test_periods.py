"""Periods in more than three columns: whole frequencies on a base of von Mises distributions."""

import numpy as np
import pytest
from scipy import integrate, stats

import tgpfast as tgp

PERIOD = 24.0
OPTIONS = {"method": "map", "lam": 1.0, "gamma": 1.0, "n_features": 100, "base": "empirical"}


def clock_rows(n, seed):
    """An hour around midnight, a column that depends on it, and two that do not."""
    rng = np.random.default_rng(seed)
    angle = rng.vonmises(0.0, 1.0, n)
    pair = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.7], [0.7, 1.0]], n)
    hour = angle / (2 * np.pi) * PERIOD % PERIOD
    return np.c_[pair[:, 0], hour, 1.5 * np.cos(angle) + 0.4 * rng.normal(size=n), pair[:, 1]]


@pytest.fixture(scope="module")
def model():
    return tgp.fit(clock_rows(1000, 0), period={1: PERIOD}, **OPTIONS)


@pytest.mark.slow
def test_values_and_slopes_agree_at_both_ends_of_the_period(model):
    start, end = clock_rows(20, 1), clock_rows(20, 1)
    start[:, 1], end[:, 1] = 0.0, PERIOD
    np.testing.assert_allclose(model.log_density(start), model.log_density(end), atol=1e-11)
    slopes = [model.grad_log_density(rows) for rows in (start, end)]
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-11)
    assert np.abs(slopes[0][:, 1]).max() > 0.01  # not by a zero of the slope
    # the same features without whole frequencies do not agree
    plain = tgp.fit(clock_rows(1000, 0), features="random", **OPTIONS)
    assert np.abs(plain.log_density(start) - plain.log_density(end)).max() > 0.1


def test_the_mass_is_one_by_independent_importance_sampling(model):
    rng, x = np.random.default_rng(2), clock_rows(1000, 0)
    rest = [0, 2, 3]
    law = stats.multivariate_normal(x[:, rest].mean(axis=0), 1.7 * np.cov(x[:, rest].T))
    rows = np.insert(law.rvs(40_000, random_state=rng), 1, rng.uniform(0, PERIOD, 40_000), axis=1)
    ratios = np.exp(model.log_density(rows) - law.logpdf(rows[:, rest])) * PERIOD
    error = ratios.std() / np.sqrt(len(ratios))
    assert error < 0.02
    assert ratios.mean() == pytest.approx(1.0, abs=4 * error)


def test_the_dependence_of_an_open_column_on_the_hour_is_learned(model):
    held = clock_rows(2000, 3)
    product = model.base.log_density(model.scaling.apply(held)) - model.scaling.log_volume
    gain = model.log_density(held) - product
    assert gain.mean() > 0.4
    assert gain.mean() > 10 * gain.std() / np.sqrt(len(gain))


def test_samples_lie_in_the_first_period_and_have_its_shares(model):
    hours = model.sample(4000, seed=0)[:, 1]
    assert hours.min() >= 0.0
    assert hours.max() < PERIOD
    night = model.probability({1: 21.0}, {1: 27.0})
    share = np.mean((hours > 21.0) | (hours < 3.0))
    assert night == pytest.approx(share, abs=5 * np.sqrt(0.25 / 4000) + 5 * night.standard_error)
    # chains may leave the period, and are moved back
    assert 0.0 <= model.sample(300, seed=0, method="mala")[:, 1].max() < PERIOD


@pytest.mark.slow
def test_rows_of_any_period_count(model):
    x = clock_rows(1000, 0)
    x[:, 1] += PERIOD * np.random.default_rng(4).integers(0, 300, 1000)
    many, held = tgp.fit(x, period={1: PERIOD}, **OPTIONS), clock_rows(1000, 3)
    assert many.log_density(held).mean() == pytest.approx(
        model.log_density(held).mean(), abs=0.05
    )
    far = held + np.array([0.0, 10 * PERIOD, 0.0, 0.0])
    np.testing.assert_allclose(many.log_density(far), many.log_density(held), atol=1e-9)
    both = [model.update(rows).log_density(held) for rows in (held, far)]
    np.testing.assert_allclose(both[0], both[1], atol=1e-9)


def test_conditionals_have_mass_one_around_the_clock(model):
    given = model.conditional({0: 0.3, 2: 1.0, 3: 0.2})

    def density(v):
        return float(np.exp(given.log_density([[v]])[0]))

    assert integrate.quad(density, 0.0, PERIOD, limit=200)[0] == pytest.approx(1.0, abs=1e-7)
    part = integrate.quad(density, 0.0, 2.0)[0] + integrate.quad(density, 22.0, PERIOD)[0]
    assert given.probability(22.0, 26.0) == pytest.approx(part, abs=1e-7)
    assert given.cdf([2.0])[0] == pytest.approx(integrate.quad(density, 0.0, 2.0)[0], abs=1e-6)
    two = model.conditional({0: 0.3, 3: 0.2})
    hours, heights = np.arange(0.0, PERIOD, 0.1), np.arange(-6.0, 6.0, 0.04)
    grid = np.stack(np.meshgrid(hours, heights), axis=-1).reshape(-1, 2)
    assert np.exp(two.log_density(grid)).sum() * 0.004 == pytest.approx(1.0, abs=1e-5)
    assert two.sample(500, seed=0)[:, 0].min() >= 0.0


def test_files_keep_the_density_and_its_samples(model, tmp_path):
    model.save(tmp_path / "clock.npz")
    again, held = tgp.load(tmp_path / "clock.npz"), clock_rows(50, 3)
    np.testing.assert_array_equal(again.log_density(held), model.log_density(held))
    np.testing.assert_array_equal(again.sample(50, seed=1), model.sample(50, seed=1))
    assert again.settings["period"] == {"1": PERIOD}


@pytest.mark.slow
def test_open_settings_are_chosen_with_periods():
    chosen = tgp.fit(clock_rows(600, 0), period={1: PERIOD}, effort="fast")
    held = clock_rows(1000, 3)
    # the same rows as a von Mises distribution times a Gaussian, by scipy
    x, rest = clock_rows(600, 0), [0, 2, 3]
    product = stats.multivariate_normal(x[:, rest].mean(axis=0), np.cov(x[:, rest].T)).logpdf(
        held[:, rest]
    )
    product += stats.vonmises(1.0).logpdf(2 * np.pi * held[:, 1] / PERIOD)
    product += np.log(2 * np.pi / PERIOD)
    assert chosen.log_density(held).mean() > product.mean() + 0.4
    angles = np.random.default_rng(5).vonmises([0, 1, 2, 3], [1, 2, 3, 0.5], (300, 4))
    torus = tgp.fit(angles, period=dict.fromkeys(range(4), 2 * np.pi), effort="fast")
    assert np.isfinite(torus.log_density(angles + 2 * np.pi)).all()


def test_what_has_no_period_is_refused_by_name():
    x = clock_rows(60, 0)
    for options, message in (
        ({"method": "ncfd", "lam": 1.0}, 'method="ncfd" takes no period'),
        ({"method": "fvpd", "lam": 1.0}, 'method="fvpd" has no period'),
        ({"base": "scaled", "method": "fd", "lam": 1.0}, 'base="scaled"'),
        ({"base": tgp.GaussianBase(np.zeros(4), np.eye(4))}, "GaussianBase does not have"),
        ({"features": "lattice"}, "one to 3 columns"),
    ):
        with pytest.raises(ValueError, match=message):
            tgp.fit(x, period={1: PERIOD}, **options)
    everywhere = dict.fromkeys(range(7), PERIOD)
    with pytest.raises(ValueError, match="all have one"):
        tgp.fit(np.c_[x, x[:, :3] ** 2], period=everywhere, base="mixture", method="map", lam=1.0)


def test_frequencies_are_whole_in_periodic_columns():
    periods = np.array([np.inf, 2.0, 5.0])
    for kernel, interactions in (("gaussian", None), ("matern32", 1), ("matern12", 2)):
        drawn = tgp.Features.draw(300, 0.7, np.eye(3), 0, kernel, interactions, periods=periods)
        turns = drawn.frequencies[:, 1:] / 0.7 * periods[1:] / (2 * np.pi)
        np.testing.assert_allclose(turns, np.round(turns), atol=1e-9)
        assert drawn.frequencies.any(axis=1).all()
        plain = tgp.Features.draw(300, 0.7, np.eye(3), 0, kernel, interactions)
        kept = plain.frequencies[:, 0] != 0.0
        np.testing.assert_array_equal(drawn.frequencies[kept, 0], plain.frequencies[kept, 0])
    wide = tgp.Features.draw(50, 100.0, np.eye(2), 0, periods=[2.0, 2.0])
    assert wide.frequencies.any(axis=1).all()


def test_rows_of_many_periods_take_no_pass_of_their_own():
    rng, calls = np.random.default_rng(0), []
    x = np.column_stack([rng.standard_normal((600, 3)), rng.uniform(0.0, 48.0, 600)])

    def source():
        calls.append(None)
        return iter(np.array_split(x, 3))

    model = tgp.fit(
        source, period={3: 24.0}, method="map", lam=1.0, gamma=1.0, n_features=20,
        base="empirical", frequency_covariance="identity",
    )  # fmt: skip
    assert model.settings["n_passes"] == len(calls) == 2
    assert 0.0 <= np.asarray(model.sample(100, seed=0))[:, 3].max() <= 24.0


def rush_rows(n, seed):
    """Three rush hours, one at midnight, a column that depends on the hour, and three others."""
    rng = np.random.default_rng(seed)
    hour = rng.normal(np.array([8.0, 13.0, 24.0])[rng.choice(3, n)], 1.2) % 24.0
    angle = 2.0 * np.pi * hour / 24.0
    height = 2.0 * np.cos(angle) + 0.3 * rng.normal(size=n)
    return np.c_[rng.normal(size=(n, 2)), hour, height, np.exp(0.5 * rng.normal(size=n))]


def rush_log_density(x):
    turns = x[:, 2] - np.array([8.0, 13.0, 24.0])[:, None] + 24.0 * np.arange(-2, 3)[:, None, None]
    density = stats.norm(0.0, 1.2).pdf(turns).sum(axis=0).mean(axis=0)
    density = density * stats.norm(2.0 * np.cos(np.pi * x[:, 2] / 12.0), 0.3).pdf(x[:, 3])
    density = density * stats.norm.pdf(x[:, :2]).prod(axis=1)
    return np.log(density * stats.lognorm(0.5).pdf(x[:, 4]))


@pytest.fixture(scope="module")
def rush():
    return tgp.fit(rush_rows(1500, 0), period={2: 24.0})


@pytest.mark.slow
def test_hours_with_several_peaks_are_followed(rush):
    """Within 0.25 nats per row of the truth, and the hour within a KS distance of 0.05."""
    held = rush_rows(4000, 1)
    loss = rush_log_density(held) - rush.log_density(held)
    assert loss.mean() < 0.25
    hours = np.arange(0.0, 24.0, 0.02)
    density = np.exp(rush.marginal([2]).log_density(hours[:, None]))
    assert density.sum() * 0.02 == pytest.approx(1.0, abs=2e-3)
    turns = hours - np.array([8.0, 13.0, 24.0])[:, None] + 24.0 * np.arange(-2, 3)[:, None, None]
    truth = stats.norm(0.0, 1.2).pdf(turns).sum(axis=0).mean(axis=0)
    assert np.abs(np.cumsum(density - truth)).max() * 0.02 < 0.05
    # negative control: an hour that is learned by one peak
    angles = np.exp(2j * np.pi * rush_rows(1500, 0)[:, 2] / 24.0)
    one = stats.vonmises(1.2, loc=np.angle(angles.mean())).pdf(2.0 * np.pi * hours / 24.0)
    assert np.abs(np.cumsum(one * 2.0 * np.pi / 24.0 - truth)).max() * 0.02 > 0.08


@pytest.mark.slow
def test_a_wrapped_mixture_answers_questions(rush, tmp_path):
    held = rush_rows(60, 2)
    start, end = held.copy(), held.copy()
    start[:, 2], end[:, 2] = 0.0, 24.0
    np.testing.assert_allclose(rush.log_density(start), rush.log_density(end), atol=1e-9)
    slopes = [rush.grad_log_density(rows)[:, 2] for rows in (start, end)]
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-9)
    assert np.abs(slopes[0]).max() > 0.01
    rush.save(tmp_path / "rush.npz")
    again = tgp.load(tmp_path / "rush.npz")
    np.testing.assert_array_equal(again.log_density(held), rush.log_density(held))
    np.testing.assert_array_equal(again.sample(50, seed=1), rush.sample(50, seed=1))
    given = rush.conditional({2: 24.5, 0: 0.0})  # half past midnight, in the next period
    hour = rush.marginal([0, 2])
    rows = held.copy()
    rows[:, 2], rows[:, 0] = 0.5, 0.0
    expected = rush.log_density(rows) - hour.log_density([[0.0, 0.5]])
    np.testing.assert_allclose(given.log_density(held[:, [1, 3, 4]]), expected, atol=0.01)
    law = rush.conditional({0: 0.1, 1: 0.2, 3: 1.8, 4: 1.0})
    levels = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(law.cdf(law.quantile(levels)), levels, atol=1e-6)
    assert law.probability(22.0, 26.0) > 0.8  # high at midnight
    draws = rush.sample(4000, seed=0)
    night = rush.probability({2: 22.0}, {2: 26.0})
    share = np.mean((draws[:, 2] > 22.0) | (draws[:, 2] < 2.0))
    assert night == pytest.approx(share, abs=5 * np.sqrt(0.25 / 4000) + 5 * night.standard_error)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["map", "fd"])
def test_a_tilt_of_a_wrapped_mixture_has_mass_one(method):
    tilted = tgp.fit(
        rush_rows(1500, 0), period={2: 24.0}, base="mixture", method=method, lam=3.0, gamma=1.5,
        n_features=80,
    )  # fmt: skip
    assert type(tilted.base).__name__ == "BoundedMixtureBase"
    rng, n = np.random.default_rng(2), 40_000
    rows = rush_rows(n, 3)
    rows[:, 2] = rng.uniform(0.0, 24.0, n)
    rows[:, :2] *= 1.3
    rows[:, 3] = 1.8 * rng.standard_normal(n)
    log_density = -np.log(24.0) + stats.norm(0.0, 1.3).logpdf(rows[:, :2]).sum(axis=1)
    log_density += stats.norm(0.0, 1.8).logpdf(rows[:, 3])
    rows[:, 4] = np.exp(0.7 * rng.normal(size=n))
    log_density += stats.lognorm(0.7).logpdf(rows[:, 4])
    ratios = np.exp(tilted.log_density(rows) - log_density)
    error = ratios.std() / np.sqrt(n)
    assert error < 0.05
    assert ratios.mean() == pytest.approx(1.0, abs=4 * error)


@pytest.mark.slow
def test_clusters_of_four_angles_are_found():
    """Six clusters on a torus, by the sum of their wrapped Gaussians."""
    centers = np.random.default_rng(7).uniform(0.0, 2.0 * np.pi, (6, 4))

    def draw(n, seed):
        rng = np.random.default_rng(seed)
        return (centers[rng.choice(6, n)] + 0.35 * rng.normal(size=(n, 4))) % (2.0 * np.pi)

    held = draw(2000, 1)
    gaps = (held[:, None] - centers + np.pi) % (2.0 * np.pi) - np.pi
    truth = np.log(stats.norm(0.0, 0.35).pdf(gaps).prod(axis=2).mean(axis=1))
    model = tgp.fit(draw(500, 0), period=dict.fromkeys(range(4), 2.0 * np.pi))
    assert (truth - model.log_density(held)).mean() < 0.25  # products of four columns: 0.55
    turned = held + 2.0 * np.pi * np.array([1.0, 0.0, -2.0, 3.0])
    np.testing.assert_allclose(model.log_density(turned), model.log_density(held), atol=1e-9)
    uniform = np.random.default_rng(2).uniform(0.0, 2.0 * np.pi, (100_000, 4))
    masses = np.exp(model.log_density(uniform)) * (2.0 * np.pi) ** 4
    assert masses.mean() == pytest.approx(1.0, abs=5.0 * masses.std() / np.sqrt(len(masses)))
