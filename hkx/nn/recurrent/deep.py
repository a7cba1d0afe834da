"""Cores built from other cores: stacks, and a core that resets its state at the end of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hkx import RNNCore, transparent
from hkx.arguments import Function, Items, array_of
from hkx.errors import InvalidCoreStateError
from hkx.nn.numerics import broadcast, entries_in, parts_of, resharded
from hkx.nn.recurrent.cells import array_state


class ResetCore(RNNCore):
    """Resets the state of a core to its initial state where a signal is true, before the step.

    The inputs are a pair of the core's inputs and the reset signal, so the core can be unrolled over several episodes.

    Args:
      core: the core.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(xs, starts):
      ...     core = hkx.ResetCore(hkx.VanillaRNN(1))
      ...     return hkx.dynamic_unroll(core, (xs, starts), core.initial_state(1))[0]
      >>> xs, starts = jnp.ones([4, 1, 1]), jnp.array([[False], [False], [True], [False]])
      >>> model = hkx.transform(f)
      >>> ys = model.apply(model.init(jax.random.key(0), xs, starts), None, xs, starts)
      >>> bool((ys[:2] == ys[2:]).all())
      True
    """

    def __init__(self, core: Function, name: str | None = None):
        super().__init__(name=name)
        self.core: Any = core

    def __call__(self, inputs: tuple[Any, Any], state: Any) -> tuple[Any, Any]:
        """One step.

        Args:
          inputs: a pair of the core's inputs and the signal: `bool[B]` or `bool[]`, or a tree of these in the structure
            of the state.
          state: the core's state.

        Returns:
          The core's outputs and new state.

        Raises:
          InvalidCoreStateError: if the state does not belong to the core.
          InvalidInputError: if the inputs or the signal are no arrays.
          ValueError: if the shape of the signal does not match the leading dimensions of the state.
        """
        inputs, should_reset = inputs
        # This sorts dicts, as `hkx.dynamic_unroll` does.
        inputs = jax.tree.map(lambda x: array_of(x, "inputs", "ResetCore", keys=True), inputs)
        leaves, structure = jax.tree.flatten(state)
        leaves = [array_state(leaf, "state", "ResetCore") for leaf in leaves]
        initial = self._initial_like(leaves)
        if len(leaves) != len(initial):
            raise InvalidCoreStateError("ResetCore", "state", state, f"a tree of {len(initial)} arrays")
        if jax.tree.structure(should_reset) == structure:
            signals = jax.tree.leaves(should_reset)
        else:
            signals = [should_reset] * len(leaves)
            if not jax.tree_util.all_leaves([should_reset]):
                raise ValueError(
                    f"should_reset is {should_reset!r}: it must be one array, or a tree of them in the structure of "
                    f"the state, {structure}."
                )
        signals = [array_of(signal, "should_reset", "ResetCore") for signal in signals]
        signals = [_expanded(signal, leaf) for signal, leaf in zip(signals, leaves, strict=True)]
        for new, old in zip(initial, leaves, strict=True):
            if broadcast(jnp.shape(new), old.shape) is None:
                raise InvalidCoreStateError("ResetCore", "state", state, f"{list(jnp.shape(new))}", old.shape)
        pairs = [(jnp.asarray(new, old.dtype), old) for new, old in zip(initial, leaves, strict=True)]
        initial = [resharded(new, *parts_of(old)) if new.shape == old.shape else new for new, old in pairs]
        state = structure.unflatten([jnp.where(*x) for x in zip(signals, initial, leaves, strict=True)])
        return self.core(inputs, state)

    @transparent
    def _initial_like(self, leaves: list[Any]) -> list[Any]:
        """The leaves of the initial state, for the batch size of a state."""
        batched = jax.tree.leaves(self.initial_state(1)) if leaves else []
        is_batched = bool(batched) and jnp.ndim(leaves[0]) == jnp.ndim(batched[0])
        return jax.tree.leaves(self.initial_state(jnp.shape(leaves[0])[0] if is_batched else None))

    def initial_state(self, batch_size: int | None) -> Any:
        """The initial state of the core."""
        return self.core.initial_state(batch_size)


def _expanded(signal: Any, leaf: Any) -> jax.Array:
    """Adds trailing dimensions of size 1 to `signal`, up to the rank of `leaf`."""
    shape, expected = jnp.shape(signal), jnp.shape(leaf)
    if shape != expected[: len(shape)]:
        raise ValueError(
            f"The signal `should_reset` has shape {shape}, and the state {expected}: the first must be the leading "
            "part of the second, such as [B] for a state of [B, ...]."
        )
    return jnp.reshape(signal, shape + (1,) * (len(expected) - len(shape)))


class DeepRNN(RNNCore):
    """A stack of cores and functions, each applied to the output of the previous one.

    The state is a tuple of the states of the cores; layers that are not an `hkx.RNNCore` have no state.

    Args:
      layers: cores, and functions or modules of one argument.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     core = hkx.DeepRNN([hkx.LSTM(4), jax.nn.relu, hkx.GRU(3)])
      ...     return core(x, core.initial_state(x.shape[0]))
      >>> model = hkx.transform(f)
      >>> out, state = model.apply(model.init(jax.random.key(0), jnp.ones([2, 5])), None, jnp.ones([2, 5]))
      >>> out.shape, len(state)
      ((2, 3), 2)
    """

    skip_connections = False

    def __init__(self, layers: Items[Function], name: str | None = None):
        super().__init__(name=name)
        self.layers = tuple(layers)

    def __call__(self, inputs: Any, state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """One step of every layer."""
        _check_states(self.layers, state)
        states, out, new = iter(state), inputs, []
        for layer in self.layers:
            if isinstance(layer, RNNCore):
                out, next_state = layer(out, next(states))
                new.append(next_state)
            else:
                out = layer(out)
        return out, tuple(new)

    def initial_state(self, batch_size: int | None) -> tuple[Any, ...]:
        """A tuple of the initial states of the cores."""
        return tuple(layer.initial_state(batch_size) for layer in self.layers if isinstance(layer, RNNCore))


def _check_states(layers: Sequence[Any], state: Any) -> None:
    cores = sum(isinstance(layer, RNNCore) for layer in layers)
    if entries_in(state) < cores:
        raise InvalidCoreStateError("DeepRNN", "state", state, f"a tuple of {cores} states, one for each core")


class _SkippingRNN(DeepRNN):
    """A deep network in which every layer also receives the inputs, and all outputs are concatenated."""

    skip_connections = True

    def __call__(self, inputs: Any, state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        _check_states(self.layers, state)
        outputs: list[Any] = []
        new = []
        for layer, layer_state in zip(self.layers, state, strict=False):  # as in Haiku, `state` may be longer
            seen = _joined(inputs, outputs[-1]) if outputs else inputs
            out, next_state = layer(seen, layer_state)
            outputs.append(out)
            new.append(next_state)
        return _joined(*outputs), tuple(new)


def _joined(*trees: Any) -> Any:
    """Concatenates trees of arrays along the last dimension."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=-1), *trees)


def deep_rnn_with_skip_connections(layers: Sequence[RNNCore], name: str | None = None) -> RNNCore:
    """A stack of cores in which each receives the inputs and the outputs of the core below.

    The outputs of all cores are concatenated.

    Reference: Graves (2013), "Generating sequences with recurrent neural networks", arXiv:1308.0850.

    Args:
      layers: the cores.
      name: the name of the module.

    Returns:
      A core whose state is a tuple of the states of all layers.

    Raises:
      ValueError: if a layer is not an `hkx.RNNCore`, or there are no layers.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     core = hkx.deep_rnn_with_skip_connections([hkx.LSTM(4), hkx.GRU(3)])
      ...     return core(x, core.initial_state(x.shape[0]))[0]
      >>> model = hkx.transform(f)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones([2, 5])), None, jnp.ones([2, 5])).shape
      (2, 7)
    """
    if entries_in(layers) < 1 or not all(isinstance(layer, RNNCore) for layer in layers):
        raise ValueError(
            "`layers` of `hkx.deep_rnn_with_skip_connections`: skip_connections requires one or more layers, each of "
            f"them a `hkx.RNNCore`, got: {layers}."
        )
    return _SkippingRNN(layers, name=name or "__deep_rnn")
