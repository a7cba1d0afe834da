"""The program of a function as a tree of modules and operations, as text or as HTML."""

from hkx.jaxprs.cost import count_flops as count_flops
from hkx.tools.jaxpr_html import as_html as as_html
from hkx.tools.jaxpr_html import as_html_page as as_html_page
from hkx.tools.jaxpr_html import css as css
from hkx.tools.jaxpr_html import format_module as format_module
from hkx.tools.jaxpr_html import js as js
from hkx.tools.jaxpr_info import Expression as Expression
from hkx.tools.jaxpr_info import Module as Module
from hkx.tools.jaxpr_info import make_model_info as make_model_info

__all__ = [
    "Expression",
    "Module",
    "as_html",
    "as_html_page",
    "count_flops",
    "css",
    "format_module",
    "js",
    "make_model_info",
]
