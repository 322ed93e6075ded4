"""The learned base: the joint optimum and the paper's coordinate steps (Eqs. mu_, sig_update)."""

import importlib
import math

import numpy as np
import oracle
import pytest

import tgpfast as tgp
from tgpfast.solvers.learned_base import JointObjective, descend_by_coordinates

learn_base_module = importlib.import_module("tgpfast.solvers.learned_base")  # not the function

LAM = 0.5


def make(d=3, n_features=15, gamma=1.1, n=400, *, weighted=True, origin=None, seed=0):
    """(x, weights, statistics): a correlated cloud about a mean that is not zero, with a bump."""
    rng = np.random.default_rng(seed)
    half = np.tril(rng.normal(0.0, 0.4, (d, d)), -1) + np.diag(rng.uniform(0.7, 1.5, d))
    x = rng.standard_normal((n, d)) @ half.T + rng.normal(0.5, 1.0, d)
    x[: n // 4] = 0.4 * x[: n // 4] + 0.8
    w = rng.uniform(0.5, 1.5, n) if weighted else None
    features = tgp.Features.draw(n_features, gamma, np.eye(d), seed=3)
    stats = tgp.accumulate(x, features, sample_weight=w, origin=origin, precision="float64")
    return x, w, stats


def parts(stats):
    f = stats.features
    return f.frequencies, f.phases, f.bandwidth


def natural(base):
    """P = Sigma^-1 and h = P mu."""
    P = np.linalg.inv(base.covariance)
    return P, P @ base.mean


def start(d):
    return tgp.GaussianBase(np.zeros(d), 2.0 * np.eye(d))


def slopes(x, w, stats, theta, P, h, lam):
    """Derivatives of the oracle's objective in every entry of (theta, P, h), and its size.

    The objective is quadratic, so that central differences are exact at any step.
    """
    step, (S, d) = 0.1, stats.features.frequencies.shape

    def value(t, p, q):
        return oracle.base_objective(x, t, p, q, *parts(stats), lam, w)

    found = [(value(theta + e, P, h) - value(theta - e, P, h)) / 0.2 for e in step * np.eye(S)]
    for a in range(d):
        for b in range(a, d):
            E = np.zeros((d, d))
            E[a, b] = E[b, a] = step
            found.append((value(theta, P + E, h) - value(theta, P - E, h)) / 0.2)
    found += [(value(theta, P, h + e) - value(theta, P, h - e)) / 0.2 for e in step * np.eye(d)]
    return np.array(found)


# -- the joint optimum ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_joint_solution_is_stationary(d, weighted):
    """In theta, P and h together; and a base moved by a per cent is not."""
    x, w, stats = make(d, weighted=weighted)
    base = tgp.learn_base(stats, start(d), LAM)
    assert base.report["method"] == "joint"
    P, h = natural(base)
    theta = tgp.solve(stats, base, "fd", LAM).theta
    # a slope is a sum of n terms of |x|, |P| and |theta| of a few: 1e-15 of it, times the
    # condition of the systems for theta and for (P, h), some hundreds
    atol = 1e-15 * stats.n * 1e2 * (1 + np.linalg.norm(theta)) * (1 + np.linalg.norm(P))
    assert atol < 1e-8
    np.testing.assert_allclose(slopes(x, w, stats, theta, P, h, LAM), 0.0, rtol=0, atol=atol)
    assert np.abs(slopes(x, w, stats, theta, 1.01 * P, h, LAM)).max() > 1e3 * atol
    assert np.abs(slopes(x, w, stats, theta, P, h + 0.01, LAM)).max() > 1e3 * atol


@pytest.mark.parametrize("d", [1, 3])
def test_reported_objective_is_that_of_the_data(d):
    x, w, stats = make(d)
    base = tgp.learn_base(stats, start(d), LAM)
    theta = tgp.solve(stats, base, "fd", LAM).theta
    expected = oracle.base_objective(x, theta, *natural(base), *parts(stats), LAM, w)
    assert base.report["objective"] == pytest.approx(expected, rel=1e-11)
    other = oracle.fisher_objective(x, theta, *parts(stats), base.mean, base.covariance, w)
    assert base.report["objective"] == pytest.approx(other + 0.5 * LAM * theta @ theta, rel=1e-11)


def test_objective_at_any_point_is_that_of_the_data():
    """L(theta, P, h) from the statistics alone; h is about the mean of the data inside."""
    x, w, stats = make(3, origin=[0.5, -1.0, 2.0])
    problem = JointObjective(stats, LAM)
    rng = np.random.default_rng(1)
    np.testing.assert_allclose(problem.center, np.average(x, axis=0, weights=w), rtol=1e-13)
    for _ in range(3):
        theta, half, mu = rng.standard_normal(15), rng.standard_normal((3, 3)), rng.normal(size=3)
        P = half @ half.T
        expected = oracle.base_objective(x, theta, P, P @ mu, *parts(stats), LAM, w)
        found = problem.objective_at(theta, P, P @ (mu - problem.center))
        assert found == pytest.approx(expected, rel=1e-11)
        best = problem.theta(P, P @ (mu - problem.center))
        base = tgp.GaussianBase(mu, np.linalg.inv(P))
        solved = tgp.solve(stats, base, "fd", LAM).theta
        np.testing.assert_allclose(best, solved, rtol=0, atol=1e-10 * np.abs(solved).max())


def test_gaussian_data_without_features_worth_having():
    """With a prior that allows no tilt the base is the empirical mean and covariance.

    At theta = 0 the optimum is P = V^-1, h = P mean; theta is then of order n / lam.
    """
    x, w, stats = make(3)
    base = tgp.learn_base(stats, start(3), 1e12)
    mean = np.average(x, axis=0, weights=w)
    covariance = np.cov(x.T, aweights=w, ddof=0)
    np.testing.assert_allclose(base.mean, mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(base.covariance, covariance, rtol=0, atol=1e-7)


@pytest.mark.parametrize("origin", [[3.0, -2.0, 1.0], [100.0, 100.0, -100.0]])
def test_origin_changes_nothing(origin):
    """Sums about another origin lose |origin|^2 of 1e-16 and give the same base."""
    _, _, plain = make(3)
    _, _, moved = make(3, origin=origin)
    a, b = (tgp.learn_base(s, start(3), LAM) for s in (plain, moved))
    atol = 1e-15 * 100 * (1 + np.linalg.norm(origin) ** 2)
    np.testing.assert_allclose(b.mean, a.mean, rtol=0, atol=atol)
    np.testing.assert_allclose(b.covariance, a.covariance, rtol=0, atol=atol)


def test_start_does_not_matter_to_the_joint_solution():
    _, _, stats = make(2)
    a = tgp.learn_base(stats, start(2), LAM)
    b = tgp.learn_base(stats, tgp.GaussianBase([5.0, 5.0], 0.1 * np.eye(2)), LAM)
    np.testing.assert_array_equal(a.mean, b.mean)
    np.testing.assert_array_equal(a.covariance, b.covariance)


def test_learned_base_lowers_the_objective_of_the_empirical_one():
    x, w, stats = make(2)
    empirical = tgp.GaussianBase.from_data(x, sample_weight=w)
    learned = tgp.learn_base(stats, empirical, LAM)

    def objective(base):
        theta = tgp.solve(stats, base, "fd", LAM).theta
        return oracle.base_objective(x, theta, *natural(base), *parts(stats), LAM, w)

    assert objective(learned) < objective(empirical) - 1e-3


# -- the paper's steps ----------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [None, [0.5, -1.0, 2.0]])
def test_steps_are_those_of_the_paper(origin):
    """Eq. mu_update and the Kronecker form of Eq. sig_update."""
    x, w, stats = make(3, origin=origin)
    problem, rng = JointObjective(stats, LAM), np.random.default_rng(2)
    theta, half, mu = rng.standard_normal(15), rng.standard_normal((3, 3)), rng.normal(size=3)
    P = half @ half.T + np.eye(3)
    found = problem.center + problem.mu_step(theta, P)
    expected = oracle.mu_update(x, theta, *parts(stats), np.linalg.inv(P), w)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    found = problem.sigma_step(theta, mu - problem.center)
    expected = oracle.precision_update(x, theta, *parts(stats), mu, w)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_coordinate_steps_approach_the_joint_solution(d):
    """They never rise, never pass below it, and are nine tenths of the way after 100 rounds."""
    _, _, stats = make(d)
    joint = tgp.learn_base(stats, start(d), LAM)
    assert joint.report["method"] == "joint"
    best = joint.report["objective"]
    steps = descend_by_coordinates(JointObjective(stats, LAM), start(d), n_rounds=100)
    assert steps.report["method"] == "coordinate"
    objectives = np.array(steps.report["objectives"])
    rounding = 1e-12 * abs(best)
    assert np.all(np.diff(objectives) <= rounding)
    assert objectives[-1] == steps.report["objective"]
    assert best <= objectives[-1] + rounding
    excess = objectives - best
    assert excess[0] > 1e3 * rounding
    assert excess[-1] <= 0.1 * excess[0]
    few = descend_by_coordinates(JointObjective(stats, LAM), start(d), n_rounds=3)
    assert len(few.report["objectives"]) == 4

    def distance(base):
        return np.linalg.norm(natural(base)[0] - natural(joint)[0])

    assert distance(steps) < distance(few) < distance(start(d))


def test_coordinate_steps_from_the_joint_solution_stay_there():
    _, _, stats = make(2)
    joint = tgp.learn_base(stats, start(2), LAM)
    steps = descend_by_coordinates(JointObjective(stats, LAM), joint)
    assert len(steps.report["objectives"]) == 2
    # the objective is flat to 1e-10 within 1e-5 of its minimum
    np.testing.assert_allclose(steps.mean, joint.mean, rtol=0, atol=1e-4)
    np.testing.assert_allclose(steps.covariance, joint.covariance, rtol=0, atol=1e-4)


# -- where the joint precision is not positive definite -------------------------------------------


def bimodal(seed, n=200, n_features=40):
    """Two far clusters and a weak prior: the tilt takes over and P is left indefinite."""
    rng = np.random.default_rng(seed)
    x = 0.3 * rng.standard_normal((n, 2)) + 3.0 * rng.choice([-1.0, 1.0], (n, 1))
    features = tgp.Features.draw(n_features, 1.0, np.eye(2), seed=seed)
    return x, tgp.accumulate(x, features, precision="float64")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4, 5])
def test_indefinite_joint_precision_takes_coordinate_steps(seed):
    x, stats = bimodal(seed)
    lam, base = 1e-3, tgp.GaussianBase(np.zeros(2), 9.0 * np.eye(2))
    assert np.linalg.eigvalsh(JointObjective(stats, lam).joint()[0])[0] < -0.1
    learned = tgp.learn_base(stats, base, lam)
    assert learned.report["method"] == "coordinate"
    assert np.linalg.eigvalsh(learned.covariance)[0] > 0
    objectives = np.array(learned.report["objectives"])
    assert np.all(np.diff(objectives) <= 1e-12 * np.abs(objectives[1:]))
    assert objectives[-1] < objectives[0]
    assert isinstance(learned.report["refused"], list)
    # the report is of the data: conditions of 1e5 leave 1e-9 of the objective
    theta = tgp.solve(stats, learned, "fd", lam).theta
    found = oracle.base_objective(x, theta, *natural(learned), *parts(stats), lam)
    assert found == pytest.approx(objectives[-1], rel=1e-8)


def test_joint_that_fails_is_not_taken(monkeypatch):
    """Made indefinite by hand: the guard, not the data, sends it to the coordinate steps."""
    _, _, stats = make(2)
    plain = tgp.learn_base(stats, start(2), LAM)
    monkeypatch.setattr(JointObjective, "joint", lambda self: (np.diag([1.0, -1.0]), np.zeros(2)))
    base = tgp.learn_base(stats, start(2), LAM)
    assert plain.report["method"] == "joint"
    assert base.report["method"] == "coordinate"
    assert base.report["objective"] >= plain.report["objective"] - 1e-10
    assert base.report["objective"] == pytest.approx(plain.report["objective"], rel=1e-3)


def assert_shortened(base, word):
    """The first round's Sigma-step was cut, for this reason, and nothing was lost by it."""
    assert np.linalg.eigvalsh(base.covariance)[0] > 0
    objectives = np.array(base.report["objectives"])
    assert np.all(np.diff(objectives) <= 1e-12 * np.abs(objectives[1:]))
    first = base.report["refused"][0]
    assert first["step"] == "Sigma"
    assert first["round"] == 0
    assert 0.0 <= first["taken"] < 1.0
    assert word in first["reason"]


def test_a_sigma_step_out_of_the_cone_is_shortened(monkeypatch):
    """The cone made narrow: a least eigenvalue below 0.9 of the largest is refused."""
    _, _, stats = make(2)
    free = descend_by_coordinates(JointObjective(stats, LAM), start(2), n_rounds=3)
    assert not free.report["refused"]
    monkeypatch.setattr(learn_base_module, "LEAST_EIGENVALUE_SHARE", 0.9)
    base = descend_by_coordinates(JointObjective(stats, LAM), start(2), n_rounds=3)
    assert_shortened(base, "positive definite")
    values = np.linalg.eigvalsh(base.covariance)
    assert values[0] > 0.9 * values[1]
    free_values = np.linalg.eigvalsh(free.covariance)
    assert free_values[0] < 0.9 * free_values[1]  # the guard mattered
    # the part of the step that stays inside was taken
    assert base.report["objectives"][1] < base.report["objectives"][0]
    assert free.report["objective"] < base.report["objective"]


@pytest.mark.parametrize("target", [-5.0, 1e3])
def test_a_sigma_step_that_rises_is_refused(monkeypatch, target):
    _, _, stats = make(2)
    monkeypatch.setattr(JointObjective, "sigma_step", lambda self, theta, mu: target * np.eye(2))
    base = descend_by_coordinates(JointObjective(stats, LAM), start(2), n_rounds=3)
    assert_shortened(base, "rise")


def test_a_mu_step_that_rises_is_refused(monkeypatch):
    _, _, stats = make(2)
    monkeypatch.setattr(JointObjective, "mu_step", lambda self, theta, P: np.array([50.0, -50.0]))
    base = descend_by_coordinates(JointObjective(stats, LAM), start(2), n_rounds=4)
    reasons = [(r["step"], r["reason"]) for r in base.report["refused"]]
    assert ("mu", "the objective would rise") in reasons
    objectives = np.array(base.report["objectives"])
    assert np.all(np.diff(objectives) <= 1e-12 * np.abs(objectives[1:]))
    # negative control: taken, that step would have raised the objective far
    problem = JointObjective(stats, LAM)
    P, h = np.eye(2), np.zeros(2)
    theta = problem.theta(P, h)
    away = problem.objective_at(theta, P, np.array([50.0, -50.0]))
    assert away > problem.objective_at(theta, P, h) + 1e3


# -- use and bad input ----------------------------------------------------------------------------


def test_result_is_a_base_for_every_method():
    x, _, stats = make(2)
    base = tgp.learn_base(stats, start(2), LAM)
    assert isinstance(base, tgp.GaussianBase)
    assert start(2).report is None
    for method in ("fd", "fvpd", "map"):
        values = tgp.solve(stats, base, method, LAM).log_density(x[:5], normalized=False)
        assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"stats": np.zeros(3)}, TypeError, "stats must be tgpfast.Statistics, got ndarray"),
        ({"base": None}, TypeError, "base must be a base of tgpfast, got NoneType"),
        ({"lam": 0.0}, ValueError, "lam=0.0"),
        ({"lam": -1}, ValueError, "lam=-1"),
        ({"lam": math.nan}, ValueError, "lam=nan"),
        ({"lam": True}, TypeError, "lam=True"),
        ({"lam": "0.1"}, TypeError, "lam='0.1'"),
    ],
)
def test_bad_arguments(changes, error, match):
    _, _, stats = make(2, n_features=4, n=20)
    with pytest.raises(error, match=match):
        tgp.learn_base(**{"stats": stats, "base": start(2), **changes})


def test_statistics_of_no_rows():
    _, _, stats = make(2, n_features=4, n=20)
    with pytest.raises(ValueError, match="the statistics have no rows"):
        tgp.learn_base(tgp.Statistics.zero(stats.features), start(2))


@pytest.mark.parametrize("rows", [[[0, 0], [1, 1], [2, 2]], np.ones((5, 2)), np.zeros((1, 2))])
def test_rows_that_do_not_span_are_refused(rows):
    """The objective has no minimum there."""
    features = tgp.Features.draw(10, 1.0, np.eye(2), seed=1)
    stats = tgp.accumulate(np.asarray(rows, float), features)
    with pytest.raises(ValueError, match="do not span"):
        tgp.learn_base(stats, tgp.GaussianBase(np.zeros(2), np.eye(2)))


def test_a_base_of_another_dimension_is_refused():
    _, _, stats = make(2)
    with pytest.raises(ValueError, match="dimension 1"):
        tgp.learn_base(stats, tgp.GaussianBase([0.0], [[1.0]]))
