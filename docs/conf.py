"""How the site is made: ``nox -s docs``."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import mildroute

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

# An example asks a gateway, and every request would be told.
logging.getLogger("httpx").setLevel(logging.WARNING)

project = "mildroute"
author = "mildroute contributors"
copyright = "2026, mildroute contributors"
version = release = os.environ.get("MILDROUTE_DOCS_VERSION", mildroute.__version__)

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "myst_parser",
    "accessible",
    "api_pages",
    "mathml",
    "thumbnails",
]
exclude_patterns = ["_build", "_ext", "figures/*.md", "proposals/*.md"]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]
# Docstrings speak of types of other projects, to which there are no links without a network.
nitpicky = False

myst_enable_extensions = [
    "attrs_block",
    "attrs_inline",
    "colon_fence",
    "deflist",
    "dollarmath",
    "fieldlist",
]
myst_heading_anchors = 4

autodoc_member_order = "alphabetical"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autosummary_generate = False
napoleon_google_docstring = True
napoleon_attr_annotations = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_use_unqualified_type_names = True
add_module_names = False
# Else napoleon writes an attribute such as ``weights_`` without its underscore.
strip_signature_backslash = True

# Without the data sets, which are not in the repository, examples that read them are not run.
not_run = [
    path.stem
    for path in (Path(__file__).parents[1] / "examples" / "gallery").glob("plot_*.py")
    if "MILDROUTE_DATA" not in os.environ and "MILDROUTE_DATA" in path.read_text(encoding="utf-8")
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": rf"/(?!({'|'.join(not_run)})\.)plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "capture_repr": (),
    "first_notebook_cell": None,
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 0,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "reference_url": {"mildroute": None},
}

html_theme = "furo"
html_title = f"mildroute {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#7cb8ff", "color-brand-content": "#7cb8ff"},
    "navigation_with_keys": True,
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/versions.html",
        "sidebar/scroll-end.html",
    ]
}
