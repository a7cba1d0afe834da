"""Checks of what a module or a function is given, for modules of your own; the errors name the argument.

The layers of hkx use the same ones.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.export

from hkx.errors.arguments import NotAFunctionError
from hkx.errors.core import InvalidSizeError

__all__ = ["checked_function", "checked_integer"]


def checked_function(f: Any, taker: str, argument: str = "") -> Any:
    """What was given as a function, if it can be called.

    Args:
      f: what was given.
      taker: the name of the function or module that takes it.
      argument: the name of the argument.

    Returns:
      `f`.

    Raises:
      NotAFunctionError: if it cannot be called.

    Example:

      >>> import hkx, jax
      >>> class Activated(hkx.Module):
      ...     def __init__(self, activation, name=None):
      ...         super().__init__(name=name)
      ...         self.activation = hkx.arguments.checked_function(activation, "Activated", "activation")
      >>> def f(x):
      ...     return Activated(jax.nn.relu).activation(x)
      >>> print(hkx.transform(f).apply({}, None, -1.0))
      0.0
    """
    if not callable(f):
        raise NotAFunctionError(taker, f, argument)
    return f


def checked_integer(value: Any, argument: str, least: int | None = 0) -> int:
    """What was given as a whole number, most often the size of something.

    Args:
      value: an int, a scalar array of integers, or a size with a name, as `jax.export` has them.
      argument: the name of the argument.
      least: the smallest number that is allowed; None allows all.

    Returns:
      The number, as an int; a size with a name as it is.

    Raises:
      InvalidSizeError: if it is something else, or too small.
      jax.errors.TracerIntegerConversionError: if it is traced, by `jax.jit` say, so that nobody knows it yet.

    Example:

      >>> import hkx
      >>> hkx.arguments.checked_integer(3, "hidden_size", least=1)
      3
      >>> try:
      ...     hkx.arguments.checked_integer(2.5, "hidden_size", least=1)
      ... except hkx.errors.InvalidSizeError as error:
      ...     print(error)
      `hidden_size` must be an integer, at least 1, got 2.5 of type float.
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        if isinstance(error, jax.errors.JAXTypeError):  # traced: JAX says what to do
            raise
        if jax.export.is_symbolic_dim(value):
            return value  # pyright: ignore[reportReturnType]
        raise InvalidSizeError(argument, value, least) from None
    if least is not None and number < least:
        raise InvalidSizeError(argument, value, least)
    return number
