"""The one argument checker: rank, length and kind of number, by name, at trace time.

An operator states what it takes once, in the notation of its docstring, and gets JAX arrays back:

    r_t, discount_t, v_t = check("discounted_returns",
        r_t=(r_t, "[T]", "real"), discount_t=(discount_t, "[T]", "real"), v_t=(v_t, "[] or [T]", "float"))

Shapes. `[]` is a scalar, `[T, A]` a matrix, `[T+1]` and `[T-1]` lengths relative to `T`, `[3]` a fixed length, `[*E]`
any shape, `[*E, A]` any leading axes and then one of length `A`. `or` separates alternatives. A name stands for one
length (one shape for `*E`) throughout a call: the first argument that has it decides, later ones must agree. There
may be no step `T`, but at least one action `A`, atom `K` or `L`, and `M` or `N` of what a mean or a minimum is taken.

Kinds. `float`: floating point, the outputs of networks. `real`: any real number or boolean, and converted to the
dtype that the `float` arguments of the call have together (rewards, discounts, importance weights are often integers).
`int`: integers, for indices. `mask`: any real number or boolean, left as it is. `number`: the same,
where it is no mask. `any`: any number.

Ranges. A setting says after its kind where it must lie: `real in [0, 1]`, `real in (0, inf)`; round brackets leave out
the end, NaN lies nowhere. `real in [0, 1] if []` asks it of a scalar alone, where an array is data of the steps.
`float increasing` asks for atoms that do not fall. Only what is known when Python runs is looked at, numbers and
concrete arrays; what is traced passes.

Shapes and dtypes are known of tracers too, so the checks work under `jit`, `vmap`, `grad` and `pmap`, and cost nothing
at run time. Every failure is a subclass of `rlx.ArgumentError`, and of a batch it prints the call that maps over it.
"""

import functools
import itertools
import operator
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from rlx.core.advice import advise
from rlx.core.errors import ArgumentError, DTypeError, OptionError, RankError, ShapeError
from rlx.core.types import Array

_KINDS = {
    "float": ("floating-point numbers", (jnp.floating,)),
    "int": ("integers", (jnp.integer,)),
    "real": ("real numbers", (jnp.floating, jnp.integer, jnp.bool_)),
    "mask": ("a mask of booleans or numbers", (jnp.floating, jnp.integer, jnp.bool_)),
    "number": ("real numbers", (jnp.floating, jnp.integer, jnp.bool_)),
    "any": ("numbers", (jnp.number, jnp.bool_)),
}
_KIND_ADVICE = {
    "float": "Pass floating-point values: jnp.asarray({name}, jnp.float32).",
    "int": "Pass indices of an integer dtype: jnp.asarray({name}, jnp.int32).",
}
_NEVER_EMPTY = frozenset("AKLMN")
_INTERVAL = re.compile(r"([\[(])\s*(\S+)\s*,\s*(\S+?)\s*([\])])")
_IN_WORDS = {
    "(0, inf]": "a positive number",
    "(0, inf)": "a positive, finite number",
    "[0, inf]": "a number of at least 0",
    "[0, inf)": "a finite number of at least 0",
    "(-inf, inf)": "a finite number",
    "[-inf, inf]": "a number",
}


def check(function: str, **arguments: tuple[Any, str, str]) -> tuple[Array, ...]:
    """Checks the arguments of one call and returns them, in order, as JAX arrays.

    Args:
      function: name of the calling operator, for messages.
      **arguments: for each argument, by its public name, a tuple (value, shape, kind) in the notation above.

    Returns:
      The values as JAX arrays; arguments of kind `real` that hold integers or booleans are converted to floats.

    Raises:
      RankError, ShapeError, DTypeError, OptionError: naming the function, the argument, what arrived and what was
        expected.

    Example:
      >>> from rlx.core.checks import check
      >>> import numpy as np
      >>> q, r = check("f", q=(np.ones(2, np.float32), "[A]", "float"), r=(1, "[]", "real"))
      >>> q.shape, r.dtype
      ((2,), dtype('float32'))
    """
    lengths: dict[str, tuple[Any, str]] = {}
    arrays: dict[str, Array] = {}
    for name, (value, shape, kind) in arguments.items():
        family, _, limit = kind.partition(" ")
        arrays[name] = _as_array(function, name, value, family)
        _check_shape(function, name, tuple(arrays[name].shape), shape, lengths, arguments)
        if limit:
            _check_limit(function, name, value, limit)
    dtype = _common_float([a for a in arrays.values() if jnp.issubdtype(a.dtype, jnp.floating)])
    for name, (_, _, kind) in arguments.items():
        if kind.startswith("real") and not jnp.issubdtype(arrays[name].dtype, jnp.floating):
            arrays[name] = arrays[name].astype(dtype)
    return tuple(arrays.values())


def check_broadcast(function: str, **arguments: tuple[Any, str]) -> tuple[Array, ...]:
    """Checks arguments that need only broadcast against each other, as NumPy arrays do.

    Args:
      function: name of the calling operator, for messages.
      **arguments: for each argument, by its public name, a tuple (value, kind), kinds as for `check`.

    Returns:
      The values as JAX arrays of one rank, so that they can be combined under a strict rank-promotion setting too.

    Raises:
      ShapeError, DTypeError: naming the function, the argument, what arrived and what was expected.

    Example:
      >>> import numpy as np
      >>> from rlx.core.checks import check_broadcast
      >>> x, y = check_broadcast("f", x=(np.ones([3, 2]), "float"), y=(np.ones(2), "float"))
      >>> x.shape, y.shape
      ((3, 2), (1, 2))
    """
    arrays = check(function, **{name: (value, f"[*{name}]", kind) for name, (value, kind) in arguments.items()})
    shape: tuple[int, ...] = ()
    for name, array in zip(arguments, arrays, strict=True):
        try:
            shape = np.broadcast_shapes(shape, array.shape)
        except ValueError:
            raise ShapeError(
                f"{function}: argument `{name}` has shape {_text(array.shape)}, expected one that broadcasts against "
                f"{_text(shape)}, the shape of the arguments before it."
            ) from None
    return tuple(a if a.ndim in (0, len(shape)) else a.reshape((1,) * (len(shape) - a.ndim) + a.shape) for a in arrays)


def require(function: str, argument: str, ok: bool, arrived: Any, expected: str) -> None:
    """Raises `OptionError` unless `ok`: for settings, whose values are known when Python runs.

    Example:
      >>> from rlx.core.checks import require
      >>> require("f", "n", 0 > 0, 0, "a positive number of steps")
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: f: argument `n` is 0, expected a positive number of steps.
    """
    if not ok:
        raise OptionError(f"{function}: argument `{argument}` is {_shown(arrived)}, expected {expected}.")


def whole_number(function: str, argument: str, arrived: Any, expected: str, least: int = 1) -> int:
    """A setting that must be a whole number, at least `least`, as a Python integer.

    Example:
      >>> import numpy as np
      >>> from rlx.core.checks import whole_number
      >>> whole_number("f", "n", np.int32(3), "a positive number of steps")
      3
    """
    try:
        number = operator.index(arrived)
    except TypeError:
        raise OptionError(
            f"{function}: argument `{argument}` is {arrived!r}, expected {expected}, a Python integer."
        ) from None
    require(function, argument, number >= least, number, expected)
    return number


def check_numbers(function: str, **numbers: tuple[Any, str]) -> None:
    """Checks settings that are used as they are given: each a tuple of the value and the interval that it must lie in.

    Example:
      >>> from rlx.core.checks import check_numbers
      >>> check_numbers("f", eps=("1e-3", "[0, inf)"))
      Traceback (most recent call last):
        ...
      rlx.core.errors.DTypeError: f: argument `eps` is a str, expected an array of real numbers.
      >>> check_numbers("f", eps=(-1, "[0, inf)"))
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: f: argument `eps` is -1, expected a finite number of at least 0.
    """
    check(function, **{name: (value, f"[*{name}]", f"real in {span}") for name, (value, span) in numbers.items()})


def check_ascending(function: str, strictly: bool = True, **bounds: Any) -> None:
    """Checks that bounds, which are numbers by name, come in ascending order, each above the one before it.

    Example:
      >>> from rlx.core.checks import check_ascending
      >>> check_ascending("f", low=1.0, high=1.0)
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: f: argument `high` is 1.0, expected more than `low`, which is 1.0.
    """
    for (lower_name, lower), (name, upper) in itertools.pairwise(bounds.items()):
        low, high = known(lower), known(upper)
        if low is not None and high is not None:
            below = operator.lt if strictly else operator.le
            wanted = f"{'more than' if strictly else 'at least'} `{lower_name}`, which is {_shown(lower)}"
            require(function, name, bool(np.all(below(low, high))), upper, wanted)


def known(value: Any) -> np.ndarray | None:
    """The numbers that `value` holds, or None where they are not known when Python runs: where it is traced.

    Example:
      >>> import jax
      >>> from rlx.core.checks import known
      >>> known(2.0), jax.eval_shape(lambda x: [] if known(x) is None else [x], 2.0)
      (array(2.), [])
    """
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        # What is spread over several processes cannot be read by one of them.
        return np.asarray(jax.device_get(value)) if value.is_fully_addressable else None
    return np.asarray(value)


def _as_array(function: str, name: str, value: Any, kind: str) -> Array:
    expected, families = _KINDS[kind]
    if isinstance(value, (list, tuple, dict, str)) or value is None:
        what = "None" if value is None else f"a {type(value).__name__}"
        raise DTypeError(
            f"{function}: argument `{name}` is {what}, expected an array of {expected}."
            + (f"\nPass an array, for instance jnp.asarray({name})." if isinstance(value, (list, tuple)) else "")
        )
    try:
        array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"{function}: argument `{name}` is a {type(value).__name__}, expected an array of {expected}."
        ) from error
    if not any(jnp.issubdtype(array.dtype, family) for family in families):
        advice = _KIND_ADVICE.get(kind, "Convert `{name}` first.").format(name=name)
        raise DTypeError(
            f"{function}: argument `{name}` has dtype {array.dtype}, expected {expected}.\n{advice}",
        )
    return array


def _check_limit(function: str, name: str, value: Any, limit: str) -> None:
    """Raises `OptionError` unless `value`, where known, is "in [0, 1]", "in [0, 1] if []" or "increasing"."""
    inside, wanted, scalars_alone = _read_limit(limit)
    if scalars_alone and np.ndim(value) != 0:
        return
    numbers = known(value)
    if numbers is not None and not inside(numbers):
        raise OptionError(f"{function}: argument `{name}` is {_shown(value)}, expected {wanted}.")


@functools.cache
def _read_limit(limit: str) -> tuple[Callable[[np.ndarray], bool], str, bool]:
    """A test of known numbers, what it asks for in words, and whether it asks it of scalars alone."""
    if limit == "increasing":
        return lambda x: bool(np.all(x[1:] >= x[:-1]) & ~np.any(np.isnan(x))), "numbers in increasing order", False
    match = _INTERVAL.search(limit)
    if match is None:
        raise ArgumentError(f"unreadable limit {limit!r}")
    low, high = float(match[2]), float(match[3])
    above = operator.ge if match[1] == "[" else operator.gt
    below = operator.le if match[4] == "]" else operator.lt

    def inside(x: np.ndarray) -> bool:
        if x.ndim == 0:
            x = x.item()  # a Python number is compared several times faster
        return bool(np.all(above(x, low) & below(x, high)))

    return inside, _IN_WORDS.get(match[0], f"a number in {match[0]}"), limit.endswith("if []")


def _shown(value: Any) -> str:
    """A value in an error: a number as Python writes it, an array without its type, a tracer as such."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        numbers = known(value)
        if numbers is not None:
            return str(numbers) if numbers.ndim else repr(numbers.item())
    return repr(value)


def _common_float(arrays: list[Array]) -> Any:
    return jnp.result_type(*arrays) if arrays else jnp.result_type(float)


def _check_shape(
    function: str,
    name: str,
    shape: tuple[int, ...],
    spec: str,
    lengths: dict[str, tuple[Any, str]],
    arguments: dict[str, tuple[Any, str, str]],
) -> None:
    alternatives = _parse(spec)
    fitting = [dims for dims in alternatives if _rank_fits(dims, len(shape))]
    if not fitting:
        parsed = {key: (value, _parse(dims)) for key, (value, dims, _) in arguments.items()}
        raise RankError(
            f"{function}: argument `{name}` has rank {len(shape)} (shape {_text(shape)}), expected shape {spec}.\n"
            + advise(function, parsed, all(len(dims) < len(shape) for dims in alternatives))
        )
    for dims in fitting:
        found = _match(name, shape, dims, lengths)
        if found is not None:
            lengths.update(found)
            return
    known = {token: lengths[token] for dims in fitting for token, _ in dims if token in lengths}
    facts = [f"{token.lstrip('*')} = {_length(value)} from `{who}`" for token, (value, who) in known.items()]
    if 0 in shape:
        facts += [f"{token} at least 1" for dims in fitting for token, _ in dims if token in _NEVER_EMPTY]
    raise ShapeError(
        f"{function}: argument `{name}` has shape {_text(shape)}, expected shape {spec}"
        + (f" with {', '.join(facts)}.\n" if facts else ".\n")
        + "Pass arrays whose lengths agree."
    )


@functools.cache
def _parse(spec: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """`"[T+1] or []"` -> ((("T", 1),), ()): per alternative its dimensions, each a name or digits and an offset."""
    alternatives = []
    for part in spec.split(" or "):
        inside = part.strip()[1:-1].strip()
        dims = []
        for token in filter(None, (t.strip() for t in inside.split(","))):
            match = re.fullmatch(r"(\*?\w+)([+-]\d+)?", token)
            if match is None:
                raise ArgumentError(f"unreadable dimension {token!r} in shape {spec!r}")
            dims.append((match[1], int(match[2] or 0)))
        alternatives.append(tuple(dims))
    return tuple(alternatives)


def _rank_fits(dims: tuple[tuple[str, int], ...], rank: int) -> bool:
    starred = sum(token.startswith("*") for token, _ in dims)
    return rank >= len(dims) - 1 if starred else rank == len(dims)


def _match(
    name: str, shape: tuple[int, ...], dims: tuple[tuple[str, int], ...], lengths: dict[str, tuple[Any, str]]
) -> dict[str, tuple[Any, str]] | None:
    """The lengths that this shape newly fixes, or None where it contradicts what is known."""
    new: dict[str, tuple[Any, str]] = {}
    position = 0
    for token, offset in dims:
        if token.startswith("*"):
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
        known = new.get(token) or lengths.get(token)
        if known is not None and known[0] != value:
            return None
        if known is None:
            if not isinstance(value, tuple) and value < (token in _NEVER_EMPTY):
                return None
            new[token] = (value, name)
    return new


def _length(value: Any) -> str:
    return _text(value) if isinstance(value, tuple) else str(value)


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(int(np.asarray(n))) for n in shape) + "]"
