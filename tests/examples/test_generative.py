"""The generative examples: reduced runs that still learn, what they return and save, and their mathematics."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the pictures come with scikit-learn: pip install '.[examples]'")

import gan
import vae
import vqvae
from fuzzing import SEEDS


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check_files(output, names):
    assert {path.name for path in output.iterdir()} == set(names)
    assert (output / "samples.png").read_bytes().startswith(b"\x89PNG")


def labelled_reconstructions(metrics):
    _, test = vqvae.load()
    np.testing.assert_array_equal(metrics["real"], test.images[: len(metrics["real"])])
    return vqvae.Digits(metrics["reconstructed"], test.labels[: len(metrics["real"])])


# Reduced runs: a few seconds each. The thresholds lie between an untrained network and the default settings.


@pytest.mark.slow
def test_reduced_vae(tmp_path):
    metrics = vae.main(vae.Config(epochs=15, hidden=128, learning_rate=3e-3, output=str(tmp_path)))
    assert metrics["rows"][0][1] < -30 < -27 < metrics["rows"][-1][2]
    assert vqvae.recognised(labelled_reconstructions(metrics)) >= 0.5  # chance: 0.1
    assert metrics["samples"].shape == (100, 8, 8, 1)
    assert metrics["samples"].min() >= 0 and metrics["samples"].max() <= 1
    check_files(tmp_path, ["samples.png", "metrics.csv", "curve.png", "parameters.npz"])
    assert [float(row["test_bound"]) for row in rows(tmp_path / "metrics.csv")] == [row[2] for row in metrics["rows"]]


@pytest.mark.slow
def test_reduced_gan(tmp_path):
    metrics = gan.main(gan.Config(epochs=25, hidden=128, decay=0.98, learning_rate=2e-3, output=str(tmp_path)))
    assert metrics["recognised"] >= 0.6
    assert len(metrics["rows"]) == 25
    drawn = metrics["drawn"].images.reshape(100, 10, 64)
    assert np.std(drawn, axis=0).mean() > 0.1  # the pictures of one digit differ
    check_files(tmp_path, ["samples.png", "metrics.csv", "curve.png", "parameters.npz"])


@pytest.mark.slow
def test_reduced_vqvae(tmp_path):
    sizes = {"channels": 16, "letters": 16, "speller_hidden": 64, "epochs": 5, "speller_epochs": 20}
    config = vqvae.Config(**sizes, learning_rate=6e-3, output=str(tmp_path))
    metrics = vqvae.main(config)
    assert metrics["error"] < 0.04 < 0.1 < np.var(vqvae.load()[1].images)  # the best that one grey could do
    assert metrics["recognised"] >= 0.6  # chance: 0.1
    assert metrics["cross_entropies"][-1][2] < 0.8 * metrics["cross_entropies"][0][2]
    names = ["samples.png", "metrics.csv", "curve.png", "parameters.npz", "state.npz", "speller.npz"]
    check_files(tmp_path, names)
    with np.load(tmp_path / "state.npz") as state:
        assert state["autoencoder/~/vector_quantizer_ema/embeddings"].shape == (8, 16)


def test_the_bound_is_that_of_the_paper():
    config = vae.Config(latent=2, hidden=5)
    model = vae.make_model(config)
    images = np.random.default_rng(0).uniform(size=[3, 8, 8, 1]).astype(np.float32)
    params = model.init(0, images)
    # One layer at a time in NumPy, with the noise that the model draws: the only key of `apply`.
    noise = np.asarray(jax.random.normal(jax.random.split(jax.random.PRNGKey(7))[1], [3, 2]), np.float64)

    def mlp(name, x):
        for i in range(3):
            layer = {k: np.asarray(v, np.float64) for k, v in params[f"vae/~/{name}/~/linear_{i}"].items()}
            x = x @ layer["w"] + layer["b"]
            x = np.maximum(x, 0) if i < 2 else x
        return x

    mean, log_variance = np.split(mlp("encoder", images.reshape(3, 64)), 2, axis=1)
    ink = 1 / (1 + np.exp(-mlp("decoder", mean + np.exp(log_variance / 2) * noise)))
    x = images.reshape(3, 64)
    likelihood = np.sum(x * np.log(ink) + (1 - x) * np.log(1 - ink), axis=1)
    divergence = np.sum((np.exp(log_variance) + mean**2 - 1 - log_variance) / 2, axis=1)
    got = jax.jit(model.apply.bound)(params, jax.random.PRNGKey(7), images)
    np.testing.assert_allclose(got, likelihood - divergence, rtol=1e-5)


@pytest.mark.slow
def test_a_round_of_the_game_moves_both_players_and_the_average():
    config = gan.Config(hidden=8, decay=0.75, batch_size=4)
    init, play, _ = gan.make_game(config)
    train, _ = gan.load()
    batch = gan.Digits(train.images[:4], train.labels[:4])
    before = init(jax.random.key(0), batch)
    after, (generator_loss, discriminator_loss) = play(before, jax.random.key(1), batch)
    # At the start D is near 0 everywhere: softplus(0) for the generator, twice that for the discriminator.
    assert generator_loss == pytest.approx(np.log(2), abs=0.3)
    assert discriminator_loss == pytest.approx(2 * np.log(2), abs=0.6)
    for old, new in ((before.generator, after.generator), (before.discriminator, after.discriminator)):
        changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), old.params, new.params)
        assert all(jax.tree.leaves(changed))
    expected = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, before.average, after.generator.params)
    for got, value in zip(jax.tree.leaves(after.average), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-7)


def test_letters_are_those_of_the_nearest_vectors_and_spellings_depend_on_the_temperature():
    config = vqvae.Config(channels=4, speller_hidden=8, letters=5)
    autoencoder, speller = vqvae.make_models(config)
    encode, decode = map(jax.jit, autoencoder.apply[1:])
    train, _ = vqvae.load()
    params, state = autoencoder.init(0, train.images[:1])
    letters, _ = encode(params, state, None, train.images[:6])
    assert letters.shape == (6, 4, 4)
    assert set(np.unique(letters)) <= set(range(5))
    pictures, _ = decode(params, state, None, letters)
    assert pictures.shape == (6, 8, 8, 1)

    labels = jnp.arange(6)
    spelling = speller.init(0, letters.reshape(6, 16), labels)
    spell = jax.jit(speller.apply[1])
    cold = [spell(spelling, seed, labels, 1e-3) for seed in (1, 2)]
    warm = [spell(spelling, seed, labels, 1.0) for seed in (1, 2)]
    assert cold[0].shape == (6, 16)
    np.testing.assert_array_equal(*cold)  # the likeliest letters, whatever the seed
    assert np.any(warm[0] != warm[1])


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_default_settings(tmp_path, seed):
    metrics = vae.main(vae.Config(seed=seed, output=str(tmp_path / "vae")))
    assert metrics["rows"][-1][2] > -24.2
    assert vqvae.recognised(labelled_reconstructions(metrics)) >= 0.9
    quarter = gan.Config().epochs // 4  # is enough
    metrics = gan.main(gan.Config(epochs=quarter, seed=seed, output=str(tmp_path / "gan")))
    assert metrics["recognised"] >= 0.9
    enough = {"epochs": vqvae.Config().epochs // 2, "speller_epochs": vqvae.Config().speller_epochs // 4}
    metrics = vqvae.main(vqvae.Config(**enough, seed=seed, output=str(tmp_path / "vqvae")))
    assert metrics["recognised"] >= 0.8
    assert metrics["error"] < 0.01
