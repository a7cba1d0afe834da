"""A generative adversarial network learns to draw a given digit from noise.

Two networks play against each other (Goodfellow et al., 2014, https://arxiv.org/abs/1406.2661): the discriminator D
learns to tell real digits from drawn ones, the generator G learns to draw images that D takes for real. Both get
the digit's label. The generator's loss is softplus(-D(G(z))); the discriminator's is softplus(D(G(z))) +
softplus(-D(x)), and a penalty on the steepness of D at real images, which keeps the game from running away (Mescheder
et al., 2018, https://arxiv.org/abs/1801.04406). An exponential average of the generator draws at the end.

    pip install hkx optax tyro matplotlib scikit-learn && python gan.py --seed 3

saves samples.png, real digits on the left and drawn ones on the right. The last line printed is, after about a minute
on two cores,

    share of drawn digits that are recognised: 1.00
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
    import sklearn.svm
    import tyro
    from matplotlib.figure import Figure
    from matplotlib.image import imsave

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")

TRAINING, CLASSES = 1437, 10


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the networks, the order of the images and the noise
    epochs: int = 200  # passes over the training images
    batch_size: int = 64  # images per update, at most 1437
    noise: int = 32  # random numbers that an image is drawn from
    hidden: int = 256  # units in each hidden layer
    learning_rate: float = 5e-4  # step size of Adam, for both networks
    penalty: float = 1.0  # weight of the penalty on the discriminator's steepness
    decay: float = 0.995  # share of the averaged generator that each step keeps
    output: str = "runs/gan"  # folder for samples.png, metrics.csv, curve.png and the generator's parameters.npz


Digits = namedtuple("Digits", "images labels")  # float32[N, 8, 8, 1] from 0 (paper) to 1 (ink), int32[N]
Player = namedtuple("Player", "params opt_state")
Game = namedtuple("Game", "generator discriminator average")


def load() -> tuple[Digits, Digits]:  # the images to train on, and 360 to test on: the same split for all seeds
    data = sklearn.datasets.load_digits()
    images, labels = np.float32(data.images[..., None] / 16), np.int32(data.target)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:TRAINING], order[TRAINING:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])


def recognised(digits: Digits) -> float:  # the share that a support vector machine, trained on real digits, takes so
    train, _ = load()
    judge = sklearn.svm.SVC().fit(train.images.reshape(TRAINING, -1), train.labels)
    return float(np.mean(judge.predict(np.reshape(digits.images, [len(digits.images), -1])) == digits.labels))


def make_game(config: Config):
    def generator(labels):  # [B] to images [B, 8, 8, 1]
        noise = jax.random.normal(hkx.next_rng_key(), [len(labels), config.noise])
        inputs = jnp.concatenate([noise, hkx.one_hot(labels, CLASSES)], axis=-1)
        return jax.nn.sigmoid(hkx.nets.MLP([config.hidden, config.hidden, 64])(inputs)).reshape(-1, 8, 8, 1)

    def discriminator(digits):  # how real each image seems, as a logit, [B]
        inputs = jnp.concatenate([hkx.Flatten()(digits.images), hkx.one_hot(digits.labels, CLASSES)], axis=-1)
        return hkx.nets.MLP([config.hidden, config.hidden, 1], activation=jax.nn.leaky_relu)(inputs)[:, 0]

    draw, judge = hkx.transform(generator), hkx.without_apply_rng(hkx.transform(discriminator))
    optimizer = optax.adam(config.learning_rate, b1=0.5)

    def generator_loss(params, judge_params, key, labels):
        return jnp.mean(jax.nn.softplus(-judge.apply(judge_params, Digits(draw.apply(params, key, labels), labels))))

    def discriminator_loss(params, real, drawn):
        slope = jax.grad(lambda images: jnp.sum(judge.apply(params, real._replace(images=images))))(real.images)
        game = jax.nn.softplus(judge.apply(params, drawn)) + jax.nn.softplus(-judge.apply(params, real))
        return jnp.mean(game + 0.5 * config.penalty * jnp.sum(slope**2, axis=(1, 2, 3)))

    def moved(player, gradients):
        changes, opt_state = optimizer.update(gradients, player.opt_state)
        return Player(optax.apply_updates(player.params, changes), opt_state)

    def init(key, example):
        g, d = draw.init(jax.random.fold_in(key, 0), example.labels), judge.init(jax.random.fold_in(key, 1), example)
        return Game(Player(g, optimizer.init(g)), Player(d, optimizer.init(d)), average=g)

    @jax.jit
    def play(game, key, real):
        first, second = jax.random.split(key)
        drawn = Digits(draw.apply(game.generator.params, first, real.labels), real.labels)
        d_loss, gradients = jax.value_and_grad(discriminator_loss)(game.discriminator.params, real, drawn)
        judge = moved(game.discriminator, gradients)
        g_loss, gradients = jax.value_and_grad(generator_loss)(game.generator.params, judge.params, second, real.labels)
        artist = moved(game.generator, gradients)
        average = optax.incremental_update(artist.params, game.average, 1 - config.decay)
        return Game(artist, judge, average), (g_loss, d_loss)

    return init, play, jax.jit(draw.apply)


def save_samples(path: pathlib.Path, images: np.ndarray) -> None:  # [10, columns, 8, 8]
    framed = np.pad(images, [(0, 0), (0, 0), (1, 1), (1, 1)])  # the frame keeps neighbours apart
    sheet = framed.transpose(0, 2, 1, 3).reshape(100, -1)
    imsave(path, np.kron(sheet, np.ones([5, 5])), cmap="gray_r", vmin=0, vmax=1)


def main(config: Config) -> dict:
    if not 1 <= config.batch_size <= TRAINING:
        sys.exit(f"--batch-size must be between 1 and {TRAINING}, and is {config.batch_size}")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    train, test = load()
    init, play, draw = make_game(config)
    random, keys, rows = np.random.default_rng(config.seed), hkx.PRNGSequence(config.seed), []
    game = init(next(keys), Digits(train.images[:1], train.labels[:1]))
    try:
        for epoch in range(1, config.epochs + 1):
            losses, order = [], random.permutation(TRAINING)
            for start in range(0, TRAINING - config.batch_size + 1, config.batch_size):
                part = order[start : start + config.batch_size]
                game, both = play(game, next(keys), Digits(train.images[part], train.labels[part]))
                losses.append(both)
            rows.append((epoch, *np.mean(losses, axis=0).tolist()))
            print(f"epoch {epoch:>3}: generator {rows[-1][1]:.2f}, discriminator {rows[-1][2]:.2f}")
    except KeyboardInterrupt:
        print("interrupted")
    if not rows:
        sys.exit("nothing is saved: no epoch was completed")
    labels = np.arange(1000, dtype=np.int32) % 10
    drawn = Digits(np.asarray(draw(game.average, next(keys), labels)), labels)
    real = np.stack([test.images[test.labels == label][:10, ..., 0] for label in range(10)], axis=1)
    panels = np.concatenate([real, drawn.images[:100].reshape(real.shape)], axis=1)
    save_samples(output / "samples.png", panels)
    saved = {f"{m}/{name}": x for m, name, x in hkx.data_structures.traverse(game.average)}
    np.savez(output / "parameters.npz", **saved)
    with open(output / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows([("epoch", "generator_loss", "discriminator_loss"), *rows])
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1:] for row in rows], label=["generator", "discriminator"])
    axes.set(xlabel="epoch", ylabel="loss")
    axes.legend()
    figure.savefig(output / "curve.png", dpi=120)
    share = recognised(drawn)
    print(f"share of drawn digits that are recognised: {share:.2f}")
    return {"recognised": share, "drawn": drawn, "rows": rows}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
