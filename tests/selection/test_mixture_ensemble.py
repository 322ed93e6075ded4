"""Averages of grown mixtures, and the kernel estimate beside them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import tgpfast as tgp
from tgpfast.bases.domain import Domain
from tgpfast.bases.kernel_estimate import choose_kernel_covariance, make_kernel_mixture
from tgpfast.bases.mixture import MixtureBase, average_mixtures
from tgpfast.bases.quasirandom import logsumexp
from tgpfast.selection import mixture_ensemble, scoring
from tgpfast.selection.effort import Budget
from tgpfast.selection.mixture_ensemble import MixtureEnsemble

QUICK = Budget(growth_work=1e8, n_folds=3)
WITH_KERNEL = Budget(growth_work=1e3, n_folds=3, has_kernel=True)


def clustered_rows(n, seed=0):
    """Rows on a noisy circle in two of four columns."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.0, 2.0 * np.pi, n)
    circle = 2.0 * np.column_stack([np.cos(angle), np.sin(angle)])
    return np.column_stack([circle + 0.2 * rng.normal(size=(n, 2)), rng.normal(size=(n, 2))])


def make_ensemble(n=150, seed=0):
    rng = np.random.default_rng(seed)
    return MixtureEnsemble(clustered_rows(n, seed), rng.uniform(0.5, 1.5, n), QUICK)


def test_an_average_of_mixtures_is_the_average_of_their_densities():
    """With one guard for all, and as it is where every one is the same Gaussian."""
    x, w = clustered_rows(80), np.ones(80)
    eye = np.stack([np.eye(4)] * 2)
    two = [MixtureBase([0.3, 0.7], x[k : k + 2], (1.0 + k) * eye).with_guard(x, w) for k in (0, 5)]
    one = MixtureBase([1.0], x[9:10], eye[:1])
    got = average_mixtures([*two, one], [0.5, 0.2, 0.3])
    densities = [np.exp(m.log_density(x)) for m in (*two, one)]
    want = np.array([0.5, 0.2, 0.3]) @ densities
    np.testing.assert_allclose(np.exp(got.log_density(x)), want, rtol=1e-12)
    assert got.n_components == 6
    assert got.has_guard
    np.testing.assert_allclose(got.without_guard().weights.sum(), 1.0)
    assert average_mixtures([one, one]) is one


@pytest.mark.slow
def test_scored_rows_have_no_part_in_the_mixture_of_their_fold():
    """Neither in its components nor in its size; the rows that decide on its size score nothing."""
    ensemble = make_ensemble()
    seen = np.zeros(len(ensemble.x))
    for k, (out, judges) in enumerate(ensemble.judged):
        scored = out & ~judges
        np.testing.assert_array_equal(ensemble.splits[k].held, ensemble.x[scored])
        assert abs(scored.sum() - judges.sum()) <= 1
        seen += out
        x = ensemble.x.copy()
        x[scored] += 3.0
        changed = MixtureEnsemble(x, ensemble.weights, QUICK)
        assert changed.fit_without(k).fingerprint == ensemble.fit_without(k).fingerprint
        x[judges] += 3.0
        moved = MixtureEnsemble(x, ensemble.weights, QUICK)
        assert moved.fit_without(k).fingerprint != ensemble.fit_without(k).fingerprint
    assert seen.max() == 1.0


@pytest.mark.parametrize("depends", [True, False])
def test_mixtures_are_wrapped_where_columns_depend_on_the_hour(depends):
    """Else one mixture of the open columns needs fewer components."""
    rng, domain = np.random.default_rng(3), Domain(
        [-np.inf, -np.pi, -np.inf, -np.inf], [np.inf, np.pi, np.inf, np.inf],
        [False, True, False, False],
    )  # fmt: skip
    angle, x = rng.vonmises(np.pi, 1.0, 400), rng.normal(size=(400, 4))
    x[:, 1] = angle
    x[:, 0] = np.where(rng.random(400) < 0.5, 4.0, 0.0) + 0.3 * x[:, 0]
    if depends:
        x[:, 2] = 2.0 * np.cos(angle) + 0.2 * x[:, 2]
    ensemble = MixtureEnsemble(x, np.ones(400), QUICK, domain=domain)
    assert ensemble.is_wrapped == depends
    base = ensemble.fit(x, np.ones(400))
    assert type(base).__name__ == ("BoundedMixtureBase" if depends else "ProductBase")
    other = x + np.array([0.0, 2.0 * np.pi, 0.0, 0.0])
    np.testing.assert_allclose(base.log_density(other), base.log_density(x), atol=1e-9)
    assert ensemble.averaging_gain > 0.0
    assert type(ensemble.fit_without(0)) is type(base)
    if depends:  # by how much the product of distributions is worse, which is what it is for
        apart = ensemble._multiply(ensemble.open_members[0].mixture, x, np.ones(400))
        assert (base.log_density(x) - apart.log_density(x)).mean() > 0.5


def test_many_periodic_columns_are_not_wrapped():
    rng = np.random.default_rng(0)
    low = np.array([-np.inf] + 7 * [-np.pi])
    domain = Domain(low, -low, np.isfinite(low))
    x = np.c_[rng.normal(size=200), rng.vonmises(0.0, 1.0, (200, 1)) + np.zeros((200, 7))]
    x[:, 1:] += 0.1 * rng.normal(size=(200, 7))
    x = domain.wrap(x)
    assert not MixtureEnsemble(x, np.ones(200), QUICK, domain=domain).is_wrapped
    few, chosen = domain.choose([0, 1, 2, 3]), np.ascontiguousarray(x[:, :4])
    assert MixtureEnsemble(chosen, np.ones(200), QUICK, domain=few).is_wrapped


@pytest.mark.slow
def test_few_independent_rows_are_not_wrapped_by_luck(monkeypatch):
    """Five of twelve samples of 60 rows gain by it, none of them two standard errors."""
    domain = Domain([0.0] + 3 * [-np.inf], [2.0 * np.pi] + 3 * [np.inf], [True] + 3 * [False])

    def count_wrapped(seeds):
        found = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            x = np.c_[rng.vonmises(0.0, 2.0, 60) % (2.0 * np.pi), rng.normal(size=(60, 3))]
            found.append(MixtureEnsemble(x, np.ones(60), QUICK, domain=domain).is_wrapped)
        return sum(found)

    assert count_wrapped([2, 5, 6, 8]) == 0
    monkeypatch.setattr(mixture_ensemble, "WRAPPING_ERRORS", 0.0)
    assert count_wrapped([2, 5]) == 2


def with_members(mixtures):
    """An ensemble whose members are these mixtures; the budget averages three."""
    ensemble = MixtureEnsemble(clustered_rows(40), np.ones(40), QUICK)
    ensemble.__dict__["members"] = [SimpleNamespace(mixture=m) for m in mixtures]
    return ensemble


def test_the_gain_of_averaging_is_the_mean_over_rows_of_the_average():
    """Of three mixtures of two Gaussians: an integral, by many draws of numpy."""
    centers, n = np.array([-1.0, 0.0, 2.0]), 30_000
    means = np.zeros((3, 2, 4))
    means[..., 0] = centers[:, None] + [0.0, 1.0]
    mixtures = [MixtureBase([0.5, 0.5], m, np.stack([np.eye(4)] * 2)) for m in means]
    rows = np.random.default_rng(5).normal(size=(n, 4)) + means.reshape(6, 4)[np.arange(n) % 6]
    each = [0.5 * sum(stats.multivariate_normal(m).pdf(rows) for m in pair) for pair in means]
    gains = np.log(np.mean(each, axis=0)) - np.log(each).mean(axis=0)
    error = gains.std() / np.sqrt(2.0**mixture_ensemble.AVERAGING_LOG2_DRAWS)
    assert abs(with_members(mixtures).averaging_gain - gains.mean()) < 2.0 * error
    assert gains.mean() > 10.0 * error
    assert with_members(mixtures[:1] * 3).averaging_gain == pytest.approx(0.0, abs=1e-12)
    assert with_members(mixtures[:1]).averaging_gain == 0.0  # one member is no average
    far = MixtureBase([0.5, 0.5], means[2] + 90.0, mixtures[0].covariances)
    assert abs(with_members([*mixtures, far]).averaging_gain - gains.mean()) < 2.0 * error
    singles = [MixtureBase([1.0], m[:1], np.eye(4)[None]) for m in means]
    assert with_members(singles).averaging_gain == 0.0  # of which one stands for all


def test_a_component_for_one_outlier_gains_little_by_averaging():
    """The gain of its draws is bounded: by their share times the bound, if all is equal else."""
    eye, bound = np.stack([np.eye(4)] * 2), mixture_ensemble.LARGEST_AVERAGING_GAIN
    places = [np.array([np.zeros(4), np.full(4, place)]) for place in (1e3, -1e3, 2e3)]
    members = [MixtureBase([0.8, 0.2], place, eye) for place in places]
    gain = with_members(members).averaging_gain
    # a draw of an outlier's component gains the bound over two members, and -log 3 over its own
    want = 0.2 * (2.0 * bound - np.log(3.0)) / 3.0
    assert gain == pytest.approx(want, rel=0.05)  # 512 draws
    unbounded = 0.2 * (1e3**2 * 4 / 2) * 2 / 3  # the negative control
    assert gain < 1e-4 * unbounded


def test_a_kernel_estimate_is_a_mixture_of_its_rows():
    x, w = clustered_rows(60), np.random.default_rng(1).uniform(0.5, 1.5, 60)
    covariance = np.diag([0.1, 0.2, 0.3, 0.4])
    kernel = make_kernel_mixture(x, w, covariance).without_guard()
    new = clustered_rows(5, seed=2)
    terms = [stats.multivariate_normal(row, covariance).pdf(new) for row in x]
    np.testing.assert_allclose(np.exp(kernel.log_density(new)), w @ terms / w.sum(), rtol=1e-10)


def test_kernels_suit_rows_left_out():
    """No other bandwidth of that shape is much better for new rows; and no kernel is narrower than
    a quarter of the step of a column."""
    x, w, new = clustered_rows(300), np.ones(300), clustered_rows(2_000, seed=1)
    covariance = choose_kernel_covariance(x, w, np.diag([0.2, 0.2, 1.0, 1.0]))
    scores = [
        make_kernel_mixture(x, w, factor**2 * covariance).log_density(new).mean()
        for factor in (0.5, 0.7, 1.0, 1.4, 2.0)
    ]
    assert scores[2] > max(scores) - 0.05
    assert scores[2] > min(scores) + 0.5
    steps = np.round(x * [5.0, 1.0, 1.0, 1.0]) / [5.0, 1.0, 1.0, 1.0]
    widths = np.sqrt(np.diag(choose_kernel_covariance(steps, w, 1e-6 * np.eye(4))))
    assert (widths > np.array([0.2, 1.0, 1.0, 1.0]) / 4.01).all()


@pytest.mark.parametrize("gap", [1.0, 0.0, -1.0])
def test_the_kernel_estimate_is_kept_where_it_gains(gap):
    """Its share maximizes the likelihood of the rows that score."""
    noise = np.random.default_rng(0).normal(size=400)
    gaps, weights = gap + noise - 0.5, np.full(400, 1 / 400)
    found = mixture_ensemble._judge_kernel(np.eye(2), gaps, weights)
    if gap <= 0.0:
        assert found is None
        return
    shares = np.linspace(0.0, 1.0, 1_001)
    likelihood = [np.log1p(s * np.expm1(gaps)).mean() for s in shares]
    assert found[1] == pytest.approx(shares[np.argmax(likelihood)], abs=0.01)


def test_the_average_beats_its_members():
    new = clustered_rows(2_000, seed=9)
    ensemble = make_ensemble()
    rows = ensemble.x, ensemble.weights
    alone = [member.refit(*rows).log_density(new).mean() for member in ensemble.members]
    assert ensemble.fit(*rows).log_density(new).mean() > np.mean(alone)


def test_few_rows_of_a_small_mixture_take_a_kernel_estimate():
    """Where the budget has one: it adds a component for each row, and new rows gain."""
    x, w, new = clustered_rows(400), np.ones(400), clustered_rows(2_000, seed=9)
    kernel = MixtureEnsemble(x, w, WITH_KERNEL)
    plain = replace(kernel, budget=replace(WITH_KERNEL, has_kernel=False))
    assert plain.kernel is None
    added = kernel.fit(x, w).n_components - plain.fit(x, w).n_components
    assert added >= len(x)
    assert kernel.fit(x, w).log_density(new).mean() > plain.fit(x, w).log_density(new).mean()
    assert kernel.fit_without(0).n_components > len(kernel.splits[0].kept)


@pytest.mark.slow
@pytest.mark.parametrize("is_missed", [False, True])
def test_three_clusters_need_no_tilt_of_a_mixture(is_missed, monkeypatch):
    """A mixture describes them. As a negative control normalizers keep what their draws miss of
    the base's mass: then tilts seem to gain 0.008 nats, and lose 0.001."""
    plain = scoring.FoldFeatures.score

    def score(block, *exponents):
        found, ratios = plain(block, *exponents), block.fold.draws.log_ratios
        return replace(found, values=found.values + np.log(len(ratios)) - logsumexp(ratios))

    if is_missed:
        monkeypatch.setattr(scoring.FoldFeatures, "score", score)
    rng, d = np.random.default_rng(102), 6
    mix = np.random.default_rng(7).standard_normal((d, d))

    def draw(n):
        kind, z = rng.choice(3, n, p=[1 / 2, 1 / 3, 1 / 6])[:, None], rng.normal(size=(n, d))
        return np.select([kind == 0, kind == 1, kind == 2], [z - 3.0, 0.4 * z + 2.0, z @ mix])

    model, fresh = tgp.fit(draw(2_000)), draw(20_000)
    base = model.base.log_density(model.scaling.apply(fresh)) + model.scaling.log_slope(fresh)
    gains = model.log_density(fresh) - base
    is_loss = gains.mean() < -gains.std() / np.sqrt(len(gains))
    assert is_loss == is_missed
