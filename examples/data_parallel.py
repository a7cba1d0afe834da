"""Data-parallel training: ResNet-18 on handwritten digits, on one device, on many, and on many machines.

Every device has a copy of the network and a part of each batch; gradients and the statistics of batch normalisation
are averaged over all of them. So the numbers are those of one device with the whole batch, to rounding. `--strategy
pmap` runs one program on each device by `jax.pmap`; `--strategy mesh` compiles one program for all of them, and the
compiler finds what has to be exchanged.

    python examples/data_parallel.py                                # all devices of this machine
    python examples/data_parallel.py --devices 8 --strategy pmap    # eight, made out of the CPU where there are fewer
    python examples/data_parallel.py --network mlp                  # a smaller network: a few seconds

Several processes train together, each with its part of the data; see docs/parallel.md:

    python examples/data_parallel.py --coordinator localhost:1234 --num-processes 2 --process-id 0 --devices 4 &
    python examples/data_parallel.py --coordinator localhost:1234 --num-processes 2 --process-id 1 --devices 4

Stopped by Ctrl-C, or by anything worse, the same command goes on from the last checkpoint. The last line printed is,
after a minute or two on two cores,

    test accuracy: 0.9944 on 360 images, 200 training images/s
"""

import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

sys.path.append(str(pathlib.Path(__file__).parent / "zoo"))  # for program.py and settings.py

import digits_data
import jax
import jax.numpy as jnp
import numpy as np
import optax
from digits_data import CLASSES, TEST, TRAINING, Digits
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from long_run import Checkpoints, LongRun, any_process, join
from program import BadFlag, noticing_interrupts, output_folder, save_table, start, whole_file
from settings import Between, Count, Seed
from tqdm import tqdm

import hkx


@dataclasses.dataclass(frozen=True)
class Config(LongRun):
    """The settings of a run. Every field is a flag of the command line."""

    seed: Seed = 0  # seed of the network and of the order of the images
    network: Literal["resnet18", "mlp"] = "resnet18"  # what to train
    strategy: Literal["mesh", "pmap"] = "mesh"  # how the devices work together
    epochs: Count = 8  # passes over the training images
    batch_size: Annotated[int, Between(1, TRAINING)] = 64  # images in a step, of all devices of all processes together
    image_size: Annotated[int, Between(8, 224)] = 16  # pixels that the images of 8 x 8 are enlarged to, on each side
    learning_rate: Annotated[float, Between(0, 10)] = 0.05
    """step size at its highest; it rises at first, and falls to 0 in a cosine"""
    output: str = ""  # folder for checkpoints, curve and metrics; by default runs/data_parallel/NETWORK-STRATEGY


class Learner(NamedTuple):
    """All that training changes: what a checkpoint holds."""

    params: hkx.Params
    state: hkx.State  # the moving averages of batch normalisation
    opt_state: optax.OptState
    step: jax.Array  # int32[], how many were taken; the next one's batch follows from it
    losses: jax.Array  # float32[steps], of each training step so far
    accuracies: jax.Array  # float32[epochs], on the test images, after each epoch so far


class Training(NamedTuple):
    """What a device does. With an axis it has a part of the batch, and its like along that axis have the others."""

    create: Callable[[], Learner]
    step: Callable[[Learner, Digits], tuple[Learner, jax.Array]]
    evaluate: Callable[[Learner, Digits], Learner]


def steps_per_epoch(config: Config) -> int:
    return TRAINING // config.batch_size


def training(config: Config, axis: str | None) -> Training:
    """The functions to compile, before anything is said about devices other than the axis."""
    total = config.epochs * steps_per_epoch(config)
    schedule = optax.warmup_cosine_decay_schedule(0.0, config.learning_rate, total // 5, total)
    optimizer = optax.sgd(schedule, momentum=0.9, nesterov=True)

    def network(images: jax.Array, is_training: bool) -> jax.Array:
        if config.network == "mlp":
            return hkx.nets.MLP([256, 256, CLASSES])(hkx.Flatten()(images))
        return hkx.nets.ResNet18(CLASSES, bn_config={"cross_replica_axis": axis})(images, is_training)

    model = hkx.without_apply_rng(hkx.transform_with_state(network))
    mean = functools.partial(jax.lax.pmean, axis_name=axis) if axis else lambda x: x
    sum_of = functools.partial(jax.lax.psum, axis_name=axis) if axis else lambda x: x

    def create() -> Learner:
        images = jax.ShapeDtypeStruct((1, config.image_size, config.image_size, 1), np.float32)
        params, state = model.init(jax.random.key(config.seed), images, is_training=True)
        losses, accuracies = jnp.full(total, jnp.nan), jnp.full(config.epochs, jnp.nan)
        return Learner(params, state, optimizer.init(params), jnp.int32(0), losses, accuracies)

    def loss(params: hkx.Params, state: hkx.State, batch: Digits) -> tuple[jax.Array, hkx.State]:
        logits, state = model.apply(params, state, batch.images, is_training=True)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels)), state

    def step(learner: Learner, batch: Digits) -> tuple[Learner, jax.Array]:
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(learner.params, learner.state, batch)
        value, grads = mean((value, grads))
        updates, opt_state = optimizer.update(grads, learner.opt_state, learner.params)
        params, losses = optax.apply_updates(learner.params, updates), learner.losses.at[learner.step].set(value)
        return Learner(params, state, opt_state, learner.step + 1, losses, learner.accuracies), value

    def evaluate(learner: Learner, images: Digits) -> Learner:
        logits, _ = model.apply(learner.params, learner.state, images.images, is_training=False)
        right = sum_of(jnp.sum(jnp.argmax(logits, axis=-1) == images.labels))
        epoch = learner.step // steps_per_epoch(config) - 1
        return learner._replace(accuracies=learner.accuracies.at[epoch].set(right / TEST))

    return Training(create, step, evaluate)


class Strategy(NamedTuple):
    """How the devices work together: all that differs between `jax.pmap` and a mesh.

    Between the two forms that a learner has stand `spread` and `collect`. For checkpoints and for the eye, every array
    has its own shape, and is whole on every device of every process. While it trains under `jax.pmap`, every array has
    a leading axis, one row for each device of this process.
    """

    axis: str | None
    compile: Callable[..., Any]
    spread: Callable[[Learner], Learner]
    collect: Callable[[Learner], Learner]
    divide: Callable[[Digits], Digits]  # this process's part of a batch, among its devices


def by_mesh(devices: Sequence[jax.Device]) -> Strategy:
    mesh = Mesh(np.array(devices), ("data",))
    divide = functools.partial(hkx.sharding.global_batch, mesh=mesh, axes="data")
    return Strategy(None, functools.partial(jax.jit, donate_argnums=0), lambda x: x, lambda x: x, divide)


def by_pmap(devices: Sequence[jax.Device]) -> Strategy:
    here = [device for device in devices if device.process_index == jax.process_index()]
    whole = everywhere(devices)

    def spread(learner: Learner) -> Learner:
        return hkx.sharding.replicate(jax.tree.map(lambda x: x.addressable_data(0), learner), here)

    def without_axis(x: jax.Array) -> jax.Array:
        copies = [shard.data[0] for shard in x.addressable_shards]  # they stay where they are
        return jax.make_array_from_single_device_arrays(x.shape[1:], whole, copies)

    compile = functools.partial(jax.pmap, axis_name="replica", devices=devices, donate_argnums=0)
    collect = functools.partial(jax.tree.map, without_axis)
    return Strategy("replica", compile, spread, collect, functools.partial(hkx.sharding.shard_batch, devices=here))


STRATEGIES = {"mesh": by_mesh, "pmap": by_pmap}


def everywhere(devices: Sequence[jax.Device]) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec())


def enlarged(images: Digits, size: int) -> Digits:
    """The images with more pixels, by linear interpolation."""
    return images._replace(
        images=np.asarray(jax.image.resize(images.images, (len(images.images), size, size, 1), "linear"))
    )


def part_of_this_process(images: Digits) -> Digits:
    """The processes share the rows of a batch in order."""
    return Digits(*(np.array_split(x, jax.process_count())[jax.process_index()] for x in images))


def batch_of(config: Config, images: Digits, step: int) -> Digits:
    """The images of a step, which the seed and the step decide: a run that goes on needs no more to find its place."""
    epoch, place = divmod(step, steps_per_epoch(config))
    order = np.random.default_rng([config.seed, epoch]).permutation(TRAINING)
    rows = order[place * config.batch_size : (place + 1) * config.batch_size]
    return Digits(images.images[rows], images.labels[rows])


def padded(images: Digits, devices: int) -> Digits:
    """With images that no answer is right for, so that the devices divide them."""
    missing = -len(images.labels) % devices
    pad = [(0, missing), (0, 0), (0, 0), (0, 0)]
    return Digits(np.pad(images.images, pad), np.pad(images.labels, pad[:1], constant_values=-1))


def save_learning_curve(path: pathlib.Path, losses: np.ndarray, accuracies: np.ndarray, per_epoch: int) -> None:
    from matplotlib.figure import Figure  # imported here because nothing before the end of training needs it

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(1, len(losses) + 1), losses, color="tab:blue", label="training loss")
    axes.set(title="Digits", xlabel="steps", ylabel="loss", yscale="log")
    right = axes.twinx()
    right.plot(
        per_epoch * np.arange(1, len(accuracies) + 1), accuracies, "o-", color="tab:orange", label="test accuracy"
    )
    right.set(ylabel="accuracy", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, dpi=120)


class Clock:
    """Training images per second, without what comes before the second step, which is compilation for the most part."""

    def __init__(self) -> None:
        self.images, self.begun = 0, None

    def tick(self, images: int) -> None:
        if self.begun is None:
            self.begun = time.perf_counter()
        else:
            self.images += images

    @property
    def speed(self) -> float:
        return self.images / (time.perf_counter() - self.begun) if self.images else float("nan")


class Run:
    """A learner on its way, with what is compiled for it."""

    def __init__(self, config: Config, devices: Sequence[jax.Device]):
        self.config, self.strategy = config, STRATEGIES[config.strategy](devices)
        functions = training(config, self.strategy.axis)
        self.create = hkx.sharding.sharded_init(functions.create, everywhere(devices))
        self.step, self.evaluate = self.strategy.compile(functions.step), self.strategy.compile(functions.evaluate)
        self.images, test = (enlarged(part, config.image_size) for part in digits_data.load())
        self.test = self.divided(padded(test, len(devices)))
        self.clock = Clock()

    def divided(self, batch: Digits) -> Digits:
        return self.strategy.divide(part_of_this_process(batch))

    def go(
        self, learner: Learner, steps: Iterable[int], stop: Callable[[int], bool], after: Callable[[int, Learner], None]
    ) -> Learner:
        """Takes training steps, and evaluates at the end of every epoch; `after` is told of each."""
        learner, last = self.strategy.spread(learner), None
        for step in steps:
            if stop(step):
                break
            learner, loss = self.step(learner, self.divided(batch_of(self.config, self.images, step)))
            if last is not None:
                last.block_until_ready()  # while the devices are at one step, the host prepares the next, and no more
            self.clock.tick(self.config.batch_size)
            if (step + 1) % steps_per_epoch(self.config) == 0:
                learner = self.evaluate(learner, self.test)
            after(step + 1, learner)
            last = loss
        return self.strategy.collect(learner)


def train(config: Config, devices: Sequence[jax.Device], output: pathlib.Path) -> tuple[Learner, Clock]:
    """Trains from the last checkpoint on, to the end or to Ctrl-C."""
    run, total = Run(config, devices), config.epochs * steps_per_epoch(config)
    with Checkpoints(config, output / "checkpoints") as checkpoints, noticing_interrupts() as interrupted:
        first, learner = checkpoints.restore(run.create())
        saved = [first]
        if first == total:
            report(f"this run is complete: to train again, give another --output than {output}")
        elif first:
            report(f"going on from the checkpoint at step {first} of {total} in {output}")
        bar = tqdm(total=total, initial=first, unit=" steps", disable=not config.progress or jax.process_index() > 0)

        def stop(step: int) -> bool:  # several processes have to ask each other, which takes time
            return (step % 10 == 0 or jax.process_count() == 1) and any_process(interrupted.is_set())

        def after(step: int, learner: Learner) -> None:
            bar.set_postfix_str(f"{run.clock.speed:.0f} images/s", refresh=False)
            bar.update()
            if config.checkpoint_every and step % config.checkpoint_every == 0:
                saved.append(step)
                checkpoints.save(step, run.strategy.collect(learner))

        learner = run.go(learner, range(first, total), stop, after)
        bar.close()
        if int(learner.step) not in saved:
            checkpoints.save(int(learner.step), learner)
    return learner, run.clock


def report(line: str) -> None:
    if jax.process_index() == 0:
        print(line)


def main(config: Config) -> dict[str, Any]:
    """Trains, evaluates and saves. Returns the losses of all steps, the accuracies of all epochs, and the last."""
    if not config.output:
        config = dataclasses.replace(config, output=f"runs/data_parallel/{config.network}-{config.strategy}")
    devices = join(config)
    if config.batch_size % len(devices):
        raise BadFlag(
            f"argument --batch-size: {config.batch_size} images cannot be divided equally among {len(devices)} "
            f"devices; {config.batch_size - config.batch_size % len(devices) or len(devices)} can"
        )
    output = output_folder(config.output)
    learner, clock = train(config, devices, output)
    steps = int(learner.step)
    epochs = steps // steps_per_epoch(config)
    losses, accuracies = np.asarray(learner.losses)[:steps], np.asarray(learner.accuracies)[:epochs]
    if jax.process_index() == 0 and steps:
        ends = {steps_per_epoch(config) * (i + 1): value for i, value in enumerate(accuracies.tolist())}
        columns = {"loss": losses.tolist(), "test_accuracy": [ends.get(i + 1) for i in range(steps)]}
        save_table(output / "metrics.csv", {"step": range(1, steps + 1), **columns})
        save_learning_curve(output / "learning_curve.png", losses, accuracies, steps_per_epoch(config))
    interrupted = steps < config.epochs * steps_per_epoch(config)
    if interrupted:
        report(f"interrupted after {steps} steps; the same command goes on from there")
    final = float(accuracies[-1]) if epochs else float("nan")
    speed = f", {clock.speed:.0f} training images/s" if clock.images else ""
    report(f"test accuracy: {final:.4f} on {TEST} images{speed}")
    return {
        "test_accuracy": final,
        "losses": losses.tolist(),
        "accuracies": accuracies.tolist(),
        "images_per_second": clock.speed,
        "interrupted": interrupted,
    }


if __name__ == "__main__":
    start(Config, main, __doc__)
