"""Which names are public, and on which pages of the reference they stand. Knows nothing of Sphinx."""

import ast
import importlib
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
NEEDS_ANOTHER_LIBRARY = ("hkx.interop.flax", "hkx.interop.torch", "hkx.experimental.flax")
ON_DEMAND = ("hkx.interop.gguf", "hkx.interop.huggingface", "hkx.interop.safetensors")
BLOCK = re.compile(r"^```\{api\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def submodules() -> list[str]:
    """Every public module besides `hkx` and `rlx` themselves."""
    packages = {name: importlib.import_module(name) for name in ("hkx", "hkx.experimental", "rlx")}
    found = {f"{name}.{module}" for name, face in packages.items() for module in vars(face)["_EXPORTS"][name].split()}
    return sorted({*found, *NEEDS_ANOTHER_LIBRARY, *ON_DEMAND})


def names_of(module: str) -> list[str]:
    """What `module` lists as public; of what needs a library that may not be there, its text is asked."""
    if module not in NEEDS_ANOTHER_LIBRARY:
        return list(getattr(importlib.import_module(module), "__all__", ()))
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    assigned = (node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    return next(ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) == "__all__")


def public_names() -> set[str]:
    """All of them, as `hkx.Linear` or `rlx.replay.uniform`; modules are not counted."""
    modules = ["hkx", "rlx", *submodules()]
    return {f"{module}.{name}" for module in modules for name in names_of(module)} - set(modules)


def listed_names(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Pairs of a page's path below `folder` and a name that one of its `api` blocks lists."""
    for page in sorted(folder.rglob("*.md")):
        for module, names in BLOCK.findall(page.read_text(encoding="utf-8")):
            yield from ((str(page.relative_to(folder)), f"{module}.{name}") for name in names.split())


def complaints(folder: pathlib.Path) -> list[str]:
    """What is wrong with the pages below `folder`: names that stand on none, on several, or are not public."""
    pages: dict[str, list[str]] = {}
    for page, name in listed_names(folder):
        pages.setdefault(name, []).append(page)
    public = public_names()
    missing = [f"{name} stands on no page of {folder.name}/" for name in sorted(public - set(pages))]
    unknown = [f"{name}, on {pages[name][0]}, is not public" for name in sorted(set(pages) - public)]
    twice = [f"{name} stands twice: {', '.join(places)}" for name, places in pages.items() if len(places) > 1]
    return [*missing, *unknown, *twice]
