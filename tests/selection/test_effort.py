"""Budgets of a fit, and the brief search of many columns."""

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.features.random import as_listed
from tgpfast.kernels import thread_choice
from tgpfast.kernels.thread_choice import Threads
from tgpfast.pipeline.settings import Settings
from tgpfast.selection import candidates
from tgpfast.selection.candidates import BRIEF_LAMS, BRIEF_SETTINGS, Candidate, CandidateSearch
from tgpfast.selection.effort import EFFORTS, LARGER_COUNTS, Budget
from tgpfast.selection.scoring import HeldOutScore


def skewed_rows(n, seed=0):
    """Five columns, two of which have hard edges."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5)) @ np.linalg.cholesky(0.5 * np.eye(5) + 0.5)
    return np.column_stack([x[:, :3], np.exp(x[:, 3]), rng.uniform(size=n)])


def test_more_effort_is_more_work():
    for n, d in ((200, 5), (1_000, 5), (20_000, 5), (1_000, 2)):
        fast, balanced, thorough = (Budget.for_rows(effort, n, d) for effort in EFFORTS)
        assert fast.growth_work < balanced.growth_work < thorough.growth_work
        assert fast.n_folds <= balanced.n_folds <= thorough.n_folds
        assert thorough.n_brief is None
        assert (balanced.n_brief is None) == (d <= 3)
        if d > 3:
            assert fast.n_brief <= balanced.n_brief <= len(BRIEF_SETTINGS)


class GivenScores(CandidateSearch):
    """A search whose held-out values are known for each number of features."""

    def __init__(self, values, budget):
        self.values, self.budget, self.n_features = values, budget, 192
        self.pilot, self.asked = type("Pilot", (), {"scott": 1.0}), []  # all that is read of it

    def _posterior_features(self, base, setting, share=1.0):
        self.asked.append(self.n_features)
        return [self]

    def posterior(self, lams):
        return lams

    def score_thetas(self, lams):
        values = self.values[self.n_features]
        effective = float(np.isfinite(values).all())
        return [HeldOutScore(values, effective, 0.0, np.full(len(values), 1.0 / len(values)))]


@pytest.mark.parametrize(
    ("gains", "want", "asked"),
    [
        ((0.01, 0.02, 0.9), None, 3),  # within a standard error twice: 4,000 are not tried
        ((0.5, 0.3, 0.6), 4000, 4),
        ((0.02, 0.5, 0.4), 2000, 4),
        ((-0.5, -0.5, 0.9), None, 3),
        ((0.2, 0.5, np.nan), 2000, 4),  # no reliable score
    ],
)
def test_rows_held_out_choose_larger_numbers_of_features(gains, want, asked):
    """By more than one standard error of the gain, which is 0.05 here."""
    noise = np.tile([0.5, -0.5], 50)
    values = {256: np.zeros(100)}
    for count, gain in zip(LARGER_COUNTS, gains, strict=True):
        values[count] = np.full(100, -np.inf) if np.isnan(gain) else gain + noise
    tilt = Candidate("mixture", "map", "identity", 1.0, 1.0, np.nan, 0.0, 0.0, 1.0)
    search = GivenScores(values, Budget(most_features=256, larger_counts=LARGER_COUNTS))
    assert search.grow_features(tilt) == want
    assert search.asked == [256, *LARGER_COUNTS][:asked]
    assert GivenScores(values, Budget()).grow_features(tilt) is None


@pytest.fixture(scope="module")
def brief():
    return tgp.fit(skewed_rows(600, seed=6), scale="standardize", n_threads=1)


@pytest.mark.slow
def test_a_brief_search_tries_a_few_features_with_map(brief):
    tilts = [row for row in brief.selection if np.isfinite(row["lam"])]
    assert {row["method"] for row in tilts} == {"map"}
    assert {row["lam"] for row in tilts} == set(BRIEF_LAMS)
    tried = {(str(row["interactions"]), str(row["kernel"])) for row in tilts}
    assert tried == {
        (str(as_listed(columns)), str(as_listed(kernel))) for columns, kernel, _ in BRIEF_SETTINGS
    }
    assert brief.settings["effort"] == "balanced"
    assert "lam_tried" not in brief.settings


def test_the_chosen_features_are_those_of_the_model(brief):
    """And new rows gain by the tilt, over the base alone."""
    settings, features = brief.settings, brief.features
    assert brief.method == "map"
    assert [as_listed(features.kernel), as_listed(features.interactions)] == [
        settings["kernel"], settings["interactions"],
    ]  # fmt: skip
    assert features.n_features == settings["n_features"]
    assert features.n_features in (256, *LARGER_COUNTS)
    new = skewed_rows(4_000, seed=1)
    base = brief.base.log_density(brief.scaling.apply(new)) - brief.scaling.log_volume
    gain = brief.log_density(new) - base
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


@pytest.mark.slow
def test_the_search_ends_where_rows_gain_by_no_kind(brief, monkeypatch):
    """After every kind was tried once; the rows above, which gain, lead to a second round."""
    monkeypatch.setattr(candidates, "_best_score", lambda setting, found: {setting: -np.inf})
    short = tgp.fit(skewed_rows(400), scale="standardize", n_threads=1)
    counts = [
        sum(np.isfinite(row["lam"]) for row in model.selection) for model in (short, brief)
    ]
    each = len(BRIEF_LAMS) * len(BRIEF_SETTINGS)
    assert counts[0] % each == 0 < counts[1] % each


def test_kernel_and_columns_that_are_given_stay():
    model = tgp.fit(skewed_rows(150), kernel="matern52", interactions=3, lam=1.0, n_threads=1)
    tilts = [row for row in model.selection if np.isfinite(row["lam"])]
    assert {(row["kernel"], row["interactions"]) for row in tilts} == {("matern52", 3)}
    assert (model.features.kernel, model.features.interactions) == ("matern52", 3)
    assert set(model.settings["auto"]).isdisjoint({"kernel", "interactions"})
    fixed = {"method": "map", "lam": 1.0, "gamma": 0.5, "base": "empirical", "n_features": 20}
    model = tgp.fit(skewed_rows(150), **fixed, frequency_covariance="identity", kernel="matern12")
    assert model.selection is None
    assert model.features.kernel == "matern12"


@pytest.mark.parametrize("kernel", ["matern12", "matern32"])
@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd"])
def test_rough_kernels_are_for_map(method, kernel):
    """Their functions have no Laplacian, which score matching takes."""
    with pytest.raises(ValueError, match=f"{kernel}.*{method}.*map"):
        tgp.fit(skewed_rows(50), method=method, kernel=kernel)
    assert Settings.from_options(kernel=kernel).methods == ("map",)
    if method != "ncfd":
        features = tgp.Features.draw(5, 1.0, np.eye(5), kernel=kernel)
        stats = tgp.accumulate(skewed_rows(50), features)
        with pytest.raises(ValueError, match=f"{kernel}.*{method}.*map"):
            tgp.solve(stats, tgp.GaussianBase.from_data(skewed_rows(50)), method)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"effort": "great"}, "effort"), ({"kernel": "matern72"}, "kernel"),
     ({"interactions": 0}, "interactions"), ({"interactions": 6}, "interactions")],
)  # fmt: skip
def test_wrong_options_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        tgp.fit(skewed_rows(50), **options)


def test_small_work_runs_on_one_thread(monkeypatch):
    """Below the threshold; the negative control is work above it."""
    monkeypatch.setattr(kernels, "resolve_threads", lambda module, n_threads: 7)
    assert Threads().resolve(0.99 * thread_choice.SMALL_WORK)[1] == 1
    assert Threads().resolve(thread_choice.SMALL_WORK)[1] == 7
    assert Threads().resolve()[1] == 7
