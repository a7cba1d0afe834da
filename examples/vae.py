"""A variational autoencoder learns to write digits: images out of eight random numbers each.

An encoder says where in a space of a few dimensions an image lies, as a normal distribution, and a decoder says which
image lies at a point. Both learn to maximise the evidence lower bound (Kingma & Welling, 2014,
https://arxiv.org/abs/1312.6114), log p(x) >= E log p(x | z) - KL(q(z | x) || p(z)); new images are then decoded from
points of p(z), the standard normal distribution.

    pip install hkx optax tyro matplotlib scikit-learn && python vae.py --seed 3

saves samples.png, on its left test images above their reconstructions, on its right new ones. The last line printed
is, after about half a minute on two cores,

    evidence lower bound: -23.6 nats for a test image
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
    from matplotlib.image import imsave

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")

TRAINING = 1437


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the networks, the order of the images and the samples
    epochs: int = 200  # passes over the training images
    batch_size: int = 64  # images per update, at most 1437
    latent: int = 8  # dimensions of the space that images are encoded into
    hidden: int = 256  # units in each hidden layer
    learning_rate: float = 1e-3  # step size of Adam at the start; it falls to 0 along a cosine
    output: str = "runs/vae"  # folder for samples.png, metrics.csv, curve.png and parameters.npz


Code = namedtuple("Code", "mean log_variance")  # [B, latent] each: a normal distribution with independent dimensions
Functions = namedtuple("Functions", "bound reconstruct decode")  # `hkx.multi_transform` gives a pure one for each


def load() -> tuple[np.ndarray, np.ndarray]:  # images [N, 8, 8, 1] to train on, and 360 to test on: one split for all
    images = np.float32(sklearn.datasets.load_digits().images[..., None] / 16)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order[:TRAINING]], images[order[TRAINING:]]


class VAE(hkx.Module):
    def __init__(self, hidden: int, latent: int, name: str | None = None):
        super().__init__(name=name)
        self.encoder = hkx.nets.MLP([hidden, hidden, 2 * latent], name="encoder")
        self.decoder = hkx.nets.MLP([hidden, hidden, 64], name="decoder")

    def encode(self, images: jax.Array) -> Code:
        return Code(*jnp.split(self.encoder(hkx.Flatten()(images)), 2, axis=-1))

    def decode(self, codes: jax.Array) -> jax.Array:  # [B, latent] to logits of ink [B, 8, 8, 1]
        return self.decoder(codes).reshape(-1, 8, 8, 1)

    def bound(self, images: jax.Array) -> jax.Array:  # the evidence lower bound [B], with one sample of each code
        code = self.encode(images)
        noise = jax.random.normal(hkx.next_rng_key(), code.mean.shape)
        logits = self.decode(code.mean + jnp.exp(0.5 * code.log_variance) * noise)
        log_likelihood = -jnp.sum(optax.sigmoid_binary_cross_entropy(logits, images), axis=(1, 2, 3))
        divergence = 0.5 * jnp.sum(jnp.exp(code.log_variance) + code.mean**2 - 1 - code.log_variance, axis=-1)
        return log_likelihood - divergence

    def reconstruct(self, images: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(self.decode(self.encode(images).mean))


def make_model(config: Config) -> hkx.MultiTransformed:
    def model():
        vae = VAE(config.hidden, config.latent)
        return vae.bound, Functions(vae.bound, vae.reconstruct, lambda codes: jax.nn.sigmoid(vae.decode(codes)))

    return hkx.multi_transform(model)


def save_samples(path: pathlib.Path, images: np.ndarray) -> None:  # [10, columns, 8, 8]
    framed = np.pad(images, [(0, 0), (0, 0), (1, 1), (1, 1)])  # the frame keeps neighbours apart
    sheet = framed.transpose(0, 2, 1, 3).reshape(100, -1)
    imsave(path, np.kron(sheet, np.ones([5, 5])), cmap="gray_r", vmin=0, vmax=1)


def main(config: Config) -> dict:
    if not 1 <= config.batch_size <= TRAINING:
        sys.exit(f"--batch-size must be between 1 and {TRAINING}, and is {config.batch_size}")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    (train, test), model = load(), make_model(config)
    random, keys, rows = np.random.default_rng(config.seed), hkx.PRNGSequence(config.seed), []
    steps = config.epochs * (TRAINING // config.batch_size)
    optimizer = optax.adam(optax.cosine_decay_schedule(config.learning_rate, max(1, steps)))

    def loss(params, key, images):
        return -jnp.mean(model.apply.bound(params, key, images))

    @jax.jit
    def update(params, opt_state, key, images):
        value, gradients = jax.value_and_grad(loss)(params, key, images)
        changes, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, changes), opt_state, -value

    test_loss = jax.jit(loss)
    params = model.init(next(keys), train[:1])
    opt_state = optimizer.init(params)
    try:
        for epoch in range(1, config.epochs + 1):
            bounds, order = [], random.permutation(TRAINING)
            for start in range(0, TRAINING - config.batch_size + 1, config.batch_size):
                batch = train[order[start : start + config.batch_size]]
                params, opt_state, bound = update(params, opt_state, next(keys), batch)
                bounds.append(bound)
            rows.append((epoch, float(np.mean(bounds)), -float(test_loss(params, next(keys), test))))
            print(f"epoch {epoch:>3}: bound {rows[-1][1]:.2f}, of test images {rows[-1][2]:.2f}")
    except KeyboardInterrupt:
        print("interrupted")
    if not rows:
        sys.exit("nothing is saved: no epoch was completed")
    real = test[:50]
    reconstructed = np.asarray(jax.jit(model.apply.reconstruct)(params, None, real))
    points = jax.random.normal(next(keys), [100, config.latent])
    samples = np.asarray(jax.jit(model.apply.decode)(params, None, points))
    pairs = np.stack([x.reshape(5, 10, 8, 8) for x in (real, reconstructed)], axis=1).reshape(10, 10, 8, 8)
    panels = np.concatenate([pairs, samples.reshape(10, 10, 8, 8)], axis=1)
    save_samples(output / "samples.png", panels)
    np.savez(output / "parameters.npz", **{f"{m}/{name}": x for m, name, x in hkx.data_structures.traverse(params)})
    with open(output / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows([("epoch", "training_bound", "test_bound"), *rows])
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1:] for row in rows], label=["training", "test"])
    axes.set(xlabel="epoch", ylabel="evidence lower bound, nats")
    axes.legend()
    figure.savefig(output / "curve.png", dpi=120)
    print(f"evidence lower bound: {rows[-1][2]:.1f} nats for a test image")
    return {"rows": rows, "real": real, "reconstructed": reconstructed, "samples": samples}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
