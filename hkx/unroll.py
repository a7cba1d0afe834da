"""`static_unroll`: applies a core to a sequence, step by step in Python, or in a loop if nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from hkx.arguments import checked_flag, checked_function
from hkx.core.frame import local
from hkx.core.transform import running_init
from hkx.jaxprs.traces import recording_program
from hkx.nn.linear import Linear
from hkx.nn.recurrent.cells import GRU, LSTM, IdentityCore, VanillaRNN
from hkx.nn.recurrent.conv_cells import Conv1DLSTM, Conv2DLSTM, Conv3DLSTM
from hkx.nn.recurrent.deep import DeepRNN, ResetCore
from hkx.nn.recurrent.sequences import length, on_mesh_of, swap_time_and_batch, time_first

Y = TypeVar("Y")
S = TypeVar("S")


def static_unroll(
    core: Callable[[Any, Any], tuple[Y, S]], input_sequence: Any, initial_state: Any, time_major: bool = True
) -> tuple[Y, S]:
    """Applies a core to a sequence, step by step in Python: the compiled program has a copy of the core for every step.

    It compiles longer than `hkx.dynamic_unroll`, and may be faster for short sequences on a GPU or TPU. On a CPU, where
    the gradient of T unrolled steps takes time in T², compiled programs with cores of hkx's own cells run a loop
    instead, with the same results.

    Args:
      core: an `hkx.RNNCore`, or a function of inputs and state that returns outputs and state.
      input_sequence: a tree of arrays `[T, B, ...]` (or `[T, ...]`), or `[B, T, ...]` if not `time_major`.
      initial_state: the state before the first step.
      time_major: whether time is the first axis of inputs and outputs, or the second.

    Returns:
      The sequence of outputs, in the layout of the inputs, and the final state.

    Raises:
      ValueError: if the sequence is empty.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(xs):
      ...     core = hkx.GRU(4)
      ...     return hkx.static_unroll(core, xs, core.initial_state(2))
      >>> model = hkx.transform(f)
      >>> xs = jnp.ones([5, 2, 3])
      >>> ys, state = model.apply(model.init(jax.random.key(0), xs), None, xs)
      >>> ys.shape, state.shape
      ((5, 2, 4), (2, 4))
    """
    checked_function(core, "hkx.static_unroll", "core")
    time_major = checked_flag(time_major, "time_major", "hkx.static_unroll")
    if not time_major:
        input_sequence = time_first(input_sequence)
    length(input_sequence)
    initial_state = on_mesh_of(input_sequence, initial_state)
    if _may_be_a_loop(core, input_sequence, initial_state):
        state, stacked = _loop_on_a_cpu(_step_of(core), initial_state, input_sequence)
        return (stacked if time_major else swap_time_and_batch(stacked)), state
    outputs, state = [], initial_state
    leaves, structure = jax.tree.flatten(input_sequence)
    for step in zip(*(jnp.unstack(jnp.asarray(x)) for x in leaves), strict=True):
        output, state = core(structure.unflatten(step), state)
        outputs.append(output)
    if not outputs:
        raise ValueError("`input_sequence` has no steps: the shape of the outputs is not known.")
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *outputs)
    return (stacked if time_major else swap_time_and_batch(stacked)), state


_FEW_STEPS = 4  # fewer steps compile as quickly as a loop
_OWN_CELLS = (VanillaRNN, LSTM, GRU, IdentityCore, Conv1DLSTM, Conv2DLSTM, Conv3DLSTM, Linear)


def _step_of(core: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any, Any], tuple[Any, Any]]:
    def step(state: Any, inputs: Any) -> tuple[Any, Any]:
        outputs, state = core(inputs, state)
        return state, outputs

    return step


def _loop_on_a_cpu(step: Callable[[Any, Any], tuple[Any, Any]], initial_state: Any, input_sequence: Any) -> Any:
    """`jax.lax.scan`, compiled as a loop for a CPU, and unrolled completely for other platforms."""

    def unrolled(state: Any, sequence: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, state, sequence, unroll=True)

    def loop(state: Any, sequence: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, state, sequence)

    return jax.lax.platform_dependent(initial_state, input_sequence, cpu=loop, default=unrolled)


def _may_be_a_loop(core: Any, input_sequence: Any, initial_state: Any) -> bool:
    """True if the steps may be compiled as a loop without a visible difference except in compile time."""
    if not (recording_program() and _has_no_python_of_a_user(core)):
        return False
    if running_init() or any(local.hooks.values()):
        return False
    lengths = {jnp.shape(x)[:1] for x in jax.tree.leaves(input_sequence)}
    if len(lengths) > 1 or min(lengths) < (_FEW_STEPS,):
        return False

    def first_step(state: Any, sequence: Any) -> tuple[Any, Any]:
        return _step_of(core)(state, jax.tree.map(lambda x: jnp.asarray(x)[0], sequence))

    before, structure = jax.tree.flatten(initial_state)
    program, (after, _) = jax.make_jaxpr(first_step, return_shape=True)(initial_state, input_sequence)
    if jax.tree.structure(after) != structure:
        return False
    return program.out_avals[: len(before)] == [jax.typeof(x) for x in before]


def _has_no_python_of_a_user(core: Any) -> bool:
    """True if calling the core runs only code of this package and of JAX, which cannot count or store its calls."""
    if type(core) in _OWN_CELLS:
        return True
    if type(core) is ResetCore:
        return _has_no_python_of_a_user(core.core)
    if isinstance(core, DeepRNN) and type(core).__module__ == DeepRNN.__module__:
        return all(_has_no_python_of_a_user(layer) for layer in core.layers)
    return any(core is function for function in vars(jax.nn).values())
