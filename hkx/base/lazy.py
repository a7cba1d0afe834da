"""Lazy imports: public names are imported on first use, so that importing a package takes about a millisecond."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_exports(
    package: str, exports: Mapping[str, str], instead: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
      package: the name of the package that calls this.
      exports: for each module, the names that the package exports from it, separated by spaces; under the package's own
        name, its public submodules. Editors and type checkers read the same from imports under `if TYPE_CHECKING:`.
      instead: the location, `module:NAME`, of a mapping from names that the package does not have to advice on what to
        write instead, for any spelling with capitals and underscores. It is imported when such a name is requested.
    """
    module = sys.modules[package]
    homes = {name: home for home, names in exports.items() for name in names.split()}

    class LazyModule(types.ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, types.ModuleType):
                if homes.get(name, package) != package:
                    return  # importing a folder of the same name as a public function must not hide the function
                if name in homes:
                    vars(value).setdefault("__getattr__", _unknown_names(value, instead))
            super().__setattr__(name, value)

        def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
            return importlib.import_module, (package,)  # cloudpickle and dill support only plain modules

    module.__class__ = LazyModule
    for name in homes.keys() & vars(module).keys():  # imported already
        setattr(module, name, vars(module)[name])

    def load(name: str) -> Any:
        if name == "__version__":  # rarely needed, and the import takes some milliseconds
            metadata = importlib.import_module("importlib.metadata")
            try:
                return metadata.version("hkx")
            except metadata.PackageNotFoundError:
                raise AttributeError(f"{package!r} is not installed, and has no version", name=name) from None
        home = homes.get(name)
        if home is None:
            raise _no_attribute(module, name, homes, instead)
        submodule = home == package
        loaded = importlib.import_module(f"{package}.{name}" if submodule else home)
        value = loaded if submodule else getattr(loaded, name)
        setattr(module, name, value)
        return value

    return load, lambda: sorted(homes), sorted(homes)


def _unknown_names(module: types.ModuleType, instead: str | None) -> Callable[[str], Any]:
    """The `__getattr__` of a public module whose names are not lazy, so that errors say what to write instead."""

    def load(name: str) -> Any:
        raise _no_attribute(module, name, vars(module).get("__all__", ()), instead)

    return load


def _no_attribute(module: types.ModuleType, name: str, names: Iterable[str], instead: str | None) -> AttributeError:
    advice = ""
    if not name.startswith("_"):
        own, glossary = {_plain(known): known for known in names}, _named(instead) if instead else {}
        elsewhere = {} if _plain(name) in own else {_plain(known): text for known, text in glossary.items()}
        if text := glossary.get(name) or elsewhere.get(_plain(name)):
            advice = f": {text}"
        elif near := importlib.import_module("difflib").get_close_matches(_plain(name), own, n=1, cutoff=0.7):
            advice = f". Did you mean: {own[near[0]]!r}?"
    # With `obj`, Python adds its own suggestion, but only when it prints an uncaught error, so not in logs.
    obj = None if advice else module
    return AttributeError(f"module {module.__name__!r} has no attribute {name!r}{advice}", name=name, obj=obj)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _named(place: str) -> Any:
    """The value at `module:NAME`."""
    home, _, name = place.partition(":")
    return getattr(importlib.import_module(home), name)
