"""Applies a function that creates a separate module to every parameter of a tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hkx.errors import NotAParameterTreeError


def map_params(
    tree: Mapping[str, Mapping[str, Any]], function: Callable[[str, Any], Any], ignore_regex: str, tilde: str
) -> dict[str, dict[str, Any]]:
    """Replaces every parameter by `function(name, value)`, where `name` is a valid module name made from its path.

    Args:
      tree: a dict of dicts of arrays, as returned by `init`.
      function: returns the new value.
      ignore_regex: parameters stay unchanged if the beginning of their path, `module/name`, matches this; "" matches
        none.
      tilde: replaces each `~` of the path in the name; two underscores replace each slash.

    Raises:
      NotAParameterTreeError: if `tree` is not a dict of dicts.
    """
    if not isinstance(tree, Mapping) or not all(isinstance(entries, Mapping) for entries in tree.values()):
        raise NotAParameterTreeError(tree)
    if hasattr(ignore_regex, "shape") or (ignore_regex and not isinstance(ignore_regex, (str, re.Pattern))):
        raise TypeError(f"`ignore_regex` must be a regular expression, such as '.*/b', got {ignore_regex!r}.")

    def replaced(module: str, name: str, value: Any) -> Any:
        path = f"{module}/{name}"
        if ignore_regex and re.match(ignore_regex, path):
            return value
        return function(path.replace("/", "__").replace("~", tilde), value)

    return {m: {n: replaced(m, n, v) for n, v in entries.items()} for m, entries in tree.items()}
