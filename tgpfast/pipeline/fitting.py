"""`fit`: rows -> density. The whole pipeline on one page; every choice it makes is recorded."""

from __future__ import annotations

from typing import Any

from ..density.density import Density
from ..selection.verification import Verification, Verifier, solve_until_reliable
from ..validation import Seed
from .choosing import Problem, hold_threads
from .column_scales import name_outside_rows
from .coordinates import choose_rows_and_plan
from .discrete_columns import as_discrete
from .record import finish_model
from .rows import Rows, read_rows
from .settings import Settings


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
    scale: str = "auto",
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
    features: str = "auto",
    kernel: str = "auto",
    support: Any = None,
    period: Any = None,
    one_standard_error: bool = False,
    seed: Seed = 0,
    progress: bool = False,
    effort: str = "balanced",
    interactions: Any = "auto",
    missing: str = "error",
    discrete: Any = None,
) -> Density:
    """Learn the density of the rows of X.

    Reads the data two or three times: for their moments and a random sample of at most 20,000 rows;
    for the statistics; and once more where bandwidths are compared on all rows, or for the scores
    of a base that is not Gaussian.
    ``model.settings["n_passes"]`` is the number of passes. The same rows give the same sample
    whatever their source.

    A setting that is "auto" is chosen by the log-likelihood of rows held out. The base alone is one
    of the candidates; a tilt is kept only if its gain over the base exceeds about three times its
    standard error, and up to five times with few rows, whose errors are uncertain: the best of many
    candidates may be luck. Up to 300 rows only MAP tilts are kept. ``model.selection`` lists the
    candidates.

    One to three columns are learned by MAP with `LatticeFeatures`, unless an option concerns other
    methods or random features alone. One pass makes the sums of five folds of the rows; kernel,
    bandwidth, lambda, number of waves and base are compared from these sums (every fold is held out
    in turn up to 500 rows, three up to 50,000, one above). With more than 500 rows a tilt must gain
    twice the standard error, and two folds that were not compared must confirm a small gain. No
    wave is shorter than two steps of a column of rounded values.

    More columns have random features. With method and base open, or with method="map", the search
    is brief: the average of a few grown mixtures, each grown without other rows, and a few kinds of
    features for MAP, those of one and two columns among them.
    ``effort`` says how much is tried. Otherwise candidates are compared on a pilot of at most 4,500
    rows; with more than 3,000 rows, bandwidth, number of features and lambda are refined on all
    rows but few, and ``model.settings["lam_tried"]`` lists what was tried.

    Rows that can be read only once, and fewer than 20 that differ, get fixed settings instead:
    method="fd", n_features=1000, lam=10, gamma="scott", eta="1/gamma2", base="empirical",
    frequency_covariance="data", kernel="gaussian", interactions=None. Repeated rows count once in
    "scott", and lambda is multiplied by how often they are repeated. For an iterator of up to three
    columns, rows held out of a sample that is kept on the way may raise lambda or prefer the base
    alone. With fewer than 20 different rows the base is taken alone where
    method and lambda are open, unless copies of the rows that are held out show that the tilt is
    better.

    Where lambda is "auto", the model is verified before it is returned: the error of its mass, the
    share of its mass far from every row, and its samples against the columns of the rows. A model
    that fails is replaced by one with a larger lambda, by MAP, or by the base alone, whose
    ``method`` is "base". What still fails is a warning; ``model.settings["verification"]`` has the
    numbers. Columns of whole numbers, of repeated values and of row numbers are named in warnings.

    Parameters
    ----------
    X : array, frame, table, path, dask collection or iterable of blocks
        (n, d) array, memmap, pandas or polars frame, pyarrow table, path of a npy, npz, csv or
        parquet file, or an iterable of blocks: arrays, frames or tables (a callable gives a fresh
        one at each pass). One-dimensional arrays, and blocks, are one column. Of a dask array or
        data frame only sums and a sample leave the workers.
    method : {"auto", "fd", "ncfd", "fvpd", "map"}, default "auto"
        See ``solve``; "auto" compares fd, fvpd and map, and is map on a lattice.
    n_features : int or "auto", default "auto"
        S, of random features. "auto" is 500 or 1000 up to 3,000 rows, and above that from 250 up to
        2000 (1000 from 50,000 rows on), as many as gain on rows held out; 128 to 500 after a brief
        search; 1000 where nothing else is chosen.
    lam : float or "auto", default "auto"
        Precision of the prior, > 0: more is smoother.
    gamma : float, "scott" or "auto", default "auto"
        Bandwidth of the features, in scaled coordinates. "scott" is n^(-1/(d+4)) sqrt(tr V / d).
        "auto" compares 0.02 to 6 standard deviations on a lattice; with random features a fifth of
        "scott" to eight times that in the pilot, whose n is smaller, and then, where sums for other
        bandwidths are cheap, down to a third of what was found.
    eta : float, "1/gamma2" or "auto", default "auto"
        Tempering of FVPD; "1/gamma2" is 1 / gamma^2.
    sigma_max : float or "paper", default "paper"
        NCFD learns at sigma = h sigma_max / H, h = 0 .. H - 1; "paper" is sqrt(tr V) / d.
    n_noise_levels : int, default 10
        H, the number of noise levels of NCFD.
    scale : {"auto", "standardize", "gaussianize", "center", "none"}, default "auto"
        "standardize" gives columns mean 0 and variance 1. "gaussianize" bends every column by a
        smooth increasing map, learned from the sample, after which it is standard Gaussian; the
        density stays one in the units of X. "auto" bends the columns without wide steps where
        held-out rows of the sample prefer that by more than a standard error, and standardizes
        elsewhere: up to three columns without support and period, with method="ncfd", and where
        gamma, base, frequency_covariance or moments is given. Columns that are periodic or discrete
        are not bent. ``model.settings`` has "scale" and "scale_scores".
    frequency_covariance : {"auto", "data", "identity", "precision"} or (d, d) array, default "auto"
        Of the features' frequencies, in scaled coordinates: "data" is d V / tr V, "precision" is
        d V^-1 / tr V^-1.
    base : str or Base, default "auto"
        "empirical": the data's mean and covariance ("auto" adds a guard against outliers in more
        than three columns of up to 3,000 rows); "scaled": the covariance times a factor chosen
        on held-out rows; "learned": see ``learn_base``; "mixture": Gaussian mixtures, grown by EM
        as long as held-out rows gain, and averaged in more than three columns; "student":
        heavy tails, by EM; or a base in the units of X. Mixtures serve "fd", "fvpd" and
        "map", heavy tails "fd" and "map".
    sample_weight : (n,) array, default None
        Weights of the rows, not negative; by default all rows count alike.
    normalize_weights : bool, default True
        Rescale the weights to sum to Kish's effective number of rows. False: a weight of 2 is two
        rows.
    moments : tuple (n, mean, covariance), default None
        Of the data, n being the sum of the weights, if known: saves the first pass, and is needed
        for iterators that can be read only once. Weights that come with the rows of an iterator, or
        as a dask collection, then count as they are.
    engine, precision, backend, n_threads : see ``accumulate``
    solver : see ``solve``
    features : {"auto", "lattice", "random"}, default "auto"
        "lattice" are waves at equispaced frequencies, for one to three columns; "random" is the
        paper's choice, for any number of columns.
    kernel : {"auto", "gaussian", "matern12", "matern32", "matern52"}, default "auto"
        Of the Gaussian process; "matern12" is the roughest. Only method="map" takes "matern12" and
        "matern32". On a lattice "auto" compares all of them, with more than three columns some; of
        other random features it is "gaussian".
    support : dict, default None
        Column, by name or number, -> (low, high), None where there is no wall. The density is zero
        beyond, and nothing leaks through; rows beyond are refused. With more than three columns, or
        scale="gaussianize", maps bend these columns, and a row exactly on a wall counts as half a
        step of its column inside. Else rows held out decide whether columns are bent;
        ``model.settings["coordinates"]`` says so. NCFD has none: its noise crosses walls.
    period : dict, default None
        Column -> period, such as {"hour": 24}: the density repeats itself, and rows of any period
        are moved into the first. With more than three columns the frequencies of random features
        are whole multiples of 2 pi / period, and periodic columns of the base have distributions
        of their own, or components that are wrapped around; "map" and "fd" learn it. NCFD has no
        period.
    one_standard_error : bool, default False
        Pick the smoothest settings within one standard error of the best, row by row: the largest
        lambda, then the largest bandwidth.
    seed : int, None or numpy.random.Generator, default 0
        Of the features, and of the draws of MAP. None draws a fresh seed;
        ``model.settings["seed"]`` is the integer that was used.
    progress : bool, default False
        Show a bar on standard error.
    effort : {"fast", "balanced", "thorough"}, default "balanced"
        How much work the choice of open settings may take. "fast" grows smaller mixtures and tries
        fewer features; "thorough" compares every method, bandwidth and shape of frequencies in any
        number of columns, grows larger mixtures, and adds a kernel estimate to those of few rows
        where held-out rows gain.
    interactions : int, None or "auto", default "auto"
        Columns that each frequency involves, at random; None is all. With more than three columns
        "auto" compares some, and a mixed set, whose ``model.settings`` have lists; else it is None.
    missing : {"error", "drop"}, default "error"
        What to do with rows that have nan, None or NA. "error" names the first one. "drop" leaves
        them out, with their weights; a warning and ``model.settings["n_missing"]`` say how many.
    discrete : sequence of str or int, or dict, default None
        Columns whose values are whole numbers, or a mapping from columns to the step that their
        values are multiples of. The model is a `DiscreteDensity`: in these columns it has
        probabilities of values, and samples are on the grid. ``fit`` learns from rows with uniform
        noise, one step wide, that depends on the seed and the number of the row alone; walls of
        such columns move half a step outwards.

    Returns
    -------
    Density
        Its ``settings`` record every choice. With ``discrete`` a `DiscreteDensity`.

    Raises
    ------
    ValueError, TypeError
        If an option is wrong, or the rows have no density: a constant column, columns that depend
        on each other, values that are not finite.

    Examples
    --------
    >>> import numpy as np, tgpfast
    >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
    >>> model = tgpfast.fit(x, n_features=50)
    >>> bool(model.log_density([[5.0]])[0] > model.log_density([[11.0]])[0])
    True

    References
    ----------
    Algorithms 1 to 4 of the paper.
    """
    settings = Settings.from_options(
        method=method, n_features=n_features, lam=lam, gamma=gamma, eta=eta, sigma_max=sigma_max,
        n_noise_levels=n_noise_levels, scale=scale, frequency_covariance=frequency_covariance,
        base=base, normalize_weights=normalize_weights, engine=engine, precision=precision,
        backend=backend, n_threads=n_threads, solver=solver, features=features, kernel=kernel,
        interactions=interactions, support=support, period=period, seed=seed, progress=progress,
        one_standard_error=one_standard_error, effort=effort, missing=missing, discrete=discrete,
    )  # fmt: skip
    read = read_rows(X, settings, sample_weight, moments)
    with hold_threads(settings, read), name_outside_rows(read, settings):
        # one to three columns: choosing makes the sums of all rows, so that accumulate has nothing
        # left to do. More columns: accumulate makes them, and refines lambda, bandwidth and number
        # of features with them.
        rows, plan = choose_rows_and_plan(settings, read)
        problem = plan.accumulate(rows)
        model, verified = _solve_and_verify(problem, settings, rows)
    return as_discrete(finish_model(model, verified, problem, settings, rows), settings, rows)


def _solve_and_verify(
    problem: Problem, settings: Settings, rows: Rows
) -> tuple[Density, Verification | None]:
    """The model, verified where lambda was left open."""
    method, lam = problem.settings.method, problem.settings.lam
    if "lam" not in settings.auto:
        return problem.solve(method, lam), None
    verifier = None if rows.split is None else Verifier(rows.split.x, rows.split.weights)
    may_change = "method" in settings.auto and settings.solver == "auto"
    return solve_until_reliable(
        problem.solve, method, lam, verifier, may_change_method=may_change
    )
