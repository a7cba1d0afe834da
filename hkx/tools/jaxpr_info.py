"""The program of a function as a tree of modules and their operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from hkx.arguments import checked_function
from hkx.base.signatures import like, returning
from hkx.base.tracebacks import leaves_out_own_frames
from hkx.jaxprs.cost import times
from hkx.jaxprs.dependence import needed
from hkx.jaxprs.traces import inner_programs, operation_name
from hkx.tools.graph import equation_name
from hkx.tools.trace import ArraySpec, MethodInvocation, Trace, call_number, name_stack, trace


@dataclasses.dataclass
class Expression:
    """One operation, or something that contains its own program, such as a module.

    Attributes:
      primitive: the name of the operation; `"name_scope"` for a module or a named scope.
      invars: the names of its inputs, or how many there are.
      outvars: the names of its outputs.
      flops: its floating-point operations, if they were requested.
      details: the shapes of its inputs and outputs.
      params: its parameters, as text.
      submodule: the program that it contains.
      first_outvar: the name of its first output.
      name_stack: the names of the scopes that contain it.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> program = hkx.experimental.jaxpr_info.make_model_info(lambda x: jnp.sin(x) + 1)(jnp.ones([3]))
      >>> [(expression.primitive, expression.details) for expression in program.expressions]
      [('sin', 'in f32[3], out f32[3]'), ('add', 'in f32[3], f32[], out f32[3]')]
    """

    primitive: str
    invars: str
    outvars: str
    flops: int | None = None
    details: str = ""
    params: dict[str, str] = dataclasses.field(default_factory=dict)
    submodule: Module | None = None
    first_outvar: str = ""
    name_stack: Sequence[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Module:
    """A program: of the whole function, of a module, of a named scope, of a loop.

    Attributes:
      name: its name.
      flops: the floating-point operations of all its contents, if they were requested.
      expressions: its contents, in order.
      total_param_size: the number of elements of the parameters of the module and its submodules.
      param_info: their shapes by name; `./` stands for the module.
      total_state_size: the number of elements of the state of the module and its submodules.
      state_info: its shapes by name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model, x = hkx.transform(lambda x: hkx.Linear(2)(x)), jnp.ones([1, 3])
      >>> program = hkx.experimental.jaxpr_info.make_model_info(model.apply)(model.init(0, x), None, x)
      >>> layer = program.expressions[0].submodule
      >>> layer.name, layer.total_param_size, layer.param_info, len(layer.expressions)
      ('linear', 8, {'./b': 'f32[2]', './w': 'f32[3,2]'}, 3)
    """

    name: str
    flops: int | None = None
    expressions: list[Expression] = dataclasses.field(default_factory=list)
    total_param_size: int = 0
    param_info: dict[str, str] = dataclasses.field(default_factory=dict)
    total_state_size: int = 0
    state_info: dict[str, str] = dataclasses.field(default_factory=dict)


ComputeFlops = Callable[[JaxprEqn, Expression], int]


def make_model_info(
    f: Callable[..., Any],
    name: str | None = None,
    include_module_info: bool = True,
    compute_flops: ComputeFlops | None = None,
    axis_env: Sequence[tuple[Any, int]] | None = None,
) -> Callable[..., Module]:
    """Analyses the program of a function without running it.

    Args:
      f: a function, usually the `init` or `apply` of a transformed function.
      name: the name of the whole program; by default the name of `f`.
      include_module_info: whether the parameters and the state of modules are listed.
      compute_flops: called as `compute_flops(equation, expression)` for every operation; it returns its floating-point
        operations. `hkx.experimental.jaxpr_info.count_flops` is one. None leaves them out.
      axis_env: names and sizes of mapped axes that `f` uses, as in `jax.lax.psum(x, "i")`.

    Returns:
      A function of the arguments of `f` (arrays, or `jax.ShapeDtypeStruct` instead) that returns a `Module`.
      Operations on which no result depends are left out.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Linear(1)(x))
      >>> x = jnp.ones([5, 3])
      >>> params = model.init(jax.random.key(0), x)
      >>> info = hkx.experimental.jaxpr_info.make_model_info(model.apply, name="model")(params, None, x)
      >>> print(hkx.experimental.jaxpr_info.format_module(info))
      model
        linear 4 params
          dot_general in f32[5,3], f32[3,1], out f32[5,1]
          broadcast_in_dim in f32[1], out f32[5,1]
          add in f32[5,1], f32[5,1], out f32[5,1]
      <BLANKLINE>
    """
    checked_function(f, "hkx.experimental.jaxpr_info.make_model_info", "f")
    label = name or getattr(f, "__name__", type(f).__name__)

    @like(f, result=returning(Module))
    @leaves_out_own_frames
    def info(*args: Any, **kwargs: Any) -> Module:
        traced = trace(_mapped(f, axis_env or ()), args, kwargs)
        calls = _with_stored_shapes(traced) if include_module_info else {}
        return _Reader(calls, compute_flops).read(traced.program.jaxpr, label)

    return info


def _mapped(f: Callable[..., Any], axes: Sequence[tuple[Any, int]]) -> Callable[..., Any]:
    """`f`, with the given mapped axes bound."""
    if not axes:
        return f
    (axis_name, size), *rest = axes

    def mapped(*args: Any, **kwargs: Any) -> Any:
        inner = _mapped(f, rest)
        return jax.vmap(lambda _: inner(*args, **kwargs), axis_name=axis_name, axis_size=size)(jax.numpy.arange(size))

    return mapped


def _with_stored_shapes(traced: Trace) -> dict[int, MethodInvocation]:
    """The calls, with the shapes of the parameters and state that were passed in, which `hkx.vmap` may stack."""
    given: dict[str, dict[str, Any]] = {}
    for text, aval in zip(traced.inputs, traced.program.in_avals, strict=True):
        bundle, _, name = text.partition(": ")[2].rpartition("/")
        given.setdefault(bundle, {})[name] = aval
    return {
        number: dataclasses.replace(call, module_details=call.module_details.among(given, given))
        if not call.module_details.prefix  # a step of a `hkx.layer_stack` is shown with the parameters of one layer
        else call
        for number, call in traced.calls.items()
    }


class _Reader:
    """Converts programs to trees."""

    def __init__(self, calls: Mapping[int, MethodInvocation], compute_flops: ComputeFlops | None):
        self.calls = calls
        self.compute_flops = compute_flops

    def read(self, program: Jaxpr, name: str) -> Module:
        """The tree of one program, with its scopes."""
        root = Module(name)
        path: list[tuple[tuple[str, int | None], Module]] = []
        names = _Names()
        for eqn in needed(program.eqns, program.outvars):
            segments = _segments(eqn)
            same = 0
            while same < min(len(path), len(segments)) and path[same][0] == segments[same]:
                same += 1
            del path[same:]
            for segment in segments[same:]:
                module = self.scope(segment)
                (path[-1][1] if path else root).expressions.append(Expression("name_scope", "", "", submodule=module))
                path.append((segment, module))
            (path[-1][1] if path else root).expressions.append(self.expression(eqn, names, [s for s, _ in segments]))
        _sum_flops(root)
        return root

    def scope(self, segment: tuple[str, int | None]) -> Module:
        name, number = segment
        call = self.calls.get(number) if number is not None else None
        if call is None:
            return Module(name)
        details = call.module_details
        shown = [
            {_relative(path, details.module.module_name): value for path, value in entries.items()}
            for entries in (details.params, details.state)
        ]
        is_spec = lambda x: isinstance(x, ArraySpec)  # noqa: E731
        sizes = [sum(s.size for s in jax.tree.leaves(d, is_leaf=is_spec) if is_spec(s)) for d in shown]
        texts = [{k: str(v) for k, v in d.items()} for d in shown]
        return Module(name, None, [], sizes[0], texts[0], sizes[1], texts[1])

    def expression(self, eqn: JaxprEqn, names: _Names, scopes: list[str]) -> Expression:
        inputs = [names.of(v) for v in eqn.invars]
        outputs = [names.of(v) for v in eqn.outvars]
        text = " ".join(inputs) if len(inputs) <= 10 else f"{len(inputs)} inputs"
        out = Expression(operation_name(eqn), text, " ".join(outputs), name_stack=scopes)
        out.first_outvar = outputs[0] if outputs else ""
        inner = inner_programs(eqn)
        if inner:
            out.submodule = self.inner(eqn, inner)
            own = out.submodule.flops
            out.flops = None if own is None else own * times(eqn)
            return out
        shapes = [", ".join(map(_type, variables)) for variables in (eqn.invars, eqn.outvars)]
        out.details = ", ".join(f"{word} {s}" for word, s in zip(("in", "out"), shapes, strict=True) if s)
        out.params = {k: str(v) for k, v in eqn.params.items()}
        out.flops = None if self.compute_flops is None else self.compute_flops(eqn, out)
        return out

    def inner(self, eqn: JaxprEqn, programs: list[Jaxpr]) -> Module:
        kind = {"custom_jvp_call": "custom_jvp", "custom_vjp_call": "custom_vjp", "checkpoint": "remat"}
        name = kind.get(eqn.primitive.name) or equation_name(eqn)
        if eqn.primitive.name == "scan":
            name = f"scan length={eqn.params['length']} unroll={eqn.params['unroll']}"
        if eqn.primitive.name == "while":
            programs = [getattr(eqn.params["body_jaxpr"], "jaxpr", eqn.params["body_jaxpr"])]
        if len(programs) == 1:
            return self.read(programs[0], name)
        parts = [self.read(p, f"{name} branch {i}") for i, p in enumerate(programs)]
        module = Module(name, None, [Expression("branch", "", "", p.flops, submodule=p) for p in parts])
        counts = [p.flops for p in parts if p.flops is not None]
        module.flops = max(counts) if counts else None  # only one of the branches runs
        return module


def _sum_flops(module: Module) -> None:
    for expression in module.expressions:
        if expression.primitive == "name_scope" and expression.submodule is not None:
            _sum_flops(expression.submodule)
    counts = [e.submodule.flops if e.primitive == "name_scope" and e.submodule else e.flops for e in module.expressions]
    known = [c for c in counts if c is not None]
    module.flops = sum(known) if known else None


def _segments(eqn: JaxprEqn) -> list[tuple[str, int | None]]:
    """The scopes that contain an equation; those that are calls of modules have a number."""
    out: list[tuple[str, int | None]] = []
    for part in name_stack(eqn):
        number = call_number(part)
        if number is None:
            out.append((part, None))
        else:  # the parents are the module's name, and the method's unless it is `__call__`
            method = len(out) > 1 and out[-1][1] is None and out[-1][0].startswith("~")
            name = "/".join(s for s, _ in out[-2 if method else -1 :])
            del out[-2 if method else -1 :]
            out.append((name, number))
    return out


def _relative(path: str, module_name: str) -> str:
    """Shortens `mlp/~/linear_0/w` to `./linear_0/w`."""
    return "./" + path.removeprefix(f"{module_name}/").replace("/~/", "/").removeprefix("~/")


def _type(variable: Any) -> str:
    aval = variable.aval
    return str(ArraySpec(aval.shape, aval.dtype)) if hasattr(aval, "shape") else str(aval)


class _Names:
    """Short names for variables: a, b, …, z, aa, ab, …"""

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}

    def of(self, variable: Any) -> str:
        if isinstance(variable, Literal):
            return str(variable.val)
        if variable not in self.known:
            number, text = len(self.known) + 1, ""
            while number:
                number, digit = divmod(number - 1, 26)
                text = chr(ord("a") + digit) + text
            self.known[variable] = text
        return self.known[variable]
