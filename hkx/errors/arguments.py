"""What was given is of another kind than a function of hkx's takes, or than a parameter can be made with."""

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

    def __init__(self, taker: str, value: object, module: object = None, argument: str = "structure"):
        place = "" if module is None else f"[{module!r}]"
        super().__init__(
            f"`{argument}{place}` of `{taker}` is {described(value)}, expected a mapping"
            f" {'{name: value}' if place else '{module: {name: value}}'}, as the parameters that `init` returns are."
        )


class InvalidInitializerError(HkxError, TypeError):
    """What should make a parameter, or a state, is no function."""

    def __init__(self, path: str, init: object):
        super().__init__(
            f"The initializer of {path!r} is not callable: it is {init!r}, and should be a function of (shape, dtype), "
            "for example `jnp.zeros`. Does the layer get an argument too many?"
        )


class InvalidShapeError(HkxError, TypeError, ValueError):
    """A parameter is asked for with what is no shape."""

    def __init__(self, path: str, shape: object):
        wanted = f": [{shape}]" if isinstance(shape, int) else " of whole numbers, for example [2, 3]"
        super().__init__(f"The shape of {path!r} is {shape!r}, and should be a sequence{wanted}.")


class InvalidDTypeError(HkxError, TypeError, ValueError):
    """A parameter is asked for with what is no dtype that JAX has."""

    def __init__(self, path: str, dtype: object):
        super().__init__(
            f"The dtype of {path!r} is {dtype!r}, and should be one that JAX has, for example `jnp.float32`."
        )


class InvalidEntryNameError(HkxError, TypeError):
    """A parameter or a state is asked for by what is no name."""

    def __init__(self, bundle: str, name: object):
        super().__init__(
            f"The name of a parameter or a state of {bundle!r} is {described(name)}, and "
            "should be a string, for example 'w'."
        )


_HOOKS = {"create": "creator", "get": "getter", "set": "setter"}


def checked_hook(hook: Callable[..., Any], kinds: Sequence[str]) -> Callable[..., Any]:
    """What is entered as a hook of these kinds, if it is a function."""
    if not callable(hook):
        argument = _HOOKS.get(kinds[0].partition("_")[0] if kinds else "", "interceptor")
        taker = "hkx.intercept_methods" if argument == "interceptor" else f"hkx.custom_{argument}"
        raise NotAFunctionError(taker, hook, argument)
    return hook
