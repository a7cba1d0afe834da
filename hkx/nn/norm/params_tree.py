"""A module of its own for every parameter of a tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hkx.errors import NotAParameterTreeError


def map_params(
    tree: Mapping[str, Mapping[str, Any]], function: Callable[[str, Any], Any], ignore_regex: str, tilde: str
) -> dict[str, dict[str, Any]]:
    """`function(name, value)` for every parameter, where `name` is its path made into a module's name.

    Args:
      tree: a dict of dicts of arrays, as `init` returns it.
      function: returns what takes the place of the value.
      ignore_regex: parameters whose path `module/name` matches this at its start stay as they are; "" matches none.
      tilde: what stands in the name for a `~` of the path; two underscores stand for a slash.

    Raises:
      NotAParameterTreeError: if `tree` is not a dict of dicts.
    """
    if not isinstance(tree, Mapping) or not all(isinstance(entries, Mapping) for entries in tree.values()):
        raise NotAParameterTreeError(tree)
    if ignore_regex and not isinstance(ignore_regex, (str, re.Pattern)):
        raise TypeError(f"`ignore_regex` must be a regular expression, as '.*/b', got {ignore_regex!r}.")

    def replaced(module: str, name: str, value: Any) -> Any:
        path = f"{module}/{name}"
        if ignore_regex and re.match(ignore_regex, path):
            return value
        return function(path.replace("/", "__").replace("~", tilde), value)

    return {m: {n: replaced(m, n, v) for n, v in entries.items()} for m, entries in tree.items()}
