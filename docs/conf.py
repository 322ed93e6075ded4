"""Sphinx configuration. Build the site with: sphinx-build -W docs docs/_build/html"""

import re
import sys
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

import tgpfast

sys.path.insert(0, str(Path(__file__).parent))  # so that the gallery can import this file

project = "tgpfast"
author = "the tgpfast developers"
copyright = "the tgpfast developers"
version = release = tgpfast.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "examples", "gallery/*.py", "gallery/*.ipynb"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = False  # types in docstrings are words, such as "array, (n, d)"

# -- API reference --------------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"  # docstrings give types, with shapes and units
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the class template lists them
numpydoc_xref_param_type = False

# -- pages ----------------------------------------------------------------------------------------
myst_heading_anchors = 3



# -- gallery --------------------------------------------------------------------------------------
def scrape_figures(block, block_vars, gallery_conf):
    """Save the figures of tgpfast.plot, which pyplot does not know and the usual scraper misses."""
    if block[0] != "code":
        return ""
    scraped.extend(plt.figure(number) for number in plt.get_fignums())  # the next scraper's
    paths = []
    for value in block_vars["example_globals"].values():
        if isinstance(value, Figure) and value not in scraped:
            scraped.append(value)
            paths.append(next(block_vars["image_path_iterator"]))
            value.savefig(paths[-1], dpi=100)
    return figure_rst(paths, gallery_conf["src_dir"])


scraped = []
sphinx_gallery_conf = {
    "examples_dirs": ["examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "capture_repr": (),  # only what an example prints
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("conf.scrape_figures", "matplotlib"),
    "min_reported_time": 1_000_000,
    "write_computation_times": False,
}

# -- HTML -----------------------------------------------------------------------------------------
html_theme = "furo"
html_title = "tgpfast"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False


def escape_bars(app, what, name, obj, options, lines):
    """Escape "|" outside of literals: |x| is a length in docstrings, a name for Sphinx."""
    for k, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(``.*?``)", line)
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[k] = "".join(parts)


def setup(app):
    app.connect("autodoc-process-docstring", escape_bars)
