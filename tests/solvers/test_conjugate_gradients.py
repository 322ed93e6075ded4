"""Conjugate gradients on operators: any shape, complex numbers, preconditioners, and their ends."""

import numpy as np
import pytest

from tgpfast.solvers.conjugate_gradients import conjugate_gradients


def problem(shape=(30,), seed=3):
    """(product, b, solution, diagonal) of a complex system."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((30, 40)) + 1j * rng.standard_normal((30, 40))
    matrix = half @ half.conj().T + np.eye(30)
    b = (rng.standard_normal(30) + 1j * rng.standard_normal(30)).reshape(shape)
    want = np.linalg.solve(matrix, b.ravel()).reshape(shape)
    diagonal = matrix.diagonal().real.reshape(shape)
    return lambda v: (matrix @ v.ravel()).reshape(shape), b, want, diagonal


@pytest.mark.parametrize("shape", [(30,), (5, 6)])
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("is_rough", [False, True])
def test_any_positive_operator_is_solved(shape, preconditioned, is_rough):
    product, b, want, diagonal = problem(shape)
    found = conjugate_gradients(
        product, b, tolerance=1e-13, max_steps=200, is_rough=is_rough,
        precondition=(lambda r: r / diagonal) if preconditioned else None,
    )  # fmt: skip
    np.testing.assert_allclose(found.x, want, rtol=0, atol=1e-11)
    assert found.residual <= 1e-13
    true = np.linalg.norm(product(found.x) - b) / np.linalg.norm(b)
    assert found.residual == pytest.approx(true, abs=1e-14)
    assert found.steps <= 60


def test_a_tolerance_ends_the_iteration():
    product, b, _, _ = problem()
    rough = conjugate_gradients(product, b, tolerance=0.1, max_steps=200)
    assert np.linalg.norm(product(rough.x) - b) <= 0.1 * np.linalg.norm(b)
    assert rough.steps < conjugate_gradients(product, b, tolerance=1e-12, max_steps=200).steps


def test_a_start_saves_steps_and_stays_as_it_is():
    product, b, want, _ = problem()
    start = want.copy()
    found = conjugate_gradients(product, b, tolerance=1e-10, max_steps=200, start=start)
    assert found.steps == 0
    np.testing.assert_array_equal(start, want)


def test_zero_is_solved_by_zero():
    found = conjugate_gradients(np.copy, np.zeros(4), tolerance=1e-12, max_steps=9)
    assert (found.x.any(), found.steps, found.residual) == (False, 0, 0.0)


def test_an_operator_that_is_not_positive_ends_the_iteration():
    """With the best iterate, not with nan."""
    found = conjugate_gradients(np.negative, np.ones(4), tolerance=1e-12, max_steps=9)
    assert (found.steps, found.residual) == (1, 1.0)
    assert not found.x.any()


def test_the_best_iterate_is_kept():
    """The residual of an iterate may rise, that of the result may not."""
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.standard_normal((40, 40)))
    matrix, b = (q * np.logspace(0, 4, 40)) @ q.T, rng.standard_normal(40)
    residuals = [
        conjugate_gradients(matrix.dot, b, tolerance=1e-14, max_steps=n).residual
        for n in range(1, 40)
    ]
    assert np.all(np.diff(residuals) <= 1e-12)
