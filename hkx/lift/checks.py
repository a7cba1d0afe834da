"""Checks of arguments and of Python flags, and descriptions of the differences between two trees, leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.arguments import checked_integer, is_iterable
from hkx.errors.lift import ArgumentNotAnArrayError, BodyResultError, BranchListError

Flags = list[int | str]


def shape_and_dtype(x: Any) -> str:
    """A description such as `float32[2,3]`."""
    if not is_value(x):
        return f"{x!r} (not an array)"
    return f"{jnp.result_type(x).name}[{','.join(map(str, jnp.shape(x)))}]"


def is_value(x: Any) -> bool:
    """True if JAX can carry a leaf through its loops and transforms."""
    try:
        jax.typeof(x)
    except (TypeError, ValueError, OverflowError):  # ValueError: a NumPy masked array; OverflowError: an int
        return False
    return True


def checked_length(length: Any) -> int:
    """The number of iterations. As in `jax.lax.scan`, it may also be a float that is a whole number."""
    scalar = is_value(length) and not isinstance(length, jax.core.Tracer) and jnp.ndim(length) == 0
    whole = scalar and jnp.issubdtype(jnp.result_type(length), jnp.floating) and float(length).is_integer()
    return checked_integer(int(length) if whole else length, "length")


def checked_unroll(unroll: Any) -> int | bool:
    """The number of iterations to unroll per step of the compiled loop, or whether to unroll all."""
    return unroll if isinstance(unroll, bool) else checked_integer(unroll, "unroll")


def checked_positions(positions: Any, argument: str) -> tuple[int, ...]:
    """The positions of a function's arguments, none of them if that is None. One may stand alone."""
    several = isinstance(positions, (Sequence, Set)) or getattr(positions, "ndim", 0) == 1
    if isinstance(positions, str) or not several:
        positions = () if positions is None else (positions,)
    return tuple(checked_integer(n, argument, None) for n in positions)


def check_arguments(name: str, fun: Any, args: Any, kwargs: Any, static: Any) -> None:
    """Raises an error if an argument that is not static holds what JAX cannot pass to a function that it traces."""
    for key, value in [*enumerate(args), *kwargs.items()]:
        if key not in static:
            for leaf in jax.tree.leaves(value):
                if not is_value(leaf):
                    argument = f"Argument {key!r} of `{getattr(fun, '__qualname__', fun)}`"
                    raise ArgumentNotAnArrayError(name, argument, leaf)


def checked_pair(name: str, result: Any, wanted: str) -> tuple[Any, Any]:
    """Returns the result of a user's function if it is a pair; `name` is the hkx function that called it."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise BodyResultError(name, result, wanted)
    return result[0], result[1]


def checked_branches(branches: Any) -> tuple[Callable[..., Any], ...]:
    """Returns the branches of a `switch` as a tuple, if they are iterable."""
    if callable(branches) or not is_iterable(branches):
        raise BranchListError(branches)
    return tuple(branches)


def as_arrays(tree: Any) -> Any:
    """Converts numbers and NumPy arrays to JAX arrays, and sorts dicts, as JAX does for a function that it traces."""
    return jax.tree.map(lambda x: jnp.asarray(x) if is_value(x) and not isinstance(x, jax.Array) else x, tree)


def is_weak(x: Any) -> bool:
    """True if a value is weakly typed: it comes from a Python number, and adopts the dtype of other operands."""
    return getattr(jax.typeof(x), "weak_type", False)


def _alike(x: Any, y: Any) -> bool:
    """True if a loop that was given `x` may return `y`. A weakly typed `x` may change its dtype."""
    if not is_value(x) or not is_value(y):
        return False
    if jnp.shape(x) != jnp.shape(y):
        return False
    a, b = jax.typeof(x).dtype, jax.typeof(y).dtype
    if a == b:
        return True
    if jnp.issubdtype(a, jax.dtypes.prng_key) or jnp.issubdtype(b, jax.dtypes.prng_key):
        return False
    return is_weak(x) and jnp.result_type(x, y) == b


def same_type(x: Any, y: Any) -> bool:
    """True if two branches may return `x` and `y`. Weak types are not promoted there."""
    if not is_value(x) or not is_value(y):
        return False
    return jnp.shape(x) == jnp.shape(y) and jax.typeof(x).dtype == jax.typeof(y).dtype


def difference(
    given: Any,
    returned: Any,
    label: Callable[[Any], str] = jax.tree_util.keystr,
    names: tuple[str, str] = ("given", "returned"),
    alike: Callable[[Any, Any], bool] = _alike,
) -> str | None:
    """A description of the differences between two trees, or None; `label` describes the path of a leaf."""
    if jax.tree.structure(given) == jax.tree.structure(returned):
        pairs = zip(jax.tree_util.tree_leaves_with_path(given), jax.tree.leaves(returned), strict=True)
        wrong = [(path, x, y) for (path, x), y in pairs if not alike(x, y)]
        return "\n".join(f"  {label(path) or 'the value'}: {_both(x, y, names)}" for path, x, y in wrong[:5]) or None
    before, after = (
        {label(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)} for tree in (given, returned)
    )
    lines = [
        f"  {path or 'a single value'}: {has} {shape_and_dtype(leaf)}, {has_not} nothing"
        for mine, others, has, has_not in ((before, after, *names), (after, before, *names[::-1]))
        for path, leaf in mine.items()
        if path not in others
    ]
    structures = "\n".join(
        f"  {name} the structure {jax.tree.structure(tree)}"
        for name, tree in zip(names, (given, returned), strict=True)
    )
    return "\n".join(lines[:6]) or structures


def _both(x: Any, y: Any, names: tuple[str, str]) -> str:
    second = f"{names[1]} {shape_and_dtype(y)}"
    return second if x is y else f"{names[0]} {shape_and_dtype(x)}, {second}"


def entry_name(path: Any) -> str:
    """The path of a leaf in a two-level dict, as the full name of a parameter or state, and the path within that."""
    names = [str(getattr(k, "key", k)) for k in path[:2]]
    return repr("/".join(names)) + jax.tree_util.keystr(path[2:])


def flags_among(args: Any, kwargs: Any, static: Collection[int | str], arrays: bool) -> Flags:
    """The positions and names of arguments that are numbers of Python or NumPy; only of those with bools, if any.

    With `arrays`, a known bool in an array counts as a bool.
    """
    given = {i: value for i, value in [*enumerate(args), *kwargs.items()] if i not in static}
    numbers = {i: value for i, value in given.items() if isinstance(value, (bool, int, float, np.generic))}
    bools = [i for i, value in given.items() if any(_is_flag(leaf, arrays) for leaf in jax.tree.leaves(value))]
    return bools or list(numbers)


def _is_flag(value: Any, arrays: bool) -> bool:
    if arrays and isinstance(value, (np.ndarray, jax.Array)) and not isinstance(value, jax.core.Tracer):
        return value.shape == () and value.dtype == bool
    return isinstance(value, (bool, np.bool_))


def explain_traced_flag(
    error: Exception, transform: str, fun: Callable[..., Any], flags: Flags | None, compiled: bool
) -> None:
    """Adds a note to the error of a Python `if` on a traced value that says what to write.

    Args:
      error: the error.
      transform: the public function of hkx that runs `fun`.
      fun: the function.
      flags: the arguments that it may have turned from known values into traced ones; None if that is unknown.
      compiled: whether `apply` itself is traced.
    """
    if flags == [] or hasattr(error, "of_transform"):
        return  # it is traced elsewhere, or by a transform inside of this one
    name = getattr(fun, "__name__", "f").replace("<lambda>", "f")
    static = f"Make a flag, as a Python value, a static argument: `{transform}({name}, "
    if flags is None:
        cure = f"Instead of passing a flag through `{transform}`, close over it"
    elif all(isinstance(flag, int) for flag in flags):
        cure = f"{static}static_argnums=({', '.join(map(str, flags))},))`"
    elif transform == "hkx.jit" and all(isinstance(flag, str) for flag in flags):
        cure = f"{static}static_argnames=({', '.join(map(repr, flags))},))`"
    else:
        cure = f"Close over a flag: `{transform}(lambda x: {name}(x, flag))(x)`"
    error.add_note(
        f"A Python `if` needs the value of an array that `{transform}` traces. {cure}. To choose by a computed value, "
        "use `hkx.cond` or `jnp.where`."
    )
    # Otherwise `jax.jit` around all may have traced it.
    error.of_transform = bool(flags) or not compiled  # type: ignore[attr-defined]


def check_flags(run: Callable[..., Any], args: Any, kwargs: Any, flags: Flags) -> None:
    """Runs a function on traced flags, without creating anything, so that `init` raises the error of `apply`."""

    def traced(values: dict[Any, Any]) -> None:
        run([values.get(i, arg) for i, arg in enumerate(args)], {k: values.get(k, arg) for k, arg in kwargs.items()})

    jax.eval_shape(traced, {i: args[i] if isinstance(i, int) else kwargs[i] for i in flags})
