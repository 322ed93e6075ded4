"""Discrete columns: probabilities, samples, conditionals and files against closed forms."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.data.jitter import Jitter, draw_noise
from tgpfast.density.columns.bin_masses import integrate_bins
from tgpfast.density.columns.discrete import DiscreteDensity

COUNTS = np.arange(0.0, 80.0)[:, None]


def fit_counts(law, n=2_000, **options):
    x = law.rvs(size=n, random_state=1)[:, None].astype(float)
    return tgp.fit(x, discrete=[0], **options)


@pytest.fixture(scope="module")
def mixed():
    """A count k of Poisson(3), and y normal around k / 2, in a frame."""
    rng = np.random.default_rng(0)
    k = rng.poisson(3.0, 3_000).astype(float)
    frame = pd.DataFrame({"k": k, "y": rng.normal(0.5 * k, 1.0)})
    return tgp.fit(frame, discrete=["k"], support={"k": (0, None)})


def true_log_density(rows):
    return stats.poisson(3.0).logpmf(rows[:, 0]) + stats.norm(0.5 * rows[:, 0]).logpdf(rows[:, 1])


# -- one column -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "support", "allowed"),
    [
        (stats.poisson(4.0), (0, None), 0.006),
        (stats.binom(10, 0.3), (0, 10), 0.012),
        (stats.binom(1, 0.3), (0, 1), 0.002),
        (stats.nbinom(3, 0.1), (0, None), 0.012),
    ],
)
def test_probabilities_of_counts(law, support, allowed):
    """They sum to one, and are close to the true ones; chi-square accepts the samples."""
    # the tilt of 2,000 rows of Poisson gains hardly more than the errors that it must exceed
    model = fit_counts(law, n=4_000, support={0: support})
    log_p, errors = model.log_density(COUNTS, return_error=True)
    p, true = np.exp(log_p), law.pmf(COUNTS[:, 0])
    assert errors.max() < 1e-7
    whole = np.exp(model.log_density(np.arange(0.0, 1_000.0)[:, None])).sum()
    assert whole == pytest.approx(1.0, abs=1e-6)
    assert model.probability().value == 1.0
    assert np.isneginf(model.log_density([[-1.0]])[0])
    there = true > 1e-12
    assert (true[there] * (np.log(true[there]) - log_p[there])).sum() < allowed  # divergence
    drawn = model.sample(5_000, seed=3)[:, 0]
    assert (drawn == np.rint(drawn)).all()
    assert drawn.min() >= 0
    often = 5_000 * p > 5
    expected = np.append(p[often], 1.0 - p[often].sum()) * 5_000
    seen = np.array([(drawn == k).sum() for k in COUNTS[often, 0]])
    seen = np.append(seen, 5_000 - seen.sum())
    kept = expected > 1e-6
    assert stats.chisquare(seen[kept], expected[kept] * seen[kept].sum() / expected[kept].sum()
                           ).pvalue > 1e-3  # fmt: skip
    # negative control: another law of the same mean is refused
    wrong = stats.geom(1.0 / (law.mean() + 1.0), loc=-1).pmf(COUNTS[often, 0]) * 5_000
    assert ((seen[:-1] - wrong) ** 2 / wrong).sum() > 100


def test_distribution_function_and_quantiles_of_counts():
    model = fit_counts(stats.poisson(4.0), support={0: (0, None)})
    p = np.exp(model.log_density(COUNTS))
    at = np.array([0.0, 2.0, 2.7, 3.0, 9.0])
    np.testing.assert_allclose(model.cdf(at), np.cumsum(p)[at.astype(int)], atol=1e-6)
    assert model.cdf([-0.5])[0] == 0.0
    assert model.probability([2.0], [3.5]).value == pytest.approx(p[2] + p[3], abs=1e-6)
    assert model.probability([2.1], [2.9]).value == 0.0
    levels = np.array([0.01, 0.3, 0.5, 0.99])
    found = model.quantile(levels)
    assert found.tolist() == [int(np.searchsorted(np.cumsum(p), q)) for q in levels]
    assert model.quantile(0.5) == model.median()[0] == found[2]
    assert model.expectation(lambda rows: rows[:, 0]).value == pytest.approx(
        (p * COUNTS[:, 0]).sum(), abs=0.01
    )


def test_entropy_and_regions_are_sums_over_values():
    model = fit_counts(stats.binom(10, 0.3), support={0: (0, 10)})
    p = np.exp(model.log_density(COUNTS[:11]))
    entropy = model.entropy()
    assert abs(entropy.value + (p * np.log(p)).sum()) < 4 * entropy.standard_error
    region = model.highest_density_region(0.8)
    order = np.argsort(-p)
    expected = order[: np.searchsorted(np.cumsum(p[order]), 0.8) + 1]
    inside = region.contains(COUNTS[:11])
    assert sorted(expected) == np.flatnonzero(inside).tolist()
    assert abs(region.probability - p[inside].sum()) < 4 * region.standard_error
    assert abs(region.volume - inside.sum()) < 4 * region.volume.standard_error
    assert model.mode().value[0, 0] == p.argmax()


def test_other_steps_and_values_off_the_grid():
    x = 0.25 * stats.poisson(6.0).rvs(1_000, random_state=0)[:, None]
    model = tgp.fit(x, discrete={0: 0.25}, support={-1: (0, None)})  # the last column
    assert model.settings["support"]["0"][0] == 0.0  # as it was given
    assert np.exp(model.log_density(0.25 * COUNTS)).sum() == pytest.approx(1.0, abs=1e-4)
    assert np.isneginf(model.log_density([[0.3]])[0])
    assert set(model.sample(100, seed=0)[:, 0]) <= set(0.25 * COUNTS[:, 0])
    with pytest.raises(ValueError, match=r"column 0 is discrete .* holds 0\.25 at row"):
        tgp.fit(np.sort(x, axis=0), discrete=[0])
    with pytest.raises(ValueError, match="there is no such column"):
        tgp.fit(x, discrete=["k"])
    with pytest.raises(TypeError, match=r"discrete=3\.5"):
        tgp.fit(x, discrete=3.5)
    with pytest.raises(ValueError, match="step of 0"):
        tgp.fit(x, discrete={0: -1.0})


def test_discrete_columns_are_not_warned_of():
    x = stats.poisson(4.0).rvs(500, random_state=0)[:, None].astype(float)
    with pytest.warns(tgp.DataWarning, match=r"discrete=\[0\]"):
        tgp.fit(x, method="map", lam=10.0)
    model = tgp.fit(x, discrete=[0], method="map", lam=10.0)  # warnings are errors here
    assert "column_notes" not in model.settings
    assert model.settings["discrete"] == {"0": 1.0}


# -- counts and numbers ---------------------------------------------------------------------------


def test_mixed_columns_are_close_to_the_truth(mixed):
    rng = np.random.default_rng(5)
    k = rng.poisson(3.0, 2_000).astype(float)
    rows = np.column_stack([k, rng.normal(0.5 * k, 1.0)])
    assert true_log_density(rows).mean() - mixed.log_density(rows).mean() < 0.03
    drawn = mixed.sample(4_000, seed=1)
    assert (drawn["k"] == np.rint(drawn["k"])).all()
    assert (drawn["y"] != np.rint(drawn["y"])).all()
    p = np.exp(mixed.marginal("k").log_density(COUNTS[:9]))
    seen = np.array([(drawn["k"] == k).sum() for k in range(9)])
    assert stats.chisquare(seen, p / p.sum() * seen.sum()).pvalue > 1e-3


def test_chain_rule_of_mixed_columns(mixed):
    """log p(k, y) = log P(k) + log p(y | k) = log p(y) + log P(k | y)."""
    y = np.linspace(-2.0, 4.0, 7)
    rows = np.column_stack([np.full(7, 4.0), y])
    joint = mixed.log_density(rows)
    given_k = mixed.conditional({"k": 4})
    first = mixed.marginal("k").log_density([[4.0]]) + given_k.log_density(y[:, None])
    np.testing.assert_allclose(first, joint, atol=1e-9)
    second = [
        mixed.marginal("y").log_density([[one]])[0]
        + mixed.conditional({"y": one}).log_density([[4.0]])[0] for one in y
    ]  # fmt: skip
    np.testing.assert_allclose(second, joint, atol=1e-6)


@pytest.mark.slow
def test_conditional_on_a_count_is_one_density(mixed):
    """Its answers, made from nodes of the step, agree with integrals of its log density."""
    given = mixed.conditional({"k": 2})
    y = np.linspace(-7.0, 9.0, 4_001)
    density = np.exp(given.log_density(y[:, None]))
    total = np.cumsum(0.5 * (density[1:] + density[:-1])) * (y[1] - y[0])
    assert total[-1] == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(given.cdf(y[[1500, 2500]]), total[[1499, 2499]], atol=2e-5)
    levels = [0.1, 0.5, 0.9]
    np.testing.assert_allclose(given.cdf(given.quantile(levels)), levels, atol=1e-7)
    assert given.probability({"y": 0.0}, {"y": 1.0}).value == pytest.approx(
        float(np.diff(given.cdf([0.0, 1.0]))[0]), abs=1e-6
    )
    drawn = given.sample(2_000, seed=0)["y"]
    assert stats.kstest(drawn, lambda t: np.interp(t, y[1:], total)).pvalue > 1e-3
    mean = float((density * y).sum() * (y[1] - y[0]))
    assert given.expectation(lambda rows: rows["y"]).value == pytest.approx(mean, abs=0.01)
    with pytest.raises(ValueError, match="not a multiple"):
        mixed.conditional({"k": 2.5})
    with pytest.raises(ValueError, match="zero"):
        mixed.conditional({"k": -3})


def test_gradients_are_those_of_the_continuous_columns(mixed):
    rows = np.array([[2.0, 0.3], [5.0, 3.0]])
    slope = mixed.grad_log_density(rows)
    step = np.array([0.0, 1e-5])
    change = mixed.log_density(rows + step) - mixed.log_density(rows - step)
    np.testing.assert_allclose(slope[:, 1], change / 2e-5, atol=1e-5)
    assert np.isnan(slope[:, 0]).all()


def test_information_and_divergence(mixed):
    found = mixed.mutual_information("k", "y")
    k = np.arange(0.0, 25.0)
    y = np.linspace(-8.0, 16.0, 801)
    joint = np.exp(mixed.log_density(np.stack(np.meshgrid(k, y, indexing="ij"), -1).reshape(-1, 2)))
    joint = joint.reshape(25, 801) * (y[1] - y[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = joint * np.log(joint / joint.sum(axis=0) / joint.sum(axis=1)[:, None])
    assert abs(found - np.nansum(terms)) < 4 * found.standard_error
    assert mixed.kl_divergence(mixed).value == 0.0
    with pytest.raises(ValueError, match="same discrete columns"):
        mixed.kl_divergence(mixed.dequantized)


def test_a_density_and_probabilities_have_no_divergence(mixed):
    smooth = mixed.dequantized
    counts, smooth_counts = mixed.marginal("k"), smooth.marginal("k")
    for one, other in ((smooth, mixed), (mixed, smooth), (smooth_counts, counts)):
        with pytest.raises(ValueError, match="discrete"):
            one.kl_divergence(other)


def test_one_line_names_discrete_columns_where_there_are_some(mixed):
    assert "discrete={" in repr(mixed)
    assert "discrete={" not in repr(mixed.marginal("y"))


def test_saved_densities_are_the_same(mixed, tmp_path):
    rows = np.array([[2.0, 0.3], [5.0, 3.0]])
    given = mixed.conditional({"k": 2})
    for model, at in ((mixed, rows), (given, rows[:, 1:]), (mixed.marginal("k"), rows[:, :1])):
        model.save(tmp_path / "model.npz")
        again = tgp.load(tmp_path / "model.npz")
        assert isinstance(again, DiscreteDensity)
        assert again.table.columns == model.table.columns
        np.testing.assert_array_equal(again.log_density(at), model.log_density(at))
    assert repr(mixed).startswith("DiscreteDensity(discrete={'k': 1.0}, Density(")
    assert "k in steps of 1" in mixed.summary()
    assert "k in steps of 1" in mixed._repr_html_()
    assert "k 2" in given.summary()


def test_updates_and_missing_values(mixed):
    new = pd.DataFrame({"k": [1.0, 2.0], "y": [0.5, 1.0]})
    assert mixed.update(new).settings["n_rows"] == 3_002
    holes = pd.DataFrame({"k": [2.0, np.nan], "y": [np.nan, 1.0]})
    np.testing.assert_allclose(
        mixed.log_density(holes, missing="marginal"),
        [mixed.marginal("k").log_density([[2.0]])[0], mixed.marginal("y").log_density([[1.0]])[0]],
    )


# -- noise and integrals --------------------------------------------------------------------------


def test_every_source_and_pass_has_the_same_noise(tmp_path):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.poisson(3.0, 500), rng.normal(size=500)]).astype(float)
    frame = pd.DataFrame(x, columns=["k", "y"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    jitter = Jitter.of(["k"], 7)
    expected = x + np.column_stack([draw_noise(np.arange(500), 0, 7), np.zeros(500)])
    sources = [frame, tmp_path / "rows.csv", tmp_path / "rows.parquet", [frame[:123], frame[123:]]]
    for source in sources:
        blocks = Blocks(source, jitter=jitter, block_rows=64)
        for _ in range(2):
            np.testing.assert_allclose(blocks.whole(), expected, atol=1e-12)
    blocks = Blocks(x, jitter=Jitter.of([0], 7))
    blocks.draw_sample()
    np.testing.assert_allclose(blocks.sample.x, expected, atol=1e-12)
    blocks = Blocks(x, jitter=Jitter.of([0], 7))
    np.testing.assert_allclose(blocks.rows_at(np.array([5, 77]))[0], expected[[5, 77]], atol=1e-12)


def test_noise_is_uniform_and_independent():
    noise = np.stack([draw_noise(np.arange(20_000), k, 3) for k in (0, 1)])
    other = draw_noise(np.arange(20_000), 0, 4)
    assert np.abs(noise).max() < 0.5
    for one in (*noise, other):
        assert stats.kstest(one, stats.uniform(-0.5, 1.0).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef([*noise, other, np.roll(noise[0], 1)]) - np.eye(4)).max() < 0.03


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_integrals_over_boxes_against_normal_probabilities(m):
    """Independent normals: the mass of a box is a product of differences of distribution
    functions; five columns have a standard error."""
    rows = np.random.default_rng(m).normal(size=(20, m + 1))
    steps = np.linspace(0.5, 1.5, m)

    def log_density(y):
        return stats.norm.logpdf(y).sum(axis=1)

    values, errors = integrate_bins(log_density, rows, range(m), steps)
    ends = [stats.norm.cdf(rows[:, :m] + sign * 0.5 * steps) for sign in (-1, 1)]
    true = np.log(ends[1] - ends[0]).sum(axis=1) + stats.norm.logpdf(rows[:, m])
    if m <= 3:
        np.testing.assert_array_less(np.abs(values - true), errors + 1e-12)
        assert errors.max() < 1e-7
    else:
        assert (np.abs(values - true) < 5 * errors).all()
        assert errors.max() < 0.02


def test_regions_hold_fresh_rows_as_they_say():
    """The value at the edge has several percent: `contains` must not miss it by rounding."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.poisson(3, 600), rng.poisson(5, 600) + rng.poisson(3, 600)])
    model = tgp.fit(x, discrete=[0, 1], support={0: (0, None), 1: (0, None)}).marginal(0)
    fresh = np.asarray(model.sample(20_000, seed=9))
    for seed, level in enumerate(np.linspace(0.6, 0.93, 12)):
        region = model.highest_density_region(level, seed=seed)
        share = region.contains(fresh).mean()
        spread = math.hypot(region.standard_error, 0.5 / math.sqrt(len(fresh)))
        assert abs(share - region.probability) < 4 * spread
