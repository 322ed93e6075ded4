"""Refinement of settings: rows held out, and bandwidth, size and lambda that suit all rows."""

import math
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from scipy.stats import multivariate_normal

import tgpfast as tgp
from tgpfast.data.blocks import Blocks
from tgpfast.kernels.thread_choice import Threads
from tgpfast.paper import datasets
from tgpfast.selection import refinement, sample_split, scoring
from tgpfast.selection.candidates import BASE_ALONE
from tgpfast.selection.folds import Split
from tgpfast.selection.refinement import (
    Refinement,
    RefinementTrial,
    Tempering,
    bandwidth_candidates,
    extrapolate_size,
)
from tgpfast.selection.sample_split import SampleSplit
from tgpfast.selection.scoring import Fold, FoldFeatures, HeldOutScore
from tgpfast.statistics.feature_means import accumulate_feature_means

FACTOR = 30e-15  # as in test_candidates
BASES = ("gaussian", "mixture", "student")
SEED = 3
ONE = Threads(n_threads=1)
FEW = 100


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Rows are many from 101 on, and draws few: what is tested does not depend on how many."""
    monkeypatch.setattr(sample_split, "FEW_ROWS", FEW)
    monkeypatch.setattr(refinement, "REFINEMENT_LOG2_DRAWS", 9)
    monkeypatch.setattr(refinement, "COMPARED_FEATURES", 20)


def moons(n=400, seed=0):
    x = datasets.two_moons(n, seed=seed)
    return (x - x.mean(axis=0)) / x.std(axis=0)


def weights_of(n):
    return np.random.default_rng(7).uniform(0.5, 2.0, n)


def make_base(kind, x, w=None):
    w = np.ones(len(x)) if w is None else w
    if kind == "mixture":
        return tgp.MixtureBase.from_data(x, 3, sample_weight=w)
    return tgp.StudentBase.by_em(x, w) if kind == "student" else tgp.GaussianBase.from_data(
        x, sample_weight=w
    )


def draws_of(base, log2_draws, seed):
    """Half of the draws from the base, half from Gaussians wider by 1 + 1 / sqrt(2) deviations: its
    own, and one of its mean and covariance. With the ratios of the base's density to theirs."""
    factor = (1.0 + 1.0 / math.sqrt(2.0)) ** 2
    weights, means, covariances = [1.0], [base.mean], [factor * base.covariance]
    if isinstance(base, tgp.MixtureBase):
        weights = [*(base.weights / 2.0), 0.5]
        means = [*base.means, *means]
        covariances = [*(factor * c for c in base.covariances), *covariances]
    wide = tgp.MixtureBase(np.array(weights), np.array(means), np.array(covariances))
    half = log2_draws - 1
    draws = np.concatenate([base.draw_sobol(half, seed), wide.draw_sobol(half, seed + 1_000)])
    terms = zip(weights, means, covariances, strict=True)
    beside = sum(w * multivariate_normal(m, c).pdf(draws) for w, m, c in terms)
    own = np.exp(base.log_density_at(draws))
    return draws, own / (0.5 * own + 0.5 * beside)


def make_features(S=40, gamma=0.5):
    return tgp.Features.draw(S, gamma, np.eye(2), seed=SEED)


def parts(features):
    return features.frequencies, features.phases, features.bandwidth


def refine(split, base, method="fd", **options):
    """A `Refinement` with few settings."""
    return Refinement(**{
        "lams": (1.0,), "tempering": Tempering(1.0), "seed": SEED, "threads": ONE, **options,
    }, split=split, base=base, method=method)  # fmt: skip


def sums_of(x, w, features, base, method="fd"):
    if method == "map":
        rows = Blocks(x, sample_weight=w)
        return accumulate_feature_means(rows, features, base.mean, tolerance=1e-9, n_threads=1)
    return tgp.accumulate(x, features, sample_weight=w, origin=base.mean, base=base,
                          engine="direct", precision="float64", n_threads=1)  # fmt: skip


# -- scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BASES)
def test_fd_learns_from_the_rows_that_remain(kind):
    """Total minus fold scores as FD of the remaining rows does, for every size and lambda."""
    x, w = moons(), weights_of(400)
    split, lams = SampleSplit.of(Blocks(x, sample_weight=w)), (1.0, 30.0, 1e3)
    held = split.held
    base, features = make_base(kind, x[~held], w[~held]), make_features()
    refined = refine(split, base, lams=lams).refine_size_and_lambda(
        sums_of(x, w, features, base), (10, 20, 90)
    )
    tried = [trial.record() for trial in refined.trials]
    log_base, share = base.log_density(x[held]), w[held] / w[held].sum()
    draws, ratios = draws_of(base, 9, SEED + 1)
    sizes = [t["n_features"] for t in tried]
    assert sizes in ([10] * 3 + [20] * 3, [10] * 3 + [20] * 3 + [40] * 3)
    assert [t["lam"] for t in tried] == list(lams) * (len(sizes) // 3)
    apart = np.linalg.norm(draws[:, None] - x, axis=2).min(axis=1)
    for t in tried:
        few = features.first(t["n_features"])
        assert t["gamma"] == features.bandwidth
        rest = sums_of(x[~held], w[~held], few, base)
        model = tgp.solve(rest, base, "fd", lam=t["lam"])
        e = ratios * np.exp(oracle.phi(draws, *parts(few)) @ model.theta)
        values = oracle.phi(x[held], *parts(few)) @ model.theta - np.log(e.mean()) + log_base
        # the difference of two sums errs by the size of the larger
        error = 10 * FACTOR * model.diagnostics["condition"] * np.abs(model.theta).sum()
        far = apart > scoring.FAR_BANDWIDTHS * few.bandwidth
        assert t["effective_share"] == pytest.approx(e.sum() ** 2 / (e @ e) / len(e), abs=error)
        of_base = ratios @ far / ratios.sum()
        assert t["far_share"] == pytest.approx(e @ far / e.sum() - of_base, abs=error)
        believed = (
            t["effective_share"] >= scoring.LEAST_EFFECTIVE_SHARE
            and t["far_share"] <= scoring.MOST_FAR_SHARE
        )
        want = share @ values if believed else -math.inf
        assert t["score"] == pytest.approx(want, abs=error)
    assert max(t["score"] for t in tried) > share @ log_base + 0.02  # it learns something


@pytest.mark.parametrize(
    ("kind", "method"), [("gaussian", "fvpd"), ("mixture", "fvpd"), *((k, "map") for k in BASES)]
)
def test_other_methods_learn_from_the_rows_that_remain(kind, method):
    """As a block of the pilot, that is handed the remaining rows, does."""
    x, w = moons(), weights_of(400)
    split = SampleSplit.of(Blocks(x, sample_weight=w))
    held = split.held
    base, features, eta = make_base(kind, x[~held], w[~held]), make_features(20), 2.0
    lams = (30.0, 3.0)
    refined = refine(
        split, base, method, lams=lams, tempering=Tempering(eta)
    ).refine_size_and_lambda(sums_of(x, w, features, base, method), ())
    fold = Fold(base, Split.at(x, w, held), x, 9, SEED)
    for drawn, seed in ((fold.draws, SEED + 1), (fold.nodes, SEED + 2)):
        points, ratios = draws_of(base, 9, seed)
        np.testing.assert_array_equal(drawn.points, points)
        np.testing.assert_allclose(drawn.log_ratios, np.log(ratios), atol=1e-9)
    block = FoldFeatures(features, fold, ONE)
    if method == "fvpd":
        want = [block.score_fvpd(lam, eta) for lam in lams]
    else:
        want = block.score_thetas(block.posterior(lams))
    for trial, score in zip(refined.trials, want, strict=True):
        # sums to 1e-13 of their size; Newton's steps, whose systems are well behaved, keep that
        assert trial.score.mean == pytest.approx(score.mean, abs=1e-8)
        assert trial.score.effective_share == pytest.approx(score.effective_share, rel=1e-8)
        assert trial.score.far_share == pytest.approx(score.far_share, abs=1e-8)
    assert refined.n_features == 20


# -- what is made of the scores --------------------------------------------------------------------


def scored(mean, error=0.0, share=0.5):
    """Forty rows with this mean gain over a base of log density -2, and this error of it."""
    values = -2.0 + mean + error * math.sqrt(40) * np.tile([-1.0, 1.0], 20)
    return HeldOutScore(values, share, 0.0, np.full(40, 1 / 40))


def refine_given(monkeypatch, table, method="fd", lams=(1.0,), most=80, sizes=(10, 20, 40),
                 least_errors=0.0, **options):  # fmt: skip
    """``refine_size_and_lambda`` where scores are given: size -> one for each lambda."""
    features, asked = make_features(most), []

    def given(self, rest, fold):
        asked.append(rest.features.n_features)
        found = table[rest.features.n_features]
        found = found if isinstance(found, list) else [found] * len(lams)
        return [RefinementTrial(rest.features, *each) for each in zip(lams, found, strict=True)]

    monkeypatch.setattr(Refinement, "score", given)
    x = moons(400)
    base = SimpleNamespace(
        mean=np.zeros(2), covariance=np.eye(2), dimension=2,
        draw_sobol=lambda log2, seed: x[: 2**log2],
        log_density_at=lambda rows: np.full(len(rows), -2.0),
    )  # fmt: skip
    stats = sums_of(x, None, features, base, "map")
    task = refine(SampleSplit.of(Blocks(x)), base, method, lams=lams, seed=0, **options)
    return task.refine_size_and_lambda(stats, sizes, least_errors=least_errors), asked


def test_sizes_are_tried_upwards_while_they_gain(monkeypatch):
    table = {10: scored(0.1), 20: scored(0.2), 40: scored(0.201), 80: scored(0.9)}
    found, asked = refine_given(monkeypatch, table)
    assert asked == [10, 20, 40]  # which is not worth doubling, though it gains
    assert (found.n_features, found.lam) == (40, 1.0)
    assert [trial.features.n_features for trial in found.trials] == asked
    table[40] = scored(0.199)
    assert refine_given(monkeypatch, table)[0].n_features == 20
    # negative control: it was the bar that ended the search
    monkeypatch.setattr(refinement, "WORTH_DOUBLING", -1.0)
    assert refine_given(monkeypatch, table)[0].n_features == 80


def test_sizes_above_what_there_is_are_not_tried(monkeypatch):
    table = {10: scored(0.1), 20: scored(0.2), 30: scored(0.3)}
    found, asked = refine_given(monkeypatch, table, most=30)
    assert (found.n_features, asked) == (30, [10, 20, 30])


def test_every_size_is_tried_with_every_lambda(monkeypatch):
    table = {10: [scored(0.1), scored(0.3)], 20: [scored(0.5), scored(0.2)], 40: scored(0.5)}
    found, _ = refine_given(monkeypatch, table, lams=(1.0, 100.0))
    assert (found.n_features, found.lam) == (20, 1.0)
    assert [(t.features.n_features, t.lam) for t in found.trials] == [
        (10, 1.0), (10, 100.0), (20, 1.0), (20, 100.0), (40, 1.0), (40, 100.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gain", "errors", "alone"),
    [
        (0.05, 0.0, False), (0.001, 0.0, False), (-0.001, 0.0, True), (-0.05, 0.0, True),
        (0.15, 2.0, True), (0.19, 2.0, True), (0.21, 2.0, False),
    ],
)  # fmt: skip
def test_the_base_alone_wins_unless_the_gain_is_sure(monkeypatch, gain, errors, alone):
    """The tilt must gain ``least_errors`` standard errors, and something by default. The base alone
    takes the fewest features, which do nothing."""
    table = {10: scored(gain - 1), 20: scored(gain, 0.1), 40: scored(-2)}
    found, _ = refine_given(monkeypatch, table, **({"least_errors": errors} if errors else {}))
    want = (10, BASE_ALONE) if alone else (20, 1.0)
    assert (found.n_features, found.lam) == want


@pytest.mark.parametrize("rule", [False, True])
@pytest.mark.parametrize("share", [0.5, 0.0])
def test_what_is_not_believed_leaves_the_base_alone(monkeypatch, share, rule):
    """Quietly, also where values are not numbers that could be compared."""
    lost = HeldOutScore(np.full(40, -np.inf), 0.0, 1.0, np.full(40, 1 / 40))
    table = {10: lost, 20: scored(5.0, share=0.0), 40: scored(0.1, share=share)}
    found, asked = refine_given(monkeypatch, table, one_standard_error=rule)
    assert asked == [10, 20]
    assert (found.n_features, found.lam) == (10, BASE_ALONE)
    table[20] = table[40]
    want = (20, 1.0) if share else (10, BASE_ALONE)
    found, _ = refine_given(monkeypatch, table, one_standard_error=rule)
    assert (found.n_features, found.lam) == want


def test_one_standard_error_takes_the_largest_lambda_that_is_near(monkeypatch):
    """Row by row, at the size that is taken; without it, the best."""
    lams = (1.0, 10.0, 100.0, 1e3)
    near = [scored(0.3), scored(0.29, 0.02), scored(0.2, 0.02), scored(5.0, share=0.0)]
    table = {10: scored(0.1), 20: near, 40: scored(0.0)}
    for rule, lam in ((False, 1.0), (True, 10.0)):
        found, _ = refine_given(monkeypatch, table, lams=lams, one_standard_error=rule)
        assert (found.n_features, found.lam) == (20, lam)


def test_ncfd_is_not_refined():
    """Its densities are at several levels of noise: the pilot's settings stand."""
    stats = SimpleNamespace(features=make_features(30))
    split = SampleSplit.of(Blocks(moons(200)))
    found = refine(split, None, "ncfd", lams=(3.0,)).refine_size_and_lambda(stats, (10, 20))
    assert (found.n_features, found.lam, found.trials) == (30, 3.0, ())


@pytest.mark.parametrize(
    ("gain", "want"), [(-0.1, 20), (0.003, 20), (0.004, 40), (0.015, 40), (0.016, 80), (9.0, 80)]
)
def test_the_last_gain_decides_how_many_features_map_takes(gain, want):
    """Worth doubling: doubled once more; worth much: twice, as far as there are so many."""
    sizes = [10, 20, 40, 80, 160]
    assert refinement.WORTH_DOUBLING == 0.004
    assert extrapolate_size(20, gain, sizes) == want
    assert extrapolate_size(20, gain, sizes[:2]) == 20
    assert extrapolate_size(20, gain, [20, 40]) == min(want, 40)
    assert extrapolate_size(30, gain, [30]) == 30


def test_map_tries_small_sizes_alone(monkeypatch):
    """Up to COMPARED_FEATURES, since every one is an optimisation."""
    table = {10: scored(0.1), 20: scored(0.2), 80: scored(0.3)}
    found, asked = refine_given(monkeypatch, table, "map")
    assert (found.n_features, asked) == (80, [10, 20])
    table[20] = scored(0.106)
    assert refine_given(monkeypatch, table, "map")[0].n_features == 40
    table[20] = scored(0.102)
    assert refine_given(monkeypatch, table, "map")[0].n_features == 20
    table[20] = scored(0.09)
    assert refine_given(monkeypatch, table, "map")[0].n_features == 10
    found, asked = refine_given(monkeypatch, table, "map", sizes=())
    assert (found.n_features, asked) == (80, [80])


# -- bandwidths ------------------------------------------------------------------------------------


def narrower(monkeypatch, table, one_standard_error=False):
    """``refine_bandwidth`` from a bandwidth of 1 where scores are given: one for each multiple."""
    features, asked = make_features(50, gamma=1.0), []

    def given(self, rest, fold):
        asked.append(rest.features)
        return [RefinementTrial(rest.features, lam, table[len(asked) - 1]) for lam in self.lams]

    monkeypatch.setattr(Refinement, "score", given)
    x = moons(400)
    base = tgp.GaussianBase.from_data(x)
    task = refine(
        SampleSplit.of(Blocks(x)), base, "fvpd", lams=(1.0, 2.0), seed=0,
        one_standard_error=one_standard_error,
    )  # fmt: skip
    found = task.refine_bandwidth(lambda f: sums_of(x, None, f, base, "map"), features)
    assert {f.n_features for f in asked} == {20}  # COMPARED_FEATURES, the first of them
    for f in asked:
        np.testing.assert_array_equal(f.frequencies, features.frequencies[:20])
    assert [trial.features for trial in found.trials[::2]] == asked
    assert found.n_features == 50
    return found.bandwidth, len(asked)


def test_tempering_follows_the_bandwidth():
    """Unless eta is a number; that is what FVPD is scored with."""
    assert Tempering(multiple=0.3).at(0.5) == pytest.approx(1.2)
    assert Tempering(2.0).at(0.5) == Tempering(2.0).at(5.0) == 2.0
    x = moons(400)
    split, base = SampleSplit.of(Blocks(x)), tgp.GaussianBase.from_data(x)
    rest = sums_of(x, None, make_features(20, 0.5), base)
    fold = refine(split, base).make_fold()

    def values(tempering):
        (trial,) = refine(split, base, "fvpd", tempering=tempering).score(rest, fold)
        return trial.score.values

    np.testing.assert_allclose(values(Tempering(multiple=0.3)), values(Tempering(1.2)), rtol=1e-12)
    assert np.abs(values(Tempering(1.2)) - values(Tempering(2.4))).max() > 1e-3


@pytest.mark.parametrize(
    ("means", "width", "tried"),
    [
        ((0.1, 0.101, 0.9), 1.0, 2), ((0.1, 0.103, 0.104, 0.9), 2**-0.5, 3),
        ((0.1, 0.2, 0.3, 0.4), 2**-1.5, 4), ((0.1, 0.0), 1.0, 2),
    ],
)  # fmt: skip
def test_bandwidths_are_tried_downwards_while_they_gain(monkeypatch, means, width, tried):
    """By WORTH_NARROWING."""
    assert refinement.WORTH_NARROWING == 0.002
    table = [scored(m) for m in means]
    assert narrower(monkeypatch, table) == (pytest.approx(width, rel=1e-15), tried)


def test_a_bandwidth_that_is_not_believed_ends_the_search(monkeypatch):
    lost = scored(9.0, share=0.0)
    assert narrower(monkeypatch, [lost, scored(0.1)]) == (1.0, 1)
    assert narrower(monkeypatch, [scored(0.1), lost]) == (1.0, 2)


def test_one_standard_error_asks_more_of_a_smaller_bandwidth(monkeypatch):
    table = [scored(0.1), scored(0.15, 0.1), scored(0.1), scored(0.1)]
    assert narrower(monkeypatch, table) == (pytest.approx(2**-0.5), 3)
    assert narrower(monkeypatch, table, one_standard_error=True) == (1.0, 2)
    table[1] = scored(0.15, 0.04)
    assert narrower(monkeypatch, table, one_standard_error=True)[0] < 1.0


@pytest.mark.parametrize("method", ["fd", "map"])
def test_a_bandwidth_that_is_too_large_is_narrowed(monkeypatch, method):
    """Two moons, whose arcs are thin, of as many rows as are looked at twice: by more than a half
    on average over draws of the rows, for single ones of which FD may keep it."""
    monkeypatch.setattr(refinement, "COMPARED_FEATURES", 60)
    monkeypatch.setattr(refinement, "REFINEMENT_LOG2_DRAWS", 11)
    widths = []
    for seed in range(5):
        x = moons(3_000, seed)
        base = tgp.GaussianBase.from_data(x)
        task = refine(SampleSplit.of(Blocks(x)), base, method, lams=(1e3, 1e2, 1e1))
        found = task.refine_bandwidth(
            lambda f, x=x, base=base: sums_of(x, None, f, base, method), make_features(60, 1.0)
        )
        tried = [trial.record() for trial in found.trials]
        top = max(row["score"] for row in tried)
        mine = max(row["score"] for row in tried if row["gamma"] == found.bandwidth)
        assert mine >= top - refinement.WORTH_NARROWING
        widths.append(found.bandwidth)
    assert np.exp(np.mean(np.log(widths))) < 0.5


@pytest.mark.parametrize(("step", "allowed"), [(0.0, 4), (1.0, 3), (3.0, 1)])
def test_narrower_bandwidths_leave_no_wave_shorter_than_two_steps(step, allowed):
    """The longest frequency is pi / 2 with the first bandwidth, which is tried in any case."""
    features = tgp.Features([[0.5 * np.pi, 0.0], [0.1, 5.0]], np.zeros(2), 1.0)
    found = bandwidth_candidates(features, np.array([step, 0.0]))
    assert [few.bandwidth for few in found] == list(refinement.NARROWER_MULTIPLES[:allowed])
