"""Sphinx: the block ```{api} module``` documents the names that it lists, and the build fails for a name on no page.

Equations become MathML, which browsers set themselves: no script, and nothing to fetch.
"""

import importlib
import inspect
import pathlib
import re
from typing import Any

import cheat_sheet
import docstrings
import signatures
from docutils import nodes
from docutils.statemachine import StringList
from latex2mathml.converter import convert
from public_names import complaints, public_names
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.ext.autodoc.mock import mock
from sphinx.ext.viewcode import viewcode_anchor
from sphinx.util.docutils import SphinxDirective

DOCS = pathlib.Path(__file__).parents[1]
LONGEST_KERNEL = 14  # lines that are shown with an operator; longer ones are a click away
PUBLIC = public_names()
ERRORS = {name.rpartition(".")[2] for name in PUBLIC if name.startswith("hkx.errors.")}


def value_of(name: str) -> Any:
    module, _, last = name.rpartition(".")
    with mock(["flax", "torch"]):
        return getattr(importlib.import_module(module), last)


class Api(SphinxDirective):
    """One entry for each name; what is only another name of the same thing points to it."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        lines = ["```{eval-rst}"]
        for name in "\n".join(self.content).split():
            lines += [*self.entry(f"{self.arguments[0]}.{name}"), ""]
        source, line = self.get_source_info()
        return self.parse_text_to_nodes(StringList([*lines, "```"], source=f"{source}:{line}"))

    def entry(self, name: str) -> list[str]:
        package, _, last = name.rpartition(".")
        value, above = value_of(name), f"hkx.{last}"
        if package == "hkx.experimental" and above in PUBLIC and value_of(above) is value:
            return [f".. py:data:: {name}", "", f"   The same as :py:obj:`{above}`."]
        if package == "hkx.experimental.flax":
            return [f".. py:data:: {name}", "", f"   The same as :py:obj:`hkx.interop.flax.{last}`."]
        if isinstance(value, type) and issubclass(value, BaseException):
            return [f".. autoexception:: {name}"]
        if inspect.isclass(value):
            return [f".. autoclass:: {name}", "   :members:", "   :special-members: __call__"]
        if callable(value) and hasattr(value, "__name__"):
            return [f".. autofunction:: {name}"]
        no_value = ["   :no-value:"] if name.startswith(("rlx", "hkx.arguments")) else []
        return [f".. autodata:: {name}", *no_value]


class CheatSheet(SphinxDirective):
    """A table for each family of rlx: name, one line, and other names in brackets."""

    def run(self) -> list[nodes.Node]:
        lines = []
        for page, title, rows in cheat_sheet.families():
            lines += [f"## [{title}](../api/rlx/{page}.md)", "", "```{eval-rst}", ".. list-table::", ""]
            for name, line, others in rows:
                [quoted] = docstrings.converted([line], set())
                also = f" [{others}]".replace("_", r"\_") if others else ""
                lines += [f"   * - ``{name}``", f"     - {quoted}{also}"]
            lines += ["```", ""]
        return self.parse_text_to_nodes(
            StringList(lines, source=self.get_source_info()[0]), allow_section_headings=True
        )


def set_signature(app, what, name, value, options, arguments, returns):
    if what == "exception":  # the text is made by hkx, and is shown where it is raised
        return None if arguments is None else ("", "")
    if what == "class" and signatures.fields(value) and "__init__" not in vars(value):
        return arguments, returns
    return signatures.signature(value) if what in ("class", "function", "method") else None


def set_docstring(app, what, name, value, options, lines):
    if what == "class" and not any(line.startswith(("Args:", "Attributes:")) for line in lines):
        commented = [(field, comment) for field, comment in signatures.fields(value) if comment]
        if commented:
            lines += ["", "Attributes:", *(f"  {field}: {comment}" for field, comment in commented), ""]
    lines[:] = docstrings.converted(lines, ERRORS)
    if hasattr(value, "kernel"):
        body = signatures.body(value)
        if len(body) <= LONGEST_KERNEL:
            lines += ["", ".. rubric:: In code", "", ".. code-block:: python", "", *(f"   {line}" for line in body), ""]


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """`hkx.scan` in a text leads to its entry."""
    for literal in list(doctree.findall(nodes.literal)):
        found = re.fullmatch(r"(?:((?:hkx|rlx)(?:\.\w+)+)|(\w+))(\(\))?", literal.astext())
        if found is None or isinstance(literal.parent, nodes.reference | addnodes.pending_xref | nodes.title):
            continue
        candidates = [found[1]] if found[1] else [f"{package}.{found[2]}" for package in ("rlx", "hkx")]
        target = next((name for name in candidates if name in PUBLIC), None)
        if target is None or (found[2] and not app.env.docname.startswith(f"api/{target[:3]}/")):
            continue
        link = addnodes.pending_xref(
            "", refdomain="py", reftype="obj", reftarget=target, refdoc=app.env.docname, refexplicit=True
        )
        literal.replace_self(link)
        link += literal


def source_of_aliases(app: Sphinx, doctree: nodes.document) -> None:
    """Another name of a function or class has its source, too, which viewcode finds by the name that it was given."""
    for signature in list(doctree.findall(addnodes.desc_signature)):
        name = (signature.get("ids") or [""])[0]
        if name not in PUBLIC or any(signature.findall(viewcode_anchor)):
            continue
        value = value_of(name)
        first_name = f"hkx.{getattr(value, '__name__', '')}"
        if (inspect.isclass(value) or inspect.isfunction(value)) and first_name in PUBLIC - {name}:
            page = f"_modules/{value.__module__.replace('.', '/')}"
            link = addnodes.only(expr="html")
            link += viewcode_anchor(reftarget=page, refid=value.__qualname__, refdoc=app.env.docname)
            signature += link


def visit_math(self, node: nodes.math) -> None:
    self.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def visit_math_block(self, node: nodes.math_block) -> None:
    self.body.append(f'<div class="equation">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def check_names(app: Sphinx) -> None:
    if wrong := complaints(DOCS / "api"):
        raise ExtensionError("The reference does not hold every public name once:\n" + "\n".join(wrong))


def only_modules_with_sources(app: Sphinx) -> list[Any]:
    """Sphinx's index of sources would list those that it did not find, which stand in for libraries, too."""
    modules = getattr(app.env, "_viewcode_modules", {})
    for name in [name for name, found in modules.items() if not found]:
        del modules[name]
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("api", Api)
    app.add_directive("cheat_sheet", CheatSheet)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("builder-inited", check_names)
    app.connect("autodoc-process-signature", set_signature)
    app.connect("autodoc-process-docstring", set_docstring, priority=400)  # before napoleon reads the sections
    app.connect("doctree-read", link_names)
    app.connect("doctree-read", source_of_aliases, priority=600)  # after viewcode
    app.connect("html-collect-pages", only_modules_with_sources, priority=400)  # before viewcode makes its pages
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
