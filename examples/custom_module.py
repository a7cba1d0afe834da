"""The linear layer that everyone writes first, and what JAX's transforms make of it.

A module asks for a parameter where it needs it: `hkx.get_parameter` makes it in `init`, from the shape that the input
has by then, and finds it in `apply`. `hkx.transform` turns a function that uses the module into two pure functions, and
`jax.grad`, `jax.vmap` and `jax.jit` go around `apply` as around any other function.

    pip install hkx tyro && python custom_module.py

prints

    MyLinear(output_size=3)
    parameters  my_linear: w (4, 3), b (3,)
    transform   y = x w + b: True
    grad        dw = x.T @ 1 and db = 1.sum(0): True
    vmap        of one row over the batch, equal to the batch: True
    jit         the same: True, and traced once for 3 calls: True
    together    jit(vmap(grad)), one gradient per example: w (8, 4, 3), b (8, 3)
    weights     mean -0.0002, deviation 0.0439, largest 0.1000, of 100,000 with a limit of 2 / sqrt(400) = 0.1
"""

import dataclasses
import sys
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import tyro

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the inputs and of the initial parameters
    batch: int = 8  # rows of input
    inputs: int = 4  # features of a row
    outputs: int = 3  # features that the layer makes


class MyLinear(hkx.Module):
    """y = x w + b, for x of shape [..., inputs] and y of shape [..., outputs]."""

    def __init__(self, output_size: int, name: str | None = None):
        super().__init__(name)
        self.output_size = output_size

    def __call__(self, x: jax.Array) -> jax.Array:
        inputs = x.shape[-1]
        w_init = hkx.initializers.TruncatedNormal(stddev=1 / np.sqrt(inputs))
        w = hkx.get_parameter("w", [inputs, self.output_size], x.dtype, init=w_init)
        b = hkx.get_parameter("b", [self.output_size], x.dtype, init=jnp.zeros)
        return x @ w + b


def forward(x: jax.Array, output_size: int) -> jax.Array:
    return MyLinear(output_size)(x)


def close(one: Any, other: Any) -> bool:
    def same(a: jax.Array, b: jax.Array) -> bool:  # sums of float32 in another order
        return a.shape == b.shape and bool(abs(a - b).max() <= 1e-5 * (1 + abs(b).max()))

    return jax.tree.all(jax.tree.map(same, one, other))


def main(config: Config) -> dict[str, Any]:
    """Tries each transform, and prints whether the result is right. Returns the parameters and the answers."""
    key = jax.random.key(config.seed)
    x = jax.random.normal(jax.random.fold_in(key, 1), [config.batch, config.inputs])
    right: dict[str, bool] = {}

    # transform: modules are made inside the function, and called there. Printing one shows its settings.
    def layer(x: jax.Array) -> jax.Array:
        return forward(x, config.outputs)

    model = hkx.without_apply_rng(hkx.transform(layer))
    params = model.init(key, x)
    print(hkx.transform(lambda: repr(MyLinear(config.outputs))).apply({}, None))
    w, b = params["my_linear"]["w"], params["my_linear"]["b"]
    print(f"parameters  my_linear: w {w.shape}, b {b.shape}")
    right["transform"] = close(model.apply(params, x), x @ w + b)
    print(f"transform   y = x w + b: {right['transform']}")

    # grad: differentiates the sum of all outputs. The gradient has the structure of the parameters.
    def total(params: hkx.Params, x: jax.Array) -> jax.Array:
        return model.apply(params, x).sum()

    ones = jnp.ones([config.batch, config.outputs])
    right["grad"] = close(jax.grad(total)(params, x), {"my_linear": {"w": x.T @ ones, "b": ones.sum(axis=0)}})
    print(f"grad        dw = x.T @ 1 and db = 1.sum(0): {right['grad']}")

    # vmap: code for one row works for a batch. None says that the parameters are the same for all rows.
    right["vmap"] = close(jax.vmap(model.apply, in_axes=(None, 0))(params, x), model.apply(params, x))
    print(f"vmap        of one row over the batch, equal to the batch: {right['vmap']}")

    # jit: the Python of the layer runs once for each shape, and the compiled program after that.
    traces: list[Any] = []

    def counted(params: hkx.Params, x: jax.Array) -> jax.Array:
        traces.append(x.shape)
        return model.apply(params, x)

    compiled = jax.jit(counted)
    results = [compiled(params, x) for _ in range(3)]
    right["jit"], once = close(results[2], model.apply(params, x)), len(traces) == 1
    print(f"jit         the same: {right['jit']}, and traced once for {len(results)} calls: {once}")

    # All together: they nest in any order.
    gradients = jax.jit(jax.vmap(jax.grad(total), in_axes=(None, 0)))(params, x)["my_linear"]
    right["together"] = close(gradients["w"], jnp.repeat(x[:, :, None], config.outputs, axis=2))
    print(f"together    jit(vmap(grad)), one gradient per example: w {gradients['w'].shape}, b {gradients['b'].shape}")

    # Truncated normal weights: none is further than two deviations from 0, and those that are left deviate less.
    many = hkx.transform(lambda x: forward(x, 250)).init(key, jnp.ones([1, 400]))["my_linear"]["w"]
    print(
        f"weights     mean {many.mean():.4f}, deviation {many.std():.4f}, largest {abs(many).max():.4f}, "
        f"of {many.size:,} with a limit of 2 / sqrt(400) = 0.1"
    )
    return {"params": params, "right": right, "traces": len(traces), "weights": many}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
