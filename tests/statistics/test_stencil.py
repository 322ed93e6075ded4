"""The stencil that gives the derivative of a Fourier sum."""

import numpy as np
import pytest

from tgpfast.statistics.stencil import derivative_stencil


@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-9, 1e-12, 1e-14])
def test_the_stencil_is_a_derivative(eps):
    """sum_j c_j e^{i o_j y} = i y on the whole band; it does not magnify errors."""
    offsets, c = derivative_stencil(eps)
    half = len(c) // 2
    assert np.array_equal(c[:half], -c[half:])
    assert np.array_equal(offsets[:half], -offsets[half:])
    assert np.abs(c).sum() < 2.5
    y = np.linspace(-1.0, 1.0, 2001)
    assert np.abs(np.exp(1j * np.outer(y, offsets)) @ c - 1j * y).max() < max(eps, 1e-13)
    beyond = np.linspace(1.6, 1.9, 10)  # control: there is a band
    assert np.abs(np.exp(1j * np.outer(beyond, offsets)) @ c - 1j * beyond).max() > 0.1
