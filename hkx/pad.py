"""Padding of a convolution on each side, as functions of the kernel size.

A padding function takes the effective size of the kernel in one dimension, `(kernel - 1) * rate + 1`, and returns how
many elements to add before and after. `hkx.Conv1D` and the other convolutions take one, or one for each dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hkx.arguments import checked_function, checked_integer
from hkx.errors.nn import InvalidLengthError

__all__ = [
    "PadFn",
    "causal",
    "create",
    "create_from_padfn",
    "create_from_tuple",
    "full",
    "is_padfn",
    "per_dimension",
    "reverse_causal",
    "same",
    "valid",
]

PadFn: TypeAlias = Callable[[int], tuple[int, int]]


def _added(effective_kernel_size: Any) -> Any:
    """By how many elements a kernel of this size shortens its input without padding."""
    return checked_integer(effective_kernel_size, "effective_kernel_size", 1) - 1


def valid(effective_kernel_size: int) -> tuple[int, int]:
    """No padding: the output has `effective_kernel_size - 1` elements less than the input.

    Args:
      effective_kernel_size: `(kernel - 1) * rate + 1`.

    Returns:
      `(0, 0)`.

    Example:

      >>> import hkx
      >>> hkx.pad.valid(3)
      (0, 0)
    """
    del effective_kernel_size
    return (0, 0)


def same(effective_kernel_size: int) -> tuple[int, int]:
    """Padding that gives an output of the input's length, for stride 1; the extra element of an odd sum goes after.

    Args:
      effective_kernel_size: `(kernel - 1) * rate + 1`.

    Returns:
      `(before, after)`.

    Raises:
      InvalidSizeError: if it is no whole number, or below 1.

    Example:

      >>> import hkx
      >>> hkx.pad.same(4)
      (1, 2)
    """
    added = _added(effective_kernel_size)
    return (added // 2, added - added // 2)


def full(effective_kernel_size: int) -> tuple[int, int]:
    """Padding that gives an output for every position where kernel and input overlap.

    Args:
      effective_kernel_size: `(kernel - 1) * rate + 1`.

    Returns:
      `(effective_kernel_size - 1, effective_kernel_size - 1)`.

    Raises:
      InvalidSizeError: if it is no whole number, or below 1.

    Example:

      >>> import hkx
      >>> hkx.pad.full(3)
      (2, 2)
    """
    added = _added(effective_kernel_size)
    return (added, added)


def causal(effective_kernel_size: int) -> tuple[int, int]:
    """All padding before, so that an output depends on no later input.

    Args:
      effective_kernel_size: `(kernel - 1) * rate + 1`.

    Returns:
      `(effective_kernel_size - 1, 0)`.

    Raises:
      InvalidSizeError: if it is no whole number, or below 1.

    Example:

      >>> import hkx
      >>> hkx.pad.causal(3)
      (2, 0)
    """
    return (_added(effective_kernel_size), 0)


def reverse_causal(effective_kernel_size: int) -> tuple[int, int]:
    """All padding after, so that an output depends on no earlier input.

    Args:
      effective_kernel_size: `(kernel - 1) * rate + 1`.

    Returns:
      `(0, effective_kernel_size - 1)`.

    Raises:
      InvalidSizeError: if it is no whole number, or below 1.

    Example:

      >>> import hkx
      >>> hkx.pad.reverse_causal(3)
      (0, 2)
    """
    return (0, _added(effective_kernel_size))


def is_padfn(padding: Any) -> bool:
    """True if `padding` is a padding function, or a sequence that starts with one.

    Args:
      padding: anything that a convolution takes as its `padding`, an empty sequence excepted.

    Returns:
      True or False.

    Raises:
      IndexError: if it is an empty sequence.

    Example:

      >>> import hkx
      >>> hkx.pad.is_padfn(hkx.pad.same), hkx.pad.is_padfn([hkx.pad.same]), hkx.pad.is_padfn("SAME")
      (True, True, False)
    """
    if isinstance(padding, Sequence):
        padding = padding[0]
    return callable(padding)


def per_dimension(value: Any, n: int, name: str = "value") -> tuple[Any, ...]:
    """An argument of a layer for each of `n` dimensions: a size, a stride, a padding function.

    Args:
      value: one for all dimensions, or a sequence of one, or of one for each dimension. A string counts as one.
      n: the number of dimensions.
      name: the name of the argument, for the error.

    Returns:
      `n` entries.

    Raises:
      InvalidLengthError: if it is a sequence of another length.

    Example:

      >>> import hkx
      >>> hkx.pad.per_dimension(3, 2), hkx.pad.per_dimension([3, 5], 2)
      ((3, 3), (3, 5))
    """
    n = checked_integer(n, "n")
    if not isinstance(value, Sequence) or isinstance(value, str):
        return (value,) * n
    if len(value) == 1:
        return tuple(value) * n
    if len(value) == n:
        return tuple(value)
    raise InvalidLengthError(name, value, len(value), n)


def create(
    padding: PadFn | Sequence[PadFn], kernel: int | Sequence[int], rate: int | Sequence[int], n: int
) -> Sequence[tuple[int, int]]:
    """The same as `create_from_padfn`.

    Args:
      padding: one function, or one for each dimension.
      kernel: the size of the kernel, one or one for each dimension.
      rate: the distance between the kernel's elements, one or one for each dimension.
      n: the number of dimensions.

    Returns:
      `n` pairs `(before, after)`.

    Raises:
      TypeError: if an argument has neither one entry nor `n`.

    Example:

      >>> import hkx
      >>> hkx.pad.create(hkx.pad.causal, kernel=3, rate=2, n=2)
      ((4, 0), (4, 0))
    """
    return create_from_padfn(padding, kernel, rate, n)


def create_from_padfn(
    padding: PadFn | Sequence[PadFn], kernel: int | Sequence[int], rate: int | Sequence[int], n: int
) -> Sequence[tuple[int, int]]:
    """The padding of each of `n` dimensions, from functions.

    Args:
      padding: one function, or one for each dimension.
      kernel: the size of the kernel, one or one for each dimension.
      rate: the distance between the kernel's elements, one or one for each dimension.
      n: the number of dimensions.

    Returns:
      `n` pairs `(before, after)`.

    Raises:
      TypeError: if an argument has neither one entry nor `n`.

    Example:

      >>> import hkx
      >>> hkx.pad.create_from_padfn([hkx.pad.causal, hkx.pad.same], kernel=3, rate=1, n=2)
      ((2, 0), (1, 1))
    """
    functions = [checked_function(f, "hkx.pad.create", "padding") for f in per_dimension(padding, n, "padding")]
    kernels, rates = (
        [checked_integer(size, argument, None) for size in per_dimension(given, n, argument)]
        for argument, given in (("kernel", kernel), ("rate", rate))
    )
    return tuple(f((k - 1) * r + 1) for f, k, r in zip(functions, kernels, rates, strict=True))


def create_from_tuple(padding: tuple[int, int] | Sequence[tuple[int, int]], n: int) -> Sequence[tuple[int, int]]:
    """The padding of each of `n` dimensions, from numbers.

    Args:
      padding: a pair `(before, after)` for all dimensions, or a sequence of one pair, or one for each dimension.
      n: the number of dimensions.

    Returns:
      `n` pairs `(before, after)`.

    Raises:
      TypeError: if there are neither one pair nor `n`.
      AssertionError: if `padding` is empty.

    Example:

      >>> import hkx
      >>> hkx.pad.create_from_tuple((1, 2), 2)
      ((1, 2), (1, 2))
    """
    if not hasattr(padding, "shape") and not padding:
        raise AssertionError("`padding` must not be empty: pass a pair (before, after), or one for each dimension.")
    if not isinstance(padding, Sequence) or isinstance(padding, str):
        raise TypeError(f"`padding` must be a pair, or a sequence of pairs, got {padding!r}.")
    if not isinstance(padding[0], Sequence) and not callable(padding[0]):
        padding = (padding,)  # type: ignore[assignment]
    n = checked_integer(n, "n")
    if len(padding) not in (1, n):
        raise TypeError(
            f"`padding` must be a Tuple[int, int] or sequence of length 1, or one of length {n}, got {padding!r}."
        )
    return per_dimension(padding, n, "padding")
