"""Probabilities, quantiles and expectations against closed forms, oracles and each other."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from answer_models import SCALE, SHIFT, Product, covariance, mixture, normal_cdf, of_base, tilted
from scipy import stats

import tgpfast as tgp
from tgpfast.bases.bounded import UniformBase
from tgpfast.density.answers.answer import Answer
from tgpfast.density.density import Density
from tgpfast.density.exponents.lattice_exponent import LatticeTilt
from tgpfast.density.grids import marginal_cdf
from tgpfast.density.normalizing import integration
from tgpfast.density.normalizing.integration import Integrator
from tgpfast.density.normalizing.normalizer import Normalizer
from tgpfast.features.lattice import LatticeFeatures

DIMENSIONS = (1, 2, 3, 5, 8)


def within(answer, truth, slack=1e-9):
    """Whether an answer is as near to the truth as it says; draws may be off by 4 errors."""
    errors = 4.0 if answer.method == "draws" else 1.0
    return abs(answer - truth) <= errors * answer.standard_error + slack


# -- the number ------------------------------------------------------------------------------------


def test_an_answer_is_a_float_that_cannot_be_changed():
    answer = Answer(0.5, 0.01, "draws")
    assert answer + 1 == 1.5
    assert math.isclose(answer.value, 0.5)
    assert np.asarray([answer]).dtype == float
    again = pickle.loads(pickle.dumps(answer))
    assert (again, again.standard_error, again.method) == (0.5, 0.01, "draws")
    with pytest.raises(AttributeError):
        answer.standard_error = 0.0


# -- boxes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
def test_boxes_of_a_product(d):
    """Of a tilted column beside Gaussian ones: the probability is a product."""
    product = Product(d)
    low, high = np.full(d, SHIFT - 1.0), np.full(d, SHIFT + 4.0)
    truth = product.cdf(high[0]) - product.cdf(low[0])
    truth *= (normal_cdf(2.0) - normal_cdf(-0.5)) ** (d - 1)
    answer = product.model.probability(low, high)
    assert within(answer, truth, 1e-7)
    assert answer.standard_error < (1e-6 if d <= 3 else 3e-3)
    assert answer.method == ("quadrature" if d <= 3 else "draws")


@pytest.mark.parametrize("d", DIMENSIONS)
def test_boxes_of_bases(d):
    """Against the orthant probabilities of scipy, which are themselves estimates."""
    upper = np.linspace(0.5, 1.0, d)
    gaussian, parts = tgp.GaussianBase(np.zeros(d), covariance(d)), mixture(d)
    truths = [
        sum(
            w * stats.multivariate_normal(m, c, abseps=1e-6, maxpts=50_000).cdf(upper)
            for w, m, c in each
        )
        for each in ([(1.0, np.zeros(d), covariance(d))],
                     zip(parts.weights, parts.means, parts.covariances, strict=True))
    ]  # fmt: skip
    for base, truth in zip((gaussian, parts), truths, strict=True):
        answer = of_base(base).probability(None, upper)
        assert within(answer, truth, 3e-5 if d <= 3 else 2e-4)
        assert (answer.method == "exact") == (d == 1)


def test_large_mixtures_of_three_columns_take_draws():
    """Their grids take minutes; few components are integrated."""
    for count, method in ((8, "quadrature"), (9, "draws")):
        base = tgp.MixtureBase(np.ones(count) / count, np.zeros((count, 3)), [np.eye(3)] * count)
        model = tilted(3, base, size=0.3, S=3)
        exact = tilted(3, tgp.GaussianBase(np.zeros(3), np.eye(3)), size=0.3, S=3)
        upper = {0: SHIFT + 1.0, 2: SHIFT}
        answer, truth = (one.probability(None, upper) for one in (model, exact))
        assert answer.method == method
        assert within(answer, truth, 1e-6)
        place = model.quantile(0.3, column=1)
        assert abs(model.cdf([place], columns=1)[0] - 0.3) < 1e-5
        assert abs(place - exact.quantile(0.3, column=1)) < (0.02 if count == 9 else 1e-5)


def test_boxes_of_a_student_base():
    base = tgp.StudentBase([0.0, 1.0], [[1.0, 0.5], [0.5, 2.0]], 3.0)
    answer = of_base(base).probability({1: 2.0}, None)
    assert within(answer, stats.t(3).sf(1.0 / math.sqrt(2.0)))
    both = of_base(base).probability([-1.0, None], [None, 2.0])
    rows = base.sample(400_000, seed=0)
    share = ((rows[:, 0] > -1.0) & (rows[:, 1] < 2.0)).mean()
    assert abs(both - share) < 4 * 0.5 / math.sqrt(400_000)
    assert both.standard_error < 1e-7


@pytest.mark.parametrize("degrees", [3.0, 40.0, 200.0])
def test_expectations_of_a_student_base_cover_its_mass(degrees):
    """Few degrees have far tails; many degrees are nearly Gaussian and need their reach too."""
    model = of_base(tgp.StudentBase([5.0, 1.0], [[1.0, 0.5], [0.5, 2.0]], degrees))
    assert abs(model.expectation(lambda rows: np.ones(len(rows))) - 1.0) < 1e-8
    assert abs(model.expectation(lambda rows: rows[:, 0]) - 5.0) < 1e-6
    box = model.probability([None, 1.0], [None, None])
    assert abs(box - 0.5) < 1e-8


def test_columns_without_bounds_do_not_matter():
    """In eight columns of a base alone, a box of two columns is an integral over two."""
    model = of_base(tgp.GaussianBase(np.zeros(8), covariance(8)), list("abcdefgh"))
    answer = model.probability({"b": 0.0, "g": -1.0}, {"b": 1.0})
    pair = covariance(8)[np.ix_([1, 6], [1, 6])]
    truth = of_base(tgp.GaussianBase(np.zeros(2), pair)).probability([0.0, -1.0], [1.0, None])
    assert answer.method == "quadrature"
    assert abs(answer - truth) < 1e-12
    assert model.probability().value == 1.0


@pytest.mark.parametrize("d", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_boxes_add_up(d):
    """Those on both sides of a value, of a density of all columns."""
    model = tilted(d, mixture(d))
    parts = [model.probability({0: 4.0}), model.probability(None, {0: 4.0})]
    assert abs(sum(parts) - 1.0) <= sum(part.standard_error for part in parts) + 1e-9
    nowhere = model.probability([4.0] * d, [4.0] * d)
    assert nowhere.value == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("d", [5, 8])
def test_errors_of_draws_are_those_of_their_seeds(monkeypatch, d):
    """z-scores over 100 seeds are standard but for 16 replicates: of a box, a mean, an entropy."""
    monkeypatch.setattr(integration, "ANSWER_LOG2_POINTS", 7)
    product = Product(d)
    high, model = np.full(d, SHIFT + 2.0), product.model
    entropy = product.integral(-np.log(product.p)) + d * math.log(SCALE)
    entropy += 0.5 * (d - 1) * (1.0 + math.log(2.0 * math.pi))
    asked = [
        (lambda seed: model.probability(None, high, seed=seed),
         product.cdf(high[0]) * normal_cdf(1.0) ** (d - 1)),
        (lambda seed: model.expectation(lambda rows: rows[:, 0] * rows[:, d - 1], seed=seed),
         (SHIFT + SCALE * product.integral(product.line)) * SHIFT),
        (lambda seed: model.entropy(seed=seed), entropy),
    ]  # fmt: skip
    for question, truth in asked:
        answers = [question(seed) for seed in range(100)]
        z = np.array([(a - truth) / a.standard_error for a in answers])
        assert abs(z.mean()) < 0.4
        assert 0.8 < z.std() < 1.35


def with_normalizer(model, gap):
    """The same density, whose normalizer is wrong by a gap."""
    known = model.log_normalizer
    wrong = Normalizer(known.value + gap, 0.1, 1e5, "importance", known.n_points)
    parts = model.tilt, model.base, model.threads
    return replace(model, integrator=Integrator(*parts, normalizer=wrong))


LOG_Z_QUESTIONS = {
    "entropy": lambda model: model.entropy(),
    "divergence": lambda model: model.kl_divergence(tilted(4, seed=2)),
    "divergence from it": lambda model: tilted(4, seed=2).kl_divergence(model),
    "information": lambda model: model.mutual_information(0, [1, 2, 3]),
    "entropy of a margin": lambda model: model.marginal([0, 1]).entropy(),
    "volume": lambda model: model.highest_density_region(0.9).volume,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOG_Z_QUESTIONS)
def test_log_z_is_that_of_the_draws_of_an_answer(name):
    """The normalizer is drawn once: its error would be the same for all seeds, and it would be in
    every answer. Answers that need log Z estimate it by their own draws."""
    ask, model = LOG_Z_QUESTIONS[name], tilted(4)
    found, wanted = ask(with_normalizer(model, 0.3)), ask(model)
    assert found == pytest.approx(wanted.value, abs=1e-3 * wanted.standard_error)
    assert found.standard_error == pytest.approx(wanted.standard_error, rel=1e-3)


def test_wrong_normalizers_are_seen():
    """Negative control of the test before: log densities do have the normalizer."""
    model, row = tilted(4), np.full((1, 4), SHIFT)
    gap = model.log_density(row) - with_normalizer(model, 0.3).log_density(row)
    assert gap[0] == pytest.approx(0.3)


def test_the_divergence_of_a_density_from_itself_is_zero():
    model = tilted(4)
    found = model.kl_divergence(model)
    assert max(abs(found.value), found.standard_error) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("d", [5, 8])
def test_errors_of_entropies_and_divergences_count_log_z_once(d):
    """z-scores over 100 seeds, with a normalizer whose own error is several times that of draws."""
    product = Product(d)
    model = with_normalizer(product.model, 0.05)
    other = of_base(tgp.GaussianBase(np.full(d, SHIFT), SCALE**2 * np.eye(d)))
    line, p = product.line, product.p
    normal = np.exp(-0.5 * line**2) / math.sqrt(2.0 * math.pi)
    safe = np.where(normal > 0.0, normal, 1.0)
    alone = product.integral(-np.log(p)) + math.log(SCALE)
    rest = 0.5 * (1.0 + math.log(2.0 * math.pi)) + math.log(SCALE)
    asked = [
        (lambda seed: model.entropy(seed=seed), alone + (d - 1) * rest),
        (lambda seed: model.kl_divergence(other, seed=seed),
         product.integral(np.where(normal > 0.0, np.log(p / safe), 0.0))),
    ]  # fmt: skip
    for question, truth in asked:
        answers = [question(seed) for seed in range(100)]
        z = np.array([(a - truth) / a.standard_error for a in answers])
        assert abs(z.mean()) < 0.4
        assert 0.7 < z.std() < 1.35


# -- distribution functions and quantiles ----------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, pytest.param(3, marks=pytest.mark.slow), 5])
def test_cdf_of_a_column_and_its_inverse(d):
    product = Product(d)
    x = np.array([1.0, 4.0, 5.5, 9.0])
    values, errors = product.model.cdf(x, columns=0, return_error=True)
    truth = [product.cdf(v) for v in x]
    assert (np.abs(values - truth) <= 4 * errors + 1e-7).all()
    tolerance = 1e-8 if d <= 2 else 1e-6 if d == 3 else 1e-5
    back = product.model.quantile(values, column=0)
    assert np.abs(back - x).max() < (1e-6 if d <= 3 else 2e-2)
    assert np.abs(product.model.cdf(back, columns=0) - values).max() < tolerance


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.slow
def test_grids_along_a_column_are_kept(monkeypatch, d):
    """A quantile asks for the distribution function three times, and the next one again."""
    made, make = [], marginal_cdf.ComponentGrid

    def count(*arguments, **options):
        made.append(1)
        return make(*arguments, **options)

    monkeypatch.setattr(marginal_cdf, "ComponentGrid", count)
    model = tilted(d, mixture(d))
    model.quantile(0.5, column=0)
    assert len(made) == 2  # the components of the base
    model.quantile([0.1, 0.9], column=0)
    assert len(made) == 2
    model.quantile(0.5, column=1)
    assert len(made) == 4


@pytest.mark.parametrize("finer", [2, 1])
def test_cdf_of_three_columns_agrees_with_boxes(monkeypatch, finer):
    """Interpolated along the column, from a grid that is twice as fine as that of log Z. Negative
    control: that grid itself, where it has just converged, is too coarse."""
    monkeypatch.setattr(marginal_cdf, "RESOLVED_ALONG", finer)
    model = tilted(3, tgp.GaussianBase(np.zeros(3), 0.1 * np.eye(3)), size=3.0)
    along = np.linspace(-0.6, 0.6, 7) * SCALE + SHIFT
    truth = [model.probability(None, {0: x}).value for x in along]
    gap = np.abs(model.cdf(along, columns=0) - truth).max()
    assert gap < 1e-7 if finer == 2 else gap > 1e-7


def test_quantiles_of_bases_are_exact():
    q = np.array([1e-6, 0.1, 0.5, 0.999])
    heavy = of_base(tgp.StudentBase([1.0], [[2.0]], 0.7))
    assert np.allclose(heavy.quantile(q), stats.t(0.7, 1.0, math.sqrt(2.0)).ppf(q), rtol=1e-7)
    wide = of_base(tgp.GaussianBase(np.arange(8.0), covariance(8)))
    truth = stats.norm(7.0, math.sqrt(covariance(8)[7, 7])).ppf(q)
    assert np.abs(wide.quantile(q, column=7) - truth).max() < 1e-9
    assert np.abs(wide.median() - np.arange(8.0)).max() < 1e-9


def test_shapes_of_quantiles():
    model = of_base(tgp.GaussianBase(np.zeros(2), np.eye(2)), ["a", "b"])
    assert isinstance(model.quantile(0.5, column="b"), float)
    assert model.quantile([0.2, 0.5], column="b").shape == (2,)
    assert model.quantile(0.5).shape == (2,)
    assert model.quantile([0.2, 0.5, 0.7]).shape == (3, 2)


@pytest.mark.parametrize("d", [2, 5])
def test_joint_cdf_is_a_box(d):
    product = Product(d, names=list("abcde")[:d])
    rows = np.array([np.full(d, SHIFT), np.full(d, SHIFT + SCALE)])
    frame = pd.DataFrame(rows, columns=list("abcde")[:d], index=[7, 9])
    values = product.model.cdf(frame)
    assert values.index.tolist() == [7, 9]
    for value, row in zip(values, rows, strict=True):
        assert abs(value - product.model.probability(None, row)) < 1e-12
    two = product.model.cdf(frame, columns=["b", "a"])
    assert abs(two.iloc[0] - product.cdf(SHIFT) * 0.5) < (1e-7 if d == 2 else 5e-3)


# -- expectations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_expectation_and_entropy_of_a_product(d):
    product = Product(d)
    mean = SHIFT + SCALE * product.integral(product.line)
    assert within(product.model.expectation(lambda x: x[:, 0]), mean, 1e-7)
    one = product.integral(-np.log(product.p))
    gaussian = 0.5 * (1.0 + math.log(2.0 * math.pi))
    truth = one + (d - 1) * gaussian + d * math.log(SCALE)
    assert within(product.model.entropy(), truth, 1e-7)


def test_expectation_by_draws_agrees_with_quadrature():
    model = tilted(2, mixture(2))
    exact = model.expectation(lambda x: np.sin(x[:, 0]) * x[:, 1])
    drawn = model.expectation(lambda x: np.sin(x[:, 0]) * x[:, 1], method="draws")
    assert exact.standard_error < 1e-7 < drawn.standard_error
    assert within(drawn, exact)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.slow
def test_divergence_of_gaussians_and_products(d):
    one = of_base(tgp.GaussianBase(np.zeros(d), covariance(d)))
    two = of_base(tgp.GaussianBase(np.ones(d), 2.0 * covariance(d)))
    inverse = np.linalg.inv(2.0 * covariance(d))
    truth = 0.5 * (d / 2 - d + inverse.sum() + d * math.log(2.0))
    assert abs(one.kl_divergence(two) - truth) < 1e-12
    assert one.kl_divergence(two).method == "exact"
    product = Product(d)
    plain = of_base(tgp.GaussianBase(np.full(d, SHIFT), SCALE**2 * np.eye(d)))
    density = np.exp(-0.5 * product.line**2) / math.sqrt(2.0 * math.pi)
    safe = np.where(density > 0, density, 1.0)
    truth = product.integral(np.where(density > 0, np.log(product.p / safe), 0.0))
    assert within(product.model.kl_divergence(plain), truth, 1e-7)


def test_divergence_is_infinite_where_the_other_vanishes():
    class Half:
        def log_density(self, rows):
            return np.where(rows[:, 0] > 0, 0.0, -np.inf)

    model = of_base(tgp.GaussianBase([0.0], [[1.0]]))
    assert model.kl_divergence(Half()) == math.inf


# -- lattices --------------------------------------------------------------------------------------


def test_a_lattice_between_a_period_and_walls():
    """All answers of a density on a torus' strip: the mass is 1, boxes add up, the chain holds."""
    rng = np.random.default_rng(0)
    features = LatticeFeatures([1.0, 2.0], (3, 4), [0.0, -1.0], walls=("period", "wall"))
    shape = features.grid_shape()
    theta = 8.0 * features.from_grid(rng.normal(size=shape)) / math.prod(shape)
    base = UniformBase([0.0, -1.0], [1.0, 1.0], [True, False])
    model = Density("map", LatticeTilt(features, theta), base)
    halves = [model.probability({1: 0.2}), model.probability(None, {1: 0.2})]
    assert abs(sum(halves) - 1.0) <= sum(part.standard_error for part in halves)
    assert abs(model.cdf([0.2], columns=1)[0] - halves[1]) < 1e-6
    rows = model.sample(50_000, seed=0)
    assert abs((rows[:, 1] < 0.2).mean() - halves[1]) < 5 * 0.5 / math.sqrt(50_000)
    y = rows[:1]
    total = model.marginal(0).log_density(y[:, :1])[0]
    total += model.conditional({0: y[0, 0]}).log_density(y[:, 1:])[0]
    assert abs(total - model.log_density(y)[0]) < 1e-6
    entropy = model.entropy()
    assert abs(entropy + model.log_density(rows).mean()) < 0.02
    with pytest.raises(ValueError, match="column 1 at 3"):
        model.conditional({1: 3.0})


# -- bad input -------------------------------------------------------------------------------------


def test_bad_input_is_named():
    model = of_base(tgp.GaussianBase(np.zeros(2), np.eye(2)), ["a", "b"])
    cases = [
        (lambda: model.quantile(1.0), ValueError, "q=1.0.*above 0 and below 1"),
        (lambda: model.quantile("half"), TypeError, "expected a number"),
        (lambda: model.quantile([]), ValueError, r"q=\[\]: expected at least one number"),
        (lambda: model.mode(min_share=[0.1]), TypeError, r"min_share=\[0.1\]: expected one"),
        (lambda: model.highest_density_region([0.5]), TypeError, r"level=\[0.5\]: expected one"),
        (lambda: model.probability({0: 0.0, "a": 1.0}), ValueError, "lower=.*given twice"),
        (lambda: model.quantile(0.5, column="c"), ValueError, "'c'.*no such column.*'a', 'b'"),
        (lambda: model.quantile(0.5, column=2), ValueError, "column=2.*no such column"),
        (lambda: model.cdf([0.0], columns=["a", "a"]), ValueError, "each one once"),
        (lambda: model.cdf([[0.0, 0.0, 0.0]]), ValueError, "3 columns, expected 2"),
        (lambda: model.probability([0.0]), ValueError, "1 entries, expected 2"),
        (lambda: model.probability({"c": 0}), ValueError, "'c'"),
        (lambda: model.probability([0, 1], [0, 0.5]), ValueError, "above upper"),
        (lambda: model.probability([0, float("nan")]), ValueError, "nan"),
        (lambda: model.probability(["x", None]), TypeError, "'x'"),
        (lambda: model.expectation(lambda x: x), ValueError, "one number for each row"),
        (lambda: model.expectation(None), TypeError, "function=None: expected a function of rows"),
        (lambda: model.kl_divergence(3), TypeError, "log_density"),
        (lambda: model.kl_divergence(of_base(tgp.GaussianBase([0.0], [[1.0]]))), ValueError,
         "same columns"),
        (lambda: Product(5).model.expectation(len, method="quadrature"), ValueError, "draws"),
    ]  # fmt: skip
    for ask, kind, text in cases:
        with pytest.raises(kind, match=text):
            ask()


def test_expectations_under_large_mixtures_of_three_columns_come_from_draws():
    """The mean, and the entropy of far components: log K and that of one of them."""
    K = 12
    means = 100.0 * np.column_stack([np.arange(K), np.arange(K) % 3, np.zeros(K)])
    base = tgp.MixtureBase(np.full(K, 1.0 / K), means, np.tile(np.eye(3), (K, 1, 1)))
    model = of_base(base)
    entropy = model.entropy()
    assert entropy.method == "draws"
    wanted = math.log(K) + 1.5 * (1.0 + math.log(2.0 * math.pi))
    assert abs(entropy - wanted) < 5.0 * entropy.standard_error < 0.05
    mean = model.expectation(lambda rows: rows[:, 0])
    assert mean.method == "draws"
    assert abs(mean - means[:, 0].mean()) < 5.0 * mean.standard_error
