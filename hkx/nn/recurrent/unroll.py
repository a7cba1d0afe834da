"""Applying a core to a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from hkx.core.frame import local
from hkx.core.guard import recording
from hkx.core.module import Module
from hkx.core.transform import running_init
from hkx.lift.control import scan
from hkx.nn.linear import Linear
from hkx.nn.recurrent.cells import GRU, LSTM, IdentityCore, RNNCore, VanillaRNN
from hkx.nn.recurrent.conv_cells import Conv1DLSTM, Conv2DLSTM, Conv3DLSTM
from hkx.nn.recurrent.deep import DeepRNN, ResetCore

Y = TypeVar("Y")
S = TypeVar("S")


def _swap_time_and_batch(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def _time_first(sequence: Any) -> Any:
    for leaf in jax.tree.leaves(sequence):
        if jnp.ndim(leaf) < 2:
            raise ValueError(
                "`input_sequence` must hold arrays [B, T, ...] if not `time_major`, got one of shape "
                f"{jnp.shape(leaf)}."
            )
    return _swap_time_and_batch(sequence)


def _length(sequence: Any) -> int:
    leaves = jax.tree.leaves(sequence)
    if not leaves:
        raise ValueError("`input_sequence` holds no array, so its length is not known.")
    for leaf in leaves:
        if not jnp.shape(leaf):
            raise ValueError("`input_sequence` must hold arrays with a time axis, got one of shape ().")
    return jnp.shape(leaves[0])[0]


def static_unroll(
    core: Callable[[Any, Any], tuple[Y, S]], input_sequence: Any, initial_state: Any, time_major: bool = True
) -> tuple[Y, S]:
    """Applies a core to a sequence, step by step in Python: the compiled program has a copy of the core for every step.

    Compilation takes longer than with `hkx.dynamic_unroll`, and the result may run faster for short sequences on a GPU
    or TPU. On a CPU it runs slower: there XLA computes chains of elementwise operations, such as the cell of an LSTM,
    again for each of their uses, and the gradient of T steps grows with the square of T. Where nobody can see the
    difference, that is in `jax.jit` and the like, for a core made of this package's own cells with no hooks around, the
    core is therefore called once, and JAX makes of it a loop in a program for a CPU and copies for every step in one
    for any other platform, whichever machine it is compiled on.

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
    if not time_major:
        input_sequence = _time_first(input_sequence)
    _length(input_sequence)
    if _may_be_a_loop(core, input_sequence, initial_state):
        state, stacked = _loop_on_a_cpu(_step_of(core), initial_state, input_sequence)
        return (stacked if time_major else _swap_time_and_batch(stacked)), state
    outputs, state = [], initial_state
    leaves, structure = jax.tree.flatten(input_sequence)
    for step in zip(*(jnp.unstack(jnp.asarray(x)) for x in leaves), strict=True):
        output, state = core(structure.unflatten(step), state)
        outputs.append(output)
    if not outputs:
        raise ValueError("`input_sequence` has no steps: the shape of the outputs is not known.")
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *outputs)
    return (stacked if time_major else _swap_time_and_batch(stacked)), state


_FEW_STEPS = 4  # fewer are compiled as quickly as a loop
_OWN_CELLS = (VanillaRNN, LSTM, GRU, IdentityCore, Conv1DLSTM, Conv2DLSTM, Conv3DLSTM, Linear)


def _step_of(core: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any, Any], tuple[Any, Any]]:
    def step(state: Any, inputs: Any) -> tuple[Any, Any]:
        outputs, state = core(inputs, state)
        return state, outputs

    return step


def _loop_on_a_cpu(step: Callable[[Any, Any], tuple[Any, Any]], initial_state: Any, input_sequence: Any) -> Any:
    """`jax.lax.scan`: in a program for a CPU a loop, in one for another platform a copy of the step for every entry."""

    def unrolled(state: Any, sequence: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, state, sequence, unroll=True)

    def loop(state: Any, sequence: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, state, sequence)

    return jax.lax.platform_dependent(initial_state, input_sequence, cpu=loop, default=unrolled)


def _may_be_a_loop(core: Any, input_sequence: Any, initial_state: Any) -> bool:
    """Whether the steps may be compiled as a loop, with nothing to be seen of it but the time that it saves."""
    if not (recording() and _has_no_python_of_a_user(core)):
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
    """Whether calling the core runs this package's code and JAX's, and nothing that may count or keep its calls."""
    if type(core) in _OWN_CELLS:
        return True
    if type(core) is ResetCore:
        return _has_no_python_of_a_user(core.core)
    if isinstance(core, DeepRNN) and type(core).__module__ == DeepRNN.__module__:
        return all(_has_no_python_of_a_user(layer) for layer in core.layers)
    return any(core is function for function in vars(jax.nn).values())


def dynamic_unroll(
    core: Callable[[Any, Any], tuple[Y, S]],
    input_sequence: Any,
    initial_state: Any,
    time_major: bool = True,
    reverse: bool = False,
    return_all_states: bool = False,
    unroll: int = 1,
    *,
    sequence_lengths: jax.Array | None = None,
) -> tuple[Y, S]:
    """Applies a core to a sequence, with `hkx.scan`: the compiled program has one copy of the core, in a loop.

    Args:
      core: an `hkx.RNNCore`, or a function of inputs and state that returns outputs and state.
      input_sequence: a tree of arrays `[T, B, ...]` (or `[T, ...]`), or `[B, T, ...]` if not `time_major`.
      initial_state: the state before the first step.
      time_major: whether time is the first axis of inputs and outputs, or the second.
      reverse: whether to go from the last step to the first. The outputs are in the order of the inputs.
      return_all_states: whether to return the state after every step in place of the final one.
      unroll: how many steps one iteration of the compiled loop holds.
      sequence_lengths: `int[B]` (or `int[]`), for sequences that are padded to T: steps at and after the length leave
        the state as it is, and their outputs are zero. With `reverse`, the steps go from the last one within the
        length to the first.

    Returns:
      The sequence of outputs, in the layout of the inputs, and the final state, or the sequence of states.

    Raises:
      CarryMismatchError: if the core changes structure, shape or dtype of the state.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(xs):
      ...     core = hkx.LSTM(4)
      ...     return hkx.dynamic_unroll(core, xs, core.initial_state(2))
      >>> model = hkx.transform(f)
      >>> xs = jnp.ones([5, 2, 3])
      >>> ys, state = model.apply(model.init(jax.random.key(0), xs), None, xs)
      >>> ys.shape, state.hidden.shape
      ((5, 2, 4), (2, 4))
    """
    if not time_major:
        input_sequence = _time_first(input_sequence)
    if sequence_lengths is not None:
        steps = jnp.arange(_length(input_sequence)).reshape((-1,) + (1,) * jnp.ndim(sequence_lengths))
        input_sequence = input_sequence, steps < jnp.expand_dims(jnp.asarray(sequence_lengths), 0)

    def step(state: Any, inputs: Any) -> tuple[Any, Any]:
        if sequence_lengths is None:
            outputs, new = core(inputs, state)
        else:
            inputs, valid = inputs
            outputs, new = core(inputs, state)
            new = jax.tree.map(lambda x, y: _where(valid, x, y), new, state)
            outputs = jax.tree.map(lambda x: _where(valid, x, jnp.zeros_like(x)), outputs)
        return new, ((outputs, new) if return_all_states else outputs)

    final, stacked = scan(step, initial_state, input_sequence, reverse=reverse, unroll=unroll)
    if not time_major:
        stacked = _swap_time_and_batch(stacked)
    return stacked if return_all_states else (stacked, final)


def _where(valid: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    valid = jnp.reshape(valid, valid.shape + (1,) * (jnp.ndim(x) - valid.ndim))
    return jnp.where(valid, x, y)


def _concatenated(forward: jax.Array, backward: jax.Array) -> jax.Array:
    return jnp.concatenate([forward, backward], axis=-1)


class Bidirectional(Module):
    """Applies one core to a sequence from its start and another from its end.

    Reference: Schuster & Paliwal (1997), "Bidirectional recurrent neural networks".

    Args:
      forward: the core that goes from the first step to the last.
      backward: the core that goes from the last step to the first.
      merge: a function of two output arrays that puts them together; by default it concatenates along the last axis.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda xs: hkx.Bidirectional(hkx.LSTM(4), hkx.LSTM(4))(xs)[0])
      >>> xs = jnp.ones([5, 2, 3])
      >>> model.apply(model.init(jax.random.key(0), xs), None, xs).shape
      (5, 2, 8)
    """

    def __init__(
        self,
        forward: RNNCore,
        backward: RNNCore,
        merge: Callable[[jax.Array, jax.Array], jax.Array] = _concatenated,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.forward = forward
        self.backward = backward
        self.merge = merge

    def __call__(
        self,
        input_sequence: Any,
        initial_states: tuple[Any, Any] | None = None,
        time_major: bool = True,
        *,
        sequence_lengths: jax.Array | None = None,
        unroll: int = 1,
    ) -> tuple[Any, tuple[Any, Any]]:
        """Unrolls both cores.

        Args:
          input_sequence: a tree of arrays `[T, B, ...]` (or `[T, F]`), or `[B, T, ...]` if not `time_major`.
          initial_states: the initial states of both cores; None takes `initial_state(B)` of each, or that of no batch.
          time_major: whether time is the first axis of inputs and outputs, or the second.
          sequence_lengths: see `hkx.dynamic_unroll`.
          unroll: see `hkx.dynamic_unroll`.

        Returns:
          The merged outputs, in the layout of the inputs, and the final states of both cores.
        """
        if initial_states is None:
            _length(input_sequence)
            shape = jnp.shape(jax.tree.leaves(input_sequence)[0])
            unbatched = time_major and len(shape) < 3  # [T, F]
            batch_size = None if unbatched else shape[1 if time_major else 0]
            initial_states = self.forward.initial_state(batch_size), self.backward.initial_state(batch_size)
        (ahead, first), (back, second) = (
            dynamic_unroll(
                core,
                input_sequence,
                state,
                time_major,
                reverse=core is self.backward,
                unroll=unroll,
                sequence_lengths=sequence_lengths,
            )
            for core, state in zip((self.forward, self.backward), initial_states, strict=True)
        )
        return jax.tree.map(self.merge, ahead, back), (first, second)
