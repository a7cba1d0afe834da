"""The types of wrappers whose return type depends on their options are in the stub `typed.pyi`, for type checkers."""

from collections.abc import Callable
from typing import Any

EvalShape = Grad = Jit = Jvp = Linearize = ValueAndGrad = Vjp = object


def typed(kind: type) -> Callable[[Any], Any]:
    """Declares the type of a function, for type checkers."""
    return lambda fun: fun
