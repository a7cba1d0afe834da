"""The one check of arguments: kind of number, shape and range, by name, when Python runs.

What an argument must be is written in the notation of `rlx.core.annotations`. `rlx.core.operator` reads it off a
signature; `as_arrays` takes it as it is, for methods. Shapes and dtypes are known of tracers too, so the checks work
under `jit`, `vmap`, `grad` and `pmap`, and cost nothing at run time. Every failure is a subclass of
`rlx.ArgumentError`, and of a batch it prints the call that maps over it.
"""

import contextlib
import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from rlx.core.advice import WrongRank, general_advice
from rlx.core.annotations import KINDS, Dims, Shaped
from rlx.core.errors import DTypeError, OptionError, RankError, ShapeError
from rlx.core.types import Array

Lengths = dict[str, tuple[Any, str]]
"""What is known of the lengths in a call: of each name its value, and the argument that it is from."""

_NEVER_EMPTY = frozenset("AKLMN")


def as_arrays(function: str, **arguments: tuple[Any, Any]) -> tuple[Array, ...]:
    """Checks arguments and returns them, in order, as JAX arrays: for methods, which are no operators.

    Args:
      function: the name to put into errors.
      **arguments: for each argument, by its public name, (value, annotation).

    Example:
      >>> import numpy as np
      >>> from rlx.core.annotations import Float, Real
      >>> from rlx.core.arguments import as_arrays
      >>> from rlx.core.types import Array
      >>> q, r = as_arrays("f", q=(np.ones(2, np.float32), Float[Array, "A"]), r=(1, Real[Array, ""]))
      >>> q.shape, r.dtype
      ((2,), dtype('float32'))
    """
    values = {name: value for name, (value, _) in arguments.items()}
    convert(function, {name: annotation for name, (_, annotation) in arguments.items()}, values, {})
    return tuple(values.values())


def convert(function: str, annotations: Mapping[str, Shaped], values: dict[str, Any], lengths: Lengths) -> None:
    """Checks `values`, and puts arrays in their place: those of a `Real` of one floating dtype with the others.

    Args:
      function: the name to put into errors.
      annotations: of the arguments that are arrays, by name.
      values: what was given, by name; changed.
      lengths: what is known already; changed.
    """
    promote = False
    for name, annotation in annotations.items():
        if annotation.optional and values.get(name) is None:
            continue
        value = values[name]
        if annotation.stays_a_number and type(value) in (float, int, bool) and () in annotation.shapes:
            values[name] = float(value)
        else:
            array = values[name] = _as_array(function, name, value, annotation.kind)
            if not _fits(name, array.shape, annotation.shapes, lengths):
                _raise_shape(function, name, array.shape, annotations, values, lengths)
            if array.shape == (1,) and annotation.or_one and lengths.get(annotation.or_one, (1, ""))[0] != 1:
                values[name] = array.reshape(())
            promote = promote or (annotation.kind == "Real" and not is_floating(array.dtype))
        if annotation.range is not None and not (annotation.range.of_scalars and np.ndim(value)):
            numbers = known(value)
            if numbers is not None and not annotation.range.holds(numbers):
                raise OptionError(
                    f"{function}: argument `{name}` is {shown(value)}, expected {annotation.range.words}."
                )
    if promote:
        _promote(annotations, values)
    for leading in [token for token in lengths if token.startswith("*#")]:
        _make_ranks_equal(annotations, values, leading, len(lengths[leading][0]))


def require(ok: Any, argument: str, arrived: Any, expected: str, function: str = "") -> None:
    """Raises `OptionError` unless `ok`: for settings, in a kernel, whose operator puts its own name in front.

    A method, which no operator runs, says by `function` what it is called.

    Example:
      >>> from rlx.core.arguments import require
      >>> require(0 > 0, "n", 0, "a positive number of steps")
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: argument `n` is 0, expected a positive number of steps.
    """
    if not ok:
        before = f"{function}: " if function else ""
        raise OptionError(f"{before}argument `{argument}` is {shown(arrived)}, expected {expected}.")


def require_parts(argument: str, arrived: Any, parts: Sequence[str], expected: str, function: str = "") -> None:
    """Requires that a structure has these attributes: one of another library with the same ones is as good.

    Example:
      >>> from rlx.core.arguments import require_parts
      >>> require_parts("state", 1.0, ("shift", "scale"), "a `rlx.PopArtState`")
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: argument `state` is 1.0, expected a `rlx.PopArtState`.
    """
    require(all(hasattr(arrived, part) for part in parts), argument, arrived, expected, function)


def require_ascending(strictly: bool = True, function: str = "", **bounds: Any) -> None:
    """Requires that bounds, which are numbers by name, come in ascending order, each above the one before it.

    Example:
      >>> from rlx.core.arguments import require_ascending
      >>> require_ascending(low=1.0, high=1.0)
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: argument `high` is 1.0, expected more than `low`, which is 1.0.
    """
    for (lower_name, lower), (name, upper) in itertools.pairwise(bounds.items()):
        low, high = known(lower), known(upper)
        if low is not None and high is not None:
            below = operator.lt if strictly else operator.le
            wanted = f"{'more than' if strictly else 'at least'} `{lower_name}`, which is {shown(lower)}"
            require(bool(np.all(below(low, high))), name, upper, wanted, function)


def require_broadcast(**arrays: Any) -> None:
    """Requires that arrays, by name, broadcast against each other: those of structures, which no annotation checks.

    Example:
      >>> import numpy as np
      >>> from rlx.core.arguments import require_broadcast
      >>> require_broadcast(kl=np.ones([2, 3]), alpha=np.ones(3))
    """
    shape: tuple[int, ...] = ()
    for name, x in arrays.items():
        try:
            shape = np.broadcast_shapes(shape, np.shape(x))
        except ValueError:
            raise ShapeError(_does_not_broadcast(name, np.shape(x), shape)) from None


def require_for_each(argument: str, x: Any, of: str, rows: Any, function: str = "") -> None:
    """Requires that `x` is one number for all rows, or one for each along axes that broadcast, the last of length 1.

    Example:
      >>> import numpy as np
      >>> from rlx.core.arguments import require_for_each
      >>> require_for_each("epsilon", np.ones([2, 1]), "preferences", np.ones([2, 3]))
    """
    shape, whole_shape = np.shape(x), np.shape(rows)
    try:
        fits = not shape or (np.broadcast_shapes(shape[:-1], whole_shape[:-1]) is not None and shape[-1] == 1)
    except ValueError:
        fits = False
    if not fits:
        before = f"{function}: " if function else ""
        raise ShapeError(
            f"{before}argument `{argument}` has shape {_text(shape)}, expected [] or a shape that broadcasts against "
            f"{_text((*whole_shape[:-1], 1))}, one number for each row of `{of}`.\n"
            f"For one number for each row of a batch write {argument}[..., None]."
        )


def _does_not_broadcast(name: str, shape: tuple[int, ...], before: tuple[int, ...]) -> str:
    return (
        f"argument `{name}` has shape {_text(shape)}, expected one that broadcasts against {_text(before)}, "
        "the shape of the arguments before it."
    )


def whole(argument: str, arrived: Any, expected: str, function: str = "", least: int | None = None) -> int:
    """A setting that must be a whole number, of at least `least`, as a Python integer.

    Example:
      >>> import numpy as np
      >>> from rlx.core.arguments import whole
      >>> whole("n", np.int32(3), "a number of steps")
      3
    """
    try:
        number = operator.index(arrived)
    except TypeError:
        before = f"{function}: " if function else ""
        raise OptionError(
            f"{before}argument `{argument}` is {arrived!r}, expected {expected}, a Python integer."
        ) from None
    require(least is None or number >= least, argument, number, expected, function)
    return number


def as_switch(argument: str, value: Any, function: str = "", may_be_traced: bool = False) -> Any:
    """True or False, of whatever is one number; where it is traced and may be, an array of booleans of no axes.

    Example:
      >>> import numpy as np
      >>> from rlx.core.arguments import as_switch
      >>> as_switch("keepdims", np.array(True))
      True
    """
    if isinstance(value, bool):
        return value
    is_number = isinstance(value, (int, float, np.generic, np.ndarray, jax.Array)) and np.ndim(value) == 0
    is_number = is_number and _is_of("Real", jnp.result_type(value))
    traced = is_number and known(value) is None
    expected = "True or False" if may_be_traced else "True or False, known when Python runs"
    require(is_number and (may_be_traced or not traced), argument, value, expected, function)
    return jnp.asarray(value).astype(bool) if traced else bool(value)


def known(value: Any) -> np.ndarray | None:
    """The numbers that `value` holds, or None where they are not known when Python runs: where it is traced.

    Example:
      >>> import jax
      >>> from rlx.core.arguments import known
      >>> known(2.0), jax.eval_shape(lambda x: [] if known(x) is None else [x], 2.0)
      (array(2.), [])
    """
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        # What is spread over several processes cannot be read by one of them.
        return np.asarray(jax.device_get(value)) if value.is_fully_addressable else None
    return np.asarray(value)


def shown(value: Any) -> str:
    """A value in an error: a number as Python writes it, an array without its type, a tracer as such."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        numbers = known(value)
        if numbers is not None:
            return str(numbers) if numbers.ndim else repr(numbers.item())
    return repr(value)


@functools.cache
def is_floating(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


@functools.cache
def _is_of(kind: str, dtype: Any) -> bool:
    return any(jnp.issubdtype(dtype, family) for family in KINDS[kind][1])


def _as_array(function: str, name: str, value: Any, kind: str) -> Array:
    expected, _, advice = KINDS[kind]
    if isinstance(value, jax.Array):
        array = value
    else:
        if isinstance(value, (list, tuple, dict, str)) or value is None:
            what = "None" if value is None else f"a {type(value).__name__}"
            more = f"\nPass an array, for instance jnp.asarray({name})." if isinstance(value, (list, tuple)) else ""
            raise DTypeError(f"{function}: argument `{name}` is {what}, expected an array of {expected}.{more}")
        try:
            # A number stays known where JAX is tracing, so that its range can be checked.
            with jax.ensure_compile_time_eval() if np.ndim(value) == 0 else contextlib.nullcontext():
                array = jnp.asarray(value)
        except (TypeError, ValueError, OverflowError) as error:
            what = f"{value}, too large a number" if isinstance(error, OverflowError) else f"a {type(value).__name__}"
            raise DTypeError(f"{function}: argument `{name}` is {what}, expected an array of {expected}.") from error
    if not _is_of(kind, array.dtype):
        raise DTypeError(
            f"{function}: argument `{name}` has dtype {array.dtype}, expected {expected}.\n{advice.format(name)}"
        )
    return array


def _fits(name: str, shape: tuple[int, ...], shapes: tuple[Dims, ...], lengths: Lengths) -> bool:
    """Whether the shape is one of those that it may be; what it newly says of lengths is then known."""
    for dims in shapes:
        found = _match(name, shape, dims, lengths) if _rank_fits(dims, len(shape)) else None
        if found is not None:
            lengths.update(found)
            return True
    return False


@functools.cache
def _rank_fits(dims: Dims, rank: int) -> bool:
    starred = any(token.startswith("*") for token, _ in dims)
    return rank >= len(dims) - 1 if starred else rank == len(dims)


def _match(name: str, shape: tuple[int, ...], dims: Dims, lengths: Lengths) -> Lengths | None:
    """The lengths that this shape newly fixes, or None where it contradicts what is known."""
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
            if token[0] != "*" and value < (token in _NEVER_EMPTY):
                return None
            new[token] = (value, name)
        elif token[:2] == "*#":
            try:
                new[token] = (np.broadcast_shapes(before[0], value), name)
            except ValueError:
                return None
        elif before[0] != value:
            return None
    return new


def _raise_shape(
    function: str,
    name: str,
    shape: tuple[int, ...],
    annotations: Mapping[str, Shaped],
    values: Mapping[str, Any],
    lengths: Lengths,
) -> None:
    wanted = annotations[name]
    fitting = [dims for dims in wanted.shapes if _rank_fits(dims, len(shape))]
    if not fitting:
        given = {x: a.shapes for x, a in annotations.items() if not (a.optional and values[x] is None)}
        number_or_sequence = sorted(len(dims) for dims in wanted.shapes) == [0, 1]
        in_words = f": {name} must be a scalar or a tensor of rank 1" if number_or_sequence else ""
        too_many = all(len(dims) < len(shape) for dims in wanted.shapes)
        says = (
            f"{function}: argument `{name}` has rank {len(shape)} (shape {_text(shape)}), expected shape "
            f"{wanted.expected}{in_words}."
        )
        error = RankError(f"{says}\n{general_advice(function, too_many)}")
        error.wrong_rank = WrongRank(says, given, too_many)
        raise error
    tokens = [token for dims in fitting for token, _ in dims]
    broadcast = next((token for token in tokens if token.startswith("*#") and token in lengths), None)
    others = {token: length for token, length in lengths.items() if token != broadcast}
    if broadcast is not None and _match(name, shape, fitting[0], others) is not None:
        raise ShapeError(f"{function}: {_does_not_broadcast(name, shape, lengths[broadcast][0])}")
    facts = [
        f"{token.lstrip('*#')} = {_text(value) if isinstance(value, tuple) else value} from `{who}`"
        for token, (value, who) in ((t, lengths[t]) for t in dict.fromkeys(tokens) if t in lengths)
    ]
    facts += [f"{token} at least 1" for token in tokens if 0 in shape and token in _NEVER_EMPTY]
    raise ShapeError(
        f"{function}: argument `{name}` has shape {_text(shape)}, expected shape {wanted.expected}"
        + (f" with {', '.join(facts)}.\n" if facts else ".\n")
        + "Pass arrays whose lengths agree."
    )


def _promote(annotations: Mapping[str, Shaped], values: dict[str, Any]) -> None:
    arrays = {name: values[name] for name in annotations if isinstance(values[name], jax.Array)}
    # Of the arrays, not of their dtypes: a Python number among them takes the dtype of the others.
    dtype = jnp.result_type(*[x for x in arrays.values() if is_floating(x.dtype)] or [float])
    for name, x in arrays.items():
        if annotations[name].kind == "Real" and not is_floating(x.dtype):
            values[name] = x.astype(dtype)


def _make_ranks_equal(annotations: Mapping[str, Shaped], values: dict[str, Any], leading: str, rank: int) -> None:
    """Gives arrays that broadcast one rank, so that a strict rank-promotion setting has nothing to say."""
    for name, annotation in annotations.items():
        dims = annotation.shapes[0]
        x = values[name]
        if (leading, 0) in dims and np.ndim(x) not in (0, rank + len(dims) - 1):
            values[name] = x.reshape((1,) * (rank + len(dims) - 1 - x.ndim) + x.shape)


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(int(np.asarray(n))) for n in shape) + "]"
