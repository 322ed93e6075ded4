"""Pictures of densities. matplotlib is imported only when a picture is drawn.

Every function returns a matplotlib Figure: write it with ``figure.savefig(path)`` or `save`; a
notebook shows it. ``models`` is one model, or a mapping from titles to models. A model is any
object with ``log_density(Y)`` or ``sample(n, seed)``, whichever the picture needs.
"""

from .canvas import BLACK, BLUE, CURVES, STYLES, VERMILION, require_matplotlib, save
from .cdf_picture import marginal_cdfs
from .diagnostics_picture import diagnostics
from .pair_picture import pairs
from .plane import MASSES, mass_levels
from .plane_pictures import contours, density_figure, noise_ladder, samples
from .region_picture import highest_density_region
from .selection_picture import selection

__all__ = [
    "BLACK",
    "BLUE",
    "CURVES",
    "MASSES",
    "STYLES",
    "VERMILION",
    "contours",
    "density_figure",
    "diagnostics",
    "highest_density_region",
    "marginal_cdfs",
    "mass_levels",
    "noise_ladder",
    "pairs",
    "require_matplotlib",
    "samples",
    "save",
    "selection",
]
