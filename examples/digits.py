"""Supervised learning: a small convolutional network learns to read scikit-learn's handwritten digits.

The usual loop, and nothing else: a network, a loss, a gradient, a step. An exponential average of the parameters is
evaluated and saved: it is steadier than the parameters of any one step.

    pip install hkx optax tyro matplotlib scikit-learn && python digits.py --seed 3
    python digits.py --epochs 0 --parameters runs/digits/parameters.npz   # only evaluate

The last line printed is, after some ten seconds on two cores,

    test accuracy: 0.992 with the averaged parameters, 0.992 with those of the last step
"""

import csv
import dataclasses
import pathlib
import sys
from collections import namedtuple

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import sklearn.datasets
    import tyro
    from matplotlib.figure import Figure

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")

TRAINING, CLASSES = 1437, 10


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the network and of the order of the images
    epochs: int = 30  # passes over the training images; 0 only evaluates
    batch_size: int = 64  # images per update, at most 1437
    channels: int = 32  # channels of the first convolution; the second has twice as many
    learning_rate: float = 2e-3  # step size of Adam
    decay: float = 0.98  # share of the averaged parameters that each step keeps
    parameters: str = ""  # file of saved parameters to start from
    output: str = "runs/digits"  # folder for metrics.csv, curve.png and parameters.npz


Digits = namedtuple("Digits", "images labels")  # float32[N, 8, 8, 1] from 0 (paper) to 1 (ink), int32[N]
Learner = namedtuple("Learner", "params averages average_state opt_state")


def load() -> tuple[Digits, Digits]:  # the images to train on, and 360 to test on: the same split for all seeds
    data = sklearn.datasets.load_digits()
    images, labels = np.float32(data.images[..., None] / 16), np.int32(data.target)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:TRAINING], order[TRAINING:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])


def batches(digits: Digits, size: int, random: np.random.Generator):  # all images once, in a new order
    order = random.permutation(len(digits.images))
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        yield Digits(digits.images[rows], digits.labels[rows])


def make_learner(config: Config):
    def network(images):  # [B, 8, 8, 1] to logits [B, 10]
        x = jax.nn.relu(hkx.Conv2D(config.channels, kernel_shape=3)(images))
        x = jax.nn.relu(hkx.Conv2D(2 * config.channels, kernel_shape=3, stride=2)(x))
        return hkx.Linear(CLASSES)(hkx.Flatten()(x))

    model = hkx.without_apply_rng(hkx.transform(network))
    average = hkx.without_apply_rng(hkx.transform_with_state(lambda params: hkx.EMAParamsTree(config.decay)(params)))
    optimizer = optax.adam(config.learning_rate)

    def init(params=None):
        params = params or model.init(jax.random.key(config.seed), jnp.zeros([1, 8, 8, 1]))
        _, average_state = average.init(None, params)  # nothing is averaged yet
        return Learner(params, params, average_state, optimizer.init(params))

    def loss(params, batch):
        logits = model.apply(params, batch.images)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels))

    @jax.jit
    def update(learner, batch):
        value, gradients = jax.value_and_grad(loss)(learner.params, batch)
        changes, opt_state = optimizer.update(gradients, learner.opt_state)
        params = optax.apply_updates(learner.params, changes)
        averages, average_state = average.apply({}, learner.average_state, params)
        return Learner(params, averages, average_state, opt_state), value

    @jax.jit
    def accuracy(params, digits):
        return jnp.mean(jnp.argmax(model.apply(params, digits.images), axis=-1) == digits.labels)

    return init, update, accuracy


def read_parameters(path: str, like: hkx.Params) -> hkx.Params:
    try:
        with np.load(path) as file:
            found = dict(file)
    except Exception as error:  # NumPy raises errors of many kinds
        sys.exit(f"--parameters: cannot read {path}: {error}")
    for module, name, x in hkx.data_structures.traverse(like):
        if (shape := found.get(f"{module}/{name}", np.array([])).shape) != x.shape:
            sys.exit(f"--parameters: {path} has {shape} for {module}/{name}, and the network needs {x.shape}")
    return hkx.data_structures.map(lambda module, name, _: found[f"{module}/{name}"], like)


def main(config: Config) -> dict:
    if not 1 <= config.batch_size <= TRAINING:
        sys.exit(f"--batch-size must be between 1 and {TRAINING}, and is {config.batch_size}")
    init, update, accuracy = make_learner(config)
    learner, random, rows = init(), np.random.default_rng(config.seed), []
    if config.parameters:
        learner = init(read_parameters(config.parameters, learner.params))
    train, test = load()
    try:
        for epoch in range(1, config.epochs + 1):
            losses = []
            for batch in batches(train, config.batch_size, random):
                learner, loss = update(learner, batch)
                losses.append(loss)
            rows.append((epoch, float(np.mean(losses)), float(accuracy(learner.averages, test))))
            print(f"epoch {epoch:>3}: loss {rows[-1][1]:.4f}, test accuracy {rows[-1][2]:.3f}")
    except KeyboardInterrupt:
        print("interrupted")
    if rows:
        (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
        with open(output / "metrics.csv", "w", newline="") as file:
            csv.writer(file).writerows([("epoch", "training_loss", "test_accuracy"), *rows])
        saved = {f"{m}/{name}": x for m, name, x in hkx.data_structures.traverse(learner.averages)}
        np.savez(output / "parameters.npz", **saved)
        left, right = (figure := Figure(figsize=(7.5, 3.5), layout="constrained")).subplots(1, 2)
        left.semilogy([row[0] for row in rows], [row[1] for row in rows])
        left.set(title="training loss", xlabel="epoch")
        right.plot([row[0] for row in rows], [row[2] for row in rows], color="tab:orange")
        right.set(title="test accuracy, averaged parameters", xlabel="epoch", ylim=(0.9, 1.0))
        figure.savefig(output / "curve.png", dpi=120)
    final, last_step = (float(accuracy(params, test)) for params in (learner.averages, learner.params))
    print(f"test accuracy: {final:.3f} with the averaged parameters, {last_step:.3f} with those of the last step")
    return {"test_accuracy": final, "losses": [row[1] for row in rows], "accuracies": [row[2] for row in rows]}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
