"""The result of `evaluate`: distances, scores, and their text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..validation import Array, check_choice, whole

KS_MEDIAN = 0.8276  # median of Kolmogorov's distribution
SUMMARY_DIRECTIONS = 3  # directions in the summary, worst first
SUMMARY_COLUMNS = 5  # columns in the summary, worst first
SHOWN_COEFFICIENT = 0.005  # smaller coefficients of a direction round to 0.00 and are not shown


@dataclass(frozen=True)
class Estimate:
    """A mean over rows.

    Attributes
    ----------
    value : float
    standard_error : float
    n_rows : int
        Number of rows in the mean.
    """

    value: float
    standard_error: float
    n_rows: int

    def __str__(self) -> str:
        error = _plus_minus(self.standard_error, ".2g")
        return f"{self.value:.6g}{error} ({rows_text(self.n_rows)})"


@dataclass(frozen=True)
class Distance:
    """KS and Wasserstein distance between data and model, with their standard errors."""

    ks: float
    wd: float
    ks_error: float
    wd_error: float

    def __str__(self) -> str:
        return _pair_text((self.ks, self.wd), (self.ks_error, self.wd_error))


@dataclass(frozen=True)
class ColumnDistance(Distance):
    """Distances in one column."""

    name: str

    def __str__(self) -> str:
        return f"{super().__str__()}  {self.name}"


@dataclass(frozen=True, eq=False)
class Direction(Distance):
    """Distances along one direction. ``vector`` maps column names to its coefficients."""

    vector: dict[str, float]

    def __str__(self) -> str:
        along = direction_text(np.array(list(self.vector.values())), list(self.vector))
        return f"{super().__str__()}  along {along}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of `evaluate`. ``print(evaluation)`` prints ``summary()``.

    Attributes
    ----------
    ks, wd : ndarray of shape (V,)
        Kolmogorov-Smirnov and Wasserstein distances along the V directions. The Wasserstein
        distance is in standard deviations of the columns with units="standardized", else in the
        units of the data.
    ks_error, wd_error : ndarray of shape (V,)
        Their standard errors from the finite numbers of rows and draws; nan if there is only one
        effective row or draw.
    directions : ndarray of shape (V, d)
        Vectors of length 1, in the coordinates that ``units`` names.
    columns : list of str
        Names of the columns of the data; x1, x2, ... if they have none.
    n_rows : int
        Rows of the data.
    n_effective : float
        Kish's effective number of rows with their weights; n_rows without weights.
    effective_sample_size : float
        Kish's effective number of the model's weighted draws.
    by_column : list of ColumnDistance
        Distances in each single column.
    units : {"standardized", "data"}
    scale : ndarray of shape (d,)
        Divisor of each column; ones with units="data".
    scale_source : {"data", "model", "draws", "none"}
        Origin of ``scale``: standard deviations of the rows, the scaling that the model was fitted
        with, standard deviations of the model's draws, or none with units="data".
    log_likelihood : Estimate or None
        Mean log density of the rows. Its error includes that of the model's normalizer. None if
        the model has no log density.
    fisher_score : Estimate or None
        Mean of |grad log q|^2 / 2 + laplacian of log q; lower is better. It is in the units of the
        data, so that the narrowest column decides unless columns are standardized. None if the
        model has no gradient and Laplacian.
    n_missing : int
        Rows that were left out because of missing values; ``n_rows`` does not count them.
    """

    ks: Array
    wd: Array
    ks_error: Array
    wd_error: Array
    directions: Array
    columns: list[str]
    n_rows: int
    n_effective: float
    effective_sample_size: float
    by_column: list[ColumnDistance]
    units: str
    scale: Array
    scale_source: str
    log_likelihood: Estimate | None = None
    fisher_score: Estimate | None = None
    n_missing: int = 0

    def __str__(self) -> str:
        return self.summary()

    @property
    def median(self) -> tuple[float, float]:
        """(KS, WD), the medians over directions."""
        return float(np.median(self.ks)), float(np.median(self.wd))

    @property
    def mean(self) -> tuple[float, float]:
        """(KS, WD), the means over directions."""
        return float(self.ks.mean()), float(self.wd.mean())

    @property
    def median_error(self) -> tuple[float, float]:
        """(KS, WD), standard errors of ``median`` as an estimate for all directions."""
        return median_error(self.ks), median_error(self.wd)

    @property
    def mean_error(self) -> tuple[float, float]:
        """(KS, WD), standard errors of ``mean`` as an estimate for all directions."""
        return _mean_error(self.ks), _mean_error(self.wd)

    @property
    def noise_floor(self) -> float:
        """The median KS that a perfect model would show with these numbers of rows and draws."""
        return KS_MEDIAN * float(
            np.sqrt(1.0 / self.n_effective + 1.0 / self.effective_sample_size)
        )

    def worst(self, n: int = 5, by: str = "ks") -> list[Direction]:
        """The directions with the largest distance, largest first.

        Parameters
        ----------
        n : int, default 5
            Number of directions; all of them if there are fewer.
        by : {"ks", "wd"}, default "ks"
            The distance that decides.

        Returns
        -------
        list of Direction
        """
        check_choice("by", by, ("ks", "wd"))
        order = np.argsort(-getattr(self, by), kind="stable")[: whole("n", n)]
        return [
            Direction(
                ks=float(self.ks[k]), wd=float(self.wd[k]), ks_error=float(self.ks_error[k]),
                wd_error=float(self.wd_error[k]),
                vector=dict(zip(self.columns, self.directions[k].tolist(), strict=True)),
            )
            for k in order
        ]

    def summary(self) -> str:
        """Text: distances over directions, worst directions and columns, and the scores.

        Returns
        -------
        str
            Several lines. Unknown errors are left out.
        """
        unit = "standard deviations" if self.units == "standardized" else "the units of the data"
        lines = []
        if len(self.columns) > 1:  # else all directions are alike
            lines = [
                f"median  {_pair_text(self.median, self.median_error)}",
                f"mean    {_pair_text(self.mean, self.mean_error)}",
            ]
        lines += [
            f"units   {self.units}: WD is in {unit}",
            f"noise   KS {self.noise_floor:.4f}: the median for a perfect model, with "
            f"{self.n_effective:,.0f} rows and {self.effective_sample_size:,.0f} effective draws",
        ]
        if len(self.columns) > 1:
            lines += [f"worst   {direction}" for direction in self.worst(SUMMARY_DIRECTIONS)]
        by_ks = sorted(self.by_column, key=lambda column: -column.ks)
        lines += [f"column  {column}" for column in by_ks[:SUMMARY_COLUMNS]]
        if len(by_ks) > SUMMARY_COLUMNS:
            lines.append(f"        {len(by_ks) - SUMMARY_COLUMNS} more columns are in by_column")
        return "\n".join([
            *lines, f"log-likelihood  {self.log_likelihood or 'not known'}",
            f"Fisher score    {self.fisher_score or 'not known'}",
        ])  # fmt: skip


def direction_text(vector: Array, columns: list[str], n: int = 3) -> str:
    """A direction by its n largest coefficients: "0.81 length - 0.52 width + ..."."""
    shown = np.flatnonzero(np.abs(vector) >= SHOWN_COEFFICIENT)
    order = shown[np.argsort(-np.abs(vector[shown]), kind="stable")]
    terms = [f"{'-' if vector[k] < 0 else '+'} {abs(vector[k]):.2f} {columns[k]}" for k in order]
    text = " ".join(terms[:n])
    text = text[2:] if text.startswith("+") else "-" + text[2:]
    return text + (" + ..." if len(order) > n else "")


def rows_text(n: int) -> str:
    """"1 row", "1,234 rows"."""
    return "1 row" if n == 1 else f"{n:,} rows"


def median_error(values: Array) -> float:
    """Standard error of a median: half the gap between order statistics one s.d. of rank apart."""
    n = len(values)
    if n < 4:
        return float("nan")
    half = 0.5 * np.sqrt(n)
    low, high = int(np.floor(0.5 * n - half)), int(np.ceil(0.5 * n + half)) - 1
    ordered = np.sort(values)
    return float(ordered[min(high, n - 1)] - ordered[max(low, 0)]) / 2.0


def _mean_error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _plus_minus(error: float, digits: str) -> str:
    """" ± 0.01", or nothing if the error is not known."""
    return f" ± {error:{digits}}" if np.isfinite(error) else ""


def _pair_text(pair: tuple[float, float], error: tuple[float, float]) -> str:
    ks = f"KS {pair[0]:.4f}{_plus_minus(error[0], '.4f')}"
    return f"{ks}   WD {pair[1]:.4g}{_plus_minus(error[1], '.2g')}"
