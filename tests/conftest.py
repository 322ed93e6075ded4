"""What every test file shares: the backend as a fixture, and a Hypothesis that repeats itself."""

import importlib
import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

BACKENDS = ("numpy", "numba", "cython")


def load_backend(name):
    """The kernel module of this name; a missing one skips, or fails where it is required.

    TGPFAST_REQUIRE_BACKENDS, names separated by commas, says which must be there: in CI, so that a
    backend cannot drop out of the tests unnoticed.
    """
    try:
        return importlib.import_module(f"tgpfast.kernels._{name}")
    except ImportError as error:
        required = os.environ.get("TGPFAST_REQUIRE_BACKENDS", "")
        if name in (word.strip() for word in required.split(",")):
            pytest.fail(
                f"backend {name!r} is required by TGPFAST_REQUIRE_BACKENDS={required!r} "
                f"but does not import: {error}"
            )
        pytest.skip(f"backend {name!r} does not import: {error}")


@pytest.fixture(scope="session", params=BACKENDS)
def kernels(request):
    """One of the kernel modules; ``parametrize("kernels", [...], indirect=True)`` picks some."""
    return load_backend(request.param)
