"""A generative adversarial network learns to draw the digit that it is told to, from noise.

Two networks play against each other (Goodfellow et al., 2014, "Generative adversarial nets", arXiv:1406.2661): the
discriminator D learns to tell real digits from drawn ones, the generator G learns to draw what D takes for real. Both
are told which digit it is to be. The generator's loss is softplus(-D(G(z))); the discriminator's is softplus(D(G(z))) +
softplus(-D(x)), and a penalty on the steepness of D at real pictures, which keeps the game from running away (Mescheder
et al., 2018, "Which training methods for GANs do actually converge?", arXiv:1801.04406). What draws in the end is an
exponential average of the generator's parameters.

    python examples/gan.py --seed 3

saves samples.png, real digits on the left and drawn ones on the right. The last line printed is, after about a minute
on two cores,

    share of drawn digits that are recognised: 1.00
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

    seed: Seed = 0  # seed of the networks, the order of the pictures and the noise
    epochs: Count = 200  # times to go through the training pictures
    batch_size: Annotated[int, Between(1, digits_data.TRAINING)] = 64  # pictures to learn from at once
    noise: Count = 32  # random numbers that a picture is drawn from
    hidden: Count = 256  # units in each hidden layer
    learning_rate: Share = 5e-4  # step size of Adam, for both networks
    penalty: Annotated[float, Between(0, 1000)] = 1.0  # weight of the penalty on the discriminator's steepness
    decay: Share = 0.995  # share of the averaged generator that each step keeps
    output: str = "runs/gan"  # folder for the pictures, the metrics and the generator's parameters
    progress: bool = True  # show a progress bar


class Player(NamedTuple):
    """The parameters of a network, and the state of its optimiser."""

    params: hkx.Params
    opt_state: optax.OptState


class Game(NamedTuple):
    """What a round changes."""

    generator: Player
    discriminator: Player
    average: hkx.Params


class Training:
    """What is compiled: a round of the game, and drawing."""

    def __init__(self, config: Config):
        def generator(labels: jax.Array) -> jax.Array:
            """Draws the digits that the labels [B] say, as pictures [B, 8, 8, 1]."""
            noise = jax.random.normal(hkx.next_rng_key(), [len(labels), config.noise])
            inputs = jnp.concatenate([noise, hkx.one_hot(labels, digits_data.CLASSES)], axis=-1)
            pixels = hkx.nets.MLP([config.hidden, config.hidden, digits_data.SIZE**2])(inputs)
            return jax.nn.sigmoid(pixels).reshape(-1, digits_data.SIZE, digits_data.SIZE, 1)

        def discriminator(digits: Digits) -> jax.Array:
            """How real each picture seems, as a logit, [B]."""
            inputs = [hkx.Flatten()(digits.images), hkx.one_hot(digits.labels, digits_data.CLASSES)]
            mlp = hkx.nets.MLP([config.hidden, config.hidden, 1], activation=jax.nn.leaky_relu)
            return mlp(jnp.concatenate(inputs, axis=-1))[:, 0]

        draw = hkx.transform(generator)
        judge = hkx.without_apply_rng(hkx.transform(discriminator))
        optimizer = optax.adam(config.learning_rate, b1=0.5)

        def generator_loss(
            params: hkx.Params, judge_params: hkx.Params, key: jax.Array, labels: jax.Array
        ) -> jax.Array:
            drawn = Digits(draw.apply(params, key, labels), labels)
            return jnp.mean(jax.nn.softplus(-judge.apply(judge_params, drawn)))

        def discriminator_loss(params: hkx.Params, real: Digits, drawn: Digits) -> jax.Array:
            def realness(images: jax.Array) -> jax.Array:
                return jnp.sum(judge.apply(params, real._replace(images=images)))

            steepness = jnp.sum(jax.grad(realness)(real.images) ** 2, axis=(1, 2, 3))
            game = jax.nn.softplus(judge.apply(params, drawn)) + jax.nn.softplus(-judge.apply(params, real))
            return jnp.mean(game + 0.5 * config.penalty * steepness)

        def moved(player: Player, gradients: hkx.Params) -> Player:
            changes, opt_state = optimizer.update(gradients, player.opt_state)
            return Player(optax.apply_updates(player.params, changes), opt_state)

        def play(game: Game, key: jax.Array, real: Digits) -> tuple[Game, tuple[jax.Array, jax.Array]]:
            first, second = jax.random.split(key)
            drawn = Digits(draw.apply(game.generator.params, first, real.labels), real.labels)
            value = jax.value_and_grad(discriminator_loss)
            d_loss, gradients = value(game.discriminator.params, real, drawn)
            better_judge = moved(game.discriminator, gradients)
            value = jax.value_and_grad(generator_loss)
            g_loss, gradients = value(game.generator.params, better_judge.params, second, real.labels)
            artist = moved(game.generator, gradients)
            average = optax.incremental_update(artist.params, game.average, 1 - config.decay)
            return Game(artist, better_judge, average), (g_loss, d_loss)

        def create(key: jax.Array, example: Digits) -> Game:
            first, second = jax.random.split(key)
            g, d = draw.init(first, example.labels), judge.init(second, example)
            return Game(Player(g, optimizer.init(g)), Player(d, optimizer.init(d)), average=g)

        self.create = create
        self.play = jax.jit(play)
        self.draw = jax.jit(draw.apply)


def main(config: Config) -> dict[str, Any]:
    """Trains, draws and saves. Returns the losses, drawn digits, and how many of them are recognised."""
    output = program.output_folder(config.output)
    train, test = digits_data.load()
    training = Training(config)
    random, keys = np.random.default_rng(config.seed), hkx.PRNGSequence(config.seed)
    game = training.create(next(keys), Digits(train.images[:1], train.labels[:1]))
    losses: list[np.ndarray] = []

    bar = tqdm(total=config.epochs, unit=" epochs", disable=not config.progress)
    with program.noticing_interrupts() as interrupted:
        while len(losses) < config.epochs:
            epoch = []
            for batch in digits_data.batches(train, config.batch_size, random):
                game, both = training.play(game, next(keys), batch)
                epoch.append(both)
            losses.append(np.mean(epoch, axis=0))
            bar.set_postfix_str("generator {:.2f}, discriminator {:.2f}".format(*losses[-1]), refresh=False)
            bar.update()
            if interrupted.is_set():
                break
        bar.close()
        if interrupted.is_set():
            print(f"interrupted after {len(losses)} of {config.epochs} epochs")
        labels = np.arange(1000, dtype=np.int32) % 10
        drawn = Digits(np.asarray(training.draw(game.average, next(keys), labels)), labels)
        real = np.stack([test.images[test.labels == label][:10] for label in range(10)], axis=1)
        panels = np.stack([real, drawn.images[:100].reshape(real.shape)])
        digits_data.save_grid(output / "samples.png", panels, ("real", "drawn"))
        generator, discriminator = np.transpose(losses).tolist()
        columns = {"epoch": range(1, len(losses) + 1), "generator_loss": generator, "discriminator_loss": discriminator}
        program.save_parameters(output / "parameters.npz", game.average)
        program.save_table(output / "metrics.csv", columns)
        print(f"saved samples.png, metrics.csv and parameters.npz in {output}")
    recognised = digits_data.recognised(drawn)
    print(f"share of drawn digits that are recognised: {recognised:.2f}")
    return {
        "recognised": recognised,
        "generator_losses": generator,
        "discriminator_losses": discriminator,
        "drawn": drawn,
        "interrupted": interrupted.is_set(),
    }


if __name__ == "__main__":
    program.start(Config, main, __doc__)
