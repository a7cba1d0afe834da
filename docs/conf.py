"""The settings of the documentation's build: docs/README.md has the command."""

import os
import pathlib
import sys

DOCS = pathlib.Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

project = "hkx and rlx"
author = "the authors of hkx"
copyright = author
html_title = "hkx and rlx"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "reference",
    "repository",
]
exclude_patterns = ["_build", "_ext", "README.md"]
templates_path: list[str] = []

# Pages. tests/test_guides.py runs their blocks, and compares what these print with what stands beside them.
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
suppress_warnings = ["myst.header"]  # a page's own order of headings

# The reference.
default_role = "literal"
add_module_names = True
maximum_signature_line_length = 88
autodoc_mock_imports = ["flax", "torch"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# Names of other projects become links where the build may ask the network for them.
if os.environ.get("DOCS_ONLINE") or os.environ.get("READTHEDOCS"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "optax": ("https://optax.readthedocs.io/en/latest", None),
    }

html_theme = "furo"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
