"""The multi-layer perceptron."""

from __future__ import annotations

import jax

from hkx import Linear, Module, PRNGSequence, dropout
from hkx.arguments import Flag, Function, Items, Num, Number, Size
from hkx.initializers import Initializer


class MLP(Module):
    """A multi-layer perceptron: linear layers with an activation between them.

    `h_0 = x`, `h_i = activation(w_i h_{i-1} + b_i)`, without the activation in the last layer (see `activate_final`).

    Args:
      output_sizes: the output sizes of the layers, such as `[300, 100, 10]`.
      w_init: initializer of the weights, as in `hkx.Linear`.
      b_init: initializer of the biases; only with `with_bias`.
      with_bias: whether the layers have biases.
      activation: the function to apply after each layer except the last.
      activate_final: whether to apply it after the last layer as well.
      name: the module's name.

    Raises:
      ValueError: if `b_init` is given without biases.
      NotAListError: if `output_sizes` is a number.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.nets.MLP([300, 100, 10])(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 28 * 28]))
      >>> sorted(params)
      ['mlp/~/linear_0', 'mlp/~/linear_1', 'mlp/~/linear_2']
    """

    def __init__(
        self,
        output_sizes: Items[Size],
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        with_bias: Flag = True,
        activation: Function = jax.nn.relu,
        activate_final: Flag = False,
        name: str | None = None,
    ):
        if not with_bias and b_init is not None:
            raise ValueError("b_init must not be set when `with_bias` is False: there are no biases to initialise.")
        super().__init__(name=name)
        self.with_bias = with_bias
        self.w_init = w_init
        self.b_init = b_init
        self.activation = activation
        self.activate_final = activate_final
        self.output_sizes = tuple(output_sizes)
        self.layers = tuple(
            Linear(output_size=size, with_bias=with_bias, w_init=w_init, b_init=b_init, name=f"linear_{i}")
            for i, size in enumerate(self.output_sizes)
        )
        self.output_size = self.output_sizes[-1] if self.output_sizes else None

    def __call__(
        self,
        inputs: Num[jax.Array, "..."],
        dropout_rate: Number[float, "[0, 1]"] | None = None,
        rng: jax.Array | None = None,
    ) -> jax.Array:
        """Applies the network.

        Args:
          inputs: `[..., input_size]`.
          dropout_rate: the dropout rate before each activation; None for no dropout.
          rng: the key for dropout, required if and only if a rate is given.

        Returns:
          `[..., output_sizes[-1]]`.

        Raises:
          ValueError: if one of `dropout_rate` and `rng` is given without the other.
        """
        if dropout_rate is not None and rng is None:
            raise ValueError("With `dropout_rate`, an rng key must be passed: `rng=hkx.next_rng_key()`.")
        if dropout_rate is None and rng is not None:
            raise ValueError("`rng` is only to be passed when using dropout: pass `dropout_rate` with it.")
        keys = None if rng is None else PRNGSequence(rng)
        out = inputs
        for i, layer in enumerate(self.layers):
            out = layer(out)  # [..., output_sizes[i]]
            if i < len(self.layers) - 1 or self.activate_final:
                if keys is not None and dropout_rate is not None:
                    out = dropout(keys.next(), dropout_rate, out)
                out = self.activation(out)
        return out

    def reverse(self, activate_final: Flag | None = None, name: str | None = None) -> MLP:
        """A new network with the layer sizes of this one in reverse, from outputs to inputs.

        Args:
          activate_final: whether to apply the activation after its last layer; None uses this network's setting.
          name: its name; None uses this network's name with `_reversed` appended.

        Returns:
          An MLP with its own parameters.

        Raises:
          ValueError: if this network has not been called yet, so that its input size is unknown.
        """
        sizes = [layer.input_size for layer in reversed(self.layers)]
        if any(size is None for size in sizes):
            raise ValueError("Call the MLP before `reverse`: until then the size of its input is not known.")
        return MLP(
            output_sizes=[size for size in sizes if size is not None],
            w_init=self.w_init,
            b_init=self.b_init,
            with_bias=self.with_bias,
            activation=self.activation,
            activate_final=self.activate_final if activate_final is None else activate_final,
            name=f"{self.name}_reversed" if name is None else name,
        )
