"""The sample of a fit: rows held out, and bases that are learned without them."""

import dataclasses

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.bases import mixture_growth
from tgpfast.data.blocks import Blocks
from tgpfast.data.row_sample import choose_rows
from tgpfast.paper import datasets
from tgpfast.selection import mixture_ensemble, sample_split
from tgpfast.selection.effort import Budget
from tgpfast.selection.folds import assign_folds
from tgpfast.selection.sample_split import REFINEMENT_FOLDS, SampleSplit

FEW = 100


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Rows are many from 101 on."""
    monkeypatch.setattr(sample_split, "FEW_ROWS", FEW)


def moons(n=400, seed=0):
    x = datasets.two_moons(n, seed=seed)
    return (x - x.mean(axis=0)) / x.std(axis=0)


def weights_of(n):
    return np.random.default_rng(7).uniform(0.5, 2.0, n)


@pytest.mark.parametrize("n", [FEW, FEW + 1, 345])
def test_one_row_in_ten_is_held_out_of_many(n):
    """And none of few, which all are needed."""
    x, w = moons(n), weights_of(n)
    split = SampleSplit.of(Blocks(x, sample_weight=w))
    np.testing.assert_array_equal(split.x, x)
    np.testing.assert_array_equal(split.weights, w)
    held = np.flatnonzero(split.held)
    assert len(held) == (-(-n // REFINEMENT_FOLDS) if n > FEW else 0)
    assert split.holds_out is (n > FEW)
    if n > FEW:  # in no order, or rows that come in turns of ten would all be of one kind
        assert len(set((held % REFINEMENT_FOLDS).tolist())) > 3


def test_rows_that_repeat_count_once(monkeypatch):
    """With their weights; and rows are sampled where they are too many."""
    x = moons(150)
    split = SampleSplit.of(Blocks(np.concatenate([x, x[:80]])))
    np.testing.assert_array_equal(split.x, x)
    np.testing.assert_array_equal(split.weights, np.r_[np.full(80, 2.0), np.ones(70)])
    monkeypatch.setattr(sample_split, "EM_ROWS", 50)
    np.testing.assert_array_equal(SampleSplit.of(Blocks(x)).x, x[choose_rows(150, 50)])


def test_streams_give_the_sample_that_was_drawn():
    """If they can be read again; without a sample there is no second split."""
    x = moons(150)
    for source in ([x[:70], x[70:]], lambda: iter([x[:70], x[70:]])):
        blocks = Blocks(source)
        assert SampleSplit.of(blocks) is None
        blocks.draw_sample()
        np.testing.assert_array_equal(SampleSplit.of(blocks).x, x)
    once = Blocks(iter([x]))
    once.draw_sample()
    assert SampleSplit.of(once) is None
    assert once.n_passes == 0


@pytest.mark.parametrize("kind", ["student", "mixture"])
def test_bases_do_not_see_the_rows_held_out(kind):
    """Nor does the choice of the size of a mixture; but a base is refitted to all rows."""
    x, w = moons(300), weights_of(300)
    split = SampleSplit.of(Blocks(x, sample_weight=w), seed=2)
    changed = x.copy()
    changed[split.held] += 5.0
    other = dataclasses.replace(split, x=changed)
    base = split.fit_base(kind)
    assert base.fingerprint == other.fit_base(kind).fingerprint
    more = split.refit_base(base)
    assert more.fingerprint == split.fit_base(kind, use_all=True).fingerprint
    assert more.fingerprint != other.refit_base(base).fingerprint
    assert w[split.held] @ more.log_density(x[split.held]) > (
        w[split.held] @ base.log_density(x[split.held])
    )
    none = dataclasses.replace(split, held=np.zeros(300, bool))
    assert none.refit_base(base) is base


def test_a_gaussian_is_not_refitted():
    """It has the moments of all rows already."""
    split = SampleSplit.of(Blocks(moons(300)))
    base = tgp.GaussianBase.from_data(moons(300))
    assert split.refit_base(base) is base


def test_mixtures_grow_once_on_most_rows(monkeypatch):
    """One row in ten, another one for each of them, decides on the size; the model has their
    average, after steps on all rows that are kept."""
    x, w = moons(300), weights_of(300)
    split = SampleSplit.of(Blocks(x, sample_weight=w))
    split = dataclasses.replace(split, budget=Budget(n_members=2))
    calls, plain = [], mixture_growth.grow_mixture

    def count(*rows, **options):
        calls.append((rows, options))
        return plain(*rows, **options)

    monkeypatch.setattr(mixture_ensemble, "grow_mixture", count)
    base = split.fit_base("mixture")
    split.refit_base(base)
    split.fit_base("mixture", use_all=True)
    assert len(calls) == 2
    rows, weights = x[~split.held], w[~split.held]
    parts = assign_folds(len(rows), 10)
    means = []
    for k, ((kept, _, judges, _), options) in enumerate(calls):
        np.testing.assert_array_equal(kept, rows[parts != k])
        np.testing.assert_array_equal(judges, rows[parts == k])
        member = plain(*calls[k][0], **options).refit(rows, weights)
        means.append(np.exp(member.log_density(x)))
    np.testing.assert_allclose(np.exp(base.log_density(x)), np.mean(means, axis=0), rtol=1e-9)


def test_a_split_has_all_rows_held_out_and_some_that_are_kept():
    x, w = moons(300), weights_of(300)
    sample = SampleSplit.of(Blocks(x, sample_weight=w))
    split = sample.split(50)
    np.testing.assert_array_equal(split.held, x[sample.held])
    assert split.held_weights.sum() == pytest.approx(1.0)
    places = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in split.kept]
    assert len(set(places)) == 50
    assert not sample.held[places].any()
    np.testing.assert_array_equal(split.kept_weights, w[places])
    assert max(places) > 200  # from anywhere, also where rows have an order


@pytest.mark.parametrize(
    ("d", "may_guard", "n"), [(4, True, FEW), (4, True, FEW + 1), (4, False, FEW), (3, True, FEW)]
)
def test_a_gaussian_of_few_rows_of_many_columns_has_a_guard(d, may_guard, n):
    """One outlier among new rows then costs what it costs a mixture. Other rows lose no more than
    the guard's weight, a quarter of a row."""
    x, far = np.random.default_rng(0).normal(size=(n, d)), np.full((1, d), 30.0)
    split, plain = SampleSplit.of(Blocks(x), may_guard=may_guard), tgp.GaussianBase.from_data(x)
    base = split.fit_base("empirical", use_all=True)
    has_guard = d == 4 and may_guard and n == FEW
    assert (base.log_density_at(far)[0] > -100.0) == has_guard
    assert plain.log_density_at(far)[0] < -1e3  # negative control
    lost = (plain.log_density_at(x) - base.log_density_at(x)).max()
    assert lost <= -np.log1p(-0.25 / (n + 0.25) * has_guard) + 1e-12
