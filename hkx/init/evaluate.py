"""Abstract `init`: trace the function, record what it creates, then compute only that.

JAX traces the function with a single operation, `draw`, in place of the computation of each standard random initial
value. Afterwards, only what the parameters and the state depend on is computed: all draws together in one compiled
program, and the rest operation by operation, as an ordinary run would do it, except that a costly forward pass is
compiled as one program too. Nothing else is compiled or executed.
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
from hkx.base.key_arrays import key_batch, split_chain
from hkx.base.keys import is_typed_key
from hkx.core.frame import local
from hkx.core.types import Array
from hkx.errors.core import JaxUsageError
from hkx.errors.init import AbstractInitError
from hkx.init.blocks import sample_all
from hkx.init.buffers import reads_what_may_change
from hkx.init.kept import arrays_of, places_of
from hkx.init.places import constant, placed
from hkx.init.recording import Recording, argument_p, draw_p, example_p, fill_p, split_keys, split_p
from hkx.jaxprs.cost import work
from hkx.jaxprs.dependence import needed, needed_inputs, without_effects_of
from hkx.jaxprs.traces import Where, refused_by_compiled_code, shows_tracer, variable_of, where

Tree = dict[str, dict[str, Any]]

MOST_WORK_ONE_BY_ONE = 2**31  # in floating-point operations: a fraction of a second on a CPU


_MADE_ANYWAY = (draw_p, fill_p, split_p)
_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class ValuesNeeded(Exception):
    """The user's function cannot run on abstract values, usually because it needs the value of a traced array."""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, followed by its causes and contexts."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def asks_for_values(error: BaseException | None) -> bool:
    """Whether an exception comes from code that needed the value of a traced array."""
    return any(
        isinstance(e, _NEEDS_VALUES) or (isinstance(e, AttributeError) and isinstance(e.obj, jax.core.Tracer))
        for e in _chain(error)
    )


def needs_values(error: BaseException | None) -> bool:
    """Whether on real values an exception would not be raised, or have another text.

    This is so if it comes from code that needed a value, or if its text mentions a traced array.
    """
    texts = (x for e in _chain(error) for x in e.args if isinstance(x, str))
    return asks_for_values(error) or any(map(shows_tracer, texts))


def create(run: Callable[[Any], Sequence[Tree]], recorder: Recording, constant: Callable[[np.ndarray], bool]) -> bool:
    """Runs `run` without its forward pass.

    Traced arrays that the function has stored somewhere are replaced there by their values, which are computed as well.

    Args:
      run: given the key, returns two-level dicts of what it created. Traced values in them are replaced by real ones.
      recorder: the maker that `run` uses.
      constant: whether a NumPy array still has the contents that it had when the function began.

    Returns:
      Whether all stored arrays have been replaced. If not, none has.

    Raises:
      ValuesNeeded: if the function needs a value, or creates something from a NumPy array that it may have overwritten.
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


class _Taken(NamedTuple):
    """One key of an array of keys, extracted only if it is needed on its own."""

    keys: Any  # [n, k] keys: traced, typed, or raw in a NumPy array
    place: tuple[int, int]
    like: Any  # the key from which all of them were split

    def array(self) -> Array:
        """The key, on the device of `like`."""
        key = self.keys[self.place]
        return placed(key, self.like) if isinstance(key, np.ndarray) else key


def _key_data(keys: Sequence[Any]) -> Any:
    """uint32[n, 2]: the data of keys and arrays of keys, concatenated; a NumPy array, unless one of them is traced."""
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
    """Computes the outputs of a program, and only what they depend on.

    Adds the values of variables to `env`. With `more`, `env` contains those of an earlier call, whose effects are not
    repeated.
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
        effects_wait = False  # effects must keep their order
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
        if together and len(later) == len(pending):  # everything left depends on them
            env.update(_carry_out_together(together, used_by_others, env, closed.jaxpr.debug_info))
            together = []
        pending = later
    # A constant of the program may be a NumPy array.
    return [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in map(read, outputs)]


def _drawn(draws: list[Draw], keys: list[Any], like: Any) -> list[Array]:
    batches = [() if isinstance(k, _Taken) else key_batch(k) for k in keys]
    data = _key_data(keys)
    maker = local.frames[-1].maker if local.frames else None
    if isinstance(data, jax.core.Tracer) and isinstance(maker, Recording):  # the `init` around this one computes them
        keys = [k.array() if isinstance(k, _Taken) else k for k in keys]
        return [maker.draw(draw, key) for draw, key in zip(draws, keys, strict=True)]
    return sample_all(draws, batches, data, like)


def _carry_out_together(
    equations: list[JaxprEqn], used: set[Any], env: dict[Any, Any], debug_info: DebugInfo
) -> dict[Any, Any]:
    """Compiles and runs equations as one program. Returns those outputs that other equations use, `used`."""
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
    """The outputs of one equation. If it contains a program, only the used outputs are computed; the others are None.

    Inputs on which the used outputs do not depend are None.
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
    """Compiles and runs a program. Inputs that are None, on which the outputs do not depend, are replaced by zeros."""
    given = tuple(x is not None for x in inputs)
    try:
        run = _compiled_before(_Program(program, given))
    except TypeError:  # several equations, or one that cannot be hashed
        run = _run(program, given)
    return run(*(x for x in inputs if x is not None))


class _Program:
    """A cache key: a program of one equation, and which of its inputs are given. Equal if both compute the same."""

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
    """Runs a chain of splits, starting from a known key, as one program, and removes it from `pending`."""
    by_key = {eqn.invars[0]: eqn for eqn in pending if eqn.primitive is split_p and not key_batch(eqn.invars[0].aval)}
    start = next((v for v in by_key if isinstance(v, Literal) or v in env), None)
    if start is None:
        return
    chain = [by_key[start]]
    while chain[-1].outvars[0] in by_key and by_key[chain[-1].outvars[0]].params == chain[0].params:
        chain.append(by_key[chain[-1].outvars[0]])
    if len(chain) < 4:  # not worth compiling
        return
    capacity = 1 << (len(chain) - 1).bit_length()
    keys = split_chain(env[start], capacity, chain[0].params["num"])
    if not isinstance(keys, jax.core.Tracer) and not is_typed_key(keys):
        keys = np.asarray(keys)
    for i, eqn in enumerate(chain):
        env.update((v, _Taken(keys, (i, j), env[start])) for j, v in enumerate(eqn.outvars))
    done = set(map(id, chain))
    pending[:] = [eqn for eqn in pending if id(eqn) not in done]
