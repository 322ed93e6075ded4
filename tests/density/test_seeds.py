"""Every answer takes an integer, None or a Generator as its seed, as scipy does."""

import numpy as np
import pytest
from answer_models import tilted
from conftest import fixed_fit, slow

import tgpfast as tgp
from tgpfast.density.columns.discrete import DiscreteDensity

QUESTIONS = {
    "probability": lambda model, other, seed: model.probability({0: 5.0}, None, seed=seed),
    "cdf": lambda model, other, seed: model.cdf(np.full((1, model.dimension), 5.5), seed=seed)[0],
    "quantile": lambda model, other, seed: model.quantile(0.3, seed=seed),
    "expectation": lambda model, other, seed: model.expectation(lambda x: x[:, 0], seed=seed),
    "entropy": lambda model, other, seed: model.entropy(seed=seed),
    "divergence": lambda model, other, seed: model.kl_divergence(other, seed=seed),
    "region": lambda model, other, seed: model.highest_density_region(0.9, seed=seed).threshold,
    "modes": lambda model, other, seed: model.mode(seed=seed).share[0],
}


def make_joint(seed):
    return tilted(4, seed=seed)


def make_pair(seed):
    return make_joint(seed).marginal([0, 2])


def make_counts(seed):
    return DiscreteDensity(make_joint(seed), {0: 1.0, 2: 1.0})


def check_seeds(ask):
    """A Generator gives its next integer as the seed, None a new seed at every call."""
    seed = int(np.random.default_rng(5).integers(2**63))
    np.testing.assert_array_equal(ask(np.random.default_rng(5)), ask(seed))
    first = np.asarray(ask(None))
    assert (first != np.asarray(ask(None))).any()
    with pytest.raises(ValueError, match=r"seed=-1: expected an integer of at least 0, None"):
        ask(-1)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((name, make) for name in QUESTIONS for make in (make_joint, make_counts)),
        # modes of a marginal density are found for one column only: see below
        *(slow(name, make_pair) for name in QUESTIONS if name != "modes"),
    ],
)
@pytest.mark.slow
def test_seeds_of_answers(name, make):
    model, other = make(0), make(1)
    check_seeds(lambda seed: QUESTIONS[name](model, other, seed))


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_joint, make_counts, make_pair])
def test_seeds_of_information(make):
    model = make(0)
    check_seeds(lambda seed: model.mutual_information(0, 1, seed=seed))


def test_seeds_of_modes_of_one_column():
    """Of a bimodal column: the shares of its modes come from the draws of its distribution."""
    base = tgp.MixtureBase([0.4, 0.6], [[-3.0] * 4, [3.0] * 4], [np.eye(4)] * 2)
    column = tilted(4, base).marginal(1)
    check_seeds(lambda seed: column.mode(seed=seed).share)


@pytest.mark.slow
def test_seeds_of_bands():
    x = np.random.default_rng(0).normal(size=(200, 1))
    model = fixed_fit(x, method="fvpd", n_features=20)
    check_seeds(lambda seed: model.credible_band([[0.0]], seed=seed).lower)


def test_seeds_of_mixtures():
    """The directions along which components are split change nothing but roundings here."""
    x = np.random.default_rng(0).normal(size=(200, 2)) + [[3.0, 0.0]] * np.array([[0], [1]] * 100)
    for seed in (None, np.random.default_rng(5)):
        assert tgp.MixtureBase.from_data(x, 2, seed=seed).n_components == 2
