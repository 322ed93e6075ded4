"""What the modules that answer questions need of a density, and the exponent zero."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...bases.base import Base
from ...data.scaling import Scaling
from ...data.table import Table
from ...features.random import Features
from ...kernels.thread_choice import Threads
from ..exponents.exponent import PointTilt, Tilt
from ..normalizing.integration import Integrator
from ..normalizing.normalizer import Normalizer


class TiltedDensity(Protocol):
    """The attributes of `Density` that answers are computed from."""

    method: str
    tilt: Tilt
    base: Base
    scaling: Scaling
    table: Table
    threads: Threads
    integrator: Integrator

    @property
    def dimension(self) -> int:
        """Number of columns d."""

    @property
    def log_normalizer(self) -> Normalizer:
        """log Z with its error."""


def zero_tilt(d: int) -> PointTilt:
    """The exponent of a density of d columns that is its base alone."""
    return PointTilt(Features(np.zeros((1, d)), np.zeros(1), 1.0), np.zeros(1), np.zeros(d))
