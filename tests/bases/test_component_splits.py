"""Splits of components: proposals, gains by hand, choice."""

import numpy as np
import oracle
import pytest
from example_bases import clusters, make_mixture, make_rows

from tgpfast.bases.component_splits import apply_splits, find_splits, propose_halves
from tgpfast.bases.expectation_maximization import Components, Learner, Rows, one_component, run_em
from tgpfast.data.scaling import Scaling
from tgpfast.kernels.thread_choice import Threads


def prepare(y):
    return Rows.from_data(y, np.ones(len(y)), Scaling.identity(y.shape[1]), Threads())


def rng():
    return np.random.default_rng(0)


def components_of(mixture):
    return Components(mixture.weights, mixture.means, mixture.covariances)


@pytest.mark.parametrize("form", ["full", "diagonal"])
def test_halves_cut_along_an_axis_have_the_moments_of_the_whole(form):
    """(C_1 + C_2) / 2 and the spread of the means make up the covariance."""
    components = components_of(make_mixture(3, 4))
    if form == "diagonal":
        components = components._replace(covariances=components.covariances * np.eye(3))
    for means, covariances in propose_halves(components, Learner(np.full(3, 1e-3), form), rng()):
        np.testing.assert_allclose(means.mean(axis=1), components.means, rtol=0, atol=1e-13)
        away = means - means.mean(axis=1, keepdims=True)
        total = covariances.mean(axis=1) + np.einsum("kai,kaj->kij", away, away) / 2
        if form == "diagonal":
            total = total * np.eye(3)
        np.testing.assert_allclose(total, components.covariances, rtol=0, atol=1e-13)
        assert (np.linalg.eigvalsh(covariances) > 0.0).all()


def test_the_first_proposal_is_along_the_principal_axis():
    components = Components(np.ones(1), np.zeros((1, 2)), np.diag([9.0, 1.0])[None])
    means, _ = next(propose_halves(components, Learner(np.full(2, 1e-3)), rng()))
    np.testing.assert_allclose(np.abs(means[0]), [[np.sqrt(18 / np.pi), 0.0]] * 2, atol=1e-13)


def test_two_clusters_are_found_by_one_split():
    _, x, index = clusters(1_200)
    x = x[index < 2]
    rows, learner = prepare((x - x.mean(axis=0)) / x.std(axis=0)), Learner(np.full(2, 1e-3))
    one = one_component(rows, learner)
    splits = find_splits(rows, learner, one, rng())
    order = np.argsort(splits.halves.means[0, :, 0])
    share = np.bincount(index[index < 2]) / len(x)
    np.testing.assert_allclose(splits.halves.weights[0, order], share, rtol=0, atol=5e-3)
    grown = apply_splits(one, splits, splits.gains, 1)
    np.testing.assert_allclose(grown.weights.sum(), 1.0, rtol=1e-14)


@pytest.mark.parametrize("form", ["full", "diagonal", "tied"])
def test_gains_are_those_of_the_rows_of_a_component(form):
    """By labels and densities of the oracle, on rows and on held-out rows with a guard."""
    y, held = make_rows(600, 2), make_rows(200, 2, seed=8)
    learner = Learner(np.full(2, 1e-3), form, strength=2.0)
    rows = prepare(y)
    start = components_of(make_mixture(2, 3))
    if form != "full":
        start = start._replace(covariances=np.stack([np.eye(2)] * 3))
    components = run_em(rows, learner, start, max_steps=5).components
    guard = np.full(200, -6.0)
    splits = find_splits(rows, learner, components, rng(), held=prepare(held), guard=guard)
    terms = {
        name: np.stack([oracle.mixture_log_density(x, *(part[k : k + 1] for part in components))
                        for k in range(3)], axis=1)
        for name, x in (("rows", y), ("held", held))
    }  # fmt: skip
    for k in range(3):
        halves = [part[k] for part in splits.halves]
        assert halves[0].sum() == pytest.approx(components.weights[k], rel=1e-12)
        mine = terms["rows"].argmax(axis=1) == k
        gain = oracle.mixture_log_density(y[mine], *halves) - terms["rows"][mine, k]
        assert splits.gains[k] == pytest.approx(gain.sum(), abs=1e-8)
        mine = terms["held"].argmax(axis=1) == k
        pair = np.logaddexp(oracle.mixture_log_density(held[mine], *halves), -6.0)
        gain = pair - np.logaddexp(terms["held"][mine, k], -6.0)
        assert splits.held_gains[k] == pytest.approx(gain.sum(), abs=1e-8)


def test_no_split_is_worse_than_none_on_its_own_rows_by_much():
    """EM of the halves ends above a copy of the component, up to the truncation of its rows."""
    y = make_rows(800, 3)
    rows, learner = prepare(y), Learner(np.full(3, 1e-3))
    splits = find_splits(rows, learner, one_component(rows, learner), rng())
    assert splits.gains[0] > 10.0  # two clusters of unequal spread


def test_the_best_scores_are_split_and_the_others_stay():
    components = components_of(make_mixture(2, 5))
    rows, learner = prepare(make_rows(900, 2)), Learner(np.full(2, 1e-3), strength=4.0)
    splits = find_splits(rows, learner, components, rng())
    scores = np.array([1.0, 5.0, 3.0, -2.0, 4.0])
    grown = apply_splits(components, splits, scores, 2)
    assert len(grown.weights) == 7
    np.testing.assert_array_equal(grown.means[:3], components.means[[0, 2, 3]])
    np.testing.assert_array_equal(grown.means[3:5], splits.halves.means[1])
    assert grown.weights.sum() == pytest.approx(1.0, rel=1e-13)


def test_components_of_few_rows_are_not_split():
    y = make_rows(5, 2)
    rows, learner = prepare(y), Learner(np.full(2, 1e-3))
    one = one_component(rows, learner)
    splits = find_splits(rows, learner, one, rng())
    assert np.isneginf(splits.gains).all()
    assert len(apply_splits(one, splits, splits.gains, 1).weights) == 1
