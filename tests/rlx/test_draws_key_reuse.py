"""`jax.debug_key_reuse` finds no key that rlx uses twice: in policies, noise and replays."""

import types

import jax
import jax.numpy as jnp
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

PROBS, MEAN, STD = jnp.array([0.2, 0.3, 0.5]), jnp.zeros(3), jnp.ones(3)
BOUNDS = types.SimpleNamespace(minimum=-1.0, maximum=1.0, shape=(3,))
DRAWS = {
    "softmax": lambda key: rlx.softmax().sample(key, PROBS),
    "clipped_entropy_softmax": lambda key: rlx.clipped_entropy_softmax(entropy_clip=0.5).sample(key, PROBS),
    "greedy": lambda key: rlx.greedy().sample(key, PROBS),
    "epsilon_greedy": lambda key: rlx.epsilon_greedy(0.1).sample(key, PROBS),
    "gaussian_diagonal": lambda key: rlx.gaussian_diagonal().sample(key, MEAN, STD),
    "squashed_gaussian": lambda key: rlx.squashed_gaussian().sample(key, MEAN, STD, BOUNDS),
    "categorical_sample": lambda key: rlx.categorical_sample(key, PROBS),
    "add_dirichlet_noise": lambda key: rlx.add_dirichlet_noise(key, PROBS, 0.3, 0.25),
    "add_gaussian_noise": lambda key: rlx.add_gaussian_noise(key, MEAN, 0.1),
    "add_ornstein_uhlenbeck_noise": lambda key: rlx.add_ornstein_uhlenbeck_noise(key, MEAN, MEAN, 0.1, 0.2),
    "smoothed_target_action": lambda key: rlx.smoothed_target_action(key, MEAN, 0.2, 0.5),
    "sample_start_indices": lambda key: rlx.sample_start_indices(key, 4, 2, 10),
    "tree_split_key": lambda key: jax.tree.map(jax.random.normal, rlx.tree_split_key(key, {"a": 0, "b": 0})),
}
TRANSITION = rlx.replay.Transition(jnp.zeros(1), jnp.zeros(1, int), jnp.ones(1), jnp.ones(1), jnp.zeros(1))
REPLAYS = {
    "uniform": (rlx.replay.uniform(10), 0.0),
    "prioritised": (rlx.replay.prioritised(10, 0.6, 0.4), 0.0),
    "reservoir": (rlx.replay.reservoir(10), 0.0),
    "n_step": (rlx.replay.n_step(rlx.replay.uniform(10), 3), TRANSITION),
    "sequences": (rlx.replay.sequences(10, 3, 2), jnp.zeros(1)),
}


@pytest.fixture(autouse=True)
def checked():
    with jax.debug_key_reuse(True):
        yield


def kept_and_drawn(name, key):
    replay, item = REPLAYS[name]
    of_init, key = jax.random.split(key)
    state = replay.init(item, of_init) if name == "reservoir" else replay.init(item)

    def step(carry, _):
        state, key = carry
        key, own = jax.random.split(key)
        state = replay.add(state, item)
        sample = replay.sample(state, own, 3)
        return (replay.update_priorities(state, sample.indices, jnp.ones(3)), key), sample

    return jax.lax.scan(step, (state, key), None, length=7)


@pytest.mark.parametrize("name", DRAWS)
def test_draws(name):
    DRAWS[name](jax.random.key(0))
    jax.eval_shape(jax.vmap(DRAWS[name]), jax.random.split(jax.random.key(0)))


@pytest.mark.parametrize("name", REPLAYS)
def test_replays(name):
    jax.eval_shape(lambda key: kept_and_drawn(name, key), jax.random.key(0))


def test_batches_and_a_key_that_is_used_twice():
    policy = rlx.softmax()
    jax.eval_shape(jax.vmap(lambda key: policy.sample(key, PROBS)), jax.random.split(jax.random.key(0), 4))
    with pytest.raises(jax.errors.KeyReuseError):
        jax.eval_shape(lambda key: (policy.sample(key, PROBS), policy.sample(key, PROBS)), jax.random.key(0))
