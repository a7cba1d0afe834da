"""The check of arguments: kind of number, shape and range.

The requirements are annotations (`rlx.core.annotations`). `rlx.core.operator` reads them from a signature; methods pass
them to `as_arrays`. Tracers have shapes and dtypes too, so the checks work under `jit`, `vmap`, `grad` and `pmap`, and
cost nothing at run time. All errors are subclasses of `rlx.ArgumentError`. If an argument is a batch, the error shows
the call that maps over it.
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
from rlx.core.annotations import KINDS, Indices, Shaped
from rlx.core.errors import DTypeError, OptionError, RankError, ShapeError
from rlx.core.shapes import NEVER_EMPTY, Lengths, broadcast, fits, match, rank_fits
from rlx.core.types import Array, in_32_bits, to_jax

_LONGEST = 2**63 - 1  # length of an array
_MOST_READ = 4096  # indices; a program that runs step by step does not wait for larger arrays


def as_arrays(function: str, **arguments: tuple[Any, Any]) -> tuple[Array, ...]:
    """Checks arguments and returns them, in order, as JAX arrays. This is for methods, which are not operators.

    Args:
      function: the name of the function, for errors.
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
    """Checks `values` and replaces them by arrays. Those of kind `Real` get the common dtype of floating arguments.

    Args:
      function: the name of the function, for errors.
      annotations: the annotations of the array arguments, by name.
      values: the arguments, by name; updated in place.
      lengths: the lengths known so far; updated in place.
    """
    promote, indices = False, []
    for name, annotation in annotations.items():
        if annotation.optional and values.get(name) is None:
            continue
        value = values[name]
        if annotation.stays_a_number and type(value) in (float, int, bool) and () in annotation.shapes:
            try:
                values[name] = float(value)
            except OverflowError:
                _as_array(function, name, value, annotation.kind)  # whose error names it
        else:
            array = values[name] = _as_array(function, name, value, annotation.kind)
            if not fits(name, array.shape, annotation.shapes, lengths):
                _raise_shape(function, name, array.shape, annotations, values, lengths)
            if array.shape == (1,) and annotation.or_one and lengths.get(annotation.or_one, (1, ""))[0] != 1:
                values[name] = array.reshape(())
            promote = promote or (annotation.kind == "Real" and not is_floating(array.dtype))
        wanted = annotation.range
        if isinstance(wanted, Indices):
            indices.append((name, value, wanted))
        elif wanted is not None and not (wanted.of_scalars and np.ndim(value)):
            numbers = known(value)
            require(numbers is None or wanted.holds(numbers), name, value, wanted.words, function)
    _require_indices(function, indices, values, lengths)
    if promote:
        _promote(annotations, values)
    for leading in [token for token in lengths if token.startswith("*#")]:
        _make_ranks_equal(annotations, values, leading, len(lengths[leading][0]))


def _require_indices(function: str, indices: list[Any], values: Mapping[str, Any], lengths: Lengths) -> None:
    for name, value, wanted in indices:
        length, who = lengths[wanted.length]
        unknown = isinstance(value, jax.core.Tracer) or not isinstance(length, int)  # or the length is symbolic
        numbers = None if unknown or length < 1 or np.size(value) > _MOST_READ else known(value)
        if numbers is None:
            continue
        wrong = (numbers < wanted.least) | (numbers >= length)
        if wanted.weight is not None and wrong.any() and values[wanted.weight] is not None:
            weights = known(values[wanted.weight])
            wrong &= False if weights is None else weights != 0
        if wrong.any():
            at = np.argwhere(wrong)[0].tolist()
            arrived = f"{numbers[tuple(at)]} at {at}" if at else numbers
            expected = f"an index from 0 to {length - 1}" + (", or -1 for none" if wanted.least == -1 else "")
            size = f"{wanted.length.strip('{}')} = {length} from `{who}`"
            raise OptionError(f"{function}: argument `{name}` is {arrived}, expected {expected}, with {size}.")


def require(ok: Any, argument: str, arrived: Any, expected: str, function: str = "") -> None:
    """Raises `OptionError` unless `ok`: for settings, inside a kernel, whose operator adds its own name in front.

    Methods, which are not run by an operator, pass their name as `function`.

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
    """Requires that a structure has these attributes; it may come from another library.

    Example:
      >>> from rlx.core.arguments import require_parts
      >>> require_parts("state", 1.0, ("shift", "scale"), "a `rlx.PopArtState`")
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: argument `state` is 1.0, expected a `rlx.PopArtState`.
    """
    expected += advice_for_a_dict(arrived, parts)
    require(all(hasattr(arrived, part) for part in parts), argument, arrived, expected, function)


def advice_for_a_dict(arrived: Any, parts: Sequence[str]) -> str:
    """Advice about a state that is a dict of its parts, as some libraries load it without an example of it."""
    if not (isinstance(arrived, Mapping) and all(part in arrived for part in parts)):
        return ""
    return ".\nIf it was loaded from a checkpoint, give the library that loads it a new state, whose structure it takes"


def require_ascending(strictly: bool = True, function: str = "", **bounds: Any) -> None:
    """Requires that bounds, which are numbers by name, are in ascending order.

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
    """Requires that arrays, by name, broadcast against each other. This is for fields of structures.

    Example:
      >>> import numpy as np
      >>> from rlx.core.arguments import require_broadcast
      >>> require_broadcast(kl=np.ones([2, 3]), alpha=np.ones(3))
    """
    shape: Any = ()
    for name, x in arrays.items():
        before, shape = shape, broadcast(shape, np.shape(x))
        if shape is None:
            raise ShapeError(_does_not_broadcast(name, np.shape(x), before))


def require_broadcast_to_first(**arrays: Any) -> None:
    """Requires that arrays, by name, broadcast to the shape of the first of them, and give it no further axes or rows.

    Example:
      >>> import numpy as np
      >>> from rlx.core.arguments import require_broadcast_to_first
      >>> require_broadcast_to_first(kl=np.ones([2, 3]), alpha=np.ones(3), epsilon=0.1)
    """
    (of, shape), *others = ((name, np.shape(x)) for name, x in arrays.items())
    for name, own in others:
        if broadcast(own, shape) != shape:
            raise ShapeError(
                f"argument `{name}` has shape {_text(own)}, expected one that broadcasts to {_text(shape)}, "
                f"the shape of `{of}`."
            )


def require_for_each(argument: str, x: Any, of: str, rows: Any, function: str = "") -> None:
    """Requires that `x` is one number for all rows, or one for each row, with a last axis of length 1.

    Example:
      >>> import numpy as np
      >>> from rlx.core.arguments import require_for_each
      >>> require_for_each("epsilon", np.ones([2, 1]), "preferences", np.ones([2, 3]))
    """
    shape, whole_shape = np.shape(x), np.shape(rows)
    if shape and (shape[-1] != 1 or broadcast(shape[:-1], whole_shape[:-1]) is None):
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


def whole(
    argument: str,
    arrived: Any,
    expected: str,
    function: str = "",
    least: int | None = None,
    most: int = _LONGEST,
) -> int:
    """Returns a setting that must be an integer from `least` to `most`, as a Python integer.

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
    require((least is None or number >= least) and number <= most, argument, number, expected, function)
    return number


def as_switch(argument: str, value: Any, function: str = "", may_be_traced: bool = False) -> Any:
    """Converts a boolean or a number to True or False, or to a scalar boolean array if it is traced and may be.

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


def as_axis_name(argument: str, value: Any, function: str = "") -> Any:
    """The name or names of axes, if `jax.vmap`, `jax.pmap` or `jax.shard_map` maps them where this is called, or None.

    Example:
      >>> import jax
      >>> from rlx.core.arguments import as_axis_name
      >>> float(jax.vmap(lambda x: jax.lax.psum(x, as_axis_name("axis_name", "i")), axis_name="i")(np.ones(3))[0])
      3.0
    """
    try:
        bound = value is None or jax.lax.axis_size(value) >= 0
    except (NameError, TypeError, ValueError):
        bound = False
    require(bound, argument, value, "the `axis_name` of a `jax.vmap` or `jax.pmap` that this is called in", function)
    return value


def known(value: Any) -> np.ndarray | None:
    """The numbers in `value`, or None if they are not known when Python runs, because it is traced.

    Example:
      >>> import jax
      >>> from rlx.core.arguments import known
      >>> known(2.0), jax.eval_shape(lambda x: [] if known(x) is None else [x], 2.0)
      (array(2.), [])
    """
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        # An array that is sharded over several processes cannot be read by one of them.
        return np.asarray(jax.device_get(value)) if value.is_fully_addressable else None
    return np.asarray(value)


def shown(value: Any) -> str:
    """A value as shown in an error: numbers and concrete arrays without their types, otherwise the `repr`."""
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
            # Under a trace, numbers stay concrete, so that their range can be checked.
            with jax.ensure_compile_time_eval() if np.ndim(value) == 0 else contextlib.nullcontext():
                array = to_jax(value)
        except (TypeError, ValueError, OverflowError) as error:
            what = f"{value}, too large a number" if isinstance(error, OverflowError) else f"a {type(value).__name__}"
            raise DTypeError(f"{function}: argument `{name}` is {what}, expected an array of {expected}.") from error
    if not _is_of(kind, array.dtype):
        raise DTypeError(
            f"{function}: argument `{name}` has dtype {array.dtype}, expected {expected}.\n{advice.format(name)}"
        )
    if kind == "Mask":
        return array if array.dtype == bool else array.astype(bool)
    return in_32_bits(array) if kind == "Int" else array


def widen_half(annotations: Mapping[str, Shaped], values: dict[str, Any]) -> Any:
    """Converts half-precision arguments to float32, in place.

    Returns:
      The dtype of results if the floating arguments share a half-precision one, else None, as JAX promotes.
    """
    floats = [name for name, a in annotations.items() if a.kind in ("Float", "Real") and _is_float(values[name])]
    dtypes = {values[name].dtype for name in floats if not values[name].weak_type}
    if not any(dtype.itemsize < 4 for dtype in dtypes):
        return None
    for name in floats:
        if values[name].dtype.itemsize < 4:
            values[name] = values[name].astype(jnp.float32)
    return dtypes.pop() if len(dtypes) == 1 else None


def _is_float(value: Any) -> bool:
    return isinstance(value, jax.Array) and is_floating(value.dtype)


def _raise_shape(
    function: str,
    name: str,
    shape: tuple[int, ...],
    annotations: Mapping[str, Shaped],
    values: Mapping[str, Any],
    lengths: Lengths,
) -> None:
    wanted = annotations[name]
    fitting = [dims for dims in wanted.shapes if rank_fits(dims, len(shape))]
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
    shared = next((token for token in tokens if token.startswith("*#") and token in lengths), None)
    others = {token: length for token, length in lengths.items() if token != shared}
    if shared is not None and match(name, shape, fitting[0], others) is not None:
        before, who = lengths[shared]
        if shared.startswith("*##") and broadcast(shape, before) is not None:
            longer = who if len(before) >= len(shape) else name
            raise ShapeError(
                f"{function}: argument `{name}` has shape {_text(shape)}, expected one that fits {_text(before)} of "
                f"`{who}`: together they broadcast to more than either has.\n"
                f"Without the axis of 1, as of a critic's output, write {longer}[..., 0]; for all pairs, "
                "jnp.broadcast_arrays."
            )
        raise ShapeError(f"{function}: {_does_not_broadcast(name, shape, before)}")
    facts = [
        f"{token.lstrip('*#')} = {_text(value) if isinstance(value, tuple) else value} from `{who}`"
        for token, (value, who) in ((t, lengths[t]) for t in dict.fromkeys(tokens) if t in lengths)
    ]
    facts += [f"{token} at least 1" for token in tokens if 0 in shape and token in NEVER_EMPTY]
    raise ShapeError(
        f"{function}: argument `{name}` has shape {_text(shape)}, expected shape {wanted.expected}"
        + (f" with {', '.join(facts)}.\n" if facts else ".\n")
        + "Pass arrays whose lengths agree."
    )


def _promote(annotations: Mapping[str, Shaped], values: dict[str, Any]) -> None:
    arrays = {name: values[name] for name in annotations if isinstance(values[name], jax.Array)}
    # Promotes arrays, not dtypes, because of weak types: a Python number adopts the dtype of the other arguments.
    dtype = jnp.result_type(*[x for x in arrays.values() if is_floating(x.dtype)] or [float])
    for name, x in arrays.items():
        if annotations[name].kind == "Real" and not is_floating(x.dtype):
            values[name] = x.astype(dtype)


def _make_ranks_equal(annotations: Mapping[str, Shaped], values: dict[str, Any], leading: str, rank: int) -> None:
    """Gives arrays that broadcast the same rank, so that `jax_numpy_rank_promotion="raise"` is no problem."""
    for name, annotation in annotations.items():
        dims = annotation.shapes[0]
        x = values[name]
        if (leading, 0) in dims and np.ndim(x) not in (0, rank + len(dims) - 1):
            values[name] = x.reshape((1,) * (rank + len(dims) - 1 - x.ndim) + x.shape)


def _text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
