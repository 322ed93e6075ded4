"""`Settings`: what `fit` is asked for, checked once; and, with every choice made, what it did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..bases.base import Base
from ..data.jitter import Jitter
from ..data.missing_rows import MISSING_ROWS
from ..features.spectral_density import KERNELS, SMOOTH_KERNELS
from ..kernels.thread_choice import Threads
from ..runtime.records import record
from ..runtime.warnings import FallbackWarning, warn
from ..selection.candidates import LEAST_PILOT_ROWS, SEARCHED_AS, SearchSpace
from ..selection.effort import EFFORTS
from ..solvers.problem_checks import check_kernel
from ..solvers.solver import METHODS, SOLVERS, check_solver
from ..statistics.pass_options import ENGINES, PRECISIONS
from ..validation import as_seed, check_choice, check_flag, positive, whole

SCALES = ("auto", "standardize", "gaussianize", "center", "none")
STANDARD_SCALES = ("auto", "standardize", "gaussianize")  # columns of mean 0 and variance 1
FREQUENCIES = ("auto", "data", "identity", "precision")
BASES = ("auto", "empirical", "scaled", "learned", "mixture", "student")
EM_BASES = ("mixture", "student")  # bases that expectation maximization fits to a sample
GRAM_BASES = ("scaled", "learned")  # bases that are made from the full statistics
FEATURE_KINDS = ("auto", "random", "lattice")
WORDS = {  # setting -> the words it takes
    "method": ("auto", *METHODS), "scale": SCALES, "features": FEATURE_KINDS, "engine": ENGINES,
    "precision": PRECISIONS, "effort": EFFORTS, "kernel": ("auto", *KERNELS),
    "missing": MISSING_ROWS,
}  # fmt: skip
MOST_NOISE_LEVELS = 1_000  # each level adds a rank-k update to the pass over the rows

# What "auto" stands for where candidates cannot be compared: few rows, or rows read only once.
FALLBACK: dict[str, Any] = {
    "method": "fd", "n_features": 1000, "lam": 10.0, "gamma": "scott", "eta": "1/gamma2",
    "base": "empirical", "frequency_covariance": "data", "kernel": "gaussian",
    "interactions": None,
}  # fmt: skip
# The settings of the paper's experiments.
PAPER: dict[str, Any] = {
    "method": "fd", "n_features": 1000, "lam": 0.1, "gamma": "scott", "eta": "1/gamma2",
    "sigma_max": "paper", "n_noise_levels": 10, "scale": "center", "base": "empirical",
    "frequency_covariance": "data", "features": "random", "kernel": "gaussian",
    "interactions": None,
}  # fmt: skip


@record(kw_only=True)
class Settings:
    """The options of one `fit`; see there for their meaning.

    A setting that is "auto" is open: `choose` returns the same settings with a value in its place.
    """

    method: str = "auto"
    n_features: Any = "auto"
    lam: Any = "auto"
    gamma: Any = "auto"
    eta: Any = "auto"
    sigma_max: Any = "paper"
    n_noise_levels: int = 10
    scale: str = "auto"
    frequency_covariance: Any = "auto"
    base: Any = "auto"
    normalize_weights: bool = True
    engine: str = "auto"
    precision: str = "auto"
    backend: str = "auto"
    n_threads: int | None = None
    solver: str = "auto"
    features: str = "auto"
    kernel: str = "auto"
    support: Any = None
    period: Any = None
    one_standard_error: bool = False
    seed: int = 0
    progress: bool = False
    effort: str = "balanced"
    interactions: Any = "auto"
    missing: str = "error"
    discrete: Any = None

    @classmethod
    def from_options(cls, **options: Any) -> Settings:
        """Check the options of a `fit`.

        Parameters
        ----------
        **options : Any
            Values of the fields; those left out keep their defaults.

        Returns
        -------
        Settings
            Numbers as int and float, the seed as the integer that is used.

        Raises
        ------
        ValueError, TypeError
            If an option is wrong whatever the data are. The message names the option.
        """
        asked = cls(**options)
        _check_words(asked)
        n_noise_levels = whole("n_noise_levels", asked.n_noise_levels)
        if n_noise_levels > MOST_NOISE_LEVELS:
            raise ValueError(
                f"n_noise_levels={n_noise_levels}: expected at most {MOST_NOISE_LEVELS}; the "
                "paper has 10"
            )
        return replace(
            asked,
            n_features=_check_number("n_features", asked.n_features, "auto", check=whole),
            lam=_check_number("lam", asked.lam, "auto"),
            gamma=_check_number("gamma", asked.gamma, "auto", "scott"),
            eta=_check_number("eta", asked.eta, "auto", "1/gamma2"),
            n_noise_levels=n_noise_levels,
            seed=as_seed(asked.seed),
            normalize_weights=check_flag("normalize_weights", asked.normalize_weights),
            one_standard_error=check_flag("one_standard_error", asked.one_standard_error),
            progress=check_flag("progress", asked.progress),
        )

    @property
    def auto(self) -> frozenset[str]:
        """Names of the open settings."""
        return frozenset(name for name in FALLBACK if _is_word(getattr(self, name), "auto"))

    @property
    def compared(self) -> frozenset[str]:
        """Names of the open settings for which candidates are compared; eta is FVPD's alone."""
        unused = {"n_features", "kernel", "interactions"}  # compared only beside others
        if self.method not in ("auto", "fvpd"):
            unused.add("eta")
        return self.auto - unused

    def warn_of_few_rows(self, n_distinct: int) -> None:
        """Warn that too few rows differ to compare settings, where lambda is open."""
        if "lam" in self.auto:
            warn(
                f"only {n_distinct} rows differ. Held-out rows choose the settings from "
                f"{LEAST_PILOT_ROWS} different rows on. This density is its base alone, or has "
                "default settings that were not compared. Give more rows, or choose lam yourself",
                FallbackWarning,
            )

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that candidates have: the given one, else those that the solver serves."""
        if self.method != "auto":
            return (SEARCHED_AS.get(self.method, self.method),)
        smooth = self.kernel in ("auto", *SMOOTH_KERNELS)
        return tuple(
            m for m in SearchSpace.methods
            if self.solver in ("auto", *SOLVERS[m]) and (smooth or m == "map")
        )  # fmt: skip

    @property
    def needs_sample(self) -> bool:
        """Whether a sample of the rows decides on some setting."""
        sampled = isinstance(self.base, str) and self.base in (*EM_BASES, "scaled")
        return bool(self.compared) or sampled or self.needs_lattice or self.scale == "gaussianize"

    @property
    def needs_lattice(self) -> bool:
        """Whether only a lattice can do what is asked."""
        return self.features == "lattice" or self.has_support or self.has_period

    @property
    def has_support(self) -> bool:
        """Whether walls are given."""
        return _is_given(self.support)

    @property
    def has_period(self) -> bool:
        """Whether periods are given."""
        return _is_given(self.period)

    @property
    def random_feature_options(self) -> list[str]:
        """Options that are given and concern random features alone."""
        names = {"n_features", "frequency_covariance", "interactions"} - self.auto
        if self.method != "fvpd":
            names |= {"eta"} - self.auto
        names |= {
            name for name in ("engine", "precision", "solver") if getattr(self, name) != "auto"
        }
        if _is_word(self.gamma, "scott"):
            names.add("gamma")
        if _is_word(self.base, *GRAM_BASES):
            names.add("base")
        return sorted(names | ({"one_standard_error"} if self.one_standard_error else set()))

    @property
    def suits_lattice(self) -> bool:
        """Whether nothing is asked that concerns random features alone."""
        return (
            self.method in ("auto", "map") and not self.random_feature_options
            and bool(self.compared) and self.scale in STANDARD_SCALES
        )  # fmt: skip

    @property
    def jitter(self) -> Jitter | None:
        """Noise on discrete columns; None where there are none."""
        return Jitter.of(self.discrete, self.seed)

    @property
    def threads(self) -> Threads:
        """Backend and number of threads."""
        return Threads(self.backend, self.n_threads)

    def with_fallbacks(self) -> Settings:
        """The same settings, open ones replaced by those that suit most data."""
        values = {name: FALLBACK[name] for name in self.auto}
        if "method" in values:
            values["method"] = self.methods[0]
        return replace(self, **values)

    def with_answers(self, **answers: Any) -> Settings:
        """The same settings; open ones take their values from the answers."""
        return replace(
            self.with_fallbacks(), **{k: v for k, v in answers.items() if k in self.auto}
        )


def _is_given(domain: Any) -> bool:
    """Whether walls or periods are given; the type is checked where columns are known."""
    return domain is not None and not (isinstance(domain, dict) and not domain)


def _is_word(value: Any, *words: str) -> bool:
    """Whether a value, which may be an array, is one of the words."""
    return isinstance(value, str) and value in words


def _check_number(name: str, value: Any, *words: str, check: Any = None) -> Any:
    """A setting that is one of the words as it is; any other must be a positive number, or pass the
    check."""
    if _is_word(value, *words):
        return value
    return positive(name, value, *words) if check is None else check(name, value)


def _check_words(asked: Settings) -> None:
    """ValueError for a word that is not known."""
    for name, words in WORDS.items():
        check_choice(name, getattr(asked, name), words)
    if asked.method not in ("auto", "map") and asked.kernel != "auto":
        check_kernel(asked.kernel, asked.method)
    if asked.method == "ncfd" and asked.has_support:
        raise ValueError(
            'method="ncfd" takes no support: its noise would move rows across the walls; use '
            '"map" or "fd"'
        )
    if asked.method == "ncfd" and asked.has_period:
        raise ValueError(
            'method="ncfd" takes no period: its noise would move rows out of the period; use '
            '"map" or "fd"'
        )
    if asked.interactions is not None and not _is_word(asked.interactions, "auto"):
        whole("interactions", asked.interactions)
    if asked.method == "auto":
        known = dict.fromkeys(name for names in SOLVERS.values() for name in names)
        check_choice("solver", asked.solver, ("auto", *known))
    else:
        check_solver(asked.solver, asked.method)
    if not isinstance(asked.base, Base) and not _is_word(asked.base, *BASES):
        raise ValueError(
            f"base={asked.base!r}: expected a GaussianBase, another base or one of "
            f"{', '.join(map(repr, BASES))}"
        )
    kind = asked.frequency_covariance
    if isinstance(kind, str) and kind not in FREQUENCIES:
        raise ValueError(
            f"frequency_covariance={kind!r}: expected a (d, d) array or one of "
            f"{', '.join(map(repr, FREQUENCIES))}"
        )
