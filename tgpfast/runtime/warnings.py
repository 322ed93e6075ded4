"""Warnings that point at the user's line, whatever the depth they come from."""

from __future__ import annotations

import functools
import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_BETWEEN = (functools.__file__,)  # a cached property is computed by a call from there


def tell(message: str) -> None:
    """A RuntimeWarning at the nearest caller outside this package."""
    level, frame = 1, sys._getframe()
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
        level += 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def _is_ours(file: str) -> bool:
    return file in _BETWEEN or os.path.abspath(file).startswith(_PACKAGE)
