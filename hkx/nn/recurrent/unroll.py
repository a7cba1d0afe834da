"""Applying a core to a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from hkx import Module, scan
from hkx.arguments import Flag, Function, Int, checked, checked_function
from hkx.errors import InvalidCoreStateError
from hkx.nn.numerics import entries_in
from hkx.nn.recurrent.sequences import check_lengths, length, on_mesh_of, swap_time_and_batch, time_first

Y = TypeVar("Y")
S = TypeVar("S")


@checked
def dynamic_unroll(
    core: Callable[[Any, Any], tuple[Y, S]],
    input_sequence: Any,
    initial_state: Any,
    time_major: Flag = True,
    reverse: bool = False,
    return_all_states: Flag = False,
    unroll: int = 1,
    *,
    sequence_lengths: Int[jax.Array, "..."] | None = None,
) -> tuple[Y, S]:
    """Applies a core to a sequence with `hkx.scan`, so the compiled program has one copy of the core, in a loop.

    Args:
      core: an `hkx.RNNCore`, or a function of inputs and state that returns outputs and state.
      input_sequence: a tree of arrays `[T, B, ...]` (or `[T, ...]`), or `[B, T, ...]` if not `time_major`.
      initial_state: the state before the first step.
      time_major: whether time is the first axis of inputs and outputs, rather than the second.
      reverse: whether to process the sequence from the last step to the first. The outputs are in the order of the
        inputs.
      return_all_states: whether to return the state after every step instead of the final state.
      unroll: the number of steps in one iteration of the compiled loop.
      sequence_lengths: `int[B]` (or `int[]`), for sequences padded to T: steps at and after the length leave the state
        unchanged, and their outputs are zero. With `reverse`, processing starts at the last step within the length.

    Returns:
      The sequence of outputs, in the layout of the inputs, and the final state, or the sequence of states.

    Raises:
      CarryMismatchError: if the core changes the structure, shape or dtype of the state.
      InputDTypeError: if `sequence_lengths` are not integers.
      LeadingDimensionsError: if `sequence_lengths` does not have one entry for each sequence.

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
    checked_function(core, "dynamic_unroll", "core")
    if not time_major:
        input_sequence = time_first(input_sequence)
    if sequence_lengths is not None:
        check_lengths(sequence_lengths, input_sequence, initial_state)
        steps = jnp.arange(length(input_sequence)).reshape((-1,) + (1,) * sequence_lengths.ndim)
        input_sequence = input_sequence, steps < jnp.expand_dims(sequence_lengths, 0)

    def step(state: Any, inputs: Any) -> tuple[Any, Any]:
        if sequence_lengths is None:
            outputs, new = core(inputs, state)
        else:
            inputs, valid = inputs
            outputs, new = core(inputs, state)
            new = jax.tree.map(lambda x, y: _where(valid, x, y), new, state)
            outputs = jax.tree.map(lambda x: _where(valid, x, jnp.zeros_like(x)), outputs)
        return new, ((outputs, new) if return_all_states else outputs)

    initial_state = on_mesh_of(input_sequence, initial_state)
    final, stacked = scan(step, initial_state, input_sequence, reverse=reverse, unroll=unroll)
    if not time_major:
        stacked = swap_time_and_batch(stacked)
    return stacked if return_all_states else (stacked, final)


def _where(valid: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    valid = jnp.reshape(valid, valid.shape + (1,) * (jnp.ndim(x) - valid.ndim))
    return jnp.where(valid, x, y)


def _concatenated(forward: jax.Array, backward: jax.Array) -> jax.Array:
    return jnp.concatenate([forward, backward], axis=-1)


class Bidirectional(Module):
    """Applies one core forwards and another backwards over a sequence.

    Reference: Schuster & Paliwal (1997), "Bidirectional recurrent neural networks".

    Args:
      forward: the core that goes from the first step to the last.
      backward: the core that goes from the last step to the first. It may be the same one, with the same parameters.
      merge: a function that merges two output arrays; by default it concatenates them along the last axis.
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
        forward: Function,
        backward: Function,
        merge: Function = _concatenated,
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
        time_major: Flag = True,
        *,
        sequence_lengths: Int[jax.Array, "..."] | None = None,
        unroll: int = 1,
    ) -> tuple[Any, tuple[Any, Any]]:
        """Unrolls both cores.

        Args:
          input_sequence: a tree of arrays `[T, B, ...]` (or `[T, F]`), or `[B, T, ...]` if not `time_major`.
          initial_states: the initial states of both cores; None uses `initial_state(B)` of each, or
            `initial_state(None)` without a batch.
          time_major: whether time is the first axis of inputs and outputs, rather than the second.
          sequence_lengths: see `hkx.dynamic_unroll`.
          unroll: see `hkx.dynamic_unroll`.

        Returns:
          The merged outputs, in the layout of the inputs, and the final states of both cores.

        Raises:
          InvalidCoreStateError: if `initial_states` is not a pair.
        """
        if initial_states is None:
            length(input_sequence)
            shape = jnp.shape(jax.tree.leaves(input_sequence)[0])
            unbatched = time_major and len(shape) < 3  # [T, F]
            batch_size = None if unbatched else shape[1 if time_major else 0]
            cores: tuple[Any, ...] = (self.forward, self.backward)
            initial_states = tuple(core.initial_state(batch_size) for core in cores)
        if entries_in(initial_states) != 2:
            expected = "a pair of states, of `forward` and of `backward`"
            raise InvalidCoreStateError("Bidirectional", "initial_states", initial_states, expected)
        (ahead, first), (back, second) = (
            dynamic_unroll(
                core,
                input_sequence,
                state,
                time_major,
                reverse=reverse,
                unroll=unroll,
                sequence_lengths=sequence_lengths,
            )
            for core, state, reverse in zip((self.forward, self.backward), initial_states, (False, True), strict=True)
        )
        return jax.tree.map(self.merge, ahead, back), (first, second)
