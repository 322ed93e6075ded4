"""The sample of rows that are scored: fair, with the weights of its rows."""

import numpy as np

from tgpfast.evaluation.scores import ScoredRows


def test_scored_rows_are_a_fair_sample_of_a_stream():
    """Rows in order, in blocks: each as likely to be scored as any other."""
    x = np.linspace(-1.0, 1.0, 3_000)[:, None]
    counts = np.zeros(30)
    for seed in range(200):
        rows = ScoredRows(60, np.random.default_rng(seed))
        for start in range(0, 3_000, 700):
            rows.add(x[start : start + 700], None)
        held, weights = rows.rows()
        assert held.shape == (60, 1)
        assert (weights == 1.0).all()
        assert len(np.unique(held)) == 60
        counts += np.histogram(held, 30, (-1, 1))[0]
    # 400 expected in each of 30 cells, within five standard deviations
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400)
    assert rows.seen == 3_000
    assert rows.n_effective == 3_000


def test_weights_stay_with_their_rows():
    rows = ScoredRows(50, np.random.default_rng(0))
    x = np.arange(400.0)[:, None]
    for start in range(0, 400, 90):
        rows.add(x[start : start + 90], x[start : start + 90, 0] + 0.5)
    held, weights = rows.rows()
    np.testing.assert_array_equal(weights, held[:, 0] + 0.5)
