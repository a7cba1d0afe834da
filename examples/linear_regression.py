"""A line through one point: from a pure function over explicit parameters to `hkx.transform`.

JAX differentiates pure functions, so the parameters have to be arguments. The first half of this program passes them by
hand. In the second half a module makes and finds its own parameters, and `hkx.transform` turns the function that uses
it into the same kind of pure function: `apply`, whose first argument is the parameters. Both train on the single pair
x = 42, y = 500, from w = 13 and b = 0, and have the same loss at every step.

    pip install hkx tyro && python linear_regression.py

prints

    step   by hand  hkx.transform
       0     46.00          46.00
       1     42.47          42.47
       2     38.94          38.94
       3     35.41          35.41
       4     31.88          31.88
       5     28.35          28.35
       6     24.82          24.82
       7     21.29          21.29
       8     17.76          17.76
       9     14.23          14.23
      10     10.70          10.70
      11      7.17           7.17
      12      3.64           3.64
      13      0.11           0.11
    by hand:        {'b': -0.026, 'w': 11.908}
    hkx.transform:  {'linear': {'b': -0.026, 'w': 11.908}}

The loss is the root of the summed squared error, so its slope is the same wherever the error is positive: each step
takes off 0.002 (42² + 1²) = 3.53. Training further steps across the minimum and back.
"""

import dataclasses
import sys
from collections.abc import Callable
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
    steps: int = 13  # steps of gradient descent
    learning_rate: float = 0.002  # size of a step


X, Y = jnp.array([[42.0]]), jnp.array([[500.0]])  # [N, 1], one pair


def root_of_summed_squares(error: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(error**2))


# By hand: the parameters are a dict that we make, and that the function takes.


def line(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x * params["w"] + params["b"]


def loss_by_hand(params: dict[str, jax.Array]) -> jax.Array:
    return root_of_summed_squares(line(params, X) - Y)


# With a module: `hkx.Linear` asks for "w" and "b" where it uses them, and `transform` makes them an argument.


def line_of_modules(x: jax.Array) -> jax.Array:
    return hkx.Linear(1, w_init=hkx.initializers.Constant(13.0), b_init=jnp.zeros)(x)


model = hkx.without_apply_rng(hkx.transform(line_of_modules))


def loss_of_modules(params: hkx.Params) -> jax.Array:
    return root_of_summed_squares(model.apply(params, X) - Y)


def train(loss: Callable[[Any], jax.Array], params: Any, config: Config) -> tuple[Any, list[float]]:
    """Gradient descent on any parameters. Returns them, and the loss at every step."""
    loss_and_gradient, losses = jax.jit(jax.value_and_grad(loss)), []
    for _ in range(config.steps):
        value, gradient = loss_and_gradient(params)
        losses.append(float(value))
        params = jax.tree.map(lambda p, g: p - config.learning_rate * g, params, gradient)
    return params, [*losses, float(loss(params))]


def main(config: Config) -> dict[str, Any]:
    """Trains both, and prints. Returns the losses at every step, and the parameters at the end."""
    by_hand, losses_by_hand = train(loss_by_hand, {"w": jnp.array(13.0), "b": jnp.array(0.0)}, config)
    # These initializers are constants, and no key is needed. With random ones it would be `jax.random.key(0)`.
    of_modules, losses_of_modules = train(loss_of_modules, model.init(None, X), config)

    print("step   by hand  hkx.transform")
    for step, (one, other) in enumerate(zip(losses_by_hand, losses_of_modules, strict=True)):
        print(f"{step:4} {one:9.2f} {other:14.2f}")
    for name, params in {"by hand:": by_hand, "hkx.transform:": of_modules}.items():
        print(f"{name:15} {jax.tree.map(lambda p: round(np.asarray(p).item(), 3), params)}")
    return {
        "losses_by_hand": losses_by_hand,
        "losses": losses_of_modules,
        "params_by_hand": by_hand,
        "params": of_modules,
    }


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
