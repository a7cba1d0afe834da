"""The shape-only init: run the function abstractly, record what it creates, then make just that.

The function is traced by JAX with every standard initial value replaced by one operation, `draw`, that stands for
it. Afterwards only what the parameters and the state depend on is carried out: the draws all together in one compiled
program, the rest operation by operation, exactly as an ordinary run would have done, or in one program of its own where
that is a costly forward pass. What nothing created depends on is neither compiled nor executed.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import (
    ClosedJaxpr,
    DebugInfo,
    Jaxpr,
    JaxprEqn,
    Literal,
    find_top_trace,
    jaxpr_as_fun,
    jaxprs_in_params,
)
from jax.extend.core.primitives import closed_call_p, custom_jvp_call_p, custom_vjp_call_p

from hkx.base.draws import Draw
from hkx.base.keys import is_typed_key
from hkx.core.frame import local
from hkx.core.types import Array
from hkx.errors.core import JaxUsageError
from hkx.errors.init import AbstractInitError
from hkx.init.blocks import constant, key_batch, placed, sample_all, split_chain
from hkx.init.buffers import reads_what_may_change
from hkx.init.kept import arrays_of, places_of
from hkx.init.recording import Recording, argument_p, draw_p, example_p, fill_p, split_keys, split_p
from hkx.jaxprs.cost import work
from hkx.jaxprs.dependence import needed, needed_inputs, without_effects_of
from hkx.jaxprs.traces import Where, refused_by_compiled_code, shows_tracer, variable_of, where

Tree = dict[str, dict[str, Any]]

MOST_WORK_ONE_BY_ONE = 2**31  # floating-point operations: a CPU does them in a fraction of a second


_MADE_ANYWAY = (draw_p, fill_p, split_p)
_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class ValuesNeeded(Exception):
    """The user's function cannot be run abstractly: most often it asks a traced array for its value."""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it was raised in place of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def asks_for_values(error: BaseException | None) -> bool:
    """Whether an exception comes from code that asked a traced array for its value."""
    return any(
        isinstance(e, _NEEDS_VALUES) or (isinstance(e, AttributeError) and isinstance(e.obj, jax.core.Tracer))
        for e in _chain(error)
    )


def needs_values(error: BaseException | None) -> bool:
    """Whether an exception does, or names a traced array in its text: with values there would be none, or another."""
    texts = (x for e in _chain(error) for x in e.args if isinstance(x, str))
    return asks_for_values(error) or any(map(shows_tracer, texts))


def create(run: Callable[[Any], Sequence[Tree]], recorder: Recording, constant: Callable[[np.ndarray], bool]) -> bool:
    """Runs `run` without its forward pass.

    Traced arrays that it keeps are replaced by real ones where they are kept, and what they depend on is carried out.

    Args:
      run: given the key, it returns two-level dicts of what it created. Their traced values are replaced by real ones.
      recorder: what `run` makes values with.
      constant: whether an array of NumPy's holds what it held when the function began.

    Returns:
      Whether all that is kept has been replaced. If not, nothing has.

    Raises:
      ValuesNeeded: if the function asks for a value, or creates something from an array of NumPy's that it may have
        filled with other values since.
    """
    program, record = _recorded(run, recorder)
    if recorder.has_values and reads_what_may_change(program, constant, example_p):
        raise ValuesNeeded()
    env: dict[Any, Any] = {}
    computed = iter(_evaluate(program, recorder.key, env))
    leaves = [static[0] if static else next(computed) for static in record["static"]]
    for (entries, name), value in zip(record["slots"], jax.tree.unflatten(record["tree"], leaves), strict=True):
        entries[name] = value
    program = _without_rules(program)
    kept = arrays_of(recorder.trace)
    return not kept or _fill(kept, program, env, recorder, constant)


def _recorded(run: Callable[[Any], Sequence[Tree]], recorder: Recording) -> tuple[ClosedJaxpr, dict[str, Any]]:
    """The program that gives what `run` creates, and where that belongs. Nothing here refers to the trace any more."""
    record: dict[str, Any] = {}
    inside: list[Where] = []

    def traced(key: Array | None) -> list[Any]:
        recorder.trace = weakref.ref(find_top_trace(()))
        inside.append(where())
        try:
            made = run(recorder.key if recorder.splits_at_once else key)
        except Exception as error:  # before JAX leaves its frames out of the traceback
            record["refused"] = refused_by_compiled_code(error)
            raise
        record["slots"] = [(entries, name) for tree in made for entries in tree.values() for name in entries]
        leaves, record["tree"] = jax.tree.flatten([entries[name] for entries, name in record["slots"]])
        for entries, name in record["slots"]:
            entries[name] = None  # keeps no tracer beyond the trace
        record["static"] = [None if isinstance(x, jax.core.Tracer) else (x,) for x in leaves]
        return [x for x in leaves if isinstance(x, jax.core.Tracer)]

    try:
        return jax.make_jaxpr(traced)(recorder.key), record
    except Exception as error:
        # JAX does not trace all that it traces here where values are at hand.
        if isinstance(error, JaxUsageError) or needs_values(error) or record.get("refused"):
            raise ValuesNeeded() from error
        raise
    finally:
        for place in inside:
            place.left()


def _without_rules(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same, without derivatives by custom rules: these refer to the trace, and all in it would seem to be kept."""
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
    """Puts values where traced arrays are kept; not if one is where it cannot be replaced, or nobody knows its value.

    Args:
      kept: the arrays.
      program: what was recorded.
      env: the values that were computed, by their variables.
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
    """The equations that values from example arguments need, if those take long one by one; else none.

    None of them is needed by a draw: those are made first.
    """
    asked = [eqn.invars[0] for eqn in equations if eqn.primitive is example_p]
    if not asked:
        return []
    draws = [v for eqn in equations if eqn.primitive in _MADE_ANYWAY for v in eqn.invars]
    first = {id(eqn) for eqn in needed(equations, draws)}
    cone = [eqn for eqn in needed(equations, asked) if id(eqn) not in first and eqn.primitive not in _MADE_ANYWAY]
    together = work(cone) > MOST_WORK_ONE_BY_ONE and not any(eqn.effects for eqn in cone)
    return cone if together else []


class _Taken(NamedTuple):
    """One of an array of keys, not taken out of it before somebody needs it alone."""

    keys: Any  # [n, k] keys, traced, typed, or raw ones by NumPy
    place: tuple[int, int]
    like: Any  # the key that all of them come from

    def array(self) -> Array:
        """The key, on the device of that one."""
        key = self.keys[self.place]
        return placed(key, self.like) if isinstance(key, np.ndarray) else key


def _key_data(keys: Sequence[Any]) -> Any:
    """uint32[n, 2]: what some keys, and arrays of keys, consist of, by NumPy, or traced if one of them is."""
    first = keys[0]
    if isinstance(first, _Taken) and all(isinstance(k, _Taken) and k.keys is first.keys for k in keys):
        data = jax.random.key_data(first.keys)
        data = data if isinstance(data, jax.core.Tracer) else np.asarray(data)
        return data[tuple(np.array([k.place for k in keys]).T)]
    data = [jax.random.key_data(k.array() if isinstance(k, _Taken) else k) for k in keys]
    data = [k.reshape(-1, k.shape[-1]) for k in data]
    traced = any(isinstance(k, jax.core.Tracer) for k in data)
    return jnp.concatenate(data) if traced else np.concatenate([np.asarray(k) for k in data])


def _evaluate(closed: ClosedJaxpr, key: Array | None, env: dict[Any, Any], more: bool = False) -> list[Any]:
    """The outputs, with only what they depend on carried out.

    `env` has the values of variables afterwards; `more` says that those of an earlier call are in it, effects included.
    """
    env.update(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update((v, key) for v in closed.jaxpr.invars)
    outputs = closed.jaxpr.outvars
    unknown = {v for eqn in closed.jaxpr.eqns if eqn.primitive is argument_p for v in eqn.outvars}
    equations = without_effects_of(closed.jaxpr.eqns, unknown) if unknown else closed.jaxpr.eqns
    parts = needed_inputs(equations, outputs)
    pending, inputs = [eqn for eqn, _ in parts], {id(eqn): variables for eqn, variables in parts}
    if more:
        missing = {v for v in outputs if not isinstance(v, Literal)}.union(*inputs.values()) - env.keys()
        pending = [eqn for eqn in pending if not missing.isdisjoint(eqn.outvars)]
    together = _costly_examples(pending)
    alone = {id(eqn) for eqn in together}
    pending = [eqn for eqn in pending if id(eqn) not in alone]
    used_by_others = {v for v in outputs if not isinstance(v, Literal)}.union(*(inputs[id(eqn)] for eqn in pending))
    used = {v for v in outputs if not isinstance(v, Literal)}.union(*inputs.values())
    _split_all(pending, env)

    def read(v: Any) -> Any:
        value = v.val if isinstance(v, Literal) else env[v]
        return value.array() if isinstance(value, _Taken) else value

    def read_inputs(eqn: JaxprEqn) -> list[Any]:
        known = inputs[id(eqn)]
        return [read(v) if isinstance(v, Literal) or v in known else None for v in eqn.invars]

    while pending or together:
        draws: list[JaxprEqn] = []
        later: list[JaxprEqn] = []
        effects_wait = False  # their order is that of the program
        for eqn in pending:
            if any(v not in env for v in inputs[id(eqn)]) or (eqn.effects and effects_wait):
                later.append(eqn)
                effects_wait = effects_wait or bool(eqn.effects)
            elif eqn.primitive is draw_p:
                draws.append(eqn)
            else:
                done = _carry_out(eqn, read_inputs(eqn), used, key, closed.jaxpr.debug_info)
                env.update((v, x) for v, x in zip(eqn.outvars, done, strict=True) if x is not None)
        if draws:
            keys = [v.val if isinstance(v, Literal) else env[v] for v in (eqn.invars[0] for eqn in draws)]
            arrays = _drawn([eqn.params["draw"] for eqn in draws], keys, key)
            env.update((eqn.outvars[0], a) for eqn, a in zip(draws, arrays, strict=True))
        if together and len(later) == len(pending):  # what is left waits for it
            env.update(_carry_out_together(together, used_by_others, env, closed.jaxpr.debug_info))
            together = []
        pending = later
    # A constant of the program may be a NumPy array.
    return [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in map(read, outputs)]


def _drawn(draws: list[Draw], keys: list[Any], like: Any) -> list[Array]:
    batches = [() if isinstance(k, _Taken) else key_batch(k) for k in keys]
    data = _key_data(keys)
    maker = local.frames[-1].maker if local.frames else None
    if isinstance(data, jax.core.Tracer) and isinstance(maker, Recording):  # an `init` around this one makes them
        keys = [k.array() if isinstance(k, _Taken) else k for k in keys]
        return [maker.draw(draw, key) for draw, key in zip(draws, keys, strict=True)]
    return sample_all(draws, batches, data, like)


def _carry_out_together(
    equations: list[JaxprEqn], used: set[Any], env: dict[Any, Any], debug_info: DebugInfo
) -> dict[Any, Any]:
    """The outputs that are used of equations that are compiled as one program; `used` and `env` are of the others."""
    made = {v for eqn in equations for v in eqn.outvars}
    read = dict.fromkeys(v for eqn in equations for v in eqn.invars if not isinstance(v, Literal) and v not in made)
    outvars = [v for v in dict.fromkeys(v for eqn in equations for v in eqn.outvars) if v in used]
    names = debug_info._replace(arg_names=("",) * len(read), result_paths=("",) * len(outvars))
    program = Jaxpr([], list(read), outvars, equations, set(), names)
    values = [env.get(v) for v in read]
    values = [x.array() if isinstance(x, _Taken) else x for x in values]
    return dict(zip(outvars, _compiled(program, values), strict=True))


def _carry_out(
    eqn: JaxprEqn, inputs: list[Any], used: set[Any], key: Array | None, debug_info: DebugInfo
) -> Sequence[Any]:
    """The outputs of one equation; of one that holds a program, only the outputs that are used are computed.

    Inputs that those do not depend on are None.
    """
    if eqn.primitive is fill_p:
        aval = jax.ShapeDtypeStruct(eqn.params["shape"], eqn.params["dtype"])
        return [constant(aval, eqn.params["value"], key)]
    if eqn.primitive is jax.lax.broadcast_in_dim_p and isinstance(eqn.invars[0], Literal):
        (out,) = eqn.outvars
        if not getattr(out.aval, "weak_type", True) and not np.ndim(inputs[0]):
            return [constant(out.aval, inputs[0], key)]
    if eqn.primitive is split_p:
        return split_keys(*inputs, num=eqn.params["num"])
    if eqn.primitive is example_p:
        return inputs
    if eqn.primitive is argument_p:
        raise AbstractInitError()
    atoms = [v for v in eqn.invars if not isinstance(v, Literal)]
    values = [x for v, x in zip(eqn.invars, inputs, strict=True) if not isinstance(v, Literal)]
    wanted = [v in used for v in eqn.outvars]
    outvars = [v for v, w in zip(eqn.outvars, wanted, strict=True) if w]
    names = debug_info._replace(arg_names=("",) * len(atoms), result_paths=("",) * len(outvars))
    program = Jaxpr([], atoms, outvars, [eqn], eqn.effects, names)
    as_it_is = all(wanted) and all(x is not None for x in values)
    if as_it_is or not any(True for _ in jaxprs_in_params(eqn.params)):
        some = iter(jax.core.eval_jaxpr(program, (), *values))
    else:
        some = iter(_compiled(program, values))
    return [next(some) if w else None for w in wanted]


def _compiled(program: Jaxpr, inputs: list[Any]) -> Sequence[Any]:
    """The outputs of a program, compiled without what they do not depend on; there zeros stand for inputs of None."""
    given = tuple(x is not None for x in inputs)
    try:
        run = _compiled_before(_Program(program, given))
    except TypeError:  # of more than one equation, or of one that cannot be compared
        run = _run(program, given)
    return run(*(x for x in inputs if x is not None))


class _Program:
    """A program of one equation, and which of its inputs are given: equal to another that computes the same."""

    def __init__(self, program: Jaxpr, given: tuple[bool, ...]):
        self.program, self.given = program, given
        if len(program.eqns) != 1 or any(np.ndim(v.val) for v in program.eqns[0].invars if isinstance(v, Literal)):
            raise TypeError
        (eqn,) = program.eqns
        places: dict[Any, int] = {v: i for i, v in enumerate([*program.invars, *eqn.outvars])}
        read = [(v.aval, str(v.val) if isinstance(v, Literal) else places[v]) for v in eqn.invars]
        made = [places[v] for v in program.outvars]
        self._same = eqn.primitive, given, tuple(read), tuple(made), tuple(sorted(eqn.params.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)


@functools.lru_cache(maxsize=32)
def _compiled_before(program: _Program) -> Callable[..., Sequence[Any]]:
    return _run(program.program, program.given)


def _run(program: Jaxpr, given: tuple[bool, ...]) -> Callable[..., Sequence[Any]]:
    types: list[Any] = [v.aval for v in program.invars]

    def run(*known: Any) -> Sequence[Any]:
        values = iter(known)
        filled = [next(values) if g else jnp.zeros(t.shape, t.dtype) for g, t in zip(given, types, strict=True)]
        return jaxpr_as_fun(ClosedJaxpr(program, ()))(*filled)

    return jax.jit(run)


def _split_all(pending: list[JaxprEqn], env: dict[Any, Any]) -> None:
    """Carries out the longest chain of splits from a key at hand in one program, and removes it from `pending`."""
    by_key = {eqn.invars[0]: eqn for eqn in pending if eqn.primitive is split_p and not key_batch(eqn.invars[0].aval)}
    start = next((v for v in by_key if isinstance(v, Literal) or v in env), None)
    if start is None:
        return
    chain = [by_key[start]]
    while chain[-1].outvars[0] in by_key and by_key[chain[-1].outvars[0]].params == chain[0].params:
        chain.append(by_key[chain[-1].outvars[0]])
    if len(chain) < 4:  # not worth a program of its own
        return
    capacity = 1 << (len(chain) - 1).bit_length()
    keys = split_chain(env[start], capacity, chain[0].params["num"])
    if not isinstance(keys, jax.core.Tracer) and not is_typed_key(keys):
        keys = np.asarray(keys)
    for i, eqn in enumerate(chain):
        env.update((v, _Taken(keys, (i, j), env[start])) for j, v in enumerate(eqn.outvars))
    done = set(map(id, chain))
    pending[:] = [eqn for eqn in pending if id(eqn) not in done]
