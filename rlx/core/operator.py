"""`@operator()`, which turns a kernel into a public operator by means of its signature.

    @operator(masks={"discount_t": ("q_t",)})
    def q_learning(
        q_tm1: Float[Array, "A"],
        a_tm1: Int[Array, ""],
        r_t: Real[Array, ""],
        discount_t: Real[Array, ""],
        q_t: Float[Array, "A"],
        stop_target_gradients: bool = True,
    ) -> Float[Array, ""]:
        target = r_t + discount_t * jnp.max(q_t)
        return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]

The decorated function is the kernel: the equation, a function of arrays. The operator converts its arguments to the
arrays that the annotations describe (`rlx.core.annotations`), checks them once per call, and passes them to the kernel.
`q_learning.kernel` is the kernel, which other kernels call; `q_learning.contract` is what the decorator has read from
the signature.

Settings. `n: int` must be an integer, and becomes a Python integer; `Annotated[int, "a number of classes"]` adds a
description for the error. `key: Key` is a single key of `jax.random`, and `axis_name: AxisName = None` names mapped
axes. The kernel checks the values of settings, with `require(n >= 1, "n", n, "a positive number of steps")`; the
operator adds its name to the error. Arguments with other annotations are passed on unchanged.

Stopping gradients. An operator that compares a prediction with a target has a flag that decides whether gradients flow
into the target: `stop_target_gradients`, or `use_stop_gradient` if RLax uses this name. Both names are accepted as a
keyword, and the flag may be traced. As in RLax, its default is True in losses and temporal-difference errors, where the
target is meant to be constant, and False in functions that return the target itself.

Masks. `masks={"discount_t": ("q_t",), "mask_t": ("adv_t",)}` declares the arguments that a mask or a weight governs:
where the mask is false they are 0, and where the weight is 0 they are 0 if they are infinite or NaN
(`rlx.core.masking`). So kernels are the plain equation, and masked entries affect neither values nor gradients.

Half precision. Kernels compute in float32 or wider: half-precision arguments are converted, and floats in the result
are rounded to the dtype to which JAX would have promoted the arguments. `@operator(widen=False)` passes them unchanged,
for operators that only move numbers, or keep a state.
"""

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ParamSpec, Protocol, TypeVar, get_args, get_origin

import jax
import jax.numpy as jnp

from rlx.core.advice import with_advice
from rlx.core.annotations import Shaped
from rlx.core.arguments import as_axis_name, as_switch, convert, is_floating, whole, widen_half
from rlx.core.errors import ArgumentError, OptionError, RankError, ShapeError
from rlx.core.keys import as_key
from rlx.core.masking import masked
from rlx.core.tracebacks import leave_out_own_frames
from rlx.core.types import Array, AxisName, Key

_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_FLAGS = ("stop_target_gradients", "use_stop_gradient")
_NO_DEFAULT = inspect.Parameter.empty


class Operator(Protocol[_P, _R_co]):
    """The type of an operator, for type checkers."""

    __name__: str
    __qualname__: str

    @property
    def kernel(self) -> Callable[_P, _R_co]: ...

    @property
    def contract(self) -> "Contract": ...

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...


def operator(
    *,
    masks: Mapping[str, Iterable[str]] | None = None,
    widen: bool = True,
) -> Callable[[Callable[_P, _R]], Operator[_P, _R]]:
    """Turns a kernel into an operator.

    Args:
      masks: masks and weights, each with the arguments that have no influence where it is false or 0.
      widen: whether the kernel gets float32 in place of half precision.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.annotations import Float, Real
      >>> from rlx.core.operator import operator
      >>> from rlx.core.types import Array
      >>> @operator(masks={"w_t": ("x_t",)})
      ... def scaled(w_t: Real[Array, "T"], x_t: Float[Array, "T"]) -> Float[Array, "T"]:
      ...     return w_t * x_t
      >>> scaled(jnp.array([0, 2]), jnp.array([jnp.nan, 3.0])).tolist()
      [0.0, 6.0]
    """

    def decorate(kernel: Callable[_P, _R]) -> Operator[_P, _R]:
        contract = Contract(kernel, masks or {}, widen)
        run: Callable[..., _R] = kernel

        def operate(*args: Any, **kwargs: Any) -> _R:
            if kwargs:
                _require_axes_of_vmap(contract.name, args, kwargs)
            try:
                values, half = contract.read(args, kwargs)
                result = run(**values)
                return result if half is None else jax.tree.map(functools.partial(_rounded, half), result)
            except ArgumentError as error:
                if isinstance(error, RankError) and error.wrong_rank is not None:
                    positional = dict(zip(contract.names, args, strict=False))
                    error.args = (with_advice(error.wrong_rank, made, positional, kwargs),)
                    error.wrong_rank = None  # an operator further out must not add advice again
                text = contract.in_own_name(str(error))
                if text != str(error):
                    error.args, error.__cause__, error.__suppress_context__ = (text,), None, True
                leave_out_own_frames(error)
                raise
            except Exception as error:
                leave_out_own_frames(error)
                raise

        made: Any = functools.update_wrapper(operate, kernel)
        made.__signature__ = contract.signature
        said = {**{name: _for_callers(a) for name, a in contract.annotations.items()}, "return": contract.result}
        made.__annotations__ = {name: a.hint if isinstance(a, Shaped) else a for name, a in said.items()}
        made.kernel, made.contract = kernel, contract
        kernel.__qualname__ = f"{kernel.__qualname__}.kernel"  # for pickling
        return made

    return decorate


class Contract:
    """The requirements on the arguments of an operator, read from its signature."""

    def __init__(self, kernel: Callable[..., Any], masks: Mapping[str, Iterable[str]], widen: bool):
        self.name = kernel.__name__
        self.masks = {by: tuple(names) for by, names in masks.items()}
        self.widen = widen
        own, written = inspect.signature(kernel, eval_str=True), inspect.signature(kernel)
        self.annotations = {name: p.annotation for name, p in own.parameters.items()}
        self.result = own.return_annotation
        parameters = [
            p.replace(annotation=_shown(_for_callers(p.annotation), written.parameters[name].annotation))
            for name, p in own.parameters.items()
        ]
        returns = _shown(self.result, written.return_annotation)
        self.signature = own.replace(parameters=parameters, return_annotation=returns)

    @functools.cached_property
    def arrays(self) -> dict[str, Shaped]:
        """The annotations of the array arguments."""
        return {name: a for name, a in self.annotations.items() if isinstance(a, Shaped)}

    @functools.cached_property
    def whole_numbers(self) -> dict[str, str]:
        """The settings that are integers, with their descriptions."""
        return {name: words for name, a in self.annotations.items() if (words := _whole_number(a)) is not None}

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """The arguments that are keys of `jax.random`."""
        return tuple(name for name, a in self.annotations.items() if a == Key)

    @functools.cached_property
    def axis_names(self) -> tuple[str, ...]:
        """The arguments that are names of mapped axes."""
        return tuple(name for name, a in self.annotations.items() if a == AxisName)

    @functools.cached_property
    def switches(self) -> tuple[str, ...]:
        """The boolean settings."""
        return tuple(name for name, a in self.annotations.items() if a is bool)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The arguments that may be passed by position."""
        kinds = {name: p.kind for name, p in self.signature.parameters.items()}
        return tuple(name for name, kind in kinds.items() if kind is not inspect.Parameter.KEYWORD_ONLY)

    @functools.cached_property
    def flag(self) -> tuple[str, str] | None:
        """The name of the stop-gradient flag in the signature, and its alternative name."""
        return next(((a, b) for a, b in (_FLAGS, _FLAGS[::-1]) if a in self.annotations), None)

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Checks and converts the arguments of a call.

        Returns:
          (The kernel's arguments, by name, the half-precision dtype that floats in its result get, or None.)
        """
        values = self.bind(args, kwargs)
        lengths: dict[str, tuple[Any, str]] = {}
        for name, words in self.whole_numbers.items():
            if values[name] is not None or self.signature.parameters[name].default is not None:
                values[name] = whole(name, values[name], words)
                lengths[f"{{{name}}}"] = values[name], name
        for name in self.switches:
            values[name] = as_switch(name, values[name], self.name, may_be_traced=name in _FLAGS)
        for name in self.keys:
            values[name] = as_key(name, values[name], self.name)
        for name in self.axis_names:
            values[name] = as_axis_name(name, values[name], self.name)
        convert(self.name, self.arrays, values, lengths)
        half = widen_half(self.arrays, values) if self.widen else None
        for by, names in self.masks.items():
            given = values[by]
            if given is not None and not (isinstance(given, float) and given):
                values |= jax.tree.map(functools.partial(masked, jnp.asarray(given)), {x: values[x] for x in names})
        return values, half

    def in_own_name(self, text: str) -> str:
        """The text of an error, with this operator's name in front if it is about one of its arguments."""
        before, found, rest = text.partition("argument `")
        if not found or not (before == "" or (before.endswith(": ") and before[:-2].isidentifier())):
            return text
        is_own = before == "" or rest.partition("`")[0].partition(".")[0] in self.annotations
        return f"{self.name}: {found}{rest}" if is_own else text

    @functools.cached_property
    def _defaults(self) -> dict[str, Any]:
        return {name: p.default for name, p in self.signature.parameters.items()}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call and the defaults of others, by name; raises if the signature does not fit."""
        if self.flag is not None and self.flag[1] in kwargs:
            own, other = self.flag
            if own in kwargs or (own in self.names and len(args) > self.names.index(own)):
                raise OptionError(
                    f"{self.name}: argument `{other}` is {kwargs[other]!r}, expected nothing beside `{own}`: "
                    "they are two spellings of one flag."
                )
            kwargs = {own if name == other else name: value for name, value in kwargs.items()}
        given = dict(zip(self.names, args, strict=False))
        values = {**self._defaults, **given, **kwargs}
        twice = given.keys() & kwargs.keys()
        unknown = len(args) > len(self.names) or len(values) > len(self._defaults)
        if twice or unknown or any(value is _NO_DEFAULT for value in values.values()):
            try:
                for name in kwargs.keys() - self._defaults.keys():  # first: it may be a misspelled missing argument
                    raise TypeError(f"got an unexpected keyword argument {name!r}")
                self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ArgumentError(f"{self.name}: {error}. It takes {', '.join(self._defaults)}.") from None
        return values


def maybe_stop(x: Any, stop: bool | jax.Array) -> Any:
    """`x` (an array or a tree), with its gradient stopped if `stop` is true. `stop` may be traced."""
    if isinstance(stop, jax.Array):
        return jax.tree.map(functools.partial(_stopped_where, stop), x)
    return jax.lax.stop_gradient(x) if stop else x


def errors_of(values: Array, errors: Array, stop: bool | jax.Array) -> Array:
    """`errors`, which are targets minus `values`, with the gradient through the targets stopped if `stop` is true."""
    if isinstance(stop, bool) and not stop:
        return errors
    # Not `errors + values - values`, which would round errors that are small beside the values.
    constant = jax.lax.stop_gradient(errors) + (jax.lax.stop_gradient(values) - values)
    return constant if isinstance(stop, bool) else jax.lax.select(stop, constant, errors)


def _stopped_where(stop: jax.Array, leaf: Any) -> Any:
    is_traced_or_array = isinstance(leaf, jax.Array)  # numbers have no gradients
    return jax.lax.select(stop, jax.lax.stop_gradient(leaf), leaf) if is_traced_or_array else leaf


def _rounded(dtype: Any, x: Any) -> Any:
    return x.astype(dtype) if isinstance(x, jax.Array) and is_floating(x.dtype) else x


def _require_axes_of_vmap(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Catches `jax.vmap(operator, in_axes=1)(r_t, truncation_t=x)`: JAX maps keywords over axis 0, whatever `in_axes`.

    With as many steps as rows, nothing else would notice that `x` is transposed. A tracer of `jax.vmap` has its axis;
    if the operator's caller is JAX, that is still the axis over which the user's array is mapped.
    """
    if not any(getattr(x, "batch_dim", None) for x in args):
        return
    wrong = next((k for k, x in kwargs.items() if getattr(x, "batch_dim", None) == 0 and x.ndim), None)
    if wrong is not None and sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] == "jax":
        raise ShapeError(
            f"{name}: argument `{wrong}` was passed by keyword to a function that jax.vmap maps over another axis, but "
            "JAX maps keyword arguments over axis 0, whatever `in_axes` is.\n"
            f"For time-major arrays [T, B] write rlx.time_major(rlx.{name})(..., {wrong}={wrong})."
        )


def _for_callers(annotation: Any) -> Any:
    return annotation.for_callers if isinstance(annotation, Shaped) else annotation


def _shown(annotation: Any, written: Any) -> Any:
    """An annotation as signatures show it: types by name, others as written, without what their aliases stand for."""
    return annotation if isinstance(annotation, (Shaped, type)) and annotation is not Array else written


def _whole_number(annotation: Any) -> str | None:
    """The description of an integer setting, or None if this is not the annotation of one."""
    if get_origin(annotation) is Annotated:
        plain, *words = get_args(annotation)
        return words[0] if plain is int else None
    alone = get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    return "a whole number" if int in alone and set(alone) <= {int, types.NoneType} else None
