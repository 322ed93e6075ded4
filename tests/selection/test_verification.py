"""Verification of a density: what passes, what does not, and what `fit` then does."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.density.exponent import PointTilt
from tgpfast.selection import scoring, verification
from tgpfast.selection.scoring import distances_to
from tgpfast.selection.verification import Verifier, ks_distance, sort_column


def normal_rows(n=3_000, d=2, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def density(theta, d=2, place=4.0):
    """A standard normal with one slow wave that is highest at a place."""
    base = tgp.GaussianBase(np.zeros(d), np.eye(d))
    w = np.zeros((1, d))
    w[0, 0] = 0.3
    return tgp.Density("fd", PointTilt(
        tgp.Features(w, [-0.3 * place], 1.0), np.array([theta]), base.mean
    ), base)  # fmt: skip


def test_a_good_density_passes():
    x = normal_rows()
    verified = Verifier(x, np.ones(len(x))).verify(density(0.0))
    assert not verified.misplaces_mass
    assert not verified.misfits
    assert verified.record()["passed"]
    assert verified.describe(None) == ""


def test_mass_far_from_the_rows_does_not_pass():
    x = normal_rows()
    with pytest.warns(RuntimeWarning, match="unreliable"):
        verified = Verifier(x, np.ones(len(x))).verify(density(400.0, place=12.0))
    assert verified.far_share > 0.5
    assert verified.misplaces_mass
    assert verified.misfits
    words = verified.describe(["a", "b"])
    assert "far from every row" in words
    assert "column 0 ('a')" in words


def test_a_margin_that_differs_is_named():
    x = normal_rows()
    x[:, 1] = np.abs(x[:, 1])
    verified = Verifier(x, np.ones(len(x))).verify(density(0.0))
    assert verified.misfits
    assert verified.column == 1
    assert verified.ks == pytest.approx(0.5, abs=0.05)


def test_weights_count():
    x = np.concatenate([normal_rows(2_000), normal_rows(2_000, seed=1) + 50.0])
    weights = np.r_[np.ones(2_000), np.zeros(2_000)]
    assert not Verifier(x, weights).verify(density(0.0)).misfits
    assert Verifier(x, np.ones(4_000)).verify(density(0.0)).misfits


def test_a_repeated_value_is_not_taken_for_few_rows():
    # a third of 3,000 rows is one value: the noise is that of 3,000 rows, and not of 9
    x = np.r_[np.full((1, 2), 0.3), normal_rows(2_000)]
    verifier = Verifier(x, np.r_[1_000.0, np.ones(2_000)])
    assert verifier.n == 3_000
    assert verifier.verify(density(0.0)).misfits


def test_a_margin_of_rounded_values_is_compared_in_cells(monkeypatch):
    """Half of a jump is no misfit; the negative control compares draws as they are."""
    x = normal_rows()
    x[:, 1] = np.round(2.0 * x[:, 1]) / 2.0
    assert not Verifier(x, np.ones(len(x))).verify(density(0.0)).misfits
    monkeypatch.setattr(verification, "round_to", lambda values, points: points)
    assert Verifier(x, np.ones(len(x))).verify(density(0.0)).misfits


def test_ks_of_weighted_samples_equals_scipy():
    from scipy.stats import ks_2samp

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=300), rng.normal(size=500) + 0.3
    got = ks_distance(
        sort_column(a, np.full(300, 1 / 300)), sort_column(b, np.full(500, 1 / 500))
    )
    assert got == pytest.approx(ks_2samp(a, b).statistic, abs=1e-12)


@pytest.mark.slow
def test_fit_raises_lambda_until_the_model_passes(monkeypatch):
    """The first two lambdas are made to fail; the third is taken, and recorded."""
    looked = []
    plain = Verifier.verify

    def strict(self, model):
        found = plain(self, model)
        if model.method == "base":
            return found
        looked.append(model.settings["lam"])
        return replace(found, is_poor=True) if len(looked) < 3 else found

    monkeypatch.setattr(Verifier, "verify", strict)
    x = np.concatenate([normal_rows(600), 0.3 * normal_rows(600, seed=1) + 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # margins are judged elsewhere
        model = tgp.fit(x, method="map", base="empirical", n_features=50)
    assert looked[:3] == pytest.approx([looked[0], 10 * looked[0], 100 * looked[0]])
    assert model.settings["lam"] == pytest.approx(100 * model.settings["lam_raised_from"])


@pytest.mark.slow
def test_fit_takes_the_base_alone_where_nothing_passes(monkeypatch):
    plain = Verifier.verify

    def never(self, model):
        found = plain(self, model)
        return found if model.method == "base" else replace(found, is_poor=True)

    monkeypatch.setattr(Verifier, "verify", never)
    x = np.concatenate([normal_rows(600), 0.3 * normal_rows(600, seed=1) + 3.0])
    with pytest.warns(RuntimeWarning, match="this fit is unreliable.*column"):
        model = tgp.fit(x, method="map", base="empirical", n_features=50)
    assert model.method == "base"
    assert model.settings["method"] == "base"
    assert model.settings["lam"] is None
    assert "alone" in repr(model)
    assert not model.settings["verification"]["passed"]
    assert model.log_normalizer.value == 0.0


@pytest.mark.slow
def test_a_base_alone_is_saved_updated_and_drawn_from(tmp_path):
    x = np.random.default_rng(0).standard_normal((2_000, 2))
    model = tgp.fit(x)
    assert model.method == "base"
    model.save(tmp_path / "m.npz", statistics=True)
    again = tgp.load(tmp_path / "m.npz")
    assert again.method == "base"
    assert np.array_equal(again.log_density(x[:5]), model.log_density(x[:5]))
    assert again.sample(10, seed=1).shape == (10, 2)
    assert again.sampling.method == "base"
    assert model.selection[0]["chosen"]
    assert model.selection[0]["lam"] is None


@pytest.mark.slow
def test_the_tilt_is_not_blamed_for_what_the_base_does():
    """One Gaussian puts mass between the rings; a tilt that puts a little less there is kept."""
    x = tgp.datasets.rings(4_000, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of margins that still differ
        model = tgp.fit(
            x, base="empirical", method="map", n_features=100, gamma=0.15,
            frequency_covariance="data",
        )  # fmt: skip
    seen = model.settings["verification"]
    assert model.method == "map"
    assert seen["gain_over_base"] > 0.2
    assert seen["far_share"] > 0.035  # more than the rows alone would allow


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_read_once_are_verified_and_not_worse_than_their_base(seed):
    """A sample is kept while the rows pass by; rows held out of it choose lambda, and nothing is
    tilted where they do not gain: normal rows take the base alone, uniform rows do not."""
    x = np.random.default_rng(seed).standard_normal((2_000, 2))
    model = tgp.fit(iter([x[:900], x[900:]]))
    assert model.method == "base"
    assert model.settings["verification"]["passed"]
    rng = np.random.default_rng(seed)
    x, new = rng.uniform(size=(2_000, 2)), rng.uniform(size=(4_000, 2))
    model = tgp.fit(iter([x[:900], x[900:]]))
    assert model.method == "fd"
    assert model.settings["verification"]["passed"]
    base = tgp.GaussianBase.from_data(x)
    gain = model.log_density(new) - base.log_density(new)
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(new))


@pytest.mark.slow
def test_a_base_alone_after_a_tilt_was_tried_can_be_updated():
    """Its statistics hold the scores of another base, which must not stand in the way."""
    x = np.random.default_rng(2).standard_cauchy((5_000, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        model = tgp.fit(x, n_features=50)
        assert model.method == "base"
        new = model.update(x[:10])
    assert new.settings["n_rows"] == 5_010


@pytest.mark.slow
def test_repeated_rows_do_not_turn_the_base_alone_into_a_tilt():
    """More rows than refinement needs, but few distinct ones: the pilot's word stands."""
    x = np.random.default_rng(0).standard_normal((1_000, 1))
    with pytest.warns(RuntimeWarning, match="repeats values"):
        model = tgp.fit(np.repeat(x, 4, axis=0), base="empirical", n_features=100)
    top = max(model.selection, key=lambda row: row["score"])
    assert (model.method == "base") == np.isinf(top["lam"])


@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("few", [0, scoring.FEW_DISTANCES])
def test_distances_are_those_to_the_nearest_row(d, few, monkeypatch):
    """By a tree for many rows of few columns, by products elsewhere."""
    monkeypatch.setattr(scoring, "FEW_DISTANCES", few)
    rng = np.random.default_rng(d)
    rows, points = 5.0 + rng.standard_normal((90, d)), 5.0 + rng.standard_normal((400, d))
    want = np.linalg.norm(points[:, None] - rows, axis=2).min(axis=1)
    np.testing.assert_allclose(distances_to(rows, points), want, rtol=1e-12)
    np.testing.assert_allclose(distances_to(rows, rows), 0.0, atol=1e-7)


@pytest.mark.parametrize("d", [1, 2, 12])
@pytest.mark.parametrize("few", [0, scoring.FEW_DISTANCES])
def test_distances_between_rows_leave_out_the_row_itself(d, few, monkeypatch):
    monkeypatch.setattr(scoring, "FEW_DISTANCES", few)
    rows = 5.0 + np.random.default_rng(d).standard_normal((150, d))  # more than one block
    rows[7] = rows[100]
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    np.fill_diagonal(apart, np.inf)
    found = scoring.distances_between(rows)
    np.testing.assert_allclose(np.sort(found), np.sort(apart.min(axis=1)), rtol=1e-9, atol=1e-6)
    assert scoring.distances_between(rows[:1]).tolist() == [0.0]


@pytest.mark.parametrize("d", [1, 2, 3, 8])
@pytest.mark.parametrize("most_cells", [0.0, scoring.MOST_CELLS])
def test_far_points_are_far_from_every_row(d, most_cells, monkeypatch):
    """Cells decide for most points; the distances of the others are measured."""
    monkeypatch.setattr(scoring, "MOST_CELLS", most_cells)
    rng = np.random.default_rng(d)
    rows, points = rng.standard_normal((200, d)), 3.0 * rng.standard_normal((3_000, d))
    nearest = np.linalg.norm(points[:, None] - rows, axis=2).min(axis=1)
    for far in (0.1, 1.0, 2.0):
        found = scoring.find_far(rows, points, far)
        np.testing.assert_array_equal(found, nearest > far)
    assert 0 < found.sum() < len(points)
