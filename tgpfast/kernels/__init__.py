"""Compiled kernels: which backend runs, on how many threads, with BLAS held to one.

A backend is a module of this folder: ``_numba``, ``_cython`` or ``_numpy``. All have the same
function names, signatures and results. ``_numpy`` documents what each kernel computes.
"""

import contextlib
import functools
import importlib
import os
import threading

import numpy as np
import scipy.linalg  # noqa: F401  loads the BLAS of scipy, whose threads are held below

from ..runtime.warnings import FallbackWarning, warn
from ..validation import check_choice, whole
from .compiled_marker import find_marker

BACKENDS = ("numba", "cython", "numpy")
ROW_TILE = 256  # rows of a feature block in lanes; fixes the shape of the caller's buffers
WINDOW_NODES = 8  # nodes of a lattice that contribute to a value, along each axis
WINDOW_DEGREE = 9  # of the window's polynomials between nodes

_REMEDY = {
    "numba": 'install it with: pip install "numba>=0.60", and leave NUMBA_DISABLE_JIT unset',
    "cython": "it is compiled on installation: install a C compiler, then reinstall tgpfast",
    "numpy": "reinstall numpy",
}


def load(backend="auto"):
    """Return the module of a backend.

    Parameters
    ----------
    backend : {"auto", "numba", "cython", "numpy"}, default "auto"
        "auto" is the environment variable TGPFAST_BACKEND if it is set, else the first backend of
        `preference` that imports.

    Raises
    ------
    ValueError
        If the name is unknown.
    ImportError
        If the backend cannot be imported; the message says how to get it.
    """
    name, origin = backend, "backend"
    if backend == "auto":
        name, origin = os.environ.get("TGPFAST_BACKEND") or "auto", "TGPFAST_BACKEND"
    if check_choice(origin, name, ("auto", *BACKENDS)) == "auto":
        for candidate in preference():
            with contextlib.suppress(ImportError):
                return _import(candidate)
    try:
        return _import(name)
    except ImportError as error:
        raise ImportError(
            f"{origin}={name!r} was asked for but cannot be imported ({error}); {_REMEDY[name]}, "
            "or use backend='auto'"
        ) from error


@functools.cache
def preference():
    """Return the names of the backends in the order that "auto" tries.

    Numba is the first after ``tgpfast warmup`` has compiled it for this version and processor. Else
    Cython is, so that nobody waits for a compiler. Looked up once for each process.
    """
    return BACKENDS if find_marker() is not None else ("cython", "numba", "numpy")


@functools.cache
def _import(name):
    """Return the module of a backend; ImportError where it cannot be used."""
    if name == "numba":
        import numba

        if numba.config.DISABLE_JIT:
            raise ImportError("NUMBA_DISABLE_JIT is set: its kernels need the compiler")
    with _passive_waiting():
        return importlib.import_module(f"tgpfast.kernels._{name}")


@contextlib.contextmanager
def _passive_waiting():
    """Let OpenMP, which reads its settings when it is loaded, wait without spinning.

    Threads that spin between our short parallel loops take cores from everything else. Settings of
    the user stay.
    """
    if any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")):
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    try:
        yield
    finally:
        del os.environ["OMP_WAIT_POLICY"]


def available():
    """Return the names of the backends that import here, in the order that "auto" tries."""
    reasons = missing()
    return [name for name in preference() if name not in reasons]


def missing():
    """Return the reason for each backend that does not import here, by name."""
    reasons = {}
    for name in BACKENDS:
        try:
            _import(name)
        except ImportError as error:
            reasons[name] = str(error)
    return reasons


def resolve_threads(kernels, n_threads=None):
    """Return the number of threads to use.

    Parameters
    ----------
    kernels : module
        A backend.
    n_threads : int or None, default None
        None: all that the backend has, which is also the most.

    Raises
    ------
    ValueError
        Unless n_threads is None or a positive integer.
    """
    limit = kernels.max_threads()
    return limit if n_threads is None else min(whole("n_threads", n_threads), limit)


def read_only(array):
    """A contiguous view that may not be written to.

    Numba compiles a kernel again for each mix of arguments that may and may not be written to; with
    every input read-only there is one.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@contextlib.contextmanager
def threads(kernels, n_threads):
    """Run a block with n_threads for the loops of a backend, and one thread for every BLAS.

    BLAS runs inside our parallel loops. With threads of its own as well, a pass was 4.7 times
    slower. Both settings are restored on leaving, also when nested or entered from several threads.
    """
    _refuse_forked_pool(kernels)
    with _BLAS:
        if kernels.NAME != "numba":
            yield
            return
        import numba

        before = numba.get_num_threads()
        numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            numba.set_num_threads(before)


# -- fork ---------------------------------------------------------------------------------------

_pool_owner = None  # id of the process whose OpenMP pool we have started


def _refuse_forked_pool(kernels):
    """Raise RuntimeError in a forked child, where the OpenMP pool of its parent would hang."""
    global _pool_owner
    if kernels.NAME == "numpy":
        return
    if _pool_owner is None:
        _pool_owner = os.getpid()
    elif _pool_owner != os.getpid():
        raise RuntimeError(
            f"backend={kernels.NAME!r} has run in the parent of this forked process, and its "
            "threads do not survive a fork. Start workers with "
            "multiprocessing.get_context('spawn'), or use backend='numpy' in them"
        )


# -- BLAS thread counts -------------------------------------------------------------------------


class _BlasHold:
    """Context manager that holds every BLAS to one thread.

    Thread counts are a setting of the process: the first thread to enter saves and sets them, the
    last one to leave restores them. Entering costs about 10 microseconds, and none when nested.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._depth = 0
        self._limit = None

    def __enter__(self):
        with self._lock:
            if self._depth == 0:
                _release_blas()
                self._limit = _find_blas().limit(limits=1)
            self._depth += 1

    def __exit__(self, *exception):
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                _release_blas()
                self._limit.restore_original_limits()
                _release_blas()


@functools.cache
def _find_blas():
    """Return the threadpoolctl controller of the BLAS libraries that are loaded; warn if none is
    known."""
    import threadpoolctl  # here, so that importing tgpfast does not import it

    found = threadpoolctl.ThreadpoolController().select(user_api="blas")
    if not found.lib_controllers:
        warn(
            "threadpoolctl knows no thread control of the BLAS in use; if it runs threads of its "
            "own, results may differ in the last bits between thread counts, and passes may be "
            "slow: set OMP_NUM_THREADS=1",
            FallbackWarning,
        )
    return found


def _release_blas():
    """Let any thread set the counts: from threadpoolctl 3.8 on, only the first one to do so may."""
    for library in _find_blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


_BLAS = _BlasHold()
