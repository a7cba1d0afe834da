"""Abstract `init`: trace the function, record what it creates, then compute only that.

JAX traces the function with a single operation, `draw`, in place of the computation of each standard random initial
value. Afterwards, only what the parameters and the state depend on is computed: all draws together in one compiled
program, and the rest operation by operation, as an ordinary run would do it, except that a costly forward pass is
compiled as one program too. Nothing else is compiled or executed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import jax.ref
import numpy as np
from jax.extend.core import (
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    find_top_trace,
)
from jax.extend.core.primitives import closed_call_p, custom_jvp_call_p, custom_vjp_call_p

from hkx.base.trees import key_orders, reordered
from hkx.base.types import Array
from hkx.errors.core import JaxUsageError
from hkx.init.buffers import reads_what_may_change
from hkx.init.equations import carry_out, carry_out_together
from hkx.init.fallback import ValuesNeeded, needs_values
from hkx.init.kept import arrays_of, places_of
from hkx.init.key_chains import Taken, drawn, split_chains
from hkx.init.recording import Recording, argument_p, draw_p, example_p, fill_p, split_p
from hkx.jaxprs.cost import work
from hkx.jaxprs.dependence import changes_outer_references, needed, needed_inputs, without_effects_of
from hkx.jaxprs.traces import Where, refused_by_compiled_code, variable_of, where

Tree = dict[str, dict[str, Any]]

MOST_WORK_ONE_BY_ONE = 2**31  # in floating-point operations: a fraction of a second on a CPU

_MADE_ANYWAY = (draw_p, fill_p, split_p)


def create(run: Callable[[Any], Sequence[Tree]], recorder: Recording, constant: Callable[[np.ndarray], bool]) -> bool:
    """Runs `run` without its forward pass.

    Traced arrays that the function has stored somewhere are replaced there by their values, which are computed as well.

    Args:
      run: given the key, returns two-level dicts of what it created. Traced values in them are replaced by real ones.
      recorder: the maker that `run` uses.
      constant: whether a NumPy array still has the contents that it had when the function began.

    Returns:
      Whether all stored arrays have been replaced.

    Raises:
      ValuesNeeded: if the function needs a value, creates something from a NumPy array that it may have overwritten, or
        changes a mutable array that was made outside of it.
    """
    program, record = _recorded(run, recorder)
    if recorder.has_values and reads_what_may_change(program, constant, example_p):
        raise ValuesNeeded()
    if recorder.has_values and not recorder.on_shapes and changes_outer_references(program):
        raise ValuesNeeded()  # what an initializer has read there may be older than it should be
    env: dict[Any, Any] = {}
    computed = iter(_evaluate(program, recorder.key, env))
    leaves = [static[0] if static else next(computed) for static in record["static"]]
    values = jax.tree.unflatten(record["tree"], leaves)
    for (entries, name), value, orders in zip(record["slots"], values, record["orders"], strict=True):
        entries[name] = reordered(value, orders)
    program = _without_rules(program)
    kept = arrays_of(recorder.trace)
    if not kept:
        return True
    filled = _fill(kept, program, env, recorder, constant)
    del kept
    return filled and not arrays_of(recorder.trace)  # an array of objects, for one, hides what it refers to


def _recorded(run: Callable[[Any], Sequence[Tree]], recorder: Recording) -> tuple[ClosedJaxpr, dict[str, Any]]:
    """The program that computes what `run` creates, and where its outputs belong. Neither refers to the trace."""
    record: dict[str, Any] = {}
    inside: list[Where] = []

    def traced(key: Array | None) -> list[Any]:
        recorder.trace = weakref.ref(find_top_trace(()))
        inside.append(where())
        try:
            made = run(recorder.key if recorder.splits_at_once else key)
        except Exception as error:  # checked here, before JAX filters the traceback
            record["refused"] = refused_by_compiled_code(error)
            raise
        record["slots"] = [(entries, name) for tree in made for entries in tree.values() for name in entries]
        leaves, record["tree"] = jax.tree.flatten([entries[name] for entries, name in record["slots"]])
        record["orders"] = [key_orders(entries[name]) for entries, name in record["slots"]]
        for entries, name in record["slots"]:
            entries[name] = None  # no tracer may outlive the trace
        record["static"] = [None if isinstance(x, jax.core.Tracer) else (x,) for x in leaves]
        return [x for x in leaves if isinstance(x, jax.core.Tracer)]

    try:
        return jax.make_jaxpr(traced)(recorder.key), record
    except Exception as error:
        # Some of what is traced here would run directly on real values, and not fail there.
        if isinstance(error, JaxUsageError) or needs_values(error) or record.get("refused"):
            raise ValuesNeeded() from error
        raise
    finally:
        for place in inside:
            place.end()


def _without_rules(program: ClosedJaxpr) -> ClosedJaxpr:
    """The program without custom derivative rules, which refer to the trace, so that all its arrays would seem kept."""
    equations = [
        eqn.replace(primitive=closed_call_p, params={"call_jaxpr": eqn.params["call_jaxpr"]})
        if eqn.primitive in (custom_jvp_call_p, custom_vjp_call_p)
        else eqn
        for eqn in program.jaxpr.eqns
    ]
    return ClosedJaxpr(program.jaxpr.replace(eqns=equations), program.consts)


def _fill(
    kept: Sequence[Any],
    program: ClosedJaxpr,
    env: dict[Any, Any],
    recorder: Recording,
    constant: Callable[[np.ndarray], bool],
) -> bool:
    """Replaces stored traced arrays by their values. Returns False, changing nothing, if that is not possible for all.

    Args:
      kept: the traced arrays.
      program: the recorded program.
      env: the values computed so far, by variable.
      recorder, constant: as in `create`.
    """
    jaxpr, variables = program.jaxpr, [variable_of(x) for x in kept]
    known = {*jaxpr.constvars, *jaxpr.invars}.union(*(eqn.outvars for eqn in jaxpr.eqns))
    if recorder.on_shapes or not all(isinstance(v, Literal) or v in known for v in variables):
        return False
    names = jaxpr.debug_info._replace(result_paths=("",) * len(variables))
    program = ClosedJaxpr(jaxpr.replace(outvars=variables, debug_info=names), program.consts)
    places = places_of(kept)
    if places is None or (recorder.has_values and reads_what_may_change(program, constant, example_p)):
        return False
    places.fill(kept, _evaluate(program, recorder.key, env, more=True))
    return True


def _costly_examples(equations: list[JaxprEqn]) -> list[JaxprEqn]:
    """The equations that compute initial values from example arguments, if running them one by one is slow; else none.

    Equations that a draw needs are excluded, because draws come first.
    """
    asked = [eqn.invars[0] for eqn in equations if eqn.primitive is example_p]
    if not asked:
        return []
    draws = [v for eqn in equations if eqn.primitive in _MADE_ANYWAY for v in eqn.invars]
    first = {id(eqn) for eqn in needed(equations, draws)}
    cone = [eqn for eqn in needed(equations, asked) if id(eqn) not in first and eqn.primitive not in _MADE_ANYWAY]
    together = work(cone) > MOST_WORK_ONE_BY_ONE and not any(eqn.effects for eqn in cone)
    return cone if together else []


def _without_effects_of_shapes(equations: list[JaxprEqn]) -> list[JaxprEqn]:
    """The equations, with the effects of those removed that depend on an argument of which only the shape is known."""
    unknown = {v for eqn in equations if eqn.primitive is argument_p for v in eqn.outvars}
    return without_effects_of(equations, unknown, argument_p) if unknown else equations


def _evaluate(closed: ClosedJaxpr, key: Array | None, env: dict[Any, Any], more: bool = False) -> list[Any]:
    """Computes the outputs of a program, and only what they depend on.

    Adds the values of variables to `env`. With `more`, `env` contains those of an earlier call, whose effects are not
    repeated.
    """
    env.update(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update((v, key) for v in closed.jaxpr.invars)
    outputs = closed.jaxpr.outvars
    parts = needed_inputs(_without_effects_of_shapes(closed.jaxpr.eqns), outputs)
    pending, inputs = [eqn for eqn, _ in parts], {id(eqn): variables for eqn, variables in parts}
    wanted = {v for v in outputs if not isinstance(v, Literal)}
    used = wanted.union(*inputs.values(), *(eqn.outvars for eqn in pending if eqn.effects))  # effects happen only once
    if more:
        missing = used - env.keys()
        pending = [eqn for eqn in pending if not missing.isdisjoint(eqn.outvars)]
    together = _costly_examples(pending)
    alone = {id(eqn) for eqn in together}
    pending = [eqn for eqn in pending if id(eqn) not in alone]
    used_by_others = wanted.union(*(inputs[id(eqn)] for eqn in pending))
    split_chains(pending, env)

    def read(v: Any) -> Any:
        value = v.val if isinstance(v, Literal) else env[v]
        return value.array() if isinstance(value, Taken) else value

    def read_inputs(eqn: JaxprEqn) -> list[Any]:
        known = inputs[id(eqn)]
        return [read(v) if isinstance(v, Literal) or v in known else None for v in eqn.invars]

    while pending or together:
        draws: list[JaxprEqn] = []
        later: list[JaxprEqn] = []
        effects_wait = False  # effects must keep their order
        for eqn in pending:
            if any(v not in env for v in inputs[id(eqn)]) or (eqn.effects and effects_wait):
                later.append(eqn)
                effects_wait = effects_wait or bool(eqn.effects)
            elif eqn.primitive is draw_p:
                draws.append(eqn)
            else:
                done = carry_out(eqn, read_inputs(eqn), used, key, closed.jaxpr.debug_info)
                env.update((v, x) for v, x in zip(eqn.outvars, done, strict=True) if x is not None)
        if draws:
            keys = [v.val if isinstance(v, Literal) else env[v] for v in (eqn.invars[0] for eqn in draws)]
            arrays = drawn([eqn.params["draw"] for eqn in draws], keys, key)
            env.update((eqn.outvars[0], a) for eqn, a in zip(draws, arrays, strict=True))
        if together and len(later) == len(pending):  # everything left depends on them
            env.update(carry_out_together(together, used_by_others, env, closed.jaxpr.debug_info))
            together = []
        pending = later
    # A constant of the program may be a NumPy array.
    return [x if isinstance(x, (jax.Array, jax.ref.Ref)) else jnp.asarray(x) for x in map(read, outputs)]
