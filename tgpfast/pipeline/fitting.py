"""`fit`: rows -> density. The whole pipeline on one screen; every choice it makes is recorded."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..bases.gaussian import Base, GaussianBase
from ..bases.mixture import MixtureBase
from ..data.blocks import Blocks, as_blocks
from ..data.column_checks import ColumnNote, check_columns, warn_columns
from ..data.row_sample import SAMPLE_ROWS
from ..data.scaling import (
    Moments,
    Scaling,
    check_full_rank,
    column_name,
    given_moments,
    moments_and_sample,
)
from ..density.density import Density
from ..features.random import Features, covariance_of_frequencies
from ..kernels.thread_choice import Threads
from ..runtime.warnings import DataWarning, PoorFitWarning, warn
from ..selection.candidates import (
    BASE_ALONE,
    ERRORS,
    FEW_ROWS,
    LAMS,
    LIKE,
    LOG2_DRAWS,
    Block,
    Fold,
    Question,
    Selection,
    dealt,
    distinct,
    scott,
    select,
    standard_error,
)
from ..selection.candidates import ROWS as PILOT_ROWS
from ..selection.refinement import NARROWER, SIZES, SecondLook, bandwidth_candidates
from ..selection.verification import WORSE_KS, Verification, Verifier
from ..solvers.learned_base import learn_base
from ..solvers.solver import METHODS, base_alone, solve
from ..statistics.accumulation import ENGINES, PRECISIONS, accumulate
from ..statistics.feature_sums import FeatureSums
from ..statistics.spectral import DIMENSIONS
from ..statistics.spectrum import Spectrum
from ..statistics.sums import MANY_ROWS, Sums
from ..validation import (
    LEAST_BANDWIDTH,
    MOST_BANDWIDTH,
    Array,
    as_floats,
    check_bandwidth,
    positive,
    whole,
)

SCALES = ("standardize", "center", "none")
FREQUENCIES = ("auto", "data", "identity", "precision")
BASES = ("auto", "empirical", "scaled", "learned", "mixture", "student")
BY_EM = ("mixture", "student")
NEED_GRAM = ("scaled", "learned")  # bases that are chosen from the statistics
SERVED_BY = {"mixture": ("fd", "fvpd", "map"), "student": ("fd", "map")}  # else all methods
METHODS_OF = {  # solver asked for -> methods that have it
    "cg": ("fd",), "cholesky": ("fd", "fvpd"), "newton": ("map",), "gradient": ("map",),
}  # fmt: skip
LAM_FACTORS = (1.0, 1e1, 1e2, 1e3)  # of lambda, tried until the model passes verification
RECONSIDERED = 2.0  # standard errors that a tilt must gain where the pilot took the base alone
MAP_DRAWS = 2**15  # behind MAP's expectations when settings are chosen from the data
LEAST_ROWS = 20  # with fewer rows settings are not chosen from the data
# what "auto" stands for where the data cannot be looked at beforehand
AUTO: dict[str, Any] = {
    "method": "fd", "n_features": 1000, "lam": 10.0, "gamma": "scott", "eta": "1/gamma2",
    "base": "empirical", "frequency_covariance": "data",
}  # fmt: skip
# the settings of the paper's experiments
PAPER: dict[str, Any] = {
    "method": "fd", "n_features": 1000, "lam": 0.1, "gamma": "scott", "eta": "1/gamma2",
    "sigma_max": "paper", "n_noise_levels": 10, "scale": "center", "base": "empirical",
    "frequency_covariance": "data",
}  # fmt: skip
BASE_SCALES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # of the covariance, tried by base="scaled"
TOLERANCE, LEAST_TOLERANCE = 1e-9, 1e-13  # of the spectral engine, and the tightest asked of it
LOG_TOLERANCE = 1e-4  # predicted change of a log density for which it is tightened
FIRST_ROWS = 1_000  # of such a stream, whose spread is taken for that of all
STREAM_ROWS, STREAM_REACH = 1e6, 5.0  # rows and largest |z| for which a stream's grid is made
SPREAD_DRAWS, MOST_SPREAD = 2**14, 4.0  # of base="learned": draws, and mean squares that pass
MOST_LEVELS = 1_000  # of n_noise_levels: the sums of each take a pass
HELD_OUT = 5  # base="scaled" holds out one row in so many


def fit(
    X: Any,
    *,
    method: str = "auto",
    n_features: Any = "auto",
    lam: Any = "auto",
    gamma: Any = "auto",
    eta: Any = "auto",
    sigma_max: Any = "paper",
    n_noise_levels: int = 10,
    scale: str = "standardize",
    frequency_covariance: Any = "auto",
    base: Any = "auto",
    sample_weight: Any = None,
    normalize_weights: bool = True,
    moments: Any = None,
    engine: str = "auto",
    precision: str = "auto",
    backend: str = "auto",
    n_threads: int | None = None,
    solver: str = "auto",
    one_standard_error: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Density:
    """Learn the density of the rows of X.

    Reads the data two or three times: for their moments and a random sample of at most 20,000
    rows; for the statistics; and once more where bandwidths are compared on all rows, or for the
    scores of a base that is not Gaussian. ``model.settings["n_passes"]`` is the number of passes.
    The same rows give the same sample whatever their source. What is "auto" is chosen from the
    sample: candidates are compared by the log-likelihood of rows held out, on a pilot of at most
    6,000 rows; the base alone is one of them, so that the result is not worse than it. With
    more than 3,000 rows a second look, in which all but few of them are learned from, settles
    bandwidth, number of features and lambda. ``model.selection`` lists what the pilot compared,
    ``model.settings["lam_tried"]`` what the second look did. Rows that can be read only once, and
    fewer than 20 that differ, get fixed settings instead: "fd", 1000 features, 10, "scott",
    "1/gamma2", "empirical", "data"; repeated rows count once in "scott", and lambda is 10 times as
    much as they are repeated. For an iterator of up to three columns, rows held out of a sample
    that is kept on the way may raise lambda or prefer the base alone.

    Where lambda is "auto", the model is verified before it is returned: the error of its mass, the
    share of its mass far from every row, and its samples against the columns of the rows. A model
    that fails is replaced by one with a larger lambda, by MAP, or by the base alone, whose
    ``method`` is "base". What still fails is a warning; ``model.settings["verification"]`` has the
    numbers. Columns of whole numbers, of repeated values and of row numbers are named in warnings.

    Parameters
    ----------
    X : (n, d) array, memmap, pandas or polars frame, pyarrow table, path of a npy, npz, csv or
        parquet file, or an iterable of blocks: arrays, frames or tables (a callable gives a fresh
        one at each pass); one-dimensional arrays, and blocks, are one column. Of a dask array or
        data frame only sums and a sample leave the workers
    method : "fd", "ncfd", "fvpd" or "map" (see ``solve``); "auto" compares fd, fvpd and map
    n_features : S; "auto" is 500 or 1000 up to 3,000 rows, and above that from 250 up to 2000 (1000
        from 50,000 rows on), as many as gain on rows held out; 1000 where nothing else is chosen
    lam : precision of the prior, > 0: more is smoother
    gamma : bandwidth of the features, in scaled coordinates; "scott" is
        n^(-1/(d+4)) sqrt(tr V / d); "auto" looks from a fifth of that to eight times in the
        pilot, whose n is smaller, and then, where sums for other bandwidths are cheap, down to a
        third of what was found
    eta : tempering of FVPD; "1/gamma2" is 1 / gamma^2
    sigma_max, n_noise_levels : NCFD learns at sigma = h sigma_max / H, h = 0 .. H - 1;
        "paper" is sqrt(tr V) / d
    scale : "standardize" (to mean 0 and variance 1), "center", or "none"
    frequency_covariance : of the features' frequencies: "data" (d V / tr V), "identity",
        "precision" (d V^-1 / tr V^-1), or a (d, d) array; in scaled coordinates
    base : "empirical": the data's mean and covariance; "scaled": the covariance times
        a factor chosen on held-out rows; "learned": see ``learn_base``; "mixture": a Gaussian
        mixture by EM, its number of components by BIC; "student": heavy tails, by EM; or a base in
        the units of X. Mixtures serve "fd", "fvpd" and "map", heavy tails "fd" and "map"
    sample_weight : (n,) non-negative. Rescaled to sum to Kish's effective number of rows, unless
        normalize_weights=False: then a weight of 2 is two rows
    moments : (n, mean, covariance) of the data, n being the sum of the weights, if known: saves the
        first pass, and is needed for iterators that can be read only once. Weights that come with
        the rows of an iterator, or as a dask collection, then count as they are
    engine, precision, backend, n_threads : see ``accumulate``
    solver : see ``solve``
    one_standard_error : of the settings that come within one standard error of the best, row by
        row, take the smoothest, by lambda and then by bandwidth, rather than the best
    seed : of the features (and of the draws of MAP)
    progress : show a bar on standard error

    Returns
    -------
    Density ; its ``settings`` record every choice

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
    >>> model = tgpfast.fit(x, n_features=50)
    >>> bool(model.log_density([[5.0]])[0] > model.log_density([[11.0]])[0])
    True
    """
    asked = {
        "method": method, "n_features": n_features, "lam": lam, "gamma": gamma, "eta": eta,
        "base": base, "frequency_covariance": frequency_covariance,
    }  # fmt: skip
    is_open = {k for k, v in asked.items() if isinstance(v, str) and v == "auto"}
    chosen = {k: AUTO[k] if k in is_open else v for k, v in asked.items()}
    _check(chosen, scale, n_noise_levels, engine, precision)
    seed = whole("seed", seed, 0)
    blocks = as_blocks(X, sample_weight=sample_weight)
    spectrum = None
    if moments is None and not blocks.can_repeat:
        spectrum = _spectrum(blocks, backend=backend, n_threads=n_threads, progress=progress)
    facts = spectrum.moments() if spectrum is not None else _moments(blocks, moments, progress)
    if _needs_sample(chosen, is_open):
        blocks.draw_sample()  # where the moments were given
    _check_moments(facts, chosen["base"], blocks)
    notes = _column_notes(blocks) if is_open else []
    scaling = _scaling(scale, facts)
    weight = facts.n_effective / facts.n if normalize_weights else 1.0
    n, d = facts.n * weight, len(facts.mean)
    centre = scaling.apply(facts.mean[None])[0]
    deviation = facts.deviation / scaling.scale
    covariance = facts.correlation * np.outer(deviation, deviation)
    spread = float(np.trace(covariance)) / d

    if chosen["gamma"] != "scott":
        check_bandwidth(chosen["gamma"], spread, chosen["lam"])
    rows = blocks.mapped(scaling.apply, weight)
    threads = Threads(backend, n_threads)
    look = SecondLook.at(rows) if _needs_sample(chosen, is_open) else None
    found = None
    if spectrum is None:  # else the settings are fixed
        found = _select(
            is_open, chosen, rows, covariance, scaling, solver, seed, threads, progress,
            one_standard_error, looks_again=look is not None and look.holds_out,
        )  # fmt: skip
    # few rows, repeated, say no more than those rows once
    once = min(n, chosen.get("n_distinct", n))
    if "lam" in is_open:
        chosen["lam"] *= n / once
    apart = once if "gamma" in is_open else n
    width = scott(apart, d, spread) if chosen["gamma"] == "scott" else chosen["gamma"]
    of_features = covariance_of_frequencies(chosen["frequency_covariance"], covariance)
    features = Features.draw(chosen["n_features"], width, of_features, seed)
    levels: Any = ()
    if chosen["method"] == "ncfd":
        top = np.sqrt(d * spread) / d if sigma_max == "paper" else sigma_max
        levels = _noise_levels(top, n_noise_levels)

    if spectrum is not None and look is not None and "lam" in is_open:
        chosen["lam"] = _select_lambda(chosen, look, features, threads)
    start, how = _base_for(chosen, look, scaling, centre, covariance, seed)
    _check_method(chosen["method"], start, spectrum is not None)
    run: dict[str, Any] = {"backend": backend, "n_threads": n_threads}
    sums = Sums(
        rows, start, chosen["method"], centre, levels, by_features=_by_features(chosen, engine),
        engine=engine, precision=precision, progress=progress, run=run,
        tolerance=_tolerance(n, features, chosen["lam"], is_open if found is not None else set()),
    )  # fmt: skip
    if spectrum is not None:
        stats: Any = spectrum._scaled_statistics(
            features, levels, scaling, origin=centre, weight=weight, **run
        )
    elif found is not None and look is not None and look.holds_out and chosen["lam"] != BASE_ALONE:
        stats = _looked_again(
            look, found, sums, features, chosen, is_open, seed=seed, threads=threads,
            one_standard_error=one_standard_error,
        )  # fmt: skip
    else:
        stats = sums(features)
    features, tempering = stats.features, _tempering(chosen, stats.features.bandwidth)
    is_alone = chosen["lam"] == BASE_ALONE
    if look is not None and how["base"] in BY_EM and (is_alone or isinstance(stats, FeatureSums)):
        start = look.learned_on(start)  # these sums do not depend on the base
        how["base_facts"] = repr(start)
    options = {"lam": chosen["lam"], "eta": tempering, "solver": solver, "seed": seed, **run}
    if found is not None:
        options["n_draws"] = MAP_DRAWS if stats.n_rows < MANY_ROWS else MAP_DRAWS // 2
    if how["base"] == "scaled" and isinstance(start, GaussianBase):
        start, tried = _scaled_base(rows, start, features, levels, chosen["method"], options)
        how.update(tried)

    def solved(method: str, lam: float) -> Density:
        base = start
        if lam >= BASE_ALONE:
            return base_alone(stats, base, threads)
        if how["base"] == "learned" and isinstance(start, GaussianBase):
            base = learn_base(stats, start, lam)  # together with theta, so for every lambda anew
            how["base_report"] = base.report
        return solve(stats, base, method, progress=progress, **{**options, "lam": lam})

    if "lam" in is_open:
        may_change = "method" in is_open and solver == "auto"
        model, verified = _solve_until_reliable(
            solved, chosen["method"], options["lam"], look, may_change=may_change
        )
        if verified is not None:
            how["verification"] = verified.record()
        if model.method == "base" and how["base"] == "learned":
            how["base"] = "empirical"  # it is learned together with a tilt
            how.pop("base_report", None)
        if not is_alone and model.method != chosen["method"]:
            how["method_before_verification"] = chosen["method"]
        if not is_alone and model.settings["lam"] not in (options["lam"], None):
            how["lam_raised_from"] = options["lam"]
    else:
        model, verified = solved(chosen["method"], options["lam"]), None
    model.scaling, model.table = scaling, replace(blocks.table, index=None)
    is_weighted = sample_weight is not None or facts.n != facts.n_effective
    if moments is not None and blocks.weight_ratio is None and stats.sum_w2 != stats.n:
        if normalize_weights:
            warn(
                "with moments= given, weights that come with the rows count as they are: Kish's "
                "number of rows is not known before; give an array, or normalize_weights=False",
                DataWarning,
            )
        is_weighted, normalize_weights = True, False
    how["weights"] = ("Kish" if normalize_weights else "as given") if is_weighted else "none"
    how["weight_factor"] = weight if normalize_weights else None  # what weights were multiplied by
    if chosen["method"] == "ncfd":
        how.update(sigma_max=float(top), n_noise_levels=len(levels))
    how.update(
        scale=scale, seed=seed, n=n, n_rows=stats.n_rows, dimension=d, auto=sorted(is_open),
        selected=found is not None, n_passes=blocks.n_passes,
    )  # fmt: skip
    if model.method != "base":
        how.update(gamma=features.bandwidth, eta=tempering)
    how.update(_record(chosen, is_open, found, one_standard_error, scaling.log_volume))
    if model.method == "base":
        how.update(gamma_rule=None, frequency_covariance=None)
    if how["base"] == "learned":
        how["base_spread"] = _spread(model, facts)
    if notes:
        how["column_notes"] = [note.record() for note in notes]
    model.settings.update(how)
    if found is not None:
        model.selection = found.table(scaling.log_volume, model.settings)
    warn_columns(notes)
    if verified is not None:
        _warn_of(verified, model)
    return model


def _column_notes(blocks: Blocks) -> list[ColumnNote]:
    """Columns for which a density is a poor description: discrete, tied, row numbers."""
    sample = blocks.sample
    if sample is None:
        return []
    return check_columns(
        sample.x, sample.weights, blocks.table.columns, n_rows=blocks.n_rows or len(sample.x)
    )


def _warn_of(verified: Verification, model: Density) -> None:
    """One warning for what the last look at the model found wrong."""
    found = verified.describe(model.table.columns)
    if found:
        warn(
            f"this fit is unreliable: {found}. Look for hard edges, spikes, repeated values or "
            "outliers in the data; transform or split such columns, or give more rows",
            PoorFitWarning,
        )


def _spread(model: Density, facts: Moments) -> float:
    """The largest ratio of the density's mean squares, about the mean of the rows, to their
    variances, column by column. A base learned by scores may be so wide that the tilt's ripples far
    from all rows, which no score sees, have most of the mass, and draws enough to look sound."""
    points, weights = model._weighted_sample(SPREAD_DRAWS, 0)
    squares = np.square((points - facts.mean) / facts.deviation)
    spread = float((weights @ squares / weights.sum()).max())
    if not spread <= MOST_SPREAD:
        warn(
            f"the density with base=\"learned\" has {spread:.3g} times the mean square of the rows "
            "in some column: much of its mass lies far from them. Raise lam or gamma, or use "
            'base="empirical"',
            PoorFitWarning,
        )
    return spread


def _record(
    chosen: dict[str, Any], is_open: set[str], found: Selection | None, one_standard_error: bool,
    log_volume: float,
) -> dict[str, Any]:  # fmt: skip
    """How the settings came about."""
    kind = chosen["frequency_covariance"]
    how: dict[str, Any] = {
        "frequency_covariance": kind if isinstance(kind, str) else "given",
        "gamma_rule": "scott" if chosen["gamma"] == "scott" else "given",
    }  # fmt: skip
    if found is None:
        return how
    how["one_standard_error"] = one_standard_error
    if found.final:
        how["lam_tried"] = [{**row, "score": row["score"] - log_volume} for row in found.final]
    if "gamma" in is_open:
        how["gamma_rule"] = "selected"
    return how


def _looked_again(
    look: SecondLook, found: Selection, sums: Sums, features: Features, chosen: dict[str, Any],
    is_open: set[str], **options: Any,
) -> Any:  # fmt: skip
    """The statistics with the bandwidth, the number of features and the lambda that suit all rows;
    those that were given stay."""
    method, lams = chosen["method"], (chosen["lam"],)
    if "lam" in is_open:
        lams = {"fd": LAMS, "map": (10.0 * lams[0], lams[0])}.get(method, lams)
    if "gamma" in is_open:
        sums = sums.for_bandwidths(features, bandwidth_candidates(features))
        if sums.are_cheap:
            temper = chosen.get("eta_multiple", 1.0)
            features, tried = look.narrower(
                sums, features, sums.base, method, lams=lams, temper=temper, **options
            )
            found.final.extend(tried)
    stats, sizes = sums(features), SIZES if "n_features" in is_open else ()
    if sizes or len(lams) > 1 or "least_errors" in chosen:
        settled = look.settle(
            stats, sums.base, method, lams=lams, eta=_tempering(chosen, features.bandwidth),
            sizes=sizes, least_errors=chosen.get("least_errors", 0.0), **options,
        )  # fmt: skip
        found.final.extend(settled.tried)
        stats = stats._first(settled.n_features)
        chosen["lam"] = settled.lam if "lam" in is_open else chosen["lam"]
    return stats


def _tempering(chosen: dict[str, Any], width: float) -> float:
    """eta, by its rule or as given."""
    if chosen["eta"] == "1/gamma2":
        return float(chosen.get("eta_multiple", 1.0) / width**2)
    return float(chosen["eta"])


def _by_features(chosen: dict[str, Any], engine: str) -> bool:
    """Whether the sum of the features is all that is needed of the data: MAP's case."""
    return chosen["method"] == "map" and chosen["base"] not in NEED_GRAM and engine == "auto"


def _select(
    is_open: set[str], chosen: dict[str, Any], rows: Blocks, covariance: Array, scaling: Scaling,
    solver: str, seed: int, threads: Threads, progress: bool, one_standard_error: bool,
    looks_again: bool,
) -> Selection | None:  # fmt: skip
    """Fill what is open in ``chosen`` from the data; None where nothing is, or where the rows are
    too few to hold any out: then AUTO stands.

    looks_again : a second look with all rows follows, which may take back what the pilot decides
    """
    if "method" in is_open:
        chosen["method"] = METHODS_OF.get(solver, (chosen["method"],))[0]
    pilot = rows.pilot(PILOT_ROWS) if _selected_settings(chosen, is_open) else None
    x, w = distinct(pilot)
    if len(x) < LEAST_ROWS:
        if len(x):
            chosen["n_distinct"] = float(w.sum() ** 2 / (w @ w))
        return None
    base, method, lam = chosen["base"], chosen["method"], chosen["lam"]
    bases: tuple[Any, ...] = (base.rescaled(scaling) if isinstance(base, Base) else base,)
    if base in ("scaled", "learned"):
        bases = ("empirical",)  # of which the statistics make another later on
    if "base" in is_open:
        bases = Question.bases
        if "method" not in is_open:
            bases = tuple(kind for kind in bases if method in SERVED_BY.get(kind, METHODS))
    shape = chosen["frequency_covariance"]
    question = Question(
        bases=bases,
        methods=METHODS_OF.get(solver, Question.methods)
        if "method" in is_open
        else (LIKE.get(method, method),),
        shapes=_shapes(covariance) if "frequency_covariance" in is_open else (shape,),
        gammas=None if "gamma" in is_open else (_width(chosen["gamma"], x, w),),
        lams=None if "lam" in is_open else (lam,),
        etas=None if chosen["eta"] == "1/gamma2" else (chosen["eta"],),
        tempers=Question.tempers if "eta" in is_open else (1.0,),
    )
    found = select(
        x, w, question,
        lambda kind: covariance_of_frequencies(kind, covariance), n_features=chosen["n_features"],
        seed=seed, threads=threads, one_standard_error=one_standard_error, progress=progress,
    )  # fmt: skip
    if found is None:
        return None
    best = found.best
    if np.isinf(best.lam) and "lam" in is_open and looks_again and method != "ncfd":
        # all rows may say otherwise than the pilot
        best = found.best_tilt_of(best.base) or best
        chosen["least_errors"] = 0.0 if best is found.best else RECONSIDERED
        found = replace(found, best=best)
    alone = np.isinf(best.lam)
    answers: dict[str, Any] = {
        "method": best.method, "base": best.base, "lam": BASE_ALONE if alone else best.lam,
        "frequency_covariance": best.frequency_covariance,
        "gamma": "scott" if alone else best.gamma_multiple * found.scott,
    }  # fmt: skip
    chosen.update({k: v for k, v in answers.items() if k in is_open})
    if "n_features" in is_open:  # the most; how many are kept is settled with all rows
        chosen["n_features"] = SIZES[0] if chosen["lam"] == BASE_ALONE else _most_features(rows)
    chosen["n_components"] = found.n_components
    if best.method == "fvpd" and "eta" in is_open and not alone:
        chosen["eta_multiple"] = best.eta_multiple  # of the rule, for the width that is taken
    return found


def _select_lambda(
    chosen: dict[str, Any], look: SecondLook, features: Features, threads: Threads
) -> float:
    """The lambda, of those from the fixed one up, that rows held out of the sample prefer;
    BASE_ALONE where they prefer the base alone."""
    x, w = look.x[:PILOT_ROWS], look.weights[:PILOT_ROWS]
    held = dealt(len(x), HELD_OUT) == 0
    shares = w[held] / w[held].sum()
    if chosen["method"] != "fd" or chosen["base"] != "empirical" or held.sum() < 2:
        return float(chosen["lam"])
    base = GaussianBase.from_data(x[~held], sample_weight=w[~held])
    fold = Fold.of(
        base, x[~held], x[held], w[~held], shares, nearby=x[~held], log2_draws=LOG2_DRAWS + 1,
        log2_nodes=None, seed=0,
    )  # fmt: skip
    block, lams = Block(features, fold, threads), [chosen["lam"] * f for f in LAM_FACTORS]
    scores = block.of_points(block.fd(lams))
    best = max(range(len(lams)), key=lambda k: scores[k].mean)
    gain = scores[best].over(fold.held_base)
    gains = gain.mean > ERRORS * standard_error([gain.values], [gain])
    return float(lams[best]) if gains else BASE_ALONE


def _shapes(covariance: Array) -> tuple[str, ...]:
    """The shapes of the frequencies that differ: one column, or columns alike, have but one."""
    kept: dict[str, Array] = {}
    for name in Question.shapes:
        matrix = covariance_of_frequencies(name, covariance)
        if not any(np.allclose(matrix, other) for other in kept.values()):
            kept[name] = matrix
    return tuple(kept)


def _most_features(rows: Blocks) -> int:
    """Few rows, of which none can be spared to compare sizes, take what makes the draw of the
    features matter little; many rows, what is affordable."""
    n = rows.n_rows or MANY_ROWS
    if n <= FEW_ROWS:
        return 500 if n <= 500 else 1000
    return SIZES[-1] if n < MANY_ROWS else SIZES[-2]


def _solve_until_reliable(
    solved: Callable[[str, float], Density], method: str, lam: float, look: SecondLook | None, *,
    may_change: bool,
) -> tuple[Density, Verification | None]:  # fmt: skip
    """The first of these that passes verification: the model as chosen, with a larger lambda, by
    MAP if the method may change, the base alone. Re-emits only the accepted model's warnings.

    look : rows to verify against; without them only the normalizer is looked at
    """
    verifier = None if look is None else Verifier(look.x, look.weights)
    tries = [(method, lam * factor) for factor in LAM_FACTORS if lam < BASE_ALONE]
    if may_change and method != "map" and lam < BASE_ALONE:
        tries += [("map", max(lam, 1.0) * factor) for factor in LAM_FACTORS[:2]]
    tries.append((method, BASE_ALONE))
    of_base: Verification | None = None
    for name, value in tries:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = solved(name, value)
            of_solving = list(caught)
            verified = None
            if verifier is not None:
                model = model.with_mode_starts(verifier.near)
                verified = verifier.verify(model)
            if value >= BASE_ALONE:
                break
            if verifier is None or verified is None:
                if not model.log_normalizer.is_poor:
                    break
                continue
            if verified.is_clean:
                break
            # the tilt is not to blame for what the base does too
            of_base = of_base or verifier.verify(solved(name, BASE_ALONE))
            verified = verified.compared_with(of_base)
            if not verified.misplaces_mass and verified.ks <= of_base.ks + WORSE_KS:
                break
    for warning in of_solving:
        warnings.warn_explicit(
            warning.message, warning.category, warning.filename, warning.lineno
        )
    return model, verified


def _width(gamma: Any, x: Array, w: Array) -> float:
    """Scott's rule for the rows of a pilot, or the bandwidth that was given."""
    if gamma != "scott":
        return float(gamma)
    about = x - w @ x / w.sum()
    spread = float((w @ np.square(about)).mean() / w.sum())
    return scott(float(w.sum()), x.shape[1], spread)


def _tolerance(n: float, features: Features, lam: float, is_open: set[str]) -> float:
    """What the spectral engine must keep so that log densities move by less than LOG_TOLERANCE,
    also where lambda or the bandwidth, while open, come out smaller.

    An error e of F/n moves them by about the condition of the system times e. The largest
    eigenvalue is at most the trace, n E|z|^2 / 2 or so times two over S; the least is the prior's.
    """
    if "lam" in is_open:
        lam = min(lam, LAMS[0])
    narrower = NARROWER[-1] if "gamma" in is_open else 1.0
    z = features.frequencies
    top = n * float(np.einsum("sk,sk->", z, z)) / features.n_features
    condition = 1.0 + top / (lam * (narrower * features.bandwidth) ** 2)
    return float(np.clip(LOG_TOLERANCE / condition, LEAST_TOLERANCE, TOLERANCE))


def _check(
    chosen: dict[str, Any], scale: str, n_noise_levels: Any, engine: str, precision: str
) -> None:
    """Options that can be judged before the data are read."""
    for name, value, choices in (
        ("method", chosen["method"], METHODS), ("scale", scale, SCALES),
        ("engine", engine, ENGINES), ("precision", precision, PRECISIONS),
    ):  # fmt: skip
        if not isinstance(value, str) or value not in choices:
            known = choices if "auto" in choices or name == "scale" else ("auto", *choices)
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, known))}")
    base = chosen["base"]
    if not isinstance(base, Base) and not (isinstance(base, str) and base in BASES):
        raise ValueError(
            f"base={base!r}: expected a GaussianBase, another base or one of "
            f"{', '.join(map(repr, BASES))}"
        )
    kind = chosen["frequency_covariance"]
    if isinstance(kind, str) and kind not in FREQUENCIES:
        raise ValueError(
            f"frequency_covariance={kind!r}: expected a (d, d) array or one of "
            f"{', '.join(map(repr, FREQUENCIES))}"
        )
    chosen["lam"] = positive("lam", chosen["lam"])
    for name, rule in (("gamma", "scott"), ("eta", "1/gamma2")):
        if not (isinstance(chosen[name], str) and chosen[name] == rule):
            chosen[name] = positive(name, chosen[name], "auto", rule)
    for name, value in (("n_features", chosen["n_features"]), ("n_noise_levels", n_noise_levels)):
        whole(name, value)
    if n_noise_levels > MOST_LEVELS:
        raise ValueError(
            f"n_noise_levels={n_noise_levels}: expected at most {MOST_LEVELS}; the paper has 10"
        )


def _needs_sample(chosen: dict[str, Any], is_open: set[str]) -> bool:
    """Whether some of the settings are chosen from a sample of the rows."""
    return bool(_selected_settings(chosen, is_open)) or chosen["base"] in (*BY_EM, "scaled")


def _selected_settings(chosen: dict[str, Any], is_open: set[str]) -> set[str]:
    """The open settings for which candidates are compared; eta is one for FVPD only."""
    unused = {"n_features"}
    if chosen["method"] != "fvpd" and "method" not in is_open:
        unused.add("eta")
    return is_open - unused


def _moments(blocks: Blocks, given: Any, progress: bool) -> Moments:
    """Moments as given, or by a pass that also draws ``blocks.sample``."""
    if given is None:
        facts, blocks.sample = moments_and_sample(blocks, progress=progress and blocks.in_parts)
        return facts
    facts = given_moments(given, blocks.dimension)
    return replace(facts, n_effective=facts.n * (blocks.weight_ratio or 1.0))


def _spectrum(blocks: Blocks, **options: Any) -> Spectrum:
    """An iterator that can be read only once, read into a grid: for up to three columns. Its band
    limit is that of Scott's bandwidth for STREAM_ROWS rows, in the spread of the first ones."""
    begun = blocks.begun()
    begun.read(FIRST_ROWS)
    first = begun.sample(FIRST_ROWS)
    d, spread = first.shape[1], first.std(axis=0)
    if d > DIMENSIONS or not (spread > 0).all():
        raise ValueError(
            "X can be read only once, and fit reads its data twice; pass a list of blocks, a "
            "callable that returns a fresh iterator, or moments=(n, mean, covariance)"
        )
    band = 2.0 * STREAM_REACH * STREAM_ROWS ** (1.0 / (d + 4)) / spread
    reservoir = begun.keep_sample()
    spectrum = Spectrum.from_data(begun.blocks, band, **options)
    blocks.sample = reservoir.sample()
    return spectrum


def _base_for(
    chosen: dict[str, Any], look: SecondLook | None, scaling: Scaling, centre: Array,
    covariance: Array, seed: int,
) -> tuple[Base, dict[str, Any]]:  # fmt: skip
    """The base in the model's coordinates, before the statistics change it, and what to record."""
    asked = chosen["base"]
    if isinstance(asked, Base):
        base, how = asked.rescaled(scaling), {"base": "given"}
    elif asked in BY_EM:
        if look is None:
            raise ValueError(
                f'X can be read only once, and base="{asked}" is fitted before; pass a list of '
                "blocks, a callable, or a base"
            )
        alone = chosen["lam"] == BASE_ALONE  # then nothing remains to be judged
        least, how = chosen.get("n_components", 1), {"base": asked}
        base = look.learned(asked, least=least, seed=seed, whole=alone)
    else:
        base, how = GaussianBase(centre, covariance), {"base": asked}
    if not isinstance(base, GaussianBase):
        how["base_facts"] = repr(base)
    return base, how


def _check_method(method: str, base: Base, from_spectrum: bool) -> None:
    """What a base that is no Gaussian does not allow."""
    if isinstance(base, GaussianBase):
        return
    name = type(base).__name__
    if method == "ncfd" or (method == "fvpd" and not isinstance(base, MixtureBase)):
        raise ValueError(f'method="{method}" cannot tilt a {name}; use "fd" or "map"')
    if from_spectrum and method != "map":
        raise ValueError(
            f"X can be read only once, and with a {name} it is read again; pass a list of blocks "
            "or a callable"
        )


def _check_moments(facts: Moments, base: Any, blocks: Blocks) -> None:
    if not isinstance(base, Base):
        check_full_rank(facts, blocks.table.columns)
    elif base.dimension != len(facts.mean):
        raise ValueError(f"base has dimension {base.dimension}, X has {len(facts.mean)} columns")
    elif (facts.deviation <= 0).any():
        k = int(np.flatnonzero(facts.deviation <= 0)[0])
        raise ValueError(f"column {column_name(k, blocks.table.columns)} is constant; drop it")


def _scaling(scale: str, facts: Moments) -> Scaling:
    d = len(facts.mean)
    if scale == "standardize":
        return Scaling(facts.mean, facts.deviation)
    facts.check_range()
    return Scaling.identity(d) if scale == "none" else Scaling(facts.mean, np.ones(d))


def _noise_levels(top: Any, n_levels: int) -> Array:
    sigma = float(as_floats(top, "sigma_max", "()", 0))
    if sigma < 0:
        raise ValueError(f"sigma_max={sigma}: expected a number of at least 0")
    if sigma == 0:
        return np.zeros(1)
    if not n_levels * LEAST_BANDWIDTH <= sigma <= MOST_BANDWIDTH:
        raise ValueError(
            f"sigma_max={sigma:.6g}: expected 0, or a number from {n_levels * LEAST_BANDWIDTH:g} "
            f"to {MOST_BANDWIDTH:g}; about 1 in scaled coordinates is usual"
        )
    return np.asarray(sigma * np.arange(n_levels) / n_levels)


def _scaled_base(
    blocks: Blocks, base: GaussianBase, features: Features, levels: Any, method: str,
    options: dict[str, Any],
) -> tuple[GaussianBase, dict[str, Any]]:  # fmt: skip
    """The base whose covariance, times one of BASE_SCALES, gives held-out rows the highest log
    density, and what was tried. The statistics know no base: one pass serves all."""
    pilot = blocks.pilot(SAMPLE_ROWS)
    if pilot is None:
        raise ValueError(
            'X can be read only once, and base="scaled" holds rows out; pass a list of blocks, a '
            'callable that returns a fresh iterator, or base="empirical"'
        )
    x, w = distinct(pilot)
    held = dealt(len(x), HELD_OUT) == 0
    if held.sum() < 2:
        raise ValueError(
            f'base="scaled" needs at least {2 * HELD_OUT} rows that differ, got {len(x)}'
        )
    rest = {k: options[k] for k in ("backend", "n_threads")}
    stats = accumulate(
        x[~held], features, noise_levels=levels, origin=base.mean, sample_weight=w[~held], **rest
    )
    weights, scores = w[held], []
    for factor in BASE_SCALES:
        candidate = GaussianBase(base.mean, factor * base.covariance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of candidates that will lose
            model = solve(stats, candidate, method, **options)
            values = model.log_density(x[held])
            poor = model.log_normalizer.is_poor
        scores.append(-np.inf if poor else float(weights @ values / weights.sum()))
    best = int(np.argmax(scores)) if np.isfinite(scores).any() else BASE_SCALES.index(1.0)
    tried = {str(f): s for f, s in zip(BASE_SCALES, scores, strict=True) if np.isfinite(s)}
    chosen = GaussianBase(base.mean, BASE_SCALES[best] * base.covariance)
    return chosen, {"base_scale": BASE_SCALES[best], "base_scales_tried": tried}
