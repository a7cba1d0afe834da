"""A vector-quantised autoencoder writes digits as sixteen letters of its own, and learns to spell new ones.

An encoder turns an image into 4 x 4 vectors, each of which is replaced by the nearest of 32 that are learnt: the
letters of an alphabet, from which a decoder makes the image again (van den Oord et al., 2017,
https://arxiv.org/abs/1711.00937). A recurrent network then learns which letter follows which in the spelling of each
digit, and new images are decoded from spellings that it makes up, letter by letter.

    pip install hkx optax tyro matplotlib scikit-learn && python vqvae.py --seed 3

saves samples.png, on its left test images above their reconstructions, on its right new ones. It ends, after about a
minute on two cores, with "share of new digits that are recognised: 0.96".
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

TRAINING, CLASSES, SIDE = 1437, 10, 4


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the networks, the order of the images and the samples
    epochs: int = 60  # passes of the autoencoder over the training images
    speller_epochs: int = 100  # passes of the speller over them
    batch_size: int = 64  # images per update, at most 1437
    channels: int = 32  # channels of the convolutions
    letters: int = 32  # vectors to choose from
    letter_size: int = 8  # dimensions of each vector
    speller_hidden: int = 128  # units of the recurrent network
    temperature: float = 0.7  # temperature of new spellings: 1 follows the speller, less prefers the usual ones
    learning_rate: float = 2e-3  # step size of Adam
    output: str = "runs/vqvae"  # folder for samples.png, metrics.csv, curve.png and the parameters


Digits = namedtuple("Digits", "images labels")  # float32[N, 8, 8, 1] from 0 (paper) to 1 (ink), int32[N]


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


class Autoencoder(hkx.Module):
    def __init__(self, config: Config):
        super().__init__()
        width = config.channels
        down = [hkx.Conv2D(width, 3, stride=2), jax.nn.relu, hkx.Conv2D(width, 3), jax.nn.relu]
        up = [hkx.Conv2D(width, 3), jax.nn.relu, hkx.Conv2DTranspose(width, 4, stride=2), jax.nn.relu]
        self.encoder = hkx.Sequential([*down, hkx.Conv2D(config.letter_size, 1)])
        self.quantizer = hkx.nets.VectorQuantizerEMA(config.letter_size, config.letters, 0.25, decay=0.95)
        self.decoder = hkx.Sequential([*up, hkx.Conv2D(1, 3)])

    def loss(self, images: jax.Array) -> jax.Array:  # the error in units of the usual one, and the commitment
        quantized = self.quantizer(self.encoder(images), is_training=True)
        return jnp.mean((self.decoder(quantized["quantize"]) - images) ** 2) / 0.02 + quantized["loss"]

    def encode(self, images: jax.Array) -> jax.Array:  # [B, 8, 8, 1] to letters [B, 4, 4]
        return self.quantizer(self.encoder(images), is_training=False)["encoding_indices"]

    def decode(self, letters: jax.Array) -> jax.Array:  # [B, 4, 4] to images [B, 8, 8, 1]
        return jnp.clip(self.decoder(self.quantizer.quantize(letters)), 0, 1)


class Speller(hkx.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.letters = config.letters
        self.of_letters = hkx.Embed(config.letters + 1, config.speller_hidden, name="of_letters")  # one: the start
        self.of_digits = hkx.Embed(CLASSES, config.speller_hidden, name="of_digits")
        self.core, self.head = hkx.GRU(config.speller_hidden), hkx.Linear(config.letters)

    def start(self, labels: jax.Array) -> tuple[jax.Array, jax.Array]:  # what comes before the first letter
        return jnp.full(labels.shape, self.letters), self.core.initial_state(len(labels))

    def step(self, labels: jax.Array, letter_tm1: jax.Array, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        out, memory = self.core(self.of_digits(labels) + self.of_letters(letter_tm1), memory)
        return self.head(out), memory  # logits of the next letters [B, letters]

    def loss(self, letters: jax.Array, labels: jax.Array) -> jax.Array:  # cross-entropy of spellings [B, 16]
        def step(carry, letter):
            logits, memory = self.step(labels, *carry)
            return (letter, memory), optax.softmax_cross_entropy_with_integer_labels(logits, letter)

        return jnp.mean(hkx.scan(step, self.start(labels), letters.T)[1])

    def spell(self, labels: jax.Array, temperature: float) -> jax.Array:  # new spellings [B, 16]
        def step(carry, _):
            logits, memory = self.step(labels, *carry)
            letter = jax.random.categorical(hkx.next_rng_key(), logits / temperature)
            return (letter, memory), letter

        return hkx.scan(step, self.start(labels), None, length=SIDE**2)[1].T


def make_models(config: Config) -> tuple[hkx.MultiTransformedWithState, hkx.MultiTransformed]:
    autoencoder = lambda: ((m := Autoencoder(config)).loss, (m.loss, m.encode, m.decode))  # noqa: E731
    speller = lambda: ((m := Speller(config)).loss, (m.loss, m.spell))  # noqa: E731
    return hkx.multi_transform_with_state(autoencoder), hkx.multi_transform(speller)


def learn(config: Config, name: str, loss, params, state, data: Digits, epochs: int):
    optimizer = optax.adam(config.learning_rate)

    @jax.jit
    def update(params, state, opt_state, batch):
        (cost, state), gradients = jax.value_and_grad(loss, has_aux=True)(params, state, batch)
        changes, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, changes), state, opt_state, cost

    random, opt_state, rows = np.random.default_rng(config.seed), optimizer.init(params), []
    try:
        for epoch in range(1, epochs + 1):
            costs, order = [], random.permutation(TRAINING)
            for start in range(0, TRAINING - config.batch_size + 1, config.batch_size):
                batch = jax.tree.map(lambda x: x[order[start : start + config.batch_size]], data)  # noqa: B023
                params, state, opt_state, cost = update(params, state, opt_state, batch)
                costs.append(cost)
            rows.append((name, epoch, float(np.mean(costs))))
            print(f"{name}, epoch {epoch:>3}: loss {rows[-1][-1]:.3f}")
    except KeyboardInterrupt:
        print(f"{name} interrupted")
    return params, state, rows


def main(config: Config) -> dict:
    if not 1 <= config.batch_size <= TRAINING:
        sys.exit(f"--batch-size must be between 1 and {TRAINING}, and is {config.batch_size}")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    (train, test), keys = load(), hkx.PRNGSequence(config.seed)
    autoencoder, speller = make_models(config)
    (image_loss, *coding), (spelling_loss, spell) = autoencoder.apply, speller.apply
    encode, decode = map(jax.jit, coding)
    params, state = autoencoder.init(next(keys), train.images[:1])

    def loss(params, state, batch):
        return image_loss(params, state, None, batch.images)

    params, state, losses = learn(config, "autoencoder", loss, params, state, train, config.epochs)
    letters = np.asarray(encode(params, state, None, train.images)[0]).reshape(-1, SIDE**2)
    spelling = speller.init(next(keys), letters[:1], train.labels[:1])

    def loss(params, state, batch):
        return spelling_loss(params, None, *batch), state

    spelled = Digits(letters, train.labels)
    spelling, _, entropies = learn(config, "speller", loss, spelling, {}, spelled, config.speller_epochs)
    labels = np.arange(1000, dtype=np.int32) % 10
    spelled = jax.jit(spell)(spelling, next(keys), labels, config.temperature).reshape(-1, SIDE, SIDE)
    drawn = Digits(np.asarray(decode(params, state, None, spelled)[0]), labels)
    reconstructed = np.asarray(decode(params, state, None, encode(params, state, None, test.images)[0])[0])
    pairs = np.stack([x[:50].reshape(5, 10, 8, 8) for x in (test.images, reconstructed)], axis=1)
    panels = np.concatenate([pairs.reshape(10, 10, 8, 8), drawn.images[:100].reshape(10, 10, 8, 8)], axis=1)
    framed = np.pad(panels, [(0, 0), (0, 0), (1, 1), (1, 1)]).transpose(0, 2, 1, 3)  # a frame keeps neighbours apart
    imsave(output / "samples.png", np.kron(framed.reshape(100, -1), np.ones([5, 5])), cmap="gray_r", vmin=0, vmax=1)
    for name, tree in ("parameters", params), ("state", state), ("speller", spelling):
        np.savez(output / f"{name}.npz", **{f"{m}/{k}": x for m, k, x in hkx.data_structures.traverse(tree)})
    with open(output / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows([("network", "epoch", "loss"), *losses, *entropies])
    axes = (figure := Figure(layout="constrained")).subplots()
    for rows in filter(None, (losses, entropies)):
        axes.semilogy([row[1] for row in rows], [row[2] for row in rows], label=rows[0][0])
    axes.set(xlabel="epoch", ylabel="loss")
    axes.legend()
    figure.savefig(output / "curve.png", dpi=120)
    error, share = float(np.mean((reconstructed - test.images) ** 2)), recognised(drawn)
    print(f"squared error of a test pixel: {error:.4f}")
    print(f"share of new digits that are recognised: {share:.2f}")
    return {"recognised": share, "error": error, "losses": losses, "cross_entropies": entropies, "drawn": drawn}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
