"""Summaries of a model: its modules, with their parameters, inputs, outputs, sizes and operations."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from hkx.arguments import checked_function, checked_integer, is_iterable
from hkx.base.keys import as_key
from hkx.base.signatures import like, returning
from hkx.base.tracebacks import leaves_out_own_frames
from hkx.core.transform import Transformed, TransformedWithState
from hkx.init.transform import transform_with_state
from hkx.tools.filtering import tree_bytes, tree_size
from hkx.tools.flops import flops
from hkx.tools.table import Table
from hkx.tools.trace import MethodInvocation, ModuleDetails, Trace, trace

Summarised = Callable[..., Any] | Transformed | TransformedWithState


def _takes_key(apply: Callable[..., Any], position: int) -> bool:
    """True if the argument of `apply` at `position` is the random key."""
    function = inspect.unwrap(apply)
    code = getattr(getattr(function, "hkx_calls", function), "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else list(inspect.signature(apply).parameters)
    return len(names) > position and names[position] == "rng"


def _initial(init: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The shapes of what `init` returns."""
    out: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        initial = init(as_key(0), *args, **kwargs)
        out.append(jax.tree.map(as_struct, initial))
        return initial

    as_struct = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if hasattr(x, "dtype") else x  # noqa: E731
    trace(run, args, kwargs)
    return out[-1]


def _model(f: Summarised, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function and the transformed pair of a model, which may be given as either. The function may be unknown."""
    if isinstance(f, (Transformed, TransformedWithState)):
        original = getattr(f.apply, "_original_fn", None)
        return f if original is None else transform_with_state(original)
    function = inspect.unwrap(f, stop=lambda g: not isinstance(g, jax.stages.Wrapped))
    original = getattr(function, "_original_fn", None)
    if original is not None and (_takes(original, args, kwargs) or not _takes(function, args, kwargs)):
        return transform_with_state(original)
    return transform_with_state(lambda *args, **kwargs: f(*args, **kwargs))


def _takes(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def _traced(f: Summarised, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Trace, Any]:
    """The trace of a model's `apply`, and its parameters."""
    model = _model(f, args, kwargs)
    initial = _initial(model.init, args, kwargs)
    variables = tuple(initial) if isinstance(model, TransformedWithState) else (initial,)
    key = (jax.eval_shape(lambda: as_key(0)),) if _takes_key(model.apply, len(variables)) else ()
    traced = trace(model.apply, (*variables, *key, *args), kwargs)
    found = functools.partial(ModuleDetails.among, params=variables[0], state=dict(*variables[1:]))
    calls = {
        number: dataclasses.replace(
            call, module_details=found(call.module_details), call_stack=tuple(map(found, call.call_stack))
        )
        for number, call in traced.calls.items()
    }
    return dataclasses.replace(traced, calls=calls), variables[0]


def eval_summary(f: Summarised) -> Callable[..., list[MethodInvocation]]:
    """Lists the calls of module methods, with their arguments and results, without running the model.

    Args:
      f: a function that creates modules, or the result of `hkx.transform` or `hkx.transform_with_state`: the pair, its
        `init` or its `apply`; or any function that calls one of these, such as a training step, jitted or not.

    Returns:
      A function of the arguments of `f` (of the function that was transformed; arrays, or `jax.ShapeDtypeStruct`) that
      returns the calls, in the order in which they begin. Calls of `__init__` are not included.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> for call in hkx.experimental.eval_summary(lambda x: hkx.nets.MLP([3, 1])(x))(jnp.ones([5, 2])):
      ...     print(call.module_details.module.module_name, call.args_spec, call.output_spec)
      mlp (f32[5,2],) f32[5,1]
      mlp/~/linear_0 (f32[5,2],) f32[5,3]
      mlp/~/linear_1 (f32[5,3],) f32[5,1]
    """

    @like(_wrapped(f, "hkx.eval_summary"), result=returning(list[MethodInvocation]), attributes=False)
    @leaves_out_own_frames
    def summary(*args: Any, **kwargs: Any) -> list[MethodInvocation]:
        return list(_traced(f, args, kwargs)[0].calls.values())

    return summary


def _wrapped(f: Any, taker: str) -> Callable[..., Any]:
    if isinstance(f, (Transformed, TransformedWithState)):
        return getattr(f.apply, "_original_fn", f.apply)
    return checked_function(f, taker, "f")


def _module_cell(call: MethodInvocation, callers: Iterable[ModuleDetails]) -> str:
    def one(details: ModuleDetails) -> str:
        name = type(details.module).__name__
        method = "" if details.method_name == "__call__" else f".{details.method_name}"
        return f"{details.full_name} ({name}{method})"

    return "\n".join([one(call.module_details), *[f" └ {one(details)}" for details in callers]])


def _unnamed_callers(call: MethodInvocation) -> Iterable[ModuleDetails]:
    """The callers with whose name the module's own does not begin, each once."""
    name = f"{call.module_details.full_name}/"
    return {d.full_name: d for d in call.call_stack[1:] if not name.startswith(f"{d.full_name}/")}.values()


def _owned(details: ModuleDetails) -> dict[str, Any]:
    prefix = f"{details.full_name}/"
    own = {k.removeprefix(prefix): v for k, v in details.params.items() if k.startswith(prefix)}
    return dict(sorted((item for item in own.items() if "/" not in item[0]), key=lambda item: -item[1].size))


def _input_cell(call: MethodInvocation) -> str:
    named = ", ".join(f"{k}={v}" for k, v in sorted(call.kwargs_spec.items()))
    return "\n".join(filter(None, [", ".join(map(str, call.args_spec)), named]))


def bytes_text(n: int) -> str:
    """`1234` as `1.23 KB`."""
    value, units = float(n), ["B", "KB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.2f} {units[0]}"


_COLUMNS: dict[str, tuple[str, bool, Callable[[MethodInvocation, int], str]]] = {
    "module": ("Module", False, lambda call, _: _module_cell(call, call.call_stack[1:])),
    "config": ("Config", False, lambda call, _: str(call.module_details.module)),
    "owned_params": (
        "Module params",
        False,
        lambda call, _: "\n".join(f"{k}: {v}" for k, v in _owned(call.module_details).items()),
    ),
    "input": ("Input", False, lambda call, _: _input_cell(call)),
    "output": ("Output", False, lambda call, _: str(call.output_spec)),
    "params_size": ("Param count", True, lambda call, _: f"{tree_size(call.module_details.params):,}"),
    "params_bytes": ("Param bytes", True, lambda call, _: bytes_text(tree_bytes(call.module_details.params))),
    "flops": ("FLOPs", True, lambda _, count: f"{count:,}"),
}
_NARROW = {**_COLUMNS, "module": ("Module", False, lambda call, _: _module_cell(call, _unnamed_callers(call)))}
_FILTERS: dict[str, Callable[[MethodInvocation], bool]] = {
    "has_output": lambda call: call.output_spec is not None,
    "has_params": lambda call: bool(call.module_details.params),
    "outermost": lambda call: all(d.module is not call.module_details.module for d in call.call_stack[1:]),
}
_SHOWN = ("has_output", "outermost")
_OPTIONAL = ("config", "params_bytes")


def _chosen(what: str, given: Sequence[str] | None, known: Mapping[str, Any]) -> list[str]:
    if given is not None and not is_iterable(given):
        raise ValueError(f"The {what} must be a list of names, got {given!r}; the names are {list(known)}.")
    names = list(known if given is None else given)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"Invalid {what} {unknown}: it must be some of {list(known)}.")
    return names


def tabulate(
    f: Summarised,
    *,
    columns: Sequence[str] | None = None,
    filters: Sequence[str] | None = _SHOWN,
    tabulate_kwargs: Mapping[str, Any] = {"tablefmt": "grid"},
    total: bool = True,
    width: int | None = 120,
) -> Callable[..., Table]:
    """Makes a table of a model: one row for each call of a module's method, without running the model.

    Args:
      f: a function that creates modules, or the result of `hkx.transform` or `hkx.transform_with_state`: the pair, its
        `init` or its `apply`; or any function that calls one of these, such as a training step, jitted or not.
      columns: any of `"module"`, `"config"` (how the module was created), `"owned_params"`, `"input"`, `"output"`,
        `"params_size"` (the number of elements of the parameters of the module and its submodules), `"params_bytes"`,
        and `"flops"` (floating-point operations of the call and of calls inside it, before any optimisation: two for
        each product of an input and a weight, without zeros of padding; one for any other result of arithmetic or of
        an elementary function; loops count as often as they run, a `while_loop` as once, and `shard_map` on all
        devices). None means all of them; the text then leaves out `"config"` and `"params_bytes"` if it is too wide.
      filters: which calls to show: `"has_output"` for those that return something, `"has_params"` for those of
        modules with parameters, `"outermost"` for those that are not inside a call of the same module, as those of
        helper methods are. None means the first and the last; an empty sequence shows all calls.
      tabulate_kwargs: `{"tablefmt": …}` with `"grid"`, `"simple"`, `"plain"`, `"pipe"`, `"github"`, `"tsv"` or
        `"html"`; anything else is passed to the package `tabulate`, if it is installed.
      total: whether a last row shows the parameters, bytes and operations of the whole model.
      width: the number of characters that lines of `"grid"`, `"simple"` and `"plain"` have at most; longer cells
        continue in the next line. Callers of a module are listed below it only if its name does not begin with theirs.
        None means any number of characters, and all callers.

    Returns:
      A function of the arguments of `f` (of the function that was transformed; arrays, or `jax.ShapeDtypeStruct`) that
      returns the table, a str that notebooks show as HTML.

    Raises:
      ValueError: if the name of a column, a filter or a table format is unknown.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> table = hkx.tabulate(lambda x: hkx.nets.MLP([3, 1])(x), columns=["module", "params_size", "flops"],
      ...                      tabulate_kwargs={"tablefmt": "simple"})
      >>> print(table(jnp.ones([5, 2])))
      Module                     Param count    FLOPs
      -----------------------  -------------  -------
      mlp (MLP)                           13      125
      mlp/~/linear_0 (Linear)              9       75
      mlp/~/linear_1 (Linear)              4       35
      Total                               13      125
    """
    names = _chosen("column(s)", columns, _COLUMNS)
    if not names:
        raise ValueError(f"`columns` is empty: leave it out for all of {list(_COLUMNS)}.")
    kept = _chosen("filter(s)", _SHOWN if filters is None else filters, _FILTERS)
    if width is not None:
        width = checked_integer(width, "width", 1)
    known = _COLUMNS if width is None else _NARROW
    headers, numeric, cells = zip(*[known[name] for name in names], strict=True)
    optional = [names.index(name) for name in _OPTIONAL] if columns is None else []

    @like(_wrapped(f, "hkx.tabulate"), result=returning(Table), attributes=False)
    @leaves_out_own_frames
    def tabulated(*args: Any, **kwargs: Any) -> Table:
        traced, params = _traced(f, args, kwargs)
        counts = flops(traced.program.jaxpr)
        rows = [
            [cell(call, counts[number]) for cell in cells]
            for number, call in traced.calls.items()
            if all(_FILTERS[name](call) for name in kept)
        ]
        if not rows:
            return Table.of(["No calls of modules to show."], [], [False], {"tablefmt": "plain"})
        if total:
            sums = {"params_size": f"{tree_size(params):,}", "params_bytes": bytes_text(tree_bytes(params))}
            sums["flops"] = f"{counts[None]:,}"
            rows.append(["Total" if i == 0 else sums.get(name, "") for i, name in enumerate(names)])
        return Table.of(headers, rows, numeric, tabulate_kwargs, width, optional)

    return tabulated
