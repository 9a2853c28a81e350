"""The site: `make docs` builds it into docs/_build/html. Pages are Markdown that a code host shows as well."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import danl  # noqa: E402

project = "danl"
author = "the authors of danl"
copyright = "the authors of danl, Apache-2.0"
release = version = danl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docstrings",
    "mathml",
    "repository",
]
exclude_patterns = ["_build"]
nitpicky = True
# Types of parameters are prose ("int, sizes or Regions"), and names in backticks may be those of arguments: what is
# checked is every reference to something of danl.
nitpick_ignore_regex = [(r"py:(class|obj|exc)", r"(?!danl\.).*")]

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4

default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"danl {release}"
html_math_renderer = "mathml"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["danl.css"]
pygments_style = "friendly"
