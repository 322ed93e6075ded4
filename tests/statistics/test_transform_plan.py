"""Plans of transforms: boxes and grids within a budget."""

import numpy as np
import pytest

from tgpfast.statistics import transform_plan


@pytest.mark.parametrize("d", [1, 2, 3])
def test_plans_fit_their_budget(d):
    """Whatever is planned fits; None where nothing does; a larger budget is hardly slower."""
    y = np.random.default_rng(1).standard_cauchy((2000, d))
    reach, seconds = np.full(d, 5.0), []
    for budget in (10, 10**5, 10**6, 10**7, 10**9):
        plan = transform_plan.plan_transform(y, reach, 1000, 1e-5, 1e-9, budget)
        if plan is None:
            assert not seconds
            continue
        assert plan.grid_bytes <= budget
        assert (plan.low < plan.high).all()
        assert plan.inside(y).all() == plan.whole
        inner, fft = transform_plan.grid_nodes(plan.half, reach, 1e-9)
        assert plan.grid_bytes == int(16 * (inner + fft))
        seconds.append(plan.seconds)
    assert seconds
    # a larger grid may leave no point outside, which may cost a little
    assert np.all(np.array(seconds[1:]) <= transform_plan.FREE_GRID * np.array(seconds[:-1]))
