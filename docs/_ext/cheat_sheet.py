"""Every public name of rlx with one line, by family: pages, docstrings and the glossary. Knows nothing of Sphinx."""

import importlib
import inspect
import pathlib
import re

from public_names import BLOCK, ROOT

INDEX = ROOT / "docs" / "api" / "rlx" / "index.md"


def families() -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Triples of a page's name, its title, and its names, each with one line and the names it has elsewhere."""
    pages = INDEX.read_text(encoding="utf-8").split("```")[1].split("\n\n")[1].split()
    return [family(INDEX.with_name(f"{page}.md")) for page in pages]


def family(page: pathlib.Path) -> tuple[str, str, list[tuple[str, str, str]]]:
    text = page.read_text(encoding="utf-8")
    names = [f"{module}.{name}" for module, listed in BLOCK.findall(text) for name in listed.split()]
    return page.stem, text.split("\n")[0].removeprefix("# "), [(name, line_of(name), elsewhere(name)) for name in names]


def line_of(name: str) -> str:
    """The first sentence of the docstring."""
    module, _, last = name.rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(module), last)) or ""
    return re.split(r"(?<=[.:])\s*\n|\n\n|(?<=\w\.) (?=[A-Z])", text)[0].replace("\n", " ")


def elsewhere(name: str) -> str:
    """The field's other names of it, from the glossary that error messages use."""
    glossary = importlib.import_module("rlx.core.glossary").OF_RLX
    return ", ".join(other for other, advice in glossary.items() if advice.startswith(f"`{name}`"))
