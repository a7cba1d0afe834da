"""Checks of trees of arrays: that their leaves are arrays, and that trees have the same structure."""

from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.errors import ArgumentError, DTypeError, ShapeError
from rlx.core.types import Array, PyTree


def as_arrays_of(argument: str, tree: PyTree, function: str = "") -> PyTree:
    """Converts the leaves of a tree to arrays, of any dtype.

    Example:
      >>> from rlx.core.leaves import as_arrays_of
      >>> as_arrays_of("tree", {"a": 1.0})
      {'a': Array(1., dtype=float32, weak_type=True)}
      >>> as_arrays_of("tree", {"a": "one"})
      Traceback (most recent call last):
        ...
      rlx.core.errors.DTypeError: argument `tree`['a'] is a str, expected an array.
    """

    def as_array(path: Any, leaf: Any) -> Array:
        try:
            return jnp.asarray(leaf)
        except (TypeError, ValueError, OverflowError):
            raise DTypeError(f"{_path_text(argument, path, function)} is {_what(leaf)}, expected an array.") from None

    return jax.tree_util.tree_map_with_path(as_array, tree)


def require_real(argument: str, tree: PyTree, function: str = "") -> None:
    """Requires that all leaves are real numbers, or arrays or `jax.ShapeDtypeStruct`s of real numbers."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        dtype = _dtype(leaf)
        if dtype is None or not any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            what = f"is {_what(leaf)}" if dtype is None else f"has dtype {dtype}"
            raise DTypeError(f"{_path_text(argument, path, function)} {what}, expected an array of real numbers.")


def require_alike(
    argument: str, tree: PyTree, like_argument: str, like: PyTree, function: str = "", dtypes: bool = True
) -> None:
    """Requires that two trees of arrays have the same structure and shapes, and with `dtypes` the same dtypes.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.leaves import require_alike
      >>> require_alike("new", {"a": jnp.ones(2)}, "old", {"a": jnp.ones(3)})
      Traceback (most recent call last):
        ...
      rlx.core.errors.ShapeError: argument `new`['a'] has shape [2], expected shape [3], that in `old`.
    """
    require_structure(argument, tree, like_argument, like, function)
    others = jax.tree.structure(like).flatten_up_to(tree)
    for (path, wanted), x in zip(jax.tree_util.tree_flatten_with_path(like)[0], others, strict=True):
        subject = _path_text(argument, path, function)
        if x.shape != wanted.shape:
            raise ShapeError(
                f"{subject} has shape {list(x.shape)}, expected shape {list(wanted.shape)}, that in `{like_argument}`."
            )
        if dtypes and x.dtype != wanted.dtype:
            raise DTypeError(f"{subject} has dtype {x.dtype}, expected {wanted.dtype}, that in `{like_argument}`.")


def require_structure(argument: str, tree: PyTree, like_argument: str, like: PyTree, function: str = "") -> None:
    """Requires that a tree has the same structure as another."""
    structure, given = jax.tree.structure(like), jax.tree.structure(tree)
    try:
        leaves = structure.flatten_up_to(tree)
        fits = all(jax.tree_util.all_leaves([leaf]) for leaf in leaves)
    except (ValueError, TypeError):
        fits = False
    if not fits:
        raise ArgumentError(
            f"{_path_text(argument, (), function)} is the tree {given}, expected {structure}, as `{like_argument}` is."
        )


def _path_text(argument: str, path: Any, function: str) -> str:
    return (f"{function}: " if function else "") + f"argument `{argument}`{jax.tree_util.keystr(path)}"


def _what(leaf: Any) -> str:
    return f"{leaf}, too large a number" if isinstance(leaf, int) else f"a {type(leaf).__name__}"


def _dtype(leaf: Any) -> Any:
    try:
        # For a whole number, `result_type` does not ask whether it fits.
        return jnp.asarray(leaf).dtype if isinstance(leaf, int) else jnp.result_type(leaf)
    except (TypeError, ValueError, OverflowError):
        return None
