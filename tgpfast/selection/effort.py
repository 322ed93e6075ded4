"""How much work the choice of settings may take: one budget for a whole `fit`."""

from __future__ import annotations

from dataclasses import replace

from ..runtime.records import record
from ..statistics.transforms import TRANSFORM_DIMENSIONS
from .folds import FEW_ROWS, N_FOLDS

# Operations that the growth of mixtures may take: some 5 s on one core.
GROWTH_WORK = 6e10
MANY_ROWS_MEMBERS = 3  # mixtures that are grown on many rows and averaged
# Columns above which one mixture of many rows takes the work of two: three that shared the work in
# 28 columns (HIGGS) stayed small, and lost 3.1 nats per row.
MANY_COLUMNS = 16
EFFORTS = ("fast", "balanced", "thorough")
FULL_SCREEN_FEATURES = 192  # features of a candidate, at most: comparing needs fewer than learning
FULL_LOG2_DRAWS = 13  # draws behind a normalizer, and nodes of MAP, as a power of two
FULL_MAP_DRAWS = 2**15  # draws behind MAP's expectations of the model
# Up to so many rows the choice is careful: only MAP tilts. On 50 to 200 rows of ten distributions
# score matching lost up to 0.16 nats per row to the base, MAP 0.02, and both gained as much on
# average; on 400 and 800 rows score matching lost no more, and gained more at hard edges.
CAREFUL_ROWS = 300


@record
class Budget:
    """What the choice of settings may try.

    Attributes
    ----------
    growth_work : float
        Floating-point operations that the growth of all mixtures may take.
    n_folds : int
        Parts of few rows that are held out in turn, of N_FOLDS; a mixture is grown without each.
    n_members : int
        Mixtures that are averaged.
    has_kernel : bool
        Whether a kernel estimate of few rows may be added to them.
    n_brief : int or None
        Settings of the features that MAP tries in a brief search; None searches in full.
    screen_features : int
        Features of a candidate.
    log2_draws : int
        Draws behind the normalizer of a candidate, and nodes of MAP, as a power of two.
    most_features : int or None
        Features of the model where their number is open; None leaves it to the number of rows.
    map_draws : int
        Draws behind MAP's expectations of the model.
    """

    growth_work: float = GROWTH_WORK
    n_folds: int = N_FOLDS
    n_members: int = MANY_ROWS_MEMBERS
    has_kernel: bool = False
    n_brief: int | None = None
    screen_features: int = FULL_SCREEN_FEATURES
    log2_draws: int = FULL_LOG2_DRAWS
    most_features: int | None = None
    map_draws: int = FULL_MAP_DRAWS

    @classmethod
    def for_rows(cls, effort: str, n_rows: int, d: int) -> Budget:
        """The budget of an effort for so many distinct rows of d columns.

        Up to three columns, and with effort="thorough", the search is full. Else it is brief: in
        more columns a grown mixture leaves little to a tilt, and what little there is, features of
        one or two columns find first. Up to three columns one mixture is kept, since integrals take
        a grid for each component. A kernel estimate gains on few tables, takes long to evaluate,
        and makes the rows that it is learned from look likely: only "thorough" tries it.
        """
        is_few, is_careful = n_rows <= FEW_ROWS, n_rows <= CAREFUL_ROWS
        is_fast, is_low = effort == "fast", d <= TRANSFORM_DIMENSIONS
        folds = 2 if is_fast else N_FOLDS
        if is_careful and effort == "balanced" and not is_low:
            folds = N_FOLDS - 1  # 100 rows of six columns then take 0.25 s
        work = {"fast": 0.2, "balanced": 1.0, "thorough": 5.0}[effort] * GROWTH_WORK
        several = folds if is_few else 1 if is_fast else MANY_ROWS_MEMBERS
        if d > MANY_COLUMNS and not is_few and not is_fast:
            several, work = 1, 2.0 / MANY_ROWS_MEMBERS * work
        common = cls(
            growth_work=work, n_folds=folds, n_members=1 if is_low else several,
            has_kernel=effort == "thorough" and not is_low,
        )  # fmt: skip
        if effort == "thorough":
            return common
        if is_low:
            return replace(
                common, screen_features=96 if is_careful else 128 if is_few else 192,
                log2_draws=11 if is_careful else 12 if is_few else 13,
            )  # fmt: skip
        return replace(
            common,
            n_brief=1 if is_careful else 3 if is_fast else 9,
            screen_features=64 if is_careful else 128 if is_few else 192,
            log2_draws=10 if is_careful else 11 if is_few else 12,
            most_features=128 if is_fast or is_careful else 256 if is_few else 500,
            map_draws=2**12 if is_careful else 2**13 if is_few else 2**14,
        )
