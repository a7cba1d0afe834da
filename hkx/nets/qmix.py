"""QMIX's mixing network."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hkx import Linear, Module
from hkx.arguments import Items, Num, PositiveSize
from hkx.nets.mlp import MLP


class QMixer(Module):
    """Mixes the values of agents into the value of their joint action, which increases with each of them.

    `elu(q |W1(s)| + b1(s)) |w2(s)| + b2(s)`: weights and biases are outputs of hypernetworks of the state, and the
    weights are made non-negative, so that the best action for each agent is best for the team. The parameters, under
    the module's name, are those of `hyper_w_1`, `hyper_b_1`, `hyper_w_2` and `hyper_b_2`; `hyper_b_1` is a linear
    layer, `hyper_b_2` has one hidden layer, and the networks for the weights have the hidden layers of
    `hypernet_sizes`.

    Reference: Rashid et al. (2018), "QMIX: Monotonic value function factorisation for deep multi-agent reinforcement
    learning", arXiv:1803.11485, in which `hypernet_sizes` is empty.

    Args:
      embed_size: the number of hidden units.
      hypernet_sizes: the sizes of the hidden layers of the hypernetworks for the weights.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda q, state: hkx.nets.QMixer(8)(q, state))
      >>> q, state = jnp.ones([5, 3]), jnp.ones([5, 10])  # of three agents
      >>> params = model.init(jax.random.key(0), q, state)
      >>> model.apply(params, None, q, state).shape
      (5,)
      >>> for module in sorted(params):
      ...     print(module, params[module]["w"].shape)
      q_mixer/hyper_b_1 (10, 8)
      q_mixer/hyper_b_2/~/linear_0 (10, 8)
      q_mixer/hyper_b_2/~/linear_1 (8, 1)
      q_mixer/hyper_w_1/~/linear_0 (10, 24)
      q_mixer/hyper_w_2/~/linear_0 (10, 8)
    """

    def __init__(
        self, embed_size: PositiveSize = 32, hypernet_sizes: Items[PositiveSize] = (), name: str | None = None
    ):
        super().__init__(name=name)
        self.embed_size = embed_size
        self.hypernet_sizes = tuple(hypernet_sizes)

    def __call__(self, agent_values: Num[jax.Array, "... N"], state: Num[jax.Array, "... S"]) -> jax.Array:
        """Mixes values.

        Args:
          agent_values: the value of each agent's action, `[..., N]`.
          state: the state of the environment, `[..., S]`, with the same leading dimensions.

        Returns:
          The joint values, `[...]`.

        Raises:
          ScalarInputError: if an argument is a scalar.
          ValueError: if the leading dimensions differ.
        """
        q = agent_values
        if q.shape[:-1] != state.shape[:-1]:
            raise ValueError(
                f"`agent_values` has the leading dimensions {q.shape[:-1]} and `state` {state.shape[:-1]}: they are to "
                "be the same, [..., N] and [..., S]. To mix many values in one state, repeat it with "
                "jnp.broadcast_to, or map over the values with hkx.vmap."
            )
        agents, size = q.shape[-1], self.embed_size
        w_1 = jnp.abs(MLP([*self.hypernet_sizes, agents * size], name="hyper_w_1")(state))  # [..., N E]
        b_1 = Linear(size, name="hyper_b_1")(state)  # [..., E]
        w_2 = jnp.abs(MLP([*self.hypernet_sizes, size], name="hyper_w_2")(state))  # [..., E]
        b_2 = MLP([size, 1], name="hyper_b_2")(state)  # [..., 1]
        hidden = jnp.einsum("...n,...ne->...e", q, w_1.reshape(*state.shape[:-1], agents, size)) + b_1
        return jnp.sum(jax.nn.elu(hidden) * w_2, axis=-1) + b_2[..., 0]
