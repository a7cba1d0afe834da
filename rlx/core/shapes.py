"""The match of an array's shape with the shapes that an annotation allows."""

import functools
from typing import Any

import jax.numpy as jnp

from rlx.core.annotations import Dims

Lengths = dict[str, tuple[Any, str]]
"""The known lengths in a call: for each name, its value and the argument that determined it."""

NEVER_EMPTY = frozenset("AKLMN")
"""Names of lengths that are at least 1."""


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape to which these broadcast, or None.

    Example:
      >>> from rlx.core.shapes import broadcast
      >>> broadcast((2, 1), (3,)), broadcast((2,), (3,))
      ((2, 3), None)
    """
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:
        return None


def fits(name: str, shape: tuple[int, ...], shapes: tuple[Dims, ...], lengths: Lengths) -> bool:
    """Returns whether the shape is one of the allowed ones. If so, adds the lengths that it determines to `lengths`.

    Example:
      >>> from rlx.core.annotations import Float
      >>> from rlx.core.shapes import fits
      >>> from rlx.core.types import Array
      >>> lengths = {}
      >>> fits("x_t", (4, 2), Float[Array, "T A"].shapes, lengths), lengths
      (True, {'T': (4, 'x_t'), 'A': (2, 'x_t')})
    """
    for dims in shapes:
        found = match(name, shape, dims, lengths) if rank_fits(dims, len(shape)) else None
        if found is not None:
            lengths.update(found)
            return True
    return False


@functools.cache
def rank_fits(dims: Dims, rank: int) -> bool:
    """Returns whether an array of this rank may have the shape."""
    starred = any(token.startswith("*") for token, _ in dims)
    return rank >= len(dims) - 1 if starred else rank == len(dims)


def match(name: str, shape: tuple[int, ...], dims: Dims, lengths: Lengths) -> Lengths | None:
    """The lengths that this shape newly determines, or None if it does not match `dims` or the known lengths."""
    new: Lengths = {}
    position = 0
    for token, offset in dims:
        if token[0] == "*":
            taken = len(shape) - (len(dims) - 1)
            value: Any = shape[position : position + taken]
            position += taken
        else:
            value = shape[position] - offset
            position += 1
            if token.isdigit():
                if value != int(token):
                    return None
                continue
        before = new.get(token) or lengths.get(token)
        if before is None:
            if token[0] != "*" and value < (token in NEVER_EMPTY):
                return None
            new[token] = (value, name)
        elif token[:2] == "*#":
            common = broadcast(before[0], value)
            if common is None or (token[:3] == "*##" and common not in (before[0], value)):
                return None
            new[token] = (common, name)
        elif before[0] != value:
            return None
    return new
