"""The warnings of tgpfast, and a function that attributes them to the user's line."""

from __future__ import annotations

import functools
import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SKIPPED = (functools.__file__,)  # functools calls the functions of cached properties


class TGPWarning(RuntimeWarning):
    """Parent of every warning of tgpfast: ``warnings.simplefilter("ignore", tgp.TGPWarning)``."""


class PoorNormalizerWarning(TGPWarning):
    """The mass of a density is not known well enough to trust its values or its samples."""


class PoorFitWarning(TGPWarning):
    """A fitted density failed a check against the rows: mass far from them, or other margins."""


class PoorSampleWarning(TGPWarning):
    """A sample is worth fewer independent rows than it has."""


class PrecisionWarning(TGPWarning):
    """Rounding or an ill-conditioned system limits the accuracy of a result."""


class DataWarning(TGPWarning):
    """The rows are unusual: discrete or tied columns, rounding, dropped rows, outliers."""


class FallbackWarning(TGPWarning):
    """Another engine, solver or reader than the one expected did the work."""


def warn(message: str, category: type[TGPWarning]) -> None:
    """Emit a warning that names the nearest caller outside this package.

    Parameters
    ----------
    message : str
    category : type of TGPWarning
    """
    level, frame = 1, sys._getframe()
    while frame is not None and _is_skipped(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _is_skipped(file: str) -> bool:
    return file in _SKIPPED or os.path.abspath(file).startswith(_PACKAGE)
