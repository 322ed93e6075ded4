"""Settings chosen from the data: the scores, the guards, and what `fit` does with the answers."""

import dataclasses
import json
import math
import warnings

import numpy as np
import oracle
import pytest
from conftest import FIXED, slow
from scipy import stats as distributions
from scipy.stats import multivariate_normal

import tgpfast as tgp
from tgpfast.bases.gaussian import GaussianBase
from tgpfast.bases.quasirandom import logsumexp
from tgpfast.features.random import Features
from tgpfast.kernels.thread_choice import Threads
from tgpfast.paper import datasets
from tgpfast.pipeline import choosing, random_features
from tgpfast.pipeline.choosing import LEAST_PILOT_ROWS
from tgpfast.pipeline.settings import FALLBACK, Settings
from tgpfast.selection import candidates as selection
from tgpfast.selection import folds, refinement, sample_split, scoring
from tgpfast.selection.candidates import (
    FREQUENCY_SHAPES,
    Candidate,
    FeatureSetting,
    Pilot,
    SearchSpace,
    choose_candidate,
)
from tgpfast.selection.effort import Budget
from tgpfast.selection.folds import FEW_ROWS, N_FOLDS, Split, assign_folds, held_out_masks
from tgpfast.selection.scoring import Fold, FoldFeatures, HeldOutScore, PosteriorFeatures
from tgpfast.statistics import required_sums

# as in test_bases: solutions err by the condition times 1e-15, and 30 is for the length of the sums
FACTOR = 30e-15
BASES = ("gaussian", "mixture", "student")
LAMS = (1.0, 10.0, 100.0, 1e3)
SEED = 3
QUICK = Budget(screen_features=16, log2_draws=10, growth_work=2e7)
ONE = Threads(n_threads=1)  # blocks are small here


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few draws and candidates: what is tested does not depend on how many there are."""
    for name, value in {
        "GAMMA_MULTIPLES": (0.7, 1.8), "PILOT_LAMS": LAMS, "MAP_LAMS": (10.0, 1.0),
    }.items():  # fmt: skip
        monkeypatch.setattr(selection, name, value)
    monkeypatch.setattr(Budget, "for_rows", lambda effort, n_rows, d: QUICK)


def make_pilot(x, w):
    """A pilot of rows of which parts are held out in turn."""
    return Pilot(sample_split.SampleSplit(x, w, np.zeros(len(x), bool), budget=QUICK))


def moons(n=300, seed=0):
    x = datasets.two_moons(n, seed=seed)
    return (x - x.mean(axis=0)) / x.std(axis=0)


def weights_of(n, weighted=True):
    return np.random.default_rng(7).uniform(0.5, 2.0, n) if weighted else np.ones(n)


def make_base(kind, x, w):
    if kind == "mixture":
        return tgp.MixtureBase.from_data(x, 3, sample_weight=w)
    return tgp.StudentBase.by_em(x, w) if kind == "student" else tgp.GaussianBase.from_data(
        x, sample_weight=w
    )


def wider(base):
    """Weights, means and covariances of the Gaussians that half of the draws come from: those of
    the base, and one of its mean and covariance, all wider by 1 + 1 / sqrt(d) deviations."""
    factor = (1.0 + 1.0 / math.sqrt(base.dimension)) ** 2
    weights, means, covariances = [1.0], [base.mean], [factor * base.covariance]
    if isinstance(base, tgp.MixtureBase):
        weights = [*(base.weights / 2.0), 0.5]
        means = [*base.means, *means]
        covariances = [*(factor * c for c in base.covariances), *covariances]
    return weights, means, covariances


def log_ratios(base, points):
    """log of the density of the base over that of the draws, of which half are wider."""
    terms = zip(*wider(base), strict=True)
    wide = sum(w * multivariate_normal(m, c).pdf(points) for w, m, c in terms)
    own = np.exp(base.log_density_at(points))
    return np.log(own / (0.5 * own + 0.5 * wide))


def make_fold(kind="gaussian", weighted=True, n=240):
    x, w = moons(n), weights_of(n, weighted)
    split = Split.at(x, w, held_out_masks(n)[1])
    base = make_base(kind, split.kept, split.kept_weights)
    return Fold(base, split, nearby=split.kept, log2_draws=8, seed=10)


def make_block(kind="gaussian", weighted=True, S=30, gamma=0.6):
    features = tgp.Features.draw(S, gamma, np.eye(2), seed=SEED)
    return FoldFeatures(features, make_fold(kind, weighted), ONE)


def parts(features):
    return features.frequencies, features.phases, features.bandwidth


def condition(block, lam):
    shift = lam * block.features.bandwidth**2
    return np.linalg.cond(block.sums.equations[0] + shift * np.eye(len(block.sums.sum_phi)))


def statistics_of(block):
    fold, split = block.fold, block.fold.split
    return tgp.accumulate(
        split.kept, block.features, sample_weight=split.kept_weights, origin=fold.base.mean,
        base=fold.base, engine="direct", precision="float64",
    )  # fmt: skip


def trial(score=0.0, lam=1.0, **other):
    return Candidate(**{
        "base": "empirical", "method": "fd", "frequency_covariance": "data", "gamma_multiple": 1.0,
        "eta_multiple": math.nan, "error": 0.1, "effective_share": 0.5,
    } | other, score=score, lam=lam)  # fmt: skip


def test_features_that_grow_visit_every_value_once(monkeypatch):
    """And end with the arrays, sums and coefficients of all features and rows at once."""
    fold = make_fold()
    features = tgp.Features.draw(30, 0.6, np.eye(2), seed=SEED, interactions=(1, 2))
    n, cells = len(fold.split.kept), []
    for name in ("evaluate_features", "sum_features"):
        known = getattr(scoring, name)

        def counted(features, rows, *args, known=known, **options):
            cells.append(features.n_features * len(rows))
            return known(features, rows, *args, **options)

        monkeypatch.setattr(scoring, name, counted)
    growing = PosteriorFeatures(features, fold, ONE, 8, n // 3)
    few = growing.posterior([10.0, 1.0])
    assert few.shape == (8, 2)
    growing.grow(8, n)
    growing.grow(30, n)
    grown = growing.posterior([10.0, 1.0])
    points = len(fold.split.held) + len(fold.draws.points) + len(fold.nodes.points)
    assert sum(cells) == 30 * (points + n)
    whole = FoldFeatures(features, fold, ONE)
    for name in ("held", "draws", "nodes"):
        np.testing.assert_allclose(getattr(growing, name), getattr(whole, name), atol=1e-14)
    np.testing.assert_allclose(growing.sums.sum_phi, whole.sums.sum_phi, atol=1e-11)
    assert growing.sums.n == whole.sums.n
    np.testing.assert_allclose(grown, whole.posterior([10.0, 1.0]), atol=1e-9)


# -- one fold --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BASES)
def test_half_of_the_draws_come_from_a_wider_base(kind):
    """For draws and for nodes; ratios and distances are those of plain formulas."""
    x, w = moons(240), weights_of(240)
    split = Split.at(x, w, held_out_masks(240)[1])
    base = make_base(kind, split.kept, split.kept_weights)
    fold = Fold(base, split, nearby=x[:50], log2_draws=8, seed=10)
    wide, size = tgp.MixtureBase(*map(np.array, wider(base))), 7
    for (points, ratios), seed in ((fold.draws, 11), (fold.nodes, 12)):
        half = 2**size
        assert len(points) == len(ratios) == 2 * half
        np.testing.assert_array_equal(points[:half], base.draw_sobol(size, seed))
        np.testing.assert_allclose(points[half:], wide.draw_sobol(size, seed + 1_000), rtol=1e-12)
        np.testing.assert_allclose(ratios, log_ratios(base, points), atol=1e-12)
        assert ratios.max() <= math.log(2.0)  # half of the draws are of the base
        # negative control: the draws are not those of the base
        assert np.abs(ratios).max() > 0.5
    apart = np.linalg.norm(fold.draws.points[:, None] - x[:50], axis=2).min(axis=1)
    np.testing.assert_allclose(fold.distances, apart, rtol=1e-12)
    np.testing.assert_array_equal(fold.held_base, base.log_density_at(split.held))


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASES)
def test_ratios_make_means_over_the_draws_those_of_the_base(kind):
    """Of 1, and of every feature, whose mean under the base is known for Gaussians."""
    x = moons(240)
    base = make_base(kind, x, np.ones(240))
    split = Split(x[:0], np.ones(0), x, np.ones(240))
    fold = Fold(base, split, nearby=x, log2_draws=15, seed=SEED)
    share = np.exp(fold.draws.log_ratios) / len(fold.draws.points)
    assert share.sum() == pytest.approx(1.0, abs=1e-3)
    if kind == "student":
        return
    features = tgp.Features.draw(30, 0.6, np.eye(2), seed=SEED)
    phi, want = oracle.phi(fold.draws.points, *parts(features)), base.feature_moments(features)[0]
    assert np.abs(share @ phi - want).max() < 1e-3
    # negative control: without the ratios they are those of a wider density
    assert np.abs(phi.mean(axis=0) - want).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", BASES)
def test_fd_of_a_block_is_fd_of_its_statistics(kind, weighted):
    """theta is that of ``solve`` and that of the formulas, for every lambda."""
    block, lams = make_block(kind, weighted), (0.3, 10.0, 1e3)
    stats, fold = statistics_of(block), block.fold
    score = fold.base.score_at(fold.split.kept)
    thetas = block.fd(lams)
    assert thetas.shape == (30, 3)
    for theta, lam in zip(thetas.T, lams, strict=True):
        bound = FACTOR * condition(block, lam) * np.abs(theta).max()
        solved = tgp.solve(stats, fold.base, "fd", lam=lam).theta
        plain = oracle.theta_fd_any(
            fold.split.kept, *parts(block.features), lam, score, fold.split.kept_weights
        )
        assert np.abs(theta - solved).max() <= bound
        assert np.abs(theta - plain).max() <= bound


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_fvpd_of_a_block_is_fvpd_of_its_statistics(kind, weighted):
    """Values of held-out rows are those of ``solve``, less log Z from the fold's own draws."""
    block = make_block(kind, weighted)
    fold, points, lam, eta = block.fold, block.fold.draws.points, 5.0, 2.0
    model = tgp.solve(statistics_of(block), fold.base, "fvpd", lam=lam, eta=eta)
    at_draws = model.log_density(points, normalized=False) - fold.base.log_density_at(points)
    ratios = log_ratios(fold.base, points)
    log_z = logsumexp(at_draws + ratios) - logsumexp(ratios)
    want = model.log_density(fold.split.held, normalized=False) - log_z
    scored = block.score_fvpd(lam, eta)
    # M is lam or more everywhere; phi^T M^-1 m is a sum of S terms
    bound = FACTOR * np.linalg.cond(model.M) * max(1.0, np.abs(at_draws).max())
    assert np.abs(scored.values - want).max() <= bound
    assert scored.weights is fold.split.held_weights
    # negative controls: another eta is another density; so it is without the ratios
    assert np.abs(block.score_fvpd(lam, 2 * eta).values - want).max() > 1e6 * bound
    without = logsumexp(at_draws) - math.log(len(at_draws))
    assert abs(without - log_z) > 1e6 * bound


@pytest.mark.parametrize("kind", BASES)
def test_the_posterior_of_a_block_is_a_maximum(kind):
    """What a further Newton step would gain is below the gain that ends the iteration."""
    block, lams = make_block(kind), (100.0, 10.0, 1.0)
    fold, thetas = block.fold, block.posterior(lams)
    nodes, (kept, weights, *_) = fold.nodes.points, fold.split
    ratios = log_ratios(fold.base, nodes)
    share = np.exp(ratios) / len(ratios)
    phi = oracle.phi(nodes, *parts(block.features))
    for theta, lam in zip(thetas.T, lams, strict=True):
        gradient = oracle.map_gradient(
            kept, theta, nodes, share, *parts(block.features), lam, weights
        ) / weights.sum()
        carried = np.exp(phi @ theta + ratios - logsumexp(phi @ theta + ratios))
        spread = (phi.T * carried) @ phi - np.outer(carried @ phi, carried @ phi)
        spread += lam / weights.sum() * np.eye(len(theta))
        assert 0.5 * gradient @ np.linalg.solve(spread, gradient) < scoring.PILOT_MAP_GAIN
    # negative control: the start is no maximum
    mean = block.sums.sum_phi / block.sums.n
    assert np.abs(mean - share @ phi / share.sum()).max() > 0.01


@pytest.mark.parametrize("kind", BASES)
def test_held_out_values_are_plain_log_densities(kind):
    """theta^T phi + log base - log of the mean of exp(theta^T phi) over the draws, each weighted by
    the ratio of the base's density to that of the draws; and shares, which have these ratios too.
    """
    block = make_block(kind)
    fold, features = block.fold, block.features
    thetas = block.fd((1.0, 100.0))
    at_draws = oracle.phi(fold.draws.points, *parts(features)) @ thetas
    at_held = oracle.phi(fold.split.held, *parts(features)) @ thetas
    far = fold.distances > scoring.FAR_BANDWIDTHS * features.bandwidth
    ratios = np.exp(log_ratios(fold.base, fold.draws.points))
    far_of_base = ratios @ far / ratios.sum()
    for k, scored in enumerate(block.score_thetas(thetas)):
        e = ratios * np.exp(at_draws[:, k])
        want = at_held[:, k] + fold.held_base - np.log(e.sum() / ratios.sum())
        # an angle of some 10 errs by 1e-15 of it, and theta^T phi by that times |theta|_1
        bound = 1e-14 * np.abs(thetas[:, k]).sum() + 1e-13
        assert np.abs(scored.values - want).max() <= bound
        assert scored.mean == pytest.approx(fold.split.held_weights @ want, abs=bound)
        effective = e.sum() ** 2 / (e @ e) / len(e)
        assert scored.effective_share == pytest.approx(effective, rel=4 * bound)
        assert scored.far_share == pytest.approx((e @ far) / e.sum() - far_of_base, abs=4 * bound)


def test_a_score_is_the_mean_over_folds():
    """One candidate of ``select`` by hand, from the rows on: score, error and both shares."""
    x, w = moons(120), weights_of(120)
    gamma, lam = 0.5, 10.0
    space = SearchSpace(
        bases=("empirical",), methods=("fd",), shapes={"identity": np.eye(2)}, gammas=(gamma,),
        lams=(lam,),
    )  # fmt: skip
    pilot = make_pilot(x, w)
    found = selection.select(pilot, space, n_features=15, seed=SEED, threads=ONE)
    features = tgp.Features.draw(15, gamma, np.eye(2), SEED)
    means, all_values, weights, shares, fars, bare = [], [], [], [], [], []
    for held in held_out_masks(120):
        base = tgp.GaussianBase.from_data(x[~held], sample_weight=w[~held])
        score = base.score_at(x[~held])
        theta = oracle.theta_fd_any(x[~held], *parts(features), lam, score, w[~held])
        wide = tgp.MixtureBase(*map(np.array, wider(base)))
        size = QUICK.log2_draws - 1  # of each half
        halves = base.draw_sobol(size, SEED + 1), wide.draw_sobol(size, SEED + 1_001)
        draws = np.concatenate(halves)
        ratios = np.exp(log_ratios(base, draws))
        e = ratios * np.exp(oracle.phi(draws, *parts(features)) @ theta)
        log_base, share = base.log_density(x[held]), w[held] / w[held].sum()
        log_z = np.log(e.sum() / ratios.sum())
        values = oracle.phi(x[held], *parts(features)) @ theta + log_base - log_z
        apart = np.linalg.norm(draws[:, None] - x[~held], axis=2).min(axis=1) > 3 * gamma
        means.append(share @ values)
        all_values.append(values)
        weights.append(share / N_FOLDS)
        shares.append(e.sum() ** 2 / (e @ e) / len(e))
        fars.append(e @ apart / e.sum() - ratios @ apart / ratios.sum())
        bare.append(share @ log_base)
    assert len(found.candidates) == 2
    (got,) = (t for t in found.candidates if t.lam == lam)
    (alone,) = (t for t in found.candidates if math.isinf(t.lam))
    assert got.score == pytest.approx(np.mean(means), abs=1e-9)
    away, share = np.concatenate(all_values) - np.mean(means), np.concatenate(weights)
    error = math.sqrt(share**2 @ away**2 / (1.0 - share @ share))
    assert got.error == pytest.approx(error, rel=1e-9)
    assert got.effective_share == pytest.approx(min(shares), rel=1e-9)
    assert got.far_share == pytest.approx(max(fars), abs=1e-9)
    assert got.gamma_multiple * found.scott == pytest.approx(gamma, rel=1e-14)
    assert alone.score == pytest.approx(np.mean(bare), abs=1e-12)


# -- folds and the choice --------------------------------------------------------------------------


def test_mixtures_of_few_rows_are_scored_with_the_gain_of_averaging():
    """What `fit` returns is an average; a fold has one member of it. Half of the gain is left on
    fresh rows. Other bases gain nothing."""
    x, w = np.random.default_rng(1).normal(size=(120, 4)) ** 3, np.ones(120)
    pilot = make_pilot(x, w)
    search = selection.CandidateSearch(
        pilot, SearchSpace(shapes={"identity": np.eye(4)}), n_features=8, seed=0, threads=ONE
    )
    search.folds = search.learn_bases()
    gain = 0.5 * pilot.sample.ensemble.averaging_gain
    assert gain > 0.0
    for name, expected in {"mixture": gain, "student": 0.0, "empirical": 0.0}.items():
        plain = np.mean([fold.split.held_weights @ fold.held_base for fold in search.folds[name]])
        assert search.score_base(name).score == pytest.approx(plain + expected, rel=1e-12)
    # bases of many rows, of which some are held out, are averages already
    many = Pilot(dataclasses.replace(pilot.sample, held=np.arange(120) < 12))
    assert many.expected_gain("mixture") == 0.0


@pytest.mark.parametrize("n", [40, 61, FEW_ROWS])
def test_folds_partition_few_rows(n):
    masks = np.array(held_out_masks(n))
    assert (masks.sum(axis=0) == 1).all()
    assert len(masks) == N_FOLDS
    assert np.ptp(masks.sum(axis=1)) <= 1


def test_of_many_rows_one_part_is_held_out():
    n = FEW_ROWS + 1
    (mask,) = held_out_masks(n)
    assert mask.sum() == -(-n // N_FOLDS)


@pytest.mark.parametrize("gain", [-1.0, 0.0, 0.9, 1.1, 100.0])
def test_the_base_stays_unless_it_is_beaten(gain):
    """By LEAST_GAIN; the best base alone, not the first."""
    low, bare = trial(-3.0, math.inf), trial(-2.0, math.inf, base="student")
    rich = trial(-2.0 + gain * selection.LEAST_GAIN)
    assert choose_candidate([low, rich, bare]) is (rich if gain > 1 else bare)


@pytest.mark.parametrize("sure", [False, True])
def test_a_gain_within_its_own_error_is_none(sure):
    """Two of them, of rows paired; another, whose gain is less but surer, is taken."""
    bare, lucky = trial(-2.0, math.inf), trial(-1.9, gain_error=0.06)
    modest = trial(-1.95, gain_error=0.016)
    assert selection.LEAST_GAIN_ERRORS == 3.0
    assert choose_candidate([bare, lucky, modest] if sure else [bare, lucky]) is (
        modest if sure else bare
    )
    # two and a half errors are luck; three and a third are not
    assert choose_candidate([bare, dataclasses.replace(lucky, gain_error=0.04)]) is bare
    assert choose_candidate([bare, dataclasses.replace(lucky, gain_error=0.03)]).score == -1.9


@pytest.mark.parametrize(("n_rows", "most"), [(7, 2.0), (20, 1.02), (200, 1.001)])
def test_errors_that_few_rows_estimate_count_as_uncertain(n_rows, most):
    """A Student variable is beyond the required errors as rarely as a normal one beyond three:
    never more often, and the approximation asks for little more than the exact quantile."""
    needed = selection.required_gain_errors(n_rows)
    freedom = n_rows / selection.ROWS_PER_FREEDOM - 1
    exact = distributions.t.isf(distributions.norm.sf(3.0), freedom)
    assert exact <= needed <= most * exact
    bare, above = trial(-2.0, math.inf), trial(-2.0 + 1.01 * needed * 0.1, gain_error=0.1)
    below = trial(-2.0 + 0.99 * needed * 0.1, gain_error=0.1)
    assert choose_candidate([bare, above], n_rows=n_rows) is above
    assert choose_candidate([bare, below], n_rows=n_rows) is bare
    assert choose_candidate([bare, below]).score > -2.0  # negative control: of many rows


def test_many_rows_ask_for_three_errors():
    assert selection.required_gain_errors(math.inf) == 3.0
    assert selection.required_gain_errors(1e9) == pytest.approx(3.0, abs=1e-6)


def test_a_careful_choice_keeps_map_alone_and_counts_its_tilts():
    """With m of them, sqrt(2 log m) standard errors are luck."""
    bare, fd = trial(-2.0, math.inf), trial(-1.5, gain_error=0.01)
    lucky = trial(-1.9, method="map", gain_error=0.1 / 3.2)
    assert choose_candidate([bare, fd, lucky]) is fd
    assert choose_candidate([bare, fd, lucky], is_careful=True) is lucky
    assert choose_candidate([bare, fd], is_careful=True) is bare
    others = [trial(-3.0, method="map") for _ in range(200)]
    assert math.sqrt(2.0 * math.log(201)) > 3.2
    assert choose_candidate([bare, fd, lucky, *others], is_careful=True) is bare
    assert choose_candidate([bare, lucky, *others]) is lucky
    # a lambda that is given is not questioned
    assert choose_candidate([bare, fd, lucky], is_careful=True, lam_is_open=False) is fd


@pytest.mark.slow
@pytest.mark.parametrize(("n", "methods"), [(200, {"map"}), (400, {"fd", "fvpd"})])
def test_few_rows_are_tilted_by_map(n, methods):
    """Score matching may win where rows are more; a method that is given stays."""
    assert selection.CAREFUL_ROWS == 300
    x = uniform_rows(n)
    options = {"base": "empirical", "frequency_covariance": "identity"}
    model = fit(x, **options)
    assert {row["method"] for row in model.selection} >= {"fd", "map"}
    assert model.method in methods
    assert fit(x, **options, method="fd").method == "fd"


def judged(values, lam=1.0, **other):
    """A trial of one fold whose rows have these log densities."""
    values = np.asarray(values, float)
    weights = np.full(len(values), 1.0 / len(values))
    folds = (HeldOutScore(values, 0.5, 0.0, weights),)
    return trial(float(values.mean()), lam, folds=folds, **other)


def with_error(mean, error, n=100):
    """n numbers of this mean, whose mean has this standard error."""
    return mean + error * math.sqrt(n - 1) * np.tile([-1.0, 1.0], n // 2)


@pytest.mark.parametrize("error", [0.03, 0.04])
def test_the_best_base_alone_must_be_beaten_too(error):
    """Row by row, though the tilt is surely above its own base, which is a worse one."""
    rows = np.random.default_rng(0).normal(-2.0, 1.0, 100)
    bare = judged(rows, math.inf, base="student")
    own = judged(rows - 1.0, math.inf)
    tilted = judged(rows + with_error(0.1, error), gain_error=0.001)
    assert tilted.error_of_gain(bare) == pytest.approx(error, rel=1e-12)
    assert choose_candidate([own, bare, tilted]) is (tilted if error == 0.03 else bare)
    # negative control: without its rows the error is not known, and LEAST_GAIN is all
    assert choose_candidate([own, bare, trial(tilted.score)]).lam == 1.0


def test_the_error_of_a_gain_is_that_of_the_mean_over_folds():
    rng = np.random.default_rng(1)
    some, other = ([
        HeldOutScore(rng.normal(size=n) + 3.0 * n, 0.5, 0.0, w / w.sum())
        for n, w in ((7, np.arange(1.0, 8.0)), (5, np.ones(5)))
    ] for _ in range(2))  # fmt: skip
    a, b = trial(folds=tuple(some)), trial(folds=tuple(other))
    gains = np.concatenate([p.values - q.values for p, q in zip(some, other, strict=True)])
    shares = np.concatenate([p.weights for p in some]) / 2
    of_weights = (shares**2 * (gains - shares @ gains) ** 2).sum() / (1.0 - (shares**2).sum())
    assert a.error_of_gain(b) == pytest.approx(math.sqrt(of_weights), rel=1e-14)
    assert a.error_of_gain(a) == 0.0
    assert a.error_of_gain(trial()) == 0.0
    assert scoring.effective_number(some) == pytest.approx(1.0 / (shares**2).sum(), rel=1e-14)


def test_folds_that_disagree_make_a_gain_uncertain():
    """All rows of a fold gain alike there, but the folds do not: their mean is uncertain."""
    means, quarters = (1.9, -0.7, 4.5), np.full(4, 0.25)
    folds = [HeldOutScore(np.full(4, mean), 0.5, 0.0, quarters) for mean in means]
    gains = np.repeat(means, 4)
    usual = gains.std(ddof=1) / math.sqrt(len(gains))
    assert scoring.standard_error(folds) == pytest.approx(usual, rel=1e-12)
    assert scoring.standard_error(folds[:1]) == 0.0  # negative control: one fold alone agrees
    lone = HeldOutScore(np.ones(1), 0.5, 0.0, np.ones(1))
    assert scoring.standard_error([lone]) == math.inf  # one row says nothing of its error


def test_the_normalizer_of_a_score_takes_the_mass_of_its_base_from_the_same_draws():
    """A constant exponent leaves a density as it is, also where few draws miss the base's mass."""
    x = np.random.default_rng(0).normal(size=(40, 8))
    split = Split.at(x, np.ones(40), np.arange(40) < 8)
    fold = scoring.Fold(GaussianBase.from_data(split.kept), split, split.kept, 5, 0)
    block = scoring.FoldFeatures(Features.draw(4, 1.0, np.eye(8), 0), fold, Threads())
    missed = scoring.logsumexp(fold.draws.log_ratios) - math.log(32)
    assert abs(missed) > 1e-3  # negative control: these draws do miss it
    found = block.score(np.full(8, 0.7), np.full(32, 0.7))
    np.testing.assert_allclose(found.values, fold.held_base, rtol=0, atol=1e-12)


def test_one_standard_error_takes_the_smoothest_that_is_near():
    """Larger lambda, then larger bandwidth; what is farther off does not count. Without: the
    best."""
    rows = np.random.default_rng(0).normal(-2.0, 1.0, 100)
    best = judged(rows)
    near = judged(rows - with_error(0.01, 0.02), 10.0)
    wide = judged(rows - with_error(0.015, 0.02), 10.0, gamma_multiple=2.0)
    smooth = judged(rows - with_error(0.03, 0.02), 100.0)  # by one and a half errors
    bare = trial(-9.0, math.inf)
    trials = [bare, smooth, near, best, wide]
    assert choose_candidate(trials) is best
    assert choose_candidate(trials, one_standard_error=True) is wide
    assert choose_candidate(trials[:-1], one_standard_error=True) is near
    assert choose_candidate([bare, smooth, best], one_standard_error=True) is best
    # a base alone that is as good as the best is taken in any case
    for rule in (False, True):
        assert choose_candidate([judged(rows, math.inf), best], one_standard_error=rule).lam > 1e9


def test_a_given_lambda_excludes_the_base_alone():
    """Which has another; it stands in only where nothing else is believed."""
    bare, tilted, lost = trial(-2.0, math.inf), trial(-2.5), trial(-math.inf)
    assert choose_candidate([bare, lost, tilted]) is bare
    assert choose_candidate([bare, lost, tilted], lam_is_open=False) is tilted
    assert choose_candidate([bare, lost], lam_is_open=False) is bare
    assert choose_candidate([bare], lam_is_open=False) is bare


def one_huge_weight(block):
    """Rows look splendid against a normalizer that one draw carries."""
    at_draws = np.zeros(len(block.fold.distances))
    at_draws[0] = 50.0
    return block.score(np.full(len(block.fold.held_base), 60.0), at_draws)


def mass_far_away(block):
    """Draws far from the data gain weight, all alike."""
    far = block.fold.distances > scoring.FAR_BANDWIDTHS * block.features.bandwidth
    assert 0.01 < far.mean() < 0.5
    return block.score(np.full(len(block.fold.held_base), 5.0), np.where(far, 3.0, 0.0))


@pytest.mark.parametrize(
    ("make", "guard", "off"),
    [(one_huge_weight, "LEAST_EFFECTIVE_SHARE", 0.0), (mass_far_away, "MOST_FAR_SHARE", 1.0)],
)
def test_scores_that_mislead_are_never_chosen(monkeypatch, make, guard, off):
    """Without the guard they would be."""
    monkeypatch.setattr(scoring, "LEAST_EFFECTIVE_SHARE", 1.5 / 2**8)
    block, space = make_block(gamma=0.25), SearchSpace(shapes={"data": np.eye(2)})
    search = selection.CandidateSearch(
        make_pilot(moons(240), np.ones(240)), space, n_features=30, seed=0, threads=ONE
    )
    search.folds = {"empirical": [block.fold]}
    bare = search.score_base("empirical")

    def choice():
        setting = FeatureSetting("data", 0.25)
        candidate = search.candidate("empirical", "fd", setting, [make(block)], lam=1.0)
        return candidate, choose_candidate([bare, candidate])

    candidate, chosen = choice()
    assert (candidate.score, candidate.error) == (-math.inf, math.inf)
    assert chosen is bare
    monkeypatch.setattr(scoring, guard, off)
    candidate, chosen = choice()
    assert candidate.score > bare.score + 1
    assert chosen is candidate


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["held", "draws"])
def test_values_that_are_not_finite_are_not_believed(bad, where):
    block = make_block()
    held, draws = (np.zeros(len(a)) for a in (block.fold.held_base, block.fold.distances))
    assert block.score(held, draws).is_reliable
    (held if where == "held" else draws)[3] = bad
    scored = block.score(held, draws)
    assert not scored.is_reliable
    assert scored.mean == -math.inf


def test_indefinite_matrices_are_not_believed():
    """Rounding may leave them so where lambda is tiny: the candidate is lost, not the fit."""
    block = make_block()
    system, b = block.sums.equations
    block.sums = block.sums._replace(equations=(system - 1e6 * np.eye(len(b)), b))
    assert np.isnan(block.fd((1.0,))).all()
    assert not block.score_fvpd(1.0, 1.0).is_reliable
    assert not any(s.is_reliable for s in block.score_thetas(block.fd((1.0, 2.0))))
    block = make_block()
    found = block.posterior((1.0, -1e6, 1.0))
    assert np.isfinite(found[:, 0]).all()
    assert np.isnan(found[:, 1:]).all()


# -- the Fisher score ------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", BASES)
def test_the_held_out_fisher_score_is_that_of_numerical_derivatives(kind, weighted):
    """Mean of |grad log q|^2 / 2 + laplacian log q over rows held out, less that of the base."""
    block = make_block(kind, weighted)
    fold, base = block.fold, block.fold.base
    thetas, x, h = block.fd((0.3, 100.0)), fold.split.held, 1e-3
    weights = fold.split.held_weights
    found = block.fisher_scores(thetas)
    assert found.shape == (2,)

    def score(log_q):
        gradient, laplacian, middle = 0.0, 0.0, log_q(x)
        for step in h * np.eye(2):
            up, down = log_q(x + step), log_q(x - step)
            gradient = gradient + ((up - down) / (2 * h)) ** 2
            laplacian = laplacian + (up - 2 * middle + down) / h**2
        return weights @ (0.5 * gradient + laplacian)

    for theta, got in zip(thetas.T, found, strict=True):
        def tilted(y, theta=theta):
            return oracle.phi(y, *parts(block.features)) @ theta + base.log_density_at(y)

        want = score(tilted) - score(base.log_density_at)
        # differences err by h^2 times fourth derivatives, which are |z / gamma|^2 times second ones
        assert got == pytest.approx(want, rel=1e-4, abs=1e-4 * np.abs(theta).sum())
        # and by the formula, exactly
        plain = oracle.fisher_objective_any(
            x, theta, *parts(block.features), 0.0, base.score_at(x), np.zeros(len(x)),
            weights,
        ) - 0.5 * weights @ np.square(base.score_at(x)).sum(axis=1)  # fmt: skip
        assert got == pytest.approx(plain, rel=1e-9)
    assert block.fisher_scores(np.full((30, 1), np.nan)) == [np.inf]


@pytest.mark.parametrize("given", [False, True])
def test_lambdas_that_the_fisher_score_sees_through_are_dropped(given, monkeypatch):
    """Not below the score of the base alone: too little data for so small a lambda. One that is
    given is compared all the same."""
    x = np.random.default_rng(0).standard_normal((60, 2))
    lams = (0.01, 10.0, 1e3)
    monkeypatch.setattr(selection, "PILOT_LAMS", lams)
    space = SearchSpace(
        bases=("empirical",), methods=("fd",), shapes={"identity": np.eye(2)}, gammas=(0.6,),
        lams=(0.01,) if given else None,
    )  # fmt: skip

    def run():
        pilot = make_pilot(x, np.ones(60))
        found = selection.select(pilot, space, n_features=30, seed=0, threads=ONE)
        return {t.lam: t.fisher for t in found.candidates if np.isfinite(t.lam)}, found

    kept, found = run()
    if given:
        assert list(kept) == [0.01]
        assert kept[0.01] > 0.0
        return
    assert 0.01 not in kept
    assert all(fisher < 0.0 for fisher in kept.values())
    assert all(np.isnan(t.fisher) for t in found.candidates if np.isinf(t.lam))
    # negative control: it was the screen
    monkeypatch.setattr(FoldFeatures, "fisher_scores", lambda self, t: np.full(t.shape[1], -1.0))
    assert set(run()[0]) == set(lams)


@pytest.mark.parametrize("fd", [True, False])
def test_where_nothing_passes_the_screen_the_slower_methods_stay_few(monkeypatch, fd):
    """Two settings whose Fisher scores are the least, not all of them: FD guides them, also where
    it is not a candidate."""
    scores = iter([4.0, 1.0, 3.0, 2.0])
    monkeypatch.setattr(
        FoldFeatures, "fisher_scores", lambda self, t: np.full(t.shape[1], next(scores))
    )
    x = moons(FEW_ROWS + 1)  # one fold
    space = SearchSpace(
        bases=("empirical",), methods=("fd", "fvpd", "map") if fd else ("fvpd", "map"),
        shapes={"data": np.eye(2), "identity": np.eye(2)},
    )  # fmt: skip
    pilot = make_pilot(x, np.ones(len(x)))
    found = selection.select(pilot, space, n_features=9, seed=0, threads=ONE)
    tried = {m: {(t.frequency_covariance, round(t.gamma_multiple, 9)) for t in found.candidates
                 if t.method == m and np.isfinite(t.lam)} for m in ("fd", "fvpd", "map")}
    assert tried["fd"] == set()
    assert tried["map"] == {("identity", 0.7), ("identity", 1.8)}
    assert tried["fvpd"] == ({("identity", 0.7)} if fd else tried["map"])


@pytest.mark.slow
def test_where_each_criterion_misleads():
    """Two moons, a bandwidth below Scott's, and a lambda to be chosen.

    The Fisher score compares slopes at the rows. Two densities that differ in how much mass they
    put on islands far from every row have the same slopes there, so that it cannot see islands:
    it takes a lambda so small that most of the mass is on them, and which gives rows that were
    held out less than a larger one does.

    The log-likelihood sees them, since mass on islands is lacking at the rows, but only through
    its normalizer. Few draws may miss narrow islands, though half of them are from a wider base
    (the 32 taken here do, alone of the first 60 sets of 32): then the density looks as if it had
    none, and the smallest lambda, whose islands are the narrowest, looks best though it is the
    worst. The effective share and the
    share of mass far away are means over the same draws and see no more than they do.

    With draws enough to meet islands, a draw on one of them outweighs thousands of others, which
    the effective share tells, and lies far from data, which the other share tells: such scores are
    not believed. What remains is ranked by log-likelihood, and the best of it is the best indeed.
    The Fisher score need only leave out what is worse than nothing.
    """
    n, lams = 3_000, (0.1, 1.0, 10.0, 100.0, 1e3)
    x = moons(n)
    split = Split.at(x, np.ones(n), assign_folds(n, 4) == 0)
    base = tgp.GaussianBase.from_data(split.kept)
    features = tgp.Features.draw(192, 0.7 * n ** (-1 / 6), np.eye(2), seed=0)

    def look(log2_draws, sums=None):
        fold = Fold(base, split, nearby=split.kept, log2_draws=log2_draws, seed=31)
        return FoldFeatures(features, fold, ONE, sums)

    few = look(5)
    thetas = few.fd(lams)

    def scores(block):
        return np.array([s.weights @ s.values for s in block.score_thetas(thetas)])

    honest = scores(look(15, few.sums))
    by_fisher = few.fisher_scores(thetas).argmin()
    by_few_draws = scores(few).argmax()
    many = look(13, few.sums)  # as many as the pilot takes
    believed = np.array([s.is_reliable for s in many.score_thetas(thetas)])
    by_both = max((k for k in range(len(lams)) if believed[k]), key=lambda k: scores(many)[k])
    assert (lams[by_fisher], lams[by_few_draws], lams[by_both]) == (1.0, 0.1, 10.0)
    assert by_both == honest.argmax()
    assert honest[by_fisher] < honest[by_both] - 0.5
    assert honest[by_few_draws] < honest[by_both] - 10.0
    assert scores(few)[by_few_draws] > honest[by_both]
    # either guard alone would tell the two that mislead, given the draws
    for k in (by_fisher, by_few_draws):
        scored = many.score_thetas(thetas[:, [k]])[0]
        assert scored.effective_share < scoring.LEAST_EFFECTIVE_SHARE
        assert scored.far_share > 0.5
    assert (few.fisher_scores(thetas) < 0.0).all()  # nothing that the screen would drop


# -- what was compared -----------------------------------------------------------------------------


def make_selection(best):
    trials = [
        trial(-1.0, 3.0), trial(-1.5, 1.0), trial(-1.7, math.inf, base="student"),
        trial(-2.0, math.inf), trial(-math.inf, 9.0, base="student"),
    ]  # fmt: skip
    return selection.Selection(trials[best], trials, 0.5)


@pytest.mark.parametrize(
    ("best", "alone", "scores"),
    [
        (0, False, [-1.0, -1.5, -1.7, -2.0]), (1, False, [-1.5, -1.0, -1.7, -2.0]),
        (2, True, [-1.7, -1.0, -1.5, -2.0]), (0, True, [-2.0, -1.0, -1.5, -1.7]),
    ],
)  # fmt: skip
def test_the_chosen_trial_comes_first_in_the_table(best, alone, scores):
    """Then the others, best first; scores are in the units of the data. Where the tilt was
    dropped later on, its base alone is the chosen one."""
    found = make_selection(best)
    settings = {
        "method": found.best.method, "lam": found.best.lam, "n_features": 30,
        "gamma": found.best.gamma_multiple * found.scott,
    }  # fmt: skip
    if alone:
        settings = {"method": "base"}
    rows = found.table(settings, [], 0.25)
    assert [row["score"] for row in rows] == [*(s - 0.25 for s in scores), -math.inf]
    assert [row["chosen"] for row in rows] == [True] + [False] * 4
    assert rows[0]["base"] == make_selection(best).best.base
    assert "folds" not in rows[0]


def test_settings_that_no_trial_had_are_a_row_of_their_own():
    """With the score of the refinement, or none where it did not score them."""
    found = make_selection(0)
    refined = [{"n_features": 60, "gamma": 0.1, "lam": 7.0, "score": -0.9}]
    settings = {"method": found.best.method, "lam": 7.0, "gamma": 0.1, "n_features": 60}
    for changed, score in (({}, -1.15), ({"lam": 8.0}, np.nan), ({"method": "other"}, np.nan)):
        rows = found.table({**settings, **changed}, refined, 0.25)
        assert len(rows) == 6
        assert rows[0]["chosen"]
        assert not any(row["chosen"] for row in rows[1:])
        assert rows[0]["lam"] == changed.get("lam", 7.0)
        assert rows[0]["gamma_multiple"] == pytest.approx(0.2)
        np.testing.assert_allclose(rows[0]["score"], score, rtol=0, atol=1e-12)


def test_the_best_tilt_of_a_base():
    """Bases alone, and scores that are not believed, do not count."""
    found = make_selection(2)
    assert found.best_tilt_of("empirical") is found.candidates[0]
    assert found.best_tilt_of("student") is None
    assert found.best_tilt_of("mixture") is None


# -- fit -------------------------------------------------------------------------------------------


def fit(x, **options):
    return tgp.fit(x, **{"n_features": 30, "seed": SEED, "n_threads": 1, **options})


NARROW = {"method": "fd", "base": "empirical", "frequency_covariance": "identity"}  # quicker


def uniform_rows(n, seed=2):
    return np.random.default_rng(seed).uniform(0.0, 1.0, (n, 2))


def exponential_rows(n=600):
    """Edges leave something to do for a tilt of a mixture."""
    return np.random.default_rng(0).exponential(size=(n, 2))


def chosen_of(model):
    (row,) = (row for row in model.selection if row["chosen"])
    return row


@pytest.mark.parametrize("alone", [False, True])
def test_all_is_chosen_and_recorded(monkeypatch, alone):
    """A mixture, tilted for one sample, and alone for another, where it may grow."""
    if alone:
        ample = dataclasses.replace(QUICK, growth_work=1e10)
        monkeypatch.setattr(Budget, "for_rows", lambda effort, n_rows, d: ample)
    model = fit(datasets.pinwheel(300, seed=0) if alone else exponential_rows())
    settings, row = model.settings, chosen_of(model)
    assert settings["selected"] is True
    assert settings["auto"] == sorted(set(FALLBACK) - {"n_features"})
    assert settings["gamma_rule"] == (None if alone else "selected")
    assert math.isinf(row["lam"]) is alone
    assert settings["base"] == row["base"]
    assert settings["frequency_covariance"] == (None if alone else row["frequency_covariance"])
    assert settings["method"] == row["method"]  # "base" where that is alone
    assert settings["lam"] == (None if alone else row["lam"])
    assert model.method == settings["method"]
    assert model.selection[0] is row
    scores = [r["score"] for r in model.selection[1:]]
    assert scores == sorted(scores, reverse=True)
    names = {f.name for f in dataclasses.fields(Candidate)} - {"folds"} | {"chosen"}
    assert all(set(r) == names for r in model.selection)
    assert {r["base"] for r in model.selection} == set(SearchSpace.bases)
    assert {r["method"] for r in model.selection} >= {"fd", "map"}
    assert {r["frequency_covariance"] for r in model.selection} == set(FREQUENCY_SHAPES)


GIVEN_SHAPE = np.array([[1.5, 0.2], [0.2, 0.5]])
RESPECTED = [
    ("method", "fd"), ("method", "map"), ("method", "fvpd"), ("method", "ncfd"), ("lam", 3.0),
    ("gamma", 0.6), ("gamma", "scott"), ("eta", 2.0), ("eta", "1/gamma2"), ("base", "student"),
    ("base", "mixture"), ("base", "empirical"), ("frequency_covariance", "identity"),
    ("frequency_covariance", GIVEN_SHAPE), ("n_features", 17),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), RESPECTED)
def test_what_is_given_is_respected(name, value):
    """In the candidates and in the model; all else is open."""
    x = exponential_rows() if name == "method" else moons(200)  # each method tilts a base of those
    x = uniform_rows(300) if isinstance(value, str) and value == "ncfd" else x
    others = {} if name in ("base", "method") else {"base": "empirical"}  # which is quicker
    model = fit(x, **{name: value}, **others)
    settings = model.settings
    given = {name, "n_features", *others}
    assert settings["selected"] is True
    assert settings["auto"] == sorted(set(FALLBACK) - given)
    tilted = [row for row in model.selection if np.isfinite(row["lam"])]
    assert tilted
    if name == "frequency_covariance":
        word = value if isinstance(value, str) else "given"
        assert settings[name] == word
        assert {row[name] for row in tilted} == {word}
        want = np.eye(2) if isinstance(value, str) else value
        np.testing.assert_array_equal(model.features.covariance, want)
    elif name == "gamma":
        assert settings["gamma_rule"] == ("scott" if value == "scott" else "given")
        assert len({row["gamma_multiple"] for row in tilted}) == 1
        if value == "scott":
            assert tilted[0]["gamma_multiple"] == pytest.approx(1.0, rel=1e-12)
        else:
            assert model.features.bandwidth == value
    elif name == "eta":
        tempered = {(r["base"], r["eta_multiple"]) for r in tilted if r["method"] == "fvpd"}
        assert len(tempered) == len({base for base, _ in tempered}) > 0
    else:
        assert settings[name] == value
        if name == "method":
            assert {row["method"] for row in tilted} == {"fd" if value == "ncfd" else value}
        elif name != "n_features":
            assert {row[name] for row in tilted} == {value}


@pytest.mark.parametrize("eta", [2.0, "1/gamma2"])
def test_a_given_eta_is_what_is_compared(eta):
    """And what FVPD is learned with."""
    model = fit(moons(200), method="fvpd", eta=eta, base="empirical")
    gamma = model.features.bandwidth
    assert model.settings["eta"] == pytest.approx(gamma**-2 if eta == "1/gamma2" else eta)
    row = chosen_of(model)
    assert np.isfinite(row["lam"])  # one Gaussian is not enough for two moons
    assert row["eta_multiple"] == pytest.approx(1.0 if eta == "1/gamma2" else eta * gamma**2)


def test_an_open_eta_is_chosen():
    model = fit(moons(300), method="fvpd", base="empirical")
    row = chosen_of(model)
    assert np.isfinite(row["lam"])  # one Gaussian is not enough for two moons
    tried = {round(r["eta_multiple"], 9) for r in model.selection if np.isfinite(r["lam"])}
    assert tried == set(selection.ETA_MULTIPLES)
    want = row["eta_multiple"] / model.features.bandwidth**2
    assert model.settings["eta"] == pytest.approx(want, rel=1e-12)


def test_all_given_means_no_selection(monkeypatch):
    """The data are not looked at; n_features and an eta that nothing needs do not count."""

    def never(*args, **options):
        raise AssertionError("nothing is open")

    monkeypatch.setattr(choosing, "select", never)
    for options in (FIXED, {**FIXED, "eta": "auto"}):
        model = tgp.fit(moons(100), **options, n_features="auto", n_threads=1)
        assert model.selection is None
        assert model.settings["selected"] is False
        assert "n_features" in model.settings["auto"]
    with pytest.raises(AssertionError, match="nothing is open"):
        tgp.fit(moons(100), **{**FIXED, "method": "fvpd", "eta": "auto"})


@pytest.mark.slow
def test_a_given_lambda_stays_where_the_base_would_win():
    """A normal sample: the base alone is best, but lambda is given; the best with it is taken."""
    x = np.random.default_rng(4).standard_normal((300, 2))
    assert math.isinf(chosen_of(fit(x))["lam"])
    model = fit(x, lam=2.0)
    row = chosen_of(model)
    assert (row["lam"], model.settings["lam"]) == (2.0, 2.0)
    assert row["score"] == max(r["score"] for r in model.selection if np.isfinite(r["lam"]))
    assert model.features.bandwidth == pytest.approx(
        row["gamma_multiple"] * 300 ** (-1 / 6), rel=1e-6
    )


@pytest.mark.parametrize("method", [slow("fvpd"), "ncfd", slow("map")])
def test_bases_go_with_the_method(method):
    """Heavy tails have no FVPD: that base is no candidate then, though it would win."""
    x = tgp.StudentBase([0.0, 0.0], np.eye(2), 3.0).draw(400, np.random.default_rng(0))
    model = fit(x, method=method)
    assert model.method == ("base" if np.isinf(chosen_of(model)["lam"]) else method)
    tilts = {row["method"] for row in model.selection} - {"base"}
    assert tilts == {"fd" if method == "ncfd" else method}
    found = {row["base"] for row in model.selection}
    assert found == {"fvpd": {"empirical", "mixture"}, "ncfd": {"empirical"},
                     "map": set(SearchSpace.bases)}[method]  # fmt: skip
    if method == "map":
        assert chosen_of(model)["base"] == "student"


@pytest.mark.parametrize("method", [slow("fd"), slow("fvpd"), "map", "ncfd"])
def test_the_base_alone_by_any_method(method):
    """The density is the base's; there is no lambda, no bandwidth and no feature to report."""
    x = np.random.default_rng(4).standard_normal((300, 2))
    model = fit(x, method=method, base="empirical")
    assert math.isinf(chosen_of(model)["lam"])
    assert model.method == model.settings["method"] == "base"
    assert [model.settings[name] for name in ("lam", "gamma", "eta")] == [None] * 3
    assert model.settings["n_features"] == 0
    assert not {"lam_raised_from", "method_before_verification"} & set(model.settings)
    assert model.log_normalizer.value == 0.0
    want = tgp.GaussianBase.from_data(x).log_density(x)
    assert np.abs(model.log_density(x) - want).max() < 1e-12  # the tilt is zero


@pytest.mark.parametrize(
    ("n", "most"),
    [(40, 500), (500, 500), (501, 1000), (3_000, 1000), (3_001, 2000), (49_999, 2000),
     (50_000, 1000), (None, 1000)],
)  # fmt: skip
def test_how_many_features_there_may_be(n, most):
    """Few rows take all of these; of many it is settled later how many are kept. A stream that
    does not say how long it is may be long."""
    assert choosing.most_features(n) == most


def test_few_rows_take_enough_features():
    model = fit(moons(200), n_features="auto", **NARROW)
    assert np.isfinite(chosen_of(model)["lam"])
    assert model.features.n_features == model.settings["n_features"] == 500
    assert "n_features" in model.settings["auto"]
    assert "lam_tried" not in model.settings  # no row could be spared


def test_the_base_alone_takes_the_fewest_features():
    x = np.random.default_rng(4).standard_normal((300, 2))
    model = fit(x, n_features="auto", **NARROW)
    assert model.method == "base"
    assert model.settings["n_features"] == 0
    # those of the sums that `update` adds to
    assert model.features.n_features == refinement.FEATURE_COUNTS[0]


@pytest.mark.parametrize(
    ("covariance", "shapes"),
    [
        ([[4.0]], ["data"]), (np.eye(3), ["data"]), (5.0 * np.eye(2), ["data"]),
        ([[1.0, 0.3], [0.3, 1.0]], ["data", "identity", "precision"]),
        (np.diag([1.0, 2.0]), ["data", "identity", "precision"]),
    ],
)  # fmt: skip
def test_shapes_that_are_equal_are_tried_once(covariance, shapes):
    assert list(choosing.frequency_shapes(Settings(), np.array(covariance))) == shapes


def test_one_column_has_one_shape():
    x = np.random.default_rng(0).exponential(1.0, (200, 1))
    model = fit(x, base="empirical", method="fd")
    tilted = {r["frequency_covariance"] for r in model.selection if np.isfinite(r["lam"])}
    assert tilted == {"data"}


@pytest.fixture
def looks_again(monkeypatch):
    """As if 200 rows were many, and a few features too."""
    for module in (folds, sample_split, choosing):
        monkeypatch.setattr(module, "FEW_ROWS", 200)
    for module in (refinement, choosing, random_features):
        monkeypatch.setattr(module, "FEATURE_COUNTS", (10, 20, 40))
    monkeypatch.setattr(refinement, "REFINEMENT_LOG2_DRAWS", 10)
    monkeypatch.setattr(refinement, "COMPARED_FEATURES", 20)
    # the gain of so few rows is small; how much is asked for is tested elsewhere
    monkeypatch.setattr(selection, "required_gain_errors", lambda n_rows: 2.0)


@pytest.mark.parametrize(
    ("method", "n_features"), [("fd", "auto"), ("fd", 17), slow("map", "auto")]
)
def test_the_refinement_is_recorded(looks_again, method, n_features):
    """What it tried, and that the model has what it found."""
    x = moons(600)
    model = fit(x, **{**NARROW, "method": method}, n_features=n_features)
    settings, tried = model.settings, model.settings["lam_tried"]
    names = {"n_features", "gamma", "lam", "score", "effective_share", "far_share"}
    assert all(set(row) == names for row in tried)
    json.dumps(tried)
    assert settings["n_features"] == model.features.n_features
    assert settings["gamma"] == model.features.bandwidth
    of_model = [row for row in tried if row["gamma"] == settings["gamma"]]
    if n_features == 17:
        assert {row["n_features"] for row in tried} == {17}
    else:
        assert settings["n_features"] in (10, 20, 40)
    best = max(of_model, key=lambda row: row["score"])
    assert settings["lam"] == best["lam"]
    widths = {row["gamma"] for row in tried}
    if method == "map":  # whose sums are cheap for any bandwidth
        assert len(widths) > 1
    else:
        assert widths == {settings["gamma"]}
        assert {row["lam"] for row in tried} == set(random_features.PILOT_LAMS)


def takes_the_base_alone(monkeypatch):
    """As if no tilt had been good enough for the pilot."""
    plain = choosing.select

    def bare(*args, **options):
        found = plain(*args, **options)
        alone = next(t for t in found.candidates if np.isinf(t.lam))
        return dataclasses.replace(found, best=alone)

    monkeypatch.setattr(choosing, "select", bare)


@pytest.mark.parametrize("errors", [2.0, 1e9])
def test_all_rows_may_prefer_a_tilt_to_the_base_alone(looks_again, monkeypatch, errors):
    """The best tilt that the pilot saw; it must gain RECONSIDERED_ERRORS standard errors."""
    assert choosing.RECONSIDERED_ERRORS == 2.0
    takes_the_base_alone(monkeypatch)
    monkeypatch.setattr(choosing, "RECONSIDERED_ERRORS", errors)
    model = fit(moons(1_200), **NARROW, n_features=40)
    assert len(model.settings["lam_tried"]) == len(random_features.PILOT_LAMS)
    row = chosen_of(model)
    assert model.selection[0] is row
    if errors == 2.0:
        assert model.method == "fd"
        assert row["score"] == max(r["score"] for r in model.selection if np.isfinite(r["lam"]))
    else:
        assert model.method == "base"
        assert np.isinf(row["lam"])


def test_few_rows_leave_the_base_alone(looks_again, monkeypatch):
    """None of them can be held out once more. A lambda that is given is not reconsidered."""
    takes_the_base_alone(monkeypatch)
    model = fit(moons(200), **NARROW, n_features=40)
    assert model.method == "base"
    assert "lam_tried" not in model.settings
    assert fit(moons(400), **NARROW, n_features=40, lam=3.0).settings["lam"] == 3.0


def test_a_given_bandwidth_is_not_looked_at_again(looks_again):
    model = fit(moons(400), **{**NARROW, "method": "map"}, gamma=0.5, n_features="auto")
    assert model.features.bandwidth == 0.5
    assert {row["gamma"] for row in model.settings["lam_tried"]} == {0.5}


def test_a_spectrum_serves_the_refinement(looks_again, monkeypatch):
    """Many rows in two columns: bandwidths are read off it, and so are the statistics."""
    pytest.importorskip("finufft")
    monkeypatch.setattr(required_sums, "MANY_ROWS", 500)
    model = fit(moons(600), **NARROW, n_features=20)
    assert model.settings["provenance"]["engine"] == "spectrum"
    assert len({row["gamma"] for row in model.settings["lam_tried"]}) > 1
    assert model.settings["gamma"] == model.features.bandwidth


@pytest.mark.parametrize("rule", [False, True])
def test_one_standard_error_is_passed_on(looks_again, monkeypatch, rule):
    """To the pilot and to the refinement; and recorded."""
    asked = []

    def heard(function, rule_of):
        def call(*args, **options):
            asked.append(rule_of(*args, **options))
            return function(*args, **options)

        return call

    select = heard(choosing.select, lambda *args, **options: options["one_standard_error"])
    monkeypatch.setattr(choosing, "select", select)
    for name in ("refine_bandwidth", "refine_size_and_lambda"):
        plain = getattr(refinement.Refinement, name)
        rule_of = lambda self, *args, **options: self.one_standard_error  # noqa: E731
        monkeypatch.setattr(refinement.Refinement, name, heard(plain, rule_of))
    model = fit(moons(400), **{**NARROW, "method": "map"}, one_standard_error=rule)
    assert model.settings["one_standard_error"] is rule
    assert asked == [rule] * 3


@pytest.mark.slow
def test_one_standard_error_is_smoother(monkeypatch):
    """Few rows, that cannot tell lambdas apart: never less smooth, whatever the rows, and for some
    of them more."""
    monkeypatch.setattr(selection, "PILOT_LAMS", tuple(10.0 * 2.0 ** np.arange(7)))
    smoother = 0
    for seed in range(8):
        x = np.random.default_rng(seed).exponential(1.0, (200, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one Gaussian does not suit these rows
            best, smooth = (
                chosen_of(fit(x, **NARROW, one_standard_error=r)) for r in (False, True)
            )
        some, more = ((row["lam"], row["gamma_multiple"]) for row in (best, smooth))
        assert more >= some
        if more > some:
            smoother += 1
            assert best["score"] - best["error"] < smooth["score"] < best["score"]
    assert smoother > 0


def test_one_shot_iterators_get_fixed_settings():
    """They cannot be looked at beforehand; blocks that can be read again are."""
    x = moons(200)
    moments = (len(x), x.mean(axis=0), np.cov(x.T, bias=True))
    model = fit(iter([x[:90], x[90:]]), moments=moments)
    assert model.settings["selected"] is False
    assert model.selection is None
    for name in ("method", "lam", "base", "frequency_covariance"):
        assert model.settings[name] == FALLBACK[name]
    assert model.settings["gamma_rule"] == "scott"
    assert model.settings["auto"] == sorted(set(FALLBACK) - {"n_features"})


@pytest.mark.slow
def test_blocks_that_can_be_read_again_are_looked_at():
    """A list and a callable give what their rows as an array do, up to lambda's second choice."""
    x, w = moons(200), weights_of(200)
    want = fit(x, sample_weight=w, base="empirical").selection
    blocks = [(x[:90], w[:90]), (x[90:], w[90:])]
    for source in (blocks, lambda: iter(blocks)):
        model = fit(source, base="empirical")
        assert model.settings["selected"] is True
        assert_same_trials(model.selection, want, rtol=1e-6)


def assert_same_trials(some, others, rtol=0.0):
    """The same candidates with the same scores; equal scores may change places."""
    def keyed(rows):
        return {(r["base"], r["method"], r["frequency_covariance"], f"{r['gamma_multiple']:.6g}",
                 r["lam"], f"{r['eta_multiple']:.6g}"): r for r in rows}  # fmt: skip

    mine, theirs = keyed(some), keyed(others)
    assert set(mine) == set(theirs)
    for key, row in mine.items():
        assert row["score"] == pytest.approx(theirs[key]["score"], rel=rtol, abs=rtol)
        assert row["chosen"] == theirs[key]["chosen"]


FEW_ROWS_TEXT = "rows differ"


@pytest.mark.parametrize("n", [LEAST_PILOT_ROWS - 1, LEAST_PILOT_ROWS])
def test_few_rows_get_fixed_settings(n):
    if n < LEAST_PILOT_ROWS:
        with pytest.warns(tgp.FallbackWarning, match=FEW_ROWS_TEXT):
            model = fit(moons(n))
    else:
        model = fit(moons(n))  # warnings are errors
    assert model.settings["selected"] is (n >= LEAST_PILOT_ROWS)
    assert np.isfinite(model.log_density(moons(n))).all()


@pytest.mark.parametrize("n_distinct", [5, LEAST_PILOT_ROWS - 1])
def test_few_rows_repeated_are_those_rows_once(n_distinct):
    """Else ten atoms, fifty times each, had a log density of -20 at the atoms."""
    x = moons(n_distinct)
    # by default the base stays alone: see test_few_rows.py
    with pytest.warns(tgp.FallbackWarning, match=FEW_ROWS_TEXT):
        once = fit(x, method="fd")
    few = pytest.warns(tgp.FallbackWarning, match=FEW_ROWS_TEXT)
    with pytest.warns(RuntimeWarning, match="repeats values"), few:
        often = fit(np.tile(x, (50, 1)), method="fd")
    assert often.settings["lam"] == pytest.approx(50.0 * FALLBACK["lam"])
    assert often.settings["gamma"] == pytest.approx(once.settings["gamma"])
    # the same sums times 50 under 50 times lambda: equal but for the rounding of a solve
    np.testing.assert_allclose(often.log_density(x), once.log_density(x), rtol=1e-7)
    with pytest.warns(RuntimeWarning, match="repeats values"):
        given = fit(np.tile(x, (50, 1)), lam=FALLBACK["lam"], gamma="scott")
    assert given.settings["lam"] == FALLBACK["lam"]
    assert given.settings["gamma"] < often.settings["gamma"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tgpfast.FallbackWarning")  # of few rows
def test_rows_without_weight_do_not_count():
    """Not even where they are all that is held out."""
    x, w = moons(300), np.tile([1.0, 1.0, 1.0, 0.0], 75)
    options = {"base": "empirical"}
    weighted, without = fit(x, sample_weight=w, **options), fit(x[w > 0], **options)
    assert_same_trials(weighted.selection, without.selection, rtol=1e-6)
    assert weighted.settings["lam"] == without.settings["lam"]
    few = np.zeros(300)
    few[: LEAST_PILOT_ROWS - 1] = 1.0
    assert fit(x, sample_weight=few).settings["selected"] is False


@pytest.mark.slow
def test_weights_are_rows():
    """A weight of 2 is the row twice, for the score of every base alone."""
    x, w = moons(120), np.tile([1.0, 2.0, 1.0, 1.0, 2.0], 24)
    options = {"base": "empirical", "normalize_weights": False}
    weighted, plain = fit(x, sample_weight=w, **options), fit(x, **options)
    (alone,) = (r for r in weighted.selection if math.isinf(r["lam"]))
    scores = []
    deviation = np.sqrt(w @ (x - w @ x / w.sum()) ** 2 / w.sum())
    u = (x - w @ x / w.sum()) / deviation
    for held in held_out_masks(120):
        base = tgp.GaussianBase.from_data(np.repeat(u[~held], w[~held].astype(int), axis=0))
        scores.append(base.log_density(np.repeat(u[held], w[held].astype(int), axis=0)).mean())
    assert alone["score"] == pytest.approx(np.mean(scores) - np.log(deviation).sum(), rel=1e-10)
    (unweighted,) = (r for r in plain.selection if math.isinf(r["lam"]))
    assert abs(unweighted["score"] - alone["score"]) > 1e-6


@pytest.mark.slow
def test_rows_that_span_too_little_without_a_fold():
    """A column that one row alone moves, or barely more rows than columns: fixed settings."""
    x = moons(100)
    x[:, 1] = 0.0
    x[17, 1] = 1.0
    with pytest.warns(RuntimeWarning, match="column 1 holds whole numbers"):
        assert fit(x).settings["selected"] is False
    wide = np.random.default_rng(0).standard_normal((45, 40))
    assert fit(wide).settings["selected"] is False


@pytest.mark.parametrize("base", ["learned", slow("scaled")])
def test_lambda_for_bases_that_are_made_later(base):
    """Settings are chosen for the empirical base, of which another is made."""
    model = fit(moons(300), base=base, method="fd")
    assert model.settings["base"] == base
    assert {row["base"] for row in model.selection} == {"empirical"}
    assert "lam" in model.settings["auto"]
    assert np.isfinite(model.log_density(moons(50, seed=1))).all()


def test_a_base_that_is_given():
    """It is in the units of the data, and so are the scores."""
    x = 5.0 + 3.0 * moons(300)
    base = tgp.GaussianBase([5.0, 5.0], 9.0 * np.eye(2))
    model = fit(x, base=base)
    assert {row["base"] for row in model.selection} == {"given"}
    assert model.settings["base"] == "given"
    (alone,) = (r for r in model.selection if math.isinf(r["lam"]))
    means = [base.log_density(x[held]).mean() for held in held_out_masks(300)]
    assert alone["score"] == pytest.approx(np.mean(means), rel=1e-10)


@pytest.mark.parametrize("scale", [slow("none"), "center", "standardize"])
def test_scales(scale):
    """Multiples of Scott's bandwidth go with the units."""
    model = fit(100.0 + 7.0 * moons(200), scale=scale, base="empirical", method="fd")
    row, unit = chosen_of(model), 1.0 if scale == "standardize" else 7.0
    assert np.isfinite(row["lam"])
    want = row["gamma_multiple"] * unit * 200 ** (-1 / 6)
    assert model.features.bandwidth == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("n_features", [0, -1, 2.5, "many", None, True])
def test_numbers_of_features_are_judged_first(n_features):
    with pytest.raises(ValueError, match=r"n_features=.*expected an integer of at least 1"):
        tgp.fit(moons(100), n_features=n_features)


def samples_of(name, n, seed):
    rng = np.random.default_rng(seed)
    return {
        "moons": lambda: datasets.two_moons(n, seed=seed),
        "tails": lambda: rng.standard_t(2.0, (n, 2)),
        "square": lambda: rng.uniform(0.0, 1.0, (n, 2)),
        "line": lambda: rng.exponential(1.0, (n, 1)),
    }[name]()


@pytest.mark.parametrize("n", [60, 400])
@pytest.mark.parametrize("name", [slow("moons"), "tails", slow("square"), slow("line")])
def test_never_worse_than_the_gaussian(name, n):
    """On rows not seen, up to three standard errors of the difference, row by row, and one of those
    that the choice was made from, which cannot tell less apart."""
    train, test = samples_of(name, n, 1), samples_of(name, 2_000, 2)
    model = fit(train)
    gain = model.log_density(test) - tgp.GaussianBase.from_data(train).log_density(test)
    error = gain.std() * (3.0 / math.sqrt(len(gain)) + 1.0 / math.sqrt(n))
    assert gain.mean() >= -error - 1e-13  # of rounding, where the two are the same
    if name == "moons" and n == 400:
        assert gain.mean() > 0.3


def over_the_base(n, d):
    """What was chosen for n rows of a normal sample, and its gain over its base on others."""
    rng = np.random.default_rng([n, d])
    mix = rng.standard_normal((d, d))
    train, test = rng.standard_normal((n, d)) @ mix, rng.standard_normal((2_000, d)) @ mix
    model = fit(train)
    base = model.base.log_density(model.scaling.apply(test)) - np.log(model.scaling.scale).sum()
    return chosen_of(model), model.log_density(test) - base


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [slow(60), 150, slow(400)])
def test_normal_samples_have_no_tilt_to_find(n, d):
    """The base alone is taken, or what is lost to it on rows not seen is within the error of what
    seemed to be gained."""
    row, gain = over_the_base(n, d)
    if np.isinf(row["lam"]):
        assert np.abs(gain).max() < 1e-6
    else:
        assert gain.mean() >= -row["gain_error"]


@pytest.mark.slow
def test_a_tilt_must_beat_its_error_or_it_would_lose(monkeypatch):
    """Negative control, on the samples of the test above: the best of many candidates is above the
    base by luck alone; on rows not seen all of them lose, and some by more than their error."""
    monkeypatch.setattr(selection, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(selection, "required_gain_errors", lambda n_rows: 0.0)
    monkeypatch.setattr(selection, "CAREFUL_ROWS", 0)
    found = [over_the_base(n, d) for n in (60, 150, 400) for d in (1, 2, 3)]
    lost = [(gain.mean(), row["gain_error"]) for row, gain in found if np.isfinite(row["lam"])]
    assert len(lost) > 4
    assert sum(gain for gain, _ in lost) < 0.0
    assert any(gain < -error for gain, error in lost)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model():
    x = moons(200)
    first, again, other = (fit(x, base="mixture", seed=seed) for seed in (1, 1, 2))
    assert json.dumps(first.selection) == json.dumps(again.selection)
    np.testing.assert_array_equal(first.log_density(x), again.log_density(x))
    assert json.dumps(first.selection) != json.dumps(other.selection)


@pytest.mark.parametrize(
    ("base", "method"),
    [slow("empirical", "auto"), slow("mixture", "fd"), ("student", "map"), slow("mixture", "fvpd")],
)
@pytest.mark.slow
def test_threads_change_nothing(looks_again, base, method):
    """Not a bit, with the direct engine: scores, the refinement, and the model."""
    options = {"base": base, "method": method, "frequency_covariance": "identity",
               "n_features": "auto", "engine": "direct"}  # fmt: skip
    if base == "mixture":  # which leaves so little to a tilt that "auto" takes the base alone
        options["lam"] = 10.0
    x = datasets.pinwheel(300, seed=0)
    one, two = (fit(x, **options, n_threads=count) for count in (1, 2))
    assert one.method != "base"
    assert json.dumps(one.selection) == json.dumps(two.selection)
    assert json.dumps(one.settings["lam_tried"]) == json.dumps(two.settings["lam_tried"])
    for name in ("method", "base", "lam", "gamma", "eta", "frequency_covariance", "n_features"):
        assert one.settings[name] == two.settings[name]
    np.testing.assert_array_equal(one.log_density(x), two.log_density(x))


@pytest.mark.slow
def test_what_was_compared_is_saved(tmp_path):
    model = fit(moons(200))
    model.save(tmp_path / "model.npz")
    back = tgp.load(tmp_path / "model.npz")
    assert json.dumps(back.selection) == json.dumps(model.selection)  # as text, nan equals nan
    fixed = tgp.fit(moons(100), **FIXED, n_features=5)
    fixed.save(tmp_path / "fixed.npz")
    assert tgp.load(tmp_path / "fixed.npz").selection is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:this fit is unreliable")  # no smooth density has such columns
@pytest.mark.filterwarnings("ignore::tgpfast.FallbackWarning")  # of few rows
def test_repeated_rows_do_not_reward_spikes_at_them():
    """Rows on a lattice are compared as distinct ones; too few of these get fixed settings."""
    rng = np.random.default_rng(0)
    for side, selected in ((4, False), (5, True)):
        with pytest.warns(RuntimeWarning, match="holds whole numbers"):
            few = fit(rng.integers(0, side, (400, 2)).astype(float))
        assert few.settings["selected"] is selected
        between = few.log_density([[1.5, 2.5]]) - few.log_density([[2.0, 2.0]])
        assert abs(between[0]) < 5.0  # a mixture with a spike at every point: thousands
    x = rng.standard_normal((50, 2))
    twice = np.concatenate([x, x[:20]])
    rows, weights = folds.distinct_rows((twice, None))
    np.testing.assert_array_equal(rows, x)
    np.testing.assert_array_equal(weights, np.r_[np.full(20, 2.0), np.ones(30)])
    rows, weights = folds.distinct_rows((x, None))
    assert rows is x
