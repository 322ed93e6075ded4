"""What all sums over rows share; `Statistics` and `LatticeStatistics` have tests of their own."""

import numpy as np
import pytest

import tgpfast as tgp
from tgpfast.statistics.feature_means import FeatureMeans
from tgpfast.statistics.mergeable_sums import merge_provenance


def make(seed=0, n=3.0):
    features = tgp.Features.draw(4, 1.0, np.eye(2), seed=seed)
    return FeatureMeans(features, n, int(n), n, np.arange(4.0), provenance={"threads": int(n)})


def test_sums_of_the_same_features_add_and_subtract():
    total = make() + make(n=2.0)
    assert (total.n, total.n_rows, total.sum_w2) == (5.0, 5, 5.0)
    assert total.provenance == {"threads": [2, 3]}
    np.testing.assert_array_equal(total.sum_phi, 2.0 * np.arange(4.0))
    np.testing.assert_array_equal((total - make()).sum_phi, np.arange(4.0))
    assert sum([make(), make()]).n == 6.0
    assert not total.sum_phi.flags.writeable


def test_sums_of_other_features_and_kinds_are_refused():
    with pytest.raises(ValueError, match="cannot be added: their features differ"):
        make() + make(seed=1)
    with pytest.raises(ValueError, match="cannot be subtracted from those of 2"):
        make(n=2.0) - make()
    with pytest.raises(TypeError):
        make() + 1.0


def test_weights_are_multiplied():
    twice = make().times(2.0)
    assert (twice.n, twice.n_rows, twice.sum_w2) == (6.0, 3, 12.0)
    np.testing.assert_array_equal((0.5 * twice).sum_phi, np.arange(4.0))
    with pytest.raises(ValueError, match="decay"):
        twice.decay(1.5)


def test_provenance_stays_short():
    """Of many numbers the least, the least that is not zero and the greatest are kept."""
    facts = {"tolerance": 0.0}
    for k in range(1, 50):
        facts = merge_provenance(facts, {"tolerance": k / 10})
    assert facts == {"tolerance": [0.0, 0.1, 4.9]}
