"""``mixture_sums`` and ``mixture_density`` of every backend against formulas in long double."""

import numpy as np
import oracle
import pytest

from tgpfast.kernels import ROW_TILE

U = 2.0**-53
LONG = np.longdouble


def monomials(x, count):
    """1, the columns, then squares or all products, (n, count), one loop a product."""
    x = np.asarray(x, LONG)
    n, d = x.shape
    columns = [np.ones(n, LONG), *x.T]
    if count > 1 + d:
        columns += [
            x[:, j] * x[:, k] for j in range(d) for k in range(j, d if count > 1 + 2 * d else j + 1)
        ]
    assert len(columns) == count
    return np.stack(columns, axis=1)


def count_of(form, d):
    return {"tied": 1 + d, "diagonal": 1 + 2 * d, "full": 1 + d + d * (d + 1) // 2}[form]


class Problem:
    """Rows, lanes and coefficients; what the kernel should make of them, and how far it may err."""

    def __init__(self, n, d, K, form="full", lanes=(0, 1), own=False, seed=0):
        rng = np.random.default_rng([n, d, K, seed])
        self.x = rng.normal(size=(n, d))
        self.share = rng.uniform(0.2, 2.0, n) / max(n, 1)
        self.bounds = np.round(np.array(lanes) * n).astype(np.int64)
        P = count_of(form, d)
        self.coefficients = rng.normal(size=(len(lanes) - 1 if own else 1, K, P))

    @property
    def n_lanes(self):
        return len(self.bounds) - 1

    def run(self, kernels, n_threads=1, *, sums=True, labels=True, fill=0.0):
        """(value, labels, sums); buffers hold NaN or ``fill`` before."""
        n = len(self.x)
        K, P = self.coefficients.shape[1:]
        value = np.full((1, n), np.nan)
        found = np.full(n if labels else 0, -7, np.int64)
        added = np.full((self.n_lanes, K, P) if sums else (0, 0, 0), fill)
        blocks = np.full((n_threads, P + K, ROW_TILE), np.nan)
        for array in (self.x, self.share, self.bounds, self.coefficients):
            array.flags.writeable = False
        kernels.mixture_sums(
            self.x, self.share, self.bounds, self.coefficients, value, found, added, blocks,
            n_threads,
        )  # fmt: skip
        return value[0], found, added

    def want(self):
        """(value, labels, sums, bound of the error of every term)."""
        design = monomials(self.x, self.coefficients.shape[2])
        value, labels = np.empty(len(self.x), LONG), np.empty(len(self.x), np.int64)
        sums, error = [], 0.0
        for lane in range(self.n_lanes):
            part = slice(self.bounds[lane], self.bounds[lane + 1])
            chosen = self.coefficients[lane % len(self.coefficients)].astype(LONG)
            terms = design[part] @ chosen.T
            top = terms.max(axis=1, keepdims=True, initial=-np.inf)
            value[part] = np.log(np.exp(terms - top).sum(axis=1)) + top[:, 0]
            labels[part] = terms.argmax(axis=1)
            r = np.exp(terms - value[part][:, None]) * self.share[part, None]
            sums.append(r.T @ design[part])
            size = np.abs(design[part]) @ np.abs(chosen).T
            error = max(error, float(size.max(initial=0.0)))
        # a product of P terms errs by P + 1 units of their sizes; monomials by one more
        error *= (self.coefficients.shape[2] + 2) * U
        return value, labels, np.array(sums), error

    def check(self, found):
        value, labels, sums = found
        right, best, total, error = self.want()
        K = self.coefficients.shape[1]
        # exp and log within 2 units, sums of K terms
        np.testing.assert_allclose(value, right.astype(float), rtol=0, atol=error + (K + 8) * 2 * U)
        np.testing.assert_array_equal(labels, best)
        size = np.abs(monomials(self.x, self.coefficients.shape[2]))
        bound = (self.share[:, None] * size).sum(axis=0).astype(float)
        slack = 2 * error + (2 * K + len(self.x) + 16) * U
        assert (np.abs(sums - total.astype(float)) <= slack * bound + 1e-300).all()


SHAPES = [(1, 1, 1), (5, 2, 3), (256, 3, 4), (257, 2, 20), (700, 6, 7), (300, 12, 40)]


@pytest.mark.parametrize("form", ["full", "diagonal", "tied"])
@pytest.mark.parametrize(("n", "d", "K"), SHAPES)
def test_sums_are_those_of_the_formula(kernels, n, d, K, form):
    p = Problem(n, d, K, form)
    p.check(p.run(kernels))


@pytest.mark.parametrize("own", [False, True])
def test_lanes_of_unequal_length_have_a_mixture_of_their_own_or_share_one(kernels, own):
    p = Problem(900, 3, 4, lanes=(0, 0.3, 0.3, 0.31, 1.0), own=own)
    assert (np.diff(p.bounds) == [270, 0, 9, 621]).all()
    p.check(p.run(kernels, 2))


@pytest.mark.parametrize("own", [False, True])
def test_results_do_not_depend_on_the_number_of_threads(kernels, own):
    p = Problem(2_000, 4, 6, lanes=(0, 0.1, 0.4, 0.45, 0.9, 1.0), own=own)
    once, *others = (p.run(kernels, n_threads) for n_threads in (1, 2, 3))
    for other in others:
        for a, b in zip(once, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", ["full", "tied"])
def test_several_mixtures_of_a_lane_share_its_rows(kernels, form):
    """Three mixtures of two components are what each is alone."""
    p = Problem(600, 3, 6, form, lanes=(0, 0.4, 1.0), own=True)
    value, sums = np.full((3, 600), np.nan), np.zeros(p.coefficients.shape)
    blocks = np.full((1, sum(p.coefficients.shape[1:]), ROW_TILE), np.nan)
    kernels.mixture_sums(
        p.x, p.share, p.bounds, p.coefficients, value, np.empty(0, np.int64), sums, blocks, 1
    )
    for g in range(3):
        alone = Problem(600, 3, 6, form, lanes=(0, 0.4, 1.0), own=True)
        alone.coefficients = np.ascontiguousarray(p.coefficients[:, 2 * g : 2 * g + 2])
        right, _, total, _ = alone.want()
        np.testing.assert_allclose(value[g], right.astype(float), rtol=0, atol=1e-12)
        np.testing.assert_allclose(sums[:, 2 * g : 2 * g + 2], total.astype(float), atol=1e-13)


def test_sums_are_added_to_and_outputs_that_are_empty_are_skipped(kernels):
    p = Problem(400, 2, 3)
    value, _, sums = p.run(kernels)
    _, _, more = p.run(kernels, fill=2.0)
    np.testing.assert_allclose(more, sums + 2.0, rtol=1e-14)
    bare, none, nothing = p.run(kernels, sums=False, labels=False)
    np.testing.assert_array_equal(bare, value)
    assert none.size == nothing.size == 0


def test_no_rows_give_nothing(kernels):
    value, labels, sums = Problem(0, 2, 3).run(kernels)
    assert value.size == labels.size == 0
    assert not sums.any()


def test_equal_terms_are_labelled_by_the_first(kernels):
    p = Problem(300, 2, 3)
    p.coefficients = np.repeat(p.coefficients[:, :1], 3, axis=1)
    _, labels, _ = p.run(kernels)
    assert not labels.any()


def test_terms_far_apart_neither_overflow_nor_vanish(kernels):
    """exp of 900 overflows, exp of -900 vanishes: only differences count."""
    p = Problem(300, 2, 3)
    p.coefficients = p.coefficients + 0.0
    p.coefficients[:, :, 0] += np.array([-900.0, 900.0, 0.0])
    p.check(p.run(kernels))


def test_a_wrong_coefficient_is_seen(kernels):
    """Negative control of the tolerance."""
    p = Problem(300, 2, 3)
    found = p.run(kernels)
    p.coefficients = p.coefficients.copy()
    p.coefficients[0, 1, 2] *= 1.0 + 1e-9
    with pytest.raises(AssertionError):
        p.check(found)


# -- evaluation -----------------------------------------------------------------------------------


class Mixture:
    def __init__(self, d, K, seed=0):
        rng = np.random.default_rng([d, K, seed])
        half = rng.normal(size=(K, d, d)) / np.sqrt(2 * d)
        self.weights, self.means = rng.dirichlet(np.full(K, 3.0)), rng.normal(size=(K, d))
        self.covariances = half @ half.transpose(0, 2, 1) + 0.5 * np.eye(d)
        self.origin = rng.normal(size=d)
        factor = np.linalg.cholesky(self.covariances)
        inverse = np.linalg.inv(factor)
        self.shift = np.einsum("kij,kj->ki", inverse, self.means - self.origin)
        log_det = np.log(np.einsum("kii->ki", factor)).sum(axis=1)
        self.constant = np.log(self.weights) - 0.5 * d * np.log(2 * np.pi) - log_det
        # what stands above the diagonal is not read
        self.whitener = np.where(np.tri(d, dtype=bool), inverse, np.nan)

    @property
    def parameters(self):
        return self.weights, self.means, self.covariances

    def run(self, kernels, x, n_threads=1, *, score=True, whitener=None):
        n, d = x.shape
        value, slope = np.full(n, np.nan), np.full((n if score else 0, d), np.nan)
        blocks = np.full((n_threads, len(self.constant), ROW_TILE), np.nan)
        used = self.whitener if whitener is None else whitener
        if kernels.NAME == "numpy":
            used = np.where(np.isnan(used), 1e9, used)  # np.tril reads what it drops
        kernels.mixture_density(
            x, self.origin, used, self.shift, self.constant, value, slope, blocks, n_threads
        )
        return value, slope


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(("n", "d", "K"), SHAPES)
def test_density_and_score_are_the_oracles(kernels, n, d, K, n_threads):
    mixture, x = Mixture(d, K), np.random.default_rng(n).normal(0, 1.5, (n, d))
    value, score = mixture.run(kernels, x, n_threads)
    # squared distances below 500, after some d^2 roundings
    limit = 500 * (d * d + 20) * 2 * U
    want = oracle.mixture_log_density(x, *mixture.parameters)
    np.testing.assert_allclose(value, want, rtol=0, atol=limit)
    want = oracle.mixture_score(x, *mixture.parameters)
    np.testing.assert_allclose(score, want, rtol=0, atol=20 * limit)
    alone, none = mixture.run(kernels, x, n_threads, score=False)
    np.testing.assert_array_equal(alone, value)
    assert none.size == 0


def test_density_does_not_depend_on_the_number_of_threads(kernels):
    mixture, x = Mixture(3, 9), np.random.default_rng(0).normal(size=(1_500, 3))
    once, twice = mixture.run(kernels, x, 1), mixture.run(kernels, x, 3)
    for a, b in zip(once, twice, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_too_far_have_no_density_and_no_slope(kernels):
    """Squares overflow, and differences of infinite numbers are none; rows beside them stay."""
    mixture, x = Mixture(2, 4), np.random.default_rng(0).normal(size=(40, 2))
    near, slopes = mixture.run(kernels, x)
    x[3], x[17] = [1e200, 0.0], [1.7e308, -1.7e308]
    value, score = mixture.run(kernels, x)
    rest = np.setdiff1d(np.arange(40), [3, 17])
    assert np.isneginf(value[[3, 17]]).all()
    assert not score[[3, 17]].any()
    np.testing.assert_array_equal(value[rest], near[rest])
    np.testing.assert_array_equal(score[rest], slopes[rest])


def test_a_far_component_leaves_the_score_of_the_near_one(kernels):
    """Its share is 0 and its whitened row infinite: the product must count as 0."""
    mixture = Mixture(2, 2)
    x = mixture.means[:1] + 0.1
    tight = mixture.whitener.copy()
    tight[1] *= 1e200
    mixture.shift[1] *= 1e200
    mixture.constant[1] += 2 * np.log(1e200)
    value, score = mixture.run(kernels, x, whitener=tight)
    one = [part[:1] for part in mixture.parameters]
    np.testing.assert_allclose(value, oracle.mixture_log_density(x, *one), rtol=1e-12)
    np.testing.assert_allclose(score, oracle.mixture_score(x, *one), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernels", ["cython"], indirect=True)
def test_blocks_of_another_length_are_refused(kernels):
    mixture, x = Mixture(2, 2), np.zeros((3, 2))
    with pytest.raises(ValueError, match="blocks of 256 rows expected, got 8"):
        kernels.mixture_density(
            x, mixture.origin, mixture.whitener, mixture.shift, mixture.constant, np.empty(3),
            np.empty((0, 2)), np.empty((1, 2, 8)), 1,
        )  # fmt: skip
    p = Problem(3, 2, 2)
    with pytest.raises(ValueError, match="blocks of 256 rows expected, got 8"):
        kernels.mixture_sums(
            p.x, p.share, p.bounds, p.coefficients, np.empty((1, 3)), np.empty(0, np.int64),
            np.empty((0, 0, 0)), np.empty((1, 8, 8)), 1,
        )  # fmt: skip
