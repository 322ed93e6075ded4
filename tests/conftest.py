"""What every test file shares: the backend as a fixture, and a Hypothesis that repeats itself."""

import dataclasses
import importlib
import json
import os

import numpy as np
import pytest
from hypothesis import settings

import tgpfast as tgp
from tgpfast.statistics import costs

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

BACKENDS = ("numpy", "numba", "cython")
FIXED = {  # settings that are otherwise chosen from the data, which takes its time
    "method": "fd", "lam": 10.0, "gamma": "scott", "eta": "1/gamma2", "base": "empirical",
    "frequency_covariance": "data",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests of the Numba backend slow: it compiles for seconds at first use."""
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(isinstance(value, str) and value == "numba" for value in values):
            item.add_marker(pytest.mark.slow)


def slow(*values):
    """Values of parameters with which a test takes seconds; left out by -m "not slow"."""
    return pytest.param(*values, marks=pytest.mark.slow)


def fixed_fit(X, **settings):
    """``fit`` with FIXED where the caller says nothing."""
    return tgp.fit(X, **(FIXED | settings))


def clustered_rows(d, n=200, seed=0):
    """Two clusters, one of them narrow, with correlated columns."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    x[: n // 3] = 0.3 * x[: n // 3] + 2.0
    return x @ (np.eye(d) + 0.4 * np.tri(d, k=-1))


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


def set_costs(monkeypatch, **values):
    """Give the model of costs other seconds; those not named are as shipped."""
    monkeypatch.setattr(costs, "COSTS", dataclasses.replace(costs.Costs(), **values))


def doctored(path, changes):
    """Rewrite the members of a saved file: None drops one, header fields are changed in place.

    The checksum is dropped, as in the first files of tgpfast, so that the other checks are reached.
    """
    with np.load(path) as file:
        members = dict(file)
    header = json.loads(str(members["header"]))
    header.pop("checksum", None)
    for name, value in changes.items():
        if name.startswith("header."):
            header[name.removeprefix("header.")] = value
        elif value is None:
            del members[name]
        else:
            members[name] = value(members[name]) if callable(value) else value
    members["header"] = np.array(json.dumps(header))
    np.savez(path, **members)


def with_noise_bounds(bound, features, levels, n, error):
    """Bounds of statistics, with those of their noise levels: error is that of F/n; Delta has an
    exponent of d + 8 roundings of |z|^2 at most."""
    if len(levels):
        S, d = features.frequencies.shape
        scale = np.sum(1.0 / (features.bandwidth**2 + np.square(levels)))
        delta = (d + 8) * 2.0**-52 * (1 + np.square(features.frequencies).sum(axis=1).max())
        bound["noise_gram"] = 2 * n / S * scale * (error + delta)
        for name in ("sum_phi", "sum_dphi", "sum_dphi_x"):
            bound[f"noise_{name}"] = bound[name]
    return bound


def assert_statistics(stats, want, bound):
    """want : Statistics, or the oracle's dict."""
    for name, allowed in bound.items():
        value = want.get(name) if isinstance(want, dict) else getattr(want, name)
        got = getattr(stats, name)
        assert (got is None) == (value is None), name
        if got is None:
            continue
        assert np.shape(got) == np.shape(value), name
        error = np.abs(np.asarray(got) - value).max()
        assert error <= allowed, f"{name}: error {error:.3g} above {allowed:.3g}"
