"""Settings chosen from the data: the scores, the guards, and what `fit` does with the answers."""

import dataclasses
import json
import math
import sys

import numpy as np
import oracle
import pytest
from conftest import FIXED

import tgpfast as tgp
from tgpfast import datasets, selection
from tgpfast.fit import AUTO, LEAST_ROWS
from tgpfast.normals import logsumexp
from tgpfast.selection import Question, Trial
from tgpfast.threads import Threads

# as in test_bases: solutions err by the condition times 1e-15, and 30 is for the length of the sums
FACTOR = 30e-15
BASES = ("gaussian", "mixture", "student")
SEED = 3
ONE = Threads(n_threads=1)  # blocks are small here


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few draws and candidates: what is tested does not depend on how many there are."""
    for name, value in {
        "LOG2_DRAWS": 9, "LOG2_FINAL": 10, "SCREEN_FEATURES": 16, "MULTIPLES": (0.7, 1.8),
        "LAMS": (1.0, 10.0, 100.0, 1e3), "MAP_LAMS": (10.0, 1.0),
    }.items():  # fmt: skip
        monkeypatch.setattr(selection, name, value)


def moons(n=300, seed=0):
    x = datasets.two_moons(n, seed=seed)
    return (x - x.mean(axis=0)) / x.std(axis=0)


def weights_of(n, weighted=True):
    return np.random.default_rng(7).uniform(0.5, 2.0, n) if weighted else np.ones(n)


def make_base(kind, x, w):
    if kind == "mixture":
        return tgp.MixtureBase._by_em(x, w, 3, 0)
    return tgp.StudentBase._by_em(x, w) if kind == "student" else tgp.GaussianBase.from_data(
        x, sample_weight=w
    )


def make_fold(kind="gaussian", weighted=True, n=240):
    x, w = moons(n), weights_of(n, weighted)
    held = selection.held_out(n)[1]
    base = make_base(kind, x[~held], w[~held])
    draws, nodes = base._sobol(8, 11), base._sobol(8, 12)
    return selection._Fold(
        base, x[~held], x[held], w[~held], w[held] / w[held].sum(), draws, nodes,
        base._log_density(x[held]), selection.distances_to(x[~held], draws),
    )  # fmt: skip


def make_block(kind="gaussian", weighted=True, S=30, gamma=0.6):
    features = tgp.Features.draw(S, gamma, np.eye(2), seed=SEED)
    return selection._Block(features, make_fold(kind, weighted), ONE)


def parts(features):
    return features.frequencies, features.phases, features.bandwidth


def condition(block, lam):
    shift = lam * block.features.bandwidth**2
    return np.linalg.cond(block.system + shift * np.eye(len(block.b)))


def statistics_of(block):
    fold = block.fold
    return tgp.accumulate(
        fold.kept, block.features, sample_weight=fold.kept_weights, origin=fold.base.mean,
        base=fold.base, engine="direct", precision="float64",
    )  # fmt: skip


def trial(score=0.0, lam=1.0, **other):
    return Trial(**{
        "base": "empirical", "method": "fd", "frequency_covariance": "data", "gamma_multiple": 1.0,
        "eta_multiple": math.nan, "error": 0.1, "effective_share": 0.5,
    } | other, score=score, lam=lam)  # fmt: skip


# -- one fold --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", BASES)
def test_fd_of_a_block_is_fd_of_its_statistics(kind, weighted):
    """theta is that of ``solve`` and that of the formulas, for every lambda."""
    block, lams = make_block(kind, weighted), (0.3, 10.0, 1e3)
    stats, fold = statistics_of(block), block.fold
    score = fold.base._score(fold.kept)
    thetas = block.fd(lams)
    assert thetas.shape == (30, 3)
    for theta, lam in zip(thetas.T, lams, strict=True):
        bound = FACTOR * condition(block, lam) * np.abs(theta).max()
        solved = tgp.solve(stats, fold.base, "fd", lam=lam).theta
        plain = oracle.theta_fd_any(
            fold.kept, *parts(block.features), lam, score, fold.kept_weights
        )
        assert np.abs(theta - solved).max() <= bound
        assert np.abs(theta - plain).max() <= bound


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_fvpd_of_a_block_is_fvpd_of_its_statistics(kind, weighted):
    """Values of held-out rows are those of ``solve``, less log Z from the fold's own draws."""
    block = make_block(kind, weighted)
    fold, lam, eta = block.fold, 5.0, 2.0
    model = tgp.solve(statistics_of(block), fold.base, "fvpd", lam=lam, eta=eta)
    at_draws = model.log_density(fold.draws, normalized=False) - fold.base._log_density(fold.draws)
    log_z = logsumexp(at_draws) - math.log(len(at_draws))
    want = model.log_density(fold.held, normalized=False) - log_z
    scored = block.fvpd(lam, eta)
    # M is lam or more everywhere; phi^T M^-1 m is a sum of S terms
    bound = FACTOR * np.linalg.cond(model.M) * max(1.0, np.abs(at_draws).max())
    assert np.abs(scored.values - want).max() <= bound
    assert scored.weights is fold.held_weights
    # negative control: another eta is another density
    assert np.abs(block.fvpd(lam, 2 * eta).values - want).max() > 1e6 * bound


@pytest.mark.parametrize("kind", BASES)
def test_the_posterior_of_a_block_is_a_maximum(kind):
    """What a further Newton step would gain is below the gain that ends the iteration."""
    block, lams = make_block(kind), (100.0, 10.0, 1.0)
    fold, thetas = block.fold, block.posterior(lams)
    share = np.full(len(fold.nodes), 1.0 / len(fold.nodes))
    phi = oracle.phi(fold.nodes, *parts(block.features))
    for theta, lam in zip(thetas.T, lams, strict=True):
        gradient = oracle.map_gradient(
            fold.kept, theta, fold.nodes, share, *parts(block.features), lam, fold.kept_weights
        ) / fold.kept_weights.sum()
        carried = np.exp(phi @ theta - logsumexp(phi @ theta))
        spread = (phi.T * carried) @ phi - np.outer(carried @ phi, carried @ phi)
        spread += lam / fold.kept_weights.sum() * np.eye(len(theta))
        assert 0.5 * gradient @ np.linalg.solve(spread, gradient) < selection.MAP_GAIN
    # negative control: the start is no maximum
    assert np.abs(block.sum_phi / block.n - phi.mean(axis=0)).max() > 0.01


@pytest.mark.parametrize("kind", BASES)
def test_held_out_values_are_plain_log_densities(kind):
    """theta^T phi + log base - log of the mean of exp(theta^T phi) over the draws; and shares."""
    block = make_block(kind)
    fold, features = block.fold, block.features
    thetas = block.fd((1.0, 100.0))
    at_draws = oracle.phi(fold.draws, *parts(features)) @ thetas
    at_held = oracle.phi(fold.held, *parts(features)) @ thetas
    far = fold.nearest > selection.FAR * features.bandwidth
    for k, scored in enumerate(block.of_points(thetas)):
        e = np.exp(at_draws[:, k])
        want = at_held[:, k] + fold.held_base - np.log(e.mean())
        # an angle of some 10 errs by 1e-15 of it, and theta^T phi by that times |theta|_1
        bound = 1e-14 * np.abs(thetas[:, k]).sum() + 1e-13
        assert np.abs(scored.values - want).max() <= bound
        assert scored.mean == pytest.approx(fold.held_weights @ want, abs=bound)
        assert scored.share == pytest.approx(e.sum() ** 2 / (e @ e) / len(e), rel=4 * bound)
        assert scored.far == pytest.approx((e @ far) / e.sum() - far.mean(), abs=4 * bound)


def test_a_score_is_the_mean_over_folds():
    """One candidate of ``select`` by hand, from the rows on: score, error and both shares."""
    x, w = moons(120), weights_of(120)
    gamma, lam = 0.5, 10.0
    question = Question(
        bases=("empirical",), methods=("fd",), shapes=("identity",), gammas=(gamma,), lams=(lam,)
    )
    found = selection.select(
        x, w, question, lambda kind: np.eye(2), n_features=15, seed=SEED, threads=ONE
    )
    features = tgp.Features.draw(15, gamma, np.eye(2), SEED)
    means, variances, shares, fars, bare = [], [], [], [], []
    for held in selection.held_out(120):
        base = tgp.GaussianBase.from_data(x[~held], sample_weight=w[~held])
        score = base._score(x[~held])
        theta = oracle.theta_fd_any(x[~held], *parts(features), lam, score, w[~held])
        draws = base._sobol(selection.LOG2_DRAWS, SEED + 1)
        e = np.exp(oracle.phi(draws, *parts(features)) @ theta)
        log_base, share = base.log_density(x[held]), w[held] / w[held].sum()
        values = oracle.phi(x[held], *parts(features)) @ theta + log_base - np.log(e.mean())
        apart = np.linalg.norm(draws[:, None] - x[~held], axis=2).min(axis=1) > 3 * gamma
        means.append(share @ values)
        variances.append(share**2 @ (values - means[-1]) ** 2)
        shares.append(e.sum() ** 2 / (e @ e) / len(e))
        fars.append(e @ apart / e.sum() - apart.mean())
        bare.append(share @ log_base)
    assert len(found.trials) == 2
    (got,) = (t for t in found.trials if t.lam == lam)
    (alone,) = (t for t in found.trials if math.isinf(t.lam))
    assert got.score == pytest.approx(np.mean(means), abs=1e-9)
    assert got.error == pytest.approx(math.sqrt(sum(variances)) / 4, rel=1e-9)
    assert got.effective_share == pytest.approx(min(shares), rel=1e-9)
    assert got.far_share == pytest.approx(max(fars), abs=1e-9)
    assert got.gamma_multiple * found.scott == pytest.approx(gamma, rel=1e-14)
    assert alone.score == pytest.approx(np.mean(bare), abs=1e-12)


# -- folds and the choice --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, 61, selection.FEW_ROWS])
def test_folds_partition_few_rows(n):
    masks = np.array(selection.held_out(n))
    assert (masks.sum(axis=0) == 1).all()
    assert len(masks) == selection.FOLDS
    assert np.ptp(masks.sum(axis=1)) <= 1


def test_of_many_rows_one_part_is_held_out():
    n = selection.FEW_ROWS + 1
    (mask,) = selection.held_out(n)
    assert mask.sum() == -(-n // selection.FOLDS)


@pytest.mark.parametrize("gain", [-1.0, 0.0, 0.9, 1.1, 100.0])
def test_the_base_stays_unless_it_is_beaten(gain):
    """By BETTER; the best base alone, not the first."""
    low, bare = trial(-3.0, math.inf), trial(-2.0, math.inf, base="student")
    rich = trial(-2.0 + gain * selection.BETTER)
    assert selection._choice([low, rich, bare]) is (rich if gain > 1 else bare)


def test_a_gain_within_its_own_error_is_none():
    """Of rows paired; another candidate, whose gain is less but surer, is taken."""
    bare, lucky = trial(-2.0, math.inf), dataclasses.replace(trial(-1.9), gain_error=0.15)
    sure = dataclasses.replace(trial(-1.95), gain_error=0.02)
    assert selection._choice([bare, lucky]) is bare
    assert selection._choice([bare, lucky, sure]) is sure
    assert selection._choice([bare, dataclasses.replace(lucky, gain_error=0.05)]).score == -1.9


def test_a_given_lambda_excludes_the_base_alone():
    """Which has another; it stands in only where nothing else is believed."""
    bare, tilted, lost = trial(-2.0, math.inf), trial(-2.5), trial(-math.inf)
    assert selection._choice([bare, lost, tilted]) is bare
    assert selection._choice([bare, lost, tilted], lam_is_open=False) is tilted
    assert selection._choice([bare, lost], lam_is_open=False) is bare
    assert selection._choice([bare], lam_is_open=False) is bare


def one_huge_weight(block):
    """Rows look splendid against a normaliser that one draw carries."""
    at_draws = np.zeros(len(block.fold.draws))
    at_draws[0] = 50.0
    return block._scored(np.full(len(block.fold.held), 60.0), at_draws)


def mass_far_away(block):
    """Draws far from the data gain weight, all alike."""
    far = block.fold.nearest > selection.FAR * block.features.bandwidth
    assert 0.01 < far.mean() < 0.5
    return block._scored(np.full(len(block.fold.held), 5.0), np.where(far, 3.0, 0.0))


@pytest.mark.parametrize(
    ("make", "guard", "off"),
    [(one_huge_weight, "LEAST_SHARE", 0.0), (mass_far_away, "MOST_FAR", 1.0)],
)
def test_scores_that_mislead_are_never_chosen(monkeypatch, make, guard, off):
    """Without the guard they would be."""
    monkeypatch.setattr(selection, "LEAST_SHARE", 1.5 / 2**8)
    block = make_block(gamma=0.25)
    screen = selection._Screen(
        moons(240), np.ones(240), [], Question(), lambda kind: np.eye(2), 30, 0, ONE
    )
    screen.bases["empirical"] = [block.fold]
    bare = screen._bare("empirical")

    def choice():
        candidate = screen._trial("empirical", "fd", "data", 0.25, 1.0, np.nan, [make(block)])
        return candidate, selection._choice([bare, candidate])

    candidate, chosen = choice()
    assert (candidate.score, candidate.error) == (-math.inf, math.inf)
    assert chosen is bare
    monkeypatch.setattr(selection, guard, off)
    candidate, chosen = choice()
    assert candidate.score > bare.score + 1
    assert chosen is candidate


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["held", "draws"])
def test_values_that_are_not_finite_are_not_believed(bad, where):
    block = make_block()
    values = {"held": np.zeros(len(block.fold.held)), "draws": np.zeros(len(block.fold.draws))}
    assert block._scored(values["held"], values["draws"]).is_believed
    values[where][3] = bad
    scored = block._scored(values["held"], values["draws"])
    assert not scored.is_believed
    assert scored.mean == -math.inf


def test_indefinite_matrices_are_not_believed():
    """Rounding may leave them so where lambda is tiny: the candidate is lost, not the fit."""
    block = make_block()
    block.system = block.system - 1e6 * np.eye(len(block.b))
    assert np.isnan(block.fd((1.0,))).all()
    assert not block.fvpd(1.0, 1.0).is_believed
    assert not any(s.is_believed for s in block.of_points(block.fd((1.0, 2.0))))
    block = make_block()
    found = block.posterior((1.0, -1e6, 1.0))
    assert np.isfinite(found[:, 0]).all()
    assert np.isnan(found[:, 1:]).all()


# -- lambda, again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BASES)
def test_lambda_again_learns_from_the_rows_that_remain(kind):
    """Total minus fold scores as statistics of the remaining rows do."""
    x, w = moons(400), weights_of(400)
    held = selection.held_out(400)[0]
    base = make_base(kind, x, w)
    features = tgp.Features.draw(40, 0.5, np.eye(2), seed=SEED)

    def stats(rows):
        return tgp.accumulate(x[rows], features, sample_weight=w[rows], origin=base.mean, base=base,
                              engine="direct", precision="float64")  # fmt: skip

    lam, tried = selection.lam_again(
        stats(slice(None)), base, x[held], w[held], stats(held), seed=SEED, threads=ONE
    )
    rest, draws = stats(~held), base._sobol(selection.LOG2_FINAL, SEED + 1)
    log_base, share = base.log_density(x[held]), w[held] / w[held].sum()
    assert [t["lam"] for t in tried] == list(selection.LAMS)
    for t in tried:
        if not np.isfinite(t["score"]):
            assert t["effective_share"] < selection.LEAST_SHARE or (
                t["far_share"] > selection.MOST_FAR
            )
            continue
        model = tgp.solve(rest, base, "fd", lam=t["lam"])
        e = np.exp(oracle.phi(draws, *parts(features)) @ model.theta)
        values = oracle.phi(x[held], *parts(features)) @ model.theta - np.log(e.mean())
        # the difference of two sums errs by the size of the larger
        error = 10 * FACTOR * model.diagnostics["condition"] * np.abs(model.theta).sum()
        assert t["score"] == pytest.approx(share @ (values + log_base), abs=error)
        assert t["effective_share"] == pytest.approx(e.sum() ** 2 / (e @ e) / len(e), abs=error)
    best = max(tried, key=lambda t: t["score"])
    is_better = best["score"] > share @ log_base
    assert lam == (best["lam"] if is_better else selection.BASE_ALONE)


def test_lambda_again_may_leave_the_base_alone(monkeypatch):
    """Where no lambda is believed."""
    monkeypatch.setattr(selection, "LEAST_SHARE", 1.1)
    x = moons(200)
    held = selection.held_out(200)[0]
    base, features = tgp.GaussianBase.from_data(x), tgp.Features.draw(9, 0.5, np.eye(2))
    whole, part = (tgp.accumulate(rows, features, origin=base.mean) for rows in (x, x[held]))
    lam, tried = selection.lam_again(
        whole, base, x[held], np.ones(held.sum()), part, seed=0, threads=ONE
    )
    assert lam == selection.BASE_ALONE
    assert {t["score"] for t in tried} == {-math.inf}


# -- fit -------------------------------------------------------------------------------------------


def fit(x, **options):
    return tgp.fit(x, **{"n_features": 30, "seed": SEED, "n_threads": 1, **options})


def chosen_of(model):
    (row,) = (row for row in model.selection if row["chosen"])
    return row


def test_all_is_chosen_and_recorded():
    model = fit(moons())
    settings, row = model.settings, chosen_of(model)
    assert settings["selected"] is True
    assert settings["auto"] == sorted(set(AUTO) - {"n_features"})
    assert settings["gamma_rule"] == "selected"
    for name in ("method", "base", "frequency_covariance"):
        assert settings[name] == row[name]
    assert model.method == settings["method"]
    scores = [r["score"] for r in model.selection]
    assert scores == sorted(scores, reverse=True)
    names = {f.name for f in dataclasses.fields(Trial)} | {"chosen"}
    assert all(set(r) == names for r in model.selection)
    assert {r["base"] for r in model.selection} == set(Question.bases)
    assert {r["method"] for r in model.selection} >= {"fd", "map"}
    assert {r["frequency_covariance"] for r in model.selection} == set(Question.shapes)


GIVEN_SHAPE = np.array([[1.5, 0.2], [0.2, 0.5]])
RESPECTED = [
    ("method", "fd"), ("method", "map"), ("method", "fvpd"), ("method", "ncfd"), ("lam", 3.0),
    ("gamma", 0.6), ("gamma", "scott"), ("eta", 2.0), ("eta", "1/gamma2"), ("base", "student"),
    ("base", "mixture"), ("base", "empirical"), ("frequency_covariance", "identity"),
    ("frequency_covariance", GIVEN_SHAPE), ("n_features", 17),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), RESPECTED)
def test_what_is_given_is_respected(name, value):
    """In the candidates and in the model; all else is open."""
    x = moons(200)
    others = {} if name in ("base", "method") else {"base": "empirical"}  # which is quicker
    model = fit(x, **{name: value}, **others)
    settings = model.settings
    given = {name, "n_features", *others}
    assert settings["selected"] is True
    assert settings["auto"] == sorted(set(AUTO) - given)
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
    model = fit(moons(200), method="fvpd", eta=eta)
    gamma = model.features.bandwidth
    assert model.settings["eta"] == pytest.approx(gamma**-2 if eta == "1/gamma2" else eta)
    row = chosen_of(model)
    if np.isfinite(row["lam"]):
        assert row["eta_multiple"] == pytest.approx(1.0 if eta == "1/gamma2" else eta * gamma**2)


def test_an_open_eta_is_chosen():
    model = fit(moons(300), method="fvpd", base="empirical")
    row = chosen_of(model)
    assert np.isfinite(row["lam"])  # one Gaussian is not enough for two moons
    tried = {round(r["eta_multiple"], 9) for r in model.selection if np.isfinite(r["lam"])}
    assert tried == set(selection.TEMPERS)
    want = row["eta_multiple"] / model.features.bandwidth**2
    assert model.settings["eta"] == pytest.approx(want, rel=1e-12)


def test_all_given_means_no_selection(monkeypatch):
    """The data are not looked at; n_features and an eta that nothing needs do not count."""

    def never(*args, **options):
        raise AssertionError("nothing is open")

    monkeypatch.setattr(sys.modules["tgpfast.fit"], "select", never)
    for options in (FIXED, {**FIXED, "eta": "auto"}):
        model = tgp.fit(moons(100), **options, n_features="auto", n_threads=1)
        assert model.selection is None
        assert model.settings["selected"] is False
        assert "n_features" in model.settings["auto"]
    with pytest.raises(AssertionError, match="nothing is open"):
        tgp.fit(moons(100), **{**FIXED, "method": "fvpd", "eta": "auto"})


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


@pytest.mark.parametrize("method", ["fvpd", "ncfd", "map"])
def test_bases_go_with_the_method(method):
    """Heavy tails have no FVPD: that base is no candidate then, though it would win."""
    x = np.random.default_rng(0).standard_t(1.5, (200, 2))
    model = fit(x, method=method)
    assert model.method == method
    found = {row["base"] for row in model.selection}
    assert found == {"fvpd": {"empirical", "mixture"}, "ncfd": {"empirical"},
                     "map": set(Question.bases)}[method]  # fmt: skip
    if method == "map":
        assert chosen_of(model)["base"] == "student"


@pytest.mark.parametrize("method", ["fd", "fvpd", "map", "ncfd"])
def test_the_base_alone_by_any_method(method):
    """An infinite lambda is a huge one: the density is the base's."""
    x = np.random.default_rng(4).standard_normal((300, 2))
    model = fit(x, method=method, base="empirical")
    assert math.isinf(chosen_of(model)["lam"])
    assert model.settings["lam"] == selection.BASE_ALONE
    # the tilt is some n over lambda
    want = tgp.GaussianBase.from_data(x).log_density(x)
    assert np.abs(model.log_density(x) - want).max() < 1e-6


def test_one_shot_iterators_get_fixed_settings():
    """They cannot be looked at beforehand; blocks that can be read again are."""
    x = moons(200)
    moments = (len(x), x.mean(axis=0), np.cov(x.T, bias=True))
    model = fit(iter([x[:90], x[90:]]), moments=moments)
    assert model.settings["selected"] is False
    assert model.selection is None
    for name in ("method", "lam", "base", "frequency_covariance"):
        assert model.settings[name] == AUTO[name]
    assert model.settings["gamma_rule"] == "scott"
    assert model.settings["auto"] == sorted(set(AUTO) - {"n_features"})


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


@pytest.mark.parametrize("n", [LEAST_ROWS - 1, LEAST_ROWS])
def test_few_rows_get_fixed_settings(n):
    model = fit(moons(n))
    assert model.settings["selected"] is (n >= LEAST_ROWS)
    assert np.isfinite(model.log_density(moons(n))).all()


def test_rows_without_weight_do_not_count():
    """Not even where they are all that is held out."""
    x, w = moons(300), np.tile([1.0, 1.0, 1.0, 0.0], 75)
    options = {"base": "empirical"}
    weighted, without = fit(x, sample_weight=w, **options), fit(x[w > 0], **options)
    assert_same_trials(weighted.selection, without.selection, rtol=1e-6)
    assert weighted.settings["lam"] == without.settings["lam"]
    few = np.zeros(300)
    few[: LEAST_ROWS - 1] = 1.0
    assert fit(x, sample_weight=few).settings["selected"] is False


def test_weights_are_rows():
    """A weight of 2 is the row twice, for the score of every base alone."""
    x, w = moons(120), np.tile([1.0, 2.0, 1.0, 1.0, 2.0], 24)
    options = {"base": "empirical", "normalize_weights": False}
    weighted, plain = fit(x, sample_weight=w, **options), fit(x, **options)
    (alone,) = (r for r in weighted.selection if math.isinf(r["lam"]))
    scores = []
    u = (x - w @ x / w.sum()) / np.sqrt(w @ (x - w @ x / w.sum()) ** 2 / w.sum())
    for held in selection.held_out(120):
        base = tgp.GaussianBase.from_data(np.repeat(u[~held], w[~held].astype(int), axis=0))
        scores.append(base.log_density(np.repeat(u[held], w[held].astype(int), axis=0)).mean())
    assert alone["score"] == pytest.approx(np.mean(scores), rel=1e-10)
    (unweighted,) = (r for r in plain.selection if math.isinf(r["lam"]))
    assert abs(unweighted["score"] - alone["score"]) > 1e-6


def test_rows_that_span_too_little_without_a_fold():
    """A column that one row alone moves, or barely more rows than columns: fixed settings."""
    x = moons(100)
    x[:, 1] = 0.0
    x[17, 1] = 1.0
    assert fit(x).settings["selected"] is False
    wide = np.random.default_rng(0).standard_normal((45, 40))
    assert fit(wide).settings["selected"] is False


@pytest.mark.parametrize("base", ["learned", "scaled"])
def test_lambda_for_bases_that_are_made_later(base):
    """Settings are chosen for the empirical base, of which another is made."""
    model = fit(moons(300), base=base, method="fd")
    assert model.settings["base"] == base
    assert {row["base"] for row in model.selection} == {"empirical"}
    assert "lam" in model.settings["auto"]
    assert np.isfinite(model.log_density(moons(50, seed=1))).all()


def test_a_base_that_is_given():
    """It is in the units of the data, and compared in the model's."""
    x = 5.0 + 3.0 * moons(300)
    base = tgp.GaussianBase([5.0, 5.0], 9.0 * np.eye(2))
    model = fit(x, base=base)
    assert {row["base"] for row in model.selection} == {"given"}
    assert model.settings["base"] == "given"
    (alone,) = (r for r in model.selection if math.isinf(r["lam"]))
    volume = np.log(x.std(axis=0)).sum()
    means = [base.log_density(x[held]).mean() for held in selection.held_out(300)]
    assert alone["score"] == pytest.approx(np.mean(means) + volume, rel=1e-10)


@pytest.mark.parametrize("scale", ["none", "center", "standardize"])
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
        "normal": lambda: rng.standard_normal((n, 3)) * [1.0, 5.0, 0.1],
        "tails": lambda: rng.standard_t(2.0, (n, 2)),
        "square": lambda: rng.uniform(0.0, 1.0, (n, 2)),
        "line": lambda: rng.exponential(1.0, (n, 1)),
    }[name]()


@pytest.mark.parametrize("n", [60, 400])
@pytest.mark.parametrize("name", ["moons", "normal", "tails", "square", "line"])
def test_never_worse_than_the_gaussian(name, n):
    """On rows not seen, up to three standard errors of the difference, row by row, and one of those
    that the choice was made from, which cannot tell less apart."""
    train, test = samples_of(name, n, 1), samples_of(name, 2_000, 2)
    model = fit(train)
    gain = model.log_density(test) - tgp.GaussianBase.from_data(train).log_density(test)
    assert gain.mean() >= -gain.std() * (3.0 / math.sqrt(len(gain)) + 1.0 / math.sqrt(n))
    if name == "moons" and n == 400:
        assert gain.mean() > 0.3


def test_the_same_seed_gives_the_same_model():
    x = moons(200)
    first, again, other = (fit(x, base="mixture", seed=seed) for seed in (1, 1, 2))
    assert json.dumps(first.selection) == json.dumps(again.selection)
    np.testing.assert_array_equal(first.log_density(x), again.log_density(x))
    assert json.dumps(first.selection) != json.dumps(other.selection)


@pytest.mark.parametrize("n_threads", [2])
def test_threads_change_nothing(n_threads):
    x = moons(200)
    one, more = (fit(x, base="empirical", n_threads=count) for count in (1, n_threads))
    assert_same_trials(one.selection, more.selection, rtol=1e-9)
    for name in ("method", "base", "lam", "gamma", "eta", "frequency_covariance"):
        assert one.settings[name] == more.settings[name]


def test_what_was_compared_is_saved(tmp_path):
    model = fit(moons(200))
    model.save(tmp_path / "model.npz")
    back = tgp.load(tmp_path / "model.npz")
    assert json.dumps(back.selection) == json.dumps(model.selection)  # as text, nan equals nan
    fixed = tgp.fit(moons(100), **FIXED, n_features=5)
    fixed.save(tmp_path / "fixed.npz")
    assert tgp.load(tmp_path / "fixed.npz").selection is None


def test_repeated_rows_do_not_reward_spikes_at_them():
    """Rows on a lattice are compared as distinct ones; too few of these get fixed settings."""
    rng = np.random.default_rng(0)
    few = fit(rng.integers(0, 5, (400, 2)).astype(float))
    assert few.settings["selected"] is False
    between = few.log_density([[1.5, 2.5]]) - few.log_density([[2.0, 2.0]])
    assert abs(between[0]) < 5.0  # a mixture with a spike at every point: thousands
    module = sys.modules["tgpfast.fit"]
    x = rng.standard_normal((50, 2))
    twice = np.concatenate([x, x[:20]])
    rows, weights = module._weighted((twice, None))
    np.testing.assert_array_equal(rows, x)
    np.testing.assert_array_equal(weights, np.r_[np.full(20, 2.0), np.ones(30)])
    rows, weights = module._weighted((x, None))
    assert rows is x
