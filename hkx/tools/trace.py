"""Traces a function, and records its program and every call of a module's method.

Each call has a number, which is in the name stack of every equation that the call computes. So it is known to which
calls an equation belongs. All tools that inspect models are built on this.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, find_top_trace

from hkx.core.hooks import MethodContext, intercept_methods
from hkx.core.module import Module
from hkx.jaxprs.traces import inner_programs
from hkx.lift.layer_stack import LayerStack

_NOT_CALLS = frozenset(("__init__", "params_dict", "state_dict"))
_count = itertools.count()
_TAG = re.compile(r"hkx_call_(\d+)")


def type_name(dtype: Any) -> str:
    """A short name for a dtype: `f32` for `float32`, `s8` for `int8`; `bool` is unchanged."""
    name = np.dtype(dtype).name if not jax.numpy.issubdtype(dtype, jax.dtypes.extended) else str(dtype)
    for long, short in (("bfloat", "bf"), ("float", "f"), ("complex", "c"), ("uint", "u"), ("int", "s")):
        if name.startswith(long):
            return short + name[len(long) :]
    return name


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """The shape and dtype of an array; its repr is short, as in `f32[2,3]`.

    Args:
      shape: the shape.
      dtype: the dtype.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.experimental.ArraySpec.from_array(jnp.ones([2, 3]))
      f32[2,3]
    """

    shape: Sequence[int]
    dtype: Any

    @classmethod
    def from_array(cls, array: Any) -> ArraySpec:
        """The spec of an object with a shape and a dtype."""
        return cls(tuple(array.shape), array.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"{type_name(self.dtype)}[{','.join(map(str, self.shape))}]"


def specs(tree: Any) -> Any:
    """Replaces every array in `tree` by an `ArraySpec`; other leaves are unchanged."""
    is_array = lambda x: hasattr(x, "shape") and hasattr(x, "dtype")  # noqa: E731
    return jax.tree.map(lambda x: ArraySpec.from_array(x) if is_array(x) else x, tree)


@dataclasses.dataclass(frozen=True)
class ModuleDetails:
    """A module and one of its methods, with the parameters and state that it had after the call.

    Attributes:
      module: the module.
      method_name: the name of the method.
      params: the specs of the parameters of the module and its submodules, by full name.
      state: the specs of the state of the module and its submodules, by full name.
      prefix: the prefix of the names of the module, its parameters and its state outside of a `hkx.layer_stack`.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> call, *_ = hkx.experimental.eval_summary(lambda x: hkx.Linear(2)(x))(jnp.ones([1, 3]))
      >>> details = call.module_details
      >>> details.full_name, details.method_name, details.params
      ('linear', '__call__', {'linear/b': f32[2], 'linear/w': f32[3,2]})
    """

    module: Any
    method_name: str
    params: Mapping[str, Any]
    state: Mapping[str, Any]
    prefix: str = ""

    @classmethod
    def of(cls, module: Any, method_name: str, prefix: str = "") -> ModuleDetails:
        """The current details; only inside a transformed function."""
        params, state = (dict(sorted(specs(dict(d)).items())) for d in (module.params_dict(), module.state_dict()))
        return cls(module, method_name, params, state, prefix)

    @property
    def full_name(self) -> str:
        """The name of the module in the parameters."""
        return f"{self.prefix}{self.module.module_name}"

    def among(self, params: Mapping[str, Any], state: Mapping[str, Any]) -> ModuleDetails:
        """The details, with the names and shapes as in `params` and `state`, where those of a stack are stacked."""
        return dataclasses.replace(self, params=self._found(self.params, params), state=self._found(self.state, state))

    def _found(self, own: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
        flat = {f"{bundle}/{name}": specs(value) for bundle, entries in tree.items() for name, value in entries.items()}
        return {f"{self.prefix}{path}": flat.get(f"{self.prefix}{path}", value) for path, value in own.items()}


@dataclasses.dataclass(frozen=True)
class MethodInvocation:
    """One call of a method.

    Attributes:
      module_details: the module and the method.
      args_spec: the positional arguments, with an `ArraySpec` for every array.
      kwargs_spec: the keyword arguments, likewise.
      output_spec: the result, likewise.
      context: the context that an interceptor of the call gets.
      call_stack: the calls that were running, from this one to the outermost.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> calls = hkx.experimental.eval_summary(lambda x: hkx.nets.MLP([4, 2])(x))(jnp.ones([1, 3]))
      >>> for call in calls:
      ...     print(call.module_details.full_name, call.args_spec, call.output_spec, len(call.call_stack))
      mlp (f32[1,3],) f32[1,2] 1
      mlp/~/linear_0 (f32[1,3],) f32[1,4] 2
      mlp/~/linear_1 (f32[1,4],) f32[1,2] 2
    """

    module_details: ModuleDetails
    args_spec: tuple[Any, ...]
    kwargs_spec: dict[str, Any]
    output_spec: Any
    context: MethodContext
    call_stack: Sequence[ModuleDetails]

    @property
    def label(self) -> str:
        """The module's own name, followed by the method unless that is `__call__`."""
        name, method = self.module_details.module.name, self.module_details.method_name
        return name if method == "__call__" else f"{name}/~{method}"


@dataclasses.dataclass
class _Call:
    context: MethodContext
    args: Any
    kwargs: Any
    stack: tuple[int, ...]
    main: bool
    details: ModuleDetails | None = None
    output: Any = None


@dataclasses.dataclass(frozen=True)
class Trace:
    """The result of `trace`.

    Attributes:
      program: the equations, with the number of the call each belongs to in its name stack.
      calls: the calls of modules' methods by number, in the order in which they began.
      inputs: a name for each input of the program.
      outputs: a name for each of its outputs.
    """

    program: ClosedJaxpr
    calls: dict[int, MethodInvocation]
    inputs: list[str]
    outputs: list[str]


class _Recorder:
    """The interceptor that numbers calls."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.stack: list[int] = []
        self.main: Any = None

    def __call__(self, next_function: Any, args: Any, kwargs: Any, context: MethodContext) -> Any:
        if context.method_name in _NOT_CALLS or not isinstance(context.module, Module):
            return next_function(*args, **kwargs)
        number = len(self.calls)
        main = find_top_trace(()) is self.main
        self.stack.append(number)
        call = _Call(context, specs(args), specs(kwargs), tuple(self.stack), main)
        self.calls.append(call)
        try:
            with jax.named_scope(f"hkx_call_{number}"):
                out = next_function(*args, **kwargs)
        finally:
            self.stack.pop()
        around = [self.calls[n].context.module for n in self.stack]
        prefix = "".join(f"{module.module_name}/" for module in around if isinstance(module, LayerStack))
        call.details, call.output = ModuleDetails.of(context.module, context.method_name, prefix), specs(out)
        return out

    def invocations(self, program: ClosedJaxpr) -> dict[int, MethodInvocation]:
        """The calls that returned, without those of runs that were made only to find out shapes."""
        found = {number for eqn, numbers in all_equations(program.jaxpr) for number in call_numbers(eqn, numbers)}
        keys = [(c.context.module.module_name, c.context.method_name) for c in self.calls]
        in_program = {keys[number] for number in found}
        out = {}
        for number, call in enumerate(self.calls):
            probing = number not in found and not call.main and keys[number] in in_program
            if call.details is not None and not probing:
                stack = [self.calls[n].details for n in reversed(call.stack)]
                above = tuple(details for details in stack if details is not None)
                out[number] = MethodInvocation(call.details, call.args, call.kwargs, call.output, call.context, above)
        return out


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)):
        return True
    return isinstance(leaf, (int, float, complex)) and not isinstance(leaf, bool)


def _key_text(path: Sequence[Any], prefixes: Sequence[str]) -> str:
    """A label such as `args[0]: mlp/~/linear_0/w`."""
    names = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
    head = f"args[{names[1]}]" if names[0] == prefixes[0] else names[1]
    return head + (": " + "/".join(names[2:]) if names[2:] else "")


def trace(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
    """Runs `f(*args, **kwargs)` with abstract arrays.

    Args:
      f: the function.
      args: the arguments: arrays, `jax.ShapeDtypeStruct` and numbers become abstract; bools and the rest do not.
      kwargs: the keyword arguments, likewise.

    Returns:
      The recorded calls.
    """
    with_paths, treedef = jax.tree_util.tree_flatten_with_path({"0": tuple(args), "1": dict(kwargs)})
    leaves = [leaf for _, leaf in with_paths]
    where = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
    recorder = _Recorder()
    outputs: list[list[str]] = []

    def run(*arrays: Any) -> Any:
        filled = list(leaves)
        for i, array in zip(where, arrays, strict=True):
            filled[i] = array
        arguments = jax.tree.unflatten(treedef, filled)
        recorder.main = find_top_trace(())
        with intercept_methods(recorder):
            out = f(*arguments["0"], **arguments["1"])
        # The result is not rebuilt with other leaves, because a class in it may check its contents.
        flat, _ = jax.tree_util.tree_flatten_with_path(out)
        found = [(path, x) for path, x in flat if isinstance(x, (jax.Array, np.ndarray, np.generic))]
        outputs.append(["output" + jax.tree_util.keystr(path) for path, _ in found])
        return [x for _, x in found]

    # The unique label keeps JAX from using its cache, so that functions it has traced before run again.
    with set_xla_metadata(hkx_trace=str(next(_count))):
        program = jax.make_jaxpr(run)(*[leaves[i] for i in where])
    recorder.main = None
    inputs = [_key_text(with_paths[i][0], "01") for i in where]
    return Trace(program, recorder.invocations(program), inputs, outputs[-1])


def name_stack(eqn: JaxprEqn) -> list[str]:
    """The names of the name stack of an equation, outermost first."""
    info = getattr(eqn, "source_info", None)
    return [part for part in str(getattr(info, "name_stack", "")).split("/") if part]


def call_number(name: str) -> int | None:
    """The number of a call, if a name of the name stack contains one."""
    match = _TAG.search(name)
    return int(match.group(1)) if match else None


def call_numbers(eqn: JaxprEqn, outer: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The numbers of the calls to which an equation belongs, outermost first; `outer` are those around its program."""
    numbers = [n for n in map(call_number, name_stack(eqn)) if n is not None]
    return tuple(dict.fromkeys((*outer, *numbers)))


def all_equations(program: Jaxpr, outer: tuple[int, ...] = ()) -> Iterator[tuple[JaxprEqn, tuple[int, ...]]]:
    """All equations of a program and of the programs inside it, each with the calls around its program."""
    for eqn in program.eqns:
        yield eqn, outer
        for inner in inner_programs(eqn):
            yield from all_equations(inner, call_numbers(eqn, outer))
