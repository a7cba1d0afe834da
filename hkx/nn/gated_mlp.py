"""Feed-forward layers of language models: gated, and of many experts."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from hkx import Linear, Module, get_parameter, transparent
from hkx.arguments import Flag, Function, Num, Number, PositiveSize, Size
from hkx.initializers import Initializer, TruncatedNormal


class GatedMLP(Module):
    """`down(activation(gate(x)) * up(x))`, with three linear maps.

    With `jax.nn.silu` this is SwiGLU, with `jax.nn.gelu` GEGLU.

    Reference: Shazeer (2020), "GLU variants improve transformer", arXiv:2002.05202.

    Args:
      hidden_size: the size of `gate` and `up`.
      output_size: the size of the output; that of the input by default.
      activation: applied to the gate.
      with_bias: whether the maps have biases.
      w_init: initializer of `gate` and `up`, as for `hkx.Linear`.
      down_w_init: initializer of `down`; `w_init` by default.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.GatedMLP(8)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([5, 3])))["gated_mlp/down"]
      {'w': (8, 3)}
    """

    def __init__(
        self,
        hidden_size: PositiveSize,
        output_size: Size | None = None,
        activation: Function = jax.nn.silu,
        with_bias: Flag = False,
        *,
        w_init: Initializer | None = None,
        down_w_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.output_size = output_size
        self.activation = activation
        self.with_bias = with_bias
        self.w_init, self.down_w_init = w_init, w_init if down_w_init is None else down_w_init

    def __call__(self, x: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the layer to `[..., D]`; returns `[..., output_size]`.

        Raises:
          ScalarInputError: if `x` is a scalar.
        """
        output_size = x.shape[-1] if self.output_size is None else self.output_size
        gate = Linear(self.hidden_size, self.with_bias, self.w_init, name="gate")(x)
        up = Linear(self.hidden_size, self.with_bias, self.w_init, name="up")(x)
        return Linear(output_size, self.with_bias, self.down_w_init, name="down")(self.activation(gate) * up)


class MixtureOfExperts(Module):
    """A sum over the `top_k` experts that a router chooses for each token, each a gated MLP.

    `y = sum_e g_e down_e(activation(x gate_e) * (x up_e))` over the chosen e, where g are the router's scores,
    `softmax(x router)` or `sigmoid(x router)`. Tokens are sorted by expert and multiplied by `jax.lax.ragged_dot`:
    no token is dropped. JAX does not map it by `jax.vmap` yet: pass all examples at once.

    Parameters, under the module's name: `router` with `w` (and `b`), `gate` and `up`, `[E, D, F]`, `down`, `[E, F, D]`
    (and `gate_bias`, `up_bias`, `[E, F]`, and `down_bias`, `[E, D]`); `correction`, `[E]`.

    The load-balancing loss is an intermediate, returned by the method `load_balancing_loss`:

        values = hkx.capture_intermediates(model, lambda module, method: method == "load_balancing_loss")

    References: Shazeer et al. (2017), "Outrageously large neural networks: the sparsely-gated mixture-of-experts
    layer", arXiv:1701.06538; Fedus et al. (2021), "Switch transformers", arXiv:2101.03961 (load balancing);
    DeepSeek-AI (2024), "DeepSeek-V3 technical report", arXiv:2412.19437 (sigmoid, correction, groups).

    Args:
      num_experts: E, the number of experts.
      top_k: the number of experts that are chosen for each token.
      hidden_size: F, the size of `gate` and `up` of each expert.
      activation: applied to the gate.
      combine: a function of `(gate, up)` in place of `activation(gate) * up`.
      router: `"softmax"` or `"sigmoid"`.
      normalize: whether the chosen scores are divided by their sum.
      scale: a factor of the chosen scores.
      correction: whether a parameter is added to the scores for the choice, and only for it; no gradient reaches it.
      num_groups: the number of groups of equal size into which the experts are divided. Only experts of the best groups
        are chosen: those with the largest sum of their two best scores.
      top_groups: the number of the best groups.
      router_bias: whether the router has a bias.
      with_bias: whether the experts have biases.
      w_init: initializer of `gate` and `up`; by default as for `hkx.Linear`.
      down_w_init: initializer of `down`; `w_init` by default.
      name: the module's name.

    Raises:
      ValueError: if `top_k` is larger than `num_experts`, `router` is something else, or the groups do not fit.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.MixtureOfExperts(4, top_k=2, hidden_size=8)(x))
      >>> x = jnp.ones([5, 3])
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (5, 3)
    """

    def __init__(
        self,
        num_experts: PositiveSize,
        top_k: PositiveSize,
        hidden_size: PositiveSize,
        *,
        activation: Function = jax.nn.silu,
        combine: Function | None = None,
        router: Literal["softmax", "sigmoid"] = "softmax",
        normalize: Flag = True,
        scale: Number[float, "any"] = 1.0,
        correction: Flag = False,
        num_groups: PositiveSize = 1,
        top_groups: PositiveSize = 1,
        router_bias: Flag = False,
        with_bias: Flag = False,
        w_init: Initializer | None = None,
        down_w_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.num_experts = num_experts
        self.top_k = top_k
        self.hidden_size = hidden_size
        self.num_groups = num_groups
        self.top_groups = top_groups
        if num_experts % num_groups or top_groups > num_groups:
            raise ValueError(
                f"`num_groups` {num_groups} must divide `num_experts` {num_experts}, and `top_groups` {top_groups} be "
                "at most `num_groups`."
            )
        if top_k > top_groups * num_experts // num_groups:
            raise ValueError(f"`top_k` {top_k} must be at most the number of experts to choose from.")
        if router not in ("softmax", "sigmoid"):
            raise ValueError(f"`router` must be 'softmax' or 'sigmoid', got {router!r}.")
        self.activation = activation
        self.combine, self.router, self.normalize, self.scale = combine, router, normalize, scale
        self.correction, self.router_bias, self.with_bias = correction, router_bias, with_bias
        self.w_init, self.down_w_init = w_init, w_init if down_w_init is None else down_w_init

    def __call__(self, x: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the layer to `[..., D]`; returns an array of this shape.

        Raises:
          ScalarInputError: if `x` is a scalar.
        """
        shape, x = x.shape, x.reshape(-1, x.shape[-1])  # [N, D]
        gates, experts = self.routes(x)  # [N, k]
        order = jnp.argsort(experts.ravel())  # sorts N k pairs of a token and an expert by the expert
        expert = experts.ravel()[order]
        sizes = jnp.bincount(expert, length=self.num_experts)
        rows = x[order // self.top_k]
        gate, up = (self.maps(rows, name, self.hidden_size, expert, sizes) for name in ("gate", "up"))
        hidden = self.activation(gate) * up if self.combine is None else self.combine(gate, up)
        y = self.maps(hidden, "down", shape[-1], expert, sizes)
        y = y[jnp.argsort(order)].reshape(-1, self.top_k, shape[-1])  # [N, k, D]
        return jnp.sum(y * gates[..., None].astype(y.dtype), axis=1).reshape(shape)

    @transparent
    def routes(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The weights of the chosen experts of tokens `[N, D]`, `float32[N, k]`, and their numbers, `int32[N, k]`."""
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        logits = Linear(self.num_experts, self.router_bias, name="router")(wide)
        scores = jax.nn.softmax(logits) if self.router == "softmax" else jax.nn.sigmoid(logits)
        choice = scores
        if self.correction:
            correction = get_parameter("correction", [self.num_experts], wide.dtype, init=jnp.zeros)
            choice = scores + correction[None]
        if self.num_groups > 1:
            choice = self.of_the_best_groups(choice)
        experts = jax.lax.top_k(choice, self.top_k)[1]
        gates = jnp.take_along_axis(scores, experts, axis=-1)
        self.load_balancing_loss(scores, experts)
        if self.normalize:
            gates = gates / (jnp.sum(gates, axis=-1, keepdims=True) + jnp.finfo(gates.dtype).tiny)
        return self.scale * gates, experts

    def of_the_best_groups(self, choice: jax.Array) -> jax.Array:
        """The scores `[N, E]`, without those of experts outside of the best groups."""
        groups = choice.reshape(len(choice), self.num_groups, -1)
        best = jnp.sum(jax.lax.top_k(groups, min(2, groups.shape[-1]))[0], axis=-1)
        chosen = jnp.any(jax.nn.one_hot(jax.lax.top_k(best, self.top_groups)[1], self.num_groups, dtype=bool), axis=1)
        return jnp.where(chosen[..., None], groups, -jnp.inf).reshape(choice.shape)

    def load_balancing_loss(self, scores: jax.Array, experts: jax.Array) -> jax.Array:
        """`E sum_e f_e p_e`, where f_e is the number of choices of expert e for a token, and p_e its mean score.

        It is `top_k` if the choice is balanced; its gradient moves scores to experts that are chosen less often.

        Args:
          scores: `float[N, E]`, the router's scores.
          experts: `int[N, k]`, the chosen experts.

        Returns:
          `float[]`.
        """
        chosen = jnp.bincount(experts.ravel(), length=self.num_experts) / experts.shape[0]
        return self.num_experts * jnp.sum(chosen * jnp.mean(scores, axis=0))

    @transparent
    def maps(self, rows: jax.Array, name: str, size: int, expert: jax.Array, sizes: jax.Array) -> jax.Array:
        """The linear map of each row's expert: `[R, size]` of `rows[R, D]`, which are sorted by expert."""
        init = self.down_w_init if name == "down" else self.w_init
        init = TruncatedNormal(1 / math.sqrt(rows.shape[-1])) if init is None else init
        w = get_parameter(name, [self.num_experts, rows.shape[-1], size], rows.dtype, init=init)
        y = jax.lax.ragged_dot(rows, w, sizes)
        if not self.with_bias:
            return y
        return y + get_parameter(f"{name}_bias", [self.num_experts, size], rows.dtype, init=jnp.zeros)[expert]
