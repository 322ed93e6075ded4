"""`fit`: the pipeline, its settings, and what it does with bad input."""

import warnings

import numpy as np
import pytest
from conftest import fixed_fit, slow

import tgpfast as tgp
from tgpfast import kernels
from tgpfast.data.blocks import Blocks
from tgpfast.data.moments import compute_moments

METHODS = ("fd", "ncfd", "fvpd", slow("map"))


def make_data(n=300, d=3, seed=0):
    """Correlated, skewed rows with unequal scales, away from zero."""
    rng = np.random.default_rng(seed)
    mix = np.eye(d) + 0.3 * np.tri(d, k=-1)
    rows = rng.standard_normal((n, d)) @ mix.T
    rows[:, 0] += 0.3 * rows[:, 0] ** 2
    return rows * np.linspace(0.5, 2.0, d) + np.linspace(1.0, 3.0, d)


def small(x, **options):
    return fixed_fit(x, **{"n_features": 30, **options})


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_name_of_a_series_is_that_of_the_column(library, tmp_path):
    """Results have the kind that was given; the name of later Series does not matter."""
    module = pytest.importorskip(library)
    x = make_data(d=1)[:, 0]
    series = module.Series(x, name="price") if library == "pandas" else module.Series("price", x)
    model = small(series)
    assert model.table.columns == ["price"]
    assert list(model.sample(3, seed=0).columns) == ["price"]
    expected = small(x).log_density(x)
    for later in (series, series.rename("cost") if library == "pandas" else series.alias("cost")):
        values = model.log_density(later)
        assert isinstance(values, module.Series)
        assert np.array_equal(values.to_numpy(), expected)
    model.save(tmp_path / "model.npz")
    assert tgp.load(tmp_path / "model.npz").table.columns == ["price"]
    assert np.array_equal(np.asarray(small(x).log_density(series)), expected)
    with pytest.raises(ValueError, match="for a single row pass it as shape"):
        small(make_data(d=3)).log_density(series[:3])


def test_a_series_without_a_name_has_no_name():
    pandas = pytest.importorskip("pandas")
    assert small(pandas.Series(make_data(d=1)[:, 0])).table.columns is None


@pytest.mark.parametrize("options", [{}, {"features": "lattice"}, {"method": "fd"}])
def test_few_rows_warn_that_nothing_was_compared(options):
    """Two rows in one column have a density; its settings are the usual ones."""
    with pytest.warns(tgp.FallbackWarning, match="2 rows differ"):
        model = tgp.fit([[1.0], [2.0]], **options)
    assert model.selection is None
    assert np.isfinite(model.log_density([[1.5]])).all()


def test_few_rows_with_a_given_lambda_do_not_warn():
    """Negative control: warnings are errors."""
    tgp.fit(make_data(19, 1), lam=10.0)
    tgp.fit(make_data(20, 1))


def test_repeated_rows_are_in_the_diagnostics():
    """They are counted in the sample, and shown by the summary; rows without repeats are not."""
    x = make_data(400, 2)
    x[:12] = x[0]  # too few for a warning
    x[40:50, 1] = 0.0
    repeats = small(x, lam=10.0).diagnostics["repeats"]
    assert (repeats["n_rows"], repeats["n_distinct"]) == (400, 389)
    first, second = repeats["columns"]
    assert (first["n_distinct"], first["top_share"]) == (389, 0.03)
    assert first["top_value"] == x[0, 0]
    assert (second["n_distinct"], second["top_share"]) == (380, 0.03)
    summary = small(x, lam=10.0).summary()
    assert "3% of the rows repeat another" in summary
    assert f"3% have 0 = {x[0, 0]:.6g}" in summary
    assert "repeat" not in small(make_data(400, 2), lam=10.0).summary()


# -- the pipeline --------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [slow("standardize"), slow("center"), "none"])
@pytest.mark.parametrize("method", METHODS)
def test_fit_is_moments_features_accumulate_solve(method, scale):
    """Every step by hand, from the formulas of the design, gives the same density."""
    x = make_data()
    n, d = x.shape
    model = small(x, method=method, lam=2.0, scale=scale, n_noise_levels=3)
    shift = np.zeros(d) if scale == "none" else x.mean(axis=0)
    unit = x.std(axis=0) if scale == "standardize" else np.ones(d)
    u = (x - shift) / unit
    covariance = np.cov(u.T, bias=True)
    gamma = n ** (-1 / (d + 4)) * np.sqrt(np.trace(covariance) / d)
    features = tgp.Features.draw(30, gamma, d * covariance / np.trace(covariance), seed=0)
    sigma_max = np.sqrt(np.trace(covariance)) / d
    levels = sigma_max * np.arange(3) / 3 if method == "ncfd" else ()
    base = tgp.GaussianBase(u.mean(axis=0), covariance)
    stats = tgp.accumulate(u, features, noise_levels=levels, origin=u.mean(axis=0))
    by_hand = tgp.solve(stats, base, method, lam=2.0)
    want = by_hand.log_density(u, normalized=False) - np.log(unit).sum()
    got = model.log_density(x, normalized=False)
    # moments, and through them features, agree to some units in the last place; theta to cond times
    condition = float(by_hand.diagnostics.get("condition", 1e4))
    assert np.abs(got - want).max() <= 1e-13 * condition * np.abs(want).max()
    assert model.settings["gamma"] == pytest.approx(gamma, rel=1e-13)
    if method == "ncfd":
        assert model.settings["sigma_max"] == pytest.approx(sigma_max, rel=1e-13)
    if method == "fvpd":
        assert model.settings["eta"] == pytest.approx(gamma**-2, rel=1e-13)


def test_defaults_are_recorded():
    model = fixed_fit(make_data(100, 2))
    settings = model.settings
    assert (settings["method"], settings["lam"], settings["n_features"]) == ("fd", 10.0, 1000)
    assert (settings["gamma_rule"], settings["base"], settings["scale"]) == (
        "scott", "empirical", "standardize",
    )  # fmt: skip
    assert settings["frequency_covariance"] == "data"
    assert settings["auto"] == ["interactions", "kernel", "n_features"]
    assert (settings["kernel"], settings["interactions"]) == ("gaussian", None)
    assert settings["backend"] == kernels.load().NAME
    assert settings["selected"] is False
    assert model.selection is None
    assert settings["provenance"]["engine"] == "direct"
    assert settings["n_rows"] == 100


def test_paper_settings_are_those_of_the_experiments():
    assert tgp.PAPER == {
        "method": "fd", "n_features": 1000, "lam": 0.1, "gamma": "scott", "eta": "1/gamma2",
        "sigma_max": "paper", "n_noise_levels": 10, "scale": "center", "base": "empirical",
        "frequency_covariance": "data", "features": "random", "kernel": "gaussian",
        "interactions": None,
    }  # fmt: skip
    model = fixed_fit(make_data(), **{**tgp.PAPER, "method": "fvpd", "n_features": 20})
    assert (model.method, model.settings["lam"]) == ("fvpd", 0.1)


@pytest.mark.parametrize("d", [1, 2, slow(30)])
def test_one_call_just_works(d):
    x = make_data(200, d) if d > 1 else make_data(200, 2)[:, 0]
    model = small(x)
    assert np.isfinite(model.log_density(x)).all()
    assert model.sample(7).shape == (7, d)


def test_frequency_covariances():
    x = make_data()
    u = (x - x.mean(axis=0)) / x.std(axis=0)
    covariance = np.cov(u.T, bias=True)
    inverse = np.linalg.inv(covariance)
    given = np.diag([1.0, 2.0, 3.0])
    for kind, want in (
        ("data", 3 * covariance / np.trace(covariance)), ("identity", np.eye(3)),
        ("precision", 3 * inverse / np.trace(inverse)), (given, given),
    ):  # fmt: skip
        model = small(x, frequency_covariance=kind)
        assert np.allclose(model.features.covariance, want, rtol=1e-12, atol=1e-13)
        name = kind if isinstance(kind, str) else "given"
        assert model.settings["frequency_covariance"] == name


# -- sources of rows -----------------------------------------------------------------------------


@pytest.mark.slow
def test_every_source_gives_the_same_density(tmp_path):
    x = make_data()
    want = small(x).log_density(x)
    np.save(tmp_path / "x.npy", x)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="a,b,c", comments="", fmt="%.17g")
    parts = [x[:100], x[100:250], x[250:]]
    for source in (
        x.tolist(), np.asfortranarray(x), parts, lambda: iter(parts), tmp_path / "x.npy",
        str(tmp_path / "x.csv"),
    ):  # fmt: skip
        model = small(source)
        # other blocks sum in another order
        assert np.abs(model.log_density(x) - want).max() <= 1e-9
    assert small(tmp_path / "x.csv").table.columns == ["a", "b", "c"]


@pytest.mark.slow
def test_an_iterator_needs_moments():
    x = make_data(d=4)
    with pytest.raises(ValueError, match=r"read only once.*moments=\(n, mean, covariance\)"):
        small(iter([x]))
    moments = (len(x), x.mean(axis=0), np.cov(x.T, bias=True))
    model = small(iter([x[:200], x[200:]]), moments=moments)
    assert np.abs(model.log_density(x) - small(x).log_density(x)).max() <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weighted", [False, True])
def test_an_iterator_of_few_columns_is_read_once_into_a_grid(method, weighted):
    pytest.importorskip("finufft")
    x = make_data(d=2)
    w = np.random.default_rng(1).uniform(0.5, 1.5, len(x))
    options = {"method": method, "n_features": 20, "n_noise_levels": 3}
    parts = [slice(0, 100), slice(100, 250), slice(250, 300)]
    stream = ((x[p], w[p]) if weighted else x[p] for p in parts)
    model = fixed_fit(stream, **options)
    want = fixed_fit(x, sample_weight=w if weighted else None, **options)
    # statistics within 1e-9 of each other, times the condition of a system that is well behaved
    assert np.abs(model.log_density(x) - want.log_density(x)).max() < 1e-5
    assert model.settings["n"] == pytest.approx(want.settings["n"], rel=1e-12)
    assert model.settings["gamma"] == pytest.approx(want.settings["gamma"], rel=1e-12)
    if method != "map":
        assert model.settings["provenance"]["engine"] == "spectrum"


@pytest.mark.parametrize("bad", [(1, 2), (0, np.zeros(3), np.eye(3)), (5, np.zeros(2), np.eye(2)),
                                 (5, np.zeros(3), -np.eye(3))])  # fmt: skip
def test_bad_moments(bad):
    with pytest.raises(ValueError, match="moments"):
        small(make_data(), moments=bad)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_keep_their_names(library):
    module = pytest.importorskip(library)
    x = make_data()
    frame = module.DataFrame(dict(zip("abc", x.T, strict=True)))
    model = small(frame)
    sample = model.sample(5)
    assert isinstance(sample, module.DataFrame)
    assert list(sample.columns) == ["a", "b", "c"]
    values = model.log_density(frame)
    assert isinstance(values, module.Series)
    assert np.array_equal(np.asarray(values), small(x).log_density(x))
    swapped = frame[["c", "a", "b"]]
    assert np.array_equal(np.asarray(model.log_density(swapped)), np.asarray(values))
    with pytest.raises(ValueError, match=r"lacks the columns \['b'\]"):
        model.log_density(frame[["a", "c"]])


# -- weights -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_integer_weights_are_repeated_rows():
    x = make_data()
    counts = np.random.default_rng(1).integers(0, 4, len(x))
    repeated = np.repeat(x, counts, axis=0)
    weighted = small(x, sample_weight=counts.astype(float), normalize_weights=False)
    plain = small(repeated)
    assert weighted.settings["n"] == len(repeated)
    assert np.abs(weighted.log_density(x) - plain.log_density(x)).max() <= 1e-9
    assert weighted.settings["weights"] == "as given"


@pytest.mark.slow
def test_weights_are_rescaled_to_the_effective_number_of_rows():
    x = make_data()
    w = np.random.default_rng(1).uniform(0.1, 1.0, len(x))
    kish = w.sum() ** 2 / (w**2).sum()
    a, b = small(x, sample_weight=w), small(x, sample_weight=1e-6 * w)
    assert a.settings["n"] == pytest.approx(kish, rel=1e-12)
    assert a.settings["weights"] == "Kish"
    assert np.abs(a.log_density(x) - b.log_density(x)).max() <= 1e-9
    assert np.abs(a.log_density(x) - small(x).log_density(x)).max() > 1e-3  # control


# -- bases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["standardize", slow("none")])
def test_a_given_base_is_in_the_units_of_the_data(scale):
    x = make_data()
    base = tgp.GaussianBase(x.mean(axis=0) + 0.1, 1.5 * np.cov(x.T, bias=True))
    model = small(x, base=base, scale=scale, lam=1e12)  # no tilt is left: the density is its base
    assert np.abs(model.log_density(x) - base.log_density(x)).max() < 1e-6
    assert model.settings["base"] == "given"


def test_scaled_base_takes_the_factor_that_holds_out_best():
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(-2, 0.5, (300, 2)), rng.normal(2, 0.5, (300, 2))])
    rng.shuffle(x)
    model = small(x, base="scaled")
    tried = model.settings["base_scales_tried"]
    assert model.settings["base_scale"] == float(max(tried, key=tried.get))
    assert len(tried) > 3
    assert np.allclose(model.base.covariance, model.settings["base_scale"] * np.cov(
        ((x - x.mean(axis=0)) / x.std(axis=0)).T, bias=True))  # fmt: skip


@pytest.mark.slow
def test_learned_base_says_how_it_was_found():
    model = small(make_data(), base="learned", lam=1.0)
    assert model.settings["base_report"]["method"] in ("joint", "coordinate")
    assert not np.allclose(model.base.covariance, small(make_data()).base.covariance)
    assert 0.3 < model.settings["base_spread"] < 4.0


@pytest.mark.slow
def test_a_learned_base_whose_mass_is_elsewhere_is_told_of():
    """On an arc scores alone make the base so wide that most of the mass lies far from the rows,
    in ripples that draws from that base meet often: effective samples do not show it."""
    x = np.random.default_rng(1).standard_normal((2000, 2))
    x[:, 1] = 0.4 * x[:, 1] + 0.7 * x[:, 0] ** 2
    options = {"n_features": 100, "frequency_covariance": "identity"}
    with pytest.warns(RuntimeWarning, match="much of its mass lies far"):
        model = small(x, base="learned", **options)
    draws = model.sample(2000, seed=0)
    far = np.abs((draws - x.mean(axis=0)) / x.std(axis=0)).max(axis=1) > 12.0
    assert far.mean() > 0.1
    assert model.settings["base_spread"] > 0.1 * 12.0**2
    assert not model.log_normalizer.is_poor


@pytest.mark.slow
@pytest.mark.parametrize("seed", [-1, 1.5, "x", True, np.nan])
def test_seeds_are_judged_everywhere(seed):
    x = make_data(60, 2)
    features = tgp.Features.draw(5, 1.0, np.eye(2), 0)
    base, model = tgp.GaussianBase.from_data(x), small(x, n_features=5)
    stats, words = tgp.accumulate(x, features), "seed=.*: expected an integer of at least 0"
    for call in (
        lambda: tgp.fit(x, seed=seed), lambda: small(x, seed=seed),
        lambda: tgp.Features.draw(5, 1.0, np.eye(2), seed), lambda: model.sample(3, seed),
        lambda: base.sample(3, seed), lambda: tgp.solve(stats, base, "map", seed=seed),
        lambda: tgp.MixtureBase.from_data(x, 2, seed=seed), lambda: tgp.ExactKDE(x).sample(3, seed),
        lambda: tgp.FourierKDE(stats).sample(3, seed), lambda: tgp.evaluate(model, x, seed=seed),
        lambda: tgp.fit_groups(x, [0] * 60, seed=seed),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.slow
def test_a_seed_may_be_none_or_a_generator():
    """The integer that was used is recorded, and gives the same model again."""
    x = make_data(60, 2)
    fresh = [small(x, seed=None) for _ in range(2)]
    assert fresh[0].settings["seed"] != fresh[1].settings["seed"]
    drawn = [small(x, seed=np.random.default_rng(5)) for _ in range(2)]
    assert drawn[0].settings["seed"] == drawn[1].settings["seed"]
    for model in (*fresh, *drawn):
        seed = model.settings["seed"]
        assert isinstance(seed, int)
        assert model.features.seed == seed
        np.testing.assert_array_equal(small(x, seed=seed).log_density(x), model.log_density(x))
    base, features = tgp.GaussianBase.from_data(x), tgp.Features.draw(5, 1.0, np.eye(2), 0)
    stats = tgp.accumulate(x, features)
    for seed in (None, np.random.default_rng(5)):
        assert np.isfinite(tgp.solve(stats, base, "map", seed=seed).theta).all()


@pytest.mark.parametrize("name", ["normalize_weights", "one_standard_error", "progress"])
@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_flags_are_judged(name, value):
    with pytest.raises(TypeError, match=f"{name}=.*: expected True or False"):
        small(make_data(60, 2), **{name: value})


@pytest.mark.parametrize("n", [-1, 1.5, "x", True, None])
def test_numbers_of_draws_are_judged(n):
    x = make_data(60, 2)
    for maker in (tgp.GaussianBase, tgp.StudentBase):
        with pytest.raises(ValueError, match=r"n=.*: expected an integer of at least 0"):
            maker.from_data(x).sample(n)


@pytest.mark.parametrize("name", ["method", "scale", "engine", "precision", "base", "gamma", "lam"])
def test_an_array_is_no_option(name):
    with pytest.raises((ValueError, TypeError), match=f"{name}=array.*: expected"):
        small(make_data(), **{name: np.ones(2)})


@pytest.mark.slow
def test_scaled_base_of_a_stream():
    """Is that of an array; rows that can be read only once are refused."""
    x = make_data()
    want = small(x, base="scaled")
    moments = len(x), x.mean(axis=0), np.cov(x.T, bias=True)
    for options, passes in (({}, 2), ({"moments": moments}, 2)):
        found = small([x[:150], x[150:]], base="scaled", **options)
        assert found.settings["base_scale"] == want.settings["base_scale"]
        assert found.settings["n_passes"] == passes
        np.testing.assert_allclose(found.log_density(x), want.log_density(x), rtol=1e-7)
    with pytest.raises(ValueError, match=r'read only once, but base="scaled" needs'):
        small(iter([x]), base="scaled", moments=moments)


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"lam": 0}, ValueError, "lam=0"), ({"lam": -1.0}, ValueError, "lam"),
        ({"lam": np.nan}, ValueError, "lam"), ({"lam": "much"}, TypeError, "number"),
        ({"lam": True}, TypeError, "lam"), ({"eta": 0}, ValueError, "eta=0"),
        ({"gamma": 0}, ValueError, "gamma=0"), ({"gamma": -1}, ValueError, "gamma"),
        ({"gamma": "silverman"}, TypeError, "'scott'"),
        ({"method": "ncfd", "sigma_max": -1}, ValueError, "sigma_max"),
        ({"method": "ncfd", "sigma_max": "big"}, TypeError, "sigma_max"),
        ({"method": "ncfd", "n_noise_levels": 0}, ValueError, "n_noise_levels"),
        ({"method": "flow"}, ValueError, "'fvpd'"), ({"scale": "z"}, ValueError, "'standardize'"),
        ({"base": "uniform"}, ValueError, "'learned'"),
        ({"base": tgp.GaussianBase([0.0], [[1.0]])}, ValueError, "dimension 1"),
        ({"frequency_covariance": "cov"}, ValueError, "'precision'"),
        ({"frequency_covariance": np.eye(2)}, ValueError, r"\(3, 3\)"),
        ({"n_features": 0}, ValueError, "n_features"), ({"n_features": 1.5}, ValueError, "integer"),
        ({"engine": "gpu"}, ValueError, "engine"), ({"precision": "half"}, ValueError, "precision"),
        ({"backend": "cuda"}, ValueError, "backend"), ({"n_threads": 0}, ValueError, "n_threads"),
        ({"solver": "lu"}, ValueError, "solver"), ({"solver": "newton"}, ValueError, "'cg'"),
        ({"sample_weight": -np.ones(300)}, ValueError, "negative"),
        ({"sample_weight": np.ones(3)}, ValueError, "3 entries"),
    ],
)  # fmt: skip
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        small(make_data(), **options)


def test_constant_duplicate_and_collinear_columns_are_named():
    pandas = pytest.importorskip("pandas")
    x = make_data(d=4)
    frame = pandas.DataFrame(x, columns=["age", "height", "weight", "pay"])
    with pytest.raises(ValueError, match=r"column 1 \('height'\) is constant at 7.*drop it"):
        small(frame.assign(height=7.0))
    with pytest.raises(ValueError, match=r"0 \('age'\), 2 \('weight'\) are linearly dependent"):
        small(frame.assign(weight=frame["age"]))
    with pytest.raises(ValueError, match=r"'age'.*'height'.*'pay'.*drop one"):
        small(frame.assign(pay=frame["age"] - 2 * frame["height"]))
    with pytest.raises(ValueError, match=r"column 2 \('weight'\)"):
        small(frame.assign(weight=1e9))
    frame.loc[17, "pay"] = np.nan
    with pytest.raises(ValueError, match=r"nan at row 17, column 3 \('pay'\)"):
        small(frame)


@pytest.mark.slow
def test_too_few_rows():
    x = make_data(5, 3)
    with pytest.raises(ValueError, match="one row"):
        small(x[:1])
    with pytest.raises(ValueError, match=r"3 rows do not span 3 columns.*at least 4 rows"):
        small(x[:3])
    assert np.isfinite(small(x).log_density(x)).all()
    base = tgp.GaussianBase(np.zeros(3), 9 * np.eye(3))
    assert np.isfinite(small(x[:2], base=base).log_density(x)).all()  # the remedy it names


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", ["standardize", "center", "none"])
@pytest.mark.parametrize("factor", [1e150, 1e-150])
def test_extreme_scales_are_finite(method, scale, factor):
    x = make_data(60) * factor
    model = small(x, method=method, scale=scale, n_features=10, n_noise_levels=2)
    assert np.isfinite(model.log_density(x)).all()
    assert np.isfinite(model.grad_log_density(x)).all()
    assert np.isfinite(model.sample(5)).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_scale_and_offset_change_nothing_but_the_units(method):
    """Standardised, data moved by 1e9 and stretched by 1e6 have the same density in their units."""
    x = make_data(200)
    stretch = np.array([1e6, 1.0, 1e-3])
    want = small(x, method=method).log_density(x)
    moved = x * stretch + np.array([1e9, 1e5, -10.0])
    got = small(moved, method=method).log_density(moved)
    # 1e5 + x keeps x to 7e-12, 1e9 + 1e6 x to 1e-13: times a slope of log q of some tens
    assert np.abs(got + np.log(stretch).sum() - want).max() < 1e-8


def test_rows_that_overflow_in_the_units_of_the_model_have_no_density():
    model = small(make_data(60) * 1e-150)
    assert model.log_density(np.full((1, 3), 1e300)) == -np.inf
    with pytest.raises(ValueError, match="row 0: the gradient is not finite"):
        model.grad_log_density(np.full((1, 3), 1e300))


@pytest.mark.parametrize("d", [1, 2, slow(4)])
@pytest.mark.parametrize(
    ("base", "method"),
    [
        ("empirical", "fd"), ("empirical", "ncfd"), ("empirical", "fvpd"),
        ("mixture", "fd"), ("mixture", "fvpd"), ("student", "fd"),
        slow("empirical", "map"),
        slow("mixture", "map"),
        slow("student", "map"),
    ],
)  # fmt: skip
def test_rows_at_the_ends_of_the_range_of_floats(base, method, d):
    """Log density -inf; derivatives: an error that names the row. No NaN, no warning."""
    x = make_data(3_000, d)
    model = small(x[:100], base=base, method=method)
    for n in (2, 3_000):  # term by term, and by a transform
        rows = x[:n].copy()
        inside = model.log_density(rows)
        rows[1] = 1.7e308
        got = model.log_density(rows)
        assert got[1] == -np.inf
        np.testing.assert_allclose(np.delete(got, 1), np.delete(inside, 1), rtol=1e-8, atol=1e-8)
        for far in (1.7e308, -1.7e308, 1e300, 1e160):
            rows[1, 0] = far
            assert model.log_density(rows)[1] == -np.inf
            with pytest.raises(ValueError, match=r"Y, row 1: the gradient is not finite.*-inf"):
                model.grad_log_density(rows)
            with pytest.raises(ValueError, match="Y, row 1: the Laplacian is not finite"):
                model.laplacian_log_density(rows)
            assert model.base.log_density(rows)[1] == -np.inf
        rows[1] = 1e10  # far, and within reach
        assert np.isfinite(model.grad_log_density(rows)).all()
        assert np.isfinite(model.laplacian_log_density(rows)).all()


@pytest.mark.parametrize("d", [1, 2, slow(4)])
def test_other_models_at_the_ends_of_the_range_of_floats(d):
    x, features = make_data(100, d), tgp.Features.draw(20, 0.5, np.eye(d), seed=0)
    far = np.array([[1.7e308] * d, [-1.7e308] * d, [1e300] * d, x[0]])
    estimate = tgp.FourierKDE.from_data(x, features)
    assert np.array_equal(estimate.density(far)[:3], np.zeros(3))
    with pytest.warns(RuntimeWarning, match="not positive at 3"):
        assert np.array_equal(estimate.log_density(far)[:3], np.full(3, -np.inf))
    many = tgp.fit_groups(x, np.arange(100) % 2, n_features=20)
    values = many.log_density(far, 0)
    assert np.array_equal(values[:3], np.full(3, -np.inf))
    assert values[3] == pytest.approx(many[0].log_density(x[:1])[0], abs=1e-12)
    assert np.array_equal(tgp.ExactKDE(x).log_density(far)[:3], np.full(3, -np.inf))


# -- moments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e9])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_equal_exact_sums(offset, weighted):
    """Against sums in long double; rounding of x itself (u |x|) is the data's own."""
    x = make_data(1000) + offset
    w = np.random.default_rng(3).uniform(0, 2, len(x)) if weighted else np.ones(len(x))
    blocks = Blocks(x, sample_weight=w if weighted else None, block_rows=130)
    got = compute_moments(blocks)
    long, weights = x.astype(np.longdouble), w.astype(np.longdouble)
    mean = weights @ long / weights.sum()
    centered = long - mean
    covariance = (centered.T * weights) @ centered / weights.sum()
    assert np.abs(got.mean - mean.astype(float)).max() <= 4e-16 * np.abs(mean).max()
    error = np.abs(got.covariance - covariance.astype(float)).max()
    assert error < 1e-13 * np.abs(covariance).max()
    assert got.n_effective == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-14)


def test_no_warning_on_good_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = small(make_data())
        model.log_density(make_data(10, seed=5))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_of_words_is_named(library):
    module = pytest.importorskip(library)
    frame = module.DataFrame({"a": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"]})
    with pytest.raises(TypeError, match=r"column 1 \('colour'\).*encode it as numbers or drop it"):
        small(frame)


# -- numbers at the ends of the range ------------------------------------------------------------


@pytest.mark.parametrize("method", ["fd", "ncfd", "fvpd", "map"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": 5e-324}, "gamma=5e-324: expected a number from 2.23e-308"),
        ({"gamma": 1e-300}, "expected a bandwidth of at least 1e-06 and at most 1e\\+08"),
        ({"gamma": 1e-30}, "gamma=1e-30: expected a bandwidth of at least .* standard deviation"),
        ({"gamma": 1e160}, "gamma=1e\\+160: expected a bandwidth"),
        ({"gamma": 1e300}, "gamma=1e\\+300: expected a bandwidth"),
        ({"lam": 5e-324}, "lam=5e-324: expected a number from"),
        ({"lam": 1.7e308}, "lam=1.7e\\+308: expected a number from"),
        ({"lam": 1e-307, "gamma": 1e-3}, "lam=1e-307: lam gamma.* expected lam from 2.25e-302"),
        ({"eta": 5e-324}, "eta=5e-324"),
        ({"method": "fvpd", "eta": 1e-300}, "eta=1e-300: gamma.2 eta is .*expected eta from"),
        ({"n_features": 10**12}, "n_features=1,000,000,000,000 would take .* fewer features"),
        ({"n_features": 10**400}, "would take .* fewer features"),
        ({"n_noise_levels": 10**6}, "n_noise_levels=1000000: expected at most 1000"),
    ],
)
def test_parameters_out_of_range(method, options, words):
    """No bare ZeroDivisionError or OverflowError, and no search that does not end."""
    with pytest.raises(ValueError, match=words):
        small(make_data(60), **({"method": method} | options))


@pytest.mark.parametrize("sigma_max", [5e-324, 1e-300, 1e160, 1e300])
def test_noise_out_of_range(sigma_max):
    with pytest.raises(ValueError, match=r"sigma_max=.*: expected 0, or a number from 1e-152 to"):
        small(make_data(60), method="ncfd", sigma_max=sigma_max)
    features = tgp.Features.draw(3, 1.0, np.eye(3), seed=0)
    with pytest.raises(ValueError, match=r"noise_levels has .*; expected 0, or numbers"):
        tgp.accumulate(make_data(60), features, noise_levels=(0.0, sigma_max))


@pytest.mark.parametrize(
    "options", [slow({"gamma": 1e-6}), {"gamma": 1e8}, {"lam": 1e-300}, {"lam": 1e300}]
)
def test_parameters_at_the_ends_of_their_range(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        model = small(make_data(60), **options)
        assert np.isfinite(model.log_density(make_data(5))).all()


def test_solve_takes_bandwidths_that_serve_the_base():
    x = make_data(60)
    stats = tgp.accumulate(x, tgp.Features.draw(4, 1e-30, np.eye(3), seed=0), engine="direct")
    with pytest.raises(ValueError, match=r"gamma=.*: expected a bandwidth of at least"):
        tgp.solve(stats, tgp.GaussianBase.from_data(x), "fd", 1.0)


@pytest.mark.parametrize("bandwidth", [1e-300, 1e-154, 1e154, 1e300])
def test_features_take_bandwidths_whose_squares_are_floats(bandwidth):
    with pytest.raises(ValueError, match=r"bandwidth=.*: expected a number from 1e-153 to 1e\+153"):
        tgp.Features.draw(4, bandwidth, np.eye(2), seed=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tgpfast.DataWarning")  # names the column of tags
@pytest.mark.filterwarnings("ignore::tgpfast.PoorFitWarning")  # three values have no density
def test_values_written_with_different_accuracy_win_no_spikes():
    """The steps of the columns are recorded, and a tag that some rows have with three decimals,
    some with eight, gets the density that it has where all rows have eight."""
    rng = np.random.default_rng(5)
    tag = rng.choice([0.0, 1.08653808, 2.17307615], 600)
    rest = rng.normal(size=(600, 3)) + 3.0 * rng.integers(0, 2, (600, 1))
    rest[:, 0] = rest[:, 0].round(1)
    written = np.where(rng.uniform(size=600) < 0.5, tag.round(3), tag)
    scores = []
    for column in (tag, written):
        x = np.column_stack([column, rest])
        model = tgp.fit(x[:500], base="mixture", effort="fast")
        steps = model.settings["resolution"]
        assert steps[:2] == pytest.approx([1.08653808, 0.1], rel=1e-3)
        assert max(steps[2:]) < 0.01
        scores.append(model.log_density(x[500:]))
    gap = scores[1] - scores[0]
    assert abs(gap.mean()) < max(0.1, 3.0 * gap.std() / 10.0)
