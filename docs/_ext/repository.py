"""Sphinx: links that leave docs/ stay on the site. Sources become pages; pages that include a file stand for it."""

import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

DOCS = pathlib.Path(__file__).parents[1]
ROOT = DOCS.parent
INCLUDE = re.compile(r"^```\{include\} (\S+)$", re.MULTILINE)


def included_files() -> dict[pathlib.Path, str]:
    """Names of pages by the file of the repository that they include."""
    pages = {ROOT / "README.md": "index"}
    for page in DOCS.rglob("*.md"):
        if "_build" not in page.parts and (found := INCLUDE.search(page.read_text(encoding="utf-8"))):
            pages[(page.parent / found[1]).resolve()] = page.relative_to(DOCS).with_suffix("").as_posix()
    return pages


def stay_on_the_site(app: Sphinx, doctree: nodes.document) -> None:
    docname, pages = app.env.docname, included_files()
    page = pathlib.Path(app.env.doc2path(docname))
    included = [file.parent for file, name in pages.items() if name == docname and docname != "index"]
    linked = app.env.__dict__.setdefault("linked_files", {})[docname] = set()
    for link in list(doctree.findall(addnodes.pending_xref)) + list(doctree.findall(addnodes.download_reference)):
        target, _, anchor = link["reftarget"].partition("#")
        if link.get("refdomain") == "doc":  # the name of a page, which MyST has read as below docs/
            target, anchor = os.path.relpath(DOCS / f"{target}.md", page.parent), link.get("reftargetid")
        if link.get("reftype") != "myst" or (link["reftarget"] in app.env.found_docs and not included):
            continue
        path = next((path for f in (*included, page.parent) if (path := (f / target).resolve()).exists()), None)
        if path is None or path == page:
            continue
        name = pages.get(path) or pages.get(path / "README.md")
        if name is None and path.suffix == ".md" and path.is_relative_to(DOCS):
            name = path.relative_to(DOCS).with_suffix("").as_posix()
        if name is not None:
            anchor = "" if name == "index" else anchor  # which has other headings than README.md
            to = {"refdomain": "doc", "reftarget": name, "reftargetid": anchor or None}
            new: nodes.Element = addnodes.pending_xref("", reftype="myst", refdoc=docname, refexplicit=True, **to)
        elif path.is_dir():
            link.replace_self(link.children)
            continue
        elif path.is_relative_to(DOCS):
            continue
        else:
            linked.add(file := path.relative_to(ROOT).as_posix())
            uri = app.builder.get_relative_uri(docname, f"files/{file}")
            new = nodes.reference("", "", internal=True, refuri=uri)
        new += link.children
        link.replace_self(new)


def pages_of_sources(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    for file in sorted(set().union(*app.env.__dict__.get("linked_files", {}).values())):
        text = (ROOT / file).read_text(encoding="utf-8")
        code = app.builder.highlighter.highlight_block(
            text, "python" if file.endswith(".py") else "text", location=file
        )
        yield f"files/{file}", {"title": file, "body": f"<h1><code>{file}</code></h1>\n{code}"}, "page.html"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", stay_on_the_site, priority=300)  # before Sphinx collects downloads
    app.connect("html-collect-pages", pages_of_sources)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
