"""Convolution, layer norm and leaky ReLU, written in two ways, and the parameters' names in each.

A module may create its submodules where it uses them, in `__call__`, or beforehand, in `__init__`. Both compute the
same; the path of a parameter says where its module was created: a "~" stands for `__init__`. A module that is used
twice, or inspected from outside, is created in `__init__`.

    pip install hkx tyro && python conv_layernorm.py

prints

    images (1, 32, 32, 3)

    made in __call__: (1, 32, 32, 64)
      block/conv2_d/w              (3, 3, 3, 64)
      block/conv2_d/b              (64,)
      block/layer_norm/scale       (64,)
      block/layer_norm/offset      (64,)

    made in __init__: (1, 32, 32, 64)
      block/~/conv2_d/w            (3, 3, 3, 64)
      block/~/conv2_d/b            (64,)
      block/~/layer_norm/scale     (64,)
      block/~/layer_norm/offset    (64,)

    the same values in both: True, from the same key: True

    a list of 3 children: (1, 32, 32, 64)
      chain/~/block_in_init: conv2_d, layer_norm
      chain/~/block_in_init_1: conv2_d, layer_norm
      chain/~/block_in_init_2: conv2_d, layer_norm

    output and parameters from one call: (1, 32, 32, 64), 4 arrays, as from init and apply: True
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import tyro

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the images and of the initial parameters
    children: int = 3  # blocks in the list
    channels: int = 64  # channels that a block makes


class BlockInCall(hkx.Module):
    """Images, [N, H, W, C], to [N, H, W, channels]; the submodules are created where they are used."""

    def __init__(self, channels: int, name: str | None = None):
        super().__init__(name)
        self.channels = channels

    def __call__(self, x: jax.Array) -> jax.Array:
        x = hkx.Conv2D(self.channels, kernel_shape=3)(x)
        x = hkx.LayerNorm(axis=-1, create_scale=True, create_offset=True)(x)
        return jax.nn.leaky_relu(x)


class BlockInInit(hkx.Module):
    """The same; the submodules are created beforehand."""

    def __init__(self, channels: int, name: str | None = None):
        super().__init__(name)
        self.conv = hkx.Conv2D(channels, kernel_shape=3)
        self.norm = hkx.LayerNorm(axis=-1, create_scale=True, create_offset=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.leaky_relu(self.norm(self.conv(x)))


class Chain(hkx.Module):
    """As many blocks as one likes, in a list. Names that are taken get a number."""

    def __init__(self, length: int, channels: int, name: str | None = None):
        super().__init__(name)
        self.blocks = [BlockInInit(channels) for _ in range(length)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return x


def init_with_output(f: Callable[..., Any], key: jax.Array, *args: Any) -> tuple[Any, hkx.Params]:
    """Runs `f` once, which makes the parameters on the way, and returns its output too."""
    with hkx.new_context(rng=key) as context:
        out = f(*args)
    return out, context.collect_params()


def equal(one: Any, other: Any) -> bool:
    return all(jnp.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def main(config: Config) -> dict[str, Any]:
    """Runs all of it, and prints. Returns the parameters of each network, and which of the comparisons hold."""
    key = jax.random.key(config.seed)
    images = jax.random.uniform(jax.random.fold_in(key, 1), [1, 32, 32, 3])
    print(f"images {images.shape}\n")

    # A function that makes a module and calls it is all that `transform` asks for.
    def in_call(x: jax.Array) -> jax.Array:
        return BlockInCall(config.channels, name="block")(x)

    def in_init(x: jax.Array) -> jax.Array:
        return BlockInInit(config.channels, name="block")(x)

    params, outputs = {}, {}
    for way, f in {"made in __call__": in_call, "made in __init__": in_init}.items():
        model = hkx.transform(f)
        params[way] = model.init(key, images)
        outputs[way] = jax.jit(model.apply)(params[way], None, images)
        print(f"{way}: {outputs[way].shape}")
        for module, arrays in params[way].items():
            for name, array in arrays.items():
                print(f"  {f'{module}/{name}':28} {array.shape}")
        print()
    same_parameters, same_outputs = equal(*params.values()), equal(*outputs.values())
    print(f"the same values in both: {same_outputs}, from the same key: {same_parameters}\n")

    chain = hkx.transform(lambda x: Chain(config.children, config.channels)(x))
    params["list"] = chain.init(key, images)
    y = jax.jit(chain.apply)(params["list"], None, images)
    print(f"a list of {config.children} children: {y.shape}")
    for block, modules in itertools.groupby(params["list"], lambda module: module.rsplit("/~/", 1)[0]):
        print(f"  {block}: {', '.join(module.rsplit('/', 1)[1] for module in modules)}")

    y, params["one call"] = init_with_output(in_call, key, images)
    init_and_apply = (params["made in __call__"], hkx.transform(in_call).apply(params["one call"], None, images))
    as_always = equal((params["one call"], y), init_and_apply)
    count = len(jax.tree.leaves(params["one call"]))
    print(f"\noutput and parameters from one call: {y.shape}, {count} arrays, as from init and apply: {as_always}")
    return {"params": params, "equal": {"parameters": same_parameters, "outputs": same_outputs, "one call": as_always}}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
