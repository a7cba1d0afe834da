"""Recurrent cores: each computes one step of a recurrent network."""

from __future__ import annotations

import abc
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from hkx import Linear, Module, get_parameter, initializers, traced_once
from hkx.arguments import Flag, Num, Rule, Size, array_of
from hkx.errors import InvalidCoreStateError, InvalidInputError, InvalidRankError
from hkx.initializers import Initializer
from hkx.nn.numerics import broadcast, entries_in


def add_batch(tree: Any, batch_size: int | None) -> Any:
    """Repeats the arrays of a tree along a new leading axis, unless `batch_size` is None."""
    if batch_size is None:
        return tree
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch_size, *jnp.shape(x))), tree)


def array_state(value: Any, argument: str, taker: str) -> jax.Array:
    """A state as an array; raises InvalidCoreStateError if it is none."""
    try:
        return array_of(value, argument, taker)
    except InvalidInputError:
        raise InvalidCoreStateError(taker, argument, value, "an array") from None


def _lstm_state(value: Any, argument: str, taker: str) -> LSTMState:
    if entries_in(value) != 2:
        raise InvalidCoreStateError(taker, argument, value, "an `LSTMState`")
    return LSTMState(*(array_state(x, f"{argument}.{n}", taker) for n, x in zip(LSTMState._fields, value, strict=True)))


def check_state(fits: bool, core: RNNCore, argument: str, state: jax.Array, inputs: jax.Array, size: int) -> None:
    """Raises InvalidCoreStateError, about an array of the state that must match `inputs`, unless `fits`."""
    if not fits:
        wanted = ", ".join(map(str, (*inputs.shape[:-1], size)))
        expected = f"[{wanted}], for `inputs` of shape {inputs.shape}"
        raise InvalidCoreStateError(type(core).__name__, argument, state, expected, state.shape)


def leading_fit(state: jax.Array, inputs: jax.Array) -> bool:
    """True if all dimensions except the last broadcast."""
    return state.ndim > 0 and broadcast(state.shape[:-1], inputs.shape[:-1]) is not None


class RNNCore(Module):
    """The base class of recurrent cores: `outputs, state = core(inputs, state)` is one step.

    `hkx.dynamic_unroll` and `hkx.static_unroll` apply a core to a sequence.

    Args:
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> class Sum(hkx.RNNCore):
      ...     def __call__(self, inputs, prev_state):
      ...         return prev_state + inputs, prev_state + inputs
      ...     def initial_state(self, batch_size):
      ...         return jnp.zeros([] if batch_size is None else [batch_size])
      >>> def f(xs):
      ...     core = Sum()
      ...     return hkx.dynamic_unroll(core, xs, core.initial_state(None))
      >>> print(hkx.transform(f).apply({}, None, jnp.ones(3))[0])
      [1. 2. 3.]
    """

    @abc.abstractmethod
    def __call__(self, inputs: Any, prev_state: Any) -> tuple[Any, Any]:
        """One step.

        Args:
          inputs: a tree of arrays, `[B, ...]` or without the batch dimension.
          prev_state: the state from `initial_state` or the previous step.

        Returns:
          The outputs and the new state.
        """

    @abc.abstractmethod
    def initial_state(self, batch_size: int | None) -> Any:
        """The state before the first step.

        Args:
          batch_size: the size of the batch dimension; None if there is none.

        Returns:
          A tree of arrays.
        """


class VanillaRNN(RNNCore):
    """`h_t = relu(W_i x_t + b_i + W_h h_{t-1} + b_h)`; the output is the state.

    Args:
      hidden_size: the size of h.
      double_bias: whether to use `b_h` in addition to `b_i`.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x, h: hkx.VanillaRNN(4)(x, h))
      >>> params = model.init(jax.random.key(0), jnp.ones([2, 3]), jnp.zeros([2, 4]))
      >>> list(params)
      ['vanilla_rnn/linear', 'vanilla_rnn/linear_1']
    """

    def __init__(self, hidden_size: Size, double_bias: Flag = True, name: str | None = None):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.double_bias = double_bias

    def __call__(self, inputs: Num[jax.Array, "..."], prev_state: ArrayState) -> tuple[jax.Array, jax.Array]:
        """One step from `[B, F]` or `[F]` inputs; state and output are `[B, hidden_size]` or `[hidden_size]`.

        Raises:
          InvalidCoreStateError: if the state is not an array, or its leading dimensions do not fit the inputs. In
            `init`, its last dimension gives the size of `W_h`, as in Haiku.
        """
        check_state(leading_fit(prev_state, inputs), self, "prev_state", prev_state, inputs, self.hidden_size)
        input_to_hidden = Linear(self.hidden_size)
        hidden_to_hidden = Linear(self.hidden_size, with_bias=self.double_bias)
        out = jax.nn.relu(input_to_hidden(inputs) + hidden_to_hidden(prev_state))  # [B, H]
        return out, out

    def initial_state(self, batch_size: Size | None) -> jax.Array:
        """Zeros, `[B, hidden_size]` or `[hidden_size]`."""
        return add_batch(jnp.zeros([self.hidden_size]), batch_size)


class LSTMState(NamedTuple):
    """The state of `hkx.LSTM` and its convolutional variants.

    Attributes:
      hidden: `[B, ..., hidden_size]`, which is also the output.
      cell: `[B, ..., hidden_size]`.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> state = hkx.LSTMState(hidden=jnp.zeros([2, 3]), cell=jnp.zeros([2, 3]))
      >>> state.cell.shape
      (2, 3)
    """

    hidden: jax.Array  # [B, ..., hidden_size], also the output
    cell: jax.Array  # [B, ..., hidden_size]


ArrayState = Annotated[jax.Array, Rule(array_state)]
PairState = Annotated[LSTMState, Rule(_lstm_state)]


@traced_once
def lstm_step(gates: jax.Array, prev_cell: jax.Array) -> LSTMState:
    """The new state from the four gates (input, update, forget, output), concatenated along the last axis."""
    i, g, f, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f + 1) * prev_cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return LSTMState(jax.nn.sigmoid(o) * jnp.tanh(cell), cell)


class LSTM(RNNCore):
    """Long short-term memory.

    `i, g, f, o = split(W [x_t, h_{t-1}] + b)`, `c_t = sigmoid(f + 1) c_{t-1} + sigmoid(i) tanh(g)`, `h_t = sigmoid(o)
    tanh(c_t)`; the output is h. Adding 1 to the forget gate makes the cell remember at the start of training
    (Jozefowicz et al., 2015).

    References: Hochreiter & Schmidhuber (1997), "Long short-term memory"; Zaremba et al. (2014), "Recurrent neural
    network regularization", arXiv:1409.2329; Jozefowicz, Zaremba & Sutskever (2015), "An empirical exploration of
    recurrent network architectures".

    Args:
      hidden_size: the size of h and c.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     core = hkx.LSTM(4)
      ...     return core(x, core.initial_state(x.shape[0]))
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), jnp.ones([2, 3]))
      >>> jax.tree.map(jnp.shape, params)
      {'lstm/linear': {'b': (16,), 'w': (7, 16)}}
    """

    def __init__(self, hidden_size: Size, name: str | None = None):
        super().__init__(name=name)
        self.hidden_size = hidden_size

    def __call__(self, inputs: Num[jax.Array, "F", "B F"], prev_state: PairState) -> tuple[jax.Array, LSTMState]:
        """One step.

        Args:
          inputs: `[B, F]` or `[F]`.
          prev_state: an `LSTMState` of `[B, hidden_size]` or `[hidden_size]`.

        Returns:
          The output, `[B, hidden_size]` or `[hidden_size]`, and the new state.

        Raises:
          InvalidCoreStateError: if the state is not a pair of arrays, or they have the wrong shape. In `init`, the last
            dimension of `hidden` gives the size of the weights for it, as in Haiku.
          InvalidRankError: if `inputs` has the wrong number of dimensions, or the state a different number from
            `inputs`.
        """
        hidden, cell = prev_state
        if hidden.ndim != inputs.ndim:
            raise InvalidRankError("LSTM", "prev_state", hidden.shape, (inputs.ndim,))
        size = self.hidden_size
        check_state(leading_fit(hidden, inputs), self, "prev_state.hidden", hidden, inputs, size)
        if hidden.shape[:-1] != inputs.shape[:-1]:  # a batch of inputs with one state, or the other way round
            leading = jnp.broadcast_shapes(hidden.shape[:-1], inputs.shape[:-1])
            inputs, hidden = (jnp.broadcast_to(x, (*leading, x.shape[-1])) for x in (inputs, hidden))
        fits = broadcast(cell.shape, (*inputs.shape[:-1], size)) is not None
        check_state(fits, self, "prev_state.cell", cell, inputs, size)
        gates = Linear(4 * size)(jnp.concatenate([inputs, hidden], axis=-1))  # [B, 4 H]
        state = lstm_step(gates, cell)
        return state.hidden, state

    def initial_state(self, batch_size: Size | None) -> LSTMState:
        """Zeros, `[B, hidden_size]` or `[hidden_size]`."""
        state = LSTMState(jnp.zeros([self.hidden_size]), jnp.zeros([self.hidden_size]))
        return add_batch(state, batch_size)


class GRU(RNNCore):
    """Gated recurrent unit.

    `z_t = sigmoid(W_iz x_t + W_hz h_{t-1} + b_z)`, `r_t = sigmoid(W_ir x_t + W_hr h_{t-1} + b_r)`,
    `a_t = tanh(W_ia x_t + W_ha (r_t h_{t-1}) + b_a)`, `h_t = (1 - z_t) h_{t-1} + z_t a_t`; the output is h.

    References: Cho et al. (2014), "Learning phrase representations using RNN encoder-decoder for statistical machine
    translation", arXiv:1406.1078; Chung et al. (2014), "Empirical evaluation of gated recurrent neural networks on
    sequence modeling", arXiv:1412.3555.

    Args:
      hidden_size: the size of h.
      w_i_init: initializer of `w_i`, shape `[F, 3 * hidden_size]` in the order z, r, a; its variance is `1 / F` by
        default.
      w_h_init: initializer of `w_h`, shape `[hidden_size, 3 * hidden_size]`; its variance is `1 / hidden_size` by
        default.
      b_init: initializer of `b`, shape `[3 * hidden_size]`; zeros by default.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x, h: hkx.GRU(4)(x, h))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([2, 3]), jnp.zeros([2, 4])))
      {'gru': {'b': (12,), 'w_h': (4, 12), 'w_i': (3, 12)}}
    """

    def __init__(
        self,
        hidden_size: Size,
        w_i_init: Initializer | None = None,
        w_h_init: Initializer | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.w_i_init = w_i_init or initializers.VarianceScaling()
        self.w_h_init = w_h_init or initializers.VarianceScaling()
        self.b_init = b_init or jnp.zeros

    def __call__(self, inputs: Num[jax.Array, "F", "B F"], state: ArrayState) -> tuple[jax.Array, jax.Array]:
        """One step.

        Args:
          inputs: `[B, F]` or `[F]`.
          state: `[B, hidden_size]` or `[hidden_size]`.

        Returns:
          The output, which is also the new state.

        Raises:
          InvalidCoreStateError: if the state is not an array, or has the wrong shape.
          InvalidRankError: if `inputs` has the wrong number of dimensions.
        """
        h, dtype = self.hidden_size, inputs.dtype
        check_state(leading_fit(state, inputs) and state.shape[-1] == h, self, "state", state, inputs, h)
        w_i = get_parameter("w_i", [inputs.shape[-1], 3 * h], dtype, init=self.w_i_init)
        w_h = get_parameter("w_h", [h, 3 * h], dtype, init=self.w_h_init)
        b = get_parameter("b", [3 * h], dtype, init=self.b_init)
        out = _gru_step(inputs, state, w_i, w_h, b)
        return out, out

    def initial_state(self, batch_size: Size | None) -> jax.Array:
        """Zeros, `[B, hidden_size]` or `[hidden_size]`."""
        return add_batch(jnp.zeros([self.hidden_size]), batch_size)


@traced_once
def _gru_step(inputs: Any, state: Any, w_i: Any, w_h: Any, b: Any) -> jax.Array:
    """The new state; the weights are those of the gates z and r, and of the candidate, along the last axis."""
    h = state.shape[-1]
    w_h_zr, w_h_a = jnp.split(w_h, [2 * h], axis=1)  # [H, 2 H], [H, H]
    b_zr, b_a = jnp.split(b, [2 * h], axis=0)
    x_zr, x_a = jnp.split(jnp.dot(inputs, w_i), [2 * h], axis=-1)  # [B, 2 H], [B, H]
    zr = x_zr + jnp.dot(state, w_h_zr)  # [B, 2 H]
    z, r = jnp.split(jax.nn.sigmoid(zr + jnp.broadcast_to(b_zr, zr.shape)), 2, axis=-1)  # [B, H], [B, H]
    a = x_a + jnp.dot(r * state, w_h_a)  # [B, H]
    a = jnp.tanh(a + jnp.broadcast_to(b_a, a.shape))
    return (1 - z) * state + z * a


class IdentityCore(RNNCore):
    """A core that returns its inputs and has no state.

    Args:
      name: the module's name.

    Example:

      >>> import hkx
      >>> hkx.transform(lambda x: hkx.IdentityCore()(x, ())).apply({}, None, 3)
      (3, ())
    """

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Returns both arguments."""
        return inputs, state

    def initial_state(self, batch_size: int | None) -> tuple[()]:
        """No state."""
        del batch_size
        return ()
