"""Samples against the model's own marginal CDFs, seeds, threads and the choice of method."""

import warnings

import numpy as np
import pytest
from conftest import fixed_fit, slow
from scipy.stats import kstest

import tgpfast as tgp
from tgpfast.density import sampling
from tgpfast.density.draws import annealing, grid_sampling, rejection
from tgpfast.density.draws.proposal import Proposal
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.density.normalizing.integration import Integrator
from tgpfast.kernels.thread_choice import Threads

N = 2_000
LEAST = 1e-3  # p-value below which a sample is refused; seeds are fixed


def rows(d, n=400):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    x[: n // 2] = 0.35 * x[: n // 2] + 2.0
    return x


def fitted(d, method="fd", **options):
    units = np.array([3.0, 0.02, 50.0, 1.0])[:d]
    options = {"n_features": 24, "gamma": 0.6, "engine": "direct", "lam": 3.0} | options
    return fixed_fit(rows(d) * units + 5 * units, method=method, **options), units


def tilted(d, theta, w=0.9, S=12, n_threads=None, backend="auto"):
    """A tilt of the given strength on a standard normal base."""
    rng = np.random.default_rng(4)
    features = tgp.Features(w * rng.standard_normal((S, d)), rng.uniform(0, 6.28, S), 1.0)
    coefficients = theta * rng.standard_normal(S)
    base = tgp.GaussianBase(np.zeros(d), np.eye(d))
    tilt = PointTilt(features, coefficients, base.mean)
    return tgp.Density("fd", tilt, base, threads=Threads(backend, n_threads))


def directions(d, units, n=2):
    if d == 1:
        return np.array([[1.0], [-2.0]])
    return np.concatenate([np.eye(d)[:1], np.random.default_rng(1).normal(size=(n, d))]) / units


def p_values(model, draws, units):
    return np.array([
        kstest(draws @ v, lambda t, v=v: model.marginal_cdf(v, t)).pvalue
        for v in directions(model.dimension, units)
    ])  # fmt: skip


# -- the law of the draws -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "d", "kind"),
    [
        ("grid", 1, "fd"), ("grid", 1, "fvpd"), ("grid", 2, "map"), ("grid", 2, "fvpd"),
        ("importance", 2, "ncfd"), ("importance", 4, "fd"), ("importance", 4, "fvpd"),
        slow("mala", 1, "fd"), slow("mala", 3, "fd"), slow("mala", 3, "fvpd"),
    ],
)  # fmt: skip
def test_draws_follow_the_marginal_cdfs(method, d, kind):
    model, units = fitted(d, kind)
    n = 500 if method == "mala" else N
    draws = model.sample(n, seed=5, method=method)
    assert draws.shape == (n, d)
    assert model.sampling.method == method
    assert p_values(model, draws, units).min() > LEAST
    # negative control: draws of the base, in the same units, are refused
    base = model.base.sample(n, seed=5) * model.scaling.scale + model.scaling.shift
    assert p_values(model, base, units).min() < LEAST


@pytest.mark.parametrize("method", ["grid", "importance", slow("mala")])
def test_draws_of_a_narrow_density(method):
    """A strong tilt: several modes, each much narrower than the base."""
    model = tilted(1, 3.0, w=2.0)
    draws = model.sample(N, seed=1, method=method)
    assert p_values(model, draws, np.ones(1)).min() > LEAST


@pytest.mark.parametrize("d", [1, 2])
def test_grid_draws_far_from_the_base(d):
    """A slow wave pulls the mass more than ten deviations out; draws go with it."""
    w = np.full((1, d), 0.05)
    base = tgp.GaussianBase(np.zeros(d), np.eye(d))
    features = tgp.Features(w, [-1.1], 1.0)
    model = tgp.Density("fd", PointTilt(features, np.array([700.0]), base.mean), base)
    with pytest.warns(RuntimeWarning, match="unreliable"):
        draws = model.sample(N, seed=2)
    assert np.linalg.norm(draws.mean(axis=0)) > 10
    assert p_values(model, draws, np.ones(d)).min() > LEAST


def test_grid_draws_are_not_on_the_nodes_and_do_not_repeat():
    model = tilted(2, 0.5)  # on a standard base: columns are the grid's own axes
    draws = model.sample(N, seed=0)
    assert [len(np.unique(column)) for column in draws.T] == [N, N]
    assert max(map(len, model.integrator.quadrature.grids[0].axes)) < N / 5  # cells fill


@pytest.mark.slow
def test_mala_of_a_strong_tilt_in_four_dimensions():
    """One wave: along it the law is a one-dimensional integral, across it standard normal."""
    w, theta, c = np.array([0.2, -0.1, 0.2, 0.0]), 20.0, -0.6
    base = tgp.GaussianBase(np.zeros(4), np.eye(4))
    tilt = PointTilt(tgp.Features(w[None], [c], 1.0), np.array([theta]), base.mean)
    model = tgp.Density("fd", tilt, base)
    draws = model.sample(N, seed=6, method="mala")
    length = np.linalg.norm(w)
    z = np.linspace(-9, 9, 20_001)
    log_q = theta * np.sqrt(2) * np.cos(length * z + c) - 0.5 * z**2
    running = np.cumsum(np.exp(log_q - log_q.max()))
    running /= running[-1]
    assert kstest(draws @ w / length, lambda t: np.interp(t, z, running)).pvalue > LEAST
    for across in ([0.0, 0.0, 0.0, 1.0], [1.0, 2.0, 0.0, 0.0], [1.0, 0.0, -1.0, 0.0]):
        assert abs(np.dot(across, w)) < 1e-15
        assert kstest(draws @ across / np.linalg.norm(across), "norm").pvalue > LEAST
    assert kstest(draws @ w / length, "norm").pvalue < LEAST


@pytest.mark.slow
def test_mala_keeps_the_law_it_starts_from_and_finds_it(monkeypatch):
    """More draws than chains: rounds are thinned and mixed, and each follows the density."""
    model = tilted(3, 0.8)
    monkeypatch.setattr(sampling, "MOST_SAMPLING_CHAINS", 200)
    monkeypatch.setattr(sampling, "LEAST_SAMPLING_CHAINS", 200)
    with pytest.warns(RuntimeWarning, match="independent chains"):
        draws = model.sample(1_000, seed=3, method="mala")
    report = model.sampling
    annealing_steps = report.n_steps - sampling.BURN_IN_STEPS - 5 * sampling.THINNING_STEPS
    assert report.n_chains == 200
    assert annealing_steps > 0
    assert annealing_steps % sampling.MOVES_PER_RISE == 0
    assert draws.shape == (1_000, 3)
    # five rounds of 200 chains are not quite independent draws: judged as 200
    for v in directions(3, np.ones(3)):
        distance = kstest(draws @ v, lambda t, v=v: model.marginal_cdf(v, t)).statistic
        assert distance < 1.95 / np.sqrt(200)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seed"), [(1_000, 1), (8_000, 0)])
def test_mala_gives_every_mode_its_share(n, seed):
    """A strong tilt with many modes in four dimensions: one base draw in a thousand counts.

    Judged against three million weighted base draws. Chains started at the modes that a few base
    draws happen to hit were off by 0.03 to 0.2, and by 0.35 where the tilt came on in a few steps.
    """
    model = tilted(4, 6.0, w=1.5)
    with pytest.warns(RuntimeWarning, match="independent chains"):
        draws = model.sample(n, seed=seed, method="mala")
    points, weights, rng = [], [], np.random.default_rng(5)
    for _ in range(12):
        w = rng.standard_normal((250_000, 4))
        u = model.base.mean + w @ model.base.cholesky.T
        points.append(u)
        weights.append(model.tilt.value(u, model.threads))
    points, weights = np.concatenate(points), np.exp(np.concatenate(weights))
    weights /= weights.sum()
    effective = 1.0 / (weights @ weights)
    assert effective > 900
    for v in np.random.default_rng(1).standard_normal((3, 4)):
        order = np.argsort(points @ v)
        grid, running = (points @ v)[order], np.cumsum(weights[order])
        got = np.searchsorted(np.sort(draws @ v), grid, side="right") / n
        # Kolmogorov's 1.95 (one in a thousand), over both sizes
        assert np.abs(got - running).max() < 1.95 * (effective**-0.5 + n**-0.5)


@pytest.mark.slow
def test_a_chain_without_its_metropolis_step_is_refused(monkeypatch):
    """Negative control: large Langevin steps, all accepted, do not have the density's law."""
    model = tilted(1, 3.0, w=2.0)

    class Yes(np.random.Generator):
        def uniform(self, *args, **kwargs):
            return super().uniform(*args, **kwargs) * 1e-300

    monkeypatch.setattr(
        sampling.np.random, "default_rng", lambda seed: Yes(np.random.PCG64(seed))
    )
    monkeypatch.setattr(annealing, "TARGET_ACCEPTANCE", 0.999999)
    draws = model.sample(500, seed=1, method="mala")
    monkeypatch.undo()
    assert p_values(model, draws, np.ones(1)).min() < LEAST


# -- seeds and threads ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fd", "fvpd"])
@pytest.mark.parametrize(
    ("method", "d"), [("grid", 1), ("grid", 2), ("importance", 3), slow("mala", 3)]
)
def test_the_seed_alone_decides(method, d, kind, monkeypatch):
    """The same rows, bit by bit, on one thread and on two; others for another seed or none."""
    monkeypatch.setattr(sampling, "BURN_IN_STEPS", 20)  # their law is not judged here
    model, _ = fitted(d, kind, n_threads=1)
    two, _ = fitted(d, kind, n_threads=2)
    one = model.sample(300, seed=7, method=method)
    assert np.array_equal(one, two.sample(300, seed=7, method=method))
    assert np.array_equal(one, model.sample(300, seed=7, method=method))
    other = model.sample(300, seed=8, method=method)
    assert not np.isin(one[:, 0], other[:, 0]).any()
    assert not np.array_equal(model.sample(4, method=method), model.sample(4, method=method))
    generators = np.random.default_rng(3), np.random.default_rng(3)
    first, second = (model.sample(4, seed=generators[0], method=method) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, model.sample(4, seed=generators[1], method=method))


# -- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "theta", "expected"),
    [
        (1, 0.5, "grid"), (2, 0.5, "grid"), (3, 0.5, "grid"), slow(4, 0.3, "importance"),
        (4, 0.0, "base"), (1, 0.0, "base"),
    ],
)  # fmt: skip
def test_auto_takes_the_first_that_serves_and_says_so(d, theta, expected):
    model = tilted(d, theta)
    assert model.sampling is None
    draws = model.sample(500, seed=0)
    report = model.sampling
    assert report.method == expected
    assert draws.shape == (500, d)
    assert 400 < report.effective_sample_size <= 500
    assert (report.acceptance_rate is not None) == (expected == "importance")


@pytest.mark.slow
def test_auto_takes_chains_where_rejection_would_waste_its_draws(monkeypatch):
    monkeypatch.setattr(sampling, "LEAST_ACCEPTANCE", 0.9)
    model = tilted(4, 1.0)
    model.sample(3_000, seed=0)
    report = model.sampling
    assert report.method == "mala"
    assert 0.4 < report.acceptance_rate < 0.75  # tuned towards 0.574
    assert report.n_chains == sampling.LEAST_SAMPLING_CHAINS
    least = sampling.MOVES_PER_RISE + sampling.BURN_IN_STEPS + sampling.THINNING_STEPS
    assert report.n_steps >= least


@pytest.mark.parametrize("d", [2, slow(4)])
def test_many_draws_are_as_good_as_few(d):
    """Fresh draws throughout: nothing repeats, and the distance falls as the root of the number."""
    model = tilted(d, 0.7)
    draws = model.sample(200_000, seed=1)
    assert model.sampling.effective_sample_size > 0.95 * len(draws)
    assert len(np.unique(draws[:, 0])) > 0.97 * len(draws)
    for v in np.eye(d)[:2]:
        distance = kstest(draws @ v, lambda t, v=v: model.marginal_cdf(v, t)).statistic
        # Kolmogorov's 1.95 (one in a thousand); 131,072 weighted points behind the CDF for d = 4
        assert distance < 1.95 / np.sqrt(200_000) + (0.0 if d < 4 else 1.95 / np.sqrt(131_072))


def test_rejection_keeps_rows_in_proportion_to_their_weights():
    """Weights of 1 and 3 on the halves of an interval; and with a bound far below the largest
    weight, rows repeat and the effective number says so."""

    def propose(m, rng):
        x = rng.uniform(size=(m, 1))
        return x, np.log(np.where(x[:, 0] < 0.5, 1.0, 3.0))

    rows, effective, rate = rejection.sample_by_rejection(propose, 40_000, np.random.default_rng(0))
    assert abs((rows[:, 0] > 0.5).mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 40_000)
    assert effective == 40_000
    assert abs(rate - 2.0 / 3.0) < 0.02

    def steep(m, rng):
        x = rng.uniform(size=(m, 1))
        return x, -0.7 * np.log(x[:, 0] + 0.01)

    def law(t):
        return ((t + 0.01) ** 0.3 - 0.01**0.3) / (1.01**0.3 - 0.01**0.3)

    for excess, low, high in ((0.0, 40_000, 40_000), (0.3, 1, 39_000)):
        rows, effective, _ = rejection.sample_by_rejection(
            steep, 40_000, np.random.default_rng(0), excess=excess
        )
        assert abs((rows[:, 0] < 0.1).mean() - law(0.1)) < 5 * 0.5 / np.sqrt(effective)
        assert low <= effective <= high


@pytest.mark.slow
def test_importance_that_cannot_serve_says_so():
    """A density whose mass the draws hardly ever meet."""
    base = tgp.GaussianBase(np.zeros(4), np.eye(4))
    features = tgp.Features(np.full((1, 4), 0.15), [-2.4], 1.0)
    tilt = PointTilt(features, np.array([200.0]), base.mean)
    covered = Integrator(tilt, base, Threads())
    alone = Integrator(tilt, base, Threads(), proposal=Proposal(base))  # no draws at the modes
    rng = np.random.default_rng(0)
    assert sampling.draw_by_importance(alone, 100, rng, least_rate=0.01) is None
    assert sampling.draw_by_importance(covered, 100, rng, least_rate=0.01) is not None


@pytest.mark.slow
def test_chains_count_the_draws_they_descend_from():
    """All of them where nothing is tilted, few where the tilt is strong and resampling leaves few;
    of chains resampled by hand, those of equal families."""
    plain, strong = tilted(4, 0.0), tilted(4, 6.0, w=1.5)
    for model, low, high in ((plain, 5_000, 5_000), (strong, 1, 2000)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the few that are left
            model.sample(5_000, seed=0, method="mala")
        assert low <= model.sampling.effective_sample_size <= high
    chains = annealing.AnnealedChains(
        plain.tilt, plain.base, plain.threads, 6, np.random.default_rng(0)
    )
    chains.ancestors = np.array([0, 0, 0, 5, 5, 5])
    assert chains.n_effective_ancestors == 2.0


@pytest.mark.slow
def test_mala_that_hardly_moves_warns(monkeypatch):
    monkeypatch.setattr(annealing, "TARGET_ACCEPTANCE", 0.0)  # steps are tuned to be refused
    with pytest.warns(RuntimeWarning, match="accepted only"):
        tilted(3, 1.0).sample(20, seed=0, method="mala")


@pytest.mark.parametrize("seed", [-1, 1.5, "today", True])
def test_seeds_that_are_refused(seed):
    for thing in (tilted(1, 0.5), tilted(1, 0.5).base):
        with pytest.raises(ValueError, match=r"seed=.*None, or a numpy Generator"):
            thing.sample(3, seed=seed)


@pytest.mark.parametrize("n", [0, -3, 2.5, True, "many", None])
def test_n_must_be_a_count(n):
    with pytest.raises(ValueError, match=r"n=.*expected an integer of at least 1"):
        tilted(1, 0.5).sample(n)


def test_other_errors():
    model = tilted(4, 0.5)
    with pytest.raises(ValueError, match="method='gibbs': expected one of 'auto', 'grid'"):
        model.sample(5, method="gibbs")
    with pytest.raises(ValueError, match='at most 3 dimensions, and this density has 4'):
        model.sample(5, method="grid")
    assert model.sampling is None
    assert tilted(1, 0.5).sample(np.int64(1)).shape == (1, 1)


@pytest.mark.slow
def test_progress_is_shown_on_request(capsys):
    model = tilted(3, 0.5)
    model.sample(5, method="mala")
    assert capsys.readouterr().err == ""
    model.sample(5, method="mala", progress=True)
    assert "steps" in capsys.readouterr().err


# -- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "stop"), [(1.0, 1.0), (0.0, 2.0), (3.0, 0.0), (1.0, 5.0)])
def test_linear_quantile_inverts_its_cdf(start, stop):
    u = np.linspace(0, 1, 101)
    t = grid_sampling.linear_quantile(np.full(101, start), np.full(101, stop), u)
    cdf = (start * t + 0.5 * (stop - start) * t**2) / (0.5 * (start + stop))
    assert np.abs(cdf - u).max() < 4e-16 * 4
    assert (np.diff(t) > 0).all()
    assert (t[0], t[-1]) == (0.0, 1.0)
    nothing = grid_sampling.linear_quantile(np.zeros(101), np.zeros(101), u)
    assert np.array_equal(nothing, u)  # an empty cell has no draws, but no division by zero


def test_systematic_resampling_keeps_expected_counts():
    """Every index is drawn its expected number of times, rounded down or up."""
    rng = np.random.default_rng(0)
    log_weights = rng.normal(size=50) * 2 + 900
    index = annealing.resample(log_weights, 1_000, rng)
    expected = np.exp(log_weights - np.logaddexp.reduce(log_weights)) * 1_000
    counts = np.bincount(index, minlength=50)
    assert counts.sum() == 1_000
    assert (np.abs(counts - expected) < 1 + 1e-9).all()
    assert (np.diff(index) < 0).any()  # and they are shuffled


def test_a_sample_does_not_repeat_the_rows_of_the_same_seed():
    """Rows of default_rng(0), and a sample with seed=0: the draws of a Gaussian have no relation to
    the rows that it was learned from."""
    x = np.random.default_rng(0).standard_normal((500, 2))
    base = tgp.GaussianBase.from_data(x)
    for drawn in (base.sample(500, seed=0), tgp.fit(x).sample(500, seed=0)):
        assert abs(np.corrcoef(x[:, 0], drawn[:, 0])[0, 1]) < 0.15  # 3.4 standard errors
    same = base.draw(500, np.random.default_rng(0))  # negative control
    assert np.corrcoef(x[:, 0], same[:, 0])[0, 1] > 0.99
