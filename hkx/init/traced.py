"""`init` without the forward pass: trace the function, keep what matters, make that, and put it in place.

JAX traces the function with a single operation, `draw`, in place of the computation of each standard random initial
value. Afterwards, only what the parameters and the state depend on is computed: all draws together in one compiled
program, and the rest operation by operation, as an ordinary run would do it, except that a costly forward pass is
compiled as one program too. Nothing else is compiled or executed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import jax.ref
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jax.extend.core.primitives import closed_call_p, custom_jvp_call_p, custom_vjp_call_p

from hkx.base.key_arrays import key_batch
from hkx.base.trees import key_orders, own_tree, reordered, unshared
from hkx.base.types import Array
from hkx.core.transform import Created, run_open
from hkx.errors.init import AbstractInitError
from hkx.init import held
from hkx.init.equations import carry_out, carry_out_together
from hkx.init.fallback import ConstantsRefused, ValuesNeeded, may_pass_on_values, raised_in_shard_map
from hkx.init.key_chains import Taken, drawn, split_chains
from hkx.init.leaks import arrays_of
from hkx.init.recording import NO_ANCHOR, Recording, draw_p, example_p, fill_p, split_p
from hkx.jaxprs.cost import work
from hkx.jaxprs.dependence import needed, needed_inputs, uses_outer_references, without_effects_of
from hkx.jaxprs.traces import top_trace, variable_of, with_all_results

MOST_WORK_ONE_BY_ONE = 2**31  # in floating-point operations: a fraction of a second on a CPU

_RECORDED = (draw_p, fill_p, split_p)


class _Trace(NamedTuple):
    """The run of a function on traced arrays.

    Attributes:
      program: computes those parameters and states that are traced.
      inputs: the values, or types, of the program's variables that are inputs or constants.
      known: what the function created: a tuple of the value for what is not traced, otherwise None.
      structure: the tree of what it created.
      orders: the order of the keys in that tree.
    """

    program: ClosedJaxpr
    inputs: dict[Any, Any]
    known: list[tuple[Any] | None]
    structure: Any
    orders: Any


def create_traced(f: Callable[..., Any], recorder: Recording, args: Any, kwargs: Any) -> Created:
    """Creates what `f` asks for, without its forward pass.

    Raises:
      ValuesNeeded: if `f` has to run on real values.
      AbstractInitError: if an initial value depends on an argument of which only the shape is known.
    """
    at_once = recorder.has_values and not jax.sharding.get_abstract_mesh().manual_axes
    try:
        trace = _trace(f, recorder, args, kwargs, at_once)
    except ConstantsRefused:
        trace = _trace(f, recorder, args, kwargs, at_once=False)
    env = {v: x for v, x in trace.inputs.items() if not isinstance(x, jax.ShapeDtypeStruct)}
    values = _make(_keep_what_matters(trace), trace, env, recorder.key)
    created = _put_in_place(values, trace)
    trace = trace._replace(program=_without_rules(trace.program))
    if not recorder.on_shapes:
        _make_what_is_left(trace, env, recorder)
    return created


def _trace(f: Callable[..., Any], recorder: Recording, args: Any, kwargs: Any, at_once: bool) -> _Trace:
    """Runs `f` with a traced key and traced arrays. What depends on neither is computed `at_once`, as in `apply`.

    So what a function stores for later calls, as with `functools.lru_cache`, is a real array, and NumPy arrays are read
    before they may be overwritten. Where `init` itself is traced, constants would become literals of the program; on
    the devices of a `jax.shard_map`, JAX cannot compute any.
    """
    record: list[Any] = []
    given = _traced_arguments((args, kwargs))

    def run(anchor: Array, key: Array | None, given: list[Array]) -> list[Any]:
        recorder.trace, recorder.anchor = top_trace(), anchor
        traced = iter(given)
        own = own_tree((args, kwargs), lambda x: next(traced) if _is_traced(x) else unshared(x))
        try:
            with jax.ensure_compile_time_eval() if at_once else contextlib.nullcontext():
                created = run_open(f, recorder, recorder.key if recorder.splits_at_once else key, *own)
        except Exception as error:  # here, because JAX removes its frames from the traceback afterwards
            if at_once and raised_in_shard_map(error):
                raise ConstantsRefused() from error
            if not may_pass_on_values(error):
                raise
            if recorder.on_shapes:
                raise ValuesNeeded() from error
            return []  # as if the run had ended: JAX never frees a trace that contains an array and fails
        finally:
            recorder.anchor = NO_ANCHOR
        leaves, structure = jax.tree.flatten(created)
        known = [None if isinstance(x, jax.core.Tracer) else (x,) for x in leaves]
        record[:] = known, structure, [key_orders(tree) for tree in created]
        return [x for x in leaves if isinstance(x, jax.core.Tracer)]

    program = jax.make_jaxpr(run)(NO_ANCHOR, recorder.key, given)
    if not record:
        raise ValuesNeeded()
    if recorder.has_values and uses_outer_references(program):
        raise ValuesNeeded()  # what an initializer has read there may be older than it should be
    inputs = dict(zip(program.jaxpr.invars, jax.tree.leaves((NO_ANCHOR, recorder.key, given)), strict=True))
    inputs.update(zip(program.jaxpr.constvars, program.consts, strict=True))
    return _Trace(program, inputs, *record)


def _is_traced(x: Any) -> bool:
    return isinstance(x, (jax.Array, jax.ShapeDtypeStruct))


def _traced_arguments(tree: Any) -> list[Any]:
    """The leaves that are traced, in the order in which `own_tree` meets them."""
    found: list[Any] = []

    def collect(x: Any) -> Any:
        if _is_traced(x):
            found.append(x)
        return x

    own_tree(tree, collect)
    return found


def _keep_what_matters(trace: _Trace) -> list[tuple[JaxprEqn, set[Any]]]:
    """The equations on which the outputs depend, each with the inputs that matter, and those with effects.

    Effects that depend on an argument of which only the shape is known are left out.
    """
    jaxpr = trace.program.jaxpr
    unknown = {v for v, x in trace.inputs.items() if isinstance(x, jax.ShapeDtypeStruct)}
    return needed_inputs(without_effects_of(jaxpr.eqns, unknown) if unknown else jaxpr.eqns, jaxpr.outvars)


def _make(
    parts: list[tuple[JaxprEqn, set[Any]]], trace: _Trace, env: dict[Any, Any], key: Array | None, again: bool = False
) -> list[Any]:
    """Computes equations, and returns the outputs of the program.

    Adds the values of variables to `env`. If it is called `again`, nothing that it contains is computed anew.

    Raises:
      AbstractInitError: if they depend on an argument of which only the shape is known.
    """
    outputs, names = trace.program.jaxpr.outvars, trace.program.jaxpr.debug_info
    pending, inputs = [eqn for eqn, _ in parts], {id(eqn): variables for eqn, variables in parts}
    wanted = {v for v in outputs if not isinstance(v, Literal)}
    used = wanted.union(*inputs.values(), *(eqn.outvars for eqn in pending if eqn.effects))  # effects happen only once
    if again:
        pending = [eqn for eqn in pending if any(v in used and v not in env for v in eqn.outvars)]
    together = _costly_examples(pending)
    alone = {id(eqn) for eqn in together}
    pending = [eqn for eqn in pending if id(eqn) not in alone]
    used_by_others = wanted.union(*(inputs[id(eqn)] for eqn in pending))
    split_chains(pending, env)

    def read(v: Any) -> Any:
        if not isinstance(v, Literal) and v not in env:
            raise AbstractInitError()
        value = v.val if isinstance(v, Literal) else env[v]
        return value.array() if isinstance(value, Taken) else value

    def read_inputs_of(eqn: JaxprEqn) -> Callable[[Any], Any]:
        return lambda v: read(v) if isinstance(v, Literal) or v in inputs[id(eqn)] else None

    while pending or together:
        draws: list[JaxprEqn] = []
        later: list[JaxprEqn] = []
        effects_wait = False  # effects must keep their order
        for eqn in pending:
            if any(v not in env for v in inputs[id(eqn)]) or (eqn.effects and effects_wait):
                later.append(eqn)
                effects_wait = effects_wait or bool(eqn.effects)
            elif eqn.primitive is draw_p and 0 not in key_batch(eqn.invars[0].aval):  # a stack of no layers has no keys
                draws.append(eqn)
            else:
                env.update(carry_out(eqn, used, read_inputs_of(eqn), key, names))
        if draws:
            keys = [v.val if isinstance(v, Literal) else env[v] for v in (eqn.invars[0] for eqn in draws)]
            arrays = drawn([eqn.params["draw"] for eqn in draws], keys, key)
            env.update((eqn.outvars[0], a) for eqn, a in zip(draws, arrays, strict=True))
        if len(later) == len(pending):  # everything left depends on them
            if not together:
                raise AbstractInitError()
            env.update(carry_out_together(together, used_by_others, lambda v: read(v) if v in env else None, names))
            together = []
        pending = later
    # A constant of the program may be a NumPy array.
    return [x if isinstance(x, (jax.Array, jax.ref.Ref)) else jnp.asarray(x) for x in map(read, outputs)]


def _costly_examples(equations: list[JaxprEqn]) -> list[JaxprEqn]:
    """The equations that compute initial values from example arguments, if running them one by one is slow; else none.

    Equations that a draw needs are excluded, because draws come first.
    """
    asked = [eqn.invars[0] for eqn in equations if eqn.primitive is example_p]
    if not asked:
        return []
    draws = [v for eqn in equations if eqn.primitive in _RECORDED for v in eqn.invars]
    first = {id(eqn) for eqn in needed(equations, draws)}
    cone = [eqn for eqn in needed(equations, asked) if id(eqn) not in first and eqn.primitive not in _RECORDED]
    together = work(cone) > MOST_WORK_ONE_BY_ONE and not any(eqn.effects for eqn in cone)
    return cone if together else []


def _put_in_place(values: list[Any], trace: _Trace) -> Created:
    """The trees of what was created, with the values in them, and keys of dicts in the order of the function."""
    computed = iter(values)
    leaves = [known[0] if known else next(computed) for known in trace.known]
    params, state = map(reordered, jax.tree.unflatten(trace.structure, leaves), trace.orders)
    return params, state


def _without_rules(program: ClosedJaxpr) -> ClosedJaxpr:
    """The program without custom derivative rules, which refer to the trace, so that all its arrays would seem left."""
    equations = [
        eqn.replace(primitive=closed_call_p, params={"call_jaxpr": eqn.params["call_jaxpr"]})
        if eqn.primitive in (custom_jvp_call_p, custom_vjp_call_p)
        else eqn
        for eqn in program.jaxpr.eqns
    ]
    return ClosedJaxpr(program.jaxpr.replace(eqns=equations), program.consts)


def _make_what_is_left(trace: _Trace, env: dict[Any, Any], recorder: Recording) -> None:
    """Makes the traced arrays that the function has left in lists, dicts and attributes, and puts them in place.

    Raises:
      ValuesNeeded: if something else holds one.
    """
    left, jaxpr = arrays_of(recorder.trace), trace.program.jaxpr
    if not left:
        return
    holders, variables = held.holders_of(left), [variable_of(x) for x in left]
    equations = with_all_results(jaxpr.eqns, left)
    for eqn, old in zip(equations, jaxpr.eqns, strict=True):
        env.update((v, env[o]) for v, o in zip(eqn.outvars, old.outvars, strict=True) if o in env)
    known = {*jaxpr.constvars, *jaxpr.invars}.union(*(eqn.outvars for eqn in equations))
    if holders is None or not all(isinstance(v, Literal) or v in known for v in variables):
        raise ValuesNeeded()
    names = jaxpr.debug_info._replace(result_paths=("",) * len(variables))
    program = ClosedJaxpr(jaxpr.replace(eqns=equations, outvars=variables, debug_info=names), trace.program.consts)
    trace = trace._replace(program=program)
    held.replace(holders, left, _make(_keep_what_matters(trace), trace, env, recorder.key, again=True))
