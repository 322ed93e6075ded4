"""The estimators of tgpfast.sklearn: scikit-learn's own checks, its tools, and their results."""

import inspect
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_outlier_detector
from sklearn.compose import ColumnTransformer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_sample_weight_equivalence_on_dense_data,
)

import tgpfast as tgp
from tgpfast.sklearn import TGPClassifier, TGPDensity, TGPOutlierDetector
from tgpfast.sklearn.outlier_detector import weigh_base_draws
from tgpfast.sklearn.shrinkage import has_fewer_rows, is_singular, pool_covariance
from tgpfast.sklearn.smoothing import scott_noise

ESTIMATORS = (TGPDensity, TGPOutlierDetector, TGPClassifier)
# Settings that are otherwise chosen from the data, which takes seconds; and one thread, since many
# small calls on several threads are slow where other programs use the cores.
FIXED = {
    "method": "fd", "n_features": 50, "lam": 10.0, "gamma": "scott", "base": "empirical",
    "n_threads": 1, "fit_options": {"frequency_covariance": "data"},
}  # fmt: skip
# With a weak tilt the threshold of the outlier detector is a smooth function of the statistics.
# With a strong one it depends on the modes that are found, and rounding may decide on one.
WEAK_TILT = {**FIXED, "n_features": 10, "lam": 1000.0}
NOT_RUN = {"check_array_api_input"}  # scikit-learn runs it only where SCIPY_ARRAY_API is set


def normal_rows(n=200, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def two_classes(n=150, gap=3.0):
    """Rows of two normal classes, and their labels."""
    x = np.concatenate([normal_rows(n, seed=1), gap + normal_rows(n, seed=2)])
    return x, np.repeat(["low", "up"], n)


def fixed_fit(x, **options):
    """``tgpfast.fit`` with the settings that FIXED stands for."""
    fixed = {k: v for k, v in FIXED.items() if k != "fit_options"} | FIXED["fit_options"]
    return tgp.fit(x, **fixed, **options)


# -- conventions of scikit-learn -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # scikit-learn plants odd rows, and checks its own warnings
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (TGPDensity, {"n_threads": 1}), (TGPOutlierDetector, {"n_threads": 1}),
        (TGPClassifier, FIXED),  # default settings pass too, and take 25 seconds
        *((kind, {**FIXED, "missing": "drop"}) for kind in ESTIMATORS),
    ],
)  # fmt: skip
def test_scikit_learn_accepts_the_estimator(kind, settings):
    """Every check passes: no check is expected to fail."""
    results = check_estimator(kind(**settings), on_skip=None)
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= NOT_RUN
    assert {r["status"] for r in results} <= {"passed", "skipped"}
    assert len(results) > 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("settings", [{}, {"smoothing": 0}, {"lam": 20.0}])
def test_thresholds_of_many_columns_do_not_depend_on_the_modes_that_are_found(settings):
    """Fits of weighted and of repeated rows find other modes, by rounding."""
    detector = TGPOutlierDetector(n_threads=1, **settings)
    check_sample_weight_equivalence_on_dense_data("TGPOutlierDetector", detector)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tgpfast.TGPWarning")
def test_draws_of_the_base_give_the_shares_of_the_model():
    """Against chains; and none are given where they miss a mode (negative control)."""
    x = normal_rows(500, 5)
    model = fixed_fit(x)
    rows, weights = weigh_base_draws(model, 50_000, 0)
    chains, scores = model.sample(4_000, seed=1, method="mala"), model.log_density(rows)
    for level in (-9.0, -8.0, -7.0):
        share = weights[scores < level].sum() / weights.sum()
        assert share == pytest.approx((model.log_density(chains) < level).mean(), abs=0.03)
    far = tgp.fit(
        np.concatenate([0.1 * x, 0.1 * x + 2.0]), method="map", lam=0.01, n_features=300,
        base=tgp.GaussianBase(np.full(5, -3.0), np.eye(5)),
    )  # fmt: skip
    assert weigh_base_draws(far, 5_000, 0) is None


class Silent(TGPDensity):
    """Its fit does not return the estimator."""

    def fit(self, X, y=None, sample_weight=None):
        super().fit(X, sample_weight=sample_weight)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_refuses_a_planted_mistake():
    """Negative control."""
    with pytest.raises((AssertionError, AttributeError)):
        check_estimator(Silent(**WEAK_TILT), on_skip=None)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_parameters_have_the_defaults_of_fit(kind):
    of_fit = inspect.signature(tgp.fit).parameters
    ours = inspect.signature(kind).parameters
    shared = set(ours) & set(of_fit)
    assert shared == {
        "method", "n_features", "lam", "gamma", "base", "scale", "support", "period", "discrete",
        "missing", "effort", "backend", "n_threads",
    }  # fmt: skip
    assert {n: ours[n].default for n in shared} == {n: of_fit[n].default for n in shared}
    assert ours["random_state"].default == of_fit["seed"].default
    assert all(p.kind is p.KEYWORD_ONLY for p in ours.values())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_clones_pickles_and_joblib_files_give_the_same_estimator(kind, tmp_path):
    x, y = two_classes()
    fitted = kind(**FIXED).fit(x, y)
    call = "predict_proba" if is_classifier(fitted) else "score_samples"
    expected = getattr(fitted, call)(x[::9])
    joblib.dump(fitted, tmp_path / "estimator")
    others = [
        pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "estimator"),
        clone(fitted).fit(x, y),
    ]  # fmt: skip
    for other in others:
        assert np.array_equal(getattr(other, call)(x[::9]), expected)
    rows = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(getattr(fitted, call))(part) for part in (x[:9], x[9:20])
    )
    assert np.allclose(np.concatenate(rows), getattr(fitted, call)(x[:20]), rtol=1e-12)


def test_fit_options_reach_fit_and_may_not_repeat_parameters():
    x = normal_rows()
    options = {"frequency_covariance": "identity", "normalize_weights": True}
    model = TGPDensity(**{**FIXED, "fit_options": options}).fit(x).model_
    assert model.settings["frequency_covariance"] == "identity"
    for name in ("lam", "seed", "moments"):
        with pytest.raises(ValueError, match=f"fit_options has '{name}'"):
            TGPDensity(fit_options={name: 1}).fit(x)
    with pytest.raises(ValueError, match=r"lam=-1\.0"):
        TGPDensity(**{**FIXED, "lam": -1.0}).fit(x)
    with pytest.raises(TypeError, match="planet"):
        TGPDensity(fit_options={"planet": 1}).fit(x)


def test_missing_scikit_learn_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import tgpfast\n"
        "try:\n    import tgpfast.sklearn\nexcept ImportError as error:\n    print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "tgpfast[sklearn]"' in out.stdout
    assert len(out.stdout.strip().splitlines()) == 1


# -- tools of scikit-learn -------------------------------------------------------------------------


def test_names_of_columns_pass_through_a_column_transformer():
    frame = pd.DataFrame(normal_rows(d=3), columns=["a", "b", "c"])
    prepare = ColumnTransformer(
        [("scaled", StandardScaler(), ["c", "a"])], verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipe = make_pipeline(prepare, TGPDensity(**FIXED)).fit(frame)
    assert pipe[-1].feature_names_in_.tolist() == ["c", "a"]
    scaled = StandardScaler().fit_transform(frame[["c", "a"]])
    expected = fixed_fit(scaled).log_density(scaled)
    assert np.allclose(pipe.score_samples(frame), expected, rtol=1e-12)
    direct = TGPDensity(**FIXED).fit(frame)
    with pytest.raises(ValueError, match="feature names"):
        direct.score_samples(frame[["b", "a", "c"]])


def test_a_grid_search_finds_the_better_lambda():
    """Rows of three tight clusters need a strong tilt; the total log-likelihood says so."""
    x = np.random.default_rng(3).choice([-3.0, 0.0, 3.0], size=(300, 1))
    x += 0.3 * normal_rows(300, 1)
    density = TGPDensity(**{**FIXED, "method": "map"})
    search = GridSearchCV(density, {"lam": [1.0, 1e6]}, cv=2).fit(x)
    assert search.best_params_ == {"lam": 1.0}
    assert search.best_score_ > search.cv_results_["mean_test_score"].min() + 10.0


def test_weights_are_routed_to_fit_and_score():
    x, weights = normal_rows(), np.repeat([1.0, 3.0], 100)
    with config_context(enable_metadata_routing=True):
        density = TGPDensity(**FIXED).set_fit_request(sample_weight=True)
        density.set_score_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), density)
        pipe.fit(x, sample_weight=weights)
        assert pipe[-1].model_.settings["weights"] == "as given"
        folds = [(np.arange(100), np.arange(100, 200))]
        scored = cross_validate(
            density, x, params={"sample_weight": weights}, cv=folds, return_estimator=True
        )
    (fitted,) = scored["estimator"]
    expected = 3.0 * fitted.score_samples(x[100:]).sum()
    assert scored["test_score"][0] == pytest.approx(expected, rel=1e-12)


def test_weights_are_routed_through_a_grid_search_and_to_partial_fit():
    x, y = two_classes()
    weights = np.where(y == "low", 1.0, 2.0)
    with config_context(enable_metadata_routing=True):
        classifier = TGPClassifier(**FIXED).set_fit_request(sample_weight=True)
        classifier.set_score_request(sample_weight=False)
        search = GridSearchCV(classifier, {"lam": [10.0, 1e3]}, cv=2)
        search.fit(x, y, sample_weight=weights)
    assert search.best_estimator_.class_count_.tolist() == [150.0, 300.0]
    detector = TGPOutlierDetector(**FIXED).partial_fit(x, sample_weight=weights)
    assert detector.model_.settings["weights"] == "as given"


def test_names_of_columns_come_from_a_pipeline_that_outputs_frames():
    frame = pd.DataFrame(normal_rows(), columns=["a", "b"])
    pipe = make_pipeline(StandardScaler(), TGPDensity(**FIXED)).set_output(transform="pandas")
    assert pipe.fit(frame)[-1].model_.table.columns == ["a", "b"]
    median = pipe[-1].model_.conditional({"a": 0.0}).median()
    assert np.isfinite(median)


@pytest.mark.slow
def test_other_processes_give_the_same_scores():
    x, y = two_classes()
    here, there = (cross_val_score(TGPClassifier(**FIXED), x, y, cv=2, n_jobs=n) for n in (1, 2))
    assert np.array_equal(here, there)


def test_estimators_say_what_they_are():
    assert is_outlier_detector(TGPOutlierDetector())
    assert not is_outlier_detector(TGPDensity())
    assert is_classifier(TGPClassifier())
    assert "lam=3.0" in repr(TGPDensity(lam=3.0))
    assert tgp.sklearn.TGPDensity is TGPDensity


# -- TGPDensity ------------------------------------------------------------------------------------


def test_density_is_that_of_fit():
    x, y = normal_rows(), normal_rows(7, seed=5)
    model, density = fixed_fit(x), TGPDensity(**FIXED).fit(x)
    assert np.array_equal(density.score_samples(y), model.log_density(y))
    assert density.score(y) == pytest.approx(model.log_density(y).sum(), rel=1e-12)
    assert np.array_equal(density.sample(5, random_state=3), model.sample(5, seed=3))
    assert density.sample().shape == (1, 2)
    state = np.random.RandomState(4)
    assert not np.array_equal(density.sample(5, state), density.sample(5, state))


def test_partial_fit_learns_as_one_fit_of_all_rows():
    """The first rows decide on scaling, bandwidth and frequencies; here all rows do the same."""
    x = normal_rows()
    streamed = TGPDensity(**{**FIXED, "gamma": 0.5})
    streamed.partial_fit(x).partial_fit(x, sample_weight=np.full(200, 2.0))
    whole = TGPDensity(**{**FIXED, "gamma": 0.5}).fit(x, sample_weight=np.full(200, 3.0))
    assert np.allclose(streamed.score_samples(x), whole.score_samples(x), atol=1e-8)
    with pytest.raises(ValueError, match="2 features"):
        streamed.partial_fit(normal_rows(d=3))


def test_decay_forgets():
    far, near = normal_rows() + 4.0, normal_rows(seed=1)
    scores = [
        TGPDensity(**FIXED, decay=decay).partial_fit(far).partial_fit(near).score(near)
        for decay in (1.0, 0.01)
    ]
    assert scores[1] > scores[0] + 50.0


def test_weights_are_repetitions():
    x, counts = normal_rows(60), np.random.default_rng(1).integers(0, 4, 60)
    weighted = TGPDensity(**FIXED).fit(x, sample_weight=counts)
    repeated = TGPDensity(**FIXED).fit(np.repeat(x, counts, axis=0))
    assert np.allclose(weighted.score_samples(x), repeated.score_samples(x), atol=1e-8)
    assert weighted.score(x, sample_weight=counts) == pytest.approx(
        float(weighted.score_samples(x) @ counts), rel=1e-12
    )
    for bad in (-np.ones(60), np.zeros(60)):
        with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
            TGPDensity(**FIXED).fit(x, sample_weight=bad)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((1, 2)), "1 sample"),
        (np.ones((2, 2)), "constant"),
        (np.column_stack([np.ones(50), np.arange(50.0)]), "constant"),
        (np.column_stack([np.arange(50.0), 2.0 * np.arange(50)]), "dependent"),
        (np.full((9, 2), np.nan), "NaN"),
    ],
)
def test_rows_without_a_density_are_refused(x, message):
    for kind in (TGPDensity, TGPOutlierDetector):
        with pytest.raises(ValueError, match=message):
            kind(**FIXED).fit(x)


def test_few_rows_get_a_shrunk_covariance():
    """At most d rows: a warning, a proper density, and none where there is one row more."""
    x = normal_rows(4, 3)
    with pytest.warns(tgp.FallbackWarning, match="fewer than 4 rows differ"):
        density = TGPDensity(**FIXED).fit(np.repeat(x[:3], 5, axis=0))
    assert np.isfinite(density.score_samples(x)).all()
    TGPDensity(**FIXED).fit(x)  # warnings are errors


def test_default_settings_work():
    x = normal_rows(15, 1)  # too few rows to compare candidates
    with pytest.warns(tgp.FallbackWarning, match="15 rows differ"):
        density, model = TGPDensity().fit(x), tgp.fit(x)
    assert np.array_equal(density.score_samples(x), model.log_density(x))


# -- domains, discrete and missing values ----------------------------------------------------------


def shop_rows(n=300):
    """Waiting times, hours of the day and numbers of visits."""
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "wait": rng.exponential(2.0, n), "hour": rng.normal(23.0, 2.0, n) % 24,
        "visits": rng.poisson(3.0, n).astype(float),
    })  # fmt: skip


DOMAINS = {
    "support": {"wait": (0, None), "visits": (0, None)}, "period": {"hour": 24.0},
    "discrete": ["visits"],
}  # fmt: skip


@pytest.mark.parametrize("columns", [["wait", "hour"], ["wait", "visits"]])
def test_columns_of_a_domain_have_the_names_of_the_frame(columns):
    """The density is that of fit, for names and for numbers."""
    rows, chosen = shop_rows()[columns], {}
    for name in ("support", "period"):
        chosen[name] = {c: v for c, v in DOMAINS[name].items() if c in columns} or None
    chosen["discrete"] = [c for c in DOMAINS["discrete"] if c in columns] or None
    named = TGPDensity(**chosen, lam=1.0, effort="fast", random_state=3, n_threads=1).fit(rows)
    expected = tgp.fit(rows, **chosen, lam=1.0, effort="fast", seed=3, n_threads=1)
    assert np.allclose(named.score_samples(rows), expected.log_density(rows), rtol=1e-9)
    assert named.model_.table.columns == columns
    second = {"period": {1: 24.0}} if "hour" in columns else {
        "discrete": [1], "support": {0: (0, None), 1: (0, None)}
    }  # fmt: skip
    by_number = chosen | {"support": {0: (0, None)}} | second
    numbered = named.set_params(**by_number).fit(rows.to_numpy())
    assert np.allclose(numbered.score_samples(rows.to_numpy()), expected.log_density(rows))
    assert np.isneginf(numbered.score_samples([[-1.0, 3.0]]))
    with pytest.raises(ValueError, match="no column 'wait'"):
        TGPDensity(**FIXED | {"support": {"wait": (0, None)}}).fit(rows.to_numpy())


def test_detector_and_classifier_know_walls():
    rows = shop_rows()[["wait"]]
    walls = {"support": {"wait": (0, None)}, "lam": 1.0, "n_threads": 1}
    detector = TGPOutlierDetector(**walls).fit(rows)
    assert detector.predict(pd.DataFrame({"wait": [-0.01, 0.01]})).tolist() == [-1, 1]
    labels = np.repeat(["a", "b"], 150)
    classifier = TGPClassifier(**walls).fit(rows, labels)
    assert all(np.isneginf(d.log_density([[-0.01]])) for d in classifier.densities_)


def with_holes(rows):
    """The rows, every tenth of which lacks its first value."""
    holed = np.array(rows)
    holed[::10, 0] = np.nan
    return holed


def test_rows_with_missing_values_are_dropped_where_asked():
    x = normal_rows()
    holed, weights = with_holes(x), np.repeat([1.0, 2.0], 100)
    kept = ~np.isnan(holed).any(axis=1)
    with pytest.warns(tgp.DataWarning, match="dropped 20 of 200 rows with missing values"):
        density = TGPDensity(**FIXED, missing="drop").fit(holed, sample_weight=weights)
    expected = TGPDensity(**FIXED).fit(x[kept], sample_weight=weights[kept])
    assert np.allclose(density.score_samples(x), expected.score_samples(x), rtol=1e-12)
    marginal = density.model_.marginal([1]).log_density(x[:1, 1:])
    assert density.score_samples(holed[:1]) == pytest.approx(marginal, rel=1e-9)
    with pytest.warns(tgp.DataWarning, match="dropped 20"):
        density.partial_fit(holed)
    assert density.model_.settings["n_rows"] == 360
    assert density.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(ValueError, match="NaN"):
        TGPDensity(**FIXED).fit(holed)
    with pytest.raises(ValueError, match="infinity"):
        TGPDensity(**FIXED, missing="drop").fit(np.where(np.isnan(holed), np.inf, holed))
    with pytest.raises(ValueError, match="every row has missing values"):
        TGPDensity(**FIXED, missing="drop").fit(holed[::10])
    with pytest.raises(ValueError, match="missing='fill'"):
        TGPDensity(**FIXED, missing="fill").fit(x)


def test_incomplete_rows_are_outliers_by_the_columns_that_they_have():
    """The share of normal rows beyond the threshold is that of complete rows."""
    x = normal_rows(400)
    detector = TGPOutlierDetector(**{**FIXED, "lam": 1e8}, missing="drop", contamination=0.1)
    with pytest.warns(tgp.DataWarning, match="dropped 40"):
        detector.fit(with_holes(x))
    plain = TGPOutlierDetector(**{**FIXED, "lam": 1e8}, contamination=0.1)
    assert detector.offset_ == plain.fit(np.delete(x, np.s_[::10], axis=0)).offset_
    grid = np.column_stack([np.full(201, np.nan), np.linspace(-4.0, 4.0, 201)])
    inside = grid[detector.predict(grid) == 1, 1]
    share = stats.norm.cdf(inside.max()) - stats.norm.cdf(inside.min())
    assert share == pytest.approx(0.9, abs=0.05)  # 0.1 +- 0.015 of the rows, and the fit's error
    assert detector.predict([[np.nan, np.nan], [0.0, 9.0]]).tolist() == [1, -1]


def test_probabilities_of_incomplete_rows_follow_from_the_columns_that_they_have():
    x, y = two_classes()
    with pytest.warns(tgp.DataWarning, match="dropped 30"):
        classifier = TGPClassifier(**FIXED, missing="drop").fit(with_holes(x), y)
    assert classifier.class_count_.tolist() == [135.0, 135.0]
    rows = x[5:300:40]
    rows[:, 0] = np.nan
    marginals = [d.marginal([1]) for d in classifier.densities_]
    joint = np.exp([m.log_density(rows[:, 1:]) for m in marginals])
    assert np.allclose(classifier.predict_proba(rows), (joint / joint.sum(axis=0)).T, rtol=1e-9)


# -- shrunk covariances ----------------------------------------------------------------------------


def test_pooled_covariance_is_the_formula():
    x, w = normal_rows(6, 2), np.array([1.0, 2.0, 1.0, 3.0, 1.0, 1.0])
    labels = np.array([0, 0, 0, 1, 1, 1])
    rows = np.repeat(x, w.astype(int), axis=0)
    of = np.repeat(labels, w.astype(int))
    residuals = rows - np.stack([rows[of == k].mean(axis=0) for k in (0, 1)])[of]
    scatter = sum(np.outer(r, r) for r in residuals)
    expected = (scatter + 2 * np.diag(np.diag(scatter) / 9)) / 11
    assert np.allclose(pool_covariance(x, labels, w), expected, rtol=1e-12)


def test_pooled_covariance_has_no_zero_variance():
    x = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 1.0], [1.0, 4.0]])  # column 0 is the class
    pooled = pool_covariance(x, x[:, 0], np.ones(4))
    assert np.linalg.eigvalsh(pooled).min() > 0
    with pytest.raises(ValueError, match="column 1 is constant"):
        pool_covariance(x[[0, 2]], x[[0, 2], 0], np.ones(2))


def test_rows_that_differ_are_counted():
    x = normal_rows(5)
    assert has_fewer_rows(np.repeat(x, 3, axis=0), 6)
    assert not has_fewer_rows(x, 5)
    assert is_singular(x[:2], np.ones(2))
    assert not is_singular(x, np.ones(5))


# -- TGPOutlierDetector ----------------------------------------------------------------------------


def test_contamination_is_the_share_of_outliers():
    x = normal_rows(300)
    for share in (0.05, 0.29, 0.5):
        detector = TGPOutlierDetector(**FIXED, contamination=share)
        labels = detector.fit_predict(x)
        assert (labels == -1).sum() == round(share * 300)
        assert np.array_equal(labels == -1, detector.decision_function(x) < 0)
    counts = np.random.default_rng(1).integers(0, 4, 300)
    weighted = TGPOutlierDetector(**FIXED, contamination=0.1).fit(x, sample_weight=counts)
    flagged = counts[weighted.predict(x) == -1].sum()
    assert 0.1 * counts.sum() - 4 < flagged <= 0.1 * counts.sum()


@pytest.mark.parametrize("contamination", [0.0, 0.51, -1, "all", None, np.nan])
def test_contamination_must_be_a_share(contamination):
    with pytest.raises(ValueError, match="contamination="):
        TGPOutlierDetector(**FIXED, contamination=contamination).fit(normal_rows(20))


def test_auto_threshold_is_the_level_of_the_likeliest_95_percent():
    """A normal density in two columns is below its maximum / 20 with probability 1 / 20."""
    x = normal_rows(2000)
    detector = TGPOutlierDetector(**{**FIXED, "lam": 1e8}).fit(x)  # the Gaussian alone
    height = stats.multivariate_normal(x.mean(axis=0), np.cov(x.T, bias=True)).logpdf
    exact = height(x.mean(axis=0)) + np.log(0.05)
    assert detector.offset_ == pytest.approx(exact, abs=0.1)  # 0.02 is one standard error
    assert detector.predict([[0.0, 0.0], [5.0, 5.0], [1e200, 0.0]]).tolist() == [1, -1, -1]


def test_the_threshold_follows_the_stream():
    """After many wider rows, rows that were outliers are none; no rows are kept."""
    detector = TGPOutlierDetector(**FIXED, contamination=0.02, decay=0.1).partial_fit(normal_rows())
    assert detector.predict([[6.0, 0.0]]).tolist() == [-1]
    before = detector.offset_
    for seed in (1, 2, 3):
        detector.partial_fit(6.0 * normal_rows(300, seed=seed))
    assert detector.predict([[6.0, 0.0], [60.0, 0.0]]).tolist() == [1, -1]
    assert detector.offset_ < before - 2.0
    rows = detector.sample(2000, random_state=0)
    assert (detector.predict(rows) == -1).mean() == pytest.approx(0.02, abs=0.015)


QUICK = {"n_threads": 1, "effort": "fast"}


def contaminated_rows():
    """150 normal rows in five columns of several units, and 12 outliers in a tight cluster."""
    x = normal_rows(162, 5)
    x[150:] = 0.3 * x[150:] + [2.0, -2.0, 2.0, -2.0, 2.0]
    return x * [1.0, 10.0, 0.1, 1.0, 1.0]


@pytest.mark.slow
def test_noise_finds_clusters_of_outliers():
    """Without noise, the density follows the cluster and finds it likelier than usual rows. The
    threshold stays that of rows without noise, else there would be nothing below it."""
    x, is_usual = contaminated_rows(), np.arange(162) < 150
    plain, auto, wide = (
        TGPOutlierDetector(smoothing=s, **QUICK).fit(x) for s in (0, "auto", 1.5)
    )
    areas = [roc_auc_score(is_usual, d.score_samples(x)) for d in (plain, auto, wide)]
    assert plain.smoothed_ is None
    assert areas[0] < areas[1] < areas[2]
    assert areas[0] < 0.5 < 0.9 < areas[2]
    assert 0.0 < (auto.predict(x) == -1).mean() < 0.1
    with pytest.warns(tgp.DataWarning, match="add nothing"):
        auto.partial_fit(x[:20])


def test_a_smoothed_density_is_that_of_rows_with_noise():
    """The base of the model, its covariances wider by the noise; scipy's Gaussians make it."""
    x = contaminated_rows()
    detector = TGPOutlierDetector(smoothing=0.5, **QUICK).fit(x)
    base = detector.model_.base
    wider = base.covariances + 0.25 * np.eye(5)  # columns have deviations of 1 there
    rows = x[::40] + 0.1
    units = (rows - x.mean(axis=0)) / x.std(axis=0)
    terms = [
        weight * stats.multivariate_normal(m, c).pdf(units)
        for weight, m, c in zip(base.weights, base.means, wider, strict=True)
    ]
    expected = np.log(np.sum(terms, axis=0) / np.prod(x.std(axis=0)))
    assert np.allclose(detector.score_samples(rows), expected, rtol=1e-9)


def test_noise_leaves_the_share_of_incomplete_outliers_as_it_is():
    """The threshold of incomplete rows is one of the smoothed density, as that of complete rows."""
    covariance = 0.1 * np.eye(4) + 0.9
    draw = np.random.default_rng(0).multivariate_normal
    x, rows = (draw(np.zeros(4), covariance, n) for n in (200, 2_000))
    detector = TGPOutlierDetector(smoothing=1.0, missing="drop", **QUICK).fit(x)
    shares = [(detector.predict(rows) == -1).mean()]
    rows[:, 2:] = np.nan
    shares.append((detector.predict(rows) == -1).mean())
    assert shares[1] == pytest.approx(shares[0], abs=0.025)  # its error is 0.007 by 1,000 draws


def test_noise_of_scott_for_more_than_three_columns_alone():
    x = contaminated_rows()
    assert scott_noise(np.repeat(x, 2, axis=0)) == pytest.approx(162 ** (-1 / 9))
    assert TGPOutlierDetector()._find_noise(x[:, :3]) == 0.0
    assert TGPOutlierDetector(support={0: (-9.0, 9.0)})._find_noise(x) == 0.0
    assert TGPOutlierDetector(**FIXED).fit(x).smoothed_ is None
    with pytest.warns(tgp.FallbackWarning, match="12 rows differ"):  # the base is a Gaussian
        few = TGPOutlierDetector(n_threads=1, contamination=0.1).fit(x[:12])
    covariance = few.model_.base.covariance + 12 ** (-2 / 9) * np.eye(5)
    assert np.allclose(few.smoothed_.base.covariance, covariance, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": -1.0}, "smoothing=-1.0"),
        ({"smoothing": 0.5, "lam": 3.0}, "does not take lam; leave that out"),
        ({"smoothing": 0.5, "base": "student"}, "does not take base"),
        ({"smoothing": 0.5, "period": {0: 1.0}}, "does not take period"),
    ],
)
def test_noise_is_checked(options, message):
    with pytest.raises(ValueError, match=message):
        TGPOutlierDetector(**options).fit(normal_rows(30, 4))


# -- TGPClassifier ---------------------------------------------------------------------------------


def test_probabilities_follow_bayes_rule():
    x, y = two_classes()
    classifier = TGPClassifier(**FIXED).fit(x[40:], y[40:])
    rows = x[::7]
    q = [np.exp(fixed_fit(x[40:][y[40:] == c]).log_density(rows)) for c in ("low", "up")]
    joint = np.column_stack([110 / 260 * q[0], 150 / 260 * q[1]])
    expected = joint / joint.sum(axis=1, keepdims=True)
    assert np.allclose(classifier.predict_proba(rows), expected, rtol=1e-9)
    assert np.allclose(np.exp(classifier.predict_log_proba(rows)), expected, rtol=1e-9)
    assert classifier.predict(rows).tolist() == [["low", "up"][k] for k in expected.argmax(axis=1)]
    assert cross_val_score(TGPClassifier(**FIXED), x, y, cv=2).min() > 0.95


def test_probabilities_are_those_of_the_classes_that_made_the_rows():
    """Two unit normals at 0 and at (1, 1): the log odds of the second are x + y - 1.

    A weak tilt leaves the Gaussians: 10 parameters from 1,000 rows each give log odds an error of
    about sqrt(10 / 1000) = 0.1, and probabilities at most a quarter of that.
    """
    x, y = two_classes(1000, gap=1.0)
    found = TGPClassifier(**WEAK_TILT).fit(x, y).predict_proba(x)[:, 1]
    exact = 1.0 / (1.0 + np.exp(1.0 - x.sum(axis=1)))
    assert np.abs(found - exact).mean() < 0.025


def test_given_priors_are_used_and_checked():
    x, y = two_classes()
    given = TGPClassifier(**FIXED, priors=[0.9, 0.1]).fit(x, y)
    plain = TGPClassifier(**FIXED).fit(x, y)
    odds = [np.subtract(*c.predict_log_proba(x[::20]).T) for c in (given, plain)]
    assert np.allclose(odds[0] - odds[1], np.log(9.0), rtol=1e-9)
    far = np.array([[1e200, 0.0]])  # every density is 0 there
    assert np.allclose(given.predict_proba(far), [[0.9, 0.1]])
    for bad in ([0.5], [0.5, 0.6], [1.5, -0.5]):
        with pytest.raises(ValueError, match="priors"):
            TGPClassifier(**FIXED, priors=bad).fit(x, y)


def test_small_classes_share_a_covariance():
    """One row, and a class with a constant column: a warning names them, and both are predicted."""
    x, y = two_classes()
    flat = np.column_stack([np.full(40, 9.0), normal_rows(40, 1)[:, 0]])
    x = np.concatenate([x, [[-9.0, -9.0]], flat])
    y = np.concatenate([y, ["alone"], np.repeat("flat", 40)])
    with pytest.warns(tgp.FallbackWarning, match=r"\['alone', 'flat'\]"):
        classifier = TGPClassifier(**FIXED).fit(x, y)
    assert classifier.predict([[-8.0, -8.5], [9.5, 0.0], [0.0, 0.0]]).tolist() == [
        "alone", "flat", "low",
    ]  # fmt: skip
    assert classifier.class_count_.tolist() == [1, 40, 150, 150]


def test_classes_may_come_one_after_the_other():
    """Rows of a class that has too few are kept; then it is learned as by one fit."""
    x, y = two_classes()
    classifier = TGPClassifier(**{**FIXED, "lam": -1.0})
    with pytest.raises(ValueError, match="lam="):
        classifier.fit(x, y)
    classifier.set_params(**FIXED)  # a call that failed does not count as the first one
    with pytest.raises(ValueError, match="classes must be passed"):
        classifier.partial_fit(x, y)
    classifier.partial_fit(x[:150], y[:150], classes=["low", "up"])
    assert classifier.predict_proba(x[-2:]).tolist() == [[1.0, 0.0]] * 2
    with pytest.warns(tgp.FallbackWarning, match=r"\['up'\]"):
        classifier.partial_fit(x[150:153], y[150:153])
    classifier.partial_fit(x[153:], y[153:])
    whole = TGPClassifier(**FIXED).fit(x, y)
    assert np.allclose(classifier.predict_log_proba(x), whole.predict_log_proba(x), rtol=1e-9)
    classifier.partial_fit(x[:9], y[:9])
    assert classifier.class_count_.tolist() == [159, 150]
    assert classifier.densities_[0].settings["n_rows"] == 159
    with pytest.raises(ValueError, match="'new'"):
        classifier.partial_fit(x[:2], ["new", "low"])
    with pytest.raises(ValueError, match="as before"):
        classifier.partial_fit(x[:2], y[:2], classes=["low"])


def test_a_class_without_weight_is_never_predicted():
    x, y = two_classes()
    classifier = TGPClassifier(**FIXED).fit(x, y, sample_weight=y == "low")
    assert classifier.densities_[1] is None
    assert classifier.predict_proba(x[-3:]).tolist() == [[1.0, 0.0]] * 3
