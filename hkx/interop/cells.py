"""Recurrent cores of other libraries that differ from those of hkx."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hkx import initializers
from hkx.arguments import array_of
from hkx.core.store import get_parameter
from hkx.nn.recurrent.cells import RNNCore, add_batch, array_state, check_state, leading_fit


class ResetAfterGRU(RNNCore):
    """The gated recurrent unit of PyTorch and of cuDNN, where the reset gate comes after the matrix product.

    `r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)`, `z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)`,
    `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`, `h' = (1 - z) n + z h`. In `hkx.GRU` the reset gate multiplies `h`
    before the product, as in Cho et al. (2014), arXiv:1406.1078, and z has the opposite sense: no choice of weights
    makes one compute the same as the other.

    Args:
      hidden_size: the size of h.
      name: the module's name. The parameters are `w_i`, `w_h`, `b_i` and `b_h`, with the gates in the order r, z, n.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from hkx.interop.cells import ResetAfterGRU
      >>> model = hkx.transform(lambda x, h: ResetAfterGRU(4)(x, h))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([2, 3]), jnp.zeros([2, 4])))
      {'reset_after_gru': {'b_h': (12,), 'b_i': (12,), 'w_h': (4, 12), 'w_i': (3, 12)}}
    """

    def __init__(self, hidden_size: int, name: str | None = None):
        super().__init__(name=name)
        self.hidden_size = hidden_size

    def __call__(self, inputs: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One step: `inputs` is `[B, F]` or `[F]`, `state` `[B, hidden_size]` or `[hidden_size]`.

        Raises:
          InvalidCoreStateError: if the state is not an array, or has a different shape.
        """
        name = type(self).__name__
        inputs, state = array_of(inputs, "inputs", name), array_state(state, "state", name)
        h, dtype = self.hidden_size, inputs.dtype
        check_state(leading_fit(state, inputs) and state.shape[-1] == h, self, "state", state, inputs, h)
        sides = []
        for side, value in (("i", inputs), ("h", state)):
            init = initializers.VarianceScaling()
            w = get_parameter(f"w_{side}", [jnp.shape(value)[-1], 3 * h], dtype, init=init)
            out = jnp.dot(value, w)
            b = get_parameter(f"b_{side}", [3 * h], dtype, init=jnp.zeros)
            sides.append(jnp.split(out + jnp.broadcast_to(b, out.shape), 3, axis=-1))
        (r_i, z_i, n_i), (r_h, z_h, n_h) = sides
        r, z = jax.nn.sigmoid(r_i + r_h), jax.nn.sigmoid(z_i + z_h)
        out = (1 - z) * jnp.tanh(n_i + r * n_h) + z * state
        return out, out

    def initial_state(self, batch_size: int | None) -> jax.Array:
        """Zeros, `[B, hidden_size]` or `[hidden_size]`."""
        return add_batch(jnp.zeros([self.hidden_size]), batch_size)
