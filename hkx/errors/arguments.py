"""What was given is of another kind than a function of hkx's takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hkx.errors.core import HkxError, described


class NotAFunctionError(HkxError, TypeError):
    """Something else was given where a function is taken."""

    def __init__(self, taker: str, value: object, argument: str = ""):
        place = f"as `{argument}`, which is a function" if argument else "where it takes a function"
        super().__init__(
            f"`{taker}` was given {described(value)} {place}: it is not callable. Pass "
            "the function itself, not what it returns."
        )


class NotAStructureError(HkxError, TypeError, AttributeError):
    """Something else was given where parameters or states are taken, or a part of them."""

    def __init__(self, taker: str, value: object, module: object = None):
        place = "" if module is None else f"[{module!r}]"
        super().__init__(
            f"`structure{place}` of `{taker}` is {described(value)}, expected a mapping"
            f" {'{name: value}' if place else '{module: {name: value}}'}, as the parameters that `init` returns are."
        )


_HOOKS = {"create": "creator", "get": "getter", "set": "setter"}


def checked_hook(hook: Callable[..., Any], kinds: Sequence[str]) -> Callable[..., Any]:
    """What is entered as a hook of these kinds, if it is a function."""
    if not callable(hook):
        argument = _HOOKS.get(kinds[0].partition("_")[0] if kinds else "", "interceptor")
        taker = "hkx.intercept_methods" if argument == "interceptor" else f"hkx.custom_{argument}"
        raise NotAFunctionError(taker, hook, argument)
    return hook
