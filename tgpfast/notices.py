"""Warnings that point at the user's line, whatever the depth they come from."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def tell(message: str) -> None:
    """A RuntimeWarning at the nearest caller outside this package."""
    level, frame = 1, sys._getframe()
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
        level += 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
