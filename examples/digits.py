"""Supervised learning: a small convolutional network learns to read scikit-learn's handwritten digits.

The usual loop, and nothing else: a network, a loss, a gradient, a step. What is evaluated and saved is an exponential
average of the parameters, which is steadier than the parameters of any one step.

    python examples/digits.py --seed 3
    python examples/digits.py --epochs 0 --parameters runs/digits/parameters.npz   # only evaluate

The last line printed is, after some ten seconds on two cores,

    test accuracy: 0.992 with the averaged parameters, 0.992 with those of the last step
"""

import dataclasses
import pathlib
import sys
from typing import Annotated, Any, NamedTuple

sys.path.append(str(pathlib.Path(__file__).parent / "zoo"))  # for program.py and settings.py

import digits_data
import jax
import jax.numpy as jnp
import numpy as np
import optax
import program
from digits_data import Digits
from settings import Between, Count, Seed, Settings, Share
from tqdm import tqdm

import hkx


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of a run. Every field is a flag of the command line."""

    seed: Seed = 0  # seed of the network and of the order of the pictures
    epochs: Annotated[int, Between(0)] = 30  # times to go through the training pictures; 0 only evaluates
    batch_size: Annotated[int, Between(1, digits_data.TRAINING)] = 64  # pictures to learn from at once
    channels: Count = 32  # channels of the first convolution; the second has twice as many
    learning_rate: Share = 2e-3  # step size of Adam
    decay: Share = 0.98  # share of the averaged parameters that each step keeps
    parameters: str = ""  # file of saved parameters to start from, instead of new ones
    output: str = "runs/digits"  # folder for the learning curve, the metrics and the parameters
    progress: bool = True  # show a progress bar


class Learner(NamedTuple):
    """What a step of training changes."""

    params: hkx.Params
    averages: hkx.Params
    average_state: hkx.State
    opt_state: optax.OptState


class Training:
    """What is compiled: a step of training, and the share of pictures that are read correctly."""

    def __init__(self, config: Config):
        def network(images: jax.Array) -> jax.Array:
            """Pictures [B, 8, 8, 1] to logits [B, 10]."""
            layers = [
                hkx.Conv2D(config.channels, kernel_shape=3),
                jax.nn.relu,
                hkx.Conv2D(2 * config.channels, kernel_shape=3, stride=2),
                jax.nn.relu,
                hkx.Flatten(),
                hkx.Linear(digits_data.CLASSES),
            ]
            return hkx.Sequential(layers)(images)

        model = hkx.without_apply_rng(hkx.transform(network))
        average = hkx.without_apply_rng(
            hkx.transform_with_state(lambda params: hkx.EMAParamsTree(config.decay)(params))
        )
        optimizer = optax.adam(config.learning_rate)

        def loss(params: hkx.Params, batch: Digits) -> jax.Array:
            logits = model.apply(params, batch.images)
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels))

        def update(learner: Learner, batch: Digits) -> tuple[Learner, jax.Array]:
            value, gradients = jax.value_and_grad(loss)(learner.params, batch)
            changes, opt_state = optimizer.update(gradients, learner.opt_state)
            params = optax.apply_updates(learner.params, changes)
            averages, average_state = average.apply({}, learner.average_state, params)
            return Learner(params, averages, average_state, opt_state), value

        def accuracy(params: hkx.Params, digits: Digits) -> jax.Array:
            return jnp.mean(jnp.argmax(model.apply(params, digits.images), axis=-1) == digits.labels)

        def create(params: hkx.Params) -> Learner:
            _, average_state = average.init(None, params)  # nothing is averaged yet
            return Learner(params, params, average_state, optimizer.init(params))

        blank = np.zeros([1, digits_data.SIZE, digits_data.SIZE, 1], np.float32)
        self.initial_params = lambda: model.init(jax.random.key(config.seed), blank)
        self.create = create
        self.update = jax.jit(update)
        self.accuracy = jax.jit(accuracy)


def save_learning_curve(path: pathlib.Path, losses: list[float], accuracies: list[float]) -> None:
    from matplotlib.figure import Figure  # imported here because nothing before the end of training needs it

    epochs = range(1, len(losses) + 1)
    figure = Figure(figsize=(7.5, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(epochs, losses, color="tab:blue")
    left.set(title="training loss", xlabel="epoch")
    right.plot(epochs, accuracies, color="tab:orange")
    right.set(title="test accuracy, averaged parameters", xlabel="epoch", ylim=(0.9, 1.0))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    with program.whole_file(path) as unfinished:
        figure.savefig(unfinished, dpi=120)


def main(config: Config) -> dict[str, Any]:
    """Trains, evaluates and saves. Returns the losses of training and the accuracies on the test pictures."""
    output = program.output_folder(config.output) if config.epochs > 0 else None
    training, random = Training(config), np.random.default_rng(config.seed)
    params = training.initial_params()
    if config.parameters:
        params = program.load_parameters(config.parameters, like=params)
    learner = training.create(params)
    train, test = digits_data.load()
    losses: list[float] = []
    accuracies: list[float] = []

    bar = tqdm(total=config.epochs, unit=" epochs", disable=not config.progress or config.epochs == 0)
    with program.noticing_interrupts() as interrupted:
        while len(losses) < config.epochs and not interrupted.is_set():
            epoch_losses = []
            for batch in digits_data.batches(train, config.batch_size, random):
                learner, loss = training.update(learner, batch)
                epoch_losses.append(loss)
            losses.append(float(np.mean(epoch_losses)))
            accuracies.append(float(training.accuracy(learner.averages, test)))
            bar.set_postfix_str(f"loss {losses[-1]:.4f}, test accuracy {accuracies[-1]:.3f}", refresh=False)
            bar.update()
        bar.close()
        if interrupted.is_set():
            print(f"interrupted after {len(losses)} of {config.epochs} epochs")
        if output is not None and losses:
            columns = {"epoch": range(1, len(losses) + 1), "training_loss": losses, "test_accuracy": accuracies}
            program.save_parameters(output / "parameters.npz", learner.averages)
            program.save_table(output / "metrics.csv", columns)
            save_learning_curve(output / "learning_curve.png", losses, accuracies)
            print(f"saved parameters.npz, metrics.csv and learning_curve.png in {output}")
    final, last_step = (float(training.accuracy(params, test)) for params in (learner.averages, learner.params))
    print(f"test accuracy: {final:.3f} with the averaged parameters, {last_step:.3f} with those of the last step")
    return {
        "test_accuracy": final,
        "last_step_accuracy": last_step,
        "losses": losses,
        "accuracies": accuracies,
        "interrupted": interrupted.is_set(),
    }


if __name__ == "__main__":
    program.start(Config, main, __doc__)
