"""Pictures of densities. matplotlib is imported only when a picture is drawn.

Every function returns a matplotlib Figure: write it with ``figure.savefig(path)`` or `save`; a
notebook shows it. ``models`` is one model, or a mapping from titles to models. A model is any
object with ``log_density(Y)`` or ``sample(n, seed)``, whichever the picture needs.

Each picture has a module. They share `canvas` (figures, colors, points, legends), `plotted_rows`
(rows and the limits of axes), `model_limits` (axes of a model, with periods and discrete columns)
and `plane` (two columns).
"""

from .canvas import BLACK, BLUE, CURVES, STYLES, VERMILION, require_matplotlib, save
from .cdf_picture import marginal_cdfs
from .cell_picture import probability_cells
from .conditional_picture import conditional_bands
from .curve_picture import density_curve
from .diagnostics_picture import diagnostics
from .model_picture import plot_model
from .pair_picture import pairs
from .plane import MASSES, mass_levels
from .plane_pictures import contours, density_figure, noise_ladder, samples
from .region_contours import region_contours
from .region_picture import highest_density_region
from .scatter_picture import density_scatter
from .selection_picture import selection

__all__ = [
    "BLACK",
    "BLUE",
    "CURVES",
    "MASSES",
    "STYLES",
    "VERMILION",
    "conditional_bands",
    "contours",
    "density_curve",
    "density_figure",
    "density_scatter",
    "diagnostics",
    "highest_density_region",
    "marginal_cdfs",
    "mass_levels",
    "noise_ladder",
    "pairs",
    "plot_model",
    "probability_cells",
    "region_contours",
    "require_matplotlib",
    "samples",
    "save",
    "selection",
]
