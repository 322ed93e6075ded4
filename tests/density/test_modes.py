"""Modes that the base misses, the draws that cover them, and the annealed cross-check."""

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.bases.bounded import BoundedMixtureBase
from tgpfast.density.draws.annealing import estimate_by_annealing
from tgpfast.density.draws.modes import find_modes
from tgpfast.density.draws.proposal import Proposal, widen_base
from tgpfast.density.exponents.exponent import PointTilt
from tgpfast.density.normalizing import normalizer
from tgpfast.kernels.thread_choice import Threads


def one_wave(d, theta, place, slow=0.3):
    """exp{theta sqrt(2) cos(slow (w . x - place))} on a standard normal, w a unit vector."""
    w = np.full(d, d**-0.5)
    base = tgp.GaussianBase(np.zeros(d), np.eye(d))
    features = tgp.Features(slow * w[None], [-slow * place], 1.0)
    return PointTilt(features, np.array([theta]), base.mean), base


def exact(theta, place, slow=0.3):
    """log Z: only the coordinate along the wave is tilted."""
    z = np.linspace(-60, 60, 400_001)
    terms = theta * np.sqrt(2) * np.cos(slow * (z - place)) - 0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    return np.logaddexp.reduce(terms) + np.log(z[1] - z[0])


@pytest.mark.slow
@pytest.mark.parametrize("d", [4, 7])
def test_a_mode_that_base_draws_miss_is_found_and_weighed(d):
    """Eight deviations away: one draw of the base in 10^15 lands there."""
    tilt, base = one_wave(d, 200.0, 8.0)
    modes = find_modes(tilt, base, Threads())
    assert modes is not None
    along = modes.means @ np.full(d, d**-0.5)
    assert np.abs(along - 8.0).min() < 1.0
    found = normalizer.estimate_by_importance(tilt, Proposal(base, modes), Threads())
    assert abs(found.value - exact(200.0, 8.0)) < 5 * found.standard_error + 1e-3
    assert found.n_modes >= 1
    assert found.effective_sample_size > 1_000
    # negative control: without the modes the value is far off
    alone = normalizer.estimate_by_importance(tilt, Proposal(base), Threads(), annealed=False)
    assert abs(alone.value - exact(200.0, 8.0)) > 1.0
    assert alone.is_poor


@pytest.mark.slow
def test_rows_lead_to_modes_that_nothing_else_reaches():
    """A narrow peak far along no axis: only a start beside it climbs it."""
    d, rng = 5, np.random.default_rng(0)
    place = np.array([5.0, -4.0, 6.0, 5.0, -5.0])
    z = 2.0 * rng.standard_normal((400, d))
    features = tgp.Features(z, -(z @ place), 1.0)
    tilt = PointTilt(features, np.full(400, 5.0), np.zeros(d))  # all in phase at the place
    base = tgp.GaussianBase(np.zeros(d), np.eye(d))
    near = lambda modes: modes is not None and (  # noqa: E731
        np.linalg.norm(modes.means - place, axis=1).min() < 0.5
    )
    assert near(find_modes(tilt, base, Threads(), place + 0.1 * rng.standard_normal((3, d))))
    assert not near(find_modes(tilt, base, Threads()))


def test_a_mild_tilt_needs_no_modes():
    tilt, base = one_wave(4, 0.7, 0.5)
    assert find_modes(tilt, base, Threads()) is None


@pytest.mark.slow
@pytest.mark.parametrize(("theta", "place"), [(1.0, 1.0), (5.0, 2.0), (20.0, 3.0)])
def test_the_annealed_estimate_is_within_its_error(theta, place):
    tilt, base = one_wave(4, theta, place)
    value, error = estimate_by_annealing(tilt, base, Threads())
    assert 0.0 < error < 0.1
    assert abs(value - exact(theta, place)) < 5 * error + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_chains_do_not_start_at_rows_that_were_learned_from(seed):
    """Normal rows of a small seed are what a Gaussian base draws with that seed."""
    x = np.random.default_rng(seed).standard_normal((8000, 4))
    features = tgp.Features.draw(1000, 0.5, np.eye(4), seed=0)
    base = tgp.GaussianBase.from_data(x)
    model = tgp.solve(tgp.accumulate(x, features, engine="direct"), base, "fd", lam=10.0)
    draws = base.draw(400_000, np.random.default_rng(99))
    weights = np.exp(model.tilt.value(draws, Threads()))
    truth, error = np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(len(weights))
    z = model.log_normalizer
    assert abs(z.annealed - truth) < 4 * np.hypot(error, z.annealed_error)
    assert not z.is_poor
    # negative control: chains that start at the rows
    value, chains_error = estimate_by_annealing(model.tilt, base, Threads(), seed=seed)
    assert value - truth > 4 * np.hypot(error, chains_error)


def test_weights_of_a_proposal_integrate_the_base():
    """The balance heuristic: weights average to one, whatever stands beside the base."""
    base = tgp.MixtureBase([0.5, 0.5], [[0.0, 0.0], [4.0, 1.0]], np.array([np.eye(2)] * 2))
    beside = tgp.MixtureBase([1.0], [[8.0, 8.0]], np.eye(2)[None])
    for other in (beside, widen_base(base)):
        proposal = Proposal(base, other)
        for x in (proposal.sobol(16, 0), proposal.draw(2**16, np.random.default_rng(0))):
            ratio = np.exp(proposal.log_ratio(x))
            assert ratio.max() <= 2.0 + 1e-12
            assert abs(ratio.mean() - 1.0) < 0.02
            mean = (ratio[:, None] * x).mean(axis=0) / ratio.mean()
            assert np.allclose(mean, [2.0, 0.5], atol=0.06)


def test_estimates_that_disagree_make_a_poor_normalizer():
    sure = normalizer.Normalizer(0.0, 0.001, 1e5, "importance", 131_072, 0.05, 0.02)
    off = normalizer.Normalizer(0.0, 0.001, 1e5, "importance", 131_072, 1.0, 0.02)
    noisy = normalizer.Normalizer(0.0, 0.001, 1e5, "importance", 131_072, 1.0, 0.5)
    assert (sure.is_poor, off.is_poor, noisy.is_poor) == (False, True, False)
    with pytest.warns(RuntimeWarning, match="two independent estimates of log Z disagree"):
        normalizer.warn_if_poor(off)


def test_a_wrapped_mixture_is_widened_within_its_periods():
    """Wider along open columns, at most half a period along periodic ones, with the mass of one."""
    base = BoundedMixtureBase(
        [0.5, 0.5], [[0.1, -3.0], [0.6, 3.0]], [0.01 * np.eye(2), np.diag([0.16, 0.04])],
        [0.0, -np.inf], [1.0, np.inf], [True, False],
    )  # fmt: skip
    wide = widen_base(base)
    assert isinstance(wide, BoundedMixtureBase)
    widths = np.sqrt(np.einsum("kii->ki", wide.mixture.covariances))
    assert widths[:, 0].max() == pytest.approx(0.5)
    factor = 1.0 + 2.0**-0.5
    np.testing.assert_allclose(widths[:2, 1], factor * np.array([0.1, 0.2]))
    x = np.stack(np.meshgrid(np.arange(0, 1, 0.01), np.arange(-30, 30, 0.01)), -1).reshape(-1, 2)
    assert np.exp(wide.log_density(x)).sum() * 1e-4 == pytest.approx(1.0, abs=1e-6)
    ratio = base.log_density([[0.35, 12.0]]) - wide.log_density([[0.35, 12.0]])
    assert ratio[0] < -100.0  # far rows are no longer without draws
