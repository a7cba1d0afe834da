"""Parameters and state of a ResNet-50: arrays that gradients change, and arrays that they do not.

Batch normalisation needs the mean and variance of each channel. In training it takes them from the batch, and keeps a
moving average of what it saw; in evaluation it uses that average. No gradient changes the averages, so they are not
parameters but state. `hkx.transform_with_state` gives a pure function of both, `apply(params, state, key, ...)`, which
returns the state beside its output. The caller decides which state to use next.

The network is `hkx.nets.ResNet50`, whole. So that it runs in seconds on any machine, the images are small, 32 x 32
pixels of noise with mean 0.5 and deviation 0.29, in batches of 8, where ImageNet has 224 x 224.

    pip install hkx tyro && python resnet_state.py

prints

    ResNet50: parameters 161 arrays, 23,528,522 numbers; state 318 arrays, 106,346 numbers
    watched: res_net50/~/initial_batchnorm/~/mean_ema/average, the mean of each channel after the first convolution
                         moved    its size     counter
    init                            0.0000           0
    training        318 of 318      0.3432           1
    training        318 of 318      0.3448           2
    training        318 of 318      0.3457           3
    evaluation        0 of 318      0.3457           3
    evaluation        0 of 318      0.3457           3
    evaluation        0 of 318      0.3457           3
    the logits of an image depend on the rest of its batch
      in training: yes
      in evaluation: no
"""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, Literal

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
    network: Literal["ResNet18", "ResNet34", "ResNet50", "ResNet101"] = "ResNet50"  # network of hkx.nets
    size: int = 32  # pixels along a side of an image
    batch: int = 8  # images in a batch
    steps: int = 3  # calls in training, and then in evaluation


def count(tree: Any) -> str:
    leaves = jax.tree.leaves(tree)
    return f"{len(leaves)} arrays, {sum(leaf.size for leaf in leaves):,} numbers"


def moved(before: hkx.State, after: hkx.State) -> int:
    """How many arrays of the state are not as they were."""
    changes = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), before, after)
    return sum(jax.tree.leaves(changes))


def show(what: str, moved: str, watched: Mapping[str, jax.Array]) -> None:
    size = float(jnp.abs(watched["average"]).mean())
    print(f"{what:12}{moved:>14}{size:12.4f}{int(watched['counter']):12}")


def main(config: Config) -> dict[str, Any]:
    """Calls the network in training and in evaluation, and prints how the state changes. Returns the counts."""

    def classify(images: Any, is_training: bool) -> jax.Array:
        net = getattr(hkx.nets, config.network)
        # By default the weights of the last layer start at 0, and with them all logits, which would hide what follows.
        return net(num_classes=10, logits_config={"w_init": hkx.initializers.RandomNormal(0.01)})(images, is_training)

    model = hkx.transform_with_state(classify)
    apply = jax.jit(model.apply, static_argnames="is_training")  # one program for training, one for evaluation
    key = jax.random.key(config.seed)
    shape = (config.batch, config.size, config.size, 3)
    batches = [jax.random.uniform(jax.random.fold_in(key, i), shape) for i in range(config.steps)]

    # `init` needs to know the shape of the images and nothing else; so the averages start with nothing, at 0.
    params, state = model.init(key, jax.ShapeDtypeStruct(shape, jnp.float32), is_training=True)
    arrays = len(jax.tree.leaves(state))
    print(f"{config.network}: parameters {count(params)}; state {count(state)}")
    first = next(module for module in state if "/~/mean_ema" in module)
    print(f"watched: {first}/average, the mean of each channel after the first convolution")
    print(f"{'':12}{'moved':>14}{'its size':>12}{'counter':>12}")
    show("init", "", state[first])

    movements: dict[str, list[int]] = {"training": [], "evaluation": []}
    for mode in movements:
        for images in batches:
            _, new_state = apply(params, state, None, images, is_training=mode == "training")
            movements[mode].append(moved(state, new_state))
            state = new_state
            show(mode, f"{movements[mode][-1]} of {arrays}", state[first])

    # In training an image is seen relative to the others in its batch, in evaluation by itself.
    others = batches[0].at[1:].set(1 - batches[0][1:])
    depends = {}
    for mode in movements:
        one, other = (apply(params, state, None, x, is_training=mode == "training")[0][0] for x in (batches[0], others))
        depends[mode] = not bool(jnp.allclose(one, other, rtol=1e-3, atol=1e-3))
    print("the logits of an image depend on the rest of its batch")
    for mode, answer in depends.items():
        print(f"  in {mode}: {'yes' if answer else 'no'}")
    return {"moved": movements, "arrays": arrays, "depends": depends, "params": params, "state": state}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
