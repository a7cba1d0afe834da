"""Updates of the agents in `agents/` beside the equations in NumPy."""

import jax
import numpy as np
import pytest

pytest.importorskip("dm_env", reason="the environments speak dm_env: pip install '.[examples]'")

from agents import sac
from agents.agent import Step
from dm_env import specs
from jax.flatten_util import ravel_pytree

import rlx

pytestmark = pytest.mark.unoptimised

SEEN, DONE = specs.Array([3], np.float32), specs.BoundedArray([2], np.float32, -1, 1)
BATCH = 4


def experience(n):
    """Steps in one environment, [n, 1, ...], the last of an episode among them."""
    rng = np.random.default_rng(0)
    seen, after = rng.normal(size=(2, n, 1, 3))
    ends = np.arange(n)[:, None] % 3 == 2
    leaves = seen, rng.uniform(-1, 1, [n, 1, 2]), rng.normal(size=[n, 1]), 1 - ends, ends, after
    return Step(*(np.asarray(x, bool if x is ends else np.float32) for x in leaves), ())


def mlp(params, x):
    first, second = params["mlp/~/linear_0"], params["mlp/~/linear_1"]
    return np.maximum(0, x @ first["w"] + first["b"]) @ second["w"] + second["b"]


def of_actor(actor, critics, seen, noise, value_of):
    """The loss of the actor at a temperature of 1; `value_of` makes a value of those of all critics, [critics, B]."""
    mean, log_deviation = np.split(mlp(actor, seen), 2, axis=-1)
    u = mean + np.exp(np.clip(log_deviation, -5, 2)) * noise
    log_prob = -0.5 * noise**2 - np.clip(log_deviation, -5, 2) - 0.5 * np.log(2 * np.pi) + 2 * np.log(np.cosh(u))
    acted = np.concatenate([seen, np.tanh(u)], axis=-1)
    number = len(critics["mlp/~/linear_0"]["b"])
    values = np.stack([mlp(jax.tree.map(lambda x, i=i: x[i], critics), acted) for i in range(number)])
    return np.mean(np.sum(log_prob, axis=-1) - value_of(values))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "value_of"),
    [
        ({}, lambda q: q[..., 0].min(axis=0)),
        ({"critics": 4}, lambda q: q[..., 0].mean(axis=0)),  # REDQ, whose minimum of two is only that of the targets
        ({"quantiles": 5}, lambda q: q.mean(axis=(0, 2))),
    ],
)
def test_the_actor_of_sac_redq_and_tqc_maximises_the_value_of_the_paper(settings, value_of):
    config = sac.Config(hidden=(3,), capacity=8, warmup=8, batch_size=BATCH, period=8, **settings)
    agent = sac.make(config, SEEN, DONE)
    before, steps = agent.init(jax.random.key(1), 1), experience(8)
    after, _ = jax.jit(agent.learn)(before, steps)
    sample_key, loss_key, _ = jax.random.split(before.key, 3)
    drawn = rlx.replay.uniform(8).sample(after.replay.replay, sample_key, BATCH).items.s_tm1
    noise = jax.random.normal(jax.random.split(loss_key, 3)[1], [BATCH, 2])
    seen, noise, params = jax.tree.map(np.float64, (drawn, noise, before.params))
    vector, unravel = ravel_pytree(params["actor"])
    vector, gradient = np.float64(vector), []
    for i in range(vector.size):
        moved = (jax.tree.map(np.float64, unravel(vector + h * np.eye(vector.size)[i])) for h in (1e-3, -1e-3))
        one, other = (of_actor(actor, params["critics"], seen, noise, value_of) for actor in moved)
        gradient.append((one - other) / 2e-3)
    # Adam's average of gradients after one of them holds a tenth of it; the actor comes first.
    np.testing.assert_allclose(10 * jax.tree.leaves(after.opt_state)[1][: vector.size], gradient, rtol=1e-2, atol=1e-3)
