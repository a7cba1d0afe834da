"""Public names that are imported when they are first used, so that `import` costs a millisecond."""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

_EXPORT = re.compile(r"^ +from (\S+) import \(?\s*(\w+) as \2,?\s*\)?$", re.MULTILINE)


def lazy_exports(
    package: str, instead: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package.

    The names are those of the lines `from module import name as name` under its `if TYPE_CHECKING:`, where editors and
    type checkers read them too.

    Args:
      package: the name of the package that calls this.
      instead: by names that it does not have, what to write instead.
    """
    module = sys.modules[package]
    homes = {name: home for home, name in _EXPORT.findall(module.__spec__.loader.get_source(package))}  # type: ignore[union-attr]

    class Face(types.ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            # Importing a folder of the same name as a public function must not hide the function.
            if not (isinstance(value, types.ModuleType) and homes.get(name, package) != package):
                super().__setattr__(name, value)

    module.__class__ = Face

    def load(name: str) -> Any:
        if name == "__version__":  # asked for rarely, and the import costs some milliseconds
            return importlib.import_module("importlib.metadata").version("hkx")
        home = homes.get(name)
        if home is None:
            advice = f": {instead[name]}" if instead and name in instead else ""
            if not advice and not name.startswith("_"):
                lower = {known.lower(): known for known in homes}
                near = importlib.import_module("difflib").get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
                advice = f". Did you mean: {lower[near[0]]!r}?" if near else ""
            # Given `obj`, Python itself asks the same, but only in what it prints itself, which a log is not.
            obj = None if advice.endswith("?") else module
            raise AttributeError(f"module {package!r} has no attribute {name!r}{advice}", name=name, obj=obj)
        submodule = home == package
        loaded = importlib.import_module(f"{package}.{name}" if submodule else home)
        value = loaded if submodule else getattr(loaded, name)
        setattr(module, name, value)
        return value

    return load, lambda: sorted({*vars(module), *homes}), sorted(homes)
