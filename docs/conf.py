"""Sphinx settings. Build with `make docs`; warnings are errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from sphinx_gallery.sorting import ExplicitOrder

from reluscope._version import __version__

project = "Reluscope"
author = "The Reluscope developers"
project_copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
napoleon_google_docstring = False
napoleon_use_ivar = True
# Types such as `array (n, inputs)` are text: with fields, every word in them would become a link to some attribute.
napoleon_use_param = False
napoleon_use_rtype = False
suppress_warnings = ["ref.python"]  # the same for the types of attributes
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_templates", "gallery", "images"]
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Reluscope"
html_static_path = ["_static"]
html_js_files = ["accessible.js"]
html_css_files = ["wide.css"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}  # "undoc-members": False would switch it on in Sphinx 9
autosummary_generate = True
# `Event` and `event` would be one file where the case of letters does not count.
_listed = re.findall(r"^   (reluscope[\w.]+)$", (HERE / "reference.md").read_text(encoding="utf-8"), flags=re.M)
_small = {name for name in _listed if name == name.lower()}
autosummary_filename_map = {name: f"{name}-class" for name in _listed if name not in _small and name.lower() in _small}
# Docstrings are plain text with Markdown-like code marks; single backticks mean code here.
default_role = "code"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r".*\.py",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "plot_gallery": True,
    "nested_sections": False,
    "doc_module": ("reluscope",),
    "backreferences_dir": "auto_gallery/backreferences",
    "subsection_order": ExplicitOrder(
        [f"gallery/pictures_{part}" for part in ("regions", "answers", "data", "layers", "lens")]
    ),
}
