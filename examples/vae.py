"""A variational autoencoder learns to write digits: pictures out of eight random numbers each.

An encoder says where in a space of a few dimensions a picture lies, as a normal distribution, and a decoder says what
picture lies at a point. Both learn to maximise the evidence lower bound (Kingma & Welling, 2014, "Auto-encoding
variational Bayes", arXiv:1312.6114), log p(x) >= E log p(x | z) - KL(q(z | x) || p(z)); new pictures are then decoded
from points drawn from p(z), the standard normal distribution.

    python examples/vae.py --seed 3

saves samples.png, on its left test pictures above their reconstructions, on its right new ones. The last line printed
is, after about half a minute on two cores,

    evidence lower bound: -23.6 nats for a test picture
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
from settings import Between, Count, Seed, Settings, Share
from tqdm import tqdm

import hkx


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of a run. Every field is a flag of the command line."""

    seed: Seed = 0  # seed of the networks, the order of the pictures and the samples
    epochs: Count = 200  # times to go through the training pictures
    batch_size: Annotated[int, Between(1, digits_data.TRAINING)] = 64  # pictures to learn from at once
    latent: Count = 8  # dimensions of the space that pictures are encoded into
    hidden: Count = 256  # units in each hidden layer
    learning_rate: Share = 1e-3  # step size of Adam at the start; it falls to 0 along a cosine
    output: str = "runs/vae"  # folder for the pictures, the metrics and the parameters
    progress: bool = True  # show a progress bar


class Code(NamedTuple):
    """A normal distribution over the codes of each picture, with independent dimensions."""

    mean: jax.Array  # [B, latent]
    log_variance: jax.Array  # [B, latent]


class VAE(hkx.Module):
    """The encoder and the decoder."""

    def __init__(self, hidden: int, latent: int, name: str | None = None):
        super().__init__(name=name)
        pixels = digits_data.SIZE**2
        self.encoder = hkx.nets.MLP([hidden, hidden, 2 * latent], name="encoder")
        self.decoder = hkx.nets.MLP([hidden, hidden, pixels], name="decoder")

    def encode(self, images: jax.Array) -> Code:
        """Pictures [B, 8, 8, 1] to their codes."""
        return Code(*jnp.split(self.encoder(hkx.Flatten()(images)), 2, axis=-1))

    def decode(self, codes: jax.Array) -> jax.Array:
        """Points [B, latent] to logits [B, 8, 8, 1]: the sigmoid of each is how much ink is there."""
        return self.decoder(codes).reshape(-1, digits_data.SIZE, digits_data.SIZE, 1)

    def bound(self, images: jax.Array) -> jax.Array:
        """The evidence lower bound of each picture, [B], with one sample of its code."""
        code = self.encode(images)
        noise = jax.random.normal(hkx.next_rng_key(), code.mean.shape)
        logits = self.decode(code.mean + jnp.exp(0.5 * code.log_variance) * noise)
        log_likelihood = -jnp.sum(optax.sigmoid_binary_cross_entropy(logits, images), axis=(1, 2, 3))
        divergence = 0.5 * jnp.sum(jnp.exp(code.log_variance) + code.mean**2 - 1 - code.log_variance, axis=-1)
        return log_likelihood - divergence


class Functions(NamedTuple):
    """The pure functions of the model: `hkx.multi_transform` gives one for each of its uses."""

    bound: Any
    reconstruct: Any
    decode: Any


def make_model(config: Config) -> hkx.MultiTransformed:
    def model() -> tuple[Any, Functions]:
        vae = VAE(config.hidden, config.latent)

        def reconstruct(images: jax.Array) -> jax.Array:
            return jax.nn.sigmoid(vae.decode(vae.encode(images).mean))

        return vae.bound, Functions(vae.bound, reconstruct, lambda codes: jax.nn.sigmoid(vae.decode(codes)))

    return hkx.multi_transform(model)


def main(config: Config) -> dict[str, Any]:
    """Trains, samples and saves. Returns the bounds during training, and pictures: real, reconstructed and new."""
    output = program.output_folder(config.output)
    train, test = digits_data.load()
    model = make_model(config)
    random, keys = np.random.default_rng(config.seed), hkx.PRNGSequence(config.seed)
    total_steps = config.epochs * (digits_data.TRAINING // config.batch_size)
    optimizer = optax.adam(optax.cosine_decay_schedule(config.learning_rate, total_steps))

    @jax.jit
    def update(params: hkx.Params, opt_state: optax.OptState, key: jax.Array, images: jax.Array) -> Any:
        def loss(params: hkx.Params) -> jax.Array:
            return -jnp.mean(model.apply.bound(params, key, images))

        value, gradients = jax.value_and_grad(loss)(params)
        changes, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, changes), opt_state, -value

    test_bound = jax.jit(lambda params, key: jnp.mean(model.apply.bound(params, key, test.images)))
    params = model.init(next(keys), train.images[:1])
    opt_state = optimizer.init(params)
    bounds: list[float] = []
    test_bounds: list[float] = []

    bar = tqdm(total=config.epochs, unit=" epochs", disable=not config.progress)
    with program.noticing_interrupts() as interrupted:
        while len(bounds) < config.epochs:
            epoch = []
            for batch in digits_data.batches(train, config.batch_size, random):
                params, opt_state, bound = update(params, opt_state, next(keys), batch.images)
                epoch.append(bound)
            bounds.append(float(np.mean(epoch)))
            test_bounds.append(float(test_bound(params, next(keys))))
            bar.set_postfix_str(f"bound {bounds[-1]:.2f}, of test pictures {test_bounds[-1]:.2f}", refresh=False)
            bar.update()
            if interrupted.is_set():
                break
        bar.close()
        if interrupted.is_set():
            print(f"interrupted after {len(bounds)} of {config.epochs} epochs")
        real = test.images[:50]
        reconstructed = np.asarray(jax.jit(model.apply.reconstruct)(params, None, real))
        points = jax.random.normal(next(keys), [100, config.latent])
        samples = np.asarray(jax.jit(model.apply.decode)(params, None, points))
        rows = [part.reshape(5, 10, *real.shape[1:]) for part in (real, reconstructed)]
        alternating = np.stack(rows, axis=1).reshape(10, 10, *real.shape[1:])
        panels = np.stack([alternating, samples.reshape(10, 10, *real.shape[1:])])
        digits_data.save_grid(output / "samples.png", panels, ("real, and reconstructed below", "new"))
        columns = {"epoch": range(1, len(bounds) + 1), "training_bound": bounds, "test_bound": test_bounds}
        program.save_parameters(output / "parameters.npz", params)
        program.save_table(output / "metrics.csv", columns)
        print(f"saved samples.png, metrics.csv and parameters.npz in {output}")
    print(f"evidence lower bound: {test_bounds[-1]:.1f} nats for a test picture")
    return {
        "bounds": bounds,
        "test_bounds": test_bounds,
        "real": real,
        "reconstructed": reconstructed,
        "samples": samples,
        "interrupted": interrupted.is_set(),
    }


if __name__ == "__main__":
    program.start(Config, main, __doc__)
