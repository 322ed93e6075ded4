"""Backends by name, by environment and by what is installed; caches; imports; forks."""

import ast
import importlib.util
import multiprocessing
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl
from conftest import load_backend

import tgpfast as tgp
from tgpfast import cli, kernels
from tgpfast.bases.von_mises import VonMisesBase
from tgpfast.kernels import compiled_marker
from tgpfast.pipeline import warming
from tgpfast.statistics import wave_sums

FIRST_CALL = """
import numpy as np, tgpfast as tgp
x = np.random.default_rng(0).standard_normal((100, 2))
stats = tgp.accumulate(x, tgp.Features.draw(5, 1.0, np.eye(2)), backend={backend!r})
print(stats.provenance["backend"], repr(float(stats.gram.sum())))
"""


def run(code, expect=0, cwd=None, **environment):
    """Run code in a fresh Python with warnings as errors unless it says otherwise."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TGPFAST")} | environment
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True,
        check=False, cwd=cwd,
    )  # fmt: skip
    assert result.returncode == expect, result.stdout + result.stderr
    return result.stdout.strip(), result.stderr


OPTIONAL = ("numba", "llvmlite", "finufft", "matplotlib", "pandas", "polars", "dask", "sklearn",
            "torch", "threadpoolctl", "tqdm", "pyarrow")  # fmt: skip


# scipy.linalg is all of scipy that the import needs; the others take 5 to 200 ms to import
SLOW_TO_IMPORT = ("scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.optimize",
                  "scipy.sparse", "scipy.spatial", "scipy.special", "scipy.stats")  # fmt: skip
# our own modules that `fit` does not need
AT_FIRST_USE = (
    "bases.conditioning", "data.csv", "data.files", "data.labels", "data.npy",
    "density.answers.credible", "density.answers.expectations", "density.answers.local_modes",
    "density.answers.probabilities", "density.answers.regions", "density.columns.conditionals",
    "density.columns.discrete", "density.columns.explaining", "density.columns.information",
    "density.columns.marginals", "density.columns.missing_values", "density.draws.annealing",
    "density.draws.modes", "density.exponents.plane_waves", "density.grids.components",
    "density.grouped", "density.loading", "density.normalizing.lattice_quadrature",
    "density.normalizing.quadrature", "density.sampling", "density.saving", "evaluation",
    "pipeline.groups", "pipeline.updating", "pipeline.warming", "selection.wall_families",
    "solvers.grid_posterior", "solvers.lattice_score_matching", "solvers.learned_base",
    "solvers.maximum_posterior", "statistics.spectral", "statistics.spectrum",
)  # fmt: skip
# what a process has imported besides the names it prints first
IMPORTED = """
import importlib.util, sys, warnings
import numpy as np, tgpfast
def show(names):
    print([name for name in names if name in sys.modules])
"""


@pytest.mark.slow
def test_import_takes_no_numba_and_no_optional_package():
    show = f"show({OPTIONAL + SLOW_TO_IMPORT})"
    out, _ = run(f"{IMPORTED}\n{show}\nimport threadpoolctl, scipy.fft\n{show}")
    assert out.splitlines()[0] == "[]"
    assert set(ast.literal_eval(out.splitlines()[1])) >= {"scipy.fft", "threadpoolctl"}


@pytest.mark.slow
def test_import_takes_only_what_fit_needs():
    ours = tuple(f"tgpfast.{name}" for name in AT_FIRST_USE)
    used = ("tgpfast.pipeline.fitting", "tgpfast.density.density", "scipy.linalg")
    out, _ = run(f"{IMPORTED}\nshow({ours})\nshow({used})\n"
                 f"print([n for n in {ours} if importlib.util.find_spec(n) is None])\n"
                 f"tgpfast.evaluate\nshow({ours})")  # fmt: skip
    loaded, needed, unknown, of_evaluate = map(ast.literal_eval, out.splitlines())
    assert (loaded, needed, unknown) == ([], [*used], [])
    assert "tgpfast.evaluation" in of_evaluate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "more"), [((1_000, 1), []), ((1_000, 2), []), ((60, 6), ["scipy.special"])]
)
def test_the_first_fit_imports_nothing_slow(shape, more):
    """The first fit of a process takes hardly longer than the next: its modules are there."""
    out, _ = run(f"""{IMPORTED}
before = set(sys.modules)
X = np.random.default_rng(0).standard_normal({shape})
tgpfast.fit(X, n_threads=1)
show({SLOW_TO_IMPORT})
ours = (m for m in set(sys.modules) - before if m.startswith("tgpfast."))
print([m for m in ours if not m.startswith("tgpfast.kernels._")])  # a backend is loaded
""")
    assert out.splitlines() == [str(more), "[]"]


@pytest.mark.slow
def test_a_first_fit_of_few_rows_of_one_column_needs_no_transform_and_no_special_function():
    """Also where it ends with a tilt, whose mass needs the window of its lattice."""
    out, _ = run(f"""{IMPORTED}
rng = np.random.default_rng(0)
angles = rng.uniform(0.0, np.pi, (20_000, 1))
X = np.cos(angles) + 0.1 * rng.standard_normal(angles.shape)
model = tgpfast.fit(X[:1_000], n_threads=1)
print(bool(np.any(model.theta)))
show({("finufft", *SLOW_TO_IMPORT)})
tgpfast.fit(X, n_threads=1)
show(("finufft",))
""")
    assert out.splitlines()[:2] == ["True", "[]"]
    if wave_sums.has_finufft():
        assert out.splitlines()[2] == "['finufft']"


@pytest.mark.slow
def test_names_that_are_imported_at_first_use_are_there():
    """By `dir`, by `import *`, and by name."""
    out, _ = run("""
        import tgpfast
        assert set(tgpfast.__all__) <= set(dir(tgpfast))
        assert "evaluate" not in vars(tgpfast)
        from tgpfast import *
        assert evaluate is tgpfast.evaluate is vars(tgpfast)["evaluate"]
        assert evaluate.__module__ == "tgpfast.evaluation.evaluation"
        assert all(getattr(tgpfast, name) is not None for name in tgpfast.__all__)
        """)
    assert out == ""


@pytest.mark.slow
def test_load_knows_all_kinds_of_files_and_bases(tmp_path):
    """In a process that has only loaded: the modules of their classes are imported by `load`."""
    pytest.importorskip("finufft")  # a Spectrum needs it
    x = np.random.default_rng(0).standard_normal((60, 2))
    options = {"method": "fd", "lam": 10.0, "n_features": 5, "base": "empirical"}
    model = tgp.fit(x, **options)
    around = tgp.fit(x[:, :1], method="map", gamma=1.0, lam=9.0,
                     base=VonMisesBase(4.0, 1.0, 0.0, 9.0))  # fmt: skip
    saved = {
        "Density": model, "MarginalDensity": model.marginal([0]),
        "DiscreteDensity": tgp.fit(np.rint(3.0 * x[:, :1]), discrete=[0]),
        "GroupedDensity": tgp.fit_groups(x, np.arange(60) % 2, lam=10.0, n_features=5),
        "Statistics": model.statistics,
        "LatticeStatistics": tgp.fit(x, method="map", lam=10.0, gamma=1.0, base="empirical",
                                     features="lattice").statistics,
        "Spectrum": tgp.Spectrum.from_data(x, bandlimit=1.0),
    }  # fmt: skip
    for name, one in saved.items():
        one.save(tmp_path / f"{name}.npz")
    around.save(tmp_path / "around.npz")
    out, _ = run(f"""
        import tgpfast
        for name in {[*saved, "around"]}:
            print(type(tgpfast.load(f"{tmp_path}/{{name}}.npz")).__name__)
        """)
    assert out.split() == [*saved, "Density"]


@pytest.mark.slow
def test_submodules_are_imported_at_first_use():
    """Neither the import of the package nor that of its submodules takes matplotlib."""
    code = """
        import sys, tgpfast
        names = tgpfast._SUBMODULES
        assert set(names) <= set(dir(tgpfast)) and "fit" in dir(tgpfast)
        print([n for n in names if "tgpfast." + n in sys.modules])
        for name in names:
            if name not in ("dask", "sklearn"):  # these import optional packages
                assert getattr(tgpfast, name) is sys.modules["tgpfast." + name]
        assert callable(tgpfast.plot.selection) and callable(tgpfast.datasets.two_moons)
        print([m for m in ("matplotlib", "dask", "numba") if m in sys.modules])
        """
    out, _ = run(code)
    assert out.splitlines() == ["[]", "[]"]


@pytest.mark.slow
def test_names_that_do_not_exist_and_missing_packages_are_attribute_errors():
    """`hasattr` and `inspect.getmembers` go on; the message says what to install."""
    with pytest.raises(AttributeError, match="module 'tgpfast' has no attribute 'plots'"):
        tgp.plots  # noqa: B018
    out, _ = run("""
        import inspect, sys
        sys.modules["dask"] = None
        import tgpfast
        assert not hasattr(tgpfast, "dask")
        assert "plot" in dict(inspect.getmembers(tgpfast))
        try:
            tgpfast.dask
        except AttributeError as error:
            print(error)
        """)
    assert 'pip install "tgpfast[dask]"' in out


def test_public_names_exist_and_are_documented():
    for name in tgp.__all__:
        assert getattr(tgp, name).__doc__


@pytest.fixture
def marked(monkeypatch, tmp_path):
    """A folder of its own for the marker of compiled kernels."""
    monkeypatch.delenv("TGPFAST_BACKEND", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kernels.preference.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    kernels.preference.cache_clear()


def test_auto_takes_numba_only_once_it_is_compiled(marked, monkeypatch):
    """By ``tgpfast warmup``, for this version and processor; before that the order is another."""
    load_backend("numba")
    assert kernels.preference() == ("cython", "numba", "numpy")
    assert compiled_marker.find_marker() is None
    path = compiled_marker.write_marker()
    assert path.parent == marked
    kernels.preference.cache_clear()
    assert kernels.preference() == ("numba", "cython", "numpy")
    assert kernels.load().NAME == kernels.available()[0] == "numba"
    for name, value in {"__version__": "0.0", "_processor": lambda: "other"}.items():
        with monkeypatch.context() as patch:
            patch.setattr(compiled_marker, name, value)
            assert compiled_marker.find_marker() is None
    assert compiled_marker.find_marker() == path


def test_a_marker_that_cannot_be_written_is_no_error(marked, monkeypatch):
    (marked / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(marked / "file"))
    assert compiled_marker.write_marker() is None


def test_the_command_alone_marks(marked, monkeypatch, capsys):
    """Not the function, which any program may call on its way."""
    load_backend("numba")
    tgp.warmup("numpy")
    assert list(marked.iterdir()) == []
    monkeypatch.setattr(warming, "warmup", lambda backend: backend)
    assert cli.main(["warmup"]) == 0
    assert compiled_marker.find_marker() is not None
    assert 'backend="auto" now runs numba' in capsys.readouterr().out


def test_auto_takes_the_first_that_imports(marked, monkeypatch):
    assert kernels.available()[0] == kernels.load().NAME
    real = kernels._import

    def without(*missing):
        def broken(name):
            if name in missing:
                raise ImportError(f"no {name}")
            return real(name)

        return broken

    second = kernels.available()[1]
    monkeypatch.setattr(kernels, "_import", without(kernels.available()[0]))
    assert second == kernels.load().NAME
    monkeypatch.setattr(kernels, "_import", without("numba", "cython"))
    assert kernels.load().NAME == "numpy"


@pytest.mark.slow
def test_environment_variable_sets_auto_only(monkeypatch):
    monkeypatch.setenv("TGPFAST_BACKEND", "numpy")
    x, features = np.zeros((2, 1)), tgp.Features([[1.0]], [0.0], 1.0)
    assert tgp.accumulate(x, features).provenance["backend"] == "numpy"
    other = next(n for n in [*kernels.available()] if n != "numpy")
    assert tgp.accumulate(x, features, backend=other).provenance["backend"] == other
    monkeypatch.setenv("TGPFAST_BACKEND", "fortran")
    with pytest.raises(ValueError, match="TGPFAST_BACKEND='fortran'"):
        tgp.accumulate(x, features)
    monkeypatch.setenv("TGPFAST_BACKEND", "")
    assert tgp.accumulate(x, features).provenance["backend"] == kernels.available()[0]


@pytest.mark.parametrize("name", ["numba", "cython"])
def test_a_missing_backend_asked_for_by_name_says_how_to_get_it(monkeypatch, name):
    def broken(_):
        raise ImportError("not here")

    monkeypatch.setattr(kernels, "_import", broken)
    with pytest.raises(ImportError, match=f"{name}.*install"):
        kernels.load(name)


def test_available_backends_match_what_is_installed():
    """Negative control of the fallbacks: "available" reports imports that really work."""
    assert ("numba" in kernels.available()) == (importlib.util.find_spec("numba") is not None)
    built = importlib.util.find_spec("tgpfast.kernels._cython") is not None
    assert ("cython" in kernels.available()) == built


@pytest.mark.parametrize("name", ["numba", "cython", "numpy"])
def test_warmup_runs_every_kernel(name):
    load_backend(name)
    assert tgp.warmup(name) == name


# In a process of its own: what other tests have compiled must not count.
CALLS_OF_EVERY_KIND = """
import warnings
import numpy as np, tgpfast as tgp
from tgpfast.kernels import _numba

warnings.simplefilter("error")
names = [n for n, f in vars(_numba).items() if hasattr(f, "signatures") and n[0] != "_"]
count = lambda: [len(getattr(_numba, n).signatures) for n in names]
{warmup}
before = count()
rng = np.random.default_rng(0)
use = {{"backend": "numba"}}
for d, S in ((1, 3), (5, 300), (2, 1030)):
    features = tgp.Features.draw(S, 1.0, np.eye(d))
    x = rng.standard_normal((300, d))
    frozen = x.copy()
    frozen.setflags(write=False)
    for value in (x, frozen, x.astype(np.float32), np.asfortranarray(x), x[::-1], iter([x])):
        for precision in ("float64", "mixed"):
            tgp.accumulate(
                iter([x]) if hasattr(value, "__next__") else value, features,
                sample_weight=np.ones(300), noise_levels=(0.0, 1.0), precision=precision, **use,
            )
for d in (1, 4):
    x = rng.standard_normal((300, d))
    frozen = x.copy()
    frozen.setflags(write=False)
    weights = rng.uniform(0.5, 1.0, 300)
    kinds = (x, frozen, x.astype(np.float32), np.asfortranarray(x), x[::-1], x[:1])
    stats = tgp.accumulate(x, tgp.Features.draw(9, 2.0, np.eye(d)), noise_levels=(0.5,), **use)
    base = tgp.GaussianBase.from_data(x)
    fixed = dict(
        method="fd", lam=10.0, gamma="scott", base="empirical", frequency_covariance="data"
    )
    models = [
        tgp.solve(stats, base, method, lam=10.0, n_draws=512, **use)
        for method in ("fd", "ncfd", "fvpd", "map")
    ]
    for model in (*models, models[1].at_noise(0.5), tgp.fit(x, n_features=9, **fixed, **use)):
        for y in kinds:
            model.log_density(y, normalized=False)
            model.grad_log_density(y)
            model.laplacian_log_density(y)
        tgp.evaluate(model, x, 3, 9, 64, sample_weight=weights, **use)
        if d == 1:
            model.log_density(x)
            model.sample(5)
            model.marginal_cdf([1.0], [0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # two steps are too few
        tgp.solve(stats, base, "map", solver="gradient", n_steps=2, n_draws=64, **use)
        tgp.FourierKDE(stats, **use).log_density(x)
    mixture = tgp.MixtureBase.from_data(x, 2)
    for y in kinds:
        mixture.score(y)
    for w in (None, weights):
        kde = tgp.ExactKDE(frozen, sample_weight=w, **use)
        for y in kinds:
            kde.log_density(y)
        tgp.evaluate(kde, frozen, 3, 9, 64, **use)
print([n for n, a, b in zip(names, before, count()) if a != b])
"""


@pytest.mark.slow
def test_warmup_leaves_nothing_to_compile():
    """After warmup, calls of every shape and kind of input find their kernels compiled."""
    load_backend("numba")
    code = CALLS_OF_EVERY_KIND.format(warmup='tgp.warmup("numba")')
    out, _ = run(code, TGPFAST_BACKEND="numba")
    assert out == "[]"


@pytest.mark.slow
def test_calls_of_every_kind_need_every_kernel():
    """Negative control: without warmup the same calls find each of the ten not compiled."""
    load_backend("numba")
    out, _ = run(CALLS_OF_EVERY_KIND.format(warmup=""), TGPFAST_BACKEND="numba")
    assert len(out.split(",")) == 10


# -- Numba's cache --------------------------------------------------------------------------------


NUMBA_CALL = FIRST_CALL.format(backend="numba") + """
from tgpfast.kernels import _numba
stats = _numba.lane_rank_k.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
import hashlib
rows = np.random.default_rng(0).normal(size=(1900, 4))
f = tgp.Features.draw(24, 1.5, np.eye(4), 0)
sums = [tgp.accumulate(rows[i : i + 100], f, origin=rows[0], backend="numba", engine="direct",
                           precision="float64").sum_dphi.tobytes() for i in range(0, 1900, 100)]
print(hashlib.sha256(b"".join(sums)).hexdigest())
"""


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    """(folder that one process has filled, what that process printed)."""
    load_backend("numba")
    folder = tmp_path_factory.mktemp("numba-cache")
    out, _ = run(NUMBA_CALL, NUMBA_CACHE_DIR=str(folder))
    return folder, out.splitlines()


@pytest.mark.slow
def test_second_process_compiles_nothing(warm_cache):
    folder, first = warm_cache
    out, _ = run(NUMBA_CALL, NUMBA_CACHE_DIR=str(folder))
    assert first[1] == "0 1"
    assert out.splitlines()[:2] == [first[0], "1 0"]


@pytest.mark.slow
def test_compiled_and_cached_kernels_give_the_same_bits(warm_cache):
    """A helper that is called, not inlined, is another copy in a process that compiled it."""
    folder, first = warm_cache
    out, _ = run(NUMBA_CALL, NUMBA_CACHE_DIR=str(folder))
    assert out.splitlines()[2] == first[2]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"junk"])
def test_a_broken_cache_is_compiled_again_and_mended(warm_cache, tmp_path, damage):
    shutil.copytree(warm_cache[0], tmp_path, dirs_exist_ok=True)
    want, code = warm_cache[1][0], FIRST_CALL.format(backend="numba")
    damaged = 0
    for path in Path(tmp_path).rglob("*.nb[ic]"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if damage is None else damage)
        damaged += 1
    assert damaged
    got, err = run(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert got == want
    assert "FallbackWarning: Numba's cache" in err
    again, err = run("import warnings; warnings.simplefilter('error')\n" + code,
                     NUMBA_CACHE_DIR=str(tmp_path))  # fmt: skip
    assert again == want


def copied_package(folder):
    """The Python sources of the package, copied below a folder; returns its path there."""
    package, copy = Path(tgp.__file__).parent, folder / "tgpfast"
    for path in package.rglob("*.py"):
        target = copy / path.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return copy


@pytest.mark.slow
def test_a_stale_cache_is_not_used(tmp_path):
    """An edit of the kernels' source must reach the next process."""
    load_backend("numba")
    copy = copied_package(tmp_path)
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    code = FIRST_CALL.format(backend="numba") + "print(tgp.__file__)"
    before, _ = run(code, cwd=tmp_path, **environment)
    assert str(copy) in before, "the copy was not imported, so this test would test nothing"
    source = copy / "kernels" / "_numba.py"
    text = source.read_text()
    line = "value = -amplitude * sine[i]"
    assert text.count(line) == 1
    edited = text.replace(line, "value = -3 * amplitude * sine[i]")
    source.write_text(edited)
    after, _ = run(code, cwd=tmp_path, **environment)
    ratio = float(after.split()[1]) / float(before.split()[1])
    assert ratio == pytest.approx(9.0, rel=1e-12)


@pytest.mark.slow
def test_a_cache_folder_that_cannot_be_made_still_works(tmp_path):
    load_backend("numba")
    blocker = tmp_path / "file"
    blocker.write_text("a file where a folder is wanted")
    package = tmp_path / "site"
    copy = copied_package(package)
    # no __pycache__ can be made beside the source, and neither cache nor home is a folder
    (copy / "kernels" / "__pycache__").write_text("not a folder")
    out, _ = run(
        FIRST_CALL.format(backend="numba") + "print(tgp.__file__)", cwd=package,
        PYTHONPATH=str(package), PYTHONDONTWRITEBYTECODE="1", HOME=str(blocker),
        XDG_CACHE_HOME=str(blocker), NUMBA_CACHE_DIR="",
    )  # fmt: skip
    assert out.startswith("numba")
    assert str(copy) in out
    assert "nbi" not in "".join(p.name for p in package.rglob("*"))


# -- forks ----------------------------------------------------------------------------------------


def _child(backend, queue):
    try:
        features = tgp.Features.draw(5, 1.0, np.eye(2))
        queue.put(float(tgp.accumulate(np.ones((9, 2)), features, backend=backend).gram.sum()))
    except RuntimeError as error:
        queue.put(str(error))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("name", ["numba", "cython", "numpy"])
def test_a_forked_child_is_told_instead_of_killed(name):
    load_backend(name)
    tgp.accumulate(np.ones((9, 2)), tgp.Features.draw(5, 1.0, np.eye(2)), backend=name)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(name, queue))
    child.start()
    answer = queue.get(timeout=120)
    child.join()
    if name == "numpy":
        assert isinstance(answer, float)
    else:
        assert "spawn" in answer


@pytest.mark.slow
def test_numba_threads_variable_is_the_limit():
    load_backend("numba")
    out, _ = run(
        """
        import numpy as np, tgpfast as tgp
        stats = tgp.accumulate(np.ones((9, 2)), tgp.Features.draw(5, 1.0, np.eye(2)),
                               backend="numba", n_threads=8)
        print(stats.provenance["threads"])
        """,
        NUMBA_NUM_THREADS="1",
    )
    assert out == "1"


def test_blas_without_thread_control_warns_once(monkeypatch):
    monkeypatch.setattr(threadpoolctl.ThreadpoolController, "_load_libraries", lambda self: None)
    kernels._find_blas.cache_clear()
    module = kernels.load("numpy")
    try:
        hold = kernels.threads(module, 1)
        with pytest.warns(tgp.FallbackWarning, match="OMP_NUM_THREADS"), hold:
            pass
        with kernels.threads(module, 1):
            pass
    finally:
        kernels._find_blas.cache_clear()


def blas_counts():
    return [library["num_threads"] for library in threadpoolctl.threadpool_info()
            if library["user_api"] == "blas"]  # fmt: skip


def test_blas_is_held_until_the_last_thread_leaves():
    """Whichever thread entered first; afterwards any thread can set the counts again."""
    module, steps = kernels.load("numpy"), [threading.Event() for _ in range(3)]
    wait = 60.0

    def first():
        with kernels.threads(module, 1):
            steps[0].set()
            assert steps[1].wait(wait)
        steps[2].set()

    with threadpoolctl.threadpool_limits(2, user_api="blas"):  # as a user may do
        before = blas_counts()
        worker = threading.Thread(target=first)
        worker.start()
        assert steps[0].wait(wait)
        with kernels.threads(module, 1):
            with kernels.threads(module, 1):
                steps[1].set()
                assert steps[2].wait(wait)
            worker.join()
            assert set(blas_counts()) == {1}
        assert blas_counts() == before == [2] * len(before)
