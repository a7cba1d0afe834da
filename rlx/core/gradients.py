"""Where gradients stop: one meaning and one pair of spellings for all operators.

Operators that compare a prediction with a target take a flag that decides whether gradients flow into the target.
The flag is called `stop_target_gradients`; RLax's other spelling of it, `use_stop_gradient`, is accepted wherever the
first is, and the first wherever RLax has the other. Its default is True in every loss and temporal-difference error,
whose target is meant as a constant, and False in every function that returns the target itself (returns, advantage
estimates and importance-corrected errors), where stopping is up to the caller. These are RLax's defaults.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rlx.core.errors import ArgumentError, OptionError
from rlx.core.operator import maybe_stop

_P = ParamSpec("_P")
_R = TypeVar("_R")
__all__ = ["maybe_stop", "stoppable"]
_SPELLINGS = ("stop_target_gradients", "use_stop_gradient")


def stoppable(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Lets an operator that has one spelling of the stop-gradient flag accept the other one too, as a keyword.

    Example:
      >>> from rlx.core.gradients import stoppable
      >>> @stoppable
      ... def f(x, stop_target_gradients=True):
      ...     return stop_target_gradients
      >>> f(1.0, use_stop_gradient=False)
      False
    """
    signature = inspect.signature(function)
    own = next(name for name in _SPELLINGS if name in signature.parameters)
    other = next(name for name in _SPELLINGS if name != own)
    position = list(signature.parameters).index(own)

    @functools.wraps(function)
    def accepting_both(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if other in kwargs:
            value = kwargs.pop(other)
            if own in kwargs or len(args) > position:
                raise OptionError(
                    f"{function.__name__}: argument `{other}` is {value!r}, expected nothing beside `{own}`: "
                    "they are two spellings of one flag."
                )
            kwargs[own] = value
        try:
            return function(*args, **kwargs)
        except ArgumentError as error:
            # An operator that is built on another one answers in its own name for an argument that it handed on.
            inner, _, rest = str(error).partition(": argument `")
            if inner != function.__name__ and rest.split("`")[0] in signature.parameters:
                raise type(error)(f"{function.__name__}: argument `{rest}") from None
            raise

    return accepting_both
