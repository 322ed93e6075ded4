"""`AnsweringDensity`: the methods of `Density` that answer questions about probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..bases.base import Base
from ..bases.domain import domain_of
from ..data.scaling import Scaling
from ..data.table import Table
from ..kernels.thread_choice import Threads
from ..validation import Array, Seed, as_seed, check_choice
from .answers.column_choice import check_level, find_columns, read_values
from .answers.questions import SharedQuestions
from .exponents.exponent import Tilt
from .normalizing.integration import Integrator
from .normalizing.normalizer import Normalizer

if TYPE_CHECKING:
    from .answers.answer import Answer
    from .answers.credible import CredibleBand
    from .answers.local_modes import Modes
    from .answers.regions import HighestDensityRegion


class AnsweringDensity(SharedQuestions):
    """Probabilities, quantiles and expectations of a density, each with its error.

    In one to three columns they are integrals on grids; in more columns, and in three for mixtures
    of more than eight components, whose grids take minutes, means over 131,072 quasi-random draws.
    A density that is its base alone has closed forms where there are any.
    """

    method: str
    tilt: Tilt
    base: Base
    scaling: Scaling
    table: Table
    threads: Threads
    integrator: Integrator
    settings: dict[str, Any]

    @property
    def dimension(self) -> int:
        """Number of columns d."""
        return self.base.dimension

    @property
    def log_normalizer(self) -> Normalizer:
        """log Z with its standard error and effective sample size, estimated once.

        Returns
        -------
        Normalizer
            ``value``, ``standard_error``, ``effective_sample_size``, ``is_poor`` and more. A
            `PoorNormalizerWarning` says where too few points carry the density to trust it.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.log_normalizer.method, model.log_normalizer.is_poor
        ('quadrature', False)
        """
        return self.integrator.log_normalizer

    # -- probabilities -----------------------------------------------------------------------------

    def _find_probability(self, low: Array, high: Array, seed: int) -> Answer:
        from .answers.probabilities import box_probability

        return box_probability(self, low, high, seed)

    def _evaluate_cdf(
        self, values: Array, chosen: list[int], seed: int, with_error: bool
    ) -> tuple[Array, Array]:
        from .answers.periodic_boxes import move_upper_bounds
        from .answers.probabilities import box_probabilities, column_cdf

        domain, scales = domain_of(self.base).choose(chosen), self.scaling.choose(chosen)
        if domain.periodic.any():
            moved = scales.invert(move_upper_bounds(domain, scales.apply(values)))
            values = np.where(domain.periodic, moved, values)
        if len(chosen) == 1:
            cdf, places = column_cdf(self, chosen[0], seed), values[:, 0]
            found = cdf.function(places)
            return found, cdf.error(places) if with_error else found
        high = np.full((len(values), self.dimension), np.inf)
        high[:, chosen] = values
        return box_probabilities(self, np.full_like(high, -np.inf), high, seed)[:2]

    def _find_quantiles(self, column: int, levels: Array, seed: int) -> Array:
        from .answers.probabilities import find_quantiles

        return find_quantiles(self, column, levels, seed)

    # -- expectations ------------------------------------------------------------------------------

    def expectation(
        self, function: Callable[[Any], Any], *, method: str = "auto", seed: Seed = 0
    ) -> Answer:
        """Mean of a function of rows.

        Parameters
        ----------
        function : callable
            Takes rows (n, d) in the units of the data, of the kind that ``sample`` returns, and
            returns one number for each, (n,).
        method : {"auto", "quadrature", "draws"}, default "auto"
            "auto" is quadrature up to three columns, and draws elsewhere and for mixtures of more
            than eight components in three columns. Quadrature suits smooth functions; for those
            with jumps use "draws".
        seed : int, None or numpy.random.Generator, default 0
            Of the draws.

        Returns
        -------
        Answer
            A float with ``standard_error`` and ``method``.

        Raises
        ------
        TypeError, ValueError
            The function is none or returns another shape, or the method does not serve.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> round(model.expectation(lambda rows: rows[:, 0]))
        5
        """
        from .answers.expectations import EXPECTATION_METHODS, expect_of_rows

        check_choice("method", method, EXPECTATION_METHODS)
        if not callable(function):
            raise TypeError(
                f"function={function!r}: expected a function of rows (n, d) that returns one "
                "number for each"
            )
        return expect_of_rows(self, function, method, as_seed(seed))

    def entropy(self, *, seed: Seed = 0) -> Answer:
        """Differential entropy E[-log q] in nats, in the units of the data.

        Parameters
        ----------
        seed : int, None or numpy.random.Generator, default 0
            Of the draws, in more than three columns.

        Returns
        -------
        Answer
            A float with ``standard_error`` and ``method``.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> round(model.entropy(), 1)  # of the Gaussian: log(2 sqrt(2 pi e)) = 2.11
        2.1
        """
        from .answers.expectations import entropy_of

        return entropy_of(self, as_seed(seed))

    def _find_information(self, one: list[int], two: list[int], seed: int) -> Answer:
        from .columns.information import find_information

        part = self.marginal(one + two)
        if isinstance(part, AnsweringDensity) and part.dimension < self.dimension:  # a closed form
            split = len(one)
            return part._find_information(
                list(range(split)), list(range(split, part.dimension)), seed
            )
        return find_information(self, one, two, seed)

    def _find_divergence(self, other: Any, seed: int) -> Answer:
        from .answers.expectations import divergence_of

        return divergence_of(self, other, seed)

    # -- regions and modes -------------------------------------------------------------------------

    def highest_density_region(self, level: float, *, seed: Seed = 0) -> HighestDensityRegion:
        """The smallest set of rows that holds a share of the probability.

        Parameters
        ----------
        level : float
            The share, in (0, 1).
        seed : int, None or numpy.random.Generator, default 0
            Of the 131,072 draws that give the threshold, and of those that check it.

        Returns
        -------
        HighestDensityRegion
            With ``threshold``, ``contains(Y)``, ``probability``, ``standard_error``, ``volume`` and
            ``plot()``.

        Raises
        ------
        ValueError
            The level is not in (0, 1).

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> region = model.highest_density_region(0.9)
        >>> bool(abs(region.probability - 0.9) < 5 * region.standard_error)
        True
        """
        from .answers.regions import find_region

        return find_region(self, check_level("level", level), as_seed(seed))

    def mode(self, *, min_share: float = 0.01, seed: Seed = 0) -> Modes:
        """All local maxima of the density that carry a share of the probability.

        Newton's method climbs from 400 draws; the share of a mode is that of the draws that end
        there.

        Parameters
        ----------
        min_share : float, default 0.01
            Modes with a smaller share are left out, but for the highest one where all are smaller;
            in (0, 1).
        seed : int, None or numpy.random.Generator, default 0
            Of the draws.

        Returns
        -------
        Modes
            With ``value`` (places, the highest first), ``log_density``, ``share`` and
            ``standard_error`` of the shares.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal([[-3.0], [3.0]], 1.0, size=(2, 1000)).reshape(-1, 1)
        >>> model = tgpfast.fit(x, method="map", lam=1.0, n_features=50, base="empirical")
        >>> np.sort(model.mode().value[:, 0]).round(0).tolist()
        [-3.0, 3.0]
        """
        from .answers.local_modes import find_local_modes

        return find_local_modes(self, check_level("min_share", min_share), as_seed(seed))

    def credible_band(self, Y: Any, *, level: float = 0.9, seed: Seed = 0) -> CredibleBand:
        """Uncertainty of the log density itself, for models learned with method="fvpd".

        400 draws of theta from its posterior (Eq. posterior of the paper) give as many densities,
        each with its own normalizer; the ends of the band are quantiles of their log densities.

        The posterior is that of score matching with a tempering eta, not of a likelihood, and it
        leaves out the choice of settings and of features, and what a strong prior smooths away. So
        coverage is below ``level``: in simulations with two normals in each column, lambda 1, and
        300 and 2,000 rows, bands of 0.9 held 0.88 and 0.84 of the true values in one column, and
        0.78 and 0.76 in two; with lambda 1,000, which smooths far too much, 0.05 and 0.07.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, d) in the units of the data.
        level : float, default 0.9
            Posterior probability between the ends, at each row by itself; in (0, 1).
        seed : int, None or numpy.random.Generator, default 0
            Of the draws.

        Returns
        -------
        CredibleBand
            With ``lower``, ``median`` and ``upper``, (n,) each: log densities.

        Raises
        ------
        ValueError
            The model was learned by another method, or the level is not in (0, 1).

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 1))
        >>> model = tgpfast.fit(x, method="fvpd", lam=1.0, n_features=50, base="empirical")
        >>> band = model.credible_band([[5.0], [11.0]])
        >>> width = band.upper - band.lower
        >>> bool(width[0] < width[1])
        True
        """
        from .answers.credible import check_band, find_band

        check_band(self)
        share = check_level("level", level)
        rows = self._read_rows(Y).whole()
        return find_band(self, self.scaling.apply(rows), share, as_seed(seed))

    def explain(self, Y: Any) -> Any:
        """Which columns make rows unlikely.

        The value of a column is the log density of the row less that of the same row with this
        column at its best value, given the other columns: 0 where the column is as it should be,
        and far below 0 where the row would be much likelier with another value.

        Parameters
        ----------
        Y : array-like or data frame
            Rows (n, d) in the units of the data.

        Returns
        -------
        array, (n, d); a frame where Y is one
            At most 0. -inf where the column alone makes the density zero; 0 where no value of the
            column helps.

        Raises
        ------
        ValueError
            Y has other columns, or values that are not finite.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 2))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> int(model.explain([[5.0, 14.0]]).argmin())
        1
        """
        from .columns.explaining import explain_rows

        blocks = self._read_rows(Y)
        return blocks.table.frame(explain_rows(self, self.scaling.apply(blocks.whole())))

    # -- marginals and conditionals ----------------------------------------------------------------

    def marginal(self, columns: Any) -> Any:
        """The density of some columns, whatever the others are.

        Parameters
        ----------
        columns : str, int or sequence of them
            Columns to keep, in the order wanted.

        Returns
        -------
        MarginalDensity or Density
            With ``log_density`` (and its errors), ``grad_log_density``, ``sample``, ``cdf``,
            ``quantile``, ``probability``, ``save`` and more. Where the density is its base alone,
            and the base has marginals of a closed form, it is a `Density`.

        Raises
        ------
        ValueError
            A column is not known, or is given twice.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(5.0, 2.0, size=(1000, 3))
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.marginal([0, 2]).log_density([[5.0, 5.0]]).shape
        (1,)
        """
        from ..bases.conditioning import marginal_base
        from .answers.tilted_density import zero_tilt
        from .columns.conditionals import choose_names
        from .columns.marginals import MarginalDensity

        chosen = find_columns(columns, self.table.columns, self.dimension)
        if chosen == list(range(self.dimension)):
            return self
        known = marginal_base(self.base, chosen) if self.tilt.is_zero else None
        if known is None:
            return MarginalDensity(self, chosen)
        return replace(  # type: ignore[type-var]
            self, tilt=zero_tilt(len(chosen)), base=known, selection=None, statistics=None,
            scaling=self.scaling.choose(chosen), table=choose_names(self.table, chosen),
        )  # fmt: skip

    def conditional(self: Model, given: Any) -> Any:
        """The density of the other columns, given values of some.

        It is exact: the tilt with the given columns held fixed, on the base given their values.

        Parameters
        ----------
        given : mapping or data frame
            Values by column, in the units of the data. With one value for each column: at least one
            column, and not all. With a sequence of values for each column, or a frame: all columns
            but one. Values of periodic columns may lie in any period.

        Returns
        -------
        Density or ConditionalTable
            For single values a `Density` of the other columns, with a normalizer of its own. For
            sequences a `ConditionalTable`: mean, standard deviation and quantiles of the column
            that is left, for every row.

        Raises
        ------
        ValueError
            A column is not known, or the density is zero at the values.

        Examples
        --------
        >>> import numpy as np, tgpfast
        >>> x = np.random.default_rng(0).normal(size=(1000, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
        >>> model = tgpfast.fit(x, method="fd", lam=10.0, n_features=50, base="empirical")
        >>> model.conditional({0: 1.0}).dimension
        1
        >>> table = model.conditional({0: [-1.0, 0.0, 1.0]})
        >>> bool(table.mean[0] < table.mean[2]), table.band(0.9).shape
        (True, (3, 2))
        """
        from .columns.conditionals import condition_on_table, conditional_fields, is_table_of_values

        if is_table_of_values(given):
            return condition_on_table(self, given)
        values = read_values(given, self.table.columns, self.dimension, "given")
        names = self.table.columns
        record = {str(k if names is None else names[k]): v for k, v in values.items()}
        earlier = self.settings.get("given", {})
        return replace(
            self, **conditional_fields(self, values), selection=None, statistics=None,
            # with the columns fixed it is a density of its own, and noise is added to all of them
            method="fd" if self.method == "ncfd" else self.method, diagnostics={},
            settings={**self.settings, "given": {**earlier, **record}},
        )  # type: ignore[type-var]  # fmt: skip


Model = TypeVar("Model", bound=AnsweringDensity)
