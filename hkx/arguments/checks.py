"""Checks of single arguments; errors and warnings name the argument."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Iterable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from hkx.base.tracebacks import level_of_the_user
from hkx.errors.arguments import InvalidSizeError, NotABoolError, NotAFunctionError, NotANumberError
from hkx.errors.nn import InvalidInputError


def checked_function(f: Any, taker: str, argument: str = "") -> Any:
    """Returns `f`; raises NotAFunctionError, which names the argument, if it is not callable.

    Args:
      f: the value to check.
      taker: the name of the function or module that takes it.
      argument: the name of the argument.

    Returns:
      `f`.

    Raises:
      NotAFunctionError: if it is not callable.

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


def checked_flag(value: Any, argument: str, taker: str) -> bool:
    """Returns a flag, such as `is_training`.

    Args:
      value: a bool, or anything that Python takes for one, such as 0, None or a scalar array.
      argument: the name of the argument.
      taker: the name of the function or module that takes it.

    Returns:
      The flag.

    Raises:
      NotABoolError: if it is neither true nor false, such as an array of several elements.
      jax.errors.TracerBoolConversionError: if it is traced, by `jax.jit` for example, so that its value is unknown.

    Example:

      >>> import hkx, numpy as np
      >>> def scaled(x, is_training):
      ...     return 2 * x if hkx.arguments.checked_flag(is_training, "is_training", "scaled") else x
      >>> scaled(1.0, is_training=True)
      2.0
      >>> try:
      ...     scaled(1.0, is_training=np.array([True, False]))
      ... except hkx.errors.NotABoolError as error:
      ...     print(error)
      `is_training` of `scaled` must be True or False, got array([ True, False]) of type ndarray.
    """
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, jax.errors.JAXTypeError):  # traced: JAX's error explains what to do
            raise
        raise NotABoolError(taker, argument, value) from None


def is_iterable(value: Any) -> bool:
    """True if `value` is iterable: no string or bytes, which count as one value, and no scalar array.

    Example:

      >>> import hkx, numpy as np
      >>> [hkx.arguments.is_iterable(value) for value in ([1, 2], np.ones(2), "ab", np.ones([]))]
      [True, True, False, False]
    """
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and getattr(value, "ndim", 1) != 0


def checked_integer(value: Any, argument: str, least: int | None = 0, taker: str = "") -> int:
    """Returns a whole number, usually a size.

    Args:
      value: an int, a scalar array of integers, or a symbolic size of `jax.export`.
      argument: the name of the argument.
      least: the smallest number that is allowed; None allows all.
      taker: the name of the function or module that takes it.

    Returns:
      The number, as an int; a symbolic size unchanged.

    Raises:
      InvalidSizeError: if it is something else, or too small, or does not fit in 64 bits.
      jax.errors.TracerIntegerConversionError: if it is traced, by `jax.jit` for example, so that its value is unknown.

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
        if isinstance(error, jax.errors.JAXTypeError):  # traced: JAX's error explains what to do
            raise
        if jax.export.is_symbolic_dim(value):
            return value  # pyright: ignore[reportReturnType]
        raise InvalidSizeError(argument, value, least, taker) from None
    if (least is not None and number < least) or number >= 2**63:
        raise InvalidSizeError(argument, value, least, taker)
    return number


def checked_number(value: Any, argument: str, taker: str = "") -> Any:
    """Returns a number, or an array of numbers.

    Without this check, JAX takes a string for the name of a dtype, and fails on other objects where it uses them.

    Args:
      value: a Python number or bool, an array of them, traced or not, or a symbolic size of `jax.export`.
      argument: the name of the argument.
      taker: the name of the function or module that takes it.

    Returns:
      `value`.

    Raises:
      NotANumberError: if it is something else.

    Example:

      >>> import hkx
      >>> hkx.arguments.checked_number(0.5, "scale")
      0.5
      >>> try:
      ...     hkx.arguments.checked_number("half", "scale")
      ... except hkx.errors.NotANumberError as error:
      ...     print(error)
      `scale` must be a number or a scalar array, got 'half' of type str.
    """
    if isinstance(value, type) or not is_number(value):
        raise NotANumberError(argument, value, taker)
    return value


def is_number(value: Any) -> bool:
    """True if `value` is a number or an array of numbers."""
    if isinstance(value, (int, float, complex)) or hasattr(value, "__jax_array__") or jax.export.is_symbolic_dim(value):
        return True
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_))


def array_of(value: Any, argument: str, taker: str, keys: bool = False) -> jax.Array:
    """Converts `value`, an array, a number, or nested lists of numbers, to a JAX array.

    Args:
      value: an array, a number, or nested lists of numbers.
      argument: the name of the argument.
      taker: the name of the function or module that takes it.
      keys: whether typed random keys are allowed; no arithmetic is possible with them.

    Raises:
      InvalidInputError: if `value` is something else.

    Example:

      >>> import hkx
      >>> hkx.arguments.array_of([[1.0, 2.0]], "inputs", "Scaled").shape
      (1, 2)
    """
    cause = None
    if not isinstance(value, jax.Array):
        try:
            return jnp.asarray(value)
        except (TypeError, ValueError, OverflowError) as error:
            cause = error
    elif keys or isinstance(value.dtype, np.dtype):
        return value
    raise InvalidInputError(taker, argument, value) from cause


def deprecated_argument(argument: str, taker: str, instead: str) -> None:
    """Warns that an argument is deprecated, at the line that uses the module or function.

    That is the nearest line outside of hkx, JAX and the file that calls this. So Python shows the warning by default if
    that line is in the main script, and a test suite that turns warnings into errors stops there.

    Args:
      argument: the argument that was used.
      taker: the name of the function or module that takes it.
      instead: the code to write instead, with the given values if possible.

    Warns:
      DeprecationWarning: always.

    Example:

      >>> import hkx, warnings
      >>> class Scaled(hkx.Module):
      ...     def __init__(self, scale=1.0, gain=None, name=None):
      ...         super().__init__(name=name)
      ...         if gain is not None:
      ...             hkx.arguments.deprecated_argument("gain", "Scaled", f"write scale={gain}")
      ...         self.scale = scale if gain is None else gain
      >>> with warnings.catch_warnings(record=True, action="always") as shown:
      ...     init, apply = hkx.transform(lambda x: Scaled(gain=2.0).scale * x)
      ...     print(apply({}, None, 3.0))
      6.0
      >>> print(shown[0].message)
      `gain` of Scaled is deprecated: write scale=2.0
    """
    caller = inspect.currentframe().f_back  # pyright: ignore[reportOptionalMemberAccess]
    level = level_of_the_user(caller.f_code.co_filename)  # pyright: ignore[reportOptionalMemberAccess]
    warnings.warn(f"`{argument}` of {taker} is deprecated: {instead}", DeprecationWarning, stacklevel=level)
