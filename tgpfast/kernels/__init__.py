"""Which backend runs, on how many threads, with BLAS held to one.

A backend is a module of this folder: ``_numba``, ``_cython``, ``_numpy``, with the same function
names, signatures and results. ``_numpy`` says in its docstrings what each kernel computes.
"""

import contextlib
import ctypes
import importlib
import os
import threading
import warnings

from numpy.linalg import _umath_linalg
from scipy.linalg import cython_blas  # on import, so that the first call does not wait for it

BACKENDS = ("numba", "cython", "numpy")  # in the order in which "auto" tries them
ROW_TILE = 256  # rows of a feature block in lanes; fixes the shape of the caller's buffers

_REMEDY = {
    "numba": 'install it with: pip install "numba>=0.60", and leave NUMBA_DISABLE_JIT unset',
    "cython": "it is compiled on installation: install a C compiler, then reinstall tgpfast",
    "numpy": "reinstall numpy",
}
_loaded = {}


def load(backend="auto"):
    """The module of a backend; ``auto`` is TGPFAST_BACKEND if set, else the first that imports.

    Raises ValueError for an unknown name, ImportError with the remedy for one that is missing.
    """
    name, origin = backend, "backend"
    if backend == "auto":
        name, origin = os.environ.get("TGPFAST_BACKEND") or "auto", "TGPFAST_BACKEND"
    if name == "auto":
        for candidate in BACKENDS:
            with contextlib.suppress(ImportError):
                return _import(candidate)
    if name not in BACKENDS:
        choices = ", ".join(repr(b) for b in ("auto", *BACKENDS))
        raise ValueError(f"{origin}={name!r} is not a backend; expected one of {choices}")
    try:
        return _import(name)
    except ImportError as error:
        raise ImportError(
            f"{origin}={name!r} was asked for but cannot be imported ({error}); {_REMEDY[name]}, "
            "or use backend='auto'"
        ) from error


def _import(name):
    if name not in _loaded:
        if name == "numba":
            import numba

            if numba.config.DISABLE_JIT:
                raise ImportError("NUMBA_DISABLE_JIT is set: its kernels need the compiler")
        _loaded[name] = importlib.import_module(f"tgpfast.kernels._{name}")
    return _loaded[name]


def available():
    """Names of the backends that import here, in the order in which "auto" tries them."""
    names = []
    for name in BACKENDS:
        with contextlib.suppress(ImportError):
            names.append(_import(name).NAME)
    return names


def missing():
    """Why each backend that does not import here does not: name -> reason."""
    reasons = {}
    for name in BACKENDS:
        try:
            _import(name)
        except ImportError as error:
            reasons[name] = str(error)
    return reasons


def resolve_threads(kernels, n_threads=None):
    """The thread count to use: all the backend has, or n_threads clamped to that.

    Raises ValueError unless n_threads is None or a positive integer.
    """
    limit = kernels.max_threads()
    if n_threads is None:
        return limit
    if isinstance(n_threads, bool) or not hasattr(n_threads, "__index__") or n_threads < 1:
        raise ValueError(f"n_threads={n_threads!r}: expected None or an integer of at least 1")
    return min(int(n_threads), limit)


@contextlib.contextmanager
def threads(kernels, n_threads):
    """Run the block with n_threads for the backend's loops and one for every BLAS.

    BLAS runs inside our parallel loops; with threads of its own as well it was measured 4.7 times
    slower. Both settings are put back on leaving, also when nested or entered from several threads.
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

_pool_owner = None  # the process that has started an OpenMP pool through us


def _refuse_forked_pool(kernels):
    """An OpenMP pool does not survive fork(): the child would hang or be killed. Say so instead."""
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

# (setter, getter) under the names by which the libraries export them
_BLAS_SYMBOLS = [
    (f"{prefix}openblas_set_num_threads{suffix}", f"{prefix}openblas_get_num_threads{suffix}")
    for prefix in ("scipy_", "")
    for suffix in ("", "64_", "_64", "_64_")
] + [
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
]


class _BlasHold:
    """Context manager that holds the BLAS libraries of numpy and scipy to one thread.

    Thread counts are a setting of the process: the first to enter saves and sets them, the last to
    leave restores them.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._depth = 0
        self._controls = None
        self._saved = []

    def controls(self):
        """(set, get) of every BLAS that numpy and scipy are linked with, found once.

        A symbol asked of an extension module is looked up in the libraries it was linked with.
        """
        if self._controls is None:
            found = {}
            for module in (cython_blas, _umath_linalg):
                library = ctypes.CDLL(module.__file__)
                for setter, getter in _BLAS_SYMBOLS:
                    try:
                        set_threads, get_threads = library[setter], library[getter]
                    except AttributeError:
                        continue
                    address = ctypes.cast(set_threads, ctypes.c_void_p).value
                    found[address] = (set_threads, get_threads)
                    break
                else:
                    warnings.warn(
                        f"the BLAS of {module.__name__.split('.')[0]} has no thread control that "
                        "tgpfast knows; if it runs threads of its own, results may differ in the "
                        "last bits between thread counts and passes be slow: set OMP_NUM_THREADS=1",
                        RuntimeWarning,
                        stacklevel=5,
                    )
            self._controls = list(found.values())
        return self._controls

    def __enter__(self):
        with self._lock:
            if self._depth == 0:
                self._saved = [(set_threads, get()) for set_threads, get in self.controls()]
                for set_threads, _ in self._saved:
                    set_threads(1)
            self._depth += 1

    def __exit__(self, *exception):
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                for set_threads, count in self._saved:
                    set_threads(count)


_BLAS = _BlasHold()
