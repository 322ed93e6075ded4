"""Decisions between tilts and bases alone, from the sums of folds."""

import numpy as np
import pytest
from scipy import integrate, interpolate

from tgpfast.bases.gaussian import GaussianBase
from tgpfast.features.lattice import LatticeFeatures
from tgpfast.selection import lattice_choice, lattice_search
from tgpfast.selection.candidates import BASE_ALONE
from tgpfast.selection.lattice_choice import LatticeChoice, LatticeSpace, confirm, decide
from tgpfast.selection.lattice_search import HeldOutRows, LatticeCandidate, LatticeSearch
from tgpfast.statistics.lattice_sums import accumulate_lattice_folds

FOLDS = 4
SMOOTH = LatticeCandidate("gaussian", 0.7, 1.0, 16, "empirical")
ROUGH = LatticeCandidate("matern32", 0.1, 0.01, 16, "empirical")
ALONE = LatticeCandidate("gaussian", 1.0, BASE_ALONE, 1, "empirical")


class Rows:
    """Rows of one column in folds, and searches on them with a Gaussian base."""

    def __init__(self, x):
        self.x, self.fold = x[:, None], np.arange(len(x)) % FOLDS
        self.base = [GaussianBase.from_data(self.x[self.fold != k]) for k in range(FOLDS)]
        self.features = LatticeFeatures.for_data(self.x, 16, "gaussian", 0.5)

    def search(self, held):
        of_folds = [[self.base[k]] for k in range(FOLDS)]
        sums = accumulate_lattice_folds(self.x, self.features, self.fold, bases=of_folds)
        return LatticeSearch(self.features, sums, held, {"empirical": [self.base[k] for k in held]})

    def fresh(self, search, held):
        """A search on other folds, as `fit` makes it."""
        found = search.with_held(held)
        found.add_base("empirical", [self.base[k] for k in held], np.zeros(len(held)))
        return found

    def held_out(self, held):
        mine = np.isin(self.fold, held)
        places = np.searchsorted(held, self.fold[mine])
        return HeldOutRows(self.x[mine], places, np.ones(mine.sum()))


def normal_rows():
    return Rows(np.random.default_rng(1).normal(size=800))


def two_clusters():
    rng = np.random.default_rng(2)
    return Rows(rng.normal(size=800) * 0.5 + rng.choice([-1.5, 1.5], 800))


@pytest.mark.parametrize(
    ("make_rows", "candidate", "is_kept"),
    [(two_clusters, SMOOTH, True), (normal_rows, ROUGH, False)],
)
def test_a_gain_must_be_confirmed_by_rows_that_took_no_part(make_rows, candidate, is_kept):
    """Of two clusters the gain is true; rough tilts of Gaussian rows lose on fresh rows, whatever
    the search said of them."""
    rows = make_rows()
    search = rows.search([0, 1])
    best, alone = search.score(candidate), search.score(ALONE)
    choice = LatticeChoice(best, search.scored, 0.01, 0.004, alone)
    assert choice.may_be_luck
    fresh = rows.fresh(search, [2, 3])
    found = confirm(choice, fresh, rows.held_out([2, 3]), 0.5)
    assert found.best is (best if is_kept else alone)
    # what decides is the mean of f - log Z over the rows of both folds
    gains = fresh.row_values(fresh.score(candidate), rows.held_out([2, 3]))
    gains -= fresh.row_values(fresh.score(ALONE), rows.held_out([2, 3]))
    assert fresh.score(candidate).score == pytest.approx(gains.mean(), abs=2e-3)


def test_a_search_on_other_folds_shares_no_scores():
    rows = two_clusters()
    search = rows.search([0])
    before = search.score(SMOOTH).score
    fresh = rows.fresh(search, [1, 2])
    assert fresh.scored == []
    whole = rows.search([1, 2])
    of_base = whole.score(ALONE).score
    assert fresh.score(SMOOTH).score == pytest.approx(whole.score(SMOOTH).score - of_base, abs=1e-4)
    assert search.score(SMOOTH).score == before


@pytest.mark.parametrize(("gain", "is_luck"), [(4.9, True), (5.1, False)])
def test_large_gains_and_bases_alone_need_no_confirmation(gain, is_luck):
    search = normal_rows().search([0])
    best, alone = search.score(SMOOTH), search.score(ALONE)
    assert LatticeChoice(best, search.scored, gain, 1.0, alone).may_be_luck == is_luck
    assert not LatticeChoice(alone, search.scored, gain, 1.0, alone).may_be_luck
    assert not LatticeChoice(best, search.scored, gain, 1.0).may_be_luck


def test_decide_keeps_a_tilt_that_beats_its_base_and_else_the_base():
    for rows, is_tilt in ((two_clusters(), True), (normal_rows(), False)):
        held = list(range(FOLDS))
        search = rows.search(held)
        for candidate in (SMOOTH, ROUGH, ALONE):
            search.score(candidate)
        choice = decide(search, LatticeSpace(), rows.held_out(held))
        assert choice.best.candidate.is_base_alone != is_tilt
        assert choice.alone is search.score(ALONE)


@pytest.mark.parametrize(("share", "is_kept"), [(0.9, True), (1.01, False)])
def test_decide_asks_for_more_where_no_rows_can_confirm_a_gain(share, is_kept, monkeypatch):
    """A tilt stays if its gain exceeds the required errors, which are more than those of a gain
    that other rows confirm."""
    rows, held = two_clusters(), list(range(FOLDS))
    search = rows.search(held)
    for candidate in (SMOOTH, ALONE):
        search.score(candidate)
    space = LatticeSpace(lams=(lattice_choice.LEAST_LAM, SMOOTH.lam))  # leaves no smoother tilt
    found = decide(search, space, rows.held_out(held))
    asked = share * found.gain / found.gain_error
    n = rows.held_out(held).effective_number
    assert asked > lattice_choice.required_gain_errors(n) > lattice_choice.CONFIRMED_GAIN_ERRORS
    monkeypatch.setattr(lattice_choice, "required_gain_errors", lambda n_rows: asked)
    choice = decide(search, space, rows.held_out(held))
    assert choice.best.candidate.is_base_alone != is_kept
    # negative control: where folds are left, what other rows must confirm is not asked here
    some = rows.search(held[:-1])
    for candidate in (SMOOTH, ALONE):
        some.score(candidate)
    assert not decide(some, space, rows.held_out(held[:-1])).best.candidate.is_base_alone


@pytest.mark.parametrize(
    ("gains", "factor"),
    [
        ([(0.10, 0.030), (0.09, 0.020)], 4.0),  # the smoother tilt gains surely more
        ([(0.10, 0.030), (0.05, 0.015)], 1.0),
        ([(0.10, 0.019)], 1.0),  # a sure gain is not questioned
    ],
)
def test_a_doubtful_tilt_is_smoothed_where_that_gains_more_surely(gains, factor, monkeypatch):
    rows, held = two_clusters(), list(range(FOLDS))
    search = rows.search(held)
    for candidate in (SMOOTH, ALONE):
        search.score(candidate)
    given = iter(gains)
    monkeypatch.setattr(HeldOutRows, "expected_gain", lambda *_: next(given))
    choice = decide(search, LatticeSpace(), rows.held_out(held))
    assert choice.best.candidate.lam == factor * SMOOTH.lam
    assert next(given, None) is None


def test_the_expected_gain_is_that_of_a_dirichlet_process():
    """Random shares of the rows, and of rows of the base, have the mean and the deviation."""
    rng = np.random.default_rng(0)
    gains, of_base = rng.normal(0.3, 0.5, 6), rng.normal(-1.0, 1.5, 50)
    rows = HeldOutRows(np.zeros((6, 1)), np.zeros(6, int), np.ones(6))
    prior = np.full(50, lattice_search.PRIOR_ROWS / 50)
    shares = rng.dirichlet(np.append(np.ones(6), prior), 200_000)
    drawn = shares @ np.append(gains, of_base)
    moments = float(of_base.mean()), float(np.square(of_base).mean())
    mean, error = rows.expected_gain(float(gains.mean()), gains, moments)
    assert mean == pytest.approx(drawn.mean(), abs=5 * drawn.std() / 200_000**0.5)
    assert error == pytest.approx(drawn.std(), rel=0.01)
    # negative control: without what the base says the gain is larger
    assert rows.expected_gain(float(gains.mean()), gains, (0.0, 0.0))[0] > mean + 0.1


def test_gains_under_the_base_are_integrals():
    rows = two_clusters()
    search = rows.search([0, 1])
    tilt, grid = search.score(SMOOTH), np.linspace(-12.0, 12.0, 200_001)
    means = []
    for place in (0, 1):
        base = search.bases["empirical"][place].log_density_at(grid[:, None])
        at = HeldOutRows(grid[:, None], np.full(len(grid), place), np.ones(len(grid)))
        gain = search.row_values(tilt, at) - base
        density = np.exp(base)
        means.append([integrate.trapezoid(density * gain**k, grid) for k in (1, 2)])
    np.testing.assert_allclose(search.gains_under_base(tilt), np.mean(means, axis=0), rtol=2e-3)


@pytest.mark.parametrize("weights", [np.ones(7), np.array([4.0, 1.0, 1.0])])
def test_the_effective_number_of_weighted_rows(weights):
    rows = HeldOutRows(np.zeros((len(weights), 1)), np.zeros(len(weights), int), weights)
    assert rows.effective_number == pytest.approx(7.0 if len(weights) == 7 else 2.0)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_interpolation_is_linear_between_nodes(d):
    rng = np.random.default_rng(d)
    values = rng.standard_normal((5, 4, 6)[:d])
    places = rng.uniform(-1.5, 6.5, size=(2_000, d))
    places[0], places[1] = 0.0, np.array(values.shape) - 1.0
    axes = [np.arange(float(n)) for n in values.shape]
    read = interpolate.RegularGridInterpolator(axes, values, bounds_error=False, fill_value=0.0)
    found = lattice_search._interpolate(values, places)
    np.testing.assert_allclose(found, read(places), atol=1e-14)
    assert 0.0 < (found == 0.0).mean() < 1.0
